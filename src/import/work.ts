/**
 * How much an import may do: numbers in a file say nothing of the work that it is worth, its bytes do.
 *
 * @module
 */
/** Steps that every file may take: tables of 4096 positions × 64 through some 10 operators. Half a second. */
const BASE_STEPS = 2 ** 23;
/** Further steps for each byte given. Tracing takes the most: 1200 for each byte of a small decoder whose 896 channels may all be a head's. */
const STEPS_PER_BYTE = 2 ** 12;

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

/** Counts the steps of one import. A step is an element that an operator reads or writes, 50 ns or so. */
export class Work {
  /** Steps taken. */
  spent = 0;
  readonly limit: number;

  /** @param bytes - of the file, and of the tensors that are given with it */
  constructor(readonly bytes: number) {
    this.limit = BASE_STEPS + STEPS_PER_BYTE * bytes;
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
