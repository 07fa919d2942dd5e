/** The cost that passport computes on SmolLM2, beside two runs of llama.cpp. `npm run peers:python` brings both. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { writeNpy } from '@ropewalk/formats';
import { describeModelPath } from '@ropewalk/model/node';
import { ROOT } from '../../../test/support/build.js';
import { ropewalkIn } from '../../../test/support/command.js';
import { floats } from '../../../test/support/published.js';
import { noPython, runPython, SMOLLM2 } from '../../../test/support/python.js';

const TOKENS = 512;
const BASE = 10_000;

const folder = mkdtempSync(join(tmpdir(), 'ropewalk-passport-'));
const at = (name: string): string => join(folder, name);
after(() => rmSync(folder, { recursive: true }));

test("SmolLM2 with a lost base: each part's cost within 1 % of two runs of llama.cpp", {
  skip: noPython,
}, async () => {
  const text = join(ROOT, 'docs/model.md');
  const args = ['passport', SMOLLM2, '--serve', `llama-server --rope-freq-base ${BASE}`, '--text', text];
  const { stdout } = await ropewalkIn(folder, ...args, '--context', String(TOKENS), '--json');
  const { cost } = JSON.parse(stdout);
  assert.equal(cost.tokens, TOKENS);

  const ids = await describeModelPath(SMOLLM2, {}, async (model) =>
    (await model.readTokenizer()).encode(readFileSync(text, 'utf8')).slice(0, TOKENS),
  );
  writeFileSync(at('tokens.npy'), writeNpy(Int32Array.from(ids), { dtype: 'i32', shape: [ids.length] }));
  // llama.cpp rounds activations to 8 bits beside weights in blocks, and none beside the same weights in f32.
  assert.equal((await ropewalkIn(folder, 'to-safetensors', SMOLLM2, '-o', 'folder', '--type', 'f32')).status, 0);
  const costs: Float32Array[] = [];
  for (const base of [undefined, BASE]) {
    const config = JSON.parse(readFileSync(at('folder/config.json'), 'utf8'));
    if (base !== undefined)
      writeFileSync(
        at('folder/config.json'),
        JSON.stringify({ ...config, rope_theta: base, rope_parameters: undefined }),
      );
    assert.equal((await ropewalkIn(folder, 'to-gguf', 'folder', '-o', 'f32.gguf', '--force')).status, 0);
    runPython('llama.py', ['long', at('f32.gguf'), at('tokens.npy'), at('rows.npy'), '512', at('scores.npy')]);
    costs.push(floats(at('scores.npy')));
  }
  const [right, wrong] = costs as [Float32Array, Float32Array];
  const [ours, otherwise] = cost.readings.map(({ nats }: { nats: { to: number; mean: number }[] }) => nats);
  let from = 0;
  for (const [n, { to, mean }] of ours.entries()) {
    let real = 0;
    for (let i = from; i < to; i++) real += (right[i]! - wrong[i]!) / (to - from);
    const off = Math.abs(otherwise[n].mean - mean - real);
    // The issue asks 10 %; the same f32 weights give the same cost within 5e-5 of it.
    assert.ok(off < 0.01 * Math.abs(real), `up to ${to}: ${otherwise[n].mean - mean} and ${real}`);
    from = to;
  }
  assert.ok(Math.abs(otherwise.at(-1).mean - ours.at(-1).mean) > 0.1, 'the base costs nothing here');
});
