/** The plans of all operators as one type. @module */
import { refuse } from '../core/errors.js';
import type { AddPlan } from './add.js';
import type { ArgmaxPlan } from './argmax.js';
import { isPlan } from './checks.js';
import type { EmbeddingPlan } from './embedding.js';
import type { ExpertLinearPlan } from './expert-linear.js';
import type { GegluPlan, GeluPlan } from './gelu.js';
import type { LayerNormPlan } from './layer-norm.js';
import type { LinearPlan } from './linear.js';
import type { RearrangePlan } from './rearrange.js';
import type { RmsNormPlan } from './rms-norm.js';
import type { RopeCall } from './rope/call.js';
import type { RoutePlan } from './route.js';
import type { ScalePlan } from './scale.js';
import type { SelfAttentionPlan } from './self-attention.js';
import type { SwigluPlan } from './swiglu.js';

/** A checked call of one of the operators; `op` says which. */
export type OpPlan =
  | AddPlan
  | ArgmaxPlan
  | EmbeddingPlan
  | ExpertLinearPlan
  | GegluPlan
  | GeluPlan
  | LayerNormPlan
  | LinearPlan
  | RearrangePlan
  | RmsNormPlan
  | RopeCall
  | RoutePlan
  | ScalePlan
  | SelfAttentionPlan
  | SwigluPlan;

/** The name of an operator: `add`, `rope`, `self_attention`, … */
export type OpName = OpPlan['op'];

/**
 * Checks that an argument is an operator's plan.
 *
 * @param plan - what the caller gave
 * @throws {RopewalkError} UNSUPPORTED for anything else
 */
export function checkPlan(plan: unknown): asserts plan is OpPlan {
  if (!isPlan(plan) || (plan as OpPlan).op === undefined) noPlan(plan);
}

/**
 * Ends a switch over the operators, as `default: unknownPlan(plan satisfies never)`: a switch that misses one does not
 * compile.
 *
 * @param plan - the plan that no case took
 * @throws {RopewalkError} UNSUPPORTED always
 */
export function unknownPlan(plan: never): never {
  noPlan((plan as OpPlan).op);
}

function noPlan(got: unknown): never {
  refuse(
    'UNSUPPORTED',
    'run: plan',
    "a plan of one of Ropewalk's operators",
    got,
    'Make it with a plan… or bind… function.',
  );
}
