import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openAscendModel } from '@ropewalk/ascend';
import { loadNumber, storeNumber } from 'ropewalk/backend';
import * as acl from '../src/acl.js';
import { INFINI_DTYPE, INFINI_STATUS_BAD_PARAM, INFINI_STATUS_SUCCESS } from '../src/infiniop.js';
import * as io from '../src/infiniop-2025.js';

const { ACL_MEM_MALLOC_HUGE_FIRST, ACL_MEMCPY_DEVICE_TO_HOST, ACL_MEMCPY_HOST_TO_DEVICE } = acl;
const { kINFINI_DEVICE_ASCEND, INFINI_ROPE_ALGO_GPT_J } = io;
const INFINI_DTYPE_F16 = INFINI_DTYPE.F16;

/** The documentation's example, line by line; its sizes are 2, 128, 32, 128 and tables of 2048 rows. */
async function example(batch: number, seqlen: number, nhead: number, dhead: number, rows: number) {
  const runner = await openAscendModel({ kernel: 'baseline' });
  const { handle } = io.infiniopCreateHandle(runner, kINFINI_DEVICE_ASCEND, 0);
  const count = batch * seqlen * nhead * dhead;
  const [h_x, h_pos] = [new Uint16Array(count), Int32Array.from({ length: batch * seqlen }, (_, n) => n % seqlen)];
  const [h_sin, h_cos] = [new Uint16Array((rows * dhead) / 2), new Uint16Array((rows * dhead) / 2)];
  for (let n = 0; n < count; n++) storeNumber(h_x, 'f16', n, Math.sin(n));
  for (let n = 0; n < h_sin.length; n++) {
    const [row, j] = [Math.floor((2 * n) / dhead), n % (dhead / 2)];
    storeNumber(h_sin, 'f16', n, Math.sin(row * 10000 ** ((-2 * j) / dhead)));
    storeNumber(h_cos, 'f16', n, Math.cos(row * 10000 ** ((-2 * j) / dhead)));
  }

  // 1. Tensor descriptors.
  const y_shape = [batch, seqlen, nhead, dhead];
  const y_stride = [seqlen * nhead * dhead, nhead * dhead, dhead, 1];
  const y_desc = io.infiniopCreateTensorDescriptor(kINFINI_DEVICE_ASCEND, 0, INFINI_DTYPE_F16, 4, y_shape, y_stride);
  const x_desc = io.infiniopCreateTensorDescriptor(kINFINI_DEVICE_ASCEND, 0, INFINI_DTYPE_F16, 4, y_shape, y_stride);
  const pos_shape = [batch, seqlen];
  const pos_stride = [seqlen, 1];
  const pos_desc = io.infiniopCreateTensorDescriptor(
    ...([kINFINI_DEVICE_ASCEND, 0, INFINI_DTYPE.I32, 2, pos_shape, pos_stride] as const),
  );
  const table_shape = [rows, dhead / 2];
  const table_stride = [dhead / 2, 1];
  const table = [kINFINI_DEVICE_ASCEND, 0, INFINI_DTYPE_F16, 2, table_shape, table_stride] as const;
  const sin_desc = io.infiniopCreateTensorDescriptor(...table);
  const cos_desc = io.infiniopCreateTensorDescriptor(...table);

  // 2. The RoPE descriptor.
  const { status: created, descriptor: rope_desc } = io.infiniopCreateRopeDescriptor(
    handle!,
    y_desc,
    x_desc,
    pos_desc,
    sin_desc,
    cos_desc,
    INFINI_ROPE_ALGO_GPT_J,
  );
  assert.equal(created, INFINI_STATUS_SUCCESS);

  // 3. Memory.
  const x_bytes = count * 2;
  const pos_bytes = batch * seqlen * 4;
  const table_bytes = rows * (dhead / 2) * 2;
  const d_x = acl.aclrtMalloc(x_bytes, ACL_MEM_MALLOC_HUGE_FIRST).memory!;
  const d_y = acl.aclrtMalloc(x_bytes, ACL_MEM_MALLOC_HUGE_FIRST).memory!;
  const d_pos = acl.aclrtMalloc(pos_bytes, ACL_MEM_MALLOC_HUGE_FIRST).memory!;
  const d_sin = acl.aclrtMalloc(table_bytes, ACL_MEM_MALLOC_HUGE_FIRST).memory!;
  const d_cos = acl.aclrtMalloc(table_bytes, ACL_MEM_MALLOC_HUGE_FIRST).memory!;
  const copies = [
    acl.aclrtMemcpy(d_x, x_bytes, h_x, x_bytes, ACL_MEMCPY_HOST_TO_DEVICE),
    acl.aclrtMemcpy(d_pos, pos_bytes, h_pos, pos_bytes, ACL_MEMCPY_HOST_TO_DEVICE),
    acl.aclrtMemcpy(d_sin, table_bytes, h_sin, table_bytes, ACL_MEMCPY_HOST_TO_DEVICE),
    acl.aclrtMemcpy(d_cos, table_bytes, h_cos, table_bytes, ACL_MEMCPY_HOST_TO_DEVICE),
  ];

  // 4. The stream.
  const { stream } = acl.aclrtCreateStream();

  // 5. The rotation.
  const workspace_size = io.infiniopGetRopeWorkspaceSize(rope_desc!);
  const workspace = null;
  const run = () => io.infiniopRope(rope_desc!, workspace, workspace_size, d_y, d_x, d_pos, d_sin, d_cos, stream);
  assert.equal(run().status, INFINI_STATUS_SUCCESS);

  // 6. The result.
  copies.push(acl.aclrtSynchronizeStream(stream));
  const h_y = new Uint16Array(count);
  copies.push(acl.aclrtMemcpy(h_y, x_bytes, d_y, x_bytes, ACL_MEMCPY_DEVICE_TO_HOST));

  // 7. The end.
  copies.push(acl.aclrtDestroyStream(stream), acl.aclrtFree(d_x));
  assert.equal(run().status, INFINI_STATUS_BAD_PARAM); // Freed memory cannot be used.
  for (const memory of [d_y, d_pos, d_sin, d_cos]) copies.push(acl.aclrtFree(memory));
  assert.deepEqual(copies, Array(copies.length).fill({ status: acl.ACL_SUCCESS }));
  assert.equal(io.infiniopDestroyRopeDescriptor(rope_desc!).status, INFINI_STATUS_SUCCESS);
  for (const desc of [y_desc, x_desc, pos_desc, sin_desc, cos_desc])
    assert.equal(io.infiniopDestroyTensorDescriptor(desc).status, INFINI_STATUS_SUCCESS);
  return { h_x, h_y, h_sin, h_cos, findings: runner.lastRuns[0]!.findings.map(({ kind }) => kind) };
}

test("the documentation's example runs line by line, and shows the kernel's faults", async () => {
  const [seqlen, nhead, dhead] = [8, 4, 128];
  const { h_x, h_y, h_sin, h_cos, findings } = await example(2, seqlen, nhead, dhead, 16);
  const at = (data: Uint16Array, n: number): number => loadNumber(data, 'f16', n);
  const batch1 = seqlen * nhead * dhead;
  for (let row = 0; row < seqlen * nhead; row++)
    for (let j = 0; j < dhead / 2; j++) {
      const n = row * dhead + 2 * j;
      const t = Math.floor(row / nhead) * (dhead / 2) + j;
      const want = at(h_x, n) * at(h_cos, t) - at(h_x, n + 1) * at(h_sin, t);
      assert.ok(Math.abs(at(h_y, n) - want) < 2e-3, `row ${row}, pair ${j}: ${at(h_y, n)}, expected ${want}`);
    }
  assert.ok(h_y.subarray(batch1).every((bits) => bits === 0)); // one block a head: batch 1 is never written
  assert.ok(findings.includes('coverage'));
});

test('statuses', () => {
  const { memory } = acl.aclrtMalloc(8, ACL_MEM_MALLOC_HUGE_FIRST);
  const host = new Uint8Array(8);
  const copy = (...args: Parameters<typeof acl.aclrtMemcpy>) => {
    const { status, error } = acl.aclrtMemcpy(...args);
    return [status, error?.message];
  };
  assert.equal(acl.aclrtMalloc(0, 0).status, acl.ACL_ERROR_INVALID_PARAM);
  assert.equal(acl.aclrtMalloc(2 ** 50, 0).status, acl.ACL_ERROR_RT_MEMORY_ALLOCATION);
  assert.equal(copy(null, 0, null, 0, 9)[0], acl.ACL_SUCCESS);
  assert.deepEqual(copy(memory!.subarray(4), 4, host, 4, ACL_MEMCPY_HOST_TO_DEVICE), [acl.ACL_SUCCESS, undefined]);
  assert.equal(acl.aclrtFree(memory!.subarray(4)).status, acl.ACL_ERROR_INVALID_PARAM);
  assert.deepEqual(copy(null, 8, host, 8, 1), [100000, 'acl: dst: expected memory, got none']);
  assert.deepEqual(copy(memory!, 8, host, 8, 7), [100000, 'acl: kind: expected ACL_MEMCPY_… (0 to 3), got 7']);
  assert.deepEqual(copy(memory!, 4, host, 8, 1), [
    acl.ACL_ERROR_RT_PARAM_INVALID,
    'acl: count: expected at most 4, the bytes of destMax, dst and src, got 8',
  ]);
  assert.match(copy(host, 8, memory!, 8, 1)[1] as string, /^acl: dst: expected memory of aclrtMalloc for kind 1/);
  assert.equal(acl.aclrtFree(host).status, acl.ACL_ERROR_INVALID_PARAM);
  assert.equal(acl.aclrtFree(memory!).status, acl.ACL_SUCCESS);
  assert.equal(acl.aclrtFree(memory!).status, acl.ACL_ERROR_INVALID_PARAM);
  const { stream } = acl.aclrtCreateStream();
  acl.aclrtDestroyStream(stream);
  assert.equal(acl.aclrtSynchronizeStream(stream).status, acl.ACL_ERROR_RT_PARAM_INVALID);
});
