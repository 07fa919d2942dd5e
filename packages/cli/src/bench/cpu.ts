/**
 * Measures a backend on the CPU with one number of threads. For Node.
 *
 * @module
 */
import { allCases, type Libraries } from './cases.js';
import { openLibrary } from './library.js';
import { type Effort, FULL_EFFORT, measureTogether, QUICK_EFFORT } from './measure.js';
import { Roofs } from './roofs.js';
import { type Beside, chooseCases, runCases, type SessionOptions, type SessionResult } from './session.js';

/** Some peers' threads spin for a while after a run; no contender shall share the cores with another's. */
const PAUSE_MS = 20;

/**
 * Runs the cases.
 *
 * @param backend - cpu, or reference
 * @param threads - that may compute
 * @param options - which cases
 * @param progress - called with the label of each case before it runs
 * @param beside - who takes turns
 */
export async function runCpuSession(
  backend: string,
  threads: number,
  options: SessionOptions,
  progress: (label: string) => void,
  { rivals, peerNotes = [] }: Beside = {},
): Promise<SessionResult> {
  const effort = options.quick ? QUICK_EFFORT : { ...FULL_EFFORT, pauseMs: rivals && threads > 1 ? PAUSE_MS : 0 };
  const libraries: Libraries = {
    rw: await openLibrary(backend, threads),
    oracle: await openLibrary('reference', 1),
  };
  const roofs = await Roofs.open(threads);
  const copy = (bytes: number) => roofs.copy(bytes);
  const setting = { threads, libraries, effort, copy, ...(rivals && { rivals }) };
  const results = await runCases(setting, chooseCases(allCases(options.quick), options), progress);
  const peakGflops = await measuredPeak(roofs, effort);
  const capabilities = libraries.rw.capabilities();
  await roofs.dispose();
  libraries.rw.dispose();
  return { threads, capabilities, peakGflops, peerNotes, ...results };
}

async function measuredPeak(roofs: Roofs, effort: Effort): Promise<number> {
  const contender = roofs.multiplyAdd();
  const timing = (await measureTogether([contender], effort)).get(contender.name)!;
  return contender.operations / timing.minNs;
}
