/** `ropewalk check` on a GPU. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { noGpu } from '../../../test/support/gpu.js';

test('a GPU in software says at once that kernels take long to compile', { skip: noGpu }, async () => {
  const { status, stdout, stderr } = await ropewalkIn(ROOT, 'check', '--backend', 'webgpu', '--filter', 'llama-2-half');
  assert.equal(status, 0, stderr);
  const [, description] = /^Backend webgpu: (.*)$/m.exec(stdout)!;
  const software = /SwiftShader|llvmpipe/i.test(description!);
  assert.equal(/a GPU in software: each kernel takes up to seconds to compile/.test(stderr), software);
});
