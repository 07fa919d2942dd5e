/** Attention: a kernel for a few queries, as in decoding, and one for many. @module */
import { isFloat8, sizeBytes } from '../../../core/dtypes.js';
import type { Tensor } from '../../../core/tensor.js';
import { isEightBits } from '../../../ops/checks.js';
import type { SelfAttentionPlan } from '../../../ops/self-attention.js';
import { Attention, KEYS, Kernel, NR } from '../abi.js';
import { type Call, typeOf, writeF32, writeList } from '../call.js';
import { BYTES_PER_MADD } from '../launcher.js';

/** The most queries of one KV head for which keys and values are read in place. */
const FEW_QUERIES = 16;
/** The queries of one KV head that share a packed block of keys. */
const QUERY_ROWS = 120;

/** Converts scales for the kernels, which read f8_e4m3 2^8 times too small. */
function scalesOf(scale: Float32Array | undefined, { dtype, shape }: Tensor): Float32Array | undefined {
  if (dtype !== 'f8_e4m3') return scale;
  return (scale ?? new Float32Array(shape[2]! * shape[3]!).fill(1)).map((s) => s * 256);
}

/** Runs an attention. */
export function runSelfAttention(plan: SelfAttentionPlan, call: Call): void {
  const { q, k, v, out, sinks, pages, total, kRowScales, vRowScales } = plan;
  call.stage([q, k, v, ...[sinks, kRowScales, vRowScales].filter((tensor) => tensor !== undefined)], [out]);
  if (out.size === 0) return;
  const [batch, seq, heads, d] = q.shape as [number, number, number, number];
  const kvHeads = k.shape[2]!;
  const dv = v.shape[3]!;
  const group = heads / kvHeads;
  const few = seq * group <= FEW_QUERIES && k.strides[3] === 1 && v.strides[3] === 1;
  const gathers = few ? isFloat8(k.dtype) : pages !== undefined || isEightBits(k.dtype);
  const tokens = few ? seq : Math.max(1, Math.min(seq, Math.floor(QUERY_ROWS / group)));
  const blocks = Math.ceil(seq / tokens);
  const rows = tokens * group;
  const sinksAt = sinks ? call.denseF32(sinks) : 0;
  const lengthsAt = pages ? call.copyIn(pages.lengths) : 0;
  const tableAt = pages ? call.copyIn(pages.table) : 0;
  const [kScaleAt, vScaleAt] = [call.copyInF32(scalesOf(plan.kScale, k)), call.copyInF32(scalesOf(plan.vScale, v))];
  const gathered = gathers ? 4 * KEYS * (d + dv) : 0;
  const args = call.launcher.prepare(scratchBytes(few, rows, d, dv, call.launcher.tileRows) + gathered);
  args[Attention.gathers] = gathers ? 1 : 0;
  args[Attention.lengths] = lengthsAt;
  args[Attention.table] = tableAt;
  args[Attention.maxBlocks] = pages?.maxBlocks ?? 0;
  args[Attention.blockSize] = pages?.blockSize ?? 0;
  args[Attention.kScale] = kScaleAt;
  args[Attention.vScale] = vScaleAt;
  for (const [at, own] of [[Attention.kOwn, kRowScales] as const, [Attention.vOwn, vRowScales] as const]) {
    args[at] = own ? call.address(own) : 0;
    if (own) writeList(args, at + 1, own.strides.slice(0, 3));
  }
  args[Attention.q] = call.address(q);
  args[Attention.k] = call.address(k);
  args[Attention.v] = call.address(v);
  args[Attention.y] = call.address(out);
  args[Attention.type] = typeOf(q);
  args[Attention.cacheType] = typeOf(k);
  args[Attention.seq] = seq;
  args[Attention.total] = total;
  args[Attention.kvHeads] = kvHeads;
  args[Attention.group] = group;
  args[Attention.d] = d;
  args[Attention.dv] = dv;
  writeF32(args, Attention.scale, plan.scale);
  writeF32(args, Attention.softcap, plan.softcap ?? 0);
  args[Attention.sinks] = sinksAt;
  args[Attention.causal] = plan.causal ? 1 : 0;
  args[Attention.window] = plan.window ?? 0;
  args[Attention.tokens] = tokens;
  args[Attention.blocks] = blocks;
  writeList(args, Attention.qBatch, q.strides);
  writeList(args, Attention.kBatch, k.strides);
  writeList(args, Attention.vBatch, v.strides);
  writeList(args, Attention.yBatch, out.strides);
  const cost = few ? total * (d + dv) * sizeBytes(k.dtype) : (rows * total * (d + dv) * BYTES_PER_MADD) / 2;
  call.launcher.run(few ? Kernel.attentionFew : Kernel.attentionMany, batch * kvHeads * blocks, cost);
}

/** The size of each thread's scratch memory: see assembly/attention.ts for its layout. */
function scratchBytes(few: boolean, rows: number, d: number, dv: number, tileRows: number): number {
  if (few) {
    const fours = Math.ceil(rows / 4);
    return 4 * (fours * 4 * (d + dv) + KEYS * 4 + Math.max(d, dv) + 2 * dv) + fours * 64;
  }
  const values = Math.ceil(dv / tileRows) * tileRows;
  const panels = Math.ceil(rows / NR);
  return 4 * (panels * d * NR + KEYS * d + values * KEYS + KEYS * NR + panels * values * NR) + panels * 128;
}
