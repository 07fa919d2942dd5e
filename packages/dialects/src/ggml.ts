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

import type { ArrayOf, RopeAxes, RopePlan, RopeScaling, Runner, TableDtype, TableRecipe } from 'ropewalk';
import { bindRope, planRope, sizeBytes, Tensor, tensorFrom } from 'ropewalk';
import { hostOf, newArray, refuse, rowMajorStrides } from 'ropewalk/backend';
import {
  checkApart,
  checkOutput,
  checkRunner,
  checkTensor,
  countElements,
  fitsFloat32,
  type OptionNames,
  readIntegers,
  readList,
  readOptions,
  withFresh,
} from 'ropewalk/internal';

/** Interleaved pairs (2j, 2j+1). */
export const GGML_ROPE_TYPE_NORMAL = 0;
/** Half pairing (j, j + n_dims/2). */
export const GGML_ROPE_TYPE_NEOX = 2;
/** Half pairing with position axes in contiguous sections. */
export const GGML_ROPE_TYPE_MROPE = 8;
/** Pairs (j, j + n_dims) over the whole head, with two position axes. */
export const GGML_ROPE_TYPE_VISION = 24;
/** Half pairing with position axes in turn, pair by pair. */
export const GGML_ROPE_TYPE_IMROPE = 40;

/** Four numbers in ggml's order: head_dim, heads, tokens, batch. */
export type GgmlDims = readonly [number, number, number, number];

/** The element types of ggml's RoPE. */
export type GgmlType = 'f32' | 'f16' | 'i32';
type GgmlFloat = 'f32' | 'f16';

/** A tensor as ggml describes it: `ne` counts elements, fastest dimension first; `nb` are strides in BYTES. */
export interface GgmlTensor<T extends GgmlType = GgmlType> {
  readonly type: T;
  readonly ne: GgmlDims;
  readonly nb: GgmlDims;
  /** The same elements as a Ropewalk tensor, `[ne3, ne2, ne1, ne0]`; read it with `await t.tensor.read()`. */
  readonly tensor: Tensor<T>;
}

/** Shape, strides and offset of a ggml view over its data. */
export interface GgmlTensorOptions {
  /** One to four dimensions, fastest first; missing ones are 1. */
  readonly ne: readonly number[];
  /** Strides in bytes; dense unless given. */
  readonly nb?: readonly number[];
  /** Bytes from the start of data to element 0; 0 unless given. */
  readonly view_offs?: number;
}

const TENSOR_NAMES: OptionNames<GgmlTensorOptions> = { ne: true, nb: true, view_offs: true };

/**
 * Describes a typed array as a ggml tensor, sharing its memory.
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

/** Parameters of one ggml RoPE, under ggml's names. Float parameters are rounded to f32, as ggml stores them. */
export interface GgmlRopeParams {
  readonly ne: GgmlDims;
  readonly n_dims: number;
  readonly mode: number;
  /** Pairs of t, h, w, e; for the multi modes. */
  readonly sections?: readonly number[];
  readonly n_ctx_orig?: number;
  readonly freq_base?: number;
  readonly freq_scale?: number;
  readonly ext_factor?: number;
  readonly attn_factor?: number;
  readonly beta_fast?: number;
  readonly beta_slow?: number;
  /** Where the rotated window starts (ggml_rope_set_offset). */
  readonly n_offs?: number;
  /** f32, one a pair at least. */
  readonly freq_factors?: Float32Array | undefined;
  /** i32 `[ne2]`, or `[4 · ne2]` axis by axis for the multi modes. */
  readonly positions: Int32Array;
  readonly direction?: 'forward' | 'backward';
  readonly recipe?: TableRecipe;
  readonly tableDtype?: TableDtype;
}

const PARAMETER_NAMES: OptionNames<GgmlRopeParams> = {
  ne: true,
  n_dims: true,
  mode: true,
  sections: true,
  n_ctx_orig: true,
  freq_base: true,
  freq_scale: true,
  ext_factor: true,
  attn_factor: true,
  beta_fast: true,
  beta_slow: true,
  n_offs: true,
  freq_factors: true,
  positions: true,
  direction: true,
  recipe: true,
  tableDtype: true,
};

/** Names in messages, for a dialect with ggml's parameters. */
export interface GgmlRopeWords {
  readonly op: string;
  readonly positions: string;
  readonly freq_factors: string;
  readonly ne0: string;
  readonly ne2: string;
}

const FLOATS = ['freq_base', 'freq_scale', 'ext_factor', 'attn_factor', 'beta_fast', 'beta_slow'] as const;
const GGML_WORDS: GgmlRopeWords = { op: 'ggml_rope', positions: 'b', freq_factors: 'c', ne0: 'ne0', ne2: 'ne2' };

/**
 * Translates a ggml RoPE into a plan. Reads shapes and positions, never elements.
 *
 * @param given - the call
 * @param wording - names for messages, where another dialect (CANN) has these parameters; ggml's own unless given
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
  if (!Number.isInteger(n_dims) || n_dims < 2 || n_dims % 2 !== 0 || n_dims > ne0)
    refuse('RANGE', `${op}: n_dims`, `an even integer in [2, ${words.ne0}=${ne0}]`, n_dims);
  if (vision && n_dims * 2 !== ne0)
    refuse('RANGE', `${op}: n_dims`, `${words.ne0} / 2 = ${ne0 / 2} in VISION mode`, n_dims);
  if (!Number.isInteger(n_offs) || n_offs < 0 || n_offs + n_dims > ne0)
    refuse('RANGE', `${op}: n_offs`, `an integer in [0, ${words.ne0} - n_dims = ${ne0 - n_dims}]`, n_offs);
  if (vision && n_offs !== 0) refuse('UNSUPPORTED', `${op}: n_offs`, '0 in VISION mode', n_offs);
  if (positions.length !== ne2 * (multi ? 4 : 1)) {
    const wanted = multi ? `4 · ${words.ne2} = ${4 * ne2} positions, axis by axis` : `${words.ne2} = ${ne2} positions`;
    refuse('SHAPE', `${op}: ${words.positions}`, wanted, positions.length);
  }
  const freqFactors =
    p.freq_factors && checkFactors(p.freq_factors, vision ? n_dims : n_dims / 2, `${op}: ${words.freq_factors}`);
  const finite = (name: (typeof FLOATS)[number], usual: number): number => {
    const value = p[name] ?? usual;
    if (!fitsFloat32(value)) refuse('RANGE', `${op}: ${name}`, 'a finite number', value);
    return Math.fround(value);
  };
  const freqScale = finite('freq_scale', 1);
  if (!(freqScale > 0)) refuse('RANGE', `${op}: freq_scale`, 'a number > 0', p.freq_scale);
  const base = finite('freq_base', 10000);
  if (!(base > 0)) refuse('RANGE', `${op}: freq_base`, 'a number > 0', p.freq_base);
  const extFactor = finite('ext_factor', 0);
  const attnFactor = finite('attn_factor', 1);
  const betaFast = finite('beta_fast', 32);
  const betaSlow = finite('beta_slow', 1);
  const originalContext = p.n_ctx_orig ?? 0;
  if (!Number.isInteger(originalContext) || originalContext < 0)
    refuse('RANGE', `${op}: n_ctx_orig`, 'an integer >= 0', originalContext);
  for (const [name, beta] of Object.entries({ beta_fast: betaFast, beta_slow: betaSlow })) {
    // The ramp's edge is log(n_ctx_orig / beta), and ggml would compute NaN.
    if (extFactor === 0 || beta > 0 || (beta === 0 && originalContext > 0)) continue;
    refuse('RANGE', `${op}: ${name}`, 'a number > 0 where ext_factor is not 0', beta);
  }

  const factor = 1 / freqScale;
  const yarn: RopeScaling = { kind: 'yarn', factor, originalContext, betaFast, betaSlow, extFactor, attnFactor };
  const linear: RopeScaling = freqScale === 1 ? { kind: 'none' } : { kind: 'linear', factor };
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

/** Whether a mode has four positions a token. */
function isMultiMode(mode: number, op: string): boolean {
  if (mode === GGML_ROPE_TYPE_NORMAL || mode === GGML_ROPE_TYPE_NEOX) return false;
  if ([GGML_ROPE_TYPE_MROPE, GGML_ROPE_TYPE_VISION, GGML_ROPE_TYPE_IMROPE].includes(mode)) return true;
  return refuse('UNSUPPORTED', `${op}: mode`, '0 (NORMAL), 2 (NEOX), 8 (MROPE), 24 (VISION) or 40 (IMROPE)', mode);
}

/** ggml asserts n_dims / 2 factors, but reads one for each pair, and VISION mode has n_dims pairs. */
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

/** Options that are not arguments of ggml's functions. */
export interface GgmlRopeExtras {
  /** Start of the rotated window, ggml_rope_set_offset. */
  readonly n_offs?: number;
  /** `ggml-f32` computes angles as ggml does; float64 unless given. */
  readonly recipe?: TableRecipe;
  /** dtype of cos and sin; f32 unless given. */
  readonly tableDtype?: TableDtype;
}

const EXTRA_NAMES: OptionNames<GgmlRopeExtras> = { n_offs: true, recipe: true, tableDtype: true };

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
  return run(rw, a, b, null, { n_dims, mode }, 'fresh', extras);
}

/** `ggml_rope_inplace`: as {@link rope}, written over `a`. */
export function ropeInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeArguments<T>): GgmlTensor<T> {
  const [a, b, n_dims, mode, extras] = args;
  return run(rw, a, b, null, { n_dims, mode }, 'inplace', extras);
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
type TensorArguments<T extends GgmlFloat> = [a: GgmlTensor<T>, b: GgmlTensor<'i32'>, c: GgmlTensor<'f32'> | null];

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

/** `ggml_rope_ext_inplace`: as {@link ropeExt}, written over `a`. */
export function ropeExtInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeExtArguments<T>): GgmlTensor<T> {
  return runExt(rw, args, 'inplace');
}

/** `ggml_rope_ext_back`: gradients of the result → gradients of `a`; sin has the other sign. */
export function ropeExtBack<T extends GgmlFloat>(rw: Runner, ...args: RopeExtArguments<T>): GgmlTensor<T> {
  return runExt(rw, args, 'backward');
}

/** `ggml_rope_multi`: M-RoPE, IMROPE and VISION; `b` holds 4 · tokens positions, axis by axis. See {@link ropeExt}. */
export function ropeMulti<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'fresh');
}

/** `ggml_rope_multi_inplace`: as {@link ropeMulti}, written over `a`. */
export function ropeMultiInplace<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'inplace');
}

/** `ggml_rope_multi_back`: gradients of {@link ropeMulti}. */
export function ropeMultiBack<T extends GgmlFloat>(rw: Runner, ...args: RopeMultiArguments<T>): GgmlTensor<T> {
  return runMulti(rw, args, 'backward');
}

type Form = 'fresh' | 'inplace' | 'backward';

function runExt<T extends GgmlFloat>(rw: Runner, args: RopeExtArguments<T>, form: Form): GgmlTensor<T> {
  const [a, b, c, n_dims, mode, ...rest] = args;
  return run(rw, a, b, c, { n_dims, mode, ...scalingOf(rest) }, form, rest[7]);
}

function runMulti<T extends GgmlFloat>(rw: Runner, args: RopeMultiArguments<T>, form: Form): GgmlTensor<T> {
  const [a, b, c, n_dims, sections, mode, ...rest] = args;
  const expected = '8 (MROPE), 24 (VISION) or 40 (IMROPE)';
  if (!isMultiMode(mode, 'ggml_rope_multi'))
    refuse('UNSUPPORTED', 'ggml_rope_multi: mode', expected, mode, 'Use ropeExt for modes 0 and 2.');
  return run(rw, a, b, c, { n_dims, sections, mode, ...scalingOf(rest) }, form, rest[7]);
}

function scalingOf(args: ScalingArguments) {
  const [n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow] = args;
  return { n_ctx_orig, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow };
}

function run<T extends GgmlFloat>(
  rw: Runner,
  a: GgmlTensor<T>,
  b: GgmlTensor<'i32'>,
  c: GgmlTensor<'f32'> | null | undefined,
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
    checkOutput(a.tensor, `${op}: a`);
    checkApart(a.tensor, `${op}: a`, 'b', b.tensor);
    if (c) checkApart(a.tensor, `${op}: a`, 'c', c.tensor);
    rw.run(bindRope(plan, a.tensor, a.tensor));
    return a;
  }
  return withFresh(rw, a.type, a.tensor.shape, (out) => {
    rw.run(bindRope(plan, a.tensor, out));
    return ggmlFromTensor(out);
  });
}

/** ggml checks c's ne0 and reads only its first row. */
function readFactors(c: GgmlTensor<'f32'>): Float32Array {
  hostOf(c.tensor, 'ggml_rope: c');
  const row = [0, 1, 2].reduce((tensor, d) => tensor.slice(d, 0, Math.min(1, tensor.shape[d]!)), c.tensor);
  return row.read() as Float32Array;
}

/**
 * Describes a Ropewalk tensor as ggml does, sharing its memory.
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

/** Tensors that {@link ggmlFromTensor} has checked. */
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
