/**
 * Tests that decoding with a mixture of experts reads the chosen experts' weights and no others, as the benchmark
 * counts bytes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { OpPlan } from 'ropewalk';
import { ropewalk } from 'ropewalk';
import { type WeightsRead, weightsRead } from '../../../bench/decoder/weights-read.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { loadModelFile } from '../src/node.js';

for (const name of ['qwen3moe', 'qwen3moe-q8_0', 'gpt-oss', 'deepseek2']) {
  test(`${name}: a token's bytes of experts`, async () => {
    const backend = await ropewalk({ backend: 'cpu', threads: 1 });
    const model = await loadModelFile(`${FAMILIES}/${name}.gguf`, { backend, context: 16, tokenizer: false });
    const session = model.openSession();
    await session.append([5, 9, 11]);
    const calls: WeightsRead[] = [];
    let all = 0; // bytes of all experts' matrices
    const run = backend.run.bind(backend);
    backend.run = (plan: OpPlan) => {
      run(plan);
      const read = weightsRead(plan as never);
      if (!read || plan.op !== 'expert_linear') return;
      // MLA has a matrix for each head, and reads all.
      const { experts } = model.config;
      if (plan.weight.shape[0] !== experts!.count) return;
      calls.push(read);
      all += (read.bytes / experts!.used) * experts!.count;
    };
    await session.append([7]);
    const { count, used, width, layers } = model.config.experts!;
    const moe = layers.filter((is) => is).length;
    assert.equal(calls.length, 3 * moe, 'gate, up and down of each layer');
    const flops = calls.reduce((sum, read) => sum + read.flops, 0);
    assert.equal(flops, 2 * moe * used * 3 * width * model.config.hiddenSize);
    const bytes = calls.reduce((sum, read) => sum + read.bytes, 0);
    assert.ok(Math.abs(bytes / all - used / count) < 1e-12, `${bytes} of ${all} bytes, ${used} of ${count} experts`);
    session.dispose();
    model.dispose();
    backend.dispose();
  });
}
