/** Counts the memory accesses of the webgpu backend's kernels while they run: docs/webgpu.md has the table. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from '../../../../test/support/command.js';
import { countMemory } from '../../../../test/support/count-memory.js';
import { noGpu } from '../../../../test/support/gpu.js';
import { openWebgpu } from '../../src/backends/webgpu/host.js';
import { BLOCK_FORMATS, type BlockFormat } from '../../src/core/block-formats.js';
import type { FloatDtype } from '../../src/core/dtypes.js';
import type { Tensor } from '../../src/core/tensor.js';
import { Ropewalk } from '../../src/ropewalk.js';

test('bytes moved, idle threads and barriers are those of docs/webgpu.md', { skip: noGpu }, async () => {
  const backend = await openWebgpu({});
  const counts = countMemory(backend.shared.device);
  const rw = new Ropewalk(backend);
  const page = readFileSync(join(ROOT, 'docs/webgpu.md'), 'utf8');
  const filled = (shape: readonly number[], dtype: FloatDtype = 'f32'): Tensor<never> =>
    rw.rearrange(rw.upload(new Float32Array(shape.reduce((a, b) => a * b)).fill(0.5), { shape }), {
      out: rw.allocate(dtype, shape),
    }) as Tensor<never>;
  const blocks = (format: BlockFormat, n: number, k: number) => {
    const { bytes, weights } = BLOCK_FORMATS[format];
    return rw.uploadBlocks(format, new Uint8Array((n * k * bytes) / weights), [n, k]);
  };
  const bytesOf = (tensor: Tensor): number =>
    tensor.size * ({ f32: 4, f16: 2, bf16: 2, i64: 8 } as never)[tensor.dtype];

  const rope = (dtype: FloatDtype, pairing: 'half' | 'interleaved') => {
    const x = filled([64, 32, 128], dtype);
    const plan = rw.planRope({ headDim: 128, pairing, base: 10000, positions: 0, seqLen: 64 });
    return { inputs: bytesOf(x) + 2 * 64 * 64 * 4, call: () => rw.rope(x, plan) };
  };
  const linear = (rows: number, n: number, k: number, weight: FloatDtype | BlockFormat) => {
    const x = filled([rows, k]);
    const dense = weight === 'f32' || weight === 'f16' || weight === 'bf16' || weight === 'f64';
    const w = dense ? filled([n, k], weight) : blocks(weight, n, k);
    const size = dense ? bytesOf(w as Tensor) : (w as ReturnType<typeof blocks>).bytes.size;
    return { inputs: bytesOf(x) + size, call: () => rw.linear(x, w as Tensor<never>) };
  };
  const attention = (queries: number, keys: number) => {
    const [q, k, v] = [filled([queries, 8, 64]), filled([keys, 2, 64]), filled([keys, 2, 64])];
    return { inputs: bytesOf(q) + bytesOf(k) + bytesOf(v), call: () => rw.selfAttention(q, k, v) };
  };
  const [wide, other, factors] = [filled([64, 4096]), filled([64, 4096]), filled([4096])];
  const cases: Record<string, { readonly inputs: number; readonly call: () => Tensor }> = {
    'rope f32 half, 64 × 32 × 128': rope('f32', 'half'),
    'rope f32 interleaved': rope('f32', 'interleaved'),
    'rope f16 half': rope('f16', 'half'),
    'add f32, 64 × 4096': { inputs: 2 * bytesOf(wide), call: () => rw.add(wide, other) },
    'swiglu f32': { inputs: 2 * bytesOf(wide), call: () => rw.swiglu(wide, other) },
    'rms_norm f32': {
      inputs: bytesOf(wide) + bytesOf(factors),
      call: () => rw.rmsNorm(wide, factors, { eps: 1e-6 }),
    },
    'linear, 1 × 2048 × 2048, f32': linear(1, 2048, 2048, 'f32'),
    'linear, f16 weights': linear(1, 2048, 2048, 'f16'),
    'linear, q8_0': linear(1, 2048, 2048, 'q8_0'),
    'linear, q4_0': linear(1, 2048, 2048, 'q4_0'),
    'linear, 64 × 512 × 512, f32': linear(64, 512, 512, 'f32'),
    'attention, 1 query, 1024 keys': attention(1, 1024),
    'attention, 128 queries and keys': attention(128, 128),
  };
  const missing: string[] = [];
  for (const [name, { inputs, call }] of Object.entries(cases)) {
    await rw.finish();
    await counts();
    const out = call();
    await rw.finish();
    const { dispatches, readBytes, writtenBytes, threads, busyThreads, barriers } = await counts();
    const ratio = (part: number, whole: number): string => String(Math.round((part / whole) * 100) / 100);
    const moved = [ratio(readBytes, inputs), ratio(writtenBytes, bytesOf(out))];
    const idle = `${Math.round((1 - busyThreads / threads) * 100)} %`;
    const row = `| ${[name, dispatches, ...moved, threads, idle, ratio(barriers, threads)].join(' | ')} |`;
    console.log(row);
    if (!page.includes(`${row}\n`)) missing.push(row);
    out.dispose();
  }
  rw.dispose();
  assert.deepEqual(missing, [], 'rows that docs/webgpu.md does not have');
});
