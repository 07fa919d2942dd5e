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
  BLOCK_FORMAT_NAMES,
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
  planEmbedding,
  planExpertLinear,
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
  planSwiglu,
  type RopeLayout,
  type RopeSpec,
  type Runner,
  Tensor,
  tensorFrom,
} from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';
import { countElements, Fields, reading, readName, readOptions, readPlain } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { boundedShape } from '../host.js';

/** What JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** How far off a right kernel may be from the expected output, and why. */
export interface ToleranceRecord {
  /** The name of a formula in docs/vectors.md: `bits`, `rotation`, `sum`, … */
  readonly formula: string;
  /** The numbers that go into it. */
  readonly parameters: Readonly<Record<string, number>>;
  /** Where formula and numbers come from, one sentence. */
  readonly from: string;
  /**
   * For readers that know no formula: no right kernel is further off than `atol + rtol · |expected|`, at any element.
   */
  readonly atol: number;
  readonly rtol: number;
}

/** One tensor of a RoPE case, by the names of its tensors. */
export interface GoldenRopePart {
  /** The input that is rotated. */
  readonly x: string;
  readonly out: string;
  /** The initial content of `out`, where it is a KV cache. Its other rows must not change. */
  readonly cache?: string;
  /** The row of the cache for each token. */
  readonly rows?: string;
  /** RMS norm of each head, before the rotation: its weight and eps. */
  readonly weight?: string;
  readonly eps?: number;
}

/** What only RoPE has: with the input `positions`, ready for planRope. */
export interface GoldenRope {
  readonly spec: RopeSpec;
  readonly direction: 'forward' | 'backward';
  readonly layout: RopeLayout;
  readonly parts: readonly GoldenRopePart[];
}

/** A golden case. All tensors are dense and in host memory. */
export interface GoldenCase {
  /** Unique in its folder; letters, digits, `-`, `_` and `.`. */
  readonly id: string;
  readonly op: OpName;
  /** What it is, one sentence. */
  readonly about: string;
  /** Which choices it tells apart: `half | interleaved`. */
  readonly separates: readonly string[];
  /** Everything beside the tensors that determines the result; of RoPE: spec, direction, layout, parts. */
  readonly attributes: Readonly<Record<string, Json>>;
  /** By name, in the operator's order. */
  readonly inputs: ReadonlyMap<string, Tensor>;
  /** The expected outputs, the float64 result rounded once. */
  readonly outputs: ReadonlyMap<string, Tensor>;
  readonly tolerance: ToleranceRecord;
  /** Of RoPE: the attributes, typed. */
  readonly rope?: GoldenRope;
}

/** What a case is made from; its outputs and its tolerance follow from it. */
export type GoldenQuestion = Omit<GoldenCase, 'outputs' | 'tolerance'>;

/** A case that a caller gives. @throws {RopewalkError} RANGE, naming what is wrong in it */
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

/** Tensors by name. @throws {RopewalkError} RANGE for anything else */
export function readTensors(tensors: ReadonlyMap<string, Tensor>, where: string): ReadonlyMap<string, Tensor> {
  if (!reading(where, () => tensors instanceof Map && [...tensors.values()].every((one) => one instanceof Tensor)))
    refuse('RANGE', where, 'a Map of tensors', tensors);
  return tensors;
}

/** A case in a runner's memory. */
export interface BoundGolden {
  readonly plan: OpPlan;
  /** By the names of the case's outputs, in order. */
  readonly outputs: ReadonlyMap<string, Tensor>;
  /** The dtypes of the outputs in the case; those of `outputs` unless it was bound `wide`. */
  readonly dtypes: ReadonlyMap<string, Dtype>;
}

/** The operators that golden cases are about. */
export const GOLDEN_OPS: readonly OpName[] = [
  'rope',
  'add',
  'argmax',
  'embedding',
  'expert_linear',
  'geglu',
  'gelu',
  'layer_norm',
  'linear',
  'rearrange',
  'rms_norm',
  'route',
  'scale',
  'self_attention',
  'swiglu',
];

/** Operators that copy elements bit for bit: they are never widened. */
const COPIES: readonly OpName[] = ['argmax', 'embedding', 'rearrange'];

/** Says whether an operator's outputs must be equal to the bit. */
export function isExact(op: OpName): boolean {
  return COPIES.includes(op);
}

/** A case's tensors, as a plan takes them. */
interface Tensors {
  input(name: string): Tensor;
  /** Makes an output, by default with the shape and the dtype of input `like`. */
  output(name: string, like: string, shape?: readonly number[], dtype?: Dtype): Tensor;
  /** Makes an output that holds an input's elements before the call. */
  outputFrom(name: string, initial: string): Tensor;
}

/** Plans a case on a runner, with outputs in its memory. `wide`: every floating tensor, and the table, is float64. */
export function bindGolden(c: GoldenQuestion, runner: Runner, wide = false): BoundGolden {
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
    output(name, like, shape = given(like).shape, dtype = given(like).dtype) {
      const bounded = boundedShape(shape, `${where}: ${name}`);
      return keep(name, dtype, runner.allocate(widen && isFloat(dtype) ? 'f64' : dtype, bounded));
    },
    outputFrom(name, initial) {
      const { dtype } = given(initial);
      const start = widened(given(initial));
      // In host memory, which every runner can write.
      const copy = tensorFrom(start.read() as ArrayOf[Dtype], { dtype: start.dtype, shape: start.shape });
      return keep(name, dtype, copy);
    },
  };
  const plan = c.op === 'rope' ? planRopeCase(c, tensors, wide) : planOperator(c, tensors);
  return { plan, outputs, dtypes };
}

function planOperator(c: GoldenQuestion, { input, output, outputFrom }: Tensors): OpPlan {
  const where = `golden: ${c.id}`;
  const attributes = new Fields(c.attributes, where);
  const approximate = (): GeluOptions['approximate'] =>
    attributes.has('approximate') ? attributes.oneOf('approximate', ['none', 'tanh']) : undefined;
  switch (c.op) {
    case 'add':
      return planAdd(input('a'), input('b'), output('c', 'a'));
    case 'swiglu':
      return planSwiglu(input('gate'), input('up'), output('out', 'gate'), {
        limit: attributes.optionalNumber('limit'),
        alpha: attributes.optionalNumber('alpha'),
        offset: attributes.optionalNumber('offset'),
      });
    case 'gelu':
      return planGelu(input('x'), output('out', 'x'), { approximate: approximate() });
    case 'geglu':
      return planGeglu(input('gate'), input('up'), output('out', 'gate'), { approximate: approximate() });
    case 'scale': {
      const factor = c.inputs.has('factor') ? input('factor') : attributes.number('factor');
      return planScale(input('x'), factor, output('out', 'x'), { softcap: attributes.optionalNumber('softcap') });
    }
    case 'layer_norm': {
      const bias = c.inputs.has('bias') ? input('bias') : undefined;
      return planLayerNorm(input('x'), input('weight'), bias, attributes.number('eps'), output('y', 'x'));
    }
    case 'rms_norm':
      return planRmsNorm(input('x'), input('weight'), attributes.number('eps'), output('y', 'x'));
    case 'linear': {
      const x = input('x');
      const weight = weightOf(input('weight'), attributes, where);
      const bias = c.inputs.has('bias') ? input('bias') : undefined;
      return planLinear(x, weight, bias, output('y', 'x', [...x.shape.slice(0, -1), weight.shape[0] ?? 0]));
    }
    case 'self_attention': {
      const [q, k, v] = [input('q'), input('k'), input('v')];
      return planSelfAttention(q, k, v, output('attn_val', 'q', [...q.shape.slice(0, -1), v.shape.at(-1) ?? 0]), {
        scale: attributes.number('scale'),
        causal: attributes.optionalFlag('causal'),
        window: attributes.optionalNumber('window'),
        softcap: attributes.optionalNumber('softcap'),
        sinks: c.inputs.has('sinks') ? input('sinks') : undefined,
      });
    }
    case 'route': {
      const logits = input('logits');
      const shape = [logits.shape[0] ?? 0, attributes.integer('chosen', 0)];
      const groups = attributes.has('groups') ? attributes.object('groups') : undefined;
      return planRoute(logits, output('indices', 'logits', shape, 'i32'), output('weights', 'logits', shape), {
        gate: attributes.oneOf('gate', ['softmax', 'sigmoid', 'softmax-of-chosen']),
        bias: c.inputs.has('bias') ? input('bias') : undefined,
        groups: groups && {
          count: groups.integer('count'),
          used: groups.integer('used'),
          best: groups.integer('best') as 1 | 2,
        },
        normalise: attributes.optionalFlag('normalise'),
        scale: attributes.optionalNumber('scale'),
      });
    }
    case 'expert_linear': {
      const [x, indices] = [input('x'), input('indices')];
      const weight = weightOf(input('weight'), attributes, where);
      const weights = c.inputs.has('weights') ? input('weights') : undefined;
      const bias = c.inputs.has('bias') ? input('bias') : undefined;
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

/** A weight as it is, or its bytes as the blocks that the attributes say. */
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

/** A host tensor's elements as float64, row-major. */
export function floats(tensor: Tensor): Float64Array {
  return tensor.readNumbers() as Float64Array;
}

/** A case's outputs by the reference on float64 tensors and tables; dense. Copied elements stay as they are. */
export function exactOutputs(c: GoldenQuestion): ReadonlyMap<string, Tensor> {
  const runner = referenceRunner();
  const { plan, outputs } = bindGolden(c, runner, true);
  runner.run(plan);
  return outputs;
}

/** Makes a dense host tensor of integers. */
export function integerTensor<D extends 'i32' | 'i64'>(
  dtype: D,
  shape: readonly number[],
  values: ArrayLike<number>,
): Tensor<D> {
  const data = newArray(dtype, countElements(shape));
  for (let n = 0; n < data.length; n++) data[n] = dtype === 'i64' ? BigInt(values[n]!) : values[n]!;
  return tensorFrom<D>(data, { dtype, shape });
}
