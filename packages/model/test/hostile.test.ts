/**
 * Calls every public function of the decoder with a hostile value in place of each argument and field. The result is a
 * RopewalkError, or right.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { complaint, hostileCalls, misspeltCalls } from '../../../test/support/hostile.js';
import { tinyModel } from '../../../test/support/tiny-model.js';
import { describeModel } from '../src/description.js';
import { embed } from '../src/embed.js';
import { checkGenerateOptions, generate, keepSession } from '../src/generate.js';
import * as decoder from '../src/index.js';
import {
  byteSource,
  compareLogits,
  createSampler,
  fetchModelFiles,
  fetchSource,
  loadModel,
  logits,
  type Model,
  mebibytes,
  perplexity,
  renderChat,
  restoreSession,
  saveSession,
  tokenizerFromGguf,
  tokenizerFromJson,
} from '../src/index.js';
import { kernelEngine } from '../src/kernels.js';
import * as onDisk from '../src/node.js';
import { describeModelPath, loadModelFile, loadModelFolder, loadModelPath } from '../src/node.js';
import { planModel } from '../src/plan-model.js';
import * as repack from '../src/repack.node.js';
import type { HoldOptions } from '../src/weights.js';

const VOCAB = 40;
const CHAT = '{{ messages[0].content }}';
const metadata = (): Map<string, string | boolean | number | string[]> =>
  new Map<string, string | boolean | number | string[]>([
    ['tokenizer.ggml.model', 'llama'],
    ['tokenizer.ggml.tokens', Array.from({ length: VOCAB }, (_, id) => String.fromCharCode(97 + id))],
    ['tokenizer.ggml.add_bos_token', false],
    ['tokenizer.ggml.unknown_token_id', 0],
    ['tokenizer.chat_template', CHAT],
  ]);
const tokenizerJson = () => ({
  model: { type: 'BPE', vocab: { a: 0, b: 1, '<s>': 2 }, merges: [] },
  decoder: { type: 'ByteLevel' },
  added_tokens: [{ id: 2, content: '<s>', special: true }],
  pre_tokenizer: { type: 'Split', pattern: { Regex: 'a|b' }, behavior: 'Isolated' },
});
const tokenizer = tokenizerFromGguf(metadata());
const { files, description } = await (async () => {
  const shape = {
    family: 'llama',
    layers: 1,
    hidden: 8,
    heads: 2,
    kvHeads: 1,
    headDim: 4,
    inter: 8,
    vocab: VOCAB,
    context: 16,
  } as const;
  const files = tinyModel('hostile', shape).gguf();
  return { files, description: await describeModel(files) };
})();
const signal = new AbortController().signal;
let rw: Ropewalk;
let model: Model;
let saved: Uint8Array;

before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  model = await loadModel(files, { backend: rw, tokenizer });
  const kept = keepSession(model, { context: 8 });
  for await (const _ of generate(model, { tokens: [1, 2] }, { session: kept, maxTokens: 1 }));
  saved = await saveSession(model, kept);
  kept.dispose();
});
after(() => {
  model.dispose();
  rw.dispose();
});

const sampling = () => ({
  temperature: 1,
  topK: 3,
  topP: 0.9,
  minP: 0.1,
  repetitionPenalty: 1.1,
  repetitionWindow: 4,
  seed: 1,
});
const messages = () => [{ role: 'user', content: 'ab' }];
const session = async <T>(use: (opened: ReturnType<Model['openSession']>) => Promise<T> | T): Promise<T> => {
  const opened = model.openSession({ context: 8 });
  try {
    return await use(opened);
  } finally {
    opened.dispose();
  }
};
const disposed = (made: { dispose(): void }): void => made.dispose();

/** The calls by name, with arguments that work, and perhaps the number of levels that are taken apart. */
const CALLS: Record<
  string,
  readonly [call: (...args: never[]) => unknown, valid: () => readonly unknown[], depth?: number]
> = {
  generate: [
    async (...args: Parameters<typeof generate>) => {
      const tokens: number[] = [];
      for await (const { end } of generate(...args)) tokens.push(...(end?.tokens ?? []));
      return tokens;
    },
    () => {
      const options = {
        maxTokens: 2,
        stop: ['zz'],
        stopTokens: [5],
        ignoreEos: true,
        signal,
        context: 8,
        cacheDtype: 'f16',
        addBos: false,
      };
      return [
        model,
        'ab',
        { ...sampling(), ...options, onFull: 'stop', keep: 1, parseSpecial: true, session: undefined, chat: {} },
      ];
    },
    1,
  ],
  'generate from tokens': [
    (...args: Parameters<typeof generate>) => generate(...args).next(),
    () => [model, { tokens: [1, 2] }, { maxTokens: 1 }],
  ],
  'generate from messages': [
    (...args: Parameters<typeof generate>) => generate(...args).next(),
    () => [model, messages(), { maxTokens: 1, chat: { templateText: CHAT } }],
  ],
  checkGenerateOptions: [checkGenerateOptions, () => [{ ...sampling(), maxTokens: 2, stop: ['zz'], signal, keep: 1 }]],
  keepSession: [
    (...args: Parameters<typeof keepSession>) => disposed(keepSession(...args)),
    () => [model, { context: 8, cacheDtype: 'f32' }],
  ],
  saveSession: [saveSession, () => [model, keepSession(model, { context: 8 })], 1],
  restoreSession: [
    async (...args: Parameters<typeof restoreSession>) => disposed(await restoreSession(...args)),
    () => [model, saved, { context: 8, cacheDtype: 'f32' }],
  ],
  openSession: [
    (...args: Parameters<Model['openSession']>) => disposed(model.openSession(...args)),
    () => [{ context: 8, cacheDtype: 'f32' }],
  ],
  append: [
    (...args: [number[], object]) => session((opened) => opened.append(...args)),
    () => [[1, 2], { logits: 'last', signal }],
    1,
  ],
  truncate: [(length: number) => session((opened) => opened.truncate(length)), () => [0]],
  shift: [(...args: [number, number]) => session((opened) => opened.shift(...args)), () => [0, 0]],
  hidden: [(tokens: number[]) => model.hidden(tokens), () => [[1, 2]]],
  embed: [embed, () => [model, 'ab', { pooling: 'mean', normalize: true }]],
  perplexity: [
    perplexity,
    () => [model, 'abcdefgh', { context: 8, stride: 4, cacheDtype: 'f32', signal, onProgress() {} }],
    1,
  ],
  logits: [
    async (...args: Parameters<typeof logits>) => {
      const blocks: Float32Array[] = [];
      for await (const block of logits(...args)) blocks.push(block);
      return blocks;
    },
    () => [model, [1, 2, 3], { context: 8, cacheDtype: 'f16', positions: undefined, signal }],
    1,
  ],
  compareLogits: [compareLogits, () => [[new Float32Array(8)], [new Float32Array(8)], { vocabSize: 4 }]],
  createSampler: [createSampler, () => [sampling()]],
  pick: [
    (...args: [Float32Array, number[]]) => createSampler(sampling()).pick(...args),
    () => [Float32Array.of(1, 2, 3), [1]],
  ],
  renderChat: [
    renderChat,
    () => [
      tokenizer,
      messages(),
      { addGenerationPrompt: true, template: 'default', templateText: CHAT, variables: { tools: [] } },
    ],
  ],
  encode: [tokenizer.encode, () => ['ab', { addBos: false, addEos: false, parseSpecial: true }]],
  decode: [tokenizer.decode, () => [[0, 1], { skipSpecial: true }]],
  stream: [
    (...args: Parameters<typeof tokenizer.stream>) => tokenizer.stream(...args).push(1),
    () => [{ skipSpecial: true, after: [1, 2] }],
  ],
  tokenizerFromJson: [
    tokenizerFromJson,
    () => [
      { tokenizerJson: tokenizerJson(), tokenizerConfig: { bos_token: '<s>' }, chatTemplate: CHAT },
      'tokenizer.json',
    ],
  ],
  tokenizerFromGguf: [tokenizerFromGguf, () => [metadata(), 'm.gguf']],
  byteSource: [byteSource, () => [new Uint8Array(4), 'm']],
  fetchSource: [fetchSource, () => ['data:,abc', { headers: { a: 'b' } }], 1],
  fetchModelFiles: [
    fetchModelFiles,
    () => ['http://127.0.0.1:1/m.gguf', { open: () => new Uint8Array(4), init: {} }],
    1,
  ],
  loadModel: [
    async (...args: Parameters<typeof loadModel>) => disposed(await loadModel(...args)),
    () => {
      const callbacks = { onMemory() {}, onProgress() {}, availableBytes: () => 1e9 };
      return [
        files,
        {
          backend: rw,
          tokenizer,
          context: 8,
          cacheDtype: 'f32',
          widenTo: 'f32',
          activations: 'f32',
          where: 'm',
          signal,
          ...callbacks,
        },
      ];
    },
    1,
  ],
  kernelEngine: [kernelEngine, () => [{ backend: rw, widenTo: 'f32', activations: 'f32' }]],
  mebibytes: [mebibytes, () => [2 ** 20]],
  loadModelFolder: [loadModelFolder, () => ['nowhere', {}]],
  loadModelFile: [loadModelFile, () => ['nowhere.gguf', {}]],
  loadModelPath: [loadModelPath, () => ['nowhere', {}]],
  describeModel: [describeModel, () => [files, 'm'], 1],
  planModel: [
    (options: HoldOptions) => planModel(description, options),
    () => [{ widenTo: 'f32', formats: ['q8_0'], widenHalves: false, as: () => undefined }],
  ],
  describeModelPath: [describeModelPath, () => ['nowhere', {}, async () => {}]],
  writeGguf: [
    repack.writeGguf,
    () => ['nowhere', 'none.gguf', { type: 'f16', vocabulary: true, force: false, signal }],
  ],
  writeSafetensorsFolder: [repack.writeSafetensorsFolder, () => ['nowhere', 'none', { type: 'f16', signal }]],
};
/** The arguments that are no options of ours, and those of messages without one. */
const OPEN =
  /^(fetchSource 1|fetchModelFiles 1.init|renderChat (1.*|2.variables)|generate from messages 1.*|tokenizerFromJson 0\..*|renderChat 0|loadModel 1.tokenizer|generate from tokens 1|generate 2.chat|saveSession 1)/;
/** The functions that need a model on disk, which is not there. */
const ABSENT = /Path$|^loadModelF|^write/;

test('every function of ropewalk/model and ropewalk/model/node is called', () => {
  const exported = Object.entries({ ...decoder, ...onDisk, ...repack }).filter(
    ([, value]) => typeof value === 'function',
  );
  assert.deepEqual(
    exported.map(([name]) => name).filter((name) => !Object.hasOwn(CALLS, name)),
    [],
  );
});

for (const [name, [call, valid, depth]] of Object.entries(CALLS)) {
  test(`${name}: hostile arguments`, async () => {
    const complaints: string[] = [];
    const invoke = call as (...args: unknown[]) => unknown;
    const works = await complaint(() => invoke(...valid()), !ABSENT.test(name));
    if (works) complaints.push(`arguments that work: ${works}`);
    for (const { where, args } of ABSENT.test(name) ? [] : misspeltCalls(valid)) {
      const refused = await complaint(() => invoke(...args), true);
      if (!refused?.includes('misspelt') && !OPEN.test(`${name} ${where}`)) complaints.push(`${where}: takes misspelt`);
    }
    for (const { label, args } of hostileCalls(valid, depth)) {
      const found = await complaint(() => invoke(...args));
      // A callback of the caller may throw any error.
      const callbacks = name === 'loadModel' ? /(onProgress|onMemory|availableBytes|context) =/ : /(onProgress|open) =/;
      if (found && !(callbacks.test(label) && label.includes('= proxy of a function')))
        complaints.push(`${label}: ${found}`);
    }
    assert.deepEqual(complaints, []);
  });
}
