/** Argmax by looking at every element once. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { copyElements, hostOf, type Tensor } from '../core/tensor.js';
import type { ArgmaxPlan } from '../ops/argmax.js';
import { readAll } from './elements.js';

/** Finds the first largest element of each row; the first NaN ends the search. */
export function argmaxReference({ values, outIndex, outValue }: ArgmaxPlan): void {
  const n = values.shape.at(-1)!;
  const all = readAll(values, 'argmax: vals'); // [rows, n]
  const indices = rows(outIndex);
  const targets = rows(outValue);
  const sources = rows(values);
  for (let r = 0; r < all.length / n; r++) {
    let best = 0;
    for (let i = 0; i < n; i++) {
      const value = all[r * n + i]!;
      if (Number.isNaN(value)) {
        best = i;
        break;
      }
      if (value > all[r * n + best]!) best = i;
    }
    const index = indices[r]!;
    const host = hostOf(outIndex, 'argmax: max_idx');
    host[index.offset] = (outIndex.dtype === 'i64' ? BigInt(best) : best) as never;
    copyElements(sources[r]!.slice(0, best, best + 1), targets[r]!); // The bits are copied, so a NaN keeps its payload.
  }
}

/** Views every row as a tensor of rank 1. */
function rows<D extends FloatDtype | 'i64' | 'i32'>(tensor: Tensor<D>): Tensor<D>[] {
  if (tensor.rank === 1) return [tensor];
  const [count, ...rest] = tensor.shape as [number, ...number[]];
  return Array.from({ length: count }, (_row, i) => rows(tensor.slice(0, i, i + 1).view(rest))).flat();
}
