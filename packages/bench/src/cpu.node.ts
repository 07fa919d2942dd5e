/**
 * Measures a backend on the CPU with one number of threads (Node only).
 *
 * @module
 */
import { allCases, type Libraries } from './cases.js';
import { openLibrary } from './library.js';
import { type Effort, FULL_EFFORT, measureTogether, QUICK_EFFORT } from './measure.js';
import { Roofs } from './roofs.node.js';
import { type Beside, chooseCases, runCases, type SessionOptions, type SessionResult } from './session.js';

/** A pause before each sample: threads of some peers spin after a run and would take cores from the next contender. */
const PAUSE_MS = 20;

/** The results with one number of threads. */
export type CpuSession = SessionResult & { readonly peakGflops: number };

/**
 * Runs the cases.
 *
 * @param backend - cpu or reference
 * @param threads - the threads that compute. Default: as many as the backend takes
 * @param options - chooses the cases
 * @param progress - called with the label of each case before it runs
 * @param beside - the peers that take turns with us
 */
export async function runCpuSession(
  backend: string,
  threads: number | undefined,
  options: SessionOptions,
  progress: (label: string) => void,
  { rivals, peerNotes = [] }: Beside = {},
): Promise<CpuSession> {
  const rw = await openLibrary(backend, threads);
  const libraries: Libraries = { rw, oracle: await openLibrary('reference', 1) };
  const capabilities = rw.capabilities();
  const count = threads ?? capabilities.threads;
  const effort = options.quick ? QUICK_EFFORT : { ...FULL_EFFORT, pauseMs: rivals && count > 1 ? PAUSE_MS : 0 };
  const roofs = await Roofs.open(count);
  const copy = (bytes: number) => roofs.copy(bytes);
  const setting = { threads: count, libraries, effort, copy, ...(rivals && { rivals }) };
  try {
    const results = await runCases(setting, chooseCases(allCases(options.quick), options), progress);
    return { threads: count, capabilities, peakGflops: await measuredPeak(roofs, effort), peerNotes, ...results };
  } finally {
    await roofs.dispose();
    rw.dispose();
  }
}

async function measuredPeak(roofs: Roofs, effort: Effort): Promise<number> {
  const contender = roofs.multiplyAdd();
  const timing = (await measureTogether([contender], effort)).get(contender.name)!;
  return contender.operations / timing.minNs;
}
