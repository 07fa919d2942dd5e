/** `out = weight · x / √(mean(x²) + eps)`, row by row, in f32. @module */
import type { GlobalTensor } from '../memory.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration, type RowFacts } from './declaration.js';
import { load, reduceRow, reduceWork, stream, whyNotRows, widened } from './stream.js';

/** One row a tile; each block loads the weight once. */
export const RMS_NORM: KernelDeclaration = /* @__PURE__ */ declareKernel<
  RowFacts & { readonly [name in 'x' | 'weight' | 'out']: GlobalTensor }
>({
  name: 'rms_norm',
  operator: 'rms_norm',
  dtypes: KERNEL_DTYPES,
  arguments: { x: 'x', weight: 'weight', out: 'out' },
  whyNot: whyNotRows,
  kernel(c, args) {
    const { length, eps } = args;
    const weightQue = c.pipe.InitBuffer('_weight_que', 'VECIN', 1, length * args.size);
    const wide = args.dtype === 'f32' ? undefined : c.pipe.InitTBuf('_weight_wide', length * 4).Get('f32');
    const squares = c.pipe.InitTBuf('_squares', length * 4).Get('f32');
    const work = reduceWork(c, length);
    load(c, args, weightQue, args.weight, 0, length);
    const weight = widened(c, 'weight', wide, weightQue.DeQue('init: _weight_que.DeQue()', args.dtype), length);
    stream(c, args, {
      tile: length,
      inputs: [args.x],
      out: args.out,
      lanes: 'f32',
      compute(dst, [x], count) {
        c.Mul('compute: Mul(squares, x, x)', squares, x!, x!, count);
        const norm = reduceRow(c, 'WholeReduceSum', squares, count, work);
        c.Muls('compute: Muls(norm, norm, 1 / length)', norm, norm, 1 / length, 1);
        c.Adds('compute: Adds(norm, norm, eps)', norm, norm, eps, 1);
        c.Sqrt('compute: Sqrt(norm, norm)', norm, norm, 1);
        c.Reciprocal('compute: Reciprocal(norm, norm)', norm, norm, 1);
        c.Muls('compute: Muls(out, x, norm)', dst, x!, norm.GetValue('compute: norm.GetValue(0)', 0), count);
        c.Mul('compute: Mul(out, out, weight)', dst, dst, weight, count);
      },
    });
  },
});
