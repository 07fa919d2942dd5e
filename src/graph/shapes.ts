/**
 * Types and shapes of every value of a graph that our emitters write, checked against the operators' definitions.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import { type Dtype, sizeBytes } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { countElements } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { DTYPE_OF, type OnnxAttribute, type OnnxModel, type OnnxNode } from '../formats/onnx.js';
import { ONNX_BOOL } from './builder.js';

/** A value's type and shape. */
export interface ValueType {
  readonly dtype: Dtype | 'bool';
  readonly shape: readonly number[];
}

/** Bytes of a value. */
export function bytesOf({ dtype, shape }: ValueType): number {
  return countElements(shape) * (dtype === 'bool' ? 1 : sizeBytes(dtype));
}

/**
 * Finds type and shape of every value.
 *
 * @param model - a graph of the operators that src/graph emits
 * @param sizes - of open dimensions, by name
 * @returns by name: inputs, constants and what nodes write
 * @throws {RopewalkError} FORMAT for a value that is used before it is there or written twice, types that an operator does not take, shapes that
 *   do not fit, or outputs that are not as declared; RANGE for an open dimension without a size
 */
export function valueTypes(
  model: OnnxModel,
  sizes: Readonly<Record<string, number>> = {},
): ReadonlyMap<string, ValueType> {
  const types = new Map<string, ValueType>();
  const define = (name: string, type: ValueType): void => {
    if (types.has(name)) refuse('FORMAT', `graph: ${name}`, 'each value once', 'a second one');
    types.set(name, type);
  };
  const sized = (shape: readonly (number | string)[]): number[] =>
    shape.map((dim) =>
      typeof dim === 'number' ? dim : (sizes[dim] ?? refuse('RANGE', `graph: ${dim}`, 'a size', undefined)),
    );
  for (const { name, dtype, shape } of model.inputs) define(name, { dtype, shape: sized(shape) });
  for (const [name, tensor] of model.initializers) define(name, { dtype: tensor.dtype, shape: tensor.shape });
  for (const [n, node] of model.nodes.entries()) {
    const where = `graph: node ${n}, ${node.opType}`;
    const inputs = node.inputs.map((name) => types.get(name) ?? refuse('FORMAT', where, 'a value that is there', name));
    const constants = node.inputs.map((name) => model.initializers.get(name));
    const results = new NodeTypes(node, inputs, constants, where).results();
    if (results.length !== node.outputs.length)
      refuse('FORMAT', where, `${results.length} outputs`, node.outputs.length);
    for (const [o, name] of node.outputs.entries()) define(name, results[o]!);
  }
  for (const { name, dtype, shape } of model.outputs) {
    const type = types.get(name) ?? refuse('FORMAT', `graph: output ${name}`, 'a value that is there', undefined);
    const wanted = sized(shape);
    if (type.dtype !== dtype || type.shape.join() !== wanted.join())
      refuse('FORMAT', `graph: output ${name}`, `${dtype} [${wanted}]`, `${type.dtype} [${type.shape}]`);
  }
  return types;
}

const FLOATS = ['f64', 'f32', 'f16', 'bf16'] as const;
const INTEGERS = ['i32', 'i64', 'u8', 'u16', 'i8', 'i16', 'u32', 'u64'] as const;

/** One node's results. */
class NodeTypes {
  constructor(
    private readonly node: OnnxNode,
    private readonly inputs: readonly ValueType[],
    private readonly constants: readonly (Tensor | undefined)[],
    private readonly where: string,
  ) {}

  results(): readonly ValueType[] {
    const { opType } = this.node;
    switch (opType) {
      case 'Add':
      case 'Sub':
      case 'Mul':
      case 'Div':
      case 'Mod':
      case 'Min':
      case 'Max':
        return [this.typed(this.same([0, 1], [...FLOATS, ...INTEGERS]), this.broadcast([0, 1]))];
      case 'Less':
      case 'Equal':
        this.same([0, 1], [...FLOATS, ...INTEGERS]);
        return [this.typed('bool', this.broadcast([0, 1]))];
      case 'And':
        this.same([0, 1], ['bool']);
        return [this.typed('bool', this.broadcast([0, 1]))];
      case 'Where':
        this.same([0], ['bool']);
        return [this.typed(this.same([1, 2], [...FLOATS, ...INTEGERS]), this.broadcast([0, 1, 2]))];
      case 'Neg':
      case 'Abs':
      case 'Exp':
      case 'Tanh':
      case 'Sqrt':
      case 'Sin':
      case 'Cos':
      case 'Round':
      case 'Softmax':
        return [this.typed(this.same([0], FLOATS), this.shape(0))];
      case 'IsNaN':
        this.same([0], FLOATS);
        return [this.typed('bool', this.shape(0))];
      case 'Identity':
        return [this.inputs[0]!];
      case 'Cast': {
        const to = this.integer('to');
        return [this.typed(to === ONNX_BOOL ? 'bool' : (DTYPE_OF.get(to) ?? this.wrong('to')), this.shape(0))];
      }
      case 'Unsqueeze':
        return [this.typed(this.inputs[0]!.dtype, this.unsqueezed())];
      case 'Squeeze':
        if (this.given(1).join() !== '0' || this.shape(0)[0] !== 1) this.wrong('axes');
        return [this.typed(this.inputs[0]!.dtype, this.shape(0).slice(1))];
      case 'Reshape':
        return [this.typed(this.inputs[0]!.dtype, this.reshaped())];
      case 'Transpose': {
        const perm = this.integers('perm');
        if (
          [...perm].sort((a, b) => a - b).join() !==
          this.shape(0)
            .map((_, d) => d)
            .join()
        )
          this.wrong('perm');
        return [
          this.typed(
            this.inputs[0]!.dtype,
            perm.map((dim) => this.shape(0)[dim]!),
          ),
        ];
      }
      case 'Gather': {
        this.same([1], ['i32', 'i64']);
        const axis = this.axis(0);
        return [
          this.typed(this.inputs[0]!.dtype, [
            ...this.shape(0).slice(0, axis),
            ...this.shape(1),
            ...this.shape(0).slice(axis + 1),
          ]),
        ];
      }
      case 'GatherElements':
        this.same([1], ['i32', 'i64']);
        return [this.typed(this.inputs[0]!.dtype, this.shape(1))];
      case 'ScatterElements':
      case 'ScatterND': {
        this.same([1], ['i64']);
        this.same([0, 2], [...FLOATS, ...INTEGERS]);
        const indices = this.shape(1);
        const updates =
          opType === 'ScatterElements'
            ? indices
            : [...indices.slice(0, -1), ...this.shape(0).slice(indices.at(-1) ?? this.wrong('indices'))];
        if (updates.join() !== this.shape(2).join()) this.wrong('updates');
        return [this.inputs[0]!];
      }
      case 'Split':
        return this.split();
      case 'Concat': {
        const dtype = this.same([...this.inputs.keys()], [...FLOATS, ...INTEGERS]);
        const axis = this.axis(0);
        for (const { shape } of this.inputs)
          if (shape.with(axis, 0).join() !== this.shape(0).with(axis, 0).join()) this.wrong('shapes');
        const sum = this.inputs.reduce((total, { shape }) => total + shape[axis]!, 0);
        return [this.typed(dtype, this.shape(0).with(axis, sum))];
      }
      case 'ReduceSum':
      case 'ReduceMean': {
        const [axis] = this.given(1);
        if (axis !== -1) this.wrong('axes');
        const kept = this.shape(0).slice(0, -1);
        return [this.typed(this.same([0], FLOATS), this.integer('keepdims') === 1 ? [...kept, 1] : kept)];
      }
      case 'ArgMax':
        this.same([0], ['f32', 'f64', 'f16']);
        return [this.typed('i64', this.shape(0).with(this.axis(0), 1))];
      case 'MatMul': {
        const [a, b] = [this.shape(0), this.shape(1)];
        if (a.at(-1) !== b.at(-2)) this.wrong('shapes');
        const lead = this.broadcastOf([a.slice(0, -2), b.slice(0, -2)]);
        return [this.typed(this.same([0, 1], FLOATS), [...lead, ...a.slice(-2, -1), b.at(-1)!])];
      }
      case 'Gemm': {
        const [[m, k], [n, depth]] = [this.shape(0), this.shape(1)] as [number[], number[]];
        if (k !== depth || this.integer('transB') !== 1 || (this.inputs[2] && this.shape(2).join() !== `${n}`))
          this.wrong('shapes');
        return [this.typed(this.same([...this.inputs.keys()], FLOATS), [m!, n!])];
      }
      case 'RMSNormalization':
        if (this.shape(1).join() !== `${this.shape(0).at(-1)}`) this.wrong('scale');
        return [this.typed(this.same([0, 1], FLOATS), this.shape(0))];
      case 'RotaryEmbedding':
        return [this.rotaryEmbedding()];
      case 'Attention':
        return [this.attention()];
      default:
        return refuse('FORMAT', this.where, 'an operator that src/graph emits', opType);
    }
  }

  private rotaryEmbedding(): ValueType {
    const dtype = this.same([0, 1, 2], ['f32', 'f16', 'bf16']);
    const x = this.shape(0);
    const numHeads = this.attribute('num_heads');
    const heads = numHeads && 'i' in numHeads ? numHeads.i : 0;
    if (x.length === 3 ? heads === 0 || x[2]! % heads !== 0 : x.length !== 4) this.wrong('X');
    const [seq, headDim] = x.length === 3 ? [x[1]!, x[2]! / heads] : [x[2]!, x[3]!];
    const partial = this.attribute('rotary_embedding_dim');
    const pairs = (partial && 'i' in partial && partial.i > 0 ? partial.i : headDim) / 2;
    const cos = this.shape(1);
    if (cos.join() !== this.shape(2).join() || cos.at(-1) !== pairs) this.wrong('caches');
    if (this.inputs.length > 3) {
      this.same([3], ['i64']);
      if (cos.length !== 2 || this.shape(3).join() !== [x[0], seq].join()) this.wrong('position_ids');
    } else if (cos.length !== 3 || cos[0] !== x[0] || cos[1] !== seq) this.wrong('caches');
    return this.typed(dtype, x);
  }

  private attention(): ValueType {
    const dtype = this.same([...this.inputs.keys()], FLOATS);
    const [q, k, v] = [this.shape(0), this.shape(1), this.shape(2)];
    const [heads, kvHeads] = [this.integer('q_num_heads'), this.integer('kv_num_heads')];
    if (q.length !== 3 || q[2]! / heads !== k[2]! / kvHeads || k[1] !== v[1] || q[0] !== k[0]) this.wrong('shapes');
    if (this.inputs[3] && this.shape(3).join() !== [q[1], k[1]].join()) this.wrong('attn_mask');
    return this.typed(dtype, [q[0]!, q[1]!, (v[2]! / kvHeads) * heads]);
  }

  private split(): readonly ValueType[] {
    const axis = this.axis(0);
    const { dtype } = this.inputs[0]!;
    const whole = this.shape(0)[axis]!;
    const parts =
      this.inputs.length > 1
        ? this.given(1)
        : Array.from({ length: this.integer('num_outputs') }, () => whole / this.integer('num_outputs'));
    if (parts.reduce((sum, part) => sum + part, 0) !== whole) this.wrong('sizes');
    return parts.map((part) => this.typed(dtype, this.shape(0).with(axis, part)));
  }

  private unsqueezed(): number[] {
    const axes = this.given(1);
    const rank = this.shape(0).length + axes.length;
    const places = new Set(axes.map((axis) => (axis < 0 ? axis + rank : axis)));
    const left = [...this.shape(0)];
    return Array.from({ length: rank }, (_, d) => (places.has(d) ? 1 : left.shift()!));
  }

  private reshaped(): number[] {
    const zero = this.attribute('allowzero');
    const literal = zero !== undefined && 'i' in zero && zero.i === 1;
    const shape = this.given(1).map((dim, d) => (dim === 0 && !literal ? this.shape(0)[d]! : dim));
    if (countElements(shape) !== countElements(this.shape(0))) this.wrong('shape');
    return shape;
  }

  private typed(dtype: Dtype | 'bool', shape: readonly number[]): ValueType {
    return { dtype, shape };
  }

  private shape(input: number): readonly number[] {
    return (this.inputs[input] ?? this.wrong('inputs')).shape;
  }

  /** The one dtype of some inputs. */
  private same(which: readonly number[], allowed: readonly (Dtype | 'bool')[]): Dtype | 'bool' {
    const dtypes = new Set(which.map((input) => (this.inputs[input] ?? this.wrong('inputs')).dtype));
    const [dtype] = dtypes;
    if (dtypes.size !== 1 || !allowed.includes(dtype!))
      refuse('FORMAT', `${this.where}: dtypes`, `one of ${allowed.join(', ')}`, [...dtypes]);
    return dtype!;
  }

  private broadcast(which: readonly number[]): number[] {
    return this.broadcastOf(which.map((input) => this.shape(input)));
  }

  private broadcastOf(shapes: readonly (readonly number[])[]): number[] {
    const rank = Math.max(...shapes.map((shape) => shape.length));
    return Array.from({ length: rank }, (_, d) => {
      const dims = new Set(shapes.map((shape) => shape[d - rank + shape.length] ?? 1));
      dims.delete(1);
      if (dims.size > 1) this.wrong('shapes');
      return dims.size === 0 ? 1 : [...dims][0]!;
    });
  }

  private attribute(name: string): OnnxAttribute | undefined {
    return this.node.attributes?.[name];
  }

  private integer(name: string): number {
    const given = this.attribute(name);
    return given && 'i' in given ? given.i : this.wrong(name);
  }

  private integers(name: string): readonly number[] {
    const given = this.attribute(name);
    return given && 'ints' in given ? given.ints : this.wrong(name);
  }

  private axis(input: number): number {
    const axis = this.integer('axis');
    return axis < 0 ? axis + this.shape(input).length : axis;
  }

  /** The integers of a constant input. */
  private given(input: number): readonly number[] {
    const tensor = this.constants[input];
    if (tensor?.dtype !== 'i64') return this.wrong('a constant of i64');
    return [...(tensor.readNumbers() as Float64Array)];
  }

  private wrong(what: string): never {
    const given = this.inputs.map(({ dtype, shape }) => `${dtype} [${shape}]`).join(', ');
    return refuse('FORMAT', `${this.where}: ${what}`, 'what the operator takes', given);
  }
}
