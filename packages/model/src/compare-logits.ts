/** Measures how far two sets of logits are apart: of two runtimes, two files, two precisions. @module */
import { refuse } from 'ropewalk/backend';
import { checkInteger, reading, readList, readOptions } from 'ropewalk/internal';
import { logSumExp } from './logits.js';
import { largest } from './sampler.js';

type Floats = Float32Array | Float64Array;

/** Logits `[tokens, vocabSize]` in blocks of whole rows: those of `logits`, or a list of arrays. */
export type LogitBlocks = AsyncIterable<Floats> | readonly Floats[];

/** A logit of both sides: row `token`, column `id`. */
export interface LogitPair {
  readonly token: number;
  readonly id: number;
  readonly a: number;
  readonly b: number;
}

/** The result of {@link compareLogits}. Tokens are counted from 0; the row of a token predicts the next one. */
export interface LogitComparison {
  readonly tokens: number;
  readonly vocabSize: number;
  /** The tokens whose rows could be compared. The other results are about these, and undefined without any. */
  readonly compared: number;
  /**
   * The first logit that makes its row no distribution: NaN, +Infinity, or -Infinity on one side alone. (An id that both
   * rule out with -Infinity is alike.) Undefined when all rows could be compared.
   */
  readonly broken: LogitPair | undefined;
  /** The largest |a − b|. */
  readonly maxDifference: number | undefined;
  /** The place of that difference; undefined when nothing differs. */
  readonly maxDifferenceAt: LogitPair | undefined;
  /** KL(A‖B) of the softmax over the vocabulary, in nats: the mean and the largest of all tokens. */
  readonly klMean: number | undefined;
  readonly klMax: number | undefined;
  readonly klMaxToken: number | undefined;
  /** The share of tokens with the same likeliest id; of equal logits the lower id counts. */
  readonly top1: number | undefined;
  /** The mean share of the five likeliest ids that both have, in whatever order. */
  readonly top5: number | undefined;
  /** The first token whose likeliest ids differ, and these ids; undefined when none does. */
  readonly firstApart: { readonly token: number; readonly a: number; readonly b: number } | undefined;
}

/**
 * Compares logits row by row, with sums in float64. Only a block of each is held.
 *
 * @param a - the reference
 * @param b - as many rows
 * @param given - the columns of both
 * @throws {RopewalkError} SHAPE for another number of rows, or a block that is not whole rows; DTYPE for other arrays
 * @example const { klMean, firstApart } = await compareLogits([ours], logits(model, tokens), { vocabSize });
 */
export async function compareLogits(
  a: LogitBlocks,
  b: LogitBlocks,
  given: { readonly vocabSize: number },
): Promise<LogitComparison> {
  const options = readOptions(given, 'compareLogits: options', { vocabSize: true });
  const vocabSize = checkInteger(options.vocabSize, 'compareLogits: vocabSize', 1);
  const rows = { a: rowsOf(a, vocabSize, 'compareLogits: a'), b: rowsOf(b, vocabSize, 'compareLogits: b') };
  const count = Math.min(5, vocabSize);
  const sums = { kl: 0, top1: 0, top5: 0 };
  let [tokens, compared, maxDifference, klMax] = [0, 0, 0, -1];
  let broken: LogitPair | undefined;
  let maxDifferenceAt: LogitPair | undefined;
  let klMaxToken: number | undefined;
  let firstApart: LogitComparison['firstApart'];
  try {
    for (; ; tokens++) {
      const [x, y] = [await rows.a.next(), await rows.b.next()];
      if (x.done !== y.done) {
        let many = tokens + 1;
        for await (const _row of x.done ? rows.b : rows.a) many++;
        refuse('SHAPE', 'compareLogits: b', `${x.done ? tokens : many} rows, as a has`, x.done ? many : tokens);
      }
      if (x.done || y.done) break;
      const worst = worstOf(x.value, y.value);
      const pair = { token: tokens, id: worst.id, a: x.value[worst.id]!, b: y.value[worst.id]! };
      if (!Number.isFinite(worst.difference)) {
        broken ??= pair;
        continue;
      }
      compared++;
      if (worst.difference > maxDifference) [maxDifference, maxDifferenceAt] = [worst.difference, pair];
      const kl = divergence(x.value, y.value);
      sums.kl += kl;
      if (kl > klMax) [klMax, klMaxToken] = [kl, tokens];
      const [best, other] = [largest(x.value, count), largest(y.value, count)];
      sums.top5 += best.filter((id) => other.includes(id)).length / count;
      if (best[0] === other[0]) sums.top1++;
      else firstApart ??= { token: tokens, a: best[0]!, b: other[0]! };
    }
  } finally {
    await rows.a.return();
    await rows.b.return();
  }
  const of = (value: number): number | undefined => (compared > 0 ? value : undefined);
  return {
    tokens,
    vocabSize,
    compared,
    broken,
    maxDifference: of(maxDifference),
    maxDifferenceAt,
    klMean: of(sums.kl / compared),
    klMax: of(klMax),
    klMaxToken,
    top1: of(sums.top1 / compared),
    top5: of(sums.top5 / compared),
    firstApart,
  };
}

async function* rowsOf(blocks: LogitBlocks, vocabSize: number, where: string): AsyncGenerator<Floats, void, void> {
  const check = (block: unknown): Floats =>
    reading(where, () => block instanceof Float32Array || block instanceof Float64Array)
      ? (block as Float32Array)
      : refuse('DTYPE', where, 'blocks of Float32Array or Float64Array', block);
  const isAsync = reading(where, () => typeof blocks === 'object' && blocks && Symbol.asyncIterator in blocks);
  const list = isAsync ? blocks : Array.from(readList(blocks as [], where, 'a list of blocks'), check);
  for await (const given of list) {
    const block = check(given);
    if (block.length % vocabSize !== 0)
      refuse('SHAPE', where, `blocks of whole rows of vocabSize=${vocabSize}`, block.length);
    for (let at = 0; at < block.length; at += vocabSize) yield block.subarray(at, at + vocabSize);
  }
}

/** Finds the id with the largest difference. A difference that is not finite comes first, and ends the search. */
function worstOf(a: Floats, b: Floats): { id: number; difference: number } {
  let [id, largestSoFar] = [0, 0];
  let alive = false;
  for (let at = 0; at < a.length; at++) {
    if (a[at] === Number.NEGATIVE_INFINITY && b[at] === Number.NEGATIVE_INFINITY) continue;
    alive = true;
    const difference = Math.abs(a[at]! - b[at]!);
    if (!Number.isFinite(difference)) return { id: at, difference };
    if (difference > largestSoFar) [id, largestSoFar] = [at, difference];
  }
  return { id, difference: alive ? largestSoFar : Number.NaN };
}

/** Computes Σ p·(log p − log q) with p of `a` and q of `b`. Rounding may make a sum of 0 negative: it is 0 then. */
function divergence(a: Floats, b: Floats): number {
  const [normA, normB] = [logSumExp(a), logSumExp(b)];
  let sum = 0;
  for (let id = 0; id < a.length; id++) {
    const logP = a[id]! - normA;
    const p = Math.exp(logP);
    if (p > 0) sum += p * (logP - (b[id]! - normB));
  }
  return Math.max(0, sum);
}
