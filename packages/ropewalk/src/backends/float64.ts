/** Plans that kernels in f32 cannot do: the reference runs them. @module */
import type { BlockFormat } from '../core/block-formats.js';
import { type BlockTensor, isBlocks } from '../core/blocks.js';
import type { Tensor } from '../core/tensor.js';
import { type OpPlan, unknownPlan } from '../ops/op-plan.js';

/** Runs a plan in float64, on tensors in host memory: `runReference`. */
export type Float64Runner = (plan: OpPlan) => void;

/** Says whether a factor keeps its meaning in f32, with room for the products it goes into. */
function fitsF32(factor: number): boolean {
  return factor === 0 || (Math.abs(factor) >= 2 ** -64 && Math.abs(factor) <= 2 ** 64);
}

/**
 * Why a plan needs float64 arithmetic, or undefined where f32 does.
 *
 * @param plan - a validated plan
 * @param formats - the block formats that the backend reads; all unless given
 * @param rounds - it can round activations; it cannot unless given
 */
export function whyFloat64(plan: OpPlan, formats?: readonly BlockFormat[], rounds = false): string | undefined {
  if (formats && 'weight' in plan && isBlocks(plan.weight) && !formats.includes(plan.weight.format))
    return `weights in ${plan.weight.format} have no kernel yet`;
  if (!rounds && roundsActivations(plan)) return ROUNDED;
  if (usesFloat64(plan)) return 'f64 runs on the reference: the kernels compute in f32';
  const what = tooWide(plan);
  if (what !== undefined) return `${what} is outside the range of f32, in which the kernels compute`;
  if (largestEps(plan) > LARGEST_EPS) return 'eps is outside the range of f32, in which the kernels compute';
  return undefined;
}

/** Why other backends than cpu and the reference refuse a plan that rounds activations. */
export const ROUNDED =
  "activations: 'q8' has kernels on cpu alone; without it this backend computes the call from f32 activations";

/** Says whether a plan rounds its activations to 8 bits. */
export function roundsActivations(plan: OpPlan): boolean {
  return 'activations' in plan && plan.activations === 'q8' && isBlocks(plan.weight);
}

/** The number of a plan that does not fit, if there is one. */
function tooWide(plan: OpPlan): string | undefined {
  if (plan.op === 'self_attention' && !(fitsF32(plan.scale) && fitsF32(plan.softcap ?? 0)))
    return 'the scale or the softcap';
  if (plan.op === 'scale') {
    const factor = typeof plan.factor === 'number' ? plan.factor : 0;
    return fitsF32(factor) && fitsF32(plan.softcap ?? 0) ? undefined : 'the factor or the softcap';
  }
  if (plan.op === 'route' && !fitsF32(plan.scale)) return 'the scale';
  if (plan.op === 'swiglu' && !(fitsF32(plan.limit ?? 0) && fitsF32(plan.alpha) && fitsF32(plan.offset)))
    return 'the limit, alpha or offset';
  return undefined;
}

/** Above this, eps and a mean of squares no longer add up in f32. */
const LARGEST_EPS = 2 ** 100;

/** Makes no arrays and iterates by index: in a decoding step the checks are half the time. */
function largestEps(plan: OpPlan): number {
  let largest = plan.op === 'rms_norm' || plan.op === 'layer_norm' ? plan.eps : 0;
  if (plan.op !== 'rope') return largest;
  const { parts } = plan;
  for (let p = 0; p < parts.length; p++) largest = Math.max(largest, parts[p]!.norm?.eps ?? 0);
  return largest;
}

function usesFloat64(plan: OpPlan): boolean {
  switch (plan.op) {
    case 'rope': {
      const { parts } = plan;
      for (let p = 0; p < parts.length; p++) {
        const { x, out, norm } = parts[p]!;
        if (x.dtype === 'f64' || out.dtype === 'f64' || norm?.weight.dtype === 'f64') return true;
      }
      return false;
    }
    case 'argmax':
      return plan.values.dtype === 'f64';
    case 'rearrange': {
      const { x, out } = plan;
      return x.dtype !== out.dtype && (x.dtype === 'f64' || out.dtype === 'f64');
    }
    case 'route':
      return plan.logits.dtype === 'f64';
    case 'embedding':
      return false; // bits are copied, whatever they mean, or widened to f32
    case 'add':
    case 'linear':
    case 'rms_norm':
    case 'expert_linear':
    case 'geglu':
    case 'gelu':
    case 'layer_norm':
    case 'scale':
    case 'self_attention':
    case 'swiglu':
      return plan.out.dtype === 'f64';
    default:
      return unknownPlan(plan satisfies never);
  }
}

/**
 * Every tensor of a plan.
 *
 * @param plan - a validated plan
 */
export function tensorsOf(plan: OpPlan): Tensor[] {
  switch (plan.op) {
    case 'rope':
      return plan.parts.flatMap(({ x, out, norm }) => (norm ? [x, out, norm.weight] : [x, out]));
    case 'add':
      return [plan.a, plan.b, plan.out];
    case 'swiglu':
    case 'geglu':
      return [plan.gate, plan.up, plan.out];
    case 'gelu':
      return [plan.x, plan.out];
    case 'scale':
      return present([plan.x, typeof plan.factor === 'number' ? undefined : plan.factor, plan.out]);
    case 'layer_norm':
      return present([plan.x, plan.weight, plan.bias, plan.out]);
    case 'route':
      return present([plan.logits, plan.bias, plan.indices, plan.weights]);
    case 'expert_linear':
      return present([plan.x, bytesOf(plan.weight), plan.bias, plan.indices, plan.weights, plan.out]);
    case 'argmax':
      return [plan.values, plan.outIndex, plan.outValue];
    case 'embedding':
      return [bytesOf(plan.weight), plan.out];
    case 'linear':
      return present([plan.x, bytesOf(plan.weight), plan.bias, plan.out]);
    case 'rearrange':
      return [plan.x, plan.out];
    case 'rms_norm':
      return [plan.x, plan.weight, plan.out];
    case 'self_attention':
      return present([plan.q, plan.k, plan.v, plan.sinks, plan.out]);
    default:
      return unknownPlan(plan satisfies never);
  }
}

function present(tensors: readonly (Tensor | undefined)[]): Tensor[] {
  return tensors.filter((tensor) => tensor !== undefined);
}

function bytesOf(weight: Tensor | BlockTensor): Tensor {
  return isBlocks(weight) ? weight.bytes : weight;
}
