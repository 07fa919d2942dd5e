/**
 * Reads the frequencies of a found RoPE: from the rows of its caches, or by running the graph's own arithmetic at a few
 * positions.
 *
 * @module
 */
import { countElements } from 'ropewalk/backend';
import { numberAttribute } from '../operators/attributes.js';
import type { Dim } from '../operators/operator.js';
import { CannotEvaluate, type Value, valueDtype } from '../operators/values.js';
import { Evaluation } from './evaluate.js';
import type { FoundArithmetic, FoundNode } from './find.js';
import type { FoundFrequencies, NoFrequencies, Sampler } from './frequencies.js';
import { recoverFrequencies } from './frequencies.js';
import type { Scope } from './scope.js';
import { ancestryOf, positionsBehind } from './sources.js';
import { MembersDiffer, tablesOf } from './tables.js';

/** The inputs of a RotaryEmbedding node, which the two standards order differently; ids '' for a row for each token. */
export function nodeInputs({ node, dialect }: FoundNode) {
  const [x = '', a = '', b = '', c = ''] = node.inputs;
  return dialect === 'onnx' ? { x, cos: a, sin: b, ids: c } : { x, cos: b, sin: c, ids: a };
}

/** The values that hold cos and sin of a rotation. */
export function tableNames({ rotation }: FoundArithmetic): string[] {
  return [...new Set(rotation.tables.flatMap(({ cos, sin }) => [...cos, ...sin].map(({ leaf }) => leaf)))];
}

/** The values at which positions enter; one where they all come from one input of the graph, as M-RoPE's axes do. */
export function positionValues(found: FoundNode | FoundArithmetic): string[] {
  const { scope } = found;
  let entries: string[];
  if (found.kind === 'node') {
    const { cos, sin, ids } = nodeInputs(found);
    entries = ids === '' ? [cos, sin] : [ids];
  } else entries = tableNames(found);
  const values = [...new Set(entries.flatMap((value) => [...positionsBehind(scope, value)]))];
  if (values.length < 2) return values;
  const ancestries = values.map((value) => ancestryOf(scope, value));
  const inputs = new Set(ancestries.flatMap((ancestry) => [...ancestry.inputs]));
  const clear = ancestries.every(({ inputs: own, unknown }) => own.size > 0 && unknown.size === 0);
  return clear && inputs.size === 1 ? [...inputs] : values;
}

/** Half a unit in the last place of 1. */
function unitOf(dtype: string | undefined): number {
  return dtype === 'bf16' ? 2 ** -8 : dtype === 'f16' ? 2 ** -11 : 2 ** -24;
}

function evaluationOf({ scope, shapes, work }: Place, values?: ReadonlyMap<string, Value>): Evaluation {
  return new Evaluation(scope, shapes, { values, wholeCaches: true }, work);
}

type Place = Pick<FoundNode, 'scope' | 'shapes' | 'work'>;
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

/** Frequencies of caches that RotaryEmbedding reads: `[rows, width]`. */
export function cacheFrequencies(place: Place, cos: string, sin: string, pairs: number): Frequencies {
  try {
    const evaluation = evaluationOf(place);
    const [c, s] = [evaluation.value(cos), evaluation.value(sin)];
    const [rows = 0, width = 0] = c.shape;
    if (c.shape.length !== 2 || s.shape.join() !== c.shape.join() || width < pairs)
      return { because: `cos_cache has the shape [${c.shape}] and sin_cache [${s.shape}]` };
    return recoverFrequencies(rowSampler(c.data, s.data, width, pairs), rows, pairs, unitOf(c.dtype));
  } catch (error) {
    if (error instanceof CannotEvaluate) return { because: error.message };
    throw error;
  }
}

/**
 * Frequencies of a rotation whose tables the graph computes or cuts from caches; with several position axes, that of
 * each pair.
 *
 * @throws {CannotEvaluate} when the tables cannot be computed
 */
export function graphFrequencies(found: FoundArithmetic): { frequencies: Frequencies; axisOfPair?: readonly number[] } {
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
    return { frequencies: recoverFrequencies(rowSampler(cos, sin, stride, pairs), outer[axis] ?? 1, pairs, unit) };
  }
  const shape = found.shapes.shapeOf(position);
  const rows = cacheRows(found) ?? Number.POSITIVE_INFINITY;
  const axes = shape?.length === 3 && typeof shape[0] === 'number' && shape[0] > 1 && shape[0] <= pairs ? shape[0] : 1;
  const frequencies = recoverFrequencies(sampler(found, position, axes), rows, pairs, unit);
  if (axes === 1 || 'because' in frequencies) return { frequencies };
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
