/** `ropewalk vectors`: writes golden cases into a folder, to test kernels elsewhere. @module */
import { basename } from 'node:path';
import { readModelRope } from '@ropewalk/checkpoint/node';
import {
  chooseBuiltIn,
  chooseDialect,
  chooseModel,
  chooseRope,
  type GoldenChoice,
  type GoldenManifest,
} from '@ropewalk/oracle';
import {
  type Chosen,
  GOLDEN_DIALECTS,
  GOLDEN_FORMS,
  GOLDEN_OPS,
  GOLDEN_SEED,
  type GoldenForm,
  positionsFor,
  TABLE_PRECISIONS,
} from '@ropewalk/oracle/internal';
import { writeGoldenFolder } from '@ropewalk/oracle/node';
import type { OpName } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { FLOATS, Flags, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { counted, EXIT, openPrinter, printResult } from './output.js';
import { isRopeLine } from './rope-line.js';
import { readRope } from './rope-source.js';
import { VERSION } from './version.js';

export type VectorsOptions = Texts<'model' | 'layer' | 'context' | 'rope' | 'spec' | 'dialect' | 'seed' | 'tokens'> &
  Texts<'positions' | 'heads' | 'table'> &
  Switches<'force' | 'json'> & {
    readonly op?: readonly string[];
    readonly format?: readonly string[];
    readonly dtype?: readonly string[];
  };

/** The largest sizes, because people read the cases too. */
const MAX_TOKENS = 4096;
const MAX_HEADS = 1024;

/** @param out - a folder that does not exist or is empty, or with `force` one that this command wrote */
export async function vectors(out: string, options: VectorsOptions): Promise<number> {
  const flags = new Flags(options);
  const seed = flags.integer('seed', 0, 2 ** 32 - 1) ?? GOLDEN_SEED;
  const forms = flags.words('format', GOLDEN_FORMS) ?? ['npy'];
  const table = flags.word('table', TABLE_PRECISIONS);
  const { cases, left } = await choose(flags, options, seed);
  if (cases.length === 0) fail('RANGE', out, `no case fits these options. ${left[0]?.reason ?? ''}`.trimEnd());
  const { json, force } = options;
  const manifest = await untilInterrupted('vectors', async (signal) => {
    const printer = openPrinter(cases.length, 'cases', json, process.stderr);
    const onCase = (): void => printer.step();
    const generator = `ropewalk ${VERSION}`;
    const onnx = () => import('@ropewalk/onnx');
    const given = { forms, seed, generator, table, force, signal, onnx, onCase };
    return writeGoldenFolder(out, cases, given).finally(() => printer.stop());
  });
  if (!manifest) return EXIT.failed;
  const ids = manifest.cases.map(({ id, op }) => ({ id, op }));
  printResult(json, {
    json: () => ({ out, seed, forms, cases: ids, skipped: manifest.skipped, left }),
    lines: () => describe(out, manifest, left, forms),
  });
  return EXIT.ok;
}

async function choose(flags: Flags<VectorsOptions>, options: VectorsOptions, seed: number): Promise<Chosen> {
  const { model, spec, dialect } = options;
  const named = (['model', 'rope', 'spec', 'dialect'] as const).filter((key) => options[key] !== undefined);
  if (named.length > 1) flags.refuseAny([named[1]!], `it does not go with --${named[0]}. Leave one of them out.`);
  const ops = flags.words('op', ['all', ...GOLDEN_OPS]);
  if (named.length > 0 && dialect === undefined && ops?.some((op) => op !== 'rope'))
    fail('FORMAT', '--op', `--${named[0]} makes cases of RoPE only. Write the other operators into another folder.`);
  if (model === undefined) flags.refuseAny(['layer', 'context'], 'it needs --model FILE.');
  if (options.positions !== undefined) flags.refuseAny(['tokens'], 'it does not go with --positions. Leave one out.');
  const tokens = flags.integer('tokens', 1, MAX_TOKENS);
  const choice: GoldenChoice = {
    seed,
    dtypes: flags.words('dtype', FLOATS),
    positions:
      flags.integers('positions', -MAX_INTEGER, MAX_INTEGER, MAX_TOKENS) ??
      (tokens === undefined ? undefined : positionsFor(tokens, seed)),
    heads: flags.integer('heads', 1, MAX_HEADS),
  };
  if (model !== undefined) {
    const read = await readModelRope(model, flags.integer('context', 1));
    return chooseModel(read, choice, flags.integer('layer', 0, read.numLayers - 1));
  }
  if (options.rope !== undefined) {
    if (!isRopeLine(options.rope))
      refuse('FORMAT', '--rope', 'a ROPE(…) line', options.rope, 'Give a file to --spec or --model.');
    return chooseGiven(options.rope, 'rope-case', options.rope.trim(), choice);
  }
  if (spec !== undefined) {
    if (!/\.json$/i.test(spec)) refuse('FORMAT', '--spec', 'a .json file', spec);
    return chooseGiven(spec, 'rope-spec', `The record ${basename(spec)}.`, choice);
  }
  const one = flags.word('dialect', GOLDEN_DIALECTS);
  const chosen = !ops || ops.includes('all') ? GOLDEN_OPS : (ops as OpName[]);
  if (dialect !== undefined) return chooseDialect(one!, choice, ops ? chosen : ['rope']);
  return chooseBuiltIn(chosen, choice);
}

async function chooseGiven(text: string, id: string, about: string, choice: GoldenChoice): Promise<Chosen> {
  const { spec, direction, line } = await readRope(text);
  // A line has a dtype, which --dtype replaces.
  const dtypes = choice.dtypes ?? (line && [line.dtype]);
  return chooseRope({ id, about, spec, direction }, { ...choice, dtypes });
}

function describe(
  out: string,
  { cases, skipped, seed }: GoldenManifest,
  left: Chosen['left'],
  forms: readonly GoldenForm[],
): string[] {
  const byOp = new Map<string, number>();
  for (const { op } of cases) byOp.set(op, (byOp.get(op) ?? 0) + 1);
  const counts = [...byOp].map(([op, count]) => `${op} ${count}`).join(', ');
  const total = counted(cases.length, 'case');
  return [
    `${out}: ${total} (${counts}), seed ${seed}, as ${forms.join(', ')}`,
    ...skipped.map(({ id, form, reason }) => `  not as ${form}: ${id}: ${reason}`),
    ...left.map(({ id, reason }) => `  left out: ${id}: ${reason}`),
  ];
}
