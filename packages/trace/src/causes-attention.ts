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
  readonly window?: number;
  readonly chunk?: number;
  readonly softcap?: number;
  readonly causal: 'causal' | 'both ways' | 'without itself';
  /** Tokens at the start that nobody sees. */
  readonly skipped?: number;
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
/** A scale or a cap is sought in so many rows, with about 50 tries. */
const SEARCH_ROWS = 64;

export async function attentionCauses(scene: Scene): Promise<Cause[]> {
  const [q, k, v] = [await scene.load('q_rope'), await scene.load('k_rope'), await scene.load('v')];
  const headDim = scene.heads?.headDim;
  if (!headDim) return [];
  const sideOf = (side: 'a' | 'b'): Inputs | undefined => {
    // A runtime without a hook on RoPE rotates as the other side, unless its heads say otherwise.
    const [ofQ, ofK, ofV] = [q, k, v].map((one) => one[side] ?? one.a) as [Rows?, Rows?, Rows?];
    if (!ofQ || !ofK || !ofV || ofQ.width % headDim !== 0 || ofK.width % headDim !== 0) return undefined;
    if (ofQ.tokens !== scene.a.tokens || ofK.tokens !== scene.a.tokens || ofQ.width % ofK.width !== 0) return undefined;
    if ((ofV.width * ofQ.width) % ofK.width !== 0 || (ofV.width * ofQ.width) / ofK.width !== scene.a.width)
      return undefined;
    return { q: ofQ, k: ofK, v: ofV, headDim };
  };
  const [ofA, ofB] = [sideOf('a'), sideOf('b')];
  if (!ofA || !ofB) return [];
  const usual: Way = { scale: 1 / Math.sqrt(headDim), mapping: 'grouped', causal: 'causal' };
  const left = (inputs: Inputs, heads: Rows, way: Way): number => apart(inputs, heads, way, MOST_TOKENS, MOST_HEADS);
  const fitted = (inputs: Inputs, heads: Rows, base: Way): Way | undefined => {
    for (const way of waysBeside(base, scene, headDim)) if (left(inputs, heads, way) <= scene.proof) return way;
    const sought = (way: Way): number => apart(inputs, heads, way, SEARCH_ROWS, MOST_HEADS);
    const scale = bestOf((x) => sought({ ...base, scale: x }), base.scale / 30, base.scale * 30);
    if (left(inputs, heads, { ...base, scale }) <= scene.proof) return { ...base, scale };
    const softcap = bestOf((x) => sought({ ...base, softcap: x }), 0.5, 500);
    return left(inputs, heads, { ...base, softcap }) <= scene.proof ? { ...base, softcap } : undefined;
  };
  const wayA = fitted(ofA, scene.a, usual);
  const wayB = wayA && fitted(ofB, scene.b, wayA);
  if (!wayA || !wayB) return [];
  const says = differenceWords(wayA, wayB, headDim);
  const rest = apart(ofB, scene.b, wayB, MOST_TOKENS, Number.POSITIVE_INFINITY);
  if (says.length === 0 || rest > scene.proof) return [];
  const words = says.map(([, sentence]) => sentence).join(' ');
  const looked = scene.a.tokens > MOST_TOKENS ? ` Looked at: the first ${MOST_TOKENS} tokens.` : '';
  return [{ id: says[0]![0], says: `Attention: ${words}${looked}`, left: looked ? undefined : rest }];
}

/** The ways that differ from one in one thing. */
function* waysBeside(base: Way, { first, a }: Scene, headDim: number): Generator<Way, void> {
  yield base;
  // A window of N first shows at token N.
  if (first > 0 && first < a.tokens) {
    yield { ...base, window: first };
    yield { ...base, chunk: first };
  }
  for (const causal of ['both ways', 'without itself', 'causal'] as const)
    if (causal !== base.causal) yield { ...base, causal };
  yield { ...base, mapping: base.mapping === 'grouped' ? 'tiled' : 'grouped' };
  for (const scale of [1, 1 / headDim, 1 / Math.sqrt(2 * headDim), Math.SQRT2 / Math.sqrt(headDim), Math.sqrt(headDim)])
    yield { ...base, scale };
  for (const softcap of [50, 30, 20]) yield { ...base, softcap };
  for (const skipped of [1, 2, 4]) yield { ...base, skipped };
  const { window: _w, chunk: _c, softcap: _s, ...open } = base;
  if (base.window || base.chunk || base.softcap) yield open;
}

/** Finds the least of a function over a range whose numbers differ in their orders. */
function bestOf(of: (x: number) => number, low: number, high: number): number {
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

/** Attends with some heads, and returns the largest difference of a row from the heads that a side has. */
function apart({ q, k, v, headDim }: Inputs, heads: Rows, way: Way, mostRows: number, mostHeads: number): number {
  const [numHeads, numKvHeads] = [q.width / headDim, k.width / headDim];
  const valueDim = v.width / numKvHeads;
  const group = numHeads / numKvHeads;
  const step = Math.max(1, Math.floor(numHeads / mostHeads));
  const seen = Math.min(heads.tokens, MOST_TOKENS);
  const tokens = Math.min(seen, mostRows);
  const picked = Array.from({ length: numHeads }, (_, h) => h).filter((h) => h % step === 0);
  const shape = { tokens, width: picked.length * valueDim, headDim: valueDim };
  const [made, given] = [new Float32Array(tokens * shape.width), new Float32Array(tokens * shape.width)];
  const scores = new Float64Array(seen);
  for (const [n, h] of picked.entries()) {
    const kv = way.mapping === 'grouped' ? Math.floor(h / group) : h % numKvHeads;
    for (let t = 0; t < tokens; t++) {
      const to = t * shape.width + n * valueDim;
      const from = Math.max(way.skipped ?? 0, way.window ? t - way.window + 1 : 0, way.chunk ? t - (t % way.chunk) : 0);
      const end = way.causal === 'both ways' ? seen : way.causal === 'causal' ? t + 1 : t;
      let most = Number.NEGATIVE_INFINITY;
      for (let s = from; s < end; s++) {
        let dot = 0;
        for (let i = 0; i < headDim; i++)
          dot += q.data[t * q.width + h * headDim + i]! * k.data[s * k.width + kv * headDim + i]!;
        dot *= way.scale;
        if (way.softcap) dot = way.softcap * Math.tanh(dot / way.softcap);
        scores[s] = dot;
        if (dot > most) most = dot;
      }
      let sum = 0;
      for (let s = from; s < end; s++) sum += scores[s] = Math.exp(scores[s]! - most);
      for (let s = from; s < end; s++)
        for (let i = 0; i < valueDim; i++)
          made[to + i]! += (scores[s]! / sum) * v.data[s * v.width + kv * valueDim + i]!;
      given.set(heads.data.subarray(t * heads.width + h * valueDim, t * heads.width + (h + 1) * valueDim), to);
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
  const told: readonly (readonly [string, string, (way: Way) => string])[] = [
    ['window', 'tokens see', seen],
    ['mask', 'tokens see', (way) => CAUSAL[way.causal]],
    ['mask', 'tokens see', first],
    ['head mapping', 'heads are mapped so:', (way) => MAPPING[way.mapping]],
    ['attention scale', 'scores are multiplied by', scaled],
    ['softcap', 'scores are', capped],
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
