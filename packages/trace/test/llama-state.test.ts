/** State files of llama.cpp of one sequence that are made here; llama-state.peers.test.ts has llama.cpp's own. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { traceDumps } from '@ropewalk/trace/internal';
import { openDump } from '@ropewalk/trace/internal/node';

const folder = mkdtempSync(join(tmpdir(), 'state-'));
after(() => rmSync(folder, { recursive: true }));
const [CELLS, WIDTH] = [6, 32];
const u32 = (...values: number[]): Buffer => Buffer.from(Uint32Array.from(values).buffer);
const f32 = (position: number, at: number): number => Math.sin((position * WIDTH + at) ** 2);

/** Writes keys and values of one layer: 4 bytes each, or a block of Q8_0 for each cell. */
function write(name: string, positions: readonly number[], type: 0 | 8, sequences = (_cell: number) => [0]): string {
  const rows = positions.map((position) => {
    if (type === 0) return Buffer.from(Float32Array.from({ length: WIDTH }, (_, n) => f32(position, n)).buffer);
    const scale = Buffer.from([0x08, 0x20]); // 1/127 in f16, rounded
    return Buffer.concat([scale, Uint8Array.from({ length: WIDTH }, (_, n) => Math.round(127 * f32(position, n)))]);
  });
  const size = Buffer.alloc(8);
  size.writeUInt32LE(type === 0 ? 4 * WIDTH : WIDTH + 2);
  const one = [u32(type), size, ...rows];
  const cells = positions.map((position, cell) => u32(position, sequences(cell).length, ...sequences(cell)));
  const head = u32(0x67677371, 2, CELLS, ...positions.keys(), 1, CELLS);
  const path = join(folder, name);
  writeFileSync(path, Buffer.concat([head, ...cells, u32(0, 1), ...one, ...one]));
  return path;
}

const states = async (a: string, b: string): Promise<string[]> => {
  const dumps = [await openDump(a), await openDump(b)] as const;
  const report = await traceDumps(...dumps).finally(() => Promise.all(dumps.map((one) => one.close())));
  return report.steps.map(({ name, state }) => `${name} ${state}`);
};

test('cells are compared by their positions, and those of Q8_0 as f32', async () => {
  const plain = write('plain', [0, 1, 2, 3, 4, 5], 0);
  assert.deepEqual(await states(plain, write('moved', [3, 4, 5, 0, 1, 2], 0)), [
    'layers.0.v same',
    'layers.0.k_rope same',
  ]);
  const blocks = write('q8', [0, 1, 2, 3, 4, 5], 8);
  assert.deepEqual(await states(blocks, write('q8-moved', [5, 4, 3, 2, 1, 0], 8)), [
    'layers.0.v same',
    'layers.0.k_rope same',
  ]);
  assert.equal((await states(plain, blocks)).length, 2);
});

test('refuses several sequences, and counts that are no cache', async () => {
  const two = write('two', [0, 1, 2, 0, 1, 2], 0, (cell) => [cell < 3 ? 0 : 1]);
  await assert.rejects(openDump(two), { code: 'UNSUPPORTED', message: /several sequences/ });
  const path = join(folder, 'sparse');
  writeFileSync(path, u32(0x67677371, 2, 0x3fffffff));
  truncateSync(path, 2 ** 32 + 100);
  await assert.rejects(openDump(path), { code: 'FORMAT' });
});
