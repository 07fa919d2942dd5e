/** What `ropewalk inspect` says of graphs and of folders with them; cli.test.ts has the rest of it. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { graphContents, parseOnnxModel } from '../../packages/onnx/src/index.js';
import { tensorFrom } from '../../packages/ropewalk/src/core/tensor.js';
import { Graph } from '../onnx/import/build.js';
import { wholeGraph } from '../onnx/import/whole-graph.js';
import { ropewalkIn } from '../support/command.js';

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
      /^ {2}RoPE {12}layer 0, RotaryEmbedding \(com\.microsoft\), half, 8 of 8 dimensions, base 10000, tables of 64 positions$/m,
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
    assert.match(stdout, /^ {2}RoPE {12}layers 0-1, GroupQueryAttention/m);
  });

  test('a graph alone, without caches and without RoPE', async () => {
    const g = new Graph();
    g.output(g.node('Relu', [g.input('x', 'f32', [1])]), 'f32');
    const { status, stdout } = await ropewalk(put('none.onnx', g.model()));
    assert.equal(status, 0);
    assert.match(stdout, /^ {2}form {12}primitives, /m);
    assert.match(stdout, /^ {2}KV caches {7}none: each run computes all tokens$/m);
    assert.match(stdout, /^ {2}RoPE {12}none found$/m);
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
