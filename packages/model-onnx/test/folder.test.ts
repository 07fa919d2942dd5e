/** Tests of whole models as folders: their contents, and their state after a failure. */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseGguf } from '@ropewalk/formats';
import { type ExportDecoderOptions, exportDecoder } from '@ropewalk/model-onnx/node';
import { parseOnnxModel } from '@ropewalk/onnx';
import fc from 'fast-check';
import { RopewalkError } from 'ropewalk';
import { damage, damaged } from '../../../test/support/fuzz.js';
import { ortOrReason } from '../../../test/support/ort.js';
import { drawn } from '../../../test/support/size.js';
import { splitGguf } from '../../../test/support/split-gguf.js';
import { testOnce as test, testPeers } from '../../../test/support/tier.js';
import { type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';

const ort = await ortOrReason();
const root = mkdtempSync(join(tmpdir(), 'ropewalk-folder-'));
after(() => rmSync(root, { recursive: true }));

const SHAPE = {
  family: 'llama',
  layers: 2,
  hidden: 64,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  inter: 96,
  vocab: 50,
} as const;
let count = 0;

/** A fresh folder with files in it. */
function folderWith(files: Readonly<Record<string, Uint8Array | string>>): string {
  const folder = join(root, `m${count++}`);
  mkdirSync(folder);
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(folder, name), bytes);
  return folder;
}

const ggufOf = (shape: Partial<TinyShape> = {}): string =>
  join(folderWith(tinyModel('folder', { ...SHAPE, ...shape }).gguf()), 'model.gguf');
const fresh = (): string => join(root, `out${count++}`);
const TOKENS = [1, 5, 49, 30];

/** The logits of {@link TOKENS} in ONNX Runtime, which finds the data files by itself. */
async function logitsOf(
  folder: string,
  layers = 2,
  kvHeads = 1,
  headDim = 32,
  tokens: readonly number[] = TOKENS,
): Promise<Float32Array> {
  if (typeof ort === 'string') throw new Error(ort);
  const path = join(folder, 'onnx/model.onnx');
  const session = await ort.InferenceSession.create(path as never, { intraOpNumThreads: 1, logSeverityLevel: 3 });
  const ints = (values: readonly number[], dims: readonly number[]) =>
    new ort.Tensor('int64', BigInt64Array.from(values, BigInt), dims);
  const feeds: Record<string, unknown> = {
    input_ids: ints(tokens, [1, 4]),
    attention_mask: ints([1, 1, 1, 1], [1, 4]),
    position_ids: ints([0, 1, 2, 3], [1, 4]),
    num_logits_to_keep: ints([0], []),
  };
  for (let layer = 0; layer < layers; layer++)
    for (const part of ['key', 'value'])
      feeds[`past_key_values.${layer}.${part}`] = new ort.Tensor('float32', new Float32Array(0), [
        1,
        kvHeads,
        0,
        headDim,
      ]);
  const { logits } = await session.run(feeds);
  await session.release();
  return logits!.data;
}

const skip = typeof ort === 'string' ? ort : false;
describe('what ONNX Runtime computes from the folder', () => {
  for (const form of ['contrib', 'standard', 'primitives'] as const)
    testPeers(`${form}: floats, in the graph's own file`, { skip }, async () => {
      const made = tinyModel('folder', SHAPE);
      const out = fresh();
      const { files } = await exportDecoder(folderWith(made.huggingFace()), out, { form });
      assert.ok(!existsSync(join(out, 'onnx/model.onnx_data')));
      for (const { name, sizeBytes } of files) assert.equal(statSync(join(out, name)).size, sizeBytes, name);
      // The bound for f32 sums of at most 96 products.
      assertClose(await logitsOf(out), made.logits(TOKENS), 1e-4);
    });

  for (const blocks of ['q8_0', 'q4_0'] as const)
    testPeers(
      `${blocks}: tied, the head's bytes once, in a file beside the graph; rounding floats gives the same`,
      { skip },
      async () => {
        const shape = { ...SHAPE, tied: true };
        const [stored, rounded] = [fresh(), fresh()];
        const { files } = await exportDecoder(ggufOf({ ...shape, blocks }), stored);
        assert.deepEqual(
          files.map(({ name }) => name).filter((name) => name.startsWith('onnx/')),
          ['onnx/model.onnx_data', 'onnx/model.onnx'],
        );
        for (const { name, sizeBytes } of files) assert.equal(statSync(join(stored, name)).size, sizeBytes, name);
        // The file has codes and scales of the matrices, norms, and the gaps between 22 constants.
        const weights = 50 * 64 + 2 * ((64 + 64) * 64 + 64 * 64 + 3 * 96 * 64);
        const bytes = (weights / 32) * (blocks === 'q8_0' ? 36 : 20) + 5 * 64 * 4;
        const { sizeBytes } = files.find(({ name }) => name.endsWith('_data'))!;
        assert.ok(sizeBytes >= bytes && sizeBytes < bytes + 30 * 64, `${sizeBytes} for ${bytes}`);
        // ONNX Runtime frees a constant after packing if only MatMulNBits reads it.
        const { nodes } = parseOnnxModel(readFileSync(join(stored, 'onnx/model.onnx'))).graph;
        const [packed, gathered] = ['MatMulNBits', 'Gather'].map((type) =>
          nodes.filter(({ opType }) => opType === type).flatMap(({ inputs }) => inputs),
        );
        assert.deepEqual(
          gathered!.filter((name) => packed!.includes(name)),
          [],
        );
        await exportDecoder(ggufOf(shape), rounded, { quantize: blocks });
        assert.deepEqual(
          readFileSync(join(rounded, 'onnx/model.onnx_data')),
          readFileSync(join(stored, 'onnx/model.onnx_data')),
        );
        // The error of a block's weights is half a step of 127 or 8 of its largest.
        assertClose(await logitsOf(stored), tinyModel('folder', shape).logits(TOKENS), blocks === 'q8_0' ? 0.05 : 0.6);
      },
    );

  for (const name of ['awq', 'packed-zeros', 'fp8-blocks'])
    testPeers(`${name}, as HuggingFace publishes it, like its dense twin`, { skip }, async () => {
      const packed = fileURLToPath(new URL(`../../model/test/golden/packed/${name}`, import.meta.url));
      const config = JSON.parse(readFileSync(join(packed, 'config.json'), 'utf8'));
      delete config.quantization_config;
      const dense = folderWith({
        'config.json': JSON.stringify(config),
        'model.safetensors': readFileSync(join(packed, 'dense.safetensors')),
      });
      const published = folderWith({
        'config.json': readFileSync(join(packed, 'config.json')),
        'model.safetensors': readFileSync(join(packed, 'model.safetensors')),
      });
      const outs = [fresh(), fresh()] as const;
      const shape = [1, 2, 16, [1, 5, 9, 3]] as const;
      await exportDecoder(published, outs[0], { activations: 'f32' });
      await exportDecoder(dense, outs[1]);
      const written = JSON.parse(readFileSync(join(outs[0], 'config.json'), 'utf8'));
      assert.equal(written.quantization_config, undefined);
      assertClose(await logitsOf(outs[0], ...shape), Float64Array.from(await logitsOf(outs[1], ...shape)), 1e-5);
    });

  testPeers(
    'standard: blocks of q4_0 are i4, which no tensor in memory is, so they lie beside the graph',
    { skip },
    async () => {
      const out = fresh();
      await exportDecoder(ggufOf({ blocks: 'q4_0' }), out, { form: 'standard' });
      assert.ok(existsSync(join(out, 'onnx/model.onnx_data')));
      assertClose(await logitsOf(out), tinyModel('folder', SHAPE).logits(TOKENS), 0.6);
    },
  );

  testPeers(
    'halves, as they are and widened, give the same logits; shards and a split GGUF too',
    { skip },
    async () => {
      const made = tinyModel('folder', { ...SHAPE, dtype: 'f16' });
      const want = made.logits(TOKENS);
      const hf = folderWith(made.huggingFace());
      for (const widenHalves of [false, true]) {
        const out = fresh();
        const { files } = await exportDecoder(hf, out, { widenHalves });
        assertClose(await logitsOf(out), want, 1e-4);
        const { sizeBytes } = files.find(({ name }) => name === 'onnx/model.onnx')!;
        assert.equal(sizeBytes > 250_000, widenHalves, `${sizeBytes}`);
      }
      const parts = splitGguf(made.gguf()['model.gguf']!, [7, 14]);
      const out = fresh();
      await exportDecoder(join(folderWith(parts), Object.keys(parts)[0]!), out);
      assertClose(await logitsOf(out), want, 1e-4);
    },
  );
});

function assertClose(got: ArrayLike<number>, want: Float64Array, tolerance: number): void {
  assert.equal(got.length, want.length);
  const largest = want.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  for (const [n, value] of want.entries()) {
    const off = Math.abs(got[n]! - value) / largest;
    assert.ok(off <= tolerance, `logit ${n}: ${got[n]}, want ${value}`);
  }
}

describe('whole or not at all', () => {
  const small = ggufOf({ layers: 1 });
  /** After a failure, the parent folder has no new files. */
  async function leavesNothing(out: string, work: () => Promise<unknown>, error: object): Promise<void> {
    const before = readdirSync(dirname(out));
    await assert.rejects(work(), error);
    assert.deepEqual(readdirSync(dirname(out)), before);
  }

  test('an export that is there is replaced with force only, at the end, and nothing of it stays', async () => {
    const out = fresh();
    await exportDecoder(ggufOf({ tied: true, blocks: 'q8_0' }), out);
    const before = readdirSync(join(out, 'onnx'));
    assert.deepEqual(before, ['model.onnx', 'model.onnx_data']);
    await leavesNothing(out, () => exportDecoder(small, out), {
      code: 'FORMAT',
      message: `${out}: the folder has files in it. Give a folder that is new or empty, or --force to replace it.`,
    });
    const onProgress = (): void => assert.deepEqual(readdirSync(join(out, 'onnx')), before);
    await exportDecoder(small, out, { force: true, onProgress });
    assert.deepEqual(readdirSync(join(out, 'onnx')), ['model.onnx']);
    assert.deepEqual(
      readdirSync(root).filter((name) => /\.old$|\.tmp$/.test(name)),
      [],
    );
  });

  testPeers('a graph that ONNX Runtime does not load is no export', { skip }, async () => {
    const { InferenceSession, env } = ort as Exclude<typeof ort, string>;
    const loads = InferenceSession.create;
    const out = fresh();
    try {
      Object.assign(InferenceSession, { create: () => Promise.reject(new Error('Incompatible dimensions')) });
      const message = `onnxruntime: ${out}: the graph does not load: Incompatible dimensions. Try another provider, or a newer onnxruntime-node.`;
      await leavesNothing(out, () => exportDecoder(small, out), { code: 'DEVICE', message });
    } finally {
      Object.assign(InferenceSession, { create: loads });
    }
    assert.equal((await exportDecoder(small, out)).loadedIn, env.versions.node);
  });

  test("somebody's folder is never replaced: one file that no export writes is enough", async () => {
    for (const stranger of ['model.safetensors', 'onnx/model_quantized.onnx', 'notes']) {
      const out = fresh();
      await exportDecoder(small, out);
      writeFileSync(join(out, stranger), 'x');
      await leavesNothing(out, () => exportDecoder(small, out, { force: true }), {
        message: `${out}: ropewalk export --whole did not write this folder, so it is not replaced. Give another folder.`,
      });
      assert.equal(readFileSync(join(out, stranger), 'utf8'), 'x');
    }
    const config = folderWith({ 'config.json': '{}' });
    await assert.rejects(exportDecoder(small, config, { force: true }), { message: /did not write this folder/ });
    await assert.rejects(exportDecoder(small, small, { force: true }), { message: /it is the file that is read/ });
    const file = join(folderWith({ f: '' }), 'f');
    await assert.rejects(exportDecoder(small, file, { force: true }), { message: /this is a file/ });
  });

  test('an exported folder is no model: the message says what it is', async () => {
    const out = fresh();
    await exportDecoder(small, out);
    const message = `${out}: it is an exported ONNX model. Give the model that it came from: a HuggingFace folder or a GGUF.`;
    await assert.rejects(exportDecoder(out, fresh()), { code: 'FORMAT', message });
  });

  test('a folder that changes while the export runs is not replaced', async () => {
    const out = fresh();
    await exportDecoder(small, out);
    const onProgress = (): void => writeFileSync(join(out, 'mine'), 'x');
    await assert.rejects(exportDecoder(small, out, { force: true, onProgress }), { message: /did not write this/ });
    assert.deepEqual(readdirSync(out).sort().includes('mine'), true);
    assert.ok(existsSync(join(out, 'onnx/model.onnx')));
  });

  test('a place where no folder can be made is refused by the name of the output', async () => {
    const place = join(folderWith({ file: '' }), 'file', 'out');
    await assert.rejects(exportDecoder(small, place), { code: 'FORMAT', message: /file: it is a file, not a folder/ });
  });

  test('an empty folder is taken, parents are made; they go again when the work fails', async () => {
    const deep = join(fresh(), 'a', 'b');
    const bad = join(folderWith({ 'm.gguf': damagedGguf() }), 'm.gguf');
    await leavesNothing(dirname(dirname(deep)), () => exportDecoder(bad, deep), { code: 'FORMAT' });
    await exportDecoder(small, deep);
    assert.ok(existsSync(join(deep, 'onnx/model.onnx')));
    const empty = folderWith({});
    await exportDecoder(small, empty);
    assert.ok(existsSync(join(empty, 'onnx/model.onnx')));
  });

  test('a signal, and an error in onProgress, end it with their reason, and nothing is left', async () => {
    const stop = new Error('stop');
    const model = ggufOf({ tied: true, blocks: 'q8_0' });
    for (const after of [1, 12]) {
      const [controller, out] = [new AbortController(), fresh()];
      let calls = 0;
      const onProgress = (): void => {
        if (++calls === after) controller.abort(stop);
      };
      await leavesNothing(out, () => exportDecoder(model, out, { signal: controller.signal, onProgress }), stop);
      assert.equal(calls, after);
    }
    const out = fresh();
    const onProgress = (): never => {
      throw stop;
    };
    await leavesNothing(out, () => exportDecoder(model, out, { onProgress }), stop);
  });

  test('a scale that is no number ends it; a form that cannot say the model is refused before anything is written', async () => {
    const bad = join(folderWith({ 'm.gguf': damagedGguf() }), 'm.gguf');
    const out = fresh();
    await leavesNothing(out, () => exportDecoder(bad, out), {
      code: 'FORMAT',
      message: /m\.gguf: tensor blk\.0\.ffn_down\.weight: expected scales that are finite numbers, got NaN/,
    });
    const options: ExportDecoderOptions = { form: 'none' as never };
    await leavesNothing(out, () => exportDecoder(small, out, options), { message: /form: expected contrib, standard/ });
  });

  test('damaged files are refused, or exported: nothing else', async () => {
    const bytes = tinyModel('folder', { ...SHAPE, layers: 1, blocks: 'q8_0' }).gguf()['model.gguf']!;
    const property = fc.asyncProperty(damage, async (steps) => {
      const path = join(folderWith({ 'm.gguf': damaged(bytes, steps) }), 'm.gguf');
      const out = fresh();
      const error = await exportDecoder(path, out).catch((cause) => cause);
      if (error instanceof Error) {
        assert.ok(error instanceof RopewalkError, error.stack);
        assert.ok(!existsSync(out));
      }
    });
    await fc.assert(property, drawn(60, 16));
  });
});

/** A GGUF with a scale that is no number. */
function damagedGguf(): Uint8Array {
  const bytes = tinyModel('folder', { ...SHAPE, layers: 1, blocks: 'q8_0' }).gguf()['model.gguf']!;
  const { tensors, dataOffset } = parseGguf(bytes);
  const { offset } = tensors.find(({ name }) => name === 'blk.0.ffn_down.weight')!;
  bytes.set([0x00, 0x7e], dataOffset + offset + 34 * 100);
  return bytes;
}
