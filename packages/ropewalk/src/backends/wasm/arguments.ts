/** Writes a kernel's arguments: 32-bit words, each at the place that an enum of abi.ts names. @module */
import type { Walk } from '../walks.js';

const float64 = new Float64Array(1);
const float64Words = new Int32Array(float64.buffer);
const float32 = new Float32Array(1);
const float32Words = new Int32Array(float32.buffer);

/** Writes a number as an f32. */
export function writeF32(args: Int32Array, at: number, value: number): void {
  float32[0] = value;
  args[at] = float32Words[0]!;
}

/** Writes a number as an f64, which takes two words. */
export function writeF64(args: Int32Array, at: number, value: number): void {
  float64[0] = value;
  args[at] = float64Words[0]!;
  args[at + 1] = float64Words[1]!;
}

/** Writes integers one after another, and returns the place behind them. set() costs ten times as much. */
export function writeList(args: Int32Array, at: number, list: readonly number[]): number {
  for (let i = 0; i < list.length; i++) args[at + i] = list[i]!;
  return at + list.length;
}

/** Writes a walk: its rank, the sizes, and the strides of each tensor. */
export function writeWalk(args: Int32Array, at: number, { dims, strides }: Walk): void {
  args[at] = dims.length;
  let end = writeList(args, at + 1, dims);
  for (const list of strides) end = writeList(args, end, list);
}
