/**
 * Computes the tables of a RoPE, and reads its frequencies from rows of its caches or from the graph's own arithmetic
 * at a few positions.
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

/** The input of ONNX Runtime's attention that is cos_cache; sin_cache comes after it. */
const CACHE_AT: Readonly<Record<string, number>> = { GroupQueryAttention: 7, PagedAttention: 9 };

/** Names the inputs of a node that rotates, which each kind orders differently. ids is '' if each token has its row. */
export function nodeInputs(found: FoundNode | FoundAttention) {
  const [x = '', a = '', b = '', c = ''] = found.node.inputs;
  if (found.kind === 'node')
    return found.dialect === 'onnx' ? { x, cos: a, sin: b, ids: c } : { x, cos: b, sin: c, ids: a };
  const at = CACHE_AT[found.node.opType] ?? Number.POSITIVE_INFINITY;
  const [cos = '', sin = '', ids = ''] = found.node.inputs.slice(at, at + 3);
  return { x, cos, sin, ids: found.node.opType === 'GroupQueryAttention' ? ids : '' };
}

export function tableNames({ rotation }: FoundArithmetic): string[] {
  return [...new Set(rotation.tables.flatMap(({ cos, sin }) => [...cos, ...sin].map(({ leaf }) => leaf)))];
}

/**
 * Returns the values at which positions enter: one value if they all come from the same input, like the axes of M-RoPE.
 */
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

/** Returns half a unit in the last place of 1. */
export function unitOf(dtype: string | undefined): number {
  return dtype === 'bf16' ? 2 ** -8 : dtype === 'f16' ? 2 ** -11 : 2 ** -24;
}

function evaluationOf({ scope, shapes, work }: Place, values?: ReadonlyMap<string, Value>): Evaluation {
  return new Evaluation(scope, shapes, { values, wholeCaches: true }, work);
}

/** The graph in which tables are computed. */
export type Place = Pick<FoundNode, 'scope' | 'shapes' | 'work'>;
type Frequencies = FoundFrequencies | NoFrequencies;

/** Samples tables that hold all positions in order, `stride` elements apart. */
function rowSampler(cos: Float64Array, sin: Float64Array, stride: number, pairs: number): Sampler {
  const pick = (table: Float64Array, positions: readonly number[]): Float64Array =>
    Float64Array.from(
      { length: positions.length * pairs },
      (_, n) => table[positions[Math.floor(n / pairs)]! * stride + (n % pairs)]!,
    );
  return (positions) => ({ cos: pick(cos, positions), sin: pick(sin, positions) });
}

/** The caches from which RotaryEmbedding and attention read rows by position. */
export interface Caches {
  /** `[rows, width]`, dense. The first `pairs` of each row are used. */
  readonly cos: Value;
  readonly sin: Value;
}

/** Returns the condition of the If that chooses caches by the length in use, as LongRoPE's exporters write it. */
export function cacheChoice({ scope }: Place, cos: string): string | undefined {
  const node = scope.maker(cos);
  const condition = node?.opType === 'If' ? (node.inputs[0] ?? '') : '';
  return condition === '' || isConstant(scope, condition) ? undefined : condition;
}

/**
 * Reads the caches of a node.
 *
 * @param branch - the value of the condition of {@link cacheChoice}
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

export function cacheFrequencies(caches: Caches, pairs: number): Frequencies {
  const { sample, rows, unit } = cacheTables(caches, pairs);
  return recoverFrequencies(sample, rows, pairs, unit);
}

function cacheTables({ cos, sin }: Caches, pairs: number) {
  const [rows, width] = cos.shape as [number, number];
  return { sample: rowSampler(cos.data, sin.data, width, pairs), rows, unit: unitOf(cos.dtype) };
}

/** Views a RotaryEmbedding whose rows were chosen before as a rotation written in primitives. */
export function asArithmetic(found: FoundNode, headDim: number, pairs: number): FoundArithmetic {
  const { x, cos, sin } = nodeInputs(found);
  const tables = Array.from({ length: pairs }, (_, at): PairTables => {
    const [c, s] = [cos, sin].map((leaf) => ({ leaf, at })) as [Factor, Factor];
    return { cos: [c, c], sin: [s, s] };
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

/** The comparison of a RoPE's tables with those of a spec. */
export interface ComparedTables {
  /** The number of compared positions, from 0 on; computed angles have powers of two after that. */
  readonly positions: number;
  /** True if the graph computes its angles, false if it has a row for each position. */
  readonly computed: boolean;
  /**
   * The position from which computed angles repeat those from 0 on, as with `f32-reduced`; undefined if they never do.
   */
  readonly end?: number;
  /** The largest difference of a cos or sin. */
  readonly worst: number;
  /** The number of values whose error is larger than the rounding of the table and of an f32 angle. */
  readonly wrong: number;
  /** The first of these values. */
  readonly first?: {
    readonly position: number;
    readonly pair: number;
    readonly part: 'cos' | 'sin';
    readonly got: number;
    readonly expected: number;
  };
}

const CHUNK = 4096;

/**
 * Compares the tables of a RoPE with those of a spec: every row of a cache, or 4096 positions and powers of two after
 * them if the graph computes angles. Positions that would take more work than the file may take are left out of
 * `positions`.
 *
 * @param branch - see {@link cachesOf}
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
        // A table made in f32 has a rounded frequency and a rounded product, each with an error of 2^-24 of the angle.
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

/** Returns the first power of 256 at which all angles repeat: the graph reads fewer bytes of a position. */
function firstRepeat(sample: Sampler): number | undefined {
  return [2 ** 8, 2 ** 16, 2 ** 24].find((position) => {
    const { cos, sin } = sample([0, position]);
    const half = cos.length / 2;
    return [cos, sin].every((table) => table.subarray(0, half).every((value, j) => value === table[half + j]));
  });
}

/** Returns how the tables of a RoPE are read at positions below `rows`. */
function tablesFor(found: Found, headDim: number, pairs: number, branch: boolean) {
  if (found.kind === 'arithmetic') return samplerOf(found);
  const { cos, sin, ids } = nodeInputs(found);
  if (found.kind === 'node' && ids === '') return samplerOf(asArithmetic(found, headDim, pairs));
  return cacheTables(cachesOf(found, cos, sin, pairs, branch), pairs);
}

/**
 * Returns the frequencies of a rotation whose tables the graph computes or cuts from caches. With several position axes
 * it also returns the axis of each pair.
 *
 * @throws {CannotEvaluate} when the tables cannot be computed
 */
export function graphFrequencies(found: FoundArithmetic): { frequencies: Frequencies; axisOfPair?: readonly number[] } {
  const pairs = found.rotation.tables.length;
  const { position, axes, sample, rows, unit } = samplerOf(found);
  const frequencies = recoverFrequencies(sample, rows, pairs, unit);
  if (position === undefined || axes === 1 || 'because' in frequencies) return { frequencies };
  // With positions on one axis at a time, the pairs that rotate belong to that axis.
  const axisOfPair = new Array<number>(pairs).fill(-1);
  for (let axis = 0; axis < axes; axis++) {
    const { cos, sin } = sampler(found, position, axes, axis)([0, 1]);
    for (let j = 0; j < pairs; j++) if (cos[pairs + j] !== cos[j] || sin[pairs + j] !== sin[j]) axisOfPair[j] = axis;
  }
  return { frequencies, axisOfPair: axisOfPair.every((axis) => axis === 0) ? undefined : axisOfPair };
}

/** Returns the coarsest rounding behind the tables. A Cast after the cosine may be narrower than the tables. */
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

/** Returns how the tables of a rotation are computed at positions below `rows`, with the same position on all axes. */
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

/** A declared size up to this is taken as it is. */
const MAX_DECLARED = 4096;

/**
 * Feeds positions in the shape that the graph declares, if that is small. A declared size is only a number in a file. A
 * large one is first replaced by a free size, unless the graph's own shapes contradict.
 *
 * @param axes - the number of position axes, which are the first dimension if there are several
 * @param only - the axis that gets the positions, while the others get 0. Default: all.
 */
function sampler(found: FoundArithmetic, name: string, axes: number, only?: number): Sampler {
  const declared = found.shapes.shapeOf(name) ?? ['batch', 'sequence'];
  const free = declared.map((dim, d) => (d === 0 && axes > 1 ? dim : `#${d}`));
  // A named size stands for one batch; in the last dimension it stands for all positions at once.
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

/** Returns the number of rows of the constant from which positions choose. */
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

/** A cache may be cut to the length in use before rows are chosen. The rows of the whole cache count. */
function wholeRows(found: FoundArithmetic, value: string): number | undefined {
  const whole = evaluationOf(found).constant(value);
  return whole && whole.shape.length >= 2 ? Math.max(...whole.shape.slice(0, -1)) : undefined;
}

/** cos and sin of every pair at every place of the outer dimensions. */
interface OuterTables {
  /** The dimensions of the tables before their channels. They broadcast to those of x, from the right. */
  readonly outer: readonly number[];
  readonly pairs: number;
  /** `[...outer, pairs]`, dense. */
  readonly cos: Float64Array;
  readonly sin: Float64Array;
  /** True for f64 tables; f32 holds the numbers of all other dtypes. */
  readonly wide: boolean;
}

/** Thrown when the members of a pair are rotated by different angles, so that the arithmetic is no rotation. */
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
  // Four factors are read for each pair. cos and sin may broadcast to more elements than either has.
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

/** Shapes a computed table as `[...outer, width]`. The factors of the rotation count its last dimensions, the trail. */
function leafOf(name: string, value: Value, trail: readonly number[]) {
  const width = countElements(trail);
  const outer = value.shape.slice(0, value.shape.length - trail.length);
  if (countElements(value.shape.slice(outer.length)) !== width || countElements(outer) * width !== value.data.length)
    throw new CannotEvaluate(`${name} has the shape [${value.shape}], and its last dimensions should be [${trail}]`);
  return { value, outer, width };
}

/** Reads a table at a flat place of the outer dimensions to which it broadcasts. */
function reader({ value, outer, width }: ReturnType<typeof leafOf>, to: readonly number[]) {
  const strides = broadcastStrides(outer, to);
  const full = rowMajorStrides(to);
  return (place: number, channel: number): number => {
    let row = 0;
    for (const [axis, stride] of strides.entries()) row += (Math.floor(place / full[axis]!) % to[axis]!) * stride;
    return value.data[row * width + channel]!;
  };
}
