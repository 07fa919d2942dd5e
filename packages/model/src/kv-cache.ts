/** Keys and values of the tokens so far, and the tables that rotate keys and queries. @module */
import {
  bindRopeParts,
  planRearrange,
  planRope,
  planRopeWithTable,
  type RopePlan,
  type RopeSpec,
  type RopeTable,
  type Runner,
  type Tensor,
} from 'ropewalk';
import type { CacheDtype } from './memory.js';
import type { DecoderConfig, LayerConfig } from './types.js';

/** Rows that a shift moves at a time. */
const SHIFT_ROWS = 512;

/** The cache of one session. */
export class KvCache {
  /** Tokens whose keys and values are there. */
  length = 0;
  /** `[capacity, num_kv_heads, head_dim]` of each layer; keys are rotated already. */
  readonly k: readonly Tensor<CacheDtype>[];
  /** `[capacity, num_kv_heads, head_dim]` of each layer. */
  readonly v: readonly Tensor<CacheDtype>[];
  readonly layers: readonly LayerConfig[];
  readonly ropes: RopeTables;

  readonly capacity: number;
  readonly #runner: Runner;

  /** @throws {RopewalkError} DEVICE when memory is full; what was allocated is freed */
  constructor(runner: Runner, config: DecoderConfig, capacity: number, dtype: CacheDtype) {
    this.#runner = runner;
    this.capacity = capacity;
    this.layers = config.layers(capacity);
    this.ropes = new RopeTables(capacity);
    const taken: Tensor<CacheDtype>[] = [];
    const take = (): Tensor<CacheDtype> => {
      const tensor = runner.allocate(dtype, [capacity, config.numKvHeads, config.headDim]);
      taken.push(tensor);
      return tensor;
    };
    try {
      this.k = this.layers.map(take);
      this.v = this.layers.map(take);
    } catch (error) {
      for (const tensor of taken) tensor.dispose();
      throw error;
    }
  }

  /**
   * Drops rows [from, from + count) and moves the later rows back. Their keys are rotated back by `count` positions.
   *
   * A key at position p is R(p)·k; R(−count) makes R(p − count)·k of it, whatever k was. The magnitude that YaRN and
   * LongRoPE put into R is in the cached key already, so this rotation has magnitude 1.
   */
  shift(from: number, count: number): void {
    const moved = this.length - from - count;
    if (moved > 0 && count > 0) {
      const { shape } = this.k[0]!;
      const rows = Math.min(moved, SHIFT_ROWS);
      const scratch = this.#runner.allocate('f32', [rows, shape[1]!, shape[2]!]);
      try {
        for (const [layer, { rope }] of this.layers.entries()) {
          this.#moveRows(this.k[layer]!, scratch, { from, count, back: rope && rotateBack(rope, count, rows) });
          this.#moveRows(this.v[layer]!, scratch, { from, count, back: undefined });
        }
      } finally {
        scratch.dispose();
      }
    }
    this.length -= count;
  }

  /** Moves rows [from + count, length) to `from`, piece by piece through `scratch`, because they may overlap. */
  #moveRows(
    tensor: Tensor<CacheDtype>,
    scratch: Tensor<'f32'>,
    { from, count, back }: { from: number; count: number; back: ((rows: number) => RopePlan) | undefined },
  ): void {
    for (let to = from; to + count < this.length; to += scratch.shape[0]!) {
      const rows = Math.min(scratch.shape[0]!, this.length - count - to);
      const source = tensor.slice(0, to + count, to + count + rows);
      const held = scratch.slice(0, 0, rows);
      this.#runner.run(back ? bindRopeParts(back(rows), [{ x: source, out: held }]) : planRearrange(source, held));
      this.#runner.run(planRearrange(held, tensor.slice(0, to, to + rows)));
    }
  }

  /** Gives the memory back. */
  dispose(): void {
    for (const tensor of [...this.k, ...this.v]) tensor.dispose();
  }
}

/** Plans that rotate rows by −count positions with magnitude 1. */
function rotateBack(rope: RopeSpec, count: number, most: number): (rows: number) => RopePlan {
  const { table } = planRope({ ...rope, attentionFactor: 1, positions: [-count] });
  const whole = new Int32Array(most);
  return (rows) => planRopeWithTable({ ...rope, table, seqLen: rows, tableRows: whole.subarray(0, rows) });
}

/** cos and sin for the positions in use, shared by layers that rotate alike. A table grows by doubling. */
class RopeTables {
  readonly #tables = new Map<RopeSpec, RopeTable>();
  readonly #capacity: number;

  /** @param capacity - positions that can come up */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** A plan for consecutive positions, from that of the first token. */
  plan(rope: RopeSpec, start: number, tokens: number): RopePlan {
    let table = this.#tables.get(rope);
    const end = start + tokens;
    if (!table || table.rows < end) {
      // At least 256 rows, so that a short chat builds one table.
      const rows = Math.min(this.#capacity, Math.max(end, 256, 2 * (table?.rows ?? 0)));
      table = planRope({ ...rope, positions: 0, seqLen: rows }).table;
      this.#tables.set(rope, table);
    }
    return planRopeWithTable({
      ...rope,
      table,
      seqLen: tokens,
      tableRows: Int32Array.from({ length: tokens }, (_row, s) => start + s),
    });
  }
}
