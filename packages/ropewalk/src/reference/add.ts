/** Addition in float64. @module */
import type { AddPlan } from '../ops/add.js';
import { readAll, writeAll } from './elements.js';

/** Computes `out = a + b`, rounded once. */
export function addReference({ a, b, out }: AddPlan): void {
  const left = readAll(a, 'add: a');
  const right = readAll(b, 'add: b');
  writeAll(
    out,
    left.map((value, i) => value + right[i]!),
    'add: out',
  );
}
