/** `ropewalk probe`: what a model server really computes. @module */
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import { parseJson } from '@ropewalk/formats';
import { replaceFile, writeOutput } from '@ropewalk/formats/internal/node';
import {
  type ChangeableEngine,
  changeableEngine,
  type Exchange,
  type ProbeReport,
  parseRecording,
  probeSelf,
  probe as probeServer,
  reportLines,
  reportSvg,
  type SelfReport,
  selfLines,
} from '@ropewalk/probe';
import { RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, type PercentBar, printResult } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { readTextFile } from './text-input.js';

export type ProbeCommandOptions = Pick<ModelRunOptions, 'model' | 'threads' | 'json'> &
  Texts<'tokens' | 'file' | 'keyEnv' | 'timeout' | 'budget' | 'record' | 'replay' | 'svg' | 'watch' | 'history'> &
  Switches<'json'>;

/**
 * @param url - the server; with --replay it is not asked
 * @returns 0 if it computes what the model's files say, 1 if not
 */
export async function probe(url: string | undefined, options: ProbeCommandOptions): Promise<number> {
  const flags = new Flags(options);
  const { record, replay, file, keyEnv } = options;
  if (record !== undefined && replay !== undefined)
    fail('FORMAT', '--replay', 'it asks no server, so there is nothing to --record.');
  if (url === undefined && replay === undefined)
    fail('FORMAT', 'url', 'no address is given. Give one such as http://HOST:8080, or --replay FILE.');
  const key = keyEnv === undefined ? undefined : process.env[keyEnv];
  if (keyEnv !== undefined && !key)
    fail('FORMAT', '--key-env', 'there is no such variable in the environment, or it is empty.');
  const tokens = flags.integer('tokens', 16);
  const seconds = flags.positive('timeout', 86400);
  const going = record !== undefined && existsSync(record) ? record : undefined;
  const from = replay ?? going;
  const given = {
    tokens,
    key,
    timeoutMs: seconds === undefined ? undefined : Math.ceil(1000 * seconds),
    budget: flags.integer('budget', 1),
    recorded: from === undefined ? undefined : readExchanges(from, from === going),
    offline: replay !== undefined,
    onExchange:
      record === undefined ? undefined : (one: Exchange) => appendFileSync(record, `${JSON.stringify(one)}\n`),
  };
  const address = url ?? 'http://recorded';
  const { json } = options;
  const minutes = flags.positive('watch', 10_000);
  if (minutes !== undefined)
    flags.refuseAny(['record', 'replay'], 'a watched server is asked anew each time. Leave it out.');
  if (options.model === undefined)
    flags.refuseAny(
      ['file', 'threads', 'svg'],
      'it is about a model, and there is none. Give one with --model, or leave it out.',
    );
  if (options.history !== undefined) readHistory(options.history);
  const text = file === undefined ? undefined : readTextFile(file);
  const isOk = await untilInterrupted('probe', async (signal) => {
    let engine: ChangeableEngine | undefined;
    const open = async (threads: number | undefined): Promise<ChangeableEngine> => {
      engine = changeableEngine({ threads });
      return engine;
    };
    const model = options.model === undefined ? undefined : await loadForCommand(options, signal, { engine: open });
    /** Asks the server once. */
    const ask = async (): Promise<Asked> => {
      const bar = barOf(json);
      const all = { ...given, signal, onProgress: bar.to };
      if (!model) {
        const report = await probeSelf(address, all).finally(bar.stop);
        return { report, lines: selfLines(report) };
      }
      const report = await probeServer(address, { ...all, text, model, engine: engine! }).finally(bar.stop);
      if (options.svg !== undefined) writeOutput(options.svg, reportSvg(report), '--svg');
      return { report, lines: reportLines(report) };
    };
    try {
      for (;;) {
        const asked = await ask().catch((error: unknown) => silence(error, minutes !== undefined));
        const history = options.history === undefined ? undefined : keep(options.history, withoutQuery(address), asked);
        printResult(json, {
          json: () => ({ ...asked.report, ...(history && { history }) }),
          lines: () => [...asked.lines, ...(history ? ['', `  history     ${history.says}`] : [])],
        });
        // Between two probes an interrupt ends the watch well.
        if (minutes !== undefined) await setTimeout(minutes * 60_000, undefined, { signal }).catch(() => {});
        if (minutes === undefined || signal.aborted) return asked.report.verdict === 'agrees';
      }
    } finally {
      model?.dispose();
    }
  });
  return isOk ? EXIT.ok : EXIT.failed;
}

/** The outcome of one probe; a watched server may be silent. */
interface Asked {
  readonly report: ProbeReport | SelfReport | { readonly verdict: 'silent'; readonly error: string };
  readonly lines: readonly string[];
}

/** Takes a server that does not answer for an outcome, where it is watched. @throws every other error */
function silence(error: unknown, isWatched: boolean): Asked {
  if (!isWatched || !(error instanceof RopewalkError) || error.code !== 'DEVICE') throw error;
  return { report: { verdict: 'silent', error: error.message }, lines: [`SILENT: ${error.message}`] };
}

/** The address without a query, which may hold a secret: a history goes to others. */
function withoutQuery(address: string): string {
  const { origin, pathname } = new URL(address);
  return origin + pathname.replace(/\/$/, '');
}

/** A line of a history. */
interface Kept {
  readonly time: string;
  readonly url: string;
  readonly verdict: string;
  /** The first line of the verdict. */
  readonly says: string;
  readonly noise?: number;
  readonly difference?: number;
}

/** Reads a history, whose last line may lack its end. @throws {RopewalkError} FORMAT for a line that is no JSON */
function readHistory(file: string): { readonly past: readonly Kept[]; readonly isCut: boolean } {
  const text = existsSync(file) ? readTextFile(file) : '';
  const lines = text.split('\n');
  const past = lines.flatMap((line, n) => (line === '' ? [] : [parseJson(line, `${file}: line ${n + 1}`) as Kept]));
  return { past, isCut: lines.at(-1) !== '' };
}

/** Adds a probe to the history, and says what has changed since the last one of the server. */
function keep(
  file: string,
  url: string,
  { report, lines }: Asked,
): { readonly changed: boolean; readonly says: string } {
  const { past: all, isCut } = readHistory(file);
  const past = all.filter((one) => one.url === url);
  const now: Kept = {
    time: new Date().toISOString(),
    url,
    verdict: report.verdict,
    says: lines.find((line) => /^[A-Z]{2,}/.test(line))!,
    ...('noise' in report && { noise: report.noise }),
    ...('difference' in report && { difference: report.difference }),
  };
  appendFileSync(file, `${isCut ? '\n' : ''}${JSON.stringify(now)}\n`);
  const last = past.at(-1);
  if (!last) return { changed: false, says: `the first probe of this server in ${file}` };
  return last.says === now.says
    ? { changed: false, says: `as at ${last.time}; ${past.length + 1} probes since ${past[0]!.time}` }
    : { changed: true, says: `CHANGED since ${last.time}: ${last.says}` };
}

/** Makes a bar for each part of the work, one after the other. */
function barOf(quiet: boolean | undefined) {
  let bar: PercentBar | undefined;
  let now: string | undefined;
  const stop = (): void => bar?.stop();
  const to = (what: string, share: number): void => {
    if (what !== now) {
      stop();
      bar = openPercentBar(what, quiet);
      now = what;
    }
    bar!.to(share);
  };
  return { to, stop };
}

/**
 * Reads a recording: an exchange on each line, as JSON, which the library checks.
 *
 * @param going - it goes on: a last line that an interrupt has cut is removed, and asked again
 * @throws {RopewalkError} FORMAT
 */
function readExchanges(file: string, going: boolean): Exchange[] {
  const text = readTextFile(file);
  const whole = text.slice(0, text.lastIndexOf('\n') + 1);
  if (going && whole !== text) replaceFile(file, whole);
  return parseRecording(going ? whole : text, file);
}
