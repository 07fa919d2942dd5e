/**
 * The contract of a backend: a {@link Runner} that says what it can do and gives its memory back.
 *
 * Backends know plans and memory; they know no dialect, no file format and not the reference.
 *
 * @module
 */
import type { BlockFormat } from '../core/block-formats.js';
import type { Dtype, FloatDtype } from '../core/dtypes.js';
import type { Tensor } from '../core/tensor.js';
import type { Activations } from '../ops/linear.js';
import type { Runner } from '../ops/runner.js';

/** How an open backend computes, and why it does not use something faster. */
export interface Capabilities {
  /** The backend's name. */
  readonly backend: string;
  /** One line for people that says what computes, and where. */
  readonly description: string;
  readonly dtypes: readonly FloatDtype[];
  /** The dtypes in which every product and every sum of a rotation is rounded; in others the result is. Default: none. */
  readonly roundsEachStep?: readonly FloatDtype[];
  /** The block formats of weights that the backend reads, which a loader need not widen. Default: none. */
  readonly blockFormats?: readonly BlockFormat[];
  /** The forms of activations that `linear` can read beside blocks. Default: f32 alone. */
  readonly activations?: readonly Activations[];
  /** The number of threads that compute; 0 where a GPU computes. */
  readonly threads: number;
  /** The bytes that tensors may take, where the backend knows: all together from now on, and a single one. */
  readonly memory?: { readonly availableBytes?: number; readonly tensorBytes?: number };
  /** Each faster path that is not taken, with the reason. */
  readonly notTaken: readonly string[];
}

/** An open backend. */
export interface Backend extends Runner {
  capabilities(): Capabilities;
  /**
   * Copies a tensor into this backend's memory.
   *
   * @param source - in host memory, any layout
   * @returns a dense tensor
   * @throws {RopewalkError} DEVICE when it does not fit, or the source is not in host memory
   */
  upload<D extends Dtype>(source: Tensor<D>): Tensor<D>;
  /** Gives memory, workers and devices back; the backend and its tensors are unusable afterwards. */
  dispose(): void;
}

/** The most threads that the cpu backend starts: more have never made its kernels faster. */
export const MAX_THREADS = 16;

/** Options for opening a backend; each backend reads those that concern it. */
export interface BackendOptions {
  /** cpu: the number of threads that compute, at most 16. Default: one for each core. */
  readonly threads?: number;
  /** cpu: the most bytes that tensors may take. Default and largest value: 4 GiB. */
  readonly memoryLimit?: number;
  /**
   * cpu: `simd128` forbids the relaxed SIMD module, whose multiply-adds round once instead of twice. Default: auto.
   */
  readonly simd?: 'auto' | 'simd128';
  /** webgpu: the adapter to prefer where there are several. Default: high-performance. */
  readonly powerPreference?: 'high-performance' | 'low-power';
}

/** A backend that can be opened by its name; `Options` are its options. */
export interface BackendEntry<Options = BackendOptions> {
  readonly name: string;
  /** Whether `auto` may open it: `auto` opens the first such backend that can open. */
  readonly auto: boolean;
  /** Whether it opens only when it is named: commands that run every backend leave it out. */
  readonly byName?: boolean;
  /** Says why this backend cannot open on this machine, or undefined when it can. */
  whyNot(): Promise<string | undefined>;
  /**
   * @param options - what concerns another backend is ignored
   * @param passedOver - faster backends that did not open, with the reasons, which `capabilities()` repeats
   * @throws {RopewalkError} RANGE or UNSUPPORTED for a bad option
   */
  open(options?: Options, passedOver?: readonly string[]): Promise<Backend>;
}
