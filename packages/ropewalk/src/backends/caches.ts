/** The plans that a backend without 8-bit and paged KV caches does not run. @module */
import { isFloat } from '../core/dtypes.js';
import type { OpPlan } from '../ops/op-plan.js';

/**
 * Says why a plan cannot run on a backend whose KV caches hold floats, with own rows for each batch, such as an ONNX graph.
 *
 * @returns the rest of a sentence, or undefined where the plan has no such cache
 */
export function whyNotFloatCaches(plan: OpPlan): string | undefined {
  const reasons = new Set<string>();
  if (plan.op === 'self_attention') {
    for (const { dtype } of [plan.k, plan.v]) if (!isFloat(dtype)) reasons.add(`reads a KV cache in ${dtype}`);
    if (plan.pages) reasons.add('reads a paged KV cache');
  } else if (plan.op === 'rope') {
    for (const { out, rows, blockSize, rotate } of plan.parts) {
      if (!isFloat(out.dtype)) reasons.add(`writes a KV cache in ${out.dtype}`);
      if (blockSize !== undefined) reasons.add('writes a paged KV cache');
      if (rows?.includes(-1)) reasons.add(`skips a token (${blockSize === undefined ? 'row' : 'slot'} -1)`);
      if (!rotate) reasons.add('copies heads that are not rotated');
    }
  }
  const all = [...reasons];
  const last = all.pop();
  if (last === undefined) return undefined;
  return all.length === 0 ? `it ${last}` : `it ${all.join(', ')} and ${last}`;
}
