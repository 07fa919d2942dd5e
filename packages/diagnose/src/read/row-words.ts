/** Which rows of `[batch, seq, head]` these are, in words. @module */
import { ranges } from 'ropewalk/internal';
import { type Heads, rowAt } from './observation.js';

type Shape = Pick<Heads, 'batch' | 'seq' | 'heads'>;

/** Numbers as ranges, shortened where they are many. */
export function someRanges(numbers: readonly number[]): string {
  const step = (numbers[1] ?? 0) - numbers[0]!;
  if (numbers.length > 2 && step > 1 && numbers.every((n, at) => n === numbers[0]! + at * step))
    return `${numbers[0]}, ${numbers[1]}, … ${numbers.at(-1)} (each ${step} apart)`;
  const parts = ranges(numbers).split(', ');
  return parts.length > 8 ? `${parts.slice(0, 6).join(', ')}, … ${parts.at(-1)}` : parts.join(', ');
}

/**
 * Names rows: `heads 3-5 of every token`, `token 7`, `batch 1`.
 *
 * @param rows - in rising order, at least one
 */
export function rowsWords(rows: readonly number[], shape: Shape): string {
  const whole = productWords(rows, shape);
  if (whole) return whole;
  // Not a product of batches, tokens and heads: tokens with the same heads are told together.
  const byToken = new Map<number, number[]>();
  for (const r of rows) {
    const token = Math.floor(r / shape.heads);
    const list = byToken.get(token);
    if (list) list.push(r);
    else byToken.set(token, [r]);
  }
  const groups = new Map<string, number[]>();
  for (const [token, list] of byToken) {
    const key = `${Math.floor(token / shape.seq)}:${list.map((r) => r % shape.heads).join()}`;
    const known = groups.get(key);
    if (known) known.push(...list);
    else groups.set(key, list);
    if (groups.size > 4) return `${rows.length} rows, the first in ${productWords([rows[0]!], shape)}`;
  }
  return [...groups.values()].map((list) => productWords(list, shape)).join('; ');
}

/** The rows of all the batches, tokens and heads that these rows have, in rising order. */
export function productOf(rows: readonly number[], shape: Shape): number[] {
  const { batch, token, head } = setsOf(rows, shape);
  return batch
    .flatMap((b) => token.flatMap((s) => head.map((h) => (b * shape.seq + s) * shape.heads + h)))
    .sort((a, b) => a - b);
}

function setsOf(rows: readonly number[], shape: Shape): Record<'batch' | 'token' | 'head', number[]> {
  const [batch, token, head] = [new Set<number>(), new Set<number>(), new Set<number>()];
  for (const r of rows) {
    const at = rowAt(shape, r);
    batch.add(at.batch);
    token.add(at.seq);
    head.add(at.head);
  }
  const sorted = (set: Set<number>): number[] => [...set].sort((a, b) => a - b);
  return { batch: sorted(batch), token: sorted(token), head: sorted(head) };
}

function productWords(rows: readonly number[], shape: Shape): string | undefined {
  const sets = setsOf(rows, shape);
  if (sets.batch.length * sets.token.length * sets.head.length !== rows.length) return undefined;
  const counts = { head: shape.heads, token: shape.seq, batch: shape.batch };
  const parts = (['head', 'token', 'batch'] as const).flatMap((name) => {
    const list = sets[name];
    if (list.length === counts[name]) return name === 'token' && sets.head.length < shape.heads ? ['every token'] : [];
    const plural = list.length === 1 ? '' : name === 'batch' ? 'es' : 's';
    return [`${name}${plural} ${someRanges(list)}`];
  });
  return parts.length > 0 ? parts.join(' of ') : 'every token';
}
