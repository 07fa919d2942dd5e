/** The matrix by which a RoPE multiplies a head at a position, as papers and CANN's documents write it. @module */
import { bindRope, planRope, type RopeSpec, tensorFrom } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';

/**
 * Rotates the unit vectors in float64: column i is what becomes of unit vector i.
 *
 * @param position - the position on every axis
 * @returns `[head_dim, head_dim]`, row by row: y = R·x
 */
export function rotationMatrix(spec: RopeSpec, position: number, direction: 'forward' | 'backward'): number[][] {
  const { headDim, axes } = spec;
  const positions = axes ? axes.sections.map(() => position) : [position];
  const plan = planRope({ ...spec, positions, seqLen: 1, direction, tableDtype: 'f64' });
  const units = new Float64Array(headDim ** 2);
  for (let i = 0; i < headDim; i++) units[i * headDim + i] = 1;
  const x = tensorFrom(units, { shape: [1, 1, headDim, headDim] });
  referenceRunner().run(bindRope(plan, x, x));
  return Array.from({ length: headDim }, (_row, i) =>
    Array.from({ length: headDim }, (_column, j) => units[j * headDim + i]! + 0),
  );
}
