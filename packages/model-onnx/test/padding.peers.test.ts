/**
 * Tests of two rows of different length in one call, with padding on the left (transformers) and on the right
 * (onnxruntime-genai). Each row's logits are those that it has alone.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { openDecoder, writeDecoder } from '../../../test/support/decoder-folder.js';
import { savedFamilies, savedFamily } from '../../../test/support/family-vectors.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { DECODER_FORMS } from '../src/scope.js';

const folder = mkdtempSync(join(tmpdir(), 'padding-'));
after(() => rmSync(folder, { recursive: true }));

/** Tokens of the rows. */
const [SHORT, LONG] = [9, 14];
/** The bound of the families' test: f32 against float64 through a few layers. */
const NEAR = 1e-3;

const count = (length: number, from = 0): number[] => Array.from({ length }, (_, n) => from + n);
const PAD = LONG - SHORT;
const SIDES = {
  left: {
    row: <T>(tokens: readonly T[], pad: T): T[] => [...Array<T>(PAD).fill(pad), ...tokens],
    padPosition: 1, // the padding of transformers
  },
  right: {
    row: <T>(tokens: readonly T[], pad: T): T[] => [...tokens, ...Array<T>(PAD).fill(pad)],
    padPosition: 0,
  },
};

/** Returns a model's file or folder, its tokens and their logits. */
function sourceOf(name: string, folder: string): { path: string; tokens: number[]; want: ArrayLike<number> } {
  if (savedFamilies().includes(name)) {
    const { writeTo, tokens, logits } = savedFamily(name);
    writeTo(folder);
    return { path: folder, tokens, want: logits };
  }
  const array = (what: string) => parseNpy(readFileSync(join(FAMILIES, `${name}.${what}.npy`))).data;
  const tokens = Array.from(array('tokens') as ArrayLike<number>, Number);
  return { path: join(FAMILIES, `${name}.gguf`), tokens, want: array('logits-f64') as Float64Array };
}

describe('padded rows', { skip: noOnnxruntime }, () => {
  // GroupQueryAttention in form contrib; windows and a softcap; positions of several axes; shared caches; chunks.
  for (const name of ['smollm3', 'gemma2', 'qwen2vl', 'gemma4', 'gemma3n', 'llama4-chunks'])
    for (const form of DECODER_FORMS)
      test(`${name} in form ${form}`, async () => {
        const to = join(folder, `${name}-${form}`);
        const { path, tokens, want } = sourceOf(name, `${to}-saved`);
        await writeDecoder(path, { form }, to);
        const vocab = want.length / tokens.length;
        const check = (got: Float32Array, row: number, token: number, what: string): void => {
          for (let v = 0; v < vocab; v++)
            assert.ok(Math.abs(got[row * vocab + v]! - want[token * vocab + v]!) <= NEAR, `${what}: logit ${v}`);
        };
        for (const [side, { row, padPosition }] of Object.entries(SIDES)) {
          // Small windows and chunks would count padding between tokens, as in transformers.
          if (savedFamilies().includes(name) && side === 'right') continue;
          const model = await openDecoder(to);
          let mask = [row(count(SHORT).fill(1), 0), count(LONG).fill(1)];
          const prompt = await model.run({
            ids: [row(tokens.slice(0, SHORT), 0), tokens.slice(0, LONG)],
            mask,
            positions: [row(count(SHORT), padPosition), count(LONG)],
            keep: 0,
          });
          const places = row(count(SHORT), -1);
          for (const [at, token] of places.entries())
            if (token >= 0) check(prompt, at, token, `${side}, token ${token}`);
          for (const token of count(LONG)) check(prompt, LONG + token, token, `${side}, long row, token ${token}`);
          for (const step of [0, 1]) {
            mask = mask.map((one) => [...one, 1]);
            const next = [SHORT + step, LONG + step];
            const logits = await model.run({
              ids: next.map((token) => [tokens[token]!]),
              mask,
              positions: next.map((token) => [token]),
              keep: 1,
            });
            for (const [n, token] of next.entries()) check(logits, n, token, `${side}, row ${n}, step ${step}`);
          }
          await model.release();
        }
      });
});
