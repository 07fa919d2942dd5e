/** The arithmetic of the vector unit's lanes: f16 rounded at every step, f32 in f32, nothing fused. @module */
import { numberFromF16 } from 'ropewalk';

const bits = new Uint32Array(1);
const single = new Float32Array(bits.buffer);

let decoded: Float32Array | undefined;

/** Returns every f16 as a number, by its bits. */
export function f16Table(): Float32Array {
  return (decoded ??= Float32Array.from({ length: 65536 }, (_what, b) => numberFromF16(b)));
}

/**
 * Rounds a sum or product of two f16, or any f32, to f16, to nearest even. It first rounds to f32, which does not
 * change the result, because f32 has at least twice the bits of f16 and two more. Several times faster than the general
 * conversion, and tested against it.
 */
export function toF16(value: number): number {
  single[0] = value;
  const raw = bits[0]!;
  const sign = (raw >>> 16) & 0x8000;
  const magnitude = raw & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7e00 | sign;
  if (magnitude >= 0x47800000) return sign | 0x7c00;
  if (magnitude < 0x38800000) {
    // Adding 0.5 moves an f16 subnormal to the last bits of an f32 with the same unit.
    single[0] = Math.abs(single[0]!) + 0.5;
    return sign | (bits[0]! - 0x3f000000);
  }
  return sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1)) >>> 13);
}
