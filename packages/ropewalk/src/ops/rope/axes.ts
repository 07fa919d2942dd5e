/**
 * Step 2a of RoPE: the position axis and the exponent of each pair.
 *
 * Text models have one axis. M-RoPE gives each token a position on three or four axes (time, height, width, extra) and
 * assigns each pair to one of them. The peers do this in four ways, two of which differ at only a few pairs.
 *
 * @module
 */
import { type OptionNames, readList, readOptions } from '../../core/arguments.js';
import { refuse } from '../../core/errors.js';

/**
 * The rules that assign pairs to the axes t, h, w, e.
 *
 * - `sections`: contiguous runs, `tttt hhhh wwww`, repeated if they do not fill all pairs (Qwen2-VL; ggml mode 8)
 * - `interleaved`: `thwthw…`; pairs beyond h and w belong to t (HuggingFace Qwen3-VL, InfiniOp)
 * - `interleaved-ggml`: the same, but pairs beyond t, h and w belong to e (ggml mode 40)
 * - `vision`: contiguous runs, in each of which the exponent starts from 0 (ggml mode 24)
 */
export type AxisRule = 'sections' | 'interleaved' | 'interleaved-ggml' | 'vision';

/** The axes of a multi-axis RoPE. */
export interface RopeAxes {
  readonly rule: AxisRule;
  /** The pairs of each axis in one round, in the order t, h, w, e; three or four integers >= 0. */
  readonly sections: readonly number[];
}

const NAMES: OptionNames<RopeAxes> = { rule: true, sections: true };

/** The axis and the exponent of each pair, from {@link sharePairs}. */
export interface PairAxes {
  /** The number of position axes: 1, 3 or 4. */
  readonly numAxes: number;
  /** The axis of pair j, an index into the first dimension of the positions. */
  readonly axisOfPair: Uint8Array;
  /** The exponent of pair j: j itself, except for `vision`. */
  readonly exponents: Uint32Array;
}

const T = 0;
const H = 1;
const W = 2;
const E = 3;

/**
 * Assigns the pairs to the axes.
 *
 * @param given - the rule and sections, or undefined for one axis
 * @param pairs - rotaryDim / 2
 * @param op - the operator's name in messages
 * @returns fresh arrays of `pairs` entries
 * @throws {RopewalkError} SHAPE or RANGE when the sections do not fit
 * @see ggml-org/ggml@d99724f ggml_mrope_cache_init; transformers Qwen3VLTextRotaryEmbedding.apply_interleaved_mrope
 */
export function sharePairs(given: RopeAxes | undefined, pairs: number, op = 'rope'): PairAxes {
  const axisOfPair = new Uint8Array(pairs);
  const exponents = new Uint32Array(pairs);
  for (let j = 0; j < pairs; j++) exponents[j] = j; // Uint32Array.from would take 5 µs for 64 pairs
  if (given === undefined) return { numAxes: 1, axisOfPair, exponents };

  const { rule, sections: list } = readOptions(given, `${op}: axes`, NAMES);
  const expected = 'three or four integers >= 0, pairs of t, h, w and e';
  const sections = Array.from(readList(list, `${op}: sections`, expected));
  if ((sections.length !== 3 && sections.length !== 4) || !sections.every((n) => Number.isSafeInteger(n) && n >= 0)) {
    refuse('SHAPE', `${op}: sections`, expected, list);
  }
  const [t, h, w, e] = [sections[0]!, sections[1]!, sections[2]!, sections[3] ?? 0];
  const round = t + h + w + e;
  if (round === 0 || t + h + w === 0) refuse('RANGE', `${op}: sections`, 'at least one pair for t, h or w', sections);

  const ownerOf = (sector: number): number => {
    switch (rule) {
      case 'sections':
      case 'vision':
        return sector < t ? T : sector < t + h ? H : sector < t + h + w ? W : E;
      case 'interleaved':
        return sector % 3 === 1 && sector < 3 * h ? H : sector % 3 === 2 && sector < 3 * w ? W : T;
      case 'interleaved-ggml':
        if (sector % 3 === 1 && sector < 3 * h) return H;
        if (sector % 3 === 2 && sector < 3 * w) return W;
        return sector % 3 === 0 && sector < 3 * t ? T : E;
      default:
        return refuse('UNSUPPORTED', `${op}: axes.rule`, 'sections, interleaved, interleaved-ggml or vision', rule);
    }
  };
  // HuggingFace does not repeat the interleaved round, so all pairs after it belong to t.
  const sectorOf = (j: number): number => (rule === 'interleaved' ? j : j % round);
  for (let j = 0; j < pairs; j++) axisOfPair[j] = ownerOf(sectorOf(j));
  if (rule === 'vision') restartExponents(exponents, axisOfPair, [t, h, w, e]);
  const numAxes = Math.max(sections.length, ...axisOfPair.map((a) => a + 1));
  return { numAxes, axisOfPair, exponents };
}

/**
 * Sets the exponents of vision: the exponent of every axis grows with each pair, and restarts at the first pair of the
 * axis's section. Where two sections start at the same pair (the first is empty), only the first axis restarts, because
 * ggml tests the starts in order.
 */
function restartExponents(exponents: Uint32Array, axisOfPair: Uint8Array, sections: readonly number[]): void {
  const round = sections.reduce((sum, n) => sum + n, 0);
  const starts = [0, sections[0]!, sections[0]! + sections[1]!, sections[0]! + sections[1]! + sections[2]!];
  const counters = [0, 0, 0, 0];
  for (let j = 0; j < exponents.length; j++) {
    const restarted = starts.indexOf(j % round);
    if (restarted >= 0) counters[restarted] = 0;
    exponents[j] = counters[axisOfPair[j]!]!;
    for (let a = 0; a < 4; a++) counters[a]!++;
  }
}
