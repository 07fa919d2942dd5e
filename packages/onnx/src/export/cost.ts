/**
 * What a graph costs an accelerator that runs it operator by operator: calls, and bytes read and written.
 *
 * @module
 */
import { checkInteger, countElements, reading, readOptions } from 'ropewalk/internal';
import type { OnnxModel } from '../format/onnx.js';
import { operatorNamed } from '../operators/index.js';
import { bytesOf, valueTypes } from './shapes.js';

/** Operators, and the bytes that they move. */
export interface GraphCost {
  /** Operators that touch data, by type. */
  readonly calls: ReadonlyMap<string, number>;
  readonly count: number;
  /** Operators that only give the same bytes another shape. */
  readonly views: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Bytes of all values between nodes. */
  readonly bytesBuffered: number;
}

/**
 * Counts a graph. Each node reads its inputs, constants too, and writes its outputs. A look-up reads as much of the
 * table as it writes; a RotaryEmbedding with position_ids and a GroupQueryAttention read the rows of the tokens. Constants that are shapes or
 * axes are not counted.
 *
 * @param model - a graph of ours
 * @param sizes - of open dimensions
 * @param given - integers of inputs that decide sizes, such as num_logits_to_keep of a decoder
 * @throws {RopewalkError} RANGE for what is no graph, or no sizes
 */
export function graphCost(
  model: OnnxModel,
  sizes: Readonly<Record<string, number>> = {},
  given: Readonly<Record<string, readonly number[]>> = {},
): GraphCost {
  const own = readOptions(sizes, 'sizes');
  for (const [name, size] of Object.entries(own)) checkInteger(size, `sizes: ${name}`, 0);
  return reading('graph', () => costOf(model, own, given));
}

function costOf(
  model: OnnxModel,
  sizes: Readonly<Record<string, number>>,
  given: Readonly<Record<string, readonly number[]>>,
): GraphCost {
  const types = valueTypes(model, sizes, given);
  const calls = new Map<string, number>();
  let [count, views, bytesRead, bytesWritten, bytesBuffered] = [0, 0, 0, 0, 0];
  const outputs = new Set(model.outputs.map(({ name }) => name));
  // An output that a view only reshapes is not a separate buffer.
  for (const node of model.nodes.toReversed())
    if (operatorNamed(node.opType)?.cost === 'view' && outputs.has(node.outputs[0]!)) outputs.add(node.inputs[0]!);
  const size = (name: string): number => (name === '' ? 0 : bytesOf(types.get(name)!));
  for (const node of model.nodes) {
    const cost = operatorNamed(node.opType)?.cost;
    if (cost === 'view') {
      views++;
      continue;
    }
    count++;
    calls.set(node.opType, (calls.get(node.opType) ?? 0) + 1);
    const written = node.outputs.reduce((sum, name) => sum + size(name), 0);
    bytesWritten += written;
    for (const name of node.outputs) if (!outputs.has(name)) bytesBuffered += size(name);
    const readOf = (name: string, n: number): number => {
      const lookup = cost === 'lookup';
      if (model.initializers.get(name)?.dtype === 'i64' && !lookup) return 0;
      if (lookup && n === 0) return Math.min(written, size(name));
      const { dtype, shape } = types.get(name) ?? { dtype: 'u8', shape: [0] };
      const rotates = node.opType === 'RotaryEmbedding' && node.inputs.length > 3 && (n === 1 || n === 2);
      const isTable = rotates || (node.opType === 'GroupQueryAttention' && (n === 7 || n === 8));
      if (!isTable) return size(name);
      // The rows of the tokens, `[batch, seq]`: of position_ids, or of the query.
      const rows = countElements(types.get(node.inputs[rotates ? 3 : 0]!)!.shape.slice(0, 2));
      return Math.min(size(name), rows * bytesOf({ dtype, shape: shape.slice(1) }));
    };
    for (const [n, name] of node.inputs.entries()) bytesRead += readOf(name, n);
  }
  return { calls, count, views, bytesRead, bytesWritten, bytesBuffered };
}
