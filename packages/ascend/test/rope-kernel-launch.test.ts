import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readManifest, readNpy } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import type { Dtype, HostArray } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { VECTORS } from '../../../test/support/suites.js';
import { rope_kernel_launch } from '../src/index.js';

const bytesOf = ({ buffer, byteOffset, byteLength }: HostArray) => new Uint8Array(buffer, byteOffset, byteLength);

test("fifteen arguments: bytes in, the vectors' stepwise bits out, holes untouched", () => {
  const folder = vectorFolder(`${VECTORS}/infiniop`);
  let ran = 0;
  for (const f of readManifest(folder, 'manifest.json').objects('rope')) {
    const [dtype, shape, y] = [f.text('dtype') as Dtype, f.integers('shape'), f.object('y')];
    if (f.integer('algo') !== 0 || shape.length !== 3 || !['f16', 'f32'].includes(dtype)) continue;
    const load = (file: string, as: Dtype = dtype) => readNpy(folder, file, as).storage.host!.slice() as HostArray;
    const [table, pos] = [f.object('table'), f.object('pos')];
    const posType = ['i8', 'i16', 'i32', 'i64', 'u8'].indexOf(pos.text('dtype')) + 3;
    const [ys, yh] = f.integers('y_strides') as [number, number];
    const [xs, xh] = f.integers('x_strides') as [number, number];
    const out = newArray(dtype, y.integer('buffer_len'));
    const stepwise = y.text('expected_stepwise');
    const want = load(stepwise === 'same as expected' ? y.text('expected') : stepwise);
    const { status, run } = rope_kernel_launch(
      bytesOf(out),
      bytesOf(load(f.object('x').text('file'))),
      bytesOf(load(pos.text('file'), pos.text('dtype') as Dtype)),
      bytesOf(load(table.text('sin'))),
      bytesOf(load(table.text('cos'))),
      ...(shape as [number, number, number]),
      dtype === 'f16' ? 12 : 13,
      posType,
      ys,
      yh,
      xs,
      xh,
      null,
    );
    assert.deepEqual([status, run!.kernel], [0, 'baseline']);
    const [seq, heads, dim] = shape as [number, number, number];
    const written = new Set<number>();
    for (let s = 0; s < seq; s++)
      for (let h = 0; h < heads; h++) for (let i = 0; i < dim; i++) written.add(s * ys + h * yh + i);
    for (let at = 0; at < out.length; at++)
      assert.equal(out[at], written.has(at) ? want[at] : 0, `${f.text('id')} at ${at}`);
    ran++;
  }
  assert.equal(ran, 6);
});

test('its status: types, no memory, and what C would do out of bounds', () => {
  const f = (n: number) => new Float32Array(n).fill(1);
  const launch = (change: Readonly<Record<number, unknown>> = {}) => {
    const args: unknown[] = [f(64), f(64), Int32Array.of(0, 1), f(64), f(64), 2, 1, 32, 13, 5, 32, 32, 32, 32, null];
    for (const [at, value] of Object.entries(change)) args[Number(at)] = value;
    const { status, error } = rope_kernel_launch(...(args as Parameters<typeof rope_kernel_launch>));
    return [status, error?.message];
  };
  assert.deepEqual(launch(), [0, undefined]);
  assert.deepEqual(launch({ 8: 19 }), [10, 'aicore: data_type: expected F16 (12) or F32 (13), got 19']);
  assert.deepEqual(launch({ 9: 13 }), [10, 'aicore: pos_type: expected I8 (3) … U64 (10), got 13']);
  assert.deepEqual(launch({ 3: null }), [4, 'aicore: sin: expected a typed array or a DataView, got none']);
  assert.equal(launch({ 2: Int32Array.of(0, 9) })[0], 3);
  assert.equal(launch({ 0: f(63) })[0], 3);
  assert.equal(launch({ 0: new Uint8Array(new ArrayBuffer(300), 2) })[0], 3);
});
