/**
 * Finds out whether a device runs a RoPE, in which form, and what is lost.
 *
 * @module
 */
import {
  ANGLE_MODES,
  type AngleMode,
  type GraphForm,
  graphCost,
  type OnnxModel,
  type RopeModelOptions,
  ropeModel,
} from '@ropewalk/onnx';
import { OLDEST_OPSET, OPSET } from '@ropewalk/onnx/internal';
import {
  type FloatDtype,
  frequenciesOf,
  planRope,
  type RopeLayout,
  type RopeSpec,
  RopewalkError,
  roundTo,
} from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkInteger, type OptionNames, optionNames, readName, readOptions } from 'ropewalk/internal';
import { deviceNamed } from './devices.js';
import {
  type DeviceProfile,
  type DeviceRule,
  type RopeOperator,
  type RopeUse,
  rule,
  type TablesOf,
  type UseLayout,
} from './profile.js';

/** The rotation that is to run: of q, and of k if there are `kvHeads`. */
export interface RopeOnDeviceOptions {
  readonly spec: RopeSpec;
  /** The dtype of the data. Default: the one that the device's runtime rotates, or f16 where models choose it. */
  readonly dtype?: FloatDtype;
  /** Heads of q. Default: 1. */
  readonly heads?: number;
  /** Heads of k; without it there is one tensor. */
  readonly kvHeads?: number;
  /** Default: 1. */
  readonly batch?: number;
  /** Tokens of a call. Default: 512. */
  readonly seq?: number;
  /** Whether batches have positions of their own. */
  readonly batchPositions?: boolean;
  /** Positions are below this; the precision is that of the last one. Default: 4096. */
  readonly context?: number;
  /** Whether x is dense, row by row. Default: true. */
  readonly contiguous?: boolean;
  /** Options that a graph must have, for runtimes of ONNX graphs; the others are chosen. */
  readonly graph?: GraphWishes;
}

const NAMES: OptionNames<RopeOnDeviceOptions> = /* @__PURE__ */ optionNames(
  'spec dtype heads kvHeads batch seq batchPositions context contiguous graph',
);

/** Options that a graph must have, in the words of `ropeModel`. */
export type GraphWishes = Partial<Pick<OnnxChoice, 'form' | 'angles' | 'layout' | 'opset'>> &
  Pick<RopeModelOptions, 'direction' | 'normEps' | 'kvCache'>;

const GRAPH_NAMES: OptionNames<GraphWishes> = /* @__PURE__ */ optionNames(
  'form angles layout opset direction normEps kvCache',
);

/** The options of `ropeModel` by which a graph is exported for a device, and its opset. */
export interface OnnxChoice {
  readonly form: GraphForm;
  readonly angles: AngleMode;
  readonly layout: RopeLayout;
  readonly dtype: FloatDtype;
  readonly opset: number;
}

/** A step that is needed beside the call itself. */
export type RopeStep =
  | 'tables-by-host'
  | 'tables-repeated'
  | 'window-copied'
  | 'weights-permuted'
  | 'primitives'
  | 'two-calls'
  | 'layout'
  | 'shapes-fixed';

/** One way to run a RoPE on a device. */
export interface RopeForm {
  /** The device's operator. */
  readonly operator: string;
  /** Calls a layer, copies included; for a graph its nodes, without those that only reshape. */
  readonly calls: number;
  /** The steps that are needed; none where the operator takes the RoPE as it is. */
  readonly steps: readonly RopeStep[];
  /** A sentence for each step. */
  readonly words: readonly string[];
  /** Sentences that say where the result differs from the RoPE, and what is less precise. */
  readonly lost: readonly string[];
  /** Whether the result is that RoPE, up to rounding. */
  readonly right: boolean;
  /**
   * The largest error of cos and sin at the last position, before the magnitude. For a wrong result: the largest over
   * the positions, magnitude included, on a device that computes; undefined on any other.
   */
  readonly precision: { readonly position: number; readonly maxError: number } | undefined;
  /** The graph for a runtime of ONNX graphs. */
  readonly onnx: OnnxChoice | undefined;
}

/** A rule that stands in the way. */
export interface RopeRefusal {
  readonly operator: string;
  /** The rule in words. */
  readonly words: string;
  /** The values of the call that the rule reads: `dtype f16`. */
  readonly here: string;
  readonly source: string;
}

/** A device's answer. */
export interface RopeVerdict {
  readonly device: string;
  /** The dtype of the data. */
  readonly dtype: FloatDtype;
  /** Ways to run it, the best first: right before wrong, weights as they are, few copies, precise tables. */
  readonly forms: readonly RopeForm[];
  /** If there is no way: for each operator, the rules that stand in the way of its nearest form. */
  readonly refused: readonly RopeRefusal[];
}

/** A form before it is judged. */
interface Attempt {
  readonly operator: RopeOperator;
  readonly use: RopeUse;
  readonly steps: readonly RopeStep[];
  readonly calls: number;
  readonly onnx?: OnnxChoice;
  /** Rules for what the graph needs and the device does not have. */
  readonly missing?: readonly DeviceRule<RopeUse>[];
}

interface Given {
  readonly spec: RopeSpec;
  readonly use: RopeUse;
  readonly kvHeads: number | undefined;
  readonly context: number;
  readonly graph: GraphWishes;
}

/**
 * Says whether a device runs a RoPE, and how.
 *
 * Each operator of the profile is tried: as it is; with the rotated window copied out and back; with the weights
 * permuted to the other pairing; in each layout; with tables in f32 and in the data's dtype. For runtimes of ONNX
 * graphs the graphs are built, and their operators compared with those that the runtime has.
 *
 * @param name - a device, as in `DEVICES`
 * @param options - the RoPE
 * @throws {RopewalkError} UNSUPPORTED for another name; RANGE, SHAPE or UNSUPPORTED for options that are no RoPE
 */
export function ropeOnDevice(name: string, options: RopeOnDeviceOptions): RopeVerdict {
  const device = deviceNamed(name);
  const given = readGiven(options, device.dtype ?? 'f16');
  const notMade: RopewalkError[] = [];
  const attempts = device.operators
    .filter((operator): operator is RopeOperator => operator.op === 'rope')
    .flatMap((operator) =>
      operator.call === 'standard' || operator.call === 'primitives'
        ? graphAttempts(device, operator, given, notMade)
        : callAttempts(operator, given),
    );
  if (attempts.length === 0 && notMade.length > 0) throw notMade[0];
  const judged = attempts.map((attempt) => {
    const broken = [...attempt.operator.rules.filter(({ holds }) => !holds(attempt.use)), ...(attempt.missing ?? [])];
    return {
      attempt,
      refused: broken.filter(({ otherwise }) => otherwise === undefined),
      wrong: broken.flatMap(({ otherwise }) => otherwise ?? []),
    };
  });
  const forms: RopeForm[] = [];
  const taken = judged
    .filter(({ refused }) => refused.length === 0)
    .map(({ attempt, wrong }) => ({ cost: costOf(attempt, wrong), form: formOf(attempt, wrong, given, name) }))
    .sort((a, b) => compareCosts(a.cost, b.cost));
  for (const { form } of taken)
    if (!forms.some((better) => better.operator === form.operator && sameSteps(better, form))) forms.push(form);
  const refused: RopeRefusal[] = [];
  for (const operator of forms.length > 0 ? [] : new Set(attempts.map((attempt) => attempt.operator))) {
    const nearest = judged
      .filter(({ attempt }) => attempt.operator === operator)
      .reduce((best, one) => (one.refused.length < best.refused.length ? one : best));
    for (const broken of nearest.refused) {
      const { words, source } = broken;
      refused.push({ operator: operator.name, words, here: readBy(broken, nearest.attempt.use), source });
    }
  }
  return { device: name, dtype: given.use.dtype, forms, refused };
}

/** Lists the values of a call that a rule reads: `dtype f16`. */
function readBy({ holds }: DeviceRule<RopeUse>, use: RopeUse): string {
  const read = new Set<string>();
  holds(
    new Proxy(use, {
      get(target, key: keyof RopeUse & string) {
        read.add(`${key} ${target[key]}`);
        return target[key];
      },
    }),
  );
  return [...read].join(', ');
}

function readGiven(options: RopeOnDeviceOptions, usual: FloatDtype): Given {
  const own = readOptions(options, 'device: options', NAMES);
  const {
    dtype = usual,
    heads = 1,
    kvHeads,
    batch = 1,
    seq = 512,
    batchPositions = false,
    context = 4096,
    contiguous = true,
  } = own;
  readName(dtype, ['f64', 'f32', 'f16', 'bf16'], 'device: dtype');
  for (const [key, value] of Object.entries({ heads, batch, seq, context })) checkInteger(value, `device: ${key}`, 1);
  if (kvHeads !== undefined) {
    checkInteger(kvHeads, 'device: kvHeads', 1);
    if (heads % kvHeads !== 0) refuse('SHAPE', 'device: kvHeads', `a divisor of heads=${heads}`, kvHeads);
  }
  const spec = readOptions(own.spec, 'device: spec');
  const { headDim, rotaryDim, rotaryOffset, pairing } = planRope({ ...spec, positions: 0, seqLen: 1 });
  const scaling = spec.scaling ?? { kind: 'none' };
  const use: RopeUse = {
    op: 'rope',
    dtype,
    tables: undefined,
    tablesOf: 'token',
    layout: 'bsnh',
    batch,
    seq,
    heads,
    kHeads: 0,
    headDim,
    rotaryDim,
    rotaryOffset,
    pairing,
    ramp: scaling.kind === 'yarn' && scaling.extFactor !== 0,
    freqFactors: spec.freqFactors !== undefined || scaling.kind === 'llama3' || scaling.kind === 'longrope',
    ...factorsOf(spec),
    axes: spec.axes ? spec.axes.sections.length : 1,
    batchPositions: batchPositions === true,
    contiguous: contiguous === true,
    fixedShapes: false,
  };
  const graph = readOptions(own.graph ?? {}, 'device: graph', GRAPH_NAMES);
  if (graph.opset !== undefined) checkInteger(graph.opset, 'device: graph: opset', OLDEST_OPSET);
  if (graph.form !== undefined) readName(graph.form, ['standard', 'primitives'], 'device: graph: form');
  if (graph.angles !== undefined) readName(graph.angles, ANGLE_MODES, 'device: graph: angles');
  if (graph.layout !== undefined) readName(graph.layout, ['bsnh', 'bnsh'], 'device: graph: layout');
  return { spec, use, kvHeads, context, graph };
}

/** Returns the factor of cos and sin, and ggml's attn_factor, which lacks the magnitude that ggml adds to a ramp. */
function factorsOf(spec: RopeSpec): Pick<RopeUse, 'attentionFactor' | 'attnFactor'> {
  const { attentionFactor } = frequenciesOf(spec);
  const { scaling } = spec;
  const ramp = scaling?.kind === 'yarn' && scaling.extFactor !== 0;
  const attnFactor = ramp ? attentionFactor / (1 + 0.1 * Math.log(scaling.factor)) : attentionFactor;
  return { attentionFactor, attnFactor: Number(attnFactor.toPrecision(6)) };
}

const TABLES_OF: readonly TablesOf[] = ['token', 'batch', 'head'];
const LAYOUTS: readonly UseLayout[] = ['bsnh', 'tnh', 'sbnh', 'bnsh'];

/** Lists the steps that are needed, in the order of their sentences. */
function stepsWhere(needed: { readonly [S in RopeStep]?: boolean }): RopeStep[] {
  return (Object.keys(needed) as RopeStep[]).filter((step) => needed[step]);
}

/** Lists the ways to call an operator, for each tensor or for q and k together. */
function callAttempts(operator: RopeOperator, { use, kvHeads }: Given): Attempt[] {
  const { dtype, batch, headDim, rotaryDim, batchPositions } = use;
  const tensors = kvHeads === undefined ? 1 : 2;
  const kHeads = operator.together ? (kvHeads ?? 0) : 0;
  const calls = kHeads > 0 ? 1 : tensors;
  const byTables = operator.call === 'tables';
  // Tables hold any angles, so only the places of the pairs are left of a vision tower's.
  const pairing = byTables && use.pairing === 'vision' ? 'half' : use.pairing;
  const other = pairing === 'half' ? 'interleaved' : 'half';
  const dtypes = byTables ? [...new Set([dtype, 'f32'] as const)] : [undefined];
  const rows = byTables ? TABLES_OF.slice(batchPositions ? 1 : 0) : (['token'] as const);
  const attempts: Attempt[] = [];
  const add = (
    copied: boolean,
    permuted: boolean,
    layout: UseLayout,
    tables: RopeUse['tables'],
    tablesOf: TablesOf,
  ) => {
    const whole = copied ? { headDim: rotaryDim, rotaryOffset: 0 } : {};
    attempts.push({
      operator,
      use: { ...use, tables, tablesOf, layout, kHeads, pairing: permuted ? other : pairing, ...whole },
      calls: calls + (copied ? 2 * tensors : 0),
      steps: stepsWhere({
        'tables-by-host': byTables,
        'tables-repeated': tablesOf === 'head' || (tablesOf === 'batch' && batch > 1 && !batchPositions),
        'window-copied': copied,
        'weights-permuted': permuted,
        layout: layout !== 'bsnh',
        'two-calls': calls > 1,
      }),
    });
  };
  for (const copied of rotaryDim < headDim ? [false, true] : [false])
    for (const permuted of pairing === 'vision' ? [false] : [false, true])
      for (const layout of LAYOUTS)
        for (const tables of dtypes) for (const tablesOf of rows) add(copied, permuted, layout, tables, tablesOf);
  return attempts;
}

/** The positions of a graph that is built only to see its operators. */
const FEW_POSITIONS = 16;

/** Lists the graphs that `ropewalk export` writes in one form. */
function graphAttempts(
  device: DeviceProfile,
  operator: RopeOperator,
  { spec, use, kvHeads, context, graph: wishes }: Given,
  notMade: RopewalkError[],
): Attempt[] {
  const form = operator.call as GraphForm;
  const { dtype, heads } = use;
  const { direction, normEps, kvCache } = wishes;
  const opset = wishes.opset ?? (form === 'standard' ? OPSET : OLDEST_OPSET);
  if ((wishes.form ?? form) !== form || (form === 'standard' && opset < OPSET)) return [];
  const attempts: Attempt[] = [];
  for (const angles of wishes.angles ? [wishes.angles] : (['f32-table', 'f16-table', 'f32-reduced'] as const)) {
    for (const layout of wishes.layout ? [wishes.layout] : (['bsnh', 'bnsh'] as const)) {
      let model: OnnxModel;
      try {
        const asked = { spec, form, dtype, layout, heads, kvHeads, angles, direction, normEps, kvCache };
        const { graph } = ropeModel({ ...asked, context: FEW_POSITIONS });
        model = graph.model('rope', 'ropewalk', '', opset);
      } catch (error) {
        if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
        notMade.push(error); // another form may work
        continue;
      }
      const { count } = graphCost(model, { batch: use.batch, seq: use.seq, cache: use.seq });
      for (const fixedShapes of [false, true])
        attempts.push({
          operator,
          use: { ...use, tables: angles === 'f16-table' ? 'f16' : 'f32', layout, fixedShapes },
          calls: count,
          steps: stepsWhere({
            primitives: form === 'primitives',
            'tables-by-host': angles.endsWith('-table'),
            layout: layout !== 'bsnh',
            'shapes-fixed': fixedShapes,
          }),
          onnx: { form, angles, layout, dtype, opset },
          missing: missingIn(model, device, context, angles, use.rotaryDim / 2),
        });
    }
  }
  return attempts;
}

/** The most entries of a table in an ONNX file. */
const MAX_TABLE = 2 ** 26;

/** Makes a rule for each thing that a graph needs and a runtime does not have. */
function missingIn(
  { nodes, inputs }: OnnxModel,
  { onnx }: DeviceProfile,
  context: number,
  angles: AngleMode,
  pairs: number,
): DeviceRule<RopeUse>[] {
  const missing: string[] = [];
  const others = [...new Set(nodes.map(({ opType }) => opType))].filter((op) => !onnx!.names.includes(op));
  if (others.length > 0) missing.push(`operators that it lacks: ${others.join(', ')}`);
  const names = new Set(inputs.map(({ name }) => name));
  if (!onnx!.castsInputs && nodes.some(({ opType, inputs: read }) => opType === 'Cast' && names.has(read[0]!)))
    missing.push('no Cast reads an input of the graph');
  if (angles === 'f64') missing.push('angles are in f32 or f16');
  if (angles.endsWith('-table') && (context - 1) * pairs > MAX_TABLE)
    missing.push(`a table of ${context} positions fits an ONNX file`);
  return missing.map((words) => rule(words, onnx!.source, () => false));
}

/** Rates an attempt; costs are compared from the left, and the lowest is the best. */
function costOf({ steps, use, calls, onnx }: Attempt, wrong: readonly string[]): number[] {
  const has = (step: RopeStep): number => (steps.includes(step) ? 1 : 0);
  return [
    wrong.length,
    has('weights-permuted'),
    onnx && !onnx.angles.endsWith('-table') ? 1 : 0, // nobody knows the arithmetic of angles on the device
    onnx && use.tables === 'f16' ? 1 : 0, // then all of the graph computes in f16
    has('shapes-fixed'),
    TABLES_OF.indexOf(use.tablesOf),
    calls,
    has('layout'),
    use.tables === 'f32' ? 0 : 1,
  ];
}

const compareCosts = (a: readonly number[], b: readonly number[]): number =>
  a.map((value, n) => value - b[n]!).find((difference) => difference !== 0) ?? 0;

const sameSteps = (a: RopeForm, b: RopeForm): boolean => mainSteps(a).join() === mainSteps(b).join();
const mainSteps = ({ steps }: RopeForm): RopeStep[] =>
  steps.filter((step) => step !== 'layout' && step !== 'tables-repeated');

/** The largest error of cos and sin that are rounded once. */
const ROUNDING: Readonly<Record<FloatDtype, number>> = { f64: 2 ** -54, f32: 2 ** -25, f16: 2 ** -12, bf16: 2 ** -9 };

function formOf(
  { operator, use, steps, calls, onnx }: Attempt,
  wrong: readonly string[],
  given: Given,
  device: string,
): RopeForm {
  const [position, { rotaryOffset, rotaryDim, headDim }] = [given.context - 1, given.use];
  const halves = onnx && use.dtype === 'f32' ? deviceNamed(device).onnx!.halvesF32 : undefined;
  const rounded = halves ? 'f16' : (use.tables ?? (operator.halfTables && use.dtype === 'f16' ? 'f16' : 'f32'));
  const tables = errorOfTables(given.spec, rounded, position);
  const angles = use.tables === undefined ? errorOfDevice(given.spec, position) : 0;
  const right = wrong.length === 0;
  const lost = wrong.map((words) => `${words[0]!.toUpperCase()}${words.slice(1)}.`);
  if (halves) lost.push(halves);
  else if (rounded === 'f16' || rounded === 'bf16') lost.push(`cos and sin are in ${rounded}.`);
  if (onnx?.angles === 'f16-table') lost.push('All arithmetic is in f16.');
  if (right && angles > ROUNDING[use.dtype])
    lost.push(
      `The device computes angles in f32: cos and sin are off by up to ${angles.toExponential(1)} at position ${position}.`,
    );
  const sentences: Readonly<Record<RopeStep, string>> = {
    'tables-by-host': `The host computes cos and sin, in ${use.tables}${onnx ? ': they are constants of the graph' : ''}.`,
    'tables-repeated': `cos and sin are repeated for each ${use.tablesOf}.`,
    'window-copied': `Dimensions ${rotaryOffset} to ${rotaryOffset + rotaryDim - 1} of ${headDim} are copied out, rotated and copied back.`,
    'weights-permuted': `The weights of q and k are permuted once (ropewalk permute IN OUT --to ${use.pairing}), and with them keys that a cache already has.`,
    primitives: 'The graph has only operators of arithmetic: form primitives.',
    'two-calls': 'q and k are a call each.',
    layout: `x is handed over as ${use.layout}.`,
    'shapes-fixed': 'Batch and sequence are fixed when the session opens (free dimension overrides).',
  };
  return {
    operator: operator.name,
    calls,
    steps,
    words: steps.map((step) => sentences[step]),
    lost,
    right,
    precision: right ? { position, maxError: Math.max(angles, tables) } : errorOfWrong(given, use, device),
    onnx,
  };
}

/** Measures a wrong result on a device that computes, at up to 512 positions below the context. */
function errorOfWrong({ spec, context }: Given, use: RopeUse, device: string): RopeForm['precision'] {
  const { tableErrors } = deviceNamed(device);
  if (!tableErrors || (use.dtype !== 'f32' && use.dtype !== 'f16')) return undefined;
  const count = Math.min(context, 512);
  const positions = Int32Array.from({ length: count }, (_, n) =>
    Math.round((n * (context - 1)) / Math.max(1, count - 1)),
  );
  const { headDim, rotaryDim } = use; // of the attempt: copying out the window makes whole rows
  const errors = tableErrors({ ...spec, headDim, rotaryDim, positions }, use.dtype);
  if ('whyNot' in errors) return undefined;
  const worst = errors.maxErrors.reduce((best, error, n) => (error > errors.maxErrors[best]! ? n : best), 0);
  return { position: positions[worst]!, maxError: errors.maxErrors[worst]! };
}

/** Measures tables of the host, which are computed in float64 and rounded once. */
function errorOfTables(spec: RopeSpec, dtype: FloatDtype, position: number): number {
  return Math.max(
    ...frequenciesOf(spec).invFreq.map((frequency) => {
      const angle = position * frequency;
      return Math.max(...[Math.cos(angle), Math.sin(angle)].map((value) => Math.abs(value - roundTo(dtype, value))));
    }),
  );
}

/** Measures the angles of a device, by ggml's arithmetic: θ is multiplied from pair to pair in f32. */
function errorOfDevice(spec: RopeSpec, position: number): number {
  const { headDim, rotaryDim = headDim, base, pairing, axes } = spec;
  const { invFreq } = frequenciesOf(spec);
  const plain = frequenciesOf({ headDim: rotaryDim, base, pairing, axes });
  const freqFactors = plain.invFreq.map((frequency, j) => (invFreq[j] === 0 ? 1 : frequency / invFreq[j]!));
  const like = { headDim: rotaryDim, base, pairing, axes, freqFactors, tableDtype: 'f64' as const };
  const { cos, sin } = planRope({ ...like, positions: position, seqLen: 1, recipe: 'ggml-f32' }).table;
  return Math.max(
    ...invFreq.map((frequency, j) =>
      Math.max(Math.abs(cos[j]! - Math.cos(position * frequency)), Math.abs(sin[j]! - Math.sin(position * frequency))),
    ),
  );
}
