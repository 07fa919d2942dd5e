/**
 * Helpers for tests of operators on any backend: tensors in every layout, values of every kind, and the comparison with
 * the float64 reference.
 *
 * The gaps between elements are NaN. A kernel that reads a gap spoils its result, and one that writes a gap is noticed.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import fc from 'fast-check';
import type { OpPlan } from 'ropewalk';
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type BlockTensor,
  blocksFrom,
  type Dtype,
  type FloatDtype,
  f16FromNumber,
  isBlocks,
  isFloat,
  numberFromF16,
  type Pairing,
  planAdd,
  planArgmax,
  planEmbedding,
  planExpertLinear,
  planRearrange,
  planRopeWithTable,
  planRoute,
  type RopePlan,
  type RouteOptions,
  roundTo,
  Tensor,
  type TensorStorage,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { loadNumber, newArray, storeNumber, walk } from 'ropewalk/backend';
import { bitsOf, blockBytes, readBlocks, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { drawn } from './size.js';
import { f64Tensor, floats } from './tensors.js';

export type Float = Tensor<FloatDtype>;
export const FLOATS = ['f32', 'f16', 'bf16'] as const;
export const dtypes = fc.constantFrom<FloatDtype>(...FLOATS);
/** The dtype of activations, and of the weights or KV cache used with them. f32 also takes f16 and bf16. */
export const MIXES: readonly (readonly [FloatDtype, FloatDtype])[] = [
  ['f32', 'f32'],
  ['f32', 'f16'],
  ['f32', 'bf16'],
  ['f16', 'f16'],
  ['bf16', 'bf16'],
];
export const mixes = fc.constantFrom(...MIXES);
export const U = UNIT_ROUNDOFF.f32;
export const size = (min: number, max: number) => fc.integer({ min, max });
export const seeds = size(0, 2 ** 31 - 1);
export const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });

/** Returns a generator of numbers in [0, 1), which depend only on the seed (mulberry32). */
export function randomness(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The values of tensors: numbers around 1, numbers of very different sizes, or numbers with special values. */
export type Fill = 'even' | 'wide' | 'special';
export const fills = fc.constantFrom<Fill>('even', 'wide', 'special');
const SPECIALS = [NaN, Infinity, -Infinity, -0, 0, 2 ** -149, -(2 ** -130), 2 ** -24, -(2 ** -15)];

function oneOf(fill: Fill, random: () => number): number {
  const value = random() * 4 - 2;
  if (fill === 'wide') return value * 2 ** Math.floor(random() * 24 - 12);
  if (fill === 'special' && random() < 0.1) return SPECIALS[Math.floor(random() * SPECIALS.length)]!;
  return value;
}

/** One layout of a tensor's elements. */
export interface Placement {
  /** Row-major without gaps, as most tensors are. The other fields are then ignored. */
  readonly dense: boolean;
  /** The number of places by which the dimensions are rotated. 0 leaves the last one innermost. */
  readonly turn: number;
  /** If bit d is set, dimension d has a negative stride. */
  readonly backwards: number;
  /** The stride of the innermost dimension. */
  readonly step: number;
  /** The number of free elements after each run of the innermost dimension. */
  readonly pad: number;
  /** The number of elements before the first one. */
  readonly lead: number;
  /** If bit d is set, dimension d of an input has stride 0. */
  readonly repeat: number;
}
export const placement: fc.Arbitrary<Placement> = fc.record({
  dense: fc.boolean(),
  turn: fc.constantFrom(0, 0, 1, 2, 3),
  backwards: fc.constantFrom(0, 0, 1, 2, 4, 8, 15),
  step: fc.constantFrom(1, 1, 1, 2, 3),
  pad: fc.nat(3),
  lead: fc.nat(5),
  repeat: fc.constantFrom(0, 0, 0, 0, 1, 2, 4, 8),
});
export const placements = fc.array(placement, { minLength: 6, maxLength: 6 });
export const DENSE: Placement = { dense: true, turn: 0, backwards: 0, step: 1, pad: 0, lead: 0, repeat: 0 };

/** Allocates a tensor in host memory. Every bit is set, also in gaps, which is NaN in any float. */
export function roomFor<D extends Dtype>(dtype: D, shape: readonly number[], how: Placement, output = true): Tensor<D> {
  const strides = shape.map(() => 0);
  let offset = how.dense ? 0 : how.lead;
  let reach = how.dense ? 1 : how.step;
  let first = true;
  for (let i = shape.length - 1; i >= 0; i--) {
    const d = how.dense ? i : (i + how.turn) % shape.length;
    if (!how.dense && !output && how.repeat & (1 << d)) continue;
    strides[d] = !how.dense && how.backwards & (1 << d) ? -reach : reach;
    if (strides[d]! < 0) offset += Math.max(0, shape[d]! - 1) * reach;
    reach *= Math.max(1, shape[d]!);
    if (first && !how.dense) reach += how.pad;
    first = false;
  }
  const data = newArray(dtype, (how.dense ? 0 : how.lead + 2) + reach);
  new Uint8Array(data.buffer).fill(0xff);
  return tensorFrom<D>(data, { dtype, shape, strides, offset });
}

/** Makes a tensor of numbers in some layout. */
export function laid(
  dtype: FloatDtype,
  shape: readonly number[],
  how: Placement,
  seed: number,
  fill: Fill = 'even',
): Float {
  const tensor = roomFor(dtype, shape, how, false);
  const random = randomness(seed);
  walk(tensor, (at) => storeNumber(tensor.storage.host!, dtype, at, oneOf(fill, random)));
  return tensor;
}

/** Makes a tensor whose elements are arbitrary bits. */
export function laidBits(dtype: Dtype, shape: readonly number[], how: Placement, seed: number): Tensor {
  const tensor = roomFor(dtype, shape, how, false);
  const bits = bitsOf(tensor.storage.host!);
  const random = randomness(seed);
  const bytes = () => Math.floor(random() * 2 ** 32);
  walk(tensor, (at) => {
    bits[at] = (bits instanceof BigUint64Array ? (BigInt(bytes()) << 32n) | BigInt(bytes()) : bytes()) as never;
  });
  return tensor;
}

/** The tensors of a plan: inputs first, then outputs. */
export type Given = readonly (Tensor | BlockTensor)[];

/** One operator call, which several runners make. */
export interface Trial {
  readonly given: Given;
  /** The indices of the outputs in `given`. */
  readonly outs: readonly number[];
  readonly plan: (given: Given) => OpPlan;
  /** If bit n is set, tensor n of `given` is in the backend's memory. */
  readonly owned: number;
  /**
   * Returns the allowed error of an element before its last rounding, from the float64 result. The output must be
   * between the two limits rounded to the dtype. Default: the output must have the bits of the reference.
   */
  readonly error?: (exact: number, n: number, out: number) => number;
  /** Returns the expected numbers instead of the reference's. They must match to the bit, but any NaN is accepted. */
  readonly wanted?: (out: number) => ArrayLike<number>;
  /** Says which elements may have any value. */
  readonly free?: (n: number) => boolean;
  /** Accepts any NaN where the reference has a NaN from arithmetic. */
  readonly anyNan?: boolean;
  /** The allowed error on a device that replaces numbers below 2^-126 by zero. Default: 0. */
  readonly tiny?: number;
}

/**
 * Copies the tensors to new storages.
 *
 * @param copyStorage - copies a storage, once for tensors that share it; n is the first of these tensors
 */
export function copyWith(given: Given, copyStorage: (storage: TensorStorage, n: number) => TensorStorage): Given {
  const copies = new Map<TensorStorage, TensorStorage>();
  const copyTensor = (tensor: Tensor, n: number): Tensor => {
    const storage = copies.get(tensor.storage) ?? copyStorage(tensor.storage, n);
    copies.set(tensor.storage, storage);
    return new Tensor(storage, { shape: tensor.shape, strides: tensor.strides, offset: tensor.offset });
  };
  return given.map((one, n) =>
    isBlocks(one) ? blocksFrom(one.format, copyTensor(one.bytes, n) as Tensor<'u8'>, one.shape) : copyTensor(one, n),
  );
}

/** Copies the tensors to new host memory. */
export function hostCopy(given: Given): Given {
  return copyWith(given, ({ dtype, length, host }) => {
    const storage = zeros(dtype, [length]).storage;
    (bitsOf(storage.host!) as Uint8Array).set(bitsOf(host!) as Uint8Array);
    return storage;
  });
}

/** Copies the tensors to dense float64. Integers keep their dtype, and outputs are new. */
export function exactOf(given: Given): Given {
  return given.map((one) => {
    if (isBlocks(one)) return one;
    return isFloat(one.dtype) ? f64Tensor(floats(one), one.shape) : hostCopy([one])[0]!;
  });
}

export const tensorAt = (given: Given, n: number): Tensor => given[n] as Tensor;

/** A trial without the places of its tensors. */
export type Shared = Omit<Trial, 'owned'>;

/**
 * Makes a trial of a + b that must be right to the bit. f32 has 24 bits >= 2·11 + 2, so a sum of two f16 or bf16 that
 * is rounded to f32 and then to the dtype equals a sum that is rounded once (Figueroa 1995).
 */
export const addTrial = (given: Given): Shared => ({
  given,
  outs: [2],
  anyNan: true,
  plan: (t) => planAdd(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)),
});

/** Makes a trial of argmax with values, index and value in three layouts. */
export function argmaxTrial(values: Float, index: 'i64' | 'i32', how: readonly Placement[]): Shared {
  const shape = values.shape.with(-1, 1);
  const given = [values, roomFor(index, shape, how[1]!), roomFor(values.dtype, shape, how[2]!)];
  return { given, outs: [1, 2], plan: (t) => planArgmax(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2)), tiny: 0 };
}

/** Makes a trial of a copy of x. All bits must be equal if the dtype is the same. */
export const copyTrial = (given: Given): Shared => ({
  given,
  outs: [1],
  plan: (t) => planRearrange(tensorAt(t, 0), tensorAt(t, 1)),
  tiny: 0,
});

/** Makes a trial that takes rows of a table, which is dense or in blocks: index, table and out. */
export const lookUpTrial = (given: Given): Shared => ({
  given,
  outs: [2],
  plan: (t) => planEmbedding(tensorAt(t, 0), t[1]!, tensorAt(t, 2)),
  tiny: 0,
});

/** Makes a tensor of random row numbers. */
export function indexOf(count: number, rows: number, seed: number): Tensor {
  const random = randomness(seed);
  return tensorFrom(Int32Array.from({ length: count }, () => Math.floor(random() * rows)));
}

/** Makes a trial of the choice of experts: logits, indices, weights and optionally a bias. */
export function routeTrial(
  logits: Float,
  chosen: number,
  options: RouteOptions,
  how: readonly Placement[],
  bias?: Float,
): Shared {
  const shape = [logits.shape[0]!, chosen];
  const outs = [roomFor('i32', shape, how[1]!), roomFor(logits.dtype, shape, how[2]!)];
  return {
    given: bias ? [logits, ...outs, bias] : [logits, ...outs],
    outs: [1, 2],
    plan: (t) =>
      planRoute(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2), { ...options, bias: t[3] as Tensor | undefined }),
  };
}

/**
 * Makes a trial of the experts' linear layer: x, weight, indices, out, and optionally bias and weights.
 *
 * @param sumError - returns the allowed error of a sum of k products from the sum of their magnitudes
 */
export function expertLinearTrial(
  x: Float,
  weight: Float | BlockTensor,
  indices: Tensor,
  out: Float,
  { bias, weights }: { readonly bias?: Float | undefined; readonly weights?: Float | undefined },
  sumError: (k: number, products: number) => number,
): Shared {
  const plan = (t: Given): OpPlan =>
    planExpertLinear(tensorAt(t, 0), t[1]!, tensorAt(t, 2), tensorAt(t, 3), {
      bias: bias && tensorAt(t, 4),
      weights: weights && tensorAt(t, bias ? 5 : 4),
    });
  const given: Given = [x, weight, indices, out, ...[bias, weights].filter((tensor) => tensor !== undefined)];
  const sizes = exactOf(given).map((one) => {
    if (isBlocks(one)) return f64Tensor(readBlocks(one, 'weight').map(Math.abs), one.shape);
    return isFloat(one.dtype) ? f64Tensor(floats(one).map(Math.abs), one.shape) : one;
  });
  runReference(plan(sizes));
  const products = floats(tensorAt(sizes, 3));
  // Each product is weighted and added to the products of the other experts.
  const terms = weights ? indices.shape[1]! + 1 : 0;
  const k = x.shape.at(-1)!;
  return { given, outs: [3], plan, error: (_, i) => sumError(k, products[i]!) + terms * U * products[i]! };
}

/**
 * Makes blocks of arbitrary bytes, but with small scales, some of them below f16's normal numbers. The first block
 * starts at byte `lead` of its memory.
 */
export function blocksOf(
  format: BlockFormat,
  n: number,
  k: number,
  seed: number,
  lead = 0,
  shape: readonly number[] = [n, k],
): BlockTensor {
  const random = randomness(seed);
  const length = blockBytes(format, n * k);
  const bytes = Uint8Array.from({ length: lead + length }, () => random() * 256);
  for (let at = lead; at < bytes.length; at += BLOCK_FORMATS[format].bytes) {
    if (format === 'mxfp4') {
      // The scale is a power of two. When x is split, a scale below 68 makes the kernel compute the row in f32.
      bytes[at] = seed % 4 === 0 && random() < 0.1 ? 50 : 116 + random() * 5;
    }
    for (const place of BLOCK_FORMATS[format].scales) {
      const scale = f16FromNumber((random() - 0.5) / (random() < 0.1 ? 2 ** 14 : 64));
      bytes[at + place] = scale & 255;
      bytes[at + place + 1] = scale >> 8;
    }
  }
  return blocksFrom(format, tensorFrom(bytes, { offset: lead, shape: [length] }) as Tensor<'u8'>, shape);
}

/** Makes two inputs and an output. The first (place 1) or the second input (place 2) may also be the output. */
export function pair(
  dtype: FloatDtype,
  shape: readonly number[],
  how: readonly Placement[],
  seed: number,
  fill: Fill,
  place: number,
): [Float, Float, Float] {
  const out = roomFor(dtype, shape, how[2]!);
  if (place) walk(out, (at, n) => storeNumber(out.storage.host!, dtype, at, n * 0.37 - 3));
  const a = place === 1 ? out : laid(dtype, shape, how[0]!, seed, fill);
  const b = place === 2 ? out : laid(dtype, shape, how[1]!, seed + 1, fill);
  return [a, b, out];
}

/**
 * The largest measured error relative to the allowed error. It is printed at the end when WORST is set, to show
 * tolerances that are too loose.
 */
const worst = new Map<string, number>();
let label = '';

/** Sets the name of the next measurements for {@link worst}. */
export function measure(name: string): void {
  label = name;
}
after(() => {
  if (process.env.WORST) for (const [name, off] of worst) console.log(`${name}: ${off.toPrecision(3)} of the bound`);
});

/**
 * Compares an output with the expected one, and the gaps around it with their previous content.
 *
 * @param n - the index in `given`
 * @param got - the output, in host memory
 * @param want - the expected output, in host memory in any layout
 */
export function compare(trial: Trial, n: number, got: Tensor, want: Tensor): void {
  const { storage } = tensorAt(trial.given, n);
  const before = bitsOf(storage.host!);
  const host = got.storage.host!;
  const bits = bitsOf(host);
  const inside = new Uint8Array(bits.length);
  for (const out of trial.outs) {
    const other = tensorAt(trial.given, out);
    if (other.storage === storage)
      walk(other, (at) => {
        inside[at] = 1;
      });
  }
  const { dtype } = got;
  const numbers = trial.wanted ? trial.wanted(n) : trial.error && isFloat(dtype) ? floats(want) : undefined;
  const tiny = trial.tiny ?? 0;
  const wantNumbers = numbers ?? (isFloat(dtype) ? floats(want) : undefined);
  const wantBits = numbers ? undefined : bitsOf(want.contiguous().read() as never);
  walk(got, (at, i) => {
    if (trial.free?.(i)) return;
    if (wantBits) {
      if (bits[at] === wantBits[i]) return;
      const [value, exact] = [loadNumber(host, dtype, at), wantNumbers?.[i]];
      const nan = trial.anyNan && Number.isNaN(value) && Number.isNaN(exact);
      if (!nan && !(exact !== 0 && Math.abs(value - exact!) <= tiny))
        assert.fail(`[${i}]: got bits ${bits[at]!.toString(16)}, want ${wantBits[i]!.toString(16)}`);
      return;
    }
    const value = loadNumber(host, dtype, at);
    const exact = numbers![i]!;
    const error = (trial.error?.(exact, i, n) ?? 0) + tiny;
    if (Number.isFinite(exact) && error > 0) {
      // The distance to the nearest number with the same rounded value, so that the dtype's rounding does not count.
      const low = roundTo(dtype as FloatDtype, exact - error);
      const high = roundTo(dtype as FloatDtype, exact + error);
      if (process.env.WORST && dtype === 'f32' && Number.isFinite(value)) {
        const off = Math.max(0, Math.abs(value - exact) - U * Math.abs(exact)) / error;
        worst.set(label, Math.max(worst.get(label) ?? 0, off));
      }
      if (!(value >= low && value <= high))
        assert.fail(`[${i}]: got ${value}, want ${exact} ± ${error}, in [${low}, ${high}]`);
    } else if (!Object.is(value, roundTo(dtype as FloatDtype, exact))) {
      assert.fail(`[${i}]: got ${value}, want ${roundTo(dtype as FloatDtype, exact)}`);
    }
  });
  for (const [at, was] of before.entries()) {
    if (!inside[at] && bits[at] !== was)
      assert.fail(`storage[${at}], outside the tensor: was ${was.toString(16)}, is ${bits[at]!.toString(16)}`);
  }
}

/**
 * The error that a sum of k products and a bias in f32 may have, each product rounded or fused into it. The theorem says
 * (k + 1)·u·Σ|products|. Roundings go both ways, so that the sum of them grows as √k: one that is at most u has a
 * variance of u²/3, and 4·√k·u·Σ is then 6.9 standard deviations even where one large product makes every partial sum
 * as large as Σ (Higham and Mary 2019, doi:10.1137/18M1226312). What is allowed is the smaller of the two; x or W
 * rounded to f16 or bf16 on the way would not pass. `smallest` is the smallest number that is not taken as 0.
 */
export const dotError = (k: number, products: number, smallest = 2 ** -149): number =>
  Math.min(4 * Math.sqrt(k), k + 1) * U * products + (k + 2) * smallest;

/** Declares a property whose name {@link worst} uses. */
export function holds<T extends [unknown, ...unknown[]]>(
  name: string,
  runs: number,
  arbitraries: { [K in keyof T]: fc.Arbitrary<T[K]> },
  check: (...values: T) => void | Promise<void>,
): void {
  test(name, async () => {
    measure(`${name} (${runs} runs)`);
    const property = fc.asyncProperty(fc.tuple<T>(...arbitraries), async (values) => check(...values));
    await fc.assert(property, { ...drawn(runs), includeErrorInReport: true });
  });
}

/** Generates shapes of up to four dimensions, the last of which is near SIMD widths. */
export const shapes = fc
  .tuple(fc.array(size(0, 5), { maxLength: 3 }), fc.oneof(size(0, 20), size(60, 70)))
  .map(([lead, last]) => [...lead.map((n) => (n === 0 ? 1 : n)), last]);

/** An independent copy of the geometry of pairings: where pair j is read and written, as [step, gap], forward. */
const GEOMETRY: Record<Pairing, (half: number) => [[number, number], [number, number]]> = {
  interleaved: () => [
    [2, 1],
    [2, 1],
  ],
  half: (half) => [
    [1, half],
    [1, half],
  ],
  vision: (half) => [
    [1, half],
    [1, half],
  ],
  'interleaved-to-half': (half) => [
    [2, 1],
    [1, half],
  ],
};

interface Rotated {
  /** The result with each operation rounded to f32, then to the dtype. */
  readonly wanted: Float64Array;
  /** The value |x0·cos| + |x1·sin| of each element, or 0 if it does not rotate. */
  readonly magnitude: Float64Array;
}

/** Computes RoPE in f32, operation by operation, on dense numbers `[batch, seq, head, head_dim]`. */
export function emulate(
  plan: RopePlan,
  x: Float64Array,
  [batch, seq, heads, d]: readonly number[],
  dtype: FloatDtype,
): Rotated {
  const half = plan.rotaryDim / 2;
  const forward = GEOMETRY[plan.pairing](half);
  const [[readStep, readGap], [writeStep, writeGap]] =
    plan.direction === 'forward' ? forward : [forward[1], forward[0]];
  const wanted = x.map((v) => roundTo(dtype, v));
  const magnitude = new Float64Array(x.length);
  const { fround } = Math;
  for (let row = 0; row < batch! * seq! * heads!; row++) {
    const token = Math.floor(row / heads!);
    const at = plan.tableRows[plan.batch === undefined ? token % seq! : token]! * half;
    const start = row * d! + plan.rotaryOffset;
    for (let j = 0; j < half; j++) {
      const [x0, x1] = [x[start + j * readStep]!, x[start + j * readStep + readGap]!];
      const [c, s] = [fround(plan.table.cos[at + j]!), fround(plan.table.sin[at + j]!)];
      const to = start + j * writeStep;
      wanted[to] = roundTo(dtype, fround(fround(x0 * c) - fround(x1 * s)));
      wanted[to + writeGap] = roundTo(dtype, fround(fround(x0 * s) + fround(x1 * c)));
      magnitude[to] = Math.abs(x0 * c) + Math.abs(x1 * s);
      magnitude[to + writeGap] = Math.abs(x0 * s) + Math.abs(x1 * c);
    }
  }
  return { wanted, magnitude };
}

const pairings = fc.constantFrom<Pairing>('interleaved', 'half', 'vision', 'interleaved-to-half');
const windows = fc.tuple(size(1, 20), size(0, 5), size(0, 5)).map(([pairs, before, behind]) => ({
  rotaryDim: 2 * pairs,
  rotaryOffset: before,
  headDim: 2 * pairs + before + behind,
}));
export const calls: fc.Arbitrary<RopeShape> = fc.record({
  batch: size(0, 3),
  seq: size(0, 5),
  heads: size(0, 4),
  window: windows,
  pairing: pairings,
  backward: fc.boolean(),
  ownRows: fc.boolean(),
  seed: seeds,
});

/** The parameters of one RoPE call. */
export interface RopeShape {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly window: { readonly rotaryDim: number; readonly rotaryOffset: number; readonly headDim: number };
  readonly pairing: Pairing;
  readonly backward: boolean;
  readonly ownRows: boolean;
  readonly seed: number;
}

/** Makes a plan whose table has arbitrary numbers, which are not on a unit circle. */
export function anyPlan(call: RopeShape): RopePlan {
  const pairs = call.window.rotaryDim / 2;
  const random = randomness(call.seed);
  const rows = 4;
  const [cos, sin] = [0, 1].map(() => Float32Array.from({ length: rows * pairs }, () => random() * 3 - 1.5)) as [
    Float32Array,
    Float32Array,
  ];
  return planRopeWithTable({
    ...call.window,
    pairing: call.pairing,
    direction: call.backward ? 'backward' : 'forward',
    table: { rows, pairs, cos, sin },
    seqLen: call.seq,
    batch: call.ownRows ? call.batch : undefined,
    tableRows: Array.from({ length: (call.ownRows ? call.batch : 1) * call.seq }, () => Math.floor(random() * rows)),
  });
}

const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/** Returns the f32 with these bits. */
export function fromBits(bits: number): number {
  singleBits[0] = bits;
  return single[0]!;
}

/** Returns the bits of an f32. */
export function toBits(value: number): number {
  single[0] = value;
  return singleBits[0]!;
}

/** Lists as f32 all numbers of a 16-bit dtype, all ties between them, both neighbours of each tie, and NaN. */
export function tiesOf(dtype: 'f16' | 'bf16'): number[] {
  const values: number[] = [];
  if (dtype === 'bf16') {
    for (let high = 0; high < 65536; high++)
      for (const low of [0, 0x7fff, 0x8000, 0x8001, 0xffff]) values.push(fromBits(high * 65536 + low));
    return values;
  }
  for (let bits = 0; bits < 0x7c00; bits++) {
    // This is the next larger number. After the largest f16 it is 65536, the next step of the format.
    const [value, next] = [numberFromF16(bits), bits === 0x7bff ? 65536 : numberFromF16(bits + 1)];
    const tie = (value + next) / 2;
    const at = toBits(tie);
    for (const v of [value, fromBits(at - 1), tie, fromBits(at + 1)]) values.push(v, -v);
  }
  values.push(NaN, Infinity, -Infinity, 2 ** -149, 65536, 1e38, -1e38, fromBits(0xffc00000));
  return values;
}
