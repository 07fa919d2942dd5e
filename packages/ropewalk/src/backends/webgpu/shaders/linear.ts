/**
 * Multiplies by a weight matrix: one kernel for few rows of x, one for many.
 *
 * Operands x, weight, out, bias where there is one; for weights in blocks `weight` is their words and `scale` the same
 * bytes as halves. The walk has the strides of x's and out's rows.
 *
 * @module
 */
import { BLOCK_FORMATS, type BlockFormat } from '../../../core/block-formats.js';
import type { Kernel } from '../shader.js';
import { GROUP, MAIN, WALK } from './common.js';

/** The block formats that the kernels read. */
export const KERNEL_FORMATS = ['q8_0', 'q4_0', 'q4_K', 'q5_K', 'q6_K'] as const satisfies readonly BlockFormat[];
export type KernelFormat = (typeof KERNEL_FORMATS)[number];

/** The elements of a load of W, or the format of its blocks. */
export type WeightLoad = 1 | 4 | KernelFormat;

/** The parts that vary in the texts of all kernels. */
export interface LinearVariant {
  /** The elements of a load of x. */
  readonly x: 1 | 4;
  readonly weight: WeightLoad;
  /** The elements of a store. */
  readonly out: 1 | 4;
  readonly bias: boolean;
}

/** Few rows: `rows` is the most that the text takes. It has few values, so that few texts are compiled. */
interface LinearFewVariant extends LinearVariant {
  readonly rows: 1 | 2 | 4 | 8;
}

/** Experts: `weighted` says whether products are weighted. */
interface ExpertVariant extends LinearVariant {
  readonly weighted: boolean;
}

/** Many rows: `fours` is the number of rows and of columns of a thread's sums, in fours. */
interface LinearManyVariant extends LinearVariant {
  readonly fours: 1 | 2;
}

/**
 * m, n, k: sizes; groups: workgroups; rank: of the walk; x, weight, bias, out: first elements (of blocks, in halves);
 * …Step: elements from one to the next of a row; weightRow: from one row to the next.
 */
const SIZES = ['m', 'n', 'k', 'groups', 'rank'] as const;
const OPERANDS = ['x', 'xStep', 'weight', 'weightRow', 'weightStep', 'bias', 'biasStep', 'out', 'outStep'] as const;
const PARAMS = [...SIZES, ...OPERANDS] as const;

/** A parameter of both kernels. */
type LinearParam = (typeof PARAMS)[number];

/**
 * across: workgroups of a row of out; terms: pairs of a token and an expert that are added up in a row; chosen: pairs of
 * a token; experts: their number; …Expert: stride from expert to expert; indices, factors: first elements, with strides
 * from token to token (…Row) and from pair to pair (…Step).
 */
const EXPERT_PARAMS = [
  ...PARAMS,
  ...(['across', 'terms', 'chosen', 'experts', 'weightExpert', 'biasExpert'] as const),
  ...(['indices', 'indexRow', 'indexStep', 'factors', 'factorRow', 'factorStep'] as const),
] as const;

/**
 * The number of halves (two bytes) of a block. It is no whole number of words, so every other block starts in the middle
 * of a word.
 */
const blockHalves = (format: KernelFormat): number => BLOCK_FORMATS[format].bytes / 2;

/**
 * The columns of a workgroup of {@link LINEAR_FEW}: each load of x serves four rows of W, and four loads of W are under
 * way at a time.
 */
export const FEW_COLUMNS = 4;

/**
 * The rows and columns of a tile of {@link LINEAR_MANY}, for each four of a thread: 8 × 8 threads. With 8 × 8 sums a thread
 * needs 4 loads from shared memory for 64 multiplications, with 4 × 4 it needs 2 for 16, but there are four times as
 * many tiles to share out.
 */
export const TILE_PER_FOUR = 32;

/**
 * Few rows of x: a workgroup computes four columns of out, of all rows, so that each weight is read once. Its threads
 * share k, then add their sums: for 8 rows these fill 16 KiB, the shared memory that every device has.
 */
export const LINEAR_FEW: Kernel<LinearParam, LinearFewVariant> = {
  name: 'linear_few',
  params: PARAMS,
  threads: 128,
  code: fewText,
};

/**
 * Experts: a workgroup computes four columns of one row of out, as {@link LINEAR_FEW} does, over its terms. Further
 * operands are indices and, where products are weighted, factors. The walk goes over pairs.
 */
export const EXPERT_LINEAR: Kernel<(typeof EXPERT_PARAMS)[number], ExpertVariant> = {
  name: 'expert_linear',
  params: EXPERT_PARAMS,
  threads: 128,
  code: (variant) => fewText({ ...variant, rows: 1 }, variant.weighted),
};

/**
 * Many rows of x: a workgroup computes a tile of out along k. Its parts of x and W are in shared memory, widened to
 * f32, four rows of one k in a vector. Tiles of the same columns follow each other, so W comes from memory once and x
 * from the cache.
 */
export const LINEAR_MANY: Kernel<LinearParam, LinearManyVariant> = {
  name: 'linear_many',
  params: PARAMS,
  threads: 64,
  code: manyText,
};

/** Writes lines for each number below `count`. */
function each(count: number, text: (n: number) => string): string {
  return Array.from({ length: count }, (_, n) => text(n)).join('\n');
}

/** @param weighted - whether the products of experts are weighted; undefined where there is one matrix */
function fewText(variant: LinearFewVariant, weighted?: boolean): string {
  const { rows, weight } = variant;
  const blocks = typeof weight === 'string';
  const experts = weighted !== undefined;
  // A thread takes eight weights of blocks, in two fours that are `far` apart: a quarter of a block of 32.
  const [weights, first, far] = !blocks
    ? ['4u', 'u * 4u', '']
    : weight === 'q4_0'
      ? ['8u', 'u / 4u * 32u + u % 4u * 4u', '16u']
      : ['8u', 'u * 8u', '4u'];
  const dots = (w: string, x: string): string =>
    `vec4<f32>(${[0, 1, 2, 3].map((c) => `dot(w${c}${w}, ${x})`).join(', ')})`;
  const factor = experts ? 'factor * ' : '';
  const sum = /* wgsl */ `
  // Past the last row or column the last one is read again, and nothing is stored.
${each(FEW_COLUMNS, (c) => `  let column${c} = matrix + weight_row(min(column + ${c}u, params.n - 1u));`)}
  var starts: array<u32, ROWS>;
  for (var r = 0u; r < ROWS; r++) { starts[r] = x_row(${experts ? 'pair' : 'min(r, params.m - 1u)'}); }
  for (var u = lane; u * ${weights} < params.k; u += THREADS) {
    let i = ${first};
${each(FEW_COLUMNS, (c) => `    let w${c} = ${blocks ? `quarter(column${c}, u)` : `weight_four(column${c}, i)`};`)}
${blocks ? '    let scales = vec4<f32>(w0.scale, w1.scale, w2.scale, w3.scale);' : ''}
    for (var r = 0u; r < ROWS; r++) {
      let x = x_four(starts[r], i);
${
  blocks
    ? /* wgsl */ `      let y = x_four(starts[r], i + ${far});
      let low = ${dots('.low', 'x')};
      let high = ${dots('.high', 'y')};
      mine[r] += ${factor}scales * (low + high);`
    : `      mine[r] += ${factor}${dots('', 'x')};`
}
    }
  }`;
  return /* wgsl */ `
const COLUMNS = ${FEW_COLUMNS}u;
const ROWS = ${rows}u;
${readText(variant, true)}
${blocks ? quarterText(weight) : ''}
${writeText(experts ? { ...variant, bias: false } : variant)}
var<workgroup> sums: array<vec4<f32>, ROWS * THREADS>;

${MAIN} {
  let group = ${GROUP};
  if (group >= params.groups) { return; }
  var mine: array<vec4<f32>, ROWS>;
${experts ? expertsText(sum, weighted, variant.bias) : `  let column = group * COLUMNS;\n  let matrix = 0u;\n${sum}`}
  for (var r = 0u; r < ROWS; r++) { sums[r * THREADS + lane] = mine[r]; }
  // The order is fixed, so every run gives the same bits.
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    for (var j = lane; j < ROWS * half; j += THREADS) {
      let at = j / half * THREADS + j % half;
      sums[at] += sums[at + half];
    }
  }
  workgroupBarrier();
  if (lane < min(ROWS, params.m)) {
    put_four(out_row(${experts ? 'group / params.across * max(params.terms, 1u)' : 'lane'}), column, sums[lane * THREADS]);
  }
}`;
}

/** Computes the sums of one row of out over its pairs. */
function expertsText(sum: string, weighted: boolean, bias: boolean): string {
  return /* wgsl */ `
  let column = group % params.across * COLUMNS;
  for (var term = 0u; term < params.terms; term++) {
    let pair = group / params.across * params.terms + term;
    let token = pair / params.chosen;
    let slot = pair % params.chosen;
    let index = bitcast<i32>(bits_indices(params.indices + token * params.indexRow + slot * params.indexStep));
    let expert = u32(clamp(index, 0, i32(params.experts) - 1));
    let matrix = expert * params.weightExpert;
    let factor = ${weighted ? 'load_factors(params.factors + token * params.factorRow + slot * params.factorStep)' : '1.0'};
${sum}
${
  bias
    ? /* wgsl */ `    if (lane < 4u && column + lane < params.n) {
      let bias = load_bias(params.bias + expert * params.biasExpert + (column + lane) * params.biasStep);
      mine[0][lane] += factor * bias;
    }`
    : ''
}
  }`;
}

function manyText(variant: LinearManyVariant): string {
  const { fours } = variant;
  const components = ['x', 'y', 'z', 'w'] as const;
  // sum_r_f holds columns f·4 … f·4 + 3 of the thread's row r.
  const sums = (text: (r: number, f: number) => string): string =>
    each(4 * fours, (r) => each(fours, (f) => text(r, f)));
  const row = (r: number): string => `row + ${Math.floor(r / 4) * TILE_PER_FOUR + (r % 4)}u`;
  return /* wgsl */ `
const TILE = ${TILE_PER_FOUR * fours}u;
/// The fours of rows of a tile.
const FOURS = TILE / 4u;
/// The elements of k in shared memory at a time: 64 threads fetch them with four loads of four for x, and four for W.
const DEPTH = 1024u / TILE;
${readText(variant, false)}
${fourText(variant.weight)}
${writeText(variant)}
var<workgroup> xs: array<vec4<f32>, DEPTH * FOURS>;
var<workgroup> weights: array<vec4<f32>, DEPTH * FOURS>;

${MAIN} {
  let group = ${GROUP};
  if (group >= params.groups) { return; }
  let tiles = (params.m + TILE - 1u) / TILE;
  let first_row = group % tiles * TILE;
  let first_column = group / tiles * TILE;

  // This thread fetches four rows by four of k. Eight neighbouring threads write eight neighbouring vectors, and four of
  // 32 threads read 16 neighbours of a row.
  let part = (lane >> 3u) % (DEPTH / 4u) * 4u;
  let four = (lane & 7u) + (lane >> 3u) / (DEPTH / 4u) * 8u;
  // Past the last row or column the last one is read again, and nothing is stored.
${each(4, (r) => `  let x${r} = x_row(min(first_row + four * 4u + ${r}u, params.m - 1u));`)}
${each(4, (c) => `  let w${c} = weight_row(min(first_column + four * 4u + ${c}u, params.n - 1u));`)}
  // It computes 4 × 4 sums of each 32 × 32 of the tile.
  let across = lane & 7u;
  let down = lane >> 3u;
${sums((r, f) => `  var sum_${r}_${f} = vec4<f32>();`)}
  for (var start = 0u; start < params.k; start += DEPTH) {
    let i = start + part;
    let x = transpose(mat4x4<f32>(x_four(x0, i), x_four(x1, i), x_four(x2, i), x_four(x3, i)));
    let w = transpose(mat4x4<f32>(weight_four(w0, i), weight_four(w1, i), weight_four(w2, i), weight_four(w3, i)));
    workgroupBarrier(); // until every thread has read the last part of k
${each(4, (j) => `    xs[(part + ${j}u) * FOURS + four] = x[${j}];\n    weights[(part + ${j}u) * FOURS + four] = w[${j}];`)}
    workgroupBarrier();
    for (var at = 0u; at < DEPTH * FOURS; at += FOURS) {
${each(fours, (f) => `      let a${f} = xs[at + ${f * 8}u + down];\n      let b${f} = weights[at + ${f * 8}u + across];`)}
${sums((r, f) => `      sum_${r}_${f} = fma(vec4<f32>(a${Math.floor(r / 4)}.${components[r % 4]}), b${f}, sum_${r}_${f});`)}
    }
  }
  let row = first_row + down * 4u;
  let column = first_column + across * 4u;
${each(
  4 * fours,
  (r) => /* wgsl */ `  if (${row(r)} < params.m) {
    let at = out_row(${row(r)});
${each(fours, (f) => `    put_four(at, column + ${f * TILE_PER_FOUR}u, sum_${r}_${f});`)}
  }`,
)}
}`;
}

/**
 * Writes the functions that find the start of a row, and load four neighbours of a row of x or of a dense W: zeros past
 * its end.
 *
 * @param inside - whether the first of four is never past the end
 */
function readText({ x, weight }: LinearVariant, inside: boolean): string {
  return /* wgsl */ `
${WALK}
fn x_row(row: u32) -> u32 { return params.x + walk(row, 0u, params.rank).x; }
fn out_row(row: u32) -> u32 { return params.out + walk(row, 0u, params.rank).y; }
${WEIGHT_ROW}
${fourDenseText('x', x, inside)}
${typeof weight === 'string' ? BLOCKS : fourDenseText('weight', weight, inside)}
`;
}

/** Loads four neighbours of a row of a dense operand. */
function fourDenseText(name: 'x' | 'weight', lanes: 1 | 4, inside: boolean): string {
  return lanes === 4
    ? /* wgsl */ `
fn ${name}_four(row: u32, i: u32) -> vec4<f32> {
${inside ? '' : '  if (i >= params.k) { return vec4<f32>(); }\n'}  return load_${name}(row + i);
}`
    : /* wgsl */ `
fn ${name}_one(row: u32, i: u32) -> f32 {
  if (i >= params.k) { return 0.0; }
  return load_${name}(row + i * params.${name}Step);
}
fn ${name}_four(row: u32, i: u32) -> vec4<f32> {
  return vec4<f32>(${name}_one(row, i), ${name}_one(row, i + 1u), ${name}_one(row, i + 2u), ${name}_one(row, i + 3u));
}`;
}

const WEIGHT_ROW = /* wgsl */ `fn weight_row(row: u32) -> u32 { return params.weight + row * params.weightRow; }`;

/**
 * Writes `weight_row(row)`, the start of a row of a weight, and `weight_four(start, i)`, four neighbours of it as f32 with
 * zeros past its end. They need the parameters k, weight, weightRow and weightStep, and the operand weight; for blocks
 * also scale.
 */
export function weightText(weight: WeightLoad): string {
  return typeof weight === 'string'
    ? `${WEIGHT_ROW}\n${BLOCKS}\n${fourText(weight)}`
    : `${WEIGHT_ROW}\n${fourDenseText('weight', weight, false)}`;
}

/** Stores four sums of a row of out, plus the bias. */
function writeText({ out, bias }: LinearVariant): string {
  return /* wgsl */ `
fn biased(sum: f32, column: u32) -> f32 {
  return ${bias ? 'sum + load_bias(params.bias + column * params.biasStep)' : 'sum'};
}
${
  out === 4
    ? /* wgsl */ `fn put_four(row: u32, column: u32, v: vec4<f32>) {
  if (column >= params.n) { return; }
  let x = biased(v.x, column);
  let y = biased(v.y, column + 1u);
  let z = biased(v.z, column + 2u);
  store_out(row + column, vec4<f32>(x, y, z, biased(v.w, column + 3u)));
}`
    : /* wgsl */ `fn put_one(row: u32, column: u32, v: f32) {
  if (column < params.n) { store_out(row + column * params.outStep, biased(v, column)); }
}
fn put_four(row: u32, column: u32, v: vec4<f32>) {
  put_one(row, column, v.x);
  put_one(row, column + 1u, v.y);
  put_one(row, column + 2u, v.z);
  put_one(row, column + 3u, v.w);
}`
}
`;
}

/** Reads words of blocks, and converts integers to f32. */
const BLOCKS = /* wgsl */ `
/// Takes the word that starts at a half from the two words that it may lie in.
fn align(low: u32, high: u32, half: u32) -> u32 {
  return select(low, (low >> 16u) | (high << 16u), (half & 1u) == 1u);
}
fn word_at(half: u32) -> u32 {
  return align(bits_weight(half >> 1u), bits_weight((half >> 1u) + 1u), half);
}
/// Converts integers below 2^23, minus less. With the exponent of 2^23 an integer is its own significand: exact.
fn numbers(v: vec4<u32>, less: f32) -> vec4<f32> {
  return bitcast<vec4<f32>>(v | vec4<u32>(0x4b000000u)) - (8388608.0 + less);
}
/// Converts four signed bytes.
fn bytes(word: u32) -> vec4<f32> {
  let raised = word ^ 0x80808080u; // each plus 128
  return numbers(vec4<u32>(raised & 0xffu, (raised >> 8u) & 0xffu, (raised >> 16u) & 0xffu, raised >> 24u), 128.0);
}
/// Spreads four bytes, and takes their lowest bits.
fn spread(word: u32, mask: u32) -> vec4<u32> {
  return vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(mask);
}
/// Converts the low halves of four bytes, minus 8.
fn nibbles(word: u32) -> vec4<f32> { return numbers(spread(word, 15u), 8.0); }
`;

/** Loads quarter u of a row of blocks. */
function quarterText(format: KernelFormat): string {
  if (BLOCK_FORMATS[format].weights === 256)
    return /* wgsl */ `
${fourText(format)}
struct Quarter { low: vec4<f32>, high: vec4<f32>, scale: f32 }
fn quarter(row: u32, u: u32) -> Quarter {
  return Quarter(weight_four(row, u * 8u), weight_four(row, u * 8u + 4u), 1.0);
}`;
  return /* wgsl */ `
struct Quarter { low: vec4<f32>, high: vec4<f32>, scale: f32 }
fn quarter(row: u32, u: u32) -> Quarter {
  let block = row + u / 4u * ${blockHalves(format)}u;
${
  format === 'q8_0'
    ? /* wgsl */ `  let half = block + 1u + u % 4u * 4u;
  let middle = bits_weight((half >> 1u) + 1u);
  let low = bytes(align(bits_weight(half >> 1u), middle, half));
  let high = bytes(align(middle, bits_weight((half >> 1u) + 2u), half));`
    : /* wgsl */ `  let word = word_at(block + 1u + u % 4u * 2u);
  let low = nibbles(word);
  let high = nibbles(word >> 4u);`
}
  return Quarter(low, high, load_scale(block));
}`;
}

/** Loads four neighbours of a row of blocks. */
function fourText(weight: WeightLoad): string {
  if (typeof weight === 'number') return '';
  if (weight === 'q6_K') return Q6_K;
  if (weight === 'q4_K' || weight === 'q5_K') return superBlockText(weight);
  return /* wgsl */ `
fn weight_four(row: u32, i: u32) -> vec4<f32> {
  if (i >= params.k) { return vec4<f32>(); }
  let block = row + i / 32u * ${blockHalves(weight)}u;
  let word = word_at(block + 1u + ${weight === 'q8_0' ? 'i % 32u / 2u' : 'i % 16u / 2u'});
  return load_scale(block) * ${weight === 'q8_0' ? 'bytes(word)' : 'nibbles(word >> ((i & 16u) >> 2u))'};
}`;
}

/**
 * Four neighbours of q4_K or q5_K. Scales and minima of six bits lie in three words. The products d · scale · q and
 * dmin · minimum have at most 22 bits, so only their difference is rounded.
 */
function superBlockText(format: 'q4_K' | 'q5_K'): string {
  const five = format === 'q5_K';
  return /* wgsl */ `
fn weight_four(row: u32, i: u32) -> vec4<f32> {
  if (i >= params.k) { return vec4<f32>(); }
  let block = row + i / 256u * ${blockHalves(format)}u;
  let s = i % 256u / 32u;
  let shift = s % 4u * 8u;
  let first = word_at(block + 2u) >> shift;
  let second = word_at(block + 4u) >> shift;
  let third = word_at(block + 6u) >> shift;
  let scale = select((third & 15u) | ((first & 0xc0u) >> 2u), first & 63u, s < 4u);
  let minimum = select(((third >> 4u) & 15u) | ((second & 0xc0u) >> 2u), second & 63u, s < 4u);
  let place = i % 32u / 2u;
  let low = spread(word_at(block + ${five ? 24 : 8}u + s / 2u * 16u + place) >> (s % 2u * 4u), 15u);
${five ? '  let codes = low | (spread(word_at(block + 8u + place) >> s, 1u) << vec4<u32>(4u));' : '  let codes = low;'}
  return load_scale(block) * f32(scale) * numbers(codes, 0.0) - load_scale(block + 1u) * f32(minimum);
}`;
}

/** Four neighbours of q6_K: four low bits, two high ones, and a signed scale of 16 weights. */
const Q6_K = /* wgsl */ `
fn weight_four(row: u32, i: u32) -> vec4<f32> {
  if (i >= params.k) { return vec4<f32>(); }
  let block = row + i / 256u * ${BLOCK_FORMATS.q6_K.bytes / 2}u;
  let half = i % 256u / 128u;
  let quarter = i % 128u / 32u;
  let j = i % 32u;
  let low = spread(word_at(block + 32u * half + quarter % 2u * 16u + j / 2u) >> (quarter / 2u * 4u), 15u);
  let high = spread(word_at(block + 64u + 16u * half + j / 2u) >> (quarter * 2u), 3u);
  let scale = bitcast<i32>(word_at(block + 96u + 4u * half + quarter) << (24u - j / 16u * 8u)) >> 24u;
  return load_scale(block + 104u) * f32(scale) * numbers(low | (high << vec4<u32>(4u)), 32.0);
}`;
