/**
 * aclnnKvRmsNormRopeCache, V1 and V2: RMS norm, RoPE and the write into two caches, as in DeepSeek's attention.
 *
 * @module
 */
import type { CacheDtype, HeadNorm, RopePartOptions, Runner, Tensor } from 'ropewalk';
import { bindRopeParts, planAdd, planRopeWithTable, tensorFrom } from 'ropewalk';
import { fail, hostOf, type OpPlan, refuse } from 'ropewalk/backend';
import {
  checkApart,
  checkDims,
  checkDtype,
  checkRunner,
  checkTensor,
  type OptionNames,
  optionNames,
  readIntegers,
  readName,
  readOptions,
} from 'ropewalk/internal';
import { checkWritten } from '../calls.js';
import { ACLNN_ROTARY_MODE, checkAclnnFloat, checkD, firstOfPairs, rowsByToken, type Tables } from './tables.js';

const MODES = ['Norm', 'PA', 'PA_BNSD', 'PA_NZ', 'PA_BLK_BNSD', 'PA_BLK_NZ'] as const;

/** The element types of kv: FLOAT16 and BFLOAT16. */
export type AclnnHalf = 'f16' | 'bf16';

/** The element types of a cache: kv's, or with a scale INT8, FLOAT8E4M3FN and FLOAT8E5M2. */
export type AclnnCache = AclnnHalf | 'i8' | 'f8_e4m3' | 'f8_e5m2';

/** The arguments of {@link aclnnKvRmsNormRopeCache}, with aclnn's names. */
export interface AclnnKvRmsNormRopeCacheArguments<D extends AclnnHalf> {
  /** The latent part is followed by the part that rotates: `[B, 1, S, Dv + Dk]`, any strides. */
  readonly kv: Tensor<D>;
  /** The weight of the norm, `[Dv]` in kv's dtype. */
  readonly gamma: Tensor<D>;
  /** `[B, 1, S, Dk]` or `[B, 1, 1, Dk]`, kv's dtype, in host memory; in halves, as the rotation writes. */
  readonly cos: Tensor<D>;
  /** As cos. */
  readonly sin: Tensor<D>;
  /**
   * Each token goes to a place, i64; -1 skips it. `Norm`: `[B, S]`, rows of its batch. `PA`, `PA_BNSD`, `PA_NZ`: `[B · S]`,
   * slots. `PA_BLK_BNSD`, `PA_BLK_NZ`: `[B · ⌈S / BlockSize⌉]`, the slot at which a block starts.
   */
  readonly index: Tensor<'i64'>;
  /** The cache of the rotated part: `[B, 1, Scache, Dk]` in `Norm`, else `[BlockNum, BlockSize, 1, Dk]`. */
  readonly kCacheRef: Tensor<AclnnCache>;
  /** The cache of the normalised part, as kCacheRef with Dv. */
  readonly ckvCacheRef: Tensor<AclnnCache>;
  /** An 8-bit cache stores round(value · scale + offset): f32 `[Dk]`, `[1, Dk]` or `[1]`, in host memory. */
  readonly kRopeScaleOptional?: Tensor<'f32'> | null;
  /** As kRopeScaleOptional with Dv, for ckvCacheRef. */
  readonly cKvScaleOptional?: Tensor<'f32'> | null;
  /** As kRopeScaleOptional. Default: 0. */
  readonly kRopeOffsetOptional?: Tensor<'f32'> | null;
  /** As cKvScaleOptional. Default: 0. */
  readonly cKvOffsetOptional?: Tensor<'f32'> | null;
  /** The norm adds it to the mean of squares. */
  readonly epsilon: number;
  /** The layout of the caches. Default: `Norm`. */
  readonly cacheModeOptional?: (typeof MODES)[number];
  /** The call also writes and returns kRopeOut and cKvOut. Default: false. */
  readonly isOutputKv?: boolean;
  /** `[B, N, S, Dk]`, kv's dtype, any strides; with isOutputKv only. Default: a fresh dense tensor. */
  readonly kRopeOut?: Tensor<D> | null;
  /** As kRopeOut with Dv. */
  readonly cKvOut?: Tensor<D> | null;
}

const NAMES: OptionNames<AclnnKvRmsNormRopeCacheArguments<AclnnHalf>> = /* @__PURE__ */ optionNames(
  'kv gamma cos sin index kCacheRef ckvCacheRef kRopeScaleOptional cKvScaleOptional kRopeOffsetOptional',
  'cKvOffsetOptional epsilon cacheModeOptional isOutputKv kRopeOut cKvOut',
);

/** The arguments of {@link aclnnKvRmsNormRopeCacheV2}, with aclnn's names. */
export interface AclnnKvRmsNormRopeCacheV2Arguments<D extends AclnnHalf> extends AclnnKvRmsNormRopeCacheArguments<D> {
  /**
   * `[B, N, S, Dv]`, kv's dtype: v apart from k. kv `[B, N, S, Dk]` is then normalised whole by gamma `[Dk]`, its first
   * dimensions rotate, as many as cos is wide, and it goes into kCacheRef; v goes into ckvCacheRef as it is. Scales and
   * offsets are `[N, D]`.
   */
  readonly vOptional?: Tensor<D> | null;
}

const V2_NAMES: OptionNames<AclnnKvRmsNormRopeCacheV2Arguments<AclnnHalf>> = { ...NAMES, vOptional: true };

/** The values before they are quantised, in kv's dtype. They are there where isOutputKv is true. */
export interface KvOutputs<D extends AclnnHalf> {
  /** `[B, N, S, Dk]` */
  readonly kRopeOut: Tensor<D> | undefined;
  /** `[B, N, S, Dv]` */
  readonly cKvOut: Tensor<D> | undefined;
}

/**
 * `aclnnKvRmsNormRopeCache`: RMS norm of the latent part of each row, RoPE of the rest (reads pairs (2j, 2j+1), writes
 * (j, j + Dk/2)), then both into their caches, each value rounded once.
 *
 * @param rw - runs the plans
 * @param options - the arguments
 * @returns kRopeOut and cKvOut, fresh dense tensors, with isOutputKv
 * @throws {RopewalkError} UNSUPPORTED, SHAPE, DTYPE, RANGE or ALIAS, naming the argument; nothing is written then
 * @see hicann/ops-transformer@0eb0312c posembedding/kv_rms_norm_rope_cache
 */
export function aclnnKvRmsNormRopeCache<D extends AclnnHalf>(
  rw: Runner,
  options: AclnnKvRmsNormRopeCacheArguments<D>,
): KvOutputs<D> {
  const op = 'aclnnKvRmsNormRopeCache';
  checkRunner(rw, `${op}: rw`);
  return writeCaches(rw, op, readOptions(options, `${op}: arguments`, NAMES), undefined);
}

/**
 * `aclnnKvRmsNormRopeCacheV2`: {@link aclnnKvRmsNormRopeCache}, where with vOptional k and v come apart and have several heads.
 *
 * @param rw - runs the plans
 * @param options - the arguments
 * @returns kRopeOut and cKvOut, fresh dense tensors, with isOutputKv
 * @throws {RopewalkError} as {@link aclnnKvRmsNormRopeCache}
 * @see hicann/ops-transformer@0eb0312c posembedding/kv_rms_norm_rope_cache
 */
export function aclnnKvRmsNormRopeCacheV2<D extends AclnnHalf>(
  rw: Runner,
  options: AclnnKvRmsNormRopeCacheV2Arguments<D>,
): KvOutputs<D> {
  const op = 'aclnnKvRmsNormRopeCacheV2';
  checkRunner(rw, `${op}: rw`);
  const { vOptional, ...given } = readOptions(options, `${op}: arguments`, V2_NAMES);
  return writeCaches(rw, op, given, vOptional ?? undefined);
}

/** One of the two parts of a token, and the cache that it goes into. */
interface Stored<D extends AclnnHalf> {
  readonly name: 'kRope' | 'cKv';
  readonly ref: 'kCacheRef' | 'ckvCacheRef';
  readonly cache: Tensor<AclnnCache>;
  /** `[B, N, S, d]` */
  readonly x: Tensor<D>;
  readonly rotate: boolean;
  readonly norm: HeadNorm | undefined;
  readonly scale: Tensor<'f32'> | undefined;
  readonly offset: Tensor<'f32'> | undefined;
  readonly out: Tensor<D> | undefined;
}

function writeCaches<D extends AclnnHalf>(
  rw: Runner,
  op: string,
  given: AclnnKvRmsNormRopeCacheArguments<D>,
  v: Tensor<D> | undefined,
): KvOutputs<D> {
  const { kv, gamma, cos, sin, index, kCacheRef, ckvCacheRef, epsilon, isOutputKv = false } = given;
  const inputs = { kv, gamma, cos, sin, index, ...(v === undefined ? {} : { vOptional: v }) };
  for (const [name, tensor] of Object.entries({ ...inputs, kCacheRef, ckvCacheRef }))
    checkTensor(tensor, `${op}: ${name}`);
  const cacheMode = readName(given.cacheModeOptional ?? 'Norm', MODES, `${op}: cacheModeOptional`);
  if (typeof isOutputKv !== 'boolean') refuse('RANGE', `${op}: isOutputKv`, 'true or false', isOutputKv);
  if (!Number.isFinite(epsilon) || epsilon < 0) refuse('RANGE', `${op}: epsilon`, 'a finite number >= 0', epsilon);
  checkAclnnFloat(kv, `${op}: kv`, ['f16', 'bf16']);
  for (const name of ['gamma', 'cos', 'sin'] as const) checkAclnnFloat(inputs[name], `${op}: ${name}`, [kv.dtype]);
  checkDtype(index, `${op}: index`, 'i64');
  if (kv.rank !== 4 || kv.size === 0 || (v === undefined && kv.shape[1] !== 1)) {
    const form = v === undefined ? '[B, 1, S, Dv + Dk]' : '[B, N, S, Dk]';
    refuse('SHAPE', `${op}: kv`, `${form}, not empty`, [...kv.shape]);
  }
  const [B, N, S, D] = kv.shape as [number, number, number, number];
  const widths = checkWidths(op, { kv, gamma, cos, sin, v });
  if (v !== undefined) {
    checkAclnnFloat(v, `${op}: vOptional`, [kv.dtype]);
    checkDims(v, `${op}: vOptional`, [B, N, S, widths.c]);
  }
  const norm = { weight: gamma, eps: epsilon };
  const part = (name: Stored<D>['name'], ref: Stored<D>['ref'], x: Tensor<D>, rotate: boolean): Stored<D> => ({
    name,
    ref,
    cache: given[ref],
    x,
    rotate,
    norm: rotate === (v !== undefined) ? norm : undefined,
    scale: given[`${name}ScaleOptional`] ?? undefined,
    offset: given[`${name}OffsetOptional`] ?? undefined,
    out: given[`${name}Out`] ?? undefined,
  });
  // Without v the norm is that of the latent part of kv; with v it is that of k.
  const k = part('kRope', 'kCacheRef', v === undefined ? kv.slice(3, D - widths.k, D) : kv, true);
  const c = part('cKv', 'ckvCacheRef', v ?? kv.slice(3, 0, widths.c), false);
  for (const stored of [k, c]) checkCache(op, stored, cacheMode, inputs);
  checkApart(kCacheRef, `${op}: kCacheRef`, 'ckvCacheRef', ckvCacheRef);
  checkDims(ckvCacheRef, `${op}: ckvCacheRef`, kCacheRef.shape.with(3, widths.c));
  const rows = readIndex(op, index, cacheMode, kCacheRef, [B, S]);
  const quantized = [k, c].map((stored) => ({ ...stored, ...readScales(op, stored, v !== undefined) }));
  for (const { name, x, out } of quantized) {
    if (out === undefined) continue;
    const where = `${op}: ${name}Out`;
    if (!isOutputKv)
      fail('UNSUPPORTED', where, 'it is written with isOutputKv: true only. Give that, or leave it out.');
    checkDtype(out, where, kv.dtype);
    checkDims(out, where, x.shape);
    checkWritten(op, `${name}Out`, out, { ...inputs, kCacheRef, ckvCacheRef });
  }
  if (k.out !== undefined && c.out !== undefined) checkApart(c.out, `${op}: cKvOut`, 'kRopeOut', k.out);
  const taken: Tensor[] = [];
  const fresh: Tensor<D>[] = [];
  try {
    const parts = quantized.map(({ ref, x, cache, out, ...rest }) => {
      if (isOutputKv && out === undefined) fresh.push(rw.allocate(kv.dtype, x.shape));
      const output = isOutputKv ? (out ?? fresh.at(-1)) : undefined;
      return { ...rest, x, output, cache: viewBlocks(op, ref, cache, cacheMode) };
    });
    const at = cacheMode === 'Norm' ? { rows } : { slots: rows };
    const calls: OpPlan[] = [];
    for (let h = 0; h < N; h++)
      calls.push(...headCalls(rw, op, parts, { cos, sin }, h, at, cacheMode.endsWith('NZ'), taken));
    for (const call of calls) rw.run(call);
    return { kRopeOut: parts[0]!.output, cKvOut: parts[1]!.output };
  } catch (error) {
    for (const tensor of fresh) tensor.dispose();
    throw error;
  } finally {
    for (const tensor of taken) tensor.dispose();
  }
}

/** Tokens go to rows of their batch, or to slots of blocks. */
type Places = { readonly rows: Int32Array } | { readonly slots: Int32Array };

/** A checked part. Scale and offset are `[N, d]`, flat. */
interface CheckedPart extends Pick<Stored<AclnnHalf>, 'x' | 'rotate' | 'norm'> {
  readonly cache: Tensor<CacheDtype>;
  readonly scale: Float64Array | undefined;
  readonly offset: Float64Array | undefined;
  readonly output: Tensor<AclnnHalf> | undefined;
}

/**
 * Makes the calls of one head, which are one call where possible. Values for NZ caches, whose heads lie in pieces, and
 * those with an offset go through f32 first, so that they are rounded once all the same.
 */
function headCalls(
  rw: Runner,
  op: string,
  checked: readonly CheckedPart[],
  { cos, sin }: Tables,
  h: number,
  at: Places,
  nz: boolean,
  taken: Tensor[],
): OpPlan[] {
  const head = <T extends Tensor>(tensor: T): T => {
    const start = tensor.shape[1] === 1 ? 0 : h;
    return tensor.permute([0, 2, 1, 3]).slice(2, start, start + 1) as T;
  };
  const mode = ACLNN_ROTARY_MODE.interleaveHalf;
  const [cosines, sines] = [firstOfPairs(head(cos), mode, `${op}: cos`), firstOfPairs(head(sin), mode, `${op}: sin`)];
  const first = head(checked[0]!.x);
  const plan = planRopeWithTable({
    headDim: first.shape[3]!,
    rotaryDim: cos.shape[3]!,
    pairing: 'interleaved-to-half',
    ...rowsByToken(op, cosines, sines, first),
  });
  const parts: RopePartOptions[] = [];
  const last: RopePartOptions[] = [];
  const between: OpPlan[] = [];
  for (const { x, rotate, norm, cache, scale, offset, output } of checked) {
    const part = { x: head(x), rotate, norm };
    const d = part.x.shape[3]!;
    if (output !== undefined) parts.push({ ...part, out: head(output) });
    const into = nz ? cache : cache.slice(2, h, h + 1);
    const step = scale && Array.from(scale.subarray(h * d, (h + 1) * d), (s) => 1 / s);
    if (!nz && offset === undefined) {
      parts.push({ ...part, out: into, scale: step, ...at });
      continue;
    }
    const values = rw.allocate('f32', part.x.shape);
    taken.push(values);
    parts.push({ ...part, out: values });
    if (offset !== undefined) {
      // value · scale + offset = (value + offset / scale) · scale
      const bias = Float32Array.from({ length: d }, (_item, i) => offset[h * d + i]! / scale![h * d + i]!);
      between.push(planAdd(values, tensorFrom(bias, { shape: values.shape, strides: [0, 0, 0, 1] }), values));
    }
    const [B, S] = values.shape as [number, number];
    const pieces = nz ? values.view([B, S, into.shape[2]!, into.shape[3]!]) : values;
    last.push({ x: pieces, out: into, rotate: false, scale: step, ...at });
  }
  const call = (list: readonly RopePartOptions[]) => (list.length === 0 ? [] : [bindRopeParts(plan, list)]);
  return [...call(parts), ...between, ...call(last)];
}

/** Checks the widths of all tensors. Returns those of the two stored parts, Dk and Dv. */
function checkWidths(
  op: string,
  { kv, gamma, cos, sin, v }: { kv: Tensor; gamma: Tensor; cos: Tensor; sin: Tensor; v: Tensor | undefined },
): { k: number; c: number } {
  const [B, N, S, D] = kv.shape as [number, number, number, number];
  const sizes = [B, N, S];
  const turns = cos.shape[3] ?? 0;
  const fits = cos.rank === 4 && cos.shape.slice(0, 3).every((size, d) => size === sizes[d] || (d > 0 && size === 1));
  const width = v === undefined ? D - 1 : D;
  if (!fits || turns > width)
    refuse('SHAPE', `${op}: cos`, `[B, 1, S, Dk] or [B, 1, 1, Dk] of [${sizes}], Dk at most ${width}`, [...cos.shape]);
  checkD(turns, ACLNN_ROTARY_MODE.half, `${op}: cos`);
  checkDims(sin, `${op}: sin`, cos.shape);
  const normed = v === undefined ? D - turns : D;
  checkDims(gamma, `${op}: gamma`, [normed]);
  if (v === undefined) return { k: turns, c: normed };
  if (v.rank !== 4 || v.shape[3] === 0) refuse('SHAPE', `${op}: vOptional`, `[${sizes}, Dv]`, [...v.shape]);
  return { k: D, c: v.shape[3]! };
}

function checkCache(
  op: string,
  { ref, cache, x }: Stored<AclnnHalf>,
  cacheMode: (typeof MODES)[number],
  inputs: Readonly<Record<string, Tensor>>,
): void {
  const where = `${op}: ${ref}`;
  const [B, N, , d] = x.shape as [number, number, number, number];
  const lead = cacheMode === 'Norm' ? [B, N, cache.shape[2] ?? 0] : [cache.shape[0] ?? 0, cache.shape[1] ?? 0, N];
  const form = cacheMode === 'Norm' ? '[B, N, Scache, d]' : '[BlockNum, BlockSize, N, d]';
  const expected = `${form} with N=${N} and d=${d} in cacheModeOptional ${cacheMode}`;
  if (cache.rank !== 4 || [...lead, d].some((size, dim) => size !== cache.shape[dim]))
    refuse('SHAPE', where, expected, [...cache.shape]);
  if (cache.size === 0) refuse('SHAPE', where, 'a cache that is not empty', [...cache.shape]);
  checkWritten(op, ref, cache, inputs);
}

/** Reads the row of each token in its batch, or its slot, `[B · S]`. */
function readIndex(
  op: string,
  index: Tensor<'i64'>,
  cacheMode: (typeof MODES)[number],
  cache: Tensor,
  [B, S]: readonly [number, number],
): Int32Array {
  const blockSize = cache.shape[1]!;
  const byBlock = cacheMode.startsWith('PA_BLK');
  const perBatch = byBlock ? Math.ceil(S / blockSize) : S;
  checkDims(index, `${op}: index`, cacheMode === 'Norm' ? [B, S] : [B * perBatch]);
  const count = cacheMode === 'Norm' ? cache.shape[2]! : cache.shape[0]! * blockSize;
  const values = readIntegers(index, `${op}: index`);
  const seen = new Set<number>();
  for (const [n, value] of values.entries()) {
    if (cacheMode === 'Norm' && n % S === 0) seen.clear();
    if (value < -1 || value >= count) refuse('RANGE', `${op}: index[${n}]`, `an integer in [-1, ${count})`, value);
    if (value < 0) continue;
    const place = byBlock ? Math.floor(value / blockSize) : value;
    if (seen.has(place)) fail('RANGE', `${op}: index[${n}]`, `${byBlock ? 'block' : 'place'} ${place} is given twice`);
    seen.add(place);
  }
  return Int32Array.from({ length: B * S }, (_item, token) => {
    if (!byBlock) return values[token]!;
    const s = token % S;
    const start = values[Math.floor(token / S) * perBatch + Math.floor(s / blockSize)]!;
    return start < 0 ? -1 : start - (start % blockSize) + (s % blockSize);
  });
}

/** Checks a cache's dtype against its scale and offset, and reads them as `[N, d]`, flat. */
function readScales(
  op: string,
  { name, ref, cache, x, scale, offset }: Stored<AclnnHalf>,
  byHead: boolean,
): Pick<CheckedPart, 'scale' | 'offset'> {
  const [scaleName, offsetName] = [`${name}ScaleOptional`, `${name}OffsetOptional`] as const;
  if (scale === undefined) {
    if (offset !== undefined) refuse('SHAPE', `${op}: ${scaleName}`, `a scale beside ${offsetName}`, undefined);
    if (cache.dtype !== x.dtype)
      refuse('DTYPE', `${op}: ${ref}`, `kv's dtype ${x.dtype}, as there is no ${scaleName}`, cache.dtype);
    return { scale: undefined, offset: undefined };
  }
  if (cache.dtype !== 'i8' && cache.dtype !== 'f8_e4m3' && cache.dtype !== 'f8_e5m2')
    refuse('DTYPE', `${op}: ${ref}`, `i8, f8_e4m3 or f8_e5m2, as there is a ${scaleName}`, cache.dtype);
  const d = x.shape[3]!;
  const read = (tensor: Tensor, where: string): Float64Array => {
    checkDtype(tensor, where, 'f32');
    hostOf(tensor, where);
    const one = !byHead && tensor.rank === 1 && tensor.size === 1;
    const row = !byHead && tensor.rank === 2 && tensor.shape[0] === 1 && tensor.shape[1] === d;
    if (!one && !row) checkDims(tensor, where, byHead ? [x.shape[1]!, d] : [d]);
    const values = tensor.readNumbers() as Float64Array;
    return one ? new Float64Array(d).fill(values[0]!) : values;
  };
  const scales = read(scale, `${op}: ${scaleName}`);
  for (const [n, value] of scales.entries())
    if (!(value >= 2 ** -64 && value <= 2 ** 64))
      refuse('RANGE', `${op}: ${scaleName}[${n}]`, 'a number in [2^-64, 2^64]', value);
  if (offset === undefined) return { scale: scales, offset: undefined };
  const offsets = read(offset, `${op}: ${offsetName}`);
  for (const [n, value] of offsets.entries())
    if (!Number.isFinite(Math.fround(value / scales[n]!)))
      refuse('RANGE', `${op}: ${offsetName}[${n}]`, 'a number whose quotient by the scale is finite in f32', value);
  return { scale: scales, offset: offsets };
}

/**
 * Views a cache as `[batch, row, head, d]` or `[block, row, head, d]`. In FRACTAL_NZ pieces of 32 bytes of each row lie
 * together, `[BlockNum, d / piece, BlockSize, piece]`.
 */
function viewBlocks(
  op: string,
  ref: string,
  cache: Tensor<CacheDtype>,
  cacheMode: (typeof MODES)[number],
): Tensor<CacheDtype> {
  if (cacheMode === 'Norm') return cache.permute([0, 2, 1, 3]);
  if (!cacheMode.endsWith('NZ')) return cache;
  const where = `${op}: ${ref}`;
  const [blocks, size, N, d] = cache.shape as [number, number, number, number];
  const piece = cache.dtype === 'f16' || cache.dtype === 'bf16' ? 16 : 32;
  if (N !== 1 || d % piece !== 0)
    refuse('SHAPE', where, `[BlockNum, BlockSize, 1, a multiple of ${piece}] in an NZ mode`, [...cache.shape]);
  if (!cache.isContiguous()) refuse('SHAPE', where, 'dense elements in an NZ mode', [...cache.strides]);
  return cache.view([blocks, d / piece, size, piece]).permute([0, 2, 1, 3]);
}
