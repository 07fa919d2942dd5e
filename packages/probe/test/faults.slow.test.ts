/**
 * How often a fault is named, and a right server accused: the bundled model and eight random ones of llama.cpp's families,
 * in weights and caches of 4 to 32 bits, with faults of which half are drawn from a seed. A part of the tier slow has every
 * sixth server. The numbers are in docs/probe.md.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { logits, type Model } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { writeGguf, writeSafetensorsFolder } from '@ropewalk/model/repack';
import type { RopeSpec } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { FAMILIES, LLAMACPP } from '../../../test/support/fixtures.js';
import { MARLINE } from '../../../test/support/probe-server.js';
import { FUZZ } from '../../../test/support/size.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { type Change, type ChangeableEngine, changeableEngine } from '../src/change.js';
import { Expected, type Observed } from '../src/expected.js';
import { slower } from '../src/hypotheses.js';
import { type Fit, type Judgement, judge } from '../src/judge.js';
import { TEXT } from '../src/text.js';

/** A server: its model and weights, what it does wrong, and what is to be named; nothing for a right one. */
interface Case {
  readonly label: string;
  readonly on?: keyof typeof RANDOM;
  readonly weights: Weights;
  readonly change?: Change;
  /** Fields of config.json in the model's files, and others in the server's, from which its GGUF is written. */
  readonly files?: Fields;
  readonly server?: Fields;
  readonly kind?: string;
  readonly value?: number;
  /** Tokens are appended in pieces of so many. */
  readonly pieces?: number;
  /** The first token of the text. */
  readonly from?: number;
}

type Fields = Readonly<Record<string, unknown>>;

/** Weights, activations and caches of servers; `file`: the file as it is. */
const WEIGHTS = {
  f16: [undefined, 'f32', 'f32'],
  q8: ['q8_0', 'q8', 'f32'],
  q4: ['q4_0', 'f32', 'f16'],
  kv16: [undefined, 'f32', 'bf16'],
  i8: [undefined, 'f32', 'i8'],
  f8: [undefined, 'f32', 'f8_e4m3'],
  file: [undefined, 'q8', 'f16'],
} as const;
type Weights = keyof typeof WEIGHTS;

/**
 * Random models and the base of their first layer. Their answers show RoPE: without it they differ by 1.4 to 4.0 nats, with
 * four times the base by 0.5 to 2.8.
 */
const RANDOM = {
  glm4: 10000, // half of each head, interleaved
  mistral3: 1e6, // YaRN with a magnitude, scores that depend on positions
  'phi3-short': 10000, // LongRoPE, three quarters of each head
  gemma3: 10000, // a window and another base in five of six layers, linear scaling in the sixth
  smollm3: 5e6, // interleaved, a layer without RoPE
  'stablelm-parallel': 10000, // a quarter of each head
  'exaone4-hybrid': 1e6, // factors of frequencies, windows, layers without RoPE
  'llama-q4_k': 10000, // weights in q4_K
} as const;
const SCALED: readonly (string | undefined)[] = ['mistral3', 'phi3-short', 'exaone4-hybrid', 'gemma3'];

const folder = mkdtempSync(join(tmpdir(), 'faults-'));
interface Loaded {
  readonly engine: ChangeableEngine;
  readonly model: Model;
}
const loaded = new Map<string, Loaded>();
after(() => {
  for (const { model } of loaded.values()) model.dispose();
  rmSync(folder, { recursive: true });
});

/** Loads a model with fields of config.json changed, as a server has it. `rope_parameters` are merged. */
async function load(on: Case['on'], weights: Weights, fields: Fields = {}): Promise<Loaded> {
  const key = JSON.stringify([on, weights, fields], (_key, value) => value ?? 'lost');
  const known = loaded.get(key);
  if (known) return known;
  const file = on && join(on === 'llama-q4_k' ? LLAMACPP : FAMILIES, `${on}.gguf`);
  const plain = file ? join(folder, on) : MARLINE;
  if (file && !existsSync(plain)) await writeSafetensorsFolder(file, plain, { vocabulary: false });
  const [type, activations, cacheDtype] = WEIGHTS[weights];
  const engine = changeableEngine({ backend: 'cpu', activations, threads: 1 });
  let path = mkdtempSync(join(folder, 'model-'));
  for (const name of readdirSync(plain)) if (name !== 'config.json') symlinkSync(join(plain, name), join(path, name));
  const config = JSON.parse(readFileSync(join(plain, 'config.json'), 'utf8'));
  const { rope_parameters: own } = config;
  const changed = { ...config, ...fields };
  if (fields.rope_parameters) changed.rope_parameters = { ...own, ...(fields.rope_parameters as object) };
  writeFileSync(join(path, 'config.json'), JSON.stringify(changed));
  if (type) {
    const out = `${path}.gguf`;
    await writeGguf(path, out, { type, vocabulary: on === undefined });
    path = out;
  }
  const model = await loadModelPath(weights === 'file' ? file! : path, {
    ...{ engine, cacheDtype },
    ...(on && { tokenizer: numberTokenizer(changed.vocab_size) }),
  });
  loaded.set(key, { engine, model });
  return { engine, model };
}

/** Answers as a server does: the 20 likeliest tokens with five digits, and the token that comes. */
async function answer(
  { on, weights, server, files, change = {}, pieces }: Case,
  tokens: readonly number[],
): Promise<Observed> {
  const { engine: own, model: one } = await load(on, weights, { ...files, ...server });
  const { vocabSize, maxContext } = one.config;
  own.change = { ...change, context: tokensOf(on) };
  const rows: Float32Array[] = [];
  const positions = change.positions?.(tokens.length);
  if (pieces === undefined) {
    const options = { context: maxContext, ...(positions ? { positions } : {}) };
    for await (const block of logits(one, tokens, options))
      for (let at = 0; at < block.length; at += vocabSize) rows.push(block.slice(at, at + vocabSize));
  } else {
    const session = one.openSession({ context: maxContext });
    for (let at = 0; at < tokens.length; at += pieces) {
      const block = await session.append(tokens.slice(at, at + pieces), { logits: 'all' });
      for (let row = 0; row < block.length; row += vocabSize) rows.push(block.slice(row, row + vocabSize));
    }
    session.dispose();
  }
  own.change = {};
  return {
    tokens,
    rows: rows.map((row, n) => {
      const scaled = Float64Array.from(row, (logit) => logit / (change.temperature ?? 1));
      const top = scaled.reduce((a, b) => Math.max(a, b));
      const log = top + Math.log(scaled.reduce((sum, logit) => sum + Math.exp(logit - top), 0));
      const ids = Array.from(row.keys())
        .sort((a, b) => row[b]! - row[a]!)
        .slice(0, 20);
      if (n + 1 < tokens.length && !ids.includes(tokens[n + 1]!)) ids.push(tokens[n + 1]!);
      return { seen: n + 1, ids, logprobs: ids.map((id) => Number((scaled[id]! - log).toFixed(5))) };
    }),
  };
}

async function judged(one: Case): Promise<Judgement> {
  const { engine, model } = await load(one.on, 'f16', one.files);
  const { vocabSize } = model.config;
  const all = one.on
    ? Array.from({ length: 200 }, (_, n) => 3 + ((7 * n * n + 13 * n + (n >> 3)) % (vocabSize - 3)))
    : model.tokenizer.encode(TEXT);
  const tokens = [...all, ...all].slice(one.from ?? 0, (one.from ?? 0) + tokensOf(one.on));
  const single: Observed[] = [];
  for (const token of [...new Set(tokens)].slice(0, 24))
    single.push(await answer({ ...one, pieces: undefined } as Case, [token]));
  const expected = new Expected(model, engine, tokens.length);
  const text = await answer(one, tokens);
  return judge(expected, single, text).finally(() => expected.dispose());
}

const tokensOf = (on: Case['on']): number => (on ? 128 : 250);
const rope = (edit: Partial<RopeSpec>): Change => ({ rope: (spec) => ({ ...spec, ...edit }) });
const placed = (of: (n: number) => number): Change => ({
  positions: (count) => Array.from({ length: count }, (_, n) => of(n)),
});
const otherPairing: Change = {
  rope: (spec) => ({ ...spec, pairing: spec.pairing === 'half' ? 'interleaved' : 'half' }),
};
const yarn = (factor: number, originalContext: number): Change =>
  rope({ scaling: { kind: 'yarn', factor, originalContext } });
const llama3 = (factor: number, originalContext: number): Change =>
  rope({ scaling: { kind: 'llama3', factor, originalContext, lowFreqFactor: 1, highFreqFactor: 4 } });

const BITS = ['f16', 'q8', 'q4', 'kv16', 'i8', 'f8'] as const;
const NAMES = Object.keys(RANDOM) as (keyof typeof RANDOM)[];
const RIGHT: readonly Case[] = [
  ...BITS.flatMap((weights): Case[] => [
    { label: 'as it is', weights },
    { label: 'another text, in pieces of 64', weights, from: 77, pieces: 64 },
    { label: 'a third text, in pieces of 7', weights, from: 190, pieces: 7 },
    { label: 'all positions moved by 5', weights, change: placed((n) => n + 5) },
  ]),
  ...NAMES.flatMap((on, n): Case[] => [
    { label: 'as it is', on, weights: on === 'llama-q4_k' ? 'file' : 'q8' },
    { label: 'in pieces of 16', on, weights: (['i8', 'f8'] as const)[n % 2]!, pieces: 16 },
    { label: 'another text', on, weights: n % 2 ? 'kv16' : 'q8', from: 50 },
  ]),
];

const parameters = (edit: object | undefined): Fields => ({ rope_parameters: edit });
/** Empties the fields of transformers 4, for a config.json of transformers 5. */
const FIVE = { rope_theta: undefined, rope_scaling: undefined };
const five = (edit: object): Fields => ({ ...FIVE, ...parameters({ rope_type: 'default', ...edit }) });
const TO_LLAMA3 = {
  ...{ rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
  original_max_position_embeddings: 64,
};
const TO_YARN = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 64 };

type Row = [
  weights: Weights,
  label: string,
  fault: Change | Pick<Case, 'files' | 'server'>,
  kind: string,
  value?: number,
];
const rows = (list: readonly Row[], on?: Case['on']): Case[] =>
  list.map(([weights, label, fault, kind, value]) => {
    const isFiles = 'server' in fault;
    return { on, weights, label, kind, value, ...(isFiles ? fault : { change: fault as Change }) };
  });
const CHOSEN: readonly Case[] = [
  ...rows([
    ['f16', 'base 500,000', rope({ base: 500000 }), 'base', 500000],
    ['q4', 'base 500,000', { server: { rope_theta: 500000 } }, 'base', 500000],
    ['q8', 'base 12,000', { server: { rope_theta: 12000 } }, 'base', 12000],
    ['q8', 'base 1,000,000', rope({ base: 1e6 }), 'base', 1e6],
    ['q8', 'linear 4', { server: { rope_scaling: { rope_type: 'linear', factor: 4 } } }, 'linear', 4],
    ['f16', 'positions by twos', placed((n) => 2 * n), 'linear', 0.5],
    ['q8', 'YaRN 4 of 64', { server: { rope_scaling: TO_YARN } }, 'scaling', 4],
    ['f16', 'YaRN 8 of 256', yarn(8, 256), 'scaling', 8],
    ['q8', 'Llama 3, 8 of 128', llama3(8, 128), 'scaling', 8],
    [
      'q8',
      'dynamic NTK',
      rope({ scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 64, context: 256 } }),
      'base',
      79700,
    ],
    ['f16', 'pairing', otherPairing, 'pairing'],
    ['q4', 'no rotation', { rope: () => undefined }, 'none'],
    ['kv16', 'direction', placed((n) => 255 - n), 'direction'],
    ['f16', 'half of the head', rope({ rotaryDim: 16 }), 'partial', 16],
    ['q8', 'scores without √d', { scores: Math.sqrt(32) }, 'scores', Math.sqrt(32)],
    ['f16', 'magnitude 1.2', rope({ attentionFactor: 1.2 }), 'scores', 1.44],
    ['q4', 'restart at 128', placed((n) => n % 128), 'restart', 128],
    ['i8', 'restart at 64', placed((n) => n % 64), 'restart', 64],
    ['f8', 'lost at 128', { chunk: 128 }, 'lost', 128],
    ['q8', 'window 64', { window: 64 }, 'window', 64],
    ['f16', 'gap of 1 at 100', placed((n) => (n < 100 ? n : n + 1)), 'gap', 100],
    ['kv16', 'gap of 48 at 93', placed((n) => (n < 93 ? n : n + 48)), 'gap', 93],
    ['q8', 'layer 2 still', { rope: () => undefined, only: (layer) => layer === 2 }, 'layers', 2],
    ['q8', 'temperature 0.7', { temperature: 0.7 }, 'temperature', 0.7],
    ['q4', 'temperature 1.3', { temperature: 1.3 }, 'temperature', 1.3],
    ['q8', 'positions squared', placed((n) => Math.floor((n * n) / 40)), 'nothing'],
    ['f16', 'base and gap', { ...rope({ base: 1e5 }), ...placed((n) => (n < 80 ? n : n + 9)) }, 'gap', 80],
    // config.json of transformers 5, as transformers 4 reads it.
    ['f16', 'base lost', { files: five({ rope_theta: 500000 }), server: parameters(undefined) }, 'base', 10000],
    ['q8', 'YaRN lost', { files: five({ rope_theta: 10000, ...TO_YARN }), server: parameters(undefined) }, 'scaling'],
    ['q8', 'all lost', { files: five({ rope_theta: 500000, ...TO_LLAMA3 }), server: parameters(undefined) }, 'scaling'],
  ]),
  ...rows([['q8', 'base 50,000', { server: parameters({ rope_theta: 50000 }) }, 'base', 50000]], 'glm4'),
  ...rows([['i8', 'all of the head', { server: parameters({ partial_rotary_factor: 1 }) }, 'partial', 16]], 'glm4'),
  ...rows([['q8', 'factor 8', { server: parameters({ factor: 8 }) }, 'scaling', 8]], 'mistral3'),
  ...rows([['f16', 'scaling lost', { server: parameters({ rope_type: 'default' }) }, 'scaling']], 'mistral3'),
  ...rows([['q8', 'scaling lost', { server: parameters({ rope_type: 'default' }) }, 'scaling']], 'phi3-short'),
  ...rows([['f8', 'window 40', { server: { sliding_window: 40 } }, 'window', 40]], 'gemma3'),
  ...rows([['q8', 'no window', { windows: 128 }, 'window', 128]], 'gemma3'),
  ...rows([['kv16', 'all layers', { server: { no_rope_layers: [1, 1, 1, 1] } }, 'layers']], 'smollm3'),
  ...rows([['q8', 'half', { server: parameters({ partial_rotary_factor: 0.5 }) }, 'partial', 16]], 'stablelm-parallel'),
  ...rows([['kv16', 'scaling lost', { server: parameters({ rope_type: 'default' }) }, 'scaling']], 'exaone4-hybrid'),
  ...rows([['kv16', 'pairing', otherPairing, 'pairing']], 'llama-q4_k'),
];

/** Draws faults of each kind, of a size that a person would notice in the model's answers: every other one in marline. */
function drawn(count: number): Case[] {
  const random = randomFrom(process.env.SEED ?? 'faults of servers');
  const pick = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;
  const round = (low: number, high: number): number => Number(random.uniform(low, high).toFixed(2));
  type Fault = [label: string, change: Change, kind: string, value: number];
  const makers: readonly ((on: Case['on']) => Fault)[] = [
    (on) => {
      const by = Math.exp(random.uniform(Math.log(0.05), Math.log(500)));
      const value = Math.round((on ? RANDOM[on] : 10000) * by);
      return [`base ${value}`, { rope: (spec) => ({ ...spec, base: spec.base * by }) }, 'base', value];
    },
    (on) => {
      const value = round(1.2, 8);
      const linear = rope({ scaling: { kind: 'linear', factor: value } });
      return [`linear ${value}`, on ? { rope: (spec) => slower(spec, value) } : linear, 'linear', value];
    },
    ...([yarn, llama3] as const).map((scaled, n) => (on: Case['on']): Fault => {
      const [value, context] = [pick([2, 3, 5, 8, 20, 40]), pick(on ? [32, 64, 128] : [64, 128, 256])];
      return [`${['YaRN', 'Llama 3'][n]} ${value} of ${context}`, scaled(value, context), 'scaling', value];
    }),
    (on) => {
      const value = 20 + random.integer(0.7 * tokensOf(on));
      return [`restart at ${value}`, placed((n) => n % value), 'restart', value];
    },
    (on) => {
      const value = 20 + random.integer(0.7 * tokensOf(on));
      return [`lost at ${value}`, { chunk: value }, 'lost', value];
    },
    (on) => {
      const [value, gap] = [30 + random.integer(0.6 * tokensOf(on)), 2 + random.integer(60)];
      return [`gap of ${gap} at ${value}`, placed((n) => (n < value ? n : n + gap)), 'gap', value];
    },
    () => {
      const value = 20 + random.integer(80);
      return [`window ${value}`, { window: value }, 'window', value];
    },
    () => {
      const value = round(0.3, 3);
      return [`scores ${value}`, { scores: value }, 'scores', value];
    },
    (on) => {
      const [by, value] = [pick([1 / 8, 1 / 3, 5, 50]), 40 + random.integer(0.5 * tokensOf(on))];
      const base: Change = { rope: (spec) => ({ ...spec, base: spec.base * by }) };
      return [`base ${by} times, restart at ${value}`, { ...base, ...placed((n) => n % value) }, 'restart', value];
    },
  ];
  return Array.from({ length: count }, (_, n): Case => {
    const maker = n % makers.length;
    const isScaling = maker === 2 || maker === 3;
    const on = n % 2 ? pick(isScaling ? NAMES.filter((one) => !SCALED.includes(one)) : NAMES) : undefined;
    const weights = on === 'llama-q4_k' ? 'file' : pick(['f16', 'q8', 'q8', 'kv16', 'i8'] as const);
    const [label, change, kind, value] = makers[maker]!(on);
    return { on, label, weights, change, kind, value };
  });
}

const isTrue = ({ kind, value, range }: Fit, one: Case): boolean => {
  if (kind !== one.kind) return false;
  if (one.value === undefined || value === one.value || Math.abs(value! / one.value - 1) <= 0.05) return true;
  return range !== undefined && one.value > (range[0] ?? 0) && one.value < (range[1] ?? Number.POSITIVE_INFINITY);
};

/** `named`, `one of`, `described`, `missed`, or `FALSE` if the report says what is not so. */
function markOf(one: Case, { verdict, best, rivals }: Judgement): string {
  if (one.kind === undefined) return verdict === 'agrees' ? 'right' : 'FALSE';
  if (verdict === 'agrees') return 'missed';
  if (verdict === 'described') return 'described';
  if (verdict === 'named') return isTrue(best!, one) ? 'named' : 'FALSE';
  return verdict === 'one-of' && [best!, ...rivals].some((fit) => isTrue(fit, one)) ? 'one of' : 'FALSE';
}

test('faults are named, right servers are not accused, and nothing false is said', async () => {
  const all = [...RIGHT, ...CHOSEN, ...drawn(50)].filter((_one, n) => FUZZ === 10 || n % 6 === 0);
  const right = all.filter(({ kind }) => kind === undefined).length;
  const marks: Record<string, string[]> = {};
  for (const one of all) {
    const found = await judged(one);
    const mark = markOf(one, found);
    const about = `${one.on ?? 'marline'} ${one.weights} ${one.label}: ${found.best?.says ?? found.verdict}, ${found.difference.toFixed(3)} → ${found.best?.left.toFixed(4)}`;
    (marks[mark] ??= []).push(about);
    if (process.env.WORST) console.log(mark, about);
  }
  const count = (mark: string): number => marks[mark]?.length ?? 0;
  const faults = all.length - right;
  const text = JSON.stringify(marks, null, 1);
  assert.equal(count('FALSE'), 0, text);
  assert.equal(count('right'), right, text);
  assert.ok(count('named') >= 0.9 * faults, text);
  assert.ok(count('named') + count('one of') + count('described') >= 0.98 * faults, text);
});
