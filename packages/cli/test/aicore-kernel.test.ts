/** An engineer's kernel in a file: docs/aicore-kernels.md as its reader follows it, and files that go wrong. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { FIXTURES } from '../../../test/support/fixtures.js';

const outside = mkdtempSync(join(tmpdir(), 'aicore-kernel-'));
after(() => rmSync(outside, { recursive: true }));
const folder = join(outside, 'own');
mkdirSync(folder);
writeFileSync(join(outside, 'outside.mjs'), 'export default 1;');
const page = readFileSync(join(ROOT, 'docs/aicore-kernels.md'), 'utf8');
const add = /```js\n(.*?)```/s.exec(page)![1]!;

/** Runs a kernel's file. */
function run(source: string, ...args: string[]) {
  writeFileSync(join(folder, 'my.mjs'), source);
  return ropewalkIn(folder, 'aicore', '--kernel', 'my.mjs', ...args);
}

/** The page's file, changed. */
function changed(...changes: [string, string][]): string {
  return changes.reduce((source, [from, to]) => {
    assert.ok(source.includes(from), from);
    return source.replace(from, to);
  }, add);
}

describe('the page', () => {
  // The times of a run are no subject of the page.
  const shown = (text: string) => text.replace(/: [\d,]+ cycles.*/, '').trimEnd();
  const outputs = [...page.matchAll(/```text\n(.*?)```/gs)].map(([, text]) => shown(text!));

  test('a vector-add works, as the page shows it', async () => {
    const { status, stdout, stderr } = await run(add, '--shape', '64,1024');
    assert.equal(status, 0, stderr);
    assert.equal(shown(stdout), outputs[0]);
  });

  test('AscendC out of it, or the reason why not', async () => {
    const emitted = await run(add, '--shape', '64,1024', '--emit', 'ascendc', '-o', 'add.cpp');
    assert.equal(emitted.status, 0, emitted.stderr);
    assert.match(emitted.stdout, /\n\nAscendC, not compiled with CANN: add\.cpp\n$/);
    const source = readFileSync(join(folder, 'add.cpp'), 'utf8');
    assert.match(source, /^\/\/ Not compiled by us with CANN\. /);
    assert.ok(source.includes(/```cpp\n(.*?)```/s.exec(page)![1]!), source);
    const scalar = changed([
      'zs, xs, ys, count);',
      "zs, xs, ys, count);\n c.Adds('odd', zs, zs, xs.GetValue('x', 0) * 2, 8);",
    ]);
    const refused = await run(scalar, '--shape', '64,1024', '--emit', 'ascendc', '-o', 'odd.cpp');
    assert.equal(refused.status, 1);
    assert.match(refused.stdout, /\n\nNo AscendC: my\.mjs: aicore: emit: odd: its scalar is no sum .*\n$/);
    assert.equal(existsSync(join(folder, 'odd.cpp')), false);
    for (const [args, message] of [
      [['--emit', 'ascendc'], /--emit: it needs -o FILE\.cpp/],
      [['-o', 'x.cpp'], /-o: it needs --emit ascendc/],
      [['--emit', 'cuda', '-o', 'x.cpp'], /--emit: expected ascendc/],
    ] as const) {
      const { status, stderr } = await run(add, ...args);
      assert.equal(status, 2);
      assert.match(stderr, message);
    }
    const none = await ropewalkIn(folder, 'aicore', '--emit', 'ascendc', '-o', 'x.cpp');
    assert.match(none.stderr, /--kernel: expected one of baseline, .* or a file such as my\.mjs, got "?all/);
  });

  test('an over-read', async () => {
    const { status, stdout } = await run(changed(['Math.min(TILE, end - at)', 'TILE']), '--shape', '10,1000');
    assert.equal(status, 1);
    assert.ok(shown(stdout).endsWith(outputs[1]!), stdout);
  });

  test('a race, and the barriers that mend it', async () => {
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
    const { status, stdout } = await run(race(''), '--shape', '64,1024');
    assert.equal(status, 1);
    assert.ok(shown(stdout).endsWith(outputs[2]!), stdout);
    assert.match((await run(race("c.PipeBarrier('V');"), '--shape', '64,1024')).stdout, /verdict +right\n/);
  });
});

describe('files that go wrong', () => {
  const small = ['--shape', '2,64'];

  test('a wrong result: the first wrong element', async () => {
    const { status, stdout } = await run(changed(['c.Add(', 'c.Sub(']), ...small);
    assert.equal(status, 1);
    assert.match(stdout, /first wrong +row 0, element 0: .* is exact and .* off is allowed\n.*findings +none/s);
    assert.match(stdout, /verdict +wrong: 2 of 2 rows/);
  });

  test('an error is shown with its line', async () => {
    const { status, stdout } = await run(changed(['c.Add(', 'c.Ad(']), ...small);
    assert.equal(status, 1);
    assert.match(stdout, /^vector-add: my\.mjs:37:9: TypeError: c\.Ad is not a function\n$/);
  });

  test('what the model refuses is shown with its line', async () => {
    const { stdout } = await run(changed(['zs, xs, ys, count', 'zs, xs, ys, 0.5']), ...small);
    assert.match(
      stdout,
      /^vector-add: my\.mjs:37:9: aicore: Add: count: expected an integer in \[0, 196608\], got 0\.5\n$/,
    );
  });

  test('a loop that never ends is stopped', async () => {
    const { status, stdout } = await run(changed(['const total', 'while (true);\n    const total']), '--timeout', '2');
    assert.equal(status, 1);
    assert.match(stdout, /my\.mjs: the kernel did not end within 2 s \(--timeout\): it was stopped\n$/);
  });

  test('a kernel that hangs, or does nothing, has no time and no advice', async () => {
    const hangs = await run(changed(["      inX.EnQue('copyIn: inX.EnQue()', xIn);\n", '']), ...small);
    assert.equal(hangs.status, 1);
    assert.match(hangs.stdout, /^vector-add: hangs; 8 blocks.*verdict +hangs\n$/ms);
    const idle = await run(changed(['const total', 'return;\n    const total']), ...small);
    assert.match(idle.stdout, /^vector-add: did nothing; 8 blocks.*verdict +did nothing\n$/ms);
    for (const { stdout } of [hangs, idle]) assert.doesNotMatch(stdout, /µs|bottleneck/);
    const json = (await run(changed(['const total', 'return;\n    const total']), ...small, '--json')).stdout;
    const [ran] = (JSON.parse(json) as { kernels: Record<string, unknown>[] }).kernels;
    assert.deepEqual([ran!.outcome, ran!.microseconds, ran!.bottleneck], ['did nothing', undefined, undefined]);
  });

  test('no globals but those of JavaScript, no code from strings', async () => {
    const attempts = ['fetch', 'process', 'require', 'WebSocket', 'SharedArrayBuffer.x'];
    const tried = attempts.map((code) => `try { console.log(typeof (${code})); } catch { console.log('undefined'); }`);
    const { stderr } = await run(
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
      /a kernel may import '@ropewalk\/ascend' and \.js and \.mjs files in its own folder or below, by '\.\/…', not 'node:net'/,
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
    ['a loop while it loads', 'for (;;);', /loading it did not end within 1 s \(--timeout\): it was stopped/],
  ];
  for (const [name, source, message] of unloaded) {
    test(`not loaded: ${name}`, async () => {
      const { status, stderr } = await run(source, ...(name === 'a loop while it loads' ? ['--timeout', '1'] : []));
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
    test(`refused: ${name}`, async () => {
      const { status, stderr } = await run(add, ...args);
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

/**
 * A kernel that is a program: it takes `process` from the realm of the model, which Node's contexts do not prevent, and
 * tries what a program can. Each attempt prints what it got.
 */
describe('what holds a kernel is its process', () => {
  const secret = join(outside, 'secret.txt');
  writeFileSync(secret, 'secret');
  writeFileSync(join(folder, 'beside.txt'), 'secret');
  const written = join(folder, 'written-by-a-kernel');
  const reached = `import { launchKernel } from '@ropewalk/ascend';
    const P = launchKernel.constructor('return process')();
    const node = (name) => P.getBuiltinModule('node:' + name);
    const get = (name, f) => { try { console.log(name, f()); } catch (e) { console.log(name, 'refused', e.code); } };
  `;
  const ok =
    "export default { name: 'x', operator: 'add', dtypes: ['f32'], arguments: { x: 'a', y: 'b', z: 'out' }, blocks: 1, kernel() {} };";
  const attempts: Readonly<Record<string, string>> = {
    'read a file': `node('fs').readFileSync(${JSON.stringify(secret)}, 'utf8')`,
    'read beside': `node('fs').readFileSync(${JSON.stringify(join(folder, 'beside.txt'))}, 'utf8')`,
    'read itself as a file': `node('fs').readFileSync(${JSON.stringify(join(folder, 'my.mjs'))}, 'utf8').length`,
    write: `node('fs').writeFileSync(${JSON.stringify(written)}, 'x')`,
    'a program': "node('child_process').execSync('id')",
    'a thread': "new (node('worker_threads').Worker)('1', { eval: true })",
    binding: "P.binding('fs')",
    addon: `P.dlopen({ exports: {} }, ${JSON.stringify(join(outside, 'x.node'))})`,
    inspector: "new (node('inspector').Session)().connect()",
    wasi: "new (node('wasi').WASI)({ version: 'preview1', preopens: { '/': '/' } })",
    report: `P.report.writeReport(${JSON.stringify(written)})`,
    heap: `node('v8').writeHeapSnapshot(${JSON.stringify(written)})`,
    'a module': `node('module').createRequire(${JSON.stringify(join(outside, 'x.js'))})('./outside.mjs')`,
  };

  test('no files, programs, threads, addons, inspector', async () => {
    const lines = Object.entries(attempts).map(([name, code]) => `get(${JSON.stringify(name)}, () => ${code});`);
    const { stderr } = await run(`${reached}${lines.join('\n')}\n${ok}`);
    const said = stderr.trim().split('\n');
    assert.equal(said.length, lines.length, stderr);
    for (const [n, name] of Object.keys(attempts).entries())
      assert.match(said[n]!, new RegExp(`^${name} refused ERR_(ACCESS_DENIED|DLOPEN_DISABLED)$`));
    assert.ok(!existsSync(written));
  });

  test('no environment, no open files, no channel of the command', async () => {
    const { stderr } = await run(
      `${reached} get('environment', () => JSON.stringify(P.env)); get('channel', () => P.send);
       const open = [];
       for (let fd = 3; fd < 64; fd++) try { if (!node('fs').fstatSync(fd).isFIFO()) open.push(fd); } catch {}
       const inherited = open.filter((fd) => { try { return node('fs').fstatSync(fd).isFile(); } catch { return false; } });
       get('files', () => JSON.stringify(inherited)); ${ok}`,
    );
    assert.deepEqual(stderr.trim().split('\n'), ['environment {}', 'channel undefined', 'files []']);
  });

  test('import() is refused', async () => {
    const { stderr } = await run(
      `${reached} for (const name of ['node:fs', ${JSON.stringify(join(outside, 'outside.mjs'))}])
         await import(name).then(() => console.log('imported'), (e) => console.log(e.code)); ${ok}`,
    );
    assert.deepEqual(new Set(stderr.trim().split('\n')), new Set(['ERR_VM_DYNAMIC_IMPORT_CALLBACK_MISSING']));
  });

  test('files that are not JavaScript are not given, nor what a link names outside', async () => {
    symlinkSync(join(outside, 'outside.mjs'), join(folder, 'link.mjs'));
    for (const name of ['./beside.txt', './link.mjs']) {
      const { status, stderr } = await run(`import '${name}'; ${ok}`);
      assert.equal(status, 2);
      assert.match(stderr, /files in its own folder or below, by '\.\/…', not/);
    }
    writeFileSync(join(folder, 'good.mjs'), "export { value } from './deep/more.js';");
    mkdirSync(join(folder, 'deep'));
    writeFileSync(join(folder, 'deep/more.js'), "import '../good.mjs'; export const value = 'imported';");
    const { stderr } = await run(
      `import { value } from './good.mjs'; import './deep/more.js'; console.log(value); ${ok}`,
    );
    assert.equal(stderr, 'imported\n');
  });

  test('the escape by an inherited signal and noDeprecation reaches nothing', async () => {
    const { stderr } = await run(readFileSync(join(FIXTURES, 'repro/aicore/escape.mjs.txt'), 'utf8'));
    assert.doesNotMatch(stderr, /a file:|the environment:|a program:/);
  });

  test('prepareStackTrace and listeners of the outer realm reach the same process', async () => {
    const { stderr } = await run(
      `${reached} const E = launchKernel.constructor('return Error')();
       E.prepareStackTrace = (_, sites) => { for (const site of sites) site.getThis?.(); return 'stack'; };
       get('stack', () => new E('x').stack);
       P.on('exit', () => get('at the end', () => node('fs').readFileSync(${JSON.stringify(secret)}, 'utf8')));
       P.exit(3); ${ok}`,
    );
    assert.match(stderr, /at the end refused ERR_ACCESS_DENIED/);
    assert.match(stderr, /my\.mjs: loading it ended its process \(exit code 3\)/);
  });

  const liars: [string, string, number, RegExp][] = [
    [
      'a flood',
      'for (const text = "x".repeat(2 ** 20); ; ) try { node("fs").writeSync(1, text); } catch {}',
      2,
      /loading it wrote into the pipe of its report, or too much/,
    ],
    ['a line that is no JSON', 'P.stdout.write("hello\\n"); for (;;);', 2, /wrote into the pipe of its report/],
    ['null', 'P.stdout.write("null\\n"); for (;;);', 2, /wrote into the pipe of its report/],
    [
      'a declaration of nothing',
      `P.stdout.write('{"kind":"declared"}\\n'); for (;;);`,
      2,
      /answered "declared", which was not asked/,
    ],
    [
      'a wish for a file',
      `P.stdout.write(JSON.stringify({ kind: 'want', specifier: './secret.txt', from: ${JSON.stringify(join(outside, 'x.mjs'))} }) + '\\n'); await new Promise(() => {});`,
      2,
      /waits for ever/,
    ],
  ];
  for (const [name, code, status, message] of liars) {
    test(`a process that lies: ${name}`, async () => {
      const ran = await run(`${reached}${code}\n${ok}`, '--timeout', '30');
      assert.equal(ran.status, status, ran.stderr);
      assert.match(ran.stderr, message);
    });
  }

  test('a heap that is full, a death', async () => {
    const death = await run(`${reached} P.kill(P.pid, 'SIGKILL'); for (;;); ${ok}`);
    assert.match(death.stderr, /loading it ended its process \(SIGKILL\)/);
  });
});

test('rope of a model, and a kernel that comes with the tool', async () => {
  const spec =
    "export default { name: 'none', operator: 'rope', dtypes: ['f16'], blocks: 1, arguments: { q: 'x', c: 'cos', s: 'sin', p: 'positions', y: 'out' }, kernel(c, a) { console.log(a.pairing, a.dim, a.rotaryDim); } };";
  const line = 'ROPE(type=f32,ne_a=[80,32,10,1],n_dims=20,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';
  const { status, stderr } = await run(spec, '--rope', line);
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
