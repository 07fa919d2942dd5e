/**
 * Runs cases: check, then time, with the copy and the peers taking turns. Knows neither Node nor a browser, and runs in
 * both.
 *
 * @module
 */

import type { BenchCase, Libraries, PreparedCase, Rate } from './cases.js';
import { type Agreement, errorLimit, sampleNumbers, worstError } from './data.js';
import { type Contender, type Effort, measureTogether, type Timing } from './measure.js';
import { firstLine, type Peer, type PeerName, type PeerSession } from './peers/peer.js';
import type { Capabilities, FloatDtype, Ropewalk } from './ropewalk.js';

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

/** What is worth knowing of the place where a GPU was measured. */
export interface GpuPlace {
  /** Node or browser, with its version. */
  readonly where: string;
  /** Whether the adapter is a program on the CPU, whose times say nothing about a GPU. */
  readonly software: boolean;
  /** Which clock took the times. */
  readonly clock: string;
}

/** What the cases gave. */
export interface CaseResults {
  readonly results: readonly CaseResult[];
  /** Cases that could not be run, and why. */
  readonly leftOut: readonly { readonly label: string; readonly reason: string; readonly wrong: boolean }[];
  /** The sum of the sinks; means nothing. */
  readonly sink: number;
}

/** Everything one number of threads, or the GPU, gave. */
export interface SessionResult extends CaseResults {
  /** 0 where a GPU computes. */
  readonly threads: number;
  readonly capabilities: Capabilities;
  /** Multiplications and additions a second, in GFLOP/s; of the CPU. */
  readonly peakGflops?: number;
  readonly gpu?: GpuPlace;
  /** Versions of the peers, and reasons why some are left out. */
  readonly peerNotes: readonly string[];
}

/** Where cases run, beside whom, and for how long. */
export interface Setting {
  readonly threads: number;
  readonly libraries: Libraries;
  readonly effort: Effort;
  readonly peers: readonly Peer[];
  /** Our own cpu, which takes its turns with a backend in the same page. */
  readonly beside?: Ropewalk | undefined;
  /** Ours as it is timed: itself unless given. */
  timed?(ours: Contender): Contender;
  /** The copy that moves as many bytes. */
  copy(bytes: number): Contender | Promise<Contender>;
}

/** A way of a peer this many times slower than its best is not timed: it would only take time. */
const HOPELESS = 4;

/**
 * Runs cases.
 *
 * @param setting - open libraries and peers; they stay open
 * @param cases - in this order
 * @param progress - called with the label of each case before it runs
 */
export async function runCases(
  setting: Setting,
  cases: readonly BenchCase[],
  progress: (label: string) => void,
): Promise<CaseResults> {
  const { rw } = setting.libraries;
  const results: CaseResult[] = [];
  const leftOut: { label: string; reason: string; wrong: boolean }[] = [];
  let sink = 0;
  for (const entry of cases) {
    progress(entry.label);
    let prepared: PreparedCase | undefined;
    try {
      prepared = entry.prepare(setting.libraries);
      await rw.finish(); // a device without room says so now
    } catch (reason) {
      prepared?.dispose();
      leftOut.push({ label: entry.label, reason: firstLine(reason), wrong: false });
      continue;
    }
    try {
      results.push(await runCase(entry, prepared, setting));
    } catch (reason) {
      leftOut.push({ label: entry.label, reason: firstLine(reason), wrong: true });
    } finally {
      sink += prepared.ours.sink?.() ?? 0;
      prepared.dispose();
    }
  }
  return { results, leftOut, sink };
}

/** A peer's way while it waits for its turns. */
interface Asked extends PeerResult {
  readonly contender?: Contender;
  /** One call, to see whether it can win. */
  readonly trialMs?: number;
}

async function runCase(entry: BenchCase, prepared: PreparedCase, setting: Setting): Promise<CaseResult> {
  const { threads, effort, peers, beside } = setting;
  const agreement = await prepared.check();
  const sessions: PeerSession[] = [];
  let asked: Asked[] = [];
  const cpu = beside && entry.prepare({ ...setting.libraries, rw: beside });
  const graphs = peers.length > 0 ? (prepared.graphs?.() ?? []) : [];
  try {
    for (const peer of peers) {
      for (const graph of graphs.filter((way) => peer.takes(way))) {
        const known = { peer: peer.name, graph: graph.name };
        try {
          const session = await peer.open(graph);
          sessions.push(session);
          const run = async (times: number): Promise<undefined> => {
            for (let n = 0; n < times; n++) await session.run();
            await session.finish?.();
          };
          await run(1);
          const first = performance.now();
          await run(1);
          const trialMs = performance.now() - first;
          const error = await differenceFromOurs(session, prepared, entry.dtype);
          const sink = session.sink && { sink: () => session.sink!() };
          const queue = session.finish && { queue: run };
          const contender = { name: `${peer.name} ${graph.name}`, call: () => session.run(), ...queue, ...sink };
          asked.push({ ...known, error, agrees: error <= errorLimit(entry.dtype), contender, trialMs });
        } catch (reason) {
          asked.push({ ...known, leftOut: firstLine(reason) });
        }
      }
    }
    if (cpu) {
      const { error } = await cpu.check();
      asked.push({ peer: 'cpu', graph: 'kernels', error, agrees: true, contender: { ...cpu.ours, name: 'cpu' } });
    }
    asked = withoutHopeless(asked);
    // Plain TypeScript has one thread, so it is compared with ours on one.
    const plain = threads === 1 ? prepared.plain : undefined;
    const copy = await setting.copy(prepared.bytes);
    const ours = setting.timed?.(prepared.ours) ?? prepared.ours;
    const contenders = [ours, copy, ...(plain ? [plain] : []), ...asked.flatMap(({ contender }) => contender ?? [])];
    const timings = await measureTogether(contenders, effort);
    const { label, point, group, rate } = entry;
    const { bytes, flops, elements } = prepared;
    return {
      ...{ label, ...(point && { point }), group, rate, threads, bytes, flops, elements, agreement },
      ours: timings.get(ours.name)!,
      copy: timings.get(copy.name)!,
      ...(plain && { plain: timings.get(plain.name)! }),
      peers: asked.map(({ contender, trialMs: _, ...result }) => ({
        ...result,
        ...(contender && { timing: timings.get(contender.name)! }),
      })),
    };
  } finally {
    cpu?.dispose();
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
    return {
      ...rest,
      leftOut: `not timed: one run took ${(way.trialMs / best.trialMs!).toFixed(0)} times that of ${best.graph}`,
    };
  });
}

async function differenceFromOurs(session: PeerSession, prepared: PreparedCase, dtype: FloatDtype): Promise<number> {
  const ours = await prepared.output?.read();
  if (!ours) throw new Error('expected a case whose output is compared');
  return worstError(sampleNumbers(await session.output(), dtype), sampleNumbers(ours, dtype)).error;
}
