/**
 * Runs the cases with one number of threads: check, then time, with the copy and the peers taking turns.
 *
 * @module
 */

import { allCases, type BenchCase, type Libraries, type PreparedCase, type Rate } from './cases.js';
import { type Agreement, errorLimit, sampleNumbers, worstError } from './data.js';
import { openLibrary } from './library.js';
import { type Contender, type Effort, FULL_EFFORT, measureTogether, QUICK_EFFORT, type Timing } from './measure.js';
import { openPeer } from './peers/open.js';
import { firstLine, type Peer, type PeerName, type PeerSession } from './peers/peer.js';
import { Roofs } from './roofs.js';
import type { Capabilities, FloatDtype } from './ropewalk.js';

/** What the command line asks for. */
export interface SessionOptions {
  readonly backend: string;
  readonly quick: boolean;
  /** Only cases whose label matches this regular expression. */
  readonly only?: string;
  readonly peers: readonly PeerName[];
}

/** A peer's way to compute a case, and how it did. */
export interface PeerResult {
  readonly peer: PeerName;
  /** The operators as ONNX names them. */
  readonly graph: string;
  /** Largest difference from our output over its root mean square. */
  readonly error?: number;
  /** Whether that is within the limit for us; one that is not is listed, never quoted. */
  readonly agrees?: boolean;
  readonly timing?: Timing;
  /** Why it was not run. */
  readonly leftOut?: string;
}

/** One case with one number of threads. */
export interface CaseResult {
  readonly label: string;
  readonly point?: string;
  readonly group: 'operators' | 'scaling';
  readonly rate: Rate;
  readonly threads: number;
  readonly bytes: number;
  readonly flops: number;
  readonly elements: number;
  readonly agreement: Agreement;
  readonly ours: Timing;
  /** A copy that moves as many bytes. */
  readonly copy: Timing;
  /** The plain TypeScript loop, where there is one. */
  readonly plain?: Timing;
  readonly peers: readonly PeerResult[];
}

/** Everything one number of threads gave. */
export interface SessionResult {
  readonly threads: number;
  readonly capabilities: Capabilities;
  /** Multiplications and additions a second, in GFLOP/s. */
  readonly peakGflops: number;
  /** Versions of the peers, and reasons why some are left out. */
  readonly peerNotes: readonly string[];
  readonly results: readonly CaseResult[];
  /** Cases that could not be run, and why. */
  readonly leftOut: readonly { readonly label: string; readonly reason: string; readonly wrong: boolean }[];
  /** The sum of the sinks; means nothing. */
  readonly sink: number;
}

/** A way of a peer this many times slower than its best is not timed: it would only take time. */
const HOPELESS = 4;
/** ONNX Runtime's threads spin for a while after a run; no contender shall share the cores with another's. */
const PAUSE_MS = 20;

/**
 * Runs the cases.
 *
 * @param threads - that may compute, for us and for the peers
 * @param options - which cases and peers
 * @param progress - told the label of each case before it runs
 */
export async function runSession(threads: number, options: SessionOptions, progress: (label: string) => void): Promise<SessionResult> {
  const effort = options.quick ? QUICK_EFFORT : { ...FULL_EFFORT, pauseMs: threads > 1 ? PAUSE_MS : 0 };
  const libraries: Libraries = { rw: await openLibrary(options.backend, threads), oracle: await openLibrary('reference', 1) };
  const roofs = await Roofs.open(threads);
  const opened = await Promise.all(options.peers.map(async (name) => ({ name, peer: await openPeer(name, threads) })));
  const peers = opened.flatMap(({ peer }) => (typeof peer === 'string' ? [] : [peer]));
  const only = new RegExp(options.only ?? '');
  const results: CaseResult[] = [];
  const leftOut: { label: string; reason: string; wrong: boolean }[] = [];
  let sink = 0;
  for (const entry of allCases(options.quick).filter(({ label }) => only.test(label))) {
    progress(entry.label);
    let prepared: PreparedCase;
    try {
      prepared = entry.prepare(libraries);
    } catch (reason) {
      leftOut.push({ label: entry.label, reason: firstLine(reason), wrong: false });
      continue;
    }
    try {
      results.push(await runCase(entry, prepared, threads, effort, roofs, peers));
    } catch (reason) {
      leftOut.push({ label: entry.label, reason: firstLine(reason), wrong: true });
    } finally {
      sink += prepared.ours.sink?.() ?? 0;
      prepared.dispose();
    }
  }
  const peak = await measuredPeak(roofs, effort);
  const capabilities = libraries.rw.capabilities();
  await roofs.dispose();
  libraries.rw.dispose();
  const peerNotes = opened.map(({ name, peer }) => (typeof peer === 'string' ? `${name} left out: ${peer}` : `${name}: ${peer.version}`));
  return { threads, capabilities, peakGflops: peak, peerNotes, results, leftOut, sink };
}

async function measuredPeak(roofs: Roofs, effort: Effort): Promise<number> {
  const contender = roofs.multiplyAdd();
  const timing = (await measureTogether([contender], effort)).get(contender.name)!;
  return contender.operations / timing.minNs;
}

/** A peer's way while it waits for its turns. */
interface Asked extends PeerResult {
  readonly contender?: Contender;
  /** One call, to see whether it can win. */
  readonly trialMs?: number;
}

async function runCase(
  entry: BenchCase,
  prepared: PreparedCase,
  threads: number,
  effort: Effort,
  roofs: Roofs,
  peers: readonly Peer[],
): Promise<CaseResult> {
  const agreement = prepared.check();
  const sessions: PeerSession[] = [];
  let asked: Asked[] = [];
  const graphs = peers.length > 0 ? (prepared.graphs?.() ?? []) : [];
  try {
    for (const peer of peers) {
      for (const graph of graphs.filter((way) => peer.takes(way))) {
        const known = { peer: peer.name, graph: graph.name };
        try {
          const session = await peer.open(graph);
          sessions.push(session);
          await session.run();
          const first = performance.now();
          await session.run();
          const trialMs = performance.now() - first;
          const error = differenceFromOurs(session, prepared, entry.dtype);
          const sink = session.sink && { sink: () => session.sink!() };
          const contender = { name: `${peer.name} ${graph.name}`, call: () => session.run(), ...sink };
          asked.push({ ...known, error, agrees: error <= errorLimit(entry.dtype), contender, trialMs });
        } catch (reason) {
          asked.push({ ...known, leftOut: firstLine(reason) });
        }
      }
    }
    asked = withoutHopeless(asked);
    // Plain TypeScript has one thread, so it stands beside ours with one.
    const plain = threads === 1 ? prepared.plain : undefined;
    const copy = roofs.copy(prepared.bytes);
    const contenders = [prepared.ours, copy, ...(plain ? [plain] : []), ...asked.flatMap(({ contender }) => contender ?? [])];
    const timings = await measureTogether(contenders, effort);
    const { label, point, group, rate } = entry;
    const { bytes, flops, elements } = prepared;
    return {
      ...{ label, ...(point && { point }), group, rate, threads, bytes, flops, elements, agreement },
      ours: timings.get(prepared.ours.name)!,
      copy: timings.get(copy.name)!,
      ...(plain && { plain: timings.get(plain.name)! }),
      peers: asked.map(({ contender, trialMs: _, ...result }) => ({
        ...result,
        ...(contender && { timing: timings.get(contender.name)! }),
      })),
    };
  } finally {
    for (const session of sessions) await session.close();
  }
}

/** Leaves out ways that another way of the same peer, which agrees, beats by far. */
function withoutHopeless(asked: readonly Asked[]): Asked[] {
  return asked.map((way) => {
    const rivals = asked.filter(({ peer, agrees, trialMs }) => peer === way.peer && agrees && trialMs !== undefined);
    const best = rivals.reduce((least, rival) => (rival.trialMs! < least.trialMs! ? rival : least), rivals[0] ?? way);
    if (way.trialMs === undefined || way.trialMs <= HOPELESS * best.trialMs! || way.trialMs < 5) return way;
    const { contender: _, ...rest } = way;
    return { ...rest, leftOut: `not timed: one run took ${(way.trialMs / best.trialMs!).toFixed(0)} times that of ${best.graph}` };
  });
}

function differenceFromOurs(session: PeerSession, prepared: PreparedCase, dtype: FloatDtype): number {
  const ours = prepared.output?.read();
  if (!ours || ours instanceof Promise) throw new Error('expected an output of ours in host memory');
  return worstError(sampleNumbers(session.output(), dtype), sampleNumbers(ours, dtype)).error;
}
