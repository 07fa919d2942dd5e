/** The positions that tokens must have: in packed sequences, behind padding, in chunks, with images, on ranks. @module */
import { refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, readList, readOptions } from 'ropewalk/internal';

/** How the tokens of a call lie. One of `tokens`, `cuSeqlens`, `attentionMask` and `chunks` says it. */
export interface TokenLayout {
  /** One sequence of so many tokens. Beside `attentionMask`: the call has only the last so many of its columns. */
  readonly tokens?: number;
  /** Packed sequences begin at these tokens; the last number is the end: `[0, 5, 9]`. */
  readonly cuSeqlens?: readonly number[];
  /** `[batch, tokens]` of 0 for padding and 1, or of the number of a packed document, as in `[1, 1, 2, 2, 0]`. */
  readonly attentionMask?: readonly (readonly number[])[];
  /** The tokens of each call of a prefill in chunks; the last is this call. */
  readonly chunks?: readonly number[];
  /** The tokens that are in the cache already: of every sequence, or of each. Default: 0 */
  readonly cached?: number | readonly number[];
  /** Images in one sequence, which M-RoPE gives three axes: the patches in time, height and width, from a token on. */
  readonly grid?: readonly { readonly at: number; readonly t: number; readonly h: number; readonly w: number }[];
  /** This rank's share of each sequence. */
  readonly rank?: { readonly layout: RankLayout; readonly rank: number; readonly of: number };
}

/**
 * How a sequence is shared between ranks: in runs; in pairs of runs, one from each end, as causal attention balances
 * (Megatron-LM, ring attention); or token by token.
 */
export type RankLayout = 'contiguous' | 'zigzag' | 'round-robin';
export const RANK_LAYOUTS: readonly RankLayout[] = ['contiguous', 'zigzag', 'round-robin'];

/** One sequence of a call, or a rank's share of it. */
export interface LaidSequence {
  /** Where its tokens are in the call, counted over the batch. */
  readonly places: readonly number[];
  /** `[axes][tokens]`. */
  readonly positions: readonly (readonly number[])[];
}

/** The tokens of a call with their positions. Places in no sequence are padding. */
export interface LaidTokens {
  /** `[batch, seq]`, with axes in front for images. */
  readonly shape: readonly number[];
  /** In the order of `shape`; 0 for padding. */
  readonly positions: Int32Array;
  readonly sequences: readonly LaidSequence[];
}

const NAMES: OptionNames<TokenLayout> = /* @__PURE__ */ optionNames(
  'tokens cuSeqlens attentionMask chunks cached grid rank',
);
const RANK_NAMES: OptionNames<NonNullable<TokenLayout['rank']>> = { layout: true, rank: true, of: true };
const IMAGE_NAMES: OptionNames<NonNullable<TokenLayout['grid']>[number]> = { at: true, t: true, h: true, w: true };
const MOST = 2 ** 24;

/**
 * Computes the positions that tokens must have.
 *
 * @throws {RopewalkError} FORMAT or RANGE, naming the option
 */
export function laidOut(given: TokenLayout): LaidTokens {
  const layout = readOptions(given, 'positions: layout', NAMES);
  const { cuSeqlens, attentionMask, chunks } = layout;
  const ways = [cuSeqlens, attentionMask, chunks].filter((one) => one !== undefined).length;
  if (ways > 1 || (ways === 1 && layout.tokens !== undefined && attentionMask === undefined))
    refuse('FORMAT', 'positions: layout', 'one of tokens, cuSeqlens, attentionMask and chunks', Object.keys(layout));
  if (attentionMask !== undefined) return masked(layout);
  const ends = endsOf(layout);
  const cached = cachedOf(layout, ends.length - 1);
  const sequences: LaidSequence[] = [];
  let place = 0;
  for (let n = 0; n + 1 < ends.length; n++) {
    const own = counted(ends[n + 1]! - ends[n]!, cached[n]!, layout);
    sequences.push({ places: own[0]!.map(() => place++), positions: own });
  }
  return whole(1, place, sequences);
}

/** The tokens at which sequences begin, and the last one's end. */
function endsOf({ tokens, cuSeqlens, chunks, grid }: TokenLayout): number[] {
  const many = (list: readonly number[], where: string, low: number): number[] =>
    Array.from(readList<number>(list, where), (one) => checkInteger(one, where, low, MOST));
  if (chunks !== undefined) {
    const list = many(chunks, 'positions: chunks', 1);
    return list.length > 0 ? [0, list.at(-1)!] : refuse('RANGE', 'positions: chunks', 'at least one number', chunks);
  }
  if (cuSeqlens !== undefined) {
    if (grid !== undefined) refuse('FORMAT', 'positions: grid', 'tokens, not cuSeqlens, beside it', cuSeqlens);
    const ends = many(cuSeqlens, 'positions: cuSeqlens', 0);
    if (ends[0] !== 0 || ends.length < 2 || ends.some((end, n) => n > 0 && end < ends[n - 1]!))
      refuse('RANGE', 'positions: cuSeqlens', 'numbers that begin with 0 and do not fall', cuSeqlens);
    return ends;
  }
  return [0, checkInteger(tokens as number, 'positions: tokens', 1, MOST)];
}

function cachedOf({ cached = 0, chunks }: TokenLayout, sequences: number): number[] {
  const before = (chunks ?? []).slice(0, -1).reduce((sum, one) => sum + one, 0);
  const one = (count: number): number => checkInteger(count, 'positions: cached', 0, 2 ** 31 - 1) + before;
  if (typeof cached === 'number') return new Array<number>(sequences).fill(one(cached));
  const list = Array.from(readList<number>(cached, 'positions: cached'), one);
  return list.length === sequences
    ? list
    : refuse('RANGE', 'positions: cached', `one number, or ${sequences}, one for each sequence`, cached);
}

/** Positions of a sequence, `[axes][tokens]`: those of this rank. */
function counted(tokens: number, from: number, { grid, rank }: TokenLayout): number[][] {
  const whole =
    grid === undefined ? [Array.from({ length: tokens }, (_, n) => from + n)] : withImages(tokens, from, grid);
  if (rank === undefined) return whole;
  const own = shareOf(tokens, rank);
  return whole.map((axis) => own.map((n) => axis[n]!));
}

/** The tokens of a sequence that a rank has. */
function shareOf(tokens: number, given: NonNullable<TokenLayout['rank']>): number[] {
  const { layout, rank, of } = readOptions(given, 'positions: rank', RANK_NAMES);
  checkInteger(of, 'positions: rank.of', 1, 65536);
  checkInteger(rank, 'positions: rank.rank', 0, of - 1);
  if (!RANK_LAYOUTS.includes(layout)) refuse('RANGE', 'positions: rank.layout', RANK_LAYOUTS.join(', '), layout);
  const all = Array.from({ length: tokens }, (_, n) => n);
  if (layout === 'round-robin') return all.filter((n) => n % of === rank);
  const runs = layout === 'zigzag' ? 2 * of : of;
  if (tokens % runs !== 0)
    refuse(
      'RANGE',
      'positions: tokens',
      `a multiple of ${runs} in each sequence, for ${layout} on ${of} ranks`,
      tokens,
    );
  const run = (n: number): number[] => all.slice((n * tokens) / runs, ((n + 1) * tokens) / runs);
  return layout === 'zigzag' ? [...run(rank), ...run(runs - 1 - rank)] : run(rank);
}

/** M-RoPE: an image's patches count on three axes from where the text has come to, and the text goes on after the longest. */
function withImages(tokens: number, from: number, grid: NonNullable<TokenLayout['grid']>): number[][] {
  const axes: [number[], number[], number[]] = [[], [], []];
  let next = from;
  const text = (until: number): void => {
    while (axes[0].length < until) {
      for (const axis of axes) axis.push(next);
      next++;
    }
  };
  for (const image of Array.from(readList(grid, 'positions: grid'))) {
    const { at, t, h, w } = readOptions(
      image as NonNullable<TokenLayout['grid']>[number],
      'positions: grid',
      IMAGE_NAMES,
    );
    for (const size of [t, h, w]) checkInteger(size, 'positions: grid', 1, 65536);
    checkInteger(at, 'positions: grid: at', axes[0].length, tokens - t * h * w);
    text(at);
    for (let n = 0; n < t * h * w; n++) {
      axes[0].push(next + Math.floor(n / (h * w)));
      axes[1].push(next + (Math.floor(n / w) % h));
      axes[2].push(next + (n % w));
    }
    next += Math.max(t, h, w);
  }
  text(tokens);
  return axes;
}

function masked(layout: TokenLayout): LaidTokens {
  if (layout.grid !== undefined || layout.rank !== undefined)
    refuse('FORMAT', 'positions: attentionMask', 'no grid and no rank beside it', Object.keys(layout));
  const rows = Array.from(readList(layout.attentionMask!, 'positions: attentionMask'), (row) =>
    Array.from(readList<number>(row as readonly number[], 'positions: attentionMask'), (one) =>
      checkInteger(one, 'positions: attentionMask', 0, MOST),
    ),
  );
  const width = rows[0]?.length ?? 0;
  if (width === 0 || rows.some((row) => row.length !== width))
    refuse(
      'SHAPE',
      'positions: attentionMask',
      'rows of one length',
      rows.map((row) => row.length),
    );
  const seq = layout.tokens === undefined ? width : checkInteger(layout.tokens, 'positions: tokens', 1, width);
  const cached = cachedOf(layout, rows.length);
  const sequences = rows.flatMap((row, b) => {
    const found = new Map<number, { count: number; places: number[]; positions: number[] }>();
    for (const [n, document] of row.entries()) {
      if (document === 0) continue;
      const own = found.get(document) ?? { count: 0, places: [], positions: [] };
      found.set(document, own);
      const position = cached[b]! + own.count++;
      if (n < width - seq) continue;
      own.places.push(b * seq + n - (width - seq));
      own.positions.push(position);
    }
    return [...found.values()].map(({ places, positions }): LaidSequence => ({ places, positions: [positions] }));
  });
  return whole(rows.length, seq, sequences);
}

/** Writes the positions as a list. */
function whole(batch: number, seq: number, sequences: readonly LaidSequence[]): LaidTokens {
  const axes = sequences[0]?.positions.length ?? 1;
  const positions = new Int32Array(axes * batch * seq);
  for (const { places, positions: own } of sequences)
    for (const [a, axis] of own.entries())
      for (const [n, position] of axis.entries()) positions[a * batch * seq + places[n]!] = position;
  return { shape: axes > 1 ? [axes, batch, seq] : [batch, seq], positions, sequences };
}

/**
 * Compares the positions that a runtime used with those that the tokens must have.
 *
 * @param given - `[axes, batch, seq]`, or `[batch, seq]`; one axis stands for all
 * @param layout - how the tokens lie
 * @returns a text for each sequence that is wrong; padding may have any position
 * @throws {RopewalkError} SHAPE for another number of positions; as {@link laidOut}
 * @example positionFaults([0, 1, 2, 3], { cuSeqlens: [0, 2, 4] }); // sequence 1 starts at 2 instead of 0; …
 */
export function positionFaults(given: ArrayLike<number>, layout: TokenLayout): string[] {
  const { shape, sequences } = laidOut(layout);
  const list = Array.from(readList<number>(given, 'positions: given'), (one) =>
    checkInteger(one, 'positions: given', -(2 ** 31), 2 ** 32),
  );
  const [batch, seq] = shape.slice(-2) as [number, number];
  const size = batch * seq;
  const axes = sequences[0]?.positions.length ?? 1;
  if (![size, axes * size].includes(list.length))
    refuse(
      'SHAPE',
      'positions: given',
      `${axes === 1 ? '' : `${axes} × `}${size} positions, as the layout has`,
      list.length,
    );
  return sequences.flatMap((own, n): string[] => {
    for (let a = 0; a < axes; a++) {
      const at = list.length === size ? 0 : a * size;
      const found = own.places.map((place) => list[at + place]!);
      const words = faultOf(found, own.positions[a]!);
      if (words) return [`sequence ${n}${axes > 1 ? `, axis ${'thw'[a]}` : ''} ${words}`];
    }
    return [];
  });
}

/** Says what is wrong with the positions of one sequence; undefined for nothing. */
function faultOf(found: readonly number[], wanted: readonly number[]): string | undefined {
  const first = found.findIndex((position, n) => position !== wanted[n]);
  if (first < 0) return undefined;
  const off = found.map((position, n) => position - wanted[n]!);
  const [got, right] = [found[first]!, wanted[first]!];
  const rest = off.slice(first);
  if (found.length > 1 && found.every((one) => one === got))
    return `has the position ${got} at all of its ${found.length} tokens`;
  if (rest.every((one) => one === off[first])) {
    const where =
      first === 0 ? `starts at ${got} instead of ${right}` : `has ${got} instead of ${right} at its token ${first}`;
    const by = `${Math.abs(off[first]!)} too ${off[first]! > 0 ? 'large' : 'small'}`;
    if (first > 0 && got === found[0]) return `starts again at ${got} at its token ${first}, where ${right} is next`;
    return found.length === 1
      ? where
      : `${where}; ${first === 0 ? 'all its positions' : 'from there on positions'} are ${by}`;
  }
  const step = found[1]! - found[0]!;
  const isEven = (list: readonly number[], by: number): boolean =>
    list.slice(1).every((one, n) => one - list[n]! === by);
  if (step !== 1 && isEven(found, step) && isEven(wanted, 1))
    return `counts by ${step} from ${found[0]}, instead of by 1`;
  const wrong = off.filter((one) => one !== 0).length;
  return `has ${got} instead of ${right} at its token ${first}; ${wrong} of its ${found.length} positions are wrong`;
}
