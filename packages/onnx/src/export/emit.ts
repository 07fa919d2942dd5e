/**
 * Writes plans as ONNX graphs, with one emitter for each operator, in two forms.
 *
 * A graph sees dense tensors of the plan's shapes, and its caller packs and unpacks strides. Only rearrange has layouts
 * in its graph, because layouts are all that it is about. 16-bit floats are cast to f32 and back, so that results are
 * rounded once; ONNX's own operators would round in between.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import type { BlockTensor, FloatDtype, OpPlan } from 'ropewalk';
import { isBlocks, sizeBytes, Tensor, tensorFrom, zeros } from 'ropewalk';
import { checkPlan, refuse, unknownPlan, walk } from 'ropewalk/backend';
import type { OptionNames } from 'ropewalk/internal';
import {
  optionNames,
  ROUNDED,
  reading,
  readName,
  readOptions,
  roundsActivations,
  whyNotFloatCaches,
} from 'ropewalk/internal';
import { GraphBuilder } from './builder.js';
import {
  argmax,
  attention,
  dequantize,
  GRAPH_FORMATS,
  gelu,
  isStandard,
  layerNorm,
  narrowed,
  rmsNorm,
  route,
  sigmoid,
  swiglu,
  type Wide,
  xielu,
} from './fragments.js';
import { computeIn, type EmitOptions, type EmittedGraph, type NotEmitted, PlanGraph } from './plan-graph.js';
import { emitRope } from './rope.js';

const NAMES: OptionNames<EmitOptions> = /* @__PURE__ */ optionNames('form angles tables names nan places');

/**
 * Appends a plan to a graph.
 *
 * Inputs and outputs by operator: add a, b → out; swiglu and geglu gate, up → out; gelu x → out; scale x, factor → out;
 * rms_norm x, weight → out; layer_norm x, weight, bias → out; linear x, weight, bias → out; self_attention q, k, v,
 * sinks → out; route logits, bias → indices, weights; expert_linear x, weight, indices, bias, weights → out; argmax
 * values → index, value; embedding index, weight → out; rearrange x, initial → out; causal_conv x, weight, state, bias,
 * before, after → out, new_state; rope x → out and, as the form needs them, cos_cache, sin_cache, positions, weight, cache, rows. If a rope has several parts, the names of part p end in
 * `_p`. With `tables: 'inputs'` self_attention takes attn_mask after its tensors, if it masks.
 *
 * @param b - an empty graph
 * @param plan - a checked plan, of which only shapes, strides and dtypes are read
 * @param options - form and names
 * @returns inputs and outputs, or the reason why no graph can express the plan
 * @throws {RopewalkError} RANGE or UNSUPPORTED for something that is no graph, no plan or no form
 */
export function emitPlan(b: GraphBuilder, plan: OpPlan, options: EmitOptions): EmittedGraph | NotEmitted {
  if (!reading('graph', () => b instanceof GraphBuilder)) refuse('RANGE', 'graph', 'a GraphBuilder', b);
  checkPlan(plan);
  if (!Object.hasOwn(EMITTERS, plan.op)) unknownPlan(plan as never);
  const given = readOptions(options, 'graph: options', NAMES);
  readName(given.form, ['standard', 'primitives'], 'graph: form');
  const g = new PlanGraph(b, given, computeFor(plan));
  const emit = EMITTERS[plan.op] as (g: PlanGraph, plan: OpPlan) => string | undefined;
  const whyNot = whyNotEmitted(plan) ?? emit(g, plan);
  return whyNot === undefined ? { inputs: g.inputs, outputs: g.outputs } : { whyNot };
}

/** Returns the dtype in which a graph computes. The parts of a rope have their own. */
function computeFor(plan: OpPlan): Wide {
  if (plan.op === 'rope') return 'f32';
  return computeIn(('out' in plan ? plan.out : plan.op === 'route' ? plan.logits : plan.values).dtype);
}

function whyNotEmitted(plan: OpPlan): string | undefined {
  if ('weight' in plan && isBlocks(plan.weight) && !GRAPH_FORMATS.includes(plan.weight.format))
    return `there are graphs for weights in ${GRAPH_FORMATS.join(' and ')}, not yet in ${plan.weight.format}`;
  if (roundsActivations(plan)) return ROUNDED;
  const cache = whyNotFloatCaches(plan);
  return cache && `${cache}, for which there are no graphs yet`;
}

type Plan<Op> = Extract<OpPlan, { readonly op: Op }>;

/** The emitters append a plan to a graph, or return why no graph can express it. */
const EMITTERS: { readonly [Op in OpPlan['op']]: (g: PlanGraph, plan: Plan<Op>) => string | undefined } = {
  rope: emitRope,
  add: emitAdd,
  swiglu: emitSwiglu,
  gelu: emitGelu,
  geglu: emitGelu,
  xielu: emitXielu,
  scale: emitScale,
  rms_norm: emitNorm,
  layer_norm: emitNorm,
  linear: emitLinear,
  self_attention: emitAttention,
  argmax: emitArgmax,
  embedding: emitEmbedding,
  rearrange: emitRearrange,
  route: emitRoute,
  expert_linear: emitExpertLinear,
  causal_conv: emitCausalConv,
  gated_delta: () => TOKEN_BY_TOKEN,
  ssm_scan: () => TOKEN_BY_TOKEN,
};

function emitAdd(g: PlanGraph, { a, b, out }: Plan<'add'>): undefined {
  g.round(g.b.add('Add', [g.wide('a', a), g.wide('b', b)]), 'out', out);
}

function emitSwiglu(g: PlanGraph, plan: Plan<'swiglu'>): undefined {
  const { gate, up, out } = plan;
  const value = g.wide('gate', gate);
  g.round(swiglu(g, value, g.wide('up', up), plan), 'out', out);
}

function emitXielu(g: PlanGraph, plan: Plan<'xielu'>): undefined {
  g.round(xielu(g, g.wide('x', plan.x), plan), 'out', plan.out);
}

function emitGelu(g: PlanGraph, plan: Plan<'gelu' | 'geglu'>): undefined {
  const { approximate, out } = plan;
  const gated = plan.op === 'geglu';
  const x = gated ? g.wide('gate', plan.gate) : g.wide('x', plan.x);
  const up = gated ? g.wide('up', plan.up) : undefined;
  const y = gelu(g, x, approximate);
  g.round(up === undefined ? y : g.b.add('Mul', [up, y]), 'out', out);
}

function emitScale(g: PlanGraph, { x, factor, softcap, out }: Plan<'scale'>): undefined {
  const { b, compute } = g;
  const number = (name: string, value: number): string => b.scalar(name, compute, value);
  const value = g.wide('x', x);
  const by =
    typeof factor === 'number'
      ? number('factor', factor)
      : b.add('Unsqueeze', [g.wide('factor', factor), b.integers('last', [-1])]);
  let y = b.add('Mul', [value, by]);
  if (softcap !== undefined)
    y = b.add('Mul', [b.add('Tanh', [b.add('Div', [y, number('cap', softcap)])]), number('cap', softcap)]);
  g.round(y, 'out', out);
}

function emitNorm(g: PlanGraph, plan: Plan<'rms_norm' | 'layer_norm'>): undefined {
  const { x, weight, eps, out } = plan;
  const values = [g.wide('x', x), g.wide('weight', weight)] as const;
  const bias = plan.op === 'layer_norm' && plan.bias ? g.wide('bias', plan.bias) : undefined;
  const y = plan.op === 'layer_norm' ? layerNorm(g, ...values, bias, eps) : rmsNorm(g, ...values, eps);
  g.round(y, 'out', out);
}

function emitLinear(g: PlanGraph, { x, weight, bias, out }: Plan<'linear'>): undefined {
  const { b, compute } = g;
  const value = g.wide('x', x);
  const matrix = isBlocks(weight)
    ? dequantize(b, g.take('weight', weight.bytes), weight.format, weight.shape as [number, number], compute)
    : g.wide('weight', weight);
  const added = bias && g.wide('bias', bias);
  if (x.rank === 2 && g.form === 'standard') {
    g.round(b.add('Gemm', [value, matrix, added], { transB: 1 }), 'out', out);
    return;
  }
  const y = b.add('MatMul', [value, b.add('Transpose', [matrix], { perm: [1, 0] })]);
  g.round(added ? b.add('Add', [y, added]) : y, 'out', out);
}

/** The most bytes of a mask. It is a constant of the graph, and an ONNX file holds two gigabytes at most. */
const MAX_MASK_BYTES = 2 ** 30;

function emitAttention(g: PlanGraph, plan: Plan<'self_attention'>): string | undefined {
  const { q, out } = plan;
  const [k, v] = [plan.k, plan.v] as Tensor<FloatDtype>[] as [Tensor<FloatDtype>, Tensor<FloatDtype>]; // whyNotEmitted refuses 8 bits
  const [batch, seq, heads] = q.shape as [number, number, number];
  const [, total, kvHeads, dv] = v.shape as [number, number, number, number];
  if (plan.causal && seq * total * sizeBytes(g.compute) > MAX_MASK_BYTES)
    return `a mask of ${seq} × ${total} is too large for a graph, which takes 1 GiB`;
  const mask = plan.causal ? takeMask(g, maskOf(seq, total, plan.window, g.compute)) : undefined;
  // Attention-23 adds the mask before it caps, so that masked keys would count again. Its scale is an f32, which ONNX
  // Runtime takes only above 0. It has no sinks.
  const standard = isStandard(g) && !plan.sinks && plan.softcap === undefined && plan.scale > 0;
  // The standard operator takes heads side by side, and their number as an attribute.
  const folded = (name: string, tensor: Tensor<FloatDtype>): string => {
    const [b, s, h, width] = tensor.shape as [number, number, number, number];
    return standard && tensor.isContiguous()
      ? g.wide(name, tensor.view([b, s, h * width]))
      : fold(g, g.wide(name, tensor), standard, [b, s, h * width]);
  };
  const values = [folded('q', q), folded('k', k), folded('v', v)] as const;
  const sinks = plan.sinks && g.wide('sinks', plan.sinks);
  const y = attention(g, values, mask, sinks, { batch, seq, heads, kvHeads, total }, plan, standard);
  if (standard && out.isContiguous()) g.round(y, 'out', out.view([batch, seq, heads * dv]));
  else g.round(fold(g, y, standard, out.shape), 'out', out);
  return undefined;
}

function fold(g: PlanGraph, value: string, wanted: boolean, shape: readonly number[]): string {
  return wanted ? g.b.add('Reshape', [value, g.b.integers('shape', shape)], { allowzero: 1 }) : value;
}

function takeMask(g: PlanGraph, mask: Tensor): string {
  return g.options.tables === 'inputs' ? g.take('attn_mask', mask) : g.b.constant('attn_mask', mask);
}

/**
 * Makes the mask: 0 where query i sees key t, else −∞. Unlike the attribute is_causal it knows the length of the past.
 */
function maskOf(seq: number, total: number, window: number | undefined, compute: 'f32' | 'f64'): Tensor {
  const data = compute === 'f64' ? new Float64Array(seq * total) : new Float32Array(seq * total);
  for (let i = 0; i < seq; i++) {
    const position = total - seq + i;
    for (let t = 0; t < total; t++) {
      const seen = t <= position && (window === undefined || t > position - window);
      data[i * total + t] = seen ? 0 : -Infinity;
    }
  }
  return tensorFrom(data, { shape: [seq, total] });
}

function emitRoute(g: PlanGraph, plan: Plan<'route'>): undefined {
  const { logits, bias, indices, weights } = plan;
  const z = g.wide('logits', logits);
  const added = bias && g.wide('bias', bias);
  const sizes = { experts: logits.shape[1]!, used: indices.shape[1]! };
  const chosen = route(g, z, added, plan, sizes);
  g.give(g.b.cast(chosen.indices, 'i32'), 'indices', indices);
  g.round(chosen.weights, 'weights', weights);
}

/** Gathers the matrices of the chosen experts only. An index outside takes the nearest expert. */
function emitExpertLinear(g: PlanGraph, { x, weight, bias, indices, weights, out }: Plan<'expert_linear'>): undefined {
  const { b, compute } = g;
  const [tokens, chosen] = indices.shape as [number, number];
  const [experts, n, k] = weight.shape as [number, number, number];
  if (chosen === 0) {
    // ONNX Runtime's MatMul does not broadcast 1 to 0.
    g.round(b.constant('none', zeros(compute, out.shape)), 'out', out);
    return;
  }
  const integers = (name: string, values: readonly number[]): string => b.integers(name, values);
  const reshape = (value: string, shape: readonly number[]): string =>
    b.add('Reshape', [value, integers('shape', shape)], { allowzero: 1 });
  const value = reshape(g.wide('x', x), [tokens, x.rank === 3 ? chosen : 1, k, 1]);
  const table = isBlocks(weight) ? g.take('weight', weight.bytes) : g.take('weight', weight);
  const bounds = [0, Math.max(0, experts - 1)].map((id) =>
    b.constant('bound', tensorFrom(Int32Array.of(id), { shape: [] })),
  );
  const ids = b.add('Clip', [g.take('indices', indices), ...bounds]);
  const chosenOf = (values: string): string => b.add('Gather', [values, ids], { axis: 0 });
  const wide = (found: string, dtype: FloatDtype): string => (dtype === compute ? found : b.cast(found, compute));
  const blocks = (of: BlockTensor): string => {
    const found = chosenOf(reshape(table, [experts, of.bytes.size / Math.max(1, experts)]));
    return reshape(dequantize(b, found, of.format, [tokens * chosen * n, k], compute), [tokens, chosen, n, k]);
  };
  const matrices = isBlocks(weight) ? blocks(weight) : wide(chosenOf(table), weight.dtype);
  let y = reshape(b.add('MatMul', [matrices, value]), [tokens, chosen, n]);
  if (bias) y = b.add('Add', [y, wide(chosenOf(g.take('bias', bias)), bias.dtype)]);
  if (weights) {
    const factors = reshape(g.wide('weights', weights), [tokens, chosen, 1]);
    y = b.add('ReduceSum', [b.add('Mul', [y, factors]), integers('chosen', [1])], { keepdims: 0 });
  }
  g.round(y, 'out', out);
}

/** ONNX has LinearAttention from opset 27 on, which runtimes do not run yet. */
const TOKEN_BY_TOKEN = 'it goes token by token, for which there are no graphs yet';

/** Adds up the columns of the weight times shifted rows: Conv would need the transposes of all of them. */
function emitCausalConv(g: PlanGraph, plan: Plan<'causal_conv'>): undefined {
  const { b, compute } = g;
  const { x, weight, state, bias, before, after, silu, fresh, out } = plan;
  const [tokens, channels] = x.shape as [number, number];
  const width = weight.shape[1]!;
  const slice = (value: string, axis: number, from: number, to: number): string =>
    b.add('Slice', [value, ...[[from], [to], [axis]].map((one) => b.integers('range', one))]);
  let now = g.wide('x', x);
  const weights = g.wide('weight', weight);
  const past = fresh ? b.constant('zeros', zeros(compute, state.shape)) : g.wide('state', state);
  const shift = bias && g.wide('bias', bias);
  if (before) now = b.add('Mul', [now, g.wide('before', before)]);
  const rows = width === 1 ? now : b.add('Concat', [past, now], { axis: 0 });
  let sum = shift;
  for (let j = 0; j < width; j++) {
    const column = b.add('Reshape', [slice(weights, 1, j, j + 1), b.integers('shape', [1, channels])]);
    const term = b.add('Mul', [slice(rows, 0, j, j + tokens), column]);
    sum = sum === undefined ? term : b.add('Add', [sum, term]);
  }
  if (silu) sum = b.add('Mul', [sum!, sigmoid(g, sum!)]);
  if (after) sum = b.add('Mul', [sum!, g.wide('after', after)]);
  g.round(sum!, 'out', out);
  g.round(slice(rows, 0, tokens, tokens + width - 1), 'new_state', state);
}

function emitArgmax(g: PlanGraph, { values, outIndex, outValue }: Plan<'argmax'>): undefined {
  const value = g.take('values', values);
  // Not every runtime has ArgMax for every dtype. A cast to f32 keeps order, ties and NaN.
  const wide = values.dtype === g.compute ? value : g.b.cast(value, g.compute);
  const index = argmax(g, wide, g.options.nan ?? 'first');
  g.give(g.b.add('GatherElements', [value, index], { axis: -1 }), 'value', outValue);
  g.give(outIndex.dtype === 'i32' ? g.b.cast(index, 'i32') : index, 'index', outIndex);
}

function emitEmbedding(g: PlanGraph, { rows, weight, out }: Plan<'embedding'>): undefined {
  const { b } = g;
  const index = tensorFrom(BigInt64Array.from(rows, BigInt));
  if (isBlocks(weight)) {
    const table = g.take('weight', weight.bytes);
    const [n, k] = weight.shape as [number, number];
    // Gather takes rows of bytes, so that only these rows are converted.
    const rowBytes = n === 0 ? 0 : weight.bytes.size / n;
    const byRow = b.add('Reshape', [table, b.integers('by_row', [n, rowBytes])], { allowzero: 1 });
    const found = b.add('Gather', [byRow, g.take('index', index)], { axis: 0 });
    g.give(dequantize(b, found, weight.format, [rows.length, k], 'f32'), 'out', out);
    return;
  }
  const found = b.add('Gather', [g.take('weight', weight), g.take('index', index)], { axis: 0 });
  g.give(weight.dtype === out.dtype ? found : b.cast(found, out.dtype), 'out', out);
}

/** Returns the dimensions of a tensor by falling stride if the tensor is dense in that order and fills its storage. */
function permutationOf(tensor: Tensor): number[] | undefined {
  if (tensor.size !== tensor.storage.length) return undefined;
  const order = tensor.shape.map((_, d) => d).sort((a, b) => tensor.strides[b]! - tensor.strides[a]! || a - b);
  return tensor.permute(order).isContiguous() ? order : undefined;
}

function emitRearrange(g: PlanGraph, { x, out }: Plan<'rearrange'>): undefined {
  const { b } = g;
  const converted = (value: string): string =>
    x.dtype === out.dtype ? value : narrowed(b, value, x.dtype as FloatDtype, out.dtype as FloatDtype);
  const [from, to] = [permutationOf(x), permutationOf(out)];
  if (from && to && !g.options.places) {
    // Both are dense: dimension to[d] of the tensor is dimension d in out's memory, and from.indexOf(to[d]) in x's.
    const value = converted(g.take('x', x.permute(from)));
    const perm = to.map((dim) => from.indexOf(dim));
    const inOrder = perm.every((dim, d) => dim === d);
    g.give(inOrder ? b.add('Identity', [value]) : b.add('Transpose', [value], { perm: perm }), 'out', out.permute(to));
    return;
  }
  // For any other layouts, the elements of x are gathered by their places and scattered to their places in out.
  const read = flat(x);
  const written = flat(out);
  const values = b.add('Gather', [g.take('x', read.tensor), b.integers('x_places', read.places)], { axis: 0 });
  const initial = g.take('initial', written.tensor);
  const y = b.add('ScatterElements', [initial, b.integers('out_places', written.places), converted(values)], {
    axis: 0,
  });
  g.give(y, 'out', written.tensor);
}

/** Returns a tensor over the whole storage, and the places of the tensor's elements in it. */
function flat(tensor: Tensor): { tensor: Tensor; places: number[] } {
  const places: number[] = [];
  if (tensor.size > 0) walk(tensor, (at) => places.push(at));
  return { tensor: new Tensor(tensor.storage, { shape: [tensor.storage.length] }), places };
}
