/** Tests gpt-oss as HuggingFace publishes it: experts in MXFP4, codes and scales in two tensors. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseNpy, parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats';
import type { BlockTensor, Tensor } from 'ropewalk';
import { openBackend, Ropewalk, ropewalk } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { withFormats } from '../../../test/support/model-files.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { folderOf } from '../src/description.js';
import { type LoadOptions, loadModel } from '../src/index.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import type { PlannedModel } from '../src/plan-model.js';
import { streamWeight } from '../src/stream-weight.js';
import type { Model, ModelMemory } from '../src/types.js';
import { loadWeights, type Weight } from '../src/upload.js';
import type { WeightPlan } from '../src/weights.js';

const GGUF = join(FAMILIES, 'gpt-oss.gguf');
const folder = mkdtempSync(join(tmpdir(), 'ropewalk-mxfp4-'));
const TOKENS = Array.from(parseNpy(readFileSync(join(FAMILIES, 'gpt-oss.tokens.npy'))).data as Int32Array);
const tokenizer = numberTokenizer(1000);
const EXPERTS = 'model.layers.0.mlp.experts';

let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  await writeHuggingFace(GGUF, folder, { shards: 2, mxfp4: true });
});
after(() => {
  rw.dispose();
  rmSync(folder, { recursive: true });
});

async function logitsOf(loading: Promise<Model>): Promise<Float32Array> {
  const model = await loading;
  try {
    return await model.openSession().append(TOKENS, { logits: 'all' });
  } finally {
    model.dispose();
  }
}

test('rows of two matrices take turns in the file, also across the pieces that are read', async () => {
  const [rows, blocks] = [3000, 250]; // 12.75 MB: two pieces
  const random = randomFrom('turns');
  const bytes = Uint8Array.from({ length: rows * blocks * 17 }, () => random.integer(256));
  const codes = { file: 'a', byteOffset: 0, sizeBytes: rows * blocks * 16 };
  const scales = { file: 'a', byteOffset: codes.sizeBytes, sizeBytes: rows * blocks };
  const plan: WeightPlan = {
    place: 'experts',
    name: 'experts',
    type: 'MXFP4',
    shape: [2, rows / 2, blocks * 32],
    spans: [codes, scales],
    sizeBytes: bytes.length,
    held: 'mxfp4',
    widened: false,
    heldBytes: bytes.length,
    lessOne: false,
    turns: 2,
  };
  const loaded = new Map<string, Weight>();
  let pieces = 0;
  const folder = folderOf({ a: bytes }, undefined);
  const streamed: Pick<PlannedModel, 'weights' | 'streamWeight'> = {
    weights: [plan],
    streamWeight: (...given) => streamWeight(folder, ...given),
  };
  await loadWeights(rw, streamed, loaded, { onProgress: () => pieces++ });
  assert.equal(pieces, 4);
  const held = (loaded.get('experts') as BlockTensor).bytes.read() as Uint8Array;
  for (let row = 0; row < rows; row++) {
    const to = ((row % 2) * (rows / 2) + (row >> 1)) * blocks * 17;
    for (let block = 0; block < blocks; block++) {
      const at = row * blocks + block;
      assert.equal(held[to + 17 * block], bytes[scales.byteOffset + at], `scale of block ${block} of row ${row}`);
      for (let i = 0; i < 32; i++) {
        const want = (bytes[16 * at + (i >> 1)]! >> (4 * (i & 1))) & 15;
        const got = (held[to + 17 * block + 1 + (i % 16)]! >> (i < 16 ? 0 : 4)) & 15;
        if (got !== want) assert.equal(got, want, `weight ${i} of block ${block} of row ${row}`);
      }
    }
  }
  loaded.get('experts')!.dispose();
});

describe('gpt-oss in MXFP4 from HuggingFace files', () => {
  test('cpu holds the same blocks as from GGUF, and gives the same bits', async () => {
    const memory: ModelMemory[] = [];
    const options: LoadOptions = { backend: rw, tokenizer, context: 256, onMemory: (sums) => memory.push(sums) };
    const want = await logitsOf(loadModelFile(GGUF, options));
    const read: number[] = [];
    const onProgress: LoadOptions['onProgress'] = ({ doneBytes, totalBytes }) => read.push(doneBytes / totalBytes);
    const got = await logitsOf(loadModelFolder(folder, { ...options, onProgress }));
    assert.deepEqual(got, want);
    assert.equal(memory[1]!.weightsBytes, memory[0]!.weightsBytes);
    assert.equal(read.at(-1), 1, 'every byte was read');
  });

  test('without kernels for it, it is widened to bf16, and gives the same bits as from GGUF', async () => {
    const plain = new Ropewalk(withFormats(await openBackend('reference'), []));
    const options = { backend: plain, tokenizer, context: 256 };
    assert.deepEqual(await logitsOf(loadModelFolder(folder, options)), await logitsOf(loadModelFile(GGUF, options)));
    plain.dispose();
  });

  /** Returns the model as one file, with changes. */
  const changed = async (
    change: (tensors: Map<string, Tensor>) => void,
    fields: Record<string, unknown> = {},
  ): Promise<Model> => {
    const config = { ...JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')), ...fields };
    const tensors = new Map<string, Tensor>();
    for (const n of [1, 2]) {
      const bytes = readFileSync(join(folder, `model-0000${n}-of-00002.safetensors`));
      const file = parseSafetensors(bytes);
      for (const name of file.tensors.keys()) tensors.set(name, tensorFromSafetensors(bytes, file, name));
    }
    change(tensors);
    const files = {
      'config.json': new TextEncoder().encode(JSON.stringify(config)),
      'model.safetensors': writeSafetensors(tensors),
    };
    return loadModel(files, { backend: rw, tokenizer });
  };

  const refusals: Record<string, [Parameters<typeof changed>, code: string, message: RegExp]> = {
    'no scales': [
      [(tensors) => tensors.delete(`${EXPERTS}.down_proj_scales`)],
      'FORMAT',
      /tensor model\.layers\.0\.mlp\.experts\.down_proj_scales of shape \[\d+,\d+,\d+\], which gpt_oss .* needs, is not/,
    ],
    'no codes': [
      [(tensors) => tensors.delete(`${EXPERTS}.down_proj_blocks`)],
      'FORMAT',
      /tensor model\.layers\.0\.mlp\.experts\.down_proj_blocks of shape .* is not among/,
    ],
    'scales of another shape': [
      [
        (tensors) => {
          const scales = tensors.get(`${EXPERTS}.gate_up_proj_scales`)!;
          tensors.set(`${EXPERTS}.gate_up_proj_scales`, scales.view([...scales.shape, 1]));
        },
      ],
      'FORMAT',
      /gate_up_proj_scales: expected shape \[\d+,\d+,\d+\] \(slowest dimension first\), got \[\d+, \d+, \d+, 1\]/,
    ],
    'codes that are not bytes': [
      [
        (tensors) => {
          const blocks = tensors.get(`${EXPERTS}.gate_up_proj_blocks`)!;
          tensors.set(`${EXPERTS}.gate_up_proj_blocks`, rw.allocate('f32', blocks.shape));
        },
      ],
      'UNSUPPORTED',
      /gate_up_proj_blocks: expected type U8.*got "F32"/,
    ],
    'another method': [
      [() => undefined, { quantization_config: { quant_method: 'hqq' } }],
      'UNSUPPORTED',
      /quantization_config\.quant_method: expected mxfp4, gptq, .*, got "hqq"\. Take weights in F32, F16 or BF16, or a quantised GGUF/,
    ],
    'no method': [
      [() => undefined, { quantization_config: {} }],
      'FORMAT',
      /quantization_config\.quant_method: expected a string, got none/,
    ],
    'MXFP4 in another family': [
      [() => undefined, { model_type: 'mixtral' }],
      'UNSUPPORTED',
      /quantization_config\.quant_method: expected none, gptq, .*, got "mxfp4"/,
    ],
    'another clamp': [[() => undefined, { swiglu_limit: 5 }], 'UNSUPPORTED', /swiglu_limit: expected none, got 5/],
  };
  for (const [label, [args, code, message]] of Object.entries(refusals))
    test(`refused: ${label}`, () => assert.rejects(changed(...args), { name: 'RopewalkError', code, message }));
});
