/**
 * Reads the normalizer and the pre-tokenizer of a tokenizer.json.
 *
 * @huggingface/tokenizers runs them, except for splits and SentencePiece's table of replacements, where it differs from
 *   HuggingFace's own program. Patterns are matched in bounded time.
 *
 * @module
 * @see huggingface/tokenizers@284a1db tokenizers/src/pre_tokenizers and tokenizers/src/tokenizer/normalizer.rs
 */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type Fields, show } from 'ropewalk/internal';
import { BoundedRegExp } from './bounded-regexp.js';
import { type Charsmap, readCharsmap } from './charsmap.js';
import { SPACE } from './sentencepiece.js';

/** The most times that normalizers may make a text longer. Real ones replace a character by one to three others. */
const MAX_GROWTH = 1024;
/**
 * The most characters of all patterns of a file: the library reads them in quadratic time. Real files have a few
 * thousand.
 */
const MAX_PATTERNS = 2 ** 14;
/** The fate of a match. The merging behaviors add it to a neighbour that is no match. */
const BEHAVIORS = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'] as const;

/** The characters of `\w` in Rust's regular expressions, which HuggingFace's own program has here. */
const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}';

/** The characters that are words of their own in BERT. */
const IDEOGRAPH =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

/** The steps of a text before its model sees it. */
export interface Steps {
  /** Undefined without a normalizer. */
  readonly normalize: ((text: string) => string) | undefined;
  /** Cuts a stretch of text into words; `section` is its number in the text, from 0. */
  split(text: string, section: number): string[];
}

/** @throws {RopewalkError} FORMAT for a malformed field or steps that would not end; UNSUPPORTED for an unknown step */
export function readSteps(root: Fields): Steps {
  const { where } = root;
  const limits: Limits = { growth: 1, patterns: 0, charsmaps: new Map() };
  const [normalizer, preTokenizer] = ['normalizer', 'pre_tokenizer'].map((key) => {
    const first = root.optionalObject(key);
    return first ? readStep(first, limits) : null;
  });
  const library = quietly(where, () => {
    const model = { type: 'BPE', vocab: {}, merges: [] };
    const rest = { added_tokens: [], post_processor: null, decoder: null, model };
    const made = new HuggingFaceTokenizer({ normalizer, pre_tokenizer: preTokenizer, ...rest } as never, {});
    for (const step of [made.normalizer, made.pre_tokenizer]) adjust(step, limits.charsmaps, where);
    return made;
  });
  const { normalizer: normalize, pre_tokenizer: split } = library;
  return {
    normalize: normalize ? (text) => normalize(text) : undefined,
    split: (text, section) => (split ? split(text, { section_index: section }) : [text]),
  };
}

/** Runs the library, and turns its plain errors into ours. */
export function quietly<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    const said = show(cause instanceof Error ? cause.message : String(cause));
    const message = `${where}: @huggingface/tokenizers cannot read this file: ${said}`;
    throw new RopewalkError('UNSUPPORTED', message, { cause });
  }
}

/** The sums and tables that the steps of a file share. */
interface Limits {
  growth: number;
  /** The characters of all patterns. */
  patterns: number;
  /** The tables by the steps that use them. */
  readonly charsmaps: Map<unknown, Charsmap>;
}

type Step = Readonly<Record<string, unknown>>;

/** Checks a step and those inside it. Steps that only split become the step `Split`. */
function readStep(step: Fields, limits: Limits): Step {
  const type = step.text('type');
  const copy = Object.fromEntries(step.keys().map((key) => [key, step.raw(key) ?? null]));
  const split = (pattern: Step, behavior: string, invert = false): Step => {
    return { type: 'Split', pattern, behavior, invert };
  };
  switch (type) {
    case 'Sequence': {
      const key = step.has('normalizers') ? 'normalizers' : 'pretokenizers';
      return { type, [key]: step.objects(key).map((inner) => readStep(inner, limits)) };
    }
    case 'FixedLength':
      step.integer('length', 1, 2 ** 31 - 1);
      return copy;
    case 'Precompiled': {
      const charsmap = readTable(step);
      limits.charsmaps.set(copy, charsmap);
      limits.growth = checkGrowth(step, 'precompiled_charsmap', limits.growth * charsmap.growth);
      return copy;
    }
    case 'Replace': {
      const pattern = readPattern(step, limits);
      // A pattern may match the empty text, and then puts the content between any two characters.
      const content = (step.optionalText('content') ?? '').length;
      const times = typeof pattern.String === 'string' ? Math.max(1, content / pattern.String.length) : 1 + content;
      limits.growth = checkGrowth(step, 'content', limits.growth * times);
      return copy;
    }
    case 'Split':
      return split(readPattern(step, limits), behaviorOf(step), step.flag('invert'));
    case 'Digits':
      return split({ Regex: step.flag('individual_digits') ? '\\p{N}' : '\\p{N}+' }, 'Isolated');
    case 'Punctuation':
      return split({ Regex: '[\\p{P}!-/:-@\\[-`{-~]' }, step.has('behavior') ? behaviorOf(step) : 'Isolated');
    case 'Whitespace':
      return split({ Regex: `[${WORD}]+|[^${WORD}\\s]+` }, 'Removed', true);
    case 'WhitespaceSplit':
      return split({ Regex: '\\s+' }, 'Removed');
    case 'CharDelimiterSplit':
      return split({ String: step.text('delimiter') }, 'Removed');
    case 'Metaspace': {
      // Words begin with the mark of a space, unless the file leaves the text uncut.
      const replacement = step.optionalText('replacement') ?? SPACE;
      if (step.optionalFlag('split') === false) return copy;
      return { type: 'Sequence', pretokenizers: [copy, split({ String: replacement }, 'MergedWithNext')] };
    }
    default:
      return copy;
  }
}

function readPattern(step: Fields, limits: Limits): Step {
  const pattern = step.object('pattern');
  const [regex, text] = [pattern.optionalText('Regex'), pattern.optionalText('String')];
  if (regex !== undefined) {
    limits.patterns += regex.length;
    const sentence = `the patterns of the file have more than ${MAX_PATTERNS} characters together. Shorten them.`;
    if (limits.patterns > MAX_PATTERNS) fail('UNSUPPORTED', pattern.path('Regex'), sentence);
    return { Regex: regex };
  }
  return text ? { String: text } : step.refuse('FORMAT', 'pattern', 'a Regex or a String');
}

function behaviorOf(step: Fields): string {
  const given = step.text('behavior').toLowerCase();
  return (
    BEHAVIORS.find((one) => one.toLowerCase() === given) ?? step.refuse('FORMAT', 'behavior', BEHAVIORS.join(', '))
  );
}

function checkGrowth(step: Fields, key: string, growth: number): number {
  if (growth <= MAX_GROWTH) return growth;
  return fail('FORMAT', step.path(key), `replacements may make a text more than ${MAX_GROWTH} times longer`);
}

function readTable(step: Fields): Charsmap {
  const key = 'precompiled_charsmap';
  const encoded = step.text(key);
  let text: string;
  try {
    text = atob(encoded);
  } catch {
    return step.refuse('FORMAT', key, 'base64');
  }
  const bytes = Uint8Array.from(text, (byte) => byte.charCodeAt(0));
  return readCharsmap(bytes, step.path(key));
}

/** The fields of the library's steps that are used here. Its types leave them out. */
interface LibraryStep {
  config?: Step;
  pattern?: unknown;
  normalize?: (text: string) => string;
  pre_tokenize_text?: (text: string) => string[];
  tokenize_chinese_chars?: (text: string) => string;
  readonly normalizers?: readonly unknown[];
  readonly tokenizers?: readonly unknown[];
}

/**
 * Replaces the library's pattern matching, splits and tables of replacements by ours, and makes replacements plain
 * text: JavaScript would expand `$&` in them.
 */
function adjust(library: unknown, charsmaps: ReadonlyMap<unknown, Charsmap>, where: string): void {
  if (!library) return;
  const step = library as LibraryStep;
  for (const inner of step.normalizers ?? step.tokenizers ?? []) adjust(inner, charsmaps, where);
  const { config, pattern } = step;
  if (!config) return;
  const regex = (config.pattern as Step | undefined)?.Regex;
  if (regex !== undefined && pattern instanceof RegExp)
    step.pattern = new BoundedRegExp(pattern, pattern.flags, `${where}: pattern ${show(regex)}`);
  if (config.type === 'Replace' && typeof config.content === 'string')
    step.config = { ...config, content: config.content.replaceAll('$', '$$$$') };
  if (config.type === 'Split') {
    const { behavior, invert } = config as { readonly behavior: string; readonly invert: boolean };
    // The library isolates as HuggingFace's own program does, and it is faster.
    if (behavior !== 'Isolated' || invert)
      step.pre_tokenize_text = (text) => splitText(text, step.pattern as RegExp, behavior, invert);
  }
  // The library sees no ideographs behind U+FFFF.
  if (config.type === 'BertNormalizer') step.tokenize_chinese_chars = (text) => text.replace(IDEOGRAPH, ' $& ');
  const charsmap = charsmaps.get(config);
  if (charsmap) step.normalize = charsmap.replaceGraphemes;
}

/** Cuts a text at the matches of a pattern. With `invert`, the text between the matches counts as matches. */
function splitText(text: string, pattern: RegExp, behavior: string, invert: boolean): string[] {
  const parts: { readonly text: string; readonly match: boolean }[] = [];
  const add = (start: number, end: number, found: boolean): void => {
    const match = found !== invert;
    const before = parts.at(-1);
    const joins =
      before !== undefined &&
      (behavior === 'Contiguous'
        ? before.match === match
        : behavior === 'MergedWithPrevious'
          ? match && !before.match
          : behavior === 'MergedWithNext' && !match && before.match);
    if (joins) parts.pop();
    parts.push({ text: (joins ? before.text : '') + text.slice(start, end), match });
  };
  let at = 0;
  for (const { index, 0: found } of text.matchAll(pattern)) {
    if (index > at) add(at, index, false);
    at = index + found.length;
    add(index, at, true);
  }
  if (at < text.length) add(at, text.length, false);
  return parts.filter((part) => part.text !== '' && !(behavior === 'Removed' && part.match)).map((part) => part.text);
}
