/**
 * Cited bugs of positions, of two calls, of ranks and of whole models, each as its thread says that it went wrong: it is
 * found, and the report has the words for it. Right layouts that look alike stay silent.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { writeNpy, writeNpz } from '@ropewalk/formats';
import { roundTo, tensorFrom } from 'ropewalk';
import { ropewalkIn } from '../../../test/support/command.js';
import { DIM, drawn, HEADS, turned, writeRope, writeRows } from '../../../test/support/rotated-rows.js';

const root = mkdtempSync(join(tmpdir(), 'cited-'));
after(() => rmSync(root, { recursive: true }));
const count = (length: number, from = 0): number[] => Array.from({ length }, (_, n) => from + n);
/** The exit code, and words that the report has. */
type Told = readonly [status: number, words: RegExp];
type Run = (folder: string) => ReturnType<typeof ropewalkIn>;

const writePositions = (path: string, data: readonly number[], shape: readonly number[] = [data.length]): void =>
  writeFileSync(path, writeNpy(Int32Array.from(data), { dtype: 'i32', shape: [...shape] }));

/** A dump whose rows rotate by `used`. With `given` the runtime's own positions are in the dump. */
function dump(options: readonly string[], used: readonly number[], given: readonly number[] = used, batch = 1): Run {
  return (folder) => {
    const [x, shape] = [drawn(used.length, 'x'), [batch, used.length / batch, HEADS, DIM]];
    for (const [name, data] of Object.entries({ x, y: turned(x, (t) => used[t]!) }))
      writeFileSync(join(folder, `${name}.npy`), writeNpy(data, { dtype: 'f32', shape }));
    writePositions(join(folder, 'p.npy'), given, batch > 1 ? [batch, given.length / batch] : undefined);
    const inputs = ['--x', 'x.npy', '--y', 'y.npy', '--expect', writeRope(folder)];
    return ropewalkIn(folder, 'diagnose', ...inputs, ...options);
  };
}
const WITH = ['--positions', 'p.npy'];
/** The runtime's own positions beside what the tokens say. */
const beside = (options: readonly string[], used: readonly number[]): Run => dump([...options, ...WITH], used);

/** Rows with a mask of `[batch, tokens]`. */
const masked = (mask: readonly (readonly number[])[], used: readonly number[]): Run => {
  const run = dump(['--attention-mask', 'mask.json', ...WITH], used, used, mask.length);
  return (folder) => {
    writeFileSync(join(folder, 'mask.json'), JSON.stringify(mask));
    return run(folder);
  };
};

/** All ranks' dumps, with the positions by which each rotates its share. */
function ranks(layout: string, tokens: number, own: (rank: number) => readonly number[], size = 2): Run {
  return (folder) => {
    for (let rank = 0; rank < size; rank++) {
      const [at, x] = [join(folder, `rank${rank}`), drawn(own(rank).length, `rank ${rank}`)];
      mkdirSync(at);
      writeRows(join(at, 'x.npy'), x);
      writeRows(
        join(at, 'y.npy'),
        turned(x, (t) => own(rank)[t]!),
      );
    }
    const files = ['--x', 'rank*/x.npy', '--y', 'rank*/y.npy', '--expect', writeRope(folder)];
    return ropewalkIn(folder, 'diagnose', ...files, '--tokens', String(tokens), '--rank-layout', layout);
  };
}

/** Keys of two layers before and after, and their values. */
function caches(after: (x: Float32Array, layer: number) => Float32Array, then: readonly number[]): Run {
  return (folder) => {
    const tokens = count(12);
    for (const name of ['a', 'b']) {
      const layers = [0, 1].flatMap((layer) => {
        const x = drawn(tokens.length, `layer ${layer}`);
        const keys = name === 'a' ? turned(x, (t) => t) : after(x, layer);
        const values = drawn(tokens.length, `values ${layer}`);
        const of = (data: Float32Array) => tensorFrom(data, { shape: [1, tokens.length, HEADS, DIM] });
        return [
          [`past_key_values.${layer}.key`, of(keys)],
          [`past_key_values.${layer}.value`, of(values)],
        ] as const;
      });
      writeFileSync(join(folder, `${name}.npz`), writeNpz(new Map(layers)));
    }
    writePositions(join(folder, 'p.npy'), tokens);
    writePositions(join(folder, 'q.npy'), then);
    const positions = ['--positions', 'p.npy', '--then-positions', 'q.npy'];
    return ropewalkIn(folder, 'cache-diff', 'a.npz', 'b.npz', '--expect', writeRope(folder), ...positions);
  };
}

const log =
  (...lines: readonly object[]): Run =>
  (folder) => {
    writeFileSync(
      join(folder, 'log.jsonl'),
      lines.map((line) => `${JSON.stringify({ request: 'r', ...line })}\n`).join(''),
    );
    return ropewalkIn(folder, 'positions', 'log.jsonl');
  };

/** An image of 3 × 3 patches behind 4 tokens, and 5 tokens behind it, by three axes. */
function image(used: (axis: number) => readonly number[], given = used): Run {
  return (folder) => {
    const x = drawn(18, 'image');
    const axisOf = (pair: number): number => (pair < 4 ? 0 : pair < 10 ? 1 : 2);
    writeRows(join(folder, 'x.npy'), x);
    writeRows(
      join(folder, 'y.npy'),
      turned(x, (t, pair) => used(axisOf(pair))[t]!),
    );
    writePositions(join(folder, 'p.npy'), count(3).flatMap(given), [3, given(0).length]);
    const rope = { type: 'mrope', mrope_section: [4, 6, 6] };
    const sizes = { hidden_size: HEADS * DIM, num_attention_heads: HEADS, num_hidden_layers: 2, rope_theta: 10000 };
    const config = { model_type: 'qwen2_vl', ...sizes, max_position_embeddings: 4096, rope_scaling: rope };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const files = ['--x', 'x.npy', '--y', 'y.npy', '--expect', 'config.json', ...WITH];
    return ropewalkIn(folder, 'diagnose', ...files, '--tokens', '18', '--grid', '4:1x3x3');
  };
}
const ofImage = (axis: number): number[] => [
  ...count(4),
  ...count(9).map((n) => 4 + (axis === 0 ? 0 : axis === 1 ? Math.floor(n / 3) : n % 3)),
  ...count(5, 7),
];

/** Attention over a row of tokens of which a runtime sees others than it should, as a trace of both sides. */
function attention(
  sees: (t: number, s: number) => boolean,
  should: (t: number, s: number) => boolean,
  stale?: number,
): Run {
  return (folder) => {
    const tokens = 20;
    const [q, k, v] = ['q', 'k', 'v'].map((name) => drawn(tokens, name)) as [Float32Array, Float32Array, Float32Array];
    for (const [name, mask] of Object.entries({ a: should, b: sees })) {
      const keyAt = (s: number): number => (name === 'b' && s === stale ? s - 1 : s);
      const heads = q.map((_, n) => {
        const [t, h] = [Math.floor(n / HEADS / DIM), Math.floor(n / DIM) % HEADS];
        const row = (s: number): number => (keyAt(s) * HEADS + h) * DIM;
        const seen = count(tokens).filter((s) => mask(t, s));
        const scores = seen.map((s) =>
          Math.exp(
            count(DIM).reduce((sum, i) => sum + q[(t * HEADS + h) * DIM + i]! * k[row(s) + i]!, 0) / Math.sqrt(DIM),
          ),
        );
        const all = scores.reduce((sum, one) => sum + one, 0);
        return seen.reduce((sum, s, at) => sum + (scores[at]! / all) * v[row(s) + (n % DIM)]!, 0);
      });
      const tensors = { q_rope: q, k_rope: k, v, heads };
      const named = Object.entries(tensors).map(
        ([one, data]) => [`layers.0.${one}`, tensorFrom(data, { shape: [tokens, HEADS, DIM] })] as const,
      );
      writeFileSync(join(folder, `${name}.npz`), writeNpz(new Map(named)));
    }
    return ropewalkIn(folder, 'trace', 'a.npz', 'b.npz');
  };
}
const causal = (t: number, s: number): boolean => s <= t;

const CHUNKS = ['--chunks', '8,8,6'];
const zigzag = (rank: number): number[] => [...count(4, 4 * rank), ...count(4, 4 * (3 - rank))];
const POSITIONS = /^POSITIONS WRONG: the kernel is right/;
const WRONG = /^POSITIONS WRONG/;

const CASES: Readonly<Record<string, readonly [Run, Told]>> = {
  'kvcache-ai/sglang#66, PaddlePaddle/PaddleFleet#1210: attention reads what is not rotated': [
    dump(
      ['--tokens', '12'],
      count(12).map(() => 0),
      count(12),
    ),
    [1, /y is x: nothing was rotated/],
  ],
  'ml-explore/mlx#561: the table of another number of dimensions': [
    (folder) => {
      const x = drawn(12, 'x');
      writeRows(join(folder, 'x.npy'), x);
      // Pair j has the frequency of a head that is twice as wide.
      const y = turned(x, (t, pair) => t * 10000 ** ((2 * pair) / DIM - pair / DIM));
      writeRows(join(folder, 'y.npy'), y);
      const files = ['--x', 'x.npy', '--y', 'y.npy', '--expect', writeRope(folder), '--tokens', '12'];
      return ropewalkIn(folder, 'diagnose', ...files);
    },
    [1, /^KNOWN BUG: exponent-without-two$/m],
  ],
  'lucidrains/rotary-embedding-torch#11: the second call has the angles of the first one': [
    dump(['--tokens', '8', '--cached', '40'], count(8, 10)),
    [1, /^DIFFERENT .*: It rotates by the position − 30; expected is the position as given/],
  ],
  'huggingface/transformers#43082: a chunk starts at 0 again': [beside(CHUNKS, count(6)), [1, POSITIONS]],
  'mlx-node/mlx-node#33: a chunk starts at twice its place': [beside(CHUNKS, count(6, 32)), [1, POSITIONS]],
  'Blaizzy/mlx-vlm#1983, pytorch/executorch#2010: decodes at 0': [
    beside(['--tokens', '1', '--cached', '40'], [0]),
    [1, POSITIONS],
  ],
  'jundot/omlx#2363: drafts all have the first position': [
    beside(['--tokens', '4', '--cached', '30'], [30, 30, 30, 30]),
    [1, POSITIONS],
  ],
  'jundot/omlx#2363, in the cache: keys apart, values equal': [
    caches((x) => turned(x, (t) => Math.min(t, 8)), count(12)),
    [1, /tokens 9-11: turned by −1 to −3 positions.*\n.*values are equal: only positions differ/],
  ],
  'alibaba/rtp-llm#1163, vllm-project/vllm#52973: positions of another number of tokens': [
    image(ofImage, () => count(4)),
    [2, /--positions: given: expected 3 × 18 positions, as the layout has, got 12/],
  ],
  'modelscope/ms-swift#8325: positions are rolled': [beside(['--tokens', '9'], [...count(8, 1), 0]), [1, POSITIONS]],
  'waybarrios/vllm-mlx#311: one early behind a prefix': [
    log({ step: 0, cached: 20, positions: count(5, 19) }, { step: 1, positions: [24] }),
    [1, /request r, step 0\b/],
  ],
  'RobertCsordas/moeut#6: every decoded query at 0': [
    log({ step: 0, positions: count(5) }, { step: 1, positions: [0] }, { step: 2, positions: [0] }),
    [1, /request r, step 1\b/],
  ],
  'microsoft/onnxruntime#29002: a short row counts from below 0': [
    masked([count(8).map(() => 1), count(8).map((t) => (t < 5 ? 1 : 0))], [...count(8), ...count(8, -3)]),
    [1, WRONG],
  ],
  'unslothai/unsloth#4078: padding on the left is counted': [
    masked([count(8).map(() => 1), count(8).map((t) => (t < 3 ? 0 : 1))], [...count(8), ...count(8)]),
    [1, WRONG],
  ],
  'turboderp-org/exllamav2#606: positions below 0 in padding are right': [
    masked([count(8).map(() => 1), count(8).map((t) => (t < 3 ? 0 : 1))], [...count(8), ...count(8, -3)]),
    [0, /positions are those of the tokens/],
  ],
  'turboderp-org/exllamav2#606, Blaizzy/mlx-vlm#1542: padding is seen': [
    attention(causal, (t, s) => causal(t, s) && (s >= 4 || t < 4)),
    [1, /FIRST DIVERGENCE {2}layers\.0\.heads/],
  ],
  'allenai/OLMo-core#591: packed documents count on': [beside(['--cu-seqlens', '0,5,12'], count(12)), [1, POSITIONS]],
  'huggingface/nanoVLM#204: packed documents see each other': [
    attention(causal, (t, s) => causal(t, s) && Math.floor(t / 10) === Math.floor(s / 10)),
    [1, /FIRST DIVERGENCE {2}layers\.0\.heads[\s\S]*chunks of 10/],
  ],
  'hiyouga/LlamaFactory#7754: only the first document of a mask is counted': [
    masked([[1, 1, 2, 2, 2, 0]], [0, 1, 1, 1, 1, 1]),
    [1, WRONG],
  ],
  'NVIDIA-NeMo/Megatron-Bridge#1988: ids of packed tokens by a mask that was rebuilt': [
    beside(['--cu-seqlens', '0,5,12'], [...count(5), ...count(7, 3)]),
    [1, POSITIONS],
  ],
  'vllm-project/vllm#16878: text behind an image one off': [
    image((axis) => ofImage(axis).map((p, t) => (t < 13 ? p : p - 1))),
    [1, WRONG],
  ],
  'vllm-project/vllm#32143: the position of the token for every axis': [image(() => count(18)), [1, WRONG]],
  'sgl-project/sglang#14639: positions are not extended to new tokens': [
    log({ step: 0, positions: count(9), tokens: 12 }),
    [2, /tokens: expected 9, the number of positions, got 12/],
  ],
  'NVIDIA/Megatron-LM#5243: a share without the offset of its sequence': [
    dump(WITH, [0, 3, 0, 3], [0, 3, 4, 7]),
    [1, /Token 2: x, not rotated/],
  ],
  'NVIDIA/Megatron-LM#1612, dylanyunlon/Neuron_SP#42: no rank takes its share': [
    ranks('zigzag', 16, () => count(8)),
    [1, /^KNOWN BUG in each of ranks 0, 1: .*positions-ignored/],
  ],
  'sgl-project/sglang#28463: tokens in turns, positions of the place in the share': [
    ranks('round-robin', 16, () => count(8)),
    [1, /rank 1 is wrong: .*positions-ignored/],
  ],
  'sgl-project/sglang#32098: keys of all ranks, positions of one': [
    dump(['--tokens', '16'], [...count(8), ...count(8)]),
    [1, /Tokens 9-15: this row of x rotated by the position of the token 8 places before it/],
  ],
  'PaddlePaddle/PaddleFleet#1437: a share of another length': [
    ranks('contiguous', 32, (rank) => count(8, 8 * rank)),
    [2, /--tokens: it gives 16 tokens, the share of rank 0\/2, and \S+ has the shape \[8, 2, 32\]/],
  ],
  'vllm-project/tpu-inference#3241: the positions of the first request for all': [
    beside(['--cu-seqlens', '0,1,2,3', '--cached', '10,40,90'], [10, 10, 10]),
    [1, POSITIONS],
  ],
  'NVIDIA/Megatron-LM#560: zigzag is right': [ranks('zigzag', 16, zigzag), [0, /^AS EXPECTED/]],
  'ggml-org/llama.cpp#4097: a key in 16 bits that is shifted again and again': [
    caches((x) => {
      let y = turned(x, (t) => t + 64);
      for (let n = 0; n < 64; n++) y = turned(y, () => -1).map((value) => roundTo('f16', value));
      return y;
    }, count(12)),
    [1, /tokens 0-11: not turned, error up to 0\.\d+ %\n.*values are equal/],
  ],
  'NVIDIA/kvpress#84: turned with the magnitude of the table': [
    caches((x) => turned(x, (t) => t + 4).map((value) => 1.2 * value), count(12, 4)),
    [1, /turned by \+4 positions, 1\.2 times as long/],
  ],
  'LMCache/LMCache#4666: one RoPE for all layers': [
    caches(
      (x, layer) =>
        layer === 0
          ? turned(x, (t) => t + 4)
          : turned(
              turned(x, (t) => t),
              (_, j) => 4 * 1e4 ** (j / DIM),
            ),
      count(12, 4),
    ),
    [1, /layer 1:\n.*tokens 0-11: keys that A does not have[\s\S]*as with another base, scaling or pairing/],
  ],
  'Blaizzy/mlx-vlm#1748: a prefix of a ring buffer, cut at a length': [
    caches((x) => {
      const y = turned(x, (t) => t);
      const row = HEADS * DIM;
      return Float32Array.from([...y.subarray(5 * row), ...y.subarray(0, 5 * row)]);
    }, count(12)),
    [1, /tokens 0-6: A's tokens 5-11, not turned, expected is −5 positions/],
  ],
  'huggingface/candle#3698: the window is ignored': [
    attention(causal, (t, s) => causal(t, s) && t - s < 7),
    [1, /FIRST DIVERGENCE {2}layers\.0\.heads[\s\S]*window of 7 tokens/],
  ],
};

describe('cited bugs of positions, calls, ranks and models', () => {
  for (const [name, [run, [status, words]]] of Object.entries(CASES))
    test(name, async () => {
      const got = await run(mkdtempSync(join(root, 'case-')));
      const text = `${got.stdout}${got.stderr}`;
      assert.equal(got.status, status, text);
      assert.match(text, words);
    });
});
