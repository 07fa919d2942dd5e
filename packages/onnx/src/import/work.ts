/**
 * How much work an import may do. The sizes that a file declares say nothing of the work that it is worth; its bytes
 * do.
 *
 * @module
 */
import { CannotEvaluate } from '../operators/values.js';

/** How many steps bytes are worth, beside the base that every file may take. */
type Rate = { readonly base: number; readonly perByte: number };

/**
 * For computed values. A step is an element that an operator reads or writes, about 50 ns: 4096 positions × 64 through
 * ten operators.
 */
const COMPUTING: Rate = { base: 2 ** 23, perByte: 2 ** 10 };
/**
 * For the search. A step is a channel, or a quarter of a term, about 100 ns. A small decoder whose 896 channels may all
 * be a head's takes 1200 a byte.
 */
export const SEARCHING: Rate = { base: 2 ** 21, perByte: 2 ** 12 };

/** The work would be more than the bytes allow. */
export class TooMuchWork extends CannotEvaluate {}

/** Counts the steps of one import. */
export class Work {
  /** Steps taken. */
  spent = 0;
  readonly limit: number;

  /** @param bytes - of the file, and of the tensors that are given with it */
  constructor(
    readonly bytes: number,
    { base, perByte }: Rate = COMPUTING,
  ) {
    this.limit = base + perByte * bytes;
  }

  /**
   * Takes steps; called before they are done. Those more than are left are refused and not counted, so that one absurd
   * number leaves the rest of a file readable.
   */
  spend(steps: number): void {
    if (!(this.spent + steps <= this.limit))
      throw new TooMuchWork(`it takes more than the ${this.limit} steps that a file of this size may take`);
    this.spent += steps;
  }
}
