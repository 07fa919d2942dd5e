/** The plans that kernels in f32 cannot compute: the reference runs them. @module */
import type { BlockFormat } from '../core/block-formats.js';
import { isBlocks } from '../core/blocks.js';
import { Tensor } from '../core/tensor.js';
import type { OpPlan } from '../ops/op-plan.js';

/** Runs a plan in float64, on tensors in host memory: `runReference`. */
export type Float64Runner = (plan: OpPlan) => void;

/** Says whether a factor can be used in f32 without overflow or underflow of the products. */
function fitsF32(factor: number): boolean {
  return factor === 0 || (Math.abs(factor) >= 2 ** -64 && Math.abs(factor) <= 2 ** 64);
}

/**
 * Says why a plan needs float64 arithmetic; undefined where f32 does.
 *
 * @param formats - the block formats that the backend reads. Default: all
 * @param rounds - whether the backend can round activations
 */
export function whyFloat64(plan: OpPlan, formats?: readonly BlockFormat[], rounds = false): string | undefined {
  if (formats && 'weight' in plan && isBlocks(plan.weight) && !formats.includes(plan.weight.format))
    return `weights in ${plan.weight.format} have no kernel yet`;
  if (!rounds && roundsActivations(plan)) return ROUNDED;
  if (usesFloat64(plan)) return 'f64 runs on the reference: the kernels compute in f32';
  const wide = tooWide(plan);
  if (wide !== undefined) return `${wide} is outside the range of f32, in which the kernels compute`;
  if (largestEps(plan) > LARGEST_EPS) return 'eps is outside the range of f32, in which the kernels compute';
  return undefined;
}

/** The reason why backends other than cpu and the reference refuse a plan that rounds activations. */
export const ROUNDED =
  "activations: 'q8' has kernels on cpu alone; without it this backend computes the call from f32 activations";

/** Says whether a plan rounds its activations to 8 bits. */
export function roundsActivations(plan: OpPlan): boolean {
  return 'activations' in plan && plan.activations === 'q8' && isBlocks(plan.weight);
}

/** Names the number of a plan that f32 cannot hold, if there is one. */
function tooWide(plan: OpPlan): string | undefined {
  if (plan.op === 'self_attention' && !(fitsF32(plan.scale) && fitsF32(plan.softcap ?? 0)))
    return 'the scale or the softcap';
  if (plan.op === 'scale') {
    const factor = typeof plan.factor === 'number' ? plan.factor : 0;
    return fitsF32(factor) && fitsF32(plan.softcap ?? 0) ? undefined : 'the factor or the softcap';
  }
  if ((plan.op === 'route' || plan.op === 'gated_delta') && !fitsF32(plan.scale)) return 'the scale';
  if (plan.op === 'ssm_scan' && !(fitsF32(plan.min) && (plan.max > 2 ** 64 || fitsF32(plan.max)))) return 'the limit';
  if (plan.op === 'xielu' && !(fitsF32(plan.positive) && fitsF32(plan.negative) && fitsF32(plan.beta)))
    return 'positive, negative or beta';
  if (plan.op === 'swiglu' && !(fitsF32(plan.limit ?? 0) && fitsF32(plan.alpha) && fitsF32(plan.offset)))
    return 'the limit, alpha or offset';
  return undefined;
}

/** Above this, eps and a mean of squares no longer add up in f32. */
const LARGEST_EPS = 2 ** 100;

/** Makes no arrays and iterates by index, because in a decoding step the checks take half the time. */
function largestEps(plan: OpPlan): number {
  let largest = plan.op === 'rms_norm' || plan.op === 'layer_norm' || plan.op === 'gated_delta' ? plan.eps : 0;
  if (plan.op !== 'rope') return largest;
  const { parts } = plan;
  for (let p = 0; p < parts.length; p++) largest = Math.max(largest, parts[p]!.norm?.eps ?? 0);
  return largest;
}

function usesFloat64(plan: OpPlan): boolean {
  if (plan.op === 'rope') {
    const { parts } = plan;
    for (let p = 0; p < parts.length; p++) {
      const { x, out, norm } = parts[p]!;
      if (x.dtype === 'f64' || out.dtype === 'f64' || norm?.weight.dtype === 'f64') return true;
    }
    return false;
  }
  if (plan.op === 'embedding') return false; // Bits are copied, whatever they mean, or widened to f32.
  if (plan.op === 'rearrange')
    return plan.x.dtype !== plan.out.dtype && (plan.x.dtype === 'f64' || plan.out.dtype === 'f64');
  const { dtype } = plan.op === 'argmax' ? plan.values : plan.op === 'route' ? plan.logits : plan.out;
  return dtype === 'f64';
}

/** Lists every tensor of a plan: its fields that are tensors or blocks, or those of its parts. */
export function tensorsOf(plan: OpPlan): Tensor[] {
  if (plan.op === 'rope') return plan.parts.flatMap(({ x, out, norm }) => (norm ? [x, out, norm.weight] : [x, out]));
  const tensors: Tensor[] = 'weight' in plan && isBlocks(plan.weight) ? [plan.weight.bytes] : [];
  // A loop without copies, because webgpu asks in each call.
  for (const name in plan) {
    const field: unknown = plan[name as keyof typeof plan];
    if (Tensor.isTensor(field)) tensors.push(field);
  }
  return tensors;
}
