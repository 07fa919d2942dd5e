/**
 * Operators that multiply and sum over dimensions.
 *
 * @module
 */
import { rowMajorStrides } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { OnnxModelNode } from '../format/onnx-model.js';
import { broadcastDims } from './elementwise.js';
import { collect, flatten, MAX_TERMS, NoForm, scale, spread, type Term } from './forms.js';
import type { Dim, Operator, Operators, ValueReader } from './operator.js';
import { axisAt, axisSet, FLOATS, INDICES, numberAttribute } from './operator.js';
import { broadcastShape, broadcastStrides, gather, MAX_ELEMENTS, rounded, type Value } from './values.js';

/** A matrix for rotate_half is no larger than a head. Weights of small models are not read to look for one. */
const MAX_MATRIX = 512;

function reduced<T extends Dim>(node: OnnxModelNode, shape: readonly T[], over: ReadonlySet<number>): (T | 1)[] {
  if (numberAttribute(node, 'keepdims', 1) !== 0) return shape.map((dim, axis) => (over.has(axis) ? 1 : dim));
  return shape.filter((_, axis) => !over.has(axis));
}

type Step = (so: number, value: number) => number;

function reduction(start?: number, f?: Step): Operator {
  return {
    dtype: (n) => n.dtype([0], [...FLOATS, ...INDICES]),
    shapes: (n) => {
      const shape = n.shape(0);
      const axes = n.list('axes', 1) ?? (n.node.inputs[1] ? undefined : shape?.map((_, axis) => axis));
      return shape && axes && [reduced(n.node, shape, axisSet(axes, shape.length))];
    },
    compute:
      f &&
      ((n) => {
        const x = n.input(0);
        const axes = n.list('axes', 1) ?? x.shape.map((_, axis) => axis);
        return reduce(n, x, axisSet(axes, x.shape.length), start!, f);
      }),
  };
}

function reduce(n: ValueReader, x: Value, over: ReadonlySet<number>, start: number, f: Step): Value {
  const kept = x.shape.map((dim, axis) => (over.has(axis) ? 1 : dim));
  n.fits(kept);
  const data = new Float64Array(countElements(kept)).fill(start);
  const strides = rowMajorStrides(x.shape);
  const order = [...x.shape.keys()].sort((a, b) => Number(over.has(a)) - Number(over.has(b)));
  const sorted = gather(
    x,
    order.map((axis) => x.shape[axis]!),
    order.map((axis) => strides[axis]!),
  ).data;
  const each = sorted.length / data.length;
  for (let to = 0, at = 0; to < data.length; to++)
    for (const end = at + each; at < end; at++) data[to] = f(data[to]!, sorted[at]!);
  return rounded(x.dtype, reduced(n.node, x.shape, over), data);
}

/** Operators that find the place of the largest or smallest element along an axis. */
const INDEX_ALONG: Operator = {
  dtype: (n) => {
    n.dtype([0], ['f32', 'f64', 'f16', 'i32']);
    return 'i64';
  },
  shapes: (n) => {
    const shape = n.shape(0);
    const axis = shape && axisAt(numberAttribute(n.node, 'axis', 0), shape.length);
    return axis === undefined ? undefined : [reduced(n.node, shape!, new Set([axis]))];
  },
};

export const PRODUCTS: Operators = {
  MatMul: {
    dtype: (n) => n.dtype([0, 1], FLOATS),
    shapes: (n) => {
      const [a, b] = [n.shape(0), n.shape(1)];
      if (!a || !b || a.length < 2 || b.length < 2) return undefined;
      n.check(a.at(-1) === b.at(-2), 'shapes');
      const lead = broadcastDims(n, [a.slice(0, -2), b.slice(0, -2)]);
      return [lead && [...lead, a.at(-2)!, b.at(-1)!]];
    },
    compute: (n) => multiplied(n, n.input(0), n.input(1)),
    // rotate_half may be a product with a matrix of 0, 1 and -1.
    trace: (n) => {
      const shape = n.shape(1);
      if (shape?.length !== 2 || typeof shape[0] !== 'number' || shape[0] > MAX_MATRIX || shape[1] !== n.trail.at(-1))
        return undefined;
      const m = n.constant(1);
      if (!m || m.data.some((entry) => entry !== 0 && Math.abs(entry) !== 1)) return undefined;
      const [rows, columns] = m.shape as [number, number];
      const wide = n.trail.with(-1, rows);
      const source = n.forms(0, wide);
      n.spend(countElements(n.trail) * rows);
      return Array.from({ length: countElements(n.trail) }, (_, at) => {
        const index = spread(n.trail, at);
        const terms: Term[] = [];
        for (let row = 0; row < rows; row++) {
          const k = m.data[row * columns + index.at(-1)!]!;
          if (k !== 0) terms.push(...scale([source[flatten(wide, index.with(-1, row))]!], k)[0]!);
          if (terms.length > MAX_TERMS) throw new NoForm();
        }
        return collect(terms);
      });
    },
  },
  MatMulNBits: {
    dtype: (n) => {
      n.dtype([1], ['u8']);
      return n.dtype([0, 2], FLOATS);
    },
    shapes: (n) => {
      const shape = n.shape(0);
      if (!shape || shape.length === 0) return undefined;
      const [rows, width, bits, block] = ['N', 'K', 'bits', 'block_size'].map((name) =>
        numberAttribute(n.node, name, name === 'bits' ? 4 : 0),
      ) as [number, number, number, number];
      const blocks = Math.ceil(width / block);
      const codes = [rows, blocks, (block * bits) / 8];
      n.check(shape.at(-1) === width && n.shape(1)?.join() === codes.join(), 'B');
      const scales = n.shape(2);
      n.check(scales !== undefined && countElements(scales as number[]) === rows * blocks, 'scales');
      if (n.node.inputs[5]) n.check(n.shape(5)?.join() === `${rows}`, 'bias');
      return [shape.with(-1, numberAttribute(n.node, 'N', 0) || n.fresh(shape.length - 1))];
    },
  },
  Gemm: {
    dtype: (n) => n.dtype([...n.node.inputs.keys()], FLOATS),
    shapes: (n) => {
      const [a, b] = [n.shape(0), n.shape(1)];
      if (a?.length !== 2 || b?.length !== 2) return undefined;
      const flipped = (name: string): boolean => numberAttribute(n.node, name, 0) !== 0;
      const [m, depth] = flipped('transA') ? [a[1]!, a[0]!] : [a[0]!, a[1]!];
      const [k, width] = flipped('transB') ? [b[1]!, b[0]!] : [b[0]!, b[1]!];
      n.check(depth === k && (n.node.inputs[2] === undefined || n.shape(2)?.join() === `${width}`), 'shapes');
      return [[m, width]];
    },
  },
  Einsum: {
    shapes: (n) => {
      const equation = equationOf(n.node);
      if (!equation) return undefined;
      const sizes = new Map<string, Dim>();
      for (const [input, letters] of equation.terms.entries()) {
        const shape = n.shape(input);
        if (shape?.length === letters.length)
          for (const [axis, letter] of [...letters].entries()) sizes.set(letter, shape[axis]!);
      }
      const { out } = equation;
      return [out === undefined ? undefined : [...out].map((letter, axis) => sizes.get(letter) ?? n.fresh(axis))];
    },
    compute: einsum,
  },
  CumSum: {
    data: [0, 1],
    shapes: (n) => [n.shape(0)],
    compute: (n) => {
      const x = n.input(0);
      const given = n.integers(1)[0]!;
      if (numberAttribute(n.node, 'exclusive', 0) !== 0 || numberAttribute(n.node, 'reverse', 0) !== 0)
        n.cannot('runs backwards or exclusive');
      return cumulated(x, given < 0 ? given + x.shape.length : given);
    },
  },
  ReduceMax: reduction(-Infinity, Math.max),
  ReduceMin: reduction(Infinity, Math.min),
  ReduceSum: reduction(0, (so, value) => so + value),
  ReduceMean: reduction(),
  ArgMax: INDEX_ALONG,
  ArgMin: INDEX_ALONG,
};

function multiplied(n: ValueReader, a: Value, b: Value): Value {
  if (a.shape.length < 2 || b.shape.length < 2) n.cannot('has an operand of less than two dimensions');
  const [rows, depth, columns] = [a.shape.at(-2)!, a.shape.at(-1)!, b.shape.at(-1)!];
  const lead = b.shape.at(-2) === depth && broadcastShape([a.shape.slice(0, -2), b.shape.slice(0, -2)]);
  if (!lead) return n.cannot(`multiplies [${a.shape}] by [${b.shape}]`);
  const shape = [...lead, rows, columns];
  n.fits(shape);
  // Dimensions of 0 count as 1, so that no more is read below than there are products.
  const products = [...shape, depth].reduce((product, dim) => product * Math.max(1, dim), 1);
  if (products > 2 * MAX_ELEMENTS) n.cannot('is a large product');
  n.spend(products);
  const dense = (value: Value, last: readonly number[]): Float64Array =>
    gather(value, [...lead, ...last], broadcastStrides(value.shape, [...lead, ...last])).data;
  const [x, y] = [dense(a, [rows, depth]), dense(b, [depth, columns])];
  const data = new Float64Array(countElements(shape));
  for (let l = 0; l < countElements(lead); l++) {
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        let sum = 0;
        for (let i = 0; i < depth; i++)
          sum += x[(l * rows + row) * depth + i]! * y[(l * depth + i) * columns + column]!;
        data[(l * rows + row) * columns + column] = sum;
      }
    }
  }
  return rounded(a.dtype, shape, data);
}

function equationOf(node: OnnxModelNode): { readonly terms: readonly string[]; readonly out?: string } | undefined {
  const equation = node.attributes.get('equation');
  if (equation?.kind !== 'string') return undefined;
  const [left, out] = equation.value.replaceAll(' ', '').split('->');
  return { terms: left!.split(','), out };
}

/** Two operands without repeated letters: exporters multiply inv_freq and positions in this way. */
function einsum(n: ValueReader): Value {
  const { terms = [], out } = equationOf(n.node) ?? {};
  if (terms.length !== 2 || out === undefined || /[^a-zA-Z]/.test(terms.join('') + out))
    return n.cannot('is not a product of two named operands');
  const operands = [n.input(0), n.input(1)];
  const sizes = new Map<string, number>();
  for (const [input, letters] of terms.entries()) {
    if (new Set(letters).size !== letters.length || letters.length !== operands[input]!.shape.length)
      n.cannot('does not fit its operands');
    for (const [axis, letter] of [...letters].entries()) sizes.set(letter, operands[input]!.shape[axis]!);
  }
  if ([...out].some((letter) => !sizes.has(letter))) n.cannot('makes a dimension that no operand has');
  const all = [...out, ...[...sizes.keys()].filter((letter) => !out.includes(letter))];
  const full = all.map((letter) => sizes.get(letter)!);
  n.fits(full);
  const [x, y] = operands.map((operand, input) => {
    const strides = rowMajorStrides(operand.shape);
    const letters = terms[input]!;
    const steps = all.map((letter) => (letters.includes(letter) ? strides[letters.indexOf(letter)]! : 0));
    return gather(operand, full, steps).data;
  });
  const shape = full.slice(0, out.length);
  const summed = countElements(full.slice(out.length));
  const data = new Float64Array(countElements(shape));
  for (const [at, value] of x!.entries()) data[Math.floor(at / summed)]! += value * y![at]!;
  return rounded(operands[0]!.dtype, shape, data);
}

function cumulated(x: Value, axis: number): Value {
  const data = x.data.slice();
  const inner = countElements(x.shape.slice(axis + 1));
  const size = x.shape[axis] ?? 1;
  for (let at = 0; at < data.length; at++) if (Math.floor(at / inner) % size > 0) data[at]! += data[at - inner]!;
  return rounded(x.dtype, x.shape, data);
}
