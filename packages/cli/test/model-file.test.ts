/** The arguments that name a model, files and folders, and those that do not. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { modelFileOf } from '@ropewalk/formats/node';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { readRope } from '../src/rope-source.js';

const folder = mkdtempSync(join(tmpdir(), 'model-file-'));
after(() => rmSync(folder, { recursive: true }));
const marline = join(ROOT, 'models/marline');

/** A folder with empty files of these names. */
function folderWith(name: string, ...files: string[]): string {
  mkdirSync(join(folder, name));
  for (const file of files) writeFileSync(join(folder, name, file), '');
  return join(folder, name);
}

describe('a folder', () => {
  test('is the model that generate would run', () => {
    const pick = (...files: string[]): string => modelFileOf(folderWith(files.join('+') || 'empty', ...files));
    assert.match(pick('config.json', 'model.safetensors', 'a.gguf'), /\/config\.json$/);
    assert.match(pick('config.json'), /\/config\.json$/);
    assert.match(pick('config.json', 'a.gguf'), /\/a\.gguf$/);
    assert.match(pick('tokenizer.json', 'b.gguf'), /\/b\.gguf$/);
    const refused = (message: RegExp, ...files: string[]): void =>
      assert.throws(() => pick(...files), { code: 'FORMAT', message });
    refused(/empty: expected a folder with a config\.json or one \.gguf, got \[\]\. Give a folder with a model/);
    refused(/got \["a\.gguf", "b\.gguf"\]\. Give one of the \.gguf files itself\./, 'a.gguf', 'b.gguf');
  });

  test('is read by every command like its config.json', async () => {
    const config = join(marline, 'config.json');
    assert.deepEqual(await readModelRope(marline), await readModelRope(config));
    assert.deepEqual(await readRope(marline), await readRope(config));
  });

  test('says on the command line which file was read; diff takes one with a recipe behind it', async () => {
    const inspect = await ropewalkIn(join(ROOT, 'models'), 'inspect', 'marline');
    assert.equal(inspect.status, 0, inspect.stderr);
    assert.match(inspect.stdout, /^marline\/config\.json: llama, 4 layers/);
    const diff = await ropewalkIn(join(ROOT, 'models'), 'diff', 'marline', 'marline/model-q8_0.gguf@float64');
    assert.match(
      diff.stdout,
      /^A {2}marline: llama, 4 layers \(huggingface\)\nB {2}marline\/model-q8_0\.gguf@float64: llama, 4 layers \(gguf\)\n/,
    );
    assert.equal((await ropewalkIn(join(ROOT, 'models'), 'diff', 'marline', 'marline@float64')).status, 0);
  });
});

test('a pipe is refused at once, by every reader', async (t) => {
  for (const name of ['pipe.json', 'pipe.gguf']) {
    const path = join(folder, name);
    if (spawnSync('mkfifo', [path]).status !== 0) return t.skip('no mkfifo here');
    const refused = { code: 'FORMAT', message: /pipe\.(json|gguf): expected a regular file, got a pipe/ };
    await assert.rejects(readModelRope(path), refused);
    await assert.rejects(readRope(path), refused);
    assert.match(
      (await ropewalkIn(folder, 'perplexity', name)).stderr,
      /^ropewalk: perplexity: pipe\.\w+: expected a regular file, got a pipe/,
    );
  }
});

test('a missing file is reported as missing, whatever its name', async () => {
  const message = 'nosuch: there is no such file or folder';
  await assert.rejects(readModelRope('nosuch'), { code: 'FORMAT', message });
  await assert.rejects(readRope('nosuch'), { message });
});
