/**
 * The RoPE of an .onnx file: found, described, and bound to plans that every backend runs. The graph's own arithmetic
 * computes the tables, and the rotation becomes a plan.
 *
 * @module
 */

import { onnx } from '@ropewalk/dialects';
import type { RopeCall, Runner, Tensor } from 'ropewalk';
import { bindRope, isFloat, planRopeWithTable, RopewalkError, tensorFrom } from 'ropewalk';
import { fail, hostOf, newArray, refuse, rowMajorStrides, storeNumber } from 'ropewalk/backend';
import {
  checkRunner,
  checkTensor,
  countElements,
  type OptionNames,
  readIntegers,
  reading,
  readList,
  readOptional,
  readOptions,
  withFresh,
} from 'ropewalk/internal';
import { type OnnxModelFile, type ParseOnnxOptions, parseOnnxModel } from '../format/onnx-model.js';
import { numberAttribute } from '../operators/operator.js';
import { CannotEvaluate, fromTensor, isIntegral, type Value } from '../operators/values.js';
import { describe, type RopeDescription } from './describe.js';
import { Evaluation, SEARCHING, TooMuchWork, Work } from './evaluate.js';
import { type Found, type FoundArithmetic, type FoundNode, findRope, type NearMiss } from './find.js';
import { layersOf } from './layers.js';
import { nodeInputs, positionValues, tablesOf } from './sampling.js';

/** One RoPE of a model. */
export interface ImportedRope extends RopeDescription {
  /** The layer whose keys or queries it rotates; undefined if no cache of keys tells it. */
  readonly layer: number | undefined;
  /** For {@link bindImported}. */
  readonly found: Found;
}

/** The RoPE of an .onnx file. */
export interface ImportedModel {
  readonly model: OnnxModelFile;
  /** Sorted as in the file: the model's main graph, then graphs inside nodes, then functions. */
  readonly ropes: readonly ImportedRope[];
  /** The layers that have a cache of keys (`present.N.key`), ascending; empty if the graph has no such caches. */
  readonly layers: readonly number[];
  /** Arithmetic that resembles RoPE and is none, with the reasons. */
  readonly nearly: readonly NearMiss[];
}

/** The results of {@link importOnnx}. A rope is bound only if it is one of them. */
const FOUND = /* @__PURE__ */ new WeakSet<Found>();

function checkRope(rope: ImportedRope, where: string): ImportedRope {
  const copy = readOptions(rope, where);
  if (!FOUND.has(copy.found)) refuse('RANGE', where, 'a RoPE that importOnnx found', rope);
  return copy;
}

/**
 * Reads a model and finds its RoPE.
 *
 * @param bytes - an .onnx file; it is kept, because tensors are views of it
 * @param where - the name of the file in messages
 * @param options - the loader for tensors in other files
 * @throws {RopewalkError} FORMAT when the file is malformed; UNSUPPORTED when its graph takes more work than a file of
 *   its size may
 * @example const { ropes } = importOnnx(bytes); ropes[0].pairing // 'half'
 */
export function importOnnx(bytes: Uint8Array, where = 'onnx', options: ParseOnnxOptions = {}): ImportedModel {
  const model = parseOnnxModel(bytes, where, options);
  try {
    const { found, nearly } = findRope(model);
    const ropes: ImportedRope[] = [];
    const none: NearMiss[] = [...nearly];
    const { layers, layerOf } = layersOf(model, found, new Work(model.bytes, SEARCHING));
    for (const one of found) {
      const { description, because } = describe(one);
      FOUND.add(one);
      if (because === undefined) ropes.push({ ...description, layer: layerOf.get(one), found: one });
      else none.push({ name: one.name, scopeName: one.scope.name, because });
    }
    return { model, ropes, layers, nearly: none };
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    // The file is not trusted, so unforeseen errors are caught here too.
    const why = cause instanceof TooMuchWork ? cause.message : `it ended in "${cause}"`;
    throw new RopewalkError('UNSUPPORTED', `${where}: this graph cannot be searched: ${why}`, { cause });
  }
}

/**
 * Binds a RoPE of a model to tensors. The graph's own arithmetic gives cos and sin, and the rotation is a plan. The
 * backend computes in f32 and rounds once, whatever casts the graph has between x and y.
 *
 * @param rope - from {@link importOnnx}
 * @param options - x, out, and the inputs of the angles
 * @returns a checked call for {@link Runner.run}
 * @throws {RopewalkError} UNSUPPORTED for a RoPE that cannot be run here, with the reason; SHAPE, DTYPE, RANGE or ALIAS
 *   for tensors that do not fit
 */
export function bindImported(rope: ImportedRope, options: BindOptions): RopeCall {
  return bind(checkRope(rope, 'import: rope'), readTensors(options));
}

const NAMES: OptionNames<BindOptions> = { x: true, out: true, positionIds: true, inputs: true };

/** Reads the options, and checks that their tensors are tensors. */
function readTensors<T extends Partial<BindOptions>>(options: T): T {
  const copy = readOptions(options as Partial<BindOptions>, 'import: options', NAMES);
  const inputs = readOptional(copy.inputs, 'import: inputs');
  for (const [name, tensor] of Object.entries({ ...inputs, x: copy.x, out: copy.out, position_ids: copy.positionIds }))
    if (tensor !== undefined || name === 'x') checkTensor(tensor, `import: ${name}`);
  return (inputs ? { ...copy, inputs } : copy) as T;
}

function bind(rope: ImportedRope, options: BindOptions): RopeCall {
  checkTensor(options.out, 'import: out');
  if (rope.whyNotRun !== undefined || rope.found.kind === 'attention')
    return fail('UNSUPPORTED', `import: ${rope.name}`, `this RoPE cannot be run: ${rope.whyNotRun}`);
  return bindFound(rope.found, options);
}

/**
 * Runs a RoPE of a model.
 *
 * @param rope - from {@link importOnnx}
 * @param runner - the reference, or the backend that holds x
 * @param options - x, and the inputs of the angles
 * @returns y, a fresh dense tensor of x's shape and dtype; reading it waits for the run
 * @throws {RopewalkError} as {@link bindImported}
 */
export function runImported<D extends Tensor>(
  rope: ImportedRope,
  runner: Runner,
  options: Omit<BindOptions, 'out'> & { readonly x: D },
): D {
  checkRunner(runner, 'import: runner');
  const known = checkRope(rope, 'import: rope');
  const given = readTensors(options);
  return withFresh(runner, given.x.dtype, given.x.shape, (out) => {
    runner.run(bind(known, { ...given, out }));
    return out as D;
  });
}

/**
 * Groups RoPE that differs only in the number of heads. 32 layers with q and k have 64 nodes, often with the same
 * description.
 *
 * @param ropes - from {@link importOnnx}
 * @returns groups in the order of their first members
 */
export function groupAlike(ropes: readonly ImportedRope[]): ImportedRope[][] {
  const groups = new Map<string, ImportedRope[]>();
  for (const rope of Array.from(readList(ropes, 'import: ropes'))) {
    const {
      found: _found,
      layer: _layer,
      name: _name,
      x: _x,
      y: _y,
      numHeads: _heads,
      ...alike
    } = checkRope(rope, 'import: ropes');
    // Exporters declare the dtype of some values only.
    const told = { ...alike, dtype: undefined, tables: { from: alike.tables.from, rows: alike.tables.rows } };
    const key = reading('import: ropes', () => JSON.stringify(told));
    const group = groups.get(key);
    if (group) group.push(rope);
    else groups.set(key, [rope]);
  }
  return [...groups.values()];
}

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
