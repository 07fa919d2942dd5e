import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Dump, type TraceReport, traceDumps } from '@ropewalk/trace/internal';
import { tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';

const random = randomFrom(process.env.SEED ?? 'judged');
/** A draw from nearly a normal distribution. */
const draw = (): number =>
  Array.from({ length: 6 }, () => random.integer(2001) / 1000 - 1).reduce((a, b) => a + b) / 1.4;
const drawn = (count: number): Float32Array => Float32Array.from({ length: count }, draw);

interface Written {
  readonly name: string;
  readonly shape: readonly number[];
  readonly data: Float32Array | Int32Array;
  readonly step?: number;
  readonly rank?: number;
}

const dumpOf = (written: readonly Written[]): Dump => ({
  label: 'made',
  notes: [],
  close: async () => {},
  tensors: written.map(({ data, shape, ...one }) => ({
    ...one,
    shape,
    dtype: data instanceof Int32Array ? 'i32' : 'f32',
    read: async () => tensorFrom(data, { shape }),
  })),
});
const traced = (a: readonly Written[], b: readonly Written[]): Promise<TraceReport> => traceDumps(dumpOf(a), dumpOf(b));
const found = ({ divergence }: TraceReport): string | undefined => divergence?.step.name;

const [N, H, F, V] = [24, 64, 128, 100];
const added = (x: Float32Array, y: Float32Array): Float32Array => x.map((value, n) => value + y[n]!);
const normed = (x: Float32Array): Float32Array =>
  x.map((value, n) => {
    const row = x.subarray(n - (n % H), n - (n % H) + H);
    return value / Math.sqrt(row.reduce((sum, one) => sum + one * one, 0) / H);
  });
function product(x: Float32Array, weight: Float32Array, width: number): Float32Array {
  const inner = weight.length / width;
  return Float32Array.from({ length: (x.length / inner) * width }, (_, at) => {
    let sum = 0;
    for (let k = 0; k < inner; k++) sum += x[Math.floor(at / width) * inner + k]! * weight[k * width + (at % width)]!;
    return sum / Math.sqrt(inner);
  });
}

const weights = {
  embedding: drawn(N * H),
  attn: drawn(H * H),
  gate: drawn(H * F),
  up: drawn(H * F),
  mlp: drawn(F * H),
  head: drawn(H * V),
};
const silu = (x: number): number => x / (1 + Math.exp(-x));
const gelu = (x: number): number => 0.5 * x * (1 + Math.tanh(0.7978845608 * (x + 0.044715 * x ** 3)));

/** A decoder of three layers, whose attention is one matrix, without positions. */
function decoder(
  { act = silu, cap = 30, scale = 1, ...own } = {} as {
    act?: (x: number) => number;
    cap?: number;
    scale?: number;
  } & Partial<typeof weights>,
): Written[] {
  const w = { ...weights, ...own };
  let x: Float32Array = w.embedding.map((value) => scale * value);
  const written: Written[] = [{ name: 'embedding', shape: [N, H], data: x }];
  for (let layer = 0; layer < 3; layer++) {
    const attn_norm = normed(x);
    const attn = product(attn_norm, w.attn, H);
    const mid = added(x, attn);
    const mlp_norm = normed(mid);
    const up = product(mlp_norm, w.up, F);
    const mlp = product(
      product(mlp_norm, w.gate, F).map((value, n) => act(value) * up[n]!),
      w.mlp,
      H,
    );
    x = added(mid, mlp);
    for (const [kind, data] of Object.entries({ attn_norm, attn, mid, mlp_norm, mlp, out: x }))
      written.push({ name: `layers.${layer}.${kind}`, shape: [N, H], data });
  }
  const norm = normed(x);
  const logits = product(norm, w.head, V).map((value) => cap * Math.tanh((10 * value) / cap));
  return [...written, { name: 'norm', shape: [N, H], data: norm }, { name: 'logits', shape: [N, V], data: logits }];
}
const right = decoder();
const noisy = (data: Float32Array, share: number): Float32Array => data.map((x) => x + share * draw());

describe('noise of fewer bits begins with the first matrix', () => {
  test('a fault that is alike everywhere is no noise where matrices before it agree', async () => {
    assert.equal(found(await traced(right, decoder({ act: gelu }))), 'layers.0.mlp');
    assert.equal(found(await traced(right, decoder({ cap: 1e6 }))), 'logits');
    assert.equal(found(await traced(right, decoder({ head: noisy(weights.head, 0.15) }))), 'logits');
  });
  test('all weights with noise are not accused, with or without exact embeddings', async () => {
    const { embedding, ...matrices } = weights;
    const coarse = Object.fromEntries(Object.entries(matrices).map(([name, data]) => [name, noisy(data, 0.02)]));
    for (const own of [coarse, { ...coarse, embedding: noisy(embedding, 0.01) }]) {
      const report = await traced(right, decoder(own));
      assert.equal(found(report), undefined);
      assert.ok(report.ruler.adopted);
    }
  });
});

/** Cuts a run into passes at these tokens. */
const passes = (
  cuts: readonly number[],
  out: Float32Array,
  logits: Float32Array,
  isLastOnly = false,
  first = 0,
): Written[] =>
  cuts.slice(1).flatMap((end, n) => {
    const [start, step] = [cuts[n]!, first + n];
    const from = isLastOnly ? end - 1 : start;
    return [
      { name: 'layers.0.out', shape: [end - start, H], data: out.slice(start * H, end * H), step },
      { name: 'logits', shape: [end - from, V], data: logits.slice(from * V, end * V), step },
    ];
  });

describe('passes', () => {
  const [out, logits] = [drawn(N * H), drawn(N * V)];
  const spoilt = (data: Float32Array, width: number): Float32Array => data.map((x, n) => (n < 20 * width ? x : draw()));
  const decoded = [0, 20, 21, 22, 23, 24];
  test('rows of each pass are aligned by themselves', async () => {
    const a = passes(decoded, out, logits);
    assert.equal(found(await traced(a, passes(decoded, out, logits, true))), undefined);
    assert.equal(found(await traced(a, passes(decoded, out, spoilt(logits, V), true))), 'logits of pass 1');
    const padded = passes(decoded, spoilt(out, H), spoilt(logits, V)).map((one) =>
      one.step === 0 && one.name === 'layers.0.out'
        ? { ...one, shape: [26, H], data: Float32Array.from([...new Float32Array(6 * H).fill(0.5), ...one.data]) }
        : one,
    );
    assert.equal(found(await traced(a, padded)), 'layers.0.out of pass 1');
  });
  test('passes are numbered by their order, and joined where they are cut otherwise', async () => {
    const whole = passes([0, 24], out, logits);
    assert.equal(found(await traced(whole, passes([0, 24], out, logits, false, 1))), undefined);
    assert.equal(
      found(await traced(whole, passes([0, 24], spoilt(out, H), spoilt(logits, V), false, 1))),
      'layers.0.out',
    );
    for (const isLastOnly of [false, true]) {
      const a = passes([0, 16, 24], out, logits, isLastOnly);
      const report = await traced(a, passes([0, 12, 24], out, logits, isLastOnly));
      assert.equal(found(report), undefined);
      assert.equal(report.steps.length, 2);
      assert.equal(found(await traced(a, passes([0, 12, 24], out, spoilt(logits, V), isLastOnly))), 'logits');
    }
  });
  test('a first pass of one token, and a second one with as many as the stream is wide', async () => {
    const wide = drawn(N * (N - 1));
    const rows = (from: number, to: number, step: number): Written => {
      const data = wide.slice(from * (N - 1), to * (N - 1));
      return { name: 'layers.0.out', shape: [to - from, N - 1], data, step };
    };
    assert.equal(found(await traced([rows(0, N, 0)], [rows(0, 1, 0), rows(1, N, 1)])), undefined);
  });
});

test('a tensor of another shape is not the same; a vocabulary may have padding on either side', async () => {
  const [q, out, logits] = [drawn(N * H), drawn(N * H), drawn(N * V)];
  const q_rope = { name: 'layers.0.q_rope', shape: [N, 4, 16], data: q };
  const stream = { name: 'layers.0.out', shape: [N, H], data: out };
  const narrow = { ...q_rope, shape: [N, 4, 8], data: drawn((N * H) / 2) };
  const { divergence } = await traced([q_rope, stream], [narrow, stream]);
  assert.deepEqual([divergence?.step.name, divergence?.causes[0]?.id], ['layers.0.q_rope', 'shape']);
  const padded = Float32Array.from({ length: N * (V + 4) }, (_, n) =>
    n % (V + 4) < V ? logits[Math.floor(n / (V + 4)) * V + (n % (V + 4))]! : 0,
  );
  const [exact, wide] = [
    [stream, { name: 'logits', shape: [N, V], data: logits }],
    [stream, { name: 'logits', shape: [N, V + 4], data: padded }],
  ];
  assert.equal(found(await traced(exact, wide)), undefined);
  const report = await traced(wide, exact);
  assert.deepEqual([found(report), report.steps.length], [undefined, 2]);
});

describe('what a step is made from, and what is made from it', () => {
  /** Spoils a tensor and all after it. */
  const spoiltFrom = (name: string): Written[] => {
    const at = right.findIndex((one) => one.name === name);
    return right.map((one, n) => (n < at ? one : { ...one, data: drawn(one.data.length) }));
  };
  test('the inputs that are named are those of the step', async () => {
    for (const [name, inputs] of [
      ['layers.0.attn_norm', ['embedding']],
      ['layers.1.attn_norm', ['layers.0.out']],
      ['layers.0.mid', ['embedding', 'layers.0.attn']],
      ['layers.1.mid', ['layers.1.attn', 'layers.0.out']],
      ['layers.1.out', ['layers.1.mid', 'layers.1.mlp']],
      ['norm', ['layers.2.out']],
      ['logits', ['norm']],
    ] as const) {
      const { divergence } = await traced(right, spoiltFrom(name));
      assert.equal(divergence?.step.name, name);
      assert.deepEqual(
        divergence.inputs.map((one) => one.replace(/ exactly$/, '')),
        inputs,
      );
      assert.ok(divergence.inputs.every((one) => one.endsWith(' exactly')));
    }
  });
  test('a scaled stream is a fault, though the norm behind it hides the scale', async () => {
    const report = await traced(right, decoder({ scale: 1 / Math.sqrt(H) }));
    assert.deepEqual([found(report), report.divergence?.causes[0]?.id], ['embedding', 'scale']);
    const taken = right.map((one, n) => (n === 0 ? { ...one, data: one.data.map((x) => Number(x) / 8) } : one));
    for (const kept of [taken, taken.filter(({ name }) => !/\.(?:mid|out)$/.test(name))])
      assert.equal(found(await traced(right, kept as Written[])), undefined);
  });
});

describe('ranks', () => {
  const ofRank = (written: readonly Written[], rank: number): Written[] => written.map((one) => ({ ...one, rank }));
  test('a rank that is wrong is found, whichever it is', async () => {
    const wrong = decoder({ act: gelu });
    for (const ranks of [
      [right, wrong],
      [wrong, right],
    ]) {
      const report = await traced(right, ranks.flatMap(ofRank));
      assert.equal(found(report), 'layers.0.mlp');
      assert.match(report.notes.join(' '), /Ranks 0 and 1 of B differ in layers\.0\.mlp/);
    }
    assert.equal(found(await traced(right, [right, right].flatMap(ofRank))), undefined);
  });
  test('tokens are those of one rank', async () => {
    const tokens = (first: number): Written => ({
      name: 'tokens',
      shape: [N],
      data: Int32Array.from({ length: N }, (_, n) => first + n),
    });
    const report = await traced(
      [...right, tokens(0)],
      [0, 1].flatMap((rank) => ofRank([...right, tokens(1)], rank)),
    );
    assert.match(report.notes.join(' '), /The tokens differ: at token 0 A has 0, B 1/);
  });
});

describe('positions', () => {
  const [heads, dim] = [2, 128];
  const q = drawn(N * heads * dim);
  const exact = (position: number, i: number): number => position * 10000 ** ((-2 * i) / dim);
  const inF32 = (position: number, i: number): number => Math.fround(position * Math.fround(10000 ** ((-2 * i) / dim)));
  const rotated = (positions: readonly number[], angle = exact): Float32Array =>
    q.map((x, at) => {
      const [t, i] = [Math.floor(at / (heads * dim)), Math.floor((at % dim) / 2)];
      const a = angle(positions[t]!, i);
      return at % 2 === 0 ? x * Math.cos(a) - q[at + 1]! * Math.sin(a) : x * Math.cos(a) + q[at - 1]! * Math.sin(a);
    });
  const run = (positions: readonly number[], rope: Float32Array, padding = 0): Written[] => [
    { name: 'positions', shape: [N + padding], data: Int32Array.from([...new Array(padding).fill(1), ...positions]) },
    ...(
      [
        ['q', q],
        ['q_rope', rope],
      ] as const
    ).map(([kind, data]) => ({
      name: `layers.0.${kind}`,
      shape: [N + padding, heads, dim],
      data: Float32Array.from([...new Float32Array(padding * heads * dim).fill(0.5), ...data]),
    })),
  ];
  const from = (first: number): number[] => Array.from({ length: N }, (_, n) => first + n);
  test('angles in f32 are allowed for by the largest position', async () => {
    for (const first of [1000, 100_000]) {
      const positions = from(first);
      const report = await traced(run(positions, rotated(positions)), run(positions, rotated(positions, inF32)));
      assert.equal(found(report), undefined);
      assert.equal(report.steps.length, 2);
    }
  });
  test('positions of a side with padding in front are those behind it', async () => {
    const late = from(0).map((p) => (p < 12 ? p : p - 1));
    const { divergence } = await traced(run(from(0), rotated(from(0)), 6), run(from(0), rotated(late)));
    assert.match(divergence!.causes[0]!.says, /rotated by its position − 1/);
  });
});

describe('NaN, masks, zeros, few tokens', () => {
  const logits = drawn(N * V);
  const of = (data: Float32Array): Written[] => [
    { name: 'norm', shape: [N, H], data: weights.embedding },
    { name: 'logits', shape: [N, V], data },
  ];
  const first = (value: number, rows = N): Float32Array =>
    logits.map((x, n) => (n % V === 0 && n < rows * V ? value : x));
  test('NaN at the same places of both sides is noted, and no difference', async () => {
    const a = logits.map((x, n) => (n >= 5 * V && n < 6 * V ? Number.NaN : x));
    const report = await traced(of(a), of(a));
    assert.equal(found(report), undefined);
    assert.match(report.notes.join(' '), /Both sides have NaN in logits, first at token 5/);
    assert.equal(found(await traced(of(a), of(first(Number.NaN, 7)))), 'logits');
  });
  test('masks are -Infinity or the least number of a dtype', async () => {
    for (const least of [-3.4028234663852886e38, -3.3895313892515355e38, -65504]) {
      assert.equal(found(await traced(of(first(-Infinity)), of(first(least)))), undefined);
      assert.equal(found(await traced(of(first(-Infinity)), of(first(least, 3)))), 'logits');
    }
  });
  test('zeros have one cause, and no share of nothing', async () => {
    const zeros = of(new Float32Array(N * V));
    const { divergence } = await traced(of(logits), zeros);
    assert.deepEqual(
      divergence?.causes.map(({ id }) => id),
      ['zeros'],
    );
    assert.equal((await traced(zeros, of(logits))).divergence?.step.difference.rms, Infinity);
  });
  test('noise of three tokens is told by the parts of their rows', async () => {
    const cut = (written: readonly Written[]): Written[] =>
      written.map((one) => ({ ...one, shape: [3, H], data: one.data.slice(0, 3 * H) }));
    const stream = right.slice(0, 3);
    const noise = stream.map((one, n) => (n === 0 ? one : { ...one, data: noisy(one.data as Float32Array, 0.01) }));
    const report = await traced(cut(stream), cut(noise));
    assert.equal(found(report), undefined);
    assert.ok(report.ruler.adopted);
  });
});
