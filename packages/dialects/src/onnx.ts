/**
 * ONNX RotaryEmbedding, opset 23: X, cos_cache, sin_cache, position_ids in, Y out.
 *
 * The caches are used as given. They need not satisfy cos² + sin² = 1; those of the standard's node tests do not.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
 * @see onnx/onnx@f754691 onnx/reference/ops/op_rotary_embedding.py
 */

import { bindRope, planRopeWithTable, type RopeCall, type Runner, type Tensor, tableFromTensors } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkOutput,
  checkRunner,
  checkTensor,
  type OptionNames,
  readIntegers,
  readOptions,
  withFresh,
} from 'ropewalk/internal';

export {
  type ContribRotaryAttributes,
  type ContribRotaryInputs,
  contribRotaryEmbedding,
  type GemmaRotaryInputs,
  gemmaRotaryEmbedding,
  type MRotaryAttributes,
  mRotaryEmbedding,
} from './onnx-contrib.js';

type OnnxFloat = 'f32' | 'f16' | 'bf16';

/** The inputs of the node, with their ONNX names. */
export interface RotaryEmbeddingInputs<D extends OnnxFloat> {
  /** `[batch, num_heads, seq, head_size]`, or `[batch, seq, hidden]` together with num_heads. */
  readonly X: Tensor<D>;
  /** `[max_position, rotary_dim / 2]` with position_ids, `[batch, seq, rotary_dim / 2]` without; X's dtype. */
  readonly cos_cache: Tensor<D>;
  /** As cos_cache. */
  readonly sin_cache: Tensor<D>;
  /** i64 `[batch, seq]`: rows of the caches. */
  readonly position_ids?: Tensor<'i64'>;
}

const INPUT_NAMES: OptionNames<RotaryEmbeddingInputs<OnnxFloat>> = {
  X: true,
  cos_cache: true,
  sin_cache: true,
  position_ids: true,
};

/** The attributes of the node, with their ONNX names. */
export interface RotaryEmbeddingAttributes {
  /** 1 pairs (2j, 2j+1), 0 pairs (j, j + rotary_dim / 2); 0 unless given. */
  readonly interleaved?: 0 | 1;
  /** Dimensions that rotate; 0, the default, means all of head_size. */
  readonly rotary_embedding_dim?: number;
  /** Needed with a 3-D X. */
  readonly num_heads?: number;
}

const NAMES: OptionNames<RotaryEmbeddingAttributes> = {
  interleaved: true,
  rotary_embedding_dim: true,
  num_heads: true,
};

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
  return withFresh(rw, given.X.dtype, given.X.shape, (Y) => {
    rw.run(planRotaryEmbedding(given, attributes, Y));
    return Y;
  });
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
  const {
    interleaved = 0,
    rotary_embedding_dim = 0,
    num_heads = 0,
  } = readOptions(attributes, `${op}: attributes`, NAMES);
  for (const [name, tensor] of Object.entries({ X, cos_cache, sin_cache })) checkTensor(tensor, `${op}: ${name}`);
  if (X.dtype !== 'f32' && X.dtype !== 'f16' && X.dtype !== 'bf16')
    refuse('DTYPE', `${op}: X`, 'f32, f16 or bf16', X.dtype);
  checkDtype(cos_cache, `${op}: cos_cache`, X.dtype);
  checkDtype(sin_cache, `${op}: sin_cache`, X.dtype);
  if (interleaved !== 0 && interleaved !== 1) refuse('RANGE', `${op}: interleaved`, '0 or 1', interleaved);

  const heads = splitHeads(X, num_heads);
  const [batch, , seqLen, headSize] = heads.shape as [number, number, number, number];
  const rotaryDim = rotary_embedding_dim === 0 ? headSize : rotary_embedding_dim;
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headSize) {
    const which = rotary_embedding_dim === 0 ? 'head_size' : 'rotary_embedding_dim';
    refuse('RANGE', `${op}: ${which}`, `an even integer in [2, head_size=${headSize}]`, rotaryDim);
  }

  const lead = position_ids ? [checkRank(cos_cache, 'cos_cache', 2, 'with position_ids').shape[0]!] : [batch, seqLen];
  if (!position_ids) checkRank(cos_cache, 'cos_cache', 3, 'without position_ids');
  // The standard's function body takes the first rotary_dim / 2 columns, so caches may be wider.
  const width = cos_cache.shape.at(-1)!;
  if (width < rotaryDim / 2) refuse('SHAPE', `${op}: cos_cache`, `last dim ${rotaryDim / 2}`, [...cos_cache.shape]);
  checkDims(cos_cache, `${op}: cos_cache`, [...lead, width]);
  checkDims(sin_cache, `${op}: sin_cache`, cos_cache.shape);

  const { first, end, tableRows } = position_ids
    ? rowsInUse(position_ids, batch, seqLen, lead[0]!)
    : { first: 0, end: batch, tableRows: Int32Array.from({ length: batch * seqLen }, (_item, token) => token) };
  const used = (cache: Tensor<D>): Tensor<D> => cache.slice(0, first, end).slice(cache.rank - 1, 0, rotaryDim / 2);
  checkDtype(Y, `${op}: Y`, X.dtype);
  checkDims(Y, `${op}: Y`, X.shape);
  checkOutput(Y, `${op}: Y`);
  checkApart(Y, `${op}: Y`, 'X', X, true);
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

/** The rows of the caches that the ids span, and each token's row among them. Only these are converted. */
function rowsInUse(position_ids: Tensor<'i64'>, batch: number, seqLen: number, maxPosition: number) {
  const where = 'onnx.RotaryEmbedding: position_ids';
  checkDtype(position_ids, where, 'i64');
  checkDims(position_ids, where, [batch, seqLen]);
  const ids = readIntegers(position_ids, where);
  let first = ids.length > 0 ? maxPosition : 0;
  let end = 0;
  for (const [n, id] of ids.entries()) {
    if (id < 0 || id >= maxPosition) {
      const some = `a row of the caches, in [0, ${maxPosition - 1}]`;
      const expected = maxPosition ? some : 'no position, as the caches are empty';
      refuse('RANGE', `${where}[${Math.floor(n / seqLen)}, ${n % seqLen}]`, expected, id);
    }
    first = Math.min(first, id);
    end = Math.max(end, id + 1);
  }
  return { first, end, tableRows: ids.map((id) => id - first) };
}

/** X as `[batch, num_heads, seq, head_size]`; a 3-D X has its hidden dimension split into heads. */
function splitHeads<D extends OnnxFloat>(X: Tensor<D>, numHeads: number): Tensor<D> {
  const op = 'onnx.RotaryEmbedding';
  if (X.rank === 4) return X;
  if (X.rank !== 3)
    refuse('SHAPE', `${op}: X`, '[batch, num_heads, seq, head_size] or [batch, seq, hidden]', [...X.shape]);
  if (!Number.isInteger(numHeads) || numHeads < 1) {
    refuse('SHAPE', `${op}: num_heads`, 'an integer >= 1 with a 3-D X', numHeads === 0 ? undefined : numHeads);
  }
  const [batch, seqLen, hidden] = X.shape as [number, number, number];
  if (hidden % numHeads !== 0) refuse('SHAPE', `${op}: num_heads`, `a divisor of hidden=${hidden}`, numHeads);
  return X.view([batch, seqLen, numHeads, hidden / numHeads]).permute([0, 2, 1, 3]);
}

function checkRank<T extends Tensor>(tensor: T, name: string, rank: number, when: string): T {
  if (tensor.rank !== rank)
    refuse('SHAPE', `onnx.RotaryEmbedding: ${name}`, `${rank} dimensions ${when}`, [...tensor.shape]);
  return tensor;
}
