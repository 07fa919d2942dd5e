/**
 * Reads the frequencies of a found RoPE: from the rows of its caches, or by running the graph's own arithmetic at a few
 * positions.
 *
 * @module
 */
import { effectiveRope } from '@ropewalk/dialects';
import type { RopeSpec } from 'ropewalk';
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { Factor } from '../operators/forms.js';
import { type Dim, numberAttribute } from '../operators/operator.js';
import { broadcastShape, broadcastStrides, CannotEvaluate, type Value, valueDtype } from '../operators/values.js';
import { Evaluation } from './evaluate.js';
import type { Found, FoundArithmetic, FoundAttention, FoundNode } from './find.js';
import { FAR, type FoundFrequencies, type NoFrequencies, recoverFrequencies, type Sampler } from './frequencies.js';
import type { PairTables, Rotation } from './rotation.js';
import type { Scope } from './scope.js';
import { ancestryOf, isConstant, positionsBehind } from './sources.js';

/** Where attention of ONNX Runtime has cos_cache; sin_cache is behind it. */
const CACHE_AT: Readonly<Record<string, number>> = { GroupQueryAttention: 7, PagedAttention: 9 };

/** The inputs of a node that rotates, which each kind orders differently; ids '' for a row for each token. */
export function nodeInputs(found: FoundNode | FoundAttention) {
  const [x = '', a = '', b = '', c = ''] = found.node.inputs;
  if (found.kind === 'node')
    return found.dialect === 'onnx' ? { x, cos: a, sin: b, ids: c } : { x, cos: b, sin: c, ids: a };
  const at = CACHE_AT[found.node.opType] ?? Number.POSITIVE_INFINITY;
  const [cos = '', sin = '', ids = ''] = found.node.inputs.slice(at, at + 3);
  return { x, cos, sin, ids: found.node.opType === 'GroupQueryAttention' ? ids : '' };
}

/** The values that hold cos and sin of a rotation. */
export function tableNames({ rotation }: FoundArithmetic): string[] {
  return [...new Set(rotation.tables.flatMap(({ cos, sin }) => [...cos, ...sin].map(({ leaf }) => leaf)))];
}

/** The values at which positions enter; one where they all come from one input of the graph, as M-RoPE's axes do. */
export function positionValues(found: Found): string[] {
  const { scope } = found;
  let entries: string[];
  if (found.kind === 'arithmetic') entries = tableNames(found);
  else {
    const { cos, sin, ids } = nodeInputs(found);
    entries = ids !== '' ? [ids] : found.kind === 'node' ? [cos, sin] : [];
  }
  const values = [...new Set(entries.flatMap((value) => [...positionsBehind(scope, value)]))];
  if (values.length < 2) return values;
  const ancestries = values.map((value) => ancestryOf(scope, value));
  const inputs = new Set(ancestries.flatMap((ancestry) => [...ancestry.inputs]));
  const clear = ancestries.every(({ inputs: own, unknown }) => own.size > 0 && unknown.size === 0);
  return clear && inputs.size === 1 ? [...inputs] : values;
}

/** Half a unit in the last place of 1. */
export function unitOf(dtype: string | undefined): number {
  return dtype === 'bf16' ? 2 ** -8 : dtype === 'f16' ? 2 ** -11 : 2 ** -24;
}

function evaluationOf({ scope, shapes, work }: Place, values?: ReadonlyMap<string, Value>): Evaluation {
  return new Evaluation(scope, shapes, { values, wholeCaches: true }, work);
}

/** Where tables are computed. */
export type Place = Pick<FoundNode, 'scope' | 'shapes' | 'work'>;
type Frequencies = FoundFrequencies | NoFrequencies;

/** Samples the rows of tables that hold all positions in order, `stride` elements apart. */
function rowSampler(cos: Float64Array, sin: Float64Array, stride: number, pairs: number): Sampler {
  const pick = (table: Float64Array, positions: readonly number[]): Float64Array =>
    Float64Array.from(
      { length: positions.length * pairs },
      (_, n) => table[positions[Math.floor(n / pairs)]! * stride + (n % pairs)]!,
    );
  return (positions) => ({ cos: pick(cos, positions), sin: pick(sin, positions) });
}

/** cos and sin that RotaryEmbedding and attention read by position. */
export interface Caches {
  /** `[rows, width]`, dense; the first `pairs` of each row are used. */
  readonly cos: Value;
  readonly sin: Value;
}

/** The two states of the If that chooses caches by the length in use, as LongRoPE's exporters write it. */
export function cacheChoice({ scope }: Place, cos: string): string | undefined {
  const node = scope.maker(cos);
  const condition = node?.opType === 'If' ? (node.inputs[0] ?? '') : '';
  return condition === '' || isConstant(scope, condition) ? undefined : condition;
}

/**
 * Reads the caches of a node.
 *
 * @param branch - of {@link cacheChoice}: whether its condition holds
 * @throws {CannotEvaluate} when they are not tables of positions
 */
export function cachesOf(place: Place, cos: string, sin: string, pairs: number, branch = false): Caches {
  const condition = cacheChoice(place, cos);
  const flag: Value = { dtype: 'bool', shape: [], data: Float64Array.of(Number(branch)) };
  const evaluation = evaluationOf(place, condition === undefined ? undefined : new Map([[condition, flag]]));
  const caches = { cos: evaluation.value(cos), sin: evaluation.value(sin) };
  const [c, s] = [caches.cos.shape, caches.sin.shape];
  if (c.length !== 2 || s.join() !== c.join() || c[1]! < pairs)
    throw new CannotEvaluate(`cos_cache has the shape [${c}] and sin_cache [${s}]`);
  return caches;
}

/** Frequencies of caches. */
export function cacheFrequencies({ cos, sin }: Caches, pairs: number): Frequencies {
  const [rows, width] = cos.shape as [number, number];
  return recoverFrequencies(rowSampler(cos.data, sin.data, width, pairs), rows, pairs, unitOf(cos.dtype));
}

/** A RotaryEmbedding whose rows were chosen before, as the rotation that it is: its tables are computed alike. */
export function asArithmetic(found: FoundNode, headDim: number, pairs: number): FoundArithmetic {
  const { x, cos, sin } = nodeInputs(found);
  const tables = Array.from({ length: pairs }, (_, at): PairTables => {
    const both = (leaf: string) =>
      [
        { leaf, at },
        { leaf, at },
      ] as const;
    return { cos: both(cos), sin: both(sin) };
  });
  const pairing = numberAttribute(found.node, 'interleaved', 0) === 0 ? 'half' : 'interleaved';
  const rotation: Rotation = {
    headDim,
    rotaryDim: 2 * pairs,
    rotaryOffset: 0,
    pairing,
    direction: 'forward',
    scale: 1,
    tables,
  };
  const width = found.shapes.shapeOf(cos)?.at(-1);
  const trails = new Map([cos, sin].map((leaf) => [leaf, [typeof width === 'number' ? width : pairs]]));
  return { ...found, kind: 'arithmetic', x, y: found.node.outputs[0] ?? '', rotation, trails };
}

/** The tables of a RoPE beside those of a record. */
export interface ComparedTables {
  /** How many positions were compared, from 0 on; and then powers of two where the graph computes angles. */
  readonly positions: number;
  /** Whether the graph computes its angles; otherwise it has a row for each position. */
  readonly computed: boolean;
  /** Where computed angles begin again from 0, as those of `f32-reduced` do; undefined where they go on. */
  readonly end?: number;
  /** The largest difference of a cos or sin. */
  readonly worst: number;
  /** Numbers that are further off than the rounding of the table and of an f32 angle. */
  readonly wrong: number;
  /** The first of them. */
  readonly first?: {
    readonly position: number;
    readonly pair: number;
    readonly part: 'cos' | 'sin';
    readonly got: number;
    readonly expected: number;
  };
}

/** Positions that are computed at once. */
const CHUNK = 4096;

/**
 * Compares the tables of a RoPE with those of a record: every row of a cache; 4096 positions and powers of two beyond
 * where the graph computes angles. What takes more work than the file may take is left out, and `positions` says so.
 *
 * @param branch - as for {@link cachesOf}
 * @throws {CannotEvaluate} when nothing can be computed
 */
export function compareTables(found: Found, spec: RopeSpec, branch = false): ComparedTables {
  const { invFreq, attentionFactor, headDim } = effectiveRope(spec);
  const pairs = invFreq.length;
  const { sample, rows: stored, unit } = tablesFor(found, headDim, pairs, branch);
  const computed = stored === Number.POSITIVE_INFINITY;
  const end = computed ? firstRepeat(sample) : undefined;
  const rows = end ?? stored;
  const [dense, far] = [Math.min(rows, CHUNK), [] as number[]];
  for (let position = CHUNK; computed && position <= FAR && position < rows; position *= 2) far.push(position);
  const chunks = [Array.from({ length: dense }, (_, n) => n)];
  if (far.length > 0) chunks.push(far);
  else if (!computed)
    for (let start = CHUNK; start < rows; start += CHUNK)
      chunks.push(Array.from({ length: Math.min(CHUNK, rows - start) }, (_, n) => start + n));
  let [positions, worst, wrong] = [0, 0, 0];
  let first: ComparedTables['first'];
  for (const chunk of chunks) {
    let tables: ReturnType<Sampler>;
    try {
      tables = sample(chunk);
    } catch (error) {
      if (positions > 0 && error instanceof CannotEvaluate) break;
      throw error;
    }
    for (const [n, position] of chunk.entries()) {
      for (let j = 0; j < pairs; j++) {
        const angle = position * invFreq[j]!;
        // A table made in f32 has a rounded frequency and a rounded product, each by 2^-24 of the angle.
        const bound = Math.abs(attentionFactor) * (4 * unit + Math.abs(angle) * 2 ** -22);
        for (const [part, value] of [
          ['cos', Math.cos(angle)],
          ['sin', Math.sin(angle)],
        ] as const) {
          const [got, expected] = [tables[part][n * pairs + j]!, attentionFactor * value];
          const off = Math.abs(got - expected);
          if (off > worst) worst = off;
          if (off <= bound) continue;
          wrong++;
          first ??= { position, pair: j, part, got, expected };
        }
      }
    }
    positions += chunk.length;
  }
  return { positions, computed, end, worst, wrong, first };
}

/** The first power of 256 at which all angles are those of position 0: a graph that reads fewer bytes of a position. */
function firstRepeat(sample: Sampler): number | undefined {
  return [2 ** 8, 2 ** 16, 2 ** 24].find((position) => {
    const { cos, sin } = sample([0, position]);
    const half = cos.length / 2;
    return [cos, sin].every((table) => table.subarray(0, half).every((value, j) => value === table[half + j]));
  });
}

/** How the tables of a RoPE are read at positions below `rows`. */
function tablesFor(found: Found, headDim: number, pairs: number, branch: boolean) {
  if (found.kind !== 'arithmetic') {
    const { cos, sin, ids } = nodeInputs(found);
    if (found.kind === 'attention' || ids !== '') {
      const caches = cachesOf(found, cos, sin, pairs, branch);
      const [rows, width] = caches.cos.shape as [number, number];
      return {
        sample: rowSampler(caches.cos.data, caches.sin.data, width, pairs),
        rows,
        unit: unitOf(caches.cos.dtype),
      };
    }
  }
  const rotation = found.kind === 'arithmetic' ? found : asArithmetic(found as FoundNode, headDim, pairs);
  return samplerOf(rotation);
}

/**
 * Frequencies of a rotation whose tables the graph computes or cuts from caches; with several position axes, that of
 * each pair.
 *
 * @throws {CannotEvaluate} when the tables cannot be computed
 */
export function graphFrequencies(found: FoundArithmetic): { frequencies: Frequencies; axisOfPair?: readonly number[] } {
  const pairs = found.rotation.tables.length;
  const { position, axes, sample, rows, unit } = samplerOf(found);
  const frequencies = recoverFrequencies(sample, rows, pairs, unit);
  if (position === undefined || axes === 1 || 'because' in frequencies) return { frequencies };
  // One axis at a time: the pairs that rotate are its own.
  const axisOfPair = new Array<number>(pairs).fill(-1);
  for (let axis = 0; axis < axes; axis++) {
    const { cos, sin } = sampler(found, position, axes, axis)([0, 1]);
    for (let j = 0; j < pairs; j++) if (cos[pairs + j] !== cos[j] || sin[pairs + j] !== sin[j]) axisOfPair[j] = axis;
  }
  return { frequencies, axisOfPair: axisOfPair.every((axis) => axis === 0) ? undefined : axisOfPair };
}

/** The coarsest rounding behind the tables: values between the cosine and the rotation may be narrower than both. */
function tableUnit(found: FoundArithmetic): number {
  const { scope } = found;
  const units = tableNames(found).flatMap((leaf) =>
    ancestryOf(scope, leaf).values.map((value) => {
      const node = scope.maker(value);
      const to = node?.opType === 'Cast' ? valueDtype(numberAttribute(node, 'to', 1)) : undefined;
      return Math.max(unitOf(scope.initializer(value)?.dtype), unitOf(to));
    }),
  );
  return Math.max(unitOf('f32'), ...units);
}

/** How the tables of a rotation are computed at positions below `rows`, all axes having the same. */
function samplerOf(found: FoundArithmetic) {
  const pairs = found.rotation.tables.length;
  const [position, ...others] = positionValues(found);
  if (others.length > 0)
    throw new CannotEvaluate(`positions enter in several places: ${[position, ...others].join(', ')}`);
  const unit = tableUnit(found);
  if (position === undefined) {
    // Each row is its own position.
    const { outer, cos, sin } = tablesOf(found, evaluationOf(found));
    const axis = outer.indexOf(Math.max(...outer));
    const stride = countElements(outer.slice(axis + 1)) * pairs;
    return { position, axes: 1, sample: rowSampler(cos, sin, stride, pairs), rows: outer[axis] ?? 1, unit };
  }
  const shape = found.shapes.shapeOf(position);
  const rows = cacheRows(found) ?? Number.POSITIVE_INFINITY;
  const axes = shape?.length === 3 && typeof shape[0] === 'number' && shape[0] > 1 && shape[0] <= pairs ? shape[0] : 1;
  return { position, axes, sample: sampler(found, position, axes), rows, unit };
}

/** As many positions are fed as the graph declares, while they are no more than this. */
const MAX_DECLARED = 4096;

/**
 * Feeds positions in the shape that the graph declares, where that is small. A declared size is a number in a file: a
 * large one is taken for one that each call chooses, unless the graph's own shapes contradict.
 *
 * @param axes - position axes: the first dimension, where more than 1
 * @param only - the axis that gets the positions, the others being 0; all unless given
 */
function sampler(found: FoundArithmetic, name: string, axes: number, only?: number): Sampler {
  const declared = found.shapes.shapeOf(name) ?? ['batch', 'sequence'];
  const free = declared.map((dim, d) => (d === 0 && axes > 1 ? dim : `#${d}`));
  // Names of sizes stand for one batch, and in the last dimension for all positions at once.
  const fed = (dims: readonly Dim[], positions: number): number[] =>
    dims.map((dim, d) => (typeof dim === 'number' ? dim : d === dims.length - 1 ? positions : 1));
  return (positions) => {
    const shape = fed(declared, positions.length);
    if (countElements(shape) <= MAX_DECLARED) return sampleAt(found, name, shape, axes, only, positions);
    try {
      return sampleAt(found, name, fed(free, positions.length), axes, only, positions);
    } catch (error) {
      if (!(error instanceof CannotEvaluate) || error instanceof MembersDiffer) throw error;
      return sampleAt(found, name, shape, axes, only, positions);
    }
  };
}

function sampleAt(
  found: FoundArithmetic,
  name: string,
  shape: readonly number[],
  axes: number,
  only: number | undefined,
  positions: readonly number[],
): ReturnType<Sampler> {
  const pairs = found.rotation.tables.length;
  const chunk = shape.at(-1) ?? 1;
  if (chunk === 0) throw new CannotEvaluate(`${name} holds no positions`);
  const count = countElements(shape);
  const cos = new Float64Array(positions.length * pairs);
  const sin = new Float64Array(positions.length * pairs);
  for (let start = 0; start < positions.length; start += chunk) {
    const values = new Map<string, Value>();
    const evaluation = evaluationOf(found, values);
    evaluation.fits(shape);
    const data = new Float64Array(count);
    for (let n = 0; n < count; n++) {
      const axis = Math.floor(n / (count / axes));
      if (only === undefined || axis === only) data[n] = positions[start + (n % chunk)] ?? 0;
    }
    values.set(name, { dtype: 'i64', shape, data });
    const tables = tablesOf(found, evaluation);
    const at = tables.outer.lastIndexOf(chunk);
    if (at < 0 && chunk > 1) throw new CannotEvaluate(`${chunk} positions give tables of [${tables.outer}]`);
    const stride = at < 0 ? 0 : countElements(tables.outer.slice(at + 1)) * pairs;
    for (let n = 0; n < Math.min(chunk, positions.length - start); n++) {
      for (let j = 0; j < pairs; j++) {
        cos[(start + n) * pairs + j] = tables.cos[n * stride + j]!;
        sin[(start + n) * pairs + j] = tables.sin[n * stride + j]!;
      }
    }
  }
  return { cos, sin };
}

/** The rows of the constant that positions choose from. */
export function cacheRows(found: FoundArithmetic): number | undefined {
  const { scope, shapes } = found;
  const positions = new Set(positionValues(found));
  for (const leaf of tableNames(found)) {
    for (const value of ancestryOf(scope, leaf, positions).values) {
      const node = scope.maker(value);
      if (node?.opType !== 'Gather' || !isBehind(scope, positions, node.inputs[1] ?? '')) continue;
      const table = node.inputs[0] ?? '';
      const rows = wholeRows(found, table) ?? shapes.shapeOf(table)?.at(numberAttribute(node, 'axis', 0));
      if (typeof rows === 'number') return rows;
    }
  }
  return undefined;
}

function isBehind(scope: Scope, positions: ReadonlySet<string>, value: string): boolean {
  return [...positionsBehind(scope, value)].some((name) => positions.has(name));
}

/** A cache is cut to the length in use before rows are chosen: its own rows count. */
function wholeRows(found: FoundArithmetic, value: string): number | undefined {
  const whole = evaluationOf(found).constant(value);
  return whole && whole.shape.length >= 2 ? Math.max(...whole.shape.slice(0, -1)) : undefined;
}

/** cos and sin of every pair at every place of the outer dimensions. */
interface OuterTables {
  /** Dimensions of the tables in front of their channels; they broadcast to those of x, from the right. */
  readonly outer: readonly number[];
  readonly pairs: number;
  /** `[...outer, pairs]`, dense. */
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** Whether the tables are f64; f32 holds the numbers of all other dtypes. */
  readonly wide: boolean;
}

/** What is written as a rotation rotates the members of a pair by different angles: it is none. */
export class MembersDiffer extends CannotEvaluate {}

/**
 * Computes the tables of a rotation.
 *
 * @throws {CannotEvaluate} when something is missing, or when the two members of a pair rotate by different angles
 */
export function tablesOf({ rotation, trails }: FoundArithmetic, evaluation: Evaluation): OuterTables {
  const leaves = new Map<string, ReturnType<typeof leafOf>>();
  for (const { cos, sin } of rotation.tables)
    for (const { leaf } of [...cos, ...sin])
      if (!leaves.has(leaf)) leaves.set(leaf, leafOf(leaf, evaluation.value(leaf), trails.get(leaf)!));
  const all = [...leaves.values()];
  const outers = all.map((leaf) => leaf.outer);
  const outer = broadcastShape(outers);
  if (!outer) throw new CannotEvaluate(`cos and sin have the shapes ${outers.map((one) => `[${one}]`).join(' and ')}`);
  const places = countElements(outer);
  const pairs = rotation.tables.length;
  // Four factors are read for each pair; cos and sin may broadcast to more than either holds.
  evaluation.fits([...outer, pairs, 4]);
  const readers = new Map(Array.from(leaves, ([name, leaf]) => [name, reader(leaf, outer)]));
  const at = (factor: Factor, place: number): number => readers.get(factor.leaf)!(place, factor.at);
  const cos = new Float64Array(places * pairs);
  const sin = new Float64Array(places * pairs);
  for (let place = 0; place < places; place++) {
    for (const [j, table] of rotation.tables.entries()) {
      const n = place * pairs + j;
      const both = ([first, second]: readonly [Factor, Factor]): number => {
        const [a, b] = [at(first, place), at(second, place)];
        if (a !== b && !(Number.isNaN(a) && Number.isNaN(b)))
          throw new MembersDiffer(`the two members of pair ${j} are rotated by different numbers, ${a} and ${b}`);
        return a * rotation.scale;
      };
      cos[n] = both(table.cos);
      sin[n] = both(table.sin);
    }
  }
  return { outer, pairs, cos, sin, wide: all.some(({ value }) => value.dtype === 'f64') };
}

/** A computed table as `[...outer, width]`: the factors of the rotation count its last dimensions, the trail. */
function leafOf(name: string, value: Value, trail: readonly number[]) {
  const width = countElements(trail);
  const outer = value.shape.slice(0, value.shape.length - trail.length);
  if (countElements(value.shape.slice(outer.length)) !== width || countElements(outer) * width !== value.data.length)
    throw new CannotEvaluate(`${name} has the shape [${value.shape}], and its last dimensions should be [${trail}]`);
  return { value, outer, width };
}

/** Reads a table at a flat place of the outer dimensions that it broadcasts to. */
function reader({ value, outer, width }: ReturnType<typeof leafOf>, to: readonly number[]) {
  const strides = broadcastStrides(outer, to);
  const full = rowMajorStrides(to);
  return (place: number, channel: number): number => {
    let row = 0;
    for (const [axis, stride] of strides.entries()) row += (Math.floor(place / full[axis]!) % to[axis]!) * stride;
    return value.data[row * width + channel]!;
  };
}
