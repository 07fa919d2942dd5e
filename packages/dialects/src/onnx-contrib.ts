/**
 * ONNX Runtime's own operators of domain com.microsoft that rotate, with their names for inputs and attributes.
 *
 * Caches are used as given, `[max_sequence_length, rotary_embedding_dim / 2]`.
 *
 * @module
 * @see microsoft/onnxruntime@a914a61 onnxruntime/core/graph/contrib_ops/bert_defs.cc
 * @see microsoft/onnxruntime@a914a61 onnxruntime/contrib_ops/cpu/bert/mrotary_embedding_helper.h
 * @see microsoft/onnxruntime@076ffcd onnxruntime/contrib_ops/cpu/bert/rotary_embedding_helper.h
 */
import { bindRope, planRearrange, planRopeWithTable, type Runner, roundTo, type Tensor, zeros } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import {
  checkDims,
  checkDtype,
  checkInteger,
  checkRunner,
  checkTensor,
  copyElements,
  type OptionNames,
  readIntegers,
  readList,
  readOptions,
  sharePairs,
  withFresh,
} from 'ropewalk/internal';

type ContribFloat = 'f32' | 'f16' | 'bf16';

/** The inputs of com.microsoft.RotaryEmbedding and MRotaryEmbedding. */
export interface ContribRotaryInputs<D extends ContribFloat> {
  /** `[batch, num_heads, seq, head_size]`, or `[batch, seq, hidden]`; any strides. */
  readonly input: Tensor<D>;
  /**
   * i64. RotaryEmbedding: `[batch, seq]`, rows of the caches, or one offset, `[1]` or a scalar, from which each sequence
   * counts. MRotaryEmbedding: `[3, batch, seq]`, time, height, width.
   */
  readonly position_ids: Tensor<'i64'>;
  /** `[max_sequence_length, rotary_embedding_dim / 2]`, input's dtype, in host memory. */
  readonly cos_cache: Tensor<D>;
  /** As cos_cache. */
  readonly sin_cache: Tensor<D>;
}

const INPUT_NAMES: OptionNames<ContribRotaryInputs<ContribFloat>> = {
  input: true,
  position_ids: true,
  cos_cache: true,
  sin_cache: true,
};

/** The attributes of com.microsoft.RotaryEmbedding. */
export interface ContribRotaryAttributes {
  /** 1 pairs (2j, 2j+1), 0 pairs (j, j + rotary_embedding_dim / 2); 0 unless given. */
  readonly interleaved?: 0 | 1;
  /** Dimensions that rotate; 0, the default, means twice the caches' width. Needs num_heads. */
  readonly rotary_embedding_dim?: number;
  /** Heads of a 3-D input; 0, the default, means hidden / head_size. */
  readonly num_heads?: number;
  /** Not used: ONNX Runtime's CPU kernel reads it and ignores it. 1 unless given. */
  readonly scale?: number;
  /** 1: a sequence may have more tokens than the caches have rows; 0 unless given. */
  readonly is_packed_batching?: 0 | 1;
}

const NAMES: OptionNames<ContribRotaryAttributes> = {
  interleaved: true,
  rotary_embedding_dim: true,
  num_heads: true,
  scale: true,
  is_packed_batching: true,
};

/** The attributes of com.microsoft.MRotaryEmbedding. */
export interface MRotaryAttributes extends ContribRotaryAttributes {
  /** Pairs of time, height and width; their sum is rotary_embedding_dim / 2. */
  readonly mrope_section: readonly number[];
  /** 0 contiguous sections (Qwen2-VL), 1 interleaved (Qwen3-VL); 0 unless given. */
  readonly mrope_layout?: 0 | 1;
}

const M_NAMES: OptionNames<MRotaryAttributes> = { ...NAMES, mrope_section: true, mrope_layout: true };

/**
 * Runs com.microsoft.RotaryEmbedding.
 *
 * @param rw - runs the plan
 * @param inputs - input, position_ids, cos_cache, sin_cache
 * @param attributes - interleaved, rotary_embedding_dim, num_heads, scale, is_packed_batching
 * @returns output, a fresh dense tensor of input's shape and dtype
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE, with the operator's names
 */
export function contribRotaryEmbedding<D extends ContribFloat>(
  rw: Runner,
  inputs: ContribRotaryInputs<D>,
  attributes: ContribRotaryAttributes = {},
): Tensor<D> {
  const op = 'com.microsoft.RotaryEmbedding';
  const call = readCall(op, rw, inputs, attributes, true, NAMES);
  const { position_ids, batch, seq, pairs } = call;
  const where = `${op}: position_ids`;
  const one = position_ids.rank === 0 || (position_ids.rank === 1 && position_ids.shape[0] === 1);
  if (!one) checkDims(position_ids, where, [batch, seq]);
  const ids = readIntegers(position_ids, where);
  // One offset: every sequence counts from it.
  const rows = one ? Array.from({ length: batch * seq }, (_item, token) => ids[0]! + (token % seq)) : ids;
  return rotate(op, rw, call, [rows], new Uint8Array(pairs));
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
export function mRotaryEmbedding<D extends ContribFloat>(
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
  const ids = readIntegers(position_ids, `${op}: position_ids`);
  const rows = [0, 1, 2].map((axis) => ids.slice(axis * batch * seq, (axis + 1) * batch * seq));
  const { axisOfPair } = sharePairs({ rule: mrope_layout === 1 ? 'interleaved' : 'sections', sections }, pairs, op);
  return rotate(op, rw, call, rows, axisOfPair);
}

/** A call, checked but for its positions. */
interface CheckedCall<D extends ContribFloat> extends ContribRotaryInputs<D> {
  readonly interleaved: 0 | 1;
  readonly batch: number;
  readonly seq: number;
  readonly pairs: number;
  /** A tensor of input's shape as `[batch, num_heads, seq, head_size]`. */
  readonly heads: (tensor: Tensor<D>) => Tensor<D>;
}

/** @param byCaches - whether the caches give head_size where rotary_embedding_dim is 0 */
function readCall<D extends ContribFloat>(
  op: string,
  rw: Runner,
  inputs: ContribRotaryInputs<D>,
  attributes: ContribRotaryAttributes,
  byCaches: boolean,
  names: OptionNames<ContribRotaryAttributes>,
): CheckedCall<D> {
  checkRunner(rw, `${op}: rw`);
  const { input, position_ids, cos_cache, sin_cache } = readOptions(inputs, `${op}: inputs`, INPUT_NAMES);
  const given = readOptions(attributes, `${op}: attributes`, names);
  const { interleaved = 0, rotary_embedding_dim = 0, num_heads = 0, scale = 1, is_packed_batching = 0 } = given;
  for (const [name, tensor] of Object.entries({ input, position_ids, cos_cache, sin_cache }))
    checkTensor(tensor, `${op}: ${name}`);
  if (input.dtype !== 'f32' && input.dtype !== 'f16' && input.dtype !== 'bf16')
    refuse('DTYPE', `${op}: input`, 'f32, f16 or bf16', input.dtype);
  checkDtype(cos_cache, `${op}: cos_cache`, input.dtype);
  checkDtype(sin_cache, `${op}: sin_cache`, input.dtype);
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
  if (input.rank !== 3 && input.rank !== 4)
    refuse('SHAPE', `${op}: input`, '[batch, num_heads, seq, head_size] or [batch, seq, hidden]', [...input.shape]);

  const isFour = input.rank === 4;
  const [batch, seq] = [input.shape[0]!, input.shape[isFour ? 2 : 1]!];
  const hidden = input.shape.at(-1)!;
  const ownHeads = num_heads === 0 && byCaches && width > 0 ? hidden / (2 * width) : num_heads;
  if (!isFour && !(Number.isInteger(ownHeads) && ownHeads > 0 && hidden % ownHeads === 0))
    refuse('SHAPE', `${op}: num_heads`, `a divisor of hidden=${hidden}`, num_heads || undefined);
  const headSize = isFour ? hidden : hidden / ownHeads;
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

/** Rotates with a table of one row a token: the caches' numbers at `rows[axis][token]`, by the axis of each pair. */
function rotate<D extends ContribFloat>(
  op: string,
  rw: Runner,
  call: CheckedCall<D>,
  rows: readonly ArrayLike<number>[],
  axisOfPair: Uint8Array,
): Tensor<D> {
  const { input, cos_cache, sin_cache, interleaved, batch, seq, pairs, heads } = call;
  const maxSequence = cos_cache.shape[0]!;
  const tokens = batch * seq;
  let [first, end] = [tokens > 0 ? maxSequence : 0, 0];
  for (const list of rows) {
    for (let token = 0; token < tokens; token++) {
      const row = list[token]!;
      if (!(row >= 0 && row < maxSequence))
        refuse('RANGE', `${op}: position_ids`, `rows of the caches, in [0, ${maxSequence - 1}]`, row);
      [first, end] = [Math.min(first, row), Math.max(end, row + 1)];
    }
  }
  const gather = (cache: Tensor<D>, name: string): Float32Array => {
    hostOf(cache, `${op}: ${name}`);
    const values = cache.slice(0, first, end).readNumbers() as Float64Array; // only the rows that are used
    return Float32Array.from({ length: tokens * pairs }, (_item, n) => {
      const j = n % pairs;
      return values[(rows[axisOfPair[j]!]![Math.floor(n / pairs)]! - first) * pairs + j]!;
    });
  };
  const plan = planRopeWithTable({
    headDim: heads(input).shape[3]!,
    rotaryDim: 2 * pairs,
    pairing: interleaved ? 'interleaved' : 'half',
    table: { rows: tokens, pairs, cos: gather(cos_cache, 'cos_cache'), sin: gather(sin_cache, 'sin_cache') },
    seqLen: seq,
    batch,
    tableRows: Int32Array.from({ length: tokens }, (_item, token) => token),
  });
  return withFresh(rw, input.dtype, input.shape, (output) => {
    rw.run(bindRope(plan, heads(input), heads(output), 'bnsh'));
    return output;
  });
}

/** The inputs of com.microsoft.GemmaRotaryEmbedding. */
export interface GemmaRotaryInputs {
  /** f32 `[batch, seq, dim]`: the angles, in host memory. */
  readonly emb: Tensor<'f32'>;
  /** f16 `[batch, num_heads, seq, dim]`, in host memory, as the three below. */
  readonly q: Tensor<'f16'>;
  /** Of q's shape: q turned by a quarter, (−q1, q0), where it is to be a rotation. Used as given. */
  readonly q_rot: Tensor<'f16'>;
  readonly k: Tensor<'f16'>;
  readonly k_rot: Tensor<'f16'>;
}

const GEMMA_NAMES: OptionNames<GemmaRotaryInputs> = { emb: true, q: true, q_rot: true, k: true, k_rot: true };

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
    tableRows: Int32Array.from({ length: tokens }, (_item, token) => token),
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
