/**
 * A golden case: the inputs of one call of one operator, what must come out, and how far off a right kernel may be.
 *
 * A case is bound to a runner by {@link bindGolden}, which reads nothing but inputs and attributes; so a case that was just made and one
 * read from a folder run alike, and the exact result can always be computed anew.
 *
 * @module
 */
import { blocksFrom } from '../../core/blocks.js';
import { type ArrayOf, type Dtype, type FloatDtype, isFloat, newArray } from '../../core/dtypes.js';
import { refuse } from '../../core/errors.js';
import { countElements } from '../../core/shape.js';
import { Tensor, tensorFrom, zeros } from '../../core/tensor.js';
import { planAdd } from '../../ops/add.js';
import { planArgmax } from '../../ops/argmax.js';
import { planEmbedding } from '../../ops/embedding.js';
import { planLinear } from '../../ops/linear.js';
import { planRearrange } from '../../ops/rearrange.js';
import { planRmsNorm } from '../../ops/rms-norm.js';
import { bindRopeParts, type RopeLayout } from '../../ops/rope/call.js';
import { type PlanRopeOptions, planRope, type RopeSpec } from '../../ops/rope/plan.js';
import type { OpName, OpPlan, Runner } from '../../ops/runner.js';
import { planSelfAttention } from '../../ops/self-attention.js';
import { planSwiglu } from '../../ops/swiglu.js';
import { referenceRunner } from '../../reference/index.js';
import { boundedShape } from '../host.js';

/** What JSON can hold. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** How far a right kernel may be from the expected output, and why. */
export interface ToleranceRecord {
  /** The name of a formula in docs/vectors.md: `bits`, `rotation`, `sum`, `norm`, `dot`, `attention`, `gate`. */
  readonly formula: string;
  /** The numbers that go into it. */
  readonly parameters: Readonly<Record<string, number>>;
  /** Where formula and numbers come from, one sentence. */
  readonly from: string;
  /** For readers that know no formula: no right kernel is further off than `atol + rtol · |expected|`, at any element. */
  readonly atol: number;
  readonly rtol: number;
}

/** One tensor of a RoPE case, by the names of its tensors. */
export interface GoldenRopePart {
  /** The input that turns. */
  readonly x: string;
  readonly out: string;
  /** The initial content of `out`, where it is a KV cache whose other rows must stay as they are. */
  readonly cache?: string;
  /** The row of the cache for each token. */
  readonly rows?: string;
  /** RMS norm of each head, before the rotation: its weight and eps. */
  readonly weight?: string;
  readonly eps?: number;
}

/** What is particular to RoPE: ready for planRope together with the input `positions`. */
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

/** What a case is made from: outputs and tolerance follow. */
export type GoldenQuestion = Omit<GoldenCase, 'outputs' | 'tolerance'>;

/** A case in a runner's memory. */
export interface BoundGolden {
  readonly plan: OpPlan;
  /** By the names of the case's outputs, in order. */
  readonly outputs: ReadonlyMap<string, Tensor>;
}

/** Operators that copy elements bit for bit: they are never widened. */
const COPIES: readonly OpName[] = ['argmax', 'embedding', 'rearrange'];

/**
 * Says whether an operator's outputs are to be equal to the bit.
 *
 * @param op - the operator
 */
export function isExact(op: OpName): boolean {
  return COPIES.includes(op);
}

/**
 * Plans a case on a runner, with outputs in its memory.
 *
 * @param c - inputs and attributes
 * @param runner - on whom
 * @param wide - every floating tensor as float64, tables too: for the exact result
 * @throws {RopewalkError} what the plan says of inputs that do not fit
 */
export function bindGolden(c: GoldenQuestion, runner: Runner, wide = false): BoundGolden {
  const widen = wide && !isExact(c.op);
  const input = (name: string): Tensor => {
    const tensor = c.inputs.get(name) ?? refuse('FORMAT', `golden: ${c.id}`, `an input ${name}`, [...c.inputs.keys()]);
    return widen && isFloat(tensor.dtype) ? widened(tensor) : tensor;
  };
  const outputs = new Map<string, Tensor>();
  const output = (name: string, dtype: FloatDtype | Tensor['dtype'], shape: readonly number[]): Tensor => {
    const tensor = runner.allocate(
      widen && isFloat(dtype) ? 'f64' : dtype,
      boundedShape(shape, `golden: ${c.id}: ${name}`),
    );
    outputs.set(name, tensor);
    return tensor;
  };
  const attribute = (name: string): Json | undefined => c.attributes[name];
  const number = (name: string): number => {
    const value = attribute(name);
    return typeof value === 'number' ? value : refuse('FORMAT', `golden: ${c.id}: ${name}`, 'a number', value);
  };
  const like = (name: string, of: Tensor): Tensor => output(name, of.dtype, of.shape);
  const done = (plan: OpPlan): BoundGolden => ({ plan, outputs });
  switch (c.op) {
    case 'rope':
      return done(bindRope(c, input, output, (name, tensor) => outputs.set(name, tensor), wide));
    case 'add':
      return done(planAdd(input('a'), input('b'), like('c', input('a'))));
    case 'swiglu':
      return done(planSwiglu(input('gate'), input('up'), like('out', input('gate'))));
    case 'rms_norm':
      return done(planRmsNorm(input('x'), input('weight'), number('eps'), like('y', input('x'))));
    case 'linear': {
      const x = input('x');
      const format = attribute('format');
      const raw = input('weight');
      if (format !== undefined && raw.dtype !== 'u8')
        refuse('FORMAT', `golden: ${c.id}: weight`, 'bytes of blocks', raw.dtype);
      const weight =
        format === 'q8_0' || format === 'q4_0'
          ? blocksFrom(format, raw as Tensor<'u8'>, integers(attribute('weight_shape'), c.id))
          : raw;
      const bias = c.inputs.has('bias') ? input('bias') : undefined;
      return done(planLinear(x, weight, bias, output('y', x.dtype, [...x.shape.slice(0, -1), weight.shape[0] ?? 0])));
    }
    case 'self_attention': {
      const [q, k, v] = [input('q'), input('k'), input('v')];
      const optional = (name: string): number | undefined =>
        c.attributes[name] === undefined ? undefined : number(name);
      const causal = attribute('causal');
      const options = {
        scale: number('scale'),
        causal: causal !== false,
        window: optional('window'),
        softcap: optional('softcap'),
      };
      const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
      return done(
        planSelfAttention(q, k, v, output('attn_val', q.dtype, [...q.shape.slice(0, -1), v.shape.at(-1) ?? 0]), given),
      );
    }
    case 'argmax': {
      const values = input('values');
      const shape = [...values.shape.slice(0, -1), 1];
      const dtype = attribute('index_dtype') === 'i32' ? 'i32' : 'i64';
      return done(planArgmax(values, output('max_idx', dtype, shape), output('max_val', values.dtype, shape)));
    }
    case 'embedding': {
      const [index, weight] = [input('index'), input('weight')];
      return done(planEmbedding(index, weight, output('out', weight.dtype, [index.size, weight.shape[1] ?? 0])));
    }
    case 'rearrange': {
      const x = new Tensor(input('x').storage, layoutOf(attribute('x'), c.id));
      const y = startingAs(input('y_initial'));
      outputs.set('y', y);
      return done(planRearrange(x, new Tensor(y.storage, layoutOf(attribute('y'), c.id))));
    }
    default:
      return refuse('FORMAT', `golden: ${c.id}: op`, 'one of the nine operators', c.op);
  }
}

function bindRope(
  c: GoldenQuestion,
  input: (name: string) => Tensor,
  output: (name: string, dtype: Tensor['dtype'], shape: readonly number[]) => Tensor,
  keep: (name: string, tensor: Tensor) => void,
  wide: boolean,
): OpPlan {
  const rope = c.rope ?? refuse('FORMAT', `golden: ${c.id}`, 'spec, direction, layout and parts', undefined);
  const exact = wide || rope.parts.some((part) => c.inputs.get(part.x)?.dtype === 'f64');
  const options: PlanRopeOptions = {
    ...rope.spec,
    positions: input('positions'),
    direction: rope.direction,
    tableDtype: exact ? 'f64' : 'f32',
  };
  const parts = rope.parts.map((part) => {
    const x = input(part.x) as Tensor<FloatDtype>;
    const cache = part.cache === undefined ? undefined : startingAs(input(part.cache));
    if (cache) keep(part.out, cache);
    const out = (cache ?? output(part.out, x.dtype, x.shape)) as Tensor<FloatDtype>;
    return {
      x,
      out,
      ...(part.rows === undefined ? {} : { rows: input(part.rows).readNumbers() as Float64Array }),
      ...(part.weight === undefined
        ? {}
        : { norm: { weight: input(part.weight) as Tensor<FloatDtype>, eps: part.eps ?? 0 } }),
    };
  });
  return bindRopeParts(planRope(options), parts, rope.layout);
}

/** An output that has content before the call: in host memory, which every runner can write. */
function startingAs(initial: Tensor): Tensor {
  return tensorFrom(initial.read() as ArrayOf[Dtype], { dtype: initial.dtype, shape: initial.shape });
}

/** The same values in float64. */
function widened(tensor: Tensor): Tensor {
  return tensorFrom(Float64Array.from(tensor.readNumbers() as Float64Array), { shape: tensor.shape });
}

function integers(value: Json | undefined, id: string): number[] {
  if (!Array.isArray(value) || !value.every((n) => Number.isSafeInteger(n)))
    refuse('FORMAT', `golden: ${id}`, 'a list of integers', value);
  return value as number[];
}

/** `{ shape, strides, offset }` out of attributes. */
function layoutOf(value: Json | undefined, id: string): { shape: number[]; strides: number[]; offset: number } {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    refuse('FORMAT', `golden: ${id}`, 'shape, strides, offset', value);
  const fields = value as { readonly [key: string]: Json };
  const offset = fields.offset;
  if (typeof offset !== 'number') refuse('FORMAT', `golden: ${id}: offset`, 'a number', offset);
  return { shape: integers(fields.shape, id), strides: integers(fields.strides, id), offset };
}

/**
 * Computes a case's outputs exactly: the reference on float64 tensors and tables; what is copied, as it is.
 *
 * @param c - inputs and attributes
 * @returns by output, dense; float64 where the operator computes
 */
export function exactOutputs(c: GoldenQuestion): Map<string, Tensor> {
  const runner = referenceRunner();
  const bound = bindGolden(c, runner, true);
  runner.run(bound.plan);
  return new Map(bound.outputs);
}

/**
 * Names and dtypes of a case's outputs.
 *
 * @param c - inputs and attributes
 */
export function outputDtypes(c: GoldenQuestion): Map<string, Tensor['dtype']> {
  const shapesOnly: Runner = { name: 'shapes', allocate: zeros, whyNot: () => undefined, run() {}, async finish() {} };
  return new Map([...bindGolden(c, shapesOnly).outputs].map(([name, tensor]) => [name, tensor.dtype]));
}

/**
 * A dense host tensor filled by a function.
 *
 * @param dtype - an integer dtype
 * @param shape - dimensions
 * @param values - row-major
 */
export function integerTensor<D extends 'i32' | 'i64'>(
  dtype: D,
  shape: readonly number[],
  values: ArrayLike<number>,
): Tensor<D> {
  const data = newArray(dtype, countElements(shape));
  for (let n = 0; n < data.length; n++) data[n] = dtype === 'i64' ? BigInt(values[n]!) : values[n]!;
  return tensorFrom<D>(data, { dtype, shape });
}
