/** `out = a + b`: the smallest kernel. @module */
import type { GlobalTensor } from '../memory.js';
import { declareKernel, KERNEL_DTYPES, type KernelDeclaration, type RowFacts } from './declaration.js';
import { elementBlocks, stream, TILE } from './stream.js';

/** Adds in the dtype; bf16 in f32. */
export const ADD: KernelDeclaration = /* @__PURE__ */ declareKernel<
  RowFacts & { readonly [name in 'a' | 'b' | 'out']: GlobalTensor }
>({
  name: 'add',
  operator: 'add',
  dtypes: KERNEL_DTYPES,
  arguments: { a: 'a', b: 'b', out: 'out' },
  blocks: elementBlocks,
  kernel(c, args) {
    stream(c, args, {
      tile: TILE,
      inputs: [args.a, args.b],
      out: args.out,
      lanes: args.dtype === 'bf16' ? 'f32' : args.dtype,
      compute: (dst, [a, b], count) => c.Add('compute: Add(out, a, b)', dst, a!, b!, count),
    });
  },
});
