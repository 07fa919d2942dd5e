/**
 * RoPE as the CANN backend of llama.cpp computed it in 2024: twelve steps that make cos and sin, and a rotation.
 *
 * One description serves both uses: {@link seedSteps} counts its calls and bytes, the backend runs it.
 *
 * @module
 * @see seed document 000, section 5; ggml-org/llama.cpp#10540
 */
import { checkInteger, type OptionNames, readName, readOptions } from 'ropewalk/internal';
import { Buffer, elementwise, type OperatorCall } from './calls.js';

/** Sizes of one RoPE call. */
export interface SeedSizes {
  readonly headDim: number;
  readonly heads: number;
  readonly seq: number;
  readonly batch: number;
  /** Bytes of an element of x. */
  readonly dataBytes: 2 | 4;
}

const NAMES: OptionNames<SeedSizes> = { headDim: true, heads: true, seq: true, batch: true, dataBytes: true };

/** How x is rotated by the tables. */
export type SeedRotation = 'fused' | 'primitives';

/** What one step costs. */
export interface SeedStep {
  /** As the seed document numbers it; 13 is the rotation. */
  readonly step: number;
  readonly what: string;
  readonly calls: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Bytes of buffers that the step asks for. */
  readonly buffered: number;
}

/** What the steps compute with. */
export interface StepInputs {
  readonly pairing: 'half' | 'interleaved';
  /** `[batch, seq, heads, headDim]`, dense. */
  readonly x: Float32Array;
  /** `[seq]` */
  readonly positions: Float32Array;
  /** base^(−2 / n_dims) */
  readonly thetaScale: number;
  /** What each frequency is multiplied with, by pair: ggml's freq_scale. */
  readonly freqScale: (j: number) => number;
  /** `[headDim / 2]`, ones for none. */
  readonly freqFactors: Float32Array;
  readonly attnFactor: number;
  /** Of cos and sin before they are repeated: the data's type on the device. */
  readonly tableDtype: 'f32' | 'f16';
}

/** One step, ready to be counted or run. */
export interface Step {
  readonly step: number;
  readonly what: string;
  /** Buffers that the step asks for. */
  readonly asks: readonly Buffer[];
  readonly calls: readonly OperatorCall[];
}

/** Steps, and where they leave their results. */
export interface StepList {
  readonly steps: readonly Step[];
  /** `[seq, headDim]` */
  readonly cos: Buffer;
  readonly sin: Buffer;
  /** `[batch, seq, heads, headDim]` */
  readonly out: Buffer;
}

/** Inputs for counting, which reads no value of them. */
const NO_INPUTS: Partial<StepInputs> = /* @__PURE__ */ Object.freeze({});

/**
 * Describes the twelve steps and the rotation. The two steps that the document marks as optimised are as it says: the
 * power is computed in place, and the transposition is a view.
 *
 * @param inputs - what to compute with; only sizes are needed to count
 */
export function describeSteps(
  { headDim, heads, seq, batch, dataBytes }: SeedSizes,
  rotation: SeedRotation,
  inputs: Partial<StepInputs> = NO_INPUTS,
): StepList {
  const dtype = dataBytes === 4 ? 'f32' : 'f16';
  const { tableDtype = dtype, pairing = 'half' } = inputs;
  const given = inputs as StepInputs; // read by calls that run, never by counting
  const half = headDim / 2;
  const rows = batch * seq * heads;

  const positions = new Buffer(seq, 'i32', inputs.positions);
  const factors = new Buffer(half, 'f32', inputs.freqFactors);
  const x = new Buffer(rows * headDim, dtype, inputs.x);
  const out = new Buffer(x.length, dtype);
  const [sin, cos] = [new Buffer(seq * headDim, dtype), new Buffer(seq * headDim, dtype)];
  const scale = new Buffer(half, 'f32');
  const theta = new Buffer(seq * half, 'f32');
  const [halfSin, halfCos] = [new Buffer(theta.length, tableDtype), new Buffer(theta.length, tableDtype)];

  /** Which pair dimension i of a row is in, and whether it is the pair's first. */
  const interleaved = pairing === 'interleaved';
  const pairOf = (i: number): number => (interleaved ? i >> 1 : i % half);
  const isFirst = (i: number): boolean => (interleaved ? i % 2 === 0 : i < half);
  const gap = interleaved ? 1 : half;
  /** The other member of a pair, turned by a quarter: −x1 for x0, x0 for x1. */
  const turned = (values: Float32Array, n: number): number =>
    isFirst(n % headDim) ? -values[n + gap]! : values[n - gap]!;
  /** Where element n of x finds its cos and sin: all heads share a row. */
  const tableAt = (n: number): number => (Math.floor(n / (heads * headDim)) % seq) * headDim + (n % headDim);

  const attention = (table: Buffer): OperatorCall => {
    // aclnn casts the scalar to the tensor's type.
    const factor = new Buffer(1, table.dtype);
    const multiply = (n: number): number => table.values[n]! * factor.values[0]!;
    return {
      reads: [table],
      writes: [table],
      run() {
        factor.fill(() => given.attnFactor);
        table.fill(multiply);
      },
    };
  };
  const repeat = (to: Buffer, from: Buffer): OperatorCall =>
    elementwise(to, [from], (n) => from.values[Math.floor(n / headDim) * half + pairOf(n % headDim)]!);

  const steps: Step[] = [
    { step: 1, what: 'buffers for sin and cos, full width', asks: [sin, cos], calls: [] },
    { step: 2, what: 'arange', asks: [scale], calls: [elementwise(scale, [], (j) => j)] },
    {
      step: 3,
      what: 'power, in place',
      asks: [],
      calls: [elementwise(scale, [scale], (j) => given.thetaScale ** scale.values[j]!)],
    },
    {
      step: 4,
      what: 'times freq_scale',
      asks: [],
      calls: [elementwise(scale, [scale], (j) => scale.values[j]! * given.freqScale(j))],
    },
    {
      step: 5,
      what: 'divided by freq_factors',
      asks: [],
      calls: [elementwise(scale, [scale, factors], (j) => scale.values[j]! / factors.values[j]!)],
    },
    { step: 6, what: 'positions', asks: [], calls: [] },
    {
      step: 7,
      what: 'outer product with positions',
      asks: [theta],
      calls: [
        elementwise(
          theta,
          [scale, positions],
          (n) => scale.values[n % half]! * positions.values[Math.floor(n / half)]!,
        ),
      ],
    },
    { step: 8, what: 'transposition, a view', asks: [], calls: [] },
    { step: 9, what: 'buffers for sin and cos, half width', asks: [halfSin, halfCos], calls: [] },
    {
      step: 10,
      what: 'sin, cos',
      asks: [],
      calls: [
        elementwise(halfSin, [theta], (n) => Math.sin(theta.values[n]!)),
        elementwise(halfCos, [theta], (n) => Math.cos(theta.values[n]!)),
      ],
    },
    { step: 11, what: 'times attn_factor, twice', asks: [], calls: [attention(halfSin), attention(halfCos)] },
    { step: 12, what: 'repeat, twice', asks: [], calls: [repeat(sin, halfSin), repeat(cos, halfCos)] },
  ];
  if (rotation === 'fused') {
    // Products and sum in f32, each rounded; the result is cast once.
    const rotate = elementwise(out, [x, cos, sin], (n) => {
      const at = tableAt(n);
      return Math.fround(x.values[n]! * cos.values[at]!) + Math.fround(turned(x.values, n) * sin.values[at]!);
    });
    steps.push({ step: 13, what: 'rotation, one fused operator', asks: [], calls: [rotate] });
    return { steps, cos, sin, out };
  }
  // As graphs write it, every intermediate value in the data's type.
  const part = (): Buffer => new Buffer(x.length / 2, dtype);
  const [first, second, negated] = [part(), part(), part()];
  const [rolled, straight, crossed] = [out, out, out].map(({ length }) => new Buffer(length, dtype)) as [
    Buffer,
    Buffer,
    Buffer,
  ];
  const memberAt = (n: number, k: number): number =>
    Math.floor(n / half) * headDim + (n % half) * (interleaved ? 2 : 1) + k * gap;
  const halfAt = (n: number): number => Math.floor(n / headDim) * half + pairOf(n % headDim);
  const split: OperatorCall = {
    reads: [x],
    writes: [first, second],
    run() {
      first.fill((n) => x.values[memberAt(n, 0)]!);
      second.fill((n) => x.values[memberAt(n, 1)]!);
    },
  };
  steps.push({
    step: 13,
    what: 'rotation: split, negate, concatenate, two products, a sum',
    asks: [first, negated, rolled, straight, crossed],
    calls: [
      split,
      elementwise(negated, [second], (n) => -second.values[n]!),
      elementwise(rolled, [negated, first], (n) => (isFirst(n % headDim) ? negated : first).values[halfAt(n)]!),
      elementwise(straight, [x, cos], (n) => x.values[n]! * cos.values[tableAt(n)]!),
      elementwise(crossed, [rolled, sin], (n) => rolled.values[n]! * sin.values[tableAt(n)]!),
      elementwise(out, [straight, crossed], (n) => straight.values[n]! + crossed.values[n]!),
    ],
  });
  return { steps, cos, sin, out };
}

/** Runs every call in order. */
export function runSteps({ steps }: StepList): void {
  for (const { calls } of steps) for (const call of calls) call.run();
}

const bytesOf = (buffers: readonly Buffer[]): number => buffers.reduce((sum, { bytes }) => sum + bytes, 0);

/**
 * What the twelve steps by which seed document 000, section 5, builds cos and sin on an NPU cost, and then the rotation.
 *
 * @param sizes - of the call
 * @param rotation - fused: one operator that reads x and both full-width tables; primitives: x · cos + (−x1, x0) · sin,
 *   as graphs write it
 * @throws {RopewalkError} RANGE for a size that is no integer >= 0; UNSUPPORTED for another rotation
 */
export function seedSteps(sizes: SeedSizes, rotation: SeedRotation): readonly SeedStep[] {
  const { headDim, heads, seq, batch, dataBytes } = readOptions(sizes, 'sizes', NAMES);
  for (const [name, size] of Object.entries({ headDim, heads, seq, batch, dataBytes }))
    checkInteger(size, `sizes: ${name}`, 0);
  readName(rotation, ['fused', 'primitives'], 'rotation');
  return describeSteps({ headDim, heads, seq, batch, dataBytes }, rotation).steps.map(
    ({ step, what, asks, calls }) => ({
      step,
      what,
      calls: calls.length,
      bytesRead: calls.reduce((sum, { reads }) => sum + bytesOf(reads), 0),
      bytesWritten: calls.reduce((sum, { writes }) => sum + bytesOf(writes), 0),
      buffered: bytesOf(asks),
    }),
  );
}
