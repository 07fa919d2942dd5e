/**
 * Computes small parts of a graph: from positions to cos and sin, as the graph's own types round.
 *
 * Only what exporters put between positions and tables is known here. It is no runtime: the rotation itself runs on a backend.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/
 */
import { type Dtype, isFloat, roundTo } from '../core/dtypes.js';
import { RopewalkError } from '../core/errors.js';
import { countElements, rowMajorStrides } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { DTYPE_OF } from '../formats/onnx.js';
import type { OnnxModelNode, OnnxTensor } from '../formats/onnx-model.js';
import { constantOfNode, intsAttribute, numberAttribute, Scope } from './scope.js';
import { MAX_RANK, Shapes, sliceIndices } from './shapes.js';
import { CannotEvaluate, type Work } from './work.js';

/** A tensor of numbers. bool is 0 and 1; i64 is exact up to 2^53. */
export interface Value {
  readonly dtype: Dtype | 'bool';
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/** All results of one evaluation together: 2^27 numbers are 1 GiB. Tables of 2^20 positions × 64 fit. */
const MAX_ELEMENTS = 2 ** 27;
/** Shapes, axes and sizes have fewer entries than this; a longer vector is none of them. */
const MAX_INTS = 1024;
/** Longer ways from an input to a table than this are none. */
const MAX_DEPTH = 256;

/** Branches in branches deeper than this are not computed; one that reads its own result has no end. */
const MAX_BRANCHES = 16;

/** TensorProto.DataType of bool. */
const BOOL = 9;

/** What an evaluation starts from. */
export interface Given {
  /** By name of the value, input or not. */
  readonly values: ReadonlyMap<string, Value>;
  /** Sizes of the shapes' names. */
  readonly dims: ReadonlyMap<string, number>;
  /** A Slice whose end cannot be computed takes everything: caches are cut to the length in use before positions choose rows. */
  readonly wholeCaches: boolean;
}

/** Computes values of one graph, each once. */
export class Evaluation {
  private readonly done = new Map<string, Value>();
  /** Values that {@link constant} asked for in vain. */
  private readonly failed = new Set<string>();
  private elements = 0;
  private readonly counted = new WeakSet<Float64Array>();
  private depth = 0;
  private branches = 0;

  constructor(
    readonly scope: Scope,
    readonly shapes: Shapes,
    readonly given: Given,
    readonly work: Work,
  ) {}

  /**
   * Computes a value.
   *
   * @throws {CannotEvaluate} when something is missing, unknown or too large
   */
  value(name: string): Value {
    const known = this.given.values.get(name) ?? this.done.get(name);
    if (known) return known;
    const initializer = this.scope.initializer(name);
    if (initializer) return this.keep(name, this.count(fromFile(initializer, this.work)));
    const maker = this.scope.maker(name);
    if (!maker) {
      throw new CannotEvaluate(
        this.scope.graphInput(name) ? `the graph's input ${name} is not given` : `nothing makes ${name}`,
        name,
      );
    }
    if (this.depth >= MAX_DEPTH) throw new CannotEvaluate(`more than ${MAX_DEPTH} operators lead to it`);
    this.depth++;
    let outputs: readonly Value[];
    try {
      outputs = this.run(maker);
    } finally {
      this.depth--;
    }
    for (const [n, output] of maker.outputs.entries()) if (outputs[n]) this.keep(output, this.count(outputs[n]));
    return this.done.get(name) ?? cannot(maker, `has no output ${name}`);
  }

  /** A value that depends on constants alone; undefined when it does not, or is too much. */
  constant(name: string): Value | undefined {
    if (this.failed.has(name)) return undefined;
    try {
      return this.value(name);
    } catch (error) {
      if (error instanceof CannotEvaluate) {
        this.failed.add(name);
        return undefined;
      }
      throw error;
    }
  }

  private keep(name: string, value: Value): Value {
    this.done.set(name, value);
    return value;
  }

  /** Views share their elements, which count once. */
  private count(value: Value): Value {
    checkSizes(value.shape);
    if (!this.counted.has(value.data)) this.room(value.data.length);
    this.counted.add(value.data);
    return value;
  }

  private room(elements: number): void {
    this.elements += elements;
    if (!(this.elements <= MAX_ELEMENTS)) throw new CannotEvaluate(`it takes more than ${MAX_ELEMENTS} numbers`);
  }

  private shapeOf(name: string): readonly number[] {
    const known = this.given.values.get(name) ?? this.done.get(name);
    if (known) return known.shape;
    const dims = this.shapes.shapeOf(name)?.map((dim) => (typeof dim === 'number' ? dim : this.given.dims.get(dim)));
    if (dims?.every((dim) => dim !== undefined)) return dims as number[];
    if (this.scope.maker(name)) return this.value(name).shape;
    throw new CannotEvaluate(`the shape of ${name} is not known`, name);
  }

  private run(node: OnnxModelNode): readonly Value[] {
    if (node.domain !== '') cannot(node, `of domain ${node.domain} is not computed here`);
    const input = (n: number): Value => {
      const name = node.inputs[n];
      const value = name ? this.value(name) : cannot(node, `has no input ${n}`);
      // What an operator writes is counted by fits; what it reads, here.
      if (!READS_PARTS.has(node.opType)) this.work.spend(value.data.length);
      return value;
    };
    const has = (n: number): boolean => (node.inputs[n] ?? '') !== '';
    const ints = (n: number): readonly number[] => {
      const { data } = input(n);
      return data.length <= MAX_INTS ? [...data] : cannot(node, `has more than ${MAX_INTS} sizes`);
    };
    const one = this.elementwise(node, input);
    if (one) return [one];
    const axisOf = (rank: number, missing: number): number => {
      const given = numberAttribute(node, 'axis', missing);
      const axis = given < 0 ? given + rank : given;
      return axis >= 0 && axis < rank ? axis : cannot(node, `has axis ${given} of ${rank}`);
    };
    switch (node.opType) {
      case 'Constant': {
        const constant = constantOfNode(node) ?? cannot(node, 'has no value that is a tensor');
        if ('values' in constant)
          return [{ dtype: constant.dtype, shape: constant.shape, data: Float64Array.from(constant.values) }];
        return [fromFile(constant, this.work)];
      }
      case 'Shape': {
        const shape = this.shapeOf(node.inputs[0] ?? '');
        return [vector(shape.slice(numberAttribute(node, 'start', 0), numberAttribute(node, 'end', undefined)))];
      }
      case 'Size':
        return [{ dtype: 'i64', shape: [], data: Float64Array.of(countElements(this.shapeOf(node.inputs[0] ?? ''))) }];
      case 'Reshape':
        return [reshape(node, input(0), ints(1))];
      case 'Flatten': {
        const x = input(0);
        const axis = numberAttribute(node, 'axis', 1);
        const lead = countElements(x.shape.slice(0, axis));
        return [{ ...x, shape: [lead, lead === 0 ? 0 : x.data.length / lead] }];
      }
      case 'Unsqueeze':
      case 'Squeeze':
        return [this.squeeze(node, input(0), intsAttribute(node, 'axes') ?? (has(1) ? ints(1) : undefined))];
      case 'Transpose': {
        const x = input(0);
        const order = intsAttribute(node, 'perm') ?? x.shape.map((_, axis) => x.shape.length - 1 - axis);
        if ([...order].sort((a, b) => a - b).some((axis, n) => axis !== n) || order.length !== x.shape.length)
          cannot(node, 'has a perm that is none');
        const strides = rowMajorStrides(x.shape);
        return [
          gather(
            x,
            order.map((axis) => x.shape[axis]!),
            order.map((axis) => strides[axis]!),
          ),
        ];
      }
      case 'Concat': {
        const parts = node.inputs.map((_, n) => input(n));
        if (parts.length === 0) cannot(node, 'has no inputs');
        this.fits([parts.reduce((sum, part) => sum + part.data.length, 0)]);
        return [concat(node, parts, axisOf(parts[0]!.shape.length, 0))];
      }
      case 'Slice':
        return [this.slice(node, input(0), (n) => (has(n) ? ints(n) : undefined))];
      case 'Split': {
        const x = input(0);
        const axis = axisOf(x.shape.length, 0);
        const sizes =
          intsAttribute(node, 'split') ??
          (has(1) ? ints(1) : this.shapes.splitSizes(node, x.shape)) ??
          cannot(node, 'has no sizes');
        let start = 0;
        return sizes.map((size) => {
          if (!(size >= 0) || start + size > x.shape[axis]!) cannot(node, 'has sizes past the dimension');
          start += size;
          return this.sliceAxis(x, axis, { first: start - size, step: 1, length: size });
        });
      }
      case 'Gather':
        return [this.gatherAxis(input(0), input(1), axisOf(input(0).shape.length, 0))];
      case 'Expand': {
        const x = input(0);
        const shape = broadcastShape(node, [x.shape, ints(1)]);
        this.fits(shape);
        return [gather(x, shape, broadcastStrides(x.shape, shape))];
      }
      case 'Tile': {
        const [x, repeats] = [input(0), ints(1)];
        const shape = x.shape.map((dim, axis) => dim * (repeats[axis] ?? 1));
        this.fits(shape);
        return [tile(x, shape)];
      }
      case 'Range': {
        const [start, limit, delta] = [input(0), input(1), input(2)];
        const count = Math.max(0, Math.ceil((limit.data[0]! - start.data[0]!) / delta.data[0]!));
        this.fits([count]);
        return [
          rounded(
            start.dtype,
            [count],
            Float64Array.from({ length: count }, (_, n) => start.data[0]! + n * delta.data[0]!),
          ),
        ];
      }
      case 'ConstantOfShape': {
        const shape = ints(0);
        this.fits(shape);
        const value = node.attributes.get('value');
        const fill = value?.kind === 'tensor' ? fromFile(value.value, this.work) : undefined;
        return [
          { dtype: fill?.dtype ?? 'f32', shape, data: new Float64Array(countElements(shape)).fill(fill?.data[0] ?? 0) },
        ];
      }
      case 'MatMul':
        return [this.matmul(node, input(0), input(1))];
      case 'Einsum':
        return [this.einsum(node, input)];
      case 'CumSum': {
        const x = input(0);
        const given = ints(1)[0]!;
        if (numberAttribute(node, 'exclusive', 0) !== 0 || numberAttribute(node, 'reverse', 0) !== 0)
          cannot(node, 'runs backwards or exclusive');
        return [cumulate(x, given < 0 ? given + x.shape.length : given)];
      }
      case 'ReduceMax':
      case 'ReduceMin':
      case 'ReduceSum':
        return [this.reduce(node, input(0), intsAttribute(node, 'axes') ?? (has(1) ? ints(1) : undefined))];
      case 'ScatterND':
        return [scatterNd(node, input(0), input(1), input(2))];
      case 'If':
        return this.branch(node, input(0).data[0] !== 0 ? 'then_branch' : 'else_branch');
      default:
        return cannot(node, 'is not computed here');
    }
  }

  /**
   * Counts the elements of a shape before memory is taken for them.
   *
   * @throws {CannotEvaluate} when it is no shape, or too large
   */
  fits(shape: readonly number[]): void {
    checkSizes(shape);
    if (this.elements + countElements(shape) > MAX_ELEMENTS)
      throw new CannotEvaluate(`it takes more than ${MAX_ELEMENTS} numbers`);
    this.work.spend(countElements(shape));
  }

  private sliceAxis(x: Value, axis: number, taken: { first: number; step: number; length: number }): Value {
    if (taken.first === 0 && taken.step === 1 && taken.length === x.shape[axis]) return x;
    this.fits(x.shape.with(axis, taken.length));
    return sliceAxis(x, axis, taken);
  }

  private elementwise(node: OnnxModelNode, input: (n: number) => Value): Value | undefined {
    const unary = UNARY[node.opType];
    if (unary) {
      const x = input(0);
      return rounded(x.dtype, x.shape, x.data.map(unary));
    }
    // With fmod the remainder has the sign of the dividend, as in C.
    const binary = node.opType === 'Mod' && numberAttribute(node, 'fmod', 0) !== 0 ? remainder : BINARY[node.opType];
    if (binary) {
      let result = input(0);
      for (let n = 1; n < node.inputs.length; n++) result = this.combine(node, result, input(n), binary);
      return result;
    }
    const compare = COMPARE[node.opType];
    if (compare) return { ...this.combine(node, input(0), input(1), (a, b) => Number(compare(a, b)), 'bool') };
    switch (node.opType) {
      case 'Identity':
      case 'Dropout':
        return input(0);
      case 'Not':
        return { ...input(0), data: input(0).data.map((x) => Number(x === 0)) };
      case 'Cast':
        return cast(node, input(0), numberAttribute(node, 'to', 0));
      case 'CastLike':
        return castTo(input(0), input(1).dtype);
      case 'Where': {
        const shape = broadcastShape(node, [input(0).shape, input(1).shape, input(2).shape]);
        this.fits(shape);
        const [test, yes, no] = [0, 1, 2].map(
          (n) => gather(input(n), shape, broadcastStrides(input(n).shape, shape)).data,
        );
        return { dtype: input(1).dtype, shape, data: test!.map((flag, n) => (flag !== 0 ? yes![n]! : no![n]!)) };
      }
      case 'Clip': {
        const x = input(0);
        // Attributes up to opset 10, inputs since.
        const low = node.inputs[1] ? input(1).data[0]! : numberAttribute(node, 'min', -Infinity);
        const high = node.inputs[2] ? input(2).data[0]! : numberAttribute(node, 'max', Infinity);
        return { ...x, data: x.data.map((value) => Math.min(high, Math.max(low, value))) };
      }
      default:
        return undefined;
    }
  }

  private combine(
    node: OnnxModelNode,
    a: Value,
    b: Value,
    f: (a: number, b: number, integer: boolean) => number,
    dtype?: 'bool',
  ): Value {
    const shape = broadcastShape(node, [a.shape, b.shape]);
    this.fits(shape);
    const [x, y] = [a, b].map((part) => gather(part, shape, broadcastStrides(part.shape, shape)).data);
    const integer = a.dtype === 'bool' || !isFloat(a.dtype);
    return rounded(
      dtype ?? a.dtype,
      shape,
      x!.map((value, n) => f(value, y![n]!, integer)),
    );
  }

  private squeeze(node: OnnxModelNode, x: Value, axes: readonly number[] | undefined): Value {
    if (node.opType === 'Squeeze') {
      const gone = new Set(
        (axes ?? x.shape.flatMap((dim, axis) => (dim === 1 ? [axis] : []))).map((axis) =>
          axis < 0 ? axis + x.shape.length : axis,
        ),
      );
      const shape = x.shape.filter((_, axis) => !gone.has(axis));
      return countElements(shape) === x.data.length
        ? { ...x, shape }
        : cannot(node, 'takes a dimension away that is not 1');
    }
    const rank = x.shape.length + (axes?.length ?? cannot(node, 'has no axes'));
    const fresh = new Set(axes!.map((axis) => (axis < 0 ? axis + rank : axis)));
    let at = 0;
    return { ...x, shape: Array.from({ length: rank }, (_, axis) => (fresh.has(axis) ? 1 : (x.shape[at++] ?? 1))) };
  }

  private slice(node: OnnxModelNode, x: Value, read: (n: number) => readonly number[] | undefined): Value {
    const attribute = (name: string, n: number): readonly number[] | undefined => intsAttribute(node, name) ?? read(n);
    const starts = attribute('starts', 1) ?? cannot(node, 'has no starts');
    let ends: readonly number[];
    try {
      ends = attribute('ends', 2) ?? cannot(node, 'has no ends');
    } catch (error) {
      if (!(error instanceof CannotEvaluate) || !this.given.wholeCaches) throw error;
      ends = starts.map(() => Number.MAX_SAFE_INTEGER);
    }
    const axes = attribute('axes', 3) ?? starts.map((_, n) => n);
    const steps = attribute('steps', 4) ?? starts.map(() => 1);
    let result = x;
    for (const [n, given] of axes.entries()) {
      const axis = given < 0 ? given + x.shape.length : given;
      const size = x.shape[axis];
      if (size === undefined || steps[n] === 0) cannot(node, 'has an axis or a step that is none');
      result = this.sliceAxis(result, axis, sliceIndices(size, starts[n]!, ends[n]!, steps[n]!));
    }
    return result;
  }

  private gatherAxis(x: Value, indices: Value, axis: number): Value {
    const size = x.shape[axis]!;
    const shape = [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)];
    this.fits(shape);
    const inner = countElements(x.shape.slice(axis + 1));
    const outer = countElements(x.shape.slice(0, axis));
    const data = new Float64Array(countElements(shape));
    for (let o = 0; o < outer; o++) {
      for (const [n, given] of indices.data.entries()) {
        const at = given < 0 ? given + size : given;
        if (!(at >= 0 && at < size))
          throw new CannotEvaluate(`position ${given} lies outside the table of ${size} rows`);
        data.set(
          x.data.subarray((o * size + at) * inner, (o * size + at + 1) * inner),
          (o * indices.data.length + n) * inner,
        );
      }
    }
    return { dtype: x.dtype, shape, data };
  }

  private matmul(node: OnnxModelNode, a: Value, b: Value): Value {
    if (a.shape.length < 2 || b.shape.length < 2) cannot(node, 'has an operand of less than two dimensions');
    const [m, k, n] = [a.shape.at(-2)!, a.shape.at(-1)!, b.shape.at(-1)!];
    if (b.shape.at(-2) !== k) cannot(node, `multiplies [${a.shape}] by [${b.shape}]`);
    const lead = broadcastShape(node, [a.shape.slice(0, -2), b.shape.slice(0, -2)]);
    const shape = [...lead, m, n];
    this.fits(shape);
    // Each product, with m, n and k of 0 as 1: what is gathered below is no larger.
    const products = [...shape, k].reduce((product, dim) => product * Math.max(1, dim), 1);
    if (products > 2 * MAX_ELEMENTS) cannot(node, 'is a large product');
    this.work.spend(products);
    const [x, y] = [
      gather(a, [...lead, m, k], broadcastStrides(a.shape, [...lead, m, k])).data,
      gather(b, [...lead, k, n], broadcastStrides(b.shape, [...lead, k, n])).data,
    ];
    const data = new Float64Array(countElements(shape));
    for (let l = 0; l < countElements(lead); l++) {
      for (let row = 0; row < m; row++) {
        for (let column = 0; column < n; column++) {
          let sum = 0;
          for (let i = 0; i < k; i++) sum += x[(l * m + row) * k + i]! * y[(l * k + i) * n + column]!;
          data[(l * m + row) * n + column] = sum;
        }
      }
    }
    return rounded(a.dtype, shape, data);
  }

  /** Two operands, no repeated letters in one: how inv_freq and positions meet. */
  private einsum(node: OnnxModelNode, input: (n: number) => Value): Value {
    const equation = node.attributes.get('equation');
    const [left, out] = equation?.kind === 'string' ? equation.value.replaceAll(' ', '').split('->') : [];
    const terms = left?.split(',') ?? [];
    if (terms.length !== 2 || out === undefined || /[^a-zA-Z]/.test(terms.join('') + out))
      cannot(node, 'is not a product of two named operands');
    const operands = [input(0), input(1)];
    const sizes = new Map<string, number>();
    for (const [n, letters] of terms.entries()) {
      if (new Set(letters).size !== letters.length || letters.length !== operands[n]!.shape.length)
        cannot(node, 'does not fit its operands');
      for (const [axis, letter] of [...letters].entries()) sizes.set(letter, operands[n]!.shape[axis]!);
    }
    if ([...out].some((letter) => !sizes.has(letter))) cannot(node, 'makes a dimension that no operand has');
    const all = [...out, ...[...sizes.keys()].filter((letter) => !out.includes(letter))];
    const full = all.map((letter) => sizes.get(letter)!);
    this.fits(full);
    const [x, y] = operands.map((operand, n) => {
      const strides = rowMajorStrides(operand.shape);
      return gather(
        operand,
        full,
        all.map((letter) => (terms[n]!.includes(letter) ? strides[terms[n]!.indexOf(letter)]! : 0)),
      ).data;
    });
    const shape = full.slice(0, out.length);
    const summed = countElements(full.slice(out.length));
    const data = new Float64Array(countElements(shape));
    for (const [n, value] of x!.entries()) data[Math.floor(n / summed)]! += value * y![n]!;
    return rounded(operands[0]!.dtype, shape, data);
  }

  private reduce(node: OnnxModelNode, x: Value, axes: readonly number[] | undefined): Value {
    const over = new Set(
      (axes ?? x.shape.map((_, axis) => axis)).map((axis) => (axis < 0 ? axis + x.shape.length : axis)),
    );
    const kept = x.shape.map((dim, axis) => (over.has(axis) ? 1 : dim));
    this.fits(kept);
    const strides = rowMajorStrides(kept).map((stride, axis) => (over.has(axis) ? 0 : stride));
    const start = { ReduceMax: -Infinity, ReduceMin: Infinity, ReduceSum: 0 }[node.opType]!;
    const data = new Float64Array(countElements(kept)).fill(start);
    const from = rowMajorStrides(x.shape);
    for (const [n, value] of x.data.entries()) {
      let at = 0;
      for (const [axis, dim] of x.shape.entries()) at += (Math.floor(n / from[axis]!) % dim) * strides[axis]!;
      const so = data[at]!;
      data[at] =
        node.opType === 'ReduceSum'
          ? so + value
          : node.opType === 'ReduceMax'
            ? Math.max(so, value)
            : Math.min(so, value);
    }
    const shape = numberAttribute(node, 'keepdims', 1) !== 0 ? kept : kept.filter((_, axis) => !over.has(axis));
    return rounded(x.dtype, shape, data);
  }

  /** LongRoPE and dynamic NTK choose their frequencies by length. */
  private branch(node: OnnxModelNode, which: string): readonly Value[] {
    const body = node.attributes.get(which);
    if (body?.kind !== 'graph') cannot(node, `has no ${which}`);
    if (this.branches >= MAX_BRANCHES) cannot(node, `lies in ${MAX_BRANCHES} others`);
    const scope = new Scope(body.value, `${this.scope.name} / ${node.name}`, this.scope);
    const inner = new Evaluation(scope, new Shapes(scope, this.shapes), this.given, this.work);
    inner.branches = this.branches + 1;
    inner.elements = this.elements;
    inner.depth = this.depth;
    for (const [name, value] of this.done) inner.done.set(name, value);
    return body.value.outputs.map((output) => inner.value(output.name));
  }
}

const UNARY: Readonly<Record<string, (x: number) => number>> = {
  Neg: (x) => -x,
  Cos: Math.cos,
  Sin: Math.sin,
  Exp: Math.exp,
  Log: Math.log,
  Sqrt: Math.sqrt,
  Reciprocal: (x) => 1 / x,
  Abs: Math.abs,
  Floor: Math.floor,
  Ceil: Math.ceil,
  /** Halves go to the even neighbour. */
  Round: (x) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x)),
};
const BINARY: Readonly<Record<string, (a: number, b: number, integer: boolean) => number>> = {
  Add: (a, b) => a + b,
  Sub: (a, b) => a - b,
  Mul: (a, b) => a * b,
  Div: (a, b, integer) => (integer ? Math.trunc(a / b) : a / b),
  Pow: (a, b) => a ** b,
  Min: (a, b) => Math.min(a, b),
  Max: (a, b) => Math.max(a, b),
  Mod: (a, b, integer) => (integer ? a - b * Math.floor(a / b) : a % b),
};
const remainder = (a: number, b: number): number => a % b;
const COMPARE: Readonly<Record<string, (a: number, b: number) => boolean>> = {
  Equal: (a, b) => a === b,
  Greater: (a, b) => a > b,
  Less: (a, b) => a < b,
  GreaterOrEqual: (a, b) => a >= b,
  LessOrEqual: (a, b) => a <= b,
  And: (a, b) => a !== 0 && b !== 0,
  Or: (a, b) => a !== 0 || b !== 0,
};

/** Operators that {@link Evaluation} knows, for saying beforehand whether a table can be computed. */
export const EVALUATED: ReadonlySet<string> = /* @__PURE__ */ new Set([
  ...Object.keys(UNARY),
  ...Object.keys(BINARY),
  ...Object.keys(COMPARE),
  ...(
    'Identity Dropout Not Cast CastLike Where Clip Constant Shape Size Reshape Flatten Unsqueeze Squeeze Transpose Concat Slice Split Gather ' +
    'Expand Tile Range ConstantOfShape MatMul Einsum CumSum ReduceMax ReduceMin ReduceSum ScatterND If'
  ).split(' '),
]);

/** Operators that read as much as they write, or nothing, of what is given to them. */
const READS_PARTS: ReadonlySet<string> = /* @__PURE__ */ new Set(
  'Identity Dropout Reshape Flatten Unsqueeze Squeeze Shape Size Gather Slice Split Expand Tile Concat If'.split(' '),
);

function cannot(node: OnnxModelNode, why: string): never {
  throw new CannotEvaluate(`${node.opType}${node.name === '' ? '' : ` ${node.name}`} ${why}`);
}

/** Caches as they were read: 64 nodes may share one of 16 million entries. */
const READ = /* @__PURE__ */ new WeakMap<OnnxTensor, Value>();

function fromFile(tensor: OnnxTensor, work: Work): Value {
  const known = READ.get(tensor);
  if (known) return known;
  try {
    checkSizes(tensor.shape);
    // Elements in the model's own file are as many as its bytes; many tensors may name one other file.
    if (tensor.external) work.spend(countElements(tensor.shape));
    const numbers = fromTensor(tensor.read());
    const value: Value = tensor.dataType === BOOL ? { ...numbers, dtype: 'bool' } : numbers;
    READ.set(tensor, value);
    return value;
  } catch (cause) {
    if (cause instanceof RopewalkError) throw new CannotEvaluate(cause.message);
    throw cause;
  }
}

/** Loops go over outer and inner dimensions apart: a dimension of 0 must not hide the others. */
function checkSizes(shape: readonly number[]): void {
  if (shape.length > MAX_RANK || !shape.every((dim) => Number.isSafeInteger(dim) && dim >= 0))
    throw new CannotEvaluate(`[${shape.slice(0, MAX_RANK)}] is no shape`);
  if (shape.reduce((product, dim) => product * Math.max(1, dim), 1) > MAX_ELEMENTS)
    throw new CannotEvaluate(`it takes more than ${MAX_ELEMENTS} numbers`);
}

/** A host tensor as a value. */
export function fromTensor(tensor: Tensor): Value {
  return { dtype: tensor.dtype, shape: tensor.shape, data: tensor.readNumbers() as Float64Array };
}

function vector(values: readonly number[]): Value {
  return { dtype: 'i64', shape: [values.length], data: Float64Array.from(values) };
}

function rounded(dtype: Value['dtype'], shape: readonly number[], data: Float64Array): Value {
  if (dtype !== 'bool' && dtype !== 'f64' && isFloat(dtype))
    for (let n = 0; n < data.length; n++) data[n] = roundTo(dtype, data[n]!);
  return { dtype, shape, data };
}

function cast(node: OnnxModelNode, x: Value, to: number): Value {
  return castTo(x, to === BOOL ? 'bool' : (DTYPE_OF.get(to) ?? cannot(node, `casts to data type ${to}`)));
}

function castTo(x: Value, dtype: Value['dtype']): Value {
  if (dtype === 'bool') return { ...x, dtype, data: x.data.map((value) => Number(value !== 0)) };
  return isFloat(dtype) ? rounded(dtype, x.shape, x.data.slice()) : { ...x, dtype, data: x.data.map(Math.trunc) };
}

function broadcastShape(node: OnnxModelNode, shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return Array.from({ length: rank }, (_, axis) => {
    const dims = shapes.map((shape) => shape[axis - rank + shape.length] ?? 1).filter((dim) => dim !== 1);
    if (dims.some((dim) => dim !== dims[0]))
      cannot(node, `cannot broadcast ${shapes.map((shape) => `[${shape}]`).join(' and ')}`);
    return dims[0] ?? 1;
  });
}

function broadcastStrides(shape: readonly number[], to: readonly number[]): number[] {
  const strides = rowMajorStrides(shape);
  return to.map((_, axis) => {
    const own = axis - to.length + shape.length;
    return own < 0 || shape[own] === 1 ? 0 : strides[own]!;
  });
}

/** Reads elements by strides into a dense value. */
function gather(x: Value, shape: readonly number[], strides: readonly number[], offset = 0): Value {
  const data = new Float64Array(countElements(shape));
  const index = new Array<number>(shape.length).fill(0);
  let at = offset;
  for (let n = 0; n < data.length; n++) {
    data[n] = x.data[at]!;
    for (let d = shape.length - 1; d >= 0; d--) {
      at += strides[d]!;
      if (++index[d]! < shape[d]!) break;
      at -= strides[d]! * shape[d]!;
      index[d] = 0;
    }
  }
  return { dtype: x.dtype, shape, data };
}

function sliceAxis(
  x: Value,
  axis: number,
  { first, step, length }: { first: number; step: number; length: number },
): Value {
  const strides = rowMajorStrides(x.shape);
  const offset = length === 0 ? 0 : first * strides[axis]!;
  return gather(x, x.shape.with(axis, length), strides.with(axis, strides[axis]! * step), offset);
}

function concat(node: OnnxModelNode, parts: readonly Value[], axis: number): Value {
  const shape = parts[0]!.shape.with(
    axis,
    parts.reduce((sum, part) => sum + (part.shape[axis] ?? 0), 0),
  );
  for (const part of parts) {
    if (part.shape.length !== shape.length || part.shape.some((dim, d) => d !== axis && dim !== shape[d]))
      cannot(node, `cannot join ${parts.map((one) => `[${one.shape}]`).join(' and ')}`);
  }
  const data = new Float64Array(countElements(shape));
  const outer = countElements(shape.slice(0, axis));
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const part of parts) {
      const run = part.data.length / outer;
      data.set(part.data.subarray(o * run, (o + 1) * run), at);
      at += run;
    }
  }
  return { dtype: parts[0]!.dtype, shape, data };
}

function reshape(node: OnnxModelNode, x: Value, target: readonly number[]): Value {
  const zero = numberAttribute(node, 'allowzero', 0) !== 0;
  const copied = target.map((dim, axis) => (dim === 0 && !zero ? (x.shape[axis] ?? 0) : dim));
  const rest = copied.reduce((product, dim) => (dim === -1 ? product : product * dim), 1);
  const shape = copied.map((dim) => (dim === -1 ? (rest === 0 ? 0 : x.data.length / rest) : dim));
  if (countElements(shape) !== x.data.length || !shape.every((dim) => Number.isInteger(dim) && dim >= 0))
    cannot(node, `cannot give [${x.shape}] the shape [${target}]`);
  return { ...x, shape };
}

function tile(x: Value, shape: readonly number[]): Value {
  const from = rowMajorStrides(x.shape);
  const to = rowMajorStrides(shape);
  const data = Float64Array.from({ length: countElements(shape) }, (_, n) => {
    let at = 0;
    for (const [axis, dim] of x.shape.entries()) at += ((Math.floor(n / to[axis]!) % shape[axis]!) % dim) * from[axis]!;
    return x.data[at]!;
  });
  return { dtype: x.dtype, shape, data };
}

function cumulate(x: Value, axis: number): Value {
  const data = x.data.slice();
  const inner = countElements(x.shape.slice(axis + 1));
  const size = x.shape[axis] ?? 1;
  for (let n = 0; n < data.length; n++) if (Math.floor(n / inner) % size > 0) data[n]! += data[n - inner]!;
  return rounded(x.dtype, x.shape, data);
}

/** M-RoPE's exporters write the frequencies of one axis over those of another. */
function scatterNd(node: OnnxModelNode, x: Value, indices: Value, updates: Value): Value {
  const reduction = node.attributes.get('reduction');
  if (reduction?.kind === 'string' && reduction.value !== 'none') cannot(node, 'adds up');
  const depth = indices.shape.at(-1) ?? 0;
  const strides = rowMajorStrides(x.shape);
  const run = countElements(x.shape.slice(depth));
  const data = x.data.slice();
  const count = depth === 0 ? 0 : indices.data.length / depth;
  if (updates.data.length !== count * run) cannot(node, 'has updates that do not fit its indices');
  for (let n = 0; n < count; n++) {
    let at = 0;
    for (let d = 0; d < depth; d++) {
      const given = indices.data[n * depth + d]!;
      const index = given < 0 ? given + x.shape[d]! : given;
      if (!(index >= 0 && index < x.shape[d]!)) cannot(node, 'has an index outside');
      at += index * strides[d]!;
    }
    data.set(updates.data.subarray(n * run, (n + 1) * run), at);
  }
  return { dtype: x.dtype, shape: x.shape, data };
}
