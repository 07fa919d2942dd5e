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

/** What a backend found when it opened: which path runs, and why not a faster one. */
export interface Capabilities {
  /** The backend's name. */
  readonly backend: string;
  /** One line for a person: what computes, and where. */
  readonly description: string;
  readonly dtypes: readonly FloatDtype[];
  /** Block formats that weights may have, which a loader need not widen; none unless given. */
  readonly blockFormats?: readonly BlockFormat[];
  /** How `linear` beside blocks may take activations; f32 alone unless given. */
  readonly activations?: readonly Activations[];
  /** Threads that compute; 0 where a GPU does. */
  readonly threads: number;
  /** Bytes that tensors may take, where the backend knows: all together from now on, and one by itself. */
  readonly memory?: { readonly availableBytes?: number; readonly tensorBytes?: number };
  /** Each faster path that is not taken, and the reason. */
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

/** The most threads that the cpu backend starts: more have never paid for kernels of this kind. */
export const MAX_THREADS = 16;

/** How a backend may be opened; each takes what concerns it. */
export interface BackendOptions {
  /** cpu: threads that compute, at most {@link MAX_THREADS}; as many as there are cores unless given. */
  readonly threads?: number;
  /** cpu: the most bytes that tensors may take, at most 4 GiB, which is also the default. */
  readonly memoryLimit?: number;
  /**
   * cpu: `simd128` forbids the relaxed SIMD module, whose multiply-adds round once instead of twice; auto unless given.
   */
  readonly simd?: 'auto' | 'simd128';
  /** webgpu: which adapter, where there are several; high-performance unless given. */
  readonly powerPreference?: 'high-performance' | 'low-power';
}

/** A backend that could be opened here, or the reason why it cannot; `Options` are its options. */
export interface BackendEntry<Options = BackendOptions> {
  readonly name: string;
  /** Whether `auto` may open it; of those, the first that can be. */
  readonly auto: boolean;
  /** Opened only when asked for by name: no command that takes every backend takes it. */
  readonly byName?: boolean;
  /** Says why this backend cannot open on this machine, or undefined when it can. */
  whyNot(): Promise<string | undefined>;
  /**
   * @param options - what concerns another backend is ignored
   * @param passedOver - faster backends that did not open, and why: `capabilities()` repeats it
   * @throws {RopewalkError} RANGE or UNSUPPORTED for a bad option
   */
  open(options?: Options, passedOver?: readonly string[]): Promise<Backend>;
}
