import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openAscendModel } from '@ropewalk/ascend';
import { readManifest, readNpy } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Dtype, HostArray } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { VECTORS } from '../../../test/support/suites.js';
import * as today from '../src/infiniop.js';
import * as io from '../src/infiniop-2025.js';

const { INFINI_DTYPE: T } = today;
const ASCEND = io.kINFINI_DEVICE_ASCEND;
const desc = (shape: readonly number[], dtype: number = T.F32, strides: readonly number[] | null = null) =>
  io.infiniopCreateTensorDescriptor(ASCEND, 0, dtype, shape.length, shape, strides);
const tensors = (dtype: number = T.F32) =>
  [desc([2, 1, 8], dtype), desc([2, 1, 8], dtype), desc([2], T.I32), desc([4, 4], dtype), desc([4, 4], dtype)] as const;

describe('golden', () => {
  test('the vectors have the statuses and the results of the documented kernel', async () => {
    const runner = await openAscendModel({ kernel: 'baseline' });
    const handle = io.infiniopCreateHandle(runner, ASCEND, 0).handle!;
    const folder = vectorFolder(`${VECTORS}/infiniop`);
    const found = { refused: 0, ok: 0, batch0: 0 };
    for (const f of readManifest(folder, 'manifest.json').objects('rope')) {
      const id = f.text('id');
      const dtype = f.text('dtype') as Dtype;
      const code = T[dtype.toUpperCase() as keyof typeof T];
      const load = (file: string, as: Dtype = dtype): HostArray => readNpy(folder, file, as).storage.host!;
      const [pos, table, y, shape] = [f.object('pos'), f.object('table'), f.object('y'), f.integers('shape')];
      const posType = pos.text('dtype') as Dtype;
      const tables = desc(table.integers('shape'), code);
      const created = io.infiniopCreateRopeDescriptor(
        handle,
        desc(shape, code, f.integers('y_strides')),
        desc(shape, code, f.integers('x_strides')),
        desc(pos.integers('shape'), T[posType.toUpperCase() as keyof typeof T]),
        tables,
        tables,
        f.integer('algo'),
      );
      const seed = f.object('ascend_seed');
      assert.equal(created.status, seed.integer('create'), id);
      if (!created.descriptor) {
        found.refused++;
        continue;
      }
      const out = newArray(dtype, y.integer('buffer_len'));
      const x = load(f.object('x').text('file'));
      const [ids, sin, cos] = [load(pos.text('file'), posType), load(table.text('sin')), load(table.text('cos'))];
      const size = io.infiniopGetRopeWorkspaceSize(created.descriptor);
      const ran = io.infiniopRope(created.descriptor, null, size, out, x, ids, sin, cos);
      assert.equal(ran.status, seed.integer('calculate'), `${id}: ${ran.error?.message}`);
      if (ran.status !== 0) {
        found.refused++;
        continue;
      }
      const stepwise = y.text('expected_stepwise');
      const want = load(stepwise === 'same as expected' ? y.text('expected') : stepwise);
      const onlyBatch0 = seed.text('result').startsWith('only batch 0');
      found[onlyBatch0 ? 'batch0' : 'ok']++;
      const [, seq, heads, dim] = [...(shape.length === 3 ? [1] : []), ...shape] as [number, number, number, number];
      const [rows, cols] = f.integers('y_strides').slice(-3) as [number, number];
      for (let b = 0; b < (onlyBatch0 ? 2 : 1); b++)
        for (let s = 0; s < seq; s++)
          for (let h = 0; h < heads; h++) {
            const at = b * (shape.length === 4 ? f.integers('y_strides')[0]! : 0) + s * rows + h * cols;
            const row = b === 0 ? want.slice(at, at + dim) : newArray(dtype, dim);
            assert.deepEqual(out.slice(at, at + dim), row, `${id} batch ${b}, token ${s}, head ${h}`);
          }
    }
    assert.deepEqual(found, { refused: 13, ok: 6, batch0: 2 });
  });
});

describe('refusals', () => {
  const handle = io.infiniopCreateHandle(referenceRunner(), today.INFINI_DEVICE.CPU, 0).handle!;

  test('NEOX and every other algorithm are NOT_IMPLEMENTED at create, after the other checks', () => {
    for (const algo of [1, 2, -1]) {
      const { status, descriptor, error } = io.infiniopCreateRopeDescriptor(handle, ...tensors(), algo);
      assert.deepEqual([status, descriptor], [today.INFINI_STATUS_NOT_IMPLEMENTED, undefined]);
      assert.equal(error!.message, `infiniop: algo: expected INFINI_ROPE_ALGO_GPT_J (0), got ${algo}`);
    }
    const [y, x, pos, sin] = tensors();
    assert.equal(io.infiniopCreateRopeDescriptor(handle, y, x, pos, sin, desc([4, 3]), 1).status, 11);
  });

  test('BF16 and F64 are BAD_TENSOR_DTYPE when it runs; nothing is written', () => {
    for (const dtype of [T.BF16, T.F64]) {
      const { descriptor } = io.infiniopCreateRopeDescriptor(handle, ...tensors(dtype), io.INFINI_ROPE_ALGO_GPT_J);
      const data = dtype === T.F64 ? new Float64Array(16) : new Uint16Array(16);
      const ran = io.infiniopRope(descriptor!, null, 0, data, data.slice(), new Int32Array(2), data, data);
      assert.equal(ran.status, today.INFINI_STATUS_BAD_TENSOR_DTYPE);
      assert.equal(ran.error!.message, `infiniop: y_desc: expected F32 or F16, got ${dtype}`);
      assert.equal(io.infiniopDestroyRopeDescriptor(descriptor!).status, today.INFINI_STATUS_SUCCESS);
      const after = io.infiniopRope(descriptor!, null, 0, data, data.slice(), new Int32Array(2), data, data);
      assert.equal(after.status, today.INFINI_STATUS_BAD_PARAM);
    }
  });

  test('handles and descriptors end', () => {
    assert.equal(io.infiniopCreateHandle(referenceRunner(), ASCEND, 0).status, 5);
    assert.equal(io.infiniopCreateHandle(referenceRunner(), 0, -1).status, today.INFINI_STATUS_BAD_PARAM);
    const one = io.infiniopCreateHandle(referenceRunner(), 0, 3).handle!;
    assert.equal(one.device_id, 3);
    const all = tensors();
    const { descriptor } = io.infiniopCreateRopeDescriptor(one, ...all, 0);
    for (const tensor of all) assert.equal(io.infiniopDestroyTensorDescriptor(tensor).status, 0);
    assert.equal(io.infiniopDestroyTensorDescriptor(all[0]).status, today.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopCreateRopeDescriptor(one, ...all, 0).status, today.INFINI_STATUS_BAD_PARAM);
    const f = (n: number) => new Float32Array(n);
    const run = () => io.infiniopRope(descriptor!, null, 0, f(16), f(16), new Int32Array(2), f(16), f(16)).status;
    assert.equal(run(), 0); // It lives on without its tensors' descriptors.
    assert.equal(io.infiniopDestroyHandle(one).status, 0);
    assert.equal(io.infiniopDestroyHandle(one).status, today.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopCreateRopeDescriptor(one, ...tensors(), 0).status, today.INFINI_STATUS_BAD_PARAM);
    assert.equal(io.infiniopDestroyRopeDescriptor(descriptor!).status, 0);
    assert.equal(run(), today.INFINI_STATUS_BAD_PARAM);
    assert.throws(() => io.infiniopCreateTensorDescriptor(ASCEND, -1, T.F32, 1, [1], null), { code: 'RANGE' });
  });
});
