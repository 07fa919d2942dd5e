/**
 * LLAISYS' nine operators, with its signatures: outputs come first, tensors are float32, float16 or bfloat16, and dense.
 *
 * The angles of `rope` are float64 here. LLAISYS computes them in float32, which drifts after some thousand positions.
 *
 * @module
 * @see InfiniTensor/llaisys@7740d46f
 */
import type { ArrayOf, Backend, Dtype, OpPlan, Runner, Tensor } from 'ropewalk';
import {
  bindRope,
  isFloat,
  planAdd,
  planArgmax,
  planEmbedding,
  planLinear,
  planRearrange,
  planRmsNorm,
  planRope,
  planSelfAttention,
  planSwiglu,
  RopewalkError,
} from 'ropewalk';
import { fail, hostOf, refuse } from 'ropewalk/backend';
import { checkDims, checkDtype, checkRunner, checkTensor, reading } from 'ropewalk/internal';

type Named = Readonly<Record<string, Tensor>>;

/** `add(c, a, b)`: c = a + b; same shape, same dtype, contiguous. */
export function add(rw: Runner, c: Tensor, a: Tensor, b: Tensor): void {
  checkCommon('add', { c, a, b });
  run(
    rw,
    withNames({ out: 'c' }, () => planAdd(a, b, c)),
  );
}

/** `argmax(max_idx, max_val, vals)`: vals 1-D and contiguous; max_idx i64 `[1]`, max_val `[1]`. */
export function argmax(rw: Runner, max_idx: Tensor, max_val: Tensor, vals: Tensor): void {
  checkRanks('argmax', 1, { vals });
  checkDims(max_idx, 'argmax: max_idx', [1]);
  checkDims(max_val, 'argmax: max_val', [1]);
  checkDtype(max_idx, 'argmax: max_idx', 'i64');
  checkCommon('argmax', { max_val, vals }, { vals });
  run(rw, planArgmax(vals, max_idx, max_val));
}

/** `embedding(out, index, weight)`: index i64 1-D; weight and out 2-D, weight contiguous. */
export function embedding(rw: Runner, out: Tensor, index: Tensor, weight: Tensor): void {
  checkRanks('embedding', 1, { index });
  checkRanks('embedding', 2, { weight, out });
  checkDtype(index, 'embedding: index', 'i64');
  checkCommon('embedding', { out, weight }, { weight });
  checkOneDtype('embedding', weight, { out });
  run(rw, planEmbedding(index, weight, out));
}

/** `linear(out, in, weight, bias)`: out = in·weightᵀ + bias; 2-D and contiguous; bias 1-D or absent. */
export function linear(rw: Runner, out: Tensor, input: Tensor, weight: Tensor, bias?: Tensor | null): void {
  const matrices = { out, in: input, weight };
  const all: Named = bias ? { ...matrices, bias } : matrices;
  checkRanks('linear', 2, matrices);
  checkCommon('linear', all, matrices);
  const plan = withNames({ x: 'in' }, () => planLinear(input, weight, out, { bias: bias ?? undefined }));
  checkOneDtype('linear', input, all);
  run(rw, plan);
}

/** `rms_norm(out, in, weight, eps)`: rows of a 2-D contiguous tensor. */
export function rmsNorm(rw: Runner, out: Tensor, input: Tensor, weight: Tensor, eps: number): void {
  const matrices = { out, in: input };
  checkRanks('rms_norm', 2, matrices);
  checkCommon('rms_norm', { ...matrices, weight }, matrices);
  const plan = withNames({ x: 'in' }, () => planRmsNorm(input, weight, out, { eps }));
  checkOneDtype('rms_norm', input, { weight });
  run(rw, plan);
}

/**
 * `rope(out, in, pos_ids, theta)`: half pairing, over the whole head.
 *
 * @param rw - runs the plan
 * @param out - `[seqlen, nhead, d]`; may be `in` itself
 * @param input - `[seqlen, nhead, d]`, `in` upstream
 * @param pos_ids - i64 `[seqlen]`
 * @param theta - the base, such as 10000
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 */
export function rope(rw: Runner, out: Tensor, input: Tensor, pos_ids: Tensor, theta: number): void {
  checkRanks('rope', 3, { in: input });
  checkDims(out, 'rope: out', input.shape);
  checkDims(pos_ids, 'rope: pos_ids', [input.shape[0]!]);
  checkDtype(pos_ids, 'rope: pos_ids', 'i64');
  checkCommon('rope', { out, in: input });
  const names = { x: 'in', base: 'theta', positions: 'pos_ids', head_dim: 'd', rotary_dim: 'd' };
  const call = withNames(names, () => {
    const plan = planRope({ headDim: input.shape[2]!, pairing: 'half', base: theta, positions: pos_ids });
    return bindRope(plan, input, out);
  });
  run(rw, call);
}

/**
 * `self_attention(attn_val, q, k, v, scale)`: causal; the queries are the last seqlen of the total_len tokens.
 *
 * @param rw - runs the plan
 * @param attn_val - `[seqlen, nhead, dv]`
 * @param q - `[seqlen, nhead, d]`
 * @param k - `[total_len, nkvhead, d]`
 * @param v - `[total_len, nkvhead, dv]`
 * @param scale - usually 1/√d
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 */
export function selfAttention(rw: Runner, attn_val: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: number): void {
  const all = { attn_val, q, k, v };
  checkRanks('self_attention', 3, all);
  checkCommon('self_attention', all);
  checkOneDtype('self_attention', q, all);
  const plan = planSelfAttention(q, k, v, attn_val, { scale });
  // planSelfAttention has a default, 1/√d; LLAISYS has none.
  if (scale === undefined) refuse('RANGE', 'self_attention: scale', 'a finite number', scale);
  run(rw, plan);
}

/** `swiglu(out, gate, up)`: 2-D, same shape, contiguous. */
export function swiglu(rw: Runner, out: Tensor, gate: Tensor, up: Tensor): void {
  checkRanks('swiglu', 2, { out, gate, up });
  checkCommon('swiglu', { out, gate, up });
  checkOneDtype('swiglu', gate, { up, out });
  run(rw, planSwiglu(gate, up, out));
}

/** `rearrange(out, in)`: same shape, any strides on both sides, copied bit for bit. */
export function rearrange(rw: Runner, out: Tensor, input: Tensor): void {
  checkCommon('rearrange', { out, in: input }, {});
  const plan = withNames({ x: 'in' }, () => planRearrange(input, out));
  checkOneDtype('rearrange', input, { out });
  run(rw, plan);
}

/**
 * `load(data)`: copies elements into a tensor.
 *
 * @param tensor - contiguous, in host memory
 * @param data - as many elements, row-major, in the tensor's typed array; f16 and bf16 as bits
 * @throws {RopewalkError} SHAPE or DTYPE; DEVICE for a tensor that is not in host memory
 */
export function load<D extends Dtype>(tensor: Tensor<D>, data: ArrayOf[D]): void {
  checkTensor(tensor, 'load: tensor');
  const to = hostOf(tensor, 'load: tensor');
  if (!tensor.isContiguous()) fail('SHAPE', 'load: tensor', 'expected contiguous memory. Use rearrange first.');
  if (!reading('load: data', () => data?.constructor === to.constructor))
    refuse('DTYPE', 'load: data', `the ${to.constructor.name} of ${tensor.dtype}`, data);
  if (data.length !== tensor.size) refuse('SHAPE', 'load: data', `${tensor.size} elements`, data.length);
  (to as Float32Array).set(data as Float32Array, tensor.offset);
}

/**
 * `to(device)`: copies a tensor into the memory of a backend.
 *
 * @param backend - an open backend: the device
 * @param tensor - in host memory, any layout
 * @returns a dense tensor there, which the caller disposes of
 */
export function to<D extends Dtype>(backend: Backend, tensor: Tensor<D>): Tensor<D> {
  checkRunner(backend, 'to: backend');
  checkTensor(tensor, 'to: tensor');
  const { upload } = backend;
  if (typeof upload !== 'function') refuse('RANGE', 'to: backend', 'an open backend', backend);
  return upload.call(backend, tensor) as Tensor<D>;
}

/**
 * `debug()`: a line with shape, strides and dtype, then the elements as torch 2 prints them.
 *
 * @param tensor - in any memory
 * @returns the text
 * @see pytorch/pytorch torch/_tensor_str.py
 */
export async function debug(tensor: Tensor): Promise<string> {
  checkTensor(tensor, 'debug: tensor');
  const { shape, strides, dtype } = tensor;
  const head = `Tensor: shape[ ${shape.join(' ')} ] strides[ ${strides.join(' ')} ] dtype=${dtype}`;
  return `${head}\n${printed(await tensor.readNumbers(), shape, dtype)}`;
}

/** torch shows the edges of tensors with more elements, and has so many characters a line. */
const [THRESHOLD, EDGE, LINE] = [1000, 3, 80];
const TORCH = { bf: 'bfloat', f: 'float', i: 'int', u: 'uint' } as const;

function printed(values: Float64Array, shape: readonly number[], dtype: Dtype): string {
  const isEmpty = values.length === 0;
  // torch names all dtypes but those that it infers, which needs an element for i64.
  const isInferred = dtype === 'f32' || (dtype === 'i64' && !isEmpty);
  const name = dtype.replace(/^[a-z]+/, (letters) => TORCH[letters as keyof typeof TORCH]);
  const named = isInferred ? '' : `, dtype=torch.${name}`;
  if (isEmpty) return `tensor([]${shape.length === 1 ? '' : `, size=(${shape.join(', ')})`}${named})`;
  const cut = values.length > THRESHOLD;
  /** Lists the indices of a dimension that are shown; −1 stands for those that are not. */
  const shownOf = (size: number): readonly number[] => {
    const all = Array.from({ length: size }, (_, n) => n);
    return cut && size > 2 * EDGE ? [...all.slice(0, EDGE), -1, ...all.slice(-EDGE)] : all;
  };
  const places = shape.reduce<readonly number[]>(
    (rows, size) => rows.flatMap((row) => shownOf(size).flatMap((n) => (n < 0 ? [] : row * size + n))),
    [0],
  );
  const shown = places.map((place) => values[place]!);
  const format = formatOf(shown, isFloat(dtype));
  // torch measures numbers only, not inf, nan and the zeros of floating tensors.
  const measured = isFloat(dtype) ? shown.filter((value) => Number.isFinite(value) && value !== 0) : shown;
  const width = measured.reduce((most, value) => Math.max(most, format(value).length), 0);
  const text = (axis: number, row: number, indent: number): string => {
    if (axis === shape.length) return format(values[row]!).padStart(width);
    const size = shape[axis]!;
    const last = axis === shape.length - 1;
    const parts = shownOf(size).map((n) =>
      n < 0 ? `${last ? ' ' : ''}...` : text(axis + 1, row * size + n, indent + 1),
    );
    if (!last) return `[${parts.join(`,${'\n'.repeat(shape.length - axis - 1)}${' '.repeat(indent + 1)}`)}]`;
    const count = Math.max(1, Math.floor((LINE - indent) / (width + 2)));
    const lines = Array.from({ length: Math.ceil(parts.length / count) }, (_, n) =>
      parts.slice(n * count, (n + 1) * count).join(', '),
    );
    return `[${lines.join(`,\n${' '.repeat(indent + 1)}`)}]`;
  };
  return `tensor(${text(0, 0, 'tensor('.length)}${named})`;
}

function formatOf(values: readonly number[], floating: boolean): (value: number) => string {
  if (!floating) return String;
  const sizes = values.filter((value) => Number.isFinite(value) && value !== 0).map(Math.abs);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const integral = sizes.every(Number.isInteger);
  const scientific = most / least > 1000 || most > 1e8 || (!integral && least < 1e-4);
  const exponential = (value: number): string =>
    value.toExponential(4).replace(/([+-])(\d)$/, (_, sign, digit) => `${sign}0${digit}`);
  return (value) => {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
    return sizes.length > 0 && scientific ? exponential(value) : integral ? `${value}.` : value.toFixed(4);
  };
}

function run(rw: Runner, plan: OpPlan): void {
  checkRunner(rw, 'llaisys: rw');
  rw.run(plan);
}

/** Puts LLAISYS' argument names into the errors of Ropewalk's checks. */
function withNames<T>(names: Readonly<Record<string, string>>, check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    const rename = (word: string): string => (Object.hasOwn(names, word) ? names[word]! : word);
    throw new RopewalkError(error.code, error.message.replace(/\w+/g, rename), { cause: error });
  }
}

function checkRanks(op: string, rank: number, tensors: Named): void {
  for (const [name, tensor] of Object.entries(tensors)) {
    checkTensor(tensor, `${op}: ${name}`);
    if (tensor.rank !== rank) refuse('SHAPE', `${op}: ${name}`, `${rank} dimensions`, [...tensor.shape]);
  }
}

/** Ropewalk's operators allow mixed dtypes (half weights beside f32); LLAISYS allows one. */
function checkOneDtype(op: string, first: Tensor, others: Named): void {
  for (const [name, tensor] of Object.entries(others)) checkDtype(tensor, `${op}: ${name}`, first.dtype);
}

/** LLAISYS has three dtypes, and takes dense memory everywhere but in rearrange. */
function checkCommon(op: string, floats: Named, dense = floats): void {
  for (const [name, tensor] of Object.entries(floats)) {
    checkTensor(tensor, `${op}: ${name}`);
    if (tensor.dtype !== 'f32' && tensor.dtype !== 'f16' && tensor.dtype !== 'bf16')
      refuse('DTYPE', `${op}: ${name}`, 'f32, f16 or bf16', tensor.dtype);
  }
  for (const [name, tensor] of Object.entries(dense)) {
    if (tensor.isContiguous()) continue;
    const got = `strides [${tensor.strides}]`;
    fail('SHAPE', `${op}: ${name}`, `expected contiguous memory, got ${got}. Use rearrange first.`);
  }
}
