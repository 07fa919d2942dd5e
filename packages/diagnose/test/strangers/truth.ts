/**
 * Checks every line of a diagnosis against what is true of the kernel.
 *
 * A line of no known form fails: somebody must say here what makes it true. @module
 */
import { type FloatDtype, frequenciesOf, roundTo } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import {
  type Aspect,
  type Call,
  exact,
  normedInput,
  PHI3_LONG,
  PHI3_SHORT,
  type Rotation,
  type RowAt,
  rotationOf,
  type Stranger,
  type Truth,
} from './kernel.js';
import { MEMBER_LINES, PAIR_LINES } from './member-lines.js';

/** The facts against which lines are checked. */
export interface Scene {
  readonly stranger: Stranger;
  readonly call: Call;
  readonly truth: Truth;
  /** The rotation that was asked for, and its output in float64. */
  readonly asked: Rotation;
  readonly right: Float64Array;
  /** The dtype that y was rounded to. */
  readonly dtype: FloatDtype;
  /** The rows of "What y shows", by their first word. */
  readonly shown: ReadonlyMap<string, string>;
  /** Whether rows that hold something else are told apart, and not spoken of in other sections. */
  readonly apart: boolean;
  /** Lines of the section that is being read. */
  readonly section: string;
  /** The first line. */
  readonly headline: string;
}

/** A line and what is wrong with it. */
export interface Judged {
  readonly line: string;
  /** Why it is not true; undefined when it is. */
  readonly untrue: string | undefined;
  /** The aspects that it calls wrong. */
  readonly about: readonly Aspect[];
}

type Check = (parts: string[], scene: Scene) => string | undefined;

interface Form {
  readonly of: RegExp;
  readonly about?: Aspect;
  readonly check: Check;
}

const fine: Check = () => undefined;
const NUMBER = '(-?[\\d.]+(?:e[-+]?\\d+)?)';
const BOUND = '(?: \\(± [\\d.e-]+ relative\\))?';

/** Judges the lines of describeDiagnosis. */
export function judgeLines(
  lines: readonly string[],
  given: Omit<Scene, 'shown' | 'section' | 'apart' | 'headline'>,
): Judged[] {
  // A factor of all frequencies may be said as one of the positions.
  const of = lines.some((line) => /\d times the position [+−]/.test(line)) ? byPositions(given) : given;
  const shown = new Map<string, string>();
  const judged: Judged[] = [];
  let section = '';
  let rows: string | undefined;
  const apart = ['Wrong', 'Not rotated', 'Beside that'].some((title) => lines.includes(title));
  // The open questions are about the rows that were shown.
  const spoken = lines.find((line) => /^What (?:the right rows show|y shows in .*)$/.test(line));
  for (const line of lines) if (line.startsWith('  ')) shown.set(line.slice(2, 13).trim(), line.slice(14));
  for (const [n, line] of lines.entries()) {
    if (line === '') continue;
    if (line.startsWith('Read as [batch, head, token, head_dim]')) {
      judged.push({ line, untrue: of.stranger.headsFirst ? undefined : 'it is not', about: ['input'] });
      continue;
    }
    if (n > 0 && !line.startsWith(' ')) {
      const [, name, named] = /^(Different|What y shows)(?: in (.*))?$/.exec(line) ?? [undefined, line];
      section = name!;
      rows = named;
      if (!(section in SECTIONS)) judged.push({ line, untrue: 'a section that the checker does not know', about: [] });
      continue;
    }
    const forms = n === 0 ? HEADLINES : (SECTIONS[section] ?? []);
    const first = n === 0 ? /^DIFFERENT from what is expected(?: \([^)]*\))?, in (.*?): /.exec(line)?.[1] : rows;
    const open = section === 'The measurements leave open' ? / shows in (.*)$/.exec(spoken ?? '')?.[1] : first;
    const scene = ofRows({ ...of, shown, section, apart, headline: lines[0]! }, open, spoken);
    judged.push(judgeLine(n === 0 ? line : line.slice(2), forms, scene));
  }
  return judged;
}

/** A scene of the rows only that a section speaks of. */
function ofRows(scene: Scene, words: string | undefined, spoken: string | undefined): Scene {
  const { section, truth, asked } = scene;
  if (words !== undefined) {
    const named = rowsNamed(words, scene);
    const set = new Set(named?.map((at) => headOf(scene, at)));
    // Rows that are counted only are wrong ones.
    const isNamed = (at: RowAt): boolean => (named ? set.has(headOf(scene, at)) : !isRightRow(scene, at));
    return { ...scene, truth: { ...truth, except: (at) => (truth.except?.(at) ?? false) || !isNamed(at) } };
  }
  if (spoken !== 'What the right rows show' || ![spoken, 'The measurements leave open'].includes(section)) return scene;
  return { ...scene, truth: { ...truth, rotation: asked, except: (at) => !isRightRow(scene, at) } };
}

const isRightRow = (scene: Scene, at: RowAt): boolean => rowFar(rightRow(scene, at), scene, at) <= 1;

function judgeLine(line: string, forms: readonly Form[], scene: Scene): Judged {
  const { truth } = scene;
  const matches = forms.flatMap((form) => {
    const parts = form.of.exec(line);
    return parts ? [{ form, parts }] : [];
  });
  // The first line may say a difference.
  const inner = /^DIFFERENT from .*?: (\S.*)$/.exec(line)?.[1];
  const about = matches.flatMap(({ form }) => (form.about ? [form.about] : []));
  if (inner !== undefined) about.push(...judgeLine(inner, DIFFERENT, scene).about);
  if (truth.true?.some((of) => of.test(line))) return { line, untrue: undefined, about };
  if (truth.untrue?.some((of) => of.test(line))) return { line, untrue: 'said by hand to be untrue', about };
  if (matches.length === 0) return { line, untrue: 'a form that the checker does not know', about };
  const why = matches.map(({ form, parts }) => form.check(parts.slice(1), scene)).find((one) => one !== undefined);
  return { line, untrue: why, about };
}

// Helpers

const isRight = ({ stranger }: Scene): boolean => stranger.cause === 0 || stranger.cause === 7;

/** Whether a parameter that is said to be wrong, `base=500000`, gives the frequencies of a kernel. */
export function isParameter(id: string, call: Call, { rotation, precision }: Truth): boolean {
  const { spec } = call;
  if (!id.includes('=') || !rotation) return false;
  const [, moved, size] = /^positions\.(\w+)=(\d+)$/.exec(id) ?? [];
  if (moved)
    return Array.from({ length: call.batch * call.seq * call.heads }, (_what, r): RowAt => {
      const token = Math.floor(r / call.heads);
      return { batch: Math.floor(token / call.seq), seq: token % call.seq, head: r % call.heads };
    }).every((at) => {
      const given = call.position(at.batch, at.seq, 0);
      const n = Number(size);
      const first = call.position(at.batch, at.seq - (at.seq % n), 0);
      const said = moved === 'at_most' ? Math.min(given, n) : moved === 'modulo' ? given % n : given - first;
      return rotation.position(given, at) === said;
    });
  const other: Record<string, unknown> = { ...spec };
  for (const part of id.split(',')) {
    const [, kind, name, value] = /^(?:(\w+)\.)?(\w+)=(\w+)$/.exec(part)!;
    const key = name!.replace(/_(\w)/g, (_what, letter: string) => letter.toUpperCase());
    if (part === 'scaling=none') other.scaling = undefined;
    else if (kind) other.scaling = { ...(spec.scaling?.kind === kind ? spec.scaling : { kind }), [key]: Number(value) };
    else other[key] = Number(value);
  }
  const { frequency, gain } = rotationOf(other as unknown as Call['spec']);
  const near = (a: number, b: number): boolean => Math.abs(a - b) <= (precision ? 1e-2 : 1e-5) * Math.abs(b);
  const gains = typeof rotation.gain !== 'number' || typeof gain !== 'number' || near(rotation.gain, gain);
  return gains && frequency.every((f, j) => near(rotation.frequency[j]!, f));
}

/** `0-3, 7` as numbers. */
function listed(ranges: string): number[] {
  return ranges.split(/, ?/).flatMap((part) => {
    const [from, to = from] = part.split('-').map(Number) as [number, number?];
    return Array.from({ length: to! - from + 1 }, (_what, n) => from + n);
  });
}

/** The largest error of the kernel's angles. */
const loose = ({ loose: off = 0 }: Rotation): number => off;

const near = (a: number, b: number, relative: number): boolean => Math.abs(a - b) <= relative * Math.abs(b);

/** The relative precision with which numbers of a dtype may be said. */
const share = (dtype: FloatDtype): number => Math.max(1e-5, UNIT_ROUNDOFF[dtype] / 4);

function needsRotation(check: (parts: string[], scene: Scene, rotation: Rotation) => string | undefined): Check {
  return (parts, scene) => {
    const { rotation } = scene.truth;
    return rotation ? check(parts, scene, rotation) : 'this y is no rotation of pairs';
  };
}

/** Every head row that the kernel rotated as it does. */
function* rowsOf({ call, truth }: Pick<Scene, 'call' | 'truth'>): Generator<RowAt> {
  for (let batch = 0; batch < call.batch; batch++)
    for (let seq = 0; seq < call.seq; seq++)
      for (let head = 0; head < call.heads; head++) {
        const at = { batch, seq, head };
        if (!truth.except?.(at)) yield at;
      }
}

const headOf = ({ call }: Scene, { batch, seq, head }: RowAt): number => call.at(batch, seq, head);

/** The largest angle of a pair, in radians. */
function turns(scene: Scene, rotation: Rotation, j: number): number {
  const reach = Math.max(
    ...[...rowsOf(scene)].map((at) => Math.abs(rotation.position(scene.call.position(at.batch, at.seq), at))),
  );
  return Math.abs(rotation.frequency[j]!) * reach;
}

/** The angle that a diagnosis may not see: with sines that are off, as it says itself, a larger one. */
const unseen = ({ dtype, shown }: Scene): number =>
  64 * Math.max(UNIT_ROUNDOFF[dtype], /cos and sin off/.test(shown.get('y') ?? '') ? 2 ** -21 : 0);

/** Whether a row shows that a pair turns: a pair of zeros does not, and whole turns are none. */
function isSeen(scene: Scene, { pairs, frequency, position, axisOfPair }: Rotation, j: number): boolean {
  const [i0, i1] = pairs[j]!.read;
  return [...rowsOf(scene)].some((at) => {
    const x = normedInput({ ...scene.call, x: inputRow(scene, at) });
    const angle = position(scene.call.position(at.batch, at.seq, axisOfPair?.[j] ?? 0), at) * frequency[j]!;
    const turned = Math.abs(angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI)));
    return turned > unseen(scene) && (x[i0] !== 0 || x[i1] !== 0);
  });
}

// "What y shows"

/** The claims about dimensions. */
const DIMENSIONS =
  /^(.*?) (rotate too little to measure, or not at all|rotate|are scaled, and rotate too little to measure or not at all|are unchanged|hold 0|hold no finite number)$/;

const dimensions = needsRotation(([text], scene, rotation) => {
  const turning = new Set(
    rotation.pairs.flatMap(({ read, write }, j) => (rotation.frequency[j] === 0 ? [] : [...read, ...write])),
  );
  for (const part of text!.split('; ')) {
    const [, ranges, kind] = DIMENSIONS.exec(part) ?? [];
    if (ranges === undefined) return `"${part}" is not understood`;
    if (ranges === '' || ranges === 'none') continue;
    for (const i of listed(ranges)) {
      if (kind === 'rotate' && !turning.has(i)) return `dimension ${i} does not rotate`;
      if (kind === 'rotate') continue;
      if (kind!.includes('too little')) {
        const pair = rotation.pairs.findIndex(({ write }) => write.includes(i));
        if (pair >= 0 && isSeen(scene, rotation, pair)) return `dimension ${i} rotates`;
        continue;
      }
      const fits = (y: number, x: number): boolean => {
        if (kind === 'hold 0') return y === 0;
        if (kind === 'hold no finite number') return !Number.isFinite(y);
        const { gain } = rotation;
        const [low, high] = kind === 'are unchanged' ? [1, 1] : typeof gain === 'number' ? [gain, gain] : gain;
        const noise = 8 * UNIT_ROUNDOFF[scene.dtype];
        return y / x >= low - noise - noise / Math.abs(x) && y / x <= high + noise + noise / Math.abs(x);
      };
      const off = [...rowsOf(scene)].some((at) => {
        const n = headOf(scene, at) + i;
        return !fits(scene.call.y[n]!, scene.call.x[n]!);
      });
      if (off) return `dimension ${i}: not so`;
    }
  }
  return undefined;
});

const pairing = needsRotation(([name, read, write, distance], _scene, rotation) => {
  const [r0, r1] = listed(read!);
  const [w0, w1] = write === undefined ? [r0, r1] : listed(write);
  if (!rotation.pairs.some(({ read: [a, b], write: [c, d] }) => a === r0 && b === r1 && c === w0 && d === w1))
    return `the kernel does not rotate (${read})`;
  if (distance !== undefined && Number(distance) !== r1! - r0!) return 'another distance';
  const interleaved = rotation.pairs.every(({ read: [a, b] }) => b === a + 1);
  if ((name === 'interleaved' || name === 'interleaved-to-half') !== interleaved) return 'another pairing';
  return undefined;
});

const signs = (rotation: Rotation): number[] => [
  ...new Set(rotation.frequency.filter((f) => f !== 0).map((f) => Math.sign(f))),
];

const direction = needsRotation(([text], _scene, rotation) => {
  const [first, second] = signs(rotation);
  const parts = /^pairs (.*) forward, pairs (.*) backward$/.exec(text!);
  if (parts) {
    const bad = parts
      .slice(1)
      .findIndex((ranges, n) => listed(ranges).some((j) => Math.sign(rotation.frequency[j]!) !== 1 - 2 * n));
    return bad < 0 ? undefined : 'not these';
  }
  const want = second !== undefined ? 'some pairs forward, some backward' : first === 1 ? 'forward' : 'backward';
  return text === want ? undefined : `it rotates ${want}`;
});

/** The frequencies that the rows "base" and "scaling" describe, one list for each reading. */
function saidFrequencies(
  base: string,
  scaling: string,
  count: number,
  restart = count,
): { frequency: number[]; error: number[] }[] {
  const readings = [
    ...base.matchAll(new RegExp(`${NUMBER} if exponents are over (\\d+) \\(± ${NUMBER} relative\\)`, 'g')),
  ];
  return readings.map(([, b, over, error]) => {
    const frequency = Array.from({ length: count }, (_what, j) => Number(b) ** ((-2 * (j % restart)) / Number(over)));
    return {
      frequency: frequency.map((f, j) => scaledBy(scaling, f, j)),
      error: frequency.map((_f, j) => ((2 * j) / Number(over)) * 4 * Number(error)),
    };
  });
}

function scaledBy(scaling: string, f: number, j: number): number {
  const faster = new RegExp(`^none: every frequency(?:, or the position,)? is ${NUMBER} times that of this base$`).exec(
    scaling,
  );
  if (faster) return f * Number(faster[1]);
  const linear = new RegExp(
    `^linear, factor ${NUMBER}${BOUND}(?:, or the position is divided by it|: frequencies × .*)?$`,
  ).exec(scaling);
  if (linear) return f / Number(linear[1]);
  const llama3 = new RegExp(
    `^llama3, factor ${NUMBER}${BOUND}: wavelengths from ${NUMBER} are divided, those up to ${NUMBER} kept`,
  ).exec(scaling);
  if (llama3) {
    const [factor, from, upTo] = llama3.slice(1).map(Number) as [number, number, number];
    const wave = (2 * Math.PI) / f;
    const kept = Math.min(1, Math.max(0, (from / wave - 1) / (from / upTo - 1)));
    return ((1 - kept) * f) / factor + kept * f;
  }
  const yarn = new RegExp(`^YaRN, factor ${NUMBER}${BOUND}, ramp from pair ${NUMBER} to ${NUMBER}`).exec(scaling);
  if (yarn) {
    const [factor, low, high] = yarn.slice(1).map(Number) as [number, number, number];
    const mix = Math.min(1, Math.max(0, (j - low) / Math.max(0.001, high - low)));
    return (f / factor) * mix + f * (1 - mix);
  }
  return f;
}

/** The frequency of pair j by a formula in words. */
function formulaOf(words: string, { asked }: Scene): ((j: number) => number) | undefined {
  const minus = /^−\((.*)\)$/.exec(words);
  if (minus) {
    const inner = formulaOf(minus[1]!, { asked } as Scene);
    return inner && ((j) => -inner(j));
  }
  const { frequency } = asked;
  // Phi-3 is the one model of the strangers with LongRoPE.
  const factors = { short: PHI3_SHORT, long: PHI3_LONG }[/^LongRoPE’s with its (\w+) factors$/.exec(words)?.[1] ?? ''];
  if (factors) return (j) => 10000 ** (-j / factors.length) / factors[j]!;
  if (words === 'the expected frequency of pair ⌊j/2⌋') return (j) => frequency[j >> 1]!;
  if (words === '1 / the expected frequency') return (j) => 1 / frequency[j]!;
  if (words === 'j + 1') return (j) => j + 1;
  const over = /^\(j \+ 1\)\/(\d+)$/.exec(words);
  if (over) return (j) => (j + 1) / Number(over[1]);
  const falling = /^1 − j\/(\d+)$/.exec(words);
  if (falling) return (j) => 1 - j / Number(falling[1]);
  const spaced = /^linspace\(1, (?:(0)|1\/(\d+)), (\d+)\)$/.exec(words);
  if (spaced) return (j) => 1 - (j * (1 - (spaced[1] ? 0 : 1 / Number(spaced[2])))) / (Number(spaced[3]) - 1);
  const product = /^(?:(.*) × )?(?:(the expected frequency)|([\d.e+]+)\^\(([+−])2j\/(\d+)\))$/.exec(words);
  const factor = factorOf(product?.[1]);
  if (!product || factor === undefined) return undefined;
  if (product[2]) return (j) => factor * frequency[j]!;
  const sign = product[4] === '+' ? 1 : -1;
  return (j) => factor * Number(product[3]) ** ((sign * 2 * j) / Number(product[5]));
}

/** `2π`, `180/π`, `1/2π`, … */
function factorOf(words: string | undefined): number | undefined {
  if (words === undefined) return 1;
  const value = (one: string): number => (/π/.test(one) ? Number(one.replace('π', '') || 1) * Math.PI : Number(one));
  const [above, below = '1'] = words.replace(/[()]/g, '').split('/');
  const factor = value(above!) / value(below);
  return Number.isFinite(factor) ? factor : undefined;
}

/** Whether one of the formulas gives the kernel's frequencies. */
function formulasAre(formulas: readonly string[], scene: Scene, rotation: Rotation): string | undefined {
  const why = formulas.map((words) => {
    const of = formulaOf(words, scene);
    if (!of) return `"${words}" is not understood`;
    const bad = rotation.frequency.findIndex((f, j) => !near(of(j), f, 1e-3 + loose(rotation)));
    return bad < 0 ? undefined : `pair ${bad} turns by ${rotation.frequency[bad]}, not by ${of(bad)}`;
  });
  return why.includes(undefined) ? undefined : why[0];
}

/** The kernel's position over the one that was given, where all tokens have one. */
function positionFactor(scene: Scene, rotation: Rotation): number {
  const [at] = rowsOf(scene);
  const given = scene.call.position(at!.batch, at!.seq);
  return rotation.position(given, at!) / given;
}

const base = needsRotation(([text], scene, rotation) => {
  const scaled = scene.shown.get('scaling') ?? 'none';
  // Pairs are counted from the first that is shown, and one position shows only its product with the frequencies.
  const [, at] = /^[\w-]+: \((\d+),/.exec(scene.shown.get('pairing') ?? '') ?? [];
  const first = Math.max(
    0,
    rotation.pairs.findIndex(({ read }) => read[0] === Number(at)),
  );
  const moved = /or the position/.test(scaled) ? positionFactor(scene, rotation) : 1;
  const size = rotation.frequency.slice(first).map((f) => Math.abs(f * moved));
  const formulas = /^none of the usual form: frequencies are (.*)$/.exec(text!);
  if (formulas) return formulasAre(formulas[1]!.split(' or '), scene, rotation);
  const rising = new RegExp(`^none of the usual form: each frequency is ${NUMBER} times that of the pair before$`);
  const times = rising.exec(text!)?.[1];
  if (times !== undefined)
    return size.slice(1).every((f, j) => near(f / size[j]!, Number(times), 1e-3)) ? undefined : 'it is not';
  const none = new RegExp(`^no one base was found: frequencies from ${NUMBER} to ${NUMBER} radians a position$`).exec(
    text!,
  );
  if (none) {
    const turning = size.filter((f) => f > 0);
    const steps = turning.slice(1).map((f, j) => Math.log(turning[j]! / f));
    if (loose(rotation) === 0 && steps.length > 1 && steps.every((step) => near(step, steps[0]!, 1e-6)))
      return 'its frequencies have one base';
    const [high, low] = none.slice(1).map(Number) as [number, number];
    const off = 1.02 + loose(rotation);
    if (high > off * Math.max(...turning) || low < Math.min(...turning) / off)
      return 'frequencies that it does not have';
    return undefined;
  }
  if (scene.call.axes > 1 && !/exponents/.test(text!)) return 'not understood';
  // Pairs that are said to be too slow to tell are not spoken of.
  const spoken = Number(
    /^none is seen up to pair (\d+);/.exec(scaled)?.[1] ?? (/^unknown/.test(scaled) ? 1 : Infinity),
  );
  // A vision tower starts again at each section.
  const restart = scene.call.spec.axes?.rule === 'vision' ? size.length / 2 : size.length;
  const readings = saidFrequencies(text!, scaled, size.length, restart);
  if (readings.length === 0) return `"${text}" is not understood`;
  const again = restart < size.length ? saidFrequencies(text!, scaled, size.length) : [];
  for (const [n, { frequency: restarted, error }] of readings.entries()) {
    const plain = again[n]?.frequency;
    const frequency = plain && near(plain[restart]!, size[restart]!, 0.01) ? plain : restarted;
    const bad = size.findIndex(
      (f, j) => f > 0 && j <= spoken && !near(frequency[j]!, f, error[j]! + 2e-3 + loose(rotation)),
    );
    if (bad >= 0) return `pair ${bad} turns by ${size[bad]}, not by ${frequency[bad]}`;
  }
  return undefined;
});

const scaling = needsRotation(([text], scene, rotation) => {
  if (text === 'see base') return /usual form/.test(scene.shown.get('base') ?? '') ? undefined : 'nothing is there';
  if (/^none is seen up to pair \d+; slower pairs (turn too little to tell|are slowed, .*)$/.test(text!)) {
    const last = Number(/\d+/.exec(text!)![0]);
    const said = saidFrequencies(scene.shown.get('base') ?? '', 'none', last + 1);
    const off = said.some(({ frequency }) =>
      frequency.some((f, j) => !near(Math.abs(rotation.frequency[j]!), f, 0.02 + loose(rotation))),
    );
    return off ? 'those pairs are scaled' : undefined;
  }
  // Read together with the base.
  if (/^(none$|none: every|linear,|llama3,|YaRN,)/.test(text!)) return base([scene.shown.get('base') ?? ''], scene);
  return `"${text}" is not understood`;
});

/** The kernel's magnitude is within bounds that a sentence with 7 digits may round to. */
function gainIs(value: number, { dtype }: Scene, { gain }: Rotation, error = 0): boolean {
  const [low, high] = typeof gain === 'number' ? [gain, gain] : gain;
  return value + error >= low * (1 - share(dtype)) && value - error <= high * (1 + share(dtype));
}

const magnitude = needsRotation(([text], scene, rotation) => {
  const { gain } = rotation;
  if (/^not one for all pairs/.test(text!)) return typeof gain === 'number' ? 'all pairs have one' : undefined;
  const two = new RegExp(`^cos × ${NUMBER}, sin × ${NUMBER} \\(± ${NUMBER}\\)$`).exec(text!);
  if (two) return gainsAre(two.slice(1, 3), rotation, Number(two[3]));
  const parts = new RegExp(`^${NUMBER}(?: \\(± ${NUMBER}\\))?$`).exec(text!);
  if (!parts) return `"${text}" is not understood`;
  return gainIs(Number(parts[1]), scene, rotation, Number(parts[2] ?? 0)) ? undefined : `it is ${gain}`;
});

/** Whether cos and sin have these two factors, of which the truth does not say which is whose. */
function gainsAre(said: readonly string[], { gain }: Rotation, error: number): string | undefined {
  if (typeof gain === 'number') return 'cos and sin have one';
  const [low, high] = said.map(Number).sort((a, b) => a - b) as [number, number];
  return Math.abs(low - gain[0]) <= error + 1e-6 && Math.abs(high - gain[1]) <= error + 1e-6
    ? undefined
    : `it is ${gain}`;
}

/** The position that a sentence names, by a token's given one. */
function positionRule(words: string, { call }: Scene): ((p: number, at: RowAt) => number) | undefined {
  // Past the ends a kernel reads what is there: no claim about those tokens is checked.
  const of = (b: number, s: number): number => (s >= 0 && s < call.seq ? call.position(b, s) : Number.NaN);
  const flat = (n: number): number => call.positions[n] ?? Number.NaN;
  const rules: [RegExp, (n: number, by: number) => (p: number, at: RowAt) => number][] = [
    [/^the position as given$/, () => (p) => p],
    [/^the position ([+−] ?\d+)$/, (n) => (p) => p + n],
    [/^the position rounded to bf16$/, () => (p) => roundTo('bf16', p)],
    [/^the position rounded to f16$/, () => (p) => roundTo('f16', p)],
    [/^the position wrapped to int16$/, () => (p) => (p << 16) >> 16],
    [/^the position wrapped to uint16$/, () => (p) => p & 0xffff],
    [/^the position wrapped to int8$/, () => (p) => (p << 24) >> 24],
    [/^the position wrapped to uint8$/, () => (p) => p & 0xff],
    [
      /^the index of the token on the sequence axis$/,
      () =>
        (_p, { seq }) =>
          seq,
    ],
    [
      /^the index of the token on the sequence axis \+ (\d+)$/,
      (from) =>
        (_p, { seq }) =>
          seq + from,
    ],
    [
      /^the index of the token counted on through the batch$/,
      () =>
        (_p, { batch, seq }) =>
          batch * call.seq + seq,
    ],
    [
      /^the index of the batch$/,
      () =>
        (_p, { batch }) =>
          batch,
    ],
    [
      /^the index of the head$/,
      () =>
        (_p, { head }) =>
          head,
    ],
    [
      /^the position \+ the index of the head$/,
      () =>
        (p, { head }) =>
          p + head,
    ],
    [
      /^the position \+ the index of the batch$/,
      () =>
        (p, { batch }) =>
          p + batch,
    ],
    [
      /^the index of the row, heads counted as tokens$/,
      () =>
        (_p, { batch, seq, head }) =>
          (batch * call.seq + seq) * call.heads + head,
    ],
    [
      /^the position \+ the index of the batch × the length of the sequence$/,
      () =>
        (p, { batch }) =>
          p + batch * call.seq,
    ],
    [
      /^the position of the first token of the sequence$/,
      () =>
        (_p, { batch }) =>
          of(batch, 0),
    ],
    [
      /^the position of the last token of the sequence$/,
      () =>
        (_p, { batch }) =>
          of(batch, call.seq - 1),
    ],
    [
      /^the largest position of the sequence$/,
      () =>
        (_p, { batch }) =>
          Math.max(...Array.from({ length: call.seq }, (_what, s) => of(batch, s))),
    ],
    [
      /^the position of the next token$/,
      () =>
        (_p, { batch, seq }) =>
          of(batch, seq + 1),
    ],
    [
      /^the position of the token before$/,
      () =>
        (_p, { batch, seq }) =>
          of(batch, seq - 1),
    ],
    [
      /^the positions of the sequence in reverse order$/,
      () =>
        (_p, { batch, seq }) =>
          of(batch, call.seq - 1 - seq),
    ],
    [
      /^the position of the same token in batch 0$/,
      () =>
        (_p, { seq }) =>
          of(0, seq),
    ],
    [
      /^the position of the same token in the next batch$/,
      () =>
        (_p, { batch, seq }) =>
          of((batch + 1) % call.batch, seq),
    ],
    [
      /^\[batch, seq\] positions read as \[seq, batch\]$/,
      () =>
        (_p, { batch, seq }) =>
          flat(seq * call.batch + batch),
    ],
    [
      /^int64 positions read as int32: every second one is the high half of the one before$/,
      () =>
        (_p, { batch, seq }) => {
          const n = batch * call.seq + seq;
          const p = flat(Math.floor(n / 2));
          return n % 2 === 0 ? p : Math.floor(p / 2 ** 32);
        },
    ],
    [
      /^the sum of the positions of the same token in all batches$/,
      () =>
        (_p, { seq }) =>
          Array.from({ length: call.batch }, (_, b) => flat(b * call.seq + seq)).reduce((sum, p) => sum + p, 0),
    ],
    [/^the square of the position$/, () => (p) => p * p],
    [/^the position ÷ (\d+), rounded down$/, (n) => (p) => Math.floor(p / n)],
    [/^([\d.]+) times the position(?: ([+−] \d+))?$/, (n, by) => (p) => n * p + by],
    [/^the position, but at most (\d+)$/, (n) => (p) => Math.min(p, n)],
    [/^the position modulo (\d+)$/, (n) => (p) => ((p % n) + n) % n],
    [/^(-?\d+) for every token$/, (n) => () => n],
  ];
  const shifts = /^the position ((?:as given|[+−] \d+) in batch \d+(?:, |$))+$/.test(words)
    ? Array.from(words.matchAll(/(as given|[+−] \d+) in batch (\d+)/g), ([, by, batch]) => [
        Number(batch),
        Number(by!.replace('as given', '0').replace('−', '-').replace(' ', '')),
      ])
    : undefined;
  if (shifts) {
    const by = new Map(shifts as [number, number][]);
    return (p, { batch }) => p + (by.get(batch) ?? Number.NaN);
  }
  for (const [of, make] of rules) {
    const parts = of.exec(words);
    const numbers = [1, 2].map((n) => Number((parts?.[n] ?? '0').replace('−', '-').replace(/ /g, ''))) as [
      number,
      number,
    ];
    if (parts) return make(...numbers);
  }
  return undefined;
}

/** The same rotation by the expected frequencies, if all frequencies have one factor. */
function byPositions<S extends Pick<Scene, 'truth' | 'asked'>>(scene: S): S {
  const { rotation } = scene.truth;
  if (!rotation) return scene;
  const position: Rotation['position'] = (given, at) => asIfAt(scene, rotation, given, at);
  return { ...scene, truth: { ...scene.truth, rotation: { ...rotation, frequency: scene.asked.frequency, position } } };
}

/** The position by which a row rotates; if all frequencies have one factor, by the expected frequencies. */
function asIfAt({ asked }: Pick<Scene, 'asked'>, rotation: Rotation, given: number, at: RowAt): number {
  const factor = rotation.frequency[0]! / asked.frequency[0]!;
  const isOne = rotation.frequency.every((f, j) => near(f, factor * asked.frequency[j]!, 1e-6));
  return (isOne ? factor : 1) * rotation.position(given, at);
}

/** Whether every alternative that is named gives the positions of this input. */
function positionsAre(alternatives: readonly string[], scene: Scene, rotation: Rotation): string | undefined {
  for (const words of alternatives) {
    const rule = positionRule(words.replace(/^on axis \d, /, ''), scene);
    if (!rule) return `"${words}" is not understood`;
    for (const at of rowsOf(scene)) {
      const given = scene.call.position(at.batch, at.seq);
      const [said, real] = [rule(given, at), rotation.position(given, at)];
      if (!Number.isNaN(said) && !near(said, real, 1e-6 + loose(rotation)))
        return `position ${given} becomes ${real}, not ${said}`;
    }
  }
  return undefined;
}

const positions = needsRotation(([text], scene, rotation) => {
  if (text === 'unknown: see scaling')
    return /or the position/.test(scene.shown.get('scaling')!) ? undefined : 'it is not said';
  if (text === 'no rule found') return asGiven(scene, rotation) ? 'they are as given' : undefined;
  return positionsAre(text!.split(' | '), scene, rotation);
});

function asGiven(scene: Scene, rotation: Rotation): boolean {
  if (loose(rotation) > 0) return false; // its angles are not proportional to anything
  return [...rowsOf(scene)].every((at) => {
    const given = scene.call.position(at.batch, at.seq);
    return rotation.position(given, at) === given;
  });
}

/** Whether heads of a token turn by different positions. */
function headsDiffer(scene: Scene, rotation: Rotation): boolean {
  return [...rowsOf(scene)].some((at) => {
    const given = scene.call.position(at.batch, at.seq);
    return rotation.position(given, at) !== rotation.position(given, { ...at, head: 0 });
  });
}

/** Whether the kernel leaves out some heads of a token, but not all. */
function someHeadsOnly({ call, truth }: Scene): boolean {
  const out = (batch: number, seq: number): number =>
    Array.from({ length: call.heads }, (_what, head) => truth.except?.({ batch, seq, head }) ?? false).filter(Boolean)
      .length;
  return Array.from({ length: call.batch * call.seq }, (_what, n) => out(Math.floor(n / call.seq), n % call.seq)).some(
    (count) => count > 0 && count < call.heads,
  );
}

const heads = needsRotation(([text], scene, rotation) => {
  if (text === 'there is only one') return scene.call.heads === 1 ? undefined : 'there are several';
  if (/^unknown: one of \d+ was measured$/.test(text!)) return undefined;
  if (/^(all|the \d+ that were measured, of \d+,) rotate alike$/.test(text!))
    return headsDiffer(scene, rotation) || (!scene.apart && someHeadsOnly(scene)) ? 'they do not' : undefined;
  return headsDiffer(scene, rotation) || someHeadsOnly(scene) ? undefined : 'they rotate alike';
});

const axes = needsRotation(([text], scene, rotation) => {
  const want = rotation.axisOfPair;
  if (!want) return 'there is one axis';
  const byPair = /^by pair ([thwe·]+)$/.exec(text!);
  if (byPair) {
    const bad = [...byPair[1]!].findIndex((name, j) => name !== '·' && 'thwe'.indexOf(name) !== want[j]);
    return bad >= 0 ? `pair ${bad} is of axis ${want[bad]}` : undefined;
  }
  for (const one of text!.split(' | ')) {
    const [, rule, sizes] = /^(sections|interleaved|interleaved-ggml|vision) ([\d+]+)$/.exec(one) ?? [];
    if (!rule) return `"${one}" is not understood`;
    const sections = sizes!.split('+').map(Number);
    const own = rotationOf({ ...scene.call.spec, axes: { rule: rule as 'sections', sections } }).axisOfPair!;
    const bad = Array.from(own).findIndex((a, j) => a !== want[j]);
    if (bad >= 0) return `pair ${bad} is of axis ${want[bad]}`;
  }
  return undefined;
});

const explained: Check = ([text], { truth }) =>
  /^is explained within/.test(text!) && !truth.rotation ? 'this y is no rotation of pairs' : undefined;

/** A row of "What y shows": what is not known may always be said to be unknown. */
function shownRow(name: string, check: Check): Form {
  const unknown: Check = (parts, scene) => (/^unknown\b/.test(parts[0]!) ? undefined : check(parts, scene));
  return { of: new RegExp(`^${name.padEnd(11)} (.*)$`), check: unknown };
}

const pairingRow: Check = ([text], scene) => {
  const why = text!.split(/, or (?=[\w-]+: )/).map((one) => {
    const parts = /^([\w-]+): \((\d+, \d+)\)(?: written to \((\d+, \d+)\))?, …(?: (\d+) apart)?$/.exec(one);
    return parts ? pairing(parts.slice(1), scene) : `"${one}" is not understood`;
  });
  return why.includes(undefined) ? undefined : why[0]; // of several, one is true
};

/** Whether the rows that are spoken of hold x times a factor. */
function isTimesX(scene: Scene, times: number, error: number): string | undefined {
  const { x, y, headDim } = scene.call;
  const isSo = (at: RowAt): boolean => {
    const from = headOf(scene, at);
    return Array.from({ length: headDim }, (_, i) => from + i).every((n) => near(y[n]!, times * x[n]!, error));
  };
  return [...rowsOf(scene)].every(isSo) ? undefined : 'it is not';
}

const REASONS: Form[] = [
  {
    of: /^[Yy] has values that are not finite\.$/,
    about: 'elements',
    check: (_parts, { call }) => (call.y.every(Number.isFinite) ? 'all are finite' : undefined),
  },
  {
    of: /^y is (0|NaN) everywhere: nothing wrote it .*, or .*\.$/,
    about: 'rows',
    check: ([value], { call }) => (call.y.every((v) => String(v + 0) === value) ? undefined : 'it is not'),
  },
  {
    of: new RegExp(`^y is x times ${NUMBER}: nothing was rotated\\.$`),
    about: 'rows',
    // The factor is said with 7 digits.
    check: ([times], scene) => isTimesX(scene, Number(times), 4 * UNIT_ROUNDOFF[scene.dtype] + 5e-7),
  },
  ...(['rows', 'positions'] as const).map(
    (about): Form => ({
      of: /^y is x: nothing was rotated\. The kernel did not run, all angles are 0, or x was dumped after it ran in place\.$/,
      about,
      check: (_parts, scene) => isTimesX(scene, 1, 0),
    }),
  ),
  {
    of: /^Pairs are mirrored, not only rotated: one member has the opposite sign, or the two are exchanged\.$/,
    about: 'direction',
    check: () => 'it does not mirror',
  },
  { of: /^no rotation of pairs was found in y\.$/, check: fine },
  {
    of: /^pairs rotate, but not by one frequency times one position\.$/,
    about: 'frequencies',
    check: needsRotation((_parts, _scene, rotation) => (loose(rotation) === 0 ? 'they do' : undefined)),
  },
];

const FINDINGS: Form[] = [
  shownRow('dimensions', dimensions),
  shownRow('pairing', pairingRow),
  shownRow('direction', direction),
  shownRow('base', base),
  shownRow('scaling', scaling),
  shownRow('magnitude', magnitude),
  shownRow('positions', positions),
  shownRow('axes', axes),
  shownRow('heads', heads),
  shownRow('y', explained),
  ...REASONS,
];

// "Different"

/** Whether pair j turns by the angle that was asked for, in every row. */
function hasExpectedAngles(scene: Scene, rotation: Rotation, j: number): boolean {
  const { call, asked } = scene;
  const off = [...rowsOf(scene)].map((at) => {
    const axis = rotation.axisOfPair?.[j] ?? 0;
    const real = rotation.position(call.position(at.batch, at.seq, axis), at) * rotation.frequency[j]!;
    const turn = real - call.position(at.batch, at.seq, asked.axisOfPair?.[j] ?? 0) * asked.frequency[j]!;
    return Math.abs(turn - 2 * Math.PI * Math.round(turn / (2 * Math.PI)));
  });
  return loose(rotation) === 0 && off.every((one) => one < 1e-9);
}

const frequencyWords: Check = ([text], scene) => {
  const { rotation } = scene.truth;
  if (!rotation) return 'this y is no rotation of pairs';
  const asked = scene.asked.frequency;
  for (const part of text!.replace(/\.$/, '').split('; ')) {
    const byPosition = /^[Tt]he angles? of .* (?:differs?|times)/.test(part)
      ? Math.abs(positionFactor(scene, rotation))
      : 1;
    const ratio = (j: number): number => (Math.abs(rotation.frequency[j] ?? 0) * byPosition) / asked[j]!;
    const times = new RegExp(
      `^[Tt]he (?:frequency|angle) of (every pair|pairs? (.*)) is ${NUMBER} times the expected one(?: \\(([^)]*)\\))?$`,
    ).exec(part);
    const differ = new RegExp(
      `^[Tt]he (?:frequenc(?:ies|y)|angles?) of pairs? (.*) differs?(?:, by (?:factors from|a factor of) ${NUMBER}(?: to ${NUMBER})?(?:, of pairs? (.*))?)?$`,
    ).exec(part);
    const still =
      /^[Pp]airs? (.*) do(?:es)? not rotate(?:, or by whole turns, or too little to measure|: y is x in dimensions [\d, -]+)$/.exec(
        part,
      );
    const more = /^[Aa]t least (\d+) more pairs? rotates? than expected$/.exec(part);
    const rising = new RegExp(`^[Tt]he frequency of each pair is ${NUMBER} times that of the pair before$`).exec(part);
    const moved =
      /^(?:[Tt]he pairs have the expected frequencies in (reverse) order|[Pp]air j has the expected frequency of pair j (mod|− j mod) (\d+)|[Ee]very pair has the expected frequency of pair 0)$/.exec(
        part,
      );
    const law = /^[Tt]he frequencies (are (?:not )?those of .*|follow no rule with one base)$/.exec(part);
    const aliased = /^[Tt]he angles of pairs? (.*) are not the expected ones$/.exec(part);
    if (times) {
      const pairs = times[2] === undefined ? asked.map((_f, j) => j) : listed(times[2]);
      const bad = pairs.find((j) => !near(ratio(j), Number(times[3]), 1e-3 + loose(rotation)));
      if (bad !== undefined) return `pair ${bad} differs by ${ratio(bad)}`;
      if (Math.abs(Number(times[3]) - 1) < 1e-7) return 'no difference';
      const factor = times[4] === undefined ? undefined : factorOf(times[4].replace(/ ?×$/, ''));
      if (times[4] !== undefined && (factor === undefined || !near(factor, Number(times[3]), 1e-4)))
        return `${times[4]}: not so`;
    } else if (differ) {
      const pairs = listed(differ[1]!);
      const same = pairs.find((j) => near(ratio(j), 1, 1e-7));
      if (same !== undefined && loose(rotation) === 0) return `pair ${same} has the expected frequency`;
      if (differ[2] === undefined) continue;
      const all = (differ[4] === undefined ? pairs : listed(differ[4])).map(ratio);
      const [low, high] = [Number(differ[2]), Number(differ[3] ?? differ[2])];
      const off = 1.02 + loose(rotation);
      if (low < Math.min(...all) / off || high > Math.max(...all) * off)
        return `factors are ${Math.min(...all)} to ${Math.max(...all)}`;
    } else if (aliased) {
      const same = listed(aliased[1]!).find((j) => hasExpectedAngles(scene, rotation, j));
      if (same !== undefined) return `pair ${same} has the expected angles`;
    } else if (part === 'these positions do not show how many whole turns they made') {
      // an honest gap
    } else if (still) {
      const bad = listed(still[1]!).find((j) => isSeen(scene, rotation, j));
      if (bad !== undefined) return `pair ${bad} rotates`;
    } else if (more) {
      if (rotation.frequency.filter((f) => f !== 0).length - asked.length < Number(more[1])) return 'not so many';
    } else if (rising) {
      const size = rotation.frequency.map(Math.abs);
      const bad = size.slice(1).findIndex((f, j) => !near(f / size[j]!, Number(rising[1]), 1e-3));
      if (bad >= 0) return `pair ${bad + 1} is not`;
    } else if (moved) {
      const from = (j: number): number => {
        if (moved[1]) return asked.length - 1 - j;
        if (!moved[2]) return 0;
        return moved[2] === 'mod' ? j % Number(moved[3]) : j - (j % Number(moved[3]));
      };
      const bad = asked.findIndex(
        (_f, j) => !near(Math.abs(rotation.frequency[j]!), asked[from(j)]!, 1e-3 + loose(rotation)),
      );
      if (bad >= 0) return `pair ${bad} has not`;
    } else if (law) {
      const why = lawIs(law[1]!, scene, rotation);
      if (why !== undefined) return why;
    } else return `"${part}" is not understood`;
  }
  return undefined;
};

function lawIs(words: string, scene: Scene, rotation: Rotation): string | undefined {
  const { spec } = scene.call;
  const size = rotation.frequency.map(Math.abs);
  if (/^(follow no rule with one base|are not those of one base)/.test(words)) {
    const steps = size.slice(1).map((f, j) => Math.log(size[j]! / f));
    return loose(rotation) === 0 && steps.length > 0 && steps.every((step) => near(step, steps[0]!, 1e-6))
      ? 'they have one base'
      : undefined;
  }
  const { groups } =
    new RegExp(
      `^are those of (?:the expected base, (?<own>${NUMBER}),|base (?<base>${NUMBER})(?: \\(± (?<error>${NUMBER}) %\\))?(?: instead of ${NUMBER}(?: \\(${NUMBER} by dynamic NTK\\))?)?)(?: with exponents over head_dim=(?<over>\\d+) instead of \\d+)?(?: without scaling| with (?<kind>\\w+) scaling(?<either>, or positions divided,)? by (?<factor>${NUMBER})(?: \\(± ${NUMBER} relative\\))?)?(?:, or of the expected base with exponents over \\d+(?: \\(j/\\d+\\))? instead of \\d+)?$`,
    ).exec(words) ?? {};
  if (!groups) return `"${words}" is not understood`;
  const value = Number(groups.own ?? groups.base);
  const over = Number(groups.over ?? spec.frequencyDim ?? spec.rotaryDim ?? spec.headDim);
  const { kind } = groups;
  const factor = Number(groups.factor);
  const moved = groups.either ? positionFactor(scene, rotation) : 1;
  const bad = size.findIndex((own, j) => {
    const f = own * moved;
    if (f === 0) return false;
    const plain = value ** ((-2 * j) / over);
    const off = 2e-3 + loose(rotation) + Number(groups.error ?? 0) / 100;
    if (kind === 'linear') return !near(f, plain / factor, off);
    if (kind !== undefined) return f > plain * (1 + off) || f < plain / factor / (1 + off);
    return !near(f, plain, off);
  });
  return bad >= 0 ? `pair ${bad} turns by ${size[bad]}` : undefined;
}

const DIMENSION_SENTENCES: [RegExp, Check][] = [
  [/^Dimensions (.*) hold 0 in every row\.$/, ([list], scene) => dimensions([`${list} hold 0`], scene)],
  [
    /^Dimensions (.*) hold no finite number in any row\.$/,
    ([list], scene) => dimensions([`${list} hold no finite number`], scene),
  ],
  [
    /^Dimensions (.*) rotate; only (\d+)-(\d+) should \(rotary_dim \d+\)\.$/,
    ([list, first, last], scene) => {
      const own = dimensions([`${list} rotate`], scene);
      const beyond = listed(list!).some((i) => i < Number(first) || i > Number(last));
      return own ?? (beyond ? undefined : 'it rotates no others');
    },
  ],
  [
    /^The first dimension that rotates is (\d+); expected is dimension \d+\.$/,
    needsRotation(([first], _scene, rotation) => {
      const turning = rotation.pairs.flatMap(({ read }, j) => (rotation.frequency[j] === 0 ? [] : [...read]));
      return Math.min(...turning) === Number(first) ? undefined : `it is ${Math.min(...turning)}`;
    }),
  ],
];

/** One sentence or several about dimensions. */
const dimensionLine: Check = ([text], scene) => {
  for (const sentence of text!.split(/(?<=\.) (?=[A-Z])/)) {
    const known = DIMENSION_SENTENCES.find(([of]) => of.test(sentence));
    if (!known) return `"${sentence}" is not understood`;
    const why = known[1](known[0].exec(sentence)!.slice(1), scene);
    if (why !== undefined) return why;
  }
  return undefined;
};

// Systematic errors of a kernel whose elements are each within their noise

const OFF = `${NUMBER} ± ${NUMBER}`;

/** The mean error of the store in last places: as it is, and away from 0. */
function storeError({ call, right, dtype }: Scene): { plain: number; outwards: number } {
  let [plain, outwards, count] = [0, 0, 0];
  for (const [n, value] of right.entries()) {
    if (call.y[n] === call.x[n] || Math.abs(value) < 2 ** -10) continue;
    const error = (call.y[n]! - value) / (2 * UNIT_ROUNDOFF[dtype] * 2 ** Math.floor(Math.log2(Math.abs(value))));
    plain += error;
    outwards += Math.sign(value) * error;
    count++;
  }
  return { plain: plain / count, outwards: outwards / count };
}

/** The factor between y and the right result in some pairs or one token: the mean of the pairs of each token. */
function meanFactor(scene: Scene, pairs: readonly number[] | undefined, token: number | undefined): number {
  const { call, right, asked } = scene;
  const cells = new Map<string, [above: number, below: number]>();
  for (const at of rowsOf(scene)) {
    const here = at.batch * call.seq + at.seq;
    if (token !== undefined && here !== token) continue;
    const from = headOf(scene, at);
    for (const [j, { write }] of asked.pairs.entries()) {
      if (pairs !== undefined && !pairs.includes(j)) continue;
      const cell = cells.get(`${here} ${j}`) ?? [0, 0];
      for (const i of write) {
        cell[0] += call.y[from + i]! * right[from + i]!;
        cell[1] += right[from + i]! ** 2;
      }
      cells.set(`${here} ${j}`, cell);
    }
  }
  const all = [...cells.values()].filter(([, below]) => below > 0);
  return all.reduce((sum, [above, below]) => sum + above / below, 0) / all.length;
}

/** `pairs 3-8`, `pair 4`, `token 5 of y` or `token 5 of batch 1`. */
function placeOf(words: string, { call }: Scene): { pairs?: number[]; token?: number } {
  const token = /^token (\d+) of (?:y|batch (\d+))$/.exec(words);
  if (!token) return { pairs: listed(words.replace(/^pairs? /, '')) };
  return { token: Number(token[2] ?? 0) * call.seq + Number(token[1]) };
}

/** Whether a factor of frequencies is one that these pairs have. */
function isRatio(value: number, error: number, pairs: readonly number[] | undefined, scene: Scene, rotation: Rotation) {
  const ratios = scene.asked.frequency
    .map((f, j) => rotation.frequency[j]! / f)
    .filter((_ratio, j) => pairs === undefined || pairs.includes(j));
  const slack = 1.5 * error + 1e-6 + loose(rotation);
  return value >= Math.min(...ratios) - slack && value <= Math.max(...ratios) + slack
    ? undefined
    : `factors are ${Math.min(...ratios)} to ${Math.max(...ratios)}`;
}

const MEASURED: (readonly [RegExp, readonly Aspect[], Check])[] = [
  [
    new RegExp(`^The magnitude is ${OFF}; expected is ${NUMBER}\\.$`),
    ['magnitude'],
    needsRotation(([value, error], scene, rotation) =>
      gainIs(Number(value), scene, rotation, Number(error)) ? undefined : `it is ${rotation.gain}`,
    ),
  ],
  [
    new RegExp(`^The base is ${OFF}; expected is ${NUMBER}\\.$`),
    ['frequencies'],
    needsRotation(([value, error], { call }, rotation) => {
      const said = frequenciesOf({ ...call.spec, base: Number(value) }).invFreq;
      const slack = (2 * Number(error)) / Number(value) + 1e-6 + loose(rotation);
      const bad = rotation.frequency.findIndex((f, j) => !near(said[j]!, f, slack));
      return bad < 0 ? undefined : `pair ${bad} turns by ${rotation.frequency[bad]}, not by ${said[bad]}`;
    }),
  ],
  [
    new RegExp(
      `^(?:Every frequency that shows is|Angles of many turns are) ${OFF} times the expected ones?(?:, as where [\\d.]+ is taken for 2π)?\\.$`,
    ),
    ['frequencies'],
    needsRotation(([value, error], scene, rotation) =>
      scene.asked.frequency
        .map((_f, j) => isRatio(Number(value), Number(error), [j], scene, rotation))
        .find((why) => why !== undefined),
    ),
  ],
  [
    new RegExp(`^Every position is off by ${OFF}\\.$`),
    ['positions'],
    needsRotation(([value, error], scene, rotation) => {
      const bad = [...rowsOf(scene)].find((at) => {
        const given = scene.call.position(at.batch, at.seq);
        const slack = 1.5 * Number(error) + loose(rotation) * Math.abs(given);
        return Math.abs(rotation.position(given, at) - given - Number(value)) > slack;
      });
      return bad && `token ${bad.seq} is not`;
    }),
  ],
  [
    /^Every result is a little closer to 0 than the rotation: the store truncates(?: \(mean .* of a last place\))?\.$/,
    ['precision'],
    (_parts, scene) => (storeError(scene).outwards < -0.25 ? undefined : 'it is not'),
  ],
  [
    /^Every result is rounded (down|up) instead of to nearest(?: \(mean .* of a last place\))?\.$/,
    ['precision'],
    ([way], scene) => (storeError(scene).plain * (way === 'down' ? -1 : 1) > 0.25 ? undefined : 'it is not'),
  ],
  [
    /^y holds only values of (bf16|f16), although its dtype is (\w+): the results went through \1\.$/,
    ['precision'],
    ([narrow], { call }) =>
      call.y.every((value) => roundTo(narrow as FloatDtype, value) === value) ? undefined : 'it holds others',
  ],
  [
    new RegExp(`^The results are off by ${OFF} of a last place, in the mean\\.$`),
    ['precision'],
    ([value, error], scene) => {
      const { plain, outwards } = storeError(scene);
      const off = Math.min(...[plain, outwards].map((mean) => Math.abs(mean - Number(value))));
      return off <= Number(error) + 0.1 ? undefined : `it is ${outwards} outwards, ${plain} upwards`;
    },
  ],
  [
    new RegExp(`^The results of (.*) are ${OFF} times as large as expected, in the mean\\.$`),
    ['magnitude', 'precision'],
    ([where, value, error], scene) => {
      const { pairs, token } = placeOf(where!, scene);
      const real = meanFactor(scene, pairs, token);
      return Math.abs(real - Number(value)) <= 2 * Number(error) + 1e-6 ? undefined : `${real} times`;
    },
  ],
  [
    new RegExp(`^The angles of (.*) are ${OFF} times the expected ones, in the mean\\.$`),
    ['frequencies', 'positions', 'precision'],
    needsRotation(([where, value, error], scene, rotation) => {
      if (!asGiven(scene, rotation)) return undefined; // then a mean of angles is no frequency's
      return isRatio(Number(value), Number(error), placeOf(where!, scene).pairs, scene, rotation);
    }),
  ],
  [
    new RegExp(`^The angles differ as if the base were ${OFF} times the expected one\\.$`),
    ['frequencies', 'precision'],
    (_parts, scene) => (isRight(scene) ? 'they do not differ' : undefined),
  ],
  [
    new RegExp(
      `^The angles of .* (?:are off by ${OFF} radians, in the mean|differ as if positions were off by ${OFF})\\.$`,
    ),
    ['frequencies', 'positions', 'precision'],
    (_parts, scene) => (isRight(scene) ? 'they are not off' : undefined),
  ],
  ...MEMBER_LINES,
  ...PAIR_LINES,
];

/** Faults before, after or beside the rotation. */
const BESIDE: Form[] = [
  {
    of: new RegExp(
      `^Dimensions ([\\d, -]+)(?:, which should be copied,)? (?:are (0)(?: in every row)?|are not (finite) in every row|hold x\\[(\\d+)-\\d+\\]|are x × ${NUMBER}|are (x), not rotated, in every row|hold values whose origin is not known)\\.$`,
    ),
    about: 'dimensions',
    check: ([list, zero, finite, from, factor, copied], scene) => {
      const dims = listed(list!);
      const want = (x: Float64Array, i: number): number | undefined => {
        if (zero !== undefined) return 0;
        if (from !== undefined) return x[Number(from) + i - dims[0]!]!;
        if (copied !== undefined) return x[i]!;
        return factor === undefined ? undefined : Number(factor) * x[i]!;
      };
      const bad = everyRowOf(scene).some((at) =>
        dims.some((i) => {
          const y = scene.call.y[headOf(scene, at) + i]!;
          const value = want(inputRow(scene, at), i);
          if (finite !== undefined) return Number.isFinite(y);
          return value !== undefined && !(Math.abs(y - value) <= 0.01 * Math.abs(value));
        }),
      );
      return bad ? 'they hold something else' : undefined;
    },
  },
  {
    of: /^Dimensions ([\d, -]+), which should be copied, rotate: pairs? (.*?)(?:, …)? radians a position\.$/,
    about: 'dimensions',
    check: ([list, pairs], scene) => {
      const told = [...pairs!.matchAll(/\((\d+), (\d+)\) by (\S+?)(?:,|$)/g)].map((one) => one.slice(1).map(Number));
      if (told.length === 0) return `"${pairs}" is not understood`;
      for (const at of everyRowOf(scene)) {
        const [x, y] = [inputRow(scene, at), scene.call.y.subarray(headOf(scene, at))];
        for (const [i, k, frequency] of told as [number, number, number][]) {
          if (!listed(list!).includes(i)) return `${i} is not in ${list}`;
          const angle = frequency * scene.call.position(at.batch, at.seq);
          const [made0, made1] = [
            x[i]! * Math.cos(angle) - x[k]! * Math.sin(angle),
            x[i]! * Math.sin(angle) + x[k]! * Math.cos(angle),
          ];
          const slack = (0.02 + 1e-5 * Math.abs(angle)) * Math.hypot(x[i]!, x[k]!); // the frequency is said in seven digits
          if (!(Math.hypot(y[i]! - made0, y[k]! - made1) <= slack)) return `(${i}, ${k}) does not rotate so`;
        }
      }
      return undefined;
    },
  },
  {
    of: /^The norm’s weight is applied after the rotation, not before it\.$/,
    about: 'input',
    check: (_parts, scene) => keepsLengths(scene),
  },
  {
    of: /^x is added after the rotation, as a residual is\. Without it:$/,
    about: 'elements',
    check: (_parts, { stranger }) => (/residual/i.test(stranger.about ?? stranger.id) ? undefined : 'it is not'),
  },
  {
    of: /^The norm subtracts the mean of each head first, as LayerNorm does\.$/,
    about: 'input',
    check: (_parts, { stranger }) =>
      /mean|LayerNorm/i.test(stranger.about ?? stranger.id) ? undefined : 'it does not',
  },
  {
    of: /^The norm takes the squares of each half of a head alone, divided by (?:half of )?head_dim\.$/,
    about: 'input',
    check: (_parts, { stranger }) => (/half/i.test(stranger.about ?? stranger.id) ? undefined : 'it does not'),
  },
  {
    of: /^(?:A constant of each head and dimension( of a batch)? is added after the rotation, as a bias is|From each head and dimension, its (mean) over the tokens( of a batch)? is taken away after the rotation)\.$/,
    about: 'input',
    check: ([inBatch, mean, meanInBatch], scene) => {
      // The rest of each row of a head is the same.
      const left = new Map<string, { rest: number; values: number[] }>();
      const bad = everyRowOf(scene).some((at) => {
        const [value] = rightRow(scene, at) as unknown as [number];
        const rest = scene.call.y[headOf(scene, at)]! - value;
        const key = `${at.head} ${inBatch || meanInBatch ? at.batch : ''}`;
        const first = left.get(key) ?? { rest, values: [] };
        left.set(key, first);
        first.values.push(value);
        return Math.abs(rest - first.rest) > 0.05;
      });
      if (bad) return 'it is not one';
      const isMean = [...left.values()].every(({ rest, values }) => {
        return Math.abs(rest + values.reduce((sum, value) => sum + value, 0) / values.length) < 0.05;
      });
      return mean && !isMean ? 'it is not the mean' : undefined;
    },
  },
  {
    of: /^(?:The two members of each pair are exchanged when they are written|The (first|second) member of each pair has the opposite sign)\.$/,
    about: 'pairing',
    check: ([sign], { stranger }) =>
      (sign === undefined ? /exchanged/ : /sign|mirror/i).test(`${stranger.about} ${stranger.id}`)
        ? undefined
        : 'they are not',
  },
  {
    of: /^(?:Two heads are rotated as one|Each head is rotated as two) of \d+ dimensions\.$/,
    about: 'heads',
    check: (_parts, { stranger }) => (/head/i.test(stranger.about ?? stranger.id) ? undefined : 'they are not'),
  },
];

/** Whether pairs of y, divided by the norm's weight, have the lengths of those of x after the norm without it. */
function keepsLengths(scene: Scene): string | undefined {
  const { call, asked } = scene;
  const { weight, eps } = call.norm!;
  const plain = { weight: new Float64Array(call.headDim).fill(1), eps };
  const [at] = rowsOf(scene);
  const x = normedInput({ ...call, x: inputRow(scene, at!), norm: plain });
  const y = (i: number): number => call.y[headOf(scene, at!) + i]! / weight[i]!;
  const bad = asked.pairs.some(({ read, write }) => {
    const [before, after] = [Math.hypot(x[read[0]]!, x[read[1]]!), Math.hypot(y(write[0]), y(write[1]))];
    return Math.abs(after - before) > 0.03 * before + 0.03;
  });
  return bad ? 'it is not' : undefined;
}

const DIFFERENT: Form[] = [
  { of: /^Uses .* instead of .*\.$/, check: fine }, // of a part, where a name is not judged
  {
    // A difference of some rows only.
    of: /^((?:Heads?|Batch(?:es)?|Tokens?|Every token|\d+ (?:rows|elements)) ?[\d, …a-z();-]*): (.*\.)$/,
    check: ([where, words], scene) => {
      const bug = /^what the known bug (.*) gives\.$/.exec(words!)?.[1];
      if (bug) return wrongRows([where!, `what the known bug ${bug} gives`], scene);
      if (words === 'no explanation was found.') return undefined;
      const scaled =
        /^(the right result times a factor .*?)(?:, to within [\d.]+ % of the largest \|x\| of a head)?\.$/.exec(
          words!,
        )?.[1];
      if (scaled) return wrongRows([where!, scaled], scene);
      const held = words!.slice(0, -1);
      const isHeld = heldValues(held, scene) || held === UNKNOWN || HOLDS.some(([of]) => of.test(held));
      if (isHeld) return wrongRows([where!, held], scene);
      if (words === 'as expected.') return rightRows([where!], scene);
      if (words === 'x, not rotated.') return wrongRows([where!, 'x, not rotated'], scene);
      return words!
        .split(/(?<=\.) (?=[A-Zc])/)
        .map((one) => judgeLine(one, DIFFERENT, ofRows(scene, where, undefined)).untrue)
        .find((why) => why !== undefined);
    },
  },
  {
    of: /^Beside that, y is what the known bug (.*) gives\.$/,
    check: ([bug], scene) => wrongRows(['Every token', `what the known bug ${bug} gives`], scene),
  },
  {
    of: new RegExp(
      `^y is near the expected values: errors are at most ${NUMBER} % of the largest \\|x\\| of a head\\.$`,
    ),
    about: 'precision',
    check: ([percent], scene) => {
      const worst = Math.max(...[...rowsOf(scene)].map((at) => errorShare(rightRow(scene, at), scene, at)));
      return worst <= (1.1 * Number(percent)) / 100 ? undefined : `${100 * worst} %`;
    },
  },
  ...BESIDE,
  {
    of: /^Pairs? ([\d, -]+) rotates?; none should\.$/,
    about: 'frequencies',
    check: needsRotation(([list], { asked }, { frequency }) => {
      const isSo = asked.frequency.every((f) => f === 0) && listed(list!).every((j) => frequency[j] !== 0);
      return isSo ? undefined : 'they should, or do not';
    }),
  },
  { of: /^None of the \d+ known bugs that can happen here(?:, nor of \d+ pairs of them,)? gives y\.$/, check: fine },
  ...MEASURED.flatMap(([of, aspects, check]) => aspects.map((about): Form => ({ of, about, check }))),
  ...REASONS,
  {
    of: /^Pairs are (.*), such as \((\d+, \d+)\)(?: written to \((\d+, \d+)\))?; expected is [\w-]+, such as .*\.$/,
    about: 'pairing',
    check: needsRotation(([words, read, write], scene, rotation) => {
      const distance = /(\d+) apart/.exec(words!)?.[1];
      const name = words!.startsWith('half') ? 'half' : words!;
      const why = pairing([name, read!, write as string, distance as string], scene);
      const same = rotation.pairs.every(({ read: a, write: b }, j) => {
        const want = scene.asked.pairs[j];
        return want !== undefined && a.join() === want.read.join() && b.join() === want.write.join();
      });
      return why ?? (same ? 'the pairing is as expected' : undefined);
    }),
  },
  {
    of: /^((?:Dimensions .* (?:rotate; only|hold 0 in|hold no finite)|The first dimension that rotates).*)$/,
    about: 'dimensions',
    check: dimensionLine,
  },
  {
    of: /^It rotates (forward|backward); expected is (?:forward|backward) \(sin has the opposite sign\)\.$/,
    about: 'direction',
    check: direction,
  },
  {
    of: /^(Some pairs rotate forward and some backward)\.$/,
    about: 'direction',
    check: (_parts, scene) => direction(['some pairs forward, some backward'], scene),
  },
  {
    of: /^Pairs? (.*) rotates? forward, pairs? (.*) backward\.$/,
    about: 'direction',
    check: ([ahead, back], scene) => direction([`pairs ${ahead} forward, pairs ${back} backward`], scene),
  },
  {
    of: /^The frequency of pair j is (.*); expected is .*\^\(−2j\/\d+\)(?:, with \w+ scaling)?\.$/,
    about: 'frequencies',
    check: needsRotation(([formulas], scene, rotation) => formulasAre(formulas!.split(', or '), scene, rotation)),
  },
  {
    of: new RegExp(`^cos is multiplied by ${NUMBER} and sin by ${NUMBER}; expected is ${NUMBER} for both\\.$`),
    about: 'magnitude',
    check: needsRotation((parts, _scene, rotation) => gainsAre(parts.slice(0, 2), rotation, 0.01)),
  },
  {
    of: /^((?:The frequenc(?:y of (?:every|each pair is|pairs? \d)|ies)|The pairs have|Pair j has|Every pair has|The angles? of (?:every|pairs?) [^;]*? (?:are not|differs?|is)|Pairs? .* do(?:es)? not |At least \d+ more).*)$/,
    about: 'frequencies',
    check: frequencyWords,
  },
  {
    of: new RegExp(
      `^Pairs become ${NUMBER} times as long(, the square of the expected factor|, which is [^;]*)?; expected is ${NUMBER}\\.$`,
    ),
    about: 'magnitude',
    check: needsRotation(([times, square, wanted], scene, rotation) => {
      const asked = scene.asked.gain as number;
      if (!gainIs(Number(times), scene, rotation)) return `it is ${rotation.gain}`;
      if (gainIs(asked, scene, rotation) && typeof rotation.gain === 'number') return 'the magnitude is as expected';
      if (!near(Number(wanted), asked, 1e-6)) return `expected is ${asked}`;
      if (square?.includes('1 / the expected') && !near(Number(times), 1 / asked, 2e-3)) return 'not 1 / it';
      return square?.startsWith(', the square') && !near(Number(times), asked ** 2, 2e-3)
        ? 'not the square'
        : undefined;
    }),
  },
  {
    of: new RegExp(`^Pairs keep their length; expected is ${NUMBER} times it\\.$`),
    about: 'magnitude',
    check: needsRotation(([wanted], scene, rotation) => {
      if (!near(Number(wanted), scene.asked.gain as number, 1e-6)) return `expected is ${scene.asked.gain}`;
      return gainIs(1, scene, rotation) ? undefined : `they become ${rotation.gain} times as long`;
    }),
  },
  {
    of: /^Not all pairs (?:of all tokens )?are lengthened by the same factor\.$/,
    about: 'magnitude',
    check: needsRotation((_parts, _scene, { gain }) => (typeof gain === 'number' ? 'they are' : undefined)),
  },
  {
    of: /^Dimensions (.*) are scaled; they should be copied\.$/,
    about: 'magnitude',
    check: ([ranges], scene) => dimensions([`${ranges} are scaled`], scene),
  },
  {
    of: /^It rotates by (.*?)(?:, or every frequency is ([-\d.e+]+) times the expected one)?; expected is the position as given\.$/,
    about: 'positions',
    check: needsRotation(([rules, times], scene, rotation) => {
      // At one position, a factor of all frequencies is the other reading.
      const { frequency } = scene.asked;
      if (times !== undefined && rotation.frequency.every((f, j) => near(f, Number(times) * frequency[j]!, 1e-3)))
        return undefined;
      if (asGiven(scene, rotation)) return 'they are as given';
      const used = times === undefined ? rotation : byPositions(scene).truth.rotation!;
      return positionsAre(rules!.split(', or by '), scene, used);
    }),
  },
  { of: /^It rotates by .*, or every frequency is .* times the expected one;/, about: 'frequencies', check: fine },
  {
    of: /^All tokens rotate alike, as if at position (-?\d+) by the expected frequencies; expected is the position as given\.$/,
    about: 'positions',
    check: needsRotation(([p], scene, { frequency, position }) => {
      const used = [...rowsOf(scene)].map((at) => position(scene.call.position(at.batch, at.seq), at));
      const off = frequency.findIndex(
        (f, j) => !used.every((one) => near(one * f, Number(p) * scene.asked.frequency[j]!, 1e-5)),
      );
      return off < 0 ? undefined : `pair ${off} does not`;
    }),
  },
  {
    of: /^The angles are not proportional to the positions as given(?:; (\d+) of the \d+ (?:tokens|heads) that were measured rotate as if at other positions: (.*))?\.$/,
    about: 'positions',
    check: needsRotation(([_count, list], scene, rotation) => {
      if (asGiven(scene, rotation)) return 'they are as given';
      for (const part of list === undefined ? [] : list.split(', ').filter((one) => one !== '…')) {
        const parts = /^batch (\d+) token (\d+)(?: head (\d+))? at (.*) instead of (-?\d+)$/.exec(part);
        if (!parts) return `"${part}" is not understood`;
        const at = { batch: Number(parts[1]), seq: Number(parts[2]), head: Number(parts[3] ?? 0) };
        const real = asIfAt(scene, rotation, Number(parts[5]), at);
        if (real === Number(parts[5]) && loose(rotation) === 0) return `${part}: it is as given`;
        const said = Number(parts[4]);
        if (Number.isFinite(said) && Math.abs(said - real) > 0.05 + (1e-3 + loose(rotation)) * Math.abs(real))
          return `${part}: it is ${real}`;
      }
      return undefined;
    }),
  },
  {
    of: /^(\d+) pairs? (?:is|are) seen to rotate by another axis: (.*)\.$/,
    about: 'axes',
    check: needsRotation(([, list], _scene, rotation) => {
      for (const part of list!.split('; ').filter((one) => one !== '…')) {
        const parts = /^pairs? ([\d, -]+) by ([thwe/]*) instead of ([thwe])$/.exec(part);
        if (!parts) return `"${part}" is not understood`;
        for (const pair of listed(parts[1]!)) {
          const real = 'thwe'[rotation.axisOfPair![pair]!]!;
          if (!parts[2]!.split('/').includes(real) || real === parts[3]) return `${part}: it is ${real}`;
        }
      }
      return undefined;
    }),
  },
  {
    of: /^The heads of one token rotate by different angles\.$/,
    about: 'heads',
    check: needsRotation((_parts, scene, rotation) =>
      headsDiffer(scene, rotation) || someHeadsOnly(scene) ? undefined : 'they rotate alike',
    ),
  },
  {
    of: new RegExp(
      `^Largest difference: batch (\\d+), token (\\d+) \\(position ([-\\d, ]+)\\), head (\\d+), dimension (\\d+): y is (\\S+), expected ${NUMBER}\\.$`,
    ),
    check: (parts, { call, right, dtype }) => {
      const [b, s, h, i] = [parts[0], parts[1], parts[3], parts[4]].map(Number) as [number, number, number, number];
      const n = call.at(b, s, h) + i;
      const y = Number(parts[5]);
      if (!(near(y, call.y[n]!, 1e-6) || Object.is(y, call.y[n]!))) return `y is ${call.y[n]}`;
      const slack = 4 * UNIT_ROUNDOFF[dtype] + 1e-6;
      const off = Math.abs(call.y[n]! - right[n]!);
      const more = right.some((value, m) => Math.abs(call.y[m]! - value) > (1 + 1e-6) * off + 1e-9);
      if (more && !Number.isNaN(off)) return 'another difference is larger';
      return Math.abs(Number(parts[6]!) - right[n]!) <= slack * (1 + Math.abs(right[n]!))
        ? undefined
        : `expected is ${right[n]}`;
    },
  },
];

// Headlines and the rest

const HEADLINES: Form[] = [
  {
    // The first sentence is not said again.
    of: /^DIFFERENT from what is expected(?: \([^)]*\))?(?:, in .*?)?: (\S.*\.)$/,
    check: ([sentence], scene) => {
      const [, where, holds] =
        /^([^:]*): ((?:the right result|this row of x|the row of x|x × cos as expected) .*)\.$/.exec(sentence!) ?? [];
      return where && holds ? wrongRows([where, holds], scene) : judgeLine(sentence!, DIFFERENT, scene).untrue;
    },
  },
  {
    of: /^PARTLY RIGHT(?: \([^)]*\))?: (\d+) of (\d+) elements of y are wrong\.$/,
    check: (parts, scene) => (isRight(scene) ? 'it is as expected' : wrongCount(parts.map(Number), scene)),
  },
  {
    of: /^PARTLY RIGHT(?: \([^)]*\))?: (.*?): (.*); all else is right\.$/,
    check: ([where, holds], scene) => wrongRows([`${where![0]!.toUpperCase()}${where!.slice(1)}`, holds!], scene),
  },
  { of: /^A ROTATION IN PART: .*; \d+ of \d+ elements of y are no part of it\.$/, check: fine },
  {
    of: /^AS EXPECTED(?: \([^)]*\))?: y is the rotation, rounded once to (\w+)\.$/,
    check: ([dtype], scene) =>
      isRight(scene) ? (dtype === scene.dtype ? undefined : `y is ${scene.dtype}`) : 'it is not as expected',
  },
  {
    of: /^AS EXPECTED(?: \([^)]*\))?, computed less precisely: (.*)\.$/,
    check: ([how], scene) => {
      const { precision, names = [] } = scene.truth;
      if (how!.split(' | ').some((one) => names.includes(one))) return undefined;
      return precision?.test(how!) ? undefined : `its precision: ${precision ?? 'nothing is less precise'}`;
    },
  },
  {
    of: /^(?:KNOWN BUG|WRONG PARAMETERS?|(?:TWO|THREE|FOUR) KNOWN BUGS|ONE OF \d+, which this input cannot tell apart)(?:, (?:in|unless) .*?)?: /,
    check: fine,
  }, // judged as a name
  {
    of: /^NOT UNDERSTOOD: y is not what is expected(?: \([^)]*\))?, and no rotation that was found gives it\.$/,
    check: (_parts, scene) => (isRight(scene) ? 'it is as expected' : undefined),
  },
  { of: /^NOT ROTATED: /, about: 'rows', check: fine }, // and as below
  {
    of: /^NOT (?:UNDERSTOOD|ROTATED): (.*)$/,
    check: ([reason], scene) =>
      REASONS.map((form) =>
        form.of.test(reason!) ? form.check(form.of.exec(reason!)!.slice(1), scene) : undefined,
      ).find((why) => why !== undefined),
  },
  {
    of: /^A ROTATION: [\w-]+(?:, base [\d.e+]+|, frequencies (?:that follow no rule|of no one base|unknown|.* ?j.*))?(?:, (?:linear|llama3|yarn|scaled))?\.$/,
    check: needsRotation(() => undefined), // the same numbers are in "What y shows"
  },
  { of: /^A ROTATION, but no record explains y within rounding\.$/, check: needsRotation(() => undefined) },
];

const BUGS: Form[] = [
  { of: /^[a-z0-9-]+: .*\.$/, check: fine },
  {
    of: /^([\w.]+=\S+): .*\.$/,
    check: ([id], { call, truth, headline }) =>
      isParameter(id!, call, truth) || headline.includes(' | another rule of') ? undefined : 'it does not use this',
  },
  { of: /^ {2}cause [A-Z], [a-z, ]*$/, check: fine },
  { of: /^ {2}cause [A-Z], .*; reported in .*$/, check: fine },
];

const OPEN: Form[] = [
  { of: /^The pairing: (.*) give the same lengths\.$/, check: fine },
  { of: /^Dimensions [\d, ]+: x is 0 there in every row\.$/, check: fine },
  // Which tokens are measured is not said.
  {
    of: /^Whether frequencies or positions differ: the tokens that were measured have one position, which shows only their product\.$/,
    check: fine,
  },
  // How many depends on the noise; whatever is said to be unknown may be.
  {
    of: /^How many whole turns \d+ pairs? makes? from position to position, and so the frequency and direction\.$/,
    check: fine,
  },
  {
    of: /^(\d+) of (\d+) pairs rotates? too little to measure up to position \d+, (by whole turns, )?or not at all\.$/,
    check: needsRotation(([idle, , whole], scene, rotation) => {
      if (whole !== undefined) return undefined; // how many turns is not said
      // Noise is a few units of rounding; rounding may also show a pair that turns by less than one.
      const most = rotation.frequency.filter((_f, j) => turns(scene, rotation, j) < unseen(scene)).length;
      return Number(idle) > most + 1 ? `at most ${most} do` : undefined;
    }),
  },
  { of: /^The frequency of \d+ pairs?, to better than 1 %: positions reach only \d+\.$/, check: fine },
  {
    of: /^Whether heads differ: there is only one\.$/,
    check: (_parts, { call }) => (call.heads === 1 ? undefined : 'there are several'),
  },
  {
    of: /^Whether batches differ: there is only one\.$/,
    check: (_parts, { call }) => (call.batch === 1 ? undefined : 'there are several'),
  },
  { of: /^The axes: (.*)\.$/, check: fine },
  { of: /^The axis of \d+ pairs?\.$/, check: fine },
  {
    of: /^It would not have shown: ([a-z0-9-]+(?:, )?)+\.$/,
    check: (_parts, scene) => (isRight(scene) ? undefined : 'something is wrong'),
  },
  { of: /^No input that was tried tells these bugs apart: for this model they are the same\.$/, check: fine },
  { of: /^Whether x and y were exchanged: a right kernel then looks the same\.$/, check: fine },
  { of: /^Next input to try: .*\.$/, check: fine },
  { of: /^ {2}it tells apart .*$/, check: fine },
];

// "Right" and "Wrong"

/** `0-3, 7`, or `0, 2, … 14 (each 2 apart)`; undefined where some are left out. */
function someNumbers(words: string): number[] | undefined {
  const steps = /^(\d+), \d+, … (\d+) \(each (\d+) apart\)$/.exec(words)?.slice(1).map(Number);
  if (steps) {
    const [first, last, step] = steps as [number, number, number];
    return Array.from({ length: (last - first) / step + 1 }, (_what, n) => first + n * step);
  }
  return /…/.test(words) ? undefined : listed(words);
}

/** The rows that words name; undefined where they only count them. */
export function rowsNamed(words: string, scene: Pick<Scene, 'call'>): RowAt[] | undefined {
  const all = everyRowOf(scene);
  if (/^\d+ rows, the first in /.test(words)) return undefined;
  const named = words.split('; ').map((group) => {
    const sets: Record<string, number[] | undefined> = {};
    for (const part of group.split(/ of (?=token|batch|every)/i)) {
      const [, what, list] = /^(head|token|batch)(?:s|es)? (.*)$/i.exec(part) ?? [];
      if (what === undefined) {
        if (!/^every token$/i.test(part)) return undefined;
        continue;
      }
      const numbers = someNumbers(list!);
      if (!numbers) return undefined;
      sets[what.toLowerCase()] = numbers;
    }
    return all.filter(
      ({ head, seq, batch }) =>
        (sets.head?.includes(head) ?? true) &&
        (sets.token?.includes(seq) ?? true) &&
        (sets.batch?.includes(batch) ?? true),
    );
  });
  return named.some((rows) => rows === undefined) ? undefined : named.flatMap((rows) => rows!);
}

/** A row of values in float64, and how to look at y's row beside it. */
type RowValues = (at: RowAt) => Float64Array;

const allDims = ({ call }: Scene): number[] => Array.from({ length: call.headDim }, (_what, i) => i);

/** The distance of an element of y from a value, in units of generous noise. No right kernel is beyond 1. */
function farFrom(value: number, size: number, i: number, { call, dtype }: Scene, at: RowAt): number {
  const reach = Math.max(
    ...Array.from({ length: call.axes }, (_what, a) => Math.abs(call.position(at.batch, at.seq, a))),
  );
  const noise = 2 * size * (8 * UNIT_ROUNDOFF[dtype] + 16 * UNIT_ROUNDOFF.f32 * (1 + reach));
  const far = Math.abs(call.y[call.at(at.batch, at.seq, at.head) + i]! - value) / noise;
  return Number.isNaN(far) ? Infinity : far;
}

/** The largest of {@link farFrom} in some dimensions of a row. */
function rowFar(values: Float64Array, scene: Scene, at: RowAt, dims = allDims(scene)): number {
  const size = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return Math.max(...dims.map((i) => farFrom(values[i]!, size, i, scene, at)));
}

const inputRow = ({ call }: Scene, { batch, seq, head }: RowAt): Float64Array => {
  const from = call.at(batch, seq, head);
  return call.x.subarray(from, from + call.headDim);
};

/** One row of x by the right kernel, at the position of a token, which `by` may change. */
function turned(
  scene: Scene,
  x: Float64Array,
  { batch, seq }: RowAt,
  by = (p: number, _axis: number): number => p,
  norm = scene.call.norm,
): Float64Array {
  const { call, asked } = scene;
  const position = (_b: number, _s: number, axis = 0): number => by(call.position(batch, seq, axis), axis);
  const one: Call = { ...call, norm, x, batch: 1, seq: 1, heads: 1, position, at: () => 0 };
  return exact(one, { ...asked, position: (p) => p });
}

const rightRow = (scene: Scene, at: RowAt): Float64Array => turned(scene, inputRow(scene, at), at);

const rightRows: Check = ([words], scene) => {
  const rows = rowsNamed(words!, scene);
  if (scene.stranger.expect === false) return undefined; // what was rotated, judged by "What y shows"
  const bad = rows?.find((at) => rowFar(rightRow(scene, at), scene, at) > 1);
  return bad && `batch ${bad.batch} token ${bad.seq} head ${bad.head} is wrong`;
};

const rightDims: Check = ([list], scene) => {
  const dims = someNumbers(list!);
  const bad = dims && everyRowOf(scene).find((at) => rowFar(rightRow(scene, at), scene, at, dims) > 1);
  return bad && `batch ${bad.batch} token ${bad.seq} head ${bad.head} is wrong`;
};

const everyRowOf = ({ call }: Pick<Scene, 'call'>): RowAt[] => [...rowsOf({ call, truth: { wrong: [] } })];

/** The least and the most number of wrong elements: those that are clearly wrong, and those that differ at all. */
function wrongCount([count, of]: number[], scene: Scene): string | undefined {
  if (of !== scene.call.y.length) return `y has ${scene.call.y.length}`;
  const far = everyRowOf(scene).flatMap((at) => {
    const values = rightRow(scene, at);
    const size = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return Array.from(values, (value, i) => farFrom(value, size, i, scene, at));
  });
  const [least, most] = [1, 1e-6].map((bound) => far.filter((one) => one > bound).length) as [number, number];
  return count! < least || count! > most ? `${least} to ${most} are` : undefined;
}

/** Another row, by words about it; undefined for words that are not understood. */
function otherRow(words: string, { call }: Scene): ((at: RowAt) => RowAt | undefined) | undefined {
  const { batch, seq, heads } = call;
  const rowAt = (n: number): RowAt | undefined =>
    n >= 0 && n < batch * seq * heads
      ? { batch: Math.floor(n / heads / seq), seq: Math.floor(n / heads) % seq, head: n % heads }
      : undefined;
  const inside = (at: RowAt): RowAt | undefined =>
    at.batch >= 0 && at.batch < batch && at.seq >= 0 && at.seq < seq && at.head >= 0 && at.head < heads
      ? at
      : undefined;
  const single = /^batch (\d+), token (\d+), head (\d+)$/.exec(words)?.slice(1).map(Number);
  if (single) return () => ({ batch: single[0]!, seq: single[1]!, head: single[2]! });
  const along = /^the row (\d+) (after|before) it, counting over batches, tokens and heads$/.exec(words);
  if (along) {
    const step = (along[2] === 'after' ? 1 : -1) * Number(along[1]);
    return (at) => rowAt((at.batch * seq + at.seq) * heads + at.head + step);
  }
  switch (words) {
    case 'the token that is there if [batch, seq] read as [seq, batch]':
      return ({ batch: b, seq: s, head }) => {
        const n = b * seq + s;
        return { batch: n % batch, seq: Math.floor(n / batch), head };
      };
    case 'the token that is there if [seq, batch] read as [batch, seq]':
      return ({ batch: b, seq: s, head }) => {
        const n = s * batch + b;
        return { batch: Math.floor(n / seq), seq: n % seq, head };
      };
    case 'the row that is there if [seq, head] is read as [head, seq]':
      return ({ batch: b, seq: s, head }) => {
        const n = s * heads + head;
        return { batch: b, seq: n % seq, head: Math.floor(n / seq) };
      };
    case 'the row that is there if [head, seq] is read as [seq, head]':
      return ({ batch: b, seq: s, head }) => {
        const n = head * seq + s;
        return { batch: b, seq: Math.floor(n / heads), head: n % heads };
      };
  }
  const steps: ((at: RowAt) => RowAt)[] = [];
  for (const part of words.replace(/(token \d+), the last/, '$1').split(' of ')) {
    const [, name, fixed] = /^(head|token|batch) (\d+)$/.exec(part) ?? [];
    const [, shiftedName, apart = '1', way] =
      /^the (head|token|batch) (?:(\d+) places )?(after|before) it$/.exec(part) ?? [];
    const [, mirroredName] = /^the (head|token|batch) as far from the end$/.exec(part) ?? [];
    const [, ownName, sum, divisor, modulus] =
      /^the (head|token|batch) whose index is (?:(\d+) minus its own|its own divided by (\d+)|its own mod (\d+))$/.exec(
        part,
      ) ?? [];
    const key = { head: 'head', token: 'seq', batch: 'batch' }[
      name ?? shiftedName ?? mirroredName ?? ownName ?? ''
    ] as keyof RowAt;
    if (key === undefined) return undefined;
    const count = { head: heads, seq, batch }[key];
    const step = (way === 'after' ? 1 : -1) * Number(apart);
    const to = (n: number): number => {
      if (fixed !== undefined) return Number(fixed);
      if (sum !== undefined) return Number(sum) - n;
      if (divisor !== undefined) return Math.floor(n / Number(divisor));
      if (modulus !== undefined) return n % Number(modulus);
      return shiftedName ? n + step : count - 1 - n;
    };
    steps.push((at) => ({ ...at, [key]: to(at[key]) }));
  }
  return (at) => inside(steps.reduce((row, step) => step(row), at));
}

/** The contents of a row of y by words that name a computation; undefined for words that name none. */
function heldValues(words: string, scene: Scene): RowValues | 'another row that is not understood' | undefined {
  const { call, truth } = scene;
  if (words.startsWith('that rotation')) {
    // The rotation that the first line tells, in the words for the right one.
    const same = words
      .replace(/^that rotation of the row of x of (.*)$/, 'the row of x of $1, rotated by the right position')
      .replace(/^that rotation( by .*| twice)$/, 'this row of x rotated$1')
      .replace(/^that rotation/, 'the right result');
    return heldValues(same, { ...scene, asked: truth.rotation ?? scene.asked });
  }
  const half = (at: RowAt, x: Float64Array, sign: 1 | -1): Float64Array => {
    const [to, back] = [1, -1].map((way) => turned(scene, x, at, (p) => way * p)) as [Float64Array, Float64Array];
    return to.map((value, i) => (value + sign * back[i]!) / 2);
  };
  if (words === 'x × cos alone, without the sin terms') return (at) => half(at, inputRow(scene, at), 1);
  if (words === 'the sin terms alone, without x × cos') return (at) => half(at, inputRow(scene, at), -1);
  const by = /^this row of x rotated by (.*)$/.exec(words)?.[1];
  const moved: Record<string, (at: RowAt) => (p: number) => number> = {
    'its position, and again by that of the token before it': (at) => (p) =>
      p + (at.seq > 0 ? call.position(at.batch, at.seq - 1, 0) : 0),
    'its position with the opposite sign': () => (p) => -p,
    'its position × (its head + 1)':
      ({ head }) =>
      (p) =>
        p * (head + 1),
    'its index on the sequence axis':
      ({ seq }) =>
      () =>
        seq,
    'its index in the batch of sequences':
      ({ batch, seq }) =>
      () =>
        batch * call.seq + seq,
  };
  if (by !== undefined && /^its position(?:(?: and)? [+−] \d+(?: on (?:axis [thwe]|every axis))?)+$/.test(by)) {
    const steps = [...by.matchAll(/([+−]) (\d+)(?: on axis ([thwe]))?/g)];
    const step = (axis: number): number =>
      steps
        .filter(([, , , name]) => name === undefined || 'thwe'[axis] === name)
        .reduce((sum, [, sign, far]) => sum + Number(far) * (sign === '+' ? 1 : -1), 0);
    return (at) => turned(scene, inputRow(scene, at), at, (p, axis) => p + step(axis));
  }
  if (by !== undefined && moved[by]) return (at) => turned(scene, inputRow(scene, at), at, moved[by]!(at));
  const masked =
    /^(the right result of dimension i|each pair by the angle of pair j) XOR (?:(\d+) × \()?its (head|token)(?: mod (\d+))?\)?$/.exec(
      words,
    );
  if (masked) {
    const [, what, by = '1', name, modulo] = masked;
    const maskOf = (at: RowAt): number => {
      const index = name === 'head' ? at.head : at.seq;
      return Number(by) * (modulo === undefined ? index : index % Number(modulo));
    };
    return (at) => {
      const mask = maskOf(at);
      const right = rightRow(scene, at);
      if (what!.startsWith('the right')) return right.map((_, i) => right[i ^ mask]!);
      const [x, y] = [inputRow(scene, at), right.slice()];
      const place = { batch: at.batch, seq: at.seq, head: at.head };
      for (const [j, { read, write }] of scene.asked.pairs.entries()) {
        const given = call.position(at.batch, at.seq, 0);
        const angle = scene.asked.position(given, place) * scene.asked.frequency[j ^ mask]!;
        const [c, s] = [Math.cos(angle), Math.sin(angle)];
        y[write[0]] = x[read[0]]! * c - x[read[1]]! * s;
        y[write[1]] = x[read[0]]! * s + x[read[1]]! * c;
      }
      return y;
    };
  }
  if (words === 'this row of x rotated with cos and sin exchanged')
    return (at) => {
      const [to, x] = [rightRow(scene, at), inputRow(scene, at)];
      const y = to.slice();
      // x0·sin − x1·cos and x0·cos + x1·sin.
      for (const { read, write } of scene.asked.pairs) {
        const [x0, x1] = [x[read[0]]!, x[read[1]]!];
        const power = x0 * x0 + x1 * x1;
        const [c, s] = [
          (x0 * to[write[0]]! + x1 * to[write[1]]!) / power,
          (x0 * to[write[1]]! - x1 * to[write[0]]!) / power,
        ];
        y[write[0]] = x0 * s - x1 * c;
        y[write[1]] = x0 * c + x1 * s;
      }
      return y;
    };
  if (words === 'this row of x rotated twice')
    return (at) => turned(scene, rightRow(scene, at), at, undefined, undefined);
  const factor =
    words === 'the right result with the opposite sign' ? '-1' : /^the right result × (.*)$/.exec(words)?.[1];
  if (factor !== undefined) return (at) => rightRow(scene, at).map((value) => value * Number(factor));
  if (/^the right result times a factor of each (?:row|head), such as .*$/.test(words))
    return (at) => {
      const right = rightRow(scene, at);
      const from = call.at(at.batch, at.seq, at.head);
      const largest = right.reduce((most, value, i) => (Math.abs(value) > Math.abs(right[most]!) ? i : most), 0);
      return right.map((value) => (value * call.y[from + largest]!) / right[largest]!);
    };
  const law = (words: string): ((at: RowAt) => number) | undefined => {
    const eps = /^after an RMS norm of x with weight 1(?: and epsilon ([\d.e-]+))?$/.exec(words);
    const square = (at: RowAt): number => inputRow(scene, at).reduce((sum, value) => sum + value * value, 0);
    if (eps) return (at) => 1 / Math.sqrt(square(at) / call.headDim + Number(eps[1] ?? 0));
    if (words === 'divided by the length of its row of x') return (at) => 1 / Math.sqrt(square(at));
    const [, length] = /^times max\(1, ln\(position \+ 1\) \/ ln\((\d+)\)\)$/.exec(words) ?? [];
    if (length === undefined) return undefined;
    return (at) => Math.max(1, Math.log(call.position(at.batch, at.seq, 0) + 1) / Math.log(Number(length)));
  };
  const factorOfRow = law(words.replace(/^the right result /, ''));
  if (factorOfRow) return (at) => rightRow(scene, at).map((value) => value * factorOfRow(at));
  const memory = /^the right result of the token, (stored|read) as \[head_dim, head\]$/.exec(words)?.[1];
  if (memory)
    return (at) => {
      const rows = Array.from({ length: call.heads }, (_, head) => rightRow(scene, { ...at, head }));
      return Float64Array.from({ length: call.headDim }, (_, i) => {
        const n = at.head * call.headDim + i;
        if (memory === 'stored') return rows[n % call.heads]![Math.floor(n / call.heads)]!;
        const from = i * call.heads + at.head;
        return rows[Math.floor(from / call.headDim)]![from % call.headDim]!;
      });
    };
  const kinds: [RegExp, (at: RowAt, other: RowAt) => Float64Array][] = [
    [/^the right result of (.*)$/, (_at, other) => rightRow(scene, other)],
    [/^this row of x rotated by the position of (.*)$/, (at, other) => turned(scene, inputRow(scene, at), other)],
    [/^the row of x of (.*), rotated by the right position$/, (at, other) => turned(scene, inputRow(scene, other), at)],
    [
      /^x × cos as expected, and a sin term with the x of (.*)$/,
      (at, other) => {
        const sines = half(at, inputRow(scene, other), -1);
        return half(at, inputRow(scene, at), 1).map((value, i) => value + sines[i]!);
      },
    ],
    [
      /^the same values as (.*)$/,
      (_at, { batch, seq, head }) =>
        call.y.subarray(call.at(batch, seq, head), call.at(batch, seq, head) + call.headDim),
    ],
  ];
  for (const [of, values] of kinds) {
    const name = of.exec(words)?.[1];
    if (name === undefined) continue;
    const other = otherRow(name, scene);
    if (!other) return 'another row that is not understood';
    return (at) => {
      const to = other(at);
      return to ? values(at, to) : new Float64Array(call.headDim).fill(Number.NaN);
    };
  }
  return undefined;
}

const UNKNOWN = 'values whose origin is not known';

/** The contents of elements that may be said of rows. */
const HOLDS: [RegExp, (y: number, x: number, normed: number, said: string) => boolean][] = [
  [/^zeros$/, (y) => y === 0],
  [/^NaN$/, (y) => Number.isNaN(y)],
  [/^infinities$/, (y) => Math.abs(y) === Infinity],
  [/^NaN and infinities$/, (y) => !Number.isFinite(y)],
  [/^x, (?:not rotated|neither normalised nor rotated)$/, (y, x) => y === x],
  [/^x after the norm, not rotated$/, (y, _x, normed) => Math.abs(y - normed) <= Math.abs(normed) / 64],
  [/^−x$/, (y, _x, normed) => Math.abs(y + normed) <= Math.abs(normed) / 64],
  [/^one value, (.*)$/, (y, _x, _normed, said) => near(y, Number(said), 1e-6)],
];

/** A member of a pair that was computed from the stored other. */
function inPlace(late: 0 | 1, scene: Scene, at: RowAt, dims: readonly number[]): boolean {
  const { call, asked } = scene;
  const from = headOf(scene, at);
  const input = normedInput({ ...call, x: inputRow(scene, at) });
  const gain = asked.gain as number;
  return asked.pairs.every(({ read, write }, j) => {
    if (!dims.includes(write[late])) return true;
    const angle = call.position(at.batch, at.seq, asked.axisOfPair?.[j] ?? 0) * asked.frequency[j]!;
    const [cos, sin] = [gain * Math.cos(angle), gain * Math.sin(angle)];
    const other = call.y[from + write[1 - late]!]!;
    const value = late === 0 ? input[read[0]]! * cos - other * sin : other * sin + input[read[1]]! * cos;
    return (
      farFrom(value, Math.abs(value) + Math.abs(other) + Math.abs(input[read[late]]!), write[late], scene, at) <= 1
    );
  });
}

/** Rows that are near the right ones only are off by up to a quarter of the largest |x|. */
const NEAR = 0.25;
const isNearOnly = ({ headline }: Scene): boolean => /y is near the expected values|, to within /.test(headline);

/** The largest error of a row, relative to the largest |x| of it. */
function errorShare(values: Float64Array, scene: Scene, at: RowAt, dims = allDims(scene)): number {
  const size = normedInput({ ...scene.call, x: inputRow(scene, at) }).reduce(
    (most, v) => Math.max(most, Math.abs(v)),
    0,
  );
  return Math.max(...dims.map((i) => Math.abs(scene.call.y[headOf(scene, at) + i]! - values[i]!))) / size;
}

const wrongRows: Check = ([where, holds], scene) => {
  const { call, truth, stranger } = scene;
  const words = holds!;
  const bug = /^what the known bug (.*) gives$/.exec(words)?.[1];
  const isName = (id: string): boolean => truth.names?.includes(id) || truth.isName?.(id) || false;
  if (bug) return bug.split(' or ').some(isName) ? undefined : `${bug} is not its name`;
  const values = heldValues(words, scene);
  if (typeof values === 'string') return values;
  if (words === 'the same values in every token of a head') return undefined; // `isConstant` of the kernel is not known
  const look = HOLDS.find(([of]) => of.test(words));
  const late =
    /^the (second|first) member of a pair computed from the (?:first|second) one’s result, which was stored before its input was read$/.exec(
      words,
    )?.[1];
  const unknown = /^(values whose origin is not known(; only (first|second) members of pairs)?|another rotation)$/.test(
    words,
  );
  if (!values && !look && late === undefined && !unknown) return `"${words}" is not understood`;
  if (/elements/.test(where!)) return undefined; // where they are is not said
  const [, rowWords, list] = /^(.*?)(?:, dimensions? ([\d, …()a-z-]*))?$/.exec(where!)!;
  const dims = list === undefined ? allDims(scene) : someNumbers(list);
  const rows = rowsNamed(rowWords!, scene);
  if (!rows || !dims) return undefined;
  const bad = rows.find((at) => {
    if (values && isNearOnly(scene)) return errorShare(values(at), scene, at, dims) > NEAR;
    if (values) return rowFar(values(at), scene, at, dims) > 1;
    if (late !== undefined) return !inPlace(late === 'first' ? 0 : 1, scene, at, dims);
    const [from, x] = [headOf(scene, at), inputRow(scene, at)];
    const normed = normedInput({ ...call, x });
    const holdsIt = ([of, test]: (typeof HOLDS)[number]): boolean =>
      dims.every((i) => test(call.y[from + i]!, x[i]!, normed[i]!, of.exec(words)?.[1] ?? ''));
    // Contents that are said to be unknown are none of the simple ones.
    return look ? !holdsIt(look) : HOLDS.slice(0, -1).some(holdsIt);
  });
  if (bad) return `batch ${bad.batch} token ${bad.seq} head ${bad.head} does not`;
  if (stranger.expect === false) return undefined;
  const fine = rows.find(
    (at) => rowFar(rightRow(scene, at), scene, at, dims) < UNIT_ROUNDOFF.f32 && !isStill(scene, at),
  );
  return fine && `batch ${fine.batch} token ${fine.seq} head ${fine.head} is right`;
};

/** At position 0 a row that was not rotated is right as well. */
const isStill = ({ call }: Scene, { batch, seq }: RowAt): boolean =>
  Array.from({ length: call.axes }, (_what, a) => call.position(batch, seq, a)).every((p) => p === 0);

const RIGHT_ROWS: Form[] = [
  {
    of: /^(\d+) of (\d+) elements\.$/,
    check: ([count, of], scene) => wrongCount([Number(of) - Number(count), Number(of)], scene),
  },
  { of: /^Dimensions (.*) of every token\.$/, check: rightDims },
  {
    of: /^((?:Head|Token|Batch|Every token|\d+ rows).*?)(, and all other dimensions of the rows below)?\.$/,
    check: rightRows,
  },
];

const WRONG_ROWS: Form[] = [
  ...(['rows', 'elements', 'input', 'heads', 'positions'] as const).map(
    (about): Form => ({
      of: /^((?:Head|Token|Batch|Every token|Dimension|\d+ ).*?): (.*)\.$/,
      about,
      check: wrongRows,
    }),
  ),
];

/** Sections and the forms of their lines. */
const SECTIONS: Readonly<Record<string, readonly Form[]>> = {
  Right: RIGHT_ROWS,
  Rotated: RIGHT_ROWS,
  Wrong: WRONG_ROWS,
  'Not rotated': WRONG_ROWS,
  'Beside that': WRONG_ROWS,
  'What the right rows show': FINDINGS,
  'What the rotated rows show': FINDINGS,
  Different: DIFFERENT,
  'Known bug': BUGS,
  'Known bugs': BUGS,
  'What y shows': FINDINGS,
  'The measurements leave open': OPEN,
};
