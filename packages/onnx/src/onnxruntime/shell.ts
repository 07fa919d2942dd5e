/**
 * Converts between our tensors and those of the package. The package has no bf16, and f16 only where JavaScript has no
 * `Float16Array`: its native part takes a Uint16Array only, and its JavaScript part gives it a Float16Array from Node
 * 24 on.
 *
 * So 16-bit floats cross as f32, which holds them exactly: the graph begins with a Cast to the real type and ends with
 * a Cast from it.
 *
 * @module
 */
import { type ArrayOf, type Dtype, type FloatDtype, type HostArray, numberFromF16, type TensorStorage } from 'ropewalk';
import {
  bitsOf,
  copyBits,
  countElements,
  isHalf,
  isRowMajor,
  type Layout,
  newArray,
  rowMajorStrides,
  storeNumber,
  walkPair,
} from 'ropewalk/backend';
import { GraphBuilder } from '../export/builder.js';

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

/** What the package calls each dtype that crosses as it is. */
const ORT_TYPE: Readonly<Record<Exclude<Dtype, 'f16' | 'bf16'>, string>> = /* @__PURE__ */ Object.freeze({
  f64: 'float64',
  f32: 'float32',
  i8: 'int8',
  i16: 'int16',
  i32: 'int32',
  i64: 'int64',
  u8: 'uint8',
  u16: 'uint16',
  u32: 'uint32',
  u64: 'uint64',
});

/** A graph whose 16-bit inputs and outputs are f32 outside and themselves inside. */
export class ShellBuilder extends GraphBuilder {
  override input(name: string, dtype: Dtype, shape: readonly number[]): string {
    if (!isHalf(dtype)) return super.input(name, dtype, shape);
    return this.cast(super.input(name, 'f32', shape), dtype);
  }

  override output(value: string, name: string, dtype: Dtype, shape: readonly number[]): void {
    if (isHalf(dtype)) super.output(this.cast(value, 'f32'), name, 'f32', shape);
    else super.output(value, name, dtype, shape);
  }
}

/** What a tensor of a dtype is called outside of the graph. */
export function crossingType(dtype: Dtype): string {
  return ORT_TYPE[isHalf(dtype) ? 'f32' : dtype];
}

let wideF16: Float32Array | undefined;

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
    const table = (wideF16 ??= Float32Array.from({ length: 65536 }, (_, half) => numberFromF16(half)));
    walkPair(layout.shape, layout, layout, (at) => void (packed[n++] = table[from[at]!]!));
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

function narrowed(wide: Float32Array, dtype: FloatDtype): ArrayOf['f16'] {
  const narrow = new Uint16Array(wide.length);
  for (const [n, value] of wide.entries()) storeNumber(narrow, dtype, n, value);
  return narrow;
}
