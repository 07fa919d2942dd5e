/** `ropewalk devices NAME --log`: a log of test-backend-ops on one's own device, judged line by line. @module */
import { type DeviceProfile, ropeOnDevice } from '@ropewalk/devices';
import { parseRopeLabel, type RopeCaseParams, type ropeCase, ropePlanOfCase } from '@ropewalk/oracle';
import { alteredNmse, type LoggedCase, type LogVerdict, nmseOfRopeCase, parseTestLog } from '@ropewalk/oracle/internal';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { asPublished, findCase, readLines } from './case-lines.js';
import { builtInCases } from './check.js';
import { counted, EXIT, printResult } from './output.js';

/** The answer that a profile expects, and why. */
interface Expected {
  readonly verdict: LogVerdict | undefined;
  readonly why: string;
}

/** A mistake that would give a line's NMSE. */
interface Fit {
  readonly cause: string;
  readonly change: string;
  readonly least: number;
  readonly most: number;
}

/** A line of RoPE, judged. */
interface JudgedLine {
  readonly logged: LoggedCase;
  readonly expected: Expected;
  /** Every mistake whose effect is known for the line, with the range of its NMSE. */
  readonly known: readonly Fit[];
  /** The mistakes that give the printed NMSE, the likeliest first. */
  readonly fits: readonly Fit[];
}

/** Each mistake is computed with so many draws of x, positions and factors, which logs do not print. */
const DRAWS = 12;
/** A printed NMSE may lie outside of the computed range by this factor. */
const SLACK = 1.5;

/** The mistakes of cann-2024 that alterations of the formula do not have, and where they show. */
const OF_CANN = {
  row: {
    applies: ({ n_dims, ne_a }: RopeCaseParams) => n_dims < ne_a[0],
    cause: 'whole row rotated',
    change: 'Rotate n_dims dimensions and copy the others; until then, refuse n_dims < ne0 in supports_op.',
  },
  tables: {
    applies: ({ type, af, ef }: RopeCaseParams) => type === 'f16' && (af !== 1 || ef !== 0),
    cause: 'tables rounded twice',
    change: 'Keep cos and sin in f32 until attn_factor is in them, and round once.',
  },
  angles: {
    applies: ({ n_ctx = 512, pos }: RopeCaseParams) => (pos ? Math.max(...pos) : n_ctx) > 4096,
    cause: 'angles in f32, far from 0',
    change: 'Compute powers and angles in more than f32, or reduce the angle before it is rounded.',
  },
} as const;

/** Maps words of lines without an NMSE to their cause. */
const WORDS: readonly (readonly [pattern: RegExp, cause: string, change: string])[] = [
  [/sentinel mismatch/, 'it wrote outside of its output', 'Check the number of rows and the strides of dst.'],
  [/\bNaN\b|\bnan\b/, 'it wrote NaN', 'Look for memory that is read and never written, and for log or pow of 0.'],
  [/\binf\b/, 'it wrote infinity', 'Look for a division by a freq_factor of 0, and for f16 beyond 65504.'],
  [/failed to (allocate|initialize)/i, 'it did not run', 'The backend had no memory, or did not open.'],
];

/**
 * @param device - the profile that says what is expected
 * @param log - a file, `-`, or pasted lines
 * @returns 0 when every line is as expected and every NMSE explained, else 1
 */
export async function devicesLog(device: DeviceProfile, log: string, json?: boolean): Promise<number> {
  const text = await readLines(log, 'devices');
  if (text === undefined)
    fail('FORMAT', '--log', `there is no file ${JSON.stringify(log)}. Give a log, or - for stdin.`);
  const parsed = parseTestLog(text);
  const mine = parsed.cases.filter(({ name, verdict }) => /^ROPE(_BACK)?$/.test(name) && verdict);
  if (mine.length === 0)
    fail(
      'FORMAT',
      '--log',
      'no line has a ROPE(…) case with OK, FAIL or not supported. Make one: test-backend-ops test -o ROPE > npu.log',
    );
  const backend = device.open ? await device.open() : undefined;
  const all = builtInCases();
  const mistakes = await openMistakes();
  const judged: JudgedLine[] = [];
  const unread: { line: number; text: string; why: string }[] = [];
  try {
    for (const logged of mine) {
      try {
        judged.push(await judgeLine(logged, device, backend, mistakes, all));
      } catch (error) {
        if (!(error instanceof RopewalkError)) throw error;
        unread.push({ line: logged.line, text: logged.label, why: error.message });
      }
    }
  } finally {
    backend?.dispose();
  }
  const ranked = rank(judged);
  const others = parsed.cases.filter((one) => !mine.includes(one));
  const bad = ranked.filter((line) => !isFine(line)).length + unread.length;
  printResult(json, {
    json: () => ({
      device: parsed.device,
      profile: device.name,
      lines: ranked.map(toJson),
      unread,
      otherCases: countNames(others),
      otherLines: parsed.others.length,
      summary: summaryOf(ranked),
    }),
    lines: () => [
      ...ranked.map(describe),
      ...unread.map(({ line, text, why }) => `  line ${line}: not read: ${text}: ${why}`),
      '',
      ...summaryLines(ranked, device.name, parsed.device),
      ...causeLines(ranked),
      ...(others.length > 0 ? [`  not judged: ${countNames(others)}`] : []),
      ...(parsed.others.length > 0 ? [`  ${counted(parsed.others.length, 'line')} without a case`] : []),
    ],
  });
  return bad > 0 ? EXIT.failed : EXIT.ok;
}

type Opened = Awaited<ReturnType<NonNullable<DeviceProfile['open']>>>;

async function judgeLine(
  logged: LoggedCase,
  device: DeviceProfile,
  backend: Opened | undefined,
  mistakes: Mistakes,
  all: ReturnType<typeof builtInCases>,
): Promise<JudgedLine> {
  const one = asPublished(findCase(logged.label, all, '--log'), device);
  const label = parseRopeLabel(logged.label);
  const params: RopeCaseParams = {
    ...label,
    ...(one.printed && { pos: one.printed.positions, ff0: one.printed.firstFactor }),
  };
  const expected = backend ? await expectedByRun(one.one, backend, device) : expectedByRules(params, device);
  if (logged.verdict === 'not_supported') return { logged, expected, known: [], fits: [] };
  const known = await knownMistakes(params, mistakes);
  const { nmse, limit = 1e-7 } = logged;
  const gives = ({ least, most }: Fit): boolean => most > limit && nmse! >= least / SLACK && nmse! <= most * SLACK;
  const fits = nmse === undefined ? [] : known.filter(gives);
  return { logged, expected, known, fits };
}

async function expectedByRun(
  one: { run(runner: Opened): unknown },
  backend: Opened,
  { explain }: DeviceProfile,
): Promise<Expected> {
  type Verdict = Awaited<ReturnType<ReturnType<typeof ropeCase>['run']>>;
  const run = async (runner: Opened): Promise<Verdict> => (await one.run(runner)) as Verdict;
  const verdict = await run(backend);
  if (verdict.status === 'ok') return { verdict: 'ok', why: verdict.measure };
  if (verdict.status === 'not_supported') return { verdict: 'not_supported', why: verdict.reason };
  const causes = (await explain?.(async (mended) => (await run(mended)).status === 'ok')) ?? [];
  return { verdict: 'fail', why: causes.join(' and ') || verdict.detail };
}

/** Steps that a runtime of ggml does not take by itself. */
const NOT_BY_ITSELF = ['window-copied', 'weights-permuted', 'layout', 'tables-repeated'];

function expectedByRules(params: RopeCaseParams, device: DeviceProfile): Expected {
  if (params.fwd === 0) return { verdict: undefined, why: 'no rule of the profile is about ROPE_BACK' };
  const { source } = ropePlanOfCase(params);
  const [, heads, seq, batch] = params.ne_a;
  const context = params.pos ? Math.max(1, ...params.pos.map((position) => position + 1)) : (params.n_ctx ?? 512);
  const { forms, refused } = ropeOnDevice(device.name, {
    spec: source!.spec,
    dtype: params.type ?? 'f32',
    heads: Math.max(1, heads),
    seq: Math.max(1, seq),
    batch: Math.max(1, batch),
    context,
    contiguous: !params.v,
  });
  const asIs = forms.find(({ steps }) => !steps.some((step) => NOT_BY_ITSELF.includes(step)));
  if (asIs) return asIs.right ? { verdict: 'ok', why: asIs.operator } : { verdict: 'fail', why: asIs.lost.join(' ') };
  const needs = refused.map(({ words, here }) => (here ? `${words} (here ${here})` : words));
  return { verdict: 'not_supported', why: needs.join('; ') || `it would need: ${forms[0]!.words.join(' ')}` };
}

/** Computes what each mistake does to a case. Heads and batches change no NMSE, so that one of each is enough. */
async function knownMistakes(params: RopeCaseParams, mistakes: Mistakes): Promise<Fit[]> {
  const [ne0, , tokens, batches] = params.ne_a;
  const small: RopeCaseParams = { ...params, ne_a: [ne0, 1, Math.min(tokens, 8), 1], inplace: 0 };
  if (params.pos && tokens > 8) return [];
  const found = new Map<string, { change: string; values: number[] }>();
  const add = (cause: string, change: string, nmse: number): void => {
    const entry = found.get(cause) ?? { change, values: [] };
    entry.values.push(nmse);
    found.set(cause, entry);
  };
  for (let seed = 1; seed <= DRAWS; seed++) {
    for (const { name, change, nmse } of alteredNmse({ ...small, seed })) add(name, change, nmse);
    for (const { cause, change, nmse } of await mistakesOfCann({ ...small, seed }, mistakes)) add(cause, change, nmse);
  }
  // Zeros have all of the later batches' share of the output's squares.
  if (batches > 1)
    add('only batch 0 is written', 'Launch blocks for every batch, and add its strides.', 1 - 1 / batches);
  return [...found].map(([cause, { change, values }]) => ({
    cause,
    change,
    least: Math.min(...values),
    most: Math.max(...values),
  }));
}

type Mistakes = readonly (readonly [name: keyof typeof OF_CANN, device: Opened])[];

/** Opens a device for each mistake, which has that one alone. */
async function openMistakes(): Promise<Mistakes> {
  const { CANN_2024_DEVIATIONS, openCann2024 } = await import('@ropewalk/devices');
  const names = Object.keys(OF_CANN) as (keyof typeof OF_CANN)[];
  return Promise.all(
    names.map(async (name) => {
      const mended = CANN_2024_DEVIATIONS.filter((other) => other !== name);
      return [name, await openCann2024({ mended })] as const;
    }),
  );
}

async function mistakesOfCann(params: RopeCaseParams, mistakes: Mistakes) {
  const found = [];
  for (const [name, device] of mistakes) {
    const { applies, ...words } = OF_CANN[name];
    if (!applies(params)) continue;
    // A view is no mistake of these.
    const nmse = await nmseOfRopeCase({ ...params, v: 0 }, device);
    if (nmse !== undefined) found.push({ ...words, nmse });
  }
  return found;
}

/**
 * Puts the likeliest mistake of each line first: one that would make no line fail that is OK, and that explains the most
 * lines of the log.
 */
function rank(lines: readonly JudgedLine[]): JudgedLine[] {
  const explains = new Map<string, number>();
  const against = new Map<string, number>();
  const count = (counts: Map<string, number>, cause: string): void => {
    counts.set(cause, (counts.get(cause) ?? 0) + 1);
  };
  for (const { logged, known, fits } of lines) {
    for (const { cause } of fits) count(explains, cause);
    if (logged.verdict === 'ok')
      for (const { cause, least } of known) if (least > 10 * (logged.limit ?? 1e-7)) count(against, cause);
  }
  return lines.map((line) => {
    // A mistake that lines with OK speak against counts only where nothing else gives the NMSE.
    const possible = line.fits.filter(({ cause }) => !against.has(cause));
    // The profile's own cause goes first.
    const weight = ({ cause }: Fit): number =>
      (explains.get(cause) ?? 0) + (line.expected.why.includes(cause) ? 1e6 : 0);
    const fits = possible.length > 0 ? possible : line.fits;
    return { ...line, fits: [...fits].sort((a, b) => weight(b) - weight(a)) };
  });
}

const isExpected = ({ logged, expected }: JudgedLine): boolean =>
  expected.verdict === undefined || expected.verdict === logged.verdict;

const wordsOf = ({ logged }: JudgedLine) => WORDS.find(([pattern]) => pattern.test(logged.words));

const isExplained = (line: JudgedLine): boolean =>
  line.logged.verdict !== 'fail' || line.fits.length > 0 || wordsOf(line) !== undefined;

const isFine = (line: JudgedLine): boolean => isExpected(line) && isExplained(line);

const SAID = { ok: 'OK', fail: 'FAIL', not_supported: 'not supported' } as const;

function rangeOf({ least, most }: Fit): string {
  const [from, to] = [least, most].map((nmse) => nmse.toExponential(1));
  return from === to ? from! : `${from} to ${to}`;
}

function describe(line: JudgedLine): string {
  const { logged, expected, fits } = line;
  const verdict = SAID[logged.verdict!];
  const nmse = logged.nmse === undefined ? '' : ` NMSE ${logged.nmse}`;
  const judged =
    expected.verdict === undefined
      ? `no expectation: ${expected.why}`
      : isExpected(line)
        ? 'as expected'
        : `NOT AS EXPECTED: the profile says ${SAID[expected.verdict]} (${expected.why})`;
  const words = wordsOf(line);
  const cause =
    logged.verdict !== 'fail'
      ? ''
      : fits[0]
        ? `; explained: ${fits[0].cause} gives ${rangeOf(fits[0])}${alsoFits(fits)}`
        : words
          ? `; ${words[1]}: ${logged.words}`
          : '; NOT EXPLAINED: write x and y to files, and run ropewalk diagnose';
  return `  line ${logged.line}: ${logged.label}: ${verdict}${nmse}  ${judged}${cause}`;
}

const alsoFits = ([, ...rest]: readonly Fit[]): string =>
  rest.length === 0 ? '' : ` (${counted(rest.length, 'other cause')} would too)`;

function summaryOf(lines: readonly JudgedLine[]) {
  const count = (keep: (line: JudgedLine) => boolean): number => lines.filter(keep).length;
  return {
    lines: lines.length,
    ok: count(({ logged }) => logged.verdict === 'ok'),
    fail: count(({ logged }) => logged.verdict === 'fail'),
    notSupported: count(({ logged }) => logged.verdict === 'not_supported'),
    asExpected: count((line) => line.expected.verdict !== undefined && isExpected(line)),
    unexpected: count((line) => !isExpected(line)),
    explained: count((line) => line.logged.verdict === 'fail' && isExplained(line)),
  };
}

function summaryLines(lines: readonly JudgedLine[], profile: string, device: string | undefined): string[] {
  const { ok, fail: failed, notSupported, asExpected, explained } = summaryOf(lines);
  const backends = [...new Set(lines.flatMap(({ logged }) => logged.backend ?? []))].join(', ');
  return [
    `${[backends, device && `(${device})`].filter(Boolean).join(' ') || 'The log'}: ${counted(lines.length, 'line')} of RoPE`,
    `  ${ok} OK, ${failed} FAIL, ${notSupported} not supported; as ${profile} expects: ${asExpected} of ${lines.length}`,
    ...(failed > 0 ? [`  NMSE or words explained on ${explained} of ${failed} FAIL`] : []),
  ];
}

/** Lists the causes of the log, with their lines and what to change. */
function causeLines(lines: readonly JudgedLine[]): string[] {
  const causes = new Map<string, { change: string; at: number[] }>();
  for (const line of lines) {
    if (line.logged.verdict !== 'fail') continue;
    const [fit] = line.fits;
    const words = wordsOf(line);
    const cause = fit?.cause ?? words?.[1];
    if (cause === undefined) continue;
    const entry = causes.get(cause) ?? { change: fit?.change ?? words![2], at: [] };
    entry.at.push(line.logged.line);
    causes.set(cause, entry);
  }
  return [...causes].flatMap(([cause, { change, at }]) => [
    `  ${cause}: ${counted(at.length, 'line')} (${at.slice(0, 8).join(', ')}${at.length > 8 ? ', …' : ''})`,
    `    change: ${change}`,
  ]);
}

function countNames(cases: readonly LoggedCase[]): string {
  const counts = new Map<string, number>();
  for (const { name, verdict } of cases) {
    const key = `${name}${verdict ? ` ${SAID[verdict]}` : ' without a verdict'}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return [...counts].map(([key, n]) => `${n} × ${key}`).join(', ');
}

function toJson(line: JudgedLine) {
  const { logged, expected, fits } = line;
  const words = wordsOf(line);
  return {
    ...logged,
    expected: expected.verdict,
    why: expected.why,
    asExpected: isExpected(line),
    explained: isExplained(line),
    causes: fits.length > 0 ? fits : words ? [{ cause: words[1], change: words[2] }] : [],
  };
}
