/** The part of an observation that is measured: the tokens whose positions show most, and a few heads of each. @module */
import { storedNoise } from '../kernel/noise.js';
import { type Heads, positionsOf, widened } from '../read/observation.js';

export interface SampleToken {
  readonly batch: number;
  readonly seq: number;
  /** The given position on each axis. */
  readonly positions: readonly number[];
}

export interface Sample {
  readonly tokens: readonly SampleToken[];
  readonly heads: readonly number[];
  readonly headDim: number;
  /** `[token, head, head_dim]` */
  readonly x: Float64Array;
  readonly y: Float64Array;
  /** How far rounding may have moved each y. */
  readonly noise: Float64Array;
}

const MAX_TOKENS = 48;
const MAX_HEADS = 8;

/**
 * Picks tokens and heads and copies them.
 *
 * @param slack - further noise, relative to the largest element of a head; 16-bit tables need it
 */
export function takeSample(of: Heads, slack = 0): Sample {
  const { tokens, heads } = pickTokens(of);
  const { headDim } = of;
  const size = tokens.length * heads.length * headDim;
  const x = new Float64Array(size);
  const y = new Float64Array(size);
  const noise = new Float64Array(size);
  for (const [n, r] of rowsOf(of, tokens, heads).entries()) {
    const [from, to] = [r * headDim, n * headDim];
    const row = widened(of.x.subarray(from, from + headDim));
    x.set(row, to);
    y.set(of.y.subarray(from, from + headDim), to);
    const largest = row.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    for (let i = 0; i < headDim; i++) noise[to + i] = storedNoise(of.dtype, y[to + i]!, largest) + slack * largest;
  }
  return { tokens, heads, headDim, x, y, noise };
}

/** The rows of the tokens and heads in a sample. */
export function sampleRows(of: Heads): number[] {
  const { tokens, heads } = pickTokens(of);
  return rowsOf(of, tokens, heads);
}

function rowsOf(of: Heads, tokens: readonly SampleToken[], heads: readonly number[]): number[] {
  return tokens.flatMap(({ batch, seq }) => heads.map((head) => (batch * of.seq + seq) * of.heads + head));
}

/**
 * Chooses heads, and tokens in which all these heads are diagnosed: the smallest positions, the largest, and some between,
 * by their logarithm.
 */
function pickTokens(of: Heads): { tokens: SampleToken[]; heads: number[] } {
  const isLive = new Uint8Array(of.batch * of.seq * of.heads);
  for (const r of of.rows) isLive[r] = 1;
  const heads = spread(liveHeads(of, isLive), MAX_HEADS);
  const all: SampleToken[] = [];
  for (let token = 0; token < of.batch * of.seq; token++) {
    if (!heads.every((h) => isLive[token * of.heads + h])) continue;
    all.push({ batch: Math.floor(token / of.seq), seq: token % of.seq, positions: positionsOf(of, token) });
  }
  if (all.length <= MAX_TOKENS) return { tokens: all, heads };
  const reach = (token: SampleToken): number => Math.max(...token.positions.map(Math.abs));
  const sorted = [...all].sort((p, q) => reach(p) - reach(q));
  const chosen = new Set([...sorted.slice(0, MAX_TOKENS / 4), ...sorted.slice(-MAX_TOKENS / 8)]);
  const top = Math.log1p(reach(sorted.at(-1)!));
  let next = 0;
  for (let step = 0; step < MAX_TOKENS / 4; step++) {
    const wanted = Math.expm1((top * step) / (MAX_TOKENS / 4));
    while (next < sorted.length - 1 && reach(sorted[next]!) < wanted) next++;
    chosen.add(sorted[next]!);
  }
  for (let n = 0; chosen.size < MAX_TOKENS; n++) chosen.add(all[Math.floor((n * all.length) / MAX_TOKENS)]!);
  return { tokens: all.filter((token) => chosen.has(token)), heads };
}

/** The heads that are diagnosed in most tokens, so that some tokens have all of them. */
function liveHeads({ batch, seq, heads, rows }: Heads, isLive: Uint8Array): number[] {
  const all = Array.from({ length: heads }, (_, h) => h);
  const counts = new Uint32Array(heads);
  for (const r of rows) counts[r % heads]!++;
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  const usual = all.filter((h) => 2 * counts[h]! > most);
  for (let token = 0; token < batch * seq; token++) if (usual.every((h) => isLive[token * heads + h])) return usual;
  return all.filter((h) => counts[h] === most).slice(0, 1);
}

/** Up to `most` of a list, evenly spread, with the first and the last. */
export function spread<T>(list: readonly T[], most: number): T[] {
  if (list.length <= most) return [...list];
  return Array.from({ length: most }, (_, n) => list[Math.round((n * (list.length - 1)) / (most - 1))]!);
}
