/**
 * How commands fail: one line with one prefix that names the flag as it was typed, and exit codes with one meaning
 * each.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Command } from 'commander';
import { RopewalkError } from 'ropewalk';
import { commandPath, ROOT, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';
import { failureOf } from '../src/failure.js';
import { createProgram } from '../src/program.js';

const folder = mkdtempSync(join(tmpdir(), 'failure-'));
after(() => rmSync(folder, { recursive: true }));
const node = [process.execPath, commandPath()] as const;
const config = join(folder, 'config.json');
writeFileSync(
  config,
  JSON.stringify({ model_type: 'llama', num_hidden_layers: 1, head_dim: 64, num_attention_heads: 4 }),
);

/** Returns the line that `generate` prints for an error with these options. */
function said(message: string, ...args: string[]): string {
  const command = createProgram().commands.find((one) => one.name() === 'generate')!;
  command.parseOptions(args);
  return failureOf(new RopewalkError('RANGE', message), command, args).text;
}

describe('the message', () => {
  test('the flag as it was typed, not the argument of the library', () => {
    assert.equal(
      said('sample: topP: expected a number in [0, 1], got 3', '--top-p', '3'),
      'ropewalk: generate: --top-p: expected a number in [0, 1], got 3',
    );
    assert.equal(
      said('generate: maxTokens: expected an integer >= 0, got -2', '-n', '-2'),
      'ropewalk: generate: -n: expected an integer >= 0, got -2',
    );
    assert.equal(
      said('m.gguf: context: expected an integer', '-c', '9'),
      'ropewalk: generate: -c: expected an integer',
    );
    assert.equal(
      said('sample: repetitionPenalty: no', '--repeat-penalty', '0'),
      'ropewalk: generate: --repeat-penalty: no',
    );
    assert.equal(said('--threads: no', '--threads', '0'), 'ropewalk: generate: --threads: no');
  });

  test('an argument that was not typed is not called a flag, and the prefix is printed once', () => {
    assert.equal(
      said('m.gguf: context: expected an integer'),
      'ropewalk: generate: m.gguf: context: expected an integer',
    );
    assert.equal(said('generate: prompt: expected a text'), 'ropewalk: generate: prompt: expected a text');
    assert.equal(said('a: b: threads: 3', '-t', '3'), 'ropewalk: generate: a: b: threads: 3');
  });

  test('an error of the system is explained, with code 2; a bug has its stack and code 3', () => {
    const system = Object.assign(new Error('x'), { code: 'ENOSPC', syscall: 'write' });
    assert.deepEqual(failureOf(system, new Command('check')), {
      exitCode: 2,
      code: 'SYSTEM',
      text: 'ropewalk: check: stdout: expected to be able to write, got a full disk',
    });
    const bug = failureOf(new TypeError('x is not a function'), new Command('check'));
    assert.equal(bug.exitCode, 3);
    assert.match(
      bug.text,
      /^ropewalk: check: a bug in ropewalk\. Please report it with these lines:\nTypeError: x is not a function\n +at /,
    );
  });

  test('with --json the error is on stdout too, as an object', async () => {
    for (const run of [ropewalkProcess, ropewalkIn]) {
      const { status, stdout, stderr } = await run(folder, 'inspect', 'none.json', '--json');
      assert.equal(status, 2);
      assert.equal(stderr, 'ropewalk: inspect: none.json: there is no such file or folder\n');
      assert.deepEqual(JSON.parse(stdout), { error: { code: 'FORMAT', message: stderr.trimEnd() } });
    }
  });
});

test('a closed pipe does not keep permute from writing its output', () => {
  const command = '"$@" | true; exit $PIPESTATUS'; // the first of them
  const args = ['permute', join(ROOT, 'models/marline'), join(folder, 'permuted'), '--to', 'interleaved'];
  const { status, stderr } = spawnSync('bash', ['-c', command, 'bash', ...node, ...args], { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, '']);
  assert.ok(existsSync(join(folder, 'permuted', 'model.safetensors')));
});

describe('where nothing can be written', () => {
  const skip = existsSync('/dev/full') ? false : 'no /dev/full here';
  test('stdout at /dev/full: one line and code 2', { skip }, () => {
    for (const args of [['inspect', config], ['inspect', config, '--json'], ['--help']]) {
      const full = openSync('/dev/full', 'w');
      const { status, stderr } = spawnSync(node[0], [...node.slice(1), ...args], {
        stdio: ['ignore', full, 'pipe'],
        encoding: 'utf8',
      });
      closeSync(full);
      assert.equal(status, 2, stderr);
      assert.match(stderr, /^ropewalk: (inspect: )?stdout: expected to be able to write, got a full disk\n$/);
    }
  });

  test('a folder in which nothing can be made', {
    skip: existsSync('/proc/self') ? false : 'no /proc here',
  }, async () => {
    for (const args of [
      ['vectors', '/proc/x'],
      ['convert', config, '--to', 'ggml', '--out', '/proc/x'],
      ['diagnose', '--demo', '--svg', '/proc/x.svg'],
    ]) {
      const { status, stdout, stderr } = await ropewalkIn(folder, ...args);
      assert.deepEqual([status, stdout], [2, '']);
      assert.match(stderr, /\/proc\/x.*: expected .*, got a folder that is not there, or that takes no files\n$/);
    }
  });

  test('vectors and convert onto a full disk: one line, code 2, nothing left', async (t) => {
    const disk = join(folder, 'disk');
    mkdirSync(disk);
    const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', disk], { encoding: 'utf8' });
    if (mounted.status !== 0)
      return t.skip(`no tmpfs can be mounted: ${mounted.stderr?.trim() || mounted.error?.message}`);
    try {
      const vectors = await ropewalkIn(disk, 'vectors', 'golden', '--dialect', 'ggml');
      assert.deepEqual([vectors.status, vectors.stdout], [2, '']);
      assert.match(
        vectors.stderr,
        /^ropewalk: vectors: golden: expected to be able to write, got a full disk\. Nothing was left there\.\n$/,
      );
      assert.deepEqual(readdirSync(disk), []);
      const convert = await ropewalkIn(
        disk,
        'convert',
        config,
        '--to',
        'onnx',
        '--table-len',
        '4096',
        '--out',
        'tables',
      );
      assert.deepEqual([convert.status, convert.stdout], [2, '']);
      assert.match(
        convert.stderr,
        /^ropewalk: convert: --out: tables: expected a folder that can be written, got a full disk\n$/,
      );
      assert.deepEqual(readdirSync(disk), []);
    } finally {
      spawnSync('umount', [disk]);
    }
  });
});
