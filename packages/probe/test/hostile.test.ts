/** Calls every public function with hostile values. The result is a RopewalkError, or right. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { loadModelFolder } from '@ropewalk/model/node';
import { complaint, hostileCalls, misspeltCalls } from '../../../test/support/hostile.js';
import { MARLINE, runOf, serve } from '../../../test/support/probe-server.js';
import * as entry from '../src/index.js';
import {
  changeableEngine,
  type Exchange,
  parseRecording,
  probe,
  probeSelf,
  reportLines,
  reportSvg,
  selfLines,
} from '../src/index.js';

const own = changeableEngine({ backend: 'cpu', threads: 1 });
const model = await loadModelFolder(MARLINE, { engine: own });
after(() => model.dispose());
const recorded: Exchange[] = [];
const server = await serve('vllm', runOf(model), model);
const report = await probe(server.url, { model, engine: own, tokens: 16, onExchange: (one) => recorded.push(one) });
const recordedSelf: Exchange[] = [];
const self = await probeSelf(server.url, { tokens: 20, onExchange: (one) => recordedSelf.push(one) });
await server.close();

const CALLS: Record<
  string,
  readonly [call: (...args: never[]) => unknown, valid: () => readonly unknown[], depth?: number]
> = {
  changeableEngine: [changeableEngine, () => [{ backend: 'cpu', threads: 1 }]],
  probe: [
    probe,
    () => [
      'http://127.0.0.1:1',
      {
        model,
        engine: own,
        tokens: 16,
        text: undefined,
        key: 'a',
        timeoutMs: 1000,
        budget: 1000,
        signal: new AbortController().signal,
        recorded: Object.freeze([...recorded]),
        offline: true,
        onExchange() {},
        onProgress: undefined,
      },
    ],
    1,
  ],
  probeSelf: [
    probeSelf,
    () => [
      'http://127.0.0.1:1',
      { tokens: 20, key: 'a', timeoutMs: 1000, recorded: Object.freeze([...recordedSelf]), offline: true },
    ],
    1,
  ],
  parseRecording: [parseRecording, () => [`${JSON.stringify(recorded[0])}\n`, 'a.jsonl']],
  selfLines: [selfLines, () => [{ ...self }], 0],
  reportSvg: [reportSvg, () => [{ ...report }], 0],
  reportLines: [reportLines, () => [{ ...report }], 0],
};

test('every function of @ropewalk/probe is called', () => {
  const exported = Object.entries(entry).filter(([, value]) => typeof value === 'function');
  assert.deepEqual(exported.map(([name]) => name).sort(), Object.keys(CALLS).sort());
});

for (const [name, [call, valid, depth]] of Object.entries(CALLS)) {
  test(`${name}: hostile arguments`, async () => {
    const invoke = call as (...args: unknown[]) => unknown;
    const complaints: string[] = [];
    const works = await complaint(() => invoke(...valid()), true);
    if (works) complaints.push(`arguments that work: ${works}`);
    for (const { where, args } of /Lines$|Svg$/.test(name) ? [] : misspeltCalls(valid)) {
      const refused = await complaint(() => invoke(...args), true);
      // An engine has methods, and exchanges are contents of a file.
      if (!refused?.includes('misspelt') && !/^1\.(engine|recorded)/.test(where))
        complaints.push(`${where}: takes misspelt`);
    }
    for (const { label, args } of hostileCalls(valid, depth)) {
      const found = await complaint(() => invoke(...args));
      if (found && !/on(Progress|Exchange) = proxy of a function/.test(label)) complaints.push(`${label}: ${found}`);
    }
    assert.deepEqual(complaints, []);
  });
}
