/** A `ROPE(…)` line as a benchmark case. @module */
import { type FloatDtype, type RopePlan, sizeBytes, Tensor } from 'ropewalk';
import type { BenchCase } from './cases.js';
import { agreement } from './data.js';
import { place, release } from './library.js';

/**
 * Times one rotation of given data.
 *
 * @param label - names the case
 * @param x - `[batch, tokens, heads, head_dim]` in host memory, dense or a view
 * @param plan - the rotation, planned for the tokens of x
 * @param inPlace - the output is the input itself
 */
export function ropeLineCase(label: string, x: Tensor<FloatDtype>, plan: RopePlan, inPlace: boolean): BenchCase {
  const { dtype, shape, strides, offset, size } = x;
  return {
    label,
    group: 'operators',
    rate: 'GB/s',
    dtype,
    prepare({ rw, oracle }) {
      const placed = place(rw, x.storage.host!.slice(), dtype, [x.storage.host!.length]);
      const own = new Tensor(placed.storage, { shape, strides, offset });
      const out = inPlace ? own : rw.allocate(dtype, shape);
      const { cos, sin } = plan.table;
      const call = () => rw.rope(own, plan, { out });
      return {
        ours: { name: 'ropewalk', call, sink: () => out.storage.host?.[out.offset] ?? 0 },
        bytes: 2 * size * sizeBytes(dtype) + cos.byteLength + sin.byteLength,
        flops: (3 * size * plan.rotaryDim) / plan.headDim,
        elements: size,
        async check() {
          // Asked before the call, which may overwrite x.
          const want = await oracle.rope(x, plan).readNumbers();
          call();
          return agreement(await out.readNumbers(), want, dtype, label);
        },
        dispose: () => release(placed, out),
      };
    },
  };
}
