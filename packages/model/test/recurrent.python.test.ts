/** Families whose layers have states, beside llama.cpp: its own logits of its converter's files (golden/recurrent). */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseGguf, parseNpy, parseNpz, writeNpy } from '@ropewalk/formats';
import { ROOT } from '../../../test/support/build.js';
import { check } from '../../../test/support/family-vectors.js';
import { noPython, runPython } from '../../../test/support/python.js';
import { loadModelFile } from '../src/node.js';

const GOLDEN = fileURLToPath(new URL('golden/recurrent', import.meta.url));
const FILES = readdirSync(GOLDEN).flatMap((file) => /^(.*)\.gguf$/.exec(file)?.[1] ?? []);
/** The files in f32. Beside matrices in f16 llama.cpp rounds activations to f16, which may choose other experts. */
const NAMES = FILES.filter((name) => {
  const { tensors } = parseGguf(readFileSync(join(GOLDEN, `${name}.gguf`)), name);
  return tensors.every(({ type }) => type === 'F32');
});
const noLlama = existsSync(join(ROOT, 'bench/llama/node_modules'))
  ? false
  : 'node-llama-cpp is not installed: npm run peers';
/** Two passes in f32 over logits of up to 8; the largest distance measured is 9e-6. */
const NEAR = 5e-5;

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-recurrent-llama-'));
after(() => rmSync(scratch, { recursive: true }));

describe('llama.cpp', { skip: noPython || noLlama }, () => {
  for (const name of NAMES)
    test(name, async () => {
      const path = join(GOLDEN, `${name}.gguf`);
      const tokens = parseNpz(readFileSync(join(GOLDEN, `${name}.npz`))).get('tokens')!.data as Int32Array;
      const [given, made] = ['tokens.npy', 'logits.npy'].map((file) => join(scratch, file)) as [string, string];
      writeFileSync(given, writeNpy(tokens, { dtype: 'i32', shape: [tokens.length] }));
      runPython('llama.py', ['logits', path, given, made]);
      const logits = parseNpy(readFileSync(made)).data as Float32Array;
      const model = await loadModelFile(path, { backend: 'cpu', threads: 1, tokenizer: false, context: 64 });
      try {
        const own = await model.openSession().append(tokens, { logits: 'all' });
        assert.equal(own.length, logits.length);
        check(own, logits, NEAR, name);
      } finally {
        model.dispose();
      }
    });
});
