/**
 * Compares what a server says with what the model's files say: the noise, the differences by position, a fit over
 * hypotheses, and what the data exclude.
 *
 * A row's square is the mean square of its differences. Rows count as independent, their candidates do not. A
 * hypothesis is better than another by `rows · ln(squares / its squares)`, twice the logarithm of a likelihood ratio
 * of normal noise of unknown size.
 *
 * @module
 */
import type { Change } from './change.js';
import type { Expected, Observed, Part } from './expected.js';
import {
  allGaps,
  type Hypothesis,
  type Kind,
  layerHypotheses,
  placeHypotheses,
  plainHypotheses,
  type Scale,
  SINKS,
  scalesOf,
  TEMPERATURE,
} from './hypotheses.js';

/** A hypothesis and how it fits. */
export interface Fit {
  readonly kind: Kind;
  readonly says: string;
  readonly value?: number | undefined;
  /** The values next to it that the data exclude, of kinds whose number is fitted. */
  readonly range?: Range | undefined;
  /** The root mean square of the differences that it leaves, in nats. */
  readonly left: number;
  /** The first tokens that exclude it, where it was not run over all of them. */
  readonly tokens?: number;
}

/** The nearest values below and above that were tried and are excluded; undefined where none of the ladder is. */
export type Range = readonly [below: number | undefined, above: number | undefined];

/** A range of positions and its differences. */
export interface Span {
  /** Tokens [from, to) of the text are the last that the model has seen. */
  readonly from: number;
  readonly to: number;
  /** The root mean square to the model of the files, and to the best hypothesis, in nats. */
  readonly difference: number;
  readonly left: number;
}

/**
 * The result. `agrees`: nothing shows beyond the noise. `named`: one hypothesis explains the differences. `one-of`:
 * several do. `described`: differences are larger than on single tokens, and no hypothesis explains them. `other`: single
 * tokens differ so much already that it may be another model.
 */
export type Verdict = 'agrees' | 'named' | 'one-of' | 'described' | 'other';

/** The judgement. All differences are of natural logarithms of probabilities: nats. */
export interface Judgement {
  readonly verdict: Verdict;
  /** The root mean square on prompts of one token, where neither RoPE nor positions count. */
  readonly noise: number;
  /** The root mean square of all rows to the model of the files. */
  readonly difference: number;
  /** The rows that were compared. */
  readonly rows: number;
  /** The temperature that the server divides logits by; 1 unless the prompts of one token prove another. */
  readonly temperature: number;
  /** The best hypothesis; undefined if it is the model itself. */
  readonly best?: Fit | undefined;
  /** Hypotheses that these tokens cannot tell from the best. */
  readonly rivals: readonly Fit[];
  /** The best hypothesis of another kind, which the data exclude. */
  readonly second?: Fit | undefined;
  readonly spans: readonly Span[];
  /** The root mean square difference of each row, to the model of the files and to the best hypothesis. */
  readonly positions: readonly { readonly seen: number; readonly difference: number; readonly left: number }[];
  /** The bases next to the model's that are excluded; for a server that agrees. */
  readonly bases?: Range | undefined;
  /** The tokens of the shortest text, twice as long or more, that would tell the best from all rivals, where one does. */
  readonly next?: number | undefined;
  /** The hypotheses that are excluded, and those that would not show in these tokens: their sentences. */
  readonly excluded: readonly string[];
  readonly unseen: readonly string[];
}

/** How much better a hypothesis must be than the model itself, and than another one that is excluded. */
const CLEAR = 30;
const APART = 12;
/** A hypothesis that is no worse than another by this fits as well. */
const AS_WELL = 3;
/**
 * The largest share of the squares that a hypothesis may leave. Rounding of weights is no white noise: in q4_0 the best
 * base, temperature and scale of scores took 1.6 % of marline's squares away at most.
 */
const LEAVES = 0.8;
/**
 * The same where the differences are no larger than those of single tokens. A cache in fp8 with scale 1 loses small keys,
 * so that smaller scores took 38 % of marline's squares away (vLLM 0.32); a base of 12,000 takes 60 % in q8_0.
 */
const LEAVES_WITHIN = 0.5;
/**
 * The largest noise of long prompts, as a multiple of that of single tokens. Measured with marline in q8_0 and q4_0,
 * activations in f32 and in 8 bits: 0.5 to 0.62. Where rounded keys and values make more noise in our own decoder, the bound
 * grows with it. In seven random models, weights and caches of 8 and 16 bits made 0.7 to 1.5 times as much as those do.
 */
const NOISE = 1.5;
/** The tokens over which it is measured how rounding grows. */
const ROUNDED = 128;
/**
 * The same, and how much larger noise may be behind the first rows, where a row has one log-probability, that of the token
 * that comes: unlikely tokens are rounded more than those behind a single token, and behind a BOS alone the least.
 * Measured in q8_0 and q4_0: 1.3 to 3.7 times the noise behind a BOS, 0.4 to 0.6 times that behind other tokens.
 */
const LONE_NOISE = 3;
const BOS_NOISE = 6;
const LONE_GROWS = 2.5;
/** Beyond this noise it may be another model. Marline in q4_0, which is as bad as four bits get, has 0.53. */
const OTHER = 1;
/** Arithmetic in 16 bits, and numbers that are written with four digits, give as much. */
const LEAST_NOISE = 0.003;
/** The tokens of the first search. Frequencies that are far off show in the first tokens, where the search is smooth. */
const FIRST = 32;
/** The tokens with which hypotheses without a number are tried first. */
const SCREEN = 64;
/** The tokens beyond which a text is long: numbers are fitted over its first quarter before they are over all of it. */
const LONG = 512;
/**
 * The share of the squares of that quarter below which more of them is looked at, in a text within the noise. Differences
 * grow like angles at most: those that are half of a text's squares are a seventeenth of the squares of its quarter.
 */
const LEAVES_PART = 0.97;
/** The tokens after which most hypotheses are excluded already, and those after which many are if there is no noise. */
const FEW = 8;
const FEWEST = 3;
/** The share of the squares that a hypothesis leaves which is looked at before others. */
const CLOSE = 0.05;
/** The share of the differences that a hypothesis may leave beside the noise: its number is not fitted exactly. */
const EXPLAINED = 0.02;
/** The scalings whose factor is fitted at most. */
const MOST_SCALES = 9;
/** The rows at the beginning of a text, and how much larger noise may be behind them. Measured: 0.9 to 1.1. */
const EARLY = 24;
const GROWS = 1.6;
/** With differences up to this, in nats, no value of a scale that is a step of its grid away can be the right one. */
const NEAR = 0.1;
/** How much larger the squares of a whole text may be than those of the part that a number was fitted to. */
const STEADY = 1.25;
/** The step from a model's own number to both sides, for the parabola. */
const ASIDE = 1.05;
/** No difference is below the rounding of f32 and of decimal texts: then nothing is better than anything. */
const TINY = 1e-10;

type Differences = (change: Change, part?: Part) => Promise<Float64Array[]>;

/** A hypothesis that was tried on the rows after at most `most` tokens, and the squares that it leaves there. */
interface Tried {
  readonly hypothesis: Hypothesis;
  readonly most: number;
  /** The mean square of each row, and their sum. */
  readonly rows: readonly number[];
  readonly squares: number;
  /** The differences in the rows that it changes. */
  readonly differences: readonly Float64Array[];
}

/**
 * Judges answers.
 *
 * @param single - answers to prompts of one token
 * @param text - answers to a longer prompt
 * @param longer - the text as it would go on, for what would tell hypotheses apart
 * @param onStep - called with the share that is done, in [0, 1]
 */
export async function judge(
  expected: Expected,
  single: readonly Observed[],
  text: Observed,
  longer: readonly number[] = [],
  onStep: (share: number) => void = () => {},
): Promise<Judgement> {
  for (const one of [...single, text]) expected.check(one);
  const sinks = expected.model.config.family.sinks ? SINKS : [];
  // A single token attends to itself and to the sinks, so that the noise is what the best of them leaves.
  let attends: Change = {};
  const squares = async (change: Change): Promise<number> => meanOf(await squaresOf(single, expected, change));
  for (const { change } of sinks) if ((await squares(change)) < (await squares(attends)) / 4) attends = change;
  const temperature = await temperatureOf(single, expected, attends);
  const noise = Math.sqrt(await squares({ ...attends, temperature }));
  const search = await Search.start(text, noise, (change, part) =>
    expected.differences(text, { temperature, ...change }, part),
  );
  if (noise > LEAST_NOISE) search.bounds = await boundsOf(expected, single, text, attends);
  const difference = Math.sqrt(meanOf(search.own));
  const lone = text.rows.filter(({ ids }) => ids.length === 1).length > text.rows.length / 2;
  const within = search.isNoise(
    search.own,
    lone ? [single.length > 1 ? LONE_NOISE : BOS_NOISE, LONE_GROWS] : undefined,
  );
  const { layers, maxContext } = expected.model.config;
  const count = text.tokens.length;
  const [rope] = layers(count).flatMap((layer) => layer.rope ?? []);
  const tried: Tried[] = [];
  if (rope) {
    const at = search.changePoint(search.own);
    const place = at === undefined ? undefined : text.rows[at]!.seen - 1;
    const windows = layers(count).map(({ window }) => window);
    const placesAt = (near: number): Hypothesis[] => placeHypotheses(near, count, rope.axes !== undefined, windows);
    const hypotheses = [
      ...plainHypotheses(rope, maxContext),
      ...sinks,
      ...(within ? [] : layerHypotheses(layers(count).map((layer) => layer.rope))),
      ...(place === undefined ? [] : placesAt(place)),
    ];
    const scales = scalesOf(rope);
    // A scale takes about as many runs as 20 hypotheses.
    const total = 20 * scales.length + hypotheses.length;
    let done = 0;
    const screen = async (list: readonly Hypothesis[]): Promise<void> => {
      for (const hypothesis of list) {
        tried.push(await search.screen(hypothesis));
        onStep(++done / total);
      }
    };
    if (difference <= NEAR) {
      await screen(hypotheses);
      await search.goOn(tried);
      for (const scale of scales) tried.push(await search.fitNear(scale, within));
    } else {
      // Rows before a wrong place differ by noise alone. Where they differ by more, a frequency is likelier, and tried first.
      const isPlace = at !== undefined && search.isNoise(search.own.slice(0, at));
      const places = hypotheses.filter(({ at }) => at !== undefined);
      const tryPlaces = (): Promise<void> =>
        search.tryPlaces(places, tried, isPlace ? place : undefined, () => onStep(++done / total));
      if (isPlace) await tryPlaces();
      const [begun, close]: [Begun[], Begun[]] = [[], []];
      for (const scale of scales) {
        const one = await search.begin(scale);
        if (search.isClose(one.best[0]!)) close.push(one);
        if (search.isClose(one.best[0]!) && !search.leader) {
          tried.push(await search.fit(one, one.share));
          await search.lead(tried);
        } else begun.push(one);
        onStep((done += 10) / total);
      }
      if (!isPlace) await tryPlaces();
      for (const isLayer of [false, true]) {
        // One layer of many is not looked at where something explains the whole text.
        if (!isLayer || !search.leader)
          await screen(hypotheses.filter(({ at, kind }) => at === undefined && (kind === 'layers') === isLayer));
        await search.lead(tried);
      }
      await search.goOn(tried);
      await search.lead(tried);
      const least = Math.min(...begun.map(({ share }) => share), ...tried.map((one) => search.share(one)));
      for (const one of begun) {
        tried.push(await search.fit(one, least));
        onStep((done += 10) / total);
      }
      if (!search.leader && !tried.some(({ most, rows }) => most === count && search.isNoise(rows)))
        tried.push(...(await search.tryBoth(close, placesAt)));
    }
    // Single tokens show a temperature, too: where they prove none, one that fits them worse is none.
    const cooled = temperature === 1 ? tried.filter(({ hypothesis }) => hypothesis.kind === 'temperature') : [];
    for (const one of cooled)
      if ((await squares({ ...attends, ...one.hypothesis.change })) > noise ** 2) tried.splice(tried.indexOf(one), 1);
    await search.finish(tried);
    await search.refine(tried);
  }
  const bases = rope && within ? await search.nearest(scalesOf(rope)[0]!, rope.base, search.own) : undefined;
  return conclude({ tried, search, noise, within, temperature, bases, expected, longer });
}

/** A scale whose best values over few tokens are known, and the share of the squares that the best leaves there. */
interface Begun {
  readonly scale: Scale;
  readonly best: readonly Tried[];
  readonly share: number;
}

/** Runs hypotheses over one text. */
class Search {
  readonly text: Observed;
  /** The mean square of each row for the model itself. */
  readonly own: readonly number[];
  /** A hypothesis that explains the whole text. Where there is one, others are run until they are far behind it. */
  leader: Tried | undefined;
  /** How much larger than on single tokens noise may be, and how much larger behind the first rows. */
  bounds: Bounds = [NOISE, GROWS];
  readonly #noise: number;
  /** Runs that were not stopped. */
  readonly #runs = new Map<string, Tried>();
  readonly #differences: Differences;

  private constructor(text: Observed, noise: number, own: readonly number[], differences: Differences) {
    this.text = text;
    this.own = own;
    this.#noise = noise;
    this.#differences = differences;
  }

  static async start(text: Observed, noise: number, differences: Differences): Promise<Search> {
    return new Search(text, noise, (await differences({})).map(squareOf), differences);
  }

  /**
   * Says whether squares are no more than noise: not much larger than on single tokens, and not growing. Rounding is as
   * large at the end of a text as in its first tokens, where most wrong positions and frequencies hardly show.
   *
   * @param others - bounds that hold too where they are larger
   * @param unexplained - nats that may be left beside the noise
   */
  isNoise(squares: readonly number[], others: Bounds = [0, 0], unexplained = 0): boolean {
    const least = LEAST_NOISE + unexplained;
    const [more, grows] = this.bounds.map((bound, n) => Math.max(bound, others[n]!)) as [number, number];
    const [early, late] = [squares.slice(0, EARLY), squares.slice(EARLY)].map((part) => Math.sqrt(meanOf(part)));
    return Math.sqrt(meanOf(squares)) <= more * this.#noise + least && late! <= grows * early! + least;
  }

  /** Finds the row where the noise ends and larger squares begin; undefined if there is no such row. */
  changePoint(squares: readonly number[]): number | undefined {
    return changePointOf(squares, (this.bounds[0] * this.#noise + LEAST_NOISE) ** 2);
  }

  get count(): number {
    return this.text.tokens.length;
  }

  /** The tokens over which a number is fitted first: all of a short text. */
  get part(): number {
    return this.count > LONG ? Math.ceil(this.count / 4) : this.count;
  }

  /** The tokens after which a run over all of them may end. */
  get stops(): number[] {
    return [SCREEN, this.part, 2 * this.part];
  }

  /** Counts the rows after at most so many tokens. */
  rows(most: number): number {
    return this.text.rows.filter(({ seen }) => seen <= most).length;
  }

  /** The squares of the model itself in the rows after at most so many tokens. */
  ownSquares(most: number): number {
    return sum(this.own.slice(0, this.rows(most)));
  }

  /**
   * Runs a hypothesis over the first tokens.
   *
   * @param enough - asked after so many tokens whether the rest is not needed
   */
  async run(
    { ...hypothesis }: Hypothesis,
    most = this.count,
    stops: readonly number[] = [],
    enough: (tried: Tried) => boolean = () => false,
  ): Promise<Tried> {
    const { at: from = 0 } = hypothesis;
    const before = this.own.slice(0, this.rows(from));
    const triedAfter = (seen: number, found: readonly Float64Array[]): Tried => {
      const rows = [...before, ...found.map(squareOf)];
      return { hypothesis, most: seen, rows, squares: sum(rows), differences: found };
    };
    let last = most;
    const key = `${hypothesis.says} ${hypothesis.value} ${most}`;
    const known = this.#runs.get(key);
    if (known) return { ...known, hypothesis };
    const found = await this.#differences(hypothesis.change, {
      from,
      most,
      stops,
      enough: (rows, seen) => {
        const stopped = enough(triedAfter(seen, rows));
        if (stopped) last = seen;
        return stopped;
      },
    });
    const tried = triedAfter(last, found);
    if (last === most) this.#runs.set(key, tried);
    return tried;
  }

  /** Runs a hypothesis over few tokens. */
  async screen(hypothesis: Hypothesis): Promise<Tried> {
    const { at = 0 } = hypothesis;
    const most = Math.min(this.count, at + FEW);
    return this.run(hypothesis, most, [at + FEWEST], (one) => this.isExcluded(one, 2 * APART));
  }

  /** Runs hypotheses that few tokens do not exclude over more of them, in place. */
  async goOn(tried: Tried[]): Promise<void> {
    for (const [n, one] of tried.entries()) {
      const { at = 0 } = one.hypothesis;
      if (one.most !== Math.min(this.count, at + FEW) || this.isExcluded(one, 2 * APART)) continue;
      const [most, stops] = at > 0 ? [at + FIRST, [at + 2 * FEW]] : [SCREEN, [2 * FEW, FIRST]];
      tried[n] = await this.run(one.hypothesis, Math.min(this.count, most), stops, (part) => {
        return this.isExcluded(part, APART);
      });
    }
  }

  /** Whether a hypothesis is far worse than the model itself, or than one that explains the text. */
  isExcluded(one: Tried, apart: number): boolean {
    return this.gain(one) <= -apart || this.isBehind(one);
  }

  /** Whether a hypothesis that explains the text is far better than another, in the rows that the other was tried on. */
  isBehind({ most, squares }: Tried, leader = this.leader): boolean {
    const rows = this.rows(most);
    return leader !== undefined && Search.better(rows, sum(leader.rows.slice(0, rows)), squares) >= 2 * APART;
  }

  /** Returns the one that leaves the least share of those that are clearly better than the model itself. */
  closest(tried: readonly Tried[]): Tried | undefined {
    return tried.filter((one) => this.gain(one) >= CLEAR).sort((a, b) => this.share(a) - this.share(b))[0];
  }

  /** Tries what is near the closest hypothesis with a whole number over few tokens, unless the text is explained. */
  async goAround(tried: Tried[]): Promise<void> {
    const open = (): Tried | undefined => this.closest(tried.filter(({ hypothesis }) => hypothesis.around));
    let best: Tried | undefined;
    for (let next = open(); next !== best && !this.leader; next = open()) {
      best = next;
      for (const one of best!.hypothesis.around!()) tried.push(await this.screen(one));
    }
  }

  /**
   * Tries what may begin at a place.
   *
   * @param near - the place, where rows before it differ by noise alone: each gap there is tried if nothing explains it
   */
  async tryPlaces(
    places: readonly Hypothesis[],
    tried: Tried[],
    near: number | undefined,
    onStep: () => void = () => {},
  ): Promise<void> {
    for (const isCache of [false, true]) {
      for (const one of places.filter(({ kind }) => (kind === 'cache') === isCache)) {
        tried.push(await this.screen(one));
        onStep();
      }
      await this.lead(tried);
      if (!isCache) await this.goAround(tried);
      await this.lead(tried);
    }
    await this.goOn(tried);
    await this.lead(tried);
    if (near === undefined || this.leader) return;
    for (const one of allGaps(near)) tried.push(await this.screen(one));
    await this.lead(tried);
  }

  /** Tries what may begin at a place beside the number that explains the tokens before it. */
  async tryBoth(close: readonly Begun[], placesAt: (near: number) => Hypothesis[]): Promise<Tried[]> {
    let [best] = close.map(({ best: [one] }) => one!).sort(bySquares);
    const scale = best?.hypothesis.scale;
    if (!best || !scale) return [];
    let near = 0;
    // The first tokens give the number, the number the place, and all tokens before the place a better number.
    for (let n = 0; n < 2; n++) {
      const at = this.changePoint((await this.run(best.hypothesis)).rows);
      if (at === undefined) return [];
      near = this.text.rows[at]!.seen - 1;
      const run = (value: number): Promise<Tried> => this.run({ ...scale.at(value), scale }, near);
      best = await this.rounded(await approach(run, best.hypothesis.value!, 1.2, 6));
    }
    const { says, change: base } = best.hypothesis;
    const { rows } = await this.run(best.hypothesis);
    const search = new Search(this.text, this.#noise, rows, (change, part) =>
      this.#differences({ ...base, ...change }, { ...part, base }),
    );
    search.bounds = this.bounds;
    const tried: Tried[] = [];
    await search.tryPlaces(placesAt(near), tried, near);
    return tried
      .filter(({ most }) => most === this.count)
      .map(({ hypothesis: { around: _, ...one }, ...more }) => {
        return {
          ...more,
          hypothesis: { ...one, says: `${says}; and it ${one.says}`, change: { ...base, ...one.change } },
        };
      });
  }

  /** Runs the best of those that were tried over more of the text while it is close to the answers, to be the leader. */
  async lead(tried: Tried[]): Promise<void> {
    while (!this.leader) {
      const best = this.closest(tried);
      if (!best || !this.isClose(best)) return;
      if (best.most === this.count) {
        if (!this.isNoise(best.rows)) return;
        this.leader = best;
        return;
      }
      const stops = [best.most + SCREEN, ...this.stops].filter((stop) => stop > best.most);
      const more = await this.run(best.hypothesis, this.count, stops, (one) => {
        return !this.isClose(one) || !this.isNoise(one.rows);
      });
      tried[tried.indexOf(best)] = more;
      if (more.most < this.count && this.isClose(more)) return;
    }
  }

  /** Says how much better one sum of squares is than another, for so many rows. Positive: `a` is better. */
  static better(rows: number, a: number, b: number): number {
    return rows * Math.log((b + rows * TINY) / (a + rows * TINY));
  }

  /** How much better a tried hypothesis is than the model itself. */
  gain({ most, squares }: Tried): number {
    return Search.better(this.rows(most), squares, this.ownSquares(most));
  }

  /** The share of the squares that a tried hypothesis leaves. */
  share({ most, squares }: Tried): number {
    return squares / (this.ownSquares(most) + TINY);
  }

  /** Whether a tried hypothesis leaves little of the squares, or no more than noise, which may be much of them. */
  isClose(one: Tried): boolean {
    const share = this.share(one);
    return share <= CLOSE || (share <= LEAVES_WITHIN && this.isNoise(one.rows));
  }

  /** Fits the number of a scale near the model's own. A parabola says first whether anything there can be better. */
  async fitNear(scale: Scale, within: boolean): Promise<Tried> {
    const { own } = scale;
    const at = (value: number, most?: number): Promise<Tried> => this.run({ ...scale.at(value), scale }, most);
    const squares = sum(this.own);
    const hypothesis = { ...scale.at(own), scale };
    const unmoved: Tried = { hypothesis, most: this.count, rows: this.own, squares, differences: [] };
    if (squares <= this.own.length * LEAST_NOISE ** 2) return unmoved;
    for (const most of new Set(within ? [this.part, this.count] : [this.count])) {
      const middle = this.ownSquares(most);
      const [below, above] = [(await at(own / ASIDE, most)).squares, (await at(own * ASIDE, most)).squares];
      const bend = (below + above) / 2 - middle;
      const vertex = bend > 0 ? middle - ((above - below) / 4) ** 2 / bend : 0;
      const leaves = most === this.count ? LEAVES : LEAVES_PART;
      if (Math.min(below, above, vertex) >= leaves * middle) return unmoved;
    }
    if (this.part === this.count) return approach(at, own, 1.5, 6);
    const part = await approach((value) => at(value, this.part), own, 1.5, 6);
    return approach(at, part.hypothesis.value!, 1.05, 3);
  }

  /** Looks for the best places of a scale: a grid over few tokens. */
  async begin(scale: Scale): Promise<Begun> {
    const { grid, first = FIRST } = scale;
    const most = Math.min(this.count, first);
    const at = (value: number, tokens = most): Promise<Tried> => this.run({ ...scale.at(value), scale }, tokens);
    const left: Tried[] = [];
    for (const value of grid)
      left.push(
        await this.run({ ...scale.at(value), scale }, most, [FEWEST, FEW, 2 * FEW], (one) =>
          this.isExcluded(one, 2 * APART),
        ),
      );
    const lowest = left
      .filter((one, n) => {
        const beside = [left[n - 1], left[n + 1]].flatMap((next) => next ?? []);
        return one.most === most && beside.every((next) => this.share(one) <= this.share(next));
      })
      .sort(bySquares)
      .slice(0, 3);
    const best: Tried[] = [];
    for (const one of lowest)
      if (!best.some((other) => this.isBehind(one, other)))
        best.push(await approach(at, one.hypothesis.value!, grid[1]! / grid[0]!, 4, one));
    const later = Math.min(this.count, FIRST);
    for (const [n, one] of later > most ? best.entries() : [])
      best[n] = await approach((value) => at(value, later), one.hypothesis.value!, grid[1]! / grid[0]!, 6);
    // All are far behind.
    if (best.length === 0) return { scale, best: left.slice(0, 1), share: 1 };
    best.sort(bySquares);
    return { scale, best, share: this.share(best[0]!) };
  }

  /** Fits the number of a scale over more and more tokens, unless others leave far less than it does. */
  async fit({ scale, best }: Begun, least: number): Promise<Tried> {
    const { grid } = scale;
    let found = best[0]!;
    let open = best.slice(0, 2);
    const isLong = this.part < this.count;
    // The number that few tokens give is near the right one, so that the whole text takes fewer steps.
    for (const [most, reach, steps] of [
      [Math.min(this.count, 4 * FIRST), Math.sqrt(grid[1]! / grid[0]!), 6],
      ...(isLong ? ([[this.part, 1.2, 5]] as const) : []),
      [this.count, isLong ? 1.05 : 1.2, isLong ? 3 : 5],
    ] as const) {
      const share = this.share(found);
      if (share > 0.9 || share > Math.max(CLOSE, 4 * least) || this.isBehind(found)) break;
      const at = (value: number): Promise<Tried> => this.run({ ...scale.at(value), scale }, most);
      if (isLong && most > 4 * FIRST) {
        // A round number that leaves no more than noise in the whole text needs no more steps.
        const round = await this.rounded(found);
        const whole = await this.run(round.hypothesis, this.count, this.stops, ({ rows }) => !this.isNoise(rows));
        if (whole.most === this.count) {
          if (this.isNoise(whole.rows) || meanOf(whole.rows) <= STEADY * meanOf(round.rows)) return whole;
          open = [whole];
        }
      }
      const next: Tried[] = [];
      for (const one of open)
        next.push(await approach(at, one.hypothesis.value!, reach, steps, one.most === most ? one : undefined));
      open = next.sort(bySquares).slice(0, 1);
      found = open[0]!;
    }
    return found;
  }

  /** Runs the best hypotheses over the whole text, in place, and at least one of them if any is better than the model. */
  async finish(tried: Tried[]): Promise<void> {
    const partly = tried.filter(({ most }) => most < this.count).sort((a, b) => this.share(a) - this.share(b));
    const clear = tried.some((one) => this.gain(one) >= CLEAR);
    const least = !this.leader && (clear || partly.length === tried.length) ? 1 : 0;
    for (const [n, one] of partly.slice(0, 8).entries()) {
      const [best] = tried.filter(({ most }) => most === this.count).sort(bySquares);
      if (!this.leader && best && this.isNoise(best.rows)) this.leader = best;
      // Where one explains all, no other can make up for what the first rows say.
      if (n < least || (!this.isBehind(one) && this.gain(one) > -APART))
        tried[tried.indexOf(one)] = await this.run(one.hypothesis, this.count, this.stops, (part) => {
          return n >= least && (this.isBehind(part) || this.gain(part) <= -2 * APART);
        });
    }
  }

  /** Tries what is near the best hypothesis. */
  async refine(tried: Tried[]): Promise<void> {
    const bestOf = (): Tried | undefined => tried.filter(({ most }) => most === this.count).sort(bySquares)[0];
    let best = bestOf();
    if (!best || this.gain(best) < CLEAR || best.squares <= best.most * LEAST_NOISE ** 2) return;
    for (let around = best.hypothesis.around; around; ) {
      const others: Tried[] = [];
      for (const one of around()) others.push(await this.screen(one));
      await this.goOn(others);
      const [nearest, ...rest] = others.sort((a, b) => this.share(a) - this.share(b));
      const whole = await this.run(nearest!.hypothesis);
      tried.push(whole);
      const isBehind = (one: Tried): boolean => this.isBehind(one, whole);
      for (const one of rest)
        tried.push(isBehind(one) ? one : await this.run(one.hypothesis, this.count, this.stops, isBehind));
      const next = bestOf()!;
      around = next === best ? undefined : next.hypothesis.around;
      best = next;
    }
    // The factors of the best scalings are fitted. One of a list is kept unless the fitted one is clearly better.
    // Where another kind explains the text, scalings that leave little of the first tokens may explain it as well.
    const { scale, fitted } = best.hypothesis;
    const isElse = !(scale && !fitted) && this.isNoise(best.rows);
    const listed = tried.filter((one) => {
      if (!one.hypothesis.scale || one.hypothesis.fitted) return false;
      return isElse ? one.most >= FIRST && this.share(one) <= CLOSE : one.most === this.count;
    });
    const open: Pick<Tried, 'hypothesis' | 'squares'>[] = [];
    for (const { hypothesis } of listed.sort((a, b) => this.share(a) - this.share(b)).slice(0, 3))
      open.push({ hypothesis, squares: (await this.run(hypothesis, this.part)).squares });
    let least = Number.POSITIVE_INFINITY;
    const seen = new Set<string>();
    for (let n = 0; n < open.length && n < MOST_SCALES; n++) {
      const { hypothesis, squares } = open[n]!;
      const { at, around = () => [] } = hypothesis.scale!;
      if (seen.has(at(1).says)) continue;
      seen.add(at(1).says);
      const { part } = this;
      const run = (factor: number): Promise<Tried> => this.run({ ...at(factor), fitted: true }, part);
      const fitted = await approach(run, hypothesis.value!, 4, 8);
      if (n >= 3 || Search.better(this.rows(part), fitted.squares, squares) >= APART)
        tried.push(part === this.count ? fitted : await this.run(fitted.hypothesis));
      if (fitted.squares >= least) continue;
      least = fitted.squares;
      for (const next of around()) open.push({ hypothesis: next.at(fitted.hypothesis.value!), squares: least });
    }
  }

  /** Replaces a fitted number by the roundest one that fits the same rows as well. */
  async rounded(best: Tried): Promise<Tried> {
    const { scale, value, fitted } = best.hypothesis;
    if (!scale || !fitted || value === undefined || this.gain(best) < CLEAR) return best;
    for (const digits of [1, 2, 3]) {
      const round: number = Number(value.toPrecision(digits));
      if (round === value) return best;
      const one = { ...scale.at(round), scale, fitted };
      if ((await this.worse(best.rows, one, best.most)) < AS_WELL) return this.run(one, best.most);
    }
    return best;
  }

  /**
   * Says how much worse a hypothesis is than one that leaves these squares in the rows after at most `most` tokens. Where
   * the first of them say enough, the rest is not run.
   */
  async worse(rows: readonly number[], hypothesis: Hypothesis, most = this.count): Promise<number> {
    const by = ({ most: tokens, squares }: Tried): number =>
      Search.better(this.rows(tokens), sum(rows.slice(0, this.rows(tokens))), squares);
    return by(await this.run(hypothesis, most, this.stops, (one) => by(one) >= 2 * APART));
  }

  /** Finds the nearest values on both sides of the best that the data exclude, of a ladder of steps: a part of a long text. */
  async nearest({ at }: Scale, best: number, rows: readonly number[]): Promise<Range> {
    const steps = [1.005, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 5, 10, 50];
    const hasNoise = sum(rows) > rows.length * LEAST_NOISE ** 2;
    const side = async (sign: number): Promise<number | undefined> => {
      let [below, excluded, next] = [-1, steps.length, hasNoise ? steps.indexOf(1.1) : 0];
      let found: number | undefined;
      while (excluded - below > 1) {
        const one = at(best * steps[next]! ** sign);
        const worse = await this.worse(rows, one, this.part);
        if (worse >= APART) [excluded, found] = [next, one.value];
        else below = next;
        // Squares grow as those of the distance.
        const least = Math.log(steps[next]!) * Math.sqrt(APART / Math.max(worse, 1));
        const first = steps.findIndex((step) => Math.log(step) >= least);
        next = Math.min(excluded - 1, Math.max(below + 1, first < 0 ? excluded - 1 : first));
      }
      return found;
    };
    return [await side(-1), await side(1)];
  }
}

/** How much larger than on single tokens noise may be, and how much larger behind the first rows. */
type Bounds = readonly [more: number, grows: number];

/** Measures how our own decoder's rounding of keys and values grows along the text. */
async function boundsOf(
  expected: Expected,
  single: readonly Observed[],
  text: Observed,
  attends: Change,
): Promise<Bounds> {
  const rounded = async (one: Observed): Promise<number[]> => {
    const run = (change: Change) => expected.differences(one, { ...attends, ...change }, { most: ROUNDED });
    const [plain, changed] = [await run({}), await run({ cacheDtype: 'f8_e4m3' })];
    return plain.map((row, n) => squareOf(row.map((value, i) => value - changed[n]![i]!)));
  };
  const few: number[] = [];
  for (const one of single) few.push(...(await rounded(one)));
  const rows = await rounded(text);
  const times = (a: readonly number[], b: readonly number[]): number => Math.sqrt(meanOf(a) / (meanOf(b) + TINY));
  return [
    Math.max(NOISE, NOISE * times(rows, few)),
    Math.max(GROWS, 1.25 * times(rows.slice(EARLY), rows.slice(0, EARLY))),
  ];
}

const squareOf = (row: Float64Array): number => row.reduce((total, one) => total + one * one, 0) / row.length;
const sum = (list: readonly number[]): number => list.reduce((total, one) => total + one, 0);
const bySquares = (a: Tried, b: Tried): number => a.squares - b.squares;
const meanOf = (list: readonly number[]): number => (list.length === 0 ? 0 : sum(list) / list.length);

async function squaresOf(all: readonly Observed[], expected: Expected, change: Change): Promise<number[]> {
  const squares: number[] = [];
  for (const one of all) squares.push(...(await expected.differences(one, change)).map(squareOf));
  return squares;
}

/** Differences of numbers that are nearer than this are not looked for: a range is half a percent wide. */
const PRECISE = 5e-4;
/** A number is not fitted further where a step of this logarithm is better by less than that: a likelihood ratio of 1.6. */
const NEAR_STEP = 0.05;
const UNSEEN = 1;

/**
 * Finds the value near `start` that leaves the least squares, by steps of Gauss and Newton on the logarithm: differences
 * are nearly linear there, so that the line through those of two values says where the least is.
 *
 * @param steps - the most values that are tried
 * @param known - `start` itself, if it was tried
 */
async function approach(
  of: (value: number) => Promise<Tried>,
  start: number,
  reach: number,
  steps: number,
  known?: Tried,
): Promise<Tried> {
  const [middle, most] = [Math.log(start), Math.log(reach)];
  const at = async (log: number) => ({ log, found: await of(Math.exp(log)) });
  let best = known ? { log: middle, found: known } : await at(middle);
  let other = await at(middle + most / 10);
  if (other.found.squares < best.found.squares) [best, other] = [other, best];
  for (let n = 2; n < steps; n++) {
    let [along, across] = [0, 0];
    for (const [row, here] of best.found.differences.entries()) {
      const there = other.found.differences[row]!;
      for (let i = 0; i < here.length; i++) {
        along += ((there[i]! - here[i]!) * here[i]!) / here.length;
        across += (there[i]! - here[i]!) ** 2 / here.length;
      }
    }
    const log = Math.max(middle - most, Math.min(middle + most, best.log - ((other.log - best.log) * along) / across));
    if (!(Math.abs(log - best.log) > PRECISE)) break;
    const { squares, rows } = best.found;
    const isNear = Math.abs(log - best.log) < NEAR_STEP;
    if (isNear && rows.length * (along ** 2 / across) <= UNSEEN * squares) break;
    const next = await at(log);
    if (next.found.squares < best.found.squares) [best, other] = [next, best];
    else other = next;
  }
  return best.found;
}

/** Finds the value near `middle` that leaves the least squares, by golden sections of the logarithm. */
async function narrow<T extends { readonly squares: number }>(
  of: (value: number) => Promise<T>,
  middle: number,
  reach: number,
  steps: number,
): Promise<T> {
  const golden = (Math.sqrt(5) - 1) / 2;
  let [low, high] = [Math.log(middle / reach), Math.log(middle * reach)];
  const at = async (log: number) => ({ log, found: await of(Math.exp(log)) });
  let [a, b] = [await at(high - golden * (high - low)), await at(low + golden * (high - low))];
  for (let n = 0; n < steps; n++) {
    if (a.found.squares < b.found.squares) {
      [high, b] = [b.log, a];
      a = await at(high - golden * (high - low));
    } else {
      [low, a] = [a.log, b];
      b = await at(low + golden * (high - low));
    }
  }
  return a.found.squares < b.found.squares ? a.found : b.found;
}

/** The temperatures that are tried, in logarithms around 1. */
const REACH = 8;
/** A temperature is proven if it leaves less than this of the squares of single tokens. */
const COOLED = 0.7;

/** Fits the temperature of prompts of one token. Rounding leaves most of the squares, another temperature nearly none. */
async function temperatureOf(single: readonly Observed[], expected: Expected, change: Change): Promise<number> {
  const at = async (value: number) => {
    return { value, squares: sum(await squaresOf(single, expected, { ...change, temperature: value })) };
  };
  const own = (await at(1)).squares;
  if (single.length === 0 || own < single.length * LEAST_NOISE ** 2) return 1;
  const { value, squares } = await narrow(at, 1, REACH, 16);
  return squares <= COOLED * own && Search.better(single.length, squares, own) >= APART ? value : 1;
}

/** Finds the row where the noise, a square, ends and larger squares begin; undefined if there is no such row. */
function changePointOf(squares: readonly number[], noise: number): number | undefined {
  const total = sum(squares);
  const rows = squares.length;
  const log = (count: number, all: number): number => count * Math.log(all / count + TINY);
  let best: { at: number; gain: number; before: number; after: number } | undefined;
  let first = 0;
  for (let at = 1; at < rows; at++) {
    first += squares[at - 1]!;
    const [before, after] = [first / at, (total - first) / (rows - at)];
    const gain = log(rows, total) - log(at, first) - log(rows - at, total - first);
    if (at >= 4 && rows - at >= 4 && after > before && gain > (best?.gain ?? 0)) best = { at, gain, before, after };
  }
  return best && best.gain > APART && best.before <= noise && best.after > 1.5 * best.before ? best.at : undefined;
}

/** Finds the tokens of the shortest longer text in which a server with the best hypothesis differs from all rivals. */
async function nextOf(
  { expected, longer, temperature }: Pick<Parameters<typeof conclude>[0], 'expected' | 'longer' | 'temperature'>,
  { hypothesis, most, rows, squares }: Tried,
  rivals: readonly Tried[],
): Promise<number | undefined> {
  const noise = Math.max(squares / rows.length, LEAST_NOISE ** 2);
  for (let count = 2 * most; count <= longer.length; count *= 2) {
    const server = await expected.answers(longer.slice(0, count), { temperature, ...hypothesis.change });
    const tells = async (rival: Tried): Promise<boolean> => {
      const apart = (await expected.differences(server, { temperature, ...rival.hypothesis.change })).map(squareOf);
      return Search.better(count, count * noise, count * noise + sum(apart)) >= 2 * APART;
    };
    let all = true;
    for (const rival of rivals) all &&= await tells(rival);
    if (all) return count;
  }
  return undefined;
}

/** The bounds of the spans that are printed. */
const SPANS = [0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, Number.POSITIVE_INFINITY];

async function conclude(found: {
  readonly tried: readonly Tried[];
  readonly search: Search;
  readonly noise: number;
  readonly within: boolean;
  readonly temperature: number;
  readonly bases: Judgement['bases'];
  readonly expected: Expected;
  readonly longer: readonly number[];
}): Promise<Judgement> {
  const { tried, search, noise, within, temperature, bases } = found;
  const { own, count } = search;
  const rows = own.length;
  const ownSquares = sum(own);
  const whole = tried.filter(({ most }) => most === count).sort(bySquares);
  const first = whole[0] && (await search.rounded(whole[0]));
  const left = ({ squares, most }: Tried): number => Math.sqrt(squares / search.rows(most));
  // Rounding is not like a temperature, which single tokens show already.
  const most = within && first?.hypothesis.kind !== 'temperature' ? LEAVES_WITHIN : LEAVES;
  const isBetter = first && first.squares <= most * ownSquares && search.gain(first) >= CLEAR;
  const fitOf = (one: Tried): Fit => {
    const { kind, says, value } = one.hypothesis;
    return { kind, says, value, left: left(one), ...(one.most < count && { tokens: one.most }) };
  };
  const bestSquares = isBetter ? first.rows : own;
  const spans = SPANS.slice(1).flatMap((to, n) => {
    const inside = search.text.rows.flatMap(({ seen }, row) => (seen > SPANS[n]! && seen <= to ? [row] : []));
    const over = (list: readonly number[]): number => Math.sqrt(meanOf(inside.map((row) => list[row]!)));
    const last = inside.at(-1);
    if (last === undefined) return [];
    return [{ from: SPANS[n]!, to: search.text.rows[last]!.seen, difference: over(own), left: over(bestSquares) }];
  });
  const positions = search.text.rows.map(({ seen }, n) => {
    return { seen, difference: Math.sqrt(own[n]!), left: Math.sqrt(bestSquares[n]!) };
  });
  const common = { noise, difference: Math.sqrt(ownSquares / rows), rows, temperature, spans, positions };
  const names = (list: readonly Tried[]): string[] => list.map(({ hypothesis }) => hypothesis.says);
  if (!isBetter) {
    const plain = tried.filter(({ hypothesis }) => hypothesis.fitted !== true);
    const { says } = TEMPERATURE.at(temperature);
    const cooled: Fit = { kind: 'temperature', says, value: temperature, left: common.difference };
    const agrees = temperature === 1 ? 'agrees' : 'named';
    return {
      ...common,
      verdict: noise > OTHER ? 'other' : within ? agrees : 'described',
      best: within && temperature !== 1 ? cooled : undefined,
      rivals: [],
      second: undefined,
      bases,
      excluded: names(plain.filter((one) => search.gain(one) <= -APART)),
      unseen: names(plain.filter((one) => search.gain(one) > -APART)),
    };
  }
  const apart = (one: Tried): number => Search.better(rows, first.squares, one.squares);
  const { scale, family } = first.hypothesis;
  const isOther = ({ hypothesis }: Tried): boolean =>
    (scale === undefined || hypothesis.scale !== scale) && (family === undefined || hypothesis.family !== family);
  const others = whole.filter((one) => one.hypothesis.says !== first.hypothesis.says && isOther(one));
  const fits = within || search.isNoise(bestSquares, [0, 0], EXPLAINED * common.difference);
  const value = first.hypothesis.value!;
  const excluded = tried
    .filter((one) => !isOther(one) && (one.most < count || apart(one) >= APART))
    .map(({ hypothesis }) => hypothesis.value!)
    .sort((a, b) => a - b);
  const nearest: Range = [excluded.findLast((one) => one < value), excluded.find((one) => one > value)];
  const range = !fits ? undefined : scale ? await search.nearest(scale, value, first.rows) : family && nearest;
  const rivals = others.filter((one) => apart(one) < APART && search.gain(one) >= CLEAR);
  // Those that the first tokens exclude are not run over all of them.
  const partly = tried
    .filter((one) => one.most < count && isOther(one))
    .sort((a, b) => search.share(a) - search.share(b));
  const second = others.find((one) => !rivals.includes(one)) ?? partly[0];
  return {
    ...common,
    verdict: noise > OTHER ? 'other' : !fits ? 'described' : rivals.length > 0 ? 'one-of' : 'named',
    best: { ...fitOf(first), range: range || undefined },
    rivals: rivals.map(fitOf),
    next: fits && rivals.length > 0 ? await nextOf(found, first, rivals) : undefined,
    second: second && fitOf(second),
    bases: undefined,
    excluded: [],
    unseen: [],
  };
}
