/** `ropewalk probe` with a server of the tests: its report, recordings and refusals. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Model } from '@ropewalk/model';
import { ROOT } from '../../../test/support/build.js';
import { commandPath, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';
import { type Listening, MARLINE, marlineWith, runOf, serve } from '../../../test/support/probe-server.js';

const ropewalk = (...args: string[]) => ropewalkIn(ROOT, ...args);
const folder = mkdtempSync(join(tmpdir(), 'probe-'));
let wrong: Model;
let server: Listening;

before(async () => {
  wrong = await marlineWith({ rope_theta: 500000 });
  server = await serve('vllm', runOf(wrong), wrong);
});
after(async () => {
  await server.close();
  wrong.dispose();
  rmSync(folder, { recursive: true });
});

describe('ropewalk probe', () => {
  const record = join(folder, 'answers.jsonl');
  const common = ['-m', MARLINE, '--tokens', '64', '-t', '1'];

  test('names the fault, with 1; the key is sent, and not recorded', async () => {
    process.env.PROBE_TEST_KEY = 'sk-very-secret';
    const { status, stdout } = await ropewalk(
      'probe',
      server.url,
      ...common,
      '--key-env',
      'PROBE_TEST_KEY',
      '--record',
      record,
    );
    assert.equal(status, 1);
    assert.match(
      stdout,
      /^server {6}vLLM, model marline, context 4096, the 20 likeliest tokens, one request a prompt$/m,
    );
    assert.match(stdout, /^DIFFERENT: the server rotates with base 500,000, and the model's is 10,000$/m);
    assert.equal(server.headers.authorization, 'Bearer sk-very-secret');
    assert.doesNotMatch(readFileSync(record, 'utf8') + stdout, /sk-very/);
  });

  test('a recording is judged without a server, by a process of its own', () => {
    const { status, stdout, stderr } = ropewalkProcess(
      ROOT,
      'probe',
      '--replay',
      record,
      ...common,
      '--json',
      '--svg',
      join(folder, 'a.svg'),
    );
    assert.deepEqual([status, stderr], [1, '']);
    const { verdict, best, sent } = JSON.parse(stdout);
    assert.deepEqual([verdict, best.kind, sent], ['named', 'base', 0]);
    assert.match(readFileSync(join(folder, 'a.svg'), 'utf8'), /^<svg [\s\S]*if the server rotates with base 500,000/);
    assert.ok(Math.abs(best.value / 500000 - 1) < 0.05, best.value);
  });

  test('a recording goes on where it was cut', async () => {
    const lines = readFileSync(record, 'utf8').split('\n');
    writeFileSync(record, `${lines.slice(0, 10).join('\n')}\n${lines[10]!.slice(0, 20)}`);
    const before = server.asked.length;
    const { status } = await ropewalk('probe', server.url, ...common, '--record', record);
    assert.equal(status, 1);
    const lost = lines.length - 1 - 10;
    // Paths of other APIs, which answer 404, are asked again: only answers are kept.
    assert.equal(server.asked.slice(before).filter(({ path }) => path === '/v1/completions').length, lost);
    assert.deepEqual(readFileSync(record, 'utf8').split('\n').length, lines.length, 'the cut line is gone');
    const again = await ropewalk('probe', ...common, '--replay', record, '--json');
    assert.equal(JSON.parse(again.stdout).verdict, 'named', again.stderr);
  });

  test('a history says what has changed since the last probe of a server', async () => {
    const history = join(folder, 'history.jsonl');
    const probed = (url: string) => ropewalk('probe', url, ...common, '--history', history);
    assert.match((await probed(server.url)).stdout, /^ {2}history {5}the first probe of this server in /m);
    assert.match((await probed(server.url)).stdout, /^ {2}history {5}as at 20\S+Z; 2 probes since 20\S+Z$/m);
    const lines = readFileSync(history, 'utf8')
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ url, verdict, says }) => [url, verdict, says]),
      Array(2).fill([
        server.url,
        'named',
        "DIFFERENT: the server rotates with base 500,000, and the model's is 10,000",
      ]),
    );
    writeFileSync(history, `${JSON.stringify({ ...lines[0], says: 'OK: as the files say' })}`); // its line has no end
    const { stdout } = await ropewalk('probe', server.url, ...common, '--history', history, '--json');
    assert.match(JSON.parse(stdout).history.says, /^CHANGED since 20\S+Z: OK: as the files say$/);
    assert.equal(readFileSync(history, 'utf8').split('\n').length, 3);
    writeFileSync(history, 'no JSON\n');
    const [refused, before] = [await probed(server.url), server.asked.length];
    assert.deepEqual([refused.status, readFileSync(history, 'utf8')], [2, 'no JSON\n']);
    assert.equal((await probed(server.url)).status, 2);
    assert.equal(server.asked.length, before, 'it is read before the server is asked');
  });

  test('a watched server is probed until an interrupt; one that is silent is no error', async () => {
    const history = join(folder, 'watched.jsonl');
    const args = ['probe', 'http://127.0.0.1:1', '--watch', '0.002', '--history', history, '--json'];
    const child = spawn(process.execPath, [commandPath(), ...args], { cwd: ROOT });
    let seen = '';
    for await (const part of child.stdout.setEncoding('utf8')) {
      seen += part;
      if (seen.split('\n').length > 3) child.kill('SIGINT');
    }
    const lines = readFileSync(history, 'utf8').trimEnd().split('\n');
    assert.ok(lines.length >= 3 && lines.every((line) => JSON.parse(line).verdict === 'silent'), seen);
    const { status, stderr } = await ropewalk('probe', server.url, '--watch', '1', '--record', record);
    assert.equal(status, 2);
    assert.match(stderr, /--record: a watched server is asked anew each time/);
  });

  test('without a model the server is compared with itself', async () => {
    const { status, stdout } = await ropewalk('probe', server.url, '--tokens', '40');
    assert.equal(status, 0);
    assert.match(stdout, /^OK: the same tokens get the same log-probabilities in every way that was tried$/m);
  });

  for (const [args, message] of [
    [[], /^ropewalk: probe: url: no address is given/],
    [['ftp://host'], /^ropewalk: probe: url: expected an address that begins with http/],
    [['http://user:word@host'], /^ropewalk: probe: url: it has a user or a password in it/],
    [['http://127.0.0.1:1'], /^ropewalk: probe: http:\/\/127\.0\.0\.1:1\/props: the server does not answer: /],
    [['http://host', '--key-env', 'NOT_THERE_AT_ALL'], /^ropewalk: probe: --key-env: there is no such variable/],
    [['http://host', '--record', 'a', '--replay', 'b'], /^ropewalk: probe: --replay: it asks no server/],
    [['http://host', '--file', 'a'], /^ropewalk: probe: --file: it is about a model, and there is none/],
    [['http://host', '--tokens', '5'], /^ropewalk: probe: --tokens: expected an integer in \[16/],
  ] as const)
    test(`refuses ${args.join(' ') || 'nothing'}`, async () => {
      const { status, stderr } = await ropewalk(
        'probe',
        ...args,
        ...(String(args).includes('--file') ? [] : ['-m', MARLINE]),
      );
      assert.equal(status, 2);
      assert.match(stderr.replace(/^.*MiB.*\n/m, ''), message);
    });

  test('--budget ends it before the request that would be too much', async () => {
    const { status, stderr } = await ropewalk('probe', server.url, ...common, '--budget', '50');
    assert.equal(status, 2);
    assert.match(
      stderr,
      /probe: --budget: expected at least \d+ prompt tokens for the next request, got 50\. Raise --budget/,
    );
  });
});
