import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type PermutePlan, planPermutation } from '@ropewalk/checkpoint';
import { copyPermuted, factsOf, proveScores } from '@ropewalk/checkpoint/internal/node';
import { openModel } from '@ropewalk/checkpoint/node';
import fc from 'fast-check';
import { blocksFrom, RopewalkError } from 'ropewalk';
import { readBlocks } from 'ropewalk/internal';
import { ropewalkIn } from '../../../test/support/command.js';
import { interrupted, onFullDisk } from '../../../test/support/cut-short.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { damage, damaged } from '../../../test/support/fuzz.js';
import { ggufOf, type MadeTensor, numberedRows, safetensorsOf } from '../../../test/support/model-files.js';
import { drawn, FUZZ } from '../../../test/support/size.js';
import { type PermuteCommandOptions, permute } from '../src/permute.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'permute-cli-'));
after(() => rmSync(folder, { recursive: true }));
const file = (name: string, content: string | Uint8Array): string => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};
const ropewalk = (...args: string[]) => ropewalkIn(root, 'permute', ...args);

/** The command in this process: what it prints, and the exit code. */
async function inside(
  input: string,
  output: string | undefined,
  options: PermuteCommandOptions,
): Promise<{ code: number; text: string }> {
  let text = '';
  const code = await permute(input, output, options, (more) => {
    text += more;
  });
  return { code, text };
}

/** The bytes of each tensor. */
async function contents(path: string): Promise<Map<string, Buffer>> {
  const { tensors, files } = await openModel(path);
  const bytes = files.map((name) => readFileSync(name));
  return new Map(
    tensors.map(({ name, file: n, byteOffset, sizeBytes }) => [
      name,
      bytes[n]!.subarray(byteOffset, byteOffset + sizeBytes!),
    ]),
  );
}

const GGUF_NAME: Record<string, string> = {
  q_proj: 'attn_q',
  k_proj: 'attn_k',
  v_proj: 'attn_v',
  o_proj: 'attn_output',
};
const ggufName = (name: string): string | undefined => {
  const match = /^model\.layers\.(\d+)\.self_attn\.(\w+)\.weight$/.exec(name);
  return match ? `blk.${match[1]}.${GGUF_NAME[match[2]!]}.weight` : undefined;
};
const isQk = (name: string): boolean => /[qk]_proj|attn_[qk]\./.test(name);

describe('a trained model, whose two files were written by other programs', () => {
  test('safetensors → interleaved has exactly the q and k of the f32 GGUF, and nothing else changed', async () => {
    const input = join(STORIES, 'model.safetensors');
    const out = join(folder, 'interleaved.safetensors');
    const { status, stdout, stderr } = await ropewalk(input, out, '--to', 'interleaved');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /evidence {6}.*config\.json: model_type llama: transformers rotates halves\./);
    assert.match(stdout, /geometry {6}heads 8, kv heads 4, head_dim 8, rotary_dim 8/);
    assert.match(stdout, /moves {9}10 of 47 tensors/);
    assert.match(stdout, /layer 0: new weights \d\.\de-1\d; weights left as they were [01]\.\d+\n/);
    assert.match(stdout, /Tell the runtime\n {2}pairs are \(2j, 2j\+1\): ggml mode 0 \(NORMAL\)/);
    const [before, got, gguf] = [
      await contents(input),
      await contents(out),
      await contents(join(STORIES, 'model-f32.gguf')),
    ];
    let same = 0;
    for (const [name, bytes] of got) {
      const twin = ggufName(name);
      if (twin === undefined || !isQk(name)) assert.deepEqual(bytes, before.get(name), name);
      else assert.notDeepEqual(bytes, before.get(name), name);
      if (twin === undefined) continue;
      assert.deepEqual(bytes, gguf.get(twin), name);
      same++;
    }
    assert.equal(same, 20);
    const [a, b] = [readFileSync(input), readFileSync(out)];
    const header = 8 + Number(a.readBigUInt64LE(0));
    assert.deepEqual(a.subarray(0, header), b.subarray(0, header), 'the header is the same to the byte');

    const back = join(folder, 'back.safetensors');
    // The copy has no config.json beside it, and that would say half: the pairing and the heads are given.
    const there = await inside(out, back, {
      to: 'half',
      from: 'interleaved',
      heads: '8',
      kvHeads: '4',
      headDim: '8',
      json: true,
    });
    assert.equal(there.code, 0);
    assert.deepEqual(readFileSync(back), a, 'there and back');
  });

  for (const name of ['model-f32.gguf', 'model-f16.gguf', 'model-q8_0.gguf']) {
    test(`${name} → half has the rows of the safetensors, and back is the same file`, async () => {
      const input = join(STORIES, name);
      const out = join(folder, `half-${name}`);
      const { code, text } = await inside(input, out, { to: 'half', check: true });
      assert.equal(code, 0);
      assert.equal(
        text.match(/^ +layer \d: new weights \d\.\de-1\d; weights left as they were [01]\.\d+$/gm)?.length,
        5,
        text,
      );
      const [before, got, hf] = [
        await contents(input),
        await contents(out),
        await contents(join(STORIES, 'model.safetensors')),
      ];
      for (const [key, bytes] of got) if (!isQk(key)) assert.deepEqual(bytes, before.get(key), key);
      for (const [key, bytes] of hf) {
        const twin = ggufName(key);
        if (twin === undefined || !isQk(key)) continue;
        const found = got.get(twin)!;
        const want = new Float32Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
        if (name.includes('f32')) assert.deepEqual(found, bytes, twin);
        else if (name.includes('f16')) assert.equal(found.length, bytes.length / 2);
        else {
          const rows = want.length / 64;
          const numbers = readBlocks(blocksFrom('q8_0', new Uint8Array(found), [rows, 64]), 'test');
          // q8_0 is off by half a step of 1/127 of a block's largest weight, and by f16's rounding of the step.
          for (let block = 0; block < numbers.length; block += 32) {
            const largest = Math.max(...want.subarray(block, block + 32).map(Math.abs));
            for (let i = block; i < block + 32; i++)
              assert.ok(Math.abs(numbers[i]! - want[i]!) <= largest * (0.5 / 127 + 2 ** -10), `${twin} ${i}`);
          }
        }
      }
      const again = join(folder, `again-${name}`);
      assert.equal((await inside(out, again, { to: 'interleaved', from: 'half', force: true, json: true })).code, 0);
      assert.deepEqual(readFileSync(again), readFileSync(input));
    });
  }

  test('f16: the rows are those of the safetensors, rounded', async () => {
    const [got, hf] = [
      await contents(join(folder, 'half-model-f16.gguf')),
      await contents(join(STORIES, 'model.safetensors')),
    ];
    const bytes = got.get('blk.2.attn_k.weight')!;
    const want = hf.get('model.layers.2.self_attn.k_proj.weight')!;
    const { numberFromF16 } = await import('ropewalk');
    for (let n = 0; n < bytes.length / 2; n++) {
      const exact = want.readFloatLE(4 * n);
      assert.ok(
        Math.abs(numberFromF16(bytes.readUInt16LE(2 * n)) - exact) <= Math.abs(exact) * 2 ** -11 + 2 ** -25,
        `${n}`,
      );
    }
  });

  test('a folder whose only weights are one GGUF is read as that file', async () => {
    const dir = made('one-gguf', { 'model.gguf': readFileSync(join(STORIES, 'model-q8_0.gguf')), 'README.md': '' });
    const { code, text } = await inside(dir, undefined, { to: 'half', dryRun: true });
    assert.equal(code, 0);
    assert.match(text, /one-gguf\/model\.gguf: llama, interleaved → half/);
  });

  test('twice is refused, with the evidence', async () => {
    await assert.rejects(permute(join(STORIES, 'model-f32.gguf'), join(folder, 'no'), { to: 'interleaved' }), {
      code: 'FORMAT',
      message:
        /model: its weights are interleaved already\. .*general\.architecture llama: llama\.cpp rotates neighbours \(NORMAL\).*No key says whether it did\..*add --force/,
    });
    await assert.rejects(
      permute(join(STORIES, 'model.safetensors'), join(folder, 'no'), { to: 'half', from: 'interleaved' }),
      {
        message: /its weights are half already.*transformers rotates halves/,
      },
    );
    assert.equal(existsSync(join(folder, 'no')), false);
  });

  test('a dry run lists, proves and writes nothing', async () => {
    const before = readdirSync(folder).length;
    const { code, text } = await inside(join(STORIES, 'model-q8_0.gguf'), undefined, { to: 'half', dryRun: true });
    assert.equal(code, 0);
    assert.match(text, /blk\.4\.attn_k\.weight {2}Q8_0 \[32, 64\]/);
    assert.match(text, /layer 0: new weights \d\.\de-1\d/);
    assert.match(text, /Nothing was written: a dry run\./);
    assert.equal(readdirSync(folder).length, before);
  });

  test('the proof fails where k is permuted by the number of q heads, where one of the two is not moved, and where a row is wrong', async () => {
    const input = join(STORIES, 'model.safetensors');
    const model = await openModel(input);
    const facts = await factsOf(model, {});
    const plan = planPermutation(model.tensors, {
      to: 'interleaved',
      naming: 'huggingface',
      geometryOf: facts.geometryOf,
    });
    const differs = async (name: string, moves: PermutePlan['moves']): Promise<number> => {
      const out = join(folder, name);
      await copyPermuted(input, out, moves, 'interleaved');
      const proofs = await proveScores(plan.moves, {
        to: 'interleaved',
        before: [input],
        after: [out],
        bigEndian: false,
        ropeOf: facts.ropeOf,
        all: false,
      });
      return proofs[0]!.difference / proofs[0]!.bound;
    };
    assert.ok((await differs('right', plan.moves)) <= 1);
    // Heads of half the size: what the bug of ggml-org/llama.cpp#3364 did to k.
    const wrong = plan.moves.map((move) =>
      move.k.length === 0
        ? move
        : {
            ...move,
            k: move.k.flatMap((row) => [row, row + 4]),
            geometry: { ...move.geometry, headDim: 4, rotaryDim: 4 },
          },
    );
    assert.ok((await differs('gqa', wrong)) > 1e10);
    assert.ok(
      (await differs(
        'q-only',
        plan.moves.filter(({ k }) => k.length === 0),
      )) > 1e10,
    );
    const first = plan.moves.map((move) => ({ ...move, q: move.q.slice(1), k: move.k }));
    assert.ok((await differs('one-head', first)) > 1e10);
  });
});

/** Weights of a small model with every kind of tensor. */
const F32 = (rows: number, cols: number, seed: number): Uint8Array =>
  new Uint8Array(Float32Array.from({ length: rows * cols }, (_, n) => Math.sin(1 + n * (seed + 1) * 0.7)).buffer);
const BF16 = (rows: number, cols: number, seed: number): Uint8Array => {
  const wide = new Uint8Array(F32(rows, cols, seed));
  return Uint8Array.from({ length: rows * cols * 2 }, (_, n) => wide[2 * (n - (n % 2)) + 2 + (n % 2)]!);
};
const qwen3 = {
  model_type: 'qwen3',
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  hidden_size: 8,
  rope_theta: 1e6,
};
const qwenTensors = (layer: number): MadeTensor[] => {
  const name = (rest: string): string => `model.layers.${layer}.self_attn.${rest}`;
  return [
    { name: name('q_proj.weight'), shape: [64, 8], type: 'BF16', bytes: BF16(64, 8, layer) },
    { name: name('k_proj.weight'), shape: [32, 8], type: 'BF16', bytes: BF16(32, 8, layer + 2) },
    { name: name('q_proj.bias'), shape: [64], type: 'BF16', bytes: BF16(64, 1, layer + 3) },
    { name: name('k_proj.bias'), shape: [32], type: 'BF16', bytes: BF16(32, 1, layer + 4) },
    { name: name('q_norm.weight'), shape: [16], type: 'F32', bytes: F32(16, 1, layer + 5) },
    { name: name('k_norm.weight'), shape: [16], type: 'F32', bytes: F32(16, 1, layer + 6) },
    { name: name('v_proj.weight'), shape: [32, 8], type: 'BF16', bytes: BF16(32, 8, layer + 7) },
  ];
};
const made = (name: string, files: Record<string, string | Uint8Array>): string => {
  const dir = join(folder, name);
  mkdirSync(dir);
  for (const [key, content] of Object.entries(files)) writeFileSync(join(dir, key), content);
  return dir;
};

describe('made-up models', () => {
  test('bf16, grouped, biases, q and k norms, in shards: the scores of all heads agree, companions come along', async () => {
    const weightMap: Record<string, string> = {};
    const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'];
    // q and k of layer 0 are in different files.
    const all = [...qwenTensors(0), ...qwenTensors(1)];
    const parts = [all.slice(0, 1), all.slice(1)];
    for (const [n, part] of parts.entries()) for (const { name } of part) weightMap[name] = shards[n]!;
    const index = JSON.stringify({ metadata: { total_size: 1 }, weight_map: weightMap }, null, 2);
    const dir = made('sharded', {
      'config.json': JSON.stringify(qwen3),
      'tokenizer.json': '{}',
      'model.safetensors.index.json': index,
      [shards[0]!]: safetensorsOf(parts[0]!),
      [shards[1]!]: safetensorsOf(parts[1]!),
      'pytorch_model.bin': 'other weights',
    });
    mkdirSync(join(dir, 'original'));
    const out = join(folder, 'sharded-out');
    const { code, text } = await inside(dir, out, { to: 'interleaved', check: true });
    assert.equal(code, 0, text);
    assert.match(text, /scores q·k of 4 q and 2 k heads/);
    assert.match(text, /layer 1: new weights \d\.\de-1\d/);
    assert.match(text, /not copied {4}original, pytorch_model\.bin/);
    assert.deepEqual(
      readdirSync(out).sort(),
      ['config.json', ...shards, 'model.safetensors.index.json', 'tokenizer.json'].sort(),
    );
    assert.equal(readFileSync(join(out, 'model.safetensors.index.json'), 'utf8'), index);
    const [before, got] = [await contents(dir), await contents(out)];
    for (const [name, bytes] of got) assert.equal(bytes.equals(before.get(name)!), name.includes('v_proj'), name);
    const back = join(folder, 'sharded-back');
    await inside(out, back, { to: 'half', force: true, json: true });
    for (const name of readdirSync(back))
      assert.deepEqual(readFileSync(join(back, name)), readFileSync(join(dir, name)), name);

    const ofPart = join(folder, 'sharded-by-part');
    await inside(join(dir, shards[1]!), ofPart, { to: 'interleaved' });
    assert.deepEqual(await contents(ofPart), got, 'a part stands for the whole');
    await assert.rejects(permute(dir, out, { to: 'interleaved' }), { message: /it already exists/ });
    await assert.rejects(permute(dir, join(dir, 'in-it'), { to: 'interleaved' }), {
      message: /it lies inside the input/,
    });
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.endsWith('.tmp')),
      [],
    );
  });

  test('norms that are not moved are detected', async () => {
    const dir = made('norms', {
      'config.json': JSON.stringify(qwen3),
      'model.safetensors': safetensorsOf([...qwenTensors(0), ...qwenTensors(1)]),
    });
    const model = await openModel(join(dir, 'model.safetensors'));
    const facts = await factsOf(model, {});
    const plan = planPermutation(model.tensors, {
      to: 'interleaved',
      naming: 'huggingface',
      geometryOf: facts.geometryOf,
    });
    assert.equal(plan.moves.length, 12);
    const out = join(folder, 'norms-out');
    await copyPermuted(
      model.files[0]!,
      out,
      plan.moves.filter(({ kind }) => kind !== 'norm'),
      'interleaved',
    );
    const prove = () =>
      proveScores(plan.moves, {
        to: 'interleaved',
        before: model.files,
        after: [out],
        bigEndian: false,
        ropeOf: facts.ropeOf,
        all: true,
      });
    for (const { difference, bound } of await prove()) assert.ok(difference > 1e6 * bound, `${difference}`);
  });

  test('GPT-NeoX: fused by head, a quarter of each head turns', async () => {
    const config = {
      model_type: 'gpt_neox',
      num_hidden_layers: 1,
      num_attention_heads: 3,
      hidden_size: 48,
      rotary_pct: 0.25,
      rotary_emb_base: 10000,
    };
    const dir = made('neox', {
      'config.json': JSON.stringify(config),
      'model.safetensors': safetensorsOf([
        {
          name: 'gpt_neox.layers.0.attention.query_key_value.weight',
          shape: [144, 48],
          type: 'F32',
          bytes: F32(144, 48, 1),
        },
        { name: 'gpt_neox.layers.0.attention.query_key_value.bias', shape: [144], type: 'F32', bytes: F32(144, 1, 2) },
      ]),
    });
    const { code, text } = await inside(join(dir, 'model.safetensors'), join(folder, 'neox-out.safetensors'), {
      to: 'interleaved',
      check: true,
    });
    assert.equal(code, 0, text);
    assert.match(text, /head_dim 16, rotary_dim 4/);
    assert.match(text, /new rows 0 … 3 are old rows 0 2 1 3/);
  });

  test('DeepSeek: the parts of q and k that turn', async () => {
    const config = {
      model_type: 'deepseek_v3',
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      hidden_size: 16,
      kv_lora_rank: 5,
      q_lora_rank: 6,
      qk_nope_head_dim: 3,
      qk_rope_head_dim: 4,
      v_head_dim: 3,
      max_position_embeddings: 128,
      rope_theta: 10000,
    };
    const dir = made('mla', {
      'config.json': JSON.stringify(config),
      'model.safetensors': safetensorsOf([
        { name: 'model.layers.0.self_attn.q_b_proj.weight', shape: [14, 6], type: 'F32', bytes: F32(14, 6, 1) },
        {
          name: 'model.layers.0.self_attn.kv_a_proj_with_mqa.weight',
          shape: [9, 16],
          type: 'F32',
          bytes: F32(9, 16, 2),
        },
        { name: 'model.layers.0.self_attn.kv_b_proj.weight', shape: [12, 5], type: 'F32', bytes: F32(12, 5, 3) },
      ]),
    });
    const { code, text } = await inside(join(dir, 'model.safetensors'), join(folder, 'mla-out.safetensors'), {
      to: 'half',
      check: true,
    });
    assert.equal(code, 0, text);
    assert.match(text, /moves {9}2 of 3 tensors/);
    assert.match(text, /new rows 0 … 3 are old rows 0 2 1 3/);
  });

  test('GGUF: q4_0 and Q4_K rows, fused, heads by layer, an unknown type, one whose rows are interleaved', async () => {
    const metadata = {
      'general.architecture': 'llama',
      'llama.block_count': 2,
      'llama.embedding_length': 64,
      'llama.attention.head_count': [8, 4],
      'llama.attention.head_count_kv': [2, 4],
      'llama.attention.key_length': 8,
      'llama.rope.dimension_count': 8,
    };
    // Each block's scale is made a finite number.
    const q4 = (bytes: Uint8Array): Uint8Array => bytes.map((byte, n) => (n % 18 === 1 ? byte & 0x3f : byte));
    const rows = (count: number, rowBytes: number, seed: number, type: number): Uint8Array =>
      type === 2 ? q4(numberedRows(count, rowBytes, seed)) : numberedRows(count, rowBytes, seed);
    const build = (type: number, rowBytes: number, cols: number): string =>
      file(
        `type-${type}.gguf`,
        ggufOf(
          [
            { name: 'blk.0.attn_q.weight', shape: [cols, 64], type, bytes: rows(64, rowBytes, 1, type) },
            { name: 'blk.0.attn_k.weight', shape: [cols, 16], type: 2, bytes: rows(16, (cols / 32) * 18, 2, 2) },
            { name: 'blk.0.attn_v.weight', shape: [cols, 16], type: 0, bytes: numberedRows(16, cols * 4, 3) },
            { name: 'blk.1.attn_qkv.weight', shape: [cols, 96], type, bytes: rows(96, rowBytes, 4, type) },
          ],
          metadata,
        ),
      );
    for (const [type, rowBytes, cols] of [
      [2, 36, 64],
      [12, 144, 256],
      [99, 50, 64],
    ] as const) {
      const input = build(type, rowBytes, cols);
      const out = `${input}.out.gguf`;
      const { code, text } = await inside(input, out, { to: 'half', check: true });
      assert.equal(code, 0, text);
      assert.equal(/are not decoded here, or hold NaN or infinity/.test(text), type !== 2);
      const [before, got] = [await contents(input), await contents(out)];
      const row = (bytes: Buffer, n: number): string =>
        bytes.subarray(n * rowBytes, (n + 1) * rowBytes).toString('hex');
      const order = [0, 2, 4, 6, 1, 3, 5, 7];
      const name = 'blk.1.attn_qkv.weight';
      // Layer 1: 4 q heads, 4 k heads, then v.
      for (let n = 0; n < 96; n++) {
        const was = n < 64 ? n - (n % 8) + order[n % 8]! : n;
        assert.equal(row(got.get(name)!, n), row(before.get(name)!, was), `row ${n}`);
      }
      for (let n = 0; n < 64; n++)
        assert.equal(
          row(got.get('blk.0.attn_q.weight')!, n),
          row(before.get('blk.0.attn_q.weight')!, n - (n % 8) + order[n % 8]!),
        );
      assert.deepEqual(got.get('blk.0.attn_v.weight'), before.get('blk.0.attn_v.weight'));
    }
    await assert.rejects(permute(build(31, 36, 64), join(folder, 'woven'), { to: 'half' }), {
      code: 'UNSUPPORTED',
      message: /the layout of type TYPE_31 is unknown/,
    });
  });

  test('weights that are zero prove nothing, and a note says so', async () => {
    const zeros = qwenTensors(0).map((tensor) => ({ ...tensor, bytes: new Uint8Array(tensor.bytes.length) }));
    const dir = made('zeros', { 'config.json': JSON.stringify(qwen3), 'model.safetensors': safetensorsOf(zeros) });
    const { text } = await inside(join(dir, 'model.safetensors'), undefined, { to: 'interleaved', dryRun: true });
    assert.match(text, /these cannot tell: zero, or all alike/);
    const { text: json } = await inside(join(dir, 'model.safetensors'), undefined, {
      to: 'interleaved',
      dryRun: true,
      json: true,
    });
    assert.equal(JSON.parse(json).proved, false);
  });

  test('weights that hold NaN are moved, and compared by their bytes', async () => {
    const tensors = qwenTensors(0);
    new DataView(tensors[0]!.bytes.buffer).setUint16(0, 0x7fc0, true);
    const dir = made('nan', { 'config.json': JSON.stringify(qwen3), 'model.safetensors': safetensorsOf(tensors) });
    const { code, text } = await inside(join(dir, 'model.safetensors'), join(dir, 'out.safetensors'), {
      to: 'interleaved',
    });
    assert.equal(code, 0, text);
    assert.match(text, /1 tensors are not decoded here, or hold NaN or infinity/);
  });

  test('scores that do not agree, here because they are too large to compare: exit 1, and nothing is left', async () => {
    const huge = (rows: number) => new Uint8Array(new Float64Array(rows * 8).fill(1e300).buffer);
    const tensors = ['q', 'k'].map((part): MadeTensor => {
      const rows = part === 'q' ? 64 : 32;
      return { name: `model.layers.0.self_attn.${part}_proj.weight`, shape: [rows, 8], type: 'F64', bytes: huge(rows) };
    });
    const dir = made('huge', { 'config.json': JSON.stringify(qwen3), 'model.safetensors': safetensorsOf(tensors) });
    const { code, text } = await inside(join(dir, 'model.safetensors'), join(dir, 'out.safetensors'), {
      to: 'interleaved',
    });
    assert.equal(code, 1);
    assert.match(text, /new weights Infinity \(too large to compare\), WRONG[\s\S]*Nothing was written\./);
    assert.deepEqual(readdirSync(dir), ['config.json', 'model.safetensors']);
  });
});

describe('what the models’ own files say', () => {
  const base = {
    num_hidden_layers: 4,
    num_attention_heads: 8,
    hidden_size: 512,
    max_position_embeddings: 128,
    rope_theta: 10000,
  };
  const table: [string, object, string | undefined, string | undefined, object, number?][] = [
    [
      'falcon-7b',
      { model_type: 'falcon', multi_query: true },
      'half',
      'concatenated',
      { numHeads: 8, numKvHeads: 1, headDim: 64, rotaryDim: 64 },
    ],
    [
      'falcon, multi_query left out',
      { model_type: 'falcon' },
      'half',
      'concatenated',
      { numHeads: 8, numKvHeads: 1, headDim: 64, rotaryDim: 64 },
    ],
    [
      'falcon-rw',
      { model_type: 'falcon', multi_query: false },
      'half',
      'by-head',
      { numHeads: 8, numKvHeads: 8, headDim: 64, rotaryDim: 64 },
    ],
    [
      'falcon-40b',
      { model_type: 'falcon', new_decoder_architecture: true, num_kv_heads: 2 },
      'half',
      'by-group',
      { numHeads: 8, numKvHeads: 2, headDim: 64, rotaryDim: 64 },
    ],
    [
      'phi-3',
      { model_type: 'phi3', num_key_value_heads: 4 },
      'half',
      'concatenated',
      { numHeads: 8, numKvHeads: 4, headDim: 64, rotaryDim: 64 },
    ],
    [
      'codegen',
      { model_type: 'codegen', rotary_dim: 32, rope_theta: undefined },
      'interleaved',
      'codegen',
      { numHeads: 8, numKvHeads: 8, headDim: 64, rotaryDim: 32 },
    ],
    [
      'glm',
      { model_type: 'glm', head_dim: 128, num_key_value_heads: 2 },
      'interleaved',
      undefined,
      { numHeads: 8, numKvHeads: 2, headDim: 128, rotaryDim: 64 },
    ],
    [
      'qwen3-next, a full layer',
      { model_type: 'qwen3_next', head_dim: 256, num_key_value_heads: 2 },
      'half',
      undefined,
      { numHeads: 8, numKvHeads: 2, headDim: 256, rotaryDim: 64, queryRows: 512 },
      3,
    ],
    [
      'smollm3, a layer without position',
      { model_type: 'smollm3', num_key_value_heads: 2 },
      'half',
      undefined,
      { numHeads: 8, numKvHeads: 2, headDim: 64, rotaryDim: 64 },
      3,
    ],
    [
      'a head for prediction, past the last layer',
      { model_type: 'llama' },
      'half',
      undefined,
      { numHeads: 8, numKvHeads: 8, headDim: 64, rotaryDim: 64 },
      4,
    ],
    [
      'a language model in a larger one',
      { model_type: 'llava', text_config: { ...base, model_type: 'llama' } },
      'half',
      undefined,
      { numHeads: 8, numKvHeads: 8, headDim: 64, rotaryDim: 64 },
    ],
    [
      'a model that is not known',
      { model_type: 'made_up' },
      undefined,
      undefined,
      { numHeads: 8, numKvHeads: 8, headDim: 64, rotaryDim: 64 },
    ],
  ];
  const dir = made('facts', { 'model.safetensors': safetensorsOf([]) });
  for (const [name, config, from, fused, geometry, layer = 0] of table) {
    test(name, async () => {
      const config_ = join(dir, 'config.json');
      writeFileSync(config_, JSON.stringify({ ...base, ...config }));
      const facts = await factsOf(await openModel(dir), {});
      assert.deepEqual([facts.native, facts.fused, facts.geometryOf(layer)], [from, fused, geometry]);
      // Where the file does not say, the command line may.
      assert.equal((await factsOf(await openModel(dir), { from: 'half' })).from, 'half');
    });
  }

  test('GGUF: MLA, and an architecture that is not known', async () => {
    const mla = {
      'general.architecture': 'deepseek2',
      'deepseek2.block_count': 2,
      'deepseek2.attention.head_count': 16,
      'deepseek2.attention.head_count_kv': 1,
      'deepseek2.attention.key_length': 576,
      'deepseek2.attention.key_length_mla': 192,
      'deepseek2.attention.kv_lora_rank': 512,
      'deepseek2.rope.dimension_count': 64,
    };
    const facts = await factsOf(await openModel(file('mla.gguf', ggufOf([], mla))), {});
    assert.equal(facts.native, 'interleaved');
    assert.deepEqual(facts.geometryOf(0), {
      numHeads: 16,
      numKvHeads: 1,
      headDim: 64,
      rotaryDim: 64,
      queryRows: 192,
      queryOffset: 128,
      keyRows: 576,
      keyOffset: 512,
    });
    const odd = {
      'general.architecture': 'odd',
      'odd.embedding_length': 64,
      'odd.attention.head_count': 4,
      'odd.rope.dimension_count': 8,
    };
    const said = await factsOf(await openModel(file('odd.gguf', ggufOf([], odd))), { from: 'half' });
    assert.deepEqual(
      [said.from, said.native, said.geometryOf(0)],
      ['half', undefined, { numHeads: 4, numKvHeads: 4, headDim: 16, rotaryDim: 8 }],
    );
  });
});

describe('work that is cut short leaves nothing', () => {
  const dir = join(folder, 'cut');
  const big = join(dir, 'big.safetensors');
  const names = ['q_proj', 'k_proj'].map((part) => `model.layers.0.self_attn.${part}.weight`);
  const flags = ['--to', 'interleaved', '--from', 'half', '--heads', '2', '--kv-heads', '2', '--head-dim', '4'];
  const start = (): void => {
    if (existsSync(dir)) return;
    mkdirSync(dir);
    const weights = names.map((name, n): MadeTensor => ({ name, shape: [8, 4], type: 'F32', bytes: F32(8, 4, n) }));
    const small = safetensorsOf([
      ...weights,
      { name: 'lm_head.weight', shape: [0], type: 'U8', bytes: new Uint8Array() },
    ]);
    const header = Number(new DataView(small.buffer).getBigUint64(0, true));
    const text = JSON.parse(new TextDecoder().decode(small.subarray(8, 8 + header)));
    // A sparse file of one gigabyte: copying it takes long enough to be interrupted.
    const size = 2 ** 30;
    text['lm_head.weight'] = { dtype: 'U8', shape: [size], data_offsets: [256, 256 + size] };
    const encoded = new TextEncoder().encode(JSON.stringify(text));
    const bytes = new Uint8Array(8 + encoded.length + 256);
    new DataView(bytes.buffer).setBigUint64(0, BigInt(encoded.length), true);
    bytes.set(encoded, 8);
    bytes.set(small.subarray(8 + header), 8 + encoded.length);
    writeFileSync(big, bytes);
    truncateSync(big, bytes.length + size);
  };

  const words = ['permute', big, join(dir, 'out.safetensors'), ...flags];
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    test(signal, () => {
      start();
      return interrupted(signal, dir, words);
    });

  test('a disk that is full: exit 2', () => {
    start();
    onFullDisk(dir, words);
  });

  after(() => rmSync(dir, { recursive: true, force: true }));
});

test('fuzz: damaged models are permuted or refused, and a refusal leaves nothing', async () => {
  const dir = made('fuzz', {});
  const st = safetensorsOf([...qwenTensors(0), ...qwenTensors(1)]);
  const gguf = ggufOf(
    [
      { name: 'blk.0.attn_q.weight', shape: [32, 16], type: 8, bytes: numberedRows(16, 34) },
      { name: 'blk.0.attn_k.weight', shape: [32, 8], type: 8, bytes: numberedRows(8, 34) },
    ],
    {
      'general.architecture': 'llama',
      'llama.block_count': 1,
      'llama.embedding_length': 32,
      'llama.attention.head_count': 4,
      'llama.attention.head_count_kv': 2,
      'llama.attention.key_length': 4,
      'llama.rope.dimension_count': 4,
    },
  );
  const config = new TextEncoder().encode(JSON.stringify(qwen3));
  let done = 0;
  await fc.assert(
    fc.asyncProperty(fc.constantFrom('st', 'gguf', 'config'), damage, async (which, steps) => {
      const [name, bytes] =
        which === 'gguf'
          ? ['m.gguf', damaged(gguf, steps)]
          : ['m.safetensors', which === 'st' ? damaged(st, steps) : st];
      writeFileSync(join(dir, name as string), bytes as Uint8Array);
      writeFileSync(join(dir, 'config.json'), which === 'config' ? damaged(config, steps) : config);
      const out = join(dir, 'out');
      try {
        const { code } = await inside(join(dir, name as string), out, {
          to: which === 'gguf' ? 'half' : 'interleaved',
          json: true,
        });
        assert.equal(existsSync(out), code === 0);
        done++;
      } catch (error) {
        assert.ok(error instanceof RopewalkError, String((error as Error).stack));
        assert.ok(!existsSync(out));
      }
      rmSync(out, { force: true });
      assert.deepEqual(
        readdirSync(dir).filter((entry) => entry.endsWith('.tmp')),
        [],
      );
    }),
    drawn(400),
  );
  if (FUZZ === 10) assert.ok(done > 20, `${done} were permuted`);
});

describe('refusals', () => {
  const tensors = qwenTensors(0).slice(0, 2);
  const bare = made('bare', { 'model.safetensors': safetensorsOf(tensors) });
  const known = made('known', {
    'config.json': JSON.stringify(qwen3),
    'model.safetensors': safetensorsOf(tensors),
    'x.gguf': 'GGUF',
    'm.bin': '',
  });
  const configured = (name: string, config: object): string =>
    join(
      made(name, { 'config.json': JSON.stringify(config), 'model.safetensors': safetensorsOf(tensors) }),
      'model.safetensors',
    );
  const model = join(known, 'model.safetensors');
  const out = join(folder, 'refused');
  const said = { from: 'half', heads: '4', kvHeads: '2', headDim: '16' };
  const cases: [string, string, Partial<PermuteCommandOptions>, RegExp][] = [
    ['a pairing that is none', model, { to: 'neox' }, /--to: expected half or interleaved, got "neox"/],
    ['--from that is none', model, { from: 'x' }, /--from: expected half or interleaved, got "x"/],
    ['--from as --to', model, { from: 'interleaved' }, /from: --from and --to both say interleaved/],
    ['heads that are no number', model, { heads: '4.5' }, /--heads: expected an integer in \[1, 65536\], got "4\.5"/],
    ['heads that are 0', model, { heads: '0' }, /--heads: expected an integer in/],
    ['heads that are -1', model, { headDim: '-1' }, /--head-dim: expected an integer in/],
    ['a pattern that is none', model, { tensors: '(' }, /--tensors: expected a regular expression, got "\("/],
    [
      'heads against the config',
      model,
      { heads: '8' },
      /heads: expected 4, as .*config\.json says, got 8\. Leave it out, or correct the file\./,
    ],
    ['kv heads against it', model, { kvHeads: '4' }, /kvHeads: expected 2, as/],
    ['head_dim against it', model, { headDim: '8' }, /headDim: expected 16, as/],
    ['rotary_dim against it', model, { rotaryDim: '8' }, /rotaryDim: expected 16, as/],
    [
      'a file that is not there',
      join(known, 'none.safetensors'),
      {},
      /none\.safetensors: there is no such file or folder/,
    ],
    ['a file of another kind', join(known, 'm.bin'), {}, /expected a \.safetensors or \.gguf file, or a folder/],
    ['a GGUF that is none', join(known, 'x.gguf'), {}, /truncated or forged/],
    [
      'a config that is not there',
      model,
      { config: join(known, 'no.json') },
      /no\.json: there is no such file or folder/,
    ],
    [
      'no config, no pairing',
      join(bare, 'model.safetensors'),
      {},
      /from: the pairing of unknown model is not known\. Say it with --from/,
    ],
    [
      'no config, no heads',
      join(bare, 'model.safetensors'),
      { from: 'half' },
      /headDim: no config\.json or metadata says it\. Give --head-dim\./,
    ],
    [
      'no config, wrong heads',
      join(bare, 'model.safetensors'),
      { ...said, heads: '2' },
      /q_proj\.weight: expected 32 rows, heads=2 × 16, got \[64, 8\]/,
    ],
    [
      'no config, heads that do not divide',
      join(bare, 'model.safetensors'),
      { ...said, kvHeads: '3' },
      /kv_heads: expected a divisor of heads=4, got 3/,
    ],
    [
      'no config, an odd window',
      join(bare, 'model.safetensors'),
      { ...said, rotaryDim: '5' },
      /rotary_dim: expected an even integer/,
    ],
    [
      'a model that is not known',
      configured('odd', { ...qwen3, model_type: 'made_up' }),
      {},
      /from: the pairing of made_up is not known/,
    ],
    [
      'a model without RoPE',
      configured('gpt2', { ...qwen3, model_type: 'gpt2' }),
      {},
      /expected a model with rotary position embedding/,
    ],
    [
      'values made by k_proj',
      configured('kv', { ...qwen3, attention_k_eq_v: true }),
      {},
      /attention_k_eq_v: k_proj makes the values too/,
    ],
    [
      'a config with other heads',
      configured('six', { ...qwen3, num_attention_heads: 6 }),
      {},
      /q_proj\.weight: expected 96 rows, heads=6 × 16/,
    ],
    [
      '--config beside a GGUF',
      file('c.gguf', ggufOf([], { 'general.architecture': 'llama' })),
      { config: 'c.json' },
      /config: a GGUF has metadata of its own/,
    ],
    [
      'an architecture that is not known',
      file('u.gguf', ggufOf([], { 'general.architecture': 'made-up' })),
      {},
      /general\.architecture: expected one of the \d+ architectures of llama\.cpp, got "made-up"/,
    ],
    [
      'a GGUF without tensors',
      file(
        'n.gguf',
        ggufOf([], { 'general.architecture': 'llama', 'llama.block_count': 1, 'llama.attention.key_length': 8 }),
      ),
      { to: 'half' },
      /no q and k projections found/,
    ],
    [
      'a part of a GGUF',
      file('p.gguf', ggufOf([], { 'general.architecture': 'llama', 'split.count': 2 })),
      {},
      /it is one of 2 parts/,
    ],
    [
      'a folder without weights',
      made('empty', {}),
      {},
      /expected one \.safetensors file, or model\.safetensors\.index\.json beside several, got \[\]/,
    ],
    [
      'an index that names a file elsewhere',
      made('evil', { 'model.safetensors.index.json': '{"weight_map":{"a":"../known/model.safetensors"}}' }),
      {},
      /a: expected a \.safetensors file in the same folder, got "\.\.\/known/,
    ],
    [
      'an index without tensors',
      made('none', { 'model.safetensors.index.json': '{"weight_map":{}}' }),
      {},
      /weight_map: it lists no tensors/,
    ],
    [
      'an index that lists what is not there',
      made('lies', {
        'model.safetensors.index.json': '{"weight_map":{"a":"m.safetensors"}}',
        'm.safetensors': safetensorsOf(tensors),
      }),
      {},
      /the index says that a is in this file, but it is not/,
    ],
  ];
  for (const [name, input, options, message] of cases) {
    test(name, async () => {
      await assert.rejects(permute(input, out, { to: 'interleaved', ...options }), (error) => {
        assert.ok(error instanceof RopewalkError, String(error));
        assert.match(error.message, message);
        return true;
      });
      assert.ok(!existsSync(out));
    });
  }

  test('a cut file, an empty file', async () => {
    const bytes = safetensorsOf(tensors);
    for (const [name, part, message] of [
      ['cut', bytes.slice(0, bytes.length - 1), /The file is truncated or forged/],
      ['empty', new Uint8Array(), /at least 8 bytes/],
    ] as const)
      await assert.rejects(permute(file(`${name}.safetensors`, part), out, { to: 'interleaved', ...said }), {
        message,
      });
  });

  test('an unknown model, with all facts given', async () => {
    const dir = made('said', {
      'config.json': JSON.stringify({ model_type: 'gpt2' }),
      'model.safetensors': safetensorsOf(tensors),
    });
    const { code, text } = await inside(join(dir, 'model.safetensors'), join(dir, 'out'), {
      to: 'interleaved',
      ...said,
    });
    assert.equal(code, 0);
    assert.match(text, /note .*config\.json says is not used: .*rotary position embedding/);
  });

  test('on the command line: exit 2, one line, no stack', async () => {
    for (const list of [
      [model, out],
      [model, out, '--to', 'neox'],
      [model, '--to', 'interleaved'],
      [model, model, '--to', 'interleaved', '--force'],
    ]) {
      const digest = createHash('sha256').update(readFileSync(model)).digest('hex');
      const { status, stderr } = await ropewalk(...list);
      assert.equal(status, 2, stderr);
      assert.doesNotMatch(stderr, /^\s+at /m);
      assert.equal(createHash('sha256').update(readFileSync(model)).digest('hex'), digest);
    }
  });
});
