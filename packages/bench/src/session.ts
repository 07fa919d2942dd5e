/**
 * Runs cases, in Node and in browsers: checks each result, then times it in turns with the copy and with peers.
 *
 * @module
 */

import type { Capabilities } from 'ropewalk';
import type { BenchCase, Libraries, PreparedCase, Rate } from './cases.js';
import type { Agreement } from './data.js';
import { type Contender, type Effort, measureTogether, type Timing } from './measure.js';

/** The choice of cases. */
export interface SessionOptions {
  /** Makes one call of each case, on small shapes. */
  readonly quick: boolean;
  /** Runs only cases whose label matches this regular expression. */
  readonly only?: string;
  /** Runs these cases instead of the table's. */
  readonly cases?: readonly BenchCase[];
}

/** Chooses the cases that a command line asks for. */
export function chooseCases(
  all: readonly BenchCase[],
  { only = '', cases }: Pick<SessionOptions, 'only' | 'cases'>,
): readonly BenchCase[] {
  if (cases) return cases;
  const pattern = new RegExp(only);
  return all.filter(({ label }) => pattern.test(label));
}

/** One of a peer's ways to compute a case, and its result. */
export interface PeerResult {
  readonly peer: string;
  /** The operators of this way, by their names in ONNX. */
  readonly graph: string;
  /** The largest difference from our output, divided by its root mean square. */
  readonly error?: number;
  /** Whether that is within the limit of our own result. If not, the report lists it and quotes no time. */
  readonly agrees?: boolean;
  readonly timing?: Timing;
  /** The reason why it was not run. */
  readonly leftOut?: string;
}

/** The result of one case with one number of threads. */
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

/** The circumstances of a measurement on a GPU. */
export interface GpuPlace {
  /** The name and version of Node or the browser. */
  readonly where: string;
  /** Whether the adapter is a program on the CPU, whose times say nothing about a GPU. */
  readonly software: boolean;
  /** The clock that measured the times. */
  readonly clock: string;
}

/** The results of several cases. */
export interface CaseResults {
  readonly results: readonly CaseResult[];
  /** The cases that could not be run, and the reasons. */
  readonly leftOut: readonly { readonly label: string; readonly reason: string; readonly wrong: boolean }[];
  /** The sum of the sinks, which has no meaning: printing it keeps compilers from dropping work. */
  readonly sink: number;
}

/** All results of one number of threads, or of the GPU. */
export interface SessionResult extends CaseResults {
  /** 0 when a GPU computes. */
  readonly threads: number;
  readonly capabilities: Capabilities;
  /** The peak of multiplications and additions on the CPU, in GFLOP/s. */
  readonly peakGflops?: number;
  readonly gpu?: GpuPlace;
  /** The versions of the peers, and the reasons why some are left out. */
  readonly peerNotes: readonly string[];
}

/** A peer in one case. Without a contender it is only listed. */
export interface Rival {
  readonly result: PeerResult;
  readonly contender?: Contender;
}

/** The peers that take turns with us in one case. */
export interface Rivals {
  readonly rivals: readonly Rival[];
  close(): Promise<void> | void;
}

/** The peers of a session, and notes about them. */
export interface Beside {
  readonly rivals?: NonNullable<Setting['rivals']>;
  readonly peerNotes?: readonly string[];
}

/** The libraries, peers and effort of a run. */
export interface Setting {
  readonly threads: number;
  readonly libraries: Libraries;
  readonly effort: Effort;
  /** Opens the peers that take turns in a case. It is called after our own result has been checked. */
  rivals?(entry: BenchCase, prepared: PreparedCase): Promise<Rivals>;
  /** Wraps our contender for the timing. Default: it is timed as it is. */
  timed?(ours: Contender): Contender;
  /** Makes a copy that moves as many bytes. */
  copy(bytes: number): Contender | Promise<Contender>;
}

/**
 * Runs cases.
 *
 * @param setting - open libraries and peers; they stay open
 * @param cases - run in this order
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
      await rw.finish(); // a device that lacks memory throws here
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

async function runCase(entry: BenchCase, prepared: PreparedCase, setting: Setting): Promise<CaseResult> {
  const { threads, effort } = setting;
  const agreement = await prepared.check();
  const { rivals, close } = (await setting.rivals?.(entry, prepared)) ?? { rivals: [], close() {} };
  try {
    // Plain TypeScript has one thread, so that it is compared with one thread of ours only.
    const plain = threads === 1 ? prepared.plain : undefined;
    const copy = await setting.copy(prepared.bytes);
    const ours = setting.timed?.(prepared.ours) ?? prepared.ours;
    const contenders = [ours, copy, ...(plain ? [plain] : []), ...rivals.flatMap(({ contender }) => contender ?? [])];
    const timings = await measureTogether(contenders, effort);
    const { label, point, group, rate } = entry;
    const { bytes, flops, elements } = prepared;
    return {
      ...{ label, ...(point && { point }), group, rate, threads, bytes, flops, elements, agreement },
      ours: timings.get(ours.name)!,
      copy: timings.get(copy.name)!,
      ...(plain && { plain: timings.get(plain.name)! }),
      peers: rivals.map(({ contender, result }) => ({
        ...result,
        ...(contender && { timing: timings.get(contender.name)! }),
      })),
    };
  } finally {
    await close();
  }
}

/** Returns the first line of an error: some libraries put a stack into their messages. */
export function firstLine(reason: unknown): string {
  return String(reason instanceof Error ? reason.message : reason).split('\n')[0]!;
}
