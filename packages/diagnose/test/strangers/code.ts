/**
 * Code that strangers' kernels share: the loops and formulas of public implementations, written from their sources and
 * not from ours. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import {
  type Aspect,
  type Call,
  type InputName,
  MODELS,
  type ModelName,
  type Rotation,
  type RowAt,
  rotationOf,
  type Stranger,
} from './kernel.js';
import { NAMES } from './names.js';

export const f32 = Math.fround;
export const bf16 = (value: number): number => roundTo('bf16', value);
export const f16 = (value: number): number => roundTo('f16', value);

/** How a kernel computes. What is not given is done as well as f32 allows. */
export interface Ways {
  /** `[cos, sin]` of pair j. Without it: of the angle below, in f64, rounded to f32. */
  cosSin?(angle: number): readonly [cos: number, sin: number];
  /** The angle, from a position and the frequency in f64. Without it: their product in f32. */
  angle?(position: number, frequency: number, j: number): number;
  /** The dtype to which cos and sin are rounded. Default: f32. */
  readonly table?: FloatDtype;
  /** The dtype to which every product and sum is rounded. Default: f32. */
  readonly arithmetic?: FloatDtype;
  /** The last step before the store. */
  store?(value: number): number;
}

/** Rotates as `rotation` says, in a way that a kernel would: row by row, pair by pair. */
export function rotate(call: Call, rotation: Rotation, ways: Ways = {}): void {
  const {
    cosSin = (angle) => [Math.cos(angle), Math.sin(angle)],
    angle = (position, frequency) => f32(f32(position) * f32(frequency)),
    table = 'f32',
    arithmetic = 'f32',
    store = call.round,
  } = ways;
  const { x, y } = call;
  const gain = (table === 'f64' ? Number : f32)(typeof rotation.gain === 'number' ? rotation.gain : 1);
  const work = (value: number): number => roundTo(arithmetic, value);
  for (const at of rowsOf(call)) {
    const from = call.at(at.batch, at.seq, at.head);
    for (let i = 0; i < call.headDim; i++) y[from + i] = x[from + i]!;
    for (const [j, { read, write }] of rotation.pairs.entries()) {
      const given = call.position(at.batch, at.seq, rotation.axisOfPair?.[j] ?? 0);
      const [c, s] = cosSin(angle(rotation.position(given, at), rotation.frequency[j]!, j));
      const entry = (value: number): number => roundTo(table, table === 'f64' ? value * gain : f32(f32(value) * gain));
      const [cos, sin] = [entry(c), entry(s)];
      const [x0, x1] = [x[from + read[0]]!, x[from + read[1]]!];
      y[from + write[0]] = store(work(work(x0 * cos) - work(x1 * sin)));
      y[from + write[1]] = store(work(work(x0 * sin) + work(x1 * cos)));
    }
  }
}

function* rowsOf({ batch, seq, heads }: Call): Generator<RowAt> {
  for (let b = 0; b < batch; b++)
    for (let s = 0; s < seq; s++) for (let h = 0; h < heads; h++) yield { batch: b, seq: s, head: h };
}

/** `base^(−2j/dim)` for the pairs of `rotaryDim`. */
export function plainFrequencies(base: number, rotaryDim: number, dim = rotaryDim): number[] {
  return Array.from({ length: rotaryDim / 2 }, (_what, j) => base ** ((-2 * j) / dim));
}

/** transformers' `_compute_llama3_parameters`. */
export function llama3Frequencies(
  plain: readonly number[],
  { factor = 8, low = 1, high = 4, context = 8192 } = {},
): number[] {
  const [lowWave, highWave] = [context / low, context / high];
  return plain.map((f) => {
    const wave = (2 * Math.PI) / f;
    if (wave < highWave) return f;
    if (wave > lowWave) return f / factor;
    const smooth = (context / wave - low) / (high - low);
    return ((1 - smooth) * f) / factor + smooth * f;
  });
}

/** transformers' `_compute_yarn_parameters`: frequencies. */
export function yarnFrequencies(
  plain: readonly number[],
  base: number,
  { factor = 4, context = 32768, fast = 32, slow = 1, truncate = true, reversed = false, rampBase = base } = {},
): number[] {
  const dim = 2 * plain.length;
  const pairOf = (rotations: number): number =>
    (dim * Math.log(context / (rotations * 2 * Math.PI))) / (2 * Math.log(rampBase));
  let [low, high] = [pairOf(fast), pairOf(slow)];
  if (truncate) [low, high] = [Math.floor(low), Math.ceil(high)];
  [low, high] = [Math.max(low, 0), Math.min(high, dim - 1)];
  if (low === high) high += 0.001;
  return plain.map((f, j) => {
    const ramp = Math.min(1, Math.max(0, (j - low) / (high - low)));
    const keep = reversed ? ramp : 1 - ramp;
    return (f / factor) * (1 - keep) + f * keep;
  });
}

/** The magnitude of YaRN's paper. */
export const yarnMagnitude = (factor: number, mscale = 1): number => 0.1 * mscale * Math.log(factor) + 1;

/** The features that tell one wrong kernel from another. */
export interface Wrong extends Partial<Pick<Stranger, 'thread' | 'expect' | 'dumped' | 'run'>> {
  readonly wrong: readonly Aspect[];
  readonly describes?: readonly RegExp[];
  readonly true?: readonly RegExp[];
  /** The differences from the rotation that the model asks for. */
  readonly does?: Partial<Rotation>;
  readonly ways?: Ways;
}

/** A wrong kernel that rotates pairs. */
export function wrongKernel(
  id: string,
  cause: Stranger['cause'],
  on: readonly [model: ModelName, dtype: FloatDtype, input: InputName],
  about: string,
  { wrong, describes, true: hand, does, ways, run, ...rest }: Wrong,
): Stranger {
  const [model, dtype, input] = on;
  const rotation = rotationOf(MODELS[model], does);
  return {
    id,
    cause,
    about,
    model,
    dtype,
    input,
    ...rest,
    run: run ?? ((call) => rotate(call, rotation, ways)),
    truth: () => ({ names: NAMES[id] ?? [], wrong, describes, true: hand, rotation }),
  };
}
