/** Microseconds of a modelled run: constants of the fit in calibration.ts, which a test repeats. @module */
import type { KernelRun } from './trace.js';

/** The constants of the calibration. */
export const TIME = /* @__PURE__ */ Object.freeze({
  /** Microseconds of a task that does nothing, with the one-off heads. */
  task: 6.92,
  /** Cycles of the device for each modelled cycle. */
  factor: 1.82,
  /**
   * Bytes a microsecond that HBM and L2 give all cores together: the 1.6 TB/s published for A2 (cann/ops-cv, issue
   * 997). None of the 13 rows reaches it, so they cannot correct it: an assumption.
   */
  sharedBytes: 1.6e6,
  /** The largest error of a row that is predicted from the other 12, as a share. */
  band: 0.22,
  /** The most bytes that a row moves: beyond it the band is not known. */
  bandBytes: 2.2e6,
});

/** Cycles of a run without its one-off heads. */
export function workCycles({ cycles, heads }: Pick<KernelRun, 'cycles' | 'heads'>): number {
  return Math.max(0, cycles - heads.operator - heads.MTE2);
}

/** Modelled microseconds of a run. Their error is not known, unless {@link bandOf} gives a band. */
export function microsecondsOf(
  run: Pick<KernelRun, 'cycles' | 'heads' | 'clockGHz'> & {
    readonly bytes: Pick<KernelRun['bytes'], 'load' | 'store'>;
  },
): Pick<KernelRun, 'microseconds' | 'microsecondsBand'> {
  const work = (workCycles(run) * TIME.factor) / (run.clockGHz * 1000);
  const shared = (run.bytes.load + run.bytes.store) / TIME.sharedBytes;
  const microseconds = TIME.task + Math.max(work, shared);
  return { microseconds, microsecondsBand: 'extrapolated' };
}

/** The band of a run of the kernel, chip and tiling that were measured; nothing for a run that is larger. */
export function bandOf({ microseconds, bytes }: KernelRun): Pick<KernelRun, 'microsecondsBand'> {
  if (microseconds === undefined || bytes.load + bytes.store > TIME.bandBytes) return {};
  return { microsecondsBand: [microseconds * (1 - TIME.band), microseconds * (1 + TIME.band)] };
}
