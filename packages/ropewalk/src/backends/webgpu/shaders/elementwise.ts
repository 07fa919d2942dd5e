/** Addition and the gated activation, element by element. @module */
import type { Kernel } from '../shader.js';
import { expText, MAIN, UNIT, WALK } from './common.js';

/** What is done with each pair of elements. */
interface ElementwiseVariant {
  readonly op: 'add' | 'swiglu';
  readonly lanes: 1 | 4;
}

/** Operands a, b and out; the walk has their strides. For swiglu a is the gate and b is up. */
export const ELEMENTWISE: Kernel<'n' | 'rank' | 'a' | 'b' | 'out', ElementwiseVariant> = {
  name: 'elementwise',
  /** n: loads of one operand; rank: of the walk; a, b, out: first elements. */
  params: ['n', 'rank', 'a', 'b', 'out'],
  threads: 64,
  code: ({ op, lanes }) => /* wgsl */ `
${WALK}
${op === 'swiglu' ? expText(lanes) : ''}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.n) { return; }
  let at = walk(t, 0u, params.rank);
  let a = load_a(params.a + at.x);
  let b = load_b(params.b + at.y);
${
  op === 'add'
    ? '  let y = a + b;'
    : `  let e = exp_below_zero(-abs(a)); // never an infinity, which WGSL need not keep
  let y = a * (select(e, ${lanes === 4 ? 'vec4<f32>(1.0)' : '1.0'}, a >= ${lanes === 4 ? 'vec4<f32>()' : '0.0'}) / (1.0 + e)) * b;`
}
  store_out(params.out + at.z, y);
}`,
};
