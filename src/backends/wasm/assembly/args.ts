/**
 * How kernels are told what to do: a block of 32-bit words that the host writes, read by position.
 *
 * The order of words is given at each kernel here and repeated, by name, where the host writes them (../host.ts).
 */

/** Word i of the block, an integer, an address or a stride in elements. */
// @ts-ignore: decorator
@inline export function word(args: usize, i: i32): i32 {
  return load<i32>(args + ((<usize>i) << 2));
}

/** Word i of the block as an address. */
// @ts-ignore: decorator
@inline export function address(args: usize, i: i32): usize {
  return load<usize>(args + ((<usize>i) << 2));
}

/** Word i of the block as an f32. */
// @ts-ignore: decorator
@inline export function real(args: usize, i: i32): f32 {
  return load<f32>(args + ((<usize>i) << 2));
}

/**
 * Where row `index` of an n-dimensional walk begins.
 *
 * @param dims - address of `rank` sizes, slowest first
 * @param strides - address of `rank` strides in elements
 * @returns an offset in elements
 */
export function offsetOf(index: i32, rank: i32, dims: usize, strides: usize): i32 {
  let offset = 0;
  for (let d = rank - 1; d >= 0; d--) {
    const size = word(dims, d);
    offset += (index % size) * word(strides, d);
    index /= size;
  }
  return offset;
}
