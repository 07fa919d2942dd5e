/**
 * Traces a value back: to the graph inputs that it needs, the operators on the way, and the place where positions
 * enter.
 *
 * @module
 */
import { isFloat } from 'ropewalk';
import type { OnnxModelNode } from '../format/onnx-model.js';
import { operatorOf } from '../operators/index.js';
import { constantOfNode } from '../operators/operator.js';
import { isIntegral, type ValueDtype } from '../operators/values.js';
import type { Scope } from './scope.js';

/** Tables have fewer values behind them than this. A value with more comes from hidden states. */
const MAX_WALK = 400;

interface Ancestry {
  /** Graph inputs whose elements it needs. */
  readonly inputs: ReadonlySet<string>;
  /** Values of which it needs only the shape. */
  readonly shapesOf: ReadonlySet<string>;
  /** Operators behind it that are not computed here, or a note that there are too many. */
  readonly unknown: ReadonlySet<string>;
  /** The value and all values behind it. */
  readonly values: readonly string[];
}

/** Walks back from a value, but not beyond the values in `stop`. */
export function ancestryOf(scope: Scope, value: string, stop: ReadonlySet<string> = new Set()): Ancestry {
  const inputs = new Set<string>();
  const shapesOf = new Set<string>();
  const unknown = new Set<string>();
  const seen = new Set<string>();
  const queue = [value];
  while (queue.length > 0) {
    const at = queue.shift()!;
    if (at === '' || seen.has(at) || stop.has(at)) continue;
    seen.add(at);
    if (seen.size > MAX_WALK) {
      unknown.add('too many operators');
      break;
    }
    if (scope.initializer(at)) continue;
    const node = scope.maker(at);
    if (!node) {
      inputs.add(at);
      continue;
    }
    if (!operatorOf(node)?.compute) {
      unknown.add(node.domain === '' ? node.opType : `${node.domain}.${node.opType}`);
      continue;
    }
    if (node.opType === 'Shape' || node.opType === 'Size') {
      shapesOf.add(node.inputs[0] ?? '');
      continue;
    }
    queue.push(...node.inputs);
    if (node.opType === 'If') {
      // Branches read values of the graph around them by name.
      for (const attribute of node.attributes.values()) {
        if (attribute.kind !== 'graph') continue;
        const { nodes, outputs, initializers } = attribute.value;
        const own = new Set(nodes.flatMap((inner) => inner.outputs));
        const read = [...nodes.flatMap((inner) => inner.inputs), ...outputs.map((output) => output.name)];
        queue.push(...read.filter((name) => !own.has(name) && !initializers.has(name)));
      }
    }
  }
  return { inputs, shapesOf, unknown, values: [...seen] };
}

/** True if a cosine, a sine or a table of constants is behind a leaf, and no floating input of the graph. */
export function isTable(scope: Scope, value: string): boolean {
  const { inputs, unknown, values } = ancestryOf(scope, value, positionsBehind(scope, value));
  if (unknown.size > 0) return false;
  for (const input of inputs) {
    const dtype = scope.graphInput(input)?.dtype;
    if (dtype === undefined || isFloat(dtype)) return false;
  }
  return values.some((name) => {
    const constant = scope.initializer(name);
    if (constant) return constant.dtype !== undefined && isFloat(constant.dtype) && constant.shape.length > 0;
    const node = scope.maker(name);
    if (node?.opType === 'Constant') return (constantOfNode(node)?.shape.length ?? 0) > 0;
    return node?.opType === 'Cos' || node?.opType === 'Sin';
  });
}

/**
 * Finds the positions behind a table, usually `position_ids` alone: the integers that are cast to float or choose rows,
 * followed back towards the graph's inputs as long as they keep their values.
 */
export function positionsBehind(scope: Scope, value: string): Set<string> {
  const positions = new Set<string>();
  const seen = new Set<string>();
  const queue = [value];
  while (queue.length > 0 && seen.size <= MAX_WALK) {
    const at = queue.shift()!;
    if (at === '' || seen.has(at) || scope.initializer(at)) continue;
    seen.add(at);
    const node = scope.maker(at);
    if (isInteger(scope, at)) {
      if (!node || !isConstant(scope, at)) positions.add(firstOf(scope, at));
      continue;
    }
    if (node?.domain === '') queue.push(...dataInputs(node));
  }
  return positions;
}

/** Returns the inputs of a node that are data, without sizes and indices. */
function dataInputs(node: OnnxModelNode): readonly string[] {
  return node.inputs.slice(...(operatorOf(node)?.data ?? []));
}

/** Returns the graph input from which integers come one by one; otherwise the first value of a chain of views. */
function firstOf(scope: Scope, value: string): string {
  let input = value;
  for (let step = 0; step < MAX_WALK; step++) {
    if (scope.graphInput(input)) return input;
    const node = scope.maker(input);
    if (!node || !operatorOf(node)?.positions) break;
    const data = node.opType === 'Gather' ? node.inputs.slice(0, 1) : dataInputs(node);
    const moving = data.filter((one) => one !== '' && !isConstant(scope, one));
    if (moving.length !== 1) break;
    input = moving[0]!;
  }
  let at = value;
  for (let step = 0; step < MAX_WALK; step++) {
    const node = scope.maker(at);
    const before = node?.inputs[0] ?? '';
    if (!node || operatorOf(node)?.positions !== 'same' || !isInteger(scope, before) || scope.initializer(before))
      return at;
    at = before;
  }
  return at;
}

export function isConstant(scope: Scope, value: string): boolean {
  const { inputs, shapesOf, unknown } = ancestryOf(scope, value);
  return inputs.size === 0 && shapesOf.size === 0 && unknown.size === 0;
}

function isInteger(scope: Scope, value: string): boolean {
  const dtype = dtypeOf(scope, value);
  return dtype !== undefined && isIntegral(dtype);
}

/** The dtypes of each graph's values are kept, because many walks pass the same values. */
const DTYPES = /* @__PURE__ */ new WeakMap<Scope, Map<string, ValueDtype | undefined>>();

/** Returns the dtype of a value if the file tells it. */
function dtypeOf(scope: Scope, value: string, depth = 0): ValueDtype | undefined {
  const known = DTYPES.get(scope) ?? new Map<string, ValueDtype | undefined>();
  DTYPES.set(scope, known);
  if (known.has(value)) return known.get(value);
  known.set(value, undefined); // asking for it again during the computation is a cycle
  const dtype = dtypeFrom(scope, value, depth);
  known.set(value, dtype);
  return dtype;
}

function dtypeFrom(scope: Scope, value: string, depth: number): ValueDtype | undefined {
  const said = scope.initializer(value) ?? scope.declared(value);
  const node = scope.maker(value);
  if (said?.dtype || !node || depth > MAX_WALK) return said?.dtype;
  const operator = operatorOf(node);
  if (!operator) return undefined;
  const own = operator.further?.[node.outputs.indexOf(value) - 1];
  if (own) return own;
  const inputOf = (input: number): ValueDtype | undefined =>
    node.inputs[input] ? dtypeOf(scope, node.inputs[input], depth + 1) : undefined;
  return operator.dtype
    ? operator.dtype({ node, dtype: ([input]) => inputOf(input!) })
    : inputOf(operator.data?.[0] ?? 0);
}
