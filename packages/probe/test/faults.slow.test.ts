/**
 * How often a fault is named, and a right server accused: the bundled model in f16, q8_0 and q4_0 with faults, half of
 * them drawn from a seed. A part of the tier slow has every sixth server. The numbers are in docs/probe.md.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { logits, type Model } from '@ropewalk/model';
import { loadModelFile, loadModelFolder } from '@ropewalk/model/node';
import { writeGguf } from '@ropewalk/model/repack';
import type { RopeSpec } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { MARLINE } from '../../../test/support/probe-server.js';
import { FUZZ } from '../../../test/support/size.js';
import { type Change, type ChangeableEngine, changeableEngine } from '../src/change.js';
import { Expected, type Observed } from '../src/expected.js';
import { type Fit, type Judgement, judge } from '../src/judge.js';
import { TEXT } from '../src/text.js';

/** A server: its weights, what it does wrong, and what is to be named; nothing for a right one. */
interface Case {
  readonly label: string;
  readonly weights: Weights;
  readonly change?: Change;
  readonly kind?: string;
  readonly value?: number;
  /** Tokens are appended in pieces of so many. */
  readonly pieces?: number;
  /** The first token of the text. */
  readonly from?: number;
}

type Weights = 'f16' | 'q8' | 'q4' | 'kv16';

const TOKENS = 250;
const folder = mkdtempSync(join(tmpdir(), 'faults-'));
const served = new Map<Weights, { readonly engine: ChangeableEngine; readonly model: Model }>();
const engine = changeableEngine({ backend: 'cpu' });
const model = await loadModelFolder(MARLINE, { engine });
for (const type of ['q8_0', 'q4_0'] as const) await writeGguf(MARLINE, join(folder, `${type}.gguf`), { type });
for (const [name, path, activations, cacheDtype] of [
  ['f16', MARLINE, 'f32', 'f32'],
  ['q8', join(folder, 'q8_0.gguf'), 'q8', 'f32'],
  ['q4', join(folder, 'q4_0.gguf'), 'f32', 'f16'],
  ['kv16', MARLINE, 'f32', 'bf16'],
] as const) {
  const own = changeableEngine({ backend: 'cpu', activations });
  const load = path === MARLINE ? loadModelFolder : loadModelFile;
  served.set(name, { engine: own, model: await load(path, { engine: own, cacheDtype }) });
}
after(() => {
  for (const one of [model, ...[...served.values()].map((each) => each.model)]) one.dispose();
  rmSync(folder, { recursive: true });
});

/** Answers as a server does: the 20 likeliest tokens with five digits, and the token that comes. */
async function answer({ weights, change = {}, pieces }: Case, tokens: readonly number[]): Promise<Observed> {
  const { engine: own, model: one } = served.get(weights)!;
  const { vocabSize, maxContext } = one.config;
  own.change = change;
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
  const all = model.tokenizer.encode(TEXT);
  const tokens = [...all, ...all].slice(one.from ?? 0, (one.from ?? 0) + TOKENS);
  const single: Observed[] = [];
  for (const token of [...new Set(tokens)].slice(0, 24))
    single.push(await answer({ ...one, pieces: undefined } as Case, [token]));
  return judge(new Expected(model, engine, TOKENS), single, await answer(one, tokens));
}

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

const RIGHT: readonly Case[] = (['f16', 'q8', 'q4', 'kv16'] as const).flatMap((weights) => [
  { label: 'as it is', weights },
  { label: 'another text', weights, from: 77 },
  { label: 'a third text', weights, from: 190 },
  { label: 'in pieces of 64', weights, pieces: 64 },
  { label: 'in pieces of 7', weights, pieces: 7, from: 30 },
  { label: 'all positions moved by 5', weights, change: placed((n) => n + 5) },
]);

const CHOSEN: readonly Case[] = [
  { label: 'base 500,000', weights: 'f16', change: rope({ base: 500000 }), kind: 'base', value: 500000 },
  { label: 'base 500,000', weights: 'q4', change: rope({ base: 500000 }), kind: 'base', value: 500000 },
  { label: 'base 12,000', weights: 'q8', change: rope({ base: 12000 }), kind: 'base', value: 12000 },
  { label: 'base 1,000,000', weights: 'q8', change: rope({ base: 1e6 }), kind: 'base', value: 1e6 },
  {
    label: 'linear 4',
    weights: 'q8',
    change: rope({ scaling: { kind: 'linear', factor: 4 } }),
    kind: 'linear',
    value: 4,
  },
  { label: 'positions by twos', weights: 'f16', change: placed((n) => 2 * n), kind: 'linear', value: 0.5 },
  { label: 'YaRN 4 of 64', weights: 'q8', change: yarn(4, 64), kind: 'scaling', value: 4 },
  { label: 'YaRN 8 of 256', weights: 'f16', change: yarn(8, 256), kind: 'scaling', value: 8 },
  { label: 'Llama 3, 8 of 128', weights: 'q8', change: llama3(8, 128), kind: 'scaling', value: 8 },
  {
    label: 'dynamic NTK',
    weights: 'q8',
    change: rope({ scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 64, context: 256 } }),
    kind: 'base',
    value: 79700,
  },
  { label: 'pairing', weights: 'f16', change: otherPairing, kind: 'pairing' },
  { label: 'no rotation', weights: 'q4', change: { rope: () => undefined }, kind: 'none' },
  { label: 'direction', weights: 'kv16', change: placed((n) => 255 - n), kind: 'direction' },
  { label: 'half of the head', weights: 'f16', change: rope({ rotaryDim: 16 }), kind: 'partial', value: 16 },
  {
    label: 'scores without √d',
    weights: 'q8',
    change: { scores: Math.sqrt(32) },
    kind: 'scores',
    value: Math.sqrt(32),
  },
  { label: 'magnitude 1.2', weights: 'f16', change: rope({ attentionFactor: 1.2 }), kind: 'scores', value: 1.44 },
  { label: 'restart at 128', weights: 'q4', change: placed((n) => n % 128), kind: 'restart', value: 128 },
  { label: 'restart at 64', weights: 'q8', change: placed((n) => n % 64), kind: 'restart', value: 64 },
  { label: 'lost at 128', weights: 'q8', change: { chunk: 128 }, kind: 'lost', value: 128 },
  { label: 'window 64', weights: 'q8', change: { window: 64 }, kind: 'window', value: 64 },
  { label: 'gap of 1 at 100', weights: 'f16', change: placed((n) => (n < 100 ? n : n + 1)), kind: 'gap', value: 100 },
  { label: 'gap of 48 at 93', weights: 'kv16', change: placed((n) => (n < 93 ? n : n + 48)), kind: 'gap', value: 93 },
  {
    label: 'layer 2 still',
    weights: 'q8',
    change: { rope: () => undefined, only: (layer) => layer === 2 },
    kind: 'layers',
    value: 2,
  },
  { label: 'temperature 0.7', weights: 'q8', change: { temperature: 0.7 }, kind: 'temperature', value: 0.7 },
  { label: 'temperature 1.3', weights: 'q4', change: { temperature: 1.3 }, kind: 'temperature', value: 1.3 },
  { label: 'positions squared', weights: 'q8', change: placed((n) => Math.floor((n * n) / 40)), kind: 'nothing' },
  {
    label: 'base and gap',
    weights: 'f16',
    change: { ...rope({ base: 1e5 }), ...placed((n) => (n < 80 ? n : n + 9)) },
    kind: 'nothing',
  },
];

/** Draws faults of each kind, of a size that a person would notice in the model's answers. */
function drawn(count: number): Case[] {
  const random = randomFrom(process.env.SEED ?? 'faults of servers');
  const pick = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;
  const makers: readonly (() => Omit<Case, 'weights'>)[] = [
    () => {
      const value = Math.round(Math.exp(random.uniform(Math.log(500), Math.log(5e6))));
      return { label: `base ${value}`, change: rope({ base: value }), kind: 'base', value };
    },
    () => {
      const value = Number(random.uniform(1.2, 8).toFixed(2));
      return {
        label: `linear ${value}`,
        change: rope({ scaling: { kind: 'linear', factor: value } }),
        kind: 'linear',
        value,
      };
    },
    () => {
      const [value, context] = [pick([2, 3, 5, 8, 20, 40]), pick([64, 128, 256])];
      return { label: `YaRN ${value} of ${context}`, change: yarn(value, context), kind: 'scaling', value };
    },
    () => {
      const [value, context] = [pick([3, 4, 8, 16, 32]), pick([64, 128, 256])];
      return { label: `Llama 3, ${value} of ${context}`, change: llama3(value, context), kind: 'scaling', value };
    },
    () => {
      const value = 20 + random.integer(180);
      return { label: `restart at ${value}`, change: placed((n) => n % value), kind: 'restart', value };
    },
    () => {
      const value = 20 + random.integer(180);
      return { label: `lost at ${value}`, change: { chunk: value }, kind: 'lost', value };
    },
    () => {
      const [value, gap] = [30 + random.integer(150), 2 + random.integer(60)];
      return {
        label: `gap of ${gap} at ${value}`,
        change: placed((n) => (n < value ? n : n + gap)),
        kind: 'gap',
        value,
      };
    },
    () => {
      const value = 20 + random.integer(80);
      return { label: `window ${value}`, change: { window: value }, kind: 'window', value };
    },
    () => {
      const value = Number(random.uniform(0.3, 3).toFixed(2));
      return { label: `scores ${value}`, change: { scores: value }, kind: 'scores', value };
    },
  ];
  return Array.from({ length: count }, (_, n) => ({
    ...makers[n % makers.length]!(),
    weights: pick(['f16', 'q8', 'q8', 'kv16'] as const),
  }));
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
  const all = [...RIGHT, ...CHOSEN, ...drawn(36)].filter((_one, n) => FUZZ === 10 || n % 6 === 0);
  const right = all.filter(({ kind }) => kind === undefined).length;
  const marks: Record<string, string[]> = {};
  for (const one of all) {
    const found = await judged(one);
    const mark = markOf(one, found);
    const about = `${one.weights} ${one.label}: ${found.best?.says ?? found.verdict}, ${found.difference.toFixed(3)} → ${found.best?.left.toFixed(4)}`;
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
