/** Causes and refusals on small dumps that are made here. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Dump, type RunFacts, traceDumps, traceLines } from '@ropewalk/trace/internal';
import { tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { placeOf } from '../src/names.js';

type Made = readonly [name: string, shape: readonly number[], data: Float32Array | Int32Array];

function dumpOf(made: readonly Made[], facts?: RunFacts): Dump {
  const tensors = made.map(([name, shape, data]) => ({
    name,
    shape,
    dtype: data instanceof Int32Array ? 'i32' : 'f32',
    read: async () => tensorFrom(data, { shape }),
  }));
  return { label: 'made here', tensors, notes: [], facts, close: async () => {} };
}

const random = randomFrom('causes');
const noise = (count: number): Float32Array => Float32Array.from({ length: count }, () => random.uniform(-1, 1));
const [tokens, heads, headDim] = [24, 8, 16];
const shape = [tokens, heads, headDim];
const positions = Int32Array.from({ length: tokens }, (_, n) => n);
const q = noise(tokens * heads * headDim);

/** Rotates q in halves, times a factor. */
function rotated(positionOf: (token: number) => number, factor = 1): Float32Array {
  const half = headDim / 2;
  return q.map((_, n) => {
    const [at, pair] = [n % headDim, n % half];
    const angle = positionOf(Math.floor(n / heads / headDim)) * 10000 ** (-pair / half);
    const other = at < half ? -q[n + half]! : q[n - half]!;
    return factor * (q[n]! * Math.cos(angle) + other * Math.sin(angle));
  });
}

test('RoPE with a magnitude is taken back where only q after it is in the dumps', async () => {
  const rope = { headDim, rotaryDim: headDim, base: 10000, pairing: 'half', attentionFactor: 1.2 } as const;
  const facts = { layers: [{ numHeads: heads, numKvHeads: heads, headDim, rope }] };
  const of = (further: number): Made[] => [
    ['positions', [tokens], positions],
    ['layers.0.q_rope', shape, rotated((t) => t + further, 1.2)],
  ];
  const { divergence } = await traceDumps(dumpOf(of(0), facts), dumpOf(of(1)));
  assert.match(divergence!.causes[0]!.says, /Counts positions from 1/);
});

test('logits are capped only if all rows are, on either side', async () => {
  const width = 40;
  const logits = noise(tokens * width).map((x) => 30 * x);
  const capped = logits.map((x) => 20 * Math.tanh(x / 20));
  const traced = async (a: Float32Array, b: Float32Array): Promise<string> => {
    const [ofA, ofB] = [a, b].map((data) => dumpOf([['logits', [tokens, width], data]]));
    return (await traceDumps(ofA!, ofB!)).divergence!.causes.map(({ says }) => says).join();
  };
  assert.match(await traced(logits, capped), /B's logits are capped at 20/);
  assert.match(await traced(capped, logits), /A's logits are capped at 20/);
  const late = logits.map((x, n) => (n < 10 * width ? x : x + 9 * Math.sin(n * n) * (n % 3)));
  assert.equal(await traced(logits, late), '');
});

test('more tokens and more logits than a call takes arguments', async () => {
  const [count, width] = [200_000, 150_000];
  const logits = noise(4 * width);
  const of = (data: Float32Array): Dump =>
    dumpOf([
      ['tokens', [count], new Int32Array(count)],
      ['logits', [4, width], data],
    ]);
  const gained = logits.map((x, n) => x * (1 + 0.5 * Math.sin(n % width)));
  const { divergence } = await traceDumps(of(logits), of(gained));
  assert.match(divergence!.causes[0]!.says, /times a factor of its own \(0\.5 to 1\.5\)/);
});

test('a cause of RoPE says which heads and tokens it was found in', async () => {
  const all = rotated((t) => t + 1);
  const later = all.map((x, n) => (n % (heads * headDim) < 4 * headDim ? x : 0));
  const of = (data: Float32Array): Dump =>
    dumpOf([
      ['layers.0.q', shape, q],
      ['layers.0.q_rope', shape, data],
    ]);
  const says = async (y: Float32Array): Promise<string> =>
    (await traceDumps(of(rotated((t) => t)), of(y))).divergence!.causes[0]!.says;
  assert.match(await says(later), /Counts positions from 1.*Looked at: 4 of 8 heads, 24 of 24 tokens\./);
  assert.match(await says(all), /Counts positions from 1[^:]*$/, 'a bug that gives all heads is said of all');
});

test('ranks that share tokens, equal shares or not, on either side: all of them are compared', async () => {
  const row = heads * headDim;
  const shares: Record<string, readonly (readonly number[])[]> = {
    contiguous: [
      [0, 1, 2, 3, 4],
      [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
      [16, 17, 18, 19, 20, 21, 22, 23],
    ],
    zigzag: [0, 1].map((rank) => [...positions].filter((t) => [rank, 3 - rank].includes(Math.floor(t / 6)))),
    'round robin': [0, 1, 2].map((rank) => [...positions].filter((t) => t % 3 === rank)),
  };
  const whole = dumpOf(['q', 'k'].map((name) => [`layers.0.${name}`, shape, name === 'q' ? q : rotated((t) => t)]));
  for (const [layout, tokensOf] of Object.entries(shares)) {
    const ranks = (error: number): Dump => ({
      ...whole,
      tensors: tokensOf.flatMap((own, rank) =>
        ['q', 'k'].map((name) => {
          const all = name === 'q' ? q : rotated((t) => t);
          const data = Float32Array.from(own.flatMap((t) => [...all.subarray(t * row, (t + 1) * row)]));
          const wrong = data.map((x) => (rank === 1 ? (1 + error) * x : x));
          const sizes = [own.length, heads, headDim];
          const read = async () => tensorFrom(wrong, { shape: sizes });
          return { name: `layers.0.${name}`, shape: sizes, dtype: 'f32', rank, read };
        }),
      ),
    });
    for (const [a, b] of [
      [whole, ranks(0)],
      [ranks(0), whole],
    ] as const) {
      const { divergence, matched } = await traceDumps(a, b);
      assert.equal(divergence, undefined);
      assert.match(matched.join(), new RegExp(`q, k: ranks of tokens, ${layout}`));
    }
    const { divergence } = await traceDumps(whole, ranks(0.1));
    const wrong = tokensOf[1]!;
    assert.deepEqual(
      [divergence?.step.name, divergence?.tokens, divergence?.wrongTokens, divergence?.firstToken],
      ['layers.0.q', tokens, wrong.length, wrong[0]],
    );
  }
});

test('a tensor of a shape that no layout explains is no divergence where what is made from it agrees', async () => {
  const dump = (odd: readonly number[]): Dump =>
    dumpOf([
      ['layers.0.q', shape, q],
      ['layers.0.q_norm', odd, q],
      ['layers.0.q_rope', shape, rotated((t) => t)],
    ]);
  // Heads by tokens and dimensions, as a transposed view that was flattened.
  const odd = [heads, tokens * headDim];
  const same = await traceDumps(dump(shape), dump(odd));
  assert.equal(same.divergence, undefined);
  assert.deepEqual(same.unmatched.b, ['layers.0.q_norm']);
  const alone = { ...dump(odd), tensors: dump(odd).tensors.slice(0, 2) };
  assert.equal((await traceDumps(dump(shape), alone)).divergence?.step.name, 'layers.0.q_norm');
});

test('embeddings that a side scales later are no fault, though the first layer is wrong; a lost scale is one', async () => {
  const [width, scale, r] = [32, 12, 0.22];
  const [embedding, attn] = [noise(tokens * width), noise(tokens * width)];
  const of = (recorded: number, added: number, block: Float32Array): Dump => {
    const mlp = embedding.map((x, n) => Math.sin(added * x + r * block[n]!));
    const values: [string, Float32Array][] = [
      ['embedding', embedding.map((x) => recorded * x)],
      ['layers.0.attn', block],
      ['layers.0.mlp', mlp],
      ['layers.0.out', embedding.map((x, n) => added * x + r * (block[n]! + mlp[n]!))],
    ];
    return dumpOf(values.map(([name, data]) => [name, [tokens, width], data]));
  };
  const first = async (b: Dump): Promise<string | undefined> =>
    (await traceDumps(of(scale, scale, attn), b)).divergence?.step.name;
  const wrong = attn.map((x) => 2 * x);
  assert.equal(await first(of(1, scale, attn)), undefined);
  assert.equal(await first(of(1, scale, wrong)), 'layers.0.attn');
  assert.equal(await first(of(1, 1, attn)), 'embedding');
  assert.equal(await first(of(1, 1, wrong)), 'embedding');
});

test('a block that is added with another factor', async () => {
  const width = 32;
  const [embedding, attn] = [noise(tokens * width), noise(tokens * width)];
  const of = (factor: number): Dump =>
    dumpOf([
      ['embedding', [tokens, width], embedding],
      ['layers.0.attn', [tokens, width], attn],
      ['layers.0.mid', [tokens, width], embedding.map((x, n) => x + factor * attn[n]!)],
    ]);
  const { divergence } = await traceDumps(of(0.25), of(1));
  assert.match(
    divergence!.causes[0]!.says,
    /^Beside the stream, the output of attention is 4 times as large in B as in A/,
  );
});

test('tensors of a type that cannot be read are left out with a note', async () => {
  const data = noise(64);
  const [a, b] = [dumpOf([['layers.0.out', [8, 8], data]]), dumpOf([['layers.0.out', [8, 8], data]])];
  const read = async (): Promise<never> => assert.fail('it is read');
  const strange = ['layers.0.mid', 'some.cache'].map((name) => ({ name, shape: [8, 8], dtype: 'f8_e8m0', read }));
  const report = await traceDumps(a, { ...b, tensors: [...b.tensors, ...strange] });
  assert.equal(report.divergence, undefined);
  assert.match(
    report.notes.join(),
    /2 tensors of made here have a type that cannot be read, such as layers.0.mid \(f8_e8m0\)/,
  );
});

test('layers of an image encoder and single experts are no layers of the decoder', () => {
  for (const name of [
    'model.vision_tower.layers.0.self_attn.q_proj',
    'visual.blocks.0.attn.qkv',
    'vision_tower.encoder.layers.0.mlp',
    'model.layers.0.mlp.experts.3.gate_proj',
  ])
    assert.equal(placeOf(name), undefined, name);
  assert.deepEqual(placeOf('layers.2.per_layer'), { kind: 'per_layer', layer: 2 });
  assert.deepEqual(placeOf('model.language_model.layers.0.self_attn.q_proj'), { kind: 'q', layer: 0 });
});

test('of many notes the last ones are shown, with the count of the others', async () => {
  const one = dumpOf([['layers.0.q', shape, q]]);
  const lines = traceLines(await traceDumps({ ...one, notes: ['1', '2', '3', '4', '5', '6'] }, one));
  const notes = lines.filter((line) => line.startsWith('note'));
  assert.deepEqual(notes, ['note  2 more notes: --json has them.', 'note  3', 'note  4', 'note  5', 'note  6']);
});
