/**
 * What a device, or a runtime on a device, takes: rules as data, each over one neutral description of a call.
 *
 * @module
 */
import type { Backend, FloatDtype, Pairing } from 'ropewalk';

/** The order of x's dimensions: b batch, s token, n head, h head_dim, t tokens of all batches. */
export type UseLayout = 'bsnh' | 'bnsh' | 'sbnh' | 'tnh';

/** Tables for a token, for a token of a batch, for a token and head of a batch. */
export type TablesOf = 'token' | 'batch' | 'head';

/** One rotation of one tensor, in words that no device owns. */
export interface RopeUse {
  readonly op: 'rope';
  /** Of x and of the result. */
  readonly dtype: FloatDtype;
  /** cos and sin are arguments, in this dtype; undefined where the device computes them from positions. */
  readonly tables: FloatDtype | undefined;
  /** Which of x's dimensions such cos and sin have, beside those of the token and of D; the others are 1. */
  readonly tablesOf: TablesOf;
  readonly layout: UseLayout;
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  /** Heads of k where one call rotates q and k, else 0. */
  readonly kHeads: number;
  readonly headDim: number;
  /** Dimensions that rotate. */
  readonly rotaryDim: number;
  /** Where they start in a head. */
  readonly rotaryOffset: number;
  /** `quarter` is half pairing inside each half of the head. */
  readonly pairing: Pairing | 'quarter';
  /** Whether the frequencies need YaRN's or Llama 3's ramp: a mix of two frequencies that differs from pair to pair. */
  readonly ramp: boolean;
  /** Whether a list divides the frequencies, one number a pair. */
  readonly freqFactors: boolean;
  /** Multiplies cos and sin. */
  readonly attentionFactor: number;
  /** Position axes: 1, or 3 and 4 for M-RoPE. */
  readonly axes: number;
  /** Whether batches have positions of their own. */
  readonly batchPositions: boolean;
  /** Whether x is dense, row by row. */
  readonly contiguous: boolean;
  /** Whether batch and sequence are known when the graph is built. */
  readonly fixedShapes: boolean;
}

/** One attention, in words that no device owns. */
export interface AttentionUse {
  readonly op: 'attention';
  readonly dtype: FloatDtype;
  readonly batch: number;
  /** Tokens of q. */
  readonly seq: number;
  /** Tokens of k and v, the cache's included. */
  readonly total: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Of v; headDim in most models. */
  readonly valueDim: number;
  /** Keys that a query sees; undefined for all before it. */
  readonly window: number | undefined;
  /** Whether scores are capped by tanh. */
  readonly softcap: boolean;
  /** Whether each head has a sink, a score without a value. */
  readonly sinks: boolean;
}

/** What a rule is about. */
export type DeviceUse = RopeUse | AttentionUse;

/** One thing that must hold of a call. */
export interface DeviceRule<Use extends DeviceUse = DeviceUse> {
  /** What must hold, in a few words: `D is at most 896`. */
  readonly words: string;
  /** Where that is said: `repo@commit path`. */
  readonly source: string;
  readonly holds: (use: Use) => boolean;
  /** What the device computes where the rule does not hold; undefined where it refuses the call. */
  readonly otherwise?: string;
}

/**
 * How a rotation is called: cos and sin are arguments (`tables`), the device computes them (`positions`), an ONNX graph
 * has RotaryEmbedding (`standard`), or only operators of arithmetic (`primitives`).
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

/** An operator that computes attention. */
export interface AttentionOperator {
  readonly op: 'attention';
  readonly name: string;
  readonly rules: readonly DeviceRule<AttentionUse>[];
}

/** An operator of a device. */
export type DeviceOperator = RopeOperator | AttentionOperator;

/** What a runtime of ONNX graphs takes. */
export interface OnnxOperators {
  /** Names of ai.onnx, of those that graphs of RoPE may need. */
  readonly names: readonly string[];
  /** Whether a Cast may read an input of the graph. */
  readonly castsInputs: boolean;
  /** What happens to f32 data where they are not computed in f32, a full sentence. */
  readonly halvesF32?: string;
  readonly source: string;
}

/** A device, or a runtime on a device. */
export interface DeviceProfile {
  /** For the command line: `cann-2024`. */
  readonly name: string;
  /** What it is, in one line. */
  readonly title: string;
  /** `repo@commit path` and the like: what the profile was read from. */
  readonly sources: readonly string[];
  readonly operators: readonly DeviceOperator[];
  /** Of the data that its runtime rotates; undefined where models choose it. */
  readonly dtype?: FloatDtype;
  /** Operators that one may look for and that it does not have. */
  readonly lacks?: readonly { readonly name: string; readonly source: string }[];
  /** For a runtime of ONNX graphs. */
  readonly onnx?: OnnxOperators;
  /** Opens a backend that computes as the device does; undefined for a profile of rules only. */
  readonly open?: () => Promise<Backend>;
  /**
   * Finds why such a backend fails a case, by running the case on devices without some of its mistakes.
   *
   * @param passes - runs the case on a device and says whether it passed
   * @returns the fewest causes that explain it, in words; none where no mending helps
   */
  readonly explain?: (passes: (device: Backend) => Promise<boolean>) => Promise<readonly string[]>;
  /** What the device itself printed for the published cases, in their order; undefined where nobody published it. */
  readonly published?: readonly PublishedLine[];
}

/** One line of a published run. */
export interface PublishedLine {
  /** Undefined for OK. */
  readonly nmse?: number;
  /** Of the tokens. */
  readonly positions: readonly number[];
  /** freq_factors[0], found by search as the run did not print it; undefined where the NMSE does not hang on it. */
  readonly firstFactor?: number;
}
