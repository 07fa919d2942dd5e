/**
 * The catalogue of wrong kernels: the known ways to get RoPE wrong, each a small change to the right steps. It scores test
 * vectors by how many of these bugs they notice, and it tests the diagnosis and our suites. @module
 */
import type { Mutant } from '../kernel/mutant.js';
import { POSITION_AXES } from './axes.js';
import { LAYER_PARAMETERS, LLAMA3_FACTORS, LONG_CONTEXT } from './frequencies.js';
import { ARGUMENTS, LAYOUT } from './layout.js';
import { NORM_ORDER } from './norm.js';
import { PAIRING } from './pairing.js';
import { PARTIAL_ROTARY, PROPORTIONAL_FREQUENCIES } from './partial.js';
import { CACHE_SHIFTS, POSITIONS } from './positions.js';
import { PRECISION } from './precision.js';
import { YARN_FREQUENCIES, YARN_MAGNITUDE } from './yarn.js';

/** Every known bug, cause by cause. */
export const MUTANTS: readonly Mutant[] = /* @__PURE__ */ Object.freeze([
  ...PAIRING,
  ...PARTIAL_ROTARY,
  ...PROPORTIONAL_FREQUENCIES,
  ...YARN_MAGNITUDE,
  ...YARN_FREQUENCIES,
  ...LLAMA3_FACTORS,
  ...LONG_CONTEXT,
  ...LAYER_PARAMETERS,
  ...PRECISION,
  ...POSITIONS,
  ...LAYOUT,
  ...POSITION_AXES,
  ...NORM_ORDER,
  ...CACHE_SHIFTS,
  ...ARGUMENTS,
]);
