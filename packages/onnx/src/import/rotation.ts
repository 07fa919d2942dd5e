/**
 * Decides whether sums of products are a rotation of pairs: y0 = x0·c − x1·s, y1 = x0·s + x1·c, the rest copied.
 *
 * @module
 */
import type { Pairing } from 'ropewalk';
import type { Factor, Forms, Term } from '../operators/forms.js';

/**
 * The cos and sin that each member of a pair reads. Two places may hold the same number: HuggingFace repeats halves.
 */
export interface PairTables {
  readonly cos: readonly [Factor, Factor];
  readonly sin: readonly [Factor, Factor];
}

export interface Rotation {
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  readonly pairing: Exclude<Pairing, 'vision'>;
  /** backward rotates by −angle. */
  readonly direction: 'forward' | 'backward';
  /** The factor of cos and sin outside of their tables, usually 1. */
  readonly scale: number;
  readonly tables: readonly PairTables[];
}

/** A rotation, the reason why something similar is none, or undefined for anything else. */
export type Verdict = { readonly rotation: Rotation } | { readonly because: string } | undefined;

interface Mixed {
  readonly channel: number;
  /** The sign, the size and the table for each channel of x. */
  readonly parts: ReadonlyMap<number, { readonly k: number; readonly table: Factor }>;
}

/**
 * Judges the channels of y against x.
 *
 * @param forms - of y's last dimension
 * @param x - the leaf that is rotated, as wide as y
 * @param isTable - tells whether a leaf holds cos or sin; only then can something be nearly a rotation
 */
export function judgeRotation(forms: Forms, x: string, isTable: (leaf: string) => boolean): Verdict {
  const mixed: Mixed[] = [];
  let other = '';
  for (const [channel, terms] of forms.entries()) {
    if (isCopy(terms, x, channel)) continue;
    const parts = new Map<number, { k: number; table: Factor }>();
    for (const term of terms) {
      const own = term.factors.filter((factor) => factor.leaf === x);
      const tables = term.factors.filter((factor) => factor.leaf !== x);
      if (own.length === 1 && tables.length === 1 && !parts.has(own[0]!.at))
        parts.set(own[0]!.at, { k: term.k, table: tables[0]! });
    }
    if (parts.size === 2 && terms.length === 2) mixed.push({ channel, parts });
    else other ||= `y${channel} is ${describe(terms, x)}`;
  }
  if (mixed.length === 0) return undefined;
  if (![...mixed].some(({ parts }) => [...parts.values()].every(({ table }) => isTable(table.leaf)))) {
    // Any four tensors that are multiplied and added look similar. Without tables only an exact rotation counts.
    if (other !== '') return undefined;
    const verdict = pairUp(mixed, forms.length);
    return verdict && 'rotation' in verdict ? verdict : undefined;
  }
  if (other !== '') return { because: `${other}, where a rotation has x·cos ± x'·sin or x itself` };
  return pairUp(mixed, forms.length);
}

function isCopy([term, ...more]: readonly Term[], x: string, channel: number): boolean {
  if (term?.k !== 1 || term.factors.length !== 1 || more.length > 0) return false;
  return term.factors[0]!.leaf === x && term.factors[0]!.at === channel;
}

function describe(terms: readonly Term[], x: string): string {
  if (terms.length === 0) return '0';
  const words = terms.slice(0, 3).map(({ k, factors }) => {
    const own = factors.filter((factor) => factor.leaf === x).map((factor) => `x${factor.at}`);
    const tables = factors.length - own.length;
    const size = Math.abs(k) === 1 ? [] : [String(Math.abs(k))];
    const table = tables === 0 ? [] : [tables === 1 ? 't' : `t^${tables}`];
    return `${k < 0 ? '−' : '+'}${[...size, ...own, ...table].join('·')}`;
  });
  return `${words.join(' ')}${terms.length > 3 ? ' …' : ''}`.replace(/^\+/, '');
}

/** Two channels of x, and the two channels of y that mix them. */
type Pair = { readonly a: number; readonly b: number; readonly p: Mixed; readonly q: Mixed };

function pairUp(mixed: readonly Mixed[], headDim: number): Verdict {
  const byInputs = new Map<string, Mixed[]>();
  for (const one of mixed) {
    const key = [...one.parts.keys()].sort((a, b) => a - b).join();
    byInputs.set(key, [...(byInputs.get(key) ?? []), one]);
  }
  const pairs: Pair[] = [];
  for (const [key, outputs] of byInputs) {
    const [a, b] = key.split(',').map(Number) as [number, number];
    const count = outputs.length;
    if (count !== 2)
      return { because: `x${a} and x${b} are mixed into ${count} of y's dimensions, where a pair goes into 2` };
    pairs.push({ a, b, p: outputs[0]!, q: outputs[1]! });
  }
  pairs.sort((one, two) => one.a - two.a);
  const window = windowOf(pairs);
  if ('because' in window) return window;
  const { rotaryOffset, pairing } = window;

  const tables: PairTables[] = [];
  const signs = new Set<string>();
  let scale: number | undefined;
  for (const { a, b, p, q } of pairs) {
    const [pa, pb, qa, qb] = [p.parts.get(a)!, p.parts.get(b)!, q.parts.get(a)!, q.parts.get(b)!];
    const sizes = [pa, pb, qa, qb].map(({ k }) => Math.abs(k));
    scale ??= sizes[0]!;
    if (sizes.some((size) => Math.abs(size / scale! - 1) > 1e-6))
      return { because: 'cos and sin are multiplied by different numbers' };
    signs.add([pa, pb, qa, qb].map(({ k }) => (k < 0 ? '−' : '+')).join(''));
    tables.push({ cos: [pa.table, qb.table], sin: [pb.table, qa.table] });
  }
  if (signs.size > 1)
    return { because: `the signs differ from pair to pair: ${[...signs].join(' and ')} of x0·c, x1·s, x0·s, x1·c` };
  const [pattern] = signs as unknown as [string];
  const direction = { '+−++': 'forward' as const, '++−+': 'backward' as const }[pattern];
  if (!direction) return { because: wrongSigns(pattern) };
  const rotaryDim = 2 * pairs.length;
  return { rotation: { headDim, rotaryDim, rotaryOffset, pairing, direction, scale: scale!, tables } };
}

function wrongSigns(pattern: string): string {
  const [c0, s1, s0, c1] = pattern as unknown as [string, string, string, string];
  const has = `y0 = ${c0 === '+' ? '' : '−'}x0·c ${s1} x1·s, y1 = ${s0 === '+' ? '' : '−'}x0·s ${c1} x1·c`;
  const why =
    c0 === c1 && s0 !== s1
      ? 'cos has a minus sign, which adds half a turn to each angle'
      : 'that is no rotation: it does not keep lengths';
  return `its signs are wrong: ${has}; ${why}. RoPE has y0 = x0·c − x1·s, y1 = x0·s + x1·c`;
}

function windowOf(pairs: readonly Pair[]): Pick<Rotation, 'rotaryOffset' | 'pairing'> | { readonly because: string } {
  const half = pairs.length;
  const rotaryOffset = Math.min(...pairs.flatMap(({ a, p }) => [a, p.channel]));
  const is = (members: readonly (readonly [number, number])[], step: number, gap: number): boolean =>
    members.every(([first, second], j) => first === rotaryOffset + step * j && second === first + gap);
  const read = pairs.map(({ a, b }) => [a, b] as const);
  const written = pairs.map(({ p, q }) => [p.channel, q.channel] as const);
  const [readsHalves, readsNeighbors] = [is(read, 1, half), is(read, 2, 1)];
  const [writesHalves, writesNeighbors] = [is(written, 1, half), is(written, 2, 1)];
  if (readsHalves && writesHalves) return { rotaryOffset, pairing: 'half' };
  if (readsNeighbors && writesNeighbors) return { rotaryOffset, pairing: 'interleaved' };
  if (readsNeighbors && writesHalves) return { rotaryOffset, pairing: 'interleaved-to-half' };
  const { a, b, p, q } = pairs[0]!;
  const has = `its pairs are not known here: x${a} and x${b} go to y${p.channel} and y${q.channel}`;
  const known = `with ${2 * half} dimensions from ${rotaryOffset} on, pairs are (2j, 2j + 1) or (j, j + ${half})`;
  return { because: `${has}; ${known}` };
}
