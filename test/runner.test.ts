/** Tests the test runner in scripts/test: the files that it selects, its report, and its failures. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT } from './support/build.js';

const [{ TestFiles, tiersNamed }, { tierOf }, { Budgets }, { Report }] = await Promise.all(
  ['select', 'tiers', 'budgets', 'report'].map((name) => import(join(ROOT, `scripts/test/${name}.mjs`))),
);

describe('which files', () => {
  const files = new TestFiles();

  test('each is of one tier; slow has the default ones whose tests have a size too', () => {
    assert.deepEqual(['test/a.test.ts', 'test/a.gpu.test.ts', 'test/a.slow.test.ts'].map(tierOf), [
      'default',
      'gpu',
      'slow',
    ]);
    const counted = ['default', 'peers', 'gpu', 'browser', 'python'].flatMap((tier) => files.ofTier(tier));
    const own = files.ofTier('slow').filter((file: string) => tierOf(file) === 'slow');
    assert.deepEqual([...counted, ...own].sort(), files.all);
    assert.ok(files.ofTier('slow').includes('packages/formats/test/npy.test.ts'));
    assert.ok(!files.ofTier('slow').includes('test/runner.test.ts'));
  });

  test('by a package, a folder, a file, or a source file', () => {
    assert.ok(files.named('packages/formats').every((file: string) => file.startsWith('packages/formats/test/')));
    assert.deepEqual(files.named('packages/formats/'), files.named('packages/formats/test'));
    assert.deepEqual(files.named('packages/formats/test/npy.test.ts'), ['packages/formats/test/npy.test.ts']);
    assert.ok(files.named('packages/formats/src/npy.ts').includes('packages/formats/test/npy.test.ts'));
    assert.throws(() => files.named('packages/nowhere'), /packages\/nowhere: no test has this path.* Give a package/);
    assert.throws(() => tiersNamed('defualt'), /--tier: expected default, peers, gpu, browser, python, slow or all/);
  });

  test('by what has changed: through the entries of packages, to those that need the file', () => {
    const affected = files.affectedBy(['packages/dialects/src/infiniop.ts']);
    for (const file of [
      'packages/dialects/test/infiniop.test.ts',
      'packages/cli/test/convert.test.ts',
      'test/package.peers.test.ts',
    ])
      assert.ok(affected.includes(file), file);
    for (const file of [
      'packages/formats/test/npy.test.ts',
      'packages/ropewalk/test/ops/rope.test.ts',
      'packages/model/test/sampler.test.ts',
    ])
      assert.ok(!affected.includes(file), file);
    assert.deepEqual(files.affectedBy(['package.json']), files.all);
    assert.ok(files.affectedBy(['packages/cli/harness/rope.c']).includes('packages/cli/test/harness.peers.test.ts'));
    assert.ok(files.affectedBy(['docs/cli.md']).includes('test/docs.test.ts'));
    assert.ok(files.affectedBy(['vectors/ggml/manifest.json']).includes('packages/dialects/test/ggml.test.ts'));
    assert.deepEqual(files.affectedBy(['.git' + 'attributes']), []);
  });
});

describe('what it reports', () => {
  const folder = mkdtempSync(join(tmpdir(), 'runner-'));
  after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'budgets.json');
  const passing = {
    tests: [{ name: 'one', ok: true, ms: 5 }],
    seconds: 1,
    cpu: 10,
    yardstick: 2,
    log: '',
    printed: '',
  };

  /** Reports a run with one file. Returns the exit code and the output. */
  function finish(result: object, options: object = {}, known?: object): { code: number; text: string } {
    writeFileSync(path, JSON.stringify(known ?? {}));
    const lines: string[] = [];
    const report = new Report(
      new Budgets(path, join(folder, 'own.json')),
      { whole: true, ...options },
      (line: string) => lines.push(line),
    );
    report.start(1, '5');
    report.add({ file: 'test/x.test.ts', tier: 'default' }, { ...passing, ...result });
    return { code: report.finish(), text: lines.join('\n') };
  }

  test('success: counts, durations, the seed', () => {
    const { code, text } = finish({});
    assert.equal(code, 0);
    for (const line of [
      /SEED=5/,
      /10\.0 s {2}test\/x\.test\.ts/,
      /^default +1 +1 +0 +10/m,
      /^1 passed, 0 failed, 0 skipped$/m,
    ])
      assert.match(text, line);
  });

  test('a failure, a process that dies, a handle that is left open', () => {
    const failed = finish({ tests: [{ name: 'one', ok: false, ms: 5 }], ended: 'it ended with exit code 1' });
    assert.equal(failed.code, 1);
    assert.match(failed.text, /^✖ test\/x\.test\.ts: one$[\s\S]*^0 passed, 1 failed, 0 skipped$/m);
    const died = finish({ tests: [], ended: 'it was ended by SIGKILL' });
    assert.equal(died.code, 1);
    assert.match(died.text, /^✖ test\/x\.test\.ts: it was ended by SIGKILL$/m);
    const left = finish({ leaks: ['Closing file descriptor 19 on garbage collection'] });
    assert.equal(left.code, 1);
    assert.match(left.text, /it left something open: Closing file descriptor 19/);
  });

  test('a skip has its reason, and fails a run that has everything; what is left out does not', () => {
    const skip = (why: string) => ({ tests: [{ name: 'one', ok: true, skipped: why, ms: 0 }] });
    assert.equal(finish(skip('no GPU here')).code, 0);
    const { code, text } = finish(skip('no GPU here'), { noSkips: true });
    assert.equal(code, 1);
    assert.match(text, /1 tests: no GPU here/);
    assert.equal(finish(skip('left out: too large'), { noSkips: true }).code, 0);
  });

  test('a tier that takes a third over its budget fails, on the scale of the machine', () => {
    const budget = (seconds: number, yardstick: number) => ({
      default: { yardstick, files: { 'test/x.test.ts': seconds } },
    });
    assert.equal(finish({}, {}, budget(7.6, 2)).code, 0);
    const over = finish({}, {}, budget(7.4, 2));
    assert.equal(over.code, 1);
    assert.match(over.text, /Tier default takes more than a third over its budget of 7 CPU seconds/);
    assert.match(over.text, /10\.0 s instead of +7\.4 s {2}test\/x\.test\.ts/);
    assert.equal(finish({}, {}, budget(3.8, 1)).code, 0, 'a machine half as fast may take twice as long');
    assert.equal(finish({}, {}, budget(7.6, 4)).code, 0, 'a faster machine keeps the budget');
    assert.equal(finish({}, { whole: false }, budget(1, 2)).code, 0, 'some files have no budget');
    finish({}, { record: true }, budget(1, 2));
    assert.deepEqual(JSON.parse(readFileSync(path, 'utf8')), budget(10, 2));
  });
});
