/**
 * Computes what each channel of a value is made of: sums of products of channels of other values. It traces them back
 * through the operators that only move, negate, multiply and add.
 *
 * So the many ways of writing a rotation (slices, splits, stacks, gathers, a sign matrix) all give the same sums.
 *
 * @module
 */
import { countElements } from 'ropewalk/internal';
import type { OnnxModelNode } from '../format/onnx-model.js';
import { type Forms, flatten, MAX_TERMS, NoForm, spread } from '../operators/forms.js';
import { operatorOf } from '../operators/index.js';
import type { TraceReader } from '../operators/operator.js';
import type { Evaluation, Work } from './evaluate.js';
import type { Shapes } from './scope.js';

/** Heads have at most this width. A hidden dimension is not traced. */
export const MAX_CHANNELS = 1024;
/** x, its norm, the gain of its norm, and cos or sin. */
const MAX_FACTORS = 4;
/** Comparing a term with others costs this many steps, because the names of its factors are compared. */
const STEPS_PER_TERM = 4;
/** No exporter nests this deep. */
const MAX_DEPTH = 64;

export class Algebra {
  /** The dimensions of each leaf that its channels count. */
  readonly leaves = new Map<string, readonly number[]>();
  readonly #memo = new Map<string, Forms | undefined>();
  #depth = 0;

  /** @param stop - a value that counts as a leaf, or '' */
  constructor(
    readonly shapes: Shapes,
    readonly constants: Evaluation,
    readonly work: Work,
    readonly stop: string,
  ) {}

  /** Returns the channels of a value's last dimension; undefined when they are unknown, too many, or no such sums. */
  channels(value: string): Forms | undefined {
    const width = this.shapes.shapeOf(value)?.at(-1);
    if (typeof width !== 'number' || width < 1 || width > MAX_CHANNELS) return undefined;
    try {
      return this.#forms(value, [width]);
    } catch (error) {
      this.#depth = 0;
      if (error instanceof NoForm) return undefined;
      throw error;
    }
  }

  /** Returns a value in the form that an operator sees when it broadcasts the last dimensions to `trail`. */
  #forms(value: string, trail: readonly number[]): Forms {
    const shape = this.shapes.shapeOf(value);
    if (!shape) return this.#leaf(value, trail);
    const skip = trail.length - shape.length;
    const own = trail.map((size, n) => {
      const dim = n < skip ? 1 : shape[n - skip]!;
      if (dim === 1) return 1;
      if (typeof dim === 'number' && dim !== size) throw new NoForm();
      return size;
    });
    const traced = this.#own(value, skip > 0 ? own.slice(skip) : own);
    if (own.every((size, n) => size === trail[n])) return traced;
    const count = countElements(trail);
    if (count > MAX_CHANNELS) throw new NoForm();
    return Array.from({ length: count }, (_, n) => {
      const index = spread(trail, n).map((at, axis) => (own[axis] === 1 ? 0 : at));
      return traced[flatten(own, index)]!;
    });
  }

  #own(value: string, trail: readonly number[]): Forms {
    const key = `${trail.join()} ${value}`;
    const known = this.#memo.get(key);
    if (known) return known;
    // An entry without forms has none, or is being traced at this moment, which means a cycle.
    if (this.#memo.has(key) || countElements(trail) > MAX_CHANNELS || this.#depth >= MAX_DEPTH) throw new NoForm();
    this.#memo.set(key, undefined);
    this.#depth++;
    this.work.spend(countElements(trail) * Math.max(1, trail.length / 4)); // one index for each dimension
    const forms = this.#trace(value, trail);
    this.#depth--;
    // A file may declare other shapes than its constants have. Then a channel is missing.
    if (forms.length !== countElements(trail) || forms.includes(undefined as never)) throw new NoForm();
    this.work.spend(STEPS_PER_TERM * forms.reduce((sum, terms) => sum + terms.length, 0));
    if (forms.some((terms) => terms.length > MAX_TERMS || terms.some((term) => term.factors.length > MAX_FACTORS)))
      throw new NoForm();
    this.#memo.set(key, forms);
    return forms;
  }

  #leaf(value: string, trail: readonly number[]): Forms {
    const count = countElements(trail);
    const known = this.leaves.get(value);
    if (known && countElements(known) !== count) throw new NoForm();
    this.leaves.set(value, trail);
    return Array.from({ length: count }, (_, at) => [{ k: 1, factors: [{ leaf: value, at }] }]);
  }

  #trace(value: string, trail: readonly number[]): Forms {
    if (value === this.stop) return this.#leaf(value, trail);
    const constant = this.#signs(value, trail);
    if (constant) return constant;
    const node = this.shapes.scope.maker(value);
    const traced = node && operatorOf(node)?.trace?.(this.#reader(node, value, trail));
    return traced ?? this.#leaf(value, trail);
  }

  /** Reads a small constant that is the same for all tokens: a scalar, or signs. Other constants are tables. */
  #signs(value: string, trail: readonly number[]): Forms | undefined {
    const { scope } = this.shapes;
    if (!scope.initializer(value) && scope.maker(value)?.opType !== 'Constant') return undefined;
    const shape = this.shapes.shapeOf(value);
    if (!shape?.every((dim) => typeof dim === 'number') || countElements(shape) !== countElements(trail))
      return undefined;
    const found = this.constants.constant(value);
    if (!found) return undefined;
    const size = Math.abs(found.data[0]!);
    if (found.data.length > 1 && found.data.some((entry) => Math.abs(entry) !== size)) return undefined;
    return Array.from(found.data, (k) => (k === 0 ? [] : [{ k, factors: [] }]));
  }

  #reader(node: OnnxModelNode, value: string, trail: readonly number[]): TraceReader {
    const name = (input: number): string => node.inputs[input] ?? '';
    return {
      node,
      output: node.outputs.indexOf(value),
      trail,
      list: (attribute, input) => this.shapes.listOf(node, attribute, input),
      shape: (input) => this.shapes.shapeOf(name(input)),
      outputShape: () => this.shapes.shapeOf(value),
      numbers: (input) => this.shapes.numbersOf(name(input)),
      constant: (input) => this.constants.constant(name(input)),
      forms: (input, wide) => {
        if (name(input) === '') throw new NoForm();
        return this.#forms(name(input), wide);
      },
      spend: (steps) => this.work.spend(steps),
    };
  }
}
