/** An observation of a kernel: x, y and positions, checked and laid out as heads of numbers. @module */
import {
  type Dtype,
  type FloatDtype,
  type HeadNorm,
  isFloat,
  type RopeLayout,
  RopewalkError,
  roundTo,
  Tensor,
  tensorFrom,
} from 'ropewalk';
import { fail, hostOf, refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, readIntegers, readList, readOptions, UNIT_ROUNDOFF } from 'ropewalk/internal';

/** A run of a kernel. Tensors in host memory, only read. */
export interface Observation {
  /**
   * What the kernel read: `[batch, seq, head, head_dim]` or `[seq, head, head_dim]` (in `layout`'s order), any float
   * dtype.
   */
  readonly x: Tensor;
  /** What it wrote, in the same shape. Its dtype decides how much noise rounding explains. */
  readonly y: Tensor;
  /**
   * The positions it was given, integers: `[seq]`, `[batch, seq]`, or with axes in front `[axes, seq]`,
   * `[axes, batch, seq]`; or flat, with as many elements.
   */
  readonly positions: Tensor | readonly number[];
  /** Unless given, `bsnh`; {@link diagnose} also tries `bnsh` where y is not understood so. */
  readonly layout?: RopeLayout;
  /**
   * Position axes, 1 to 4; needed where the first dimension of `positions` could be axes or batch, which is otherwise
   * read as batch.
   */
  readonly numAxes?: number;
  /** The norm before the rotation, where the kernel does both. */
  readonly norm?: HeadNorm;
}

const NAMES: OptionNames<Observation> = { x: true, y: true, positions: true, layout: true, numAxes: true, norm: true };

/** One head of one token. */
export interface RowAt {
  readonly batch: number;
  readonly seq: number;
  readonly head: number;
}

/** An observation as numbers. */
export interface Heads {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly headDim: number;
  /** `[batch, seq, head, head_dim]` */
  readonly x: Float64Array;
  /** As x. It may have any values, even NaN. */
  readonly y: Float64Array;
  /** The dtype that y was rounded to: its own, or a narrower one that holds all its values. */
  readonly dtype: FloatDtype;
  /** y's own dtype. */
  readonly storage: FloatDtype;
  readonly numAxes: number;
  /** Whether every batch has its own positions. */
  readonly ownPositions: boolean;
  /** `[numAxes, batch, seq]`: shared positions are repeated. */
  readonly positions: Float64Array;
  readonly norm: HeadNorm | undefined;
  /** By row of `[batch, seq, head]`: 1 where it is to be diagnosed. Undefined for all. */
  readonly live?: Uint8Array;
}

/** More than a dump of a whole layer of a long prompt; the diagnosis needs about eight times this memory. */
const MAX_ELEMENTS = 2 ** 27;

/**
 * Checks an observation and reads it.
 *
 * @param numAxes - position axes of the RoPE that is expected, where one is
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE: shapes that disagree, an x that is not finite. A y that is not finite
 *   is for the diagnosis
 */
export function readObservation(observation: Observation, numAxes?: number): Heads {
  const given = readOptions(observation, 'diagnose: observation', NAMES);
  const { layout = 'bsnh', norm } = given;
  if (layout !== 'bsnh' && layout !== 'bnsh') refuse('UNSUPPORTED', 'diagnose: layout', 'bsnh or bnsh', layout);
  const x = asHeads(given.x, layout, 'x');
  const y = asHeads(given.y, layout, 'y');
  if (given.x.shape.join() !== given.y.shape.join()) {
    refuse('SHAPE', 'diagnose: y', `the shape of x, [${given.x.shape}]`, [...given.y.shape]);
  }
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  if (headDim % 2 !== 0 || headDim < 2)
    refuse('SHAPE', 'diagnose: x', 'an even head_dim in the last dimension', [...x.shape]);
  const xs = x.readNumbers() as Float64Array;
  const bad = xs.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0)
    refuse(
      'RANGE',
      `diagnose: x[${bad}]`,
      'a finite number',
      xs[bad],
      'Give a bf16 or f16 file its dtype, or dump x before the kernel runs.',
    );
  const positions = readPositions(given.positions, { batch, seq, numAxes: numAxes ?? given.numAxes });
  const ys = y.readNumbers() as Float64Array;
  return {
    batch,
    seq,
    heads,
    headDim,
    x: xs,
    y: ys,
    dtype: heldDtype(ys, y.dtype as FloatDtype),
    storage: y.dtype as FloatDtype,
    ...positions,
    norm,
  };
}

/** @throws {RopewalkError} RANGE where x shows nothing: every rotation of 0 is 0 */
export function refuseZeros({ x }: Heads): void {
  if (x.length > 0 && x.every((value) => value === 0))
    fail('RANGE', 'diagnose: x', 'it is 0 everywhere, and every rotation of it is 0. Give an x with other values.');
}

/** An observation, read in one layout. */
export interface Reading {
  readonly layout: RopeLayout;
  readonly heads: Heads;
}

/**
 * Reads an observation in the layout that it gives. Without one, in each that its shapes allow, `bsnh` first.
 *
 * @throws {RopewalkError} as {@link readObservation}, when no layout fits; at the first reading
 */
export function* readLayouts(observation: Observation, numAxes?: number): Generator<Reading, void> {
  const given = readOptions(observation, 'diagnose: observation', NAMES);
  const one = (layout: RopeLayout): Reading => ({ layout, heads: readObservation({ ...given, layout }, numAxes) });
  if (given.layout !== undefined) return void (yield one(given.layout));
  let first: Reading | undefined;
  let refusal: unknown;
  try {
    first = one('bsnh');
  } catch (error) {
    if (!(error instanceof RopewalkError) || error.code !== 'SHAPE') throw error;
    refusal = error;
  }
  if (first) yield first;
  const swapped = first && first.heads.seq === 1 && first.heads.heads === 1;
  if (swapped) return;
  let other: Reading;
  try {
    other = one('bnsh');
  } catch (error) {
    // The message about the default layout says more.
    if (first) return;
    throw error instanceof RopewalkError && error.code === 'SHAPE' ? refusal : error;
  }
  yield other;
}

/** Frameworks widen bf16 and f16 in dumps: values that all fit a narrower dtype were rounded to it. */
function heldDtype(values: Float64Array, dtype: FloatDtype): FloatDtype {
  const narrower = (['bf16', 'f16', 'f32'] as const).filter((one) => UNIT_ROUNDOFF[one] > UNIT_ROUNDOFF[dtype]);
  return narrower.find((one) => values.every((value) => Number.isNaN(value) || roundTo(one, value) === value)) ?? dtype;
}

function asHeads(tensor: Tensor<Dtype>, layout: RopeLayout, name: string): Tensor {
  const where = `diagnose: ${name}`;
  hostOf(tensor, where);
  if (!isFloat(tensor.dtype)) {
    const next = ['u16', 'i16'].includes(tensor.dtype)
      ? 'If these are the bits of bf16 or f16, say so: --dtype bf16.'
      : undefined;
    refuse('DTYPE', where, 'f64, f32, f16 or bf16', tensor.dtype, next);
  }
  if (tensor.rank !== 3 && tensor.rank !== 4) {
    refuse('SHAPE', where, 'three dimensions [seq, head, head_dim], or four with batch in front', [...tensor.shape]);
  }
  if (tensor.size === 0) refuse('SHAPE', where, 'at least one element', [...tensor.shape]);
  if (tensor.size > MAX_ELEMENTS)
    refuse('SHAPE', where, `at most ${MAX_ELEMENTS} elements`, tensor.size, 'A few tokens and heads are enough.');
  const four = tensor.rank === 4 ? tensor : tensor.unsqueeze();
  return layout === 'bsnh' ? four : four.permute([0, 2, 1, 3]);
}

function readPositions(
  given: Tensor | readonly number[],
  of: { batch: number; seq: number; numAxes: number | undefined },
) {
  const { batch, seq } = of;
  const where = 'diagnose: positions';
  const tensor = Tensor.isTensor(given) ? given : tensorFrom(listed(given, where));
  const values = isFloat(tensor.dtype) ? wholeNumbers(tensor, where) : readIntegers(tensor, where);
  for (const [n, p] of values.entries())
    if (Math.abs(p) > 2 ** 31) refuse('RANGE', `${where}[${n}]`, 'an integer in [-2^31, 2^31]', p);
  const [numAxes, ownPositions] = shapeOfPositions(tensor.shape, of, where);
  const positions = new Float64Array(numAxes * batch * seq);
  for (let a = 0; a < numAxes; a++) {
    for (let b = 0; b < batch; b++) {
      const from = ownPositions ? (a * batch + b) * seq : a * seq;
      positions.set(values.subarray(from, from + seq), (a * batch + b) * seq);
    }
  }
  return { numAxes, ownPositions, positions };
}

function listed(positions: ArrayLike<number>, where: string): Float64Array {
  const list = readList(positions, where, 'a tensor or a list of integers');
  return Float64Array.from(list, (p, n) =>
    typeof p === 'number' ? p : refuse('DTYPE', `${where}[${n}]`, 'an integer', p),
  );
}

/** Frameworks sometimes dump positions as floats. */
function wholeNumbers(tensor: Tensor, where: string): Float64Array {
  const values = tensor.readNumbers() as Float64Array;
  const bad = values.findIndex((p) => !Number.isInteger(p));
  if (bad >= 0) refuse('RANGE', `${where}[${bad}]`, 'an integer', values[bad]);
  return values;
}

function shapeOfPositions(
  shape: readonly number[],
  { batch, seq, numAxes }: { batch: number; seq: number; numAxes: number | undefined },
  where: string,
): [numAxes: number, own: boolean] {
  if (numAxes !== undefined) checkInteger(numAxes, 'diagnose: numAxes', 1, 4);
  const wanted = numAxes ?? 1;
  const forms = [
    `[${seq}]`,
    `[${batch}, ${seq}]`,
    `[axes, ${seq}]`,
    `[axes, ${batch}, ${seq}], axes 2 to 4${numAxes && numAxes > 1 ? `, here ${numAxes}` : ''}`,
  ];
  const wrong = (): never => refuse('SHAPE', where, `shape ${forms.join(', ')}`, [...shape]);
  const axesOk = (axes: number): boolean => (numAxes === undefined ? axes >= 1 && axes <= 4 : axes === wanted);
  if (shape.length === 1) {
    // Flat and axis-major, as ggml has it, or raw.
    const [shared, own] = [shape[0]! / seq, shape[0]! / (batch * seq)];
    if (shared === 1 && (numAxes ?? 1) === 1) return [1, false];
    if (own === 1 && (numAxes ?? 1) === 1) return [1, true];
    if (Number.isInteger(shared) && axesOk(shared)) return [shared, false];
    return Number.isInteger(own) && axesOk(own) ? [own, true] : wrong();
  }
  if (shape.at(-1) !== seq) return wrong();
  if (shape.length === 2) {
    if (shape[0] === batch && (numAxes ?? 1) === 1) return [1, true];
    if (shape[0] === 1 && (numAxes ?? 1) === 1) return [1, false];
    return axesOk(shape[0]!) ? [shape[0]!, false] : wrong();
  }
  if (shape.length === 3 && axesOk(shape[0]!)) {
    if (shape[1] === batch) return [shape[0]!, true];
    if (shape[1] === 1) return [shape[0]!, false];
  }
  return wrong();
}

/** The place of row r of `[batch, seq, head]`. */
export function rowAt(of: Pick<Heads, 'seq' | 'heads'>, r: number): RowAt {
  const head = r % of.heads;
  const token = (r - head) / of.heads;
  return { batch: Math.floor(token / of.seq), seq: token % of.seq, head };
}

/** The numbers of all live head rows. */
export function everyRow({ batch, seq, heads, live }: Heads): number[] {
  const all = Array.from({ length: batch * seq * heads }, (_what, r) => r);
  return live ? all.filter((r) => live[r]) : all;
}

/** The place of a head row, and its given position on each axis. */
export function describeRow(heads: Heads, r: number): RowAt & { readonly positions: readonly number[] } {
  const at = rowAt(heads, r);
  const positions = Array.from(
    { length: heads.numAxes },
    (_what, a) => heads.positions[(a * heads.batch + at.batch) * heads.seq + at.seq]!,
  );
  return { ...at, positions };
}
