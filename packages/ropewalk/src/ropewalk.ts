/** The operators as methods of one object, the same on every backend. @module */
import type { Backend, BackendOptions, Capabilities } from './backends/backend.js';
import { type OptionNames, reading, readOptions } from './core/arguments.js';
import type { BlockFormat } from './core/block-formats.js';
import { type BlockTensor, blocksFrom, checkWeight, isBlocks } from './core/blocks.js';
import type { ArrayOf, Dtype, Float8Dtype, FloatDtype, IntDtype } from './core/dtypes.js';
import { refuse } from './core/errors.js';
import type { NestedNumbers } from './core/nested.js';
import { checkTensor, Tensor, type TensorFromOptions, tensorFrom } from './core/tensor.js';
import { planAdd } from './ops/add.js';
import { planArgmax } from './ops/argmax.js';
import { type CausalConvOptions, planCausalConv } from './ops/causal-conv.js';
import { checkFloat, isPlan, type StoredCacheDtype, type StoredDtype } from './ops/checks.js';
import { planEmbedding } from './ops/embedding.js';
import { type ExpertLinearOptions, planExpertLinear } from './ops/expert-linear.js';
import { type GatedDeltaGates, type GatedDeltaOptions, planGatedDelta } from './ops/gated-delta.js';
import { type GeluOptions, planGeglu, planGelu } from './ops/gelu.js';
import { planLayerNorm } from './ops/layer-norm.js';
import { type LinearOptions, planLinear } from './ops/linear.js';
import type { OpPlan } from './ops/op-plan.js';
import { planRearrange } from './ops/rearrange.js';
import { planRmsNorm } from './ops/rms-norm.js';
import { checkRope, checkRopeParts, type RopeLayout, type RopePartOptions } from './ops/rope/call.js';
import { type PlanRopeOptions, type Positions, planRope, type RopePlan, SPEC_NAMES } from './ops/rope/plan.js';
import { planRoute, type RouteOptions } from './ops/route.js';
import { type Runner, withFresh } from './ops/runner.js';
import { planScale, type ScaleOptions } from './ops/scale.js';
import { planSelfAttention, type SelfAttentionOptions } from './ops/self-attention.js';
import { planSsmScan, type SsmScanOptions, type SsmScanSteps } from './ops/ssm-scan.js';
import { planSwiglu, type SwigluOptions } from './ops/swiglu.js';
import { planXielu, type XieluOptions } from './ops/xielu.js';
import { BACKEND_NAMES, openBackend } from './registry.js';

/** Options of {@link ropewalk}. */
export interface RopewalkOptions extends BackendOptions {
  /**
   * The name of a backend, or an open backend of this package or another. Default: `auto`, which opens the fastest that
   * works here; `capabilities()` says which it was.
   */
  readonly backend?: 'auto' | 'cpu' | 'webgpu' | 'reference' | Backend;
}

/** A `Float16Array`, on runtimes that have it. */
export type Float16ArrayLike = ArrayBufferView & { readonly [Symbol.toStringTag]: 'Float16Array' };

/** The output of an operator. Default: a fresh dense tensor. */
export interface OutOption<D extends Dtype> {
  /** The tensor to write to, with any strides. It may be the input itself where the operator says so. */
  readonly out?: Tensor<D>;
}

/** Options of a RoPE call by positions, which computes its own table. */
export type RopeOptions<D extends FloatDtype> = Omit<
  PlanRopeOptions,
  'positions' | 'headDim' | 'seqLen' | 'direction'
> &
  RopeRunOptions<D>;

/** Options of a RoPE call by a plan. */
export interface RopeRunOptions<D extends FloatDtype> extends OutOption<D> {
  /** The order of dimensions. Default: bsnh (batch, token, head, dim). */
  readonly layout?: RopeLayout;
}

const OUT: OptionNames<OutOption<Dtype>> = { out: true };
const RUN_NAMES: OptionNames<RopeRunOptions<FloatDtype>> = { ...OUT, layout: true };
/** A model's RoPE can be passed unchanged, with its headDim. */
const ROPE_NAMES: OptionNames<RopeOptions<FloatDtype>> = {
  ...SPEC_NAMES,
  ...RUN_NAMES,
  recipe: true,
  tableDtype: true,
};

/** The dtypes that the class of an array does not determine. */
type SaidDtype = 'f16' | 'bf16' | 'u16' | Float8Dtype;
type NaturalDtype = Exclude<Dtype, SaidDtype>;
/** The dtype that the class of a typed array determines. */
type NaturalDtypeOf<A extends ArrayOf[NaturalDtype]> = {
  [D in NaturalDtype]: A extends ArrayOf[D] ? D : never;
}[NaturalDtype];

const NO_BACKEND =
  'It has run, dispose and the other methods of Backend: openCpu() makes one, and ropewalk() opens one by name.';

/**
 * The operators on one backend. Each checks its arguments, runs, and returns a tensor, which `await y.read()` reads.
 *
 * @example
 * const rw = await ropewalk();
 * const y = rw.rope(rw.tensor(x, { shape: [tokens, heads, 128] }), 0, { pairing: 'half', base: 10000 });
 */
export class Ropewalk implements Runner {
  /** The backend's name. */
  readonly name: string;
  readonly #backend: Backend;

  /** @param backend - an open backend; {@link ropewalk} opens one */
  constructor(backend: Backend) {
    const where = 'ropewalk: backend';
    if (!reading(where, () => typeof backend?.run === 'function' && typeof backend.dispose === 'function'))
      refuse('RANGE', where, 'an open backend', backend, backend instanceof Promise ? 'Await it first.' : NO_BACKEND);
    this.#backend = backend;
    this.name = backend.name;
  }

  /** Says what this backend computes with, and why it does not use something faster. */
  capabilities(): Capabilities {
    return this.#backend.capabilities();
  }

  /** Frees the backend's memory and threads; its tensors are unusable afterwards. */
  dispose(): void {
    this.#backend.dispose();
  }

  /** Makes a dense tensor of zeros. See {@link Runner}. */
  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    return this.#backend.allocate(dtype, shape);
  }

  /** Says why a plan cannot run here. See {@link Runner}. */
  whyNot(plan: OpPlan): string | undefined {
    return this.#backend.whyNot(plan);
  }

  /** Runs a plan made by one of the `plan…` functions or a dialect. See {@link Runner}. */
  run(plan: OpPlan): void {
    this.#backend.run(plan);
  }

  /** Waits until everything queued is done and outputs in host memory are written. See {@link Runner}. */
  finish(): Promise<void> {
    return this.#backend.finish();
  }

  /**
   * Lays a tensor over a typed array, sharing its memory; or copies nested arrays of numbers.
   *
   * @param data - the elements: Float64Array → f64, Float32Array → f32, Float16Array → f16, integers by their width;
   *   a Uint16Array needs `dtype` f16, bf16 or u16, a Uint8Array of 8-bit floats f8_e4m3 or f8_e5m2. Nested arrays of
   *   numbers give the shape, and are f32 by default
   * @param options - shape, strides and offset, in elements
   * @throws {RopewalkError} DTYPE, SHAPE or RANGE, naming the option
   * @example rw.tensor([[1, 2], [3, 4]]) // f32, [2, 2]
   */
  tensor<D extends SaidDtype>(data: ArrayOf[D], options: TensorFromOptions<D> & { readonly dtype: D }): Tensor<D>;
  tensor(data: Float16ArrayLike, options?: TensorFromOptions<'f16'>): Tensor<'f16'>;
  tensor<A extends ArrayOf[NaturalDtype]>(
    data: A,
    options?: TensorFromOptions<NaturalDtypeOf<A>>,
  ): Tensor<NaturalDtypeOf<A>>;
  tensor<D extends Dtype = 'f32'>(data: NestedNumbers, options?: TensorFromOptions<D>): Tensor<D>;
  tensor(data: ArrayBufferView | NestedNumbers, options: TensorFromOptions = {}): Tensor {
    return tensorFrom(data, options);
  }

  /**
   * Copies elements into the backend's memory, so that its operators need not copy them at each call.
   *
   * @param data - as for {@link tensor}; or a tensor in host memory, whose layout becomes dense
   * @param options - shape, strides and offset of the copied elements, in elements
   * @returns a dense tensor that the caller owns: `dispose()` it
   * @throws {RopewalkError} as {@link tensor}; DEVICE when it does not fit
   */
  upload<D extends SaidDtype>(data: ArrayOf[D], options: TensorFromOptions<D> & { readonly dtype: D }): Tensor<D>;
  upload(data: Float16ArrayLike, options?: TensorFromOptions<'f16'>): Tensor<'f16'>;
  upload<A extends ArrayOf[NaturalDtype]>(
    data: A,
    options?: TensorFromOptions<NaturalDtypeOf<A>>,
  ): Tensor<NaturalDtypeOf<A>>;
  upload<D extends Dtype = 'f32'>(data: NestedNumbers, options?: TensorFromOptions<D>): Tensor<D>;
  upload<D extends Dtype>(data: Tensor<D>): Tensor<D>;
  upload(data: ArrayBufferView | NestedNumbers | Tensor, options: TensorFromOptions = {}): Tensor {
    return this.#backend.upload(Tensor.isTensor(data) ? data : tensorFrom(data, options));
  }

  /**
   * Copies quantised weights, as a GGUF file stores them, into the backend's memory.
   *
   * @param format - one that `capabilities().blockFormats` lists, or the operators refuse it: q8_0, q4_K, …
   * @param bytes - the tensor's bytes: whole blocks ({@link BLOCK_FORMATS} has the sizes)
   * @param shape - `[n, k]`, or `[experts, n, k]`; GGUF lists it backwards
   * @returns a weight for {@link linear} and {@link embedding}; `dispose()` it
   * @throws {RopewalkError} UNSUPPORTED, SHAPE or DEVICE
   */
  uploadBlocks(format: BlockFormat, bytes: Uint8Array, shape: readonly number[]): BlockTensor {
    const checked = blocksFrom(format, bytes, shape); // throws before memory is taken
    return blocksFrom(format, this.upload(checked.bytes), checked.shape);
  }

  /**
   * Checks a RoPE and builds its table: once for all layers, and for q and k alike.
   *
   * @param options - the model's RoPE and the positions; `pairing` and `base` have no default
   * @returns a frozen plan for {@link rope}
   * @throws {RopewalkError} RANGE, SHAPE, DTYPE or UNSUPPORTED, naming the option
   */
  planRope(options: PlanRopeOptions): RopePlan {
    return planRope(options);
  }

  /**
   * Rotates heads by a plan from {@link planRope}.
   *
   * @param x - `[batch, seq, head, head_dim]` or `[seq, head, head_dim]`, any float dtype, any strides; only read
   * @param plan - from {@link planRope}
   * @param options - `out`, `layout`
   */
  rope<D extends FloatDtype>(x: Tensor<D>, plan: RopePlan, options?: RopeRunOptions<NoInfer<D>>): Tensor<D>;
  /**
   * Rotates heads by their positions.
   *
   * @param x - `[batch, seq, head, head_dim]` or `[seq, head, head_dim]`, any float dtype, any strides; only read
   * @param positions - integers `[seq]` or `[batch, seq]`, with an axis in front for M-RoPE; or a scalar, the first
   *   token's position
   * @param options - pairing and base at least; `out` may be `x` (in place)
   * @returns `out`, or a fresh dense tensor of x's shape and dtype
   * @throws {RopewalkError} naming the argument; nothing is written then
   */
  rope<D extends FloatDtype>(x: Tensor<D>, positions: Positions, options: RopeOptions<NoInfer<D>>): Tensor<D>;
  rope<D extends FloatDtype>(x: Tensor<D>, how: Positions | RopePlan, options: RopeRunOptions<D> = {}): Tensor<D> {
    return this.#rotate(x, how, options, 'forward');
  }

  /**
   * Multiplies by the transpose of {@link rope}'s rotation: turns gradients of y into gradients of x.
   *
   * @param dy - as `x` of {@link rope}
   * @param positions - those of the forward call
   * @param options - those of the forward call
   */
  ropeBackward<D extends FloatDtype>(dy: Tensor<D>, positions: Positions, options: RopeOptions<NoInfer<D>>): Tensor<D> {
    return this.#rotate(dy, positions, options, 'backward');
  }

  /**
   * Rotates several tensors in one pass over the tokens, q and k for example. Each may be normalised first, as in
   * models with q and k norms, and each has its own output: k can go directly into the rows of a KV cache, or the slots
   * of a paged one, in the cache's dtype; v goes into its own in the same call, with `rotate: false`.
   *
   * @param plan - from {@link planRope}
   * @param parts - `{ x, out, rows?, slots?, rotate?, norm?, scale? }` each
   * @param layout - the order of dimensions of all parts
   * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, naming the part; nothing is written then
   * @example rw.ropeParts(plan, [{ x: q, out: q }, { x: k, out: kCache, rows: past }]);
   */
  ropeParts(plan: RopePlan, parts: readonly RopePartOptions[], layout: RopeLayout = 'bsnh'): void {
    this.run(checkRopeParts(plan, parts, layout));
  }

  #rotate<D extends FloatDtype>(
    x: Tensor<D>,
    how: Positions | RopePlan,
    options: RopeRunOptions<D>,
    direction: 'forward' | 'backward',
  ): Tensor<D> {
    checkFloat(x, 'rope: x');
    if (isPlan(how)) {
      const { out: given, layout } = readOptions(options, 'rope: options', RUN_NAMES);
      return this.#into(given, x.dtype, x.shape, (out) => checkRope(how as RopePlan, x, out, layout));
    }
    const { out: given, layout, ...spec } = readOptions(options as RopeOptions<D>, 'rope: options', ROPE_NAMES);
    const plan = planRope({
      tableDtype: x.dtype === 'f64' ? 'f64' : 'f32',
      headDim: x.shape.at(-1) ?? 0,
      ...spec,
      positions: how as Positions,
      direction,
      seqLen: x.shape.at(layout === 'bnsh' ? -2 : -3) ?? 0,
    });
    return this.#into(given, x.dtype, x.shape, (out) => checkRope(plan, x, out, layout));
  }

  /**
   * Adds element by element.
   *
   * @param a - any shape, any float dtype
   * @param b - same shape and dtype; there is no broadcasting
   * @param options - `out` may be `a` or `b`
   */
  add<D extends FloatDtype>(a: Tensor<D>, b: Tensor<NoInfer<D>>, options: OutOption<NoInfer<D>> = {}): Tensor<D> {
    checkTensor(a, 'add: a');
    const { out: given } = readOptions(options, 'add: options', OUT);
    return this.#into(given, a.dtype, a.shape, (out) => planAdd(a, b, out));
  }

  /**
   * Finds the largest element along the last dimension: the first of equal ones; the first NaN, if there is one.
   *
   * @param values - `[…, n]`, any float dtype, n >= 1
   * @param options - `index` (i64 or i32) and `value` to write to, `[…, 1]`
   * @returns index (i64 by default) and value, `[…, 1]`
   */
  argmax<D extends FloatDtype>(
    values: Tensor<D>,
    options: { readonly index?: Tensor<'i64' | 'i32'>; readonly value?: Tensor<D> } = {},
  ): { index: Tensor<'i64' | 'i32'>; value: Tensor<D> } {
    checkTensor(values, 'argmax: vals');
    const names = { index: true, value: true } as const;
    const { index: givenIndex, value: givenValue } = readOptions(options, 'argmax: options', names);
    const shape = values.shape.length === 0 ? [] : values.shape.with(-1, 1);
    const write = (index: Tensor<'i64' | 'i32'>): { index: Tensor<'i64' | 'i32'>; value: Tensor<D> } => ({
      index,
      value: this.#into(givenValue, values.dtype, shape, (value) => planArgmax(values, index, value)),
    });
    return givenIndex === undefined ? withFresh(this.#backend, 'i64', shape, write) : write(givenIndex);
  }

  /**
   * Copies rows of a table, bit for bit.
   *
   * @param index - `[n]`, integers in [0, rows); an index outside is an error
   * @param weight - `[rows, width]`, any dtype
   * @param options - `out` `[n, width]`
   */
  embedding<D extends Dtype>(index: Tensor<IntDtype>, weight: Tensor<D>, options?: OutOption<NoInfer<D>>): Tensor<D>;
  /**
   * Copies rows of a table, converted to f32 exactly. {@link linear} takes the same weight, for models whose head is
   * tied to the table.
   *
   * @param index - `[n]`, integers in [0, rows); an index outside is an error
   * @param weight - `[rows, width]`, f16 or bf16; or blocks from {@link uploadBlocks}
   * @param options - `out` `[n, width]`, f32; optional for blocks
   */
  embedding(
    index: Tensor<IntDtype>,
    weight: Tensor<StoredDtype<'f32'>> | BlockTensor,
    options: Required<OutOption<'f32'>>,
  ): Tensor<'f32'>;
  embedding(index: Tensor<IntDtype>, weight: BlockTensor, options?: OutOption<'f32'>): Tensor<'f32'>;
  embedding(index: Tensor<IntDtype>, weight: Tensor | BlockTensor, options: OutOption<Dtype> = {}): Tensor {
    checkTensor(index, 'embedding: index');
    checkWeight(weight, 'embedding: weight');
    const dtype = isBlocks(weight) ? 'f32' : weight.dtype;
    const { out: given } = readOptions(options, 'embedding: options', OUT);
    return this.#into(given, dtype, [index.size, weight.shape.at(-1) ?? 0], (out) => planEmbedding(index, weight, out));
  }

  /**
   * Multiplies by a weight matrix: `y = x·Wᵀ + bias`.
   *
   * @param x - `[…, k]`, any float dtype
   * @param weight - `[n, k]`, row-major as torch and GGUF have it, in x's dtype, or f16 or bf16 where x is f32; or
   *   blocks from {@link uploadBlocks}
   * @param options - `bias` `[n]`, in x's dtype, or f16 or bf16 where x is f32; `out` `[…, n]`; `activations: 'q8'`
   *   rounds x to 8 bits beside blocks, as llama.cpp does: faster, on cpu and the reference
   */
  linear<D extends FloatDtype>(
    x: Tensor<D>,
    weight: Tensor<NoInfer<StoredDtype<D>>> | BlockTensor,
    options: OutOption<NoInfer<D>> & LinearOptions & { readonly bias?: Tensor<NoInfer<StoredDtype<D>>> } = {},
  ): Tensor<D> {
    checkTensor(x, 'linear: x');
    checkWeight(weight, 'linear: weight');
    const shape = x.shape.length === 0 ? [] : x.shape.with(-1, weight.shape[0] ?? 0);
    const { out: given, ...how } = readOptions(options, 'linear: options');
    return this.#into(given, x.dtype, shape, (out) => planLinear(x, weight, out, how));
  }

  /**
   * Normalises rows by their root mean square: `y = w · x / √(mean(x²) + eps)`.
   *
   * @param x - `[…, d]`, any float dtype
   * @param weight - `[d]`, in x's dtype, or f16 or bf16 where x is f32
   * @param options - `eps` has no default (models use 1e-5 and 1e-6); `out` may be `x`
   */
  rmsNorm<D extends FloatDtype>(
    x: Tensor<D>,
    weight: Tensor<NoInfer<StoredDtype<D>>>,
    options: OutOption<NoInfer<D>> & { readonly eps: number },
  ): Tensor<D> {
    checkTensor(x, 'rms_norm: x');
    const { out: given, eps } = readOptions(options, 'rms_norm: options', { ...OUT, eps: true });
    return this.#into(given, x.dtype, x.shape, (out) => planRmsNorm(x, weight, out, { eps }));
  }

  /**
   * Normalises rows by their mean and variance: `y = w · (x − mean(x)) / √(var(x) + eps) + bias`.
   *
   * @param x - `[…, d]`, any float dtype
   * @param weight - `[d]`, in x's dtype, or f16 or bf16 where x is f32
   * @param options - `eps` has no default; `bias` as weight; `out` may be `x`
   */
  layerNorm<D extends FloatDtype>(
    x: Tensor<D>,
    weight: Tensor<NoInfer<StoredDtype<D>>>,
    options: OutOption<NoInfer<D>> & { readonly eps: number; readonly bias?: Tensor<NoInfer<StoredDtype<D>>> },
  ): Tensor<D> {
    checkTensor(x, 'layer_norm: x');
    const { out: given, eps, bias } = readOptions(options, 'layer_norm: options', { ...OUT, eps: true, bias: true });
    return this.#into(given, x.dtype, x.shape, (out) => planLayerNorm(x, weight, out, { bias, eps }));
  }

  /**
   * Attends: `softmax(q·kᵀ·scale)·v` for each head, causally, with grouped KV heads.
   *
   * @param q - `[seq, num_heads, d]`, or with a batch in front of all four
   * @param k - `[total, num_kv_heads, d]`; the last `seq` keys belong to the queries, those before are the past; in q's
   *   dtype, or f16 or bf16 where q is f32; or in i8, f8_e4m3 or f8_e5m2 with `kScale` and `vScale`; paged ones in blocks
   * @param v - `[total, num_kv_heads, dv]`, the dtype of k
   * @param options - scale (default 1/√d), causal, window, softcap, sinks, kScale, vScale, paged; `out` `[seq, num_heads,
   *   dv]`
   */
  selfAttention<D extends FloatDtype>(
    q: Tensor<D>,
    k: Tensor<NoInfer<StoredCacheDtype<D>>>,
    v: Tensor<NoInfer<StoredCacheDtype<D>>>,
    options: OutOption<NoInfer<D>> & SelfAttentionOptions = {},
  ): Tensor<D> {
    checkTensor(q, 'self_attention: q');
    checkTensor(v, 'self_attention: v');
    const shape = q.shape.length === 0 ? [] : q.shape.with(-1, v.shape.at(-1) ?? 0);
    const { out: given, ...how } = readOptions(options, 'self_attention: options');
    return this.#into(given, q.dtype, shape, (out) => planSelfAttention(q, k, v, out, how));
  }

  /**
   * Convolves each channel over the last tokens: `y[t] = act(bias + Σ weight[·, j] · u[t − width + 1 + j]) · after[t]`
   * with `u = before · x`.
   *
   * @param x - `[tokens, channels]`, any float dtype
   * @param weight - `[channels, width]`, in x's dtype, or f16 or bf16 where x is f32
   * @param state - the last rows of u, `[width − 1, channels]`, dense, f32, or f64 where x is f64; read and written
   * @param options - {@link CausalConvOptions}, and out
   */
  causalConv<D extends FloatDtype>(
    x: Tensor<D>,
    weight: Tensor<NoInfer<StoredDtype<D>>>,
    state: Tensor<'f32' | 'f64'>,
    options: OutOption<NoInfer<D>> & CausalConvOptions = {},
  ): Tensor<D> {
    checkTensor(x, 'causal_conv: x');
    const { out: given, ...how } = readOptions(options, 'causal_conv: options');
    return this.#into(given, x.dtype, x.shape, (out) => planCausalConv(x, weight, state, out, how));
  }

  /**
   * Runs the gated delta rule for each head and token: `S ← γ·S; S ← S + k ⊗ (σ(beta) · (v − Sᵀk)); y = scale · Sᵀq`.
   *
   * @param q - `[tokens, keyHeads, d]`, any float dtype; divided, as is k, by the root of its sum of squares
   * @param k - like q
   * @param v - `[tokens, heads, dv]`, same dtype
   * @param gates - see {@link GatedDeltaGates}: γ = exp(rate · softplus(decay + bias))
   * @param state - S, `[heads, d, dv]`, dense, f32, or f64 where q is f64; read and written
   * @param options - {@link GatedDeltaOptions}, and out, like v
   */
  gatedDelta<D extends FloatDtype>(
    q: Tensor<D>,
    k: Tensor<NoInfer<D>>,
    v: Tensor<NoInfer<D>>,
    gates: GatedDeltaGates,
    state: Tensor<'f32' | 'f64'>,
    options: OutOption<NoInfer<D>> & GatedDeltaOptions,
  ): Tensor<D> {
    checkTensor(v, 'gated_delta: v');
    const { out: given, ...how } = readOptions(options, 'gated_delta: options');
    return this.#into(given, v.dtype as D, v.shape, (out) => planGatedDelta(q, k, v, gates, state, out, how));
  }

  /**
   * Runs the selective scan of Mamba-2 for each head and token: `S ← exp(rate · Δ)·S + b ⊗ (Δ·x); y = Sᵀc + skip·x`.
   *
   * @param x - `[tokens, heads, dv]`, any float dtype
   * @param b - `[tokens, groups, d]`, same dtype; heads is a multiple of groups
   * @param c - same shape and dtype as b
   * @param steps - see {@link SsmScanSteps}: Δ = softplus(dt + bias), within the limits
   * @param state - `[heads, d, dv]`, dense, f32, or f64 where x is f64: S, which is read and written
   * @param options - {@link SsmScanOptions}, and out, like x
   */
  ssmScan<D extends FloatDtype>(
    x: Tensor<D>,
    b: Tensor<NoInfer<D>>,
    c: Tensor<NoInfer<D>>,
    steps: SsmScanSteps,
    state: Tensor<'f32' | 'f64'>,
    options: OutOption<NoInfer<D>> & SsmScanOptions = {},
  ): Tensor<D> {
    checkTensor(x, 'ssm_scan: x');
    const { out: given, ...how } = readOptions(options, 'ssm_scan: options');
    return this.#into(given, x.dtype, x.shape, (out) => planSsmScan(x, b, c, steps, state, out, how));
  }

  /**
   * Gates: `y = up · gate / (1 + exp(−gate))`; with options the clamped form of gpt-oss.
   *
   * @param gate - any shape, any float dtype; the gate comes first
   * @param up - same shape and dtype
   * @param options - limit, alpha, offset; `out` may be `gate` or `up`
   */
  swiglu<D extends FloatDtype>(
    gate: Tensor<D>,
    up: Tensor<NoInfer<D>>,
    options: OutOption<NoInfer<D>> & SwigluOptions = {},
  ): Tensor<D> {
    checkTensor(gate, 'swiglu: gate');
    const { out: given, ...how } = readOptions(options, 'swiglu: options');
    return this.#into(given, gate.dtype, gate.shape, (out) => planSwiglu(gate, up, out, how));
  }

  /**
   * Computes the Gaussian error linear unit: `y = x · Φ(x)`.
   *
   * @param x - any shape, any float dtype
   * @param options - `approximate`: `none` (erf, the default) or `tanh`; `out` may be `x`
   */
  gelu<D extends FloatDtype>(x: Tensor<D>, options: OutOption<NoInfer<D>> & GeluOptions = {}): Tensor<D> {
    checkTensor(x, 'gelu: x');
    const { out: given, ...how } = readOptions(options, 'gelu: options');
    return this.#into(given, x.dtype, x.shape, (out) => planGelu(x, out, how));
  }

  /**
   * Computes xIELU: `y = positive · max(x, 0)² + negative · (e^n − 1 − n) + beta · x` with `n = min(x, 0)`.
   *
   * @param x - any shape, any float dtype
   * @param options - {@link XieluOptions}; `out` may be `x`
   */
  xielu<D extends FloatDtype>(x: Tensor<D>, options: OutOption<NoInfer<D>> & XieluOptions = {}): Tensor<D> {
    checkTensor(x, 'xielu: x');
    const { out: given, ...how } = readOptions(options, 'xielu: options');
    return this.#into(given, x.dtype, x.shape, (out) => planXielu(x, out, how));
  }

  /**
   * Gates by GELU: `y = up · gelu(gate)`.
   *
   * @param gate - any shape, any float dtype; the gate comes first
   * @param up - same shape and dtype
   * @param options - `approximate` as in {@link gelu}; `out` may be `gate` or `up`
   */
  geglu<D extends FloatDtype>(
    gate: Tensor<D>,
    up: Tensor<NoInfer<D>>,
    options: OutOption<NoInfer<D>> & GeluOptions = {},
  ): Tensor<D> {
    checkTensor(gate, 'geglu: gate');
    const { out: given, ...how } = readOptions(options, 'geglu: options');
    return this.#into(given, gate.dtype, gate.shape, (out) => planGeglu(gate, up, out, how));
  }

  /**
   * Multiplies by a number, or each row by its own: `y = x · factor`; with a soft cap `softcap · tanh(y / softcap)`.
   *
   * @param x - any shape, any float dtype
   * @param factor - a number; or a tensor of x's dtype with its dimensions but the last
   * @param options - `softcap`; `out` may be `x`
   */
  scale<D extends FloatDtype>(
    x: Tensor<D>,
    factor: number | Tensor<NoInfer<D>>,
    options: OutOption<NoInfer<D>> & ScaleOptions = {},
  ): Tensor<D> {
    checkTensor(x, 'scale: x');
    const { out: given, ...how } = readOptions(options, 'scale: options');
    return this.#into(given, x.dtype, x.shape, (out) => planScale(x, factor, out, how));
  }

  /**
   * Chooses each token's experts by a router's logits.
   *
   * @param logits - `[tokens, experts]`, any float dtype
   * @param options - `chosen`: the number of experts of a token; `gate`, `bias`, `groups`, `normalize`, `scale`; `indices` (i32) and
   *   `weights` to write to, `[tokens, chosen]`
   * @returns the experts, the best first, and their weights: what {@link expertLinear} takes
   */
  route<D extends FloatDtype>(
    logits: Tensor<D>,
    options: RouteOptions & {
      readonly chosen: number;
      readonly indices?: Tensor<'i32'>;
      readonly weights?: Tensor<NoInfer<D>>;
    },
  ): { indices: Tensor<'i32'>; weights: Tensor<D> } {
    checkTensor(logits, 'route: logits');
    const { chosen, indices: givenIndices, weights: givenWeights, ...how } = readOptions(options, 'route: options');
    if (!Number.isSafeInteger(chosen) || chosen < 1) refuse('RANGE', 'route: chosen', 'an integer >= 1', chosen);
    const shape = [logits.shape[0] ?? 0, chosen];
    const write = (indices: Tensor<'i32'>): { indices: Tensor<'i32'>; weights: Tensor<D> } => ({
      indices,
      weights: this.#into(givenWeights, logits.dtype, shape, (weights) => planRoute(logits, indices, weights, how)),
    });
    return givenIndices === undefined ? withFresh(this.#backend, 'i32', shape, write) : write(givenIndices);
  }

  /**
   * Multiplies each token by the matrices of its experts; with `weights` the products of a token are added up.
   *
   * @param x - `[tokens, k]`, or `[tokens, chosen, k]` with a row for each expert, any float dtype
   * @param weight - `[experts, n, k]`, in x's dtype, or f16 or bf16 where x is f32; or blocks
   * @param indices - `[tokens, chosen]`, i32, from {@link route}
   * @param options - `bias` `[experts, n]`; `weights` `[tokens, chosen]`; `out` `[tokens, chosen, n]`, or `[tokens, n]`
   *   beside weights; `activations` as in {@link linear}
   */
  expertLinear<D extends FloatDtype>(
    x: Tensor<D>,
    weight: Tensor<NoInfer<StoredDtype<D>>> | BlockTensor,
    indices: Tensor<'i32'>,
    options: OutOption<NoInfer<D>> & ExpertLinearOptions = {},
  ): Tensor<D> {
    checkTensor(x, 'expert_linear: x');
    checkWeight(weight, 'expert_linear: weight');
    checkTensor(indices, 'expert_linear: indices');
    const { out: given, ...how } = readOptions(options, 'expert_linear: options');
    const [tokens = 0, chosen = 0] = indices.shape;
    const n = weight.shape[1] ?? 0;
    const shape = how.weights === undefined ? [tokens, chosen, n] : [tokens, n];
    return this.#into(given, x.dtype, shape, (out) => planExpertLinear(x, weight, indices, out, how));
  }

  /**
   * Copies elements between layouts, bit for bit.
   *
   * @param x - any dtype, any strides
   * @param options - `out`, same shape and dtype, any strides
   */
  rearrange<D extends Dtype>(x: Tensor<D>, options?: OutOption<NoInfer<D>>): Tensor<D>;
  /**
   * Copies floats into another float dtype, each rounded once, to nearest even: for example values into their rows of
   * an f16 KV cache.
   *
   * @param x - any float dtype, any strides
   * @param options - `out`, same shape, any float dtype, any strides
   */
  rearrange<D extends FloatDtype>(x: Tensor<FloatDtype>, options: Required<OutOption<D>>): Tensor<D>;
  rearrange(x: Tensor, options: OutOption<Dtype> = {}): Tensor {
    checkTensor(x, 'rearrange: x');
    const { out: given } = readOptions(options, 'rearrange: options', OUT);
    return this.#into(given, x.dtype, x.shape, (out) => planRearrange(x, out));
  }

  /** Runs a plan into `given`, or by default into a fresh tensor. */
  #into<D extends Dtype>(
    given: Tensor<D> | undefined,
    dtype: D,
    shape: readonly number[],
    plan: (out: Tensor<D>) => OpPlan,
  ): Tensor<D> {
    const write = (out: Tensor<D>): Tensor<D> => {
      this.run(plan(out));
      return out;
    };
    return given === undefined ? withFresh(this.#backend, dtype, shape, write) : write(given);
  }
}

/**
 * Opens Ropewalk on a backend.
 *
 * @param options - the backend, by default `auto`, and its options
 * @returns the operators; `dispose()` gives the backend back too
 * @throws {RopewalkError} UNSUPPORTED for an unknown backend; DEVICE when it cannot open here, with the reason; RANGE
 *   or UNSUPPORTED for a bad option
 * @example const rw = await ropewalk({ backend: 'cpu', threads: 4 });
 * @example const rw = await ropewalk({ backend: await openOnnxruntime() }); // a backend of another package
 */
export async function ropewalk(options: RopewalkOptions = {}): Promise<Ropewalk> {
  const names = { ...BACKEND_NAMES, backend: true } as const;
  const { backend = 'auto', ...how } = readOptions(options, 'ropewalk: options', names);
  return new Ropewalk(typeof backend === 'string' ? await openBackend(backend, how) : backend);
}
