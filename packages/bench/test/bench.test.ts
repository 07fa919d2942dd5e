/**
 * `ropewalk bench`: right before fast, what it says of threads and adapters, its files, what it refuses. No time is
 * judged.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe } from 'node:test';
import { runCases } from '@ropewalk/bench';
import { allCases, chooseCases, gpuCases, QUICK_EFFORT } from '@ropewalk/bench/internal';
import { exitCodeOf, rooflinePicture } from '@ropewalk/bench/internal/node';
import { printReport, type Report } from '@ropewalk/bench/node';
import { openBackend, Ropewalk } from 'ropewalk';
import { commandPath, ropewalkIn } from '../../../test/support/command.js';
import { examplesOf } from '../../../test/support/examples.js';
import { noGpu } from '../../../test/support/gpu.js';
import { testOnce as test, testGpu } from '../../../test/support/tier.js';

const folder = mkdtempSync(join(tmpdir(), 'bench-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const bench = (...args: string[]) => ropewalkIn(folder, 'bench', ...args);

/** The labels in a file that --json wrote. */
function labelsIn(session: Report['sessions'][number]): string[] {
  return session.results.map(({ label }) => label);
}

test('every operator of cpu, on one thread and on two: right, each case once, in a table and in files', async () => {
  writeFileSync(join(folder, 'all.json'), 'earlier');
  const ran = await bench('--quick', '--backend', 'cpu', '-t', '1,2', '--json', 'all.json', '--svg', 'all.svg');
  assert.equal(ran.status, 0, ran.stderr);
  const report: Report = JSON.parse(readFileSync(join(folder, 'all.json'), 'utf8'));
  const labels = allCases(true).map(({ label }) => label);
  assert.ok(labels.length > 40);
  assert.equal(report.quick, true);
  assert.match(report.machine.version, /^\d+\.\d+\.\d+$/);
  assert.deepEqual(
    report.sessions.map(({ threads }) => threads),
    [1, 2],
  );
  for (const session of report.sessions) {
    assert.deepEqual(labelsIn(session), labels);
    assert.deepEqual(session.leftOut, []);
    assert.ok(session.peakGflops! > 0);
    for (const { label, agreement, ours, copy, bytes, elements } of session.results) {
      assert.ok(agreement.error <= agreement.limit, label);
      for (const n of [ours.medianNs, copy.medianNs, bytes, elements]) assert.ok(n > 0, label);
    }
  }
  assert.match(ran.stdout, /^threads 1: cpu, WebAssembly .*one thread/m);
  assert.match(ran.stdout, /^threads 2: cpu, WebAssembly .*2 threads/m);
  assert.match(ran.stdout, /--quick: one call .* say nothing about speed/);
  for (const label of labels)
    assert.equal(ran.stdout.split('\n').filter((line) => line.startsWith(`${label}  `)).length, 2, label);
  assert.match(readFileSync(join(folder, 'all.svg'), 'utf8'), /^<svg [\s\S]*<circle [\s\S]*<\/svg>\n$/);
  assert.deepEqual(readdirSync(folder).sort(), ['all.json', 'all.svg']); // and no temporary file
});

test('unless given, as many threads as cpu takes', async () => {
  const ran = await bench('--quick', '--backend', 'cpu', '--only', '^add', '--json', 'own.json');
  assert.equal(ran.status, 0, ran.stderr);
  const [session] = JSON.parse(readFileSync(join(folder, 'own.json'), 'utf8')).sessions;
  const cpu = await openBackend('cpu');
  assert.equal(session.threads, cpu.capabilities().threads);
  cpu.dispose();
  assert.deepEqual(labelsIn(session), ['add f32 4x64']);
});

testGpu('a GPU in software is named, and gets small shapes', { skip: noGpu }, async () => {
  const ran = await bench('--only', '^add f32', '--backend', 'webgpu', '--json', 'gpu.json');
  assert.equal(ran.status, 0, ran.stderr);
  const [session] = JSON.parse(readFileSync(join(folder, 'gpu.json'), 'utf8')).sessions;
  const software = /swiftshader|llvmpipe/i.test(session.capabilities.description);
  assert.equal(session.gpu.software, software);
  assert.equal(/A SOFTWARE ADAPTER: .* These times mean nothing\./.test(ran.stdout), software);
  const chosen = chooseCases(gpuCases(software), { only: '^add f32' });
  assert.deepEqual(
    labelsIn(session),
    chosen.map(({ label }) => label),
  );
});

describe('right before fast', async () => {
  const reference = await openBackend('reference');
  const oracle = new Ropewalk(reference);
  /** The reference, with a wrong last element of every sum. */
  const wrong = new Ropewalk({
    ...reference,
    name: 'wrong',
    allocate: reference.allocate.bind(reference),
    run(plan) {
      reference.run(plan);
      if (plan.op === 'add') plan.out.storage.host![plan.out.offset + plan.out.size - 1]! += 1e-3;
    },
  });
  const setting = {
    threads: 1,
    libraries: { rw: wrong, oracle },
    effort: QUICK_EFFORT,
    copy: () => ({ name: 'copy', call() {} }),
  };
  const cases = chooseCases(allCases(true), { only: '^(add|scale) f32' });
  const results = await runCases(setting, cases, () => {});
  const capabilities = wrong.capabilities();
  const sessions = [{ threads: 1, capabilities, peakGflops: 1, peerNotes: [], ...results }] as const;
  const machine = { cpu: 'a cpu', cores: 1, node: 'v0', platform: 'none', version: '0.0.0', date: '2026-01-01' };
  const report = { machine, quick: true, sessions };

  test('a wrong result is FAILED with the element, and not timed; the others are', () => {
    assert.deepEqual(labelsIn(sessions[0]), ['scale f32 4x64']);
    assert.match(
      printReport(report),
      /^FAILED add f32 4x64: add f32 4x64: expected an error <= 5\.0e-5, got [\d.]+e-\d: element 127 is [-\d.]+, expected [-\d.]+$/m,
    );
    assert.doesNotMatch(printReport(report), /^add f32/m);
  });

  test('the exit code is 1; without one it is 0', () => {
    assert.equal(exitCodeOf(report), 1);
    assert.equal(exitCodeOf({ ...report, sessions: [{ ...sessions[0], leftOut: [] }] }), 0);
  });

  test('the picture escapes what the machine says of itself', () => {
    assert.match(
      rooflinePicture(sessions[0], { ...machine, cpu: 'a <cpu> & more' }),
      /a &lt;cpu&gt; &amp; more, Node v0/,
    );
  });
});

test('what makes no sense is refused before anything is timed', async () => {
  for (const [args, said] of [
    [['--backend', 'reference'], '--backend: expected cpu or webgpu, got "reference"'],
    [['--backend', 'webgpu', '-t', '2'], '-t: it needs --backend cpu: a GPU has none to set.'],
    [['--backend', 'cpu', '--threads', '1,0'], '--threads: expected an integer in [1, 16], got "0"'],
    [['--only', '('], '--only: expected a regular expression, got "("'],
    [['--backend', 'cpu', '--only', '^nothing'], 'cases, such as ^rope, or a ROPE(…) line, got "^nothing"'],
    [['--json'], "option '--json <file>' argument missing"],
    [['extra'], 'too many arguments'],
  ] as const) {
    const { status, stdout, stderr } = await bench('--quick', ...args);
    assert.equal(status, 2, stderr);
    assert.ok(stderr.startsWith('ropewalk: bench: ') && stderr.includes(said), stderr);
    assert.doesNotMatch(stdout, /ns a call/);
  }
  const { status, stdout, stderr } = await bench('--quick', '-b', 'cpu', '--only', '^add', '--svg', 'none/x.svg');
  assert.equal(status, 2);
  assert.match(stdout, /^add f32/m); // what was measured is not lost
  assert.equal(stderr, 'ropewalk: bench: --svg: none/x.svg: there is no folder none. Make it first.\n');
});

test("docs/cli.md's example prints what the page shows", () => {
  const examples = examplesOf('docs/cli.md', 'sh');
  assert.equal(examples.length, 1);
  const code = examples[0]!.code.replace('npx ropewalk', `'${process.execPath}' '${commandPath()}'`);
  assert.equal(spawnSync(code, { cwd: folder, encoding: 'utf8', shell: true }).stdout, examples[0]!.output);
});

test('--only takes ROPE(…) lines: each is timed as it is, view and factors included, and its result is checked', async () => {
  const line = 'ROPE(type=f16,ne_a=[16,3,5,2],n_dims=12,mode=2,n_ctx=512,ef=0.5,fs=0.5,ff=1,v=1)';
  const lines = `${line}\n${line.replace('f16', 'f32').replace('v=1', 'v=2,inplace=1')}`;
  const { status, stdout, stderr } = await bench(
    '--backend',
    'cpu',
    '-t',
    '1',
    '--quick',
    '--only',
    lines,
    '--json',
    'r.json',
  );
  assert.equal(status, 0, stderr);
  for (const one of lines.split('\n')) assert.ok(stdout.includes(`\n${one} `), stdout);
  const report: Report = JSON.parse(readFileSync(join(folder, 'r.json'), 'utf8'));
  assert.deepEqual(
    report.sessions[0]!.results.map(({ elements, bytes }) => [elements, bytes]),
    [
      [480, 2 * 480 * 2 + 2 * 4 * 5 * 6],
      [480, 2 * 480 * 4 + 2 * 4 * 5 * 6],
    ],
  );
  assert.ok(report.sessions[0]!.results.every(({ agreement: { error } }) => error < 1e-3));
  const mixed = await bench('--quick', '--only', `${line}\nhello`);
  assert.match(mixed.stderr, /--only: expected ROPE\(…\) lines, got "hello"/);
});
