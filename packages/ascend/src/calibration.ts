/**
 * Fits microseconds of a modelled run to 13 rows that others measured on a device.
 *
 * The rows are public: tile-ai/tilelang-ascend@628f8a41,
 * examples/pos_embedding/RotaryPositionEmbedding/bench_mark.md: msprof's task duration, in place; the chip has no name.
 * One column is TileLang's kernel, the other CANN's operator. The fit uses TileLang's: CANN's takes 18 to 22 µs on 12
 * rows whose bytes differ 16 times, which no count of rows explains, and its kernel is not on the model.
 *
 * `fast` with f32 tables and one buffer a queue stands for TileLang's kernel: both compute in f32 and do not overlap
 * loads, work and stores. The modelled chip is a 910B2, because TileLang's kernel launches 48 blocks.
 *
 * A row takes task + cycles · factor / clock, and with interleaved pairs one more term: TileLang's kernel builds its
 * gather index in each launch. `fast` does not do that, so this term is in no other figure. @module
 */
import { CHIPS } from './costs.js';
import { prepareRope } from './measure.js';
import { workCycles } from './time.js';
import type { KernelPairing } from './trace.js';

/** A row of the public benchmark. */
export interface DeviceRow {
  readonly name: string;
  readonly shape: readonly [batch: number, seq: number, heads: number, headDim: number];
  readonly pairing: KernelPairing;
  readonly dtype: 'f16' | 'bf16';
  /** Microseconds of TileLang's kernel, and of CANN's operator. */
  readonly tilelang: number;
  readonly cann: number;
}

const TABLE: readonly (readonly [string, DeviceRow['shape'], KernelPairing, 'f16' | 'bf16', number, number])[] = [
  ['decode_bs1', [1, 1, 32, 128], 'half', 'f16', 7.98, 7.63],
  ['decode_bs64', [1, 64, 64, 128], 'half', 'f16', 14.61, 19.82],
  ['prefill_bs4_h64', [1, 4, 64, 128], 'half', 'f16', 6.99, 18.89],
  ['prefill_bs8_h64', [1, 8, 64, 128], 'half', 'f16', 7.34, 19.9],
  ['prefill_bs32_h64', [1, 32, 64, 128], 'half', 'f16', 10.09, 20.08],
  ['prefill_bs4_d256', [1, 4, 64, 256], 'half', 'f16', 9.43, 18.99],
  ['prefill_bs4_d512', [1, 4, 64, 512], 'half', 'f16', 12.98, 18.68],
  ['prefill_bs4_bf16', [1, 4, 64, 128], 'half', 'bf16', 7.61, 18.81],
  ['prefill_bs8_bf16', [1, 8, 64, 128], 'half', 'bf16', 9.9, 19.88],
  ['prefill_bs4_inter', [1, 4, 64, 128], 'interleaved', 'f16', 15.06, 19.0],
  ['prefill_bs8_inter', [1, 8, 64, 128], 'interleaved', 'f16', 15.03, 19.32],
  ['prefill_bs4_inter_bf16', [1, 4, 64, 128], 'interleaved', 'bf16', 15.44, 18.4],
  ['bsnd_bs4_s4', [4, 4, 64, 128], 'half', 'f16', 9.38, 21.54],
];

/** The 13 rows that microseconds are calibrated with. */
export const DEVICE_ROWS: readonly DeviceRow[] = /* @__PURE__ */ Object.freeze(
  TABLE.map(([name, shape, pairing, dtype, tilelang, cann]) => ({ name, shape, pairing, dtype, tilelang, cann })),
);

/** The constants of a fit. */
export interface Fit {
  /** Microseconds of a task. */
  readonly task: number;
  /** Device cycles for each modelled one. */
  readonly factor: number;
  /** Microseconds in which TileLang's kernel builds its index. */
  readonly index: number;
}

/** A row with its prediction by a fit of all rows (`fitted`), and by one of the other 12 (`leftOut`). */
export interface CalibratedRow extends DeviceRow {
  /** Modelled cycles, without the one-off heads, which are in the task. */
  readonly cycles: number;
  readonly fitted: number;
  readonly leftOut: number;
  /** `leftOut / tilelang − 1`. */
  readonly error: number;
}

/** The fit of all rows, and its predictions. */
export interface Calibration {
  readonly fit: Fit;
  readonly rows: readonly CalibratedRow[];
  /** Each row's error when the task and the index alone predict it, which shows how much the cycles add. */
  readonly withoutCycles: readonly number[];
}

const CLOCK_GHZ = CHIPS['910B2'].clockGHz;

/** The terms of a row that the constants of {@link Fit} multiply: the task, the index and, last, the cycles. */
type Terms = readonly number[];

/**
 * Runs the kernel on all rows, fits, and predicts each row by a fit of the others. It takes seconds.
 *
 * @example calibrate().rows.filter((row) => Math.abs(row.error) <= 0.35).length; // 13
 */
export function calibrate(): Calibration {
  const cycles = DEVICE_ROWS.map(({ shape, pairing, dtype }) => {
    const [, tableLen, , rotaryDim] = shape;
    const tables = { base: 10000, batchPositions: false, tableLen, rotaryDim, tableDtype: 'f32' } as const;
    const rope = prepareRope({ shape, pairing, dtype, ...tables });
    return workCycles(rope.measure('fast', { chip: '910B2', tiling: { buffers: 1 } }).run);
  });
  const measured = DEVICE_ROWS.map(({ tilelang }) => tilelang);
  const terms = DEVICE_ROWS.map(
    ({ pairing }, n): Terms => [1, pairing === 'interleaved' ? 1 : 0, cycles[n]! / (CLOCK_GHZ * 1000)],
  );
  const predict = (fit: Terms, row: Terms): number => fit.reduce((sum, value, n) => sum + value * row[n]!, 0);
  const predictWithout = (left: number, used: readonly Terms[]): number => {
    const others = (list: readonly unknown[]) => list.filter((_what, n) => n !== left);
    return predict(leastSquares(others(used) as Terms[], others(measured) as number[]), used[left]!);
  };
  const all = leastSquares(terms, measured);
  const [task, index, factor] = all as [number, number, number];
  const short = terms.map((row) => row.slice(0, 2));
  return {
    fit: { task, factor, index },
    rows: DEVICE_ROWS.map((row, n) => {
      const leftOut = predictWithout(n, terms);
      const error = leftOut / row.tilelang - 1;
      return { ...row, cycles: cycles[n]!, fitted: predict(all, terms[n]!), leftOut, error };
    }),
    withoutCycles: short.map((_row, n) => predictWithout(n, short) / measured[n]! - 1),
  };
}

/** Finds the constants with the least sum of squared relative errors, by the normal equations. */
function leastSquares(rows: readonly Terms[], measured: readonly number[]): Terms {
  const size = rows[0]!.length;
  const m = Array.from({ length: size }, () => new Array<number>(size + 1).fill(0));
  for (const [n, row] of rows.entries()) {
    const scaled = row.map((term) => term / measured[n]!);
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) m[i]![j]! += scaled[i]! * scaled[j]!;
      m[i]![size]! += scaled[i]!;
    }
  }
  for (let i = 0; i < size; i++) {
    for (let r = 0; r < size; r++) {
      if (r === i) continue;
      const by = m[r]![i]! / m[i]![i]!;
      for (let c = i; c <= size; c++) m[r]![c]! -= by * m[i]![c]!;
    }
  }
  return m.map((row, i) => row[size]! / row[i]!);
}
