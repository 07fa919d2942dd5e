/**
 * ggml's RoPE: its calls, names and order of arguments, translated into plans.
 *
 * ```
 * NORMAL (0)  n_dims = 4 of 8 → [c s c s . . . .]   pairs (2j, 2j+1)
 * NEOX   (2)  n_dims = 4 of 8 → [c c s s . . . .]   pairs (j, j + n_dims/2); MROPE (8) and IMROPE (40) too
 * VISION (24) n_dims = 4 of 8 → [c c c c s s s s]   pairs (j, j + n_dims)
 * ```
 *
 * @module
 * @see ggml-org/ggml@d99724f include/ggml.h, src/ggml.c, src/ggml-cpu/ops.cpp
 */

import type { ArrayOf, RopeAxes, RopePlan, RopeScaling, Runner, TableRecipe } from 'ropewalk';
import { bindRope, planRope, sizeBytes, Tensor, tensorFrom } from 'ropewalk';
import { hostOf, newArray, refuse, rowMajorStrides } from 'ropewalk/backend';
import type { TableDtype } from 'ropewalk/internal';
import {
  checkInteger,
  checkRunner,
  checkTensor,
  countElements,
  fitsFloat32,
  type OptionNames,
  optionNames,
  readIntegers,
  readList,
  readOptions,
} from 'ropewalk/internal';
import { checkWritten, runInto } from './calls.js';

/** This mode rotates interleaved pairs (2j, 2j+1). */
export const GGML_ROPE_TYPE_NORMAL = 0;
/** This mode has half pairing (j, j + n_dims/2). */
export const GGML_ROPE_TYPE_NEOX = 2;
/** This mode has half pairing, with position axes in contiguous sections. */
export const GGML_ROPE_TYPE_MROPE = 8;
/** This mode rotates pairs (j, j + n_dims) over the whole head, with two position axes. */
export const GGML_ROPE_TYPE_VISION = 24;
/** This mode has half pairing, with position axes in turn, pair by pair. */
export const GGML_ROPE_TYPE_IMROPE = 40;

/** The sizes in ggml's order: head_dim, heads, tokens, batch. */
export type GgmlDims = readonly [number, number, number, number];

/** The element types of ggml's RoPE. */
export type GgmlType = 'f32' | 'f16' | 'i32';
type GgmlFloat = 'f32' | 'f16';

/** A tensor as ggml describes it: `ne` counts elements, fastest dimension first, and `nb` are strides in BYTES. */
export interface GgmlTensor<T extends GgmlType = GgmlType> {
  readonly type: T;
  readonly ne: GgmlDims;
  readonly nb: GgmlDims;
  /** The same elements as a Ropewalk tensor, `[ne3, ne2, ne1, ne0]`; read it with `await t.tensor.read()`. */
  readonly tensor: Tensor<T>;
}

/** The shape, strides and offset of a ggml view over its data. */
export interface GgmlTensorOptions {
  /** There are one to four dimensions, fastest first. Missing ones are 1. */
  readonly ne: readonly number[];
  /** The strides in bytes. Default: dense. */
  readonly nb?: readonly number[];
  /** The bytes from the start of data to element 0. Default: 0. */
  readonly view_offs?: number;
}

const TENSOR_NAMES: OptionNames<GgmlTensorOptions> = /* @__PURE__ */ optionNames('ne nb view_offs');

/**
 * Describes a typed array as a ggml tensor, which shares its memory.
 *
 * @param type - `f32` (Float32Array), `f16` (Uint16Array of bits, or Float16Array) or `i32` (Int32Array)
 * @param data - the elements
 * @param options - ne, nb in bytes, view_offs in bytes
 * @throws {RopewalkError} SHAPE, RANGE or DTYPE, with ggml's names
 */
export function ggmlTensor<T extends GgmlType>(
  type: T,
  data: ArrayOf[T] | ArrayBufferView,
  options: GgmlTensorOptions,
): GgmlTensor<T> {
  const unit = sizeBytes(checkType(type));
  const given = readOptions(options, 'ggml: options', TENSOR_NAMES);
  const four = fourDims(given.ne);
  const dense = rowMajorStrides([...four].reverse()).reverse();
  const nb = given.nb === undefined ? dense.map((stride) => stride * unit) : Array.from(readList(given.nb, 'ggml: nb'));
  const isStride = (bytes: number): boolean => Number.isSafeInteger(bytes) && bytes >= 0 && bytes % unit === 0;
  if (nb.length !== 4 || !nb.every(isStride))
    refuse('SHAPE', 'ggml: nb', `four multiples of ${unit} bytes, the size of ${type}`, nb);
  const offset = given.view_offs ?? 0;
  if (!isStride(offset)) refuse('RANGE', 'ggml: view_offs', `a multiple of ${unit} bytes`, offset);
  const whole = tensorFrom(data, { dtype: type });
  const tensor = new Tensor(whole.storage, {
    shape: [...four].reverse(),
    strides: nb.map((bytes) => bytes / unit).reverse(),
    offset: offset / unit,
  });
  return ggmlFromTensor(tensor);
}

function checkType<T extends GgmlType>(type: T): T {
  if (type !== 'f32' && type !== 'f16' && type !== 'i32')
    refuse('DTYPE', 'ggml: type', 'f32, f16 or i32', type, "ggml's RoPE takes no other type; use planRope for bf16.");
  return type;
}

function fourDims(given: readonly number[]): GgmlDims {
  const expected = 'one to four integers >= 0, fastest dimension first';
  const ne = Array.from(readList(given, 'ggml: ne', expected));
  if (ne.length < 1 || ne.length > 4 || !ne.every((n) => Number.isSafeInteger(n) && n >= 0))
    refuse('SHAPE', 'ggml: ne', expected, given);
  return [...ne, 1, 1, 1].slice(0, 4) as unknown as GgmlDims;
}

/** The parameters of one ggml RoPE, with ggml's names. Floats are rounded to f32, as ggml stores them. */
export interface GgmlRopeParams {
  readonly ne: GgmlDims;
  readonly n_dims: number;
  readonly mode: number;
  /** The multi modes give so many pairs to t, h, w and e. */
  readonly sections?: readonly number[];
  readonly n_ctx_orig?: number;
  readonly freq_base?: number;
  readonly freq_scale?: number;
  readonly ext_factor?: number;
  readonly attn_factor?: number;
  readonly beta_fast?: number;
  readonly beta_slow?: number;
  /** The dimension at which the rotated window starts (ggml_rope_set_offset). */
  readonly n_offs?: number;
  /** At least one factor for each pair, f32. */
  readonly freq_factors?: Float32Array | undefined;
  /** The positions are i32 `[ne2]`, in the multi modes `[4 · ne2]` axis by axis. */
  readonly positions: Int32Array;
  readonly direction?: 'forward' | 'backward';
  /** With `ggml-f32` the angles are computed as ggml does it. Default: float64. */
  readonly recipe?: TableRecipe;
  /** The dtype of cos and sin. Default: f32. */
  readonly tableDtype?: TableDtype;
}

const PARAMETER_NAMES: OptionNames<GgmlRopeParams> = /* @__PURE__ */ optionNames(
  'ne n_dims mode sections n_ctx_orig freq_base freq_scale ext_factor attn_factor beta_fast beta_slow n_offs',
  'freq_factors positions direction recipe tableDtype',
);

/** The names in messages, for a dialect with ggml's parameters. */
export type GgmlRopeWords = Readonly<Record<'op' | 'positions' | 'freq_factors' | 'ne0' | 'ne2', string>>;

const GGML_WORDS: GgmlRopeWords = { op: 'ggml_rope', positions: 'b', freq_factors: 'c', ne0: 'ne0', ne2: 'ne2' };
/** The float parameters and their defaults. */
const FLOATS = { freq_scale: 1, freq_base: 10000, ext_factor: 0, attn_factor: 1, beta_fast: 32, beta_slow: 1 };

/**
 * Translates a ggml RoPE into a plan. Reads shapes and positions, never elements.
 *
 * @param given - the call
 * @param wording - names for messages, for another dialect (CANN) with these parameters. Default: ggml's names
 * @returns a plan for tensors `[ne3, ne2, ne1, ne0]`; positions are shared over the batch
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED where ggml itself would assert or compute NaN
 */
export function ropePlanFromGgml(given: GgmlRopeParams, wording: GgmlRopeWords = GGML_WORDS): RopePlan {
  const words = readOptions(wording, 'ggml_rope: words');
  const { op } = words;
  const { n_dims, mode, n_offs = 0, ...p } = readOptions(given, `${op}: parameters`, PARAMETER_NAMES);
  const positions = readList(p.positions, `${op}: ${words.positions}`, 'a list of integers');
  const ne = fourDims(p.ne);
  const [ne0, , ne2] = ne;
  const multi = isMultiMode(mode, op);
  const vision = mode === GGML_ROPE_TYPE_VISION;
  // Its loops copy and rotate two elements at a time.
  if (ne0 % 2 !== 0) refuse('SHAPE', `${op}: ${words.ne0}`, 'an even number of dimensions', ne0);
  if (!Number.isInteger(n_dims) || n_dims < 2 || n_dims % 2 !== 0 || n_dims > ne0)
    refuse('RANGE', `${op}: n_dims`, `an even integer in [2, ${words.ne0}=${ne0}]`, n_dims);
  if (vision && n_dims * 2 !== ne0)
    refuse('RANGE', `${op}: n_dims`, `${words.ne0} / 2 = ${ne0 / 2} in VISION mode`, n_dims);
  checkInteger(n_offs, `${op}: n_offs`, 0, ne0 - n_dims, `${words.ne0} - n_dims`);
  if (vision && n_offs !== 0) refuse('UNSUPPORTED', `${op}: n_offs`, '0 in VISION mode', n_offs);
  if (positions.length !== ne2 * (multi ? 4 : 1)) {
    const wanted = multi ? `4 · ${words.ne2} = ${4 * ne2} positions, axis by axis` : `${words.ne2} = ${ne2} positions`;
    refuse('SHAPE', `${op}: ${words.positions}`, wanted, positions.length);
  }
  const freqFactors =
    p.freq_factors && checkFactors(p.freq_factors, vision ? n_dims : n_dims / 2, `${op}: ${words.freq_factors}`);
  const floats = { ...FLOATS };
  for (const name of Object.keys(FLOATS) as (keyof typeof FLOATS)[]) {
    const value = p[name] ?? FLOATS[name];
    if (!fitsFloat32(value)) refuse('RANGE', `${op}: ${name}`, 'a finite number', value);
    floats[name] = Math.fround(value);
    if (name.startsWith('freq_') && !(floats[name] > 0)) refuse('RANGE', `${op}: ${name}`, 'a number > 0', p[name]);
  }
  const { freq_scale, freq_base: base, ext_factor: extFactor, attn_factor: attnFactor, beta_fast, beta_slow } = floats;
  const originalContext = checkInteger(p.n_ctx_orig ?? 0, `${op}: n_ctx_orig`, 0);
  for (const [name, beta] of Object.entries({ beta_fast, beta_slow })) {
    // The ramp's edge is log(n_ctx_orig / beta), and ggml would compute NaN.
    if (extFactor === 0 || beta > 0 || (beta === 0 && originalContext > 0)) continue;
    refuse('RANGE', `${op}: ${name}`, 'a number > 0 where ext_factor is not 0', beta);
  }

  const factor = 1 / freq_scale;
  const betas = { betaFast: beta_fast, betaSlow: beta_slow };
  const yarn: RopeScaling = { kind: 'yarn', factor, originalContext, ...betas, extFactor, attnFactor };
  const linear: RopeScaling = freq_scale === 1 ? { kind: 'none' } : { kind: 'linear', factor };
  return planRope({
    headDim: ne0,
    rotaryDim: vision ? ne0 : n_dims,
    rotaryOffset: n_offs,
    pairing: vision ? 'vision' : mode === GGML_ROPE_TYPE_NORMAL ? 'interleaved' : 'half',
    axes: multi ? axesOf(mode, p.sections, ne0, words) : undefined,
    base,
    scaling: extFactor === 0 ? linear : yarn,
    attentionFactor: extFactor === 0 ? attnFactor : undefined,
    freqFactors,
    positions: positions as Int32Array,
    direction: p.direction,
    recipe: p.recipe,
    tableDtype: p.tableDtype,
  });
}

/** Says whether a mode has four positions a token. */
function isMultiMode(mode: number, op: string): boolean {
  if (mode === GGML_ROPE_TYPE_NORMAL || mode === GGML_ROPE_TYPE_NEOX) return false;
  if ([GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_VISION, GGML_ROPE_TYPE_IMROPE].includes(mode)) return true;
  return refuse('UNSUPPORTED', `${op}: mode`, '0 (NORMAL), 2 (NEOX), 8 (MROPE), 24 (VISION) or 40 (IMROPE)', mode);
}

/** Checks the factors. ggml asserts n_dims / 2 of them, but reads one for each pair, and VISION mode has n_dims pairs. */
function checkFactors(given: Float32Array, pairs: number, where: string): ArrayLike<number> {
  const factors = readList(given, where, `at least ${pairs} freq_factors`);
  if (factors.length < pairs)
    refuse('SHAPE', where, `at least ${pairs} freq_factors, one for each pair`, factors.length);
  for (let j = 0; j < pairs; j++) {
    if (!Number.isFinite(factors[j]) || factors[j] === 0)
      refuse('RANGE', `${where}[${j}]`, 'a finite number other than 0', factors[j]);
  }
  return factors;
}

function axesOf(mode: number, given: readonly number[] | undefined, ne0: number, words: GgmlRopeWords): RopeAxes {
  const where = `${words.op}: sections`;
  const expected = 'four integers >= 0: pairs of t, h, w, e';
  const sections = Array.from(readList(given ?? [], where, expected));
  if (sections.length !== 4 || !sections.every((n) => Number.isSafeInteger(n) && n >= 0))
    refuse('SHAPE', where, expected, given);
  if (!sections.slice(0, 3).some((n) => n > 0)) refuse('RANGE', where, 'at least one pair for t, h or w', sections);
  const total = sections.reduce((sum, n) => sum + n, 0);
  if (total > ne0) refuse('RANGE', where, `a sum of at most ${words.ne0}=${ne0}`, sections);
  const rule =
    mode === GGML_ROPE_TYPE_VISION ? 'vision' : mode === GGML_ROPE_TYPE_IMROPE ? 'interleaved-ggml' : 'sections';
  return { rule, sections };
}

/** The options that are not arguments of ggml's functions. */
export type GgmlRopeExtras = Pick<GgmlRopeParams, 'n_offs' | 'recipe' | 'tableDtype'>;

const EXTRA_NAMES: OptionNames<GgmlRopeExtras> = /* @__PURE__ */ optionNames('n_offs recipe tableDtype');

type TensorArguments<T extends GgmlFloat> = [a: GgmlTensor<T>, b: GgmlTensor<'i32'>, c: GgmlTensor<'f32'> | null];

/** The arguments of `ggml_rope` after the runner, in ggml's order. */
export type RopeArguments<T extends GgmlFloat> = [
  a: GgmlTensor<T>,
  b: GgmlTensor<'i32'>,
  n_dims: number,
  mode: number,
  extras?: GgmlRopeExtras,
];

/** `ggml_rope(ctx, a, b, n_dims, mode)`: base 10000, nothing scaled. See {@link ropeExt}. */
export function rope<T extends GgmlFloat>(rw: Runner, ...args: RopeArguments<T>): GgmlTensor<T> {
  const [a, b, n_dims, mode, extras] = args;
  return run(rw, [a, b, null], { n_dims, mode }, 'fresh', extras);
}

/** `ggml_rope_inplace`: {@link rope} that writes over `a`. */
export function ropeInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeArguments<T>): GgmlTensor<T> {
  const [a, b, n_dims, mode, extras] = args;
  return run(rw, [a, b, null], { n_dims, mode }, 'inplace', extras);
}

type ScalingArguments = [
  n_ctx_orig: number,
  freq_base: number,
  freq_scale: number,
  ext_factor: number,
  attn_factor: number,
  beta_fast: number,
  beta_slow: number,
  extras?: GgmlRopeExtras,
];
/** The arguments of `ggml_rope_ext` after the runner, in ggml's order. */
export type RopeExtArguments<T extends GgmlFloat> = [
  ...TensorArguments<T>,
  n_dims: number,
  mode: number,
  ...ScalingArguments,
];

/** The arguments of `ggml_rope_multi` after the runner, in ggml's order. */
export type RopeMultiArguments<T extends GgmlFloat> = [
  ...TensorArguments<T>,
  n_dims: number,
  sections: readonly number[],
  mode: number,
  ...ScalingArguments,
];

/**
 * `ggml_rope_ext`: rotates `a` by the positions in `b`.
 *
 * @param rw - runs the plan
 * @param args - a: `[head_dim, heads, tokens, batch]`, f32 or f16, dense in dimension 0; b: i32 `[tokens]`;
 *   c: f32 freq_factors or null; then n_dims, mode and the rest in ggml's order; last {@link GgmlRopeExtras}
 * @returns a fresh dense tensor of a's ne
 * @throws {RopewalkError} where ggml would assert, with ggml's names
 */
export function ropeExt<T extends GgmlFloat>(rw: Runner, ...args: RopeExtArguments<T>): GgmlTensor<T> {
  return runExt(rw, args, 'fresh');
}

/** `ggml_rope_ext_inplace`: {@link ropeExt} that writes over `a`. */
export function ropeExtInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeExtArguments<T>): GgmlTensor<T> {
  return runExt(rw, args, 'inplace');
}

/** `ggml_rope_ext_back`: turns gradients of the result into gradients of `a`. */
export function ropeExtBack<T extends GgmlFloat>(rw: Runner, ...args: RopeExtArguments<T>): GgmlTensor<T> {
  return runExt(rw, args, 'backward');
}

/** `ggml_rope_multi`: {@link ropeExt} with M-RoPE, IMROPE and VISION. `b` holds 4 · tokens positions, axis by axis. */
export function ropeMulti<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'fresh');
}

/** `ggml_rope_multi_inplace`: {@link ropeMulti} that writes over `a`. */
export function ropeMultiInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'inplace');
}

/** `ggml_rope_multi_back`: the gradients of {@link ropeMulti}. */
export function ropeMultiBack<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'backward');
}

type Form = 'fresh' | 'inplace' | 'backward';

function runExt<T extends GgmlFloat>(rw: Runner, args: RopeExtArguments<T>, form: Form): GgmlTensor<T> {
  const [a, b, c, n_dims, mode, ...rest] = args;
  return run(rw, [a, b, c], { n_dims, mode, ...scalingOf(rest) }, form, rest[7]);
}

function runMulti<T extends GgmlFloat>(rw: Runner, args: RopeMultiArguments<T>, form: Form): GgmlTensor<T> {
  const [a, b, c, n_dims, sections, mode, ...rest] = args;
  const expected = '8 (MROPE), 24 (VISION) or 40 (IMROPE)';
  if (!isMultiMode(mode, 'ggml_rope_multi'))
    refuse('UNSUPPORTED', 'ggml_rope_multi: mode', expected, mode, 'Use ropeExt for modes 0 and 2.');
  return run(rw, [a, b, c], { n_dims, sections, mode, ...scalingOf(rest) }, form, rest[7]);
}

function scalingOf(args: ScalingArguments) {
  const [n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow] = args;
  return { n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow };
}

function run<T extends GgmlFloat>(
  rw: Runner,
  [a, b, c]: TensorArguments<T>,
  params: Omit<GgmlRopeParams, 'ne' | 'positions'>,
  form: Form,
  extras: GgmlRopeExtras = {},
): GgmlTensor<T> {
  const op = 'ggml_rope';
  checkRunner(rw, `${op}: rw`);
  if (!MADE.has(a)) refuse('SHAPE', `${op}: a`, 'a ggml tensor from ggmlTensor', a);
  if (!MADE.has(b)) refuse('SHAPE', `${op}: b`, 'a ggml tensor of positions from ggmlTensor', b);
  if (c && !MADE.has(c)) refuse('SHAPE', `${op}: c`, 'a ggml tensor from ggmlTensor, or null', c);
  if (a.type !== 'f32' && a.type !== 'f16') refuse('DTYPE', `${op}: a`, 'type f32 or f16', a.type);
  if (b.type !== 'i32') refuse('DTYPE', `${op}: b`, 'type i32', b.type);
  if (b.ne[1] !== 1 || b.ne[2] !== 1 || b.ne[3] !== 1) refuse('SHAPE', `${op}: b`, 'a vector', [...b.ne]);
  if (c && c.type !== 'f32') refuse('DTYPE', `${op}: c`, 'type f32', c.type);
  if (a.ne[0] > 1 && a.nb[0] !== sizeBytes(a.type))
    refuse('SHAPE', `${op}: a`, `nb0 = ${sizeBytes(a.type)}: elements of a head side by side`, [...a.nb]);
  const { n_offs, recipe, tableDtype } = readOptions(extras, `${op}: extras`, EXTRA_NAMES);
  const plan = ropePlanFromGgml({
    ...params,
    ne: a.ne,
    positions: Int32Array.from(readIntegers(b.tensor, `${op}: b`)),
    freq_factors: c ? readFactors(c) : undefined,
    direction: form === 'backward' ? 'backward' : 'forward',
    n_offs,
    recipe,
    tableDtype,
  });
  if (form === 'inplace') {
    checkWritten(op, 'a', a.tensor, { b: b.tensor, ...(c ? { c: c.tensor } : undefined) });
    rw.run(bindRope(plan, a.tensor, a.tensor));
    return a;
  }
  return ggmlFromTensor(runInto<T>(rw, a.tensor, (out) => bindRope(plan, a.tensor, out)));
}

/** Reads the factors. ggml checks c's ne0 and reads only its first row. */
function readFactors(c: GgmlTensor<'f32'>): Float32Array {
  hostOf(c.tensor, 'ggml_rope: c');
  const row = [0, 1, 2].reduce((tensor, d) => tensor.slice(d, 0, Math.min(1, tensor.shape[d]!)), c.tensor);
  return row.read() as Float32Array;
}

/**
 * Describes a Ropewalk tensor as ggml does. The result shares its memory.
 *
 * @param tensor - f32, f16 or i32, at most four dimensions, no negative strides; missing leading dimensions become 1
 * @throws {RopewalkError} DTYPE or SHAPE, with ggml's names
 */
export function ggmlFromTensor<T extends GgmlType>(tensor: Tensor<T>): GgmlTensor<T> {
  checkTensor(tensor, 'ggml: tensor');
  const type = checkType(tensor.dtype);
  const unit = sizeBytes(type);
  if (tensor.rank > 4) refuse('SHAPE', 'ggml: ne', 'at most four dimensions', [...tensor.shape]);
  const ne = [...tensor.shape].reverse();
  const nb = [...tensor.strides].reverse().map((stride) => stride * unit);
  if (nb.some((bytes) => bytes < 0)) refuse('SHAPE', 'ggml: nb', 'strides >= 0', nb);
  while (ne.length < 4) {
    nb.push(ne.length === 0 ? unit : nb.at(-1)! * Math.max(1, ne.at(-1)!));
    ne.push(1);
  }
  const [shape, strides] = [[...ne].reverse(), nb.map((bytes) => bytes / unit).reverse()];
  const four = tensor.rank === 4 ? tensor : new Tensor(tensor.storage, { shape, strides, offset: tensor.offset });
  const made = Object.freeze({ type, ne: ne as unknown as GgmlDims, nb: nb as unknown as GgmlDims, tensor: four });
  MADE.add(made);
  return made;
}

/** The tensors that {@link ggmlFromTensor} has checked. */
const MADE = /* @__PURE__ */ new WeakSet<object>();

/**
 * Makes a dense ggml tensor of zeros (ggml_new_tensor_4d).
 *
 * @param type - element type
 * @param ne - one to four dimensions, fastest first
 */
export function ggmlZeros<T extends GgmlType>(type: T, ne: readonly number[]): GgmlTensor<T> {
  return ggmlTensor(type, newArray(checkType(type), countElements(fourDims(ne))), { ne });
}
