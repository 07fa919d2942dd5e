/** Multiplication by a weight matrix. @module */
import { type BlockTensor, blockBytes, isBlocks } from '../../../core/blocks.js';
import type { Tensor } from '../../../core/tensor.js';
import type { ExpertLinearPlan } from '../../../ops/expert-linear.js';
import type { LinearPlan } from '../../../ops/linear.js';
import { rowsOf } from '../../walks.js';
import {
  type Call,
  elementOf,
  inFours,
  type Place,
  reads,
  type Use,
  usefulStrides,
  walkEntries,
  writes,
} from '../call.js';
import { COPY } from '../shaders/copy.js';
import {
  EXPERT_LINEAR,
  FEW_COLUMNS,
  type KernelFormat,
  LINEAR_FEW,
  LINEAR_MANY,
  type LinearVariant,
  TILE_PER_FOUR,
} from '../shaders/linear.js';

/** Up to 8 rows of x are multiplied with W as it streams by: a tile would compute 24 more rows for nothing. */
const FEW_ROWS = [1, 2, 4, 8] as const;

/** The most rows with which a tile of 64 would be half empty. */
const HALF_TILE = 32;

/**
 * With fewer tiles of 64 × 64 than this, some cores of a large GPU are idle: it has up to 150 cores, and each needs two
 * tiles or more.
 */
const ENOUGH_TILES = 256;

/** The operands of W, the form of its loads, and its strides, in the kernel's units. */
interface Weight {
  readonly load: LinearVariant['weight'];
  readonly uses: readonly Use[];
  readonly params: { readonly weight: number; readonly weightRow: number; readonly weightStep: number };
}

/** Stages the tensors of a product, and gives the operands, variant and parameters that all kernels share, if there is work. */
function stageProduct(plan: LinearPlan | ExpertLinearPlan, more: readonly (Tensor | undefined)[], call: Call) {
  const { x, weight, bias, out } = plan;
  const matrix = isBlocks(weight) ? weight.bytes : weight;
  const inputs = [x, matrix, bias, ...more].filter((tensor) => tensor !== undefined);
  call.stage(inputs, [out]);
  if (out.size === 0) return undefined;
  const [xs, outs, matrixAt] = [call.place(x), call.place(out), call.place(matrix)];
  const w = weightAt(weight, matrixAt, call);
  const [n, k] = weight.shape.slice(-2) as [number, number];
  const element = elementOf(out.dtype);
  const xLanes = inFours([k], [usefulStrides(x)], [xs.offset]) ? 4 : 1;
  const outLanes = inFours([n], [usefulStrides(out)], [outs.offset]) ? 4 : 1;
  const uses: Use[] = [reads('x', element, xLanes, xs.block), ...w.uses, writes('out', element, outLanes, outs.block)];
  const biasAt = bias && call.place(bias);
  if (biasAt) uses.push(reads('bias', elementOf(bias.dtype), 1, biasAt.block));
  const variant: LinearVariant = { x: xLanes, weight: w.load, out: outLanes, bias: bias !== undefined };
  const ends = { x: xs.offset, xStep: x.strides.at(-1)!, out: outs.offset, outStep: out.strides.at(-1)! };
  const biasParams = { bias: biasAt?.offset ?? 0, biasStep: bias?.strides.at(-1) ?? 0 };
  return { uses, variant, params: { n, k, ...ends, ...w.params, ...biasParams } };
}

/** Queues a linear layer. */
export function runLinear(plan: LinearPlan, call: Call): void {
  const { x, out, m, n } = plan;
  const product = stageProduct(plan, [], call);
  if (!product) return;
  const { uses, variant, params } = product;
  const walk = walkEntries(rowsOf([x, out]));
  const over = (groups: number) => ({ uses, params: { ...params, m, rank: walk.length, groups }, walk, groups });
  const rows = FEW_ROWS.find((most) => m <= most);
  if (rows) {
    call.launch({ kernel: LINEAR_FEW, variant: { ...variant, rows }, ...over(Math.ceil(n / FEW_COLUMNS)) });
    return;
  }
  const tiles = (fours: 1 | 2): number =>
    Math.ceil(m / (TILE_PER_FOUR * fours)) * Math.ceil(n / (TILE_PER_FOUR * fours));
  const fours = m <= HALF_TILE || tiles(2) < ENOUGH_TILES ? 1 : 2;
  call.launch({ kernel: LINEAR_MANY, variant: { ...variant, fours }, ...over(tiles(fours)) });
}

/**
 * Queues the experts' linear layer. The indices stay on the device, so each workgroup has a row of out, whichever experts
 * it needs.
 */
export function runExpertLinear(plan: ExpertLinearPlan, call: Call): void {
  const { x, weight, bias, indices, weights, out } = plan;
  const product = stageProduct(plan, [indices, weights], call);
  if (!product) return;
  const { uses, variant, params } = product;
  const [tokens, chosen] = indices.shape as [number, number];
  const [ids, factors] = [call.place(indices), weights && call.place(weights)];
  uses.push(reads('indices', 'u32', 1, ids.block));
  if (factors) uses.push(reads('factors', elementOf(out.dtype), 1, factors.block));
  // A tensor without a dimension for the experts of a token is the same for all of them.
  const overPairs = ({ rank, strides }: Tensor): number[] => [strides[0]!, rank === 3 ? strides[1]! : 0];
  const across = Math.ceil(params.n / FEW_COLUMNS);
  const groups = across * (weights ? tokens : tokens * chosen);
  const walk = walkEntries({ dims: [tokens, Math.max(1, chosen)], strides: [overPairs(x), overPairs(out)] });
  const weightExpert = isBlocks(weight) ? params.n * params.weightRow : weight.strides[0]!;
  call.launch({
    kernel: EXPERT_LINEAR,
    variant: { ...variant, weighted: weights !== undefined },
    uses,
    params: {
      ...{ ...params, m: 1, groups, rank: walk.length, across, terms: weights ? chosen : 1, chosen },
      ...{ experts: weight.shape[0]!, weightExpert, biasExpert: bias?.strides[0] ?? 0 },
      ...{ indices: ids.offset, indexRow: indices.strides[0]!, indexStep: indices.strides[1]! },
      ...{ factors: factors?.offset ?? 0, factorRow: weights?.strides[0] ?? 0, factorStep: weights?.strides[1] ?? 0 },
    },
    walk,
    groups,
  });
}

/** Locates a matrix, or several: the operands and parameters of its kind. */
export function weightAt(weight: Tensor | BlockTensor, place: Place, call: Call): Weight {
  return isBlocks(weight) ? blocksAt(place, weight, call) : denseAt(place, weight);
}

/** Locates a dense matrix, or several, as operand `weight`. */
function denseAt({ block, offset }: Place, weight: Tensor): Weight {
  const lanes = inFours([weight.shape.at(-1)!], [usefulStrides(weight)], [offset]) ? 4 : 1;
  const [row, step] = weight.strides.slice(-2) as [number, number];
  return {
    load: lanes,
    uses: [reads('weight', elementOf(weight.dtype), lanes, block)],
    params: { weight: offset, weightRow: row, weightStep: step },
  };
}

/**
 * Locates a matrix in blocks, as operands `weight` and `scale`. The kernels count in units of two bytes, so a matrix that
 * starts at an odd byte is copied first.
 */
function blocksAt({ block, offset }: Place, { format: any, shape, bytes }: BlockTensor, call: Call): Weight {
  const format = any as KernelFormat; // whyFloat64 has refused all others.
  if (offset % 2 !== 0) {
    const even = call.scratch(bytes.size);
    call.launch({
      kernel: COPY,
      variant: { converts: false },
      uses: [reads('x', 'u8', 1, block), writes('out', 'u8', 1, even)],
      params: { n: bytes.size, rank: 1, x: offset, out: 0 },
      walk: [[bytes.size, 1, 1, 0]],
      groups: Math.ceil(bytes.size / COPY.threads),
    });
    block = even;
    offset = 0;
  }
  return {
    load: format,
    uses: [reads('weight', 'u32', 1, block), reads('scale', 'f16', 1, block)],
    params: { weight: offset / 2, weightRow: blockBytes(format, shape.at(-1)!) / 2, weightStep: 0 },
  };
}
