/**
 * The text of llama.cpp's eval callback. eval-callback.txt has some tensors of what `common_debug_cb_eval` of llama.cpp
 * v0.4.0 printed for the bundled model, 22 tokens and then one and one; other shapes are printed here in the same form.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { traceDumps } from '@ropewalk/trace/internal';
import { openDump } from '@ropewalk/trace/internal/node';

/** Prints a tensor as the tool does: of more than six items in a dimension only the first and last three. */
function printed(name: string, op: string, ne: readonly number[], value: (at: number) => number): string {
  const [columns, rows, planes] = ne as [number, number, number];
  const some = <T>(count: number, gap: T, one: (n: number) => T): T[] =>
    Array.from({ length: count }, (_, n) => n).flatMap((n) =>
      count > 6 && n >= 3 && n < count - 3 ? (n === 3 ? [gap] : []) : [one(n)],
    );
  const plane = (p: number) => {
    const row = (r: number) => {
      const number = (c: number) =>
        value((p * rows + r) * columns + c)
          .toFixed(4)
          .toLowerCase();
      return `            [${some(columns, '   ...', (c) => number(c).padStart(12)).join(', ')}  ],\n`;
    };
    return `        [\n${some(rows, '            ..., \n', row).join('')}        ],\n`;
  };
  const values = some(planes, '        ..., \n', plane).join('');
  const head = `common_debug_cb_eval: ${name.padStart(24)} = (f32) ${op.padStart(10)}(w{${ne.join(', ')}}, }) = {${ne.join(', ')}}`;
  return `${head}\n    [\n${values}    ]\n    sum = 12.500000\n`;
}

function write(text: string): string {
  const path = join(mkdtempSync(join(tmpdir(), 'eval-')), 'log.txt');
  writeFileSync(path, text);
  return path;
}

const value = (at: number) => (at % 2 ? -1 : 1) * (at / 4);
const TEXT = `llama_context: n_ctx = 64\n${[0, 1]
  .map(
    () =>
      printed('inp_embd', 'GET_ROWS', [8, 7, 1, 1], value) +
      printed('Qcur-0', 'ROPE', [4, 2, 7, 1], value) +
      printed('norm', 'RMS_NORM', [3, 2, 1, 1], (at) => (at === 1 ? Number.NaN : value(at))),
  )
  .join('graph done\n')}`;

test('reads names, sizes, passes, and each printed value at its place', async () => {
  const dump = await openDump(write(TEXT));
  assert.deepEqual(
    dump.tensors.map(({ name, shape, step, dtype, partial }) => [name, shape, step, dtype, partial]),
    [0, 1].flatMap((step) => [
      ['inp_embd', [7, 8], step, 'f32', true],
      ['Qcur-0', [7, 2, 4], step, 'f32', true],
      ['norm', [2, 3], step, 'f32', true],
    ]),
  );
  const [embedding, q, norm] = await Promise.all(
    dump.tensors.slice(0, 3).map(async (one) => [...((await one.read()).readNumbers() as Float64Array)]),
  );
  for (const [at, got] of embedding!.entries()) {
    const [row, column] = [at >> 3, at & 7];
    assert.equal(got, row === 3 || (column > 2 && column < 5) ? Number.NaN : value(at), `${at}`);
  }
  for (const [at, got] of q!.entries()) assert.equal(got, at >> 3 === 3 ? Number.NaN : value(at));
  assert.deepEqual(norm, [0, Number.NaN, 0.5, -0.75, 1, -1.25]);
});

test('refuses other texts, and values that were cut', async () => {
  await assert.rejects(openDump(write('hello\n')), { code: 'FORMAT', message: /it is no dump that can be read/ });
  const cut = await openDump(write(TEXT.slice(0, 300)));
  await assert.rejects(cut.tensors[0]!.read(), {
    code: 'FORMAT',
    message: /inp_embd: its values do not fit its sizes/,
  });
  const line = 'ggml_debug: x = (f32) ADD(a, b}) = {99999999999, 99999999999, 9, 1}\n';
  await assert.rejects(openDump(write(line)), { code: 'FORMAT', message: /no tensor/ });
  const large = await openDump(write('ggml_debug: x = (f32) ADD(a, b}) = {999999, 9999, 1, 1}\n[[[0.1, 0.2]]]\n'));
  await assert.rejects(large.tensors[0]!.read(), { code: 'UNSUPPORTED', message: /too many to hold/ });
});

test('reads what llama.cpp printed', async () => {
  const { tensors } = await openDump(join(import.meta.dirname, 'eval-callback.txt'));
  assert.deepEqual(
    tensors.map(({ name, shape, step }) => [name, shape, step]),
    [22, 1, 1].flatMap((tokens, step) => {
      const heads = tokens === 1 ? [6, 32] : [tokens, 6, 32];
      return [
        ['embd', [tokens, 192], step],
        ['attn_norm-0', [tokens, 192], step],
        ['Qcur-0', [tokens, 192], step],
        ['Qcur-0', heads, step],
        ['Qcur-0', heads, step],
      ];
    }),
  );
  const read = await Promise.all(tensors.map(async (one) => (await one.read()).readNumbers() as Float64Array));
  assert.deepEqual([...read[0]!.subarray(0, 4)], [0.2505, 0.553, -0.0614, Number.NaN].map(Math.fround));
  // Position 0 is not rotated, position 22 is.
  assert.deepEqual(read[4]!.subarray(0, 3), read[3]!.subarray(0, 3));
  assert.notDeepEqual(read[9]!.subarray(0, 3), read[8]!.subarray(0, 3));
  const dump = await openDump(write(TEXT));
  await assert.rejects(traceDumps(dump, dump), { code: 'UNSUPPORTED', message: /only some values of each tensor/ });
});
