/**
 * From a plan to a graph: its input and output tensors, and where their elements are.
 *
 * A graph sees dense tensors. Where elements are only moved, 16-bit floats are moved as integers, so that every NaN
 * keeps its bits. The host writes rows of a KV cache, as it does strides.
 *
 * @module
 */
import type { ArrayOf, BlockTensor, Dtype, OpPlan, RopePart, TensorStorage } from 'ropewalk';
import { isBlocks, isFloat8, Tensor } from 'ropewalk';
import { newArray, rowMajorStrides, unknownPlan } from 'ropewalk/backend';
import { countElements, extentOf, isHalf, type Layout } from 'ropewalk/internal';
import type { GraphBuilder } from '../export/builder.js';
import { type EmitOptions, emitPlan } from '../export/emit.js';
import type { Piece, Target } from './pack.js';

/** An input of a graph. */
export interface Source {
  readonly name: string;
  /** Where its elements are, in the shape that the graph takes. */
  readonly tensor: Tensor;
  /** What the graph takes them for: u16 where halves are moved. */
  readonly dtype: Dtype;
  /** The weights that the graph takes as f32 where `tensor` holds blocks. */
  readonly blocks?: BlockTensor;
}

/** A graph ready to run, or the reason why there is none. */
export type Prepared =
  | { readonly whyNot: string }
  | {
      readonly whyNot: undefined;
      /** Whether any element is to be written. */
      readonly anything: boolean;
      readonly inputs: readonly Source[];
      readonly outputs: readonly Target[];
    };

/**
 * Makes a plan's graph.
 *
 * @param builder - takes it; empty
 * @param plan - over {@link withStandIns}
 */
export function prepare(builder: GraphBuilder, plan: OpPlan, options: EmitOptions): Prepared {
  const emitted = emitPlan(builder, plan, options);
  if ('whyNot' in emitted) return emitted;
  const outputs = emitted.outputs.map(({ name, tensor }) => target(name, tensor));
  const float8 = outputs.find(({ dtype }) => isFloat8(dtype)); // moved: nothing else takes these
  if (float8) return { whyNot: `runtimes of graphs have no tensors of ${float8.dtype}` };
  const inputs = emitted.inputs.map(({ name, tensor }) => source(name, tensor));
  const anything = outputs.some(({ pieces }) => pieces.some(({ to }) => countElements(to.shape) > 0));
  return { whyNot: undefined, anything, inputs, outputs };
}

/** Stands for other storage while a graph is made: nothing reads it. */
class StandInStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'a graph under construction';
  readonly host = undefined;
  constructor(
    readonly dtype: D,
    readonly length: number,
    /** What it stands for, and the element there that its first one is. */
    readonly real: TensorStorage,
    readonly shift: number,
    /** Which of its elements go where, if not all of them to the same places. */
    readonly pieces?: readonly Piece[],
    /** The input that it stands for as a whole, whatever its layout. */
    readonly whole?: Tensor | BlockTensor,
  ) {}

  read(): ArrayOf[D] {
    return newArray(this.dtype, 0);
  }
}

/** The same call, over tensors that a graph of ONNX Runtime can take: {@link prepare} finds the originals again. */
export function withStandIns(plan: OpPlan): OpPlan {
  switch (plan.op) {
    case 'rope':
      return plan.parts.some(({ rows }) => rows)
        ? { ...plan, parts: plan.parts.map((part) => withoutRows(part)) }
        : plan;
    case 'embedding': {
      const { weight, out } = plan;
      return !isBlocks(weight) && weight.dtype === out.dtype && isHalf(out.dtype)
        ? { ...plan, weight: asBits(weight), out: asBits(out) }
        : plan;
    }
    case 'rearrange': {
      const { x, out } = plan;
      const bits = x.dtype === out.dtype;
      return { ...plan, x: extent(x, bits), out: extent(out, bits, true) };
    }
    case 'add':
    case 'argmax':
    case 'linear':
    case 'rms_norm':
    case 'self_attention':
    case 'swiglu':
    case 'expert_linear':
    case 'geglu':
    case 'gelu':
    case 'layer_norm':
    case 'route':
    case 'scale':
      return plan;
    default:
      return unknownPlan(plan satisfies never);
  }
}

/** The same call for a graph in which every tensor is dense: layouts, rows of a cache and blocks are its caller's. */
export function withDenseStandIns(plan: OpPlan): OpPlan {
  if (plan.op === 'rope') return { ...plan, parts: plan.parts.map((part) => withoutRows(part)) };
  if (plan.op === 'rearrange') {
    const { x, out } = plan;
    const shape = [x.size];
    const from = new StandInStorage(x.dtype, x.size, x.storage, 0, undefined, x);
    const to = new StandInStorage(out.dtype, x.size, out.storage, 0, [{ from: denseLayout(out.shape), to: out }]);
    return { ...plan, x: new Tensor(from, { shape }), out: new Tensor(to, { shape }) };
  }
  if ('weight' in plan && isBlocks(plan.weight)) {
    const { weight } = plan;
    const { shape } = weight;
    const floats = new StandInStorage('f32', countElements(shape), weight.bytes.storage, 0, undefined, weight);
    return { ...plan, weight: new Tensor(floats, { shape }) } as OpPlan;
  }
  return plan;
}

/** Where the elements of a graph's input are. */
function source(name: string, tensor: Tensor): Source {
  const { storage, shape, strides, offset, dtype } = tensor;
  if (!(storage instanceof StandInStorage)) return { name, tensor, dtype };
  const { whole } = storage;
  if (whole)
    return isBlocks(whole) ? { name, tensor: whole.bytes, dtype, blocks: whole } : { name, tensor: whole, dtype };
  return { name, tensor: new Tensor(storage.real, { shape, strides, offset: offset + storage.shift }), dtype };
}

/** Where the elements of a graph's output go. */
function target(name: string, tensor: Tensor): Target {
  const { storage, shape, strides, dtype } = tensor;
  if (!(storage instanceof StandInStorage))
    return { name, storage, dtype, pieces: [{ from: denseLayout(shape), to: tensor }], order: undefined };
  if (!storage.pieces) {
    const to = { shape, strides, offset: tensor.offset + storage.shift };
    return { name, storage: storage.real, dtype, pieces: [{ from: denseLayout(shape), to }], order: undefined };
  }
  // The graph may write the storage in any order: with heads before tokens, say.
  const inOrder = tensor.isContiguous() && tensor.offset === 0;
  return { name, storage: storage.real, dtype, pieces: storage.pieces, order: inOrder ? undefined : tensor };
}

/** The tensor's bits as integers. */
function asBits(tensor: Tensor): Tensor {
  const { storage, shape, strides, offset } = tensor;
  return new Tensor(new StandInStorage('u16', storage.length, storage, 0), { shape, strides, offset });
}

/** The tensor over just the part of the storage that it reaches. Of an output, no other elements are written. */
function extent(tensor: Tensor, asBits: boolean, output = false): Tensor {
  const { storage, shape, strides, offset } = tensor;
  const [low, high] = extentOf(tensor) ?? [offset, offset - 1];
  const inside = { shape, strides, offset: offset - low };
  const pieces = output ? [{ from: inside, to: tensor }] : undefined;
  const dtype = asBits && isHalf(tensor.dtype) ? 'u16' : tensor.dtype;
  return new Tensor(new StandInStorage(dtype, high - low + 1, storage, low, pieces), inside);
}

/** A part whose tokens stay in order: the host writes them to their rows. */
function withoutRows(part: RopePart): RopePart {
  const { x, out, rows, blockSize } = part;
  if (!rows || blockSize !== undefined || rows.includes(-1)) return part; // emitPlan refuses the last two
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  const token = denseLayout([heads, headDim]);
  const pieces = Array.from(rows, (row, n) => {
    const offset = out.offset + Math.floor(n / seq) * out.strides[0]! + row * out.strides[1]!;
    const to = { shape: token.shape, strides: out.strides.slice(2), offset };
    return { from: { ...token, offset: n * heads * headDim }, to };
  });
  const storage = new StandInStorage(out.dtype, batch * seq * heads * headDim, out.storage, 0, pieces);
  return { ...part, out: new Tensor(storage, { shape: [batch, seq, heads, headDim] }), rows: undefined };
}

/** The layout of dense elements. */
export function denseLayout(shape: readonly number[]): Layout {
  return { shape, strides: rowMajorStrides(shape), offset: 0 };
}
