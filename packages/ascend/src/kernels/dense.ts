/**
 * Kernels of dense rows: add, rms_norm, swiglu and softmax. They go tile by tile: loads, a computation in lanes, and a
 * store, with double buffering. @module
 */
import { type AscendC, type LaneType, type LocalTensor, oneRow, type TQue } from '../ascendc.js';
import { BLOCK, REPEAT } from '../costs.js';
import type { GlobalTensor } from '../memory.js';
import type { Tiling } from '../trace.js';
import {
  BUFFER_NUM,
  declareKernel,
  KERNEL_DTYPES,
  type KernelDeclaration,
  type KernelOperator,
  ROLES,
  type RowFacts,
} from './declaration.js';
import { roundUp } from './rows.js';

/** Elements of a tile of the kernels that work element by element. */
const TILE = 4096;
/** The most elements of a row whose tile and temporaries fit the unified buffer. */
const MAX_ROW = 7680;

/** The tensors have the names of their roles; a kernel has those of its operator. */
type DenseArgs = RowFacts & {
  readonly [role in 'a' | 'b' | 'x' | 'weight' | 'gate' | 'up' | 'out']: GlobalTensor;
};

/** Declares a kernel under its operator's name. */
function declareDense(
  operator: Exclude<KernelOperator, 'rope'>,
  own: Pick<KernelDeclaration<DenseArgs>, 'kernel' | 'blocks' | 'whyNot'>,
): KernelDeclaration {
  const names = Object.fromEntries(ROLES[operator].map((role) => [role, role]));
  return declareKernel<DenseArgs>({ name: operator, operator, dtypes: KERNEL_DTYPES, arguments: names, ...own });
}

/** Launches as many blocks as there are tiles of {@link TILE} elements, at most one a core. */
function elementBlocks({ rows, length }: Omit<RowFacts, keyof Tiling>, cores: number): number {
  return Math.min(cores, Math.ceil((rows * length) / TILE));
}

function whyNotRows({ length }: RowFacts): string | undefined {
  return length <= MAX_ROW ? undefined : `takes rows of at most ${MAX_ROW} elements, which fit the unified buffer`;
}

/** `out = a + b`: the smallest kernel. It adds in the dtype, and bf16 in f32. */
export const ADD: KernelDeclaration = /* @__PURE__ */ declareDense('add', {
  blocks: elementBlocks,
  kernel(c, args) {
    stream(c, args, {
      tile: TILE,
      inputs: [args.a, args.b],
      lanes: args.dtype === 'bf16' ? 'f32' : args.dtype,
      compute: (dst, [a, b], count) => c.Add('compute: Add(out, a, b)', dst, a!, b!, count),
    });
  },
});

/** `out = up · gate / (1 + exp(−gate))`, in f32, because exp(−gate) leaves the range of f16. */
export const SWIGLU: KernelDeclaration = /* @__PURE__ */ declareDense('swiglu', {
  blocks: elementBlocks,
  kernel(c, args) {
    const silu = c.pipe.InitTBuf('_silu', TILE * 4).Get('f32');
    stream(c, args, {
      tile: TILE,
      inputs: [args.gate, args.up],
      lanes: 'f32',
      compute(dst, [gate, up], count) {
        c.Muls('compute: Muls(silu, gate, -1)', silu, gate!, -1, count);
        c.Exp('compute: Exp(silu, silu)', silu, silu, count);
        c.Adds('compute: Adds(silu, silu, 1)', silu, silu, 1, count);
        c.Div('compute: Div(silu, gate, silu)', silu, gate!, silu, count);
        c.Mul('compute: Mul(out, up, silu)', dst, up!, silu, count);
      },
    });
  },
});

/** `out = weight · x / √(mean(x²) + eps)`, in f32: one row a tile; each block loads the weight once. */
export const RMS_NORM: KernelDeclaration = /* @__PURE__ */ declareDense('rms_norm', {
  whyNot: whyNotRows,
  kernel(c, args) {
    const { length, eps } = args;
    const weightQue = c.pipe.InitBuffer('_weight_que', 'VECIN', 1, length * args.size);
    const wide = args.dtype === 'f32' ? undefined : c.pipe.InitTBuf('_weight_wide', length * 4).Get('f32');
    const squares = c.pipe.InitTBuf('_squares', length * 4).Get('f32');
    const work = reduceWork(c, length);
    load(c, args, weightQue, args.weight, 0, length);
    const weight = widened(c, 'weight', wide, weightQue.DeQue('init: _weight_que.DeQue()', args.dtype), length);
    stream(c, args, {
      tile: length,
      inputs: [args.x],
      lanes: 'f32',
      compute(dst, [x], count) {
        c.Mul('compute: Mul(squares, x, x)', squares, x!, x!, count);
        const norm = reduceRow(c, 'WholeReduceSum', squares, count, work);
        c.Muls('compute: Muls(norm, norm, 1 / length)', norm, norm, 1 / length, 1);
        c.Adds('compute: Adds(norm, norm, eps)', norm, norm, eps, 1);
        c.Sqrt('compute: Sqrt(norm, norm)', norm, norm, 1);
        c.Reciprocal('compute: Reciprocal(norm, norm)', norm, norm, 1);
        c.Muls('compute: Muls(out, x, norm)', dst, x!, norm.GetValue('compute: norm.GetValue(0)', 0), count);
        c.Mul('compute: Mul(out, out, weight)', dst, dst, weight, count);
      },
    });
  },
});

/** `out = exp(x − max) / Σ exp(x − max)`, in f32: one row a tile; its maximum and sum pass through the scalar unit. */
export const SOFTMAX: KernelDeclaration = /* @__PURE__ */ declareDense('softmax', {
  whyNot: whyNotRows,
  kernel(c, args) {
    const work = reduceWork(c, args.length);
    const terms = c.pipe.InitTBuf('_terms', args.length * 4).Get('f32');
    stream(c, args, {
      tile: args.length,
      inputs: [args.x],
      lanes: 'f32',
      compute(dst, [x], count) {
        const most = reduceRow(c, 'WholeReduceMax', x!, count, work).GetValue('compute: max.GetValue(0)', 0);
        c.Adds('compute: Adds(terms, x, -max)', terms, x!, -most, count);
        c.Exp('compute: Exp(terms, terms)', terms, terms, count);
        const sum = reduceRow(c, 'WholeReduceSum', terms, count, work);
        c.Reciprocal('compute: Reciprocal(sum, sum)', sum, sum, 1);
        c.Muls('compute: Muls(out, terms, 1 / sum)', dst, terms, sum.GetValue('compute: sum.GetValue(0)', 0), count);
      },
    });
  },
});

/** The tiles and the computation of {@link stream}. */
interface Stream {
  /** Elements of a tile; all tensors are cut alike. */
  readonly tile: number;
  readonly inputs: readonly GlobalTensor[];
  /** The type that lanes compute in; other dtypes are cast to it and back. */
  readonly lanes: LaneType;
  /** `dst` and `sources` are of type `lanes`; `dst` is none of the sources. */
  readonly compute: (dst: LocalTensor, sources: readonly LocalTensor[], count: number) => void;
}

/** Runs a block's share of the tiles: each load is issued before the tile before it is computed. */
function stream(c: AscendC, a: DenseArgs, { tile, inputs, lanes, compute }: Stream): void {
  const total = a.rows * a.length;
  const tiles = Math.ceil(total / tile);
  const block = c.GetBlockIdx();
  const [first, end] = [block, block + 1].map((b) => Math.floor((tiles * b) / a.blocks)) as [number, number];
  const bytes = roundUp(tile * a.size, BLOCK);
  const ques = inputs.map(({ name }) => c.pipe.InitBuffer(`_${name}_que`, 'VECIN', BUFFER_NUM, bytes));
  const outQue = c.pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, bytes);
  const wide = (name: string) => (lanes === a.dtype ? undefined : c.pipe.InitTBuf(name, tile * 4).Get(lanes));
  const wides = inputs.map(({ name }) => wide(`_${name}_wide`));
  const outWide = wide('_out_wide');
  const countOf = (n: number) => Math.min(tile, total - n * tile);

  const copyIn = (n: number): void => {
    for (const [i, input] of inputs.entries()) load(c, a, ques[i]!, input, n * tile, countOf(n));
  };
  for (let n = first; n < end; n++) {
    if (n === first) copyIn(n);
    if (n + 1 < end) copyIn(n + 1);
    const count = countOf(n);
    const taken = ques.map((from, i) => from.DeQue(`compute: _${inputs[i]!.name}_que.DeQue()`, a.dtype));
    const sources = taken.map((tensor, i) => widened(c, inputs[i]!.name, wides[i], tensor, count));
    const output = outQue.AllocTensor('compute: _out_que.AllocTensor()', a.dtype);
    compute(outWide ?? output, sources, count);
    if (outWide) c.Cast('compute: Cast(out)', output, outWide, count);
    outQue.EnQue('compute: _out_que.EnQue()', output);
    for (const [i, tensor] of taken.entries())
      ques[i]!.FreeTensor(`compute: _${inputs[i]!.name}_que.FreeTensor()`, tensor);
    const stored = outQue.DeQue('copyOut: _out_que.DeQue()', a.dtype);
    c.DataCopyPadOut('copyOut: DataCopyPad(out)', a.out, n * tile, stored, oneRow(count * a.size));
    outQue.FreeTensor('copyOut: _out_que.FreeTensor()', stored);
  }
}

/** Loads `count` elements into the next buffer of a queue. */
function load(c: AscendC, a: RowFacts, que: TQue, from: GlobalTensor, at: number, count: number): void {
  const tensor = que.AllocTensor(`copyIn: _${from.name}_que.AllocTensor()`, a.dtype);
  c.DataCopyPadIn(`copyIn: DataCopyPad(${from.name})`, tensor, from, at, oneRow(count * a.size));
  que.EnQue(`copyIn: _${from.name}_que.EnQue()`, tensor);
}

/** Casts a tensor to `wide`, if lanes compute in another type. */
function widened(c: AscendC, name: string, wide: LocalTensor | undefined, tensor: LocalTensor, count: number) {
  if (wide) c.Cast(`compute: Cast(${name})`, wide, tensor, count);
  return wide ?? tensor;
}

/**
 * Reduces `count` f32 lanes to one, the first of the tensor that is returned.
 *
 * @param work - two tensors, each with a lane for every 64 of src
 */
function reduceRow(
  c: AscendC,
  op: 'WholeReduceSum' | 'WholeReduceMax',
  src: LocalTensor,
  count: number,
  work: readonly [LocalTensor, LocalTensor],
): LocalTensor {
  const full = REPEAT / 4;
  let [from, left, step] = [src, count, 0];
  do {
    const to = work[step % 2]!;
    const repeats = Math.floor(left / full);
    const line = `compute: ${op}(row)`;
    const strides = { dstRepStride: 1, srcRepStride: 8 };
    if (repeats > 0) c[op](line, to, from, { mask: full, repeats, ...strides });
    const rest = left % full;
    if (rest > 0) c[op](line, to.at(repeats), from.at(repeats * full), { mask: rest, repeats: 1, ...strides });
    [from, left, step] = [to, Math.ceil(left / full), step + 1];
  } while (left > 1);
  return from;
}

/** Allocates the tensors that {@link reduceRow} works in. */
function reduceWork(c: AscendC, length: number): [LocalTensor, LocalTensor] {
  const work = (name: string) => c.pipe.InitTBuf(name, Math.ceil(length / 64) * 4).Get('f32');
  return [work('_work'), work('_work2')];
}
