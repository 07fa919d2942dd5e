/** The rotation by tables of full width, as aclnn's calls have it: modes, layouts, checks and gradients. @module */
import type { Pairing, RopeCall, Runner, Tensor } from 'ropewalk';
import { bindRopeParts, planExpertLinear, planRearrange, planRopeWithTable, tensorFrom } from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import type { TablePlanOptions } from 'ropewalk/internal';
import { checkDims, checkTensor, tableFromTensors } from 'ropewalk/internal';
import { countUp } from '../calls.js';

/** The element types of aclnn's calls: FLOAT32, FLOAT16 and BFLOAT16. */
export type AclnnFloat = 'f32' | 'f16' | 'bf16';

/** The modes of aclnnRotaryPositionEmbedding and of the calls after it. */
export const ACLNN_ROTARY_MODE = /* @__PURE__ */ Object.freeze({
  /** Rotates pairs (j, j + D/2). */
  half: 0,
  /** Rotates pairs (2j, 2j+1). */
  interleave: 1,
  /** Rotates with half pairing inside each half of D, for 2-D vision. */
  quarter: 2,
  /** Reads pairs (2j, 2j+1), writes (j, j + D/2). */
  interleaveHalf: 3,
} as const);

/** The layouts of aclnnApplyRotaryPosEmb: B is batch, S token, N head, D dimension, T all tokens of all batches. */
export const ACLNN_LAYOUT = /* @__PURE__ */ Object.freeze({ BSND: 1, SBND: 2, BNSD: 3, TND: 4 } as const);

/** The pairing of each mode. */
const PAIRINGS: readonly Pairing[] = ['half', 'interleaved', 'half', 'interleaved-to-half'];

/** A tensor, and the tensor that its rotation is written to. */
export interface Rotated {
  readonly x: Tensor;
  readonly out: Tensor;
}

/** Tables of full width, whose last dimension is D. Both dimensions of a pair hold the same value. */
export interface Tables {
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/** Checks that a tensor has one of aclnn's float types, or one of those in `same`. */
export function checkAclnnFloat(
  tensor: Tensor,
  where: string,
  same: readonly AclnnFloat[] = ['f32', 'f16', 'bf16'],
): asserts tensor is Tensor<AclnnFloat> {
  checkTensor(tensor, where);
  if (!(same as readonly string[]).includes(tensor.dtype)) {
    const names = same.length > 1 ? `${same.slice(0, -1).join(', ')} or ${same.at(-1)}` : same[0];
    refuse('DTYPE', where, `dtype ${names}`, tensor.dtype);
  }
}

/** Checks that a tensor has the dtype and shape of another one. */
export function checkLike(tensor: Tensor, where: string, like: Tensor<AclnnFloat>): void {
  checkAclnnFloat(tensor, where, [like.dtype]);
  checkDims(tensor, where, like.shape);
}

/** Checks that a mode can divide D. */
export function checkD(D: number, mode: number, where: string): void {
  const divisor = mode === ACLNN_ROTARY_MODE.quarter ? 4 : 2;
  if (D === 0 || D % divisor !== 0) refuse('SHAPE', where, `a multiple of ${divisor} as D in mode ${mode}`, D);
}

/** A tensor in TND gets the batch of one that makes it BSND. */
const inFour = <T extends Tensor>(tensor: T): T => (tensor.rank === 3 ? (tensor.unsqueeze() as T) : tensor);

/**
 * Checks x `[…, D]` and the tables of the calls that take any broadcast of them.
 *
 * @param name - the name of x: `x` or `dy`
 * @throws {RopewalkError} UNSUPPORTED, SHAPE or DTYPE
 */
export function checkBroadcast(op: string, name: string, x: Tensor, { cos, sin }: Tables, mode: number): void {
  for (const [key, tensor] of Object.entries({ [name]: x, cos, sin })) checkTensor(tensor, `${op}: ${key}`);
  const modes = '0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half)';
  if (!Object.values<number>(ACLNN_ROTARY_MODE).includes(mode)) refuse('UNSUPPORTED', `${op}: mode`, modes, mode);
  checkAclnnFloat(x, `${op}: ${name}`);
  if ((x.rank !== 3 && x.rank !== 4) || x.size === 0)
    refuse('SHAPE', `${op}: ${name}`, 'four dimensions: BSND, BNSD or SBND; or three: TND; none of them 0', [
      ...x.shape,
    ]);
  const D = x.shape.at(-1)!;
  checkD(D, mode, `${op}: ${name}`);
  for (const [key, table] of Object.entries({ cos, sin })) checkAclnnFloat(table, `${op}: ${key}`, [x.dtype]);
  const [T, N] = x.shape as [number, number];
  if (x.rank === 3) {
    if (cos.rank !== 3 || cos.shape[0] !== T || (cos.shape[1] !== 1 && cos.shape[1] !== N) || cos.shape[2] !== D)
      refuse('SHAPE', `${op}: cos`, `[T, 1, D] = [${T},1,${D}] or [T, N, D] = [${x.shape}] beside TND`, [...cos.shape]);
  } else if (cos.rank !== 4 || cos.shape.some((size, d) => size !== x.shape[d] && (d === 3 || size !== 1)))
    refuse('SHAPE', `${op}: cos`, `each dimension 1 or ${name}'s, of [${x.shape}], and the last one D=${D}`, [
      ...cos.shape,
    ]);
  checkDims(sin, `${op}: sin`, cos.shape);
}

/**
 * Rotates tensors of the same tokens by the same tables. Every call is checked before the first one runs.
 *
 * @param parts - three dimensions (TND) or four; they differ in the number of heads only
 * @param given - as many dimensions; each is 1 or the parts', and the last one is D
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @param direction - `backward` for gradients
 * @param headDim - of four dimensions the one of the heads, in which the tables are 1. Default: the last one in which
 *   they are 1
 * @throws {RopewalkError} UNSUPPORTED when the two values of a pair differ, which is not a rotation
 */
export function rotateByTables(
  rw: Runner,
  op: string,
  parts: readonly Rotated[],
  given: Tables,
  mode: number,
  direction: 'forward' | 'backward' = 'forward',
  headDim?: number,
): void {
  const tables = { cos: inFour(given.cos), sin: inFour(given.sin) };
  const head = headDim ?? [2, 1, 0].find((d) => tables.cos.shape[d] === 1);
  const D = tables.cos.shape[3]!;
  // The mode quarter is two rotations side by side.
  const width = mode === ACLNN_ROTARY_MODE.quarter ? D / 2 : D;
  const calls: RopeCall[] = [];
  for (let start = 0; start < D; start += width) {
    const part = (tensor: Tensor): Tensor => inFour(tensor).slice(3, start, start + width);
    const cos = firstOfPairs(part(tables.cos), mode, `${op}: cos`);
    const sin = firstOfPairs(part(tables.sin), mode, `${op}: sin`);
    const rotated = parts.flatMap(({ x, out }) => [part(x), part(out)]);
    for (const [cosines, sines, ...outs] of tokenMajor([cos, sin, ...rotated], head)) {
      const rows = rowsByToken(op, cosines!, sines!, outs[0]!);
      const plan = planRopeWithTable({ headDim: width, pairing: PAIRINGS[mode]!, direction, ...rows });
      const pairs = parts.map((_part, p) => ({ x: outs[2 * p]!, out: outs[2 * p + 1]! }));
      calls.push(bindRopeParts(plan, pairs as Parameters<typeof bindRopeParts>[1]));
    }
  }
  for (const call of calls) rw.run(call);
}

/** Makes the table, and the row of each token of x `[batch, seq, head, D]`. A dimension of 1 has one row for all. */
export function rowsByToken(
  op: string,
  cos: Tensor,
  sin: Tensor,
  x: Tensor,
): Pick<TablePlanOptions, 'table' | 'seqLen' | 'batch' | 'tableRows'> {
  const [batch, seqLen] = x.shape as [number, number];
  const [tableBatch, tableSeq] = cos.shape as [number, number];
  const tableRows = Int32Array.from({ length: batch * seqLen }, (_item, token) => {
    const [b, s] = [Math.floor(token / seqLen), token % seqLen];
    return (tableBatch === 1 ? 0 : b) * tableSeq + (tableSeq === 1 ? 0 : s);
  });
  return { table: tableFromTensors(cos, sin, op), seqLen, batch, tableRows };
}

/**
 * Views tensors as `[batch, seq, head, last]`. Where no dimension is the heads', each slice of the first dimension is a
 * call with one head.
 */
function tokenMajor(tensors: readonly Tensor[], head: number | undefined): Tensor[][] {
  const move = (parts: readonly Tensor[], d: number): Tensor[] =>
    parts.map((tensor) => tensor.permute([...[0, 1, 2].filter((other) => other !== d), d, 3]));
  if (head !== undefined) return [move(tensors, head)];
  const slice = (b: number): Tensor[] => tensors.map((tensor) => tensor.slice(0, b, b + 1));
  return Array.from({ length: tensors[0]!.shape[0]! }, (_item, b) => move(slice(b), 0));
}

/**
 * Takes one column a pair out of a full-width table. A table whose two columns of a pair differ is not a rotation.
 * Interleave-half multiplies after moving the dimensions to halves, so its table is in halves too.
 */
export function firstOfPairs(table: Tensor, mode: number, where: string): Tensor {
  hostOf(table, where);
  const [d0, d1, d2, width] = table.shape as [number, number, number, number];
  const interleave = mode === ACLNN_ROTARY_MODE.interleave;
  const pairs = table.reshape([d0 * d1 * d2, ...(interleave ? [width / 2, 2] : [2, width / 2])]);
  const place = (k: number): Tensor => pairs.slice(interleave ? 2 : 1, k, k + 1);
  const [first, second] = [place(0).readNumbers() as Float64Array, place(1).readNumbers() as Float64Array];
  // The values +0 and −0 give the same rotation, and NaN is a value like any other.
  const differs = first.findIndex((a, i) => a !== second[i] && !(Number.isNaN(a) && Number.isNaN(second[i])));
  const got = [first[differs], second[differs]];
  const next = 'This table scales and shears; it is no rotation.';
  if (differs >= 0) refuse('UNSUPPORTED', where, 'the same value at both dimensions of a pair', got, next);
  return place(0).reshape([d0, d1, d2, width / 2]);
}

/** A gradient of an output, and the input that it belongs to. */
export interface Derived<D extends AclnnFloat> {
  readonly dy: Tensor<D>;
  readonly x: Tensor<D>;
}

/**
 * Computes the gradients of cos and sin: `dcos = Σ dy · x` and `dsin = Σ dy · rotate(x)`, summed over the dimensions in
 * which the tables are 1, and over the parts. Products and sums are f32 (float64 on the reference), rounded once.
 *
 * Each element is a product of two vectors along the summed dimensions: dy is the matrix of one row of as many experts,
 * and x the tokens that choose them.
 *
 * @param given - dy and x of q and k, or of one tensor; three dimensions (TND) or four
 * @param cos - the table, for its shape
 * @returns dcos and dsin of that shape, in dy's dtype; the caller's
 */
export function tableGradients<D extends AclnnFloat>(
  rw: Runner,
  op: string,
  given: readonly Derived<D>[],
  cos: Tensor,
  mode: number,
): [dcos: Tensor<D>, dsin: Tensor<D>] {
  const parts = given.map(({ dy, x }) => ({ dy: inFour(dy), x: inFour(x) }));
  const { shape } = inFour(cos);
  const { dtype } = parts[0]!.dy;
  const taken: Tensor[] = [];
  const take = (dims: readonly number[]): Tensor<D> => {
    const fresh = rw.allocate(dtype, dims);
    taken.push(fresh);
    return fresh;
  };
  const kept = shape.flatMap((size, d) => (d === 3 || size !== 1 ? [d] : []));
  const summed = [0, 1, 2].filter((d) => !kept.includes(d));
  const lengthOf = (tensor: Tensor): number => summed.reduce((n, d) => n * tensor.shape[d]!, 1);
  const rows = kept.reduce((n, d) => n * shape[d]!, 1);
  const length = parts.reduce((n, { dy }) => n + lengthOf(dy), 0);
  /** Copies tensors side by side into rows along the summed dimensions. */
  const inRows = (tensors: readonly Tensor<D>[]): Tensor<D> => {
    const all = take([rows, length]);
    let start = 0;
    for (const tensor of tensors) {
      const moved = tensor.permute([...kept, ...summed]);
      const end = start + lengthOf(tensor);
      rw.run(planRearrange(moved, all.slice(1, start, end).view(moved.shape)));
      start = end;
    }
    return all;
  };
  /** Rotates x by the same angle everywhere. */
  const turned = (cosine: number, sine: number): Tensor<D>[] =>
    parts.map(({ x }) => {
      const out = take(x.shape);
      const fill = (value: number): Tensor =>
        tensorFrom(new Float32Array(x.shape[3]!).fill(value), { shape: [1, 1, 1, x.shape[3]!] });
      rotateByTables(rw, op, [{ x, out }], { cos: fill(cosine), sin: fill(sine) }, mode);
      return out;
    });
  const results: Tensor<D>[] = [];
  try {
    const dy = inRows(parts.map((part) => part.dy)).view([rows, 1, length]);
    const experts = tensorFrom(countUp(rows), { shape: [rows, 1] });
    // Only the mode interleave-half moves x where the angle is 0.
    const straight = mode === ACLNN_ROTARY_MODE.interleaveHalf ? turned(1, 0) : parts.map((part) => part.x);
    for (const factor of [straight, turned(0, 1)]) {
      const out = rw.allocate(dtype, shape);
      results.push(out);
      rw.run(planExpertLinear(inRows(factor), dy, experts, out.view([rows, 1, 1])));
    }
    return results.map((tensor) => tensor.view(cos.shape)) as [Tensor<D>, Tensor<D>];
  } catch (error) {
    for (const tensor of results) tensor.dispose();
    throw error;
  } finally {
    for (const tensor of taken) tensor.dispose();
  }
}
