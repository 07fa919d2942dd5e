/** The hooks of `ropewalk harness trace-…`, run with torch and transformers; their dumps and those of others read back. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { writeNpy } from '@ropewalk/formats';
import { traceDumps, traceLines } from '@ropewalk/trace/internal';
import { openDump, Recorder } from '@ropewalk/trace/internal/node';
import { ropewalkIn } from '../../../test/support/command.js';
import { MARLINE, marlineWith } from '../../../test/support/probe-server.js';
import { noPython, runPython, SGLANG_DUMPER } from '../../../test/support/python.js';
import type { Dump } from '../src/dump.js';

const folder = mkdtempSync(join(tmpdir(), 'hooks-'));
after(() => rmSync(folder, { recursive: true }));
const ids = Array.from({ length: 24 }, (_, n) => (37 * n + 5) % 1024);

async function values(dump: Dump, name: string, step?: number): Promise<number[]> {
  const found = dump.tensors.find((tensor) => tensor.name === name && (step === undefined || tensor.step === step));
  assert.ok(found, name);
  return [...((await found.read()).readNumbers() as Float64Array)];
}

describe('hooks', { skip: noPython }, () => {
  before(async () => {
    for (const hook of ['torch', 'transformers', 'vllm', 'onnxruntime', 'numpy'])
      assert.equal((await ropewalkIn(folder, 'harness', `trace-${hook}`, '-o', `trace_${hook}.py`)).status, 0);
    writeFileSync(join(folder, 'tokens.json'), JSON.stringify(ids));
    cpSync(MARLINE, join(folder, 'based'), { recursive: true });
    const config = JSON.parse(readFileSync(join(MARLINE, 'config.json'), 'utf8'));
    writeFileSync(join(folder, 'based', 'config.json'), JSON.stringify({ ...config, rope_theta: 20_000 }));
    for (const [model, graph] of [
      [MARLINE, 'graph'],
      ['based', 'wrong'],
    ] as const)
      assert.equal((await ropewalkIn(folder, 'export', '--whole', model, '-o', graph)).status, 0);
    runPython('trace_hooks.py', [folder, MARLINE, SGLANG_DUMPER]);
    const recorder = new Recorder('**', { backend: 'cpu' });
    const model = await marlineWith({}, { engine: recorder.engine });
    await recorder.record(model, join(folder, 'ours'), { ids });
    model.dispose();
  });

  test('the text of llama-eval-callback, printed from inside llama.cpp: right, and with another base', async () => {
    writeFileSync(join(folder, 'tokens.npy'), writeNpy(Int32Array.from(ids), { dtype: 'i32', shape: [ids.length] }));
    for (const [model, name] of [
      [MARLINE, 'right'],
      ['based', 'other'],
    ] as const) {
      const [file, text] = [join(folder, `${name}.gguf`), join(folder, `${name}.txt`)];
      assert.equal((await ropewalkIn(folder, 'to-gguf', model, '-o', file, '--type', 'f32')).status, 0);
      runPython('llama.py', ['debug', file, join(folder, 'tokens.npy'), text]);
    }
    const traced = async (name: string) =>
      traceDumps(await openDump(join(folder, 'ours')), await openDump(join(folder, name)));
    const right = await traced('right.txt');
    assert.equal(right.divergence, undefined, traceLines(right).join('\n'));
    assert.ok(right.steps.length >= 59, `${right.steps.length} matched`);
    const { divergence } = await traced('other.txt');
    assert.deepEqual([divergence?.step.name, divergence?.causes[0]?.id], ['layers.0.q_rope', 'not looked for']);
  });

  test('transformers: passes, tokens, positions, q and k before and after RoPE', async () => {
    const dump = await openDump(join(folder, 'transformers'));
    const attention = 'model.layers.2.self_attn';
    assert.deepEqual(await values(dump, 'tokens', 0), ids.slice(0, -2));
    assert.deepEqual(await values(dump, 'positions', 0), [...Array(22).keys()]);
    assert.deepEqual([await values(dump, 'tokens', 2), await values(dump, 'positions', 2)], [[ids[23]], [23]]);
    const shapes = new Map(dump.tensors.filter(({ step }) => step === 0).map(({ name, shape }) => [name, shape]));
    assert.deepEqual(shapes.get(`${attention}.q_proj`), [1, 22, 192]);
    assert.deepEqual(shapes.get(`${attention}.k_rope`), [1, 2, 22, 32]);
    assert.deepEqual(shapes.get('logits'), [1, 22, 1024]);
    for (const name of ['v_proj', 'o_proj', '']) assert.ok(shapes.has(name ? `${attention}.${name}` : attention));
  });

  for (const theirs of ['torch', 'transformers', 'sglang'])
    test(`${theirs}: no divergence from our own run`, async () => {
      const [ours, dump] = [await openDump(join(folder, 'ours')), await openDump(join(folder, theirs))];
      const report = await traceDumps(ours, dump, () => {});
      assert.equal(report.divergence, undefined, traceLines(report).join('\n'));
      assert.ok(report.steps.length > 30, traceLines(report).join('\n'));
    });

  test('ONNX Runtime: no divergence of a graph from our own run, and the base of another graph', async () => {
    const trace = async (dump: string) => (await ropewalkIn(folder, 'trace', 'ours', dump)).stdout;
    const same = await trace('graph-dump');
    assert.match(same, /^SAME /m);
    assert.match(same, /^matched {2}51 tensors/m);
    assert.match(
      await trace('wrong-dump'),
      /^FIRST DIVERGENCE {2}layers\.0\.k_rope$[\s\S]*RoPE: The frequencies are those of base 20000 instead of 10000/m,
    );
  });

  test('vLLM: the layer of a shared rotary_emb, a copy of what it overwrites, tuples, logits after the pass', async () => {
    const dump = await openDump(join(folder, 'vllm'));
    assert.ok(dump.tensors.every(({ rank }) => rank === 1));
    assert.deepEqual(await values(dump, 'positions', 1), [3, 4, 5, 6, 7]);
    for (const layer of [0, 1]) {
      const before = await values(dump, `layers.${layer}.self_attn.qkv_proj`, 1);
      const rotated = await values(dump, `layers.${layer}.self_attn.q_rope`, 1);
      for (const [n, x] of rotated.entries()) assert.equal(x, Math.fround(2 * before[24 * (n >> 3) + (n & 7)]!));
    }
    assert.deepEqual(await values(dump, 'layers.0.1', 0), await values(dump, 'embed_tokens', 0));
    assert.deepEqual(await values(dump, 'logits', 1), await values(dump, 'layers.1', 1));
  });

  test('numpy: each pass, with copies', async () => {
    const dump = await openDump(join(folder, 'numpy'));
    assert.deepEqual([...new Set(await values(dump, 'layers.0.q', 1))], [1]);
    assert.deepEqual([...new Set(await values(dump, 'layers.0.q_rope', 1))], [2]);
  });

  test('torch.save', async () => {
    const saved = await openDump(join(folder, 'saved.pt'));
    assert.deepEqual(
      saved.tensors.map(({ name, shape, dtype }) => [name, shape, dtype]),
      [
        ['tokens', [1, 24], 'i64'],
        ['layers.0.q', [3, 4], 'bf16'],
        ['layers.0.k', [4, 3], 'bf16'],
      ],
    );
    assert.deepEqual((await values(saved, 'layers.0.k')).slice(0, 3), [0, 4, 8]);
  });

  test('SGLang: the dumper of its package, by hooks on all modules and by a call', async () => {
    const dump = await openDump(join(folder, 'sglang'));
    assert.deepEqual(await values(dump, 'input_ids', 0), ids.slice(0, -2));
    const shapes = new Map(dump.tensors.filter(({ step }) => step === 1).map(({ name, shape }) => [name, shape]));
    assert.deepEqual(shapes.get('layers.2.k_after_rope'), [1, 2, 2, 32]);
  });
});
