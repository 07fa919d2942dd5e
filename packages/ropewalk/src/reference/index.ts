/**
 * `ropewalk/reference`: the float64 oracle, every operator in plain loops over host memory.
 *
 * It shares no code with the backends, so that it can judge them.
 *
 * @module ropewalk/reference
 */
import { zeros } from '../core/tensor.js';
import { checkPlan, type OperatorTable, type OpPlan, operatorOf } from '../ops/op-plan.js';
import type { Runner } from '../ops/runner.js';
import { argmaxReference } from './argmax.js';
import {
  addReference,
  gegluReference,
  geluReference,
  scaleReference,
  swigluReference,
  xieluReference,
} from './elementwise.js';
import { embeddingReference } from './embedding.js';
import { expertLinearReference, linearReference } from './linear.js';
import { layerNormReference, rmsNormReference } from './norm.js';
import { rearrangeReference } from './rearrange.js';
import { causalConvReference, gatedDeltaReference, ssmScanReference } from './recurrent.js';
import { ropeReference } from './rope.js';
import { routeReference } from './route.js';
import { selfAttentionReference } from './self-attention.js';

const OPERATORS: OperatorTable = {
  add: addReference,
  argmax: argmaxReference,
  causal_conv: causalConvReference,
  embedding: embeddingReference,
  expert_linear: expertLinearReference,
  gated_delta: gatedDeltaReference,
  geglu: gegluReference,
  gelu: geluReference,
  layer_norm: layerNormReference,
  linear: linearReference,
  rearrange: rearrangeReference,
  rms_norm: rmsNormReference,
  rope: ropeReference,
  route: routeReference,
  scale: scaleReference,
  self_attention: selfAttentionReference,
  ssm_scan: ssmScanReference,
  swiglu: swigluReference,
  xielu: xieluReference,
};

/**
 * Runs a plan in float64 and rounds once.
 *
 * @param plan - any checked plan over host tensors
 * @throws {RopewalkError} DEVICE when a tensor is not in host memory
 */
export function runReference(plan: OpPlan): void {
  checkPlan(plan);
  operatorOf(OPERATORS, plan)(plan);
}

/**
 * The reference as a {@link Runner}: exact and slow, without state. It runs every plan.
 *
 * @example referenceRunner().run(planAdd(a, b, out))
 */
export function referenceRunner(): Runner {
  return { name: 'reference', allocate: zeros, whyNot, run: runReference, async finish() {} };
}

function whyNot(plan: OpPlan): undefined {
  checkPlan(plan);
}
