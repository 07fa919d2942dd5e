/** Tests `ropewalk inspect` with graphs and folders of graphs; cli.test.ts tests it with other models. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { writeSafetensors } from '@ropewalk/formats';
import { graphContents, parseOnnxModel } from '@ropewalk/onnx';
import { tensorFrom } from 'ropewalk';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { Graph } from '../../onnx/test/import/build.js';
import { wholeGraph } from '../../onnx/test/import/whole-graph.js';

const folder = mkdtempSync(join(tmpdir(), 'inspect-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, 'inspect', ...args);
const put = (path: string, content: Uint8Array | object): string => {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), content instanceof Uint8Array ? content : JSON.stringify(content));
  return path;
};

const spec = { headDim: 8, pairing: 'half', base: 10000 } as const;
const config = { model_type: 'llama', num_hidden_layers: 2, hidden_size: 16, num_attention_heads: 2, rope_theta: 1e4 };
const tables = (['cos', 'sin'] as const).flatMap((part) =>
  Array.from({ length: 256 }, (_, n) => Math[part]((n >> 2) * 0.1 ** (n % 4))),
);
put('whole/config.json', config);
put('whole/onnx/model.onnx', wholeGraph({ form: 'genai-nodes', layers: [spec, undefined], external: true }));
put('whole/onnx/model.onnx.data', new Uint8Array(Float32Array.from(tables).buffer));
put('whole/onnx/model_q4.onnx', new Uint8Array(2000));
put('whole/genai_config.json', { model: { type: 'llama', context_length: 64 } });

describe('inspect of graphs', () => {
  test("a folder: the model's config, its graph, the other graphs", async () => {
    const { status, stdout, stderr } = await ropewalk('whole');
    assert.equal(status, 0, stderr + stdout);
    for (const line of [
      /^whole\/config\.json: llama, 2 layers \(huggingface\)$/m,
      /^whole\/onnx\/model\.onnx: ONNX graph$/m,
      /^ {2}form {12}contrib, ai\.onnx 23, com\.microsoft 1, local 1, from "ropewalk-test"$/m,
      /^ {2}inputs {10}inputs_embeds f32 \[batch, seq, 16\]; attention_mask i64 \[batch, total\]; position_ids/m,
      /^ {2}KV caches {7}layers 0-1, f32 \[batch, 1, past, 8\]$/m,
      /^ {2}operators {7}\d+: \d+ MatMul, .*2 GroupQueryAttention \(com\.microsoft\), /m,
      /^ {2}weights {9}\d\.\d+ kB: .* of f32, 8 bytes in 1 of i64$/m,
      /^ {2}data file {7}model\.onnx\.data, 2\.05 kB, 2 tensors$/m,
      /^whole\/onnx\/model\.onnx: 2 RoPE \(/m,
      /^ {2}form {8}RotaryEmbedding \(com\.microsoft\)$/m,
      /^ {2}cos, sin {4}a cache of 64 positions$/m,
      /^ {2}genai {11}type llama, context_length 64$/m,
      /^whole\/onnx\/model_q4\.onnx: another graph, 2\.00 kB$/m,
    ])
      assert.match(stdout, line);
    const json = JSON.parse((await ropewalk('whole', '--json')).stdout);
    assert.deepEqual(
      [json.architecture, json.graph.form, json.graph.layers, json.graph.ropes[0].layers, json.graph.findings],
      ['llama', 'contrib', [0, 1], [0, 0], []],
    );
    assert.deepEqual(json.otherGraphs, [{ file: 'whole/onnx/model_q4.onnx', sizeBytes: 2000 }]);
  });

  test("onnxruntime-genai's flat folder has no config.json", async () => {
    put('flat/model.onnx', wholeGraph({ form: 'genai', layers: [spec, spec] }));
    const decoder = { filename: 'model.onnx', num_hidden_layers: 2, head_size: 8, num_key_value_heads: 1 };
    put('flat/genai_config.json', { model: { type: 'llama', context_length: 64, decoder } });
    const { status, stdout, stderr } = await ropewalk('flat');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^flat\/model\.onnx: ONNX graph$/m);
    assert.match(
      stdout,
      /^ {2}genai {11}type llama, context_length 64, num_hidden_layers 2, num_key_value_heads 1, head_size 8$/m,
    );
    assert.match(stdout, /^ {2}layers {6}0-1\n {2}form {8}GroupQueryAttention/m);
  });

  test('a graph alone, without caches and without RoPE', async () => {
    const g = new Graph();
    g.output(g.node('Relu', [g.input('x', 'f32', [1])]), 'f32');
    const { status, stdout } = await ropewalk(put('none.onnx', g.model()));
    assert.equal(status, 1);
    assert.match(stdout, /^ {2}form {12}primitives, /m);
    assert.match(stdout, /^ {2}KV caches {7}none: each run computes all tokens$/m);
    assert.match(stdout, /^none\.onnx: 0 RoPE \(/m);
  });

  const located = (entries: Record<string, string>, shape: readonly number[] = [4, 2]): Uint8Array => {
    const g = new Graph();
    const table = g.external('weight', 'f32', shape, entries);
    g.output(g.node('MatMul', [g.input('x', 'f32', [1, 4]), table]), 'f32');
    return g.model();
  };
  put('w.bin', new Uint8Array(32));
  const bad: readonly (readonly [string, Record<string, string>, readonly number[], RegExp])[] = [
    ['missing', { location: 'gone.bin' }, [4, 2], /external data gone\.bin: there is no such file/],
    ['cut', { location: '../w.bin' }, [4, 2], /expected a file in the model's folder, got "\.\.\/w\.bin"/],
    ['too short', { location: 'w.bin', offset: '8' }, [4, 2], /w\.bin: it has 32 bytes, and the model reads 40\./],
    ['far', { location: 'w.bin', offset: '9007199254740000' }, [4, 2], /it has 32 bytes, and the model reads 90071/],
    [
      'forged',
      { location: 'w.bin', length: '32' },
      [2 ** 20, 2 ** 20],
      /weight has 32 bytes there, and its shape takes/,
    ],
    ['a folder', { location: 'whole' }, [4, 2], /expected a regular file, got a folder/],
  ];
  for (const [what, entries, shape, message] of bad)
    test(`a data file that is ${what}: exit 1, in one sentence`, async () => {
      const { status, stdout, stderr } = await ropewalk(put('bad.onnx', located(entries, shape)));
      assert.equal(status, 1, stderr);
      const found = stdout.split('\n').filter((line) => line.startsWith('  ≠'));
      assert.equal(found.length, 1);
      assert.match(found[0]!, message);
    });

  test('more elements than fit a number are refused: exit 2', async () => {
    const { status, stderr } = await ropewalk(put('huge.onnx', located({ location: 'w.bin' }, [2 ** 40, 2 ** 40])));
    assert.equal(status, 2);
    assert.match(stderr, /tensor weight: dims: expected fewer than 2\^50 elements/);
  });
});

test('a ROPE(…) line: its RoPE as that of a layer, its dtype and its sizes', async () => {
  const line = 'ROPE(type=f16,ne_a=[80,32,5,2],n_dims=20,mode=2,n_ctx=300,fs=0.5,v=1)';
  const { status, stdout, stderr } = await ropewalk(line);
  assert.equal(status, 0, stderr);
  assert.match(stdout, /\): f16, forward, batch 2, 5 tokens, 32 heads, positions below 300\n {2}base +10000\n/);
  assert.match(stdout, /rotary_dim +20\n {2}pairing +half\n {2}scaling +linear factor=2/);
  const json = JSON.parse((await ropewalk(line, '--json')).stdout);
  assert.deepEqual([json.dtype, json.contiguous, json.rope.rotaryDim, json.invFreq.length], ['f16', false, 20, 10]);
  assert.match((await ropewalk(line, '--tensors')).stderr, /--tensors: it does not apply to a ROPE\(…\) line/);
});

test('weights by kind: blocks, their scales, types of four bits; two tensors at one place are counted once', () => {
  const g = new Graph();
  const at = (offset: number, length: number) => ({ location: 'w', offset: `${offset}`, length: `${length}` });
  const codes = g.external('codes', 'u8', [8, 2, 16], at(0, 256));
  const scales = g.external('scales', 'f32', [16], at(256, 64));
  const table = g.external('table', 'u8', [8, 32], at(0, 256));
  const tableScales = g.external('table_scales', 'f16', [8, 2], at(320, 32));
  const zeros = g.constant(tensorFrom(new Uint8Array(8), { shape: [8, 1] }), 'zeros');
  const block = { bits: 4, block_size: 32 };
  const ms = { domain: 'com.microsoft' };
  const signed = [
    g.external('signed', 'i8', [2, 64], at(352, 128)),
    g.external('signed_scales', 'f32', [2, 2], at(480, 16)),
  ];
  g.output(g.node('DequantizeLinear', signed, { axis: 1, block_size: 32 }), 'f32');
  const x = g.node('GatherBlockQuantized', [table, g.input('ids', 'i64', [1]), tableScales], block, ms);
  g.output(g.node('MatMulNBits', [x, codes, scales, zeros], { K: 64, N: 8, ...block }, ms), 'f32');
  const { weights, files, form, layers } = graphContents(parseOnnxModel(g.model()));
  assert.deepEqual(weights, [
    { kind: '4-bit blocks of 32', tensors: 2, sizeBytes: 256 },
    { kind: 'i8 blocks of 32', tensors: 1, sizeBytes: 128 },
    { kind: 'f32 scales of blocks', tensors: 2, sizeBytes: 80 },
    { kind: 'f16 scales of blocks', tensors: 1, sizeBytes: 32 },
    { kind: 'u8 zero points of blocks', tensors: 1, sizeBytes: 8 },
  ]);
  assert.deepEqual(files, [{ location: 'w', tensors: 6, endByte: 496, wrong: [] }]);
  assert.deepEqual([form, layers], ['contrib', []]);
});

describe('inspect: what files hold', () => {
  const gguf = join(FAMILIES, 'gemma3.gguf');
  const marline = join(ROOT, 'models/marline');

  test('--metadata and --tensors of a GGUF: every key and tensor; lists are cut', async () => {
    const { status, stdout, stderr } = await ropewalk(gguf, '--metadata', '--tensors');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^\S+gemma3\.gguf: gguf, 80 tensors, 897 kB in 80 of F32$/m);
    assert.match(stdout, /^ {2}general\.architecture +"gemma3"$/m);
    assert.match(stdout, /^ {2}tokenizer\.ggml\.scores +112 values: 0, -1, -2, -3, -4, -5, -6, -7, …$/m);
    assert.match(stdout, /^ {2}blk\.0\.attn_q\.weight +F32 {2}\[128, 64\] {2}32,768 bytes$/m);
    assert.equal(stdout.match(/ bytes$/gm)?.length, 80);
    assert.doesNotMatch(stdout, /rotary_dim/, 'lists are in place of RoPE');
    const json = JSON.parse((await ropewalk(gguf, '--metadata', '--json')).stdout);
    assert.equal(json.tensors, undefined);
    assert.deepEqual(json.metadata['gemma3.block_count'], 6);
    assert.deepEqual(json.metadata['tokenizer.ggml.token_type'], { length: 112, first: [2, 3, 3, 6, 1, 1, 1, 1] });
    const { tensors, types } = JSON.parse((await ropewalk(gguf, '--tensors', '--json')).stdout);
    assert.deepEqual(tensors[2], { name: 'blk.0.attn_q.weight', type: 'F32', shape: [128, 64], sizeBytes: 32768 });
    assert.deepEqual(types, [{ type: 'F32', tensors: 80, sizeBytes: 896768 }]);
  });

  test('a .safetensors: its types, and the RoPE of the config.json beside it', async () => {
    const { status, stdout } = await ropewalk(join(marline, 'model.safetensors'));
    assert.equal(status, 0);
    assert.match(
      stdout,
      /model\.safetensors: safetensors, 38 tensors, 3\.54 MB in 38 of F16\n.*config\.json: llama, 4 layers/,
    );
    const json = JSON.parse((await ropewalk(join(marline, 'model.safetensors'), '--json')).stdout);
    assert.deepEqual([json.format, json.types[0].tensors, json.layers.length], ['safetensors', 38, 4]);
    const tensor = tensorFrom(new Float32Array(6), { dtype: 'f32', shape: [2, 3] });
    put('alone/a.safetensors', writeSafetensors(new Map([['x\u001b', tensor]]), { format: 'pt' }));
    const alone = await ropewalk('alone/a.safetensors');
    assert.equal(alone.status, 0);
    assert.match(
      alone.stdout,
      /^alone\/a\.safetensors: safetensors, 1 tensor, 24 bytes in 1 of F32\n {2}note: .*not beside/,
    );
    const lists = await ropewalk('alone/a.safetensors', '--tensors', '--metadata');
    assert.match(
      lists.stdout,
      /^metadata\n {2}format {2}"pt"\n\ntensors\n {2}x\\u001b {2}F32 {2}\[2, 3\] {2}24 bytes\n$/m,
    );
  });

  test('a folder, and several files of one model', async () => {
    const { stdout } = await ropewalk(marline, '--tensors');
    assert.match(stdout, /^ {2}model\.norm\.weight +F16 +\[192\] +384 bytes$/m);
    for (const part of [1, 2])
      put(
        `parts/model-0000${part}-of-00002.safetensors`,
        writeSafetensors(new Map([[`t${part}`, tensorFrom(new Float32Array(2), { dtype: 'f32', shape: [2] })]])),
      );
    const parts = await ropewalk('parts', '--tensors');
    assert.match(parts.stdout, /^ {2}t2 {2}F32 {2}\[2\] {2}8 bytes {2}parts\/model-00002-of-00002\.safetensors$/m);
  });

  test('an ONNX graph: its constants, the files they lie in, and its metadata', async () => {
    const { status, stdout, stderr } = await ropewalk('whole/onnx/model.onnx', '--tensors', '--metadata');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^ {2}producer_name +"ropewalk-test"$/m);
    assert.match(stdout, /^ {2}opset com\.microsoft {2}1$/m);
    assert.match(stdout, /bytes +model\.onnx\.data$/m);
  });

  test('refusals: exit 2', async () => {
    const cut = await ropewalk(put('cut.safetensors', new Uint8Array(9)), '--tensors');
    assert.deepEqual([cut.status, cut.stdout], [2, '']);
    const context = await ropewalk(gguf, '--tensors', '--context', '8');
    assert.match(context.stderr, /--context: it is about RoPE, and --tensors and --metadata list/);
    const config = await ropewalk(join(marline, 'config.json'), '--tensors');
    assert.match(
      config.stderr,
      /expected a \.safetensors or \.gguf file, or a folder with one model, got "config\.json"/,
    );
  });
});
