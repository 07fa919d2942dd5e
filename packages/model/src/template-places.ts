/**
 * Finds the line and tag of a mistake in a chat template, for messages.
 *
 * The tokens and nodes of @huggingface/jinja have no places. So the tags of the text are counted: the library reads
 * them in the same order. This runs only after a mistake.
 *
 * @module
 */
import { parse, tokenize } from '@huggingface/jinja';
import { show } from 'ropewalk/internal';
import type { Node } from './jinja-text.js';

/** `{{ … }}`, `{% … %}` or `{# … #}` */
interface Tag {
  readonly start: number;
  readonly text: string;
}

type Token = ReturnType<typeof tokenize>[number];

/** transformers trims blocks in this way. */
export const TRIMMED = { lstrip_blocks: true, trim_blocks: true } as const;

const OPEN = /\{[{%#]/g;
/** A part of a tag: its end, a text in quotes, or other text. */
const PART = /[%}]\}|[^"'%}]+|"(?:\\[\s\S]|[^"\\])*"|'(?:\\[\s\S]|[^'\\])*'|[\s\S]/y;
/** The library removes these tags before it reads the others. */
const GENERATION = /^\{%-?\s*(?:end)?generation\s*-?%\}$/;
const BLOCK = /^\{%-?\s*(end)?(if|for|macro|call|filter)\b/;
/** Messages of the parser that say more than the token does. */
const PLAIN = /^(Unknown statement type|Expected `in`)/;
const MAX_SHOWN = 60;

function tagsOf(source: string): Tag[] {
  const tags: Tag[] = [];
  OPEN.lastIndex = 0;
  for (let found = OPEN.exec(source); found; found = OPEN.exec(source)) {
    const start = found.index;
    const end = found[0] === '{#' ? source.indexOf('#}', start + 2) + 2 : endOfTag(source, start + 2);
    const text = source.slice(start, end > start ? end : undefined);
    if (!GENERATION.test(text)) tags.push({ start, text });
    OPEN.lastIndex = start + text.length;
  }
  return tags;
}

/** Returns -1 for a tag without an end. */
function endOfTag(source: string, from: number): number {
  PART.lastIndex = from;
  for (let part = PART.exec(source); part; part = PART.exec(source))
    if (/^[%}]\}$/.test(part[0])) return PART.lastIndex;
  return -1;
}

function placeOf(source: string, tag: Tag | undefined): string {
  if (!tag) return '';
  const line = source.slice(0, tag.start).split('\n').length;
  const text = tag.text.replace(/[\s\p{C}]+/gu, ' ');
  return `line ${line}, ${text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text}`;
}

const opensTag = ({ type }: Token): boolean => /^(OpenStatement|OpenExpression|Comment)$/.test(type);

/** Finds the place where a template stops being Jinja, and the reason. `said` is the library's message. */
export function placeOfMistake(source: string, said: string): { readonly place: string; readonly why: string } {
  const tags = tagsOf(source);
  let tokens: Token[];
  try {
    tokens = tokenize(source, TRIMMED);
  } catch {
    return { place: placeOf(source, firstUnread(source, tags)), why: said };
  }
  let reached = 0;
  const watched = new Proxy(tokens, {
    get(list, key, receiver) {
      if (typeof key === 'string' && Number(key) > reached) reached = Number(key);
      return Reflect.get(list, key, receiver);
    },
  });
  try {
    parse(watched);
  } catch {
    const token = tokens[reached];
    const open = token ? undefined : openBlock(tags);
    if (open) return { place: placeOf(source, open.tag), why: `{% end${open.name} %} is missing` };
    // If a tag begins where the one before it should end, the mistake is in the one before.
    const place = placeOf(source, tags[tokens.slice(0, reached).filter(opensTag).length - 1] ?? tags[0]);
    if (!token) return { place, why: 'the template ends inside' };
    return { place, why: PLAIN.test(said) ? said : `${show(token.value)} is not expected here` };
  }
  return { place: '', why: said };
}

/** Returns the first tag that cannot be split into tokens. */
function firstUnread(source: string, tags: readonly Tag[]): Tag | undefined {
  let [low, high] = [0, tags.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    try {
      tokenize(source.slice(0, tags[middle]!.start), TRIMMED);
      low = middle;
    } catch {
      high = middle - 1;
    }
  }
  return tags[low];
}

/** Returns the innermost block without an end. */
function openBlock(tags: readonly Tag[]): { readonly tag: Tag; readonly name: string } | undefined {
  const open: { tag: Tag; name: string }[] = [];
  for (const tag of tags) {
    const [, end, name] = BLOCK.exec(tag.text) ?? [];
    if (name === undefined) continue;
    if (!end) open.push({ tag, name });
    else if (open.at(-1)?.name === name) open.pop();
  }
  return open.at(-1);
}

/** Finds the place of a statement or expression of a parsed template; '' when it is not known. */
export function placeOfNode(source: string, program: Node, node: Node | undefined): string {
  const tokens = tokenize(source, TRIMMED);
  const tags = tagsOf(source);
  /** The tag of each node in the order of the text; undefined for text between tags. */
  const order: (Tag | undefined)[] = [];
  let count = 0;
  for (const [n, token] of tokens.entries()) {
    if (token.type === 'Text') order.push(undefined);
    if (!opensTag(token)) continue;
    const word = token.type === 'OpenStatement' ? tokens[n + 1]?.value : undefined;
    if (!/^(?:else|end)/.test(word ?? '')) order.push(tags[count]);
    count++;
  }
  const nodes = addInOrder(program.body ?? [], []);
  const known = node !== undefined && nodes.length === order.length && count === tags.length;
  return known ? placeOf(source, order[nodes.indexOf(node)]) : '';
}

/** Adds nodes in the order of the text, each before its blocks. */
function addInOrder(nodes: readonly Node[], to: Node[]): Node[] {
  for (const node of nodes) {
    to.push(node);
    addInOrder(node.body ?? [], to);
    addInOrder(node.alternate ?? node.defaultBlock ?? [], to);
  }
  return to;
}
