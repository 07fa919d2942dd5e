/** Two states of a KV cache, or the caches of two runtimes: what became of each key, in sentences. @module */
import { frequenciesOf, type RopeSpec } from 'ropewalk';
import { nameLayers, ranges, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { type CacheSide, type KeyRun, keyRuns } from './turned-keys.js';

/** One layer of the two caches. */
export interface CacheLayer {
  readonly layer: number;
  readonly keys: readonly [a: CacheSide, b: CacheSide];
  readonly values?: readonly [a: CacheSide, b: CacheSide];
  /** The RoPE of its keys; without it only keys that were not turned are recognised. */
  readonly rope?: RopeSpec;
}

/** The position of each token in either cache, if they are known. */
export type CachePositions = readonly [a: readonly number[], b: readonly number[]];

export interface CacheRun extends Asked {
  /** Whether the keys are what they should be: with positions, turned by the difference; without, as they were. */
  readonly isRight: boolean;
  readonly says: string;
}

export interface CacheDiff {
  readonly isRight: boolean;
  readonly layers: readonly LayerDiff[];
  readonly lines: readonly string[];
}

interface LayerDiff {
  readonly layer: number;
  readonly runs: readonly CacheRun[];
  /** Tokens of the first cache that the second does not have. */
  readonly gone: readonly number[];
  /** Whether values are equal wherever keys come from, or in the same places. */
  readonly values: 'equal' | 'different' | undefined;
  readonly says: readonly string[];
}

const MOST_LINES = 12;
/** The error of two runtimes' f32 arithmetic. */
const LEAST_ERROR = 1e-4;

/** Compares two caches layer by layer; layers with the same findings share their lines. */
export function cacheDiff(layers: Iterable<CacheLayer>, positions?: CachePositions): CacheDiff {
  // A layer's numbers are let go before the next one's are read.
  const all = Array.from(layers, (one) => layerDiff(one, positions));
  const groups = new Map<string, LayerDiff[]>();
  for (const one of all) {
    // Errors differ a little from layer to layer.
    const key = JSON.stringify([one.runs.map(({ error, says, ...run }) => run), one.values]);
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  const lines = [...groups.values()].flatMap((some) => {
    const worst = some.reduce((p, q) => (errorOf(q) > errorOf(p) ? q : p));
    const title = all.length > 1 ? [`${nameLayers(some.map(({ layer }) => layer))}:`] : [];
    return [...title, ...worst.says.map((line) => (all.length > 1 ? `  ${line}` : line))];
  });
  const isRight = all.every(({ runs, values }) => runs.every((run) => run.isRight) && values !== 'different');
  return { isRight, layers: all, lines };
}

const errorOf = ({ runs }: LayerDiff): number => Math.max(...runs.map(({ error }) => error));

function layerDiff(one: CacheLayer, positions?: CachePositions): LayerDiff {
  const { layer, values, rope } = one;
  const [a, b] = one.keys;
  const runs = keyRuns(a, b, rope).flatMap((run) => byTurn(run, positions));
  const end = endOf(a, runs, positions);
  const judged = runs.map((run): CacheRun => ({ ...run, ...judge(run, one, end, positions) }));
  const kept = new Set(judged.flatMap(({ from, count }) => (from === undefined ? [] : span(from, count))));
  const gone = span(0, a.tokens).filter((token) => !kept.has(token));
  const says = judged.slice(0, MOST_LINES).map((run) => run.says);
  if (judged.length > MOST_LINES) says.push(`… and ${judged.length - MOST_LINES} more runs of tokens`);
  if (gone.length > 0) says.push(`keys of A that B does not have: ${ranges(gone)}`);
  if (!values) return { layer, runs: judged, gone, values: undefined, says };
  const isUnknown = judged.some(({ from, isRight }) => from === undefined && !isRight);
  const byValue = keyRuns(...values);
  /** The token of A from which each token of B has its values; NaN for none. */
  const source = byValue.flatMap(({ from, count }) => span(from ?? Number.NaN, count));
  const isSame = judged.every(({ from, at, count, isRight }) =>
    span(at, count).every((token, n) => {
      const own = source[token]!;
      if (from === undefined) return isRight || !Number.isNaN(own); // a new token has new values
      return own === from + n;
    }),
  );
  const moved = judged.some(({ turned, step }) => turned !== 0 || step !== 0);
  if (!isSame) says.push('values are different');
  else if (isUnknown) {
    const places = byValue.flatMap(({ at, count, from }) =>
      from === undefined || from === at ? [] : [`${spanWords(at, count)} are A's ${spanWords(from, count)}`],
    );
    const cause = rope
      ? 'no turn gives them, as with another base, scaling or pairing'
      : 'as with other positions or another RoPE; name the model to see by how much';
    says.push(`values are equal${places.length > 0 ? ` (${places.join(', ')})` : ''} and keys are not: ${cause}`);
  } else says.push(moved ? 'values are equal: only positions differ' : 'values are equal');
  return { layer, runs: judged, gone, values: isSame ? 'equal' : 'different', says };
}

/** The position in B of A's last token, or if it is not there in A: tokens after it are new. */
function endOf(a: CacheSide, runs: readonly Asked[], positions?: CachePositions): number {
  const [before, after] = positions ?? [span(0, a.tokens), undefined];
  const last = before.reduce((best, position, token) => (position > before[best]! ? token : best), 0);
  const kept = runs.find(({ from, count }) => from !== undefined && last >= from && last < from + count);
  const at = kept && kept.at + last - kept.from!;
  return at === undefined ? (before[last] ?? -1) : (after?.[at] ?? at);
}

const span = (from: number, count: number): number[] => Array.from({ length: count }, (_, n) => from + n);

/** A run, with the turn that its positions ask for. */
interface Asked extends KeyRun {
  /** The turn that they ask for, and how much more was turned, where they are the same for all its tokens. */
  readonly expected: number | undefined;
  readonly off: number | undefined;
}

/** Parts a run where neither is the same. Without positions no turn is asked for. */
function byTurn(run: KeyRun, positions?: CachePositions): Asked[] {
  const { from, at, count, turned, step } = run;
  if (from === undefined) return [{ ...run, expected: undefined, off: undefined }];
  const parts: Asked[] = [];
  for (let n = 0; n < count; n++) {
    const expected = positions ? positions[1][at + n]! - positions[0][from + n]! : 0;
    const off = Math.round((turned + step * n - expected) * 100) / 100;
    const last = parts.at(-1);
    const alike = {
      expected: last?.expected === expected ? expected : undefined,
      off: last?.off === off ? off : undefined,
    };
    if (last && (alike.expected ?? alike.off) !== undefined)
      parts[parts.length - 1] = { ...last, ...alike, count: last.count + 1 };
    else parts.push({ ...run, at: at + n, from: from + n, count: 1, turned: turned + step * n, expected, off });
  }
  return parts;
}

function judge(run: Asked, { keys: [a, b], rope }: CacheLayer, end: number, positions?: CachePositions) {
  const { at, count, from, turned, step, gain, error, grid, expected, off } = run;
  const tokens = spanWords(at, count);
  if (from === undefined) {
    const isNew = span(at, count).every((token) => token >= a.tokens || (positions?.[1][token] ?? token) > end);
    return { isRight: isNew, says: `${tokens}: keys that A does not have` };
  }
  const rounding = 8 * Math.max(UNIT_ROUNDOFF[a.dtype], UNIT_ROUNDOFF[b.dtype]);
  const isExplained = grid !== undefined || error <= Math.max(rounding, LEAST_ERROR);
  const isTurned = off === 0;
  const isSame = from === at && isTurned && expected === 0 && gain === 1 && isExplained;
  const parts: string[] = from === at ? [] : [`A's ${spanWords(from, count)}`];
  if (isSame) parts.push('as in A');
  else if (step !== 0 && count > 1) {
    const own = positions && span(0, count).every((n) => Math.abs(turned + step * n - positions[0][from + n]!) < 0.01);
    parts.push(`turned by ${number(turned)} to ${signed(turned + step * (count - 1))}`);
    parts.push(own ? 'each by its own position again' : `${number(step)} with each token`);
  } else parts.push(turned === 0 ? 'not turned' : `turned by ${signed(turned)}`);
  if (!isTurned && positions)
    parts.push(expected === undefined ? `${signed(off!)} more than positions ask for` : turnWords(turned, expected));
  if (gain !== 1) {
    const { attentionFactor = 1 } = rope ? frequenciesOf(rope) : {};
    const again = attentionFactor !== 1 && Math.abs(gain / attentionFactor - 1) < 2e-3;
    parts.push(`${Number(gain.toPrecision(5))} times as long${again ? ' (the model’s magnitude again)' : ''}`);
  }
  if (grid !== undefined) parts.push(`rounded to ${grid}`);
  if (error > LEAST_ERROR) parts.push(`error up to ${percent(error)}`);
  const isInPlace = positions !== undefined || from === at;
  return { isRight: isTurned && isInPlace && isExplained && gain === 1, says: `${tokens}: ${parts.join(', ')}` };
}

/** Says how a turn differs from the one that positions ask for. */
function turnWords(turned: number, expected: number): string {
  const should = `expected is ${signed(expected)}`;
  if (expected !== 0 && Math.abs(turned - 2 * expected) < 0.01) return `which is twice: ${should}`;
  if (expected !== 0 && Math.abs(turned + expected) < 0.01) return `which is the other way: ${should}`;
  return should;
}

const spanWords = (from: number, count: number): string =>
  count === 1 ? `token ${from}` : `tokens ${from}-${from + count - 1}`;
const number = (turned: number): string => `${turned < 0 ? '−' : '+'}${Number(Math.abs(turned).toPrecision(6))}`;
const signed = (turned: number): string => `${number(turned)} position${Math.abs(turned) === 1 ? '' : 's'}`;
const percent = (share: number): string => `${Number((100 * share).toPrecision(2))} %`;
