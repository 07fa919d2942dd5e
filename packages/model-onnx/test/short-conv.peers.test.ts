/**
 * LFM2's short convolutions in ONNX Runtime, in every form: transformers' logits and tokens, whole, in pieces, and of
 * rows that are padded on the left, which go on as rows without padding.
 */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpz } from '@ropewalk/formats';
import { loadModelFolder } from '@ropewalk/model/node';
import { ROOT } from '../../../test/support/command.js';
import { openDecoder, writeDecoder } from '../../../test/support/decoder-folder.js';
import { check } from '../../../test/support/family-vectors.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { openOnnxEngine } from '../src/node.js';
import { DECODER_FORMS } from '../src/scope.js';

const GOLDEN = join(ROOT, 'packages/model/test/golden/recurrent');
const folder = mkdtempSync(join(tmpdir(), 'short-conv-'));
after(() => rmSync(folder, { recursive: true }));
/** As in packages/model/test/recurrent.test.ts; the largest distance measured is 5e-5. */
const NEAR = 1e-4;
const VOCAB = 96;

function modelOf(name: string) {
  const path = join(folder, name);
  mkdirSync(path, { recursive: true });
  copyFileSync(join(GOLDEN, `${name}.json`), join(path, 'config.json'));
  copyFileSync(join(GOLDEN, `${name}.safetensors`), join(path, 'model.safetensors'));
  const arrays = parseNpz(readFileSync(join(GOLDEN, `${name}.npz`)));
  const of = (array: string) => arrays.get(array)!.data as Float32Array;
  return { path, tokens: Array.from(of('tokens')), logits: of('logits') };
}

describe('short convolutions', { skip: noOnnxruntime }, () => {
  for (const name of ['lfm2', 'lfm2-bias', 'lfm2_moe']) {
    test(`${name}: the engine, whole, again from the start, and in pieces`, async () => {
      const { path, tokens, logits } = modelOf(name);
      const model = await loadModelFolder(path, { engine: await openOnnxEngine(), tokenizer: false, context: 64 });
      const session = model.openSession();
      try {
        check(await session.append(tokens, { logits: 'all' }), logits, NEAR, 'whole');
        assert.throws(() => session.truncate(3), { code: 'UNSUPPORTED' });
        session.truncate(0);
        for (const [from, to] of [
          [0, 3],
          [3, 4],
          [4, 5],
          [5, 24],
        ] as const)
          check(
            await session.append(tokens.slice(from, to), { logits: 'all' }),
            logits.subarray(from * VOCAB, to * VOCAB),
            NEAR,
            `from ${from} on`,
          );
      } finally {
        model.dispose();
      }
    });

    for (const form of DECODER_FORMS)
      test(`${name} in form ${form}: rows padded on the left`, async () => {
        const { path, tokens, logits } = modelOf(name);
        const to = join(folder, `${name}-${form}`);
        await writeDecoder(path, { form }, to);
        const model = await openDecoder(to);
        const [short, long] = [9, 14];
        const pad = <T>(row: readonly T[], with_: T): T[] => [...Array<T>(long - short).fill(with_), ...row];
        const counted = (length: number): number[] => Array.from({ length }, (_, n) => n);
        const mask = [pad(Array<number>(short).fill(1), 0), Array<number>(long).fill(1)];
        const rowOf = (token: number): Float32Array => logits.subarray(token * VOCAB, (token + 1) * VOCAB);
        const ids = [pad(tokens.slice(0, short), 5), tokens.slice(0, long)];
        const positions = [pad(counted(short), 1), counted(long)];
        const prompt = await model.run({ ids, mask, positions, keep: 1 });
        check(prompt.subarray(0, VOCAB), rowOf(short - 1), NEAR, 'the short row');
        check(prompt.subarray(VOCAB), rowOf(long - 1), NEAR, 'the long row');
        for (let n = 0; n < 4; n++) {
          for (const row of mask) row.push(1);
          const next = [[tokens[short + n]!], [tokens[long + n]!]];
          const more = await model.run({ ids: next, mask, positions: [[short + n], [long + n]], keep: 1 });
          check(more.subarray(0, VOCAB), rowOf(short + n), NEAR, `the short row, ${n} further`);
          check(more.subarray(VOCAB), rowOf(long + n), NEAR, `the long row, ${n} further`);
        }
        await model.release();
      });
  }

  for (const [name, layers] of [
    ['qwen3_next', 'delta nets'],
    ['granitemoehybrid-mamba', 'state spaces'],
  ] as const)
    test(`${layers} have no graph yet`, async () => {
      const { path } = modelOf(name);
      const refused = { code: 'UNSUPPORTED', message: new RegExp(`has ${layers}, and there is no graph for them yet`) };
      await assert.rejects(writeDecoder(path, {}, join(folder, layers)), refused);
      await assert.rejects(loadModelFolder(path, { engine: await openOnnxEngine(), tokenizer: false }), refused);
    });
});
