/** Rotation by tables of full width, as aclnn's calls have it: modes, layouts, checks, and gradients. @module */
import {
  bindRopeParts,
  type Pairing,
  planExpertLinear,
  planRearrange,
  planRopeWithTable,
  type RopeCall,
  type RopeTable,
  type Runner,
  type TablePlanOptions,
  type Tensor,
  tableFromTensors,
  tensorFrom,
} from 'ropewalk';
import { hostOf, refuse } from 'ropewalk/backend';
import { checkApart, checkDims, checkOutput, checkTensor } from 'ropewalk/internal';

/** The element types of aclnn's calls: FLOAT32, FLOAT16 and BFLOAT16. */
export type AclnnFloat = 'f32' | 'f16' | 'bf16';

/** Modes of aclnnRotaryPositionEmbedding and of the calls after it. */
export const ACLNN_ROTARY_MODE = /* @__PURE__ */ Object.freeze({
  /** Pairs (j, j + D/2). */
  half: 0,
  /** Pairs (2j, 2j+1). */
  interleave: 1,
  /** Half pairing inside each half of D: 2-D vision. */
  quarter: 2,
  /** Reads pairs (2j, 2j+1), writes (j, j + D/2). */
  interleaveHalf: 3,
} as const);

/** Layouts of aclnnApplyRotaryPosEmb: B batch, S token, N head, D dimension, T all tokens of all batches. */
export const ACLNN_LAYOUT = /* @__PURE__ */ Object.freeze({ BSND: 1, SBND: 2, BNSD: 3, TND: 4 } as const);

const PAIRINGS: readonly Pairing[] = ['half', 'interleaved', 'half', 'interleaved-to-half']; // by mode

/** A tensor and where its rotation goes; both have four dimensions. */
export interface Rotated {
  readonly x: Tensor;
  readonly out: Tensor;
}

/** Tables of full width: the last dimension is D, and both dimensions of a pair hold the same value. */
export interface Tables {
  readonly cos: Tensor;
  readonly sin: Tensor;
}

/** Checks that a tensor has one of aclnn's float types; `same` names the only ones that are taken. */
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

/** Checks what a call writes in place: its elements are distinct, and no other argument shares memory with it. */
export function checkRef(name: string, tensor: Tensor, others: Readonly<Record<string, Tensor>>, op: string): void {
  checkOutput(tensor, `${op}: ${name}`);
  for (const [other, input] of Object.entries(others)) checkApart(tensor, `${op}: ${name}`, other, input);
}

/** Checks a mode by number; `modes` are those that the call has. */
export function checkMode(mode: number, where: string): void {
  const modes = '0 (half), 1 (interleave), 2 (quarter) or 3 (interleave-half)';
  if (PAIRINGS.find((_item, n) => n === mode) === undefined) refuse('UNSUPPORTED', where, modes, mode);
}

/** Checks that a mode can divide D. */
export function checkD(D: number, mode: number, where: string): void {
  const divisor = mode === ACLNN_ROTARY_MODE.quarter ? 4 : 2;
  if (D === 0 || D % divisor !== 0) refuse('SHAPE', where, `a multiple of ${divisor} as D in mode ${mode}`, D);
}

/** Gives a tensor in TND the batch of one that makes it BSND. */
export const inFour = <T extends Tensor>(tensor: T): T => (tensor.rank === 3 ? (tensor.unsqueeze() as T) : tensor);

/**
 * Checks x `[…, D]` and the tables of the calls that take any broadcast of them.
 *
 * @param name - x's name: `x`, `dy`
 * @throws {RopewalkError} UNSUPPORTED, SHAPE or DTYPE
 */
export function checkBroadcast(op: string, name: string, x: Tensor, { cos, sin }: Tables, mode: number): void {
  for (const [key, tensor] of Object.entries({ [name]: x, cos, sin })) checkTensor(tensor, `${op}: ${key}`);
  checkMode(mode, `${op}: mode`);
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
 * Binds the rotation of tensors of the same tokens by the same tables. Nothing has run when it refuses.
 *
 * @param parts - of four dimensions, which differ in the number of heads only
 * @param tables - of four dimensions: each 1 or the parts', the last one D
 * @param mode - one of {@link ACLNN_ROTARY_MODE}
 * @param direction - `backward` for gradients
 * @param head - the dimension of the heads, in which the tables are 1; the last one in which they are, unless given
 * @returns calls to run in any order
 * @throws {RopewalkError} UNSUPPORTED when the two values of a pair differ, which is not a rotation
 */
export function bindByTables(
  op: string,
  parts: readonly Rotated[],
  tables: Tables,
  mode: number,
  direction: 'forward' | 'backward' = 'forward',
  head = [2, 1, 0].find((d) => tables.cos.shape[d] === 1),
): RopeCall[] {
  const D = tables.cos.shape[3]!;
  // Quarter is two rotations side by side.
  const width = mode === ACLNN_ROTARY_MODE.quarter ? D / 2 : D;
  const calls: RopeCall[] = [];
  for (let start = 0; start < D; start += width) {
    const part = (tensor: Tensor): Tensor => tensor.slice(3, start, start + width);
    const cos = firstOfPairs(part(tables.cos), mode, `${op}: cos`);
    const sin = firstOfPairs(part(tables.sin), mode, `${op}: sin`);
    const rotated = parts.flatMap(({ x, out }) => [part(x), part(out)]);
    for (const [cosines, sines, ...outs] of tokenMajor([cos, sin, ...rotated], head)) {
      const plan = planRopeWithTable({
        headDim: width,
        pairing: PAIRINGS[mode]!,
        direction,
        ...rowsOf(tableFromTensors(cosines!, sines!, op), cosines!, outs[0]!),
      });
      const pairs = parts.map((_part, p) => ({ x: outs[2 * p]!, out: outs[2 * p + 1]! }));
      calls.push(bindRopeParts(plan, pairs as Parameters<typeof bindRopeParts>[1]));
    }
  }
  return calls;
}

/** The table row of each token of x `[batch, seq, head, D]`; the table has one row where it is 1. */
export function rowsOf(
  table: RopeTable,
  cos: Tensor,
  x: Tensor,
): Pick<TablePlanOptions, 'table' | 'seqLen' | 'batch' | 'tableRows'> {
  const [batch, seqLen] = x.shape as [number, number];
  const [tableBatch, tableSeq] = cos.shape as [number, number];
  const tableRows = Int32Array.from({ length: batch * seqLen }, (_item, token) => {
    const [b, s] = [Math.floor(token / seqLen), token % seqLen];
    return (tableBatch === 1 ? 0 : b) * tableSeq + (tableSeq === 1 ? 0 : s);
  });
  return { table, seqLen, batch, tableRows };
}

/**
 * Views tensors as `[batch, seq, head, last]`. Where no dimension is the heads', each slice of the first dimension is a
 * call with one head.
 */
function tokenMajor(tensors: readonly Tensor[], head: number | undefined): Tensor[][] {
  const move = (parts: readonly Tensor[], d: number): Tensor[] => {
    const order = [...[0, 1, 2].filter((other) => other !== d), d, 3];
    return parts.map((tensor) => tensor.permute(order));
  };
  if (head !== undefined) return [move(tensors, head)];
  return Array.from({ length: tensors[0]!.shape[0]! }, (_item, b) =>
    move(
      tensors.map((tensor) => tensor.slice(0, b, b + 1)),
      0,
    ),
  );
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
  // +0 and −0 give the same rotation.
  const differs = first.findIndex((a, i) => a !== second[i] && !(Number.isNaN(a) && Number.isNaN(second[i])));
  const got = [first[differs], second[differs]];
  const next = 'This table scales and shears; it is no rotation.';
  if (differs >= 0) refuse('UNSUPPORTED', where, 'the same value at both dimensions of a pair', got, next);
  return place(0).reshape([d0, d1, d2, width / 2]);
}

/** A gradient of an output and the input that it belongs to; both have four dimensions. */
export interface Derived {
  readonly dy: Tensor<AclnnFloat>;
  readonly x: Tensor<AclnnFloat>;
}

/**
 * The gradients of cos and sin: `dcos = Σ dy · x` and `dsin = Σ dy · rotate(x)`, summed over the dimensions in which
 * the tables are 1, and over the parts. Products and sums are f32 (float64 on the reference), rounded once.
 *
 * Each element is a product of two vectors along what is summed: dy is the matrix of one row of as many experts, x the
 * tokens that choose them.
 *
 * @param parts - dy and x of q and k, or of one tensor
 * @param shape - of the tables, four dimensions
 * @returns dcos and dsin of that shape, in dy's dtype; the caller's
 */
export function tableGradients(
  rw: Runner,
  op: string,
  parts: readonly Derived[],
  shape: readonly number[],
  mode: number,
): [dcos: Tensor<AclnnFloat>, dsin: Tensor<AclnnFloat>] {
  const dtype = parts[0]!.dy.dtype;
  const taken: Tensor[] = [];
  const take = (dims: readonly number[]): Tensor<AclnnFloat> => {
    const fresh = rw.allocate(dtype, dims);
    taken.push(fresh);
    return fresh;
  };
  const kept = shape.flatMap((size, d) => (d === 3 || size !== 1 ? [d] : []));
  const summed = [0, 1, 2].filter((d) => !kept.includes(d));
  const lengthOf = (tensor: Tensor): number => summed.reduce((n, d) => n * tensor.shape[d]!, 1);
  const rows = kept.reduce((n, d) => n * shape[d]!, 1);
  const length = parts.reduce((n, { dy }) => n + lengthOf(dy), 0);
  /** Copies tensors side by side into rows along what is summed. */
  const inRows = (tensors: readonly Tensor<AclnnFloat>[]): Tensor<AclnnFloat> => {
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
  /** x rotated by one angle everywhere. */
  const turned = (cos: number, sin: number): Tensor<AclnnFloat>[] =>
    parts.map(({ x }) => {
      const out = take(x.shape);
      const fill = (value: number): Tensor =>
        tensorFrom(new Float32Array(x.shape[3]!).fill(value), { shape: [1, 1, 1, x.shape[3]!] });
      for (const call of bindByTables(op, [{ x, out }], { cos: fill(cos), sin: fill(sin) }, mode)) rw.run(call);
      return out;
    });
  const results: Tensor<AclnnFloat>[] = [];
  try {
    const dy = inRows(parts.map((part) => part.dy)).view([rows, 1, length]);
    const experts = tensorFrom(
      Int32Array.from({ length: rows }, (_item, row) => row),
      { shape: [rows, 1] },
    );
    // Only interleave-half moves x where the angle is 0.
    const straight = mode === ACLNN_ROTARY_MODE.interleaveHalf ? turned(1, 0) : parts.map((part) => part.x);
    for (const factor of [straight, turned(0, 1)]) {
      const out = rw.allocate(dtype, shape);
      results.push(out);
      rw.run(planExpertLinear(inRows(factor), dy, experts, out.view([rows, 1, 1])));
    }
    return results as [Tensor<AclnnFloat>, Tensor<AclnnFloat>];
  } catch (error) {
    for (const tensor of results) tensor.dispose();
    throw error;
  } finally {
    for (const tensor of taken) tensor.dispose();
  }
}
