/** Holds the keys and values of the tokens so far, and the tables that rotate keys and queries. @module */
import {
  bindRopeParts,
  planRearrange,
  planRope,
  planRopeWithTable,
  planSelfAttention,
  type RopePlan,
  type RopeSpec,
  type RopeTable,
  type Runner,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { type CacheDtype, cacheWidths, isEightBits, stateShapes } from './memory.js';
import type { DecoderConfig, LayerConfig } from './types.js';
import { attends } from './weights.js';

/** The rows that a shift moves at a time. */
const SHIFT_ROWS = 512;

/** The cache of one session. */
export class KvCache {
  /** The number of tokens whose keys and values are there. */
  length = 0;
  /**
   * Rotated keys `[capacity, num_kv_heads, head_dim]` for each layer; with latent attention `[capacity, 1, rank +
   * rope]`. Layers without attention, and those that read another layer's, have none.
   */
  readonly k: readonly Tensor<CacheDtype>[];
  /** Values `[capacity, num_kv_heads, value_dim]` for each layer; none with latent attention. */
  readonly v: readonly Tensor<CacheDtype>[];
  /** The scales of keys in i8, `[capacity, num_kv_heads]`, and of values: value = stored · scale. */
  readonly kScales: readonly (Tensor<'f32'> | undefined)[];
  readonly vScales: readonly (Tensor<'f32'> | undefined)[];
  /** The states of each layer without attention; see stateShapes. Before the first token they hold anything. */
  readonly states: readonly (readonly Tensor<'f32'>[])[];
  readonly layers: readonly LayerConfig[];
  readonly planRope: ReturnType<typeof ropePlanner>;

  readonly capacity: number;
  readonly #runner: Runner;
  readonly #taken: Tensor[] = [];
  /** The dimensions in front of a key that do not rotate and belong to no head. */
  readonly #latentRank: number;

  /** @throws {RopewalkError} DEVICE when memory is full; what was allocated is freed */
  constructor(runner: Runner, config: DecoderConfig, capacity: number, dtype: CacheDtype) {
    this.#runner = runner;
    this.capacity = capacity;
    this.layers = config.layers(capacity);
    this.planRope = ropePlanner(capacity);
    this.#latentRank = config.latent?.rank ?? 0;
    const take = <D extends CacheDtype>(type: D, shape: readonly number[]): Tensor<D> => {
      const tensor = runner.allocate(type, shape);
      this.#taken.push(tensor);
      return tensor;
    };
    const rows = (kind: 'keys' | 'values'): Tensor<CacheDtype>[] => {
      const all = new Array<Tensor<CacheDtype>>(this.layers.length);
      for (const [layer, one] of this.layers.entries()) {
        const { [kind]: width, heads } = cacheWidths(config, layer);
        if (attends(one) && width > 0) all[layer] = take(dtype, [capacity, heads, width / heads]);
      }
      return all;
    };
    try {
      this.k = rows('keys');
      this.v = config.latent ? [] : rows('values');
      const scales = (all: readonly Tensor[]): (Tensor<'f32'> | undefined)[] =>
        all.map(({ dtype: type, shape }) => (type === 'i8' ? take('f32', shape.slice(0, 2)) : undefined));
      [this.kScales, this.vScales] = [scales(this.k), scales(this.v)];
      const shapes = stateShapes(config);
      this.states = this.layers.map(({ recurrent }) => (recurrent ? shapes.map((shape) => take('f32', shape)) : []));
    } catch (error) {
      this.dispose();
      throw error;
    }
  }

  /** Shifts the rows, as {@link shiftRows}. */
  shift(from: number, count: number): void {
    shiftRows(this.#runner, this, this.#latentRank, { from, count });
    this.length -= count;
  }

  /** Gives the memory back. */
  dispose(): void {
    for (const tensor of this.#taken) tensor.dispose();
  }
}

/**
 * Copies f32 heads `[t, m, d]` into rows of a cache, each value rounded once.
 *
 * @param rowScales - `[t, m]`, of rows in i8; written
 */
export function storeRows(runner: Runner, x: Tensor<'f32'>, rows: Tensor<CacheDtype>, rowScales?: Tensor<'f32'>): void {
  if (isEightBits(rows.dtype)) {
    const plan = planRope({ headDim: 2, base: 1, pairing: 'half', positions: 0, seqLen: x.shape[0]! });
    runner.run(bindRopeParts(plan, [{ x, out: rows, rotate: false, rowScales }]));
  } else runner.run(planRearrange(x, rows));
}

/** Copies rows of a cache, `[t, m, d]`, as f32. */
export function widenRows(
  runner: Runner,
  rows: Tensor<CacheDtype>,
  out: Tensor<'f32'>,
  rowScales?: Tensor<'f32'>,
): void {
  if (isEightBits(rows.dtype)) {
    // Attention reads 8 bits, and its result for a single key is that key's value.
    const alone = (x: Tensor): Tensor => x.unsqueeze().permute([1, 0, 2, 3]); // [t, 1, m, d]
    const x = alone(rows);
    const q = tensorFrom(new Float32Array(1), { shape: x.shape, strides: [0, 0, 0, 0] });
    const scales = rowScales?.unsqueeze().permute([1, 0, 2]);
    runner.run(planSelfAttention(q, x, x, alone(out), { kRowScales: scales, vRowScales: scales }));
  } else runner.run(planRearrange(rows, out));
}

/** Rows of keys and values that {@link shiftRows} shifts. */
export interface CachedRows {
  readonly length: number;
  /** `[rows, heads, width]` for each layer that has keys of its own; only the first `length` rows count. */
  readonly k: readonly (Tensor<CacheDtype> | undefined)[];
  /** The same for values; empty if the keys hold them. */
  readonly v: readonly (Tensor<CacheDtype> | undefined)[];
  /** The scales of keys and values in i8. */
  readonly kScales?: KvCache['kScales'];
  readonly vScales?: KvCache['vScales'];
  readonly layers: readonly LayerConfig[];
}

/**
 * Drops rows [from, from + count) and moves the later rows back. Their keys are rotated back by `count` positions.
 *
 * A key at position p is R(p)·k, and R(−count) turns it into R(p − count)·k. The magnitude that YaRN and LongRoPE put
 * into R is in the cached key already, so this rotation has magnitude 1.
 *
 * @param plain - the dimensions in front of a key that do not rotate and belong to no head
 */
export function shiftRows(
  runner: Runner,
  rows: CachedRows,
  plain: number,
  { from, count }: { readonly from: number; readonly count: number },
): void {
  const { length, k, v, kScales = [], vScales = [], layers } = rows;
  const moved = length - from - count;
  if (moved <= 0 || count <= 0) return;
  const most = Math.min(moved, SHIFT_ROWS);
  const width = Math.max(...[...k, ...v].map((tensor) => (tensor ? tensor.shape[1]! * tensor.shape[2]! : 0)));
  const scratch = runner.allocate('f32', [most, width]);
  /** Moves rows piece by piece through `scratch`, because source and target may overlap. */
  const move = (
    tensor: Tensor<CacheDtype>,
    scales: Tensor<'f32'> | undefined,
    back: ((rows: number) => RopePlan) | undefined,
  ): void => {
    const [, heads, d] = tensor.shape as [number, number, number];
    for (let to = from; to + count < length; to += most) {
      const piece = Math.min(most, length - count - to);
      const source = tensor.slice(0, to + count, to + count + piece);
      const rows = scratch.slice(0, 0, piece).slice(1, 0, heads * d);
      const held = rows.view([piece, heads, d]);
      widenRows(runner, source, held, scales?.slice(0, to + count, to + count + piece));
      if (back) runner.run(bindRopeParts(back(piece), [{ x: held, out: held }]));
      storeRows(runner, held, tensor.slice(0, to, to + piece), scales?.slice(0, to, to + piece));
    }
  };
  try {
    for (const [layer, { rope }] of layers.entries()) {
      const keys = k[layer];
      if (!keys) continue;
      move(keys.slice(2, plain, keys.shape[2]!), kScales[layer], rope && rotateBack(rope, count, most));
      if (plain > 0) move(keys.slice(2, 0, plain), undefined, undefined);
      if (v.length > 0) move(v[layer]!, vScales[layer], undefined);
    }
  } finally {
    scratch.dispose();
  }
}

/** Returns plans that rotate rows by −count positions with magnitude 1. */
function rotateBack(rope: RopeSpec, count: number, most: number): (rows: number) => RopePlan {
  const { table } = planRope({ ...rope, attentionFactor: 1, ...positionsFrom(rope, -count, 1) });
  const whole = new Int32Array(most);
  return (rows) => planRopeWithTable({ ...windowOf(rope), table, seqLen: rows, tableRows: whole.subarray(0, rows) });
}

/** Picks the fields of a RoPE that a plan with a table needs: the rest is in the table. */
function windowOf({ headDim, rotaryDim, rotaryOffset, pairing }: RopeSpec) {
  return { headDim, rotaryDim, rotaryOffset, pairing };
}

/**
 * Makes a planner whose tables of cos and sin, of `capacity` positions at most, are shared by layers that rotate alike.
 */
function ropePlanner(capacity: number) {
  const tables = new Map<RopeSpec, RopeTable>();
  /** Plans for positions from `start` on, or for the caller's, `[axes, tokens]`, whose fourth axis may be missing. */
  return (rope: RopeSpec, start: number, tokens: number, given?: Int32Array): RopePlan => {
    if (given) {
      const axes = axesOf(rope);
      const positions = new Int32Array(axes * tokens);
      for (let axis = 0; axis < axes; axis++) {
        const from = given.length === tokens && axis < TEXT_AXES ? 0 : axis; // one axis stands for t, h and w
        positions.set(given.subarray(from * tokens, (from + 1) * tokens), axis * tokens);
      }
      return planRope({ ...rope, positions: tensorFrom(positions, { shape: [axes, tokens].slice(axes > 1 ? 0 : 1) }) });
    }
    let table = tables.get(rope);
    const end = start + tokens;
    if (!table || table.rows < end) {
      // At least 256 rows, so that a short chat builds one table.
      const rows = Math.min(capacity, Math.max(end, 256, 2 * (table?.rows ?? 0)));
      table = planRope({ ...rope, ...positionsFrom(rope, 0, rows) }).table;
      tables.set(rope, table);
    }
    const tableRows = Int32Array.from({ length: tokens }, (_row, s) => start + s);
    return planRopeWithTable({ ...windowOf(rope), table, seqLen: tokens, tableRows });
  };
}

/** The axes on which the positions of text grow: t, h and w. The fourth stays at 0, as in llama.cpp. */
const TEXT_AXES = 3;

function axesOf(rope: RopeSpec): number {
  return rope.axes?.sections.length ?? 1;
}

/** Returns the positions of consecutive tokens of text. */
function positionsFrom(rope: RopeSpec, start: number, tokens: number): { positions: number | Tensor; seqLen: number } {
  const axes = axesOf(rope);
  if (axes === 1) return { positions: start, seqLen: tokens };
  const values = Int32Array.from({ length: axes * tokens }, (_, n) =>
    n < TEXT_AXES * tokens ? start + (n % tokens) : 0,
  );
  return { positions: tensorFrom(values, { shape: [axes, tokens] }), seqLen: tokens };
}
