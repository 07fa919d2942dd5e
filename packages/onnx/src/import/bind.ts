/**
 * Binds a RoPE of a model to tensors of ours: its tables by the graph's own arithmetic, its rotation as a plan that any backend runs.
 *
 * @module
 */

import { planRotaryEmbedding } from '@ropewalk/dialects';
import {
  bindRope,
  type Dtype,
  isFloat,
  planRopeWithTable,
  type RopeCall,
  RopewalkError,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { countElements, hostOf, newArray, readIntegers, refuse, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import { numberAttribute } from '../operators/attributes.js';
import { CannotEvaluate, fromTensor, type Value } from '../operators/values.js';
import { Evaluation } from './evaluate.js';
import type { FoundArithmetic, FoundNode } from './find.js';
import { nodeInputs, positionValues } from './sampling.js';
import { tablesOf } from './tables.js';
import { Work } from './work.js';

/** The tensors of one call. */
export interface BindOptions {
  /** The value that is turned, in the graph's shape; any strides, on any backend. */
  readonly x: Tensor;
  /** The result, x's shape and dtype; may be x itself, unless the pairing reads neighbours and writes halves. */
  readonly out: Tensor;
  /** What enters the angles, in the graph's shape or without its leading dimensions; any integers, in host memory. */
  readonly positionIds?: Tensor;
  /** Other values that the tables need, by their names in the graph, in host memory. */
  readonly inputs?: Readonly<Record<string, Tensor>>;
}

/**
 * Makes a checked call.
 *
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS in the words of the node; UNSUPPORTED for what is not run here
 */
export function bindFound(found: FoundNode | FoundArithmetic, options: BindOptions): RopeCall {
  const where = `import: ${found.name}`;
  try {
    return found.kind === 'node' ? bindNode(found, options, where) : bindArithmetic(found, options, where);
  } catch (error) {
    if (!(error instanceof CannotEvaluate)) throw error;
    return refuseMissing(found, options, error, where);
  }
}

function refuseMissing(
  found: FoundNode | FoundArithmetic,
  options: BindOptions,
  error: CannotEvaluate,
  where: string,
): never {
  const positions = positionValues(found);
  if (error.missing !== undefined && options.positionIds === undefined && positions.length > 0) {
    return refuse(
      'SHAPE',
      `${where}: position_ids`,
      `the positions of the tokens, which the graph calls ${positions.join(', ')}`,
      undefined,
    );
  }
  if (error.message.startsWith('position '))
    throw new RopewalkError('RANGE', `${where}: position_ids: ${error.message}`, { cause: error });
  if (error.missing !== undefined) {
    return refuse(
      'SHAPE',
      `${where}: inputs`,
      `${error.missing}, from which the tables are computed`,
      undefined,
      `${error.message}.`,
    );
  }
  throw new RopewalkError('UNSUPPORTED', `${where}: expected tables that can be computed here, got: ${error.message}`, {
    cause: error,
  });
}

/** Sizes of the shapes' names, from tensors that are there. */
function evaluationOf(found: FoundNode | FoundArithmetic, options: BindOptions, where: string): Evaluation {
  const dims = new Map<string, number>();
  const values = new Map<string, Value>();
  const unify = (name: string, shape: readonly number[], what: string): void => {
    const declared = found.shapes.shapeOf(name);
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
  for (const [name, tensor] of Object.entries(options.inputs ?? {})) {
    if (!found.scope.graphInput(name) && !found.scope.maker(name))
      refuse('RANGE', `${where}: inputs`, 'names of values of the graph', name);
    unify(name, tensor.shape, `inputs.${name}`);
    const declared = found.scope.declared(name)?.dtype;
    if (declared && !isFloat(declared) && isFloat(tensor.dtype))
      refuse('DTYPE', `${where}: inputs.${name}`, 'integers', tensor.dtype);
    hostOf(tensor, `${where}: inputs.${name}`);
    values.set(name, fromTensor(tensor));
  }
  const x = found.kind === 'node' ? nodeInputs(found).x : found.x;
  unify(x, options.x.shape, 'x');
  const positions = positionValues(found);
  if (options.positionIds) {
    if (positions.length === 0)
      refuse('SHAPE', `${where}: position_ids`, 'none: the graph takes rows in order', [...options.positionIds.shape]);
    if (positions.length > 1)
      refuse(
        'UNSUPPORTED',
        `${where}: position_ids`,
        'one value that holds the positions',
        positions,
        'Give them in inputs, by name.',
      );
    const [name] = positions as [string];
    const given = options.positionIds;
    if (isFloat(given.dtype)) refuse('DTYPE', `${where}: position_ids`, 'integers', given.dtype);
    hostOf(given, `${where}: position_ids`);
    const ids = readIntegers(given, `${where}: position_ids`);
    const rank = found.shapes.shapeOf(name)?.length ?? given.rank;
    const shape = [...new Array<number>(Math.max(0, rank - given.rank)).fill(1), ...given.shape];
    unify(name, shape, 'position_ids');
    values.set(name, { dtype: 'i64', shape, data: Float64Array.from(ids) });
  }
  const tensors = [
    options.x,
    ...(options.positionIds ? [options.positionIds] : []),
    ...Object.values(options.inputs ?? {}),
  ];
  const work = new Work(found.work.bytes + tensors.reduce((sum, tensor) => sum + countElements(tensor.shape), 0));
  return new Evaluation(
    found.scope,
    found.shapes,
    { values, dims, wholeCaches: options.positionIds !== undefined },
    work,
  );
}

function bindNode(found: FoundNode, options: BindOptions, where: string): RopeCall {
  const { cos, sin, ids } = nodeInputs(found);
  const { x, out } = options;
  const evaluation = evaluationOf(found, options, where);
  const cache = (name: string): Tensor => {
    const constant = found.scope.initializer(name);
    return constant ? constant.read() : toTensor(evaluation.value(name));
  };
  const [cos_cache, sin_cache] = [cache(cos), cache(sin)] as Tensor<'f32'>[];
  const interleaved = numberAttribute(found.node, 'interleaved', 0) as 0 | 1;
  const rotary_embedding_dim = numberAttribute(found.node, 'rotary_embedding_dim', 0);
  let num_heads = numberAttribute(found.node, 'num_heads', 0);
  if (found.dialect === 'onnxruntime' && x.rank === 3 && num_heads === 0 && rotary_embedding_dim === 0) {
    // ONNX Runtime takes the size of a head from its caches: contrib_ops/cpu/bert/rotary_embedding_helper.h, microsoft/onnxruntime@076ffcd.
    num_heads = x.shape[2]! / (2 * cos_cache!.shape.at(-1)!);
  }
  const position_ids = ids === '' ? undefined : idsOf(found, evaluation.value(ids), x, where);
  return planRotaryEmbedding(
    { X: x as Tensor<'f32'>, cos_cache: cos_cache!, sin_cache: sin_cache!, ...(position_ids && { position_ids }) },
    { interleaved, rotary_embedding_dim, num_heads },
    out as Tensor<'f32'>,
  );
}

/** i64 `[batch, seq]`; ONNX Runtime also takes one number, from which each sequence counts. */
function idsOf(found: FoundNode, ids: Value, x: Tensor, where: string): Tensor<'i64'> {
  if (ids.dtype !== 'bool' && isFloat(ids.dtype)) refuse('DTYPE', `${where}: position_ids`, 'integers', ids.dtype);
  const [batch = 1, seqLen = 1] = x.rank === 4 ? [x.shape[0], x.shape[2]] : x.shape;
  if (found.dialect === 'onnxruntime' && ids.data.length === 1 && ids.shape.length <= 1) {
    const all = BigInt64Array.from({ length: batch * seqLen }, (_, n) => BigInt(ids.data[0]! + (n % seqLen)));
    return tensorFrom<'i64'>(all, { shape: [batch, seqLen] });
  }
  if (ids.shape.length !== 2) refuse('SHAPE', `${where}: position_ids`, `[${batch}, ${seqLen}]`, ids.shape);
  return tensorFrom<'i64'>(BigInt64Array.from(ids.data, BigInt), { shape: ids.shape });
}

function toTensor(value: Value): Tensor {
  const dtype: Dtype = value.dtype === 'bool' ? 'u8' : value.dtype;
  if (!isFloat(dtype)) throw new CannotEvaluate('a cache of integers');
  const data = newArray(dtype, value.data.length);
  for (const [n, number] of value.data.entries()) storeNumber(data, dtype, n, number);
  return tensorFrom(data, { dtype, shape: value.shape });
}

function bindArithmetic(found: FoundArithmetic, options: BindOptions, where: string): RopeCall {
  const { x, out } = options;
  const { rotation } = found;
  if (x.rank < 2 || x.rank > 4)
    refuse('UNSUPPORTED', `${where}: x`, '2 to 4 dimensions, the last of them a head', [...x.shape]);
  if (x.shape.at(-1) !== rotation.headDim)
    refuse('SHAPE', `${where}: x`, `${rotation.headDim} in the last dimension`, [...x.shape]);
  const tables = tablesOf(found, evaluationOf(found, options, where));
  const { outer, seqAxis, layout, view } = layOut(x, tables.outer, where);
  const [batch, seqLen] = [outer[0]!, x.rank === 2 ? x.shape[0]! : view(x).shape[layout === 'bsnh' ? 1 : 2]!];
  const own = rowMajorStrides(outer);
  const perBatch = batch > 1;
  const stride = outer[seqAxis] === 1 ? 0 : own[seqAxis]!;
  const count = (perBatch ? batch : 1) * seqLen;
  const tableRows = Array.from(
    { length: count },
    (_, n) => (perBatch ? Math.floor(n / seqLen) * own[0]! : 0) + (n % seqLen) * stride,
  );
  const as = (values: Float64Array): Float32Array | Float64Array => (tables.wide ? values : Float32Array.from(values));
  const plan = planRopeWithTable({
    headDim: rotation.headDim,
    rotaryDim: rotation.rotaryDim,
    rotaryOffset: rotation.rotaryOffset,
    pairing: rotation.pairing,
    direction: rotation.direction,
    table: { rows: countElements(outer), pairs: tables.pairs, cos: as(tables.cos), sin: as(tables.sin) },
    seqLen,
    ...(perBatch ? { batch } : {}),
    tableRows,
  });
  return bindRope(plan, view(x), view(out), layout);
}

interface LaidOut {
  /** Of the tables, three dimensions: batch and the two that may be tokens. */
  readonly outer: readonly [number, number, number];
  readonly seqAxis: 1 | 2;
  readonly layout: 'bsnh' | 'bnsh';
  /** x and out as four dimensions. */
  readonly view: (tensor: Tensor) => Tensor;
}

/** Which dimension of x is the tokens': the one along which the tables change. */
function layOut(x: Tensor, tables: readonly number[], where: string): LaidOut {
  const lead = x.shape.slice(0, -1);
  const full = lead.map((_, axis) => tables[axis - lead.length + tables.length] ?? 1);
  const extra = tables.slice(0, Math.max(0, tables.length - lead.length));
  if (extra.some((dim) => dim !== 1) || full.some((dim, axis) => dim !== 1 && dim !== lead[axis])) {
    refuse(
      'SHAPE',
      `${where}: x`,
      `dimensions that cos and sin of [${tables}] broadcast to`,
      [...x.shape],
      'Are there as many positions as tokens?',
    );
  }
  const wide = (tensor: Tensor): Tensor =>
    tensor.rank === 4 ? tensor : tensor.view([...new Array<number>(4 - tensor.rank).fill(1), ...tensor.shape]);
  if (x.rank === 2) {
    // Tokens alone: one head.
    return {
      outer: [1, full[0]!, 1],
      seqAxis: 1,
      layout: 'bsnh',
      view: (tensor) => tensor.view([1, tensor.shape[0]!, 1, tensor.shape[1]!]),
    };
  }
  if (x.rank === 3 && full[0] !== 1 && full[1] !== 1) {
    return {
      outer: [full[0]!, full[1]!, 1],
      seqAxis: 1,
      layout: 'bsnh',
      view: (tensor) => tensor.view([tensor.shape[0]!, tensor.shape[1]!, 1, tensor.shape[2]!]),
    };
  }
  const [b, first, second] = [x.rank === 4 ? full[0]! : 1, full.at(-2)!, full.at(-1)!];
  if (first !== 1 && second !== 1) {
    refuse(
      'UNSUPPORTED',
      `${where}: x`,
      'angles that are the same for all heads',
      `tables of [${tables}]`,
      'They change along both inner dimensions.',
    );
  }
  return first === 1
    ? { outer: [b, 1, second], seqAxis: 2, layout: 'bnsh', view: wide }
    : { outer: [b, first, 1], seqAxis: 1, layout: 'bsnh', view: wide };
}
