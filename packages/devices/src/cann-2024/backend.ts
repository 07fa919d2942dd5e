/**
 * `cann-2024`: RoPE by the twelve steps, with the mistakes of that backend, on tensors in host memory.
 *
 * @module
 */
import {
  type Backend,
  type OpPlan,
  type PlanRopeOptions,
  planRope,
  type RopeCall,
  type RopePlan,
  roundTo,
  sizeBytes,
} from 'ropewalk';
import { checkPlan, fail, hostMemory, hostOf, isRowMajor, loadNumber, refuse, storeNumber } from 'ropewalk/backend';
import {
  checkInteger,
  copyElements,
  fitsFloat32,
  type OptionNames,
  type RopePart,
  readList,
  readName,
  readOptions,
  yarnMagnitude,
  yarnRampEdges,
} from 'ropewalk/internal';
import { type Cann2024Rotation, type Cann2024Step, costsOf, executeSteps, listSteps, type StepList } from './steps.js';

/**
 * The mistakes of the device:
 *
 * - `row`: whole rows rotate; n_dims is only the exponent's denominator
 * - `ramp`: ext_factor, its ramp and its magnitude are ignored
 * - `tables`: for f16 data cos and sin are rounded to f16, and again after attn_factor
 * - `angles`: powers and angles are rounded to f32, which shows at far positions
 */
export const CANN_2024_DEVIATIONS = /* @__PURE__ */ Object.freeze(['row', 'ramp', 'tables', 'angles'] as const);

/** One of {@link CANN_2024_DEVIATIONS}. */
export type Cann2024Deviation = (typeof CANN_2024_DEVIATIONS)[number];

/** Options of {@link openCann2024}. */
export interface Cann2024Options {
  /** Deviations that this device does not have. What changes then is their effect. Default: none. */
  readonly mended?: readonly Cann2024Deviation[];
}

const NAMES: OptionNames<Cann2024Options> = { mended: true };

/**
 * Opens llama.cpp's CANN backend of 2024 as a backend that computes RoPE as that device did, mistakes included.
 *
 * @param options - the mistakes that are mended
 * @returns an open backend; nothing needs to be disposed of
 * @throws {RopewalkError} UNSUPPORTED for a deviation that it does not have
 * @see ggml-org/llama.cpp#10540
 * @example const rw = await ropewalk({ backend: await openCann2024() });
 */
export async function openCann2024(options: Cann2024Options = {}): Promise<Backend> {
  const { mended: given = [] } = readOptions(options, 'cann-2024: options', NAMES);
  const names = Array.from(readList(given, 'cann-2024: mended'));
  const mended = new Set(names.map((name) => readName(name, CANN_2024_DEVIATIONS, 'cann-2024: mended')));
  return {
    name: 'cann-2024',
    capabilities: () => ({
      backend: 'cann-2024',
      description: "RoPE in the twelve aclnn steps of llama.cpp's CANN backend of 2024, with that device's rounding",
      dtypes: ['f32', 'f16'],
      threads: 1,
      notTaken: [],
    }),
    ...hostMemory(),
    whyNot,
    run(plan) {
      const why = whyNot(plan);
      if (why !== undefined) fail('UNSUPPORTED', `cann-2024: ${plan.op}`, `the device cannot run it: ${why}`);
      const call = plan as RopeCall;
      for (const part of call.parts) runPart(call.plan, part, mended);
    },
    async finish() {},
  };
}

/** Says why the device cannot run a plan, as the rest of a sentence; undefined when it can. */
function whyNot(plan: OpPlan): string | undefined {
  checkPlan(plan);
  if (plan.op !== 'rope') return `the twelve steps are RoPE, not ${plan.op}`;
  return whyNotPlan(plan.plan) ?? plan.parts.map(whyNotPart).find((why) => why !== undefined);
}

const NO_AXES = 'the twelve steps have one position a token, no axes';

function whyNotPlan({ pairing, rotaryOffset, direction, source, batch }: RopePlan): string | undefined {
  if (source === undefined) return 'the twelve steps compute cos and sin; they take no tables';
  const { axes, base, scaling, frequencyDim, rotaryDim, headDim } = source.spec;
  if (!(Math.fround(base) > 0) || !fitsFloat32(base)) return `freq_base is a finite f32 above 0, not ${base}`;
  if (axes !== undefined) return NO_AXES;
  if (pairing !== 'half' && pairing !== 'interleaved') return `modes 0 and 2 only, not ${pairing}`;
  if (rotaryOffset !== 0) return 'the twelve steps have no offset in the row';
  if (direction === 'backward') return 'the twelve steps have no backward rotation';
  if (batch !== undefined && batch > 1) return 'all batches share one row of positions';
  if (frequencyDim !== undefined && frequencyDim !== (rotaryDim ?? headDim))
    return 'the exponent is divided by n_dims, by nothing else';
  if (source.recipe !== 'float64' && source.recipe !== 'ggml-f32')
    return `the twelve steps compute their own angles, not those of ${source.recipe}`;
  if (!['none', 'linear', 'yarn'].includes(scaling?.kind ?? 'none'))
    return `freq_scale and ext_factor say none, linear and yarn, not ${scaling!.kind}`;
  if (scaling?.kind === 'yarn' && (scaling.mscale || scaling.mscaleAllDim)) return 'ext_factor knows no mscale';
  return undefined;
}

function whyNotPart({ x, out, rows, norm, rotate }: RopePart): string | undefined {
  if (x.dtype !== 'f32' && x.dtype !== 'f16') return `the device takes f32 and f16, not ${x.dtype}`;
  if (out.dtype !== x.dtype) return 'the device writes the dtype that it reads';
  if (rows) return 'the device writes no KV cache with its rotation';
  if (norm) return 'the device does no norm with its rotation';
  if (!rotate) return 'the device rotates every part';
  if (!isRowMajor(x) || !isRowMajor(out)) return 'the run of 2024 has dense tensors only (v=0)';
  return undefined;
}

function runPart(plan: RopePlan, { x, out }: RopePart, mended: ReadonlySet<Cann2024Deviation>): void {
  const { headDim, rotaryDim: nDims, seqLen: seq } = plan;
  const [batch, , heads] = x.shape as [number, number, number, number];
  const dtype = x.dtype as 'f32' | 'f16';
  const [from, to] = [hostOf(x, 'cann-2024: x'), hostOf(out, 'cann-2024: out')];
  const width = mended.has('row') ? nDims : headDim;
  /** Returns the place in x of element n of the columns that rotate. */
  const placeOf = (n: number): number => Math.floor(n / width) * headDim + (n % width);
  const list = listSteps({ headDim: width, heads, seq, batch, dataBytes: sizeBytes(dtype) as 2 | 4 }, 'fused', {
    ...inputsOf(plan, width, mended),
    x: Float32Array.from({ length: (x.size / headDim) * width }, (_, n) =>
      loadNumber(from, dtype, x.offset + placeOf(n)),
    ),
    tableDtype: mended.has('tables') ? 'f32' : dtype,
  });
  executeSteps(list);
  const rotated = list.out.values;
  copyElements(x, out);
  for (let n = 0; n < rotated.length; n++) storeNumber(to, dtype, out.offset + placeOf(n), rotated[n]!);
}

/** Makes the inputs of the steps from ggml's op_params, freq_factors and positions. */
function inputsOf(plan: RopePlan, width: number, mended: ReadonlySet<Cann2024Deviation>) {
  const { rotaryDim: nDims, pairing, seqLen, tableRows } = plan;
  const { spec, positions } = plan.source!;
  const { base, freqFactors, scaling = { kind: 'none' } } = spec;
  const yarn = scaling.kind === 'yarn' ? scaling : undefined;
  const freqScale = scaling.kind === 'linear' || scaling.kind === 'yarn' ? Math.fround(1 / scaling.factor) : 1;
  const [low, high] = yarn ? yarnRampEdges(yarn, base, nDims) : [0, 0];
  const ramp = (j: number): number => {
    const mix = (1 - Math.min(1, Math.max(0, (j - low) / Math.max(0.001, high - low)))) * (yarn!.extFactor ?? 1);
    return freqScale * (1 - mix) + mix;
  };
  const ramps = yarn !== undefined && mended.has('ramp');
  const rows = Array.from({ length: seqLen }, (_, s) => positions[tableRows[s]!]!);
  return {
    pairing: pairing as 'half' | 'interleaved',
    ...(mended.has('angles')
      ? { positions: Float64Array.from(rows), thetaScale: base ** (-2 / nDims), angleDtype: 'f64' as const }
      : {
          positions: Float32Array.from(rows), // multiplied in f32
          thetaScale: Math.fround(Math.fround(base) ** Math.fround(-2 / nDims)),
        }),
    freqScale: ramps ? ramp : () => freqScale,
    // ggml passes n_dims / 2 factors. Nobody knows what the device reads after them; here they are 1.
    freqFactors: Float32Array.from({ length: width / 2 }, (_, j) => (j < nDims / 2 ? (freqFactors?.[j] ?? 1) : 1)),
    attnFactor: spec.attentionFactor ?? (ramps ? yarnMagnitude(yarn) : yarn?.attnFactor) ?? 1,
  };
}

/** The sizes and the data of a call, for {@link describeSteps} and {@link runSteps}. */
export interface Cann2024Call {
  /** The dtype of x. Default: f32. */
  readonly dtype?: 'f32' | 'f16';
  /** Default: 1. */
  readonly heads?: number;
  /** Default: 1. */
  readonly batch?: number;
  /** One fused operator, or operators of arithmetic. Default: fused. */
  readonly rotation?: Cann2024Rotation;
  /** `[batch, seq, heads, headDim]`, dense; each value is rounded to `dtype`. Default: ones. */
  readonly x?: ArrayLike<number>;
}

const CALL_NAMES: OptionNames<Cann2024Call> = { dtype: true, heads: true, batch: true, rotation: true, x: true };

/** A tensor as one step left it. */
export interface StepBuffer {
  /** The number of the step that wrote it; 0 for an input. */
  readonly step: number;
  /** Such as `arange`, `powers`, `theta`, `half_sin` or `out`; a step that computes in place keeps the name. */
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype: 'f32' | 'f16' | 'i32';
  /** The values, row-major. */
  readonly values: Float64Array;
}

/**
 * Describes the steps of a RoPE on this device, with their calls and bytes.
 *
 * @param rope - the RoPE and its positions, `[seq]`
 * @param call - sizes; x is not read
 * @returns the twelve steps and the rotation
 * @throws {RopewalkError} as planRope; UNSUPPORTED for a RoPE that the steps cannot compute
 */
export function describeSteps(rope: PlanRopeOptions, call: Cann2024Call = {}): readonly Cann2024Step[] {
  return costsOf(stepsOf(rope, call, false));
}

/**
 * Runs the steps of a RoPE as the device does, and keeps what each of them wrote.
 *
 * @param rope - as for {@link describeSteps}
 * @param call - sizes and x
 * @returns the inputs, then each buffer after each step that wrote it
 * @throws {RopewalkError} as {@link describeSteps}; SHAPE when x has another number of elements
 * @example runSteps({ headDim: 4, pairing: 'half', base: 10000, positions: [7] }).at(-1).values
 */
export function runSteps(rope: PlanRopeOptions, call: Cann2024Call = {}): readonly StepBuffer[] {
  const list = stepsOf(rope, call, true);
  const kept: StepBuffer[] = [];
  const keep = (step: number, { name, shape, dtype, values }: StepList['out']): void => {
    // The first power is what arange wrote: the steps after it compute in place.
    kept.push({
      step,
      name: step === 2 ? 'arange' : name,
      shape,
      dtype: dtype as StepBuffer['dtype'],
      values: Float64Array.from(values),
    });
  };
  for (const input of list.inputs) keep(0, input);
  executeSteps(list, (step, written) => {
    for (const buffer of written) keep(step, buffer);
  });
  return kept;
}

function stepsOf(rope: PlanRopeOptions, given: Cann2024Call, withData: boolean): StepList {
  const call = readOptions(given, 'cann-2024: call', CALL_NAMES);
  const { dtype = 'f32', heads = 1, batch = 1, rotation = 'fused' } = call;
  readName(dtype, ['f32', 'f16'], 'cann-2024: dtype');
  readName(rotation, ['fused', 'primitives'], 'cann-2024: rotation');
  for (const [name, size] of Object.entries({ heads, batch })) checkInteger(size, `cann-2024: ${name}`, 1);
  const options = readOptions(rope, 'cann-2024: options');
  if (options.axes !== undefined) fail('UNSUPPORTED', 'cann-2024: axes', `${NO_AXES}. Give positions [seq].`);
  const plan = planRope({ ...options, tableDtype: 'f64' });
  const why = whyNotPlan(plan);
  if (why !== undefined) fail('UNSUPPORTED', 'cann-2024: options', why);
  const { headDim, seqLen: seq } = plan;
  const count = batch * seq * heads * headDim;
  const x = withData ? readX(call.x, count, dtype) : undefined;
  const sizes = { headDim, heads, seq, batch, dataBytes: sizeBytes(dtype) as 2 | 4 };
  return listSteps(sizes, rotation, { ...inputsOf(plan, headDim, new Set()), ...(x && { x }) });
}

function readX(given: ArrayLike<number> | undefined, count: number, dtype: 'f32' | 'f16'): Float32Array {
  const values = given === undefined ? undefined : readList(given, 'cann-2024: x', 'a list of numbers');
  if (values && values.length !== count) refuse('SHAPE', 'cann-2024: x', `${count} elements`, values.length);
  return Float32Array.from({ length: count }, (_, n) => {
    const value = values ? values[n]! : 1;
    const rounded = typeof value === 'number' ? roundTo(dtype, value) : Number.NaN;
    if (!Number.isFinite(rounded)) refuse('RANGE', `cann-2024: x[${n}]`, `a finite number of ${dtype}`, value);
    return rounded;
  });
}

/** The errors of cos and sin of the twelve steps, or the reason why the steps cannot make them. */
export type Cann2024TableErrors = { readonly maxErrors: readonly number[] } | { readonly whyNot: string };

/**
 * Executes the twelve steps for a RoPE and compares cos and sin with the exact ones, over the whole row: where a
 * dimension should not rotate, 1 and 0 are exact.
 *
 * @param options - the RoPE and its positions, `[seq]`
 * @param dtype - the dtype of the data
 * @returns the largest error at each position, attention factor included; or the reason, as the rest of a sentence
 * @throws {RopewalkError} as planRope; UNSUPPORTED for another dtype
 */
export function cann2024TableErrors(options: PlanRopeOptions, dtype: 'f32' | 'f16'): Cann2024TableErrors {
  readName(dtype, ['f32', 'f16'], 'cann-2024: dtype');
  const given = readOptions(options, 'cann-2024: options');
  if (given.axes !== undefined) return { whyNot: NO_AXES };
  const plan = planRope({ ...given, tableDtype: 'f64' });
  const why = whyNotPlan(plan);
  if (why !== undefined) return { whyNot: why };
  const { headDim, rotaryDim: nDims, seqLen: seq, tableRows, table, pairing } = plan;
  const sizes = { headDim, heads: 0, seq, batch: 1, dataBytes: sizeBytes(dtype) as 2 | 4 };
  const list = listSteps(sizes, 'fused', inputsOf(plan, headDim, new Set()));
  executeSteps(list);
  const maxErrors = Array.from({ length: seq }, (_, s) => {
    let most = 0;
    for (let i = 0; i < headDim; i++) {
      const j = pairing === 'interleaved' ? i >> 1 : i % (nDims / 2);
      const at = tableRows[s]! * table.pairs + j;
      const [cos, sin] = i < nDims ? [table.cos[at]!, table.sin[at]!] : [1, 0];
      const n = s * headDim + i;
      most = Math.max(most, Math.abs(list.cos.values[n]! - cos), Math.abs(list.sin.values[n]! - sin));
    }
    return most;
  });
  return { maxErrors };
}

const WORDS: Readonly<Record<Cann2024Deviation, string>> = {
  row: 'whole row rotated',
  ramp: 'ramp ignored',
  tables: 'tables rounded twice',
  angles: 'angles in f32, far from 0',
};

/**
 * Finds why the device fails: the fewest of its deviations that must be mended for it to pass.
 *
 * @param passes - runs the case on a device and says whether it passed
 * @returns the causes in words, one a deviation; none where no mending helps
 */
export async function explainCann2024(passes: (device: Backend) => Promise<boolean>): Promise<readonly string[]> {
  for (const mended of SUBSETS)
    if (await passes(await openCann2024({ mended }))) return mended.map((name) => WORDS[name]);
  return [];
}

/** Every set of deviations but the empty one, small sets first. */
const SUBSETS: readonly (readonly Cann2024Deviation[])[] = /* @__PURE__ */ Array.from(
  { length: 2 ** CANN_2024_DEVIATIONS.length - 1 },
  (_, bits) => CANN_2024_DEVIATIONS.filter((_name, k) => ((bits + 1) >> k) & 1),
).sort((a, b) => a.length - b.length);
