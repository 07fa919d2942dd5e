/**
 * Operators that compute each element from the elements at the same place.
 *
 * @module
 */

import { product, scale, sum } from './forms.js';
import type { Dim, Operator, Operators, Shape, ShapeReader, ValueReader } from './operator.js';
import { FLOATS, NUMBERS, numberAttribute, sameShape } from './operator.js';
import type { Value, ValueDtype } from './values.js';
import { broadcastShape, castTo, isIntegral, rounded, spreadTo, valueDtype } from './values.js';

const floats: Operator['dtype'] = (n) => n.dtype([0], FLOATS);

/** Operators with one input that are computed here. */
function unary(f: (x: number) => number): Operator {
  return {
    shapes: sameShape,
    dtype: floats,
    compute: (n) => {
      const x = n.input(0);
      return rounded(x.dtype, x.shape, x.data.map(f));
    },
  };
}

/** The result is the input, perhaps in another dtype. */
const COPY: Operator = { shapes: sameShape, compute: (n) => n.part(0), trace: (n) => n.forms(0, n.trail) };

/**
 * Broadcasts shapes like numpy. In a file from elsewhere a number above 1 wins over a name. If one input is known to be
 * wide, inputs of unknown shape are taken for its tables.
 */
export function broadcastDims(n: ShapeReader, shapes: readonly (Shape | undefined)[]): Shape | undefined {
  if (shapes.length === 0 || shapes.some((shape) => shape === undefined)) return undefined;
  const rank = Math.max(...shapes.map((shape) => shape!.length));
  return Array.from({ length: rank }, (_, axis) => {
    let best: Dim = 1;
    for (const shape of shapes) {
      const dim = shape![axis - rank + shape!.length];
      if (dim === undefined || dim === 1) continue;
      n.check(best === 1 || best === dim, 'shapes');
      if (best === 1 || (typeof best === 'string' && typeof dim === 'number')) best = dim;
    }
    return best;
  });
}

function broadcast(n: ShapeReader): readonly (Shape | undefined)[] {
  const shapes = n.node.inputs.flatMap((name, input) => (name === '' ? [] : [n.shape(input)]));
  // Tables are broadcast to x, not x to them. So a product or sum is as wide as its widest side.
  const wide = shapes.some((shape) => shape && shape.length >= 3 && shape.at(-1) !== 1);
  return [broadcastDims(n, wide ? shapes.filter((shape) => shape) : shapes)];
}

type Combination = (a: number, b: number, integer: boolean) => number;

function combine(n: ValueReader, a: Value, b: Value, f: Combination, dtype?: 'bool'): Value {
  const shape = broadcastValues(n, [a, b]);
  const [x, y] = [spreadTo(a, shape).data, spreadTo(b, shape).data];
  const integer = isIntegral(a.dtype);
  const data = x.map((value, at) => f(value, y[at]!, integer));
  return rounded(dtype ?? a.dtype, shape, data);
}

/** Returns the shape to which values broadcast, and counts its elements. */
export function broadcastValues(n: ValueReader, values: readonly Pick<Value, 'shape'>[]): number[] {
  const shapes = values.map((value) => value.shape);
  const shape = broadcastShape(shapes) ?? n.cannot(`cannot broadcast ${shapes.map((one) => `[${one}]`).join(' and ')}`);
  n.fits(shape);
  return shape;
}

function fold(n: ValueReader, f: Combination): Value {
  let result = n.input(0);
  for (let input = 1; input < n.node.inputs.length; input++) result = combine(n, result, n.input(input), f);
  return result;
}

function binary(f: Combination, more: Operator = {}): Operator {
  return {
    shapes: broadcast,
    dtype: (n) => n.dtype([0, 1], NUMBERS),
    compute: (n) => fold(n, f),
    positions: 'one-by-one',
    ...more,
  };
}

/** Returns the dtype bool, for inputs of these dtypes. */
function truth(inputs: readonly number[], allowed: readonly ValueDtype[]): Operator['dtype'] {
  return (n) => {
    n.dtype(inputs, allowed);
    return 'bool';
  };
}

/** Does integer arithmetic on the entries of shapes. `f` returns undefined for an unknown result. */
function entrywise(f: (a: Dim, b: Dim) => Dim | undefined): Operator['content'] {
  return (n) => {
    const [a, b] = [n.content(0), n.content(1)];
    if (!a || !b || (a.length !== b.length && a.length !== 1 && b.length !== 1)) return undefined;
    return Array.from(
      { length: Math.max(a.length, b.length) },
      (_, at) => f(a[a.length === 1 ? 0 : at]!, b[b.length === 1 ? 0 : at]!) ?? unknownEntry(n, at),
    );
  };
}

function unknownEntry(n: ShapeReader, at: number): string {
  return `${n.node.outputs[0]}[${at}]`;
}

/** Applies `f` to two numbers. A name stays if the other side changes nothing. */
function dims(f: (a: number, b: number) => number | undefined, neutral: number, commutes = false) {
  return (a: Dim, b: Dim): Dim | undefined => {
    if (typeof a === 'number' && typeof b === 'number') return f(a, b);
    if (b === neutral) return a;
    return commutes && a === neutral ? b : undefined;
  };
}

function compare(f: (a: number, b: number) => boolean, more: Operator = {}): Operator {
  return {
    shapes: broadcast,
    dtype: truth([0, 1], NUMBERS),
    compute: (n) => combine(n, n.input(0), n.input(1), (a, b) => Number(f(a, b)), 'bool'),
    ...more,
  };
}

const logical: Operator = { dtype: truth([0, 1], ['bool']) };
const flag: Operator = { shapes: sameShape, dtype: truth([0], FLOATS) };
/** An operator that is not computed here. */
const activation: Operator = { shapes: sameShape, dtype: floats };

/** The remainder has the sign of the divisor, as in Python; for floats it has the sign of the dividend. */
const modulo: Combination = (a, b, integer) => (integer ? a - b * Math.floor(a / b) : a % b);

export const ELEMENTWISE: Operators = {
  Identity: { ...COPY, content: (n) => n.content(0), positions: 'same', cost: 'view' },
  Dropout: COPY,
  Cast: {
    shapes: sameShape,
    content: (n) => ([6, 7].includes(numberAttribute(n.node, 'to', 0)) ? n.content(0) : undefined),
    dtype: (n) => valueDtype(numberAttribute(n.node, 'to', 1)),
    compute: (n) => {
      const to = numberAttribute(n.node, 'to', 0);
      return castTo(n.input(0), valueDtype(to) ?? n.cannot(`casts to data type ${to}`));
    },
    trace: COPY.trace,
    positions: 'same',
  },
  CastLike: { shapes: sameShape, compute: (n) => castTo(n.input(0), n.input(1).dtype) },

  Neg: {
    ...unary((x) => -x),
    dtype: (n) => n.dtype([0], [...FLOATS, 'i64', 'i32']),
    content: (n) => n.numbers(0)?.map((entry) => -entry),
    trace: (n) => scale(n.forms(0, n.trail), -1),
  },
  Cos: unary(Math.cos),
  Sin: unary(Math.sin),
  Exp: unary(Math.exp),
  Log: unary(Math.log),
  Sqrt: unary(Math.sqrt),
  Reciprocal: unary((x) => 1 / x),
  Abs: unary(Math.abs),
  Floor: unary(Math.floor),
  Ceil: unary(Math.ceil),
  // Halves round to the even neighbour.
  Round: unary((x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x))),
  Clip: {
    shapes: sameShape,
    compute: (n) => {
      const x = n.input(0);
      // The bounds are attributes up to opset 10, and inputs since then.
      const low = n.has(1) ? n.input(1).data[0]! : numberAttribute(n.node, 'min', -Infinity);
      const high = n.has(2) ? n.input(2).data[0]! : numberAttribute(n.node, 'max', Infinity);
      return { ...x, data: x.data.map((value) => Math.min(high, Math.max(low, value))) };
    },
    positions: 'one-by-one',
  },

  Add: binary((a, b) => a + b, {
    content: entrywise(dims((a, b) => a + b, 0)),
    trace: (n) => sum(n.forms(0, n.trail), n.forms(1, n.trail)),
  }),
  Sub: binary((a, b) => a - b, {
    content: entrywise(dims((a, b) => a - b, 0)),
    trace: (n) => sum(n.forms(0, n.trail), scale(n.forms(1, n.trail), -1)),
  }),
  Mul: binary((a, b) => a * b, {
    content: entrywise(dims((a, b) => a * b, 1, true)),
    trace: (n) => product(n.forms(0, n.trail), n.forms(1, n.trail)),
  }),
  Div: binary((a, b, integer) => (integer ? Math.trunc(a / b) : a / b), {
    content: entrywise(dims((a, b) => (b === 0 ? undefined : Math.trunc(a / b)), 1)),
    trace: (n) => {
      const by = n.constant(1);
      return by?.data.length === 1 && by.data[0] !== 0 ? scale(n.forms(0, n.trail), 1 / by.data[0]!) : undefined;
    },
  }),
  Pow: binary((a, b) => a ** b, { positions: undefined }),
  Min: binary((a, b) => Math.min(a, b), { content: entrywise(dims((a, b) => Math.min(a, b), Infinity)) }),
  Max: binary((a, b) => Math.max(a, b)),
  Mod: binary(modulo, {
    // With fmod the remainder has the sign of the dividend, as in C.
    compute: (n) => fold(n, numberAttribute(n.node, 'fmod', 0) !== 0 ? (a, b) => a % b : modulo),
  }),
  Sum: { shapes: broadcast },
  PRelu: { shapes: broadcast },

  Equal: compare((a, b) => a === b, {
    // Graphs look for the -1 of an Expand in this way. A dimension is never negative.
    content: (n) => {
      const [a, b] = [n.content(0), n.content(1)];
      if (!a || !b || a.length !== b.length) return undefined;
      return a.map((x, at) => {
        const y = b[at]!;
        if (typeof x === 'number' && typeof y === 'number') return Number(x === y);
        return (typeof x === 'number' && x < 0) || (typeof y === 'number' && y < 0) ? 0 : unknownEntry(n, at);
      });
    },
  }),
  Greater: compare((a, b) => a > b),
  Less: compare((a, b) => a < b),
  GreaterOrEqual: compare((a, b) => a >= b),
  LessOrEqual: compare((a, b) => a <= b),
  And: compare((a, b) => a !== 0 && b !== 0, logical),
  Or: compare((a, b) => a !== 0 || b !== 0, logical),
  Xor: { shapes: broadcast, ...logical },
  Not: {
    shapes: sameShape,
    dtype: () => 'bool',
    compute: (n) => {
      const x = n.input(0);
      return { ...x, data: x.data.map((value) => Number(value === 0)) };
    },
  },
  IsNaN: flag,
  IsInf: flag,
  Where: {
    shapes: broadcast,
    content: (n) => {
      const [test, yes, no] = [n.content(0), n.content(1), n.content(2)];
      if (!test || yes?.length !== test.length || no?.length !== test.length) return undefined;
      return test.map((entry, at) => (entry === 1 ? yes[at]! : entry === 0 ? no[at]! : unknownEntry(n, at)));
    },
    dtype: (n) => {
      n.dtype([0], ['bool']);
      return n.dtype([1, 2], NUMBERS);
    },
    compute: (n) => {
      const values = [n.input(0), n.input(1), n.input(2)] as const;
      const shape = broadcastValues(n, values);
      const [test, yes, no] = values.map((value) => spreadTo(value, shape).data) as Float64Array[];
      const data = test!.map((flagged, at) => (flagged !== 0 ? yes![at]! : no![at]!));
      return { dtype: values[1].dtype, shape, data };
    },
    data: [1, 3],
  },

  Tanh: activation,
  Sigmoid: activation,
  Relu: activation,
  Erf: activation,
  Gelu: activation,
  QuickGelu: activation,
  FastGelu: activation,
  BiasGelu: activation,
  Softmax: activation,
};
