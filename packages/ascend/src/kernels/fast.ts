/**
 * The kernel `fast`: the same bits as `correct`, limited by memory instead of by the scalar unit.
 *
 * - No element passes through the scalar unit. GPT-J pairs need no split and no merge. cos and sin are doubled to (c0,
 *   c0, c1, c1, …) and (−s0, s0, −s1, s1, …); then y = x · cos + swap(x) · sin, where swap exchanges the two elements
 *   of each pair. The even lanes of swap(x) are x shifted down by one lane, the odd lanes are x shifted up by one. A
 *   GatherMask with a custom pattern does each shift for a whole tile: to shift down, the pattern drops the first lane;
 *   to shift up, it starts one datablock earlier and keeps only the last lane of that datablock. Each Mul then masks
 *   every other lane. The bits are the same: −(x · s) = x · (−s), and a − b = a + (−b).
 * - Each block loads the table row of a token once, doubles it once with Gather, and uses it for all heads: a repeat
 *   stride of 0.
 * - One DataCopyPad moves several heads' rows.
 * - Each queue has two buffers (or as many as the tiling says), and flags replace automatic synchronisation: loads,
 *   vector work and stores overlap.
 * - All cores get the same number of rows, whatever the number of heads.
 *
 * Instructions and dtypes are those of architecture 2201. See AscendC's pages on GatherMask (custom patterns in normal
 * mode: each repeat has its own pattern, src1RepeatStride datablocks apart), Gather (byte offsets; half and float) and
 * Mul (mask, repeat strides). @module
 */
import {
  type AscendC,
  EVEN_LANES,
  firstLanes,
  type LaneType,
  type LocalTensor,
  ODD_LANES,
  oneRow,
} from '../ascendc.js';
import { BLOCK, MAX_REPEATS, REPEAT } from '../costs.js';
import type { RopeArgs } from './args.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration } from './declaration.js';
import {
  copyTail,
  ROPE_ARGUMENTS,
  type RowGroup,
  roundUp,
  rowOf,
  shareOf,
  Transfer,
  tableRowOf,
  tailOf,
  whyNotLeading,
} from './rows.js';

/** The most bytes of x in a tile, enough to hide the fixed cost of an instruction. */
const TILE_BYTES = 8192;
/** The fewest bytes of x in a tile, if the block has as many. */
const MIN_TILE_BYTES = 2048;
/** The tiles that a block should have, because its first load and its last store overlap with nothing. */
const TILES = 8;
/** The offsets that the scalar unit writes: two datablocks, from which vector instructions build the rest. */
const SCALAR_OFFSETS = 16;

/** Heads of one token that are rotated together. */
interface Tile extends RowGroup {
  /** Whether this is the token's first tile, whose table row must be loaded. */
  readonly firstOfToken: boolean;
  /** Whether the next tile has another token. */
  readonly lastOfToken: boolean;
}

/** The part of the kernel that depends on the pairing. */
interface Rotation {
  readonly rows: Transfer;
  readonly tables: ReturnType<typeof tablesOf>;
  /** Builds the constants. */
  prepare?(): void;
  compute(tile: Tile): void;
}

/** The fast kernel, over all cores. */
export const FAST: KernelDeclaration = /* @__PURE__ */ declareKernel<RopeArgs>({
  name: 'fast',
  operator: 'rope',
  dtypes: KERNEL_DTYPES,
  arguments: ROPE_ARGUMENTS,
  autoSync: false,
  takes: ['blocks', 'tileRows', 'buffers'],
  whyNot: whyNotLeading,
  kernel: fastKernel,
});

function fastKernel(c: AscendC, a: RopeArgs): void {
  const tiles = tilesOf(c, a);
  if (tiles.length === 0) return;
  const rows = Math.max(...tiles.map((tile) => tile.rows));
  const rotation = a.pairing === 'interleaved' ? interleaved(c, a, rows) : halves(c, a, rows);
  const tail = tailOf(c, a, rows, 'tails');
  const copyIn = (tile: Tile) => {
    if (tile.firstOfToken) rotation.tables.copyIn(tile);
    rotation.rows.copyIn(tile);
    tail?.copyIn(tile);
  };
  // The first loads run while the constants are built. From then on, the load of the next tile that has a free buffer
  // is issued before this tile's vector work.
  for (const tile of tiles.slice(0, a.buffers)) copyIn(tile);
  rotation.prepare?.();
  for (const [t, tile] of tiles.entries()) {
    const next = tiles[t + a.buffers - 1];
    if (next && t > 0) copyIn(next);
    rotation.compute(tile);
    copyTail(c, tail, tile.rows * (tail?.pitch ?? 0), 'tails');
    rotation.rows.copyOut(tile);
    tail?.copyOut(tile);
  }
}

function tilesOf(c: AscendC, a: RopeArgs): Tile[] {
  const { first, end } = shareOf(a, c.GetBlockIdx());
  const columns = a.pairing === 'interleaved' ? 1 : 2;
  const rotated = columns * roundUp((a.rotaryDim / columns) * a.size, BLOCK);
  const rowBytes = rotated + roundUp((a.dim - a.rotaryDim) * a.size, BLOCK);
  const tileBytes = Math.min(TILE_BYTES, Math.max(MIN_TILE_BYTES, ((end - first) * rowBytes) / TILES));
  const own = Math.max(1, Math.min(MAX_REPEATS, a.heads, Math.floor(tileBytes / rowBytes)));
  const most = a.tileRows ?? own;
  const tiles: Tile[] = [];
  for (let n = first; n < end; ) {
    const row = rowOf(a, n);
    const left = Math.min(end - n, a.heads - row.head);
    const rows = Math.min(left, most);
    tiles.push({ row, rows, firstOfToken: n === first || row.head === 0, lastOfToken: rows === left });
    n += rows;
  }
  return tiles;
}

/** Cuts lanes into runs that one repeat can hold. */
function chunksOf(lanes: number, laneBytes: number): { at: number; lanes: number }[] {
  const full = REPEAT / laneBytes;
  const count = Math.ceil(lanes / full);
  return Array.from({ length: count }, (_what, n) => ({ at: n * full, lanes: Math.min(full, lanes - n * full) }));
}

/** Multiplies rows, each a repeat and `pitch` elements from the next, by one table row; `lanes` masks them. */
function rowMul(c: AscendC, { laneBytes }: RopeArgs, length: number, pitch: number) {
  const step = (pitch * laneBytes) / BLOCK;
  const chunks = chunksOf(length, laneBytes);
  return (line: string, repeats: number, of: readonly LocalTensor[], lanes?: typeof EVEN_LANES): void => {
    const [dst, rows, table] = of as [LocalTensor, LocalTensor, LocalTensor];
    for (const chunk of chunks) {
      const mask = lanes ? firstLanes(lanes, chunk.lanes) : chunk.lanes;
      const strides = { dst: step, src0: step, src1: 0 };
      c.Mul(line, dst.at(chunk.at), rows.at(chunk.at), table.at(chunk.at), { mask, repeats, strides });
    }
  };
}

/** cos and sin of one token, in the type that lanes compute in. */
type TableRow = { readonly cos: LocalTensor; readonly sin: LocalTensor };

/** Loads the table rows of a token, and widens them if lanes are wider. */
function tablesOf(c: AscendC, a: RopeArgs) {
  const bytes = roundUp(a.half * a.tableSize, BLOCK);
  const que = c.pipe.InitBuffer('_table_que', 'VECIN', a.buffers, 2 * bytes);
  const wideBuffer = (name: string) => c.pipe.InitTBuf(name, a.half * 4).Get('f32');
  const widens = a.tableDtype !== a.laneType;
  const wide = widens ? { cos: wideBuffer('_cos_f32'), sin: wideBuffer('_sin_f32') } : undefined;
  const second = bytes / a.tableSize;
  let held: LocalTensor | undefined;
  return {
    copyIn({ row }: Tile): void {
      const table = que.AllocTensor('copyIn: _table_que.AllocTensor()', a.tableDtype);
      const [at, params] = [tableRowOf(c, a, row) * a.half, oneRow(a.half * a.tableSize)];
      c.DataCopyPadIn('copyIn: DataCopyPad(cos)', table, a.cos, at, params);
      c.DataCopyPadIn('copyIn: DataCopyPad(sin)', table.at(second), a.sin, at, params);
      que.EnQue('copyIn: _table_que.EnQue()', table);
    },
    /** Takes the next token's row, which is valid until `free`. */
    take(): TableRow {
      held = que.DeQue('compute: _table_que.DeQue()', a.tableDtype);
      const [cos, sin] = [held, held.at(second)];
      if (!wide) return { cos, sin };
      c.Cast('compute: Cast(cos)', wide.cos, cos, a.half);
      c.Cast('compute: Cast(sin)', wide.sin, sin, a.half);
      return wide;
    },
    free(): void {
      if (held) que.FreeTensor('compute: _table_que.FreeTensor()', held);
      held = undefined;
    },
  };
}

/** Rotates GPT-J pairs, (2j, 2j + 1). */
function interleaved(c: AscendC, a: RopeArgs, most: number): Rotation {
  const { pipe } = c;
  const { laneType, laneBytes, widens, rotaryDim } = a;
  const tile = (most * roundUp(rotaryDim * a.size, BLOCK)) / a.size;
  // GatherMask reads whole repeats, from a datablock before the tile on, and needs space before and after it.
  const gathered = roundUp(BLOCK + tile * laneBytes, REPEAT);
  const rows = new Transfer(c, a, {
    ques: ['_in_que', '_out_que'],
    columns: [''],
    first: 0,
    length: rotaryDim,
    rows: most,
    inBytes: widens ? tile * a.size : gathered + BLOCK,
    lead: widens ? 0 : BLOCK / a.size,
  });
  const tables = tablesOf(c, a);
  const buffer = (name: string, bytes: number, type: LaneType = laneType) => pipe.InitTBuf(name, bytes).Get(type);
  const wide = widens ? { x: buffer('_x_f32', gathered + BLOCK), y: buffer('_y_f32', tile * 4) } : undefined;
  const [down, up] = [buffer('_shifted_down', gathered), buffer('_shifted_up', gathered)];
  const patternBytes = (gathered / REPEAT) * BLOCK;
  const dropFirst = buffer('_pattern_drop_first', patternBytes, 'u16');
  const keepLast = buffer('_pattern_keep_last', patternBytes, 'u16');
  const offsets = buffer('_offsets', rotaryDim * 4, 'u32');
  const [cos, sin] = [buffer('_cos_doubled', rotaryDim * laneBytes), buffer('_sin_doubled', rotaryDim * laneBytes)];
  const blockLanes = BLOCK / laneBytes;
  const pattern: LaneType = laneBytes === 4 ? 'u32' : 'u16';
  const mul = rowMul(c, a, rotaryDim, rows.pitch);

  const prepare = (): void => {
    c.Duplicate('prepare: Duplicate(_pattern_drop_first, all ones)', dropFirst, 0xffff, patternBytes / 2);
    c.Duplicate('prepare: Duplicate(_pattern_keep_last, all ones)', keepLast, 0xffff, patternBytes / 2);
    c.SetFlag('V', 'S', 0);
    c.WaitFlag('prepare: WaitFlag<V_S>', 'V', 'S', 0);
    dropFirst.SetValue('prepare: _pattern_drop_first.SetValue(0)', 0, 0xfffe);
    keepLast.SetValue('prepare: _pattern_keep_last.SetValue(0)', 0, laneBytes === 4 ? 0xff80 : 0x8000);
    let done = Math.min(SCALAR_OFFSETS, rotaryDim);
    for (let i = 0; i < done; i++)
      offsets.SetValue('prepare: _offsets.SetValue(i, (i / 2) * sizeof(C))', i, (i >> 1) * laneBytes);
    c.SetFlag('S', 'V', 0);
    c.WaitFlag('prepare: WaitFlag<S_V>', 'S', 'V', 0);
    const line = 'prepare: Adds(_offsets[done], _offsets, done / 2 * sizeof(C))';
    while (done < rotaryDim) {
      const more = Math.min(done, rotaryDim - done);
      c.PipeBarrier('V');
      c.Adds(line, offsets.at(done), offsets, (done / 2) * laneBytes, more);
      done += more;
    }
  };

  const doubleTables = (): void => {
    const row = tables.take();
    c.PipeBarrier('V');
    c.Gather('compute: Gather(_cos_doubled, cos, _offsets)', cos, row.cos, offsets, rotaryDim);
    c.Gather('compute: Gather(_sin_doubled, sin, _offsets)', sin, row.sin, offsets, rotaryDim);
    c.PipeBarrier('V');
    for (const { at, lanes } of chunksOf(rotaryDim, laneBytes)) {
      const once = { mask: firstLanes(EVEN_LANES, lanes), repeats: 1, strides: { dst: 0, src0: 0 } };
      c.Muls('compute: Muls<even lanes>(_sin_doubled, -1)', sin.at(at), sin.at(at), -1, once);
    }
    tables.free();
  };

  const compute = (tile: Tile): void => {
    if (tile.firstOfToken) doubleTables();
    const both = rows.take();
    const count = tile.rows * rows.pitch;
    const before = wide?.x ?? both.input;
    const [x, y] = [before.at(blockLanes), wide?.y ?? both.output];
    // GatherMask reads the lane before the tile, so it must be written first; it ends up nowhere.
    c.Duplicate('compute: Duplicate(the datablock before x)', before, 0, blockLanes);
    if (wide) c.Cast('compute: Cast(x)', x, both.input, count);
    c.PipeBarrier('V');
    const gather = (line: string, dst: LocalTensor, src: LocalTensor, mask: LocalTensor, bytes: number) => {
      const params = { repeatTimes: Math.ceil(bytes / REPEAT), src0RepeatStride: 8, src1RepeatStride: 1 };
      c.GatherMask(`compute: GatherMask(${line})`, dst, src, mask.as(pattern), params);
    };
    gather('_shifted_down, x, drop first', down, x, dropFirst, count * laneBytes);
    gather('_shifted_up, x - 1 block, keep last', up, before, keepLast, BLOCK + count * laneBytes);
    mul('compute: Mul(y, x, _cos_doubled)', tile.rows, [y, x, cos]);
    c.PipeBarrier('V');
    mul('compute: Mul<even lanes>(_shifted_down, _sin_doubled)', tile.rows, [down, down, sin], EVEN_LANES);
    c.PipeBarrier('V'); // these are other lanes, but in the same datablocks
    mul('compute: Mul<odd lanes>(_shifted_down, _shifted_up, _sin_doubled)', tile.rows, [down, up, sin], ODD_LANES);
    c.PipeBarrier('V');
    c.Add('compute: Add(y, y, _shifted_down)', y, y, down, count);
    c.PipeBarrier('V');
    if (wide) c.Cast('compute: Cast(y)', both.output, y, count);
    rows.put(both);
  };

  return { rows, tables, prepare, compute };
}

/** Rotates GPT-NeoX pairs, (j, j + half): the two halves of every row are two columns. */
function halves(c: AscendC, a: RopeArgs, most: number): Rotation {
  const { laneType, laneBytes, widens } = a;
  const rows = new Transfer(c, a, {
    ques: ['_in_que', '_out_que'],
    columns: [', first halves', ', second halves'],
    first: 0,
    length: a.half,
    rows: most,
  });
  const { column, pitch } = rows;
  const tables = tablesOf(c, a);
  const wideX = widens ? c.pipe.InitTBuf('_x_f32', 2 * column * 4).Get('f32') : undefined;
  const t1 = c.pipe.InitTBuf('_tmp1', column * laneBytes).Get(laneType);
  const t2 = c.pipe.InitTBuf('_tmp2', column * laneBytes).Get(laneType);
  const mul = rowMul(c, a, a.half, pitch);
  let table: TableRow | undefined;

  const compute = (tile: Tile): void => {
    if (tile.firstOfToken) table = tables.take();
    const { cos, sin } = table!;
    const both = rows.take();
    const { input, output } = both;
    const count = tile.rows * pitch;
    const x = wideX ?? input;
    if (wideX) {
      c.Cast('compute: Cast(x, first halves)', x, input, count);
      c.Cast('compute: Cast(x, second halves)', x.at(column), input.at(column), count);
    }
    c.PipeBarrier('V');
    mul('compute: Mul(tmp1, x0, cos)', tile.rows, [t1, x, cos]);
    mul('compute: Mul(tmp2, x1, sin)', tile.rows, [t2, x.at(column), sin]);
    c.PipeBarrier('V');
    c.Sub('compute: Sub(y0, tmp1, tmp2)', wideX ? t1 : output, t1, t2, count);
    c.PipeBarrier('V');
    if (wideX) c.Cast('compute: Cast(y, first halves)', output, t1, count);
    c.PipeBarrier('V'); // tmp1 and tmp2 are read before they are written again
    mul('compute: Mul(tmp1, x0, sin)', tile.rows, [t1, x, sin]);
    mul('compute: Mul(tmp2, x1, cos)', tile.rows, [t2, x.at(column), cos]);
    c.PipeBarrier('V');
    c.Add('compute: Add(y1, tmp1, tmp2)', wideX ? t1 : output.at(column), t1, t2, count);
    c.PipeBarrier('V');
    if (wideX) c.Cast('compute: Cast(y, second halves)', output.at(column), t1, count);
    rows.put(both);
    if (tile.lastOfToken) tables.free();
  };

  return { rows, tables, compute };
}
