/**
 * LLAISYS' nine operators by their own signatures: outputs first, float32, float16 and bfloat16, dense memory.
 *
 * The angles of `rope` are float64 here; LLAISYS' own are float32 and leave the exact answer past some thousand positions.
 *
 * @module
 * @see InfiniTensor/llaisys@7740d46f; seed document 001
 */
import { RopewalkError, refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { planAdd } from '../ops/add.js';
import { planArgmax } from '../ops/argmax.js';
import { planEmbedding } from '../ops/embedding.js';
import { planLinear } from '../ops/linear.js';
import { planRearrange } from '../ops/rearrange.js';
import { planRmsNorm } from '../ops/rms-norm.js';
import { bindRope } from '../ops/rope/call.js';
import { planRope } from '../ops/rope/plan.js';
import { checkDims, checkDtype, checkRunner, type OpPlan, type Runner } from '../ops/runner.js';
import { planSelfAttention } from '../ops/self-attention.js';
import { planSwiglu } from '../ops/swiglu.js';

type Named = readonly (readonly [name: string, tensor: Tensor])[];

/** `add(c, a, b)`: c = a + b; same shape, same dtype, contiguous; checked in that order. */
export function add(rw: Runner, c: Tensor, a: Tensor, b: Tensor): void {
  const plan = inItsWords({ out: 'c' }, () => planAdd(a, b, c));
  checkCommon(
    'add',
    [
      ['c', c],
      ['a', a],
      ['b', b],
    ],
    [
      ['c', c],
      ['a', a],
      ['b', b],
    ],
  );
  run(rw, plan);
}

/** `argmax(max_idx, max_val, vals)`: vals 1-D and contiguous; max_idx i64 `[1]`, max_val `[1]`. */
export function argmax(rw: Runner, max_idx: Tensor, max_val: Tensor, vals: Tensor): void {
  checkRank('argmax', 'vals', vals, 1);
  checkDims(max_idx, 'argmax: max_idx', [1]);
  checkDims(max_val, 'argmax: max_val', [1]);
  checkDtype(max_idx, 'argmax: max_idx', 'i64');
  checkCommon(
    'argmax',
    [
      ['max_val', max_val],
      ['vals', vals],
    ],
    [['vals', vals]],
  );
  run(rw, planArgmax(vals, max_idx, max_val));
}

/** `embedding(out, index, weight)`: index i64 1-D; weight and out 2-D, weight contiguous. */
export function embedding(rw: Runner, out: Tensor, index: Tensor, weight: Tensor): void {
  checkRank('embedding', 'index', index, 1);
  checkRank('embedding', 'weight', weight, 2);
  checkRank('embedding', 'out', out, 2);
  checkDtype(index, 'embedding: index', 'i64');
  checkCommon(
    'embedding',
    [
      ['out', out],
      ['weight', weight],
    ],
    [['weight', weight]],
  );
  const plan = planEmbedding(index, weight, out);
  checkOneDtype('embedding', weight, [['out', out]]);
  run(rw, plan);
}

/** `linear(out, in, weight, bias)`: out = in·weightᵀ + bias; 2-D and contiguous; bias 1-D or absent. */
export function linear(rw: Runner, out: Tensor, input: Tensor, weight: Tensor, bias?: Tensor | null): void {
  const matrices: Named = [
    ['out', out],
    ['in', input],
    ['weight', weight],
  ];
  for (const [name, tensor] of matrices) checkRank('linear', name, tensor, 2);
  checkCommon('linear', bias ? [...matrices, ['bias', bias]] : matrices, matrices);
  const plan = inItsWords({ x: 'in' }, () => planLinear(input, weight, bias ?? undefined, out));
  checkOneDtype('linear', input, bias ? [...matrices, ['bias', bias]] : matrices);
  run(rw, plan);
}

/** `rms_norm(out, in, weight, eps)`: rows of a 2-D contiguous tensor. */
export function rmsNorm(rw: Runner, out: Tensor, input: Tensor, weight: Tensor, eps: number): void {
  const matrices: Named = [
    ['out', out],
    ['in', input],
  ];
  for (const [name, tensor] of matrices) checkRank('rms_norm', name, tensor, 2);
  checkCommon('rms_norm', [...matrices, ['weight', weight]], matrices);
  const plan = inItsWords({ x: 'in' }, () => planRmsNorm(input, weight, eps, out));
  checkOneDtype('rms_norm', input, [['weight', weight]]);
  run(rw, plan);
}

/**
 * `rope(out, in, pos_ids, theta)`: the half pairing over all of d.
 *
 * @param rw - who computes
 * @param out - `[seqlen, nhead, d]`; may be `in` itself
 * @param input - `[seqlen, nhead, d]`, `in` upstream
 * @param pos_ids - i64 `[seqlen]`
 * @param theta - the base, such as 10000
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 */
export function rope(rw: Runner, out: Tensor, input: Tensor, pos_ids: Tensor, theta: number): void {
  checkRank('rope', 'in', input, 3);
  checkDims(out, 'rope: out', input.shape);
  checkDims(pos_ids, 'rope: pos_ids', [input.shape[0]!]);
  checkDtype(pos_ids, 'rope: pos_ids', 'i64');
  const both: Named = [
    ['out', out],
    ['in', input],
  ];
  checkCommon('rope', both, both);
  const words = { x: 'in', base: 'theta', positions: 'pos_ids', head_dim: 'd', rotary_dim: 'd' };
  const call = inItsWords(words, () => {
    const plan = planRope({ headDim: input.shape[2]!, pairing: 'half', base: theta, positions: pos_ids });
    return bindRope(plan, input, out);
  });
  run(rw, call);
}

/**
 * `self_attention(attn_val, q, k, v, scale)`: causal, the last seqlen of total_len keys belonging to the queries.
 *
 * @param rw - who computes
 * @param attn_val - `[seqlen, nhead, dv]`
 * @param q - `[seqlen, nhead, d]`
 * @param k - `[total_len, nkvhead, d]`
 * @param v - `[total_len, nkvhead, dv]`
 * @param scale - usually 1/√d
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 */
export function selfAttention(rw: Runner, attn_val: Tensor, q: Tensor, k: Tensor, v: Tensor, scale: number): void {
  const all: Named = [
    ['attn_val', attn_val],
    ['q', q],
    ['k', k],
    ['v', v],
  ];
  for (const [name, tensor] of all) checkRank('self_attention', name, tensor, 3);
  const plan = planSelfAttention(q, k, v, attn_val, { scale });
  // 1/√d is a default of ours; LLAISYS has none.
  if (scale === undefined) refuse('RANGE', 'self_attention: scale', 'a finite number', scale);
  checkCommon('self_attention', all, all);
  checkOneDtype('self_attention', q, all);
  run(rw, plan);
}

/** `swiglu(out, gate, up)`: 2-D, same shape, contiguous. */
export function swiglu(rw: Runner, out: Tensor, gate: Tensor, up: Tensor): void {
  const all: Named = [
    ['out', out],
    ['gate', gate],
    ['up', up],
  ];
  for (const [name, tensor] of all) checkRank('swiglu', name, tensor, 2);
  const plan = planSwiglu(gate, up, out);
  checkCommon('swiglu', all, all);
  run(rw, plan);
}

/** `rearrange(out, in)`: same shape, any strides on both sides, copied bit for bit. */
export function rearrange(rw: Runner, out: Tensor, input: Tensor): void {
  checkCommon(
    'rearrange',
    [
      ['out', out],
      ['in', input],
    ],
    [],
  );
  const plan = inItsWords({ x: 'in' }, () => planRearrange(input, out));
  checkOneDtype('rearrange', input, [['out', out]]);
  run(rw, plan);
}

function run(rw: Runner, plan: OpPlan): void {
  checkRunner(rw, 'llaisys: rw');
  rw.run(plan);
}

/** Says the refusals of our own checks in LLAISYS' names, so that the checks are written once. */
function inItsWords<T>(names: Readonly<Record<string, string>>, check: () => T): T {
  try {
    return check();
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    throw new RopewalkError(
      error.code,
      error.message.replace(/\w+/g, (word) => (Object.hasOwn(names, word) ? names[word]! : word)),
      { cause: error },
    );
  }
}

function checkRank(op: string, name: string, tensor: Tensor, rank: number): void {
  checkTensor(tensor, `${op}: ${name}`);
  if (tensor.rank !== rank) refuse('SHAPE', `${op}: ${name}`, `${rank} dimensions`, [...tensor.shape]);
}

/** Our own operators take weights and caches of halves beside f32, and copy from one float to another; LLAISYS has one dtype for all. */
function checkOneDtype(op: string, first: Tensor, others: Named): void {
  for (const [name, tensor] of others) checkDtype(tensor, `${op}: ${name}`, first.dtype);
}

/** LLAISYS knows three dtypes, and dense memory but for rearrange. */
function checkCommon(op: string, floats: Named, dense: Named): void {
  for (const [name, tensor] of floats) {
    checkTensor(tensor, `${op}: ${name}`);
    if (tensor.dtype !== 'f32' && tensor.dtype !== 'f16' && tensor.dtype !== 'bf16')
      refuse('DTYPE', `${op}: ${name}`, 'f32, f16 or bf16', tensor.dtype);
  }
  for (const [name, tensor] of dense) {
    if (!tensor.isContiguous())
      refuse('SHAPE', `${op}: ${name}`, 'contiguous memory', `strides [${tensor.strides}]`, 'Rearrange it first.');
  }
}
