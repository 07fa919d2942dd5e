/**
 * Results of verify as text for people, JSON lines for programs, and JUnit XML and annotations for CI.
 *
 * Names come from manifests and files that anybody may have written, so that each form escapes them.
 *
 * @module
 */
import {
  checkInteger,
  escapeMarkup,
  type OptionNames,
  reading,
  readList,
  readName,
  readOptions,
} from 'ropewalk/internal';
import type { TensorReport, VerifyResult, WrongElement } from './judge.js';
import type { KernelPerf } from './perf.js';

/** The head of a report. */
export interface ReportTitle {
  /** The folder of vectors, as the user named it. */
  readonly vectors: string;
  /** The folder of outputs, or the program. */
  readonly from: string;
  /** The program that compared: `ropewalk 0.1.0`. */
  readonly by: string;
  /** The options that are not the default: `angles in float64`, `bounds times 2`. */
  readonly allowed: readonly string[];
}

const NAMES: OptionNames<ReportTitle> = { vectors: true, from: true, by: true, allowed: true };

/** The number of cases of each status. */
export interface VerifyCounts {
  readonly ok: number;
  readonly fail: number;
  readonly error: number;
  readonly skipped: number;
}

/** Counts the results of each status. */
export function countVerified(results: readonly VerifyResult[]): VerifyCounts {
  const counts = { ok: 0, fail: 0, error: 0, skipped: 0 };
  for (const result of Array.from(readList(results, 'results'))) {
    const status = reading('results', () => result.status);
    if (Object.hasOwn(counts, status)) counts[status]++;
  }
  return counts;
}

/** Formats the last line: `23/24 cases passed, 1 failed`. */
export function verifySummary(counts: VerifyCounts): string {
  return reading('counts', () => {
    const { ok, fail, error, skipped } = counts;
    const rest = skipped > 0 ? `, ${skipped} skipped` : '';
    const why = error > 0 ? ` (${error} with nothing to compare)` : '';
    return `${ok}/${ok + fail + error} cases passed, ${fail + error} failed${why}${rest}`;
  });
}

/** Formats a number for a table, with two significant digits. */
function shortNumber(x: number): string {
  if (Number.isInteger(x) && Math.abs(x) < 1e5) return String(x);
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'NaN' : x > 0 ? 'inf' : '-inf';
  return x.toExponential(1);
}

/** Formats a share of a bound: `0.14`, `1.2e-5`, `3.1e+5`. */
function ratioText(x: number): string {
  return x >= 0.001 && x < 1000 ? String(Number(x.toPrecision(2))) : shortNumber(x);
}

/** Formats an element with as many digits as tell two floats apart. */
function elementValue(x: number): string {
  if (Object.is(x, -0)) return '-0';
  return Number.isFinite(x) ? String(Number(x.toPrecision(9))) : shortNumber(x);
}

/** Writes control characters as \xNN, so that a name cannot move a terminal's cursor. */
function plain(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]/gu, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** Formats the measurements of a case that passes, each of the tensor where it is worst. */
function measures(result: VerifyResult): string {
  if (result.tensors.length === 0) return '';
  const max = (key: 'maxAbs' | 'maxUlp' | 'maxRatio' | 'nmse'): number =>
    Math.max(...result.tensors.map((t) => t[key]));
  if (max('maxRatio') === 0) return 'exact';
  const angles = result.table?.met ? `, angles ${result.table.met}` : '';
  return `max error ${shortNumber(max('maxAbs'))}, ${shortNumber(max('maxUlp'))} ulp, ${ratioText(max('maxRatio'))} of the bound, NMSE ${shortNumber(max('nmse'))}${angles}`;
}

/** A known bug, and the failed cases that come of it. */
export interface VerifiedCause {
  /** The id of a mutant, or two ids: `a and b`. */
  readonly bug: string;
  /** The other bugs that would fail the same cases, which do not tell them apart. */
  readonly others: readonly string[];
  /** The ids of the cases. */
  readonly cases: readonly string[];
}

/** Finds the known bugs that explain most failed cases, the one with most cases first. Each case counts once. */
export function verifiedCauses(results: readonly VerifyResult[]): VerifiedCause[] {
  const all = Array.from(readList(results, 'results'));
  return reading('results', () => {
    const causes: VerifiedCause[] = [];
    for (let left = all.filter(({ bugs }) => bugs?.length); left.length > 0; ) {
      const counts = new Map<string, string[]>();
      for (const { id, bugs } of left) for (const bug of bugs!) counts.set(bug, [...(counts.get(bug) ?? []), id]);
      const [bug, cases] = [...counts].reduce((most, one) => (one[1].length > most[1].length ? one : most));
      const alike = [...counts].filter(([other, ids]) => other !== bug && ids.join() === cases.join());
      causes.push({ bug, others: alike.map(([other]) => other), cases });
      left = left.filter(({ bugs }) => !bugs!.includes(bug));
    }
    return causes;
  });
}

/** The most annotations that GitHub shows for a step. */
const MAX_ANNOTATIONS = 10;

/**
 * Formats failures as annotations of GitHub Actions: a line for each known bug, then one for each other failed case,
 * ten lines at most.
 *
 * @see https://docs.github.com/actions/reference/workflow-commands-for-github-actions
 */
export function verifyAnnotations(results: readonly VerifyResult[]): string[] {
  const all = Array.from(readList(results, 'results'));
  const escaped = (text: string): string =>
    text.replace(/[%\r\n]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
  const line = (title: string, message: string): string =>
    `::error title=${escaped(title).replaceAll(':', '%3A').replaceAll(',', '%2C')}::${escaped(message)}`;
  return reading('results', () => {
    const causes = verifiedCauses(all);
    const others = all.filter(({ status, bugs }) => (status === 'fail' || status === 'error') && !bugs?.length);
    return [
      ...causes.map(({ bug, others, cases }) =>
        line(`known bug ${[bug, ...others].join(' | ')}`, `${cases.length} cases: ${cases.join(', ')}`),
      ),
      ...others.map(({ id, detail }) => line(id, detail ?? 'wrong')),
    ].slice(0, MAX_ANNOTATIONS);
  });
}

/**
 * Formats the result of a case as a line, and for a failure the lines that explain it.
 *
 * @param width - the width of the column of names
 * @param form - `brief` leaves out the wrong elements, and for a known bug all lines but the first
 */
export function verifyLines(result: VerifyResult, width = 0, form: 'full' | 'brief' = 'full'): string[] {
  readName(form, ['full', 'brief'], 'form');
  return reading('result', () => linesOf(result, checkInteger(width, 'width', 0, 1000), form === 'brief'));
}

function linesOf(result: VerifyResult, width: number, brief: boolean): string[] {
  const word = { ok: 'OK', fail: 'FAIL', error: 'FAIL', skipped: 'skipped' }[result.status];
  const detail = result.status === 'ok' ? measures(result) : (result.detail ?? '');
  const [firstDetail = '', ...moreDetail] = detail.split('\n').map(plain);
  const lines = [`  ${`${plain(result.id)}:`.padEnd(width + 1)} ${word.padEnd(4)}  ${firstDetail}`.trimEnd()];
  lines.push(...moreDetail.map((line) => `      ${line}`));
  lines.push(...result.notes.map((note) => `      note: ${plain(note)}`));
  if (result.perf) lines.push(`      perf: ${perfText(result.perf)}`);
  if (result.status !== 'fail') return lines;
  if (brief) {
    for (const { name, worst, maxRatio } of result.bugs ? [] : result.tensors)
      if (worst && maxRatio > 1) lines.push(`      ${plain(name)}: ${worstText(worst, maxRatio)}`);
    return lines;
  }
  for (const tensor of result.tensors) {
    if (tensor.wrong > 0) lines.push(...tensorLines(tensor).map((line) => `      ${line}`));
  }
  if (result.table) {
    const met = result.table.met ? ` (they keep those of ${result.table.met})` : '';
    lines.push(`      allowed: angles in ${result.table.allowed}${met}`);
  }
  const [command, ...hints] = (result.next ?? '').split('\n').map(plain);
  if (command) lines.push(`      next: ${command}`, ...hints.map((hint) => `            ${hint}`));
  return lines;
}

function perfText({ repeats, bytes, ratio, ...perf }: KernelPerf): string {
  const three = (x: number): string => String(Number(x.toPrecision(3)));
  const time = (s: number): string =>
    s < 1e-3 ? `${three(s * 1e6)} µs` : s < 1 ? `${three(s * 1e3)} ms` : `${three(s)} s`;
  const size = bytes < 1e6 ? `${three(bytes / 1e3)} kB` : `${three(bytes / 1e6)} MB`;
  return `median ${time(perf.seconds)} of ${repeats} calls, ${size}, ${three(perf.gigabytesPerSecond)} GB/s; a copy of as many bytes ${time(perf.copySeconds)}, ${three(perf.copyGigabytesPerSecond)} GB/s: ${three(ratio)} × the copy`;
}

function tensorLines(t: TensorReport): string[] {
  const gain = Number.isFinite(t.gain) ? String(Number(t.gain.toFixed(6))) : 'none';
  const head =
    `${plain(t.name)} ${t.dtype} [${t.shape}]: max abs ${shortNumber(t.maxAbs)}, rel ${shortNumber(t.maxRel)}, ulp ${shortNumber(t.maxUlp)}; ` +
    `NMSE ${shortNumber(t.nmse)}, gain ${gain}${t.nonFinite > 0 ? `; ${t.nonFinite} not finite` : ''}`;
  const lines = [head];
  if (t.worst) lines.push(worstText(t.worst, t.maxRatio));
  const table = wrongTable(t.first);
  const widths = table[0]!.map((_, c) => Math.max(...table.map((row) => row[c]!.length)));
  const padded = (cell: string, c: number): string => (c === 0 ? cell.padEnd(widths[c]!) : cell.padStart(widths[c]!));
  lines.push(t.wrong > t.first.length ? `first ${t.first.length} of ${t.wrong} wrong:` : 'wrong:');
  lines.push(...table.map((row) => `  ${row.map(padded).join('  ')}`.trimEnd()));
  return lines;
}

function worstText({ index, place }: WrongElement, maxRatio: number): string {
  const ratio = `${ratioText(maxRatio)} × its bound`;
  if (!place) return `worst: [${index}], ${ratio}`;
  const member = place.member === 0 ? 'first' : 'second';
  const pair = place.pair === undefined ? `dim ${place.dim}, not rotated` : `pair ${place.pair} (${member})`;
  const position = place.token === undefined ? 'a row that no token goes to' : `position ${place.positions.join('/')}`;
  return `worst: [${index}], ${pair}, ${position}, head ${place.head}, batch ${place.batch}, ${ratio}`;
}

/** Makes a table of wrong elements, with a header. RoPE has position, head, dim, pair and member. */
function wrongTable(first: readonly WrongElement[]): string[][] {
  const rope = first.some(({ place }) => place !== undefined);
  const hex = first.some(({ bits }) => bits !== undefined);
  const places = rope ? ['batch', 'position', 'head', 'dim', 'pair', 'member'] : [];
  const header = ['index', ...places, 'got', 'expected', '± bound', 'off by'];
  if (hex) header.push('got bits', 'expected bits');
  const rows = first.map(({ index, got, expected, bound, place, bits }) => [
    `[${index}]`,
    ...(place
      ? [
          String(place.batch),
          place.token === undefined ? 'none' : place.positions.join('/'),
          String(place.head),
          String(place.dim),
          place.pair === undefined ? 'copied' : String(place.pair),
          place.member === undefined ? '' : place.member === 0 ? 'first' : 'second',
        ]
      : []),
    elementValue(got),
    elementValue(expected),
    shortNumber(bound),
    shortNumber(Math.abs(got - expected)),
    ...(hex ? [bits?.[0] ?? '', bits?.[1] ?? ''] : []),
  ]);
  return [header, ...rows];
}

/**
 * Formats the result of a case as a JSON object on a line, with the keys of {@link VerifyResult}. NaN and infinities,
 * which JSON does not have, are strings.
 */
export function verifyToJson(result: VerifyResult): string {
  const { table, ...rest } = readOptions(result, 'result');
  const finite = (_key: string, value: unknown) =>
    typeof value === 'number' && !Number.isFinite(value) ? String(value) : value;
  return reading('result', () =>
    JSON.stringify({ ...rest, table: table && { allowed: table.allowed, met: table.met ?? null } }, finite),
  );
}

/**
 * Formats results as JUnit XML: a suite with a test case for each. A wrong output is a failure, a missing output or a
 * crash an error.
 *
 * @see https://github.com/testmoapp/junitxml, which collects what CI systems read
 */
export function verifyToJunit(title: ReportTitle, results: readonly VerifyResult[]): string {
  const all = Array.from(readList(results, 'results'));
  const own = readOptions(title, 'report: title', NAMES);
  const allowed = Array.from(readList(own.allowed, 'report: allowed'));
  return reading('report', () => junitOf({ ...own, allowed }, all));
}

function junitOf(title: ReportTitle, results: readonly VerifyResult[]): string {
  const { ok, fail, error, skipped } = countVerified(results);
  const seconds = (value = 0): string => value.toFixed(3);
  const total = results.reduce((sum, result) => sum + (result.seconds ?? 0), 0);
  const counts = `tests="${ok + fail + error + skipped}" failures="${fail}" errors="${error}" skipped="${skipped}" time="${seconds(total)}"`;
  const lines = [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="ropewalk verify" ${counts}>`,
    `  <testsuite name="${escapeMarkup(title.vectors)}" ${counts}>`,
    '    <properties>',
    `      <property name="outputs" value="${escapeMarkup(title.from)}"/>`,
    `      <property name="by" value="${escapeMarkup([title.by, ...title.allowed].join(', '))}"/>`,
    '    </properties>',
  ];
  for (const result of results) {
    const open = `    <testcase classname="${escapeMarkup(`ropewalk.${result.op}`)}" name="${escapeMarkup(result.id)}" time="${seconds(result.seconds)}"`;
    const message = escapeMarkup((result.detail ?? '').split('\n')[0]!);
    // Line breaks inside an element may stay as they are.
    const body = escapeMarkup(verifyLines(result).join('\n')).replaceAll('&#10;', '\n');
    const inner = {
      ok: undefined,
      skipped: `<skipped message="${message}"/>`,
      fail: `<failure message="${message}" type="${result.op}">${body}</failure>`,
      error: `<error message="${message}" type="${result.op}">${body}</error>`,
    }[result.status];
    if (inner === undefined) lines.push(`${open}/>`);
    else lines.push(`${open}>`, `      ${inner}`, '    </testcase>');
  }
  lines.push('  </testsuite>', '</testsuites>', '');
  return lines.join('\n');
}
