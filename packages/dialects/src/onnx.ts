/**
 * The ONNX operators that rotate: RotaryEmbedding of opset 23, and three of ONNX Runtime in the domain com.microsoft.
 *
 * The caller's caches are used as they are. They need not satisfy cos² + sin² = 1; those of the standard's node tests do
 * not.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
 * @see onnx/onnx@f754691 onnx/reference/ops/op_rotary_embedding.py
 * @see microsoft/onnxruntime@a914a61 onnxruntime/core/graph/contrib_ops/bert_defs.cc
 * @see microsoft/onnxruntime@a914a61 onnxruntime/contrib_ops/cpu/bert/mrotary_embedding_helper.h
 * @see microsoft/onnxruntime@076ffcd onnxruntime/contrib_ops/cpu/bert/rotary_embedding_helper.h
 */
import type { RopeCall, Runner, Tensor } from 'ropewalk';
import { bindRope, planRearrange, planRopeWithTable, roundTo, zeros } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkDims,
  checkDtype,
  checkInteger,
  checkRunner,
  checkTensor,
  copyElements,
  type OptionNames,
  optionNames,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  tableFromTensors,
  withFresh,
} from 'ropewalk/internal';
import { checkWritten, countUp, gatherTable, runInto, spanOf } from './calls.js';

type OnnxFloat = 'f32' | 'f16' | 'bf16';

/** The inputs of the node, with their ONNX names. */
export interface RotaryEmbeddingInputs<D extends OnnxFloat> {
  /** `[batch, num_heads, seq, head_size]`, or `[batch, seq, hidden]` together with num_heads. */
  readonly X: Tensor<D>;
  /** `[max_position, rotary_dim / 2]` with position_ids, `[batch, seq, rotary_dim / 2]` without; X's dtype. */
  readonly cos_cache: Tensor<D>;
  /** It has cos_cache's shape. */
  readonly sin_cache: Tensor<D>;
  /** The rows of the caches, i64 `[batch, seq]`. */
  readonly position_ids?: Tensor<'i64'>;
}

const INPUT_NAMES: OptionNames<RotaryEmbeddingInputs<OnnxFloat>> = /* @__PURE__ */ optionNames(
  'X cos_cache sin_cache position_ids',
);

/** The attributes of the node, with their ONNX names. */
export interface RotaryEmbeddingAttributes {
  /** The value 1 rotates pairs (2j, 2j+1), 0 pairs (j, j + rotary_dim / 2). Default: 0. */
  readonly interleaved?: 0 | 1;
  /** So many dimensions rotate; 0 means all of head_size. Default: 0. */
  readonly rotary_embedding_dim?: number;
  /** A 3-D X needs it. */
  readonly num_heads?: number;
}

const NAMES: OptionNames<RotaryEmbeddingAttributes> = /* @__PURE__ */ optionNames(
  'interleaved rotary_embedding_dim num_heads',
);

/**
 * Runs one RotaryEmbedding node.
 *
 * @param rw - runs the plan
 * @param inputs - X, cos_cache, sin_cache and perhaps position_ids
 * @param attributes - interleaved, rotary_embedding_dim, num_heads
 * @returns Y, a fresh dense tensor of X's shape and dtype
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE, with ONNX's names
 */
export function rotaryEmbedding<D extends OnnxFloat>(
  rw: Runner,
  inputs: RotaryEmbeddingInputs<D>,
  attributes: RotaryEmbeddingAttributes = {},
): Tensor<D> {
  checkRunner(rw, 'onnx.RotaryEmbedding: rw');
  const given = readOptions(inputs, 'onnx.RotaryEmbedding: inputs', INPUT_NAMES);
  checkTensor(given.X, 'onnx.RotaryEmbedding: X');
  return runInto(rw, given.X, (Y) => planRotaryEmbedding(given, attributes, Y));
}

/**
 * Translates one RotaryEmbedding node into a call. Reads shapes, positions and caches, never X.
 *
 * @param inputs - as {@link rotaryEmbedding}
 * @param attributes - as {@link rotaryEmbedding}
 * @param Y - the output, X's shape and dtype, any strides; may be X itself
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, with ONNX's names
 */
export function planRotaryEmbedding<D extends OnnxFloat>(
  inputs: RotaryEmbeddingInputs<D>,
  attributes: RotaryEmbeddingAttributes,
  Y: Tensor<D>,
): RopeCall {
  const op = 'onnx.RotaryEmbedding';
  const { X, cos_cache, sin_cache, position_ids } = readOptions(inputs, `${op}: inputs`, INPUT_NAMES);
  const given = readOptions(attributes, `${op}: attributes`, NAMES);
  const { interleaved = 0, rotary_embedding_dim = 0, num_heads = 0 } = given;
  checkFloats(op, { X, cos_cache, sin_cache });
  if (interleaved !== 0 && interleaved !== 1) refuse('RANGE', `${op}: interleaved`, '0 or 1', interleaved);

  const heads = splitHeads(X, num_heads);
  const [batch, , seqLen, headSize] = heads.shape as [number, number, number, number];
  if (headSize % 2 !== 0) refuse('SHAPE', `${op}: X`, 'an even head_size', headSize);
  const rotaryDim = rotary_embedding_dim === 0 ? headSize : rotary_embedding_dim;
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headSize) {
    const which = rotary_embedding_dim === 0 ? 'head_size' : 'rotary_embedding_dim';
    refuse('RANGE', `${op}: ${which}`, `an even integer in [2, head_size=${headSize}]`, rotaryDim);
  }

  const rank = position_ids ? 2 : 3;
  if (cos_cache.rank !== rank) {
    const expected = `${rank} dimensions ${position_ids ? 'with' : 'without'} position_ids`;
    refuse('SHAPE', `${op}: cos_cache`, expected, [...cos_cache.shape]);
  }
  const lead = position_ids ? [cos_cache.shape[0]!] : [batch, seqLen];
  // The standard's function body takes the first rotary_dim / 2 columns, so caches may be wider.
  const width = cos_cache.shape.at(-1)!;
  if (width < rotaryDim / 2) refuse('SHAPE', `${op}: cos_cache`, `last dim ${rotaryDim / 2}`, [...cos_cache.shape]);
  checkDims(cos_cache, `${op}: cos_cache`, [...lead, width]);
  checkDims(sin_cache, `${op}: sin_cache`, cos_cache.shape);

  const { first, end, tableRows } = position_ids
    ? rowsInUse(position_ids, batch, seqLen, lead[0]!)
    : { first: 0, end: batch, tableRows: countUp(batch * seqLen) };
  const used = (cache: Tensor<D>): Tensor<D> => cache.slice(0, first, end).slice(cache.rank - 1, 0, rotaryDim / 2);
  checkDtype(Y, `${op}: Y`, X.dtype);
  checkDims(Y, `${op}: Y`, X.shape);
  checkWritten(op, 'Y', Y, { X }, 'X');
  const plan = planRopeWithTable({
    headDim: headSize,
    rotaryDim,
    pairing: interleaved ? 'interleaved' : 'half',
    table: tableFromTensors(used(cos_cache), used(sin_cache), op),
    seqLen,
    batch,
    tableRows,
  });
  return bindRope(plan, heads, splitHeads(Y, num_heads), 'bnsh');
}

/** Checks the input, which comes first, and the caches, which have its dtype. */
function checkFloats(op: string, tensors: Readonly<Record<string, Tensor>>): void {
  for (const [name, tensor] of Object.entries(tensors)) checkTensor(tensor, `${op}: ${name}`);
  const [[name, input], ...caches] = Object.entries(tensors) as [[string, Tensor], ...[string, Tensor][]];
  if (input.dtype !== 'f32' && input.dtype !== 'f16' && input.dtype !== 'bf16')
    refuse('DTYPE', `${op}: ${name}`, 'f32, f16 or bf16', input.dtype);
  for (const [cache, tensor] of caches) checkDtype(tensor, `${op}: ${cache}`, input.dtype);
}

/** Finds the rows of the caches that the ids span, and the row of each token among them. */
function rowsInUse(position_ids: Tensor<'i64'>, batch: number, seqLen: number, maxPosition: number) {
  const where = 'onnx.RotaryEmbedding: position_ids';
  checkDtype(position_ids, where, 'i64');
  checkDims(position_ids, where, [batch, seqLen]);
  const ids = readIntegers(position_ids, where);
  const { first, end } = spanOf(ids, maxPosition, (n, id) => {
    const some = `a row of the caches, in [0, ${maxPosition - 1}]`;
    const expected = maxPosition ? some : 'no position, as the caches are empty';
    return refuse('RANGE', `${where}[${Math.floor(n / seqLen)}, ${n % seqLen}]`, expected, id);
  });
  return { first, end, tableRows: ids.map((id) => id - first) };
}

/** Views X as `[batch, num_heads, seq, head_size]`. The hidden dimension of a 3-D X is split into heads. */
function splitHeads<D extends OnnxFloat>(X: Tensor<D>, numHeads: number): Tensor<D> {
  const op = 'onnx.RotaryEmbedding';
  if (X.rank === 4) return X;
  if (X.rank !== 3) refuse('SHAPE', `${op}: X`, FORMS, [...X.shape]);
  if (!Number.isInteger(numHeads) || numHeads < 1)
    refuse('SHAPE', `${op}: num_heads`, 'an integer >= 1 with a 3-D X', numHeads === 0 ? undefined : numHeads);
  const [batch, seqLen, hidden] = X.shape as [number, number, number];
  if (hidden % numHeads !== 0) refuse('SHAPE', `${op}: num_heads`, `a divisor of hidden=${hidden}`, numHeads);
  return X.view([batch, seqLen, numHeads, hidden / numHeads]).permute([0, 2, 1, 3]);
}

const FORMS = '[batch, num_heads, seq, head_size] or [batch, seq, hidden]';

/** The inputs of com.microsoft.RotaryEmbedding and MRotaryEmbedding. */
export interface ContribRotaryInputs<D extends OnnxFloat> {
  /** `[batch, num_heads, seq, head_size]`, or `[batch, seq, hidden]`; any strides. */
  readonly input: Tensor<D>;
  /**
   * The positions are i64. RotaryEmbedding: `[batch, seq]`, rows of the caches, or one offset, `[1]` or a scalar, from
   * which each sequence counts. MRotaryEmbedding: `[3, batch, seq]`, time, height, width.
   */
  readonly position_ids: Tensor<'i64'>;
  /** `[max_sequence_length, rotary_embedding_dim / 2]`, input's dtype, in host memory. */
  readonly cos_cache: Tensor<D>;
  /** It has cos_cache's shape. */
  readonly sin_cache: Tensor<D>;
}

const CONTRIB_INPUT_NAMES: OptionNames<ContribRotaryInputs<OnnxFloat>> = /* @__PURE__ */ optionNames(
  'input position_ids cos_cache sin_cache',
);

/** The attributes of com.microsoft.RotaryEmbedding. */
export interface ContribRotaryAttributes {
  /** The value 1 rotates pairs (2j, 2j+1), 0 pairs (j, j + rotary_embedding_dim / 2). Default: 0. */
  readonly interleaved?: 0 | 1;
  /** So many dimensions rotate; 0 means twice the caches' width. It needs num_heads. Default: 0. */
  readonly rotary_embedding_dim?: number;
  /** A 3-D input has so many heads; 0 means hidden / head_size. Default: 0. */
  readonly num_heads?: number;
  /** ONNX Runtime's CPU kernel reads it and ignores it, and so does this function. Default: 1. */
  readonly scale?: number;
  /** With 1 a sequence may have more tokens than the caches have rows. Default: 0. */
  readonly is_packed_batching?: 0 | 1;
}

const CONTRIB_NAMES: OptionNames<ContribRotaryAttributes> = /* @__PURE__ */ optionNames(
  'interleaved rotary_embedding_dim num_heads scale is_packed_batching',
);

/** The attributes of com.microsoft.MRotaryEmbedding. */
export interface MRotaryAttributes extends ContribRotaryAttributes {
  /** The pairs of time, height and width; their sum is rotary_embedding_dim / 2. */
  readonly mrope_section: readonly number[];
  /** The sections are contiguous (0, Qwen2-VL) or interleaved (1, Qwen3-VL). Default: 0. */
  readonly mrope_layout?: 0 | 1;
}

const M_NAMES: OptionNames<MRotaryAttributes> = { ...CONTRIB_NAMES, mrope_section: true, mrope_layout: true };

/**
 * Runs com.microsoft.RotaryEmbedding.
 *
 * @param rw - runs the plan
 * @param inputs - input, position_ids, cos_cache, sin_cache
 * @param attributes - interleaved, rotary_embedding_dim, num_heads, scale, is_packed_batching
 * @returns output, a fresh dense tensor of input's shape and dtype
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE, with the operator's names
 */
export function contribRotaryEmbedding<D extends OnnxFloat>(
  rw: Runner,
  inputs: ContribRotaryInputs<D>,
  attributes: ContribRotaryAttributes = {},
): Tensor<D> {
  const op = 'com.microsoft.RotaryEmbedding';
  const call = readCall(op, rw, inputs, attributes, true, CONTRIB_NAMES);
  const { position_ids, batch, seq, pairs } = call;
  const where = `${op}: position_ids`;
  const one = position_ids.rank === 0 || (position_ids.rank === 1 && position_ids.shape[0] === 1);
  if (!one) checkDims(position_ids, where, [batch, seq]);
  const ids = readIntegers(position_ids, where);
  // Every sequence counts from one offset.
  const rows = one ? Array.from({ length: batch * seq }, (_item, token) => ids[0]! + (token % seq)) : ids;
  return rotate(op, rw, call, rows, new Uint8Array(pairs));
}

/**
 * Runs com.microsoft.MRotaryEmbedding: each pair takes its row of the caches by the position on its axis.
 *
 * @param rw - runs the plan
 * @param inputs - as {@link contribRotaryEmbedding}, with position_ids `[3, batch, seq]`
 * @param attributes - also mrope_section, and mrope_layout
 * @returns output, a fresh dense tensor of input's shape and dtype
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE, with the operator's names
 */
export function mRotaryEmbedding<D extends OnnxFloat>(
  rw: Runner,
  inputs: ContribRotaryInputs<D>,
  attributes: MRotaryAttributes,
): Tensor<D> {
  const op = 'com.microsoft.MRotaryEmbedding';
  const call = readCall(op, rw, inputs, attributes, false, M_NAMES);
  const { position_ids, batch, seq, pairs } = call;
  const { mrope_section, mrope_layout = 0 } = readOptions(attributes, `${op}: attributes`);
  if (mrope_layout !== 0 && mrope_layout !== 1) refuse('RANGE', `${op}: mrope_layout`, '0 or 1', mrope_layout);
  const expected = `three integers >= 0 whose sum is rotary_embedding_dim / 2 = ${pairs}`;
  const sections = Array.from(readList(mrope_section, `${op}: mrope_section`, expected));
  const isSection = (n: number): boolean => Number.isSafeInteger(n) && n >= 0;
  if (sections.length !== 3 || !sections.every(isSection) || sections.reduce((sum, n) => sum + n, 0) !== pairs)
    refuse('SHAPE', `${op}: mrope_section`, expected, sections);
  checkDims(position_ids, `${op}: position_ids`, [3, batch, seq]);
  const rows = readIntegers(position_ids, `${op}: position_ids`);
  const { axisOfPair } = sharePairs({ rule: mrope_layout === 1 ? 'interleaved' : 'sections', sections }, pairs, op);
  return rotate(op, rw, call, rows, axisOfPair);
}

/** A call whose positions are not checked yet. */
interface CheckedCall<D extends OnnxFloat> extends ContribRotaryInputs<D> {
  readonly interleaved: 0 | 1;
  readonly batch: number;
  readonly seq: number;
  readonly pairs: number;
  /** Views a tensor of input's shape as `[batch, num_heads, seq, head_size]`. */
  readonly heads: (tensor: Tensor<D>) => Tensor<D>;
}

/** @param byCaches - whether the caches give head_size where rotary_embedding_dim is 0 */
function readCall<D extends OnnxFloat>(
  op: string,
  rw: Runner,
  inputs: ContribRotaryInputs<D>,
  attributes: ContribRotaryAttributes,
  byCaches: boolean,
  names: OptionNames<ContribRotaryAttributes>,
): CheckedCall<D> {
  checkRunner(rw, `${op}: rw`);
  const { input, position_ids, cos_cache, sin_cache } = readOptions(inputs, `${op}: inputs`, CONTRIB_INPUT_NAMES);
  const given = readOptions(attributes, `${op}: attributes`, names);
  const { interleaved = 0, rotary_embedding_dim = 0, num_heads = 0, scale = 1, is_packed_batching = 0 } = given;
  checkTensor(input, `${op}: input`);
  checkTensor(position_ids, `${op}: position_ids`);
  checkFloats(op, { input, cos_cache, sin_cache });
  checkDtype(position_ids, `${op}: position_ids`, 'i64');
  for (const [name, value] of Object.entries({ interleaved, is_packed_batching }))
    if (value !== 0 && value !== 1) refuse('RANGE', `${op}: ${name}`, '0 or 1', value);
  if (!Number.isFinite(scale)) refuse('RANGE', `${op}: scale`, 'a finite number', scale);
  checkInteger(num_heads, `${op}: num_heads`, 0);
  checkInteger(rotary_embedding_dim, `${op}: rotary_embedding_dim`, 0);
  if (rotary_embedding_dim > 0 && num_heads === 0)
    refuse('SHAPE', `${op}: num_heads`, 'an integer >= 1 beside rotary_embedding_dim', num_heads);
  if (cos_cache.rank !== 2) refuse('SHAPE', `${op}: cos_cache`, 'two dimensions', [...cos_cache.shape]);
  checkDims(sin_cache, `${op}: sin_cache`, cos_cache.shape);
  const [maxSequence, width] = cos_cache.shape as [number, number];
  if (input.rank !== 3 && input.rank !== 4) refuse('SHAPE', `${op}: input`, FORMS, [...input.shape]);

  const isFour = input.rank === 4;
  const [batch, seq] = [input.shape[0]!, input.shape[isFour ? 2 : 1]!];
  const hidden = input.shape.at(-1)!;
  const ownHeads = num_heads === 0 && byCaches && width > 0 ? hidden / (2 * width) : num_heads;
  if (!isFour && !(Number.isInteger(ownHeads) && ownHeads > 0 && hidden % ownHeads === 0))
    refuse('SHAPE', `${op}: num_heads`, `a divisor of hidden=${hidden}`, num_heads || undefined);
  const headSize = isFour ? hidden : hidden / ownHeads;
  if (headSize % 2 !== 0) refuse('SHAPE', `${op}: input`, 'an even head_size', headSize);
  const rotaryDim = rotary_embedding_dim || (byCaches ? 2 * width : headSize);
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headSize)
    refuse('RANGE', `${op}: rotary_embedding_dim`, `an even integer in [2, head_size=${headSize}]`, rotaryDim);
  if (rotary_embedding_dim === 0 && rotaryDim !== headSize)
    refuse('SHAPE', `${op}: cos_cache`, `last dim head_size / 2 = ${headSize / 2}`, [...cos_cache.shape]);
  if (width !== rotaryDim / 2) refuse('SHAPE', `${op}: cos_cache`, `last dim ${rotaryDim / 2}`, [...cos_cache.shape]);
  if (seq > maxSequence && is_packed_batching === 0)
    refuse('SHAPE', `${op}: cos_cache`, `at least seq=${seq} rows, or is_packed_batching 1`, [...cos_cache.shape]);
  const heads = (tensor: Tensor<D>): Tensor<D> =>
    isFour ? tensor : tensor.view([batch, seq, ownHeads, headSize]).permute([0, 2, 1, 3]);
  return { input, position_ids, cos_cache, sin_cache, interleaved, batch, seq, pairs: width, heads };
}

/**
 * Rotates with a table that has a row for each token.
 *
 * @param rows - `[axes, batch · seq]`: rows of the caches
 * @param axisOfPair - the axis of each pair
 */
function rotate<D extends OnnxFloat>(
  op: string,
  rw: Runner,
  call: CheckedCall<D>,
  rows: ArrayLike<number>,
  axisOfPair: Uint8Array,
): Tensor<D> {
  const { input, cos_cache, sin_cache, interleaved, batch, seq, pairs, heads } = call;
  const maxSequence = cos_cache.shape[0]!;
  const tokens = batch * seq;
  const { first, end } = spanOf(rows, maxSequence, (_n, row) =>
    refuse('RANGE', `${op}: position_ids`, `rows of the caches, in [0, ${maxSequence - 1}]`, row),
  );
  hostOf(cos_cache, `${op}: cos_cache`);
  hostOf(sin_cache, `${op}: sin_cache`);
  const table = tableFromTensors(cos_cache.slice(0, first, end), sin_cache.slice(0, first, end), op);
  const used = Array.from(rows, (row) => row - first);
  const plan = planRopeWithTable({
    headDim: heads(input).shape[3]!,
    rotaryDim: 2 * pairs,
    pairing: interleaved ? 'interleaved' : 'half',
    table: gatherTable(table, used, axisOfPair, tokens),
    seqLen: seq,
    batch,
    tableRows: countUp(tokens),
  });
  return runInto(rw, input, (output) => bindRope(plan, heads(input), heads(output), 'bnsh'));
}

/** The inputs of com.microsoft.GemmaRotaryEmbedding. */
export interface GemmaRotaryInputs {
  /** The angles, f32 `[batch, seq, dim]`, in host memory. */
  readonly emb: Tensor<'f32'>;
  /** `[batch, num_heads, seq, dim]` in f16, in host memory, like the three below. */
  readonly q: Tensor<'f16'>;
  /** It has q's shape. For a rotation it is q turned by a quarter, (−q1, q0); it is used as it is. */
  readonly q_rot: Tensor<'f16'>;
  readonly k: Tensor<'f16'>;
  readonly k_rot: Tensor<'f16'>;
}

const GEMMA_NAMES: OptionNames<GemmaRotaryInputs> = /* @__PURE__ */ optionNames('emb q q_rot k k_rot');

/**
 * Runs com.microsoft.GemmaRotaryEmbedding: `q · cos(emb) + q_rot · sin(emb)`, and the same of k.
 *
 * cos and sin are rounded to f16, as in the operator; the result is rounded once, where the operator's f16 products and
 * sum are rounded each.
 *
 * @param rw - runs the plans
 * @param inputs - emb, q, q_rot, k, k_rot
 * @returns output1 of q's shape and output2 of k's, fresh and dense
 * @throws {RopewalkError} SHAPE or DTYPE, with the operator's names
 */
export function gemmaRotaryEmbedding(
  rw: Runner,
  inputs: GemmaRotaryInputs,
): { readonly output1: Tensor<'f16'>; readonly output2: Tensor<'f16'> } {
  const op = 'com.microsoft.GemmaRotaryEmbedding';
  checkRunner(rw, `${op}: rw`);
  const { emb, q, q_rot, k, k_rot } = readOptions(inputs, `${op}: inputs`, GEMMA_NAMES);
  for (const [name, tensor] of Object.entries({ emb, q, q_rot, k, k_rot })) {
    checkTensor(tensor, `${op}: ${name}`);
    checkDtype(tensor, `${op}: ${name}`, name === 'emb' ? 'f32' : 'f16');
    hostOf(tensor, `${op}: ${name}`);
  }
  if (emb.rank !== 3) refuse('SHAPE', `${op}: emb`, '[batch, seq, dim]', [...emb.shape]);
  const [batch, seq, dim] = emb.shape as [number, number, number];
  for (const [name, tensor] of Object.entries({ q, k }))
    checkDims(tensor, `${op}: ${name}`, [batch, tensor.shape[1] ?? 0, seq, dim]);
  checkDims(q_rot, `${op}: q_rot`, q.shape);
  checkDims(k_rot, `${op}: k_rot`, k.shape);
  if (dim === 0) refuse('SHAPE', `${op}: emb`, 'a dim of at least 1', [...emb.shape]);
  const angles = emb.readNumbers() as Float64Array;
  const tokens = batch * seq;
  const table = (of: (angle: number) => number): Float32Array =>
    Float32Array.from(angles, (angle) => roundTo('f16', Math.fround(of(angle))));
  // Pair j is (q, q_rot), so its first member turns into q · cos + q_rot · sin with sin's sign changed.
  const plan = planRopeWithTable({
    headDim: 2 * dim,
    pairing: 'half',
    table: { rows: tokens, pairs: dim, cos: table(Math.cos), sin: table((angle) => -Math.sin(angle)) },
    seqLen: seq,
    batch,
    tableRows: countUp(tokens),
  });
  const embed = (x: Tensor<'f16'>, turned: Tensor<'f16'>, output: Tensor<'f16'>): Tensor<'f16'> => {
    const both = zeros('f16', [...x.shape.slice(0, 3), 2 * dim]);
    copyElements(x, both.slice(3, 0, dim));
    copyElements(turned, both.slice(3, dim, 2 * dim));
    rw.run(bindRope(plan, both, both, 'bnsh'));
    rw.run(planRearrange(both.slice(3, 0, dim), output));
    return output;
  };
  return withFresh(rw, 'f16', q.shape, (first) =>
    withFresh(rw, 'f16', k.shape, (second) => ({
      output1: embed(q, q_rot, first),
      output2: embed(k, k_rot, second),
    })),
  );
}
