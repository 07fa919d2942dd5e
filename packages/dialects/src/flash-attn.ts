/**
 * flash-attn: `apply_rotary`, with sequences of different lengths one after the other (`cu_seqlens`) and offsets into
 * the tables. triton-ascend and flash-linear-attention have the same call.
 *
 * @module
 * @see Dao-AILab/flash-attention@03f6a6b7 flash_attn/ops/triton/rotary.py
 * @see fla-org/flash-linear-attention@4057f93e fla/modules/rotary.py
 */
import { bindRope, planRopeWithTable, type RopeTable, type Runner, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkInteger,
  checkRunner,
  checkTensor,
  type OptionNames,
  optionNames,
  readIntegers,
  readOptions,
  tableFromTensors,
} from 'ropewalk/internal';
import { runInto } from './calls.js';
import { type AclnnFloat, checkAclnnFloat } from './cann/tables.js';

/** The options of {@link applyRotary}, with flash-attn's names. */
export interface ApplyRotaryOptions {
  /** It is added to each token's place in its sequence: one number, or i32 or i64 `[batch]`. Default: 0. */
  readonly seqlen_offsets?: number | Tensor<'i32' | 'i64'>;
  /** The starts of the sequences in x, then the number of all tokens: i32 or i64 `[batch + 1]`. */
  readonly cu_seqlens?: Tensor<'i32' | 'i64'> | null;
  /** The length of the longest sequence, which cu_seqlens needs. */
  readonly max_seqlen?: number | null;
  /** The value true rotates pairs (2j, 2j+1), false pairs (j, j + rotary_dim/2). Default: false. */
  readonly interleaved?: boolean;
  /** The call rotates x itself. Default: false. */
  readonly inplace?: boolean;
  /** The call rotates backwards, for gradients. Default: false. */
  readonly conjugate?: boolean;
}

const NAMES: OptionNames<ApplyRotaryOptions> = /* @__PURE__ */ optionNames(
  'seqlen_offsets cu_seqlens max_seqlen interleaved inplace conjugate',
);

/**
 * `apply_rotary(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen, interleaved, inplace, conjugate)`: rotates the
 * first rotary_dim dimensions of each head. Token s of sequence b takes row `s + seqlen_offsets[b]` of the tables.
 *
 * A token whose row is outside the tables (padding on the left has negative ones) is not rotated: it is copied, as if
 * cos were 1 and sin 0.
 *
 * @param rw - runs the plan
 * @param x - `[batch, seqlen, nheads, headdim]`, or `[total_seqlen, nheads, headdim]` with cu_seqlens; f32, f16 or
 *   bf16, any strides
 * @param cos - `[seqlen_ro, rotary_dim / 2]`, x's dtype, in host memory; seqlen_ro is at least the longest sequence
 * @param sin - as cos
 * @param options - offsets, sequences and switches
 * @returns x where the call works in place, else a fresh dense tensor of its shape
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS, naming the argument; nothing is written then
 */
export function applyRotary<D extends AclnnFloat>(
  rw: Runner,
  x: Tensor<D>,
  cos: Tensor<D>,
  sin: Tensor<D>,
  options: ApplyRotaryOptions = {},
): Tensor<D> {
  const op = 'apply_rotary';
  checkRunner(rw, `${op}: rw`);
  const given = readOptions(options, `${op}: options`, NAMES);
  for (const [name, tensor] of Object.entries({ x, cos, sin })) checkTensor(tensor, `${op}: ${name}`);
  for (const name of ['interleaved', 'inplace', 'conjugate'] as const)
    if (given[name] !== undefined && typeof given[name] !== 'boolean')
      refuse('RANGE', `${op}: ${name}`, 'true or false', given[name]);
  const cu = given.cu_seqlens ?? undefined;
  checkAclnnFloat(x, `${op}: x`);
  checkAclnnFloat(cos, `${op}: cos`, [x.dtype]);
  checkAclnnFloat(sin, `${op}: sin`, [x.dtype]);
  const form =
    cu === undefined ? '[batch, seqlen, nheads, headdim]' : '[total_seqlen, nheads, headdim] with cu_seqlens';
  if (x.rank !== (cu === undefined ? 4 : 3)) refuse('SHAPE', `${op}: x`, form, [...x.shape]);
  const headdim = x.shape.at(-1)!;
  if (cos.rank !== 2 || cos.shape[1]! < 1 || 2 * cos.shape[1]! > headdim)
    refuse('SHAPE', `${op}: cos`, `[seqlen_ro, rotary_dim / 2], rotary_dim at most headdim=${headdim}`, [...cos.shape]);
  checkDims(sin, `${op}: sin`, cos.shape);
  const rowsInAll = cos.shape[0]!;
  const lengths = cu === undefined ? Array(x.shape[0]).fill(x.shape[1]!) : readLengths(op, cu, x.shape[0]!);
  const most = lengths.reduce((longer, n) => Math.max(longer, n), 0);
  const longest = cu === undefined ? most : checkInteger(given.max_seqlen, `${op}: max_seqlen`, most);
  if (rowsInAll < longest) refuse('SHAPE', `${op}: cos`, `at least ${longest} rows, the longest sequence`, rowsInAll);
  const offsets = readOffsets(op, given.seqlen_offsets ?? 0, lengths.length, rowsInAll - longest);

  const tableRows = new Int32Array(lengths.reduce((sum, n) => sum + n, 0));
  let token = 0;
  for (const [b, length] of lengths.entries()) {
    for (let s = 0; s < length; s++) {
      const row = s + offsets[b]!;
      tableRows[token++] = row >= 0 && row < rowsInAll ? row : rowsInAll;
    }
  }
  const batched = cu === undefined ? { seqLen: x.shape[1]!, batch: x.shape[0]! } : { seqLen: x.shape[0]! };
  const plan = planRopeWithTable({
    headDim: headdim,
    rotaryDim: 2 * cos.shape[1]!,
    pairing: given.interleaved ? 'interleaved' : 'half',
    direction: given.conjugate ? 'backward' : 'forward',
    table: withIdentity(tableFromTensors(cos, sin, op)),
    tableRows,
    ...batched,
  });
  const inPlace = given.inplace ? x : undefined;
  if (inPlace) for (const [name, tensor] of Object.entries({ cos, sin })) checkApart(x, `${op}: x`, name, tensor);
  return runInto(rw, x, (out) => bindRope(plan, x, out), inPlace);
}

/** Adds to a table a row that does not rotate. */
function withIdentity({ rows, pairs, ...given }: RopeTable): RopeTable {
  const cos = new Float32Array(given.cos.length + pairs).fill(1);
  const sin = new Float32Array(given.sin.length + pairs);
  cos.set(given.cos);
  sin.set(given.sin);
  return { rows: rows + 1, pairs, cos, sin };
}

function readLengths(op: string, cu: Tensor, total: number): number[] {
  const where = `${op}: cu_seqlens`;
  checkTensor(cu, where);
  if (cu.rank !== 1 || cu.size === 0) refuse('SHAPE', where, '[batch + 1]', [...cu.shape]);
  const starts = readIntegers(cu, where);
  if (starts[0] !== 0) refuse('RANGE', `${where}[0]`, '0', starts[0]);
  for (let b = 1; b < starts.length; b++)
    if (starts[b]! < starts[b - 1]!) refuse('RANGE', `${where}[${b}]`, `an integer >= ${starts[b - 1]}`, starts[b]);
  if (starts.at(-1) !== total)
    refuse('RANGE', `${where}[${starts.length - 1}]`, `total_seqlen = ${total}`, starts.at(-1));
  return Array.from({ length: starts.length - 1 }, (_item, b) => starts[b + 1]! - starts[b]!);
}

/** Reads an offset for each sequence. One for all must leave every row inside the tables, as in flash-attn. */
function readOffsets(op: string, given: number | Tensor, batch: number, most: number): ArrayLike<number> {
  const where = `${op}: seqlen_offsets`;
  if (Tensor.isTensor(given)) {
    if (given.rank !== 1 || given.size !== batch) refuse('SHAPE', where, `[batch] = [${batch}]`, [...given.shape]);
    return readIntegers(given, where);
  }
  checkInteger(given, where, Number.MIN_SAFE_INTEGER, most, 'seqlen_ro - the longest sequence');
  return Array<number>(batch).fill(given);
}
