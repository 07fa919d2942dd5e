/**
 * The report of a benchmark: the machine in words, the table on the console, and the content of the JSON file.
 *
 * @module
 */
import { cpus } from 'node:os';
import type { CaseResult, PeerResult, SessionResult } from './session.js';

/** The machine, which every number of a report depends on. */
export interface Machine {
  readonly cpu: string;
  readonly cores: number;
  readonly node: string;
  readonly platform: string;
  /** The version of the package. */
  readonly version: string;
  /** The short commit of a checkout, with "+ changes" when files differ from it. */
  readonly commit?: string;
  readonly date: string;
}

/** The content of a results file. */
export interface Report {
  readonly machine: Machine;
  readonly quick: boolean;
  readonly sessions: readonly SessionResult[];
}

/** Describes this machine. */
export function describeMachine(version: string): Machine {
  const cores = cpus();
  return {
    cpu: cores[0]?.model.trim() ?? 'unknown',
    cores: cores.length,
    node: process.version,
    platform: `${process.platform} ${process.arch}`,
    version,
    date: new Date().toISOString(),
  };
}

/**
 * Chooses the way of a peer that the report quotes: the fastest of those that agree with us.
 *
 * @param result - a case
 * @param peer - the peer's name
 */
export function quotedPeer(
  result: CaseResult,
  peer: string,
): (PeerResult & { readonly timing: NonNullable<PeerResult['timing']> }) | undefined {
  const ways = result.peers.flatMap((way) =>
    way.peer === peer && way.agrees && way.timing ? [{ ...way, timing: way.timing }] : [],
  );
  return ways.sort((a, b) => a.timing.medianNs - b.timing.medianNs)[0];
}

/** The backend that was measured, in words. */
export function buildOf({ commit, version }: Machine): string {
  return commit === undefined ? `ropewalk ${version}` : `commit ${commit}`;
}

/** Returns the exit code of a command: 1 when a result was wrong. A slow result is not wrong. */
export function exitCodeOf({ sessions }: Report): number {
  return sessions.some(({ leftOut }) => leftOut.some(({ wrong }) => wrong)) ? 1 : 0;
}

/** The rate in GB/s. */
export function gigabytesPerSecond(result: CaseResult): number {
  return result.bytes / result.ours.medianNs;
}

/** The rate in GFLOP/s. */
export function gigaflopsPerSecond(result: CaseResult): number {
  return result.flops / result.ours.medianNs;
}

/**
 * Writes the whole report as text.
 *
 * @param report - the sessions of all numbers of threads
 */
export function printReport(report: Report): string {
  const { machine } = report;
  const lines = [
    `${machine.cpu}, ${machine.cores} cores, ${machine.platform}, Node ${machine.node}, ${buildOf(machine)}, ${machine.date}`,
    ...new Set(report.sessions.flatMap(({ peerNotes }) => peerNotes)),
  ];
  if (report.quick) lines.push('--quick: one call of small shapes each. These times say nothing about speed.');
  for (const session of report.sessions) {
    lines.push(
      '',
      `${session.gpu?.where ?? `threads ${session.threads}`}: ${session.capabilities.backend}, ${session.capabilities.description}`,
      ...session.capabilities.notTaken.map((reason) => `  not taken: ${reason}`),
      ...(session.peakGflops === undefined
        ? []
        : [`  multiply-add peak of 128-bit WebAssembly: ${significant(session.peakGflops)} GFLOP/s`]),
      ...gpuLines(session),
      '',
      ...table(session.results),
      ...footnotes(session.results),
      ...session.leftOut.map(({ label, reason, wrong }) => `${wrong ? 'FAILED' : 'left out'} ${label}: ${reason}`),
    );
    lines.push(...growth(session.results));
  }
  return lines.join('\n');
}

function gpuLines({ gpu }: SessionResult): string[] {
  if (!gpu) return [];
  const clock = `  clock: ${gpu.clock}; wall and ratios to peers by the wall clock`;
  return gpu.software
    ? ['  A SOFTWARE ADAPTER: the CPU plays the GPU, on small shapes. These times mean nothing.', clock]
    : [clock];
}

function table(results: readonly CaseResult[]): string[] {
  const peers = [...new Set(results.flatMap((result) => result.peers.map(({ peer }) => peer)))];
  const gpu = results[0]?.threads === 0;
  const own = gpu ? ['wall ns', 'host ns'] : ['plain'];
  const headings = ['case', 'ns a call', 'spread', 'rate', '', 'ns/element', 'of copy', ...own, ...peers, 'error'];
  const cells = results.map((result) => {
    const { ours, copy, plain } = result;
    const perElement = ours.medianNs / result.elements;
    const rate = { 'GB/s': gigabytesPerSecond(result), 'GFLOP/s': gigaflopsPerSecond(result), 'ns/entry': perElement }[
      result.rate
    ];
    return [
      result.label,
      grouped(ours.medianNs),
      `±${Math.round((50 * (ours.q3Ns - ours.q1Ns)) / ours.medianNs)}%`,
      significant(rate),
      result.rate,
      significant(perElement),
      // A table is computed, so that a copy says nothing.
      result.rate === 'ns/entry' ? '' : significant(copy.medianNs / ours.medianNs),
      ...(gpu ? [grouped(ours.wallNs!), grouped(ours.hostNs!)] : [plain ? times(plain.medianNs, ours.medianNs) : '']),
      ...peers.map((peer) => {
        const way = quotedPeer(result, peer);
        if (!way) return result.peers.some((other) => other.peer === peer) ? '–' : '';
        const coarser = result.peers.some(
          (other) =>
            other.peer === peer && other.timing && other.timing.medianNs < way.timing.medianNs && !other.agrees,
        );
        return `${times(way.timing.medianNs, ours.wallNs ?? ours.medianNs)}${coarser ? '*' : ''}`;
      }),
      result.agreement.error.toExponential(0),
    ];
  });
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...cells.map((row) => row[column]!.length)),
  );
  const left = new Set([0, 4]);
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (left.has(column) ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join('  ')
      .trimEnd();
  return results.length === 0 ? ['no case'] : [line(headings), ...cells.map(line)];
}

/** Lists the ways of a peer that do not run or do not agree, and their cases. */
function footnotes(results: readonly CaseResult[]): string[] {
  const labelsOf = new Map<string, string[]>();
  for (const result of results) {
    for (const way of result.peers) {
      const reason = way.leftOut ?? (way.agrees ? undefined : disagreement(way, result));
      if (reason === undefined) continue;
      const note = `${way.peer} ${way.graph}: ${reason}`;
      labelsOf.set(note, [...(labelsOf.get(note) ?? []), result.label]);
    }
  }
  return labelsOf.size === 0
    ? []
    : ['', ...[...labelsOf].map(([note, labels]) => `  ${labels.join('; ')}\n    ${note}`)];
}

function disagreement(way: PeerResult, result: CaseResult): string {
  const ratio = way.timing ? `; ${times(way.timing.medianNs, result.ours.wallNs ?? result.ours.medianNs)}` : '';
  return `not quoted, differs by ${way.error?.toExponential(0)}${ratio}`;
}

/** Describes for each scaling series how the time of an element grows. */
function growth(results: readonly CaseResult[]): string[] {
  const scaling = results.filter(({ group }) => group === 'scaling');
  if (scaling.length === 0) return [];
  const lines = [
    '',
    'Growth of rope: nanoseconds an element, and of the copy of as many bytes (which leaves the caches at the same sizes)',
  ];
  const longest = Math.max(...scaling.map(({ label }) => label.length));
  for (const { label, ours, copy, elements } of scaling) {
    lines.push(
      `  ${label.padEnd(longest)}  ${significant(ours.medianNs / elements).padStart(6)}  ${significant(copy.medianNs / elements).padStart(6)}`,
    );
  }
  return lines;
}

function times(theirs: number, ours: number): string {
  return `${significant(theirs / ours)}×`;
}

function grouped(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** Formats a number with three significant digits and without an exponent. */
function significant(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return value >= 1000 ? grouped(value) : value.toPrecision(3).includes('e') ? value.toFixed(4) : value.toPrecision(3);
}
