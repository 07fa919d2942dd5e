/**
 * Draws servers' bookkeeping of positions, right and wrong: layouts of tokens for `diagnose`, logs for `positions`, and caches
 * before and after for `cache-diff` and `diagnose --then`. The author had not read the code that judges them.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeNpy } from '@ropewalk/formats';
import type { RandomStream } from 'ropewalk/internal';
import { DIM, HEADS, turned as turnedBy } from '../../../test/support/rotated-rows.js';

/** A command to run in `folder`, and what must come of it: `says` is in its report where it is wrong. */
export interface Drawn {
  readonly name: string;
  readonly args: readonly string[];
  readonly wrong: boolean;
  readonly says: RegExp;
  readonly truth: string;
}

const BASE = 10000;
const SECTIONS = [4, 6, 6]; // pairs of time, height and width
const RECORD = { headDim: DIM, pairing: 'half', base: BASE };
const MROPE = {
  model_type: 'qwen2_vl',
  hidden_size: HEADS * DIM,
  num_attention_heads: HEADS,
  num_hidden_layers: 2,
  rope_theta: BASE,
  max_position_embeddings: 4096,
  rope_scaling: { type: 'mrope', mrope_section: SECTIONS },
};
const axisOf = (pair: number): number => (pair < SECTIONS[0]! ? 0 : pair < SECTIONS[0]! + SECTIONS[1]! ? 1 : 2);
const count = (length: number, from = 0): number[] => Array.from({ length }, (_, n) => from + n);
const among = <T>(random: RandomStream, all: readonly T[]): T => all[random.integer(all.length)]!;
const between = (random: RandomStream, low: number, high: number): number => low + random.integer(high - low + 1);

/** Where sequences begin, and the last one's end. */
const endsOf = (lengths: readonly number[]): number[] =>
  [0, ...lengths].map((_, n) => lengths.slice(0, n).reduce((a, b) => a + b, 0));

/** Rotates rows `[tokens, heads, head_dim]`; positions are a list, or one for each axis. */
const turned = (x: Float32Array, positions: readonly number[] | readonly (readonly number[])[]): Float32Array =>
  turnedBy(x, (token, pair) => {
    const own = positions[typeof positions[0] === 'object' ? axisOf(pair) : token]!;
    return typeof own === 'object' ? own[token]! : own;
  });
const rows = (random: RandomStream, tokens: number): Float32Array =>
  Float32Array.from({ length: tokens * HEADS * DIM }, () => random.uniform(-1, 1));
const write = (path: string, data: Float32Array, shape: readonly number[]): void =>
  writeFileSync(path, writeNpy(data, { dtype: 'f32', shape: [...shape, HEADS, DIM] }));
const writePositions = (path: string, data: readonly number[], shape: readonly number[]): void =>
  writeFileSync(path, writeNpy(Int32Array.from(data), { dtype: 'i32', shape: [...shape] }));

/** A layout of tokens: its options, its positions, and the wrong ones that a runtime could have. */
interface Layout {
  readonly name: string;
  readonly options: readonly string[];
  readonly shape: readonly number[];
  readonly positions: readonly number[];
  readonly faults: Readonly<Record<string, readonly number[]>>;
  /** Tokens that are padding: their positions are free. */
  readonly padding?: readonly boolean[];
}

const minusOneFrom = (positions: readonly number[], at: number): number[] =>
  positions.map((p, n) => (n < at ? p : p - 1));
const rolled = (positions: readonly number[]): number[] => [...positions.slice(1), positions[0]!];

const LAYOUTS: Readonly<Record<string, (random: RandomStream, folder: string) => Layout>> = {
  one(random) {
    const n = between(random, 6, 40);
    const positions = count(n);
    const at = between(random, 2, n - 2);
    const faults = {
      'counts from 1': count(n, 1),
      'all at 0': positions.map(() => 0),
      [`one too little from token ${at} on`]: minusOneFrom(positions, at),
      rolled: rolled(positions),
      [`starts again at token ${at}`]: positions.map((p) => (p < at ? p : p - at)),
    };
    return { name: 'one sequence', options: ['--tokens', String(n)], shape: [n], positions, faults };
  },
  cached(random) {
    const [n, before] = [between(random, 3, 12), between(random, 5, 300)];
    const faults = {
      'the cache is not counted': count(n),
      'all at the first': count(n).map(() => before),
      'one too little': count(n, before - 1),
      'cache counted twice': count(n, 2 * before),
    };
    const options = ['--tokens', String(n), '--cached', String(before)];
    return { name: 'behind a cache', options, shape: [n], positions: count(n, before), faults };
  },
  packed(random) {
    const lengths = count(between(random, 2, 4)).map(() => between(random, 3, 14));
    const starts = endsOf(lengths);
    const n = starts.at(-1)!;
    const positions = lengths.flatMap((length) => count(length));
    const faults = {
      'goes on from sequence to sequence': count(n),
      'sequence 1 counts from 1': positions.map((p, t) => (t >= starts[1]! && t < starts[2]! ? p + 1 : p)),
      'rolled over all sequences': rolled(positions),
    };
    return { name: 'packed', options: ['--cu-seqlens', starts.join()], shape: [n], positions, faults };
  },
  packedBehindCaches(random) {
    const lengths = count(between(random, 2, 3)).map(() => between(random, 1, 6));
    const before = lengths.map(() => between(random, 3, 90));
    const starts = endsOf(lengths);
    const faults = {
      'caches are not counted': lengths.flatMap((length) => count(length)),
      'all sequences have the cache of the first': lengths.flatMap((length) => count(length, before[0]! + 1)),
    };
    const options = ['--cu-seqlens', starts.join(), '--cached', before.join()];
    const positions = lengths.flatMap((length, s) => count(length, before[s]));
    return { name: 'packed behind caches', options, shape: [starts.at(-1)!], positions, faults };
  },
  chunks(random) {
    const chunks = count(between(random, 2, 4)).map(() => between(random, 4, 16));
    const n = chunks.at(-1)!;
    const start = chunks.slice(0, -1).reduce((a, b) => a + b, 0);
    const faults = {
      'the chunk starts at 0 again': count(n),
      'the chunk starts at twice its place': count(n, 2 * start),
      'one too little': count(n, start - 1),
    };
    return { name: 'chunks', options: ['--chunks', chunks.join()], shape: [n], positions: count(n, start), faults };
  },
  leftPadded(random, folder) {
    const [batch, width] = [between(random, 2, 3), between(random, 8, 20)];
    const pads = count(batch).map((b) => (b === 0 ? 0 : between(random, 1, width - 4)));
    return padded(
      folder,
      'left padding',
      pads.map((pad) => count(width).map((t) => (t < pad ? 0 : 1))),
      {
        'padding is counted': pads.flatMap(() => count(width)),
        'every row has the padding of row 1': pads.flatMap(() => count(width).map((t) => Math.max(0, t - pads[1]!))),
        'one too much': pads.flatMap((pad) => count(width).map((t) => Math.max(0, t - pad + 1))),
      },
    );
  },
  rightPadded(random, folder) {
    const [batch, width] = [between(random, 2, 3), between(random, 8, 20)];
    const lengths = count(batch).map((b) => (b === 0 ? width : between(random, 4, width - 1)));
    return padded(
      folder,
      'right padding',
      lengths.map((length) => count(width).map((t) => (t < length ? 1 : 0))),
      {
        'counted from the end of the row': lengths.flatMap((length) => count(width).map((t) => t + width - length)),
        'row 1 goes on from row 0': lengths.flatMap((_, b) => count(width, b * width)),
      },
    );
  },
  packedMask(random, folder) {
    const lengths = [between(random, 3, 8), between(random, 3, 8)];
    const mask = [...lengths.flatMap((length, d) => count(length).map(() => d + 1)), 0, 0];
    return padded(folder, 'documents in a mask', [mask], {
      'goes on from document to document': count(mask.length),
      'only document 1 is counted': mask.map((m, t) => (m === 1 ? t : 0)),
    });
  },
  share(random) {
    const kind = among(random, ['contiguous', 'zigzag', 'round-robin'] as const);
    const ranks = among(random, [2, 4]);
    const rank = random.integer(ranks);
    const n = 2 * ranks * between(random, 2, 6);
    const positions = shareOf(kind, rank, ranks, n);
    const other = among(
      random,
      (['contiguous', 'zigzag', 'round-robin'] as const).filter((k) => k !== kind),
    );
    const faults = {
      'the place in the share': count(positions.length),
      [`${other} instead of ${kind}`]: shareOf(other, rank, ranks, n),
      'the share of the next rank': shareOf(kind, (rank + 1) % ranks, ranks, n),
    };
    // Rank 0 of contiguous shares counts from 0, as its place in the share.
    const wrong = Object.entries(faults).filter(([, p]) => p.some((value, t) => value !== positions[t]));
    const options = ['--tokens', String(n), '--rank-layout', `${kind}:${rank}/${ranks}`];
    return {
      name: `share of a rank, ${kind}`,
      options,
      shape: [n / ranks],
      positions,
      faults: Object.fromEntries(wrong),
    };
  },
};

function shareOf(kind: 'contiguous' | 'zigzag' | 'round-robin', rank: number, ranks: number, tokens: number): number[] {
  const half = tokens / ranks / 2;
  if (kind === 'contiguous') return count(2 * half, rank * 2 * half);
  if (kind === 'round-robin') return count(2 * half).map((t) => t * ranks + rank);
  return [...count(half, rank * half), ...count(half, (2 * ranks - 1 - rank) * half)];
}

function padded(
  folder: string,
  name: string,
  mask: readonly (readonly number[])[],
  faults: Readonly<Record<string, readonly number[]>>,
): Layout {
  writeFileSync(join(folder, 'mask.json'), JSON.stringify(mask));
  const positions = mask.flatMap((row) =>
    row.map((m, t) => (m === 0 ? 1 : row.slice(0, t).filter((o) => o === m).length)),
  );
  const padding = mask.flatMap((row) => row.map((m) => m === 0));
  return {
    name,
    options: ['--attention-mask', 'mask.json'],
    shape: [mask.length, mask[0]!.length],
    positions,
    faults,
    padding,
  };
}

/** A dump of one layout for `diagnose`, right or with one fault; the runtime's positions are given, or not. */
export function drawLayout(random: RandomStream, folder: string, wrong: boolean): Drawn {
  const { name, options, shape, positions, faults, padding } = LAYOUTS[among(random, Object.keys(LAYOUTS))]!(
    random,
    folder,
  );
  const fault = among(random, Object.keys(faults));
  const given = random.integer(3) > 0;
  const used = wrong ? faults[fault]! : positions.map((p, t) => (padding?.[t] ? among(random, [0, 1, t]) : p));
  const x = rows(random, positions.length);
  write(join(folder, 'x.npy'), x, shape);
  write(join(folder, 'y.npy'), turned(x, used), shape);
  writePositions(join(folder, 'p.npy'), used, shape);
  writeFileSync(join(folder, 'rope.json'), JSON.stringify(RECORD));
  const args = ['diagnose', '--x', 'x.npy', '--y', 'y.npy', '--expect', 'rope.json', ...options];
  return {
    name: `${name}, ${given ? 'positions given' : 'no positions'}`,
    args: given ? [...args, '--positions', 'p.npy'] : args,
    wrong,
    says: given ? /^POSITIONS WRONG/ : /^(KNOWN BUG|DIFFERENT|ONE OF|PARTLY)/,
    truth: wrong ? fault : '',
  };
}

/** Text, an image of patches, text: positions of three axes. */
export function drawImage(random: RandomStream, folder: string, wrong: boolean): Drawn {
  const [at, height, width, after] = [
    between(random, 2, 6),
    between(random, 2, 5),
    between(random, 2, 5),
    between(random, 2, 8),
  ];
  const next = at + Math.max(height, width);
  const axes = [0, 1, 2].map((axis) => [
    ...count(at),
    ...count(height * width).map((n) => at + (axis === 0 ? 0 : axis === 1 ? Math.floor(n / width) : n % width)),
    ...count(after, next),
  ]);
  const n = axes[0]!.length;
  const faults: Record<string, number[][]> = {
    'the token for every axis': axes.map(() => count(n)),
    'height and width exchanged': [axes[0]!, axes[2]!, axes[1]!],
    'text behind the image counts tokens': axes.map((a) => a.map((p, t) => (t < at + height * width ? p : t))),
    'text behind the image one too early': axes.map((a) => a.map((p, t) => (t < at + height * width ? p : p - 1))),
  };
  const fault = among(random, Object.keys(faults));
  const used = wrong ? faults[fault]! : axes;
  const given = random.integer(3) > 0;
  const x = rows(random, n);
  write(join(folder, 'x.npy'), x, [n]);
  write(join(folder, 'y.npy'), turned(x, used), [n]);
  writePositions(join(folder, 'p.npy'), used.flat(), [3, n]);
  writeFileSync(join(folder, 'config.json'), JSON.stringify(MROPE));
  const args = ['diagnose', '--x', 'x.npy', '--y', 'y.npy', '--expect', 'config.json', '--tokens', String(n)];
  return {
    name: `an image, ${given ? 'positions given' : 'no positions'}`,
    args: [...args, '--grid', `${at}:1x${height}x${width}`, ...(given ? ['--positions', 'p.npy'] : [])],
    wrong,
    says: given ? /^POSITIONS WRONG/ : /^(KNOWN BUG|DIFFERENT|ONE OF|PARTLY)/,
    truth: wrong ? `${at}:1x${height}x${width}: ${fault}` : '',
  };
}

/** All ranks' dumps; one rank, or each, is wrong. */
export function drawRanks(random: RandomStream, folder: string, wrong: boolean): Drawn {
  const kind = among(random, ['contiguous', 'zigzag', 'round-robin'] as const);
  const ranks = among(random, [2, 4]);
  const n = 2 * ranks * between(random, 2, 5);
  const bad = random.integer(ranks - 1) + 1;
  const fault = among(random, ['local', 'neighbour', 'plus one'] as const);
  for (const rank of count(ranks)) {
    mkdirSync(join(folder, `rank${rank}`));
    const own = shareOf(kind, rank, ranks, n);
    const other =
      fault === 'local'
        ? count(own.length)
        : fault === 'plus one'
          ? own.map((p) => p + 1)
          : shareOf(kind, rank - 1, ranks, n);
    const x = rows(random, own.length);
    write(join(folder, `rank${rank}`, 'x.npy'), x, [own.length]);
    write(join(folder, `rank${rank}`, 'y.npy'), turned(x, wrong && rank === bad ? other : own), [own.length]);
  }
  writeFileSync(join(folder, 'rope.json'), JSON.stringify(RECORD));
  return {
    name: `all ranks, ${kind}`,
    args: [
      'diagnose',
      '--x',
      'rank*/x.npy',
      '--y',
      'rank*/y.npy',
      '--expect',
      'rope.json',
      '--tokens',
      String(n),
      '--rank-layout',
      kind,
    ],
    wrong,
    says: new RegExp(`rank ${bad}`),
    truth: wrong ? `rank ${bad} of ${ranks}: ${fault}` : '',
  };
}

type Line = Record<string, unknown> & { request: string; step: number; positions: number[] | number[][] };

/** The lines of one request in a server's log, and the faults that can happen in them, with the step. */
const LOGS: Readonly<
  Record<string, (random: RandomStream, request: string) => { lines: Line[]; faults: Record<string, Line[]> }>
> = {
  chunks(random, request) {
    const chunks = count(between(random, 2, 4)).map(() => between(random, 3, 9));
    const starts = chunks.map((_, n) => chunks.slice(0, n).reduce((a, b) => a + b, 0));
    const total = starts.at(-1)! + chunks.at(-1)!;
    const lines: Line[] = chunks.map((size, step) => ({ request, step, positions: count(size, starts[step]) }));
    for (let n = 0; n < 3; n++) lines.push({ request, step: lines.length, positions: [total + n] });
    const at = between(random, 1, chunks.length - 1);
    const edit = (step: number, change: (line: Line) => Partial<Line>): Line[] =>
      lines.map((line) => (line.step === step ? ({ ...line, ...change(line) } as Line) : line));
    return {
      lines,
      faults: {
        [`step ${at}: the chunk starts again at 0`]: edit(at, () => ({ positions: count(chunks[at]!) })),
        [`step ${at}: the chunk starts at twice its place`]: edit(at, () => ({
          positions: count(chunks[at]!, 2 * starts[at]!),
        })),
        [`step ${at}: one position is left out`]: lines.map((line) =>
          line.step < at ? line : { ...line, positions: (line.positions as number[]).map((p) => p + 1) },
        ),
        [`step ${chunks.length}: decodes at 0`]: lines.map((line) =>
          line.step < chunks.length ? line : { ...line, positions: [0] },
        ),
        [`step ${chunks.length + 1}: the same position again`]: edit(chunks.length + 1, () => ({ positions: [total] })),
        [`step ${at}: all at the first position`]: edit(at, () => ({
          positions: count(chunks[at]!).map(() => starts[at]!),
        })),
        [`step ${at}: rolled`]: edit(at, (line) => ({ positions: rolled(line.positions as number[]) })),
      },
    };
  },
  prefix(random, request) {
    const [cached, n] = [between(random, 4, 64), between(random, 3, 9)];
    const made = (start: number): Line[] => [
      { request, step: 0, cached, positions: count(n, start) },
      { request, step: 1, positions: [start + n] },
    ];
    return {
      lines: made(cached),
      faults: {
        'step 0: one too early behind a prefix': made(cached - 1),
        'step 0: the prefix is not counted': made(0),
      },
    };
  },
  drafts(random, request) {
    const [n, drafts] = [between(random, 3, 9), between(random, 2, 4)];
    const accepted = [between(random, 0, drafts - 1), between(random, 0, drafts), between(random, 0, drafts)];
    const made = (
      next: (start: number, taken: number) => number,
      of = (start: number) => count(drafts + 1, start),
    ): Line[] => {
      const lines: Line[] = [{ request, step: 0, positions: count(n) }];
      let start = n;
      for (const taken of accepted) {
        lines.push({ request, step: lines.length, positions: of(start), drafts, accepted: taken });
        start = next(start, taken);
      }
      return lines;
    };
    return {
      lines: made((start, taken) => start + taken + 1),
      faults: {
        'step 2: drafts are not given back': made((start) => start + drafts + 1),
        'step 2: the token beside drafts is not counted': made((start, taken) => start + taken),
        'step 1: all drafts at one position': made(
          (start, taken) => start + taken + 1,
          (start) => count(drafts + 1).map(() => start),
        ),
      },
    };
  },
  evicted(random, request) {
    const [n, evicted] = [between(random, 12, 30), between(random, 2, 8)];
    const shifted = random.integer(2) > 0;
    const made = (start: number): Line[] => [
      { request, step: 0, positions: count(n) },
      { request, step: 1, evicted, ...(shifted ? { shifted: true } : {}), positions: [start] },
      { request, step: 2, positions: [start + 1] },
    ];
    return {
      lines: made(shifted ? n - evicted : n),
      faults: {
        [`step 1: ${shifted ? 'keys moved, positions did not' : 'positions moved, keys did not'}`]: made(
          shifted ? n : n - evicted,
        ),
      },
    };
  },
  padding(random, request) {
    const [n, padding] = [between(random, 4, 12), between(random, 2, 6)];
    const made = (first: number[], next: number): Line[] => [
      { request, step: 0, padding, positions: first },
      { request, step: 1, positions: [next] },
    ];
    return {
      lines: made([...count(padding).map(() => 1), ...count(n)], n),
      faults: {
        'step 0: padding is counted': made(count(padding + n), padding + n),
        'step 1: padding is counted when decoding': made([...count(padding).map(() => 1), ...count(n)], n + padding),
      },
    };
  },
  axes(random, request) {
    const [at, height, width] = [between(random, 2, 5), between(random, 2, 4), between(random, 2, 4)];
    const next = at + Math.max(height, width);
    const made = (follows: number): Line[] => {
      const first = [0, 1, 2].map((axis) => [
        ...count(at),
        ...count(height * width).map((k) => at + (axis === 0 ? 0 : axis === 1 ? Math.floor(k / width) : k % width)),
        ...count(2, next),
      ]);
      return [
        { request, step: 0, positions: first },
        { request, step: 1, positions: [0, 1, 2].map(() => [follows]) },
        { request, step: 2, positions: [0, 1, 2].map(() => [follows + 1]) },
      ];
    };
    return {
      lines: made(next + 2),
      faults: { 'step 1: counts tokens, not positions, behind an image': made(at + height * width + 2) },
    };
  },
  ranks(random, request) {
    const kind = among(random, ['contiguous', 'zigzag', 'round-robin'] as const);
    const ranks = among(random, [2, 4]);
    const n = 2 * ranks * between(random, 2, 4);
    const made = (share: (rank: number) => number[]): Line[] =>
      count(ranks).map((rank) => ({ request, step: 0, rank, positions: share(rank) }));
    return {
      lines: [
        ...made((rank) => shareOf(kind, rank, ranks, n)),
        ...count(ranks).map((rank) => ({ request, step: 1, rank, positions: [n] })),
      ].filter((line) => line.step === 0 || line.rank === 0),
      faults: {
        'step 0: each rank counts its own share': made(() => count(n / ranks)),
        'step 0: rank 1 has the share of rank 0': made((rank) => shareOf(kind, rank === 1 ? 0 : rank, ranks, n)),
      },
    };
  },
};

/** A log of one to three requests whose steps alternate. */
export function drawLog(random: RandomStream, folder: string, wrong: boolean): Drawn {
  const kinds = count(between(random, 1, 3)).map(() => among(random, Object.keys(LOGS)));
  const bad = random.integer(kinds.length);
  let truth = '';
  const all = kinds.map((kind, n) => {
    const { lines, faults } = LOGS[kind]!(random, `r${n}`);
    if (!wrong || n !== bad) return lines;
    const fault = among(random, Object.keys(faults));
    truth = `request r${n}, ${fault}`;
    return faults[fault]!;
  });
  const lines = all.flat().sort((a, b) => a.step - b.step);
  writeFileSync(join(folder, 'log.jsonl'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
  const says = new RegExp(`^${truth.slice(0, truth.indexOf(':'))}\\b`);
  return { name: `a log of ${kinds.join(', ')}`, args: ['positions', 'log.jsonl'], wrong, says, truth };
}

/** Two states of a cache: tokens leave, the others move, and are turned, or not, as the positions say. */
export function drawCaches(random: RandomStream, folder: string, wrong: boolean): Drawn {
  const n = between(random, 10, 24);
  const x = rows(random, n);
  const [keep, gone] = [between(random, 1, 4), between(random, 2, 5)];
  const kept = count(n).filter((t) => t < keep || t >= keep + gone);
  const moves = random.integer(4) > 0;
  const now = kept.map((t, slot) => (moves ? slot : t));
  const part = (tokens: readonly number[]): Float32Array =>
    Float32Array.from(tokens.flatMap((t) => [...x.subarray(t * HEADS * DIM, (t + 1) * HEADS * DIM)]));
  const right = turned(part(kept), now);
  const behind = (change: (p: number, t: number) => number): Float32Array =>
    turned(
      part(kept),
      now.map((p, slot) => (slot < keep ? p : change(p, kept[slot]!))),
    );
  const faults: Record<string, [Float32Array, RegExp]> = {
    'turned by one position too much': [behind((p) => p - 1), /turned by .*expected/],
    'turned the other way': [behind((p, t) => 2 * t - p + (moves ? 0 : 2)), /turned by .*expected/],
    'times 1.2': [right.map((v) => v * 1.2), /times 1\.2|magnitude 1\.2|1\.2/],
    'head 1 is not as it was': [
      right.map((v, i) => (Math.floor(i / DIM) % HEADS === 1 && Math.floor(i / DIM / HEADS) >= keep ? -v : v)),
      /head|magnitude|not|other|none/i,
    ],
  };
  if (moves) faults['not turned'] = [behind((_, t) => t), /as in A|not turned|expected|A's tokens/];
  const fault = among(random, Object.keys(faults));
  const [after, says] = wrong ? faults[fault]! : [right, /./];
  write(join(folder, 'x.npy'), x, [n]);
  write(join(folder, 'a.npy'), turned(x, count(n)), [n]);
  write(join(folder, 'b.npy'), after, [kept.length]);
  writePositions(join(folder, 'p.npy'), count(n), [n]);
  writePositions(join(folder, 'q.npy'), now, [now.length]);
  writeFileSync(join(folder, 'rope.json'), JSON.stringify(RECORD));
  const two = random.integer(2) > 0;
  const args = two
    ? ['cache-diff', 'a.npy', 'b.npy', '--expect', 'rope.json', '--positions', 'p.npy', '--then-positions', 'q.npy']
    : [
        'diagnose',
        '--x',
        'x.npy',
        '--y',
        'a.npy',
        '--positions',
        'p.npy',
        '--then',
        'b.npy',
        '--then-positions',
        'q.npy',
        '--expect',
        'rope.json',
      ];
  return {
    name: `${two ? 'cache-diff' : 'diagnose --then'}${moves ? '' : ', nothing moves'}`,
    args,
    wrong,
    says,
    truth: wrong ? fault : '',
  };
}

export const DRAWS = [drawLayout, drawLayout, drawLog, drawLog, drawImage, drawRanks, drawCaches] as const;
