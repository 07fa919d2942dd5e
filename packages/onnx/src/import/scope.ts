/**
 * A graph with an index of makers and readers, and the shapes of its values.
 *
 * Shapes are inferred in one pass in the order of the nodes. A dimension is a number or a name. A name from the
 * exporter (`batch_size`) and a name made here (`value#axis`) both stand for one unknown number, so that a Reshape to
 * `[…, -1, 2]` has a known size if its other dimensions come from the same tensor.
 *
 * @module
 */

import { RopewalkError } from 'ropewalk';
import type { OnnxGraph, OnnxModelFile, OnnxModelNode, OnnxTensor, OnnxValueType } from '../format/onnx-model.js';
import { operatorNamed } from '../operators/index.js';
import { intsAttribute, MAX_ENTRIES, type Shape, type ShapeReader } from '../operators/operator.js';
import { MAX_RANK } from '../operators/values.js';

/** Graphs that are nested deeper are ignored. No exporter goes beyond three levels. */
const MAX_DEPTH = 16;

/** One graph of a model, and the graphs around it. */
export class Scope {
  readonly #makers = new Map<string, OnnxModelNode>();
  readonly #readers = new Map<string, OnnxModelNode[]>();
  readonly #order = new Map<OnnxModelNode, number>();
  readonly #types = new Map<string, OnnxValueType>();

  /** @param name - '' for the model's main graph; `function local.rope`, `If_3.then_branch` */
  constructor(
    readonly graph: OnnxGraph,
    readonly name: string,
    readonly parent?: Scope,
  ) {
    for (const [n, node] of graph.nodes.entries()) {
      this.#order.set(node, n);
      for (const output of node.outputs) if (output !== '') this.#makers.set(output, node);
      for (const value of node.inputs) {
        if (value === '') continue;
        const list = this.#readers.get(value);
        if (list) list.push(node);
        else this.#readers.set(value, [node]);
      }
    }
    for (const value of [...graph.valueTypes.values(), ...graph.outputs, ...graph.inputs])
      this.#types.set(value.name, value);
  }

  /** Returns the node that makes a value, here or in a graph around. */
  maker(value: string): OnnxModelNode | undefined {
    return this.#makers.get(value) ?? (this.#isOwn(value) ? undefined : this.parent?.maker(value));
  }

  /** Returns the nodes of this graph that read a value, in the order of the file. */
  readersOf(value: string): readonly OnnxModelNode[] {
    return this.#readers.get(value) ?? [];
  }

  indexOf(node: OnnxModelNode): number {
    return this.#order.get(node) ?? -1;
  }

  /** Returns the initializer with the name of a value, here or in a graph around. */
  initializer(value: string): OnnxTensor | undefined {
    const found = this.graph.initializers.get(value);
    return found ?? (this.#isOwn(value) ? undefined : this.parent?.initializer(value));
  }

  declared(value: string): OnnxValueType | undefined {
    return this.#types.get(value) ?? (this.#isOwn(value) ? undefined : this.parent?.declared(value));
  }

  /** Returns the input of the outermost graph with this name; undefined if a node or an initializer makes the value. */
  graphInput(value: string): OnnxValueType | undefined {
    if (this.#makers.has(value) || this.graph.initializers.has(value)) return undefined;
    return this.graph.inputs.find((input) => input.name === value) ?? this.parent?.graphInput(value);
  }

  #isOwn(value: string): boolean {
    return (
      this.#makers.has(value) ||
      this.graph.initializers.has(value) ||
      this.graph.inputs.some((input) => input.name === value)
    );
  }
}

/** Returns every graph of a model: the main graph, then functions, each before the graphs inside its nodes. */
export function scopesOf(model: OnnxModelFile): Scope[] {
  const scopes: Scope[] = [];
  const walk = (scope: Scope, depth: number): void => {
    scopes.push(scope);
    if (depth >= MAX_DEPTH) return;
    for (const [n, node] of scope.graph.nodes.entries()) {
      for (const [key, { kind, value }] of node.attributes) {
        const name = `${scope.name === '' ? '' : `${scope.name} / `}${nodeName(node, n)}.${key}`;
        const graphs = kind === 'graph' ? [value] : kind === 'graphs' ? value : [];
        for (const graph of graphs) walk(new Scope(graph, name, scope), depth + 1);
      }
    }
  };
  walk(new Scope(model.graph, ''), 0);
  for (const { graph, domain, name } of model.functions)
    walk(new Scope(graph, `function ${domain === '' ? '' : `${domain}.`}${name}`), 0);
  return scopes;
}

/** Returns the name of a node, or its operator and place if it has none. */
export function nodeName(node: OnnxModelNode, index: number): string {
  return node.name === '' ? `${node.opType}_${index}` : node.name;
}

/** The shapes of a graph's values, and the contents of its small integer vectors. */
export class Shapes {
  readonly #shapes = new Map<string, Shape>();
  readonly #contents = new Map<string, Shape>();
  readonly #around: Shapes | undefined;

  /** @param around - the shapes of the graph around it */
  constructor(
    readonly scope: Scope,
    around?: Shapes,
  ) {
    this.#around = around;
    for (const node of scope.graph.nodes) this.#visit(node);
    this.#hintLastDims();
  }

  /** Returns the shape of a value; undefined if not even its rank is known. */
  shapeOf(value: string): Shape | undefined {
    const known = this.#shapes.get(value) ?? this.scope.graph.initializers.get(value)?.shape;
    if (known) return known;
    const declared = this.scope.declared(value)?.shape;
    if (!declared) return this.#around?.shapeOf(value);
    const shape = declared.map((dim, axis) => dim ?? `${value}#${axis}`);
    this.#shapes.set(value, shape);
    return shape;
  }

  /** Returns the entries of an integer vector if all of them are known. */
  numbersOf(value: string | undefined): readonly number[] | undefined {
    const content = value ? this.contentOf(value) : undefined;
    return content?.every((entry) => typeof entry === 'number') ? (content as readonly number[]) : undefined;
  }

  /** Returns integers of a node that some opsets have as an attribute and later ones as an input. */
  listOf(node: OnnxModelNode, attribute: string, input: number): readonly number[] | undefined {
    return intsAttribute(node, attribute) ?? this.numbersOf(node.inputs[input]);
  }

  /**
   * Returns the entries of a small integer scalar or vector, with names for unknown ones; undefined for other values.
   */
  contentOf(value: string): Shape | undefined {
    const known = this.#contents.get(value);
    if (known) return known;
    const constant = this.scope.graph.initializers.get(value);
    if (!constant) return this.#around?.contentOf(value);
    const content = smallIntegers(constant);
    if (content) this.#contents.set(value, content);
    return content;
  }

  #visit(node: OnnxModelNode): void {
    const operator = operatorNamed(node.opType);
    if (!operator) return;
    const reader = this.#reader(node);
    const inferred = operator.shapes?.(reader) ?? [];
    for (const [n, output] of node.outputs.entries()) {
      const shape = inferred[n];
      if (output === '' || !shape || shape.length > MAX_RANK) continue;
      if (!shape.every((dim) => typeof dim === 'string' || (Number.isSafeInteger(dim) && dim >= 0))) continue;
      const declared = this.scope.declared(output)?.shape;
      const said = declared?.length === shape.length ? declared : [];
      this.#shapes.set(
        output,
        shape.map((dim, axis) => (typeof dim === 'string' && typeof said[axis] === 'number' ? said[axis] : dim)),
      );
    }
    const content = operator.content?.(reader);
    if (content && content.length <= MAX_ENTRIES) this.#contents.set(node.outputs[0]!, content);
  }

  #reader(node: OnnxModelNode): ShapeReader {
    const ofInput = <T>(input: number, get: (value: string) => T): T | undefined => {
      const value = node.inputs[input];
      return value ? get(value) : undefined;
    };
    const content = (input: number): Shape | undefined => ofInput(input, (value) => this.contentOf(value));
    return {
      node,
      list: (attribute, input) => this.listOf(node, attribute, input),
      shape: (input) => ofInput(input, (value) => this.shapeOf(value)),
      content,
      numbers: (input) => this.numbersOf(node.inputs[input]),
      entries: (input) => content(input) ?? ofInput(input, (value) => this.#unknownEntries(value)),
      integersOf: smallIntegers,
      fresh: (axis, output = 0) => `${node.outputs[output]}#${axis}`,
      inside: (graph) => {
        const inner = new Shapes(new Scope(graph, '', this.scope), this);
        return graph.outputs.map((output) => inner.shapeOf(output.name));
      },
      check: () => {},
    };
  }

  #unknownEntries(value: string): Shape | undefined {
    const shape = this.shapeOf(value);
    const length = shape?.length === 1 ? shape[0] : undefined;
    return typeof length === 'number' && length <= MAX_ENTRIES
      ? Array.from({ length }, (_, n) => `${value}[${n}]`)
      : undefined;
  }

  /** The product x · cos tells the width of x if nothing else does. */
  #hintLastDims(): void {
    for (const node of this.scope.graph.nodes) {
      if (node.opType !== 'Mul') continue;
      const widths = node.inputs.map((input) => this.shapeOf(input)?.at(-1));
      for (const [n, width] of widths.entries()) {
        const other = widths[1 - n];
        if (typeof width !== 'string' || typeof other !== 'number' || other <= 1) continue;
        for (const [value, dims] of this.#shapes)
          if (dims.includes(width))
            this.#shapes.set(
              value,
              dims.map((dim) => (dim === width ? other : dim)),
            );
      }
    }
  }
}

/** Returns the integers of a small constant; undefined if it is large, in another file, or malformed. */
function smallIntegers(constant: OnnxTensor): readonly number[] | undefined {
  if (constant.shape.length > 1 || (constant.shape[0] ?? 1) > MAX_ENTRIES || constant.external) return undefined;
  if (constant.dtype !== 'i64' && constant.dtype !== 'i32') return undefined;
  try {
    return [...(constant.read().readNumbers() as Float64Array)];
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}
