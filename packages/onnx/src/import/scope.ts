/**
 * A graph to look things up in: who makes a value, who reads it, what is known of its shape.
 *
 * @module
 */
import type { OnnxGraph, OnnxModelFile, OnnxModelNode, OnnxTensor, OnnxValueType } from '../format/onnx-model.js';

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
