import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { LoadOptions, Model } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { type Dump, type TraceReport, traceDumps, traceLines, traceToJson } from '@ropewalk/trace/internal';
import { openDump, Recorder } from '@ropewalk/trace/internal/node';
import { type Tensor, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { MARLINE, marlineWith } from '../../../test/support/probe-server.js';

const folder = mkdtempSync(join(tmpdir(), 'trace-'));
const ids = Array.from({ length: 48 }, (_, n) => (37 * n + 5) % 1024);
let count = 0;

/** Runs marline with changes and opens the dump of the run. */
async function runOf(
  fields: Readonly<Record<string, unknown>> = {},
  options: { positions?: number[]; load?: (engine: LoadOptions) => Promise<Model> } & Pick<
    LoadOptions,
    'cacheDtype'
  > = {},
): Promise<Dump> {
  const recorder = new Recorder('**', { backend: 'cpu' });
  const { positions, load, cacheDtype } = options;
  const engine = { engine: recorder.engine, cacheDtype };
  const model = await (load ? load(engine) : marlineWith(fields, engine));
  const out = join(folder, String(count++));
  await recorder.record(model, out, { ids, positions });
  model.dispose();
  return openDump(out);
}

const right = await runOf();

type Values = { readonly shape: readonly number[]; readonly data: Float32Array };

/** Returns a dump with tensors changed or renamed. A change that returns undefined leaves the tensor as it is. */
async function changed(
  dump: Dump,
  change: (name: string, values: Values) => Record<string, Values> | Values[] | undefined,
  facts = dump.facts,
): Promise<Dump> {
  const tensors: Dump['tensors'][number][] = [];
  for (const one of dump.tensors) {
    const tensor = await one.read();
    if (tensor.dtype !== 'f32') continue;
    const values = { shape: one.shape, data: tensor.read() as Float32Array };
    const made = change(one.name, values) ?? { [one.name]: values };
    const list = Array.isArray(made) ? made.map((part, rank) => [one.name, part, rank] as const) : Object.entries(made);
    for (const [name, { shape, data }, rank] of list as [string, Values, number?][])
      tensors.push({ name, shape, dtype: 'f32', rank, read: async () => tensorFrom(data, { shape }) as Tensor });
  }
  return { label: 'changed', tensors, notes: [], facts, close: async () => {} };
}

/** Changes one tensor, and disturbs what follows it, as a fault does. */
function fault(at: string, change: (values: Values) => Float32Array): Promise<Dump> {
  let after = false;
  return changed(right, (name, values) => {
    if (name === at) {
      after = true;
      return { [name]: { ...values, data: change(values) } };
    }
    const noise = (x: number, n: number): number => x * (1 + 0.3 * Math.sin(n * n + 1));
    return after ? { [name]: { ...values, data: values.data.map(noise) } } : undefined;
  });
}

const traced = (other: Dump): Promise<TraceReport> => traceDumps(right, other);
const found = ({ divergence }: TraceReport): readonly [string, string] | undefined =>
  divergence && [divergence.step.name, divergence.causes[0]?.id ?? ''];

describe('faults of a run are found at their step, with their cause', () => {
  test('a base that is off', async () => {
    assert.deepEqual(found(await traced(await runOf({ rope_theta: 500000 }))), [
      'layers.0.q_rope',
      'rope: base=500000',
    ]);
    const report = await traced(await runOf({ rope_theta: 10010 }));
    assert.equal(report.divergence?.step.name, 'layers.0.q_rope');
    assert.match(report.divergence!.causes[0]!.says, /base 10010 instead of 10000/);
  });
  test('positions off by one in one chunk', async () => {
    const positions = ids.map((_, n) => (n >= 16 && n < 32 ? n - 1 : n));
    const report = await traced(await runOf({}, { positions }));
    assert.deepEqual([report.divergence!.firstToken, report.divergence!.wrongTokens], [16, 16]);
    assert.match(report.divergence!.causes[0]!.says, /tokens 16-31 hold this row of x rotated by its position − 1/);
    assert.ok(report.notes.some((note) => /positions differ: at token 16 A has 16, B 15/.test(note)));
  });
  test('a window', async () => {
    const window = { sliding_window: 20, model_type: 'mistral', architectures: ['MistralForCausalLM'] };
    const report = await traced(await runOf(window));
    assert.deepEqual(found(report), ['layers.0.heads', 'window']);
    assert.match(report.divergence!.causes[0]!.says, /B's tokens see a window of 20 tokens, A's all tokens before/);
    assert.equal(report.divergence!.firstToken, 20);
  });
  test('another epsilon', async () => {
    assert.deepEqual(found(await traced(await runOf({ rms_norm_eps: 1e-3 }))), ['layers.0.attn_norm', 'epsilon']);
  });
});

const headDim = 32;
const tensorOf = async (name: string): Promise<Float32Array> =>
  (await right.tensors.find((one) => one.name === name)!.read()).read() as Float32Array;

describe('faults of one tensor', () => {
  const input = tensorOf('layers.1.out');
  const faults: readonly (readonly [string, string, string, (values: Values, other: Float32Array) => Float32Array])[] =
    [
      ['a scale', 'layers.2.v', 'scale', ({ data }) => data.map((x) => x / Math.sqrt(headDim))],
      ['a norm that did not run', 'layers.2.attn_norm', 'norm missing', (_values, other) => other],
      ['a bias', 'layers.1.k', 'bias', ({ data }) => data.map((x, n) => x + Math.cos(n % 64))],
      ['no rotation', 'layers.0.q_rope', 'not rotated', () => q],
      [
        'heads in another order',
        'layers.3.v',
        'heads',
        ({ data }) => data.map((_, n) => data[n % 64 < 32 ? n + 32 : n - 32]!),
      ],
      ['tokens that are shifted', 'layers.1.v', 'rows', ({ data }) => data.map((x, n) => data[n - 64] ?? x)],
      ['an attention block that is not added', 'layers.2.mid', 'branch missing', (_values, other) => other],
      [
        'one matrix in fewer bits',
        'layers.2.mlp',
        'flat',
        ({ data }) => data.map((x, n) => x * (1 + 0.05 * Math.sin(n * n))),
      ],
      ['zeros', 'layers.1.heads', 'zeros', ({ data }) => data.map(() => 0)],
      ['NaN', 'layers.1.mlp', 'not finite', ({ data }) => data.map((x, n) => (n === 5000 ? Number.NaN : x))],
      ['capped logits', 'logits', 'softcap', ({ data }) => data.map((x) => 10 * Math.tanh(x / 10))],
    ];
  let q: Float32Array;
  for (const [name, at, id, change] of faults)
    test(name, async () => {
      q = await tensorOf('layers.0.q');
      const other = await input;
      assert.deepEqual(found(await traced(await fault(at, (values) => change(values, other)))), [at, id]);
    });
  test('key heads that are mapped otherwise', async () => {
    const [ofQ, ofK, ofV] = await Promise.all(['q_rope', 'k_rope', 'v'].map((kind) => tensorOf(`layers.2.${kind}`)));
    const heads = new Float32Array(ids.length * 192);
    for (let h = 0; h < 6; h++)
      for (let t = 0; t < ids.length; t++) {
        const at = (s: number): number => s * 64 + (h % 2) * headDim;
        const scores = Array.from({ length: t + 1 }, (_, s) => {
          let dot = 0;
          for (let i = 0; i < headDim; i++) dot += ofQ![t * 192 + h * headDim + i]! * ofK![at(s) + i]!;
          return Math.exp(dot / Math.sqrt(headDim));
        });
        const sum = scores.reduce((x, y) => x + y, 0);
        for (const [s, score] of scores.entries())
          for (let i = 0; i < headDim; i++) heads[t * 192 + h * headDim + i]! += (score / sum) * ofV![at(s) + i]!;
      }
    assert.deepEqual(found(await traced(await fault('layers.2.heads', () => heads))), [
      'layers.2.heads',
      'head mapping',
    ]);
  });
  test('a cause that is not known is not made up', async () => {
    const report = await traced(
      await fault('layers.2.heads', ({ data }) => data.map((x, n) => x + 3 * Math.sin(n * n))),
    );
    assert.deepEqual(found(report), ['layers.2.heads', '']);
    assert.match(traceLines(report).join('\n'), /No cause that is known here/);
  });
});

describe('right runs are not accused', () => {
  const same = (report: TraceReport): void => assert.deepEqual(found(report), undefined, traceLines(report).join('\n'));
  test('the same run; a cache in f16 and in bf16', async () => {
    same(await traced(right));
    for (const cacheDtype of ['f16', 'bf16'] as const) same(await traced(await runOf({}, { cacheDtype })));
  });
  test('q8_0 weights, whose q and k are permuted to the other pairing', async () => {
    const load = (options: LoadOptions): Promise<Model> => loadModelPath(join(MARLINE, 'model-q8_0.gguf'), options);
    const report = await traced(await runOf({}, { load }));
    same(report);
    assert.ok(report.matched.includes('q, k, q_rope, k_rope: pairs moved to half'));
    assert.ok(report.ruler.adopted && report.ruler.adopted.rms < 0.02);
  });
  test('positions that are all one further on, which attention does not see', async () => {
    const report = await traced(await runOf({}, { positions: ids.map((_, n) => n + 1) }));
    same(report);
    assert.match(report.notes.join(' '), /difference of convention, not a fault\. RoPE: Counts positions from 1/);
  });
  test('heads before tokens, a batch in front, names of transformers', async () => {
    const names: Readonly<Record<string, string>> = {
      q: 'self_attn.q_proj',
      v: 'self_attn.v_proj',
      mlp: 'mlp',
      out: '',
    };
    const other = await changed(
      right,
      (name, { shape, data }) => {
        const [, layer, kind = ''] = /^layers\.(\d)\.(\w+)$/.exec(name) ?? [];
        if (!(kind in names)) return {};
        const [tokens, heads, dim] = shape as [number, number, number?];
        if (!dim)
          return { [`model.layers.${layer}.${names[kind]}`.replace(/\.$/, '')]: { shape: [1, ...shape], data } };
        const moved = data.map(
          (_, n) =>
            data[(Math.floor(n / dim) % tokens) * heads * dim + Math.floor(n / dim / tokens) * dim + (n % dim)]!,
        );
        return { [`model.layers.${layer}.${names[kind]}`]: { shape: [1, heads, tokens, dim], data: moved } };
      },
      undefined,
    );
    const report = await traced(other);
    same(report);
    assert.equal(report.steps.length, 16);
    assert.deepEqual(report.unmatched.b, []);
  });
  test('heads and tokens shared by two ranks, in zigzag', async () => {
    const split = (
      rows: number,
      width: number,
      data: Float32Array,
      keep: (t: number, c: number) => boolean,
    ): Float32Array =>
      Float32Array.from({ length: rows * width }, (_, n) => n)
        .filter((n) => keep(Math.floor(n / width), n % width))
        .map((n) => data[n]!);
    const other = await changed(right, (name, { shape, data }) => {
      const [tokens, ...inner] = shape as [number, ...number[]];
      const width = data.length / tokens;
      if (/\.(q|v|heads)$/.test(name))
        return [0, 1].map((rank) => ({
          shape: [tokens, inner[0]! / 2, headDim],
          data: split(tokens, width, data, (_t, c) => Math.floor((2 * c) / width) === rank),
        }));
      if (/\.mlp$/.test(name))
        return [0, 1].map((rank) => ({
          shape,
          data: data.map((x, n) => (rank === 0 ? 0.3 * Math.sin(n) : x - 0.3 * Math.sin(n))),
        }));
      return undefined;
    });
    const report = await traced(other);
    same(report);
    assert.deepEqual(report.matched, ['q, v, heads: ranks side by side', 'mlp: the sum of all parts']);
    const zigzag = await changed(right, (_name, { shape, data }) => {
      const width = data.length / shape[0]!;
      return [0, 1].map((rank) => ({
        shape: [shape[0]! / 2, ...shape.slice(1)],
        data: split(shape[0]!, width, data, (t) => [0, 1, 1, 0][Math.floor((4 * t) / shape[0]!)] === rank),
      }));
    });
    const ranks = await traced(zigzag);
    same(ranks);
    assert.match(ranks.matched.join(), /ranks of tokens, zigzag/);
  });
  test('fused q, k and v', async () => {
    const parts = new Map<string, Float32Array>();
    const other = await changed(right, (name, { data }) => {
      const [, layer, kind] = /^(layers\.\d)\.([qkv])$/.exec(name) ?? [];
      if (!layer) return undefined;
      parts.set(kind!, data);
      if (kind !== 'v') return {};
      const row = (t: number): number[] =>
        ['q', 'k', 'v'].flatMap((one) => [
          ...parts.get(one)!.subarray((t * parts.get(one)!.length) / 48, ((t + 1) * parts.get(one)!.length) / 48),
        ]);
      return {
        [`${layer}.self_attn.qkv_proj`]: { shape: [48, 320], data: Float32Array.from(ids.flatMap((_, t) => row(t))) },
      };
    });
    for (const report of [await traced(other), await traceDumps(other, right)]) {
      same(report);
      assert.equal(report.steps.length, 63);
      assert.ok(report.matched.includes('q, k, v: fused'));
    }
  });
  test('padding in front, and the rows of the last tokens alone', async () => {
    const padded = await changed(right, (_name, { shape, data }) => {
      const width = data.length / shape[0]!;
      return {
        [_name]: {
          shape: [shape[0]! + 3, ...shape.slice(1)],
          data: Float32Array.from([...new Array(3 * width).fill(0.5), ...data]),
        },
      };
    });
    same(await traced(padded));
    const last = await changed(right, (name, { data }) =>
      name === 'logits' ? { [name]: { shape: [1, 1024], data: data.subarray(47 * 1024) } } : undefined,
    );
    const report = await traced(last);
    same(report);
    assert.deepEqual([report.steps.length, report.steps.at(-1)!.difference.tokens], [63, 1]);
  });
  test('a tensor that is another one by convention', async () => {
    const stream = await tensorOf('layers.0.out');
    const attn = await changed(right, (name, { shape, data }) =>
      name === 'layers.1.attn' ? { [name]: { shape, data: data.map((x, n) => x + stream[n]!) } } : undefined,
    );
    const report = await traced(attn);
    same(report);
    assert.match(report.notes.join(' '), /layers\.1\.attn is another tensor in B.*holds the residual stream plus/s);
  });
});

test('a report has at most 25 lines, and is JSON', async () => {
  const report = await traced(await runOf({ rope_theta: 20000 }));
  const lines = traceLines(report);
  assert.ok(lines.length <= 25);
  assert.ok(lines.some((line) => /layer {3}0 .*◄ q_rope$/.test(line)));
  const json = JSON.parse(JSON.stringify(traceToJson(report)));
  assert.deepEqual([json.same, json.divergence.step, json.steps.length], [false, 'layers.0.q_rope', 63]);
});

test('tensors whose names are lost are found by their values; a dump of other values is refused', async () => {
  let n = 0;
  const renamed = await changed(right, (_name, values) => ({ [`thing_${n++}`]: values }), undefined);
  const report = await traced(renamed);
  assert.equal(report.divergence, undefined);
  assert.equal(report.steps.length, 63);
  assert.match(report.matched[0]!, /^63 by values: thing_0 is embedding, thing_1 is layers\.0\.attn_norm/);
  const other = await changed(right, (name, { shape, data }) => ({
    [`thing_${name.length}`]: { shape, data: data.map((_, at) => at % 7) },
  }));
  await assert.rejects(traced(other), { code: 'FORMAT', message: /none of its tensors is one of/ });
});

test('dumps of any shapes and values end in a report or a refusal', async () => {
  const random = randomFrom(process.env.SEED ?? 'trace');
  const pick = <T>(list: readonly T[]): T => list[random.integer(list.length)]!;
  const values = [0, 1, -1, 1e30, -1e30, Number.NaN, Infinity, 1e-40];
  for (let round = 0; round < 15; round++) {
    const odd = await changed(right, (name, { shape, data }) => {
      if (!/^layers\.[01]\.|logits/.test(name)) return {};
      const way = pick(['same', 'same', 'same', 'shape', 'value', 'all', 'gone', 'ranks']);
      if (way === 'gone') return {};
      if (way === 'shape')
        return {
          [name]: {
            shape: pick([[data.length], [1, data.length], [data.length, 1, 1, 1, 1], [2, data.length / 2]]),
            data,
          },
        };
      const changedData =
        way === 'value'
          ? data.map((x) => (random.integer(100) === 0 ? pick(values) : x))
          : way === 'all'
            ? data.map(() => pick(values))
            : data;
      return way === 'ranks'
        ? [
            { shape, data },
            { shape: [1], data: new Float32Array(1) },
          ]
        : { [name]: { shape, data: changedData } };
    });
    const sides = round % 2 === 0 ? ([right, odd] as const) : ([odd, right] as const);
    const lines = await traceDumps(...sides).then(traceLines, (error) => [error.code]);
    assert.ok(lines.length <= 25 && !lines.includes(undefined as never), lines.join('\n'));
  }
});
