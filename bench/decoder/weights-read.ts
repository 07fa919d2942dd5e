/** Counts the weights that a call reads, and the operations with them. @module */
import type { BlockTensor, OpPlan, Tensor } from 'ropewalk';

/** The counts of one call. */
export interface WeightsRead {
  /** The name and the shape of the layer. */
  readonly name: string;
  /** The bytes of each matrix, counted once. Only the chosen experts count. */
  readonly bytes: number;
  /** The number of multiplications and additions. */
  readonly flops: number;
}

/**
 * Counts the weights that a linear layer or an experts' linear layer reads. Other operators give undefined.
 *
 * @param plan - its indices must be in host memory, as on cpu
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
