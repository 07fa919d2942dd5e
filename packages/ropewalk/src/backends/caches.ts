/** Plans that a backend of float caches does not run. @module */
import { isFloat } from '../core/dtypes.js';
import type { OpPlan } from '../ops/op-plan.js';

/**
 * Why a plan is not for a backend whose KV caches hold floats, in rows of their own for each batch: ONNX graphs, say.
 *
 * @param plan - a validated plan
 * @returns the rest of a sentence, or undefined where the plan has no such cache
 */
export function whyNotFloatCaches(plan: OpPlan): string | undefined {
  if (plan.op === 'self_attention') {
    if (!isFloat(plan.k.dtype)) return `it reads a KV cache in ${plan.k.dtype}`;
    return plan.pages && 'it reads a paged KV cache';
  }
  if (plan.op !== 'rope') return undefined;
  for (const { out, rows, blockSize, rotate } of plan.parts) {
    if (!isFloat(out.dtype)) return `it writes a KV cache in ${out.dtype}`;
    if (blockSize !== undefined) return 'it writes a paged KV cache';
    if (rows?.includes(-1)) return 'it skips a token (row -1)';
    if (!rotate) return 'it copies heads that are not rotated';
  }
  return undefined;
}
