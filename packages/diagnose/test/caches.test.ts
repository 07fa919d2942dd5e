import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type FloatDtype, frequenciesOf, type RopeSpec, roundTo } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { type CachePositions, cacheDiff } from '../src/caches/cache-diff.js';
import type { CacheSide } from '../src/caches/turned-keys.js';

const PLAIN: RopeSpec = { headDim: 64, pairing: 'half', base: 10000 };
const GPT_J: RopeSpec = { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 };
const LLAMA: RopeSpec = {
  headDim: 128,
  pairing: 'half',
  base: 500000,
  scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
};
const YARN: RopeSpec = {
  headDim: 64,
  pairing: 'half',
  base: 1e6,
  scaling: { kind: 'yarn', factor: 16, originalContext: 4096 },
};
const HEADS = 2;

/** Keys before RoPE: token t's own numbers, the same in every cache. */
function rowsOf(spec: RopeSpec, what: string): (token: number) => Float64Array {
  return (token) => {
    const random = randomFrom(`${what} ${token}`);
    return Float64Array.from({ length: HEADS * spec.headDim }, (_, i) => random.uniform(-1, 1) + (i % 7 === 0 ? 2 : 0));
  };
}

function turn(row: Float64Array, spec: RopeSpec, position: number, magnitude = true): Float64Array {
  const { headDim, rotaryDim = headDim, pairing } = spec;
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const y = row.slice();
  for (let at = 0; at < row.length; at += headDim)
    for (const [j, frequency] of invFreq.entries()) {
      const [i, k] = pairing === 'half' ? [at + j, at + j + rotaryDim / 2] : [at + 2 * j, at + 2 * j + 1];
      const gain = magnitude ? attentionFactor : 1;
      const [cos, sin] = [Math.cos(position * frequency) * gain, Math.sin(position * frequency) * gain];
      y[i] = row[i]! * cos - row[k]! * sin;
      y[k] = row[i]! * sin + row[k]! * cos;
    }
  return y;
}

const side = (rows: readonly Float64Array[], headDim: number, dtype: FloatDtype = 'f16'): CacheSide => ({
  data: Float64Array.from(rows.flatMap((row) => Array.from(row, (value) => roundTo(dtype, value)))),
  tokens: rows.length,
  heads: HEADS,
  headDim,
  dtype,
});

const upTo = (end: number, from = 0): number[] => Array.from({ length: end - from }, (_, n) => from + n);
/** Tokens that are left where 4-19 were evicted. */
const LEFT = [...upTo(4), ...upTo(64, 20)];

/** A cache of tokens at positions. */
function cacheOf(spec: RopeSpec, tokens: readonly number[], positions: readonly number[], dtype: FloatDtype = 'f16') {
  const key = rowsOf(spec, 'keys');
  const rows = tokens.map((token, n) => turn(key(token), spec, positions[n]!));
  return {
    keys: side(rows, spec.headDim, dtype),
    values: side(tokens.map(rowsOf(spec, 'values')), spec.headDim, dtype),
  };
}
type Cache = ReturnType<typeof cacheOf>;

function diff(a: Cache, b: Cache, rope?: RopeSpec, positions?: CachePositions) {
  return cacheDiff([{ layer: 0, keys: [a.keys, b.keys], values: [a.values, b.values], rope }], positions);
}

/** Changes each key of a cache. */
const each = (cache: Cache, of: (key: Float64Array, token: number) => Float64Array): Cache => {
  const { keys } = cache;
  const size = keys.heads * keys.headDim;
  const rows = upTo(keys.tokens).map((token) => of(keys.data.slice(token * size, (token + 1) * size), token));
  return { ...cache, keys: side(rows, keys.headDim, keys.dtype) };
};

describe('caches that are right', () => {
  for (const [name, spec] of Object.entries({ PLAIN, GPT_J, LLAMA, YARN }))
    test(`${name}: 23 states of it`, () => {
      for (const dtype of ['f32', 'f16', 'bf16'] as const) {
        const a = cacheOf(spec, upTo(64), upTo(64), dtype);
        assert.deepEqual(diff(a, a, spec).lines, ['tokens 0-63: as in A', 'values are equal']);
        const grown = cacheOf(spec, upTo(72), upTo(72), dtype);
        assert.equal(diff(a, grown, spec).isRight, true, 'more tokens');
        const shifted = cacheOf(spec, LEFT, upTo(48), dtype);
        assert.equal(diff(a, shifted, spec, [upTo(64), upTo(48)]).isRight, true, `evicted and shifted, ${dtype}`);
        const far = cacheOf(spec, upTo(64), upTo(64 + 3000, 3000), dtype);
        assert.equal(diff(a, far, spec, [upTo(64), upTo(3064, 3000)]).isRight, true, 'at later positions');
        const window = cacheOf(spec, upTo(64, 8), upTo(64, 8), dtype);
        assert.equal(diff(a, window, spec, [upTo(64), upTo(64, 8)]).isRight, true, 'a window that slides');
        const holes = cacheOf(
          spec,
          upTo(64),
          upTo(64).map((p) => 2 * p),
          dtype,
        );
        assert.equal(diff(a, holes, spec, [upTo(64), holesOf]).isRight, true, 'positions that spread');
        const other = cacheOf(spec, upTo(64), upTo(64), 'bf16');
        assert.equal(diff(a, other, spec).isRight, true, 'another dtype');
      }
      const a = cacheOf(spec, upTo(64), upTo(64));
      for (const grid of ['q8', 'f8'] as const) {
        const found = diff(a, each(a, grid === 'q8' ? q8 : f8), spec);
        assert.equal(found.isRight, true, grid);
        assert.match(found.lines[0]!, grid === 'q8' ? /as int8 does, error up to 0\.\d+ %$/ : /values of f8_e4m3/);
      }
    });
});
const holesOf = upTo(64).map((p) => 2 * p);

const q8 = (key: Float64Array): Float64Array => {
  const y = key.slice();
  for (let at = 0; at < y.length; at += 32) {
    const block = y.subarray(at, at + 32);
    const scale = roundTo('f16', block.reduce((most, one) => Math.max(most, Math.abs(one)), 0) / 127);
    block.set(block.map((one) => Math.round(one / scale) * scale));
  }
  return y;
};
const f8 = (key: Float64Array): Float64Array =>
  key.map((value) => {
    const step = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), -6) - 3);
    return value === 0 ? 0 : Math.round(value / step) * step;
  });

describe('caches that are not', () => {
  const a = cacheOf(PLAIN, upTo(64), upTo(64));
  const evicted: CachePositions = [upTo(64), upTo(48)];
  const linesOf = (b: Cache, positions?: CachePositions, rope: RopeSpec | undefined = PLAIN, from = a): string => {
    const { isRight, lines } = diff(from, b, rope, positions);
    assert.equal(isRight, false);
    return lines.join('\n');
  };

  test('evicted and not turned', () => {
    const b = cacheOf(PLAIN, LEFT, LEFT);
    assert.match(
      linesOf(b, evicted),
      /tokens 4-47: A's tokens 20-63, not turned, expected is −16 positions\nkeys of A that B does not have: 4-19\n/,
    );
  });
  test('only one token is left behind the first, shifted', () => {
    const left = diff(cacheOf(PLAIN, upTo(10), upTo(10)), cacheOf(PLAIN, [0, 1, 2, 3, 9], upTo(5)), PLAIN, [
      upTo(10),
      upTo(5),
    ]);
    assert.ok(left.isRight);
    assert.match(left.lines[1]!, /^token 4: A's token 9, turned by −5 positions, error up to 0\.031 %$/);
  });
  test('turned twice, the other way, by one too many', () => {
    const by = (times: (n: number) => number): Cache =>
      cacheOf(
        PLAIN,
        LEFT,
        LEFT.map((token, n) => token + times(n - token)),
      );
    assert.match(
      linesOf(
        by((d) => 2 * d),
        evicted,
      ),
      /turned by −32 positions, which is twice: expected is −16 positions/,
    );
    assert.match(
      linesOf(
        by((d) => -d),
        evicted,
      ),
      /turned by \+16 positions, which is the other way: expected is −16/,
    );
    assert.match(
      linesOf(
        by((d) => d && d - 1),
        evicted,
      ),
      /turned by −17 positions, expected is −16 positions/,
    );
  });
  test('each turned by its own position again', () => {
    const b = each(a, (key, token) => turn(key, PLAIN, token));
    assert.match(
      linesOf(b, [upTo(64), upTo(64)]),
      /^tokens 0-63: turned by \+0 to \+63 positions, each by its own position again, expected is \+0 positions, /,
    );
    assert.match(linesOf(b), /^tokens 0-63: turned by \+0 to \+63 positions, \+1 with each token, error/);
  });
  test('the magnitude again, by a shift with YaRN’s tables', () => {
    const from = cacheOf(YARN, upTo(64), upTo(64));
    const b = each(cacheOf(YARN, LEFT, LEFT), (key, n) => turn(key, YARN, n - LEFT[n]!));
    assert.match(
      linesOf(b, evicted, YARN, from),
      /tokens 4-47: A's tokens 20-63, turned by −16 positions, 1\.277\d* times as long \(the model’s magnitude again\)/,
    );
  });
  test('one position off in a draft: values equal, keys turned', () => {
    const b = cacheOf(PLAIN, upTo(64), [...upTo(60), 61, 62, 63, 64]);
    assert.match(
      linesOf(b),
      /^tokens 0-59: as in A\ntokens 60-63: turned by \+1 position, .*\nvalues are equal: only positions differ$/,
    );
    assert.match(
      diff(a, b).lines.join(' | '),
      /tokens 60-63: keys that A does not have \| .* \| values are equal and keys are not: as with other positions or another RoPE; name the model/,
    );
  });
  test('another base, another prompt, an empty place', () => {
    const base = cacheOf({ ...PLAIN, base: 500000 }, upTo(64), upTo(64));
    assert.match(
      linesOf(base),
      /values are equal and keys are not: no turn gives them, as with another base, scaling or pairing$/,
    );
    const prompt = cacheOf(PLAIN, upTo(164, 100), upTo(64));
    assert.match(linesOf(prompt), /^tokens 0-63: keys that A does not have\n.*\nvalues are different$/s);
    const empty = each(a, (key, token) => (token === 9 ? key.fill(0) : key));
    assert.match(linesOf(empty), /^tokens 0-8: as in A\ntoken 9: keys that A does not have\ntokens 10-63: as in A\n/);
    const broken = each(a, (key, token) => (token === 9 ? key.fill(Number.NaN) : key));
    assert.match(linesOf(broken), /\ntoken 9: keys that A does not have\n/);
    assert.equal(diff(broken, broken, PLAIN).isRight, true); // memory that nothing has filled
  });
});
