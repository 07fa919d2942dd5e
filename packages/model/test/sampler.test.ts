/** Tests the sampler: hand-computed cases, the order of the filters, and how often each token is drawn. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { RopewalkError } from 'ropewalk';
import { drawn } from '../../../test/support/size.js';
import { createSampler, type SamplingOptions } from '../src/sampler.js';

/** Returns logits with the given softmax. */
const logitsOf = (...probabilities: number[]): Float32Array => Float32Array.from(probabilities, Math.log);

/** Counts how often each token comes in `draws` draws. */
function shares(
  logits: Float32Array,
  options: SamplingOptions,
  draws = 20_000,
  history: readonly number[] = [],
): number[] {
  const sampler = createSampler({ temperature: 1, seed: 7, ...options });
  const counts = new Array<number>(logits.length).fill(0);
  for (let n = 0; n < draws; n++) counts[sampler.pick(logits, history)]!++;
  return counts.map((count) => count / draws);
}

/**
 * Checks shares of 20,000 draws: each is off by less than 5 standard deviations, at most 5 · sqrt(0.25 / 20000) =
 * 0.018.
 */
function assertShares(got: readonly number[], want: readonly number[]): void {
  got.forEach((share, id) => {
    if (want[id] === 0) assert.equal(share, 0, `token ${id} was drawn`);
    else assert.ok(Math.abs(share - want[id]!) < 0.018, `token ${id}: ${share}, expected ${want[id]}`);
  });
}

describe('sampler', () => {
  test('greedy takes the likeliest token, of equals the lowest id', () => {
    const greedy = createSampler();
    assert.equal(greedy.pick(Float32Array.of(1, 3, 2)), 1);
    assert.equal(greedy.pick(Float32Array.of(1, 3, 3)), 1);
    assert.equal(greedy.pick(Float32Array.of(-5)), 0);
    assert.equal(greedy.pick(Float32Array.of(Number.NEGATIVE_INFINITY, -1e30)), 1);
    assert.equal(createSampler({ temperature: 0, topK: 1, seed: 3 }).pick(Float32Array.of(0, 0)), 0);
  });

  test('temperature 1 draws by the softmax', () => {
    assertShares(shares(logitsOf(0.5, 0.3, 0.15, 0.05), {}), [0.5, 0.3, 0.15, 0.05]);
  });

  test('temperature 2 takes the square root of probabilities, 0.5 the square', () => {
    // sqrt(0.64) : sqrt(0.36) = 8 : 6; 0.64² : 0.36² = 0.4096 : 0.1296
    assertShares(shares(logitsOf(0.64, 0.36), { temperature: 2 }), [8 / 14, 6 / 14]);
    assertShares(shares(logitsOf(0.64, 0.36), { temperature: 0.5 }), [0.4096 / 0.5392, 0.1296 / 0.5392]);
  });

  test('a temperature near 0 is greedy', () => {
    assertShares(shares(logitsOf(0.3, 0.4, 0.3), { temperature: 1e-4 }, 100), [0, 1, 0]);
  });

  test('topK keeps k tokens, of equals the lowest ids', () => {
    assertShares(shares(logitsOf(0.1, 0.4, 0.2, 0.3), { topK: 2 }), [0, 4 / 7, 0, 3 / 7]);
    assertShares(shares(logitsOf(0.2, 0.2, 0.2, 0.2, 0.2), { topK: 3 }), [1 / 3, 1 / 3, 1 / 3, 0, 0]);
    assertShares(shares(logitsOf(0.5, 0.5), { topK: 9 }), [0.5, 0.5]);
  });

  test('topP keeps the token that reaches p, and none after it', () => {
    const logits = logitsOf(0.1, 0.4, 0.2, 0.3);
    assertShares(shares(logits, { topP: 0.6 }), [0, 4 / 7, 0, 3 / 7]);
    assertShares(shares(logits, { topP: 0.75 }), [0, 4 / 9, 2 / 9, 3 / 9]);
    assertShares(shares(logits, { topP: 0 }, 100), [0, 1, 0, 0]);
    assertShares(shares(logits, { topP: 1 }), [0.1, 0.4, 0.2, 0.3]);
  });

  test('minP keeps tokens at least that share of the likeliest', () => {
    assertShares(shares(logitsOf(0.5, 0.3, 0.15, 0.05), { minP: 0.25 }), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]);
    assertShares(shares(logitsOf(0.5, 0.3, 0.2), { minP: 1 }, 100), [1, 0, 0]);
  });

  test('topP counts what topK left', () => {
    // The share of 0.4 in 0.4 and 0.3 is 4/7 = 0.571: enough for 0.55, where it would not be of all four.
    assertShares(shares(logitsOf(0.1, 0.4, 0.2, 0.3), { topK: 2, topP: 0.55 }, 100), [0, 1, 0, 0]);
    assertShares(shares(logitsOf(0.1, 0.4, 0.2, 0.3), { topK: 2, topP: 0.6 }), [0, 4 / 7, 0, 3 / 7]);
  });

  test('topP and minP see probabilities at temperature 1, before the temperature', () => {
    // At temperature 4 both tokens would be nearly alike, and top-p 0.7 would keep both.
    assertShares(shares(logitsOf(0.75, 0.25), { temperature: 4, topP: 0.7 }, 100), [1, 0]);
    assertShares(shares(logitsOf(0.75, 0.25), { temperature: 4, minP: 0.5 }, 100), [1, 0]);
  });

  test('repetitionPenalty divides positive logits and multiplies the others, once a token', () => {
    const pick = (history: number[], window = 64): number =>
      createSampler({ repetitionPenalty: 2, repetitionWindow: window }).pick(Float32Array.of(3, 2, -1), history);
    assert.equal(pick([]), 0);
    assert.equal(pick([0]), 1, '3 / 2 < 2');
    assert.equal(pick([0, 1]), 0, '1.5 > 1');
    const negative = createSampler({ repetitionPenalty: 2 });
    assert.equal(negative.pick(Float32Array.of(-1, -1.5), [0]), 1, '-1 · 2 < -1.5');
    assert.equal(negative.pick(Float32Array.of(-1, -1.5), [0, 0]), 1);
    const once = createSampler({ repetitionPenalty: 2 });
    assert.equal(once.pick(Float32Array.of(3, 1), [0, 0, 0, 0]), 0, 'once: 3 / 2 > 1');
  });

  test('repetitionWindow counts back from the last token; 0 is none, -1 is all', () => {
    const pick = (window: number): number =>
      createSampler({ repetitionPenalty: 4, repetitionWindow: window }).pick(Float32Array.of(3, 2, 1), [0, 1, 2, 2, 2]);
    assert.equal(pick(0), 0);
    assert.equal(pick(3), 0, 'only 2 is in the window');
    assert.equal(pick(4), 0, '1 and 2 are');
    assert.equal(pick(5), 0, '0.75, 0.5, 0.25');
    assert.equal(
      createSampler({ repetitionPenalty: 4, repetitionWindow: 5 }).pick(Float32Array.of(3, 2, 1, 1), [0, 1, 2, 2, 2]),
      3,
    );
    assert.equal(
      createSampler({ repetitionPenalty: 4, repetitionWindow: 4 }).pick(Float32Array.of(3, 2, 1, 1), [0, 1, 2, 2, 2]),
      0,
    );
    assert.equal(
      createSampler({ repetitionPenalty: 4, repetitionWindow: -1 }).pick(Float32Array.of(3, 2, 1, 1), [
        0,
        1,
        ...Array(90).fill(2),
      ]),
      3,
    );
  });

  test('the logits given are left as they were', () => {
    const logits = Float32Array.of(3, 2, 1);
    createSampler({ temperature: 1, topK: 2, topP: 0.9, minP: 0.1, repetitionPenalty: 3, seed: 1 }).pick(
      logits,
      [0, 1],
    );
    assert.deepEqual([...logits], [3, 2, 1]);
  });

  test('a seed makes it reproducible; without one the seed is reported', () => {
    const logits = logitsOf(0.25, 0.25, 0.25, 0.25);
    const run = (options: SamplingOptions): number[] => {
      const sampler = createSampler({ temperature: 1, ...options });
      return Array.from({ length: 32 }, () => sampler.pick(logits));
    };
    assert.deepEqual(run({ seed: 42 }), run({ seed: 42 }));
    assert.notDeepEqual(run({ seed: 42 }), run({ seed: 43 }));
    const free = createSampler({ temperature: 1 });
    assert.deepEqual(
      run({ seed: free.seed }),
      Array.from({ length: 32 }, () => free.pick(logits)),
    );
  });

  test('filters keep what a full sort keeps, in any order of logits', () => {
    const logit = fc.oneof(fc.integer({ min: -4, max: 4 }), fc.constant(Number.NEGATIVE_INFINITY));
    fc.assert(
      fc.property(
        fc.array(logit, { minLength: 1, maxLength: 24 }),
        fc.nat(8),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.nat(),
        (list, topK, topP, seed) => {
          fc.pre(list.some((value) => value > -10));
          const order = list.map((_, id) => id).sort((a, b) => list[b]! - list[a]! || a - b);
          let kept = topK > 0 ? order.slice(0, topK) : order;
          const weight = (id: number): number => Math.exp(list[id]! - list[order[0]!]!);
          const total = kept.reduce((sum, id) => sum + weight(id), 0);
          if (topP < 1) {
            let sum = 0;
            let count = 0;
            do sum += weight(kept[count++]!);
            while (count < kept.length && sum < topP * total - 1e-9);
            // On the very border either count is right: sums in another order round differently.
            kept = kept.slice(0, count + (Math.abs(sum - topP * total) < 1e-9 ? 1 : 0));
          }
          const got = createSampler({ temperature: 1, topK, topP, seed }).pick(Float32Array.from(list));
          assert.ok(kept.includes(got), `${got} is not among ${kept}`);
          assert.ok(list[got]! > Number.NEGATIVE_INFINITY);
        },
      ),
      drawn(500, 11),
    );
  });

  test('refusals: logits', () => {
    const refuses = (logits: number[], message: RegExp): void => {
      for (const temperature of [0, 1]) {
        assert.throws(
          () => createSampler({ temperature }).pick(Float32Array.from(logits)),
          (error) => error instanceof RopewalkError && error.code === 'RANGE' && message.test(error.message),
        );
      }
    };
    refuses([1, Number.NaN, 2], /logits: expected numbers, got NaN for token 1/);
    refuses([1, Number.POSITIVE_INFINITY], /got Infinity for token 1/);
    refuses([Number.NEGATIVE_INFINITY], /all -Infinity/);
    refuses([], /at least one/);
  });

  test('refusals: options', () => {
    const cases: [SamplingOptions, RegExp][] = [
      [{ temperature: -1 }, /temperature: expected a number >= 0, got -1/],
      [{ temperature: Number.NaN }, /temperature/],
      [{ topK: 1.5 }, /topK: expected an integer >= 0, got 1.5/],
      [{ topP: 1.1 }, /topP: expected a number in \[0, 1\], got 1.1/],
      [{ minP: -0.1 }, /minP/],
      [{ repetitionPenalty: 0 }, /repetitionPenalty: expected a number > 0, got 0/],
      [{ repetitionWindow: -2 }, /repetitionWindow: expected an integer >= -1, got -2/],
      [{ seed: 0.5 }, /seed: expected an integer, got 0.5/],
      [{ temperature: '1' as unknown as number }, /temperature: expected a number >= 0, got "1"/],
    ];
    for (const [options, message] of cases) assert.throws(() => createSampler(options), { code: 'RANGE', message });
  });
});
