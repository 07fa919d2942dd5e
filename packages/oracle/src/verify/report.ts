/**
 * Results of verify as text for people, JSON lines for programs, and JUnit XML and annotations for CI.
 *
 * Names come from manifests and files that anybody may have written: each form escapes them in its own way.
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

/** What a report says above its cases. */
export interface ReportTitle {
  /** The folder of vectors, as the user named it. */
  readonly vectors: string;
  /** Where the outputs came from: a folder, or a program. */
  readonly from: string;
  /** `ropewalk 0.1.0` */
  readonly by: string;
  /** What was allowed, where it is not the default: `table float64`, `tolerance × 2`. */
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

/**
 * Counts results.
 *
 * @param results - any number
 */
export function countVerified(results: readonly VerifyResult[]): VerifyCounts {
  const all = Array.from(readList(results, 'results'));
  const count = (status: VerifyResult['status']): number =>
    reading('results', () => all.filter((result) => result.status === status).length);
  return { ok: count('ok'), fail: count('fail'), error: count('error'), skipped: count('skipped') };
}

/**
 * The last line: `23/24 cases passed, 1 failed`.
 *
 * @param counts - from {@link countVerified}
 */
export function verifySummary(counts: VerifyCounts): string {
  return reading('counts', () => {
    const { ok, fail, error, skipped } = counts;
    const rest = skipped > 0 ? `, ${skipped} skipped` : '';
    const why = error > 0 ? ` (${error} with nothing to compare)` : '';
    return `${ok}/${ok + fail + error} cases passed, ${fail + error} failed${why}${rest}`;
  });
}

/** A number for a table, in two significant digits. */
function shortNumber(x: number): string {
  if (Number.isInteger(x) && Math.abs(x) < 1e5) return String(x);
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'NaN' : x > 0 ? 'inf' : '-inf';
  return x.toExponential(1);
}

/** A share of a bound: `0.14`, `1.2e-5`, `3.1e+5`. */
function ratioText(x: number): string {
  return x >= 0.001 && x < 1000 ? String(Number(x.toPrecision(2))) : shortNumber(x);
}

/** An element, with as many digits as tell two floats apart. */
function elementValue(x: number): string {
  if (Object.is(x, -0)) return '-0';
  return Number.isFinite(x) ? String(Number(x.toPrecision(9))) : shortNumber(x);
}

/** A gain, rounded to six digits. */
function gainText(x: number): string {
  return Number.isFinite(x) ? String(Number(x.toFixed(6))) : 'none';
}

/** A text for one line of a terminal: control characters are written as \xNN, so that a name cannot move the cursor. */
function plain(text: string): string {
  return text.replace(/[\p{Cc}\u2028\u2029]/gu, (c) => `\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** The worst of a case's tensors in a few words. */
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
  /** The id of a mutant, or two: `a and b`. */
  readonly bug: string;
  /** Other bugs that would fail the same cases: these cases do not tell them apart. */
  readonly others: readonly string[];
  /** Ids of cases. */
  readonly cases: readonly string[];
}

/**
 * The known bugs that explain most failed cases, the one with most cases first; each case counts once.
 *
 * @param results - any number
 */
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

/** GitHub shows so many annotations of a step. */
const MAX_ANNOTATIONS = 10;

/**
 * What failed as annotations of GitHub Actions, a line each: one for each known bug, then one for each other case, ten at
 * most.
 *
 * @param results - in order
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
 * One case as text: a line, and below it what a failure needs.
 *
 * @param result - of one case
 * @param width - pads the name, so that the verdicts are aligned
 * @param form - brief: without the wrong elements, and of a known bug only the line
 * @returns lines
 */
export function verifyLines(result: VerifyResult, width = 0, form: 'full' | 'brief' = 'full'): string[] {
  readName(form, ['full', 'brief'], 'form');
  return reading('result', () => linesOf(result, checkInteger(width, 'width', 0, MAX_WIDTH), form === 'brief'));
}

/** Names of cases are shorter. */
const MAX_WIDTH = 1000;

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
  const head =
    `${plain(t.name)} ${t.dtype} [${t.shape}]: max abs ${shortNumber(t.maxAbs)}, rel ${shortNumber(t.maxRel)}, ulp ${shortNumber(t.maxUlp)}; ` +
    `NMSE ${shortNumber(t.nmse)}, gain ${gainText(t.gain)}${t.nonFinite > 0 ? `; ${t.nonFinite} not finite` : ''}`;
  const lines = [head];
  if (t.worst) lines.push(worstText(t.worst, t.maxRatio));
  const { header, rows } = wrongTable(t.first);
  const widths = header.map((name, c) => Math.max(name.length, ...rows.map((row) => row[c]!.length)));
  const padded = (cell: string, c: number): string => (c === 0 ? cell.padEnd(widths[c]!) : cell.padStart(widths[c]!));
  lines.push(t.wrong > t.first.length ? `first ${t.first.length} of ${t.wrong} wrong:` : 'wrong:');
  lines.push(...[header, ...rows].map((row) => `  ${row.map(padded).join('  ')}`.trimEnd()));
  return lines;
}

function worstText(worst: WrongElement, ratio: number): string {
  return `worst: [${worst.index}]${placeText(worst)}, ${ratioText(ratio)} × its bound`;
}

/** `, pair 3 (second), position 131071, head 1, batch 0` */
function placeText({ place }: WrongElement): string {
  if (!place) return '';
  const member = place.member === 0 ? 'first' : 'second';
  const pair = place.pair === undefined ? `dim ${place.dim}, not rotated` : `pair ${place.pair} (${member})`;
  const position = place.token === undefined ? 'a row that no token goes to' : `position ${place.positions.join('/')}`;
  return `, ${pair}, ${position}, head ${place.head}, batch ${place.batch}`;
}

/**
 * The first wrong elements as a table, for people.
 *
 * @returns a header and rows of texts; for RoPE with position, head, dim, pair and member
 */
function wrongTable(first: readonly WrongElement[]): { header: string[]; rows: string[][] } {
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
  return { header, rows };
}

/**
 * One case as a JSON object on a line, with the keys of {@link VerifyResult}. NaN and infinities, which JSON does not
 * have, are strings.
 *
 * @param result - of one case
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
 * All cases as JUnit XML: a test suite with a test case each; a wrong output is a failure, a missing one or a crash an
 * error.
 *
 * @param title - what was compared
 * @param results - in order
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
    // Inside an element line breaks may stay as they are.
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
