/**
 * One operator of fixed shapes as an ONNX graph.
 *
 * @module
 */
import type { ArrayOf, BlockTensor, Dtype, FloatDtype, OpName, OpPlan, RouteOptions, TensorStorage } from 'ropewalk';
import {
  blocksFrom,
  isFloat,
  planAdd,
  planArgmax,
  planCausalConv,
  planEmbedding,
  planExpertLinear,
  planGatedDelta,
  planGeglu,
  planGelu,
  planLayerNorm,
  planLinear,
  planRearrange,
  planRmsNorm,
  planRoute,
  planScale,
  planSelfAttention,
  planSsmScan,
  planSwiglu,
  planXielu,
  Tensor,
  zeros,
} from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  blockBytes,
  checkShape,
  countElements,
  isDtype,
  type OptionNames,
  optionNames,
  readName,
  readOptions,
} from 'ropewalk/internal';
import { GraphBuilder } from './builder.js';
import { emitPlan } from './emit.js';
import { GRAPH_FORMATS, type GraphForm } from './fragments.js';

/** The operators of {@link operatorModel}. For RoPE see ropeModel. */
export type OperatorName = Exclude<OpName, 'rope'>;

/** The meaning of `shape` for each operator. */
export const OPERATOR_SHAPES: Readonly<Record<OperatorName, string>> = {
  add: 'any dimensions',
  swiglu: 'any dimensions',
  gelu: 'any dimensions',
  geglu: 'any dimensions',
  xielu: 'any dimensions',
  scale: 'any dimensions',
  layer_norm: 'any dimensions, the last one is normalised',
  rms_norm: 'any dimensions, the last one is normalised',
  argmax: 'any dimensions, the last one is searched',
  linear: 'M,N,K',
  embedding: 'COUNT,ROWS,WIDTH',
  rearrange: 'any dimensions, of x',
  self_attention: 'BATCH,SEQ,TOTAL,HEADS,KV_HEADS,HEAD_DIM',
  route: 'TOKENS,EXPERTS,CHOSEN',
  expert_linear: 'TOKENS,CHOSEN,EXPERTS,N,K',
  causal_conv: 'TOKENS,CHANNELS,WIDTH',
  gated_delta: 'TOKENS,KEY_HEADS,HEADS,D,DV',
  ssm_scan: 'TOKENS,GROUPS,HEADS,D,DV',
};

/** An operator and its sizes. */
export interface OperatorModelOptions {
  readonly op: OperatorName;
  /** The sizes that `OPERATOR_SHAPES` lists. */
  readonly shape: readonly number[];
  readonly form: GraphForm;
  /** The dtype of the data. Default: f32. */
  readonly dtype?: FloatDtype;
  /** linear, expert_linear and embedding: f32, f16, bf16, f64, q8_0 or q4_0. Default: the dtype of the data. */
  readonly weights?: string;
  /** linear, expert_linear, layer_norm, route and causal_conv: adds a bias. */
  readonly bias?: boolean;
  /** rms_norm and layer_norm: the epsilon. Default: 1e-6 and 1e-5. */
  readonly eps?: number;
  /** self_attention: the number of keys that a query sees. Default: all. */
  readonly window?: number;
  /** self_attention: caps the scores; scale: caps the product. Default: no cap. */
  readonly softcap?: number;
  /** self_attention: adds sinks. */
  readonly sinks?: boolean;
  /** route: how logits become scores. Default: softmax. */
  readonly gate?: RouteOptions['gate'];
  /** route: puts the experts into groups. Default: no groups. */
  readonly groups?: RouteOptions['groups'];
  /** route: divides the weights by their sum. */
  readonly normalize?: boolean;
  /** expert_linear: multiplies the products of a token by weights and adds them up. */
  readonly weighted?: boolean;
  /** gelu and geglu: the approximation. Default: none, which is GELU by erf. */
  readonly approximate?: 'none' | 'tanh';
  /** swiglu: the limit at which the inputs are clamped. Default: no limit. */
  readonly limit?: number;
  /** swiglu: the factor of the gate inside the sigmoid. Default: 1. */
  readonly alpha?: number;
  /** swiglu: a number that is added to up. Default: 0. */
  readonly offset?: number;
  /** scale: the factor. Default: an input with a number for each row. */
  readonly factor?: number;
  /** rearrange: the order of the dimensions. Default: reversed. */
  readonly perm?: readonly number[];
}

const NAMES: OptionNames<OperatorModelOptions> = /* @__PURE__ */ optionNames(
  'op shape form dtype weights bias eps window softcap sinks gate groups normalize weighted approximate limit',
  'alpha offset factor perm',
);

/** The most rows of an embedding. A plan lists them, and this many take 128 MiB. */
const MAX_ROWS = 2 ** 24;

/**
 * Builds the graph of one operator.
 *
 * @param options - the operator and its sizes
 * @throws {RopewalkError} UNSUPPORTED for a call that a graph cannot express; SHAPE or RANGE for sizes that do not fit
 * @example operatorModel({ op: 'linear', shape: [1, 64, 32], form: 'standard' }).model('linear', 'me')
 */
export function operatorModel(options: OperatorModelOptions): GraphBuilder {
  const given = readOptions(options, 'export: options', NAMES);
  const op = readName(given.op, Object.keys(OPERATOR_SHAPES) as OperatorName[], 'export: op');
  const graph = new GraphBuilder();
  const emitted = emitPlan(graph, planOf({ ...given, op, shape: checkShape(given.shape, 'export: shape') }), {
    form: given.form,
  });
  if ('whyNot' in emitted) fail('UNSUPPORTED', 'export: op', `no graph can express this ${op}: ${emitted.whyNot}`);
  return graph;
}

function planOf({ op, shape, dtype = 'f32', ...given }: OperatorModelOptions): OpPlan {
  const { limit, alpha, offset, approximate } = given;
  const tensor = (dims: readonly number[] = shape): Tensor<FloatDtype> => shapeOnly(dtype, dims);
  const sizes = (count: number): number[] =>
    shape.length === count
      ? [...shape]
      : fail('SHAPE', 'export: shape', `expected ${OPERATOR_SHAPES[op]}, got ${shape.length} numbers`);
  const weights = (dims: readonly number[]) => weightOf(given.weights ?? dtype, dims);
  switch (op) {
    case 'add':
      return planAdd(tensor(), tensor(), tensor());
    case 'swiglu':
      return planSwiglu(tensor(), tensor(), tensor(), { limit, alpha, offset });
    case 'gelu':
      return planGelu(tensor(), tensor(), { approximate });
    case 'geglu':
      return planGeglu(tensor(), tensor(), tensor(), { approximate });
    case 'xielu':
      return planXielu(tensor(), tensor());
    case 'scale':
      return planScale(tensor(), given.factor ?? tensor(shape.slice(0, -1)), tensor(), { softcap: given.softcap });
    case 'layer_norm': {
      const [weight, bias] = [tensor([shape.at(-1)!]), given.bias ? tensor([shape.at(-1)!]) : undefined];
      return planLayerNorm(tensor(), weight, tensor(), { bias, eps: given.eps ?? 1e-5 });
    }
    case 'rms_norm':
      return planRmsNorm(tensor(), tensor([shape.at(-1)!]), tensor(), { eps: given.eps ?? 1e-6 });
    case 'argmax': {
      const found = [...shape.slice(0, -1), 1];
      return planArgmax(tensor(), shapeOnly('i64', found), tensor(found));
    }
    case 'linear': {
      const [m, n, k] = sizes(3) as [number, number, number];
      return planLinear(tensor([m, k]), weights([n, k]), tensor([m, n]), {
        bias: given.bias ? tensor([n]) : undefined,
      });
    }
    case 'embedding': {
      const [count, rows, width] = sizes(3) as [number, number, number];
      if (count > MAX_ROWS) refuse('RANGE', 'export: shape', `a COUNT of at most ${MAX_ROWS}`, count);
      const weight = weights([rows, width]);
      // Rows of blocks are widened to f32.
      const out = 'format' in weight ? shapeOnly('f32', [count, width]) : tensor([count, width]);
      return planEmbedding(zeros('i64', [count]), weight, out);
    }
    case 'rearrange': {
      const x = tensor().permute(given.perm ?? shape.map((_what, d) => shape.length - 1 - d));
      return planRearrange(x, tensor(x.shape));
    }
    case 'self_attention': {
      const [batch, seq, total, heads, kvHeads, d] = sizes(6) as [number, number, number, number, number, number];
      const { window, softcap } = given;
      const sinks = given.sinks ? tensor([heads]) : undefined;
      const [q, kv] = [tensor([batch, seq, heads, d]), tensor([batch, total, kvHeads, d])];
      return planSelfAttention(q, kv, tensor(kv.shape), tensor(q.shape), { window, softcap, sinks });
    }
    case 'route': {
      const [tokens, experts, chosen] = sizes(3) as [number, number, number];
      const { gate = 'softmax', groups, normalize } = given;
      const bias = given.bias ? tensor([experts]) : undefined;
      const found = [tokens, chosen];
      return planRoute(tensor([tokens, experts]), shapeOnly('i32', found), tensor(found), {
        gate,
        bias,
        groups,
        normalize,
      });
    }
    case 'causal_conv': {
      const [tokens, channels, width] = sizes(3) as [number, number, number];
      const x = [tokens, channels];
      const state = shapeOnly(dtype === 'f64' ? 'f64' : 'f32', [Math.max(0, width - 1), channels]);
      const bias = given.bias ? tensor([channels]) : undefined;
      return planCausalConv(tensor(x), tensor([channels, width]), state, tensor(x), { bias });
    }
    case 'gated_delta': {
      const [tokens, keyHeads, heads, d, dv] = sizes(5) as [number, number, number, number, number];
      const [q, v, gate] = [
        [tokens, keyHeads, d],
        [tokens, heads, dv],
        [tokens, heads],
      ];
      const gates = { decay: tensor(gate), beta: tensor(gate), rate: tensor([heads]), bias: tensor([heads]) };
      const state = shapeOnly(dtype === 'f64' ? 'f64' : 'f32', [heads, d, dv]);
      return planGatedDelta(tensor(q), tensor(q), tensor(v), gates, state, tensor(v), { eps: 1e-6 });
    }
    case 'ssm_scan': {
      const [tokens, groups, heads, d, dv] = sizes(5) as [number, number, number, number, number];
      const [x, b] = [tensor([tokens, heads, dv]), tensor([tokens, groups, d])];
      const steps = { dt: tensor([tokens, heads]), rate: tensor([heads]), bias: tensor([heads]) };
      const state = shapeOnly(dtype === 'f64' ? 'f64' : 'f32', [heads, d, dv]);
      return planSsmScan(x, b, b, steps, state, tensor([tokens, heads, dv]));
    }
    case 'expert_linear': {
      const [tokens, chosen, experts, n, k] = sizes(5) as [number, number, number, number, number];
      const out = tensor(given.weighted ? [tokens, n] : [tokens, chosen, n]);
      return planExpertLinear(tensor([tokens, k]), weights([experts, n, k]), shapeOnly('i32', [tokens, chosen]), out, {
        bias: given.bias ? tensor([experts, n]) : undefined,
        weights: given.weighted ? tensor([tokens, chosen]) : undefined,
      });
    }
  }
}

function weightOf(kind: string, shape: readonly number[]): BlockTensor | Tensor<FloatDtype> {
  const format = GRAPH_FORMATS.find((name) => name === kind);
  if (format) return blocksFrom(format, shapeOnly('u8', [Math.floor(blockBytes(format, countElements(shape)))]), shape);
  if (!isDtype(kind) || !isFloat(kind))
    refuse('UNSUPPORTED', 'export: weights', 'f32, f16, bf16, f64, q8_0 or q4_0', kind);
  return shapeOnly(kind, shape);
}

/** A storage without elements, because an export needs only shapes. */
class NoStorage<D extends Dtype> implements TensorStorage<D> {
  readonly owner = 'a model that is written';
  readonly host = undefined;
  constructor(
    readonly dtype: D,
    readonly length: number,
  ) {}

  read(): ArrayOf[D] {
    return fail('DEVICE', 'export', 'these tensors have a shape and no elements.');
  }
}

function shapeOnly<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
  return new Tensor(new NoStorage(dtype, countElements(shape)), { shape });
}
