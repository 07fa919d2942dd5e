/**
 * `ropewalk generate`: a model continues a text or answers a message, token by token.
 *
 * The text goes to stdout as it is generated, everything else to stderr: `ropewalk generate … > story.txt` holds the
 * story alone.
 *
 * @module
 */
import { type ChatMessage, type Generation, generate as generateText, type Model, type Prompt } from '@ropewalk/model';
import { checkGenerateOptions, type Pace } from '@ropewalk/model/internal';
import { fail } from 'ropewalk/backend';
import { type EngineOptions, engineOf } from './engine.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, printJson } from './output.js';
import { loadForCommand } from './run-model.js';
import { readPrompt } from './text-input.js';

export type GenerateCommandOptions = EngineOptions &
  Texts<'prompt' | 'file' | 'maxTokens' | 'temperature' | 'topK' | 'topP'> &
  Texts<'minP' | 'repetitionPenalty' | 'seed' | 'system' | 'onFull'> &
  Switches<'chat' | 'ignoreEos'> & { readonly stop?: readonly string[] };

/** The default sampling of the bundled model, from its generation_config.json: its likeliest tokens soon repeat. */
const BOX_SAMPLING = { temperature: 0.8, topP: 0.95 } as const;
/** The exit code of a program that Ctrl-C ended. */
const INTERRUPTED = 130;

/**
 * @param argument - the prompt, or with `chat` a message. `-` reads it from stdin, as does a pipe without any prompt.
 *   Default: the model's start token alone
 * @returns 0, or 130 when Ctrl-C ended it
 */
export async function generate(argument: string | undefined, options: GenerateCommandOptions): Promise<number> {
  const flags = new Flags(options);
  const file = flags.text('session');
  if (!options.chat) flags.refuseAny(['system'], 'it needs --chat.', 'UNSUPPORTED');
  const box = options.model === undefined && options.temperature === undefined;
  const sampling = {
    temperature: box ? BOX_SAMPLING.temperature : flags.number('temperature'),
    topP: flags.number('topP') ?? (box ? BOX_SAMPLING.topP : undefined),
    topK: flags.number('topK'),
    minP: flags.number('minP'),
    repetitionPenalty: flags.number('repetitionPenalty'),
    maxTokens: flags.number('maxTokens'),
    seed: options.seed === '-1' ? undefined : flags.number('seed'), // -1 means a random seed, as in llama.cpp
    onFull: options.onFull as 'stop' | 'shift', // the library refuses other words
    stop: options.stop,
    ignoreEos: options.ignoreEos,
  };
  checkGenerateOptions(sampling); // refuses bad options before a large model is read
  const prompt = await readPrompt('generate', argument, options);
  if (options.chat && !prompt.text) fail('RANGE', 'prompt', '--chat needs a message to answer. Give a prompt.');
  const abort = new AbortController();
  const interrupt = (): void => abort.abort();
  process.once('SIGINT', interrupt);
  let model: Model | undefined;
  try {
    model = await loadForCommand(options, abort.signal, { engine: (threads) => engineOf(options, threads) });
    prompt.warnUnread();
    if (options.chat && !model.tokenizer.chatTemplates.has('default')) {
      const which = model.tokenizer.chatTemplates.size === 0 ? 'chat template' : 'chat template named default';
      fail('UNSUPPORTED', '--chat', `the model has no ${which}. Without --chat it continues the prompt.`);
    }
    if (prompt.text === '')
      process.stderr.write("ropewalk: generate: the prompt is empty: the text starts from the model's start token\n");
    const start = options.chat ? messagesOf(prompt.text!, options.system) : (prompt.text ?? '');
    const echo = !options.chat && !options.json ? (prompt.text ?? '') : '';
    const show = { echo, quiet: options.json === true };
    const settings = { ...sampling, signal: abort.signal };
    const end = await (file === undefined
      ? stream(model, start, settings, show)
      : (await import('./kept-session.js')).inSession(model, file, (session) =>
          stream(model!, start, { ...settings, session }, show),
        ));
    if (options.json) printJson({ ...end, backend: model.backend });
    else {
      if (!end.text.endsWith('\n')) process.stdout.write('\n');
      process.stderr.write(`${summary(end, model.backend, (sampling.temperature ?? 0) > 0)}\n`);
    }
    return end.reason === 'abort' ? INTERRUPTED : EXIT.ok;
  } catch (error) {
    if (abort.signal.aborted && error === abort.signal.reason) return INTERRUPTED;
    throw error;
  } finally {
    process.off('SIGINT', interrupt);
    model?.dispose();
  }
}

/** Writes the prompt, if it is shown, and the text as it is generated. */
async function stream(
  model: Model,
  prompt: Prompt,
  options: Parameters<typeof generateText>[2],
  { echo, quiet }: { readonly echo: string; readonly quiet: boolean },
): Promise<Generation> {
  let before = echo;
  for await (const item of generateText(model, prompt, options)) {
    if (!quiet) process.stdout.write(before + item.text);
    before = '';
    if (item.end) return item.end;
  }
  throw new Error('a generation ends with its summary');
}

function messagesOf(prompt: string, system: string | undefined): ChatMessage[] {
  return [...(system === undefined ? [] : [{ role: 'system', content: system }]), { role: 'user', content: prompt }];
}

function summary(end: Generation, backend: string, sampled: boolean): string {
  const why = {
    length: end.contextFull ? 'the context is full (--on-full shift goes on)' : 'as many tokens as asked for',
    eos: 'the model ended its text',
    stop: `stopped before ${JSON.stringify(end.stop)}`,
    abort: 'interrupted',
  }[end.reason];
  const pace = (count: number, { tokens, tokensPerSecond }: Pace): string =>
    `${count} tokens${tokens > 0 ? ` at ${tokensPerSecond.toPrecision(3)}/s` : ''}`;
  // The first token comes with the prompt's batch, so that it does not count for the pace.
  const paces = `prompt ${pace(end.prefill.tokens, end.prefill)}, then ${pace(end.tokens.length, end.decode)}`;
  return `\n${backend}: ${paces}; ${why}${sampled ? `; seed ${end.seed}` : ''}`;
}
