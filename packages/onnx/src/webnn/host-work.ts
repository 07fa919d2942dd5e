/**
 * The work that the host does without a graph: it moves elements of dtypes that WebNN lacks, and widens blocks.
 *
 * @module
 */
import type { BlockTensor, Dtype, HostArray, OpPlan, Tensor } from 'ropewalk';
import { BLOCK_FORMATS, isBlocks } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { copyBits, countElements, WIDEN_BLOCK } from 'ropewalk/internal';
import { denseLayout, type Piece, type Target } from '../backend/graph.js';

export interface HostMove {
  readonly source: Tensor;
  /** Here, `from` of the pieces refers to the source's storage. */
  readonly target: Target;
}

/** Returns a plan as a move, if it only moves elements of a dtype that stays on the host. */
export function moveOnHost(plan: OpPlan, onHost: (dtype: Dtype) => boolean): HostMove | undefined {
  const moved = (source: Tensor, out: Tensor, pieces: readonly Piece[]): HostMove | undefined => {
    if (source.dtype !== out.dtype || !onHost(out.dtype)) return undefined;
    const { storage, dtype } = out;
    return { source, target: { name: 'out', storage, dtype, pieces, order: undefined } };
  };
  if (plan.op === 'rearrange') return moved(plan.x, plan.out, [{ from: plan.x, to: plan.out }]);
  if (plan.op !== 'embedding' || isBlocks(plan.weight)) return undefined;
  const { weight, out, rows } = plan;
  const [k] = weight.shape.slice(1) as [number];
  const row = (of: Tensor, n: number) => ({
    shape: [k],
    strides: [of.strides[1]!],
    offset: of.offset + n * of.strides[0]!,
  });
  return moved(
    weight,
    out,
    Array.from(rows, (from, n) => ({ from: row(weight, from), to: row(out, n) })),
  );
}

/** Collects the elements of a target's pieces from the source's storage. */
export function collected(elements: HostArray, { dtype, pieces }: Target): HostArray {
  const count = pieces.reduce((sum, { from }) => sum + countElements(from.shape), 0);
  const dense = newArray(dtype, count);
  let offset = 0;
  for (const { from } of pieces) {
    copyBits(elements, from, dense, { ...denseLayout(from.shape), offset });
    offset += countElements(from.shape);
  }
  return dense;
}

/** Widens blocks to f32, which is exact or rounds once. */
export function widen({ format, shape, bytes }: BlockTensor, elements: Uint8Array): Float32Array {
  const { weights, bytes: unit } = BLOCK_FORMATS[format];
  const block = new Float64Array(weights);
  const wide = new Float32Array(countElements(shape));
  for (let to = 0, at = bytes.offset; to < wide.length; to += weights, at += unit) {
    WIDEN_BLOCK[format](elements, at, block);
    wide.set(block, to);
  }
  return wide;
}
