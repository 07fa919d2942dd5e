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
  readonly positions: Float32Array | Float64Array;
  /** base^(−2 / n_dims) */
  readonly thetaScale: number;
  /** ggml's freq_scale of each pair, which multiplies its frequency. */
  readonly freqScale: (j: number) => number;
  /** `[headDim / 2]`, ones for none. */
  readonly freqFactors: Float32Array;
  readonly attnFactor: number;
  /** The dtype of cos and sin before they are repeated: the data's type on the device. */
  readonly tableDtype: 'f32' | 'f16';
  /** The dtype of angles. The device has f32; f64 is for a device without that loss. */
  readonly angleDtype: 'f32' | 'f64';
}

/** A tensor of a step. Its values are made when they are first asked for, because counting asks for none. */
export class Buffer {
  #values: Float32Array | Float64Array | undefined;

  readonly length: number;

  /** @param values - the values of an input. Default: zeros. */
  constructor(
    readonly name: string,
    readonly shape: readonly number[],
    readonly dtype: 'f64' | 'f32' | 'f16' | 'i32',
    values?: Float32Array | Float64Array,
  ) {
    this.#values = values;
    this.length = shape.reduce((product, size) => product * size, 1);
  }

  get bytes(): number {
    return this.length * { f64: 8, f32: 4, i32: 4, f16: 2 }[this.dtype];
  }

  /** The values; f32 holds every f16 and every integer below 2^24. */
  get values(): Float32Array | Float64Array {
    this.#values ??= this.dtype === 'f64' ? new Float64Array(this.length) : new Float32Array(this.length);
    return this.#values;
  }

  /** Computes in f32 and rounds to the buffer's type at the store, as aclnn's operators do. */
  fill(value: (n: number) => number): void {
    const { values, dtype, length } = this;
    for (let n = 0; n < length; n++) {
      values[n] = dtype === 'f16' ? roundTo('f16', Math.fround(value(n))) : value(n);
    }
  }
}

/** One call of an operator of aclnn. */
interface OperatorCall {
  readonly reads: readonly Buffer[];
  readonly writes: readonly Buffer[];
  /** Computes `writes` from `reads`. */
  readonly run: () => void;
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
  /** The tensors that the call gets. */
  readonly inputs: readonly Buffer[];
}

/** Describes an operator that computes each element of `out` by itself. */
function elementwise(out: Buffer, reads: readonly Buffer[], value: (n: number) => number): OperatorCall {
  return { reads, writes: [out], run: () => out.fill(value) };
}

/**
 * Describes the twelve steps and the rotation. The power is computed in place, and the transposition is a view, as in
 * the backend.
 *
 * @param inputs - the numbers to compute with; counting needs only sizes
 */
export function listSteps(
  { headDim, heads, seq, batch, dataBytes }: Cann2024Sizes,
  rotation: Cann2024Rotation,
  inputs: Partial<StepInputs> = {},
): StepList {
  const dtype = dataBytes === 4 ? 'f32' : 'f16';
  const { tableDtype = dtype, angleDtype = 'f32', pairing = 'half' } = inputs;
  const given = inputs as StepInputs; // read by calls that run, never by counting
  const half = headDim / 2;

  const shape = [batch, seq, heads, headDim];
  const positions = new Buffer('positions', [seq], 'i32', inputs.positions);
  const factors = new Buffer('freq_factors', [half], 'f32', inputs.freqFactors);
  const x = new Buffer('x', shape, dtype, inputs.x);
  const out = new Buffer('out', shape, dtype);
  const [sin, cos] = ['sin', 'cos'].map((name) => new Buffer(name, [seq, headDim], dtype)) as [Buffer, Buffer];
  const scale = new Buffer('powers', [half], angleDtype);
  const thetaScale = new Buffer('theta_scale', [1], angleDtype, Float32Array.of(inputs.thetaScale ?? 1));
  const theta = new Buffer('theta', [seq, half], angleDtype);
  const [halfSin, halfCos] = ['half_sin', 'half_cos'].map((name) => new Buffer(name, [seq, half], tableDtype)) as [
    Buffer,
    Buffer,
  ];

  const interleaved = pairing === 'interleaved';
  /** Returns the pair of dimension i of a row. */
  const pairOf = (i: number): number => (interleaved ? i >> 1 : i % half);
  const gap = interleaved ? 1 : half;
  /** Returns the other member of a pair, turned by a quarter: −x1 for x0, x0 for x1. */
  const turned = (values: Buffer['values'], n: number): number => {
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
      const factor = new Buffer('attn_factor', [1], table.dtype);
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
    const [first, second, negated] = ['first', 'second', 'negated'].map(
      (name) => new Buffer(name, [batch, seq, heads, half], dtype),
    ) as [Buffer, Buffer, Buffer];
    const [rolled, straight, crossed] = ['rolled', 'x_cos', 'rolled_sin'].map(
      (name) => new Buffer(name, shape, dtype),
    ) as [Buffer, Buffer, Buffer];
    /** Returns the place of dimension j of a half, of one member of the pairs. */
    const memberAt = (n: number, member: 0 | 1): number =>
      Math.floor(n / half) * headDim + (interleaved ? 2 * (n % half) + member : (n % half) + member * half);
    const calls: OperatorCall[] = [
      {
        reads: [x],
        writes: [first, second],
        run() {
          first.fill((n) => x.values[memberAt(n, 0)]!);
          second.fill((n) => x.values[memberAt(n, 1)]!);
        },
      },
      elementwise(negated, [second], (n) => -second.values[n]!),
      elementwise(rolled, [negated, first], (n) => {
        const [row, i] = [Math.floor(n / headDim), n % headDim];
        const from = interleaved ? (i % 2 === 0 ? negated : first) : i < half ? negated : first;
        return from.values[row * half + pairOf(i)]!;
      }),
      elementwise(straight, [x, cos], (n) => x.values[n]! * cos.values[tableAt(n)]!),
      elementwise(crossed, [rolled, sin], (n) => rolled.values[n]! * sin.values[tableAt(n)]!),
      elementwise(out, [straight, crossed], (n) => straight.values[n]! + crossed.values[n]!),
    ];
    const asks = [first, negated, rolled, straight, crossed];
    add('rotation: split, negate, concatenate, two products, a sum', calls, asks);
  }
  return { steps, cos, sin, out, inputs: [x, positions, factors, thetaScale] };
}

/** Runs every call in order. @param after - called after each step with its number and what it wrote */
export function executeSteps({ steps }: StepList, after?: (step: number, written: readonly Buffer[]) => void): void {
  for (const { step, calls } of steps) {
    for (const call of calls) call.run();
    after?.(step, [...new Set(calls.flatMap(({ writes }) => writes))]);
  }
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
  return costsOf(listSteps(own, rotation));
}

/** Counts the costs of steps. */
export function costsOf({ steps }: StepList): readonly Cann2024Step[] {
  return steps.map(({ step, what, asks, calls }) => ({
    step,
    what,
    calls: calls.length,
    bytesRead: calls.reduce((sum, { reads }) => sum + bytesOf(reads), 0),
    bytesWritten: calls.reduce((sum, { writes }) => sum + bytesOf(writes), 0),
    buffered: bytesOf(asks),
  }));
}
