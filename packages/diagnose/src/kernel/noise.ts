/**
 * How far the output of a right kernel may be from the exact one: four tiers of noise, and a control that makes steps
 * compute with such errors on request. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { type Change, changed, RopeSteps } from './steps.js';

/**
 * The noise that a right kernel may have.
 *
 * - `stored`: exact angles, the rotation in f32 (f64 for f64 data), one rounding to y's dtype
 * - `angles`: in addition, angles computed in f32, whose error grows with the angle, and from pair to pair with repeated
 *   products
 * - `sines`: in addition, cos and sin with an absolute error up to 2^-21, as fast-math sines have
 * - `arithmetic`: as `angles`, and cos, sin, products and sums rounded to y's own 16-bit dtype
 */
export type Tier = 'stored' | 'angles' | 'sines' | 'arithmetic';

/** The tiers, the strictest first. */
export const TIERS: readonly Tier[] = ['stored', 'angles', 'sines', 'arithmetic'];

/** An error that a tier allows beyond `stored`. */
export type Move = 'angles' | 'sines' | 'products';

/** The errors of each tier. */
export const MOVES: Readonly<Record<Tier, readonly Move[]>> = {
  stored: [],
  angles: ['angles'],
  sines: ['angles', 'sines'],
  arithmetic: ['angles', 'products'],
};

/** Half the smallest subnormal number of a dtype. */
const SMALLEST: Readonly<Record<FloatDtype, number>> = { f64: 0, f32: 2 ** -150, f16: 2 ** -25, bf16: 2 ** -134 };

/**
 * The noise of one element whose angle is exact.
 *
 * Two products, a sum, and cos and sin in f32 are 5 roundings of at most the length of the pair, which is at most √2 times
 * its larger member. One rounding to the dtype follows.
 *
 * @param size - the largest |x| of the head, times the magnitude
 */
export function storedNoise(dtype: FloatDtype, value: number, size: number): number {
  const arithmetic = dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  return 1.01 * UNIT_ROUNDOFF[dtype] * Math.abs(value) + 6 * arithmetic * size + SMALLEST[dtype];
}

/**
 * The error of an f32 angle, in radians.
 *
 * A frequency from pow, log or a table, times the position, is 8 roundings of the angle. Repeated products from pair to
 * pair (ggml's θ_scale^j) add two more for each pair.
 *
 * @param angle - position × frequency
 */
export function angleNoise(angle: number, j: number): number {
  return Math.min(2, (8 + 2 * j) * UNIT_ROUNDOFF.f32 * Math.abs(angle));
}

/**
 * The absolute error of fast cos and sin. CUDA's __sincosf has 2^-21.19 and 2^-21.41 between -π and π (CUDA C++ Programming
 * Guide, intrinsic functions).
 */
export const SINE_NOISE = 2 ** -21;

/**
 * The error of arithmetic in a 16-bit dtype, for a pair of length 1: cos and sin rounded, two products and a sum. It is 0
 * for wider dtypes.
 */
export function arithmeticNoise(dtype: FloatDtype): number {
  return dtype === 'f16' || dtype === 'bf16' ? 3.5 * UNIT_ROUNDOFF[dtype] : 0;
}

/** The errors of angles, cos, sin and products. Fields that are left out mean exact arithmetic. */
export interface Rounding {
  /** Returns the angle with its error. */
  angle?(exact: number, j: number): number;
  /** Returns cos and sin of an angle with their errors. It is not called for the table of a caller. */
  sines?(cos: number, sin: number): readonly [cos: number, sin: number];
  /** A factor of cos and sin. */
  readonly gain?: number;
  /** The dtype to which cos and sin, times the magnitude, are rounded. */
  readonly table?: FloatDtype;
  /** The dtype to which products and sums are rounded. */
  readonly products?: FloatDtype;
  /** Moves a rotated pair of the given length. */
  moved?(y0: number, y1: number, length: number): readonly [y0: number, y1: number];
}

/**
 * A move at its largest, each way: the output of a right kernel lies between the two.
 *
 * @param loosest - the largest error of any angle, in radians
 */
export function roundingsOf(move: Move, dtype: FloatDtype, loosest: number): readonly Rounding[] {
  const part = arithmeticNoise(dtype);
  return [1, -1].map((way): Rounding => {
    if (move === 'angles') return { angle: (angle, j) => angle + way * Math.min(loosest, angleNoise(angle, j)) };
    if (move === 'sines') return { sines: (cos, sin) => [cos + SINE_NOISE, sin + way * SINE_NOISE] };
    return { moved: (y0, y1, length) => [y0 + part * length, y1 + way * part * length] };
  });
}

const EXACT: Rounding = {};

/** The steps that have errors. Each error is added once, however many such steps call each other. */
const STEPS = ['angle', 'cosSin', 'turn'] as const;
type Step = (typeof STEPS)[number];

/**
 * Gives many steps the same errors. Mutants change the steps of {@link base}, so that what they call of the right steps has
 * the errors already; a step of a mutant gets an error only if it called none of these.
 */
export class RoundingControl {
  /** The largest error of an angle that the right kernel may have here. A bug whose angles are huge has no more. */
  loosest = Number.POSITIVE_INFINITY;
  #rounding: Rounding = EXACT;
  /** Whether the step that runs now has its error already. */
  readonly #done: Record<Step, boolean> = { angle: false, cosSin: false, turn: false };

  /** Runs something with the given errors. */
  as<T>(rounding: Rounding, run: () => T): T {
    this.#rounding = rounding;
    try {
      return run();
    } finally {
      this.#rounding = EXACT;
    }
  }

  /** The right steps with the errors of this control, for mutants to change. */
  base(right: RopeSteps): RopeSteps {
    if (right.source) {
      const reach = right.source.positions.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
      const errors = right.frequencies().invFreq.map((frequency, j) => angleNoise(reach * frequency, j));
      this.loosest = errors.reduce((a, b) => Math.max(a, b), 0);
    }
    return this.#withErrors(right, STEPS);
  }

  /** The steps of a mutant of {@link base}: those that it changed get the errors too. */
  mutant(steps: RopeSteps, changes: readonly string[]): RopeSteps {
    const followed = this.#withErrors(
      steps,
      STEPS.filter((step) => changes.includes(step)),
    );
    return changes.includes('angle') ? this.#bounded(followed, steps) : followed;
  }

  /** Limits the error of angles that a mutant multiplies to the error of the right ones. */
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

  #withErrors(steps: RopeSteps, names: readonly Step[]): RopeSteps {
    const control = this;
    const { angle, cosSin, turn } = steps;
    // A mutant that rotates by products of its own has no rounded products.
    const plain = turn === RopeSteps.prototype.turn;
    const followed: Pick<RopeSteps, Step> = {
      angle(this: RopeSteps, position, j) {
        if (control.#rounding === EXACT) return angle.call(this, position, j);
        const compute = () => angle.call(this, position, j);
        return control.#once('angle', compute, (exact) => control.#rounding.angle?.(exact, j) ?? exact);
      },
      cosSin(this: RopeSteps, position, j) {
        if (control.#rounding === EXACT) return cosSin.call(this, position, j);
        const compute = () => cosSin.call(this, position, j);
        return control.#once(
          'cosSin',
          compute,
          ([cos, sin]) => (this.source && control.#rounding.sines?.(cos, sin)) || [cos, sin],
        );
      },
      turn(this: RopeSteps, x0, x1, cos, sin) {
        if (control.#rounding === EXACT) return turn.call(this, x0, x1, cos, sin);
        const { gain = 1, table, products, moved } = control.#rounding;
        const [c, s] = table ? [roundTo(table, gain * cos), roundTo(table, gain * sin)] : [gain * cos, gain * sin];
        const compute = () => (products && plain ? turnIn(products, x0, x1, c, s) : turn.call(this, x0, x1, c, s));
        const length = (): number => Math.hypot(x0, x1) * Math.hypot(c, s);
        return control.#once('turn', compute, ([y0, y1]) => (moved ? moved(y0, y1, length()) : [y0, y1]));
      },
    };
    return changed(steps, Object.fromEntries(names.map((name) => [name, followed[name]])) as Change);
  }

  #once<T>(step: Step, compute: () => T, err: (value: T) => T): T {
    this.#done[step] = false;
    const value = compute();
    if (this.#done[step]) return value;
    this.#done[step] = true;
    return err(value);
  }
}

/** Rotates a pair with every product and sum rounded. */
function turnIn(dtype: FloatDtype, x0: number, x1: number, cos: number, sin: number): readonly [number, number] {
  const round = (value: number): number => roundTo(dtype, value);
  return [round(round(x0 * cos) - round(x1 * sin)), round(round(x0 * sin) + round(x1 * cos))];
}
