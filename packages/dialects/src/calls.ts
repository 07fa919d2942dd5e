/** The parts that the calls of several dialects share: outputs, rows of tables. @module */
import type { Dtype, RopeTable, Runner, Tensor } from 'ropewalk';
import { newArray, type OpPlan } from 'ropewalk/backend';
import { checkApart, checkOutput, withFresh } from 'ropewalk/internal';

/** Runs the call that `bind` makes for an output: for `given`, or else for a fresh dense tensor like `like`. */
export function runInto<D extends Dtype>(
  rw: Runner,
  like: Tensor<D>,
  bind: (out: Tensor<D>) => OpPlan,
  given?: Tensor<D>,
): Tensor<D> {
  const run = (out: Tensor<D>): Tensor<D> => {
    rw.run(bind(out));
    return out;
  };
  return given === undefined ? withFresh(rw, like.dtype, like.shape, run) : run(given);
}

/**
 * Checks an output: its elements are distinct, and it shares no memory with the other tensors of the call.
 *
 * @param inPlace - the name of the input that the output may be
 */
export function checkWritten(
  op: string,
  name: string,
  out: Tensor,
  others: Readonly<Record<string, Tensor>>,
  inPlace?: string,
): void {
  checkOutput(out, `${op}: ${name}`);
  for (const [other, tensor] of Object.entries(others))
    checkApart(out, `${op}: ${name}`, other, tensor, other === inPlace);
}

/**
 * Finds the span of a table that a call uses, so that only these rows are converted.
 *
 * @param rows - the rows that the positions name
 * @param count - the rows that the table has
 * @param outside - refuses the n-th position, which is no row of the table
 */
export function spanOf(
  rows: ArrayLike<number>,
  count: number,
  outside: (n: number, row: number) => never,
): { readonly first: number; readonly end: number } {
  let [first, end] = [rows.length > 0 ? count : 0, 0];
  for (let n = 0; n < rows.length; n++) {
    const row = rows[n]!;
    if (!(row >= 0 && row < count)) outside(n, row);
    first = Math.min(first, row);
    end = Math.max(end, row + 1);
  }
  return { first, end };
}

/** The integers from 0 up to `length`: the table rows of tokens that have one row each. */
export function countUp(length: number): Int32Array {
  return Int32Array.from({ length }, (_item, n) => n);
}

/**
 * Makes a table with one row for each token.
 *
 * @param given - a table with one row for each position
 * @param rows - `[axes, tokens]`: the row of each token on each axis
 * @param axisOfPair - the axis that rotates each pair
 */
export function gatherTable(
  given: RopeTable,
  rows: ArrayLike<number>,
  axisOfPair: ArrayLike<number>,
  tokens: number,
): RopeTable {
  const { pairs } = given;
  const gather = (values: RopeTable['cos']): RopeTable['cos'] => {
    const gathered = newArray(values instanceof Float64Array ? 'f64' : 'f32', tokens * pairs);
    for (let token = 0; token < tokens; token++)
      for (let j = 0; j < pairs; j++)
        gathered[token * pairs + j] = values[rows[axisOfPair[j]! * tokens + token]! * pairs + j]!;
    return gathered;
  };
  return { rows: tokens, pairs, cos: gather(given.cos), sin: gather(given.sin) };
}
