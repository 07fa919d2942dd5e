/** The plans of all operators as one type, and tables of functions with one entry for each operator. @module */
import { refuse } from '../core/errors.js';
import type { AddPlan } from './add.js';
import type { ArgmaxPlan } from './argmax.js';
import type { CausalConvPlan } from './causal-conv.js';
import { isPlan } from './checks.js';
import type { EmbeddingPlan } from './embedding.js';
import type { ExpertLinearPlan } from './expert-linear.js';
import type { GatedDeltaPlan } from './gated-delta.js';
import type { GegluPlan, GeluPlan } from './gelu.js';
import type { LayerNormPlan } from './layer-norm.js';
import type { LinearPlan } from './linear.js';
import type { RearrangePlan } from './rearrange.js';
import type { RmsNormPlan } from './rms-norm.js';
import type { RopeCall } from './rope/call.js';
import type { RoutePlan } from './route.js';
import type { ScalePlan } from './scale.js';
import type { SelfAttentionPlan } from './self-attention.js';
import type { SsmScanPlan } from './ssm-scan.js';
import type { SwigluPlan } from './swiglu.js';
import type { XieluPlan } from './xielu.js';

/** A checked call of one of the operators; `op` says which. */
export type OpPlan =
  | AddPlan
  | ArgmaxPlan
  | CausalConvPlan
  | EmbeddingPlan
  | ExpertLinearPlan
  | GatedDeltaPlan
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
  | SsmScanPlan
  | SwigluPlan
  | XieluPlan;

/** The name of an operator: `add`, `rope`, `self_attention`, … */
export type OpName = OpPlan['op'];

/** A function for the plans of each operator. A table that misses an operator does not compile. */
export type OperatorTable<Rest extends readonly unknown[] = []> = {
  readonly [Op in OpName]: (plan: Extract<OpPlan, { readonly op: Op }>, ...rest: Rest) => void;
};

/** Looks up the function of a plan's operator. @throws {RopewalkError} UNSUPPORTED when the table has none */
export function operatorOf<Rest extends readonly unknown[]>(
  table: OperatorTable<Rest>,
  { op }: OpPlan,
): (plan: OpPlan, ...rest: Rest) => void {
  const found = table[op] as ((plan: OpPlan, ...rest: Rest) => void) | undefined;
  // A method that every object inherits is no operator.
  return found !== undefined && found !== Object.prototype[op as keyof object] ? found : refusePlan(op);
}

/**
 * Checks that an argument is an operator's plan.
 *
 * @param plan - the value to check
 * @throws {RopewalkError} UNSUPPORTED for anything else
 */
export function checkPlan(plan: unknown): asserts plan is OpPlan {
  if (!isPlan(plan) || (plan as OpPlan).op === undefined) refusePlan(plan);
}

/**
 * Ends a switch over the operators, as `default: unknownPlan(plan satisfies never)`: a switch that misses one does not
 * compile.
 *
 * @param plan - the plan that no case took
 * @throws {RopewalkError} UNSUPPORTED always
 */
export function unknownPlan(plan: never): never {
  refusePlan((plan as OpPlan).op);
}

function refusePlan(got: unknown): never {
  const next = 'Make it with a plan… or bind… function.';
  refuse('UNSUPPORTED', 'run: plan', "a plan of one of Ropewalk's operators", got, next);
}
