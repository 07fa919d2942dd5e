/** The expectation: a RoPE, checked and bound to x and positions. @module */
import {
  bindRopeParts,
  planRope,
  planRopeWithTable,
  type RopeCall,
  type RopePlan,
  type RopeSpec,
  RopewalkError,
  type TableRecipe,
  tensorFrom,
  zeros,
} from 'ropewalk';
import { readOptions, sharePairs } from 'ropewalk/internal';
import type { Heads } from './observation.js';

/** The RoPE that a kernel should compute. */
export interface Expected {
  readonly spec: RopeSpec;
  /** Default: `forward`. */
  readonly direction?: 'forward' | 'backward';
}

/** The bases that models have, the commonest first. */
export const BASES: readonly number[] = [
  10000, 500000, 1000000, 100, 1000, 100000, 150000, 250000, 5000000, 8000000, 10000000,
];

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

export function axesOf({ spec }: Expected): number {
  return spec.axes ? sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2).numAxes : 1;
}

export interface Calls {
  readonly right: RopeCall;
  /** The same with the arithmetic of angles of each peer that has the scaling. */
  readonly recipes: readonly (readonly [recipe: TableRecipe, call: RopeCall])[];
}

/** Binds an expectation to x and positions, as {@link callOf}, and again for each recipe of a peer. */
export function callsOf(expected: Expected, heads: Heads): Calls {
  const recipes = (['hf-f32', 'ggml-f32'] as const).flatMap((recipe): Calls['recipes'] => {
    try {
      return [[recipe, callOf(expected, heads, recipe)]];
    } catch (error) {
      if (error instanceof RopewalkError && error.code === 'UNSUPPORTED') return [];
      throw error;
    }
  });
  return { right: callOf(expected, heads), recipes };
}

/**
 * Binds an expectation to x and positions.
 *
 * @param recipe - the arithmetic of angles. Default: float64.
 * @throws {RopewalkError} from planRope, for a spec that is wrong or does not fit x
 */
export function callOf(expected: Expected, heads: Heads, recipe: TableRecipe = 'float64'): RopeCall {
  const { spec, direction = 'forward' } = expected;
  const { batch, seq, ownPositions, numAxes } = heads;
  // Shared positions stay shared, because some mutants depend on it.
  const used = heads.positions.filter((_, n) => ownPositions || n % (batch * seq) < seq);
  const shape = [...(numAxes > 1 ? [numAxes] : []), ...(ownPositions ? [batch] : []), seq];
  const positions = tensorFrom(BigInt64Array.from(used, BigInt), { shape });
  const plan = planRope({ ...spec, positions, direction, recipe, tableDtype: 'f64' });
  return bindHeads(recipe === 'float64' ? plan : asGivenTable(plan, expected, positions, recipe), heads);
}

function bindHeads(plan: RopePlan, { batch, seq, heads, headDim, x, norm, dtype }: Heads): RopeCall {
  const tensor = tensorFrom<'f64'>(x, { shape: [batch, seq, heads, headDim] });
  // Nothing is written to out, but some bugs depend on its dtype.
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
