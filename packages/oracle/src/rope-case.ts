/**
 * ROPE cases as ggml's test-backend-ops ("upstream" here) has them: the label has every parameter, the inputs follow
 * from the label, and the expected output comes from ggml's formula in float64.
 *
 * @module
 */
import { ggml } from '@ropewalk/dialects';
import { bindRope, type FloatDtype, type RopePlan, type Runner, roundTo, Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkName,
  didYouMean,
  extentOf,
  Fields,
  type RandomStream,
  randomFrom,
  readField,
  readList,
  readOptions,
  show,
} from 'ropewalk/internal';
import { type GgmlRopeParams, ropeByFormula } from './ggml-formula.js';
import { hostTensor } from './host.js';
import { judgeNmse, nmse } from './judge.js';
import { formatLabel, forwardOrBack, type ParsedLabel, parseLabel } from './label.js';
import { type CaseVerdict, type ConformanceCase, declined } from './runner.js';
import { ropeNmseLimit } from './tolerance.js';

/**
 * Parameters of a ROPE case. The first ten are upstream's, with upstream's names and defaults. Only the default of `af`
 * differs: upstream's is 0, which makes every output 0, and which none of its cases has. A label has the other
 * parameters only where they differ from upstream's fixed values.
 *
 * @see ggml-org/ggml@5a1d246 tests/test-backend-ops.cpp, test_rope
 */
export interface RopeCaseParams {
  readonly type?: 'f32' | 'f16' | 'bf16' | 'f64';
  /** `[head_dim, heads, tokens, batch]` */
  readonly ne_a: readonly [number, number, number, number];
  readonly n_dims: number;
  readonly mode: number;
  /** Positions are drawn from [0, n_ctx). */
  readonly n_ctx?: number;
  readonly fs?: number;
  readonly ef?: number;
  readonly af?: number;
  /** freq_factors: 0 is none, 1 are drawn from [0.9, 1.1), and 2 are Llama 3.1's. */
  readonly ff?: 0 | 1 | 2;
  /** freq_factors[0], which is then not drawn. It needs ff 1. */
  readonly ff0?: number;
  /** With 1, x is a view of a larger tensor; with 2, the second half of rows twice as long. */
  readonly v?: 0 | 1 | 2;
  readonly inplace?: 0 | 1;
  readonly n_offs?: number;
  readonly fb?: number;
  readonly n_ctx_orig?: number;
  readonly bf?: number;
  readonly bs?: number;
  /** For modes 8, 24 and 40. Without it, `n_dims` of mode 24 is head_dim, as upstream writes it, and not half of it. */
  readonly sections?: readonly number[];
  /** Positions, which are then not drawn: one for each token, axis by axis for modes with several axes. */
  readonly pos?: readonly number[];
  /** 0 is backward. */
  readonly fwd?: 0 | 1;
  /** Another seed makes other inputs for the same case. */
  readonly seed?: number;
}

/** A case with all defaults. */
type WholeRopeCase = RopeCaseParams & Required<Omit<RopeCaseParams, 'sections' | 'pos' | 'ff0'>>;

/** The keys of upstream's line, beside `ne_a`, `n_dims` and `mode`. */
const LINE_DEFAULTS = { type: 'f32', n_ctx: 512, fs: 1, ef: 0, af: 1, ff: 0, v: 0 } as const;
/** The keys that a label has only where they differ from these values. */
const EXTRA_DEFAULTS = { inplace: 0, n_offs: 0, fb: 10000, n_ctx_orig: 0, bf: 1, bs: 1, fwd: 1, seed: 0 } as const;
/** The least and the largest value of a key that is an integer. */
const RANGES: Readonly<Record<string, readonly [min: number, max?: number]>> = {
  n_ctx: [1, 2 ** 31 - 1],
  ff: [0, 2],
  v: [0, 2],
  inplace: [0, 1],
  n_offs: [0, 2 ** 20],
  fwd: [0, 1],
  seed: [0],
};
const KEYS = [
  ...['type', 'ne_a', 'n_dims', 'mode', 'n_ctx', 'fs', 'ef', 'af', 'ff', 'v'],
  ...Object.keys(EXTRA_DEFAULTS),
  ...['sections', 'pos', 'ff0'],
];
/** ggml's words for keys that upstream's line abbreviates. */
const ABBREVIATED: Readonly<Record<string, string>> = {
  freq_base: 'fb',
  freq_scale: 'fs',
  ext_factor: 'ef',
  attn_factor: 'af',
  freq_factors: 'ff',
  beta_fast: 'bf',
  beta_slow: 'bs',
  positions: 'pos',
};
const MODES = [0, 2, 8, 24, 40];
/** The most elements that a label may ask for: 2^27 float64 values are a gigabyte. */
const MAX_ELEMENTS = 2 ** 27;

/**
 * Writes a case's label. Upstream's parameters look as upstream prints them.
 *
 * @throws {RopewalkError} as {@link parseRopeLabel}
 */
export function ropeLabel(params: RopeCaseParams): string {
  const p = checkParams(params);
  // Upstream prints six decimals. A value that needs more is written with all, so that the label reproduces it.
  const six = (x: number): string => (Number(x.toFixed(6)) === x ? x.toFixed(6) : String(x));
  const { type, ne_a, n_dims, mode, n_ctx, fs, ef, af, ff, v, sections, pos, ff0 } = p;
  const upstream = { type, ne_a, n_dims, mode, n_ctx, fs: six(fs), ef: six(ef), af: six(af), ff, v };
  const extraKeys = Object.keys(EXTRA_DEFAULTS) as (keyof typeof EXTRA_DEFAULTS)[];
  const extras = extraKeys.map((key) => [key, p[key] === EXTRA_DEFAULTS[key] ? undefined : p[key]]);
  return formatLabel('ROPE', { ...upstream, ...Object.fromEntries(extras), sections, pos, ff0 });
}

/**
 * Reads a case from its label.
 *
 * @param line - `ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,…)`, with at least ne_a, n_dims and mode
 * @throws {RopewalkError} FORMAT, RANGE or SHAPE, naming the key
 */
export function parseRopeLabel(line: string | ParsedLabel): WholeRopeCase {
  const parsed = typeof line === 'string' ? parseLabel(line) : line;
  const given = { name: readField(parsed, 'name', 'ROPE(…)'), values: readField(parsed, 'values', 'ROPE(…)') };
  if (!(given.values instanceof Map)) refuse('FORMAT', 'ROPE(…): values', 'a Map', given.values);
  const { name, values } = forwardOrBack(given);
  if (name !== 'ROPE') refuse('FORMAT', 'ROPE(…)', 'a ROPE(…) line', name);
  checkKeys(values.keys());
  return readParams(new Fields(new Map([...values].map(([key, text]) => [key, labelValue(String(text))])), 'ROPE(…)'));
}

function checkKeys(keys: Iterable<string>): void {
  for (const key of keys) {
    if (KEYS.includes(key)) continue;
    const near = didYouMean(key, [...KEYS, ...Object.keys(ABBREVIATED)]);
    const meant = near?.replace(/\w+(?=\?)/, (name) => ABBREVIATED[name] ?? name);
    fail('FORMAT', 'ROPE(…)', `there is no key ${show(key)}. ${meant ?? `It takes ${KEYS.join(', ')}.`}`);
  }
}

/** Copies a caller's parameters, checks them, and adds defaults. */
function checkParams(params: RopeCaseParams): WholeRopeCase {
  const copy: Record<string, unknown> = { ...readOptions(params, 'ROPE(…)') };
  checkKeys(Object.keys(copy));
  for (const key of ['ne_a', 'sections', 'pos'] as const)
    if (copy[key] !== undefined) copy[key] = Array.from(readList(copy[key] as number[], `ROPE(…): ${key}`));
  return readParams(new Fields(copy, 'ROPE(…)'));
}

/** Reads a case's parameters, and adds defaults. */
function readParams(f: Fields): WholeRopeCase {
  const numbers: Record<string, number> = {};
  for (const [key, value] of Object.entries({ ...LINE_DEFAULTS, ...EXTRA_DEFAULTS })) {
    const range = RANGES[key];
    if (typeof value === 'number')
      numbers[key] = (range ? f.optionalInteger(key, ...range) : f.optionalNumber(key)) ?? value;
  }
  const { v, af, ff } = numbers;
  const ne = f.integers('ne_a');
  if (ne.length !== 4) refuse('FORMAT', 'ROPE(…): ne_a', 'four integers: head_dim, heads, tokens, batch', ne);
  if (ne.reduce((product, n) => product * n, v ? 24 : 1) > MAX_ELEMENTS)
    refuse('RANGE', 'ROPE(…): ne_a', `at most ${MAX_ELEMENTS} elements`, ne);
  const mode = f.integer('mode');
  if (!MODES.includes(mode)) refuse('RANGE', 'ROPE(…): mode', 'one of 0, 2, 8, 24, 40', mode);
  const pos = f.has('pos') ? f.integers('pos', Number.MIN_SAFE_INTEGER) : undefined;
  const tokens = ne[2]! * (mode >= 8 ? 4 : 1);
  if (pos && pos.length !== tokens) refuse('SHAPE', 'ROPE(…): pos', `${tokens} positions`, pos.length);
  if (af === 0) fail('RANGE', 'ROPE(…)', 'with af=0 every element of y is 0, and a case tests nothing. Give af=1.');
  const ff0 = f.optionalNumber('ff0');
  if (ff0 !== undefined && !(ff === 1 && ff0 > 0)) refuse('RANGE', 'ROPE(…): ff0', 'a number > 0 beside ff=1', ff0);
  const given = f.integer('n_dims', 1, 2 ** 20);
  const { n_dims, sections } = f.has('sections')
    ? { n_dims: given, sections: f.integers('sections', Number.MIN_SAFE_INTEGER) }
    : sectionsOfUpstream(mode, given);
  if (sections && sections.length !== 4)
    refuse('FORMAT', 'ROPE(…): sections', 'four integers for modes 8, 24 and 40', sections);
  const type = f.has('type') ? f.oneOf('type', ['f32', 'f16', 'bf16', 'f64']) : LINE_DEFAULTS.type;
  return { ...numbers, type, ne_a: ne, n_dims, mode, sections, pos, ff0 } as unknown as WholeRopeCase;
}

/** Computes the sections, which upstream's line has not, from n_dims. Mode 24 rotates half of n_dims. */
function sectionsOfUpstream(mode: number, n: number): Pick<RopeCaseParams, 'n_dims' | 'sections'> {
  const part = Math.floor(n / (mode === 24 ? 4 : 3));
  if (mode === 24) return { n_dims: n / 2, sections: [part, part, 0, 0] };
  return { n_dims: n, sections: mode >= 8 ? [part, part, part, 0] : undefined };
}

/** Reads a label's value: a list of numbers in brackets, a number, or a text. */
function labelValue(text: string): unknown {
  const numberOf = (item: string): unknown => (item !== '' && Number.isFinite(Number(item)) ? Number(item) : item);
  const body = /^\[(.*)\]$/s.exec(text)?.[1];
  if (body === undefined) return numberOf(text);
  return body.trim() === '' ? [] : body.split(',').map(numberOf);
}

/** Makes a case that can be run. */
export function ropeCase(suite: string, params: RopeCaseParams): ConformanceCase {
  checkName(suite, 'ROPE(…): suite', 'the suite');
  return { suite, label: ropeLabel(params), run: (runner) => runRopeCase(params, runner) };
}

/** Plans a case, with the positions and factors that are drawn from its label. */
export function ropePlanOfCase(params: RopeCaseParams): RopePlan {
  return drawRopeCase(params).plan;
}

/** The inputs of a case. */
interface DrawnRope {
  /** `[batch, tokens, heads, head_dim]` */
  readonly x: Tensor<FloatDtype>;
  readonly pos: readonly number[];
  /** One for each pair; undefined without factors. */
  readonly factors: Float32Array | undefined;
  readonly formula: GgmlRopeParams;
  readonly plan: RopePlan;
}

/** Draws the inputs of a case from its label, and plans it. */
export function drawRopeCase(params: RopeCaseParams): DrawnRope {
  const p = checkParams(params);
  const [ne0, , ne2] = p.ne_a;
  const random = randomFrom(ropeLabel(params));
  const x = drawX(p.type, p.ne_a, p.v, random);
  const pos = p.pos ?? Array.from({ length: ne2 * (p.mode >= 8 ? 4 : 1) }, () => random.integer(p.n_ctx));
  const pairs = p.mode === 24 ? ne0 / 2 : p.n_dims / 2;
  const factorOf = (j: number): number => (p.ff === 1 ? random.uniform(0.9, 1.1) : llama31Factor(j, p.n_dims, p.fb));
  const factors: Float32Array | undefined =
    p.ff === 0 ? undefined : Float32Array.from({ length: pairs }, (_, j) => factorOf(j));
  if (factors && p.ff0 !== undefined) factors[0] = p.ff0;
  const call = {
    ne: p.ne_a,
    n_dims: p.n_dims,
    mode: p.mode,
    sections: p.sections ?? [0, 0, 0, 0],
    n_ctx_orig: p.n_ctx_orig,
    freq_base: p.fb,
    freq_scale: p.fs,
    ext_factor: p.ef,
    attn_factor: p.af,
    beta_fast: p.bf,
    beta_slow: p.bs,
    n_offs: p.n_offs,
  };
  const formula: GgmlRopeParams = { ...call, forward: p.fwd === 1 };
  const plan = ggml.ropePlanFromGgml({
    ...call,
    positions: Int32Array.from(pos),
    freq_factors: factors,
    direction: formula.forward ? 'forward' : 'backward',
    tableDtype: p.type === 'f64' ? 'f64' : 'f32',
  });
  return { x, pos, factors, formula, plan };
}

async function runRopeCase(params: RopeCaseParams, runner: Runner): Promise<CaseVerdict> {
  const ran = await outputOf(params, runner);
  if ('status' in ran) return ran;
  const { got, want, type } = ran;
  return judgeNmse('ROPE', got, want, ropeNmseLimit(type), type);
}

/** Measures the NMSE of a case on a backend; undefined where the backend does not take it. */
export async function nmseOfRopeCase(params: RopeCaseParams, runner: Runner): Promise<number | undefined> {
  const ran = await outputOf(params, runner);
  return 'status' in ran ? undefined : nmse(ran.got, ran.want, ran.type);
}

/** Runs a case. Returns its output beside the formula's, or the verdict where the backend does not take it. */
async function outputOf(params: RopeCaseParams, runner: Runner) {
  const { type, inplace } = checkParams(params);
  const { x, pos, factors, formula, plan } = drawRopeCase(params);
  const values = await x.readNumbers();
  const out = inplace ? x : runner.allocate(type, x.shape);
  const call = bindRope(plan, x, out);
  const verdict = declined(runner, call);
  if (verdict) return verdict;
  const want = ropeByFormula(formula, values, pos, factors);
  return { got: await out.readNumbers(), want, type };
}

/**
 * Draws x as upstream does, uniform in [−1, 1). View 1 is the corner of a tensor 2 × 4 × 3 times as large, view 2 the
 * second half of rows twice as long.
 */
function drawX(type: FloatDtype, ne: RopeCaseParams['ne_a'], v: number, random: RandomStream): Tensor<FloatDtype> {
  const [ne0, ne1, ne2, ne3] = ne;
  const base = v === 1 ? [ne3, ne2 * 3, ne1 * 4, ne0 * 2] : [ne3, ne2, ne1, v === 2 ? ne0 * 2 : ne0];
  const whole = hostTensor(type, base, () => roundTo(type, random.uniform(-1, 1)));
  const layout = { shape: [ne3, ne2, ne1, ne0], strides: whole.strides, offset: v === 2 ? ne0 : 0 };
  return extentOf(layout) === undefined ? whole : new Tensor(whole.storage, layout);
}

/** Computes Llama 3.1's divisor of a frequency as llama.cpp's converter does: factor 8, low 1, high 4, 8192 tokens. */
function llama31Factor(j: number, nDims: number, base: number): number {
  const wavelength = 2 * Math.PI * base ** ((2 * j) / nDims);
  if (wavelength < 8192 / 4) return 1;
  if (wavelength > 8192 / 1) return 8;
  const smooth = (8192 / wavelength - 1) / (4 - 1);
  return 1 / ((1 - smooth) / 8 + smooth);
}
