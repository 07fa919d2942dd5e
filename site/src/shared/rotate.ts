/** RoPE of one head by the float64 reference: what the pictures draw. @module */
import { bindRope, type PlanRopeOptions, planRope, tensorFrom, zeros } from 'ropewalk';
import { runReference } from 'ropewalk/reference';

/**
 * Rotates one head.
 *
 * @param x - `[head_dim]`
 * @param position - a whole number
 * @returns `[head_dim]`, fresh
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
