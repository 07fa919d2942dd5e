/**
 * Reads what test-backend-ops prints, of any backend and age, and lines of `ropewalk check`: cases, verdicts, and the
 * lines that are neither.
 *
 * @module
 * @see ggml-org/ggml@d99724f tests/test-backend-ops.cpp
 */
import { refuse } from 'ropewalk/backend';

/** The verdict that a line of a log states. */
export type LogVerdict = 'ok' | 'fail' | 'not_supported';

/** A case of a log. */
export interface LoggedCase {
  /** The number of its line, from 1 on. */
  readonly line: number;
  /** The operator: `ROPE`. */
  readonly name: string;
  /** `NAME(key=value,…)` as it stands in the log. */
  readonly label: string;
  /** The backend that the log names above the line, or in `not supported [CANN0]`. */
  readonly backend?: string;
  /** Undefined for a label alone, such as those of a list of failing tests. */
  readonly verdict?: LogVerdict;
  /** The printed error, and the limit that it was held to. */
  readonly nmse?: number;
  readonly limit?: number;
  /** The text between the label and the verdict: `NaN at index 3 (CUDA0=nan CPU=0.5)`. */
  readonly words: string;
}

/** A log in parts. */
export interface TestLog {
  readonly cases: readonly LoggedCase[];
  /** The lines that hold no case and are not empty. */
  readonly others: readonly { readonly line: number; readonly text: string }[];
  /** The description of the device, where the log has one. */
  readonly device?: string;
}

/** Matches a label anywhere in a line: logs of test runners have a number or a time before it. */
const LABEL = /(?<![\w.])([A-Za-z]\w*)\((\s*[A-Za-z]\w*=[^()]*)\)/g;

/** Matches colours and other control sequences of terminals, and colours whose ESC was lost on the way through a page. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: ESC begins them
const ESCAPES = /\u001b\[[0-9;]*[A-Za-z]|\[[0-9;]+m/g;

/**
 * Reads a log. It never fails: what is no case is in `others`.
 *
 * @throws {RopewalkError} FORMAT for anything but a text
 */
export function parseTestLog(text: string): TestLog {
  if (typeof text !== 'string') refuse('FORMAT', 'log', 'a text', text);
  const cases: LoggedCase[] = [];
  const others: { line: number; text: string }[] = [];
  let [backend, device]: (string | undefined)[] = [];
  for (const [n, raw] of text.split('\n').entries()) {
    const line = raw.replace(ESCAPES, '').trim();
    if (line === '') continue;
    const found = [...line.matchAll(LABEL)];
    const last = cases.at(-1);
    if (found.length === 0) {
      backend = /^Backend \d+\/\d+: (.*)$/.exec(line)?.[1]?.trim() ?? backend;
      device ??= /^Device description: (.*)$/.exec(line)?.[1];
      // Backends print messages of their own between a label and its verdict.
      if (last && last.verdict === undefined && last.words !== '' && verdictOf(line).verdict) {
        cases[cases.length - 1] = { ...last, ...verdictOf(`${last.words} ${line}`) };
      } else others.push({ line: n + 1, text: line });
      continue;
    }
    for (const [k, match] of found.entries()) {
      const from = match.index + match[0].length;
      const said = line.slice(from, found[k + 1]?.index).trim();
      const named = backend === undefined ? {} : { backend };
      cases.push({ line: n + 1, name: match[1]!, label: match[0], ...named, ...verdictOf(said) });
    }
  }
  return { cases, others, ...(device === undefined ? {} : { device }) };
}

/** Reads the text behind a label. */
function verdictOf(text: string): Omit<LoggedCase, 'line' | 'name' | 'label'> {
  const words = text
    .replace(/^:/, '')
    .replace(/\b(OK|FAIL(ED)?|(NOT )?SUPPORTED)$/, '')
    .trim();
  // Until 2026 the error of an operator was always called NMSE, since then ERR.
  const [, nmse, limit] = /\b(?:NMSE|ERR)\s*=\s*(\S+)\s*>\s*(\S+)/.exec(words) ?? [];
  const refused = /\bnot supported(?: \[(.*?)\])?/i.exec(text);
  const verdict = refused
    ? 'not_supported'
    : /\bFAIL(ED)?$/.test(text)
      ? 'fail'
      : /\bOK$/.test(text)
        ? 'ok'
        : undefined;
  return {
    ...(refused?.[1] && /^\S+$/.test(refused[1]) ? { backend: refused[1] } : {}),
    ...(verdict ? { verdict } : {}),
    ...(nmse === undefined ? {} : { nmse: Number(nmse), limit: Number(limit) }),
    words,
  };
}
