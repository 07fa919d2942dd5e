import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ropewalkIn } from '../../../test/support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'aicore-'));
after(() => rmSync(folder, { recursive: true }));
const aicore = (...args: string[]) => ropewalkIn(folder, 'aicore', ...args);

describe('aicore', () => {
  test('all three kernels: cycles by queue, bytes, buffers, the faults of the baseline with their lines, ratios', async () => {
    const { status, stdout, stderr } = await aicore('--shape', '2,4,2,128', '--batch-positions');
    assert.equal(status, 0, stderr);
    for (const kernel of ['baseline', 'correct', 'fast'])
      assert.match(stdout, new RegExp(`^${kernel}: [\\d,]+ cycles, modelled [\\d.]+ µs \\(extrapolated\\); `, 'm'));
    assert.match(stdout, /rows +8 of 16 written/);
    assert.match(stdout, /coverage.*8 of 16 rows of y were never written/);
    assert.match(stdout, /4 of 8 elements of positions were never read/);
    assert.match(stdout, /1024 of 2048 elements of x were never read/);
    assert.match(stdout, /bottleneck +S is busy \d+ % of the slowest block, \d+ % of that in "compute: merge/);
    assert.match(stdout, /2 × 256 +TQue VECIN +_in_que/);
    assert.equal([...stdout.matchAll(/rows +16 of 16 written, 16 right/g)].length, 2);
    assert.equal([...stdout.matchAll(/findings +none/g)].length, 2);
    assert.match(stdout, /^ {2}fast +[\d.]+ +[\d.]+×$/m);
  });

  test('JSON says the same, and a kernel with faults alone exits with 1', async () => {
    const { status, stdout } = await aicore('--shape', '1,2,2,128', '--kernel', 'baseline', '--json');
    assert.equal(status, 1);
    const { kernels } = JSON.parse(stdout) as {
      kernels: { kernel: string; findings: { line: string }[]; busy: Record<string, number> }[];
    };
    assert.deepEqual(
      kernels.map(({ kernel }) => kernel),
      ['baseline'],
    );
    assert.ok(kernels[0]!.findings.every(({ line }) => line.startsWith('copyIn: DataCopy(')));
    assert.ok(kernels[0]!.busy.S! > 5 * kernels[0]!.busy.V!);
  });

  test('the fast kernel takes at least five times fewer cycles a row than the baseline, at f16 and head_dim 128', async () => {
    const { stdout } = await aicore('--shape', '1,32,32,128', '--json');
    const { kernels } = JSON.parse(stdout) as { kernels: { kernel: string; cyclesPerRow: number }[] };
    const [baseline, , fast] = kernels;
    assert.ok(baseline!.cyclesPerRow > 5 * fast!.cyclesPerRow, `${baseline!.cyclesPerRow} ${fast!.cyclesPerRow}`);
  });

  test('--search prints what it tried, the best, and what limits it; --calibration the device rows', async () => {
    const found = await aicore('--shape', '4,4,64', '--search');
    assert.equal(found.status, 0);
    assert.match(found.stdout, /^ {2}fast's own choice +[\d,]+ cycles$/m);
    assert.match(found.stdout, /^best of \d+: .*, [\d,]+ cycles; [\d.]+ % faster than its own choice$/m);
    assert.match(found.stdout, /^limit: [\d,]+ cycles/m);
    const { stdout } = await aicore('--calibration');
    assert.match(stdout, /^within ±35 %: 13 of 13, the worst off by 22 %$/m);
    const page = readFileSync(new URL('../../../docs/aicore.md', import.meta.url), 'utf8');
    for (const line of stdout.split('\n').slice(1, -2)) assert.ok(page.includes(line), `the page has: ${line}`);
  });

  test('a tiling is for one kernel, and for one that has the parameter', async () => {
    const refused = async (...args: string[]) => (await aicore('--shape', '4,4,64', ...args)).stderr;
    assert.match(await refused('--blocks', '2'), /--kernel: --blocks, --tile and --buffers cut the work of one kernel/);
    assert.match(await refused('--kernel', 'fast', '--tile', '5'), /--tile: expected an integer in \[1, 4\], got 5/);
    assert.match(
      await refused('--kernel', 'correct', '--tile', '2'),
      /--tile: the correct kernel has no such parameter/,
    );
  });

  test("--chip takes CANN's own names", async () => {
    const chipOf = async (...args: string[]) =>
      (await aicore('--shape', '1,1,8', '--kernel', 'fast', ...args)).stdout.split('\n')[0];
    assert.equal(await chipOf('--chip', 'Ascend910B4'), await chipOf('--chip', '910B4'));
    assert.match((await chipOf('--chip', 'Ascend910B4'))!, /Ascend 910B4 at 1\.5 GHz/);
  });

  test('what the baseline does not take is said, and the others run', async () => {
    const { status, stdout } = await aicore(
      '--shape',
      '3,2,64',
      '--dtype',
      'bf16',
      '--pairing',
      'half',
      '--rotary-dim',
      '32',
    );
    assert.equal(status, 0);
    assert.match(stdout, /baseline: not run, as it takes f16 and f32/);
    assert.equal([...stdout.matchAll(/6 of 6 written, 6 right/g)].length, 2);
  });

  test('timelines are written whole, and nothing else is left beside them', async () => {
    const { status, stderr } = await aicore(
      '--shape',
      '1,4,2,128',
      '--kernel',
      'fast',
      '--svg',
      't.svg',
      '--trace',
      't.json',
    );
    assert.equal(status, 0, stderr);
    assert.deepEqual(readdirSync(folder).sort(), ['t.json', 't.svg']);
    assert.match(readFileSync(join(folder, 't.svg'), 'utf8'), /^<svg .*<\/svg>\n$/s);
    assert.ok(
      (JSON.parse(readFileSync(join(folder, 't.json'), 'utf8')) as { traceEvents: unknown[] }).traceEvents.length > 20,
    );
  });

  const refusals: [string, string[], RegExp][] = [
    ['a shape that is none', ['--shape', '2,x'], /--shape: expected an integer in \[1, /],
    ['an odd head_dim', ['--shape', '1,1,1,7'], /--rotary-dim: expected an even integer in \[2, head_dim=7\], got 7/],
    ['too large a shape', ['--shape', '4096,4096,32,128'], /--shape: expected at most 67108864 elements/],
    ['f64', ['--dtype', 'f64'], /--dtype: expected f16, bf16 or f32, got "f64". The vector unit has no f64 arithmetic/],
    [
      'a kernel that is none',
      ['--kernel', 'slow'],
      /--kernel: expected baseline, correct, fast, infinicore-gptj, infinicore-neox, add, rms_norm, swiglu, softmax, all, or a file such as my.mjs, got "slow"/,
    ],
    ['a chip that is none', ['--chip', '310'], /--chip: expected 910B1, .* or 910_9392, got "310"/],
    ['a timeline of all kernels', ['--svg', 'x.svg'], /--kernel: --svg and --trace draw one kernel/],
    [
      'tables past all memory',
      ['--shape', '1,1,2048', '--table-len', '16777216'],
      /--table-len: expected an integer in \[1, 65536\]/,
    ],
    [
      'a drawing that ends before it starts',
      ['--shape', '1,1,8', '--kernel', 'fast', '--svg', 'x.svg', '--to-cycle', '9'],
      /--to-cycle: expected a cycle > /,
    ],
    [
      'tables that are too short',
      ['--shape', '9,1,8', '--table-len', '4'],
      /--table-len: expected an integer in \[9, /,
    ],
    [
      'the baseline with halves',
      ['--kernel', 'baseline', '--pairing', 'half', '--shape', '1,1,8'],
      /--kernel: the baseline kernel rotates interleaved pairs \(GPT-J\) only/,
    ],
    [
      'halves only',
      ['--kernel', 'infinicore-neox', '--shape', '1,1,8'],
      /the infinicore-neox kernel rotates halves \(GPT-NeoX\) only\. Give --pairing half\./,
    ],
    ['--calibration of a chip', ['--calibration', '--chip', '910B3'], /--chip: it does not apply to --calibration/],
    [
      'a file in no folder',
      ['--shape', '1,1,8', '--kernel', 'fast', '--svg', 'no/where.svg'],
      /--svg: no\/where\.svg: there is no folder no\. Make it first\.\n$/,
    ],
  ];
  for (const [name, args, message] of refusals) {
    test(`refused: ${name}`, async () => {
      const { status, stderr } = await aicore(...args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
    });
  }
});
