/**
 * Binds a RoPE of a model to tensors. The graph's own arithmetic computes its tables; its rotation becomes a plan that
 * any backend runs.
 *
 * @module
 */
import { onnx } from '@ropewalk/dialects';
import { bindRope, isFloat, planRopeWithTable, type RopeCall, RopewalkError, type Tensor, tensorFrom } from 'ropewalk';
import { fail, hostOf, newArray, refuse, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import { countElements, readIntegers } from 'ropewalk/internal';
import { numberAttribute } from '../operators/operator.js';
import { CannotEvaluate, fromTensor, isIntegral, type Value } from '../operators/values.js';
import { Evaluation, Work } from './evaluate.js';
import type { FoundArithmetic, FoundNode } from './find.js';
import { nodeInputs, positionValues, tablesOf } from './sampling.js';

/** The tensors of one call. */
export interface BindOptions {
  /** The value to rotate, in the graph's shape, with any strides and on any backend. */
  readonly x: Tensor;
  /**
   * The result, with x's shape and dtype. It may be x itself, unless the pairing reads neighbours and writes halves.
   */
  readonly out: Tensor;
  /** The positions, in the graph's shape or without its leading dimensions: integers in host memory. */
  readonly positionIds?: Tensor;
  /** Other values that the tables need, by their names in the graph, in host memory. */
  readonly inputs?: Readonly<Record<string, Tensor>>;
}

export function bindFound(found: FoundNode | FoundArithmetic, options: BindOptions): RopeCall {
  const where = `import: ${found.name}`;
  try {
    return found.kind === 'node' ? bindNode(found, options, where) : bindArithmetic(found, options, where);
  } catch (cause) {
    if (!(cause instanceof CannotEvaluate)) throw cause;
    const positions = positionValues(found);
    if (cause.missing !== undefined && options.positionIds === undefined && positions.length > 0) {
      const sentence = `give the tokens' positions, which the graph calls ${positions.join(', ')}`;
      fail('SHAPE', `${where}: position_ids`, sentence);
    }
    if (cause.message.startsWith('position '))
      throw new RopewalkError('RANGE', `${where}: position_ids: ${cause.message}`, { cause });
    if (cause.missing !== undefined) {
      const sentence = `give ${cause.missing}, from which the tables are computed: ${cause.message}`;
      throw new RopewalkError('SHAPE', `${where}: inputs: ${sentence}`, { cause });
    }
    throw new RopewalkError('UNSUPPORTED', `${where}: its tables cannot be computed: ${cause.message}`, { cause });
  }
}

/** Starts an evaluation with the tensors of the call, and with the sizes that they give to named dimensions. */
function evaluationOf(found: FoundNode | FoundArithmetic, options: BindOptions, where: string): Evaluation {
  const { scope, shapes } = found;
  const { x, positionIds, inputs = {} } = options;
  const dims = new Map<string, number>();
  const values = new Map<string, Value>();
  const unify = (name: string, shape: readonly number[], what: string): void => {
    const declared = shapes.shapeOf(name);
    if (!declared) return;
    const fits =
      declared.length === shape.length && declared.every((dim, d) => typeof dim === 'string' || dim === shape[d]);
    if (!fits) refuse('SHAPE', `${where}: ${what}`, `shape [${declared.join(', ')}], as ${name} has`, [...shape]);
    for (const [d, dim] of declared.entries()) {
      if (typeof dim !== 'string') continue;
      const known = dims.get(dim);
      if (known !== undefined && known !== shape[d])
        refuse('SHAPE', `${where}: ${what}`, `${dim} = ${known} in dimension ${d}`, [...shape]);
      dims.set(dim, shape[d]!);
    }
  };
  for (const [name, tensor] of Object.entries(inputs)) {
    const at = `${where}: inputs.${name}`;
    if (!scope.graphInput(name) && !scope.maker(name)) fail('RANGE', at, 'the graph has no value of this name');
    unify(name, tensor.shape, `inputs.${name}`);
    const declared = scope.declared(name)?.dtype;
    if (declared && !isFloat(declared) && isFloat(tensor.dtype)) refuse('DTYPE', at, 'integers', tensor.dtype);
    hostOf(tensor, at);
    values.set(name, fromTensor(tensor));
  }
  unify(found.kind === 'node' ? nodeInputs(found).x : found.x, x.shape, 'x');
  if (positionIds) {
    const at = `${where}: position_ids`;
    const [name, ...others] = positionValues(found);
    if (name === undefined)
      return fail('SHAPE', at, 'this RoPE takes none: the row of each token is its place in the sequence');
    if (others.length > 0)
      fail('UNSUPPORTED', at, `positions enter at ${[name, ...others].join(', ')}. Give each by its name in inputs.`);
    if (isFloat(positionIds.dtype)) refuse('DTYPE', at, 'integers', positionIds.dtype);
    const data = Float64Array.from(readIntegers(positionIds, at));
    const rank = shapes.shapeOf(name)?.length ?? positionIds.rank;
    const shape = [...new Array<number>(Math.max(0, rank - positionIds.rank)).fill(1), ...positionIds.shape];
    unify(name, shape, 'position_ids');
    values.set(name, { dtype: 'i64', shape, data });
  }
  const elements = [x, positionIds, ...Object.values(inputs)].map((tensor) => tensor?.size ?? 0);
  const work = new Work(found.work.bytes + elements.reduce((sum, size) => sum + size, 0));
  return new Evaluation(scope, shapes, { values, dims, wholeCaches: positionIds !== undefined }, work);
}

function bindNode(found: FoundNode, options: BindOptions, where: string): RopeCall {
  const { cos, sin, ids } = nodeInputs(found);
  const { x, out } = options;
  const evaluation = evaluationOf(found, options, where);
  const cache = (name: string): Tensor<'f32'> => {
    const constant = found.scope.initializer(name);
    return (constant ? constant.read() : toTensor(evaluation.value(name))) as Tensor<'f32'>;
  };
  const [cos_cache, sin_cache] = [cache(cos), cache(sin)];
  const interleaved = numberAttribute(found.node, 'interleaved', 0) as 0 | 1;
  const rotary_embedding_dim = numberAttribute(found.node, 'rotary_embedding_dim', 0);
  let num_heads = numberAttribute(found.node, 'num_heads', 0);
  if (found.dialect === 'onnxruntime' && x.rank === 3 && num_heads === 0 && rotary_embedding_dim === 0) {
    // ONNX Runtime takes the size of a head from its caches: contrib_ops/cpu/bert/rotary_embedding_helper.h,
    // microsoft/onnxruntime@076ffcd.
    num_heads = x.shape[2]! / (2 * cos_cache.shape.at(-1)!);
  }
  const position_ids = ids === '' ? undefined : idsOf(found, evaluation.value(ids), x, where);
  return onnx.planRotaryEmbedding(
    { X: x as Tensor<'f32'>, cos_cache, sin_cache, position_ids },
    { interleaved, rotary_embedding_dim, num_heads },
    out as Tensor<'f32'>,
  );
}

/** Makes i64 `[batch, seq]`. ONNX Runtime also takes a single number, from which each sequence counts. */
function idsOf(found: FoundNode, ids: Value, x: Tensor, where: string): Tensor<'i64'> {
  if (!isIntegral(ids.dtype)) refuse('DTYPE', `${where}: position_ids`, 'integers', ids.dtype);
  const [batch = 1, seqLen = 1] = x.rank === 4 ? [x.shape[0], x.shape[2]] : x.shape;
  if (found.dialect === 'onnxruntime' && ids.data.length === 1 && ids.shape.length <= 1) {
    const all = BigInt64Array.from({ length: batch * seqLen }, (_, n) => BigInt(ids.data[0]! + (n % seqLen)));
    return tensorFrom<'i64'>(all, { shape: [batch, seqLen] });
  }
  if (ids.shape.length !== 2) refuse('SHAPE', `${where}: position_ids`, `[${batch}, ${seqLen}]`, ids.shape);
  return tensorFrom<'i64'>(BigInt64Array.from(ids.data, BigInt), { shape: ids.shape });
}

function toTensor({ dtype, shape, data }: Value): Tensor {
  if (dtype === 'bool' || !isFloat(dtype)) throw new CannotEvaluate(`a cache holds ${dtype}`);
  const stored = newArray(dtype, data.length);
  for (const [n, number] of data.entries()) storeNumber(stored, dtype, n, number);
  return tensorFrom(stored, { dtype, shape });
}

function bindArithmetic(found: FoundArithmetic, options: BindOptions, where: string): RopeCall {
  const { x, out } = options;
  const { headDim, rotaryDim, rotaryOffset, pairing, direction } = found.rotation;
  if (x.rank < 2 || x.rank > 4)
    refuse('UNSUPPORTED', `${where}: x`, '2 to 4 dimensions, the last of them a head', [...x.shape]);
  if (x.shape.at(-1) !== headDim) refuse('SHAPE', `${where}: x`, `${headDim} in the last dimension`, [...x.shape]);
  const tables = tablesOf(found, evaluationOf(found, options, where));
  const { outer, seqAxis, view } = layOut(x, tables.outer, where);
  const seqLen = view(x).shape[seqAxis]!;
  const batch = outer[0] > 1 ? outer[0] : undefined;
  const own = rowMajorStrides(outer);
  const stride = outer[seqAxis] === 1 ? 0 : own[seqAxis]!;
  const rowOf = (n: number): number => (batch ? Math.floor(n / seqLen) * own[0]! : 0) + (n % seqLen) * stride;
  const tableRows = Array.from({ length: (batch ?? 1) * seqLen }, (_, n) => rowOf(n));
  const as = (values: Float64Array): Float32Array | Float64Array => (tables.wide ? values : Float32Array.from(values));
  const window = { headDim, rotaryDim, rotaryOffset, pairing, direction };
  const table = { rows: countElements(outer), pairs: tables.pairs, cos: as(tables.cos), sin: as(tables.sin) };
  const plan = planRopeWithTable({ ...window, table, seqLen, batch, tableRows });
  return bindRope(plan, view(x), view(out), seqAxis === 1 ? 'bsnh' : 'bnsh');
}

/**
 * Finds the token dimension of x, along which the tables change. `outer` is the batch of the tables and two dimensions,
 * one of them for tokens; `view` gives x and out four dimensions.
 */
function layOut(x: Tensor, tables: readonly number[], where: string) {
  const lead = x.shape.slice(0, -1);
  const full = lead.map((_, axis) => tables[axis - lead.length + tables.length] ?? 1);
  const extra = tables.slice(0, Math.max(0, tables.length - lead.length));
  if (extra.some((dim) => dim !== 1) || full.some((dim, axis) => dim !== 1 && dim !== lead[axis])) {
    const why = `cos and sin of [${tables}] do not broadcast to [${x.shape}]. Are there as many positions as tokens?`;
    fail('SHAPE', `${where}: x`, why);
  }
  // Without a head dimension each token is one head: [seq, head_dim], or [batch, seq, head_dim].
  const oneHead = lead.length === 2 ? full[0] !== 1 && full[1] !== 1 : lead.length === 1;
  const three = (dims: readonly number[]): [number, number, number] => {
    const own = oneHead ? [...dims, 1] : dims;
    return [...new Array<number>(3 - own.length).fill(1), ...own] as [number, number, number];
  };
  const outer = three(full);
  if (outer[1] !== 1 && outer[2] !== 1) {
    const why = `tables of [${tables}] change along both inner dimensions, so from head to head`;
    fail('UNSUPPORTED', `${where}: x`, why);
  }
  const seqAxis: 1 | 2 = oneHead || outer[1] !== 1 ? 1 : 2;
  const view = (tensor: Tensor): Tensor =>
    tensor.rank === 4 ? tensor : tensor.view([...three(tensor.shape.slice(0, -1)), tensor.shape.at(-1)!]);
  return { outer, seqAxis, view };
}
