/**
 * RoPE as the CANN backend of llama.cpp computed it in 2024: twelve steps that make cos and sin, and a rotation.
 *
 * One description serves both uses: {@link cann2024Steps} counts its calls and bytes, the backend runs it.
 *
 * @module
 * @see ggml-org/llama.cpp#10540
 */
import { roundTo } from 'ropewalk';
import { checkInteger, type OptionNames, readName, readOptions } from 'ropewalk/internal';

/** Sizes of one RoPE call. */
export interface Cann2024Sizes {
  readonly headDim: number;
  readonly heads: number;
  readonly seq: number;
  readonly batch: number;
  /** Bytes of an element of x. */
  readonly dataBytes: 2 | 4;
}

const NAMES: OptionNames<Cann2024Sizes> = { headDim: true, heads: true, seq: true, batch: true, dataBytes: true };

/** The way in which x is rotated by the tables. */
export type Cann2024Rotation = 'fused' | 'primitives';

/** The costs of one step. */
export interface Cann2024Step {
  /** Its number, from 1 on; 13 is the rotation. */
  readonly step: number;
  readonly what: string;
  readonly calls: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Bytes of buffers that the step asks for. */
  readonly buffered: number;
}

/** The numbers that the steps compute with. */
export interface StepInputs {
  readonly pairing: 'half' | 'interleaved';
  /** `[batch, seq, heads, headDim]`, dense. */
  readonly x: Float32Array;
  /** `[seq]` */
  readonly positions: Float32Array;
  /** base^(−2 / n_dims) */
  readonly thetaScale: number;
  /** ggml's freq_scale of each pair, which multiplies its frequency. */
  readonly freqScale: (j: number) => number;
  /** `[headDim / 2]`, ones for none. */
  readonly freqFactors: Float32Array;
  readonly attnFactor: number;
  /** The dtype of cos and sin before they are repeated: the data's type on the device. */
  readonly tableDtype: 'f32' | 'f16';
}

/** A tensor of a step. Its values are made when they are first asked for, because counting asks for none. */
class Buffer {
  #values: Float32Array | undefined;

  /** @param values - the values of an input. Default: zeros. */
  constructor(
    readonly length: number,
    readonly dtype: 'f32' | 'f16' | 'i32',
    values?: Float32Array,
  ) {
    this.#values = values;
  }

  get bytes(): number {
    return this.length * (this.dtype === 'f16' ? 2 : 4);
  }

  /** The values as f32, which holds every f16 and every integer below 2^24. */
  get values(): Float32Array {
    this.#values ??= new Float32Array(this.length);
    return this.#values;
  }

  /** Computes in f32 and rounds to the buffer's type at the store, as aclnn's operators do. */
  fill(value: (n: number) => number): void {
    const { values, dtype, length } = this;
    for (let n = 0; n < length; n++) {
      const computed = Math.fround(value(n));
      values[n] = dtype === 'f16' ? roundTo('f16', computed) : computed;
    }
  }
}

/** One call of an operator of aclnn. */
interface OperatorCall {
  readonly reads: readonly Buffer[];
  readonly writes: readonly Buffer[];
  /** Computes `writes` from `reads`; undefined for a call that is only counted. */
  readonly run?: () => void;
}

/** One step, ready to be counted or run. */
interface Step {
  readonly step: number;
  readonly what: string;
  readonly calls: readonly OperatorCall[];
  /** Buffers that the step asks for. */
  readonly asks: readonly Buffer[];
}

/** Steps, and the buffers of their results. */
export interface StepList {
  readonly steps: readonly Step[];
  /** `[seq, headDim]` */
  readonly cos: Buffer;
  readonly sin: Buffer;
  /** `[batch, seq, heads, headDim]` */
  readonly out: Buffer;
}

/** Describes an operator that computes each element of `out` by itself. */
function elementwise(out: Buffer, reads: readonly Buffer[], value: (n: number) => number): OperatorCall {
  return { reads, writes: [out], run: () => out.fill(value) };
}

/**
 * Describes the twelve steps and the rotation. The power is computed in place, and the transposition is a view, as in
 * the backend.
 *
 * @param inputs - the numbers to compute with; counting needs only sizes. Only the fused rotation runs
 */
export function describeSteps(
  { headDim, heads, seq, batch, dataBytes }: Cann2024Sizes,
  rotation: Cann2024Rotation,
  inputs: Partial<StepInputs> = {},
): StepList {
  const dtype = dataBytes === 4 ? 'f32' : 'f16';
  const { tableDtype = dtype, pairing = 'half' } = inputs;
  const given = inputs as StepInputs; // read by calls that run, never by counting
  const half = headDim / 2;

  const positions = new Buffer(seq, 'i32', inputs.positions);
  const factors = new Buffer(half, 'f32', inputs.freqFactors);
  const x = new Buffer(batch * seq * heads * headDim, dtype, inputs.x);
  const out = new Buffer(x.length, dtype);
  const [sin, cos] = [new Buffer(seq * headDim, dtype), new Buffer(seq * headDim, dtype)];
  const scale = new Buffer(half, 'f32');
  const theta = new Buffer(seq * half, 'f32');
  const [halfSin, halfCos] = [new Buffer(theta.length, tableDtype), new Buffer(theta.length, tableDtype)];

  const interleaved = pairing === 'interleaved';
  /** Returns the pair of dimension i of a row. */
  const pairOf = (i: number): number => (interleaved ? i >> 1 : i % half);
  const gap = interleaved ? 1 : half;
  /** Returns the other member of a pair, turned by a quarter: −x1 for x0, x0 for x1. */
  const turned = (values: Float32Array, n: number): number => {
    const i = n % headDim;
    return (interleaved ? i % 2 === 0 : i < half) ? -values[n + gap]! : values[n - gap]!;
  };
  /** Returns the place of cos and sin of element n of x: all heads share a row. */
  const tableAt = (n: number): number => (Math.floor(n / (heads * headDim)) % seq) * headDim + (n % headDim);

  const attention = (table: Buffer): OperatorCall => ({
    reads: [table],
    writes: [table],
    run() {
      // aclnn casts the scalar to the tensor's type.
      const factor = new Buffer(1, table.dtype);
      factor.fill(() => given.attnFactor);
      table.fill((n) => table.values[n]! * factor.values[0]!);
    },
  });
  const repeat = (to: Buffer, from: Buffer): OperatorCall =>
    elementwise(to, [from], (n) => from.values[Math.floor(n / headDim) * half + pairOf(n % headDim)]!);
  const angle = (n: number): number => scale.values[n % half]! * positions.values[Math.floor(n / half)]!;

  const steps: Step[] = [];
  const add = (what: string, calls: readonly OperatorCall[] = [], asks: readonly Buffer[] = []): void => {
    steps.push({ step: steps.length + 1, what, calls, asks });
  };
  add('buffers for sin and cos, full width', [], [sin, cos]);
  add('arange', [elementwise(scale, [], (j) => j)], [scale]);
  add('power, in place', [elementwise(scale, [scale], (j) => given.thetaScale ** scale.values[j]!)]);
  add('times freq_scale', [elementwise(scale, [scale], (j) => scale.values[j]! * given.freqScale(j))]);
  const divide = elementwise(scale, [scale, factors], (j) => scale.values[j]! / factors.values[j]!);
  add('divided by freq_factors', [divide]);
  add('positions');
  add('outer product with positions', [elementwise(theta, [scale, positions], angle)], [theta]);
  add('transposition, a view');
  add('buffers for sin and cos, half width', [], [halfSin, halfCos]);
  const sines = elementwise(halfSin, [theta], (n) => Math.sin(theta.values[n]!));
  add('sin, cos', [sines, elementwise(halfCos, [theta], (n) => Math.cos(theta.values[n]!))]);
  add('times attn_factor, twice', [attention(halfSin), attention(halfCos)]);
  add('repeat, twice', [repeat(sin, halfSin), repeat(cos, halfCos)]);
  if (rotation === 'fused') {
    // Products and sum in f32, each rounded; the result is cast once.
    const rotate = elementwise(out, [x, cos, sin], (n) => {
      const at = tableAt(n);
      return Math.fround(x.values[n]! * cos.values[at]!) + Math.fround(turned(x.values, n) * sin.values[at]!);
    });
    add('rotation, one fused operator', [rotate]);
  } else {
    // Graphs write every intermediate value in the data's type.
    const part = (length: number): Buffer => new Buffer(length, dtype);
    const [first, second, negated] = [part(x.length / 2), part(x.length / 2), part(x.length / 2)];
    const [rolled, straight, crossed] = [part(x.length), part(x.length), part(x.length)];
    const calls = [
      { reads: [x], writes: [first, second] },
      { reads: [second], writes: [negated] },
      { reads: [negated, first], writes: [rolled] },
      { reads: [x, cos], writes: [straight] },
      { reads: [rolled, sin], writes: [crossed] },
      { reads: [straight, crossed], writes: [out] },
    ];
    const asks = [first, negated, rolled, straight, crossed];
    add('rotation: split, negate, concatenate, two products, a sum', calls, asks);
  }
  return { steps, cos, sin, out };
}

/** Runs every call in order. */
export function runSteps({ steps }: StepList): void {
  for (const { calls } of steps) for (const call of calls) call.run?.();
}

const bytesOf = (buffers: readonly Buffer[]): number => buffers.reduce((sum, { bytes }) => sum + bytes, 0);

/**
 * Counts the costs of the twelve steps that build cos and sin on an NPU, and of the rotation after them.
 *
 * @param sizes - the sizes of the call
 * @param rotation - fused: one operator that reads x and both full-width tables; primitives: x · cos + (−x1, x0) · sin,
 *   as graphs write it
 * @throws {RopewalkError} RANGE for a size that is no integer >= 0; UNSUPPORTED for another rotation
 */
export function cann2024Steps(sizes: Cann2024Sizes, rotation: Cann2024Rotation): readonly Cann2024Step[] {
  const own = readOptions(sizes, 'sizes', NAMES);
  for (const name of Object.keys(NAMES) as (keyof Cann2024Sizes)[]) checkInteger(own[name], `sizes: ${name}`, 0);
  readName(rotation, ['fused', 'primitives'], 'rotation');
  return describeSteps(own, rotation).steps.map(({ step, what, asks, calls }) => ({
    step,
    what,
    calls: calls.length,
    bytesRead: calls.reduce((sum, { reads }) => sum + bytesOf(reads), 0),
    bytesWritten: calls.reduce((sum, { writes }) => sum + bytesOf(writes), 0),
    buffered: bytesOf(asks),
  }));
}
