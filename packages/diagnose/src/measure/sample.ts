/** What is measured of an observation: tokens whose positions show most, and a few heads of each. @module */
import { storedNoise } from '../kernel/noise.js';
import type { Heads } from '../read/observation.js';

/** A token of a sample. */
export interface SampleToken {
  readonly batch: number;
  readonly seq: number;
  /** On each axis. */
  readonly positions: readonly number[];
}

/** Some tokens, some heads. */
export interface Sample {
  readonly tokens: readonly SampleToken[];
  /** Head indices. */
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
 * Picks tokens and heads and copies them; `slack` is further noise relative to a head's largest element, for 16-bit
 * tables.
 */
export function takeSample(of: Heads, slack = 0): Sample {
  const heads = spread(liveHeads(of), MAX_HEADS);
  const tokens = pickTokens(of, heads, MAX_TOKENS);
  const { headDim } = of;
  const size = tokens.length * heads.length * headDim;
  const x = new Float64Array(size);
  const y = new Float64Array(size);
  const noise = new Float64Array(size);
  let to = 0;
  for (const { batch, seq } of tokens) {
    for (const head of heads) {
      const from = ((batch * of.seq + seq) * of.heads + head) * headDim;
      const row = of.x.subarray(from, from + headDim);
      x.set(row, to);
      y.set(of.y.subarray(from, from + headDim), to);
      const largest = row.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
      for (let i = 0; i < headDim; i++) noise[to + i] = storedNoise(of.dtype, y[to + i]!, largest) + slack * largest;
      to += headDim;
    }
  }
  return { tokens, heads, headDim, x, y, noise };
}

/** Heads that are live in most tokens, so that there are tokens in which all of them are. */
function liveHeads({ batch, seq, heads, live }: Heads): number[] {
  const all = Array.from({ length: heads }, (_what, h) => h);
  if (!live) return all;
  const counts = new Uint32Array(heads);
  for (let r = 0; r < live.length; r++) counts[r % heads]! += live[r]!;
  const most = counts.reduce((a, b) => Math.max(a, b), 0);
  const usual = all.filter((h) => 2 * counts[h]! > most);
  for (let token = 0; token < batch * seq; token++) if (usual.every((h) => live[token * heads + h])) return usual;
  return all.filter((h) => counts[h] === most).slice(0, 1);
}

/**
 * Chooses at most `most` tokens in which these heads are live: the smallest positions, the largest, and some between, by
 * their logarithm.
 */
function pickTokens(of: Heads, heads: readonly number[], most: number): SampleToken[] {
  const all: SampleToken[] = [];
  for (let b = 0; b < of.batch; b++) {
    for (let s = 0; s < of.seq; s++) {
      if (of.live && !heads.every((h) => of.live![(b * of.seq + s) * of.heads + h])) continue;
      all.push({
        batch: b,
        seq: s,
        positions: Array.from({ length: of.numAxes }, (_what, a) => of.positions[(a * of.batch + b) * of.seq + s]!),
      });
    }
  }
  if (all.length <= most) return all;
  const reach = (token: SampleToken): number => Math.max(...token.positions.map(Math.abs));
  const sorted = [...all].sort((p, q) => reach(p) - reach(q));
  const chosen = new Set<SampleToken>();
  for (const token of sorted.slice(0, most / 4)) chosen.add(token);
  for (const token of sorted.slice(-most / 8)) chosen.add(token);
  // By logarithm, so that there are positions of every size.
  const top = Math.log1p(reach(sorted.at(-1)!));
  let next = 0;
  for (let step = 0; step < most / 4; step++) {
    const wanted = Math.expm1((top * step) / (most / 4));
    while (next < sorted.length - 1 && reach(sorted[next]!) < wanted) next++;
    chosen.add(sorted[next]!);
  }
  for (let n = 0; chosen.size < most; n++) chosen.add(all[Math.floor((n * all.length) / most)]!);
  return all.filter((token) => chosen.has(token));
}

/** Up to `most` of a list, evenly spread, including the first and the last. */
export function spread<T>(list: readonly T[], most: number): T[] {
  if (list.length <= most) return [...list];
  return Array.from({ length: most }, (_what, n) => list[Math.round((n * (list.length - 1)) / (most - 1))]!);
}
