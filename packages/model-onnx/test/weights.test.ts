/** Tests of weights as a graph's constants: their places in data files, and their bytes. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { WeightPlan } from '@ropewalk/model/internal';
import {
  describeModel,
  folderOf,
  type PlannedModel,
  planModel,
  SPLIT_FORMATS,
  SPLITS,
  streamWeight,
} from '@ropewalk/model/internal';
import { BLOCK_FORMATS, numberFromF16 } from 'ropewalk';
import { randomFrom, WIDEN_BLOCK } from 'ropewalk/internal';
import { type MixedType, mixTypes } from '../../../test/support/mixed-types.js';
import { tinyModel } from '../../../test/support/tiny-model.js';
import type { WeightConstant } from '../src/scope.js';
import { layoutWeights, writeWeights } from '../src/weights.js';

type Format = 'q8_0' | 'q4_0';
type Model = Pick<PlannedModel, 'streamWeight' | 'path'>;

/** A weight in blocks, alone in a file. */
function weight(place: string, held: Format, rows: number, k: number, byteOffset = 0): WeightPlan {
  const { bytes } = BLOCK_FORMATS[held];
  const sizeBytes = ((rows * k) / 32) * bytes;
  const where = { spans: [{ file: 'm', byteOffset, sizeBytes }], sizeBytes, heldBytes: sizeBytes };
  const rest = { type: held.toUpperCase(), widened: false, lessOne: false, turns: 0 } as const;
  return { place, name: place, shape: [rows, k], held, ...where, ...rest };
}

function modelOf(bytes: Uint8Array): Model {
  const folder = folderOf({ m: bytes }, undefined);
  return { path: folder.path, streamWeight: (...given) => streamWeight(folder, ...given) };
}

/** All files as on a disk: gaps are 0, and no byte is written twice. */
async function filesOf(
  model: Model,
  constants: readonly WeightConstant[],
  layout = layoutWeights(constants),
): Promise<Map<string, Uint8Array>> {
  const files = new Map(layout.files.map(({ name, sizeBytes }) => [name, new Uint8Array(sizeBytes)]));
  const written = new Map(layout.files.map(({ name, sizeBytes }) => [name, new Uint8Array(sizeBytes)]));
  await writeWeights(model, constants, layout, async (name, at, bytes) => {
    await Promise.resolve();
    assert.ok(bytes.length <= 8 * 2 ** 20);
    assert.ok(
      !written
        .get(name)!
        .subarray(at, at + bytes.length)
        .includes(1),
    );
    written.get(name)!.fill(1, at, at + bytes.length);
    files.get(name)!.set(bytes, at);
  });
  const count = (all: Iterable<Uint8Array>): number =>
    Array.from(all).reduce((n, x) => n + x.filter(Boolean).length, 0);
  const places = new Map([...layout.tensors.values()].map((t) => [`${t.location} ${t.byteOffset}`, t.sizeBytes]));
  assert.equal(
    count(written.values()),
    [...places.values()].reduce((a, b) => a + b, 0),
    'all of it is written',
  );
  return files;
}

const ROWS = 64;
/** Every byte of codes, and scales of every kind: zero, subnormal, negative, the largest. */
function blocksOf(format: Format, blocks: number): Uint8Array {
  const unit = BLOCK_FORMATS[format].bytes;
  const random = randomFrom(`weights ${format}`);
  const bytes = Uint8Array.from({ length: blocks * unit }, (_, n) => (n < 16 * unit ? n : random.integer(256)));
  const scales = [0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff];
  for (let n = 0; n < blocks; n++) {
    const scale = scales[n] ?? random.integer(0x7c00);
    bytes.set([scale & 255, scale >> 8], n * unit);
  }
  return bytes;
}

describe('bytes', () => {
  for (const format of ['q8_0', 'q4_0'] as const) {
    test(`${format}: scale · (code − zero point) in f32 is ggml's own widening, to the bit`, async () => {
      const stored = blocksOf(format, ROWS);
      const plan = weight('w', format, ROWS, 32);
      const constants: WeightConstant[] = (['codes', 'signed', 'scales', 'numbers'] as const).map((madeAs) => {
        const dtype = { codes: 'u8', signed: 'i8', scales: 'f32', numbers: 'f32' } as const;
        return { name: madeAs, dtype: dtype[madeAs], shape: [ROWS, 32], weights: [plan], madeAs };
      });
      const layout = layoutWeights(constants);
      const file = (await filesOf(modelOf(stored), constants, layout)).get('model.onnx_data')!;
      const at = (name: string): number => layout.tensors.get(name)!.byteOffset;
      const floats = (name: string, n: number): number => new DataView(file.buffer).getFloat32(at(name) + 4 * n, true);
      const half = (name: string, n: number): number => (file[at(name) + (n >> 1)]! >> (4 * (n & 1))) & 15;
      const want = new Float64Array(32);
      for (let block = 0; block < ROWS; block++) {
        WIDEN_BLOCK[format](stored, block * BLOCK_FORMATS[format].bytes, want);
        const scale = floats('scales', block);
        for (let i = 0; i < 32; i++) {
          const n = 32 * block + i;
          const code = format === 'q8_0' ? file[at('codes') + n]! - 128 : half('codes', n) - 8;
          const signed = format === 'q8_0' ? (file[at('signed') + n]! << 24) >> 24 : (half('signed', n) << 28) >> 28;
          const label = `weight ${i} of block ${block}`;
          assert.ok(Object.is(Math.fround(scale * code), Math.fround(want[i]!)), label);
          assert.equal(signed, code, label);
          assert.ok(Object.is(floats('numbers', n), Math.fround(want[i]!)), label);
        }
      }
    });

    test(`${format}: a scale that is infinite or no number is refused by name`, async () => {
      for (const scale of [0x7c00, 0xfc00, 0x7e00]) {
        const stored = blocksOf(format, ROWS);
        stored.set([scale & 255, scale >> 8], 5 * BLOCK_FORMATS[format].bytes);
        const constants: WeightConstant[] = [
          { name: 's', dtype: 'f32', shape: [ROWS], weights: [weight('w', format, ROWS, 32)], madeAs: 'scales' },
        ];
        await assert.rejects(filesOf(modelOf(stored), constants), {
          code: 'FORMAT',
          message: /^m: tensor w: expected scales that are finite numbers, got .* The file is damaged or forged\.$/,
        });
      }
    });
  }

  for (const format of SPLIT_FORMATS)
    test(`${format}: integers times scales, and offsets, are ggml's own values, rounded to f32 once`, async () => {
      const { bits, group, hasOffset, reader } = SPLITS.get(format)!;
      const gguf = tinyModel('split', { ...SHAPE, hidden: 256, vocab: 8 }).gguf()['model.gguf']!;
      const all = mixTypes(gguf, randomFrom(format), (_, name) =>
        name === 'token_embd.weight' ? (format.toUpperCase() as MixedType) : 'F32',
      );
      const description = planModel(await describeModel({ 'm.gguf': all.bytes }), { formats: SPLIT_FORMATS });
      const plan = description.weights.find(({ place }) => place === 'embedding.weight')!;
      assert.equal(plan.held, format);
      const dtypes = { codes: 'u8', signed: 'i8', scales: 'f32', offsets: 'f32' } as const;
      const constants = (['codes', 'signed', 'scales', 'offsets'] as const).map((madeAs): WeightConstant => {
        return { name: madeAs, dtype: dtypes[madeAs], shape: [8, 256], weights: [plan], madeAs };
      });
      const layout = layoutWeights(constants);
      const file = (await filesOf(description, constants, layout)).get('model.onnx_data')!;
      const at = (name: string): number => layout.tensors.get(name)!.byteOffset;
      const factor = (name: string, n: number): number => new DataView(file.buffer).getFloat32(at(name) + 4 * n, true);
      const code = (name: string, n: number): number =>
        bits === 8 ? file[at(name) + n]! : (file[at(name) + (n >> 1)]! >> (4 * (n & 1))) & 15;
      const middle = 2 ** (bits - 1);
      const want = new Float64Array(reader.weights);
      const { byteOffset, sizeBytes } = plan.spans[0]!;
      const stored = all.bytes.subarray(byteOffset, byteOffset + sizeBytes);
      for (let n = 0; n < 8 * 256; n++) {
        if (n % reader.weights === 0) reader.widen(stored, (n / reader.weights) * reader.bytes, want);
        const q = code('codes', n) - middle;
        assert.equal((code('signed', n) + middle) % (2 * middle), q + middle, `code ${n}`);
        const [scale, offset] = [factor('scales', Math.floor(n / group)), factor('offsets', Math.floor(n / group))];
        assert.ok(hasOffset || offset === 0);
        // Scales have at most 19 bits, so only the offset is rounded.
        const off = Math.abs(scale * q + offset - want[n % reader.weights]!);
        assert.ok(off <= 2 ** -24 * Math.abs(offset), `weight ${n} is off by ${off}`);
      }
    });

  test('rows of several weights follow each other, across the pieces that are read', async () => {
    const [k, rows] = [3200, [2000, 900, 7]]; // 6.8 MB + 3.1 MB + …: the pieces end inside rows
    const plans: WeightPlan[] = [];
    let size = 0;
    for (const [n, count] of rows.entries()) {
      plans.push(weight(`w${n}`, 'q8_0', count, k, size));
      size += plans[n]!.sizeBytes;
    }
    const stored = new Uint8Array(size);
    for (let n = 0; n < size / 34; n++) {
      stored[34 * n + 1] = 0x3c; // a scale of 1 and a bit
      stored[34 * n] = n & 255;
      stored[34 * n + 2 + (n % 32)] = (n >> 8) & 255;
    }
    const constants: WeightConstant[] = [
      { name: 'c', dtype: 'u8', shape: [2907, 100, 32], weights: plans, madeAs: 'codes' },
      { name: 's', dtype: 'f32', shape: [2907, 100], weights: plans, madeAs: 'scales' },
    ];
    const layout = layoutWeights(constants);
    const file = (await filesOf(modelOf(stored), constants, layout)).get('model.onnx_data')!;
    const scales = new Float32Array(file.buffer, layout.tensors.get('s')!.byteOffset, 290_700);
    for (let n = 0; n < 290_700; n++) {
      if (scales[n] !== 1 + (n & 255) / 1024) assert.fail(`scale of block ${n}: ${scales[n]}`);
      if (file[32 * n + (n % 32)] !== (((n >> 8) & 255) ^ 128)) assert.fail(`code of block ${n}`);
    }
  });

  test('rows of two weights take turns, across the pieces that are read', async () => {
    const [k, rows] = [3232, 2600]; // 8.9 MB: a piece ends inside a row
    const bytes = ((rows * k) / 32) * 34;
    const plans = [0, 1].map((n) => weight(`w${n}`, 'q8_0', rows, k, n * bytes));
    const stored = new Uint8Array(2 * bytes);
    for (let n = 0; n < stored.length; n += 34) stored.set([(n / 34) & 255, 0x3c], n);
    const of = (inTurns: boolean): WeightConstant => {
      return { name: `${inTurns}`, dtype: 'f32', shape: [2 * rows, k / 32], weights: plans, madeAs: 'scales', inTurns };
    };
    const constants = [of(true), of(false)];
    const layout = layoutWeights(constants);
    const file = (await filesOf(modelOf(stored), constants, layout)).get('model.onnx_data')!;
    const rowOf = (name: string, row: number): Float32Array =>
      new Float32Array(file.buffer, layout.tensors.get(name)!.byteOffset + (row * k) / 8, k / 32);
    for (let row = 0; row < 2 * rows; row++)
      assert.deepEqual(rowOf('true', row), rowOf('false', (row % 2) * rows + Math.floor(row / 2)), `row ${row}`);
  });

  test('halves are as they are, or widened for a constant in f32', async () => {
    const made = tinyModel('halves', { ...SHAPE, dtype: 'f16' });
    const description = planModel(await describeModel(made.huggingFace()));
    const plan = description.weights.find(({ place }) => place === 'norm.weight')!;
    const of = (dtype: 'f16' | 'f32'): WeightConstant => ({
      name: dtype,
      dtype,
      shape: [32],
      weights: [plan],
      madeAs: 'numbers',
    });
    const constants = [of('f16'), of('f32')];
    const layout = layoutWeights(constants);
    const file = (await filesOf(description, constants, layout)).get('model.onnx_data')!;
    const want = Float32Array.from(made.weights.get('model.norm.weight')!.values);
    const halves = new Uint16Array(file.buffer, layout.tensors.get('f16')!.byteOffset, 32);
    assert.deepEqual(Float32Array.from(halves, numberFromF16), want);
    assert.deepEqual(new Float32Array(file.buffer, layout.tensors.get('f32')!.byteOffset, 32), want);
  });
});

const SHAPE = {
  family: 'llama',
  layers: 1,
  hidden: 32,
  heads: 1,
  kvHeads: 1,
  headDim: 32,
  inter: 64,
  vocab: 40,
} as const;

describe('places', () => {
  const table = weight('embedding.weight', 'q8_0', 1024, 1024); // 1 MiB of codes
  const small = weight('0.q.weight', 'q8_0', 3, 32);
  const constant = (name: string, plan: WeightPlan, madeAs: 'codes' | 'scales'): WeightConstant => ({
    name,
    dtype: madeAs === 'codes' ? 'u8' : 'f32',
    shape: madeAs === 'codes' ? plan.shape : [plan.shape[0]!, plan.shape[1]! / 32],
    weights: [plan],
    madeAs,
  });
  const constants = [
    constant('small', small, 'codes'),
    constant('small scales', small, 'scales'),
    constant('codes', table, 'codes'),
    { ...constant('head', table, 'codes'), shape: [1024, 32, 32] },
    constant('scales', table, 'scales'),
  ];

  test('small constants begin at 64 bytes, large ones at pages; the same bytes are stored once', () => {
    const { tensors, files, shared } = layoutWeights(constants);
    assert.deepEqual(
      [...tensors].map(([name, { byteOffset, sizeBytes }]) => [name, byteOffset, sizeBytes]),
      [
        ['small', 0, 96],
        ['small scales', 128, 12],
        ['codes', 4096, 2 ** 20],
        ['head', 4096, 2 ** 20],
        ['scales', 4096 + 2 ** 20, 2 ** 17],
      ],
    );
    assert.deepEqual(tensors.get('head')!.shape, [1024, 32, 32]);
    assert.deepEqual(files, [{ name: 'model.onnx_data', sizeBytes: 4096 + 2 ** 20 + 2 ** 17 }]);
    assert.equal(shared, true);
    assert.equal(layoutWeights(constants.slice(0, 3)).shared, false);
  });

  test('a constant that would make a file too large begins the next one', () => {
    const { tensors, files } = layoutWeights(constants, 'm.onnx', 2 ** 20);
    assert.deepEqual(files, [
      { name: 'm.onnx_data', sizeBytes: 140 },
      { name: 'm.onnx_data_1', sizeBytes: 2 ** 20 },
      { name: 'm.onnx_data_2', sizeBytes: 2 ** 17 },
    ]);
    assert.deepEqual(
      [...tensors.values()].map(({ location, byteOffset }) => [location.at(-1), byteOffset]),
      [
        ['a', 0],
        ['a', 128],
        ['1', 0],
        ['1', 0],
        ['2', 0],
      ],
    );
    // A constant that is larger alone has a file of its own.
    assert.equal(layoutWeights(constants, 'm.onnx', 1000).files.length, 3);
  });
});

test('progress counts every byte that is read once, and a signal ends the work with its reason', async () => {
  const description = planModel(await describeModel(tinyModel('progress', { ...SHAPE, blocks: 'q4_0' }).gguf()));
  const constants: WeightConstant[] = description.weights.flatMap((plan): WeightConstant[] =>
    plan.held === 'q4_0'
      ? (['codes', 'scales'] as const).map((madeAs) => {
          const shape = madeAs === 'codes' ? [plan.shape[0]!, plan.shape[1]! / 2] : [plan.shape[0]!, 1];
          const dtype = madeAs === 'codes' ? 'u8' : 'f32';
          return { name: `${plan.place} ${madeAs}`, dtype, shape, weights: [plan], madeAs };
        })
      : [{ name: plan.place, dtype: 'f32', shape: plan.shape, weights: [plan], madeAs: 'numbers' }],
  );
  const layout = layoutWeights(constants);
  const total = description.weights.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const seen: number[] = [];
  const controller = new AbortController();
  const onProgress = ({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }): void => {
    assert.equal(totalBytes, total);
    seen.push(doneBytes);
  };
  await writeWeights(description, constants, layout, () => {}, { onProgress, signal: controller.signal });
  assert.equal(seen.at(-1), total);
  assert.equal(seen.length, description.weights.length);
  controller.abort(new Error('stop'));
  await assert.rejects(
    writeWeights(description, constants, layout, () => {}, { signal: controller.signal }),
    /stop/,
  );
});
