/** Reads a kernel's arguments: 32-bit words of the host; an enum of ../abi.ts names the place of each. */

/** Gives the address of a word, or of element i of a dense f32 row. */
@inline export function place(args: usize, i: i32): usize {
  return args + ((<usize>i) << 2);
}

/** Reads a word as an integer, or as a stride in elements. */
@inline export function word(args: usize, i: i32): i32 {
  return load<i32>(place(args, i));
}

/** Reads a word as an address. */
@inline export function address(args: usize, i: i32): usize {
  return load<usize>(place(args, i));
}

/** Reads a word as an f32. */
@inline export function real(args: usize, i: i32): f32 {
  return load<f32>(place(args, i));
}

/** Reads element i of the i32 list whose address is a word; gives i itself where the address is 0. */
@inline export function listed(args: usize, list: i32, i: i32): i32 {
  const at = address(args, list);
  return at ? load<i32>(place(at, i)) : i;
}

/**
 * Computes the place of row `index` of a tensor, in elements.
 *
 * @param walk - the address of the rank, as many sizes, slowest first, and as many strides for each tensor
 */
export function offsetOf(walk: usize, tensor: i32, index: i32): i32 {
  const rank = word(walk, 0), strides = rank * (tensor + 1);
  let offset = 0;
  for (let d = rank; d > 0; d--) {
    const size = word(walk, d);
    offset += (index % size) * word(walk, strides + d);
    index /= size;
  }
  return offset;
}
