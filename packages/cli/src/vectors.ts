/**
 * `ropewalk vectors`: writes golden cases into a folder, for a kernel that is somewhere else.
 *
 * @module
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import type { LayerRope } from '@ropewalk/dialects';
import { refuseSystem, writeWhole } from '@ropewalk/formats/node';
import {
  answer,
  type Chosen,
  chooseBuiltIn,
  chooseDialect,
  chooseRope,
  formatManifest,
  GOLDEN_DIALECTS,
  GOLDEN_FORMS,
  GOLDEN_OPS,
  GOLDEN_SEED,
  type GoldenChoice,
  type GoldenDialect,
  type GoldenEntry,
  type GoldenForm,
  type GoldenManifest,
  openGolden,
  positionsFor,
  writeCase,
} from '@ropewalk/oracle';
import { openFolder } from '@ropewalk/oracle/node';
import { type FloatDtype, type OpName, RopewalkError } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { readExpectedRope, readModel } from './model-file.js';
import { oneOf, readContext, readInteger, readIntegers, someOf } from './options.js';
import { EXIT, openPrinter, printJson } from './output.js';
import { VERSION } from './version.js';
import { makeFolder } from './write-file.js';

/** Options of the command, as the command line gives them. */
export interface VectorsOptions {
  readonly model?: string;
  readonly layer?: string;
  readonly context?: string;
  readonly case?: string;
  readonly spec?: string;
  readonly dialect?: string;
  readonly op?: readonly string[];
  readonly format?: readonly string[];
  readonly dtype?: readonly string[];
  readonly seed?: string;
  readonly tokens?: string;
  readonly positions?: string;
  readonly heads?: string;
  readonly force?: boolean;
  readonly json?: boolean;
}

/** The most that a choice may ask for: a case is to be read by people, too. */
const MAX_TOKENS = 4096;
const MAX_HEADS = 1024;
const MAX_SEED = 2 ** 32 - 1;

/**
 * Writes a folder of golden cases.
 *
 * @param out - the folder; it must not exist, or be empty, or with `force` be one that this command wrote
 * @param options - which cases, in which forms
 * @returns the exit code
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2 and nothing is written
 */
export async function vectors(out: string, options: VectorsOptions): Promise<number> {
  const seed = readInteger(options.seed, 'vectors: --seed', 0, MAX_SEED) ?? GOLDEN_SEED;
  const forms = someOf(options.format, GOLDEN_FORMS, 'vectors: --format') ?? ['npy'];
  const chosen = await choose(options, seed);
  if (chosen.cases.length === 0)
    refuse('RANGE', 'vectors', 'a choice that some case fits', 'none', chosen.left[0]?.reason);
  const put = makeRoom(out, options.force ?? false);
  const interruption: Interruption = {};
  const manifest = await put(() =>
    untilInterrupted(interruption, (stopped) =>
      writeWhole(out, { sizeBytes: 0, inputs: [], kind: 'folder' }, (temporary) =>
        writeAll(temporary, { out, chosen, forms, seed, stopped, json: options.json ?? false }),
      ),
    ),
  );
  if (!manifest) {
    process.stderr.write('ropewalk: vectors: interrupted; nothing was written\n');
    process.kill(process.pid, interruption.signal); // the process ends as one that was stopped
    return EXIT.failed;
  }
  report(out, manifest, chosen, forms, options.json ?? false);
  return EXIT.ok;
}

async function choose(options: VectorsOptions, seed: number): Promise<Chosen> {
  const named = (['model', 'case', 'spec', 'dialect'] as const).filter((key) => options[key] !== undefined);
  if (named.length > 1) refuse('FORMAT', 'vectors', `one of --${named.join(' and --')}`, 'both');
  const ops = someOf(options.op, ['all', ...GOLDEN_OPS], 'vectors: --op');
  if (named.length > 0 && ops && ops.some((op) => op !== 'rope'))
    refuse(
      'FORMAT',
      'vectors: --op',
      `rope beside --${named[0]}`,
      ops.join(','),
      'Write the other operators into another folder.',
    );
  for (const key of ['layer', 'context'] as const) {
    if (options[key] !== undefined && options.model === undefined)
      refuse('FORMAT', `vectors: --${key}`, '--model FILE beside it', undefined);
  }
  if (options.positions !== undefined && options.tokens !== undefined)
    refuse('FORMAT', 'vectors: --tokens', 'either --tokens or --positions', 'both');
  const tokens = readInteger(options.tokens, 'vectors: --tokens', 1, MAX_TOKENS);
  const positions =
    options.positions !== undefined
      ? readIntegers(options.positions, 'vectors: --positions', 1 - 2 ** 31, 2 ** 31 - 1, MAX_TOKENS)
      : tokens === undefined
        ? undefined
        : positionsFor(tokens, seed);
  const heads = readInteger(options.heads, 'vectors: --heads', 1, MAX_HEADS);
  const dtypes = someOf<FloatDtype>(options.dtype, ['f32', 'f16', 'bf16', 'f64'], 'vectors: --dtype');
  const choice: GoldenChoice = {
    seed,
    ...(dtypes ? { dtypes } : {}),
    ...(positions ? { positions } : {}),
    ...(heads === undefined ? {} : { heads }),
  };
  if (options.model !== undefined) return chooseModel(options.model, options, choice);
  if (options.case !== undefined) return chooseExpected(options.case, 'case', choice);
  if (options.spec !== undefined) return chooseExpected(options.spec, 'spec', choice);
  if (options.dialect !== undefined)
    return chooseDialect(oneOf<GoldenDialect>(options.dialect, GOLDEN_DIALECTS, 'vectors: --dialect'), choice);
  const all = !ops || ops.includes('all');
  return chooseBuiltIn(all ? GOLDEN_OPS : (ops as OpName[]), choice);
}

/** A case for each RoPE that the model's layers have, or for one layer's. */
async function chooseModel(file: string, options: VectorsOptions, choice: GoldenChoice): Promise<Chosen> {
  const model = await readModel(file, 'vectors', readContext(options.context, 'vectors'));
  const layer = readInteger(options.layer, 'vectors: --layer', 0, model.numLayers - 1);
  const groups = new Map<string, LayerRope>();
  for (const one of model.layers) {
    if (!one.rope || (layer !== undefined && one.layer !== layer)) continue;
    const key = JSON.stringify(one.rope, (_, value) =>
      ArrayBuffer.isView(value) ? Array.from(value as Float32Array) : value,
    );
    if (!groups.has(key)) groups.set(key, one);
  }
  if (groups.size === 0)
    refuse(
      'RANGE',
      'vectors: --model',
      layer === undefined ? 'a model with RoPE' : `a layer with RoPE`,
      layer === undefined ? file : `layer ${layer}`,
    );
  const name = model.architecture.replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 60) || 'model';
  const chosen = [...groups.values()].map((one) =>
    chooseRope(
      {
        id: `${name}-layer-${one.layer}`,
        about: `${model.architecture}, layer ${one.layer}${one.layerType ? ` (${one.layerType})` : ''}, as its ${model.source} file says.`,
        spec: one.rope!,
      },
      choice,
    ),
  );
  return { cases: chosen.flatMap(({ cases }) => cases), left: [] };
}

async function chooseExpected(text: string, kind: 'case' | 'spec', choice: GoldenChoice): Promise<Chosen> {
  const line = /^\s*ROPE\s*\(/.test(text);
  if (kind === 'case' && !line)
    refuse('FORMAT', 'vectors: --case', 'a ROPE(…) line', text, 'A file goes to --spec or --model.');
  if (kind === 'spec' && !/\.json$/i.test(text)) refuse('FORMAT', 'vectors: --spec', 'a .json file', text);
  const { spec, direction, line: said } = await readExpectedRope(text, 'vectors');
  // A line says its type; another one may be asked for.
  const drawn = said ? { dtypes: [said.dtype], ...choice } : choice;
  const about = kind === 'case' ? text.trim() : `The record ${basename(text)}.`;
  return chooseRope({ id: `rope-${kind}`, about, spec, direction }, drawn);
}

/** What writing a folder needs. */
interface Job {
  /** The folder's final name, for messages. */
  readonly out: string;
  readonly chosen: Chosen;
  readonly forms: readonly GoldenForm[];
  readonly seed: number;
  /** Throws once a signal came. */
  readonly stopped: () => void;
  readonly json: boolean;
}

async function writeAll(folder: string, { out, chosen, forms, seed, stopped, json }: Job): Promise<GoldenManifest> {
  const generator = `ropewalk ${VERSION}`;
  const cases: GoldenEntry[] = [];
  const skipped: GoldenManifest['skipped'][number][] = [];
  const write = (path: string, content: string | Uint8Array): void => {
    try {
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, content);
    } catch (cause) {
      refuseSystem('DEVICE', `vectors: ${out}`, 'to be able to write', cause, 'Nothing was left there.');
    }
  };
  const printer = openPrinter(chosen.cases.length, 'cases', json, process.stderr);
  try {
    for (const one of chosen.cases) {
      stopped();
      const written = await writeCase(answer(one.make()), forms, generator, seed);
      for (const { path, bytes } of written.files) write(join(folder, path), bytes);
      skipped.push(...written.skipped);
      if (written.files.length > 0) cases.push(written.entry);
      printer.step();
      // A turn of the event loop: without it no signal would be heard.
      await new Promise((resolve) => setImmediate(resolve));
    }
  } finally {
    printer.stop();
  }
  if (cases.length === 0)
    refuse('UNSUPPORTED', 'vectors: --format', 'a form that can express a case', forms.join(','), skipped[0]?.reason);
  const manifest = { generator, seed, cases, skipped };
  write(join(folder, 'manifest.json'), formatManifest(manifest));
  return manifest;
}

function report(
  out: string,
  { cases, skipped, seed }: GoldenManifest,
  { left }: Chosen,
  forms: readonly GoldenForm[],
  json: boolean,
): void {
  if (json) {
    printJson({ out, seed, forms, cases: cases.map(({ id, op }) => ({ id, op })), skipped, left });
    return;
  }
  const byOp = new Map<string, number>();
  for (const { op } of cases) byOp.set(op, (byOp.get(op) ?? 0) + 1);
  const counts = [...byOp].map(([op, count]) => `${op} ${count}`).join(', ');
  const lines = [
    `${out}: ${cases.length} ${cases.length === 1 ? 'case' : 'cases'} (${counts}), seed ${seed}, as ${forms.join(', ')}`,
  ];
  for (const { id, form, reason } of skipped) lines.push(`  not as ${form}: ${id}: ${reason}`);
  for (const { id, reason } of left) lines.push(`  left out: ${id}: ${reason}`);
  process.stdout.write(`${lines.join('\n')}\n`);
}

/**
 * Clears the way for a folder: an empty one goes, and with `force` one that this command wrote, which comes back when the work fails.
 *
 * @returns what runs the work
 */
function makeRoom(out: string, force: boolean): <T>(work: () => Promise<T | undefined>) => Promise<T | undefined> {
  if (!existsSync(out)) {
    return (work) => {
      makeFolder(dirname(resolve(out)));
      return work();
    };
  }
  if (!statSync(out).isDirectory()) refuse('FORMAT', `vectors: ${out}`, 'a folder that is new, or empty', 'a file');
  if (readdirSync(out).length === 0) {
    return async (work) => {
      rmdirSync(out);
      try {
        return await work();
      } finally {
        if (!existsSync(out)) mkdirSync(out);
      }
    };
  }
  if (!force)
    refuse(
      'FORMAT',
      `vectors: ${out}`,
      'a folder that is new, or empty',
      'one with files in it',
      'Give another, or --force to replace it.',
    );
  try {
    openGolden(openFolder(out));
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    refuse(
      'FORMAT',
      `vectors: ${out}`,
      'a folder that ropewalk vectors wrote, to replace',
      'another one',
      'Nothing else is ever removed.',
    );
  }
  const aside = `${out.replace(/[\\/]+$/, '')}.${process.pid}.old`;
  return async (work) => {
    renameSync(out, aside);
    let done: Awaited<ReturnType<typeof work>>;
    try {
      done = await work();
    } catch (error) {
      renameSync(aside, out);
      throw error;
    }
    if (done === undefined) renameSync(aside, out);
    else rmSync(aside, { recursive: true });
    return done;
  };
}

/** The signal that came, if one did. */
interface Interruption {
  signal?: NodeJS.Signals;
}

/** Runs work that a signal stops: undefined then, after the work has cleaned up. */
async function untilInterrupted<T>(
  interruption: Interruption,
  work: (stopped: () => void) => Promise<T>,
): Promise<T | undefined> {
  class Interrupted extends Error {}
  const stop = (signal: NodeJS.Signals): void => {
    interruption.signal = signal;
  };
  const signals: NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  for (const signal of signals) process.on(signal, stop);
  try {
    return await work(() => {
      if (interruption.signal) throw new Interrupted();
    });
  } catch (error) {
    if (error instanceof Interrupted) return undefined;
    throw error;
  } finally {
    for (const signal of signals) process.removeListener(signal, stop);
  }
}
