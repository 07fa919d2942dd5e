/**
 * Chat templates: messages → the text that a model was trained to answer.
 *
 * A template is a program in Jinja that came with the model; @huggingface/jinja runs it. It sees the messages and a few texts,
 * and has no way to files, network or this library; bounded-jinja.ts ends one that takes too long or too much memory.
 *
 * @module
 */

import { RopewalkError } from 'ropewalk';
import { reading, readList, readOptions, refuse, show } from 'ropewalk/backend';
import { checkTokenizer, checkTypes } from './arguments.js';
import { type Program, parseTemplate, renderBounded } from './bounded-jinja.js';
import type { Tokenizer } from './types.js';

/** One message. Templates may read further fields, such as `name` or `tool_calls`. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, or what else the template knows. */
  readonly role: string;
  readonly content: string;
  readonly [field: string]: unknown;
}

/** How {@link renderChat} renders. */
export interface ChatOptions {
  /** Ends with the start of the assistant's turn, the default; false for a conversation as it stands. */
  readonly addGenerationPrompt?: boolean;
  /** One of the model's templates by name, where it has several; `default` unless given. */
  readonly template?: string;
  /** A template's text, instead of the model's own. */
  readonly templateText?: string;
  /** Further variables for the template, such as `tools`, `documents` or `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** JSON schemas of tools stay below twenty. */
const MAX_DEPTH = 100;
/** A conversation of this many messages fits no context; a list by mistake is refused before it is rendered. */
const MAX_MESSAGES = 2 ** 16;

/**
 * Renders messages with the model's chat template. Encode the text with `{ parseSpecial: true, addBos: false }`: templates
 * write BOS themselves where the model wants it, as in transformers.
 *
 * @param tokenizer - has the templates, and the texts of BOS and EOS
 * @param messages - oldest first
 * @param given - options
 * @throws {RopewalkError} UNSUPPORTED for a model without a template; RANGE for messages that are none, or that the template
 *   refuses; FORMAT for a template that is no Jinja, or cannot be rendered
 * @see https://huggingface.co/docs/transformers/main/en/chat_templating
 */
export function renderChat(tokenizer: Tokenizer, messages: readonly ChatMessage[], given: ChatOptions = {}): string {
  checkTokenizer(tokenizer, 'chat');
  const options = readOptions(given, 'chat: options');
  checkTypes(options, ['template', 'templateText'], 'string', 'chat');
  checkTypes(options, ['addGenerationPrompt'], 'boolean', 'chat');
  const { addGenerationPrompt = true, templateText } = options;
  const variables = plain(readOptions(options.variables ?? {}, 'chat: variables'), 'chat: variables');
  const name = options.template ?? 'default';
  const list = typeof messages === 'object' ? readList(messages, 'chat: messages', 'a list of messages') : [];
  if (list.length === 0) refuse('RANGE', 'chat: messages', 'a list of at least one message', messages);
  if (list.length > MAX_MESSAGES) refuse('RANGE', 'chat: messages', `at most ${MAX_MESSAGES} messages`, list.length);
  const copies = Array.from(list, (message, n) =>
    plain(readOptions(message ?? {}, `chat: messages[${n}]`), `chat: messages[${n}]`),
  );
  for (const [n, { role, content }] of copies.entries()) {
    if (typeof role !== 'string' || role === '')
      refuse('RANGE', `chat: messages[${n}].role`, 'a text such as user or assistant', role);
    if (typeof content !== 'string') refuse('RANGE', `chat: messages[${n}].content`, 'a text', content);
  }
  const source = templateText ?? tokenizer.chatTemplates.get(name);
  if (source === undefined) {
    const names = [...tokenizer.chatTemplates.keys()];
    const next =
      names.length > 0
        ? `Name one of its templates: ${names.map(show).join(', ')}.`
        : 'It may be no chat model: give it a text to continue, or a template of your own.';
    refuse(
      'UNSUPPORTED',
      'chat: template',
      `a model with a chat template ${show(name)}`,
      names.length > 0 ? names : 'none',
      next,
    );
  }
  let template: Program;
  try {
    template = parseTemplate(source);
  } catch (error) {
    throw wrapped('a Jinja template', error);
  }
  const special = (id: number | undefined): string => (id === undefined ? '' : (tokenizer.tokenText(id) ?? ''));
  try {
    return renderBounded(template, {
      bos_token: special(tokenizer.bosToken),
      eos_token: special(tokenizer.eosTokens[0]),
      // Templates test for these; an undefined name is false to some and an error to others.
      tools: null,
      documents: null,
      ...variables,
      messages: copies,
      add_generation_prompt: addGenerationPrompt,
    });
  } catch (error) {
    throw wrapped('one that can be rendered with these messages', error);
  }
}

/** Copies what a template sees, list by list: one with holes, or that holds itself, would not end. */
function plain<T>(value: T, where: string, depth = 0): T {
  if (typeof value !== 'object' || value === null) return value;
  if (depth > MAX_DEPTH) refuse('RANGE', where, `lists and objects at most ${MAX_DEPTH} deep`, 'deeper ones');
  if (reading(where, () => Array.isArray(value)))
    return Array.from(readList(value as unknown[], where), (item) => plain(item, where, depth + 1)) as T;
  const fields = Object.entries(readOptions(value as object, where));
  return Object.fromEntries(fields.map(([key, item]) => [key, plain(item, where, depth + 1)])) as T;
}

/** Mistakes of a template arrive as plain errors. */
function wrapped(expected: string, error: unknown): RopewalkError {
  if (error instanceof RopewalkError) return error;
  const said = (error instanceof Error ? error.message : String(error)) || 'break or continue outside of a loop';
  const next = 'Correct the template, or pass another as templateText.';
  return new RopewalkError(
    'FORMAT',
    `chat: template: expected ${expected}, got ${JSON.stringify(said.slice(0, 300))}. ${next}`,
    {
      cause: error,
    },
  );
}
