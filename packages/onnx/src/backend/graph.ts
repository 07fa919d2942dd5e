/**
 * Turns a plan into a graph with dense inputs and outputs, and moves elements between tensors and the graph.
 *
 * A graph sees dense tensors. The host handles strides and the rows of a KV cache. Where elements are only moved,
 * 16-bit floats cross as integers, so that every NaN keeps its bits; where they are computed with, they cross as f32,
 * which holds them exactly.
 *
 * @module
 */
import type { ArrayOf, BlockTensor, Dtype, HostArray, OpPlan, TensorStorage } from 'ropewalk';
import { isBlocks, numberFromF16, Tensor } from 'ropewalk';
import { isRowMajor, newArray, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import type { RopePart } from 'ropewalk/internal';
import { bitsOf, copyBits, countElements, extentOf, isFloat8, isHalf, type Layout, walkPair } from 'ropewalk/internal';
import type { GraphBuilder } from '../export/builder.js';
import { emitPlan } from '../export/emit.js';
import type { EmitOptions } from '../export/plan-graph.js';

export interface Source {
  readonly name: string;
  /** Describes where the elements are, in the shape that the graph takes. */
  readonly tensor: Tensor;
  /** The dtype that the graph declares: u16 where 16-bit floats are only moved. */
  readonly dtype: Dtype;
  /** Set where `tensor` holds blocks and the graph takes their weights as f32. */
  readonly blocks?: BlockTensor;
}

/** A graph that is ready to run, or the reason why there is none. */
export type Prepared =
  | { readonly whyNot: string }
  | {
      readonly whyNot: undefined;
      /** False if every output is empty. */
      readonly anything: boolean;
      readonly inputs: readonly Source[];
      readonly outputs: readonly Target[];
    };

/**
 * Makes the graph of a plan.
 *
 * @param builder - an empty builder, which gets the graph
 * @param plan - the result of {@link withStandIns} or {@link withDenseStandIns}
 */
export function prepare(builder: GraphBuilder, plan: OpPlan, options: EmitOptions): Prepared {
  const emitted = emitPlan(builder, plan, options);
  if ('whyNot' in emitted) return emitted;
  const outputs = emitted.outputs.map(({ name, tensor }) => target(name, tensor));
  const float8 = outputs.find(({ dtype }) => isFloat8(dtype)); // only rearrange has outputs of these dtypes
  if (float8) return { whyNot: `runtimes of graphs have no tensors of ${float8.dtype}` };
  const inputs = emitted.inputs.map(({ name, tensor }) => source(name, tensor));
  const anything = outputs.some(({ pieces }) => pieces.some(({ to }) => countElements(to.shape) > 0));
  return { whyNot: undefined, anything, inputs, outputs };
}

/** Replaces another storage while a graph is made. Nothing reads its elements. */
class StandInStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'a graph under construction';
  readonly host = undefined;
  constructor(
    readonly dtype: D,
    readonly length: number,
    /** The storage that it replaces, and the element there with which it begins. */
    readonly real: TensorStorage,
    readonly shift: number,
    /** Set where elements go to other places than their own. */
    readonly pieces?: readonly Piece[],
    /** The input that it replaces as a whole, whatever its layout is. */
    readonly whole?: Tensor | BlockTensor,
  ) {}

  read(): ArrayOf[D] {
    return newArray(this.dtype, 0);
  }
}

/** Replaces the tensors of a plan by ones that ONNX Runtime can take. {@link prepare} finds the originals. */
export function withStandIns(plan: OpPlan): OpPlan {
  if (plan.op === 'rope')
    return plan.parts.some(({ rows }) => rows) ? { ...plan, parts: plan.parts.map((part) => withoutRows(part)) } : plan;
  if (plan.op === 'embedding') {
    const { weight, out } = plan;
    return !isBlocks(weight) && weight.dtype === out.dtype && isHalf(out.dtype)
      ? { ...plan, weight: asBits(weight), out: asBits(out) }
      : plan;
  }
  if (plan.op !== 'rearrange') return plan;
  const { x, out } = plan;
  const bits = x.dtype === out.dtype;
  return { ...plan, x: extent(x, bits), out: extent(out, bits, true) };
}

/** Replaces the tensors of a plan by dense ones. The caller handles layouts, rows of a cache and blocks. */
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

function source(name: string, tensor: Tensor): Source {
  const { storage, shape, strides, offset, dtype } = tensor;
  if (!(storage instanceof StandInStorage)) return { name, tensor, dtype };
  const { whole } = storage;
  if (whole)
    return isBlocks(whole) ? { name, tensor: whole.bytes, dtype, blocks: whole } : { name, tensor: whole, dtype };
  return { name, tensor: new Tensor(storage.real, { shape, strides, offset: offset + storage.shift }), dtype };
}

function target(name: string, tensor: Tensor): Target {
  const { storage, shape, strides, dtype } = tensor;
  if (!(storage instanceof StandInStorage))
    return { name, storage, dtype, pieces: [{ from: denseLayout(shape), to: tensor }], order: undefined };
  if (!storage.pieces) {
    const to = { shape, strides, offset: tensor.offset + storage.shift };
    return { name, storage: storage.real, dtype, pieces: [{ from: denseLayout(shape), to }], order: undefined };
  }
  // The graph may write the storage in any order, for example with heads before tokens.
  const inOrder = tensor.isContiguous() && tensor.offset === 0;
  return { name, storage: storage.real, dtype, pieces: storage.pieces, order: inOrder ? undefined : tensor };
}

function asBits(tensor: Tensor): Tensor {
  const { storage, shape, strides, offset } = tensor;
  return new Tensor(new StandInStorage('u16', storage.length, storage, 0), { shape, strides, offset });
}

/** Views the part of the storage that the tensor reaches. Of an output, no other elements are written. */
function extent(tensor: Tensor, asBits: boolean, output = false): Tensor {
  const { storage, shape, strides, offset } = tensor;
  const [low, high] = extentOf(tensor) ?? [offset, offset - 1];
  const inside = { shape, strides, offset: offset - low };
  const pieces = output ? [{ from: inside, to: tensor }] : undefined;
  const dtype = asBits && isHalf(tensor.dtype) ? 'u16' : tensor.dtype;
  return new Tensor(new StandInStorage(dtype, high - low + 1, storage, low, pieces), inside);
}

/** Keeps the tokens of a part in their order. The host writes them to their rows. */
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

export function denseLayout(shape: readonly number[]): Layout {
  return { shape, strides: rowMajorStrides(shape), offset: 0 };
}

export interface Target {
  readonly name: string;
  readonly storage: TensorStorage;
  readonly dtype: Dtype;
  /** Says which elements of the output go where in the storage. */
  readonly pieces: readonly Piece[];
  /** The layout in which the graph writes the elements, where they are not in row-major order. */
  readonly order: Layout | undefined;
}

/** Elements of an output and their places: two layouts of the same shape. */
export interface Piece {
  readonly from: Layout;
  readonly to: Layout;
}

/** The f32 bits of every f16. A NaN keeps its fraction. */
let wideF16: Uint32Array | undefined;

function widerF16(): Uint32Array {
  const wide = Float32Array.from({ length: 65536 }, (_, half) => numberFromF16(half));
  const bits = new Uint32Array(wide.buffer);
  for (const [half, value] of wide.entries())
    if (Number.isNaN(value)) bits[half] = ((half & 0x8000) << 16) | 0x7f800000 | ((half & 0x3ff) << 13);
  return bits;
}

/**
 * Packs elements for a graph: dense, row-major, 16-bit floats widened to f32.
 *
 * @param data - the elements that `layout` describes
 * @param mayShare - allows a result that is a part of `data`
 */
export function pack(data: HostArray, dtype: Dtype, layout: Layout, mayShare: boolean): HostArray {
  const count = countElements(layout.shape);
  const dense = isRowMajor(layout);
  if (!isHalf(dtype)) {
    if (dense && mayShare) return data.subarray(layout.offset, layout.offset + count);
    const packed = newArray(dtype, count);
    copyBits(data, layout, packed, denseLayout(layout.shape));
    return packed;
  }
  const packed = new Float32Array(count);
  const from = data as Uint16Array;
  const bits = bitsOf(packed) as Uint32Array;
  let n = 0;
  if (dtype === 'bf16') walkPair(layout.shape, layout, layout, (at) => void (bits[n++] = from[at]! << 16));
  else {
    const table = (wideF16 ??= widerF16());
    walkPair(layout.shape, layout, layout, (at) => void (bits[n++] = table[from[at]!]!));
  }
  return packed;
}

/**
 * Writes an output of a graph to its places. All other elements keep their bits.
 */
export function unpack(packed: HostArray, data: HostArray, { dtype, pieces, order }: Target): void {
  let elements = isHalf(dtype) ? narrowed(packed as Float32Array, dtype) : packed;
  if (order) {
    const ordered = newArray(dtype, elements.length);
    copyBits(elements, denseLayout(order.shape), ordered, order);
    elements = ordered;
  }
  for (const { from, to } of pieces) copyBits(elements, from, data, to);
}

/** Rounds f32 to 16-bit floats. Numbers that were widened before come back exactly. */
export function narrowed(wide: Float32Array, dtype: 'f16' | 'bf16'): ArrayOf['f16'] {
  const narrow = new Uint16Array(wide.length);
  const bits = bitsOf(wide) as Uint32Array;
  for (const [n, value] of wide.entries()) {
    if (Number.isNaN(value)) narrow[n] = narrowNan(bits[n]!, dtype);
    else storeNumber(narrow, dtype, n, value);
  }
  return narrow;
}

/** A NaN that was widened gets its bits back. Any other NaN keeps its sign and the upper bits of its fraction. */
function narrowNan(bits: number, dtype: 'f16' | 'bf16'): number {
  const [infinity, fraction] = dtype === 'f16' ? [0x7c00, (bits >>> 13) & 0x3ff] : [0x7f80, (bits >>> 16) & 0x7f];
  return ((bits >>> 16) & 0x8000) | infinity | (fraction || 1);
}
