/** `ropewalk devices NAME --cases`: the results of conformance cases on a device, with reasons. @module */
import { existsSync } from 'node:fs';
import type { DeviceProfile } from '@ropewalk/devices';
import type { PublishedLine } from '@ropewalk/devices/internal';
import { type CaseResult, type ConformanceCase, formatResult, runCases } from '@ropewalk/oracle';
import type { Backend } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { didYouMean } from 'ropewalk/internal';
import { type Asked, asPublished, type LineLeft, leftLines, readCaseLines } from './case-lines.js';
import { builtInCases } from './check.js';
import { EXIT, openPrinter, printJson, printLines } from './output.js';

/**
 * @param wanted - the name of a suite; lines that `check` or test-backend-ops prints; a file of them; or `-`
 * @returns 0, also when the device fails cases: that is the answer
 */
export async function devicesCases(device: DeviceProfile, wanted: string, json?: boolean): Promise<number> {
  const { open, explain } = device;
  if (!open)
    refuse('UNSUPPORTED', '--cases', 'a profile that computes', device.name, 'List them with: ropewalk devices.');
  const { asked, left } = await chooseCases(device, wanted);
  const backend = await open();
  const printer = openPrinter(asked.length, 'cases', json);
  const answers: Answer[] = [];
  try {
    for (const { one, printed } of asked) {
      const result = await runOne(one, backend);
      const passes = async (mended: Backend): Promise<boolean> => (await runOne(one, mended)).verdict.status === 'ok';
      const causes = result.verdict.status === 'fail' && explain ? await explain(passes) : [];
      const answer = { result, causes, printed };
      answers.push(answer);
      printer.line(json ? JSON.stringify(toJson(answer)) : describe(answer));
      printer.step();
    }
  } finally {
    printer.stop();
    backend.dispose();
  }
  if (json) printJson({ summary: { ...summaryOf(answers), ...(left.length > 0 && { notRun: left }) } });
  else printLines(['', ...summaryLines(answers), ...leftLines(left)]);
  return EXIT.ok;
}

async function chooseCases(
  device: DeviceProfile,
  wanted: string,
): Promise<{ asked: Asked[]; left: readonly LineLeft[] }> {
  const all = builtInCases();
  const suites = [...new Set(all.map(({ suite }) => suite))];
  if (suites.includes(wanted))
    return { asked: all.filter(({ suite }) => suite === wanted).map((one) => asPublished(one, device)), left: [] };
  const near = didYouMean(wanted, suites);
  if (near && !existsSync(wanted))
    refuse('FORMAT', '--cases', `lines of ropewalk check, or ${suites.join(', ')}`, wanted, near);
  const { found, left } = await readCaseLines(wanted, all, '--cases');
  return { asked: found.map(({ one }) => asPublished(one, device)), left };
}

async function runOne(one: ConformanceCase, backend: Backend): Promise<CaseResult> {
  const { value } = await runCases([one], backend).next();
  return value as CaseResult;
}

/** The result of one case on the device. */
interface Answer {
  readonly result: CaseResult;
  readonly causes: readonly string[];
  readonly printed: PublishedLine | undefined;
}

/** Takes the NMSE of a ROPE case from the judge's text. @returns undefined for a judge without NMSE */
function nmseOf({ verdict }: CaseResult): number | undefined {
  const text = verdict.status === 'ok' ? verdict.measure : verdict.status === 'fail' ? verdict.detail : '';
  const found = /NMSE (?:= )?([0-9.e+-]+)/.exec(text)?.[1];
  return found === undefined ? undefined : Number(found);
}

function describe({ result, causes, printed }: Answer): string {
  const { verdict } = result;
  const notes = [
    ...(verdict.status === 'ok' ? [verdict.measure] : []),
    ...(causes.length > 0 ? [causes.join(' and ')] : []),
    ...(printed?.nmse === undefined ? [] : [`printed: ${printed.nmse.toFixed(9)}`]),
  ];
  return formatResult(result) + (notes.length > 0 ? `  (${notes.join('; ')})` : '');
}

function toJson({ result, causes, printed }: Answer) {
  const { label, suite, verdict } = result;
  const own = printed && { verdict: printed.nmse === undefined ? 'ok' : 'fail', ...printed };
  return { suite, case: label, ...verdict, nmse: nmseOf(result), causes, printed: own };
}

function summaryOf(answers: readonly Answer[]) {
  const count = (status: string): number => answers.filter(({ result }) => result.verdict.status === status).length;
  const known = answers.filter(({ printed }) => printed);
  const same = known.filter(
    ({ result, printed }) => (result.verdict.status === 'ok') === (printed!.nmse === undefined),
  ).length;
  const ratios = known.flatMap(({ result, printed }) => {
    const nmse = nmseOf(result);
    return printed!.nmse === undefined || nmse === undefined
      ? []
      : [Math.max(nmse / printed!.nmse, printed!.nmse / nmse)];
  });
  return {
    ok: count('ok'),
    fail: count('fail'),
    notSupported: count('not_supported'),
    ...(known.length > 0 && {
      printed: known.length,
      sameVerdict: same,
      nmseWithinTwo: ratios.filter((ratio) => ratio <= 2).length,
      nmseCompared: ratios.length,
      factorsSearched: known.filter(({ printed }) => printed!.firstFactor !== undefined).length,
    }),
  };
}

function summaryLines(answers: readonly Answer[]): string[] {
  const { ok, fail, notSupported, printed, sameVerdict, nmseWithinTwo, nmseCompared, factorsSearched } =
    summaryOf(answers);
  const rest = notSupported > 0 ? `, ${notSupported} not supported` : '';
  const lines = [`  ${ok} OK, ${fail} FAIL${rest}`];
  if (printed !== undefined)
    lines.push(
      `  the device itself: the same verdict on ${sameVerdict} of ${printed} lines, NMSE within a factor of 2 on ${nmseWithinTwo} of ${nmseCompared}`,
    );
  if (factorsSearched)
    lines.push(
      `  ${factorsSearched} lines use a first factor that was not printed by the device: one that gives its NMSE`,
    );
  return lines;
}
