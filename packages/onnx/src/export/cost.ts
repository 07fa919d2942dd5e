/**
 * What a graph costs an accelerator that runs it operator by operator: calls, and bytes read and written. The baseline
 * is RoPE in the twelve steps of an aclnn backend.
 *
 * @module
 */
import { checkInteger, countElements, reading, readName, readOptions } from 'ropewalk/backend';
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

/** Sizes of one RoPE call of the baseline. */
export interface SeedSizes {
  readonly headDim: number;
  readonly heads: number;
  readonly seq: number;
  readonly batch: number;
  /** Bytes of an element of x. */
  readonly dataBytes: 2 | 4;
}

/** One step of the baseline. */
export interface SeedStep {
  /** As the seed document numbers it; 13 is the rotation. */
  readonly step: number;
  readonly what: string;
  readonly calls: number;
  readonly bytesRead: number;
  readonly bytesWritten: number;
  /** Bytes of buffers that the step asks for. */
  readonly buffered: number;
}

/**
 * The twelve steps by which seed document 000, section 5, builds cos and sin on an NPU, in f32, and then the rotation.
 * Steps that the document marks as optimised are left out: the power is computed in place, and the transposition is a
 * view.
 *
 * @param sizes - of the call
 * @param rotation - fused: one operator that reads x and both full-width tables; primitives: x · cos + (−x1, x0) · sin,
 *   as graphs write it
 * @throws {RopewalkError} RANGE for a size that is no integer >= 0; UNSUPPORTED for another rotation
 */
export function seedSteps(sizes: SeedSizes, rotation: 'fused' | 'primitives'): readonly SeedStep[] {
  const { headDim, heads, seq, batch, dataBytes } = readOptions(sizes, 'sizes');
  for (const [name, size] of Object.entries({ headDim, heads, seq, batch, dataBytes }))
    checkInteger(size, `sizes: ${name}`, 0);
  readName(rotation, ['fused', 'primitives'], 'rotation');
  const half = (headDim / 2) * 4;
  const table = half * seq;
  const x = headDim * heads * seq * batch * dataBytes;
  const step = (
    n: number,
    what: string,
    calls: number,
    bytesRead: number,
    bytesWritten: number,
    buffered = 0,
  ): SeedStep => ({ step: n, what, calls, bytesRead, bytesWritten, buffered });
  return [
    step(1, 'buffers for sin and cos, full width', 0, 0, 0, 4 * table),
    step(2, 'arange', 1, 0, half, half),
    step(3, 'power, in place', 1, half, half),
    step(4, 'times freq_scale', 1, half, half),
    step(5, 'divided by freq_factors', 1, 2 * half, half),
    step(6, 'positions', 0, 0, 0),
    step(7, 'outer product with positions', 1, half + 4 * seq, table, table),
    step(8, 'transposition, a view', 0, 0, 0),
    step(9, 'buffers for sin and cos, half width', 0, 0, 0, 2 * table),
    step(10, 'sin, cos', 2, 2 * table, 2 * table),
    step(11, 'times attn_factor, twice', 2, 2 * table, 2 * table),
    step(12, 'repeat, twice', 2, 2 * table, 4 * table),
    rotation === 'fused'
      ? step(13, 'rotation, one fused operator', 1, x + 4 * table, x)
      : step(13, 'rotation: split, negate, concatenate, two products, a sum', 6, 6.5 * x + 4 * table, 5.5 * x, 4.5 * x),
  ];
}
