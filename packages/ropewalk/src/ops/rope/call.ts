/** Binds a RoPE plan to the tensors of one call: one tensor, or several such as q and k. @module */
import { type OptionNames, optionNames, readList, readOptional, readOptions } from '../../core/arguments.js';
import type { CacheDtype, FloatDtype } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { overlapOf, type Tensor } from '../../core/tensor.js';
import { CHECKED, checkApart, checkCache, checkDims, checkFloat, checkOutput, isPlan } from '../checks.js';
import { type CacheScale, readRowScales, readScale } from '../scales.js';
import type { RopePlan } from './plan.js';

/**
 * The order of dimensions: b batch, s token in sequence, n head, h head_dim. Without a batch the first letter is left
 * out.
 */
export type RopeLayout = 'bsnh' | 'bnsh';

/** RMS norm over head_dim, before the rotation: the q and k norm of Qwen3, Gemma 3, OLMo 2. */
export interface HeadNorm {
  /** `[head_dim]`, any float dtype; all heads share it. For Gemma it is 1 + the stored weight. */
  readonly weight: Tensor<FloatDtype>;
  /** Is added to the mean of squares; finite, >= 0. */
  readonly eps: number;
}

/** One tensor of a call, with its output and its norm. */
export interface RopePartOptions {
  /** `[batch, seq, head, head_dim]` or `[seq, head, head_dim]` in the call's layout, any strides; only read. */
  readonly x: Tensor<FloatDtype>;
  /**
   * Receives the rotated heads, any strides. Without `rows` it has x's shape and may be exactly `x`. With `rows` it is
   * a KV cache: x's shape, but with any number of rows in place of the tokens. With `slots` it is a paged one: `[block,
   * block_size, head, head_dim]`, in the call's layout. Its dtype may differ from x's: each value is rounded to it once.
   * i8, f8_e4m3 and f8_e5m2 saturate (an i8 to [-128, 127]) and have a `scale`.
   */
  readonly out: Tensor<CacheDtype>;
  /**
   * The row of `out` for each token: the first token's row (the others follow), `[seq]`, or `[batch, seq]` as a flat
   * list. In a list -1 skips the token.
   */
  readonly rows?: number | ArrayLike<number>;
  /**
   * In place of `rows`, where blocks of a cache are shared by all sequences (vLLM's slot_mapping): the slot of each
   * token, `[batch, seq]` as a flat list. Slot n is row n % block_size of block ⌊n / block_size⌋; -1 skips the token.
   */
  readonly slots?: ArrayLike<number> | BigInt64Array;
  /** With false, heads are copied, as v into its cache; head_dim may then differ from the plan's. Default: true. */
  readonly rotate?: boolean;
  /** Normalises each head first. */
  readonly norm?: HeadNorm;
  /** The scale of an 8-bit `out`, see {@link CacheScale}. i8 needs one; f8_e4m3 and f8_e5m2 default to 1. */
  readonly scale?: CacheScale;
  /**
   * In place of `scale`, for an i8 `out`: f32, out's shape without head_dim. Receives a scale for each row and head: the
   * largest magnitude / 127, or 0 where that is below 2^-100.
   */
  readonly rowScales?: Tensor<'f32'>;
}

const NAMES: OptionNames<RopePartOptions> = /* @__PURE__ */ optionNames('x out rows slots rotate norm scale rowScales');
const NORM_NAMES: OptionNames<HeadNorm> = { weight: true, eps: true };

/**
 * One tensor of a call, checked. x and out are views of shape `[batch, seq, head, head_dim]`, whatever the caller's
 * layout.
 */
export interface RopePart {
  readonly x: Tensor<FloatDtype>;
  /** With slots it is `[block, block_size, head, head_dim]`. */
  readonly out: Tensor<CacheDtype>;
  /** The row or slot of each token, `[batch, seq]`, -1 for none; undefined when token s goes to row s. */
  readonly rows: Int32Array | undefined;
  /** The rows of a block where `rows` are slots. */
  readonly blockSize: number | undefined;
  /** Says whether heads are rotated, or copied. */
  readonly rotate: boolean;
  /** `[head, head_dim]`: stored = round(value / scale); undefined means 1. */
  readonly scale: Float32Array | undefined;
  /** `[batch, row, head, 1]`, or with slots `[block, block_size, head, 1]`; written. */
  readonly rowScales: Tensor<'f32'> | undefined;
  readonly norm: HeadNorm | undefined;
}

/** A plan and the tensors that it rotates, checked. Frozen. */
export interface RopeCall {
  readonly op: 'rope';
  readonly plan: RopePlan;
  /** There is at least one. All have the same batch and seq, and no output shares memory with another part. */
  readonly parts: readonly RopePart[];
}

/**
 * Checks one tensor against a plan.
 *
 * @param plan - from {@link planRope}
 * @param x - `[batch, seq, head, head_dim]` or `[seq, head, head_dim]` (in `layout`'s order), any float dtype, any
 *   strides; only read
 * @param out - same shape and dtype, any strides; written; may be exactly `x` (in place)
 * @param layout - the order of dimensions of x and out
 * @returns a frozen call
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS, naming the argument; nothing is written then
 */
export function bindRope(plan: RopePlan, x: Tensor, out: Tensor, layout: RopeLayout = 'bsnh'): RopeCall {
  return frozen(checkRope(plan, x, out, layout));
}

/** Does {@link bindRope} without freezing, which takes a tenth of a short call, for a caller that keeps the call to itself. */
export function checkRope(plan: RopePlan, x: Tensor, out: Tensor, layout: RopeLayout = 'bsnh'): RopeCall {
  checkRopePlan(plan);
  checkFloat(x, 'rope: x');
  checkFloat(out, 'rope: out', x.dtype);
  return checkedCall(plan, [bindPart(plan, { x, out }, layout, ALONE)]);
}

function checkedCall(plan: RopePlan, parts: readonly RopePart[]): RopeCall & { readonly checked: typeof CHECKED } {
  return { checked: CHECKED, op: 'rope', plan, parts };
}

function frozen(call: RopeCall): RopeCall {
  for (const part of call.parts) Object.freeze(part);
  Object.freeze(call.parts);
  return Object.freeze(call);
}

function checkRopePlan(plan: RopePlan): void {
  if (!isPlan(plan) || plan.table === undefined)
    refuse('RANGE', 'rope: plan', 'a plan from planRope or planRopeWithTable', plan);
}

/**
 * Checks several tensors to be rotated in one pass over the tokens: q and k, in place, into other tensors, or into a KV
 * cache.
 *
 * @param plan - from {@link planRope}; every part has the plan's tokens and batch
 * @param parts - at least one; see {@link RopePartOptions}
 * @param layout - the order of dimensions of all parts
 * @returns a frozen call
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, naming part and argument; nothing is written then
 */
export function bindRopeParts(
  plan: RopePlan,
  parts: readonly RopePartOptions[],
  layout: RopeLayout = 'bsnh',
): RopeCall {
  return frozen(checkRopeParts(plan, parts, layout));
}

/** Does {@link bindRopeParts} without freezing. */
export function checkRopeParts(plan: RopePlan, parts: readonly RopePartOptions[], layout: RopeLayout): RopeCall {
  checkRopePlan(plan);
  const list = Array.from(readList(parts, 'rope: parts', 'a list of { x, out }'));
  if (list.length === 0) refuse('SHAPE', 'rope: parts', 'at least one tensor', parts);
  const bound = list.map((given, p) => {
    const where = `rope: parts[${p}]`;
    const part = readOptions(given, where, NAMES);
    checkFloat(part.x, `${where}.x`);
    checkCache(part.out, `${where}.out`);
    return bindPart(plan, part, layout, namesOf(`${where}.`));
  });
  for (const [p, part] of bound.entries()) {
    if (part.x.shape[0] !== bound[0]!.x.shape[0])
      refuse('SHAPE', `rope: parts[${p}].x`, `batch ${bound[0]!.x.shape[0]}, as parts[0] has`, part.x.shape);
    for (const [other, against] of bound.entries()) {
      if (other === p) continue;
      const { x, out, norm, rowScales } = against;
      for (const [name, tensor] of Object.entries({ x, out, 'norm.weight': norm?.weight, rowScales })) {
        for (const [own, written] of Object.entries({ out: part.out, rowScales: part.rowScales })) {
          if (!tensor || !written || overlapOf(written, tensor) === 'none') continue;
          const shared = `parts[${other}].${name}`;
          fail('ALIAS', `rope: parts[${p}].${own}`, `it shares memory with ${shared}. Give it memory of its own.`);
        }
      }
    }
  }
  return checkedCall(plan, bound);
}

/** The names of a part's arguments in messages. */
type Names = ReturnType<typeof namesOf>;

function namesOf(prefix: string) {
  const norm = `${prefix}norm`;
  return {
    x: `${prefix}x`,
    out: `${prefix}out`,
    rows: `${prefix}rows`,
    slots: `${prefix}slots`,
    rotate: `${prefix}rotate`,
    scale: `${prefix}scale`,
    rowScales: `${prefix}rowScales`,
    norm,
    weight: `${norm}.weight`,
    eps: `${norm}.eps`,
  };
}

/** These names are built once, because a call in a decoding step takes half a microsecond in all. */
const ALONE: Names = /* @__PURE__ */ namesOf('rope: ');

function bindPart(plan: RopePlan, part: RopePartOptions, layout: RopeLayout, names: Names): RopePart {
  const { x, out, slots, rotate = true } = part;
  const cached = part.rows !== undefined || slots !== undefined;
  if (typeof rotate !== 'boolean') refuse('RANGE', names.rotate, 'true or false', rotate);
  if (part.rows !== undefined && slots !== undefined)
    fail('UNSUPPORTED', names.slots, 'rows are given too. Give rows, or slots of a paged cache.');
  const norm = readOptional(part.norm, names.norm, NORM_NAMES);
  const xb = asBatchSeqHead(x, layout, names.x);
  const batch = xb.shape[0]!; // Destructuring would be slow on a frozen list.
  const seqLen = xb.shape[1]!;
  const headDim = xb.shape[3]!;
  if (!cached) checkDims(out, names.out, x.shape);
  if (slots !== undefined && out.rank !== 4)
    refuse('SHAPE', names.out, 'four dimensions: block, row of the block, head and head_dim', out.shape);
  const ob = asBatchSeqHead(out, layout, names.out);
  const blocks = ob.shape[0]!;
  const length = ob.shape[1]!;
  if (cached) checkDims(ob, names.out, [slots === undefined ? batch : blocks, length, xb.shape[2]!, headDim]);
  if (rotate && headDim !== plan.headDim)
    refuse('SHAPE', names.x, `head_dim ${plan.headDim} in the last dimension`, x.shape);
  if (seqLen !== plan.seqLen) refuse('SHAPE', names.x, `${plan.seqLen} tokens, as the plan's positions have`, x.shape);
  if (plan.batch !== undefined && batch !== plan.batch) {
    refuse('SHAPE', names.x, `batch ${plan.batch}, as the plan's positions have`, x.shape);
  }
  if (norm) {
    checkFloat(norm.weight, names.weight);
    checkDims(norm.weight, names.weight, [headDim]);
    if (!Number.isFinite(norm.eps) || norm.eps < 0) refuse('RANGE', names.eps, 'a finite number >= 0', norm.eps);
  }
  const ownScales = readRowScales(part.rowScales, out, part.scale, names.rowScales);
  const rowScales = ownScales && asBatchSeqHead(ownScales, layout, names.rowScales);
  const scale = ownScales ? undefined : readScale(part.scale, out.dtype, xb.shape[2]!, headDim, names.scale);
  let rows: Int32Array | undefined;
  if (slots !== undefined) rows = readSlots(slots, batch, seqLen, blocks * length, names.slots);
  else if (part.rows !== undefined) rows = readRows(part.rows, batch, seqLen, length, names.rows);
  // Both elements of a pair are read before either is written, so in place is safe if each pair is written where it was
  // read.
  const inPlace = (!rotate || plan.read.step === plan.write.step) && !cached;
  checkOutput(out, names.out);
  checkApart(out, names.out, 'x', x, inPlace);
  if (norm) checkApart(out, names.out, 'norm.weight', norm.weight);
  if (rowScales) {
    checkOutput(rowScales, names.rowScales);
    checkApart(rowScales, names.rowScales, 'x', x);
    if (norm) checkApart(rowScales, names.rowScales, 'norm.weight', norm.weight);
  }
  const blockSize = slots === undefined ? undefined : length;
  return { x: xb, out: ob, rows, blockSize, rotate, scale, rowScales, norm };
}

/** Reads rows as `[batch, seq]`: each lies within the cache, and occurs at most once in a batch. */
function readRows(
  rows: number | ArrayLike<number>,
  batch: number,
  seqLen: number,
  count: number,
  where: string,
): Int32Array {
  const given =
    typeof rows === 'number'
      ? Array.from({ length: seqLen }, (_row, s) => rows + s)
      : readList(rows, where, 'a row or a list of rows');
  if (given.length !== seqLen && given.length !== batch * seqLen) {
    refuse('SHAPE', where, `the first row, ${seqLen} rows, or ${batch} × ${seqLen}`, given.length);
  }
  const least = typeof rows === 'number' ? 0 : -1;
  const next = (row: number): string | undefined =>
    row === -1 ? 'In a list, -1 skips its token.' : Number.isInteger(row) && row >= count ? LONGER : undefined;
  const all = new Int32Array(batch * seqLen);
  for (let b = 0; b < batch; b++) {
    const seen = new Set<number>();
    for (let s = 0; s < seqLen; s++) {
      const row = given[given.length === seqLen ? s : b * seqLen + s]!;
      all[b * seqLen + s] = checkRow(row, 'row', least, count, seen, `${where}[${s}]`, next);
    }
  }
  return all;
}

const LONGER = 'Make the cache longer, or start again at row 0.';

/** Reads slots as `[batch, seq]`: each lies within the blocks, and occurs at most once. */
function readSlots(
  slots: ArrayLike<number> | BigInt64Array,
  batch: number,
  seqLen: number,
  count: number,
  where: string,
): Int32Array {
  const given = readList(slots instanceof BigInt64Array ? Array.from(slots, Number) : slots, where, 'a list of slots');
  if (given.length !== batch * seqLen) refuse('SHAPE', where, `${batch} × ${seqLen} slots`, given.length);
  const next = (): string => 'Slot n is row n % block_size of block n / block_size.';
  const seen = new Set<number>();
  return Int32Array.from(given, (slot, n) => checkRow(slot, 'slot', -1, count, seen, `${where}[${n}]`, next));
}

/** Checks that a row or slot is at least `least`, exists, and is not in `seen` unless it is -1. */
function checkRow(
  row: number,
  name: 'row' | 'slot',
  least: number,
  count: number,
  seen: Set<number>,
  where: string,
  next: (row: number) => string | undefined,
): number {
  if (!Number.isInteger(row) || row < least || row >= count) {
    const skip = least < 0 ? ', or -1 to skip the token' : '';
    refuse('RANGE', where, `a ${name} of out, in [0, ${count - 1}]${skip}`, row, next(row));
  }
  if (row < 0) return row;
  if (seen.has(row)) fail('RANGE', where, `${name} ${row} is given twice`);
  seen.add(row);
  return row;
}

function asBatchSeqHead<D extends CacheDtype>(tensor: Tensor<D>, layout: RopeLayout, where: string): Tensor<D> {
  if (layout !== 'bsnh' && layout !== 'bnsh') refuse('UNSUPPORTED', 'rope: layout', 'bsnh or bnsh', layout);
  if (tensor.rank !== 3 && tensor.rank !== 4) {
    refuse('SHAPE', where, 'three dimensions [seq, head, head_dim], or four with batch in front', tensor.shape);
  }
  const four = tensor.rank === 4 ? tensor : tensor.unsqueeze();
  return layout === 'bsnh' ? four : four.permute([0, 2, 1, 3]);
}
