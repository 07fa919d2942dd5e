/** The output of the command line: lines to stdout, progress to a terminal. @module */
import { createRequire } from 'node:module';
import { styleText } from 'node:util';

/**
 * Exit codes of every command: success; a finding (a case failed, two models differ, a kernel is wrong); wrong usage,
 * input or output; a bug in ropewalk. A command that a signal ends has 128 plus the signal's number, as in a shell.
 */
export const EXIT = { ok: 0, failed: 1, usage: 2, bug: 3 } as const;

/** Prints a value as one line of JSON. */
export function printJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Prints a command's result: one JSON object, or lines of text. */
export function printResult(
  json: boolean | undefined,
  to: { readonly json: () => unknown; readonly lines: () => readonly string[] },
): void {
  if (json) printJson(to.json());
  else printLines(to.lines());
}

/** Prints lines of text, without line ends, to stdout in one write. */
export function printLines(lines: readonly string[]): void {
  process.stdout.write(colored(lines.map((line) => `${line}\n`).join('')));
}

/** The styles of headings, which have an indented line below, of passed and of failed results. */
const STYLES = [
  ['bold', /(?<=^\n?|\n\n)\S.*(?=\n {2})/g],
  ['green', /\bOK\b|^AS EXPECTED\b|^SAME\b|^A ROTATION(?=:)/gm],
  [
    'red',
    /\bFAIL(?:ED)?\b|^(?:(?:(?:TWO|THREE|FOUR) )?KNOWN BUGS?|WRONG PARAMETERS?|FIRST DIVERGENCE|ONE OF \d+|DIFFERENT|PARTLY RIGHT|NOT UNDERSTOOD)\b/gm,
  ],
] as const;

/** Colours lines of a report on a terminal, unless NO_COLOR is set. JSON stays unchanged. */
function colored(text: string, stream: NodeJS.WriteStream = process.stdout): string {
  if (!stream.isTTY || text.startsWith('{')) return text;
  return STYLES.reduce((all, [style, what]) => all.replace(what, (one) => styleText(style, one, { stream })), text);
}

/** Formats a number for people: `1,234,567`. */
export function thousands(n: number): string {
  return n.toLocaleString('en');
}

/** Formats a count: `1 case`, `32 cases`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** Formats a number of bytes: `12 bytes`, `4.70 MB`. */
export function sizeText(count: number): string {
  const [size, unit] = [[1e9, 'GB'] as const, [1e6, 'MB'] as const, [1e3, 'kB'] as const].find(
    ([least]) => count >= least,
  ) ?? [1, count === 1 ? 'byte' : 'bytes'];
  const digits = size === 1 ? 1 : 3;
  return `${(count / size).toLocaleString('en', { minimumSignificantDigits: digits, maximumSignificantDigits: 3 })} ${unit}`;
}

/** Escapes control characters of names from files, because they could control a terminal. */
export function printable(line: string): string {
  return line.replace(/\p{Cc}/gu, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Milliseconds between two drawings of a bar. */
const REDRAW_MS = 50;

/** Prints lines, with a progress bar below them while work goes on. */
export interface LinePrinter {
  line(text: string): void;
  /** Moves the bar on by one. */
  step(): void;
  /** Removes the bar. */
  stop(): void;
}

/** Opens a printer. It has a bar on a terminal unless `quiet`, and plain lines in a pipe. */
export function openPrinter(
  total: number,
  what: string,
  quiet = false,
  stream: NodeJS.WriteStream = process.stdout,
): LinePrinter {
  if (quiet || !stream.isTTY) {
    return { line: (text) => void stream.write(colored(`${text}\n`, stream)), step() {}, stop() {} };
  }
  // The package is loaded here, because no command needs it without a terminal.
  const { MultiBar, Presets }: typeof import('cli-progress') = createRequire(import.meta.url)('cli-progress');
  const bars = new MultiBar(
    { stream, clearOnComplete: true, hideCursor: true, format: `{bar} {value}/{total} ${what} | {eta_formatted} left` },
    Presets.shades_classic,
  );
  const bar = bars.create(total, 0);
  // Timers do not run between cases, so the bar and the lines above it are drawn here.
  let drawn = 0;
  const draw = (): void => {
    drawn = Date.now();
    bars.update();
  };
  return {
    line: (text) => bars.log(colored(`${text}\n`, stream)),
    step() {
      bar.increment();
      if (Date.now() - drawn >= REDRAW_MS) draw();
    },
    stop() {
      draw();
      bars.stop();
    },
  };
}

/** Shows the work that runs, on a terminal only. An empty text wipes the line. */
export function showProgress(text = ''): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

/** A bar that shows the share of the work that is done. */
export interface PercentBar {
  /** @param share - the share that is done, in [0, 1] */
  to(share: number): void;
  /** Removes the bar. */
  stop(): void;
}

/** Opens a bar, on a terminal only, for long work that prints nothing. @param what - such as `of the kernels` */
export function openPercentBar(what: string, quiet = false, stream: NodeJS.WriteStream = process.stderr): PercentBar {
  const printer = openPrinter(100, `% ${what}`, quiet, stream);
  let percent = 0;
  return {
    to(share) {
      for (; percent < Math.floor(100 * share); percent++) printer.step();
    },
    stop: () => printer.stop(),
  };
}

/** Two digits, with an exponent for what is below 0.001. */
export function small(value: number): string {
  return value > 0 && value < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(2)));
}
