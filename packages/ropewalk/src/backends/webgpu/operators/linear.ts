/** Multiplication by a weight matrix. @module */
import { blockBytes, isBlocks } from '../../../core/blocks.js';
import type { Tensor } from '../../../core/tensor.js';
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
  FEW_COLUMNS,
  type KernelFormat,
  LINEAR_FEW,
  LINEAR_MANY,
  type LinearVariant,
  TILE_PER_FOUR,
} from '../shaders/linear.js';

/** Up to 8 rows of x are multiplied as W streams by once: a tile would compute 24 more rows for nothing. */
const FEW_ROWS = [1, 2, 4, 8] as const;

/** Up to this many rows, a tile of 64 would be half empty. */
const HALF_TILE = 32;

/**
 * With fewer tiles of 64 × 64 than this, some cores of a large GPU have nothing to do: it has up to 150, and each needs
 * two or more.
 */
const ENOUGH_TILES = 256;

/** W: where it is, how it is loaded, and its strides, counted in what the kernel counts. */
interface Weight {
  readonly load: LinearVariant['weight'];
  readonly uses: readonly Use[];
  readonly params: { readonly weight: number; readonly weightRow: number; readonly weightStep: number };
}

/** Queues a linear layer. */
export function runLinear({ x, weight, bias, out, m, n, k }: LinearPlan, call: Call): void {
  const matrix = isBlocks(weight) ? weight.bytes : weight;
  call.bring(bias ? [x, matrix, bias] : [x, matrix], [out]);
  if (out.size === 0) return;
  const [xs, outs, matrixAt] = [call.place(x), call.place(out), call.place(matrix)];
  const w = isBlocks(weight)
    ? blocksAt(matrixAt, weight.format as KernelFormat, matrix.size, k, call)
    : denseAt(matrixAt, weight);
  const element = elementOf(out.dtype);
  const xLanes = inFours([k], [usefulStrides(x)], [xs.offset]) ? 4 : 1;
  const outLanes = inFours([n], [usefulStrides(out)], [outs.offset]) ? 4 : 1;
  const uses: Use[] = [reads('x', element, xLanes, xs.block), ...w.uses, writes('out', element, outLanes, outs.block)];
  const biasAt = bias && call.place(bias);
  if (biasAt) uses.push(reads('bias', elementOf(bias.dtype), 1, biasAt.block));
  const walk = walkEntries(rowsOf([x, out]));
  const variant: LinearVariant = { x: xLanes, weight: w.load, out: outLanes, bias: bias !== undefined };
  const biasParams = { bias: biasAt?.offset ?? 0, biasStep: bias?.strides[0] ?? 0 };
  const ends = { x: xs.offset, xStep: x.strides.at(-1)!, out: outs.offset, outStep: out.strides.at(-1)! };
  const params = { m, n, k, rank: walk.length, ...ends, ...w.params, ...biasParams };
  const over = (groups: number) => ({ uses, params: { ...params, groups }, walk, groups });
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

/** Where a dense matrix is, as operand `weight`. */
export function denseAt({ block, offset }: Place, weight: Tensor): Weight {
  const lanes = inFours([weight.shape[1]!], [usefulStrides(weight)], [offset]) ? 4 : 1;
  const [row, step] = weight.strides as [number, number];
  return {
    load: lanes,
    uses: [reads('weight', elementOf(weight.dtype), lanes, block)],
    params: { weight: offset, weightRow: row, weightStep: step },
  };
}

/**
 * Where a matrix in blocks, with rows of k weights, is, as operands `weight` and `scale`. The kernels count two bytes
 * at a time, so a matrix that starts at an odd byte is copied first.
 */
export function blocksAt({ block, offset }: Place, format: KernelFormat, bytes: number, k: number, call: Call): Weight {
  if (offset % 2 !== 0) {
    const even = call.scratch(bytes);
    call.launch({
      kernel: COPY,
      variant: { converts: false },
      uses: [reads('x', 'u8', 1, block), writes('out', 'u8', 1, even)],
      params: { n: bytes, rank: 1, x: offset, out: 0 },
      walk: [[bytes, 1, 1, 0]],
      groups: Math.ceil(bytes / COPY.threads),
    });
    block = even;
    offset = 0;
  }
  return {
    load: format,
    uses: [reads('weight', 'u32', 1, block), reads('scale', 'f16', 1, block)],
    params: { weight: offset / 2, weightRow: blockBytes(format, k) / 2, weightStep: 0 },
  };
}
