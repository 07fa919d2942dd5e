/** A dump: the tensors that one run of a model left behind. @module */
import type { RopeSpec, Tensor } from 'ropewalk';

/** A tensor of a dump. Its values are read when asked for, so a dump of gigabytes is never in memory as a whole. */
export interface DumpTensor {
  /** The name that the writer gave it: `model.layers.3.self_attn.q_proj`, `Qcur-3`. */
  readonly name: string;
  /** The sizes from the outermost to the innermost; a reader of ggml's `ne` reverses them. */
  readonly shape: readonly number[];
  /** The dtype that it has in the dump: `f32`, `f16`, `bf16`, `i32`. */
  readonly dtype: string;
  /** The forward pass that it is from, counted from 0. */
  readonly step?: number;
  readonly rank?: number;
  readonly read: () => Promise<Tensor>;
}

/** The value of an element that a dump does not have. */
export const NOT_GIVEN = Math.fround(3.3e38);

/** One side of a trace. */
export interface Dump {
  /** The path that the user gave. */
  readonly label: string;
  /** In the order of the run, where the dump has one. */
  readonly tensors: readonly DumpTensor[];
  /** Sentences for the report, such as about tensors that could not be read. */
  readonly notes: readonly string[];
  /** The facts that our recorder writes beside the tensors. */
  readonly facts?: RunFacts;
  /** For a printed text: values are within this of those printed, and the rest is {@link NOT_GIVEN}. */
  readonly resolution?: number;
  close(): Promise<void>;
}

/** The facts of a run that its tensors do not tell. */
export interface RunFacts {
  readonly layers: readonly LayerFacts[];
}

/** The heads of a layer, and the RoPE that it should have. */
export interface LayerFacts {
  readonly numHeads: number;
  readonly numKvHeads: number;
  readonly headDim: number;
  readonly rope: RopeSpec | undefined;
}
