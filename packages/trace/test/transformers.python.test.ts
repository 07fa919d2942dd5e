import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { loadModelPath } from '@ropewalk/model/node';
import { type TraceReport, traceDumps, traceLines } from '@ropewalk/trace/internal';
import { openDump, Recorder } from '@ropewalk/trace/internal/node';
import { noPython, runPython } from '../../../test/support/python.js';

const FAMILIES = 'llama qwen2 qwen3 mistral gemma2 gemma3 phi3 olmo2 granite cohere gpt_neox'.split(' ');
const folder = mkdtempSync(join(tmpdir(), 'families-'));
const ids = Array.from({ length: 40 }, (_, n) => 3 + ((37 * n + 5) % 290));

/** Runs our decoder on a model and compares with what the hooks of transformers wrote. */
async function traced(family: string, dump: string): Promise<TraceReport> {
  const recorder = new Recorder('**', { backend: 'cpu' });
  const model = await loadModelPath(join(folder, family), { engine: recorder.engine, tokenizer: false });
  const out = join(folder, `${dump}-ours`);
  await recorder.record(model, out, { ids });
  model.dispose();
  return traceDumps(await openDump(out), await openDump(join(folder, `${dump}.safetensors`)));
}

describe('our decoder beside transformers', { skip: noPython }, () => {
  before(() => void runPython('trace_dumps.py', [folder]));
  after(() => rmSync(folder, { recursive: true }));
  for (const family of FAMILIES)
    test(`${family} in f32 and in bf16 is not accused`, async () => {
      const f32 = await traced(family, `${family}-f32`);
      assert.equal(f32.divergence, undefined, traceLines(f32).join('\n'));
      assert.ok(f32.steps.length >= 18 && f32.ruler.measured < 1e-5);
      assert.ok(!f32.unmatched.b.some((name) => /[qk]_norm$/.test(name)), 'norms of heads are recorded');
      const bf16 = await traced(family, `${family}-bf16`);
      assert.equal(bf16.divergence, undefined, traceLines(bf16).join('\n'));
      assert.deepEqual([bf16.ruler.dtype, bf16.steps.length], ['bf16', f32.steps.length]);
    });
  const faults = [
    ['norm', 'layers.1.mlp_norm', 'norm missing'],
    ['branch', 'layers.1.out', 'branch doubled'],
    ['gqa', 'layers.0.heads', 'head mapping'],
  ] as const;
  for (const [fault, step, cause] of faults)
    test(`a fault in transformers is found: ${fault}`, async () => {
      const { divergence } = await traced('llama', fault);
      assert.deepEqual([divergence?.step.name, divergence?.causes[0]?.id], [step, cause]);
    });
});
