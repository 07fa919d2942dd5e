/**
 * How much an import may do: numbers in a file say nothing of the work that it is worth, its bytes do.
 *
 * @module
 */
/** How many steps bytes are worth. */
interface Rate {
  /** What every file may take. */
  readonly base: number;
  readonly perByte: number;
}

/** For values that are computed. A step is an element that an operator reads or writes, 50 ns or so: 4096 positions × 64 through ten operators. */
const COMPUTING: Rate = { base: 2 ** 23, perByte: 2 ** 10 };
/** For the search. A step is a channel, or a quarter of a term, 100 ns or so; a small decoder whose 896 channels may all be a head's takes 1200 a byte. */
export const SEARCHING: Rate = { base: 2 ** 21, perByte: 2 ** 12 };

/** Why a value cannot be computed. */
export class CannotEvaluate extends Error {
  /**
   * @param message - in words
   * @param missing - the input of the graph that was not given, if that is it
   */
  constructor(
    message: string,
    readonly missing?: string,
  ) {
    super(message);
  }
}

/** The work would be more than the bytes given allow. */
export class TooMuchWork extends CannotEvaluate {}

/** Counts the steps of one import. */
export class Work {
  /** Steps taken. */
  spent = 0;
  readonly limit: number;

  /**
   * @param bytes - of the file, and of the tensors that are given with it
   * @param rate - {@link SEARCHING}, or for computing
   */
  constructor(
    readonly bytes: number,
    { base, perByte }: Rate = COMPUTING,
  ) {
    this.limit = base + perByte * bytes;
  }

  /**
   * Takes steps; called before they are done. What is refused is not counted, so that one absurd number leaves the rest of a file readable.
   *
   * @throws {TooMuchWork} when they are more than are left
   */
  spend(steps: number): void {
    if (!(this.spent + steps <= this.limit))
      throw new TooMuchWork(`it takes more than the ${this.limit} steps that a file of this size may take`);
    this.spent += steps;
  }
}
