/**
 * Measures a backend on the CPU with one number of threads. For Node.
 *
 * @module
 */
import { allCases, type Libraries } from './cases.js';
import { openLibrary } from './library.js';
import { type Effort, FULL_EFFORT, measureTogether, QUICK_EFFORT } from './measure.js';
import { openPeers } from './peers/open.js';
import { Roofs } from './roofs.js';
import { runCases, type SessionOptions, type SessionResult } from './session.js';

/** ONNX Runtime's threads spin for a while after a run; no contender shall share the cores with another's. */
const PAUSE_MS = 20;

/**
 * Runs the cases.
 *
 * @param threads - that may compute, for us and for the peers
 * @param options - which cases and peers
 * @param progress - called with the label of each case before it runs
 */
export async function runCpuSession(
  threads: number,
  options: SessionOptions,
  progress: (label: string) => void,
): Promise<SessionResult> {
  const effort = options.quick ? QUICK_EFFORT : { ...FULL_EFFORT, pauseMs: threads > 1 ? PAUSE_MS : 0 };
  const libraries: Libraries = {
    rw: await openLibrary(options.backend, threads),
    oracle: await openLibrary('reference', 1),
  };
  const roofs = await Roofs.open(threads);
  const { peers, notes: peerNotes } = await openPeers(options.peers, threads);
  const only = new RegExp(options.only ?? '');
  const cases = allCases(options.quick).filter(({ label }) => only.test(label));
  const setting = { threads, libraries, effort, peers, copy: (bytes: number) => roofs.copy(bytes) };
  const results = await runCases(setting, cases, progress);
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
