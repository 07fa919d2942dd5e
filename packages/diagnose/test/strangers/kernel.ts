/**
 * A stranger's kernel: code by somebody who has not seen the catalogue of known bugs, the model and the input that it ran
 * on, and the truth about it.
 *
 * These files import only public functions of packages/diagnose, and never its mutants, because a set that was written from
 * the catalogue would only measure the catalogue. @module
 */
import type { FloatDtype } from 'ropewalk';
import { frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';
import { type RandomStream, randomFrom, sharePairs } from 'ropewalk/internal';

/** LongRoPE's lists in the shape of Phi-3-mini-128k's: close to 1 for fast pairs, up to 64 for slow ones. */
export const PHI3_SHORT: readonly number[] = Array.from({ length: 48 }, (_what, j) => 1.05 + 0.04 * Math.min(j, 45));
export const PHI3_LONG: readonly number[] = Array.from({ length: 48 }, (_what, j) =>
  Number((1.07 + 63.7 * (j / 47) ** 2.2).toFixed(2)),
);

/** The RoPE of real models, as their configs say. */
export const MODELS = {
  'Llama 2': { headDim: 128, pairing: 'half', base: 10000 },
  TinyLlama: { headDim: 64, pairing: 'half', base: 10000 },
  'Llama 3.1': {
    headDim: 128,
    pairing: 'half',
    base: 500000,
    scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
  },
  'Qwen2.5 YaRN': {
    headDim: 128,
    pairing: 'half',
    base: 1000000,
    scaling: { kind: 'yarn', factor: 4, originalContext: 32768 },
  },
  'gpt-oss': {
    headDim: 64,
    pairing: 'half',
    base: 150000,
    scaling: { kind: 'yarn', factor: 32, originalContext: 4096, truncate: false },
  },
  'Phi-2': { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000 },
  Pythia: { headDim: 64, rotaryDim: 16, pairing: 'half', base: 10000 },
  'GLM-4': { headDim: 128, rotaryDim: 64, pairing: 'interleaved', base: 10000 },
  'Linear 4': { headDim: 128, pairing: 'half', base: 10000, scaling: { kind: 'linear', factor: 4 } },
  'Qwen3-VL': { headDim: 128, pairing: 'half', base: 5000000, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  'Qwen2-VL vision': { headDim: 80, pairing: 'vision', base: 10000, axes: { rule: 'vision', sections: [20, 20, 0] } },
  'GPT-J': { headDim: 256, rotaryDim: 64, pairing: 'interleaved', base: 10000 },
  'Phi-3': {
    headDim: 96,
    pairing: 'half',
    base: 10000,
    scaling: {
      kind: 'longrope',
      shortFactor: PHI3_SHORT,
      longFactor: PHI3_LONG,
      originalContext: 4096,
      context: 131072,
      factor: 32,
    },
  },
  'DeepSeek-V3': {
    headDim: 64,
    pairing: 'interleaved-to-half',
    base: 10000,
    scaling: { kind: 'yarn', factor: 40, originalContext: 4096, mscale: 1, mscaleAllDim: 1 },
  },
  'Qwen2-VL': { headDim: 128, pairing: 'half', base: 1000000, axes: { rule: 'sections', sections: [16, 24, 24] } },
  Qwen3: { headDim: 128, pairing: 'half', base: 1000000 },
  Gemma: { headDim: 256, pairing: 'half', base: 10000 },
} satisfies Record<string, RopeSpec>;

export type ModelName = keyof typeof MODELS;

/** Rows of positions, one for each batch, and the heads of x. */
const run = (from: number, length: number): number[] => Array.from({ length }, (_what, s) => from + s);
export const INPUTS = {
  'prompt 16': { heads: 2, rows: [run(0, 16)] },
  'two prompts 16': { heads: 2, rows: [run(0, 16), run(0, 16)] },
  'prompt 256': { heads: 1, rows: [run(0, 256)] },
  far: {
    heads: 2,
    rows: [
      [0, 1, 2, 7, 40, 511, 8191, 131071],
      [3, 5, 100, 1000, 4097, 30000, 65537, 100003],
    ],
  },
  'later chunk': { heads: 2, rows: [run(4000, 16)] },
  'long chunk': { heads: 2, rows: [run(32700, 80)] },
  square: { heads: 8, rows: [run(0, 8)] },
  odd: { heads: 5, rows: [run(0, 21)] },
  image: { heads: 2, rows: [run(0, 24)] },
  'one far token': { heads: 4, rows: [[70001]] },
  'decode step': { heads: 4, rows: [[1000]] },
  'decode batch': { heads: 2, rows: [[5], [300], [2047], [7000]] },
  'left padding': { heads: 2, rows: [run(0, 12), [1, 1, 1, 1, ...run(0, 8)]] },
  shift: { heads: 2, rows: [[0, -1, -2, -40, -500, -4096, 3, 7]] },
  'many sequences': { heads: 2, rows: Array.from({ length: 12 }, (_what, b) => run(37 * b, 8)) },
} satisfies Record<string, { heads: number; rows: number[][] }>;

export type InputName = keyof typeof INPUTS;

/** One head of one token. */
export interface RowAt {
  readonly batch: number;
  readonly seq: number;
  readonly head: number;
}

/** The input of a kernel. Its elements are numbers that `dtype` holds exactly. */
export interface Call {
  readonly spec: RopeSpec;
  readonly dtype: FloatDtype;
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly headDim: number;
  /** `[batch, seq, heads, headDim]` */
  readonly x: Float64Array;
  /** The same shape, zeros: the kernel writes here, and what it has written is rounded to dtype. */
  readonly y: Float64Array;
  /** `[axes, batch, seq]` */
  readonly positions: Float64Array;
  readonly axes: number;
  /** The norm before the rotation, where the kernel does both. */
  readonly norm: { readonly weight: Float64Array; readonly eps: number } | undefined;
  readonly rotaryDim: number;
  /** The model's frequencies in f32, radians a position, and its magnitude. */
  readonly inv: Float64Array;
  readonly magnitude: number;
  /** The dimensions from which pair j is read. */
  pair(j: number): readonly [number, number];
  /** A value as the kernel's dtype holds it. */
  round(value: number): number;
  position(batch: number, seq: number, axis?: number): number;
  /** Index of a head's first element. */
  at(batch: number, seq: number, head: number): number;
}

/** The rotation of a kernel, in exact numbers. */
export interface Rotation {
  readonly pairs: readonly { readonly read: readonly [number, number]; readonly write: readonly [number, number] }[];
  /** Radians a position of each pair, negative backwards; 0 for a pair that does not rotate. */
  readonly frequency: readonly number[];
  /** The factor of the length of pairs, or its bounds if it is not exact. */
  readonly gain: number | readonly [low: number, high: number];
  /** By which position a row really rotates. */
  position(given: number, at: RowAt): number;
  readonly axisOfPair?: ArrayLike<number>;
  /** Relative error of its angles, where it computes them badly: what is said of them may be off by as much. */
  readonly loose?: number;
}

/** The aspects that can be wrong. */
export type Aspect =
  | 'dimensions'
  | 'pairing'
  | 'direction'
  | 'frequencies'
  | 'magnitude'
  | 'positions'
  | 'axes'
  | 'heads'
  | 'rows'
  | 'elements'
  | 'input'
  | 'precision';

/** The truth about a kernel. */
export interface Truth {
  /** Ids of the catalogue that are a right name, any of them; pairs of bugs joined by `+`. */
  readonly names?: readonly string[];
  /** Whether an id is a right name, where names are not listed. */
  readonly isName?: (id: string, rows?: readonly RowAt[]) => boolean;
  /** The wrong aspects: a true line about one of these describes the kernel rightly. */
  readonly wrong: readonly Aspect[];
  /** Other lines that describe it rightly. */
  readonly describes?: readonly RegExp[];
  /**
   * The real rotation of every row that is not in `except`. Undefined if y is no rotation of pairs: then every claim that
   * it is one is untrue.
   */
  readonly rotation?: Rotation;
  /** Rows that hold something else. */
  readonly except?: (at: RowAt) => boolean;
  /** The words that a headline may say about the precision of a right kernel. Default: none. */
  readonly precision?: RegExp;
  /** Lines that were judged by hand: true of this kernel, or not. */
  readonly true?: readonly RegExp[];
  readonly untrue?: readonly RegExp[];
}

/** Causes of issue 18; 0 are right kernels. */
export type Cause = 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8;

/** A stranger's kernel. */
export interface Stranger {
  readonly id: string;
  readonly cause: Cause;
  /** A sentence about what its author did. */
  readonly about: string;
  /** A public thread, `owner/name#number`. */
  readonly thread?: string;
  readonly model: ModelName;
  readonly dtype: FloatDtype;
  readonly input: InputName;
  /** Without an expectation when false. */
  readonly expect?: boolean;
  /** The dtype of the dump where it is wider than the kernel's. */
  readonly dumped?: FloatDtype;
  /** With a norm of each head before the rotation. */
  readonly normed?: boolean;
  /** Dumped as `[batch, head, seq, head_dim]`, and nobody says so. */
  readonly headsFirst?: boolean;
  /** Writes `call.y`. */
  run(call: Call): void;
  truth(call: Call): Truth;
}

/** x and positions for a stranger. */
export function callFor({ id, model, dtype, input, normed }: Omit<Stranger, 'run' | 'truth'>): Call {
  const spec: RopeSpec = MODELS[model];
  const { heads, rows } = INPUTS[input] as { heads: number; rows: number[][] };
  const [batch, seq, headDim] = [rows.length, rows[0]!.length, spec.headDim];
  const random = randomFrom(`stranger ${id}`);
  const size = batch * seq * heads * headDim;
  const x = Float64Array.from({ length: size }, () => roundTo(dtype, normal(random)));
  const rotaryDim = spec.rotaryDim ?? headDim;
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const pairs = pairsOf(spec.pairing, rotaryDim);
  const axes = spec.axes?.sections.length ?? 1;
  const positions = new Float64Array(axes * batch * seq);
  for (let a = 0; a < axes; a++)
    for (let b = 0; b < batch; b++)
      for (let s = 0; s < seq; s++) positions[(a * batch + b) * seq + s] = axisPosition(rows[b]!, s, a, spec);
  const weight = Float64Array.from({ length: headDim }, () => roundTo(dtype, 1 + normal(random) / 4));
  return {
    spec,
    dtype,
    norm: normed ? { weight, eps: 1e-6 } : undefined,
    batch,
    seq,
    heads,
    headDim,
    x,
    y: new Float64Array(size),
    positions,
    axes,
    rotaryDim,
    inv: invFreq.map(Math.fround),
    magnitude: attentionFactor,
    pair: (j) => pairs[j]!.read,
    round: (value) => roundTo(dtype, value),
    position: (b, s, a = 0) => positions[(a * batch + b) * seq + s]!,
    at: (b, s, h) => ((b * seq + s) * heads + h) * headDim,
  };
}

/** Text, an image of 4 columns, and text again: after the image all axes go on from its largest position. */
function axisPosition(row: readonly number[], s: number, axis: number, { axes, pairing }: RopeSpec): number {
  if (pairing === 'vision') return [Math.floor(s / 6), s % 6, 0][axis]!; // an image of 6 columns, without text
  const p = row[s]!;
  const inImage = axes !== undefined && s >= 2 && s < row.length - 2;
  if (!inImage) return p;
  const [first, n] = [row[2]!, s - 2];
  return first + [0, Math.floor(n / 4), n % 4][axis]!;
}

/** About normal, with the few large channels that activations have. */
function normal(random: RandomStream): number {
  let sum = 0;
  for (let n = 0; n < 6; n++) sum += random.uniform(-1, 1);
  return random.integer(64) === 0 ? 6 * sum : sum / Math.SQRT2;
}

/** The rotation that a spec asks for. */
export function rotationOf(spec: RopeSpec, more: Partial<Rotation> = {}): Rotation {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  return {
    pairs: pairsOf(spec.pairing, spec.rotaryDim ?? spec.headDim),
    frequency: [...invFreq],
    gain: attentionFactor,
    position: (p) => p,
    ...(spec.axes ? { axisOfPair: sharePairs(spec.axes, invFreq.length).axisOfPair } : {}),
    ...more,
  };
}

/** The dimensions from which each pair is read, and to which it is written. */
export function pairsOf(pairing: string, rotaryDim: number, first = 0): Rotation['pairs'] {
  const half = rotaryDim / 2;
  const apart = (j: number) => [first + j, first + j + half] as const;
  const adjacent = (j: number) => [first + 2 * j, first + 2 * j + 1] as const;
  return Array.from({ length: half }, (_what, j) => {
    const [read, write] = {
      half: [apart(j), apart(j)],
      vision: [apart(j), apart(j)],
      interleaved: [adjacent(j), adjacent(j)],
      'interleaved-to-half': [adjacent(j), apart(j)],
      'half-to-interleaved': [apart(j), adjacent(j)],
    }[pairing]! as [readonly [number, number], readonly [number, number]];
    return { read, write };
  });
}

/** The output of a rotation in float64, `[batch, seq, heads, headDim]`. */
export function exact(call: Call, rotation: Rotation): Float64Array {
  const { batch, seq, heads } = call;
  const x = normedInput(call);
  const y = Float64Array.from(x);
  const gain = typeof rotation.gain === 'number' ? rotation.gain : (rotation.gain[0] + rotation.gain[1]) / 2;
  for (let b = 0; b < batch; b++)
    for (let s = 0; s < seq; s++)
      for (let h = 0; h < heads; h++) {
        const from = call.at(b, s, h);
        for (const [j, { read, write }] of rotation.pairs.entries()) {
          const given = call.position(b, s, rotation.axisOfPair?.[j] ?? 0);
          const angle = rotation.position(given, { batch: b, seq: s, head: h }) * rotation.frequency[j]!;
          const [x0, x1] = [x[from + read[0]]!, x[from + read[1]]!];
          y[from + write[0]] = gain * (x0 * Math.cos(angle) - x1 * Math.sin(angle));
          y[from + write[1]] = gain * (x0 * Math.sin(angle) + x1 * Math.cos(angle));
        }
      }
  return y;
}

/** x over the root mean square of each head, times the weight, where the kernel has a norm. */
export function normedInput({ x, norm, headDim }: Pick<Call, 'x' | 'norm' | 'headDim'>): Float64Array {
  if (!norm) return x;
  const y = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += headDim) {
    const squares = x.subarray(row, row + headDim).reduce((sum, value) => sum + value * value, 0);
    const scale = 1 / Math.sqrt(squares / headDim + norm.eps);
    for (let i = 0; i < headDim; i++) y[row + i] = x[row + i]! * scale * norm.weight[i]!;
  }
  return y;
}
