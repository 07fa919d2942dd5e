/** Finds the largest element of each row and its place, with one workgroup for each row. @module */
import type { Kernel } from '../shader.js';
import { GROUP, MAIN, threadsFor, WALK } from './common.js';

/** The parts of the text that vary: the order of an element's bits, and the width of the index. */
interface ArgmaxVariant {
  readonly dtype: 'f32' | 'f16' | 'bf16';
  /** The words of an index: 1 for i32, 2 for i64. */
  readonly words: 1 | 2;
}

/** The bits of +infinity, and of the sign. */
const INFINITY = { f32: '0x7f800000u', f16: '0x7c00u', bf16: '0x7f80u' } as const;
const SIGN = { f32: '0x80000000u', f16: '0x8000u', bf16: '0x8000u' } as const;

const PARAMS = ['rows', 'rank', 'n', 'values', 'step', 'index', 'value'] as const;

/**
 * Operands values, index (u32 words) and value; the walk has the strides of their rows.
 *
 * Elements are compared as integers, because WGSL promises nothing for NaN, and −0 and +0 must tie.
 *
 * Parameters: n: elements of a row; step: stride from one to the next; values, index, value: first elements (index in words).
 */
export function argmaxKernel(n: number): Kernel<(typeof PARAMS)[number], ArgmaxVariant> {
  const threads = threadsFor(n, 256);
  return {
    name: `argmax_by_${threads}`,
    params: PARAMS,
    threads,
    code: argmaxText,
  };
}

function argmaxText({ dtype, words }: ArgmaxVariant): string {
  return /* wgsl */ `
${WALK}
/// Ranks elements in their order: NaN is above all, and both zeros are equal.
fn rank_of(bits: u32) -> u32 {
  let magnitude = bits & ~${SIGN[dtype]};
  if (magnitude > ${INFINITY[dtype]}) { return 0xffffffffu; }
  return select(0x80000000u + magnitude, 0x80000000u - magnitude, (bits & ${SIGN[dtype]}) != 0u);
}

var<workgroup> best: array<vec2<u32>, THREADS>;
/// Takes the element of higher rank; on ties, the first one.
fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

${MAIN} {
  let row = ${GROUP};
  if (row >= params.rows) { return; }
  let at = walk(row, 0u, params.rank);
  let values = params.values + at.x;
  var mine = vec2<u32>(0u, 0xffffffffu); // every element ranks above 0
  for (var i = lane; i < params.n; i += THREADS) {
    mine = better(mine, vec2<u32>(rank_of(bits_values(values + i * params.step)), i));
  }
  best[lane] = mine;
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { best[lane] = better(best[lane], best[lane + half]); }
  }
  if (lane == 0u) {
    let found = best[0].y;
    put_index(params.index + at.y, found);
    ${words === 2 ? 'put_index(params.index + at.y + 1u, 0u);' : ''}
    put_value(params.value + at.z, bits_values(values + found * params.step));
  }
}`;
}
