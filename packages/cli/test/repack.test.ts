/** `ropewalk to-gguf` and `ropewalk to-safetensors`, as a user runs them; packages/model/test/repack.test.ts has the files. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'repack-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
const marline = join(ROOT, 'models/marline');

describe('to-gguf and to-safetensors', () => {
  test('a folder becomes a GGUF and a folder again, which write the same text', async () => {
    const made = await ropewalk('to-gguf', marline, '-o', 'm.gguf', '--type', 'q8_0');
    assert.equal(made.status, 0, made.stderr);
    assert.equal(
      made.stdout,
      'llama, 4 layers: 1.88 MB in 29 of Q8_0, 6.91 kB in 9 of F32\n' +
        '  rows of q and k are in the order of the new pairing\n' +
        'Wrote m.gguf, 1,911,776 bytes, and read every tensor back.\n',
    );
    const back = await ropewalk('to-safetensors', 'm.gguf', '-o', 'm');
    assert.equal(back.status, 0, back.stderr);
    assert.match(back.stdout, /^llama, 4 layers: 3\.54 MB in 29 of F16, 6\.91 kB in 9 of F32\n/);
    assert.match(
      back.stdout,
      /\n {2}model\.safetensors +3,549,888 bytes\nWrote m, [\d,]+ bytes, and read every tensor back\.\n$/,
    );
    const texts = [];
    for (const model of ['m.gguf', 'm'])
      texts.push(
        (await ropewalk('generate', 'Call me Ishmael.', '-m', model, '--temp', '0', '-n', '12', '-b', 'cpu')).stdout,
      );
    assert.match(texts[0]!, /^Call me Ishmael\. \w+/);
    assert.equal(texts[0], texts[1]);
  });

  test('--json, --force, --no-vocabulary', async () => {
    const options = ['-o', 'j.gguf', '--json', '--no-vocabulary', '--type', 'q4_0'];
    const { status, stdout, stderr } = await ropewalk('to-gguf', marline, ...options);
    assert.equal(status, 0, stderr);
    const { types, ...rest } = JSON.parse(stdout);
    assert.deepEqual(rest, {
      out: 'j.gguf',
      architecture: 'llama',
      files: [{ name: 'j.gguf', sizeBytes: rest.files[0].sizeBytes }],
      permuted: true,
      notes: [],
    });
    assert.deepEqual(
      types.map(({ type }: { type: string }) => type),
      ['Q4_0', 'Q8_0', 'F32'],
    );
    assert.equal((await ropewalk('to-gguf', marline, ...options)).status, 2);
    assert.equal((await ropewalk('to-gguf', marline, ...options, '--force')).status, 0);
    const bare = await ropewalk('to-safetensors', 'j.gguf', '-o', 'bare', '--type', 'bf16', '--json');
    assert.equal(bare.status, 0, bare.stderr);
    assert.match(JSON.parse(bare.stdout).notes.join(), /There are no tokenizer files/);
    assert.equal(existsSync(join(folder, 'bare/tokenizer.json')), false);
  });

  test('a folder may be named after a model and its type', async () => {
    const out = join(folder, 'marline.Q8_0');
    const { status } = await ropewalk('to-safetensors', join(marline, 'model-q8_0.gguf'), '-o', out);
    assert.deepEqual([status, existsSync(join(out, 'config.json'))], [0, true]);
  });

  const refusals: [args: string[], message: RegExp][] = [
    [['to-gguf', marline], /required option '-o, --out <file>' not specified/],
    [
      ['to-gguf', marline, '-o', 'x.gguf', '--type', 'q4_k_m'],
      /--type: expected f32, f16, bf16, q8_0 or q4_0, got "q4_k_m"/,
    ],
    [['to-gguf', join(marline, 'model-q8_0.gguf'), '-o', 'x.gguf'], /it is a GGUF already\. Give a folder/],
    [['to-gguf', 'nowhere', '-o', 'x.gguf'], /nowhere: there is no such file or folder/],
    [
      ['to-safetensors', join(marline, 'model-q8_0.gguf'), '-o', 'x.safetensors'],
      /-o: expected the name of a folder, got/,
    ],
    [
      ['to-safetensors', join(marline, 'model-q8_0.gguf'), '-o', 'x', '--type', 'q8_0'],
      /--type: expected f32, f16 or bf16/,
    ],
  ];
  for (const [args, message] of refusals)
    test(`exit 2, and nothing is written: ${args.join(' ').replaceAll(ROOT, '')}`, async () => {
      const before = readdirSync(folder).sort();
      const { status, stdout, stderr } = await ropewalk(...args);
      assert.deepEqual([status, stdout], [2, '']);
      assert.match(stderr, message);
      assert.deepEqual(readdirSync(folder).sort(), before);
    });
});
