/** Attention: it chooses the kernel of a call, and the number of workgroups. @module */
import type { SelfAttentionPlan } from '../../../ops/self-attention.js';
import {
  type Call,
  cacheElementOf,
  elementOf,
  inFours,
  layoutRun,
  reads,
  type Use,
  usefulStrides,
  writes,
} from '../call.js';
import { FEW, JOIN, MANY, MANY_ROWS } from '../shaders/self-attention.js';

/** The most rows of a KV head that count as few: a tile of 64 would be mostly empty. */
const FEW_ROWS = 16;
/** The dimensions of all queries of a workgroup that the kernel for few rows has room for. */
const FEW_DIMS = 1536;
/**
 * The quads of values that a workgroup has side by side; more quads go to another workgroup, which computes the same
 * scores again.
 */
const FEW_COLUMNS = FEW.threads;
const MANY_COLUMNS = 32;
/** The workgroups that fill a large GPU, as WebGPU does not tell a device's size, and the fewest keys for one. */
const FEW_SHARING = { groups: 512, keys: 128 };
const MANY_SHARING = { groups: 256, keys: 256 };

/** The division of a call into workgroups. */
interface Cut {
  /** The rows of a workgroup. */
  readonly rows: number;
  /** The quads of values that it has room for. */
  readonly columns: number;
  /** The workgroups that share a block's values, and the quads of each. */
  readonly slices: number;
  readonly width: number;
}

/** Queues an attention. */
export function runSelfAttention(plan: SelfAttentionPlan, call: Call): void {
  const { q, k, v, out, kScale, vScale, kRowScales, vRowScales, pages, total, scale, causal, window, softcap, sinks } =
    plan;
  call.stage([q, k, v, ...[sinks, kRowScales, vRowScales].filter((tensor) => tensor !== undefined)], [out]);
  if (out.size === 0) return;
  const [batch, seq, heads, d] = q.shape as [number, number, number, number];
  const kvHeads = k.shape[2]!;
  const dv = v.shape[3]!;
  const group = heads / kvHeads;
  const rows = seq * group;
  const quads = Math.ceil(dv / 4);
  const depth = Math.ceil(d / 4) * 4;
  const few = rows <= FEW_ROWS && depth <= FEW_DIMS;
  const { columns, slices, width, ...cut } = few ? cutFew(rows, depth, quads) : cutMany(quads);
  const blocks = Math.ceil(rows / cut.rows);
  const alone = batch * kvHeads * blocks * slices;
  const sharing = few ? FEW_SHARING : MANY_SHARING;
  const keys = window === undefined ? total : Math.min(total, window + Math.ceil(cut.rows / group));
  const splits = Math.max(1, Math.min(Math.floor(sharing.groups / alone), Math.ceil(keys / sharing.keys)));
  const [qs, ks, vs, outs] = [call.place(q), call.place(k), call.place(v), call.place(out)] as const;
  const fours = inFours(
    [d, dv],
    [q, k, v, out].map((tensor) => usefulStrides(tensor)),
    [qs, ks, vs, outs].map(({ offset }) => offset),
  );
  const lanes = fours ? 4 : 1;
  const writesOut = writes('out', elementOf(out.dtype), lanes, outs.block);
  const sinksAt = sinks && call.place(sinks);
  const owns = [['kown', kRowScales] as const, ['vown', vRowScales] as const].flatMap(([name, tensor]) =>
    tensor ? [{ name, tensor, at: call.place(tensor) }] : [],
  );
  // The scales of both share a buffer, and so do lengths and tables, because a device has few bindings.
  const scales = kScale || vScale ? call.temporary(joined(Float32Array, kScale, vScale)) : undefined;
  const lastUses = [
    ...(sinksAt ? [reads('sinks', elementOf(sinks!.dtype), 1, sinksAt.block)] : []),
    ...(vScale ? [reads('vscale', 'f32', 1, scales!)] : []),
  ];
  const all = batch * kvHeads * rows;
  const parts = splits === 1 ? undefined : partsOf(all * splits, quads, call);
  const sizes = { units: alone * splits, slices, splits, batch, kvHeads, blocks, width, rows, group, d, dv };
  const mask = { total, past: total - seq, window: window ?? 0, causal: causal ? 1 : 0, scale, softcap: softcap ?? 0 };
  const paging = { maxBlocks: pages?.maxBlocks ?? 0, blockSize: pages?.blockSize ?? 0, vScale: kScale?.length ?? 0 };
  const ofOut = layoutRun('out', outs, out);
  const launch = {
    params: { ...sizes, ...mask, ...paging, sinks: sinksAt?.offset ?? 0, sinkStep: sinks?.strides[0] ?? 0 },
    runs: [
      ...[layoutRun('q', qs, q), layoutRun('k', ks, k), layoutRun('v', vs, v), ofOut],
      ...owns.map(({ name, at, tensor }) => layoutRun(name, at, tensor)),
    ],
    uses: [
      reads('q', elementOf(q.dtype), lanes, qs.block),
      reads('k', cacheElementOf(k.dtype), lanes, ks.block),
      reads('v', cacheElementOf(v.dtype), lanes, vs.block),
      ...(kScale ? [reads('kscale', 'f32', 1, scales!)] : []),
      ...owns.map(({ name, at }) => reads(name, 'f32', 1, at.block)),
      ...(pages ? [reads('pages', 'u32', 1, call.temporary(joined(Int32Array, pages.lengths, pages.table)))] : []),
      ...(parts ?? [writesOut, ...lastUses]),
    ],
    groups: sizes.units,
  };
  const variant = {
    lanes,
    parts: parts !== undefined,
    softcap: softcap !== undefined,
    sinks: sinks !== undefined && !parts,
    kScale: kScale !== undefined,
    vScale: vScale !== undefined && !parts,
    kOwn: kRowScales !== undefined,
    vOwn: vRowScales !== undefined,
    paged: pages !== undefined,
    columns,
  } as const;
  if (few) {
    const fewRows = cut.rows as 1 | 2 | 4 | 8;
    const room = Math.ceil(Math.max(1, (fewRows * depth) / 4 / FEW.threads)) * FEW.threads;
    call.launch({ kernel: FEW, variant: { ...variant, rows: fewRows, room }, ...launch });
  } else call.launch({ kernel: MANY, variant, ...launch });
  if (!parts) return;
  const across = Math.ceil(quads / 8);
  call.launch({
    kernel: JOIN,
    variant: { lanes, sinks: sinks !== undefined, vScale: vScale !== undefined },
    uses: [...parts.map((part) => ({ ...part, written: false })), writesOut, ...lastUses],
    runs: [ofOut],
    params: { ...launch.params, units: all * across, columns: across },
    groups: all * across,
  });
}

/** Joins two lists, either of which may be missing. */
function joined<A extends Float32Array | Int32Array>(
  type: new (length: number) => A,
  first: A | undefined,
  second: A | undefined,
): A {
  const all = new type((first?.length ?? 0) + (second?.length ?? 0));
  if (first) all.set(first);
  if (second) all.set(second, first?.length ?? 0);
  return all;
}

/** Chooses a power of two of rows, as few as hold all and no more than fit, and a power of two of columns. */
function cutFew(rows: number, depth: number, quads: number): Cut {
  let most = 8;
  while (most > 1 && (most / 2 >= rows || most * depth > FEW_DIMS)) most /= 2;
  const slices = Math.ceil(quads / FEW_COLUMNS);
  const width = Math.ceil(quads / slices);
  let columns = 8;
  while (columns < width) columns *= 2;
  return { rows: most, columns, slices, width };
}

function cutMany(quads: number): Cut {
  const slices = Math.ceil(quads / MANY_COLUMNS);
  const width = Math.ceil(quads / slices);
  return { rows: MANY_ROWS, columns: Math.ceil(width / 8) * 8, slices, width };
}

/** Takes memory for the results of each split: weighted sums of values, and each row's largest score and sum of weights. */
function partsOf(count: number, quads: number, call: Call): Use[] {
  return [
    writes('sums', 'f32', 4, call.scratch(count * quads * 16)),
    writes('states', 'f32', 1, call.scratch(count * 8)),
  ];
}
