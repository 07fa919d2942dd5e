/** `out = exp(x − max) / Σ exp(x − max)`, row by row, in f32. @module */
import type { GlobalTensor } from '../memory.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration, type RowFacts } from './declaration.js';
import { reduceRow, reduceWork, stream, whyNotRows } from './stream.js';

/** One row a tile: its maximum and its sum pass through the scalar unit. */
export const SOFTMAX: KernelDeclaration = /* @__PURE__ */ declareKernel<
  RowFacts & { readonly [name in 'x' | 'out']: GlobalTensor }
>({
  name: 'softmax',
  operator: 'softmax',
  dtypes: KERNEL_DTYPES,
  arguments: { x: 'x', out: 'out' },
  whyNot: whyNotRows,
  kernel(c, args) {
    const work = reduceWork(c, args.length);
    const terms = c.pipe.InitTBuf('_terms', args.length * 4).Get('f32');
    stream(c, args, {
      tile: args.length,
      inputs: [args.x],
      out: args.out,
      lanes: 'f32',
      compute(dst, [x], count) {
        const most = reduceRow(c, 'WholeReduceMax', x!, count, work).GetValue('compute: max.GetValue(0)', 0);
        c.Adds('compute: Adds(terms, x, -max)', terms, x!, -most, count);
        c.Exp('compute: Exp(terms, terms)', terms, terms, count);
        const sum = reduceRow(c, 'WholeReduceSum', terms, count, work);
        c.Reciprocal('compute: Reciprocal(sum, sum)', sum, sum, 1);
        c.Muls('compute: Muls(out, terms, 1 / sum)', dst, terms, sum.GetValue('compute: sum.GetValue(0)', 0), count);
      },
    });
  },
});
