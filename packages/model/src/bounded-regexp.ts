/**
 * Regular expressions from untrusted files, matched in bounded time.
 *
 * JavaScript's own engine cannot be interrupted, and takes 2^n steps for patterns such as `(a+)+$`. This one backtracks
 * too, with the same results, but it counts steps and refuses a text that takes too many. A book of a megabyte takes
 * 0.9 s; JavaScript's engine takes 0.6 s.
 *
 * @module
 * @see https://tc39.es/ecma262/#sec-patterns, with the flag u
 */
import { fail } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';

/** The steps for each character of a text. Patterns of published tokenizers take 5 to 40. */
const STEPS_PER_CHARACTER = 128;
/** The further steps for each text. */
const STEPS_PER_TEXT = 4096;
/** The most unused steps that are kept for harder texts, such as long numbers in a pattern that looks ahead. */
const STEPS_KEPT = 2 ** 20;
/** The most parts of a pattern, with repeats such as `{1,50}` written out. Published patterns have a few hundred. */
const MAX_PARTS = 8192;
/** The most groups inside groups. */
const MAX_NESTING = 100;

/** One instruction of a program. The next one follows it, unless it jumps. Jumps are relative to it. */
type Instruction =
  | { readonly do: 'take'; readonly has: (codePoint: number) => boolean }
  | { readonly do: 'start' | 'end' | 'match' }
  // These stand around a turn of a repeat, which fails if it has taken no character.
  | { readonly do: 'mark' | 'moved' }
  | { readonly do: 'jump'; readonly by: number }
  | { readonly do: 'try'; readonly first: number; readonly second: number }
  /** `behind` is the number of characters that a look-behind goes back; 0 for a look-ahead. */
  | { readonly do: 'look'; readonly program: Program; readonly behind: number; readonly negative: boolean };

type Program = readonly Instruction[];

/** The program of a part of the pattern. It can be copied, because its jumps are relative. */
interface Fragment {
  readonly code: Program;
  /** The number of parts, with repeats written out. */
  readonly parts: number;
  /** The number of characters that it matches; NaN if it varies. */
  readonly length: number;
  readonly canBeEmpty: boolean;
}

/** The place where a turn of a repeat began, inside another one. */
interface Mark {
  readonly at: number;
  readonly outer: Mark | undefined;
}

/** A regular expression with the flags `gu` that takes a bounded number of steps for each match. */
export class BoundedRegExp extends RegExp {
  readonly #program: Program;
  readonly #where: string;
  #text: string | undefined;
  /** The steps that are left. Copies share them. */
  readonly #budget: { steps: number };

  /**
   * @param pattern - with the flag u; a BoundedRegExp when JavaScript copies one, as `split` does
   * @param flags - gu, or those of the copy
   * @param where - the pattern's name in messages
   * @throws {RopewalkError} UNSUPPORTED for back-references, word boundaries, flags inside, look-behinds of varying
   *   length, endless repeats of a part that can be empty, and patterns that are too large
   */
  constructor(pattern: RegExp, flags = 'gu', where = 'pattern') {
    super(pattern, flags);
    const copied = pattern instanceof BoundedRegExp ? pattern : undefined;
    this.#where = copied ? copied.#where : where;
    this.#program = copied ? copied.#program : compile(pattern.source, where);
    this.#budget = copied ? copied.#budget : { steps: STEPS_KEPT };
  }

  override exec(text: string): RegExpExecArray | null {
    if (this.lastIndex === 0 || this.#text !== text) {
      this.#text = text;
      const more = STEPS_PER_TEXT + STEPS_PER_CHARACTER * text.length;
      this.#budget.steps = Math.min(this.#budget.steps + more, Math.max(STEPS_KEPT, more));
    }
    for (let start = this.lastIndex; start <= text.length; ) {
      const end = this.#run(this.#program, text, start);
      if (end !== undefined) {
        this.lastIndex = end;
        return Object.assign([text.slice(start, end)] as unknown as RegExpExecArray, { index: start, input: text });
      }
      if (this.sticky) break;
      start += (text.codePointAt(start) ?? 0) > 0xffff ? 2 : 1;
    }
    this.lastIndex = 0;
    return null;
  }

  /** Returns the end of the match that starts at `start`. */
  #run(program: Program, text: string, start: number): number | undefined {
    const budget = this.#budget;
    /** The alternatives that are left: pairs of instruction and place, the next one last; and the mark of each. */
    const open = [0, start];
    const marks: (Mark | undefined)[] = [undefined];
    while (open.length > 0) {
      let mark = marks.pop();
      let at = open.pop()!;
      let pc = open.pop()!;
      for (;;) {
        if (budget.steps-- <= 0) {
          const limit = `${STEPS_PER_CHARACTER} steps a character`;
          const sentence = `it takes more than ${limit} for a text of ${text.length} characters`;
          fail('RANGE', this.#where, `${sentence}. The pattern is hostile, or not made for this kind of text.`);
        }
        const instruction = program[pc]!;
        if (instruction.do === 'take') {
          const codePoint = text.codePointAt(at);
          if (codePoint === undefined || !instruction.has(codePoint)) break;
          at += codePoint > 0xffff ? 2 : 1;
          pc++;
        } else if (instruction.do === 'try') {
          open.push(pc + instruction.second, at);
          marks.push(mark);
          pc += instruction.first;
        } else if (instruction.do === 'jump') pc += instruction.by;
        else if (instruction.do === 'match') return at;
        else if (instruction.do === 'mark') {
          mark = { at, outer: mark };
          pc++;
        } else if (instruction.do === 'moved') {
          if (mark!.at === at) break;
          mark = mark!.outer;
          pc++;
        } else if (instruction.do === 'look') {
          budget.steps -= instruction.behind;
          const from = before(text, at, instruction.behind);
          const found = from !== undefined && this.#run(instruction.program, text, from) !== undefined;
          if (found === instruction.negative) break;
          pc++;
        } else if (at === (instruction.do === 'start' ? 0 : text.length)) pc++;
        else break;
      }
    }
    return undefined;
  }
}

/** Returns the place `count` characters before `at`, if there is one. */
function before(text: string, at: number, count: number): number | undefined {
  for (; count > 0; count--) {
    if (at === 0) return undefined;
    const pair = at > 1 && (text.codePointAt(at - 2) ?? 0) > 0xffff;
    at -= pair ? 2 : 1;
  }
  return at;
}

const QUANTIFIER = /(?:[*+?]|\{(\d+)(,?)(\d*)\})(\??)/y;
const LOOK = /\?(<?)([=!])/y;
const NAME_OR_FLAGS = /\?(?:<[^>]*>|[a-z-]*:)/y;
/** The characters after the backslash of an escape. */
const ESCAPE = /[pPu]\{[^}]*\}|u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|x..|c.|k<[^>]*>|[1-9][0-9]*|[\s\S]/uy;

/** Compiles a pattern that `new RegExp(source, 'u')` has accepted, so it does not look for mistakes. */
function compile(source: string, where: string): Program {
  let [at, depth] = [0, 0];
  const skip = (text: string): boolean => {
    const found = source.startsWith(text, at);
    if (found) at += text.length;
    return found;
  };
  /** Moves behind the match of a sticky expression. */
  const take = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    at += found?.[0].length ?? 0;
    return found;
  };
  const unsupported = (what: string, start: number): never => {
    const part = show(source.slice(start, at));
    return fail('UNSUPPORTED', where, `${what} are not supported, such as ${part}. Rewrite the pattern without them.`);
  };
  /** Counts a part and those inside it. It is called early, so that parsing and copying stay short. */
  const counted = (inside: number): number => {
    const next = 'Repeats with a count are written out: use smaller counts or fewer parts.';
    if (inside >= MAX_PARTS) fail('UNSUPPORTED', where, `the pattern has more than ${MAX_PARTS} parts. ${next}`);
    return 1 + inside;
  };
  const alone = (one: Instruction, length: number): Fragment => {
    return { code: [one], parts: 1, length, canBeEmpty: length === 0 };
  };
  const setFrom = (start: number): Fragment => alone({ do: 'take', has: testOf(source.slice(start, at)) }, 1);

  const choice = (): Fragment => {
    const branches: Fragment[] = [];
    let parts = 0;
    do {
      branches.push(sequence());
      parts += branches.at(-1)!.parts;
      counted(parts);
    } while (skip('|'));
    if (branches.length === 1) return branches[0]!;
    const code: Instruction[] = [];
    for (const branch of branches.toReversed()) {
      if (code.length === 0) code.unshift(...branch.code);
      else {
        const jump = { do: 'jump', by: code.length + 1 } as const;
        code.unshift({ do: 'try', first: 1, second: branch.code.length + 2 }, ...branch.code, jump);
      }
    }
    const { length } = branches[0]!;
    return {
      code,
      parts: parts + 1,
      length: branches.every((branch) => branch.length === length) ? length : Number.NaN,
      canBeEmpty: branches.some((branch) => branch.canBeEmpty),
    };
  };
  const sequence = (): Fragment => {
    const list: Fragment[] = [];
    let parts = 0;
    while (at < source.length && source[at] !== '|' && source[at] !== ')') {
      list.push(quantified());
      parts += list.at(-1)!.parts;
      counted(parts);
    }
    return {
      code: list.flatMap(({ code }) => code),
      parts: parts + 1,
      length: list.reduce((sum, { length }) => sum + length, 0),
      canBeEmpty: list.every(({ canBeEmpty }) => canBeEmpty),
    };
  };
  const quantified = (): Fragment => {
    const start = at;
    const part = atom();
    const found = take(QUANTIFIER);
    if (!found) return part;
    const [sign, low, comma, high, lazy] = found;
    const counts = { '*': [0, Infinity], '+': [1, Infinity], '?': [0, 1] }[sign[0]!];
    const least = counts?.[0] ?? Number(low);
    const most = counts?.[1] ?? (comma === '' ? least : high === '' ? Infinity : Number(high));
    if (most === Infinity && part.canBeEmpty) unsupported('repeats of a part that can be empty', start);
    const optional = most === Infinity ? 1 : most - least;
    const parts = counted(part.parts * (least + optional));
    const turn: Program = part.canBeEmpty ? [{ do: 'mark' }, ...part.code, { do: 'moved' }] : part.code;
    const again: Program = most === Infinity ? [...turn, { do: 'jump', by: -1 - turn.length }] : turn;
    const code = Array.from({ length: least }, () => part.code).flat();
    for (let left = optional; left > 0; left--) {
      const end = left * (1 + again.length);
      code.push({ do: 'try', first: lazy ? end : 1, second: lazy ? 1 : end }, ...again);
    }
    const length = least === most ? part.length * least : Number.NaN;
    return { code, parts, length, canBeEmpty: least === 0 || part.canBeEmpty };
  };
  const atom = (): Fragment => {
    if (skip('^')) return alone({ do: 'start' }, 0);
    if (skip('$')) return alone({ do: 'end' }, 0);
    const start = at;
    if (skip('(')) return group(start);
    if (skip('[')) while (!skip(']')) at += source[at] === '\\' ? 2 : 1;
    else if (skip('\\')) {
      const [rest] = take(ESCAPE)!;
      if (rest === 'b' || rest === 'B') unsupported('word boundaries', start);
      if (/^(?:[1-9]|k<)/.test(rest)) unsupported('back-references', start);
    } else at += source.codePointAt(at)! > 0xffff ? 2 : 1;
    return setFrom(start);
  };
  const group = (start: number): Fragment => {
    const next = 'Rewrite the pattern with fewer groups.';
    if (++depth > MAX_NESTING) fail('UNSUPPORTED', where, `groups nest more than ${MAX_NESTING} deep. ${next}`);
    const look = take(LOOK);
    const named = look ? null : take(NAME_OR_FLAGS);
    if (named && named[0] !== '?:' && named[0][1] !== '<') unsupported('flags inside', start);
    const part = choice();
    at++;
    depth--;
    if (!look) return part;
    const behind = look[1] === '<' ? part.length : 0;
    if (Number.isNaN(behind)) unsupported('look-behinds of varying length', start);
    const program: Program = [...part.code, { do: 'match' }];
    const one = alone({ do: 'look', program, behind, negative: look[2] === '!' }, 0);
    return { ...one, parts: counted(part.parts) };
  };
  return [...choice().code, { do: 'match' }];
}

/** Tests a character with an escape or a class, by JavaScript's own engine. */
function testOf(source: string): (codePoint: number) => boolean {
  const pattern = new RegExp(`^${source}$`, 'u');
  const known = new Map<number, boolean>();
  return (codePoint) => {
    const answer = known.get(codePoint) ?? pattern.test(String.fromCodePoint(codePoint));
    known.set(codePoint, answer);
    return answer;
  };
}
