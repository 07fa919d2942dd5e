/**
 * RoPE in float64, one method for each step, so that a mutant can change one step and leave the others alone. Unchanged, it
 * computes what the reference computes, which the tests compare. @module
 */
import { type FloatDtype, frequenciesOf, type RopeCall, type RopePlan, type RopeSpec, roundTo } from 'ropewalk';
import { hostOf, storeNumber } from 'ropewalk/backend';
import { type RopeFrequencies, type RopePart, type RopeSource, sharePairs } from 'ropewalk/internal';
import type { RowAt } from '../read/observation.js';
import { angleNoise, type Rounding } from './noise.js';

/** The steps of one rotation; {@link changed} replaces some of them. */
export class RopeSteps {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  readonly pairs: number;
  /** −1 for the backward direction. */
  readonly sign: 1 | -1;
  /** The spec and positions of the plan; undefined where the caller gave a table. */
  readonly source: RopeSource | undefined;
  /** Kept results. They are not #private, because {@link changed} makes objects that inherit from this one. */
  computed: RopeFrequencies | undefined;
  shared: Uint8Array | undefined;
  /** Whether cos and sin are rounded to few bits, each from an angle that is computed for it. */
  readonly narrowTable: boolean = false;

  constructor(
    readonly plan: RopePlan,
    readonly part: RopePart,
  ) {
    [this.batch, this.seq, this.heads, this.headDim] = part.x.shape as [number, number, number, number];
    this.rotaryDim = plan.rotaryDim;
    this.rotaryOffset = plan.rotaryOffset;
    this.pairs = plan.table.pairs;
    this.sign = plan.direction === 'backward' ? -1 : 1;
    this.source = plan.source;
  }

  /** The RoPE of a call whose table is computed. */
  get spec(): RopeSpec {
    return this.source!.spec;
  }

  /** The number by which the exponent of a frequency is divided. */
  get exponentDim(): number {
    const { frequencyDim, pairing } = this.spec;
    return frequencyDim ?? (pairing === 'vision' ? this.rotaryDim / 2 : this.rotaryDim);
  }

  /** The dimension that member k of pair j is read from. */
  readIndex(j: number, k: 0 | 1): number {
    return this.rotaryOffset + j * this.plan.read.step + k * this.plan.read.gap;
  }

  /** The dimension that member k of pair j is written to. */
  writeIndex(j: number, k: 0 | 1): number {
    return this.rotaryOffset + j * this.plan.write.step + k * this.plan.write.gap;
  }

  /** The frequency of each pair, and the magnitude. It needs a {@link source}. */
  frequencies(): RopeFrequencies {
    this.computed ??= frequenciesOf(this.source!.spec);
    return this.computed;
  }

  /** The axis whose position rotates pair j. */
  axisOfPair(j: number): number {
    if (!this.source?.spec.axes) return 0;
    if (this.shared?.length !== this.pairs) this.shared = sharePairs(this.source.spec.axes, this.pairs).axisOfPair;
    return this.shared[j]!;
  }

  /** The position of a token on an axis; for the table of a caller, the row of the table. */
  position(at: RowAt, axis: number): number {
    const token = this.plan.batch === undefined ? at.seq : at.batch * this.seq + at.seq;
    if (!this.source) return this.plan.tableRows[token]!;
    const rows = this.plan.tableRows.length;
    return this.source.positions[axis * rows + token]!;
  }

  /** The angle of pair j at a position, in radians. It needs a {@link source}. */
  angle(position: number, j: number): number {
    return position * this.frequencies().invFreq[j]!;
  }

  /** The factor of cos and sin of pair j. It needs a {@link source}. */
  magnitude(_j: number, _at: RowAt): number {
    return this.frequencies().attentionFactor;
  }

  /** cos and sin of pair j at a position, before the magnitude and the direction; the values of a caller's table. */
  cosSin(position: number, j: number): readonly [cos: number, sin: number] {
    if (this.source) {
      const angle = this.angle(position, j);
      return [Math.cos(angle), Math.sin(angle)];
    }
    const { table } = this.plan;
    const row = Math.min(Math.max(position, 0), table.rows - 1);
    return [table.cos[row * table.pairs + j]!, table.sin[row * table.pairs + j]! * this.sign];
  }

  /** Rotates one pair. */
  turn(x0: number, x1: number, cos: number, sin: number): readonly [y0: number, y1: number] {
    return [x0 * cos - x1 * sin, x0 * sin + x1 * cos];
  }

  /** The output of a dimension that no pair writes. */
  beside(value: number, _dim: number, _at: RowAt): number {
    return value;
  }

  pair(head: Float64Array, j: number, at: RowAt): readonly [y0: number, y1: number] {
    const [cos, sin] = this.cosSin(this.position(at, this.axisOfPair(j)), j);
    const m = this.source ? this.magnitude(j, at) : 1;
    return this.turn(head[this.readIndex(j, 0)]!, head[this.readIndex(j, 1)]!, cos * m, sin * m * this.sign);
  }

  rotate(head: Float64Array, at: RowAt): Float64Array {
    const y = new Float64Array(this.headDim);
    const written = new Uint8Array(this.headDim);
    for (let j = 0; j < this.pairs; j++) {
      const [y0, y1] = this.pair(head, j, at);
      const i0 = this.writeIndex(j, 0);
      const i1 = this.writeIndex(j, 1);
      y[i0] = y0;
      y[i1] = y1;
      written[i0] = 1;
      written[i1] = 1;
    }
    for (let i = 0; i < this.headDim; i++) if (!written[i]) y[i] = this.beside(head[i]!, i, at);
    return y;
  }

  normalize(head: Float64Array, weight: Float64Array, eps: number): Float64Array {
    const squares = head.reduce((sum, v) => sum + v * v, 0);
    const rms = Math.sqrt(squares / head.length + eps);
    return head.map((v, i) => (weight[i]! * v) / rms);
  }

  /** The values of a row that are rotated. */
  input(x: Float64Array): Float64Array {
    const { norm } = this.part;
    return norm ? this.normalize(x, norm.weight.readNumbers() as Float64Array, norm.eps) : x;
  }

  head(x: Float64Array, at: RowAt): Float64Array {
    return this.rotate(this.input(x), at);
  }

  /** The place of row n of `[batch, seq, head]`. */
  placeOf(n: number): RowAt {
    const token = Math.floor(n / this.heads);
    return { batch: Math.floor(token / this.seq), seq: token % this.seq, head: n % this.heads };
  }

  /** Computes every head of the tensor. `heads` in and out are `[batch, seq, head, headDim]`. */
  all(heads: Float64Array): Float64Array {
    const y = new Float64Array(heads.length);
    for (let n = 0, from = 0; from < y.length; n++, from += this.headDim)
      y.set(this.head(heads.subarray(from, from + this.headDim), this.placeOf(n)), from);
    return y;
  }
}

/** Methods and numbers that replace those of {@link RopeSteps}. In the methods, `this` is the changed steps. */
export type Change = Partial<RopeSteps>;

/** The steps with some of them replaced; `steps` itself stays as it is. */
export function changed(steps: RopeSteps, change: Change): RopeSteps {
  return Object.assign(Object.create(steps), change) as RopeSteps;
}

/** Rounds cos and sin to few bits. */
export function narrowTable(steps: RopeSteps, round: (value: number) => number) {
  return {
    narrowTable: steps.source !== undefined,
    cosSin(this: RopeSteps, position: number, j: number): readonly [cos: number, sin: number] {
      const [cos, sin] = this.source
        ? [Math.cos(this.angle(position, j)), Math.sin(this.angle(position, j))]
        : steps.cosSin.call(this, position, j);
      return [round(cos), round(sin)];
    },
  };
}

/** Runs a checked call by steps, each part into its out. Every result is rounded once. */
export function runSteps(call: RopeCall, stepsOf: (steps: RopeSteps) => RopeSteps): void {
  for (const part of call.parts) {
    const { x, out, rows } = part;
    const steps = stepsOf(new RopeSteps(call.plan, part));
    const y = steps.all(x.readNumbers() as Float64Array);
    const host = hostOf(out, 'rope: out');
    const [ofBatch, ofRow, ofHead, ofElement] = out.strides as [number, number, number, number];
    for (let n = 0, from = 0; from < y.length; n++, from += steps.headDim) {
      const { batch, seq, head } = steps.placeOf(n);
      const row = rows ? rows[batch * steps.seq + seq]! : seq;
      const at = out.offset + batch * ofBatch + row * ofRow + head * ofHead;
      for (let i = 0; i < steps.headDim; i++) storeNumber(host, out.dtype, at + i * ofElement, y[from + i]!);
    }
  }
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
      const errors = right.frequencies().invFreq.map((frequency, j) => angleNoise(reach * frequency, j, reach));
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
        return control.#once(
          'angle',
          () => angle.call(this, position, j),
          (exact) => control.#rounding.angle?.(exact, j, position) ?? exact,
        );
      },
      cosSin(this: RopeSteps, position, j) {
        if (control.#rounding === EXACT) return cosSin.call(this, position, j);
        return control.#once(
          'cosSin',
          () => cosSin.call(this, position, j),
          ([cos, sin]) => (this.source && control.#rounding.sines?.(cos, sin)) || [cos, sin],
        );
      },
      turn(this: RopeSteps, x0, x1, cos, sin) {
        if (control.#rounding === EXACT) return turn.call(this, x0, x1, cos, sin);
        const { gain = 1, table, products, moved } = control.#rounding;
        const [c, s] = table ? [roundTo(table, gain * cos), roundTo(table, gain * sin)] : [gain * cos, gain * sin];
        return control.#once(
          'turn',
          () => (products && plain ? turnIn(products, x0, x1, c, s) : turn.call(this, x0, x1, c, s)),
          ([y0, y1]) => (moved ? moved(y0, y1, Math.hypot(x0, x1) * Math.hypot(c, s)) : [y0, y1]),
        );
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
  return [
    roundTo(dtype, roundTo(dtype, x0 * cos) - roundTo(dtype, x1 * sin)),
    roundTo(dtype, roundTo(dtype, x0 * sin) + roundTo(dtype, x1 * cos)),
  ];
}
