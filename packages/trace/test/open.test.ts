import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { writeNpyHeader } from '@ropewalk/formats/internal';
import { openDump } from '@ropewalk/trace/internal/node';
import { tensorFrom } from 'ropewalk';
import { readFileName } from '../src/read/file-names.js';

test('opens a folder of safetensors and npz, and nothing that a link leads to', async () => {
  const [folder, outside] = [mkdtempSync(join(tmpdir(), 'dump-')), mkdtempSync(join(tmpdir(), 'outside-'))];
  const values = new Map([['layers.0.q', tensorFrom(new Float32Array([1, 2, 3, 4]), { shape: [2, 2] })]]);
  writeFileSync(join(folder, 'a.safetensors'), writeSafetensors(values));
  writeFileSync(join(folder, 'b.npz'), writeNpz(new Map([['k', values.get('layers.0.q')!]])));
  writeFileSync(join(outside, 'c.safetensors'), writeSafetensors(values));
  symlinkSync(join(outside, 'c.safetensors'), join(folder, 'c.safetensors'));
  const dump = await openDump(folder);
  assert.deepEqual(
    dump.tensors.map(({ name, shape, dtype }) => [name, shape, dtype]),
    [
      ['layers.0.q', [2, 2], 'f32'],
      ['k', [2, 2], 'f32'],
    ],
  );
  for (const tensor of dump.tensors)
    assert.deepEqual([...((await tensor.read()).read() as Float32Array)], [1, 2, 3, 4]);
});

test('a folder of .npy files is not held in memory: 256 MiB are kept of 640', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dump-'));
  const head = writeNpyHeader({ dtype: 'f32', shape: [2 ** 24] });
  for (let n = 0; n < 10; n++) {
    const path = join(folder, `layers.${n}.q.npy`);
    writeFileSync(path, head);
    truncateSync(path, head.length + 4 * 2 ** 24); // zeros, which take no room on the disk
  }
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as () => void;
  const dump = await openDump(folder);
  for (const tensor of dump.tensors) assert.deepEqual((await tensor.read()).shape, [2 ** 24]);
  gc();
  assert.ok(process.memoryUsage().arrayBuffers < 400 * 2 ** 20, `${process.memoryUsage().arrayBuffers}`);
  assert.equal(dump.tensors.length, 10);
  rmSync(folder, { recursive: true });
});

test('refuses a folder without tensors, and a file that is cut', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dump-'));
  await assert.rejects(openDump(folder), { code: 'FORMAT', message: /it has no tensors/ });
  writeFileSync(join(folder, 'a.safetensors'), new Uint8Array([255, 0, 0, 0, 0, 0, 0, 0, 0x7b]));
  await assert.rejects(openDump(folder), { code: 'FORMAT' });
});

test('refuses the text of the eval callback of llama.cpp with the hook to take, and other texts', async () => {
  const path = join(mkdtempSync(join(tmpdir(), 'dump-')), 'log.txt');
  const head = 'common_debug_cb_eval:   Qcur-0 = (f32)  ROPE(Qcur-0{32, 6, 22, 1}, }) = {32, 6, 22, 1}';
  for (const [text, code, message] of [
    [`llama_context: n_ctx = 64\n${head}\n`, 'UNSUPPORTED', /Write whole ones: ropewalk harness trace-llama-cpp/],
    ['ggml_debug: x'.repeat(100_000), 'FORMAT', /it is no dump that can be read/],
  ] as const) {
    writeFileSync(path, text);
    await assert.rejects(openDump(path), { code, message });
  }
});

test('reads what the names of files tell: SGLang, msProbe, steps and ranks', () => {
  const sglang = 'step=2___rank=1___dump_index=7___name=non_intrusive__';
  const module = 'Module.model.layers.0.self_attn.q_proj.Linear.forward.0';
  for (const [path, expected] of [
    [
      `run/${sglang}model.layers.3.mlp.output___layer_id=3`,
      { name: 'model.layers.3.mlp.output', step: 2, rank: 1, order: 7 },
    ],
    [`${sglang}model.layers.3.mlp.inputs.0`, { name: 'model.layers.3.mlp.input.0', step: 2, rank: 1, order: 7 }],
    [
      'forward_pass_id=4___rank=0___name=q___dump_index=9___layer_id=5',
      { name: 'layers.5.q', step: 4, rank: 0, order: 9 },
    ],
    ['step=0___rank=0___dump_index=1___name=grad__q', undefined],
    [`step1/rank3/dump_tensor_data/${module}.output.0`, { name: 'model.layers.0.self_attn.q_proj', step: 1, rank: 3 }],
    [`step1/proc77/dump_tensor_data/${module}.input.0`, { name: 'model.layers.0.self_attn.q_proj.input.0', step: 1 }],
    [`step1/rank3/dump_tensor_data/${module}.parameters.weight`, undefined],
    ['step3-rank2', { step: 3, rank: 2 }],
    ['layers.0.misstep4', {}],
  ] as const) {
    const { rest: _, ...told } = readFileName(path) ?? { rest: '' };
    assert.deepEqual(told, expected ?? {}, path);
  }
  assert.equal(readFileName('rank1/step2/a/b')!.rest, 'a.b');
  assert.equal(readFileName('step=0___rank=0___dump_index=1___name=grad__q'), undefined);
});

test('files with the same names are told apart, steps are in order, and a broken file is a note', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dump-'));
  const x = tensorFrom(new Float32Array([1, 2]));
  for (const step of [10, 2]) {
    mkdirSync(join(folder, `step${step}`));
    for (const layer of [0, 1])
      writeFileSync(join(folder, `step${step}`, `layers.${layer}.npz`), writeNpz(new Map([['q', x]])));
  }
  writeFileSync(join(folder, 'logits.npy'), writeNpy(new Float32Array([1, 2]), { dtype: 'f32', shape: [2] }));
  writeFileSync(
    join(folder, 'cut.npy'),
    writeNpy(new Float32Array([1, 2]), { dtype: 'f32', shape: [2] }).subarray(0, 20),
  );
  const { tensors, notes } = await openDump(folder);
  assert.deepEqual(
    tensors.map(({ name, step }) => [name, step]),
    [['logits', undefined], ...[2, 10].flatMap((step) => [0, 1].map((layer) => [`layers.${layer}.q`, step]))],
  );
  assert.equal(notes.length, 1);
  assert.match(notes[0]!, /^1 of 6 files cannot be read, such as .*cut\.npy/);
});

test('reads what msProbe wrote, without its parameters', async () => {
  const { tensors, notes } = await openDump(join(import.meta.dirname, 'msprobe'));
  const read = await Promise.all(tensors.map(async (one) => [one.name, one.shape, (await one.read()).dtype, one.step]));
  assert.deepEqual(read, [
    ['tokens', [1, 3], 'i64', 1],
    ['embed_tokens', [1, 3, 4], 'f32', 1],
    ['layers.0.input.0', [1, 3, 4], 'f32', 1],
    ['layers.0', [1, 3, 4], 'f32', 1],
    ['layers.0.q_proj.input.0', [1, 3, 4], 'f32', 1],
    ['layers.0.q_proj', [1, 3, 4], 'f32', 1],
  ]);
  const values = async (n: number) => [...((await tensors[n]!.read()).readNumbers() as Float64Array)];
  assert.deepEqual(await values(0), [1, 2, 3]);
  assert.deepEqual(await values(3), await values(5));
  assert.deepEqual(notes, ['2 files of gradients or parameters were left out.']);
});
