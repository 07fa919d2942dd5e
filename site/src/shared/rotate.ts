/** Computes RoPE of one head with the float64 reference, for the pictures. @module */
import { bindRope, type PlanRopeOptions, planRope, tensorFrom, zeros } from 'ropewalk';
import { runReference } from 'ropewalk/reference';

/**
 * Rotates one head.
 *
 * @param x - the head, `[head_dim]`
 * @param position - a whole number
 * @returns a new array, `[head_dim]`
 */
export function rotated(
  x: Float64Array,
  position: number,
  options: Omit<PlanRopeOptions, 'positions' | 'seqLen' | 'headDim'>,
): Float64Array {
  const shape = [1, 1, x.length];
  const plan = planRope({ ...options, headDim: x.length, positions: [position], seqLen: 1 });
  const out = zeros('f64', shape);
  runReference(bindRope(plan, tensorFrom(x, { shape }), out));
  return out.storage.host!; // the reference computes in host memory
}
