/**
 * The cause of wrong heads: attention is computed again from each side's own q, k and v, with masks, scales, caps and
 * head mappings that kernels have, until it gives that side's heads.
 *
 * @module
 */
import { type Cause, number, type Scene } from './cause.js';
import { compare } from './compare.js';
import type { Rows } from './side.js';

/** A way to attend. */
interface Way {
  readonly scale: number;
  /** The head of k and v that a head of q reads. */
  readonly mapping: 'grouped' | 'tiled';
  /** The head of v is so many further on than that of k. */
  readonly valueHead?: number;
  readonly window?: number;
  readonly chunk?: number;
  readonly softcap?: number | undefined;
  readonly causal: 'causal' | 'both ways' | 'without itself';
  /** Tokens at the start that nobody sees. */
  readonly skipped?: number;
  /** A row of the cache that holds what belongs into another one, or nothing. */
  readonly stale?: { readonly row: number; readonly holds: number | undefined };
}

interface Inputs {
  readonly q: Rows;
  readonly k: Rows;
  readonly v: Rows;
  readonly headDim: number;
}

/** More tokens than these are not computed again: the work grows with their square. */
const MOST_TOKENS = 384;
const MOST_HEADS = 8;
/** A scale or a cap is sought in so many rows, with about 50 tries; both at once in fewer, which no window cuts. */
const SEARCH_ROWS = 64;
const FIRST_ROWS = 8;

export async function attentionCauses(scene: Scene): Promise<Cause[]> {
  const [q, k, v] = [await scene.load('q_rope'), await scene.loadAll('k_rope'), await scene.loadAll('v')];
  const headDim = scene.heads?.headDim;
  if (!headDim) return [];
  const sideOf = (side: 'a' | 'b'): Inputs | undefined => {
    // A runtime without a hook on RoPE rotates as the other side, unless its heads say otherwise.
    const [ofQ, ofK, ofV] = [q, k, v].map((one) => one[side] ?? one.a) as [Rows?, Rows?, Rows?];
    if (!ofQ || !ofK || !ofV || ofQ.width % headDim !== 0 || ofK.width % headDim !== 0) return undefined;
    if (ofQ.tokens !== scene.a.tokens || ofK.tokens < ofQ.tokens || ofV.tokens !== ofK.tokens) return undefined;
    if (ofQ.width % ofK.width !== 0) return undefined;
    // The work of queries behind a long cache is bounded too.
    if (ofK.tokens > ofQ.tokens && ofK.tokens * ofQ.tokens > MOST_TOKENS ** 2) return undefined;
    if ((ofV.width * ofQ.width) % ofK.width !== 0 || (ofV.width * ofQ.width) / ofK.width !== scene.a.width)
      return undefined;
    return { q: ofQ, k: ofK, v: ofV, headDim };
  };
  const [ofA, ofB] = [sideOf('a'), sideOf('b')];
  if (!ofA || !ofB) return [];
  const usual: Way = { scale: 1 / Math.sqrt(headDim), mapping: 'grouped', causal: 'causal' };
  const left = (inputs: Inputs, heads: Rows, way: Way, most = MOST_TOKENS): number =>
    apart(inputs, heads, way, 0, most, MOST_HEADS);
  const fits = (inputs: Inputs, heads: Rows, way: Way): boolean => left(inputs, heads, way) <= scene.proof;
  const fitted = (inputs: Inputs, heads: Rows, base: Way): Way | undefined => {
    for (const way of waysBeside(base, scene, headDim, inputs.k.width / headDim))
      if (fits(inputs, heads, way)) return way;
    const sought = (way: Way): number => left(inputs, heads, way, SEARCH_ROWS);
    const scale = bestOf((x) => sought({ ...base, scale: x }), base.scale / 30, base.scale * 30);
    if (fits(inputs, heads, { ...base, scale })) return { ...base, scale };
    const softcap = bestOf((x) => sought({ ...base, softcap: x }), 0.5, 500);
    if (fits(inputs, heads, { ...base, softcap })) return { ...base, softcap };
    const { window: _w, chunk: _c, ...open } = base;
    const cut = cutOf(inputs, heads, open, scene.proof);
    return cut && fits(inputs, heads, cut) ? cut : undefined;
  };
  /** A model's own scale, cap and window at once: its first rows show the first two. */
  const fittedAnew = (): Way | undefined => {
    const early = (way: Way): number => left(ofA, scene.a, way, FIRST_ROWS);
    const scaleBeside = (softcap?: number): Way => {
      const way = softcap ? { ...usual, softcap } : usual;
      return { ...way, scale: bestOf((x) => early({ ...way, scale: x }), usual.scale / 30, usual.scale * 30) };
    };
    const own = [usual, scaleBeside()].find((way) => early(way) <= scene.proof);
    const base = own ?? scaleBeside(bestOf((cap) => early(scaleBeside(cap)), 1, 200));
    return fits(ofA, scene.a, base) ? base : fitted(ofA, scene.a, base);
  };
  const wayA = fitted(ofA, scene.a, usual) ?? fittedAnew();
  const wayB = wayA && (fitted(ofB, scene.b, wayA) ?? staleOf(ofB, scene, wayA));
  if (!wayA || !wayB) return [];
  const says = differenceWords(wayA, wayB, headDim);
  const rest = apart(ofB, scene.b, wayB, 0, MOST_TOKENS, Number.POSITIVE_INFINITY);
  if (says.length === 0 || rest > scene.proof) return [];
  const words = says.map(([, sentence]) => sentence).join(' ');
  const looked = scene.a.tokens > MOST_TOKENS ? ` Looked at: the first ${MOST_TOKENS} tokens.` : '';
  return [{ id: says[0]![0], says: `Attention: ${words}${looked}`, left: looked ? undefined : rest }];
}

/** The ways that differ from one in one thing. */
function* waysBeside(base: Way, { first, a }: Scene, headDim: number, kvHeads: number): Generator<Way, void> {
  yield base;
  // A window of N first shows at token N; beside a window of one less, so does the larger one.
  if (first > 0 && first < a.tokens) {
    yield { ...base, window: first };
    yield { ...base, window: first + 1 };
    yield { ...base, chunk: first };
  }
  for (const causal of ['both ways', 'without itself', 'causal'] as const)
    if (causal !== base.causal) yield { ...base, causal };
  yield { ...base, mapping: base.mapping === 'grouped' ? 'tiled' : 'grouped' };
  for (let valueHead = 1; valueHead < Math.min(kvHeads, MOST_HEADS); valueHead++) yield { ...base, valueHead };
  for (const scale of [1, 1 / headDim, 1 / Math.sqrt(2 * headDim), Math.SQRT2 / Math.sqrt(headDim), Math.sqrt(headDim)])
    yield { ...base, scale };
  for (const softcap of [50, 30, 20]) yield { ...base, softcap };
  for (const skipped of [1, 2, 4]) yield { ...base, skipped };
  const { window: _w, chunk: _c, ...open } = base;
  const { softcap, ...bare } = open;
  if (base.window || base.chunk) yield open;
  if (softcap) yield { ...base, softcap: undefined };
  if (base.window || base.chunk || softcap) {
    yield bare;
    yield { ...bare, causal: 'both ways' };
  }
}

/** Finds the window or the chunks that the last row shows. */
function cutOf(inputs: Inputs, heads: Rows, way: Way, proof: number): Way | undefined {
  const [row, all] = [heads.tokens - 1, inputs.k.tokens];
  if (all > MOST_TOKENS) return undefined;
  for (let window = 1; window < all; window++) {
    if (apart(inputs, heads, { ...way, window }, row, 1, 1) > proof) continue;
    for (let chunk = window; chunk <= all - window; chunk++)
      if ((all - window) % chunk === 0 && apart(inputs, heads, { ...way, chunk }, 0, MOST_TOKENS, 1) <= proof)
        return { ...way, chunk };
    return { ...way, window };
  }
  return undefined;
}

/** Finds a row of the cache that holds what belongs into the row beside it, or zeros. */
function staleOf(inputs: Inputs, { b, first, proof }: Scene, base: Way): Way | undefined {
  const past = inputs.k.tokens - b.tokens;
  if (inputs.k.tokens > MOST_TOKENS) return undefined;
  // In one pass all rows before the first wrong one are right, so that it is the row.
  const rows = past > 0 ? Array.from({ length: past }, (_, n) => n) : [first];
  for (const row of rows)
    for (const holds of [row - 1, row + 1, undefined]) {
      if (holds !== undefined && (holds < 0 || holds >= inputs.k.tokens)) continue;
      const way = { ...base, stale: { row, holds } };
      if (apart(inputs, b, way, b.tokens - 1, 1, 1) > proof) continue;
      if (apart(inputs, b, way, 0, MOST_TOKENS, MOST_HEADS) <= proof) return way;
    }
  return undefined;
}

/** Finds the least of a function over a range whose numbers differ in their orders. */
export function bestOf(of: (x: number) => number, low: number, high: number): number {
  const at = (share: number): number => low * (high / low) ** share;
  let best = 0;
  let least = Number.POSITIVE_INFINITY;
  for (let n = 0; n <= 16; n++) {
    const value = of(at(n / 16));
    if (value < least) [best, least] = [n / 16, value];
  }
  let [from, to] = [best - 1 / 16, best + 1 / 16];
  for (let n = 0; n < 30; n++) {
    const [x, y] = [from + (to - from) * 0.382, from + (to - from) * 0.618];
    if (of(at(x)) < of(at(y))) to = y;
    else from = x;
  }
  return at((from + to) / 2);
}

/** Attends with some heads and rows, and returns the largest difference of a row from the heads that a side has. */
function apart(
  { q, k, v, headDim }: Inputs,
  heads: Rows,
  way: Way,
  firstRow: number,
  mostRows: number,
  mostHeads: number,
): number {
  const [numHeads, numKvHeads] = [q.width / headDim, k.width / headDim];
  const valueDim = v.width / numKvHeads;
  const group = numHeads / numKvHeads;
  const step = Math.max(1, Math.floor(numHeads / mostHeads));
  // Keys of earlier passes lie in front of those of the queries.
  const past = k.tokens - q.tokens;
  const seen = Math.min(k.tokens, past + MOST_TOKENS);
  const tokens = Math.min(seen - past - firstRow, mostRows);
  const keyAt = (s: number): number => (s === way.stale?.row ? (way.stale.holds ?? Number.NaN) : s);
  const picked = Array.from({ length: numHeads }, (_, h) => h).filter((h) => h % step === 0);
  const shape = { tokens, width: picked.length * valueDim, headDim: valueDim };
  const [made, given] = [new Float32Array(tokens * shape.width), new Float32Array(tokens * shape.width)];
  const scores = new Float64Array(seen);
  for (const [n, h] of picked.entries()) {
    const kv = way.mapping === 'grouped' ? Math.floor(h / group) : h % numKvHeads;
    const ofV = (kv + (way.valueHead ?? 0)) % numKvHeads;
    for (let row = 0; row < tokens; row++) {
      const to = row * shape.width + n * valueDim;
      const [own, t] = [firstRow + row, past + firstRow + row];
      const from = Math.max(way.skipped ?? 0, way.window ? t - way.window + 1 : 0, way.chunk ? t - (t % way.chunk) : 0);
      const end = way.causal === 'both ways' ? seen : way.causal === 'causal' ? t + 1 : t;
      let most = Number.NEGATIVE_INFINITY;
      for (let s = from; s < end; s++) {
        let dot = 0;
        for (let i = 0; i < headDim; i++)
          dot += q.data[own * q.width + h * headDim + i]! * (k.data[keyAt(s) * k.width + kv * headDim + i] ?? 0);
        dot *= way.scale;
        if (way.softcap) dot = way.softcap * Math.tanh(dot / way.softcap);
        scores[s] = dot;
        if (dot > most) most = dot;
      }
      let sum = 0;
      for (let s = from; s < end; s++) sum += scores[s] = Math.exp(scores[s]! - most);
      for (let s = from; s < end; s++)
        for (let i = 0; i < valueDim; i++)
          made[to + i]! += (scores[s]! / sum) * (v.data[keyAt(s) * v.width + ofV * valueDim + i] ?? 0);
      given.set(heads.data.subarray(own * heads.width + h * valueDim, own * heads.width + (h + 1) * valueDim), to);
    }
  }
  return compare({ ...shape, data: given }, { ...shape, data: made }).worst;
}

const CAUSAL = {
  causal: 'those before them and themselves',
  'both ways': 'later tokens too',
  'without itself': 'those before them, but not themselves',
} as const;
const MAPPING = {
  grouped: 'head h reads key head ⌊h / group⌋',
  tiled: 'head h reads key head h mod the number of key heads',
} as const;

/** Says what two ways to attend differ in. */
function differenceWords(a: Way, b: Way, headDim: number): [id: string, words: string][] {
  const seen = ({ window, chunk }: Way): string =>
    window ? `a window of ${window} tokens` : chunk ? `chunks of ${chunk} tokens` : 'all tokens before';
  const scaled = ({ scale }: Way): string =>
    `${Math.abs(scale * Math.sqrt(headDim) - 1) < 1e-6 ? '1/√head_dim = ' : ''}${number(scale, 4)}`;
  const capped = ({ softcap }: Way): string => (softcap ? `capped at ${number(softcap)}` : 'not capped');
  const first = ({ skipped }: Way): string => (skipped ? `tokens from ${skipped} on` : 'the first token too');
  const cached = ({ stale }: Way): string =>
    !stale
      ? 'what was written there'
      : `${stale.holds === undefined ? 'zeros' : `the key and value of token ${stale.holds}`} for token ${stale.row}`;
  const told: readonly (readonly [string, string, (way: Way) => string])[] = [
    ['window', 'tokens see', seen],
    ['mask', 'tokens see', (way) => CAUSAL[way.causal]],
    ['mask', 'tokens see', first],
    [
      'head mapping',
      'keys of head h go with values of',
      ({ valueHead }) => (valueHead ? `head h + ${valueHead}, around` : 'head h'),
    ],
    ['head mapping', 'heads are mapped so:', (way) => MAPPING[way.mapping]],
    ['attention scale', 'scores are multiplied by', scaled],
    ['softcap', 'scores are', capped],
    ['stale cache', 'cache gives', cached],
  ];
  return told.flatMap(([id, what, of]): [string, string][] =>
    of(a) === of(b) ? [] : [[id, `B's ${what} ${of(b)}, A's ${of(a)}.`]],
  );
}

/** Logits that are capped on one side only. The cap is sought on some rows, and must then hold in all. */
export function softcapCause(scene: Scene): Cause[] {
  const { kind, a, b, proof } = scene;
  if (kind !== 'logits') return [];
  const tokens = Math.min(a.tokens, Math.max(1, Math.min(8, Math.floor(2 ** 18 / a.width))));
  const from = Math.min(scene.first, a.tokens - tokens) * a.width;
  const some = (rows: Rows): Rows => ({
    ...rows,
    tokens,
    data: rows.data.subarray(from, from + tokens * rows.width),
  });
  for (const [open, capped, names] of [
    [a, b, ['B', 'A']],
    [b, a, ['A', 'B']],
  ] as const) {
    const left = (cap: number, x: Rows, y: Rows): number =>
      compare(y, { ...x, data: x.data.map((one) => cap * Math.tanh(one / cap)) }).worst;
    const [x, y] = [some(open), some(capped)];
    const cap = bestOf((one) => left(one, x, y), 1, 1000);
    const rest = left(cap, x, y) <= proof ? left(cap, open, capped) : Number.POSITIVE_INFINITY;
    const says = `${names[0]}'s logits are capped at ${number(cap)}: they are ${number(cap)}·tanh(logit / ${number(cap)}) of ${names[1]}'s.`;
    if (rest <= proof) return [{ id: 'softcap', says, left: rest }];
  }
  return [];
}
