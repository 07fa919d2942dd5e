/**
 * A golden case: the inputs of one call of one operator, what must come out, and how far off a right kernel may be.
 *
 * {@link bindGolden} binds a case to a runner and reads only inputs and attributes. So a case that was just made and
 * one that was read from a folder run in the same way, and the exact result can always be computed again.
 *
 * @module
 */
import {
  type ArrayOf,
  type BlockTensor,
  bindRopeParts,
  blocksFrom,
  type Dtype,
  type FloatDtype,
  type GeluOptions,
  isFloat,
  type OpName,
  type OpPlan,
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
  planRope,
  planRoute,
  planScale,
  planSelfAttention,
  planSsmScan,
  planSwiglu,
  planXielu,
  type RopeLayout,
  type RopeSpec,
  type Runner,
  Tensor,
  tensorFrom,
} from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { BLOCK_FORMAT_NAMES, Fields, reading, readName, readOptions, readPlain } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { boundedShape } from '../host.js';

/** A value of JSON. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** How far a right kernel's output may be from the expected one, and why. */
export interface ToleranceRecord {
  /** The name of a formula in docs/vectors.md: `bits`, `rotation`, `sum`, … */
  readonly formula: string;
  /** The numbers that the formula uses. */
  readonly parameters: Readonly<Record<string, number>>;
  /** One sentence that says where formula and numbers come from. */
  readonly from: string;
  /** For readers that know no formula: at each element a right kernel is within `atol + rtol · |expected|`. */
  readonly atol: number;
  readonly rtol: number;
}

/** One rotation of a RoPE case. It names tensors of the case. */
export interface GoldenRopePart {
  /** The input that is rotated. */
  readonly x: string;
  readonly out: string;
  /** The content of `out` before the call, where `out` is a KV cache. Rows that no token is written to keep it. */
  readonly cache?: string;
  /** The rows of the cache that the tokens are written to. */
  readonly rows?: string;
  /** Weight and eps of an RMS norm of each head before the rotation. */
  readonly weight?: string;
  readonly eps?: number;
}

/** The attributes of a RoPE case. With the input `positions` they are what planRope takes. */
export interface GoldenRope {
  readonly spec: RopeSpec;
  readonly direction: 'forward' | 'backward';
  readonly layout: RopeLayout;
  readonly parts: readonly GoldenRopePart[];
}

/** A golden case. All tensors are dense and in host memory. */
export interface GoldenCase {
  /** Is unique in its folder and has letters, digits, `-`, `_` and `.` only. */
  readonly id: string;
  readonly op: OpName;
  /** One sentence that describes the case. */
  readonly about: string;
  /** The choices of a kernel that the case tells apart: `half | interleaved`. */
  readonly separates: readonly string[];
  /** Everything but the tensors that determines the result. RoPE has spec, direction, layout and parts. */
  readonly attributes: Readonly<Record<string, Json>>;
  /** The inputs by name, in the operator's order. */
  readonly inputs: ReadonlyMap<string, Tensor>;
  /** The expected outputs: the float64 results, rounded once. */
  readonly outputs: ReadonlyMap<string, Tensor>;
  readonly tolerance: ToleranceRecord;
  /** The attributes of a RoPE case, with types. */
  readonly rope?: GoldenRope;
  /** The call in the dialect that the case was chosen for: its own arguments, and the tensors that it takes. */
  readonly call?: GoldenCall;
}

/** One call of a peer. */
export interface GoldenCall {
  /** The peer's function. */
  readonly function: string;
  readonly arguments: Readonly<Record<string, Json>>;
  /** The names of the case's tensors by the peer's names. */
  readonly tensors?: Readonly<Record<string, string>>;
}

/** A case without its outputs and its tolerance, which can be computed from the rest. */
export type GoldenQuestion = Omit<GoldenCase, 'outputs' | 'tolerance'>;

/** Checks a caller's case. @throws {RopewalkError} RANGE, and names the field that is wrong */
export function readGoldenCase(given: GoldenCase, where: string): GoldenCase {
  const golden = readPlain(readOptions(given, where), where);
  const { id, op, about, tolerance, inputs, outputs } = golden;
  if (typeof id !== 'string') refuse('RANGE', `${where}: id`, 'a text', id);
  if (typeof about !== 'string') refuse('RANGE', `${where}: about`, 'a text', about);
  readName(op, GOLDEN_OPS, `${where}: op`);
  const { formula, parameters, atol, rtol } = readOptions(tolerance, `${where}: tolerance`);
  if (typeof formula !== 'string') refuse('RANGE', `${where}: tolerance: formula`, 'a text', formula);
  const numbers = Object.entries({ ...readOptions(parameters, `${where}: tolerance: parameters`), atol, rtol });
  for (const [name, value] of numbers)
    if (!Number.isFinite(value)) refuse('RANGE', `${where}: tolerance: ${name}`, 'a finite number', value);
  for (const [name, tensors] of Object.entries({ inputs, outputs })) readTensors(tensors, `${where}: ${name}`);
  return golden;
}

/** Checks a caller's tensors by name. @throws {RopewalkError} RANGE for anything else */
export function readTensors(tensors: ReadonlyMap<string, Tensor>, where: string): ReadonlyMap<string, Tensor> {
  if (!reading(where, () => tensors instanceof Map && [...tensors.values()].every((one) => one instanceof Tensor)))
    refuse('RANGE', where, 'a Map of tensors', tensors);
  return tensors;
}

/**
 * The formula of each operator's tolerance (golden/bounds.ts); `bits` copies elements bit for bit. Every operator that
 * golden cases are about is here.
 */
export const FORMULA_OF = {
  rope: 'rotation',
  add: 'sum',
  argmax: 'bits',
  causal_conv: 'conv',
  embedding: 'bits',
  expert_linear: 'dot',
  gated_delta: 'delta',
  geglu: 'gelu',
  gelu: 'gelu',
  layer_norm: 'layer_norm',
  linear: 'dot',
  rearrange: 'bits',
  rms_norm: 'norm',
  route: 'route',
  scale: 'scale',
  self_attention: 'attention',
  ssm_scan: 'scan',
  swiglu: 'gate',
  xielu: 'xielu',
} as const satisfies Readonly<Record<OpName, string>>;

/** The operators that golden cases are about. */
export const GOLDEN_OPS = /* @__PURE__ */ Object.keys(FORMULA_OF) as readonly OpName[];

/** Says whether an operator's outputs must be equal to the bit. Such operators are never computed in float64. */
export function isExact(op: OpName): boolean {
  return FORMULA_OF[op] === 'bits';
}

/** Hands a case's tensors to the function that plans it. */
interface Tensors {
  input(name: string): Tensor;
  /** The input, where the case has it. */
  optional(name: string): Tensor | undefined;
  /** Makes an output, by default with the shape and the dtype of input `like`. */
  output(name: string, like: string, shape?: readonly number[], dtype?: Dtype): Tensor;
  /** Makes an output that holds an input's elements before the call. */
  outputFrom(name: string, initial: string): Tensor;
}

/**
 * Plans a case on a runner, with the outputs in the runner's memory.
 *
 * @param wide - makes every floating tensor, and RoPE's table, float64
 * @returns the plan; the outputs by the case's names; and the dtypes that the outputs have in the case
 */
export function bindGolden(c: GoldenQuestion, runner: Runner, wide = false) {
  const where = `golden: ${c.id}`;
  const widen = wide && !isExact(c.op);
  const outputs = new Map<string, Tensor>();
  const dtypes = new Map<string, Dtype>();
  const given = (name: string): Tensor =>
    c.inputs.get(name) ?? refuse('FORMAT', where, `an input ${name}`, [...c.inputs.keys()]);
  const keep = (name: string, dtype: Dtype, tensor: Tensor): Tensor => {
    outputs.set(name, tensor);
    dtypes.set(name, dtype);
    return tensor;
  };
  const widened = (tensor: Tensor): Tensor =>
    widen && isFloat(tensor.dtype) ? tensorFrom(floats(tensor).slice(), { shape: tensor.shape }) : tensor;
  const tensors: Tensors = {
    input: (name) => widened(given(name)),
    optional: (name) => (c.inputs.has(name) ? tensors.input(name) : undefined),
    output(name, like, shape = given(like).shape, dtype = given(like).dtype) {
      const bounded = boundedShape(shape, `${where}: ${name}`);
      return keep(name, dtype, runner.allocate(widen && isFloat(dtype) ? 'f64' : dtype, bounded));
    },
    outputFrom(name, initial) {
      const { dtype } = given(initial);
      const start = widened(given(initial));
      // The copy is in host memory, which every runner can write.
      const copy = tensorFrom(start.read() as ArrayOf[Dtype], { dtype: start.dtype, shape: start.shape });
      return keep(name, dtype, copy);
    },
  };
  const plan = c.op === 'rope' ? planRopeCase(c, tensors, wide) : planOperator(c, tensors);
  return { plan, outputs: outputs as ReadonlyMap<string, Tensor>, dtypes };
}

function planOperator(c: GoldenQuestion, { input, optional, output, outputFrom }: Tensors): OpPlan {
  const where = `golden: ${c.id}`;
  const attributes = new Fields(c.attributes, where);
  const approximate = (): GeluOptions['approximate'] =>
    attributes.has('approximate') ? attributes.oneOf('approximate', ['none', 'tanh']) : undefined;
  const stateFrom = () => outputFrom('new_state', 'state') as Tensor<'f32' | 'f64'>;
  switch (c.op) {
    case 'add':
      return planAdd(input('a'), input('b'), output('c', 'a'));
    case 'swiglu':
      return planSwiglu(input('gate'), input('up'), output('out', 'gate'), {
        activation: attributes.has('activation')
          ? attributes.oneOf('activation', ['silu', 'sigmoid', 'relu'])
          : undefined,
        limit: attributes.optionalNumber('limit'),
        alpha: attributes.optionalNumber('alpha'),
        offset: attributes.optionalNumber('offset'),
      });
    case 'gelu':
      return planGelu(input('x'), output('out', 'x'), { approximate: approximate() });
    case 'geglu':
      return planGeglu(input('gate'), input('up'), output('out', 'gate'), { approximate: approximate() });
    case 'xielu':
      return planXielu(input('x'), output('out', 'x'), {
        positive: attributes.optionalNumber('positive'),
        negative: attributes.optionalNumber('negative'),
        beta: attributes.optionalNumber('beta'),
      });
    case 'scale': {
      const factor = optional('factor') ?? attributes.number('factor');
      return planScale(input('x'), factor, output('out', 'x'), { softcap: attributes.optionalNumber('softcap') });
    }
    case 'layer_norm':
      return planLayerNorm(input('x'), input('weight'), output('y', 'x'), {
        bias: optional('bias'),
        eps: attributes.number('eps'),
      });
    case 'rms_norm':
      return planRmsNorm(input('x'), input('weight'), output('y', 'x'), { eps: attributes.number('eps') });
    case 'linear': {
      const x = input('x');
      const weight = weightOf(input('weight'), attributes, where);
      return planLinear(x, weight, output('y', 'x', [...x.shape.slice(0, -1), weight.shape[0] ?? 0]), {
        bias: optional('bias'),
      });
    }
    case 'self_attention': {
      const [q, k, v] = [input('q'), input('k'), input('v')];
      return planSelfAttention(q, k, v, output('attn_val', 'q', [...q.shape.slice(0, -1), v.shape.at(-1) ?? 0]), {
        scale: attributes.number('scale'),
        causal: attributes.optionalFlag('causal'),
        window: attributes.optionalNumber('window'),
        softcap: attributes.optionalNumber('softcap'),
        sinks: optional('sinks'),
      });
    }
    case 'route': {
      const logits = input('logits');
      const shape = [logits.shape[0] ?? 0, attributes.integer('chosen', 0)];
      const groups = attributes.has('groups') ? attributes.object('groups') : undefined;
      return planRoute(logits, output('indices', 'logits', shape, 'i32'), output('weights', 'logits', shape), {
        gate: attributes.oneOf('gate', ['softmax', 'sigmoid', 'softmax-of-chosen', 'sparsemixer']),
        jitter: attributes.optionalNumber('jitter'),
        bias: optional('bias'),
        groups: groups && {
          count: groups.integer('count'),
          used: groups.integer('used'),
          best: groups.integer('best') as 1 | 2,
        },
        normalize: attributes.optionalFlag('normalize'),
        scale: attributes.optionalNumber('scale'),
      });
    }
    case 'causal_conv':
      return planCausalConv(input('x'), input('weight'), stateFrom(), output('out', 'x'), {
        bias: optional('bias'),
        before: optional('before'),
        after: optional('after'),
        activation: attributes.has('activation') ? attributes.oneOf('activation', ['silu']) : undefined,
        fresh: attributes.optionalFlag('fresh'),
      });
    case 'gated_delta': {
      const gates = { decay: input('decay'), rate: input('rate'), bias: input('bias'), beta: input('beta') };
      return planGatedDelta(input('q'), input('k'), input('v'), gates, stateFrom(), output('out', 'v'), {
        eps: attributes.number('eps'),
        scale: attributes.optionalNumber('scale'),
        heads: attributes.has('heads') ? attributes.oneOf('heads', ['grouped', 'tiled']) : undefined,
        fresh: attributes.optionalFlag('fresh'),
      });
    }
    case 'ssm_scan': {
      const steps = { dt: input('dt'), rate: input('rate'), bias: input('bias') };
      return planSsmScan(input('x'), input('b'), input('c'), steps, stateFrom(), output('out', 'x'), {
        skip: optional('skip'),
        limits: attributes.optionalNumbers('limits') as [number, number] | undefined,
        fresh: attributes.optionalFlag('fresh'),
      });
    }
    case 'expert_linear': {
      const [x, indices] = [input('x'), input('indices')];
      const weight = weightOf(input('weight'), attributes, where);
      const [bias, weights] = [optional('bias'), optional('weights')];
      const shape = [...(weights ? indices.shape.slice(0, 1) : indices.shape), weight.shape[1] ?? 0];
      return planExpertLinear(x, weight, indices, output('out', 'x', shape), { bias, weights });
    }
    case 'argmax': {
      const values = input('values');
      const shape = [...values.shape.slice(0, -1), 1];
      const index = output('max_idx', 'values', shape, attributes.raw('index_dtype') === 'i32' ? 'i32' : 'i64');
      return planArgmax(values, index, output('max_val', 'values', shape));
    }
    case 'embedding': {
      const [index, weight] = [input('index'), input('weight')];
      return planEmbedding(index, weight, output('out', 'weight', [index.size, weight.shape[1] ?? 0]));
    }
    case 'rearrange': {
      const view = (tensor: Tensor, f: Fields): Tensor =>
        new Tensor(tensor.storage, {
          shape: f.integers('shape'),
          strides: f.integers('strides', Number.MIN_SAFE_INTEGER),
          offset: f.integer('offset'),
        });
      const x = view(input('x'), attributes.object('x'));
      return planRearrange(x, view(outputFrom('y', 'y_initial'), attributes.object('y')));
    }
    default:
      return refuse('FORMAT', `${where}: op`, 'an operator with golden cases', c.op);
  }
}

/** Returns a weight as it is, or its bytes as blocks of the format that the attributes name. */
function weightOf(raw: Tensor, attributes: Fields, where: string): Tensor | BlockTensor {
  if (!attributes.has('format')) return raw;
  if (raw.dtype !== 'u8') refuse('FORMAT', `${where}: weight`, 'bytes of blocks', raw.dtype);
  const format = attributes.oneOf('format', BLOCK_FORMAT_NAMES);
  return blocksFrom(format, raw as Tensor<'u8'>, attributes.integers('weight_shape'));
}

function planRopeCase(c: GoldenQuestion, { input, output, outputFrom }: Tensors, wide: boolean): OpPlan {
  const rope = c.rope ?? fail('FORMAT', `golden: ${c.id}`, 'a RoPE case needs spec, direction, layout and parts');
  const exact = wide || rope.parts.some((part) => c.inputs.get(part.x)?.dtype === 'f64');
  const plan = planRope({
    ...rope.spec,
    positions: input('positions'),
    direction: rope.direction,
    tableDtype: exact ? 'f64' : 'f32',
  });
  const parts = rope.parts.map(({ x, out, cache, rows, weight, eps = 0 }) => ({
    x: input(x) as Tensor<FloatDtype>,
    out: (cache === undefined ? output(out, x) : outputFrom(out, cache)) as Tensor<FloatDtype>,
    rows: rows === undefined ? undefined : floats(input(rows)),
    norm: weight === undefined ? undefined : { weight: input(weight) as Tensor<FloatDtype>, eps },
  }));
  return bindRopeParts(plan, parts, rope.layout);
}

/** Reads a host tensor's elements as float64, row-major. */
export function floats(tensor: Tensor): Float64Array {
  return tensor.readNumbers() as Float64Array;
}

/** Computes a case's outputs by the reference, on float64 tensors and tables. Copied elements stay as they are. */
export function exactOutputs(c: GoldenQuestion): ReadonlyMap<string, Tensor> {
  const runner = referenceRunner();
  const { plan, outputs } = bindGolden(c, runner, true);
  runner.run(plan);
  return outputs;
}
