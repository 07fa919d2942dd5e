/**
 * Attention with an online softmax: each query keeps only its largest score, its sum of weights and its weighted values
 * so far.
 *
 * Two kernels do the same: one for a few queries and many keys, as in decoding, and one for many queries. Where one
 * workgroup for each block of queries would leave a device idle, several share its keys, and a third kernel joins their
 * results.
 *
 * A row is a query of one KV head: all query heads that share it, token by token, so row = token · group + query head.
 * A quad is four dimensions. The order of all sums depends on the shapes alone: the same bits in every run.
 *
 * @module
 */
import type { Kernel } from '../shader.js';
import { capText, expText, GROUP, MAIN } from './common.js';

/** The elements of a load or store of a quad: four at once, or one by one with any stride. */
type Lanes = 1 | 4;

/** The parts that vary in the texts of both kernels. */
interface AttentionVariant {
  /** The elements of a load or store of q, k, v and out. */
  readonly lanes: Lanes;
  /** Says whether {@link JOIN} writes out. */
  readonly parts: boolean;
  readonly softcap: boolean;
  /** Says whether this kernel adds the sinks: the last kernel to see a row does. */
  readonly sinks: boolean;
  /** They say whether k has scales, and whether this kernel multiplies by those of v: the last kernel to see a row does. */
  readonly kScale: boolean;
  readonly vScale: boolean;
  /** They say whether each row of k and v has a scale of its own. */
  readonly kOwn: boolean;
  readonly vOwn: boolean;
  /** Says whether k and v are paged. */
  readonly paged: boolean;
}

/** The variant of the kernel for few queries. */
interface FewVariant extends AttentionVariant {
  /** The rows of a workgroup. */
  readonly rows: 1 | 2 | 4 | 8;
  /** The quads of values side by side, a power of two from 8 to {@link FEW}'s threads. */
  readonly columns: number;
  /** The quads of all its queries that there is room for; at least as many as threads. */
  readonly room: number;
}

/** The variant of the kernel for many queries. */
interface ManyVariant extends AttentionVariant {
  /** The quads of values side by side: 8, 16, 24 or 32. */
  readonly columns: number;
}

const SIZES = ['units', 'slices', 'splits', 'batch', 'kvHeads', 'blocks', 'width', 'rows', 'group'] as const;
const MASK = ['total', 'past', 'window', 'causal', 'maxBlocks', 'blockSize'] as const;
const DIMS = ['d', 'dv', 'scale', 'softcap'] as const;
const SINKS = ['sinks', 'sinkStep', 'vScale'] as const;
const OUT = ['out', 'ob', 'os', 'oh', 'od'] as const;
const QUERY = ['q', 'qb', 'qs', 'qh', 'qd'] as const;
const KEY = ['k', 'kb', 'ks', 'kh', 'kd'] as const;
const VALUE = ['v', 'vb', 'vs', 'vh', 'vd'] as const;
const OWN = ['kown', 'kownb', 'kowns', 'kownh', 'kownd', 'vown', 'vownb', 'vowns', 'vownh', 'vownd'] as const;
const PARAMS = [...SIZES, ...MASK, ...DIMS, ...SINKS, ...QUERY, ...KEY, ...VALUE, ...OWN, ...OUT] as const;

/**
 * A parameter of both kernels. units: workgroups; slices of values, width quads each; splits of the keys; blocks of
 * rows; rows of a KV head; group: query heads of one; past: total − seq; window or 0; causal 0 or 1; blocks of a sequence
 * and keys of a block, where paged; softcap or 0; the first sink and the stride; the first scale of v; then first elements
 * and strides of batch (of blocks, where paged), token, head and dimension, those of rows' own scales too.
 */
type AttentionParam = (typeof PARAMS)[number];

/** The rows and keys of a tile of the kernel for many queries. */
export const MANY_ROWS = 64;
const MANY_KEYS = 32;

/** The keys of a step of the kernel for few queries: as many as its partial scores have room for. */
const FEW_KEYS = { 1: 128, 2: 128, 4: 64, 8: 32 } as const;

/** Loads four elements of a row from dimension i on, with zeros past its end. */
function quadText(name: 'q' | 'k' | 'v', lanes: Lanes): string {
  const size = name === 'v' ? 'params.dv' : 'params.d';
  if (lanes === 4)
    return /* wgsl */ `
fn quad_${name}(at: u32, i: u32) -> vec4<f32> {
  if (i >= ${size}) { return vec4<f32>(); }
  return load_${name}(at + i);
}`;
  return /* wgsl */ `
fn quad_${name}(at: u32, i: u32) -> vec4<f32> {
  var quad = vec4<f32>();
  for (var e = 0u; e < 4u && i + e < ${size}; e++) { quad[e] = load_${name}(at + (i + e) * params.${name}d); }
  return quad;
}`;
}

/** Locates a row of q or out; b is a batch and head a KV head. */
function rowText(name: 'q' | 'out', letter: 'q' | 'o'): string {
  return /* wgsl */ `
fn ${name}_at(b: u32, head: u32, row: u32) -> u32 {
  let query_head = head * params.group + row % params.group;
  let token = row / params.group;
  return params.${name} + b * params.${letter}b + token * params.${letter}s + query_head * params.${letter}h;
}`;
}

/** Loads the scales of a quad of k or v, from `[kvHeads, n]`, with 1 past its end. */
function scaleText(name: 'k' | 'v'): string {
  const [first, n] = name === 'k' ? ['', 'params.d'] : ['params.vScale + ', 'params.dv'];
  return /* wgsl */ `
fn scale_${name}(head: u32, i: u32) -> vec4<f32> {
  var quad = vec4<f32>(1.0);
  for (var e = 0u; e < 4u && i + e < ${n}; e++) { quad[e] = load_${name}scale(${first}head * ${n} + i + e); }
  return quad;
}`;
}

/** Locates key or value t of sequence b, relative to the place of the KV head. */
function placeText(name: 'k' | 'v' | 'kown' | 'vown', paged: boolean): string {
  return /* wgsl */ `
fn place_${name}(b: u32, t: u32) -> u32 {
  ${
    paged
      ? `return block_of(b, t) * params.${name}b + t % params.blockSize * params.${name}s;`
      : `return b * params.${name}b + t * params.${name}s;`
  }
}`;
}

/** Loads the scale of row t of sequence b. */
function ownText(name: 'kown' | 'vown', paged: boolean): string {
  return /* wgsl */ `${placeText(name, paged)}
fn scale_${name}(b: u32, head: u32, t: u32) -> f32 {
  return load_${name}(params.${name} + place_${name}(b, t) + head * params.${name}h);
}`;
}

/** Reads the operand pages, which holds the number of keys of each sequence, then its blocks. */
const PAGES = /* wgsl */ `
fn block_of(b: u32, t: u32) -> u32 {
  return bits_pages(params.batch + b * params.maxBlocks + t / params.blockSize);
}`;

/** Writes a quad of a row of out, but nothing past its end. */
function putText(lanes: Lanes): string {
  return /* wgsl */ `
fn put_quad(at: u32, i: u32, quad: vec4<f32>) {
  ${
    lanes === 4
      ? 'if (i < params.dv) { store_out(at + i, quad); }'
      : 'for (var e = 0u; e < 4u && i + e < params.dv; e++) { store_out(at + (i + e) * params.od, quad[e]); }'
  }
}`;
}

/**
 * Divides a row's quad, the sums of weighted values, by the sum of weights, to which a sink adds its own.
 *
 * @param width - the width of the vectors in which exponentials are computed
 */
function averageText(sinks: boolean, width: 1 | 4): string {
  const exp = (x: string): string => (width === 4 ? `exp_below_zero(vec4<f32>(${x})).x` : `exp_below_zero(${x})`);
  return /* wgsl */ `
fn average(head: u32, row: u32, sums: vec4<f32>, top: f32, sum: f32) -> vec4<f32> {
${
  sinks
    ? /* wgsl */ `  let query_head = head * params.group + row % params.group;
  let sink = max(load_sinks(params.sinks + query_head * params.sinkStep), LOWEST);
  let most = max(top, sink);
  let factor = ${exp('top - most')};
  return sums * factor / (sum * factor + ${exp('sink - most')});`
    : '  return sums / sum;'
}
}`;
}

/** Stores a row's quad: sums of weighted values, the largest score, the sum of weights. */
function keepText({ parts, lanes, sinks, vScale }: AttentionVariant, width: 1 | 4): string {
  if (!parts)
    return /* wgsl */ `${rowText('out', 'o')}
${putText(lanes)}
${averageText(sinks, width)}
${vScale ? scaleText('v') : ''}
fn keep(work: Work, row: u32, column: u32, sums: vec4<f32>, top: f32, sum: f32) {
  let quad = average(work.head, row, sums, top, sum)${vScale ? ' * scale_v(work.head, 4u * column)' : ''};
  put_quad(out_at(work.b, work.head, row), 4u * column, quad);
}`;
  return /* wgsl */ `
fn keep(work: Work, row: u32, column: u32, sums: vec4<f32>, top: f32, sum: f32) {
  let quads = (params.dv + 3u) / 4u;
  let at = ((work.b * params.kvHeads + work.head) * params.rows + row) * params.splits + work.split;
  if (column >= quads) { return; }
  store_sums((at * quads + column) * 4u, sums);
  if (column == 0u) {
    store_states(2u * at, top);
    store_states(2u * at + 1u, sum);
  }
}`;
}

/**
 * Writes the parts that both kernels need: their share of the work, the keys that a row sees, and the operands.
 *
 * @param width - the width of the vectors in which scores are computed
 */
function commonText(variant: AttentionVariant, width: 1 | 4): string {
  const { lanes, softcap, paged, kScale, kOwn, vOwn } = variant;
  return /* wgsl */ `
/// It is below every score and finite, as is its difference from any score: WGSL need not keep infinities.
const LOWEST = -1e38;

${expText(width)}
${softcap ? capText(width) : ''}
${paged ? PAGES : ''}
${placeText('k', paged)}
${placeText('v', paged)}
${kOwn ? ownText('kown', paged) : ''}
${vOwn ? ownText('vown', paged) : ''}
/// The first and the last key that a row sees.
fn first_key(past: u32, row: u32) -> u32 {
  let end = past + row / params.group + 1u;
  return select(max(end, params.window) - params.window, 0u, params.window == 0u);
}
fn last_key(total: u32, past: u32, row: u32) -> u32 {
  return select(total - 1u, past + row / params.group, params.causal != 0u);
}

/// The work of a workgroup: rows of a KV head, quads of their values, and keys from begin on, end excluded.
struct Work {
  b: u32,
  head: u32,
  total: u32,
  past: u32,
  split: u32,
  first_row: u32,
  last_row: u32,
  column: u32,
  begin: u32,
  end: u32,
  /// All rows see keys from..to.
  all_from: u32,
  all_to: u32,
}
fn work_of(group: u32) -> Work {
  var work: Work;
  var rest = group;
  work.column = rest % params.slices * params.width;
  rest /= params.slices;
  work.split = rest % params.splits;
  rest /= params.splits;
  work.head = rest % params.kvHeads;
  rest /= params.kvHeads;
  work.b = rest % params.batch;
  work.total = ${paged ? 'bits_pages(work.b)' : 'params.total'};
  work.past = ${paged ? 'work.total - params.rows / params.group' : 'params.past'};
  // Later rows see more keys, so they come first, and the last workgroups to start have the least work.
  work.first_row = (params.blocks - 1u - rest / params.batch) * ROWS;
  work.last_row = min(work.first_row + ROWS, params.rows) - 1u;
  let first = first_key(work.past, work.first_row);
  let end = last_key(work.total, work.past, work.last_row) + 1u;
  // All splits but the last have whole steps; past the end of the last no row sees anything.
  let step = KEYS * params.splits;
  let share = (end - first + step - 1u) / step * KEYS;
  work.begin = first + work.split * share;
  work.end = min(work.begin + share, end);
  work.all_from = first_key(work.past, work.last_row);
  work.all_to = last_key(work.total, work.past, work.first_row);
  return work;
}
${rowText('q', 'q')}
${quadText('q', lanes)}
${kScale ? scaleText('k') : ''}
${quadText('k', lanes)}
${quadText('v', lanes)}
${keepText(variant, width)}
`;
}

/**
 * Few rows before many keys. Operands are q, k, v; out and maybe sinks, or sums and states where splits are joined;
 * kscale, vscale, kown, vown (f32) and pages (u32) where they exist.
 *
 * A step is KEYS keys. For the scores eight threads share a key, and each has every eighth quad of it, for all rows at
 * once; for the values a thread has a column of quads and every TEAMS-th key.
 */
export const FEW: Kernel<AttentionParam, FewVariant> = {
  name: 'attention_few',
  params: PARAMS,
  floats: ['scale', 'softcap'],
  threads: 128,
  code: (variant) => /* wgsl */ `
const ROWS = ${variant.rows}u;
const KEYS = ${FEW_KEYS[variant.rows]}u;
const COLUMNS = ${variant.columns}u;
const TEAMS = THREADS / COLUMNS;
const AHEAD = min(4u, KEYS / TEAMS); // loads of values that wait together
const KEYS_AT_ONCE = THREADS / 8u;
const KEYS_EACH = KEYS / KEYS_AT_ONCE;
const SCORES = ROWS * KEYS;
const SCORES_EACH = SCORES / THREADS;
${commonText(variant, 1)}
var<workgroup> queries: array<vec4<f32>, ${variant.room}>; // at the end: sums
// The scores of eight threads, shifted so that they write to different banks.
var<workgroup> partial: array<f32, 8u * (SCORES + 4u)>;
var<workgroup> weights: array<f32, SCORES>;
var<workgroup> eighths: array<f32, ROWS * 8u>;
var<workgroup> tops: array<f32, ROWS>;
var<workgroup> factors: array<f32, ROWS>;

${MAIN} {
  let group = ${GROUP};
  if (group >= params.units) { return; }
  let work = work_of(group);
  let depth = (params.d + 3u) / 4u;
  for (var i = lane; i < ROWS * depth; i += THREADS) {
    let row = min(work.first_row + i / depth, work.last_row); // past the last one: that again, unused
    let dim = i % depth * 4u;
    queries[i] = quad_q(q_at(work.b, work.head, row), dim)${variant.kScale ? ' * scale_k(work.head, dim)' : ''};
  }
  let part = lane % 8u;
  let k = params.k + work.head * params.kh;
  let v = params.v + work.head * params.vh;
  let column = work.column + lane % COLUMNS;
  let team = lane / COLUMNS;
  var sums: array<vec4<f32>, ROWS>;
  var sum: array<f32, SCORES_EACH>; // of this thread's weights: always those of one row
  var top = LOWEST; // of row lane
  workgroupBarrier();
  for (var key = work.begin; key < work.end; key += KEYS) {
    var from_key: array<u32, KEYS_EACH>;
    for (var n = 0u; n < KEYS_EACH; n++) {
      from_key[n] = k + place_k(work.b, min(key + lane / 8u + n * KEYS_AT_ONCE, work.end - 1u));
    }
    // With a value: in a loop, SwiftShader keeps what was in an array that is declared without one.
    var dots = array<array<f32, ROWS>, KEYS_EACH>();
    for (var c = part; c < depth; c += 8u) {
      var q: array<vec4<f32>, ROWS>;
      for (var r = 0u; r < ROWS; r++) { q[r] = queries[r * depth + c]; }
      for (var n = 0u; n < KEYS_EACH; n++) {
        let quad = quad_k(from_key[n], 4u * c);
        for (var r = 0u; r < ROWS; r++) { dots[n][r] += dot(q[r], quad); }
      }
    }
    for (var n = 0u; n < KEYS_EACH; n++) {
      let at = part * (SCORES + 4u) + lane / 8u + n * KEYS_AT_ONCE;
      for (var r = 0u; r < ROWS; r++) { partial[at + r * KEYS] = dots[n][r]; }
    }
    workgroupBarrier();

    var scores: array<f32, SCORES_EACH>;
    for (var m = 0u; m < SCORES_EACH; m++) {
      let i = lane + m * THREADS;
      var score = 0.0;
      for (var p = 0u; p < 8u; p++) { score += partial[p * (SCORES + 4u) + i]; }
      score *= params.scale${variant.kOwn ? ' * scale_kown(work.b, work.head, min(key + i % KEYS, work.end - 1u))' : ''};
      ${variant.softcap ? 'score = cap(score, params.softcap);' : ''}
      let row = min(work.first_row + i / KEYS, work.last_row);
      let at = key + i % KEYS;
      scores[m] = select(score, LOWEST, at < first_key(work.past, row) || at > last_key(work.total, work.past, row));
      weights[i] = scores[m];
    }
    workgroupBarrier();
    if (lane < ROWS * 8u) {
      var most = LOWEST;
      for (var n = lane % 8u; n < KEYS; n += 8u) { most = max(most, weights[lane / 8u * KEYS + n]); }
      eighths[lane] = most;
    }
    workgroupBarrier();
    if (lane < ROWS) {
      let before = top;
      for (var n = 0u; n < 8u; n++) { top = max(top, eighths[lane * 8u + n]); }
      tops[lane] = top;
      factors[lane] = exp_below_zero(before - top);
    }
    workgroupBarrier();
    for (var m = 0u; m < SCORES_EACH; m++) {
      let i = lane + m * THREADS;
      // A row that sees none of these keys has no top yet: the difference would be 0.
      let weight = select(exp_below_zero(scores[m] - tops[i / KEYS]), 0.0, scores[m] == LOWEST);
      weights[i] = weight${variant.vOwn ? ' * scale_vown(work.b, work.head, min(key + i % KEYS, work.end - 1u))' : ''};
      sum[m] = fma(sum[m], factors[i / KEYS], weight);
    }
    workgroupBarrier();

    for (var r = 0u; r < ROWS; r++) { sums[r] *= factors[r]; }
    let count = min(KEYS, work.end - key);
    if (key < work.all_from || key + KEYS - 1u > work.all_to) {
      ${fewValues('add_seen')}
    } else {
      ${fewValues('add')}
    }
  }

  workgroupBarrier();
  for (var m = 0u; m < SCORES_EACH; m++) { weights[lane + m * THREADS] = sum[m]; }
  workgroupBarrier();
  if (lane < ROWS * 8u) {
    var some = 0.0;
    for (var n = lane % 8u; n < KEYS; n += 8u) { some += weights[lane / 8u * KEYS + n]; }
    eighths[lane] = some;
  }
  if (lane < ROWS) { tops[lane] = top; } // where there were no keys
  for (var r = 0u; r < ROWS; r++) {
    workgroupBarrier();
    queries[lane] = sums[r];
    workgroupBarrier();
    if (team == 0u && lane < params.width && work.first_row + r <= work.last_row) {
      var all = queries[lane];
      for (var t = 1u; t < TEAMS; t++) { all += queries[lane + t * COLUMNS]; }
      var weight = 0.0;
      for (var n = 0u; n < 8u; n++) { weight += eighths[r * 8u + n]; }
      keep(work, work.first_row + r, column, all, tops[r], weight);
    }
  }
}
${ADD}`,
};

/** Adds the weighted values of a step of {@link FEW}. */
function fewValues(add: 'add' | 'add_seen'): string {
  return /* wgsl */ `for (var n = team; n < count; n += AHEAD * TEAMS) {
        var values: array<vec4<f32>, AHEAD>;
        for (var e = 0u; e < AHEAD; e++) {
          values[e] = quad_v(v + place_v(work.b, min(key + n + e * TEAMS, work.end - 1u)), 4u * column);
        }
        for (var e = 0u; e < AHEAD; e++) {
          for (var r = 0u; r < ROWS; r++) { sums[r] = ${add}(sums[r], weights[r * KEYS + n + e * TEAMS], values[e]); }
        }
      }`;
}

/** Adds a weighted value; `add_seen` is for values that some rows do not see, where 0 · infinity would be NaN. */
const ADD = /* wgsl */ `
fn add(sums: vec4<f32>, weight: f32, value: vec4<f32>) -> vec4<f32> {
  return fma(vec4<f32>(weight), value, sums);
}
fn add_seen(sums: vec4<f32>, weight: f32, value: vec4<f32>) -> vec4<f32> {
  return fma(vec4<f32>(weight), select(value, vec4<f32>(), weight == 0.0), sums);
}`;

/**
 * Many rows: tiles of 64 rows × 32 keys. The operands are those of {@link FEW}.
 *
 * A thread has rows `down + 16 i` of a tile, i = 0 … 3, as the four lanes of its vectors: the scores of keys `across +
 * 8 j`, and quads `across + 8 j` of the values. Queries and keys are loaded 32 dimensions at a time, so that there may
 * be any number of dimensions; weights and values then take the same place:
 *
 *     [64 queries][9 quads] [32 keys][9 quads]
 *     [32 keys][17: weights of four rows] [some keys][COLUMNS quads of values]
 *
 * Rows of odd length let neighbouring threads read from different banks.
 */
export const MANY: Kernel<AttentionParam, ManyVariant> = {
  name: 'attention_many',
  params: PARAMS,
  floats: ['scale', 'softcap'],
  threads: 128,
  code: (variant) => /* wgsl */ `
const ROWS = ${MANY_ROWS}u;
const KEYS = ${MANY_KEYS}u;
const COLUMNS = ${variant.columns}u;
const COLUMNS_EACH = COLUMNS / 8u;
const VALUES = KEYS * 17u; // where values start
const VALUE_KEYS = ${variant.columns <= 8 ? 32 : variant.columns <= 16 ? 16 : 8}u;
${commonText(variant, 4)}
var<workgroup> tile: array<vec4<f32>, (ROWS + KEYS) * 9u>;
var<workgroup> eighths: array<vec4<f32>, THREADS>; // largest scores of each thread

${MAIN} {
  let group = ${GROUP};
  if (group >= params.units) { return; }
  let work = work_of(group);
  let across = lane % 8u;
  let down = lane / 8u;
  var q: array<u32, 4>;
  var first = vec4<u32>();
  var last = vec4<u32>();
  for (var i = 0u; i < 4u; i++) {
    let row = min(work.first_row + down + 16u * i, work.last_row); // past the last one: that again, unused
    q[i] = q_at(work.b, work.head, row);
    first[i] = first_key(work.past, row);
    last[i] = last_key(work.total, work.past, row);
  }
  let k = params.k + work.head * params.kh;
  let v = params.v + work.head * params.vh;
  var sums: array<array<vec4<f32>, 4>, COLUMNS_EACH>;
  var sum = vec4<f32>(); // of this thread's weights
  var top = vec4<f32>(LOWEST);
  for (var key = work.begin; key < work.end; key += KEYS) {
    var scores = array<vec4<f32>, 4>();
    for (var dim = 0u; dim < params.d; dim += 32u) {
      let i = dim + 4u * across;
      workgroupBarrier();
      ${variant.kScale ? 'let scale = scale_k(work.head, i);' : ''}
      for (var n = 0u; n < 4u; n++) { tile[(down + 16u * n) * 9u + across] = quad_q(q[n], i)${variant.kScale ? ' * scale' : ''}; }
      for (var n = 0u; n < 2u; n++) {
        let at = k + place_k(work.b, min(key + down + 16u * n, work.end - 1u));
        tile[(ROWS + down + 16u * n) * 9u + across] = quad_k(at, i);
      }
      workgroupBarrier();
      for (var c = 0u; c < 8u; c++) {
        let at = down * 9u + c;
        let rows = transpose(mat4x4<f32>(tile[at], tile[at + 144u], tile[at + 288u], tile[at + 432u]));
        for (var j = 0u; j < 4u; j++) {
          let quad = tile[(ROWS + across + 8u * j) * 9u + c];
          for (var e = 0u; e < 4u; e++) { scores[j] = fma(rows[e], vec4<f32>(quad[e]), scores[j]); }
        }
      }
    }

    let hides = key < work.all_from || key + KEYS - 1u > work.all_to;
    var most = vec4<f32>(LOWEST);
    for (var j = 0u; j < 4u; j++) {
      scores[j] *= params.scale${variant.kOwn ? ' * scale_kown(work.b, work.head, min(key + across + 8u * j, work.end - 1u))' : ''};
      ${variant.softcap ? 'scores[j] = cap(scores[j], params.softcap);' : ''}
      let at = vec4<u32>(key + across + 8u * j);
      if (hides) { scores[j] = select(scores[j], vec4<f32>(LOWEST), (at < first) | (at > last)); }
      most = max(most, scores[j]);
    }
    eighths[lane] = most;
    workgroupBarrier();
    let before = top;
    for (var n = 0u; n < 8u; n++) { top = max(top, eighths[down * 8u + n]); }
    let factor = exp_below_zero(before - top);
    sum *= factor;
    for (var j = 0u; j < 4u; j++) {
      // A row that sees none of these keys has no top yet: the difference would be 0.
      let weight = select(exp_below_zero(scores[j] - top), vec4<f32>(), scores[j] == vec4<f32>(LOWEST));
      sum += weight;
      tile[(across + 8u * j) * 17u + down] = weight${variant.vOwn ? ' * scale_vown(work.b, work.head, min(key + across + 8u * j, work.end - 1u))' : ''};
    }
    for (var j = 0u; j < COLUMNS_EACH; j++) {
      for (var i = 0u; i < 4u; i++) { sums[j][i] *= factor[i]; }
    }

    let count = min(KEYS, work.end - key);
    for (var from_key = 0u; from_key < count; from_key += VALUE_KEYS) {
      if (from_key > 0u) { workgroupBarrier(); }
      for (var i = lane; i < VALUE_KEYS * COLUMNS; i += THREADS) {
        let at = v + place_v(work.b, min(key + from_key + i / COLUMNS, work.end - 1u));
        tile[VALUES + i] = quad_v(at, 4u * (work.column + i % COLUMNS));
      }
      workgroupBarrier();
      if (hides) {
        ${manyValues('add_seen')}
      } else {
        ${manyValues('add')}
      }
    }
  }

  workgroupBarrier();
  eighths[lane] = sum;
  workgroupBarrier();
  sum = vec4<f32>();
  for (var n = 0u; n < 8u; n++) { sum += eighths[down * 8u + n]; }
  for (var i = 0u; i < 4u; i++) {
    let row = work.first_row + down + 16u * i;
    for (var j = 0u; j < COLUMNS_EACH; j++) {
      let column = across + 8u * j;
      if (row <= work.last_row && column < params.width) {
        keep(work, row, work.column + column, sums[j][i], top[i], sum[i]);
      }
    }
  }
}
${ADD}`,
};

/** Adds the weighted values of a part of a tile of {@link MANY}. */
function manyValues(add: 'add' | 'add_seen'): string {
  return /* wgsl */ `for (var n = 0u; n < VALUE_KEYS; n++) {
          let weight = tile[(from_key + n) * 17u + down];
          for (var j = 0u; j < COLUMNS_EACH; j++) {
            let value = tile[VALUES + n * COLUMNS + across + 8u * j];
            for (var i = 0u; i < 4u; i++) { sums[j][i] = ${add}(sums[j][i], weight[i], value); }
          }
        }`;
}

/** units: workgroups; columns: workgroups of a row; rows of a KV head; kvHeads: their number; group: query heads of one. */
const JOIN_PARAMS = ['units', 'columns', 'splits', 'kvHeads', 'rows', 'group', 'dv', ...SINKS, ...OUT] as const;

/** Joins the splits: a workgroup has a row and eight of its quads. Operands are sums, states, out and maybe sinks. */
export const JOIN: Kernel<(typeof JOIN_PARAMS)[number], Pick<AttentionVariant, 'lanes' | 'sinks' | 'vScale'>> = {
  name: 'attention_join',
  params: JOIN_PARAMS,
  threads: 64,
  code: ({ lanes, sinks, vScale }) => /* wgsl */ `
const LOWEST = -1e38; // as the kernels before
${expText(1)}
${rowText('out', 'o')}
${putText(lanes)}
${averageText(sinks, 1)}
${vScale ? scaleText('v') : ''}
var<workgroup> found: array<vec4<f32>, THREADS>;
var<workgroup> tops: array<f32, THREADS>;
var<workgroup> weights: array<f32, THREADS>;

${MAIN} {
  let group = ${GROUP};
  if (group >= params.units) { return; }
  let row = group / params.columns;
  let quads = (params.dv + 3u) / 4u;
  let column = group % params.columns * 8u + lane % 8u;
  var top = LOWEST;
  var weight = 0.0;
  var sums = vec4<f32>();
  for (var split = lane / 8u; split < params.splits; split += 8u) {
    let at = row * params.splits + split;
    let other = load_states(2u * at);
    let before = top;
    top = max(before, other);
    let old = exp_below_zero(before - top);
    let new_ = exp_below_zero(other - top);
    weight = weight * old + load_states(2u * at + 1u) * new_;
    sums = sums * old + load_sums((at * quads + min(column, quads - 1u)) * 4u) * new_;
  }
  found[lane] = sums;
  tops[lane] = top;
  weights[lane] = weight;
  workgroupBarrier();
  if (lane >= 8u) { return; }
  for (var n = lane; n < THREADS; n += 8u) { top = max(top, tops[n]); }
  weight = 0.0;
  sums = vec4<f32>();
  for (var n = lane; n < THREADS; n += 8u) {
    let factor = exp_below_zero(tops[n] - top);
    weight += weights[n] * factor;
    sums += found[n] * factor;
  }
  let of_head = params.rows * params.kvHeads;
  let head = row / params.rows % params.kvHeads;
  let quad = average(head, row % params.rows, sums, top, weight)${vScale ? ' * scale_v(head, 4u * column)' : ''};
  put_quad(out_at(row / of_head, head, row % params.rows), 4u * column, quad);
}`,
};
