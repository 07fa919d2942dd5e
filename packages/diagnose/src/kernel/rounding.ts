/** The errors that a right kernel's arithmetic may have: steps that make them on request. @module */
import { type FloatDtype, roundTo } from 'ropewalk';
import { angleNoise, arithmeticNoise, SINE_NOISE, type Tier } from './noise.js';
import { changed, RopeSteps } from './steps.js';

/** How angles, cos, sin and products are computed. What is left out is exact. */
export interface Rounding {
  /** The angle as computed. */
  angle?(exact: number, j: number): number;
  /** cos and sin as computed, of angles; not for a given table. */
  sines?(cos: number, sin: number): readonly [cos: number, sin: number];
  /** cos and sin are multiplied by it. */
  readonly gain?: number;
  /** cos and sin, times the magnitude, are rounded to it. */
  readonly table?: FloatDtype;
  /** Products and sums are rounded to it. */
  readonly products?: FloatDtype;
  /** Moves a rotated pair; `length` is the pair's. */
  moved?(y0: number, y1: number, length: number): readonly [y0: number, y1: number];
}

const EXACT: Rounding = {};

/** Steps that an arithmetic error goes through once, wherever a mutant calls them. */
type Governed = 'angle' | 'cosSin' | 'turn';

/**
 * Gives many steps the same rounding errors. Mutants are built on a base that follows it, so that what they call of the right
 * steps follows it too; a step of their own follows it only if it called none of the base's.
 */
export class RoundingControl {
  /** The largest error of an angle that the right kernel may have here: a bug whose angles are huge has no more. */
  loosest = Number.POSITIVE_INFINITY;
  #rounding: Rounding = EXACT;
  /** Whether the step that runs now has its error already. */
  readonly #done: Record<Governed, boolean> = { angle: false, cosSin: false, turn: false };

  /** Runs something with the given rounding errors. */
  as<T>(rounding: Rounding, run: () => T): T {
    this.#rounding = rounding;
    try {
      return run();
    } finally {
      this.#rounding = EXACT;
    }
  }

  #once<T>(step: Governed, compute: () => T, err: (value: T) => T): T {
    this.#done[step] = false;
    const value = compute();
    if (this.#done[step]) return value;
    this.#done[step] = true;
    return err(value);
  }

  /** The right steps, with the errors of this control: the base that mutants change. */
  base(right: RopeSteps): RopeSteps {
    const { turn } = RopeSteps.prototype;
    const control = this;
    if (right.source) {
      const reach = right.source.positions.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
      const errors = right.frequencies().invFreq.map((frequency, j) => angleNoise(reach * frequency, j));
      this.loosest = errors.reduce((a, b) => Math.max(a, b), 0);
    }
    const followed = this.#follow(right, ['angle', 'cosSin']);
    return changed(followed, {
      turn(x0, x1, cos, sin) {
        if (control.#rounding === EXACT) return turn(x0, x1, cos, sin); // the hot path
        const { products, moved } = control.#rounding;
        const [c, s] = control.#table(cos, sin);
        const round = (value: number): number => (products ? roundTo(products, value) : value);
        return control.#once(
          'turn',
          () =>
            products
              ? [round(round(x0 * c) - round(x1 * s)), round(round(x0 * s) + round(x1 * c))]
              : turn(x0, x1, c, s),
          ([y0, y1]) => (moved ? moved(y0, y1, Math.hypot(x0, x1) * Math.hypot(c, s)) : [y0, y1]),
        );
      },
    });
  }

  /** A mutant's steps, built on a base: its own steps get the errors too. `own`: the names of the steps it replaced. */
  mutant(steps: RopeSteps, own: readonly string[]): RopeSteps {
    const control = this;
    const inner = this.#follow(
      steps,
      (['angle', 'cosSin'] as const).filter((name) => own.includes(name)),
    );
    const followed = own.includes('angle') ? this.#bounded(inner, steps) : inner;
    if (!own.includes('turn')) return followed;
    return changed(followed, {
      turn(x0, x1, cos, sin) {
        if (control.#rounding === EXACT) return steps.turn.call(this, x0, x1, cos, sin);
        const [c, s] = control.#table(cos, sin);
        return control.#once(
          'turn',
          () => steps.turn.call(this, x0, x1, c, s),
          ([y0, y1]) => control.#rounding.moved?.(y0, y1, Math.hypot(x0, x1) * Math.hypot(c, s)) ?? [y0, y1],
        );
      },
    });
  }

  /** An angle that a mutant multiplies has no larger error than the right one. */
  #bounded(followed: RopeSteps, steps: RopeSteps): RopeSteps {
    const control = this;
    return changed(followed, {
      angle(position, j) {
        const moved = followed.angle.call(this, position, j);
        const rounding = control.#rounding;
        if (!rounding.angle) return moved;
        control.#rounding = EXACT;
        const exact = steps.angle.call(this, position, j);
        control.#rounding = rounding;
        control.#done.angle = true;
        return exact + Math.min(control.loosest, Math.max(-control.loosest, moved - exact));
      },
    });
  }

  #table(cos: number, sin: number): readonly [cos: number, sin: number] {
    const { gain = 1, table } = this.#rounding;
    return table ? [roundTo(table, gain * cos), roundTo(table, gain * sin)] : [gain * cos, gain * sin];
  }

  #follow(steps: RopeSteps, names: readonly Exclude<Governed, 'turn'>[]): RopeSteps {
    const control = this;
    const { angle, cosSin } = steps;
    return changed(steps, {
      ...(names.includes('angle') && {
        angle(this: RopeSteps, position: number, j: number) {
          if (control.#rounding === EXACT) return angle.call(this, position, j);
          return control.#once(
            'angle',
            () => angle.call(this, position, j),
            (exact) => control.#rounding.angle?.(exact, j) ?? exact,
          );
        },
      }),
      ...(names.includes('cosSin') && {
        cosSin(this: RopeSteps, position: number, j: number) {
          if (control.#rounding === EXACT) return cosSin.call(this, position, j);
          return control.#once(
            'cosSin',
            () => cosSin.call(this, position, j),
            ([cos, sin]) => (this.source && control.#rounding.sines?.(cos, sin)) || [cos, sin],
          );
        },
      }),
    });
  }
}

/** Errors that a right kernel may have. */
export type Move = 'angles' | 'sines' | 'products';

/** The errors that each tier allows. */
export const MOVES: Readonly<Record<Tier, readonly Move[]>> = {
  stored: [],
  angles: ['angles'],
  sines: ['angles', 'sines'],
  arithmetic: ['angles', 'products'],
};

/**
 * An error at its largest, each way: the output of a right kernel lies between.
 *
 * @param loosest - of any angle, in radians
 */
export function roundingsOf(move: Move, dtype: FloatDtype, loosest: number): readonly Rounding[] {
  const part = arithmeticNoise(dtype);
  return [1, -1].map((way): Rounding => {
    if (move === 'angles') return { angle: (angle, j) => angle + way * Math.min(loosest, angleNoise(angle, j)) };
    if (move === 'sines') return { sines: (cos, sin) => [cos + SINE_NOISE, sin + way * SINE_NOISE] };
    return { moved: (y0, y1, length) => [y0 + part * length, y1 + way * part * length] };
  });
}
