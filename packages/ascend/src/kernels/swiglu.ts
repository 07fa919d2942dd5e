/** `out = up · gate / (1 + exp(−gate))`, in f32. @module */
import type { GlobalTensor } from '../memory.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration, type RowFacts } from './declaration.js';
import { elementBlocks, stream, TILE } from './stream.js';

/** Halves are cast to f32, because exp(−gate) leaves the range of f16. */
export const SWIGLU: KernelDeclaration = /* @__PURE__ */ declareKernel<
  RowFacts & { readonly [name in 'gate' | 'up' | 'out']: GlobalTensor }
>({
  name: 'swiglu',
  operator: 'swiglu',
  dtypes: KERNEL_DTYPES,
  arguments: { gate: 'gate', up: 'up', out: 'out' },
  blocks: elementBlocks,
  kernel(c, args) {
    const silu = c.pipe.InitTBuf('_silu', TILE * 4).Get('f32');
    stream(c, args, {
      tile: TILE,
      inputs: [args.gate, args.up],
      out: args.out,
      lanes: 'f32',
      compute(dst, [gate, up], count) {
        c.Muls('compute: Muls(silu, gate, -1)', silu, gate!, -1, count);
        c.Exp('compute: Exp(silu, silu)', silu, silu, count);
        c.Adds('compute: Adds(silu, silu, 1)', silu, silu, 1, count);
        c.Div('compute: Div(silu, gate, silu)', silu, gate!, silu, count);
        c.Mul('compute: Mul(out, up, silu)', dst, up!, silu, count);
      },
    });
  },
});
