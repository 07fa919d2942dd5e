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

/** The letters of the axes of positions: time, height, width, extra. */
export const AXIS_NAMES = 'thwe';

/** A run of a kernel. The tensors are in host memory and are only read. */
export interface Observation {
  /**
   * The input of the kernel, of any float dtype: `[batch, seq, head, head_dim]` or `[seq, head, head_dim]`, in the order
   * of `layout`.
   */
  readonly x: Tensor;
  /** The output, in the same shape. Its dtype decides how much noise rounding explains. */
  readonly y: Tensor;
  /**
   * The positions that the kernel was given, as integers: `[seq]`, `[batch, seq]`, with axes in front `[axes, seq]` or
   * `[axes, batch, seq]`, or a flat list of as many elements.
   */
  readonly positions: Tensor | readonly number[];
  /** Default: `bsnh`. Without a layout {@link diagnose} also tries `bnsh` where y is not understood as `bsnh`. */
  readonly layout?: RopeLayout;
  /**
   * The number of position axes, 1 to 4. Without it, a first dimension of `positions` that could be axes or batch is read
   * as batch.
   */
  readonly numAxes?: number;
  /** The norm before the rotation, for a kernel that does both. */
  readonly norm?: HeadNorm;
}

const NAMES: OptionNames<Observation> = { x: true, y: true, positions: true, layout: true, numAxes: true, norm: true };

/** One head of one token. */
export interface RowAt {
  readonly batch: number;
  readonly seq: number;
  readonly head: number;
}

/** Values of a dump: those of f32 as they lie in memory, others widened. They are only read. */
export type Values = Float64Array | Float32Array;

/** Widens values, or a row of them. */
export const widened = (values: Values): Float64Array =>
  values instanceof Float64Array ? values : new Float64Array(values);

export interface Heads {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly headDim: number;
  /** `[batch, seq, head, head_dim]` */
  readonly x: Values;
  /** The same shape as x. It may have any values, even NaN. */
  readonly y: Values;
  /** The dtype to which y was rounded: the dtype of its tensor, or a narrower one that holds all its values. */
  readonly dtype: FloatDtype;
  /** The dtype of y's tensor. */
  readonly storage: FloatDtype;
  readonly numAxes: number;
  /** Whether every batch has its own positions. */
  readonly ownPositions: boolean;
  /** `[numAxes, batch, seq]`; positions that the batches share are repeated. */
  readonly positions: Float64Array;
  readonly norm: HeadNorm | undefined;
  /** The rows of `[batch, seq, head]` that are diagnosed, in rising order. */
  readonly rows: readonly number[];
}

/** A dump of a whole layer of a long prompt has fewer elements. In f32 the diagnosis needs about twice their memory. */
const MAX_ELEMENTS = 2 ** 27;

/**
 * Checks an observation and reads it. A y that is not finite is accepted, because the diagnosis reports it.
 *
 * @param numAxes - the position axes of the expected RoPE
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE for shapes that disagree, or an x of which most is not finite
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
  // Before the values are widened: positions that do not fit this layout refuse it.
  const positions = readPositions(given.positions, batch, seq, numAxes ?? given.numAxes);
  const count = batch * seq * heads;
  const { xs, ys, rows } = withoutUnread(valuesOf(x), valuesOf(y), headDim, count);
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
    rows,
  };
}

/**
 * Leaves out rows whose x is not finite, such as padding that was never written. Their x and y become 0.
 *
 * @throws {RopewalkError} RANGE if they are more than half of all rows: then x is not what the kernel read
 */
function withoutUnread(x: Values, y: Values, headDim: number, count: number) {
  let first = -1;
  const rows: number[] = [];
  for (let r = 0; r < count; r++) {
    const from = r * headDim;
    let n = from;
    while (n < from + headDim && Number.isFinite(x[n])) n++;
    if (n === from + headDim) rows.push(r);
    else if (first < 0) first = n;
  }
  if (2 * rows.length < count)
    refuse(
      'RANGE',
      `diagnose: x[${first}]`,
      'finite numbers in half of its rows, or more',
      x[first],
      'Give a bf16 or f16 file its dtype, or dump x before the kernel runs.',
    );
  if (rows.length === count) return { xs: x, ys: y, rows };
  const [xs, ys] = [x.slice(), y.slice()];
  const kept = new Set(rows);
  for (let r = 0; r < count; r++)
    if (!kept.has(r)) for (const values of [xs, ys]) values.fill(0, r * headDim, (r + 1) * headDim);
  return { xs, ys, rows };
}

/** @throws {RopewalkError} RANGE for an x that is 0 everywhere, because every rotation of 0 is 0 */
export function refuseZeros({ x }: Heads): void {
  if (x.length > 0 && x.every((value) => value === 0))
    fail('RANGE', 'diagnose: x', 'it is 0 everywhere, and every rotation of it is 0. Give an x with other values.');
}

export interface Reading {
  readonly layout: RopeLayout;
  readonly heads: Heads;
}

/**
 * Reads an observation in its layout. Without a layout it is read in each that its shapes allow, `bsnh` first.
 *
 * @throws {RopewalkError} as {@link readObservation} throws, at the first reading, when no layout fits
 */
export function* readLayouts(observation: Observation, numAxes?: number): Generator<Reading, void> {
  const given = readOptions(observation, 'diagnose: observation', NAMES);
  const one = (layout: RopeLayout): Reading => ({ layout, heads: readObservation({ ...given, layout }, numAxes) });
  if (given.layout !== undefined) return void (yield one(given.layout));
  const tried = (layout: RopeLayout): Reading | RopewalkError => {
    try {
      return one(layout);
    } catch (error) {
      if (error instanceof RopewalkError && error.code === 'SHAPE') return error;
      throw error;
    }
  };
  const first = tried('bsnh');
  if ('heads' in first) yield first;
  if ('heads' in first && first.heads.seq === 1 && first.heads.heads === 1) return;
  const other = tried('bnsh');
  if ('heads' in other) yield other;
  else if (!('heads' in first)) throw first; // its message about the default layout helps more
}

/** A dump of f32 is not copied, for it may take gigabytes. */
function valuesOf(tensor: Tensor): Values {
  const { host } = tensor.storage;
  if (host instanceof Float32Array && tensor.isContiguous())
    return host.subarray(tensor.offset, tensor.offset + tensor.size);
  return tensor.readNumbers() as Float64Array;
}

/** So many different values tell a dtype. */
const TELLING = 8;

/** Finds the dtype that y was rounded to: frameworks widen bf16 and f16 in dumps, so all values fit a narrower one. */
export function heldDtype(values: Values, dtype: FloatDtype): FloatDtype {
  const narrower = (['bf16', 'f16', 'f32'] as const).filter((one) => UNIT_ROUNDOFF[one] > UNIT_ROUNDOFF[dtype]);
  // Zeros and a few other values fit every dtype.
  const telling = new Set<number>();
  for (let n = 0; n < values.length && telling.size < TELLING; n++)
    if (values[n] !== 0 && Number.isFinite(values[n])) telling.add(values[n]!);
  if (telling.size < Math.min(TELLING, values.length)) return dtype;
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

function readPositions(given: Tensor | readonly number[], batch: number, seq: number, axes: number | undefined) {
  const where = 'diagnose: positions';
  const tensor = Tensor.isTensor(given) ? given : tensorFrom(listed(given, where));
  const values = isFloat(tensor.dtype) ? wholeNumbers(tensor, where) : readIntegers(tensor, where);
  for (const [n, p] of values.entries())
    if (Math.abs(p) > 2 ** 31) refuse('RANGE', `${where}[${n}]`, 'an integer in [-2^31, 2^31]', p);
  if (axes !== undefined) checkInteger(axes, 'diagnose: numAxes', 1, 4);
  const formOf = (count: number | undefined) =>
    formsOfPositions(batch, seq, count).find(({ shape }) => shape.join() === tensor.shape.join());
  const form = formOf(axes);
  if (!form) {
    const forms = formsOfPositions(batch, seq, axes).map(({ shape }) => `[${shape.join(', ')}]`);
    const has = formOf(undefined)?.numAxes;
    const isSeqFirst = tensor.shape.at(-1) === batch && batch !== seq;
    const next = isSeqFirst
      ? 'If x is [seq, batch, head, head_dim], put its batch first, or give the command or the page the layout sbnh.'
      : has !== undefined && axes !== undefined
        ? `The expected RoPE has ${axes} position ${axes === 1 ? 'axis' : 'axes'}, and these positions have ${has}. ` +
          (axes > 1
            ? 'A token of text has its position on each axis.'
            : 'Give the config with the sections of its axes.')
        : undefined;
    return refuse('SHAPE', where, `shape ${[...new Set(forms)].join(' or ')}`, [...tensor.shape], next);
  }
  const { numAxes, ownPositions } = form;
  const positions = new Float64Array(numAxes * batch * seq);
  for (let a = 0; a < numAxes; a++) {
    for (let b = 0; b < batch; b++) {
      const from = ownPositions ? (a * batch + b) * seq : a * seq;
      positions.set(values.subarray(from, from + seq), (a * batch + b) * seq);
    }
  }
  return { numAxes, ownPositions, positions };
}

/** The shapes that positions may have; where one shape has several readings, the first counts. */
function formsOfPositions(batch: number, seq: number, axes: number | undefined) {
  const form = (numAxes: number, ownPositions: boolean, ...shape: number[]) => ({ numAxes, ownPositions, shape });
  const counts = axes === undefined ? [1, 2, 3, 4] : [axes];
  const one = [form(1, false, seq), form(1, true, batch * seq), form(1, true, batch, seq), form(1, false, 1, seq)];
  return [
    ...(counts.includes(1) ? one : []),
    ...counts.flatMap((n) => [
      form(n, false, n * seq), // flat, as ggml has it and raw files are
      form(n, false, n, seq),
      form(n, true, n, batch, seq),
      form(n, false, n, 1, seq),
    ]),
    ...counts.map((n) => form(n, true, n * batch * seq)),
  ];
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

/** The position that a token of `[batch, seq]` was given on each axis. */
export function positionsOf({ numAxes, batch, seq, positions }: Heads, token: number): number[] {
  return Array.from({ length: numAxes }, (_, a) => positions[a * batch * seq + token]!);
}
