/** Two faults at once: a rotation of many rows and what others hold beside it, and faults before or after the rotation. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type FloatDtype, type RopeSpec, roundTo, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { describeDiagnosis, diagnose } from '../src/index.js';

/** A kernel on [batch, tokens, heads, dim], apart from the oracle: each row of y by its row of x. */
interface Kernel {
  readonly batch?: number;
  readonly tokens?: number;
  readonly heads?: number;
  readonly dim?: number;
  readonly dtype?: FloatDtype;
  readonly spec?: Partial<RopeSpec>;
  /** The position that is given to a token. Default: its index. */
  readonly given?: (token: number, batch: number) => number;
  readonly weight?: Float64Array;
  readonly row: (at: At) => ArrayLike<number>;
}

interface At {
  readonly b: number;
  readonly s: number;
  readonly h: number;
  readonly p: number;
  readonly x: Float64Array;
  /** Row of x of another head of the same token. */
  readonly xOf: (head: number) => Float64Array;
}

/** Rotates halves of the first `size` dimensions. */
function turned(x: ArrayLike<number>, position: number, base = 10000, size = x.length): Float64Array {
  const y = Float64Array.from(x);
  for (let j = 0; j < size / 2; j++) {
    const angle = position * base ** ((-2 * j) / size);
    y[j] = x[j]! * Math.cos(angle) - x[j + size / 2]! * Math.sin(angle);
    y[j + size / 2] = x[j]! * Math.sin(angle) + x[j + size / 2]! * Math.cos(angle);
  }
  return y;
}

function normalised(x: Float64Array, weight?: Float64Array): Float64Array {
  const rms = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) / x.length + 1e-6);
  return x.map((v, i) => (v / rms) * (weight?.[i] ?? 1));
}

function reportOf(kernel: Kernel): string {
  const { batch = 1, tokens = 48, heads = 4, dim = 64, dtype = 'f32', spec, given = (s) => s, weight, row } = kernel;
  const random = randomFrom('two faults');
  const shape = [batch, tokens, heads, dim];
  const count = batch * tokens * heads * dim;
  const x = Float64Array.from({ length: count }, () => roundTo(dtype, random.uniform(-2, 2)));
  const y = new Float64Array(count);
  const positions = Int32Array.from({ length: batch * tokens }, (_, n) => given(n % tokens, Math.floor(n / tokens)));
  for (let r = 0; r < batch * tokens * heads; r++) {
    const [token, h] = [Math.floor(r / heads), r % heads];
    const xOf = (head: number): Float64Array =>
      x.subarray((token * heads + head) * dim, (token * heads + head + 1) * dim);
    const at = { b: Math.floor(token / tokens), s: token % tokens, h, p: positions[token]!, x: xOf(h), xOf };
    y.set(row(at), r * dim);
  }
  const dump = (values: Float64Array) =>
    tensorFrom(
      Float32Array.from(values, (v) => roundTo(dtype, v)),
      { shape },
    );
  const observation = {
    x: dump(x),
    y: dump(y),
    positions: tensorFrom(positions, { shape: [batch, tokens] }),
    ...(weight && {
      norm: { weight: tensorFrom(Float32Array.from(weight), { shape: [dim], dtype: 'f32' }), eps: 1e-6 },
    }),
  };
  const result = diagnose(observation, { spec: { headDim: dim, pairing: 'half', base: 10000, ...spec } });
  return describeDiagnosis(result, 'config.json', { all: true }).join('\n');
}

/** Rotates halves with a frequency for each pair, and cos and sin times factors. */
function turnedBy(x: Float64Array, position: number, frequency: (j: number) => number, cosBy = 1, sinAt = position) {
  const half = x.length / 2;
  return x.map((_, i) => {
    const j = i % half;
    const angle = Math.fround(position * frequency(j));
    const [cos, sin] = [cosBy * Math.cos(angle), Math.sin(sinAt === position ? angle : sinAt * frequency(j))];
    return i < half ? x[j]! * cos - x[j + half]! * sin : x[j]! * sin + x[j + half]! * cos;
  });
}

const usual = (j: number): number => 10000 ** (-j / 32);

const weight = Float64Array.from({ length: 64 }, (_, i) => 0.5 + ((i * 7) % 11) / 8);

const CASES: readonly [name: string, kernel: Kernel, ...says: RegExp[]][] = [
  [
    'another base, and positions that start again',
    { row: ({ p, x }) => turned(x, p % 32, 500000) },
    /^DIFFERENT .*: The frequencies are those of base 500000 instead of 10000;/,
    /It rotates by the position modulo 32;/,
  ],
  [
    'another base, a batch that counts from 0, and a tail that is not rotated',
    {
      batch: 3,
      given: (s, b) => s + 100 * b,
      row: ({ b, s, p, x }) => (s >= 40 ? x : turned(x, b === 2 ? s : p, 500000)),
    },
    /^DIFFERENT .*, in .*: The frequencies are those of base 500000 instead of 10000;/,
    /or by the position as given in batch 0, as given in batch 1, − 200 in batch 2;/,
    /Tokens 40-47.*: x, not rotated\./,
  ],
  [
    'another base, and some heads twice as long',
    { row: ({ h, p, x }) => turned(x, p, 500000).map((v) => (h === 3 ? 2 * v : v)) },
    /: Heads 0-2 of every token: Uses base 500000 instead of 10000\./,
    /Head 3 of every token: The frequencies are those of base 500000 .* Pairs become 2 times as long/,
  ],
  [
    'a table in 8 bits, and positions beyond 4096 that start again',
    {
      given: (s) => 4080 + s,
      row({ p, x }) {
        const narrow = (v: number): number => Math.round(127 * v) / 127;
        return x.map((_, i) => {
          const j = i % 32;
          const angle = (p % 4096) * 10000 ** (-j / 32);
          const [cos, sin] = [narrow(Math.cos(angle)), narrow(Math.sin(angle))];
          return i < 32 ? x[j]! * cos - x[j + 32]! * sin : x[j]! * sin + x[j + 32]! * cos;
        });
      },
    },
    /^DIFFERENT .*, in tokens 0-15: y is near the expected values: errors are at most [\d.]+ % of the largest \|x\| of a head\./,
    /: this row of x rotated by its position − 4096\./,
  ],
  [
    'frequencies divided by 8, far from 0, and positions of a window',
    { given: (s) => 5000 + s, row: ({ p, x }) => turned(x, (p - 4104) / 8) },
    /^DIFFERENT .*: The frequency of every pair is 0\.125 times the expected one\./,
    /It rotates by the position − 4104; expected is the position as given\./,
  ],
  [
    'cos alone longer, in one head, of frequencies in reverse order, one position on',
    { heads: 1, row: ({ p, x }) => turnedBy(x, p + 1, (j) => usual(31 - j), 1.25) },
    /cos is multiplied by 1\.25 and sin by 1; expected is 1 for both\./,
    /It rotates by the position \+ 1/,
  ],
  [
    'far from 0: slow pairs 8 times as slow, one position back, angles in f32',
    { given: (s) => 20000 + s, row: ({ p, x }) => turnedBy(x, p - 1, (j) => usual(j) / (j < 16 ? 1 : 8)) },
    /^DIFFERENT .*: The frequency of pairs 16-31 is 0\.125 times the expected one\./,
    /It rotates by the position − 1;/,
  ],
  [
    'pairs that are not rotated, and sin of the next position',
    {
      given: (s) => 300 + s,
      row: ({ p, x }) => turnedBy(x, p, usual, 1, p + 1).map((v, i) => (i % 32 < 30 ? v : x[i]!)),
    },
    /^DIFFERENT .*: Dimensions 30-31, 62-63 are x, not rotated, in every row\./,
    /The cosine of every pair is right; the sine of every pair is that of the next token/,
  ],
  [
    'a norm of half the squares, and another base',
    {
      weight,
      row({ p, x }) {
        const rms = Math.sqrt(x.subarray(0, 32).reduce((sum, v) => sum + v * v, 0) / 64 + 1e-6);
        return turned(
          x.map((v, i) => (v / rms) * weight[i]!),
          p,
          500000,
        );
      },
    },
    /^DIFFERENT .*: The norm takes the squares of the first half of a head alone, divided by head_dim\./,
    /Beside that, y is what the known bug base-other-family gives\.|base 500000/,
  ],
  [
    'a norm of 1 + weight, and positions that start again',
    {
      weight,
      row: ({ p, x }) =>
        turned(
          normalised(x).map((v, i) => v * (1 + weight[i]!)),
          p % 20,
        ),
    },
    /^DIFFERENT .*: The norm multiplies by 1 \+ weight, where its weight alone is due\./,
    /Uses positions modulo 20\.|position modulo 20/,
  ],
  [
    'x is added, and another base',
    { row: ({ p, x }) => turned(x, p, 500000).map((v, i) => v + x[i]!) },
    /^DIFFERENT .*: x is added after the rotation, as a residual is\. Without it:/,
    /base 500000/,
  ],
  [
    'frequencies of pair ⌊j/2⌋, and positions in bf16',
    {
      given: (s) => 500 + s,
      row: ({ p, x }) =>
        x.map((_, i) => {
          const j = i % 32;
          const angle = roundTo('bf16', p) * 10000 ** (-(j >> 1) / 32);
          return i < 32
            ? x[j]! * Math.cos(angle) - x[j + 32]! * Math.sin(angle)
            : x[j - 0]! * Math.sin(angle) + x[j + 32]! * Math.cos(angle);
        }),
    },
    /The frequency of pair j is the expected frequency of pair ⌊j\/2⌋/,
    /It rotates by the position rounded to bf16/,
  ],
  [
    'the weight of a norm after the rotation, and positions one further',
    { weight, row: ({ p, x }) => turned(normalised(x), p + 1).map((v, i) => v * weight[i]!) },
    /^DIFFERENT .*: The norm’s weight is applied after the rotation, not before it\./,
    /Beside that, y is what the known bug position-plus-one gives\./,
  ],
  [
    'a norm of each half of a head',
    {
      weight,
      row({ p, x }) {
        const squares = (half: number): number =>
          x.subarray(32 * half, 32 * half + 32).reduce((sum, v) => sum + v * v, 0) / 64 + 1e-6;
        return turned(
          x.map((v, i) => (v / Math.sqrt(squares(i >> 5))) * weight[i]!),
          p,
        );
      },
    },
    /: The norm takes the squares of each half of a head alone, divided by head_dim\./,
  ],
  [
    'LayerNorm for RMS norm',
    {
      weight,
      row({ p, x }) {
        const mean = x.reduce((sum, v) => sum + v, 0) / x.length;
        return turned(
          normalised(
            x.map((v) => v - mean),
            weight,
          ),
          p,
        );
      },
    },
    /layer-norm|LayerNorm/i,
  ],
  [
    'dimensions that should be copied come from others, and the rest has another base',
    {
      spec: { rotaryDim: 32 },
      row({ p, x }) {
        const y = turned(x, p, 500000, 32);
        y.set(x.subarray(0, 32), 32);
        return y;
      },
    },
    /Dimensions 32-63, which should be copied, hold x\[0-31\]\./,
    /Uses base 500000/,
  ],
  [
    'another frequency in pairs of which none is known to 2 %',
    {
      tokens: 4,
      heads: 1,
      dtype: 'bf16',
      row({ p, x }) {
        const y = turned(x, p);
        const slow = turned(x, p / 2);
        for (const i of [8, 9, 10, 11, 12, 13]) for (const member of [i, i + 32]) y[member] = slow[member]!;
        return y;
      },
    },
    /[Tt]he frequencies of pairs [\d, -]+ differ\b(?!, by)/,
  ],
  [
    'each block of a partial rotation is rotated, as ggml did',
    {
      spec: { rotaryDim: 16 },
      given: (s) => 500 + s,
      row({ p, x }) {
        const y = turned(x, p, 10000, 16);
        for (let block = 1; block < 4; block++)
          y.set(turned(x.slice(16 * block, 16 * block + 16), p * 10000 ** -block, 10000, 16), 16 * block);
        return y;
      },
    },
    /Dimensions 16-[\d, -]+, which should be copied, rotate: pairs \(16, 24\) by 0\.0001, .* radians a position\./,
  ],
  [
    'heads in another order, of which half would fit rows that are read at twice their distance',
    { heads: 8, row: ({ h, p, xOf }) => turned(xOf(((2 * h) % 8) + Math.floor(h / 4)), p) },
    /Head 1 of every token: the right result of head 2\./,
    /Head 4 of every token: the right result of head 1\./,
  ],
  [
    'two heads as one',
    {
      row({ h, p, x, xOf }) {
        const both = new Float64Array(128);
        const first = h - (h % 2);
        both.set(xOf(first));
        both.set(xOf(first + 1), 64);
        return turned(both, p).subarray(64 * (h % 2), 64 * (h % 2) + x.length);
      },
    },
    /: Two heads are rotated as one of 128 dimensions\./,
  ],
  [
    'pairs that nothing wrote, and heads in reverse order',
    { heads: 8, row: ({ h, p, xOf }) => turned(xOf(7 - h), p).map((v, i) => (i % 32 >= 28 ? 0 : v)) },
    /Dimensions 28-31, 60-63 are 0 in every row\./,
    /the right result of the head as far from the end\./,
  ],
  [
    'a bias after the rotation',
    { row: ({ h, p, x }) => turned(x, p).map((v, i) => v + Math.sin(31 * h + i)) },
    /: A constant of each head and dimension is added after the rotation, as a bias is\./,
  ],
  [
    'a factor of each head, and 8 bits',
    {
      row: ({ h, p, x }) =>
        turned(x, p).map((v) => (0.6 + 0.7 * h) * (Math.abs(v) < 0.02 ? v : Number(v.toPrecision(2)))),
    },
    /: Every token: the right result times a factor of each head, such as [\d.]+, to within [\d.]+ % of the largest \|x\| of a head\./,
  ],
  [
    'positions of some tokens in reverse order',
    { row: ({ p, x }) => turned(x, p >= 16 && p < 40 ? 55 - p : p) },
    /^PARTLY RIGHT .*: tokens 16-39: this row of x rotated by the position of the token whose index is 55 minus its own; all else is right\./,
  ],
  [
    'no sin terms in the last tokens',
    {
      row: ({ p, x }) => (p < 30 ? turned(x, p) : turned(x, p).map((v, i) => (v + turned(x, -p)[i]!) / 2)),
    },
    /^PARTLY RIGHT .*: tokens 30-47: x × cos alone, without the sin terms; all else is right\./,
  ],
  [
    'a partner at another distance, and none for some',
    {
      row: ({ p, x }) =>
        x.map((v, i) => {
          const j = i % 32;
          const angle = p * 10000 ** (-j / 32);
          const partner = i < 16 ? x[i + 48]! : i >= 48 ? x[i - 48]! : 0;
          return v * Math.cos(angle) + (i < 32 ? -1 : 1) * partner * Math.sin(angle);
        }),
    },
    /dimension i from x\[i\] × cos and x\[i \+ 48\] × sin instead of x\[i\] and x\[i \+ 32\], for i of 0-15; dimension i from x\[i\] × cos alone/,
  ],
];

for (const [name, kernel, ...says] of CASES)
  test(name, () => {
    const report = reportOf(kernel);
    for (const one of says) assert.match(report, one);
  });

test('in one token anything is a constant of each dimension, and no bias', () => {
  const report = reportOf({ tokens: 1, given: () => 1000, row: ({ x }) => x.map((v, i) => v + i) });
  assert.doesNotMatch(report, /as a bias is/);
});

test('random numbers are not explained', () => {
  const random = randomFrom('noise');
  assert.match(reportOf({ row: ({ x }) => x.map(() => random.uniform(-2, 2)) }), /^NOT UNDERSTOOD/);
});

test('a layer without rotation: y is x, or what rotated it is told', () => {
  const spec = { scaling: { kind: 'proportional', rotatedPairs: 0 } } as const;
  assert.match(reportOf({ spec, row: ({ x }) => x }), /^AS EXPECTED/);
  const wrong = reportOf({ spec, row: ({ p, x }) => turned(x, p) });
  assert.match(wrong, /^WRONG PARAMETER: Rotates, with base 10000, where no pair should rotate\./);
});
