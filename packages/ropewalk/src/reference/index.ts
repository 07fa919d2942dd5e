/**
 * `ropewalk/reference`: the float64 oracle, every operator in plain loops over host memory.
 *
 * It shares no code with the backends, so that it can judge them.
 *
 * @module ropewalk/reference
 */
import { zeros } from '../core/tensor.js';
import { checkPlan, type OpPlan, unknownPlan } from '../ops/op-plan.js';
import type { Runner } from '../ops/runner.js';
import { addReference } from './add.js';
import { argmaxReference } from './argmax.js';
import { embeddingReference } from './embedding.js';
import { expertLinearReference } from './expert-linear.js';
import { gegluReference, geluReference } from './gelu.js';
import { layerNormReference } from './layer-norm.js';
import { linearReference } from './linear.js';
import { rearrangeReference } from './rearrange.js';
import { rmsNormReference } from './rms-norm.js';
import { ropeReference } from './rope.js';
import { routeReference } from './route.js';
import { scaleReference } from './scale.js';
import { selfAttentionReference } from './self-attention.js';
import { swigluReference } from './swiglu.js';

/**
 * Runs a plan in float64 and rounds once.
 *
 * @param plan - any checked plan over host tensors
 * @throws {RopewalkError} DEVICE when a tensor is not in host memory
 */
export function runReference(plan: OpPlan): void {
  checkPlan(plan);
  switch (plan.op) {
    case 'add':
      addReference(plan);
      break;
    case 'argmax':
      argmaxReference(plan);
      break;
    case 'embedding':
      embeddingReference(plan);
      break;
    case 'expert_linear':
      expertLinearReference(plan);
      break;
    case 'geglu':
      gegluReference(plan);
      break;
    case 'gelu':
      geluReference(plan);
      break;
    case 'layer_norm':
      layerNormReference(plan);
      break;
    case 'linear':
      linearReference(plan);
      break;
    case 'rearrange':
      rearrangeReference(plan);
      break;
    case 'rms_norm':
      rmsNormReference(plan);
      break;
    case 'rope':
      ropeReference(plan);
      break;
    case 'route':
      routeReference(plan);
      break;
    case 'scale':
      scaleReference(plan);
      break;
    case 'self_attention':
      selfAttentionReference(plan);
      break;
    case 'swiglu':
      swigluReference(plan);
      break;
    default:
      unknownPlan(plan satisfies never);
  }
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
