/** The arguments of a RoPE kernel: the caller's tensors as global memory, checked once. @module */
import { sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { asHostArray, type OptionNames, readList, readOptions } from 'ropewalk/internal';
import { Allocation, GlobalTensor } from '../memory.js';
import type { GlobalView, KernelPairing, RopeKernelOptions, WatchOptions } from '../trace.js';
import type { KernelDtype, KnownTiling } from './declaration.js';

/** The tensors and the rotation of a call, in any dialect. */
export type RopeTensors = Omit<RopeKernelOptions, 'kernel' | 'pairing' | keyof WatchOptions> & {
  readonly pairing: RopeArgs['pairing'];
  readonly rotaryOffset?: number;
};

/** Strides of `[batch, seq, heads]` in elements. */
export type RowStrides = { readonly batch: number; readonly seq: number; readonly head: number };

/** The arguments of a kernel of rope; a declaration may give the tensors other names. */
export interface RopeArgs extends KnownTiling {
  readonly dtype: KernelDtype;
  /** Bytes of an element. */
  readonly size: number;
  /** The type that lanes compute in: f32 for bf16, the dtype itself otherwise. */
  readonly laneType: 'f32' | 'f16';
  readonly laneBytes: number;
  /** Whether elements are cast to f32 and back. */
  readonly widens: boolean;
  /** The dtype of cos and sin: that of the elements, or f32. */
  readonly tableDtype: KernelDtype;
  /** Bytes of an element of cos and sin. */
  readonly tableSize: number;
  /** `interleaved-to-half` reads (2j, 2j + 1) and writes (j, j + half). */
  readonly pairing: KernelPairing | 'interleaved-to-half';
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly dim: number;
  /** Elements of a head that rotate, from `rotaryOffset` on; the others are copied. */
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  readonly half: number;
  readonly x: GlobalTensor;
  readonly y: GlobalTensor;
  readonly xStrides: RowStrides;
  readonly yStrides: RowStrides;
  readonly sin: GlobalTensor;
  readonly cos: GlobalTensor;
  /** Each token's row in the tables as i32, `[seq]` or `[batch, seq]`. */
  readonly positions: GlobalTensor;
  /** Elements of `positions` from batch to batch: 0 when all batches share one row. */
  readonly positionBatch: number;
  /** The first element of each row of y, as an index in its allocation. */
  readonly rowStarts: readonly number[];
  readonly least: { readonly load: number; readonly store: number };
}

/** The most elements of a head, so that a row and its temporaries fit the unified buffer. */
export const MAX_HEAD_DIM = 2048;

/** Checks the tensors of a call, and lays them out in global memory. */
export function ropeArgs(given: RopeTensors): Omit<RopeArgs, keyof KnownTiling> {
  const o = { ...given, x: readView(given.x, 'aicore: x'), y: readView(given.y, 'aicore: y') };
  const { dtype, pairing, rotaryOffset = 0, tableDtype = dtype } = o;
  if (dtype === 'f64') {
    const why = 'the vector unit of architecture 2201 has no f64 arithmetic. Cast to f32.';
    fail('UNSUPPORTED', 'aicore: dtype', `f64 cannot be computed: ${why}`);
  }
  if (dtype !== 'f32' && dtype !== 'f16' && dtype !== 'bf16')
    refuse('DTYPE', 'aicore: dtype', 'f32, f16 or bf16', dtype);
  const size = sizeBytes(dtype);
  const xData = asHostArray(o.x.data, dtype, 'aicore: x');
  const yData = asHostArray(o.y.data, dtype, 'aicore: y');
  if (tableDtype !== dtype && tableDtype !== 'f32')
    refuse('DTYPE', 'aicore: tableDtype', dtype === 'f32' ? 'f32' : `${dtype} or f32`, tableDtype);
  const sinData = asHostArray(o.sin, tableDtype, 'aicore: sin');
  const cosData = asHostArray(o.cos, tableDtype, 'aicore: cos');
  checkView(o.x, 'aicore: x');
  checkView(o.y, 'aicore: y');
  const [batch, seq, heads, dim] = o.x.shape;
  if (o.y.shape.some((n, d) => n !== o.x.shape[d]))
    refuse('SHAPE', 'aicore: y', `the shape of x, [${o.x.shape.join(', ')}]`, [...o.y.shape]);
  const rotaryDim = o.rotaryDim ?? dim;
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > dim)
    refuse('RANGE', 'aicore: rotaryDim', `an even integer in [2, head_dim=${dim}]`, rotaryDim);
  if (dim > MAX_HEAD_DIM)
    refuse('UNSUPPORTED', 'aicore: x', `head_dim <= ${MAX_HEAD_DIM}, so that a row fits the unified buffer`, dim);
  const half = rotaryDim / 2;
  const needed = batch * seq > 0 ? 1 : 0;
  if (sinData.length !== cosData.length || sinData.length < needed || sinData.length % half !== 0)
    refuse('SHAPE', 'aicore: sin and cos', `two dense tables [rows, ${half}]`, [sinData.length, cosData.length]);
  const positions = readPositions(o.positions, batch, seq, sinData.length / half);

  const inPlace = isSameView(o.x, o.y) && xData.buffer === yData.buffer && xData.byteOffset === yData.byteOffset;
  const together = xData.buffer === yData.buffer;
  const yMemory = new Allocation(together ? 'x and y' : 'y', together ? [xData, yData] : [yData], true);
  const xMemory = together ? yMemory : new Allocation('x', [xData], false);
  const place = (name: string, view: GlobalView, memory: Allocation, byteOffset: number) => {
    const base = (byteOffset - memory.start) / size + (view.offset ?? 0);
    const { low, high } = reach(view);
    return new GlobalTensor(name, memory, dtype, base, low, high);
  };
  const x = place('x', o.x, xMemory, xData.byteOffset);
  const y = place('y', o.y, yMemory, yData.byteOffset);
  const table = (name: string, data: typeof sinData) => {
    const clash =
      data.buffer === yData.buffer &&
      data.byteOffset < yData.byteOffset + yData.byteLength &&
      yData.byteOffset < data.byteOffset + data.byteLength;
    if (clash) fail('ALIAS', `aicore: ${name}`, 'it overlaps y in memory. Give y its own memory.');
    return new GlobalTensor(name, new Allocation(name, [data], false), tableDtype, 0, 0, data.length);
  };

  // Cores take rows in any order, so rows of y must not overlap each other, and y must not overlap x in part.
  const coverage = new Uint8Array(Math.floor(yMemory.bytes.length / size));
  y.coverage = coverage;
  const rowStarts: number[] = [];
  const strideWords = `with strides [${o.y.strides.join(', ')}], rows of y overlap. Give each row its own memory.`;
  eachRow(o.y, (at) => {
    const start = y.base + at;
    rowStarts.push(start);
    for (let e = start; e < start + dim; e++) if (coverage[e] === 1) fail('ALIAS', 'aicore: y', strideWords);
    coverage.fill(1, start, start + dim);
  });
  if (together && !inPlace) {
    eachRow(o.x, (at) => {
      for (let e = x.base + at; e < x.base + at + dim; e++)
        if (coverage[e] === 1)
          fail('ALIAS', 'aicore: y', 'it overlaps x in part. Give y its own memory, or exactly the view of x.');
    });
  }

  const rows = batch * seq * heads;
  const usedRows = new Set(positions).size;
  const tableSize = sizeBytes(tableDtype);
  const widens = dtype === 'bf16' || tableDtype !== dtype;
  const laneType = widens ? 'f32' : dtype;
  const strides = ({ strides: [b, s, h] }: GlobalView): RowStrides => ({ batch: b, seq: s, head: h });
  const list = new Allocation('positions', [positions.length > 0 ? positions : new Int32Array(1)], false);
  return {
    dtype,
    size,
    laneType,
    laneBytes: sizeBytes(laneType),
    widens,
    tableDtype,
    tableSize,
    pairing,
    batch,
    seq,
    heads,
    dim,
    rotaryDim,
    rotaryOffset,
    half,
    x,
    y,
    xStrides: strides(o.x),
    yStrides: strides(o.y),
    sin: table('sin', sinData),
    cos: table('cos', cosData),
    positions: new GlobalTensor('positions', list, 'i32', 0, 0, positions.length),
    positionBatch: positions.length === seq ? 0 : seq,
    rowStarts,
    least: {
      load: rows === 0 ? 0 : rows * dim * size + usedRows * half * 2 * tableSize,
      store: rows * dim * size,
    },
  };
}

function readPositions(given: ArrayLike<number | bigint>, batch: number, seq: number, tableRows: number): Int32Array {
  const list = readList(given, 'aicore: positions', 'a list of integers');
  const rows = Array.from(list, (row: unknown, i) =>
    typeof row === 'number' || typeof row === 'bigint'
      ? Number(row)
      : refuse('RANGE', `aicore: positions[${i}]`, 'an integer', row),
  );
  if (rows.length !== seq && rows.length !== batch * seq)
    refuse('SHAPE', 'aicore: positions', `${seq} or ${batch} × ${seq} rows of the tables`, rows.length);
  const positions = Int32Array.from(rows);
  const wrong = rows.findIndex((row, i) => row < 0 || row >= tableRows || row !== positions[i]);
  if (wrong >= 0) {
    const expected = `a row of the tables, in [0, ${tableRows - 1}]`;
    refuse('RANGE', `aicore: positions[${wrong}]`, expected, rows[wrong], 'Make the tables longer.');
  }
  return positions;
}

const VIEW_NAMES: OptionNames<GlobalView> = { data: true, shape: true, strides: true, offset: true };

function readView(given: GlobalView, where: string): GlobalView {
  const view = readOptions(given, where, VIEW_NAMES);
  const four = (name: 'shape' | 'strides') =>
    Array.from(readList(view[name], `${where}: ${name}`)) as unknown as GlobalView['shape'];
  return { ...view, shape: four('shape'), strides: four('strides') };
}

function checkView(view: GlobalView, where: string): void {
  const { shape, strides } = view;
  if (shape.length !== 4 || shape.some((n) => !Number.isInteger(n) || n < 0))
    refuse('SHAPE', where, '[batch, seq, heads, dim]', [...shape]);
  if (strides.length !== 4 || strides.some((n) => !Number.isInteger(n)))
    refuse('SHAPE', `${where}: strides`, 'four integers', [...strides]);
  if (strides[3] !== 1 && shape[3] !== 1) refuse('SHAPE', `${where}: strides`, 'a last stride of 1', [...strides]);
  if (shape[3] < 2) refuse('SHAPE', where, 'a head_dim of at least 2', [...shape]);
  const { low, high } = reach(view);
  const offset = view.offset ?? 0;
  if (!Number.isInteger(offset)) refuse('RANGE', `${where}: offset`, 'an integer', offset);
  if (high > low && (offset + low < 0 || offset + high > view.data.length)) {
    const memory = `its memory has only ${view.data.length}`;
    fail('RANGE', where, `shape, strides and offset reach elements ${offset + low} to ${offset + high - 1}; ${memory}`);
  }
}

/** Returns the first element and one past the last, relative to element 0. */
function reach({ shape, strides }: GlobalView): { low: number; high: number } {
  if (shape.some((n) => n === 0)) return { low: 0, high: 0 };
  let low = 0;
  let high = 1;
  for (const [d, n] of shape.entries()) {
    const far = (n - 1) * strides[d]!;
    if (far < 0) low += far;
    else high += far;
  }
  return { low, high };
}

function eachRow({ shape: [batch, seq, heads], strides: [sb, ss, sh] }: GlobalView, visit: (at: number) => void): void {
  if (batch * seq * heads === 0) return; // the other dimensions may be of any size
  for (let b = 0; b < batch; b++)
    for (let s = 0; s < seq; s++) for (let h = 0; h < heads; h++) visit(b * sb + s * ss + h * sh);
}

/** Tells whether views have the same elements in the same order; strides of dimensions of 1 do not matter. */
function isSameView(a: GlobalView, b: GlobalView): boolean {
  return (a.offset ?? 0) === (b.offset ?? 0) && a.shape.every((n, d) => n <= 1 || a.strides[d] === b.strides[d]);
}
