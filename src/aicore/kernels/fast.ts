/**
 * Kernel (c): the same bits as (b), limited by memory instead of by the scalar unit.
 *
 * - No element passes through the scalar unit. GPT-J needs no split and no merge: with c and s doubled to (c0, c0, c1, c1, …) and
 *   (−s0, s0, −s1, s1, …) the row turns as y = x · c + swap(x) · s, where swap exchanges the two elements of a pair. The even lanes of
 *   swap(x) are x shifted down by one lane, the odd lanes are x shifted up by one: a GatherMask with a pattern of one's own that drops
 *   the first lane shifts a whole tile down; one that starts a datablock earlier and keeps its last lane only shifts it up. A Mul with
 *   every other lane masked then takes from each what it needs. −(x · s) and x · (−s) are the same bits, and so are a − b and a + (−b).
 * - A table row is loaded once a token and block, doubled once with Gather, and used for all heads: a repeat stride of 0.
 * - Several heads' rows travel in one DataCopyPad.
 * - Two buffers in each queue, flags in place of automatic synchronisation: loads, vector work and stores overlap.
 * - Rows are dealt evenly to all cores, whatever the number of heads.
 *
 * Instructions and dtypes are those of architecture 2201: AscendC's pages on GatherMask (custom patterns, normal mode: a pattern of
 * its own for each repeat, src1RepeatStride datablocks apart), Gather (byte offsets; half and float), Mul (mask, repeat strides).
 *
 * @module
 */
import {
  type AscendC,
  EVEN_LANES,
  firstLanes,
  type LaneType,
  type LocalTensor,
  type Mask,
  ODD_LANES,
  type Repeats,
} from '../ascendc.js';
import { BLOCK, REPEAT } from '../costs.js';
import type { RopeArgs } from './args.js';
import { copyRowsIn, copyRowsOut, oneRow, type Row, roundUp, rowOf, shareOf, startOf } from './rows.js';

/** Two buffers in each queue. */
const BUFFER_NUM = 2;
/** Bytes of x in a tile at most: long enough to hide an instruction's head. */
const TILE_BYTES = 8192;
/** And at least, where there is as much. */
const MIN_TILE_BYTES = 2048;
/** Tiles of a block at least, as far as the bytes above allow: nothing overlaps with the first load and the last store. */
const TILES = 8;
/** Offsets that the scalar unit writes: two datablocks, so that vector instructions can go on from there. */
const SCALAR_OFFSETS = 16;
/** Repeats of one vector instruction: repeatTimes is a byte. */
const MAX_REPEATS = 255;

/** Heads of one token that are turned together. */
interface Tile {
  readonly row: Row;
  readonly rows: number;
  /** Whether the token's table row must be loaded first. */
  readonly firstOfToken: boolean;
  /** Whether the next tile has another token. */
  readonly lastOfToken: boolean;
}

/**
 * What one block does.
 *
 * @param c - AscendC of this block
 * @param a - the arguments
 * @param blocks - how many share the rows
 */
export function fastKernel(c: AscendC, a: RopeArgs, blocks: number): void {
  const { first, end } = shareOf(a.batch * a.seq * a.heads, c.GetBlockIdx(), blocks);
  const columns = a.pairing === 'interleaved' ? 1 : 2;
  // Elements from row to row of a column in the unified buffer: whole datablocks.
  const pitch = roundUp((a.rotaryDim / columns) * a.size, BLOCK) / a.size;
  const rowBytes = pitch * columns * a.size + roundUp((a.dim - a.rotaryDim) * a.size, BLOCK);
  const tileBytes = Math.min(TILE_BYTES, Math.max(MIN_TILE_BYTES, ((end - first) * rowBytes) / TILES));
  const most = Math.max(1, Math.min(MAX_REPEATS, a.heads, Math.floor(tileBytes / rowBytes)));
  const tiles = tilesOf(a, first, end, most);
  if (tiles.length === 0) return;
  const rows = Math.max(...tiles.map((tile) => tile.rows));
  const turn = a.pairing === 'interleaved' ? new Interleaved(c, a, pitch, rows) : new Halves(c, a, pitch, rows);
  const tail = a.dim > a.rotaryDim ? new Tail(c, a, rows) : undefined;
  const copyIn = (tile: Tile) => {
    turn.copyIn(tile);
    tail?.copyIn(tile);
  };
  // As many loads as there are buffers are on their way while the constants are built, and from then on the next tile's load is handed
  // over before this tile's vector work.
  for (const tile of tiles.slice(0, BUFFER_NUM)) copyIn(tile);
  turn.prepare();
  for (const [t, tile] of tiles.entries()) {
    const next = tiles[t + 1];
    if (next && t + 1 >= BUFFER_NUM) copyIn(next);
    turn.compute(tile);
    tail?.compute(tile);
    turn.copyOut(tile);
    tail?.copyOut(tile);
  }
}

function tilesOf(a: RopeArgs, first: number, end: number, most: number): Tile[] {
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

/** One instruction for each chunk of lanes that a repeat can hold; a row is a repeat, `pitch` elements from the next. */
function* chunksOf(lanes: number, laneBytes: number): Generator<{ at: number; lanes: number }> {
  const full = REPEAT / laneBytes;
  for (let at = 0; at < lanes; at += full) yield { at, lanes: Math.min(full, lanes - at) };
}

/** Repeats over rows of `pitch` elements; the second source is a table row for all of them. */
function overRows(mask: Mask, rows: number, pitch: number, laneBytes: number): Repeats {
  const step = (pitch * laneBytes) / BLOCK;
  return { mask, repeats: rows, strides: { dst: step, src0: step, src1: 0 } };
}

/** The table rows of a token: loaded, and for bf16 widened. */
class Tables {
  readonly #que;
  readonly #wide: { sin: LocalTensor; cos: LocalTensor } | undefined;
  readonly #second: number;
  #held: LocalTensor | undefined;

  constructor(
    readonly c: AscendC,
    readonly a: RopeArgs,
  ) {
    const bytes = roundUp(a.half * a.size, BLOCK);
    this.#second = bytes / a.size;
    this.#que = c.pipe.InitBuffer('_table_que', 'VECIN', BUFFER_NUM, 2 * bytes);
    if (a.dtype !== 'bf16') return;
    const wide = (name: string) => c.pipe.InitTBuf(name, a.half * 4).Get('f32');
    this.#wide = { cos: wide('_cos_f32'), sin: wide('_sin_f32') };
  }

  copyIn({ row }: Tile): void {
    const { c, a } = this;
    const table = this.#que.AllocTensor('copyIn: _table_que.AllocTensor()', a.dtype as LaneType);
    const pos = c.GetGlobal(
      'copyIn: positions.GetValue(batch, token)',
      a.positions,
      row.batch * a.positionBatch + row.token,
    );
    c.DataCopyPadIn('copyIn: DataCopyPad(cos)', table, a.cos, pos * a.half, oneRow(a.half * a.size));
    c.DataCopyPadIn('copyIn: DataCopyPad(sin)', table.at(this.#second), a.sin, pos * a.half, oneRow(a.half * a.size));
    this.#que.EnQue('copyIn: _table_que.EnQue()', table);
  }

  /** cos and sin in what lanes compute in; valid until {@link free}. */
  take(): { cos: LocalTensor; sin: LocalTensor } {
    const { c, a } = this;
    const table = this.#que.DeQue('compute: _table_que.DeQue()', a.dtype as LaneType);
    this.#held = table;
    const second = table.at(this.#second);
    if (!this.#wide) return { cos: table, sin: second };
    c.Cast('compute: Cast(cos)', this.#wide.cos, table, a.half);
    c.Cast('compute: Cast(sin)', this.#wide.sin, second, a.half);
    return this.#wide;
  }

  free(): void {
    if (this.#held) this.#que.FreeTensor('compute: _table_que.FreeTensor()', this.#held);
    this.#held = undefined;
  }
}

/** GPT-J pairs, (2j, 2j + 1). */
class Interleaved {
  readonly #T: LaneType;
  readonly #C: LaneType;
  readonly #laneBytes: number;
  readonly #in;
  readonly #out;
  readonly #tables: Tables;
  readonly #wideX: LocalTensor | undefined;
  readonly #wideY: LocalTensor | undefined;
  readonly #down: LocalTensor;
  readonly #up: LocalTensor;
  /** Of each pattern. */
  readonly #patternBytes: number;
  readonly #dropFirst: LocalTensor;
  readonly #keepLast: LocalTensor;
  readonly #offsets: LocalTensor;
  readonly #cos: LocalTensor;
  readonly #sin: LocalTensor;

  constructor(
    readonly c: AscendC,
    readonly a: RopeArgs,
    readonly pitch: number,
    rows: number,
  ) {
    const { pipe } = c;
    this.#T = a.dtype as LaneType;
    this.#C = a.dtype === 'bf16' ? 'f32' : this.#T;
    this.#laneBytes = this.#C === 'f32' ? 4 : 2;
    const tile = rows * pitch;
    // GatherMask reads whole repeats, from a datablock before the tile on: room for that in front and behind.
    const gathered = roundUp(BLOCK + tile * this.#laneBytes, REPEAT);
    this.#in = pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, this.#C === this.#T ? gathered + BLOCK : tile * a.size);
    this.#out = pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, tile * a.size);
    this.#tables = new Tables(c, a);
    if (this.#C !== this.#T) {
      this.#wideX = pipe.InitTBuf('_x_f32', gathered + BLOCK).Get('f32');
      this.#wideY = pipe.InitTBuf('_y_f32', tile * 4).Get('f32');
    }
    this.#down = pipe.InitTBuf('_shifted_down', gathered).Get(this.#C);
    this.#up = pipe.InitTBuf('_shifted_up', gathered).Get(this.#C);
    this.#patternBytes = (gathered / REPEAT) * BLOCK;
    this.#dropFirst = pipe.InitTBuf('_pattern_drop_first', this.#patternBytes).Get('u16');
    this.#keepLast = pipe.InitTBuf('_pattern_keep_last', this.#patternBytes).Get('u16');
    this.#offsets = pipe.InitTBuf('_offsets', a.rotaryDim * 4).Get('u32');
    this.#cos = pipe.InitTBuf('_cos_doubled', a.rotaryDim * this.#laneBytes).Get(this.#C);
    this.#sin = pipe.InitTBuf('_sin_doubled', a.rotaryDim * this.#laneBytes).Get(this.#C);
  }

  copyIn(tile: Tile): void {
    const { c, a } = this;
    if (tile.firstOfToken) this.#tables.copyIn(tile);
    const input = this.#in.AllocTensor('copyIn: _in_que.AllocTensor()', this.#T);
    const x = this.#C === this.#T ? input.at(BLOCK / a.size) : input;
    copyRowsIn(
      c,
      'copyIn: DataCopyPad(x)',
      x,
      a.x,
      startOf(tile.row, a.xStrides),
      a.xStrides.head,
      tile.rows,
      a.rotaryDim,
      this.pitch,
    );
    this.#in.EnQue('copyIn: _in_que.EnQue()', input);
  }

  /** The patterns and offsets, once. */
  prepare(): void {
    const { c, a } = this;
    const all = this.#patternBytes / 2;
    c.Duplicate('prepare: Duplicate(_pattern_drop_first, all ones)', this.#dropFirst, 0xffff, all);
    c.Duplicate('prepare: Duplicate(_pattern_keep_last, all ones)', this.#keepLast, 0xffff, all);
    c.SetFlag('V', 'S', 0);
    c.WaitFlag('prepare: WaitFlag<V_S>', 'V', 'S', 0);
    this.#dropFirst.SetValue('prepare: _pattern_drop_first.SetValue(0)', 0, 0xfffe);
    this.#keepLast.SetValue('prepare: _pattern_keep_last.SetValue(0)', 0, this.#laneBytes === 4 ? 0xff80 : 0x8000);
    const offsets = this.#offsets;
    let done = Math.min(SCALAR_OFFSETS, a.rotaryDim);
    for (let i = 0; i < done; i++)
      offsets.SetValue('prepare: _offsets.SetValue(i, (i / 2) * sizeof(C))', i, (i >> 1) * this.#laneBytes);
    c.SetFlag('S', 'V', 0);
    c.WaitFlag('prepare: WaitFlag<S_V>', 'S', 'V', 0);
    // The rest by doubling: what is there, moved on.
    while (done < a.rotaryDim) {
      const more = Math.min(done, a.rotaryDim - done);
      c.PipeBarrier('V');
      c.Adds(
        'prepare: Adds(_offsets[done], _offsets, done / 2 * sizeof(C))',
        offsets.at(done),
        offsets,
        (done / 2) * this.#laneBytes,
        more,
      );
      done += more;
    }
  }

  compute(tile: Tile): void {
    const { c, a, pitch } = this;
    const { rows } = tile;
    if (tile.firstOfToken) {
      const { cos, sin } = this.#tables.take();
      c.PipeBarrier('V');
      c.Gather('compute: Gather(_cos_doubled, cos, _offsets)', this.#cos, cos, this.#offsets, a.rotaryDim);
      c.Gather('compute: Gather(_sin_doubled, sin, _offsets)', this.#sin, sin, this.#offsets, a.rotaryDim);
      c.PipeBarrier('V');
      for (const chunk of chunksOf(a.rotaryDim, this.#laneBytes)) {
        const one = overRows(firstLanes(EVEN_LANES, chunk.lanes), 1, 0, 0);
        c.Muls('compute: Muls<even lanes>(_sin_doubled, -1)', this.#sin.at(chunk.at), this.#sin.at(chunk.at), -1, one);
      }
      this.#tables.free();
    }
    const input = this.#in.DeQue('compute: _in_que.DeQue()', this.#T);
    const output = this.#out.AllocTensor('compute: _out_que.AllocTensor()', this.#T);
    const blockLanes = BLOCK / this.#laneBytes;
    const count = rows * pitch;
    const before = this.#wideX ?? input;
    const x = before.at(blockLanes);
    const y = this.#wideY ?? output;
    // The one lane before the tile goes nowhere, but it must not be read before it is there.
    c.Duplicate('compute: Duplicate(the datablock before x)', before, 0, blockLanes);
    if (this.#wideX) c.Cast('compute: Cast(x)', x, input, count);
    c.PipeBarrier('V');
    const repeats = (bytes: number) => ({
      repeatTimes: Math.ceil(bytes / REPEAT),
      src0RepeatStride: 8,
      src1RepeatStride: 1,
    });
    const pattern: LaneType = this.#laneBytes === 4 ? 'u32' : 'u16';
    c.GatherMask(
      'compute: GatherMask(_shifted_down, x, drop first)',
      this.#down,
      x,
      this.#dropFirst.as(pattern),
      repeats(count * this.#laneBytes),
    );
    c.GatherMask(
      'compute: GatherMask(_shifted_up, x - 1 block, keep last)',
      this.#up,
      before,
      this.#keepLast.as(pattern),
      repeats(BLOCK + count * this.#laneBytes),
    );
    for (const { at, lanes } of chunksOf(a.rotaryDim, this.#laneBytes)) {
      c.Mul(
        'compute: Mul(y, x, _cos_doubled)',
        y.at(at),
        x.at(at),
        this.#cos.at(at),
        overRows(lanes, rows, pitch, this.#laneBytes),
      );
    }
    c.PipeBarrier('V');
    const masked = (mask: readonly [bigint, bigint], lanes: number) =>
      overRows(firstLanes(mask, lanes), rows, pitch, this.#laneBytes);
    for (const { at, lanes } of chunksOf(a.rotaryDim, this.#laneBytes)) {
      const [swapped, sin] = [this.#down.at(at), this.#sin.at(at)];
      c.Mul('compute: Mul<even lanes>(_shifted_down, _sin_doubled)', swapped, swapped, sin, masked(EVEN_LANES, lanes));
    }
    c.PipeBarrier('V'); // other lanes, but of the same datablocks
    for (const { at, lanes } of chunksOf(a.rotaryDim, this.#laneBytes)) {
      const [swapped, sin] = [this.#down.at(at), this.#sin.at(at)];
      c.Mul(
        'compute: Mul<odd lanes>(_shifted_down, _shifted_up, _sin_doubled)',
        swapped,
        this.#up.at(at),
        sin,
        masked(ODD_LANES, lanes),
      );
    }
    c.PipeBarrier('V');
    c.Add('compute: Add(y, y, _shifted_down)', y, y, this.#down, count);
    c.PipeBarrier('V');
    if (this.#wideY) c.Cast('compute: Cast(y)', output, this.#wideY, count);
    this.#out.EnQue('compute: _out_que.EnQue()', output);
    this.#in.FreeTensor('compute: _in_que.FreeTensor()', input);
  }

  copyOut(tile: Tile): void {
    const { c, a } = this;
    const output = this.#out.DeQue('copyOut: _out_que.DeQue()', this.#T);
    copyRowsOut(
      c,
      'copyOut: DataCopyPad(y)',
      a.y,
      startOf(tile.row, a.yStrides),
      a.yStrides.head,
      output,
      tile.rows,
      a.rotaryDim,
      this.pitch,
    );
    this.#out.FreeTensor('copyOut: _out_que.FreeTensor()', output);
  }
}

/** GPT-NeoX pairs, (j, j + half): the two halves of every row as two columns. */
class Halves {
  readonly #T: LaneType;
  readonly #C: LaneType;
  readonly #laneBytes: number;
  /** Elements of one column of a tile. */
  readonly #column: number;
  readonly #in;
  readonly #out;
  readonly #tables: Tables;
  readonly #wideX: LocalTensor | undefined;
  readonly #t1: LocalTensor;
  readonly #t2: LocalTensor;
  #table: { cos: LocalTensor; sin: LocalTensor } | undefined;

  constructor(
    readonly c: AscendC,
    readonly a: RopeArgs,
    readonly pitch: number,
    rows: number,
  ) {
    const { pipe } = c;
    this.#T = a.dtype as LaneType;
    this.#C = a.dtype === 'bf16' ? 'f32' : this.#T;
    this.#laneBytes = this.#C === 'f32' ? 4 : 2;
    this.#column = rows * pitch;
    this.#in = pipe.InitBuffer('_in_que', 'VECIN', BUFFER_NUM, 2 * this.#column * a.size);
    this.#out = pipe.InitBuffer('_out_que', 'VECOUT', BUFFER_NUM, 2 * this.#column * a.size);
    this.#tables = new Tables(c, a);
    if (this.#C !== this.#T) this.#wideX = pipe.InitTBuf('_x_f32', 2 * this.#column * 4).Get('f32');
    this.#t1 = pipe.InitTBuf('_tmp1', this.#column * this.#laneBytes).Get(this.#C);
    this.#t2 = pipe.InitTBuf('_tmp2', this.#column * this.#laneBytes).Get(this.#C);
  }

  copyIn(tile: Tile): void {
    const { c, a, pitch } = this;
    if (tile.firstOfToken) this.#tables.copyIn(tile);
    const input = this.#in.AllocTensor('copyIn: _in_que.AllocTensor()', this.#T);
    const start = startOf(tile.row, a.xStrides);
    copyRowsIn(c, 'copyIn: DataCopyPad(x, first halves)', input, a.x, start, a.xStrides.head, tile.rows, a.half, pitch);
    copyRowsIn(
      c,
      'copyIn: DataCopyPad(x, second halves)',
      input.at(this.#column),
      a.x,
      start + a.half,
      a.xStrides.head,
      tile.rows,
      a.half,
      pitch,
    );
    this.#in.EnQue('copyIn: _in_que.EnQue()', input);
  }

  /** Nothing to build. */
  prepare(): void {}

  compute(tile: Tile): void {
    const { c, a, pitch } = this;
    if (tile.firstOfToken) this.#table = this.#tables.take();
    const { cos, sin } = this.#table!;
    const input = this.#in.DeQue('compute: _in_que.DeQue()', this.#T);
    const output = this.#out.AllocTensor('compute: _out_que.AllocTensor()', this.#T);
    const count = tile.rows * pitch;
    let x = input;
    if (this.#wideX) {
      x = this.#wideX;
      c.Cast('compute: Cast(x, first halves)', x, input, count);
      c.Cast('compute: Cast(x, second halves)', x.at(this.#column), input.at(this.#column), count);
    }
    const x1 = x.at(this.#column);
    const [t1, t2] = [this.#t1, this.#t2];
    const times = (line: string, dst: LocalTensor, from: LocalTensor, table: LocalTensor) => {
      for (const { at, lanes } of chunksOf(a.half, this.#laneBytes)) {
        c.Mul(line, dst.at(at), from.at(at), table.at(at), overRows(lanes, tile.rows, pitch, this.#laneBytes));
      }
    };
    c.PipeBarrier('V');
    times('compute: Mul(tmp1, x0, cos)', t1, x, cos);
    times('compute: Mul(tmp2, x1, sin)', t2, x1, sin);
    c.PipeBarrier('V');
    c.Sub('compute: Sub(y0, tmp1, tmp2)', this.#wideX ? t1 : output, t1, t2, count);
    c.PipeBarrier('V');
    if (this.#wideX) c.Cast('compute: Cast(y, first halves)', output, t1, count);
    c.PipeBarrier('V'); // tmp1 and tmp2 are read before they are written anew
    times('compute: Mul(tmp1, x0, sin)', t1, x, sin);
    times('compute: Mul(tmp2, x1, cos)', t2, x1, cos);
    c.PipeBarrier('V');
    c.Add('compute: Add(y1, tmp1, tmp2)', this.#wideX ? t1 : output.at(this.#column), t1, t2, count);
    c.PipeBarrier('V');
    if (this.#wideX) c.Cast('compute: Cast(y, second halves)', output.at(this.#column), t1, count);
    this.#out.EnQue('compute: _out_que.EnQue()', output);
    this.#in.FreeTensor('compute: _in_que.FreeTensor()', input);
    if (tile.lastOfToken) this.#tables.free();
  }

  copyOut(tile: Tile): void {
    const { c, a, pitch } = this;
    const output = this.#out.DeQue('copyOut: _out_que.DeQue()', this.#T);
    const start = startOf(tile.row, a.yStrides);
    copyRowsOut(
      c,
      'copyOut: DataCopyPad(y, first halves)',
      a.y,
      start,
      a.yStrides.head,
      output,
      tile.rows,
      a.half,
      pitch,
    );
    copyRowsOut(
      c,
      'copyOut: DataCopyPad(y, second halves)',
      a.y,
      start + a.half,
      a.yStrides.head,
      output.at(this.#column),
      tile.rows,
      a.half,
      pitch,
    );
    this.#out.FreeTensor('copyOut: _out_que.FreeTensor()', output);
  }
}

/** What does not turn: moved as bits. */
class Tail {
  readonly #in;
  readonly #out;
  readonly #length: number;
  readonly #pitch: number;

  constructor(
    readonly c: AscendC,
    readonly a: RopeArgs,
    rows: number,
  ) {
    this.#length = a.dim - a.rotaryDim;
    this.#pitch = roundUp(this.#length * a.size, BLOCK) / a.size;
    const bytes = rows * this.#pitch * a.size;
    this.#in = c.pipe.InitBuffer('_tail_que', 'VECIN', BUFFER_NUM, bytes);
    this.#out = c.pipe.InitBuffer('_tail_out_que', 'VECOUT', BUFFER_NUM, bytes);
  }

  copyIn(tile: Tile): void {
    const { c, a } = this;
    const rest = this.#in.AllocTensor('copyIn: _tail_que.AllocTensor()', a.dtype as LaneType);
    const start = startOf(tile.row, a.xStrides) + a.rotaryDim;
    copyRowsIn(
      c,
      'copyIn: DataCopyPad(x, tails)',
      rest,
      a.x,
      start,
      a.xStrides.head,
      tile.rows,
      this.#length,
      this.#pitch,
    );
    this.#in.EnQue('copyIn: _tail_que.EnQue()', rest);
  }

  compute(tile: Tile): void {
    const { c, a } = this;
    const rest = this.#in.DeQue('compute: _tail_que.DeQue()', a.dtype as LaneType);
    const out = this.#out.AllocTensor('compute: _tail_out_que.AllocTensor()', a.dtype as LaneType);
    c.Copy('compute: Copy(tails)', out, rest, tile.rows * this.#pitch);
    this.#out.EnQue('compute: _tail_out_que.EnQue()', out);
    this.#in.FreeTensor('compute: _tail_que.FreeTensor()', rest);
  }

  copyOut(tile: Tile): void {
    const { c, a } = this;
    const out = this.#out.DeQue('copyOut: _tail_out_que.DeQue()', a.dtype as LaneType);
    const start = startOf(tile.row, a.yStrides) + a.rotaryDim;
    copyRowsOut(
      c,
      'copyOut: DataCopyPad(y, tails)',
      a.y,
      start,
      a.yStrides.head,
      out,
      tile.rows,
      this.#length,
      this.#pitch,
    );
    this.#out.FreeTensor('copyOut: _tail_out_que.FreeTensor()', out);
  }
}
