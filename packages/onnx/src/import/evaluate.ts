/**
 * Computes small parts of a graph, from positions to cos and sin, with the rounding of the graph's own types.
 *
 * It knows the operators that exporters put between positions and tables. It is not a runtime: a backend runs the
 * rotation itself.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { countElements } from 'ropewalk/internal';
import type { OnnxGraph, OnnxModelNode, OnnxTensor } from '../format/onnx-model.js';
import { operatorOf } from '../operators/index.js';
import { axisAt, intsAttribute, numberAttribute, type ValueReader } from '../operators/operator.js';
import { CannotEvaluate, checkSizes, fromTensor, MAX_ELEMENTS, type Value, valueDtype } from '../operators/values.js';
import { Scope, Shapes } from './scope.js';

/** Shapes, axes and sizes have fewer entries than this. A longer vector is none of them. */
const MAX_INTS = 1024;
/** The longest chain of operators that is computed. */
const MAX_DEPTH = 256;
/** The deepest nesting of branches that is computed. A branch that reads its own result would never end. */
const MAX_BRANCHES = 16;

export interface Given {
  /** Values by name, inputs or others. */
  readonly values?: ReadonlyMap<string, Value>;
  /** The sizes of named dimensions. */
  readonly dims?: ReadonlyMap<string, number>;
  /** Lets a Slice whose end cannot be computed take everything, because graphs cut caches to the length in use. */
  readonly wholeCaches: boolean;
}

/** Computes values of one graph, each of them once. */
export class Evaluation {
  readonly #done = new Map<string, Value>();
  /** Values that {@link constant} could not compute. */
  readonly #failed = new Set<string>();
  readonly #counted = new WeakSet<Float64Array>();
  #elements = 0;
  #depth = 0;
  #branches = 0;

  constructor(
    readonly scope: Scope,
    readonly shapes: Shapes,
    readonly given: Given,
    readonly work: Work,
  ) {}

  /** Computes a value. @throws {CannotEvaluate} when something is missing, unknown or too large */
  value(name: string): Value {
    const known = this.#known(name);
    if (known) return known;
    const initializer = this.scope.initializer(name);
    if (initializer) return this.#keep(name, fromFile(initializer, this.work));
    const maker = this.scope.maker(name);
    if (!maker) {
      const given = this.scope.graphInput(name);
      throw new CannotEvaluate(given ? `the graph's input ${name} is not given` : `nothing makes ${name}`, name);
    }
    if (this.#depth >= MAX_DEPTH) throw new CannotEvaluate(`more than ${MAX_DEPTH} operators lead to it`);
    this.#depth++;
    try {
      const outputs = this.#run(maker);
      for (const [n, output] of maker.outputs.entries()) if (outputs[n]) this.#keep(output, outputs[n]);
    } finally {
      this.#depth--;
    }
    return this.#done.get(name) ?? cannot(maker, `has no output ${name}`);
  }

  /** Computes a value from constants alone; undefined when it needs inputs, or too much work. */
  constant(name: string): Value | undefined {
    if (this.#failed.has(name)) return undefined;
    try {
      return this.value(name);
    } catch (error) {
      if (!(error instanceof CannotEvaluate)) throw error;
      this.#failed.add(name);
      return undefined;
    }
  }

  /** Counts the elements of a shape before memory is allocated. It refuses invalid and too large shapes. */
  fits(shape: readonly number[]): void {
    checkSizes(shape);
    this.#checkRoom(countElements(shape));
    this.work.spend(countElements(shape));
  }

  #known(name: string): Value | undefined {
    return this.given.values?.get(name) ?? this.#done.get(name);
  }

  /** Keeps a result. Views share their elements, which count once. */
  #keep(name: string, value: Value): Value {
    checkSizes(value.shape);
    if (!this.#counted.has(value.data)) {
      this.#checkRoom(value.data.length);
      this.#elements += value.data.length;
      this.#counted.add(value.data);
    }
    this.#done.set(name, value);
    return value;
  }

  #checkRoom(elements: number): void {
    if (!(this.#elements + elements <= MAX_ELEMENTS))
      throw new CannotEvaluate(`it takes more than ${MAX_ELEMENTS} numbers`);
  }

  #shapeOf(name: string): readonly number[] {
    const known = this.#known(name);
    if (known) return known.shape;
    const dims = this.shapes.shapeOf(name)?.map((dim) => (typeof dim === 'number' ? dim : this.given.dims?.get(dim)));
    if (dims?.every((dim) => dim !== undefined)) return dims as number[];
    if (this.scope.maker(name)) return this.value(name).shape;
    throw new CannotEvaluate(`the shape of ${name} is not known`, name);
  }

  #run(node: OnnxModelNode): readonly Value[] {
    if (node.domain !== '') cannot(node, `of domain ${node.domain} is not computed here`);
    const operator = operatorOf(node);
    if (!operator?.compute) return cannot(node, 'is not computed here');
    const outputs = operator.compute(this.#reader(node));
    return 'data' in outputs ? [outputs] : outputs;
  }

  #reader(node: OnnxModelNode): ValueReader {
    const part = (input: number): Value => {
      const name = node.inputs[input];
      return name ? this.value(name) : cannot(node, `has no input ${input}`);
    };
    const has = (input: number): boolean => (node.inputs[input] ?? '') !== '';
    const integers = (input: number): readonly number[] => {
      const { data } = part(input);
      return data.length <= MAX_INTS ? [...data] : cannot(node, `has more than ${MAX_INTS} sizes`);
    };
    return {
      node,
      list: (attribute, input) => intsAttribute(node, attribute) ?? (has(input) ? integers(input) : undefined),
      has,
      input: (input) => {
        const value = part(input);
        this.work.spend(value.data.length);
        return value;
      },
      part,
      integers,
      shape: (input) => this.#shapeOf(node.inputs[input] ?? ''),
      axis: (rank, missing) => {
        const given = numberAttribute(node, 'axis', missing);
        return axisAt(given, rank) ?? cannot(node, `has axis ${given} of ${rank}`);
      },
      read: (tensor) => fromFile(tensor, this.work),
      fits: (shape) => this.fits(shape),
      spend: (steps) => this.work.spend(steps),
      inside: (graph) => this.#inside(node, graph),
      wholeCaches: this.given.wholeCaches,
      cannot: (why) => cannot(node, why),
    };
  }

  #inside(node: OnnxModelNode, graph: OnnxGraph): readonly Value[] {
    if (this.#branches >= MAX_BRANCHES) cannot(node, `lies in ${MAX_BRANCHES} others`);
    const scope = new Scope(graph, `${this.scope.name} / ${node.name}`, this.scope);
    const inner = new Evaluation(scope, new Shapes(scope, this.shapes), this.given, this.work);
    inner.#branches = this.#branches + 1;
    inner.#elements = this.#elements;
    inner.#depth = this.#depth;
    for (const [name, value] of this.#done) inner.#done.set(name, value);
    return graph.outputs.map((output) => inner.value(output.name));
  }
}

function cannot(node: OnnxModelNode, why: string): never {
  throw new CannotEvaluate(`${node.opType}${node.name === '' ? '' : ` ${node.name}`} ${why}`);
}

/** Tensors that were read before, because 64 nodes may share a cache of 16 million entries. */
const READ = /* @__PURE__ */ new WeakMap<OnnxTensor, Value>();

function fromFile(tensor: OnnxTensor, work: Work): Value {
  const known = READ.get(tensor);
  if (known) return known;
  try {
    checkSizes(tensor.shape);
    // The model's own file has at least as many bytes as elements, but many tensors may name the same other file.
    if (tensor.external) work.spend(countElements(tensor.shape));
    const numbers = fromTensor(tensor.read());
    const value: Value = valueDtype(tensor.dataType) === 'bool' ? { ...numbers, dtype: 'bool' } : numbers;
    READ.set(tensor, value);
    return value;
  } catch (cause) {
    if (cause instanceof RopewalkError) throw new CannotEvaluate(cause.message);
    throw cause;
  }
}

/** The number of steps that an import may take: a base, and some for each byte of the file. */
type Rate = { readonly base: number; readonly perByte: number };

/**
 * The rate for computed values. A step is an element that an operator reads or writes, about 50 ns. The base is enough
 * for 4096 positions × 64 through ten operators.
 */
const COMPUTING: Rate = { base: 2 ** 23, perByte: 2 ** 10 };
/**
 * The rate for the search. A step is a channel, or a quarter of a term, about 100 ns. A small decoder with 896 channels
 * that may all belong to one head takes 1200 steps per byte.
 */
export const SEARCHING: Rate = { base: 2 ** 21, perByte: 2 ** 12 };

/** Thrown when the work would be more than the bytes of the file allow. */
export class TooMuchWork extends CannotEvaluate {}

/**
 * Counts the steps of one import. The sizes that a file declares may be absurd, so its number of bytes sets the limit.
 */
export class Work {
  spent = 0;
  readonly limit: number;

  /** @param bytes - of the file and of the tensors that come with it */
  constructor(
    readonly bytes: number,
    { base, perByte }: Rate = COMPUTING,
  ) {
    this.limit = base + perByte * bytes;
  }

  /**
   * Takes steps before the work is done. It refuses more steps than are left and does not count them, so that one
   * absurd number leaves the rest of a file readable.
   */
  spend(steps: number): void {
    if (!(this.spent + steps <= this.limit))
      throw new TooMuchWork(`it takes more than the ${this.limit} steps that a file of this size may take`);
    this.spent += steps;
  }
}
