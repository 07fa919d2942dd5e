/** Two dumps beside each other: matched, compared step by step, and the first divergence explained. @module */
import { fail } from 'ropewalk/backend';
import {
  type Arrangement,
  aligned,
  arranged,
  columnsTo,
  describeArrangement,
  type Fused,
  findArrangement,
  inOwnOrder,
  readGroup,
  SAME,
  type Wanted,
} from './arrange.js';
import { type Cause, leftBy, type Scene } from './cause.js';
import { attentionCauses, softcapCause } from './causes-attention.js';
import { ropeCauses } from './causes-rope.js';
import { valueCauses } from './causes-values.js';
import { compare, type Difference, type Held, isFlat, Ruler } from './compare.js';
import type { Dump, DumpTensor, LayerFacts } from './dump.js';
import { KINDS, type Kind, readersOf } from './names.js';
import {
  areCutOtherwise,
  type Group,
  inOrder,
  isFloat,
  keyOf,
  OF_VOCABULARY,
  type Rows,
  type Side,
  sideOf,
} from './side.js';

/** A tensor of both sides. */
export interface Step {
  /** Our name for it: `layers.3.q_rope`. */
  readonly name: string;
  readonly kind: Kind;
  readonly layer: number | undefined;
  readonly pass: number | undefined;
  readonly difference: Difference;
  /** The largest difference of a row that the ruler allows; undefined after the first divergence. */
  readonly bound: number | undefined;
  readonly state: 'same' | 'noise' | 'convention' | 'diverges' | 'after';
}

/** The step where the second side first leaves the ruler. */
export interface Divergence {
  readonly step: Step;
  /** The first token beyond the ruler, and how many tokens are. */
  readonly firstToken: number;
  readonly wrongTokens: number;
  readonly tokens: number;
  /** The inputs of the step that are the same on both sides. */
  readonly inputs: readonly string[];
  readonly causes: readonly Cause[];
}

export interface TraceReport {
  readonly a: string;
  readonly b: string;
  readonly steps: readonly Step[];
  readonly divergence: Divergence | undefined;
  /** Sentences on how tensors were matched, and on differences of convention. */
  readonly matched: readonly string[];
  readonly unmatched: { readonly a: readonly string[]; readonly b: readonly string[] };
  readonly notes: readonly string[];
  /** The coarsest dtype that was seen, and the noise that was measured. */
  readonly ruler: { readonly dtype: Held; readonly measured: number; readonly adopted: Ruler['adopted'] };
}

/** A pair of groups; one of them may be a part of a fused tensor. */
interface Pair {
  readonly group: Group;
  readonly kind: Kind;
  readonly a: Group;
  readonly b: Group;
  readonly fused: { readonly side: 'a' | 'b'; readonly part: number; readonly of: readonly Kind[] } | undefined;
}

const PARTS: readonly (readonly [whole: Kind, parts: readonly Kind[]])[] = [
  ['qkv', ['q', 'k', 'v']],
  ['gate_up', ['gate', 'up']],
];

/**
 * Compares two dumps.
 *
 * @param a - the reference
 * @param progress - called with the share that is done
 * @throws {RopewalkError} FORMAT when no tensor of one is found in the other
 */
export async function traceDumps(a: Dump, b: Dump, progress: (done: number) => void = () => {}): Promise<TraceReport> {
  const joined = areCutOtherwise(a, b);
  const trace = new Trace(await sideOf(a, joined), await sideOf(b, joined));
  return trace.run(progress);
}

class Trace {
  readonly #a: Side;
  readonly #b: Side;
  readonly #pairs: Map<string, Pair>;
  readonly #byValues: string[] = [];
  readonly #ruler: Ruler;
  /** The difference that printed decimals leave open; undefined where both sides have their tensors whole. */
  readonly #printed: number | undefined;
  #lastPosition = 0;
  readonly #layouts = new Map<string, { readonly arrangement: Arrangement; readonly fused: boolean }>();
  readonly #differences = new Map<string, Difference>();
  readonly #conventions = new Map<Kind, string>();
  /** The kinds that were the same in an earlier layer. */
  readonly #clean = new Set<Kind>();
  /** A tensor of the first layer: there weights in fewer bits must show. */
  #start: Group | undefined;
  /** Whether a matrix gave the same on both sides, before any noise: weights are as exact in both. */
  #exact = false;
  readonly #notes: string[] = [];
  readonly #misshapen: string[] = [];
  /** The pairs of one name that no layout gives one shape, with the words for it. */
  readonly #misfits: { readonly pair: Pair; readonly says: string }[] = [];
  /** The rows of one step are read again and again while its cause is looked for. */
  #latest: { readonly key: string; readonly rows: readonly [Rows, Rows] | undefined } | undefined;

  constructor(a: Side, b: Side) {
    [this.#a, this.#b] = [a, b];
    this.#pairs = pairsOf(a, b);
    const printed = [a, b].flatMap(({ dump: { resolution } }) => resolution ?? []);
    this.#printed = printed.length > 0 ? printed.reduce((x, y) => x + y) : undefined;
    // Decimals do not tell in which dtype a runtime computes: llama.cpp keeps keys and values in f16.
    this.#ruler = new Ruler(this.#printed === undefined ? 'f32' : 'f16');
    for (const { positions, tokens = [] } of [a, b])
      this.#lastPosition = (positions ?? [tokens.length - 1]).reduce((x, y) => Math.max(x, y), this.#lastPosition);
  }

  async run(progress: (done: number) => void): Promise<TraceReport> {
    await this.#matchByValues();
    const [steps, order] = [[] as Step[], [...this.#pairs.values()].sort((x, y) => inOrder(x.group, y.group))];
    let divergence: Divergence | undefined;
    this.#start = (order.find(({ group }) => group.layer !== undefined) ?? order[0])?.group;
    this.#compareInputs();
    for (const [n, pair] of order.entries()) {
      progress(n / order.length);
      const difference = await this.#difference(pair);
      if (!difference) continue;
      if (difference.bothNaN !== undefined && !this.#notes.some((note) => note.startsWith('Both')))
        this.#notes.push(`Both sides have NaN in ${nameOf(pair)}, first at token ${difference.bothNaN}.`);
      const step = { name: nameOf(pair), kind: pair.kind, layer: pair.group.layer, pass: pair.group.step, difference };
      if (divergence) {
        steps.push({ ...step, bound: undefined, state: 'after' });
        continue;
      }
      const position = KINDS.indexOf(pair.kind) >= KINDS.indexOf('q_rope') ? this.#lastPosition : 0;
      const bound = this.#ruler.bound(position, pair.kind === 'embedding' ? await this.#rows(pair) : [], pair.kind);
      const judged = await this.#judge(pair, { ...step, bound, state: 'same' });
      steps.push(judged);
      if (judged.state === 'diverges') divergence = await this.#explain(pair, judged);
      else if (judged.state !== 'convention') this.#ruler.accept(difference.worst);
      if (judged.state !== 'same') continue;
      this.#clean.add(pair.kind);
      this.#exact ||= !this.#ruler.adopted && !['embedding', 'attn_norm'].includes(pair.kind);
    }
    if (steps.length > 0 && !divergence)
      for (const misfit of this.#misfits) {
        if (await this.#isReadAlike(misfit.pair)) continue;
        divergence = misfitOf(misfit);
        steps.push(divergence.step);
        break;
      }
    const used = new Set([...this.#pairs.values()].flatMap(({ a, b }) => [a.key, b.key]));
    const left = (side: Side): string[] => [
      ...[...side.groups.values()].filter(({ key }) => !used.has(key)).map(({ ranks }) => ranks[0]![0]!.name),
      ...side.unnamed
        .map(({ name }) => name)
        .filter((name) => !used.has(name) && !/(?:^|\.)(?:tokens|positions|position_ids|input_ids)$/.test(name)),
    ];
    const why = `none of its tensors is one of ${this.#a.dump.label}, by name and shape or by values`;
    if (steps.length === 0) fail('FORMAT', this.#b.dump.label, `${why}. docs/trace.md lists the names that are known.`);
    const { held, measured, adopted } = this.#ruler;
    return {
      a: this.#a.dump.label,
      b: this.#b.dump.label,
      steps,
      divergence,
      matched: this.#matchedWords(),
      unmatched: { a: left(this.#a), b: [...left(this.#b), ...this.#misshapen] },
      notes: [...this.#a.dump.notes, ...this.#b.dump.notes, ...this.#notes, ...this.#conventions.values()],
      ruler: { dtype: held, measured, adopted },
    };
  }

  /** Finds tensors whose names no rule knows: those that have the values of one without a partner. */
  async #matchByValues(): Promise<void> {
    if (this.#printed !== undefined) return;
    const used = new Set([...this.#pairs.values()].flatMap(({ a, b }) => [a.key, b.key]));
    const floats = this.#b.unnamed.filter((one) => isFloat(one) && !one.shape.includes(0));
    const isJoined = [...this.#a.groups.values()].some(({ step }) => step === undefined);
    const passes = new Map<unknown, DumpTensor[]>();
    for (const one of floats) {
      const key = isJoined ? `${one.rank} ${one.name}` : one;
      passes.set(key, [...(passes.get(key) ?? []), one]);
    }
    const lost: Group[] = [
      ...[...this.#b.groups.values()].filter(({ key }) => !used.has(key)),
      ...Array.from(passes.values(), (own) => ({
        kind: 'out' as const,
        layer: undefined,
        step: 0,
        key: own[0]!.name,
        ranks: [own],
      })),
    ];
    // The mean square, which no layout changes, of each that was read.
    const free = new Map([...this.#a.groups.values()].filter(({ key }) => !used.has(key)).map((group) => [group, 0]));
    if (lost.length > MOST_LOST) return;
    for (const group of lost) {
      const raw = await readGroup(this.#b, group);
      const size = meanSquare(raw.flat().map(({ data }) => data));
      for (const [candidate, known] of free) {
        const other = known > 0 && !near(known, size) ? undefined : await this.#own(this.#a, candidate);
        if (!other) continue;
        free.set(candidate, meanSquare([other.data]));
        const { kind, layer } = candidate;
        const headDim = layer === undefined ? undefined : this.#headDim(layer);
        const found = near(free.get(candidate)!, size) ? findArrangement(raw, { kind, other, headDim }) : undefined;
        if (!found || found.difference > SAME) continue;
        this.#pairs.set(candidate.key, { group: candidate, kind, a: candidate, b: group, fused: undefined });
        this.#byValues.push(`${group.ranks[0]![0]!.name} is ${nameOf({ group: candidate, kind })}`);
        free.delete(candidate);
        break;
      }
    }
  }

  /** Compares the tokens and positions that both sides were given. */
  #compareInputs(): void {
    for (const what of ['tokens', 'positions'] as const) {
      const [ours, theirs] = [this.#a[what], this.#b[what]];
      if (!ours || !theirs || ours.length !== theirs.length) continue;
      const at = ours.findIndex((one, n) => one !== theirs[n]);
      if (at >= 0) this.#notes.push(`The ${what} differ: at token ${at} A has ${ours[at]}, B ${theirs[at]}.`);
    }
  }

  async #judge(pair: Pair, step: Step): Promise<Step> {
    const { difference, bound } = step;
    const [a, b] = (await this.#rows(pair))!;
    const [badA, badB] = difference.notFinite;
    if (badA === undefined && badB === undefined && difference.worst <= bound!) return step;
    if (await this.#agreesAfter(pair, step)) {
      await this.#tellConvention(pair, step);
      return { ...step, state: 'convention' };
    }
    // Weights in fewer bits are so from the first matrix on; later on, what is alike everywhere is a fault.
    const { layer, step: pass } = this.#start!;
    const isStart = pair.group.step === pass && (pair.kind === 'embedding' || pair.group.layer === layer);
    if (
      isStart &&
      !this.#exact &&
      isFlat(a, b, difference, this.#printed !== undefined) &&
      (await this.#causes(pair, step)).length === 0
    ) {
      this.#ruler.adopted ??= { step: step.name, rms: difference.rms, isEven: this.#printed === undefined };
      return { ...step, state: 'noise' };
    }
    return { ...step, state: 'diverges' };
  }

  /** Says whether what is made from a tensor agrees though the tensor does not. */
  async #agreesAfter(pair: Pair, step: Step): Promise<boolean> {
    const { group, kind } = pair;
    const { worst, absolute } = step.difference;
    // A convention of RoPE moves q and k alike.
    const twin = kind === 'q_rope' ? 'k_rope' : kind === 'k_rope' ? 'q_rope' : undefined;
    const other = twin && this.#pairs.get(keyOf(group.step, group.layer, twin));
    if (other && ((await this.#difference(other))?.worst ?? Infinity) <= step.bound!) return false;
    const isLast =
      kind === 'out' && ![...this.#pairs.values()].some(({ group: one }) => one.layer === group.layer! + 1);
    // A norm hides the scale of the stream, which the sum with the next block does not.
    const isScaled =
      !isLast &&
      ['embedding', 'mid', 'out'].includes(kind) &&
      (await this.#causes(pair, step)).some(({ id }) => id === 'scale');
    const readers = isLast
      ? ['norm', 'head', 'logits']
      : !isScaled
        ? readersOf(kind)
        : kind === 'mid'
          ? ['+out']
          : SUMS;
    const next = await this.#readBy(pair, readers, isLast);
    if (next) {
      const { name, after } = next;
      // The stream hides a small difference of a block: it must be gone, not small.
      const isHidden = name.startsWith('+') && (after.worst > worst / 20 || after.absolute > absolute / 10);
      const agrees = after.worst <= Math.min(worst / 5, this.#ruler.near(this.#lastPosition));
      if (!isHidden && agrees && after.notFinite[1] === undefined) return true;
    }
    return kind === 'embedding' && isScaled && (await this.#isScaledLater(pair, step.bound!));
  }

  /** Finds the first of some steps that both sides have, and how far apart it is. */
  async #readBy({ group, kind }: Pair, readers: readonly string[], isLast = false) {
    const layer = kind === 'out' || kind === 'embedding' ? (group.layer ?? -1) + 1 : group.layer;
    for (const name of readers) {
      const reader = name.replace('+', '') as Kind;
      const next = this.#pairs.get(
        keyOf(group.step, isLast || reader === 'logits' || reader === 'head' ? undefined : layer, reader),
      );
      const after = next && (await this.#difference(next));
      if (after) return { name, after };
    }
    return undefined;
  }

  /** Whether what is made from a tensor agrees, though no layout gives it one shape on both sides. */
  async #isReadAlike(pair: Pair): Promise<boolean> {
    const next = await this.#readBy(pair, readersOf(pair.kind));
    if (!next || next.name.startsWith('+')) return false;
    return next.after.worst <= this.#ruler.near(this.#lastPosition) && next.after.notFinite[1] === undefined;
  }

  /**
   * Says whether a side scales the embedding behind the tensor that it recorded, where the first layer is wrong for another
   * reason: each side's own sum out = s · embedding + r · (attention + MLP) tells its s.
   */
  async #isScaledLater(pair: Pair, bound: number): Promise<boolean> {
    const { step } = pair.group;
    const of = async (kind: Kind): Promise<readonly (Float32Array | undefined)[]> => {
      const { a, b } = await this.#load(kind, 0, step);
      return [a?.data, b?.data];
    };
    const [posts, ends] = [await of('attn_post'), await of('mlp_post')];
    const [attn, mlp, out] = [await of('attn'), await of('mlp'), await of('out')];
    const given = (await this.#rows(pair))!;
    const scaled = given.map((rows, side) =>
      scaledIn(rows, posts[side] ?? attn[side], ends[side] ?? mlp[side], out[side], bound),
    );
    const [a, b] = scaled;
    return a !== undefined && b !== undefined && compare(a, b).worst <= bound;
  }

  async #tellConvention(pair: Pair, step: Step): Promise<void> {
    if (this.#conventions.has(pair.kind)) return;
    const [cause] = await this.#causes(pair, step);
    const why = cause ? ` ${cause.says}` : '';
    this.#conventions.set(
      pair.kind,
      `${step.name} is another tensor in B, and what is made from it agrees: a difference of convention, not a fault.${why}`,
    );
  }

  /** Looks for the tensor of the reference that a tensor really is. */
  async #sameAs(pair: Pair, step: Step): Promise<string | undefined> {
    const [, b] = (await this.#rows(pair))!;
    for (const kind of KINDS) {
      const group = this.#a.groups.get(keyOf(pair.group.step, pair.group.layer, kind));
      const rows = group && kind !== pair.kind ? await this.#own(this.#a, group) : undefined;
      if (rows?.data.length === b.data.length && compare({ ...b, data: rows.data }, b).worst <= step.bound!)
        return kind;
    }
    return undefined;
  }

  async #explain(pair: Pair, step: Step): Promise<Divergence> {
    const { difference, bound } = step;
    const wrong = [...difference.rows.keys()].filter((t) => difference.rows[t]! > bound!);
    const causes = await this.#causes(pair, step);
    if (this.#printed !== undefined && causes.length === 0)
      causes.push({
        id: 'not looked for',
        says: 'Not looked for: a part of the values is not enough. Write whole tensors: ropewalk harness trace-llama-cpp.',
      });
    return {
      step,
      firstToken: wrong[0] ?? difference.worstRow,
      wrongTokens: wrong.length,
      tokens: difference.tokens,
      inputs: await this.#inputs(pair, bound!),
      causes: causes.length > 0 ? causes : await this.#weights(pair, step),
    };
  }

  /** The cause of a matrix whose input agrees, where nothing else gives B. */
  async #weights(pair: Pair, { difference, bound }: Step): Promise<Cause[]> {
    const { kind, group } = pair;
    const from = MATRIX_OF[kind];
    const input = from && this.#pairs.get(keyOf(group.step, from === 'norm' ? undefined : group.layer, from));
    const apart = input && (await this.#difference(input));
    const agrees = apart !== undefined && apart.worst <= bound! && !this.#conventions.has(from!);
    if (!from || (!agrees && (apart || !this.#clean.has(kind)))) return [];
    const [a, b] = (await this.#rows(pair))!;
    if (isFlat(a, b, difference)) {
      const like = kind === 'mlp' && !apart ? ' or of another activation' : '';
      const why = apart ? 'the input agrees' : 'earlier layers have none';
      const says = `The difference is as large in every token and dimension, as that of rounded weights${like}; ${why}.`;
      return [{ id: 'flat', says }];
    }
    return !agrees
      ? []
      : [{ id: 'weights', says: 'Its input agrees: B has other weights or another bias here, or multiplies wrongly.' }];
  }

  /** Names the inputs of a step that agree. */
  async #inputs({ kind, group }: Pair, bound: number): Promise<string[]> {
    const inputs: string[] = [];
    for (const from of KINDS) {
      const isStream = from === 'embedding' || from === 'out';
      const reads = isStream
        ? STREAM
        : readersOf(from).filter(
            (name, n) => from === 'mid' || n < (name.startsWith('+') ? 2 : from === 'attn_norm' ? 4 : 3),
          );
      if (!reads.some((name) => name.replace('+', '') === kind)) continue;
      // The stream is that of the layer before; before the first one it is the embedding.
      const layer = isStream ? (group.layer ?? this.#layers()) - 1 : group.layer;
      if (isStream && (from === 'embedding') !== (layer === -1)) continue;
      const input = this.#pairs.get(keyOf(group.step, layer === -1 ? undefined : layer, from));
      const apart = input && (await this.#difference(input));
      if (apart && apart.worst <= bound && !this.#conventions.has(from))
        inputs.push(
          `${nameOf(input)} ${apart.worst === 0 ? (this.#printed === undefined ? 'exactly' : 'as printed') : `within ${Number(apart.worst.toExponential(1))}`}`,
        );
    }
    return inputs;
  }

  #layers(): number {
    return [...this.#pairs.values()].reduce((count, { group }) => Math.max(count, 1 + (group.layer ?? -1)), 0);
  }

  async #causes(pair: Pair, step: Step): Promise<Cause[]> {
    const { difference, bound } = step;
    const [a, b] = (await this.#rows(pair))!;
    const [badA, badB] = difference.notFinite;
    if (badA !== undefined || badB !== undefined) {
      const has = (at: number | undefined): string => (at === undefined ? 'none' : `them from token ${at} on`);
      const says = `NaN or infinities: B has ${has(badB)}, A ${has(badA)}. They come from an overflow, a row that is masked whole, or memory that nothing wrote.`;
      return [{ id: 'not finite', says, left: 0 }];
    }
    if (this.#printed !== undefined) return [];
    const first = Math.max(
      0,
      difference.rows.findIndex((error) => error > bound!),
    );
    const { layer } = pair.group;
    const scene: Scene = {
      kind: pair.kind,
      layer,
      a,
      b,
      first,
      proof: Math.min(this.#ruler.proof(this.#lastPosition, [a, b]), difference.worst / 3),
      worst: difference.worst,
      heads: this.#heads(layer, a, b),
      positions: this.#positions(a, b, pair.group.step),
      load: (kind, at = layer) => this.#load(kind, at === -1 ? undefined : at, pair.group.step),
      loadAll: (kind) => this.#loadAll(kind, layer, pair.group.step),
      layersOf: (kind) =>
        [...this.#pairs.values()].flatMap(({ group, kind: own }) =>
          own === kind && group.step === pair.group.step && group.layer !== undefined ? [group.layer] : [],
        ),
    };
    const causes: Cause[] = [];
    if (/_rope$/.test(pair.kind)) {
      const plain = pair.kind === 'q_rope' ? 'q' : 'k';
      const given = (await scene.load(`${plain}_norm`)).b ?? (await scene.load(plain)).b;
      const left = given?.data.length === b.data.length ? leftBy(scene, given.data) : undefined;
      if (left !== undefined)
        causes.push({ id: 'not rotated', says: 'RoPE: B does not rotate: it has the input of RoPE here.', left });
      else causes.push(...(await ropeCauses(scene)));
    }
    if (pair.kind === 'heads') causes.push(...(await attentionCauses(scene)));
    causes.push(...softcapCause(scene));
    if (causes.length === 0)
      for await (const one of valueCauses(scene)) {
        causes.push(one);
        if (one.id === 'zeros') break; // A times 0 is no second cause
      }
    if (causes.length === 0) {
      const same = await this.#sameAs(pair, step);
      if (same) causes.push({ id: 'kind', says: `B has here what A has as ${same}.` });
    }
    const moved = this.#layouts.get(pair.kind)?.arrangement.pairs ?? 'as they are';
    const told =
      moved === 'as they are'
        ? ''
        : ` Dimensions are numbered as in ${isFlipped(pair) ? 'B' : 'A'}, where pairs lie otherwise.`;
    return causes.slice(0, 3).map((one) => (one.id.startsWith('rope') ? { ...one, says: one.says + told } : one));
  }

  #positions(a: Rows, b: Rows, pass = 0): readonly number[] {
    const [side, { start = 0, tokens }] = this.#a.positions ? [this.#a, a] : [this.#b, b];
    const from = side.before(pass) + start;
    const given = side.positions?.slice(from, from + tokens);
    return given?.length === tokens ? given : Array.from({ length: tokens }, (_, t) => from + t);
  }

  /** The heads of a layer: as a dump says, or as the shapes of q and k show. */
  #heads(layer: number | undefined, ...rows: readonly Rows[]): LayerFacts | undefined {
    if (layer === undefined) return undefined;
    const facts = this.#a.facts(layer) ?? this.#b.facts(layer);
    if (facts) return facts;
    const [headDim] = [...rows.map((one) => one.headDim), this.#headDim(layer)].filter((one) => one !== undefined);
    return headDim === undefined ? undefined : { numHeads: 0, numKvHeads: 0, headDim, rope: undefined };
  }

  /** The size of heads, from any tensor of the layer with a dimension for heads. */
  #headDim(layer: number): number | undefined {
    const facts = this.#a.facts(layer) ?? this.#b.facts(layer);
    if (facts) return facts.headDim;
    for (const side of [this.#a, this.#b])
      for (const { layer: own, kind, ranks } of side.groups.values()) {
        if (own !== layer || !['q', 'k', 'q_rope', 'k_rope'].includes(kind)) continue;
        const shape = ranks[0]![0]!.shape.filter((dim) => dim !== 1);
        if (shape.length >= 3) return shape.at(-1);
      }
    return undefined;
  }

  async #load(kind: Kind, layer: number | undefined, step: number | undefined): Promise<{ a?: Rows; b?: Rows }> {
    const key = keyOf(step, layer, kind);
    const pair = this.#pairs.get(key);
    const rows = pair && (await this.#rows(pair));
    if (rows) return { a: rows[0], b: rows[1] };
    const group = this.#a.groups.get(key);
    const own = group && (await this.#own(this.#a, group));
    return own ? { a: own } : this.#partOf(kind, layer, step);
  }

  /** Reads q, k or v out of a tensor that is fused on both sides: the rotated ones say how wide they are. */
  async #partOf(kind: Kind, layer: number | undefined, step: number | undefined): Promise<{ a?: Rows; b?: Rows }> {
    const at = ['q', 'k', 'v'].indexOf(kind);
    const fused = at < 0 ? undefined : this.#pairs.get(keyOf(step, layer, 'qkv'));
    const [q, k] = fused ? [await this.#load('q_rope', layer, step), await this.#load('k_rope', layer, step)] : [];
    const whole = fused && (await this.#rows(fused));
    if (!whole || !q?.a || !k?.a) return {};
    const widths = [q.a.width, k.a.width, whole[0].width - q.a.width - k.a.width];
    const from = widths.slice(0, at).reduce((sum, one) => sum + one, 0);
    const [a, b] = whole.map((rows): Rows => {
      const data = new Float32Array(rows.tokens * widths[at]!);
      for (let t = 0; t < rows.tokens; t++)
        data.set(rows.data.subarray(t * rows.width + from, t * rows.width + from + widths[at]!), t * widths[at]!);
      return { ...rows, width: widths[at]!, headDim: undefined, data };
    });
    return { a: a!, b: b! };
  }

  async #loadAll(kind: Kind, layer: number | undefined, step: number | undefined): Promise<{ a?: Rows; b?: Rows }> {
    if (!step) return this.#load(kind, layer, step);
    const passes: { a?: Rows; b?: Rows }[] = [];
    for (let pass = 0; pass <= step; pass++) passes.push(await this.#load(kind, layer, pass));
    return { a: stacked(passes.map(({ a }) => a)), b: stacked(passes.map(({ b }) => b)) };
  }

  async #own(side: Side, group: Group): Promise<Rows | undefined> {
    return inOwnOrder(await readGroup(side, group), group.kind);
  }

  async #difference(pair: Pair): Promise<Difference | undefined> {
    const key = pair.group.key;
    if (this.#differences.has(key)) return this.#differences.get(key);
    const rows = await this.#rows(pair);
    if (!rows) return undefined;
    const difference = compare(...rows, this.#printed);
    this.#differences.set(key, difference);
    return difference;
  }

  /** Reads both sides of a pair, the second one in the layout of the first. */
  async #rows(pair: Pair): Promise<readonly [Rows, Rows] | undefined> {
    const { key } = pair.group;
    if (this.#latest?.key === key) return this.#latest.rows;
    const rows = await this.#arranged(pair);
    if (!rows && !this.#misshapen.includes(nameOf(pair))) this.#misshapen.push(nameOf(pair));
    this.#latest = { key, rows };
    return rows;
  }

  async #arranged(pair: Pair): Promise<readonly [Rows, Rows] | undefined> {
    const { kind, fused, group } = pair;
    const flipped = isFlipped(pair);
    const [fixed, free] = flipped ? ([this.#b, this.#a] as const) : ([this.#a, this.#b] as const);
    const [fixedGroup, freeGroup] = flipped ? [pair.b, pair.a] : [pair.a, pair.b];
    let other = await this.#own(fixed, fixedGroup);
    if (!other) return undefined;
    const raw = await readGroup(free, freeGroup);
    if (OF_VOCABULARY.has(kind)) other = columnsTo(other, inOwnOrder(raw, kind)?.width);
    if (kind !== 'embedding') this.#ruler.sees(other);
    const headDim = group.layer === undefined ? undefined : (this.#headDim(group.layer) ?? other.headDim);
    const wanted: Wanted = { kind, other, headDim, fused: fused && (await this.#widths(fused, group, fixed)) };
    if (fused && !wanted.fused) return undefined;
    const name = `${kind}${fused ? '*' : ''}`;
    let layout = this.#layouts.get(name);
    if (!layout) {
      const like = this.#layouts.get(SIBLING[kind] ?? kind)?.arrangement;
      const found = findArrangement(raw, wanted, like);
      if (!found) return this.#fitsNot(pair, other, raw);
      layout = { arrangement: found.arrangement, fused: fused !== undefined };
      this.#layouts.set(name, layout);
    }
    const { arrangement } = layout;
    const rows =
      arrangement.merge === 'first' && raw.length > 1
        ? this.#farthest(pair, flipped, raw, wanted, arrangement)
        : arranged(raw, arrangement, wanted);
    if (!rows || rows.width !== other.width) return this.#fitsNot(pair, other, raw);
    if (kind !== 'embedding') this.#ruler.sees(rows);
    // Passes differ in padding, and in whether only the last rows were kept.
    const [x, y] = aligned(other, rows).shared;
    if (x.tokens === 0) return undefined;
    return flipped ? [y, x] : [x, y];
  }

  /** Among ranks that should all have the same, returns the one that is farthest from the other side. */
  #farthest(
    pair: Pair,
    flipped: boolean,
    raw: Awaited<ReturnType<typeof readGroup>>,
    wanted: Wanted,
    how: Arrangement,
  ): Rows | undefined {
    const numbers = (flipped ? pair.a : pair.b).ranks.map(([first]) => first!.rank ?? 0);
    // A rank may have several tensors here, those of a tuple: the first one counts.
    const ranks = raw.flatMap((one, n) => {
      const rows = numbers.indexOf(numbers[n]!) === n ? arranged([one], how, wanted) : undefined;
      if (rows?.width !== wanted.other.width) return [];
      return [{ number: numbers[n]!, rows, apart: compare(...aligned(wanted.other, rows).shared).worst }];
    });
    ranks.sort((x, y) => y.apart - x.apart);
    const [farthest, nearest] = [ranks[0], ranks.at(-1)];
    if (!farthest || !nearest) return undefined;
    const differs = farthest.apart - nearest.apart > this.#ruler.bound(this.#lastPosition);
    if (differs && !this.#notes.some((note) => note.startsWith('Ranks')))
      this.#notes.push(
        `Ranks ${[farthest.number, nearest.number].sort((x, y) => x - y).join(' and ')} of ${flipped ? 'A' : 'B'} differ in ${nameOf(pair)}: rank ${farthest.number} is farther from ${flipped ? 'B' : 'A'}.`,
      );
    return farthest.rows;
  }

  #fitsNot(pair: Pair, { tokens, width }: Rows, raw: Awaited<ReturnType<typeof readGroup>>): undefined {
    const shapes = raw.map((passes) => passes.map(({ shape }) => `[${shape.join(', ')}]`).join(' and '));
    const says = `No layout of B, ${shapes.join('; ')}, gives the ${tokens} rows of ${width} values of A.`;
    if (!pair.fused) this.#misfits.push({ pair, says });
  }

  /** The widths of the parts of a fused tensor, as the other side has them. */
  async #widths({ of, part }: NonNullable<Pair['fused']>, group: Group, fixed: Side): Promise<Fused | undefined> {
    const widths: number[] = [];
    for (const kind of of) {
      const one = fixed.groups.get(keyOf(group.step, group.layer, kind));
      const rows = one && (await this.#own(fixed, one));
      if (!rows) return undefined;
      widths.push(rows.width);
    }
    return { widths, part };
  }

  #matchedWords(): string[] {
    const words = new Map<string, string[]>();
    for (const [name, { arrangement, fused }] of this.#layouts) {
      const how = describeArrangement(arrangement, fused);
      if (how !== '') words.set(how, [...(words.get(how) ?? []), name.replace('*', '')]);
    }
    const layouts = [...words].map(([how, kinds]) => `${kinds.join(', ')}: ${how}`);
    const some = `${this.#byValues.slice(0, 3).join(', ')}${this.#byValues.length > 3 ? ', …' : ''}`;
    return some === '' ? layouts : [`${this.#byValues.length} by values: ${some}`, ...layouts];
  }
}

/** Finds s and r of out = s · x + r · (attention + MLP), and returns s · x; undefined where no two numbers give the sum. */
function scaledIn(
  x: Rows,
  attn: Float32Array | undefined,
  mlp: Float32Array | undefined,
  out: Float32Array | undefined,
  bound: number,
): Rows | undefined {
  const { data } = x;
  if (!attn || !mlp || !out || ![attn, mlp, out].every(({ length }) => length === data.length)) return undefined;
  let [xx, xy, yy, xo, yo] = [0, 0, 0, 0, 0];
  const y = (at: number): number => attn[at]! + mlp[at]!;
  for (let at = 0; at < data.length; at++) {
    xx += data[at]! ** 2;
    xy += data[at]! * y(at);
    yy += y(at) ** 2;
    xo += data[at]! * out[at]!;
    yo += y(at) * out[at]!;
  }
  const determinant = xx * yy - xy * xy;
  const [s, r] = [(xo * yy - yo * xy) / determinant, (yo * xx - xo * xy) / determinant];
  const sum = { ...x, data: data.map((value, at) => s * value + r * y(at)) };
  return compare({ ...x, data: out }, sum).worst <= bound ? { ...x, data: data.map((value) => s * value) } : undefined;
}

/** The divergence of a tensor that has another shape in B: all of it differs. */
function misfitOf({ pair, says }: { pair: Pair; says: string }): Divergence {
  const apart = { rms: Infinity, worst: Infinity, worstRow: 0, size: 0, absolute: Infinity };
  const difference = {
    ...apart,
    tokens: 1,
    rows: Float64Array.of(Infinity),
    given: [true],
    notFinite: [undefined, undefined] as const,
    bothNaN: undefined,
  };
  const { kind, group } = pair;
  const { layer, step: pass } = group;
  const step: Step = { name: nameOf(pair), kind, layer, pass, difference, bound: 0, state: 'diverges' };
  return {
    step,
    firstToken: 0,
    wrongTokens: 1,
    tokens: 1,
    inputs: [],
    causes: [{ id: 'shape', says, left: Infinity }],
  };
}

/** The tensor that a matrix multiplies to make another. */
const MATRIX_OF: Readonly<Partial<Record<Kind, Kind>>> = {
  qkv: 'attn_norm',
  q: 'attn_norm',
  k: 'attn_norm',
  v: 'attn_norm',
  attn: 'heads',
  gate_up: 'mlp_norm',
  gate: 'mlp_norm',
  up: 'mlp_norm',
  mlp: 'act',
  head: 'norm',
};

/** The steps that read the residual stream between layers, and behind the last one. */
const STREAM: readonly string[] = [...readersOf('out').slice(0, 4), 'norm'];

/** The steps behind a sum with the stream, from which its scale can be told. */
const SUMS: readonly string[] = ['+mid', '+mlp_norm', '+gate_up', '+gate', '+up', '+mlp', '+out'];

/** Joins the rows of passes; undefined where one is not there. */
function stacked(passes: readonly (Rows | undefined)[]): Rows | undefined {
  const [first] = passes;
  if (!first || passes.length === 1) return first;
  if (!passes.every((one) => one?.width === first.width)) return undefined;
  const tokens = passes.reduce((sum, one) => sum + one!.tokens, 0);
  const data = new Float32Array(tokens * first.width);
  let at = 0;
  for (const one of passes) {
    data.set(one!.data, at);
    at += one!.data.length;
  }
  return { ...first, tokens, data };
}

/** A dump with more tensors of unknown names is not matched by values: each is compared with many. */
const MOST_LOST = 1000;

function meanSquare(parts: readonly Float32Array[]): number {
  let [sum, count] = [0, 0];
  for (const data of parts) {
    for (const x of data) sum += x * x;
    count += data.length;
  }
  return sum / Math.max(1, count);
}

const near = (a: number, b: number): boolean => Math.abs(a - b) <= 0.02 * Math.max(a, b);

/** The tensors that are laid out alike. */
const SIBLING: Readonly<Partial<Record<Kind, Kind>>> = {
  k: 'q',
  q_rope: 'q',
  k_rope: 'k',
  q_norm: 'q',
  k_norm: 'k',
  out: 'mid',
};

function nameOf({ group: { layer, step }, kind }: Pick<Pair, 'group' | 'kind'>): string {
  return `${layer === undefined ? '' : `layers.${layer}.`}${kind}${step ? ` of pass ${step}` : ''}`;
}

/** Whether the first side is put into the layout of the second one: it has more ranks, or is fused. */
const isFlipped = ({ a, b, fused }: Pair): boolean =>
  fused ? fused.side === 'a' : a.ranks.length > 1 && b.ranks.length === 1;

function alone({ kind, step }: Group, own: Side, side: Side): Group | undefined {
  const name = kind === 'head' ? 'logits' : kind === 'logits' ? 'head' : undefined;
  if (!name || own.groups.has(keyOf(step, undefined, name))) return undefined;
  return side.groups.get(keyOf(step, undefined, name));
}

/** Finds the tensors that both sides have, alone or as a part of a fused one. */
function pairsOf(a: Side, b: Side): Map<string, Pair> {
  const pairs = new Map<string, Pair>();
  for (const [key, group] of a.groups) {
    // A model whose logits are neither scaled nor capped has them once, under either name.
    const other = b.groups.get(key) ?? alone(group, a, b);
    if (other) pairs.set(key, { group, kind: group.kind, a: group, b: other, fused: undefined });
  }
  for (const [whole, parts] of PARTS)
    for (const [side, fusedIn, apartIn] of [
      ['a', a, b],
      ['b', b, a],
    ] as const)
      for (const group of fusedIn.groups.values()) {
        if (group.kind !== whole) continue;
        for (const [part, kind] of parts.entries()) {
          const key = keyOf(group.step, group.layer, kind);
          const one = apartIn.groups.get(key);
          if (!one || pairs.has(key)) continue;
          const both = side === 'a' ? { a: group, b: one } : { a: one, b: group };
          pairs.set(key, { group: { ...group, kind, key }, kind, ...both, fused: { side, part, of: parts } });
        }
      }
  return pairs;
}
