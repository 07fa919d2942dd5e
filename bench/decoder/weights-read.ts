/** Counts the weights that a call reads, and the operations with them. @module */
import type { BlockTensor, OpPlan, Tensor } from 'ropewalk';

/** The counts of one call. */
export interface WeightsRead {
  /** Name and shape. */
  readonly name: string;
  /** Each matrix once; of experts, those of the chosen ones. */
  readonly bytes: number;
  /** Multiplications and additions. */
  readonly flops: number;
}

/**
 * Says what a linear layer or experts' linear layer reads; undefined for other operators.
 *
 * @param plan - with indices in host memory, as on cpu
 */
export function weightsRead(plan: OpPlan): WeightsRead | undefined {
  if (plan.op !== 'linear' && plan.op !== 'expert_linear') return undefined;
  const { weight } = plan;
  const [n, k] = weight.shape.slice(-2) as [number, number];
  const name = `${plan.op} ${weight.shape.join(' × ')}`;
  if (plan.op === 'linear') return { name, bytes: bytesOf(weight), flops: 2 * plan.m * n * k };
  const ids = plan.indices.readNumbers() as Float64Array;
  const bytes = (new Set(ids).size * bytesOf(weight)) / weight.shape[0]!;
  return { name, bytes, flops: 2 * ids.length * n * k };
}

function bytesOf(weight: Tensor | BlockTensor): number {
  if ('bytes' in weight) return weight.bytes.size;
  return weight.size * (weight.dtype === 'f32' ? 4 : 2);
}
