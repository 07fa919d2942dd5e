/**
 * Builds the operators other than RoPE, for plans and for exported models.
 *
 * @module
 */
import type { BlockFormat, FloatDtype } from 'ropewalk';
import { BLOCK_FORMATS, numberFromF16, tensorFrom } from 'ropewalk';
import type { RouteGroups, RoutePlan } from 'ropewalk/internal';
import { isHalf, LEAST_SUM } from 'ropewalk/internal';
import type { GraphBuilder } from './builder.js';

/** The operators of a graph: standard ones where they exist for the types, or primitives that every target has. */
export type GraphForm = 'standard' | 'primitives';

export type Wide = 'f32' | 'f64';

/** A graph under construction, and how it computes. */
export interface GraphContext {
  readonly b: GraphBuilder;
  readonly form: GraphForm;
  readonly compute: Wide;
}

/** True if the graph has ONNX's operators for whole layers, which take no f64. */
export function isStandard({ form, compute }: Omit<GraphContext, 'b'>): boolean {
  return form === 'standard' && compute === 'f32';
}

/** The largest finite value of a 16-bit float, and the smallest absolute value that rounds beyond it. */
const LIMITS: Readonly<Record<'f16' | 'bf16', readonly [largest: number, beyond: number]>> =
  /* @__PURE__ */ Object.freeze({ f16: [65504, 65520], bf16: [(2 - 2 ** -7) * 2 ** 127, (2 - 2 ** -8) * 2 ** 127] });

/** Appends one rounding to nearest even. */
export function narrowed(b: GraphBuilder, value: string, from: FloatDtype, to: FloatDtype): string {
  if (from === to) return value;
  if (from !== 'f64' || !isHalf(to)) return b.cast(value, to);
  // Runtimes convert f64 to 16 bits through f32, which rounds twice. That is wrong only where the f32 is half-way
  // between two 16-bit values. The other one of these two is 2·f32 − chosen, and the nearer of both to the f64 is
  // right.
  const number = (name: string, x: number): string => b.scalar(name, 'f64', x);
  const [largest, beyond] = LIMITS[to];
  // Where gets constants only, because ONNX Runtime's Where turns −0 into +0.
  const inside = b.add('Less', [b.add('Abs', [value]), number('beyond', beyond)]);
  const bound = b.add('Where', [inside, number('largest', largest), number('unbounded', Infinity)]);
  const finite = b.add('Min', [b.add('Max', [value, b.add('Neg', [bound])]), bound]);
  const single = b.cast(finite, 'f32');
  const chosen = b.cast(single, to);
  const chosenWide = b.cast(chosen, 'f64');
  const mirrored = b.add('Sub', [b.add('Mul', [b.cast(single, 'f64'), number('two', 2)]), chosenWide]);
  const other = b.cast(b.cast(mirrored, 'f32'), to);
  const distance = (x: string): string => b.add('Abs', [b.add('Sub', [finite, x])]);
  const exists = b.add('Equal', [b.cast(other, 'f64'), mirrored]);
  const nearer = b.add('Less', [distance(mirrored), distance(chosenWide)]);
  // Both are exact in f32, which every runtime can concatenate.
  const apart = (x: string): string => b.add('Unsqueeze', [x, b.integers('choice_axis', [0])]);
  const both = b.add('Concat', [apart(b.cast(chosen, 'f32')), apart(b.cast(other, 'f32'))], { axis: 0 });
  const which = apart(b.cast(b.add('And', [exists, nearer]), 'i64'));
  const picked = b.add('Squeeze', [
    b.add('GatherElements', [both, which], { axis: 0 }),
    b.integers('choice_axis', [0]),
  ]);
  return b.cast(picked, to);
}

/**
 * Appends RMS normalisation over the last dimension: `weight · x / √(mean(x²) + eps)`, x `[…, d]`, weight `[d]`. The
 * epsilon of RMSNormalization is an f32.
 */
export function rmsNorm(g: GraphContext, x: string, weight: string, eps: number): string {
  const { b, compute } = g;
  if (isStandard(g)) return b.add('RMSNormalization', [x, weight], { axis: -1, epsilon: { f: eps } });
  const mean = b.add('ReduceMean', [b.add('Mul', [x, x]), b.integers('last', [-1])], { keepdims: 1 });
  const root = b.add('Sqrt', [b.add('Add', [mean, b.scalar('eps', compute, eps)])]);
  return b.add('Mul', [b.add('Div', [x, root]), weight]);
}

/**
 * Appends layer normalisation over the last dimension: `weight · (x − mean(x)) / √(var(x) + eps) + bias`, x `[…, d]`,
 * weight and bias `[d]`. The epsilon of LayerNormalization is an f32.
 */
export function layerNorm(g: GraphContext, x: string, weight: string, bias: string | undefined, eps: number): string {
  const { b } = g;
  if (isStandard(g)) return b.add('LayerNormalization', [x, weight, bias], { axis: -1, epsilon: { f: eps } });
  const mean = b.add('ReduceMean', [x, b.integers('last', [-1])], { keepdims: 1 });
  // Without its mean, a row's mean square is its variance.
  const normed = rmsNorm({ b, form: 'primitives', compute: g.compute }, b.add('Sub', [x, mean]), weight, eps);
  return bias === undefined ? normed : b.add('Add', [normed, bias]);
}

/**
 * Appends `1 / (1 + exp(−x))` with the exponential of −|x|, which cannot overflow. ONNX Runtime's Sigmoid is a
 * polynomial with an error of 4e-7, which is too coarse for x below −4.
 */
export function sigmoid({ b, compute }: Omit<GraphContext, 'form'>, x: string): string {
  const one = b.scalar('one', compute, 1);
  const small = b.add('Exp', [b.add('Neg', [b.add('Abs', [x])])]);
  const negative = b.add('Less', [x, b.scalar('zero', compute, 0)]);
  return b.add('Div', [b.add('Where', [negative, small, one]), b.add('Add', [small, one])]);
}

interface Clamps {
  readonly limit: number | undefined;
  readonly alpha: number;
  readonly offset: number;
  readonly activation?: 'silu' | 'sigmoid' | 'relu';
}

/**
 * Appends SwiGLU: `(clip(up, ± limit) + offset) · g · sigmoid(alpha · g)` with `g = min(gate, limit)`; with the
 * activation sigmoid without the factor g, and with relu `up · max(gate, 0)`.
 */
export function swiglu(
  context: GraphContext,
  gate: string,
  up: string,
  { limit, alpha, offset, activation }: Clamps,
): string {
  const { b, compute } = context;
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  let [g, u] = [gate, up];
  if (limit !== undefined) {
    const largest = number('limit', limit);
    g = b.add('Min', [gate, largest]);
    u = b.add('Max', [b.add('Min', [up, largest]), number('least', -limit)]);
  }
  if (activation === 'relu') return b.add('Mul', [u, b.add('Max', [g, number('zero', 0)])]);
  const w = alpha === 1 ? g : b.add('Mul', [g, number('alpha', alpha)]);
  const share = sigmoid(context, w);
  if (offset !== 0) u = b.add('Add', [u, number('offset', offset)]);
  return b.add('Mul', [u, activation === 'sigmoid' ? share : b.add('Mul', [g, share])]);
}

/**
 * Appends GELU. In primitives, `none` is x/2 · (1 + Erf(x/√2)), as the standard defines Gelu; below −3 the sum has few
 * digits left. `tanh` is x · sigmoid(2z), which loses none.
 */
export function gelu(g: GraphContext, x: string, approximate: 'none' | 'tanh'): string {
  const { b, compute } = g;
  if (isStandard(g)) return b.add('Gelu', [x], { approximate });
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  if (approximate === 'none') {
    const erf = b.add('Erf', [b.add('Mul', [x, number('root', Math.SQRT1_2)])]);
    const half = b.add('Mul', [x, number('half', 0.5)]);
    return b.add('Mul', [half, b.add('Add', [erf, number('one', 1)])]);
  }
  const factor = 2 * Math.sqrt(2 / Math.PI);
  const cubic = b.add('Mul', [b.add('Mul', [x, x]), number('cubic', factor * 0.044715)]);
  const w = b.add('Mul', [x, b.add('Add', [cubic, number('factor', factor)])]);
  return b.add('Mul', [x, sigmoid(g, w)]);
}

/** Appends xIELU without a branch: each half of x is 0 where the other counts. */
export function xielu(
  { b, compute }: GraphContext,
  x: string,
  { positive, negative, beta }: { readonly positive: number; readonly negative: number; readonly beta: number },
): string {
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  const times = (value: string, name: string, factor: number): string => b.add('Mul', [value, number(name, factor)]);
  const zero = number('zero', 0);
  const [above, below] = [b.add('Max', [x, zero]), b.add('Min', [x, zero])];
  const power = b.add('Sub', [b.add('Sub', [b.add('Exp', [below]), number('one', 1)]), below]);
  const square = b.add('Mul', [times(above, 'positive', positive), above]);
  return b.add('Add', [b.add('Add', [square, times(power, 'negative', negative)]), times(x, 'beta', beta)]);
}

/**
 * Appends argmax over the last dimension, i64 `[…, 1]`; the first maximum wins. With `nan` first, the first NaN wins
 * over everything; with unspecified, the runtime's ArgMax decides.
 */
export function argmax({ b, compute }: GraphContext, values: string, nan: 'first' | 'unspecified'): string {
  const attributes = { axis: -1, keepdims: 1, select_last_index: 0 };
  if (nan === 'unspecified') return b.add('ArgMax', [values], attributes);
  const isNan = b.add('IsNaN', [values]);
  const lowest = b.scalar('lowest', compute, -Infinity);
  const largest = b.add('ArgMax', [b.add('Where', [isNan, lowest, values])], attributes);
  const flags = b.cast(isNan, 'f32');
  const firstNaN = b.add('ArgMax', [flags], attributes);
  const any = b.cast(b.add('GatherElements', [flags, firstNaN], { axis: -1 }), 'bool');
  return b.add('Where', [any, firstNaN, largest]);
}

/**
 * Appends attention.
 *
 * @param values - q, k, v: `[batch, seq, heads · d]` and so on if `standard`, else `[batch, seq, heads, d]`
 * @param mask - added to the scores, `[seq, total]`
 * @param sinks - scores without a value, `[heads]`; only if not `standard`
 * @param standard - builds Attention-23
 * @returns `[batch, seq, heads · dv]` if `standard`, else `[batch, seq, heads, dv]`
 */
export function attention(
  { b, compute }: GraphContext,
  [q, k, v]: readonly [string, string, string],
  mask: string | undefined,
  sinks: string | undefined,
  { batch, seq, heads, kvHeads, total }: Readonly<Record<'batch' | 'seq' | 'heads' | 'kvHeads' | 'total', number>>,
  { scale, softcap }: { readonly scale: number; readonly softcap: number | undefined },
  standard: boolean,
): string {
  const attributes = { q_num_heads: heads, kv_num_heads: kvHeads, scale: { f: scale } };
  if (standard) return b.add('Attention', [q, k, v, mask], attributes);
  const transpose = (value: string, perm: readonly number[]): string => b.add('Transpose', [value], { perm: perm });
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  const group = kvHeads === 0 ? 1 : heads / kvHeads;
  const kvHeadOf = Array.from({ length: heads }, (_, h) => Math.floor(h / group));
  const kvOf = group === 1 ? undefined : b.integers('kv_head_of', kvHeadOf);
  const spread = (value: string): string => (kvOf ? b.add('Gather', [value, kvOf], { axis: 1 }) : value);
  const qs = transpose(q, [0, 2, 1, 3]);
  const ks = spread(transpose(k, [0, 2, 3, 1]));
  const vs = spread(transpose(v, [0, 2, 1, 3]));
  const product = b.add('MatMul', [qs, ks]);
  // ONNX Runtime fuses a product with a single number into the MatMul, as an f32. In f64 the number is therefore a
  // vector with one entry per key.
  const perKey = (name: string, value: number): string =>
    b.constant(name, tensorFrom(new Float64Array(total).fill(value)));
  const scaled = (name: string, value: number): string =>
    b.add('Mul', [product, compute === 'f64' ? perKey(name, value) : number(name, value)]);
  const scores =
    softcap === undefined
      ? scaled('scale', scale)
      : b.add('Mul', [b.add('Tanh', [scaled('scale_over_cap', scale / softcap)]), number('cap', softcap)]);
  const masked = mask ? b.add('Add', [scores, mask]) : scores;
  const softmax = (of: string): string => b.add('Softmax', [of], { axis: -1 });
  const integers = (name: string, values: readonly number[]): string => b.integers(name, values);
  const withSinks = (): string => {
    const column = b.add('Reshape', [sinks!, integers('sink_shape', [1, heads, 1, 1])]);
    const spread = b.add('Expand', [column, integers('sink_column', [batch, heads, seq, 1])]);
    const all = softmax(b.add('Concat', [masked, spread], { axis: -1 }));
    return b.add('Slice', [all, ...([[0], [total], [-1]] as const).map((part) => integers('keys', part))]);
  };
  const weights = sinks ? withSinks() : softmax(masked);
  return transpose(b.add('MatMul', [weights, vs]), [0, 2, 1, 3]);
}

/** The experts of each token: their numbers, i64 `[tokens, used]`, and their weights. */
export interface Chosen {
  readonly indices: string;
  readonly weights: string;
}

/**
 * Appends the choice of experts. The number of tokens may be open.
 *
 * @param logits - `[tokens, experts]`
 * @param bias - added to the scores for the ranking only, `[experts]`
 */
export function route(
  g: GraphContext,
  logits: string,
  bias: string | undefined,
  { gate, jitter, groups, normalize, scale }: Pick<RoutePlan, 'gate' | 'jitter' | 'groups' | 'normalize' | 'scale'>,
  { experts, used }: { readonly experts: number; readonly used: number },
): Chosen {
  const { b, compute } = g;
  const number = (name: string, x: number): string => b.scalar(name, compute, x);
  const softmax = (of: string): string => b.add('Softmax', [of], { axis: -1 });
  const scores = gate === 'softmax' ? softmax(logits) : gate === 'sigmoid' ? sigmoid(g, logits) : logits;
  // Scores rise with the logits, but two scores may round to the same number where the logits differ. So the logits
  // rank, unless scores are added up.
  let ranks = bias || groups ? scores : logits;
  if (bias) ranks = b.add('Add', [ranks, bias]);
  if (groups) ranks = ofBestGroups(g, ranks, groups, experts);
  const indices = topK(b, ranks, used)[1];
  const found = b.add('GatherElements', [scores, indices], { axis: -1 });
  let weights = gate === 'softmax-of-chosen' ? softmax(found) : found;
  if (gate === 'sparsemixer') weights = sparsemixer(g, logits, found, jitter);
  if (normalize) {
    const sum = b.add('ReduceSum', [weights, b.integers('last', [-1])], { keepdims: 1 });
    weights = b.add('Div', [weights, b.add('Max', [sum, number('least_sum', LEAST_SUM)])]);
  }
  if (scale !== 1) weights = b.add('Mul', [weights, number('scale', scale)]);
  return { indices, weights };
}

/** Appends the weights of sparsemixer: the softmax of each chosen logit `[tokens, 2]` over those near it. */
function sparsemixer({ b, compute }: GraphContext, logits: string, chosen: string, jitter: number): string {
  const number = (name: string, x: number): string => b.scalar(name, compute, x);
  const all = b.add('Unsqueeze', [logits, b.integers('each', [1])]); // [tokens, 1, experts]
  const most = b.add('Unsqueeze', [chosen, b.integers('one', [2])]); // [tokens, 2, 1]
  const below = b.add('Sub', [most, all]); // [tokens, 2, experts]
  const reach = b.add('Mul', [b.add('Max', [b.add('Abs', [all]), most]), number('twice_jitter', 2 * jitter)]);
  const powers = b.add('Exp', [b.add('Neg', [b.add('Max', [below, number('zero', 0)])])]);
  const near = b.add('Where', [b.add('Less', [reach, below]), number('far', 0), powers]);
  const sums = b.add('ReduceSum', [near, b.integers('last', [-1])], { keepdims: 0 });
  // The first expert takes no part in the second's softmax. There it is above the second, so it has added 1.
  const first = b.constant('first', tensorFrom(compute === 'f64' ? Float64Array.of(0, 1) : Float32Array.of(0, 1)));
  return b.add('Div', [number('one_power', 1), b.add('Sub', [sums, first])]);
}

/** Appends the largest values along the last dimension and their places, i64. Of equal ones the first comes first. */
function topK(b: GraphBuilder, values: string, count: number): readonly [string, string] {
  const attributes = { axis: -1, largest: 1, sorted: 1 };
  return b.addMany('TopK', [values, b.integers('count', [count])], attributes, 2) as [string, string];
}

function ofBestGroups({ b, compute }: GraphContext, ranks: string, groups: RouteGroups, experts: number): string {
  const { count, used, best } = groups;
  const integers = (name: string, values: readonly number[]): string => b.integers(name, values);
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  const size = experts / count;
  const byGroup = b.add('Reshape', [ranks, integers('by_group', [0, count, size])]);
  const [scores] = topK(b, byGroup, Math.min(best, size));
  const sums = b.add('ReduceSum', [scores, integers('last', [-1])], { keepdims: 0 });
  const stay = b.add('Unsqueeze', [topK(b, sums, used)[1], integers('each', [2])]);
  // A group is kept if its number is among those in `stay`.
  const numbers = integers(
    'groups',
    Array.from({ length: count }, (_, group) => group),
  );
  const matches = b.cast(b.add('Equal', [stay, numbers]), compute);
  const kept = b.cast(b.add('ReduceSum', [matches, integers('any', [1])], { keepdims: 0 }), 'bool');
  const mask = b.add('Where', [kept, number('kept', 0), number('dropped', -Infinity)]);
  const masked = b.add('Add', [byGroup, b.add('Unsqueeze', [mask, integers('each', [2])])]);
  return b.add('Reshape', [masked, integers('by_expert', [0, experts])]);
}

const BYTES = 256;

export const GRAPH_FORMATS: readonly BlockFormat[] = ['q8_0', 'q4_0'];

/**
 * Appends the widening of a matrix in {@link GRAPH_FORMATS}, from u8 bytes of any shape. Both dtypes are exact.
 *
 * Before opset 26 ONNX has no operator that reads two bytes as an f16. So the high byte of an f16 chooses, from two
 * tables of 256 entries, its value and the step of its low byte. f32 holds both, and their sum, exactly.
 *
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_q8_0 and dequantize_row_q4_0
 */
export function dequantize(
  b: GraphBuilder,
  bytes: string,
  format: BlockFormat,
  [n, k]: readonly [n: number, k: number],
  to: 'f32' | 'f64',
): string {
  const unit = BLOCK_FORMATS[format].bytes;
  const blocks = k / BLOCK_FORMATS[format].weights;
  const byBlock = b.add('Reshape', [bytes, b.integers('by_block', [n, blocks, unit])], { allowzero: 1 });
  // Gather takes indices of i32 or i64 only.
  const indices = b.cast(byBlock, 'i32');
  const sizes = b.integers('block_parts', [1, 1, unit - 2]);
  const [low, high, quants] = b.addMany('Split', [indices, sizes], { axis: 2 }, 3) as [string, string, string];
  const table = (name: string, value: (byte: number) => number): string =>
    b.constant(name, tensorFrom(Float32Array.from({ length: BYTES }, (_, byte) => value(byte))));
  const look = (name: string, value: (byte: number) => number, index: string): string =>
    b.add('Gather', [table(name, value), index], { axis: 0 });
  const half = (name: string, at: number): string => look(name, (byte) => ((byte >> at) & 15) - 8, quants);
  const start = (byte: number): number => numberFromF16(byte << 8);
  const step = (byte: number): number => {
    const size = numberFromF16((byte << 8) | 1) - start(byte);
    // An infinite scale stays infinite. A NaN that only the low byte distinguishes from infinity becomes infinity.
    return Number.isNaN(size) ? 0 : size;
  };
  const scale = b.add('Add', [
    look('scale_high', start, high),
    b.add('Mul', [look('scale_step', step, high), b.cast(low, 'f32')]),
  ]);
  const weights =
    format === 'q8_0'
      ? look('signed', (byte) => (byte << 24) >> 24, quants)
      : b.add('Concat', [half('low_half', 0), half('high_half', 4)], { axis: 2 });
  const product = b.add('Mul', [scale, weights]);
  const matrix = b.add('Reshape', [product, b.integers('matrix', [n, k])], { allowzero: 1 });
  return to === 'f64' ? b.cast(matrix, 'f64') : matrix;
}
