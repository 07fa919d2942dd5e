/** The expectation: a RoPE, checked and bound to x and positions. @module */
import {
  bindRopeParts,
  planRope,
  planRopeWithTable,
  type RopeCall,
  type RopePlan,
  type RopeSpec,
  type TableRecipe,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { readOptions, sharePairs } from 'ropewalk/internal';
import type { Heads } from './observation.js';

/** The RoPE that a kernel should compute. */
export interface Expected {
  readonly spec: RopeSpec;
  /** `forward` unless given. */
  readonly direction?: 'forward' | 'backward';
}

/** Checks an expectation, and copies it. */
export function readExpected(expected: Expected): Expected {
  const { spec: given, direction = 'forward' } = readOptions(expected, 'diagnose: expected', {
    spec: true,
    direction: true,
  });
  const spec = readOptions(given, 'diagnose: expected.spec');
  planRope({ ...spec, direction, positions: 0, seqLen: 1 }); // the checks
  return { spec, direction };
}

/** Position axes of an expectation. */
export function axesOf({ spec }: Expected): number {
  return spec.axes ? sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2).numAxes : 1;
}

/**
 * Binds an expectation to x and positions.
 *
 * @param recipe - whose arithmetic of angles; float64 unless given
 * @throws {RopewalkError} from planRope, for a spec that is wrong or does not fit x
 */
export function callOf(expected: Expected, heads: Heads, recipe: TableRecipe = 'float64'): RopeCall {
  const { spec, direction = 'forward' } = expected;
  const { batch, seq, ownPositions, numAxes } = heads;
  // Shared positions stay shared, because some mutants depend on it.
  const own = ownPositions ? heads.positions : sharedPositions(heads);
  const shape = [...(numAxes > 1 ? [numAxes] : []), ...(ownPositions ? [batch] : []), seq];
  const positions = tensorFrom(BigInt64Array.from(own, BigInt), { shape });
  const plan = planRope({ ...spec, positions, direction, recipe, tableDtype: 'f64' });
  return bindHeads(recipe === 'float64' ? plan : asGivenTable(plan, expected, positions, recipe), heads);
}

function sharedPositions({ numAxes, batch, seq, positions }: Heads): Float64Array {
  const shared = new Float64Array(numAxes * seq);
  for (let a = 0; a < numAxes; a++) shared.set(positions.subarray(a * batch * seq, a * batch * seq + seq), a * seq);
  return shared;
}

function bindHeads(plan: RopePlan, { batch, seq, heads, headDim, x, norm, dtype }: Heads): RopeCall {
  const tensor = tensorFrom<'f64'>(x, { shape: [batch, seq, heads, headDim] });
  // Nothing is written to out; some bugs depend on its dtype.
  return bindRopeParts(plan, [{ x: tensor, out: zeros(dtype, tensor.shape), norm }]);
}

/** Steps compute angles in float64 unless their plan has only a table, so a recipe is given as a table. */
function asGivenTable(
  plan: RopePlan,
  { spec, direction = 'forward' }: Expected,
  positions: ReturnType<typeof tensorFrom>,
  recipe: TableRecipe,
): RopePlan {
  const { table } = planRope({ ...spec, positions, recipe, tableDtype: 'f64' });
  const { headDim, rotaryDim, rotaryOffset, pairing, seqLen, batch, tableRows } = plan;
  return planRopeWithTable({ headDim, rotaryDim, rotaryOffset, pairing, direction, table, seqLen, tableRows, batch });
}
