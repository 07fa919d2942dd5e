import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { ropewalkIn } from '../../../test/support/command.js';

const root = fileURLToPath(new URL('../../../', import.meta.url));
const MARLINE = join(root, 'models/marline');
const folder = mkdtempSync(join(tmpdir(), 'passport-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, 'passport', ...args);
const file = (name: string, json: unknown): string => {
  writeFileSync(join(folder, name), typeof json === 'string' ? json : JSON.stringify(json));
  return name;
};
const config = JSON.parse(readFileSync(join(MARLINE, 'config.json'), 'utf8'));
/** marline for texts beyond its context. */
const longer = (name: string, more: object): string => {
  cpSync(MARLINE, join(folder, name), { recursive: true });
  file(join(name, 'config.json'), { ...config, max_position_embeddings: 4096, ...more });
  return name;
};
const own = file('config.json', config);
const other = file('other.json', { ...config, rope_theta: 500000 });
const doubtful = file('doubtful.json', {
  ...config,
  rope_theta: undefined,
  rope_parameters: { rope_type: 'default', rope_theta: 500000 },
});

describe('ropewalk passport', () => {
  test('a model and its GGUF are the same: exit 0', async () => {
    const { status, stdout } = await ropewalk(MARLINE, join(MARLINE, 'model-q8_0.gguf'));
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^ {2}llama\.cpp\n {4}the same$/m);
    assert.match(stdout, /^0 errors, 0 warnings, 0 notes; hash [0-9a-f]{12}$/m);
  });
  test('a graph beside the config that it was written from, and beside another', async () => {
    const graph = join(folder, 'graph');
    assert.equal((await ropewalkIn(folder, 'export', MARLINE, '--whole', '-o', graph)).status, 0);
    const { status, stdout } = await ropewalk(own, graph);
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^ {2}the graph itself\n {4}the same$/m);
    const wrong = await ropewalk(other, join(graph, 'onnx', 'model.onnx'));
    assert.equal(wrong.status, 1);
    assert.match(wrong.stdout, /model\.onnx, the graph itself: Layers 0-3: base 10000 instead of 500000\.$/m);
    const alone = await ropewalk(graph);
    assert.equal(alone.status, 2);
    assert.match(alone.stderr, /a graph is compared with another form\. Give the form/);
  });
  test('forms that differ: exit 1, and the position from which it matters', async () => {
    const { status, stdout } = await ropewalk(own, other);
    assert.equal(status, 1);
    assert.match(stdout, /^ {2}ERROR {3}other\.json, transformers 5: Layers 0-3: base 500000 instead of 10000\.$/m);
    assert.match(stdout, /Angles are 0\.1 rad apart from position \d+ on/);
    assert.match(stdout, /q·k off by [\d.]+ % at 1,/);
  });
  test('a warning is exit 0, and 1 with --strict; JUnit has it as a failure', async () => {
    assert.equal((await ropewalk(doubtful)).status, 0);
    const { status } = await ropewalk(doubtful, '--strict', '--junit', 'report.xml');
    assert.equal(status, 1);
    const report = readFileSync(join(folder, 'report.xml'), 'utf8');
    assert.match(report, /<testsuite name="ropewalk passport" tests="(\d)" failures="\1">/);
    assert.match(
      report,
      /<failure type="warning" message="[^<"]*rope_parameters[^<"]*">Write &quot;rope_theta&quot;: 500000\./,
    );
  });
  test('a stamp is held against the model later', async () => {
    assert.equal((await ropewalk(own, '--stamp', 'rope-passport.json')).status, 0);
    const stamp = JSON.parse(readFileSync(join(folder, 'rope-passport.json'), 'utf8'));
    assert.equal(stamp.form, 'rope-passport/1');
    assert.match(stamp.hash, /^[0-9a-f]{64}$/);
    assert.equal(
      (await ropewalk(join(MARLINE, 'model-q8_0.gguf'), '--stamp', 'rope-passport.json', '--check')).status,
      0,
    );
    const { status, stdout } = await ropewalk(other, '--stamp', 'rope-passport.json', '--check');
    assert.equal(status, 1);
    assert.match(stdout, /ERROR {3}rope-passport\.json: it was written for another RoPE/);
    // No stamp for a model with errors.
    const not = await ropewalk(own, other, '--stamp', 'none.json');
    assert.match(not.stdout, /^not stamped: mend the errors first$/m);
    assert.ok(!existsSync(join(folder, 'none.json')));
  });
  test('--text: the cost is that of two real runs', async () => {
    const text = file('text.txt', readFileSync(join(MARLINE, 'README.md'), 'utf8').slice(0, 400));
    const { stdout, status } = await ropewalk(
      MARLINE,
      other,
      '--text',
      text,
      '--svg',
      'cost.svg',
      '--json',
      '--threads',
      '1',
    );
    assert.equal(status, 1);
    const { cost, readings } = JSON.parse(stdout);
    assert.equal(readings.length, 2);
    const perplexityOf = async (model: string): Promise<number> => {
      const run = await ropewalkIn(folder, 'perplexity', text, '--model', model, '--json', '--threads', '1');
      return Math.log(JSON.parse(run.stdout).perplexity);
    };
    cpSync(MARLINE, join(folder, 'wrong'), { recursive: true });
    writeFileSync(join(folder, 'wrong/config.json'), readFileSync(join(folder, other)));
    const [right, wrong] = [await perplexityOf(MARLINE), await perplexityOf('wrong')];
    for (const [n, real] of [right, wrong].entries())
      assert.ok(Math.abs(cost.readings[n].mean - real) < 0.02 * real, `${cost.readings[n].mean} and ${real}`);
    assert.ok(Math.abs(right - wrong) > 1e-3);
    assert.equal(cost.readings[0].nats.at(-1).to, cost.tokens - 1);
    const svg = readFileSync(join(folder, 'cost.svg'), 'utf8');
    assert.equal(svg.match(/<polyline /g)!.length, 2);
    assert.doesNotMatch(svg, /NaN|Infinity/);
  });
  test('--estimate: a long text costs about as much by some of its tokens as by all', async () => {
    const text = file('long.txt', readFileSync(join(root, 'docs/glossary.md'), 'utf8').slice(0, 5000));
    const forms = [longer('long', {}), longer('long-other', { rope_theta: 100000 })];
    const costOf = async (...more: string[]) =>
      JSON.parse((await ropewalk(...forms, '--text', text, '-c', '4096', '--json', ...more)).stdout).cost;
    const [all, some] = [await costOf(), await costOf('--estimate')];
    assert.deepEqual([all.estimatedFrom, some.estimatedFrom], [undefined, 512]);
    for (const [n, { nats }] of all.readings.entries()) {
      const ends = nats.map(({ to }: { to: number }) => to);
      assert.ok(ends.length > 5);
      for (const [k, { to, mean }] of some.readings[n].nats.entries()) {
        assert.equal(to, ends[k]);
        // 256 tokens of a part are not like all of them: in the parts of this text the means of 256 differ by a quarter.
        const [real, share] = [nats[k].mean, to <= 512 ? 0 : 0.3];
        assert.ok(Math.abs(mean - real) <= share * real, `${to}: ${mean} and ${real}`);
      }
    }
  });
  test('--estimate: not where tokens that are left out would be missed', async () => {
    const windows = longer('windows', { model_type: 'mistral', sliding_window: 128 });
    const { status, stderr } = await ropewalk(windows, '--text', other, '--estimate');
    assert.equal(status, 2);
    assert.match(stderr, /--estimate: layers of this model see a window of tokens.* Leave it out\./);
  });
  test('wrong usage: exit 2 and the next step', async () => {
    const cases: [string[], RegExp][] = [
      [['nowhere.json'], /nowhere\.json: there is no such file/],
      [[own, '--check'], /--check: it needs --stamp FILE/],
      [[own, '--threads', '2'], /--threads: it needs --text FILE/],
      [[own, '--svg', 'cost.svg'], /--svg: it needs --text FILE/],
      [[own, '--serve', 'nginx -x'], /--serve: expected llama-server/],
      [[own, '--stamp', doubtful, '--check'], /doubtful\.json: form: expected a string|doubtful\.json.*form/],
    ];
    for (const [args, message] of cases) {
      const { status, stderr } = await ropewalk(...args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
    }
  });
});

describe('the GitHub Action', () => {
  const action = readFileSync(join(root, 'action.yml'), 'utf8');
  test('its last step runs the command on what the workflow names', { skip: process.platform === 'win32' }, () => {
    const [, block] = /run: \|\n((?: {8}.*\n)+)$/.exec(action) ?? assert.fail('action.yml ends on no script');
    const script = block!.replace(/^ {8}/gm, '');
    const run = (inputs: Record<string, string>) =>
      spawnSync('bash', ['-euo', 'pipefail', '-c', script], {
        cwd: folder,
        encoding: 'utf8',
        env: { ...process.env, GITHUB_ACTION_PATH: root, MODELS: '', SERVE: '', STRICT: '', JUNIT: '', ...inputs },
      });
    assert.equal(run({ MODELS: doubtful }).status, 0);
    const strict = run({ MODELS: `${doubtful}\n`, STRICT: 'true', JUNIT: 'action.xml' });
    assert.equal(strict.status, 1, strict.stderr);
    assert.ok(existsSync(join(folder, 'action.xml')));
    const served = run({ MODELS: `${own}\n`, SERVE: 'vllm --rope-theta 20000' });
    assert.match(served.stdout, /WARNING config\.json, vllm --rope-theta 20000: /);
  });
  test('its actions are pinned to commits', () => {
    for (const [, used] of action.matchAll(/uses: (\S+)/g)) assert.match(used!, /@[0-9a-f]{40}$/);
  });
});
