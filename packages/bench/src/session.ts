/**
 * Runs cases: check, then time, with the copy and others taking turns. Knows neither Node nor a browser, and runs in
 * both.
 *
 * @module
 */

import type { Capabilities } from 'ropewalk';
import type { BenchCase, Libraries, PreparedCase, Rate } from './cases.js';
import type { Agreement } from './data.js';
import { type Contender, type Effort, measureTogether, type Timing } from './measure.js';

/** What is run. */
export interface SessionOptions {
  /** One call of each case, on small shapes. */
  readonly quick: boolean;
  /** Only cases whose label matches this regular expression. */
  readonly only?: string;
}

/** The cases that a command line asks for. */
export function chooseCases(
  all: readonly BenchCase[],
  { only = '' }: Pick<SessionOptions, 'only'>,
): readonly BenchCase[] {
  const pattern = new RegExp(only);
  return all.filter(({ label }) => pattern.test(label));
}

/** A peer's way to compute a case, and how it did. */
export interface PeerResult {
  readonly peer: string;
  /** How it computes: the operators as ONNX names them. */
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

/** Someone else who computes a case; without a contender it is only listed. */
export interface Rival {
  readonly result: PeerResult;
  readonly contender?: Contender;
}

/** Who takes turns with ours in one case. */
export interface Rivals {
  readonly rivals: readonly Rival[];
  close(): Promise<void> | void;
}

/** Who takes turns in a session, and what there is to say about them. */
export interface Beside {
  readonly rivals?: NonNullable<Setting['rivals']>;
  readonly peerNotes?: readonly string[];
}

/** Where cases run, beside whom, and for how long. */
export interface Setting {
  readonly threads: number;
  readonly libraries: Libraries;
  readonly effort: Effort;
  /** Who else takes turns in a case, which is right by then. */
  rivals?(entry: BenchCase, prepared: PreparedCase): Promise<Rivals>;
  /** Ours as it is timed: itself unless given. */
  timed?(ours: Contender): Contender;
  /** The copy that moves as many bytes. */
  copy(bytes: number): Contender | Promise<Contender>;
}

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

async function runCase(entry: BenchCase, prepared: PreparedCase, setting: Setting): Promise<CaseResult> {
  const { threads, effort } = setting;
  const agreement = await prepared.check();
  const { rivals, close } = (await setting.rivals?.(entry, prepared)) ?? { rivals: [], close() {} };
  try {
    // Plain TypeScript has one thread, so it is compared with ours on one.
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

/** The first line of an error: some libraries go on with a stack of their own. */
export function firstLine(reason: unknown): string {
  return String(reason instanceof Error ? reason.message : reason).split('\n')[0]!;
}
