/**
 * Renders messages with a chat template, as the text that a model was trained to answer.
 *
 * A template is a program in Jinja that comes with the model. It sees the messages and a few texts, and cannot reach
 * files, the network or this library. bounded-jinja.ts runs it.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, reading, readList, readOptions, show } from 'ropewalk/internal';
import { checkTokenizer, checkTypes } from './arguments.js';
import { renderBounded } from './bounded-jinja.js';
import type { Tokenizer } from './types.js';

/** One message. Templates may read further fields, such as `name` or `tool_calls`. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, or another role that the template knows. */
  readonly role: string;
  /** A text; a list of parts, `{ type: 'text', text }`; nothing beside `tool_calls`. */
  readonly content?: string | readonly ChatPart[] | null;
  readonly [field: string]: unknown;
}

/** A part of a message: a text, or another type that the template knows, but no image, sound or video. */
export interface ChatPart {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Options of {@link renderChat}. */
export interface ChatOptions {
  /** Whether the text ends with the start of the assistant's turn. Default: true. */
  readonly addGenerationPrompt?: boolean;
  /** The name of one of the model's templates. Default: `default`. */
  readonly template?: string;
  /** The text of a template that replaces the model's. */
  readonly templateText?: string;
  /** Further variables for the template, such as `tools`, `documents` or `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

const NAMES: OptionNames<ChatOptions> = /* @__PURE__ */ optionNames(
  'addGenerationPrompt template templateText variables',
);

/** The most lists inside lists. JSON schemas of tools stay below twenty. */
const MAX_DEPTH = 100;
/** No context has room for this many messages. */
const MAX_MESSAGES = 2 ** 16;

/**
 * Renders messages with the model's chat template. Encode the text with `{ parseSpecial: true, addBos: false }`: a
 * template writes BOS itself if the model wants it, as in transformers.
 *
 * @param tokenizer - has the templates, and the texts of BOS and EOS
 * @param messages - oldest first
 * @param given - options
 * @returns the text
 * @throws {RopewalkError} UNSUPPORTED for a model without a template; RANGE for malformed messages, and for messages
 *   that the template refuses; FORMAT for a template that is not Jinja, or fails with these messages
 * @example const text = renderChat(model.tokenizer, [{ role: 'user', content: 'Who are you?' }]);
 * @see https://huggingface.co/docs/transformers/main/en/chat_templating
 */
export function renderChat(tokenizer: Tokenizer, messages: readonly ChatMessage[], given: ChatOptions = {}): string {
  checkTokenizer(tokenizer, 'chat');
  const options = readOptions(given, 'chat: options', NAMES);
  const { addGenerationPrompt = true, template: name = 'default', templateText } = options;
  checkTypes({ template: name, templateText }, 'string', 'chat');
  checkTypes({ addGenerationPrompt }, 'boolean', 'chat');
  const variables = plain(readOptions(options.variables ?? {}, 'chat: variables'), 'chat: variables');
  const list = typeof messages === 'object' ? readList(messages, 'chat: messages', 'a list of messages') : [];
  if (list.length === 0) refuse('RANGE', 'chat: messages', 'a list of at least one message', messages);
  if (list.length > MAX_MESSAGES) refuse('RANGE', 'chat: messages', `at most ${MAX_MESSAGES} messages`, list.length);
  const copies = Array.from(list, (message, n) =>
    plain(readOptions(message ?? {}, `chat: messages[${n}]`), `chat: messages[${n}]`),
  );
  for (const [n, { role, content, tool_calls: calls }] of copies.entries()) {
    if (typeof role !== 'string' || role === '')
      refuse('RANGE', `chat: messages[${n}].role`, 'a string such as user or assistant', role);
    const where = `chat: messages[${n}].content`;
    if (Array.isArray(content)) for (const [i, part] of content.entries()) checkPart(part, `${where}[${i}]`);
    else if (typeof content !== 'string' && !(content == null && calls)) refuse('RANGE', where, 'a string', content);
  }
  const source = templateText ?? tokenizer.chatTemplates.get(name);
  if (source === undefined) {
    const names = [...tokenizer.chatTemplates.keys()];
    const sentence =
      names.length > 0
        ? `the model has no template ${show(name)}. Name one of its own: ${names.map(show).join(', ')}.`
        : 'the model has no chat template. Give it a text to continue, or a template of your own.';
    fail('UNSUPPORTED', 'chat: template', sentence);
  }
  const special = (id: number | undefined): string => (id === undefined ? '' : (tokenizer.tokenText(id) ?? ''));
  const specials = reading('chat: tokenizer', () => ({
    bos_token: special(tokenizer.bosToken),
    eos_token: special(tokenizer.eosTokens[0]),
  }));
  return renderBounded(source, {
    ...specials,
    // Templates test for these two. To some of them an undefined name is false, to others an error.
    tools: null,
    documents: null,
    ...variables,
    messages: copies,
    add_generation_prompt: addGenerationPrompt,
  });
}

function checkPart(part: unknown, where: string): void {
  const { type } = (part ?? {}) as { readonly type?: unknown };
  if (typeof type !== 'string') refuse('RANGE', where, "a part such as { type: 'text', text: '…' }", part);
  if (/image|video|audio/.test(type)) {
    const next = 'This decoder reads text: leave the part out, or describe it.';
    refuse('UNSUPPORTED', where, 'a part of text', type, next);
  }
}

/** Copies the values that a template sees. A list with holes, or one that contains itself, is refused. */
function plain<T>(value: T, where: string, depth = 0): T {
  if (typeof value !== 'object' || value === null) return value;
  if (depth > MAX_DEPTH) fail('RANGE', where, `its lists and objects are nested more than ${MAX_DEPTH} deep`);
  if (reading(where, () => Array.isArray(value)))
    return Array.from(readList(value as unknown[], where), (item) => plain(item, where, depth + 1)) as T;
  const fields = Object.entries(readOptions(value as object, where));
  return Object.fromEntries(fields.map(([key, item]) => [key, plain(item, where, depth + 1)])) as T;
}
