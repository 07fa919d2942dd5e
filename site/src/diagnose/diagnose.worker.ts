/** Reads dumps, diagnoses them, and keeps the heads for the pictures. The page only shows the results. @module */

import { layerOf, type RopeSource, ropeSourceFromGguf, ropeSourceFromJson } from '@ropewalk/checkpoint';
import {
  contextSeen,
  expectationOf,
  type KernelRun,
  observationOf,
  optionsLeftOut,
} from '@ropewalk/checkpoint/internal';
import {
  CAUSES,
  type Diagnosis,
  demoObservation,
  diagnose,
  diagnosisToJson,
  type Expected,
  MUTANTS,
  type Observation,
  type ReadHeads,
  readHeads,
} from '@ropewalk/diagnose';
import { type DiagnosisReport, hiddenNorm, isAsExpected, linesOf, reportOf } from '@ropewalk/diagnose/internal';
import { type DumpFile, dumpOf, parseJson, writeNpz } from '@ropewalk/formats';
import { chooseBuiltIn, mutantExample, parseRopeLabel, ropePlanOfCase } from '@ropewalk/oracle';
import { type Dtype, type FloatDtype, type RopeLayout, RopewalkError, type Tensor, tensorFrom } from 'ropewalk';
import { readGguf } from '../shared/model-files.js';
import type { Remote } from '../shared/remote.js';

/** An array of a dropped file. */
export interface Listed {
  /** The file and the name, such as `dump.npz:x`, or only the file if it has no names. */
  readonly id: string;
  /** The array's name, or the file's name without extension. The page guesses the role from it. */
  readonly name: string;
  /** The type and shape, such as `f32 [6, 4, 128]`, or the size of a raw file. */
  readonly words: string;
  readonly raw: boolean;
}

/** The role of an array. */
export type Role = 'x' | 'y' | 'positions' | 'norm';

/** The fields about the arrays that the user fills in. */
export interface Form {
  readonly dtype: string;
  readonly shape: string;
  readonly positionsDtype: string;
  readonly heads: string;
  readonly layout: string;
  readonly normEps: string;
}

/** The fields about the RoPE that the kernel should compute. */
export interface Meant {
  readonly kind: 'model' | 'text' | 'nothing';
  /** The golden case whose model it is. */
  readonly model: string;
  /** A config.json, a record, arguments, a ROPE(…) line, or the name of a dropped .gguf. */
  readonly text: string;
  /** The GGUF on another host that `text` names, or its parts. */
  readonly remote: readonly Remote[];
  readonly layer: string;
  readonly context: string;
  readonly direction: string;
}

/** A diagnosis that is asked for. */
export type Asked =
  | { readonly kind: 'demo' }
  | { readonly kind: 'bug'; readonly id: string }
  | {
      readonly kind: 'files';
      readonly files: readonly File[];
      readonly roles: Readonly<Partial<Record<Role, string>>>;
      readonly form: Form;
      readonly meant: Meant;
    };

/** A known bug in words. */
export interface BugWords {
  readonly id: string;
  readonly does: string;
  readonly cause: string;
  readonly threads: readonly string[];
}

/** The content of the page. */
export interface Report {
  readonly verdict: Diagnosis['verdict'];
  /** An option that the user may have left out: with it y is right. */
  readonly rightWith: string | undefined;
  /** Says whether another layout gives a known bug. Then it is not certain that the kernel is right. */
  readonly unsettled: boolean;
  readonly told: DiagnosisReport;
  /** The whole report as text. */
  readonly text: string;
  /** The source of the expectation, in words. */
  readonly from: string | undefined;
  readonly json: string;
  /** Each entry is one known bug or a pair of them. There are several entries if the input cannot tell them apart. */
  readonly bugs: readonly (readonly BugWords[])[];
  /** A sentence about the model of an example, and the bug that was chosen for it. */
  readonly example: { readonly bug?: BugWords; readonly about: string } | undefined;
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly headDim: number;
  /** The number of pairs of the rotation that y is compared with, or 0 without a rotation. */
  readonly pairs: number;
  /** The record that y is compared with: the expected one, or the one that the diagnosis found. */
  readonly against: 'expected' | 'found' | undefined;
  /** Radians per position for each pair. It is null if a pair does not turn or its frequency is not known. */
  readonly frequencies: { readonly found: readonly (number | null)[]; readonly expected?: readonly (number | null)[] };
  /** The place of the worst element. The page shows that head first. */
  readonly worst: { readonly batch: number; readonly head: number; readonly seq: number } | undefined;
  /** x.npy and positions.npy of the next input, as a zip. */
  readonly next: Uint8Array | undefined;
}

/** A map of one head: tokens × dimensions or pairs. */
export interface HeadMap {
  readonly rows: number;
  readonly columns: number;
  /** The position of each row, on each axis. */
  readonly positions: readonly string[];
  readonly y: Float64Array;
  readonly expected: Float64Array | undefined;
  readonly x: Float64Array;
  /** Each error divided by its tolerance; Infinity where y is not finite. */
  readonly ratios: Float64Array | undefined;
  /** The angle in radians by which each pair of y is turned too far. It is NaN if a pair has no length. */
  readonly turn: Float64Array | undefined;
}

const words = (tensor: Tensor): string => `${tensor.dtype} [${tensor.shape.join(', ')}]`;

/** The dumps that were opened, by name, size and date of their files. */
const dumps = new Map<string, Promise<DumpFile>>();

function open(file: File): Promise<DumpFile> {
  const key = `${file.name}/${file.size}/${file.lastModified}`;
  const known = dumps.get(key);
  if (known) return known;
  const opened = file.arrayBuffer().then((buffer) => dumpOf(file.name, new Uint8Array(buffer)));
  opened.catch(() => dumps.delete(key));
  dumps.set(key, opened);
  return opened;
}

/** The header that was read last from another host. It is asked for once. */
let fetched: { readonly url: string; readonly header: ReturnType<typeof readGguf> } | undefined;

function fetchHeader(parts: readonly Remote[]): ReturnType<typeof readGguf> {
  const { url } = parts[0]!;
  if (fetched?.url === url) return fetched.header;
  const header = readGguf(parts);
  fetched = { url, header };
  header.catch(() => (fetched = undefined));
  return header;
}

const idOf = (file: string, name: string): string => (name === '' ? file : `${file}:${name}`);

/** Reads an array by its id. */
async function arrayOf(files: readonly File[], id: string, role: Role, form: Form): Promise<Tensor> {
  for (const file of files) {
    if (id !== file.name && !id.startsWith(`${file.name}:`)) continue;
    const dump = await open(file);
    const isPositions = role === 'positions';
    const isFlat = isPositions || role === 'norm' || form.shape.trim() === '';
    const dtype = ((isPositions ? (dump.isRaw ? form.positionsDtype : '') : form.dtype) || undefined) as Dtype;
    try {
      return dump.read(id.slice(file.name.length + 1), { dtype, shape: isFlat ? undefined : shapeOf(form.shape) });
    } catch (error) {
      throw error instanceof RopewalkError ? new RopewalkError(error.code, `${role}: ${error.message}`) : error;
    }
  }
  throw new RopewalkError('FORMAT', `${role}: no array ${id} is here. Drop its file again.`);
}

function shapeOf(text: string): number[] {
  return text.split(',').map((part) => wholeOf(part, 'shape', 1)!);
}

/** Reads a whole number from a field. An empty field gives undefined. */
function wholeOf(text: string, field: string, low: number): number | undefined {
  if (text.trim() === '') return undefined;
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < low)
    throw new RopewalkError('RANGE', `${field}: expected an integer >= ${low}, got ${JSON.stringify(text.trim())}.`);
  return value;
}

/** The inputs of a diagnosis, and the source of the expectation in words. */
interface Task {
  readonly observation: Observation;
  readonly expected: Expected | undefined;
  readonly from: string | undefined;
  readonly example?: Report['example'];
  readonly source?: RopeSource;
}

const bugWords = ({ id, does, cause, threads }: (typeof MUTANTS)[number]): BugWords => ({
  id,
  does,
  cause: `${cause}, ${CAUSES[cause]}`,
  threads,
});

async function taskOf(asked: Asked): Promise<Task> {
  if (asked.kind === 'demo') {
    const demo = demoObservation();
    return { ...demo, example: { about: `${demo.from}.` } };
  }
  if (asked.kind === 'bug') {
    const mutant = MUTANTS.find(({ id }) => id === asked.id);
    if (!mutant)
      throw new RopewalkError('FORMAT', `There is no known bug ${JSON.stringify(asked.id)}. The museum lists all.`);
    const { observation, expected, from, about } = mutantExample(mutant);
    return { observation, expected, from, example: { bug: bugWords(mutant), about } };
  }
  const { files, roles, form, meant } = asked;
  const missing = (['x', 'y', 'positions'] as const).filter((role) => !roles[role]);
  if (missing.length > 0)
    throw new RopewalkError(
      'FORMAT',
      `${missing.join(', ')}: choose an array for each. Drop the files that have them.`,
    );
  const array = (role: Role): Promise<Tensor> => arrayOf(files, roles[role]!, role, form);
  const run = {
    x: await array('x'),
    y: await array('y'),
    positions: await array('positions'),
    normWeight: roles.norm ? await array('norm') : undefined,
    normEps: form.normEps.trim() === '' ? undefined : Number(form.normEps),
    layout: (form.layout || undefined) as KernelRun['layout'],
    heads: wholeOf(form.heads, 'heads', 1),
    dtype: (form.dtype || undefined) as FloatDtype | undefined,
  };
  const expectation = await expectedOf(meant, files, run.positions);
  const nameOf = (field: string): string => ({ normEps: 'norm eps', expected: 'the model' })[field] ?? field;
  return { observation: observationOf(run, expectation.expected, nameOf), ...expectation };
}

async function expectedOf(
  { kind, model, text, remote, layer, context, direction }: Meant,
  files: readonly File[],
  positions: Parameters<typeof contextSeen>[1],
): Promise<Pick<Task, 'expected' | 'from' | 'source'>> {
  const way = direction === 'backward' || direction === 'forward' ? direction : undefined;
  if (kind === 'nothing') return { expected: undefined, from: undefined };
  if (kind === 'model') {
    const found = chooseBuiltIn(['rope']).cases.find(({ id }) => id === model);
    if (!found)
      throw new RopewalkError('FORMAT', `There is no model ${JSON.stringify(model)}. Choose one of the list.`);
    const { spec, direction: own } = found.make().rope!;
    return expectationOf({ spec, direction: own, from: model }, way);
  }
  if (text.trim() === '')
    throw new RopewalkError('FORMAT', 'What was meant: paste or drop a config.json or a record, or choose a model.');
  if (/^\s*ROPE\s*\(/.test(text)) {
    const { source, direction: own } = ropePlanOfCase(parseRopeLabel(text.trim()));
    return expectationOf({ spec: source!.spec, direction: own, from: 'the ROPE(…) line' }, way);
  }
  const tokens = wholeOf(context, 'context', 1);
  const own = files.filter(({ name }) => /\.gguf$/i.test(name));
  const isOwn = own.some(({ name }) => name === text.trim());
  // The user drops the tables that arguments name. They are read first, because the reader is synchronous.
  const tables = files.filter(({ name }) => text.includes(JSON.stringify(name)));
  const bytes = new Map(
    await Promise.all(tables.map(async (file) => [file.name, new Uint8Array(await file.arrayBuffer())] as const)),
  );
  const header =
    isOwn || (remote.length > 0 && /\.gguf$/i.test(text.trim()))
      ? await (isOwn ? readGguf(own) : fetchHeader(remote))
      : undefined;
  const sourceAt = (inUse: number | undefined) =>
    header
      ? ropeSourceFromGguf(header, text.trim(), inUse)
      : ropeSourceFromJson(parseJson(text, 'config'), 'the JSON', {
          context: inUse,
          readFile: (name) => {
            const found = bytes.get(name);
            if (!found) throw new RopewalkError('FORMAT', `${name}: the JSON names this table. Drop the file too.`);
            return found;
          },
        });
  const number = wholeOf(layer, 'layer', 0);
  const source = sourceAt(tokens);
  const given = layerOf(source, number, true);
  const seen = tokens === undefined ? contextSeen(given.spec, positions) : undefined;
  if (seen === undefined) return { ...expectationOf(given, way), source };
  const from = `${given.from}, ${seen} tokens in use`;
  return { ...expectationOf({ ...layerOf(sourceAt(seen), number, true), from }, way), source };
}

/** Finds what the user may have left out, in words: with it the kernel is right. */
async function rightWithOf(asked: Asked, { source, observation, expected }: Task, layout: RopeLayout) {
  if (asked.kind !== 'files' || !expected) return undefined;
  const { form, meant } = asked;
  for (const left of optionsLeftOut(source, wholeOf(meant.layer, 'layer', 0) ?? 0, form.dtype)) {
    const { dtype = form.dtype, layer = meant.layer, context = meant.context } = left;
    try {
      const other = { ...meant, layer: String(layer), context: String(context) };
      const task = await taskOf({ ...asked, form: { ...form, dtype }, meant: other });
      if (isAsExpected({ ...task.observation, layout }, task.expected!)) return Object.entries(left).flat().join(' ');
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error; // the dumps do not fit this option
    }
  }
  const norm = hiddenNorm({ ...observation, layout }, expected);
  return norm && `a norm of each head before the rotation, with an epsilon of ${norm.eps}`;
}

let shown: ReadHeads | undefined;
/** The last overview, which stays while the user goes from head to head. */
let overviewed: { readonly of: ReadHeads; readonly key: string; readonly values: Float64Array } | undefined;

const kernel = {
  /** Reads the header of a GGUF on another host, for the runs after it. */
  async ask(parts: readonly Remote[]): Promise<void> {
    await fetchHeader(parts);
  },

  /**
   * Lists the arrays of files. A file that cannot be read is reported as a problem, and the others are still listed.
   */
  async list(files: readonly File[]): Promise<{ arrays: Listed[]; problems: string[] }> {
    const arrays: Listed[] = [];
    const problems: string[] = [];
    for (const file of files) {
      if (/\.gguf$/i.test(file.name)) continue; // a .gguf describes the expected RoPE
      const stem = file.name.replace(/\.[^.]*$/, '');
      try {
        const dump = await open(file);
        if (dump.isRaw) arrays.push({ id: file.name, name: stem, words: `raw, ${file.size} bytes`, raw: true });
        else
          for (const name of dump.names) {
            const id = idOf(file.name, name);
            try {
              arrays.push({ id, name: name || stem, words: words(dump.read(name)), raw: false });
            } catch (error) {
              problems.push(`${id}: ${(error as Error).message}`);
            }
          }
      } catch (error) {
        problems.push((error as Error).message);
      }
    }
    return { arrays, problems };
  },

  /**
   * Diagnoses a kernel from its arrays.
   *
   * @param tell - is called about ten times a second with the share that is done
   */
  async run(asked: Asked, tell: (done: number) => void): Promise<Report> {
    const task = await taskOf(asked);
    const { observation, expected, from, example } = task;
    let told = 0;
    const result = diagnose(observation, expected, {
      progress: (done) => {
        if (performance.now() - told < 100) return;
        told = performance.now();
        tell(done);
      },
    });
    const { found, layout, named, verdict, next, worst } = result;
    const isFine = layout.otherwise.length === 0 && ['as expected', 'less precise', 'rotation'].includes(verdict);
    const rightWith = isFine ? undefined : await rightWithOf(asked, task, layout.layout);
    // Without an expectation, y is compared with the record of the diagnosis, if that has the user's positions.
    const record = expected ?? (found.positions[0]?.asGiven ? found.expected : undefined);
    const read = readHeads({ ...observation, layout: layout.layout }, record);
    shown = read;
    const { batch, seq, heads, headDim, pairs } = read;
    const report = reportOf(result, from, true);
    const frequency = (value: number | undefined): number | null => (value ? Math.abs(value) : null);
    return {
      verdict,
      rightWith,
      unsettled: layout.otherwise.length > 0,
      told: report,
      text: `${linesOf(report).join('\n')}\n`,
      from,
      json: `${JSON.stringify(diagnosisToJson(result, from), null, 2)}\n`,
      bugs: named.map(({ mutants }) => mutants.map(bugWords)),
      example,
      batch,
      seq,
      heads,
      headDim,
      pairs: pairs.length,
      against: expected ? 'expected' : record ? 'found' : undefined,
      frequencies: {
        found: found.pairs.map((pair) => (pair.turns && pair.known ? frequency(pair.frequency) : null)),
        ...(result.expectedFrequencies && { expected: Array.from(result.expectedFrequencies, frequency) }),
      },
      worst: worst && { batch: worst.batch, head: worst.head, seq: worst.seq },
      next: next && nextFiles(next),
    };
  },

  /** Returns one head of the last diagnosis: at most `most` tokens from `start`. */
  head(batch: number, head: number, start: number, most: number): HeadMap | undefined {
    if (!shown) return undefined;
    const { seq, heads, headDim, x, y, right, pairs, positions, numAxes, batch: batches } = shown;
    const rows = Math.min(most, seq - start);
    const rowsOf = (all: Float64Array): Float64Array => {
      const some = new Float64Array(rows * headDim);
      for (let n = 0; n < rows; n++) {
        const at = ((batch * seq + start + n) * heads + head) * headDim;
        some.set(all.subarray(at, at + headDim), n * headDim);
      }
      return some;
    };
    const [mine, expected] = [rowsOf(y), right && rowsOf(right)];
    return {
      rows,
      columns: headDim,
      positions: Array.from({ length: rows }, (_, n) =>
        Array.from({ length: numAxes }, (_axis, a) => positions[(a * batches + batch) * seq + start + n]).join(', '),
      ),
      y: mine,
      x: rowsOf(x),
      expected,
      ratios: ratiosOf(
        shown,
        Array.from({ length: rows }, (_, n) => (batch * seq + start + n) * heads + head),
      ),
      turn: expected && turnOf(mine, expected, pairs, rows, headDim),
    };
  },

  /** Returns the largest error of each head and token of a batch, divided by its tolerance. */
  overview(batch: number, start: number, most: number): Float64Array | undefined {
    if (!shown?.right) return undefined;
    const key = `${batch} ${start} ${most}`;
    if (overviewed?.of === shown && overviewed.key === key) return overviewed.values;
    const { seq, heads, headDim } = shown;
    const tokens = Math.min(most, seq - start);
    const rows = Array.from(
      { length: heads * tokens },
      (_, n) => (batch * seq + start + (n % tokens)) * heads + Math.floor(n / tokens),
    );
    const ratios = ratiosOf(shown, rows)!;
    const values = Float64Array.from(rows, (_, n) =>
      ratios.subarray(n * headDim, (n + 1) * headDim).reduce((worst, one) => Math.max(worst, one), 0),
    );
    overviewed = { of: shown, key, values };
    return values;
  },
};

/** Returns the errors of some rows, divided by their tolerances; Infinity where y is not finite. */
function ratiosOf({ y, right, tolerance, headDim }: ReadHeads, rows: readonly number[]): Float64Array | undefined {
  const allowed = tolerance?.(rows);
  return allowed?.map((most, n) => {
    const at = rows[Math.floor(n / headDim)]! * headDim + (n % headDim);
    const error = Math.abs(y[at]! - right![at]!);
    return error === 0 ? 0 : Number.isFinite(error) ? error / most : Number.POSITIVE_INFINITY;
  });
}

/** Returns the angles between the pairs of y and the expected pairs, in (−π, π]. */
function turnOf(
  y: Float64Array,
  expected: Float64Array,
  pairs: ReadHeads['pairs'],
  rows: number,
  headDim: number,
): Float64Array {
  const turn = new Float64Array(rows * pairs.length);
  for (let n = 0; n < rows; n++)
    for (const [j, [i0, i1]] of pairs.entries()) {
      const at = n * headDim;
      const [a, b, c, d] = [y[at + i0]!, y[at + i1]!, expected[at + i0]!, expected[at + i1]!];
      const [along, across] = [a * c + b * d, b * c - a * d];
      turn[n * pairs.length + j] = along === 0 && across === 0 ? Number.NaN : Math.atan2(across, along);
    }
  return turn;
}

function nextFiles({ x, shape, positions, numAxes }: NonNullable<Diagnosis['next']>): Uint8Array {
  const [batch, seq] = shape;
  return writeNpz(
    new Map<string, Tensor>([
      ['x', tensorFrom(Float32Array.from(x), { shape })],
      [
        'positions',
        tensorFrom(BigInt64Array.from(positions, BigInt), {
          shape: numAxes > 1 ? [numAxes, batch, seq] : [batch, seq],
        }),
      ],
    ]),
  );
}

/** The functions that the page calls. */
export type Kernel = typeof kernel;

export default kernel;
