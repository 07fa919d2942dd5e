/** Addition, the activations and scale, element by element. @module */
import type { ElementwiseTerms } from '../../elementwise.js';
import type { Kernel } from '../shader.js';
import { capText, expText, MAIN, UNIT, WALK } from './common.js';

/** The function of an element, or of a pair of elements. */
interface ElementwiseVariant {
  readonly activation: ElementwiseTerms['activation'];
  /** Says whether there is an operand b. */
  readonly second: boolean;
  readonly lanes: 1 | 4;
}

const PARAMS = ['n', 'rank', 'a', 'b', 'out', 'first', 'second', 'third'] as const;

/** Computes {@link ElementwiseTerms}. Operands a, out and maybe b; the walk has their strides. */
export const ELEMENTWISE: Kernel<(typeof PARAMS)[number], ElementwiseVariant> = {
  name: 'elementwise',
  /** n: loads of one operand; rank: of the walk; a, b, out: first elements; then the parameters of the activation. */
  params: PARAMS,
  floats: ['first', 'second', 'third'],
  threads: 64,
  code: ({ activation, second, lanes }) => {
    const V = lanes === 4 ? 'vec4<f32>' : 'f32';
    const text = ACTIVATIONS[activation](V, second ? ' * b' : '');
    return /* wgsl */ `
${WALK}
${['add', 'scale', 'relu'].includes(activation) ? '' : expText(lanes)}
${activation === 'softcap' ? capText(lanes) : ''}
${text.includes('times_sigmoid') ? timesSigmoidText(V) : ''}
${text.includes('gelu(') ? geluText(V) : ''}
${MAIN} {
  let t = ${UNIT};
  if (t >= params.n) { return; }
  let at = walk(t, 0u, params.rank);
  let a = load_a(params.a + at.x);
${second ? '  let b = load_b(params.b + at.z);' : ''}
  ${text}
  store_out(params.out + at.y, y);
}`;
  },
};

/** The WGSL that computes y from a and b; `times` is ` * b` where there is one. */
const ACTIVATIONS: Readonly<Record<ElementwiseTerms['activation'], (V: string, times: string) => string>> = {
  add: () => 'let y = a + b;',
  swiglu: () => 'let y = times_sigmoid(a, a) * b;',
  sigmoid: () => 'let y = times_sigmoid(b, a);',
  // Comparisons keep a NaN, which min and clamp need not do.
  relu: (V) => `let y = select(a, ${V}(0.0), a < ${V}(0.0)) * b;`,
  clamped: (V) => /* wgsl */ `let limit = ${V}(params.first);
  let gate = select(a, limit, a > limit);
  let up = select(select(b, limit, b > limit), -limit, b < -limit);
  let y = times_sigmoid(gate, gate * params.second) * (up + params.third);`,
  gelu: (_, times) => `let y = gelu(a)${times};`,
  // w is 2z in x / (1 + exp(−2z)), with z = √(2/π) · (x + 0.044715·x³).
  geluTanh: (V, times) => /* wgsl */ `let w = a * fma(a * a, ${V}(0.07135481), ${V}(1.5957691));
  let y = times_sigmoid(a, w)${times};`,
  // (positive · x) · x overflows only where the result does.
  xielu: (V) => /* wgsl */ `let above = select(${V}(0.0), a, a > ${V}(0.0));
  let below = select(${V}(0.0), a, a < ${V}(0.0));
  let power = exp_below_zero(below) - 1.0 - below;
  let y = params.first * above * above + params.second * power + params.third * a;`,
  scale: (_, times) => `let y = a * params.first${times};`,
  softcap: (_, times) => `let y = cap(a * params.first${times}, params.second);`,
};

/** Computes a / (1 + exp(−w)) with an exponential that is never infinite, because WGSL need not keep infinities. */
function timesSigmoidText(V: string): string {
  return /* wgsl */ `
fn times_sigmoid(a: ${V}, w: ${V}) -> ${V} {
  let e = exp_below_zero(-abs(w));
  return a * (select(e, ${V}(1.0), w >= ${V}(0.0)) / (1.0 + e));
}
`;
}

/** Computes x · Φ(x) by the fit of ../../wasm/assembly/elementwise.ts. */
function geluText(V: string): string {
  const step = (coefficient: string): string => `  p = fma(p, t, ${V}(${coefficient}));\n`;
  const rest = ['0.14500968', '-0.26669785', '0.17877163', '-0.033110518', '0.1098271', '0.118048355', '0.13856849'];
  return /* wgsl */ `
fn gelu(x: ${V}) -> ${V} {
  let size = min(abs(x), ${V}(16.0));
  let t = 1.0 / fma(size, ${V}(0.3465), ${V}(1.0));
  var p = ${V}(-0.028637106);
${rest.map(step).join('')}${step('0.13822022')}
  let below = exp_below_zero(-0.5 * size * size) * (t * p);
  return x * select(below, 1.0 - below, x >= ${V}(0.0));
}
`;
}
