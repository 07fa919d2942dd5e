/**
 * A graph to look things up in: who makes a value, who reads it, what is known of its shape.
 *
 * @module
 */

import { RopewalkError } from 'ropewalk';
import type { OnnxGraph, OnnxModelFile, OnnxModelNode, OnnxTensor, OnnxValueType } from '../format/onnx-model.js';
import { operatorNamed } from '../operators/index.js';
import { intsAttribute, MAX_ENTRIES, type Shape, type ShapeReader } from '../operators/operator.js';
import { MAX_RANK } from '../operators/values.js';

/** Graphs nested deeper than this are not walked: no exporter goes past three. */
const MAX_DEPTH = 16;

/** One graph of a model with its surroundings. */
export class Scope {
  readonly #makers = new Map<string, OnnxModelNode>();
  readonly #readers = new Map<string, OnnxModelNode[]>();
  readonly #order = new Map<OnnxModelNode, number>();
  readonly #types = new Map<string, OnnxValueType>();

  /** @param name - '' for the model's own graph; `function local.rope`, `If_3.then_branch` */
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

  /** The node whose output a value is, here or around. */
  maker(value: string): OnnxModelNode | undefined {
    return this.#makers.get(value) ?? (this.#isOwn(value) ? undefined : this.parent?.maker(value));
  }

  /** The nodes that read a value in this graph, in the order of the file. */
  readersOf(value: string): readonly OnnxModelNode[] {
    return this.#readers.get(value) ?? [];
  }

  /** The place of a node in the file. */
  indexOf(node: OnnxModelNode): number {
    return this.#order.get(node) ?? -1;
  }

  /** The initializer that a value is, here or around. */
  initializer(value: string): OnnxTensor | undefined {
    const found = this.graph.initializers.get(value);
    return found ?? (this.#isOwn(value) ? undefined : this.parent?.initializer(value));
  }

  /** What the file says of a value. */
  declared(value: string): OnnxValueType | undefined {
    return this.#types.get(value) ?? (this.#isOwn(value) ? undefined : this.parent?.declared(value));
  }

  /** The input of the outermost graph that a value is; undefined when a node or an initializer makes it. */
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

/** Every graph of a model: first its own, then those of its functions; each before those inside its nodes. */
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

/** A node's name, or its kind and place where it has none. */
export function nodeName(node: OnnxModelNode, index: number): string {
  return node.name === '' ? `${node.opType}_${index}` : node.name;
}

/** Shapes of a scope's values, and the contents of its small integer vectors. */
export class Shapes {
  readonly #shapes = new Map<string, Shape>();
  readonly #contents = new Map<string, Shape>();
  readonly #around: Shapes | undefined;

  /** @param around - of the graph around it */
  constructor(
    readonly scope: Scope,
    around?: Shapes,
  ) {
    this.#around = around;
    for (const node of scope.graph.nodes) this.#visit(node);
    this.#hintLastDims();
  }

  /** The shape of a value; undefined when not even its rank is known. */
  shapeOf(value: string): Shape | undefined {
    const known = this.#shapes.get(value) ?? this.scope.graph.initializers.get(value)?.shape;
    if (known) return known;
    const declared = this.scope.declared(value)?.shape;
    if (!declared) return this.#around?.shapeOf(value);
    const shape = declared.map((dim, axis) => dim ?? `${value}#${axis}`);
    this.#shapes.set(value, shape);
    return shape;
  }

  /** The entries of an integer vector when all of them are known. */
  numbersOf(value: string | undefined): readonly number[] | undefined {
    const content = value ? this.contentOf(value) : undefined;
    return content?.every((entry) => typeof entry === 'number') ? (content as readonly number[]) : undefined;
  }

  /** Integers of a node: an attribute in some opsets, an input in later ones. */
  listOf(node: OnnxModelNode, attribute: string, input: number): readonly number[] | undefined {
    return intsAttribute(node, attribute) ?? this.numbersOf(node.inputs[input]);
  }

  /** The entries of a small integer scalar or vector, as far as they are known; undefined when it is none. */
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

  /** Names for the entries of a vector of which only the length is known. */
  #unknownEntries(value: string): Shape | undefined {
    const shape = this.shapeOf(value);
    const length = shape?.length === 1 ? shape[0] : undefined;
    return typeof length === 'number' && length <= MAX_ENTRIES
      ? Array.from({ length }, (_, n) => `${value}[${n}]`)
      : undefined;
  }

  /** x · cos says how wide x is where nothing else does. */
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

/** The integers of a small constant; undefined when it is large, is in another file, or is malformed. */
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
