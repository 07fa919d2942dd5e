/**
 * Regular expressions from untrusted files, matched in bounded time.
 *
 * JavaScript's own engine cannot be interrupted, and takes 2^n steps for patterns such as `(a+)+$`. This one backtracks
 * too, with the same results, but it counts steps and refuses a text that takes too many. A book of a megabyte takes
 * 0.9 s; the engine's own takes 0.6 s.
 *
 * @module
 * @see https://tc39.es/ecma262/#sec-patterns, with the flag u
 */
import { fail } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';

/** Steps for each character of a text. Patterns of published tokenizers take 5 to 40. */
const STEPS_PER_CHARACTER = 128;
/** Further steps for each text. */
const STEPS_PER_TEXT = 4096;
/**
 * Unused steps are kept for harder texts, up to this many: some patterns look ahead over a long number at every third
 * digit.
 */
const STEPS_KEPT = 2 ** 20;
/** Parts of a pattern, with repeats such as `{1,50}` written out. Published patterns have a few hundred. */
const MAX_PARTS = 8192;
/** Groups inside groups. */
const MAX_NESTING = 100;

/** A parsed pattern. `behind`: how many characters a look-behind goes back; 0 for a look-ahead. */
type Node =
  | { readonly kind: 'set'; readonly has: (codePoint: number) => boolean }
  | { readonly kind: 'start' }
  | { readonly kind: 'end' }
  | { readonly kind: 'sequence'; readonly parts: readonly Node[] }
  | { readonly kind: 'choice'; readonly parts: readonly Node[] }
  | {
      readonly kind: 'repeat';
      readonly part: Node;
      readonly least: number;
      readonly most: number;
      readonly lazy: boolean;
      /** Whether the part can match nothing: a turn beyond the least that does is not taken. */
      readonly canBeEmpty: boolean;
    }
  | { readonly kind: 'look'; readonly part: Node; readonly behind: number; readonly negative: boolean };

/** One instruction of a program. After it comes the next one, unless it says otherwise. */
type Instruction =
  | { readonly do: 'take'; readonly has: (codePoint: number) => boolean }
  | { readonly do: 'start' | 'end' | 'match' }
  // Around a turn of a repeat: it fails where it has taken no character.
  | { readonly do: 'mark' | 'moved' }
  | { readonly do: 'jump'; to: number }
  | { readonly do: 'try'; first: number; second: number }
  | {
      readonly do: 'look';
      readonly program: readonly Instruction[];
      readonly behind: number;
      readonly negative: boolean;
    };

/** Where a turn of a repeat has begun, inside another one. */
interface Mark {
  readonly at: number;
  readonly outer: Mark | undefined;
}

/** A regular expression with the flags `gu` that takes a bounded number of steps for each match. */
export class BoundedRegExp extends RegExp {
  readonly #program: readonly Instruction[];
  readonly #where: string;
  #text: string | undefined;
  /** Steps that are left; shared with copies. */
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
    if (pattern instanceof BoundedRegExp) {
      this.#where = pattern.#where;
      this.#program = pattern.#program;
      this.#budget = pattern.#budget;
    } else {
      this.#where = where;
      this.#program = compile(new Parser(pattern.source, where).parse(), new Counter(where));
      this.#budget = { steps: STEPS_KEPT };
    }
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

  /** Where the match that starts at `start` ends. */
  #run(program: readonly Instruction[], text: string, start: number): number | undefined {
    const budget = this.#budget;
    /** What is left to try: pairs of instruction and place, the next one last; and the mark of each. */
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
          open.push(instruction.second, at);
          marks.push(mark);
          pc = instruction.first;
        } else if (instruction.do === 'jump') pc = instruction.to;
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

/** The place `count` characters before `at`, if there is one. */
function before(text: string, at: number, count: number): number | undefined {
  for (; count > 0; count--) {
    if (at === 0) return undefined;
    const pair = at > 1 && (text.codePointAt(at - 2) ?? 0) > 0xffff;
    at -= pair ? 2 : 1;
  }
  return at;
}

/** Counts parts, including those that match nothing, so that parsing and compiling stay short. */
class Counter {
  #parts = 0;
  readonly #where: string;

  constructor(where: string) {
    this.#where = where;
  }

  add(): void {
    if (++this.#parts <= MAX_PARTS) return;
    const next = 'Repeats with a count are written out: use smaller counts or fewer parts.';
    fail('UNSUPPORTED', this.#where, `the pattern has more than ${MAX_PARTS} parts. ${next}`);
  }
}

function compile(node: Node, counter: Counter): readonly Instruction[] {
  const program: Instruction[] = [];
  const add = <T extends Instruction>(instruction: T): T => {
    program.push(instruction);
    return instruction;
  };
  const write = (part: Node): void => {
    counter.add();
    if (part.kind === 'set') add({ do: 'take', has: part.has });
    else if (part.kind === 'start' || part.kind === 'end') add({ do: part.kind });
    else if (part.kind === 'sequence') for (const one of part.parts) write(one);
    else if (part.kind === 'look') {
      add({ do: 'look', program: compile(part.part, counter), behind: part.behind, negative: part.negative });
    } else if (part.kind === 'choice') {
      const ends: { to: number }[] = [];
      for (const [n, one] of part.parts.entries()) {
        const last = n === part.parts.length - 1;
        const fork = last ? undefined : add({ do: 'try', first: program.length + 1, second: 0 });
        write(one);
        if (!last) ends.push(add({ do: 'jump', to: 0 }));
        if (fork) fork.second = program.length;
      }
      for (const end of ends) end.to = program.length;
    } else {
      for (let n = 0; n < part.least; n++) write(part.part);
      const forks: { first: number; second: number }[] = [];
      const again = program.length;
      for (let n = part.least; n < part.most; n++) {
        forks.push(add({ do: 'try', first: program.length + 1, second: program.length + 1 }));
        if (part.canBeEmpty) add({ do: 'mark' });
        write(part.part);
        if (part.canBeEmpty) add({ do: 'moved' });
        if (part.most !== Infinity) continue;
        add({ do: 'jump', to: again });
        break;
      }
      for (const fork of forks) fork[part.lazy ? 'first' : 'second'] = program.length;
    }
  };
  write(node);
  add({ do: 'match' });
  return program;
}

/** The number of characters that a part matches; NaN when it varies. */
function lengthOf(node: Node): number {
  if (node.kind === 'set') return 1;
  if (node.kind === 'sequence') return node.parts.reduce((sum, part) => sum + lengthOf(part), 0);
  if (node.kind === 'choice') {
    const [first, ...others] = node.parts.map(lengthOf);
    return others.every((length) => length === first) ? first! : Number.NaN;
  }
  if (node.kind !== 'repeat') return 0;
  return node.least === node.most ? lengthOf(node.part) * node.least : Number.NaN;
}

function canBeEmpty(node: Node): boolean {
  if (node.kind === 'set') return false;
  if (node.kind === 'sequence') return node.parts.every(canBeEmpty);
  if (node.kind === 'choice') return node.parts.some(canBeEmpty);
  return node.kind === 'repeat' ? node.least === 0 || canBeEmpty(node.part) : true;
}

const QUANTIFIER = /(?:[*+?]|\{(\d+)(,?)(\d*)\})(\??)/y;
const LOOK = /\?(<?)([=!])/y;
const NAME_OR_FLAGS = /\?(?:<[^>]*>|[a-z-]*:)/y;
/** What follows the backslash of an escape. */
const ESCAPE = /[pPu]\{[^}]*\}|u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|x..|c.|k<[^>]*>|[1-9][0-9]*|[\s\S]/uy;

/** Parses a pattern that `new RegExp(source, 'u')` has accepted, so it does not look for mistakes. */
class Parser {
  #at = 0;
  #depth = 0;
  readonly #source: string;
  readonly #where: string;
  readonly #counter: Counter;

  constructor(source: string, where: string) {
    this.#source = source;
    this.#where = where;
    this.#counter = new Counter(where);
  }

  parse(): Node {
    const parts = [this.#sequence()];
    while (this.#skip('|')) parts.push(this.#sequence());
    return parts.length === 1 ? parts[0]! : { kind: 'choice', parts };
  }

  #skip(text: string): boolean {
    if (!this.#source.startsWith(text, this.#at)) return false;
    this.#at += text.length;
    return true;
  }

  /** What a sticky expression finds here. The parser moves behind it. */
  #take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source);
    this.#at += found?.[0].length ?? 0;
    return found;
  }

  #unsupported(what: string, start: number): never {
    const part = show(this.#source.slice(start, this.#at));
    return fail(
      'UNSUPPORTED',
      this.#where,
      `${what} are not supported, such as ${part}. Rewrite the pattern without them.`,
    );
  }

  #sequence(): Node {
    const parts: Node[] = [];
    while (this.#at < this.#source.length && this.#source[this.#at] !== '|' && this.#source[this.#at] !== ')')
      parts.push(this.#quantified());
    return { kind: 'sequence', parts };
  }

  #quantified(): Node {
    this.#counter.add();
    const start = this.#at;
    const part = this.#atom();
    const found = this.#take(QUANTIFIER);
    if (!found) return part;
    const [sign, least, comma, most, lazy] = found;
    const counts = { '*': [0, Infinity], '+': [1, Infinity], '?': [0, 1] }[sign[0]!] ?? [
      Number(least),
      comma === '' ? Number(least) : most === '' ? Infinity : Number(most),
    ];
    const empty = canBeEmpty(part);
    if (counts[1] === Infinity && empty) this.#unsupported('repeats of a part that can be empty', start);
    return { kind: 'repeat', part, least: counts[0]!, most: counts[1]!, lazy: lazy === '?', canBeEmpty: empty };
  }

  #atom(): Node {
    if (this.#skip('^')) return { kind: 'start' };
    if (this.#skip('$')) return { kind: 'end' };
    const start = this.#at;
    if (this.#skip('(')) return this.#group(start);
    if (this.#skip('[')) {
      while (!this.#skip(']')) this.#at += this.#source[this.#at] === '\\' ? 2 : 1;
      return setOf(this.#source.slice(start, this.#at));
    }
    if (this.#skip('\\')) return this.#escape(start);
    this.#at += this.#source.codePointAt(this.#at)! > 0xffff ? 2 : 1;
    return setOf(this.#source.slice(start, this.#at));
  }

  #group(start: number): Node {
    if (++this.#depth > MAX_NESTING)
      fail(
        'UNSUPPORTED',
        this.#where,
        `groups nest more than ${MAX_NESTING} deep. Rewrite the pattern with fewer groups.`,
      );
    const look = this.#take(LOOK);
    const named = look ? null : this.#take(NAME_OR_FLAGS);
    if (named && named[0] !== '?:' && named[0][1] !== '<') this.#unsupported('flags inside', start);
    const part = this.parse();
    this.#at++;
    this.#depth--;
    if (!look) return part;
    const behind = look[1] === '<' ? lengthOf(part) : 0;
    if (Number.isNaN(behind)) this.#unsupported('look-behinds of varying length', start);
    return { kind: 'look', part, behind, negative: look[2] === '!' };
  }

  #escape(start: number): Node {
    const [rest] = this.#take(ESCAPE)!;
    if (rest === 'b' || rest === 'B') this.#unsupported('word boundaries', start);
    if (/^(?:[1-9]|k<)/.test(rest)) this.#unsupported('back-references', start);
    return setOf(this.#source.slice(start, this.#at));
  }
}

/** A character, an escape or a class. JavaScript's own engine tests it on one character. */
function setOf(source: string): Node {
  const pattern = new RegExp(`^${source}$`, 'u');
  const known = new Map<number, boolean>();
  const has = (codePoint: number): boolean => {
    const answer = known.get(codePoint) ?? pattern.test(String.fromCodePoint(codePoint));
    known.set(codePoint, answer);
    return answer;
  };
  return { kind: 'set', has };
}
