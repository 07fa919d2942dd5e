/** Computes microseconds of a modelled run by the constants of the fit in calibration.ts. @module */
import type { KernelRun } from './trace.js';

/** The constants of the calibration. */
export const TIME = /* @__PURE__ */ Object.freeze({
  /** Microseconds of a task that does nothing, including the one-off heads. */
  task: 6.92,
  /** Cycles of the device for each modelled cycle. */
  factor: 1.82,
  /**
   * Bytes a microsecond that HBM and L2 give all cores together: the 1.6 TB/s published for A2 (cann/ops-cv, issue
   * 997). None of the 13 rows reaches it, so they cannot correct it: an assumption.
   */
  sharedBytes: 1.6e6,
  /** The largest error of a row that is predicted from the other 12, as a share of the measured time. */
  band: 0.22,
  /** The most bytes that one of the 13 rows moves; the band of larger runs is not known. */
  bandBytes: 2.2e6,
});

/** Counts the cycles of a run without its one-off heads. */
export function workCycles({ cycles, heads }: Pick<KernelRun, 'cycles' | 'heads'>): number {
  return Math.max(0, cycles - heads.operator - heads.MTE2);
}

/** Computes the modelled microseconds of a run. Their error is not known, unless {@link bandOf} gives a band. */
export function microsecondsOf(
  run: Pick<KernelRun, 'cycles' | 'heads' | 'clockGHz' | 'bytes'>,
): Pick<KernelRun, 'microseconds' | 'microsecondsBand'> {
  const work = (workCycles(run) * TIME.factor) / (run.clockGHz * 1000);
  const shared = (run.bytes.load + run.bytes.store) / TIME.sharedBytes;
  return { microseconds: TIME.task + Math.max(work, shared), microsecondsBand: 'extrapolated' };
}

/** Computes the band of a run of the measured kernel, chip and tiling; a run of more bytes than the rows has none. */
export function bandOf({ microseconds, bytes }: KernelRun): Pick<KernelRun, 'microsecondsBand'> {
  if (microseconds === undefined || bytes.load + bytes.store > TIME.bandBytes) return {};
  return { microsecondsBand: [microseconds * (1 - TIME.band), microseconds * (1 + TIME.band)] };
}
