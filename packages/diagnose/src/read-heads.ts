/** Reads a dump as its owner describes it: splits heads, checks dtypes, and puts each head beside the right one. @module */
import { type FloatDtype, isFloat, roundTo, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkTensor, reading, show } from 'ropewalk/internal';
import { slackOf, storedNoise } from './kernel/noise.js';
import { rightOf, runRows } from './kernel/trial.js';
import { axesOf, callOf, type Expected, readExpected } from './read/expected.js';
import { type Heads, type Observation, readObservation, widened } from './read/observation.js';

/**
 * Splits `[tokens, hidden]` or `[batch, tokens, hidden]` into heads.
 *
 * @param heads - the number of heads; undefined leaves the tensor as it is
 * @param where - names the tensor in messages
 * @throws {RopewalkError} SHAPE for another rank, or when the heads do not divide the last dimension
 */
export function splitHeads(tensor: Tensor, heads: number | undefined, where: string): Tensor {
  checkTensor(tensor, where);
  if (heads === undefined) return tensor;
  const { shape } = tensor;
  if (shape.length !== 2 && shape.length !== 3)
    refuse('SHAPE', where, '[tokens, hidden] or [batch, tokens, hidden] where the number of heads is given', [
      ...shape,
    ]);
  const hidden = shape.at(-1)!;
  if (!Number.isSafeInteger(heads) || heads < 1 || hidden % heads !== 0)
    refuse(
      'SHAPE',
      where,
      `a last dimension that ${show(heads)} heads divide`,
      [...shape],
      'If it is one head already, leave heads out.',
    );
  return tensor.reshape([...shape.slice(0, -1), heads, hidden / heads]);
}

/**
 * Checks that a dump holds only values of the dtype that the kernel stored: a dump may be wider, such as bf16 as f32.
 *
 * @param dtype - the dtype that the kernel stored; undefined checks nothing
 * @param where - names the dtype in messages
 * @throws {RopewalkError} DTYPE for a value that the dtype cannot hold
 */
export function checkStored(y: Tensor, dtype: FloatDtype | undefined, where: string): void {
  checkTensor(y, where);
  if (dtype === undefined || y.dtype === dtype || !isFloat(y.dtype)) return;
  const values = y.readNumbers() as Float64Array;
  const bad = values.findIndex((value) => !Number.isNaN(value) && roundTo(dtype, value) !== value);
  if (bad >= 0)
    fail('DTYPE', where, `y holds ${values[bad]}, which ${dtype} cannot hold. Give the dtype that the kernel stores.`);
}

/** An observation as numbers. */
export interface ReadHeads extends Pick<Heads, 'batch' | 'seq' | 'heads' | 'headDim' | 'numAxes' | 'positions'> {
  /** `[batch, seq, head, head_dim]`, as y. */
  readonly x: Float64Array;
  readonly y: Float64Array;
  /** The output of the right kernel in float64, in the shape of y; undefined without an expectation. */
  readonly right: Float64Array | undefined;
  /**
   * How far each element of some rows may be from `right`, for a kernel with angles in f32 and one rounding to y's dtype;
   * undefined without an expectation.
   *
   * @param rows - `(batch * seq + token) * heads + head` of each
   * @returns `[rows, head_dim]`
   */
  readonly tolerance: ((rows: readonly number[]) => Float64Array) | undefined;
  /** The two dimensions that each pair of the right kernel is written to. */
  readonly pairs: readonly (readonly [number, number])[];
}

/**
 * Reads an observation as heads of numbers, `[batch, seq, head, head_dim]` whatever its layout is.
 *
 * @param observation - with its layout; default: `bsnh`
 * @param expected - the RoPE that computes the right heads
 * @throws {RopewalkError} as {@link diagnose} throws
 */
export function readHeads(observation: Observation, expected?: Expected): ReadHeads {
  return reading('readHeads', () => {
    const meant = expected && readExpected(expected);
    const read = readObservation(observation, meant && axesOf(meant));
    const { batch, seq, heads, headDim, numAxes, positions } = read;
    const [x, y] = [widened(read.x), widened(read.y)];
    const hypothesis = meant && rightOf(callOf(meant, read));
    const steps = hypothesis?.steps;
    const pairs = Array.from(
      { length: steps?.pairs ?? 0 },
      (_, j) => [steps!.writeIndex(j, 0), steps!.writeIndex(j, 1)] as const,
    );
    const tolerance = (rows: readonly number[]): Float64Array => {
      const run = (): Float64Array => runRows(steps!, read, rows);
      const made = run();
      const slack = slackOf(hypothesis!.control, made, read.dtype, 'angles', run);
      // A rotation keeps the length of a pair, which is at most √2 times its larger member.
      const sizes = rows.map((_, row) => {
        const head = made.subarray(row * headDim, (row + 1) * headDim);
        return Math.SQRT2 * head.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
      });
      return made.map((value, n) => storedNoise(read.dtype, value, sizes[Math.floor(n / headDim)]!) + slack[n]!);
    };
    return {
      batch,
      seq,
      heads,
      headDim,
      x,
      y,
      numAxes,
      positions,
      right: steps?.all(x),
      tolerance: steps && tolerance,
      pairs,
    };
  });
}
