/** Lists the catalogue of known bugs, and runs each of them. @module */
import { CAUSES, type Cause, MUTANTS, readHeads } from '@ropewalk/diagnose';
import { mutantExample, mutantSteps } from '@ropewalk/oracle';
import { expose } from 'comlink';

/** An entry of the catalogue. */
export interface Exhibit {
  readonly id: string;
  readonly cause: Cause;
  readonly causeWords: string;
  readonly does: string;
  readonly threads: readonly string[];
  /** The property of models that the bug needs. Undefined if it shows with every rotation. */
  readonly needs: string | undefined;
  /** The steps of the rotation that the bug changes. */
  readonly steps: readonly string[];
}

/** Errors that are this many powers of ten below the largest are not drawn. */
const DECADES = 3;

/** The errors of one head, token by dimension, in powers of ten above the smallest error that is drawn. */
export interface Picture {
  readonly values: Float32Array;
  readonly rows: number;
  readonly columns: number;
  readonly model: string;
  readonly about: string;
  /** The largest error, or Infinity if y is not finite. */
  readonly most: number;
  /** The share of y's elements, in all heads, that are off by 1 % or more. */
  readonly share: number;
}

const museum = {
  /** Lists every entry, grouped by cause. */
  catalogue(): Exhibit[] {
    return MUTANTS.map((mutant) => {
      const { id, cause, does, threads, needs } = mutant;
      return { id, cause, causeWords: CAUSES[cause], does, threads, needs, steps: mutantSteps(mutant) };
    });
  },

  /** Runs a bug and returns the head with the largest error. */
  picture(id: string): Picture {
    const { observation, expected, from, about } = mutantExample(MUTANTS.find((mutant) => mutant.id === id)!);
    const { batch, seq, heads, headDim, y, right } = readHeads(observation, expected);
    let best = { most: -1, values: new Float32Array() };
    let wrong = 0;
    for (let b = 0; b < batch; b++)
      for (let h = 0; h < heads; h++) {
        const values = new Float32Array(seq * headDim);
        let most = 0;
        for (let s = 0; s < seq; s++)
          for (let i = 0; i < headDim; i++) {
            const n = ((b * seq + s) * heads + h) * headDim + i;
            const error = Math.abs(y[n]! - right![n]!);
            values[s * headDim + i] = error;
            if (!(error < 0.01 * Math.abs(right![n]!))) wrong++;
            most = Math.max(most, Number.isFinite(error) ? error : Number.POSITIVE_INFINITY);
          }
        if (most > best.most) best = { most, values };
      }
    const { most } = best;
    const finite = best.values.reduce((max, error) => (Number.isFinite(error) ? Math.max(max, error) : max), 0);
    const values = best.values.map((error) => (error === 0 ? 0 : Math.max(0, DECADES + Math.log10(error / finite))));
    return { most, values, rows: seq, columns: headDim, model: from, about, share: wrong / y.length };
  },
};

/** The functions that the page calls. */
export type MuseumWorker = typeof museum;

expose(museum);
