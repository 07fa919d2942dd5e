/** An engineer's kernel in a file: docs/aicore-kernels.md as its reader follows it, and files that go wrong. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT, ropewalkIn, ropewalkProcess } from '../support/command.js';

const outside = mkdtempSync(join(tmpdir(), 'aicore-kernel-'));
after(() => rmSync(outside, { recursive: true }));
const folder = join(outside, 'own');
mkdirSync(folder);
writeFileSync(join(outside, 'outside.mjs'), 'export default 1;');
const page = readFileSync(join(ROOT, 'docs/aicore-kernels.md'), 'utf8');
const add = /```js\n(.*?)```/s.exec(page)![1]!;

/** Runs a kernel's file. As a process: the thread of the kernel takes the loader of the process that starts it. */
function run(source: string, ...args: string[]) {
  writeFileSync(join(folder, 'my.mjs'), source);
  return ropewalkProcess(folder, 'aicore', '--kernel', 'my.mjs', ...args);
}

/** The page's file, changed. */
function changed(...changes: [string, string][]): string {
  return changes.reduce((source, [from, to]) => {
    assert.ok(source.includes(from), from);
    return source.replace(from, to);
  }, add);
}

describe('the page', () => {
  // What the time of a run is, is not the page's subject.
  const shown = (text: string) => text.replace(/: [\d,]+ cycles.*/, '').trimEnd();
  const outputs = [...page.matchAll(/```text\n(.*?)```/gs)].map(([, text]) => shown(text!));

  test('a vector-add works, as the page shows it', () => {
    const { status, stdout, stderr } = run(add, '--shape', '64,1024');
    assert.equal(status, 0, stderr);
    assert.equal(shown(stdout), outputs[0]);
  });

  test('an over-read', () => {
    const { status, stdout } = run(changed(['Math.min(TILE, end - at)', 'TILE']), '--shape', '10,1000');
    assert.equal(status, 1);
    assert.ok(shown(stdout).endsWith(outputs[1]!), stdout);
  });

  test('a race, and the barriers that mend it', () => {
    const race = (barrier: string) =>
      changed(
        ['blocks: 8,', 'blocks: 8, autoSync: false,'],
        ['    for (let at', "    const tmp = c.pipe.InitTBuf('tmp', TILE * size).Get(dtype);\n    for (let at"],
        [
          "c.Add('compute: Add(z, x, y)', zs, xs, ys, count);",
          `${barrier}c.Add('compute: Add(tmp, x, y)', tmp, xs, ys, count);
           ${barrier}c.Muls('compute: Muls(z, tmp, 1)', zs, tmp, 1, count);`,
        ],
      );
    const { status, stdout } = run(race(''), '--shape', '64,1024');
    assert.equal(status, 1);
    assert.ok(shown(stdout).endsWith(outputs[2]!), stdout);
    assert.match(run(race("c.PipeBarrier('V');"), '--shape', '64,1024').stdout, /verdict +right\n/);
  });
});

describe('files that go wrong', () => {
  const small = ['--shape', '2,64'];

  test('a wrong result: the first wrong element', () => {
    const { status, stdout } = run(changed(['c.Add(', 'c.Sub(']), ...small);
    assert.equal(status, 1);
    assert.match(stdout, /first wrong +row 0, element 0: .* is exact and .* off is allowed\n.*findings +none/s);
    assert.match(stdout, /verdict +wrong: 2 of 2 rows/);
  });

  test('an error is shown with its line', () => {
    const { status, stdout } = run(changed(['c.Add(', 'c.Ad(']), ...small);
    assert.equal(status, 1);
    assert.match(stdout, /^vector-add: my\.mjs:37:9: TypeError: c\.Ad is not a function\n$/);
  });

  test('what the model refuses is shown with its line', () => {
    const { stdout } = run(changed(['zs, xs, ys, count', 'zs, xs, ys, 0.5']), ...small);
    assert.match(stdout, /^vector-add: my\.mjs:37:9: aicore: count: expected an integer >= 0, got 0\.5\n$/);
  });

  test('a loop that never ends is stopped, at its line', () => {
    const { status, stdout } = run(changed(['const total', 'while (true);\n    const total']), '--timeout', '2');
    assert.equal(status, 1);
    assert.match(stdout, /my\.mjs: the kernel did not end within 2 s \(--timeout\): it was stopped, at my\.mjs:12\n$/);
  });

  test('a kernel that hangs, or does nothing, has no time and no advice', () => {
    const hangs = run(changed(["      inX.EnQue('copyIn: inX.EnQue()', xIn);\n", '']), ...small);
    assert.equal(hangs.status, 1);
    assert.match(hangs.stdout, /^vector-add: hangs; 8 blocks.*verdict +hangs\n$/ms);
    const idle = run(changed(['const total', 'return;\n    const total']), ...small);
    assert.match(idle.stdout, /^vector-add: did nothing; 8 blocks.*verdict +did nothing\n$/ms);
    for (const { stdout } of [hangs, idle]) assert.doesNotMatch(stdout, /µs|bottleneck/);
    const json = run(changed(['const total', 'return;\n    const total']), ...small, '--json').stdout;
    const [ran] = (JSON.parse(json) as { kernels: Record<string, unknown>[] }).kernels;
    assert.deepEqual([ran!.outcome, ran!.microseconds, ran!.bottleneck], ['did nothing', undefined, undefined]);
  });

  test('no network, no Node, no code from strings', () => {
    const attempts = ['fetch', 'process', 'require', 'WebSocket', 'c.constructor.constructor("return process")()'];
    const tried = attempts.map((code) => `try { console.log(typeof (${code})); } catch { console.log('undefined'); }`);
    const { stderr } = run(
      changed(['const total', `${tried.join(' ')} try { eval('1'); console.log('eval'); } catch {}\nconst total`]),
      ...small,
    );
    const lines = stderr.trim().split('\n');
    assert.deepEqual(lines, Array(attempts.length * 8).fill('undefined'));
  });

  const unloaded: [string, string, RegExp][] = [
    [
      'a module of Node',
      `import 'node:net';\n${add}`,
      /a kernel may import '@ropewalk\/ascend' and files in its own folder or below, by '\.\/…', not 'node:net'/,
    ],
    ['a syntax error', 'const a = 1;\nlet b = ;\n', /my\.mjs:2: SyntaxError: Unexpected token ';'/],
    [
      'a top level that never settles',
      'await new Promise(() => {});\nexport default {};',
      /my\.mjs: loading it waits for ever: it awaits a promise that nothing settles\. It was stopped/,
    ],
    [
      'a file of another folder',
      "import '../outside.mjs';",
      /files in its own folder or below, by '\.\/…', not '\.\.\/outside\.mjs'/,
    ],
    ['an async kernel', add.replace('kernel(c', 'async kernel(c'), /kernel: expected a function that is synchronous/],
    ['no kernel', 'export const x = 1;', /kernel: expected an object \{ name, operator, dtypes, arguments, kernel \}/],
    [
      'a loop while it loads',
      'for (;;);',
      /loading it did not end within 1 s \(--timeout\): it was stopped, at my\.mjs:1/,
    ],
  ];
  for (const [name, source, message] of unloaded) {
    test(`not loaded: ${name}`, () => {
      const { status, stderr } = run(source, ...(name === 'a loop while it loads' ? ['--timeout', '1'] : []));
      assert.equal(status, 2);
      assert.match(stderr, message);
    });
  }

  const refusals: [string, string[], RegExp][] = [
    [
      'a dtype that the kernel does not take',
      ['--dtype', 'bf16'],
      /--dtype: expected a dtype of vector-add: f16, f32, got "bf16"/,
    ],
    ['an option of rope', ['--pairing', 'half'], /--pairing: vector-add computes add\. Leave it out/],
    ['too many elements', ['--shape', '65536,65536'], /--shape: expected at most 67108864 elements/],
  ];
  for (const [name, args, message] of refusals) {
    test(`refused: ${name}`, () => {
      const { status, stderr } = run(add, ...args);
      assert.equal(status, 2);
      assert.match(stderr, message);
    });
  }

  test('refused: a file that is not there, and --timeout without a file', async () => {
    assert.match(
      (await ropewalkIn(folder, 'aicore', '--kernel', './none.mjs')).stderr,
      /--kernel: \.\/none\.mjs: .*no such file/i,
    );
    assert.match((await ropewalkIn(folder, 'aicore', '--timeout', '1')).stderr, /--timeout: it needs --kernel FILE/);
  });
});

test('rope of a model, and a kernel that comes with the tool', async () => {
  const spec =
    "export default { name: 'none', operator: 'rope', dtypes: ['f16'], blocks: 1, arguments: { q: 'x', c: 'cos', s: 'sin', p: 'positions', y: 'out' }, kernel(c, a) { console.log(a.pairing, a.dim, a.rotaryDim); } };";
  const line = 'ROPE(type=f32,ne_a=[80,32,10,1],n_dims=20,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';
  const { status, stderr } = run(spec, '--rope', line);
  assert.deepEqual([status, stderr], [1, 'half 80 20\n']);
  const { status: shipped, stdout } = await ropewalkIn(
    folder,
    'aicore',
    '--kernel',
    'softmax',
    '--shape',
    '4,100',
    '--json',
  );
  const { kernels } = JSON.parse(stdout) as { kernels: { kernel: string; right: number }[] };
  assert.deepEqual([shipped, kernels.map(({ kernel, right }) => [kernel, right])], [0, [['softmax', 4]]]);
});
