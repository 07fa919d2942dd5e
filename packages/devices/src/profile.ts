/**
 * Describes what a device, or a runtime on a device, takes: rules as data, each over one neutral description of a call.
 *
 * @module
 */

import type { Backend, FloatDtype, Pairing, PlanRopeOptions } from 'ropewalk';
import type { Cann2024Call, StepBuffer } from './cann-2024/backend.js';
import type { Cann2024Step } from './cann-2024/steps.js';

/** The order of x's dimensions: b batch, s token, n head, h head_dim, t tokens of all batches. */
export type UseLayout = 'bsnh' | 'bnsh' | 'sbnh' | 'tnh';

/** cos and sin have a row for each token, for each token of a batch, or for each token and head of a batch. */
export type TablesOf = 'token' | 'batch' | 'head';

/** One rotation of one tensor, in words of no device. */
export interface RopeUse {
  readonly op: 'rope';
  /** The dtype of x and of the result. */
  readonly dtype: FloatDtype;
  /** The dtype of cos and sin as arguments; undefined where the device computes them from positions. */
  readonly tables: FloatDtype | undefined;
  /** The dimensions of x that such cos and sin have, beside those of the token and of D; the others are 1. */
  readonly tablesOf: TablesOf;
  readonly layout: UseLayout;
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  /** Heads of k if one call rotates q and k, else 0. */
  readonly kHeads: number;
  readonly headDim: number;
  /** The number of dimensions of a head that rotate. */
  readonly rotaryDim: number;
  /** The first dimension of a head that rotates. */
  readonly rotaryOffset: number;
  /** `quarter` is half pairing inside each half of the head. */
  readonly pairing: Pairing | 'quarter';
  /** Whether the frequencies need YaRN's or Llama 3's ramp: a mix of two frequencies that differs from pair to pair. */
  readonly ramp: boolean;
  /** Whether a list divides the frequencies, one number a pair. */
  readonly freqFactors: boolean;
  /** The factor that multiplies cos and sin. */
  readonly attentionFactor: number;
  /** ggml's attn_factor: `attentionFactor` without the magnitude that ggml itself adds to a ramp. Six digits. */
  readonly attnFactor: number;
  /** The number of position axes: 1, or 3 and 4 for M-RoPE. */
  readonly axes: number;
  /** Whether batches have positions of their own. */
  readonly batchPositions: boolean;
  /** Whether x is dense, row by row. */
  readonly contiguous: boolean;
  /** Whether batch and sequence are known when the graph is built. */
  readonly fixedShapes: boolean;
}

/** One attention, in words of no device. */
export interface AttentionUse {
  readonly op: 'attention';
  readonly dtype: FloatDtype;
  readonly batch: number;
  /** Tokens of q. */
  readonly seq: number;
  /** Tokens of k and v, including those of the cache. */
  readonly total: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** The head size of v; headDim in most models. */
  readonly valueDim: number;
  /** The number of keys that a query sees; undefined for all before it. */
  readonly window: number | undefined;
  /** Whether scores are capped by tanh. */
  readonly softcap: boolean;
  /** Whether each head has a sink, a score without a value. */
  readonly sinks: boolean;
}

/** The call that a rule is about. */
export type DeviceUse = RopeUse | AttentionUse;

/** One condition that a call must keep. */
export interface DeviceRule<Use extends DeviceUse = DeviceUse> {
  /** The condition in a few words: `D is at most 896`. */
  readonly words: string;
  /** The place that says so: `repo@commit path`. */
  readonly source: string;
  readonly holds: (use: Use) => boolean;
  /** The device's result where the rule does not hold; undefined where it refuses the call. */
  readonly otherwise?: string;
}

/** Makes a rule from its parts. */
export function rule<Use extends DeviceUse>(
  words: string,
  source: string,
  holds: (use: Use) => boolean,
  otherwise?: string,
): DeviceRule<Use> {
  return { words, source, holds, otherwise };
}

/**
 * The way in which a rotation is called: cos and sin are arguments (`tables`), the device computes them (`positions`),
 * an ONNX graph has RotaryEmbedding (`standard`), or only operators of arithmetic (`primitives`).
 */
export type RopeCallKind = 'tables' | 'positions' | 'standard' | 'primitives';

/** An operator that rotates. */
export interface RopeOperator {
  readonly op: 'rope';
  readonly name: string;
  readonly call: RopeCallKind;
  /** One call rotates q and k. */
  readonly together?: boolean;
  /** The device computes cos and sin, and rotates f16 data by cos and sin in f16. */
  readonly halfTables?: boolean;
  readonly rules: readonly DeviceRule<RopeUse>[];
}

/** Makes an operator that rotates from its parts. */
export function rotation(
  name: string,
  call: RopeCallKind,
  rules: readonly DeviceRule<RopeUse>[],
  more: Pick<RopeOperator, 'together' | 'halfTables'> = {},
): RopeOperator {
  return { op: 'rope', name, call, ...more, rules };
}

/** An operator that computes attention. */
export interface AttentionOperator {
  readonly op: 'attention';
  readonly name: string;
  readonly rules: readonly DeviceRule<AttentionUse>[];
}

/** An operator of a device. */
export type DeviceOperator = RopeOperator | AttentionOperator;

/** The operators that a runtime of ONNX graphs takes. */
export interface OnnxOperators {
  /** The operators of ai.onnx that it has, of those that graphs of RoPE may need. */
  readonly names: readonly string[];
  /** Whether a Cast may read an input of the graph. */
  readonly castsInputs: boolean;
  /** A sentence that says what happens to f32 data, where they are not computed in f32. */
  readonly halvesF32?: string;
  readonly source: string;
}

/** A device, or a runtime on a device. */
export interface DeviceProfile {
  /** Its name on the command line: `cann-2024`. */
  readonly name: string;
  /** A description in one line. */
  readonly title: string;
  /** The documents and sources that the profile was read from: `repo@commit path` and the like. */
  readonly sources: readonly string[];
  readonly operators: readonly DeviceOperator[];
  /** The dtype of the data that its runtime rotates; undefined where models choose it. */
  readonly dtype?: FloatDtype;
  /** Operators that one may look for and that it does not have. */
  readonly lacks?: readonly { readonly name: string; readonly source: string }[];
  /** The operators of a runtime of ONNX graphs. */
  readonly onnx?: OnnxOperators;
  /** Opens a backend that computes as the device does; undefined for a profile of rules only. */
  readonly open?: () => Promise<Backend>;
  /** Describes and runs the steps of a RoPE on a device whose steps are known. */
  readonly steps?: {
    readonly describe: (rope: PlanRopeOptions, call: Cann2024Call) => readonly Cann2024Step[];
    readonly run: (rope: PlanRopeOptions, call: Cann2024Call) => readonly StepBuffer[];
  };
  /**
   * Compares the device's cos and sin with exact ones.
   *
   * @param options - the RoPE and its positions
   * @param dtype - of the data
   * @returns the largest error at each position, or why there is none
   */
  readonly tableErrors?: (
    options: PlanRopeOptions,
    dtype: 'f32' | 'f16',
  ) => { readonly maxErrors: readonly number[] } | { readonly whyNot: string };
  /**
   * Finds why such a backend fails a case, by running the case on devices without some of its mistakes.
   *
   * @param passes - runs the case on a device and says whether it passed
   * @returns the fewest causes that explain it, in words; none where no mending helps
   */
  readonly explain?: (passes: (device: Backend) => Promise<boolean>) => Promise<readonly string[]>;
  /** The lines that the device itself printed for the published cases, in their order, if somebody published them. */
  readonly published?: readonly PublishedLine[];
}

/** One line of a published run. */
export interface PublishedLine {
  /** The error of a case that failed; undefined for OK. */
  readonly nmse?: number;
  /** The positions of the tokens. */
  readonly positions: readonly number[];
  /** freq_factors[0], which the run did not print: found by search, and only where the NMSE depends on it. */
  readonly firstFactor?: number;
}
