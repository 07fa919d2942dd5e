/**
 * What each channel of a value is made of: sums of products of channels of other values, traced back through the operators that only move,
 * negate, multiply and add.
 *
 * So the many ways of writing a rotation (slices, splits, stacks, gathers, a sign matrix) all come down to the same sums.
 *
 * @module
 */
import { countElements } from '../core/shape.js';
import type { OnnxModelNode } from '../formats/onnx-model.js';
import type { Evaluation } from './evaluate.js';
import { numberAttribute } from './scope.js';
import { type Shapes, sliceIndices } from './shapes.js';
import type { Work } from './work.js';

/** One channel of a value that is not traced further. */
export interface Factor {
  readonly leaf: string;
  /** Index in the leaf's last dimensions, flat. */
  readonly at: number;
}

/** `k` times the product of the factors. */
export interface Term {
  readonly k: number;
  readonly factors: readonly Factor[];
}

/** The terms of each channel, in row-major order of the last dimensions. */
export type Forms = readonly (readonly Term[])[];

/** Heads are at most this wide here; a hidden dimension is not traced. */
export const MAX_CHANNELS = 1024;
/** A matrix that does rotate_half is no larger than a head; the weights of small models are not read through for it. */
const MAX_MATRIX = 512;
/** A rotation has two terms; a sign matrix makes a few more on the way. */
const MAX_TERMS = 6;
const MAX_FACTORS = 3;
/** A term is compared with others by the names of its factors. */
const STEPS_PER_TERM = 4;
/** Nested further than any exporter goes. */
const MAX_DEPTH = 64;

/** Thrown where a value is no such sum. */
class NoForm extends Error {}

/** Operators that are traced through. */
export const TRACED: ReadonlySet<string> = /* @__PURE__ */ new Set(
  'Identity Cast Dropout Neg Add Sub Mul Div Concat Slice Split Gather Unsqueeze Squeeze Reshape Transpose MatMul'.split(
    ' ',
  ),
);

const TWO_INPUTS: ReadonlySet<string> = /* @__PURE__ */ new Set(['Add', 'Sub', 'Mul', 'Div', 'Gather', 'MatMul']);

/** Traces the values of one graph. */
export class Algebra {
  /** Leaf → the sizes of the dimensions that its channels count. */
  readonly leaves = new Map<string, readonly number[]>();
  private readonly memo = new Map<string, Forms | undefined>();
  private depth = 0;

  /**
   * @param shapes - of the graph
   * @param constants - computes what depends on constants alone
   * @param work - of the search
   * @param stop - a value to take as a leaf; '' for none
   */
  constructor(
    private readonly shapes: Shapes,
    private readonly constants: Evaluation,
    private readonly work: Work,
    private readonly stop: string,
  ) {}

  /**
   * The channels of a value's last dimension.
   *
   * @returns undefined when they are not known, too many, or no such sums
   */
  channels(value: string): Forms | undefined {
    const width = this.shapes.shapeOf(value)?.at(-1);
    if (typeof width !== 'number' || width < 1 || width > MAX_CHANNELS) return undefined;
    try {
      return this.forms(value, [width]);
    } catch (error) {
      this.depth = 0;
      if (error instanceof NoForm) return undefined;
      throw error;
    }
  }

  /** A value as somebody sees it who broadcasts its last dimensions to `trail`. */
  private forms(value: string, trail: readonly number[]): Forms {
    const shape = this.shapes.shapeOf(value);
    if (!shape) return this.leaf(value, trail);
    const skip = trail.length - shape.length;
    const own = trail.map((size, n) => {
      const dim = n < skip ? 1 : shape[n - skip]!;
      if (dim === 1) return 1;
      if (typeof dim === 'number' && dim !== size) throw new NoForm();
      return size;
    });
    const traced = this.own(value, skip > 0 ? own.slice(skip) : own);
    if (own.every((size, n) => size === trail[n])) return traced;
    const count = countElements(trail);
    if (count > MAX_CHANNELS) throw new NoForm();
    return Array.from(
      { length: count },
      (_, n) =>
        traced[
          at(
            own,
            spread(trail, n).map((index, axis) => (own[axis] === 1 ? 0 : index)),
          )
        ]!,
    );
  }

  private own(value: string, trail: readonly number[]): Forms {
    const key = `${trail.join()} ${value}`;
    if (this.memo.has(key)) {
      const known = this.memo.get(key);
      if (!known) throw new NoForm();
      return known;
    }
    if (countElements(trail) > MAX_CHANNELS || this.depth >= MAX_DEPTH) throw new NoForm();
    this.memo.set(key, undefined);
    this.depth++;
    this.work.spend(countElements(trail));
    const forms = this.trace(value, trail);
    this.depth--;
    // A file may declare other shapes than its constants have: then a channel is missing.
    if (forms.length !== countElements(trail) || forms.includes(undefined as never)) throw new NoForm();
    this.work.spend(STEPS_PER_TERM * forms.reduce((sum, terms) => sum + terms.length, 0));
    if (forms.some((terms) => terms.length > MAX_TERMS || terms.some((term) => term.factors.length > MAX_FACTORS)))
      throw new NoForm();
    this.memo.set(key, forms);
    return forms;
  }

  private leaf(value: string, trail: readonly number[]): Forms {
    const known = this.leaves.get(value);
    if (known && countElements(known) !== countElements(trail)) throw new NoForm();
    this.leaves.set(value, trail);
    return Array.from({ length: countElements(trail) }, (_, n) => [{ k: 1, factors: [{ leaf: value, at: n }] }]);
  }

  private trace(value: string, trail: readonly number[]): Forms {
    if (value === this.stop) return this.leaf(value, trail);
    const constant = this.signs(value, trail);
    if (constant) return constant;
    const node = this.shapes.scope.maker(value);
    if (node?.domain !== '' || !TRACED.has(node.opType)) return this.leaf(value, trail);
    return this.through(node, value, trail) ?? this.leaf(value, trail);
  }

  /** A small constant that does not change from token to token: a scalar, or signs. Other constants are tables. */
  private signs(value: string, trail: readonly number[]): Forms | undefined {
    const { scope } = this.shapes;
    const maker = scope.maker(value);
    if (!scope.initializer(value) && maker?.opType !== 'Constant') return undefined;
    const shape = this.shapes.shapeOf(value);
    if (
      !shape ||
      shape.some((dim) => typeof dim !== 'number') ||
      countElements(shape as number[]) !== countElements(trail)
    )
      return undefined;
    const found = this.constants.constant(value);
    if (!found) return undefined;
    const size = Math.abs(found.data[0]!);
    if (found.data.length > 1 && found.data.some((entry) => Math.abs(entry) !== size)) return undefined;
    return Array.from(found.data, (k) => (k === 0 ? [] : [{ k, factors: [] }]));
  }

  /** One operator back; undefined when it does something that is not tracked, so that its output is a leaf. */
  private through(node: OnnxModelNode, value: string, trail: readonly number[]): Forms | undefined {
    const [first, second] = node.inputs;
    if (!first || (!second && TWO_INPUTS.has(node.opType))) return undefined;
    switch (node.opType) {
      case 'Identity':
      case 'Cast':
      case 'Dropout':
        return this.forms(first, trail);
      case 'Neg':
        return scale(this.forms(first, trail), -1);
      case 'Add':
      case 'Sub': {
        const [a, b] = [this.forms(first, trail), this.forms(second!, trail)];
        return sum(a, node.opType === 'Sub' ? scale(b, -1) : b);
      }
      case 'Mul':
        return product(this.forms(first, trail), this.forms(second!, trail));
      case 'Div': {
        const by = this.constants.constant(second!);
        return by?.data.length === 1 && by.data[0] !== 0 ? scale(this.forms(first, trail), 1 / by.data[0]!) : undefined;
      }
      case 'Concat':
        return this.concat(node, trail);
      case 'Slice':
        return this.slice(node, first, trail);
      case 'Split':
        return this.split(node, value, first, trail);
      case 'Gather':
        return this.gather(node, first, second!, trail);
      case 'Unsqueeze':
      case 'Squeeze':
        return this.squeeze(node, first, trail);
      case 'Reshape':
        return this.reshape(value, first, trail);
      case 'Transpose':
        return this.transpose(node, first, trail);
      case 'MatMul':
        return this.matmul(first, second!, trail);
      default:
        return undefined;
    }
  }

  /** An axis as its place among the last dimensions; undefined when it is not one of them. */
  private place(axis: number, rank: number, trail: readonly number[]): number | undefined {
    const place = (axis < 0 ? axis : axis - rank) + trail.length;
    return place >= 0 && place < trail.length ? place : undefined;
  }

  private concat(node: OnnxModelNode, trail: readonly number[]): Forms | undefined {
    const shapes = node.inputs.map((input) => this.shapes.shapeOf(input));
    const rank = shapes.find((shape) => shape)?.length;
    const place = rank === undefined ? undefined : this.place(numberAttribute(node, 'axis', 0), rank, trail);
    if (place === undefined) return undefined;
    const sizes = shapes.map((shape) => shape?.at(place - trail.length));
    // One part of unknown size is what the others leave.
    const known = sizes.reduce<number>((total, size) => total + (typeof size === 'number' ? size : 0), 0);
    if (sizes.filter((size) => typeof size !== 'number').length > 1) return undefined;
    const rest = trail[place]! - known;
    const parts = node.inputs.map((input, n) => {
      const size = sizes[n];
      return { size: typeof size === 'number' ? size : rest, input };
    });
    if (parts.reduce((total, part) => total + part.size, 0) !== trail[place] || parts.some((part) => part.size < 0))
      throw new NoForm();
    const traced = parts
      .filter((part) => part.size > 0)
      .map((part) => ({ ...part, forms: this.forms(part.input, trail.with(place, part.size)) }));
    return Array.from({ length: countElements(trail) }, (_, n) => {
      const index = spread(trail, n);
      let from = index[place]!;
      for (const part of traced) {
        if (from < part.size) return part.forms[at(trail.with(place, part.size), index.with(place, from))]!;
        from -= part.size;
      }
      throw new NoForm();
    });
  }

  private slice(node: OnnxModelNode, input: string, trail: readonly number[]): Forms | undefined {
    const shape = this.shapes.shapeOf(input);
    const [starts, ends, steps] = [
      this.shapes.sliceInput(node, 1),
      this.shapes.sliceInput(node, 2),
      this.shapes.sliceInput(node, 4),
    ];
    const axes = this.shapes.sliceInput(node, 3) ?? starts?.map((_, n) => n);
    if (!shape || !starts || !ends || !axes || (node.inputs[4] && !steps)) return undefined;
    let wide = trail;
    const take = trail.map(() => ({ first: 0, step: 1 }));
    for (const [n, axis] of axes.entries()) {
      const place = this.place(axis, shape.length, trail);
      const step = steps?.[n] ?? 1;
      const dim = shape.at(axis < 0 ? axis : axis - shape.length);
      if (place === undefined) {
        const whole =
          step === 1 && starts[n] === 0 && (ends[n]! >= 2 ** 31 - 1 || (typeof dim === 'number' && ends[n]! >= dim));
        if (!whole) return undefined;
        continue;
      }
      if (typeof dim !== 'number' || step === 0) return undefined;
      const taken = sliceIndices(dim, starts[n]!, ends[n]!, step);
      if (taken.length !== trail[place]) throw new NoForm();
      wide = wide.with(place, dim);
      take[place] = taken;
    }
    return this.pick(input, wide, trail, (index) => index.map((i, axis) => take[axis]!.first + i * take[axis]!.step));
  }

  private split(node: OnnxModelNode, value: string, input: string, trail: readonly number[]): Forms | undefined {
    const shape = this.shapes.shapeOf(input);
    const place = shape && this.place(numberAttribute(node, 'axis', 0), shape.length, trail);
    const sizes = shape && this.shapes.splitSizes(node, shape);
    const which = node.outputs.indexOf(value);
    if (place === undefined || !sizes) return undefined;
    const start = sizes.slice(0, which).reduce((total, size) => total + size, 0);
    const wide = trail.with(
      place,
      sizes.reduce((total, size) => total + size, 0),
    );
    if (sizes[which] !== trail[place]) throw new NoForm();
    return this.pick(input, wide, trail, (index) => index.with(place, index[place]! + start));
  }

  private gather(node: OnnxModelNode, input: string, indices: string, trail: readonly number[]): Forms | undefined {
    const shape = this.shapes.shapeOf(input);
    const rank = this.shapes.shapeOf(indices)?.length;
    const given = this.shapes.numbersOf(indices);
    if (!shape || !given || rank === undefined || rank > 1) return undefined;
    const axis = numberAttribute(node, 'axis', 0);
    const size = shape.at(axis < 0 ? axis : axis - shape.length);
    if (typeof size !== 'number') return undefined;
    const chosen = given.map((index) => (index < 0 ? index + size : index));
    if (chosen.some((index) => index < 0 || index >= size)) throw new NoForm();
    // A scalar takes its axis away: the input has one more of the last dimensions.
    const length = rank === 0 ? trail.length + 1 : trail.length;
    const place = (axis < 0 ? axis : axis - shape.length) + length;
    if (place < 0 || place >= length) return undefined;
    const wide = rank === 0 ? trail.toSpliced(place, 0, size) : trail.with(place, size);
    return this.pick(input, wide, trail, (index) =>
      rank === 0 ? index.toSpliced(place, 0, chosen[0]!) : index.with(place, chosen[index[place]!]!),
    );
  }

  private squeeze(node: OnnxModelNode, input: string, trail: readonly number[]): Forms | undefined {
    const shape = this.shapes.shapeOf(input);
    const axes = this.shapes.axesOf(node);
    if (!shape || !axes) return undefined;
    const unsqueeze = node.opType === 'Unsqueeze';
    const rank = unsqueeze ? shape.length + axes.length : shape.length;
    const places = axes.map((axis) => (axis < 0 ? axis : axis - rank)).sort((a, b) => a - b);
    if (unsqueeze) {
      if (places.some((place) => place + trail.length < 0)) return undefined;
      const gone = new Set(places.map((place) => place + trail.length));
      const inner = trail.filter((_, n) => !gone.has(n));
      return this.forms(input, inner);
    }
    // Each squeezed axis is one more of the last dimensions, if it lies among them.
    let inner = [...trail];
    for (const place of places.toReversed()) {
      const where = inner.length + 1 + place;
      if (where < 0) return undefined;
      if (where === 0) return undefined;
      inner = inner.toSpliced(where, 0, 1);
    }
    return this.forms(input, inner);
  }

  private reshape(value: string, input: string, trail: readonly number[]): Forms | undefined {
    const [from, to] = [this.shapes.shapeOf(input), this.shapes.shapeOf(value)];
    if (!from || !to) return undefined;
    const wanted = countElements(trail);
    let start = from.length;
    let product = 1;
    while (start > 0 && product < wanted) {
      const dim = from[--start]!;
      if (typeof dim !== 'number') return undefined;
      product *= dim;
    }
    if (product !== wanted) return undefined;
    // Dimensions of 1 belong to the side that makes the outer ones alike.
    const outer = to.length - trail.length;
    while (start > outer && from[start - 1] === 1) start--;
    if (start !== outer) return undefined;
    for (let d = 0; d < outer; d++) {
      const [a, b] = [from[d]!, to[d]!];
      if (typeof a === 'number' && typeof b === 'number' && a !== b) return undefined;
    }
    return this.forms(input, from.slice(start) as number[]);
  }

  private transpose(node: OnnxModelNode, input: string, trail: readonly number[]): Forms | undefined {
    const order = node.attributes.get('perm');
    if (order?.kind !== 'ints') return undefined;
    const start = order.value.length - trail.length;
    const inner = order.value.slice(start).map((axis) => axis - start);
    if (inner.some((axis) => axis < 0) || order.value.slice(0, start).some((axis, n) => axis !== n)) return undefined;
    const wide = new Array<number>(trail.length);
    for (const [n, axis] of inner.entries()) wide[axis] = trail[n]!;
    return this.pick(input, wide, trail, (index) => {
      const moved = new Array<number>(index.length);
      for (const [n, axis] of inner.entries()) moved[axis] = index[n]!;
      return moved;
    });
  }

  /** rotate_half as a matrix of 0, 1 and -1. */
  private matmul(input: string, matrix: string, trail: readonly number[]): Forms | undefined {
    const shape = this.shapes.shapeOf(matrix);
    if (shape?.length !== 2 || typeof shape[0] !== 'number' || shape[0] > MAX_MATRIX || shape[1] !== trail.at(-1))
      return undefined;
    const m = this.constants.constant(matrix);
    if (!m || m.data.some((entry) => entry !== 0 && Math.abs(entry) !== 1)) return undefined;
    const [rows, columns] = m.shape as [number, number];
    const wide = trail.with(-1, rows);
    const source = this.forms(input, wide);
    this.work.spend(countElements(trail) * rows);
    return Array.from({ length: countElements(trail) }, (_, n) => {
      const index = spread(trail, n);
      const terms: Term[] = [];
      for (let row = 0; row < rows; row++) {
        const k = m.data[row * columns + index.at(-1)!]!;
        if (k !== 0) terms.push(...scale([source[at(wide, index.with(-1, row))]!], k)[0]!);
        if (terms.length > MAX_TERMS) throw new NoForm();
      }
      return collect(terms);
    });
  }

  private pick(
    input: string,
    wide: readonly number[],
    trail: readonly number[],
    move: (index: readonly number[]) => readonly number[],
  ): Forms {
    const source = this.forms(input, wide);
    return Array.from({ length: countElements(trail) }, (_, n) => source[at(wide, move(spread(trail, n)))]!);
  }
}

/** A flat index as one index for each dimension. */
function spread(sizes: readonly number[], flat: number): number[] {
  const index = new Array<number>(sizes.length);
  for (let d = sizes.length - 1; d >= 0; d--) {
    index[d] = flat % sizes[d]!;
    flat = Math.floor(flat / sizes[d]!);
  }
  return index;
}

function at(sizes: readonly number[], index: readonly number[]): number {
  let flat = 0;
  for (const [d, size] of sizes.entries()) flat = flat * size + index[d]!;
  return flat;
}

function scale(forms: Forms, k: number): Forms {
  return forms.map((terms) => terms.map((term) => ({ k: term.k * k, factors: term.factors })));
}

function sum(a: Forms, b: Forms): Forms {
  return a.map((terms, n) => collect([...terms, ...b[n]!]));
}

function product(a: Forms, b: Forms): Forms {
  return a.map((terms, n) => {
    if (terms.length * b[n]!.length > MAX_TERMS) throw new NoForm();
    return collect(terms.flatMap((x) => b[n]!.map((y) => ({ k: x.k * y.k, factors: [...x.factors, ...y.factors] }))));
  });
}

/** Joins terms of the same factors; those that cancel go. */
function collect(terms: readonly Term[]): readonly Term[] {
  if (terms.length < 2) return terms;
  const joined = new Map<string, Term>();
  for (const term of terms) {
    const key = term.factors
      .map(({ leaf, at: index }) => `${index} ${leaf}`)
      .sort()
      .join('\n');
    const known = joined.get(key);
    joined.set(key, known ? { k: known.k + term.k, factors: term.factors } : term);
  }
  return [...joined.values()].filter((term) => term.k !== 0);
}
