/**
 * Elements on their way between tensors and graphs: dense, row-major, and 16-bit floats as f32, which holds them
 * exactly.
 *
 * @module
 */
import { type ArrayOf, type Dtype, type HostArray, numberFromF16, type TensorStorage } from 'ropewalk';
import { isRowMajor, newArray, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import { bitsOf, copyBits, countElements, isHalf, type Layout, walkPair } from 'ropewalk/internal';

/** An output of a graph. */
export interface Target {
  readonly name: string;
  readonly storage: TensorStorage;
  readonly dtype: Dtype;
  /** Which elements of the output go where in the storage. */
  readonly pieces: readonly Piece[];
  /** The layout of the output's elements for the pieces' `from`, where that is not their order in the output. */
  readonly order: Layout | undefined;
}

/** Elements of an output, and where they go; two layouts of one shape. */
export interface Piece {
  readonly from: Layout;
  readonly to: Layout;
}

/** The bits of the f32 that each f16 is; a NaN keeps its own. */
let wideF16: Uint32Array | undefined;

function widerF16(): Uint32Array {
  const wide = Float32Array.from({ length: 65536 }, (_, half) => numberFromF16(half));
  const bits = new Uint32Array(wide.buffer);
  for (const [half, value] of wide.entries())
    if (Number.isNaN(value)) bits[half] = ((half & 0x8000) << 16) | 0x7f800000 | ((half & 0x3ff) << 13);
  return bits;
}

/**
 * Packs elements for a graph: dense, row-major, 16-bit floats widened.
 *
 * @param data - the elements that `layout` describes
 * @returns fresh unless `data` is the whole answer already: then, if `mayShare`, a part of it
 */
export function pack(data: HostArray, dtype: Dtype, layout: Layout, mayShare: boolean): HostArray {
  const count = countElements(layout.shape);
  const dense = isRowMajor(layout);
  if (!isHalf(dtype)) {
    if (dense && mayShare) return data.subarray(layout.offset, layout.offset + count);
    const packed = newArray(dtype, count);
    copyBits(data, layout, packed, { shape: layout.shape, strides: rowMajorStrides(layout.shape), offset: 0 });
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
 * Unpacks an output of a graph; elements outside of the target keep their bits.
 *
 * @param packed - dense, 16-bit floats as f32
 * @param target - which elements go where; 16-bit floats are narrowed, which is exact
 */
export function unpack(packed: HostArray, data: HostArray, { dtype, pieces, order }: Target): void {
  let elements = isHalf(dtype) ? narrowed(packed as Float32Array, dtype) : packed;
  if (order) {
    const ordered = newArray(dtype, elements.length);
    copyBits(elements, { shape: order.shape, strides: rowMajorStrides(order.shape), offset: 0 }, ordered, order);
    elements = ordered;
  }
  for (const { from, to } of pieces) copyBits(elements, from, data, to);
}

/** Halves of the f32 that hold them, or round to them. */
export function narrowed(wide: Float32Array, dtype: 'f16' | 'bf16'): ArrayOf['f16'] {
  const narrow = new Uint16Array(wide.length);
  const bits = bitsOf(wide) as Uint32Array;
  for (const [n, value] of wide.entries()) {
    if (Number.isNaN(value)) narrow[n] = narrowNan(bits[n]!, dtype);
    else storeNumber(narrow, dtype, n, value);
  }
  return narrow;
}

/** A NaN that was widened keeps its bits; of another the sign and the upper ones stay. */
function narrowNan(bits: number, dtype: 'f16' | 'bf16'): number {
  const [infinity, fraction] = dtype === 'f16' ? [0x7c00, (bits >>> 13) & 0x3ff] : [0x7f80, (bits >>> 16) & 0x7f];
  return ((bits >>> 16) & 0x8000) | infinity | (fraction || 1);
}
