/**
 * A small WebNN for tests in Node. It checks graphs against Chromium's limits and computes them one element after the
 * other. test/browser/webnn.browser.test.ts tests the real WebNN of Chromium; this one shows which graphs are built.
 */
import assert from 'node:assert/strict';
import type { MlContext, MlDescriptor, MlDtype, MlLimits, MlTensor, Webnn } from '@ropewalk/onnx/internal';
import { f16FromNumber, numberFromF16 } from 'ropewalk';
import { CHROMIUM_LIMITS } from './webnn-limits.js';

type Values = Float32Array | Int32Array | Uint8Array;
const ARRAYS = { float32: Float32Array, float16: Float32Array, int32: Int32Array, uint8: Uint8Array } as const;
const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);
const strides = (shape: readonly number[]): number[] => shape.map((_, d) => count(shape.slice(d + 1)));

class Operand {
  constructor(
    readonly builder: FakeBuilder,
    readonly dataType: MlDtype,
    readonly shape: readonly number[],
    /** Computes the elements from the inputs of the graph. */
    readonly compute: (inputs: ReadonlyMap<string, Values>) => Values,
    readonly kind: 'input' | 'constant' | 'op' = 'op',
  ) {}
}

/** A tensor of {@link FakeContext}. */
export class FakeTensor implements MlTensor {
  destroyed = false;
  values: Values;
  constructor(
    readonly dataType: MlDtype,
    readonly shape: readonly number[],
  ) {
    // New tensors do not contain zeros, so that no test depends on them.
    this.values = new ARRAYS[dataType](count(shape)).fill(99);
  }
  destroy(): void {
    this.destroyed = true;
  }
}

class FakeGraph {
  readonly devices = ['cpu'];
  destroyed = false;
  constructor(
    readonly inputs: ReadonlyMap<string, Operand>,
    readonly outputs: Readonly<Record<string, Operand>>,
  ) {}
  destroy(): void {
    this.destroyed = true;
  }
}

/** An open device that counts its calls. */
export class FakeContext implements MlContext {
  dispatches = 0;
  writtenBytes = 0;
  readonly tensors: FakeTensor[] = [];
  readonly graphs: FakeGraph[] = [];
  lose!: (info: { readonly message: string }) => void;
  readonly lost = new Promise<{ readonly message: string }>((resolve) => {
    this.lose = resolve;
  });
  async createTensor({ dataType, shape }: MlDescriptor): Promise<FakeTensor> {
    assert.ok(
      shape.every((size) => Number.isInteger(size) && size >= 1),
      `a tensor of shape [${shape}]`,
    );
    const tensor = new FakeTensor(dataType, shape);
    this.tensors.push(tensor);
    return tensor;
  }
  writeTensor(tensor: FakeTensor, data: ArrayBufferView): void {
    assert.equal(tensor.destroyed, false);
    assert.equal(data.byteLength, tensor.values.byteLength, 'writeTensor needs exactly the bytes of the tensor');
    this.writtenBytes += data.byteLength;
    new Uint8Array(tensor.values.buffer).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  }
  async readTensor(tensor: FakeTensor): Promise<ArrayBuffer> {
    assert.equal(tensor.destroyed, false);
    return tensor.values.slice().buffer as ArrayBuffer;
  }
  dispatch(
    graph: FakeGraph,
    inputs: Readonly<Record<string, FakeTensor>>,
    outputs: Readonly<Record<string, FakeTensor>>,
  ): void {
    assert.equal(graph.destroyed, false, 'a graph that was destroyed');
    assert.deepEqual(Object.keys(inputs).sort(), [...graph.inputs.keys()].sort());
    assert.deepEqual(Object.keys(outputs).sort(), Object.keys(graph.outputs).sort());
    const given = new Map<string, Values>();
    for (const [name, operand] of graph.inputs) {
      fits(inputs[name]!, operand, name);
      given.set(name, inputs[name]!.values);
    }
    const writes = Object.values(outputs);
    assert.equal(new Set(writes).size, writes.length, 'one tensor for two outputs');
    for (const tensor of Object.values(inputs)) assert.ok(!writes.includes(tensor), 'one tensor for input and output');
    const results = Object.entries(graph.outputs).map(([name, operand]): [string, Values] => {
      fits(outputs[name]!, operand, name);
      return [name, operand.compute(given)];
    });
    for (const [name, values] of results) outputs[name]!.values = values.slice();
    this.dispatches++;
  }
  opSupportLimits(): MlLimits {
    const support = ([types, min, max]: readonly [string, number, number]) => ({
      dataTypes: types.split(' '),
      rankRange: { min, max },
    });
    const entries = Object.entries(CHROMIUM_LIMITS).map(([op, places]) => {
      const list = Object.entries(places).map(([place, limit]) => [place, support(limit)] as const);
      return [op, list[0]![0] === '' ? list[0]![1] : Object.fromEntries(list)];
    });
    return Object.fromEntries(entries);
  }
  destroy(): void {
    this.lose({ message: 'destroy() called on MLContext.' });
  }
}

function fits(tensor: FakeTensor, operand: Operand, name: string): void {
  assert.equal(tensor.destroyed, false, name);
  assert.deepEqual([tensor.dataType, tensor.shape], [operand.dataType, operand.shape], name);
}

/** Refuses operands with a TypeError, as Chromium does. */
function check(op: string, place: string, { dataType, shape }: MlDescriptor): void {
  const limit = CHROMIUM_LIMITS[op]?.[place];
  assert.ok(limit, `no limits of ${op} ${place}`);
  const [types, min, max] = limit;
  if (!types.split(' ').includes(dataType)) throw new TypeError(`${op}: ${place} of ${dataType}`);
  if (shape.length < min || shape.length > max) throw new TypeError(`${op}: ${place} of rank ${shape.length}`);
}

function broadcast(a: readonly number[], b: readonly number[]): number[] {
  const rank = Math.max(a.length, b.length);
  return Array.from({ length: rank }, (_, d) => {
    const [p, q] = [a[d - rank + a.length] ?? 1, b[d - rank + b.length] ?? 1];
    if (p !== q && p !== 1 && q !== 1) throw new TypeError(`shapes [${a}] and [${b}]`);
    return Math.max(p, q);
  });
}

/** Returns for each element of `to` the place of the element of `from` that is broadcast there. */
function spread(from: readonly number[], to: readonly number[]): Int32Array {
  const steps = strides(from).map((step, d) => (from[d] === 1 ? 0 : step));
  return mapped(to, (index) => {
    return steps.reduce((sum, step, d) => sum + step * index[d + to.length - from.length]!, 0);
  });
}

/** Calls `of` for each index of a shape, in row-major order. */
function mapped(shape: readonly number[], of: (index: number[]) => number): Int32Array {
  const steps = strides(shape);
  return Int32Array.from({ length: count(shape) }, (_, n) =>
    of(shape.map((size, d) => Math.floor(n / steps[d]!) % size)),
  );
}

const UNARY: Readonly<Record<string, (x: number) => number>> = {
  abs: Math.abs,
  erf: erf,
  exp: Math.exp,
  isNaN: (x) => (Number.isNaN(x) ? 1 : 0),
  neg: (x) => -x,
  sqrt: Math.sqrt,
  tanh: Math.tanh,
};
const BINARY: Readonly<Record<string, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  div: (a, b) => a / b,
  equal: (a, b) => (a === b ? 1 : 0),
  lesser: (a, b) => (a < b ? 1 : 0),
  logicalAnd: (a, b) => (a && b ? 1 : 0),
  max: (a, b) => Math.max(a, b),
  min: (a, b) => Math.min(a, b),
  mul: (a, b) => a * b,
  notEqual: (a, b) => (a !== b ? 1 : 0),
  sub: (a, b) => a - b,
};
const TO_FLAG = ['isNaN', 'equal', 'lesser', 'logicalAnd', 'notEqual'];
const REDUCE: Readonly<Record<string, (values: readonly number[]) => number>> = {
  reduceMax: (values) => Math.max(...values),
  reduceMean: (values) => values.reduce((sum, value) => sum + value, 0) / values.length,
  reduceSum: (values) => values.reduce((sum, value) => sum + value, 0),
};

class FakeBuilder {
  readonly #inputs = new Map<string, Operand>();
  #built = false;
  constructor(readonly context: FakeContext) {
    for (const [op, of] of Object.entries(UNARY))
      this.#define(op, (x: Operand) => this.#elements(op, TO_FLAG.includes(op) ? 'a' : 'input', x, x.shape, of));
    for (const [op, of] of Object.entries(BINARY)) {
      this.#define(op, (a: Operand, b: Operand) => {
        check(op, 'a', a);
        check(op, 'b', b);
        if (a.dataType !== b.dataType) throw new TypeError(`${op} of ${a.dataType} and ${b.dataType}`);
        const shape = broadcast(a.shape, b.shape);
        const [pa, pb] = [spread(a.shape, shape), spread(b.shape, shape)];
        return this.#made(op, TO_FLAG.includes(op) ? 'uint8' : a.dataType, shape, (inputs) => {
          const [x, y] = [a.compute(inputs), b.compute(inputs)];
          return Array.from(pa, (at, n) => of(x[at]!, y[pb[n]!]!));
        });
      });
    }
    for (const [op, of] of Object.entries(REDUCE)) {
      this.#define(op, (x: Operand, options: { axes: number[]; keepDimensions: boolean }) => {
        check(op, 'input', x);
        const kept = x.shape.map((size, d) => (options.axes.includes(d) ? 1 : size));
        const shape = options.keepDimensions ? kept : x.shape.filter((_, d) => !options.axes.includes(d));
        const groupOf = spread(kept, x.shape);
        return this.#made(op, x.dataType, shape, (inputs) => {
          const groups = Array.from({ length: count(kept) }, (): number[] => []);
          for (const [n, value] of x.compute(inputs).entries()) groups[groupOf[n]!]!.push(value);
          return groups.map(of);
        });
      });
    }
  }

  #define(op: string, method: (...args: never[]) => Operand): void {
    Object.defineProperty(this, op, { value: method });
  }

  #made(
    op: string,
    dataType: MlDtype,
    shape: readonly number[],
    of: (inputs: ReadonlyMap<string, Values>) => Iterable<number>,
  ): Operand {
    check(op, op === 'split' ? 'outputs' : 'output', { dataType, shape });
    let last: [ReadonlyMap<string, Values>, Values] | undefined; // a value with several readers is computed once
    return new Operand(this, dataType, shape, (inputs) => {
      if (last?.[0] !== inputs) {
        const values = of(inputs);
        last = [inputs, values instanceof ARRAYS[dataType] ? values : ARRAYS[dataType].from(values)];
      }
      return last[1];
    });
  }

  #elements(op: string, place: string, x: Operand, shape: readonly number[], of: (value: number) => number): Operand {
    check(op, place, x);
    return this.#made(op, TO_FLAG.includes(op) ? 'uint8' : x.dataType, shape, (inputs) =>
      Array.from(x.compute(inputs), of),
    );
  }

  /** Makes an operand from the elements of x at these places. */
  #taken(op: string, place: string, x: Operand, shape: readonly number[], places: Int32Array): Operand {
    check(op, place, x);
    return this.#made(op, x.dataType, shape, (inputs) => {
      const values = x.compute(inputs);
      return Array.from(places, (at) => values[at]!);
    });
  }

  input(name: string, { dataType, shape }: MlDescriptor): Operand {
    check('input', '', { dataType, shape });
    assert.ok(!this.#inputs.has(name), `two inputs called ${name}`);
    const made = new Operand(this, dataType, shape, (inputs) => inputs.get(name)!, 'input');
    this.#inputs.set(name, made);
    return made;
  }
  constant({ dataType, shape }: MlDescriptor, data: Values): Operand {
    assert.ok(data instanceof ARRAYS[dataType] && data.length === count(shape), `a constant [${shape}] of ${dataType}`);
    const kept = data.slice();
    return new Operand(this, dataType, shape, () => kept, 'constant');
  }
  argMax(x: Operand, axis: number): Operand {
    assert.equal(axis, x.shape.length - 1);
    check('argMax', 'input', x);
    const size = x.shape[axis]!;
    return this.#made('argMax', 'int32', x.shape.slice(0, -1), (inputs) => {
      const values = x.compute(inputs);
      return Array.from({ length: values.length / size }, (_, row) => {
        let best = 0; // NaN is never greater, and Chromium skips it too
        for (let n = 1; n < size; n++) if (values[row * size + n]! > values[row * size + best]!) best = n;
        return best;
      });
    });
  }
  cast(x: Operand, dataType: MlDtype): Operand {
    check('cast', 'input', x);
    const f16 = dataType === 'float16';
    return this.#made('cast', dataType, x.shape, (inputs) =>
      Array.from(x.compute(inputs), (v) => (f16 ? toF16(v) : v)),
    );
  }
  concat(parts: readonly Operand[], axis: number): Operand {
    for (const part of parts) check('concat', 'inputs', part);
    const sizes = parts.map((part) => part.shape[axis]!);
    const shape = parts[0]!.shape.with(
      axis,
      sizes.reduce((sum, size) => sum + size, 0),
    );
    const inner = count(shape.slice(axis + 1));
    return this.#made('concat', parts[0]!.dataType, shape, (inputs) => {
      const values = parts.map((part) => part.compute(inputs));
      const all: number[] = [];
      for (let n = 0; n < count(shape.slice(0, axis)); n++)
        for (const [p, size] of sizes.entries())
          all.push(...values[p]!.subarray(n * size * inner, (n + 1) * size * inner));
      return all;
    });
  }
  expand(x: Operand, shape: readonly number[]): Operand {
    return this.#taken('expand', 'input', x, shape, spread(x.shape, shape));
  }
  gather(x: Operand, indices: Operand, { axis }: { axis: number }): Operand {
    check('gather', 'input', x);
    check('gather', 'indices', indices);
    const shape = [...x.shape.slice(0, axis), ...indices.shape, ...x.shape.slice(axis + 1)];
    const inner = count(x.shape.slice(axis + 1));
    const size = x.shape[axis]!;
    return this.#made('gather', x.dataType, shape, (inputs) => {
      const [values, at] = [x.compute(inputs), indices.compute(inputs)];
      const all: number[] = [];
      for (let n = 0; n < count(x.shape.slice(0, axis)); n++)
        for (const index of at)
          all.push(...values.subarray((n * size + index) * inner, (n * size + index + 1) * inner));
      return all;
    });
  }
  gemm(a: Operand, b: Operand, { bTranspose }: { bTranspose: boolean }): Operand {
    check('gemm', 'a', a);
    check('gemm', 'b', b);
    assert.ok(bTranspose);
    assert.equal(a.shape[1], b.shape[1]);
    return this.#product('gemm', a, b, [a.shape[0]!, b.shape[0]!], true);
  }
  matmul(a: Operand, b: Operand): Operand {
    check('matmul', 'a', a);
    check('matmul', 'b', b);
    assert.equal(a.shape.at(-1), b.shape.at(-2));
    const lead = broadcast(a.shape.slice(0, -2), b.shape.slice(0, -2));
    return this.#product('matmul', a, b, [...lead, a.shape.at(-2)!, b.shape.at(-1)!], false);
  }
  #product(op: string, a: Operand, b: Operand, shape: readonly number[], transposed: boolean): Operand {
    const k = a.shape.at(-1)!;
    const [m, n] = shape.slice(-2) as [number, number];
    const lead = shape.slice(0, -2);
    const [la, lb] = [spread(a.shape.slice(0, -2), lead), spread(b.shape.slice(0, -2), lead)];
    return this.#made(op, a.dataType, shape, (inputs) => {
      const [x, y] = [a.compute(inputs), b.compute(inputs)];
      const all: number[] = [];
      for (const [batch, atA] of la.entries())
        for (let i = 0; i < m; i++)
          for (let j = 0; j < n; j++) {
            let sum = 0;
            for (let t = 0; t < k; t++)
              sum += x[(atA * m + i) * k + t]! * y[lb[batch]! * k * n + (transposed ? j * k + t : t * n + j)]!;
            all.push(sum);
          }
      return all;
    });
  }
  /** Copies with reshape, which keeps the bits of a NaN. JavaScript numbers may not keep them. */
  identity(x: Operand): Operand {
    check('identity', 'input', x);
    return this.reshape(x, x.shape);
  }
  reshape(x: Operand, shape: readonly number[]): Operand {
    if (count(shape) !== count(x.shape)) throw new TypeError(`reshape of [${x.shape}] to [${shape}]`);
    check('reshape', 'input', x);
    return this.#made('reshape', x.dataType, shape, (inputs) => x.compute(inputs));
  }
  scatterND(x: Operand, indices: Operand, updates: Operand): Operand {
    check('scatterND', 'input', x);
    check('scatterND', 'indices', indices);
    check('scatterND', 'updates', updates);
    const [, width] = x.shape as [number, number];
    assert.deepEqual(updates.shape, [indices.shape[0], width]);
    return this.#made('scatterND', x.dataType, x.shape, (inputs) => {
      const made = x.compute(inputs).slice();
      const [at, rows] = [indices.compute(inputs), updates.compute(inputs)];
      for (const [n, row] of at.entries()) made.set(rows.subarray(n * width, (n + 1) * width), row * width);
      return made;
    });
  }
  slice(x: Operand, starts: readonly number[], sizes: readonly number[]): Operand {
    const steps = strides(x.shape);
    const places = mapped(sizes, (index) => index.reduce((sum, i, d) => sum + (i + starts[d]!) * steps[d]!, 0));
    return this.#taken('slice', 'input', x, sizes, places);
  }
  softmax(x: Operand, axis: number): Operand {
    assert.equal(axis, x.shape.length - 1);
    check('softmax', 'input', x);
    const size = x.shape[axis]!;
    return this.#made('softmax', x.dataType, x.shape, (inputs) => {
      const values = x.compute(inputs);
      const all: number[] = [];
      for (let row = 0; row < values.length; row += size) {
        const part = [...values.subarray(row, row + size)];
        const top = Math.max(...part);
        const powers = part.map((value) => Math.exp(value - top));
        const sum = powers.reduce((total, power) => total + power, 0);
        all.push(...powers.map((power) => power / sum));
      }
      return all;
    });
  }
  split(x: Operand, sizes: readonly number[], { axis }: { axis: number }): Operand[] {
    check('split', 'input', x);
    let start = 0;
    return sizes.map((size) => {
      const starts = x.shape.map((_, d) => (d === axis ? start : 0));
      start += size;
      return this.slice(x, starts, x.shape.with(axis, size));
    });
  }
  transpose(x: Operand, { permutation }: { permutation: readonly number[] }): Operand {
    const steps = strides(x.shape);
    const shape = permutation.map((d) => x.shape[d]!);
    const places = mapped(shape, (index) => index.reduce((sum, i, d) => sum + i * steps[permutation[d]!]!, 0));
    return this.#taken('transpose', 'input', x, shape, places);
  }
  where(condition: Operand, a: Operand, b: Operand): Operand {
    check('where', 'condition', condition);
    check('where', 'trueValue', a);
    check('where', 'falseValue', b);
    const shape = broadcast(condition.shape, broadcast(a.shape, b.shape));
    const [pc, pa, pb] = [condition, a, b].map((x) => spread(x.shape, shape)) as [Int32Array, Int32Array, Int32Array];
    return this.#made('where', a.dataType, shape, (inputs) => {
      const [c, x, y] = [condition.compute(inputs), a.compute(inputs), b.compute(inputs)];
      return Array.from(pc, (at, n) => (c[at] ? x[pa[n]!]! : y[pb[n]!]!));
    });
  }
  async build(outputs: Readonly<Record<string, Operand>>): Promise<FakeGraph> {
    assert.equal(this.#built, false, 'a builder builds once');
    this.#built = true;
    const all = Object.values(outputs);
    assert.ok(
      all.every(({ kind }) => kind === 'op'),
      'an output that is an input or a constant',
    );
    assert.equal(new Set(all).size, all.length, 'one operand under two names');
    for (const operand of all) check('output', '', operand);
    const graph = new FakeGraph(this.#inputs, outputs);
    this.context.graphs.push(graph);
    return graph;
  }
}

/** Sums the series of erf, whose error is below 1e-9 for |x| < 5. Beyond that it returns ±1. */
function erf(x: number): number {
  if (Math.abs(x) > 5) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; n < 200; n++) {
    term *= -(x * x) / n;
    sum += term / (2 * n + 1);
  }
  return (2 / Math.sqrt(Math.PI)) * sum;
}

/** Returns the nearest f16. */
function toF16(x: number): number {
  return numberFromF16(f16FromNumber(x));
}

/** Makes a WebNN and returns it with its context. */
export function fakeWebnn(): { readonly webnn: Webnn; readonly context: FakeContext } {
  const context = new FakeContext();
  const webnn = { ml: { createContext: async () => context }, MLGraphBuilder: FakeBuilder } as unknown as Webnn;
  return { webnn, context };
}
