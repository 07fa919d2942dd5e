import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { writeNpy, writeNpz, writeSafetensors } from '@ropewalk/formats';
import { writeNpyHeader } from '@ropewalk/formats/internal';
import { traceDumps, traceLines } from '@ropewalk/trace/internal';
import { openDump } from '@ropewalk/trace/internal/node';
import { tensorFrom } from 'ropewalk';
import { type Dump, NOT_GIVEN } from '../src/dump.js';
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

describe("the text of llama.cpp's eval callback", () => {
  const path = join(mkdtempSync(join(tmpdir(), 'dump-')), 'log.txt');
  after(() => rmSync(dirname(path), { recursive: true }));
  const head = (ne: string, name = 'Qcur-0', type = 'f32'): string =>
    `common_debug_cb_eval:   ${name} = (${type})  ROPE(Qcur-0{8, 8, 1, 1}, inp_pos{8, 1, 1, 1}}) = {${ne}}\n`;
  const opened = (text: string): ReturnType<typeof openDump> => {
    writeFileSync(path, text);
    return openDump(path);
  };
  /** The values that are given of a tensor, with their places. */
  const given = async (text: string, at = 0): Promise<[place: number, value: number][]> => {
    const data = (await (await opened(text)).tensors[at]!.read()).read() as Float32Array;
    return Array.from(data.entries()).filter(([, value]) => value !== NOT_GIVEN);
  };

  test('places of values: cut rows, matrices and columns, and NaN', async () => {
    const row = (n: number): string => `            [ ${n}.0, ${n}.25, nan,    ...,   -inf, -${n}.5, ${n}.75  ],\n`;
    const matrix = (n: number): string =>
      `        [\n${row(n)}${row(n + 1)}${row(n + 2)}            ..., \n${row(n + 7)}${row(n + 8)}${row(n + 9)}        ],\n`;
    const block = `    [\n${[10, 20, 30].map(matrix).join('')}        ..., \n${[60, 70, 80].map(matrix).join('')}    ]\n    sum = nan\n`;
    const found = new Map(await given(`main: 3 tokens\n${head('7, 10, 8, 2')}${block}${block}${head('7, 10, 8, 2')}`));
    assert.equal(found.size, 2 * 6 * 6 * 6);
    for (const [z, y, x, value] of [
      [0, 0, 0, 10],
      [0, 2, 5, -12.5],
      [2, 7, 6, 37.75],
      [5, 9, 1, 69.25],
      [15, 8, 4, Number.NEGATIVE_INFINITY],
      [8, 1, 2, Number.NaN],
    ] as const)
      assert.equal(found.get((z * 10 + y) * 7 + x), value, `${z} ${y} ${x}`);
  });

  test('the older name and a time before it; passes; a text that is cut', async () => {
    const old =
      '0.01 ggml_debug:   norm-0 = (f32)   NORM(inp_embd{3, 1, 1, 1}, }) = {3, 1, 1, 1}\n [\n  [\n   [ 1.0, 2.0, 3.0],\n';
    assert.deepEqual(await given(old), [
      [0, 1],
      [1, 2],
      [2, 3],
    ]);
    const [values, ids] = ['[\n[\n[ 1.0 ],\n],\n]\n', head('1, 1, 1, 1', 'inp_tokens', 'i32')];
    const pass = `${head('1, 1, 1, 1', 'embd')}${values}${ids}${values}${head('1, 1, 1, 1')}${values}`;
    const { tensors, resolution } = await opened(pass + pass);
    assert.deepEqual(
      [tensors.map(({ name, step }) => `${name} ${step}`), resolution],
      [['embd 0', 'Qcur-0 0', 'embd 1', 'Qcur-0 1'], 5e-5],
    );
  });

  test('values outside of the shape, sizes without values, other texts', async () => {
    const huge = await opened(
      `${head('4000000000, 4000000000, 1, 1')}[\n[\n[ 1.0, ...,\t2.0 ],\n${head('1, 1, 1, 1')}[ 1.0 ]\n`,
    );
    assert.deepEqual([huge.tensors.length, huge.notes.length], [1, 2]);
    assert.match(huge.notes[1]!, /^1 tensors of .* have more than 67108864 values: left out\.$/);
    for (const [text, message] of [
      [`${head('2, 2, 1, 1')}[ 1.0, 2.0, 3.0 ]\n`, /line 2 has a value of Qcur-0 that its shape does not have/],
      [`${head('1, 1, 1, 1')}[ 1.0 ]\n[ 1.0 ]\n`, /line 3 has a value of Qcur-0/],
      [`llama_context: n_ctx = 64\n${head('32, 6, 22, 1')}`, /names of tensors and no values of floats/],
      [`${head('0, 1, 1, 1')}[ 1.0 ]`, /no values of floats/],
      ['ggml_debug: x'.repeat(100_000), /it is no dump that can be read/],
    ] as const)
      await assert.rejects(opened(text), { code: 'FORMAT', message });
  });

  test('is compared where it has values, to its decimals, and no cause is looked for', async () => {
    const own = Float32Array.from({ length: 64 }, (_, n) => Math.sin(n) / 3);
    const row = (n: number, by: number): string => {
      const value = (at: number): string => (own[8 * n + at]! * by).toFixed(4);
      return `[ ${[0, 1, 2].map(value).join(', ')}, ..., ${[5, 6, 7].map(value).join(', ')} ],\n`;
    };
    const textOf = (by: number): string =>
      `${head('8, 8, 1, 1', 'attn_norm-0')}[\n[\n${[0, 1, 2].map((n) => row(n, by)).join('')}..., \n${[5, 6, 7].map((n) => row(n, by)).join('')}],\n]\n`;
    own[30] = 1e6; // where the text has nothing
    const data = tensorFrom(own, { shape: [8, 8] });
    const ours: Dump = {
      label: 'ours',
      notes: [],
      close: async () => {},
      tensors: [{ name: 'layers.0.attn_norm', shape: [8, 8], dtype: 'f32', read: async () => data }],
    };
    assert.equal((await traceDumps(ours, await opened(textOf(1)))).divergence, undefined);
    const report = await traceDumps(ours, await opened(textOf(1.1)));
    assert.equal(report.divergence!.causes[0]!.id, 'not looked for');
    assert.match(traceLines(report).join('\n'), /all 6 printed tokens of 8\./);
    assert.doesNotMatch(traceLines(report).join('\n'), /exactly|layer +0/);
  });
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
