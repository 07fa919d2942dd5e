/** Reads cases from lines: one, several pasted ones, a file, stdin, or the whole log of a test run. @module */
import { existsSync } from 'node:fs';
import type { DeviceProfile } from '@ropewalk/devices';
import type { PublishedLine } from '@ropewalk/devices/internal';
import { type ConformanceCase, parseRopeLabel, publishedCases, ropeCase } from '@ropewalk/oracle';
import { formatLabel, forwardOrBack, type LoggedCase, parseLabel, parseTestLog } from '@ropewalk/oracle/internal';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { didYouMean, show } from 'ropewalk/internal';
import { counted } from './output.js';
import { readStdin, readTextFile } from './text-input.js';

/** A case, and the line that named it. */
export interface FoundCase {
  readonly one: ConformanceCase;
  readonly logged: LoggedCase;
}

/** A line that is not run, and why. */
export interface LineLeft {
  readonly line: number;
  readonly text: string;
  readonly why: string;
}

const OTHER = 'no case';
const AGAIN = 'a case of an earlier line';

/**
 * Reads the cases that an argument names.
 *
 * @param given - lines; the path of a file of lines; or `-` for stdin
 * @param all - the cases of the suites
 * @param flag - the argument, for messages
 * @throws {RopewalkError} FORMAT when no line is a case, and for a single line that is none
 */
export async function readCaseLines(
  given: string,
  all: readonly ConformanceCase[],
  flag: string,
): Promise<{ readonly found: readonly FoundCase[]; readonly left: readonly LineLeft[] }> {
  const text = await readLines(given, flag.slice(2));
  if (text === undefined) return refuseCase(given, all, flag);
  const { cases, others } = parseTestLog(text);
  if (cases.length === 1 && others.length === 0)
    return { found: [{ one: findCase(cases[0]!.label, all, flag), logged: cases[0]! }], left: [] };
  if (cases.length === 0 && text.trim() !== '' && text === given) return refuseCase(given, all, flag);
  const left: LineLeft[] = others.map(({ line, text }) => ({ line, text, why: OTHER }));
  const found = new Map<string, FoundCase>();
  for (const logged of cases) {
    const { line, label, name } = logged;
    try {
      const one = findCase(label, all, flag);
      if (found.has(one.label)) left.push({ line, text: label, why: AGAIN });
      else found.set(one.label, { one, logged });
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error;
      const rope = name === 'ROPE' || name === 'ROPE_BACK';
      left.push({ line, text: label, why: rope ? error.message : `a case of ${name} that no suite has` });
    }
  }
  if (found.size === 0) {
    const first = left[0];
    const why = first ? `Line ${first.line}: ${first.why}: ${show(first.text)}.` : 'It is empty.';
    fail('FORMAT', flag, `no line is a case that can be run. ${why}`);
  }
  return { found: [...found.values()], left: left.sort((a, b) => a.line - b.line) };
}

/** @returns the text; undefined for an argument that is neither a line nor a file */
export async function readLines(given: string, command: string): Promise<string | undefined> {
  if (given === '-') return readStdin(command);
  if (existsSync(given)) return readTextFile(given);
  return given.includes('(') ? given : undefined;
}

/** Says which lines were not run, a line for each reason. */
export function leftLines(left: readonly LineLeft[]): string[] {
  const reasons = [...new Set(left.map(({ why }) => why))];
  return reasons.map((why) => {
    const those = left.filter((one) => one.why === why);
    const text = those[0]!.text.length > 60 ? `${those[0]!.text.slice(0, 59)}…` : those[0]!.text;
    return `  not run: ${counted(those.length, 'line')}, ${why}; ${those.length > 1 ? 'the first is ' : ''}line ${those[0]!.line}: ${text}`;
  });
}

/** Finds a line of any suite by its text; a ROPE(…) line that no suite has becomes a new case. */
export function findCase(line: string, all: readonly ConformanceCase[], flag = '--case'): ConformanceCase {
  if (!line.includes('(')) refuseCase(line, all, flag);
  const { name, values } = forwardOrBack(parseLabel(line));
  const pasted =
    name === 'ROPE' && !values.has('vector') ? ropeCase('pasted', parseRopeLabel({ name, values })) : undefined;
  // A suite's case is known however its numbers are written: fs=1.4245 is fs=1.424500.
  const label = pasted?.label ?? formatLabel(name, Object.fromEntries(values));
  return all.find((one) => one.label === label) ?? pasted ?? refuseCase(line, all, flag);
}

function refuseCase(line: string, all: readonly ConformanceCase[], flag: string): never {
  const labels = all.map(({ label }) => label);
  const having = labels.filter((label) => label.includes(line)).length;
  const next =
    having > 0
      ? `${having} have that in their line: ropewalk check --filter ${show(line)}.`
      : (didYouMean(line, labels) ?? 'Give a line that ropewalk check --verbose prints, or any ROPE(…) line.');
  return fail('FORMAT', flag, `there is no case ${show(line)}. ${next}`);
}

/** A case, and the text that the device itself printed for it. */
export interface Asked {
  readonly one: ConformanceCase;
  readonly printed: PublishedLine | undefined;
}

/** Gives a published case the positions and the factor of the device's own run, and the text that it printed. */
export function asPublished(one: ConformanceCase, { published }: DeviceProfile): Asked {
  const printed = one.suite === 'published' ? published?.[numberOf(one.label)] : undefined;
  if (!printed) return { one, printed };
  const { positions: pos, firstFactor: ff0 } = printed;
  const at = ropeCase(one.suite, { ...parseRopeLabel(one.label), pos, ff0 });
  return { one: { ...at, label: one.label }, printed };
}

let labels: readonly string[] | undefined;

/** The number of a published case. The cases are made once they are asked for. */
function numberOf(label: string): number {
  labels ??= publishedCases().map((one) => one.label);
  return labels.indexOf(label);
}
