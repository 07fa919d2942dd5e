/** Causal attention with a past and grouped KV heads. @module */
import { checkInteger, type OptionNames, optionNames, readList, readOptions } from '../core/arguments.js';
import type { CacheDtype, FloatDtype, IntDtype } from '../core/dtypes.js';
import { fail, refuse } from '../core/errors.js';
import { checkTensor, readIntegers, type Tensor } from '../core/tensor.js';
import {
  CHECKED,
  checkApart,
  checkCache,
  checkDims,
  checkDtype,
  checkedPlan,
  checkFloat,
  checkOutput,
  checkStored,
  isEightBits,
} from './checks.js';
import { type CacheScale, readRowScales, readScale } from './scales.js';

/** A paged KV cache: k and v are `[block, block_size, num_kv_heads, d]`, and sequences share the blocks. */
export interface PagedOptions {
  /**
   * `[batch, max_blocks]`, integers in host memory: key t of sequence b is row t % block_size of block blockTable[b, ⌊t /
   * block_size⌋]. Blocks that no query sees may be any number.
   */
  readonly blockTable: Tensor<IntDtype>;
  /** `[batch]`: the number of keys of each sequence, its queries' own included. */
  readonly lengths: ArrayLike<number>;
}

/** Options of attention. */
export interface SelfAttentionOptions {
  /** Multiplies the scores. Default: 1/√d. */
  readonly scale?: number;
  /** Query i attends to keys 0 to total − seq + i only. Default: true. */
  readonly causal?: boolean;
  /**
   * Sliding window, as HuggingFace's sliding_window: a query at position p attends to keys p − window + 1 to p.
   * Default: no window.
   */
  readonly window?: number;
  /** Scores become softcap · tanh(score / softcap), after the scale and before the mask. Default: no cap. */
  readonly softcap?: number;
  /**
   * `[num_heads]`, in the dtypes of k: a score for each head that joins the softmax and has no value, so that a head
   * may attend to nothing (gpt-oss). Default: none.
   */
  readonly sinks?: Tensor;
  /** The scale of k in 8 bits, see {@link CacheScale}. An i8 cache needs one; f8_e4m3 and f8_e5m2 default to 1. */
  readonly kScale?: CacheScale;
  /** The scale of v, likewise. */
  readonly vScale?: CacheScale;
  /** In place of `kScale`, for an i8 k: a scale for each row and head, f32, k's shape without head_dim. */
  readonly kRowScales?: Tensor<'f32'>;
  /** The scales of v's rows, likewise. */
  readonly vRowScales?: Tensor<'f32'>;
  /** Says that k and v are paged, and where their blocks lie. */
  readonly paged?: PagedOptions;
}

const NAMES: OptionNames<SelfAttentionOptions> = /* @__PURE__ */ optionNames(
  'scale causal window softcap sinks kScale vScale kRowScales vRowScales paged',
);
const NOT_CAUSAL = 'a window needs causal attention. Leave out window, or causal=false.';
const PAGED_NAMES: OptionNames<PagedOptions> = { blockTable: true, lengths: true };

/** Where the keys of each sequence lie in a paged cache, checked. Frozen. */
export interface Pages {
  /** `[batch, max_blocks]`; 0 where no query sees the block. */
  readonly table: Int32Array;
  readonly maxBlocks: number;
  readonly blockSize: number;
  /** `[batch]` */
  readonly lengths: Int32Array;
}

/** A checked attention. Frozen. */
export interface SelfAttentionPlan {
  readonly op: 'self_attention';
  /** `[batch, seq, num_heads, d]` */
  readonly q: Tensor<FloatDtype>;
  /** `[batch, total, num_kv_heads, d]`; with pages `[block, block_size, num_kv_heads, d]` */
  readonly k: Tensor<CacheDtype>;
  /** `[batch, total, num_kv_heads, dv]`; with pages `[block, block_size, num_kv_heads, dv]` */
  readonly v: Tensor<CacheDtype>;
  /** `[num_kv_heads, d]`: value = stored · scale; undefined means 1. */
  readonly kScale: Float32Array | undefined;
  /** `[num_kv_heads, dv]` */
  readonly vScale: Float32Array | undefined;
  /** `[batch, total, num_kv_heads, 1]`, or in blocks as k: value = stored · scale. */
  readonly kRowScales: Tensor<'f32'> | undefined;
  readonly vRowScales: Tensor<'f32'> | undefined;
  readonly pages: Pages | undefined;
  /** The number of keys of a sequence; with pages, of the longest one. */
  readonly total: number;
  /** `[batch, seq, num_heads, dv]` */
  readonly out: Tensor<FloatDtype>;
  readonly scale: number;
  readonly causal: boolean;
  readonly window: number | undefined;
  readonly softcap: number | undefined;
  /** `[num_heads]` */
  readonly sinks: Tensor<FloatDtype> | undefined;
}

/**
 * Checks `out = softmax(q·kᵀ·scale + mask)·v` for each head; query head h uses KV head ⌊h / (num_heads /
 * num_kv_heads)⌋.
 *
 * @param q - `[seq, num_heads, d]`, any strides, any float dtype; or with a batch in front, then on all four
 * @param k - `[total, num_kv_heads, d]`; total − seq keys are the past; in q's dtype, or in f16 or bf16 where q is f32:
 *   a KV cache of halves; or in i8, f8_e4m3 or f8_e5m2 with `kScale`; with `paged`, `[block, block_size, num_kv_heads, d]`
 * @param v - `[total, num_kv_heads, dv]`, the dtype of k; dv may differ from d; with `paged` in blocks as k
 * @param out - `[seq, num_heads, dv]`, the dtype of q; written; shares no memory with the inputs
 * @param options - scale, causal, window, softcap, sinks, kScale, vScale, kRowScales, vRowScales, paged
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see InfiniTensor/llaisys@7740d46f, self_attention
 */
export function planSelfAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  out: Tensor,
  options: SelfAttentionOptions = {},
): SelfAttentionPlan {
  const given = readOptions(options, 'self_attention: options', NAMES);
  const { causal = true, window, softcap, sinks, paged } = given;
  checkTensor(q, 'self_attention: q');
  if (q.rank !== 3 && q.rank !== 4)
    refuse('SHAPE', 'self_attention: q', 'three dimensions [seq, num_heads, d], or four with batch in front', q.shape);
  checkRank(k, 'self_attention: k', paged === undefined ? q.rank : 4, paged === undefined ? 'as q has' : 'in blocks');
  checkRank(v, 'self_attention: v', k.rank, 'as k has');
  const [seq, numHeads, d] = q.shape.slice(-3) as [number, number, number];
  const [length, numKvHeads] = k.shape.slice(-3) as [number, number, number];
  const lead = q.shape.slice(0, -3);
  const dv = v.shape.at(-1)!;
  const rows = paged === undefined ? [...lead, length] : k.shape.slice(0, 2);
  checkDims(k, 'self_attention: k', [...rows, numKvHeads, d]);
  checkDims(v, 'self_attention: v', [...rows, numKvHeads, dv]);
  checkDims(out, 'self_attention: attn_val', [...lead, seq, numHeads, dv]);
  if (numKvHeads === 0 ? numHeads > 0 : numHeads % numKvHeads !== 0) {
    refuse('SHAPE', 'self_attention: q', `num_heads to be a multiple of num_kv_heads=${numKvHeads}`, numHeads);
  }
  if (typeof causal !== 'boolean') refuse('RANGE', 'self_attention: causal', 'true or false', causal);
  if (window !== undefined && (!Number.isInteger(window) || window < 1))
    refuse('RANGE', 'self_attention: window', 'an integer >= 1', window);
  if (window !== undefined && !causal) fail('UNSUPPORTED', 'self_attention: window', NOT_CAUSAL);
  const pages = paged === undefined ? undefined : readPages(paged, k, lead[0] ?? 1, seq, causal, window);
  const total = pages ? pages.lengths.reduce((a, b) => Math.max(a, b), 0) : length;
  if (causal && total < seq)
    refuse('SHAPE', 'self_attention: k', `total_len >= seqlen=${seq}, as each query has a key`, total);
  if (!causal && total === 0 && out.size > 0) refuse('SHAPE', 'self_attention: k', 'at least one key', total);
  checkFloat(q, 'self_attention: q');
  checkCache(k, 'self_attention: k');
  if (!isEightBits(k.dtype)) checkStored(k, 'self_attention: k', q.dtype);
  checkDtype(v, 'self_attention: v', k.dtype);
  const kRowScales = readRowScales(given.kRowScales, k, given.kScale, 'self_attention: kRowScales');
  const vRowScales = readRowScales(given.vRowScales, v, given.vScale, 'self_attention: vRowScales');
  const kScale = kRowScales ? undefined : readScale(given.kScale, k.dtype, numKvHeads, d, 'self_attention: kScale');
  const vScale = vRowScales ? undefined : readScale(given.vScale, k.dtype, numKvHeads, dv, 'self_attention: vScale');
  if (sinks !== undefined) {
    checkDims(sinks, 'self_attention: sinks', [numHeads]);
    checkStored(sinks, 'self_attention: sinks', q.dtype);
  }
  checkFloat(out, 'self_attention: attn_val', q.dtype);
  // With d = 0 every score is an empty sum, which 1/√0 would make 0·∞ = NaN.
  const scale = given.scale ?? (d === 0 ? 1 : 1 / Math.sqrt(d));
  if (!Number.isFinite(scale)) refuse('RANGE', 'self_attention: scale', 'a finite number', scale);
  if (softcap !== undefined && !(Number.isFinite(softcap) && softcap > 0))
    refuse('RANGE', 'self_attention: softcap', 'a finite number > 0', softcap);
  checkOutput(out, 'self_attention: attn_val');
  checkApart(out, 'self_attention: attn_val', 'q', q);
  checkApart(out, 'self_attention: attn_val', 'k', k);
  checkApart(out, 'self_attention: attn_val', 'v', v);
  if (sinks) checkApart(out, 'self_attention: attn_val', 'sinks', sinks);
  if (kRowScales) checkApart(out, 'self_attention: attn_val', 'kRowScales', kRowScales);
  if (vRowScales) checkApart(out, 'self_attention: attn_val', 'vRowScales', vRowScales);
  const four = (t: Tensor): Tensor => (t.rank === 4 ? t : t.unsqueeze());
  return checkedPlan<SelfAttentionPlan>({
    checked: CHECKED,
    op: 'self_attention',
    q: four(q),
    k: four(k),
    v: four(v),
    out: four(out),
    kScale,
    vScale,
    kRowScales: kRowScales && four(kRowScales),
    vRowScales: vRowScales && four(vRowScales),
    pages,
    total,
    scale,
    causal,
    window,
    softcap,
    sinks,
  });
}

function checkRank(tensor: Tensor, where: string, rank: number, why: string): void {
  checkTensor(tensor, where);
  if (tensor.rank !== rank) refuse('SHAPE', where, `${rank} dimensions, ${why}`, tensor.shape);
}

/** Reads a block table, in which every block that a query sees must exist. The work is bounded by the table. */
function readPages(
  paged: PagedOptions,
  k: Tensor,
  batch: number,
  seq: number,
  causal: boolean,
  window: number | undefined,
): Pages {
  const { blockTable, lengths: lengthList } = readOptions(paged, 'self_attention: paged', PAGED_NAMES);
  const at = 'self_attention: blockTable';
  checkTensor(blockTable, at);
  const [blocks, blockSize] = k.shape as [number, number];
  if (blockTable.rank !== 2 || blockTable.shape[0] !== batch)
    refuse('SHAPE', at, `shape [${batch}, max_blocks]`, blockTable.shape);
  const given = readIntegers(blockTable, at);
  const list = readList(lengthList, 'self_attention: lengths', 'a list of lengths');
  if (list.length !== batch)
    refuse('SHAPE', 'self_attention: lengths', `one for each sequence, ${batch} in all`, list.length);
  const maxBlocks = blockTable.shape[1]!;
  // Each query sees at least one key.
  const least = causal ? seq : Math.min(seq, 1);
  if (k.size === 0 && least > 0) refuse('SHAPE', 'self_attention: k', 'at least one block', k.shape);
  const room = maxBlocks * blockSize;
  if (room < least) refuse('SHAPE', at, `blocks for at least ${least} keys in the second dimension`, blockTable.shape);
  const lengths = new Int32Array(batch);
  const table = new Int32Array(batch * maxBlocks);
  for (let b = 0; b < batch; b++) {
    const length = list[b]!;
    checkInteger(length, `self_attention: lengths[${b}]`, least, room, 'max_blocks × block_size');
    lengths[b] = length;
    const first = window === undefined ? 0 : Math.max(0, length - seq - window + 1);
    for (let j = Math.floor(first / blockSize); j * blockSize < length; j++) {
      const n = b * maxBlocks + j;
      checkInteger(given[n], `${at}[${b}, ${j}]`, 0, blocks - 1);
      table[n] = given[n]!;
    }
  }
  return Object.freeze({ table, maxBlocks, blockSize, lengths });
}
