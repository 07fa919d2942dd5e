/**
 * `ropewalk harness`: each program as it is written, against all golden cases; those that cannot run here are checked
 * as far as they can be.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ROOT, ropewalkIn } from '../support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'harness-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
before(() => assert.equal(ropewalk('vectors', 'golden').status, 0));

/** Why a program cannot be run here, or false. */
const missing = (what: string, command: string, ...args: string[]): string | false =>
  spawnSync(command, args).status === 0 ? false : `no ${what} here`;
const cc = missing('C compiler (cc)', 'cc', '--version');
/** The distribution's Python, whose packages CI installs. */
const PYTHON = '/usr/bin/python3';
const without = (module: string) => missing(`python3-${module}`, PYTHON, '-c', `import ${module}`);

function run(command: string, ...args: string[]): void {
  const { status, stdout, stderr, error } = spawnSync(command, args, { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0, `${error ?? ''}${stdout}${stderr}`);
}

/** Verifies a program, and returns its lines. */
function verified(program: string, ...args: string[]): string {
  const { status, stdout, stderr } = ropewalk('verify', 'golden', '--program', program, ...args);
  assert.equal(status, 0, stdout + stderr);
  return stdout;
}

/** A program does every rope case, and says of the others that it has rope only. */
function assertEveryRope(lines: string): void {
  assert.match(lines, /\n {2}(\d+)\/\1 cases passed, 0 failed, \d+ skipped\n$/);
  const skipped = [...lines.matchAll(/^ {2}\S+: +skipped +(.*)$/gm)].map(([, why]) => why!);
  assert.deepEqual(
    skipped.filter((why) => !/^op \w+: this harness has rope only$/.test(why)),
    [],
  );
}

const C_FLAGS = ['-std=c99', '-Wall', '-Wextra', '-Werror', '-pedantic', '-O2'];

describe('a fresh harness passes every rope case', () => {
  test('c', { skip: cc }, () => {
    ropewalk('harness', 'c', '-o', 'rope.c');
    run('cc', ...C_FLAGS, 'rope.c', '-o', 'rope', '-lm');
    assertEveryRope(verified('./rope'));
  });

  test('js', () => {
    ropewalk('harness', 'js', '-o', 'rope.mjs');
    assertEveryRope(verified(`"${process.execPath}" rope.mjs`));
  });

  for (const [language, module] of [
    ['numpy', 'numpy'],
    ['torch', 'torch'],
  ] as const)
    test(language, { skip: without(module) }, () => {
      ropewalk('harness', language, '-o', `rope_${language}.py`);
      assertEveryRope(verified(`${PYTHON} rope_${language}.py`));
    });
});

describe('a kernel is pasted', () => {
  const page = readFileSync(join(ROOT, 'docs/verify.md'), 'utf8');
  const pasted = /```c\n([\s\S]*?)```/.exec(page)![1]!;
  /** The C harness with another rope(). */
  const paste = (kernel: string): void => {
    const text = ropewalk('harness', 'c').stdout;
    const [start, end] = [text.indexOf('/* PASTE'), text.indexOf('\n}\n', text.indexOf('/* PASTE')) + 3];
    writeFileSync(join(folder, 'mine.c'), text.slice(0, start) + kernel + text.slice(end));
    run('cc', ...C_FLAGS, 'mine.c', '-o', 'mine', '-lm');
  };

  test("the page's own, with angles in f32: it passes what it does, and skips the rest", { skip: cc }, () => {
    paste(pasted);
    const lines = verified('./mine', '--op', 'rope');
    assert.match(lines, /^ {2}llama-2-half: +OK .*angles f32$/m);
    assert.match(lines, /^ {2}gpt-j: +OK .*angles f32$/m);
    assert.match(lines, /^ {2}backward: +skipped +plain RoPE in f32 only$/m);
    const strict = ropewalk('verify', 'golden', '--program', './mine', '--case', 'phi-2', '--table', 'float64');
    assert.equal(strict.status, 1);
    assert.match(strict.stdout, /allowed: angles in float64 \(they keep those of f32\)/);
    const nothing = ropewalk('verify', 'golden', '--program', './mine', '--case', 'add-f16');
    assert.equal(nothing.status, 1, 'nothing compared is no success');
    assert.match(nothing.stdout, /nothing was compared: 1 skipped/);
  });

  test('a wrong one: the steps that `next:` gives lead to its name', { skip: cc }, () => {
    paste(pasted.replace('2 * j', 'j').replace(': 1)', ': r->rotaryDim / 2)'));
    const failed = ropewalk('verify', 'golden', '--program', './mine', '--case', 'gpt-j');
    assert.equal(failed.status, 1);
    const next = (text: string): string[] => /^ *next: ropewalk (.*)$/m.exec(text)![1]!.split(' ');
    const kept = ropewalk(...next(failed.stdout));
    const diagnosed = ropewalk(...next(kept.stdout));
    assert.match(diagnosed.stdout, /^KNOWN BUG: pairs-half-for-interleaved$/m);
  });
});

describe('the command', () => {
  test('lists every language with its commands', () => {
    const { status, stdout } = ropewalk('harness');
    assert.equal(status, 0);
    const { languages } = JSON.parse(ropewalk('harness', '--json').stdout);
    for (const { language, run: command } of languages) {
      assert.ok(stdout.includes(`  ${language} `) && stdout.includes(command), language);
      const { stdout: text } = ropewalk('harness', language);
      assert.ok(text.includes(command), `${language}: how it is run`);
      assert.doesNotMatch(text, /include "?(rope|protocol)\./, 'what it includes is in it');
    }
    const help = ropewalk('harness', '--help').stdout;
    for (const { language } of languages) assert.match(help, new RegExp(`\\b${language}\\b`));
  });

  test('writes a file, and replaces one only with --force', () => {
    const first = ropewalk('harness', 'numpy', '-o', 'k.py');
    assert.equal(first.stdout, 'k.py\n  ropewalk vectors golden\n  ropewalk verify golden --program "python3 k.py"\n');
    assert.equal(
      readFileSync(join(folder, 'k.py'), 'utf8'),
      ropewalk('harness', 'numpy').stdout.replaceAll('rope_numpy.py', 'k.py'),
    );
    const again = ropewalk('harness', 'numpy', '-o', 'k.py');
    assert.deepEqual([again.status, /^ropewalk: harness: .*k\.py.*exist/.test(again.stderr)], [2, true], again.stderr);
    assert.equal(ropewalk('harness', 'c', '-o', 'k.py', '--force').status, 0);
  });

  test('refuses a language that it does not have, and a name that would hide a module', () => {
    const { status, stderr } = ropewalk('harness', 'fortran');
    assert.equal(status, 2);
    assert.match(stderr, /^ropewalk: harness: language: expected c, .* or js, got "fortran"\n$/);
    const hidden = ropewalk('harness', 'torch', '-o', 'torch.py');
    assert.deepEqual(
      [hidden.status, hidden.stderr],
      [2, 'ropewalk: harness: -o: torch.py would hide the module that it imports. Call it rope_torch.py.\n'],
    );
    assert.match(ropewalk('harness', '-o', 'x.c').stderr, /-o: it needs a language: c, /);
  });
});
