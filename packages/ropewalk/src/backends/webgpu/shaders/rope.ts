/** Rotates heads by a table: all parts of a call (q and k) in one dispatch. @module */
import { LEAST_ROW } from '../../../ops/scales.js';
import type { Kernel } from '../shader.js';
import { GROUP, MAIN, RMS, SUM, UNIT } from './common.js';

/** The pairs of a window: `interleaved` (2j, 2j+1) or `half` (j, j + R/2). */
export type PairOrder = 'interleaved' | 'half';

/** One tensor of the call. */
export interface RopePartVariant {
  /** Says whether heads are rotated, or copied: then all dimensions are outside the window. */
  readonly rotate: boolean;
  /** Treats the dimensions outside the window: they stay (in place), or are copied as bits, or as values. */
  readonly rest: 'stays' | 'bits' | 'values';
  /** The rows of out are counted from a first one, or listed. */
  readonly rows: 'counted' | 'listed';
  /** Says whether rows are slots of blocks. */
  readonly blocks: boolean;
  readonly norm: boolean;
  /** Says whether values are divided by scales before they are stored. */
  readonly scale: boolean;
  /** Says whether each row and head has a scale of its own, which is stored. A workgroup then computes a head. */
  readonly own: boolean;
}

/** The parts of the text that vary. */
export interface RopeVariant {
  readonly lanes: 1 | 4;
  readonly read: PairOrder;
  readonly write: PairOrder;
  /** The table rows of tokens are counted from a first one, or listed. */
  readonly tableRows: 'counted' | 'listed';
  readonly parts: readonly RopePartVariant[];
}

const SIZES = ['tokens', 'seq', 'total', 'pairs', 'offset', 'rotaryDim', 'gap'] as const;
const HEAD = [...SIZES, 'perBatch', 'tableRows'] as const;
const OPERANDS = ['x', 'xb', 'xs', 'xh', 'xd', 'out', 'ob', 'os', 'oh', 'od'] as const;
const PART = [
  ...OPERANDS,
  'heads',
  'headDim',
  'units',
  'rows',
  'blockSize',
  'weight',
  'weightStep',
  'eps',
  'smallEps',
  ...['own', 'ownb', 'owns', 'ownh', 'ownd'],
] as const;

/** A parameter of all parts, or of one: `xh1` is part 1's `xh`. The parameters of a part follow one another. */
export type RopeParam = (typeof HEAD)[number] | `${(typeof PART)[number]}${number}`;

/** The most parts of one dispatch, whose parameters have no room for more. */
export const MAX_PARTS = 8;

/**
 * Gives the kernel for a number of parts. Operands cos, sin (f32), table_rows (u32) where they are listed; for part p x·p,
 * out·p, rows·p where they are listed, weight·p with a norm, scale·p (f32, `[heads, headDim]`) with scales, own·p (f32) with
 * scales of rows.
 *
 * A unit is four pairs of one head (or one pair where lanes is 1), or as many dimensions of the rest. Without a norm a
 * thread computes a unit; with one, or with scales of rows, a workgroup computes a head, and adds its squares first.
 *
 * Parameters: tokens of all batches; total: units (or heads, with a norm) of a token, all parts together; offset of the
 * window; gap between members of a half pair; perBatch: 1 when each batch has its own positions; tableRows: the first
 * row, or the start of the list. For each part: strides of batch, token, head and dimension; units of a head; rows: the
 * first row, or the start of the list; blockSize: rows of a block where rows are slots.
 */
export function ropeKernel(parts: number): Kernel<RopeParam, RopeVariant> {
  return (KERNELS[parts] ??= makeKernel(parts));
}

/** Each kernel is made once: its list of parameters is a quarter of the host's work for a call. */
const KERNELS: Kernel<RopeParam, RopeVariant>[] = [];

function makeKernel(parts: number): Kernel<RopeParam, RopeVariant> {
  const each = Array.from({ length: parts }, (_, p) => PART.map((name) => `${name}${p}` as const)).flat();
  return {
    name: `rope${parts}`,
    params: [...HEAD, ...each],
    floats: each.filter((name) => /^(eps|smallEps)/.test(name)),
    threads: 64,
    code: ropeText,
  };
}

function ropeText(variant: RopeVariant): string {
  const { lanes, parts } = variant;
  const byHeads = parts.some(({ norm, own }) => norm || own);
  const row = 'params.tableRows + params.perBatch * b * params.seq + s';
  return /* wgsl */ `
const LANES = ${lanes}u;
alias V = ${lanes === 4 ? 'vec4<f32>' : 'f32'};
${parts.some(({ norm }) => norm) ? SUM + RMS : ''}
${parts.some(({ own }) => own) ? largestText(lanes) : ''}
fn table_row(b: u32, s: u32) -> u32 {
  return ${variant.tableRows === 'counted' ? row : `bits_table_rows(${row})`};
}
${parts.map((part, p) => partText(variant, part, p)).join('')}
${MAIN} {
${byHeads ? byHead(parts) : byUnit(parts)}
}`;
}

/** Gives each thread a unit. */
function byUnit(parts: readonly RopePartVariant[]): string {
  return /* wgsl */ `  let t = ${UNIT};
  if (t >= params.tokens * params.total) { return; }
  let token = t / params.total;
  var i = t % params.total;
  let b = token / params.seq;
  let s = token % params.seq;
${parts
  .map(
    (_, p) => /* wgsl */ `  if (i < params.heads${p} * params.units${p}) {
    rotate${p}(b, s, i / params.units${p}, i % params.units${p}, vec2<f32>(1.0));
    return;
  }
  i -= params.heads${p} * params.units${p};
`,
  )
  .join('')}`;
}

/** Gives each workgroup a head. */
function byHead(parts: readonly RopePartVariant[]): string {
  return /* wgsl */ `  let g = ${GROUP};
  if (g >= params.tokens * params.total) { return; }
  let token = g / params.total;
  var head = g % params.total;
  let b = token / params.seq;
  let s = token % params.seq;
${parts
  .map(
    ({ norm, own }, p) => /* wgsl */ `  if (head < params.heads${p}) {
    ${norm ? `let root = root${p}(b, s, head, lane);` : 'let root = vec2<f32>(1.0);'}
    ${own ? `measuring = true;\n    ${unitsOf(p)}\n    divide${p}(b, s, head, lane);` : ''}
    ${unitsOf(p)}
    return;
  }
  head -= params.heads${p};
`,
  )
  .join('')}`;
}

/** Computes each unit of a head. */
function unitsOf(p: number): string {
  return `for (var u = lane; u < params.units${p}; u += THREADS) { rotate${p}(b, s, head, u, root); }`;
}

/** Finds the largest magnitude of a head: its units are computed once to measure, and again to store. */
function largestText(lanes: 1 | 4): string {
  return /* wgsl */ `
var<private> measuring: bool;
var<private> most: f32; // of this thread's elements
var<private> divisor: f32;
var<workgroup> found: array<f32, THREADS>;
fn measure(v: V) { most = max(most, ${lanes === 4 ? 'max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w)))' : 'abs(v)'}); }
fn largest(lane: u32) -> f32 {
  found[lane] = most;
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if (lane < half) { found[lane] = max(found[lane], found[lane + half]); }
  }
  return workgroupUniformLoad(&found[0]);
}
`;
}

function partText({ lanes, read, write }: RopeVariant, part: RopePartVariant, p: number): string {
  const { rotate, rest, rows, blocks, norm, scale, own } = part;
  const at = (dim: string): string => `source + (${dim}) * params.xd${p}`;
  const to = (dim: string): string => `place + (${dim}) * params.od${p}`;
  const load = (dim: string): string => {
    const value = `load_x${p}(${at(dim)})`;
    return norm
      ? `load_weight${p}(params.weight${p} + (${dim}) * params.weightStep${p}) * (${value} * root.y / root.x)`
      : value;
  };
  const store = (dim: string, value: string): string =>
    own
      ? `keep${p}(${to(dim)}, ${value});`
      : `store_out${p}(${to(dim)}, ${scale ? `(${value}) / load_scale${p}(head * params.headDim${p} + (${dim}))` : value});`;
  const row = rows === 'counted' ? `params.rows${p} + s` : `bits_rows${p}(params.rows${p} + b * params.seq + s)`;
  const reading = {
    half: `let x0 = ${load('d')};
    let x1 = ${load('d + params.gap')};`,
    interleaved:
      lanes === 4
        ? `let first = ${load('w')};
    let second = ${load('w + 4u')};
    let x0 = V(first.xz, second.xz);
    let x1 = V(first.yw, second.yw);`
        : `let x0 = ${load('w')};
    let x1 = ${load('w + 1u')};`,
  }[read];
  const writing = {
    half: `${store('d', 'y0')}
    ${store('d + params.gap', 'y1')}`,
    interleaved:
      lanes === 4
        ? `${store('w', 'V(y0.x, y1.x, y0.y, y1.y)')}
    ${store('w + 4u', 'V(y0.z, y1.z, y0.w, y1.w)')}`
        : `${store('w', 'y0')}
    ${store('w + 1u', 'y1')}`,
  }[write];
  const copying = {
    stays: '',
    bits: `put_out${p}(${to('d')}, bits_x${p}(${at('d')}));`,
    values: store('d', load('d')),
  }[rest];
  const rotating = /* wgsl */ `  if (j < params.pairs) {
    let angle = table_row(b, s) * params.pairs + j;
    let c = load_cos(angle);
    let sn = load_sin(angle);
    let d = params.offset + j;
    let w = params.offset + 2u * j;
    ${reading}
    let y0 = x0 * c - x1 * sn;
    let y1 = x0 * sn + x1 * c;
    ${writing}
    return;
  }
  let r = j - params.pairs;
  let d = select(r + params.rotaryDim, r, r < params.offset);`;
  const locating = /* wgsl */ `let row = ${row};
  ${rows === 'listed' ? 'if (row == 0xffffffffu) { return; }' : ''}
  ${blocks ? `let block = row / params.blockSize${p};` : ''}`;
  const rowAt = (of: string): string =>
    blocks
      ? `block * params.${of}b${p} + row % params.blockSize${p} * params.${of}s${p}`
      : `b * params.${of}b${p} + row * params.${of}s${p}`;
  const dividing = /* wgsl */ `
fn keep${p}(at: u32, value: V) {
  if (measuring) { measure(value); } else { store_out${p}(at, select(value / divisor, V(), divisor == 0.0)); }
}
fn divide${p}(b: u32, s: u32, head: u32, lane: u32) {
  let all = largest(lane);
  divisor = select(all / 127.0, 0.0, all < ${LEAST_ROW});
  measuring = false;
  ${locating}
  if (lane == 0u) { store_own${p}(params.own${p} + ${rowAt('own')} + head * params.ownh${p}, divisor); }
}`;
  return /* wgsl */ `${own ? dividing : ''}
fn rotate${p}(b: u32, s: u32, head: u32, u: u32, root: vec2<f32>) {
  let source = params.x${p} + b * params.xb${p} + s * params.xs${p} + head * params.xh${p};
  ${locating}
  let place = params.out${p} + ${rowAt('o')} + head * params.oh${p};
  let j = u * LANES;
${rotate ? rotating : /* wgsl */ `  let d = j;`}
  ${copying}
}
${
  norm
    ? /* wgsl */ `
fn squares${p}(source: u32, lane: u32, scale: f32) -> f32 {
  var squares = 0.0;
  for (var i = lane * LANES; i < params.headDim${p}; i += THREADS * LANES) {
    let v = load_x${p}(${at('i')}) * scale;
    squares += ${lanes === 4 ? 'dot(v, v)' : 'v * v'};
  }
  return sum(squares, lane);
}
fn root${p}(b: u32, s: u32, head: u32, lane: u32) -> vec2<f32> {
  let source = params.x${p} + b * params.xb${p} + s * params.xs${p} + head * params.xh${p};
  let d = f32(params.headDim${p});
  var mean = squares${p}(source, lane, 1.0) / d;
  let scale = rescale(mean + params.eps${p});
  if (scale != 1.0) { mean = squares${p}(source, lane, scale) / d; }
  return root_of(mean, scale, params.eps${p}, params.smallEps${p});
}`
    : ''
}`;
}
