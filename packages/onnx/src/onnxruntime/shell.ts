/**
 * What ONNX Runtime's package cannot take: it has no bf16, and f16 only where JavaScript has no `Float16Array`: its
 * native part takes a Uint16Array only, and its JavaScript part gives it a Float16Array from Node 24 on.
 *
 * So 16-bit floats cross as f32, which holds them exactly: the graph begins with a Cast to the real type and ends with
 * a Cast from it.
 *
 * @module
 */
import type { Dtype, Float8Dtype } from 'ropewalk';
import { isHalf } from 'ropewalk/internal';
import { GraphBuilder } from '../export/builder.js';

/** What the package calls each dtype that crosses as it is. */
const ORT_TYPE: Readonly<Record<Exclude<Dtype, 'f16' | 'bf16' | Float8Dtype>, string>> = /* @__PURE__ */ Object.freeze({
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
  return ORT_TYPE[isHalf(dtype) ? 'f32' : (dtype as keyof typeof ORT_TYPE)]; // prepare has refused 8-bit floats
}
