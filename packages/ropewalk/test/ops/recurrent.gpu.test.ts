/** The causal convolution, the gated delta rule and the selective scan on webgpu, against the float64 reference. */
import { describe } from 'node:test';
import { noGpu, sharedWebgpu } from '../../../../test/support/gpu.js';
import { dtypes, type Float, holds, placements, seeds, size } from '../../../../test/support/operators.js';
import {
  compareWithReference,
  convTrial,
  deltaTrial,
  type StateTrial,
  scanTrial,
} from '../../../../test/support/recurrent.js';
import { tensorFrom } from '../../src/core/tensor.js';

const rw = noGpu ? undefined : await sharedWebgpu();

async function agree(trial: StateTrial): Promise<void> {
  const copies = trial.given.map((one): Float => {
    const data = (one.storage.host as Float32Array).slice();
    return tensorFrom(data, one as Float & { dtype: 'f32' }) as Float;
  });
  rw!.run(trial.plan(copies));
  await rw!.finish();
  compareWithReference(trial, copies);
}

describe('webgpu', { skip: noGpu }, () => {
  holds(
    'causal_conv: any sizes, layouts and options',
    25,
    [dtypes, size(0, 6), size(1, 150), size(1, 5), size(0, 31), placements, seeds],
    (dtype, tokens, channels, width, options, how, seed) =>
      agree(convTrial(dtype, { tokens, channels, width, options }, how, seed)),
  );

  holds(
    'gated_delta: any sizes, layouts and options',
    25,
    [dtypes, size(0, 5), size(1, 3), size(1, 3), size(1, 20), size(1, 20), size(0, 3), placements, seeds],
    (dtype, tokens, keyHeads, group, d, dv, bits, how, seed) => {
      const draw = { tokens, keyHeads, group, d, dv, tiled: (bits & 1) !== 0, fresh: (bits & 2) !== 0 };
      return agree(deltaTrial(dtype, draw, how, seed));
    },
  );

  holds(
    'ssm_scan: any sizes, layouts and options',
    25,
    [dtypes, size(0, 5), size(1, 3), size(1, 3), size(1, 20), size(1, 20), size(0, 7), placements, seeds],
    (dtype, tokens, groups, share, d, dv, options, how, seed) =>
      agree(scanTrial(dtype, { tokens, groups, share, d, dv, options }, how, seed)),
  );
});
