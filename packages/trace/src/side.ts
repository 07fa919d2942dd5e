/** One dump, sorted by the places of its tensors; its values are loaded as rows, a row for each token. @module */
import { DTYPES, type Dtype } from 'ropewalk';
import { hostOf } from 'ropewalk/backend';
import { readIntegers } from 'ropewalk/internal';
import type { Dump, DumpTensor, LayerFacts } from './dump.js';
import { KINDS, type Kind, type Place, placeOf } from './names.js';

/** The tensors of one place: those of each rank, and of each rank those of successive forward passes. */
export interface Group extends Place {
  readonly key: string;
  /** The forward pass; undefined when those of all passes are joined. */
  readonly step: number | undefined;
  readonly ranks: readonly (readonly DumpTensor[])[];
}

/** Values as a matrix, a row for each token. */
export interface Rows {
  readonly tokens: number;
  readonly width: number;
  /** The size of a head, where the shape tells it. */
  readonly headDim: number | undefined;
  /** How many rows of its tensor were left off in front of these. */
  readonly start?: number;
  readonly data: Float32Array;
}

/** A dump, sorted. */
export interface Side {
  readonly dump: Dump;
  readonly groups: ReadonlyMap<string, Group>;
  /** The tensors whose names no rule knows, or that are not from a forward pass. */
  readonly unnamed: readonly DumpTensor[];
  /** The tokens and positions that the dump has, `[tokens]`. */
  readonly tokens: readonly number[] | undefined;
  readonly positions: readonly number[] | undefined;
  /** The number of tokens in the passes before one. */
  before(pass: number): number;
  /** Returns the number of tokens of a rank and a pass; undefined where no tensor tells. */
  rowsOf(rank: number, step: number): number | undefined;
  facts(layer: number): LayerFacts | undefined;
}

/** The key of a group. */
export const keyOf = (step: number | undefined, layer: number | undefined, kind: Kind): string =>
  `${step ?? ''}:${layer ?? ''}:${kind}`;

/** The kinds whose last dimension is the width of the stream, so that the others count tokens. */
export const WIDE: ReadonlySet<Kind> = new Set([
  'embedding',
  'attn_norm',
  'attn',
  'mid',
  'mlp_norm',
  'mlp',
  'out',
  'norm',
]);
export const OF_VOCABULARY: ReadonlySet<Kind> = new Set(['head', 'logits']);
const MAX_COUNTED = 2 ** 22;

/** Returns the forward passes in their order, with the number of tokens where a tensor of the stream tells. */
function passesOf({ tensors }: Dump): Map<number, number | undefined> {
  const found = new Map<number, number | undefined>();
  for (const { name, shape, step = 0 } of tensors) {
    const place = placeOf(name);
    if (place)
      found.set(step, found.get(step) ?? (WIDE.has(place.kind) && shape.length > 1 ? leadOf(shape) : undefined));
  }
  return new Map([...found].sort(([a], [b]) => a - b));
}

/** Says whether the passes of two dumps are cut at other tokens, as a prompt that goes through in chunks. */
export function areCutOtherwise(a: Dump, b: Dump): boolean {
  const [ours, theirs] = [a, b].map((dump) => [...passesOf(dump).values()]) as [number[], number[]];
  const sum = (counts: readonly number[]): number => counts.reduce((all, count) => all + count, 0);
  // Totals that differ are those of padding; one that is not known is NaN here.
  return ours.length !== theirs.length || (sum(ours) === sum(theirs) && ours.some((count, n) => count !== theirs[n]));
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
const leadOf = (shape: readonly number[]): number => sizeOf(shape.slice(0, -1));

/**
 * Sorts a dump.
 *
 * @param joined - whether the tensors of successive passes are one tensor, as a prompt that went through in chunks
 */
export async function sideOf(dump: Dump, joined: boolean): Promise<Side> {
  const found = new Map<string, { place: Place; step: number | undefined; tensors: DumpTensor[] }>();
  const unnamed: DumpTensor[] = [];
  const [wide, counted] = [new Map<string, number>(), new Map<string, number>()];
  const passes = [...passesOf(dump).keys()];
  const hasPost = dump.tensors.some(({ name }) => /(?:pre|post)_feedforward_layernorm/.test(name));
  for (const tensor of dump.tensors) {
    let place = placeOf(tensor.name);
    if (hasPost && place && /post_attention_layernorm/.test(tensor.name)) place = { ...place, kind: 'attn_post' };
    const { item = 0, kind } = place ?? {};
    const { shape, rank = 0, step = 0 } = tensor;
    if (isCounted(tensor, 'tokens')) counted.set(`${rank}.${step}`, sizeOf(shape));
    if (!place || !isFloat(tensor) || shape.includes(0) || (item > 0 && kind !== 'out')) {
      unnamed.push(tensor);
      continue;
    }
    if (WIDE.has(place.kind) && shape.length > 1 && !wide.has(`${rank}.${step}`))
      wide.set(`${rank}.${step}`, leadOf(shape));
    const pass = joined ? undefined : passes.indexOf(step);
    const key = keyOf(pass, place.layer, place.kind);
    const group = found.get(key) ?? { place, step: pass, tensors: [] };
    group.tensors.push(tensor);
    found.set(key, group);
  }
  // A runtime may give q one name before and after RoPE: the last one of a pass is rotated.
  for (const [key, { place, step, tensors }] of [...found]) {
    if (place.kind !== 'q' && place.kind !== 'k') continue;
    const rotated = key.replace(/[qk]$/, '$&_rope');
    const later = tensors.filter((one, n) => tensors.slice(0, n).some((other) => sameCall(one, other)));
    if (later.length === 0 || found.has(rotated)) continue;
    const last = later.filter((one) => !later.slice(later.indexOf(one) + 1).some((other) => sameCall(one, other)));
    found.set(rotated, { place: { ...place, kind: `${place.kind}_rope` }, step, tensors: last });
  }
  const groups = new Map<string, Group>();
  for (const [key, { place, step, tensors }] of found) {
    const ranks = new Map<string, Map<number, DumpTensor>>();
    for (const tensor of tensors) {
      const item = place.kind === 'out' ? (placeOf(tensor.name)!.item ?? 0) : 0;
      const rank = `${tensor.rank ?? 0}.${item}`;
      const ofRank = ranks.get(rank) ?? new Map();
      // The first of several with one name is q before RoPE; of others the last one is what the next step reads.
      if (!ofRank.has(tensor.step ?? 0) || (place.kind !== 'q' && place.kind !== 'k'))
        ofRank.set(tensor.step ?? 0, tensor);
      ranks.set(rank, ofRank);
    }
    const order = [...ranks].sort(([a], [b]) => Number(a) - Number(b));
    const hasPart = ({ shape, rank = 0, step = 0 }: DumpTensor): boolean =>
      (WIDE.has(place.kind) || OF_VOCABULARY.has(place.kind)) && leadOf(shape) < (wide.get(`${rank}.${step}`) ?? 0);
    const sorted = order.map(([, steps]) => {
      const list = [...steps].sort(([a], [b]) => a - b).map(([, tensor]) => tensor);
      // Where passes have only their last rows, rows before those of such a pass would leave a gap.
      return list.slice(Math.max(0, list.findLastIndex(hasPart)));
    });
    groups.set(key, { ...place, key, step, ranks: sorted });
  }
  const [tokens, positions] = [await integersOf(dump, 'tokens'), await integersOf(dump, 'positions')];
  return {
    dump: withNote(dump),
    groups,
    unnamed,
    tokens,
    positions,
    before: (pass) => passes.slice(0, pass).reduce((sum, step) => sum + (wide.get(`0.${step}`) ?? 0), 0),
    rowsOf: (rank, step) =>
      wide.get(`${rank}.${step}`) ?? wide.get(`0.${step}`) ?? counted.get(`${rank}.${step}`) ?? tokens?.length,
    facts: (layer) => dump.facts?.layers[layer],
  };
}

/** Tells whether a tensor has floats that can be read: there are types of 8 bits and fewer that cannot. */
export const isFloat = ({ dtype }: DumpTensor): boolean => /^b?f/.test(dtype) && DTYPES.includes(dtype as Dtype);

function withNote(dump: Dump): Dump {
  const strange = dump.tensors.filter((one) => /^b?f\d/.test(one.dtype) && !isFloat(one));
  if (strange.length === 0) return dump;
  const [{ name, dtype }] = strange as [DumpTensor];
  const note = `${strange.length} tensors of ${dump.label} have a type that cannot be read, such as ${name} (${dtype}).`;
  return { ...dump, notes: [...dump.notes, note] };
}

const sameCall = (a: DumpTensor, b: DumpTensor): boolean =>
  (a.rank ?? 0) === (b.rank ?? 0) && (a.step ?? 0) === (b.step ?? 0);

const COUNTED: Readonly<Record<'tokens' | 'positions', RegExp>> = {
  tokens: /^(?:tokens|input_ids|inp_tokens|token_ids)$/,
  positions: /^(?:positions|position_ids|inp_pos)$/,
};

const isCounted = ({ name, dtype }: DumpTensor, what: keyof typeof COUNTED): boolean =>
  /^[iu]/.test(dtype) && COUNTED[what].test(name.replace(/^.*\./, ''));

/** Reads the integers of all ranks; once where all have the same. */
async function integersOf({ tensors }: Dump, what: 'tokens' | 'positions'): Promise<readonly number[] | undefined> {
  const ranks = new Set(tensors.map(({ rank = 0 }) => rank));
  const found: (readonly number[])[] = [];
  for (const of of [...ranks].sort((a, b) => a - b)) {
    const one = await integersOfRank(
      tensors.filter(({ rank = 0 }) => rank === of),
      what,
    );
    if (one) found.push(one);
  }
  const [first] = found;
  return found.every((one) => one.length === first!.length && one.every((x, n) => x === first![n]))
    ? first
    : found.flat();
}

async function integersOfRank(
  tensors: readonly DumpTensor[],
  what: 'tokens' | 'positions',
): Promise<readonly number[] | undefined> {
  const seen = new Set<string>();
  const found = tensors.filter((tensor) => {
    const { rank = 0, step = 0 } = tensor;
    if (!isCounted(tensor, what)) return false;
    // A dump of what modules are given has the positions once for each layer.
    const isFirst = !seen.has(`${rank}.${step}`);
    seen.add(`${rank}.${step}`);
    return isFirst;
  });
  const sized = found.filter(({ shape }) => sizeOf(shape) <= MAX_COUNTED);
  const parts: number[] = [];
  for (const one of sized) {
    if (one.shape.filter((dim) => dim !== 1).length > 1) return undefined; // axes, or a batch
    for (const value of readIntegers(await one.read(), one.name)) parts.push(value);
  }
  return parts.length > 0 ? parts : undefined;
}

/** Compares two places in the order of the pass. */
export function inOrder(a: Group, b: Group): number {
  const at = ({ kind, layer }: Place): number => layer ?? (KINDS.indexOf(kind) === 0 ? -1 : Number.MAX_SAFE_INTEGER);
  return (a.step ?? 0) - (b.step ?? 0) || at(a) - at(b) || KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind);
}

/** Reads a tensor as f32: nothing that is compared needs more. */
export async function valuesOf(tensor: DumpTensor): Promise<Float32Array> {
  const read = await tensor.read();
  if (read.dtype === 'f32' && read.isContiguous()) {
    const host = hostOf(read, tensor.name) as Float32Array;
    return host.subarray(read.offset, read.offset + read.size);
  }
  return Float32Array.from((await read.readNumbers()) as Float64Array);
}
