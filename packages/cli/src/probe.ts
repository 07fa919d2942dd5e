/** `ropewalk probe`: what a model server really computes. @module */
import { appendFileSync, existsSync } from 'node:fs';
import { replaceFile, writeOutput } from '@ropewalk/formats/internal/node';
import {
  type ChangeableEngine,
  changeableEngine,
  type Exchange,
  parseRecording,
  probeSelf,
  probe as probeServer,
  reportLines,
  reportSvg,
  selfLines,
} from '@ropewalk/probe';
import { fail } from 'ropewalk/backend';
import { untilInterrupted } from './interrupt.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, type PercentBar, printResult } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { readTextFile } from './text-input.js';

export type ProbeCommandOptions = Pick<ModelRunOptions, 'model' | 'threads' | 'json'> &
  Texts<'tokens' | 'file' | 'keyEnv' | 'timeout' | 'budget' | 'record' | 'replay' | 'svg'> &
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
  const isOk = await untilInterrupted('probe', async (signal) => {
    const bar = barOf(json);
    if (options.model === undefined) {
      flags.refuseAny(
        ['file', 'threads', 'svg'],
        'it is about a model, and there is none. Give one with --model, or leave it out.',
      );
      const report = await probeSelf(address, { ...given, signal, onProgress: bar.to }).finally(bar.stop);
      printResult(json, { json: () => report, lines: () => selfLines(report) });
      return report.verdict === 'agrees';
    }
    const text = file === undefined ? undefined : readTextFile(file);
    let engine: ChangeableEngine | undefined;
    const open = async (threads: number | undefined): Promise<ChangeableEngine> => {
      engine = changeableEngine({ threads });
      return engine;
    };
    const model = await loadForCommand(options, signal, { engine: open });
    try {
      const all = { ...given, signal, text, model, engine: engine!, onProgress: bar.to };
      const report = await probeServer(address, all).finally(bar.stop);
      printResult(json, { json: () => report, lines: () => reportLines(report) });
      if (options.svg !== undefined) writeOutput(options.svg, reportSvg(report), '--svg');
      return report.verdict === 'agrees';
    } finally {
      model.dispose();
    }
  });
  return isOk ? EXIT.ok : EXIT.failed;
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
