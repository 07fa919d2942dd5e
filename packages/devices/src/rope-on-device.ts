/**
 * Whether a device runs a RoPE, in which form, and what is lost.
 *
 * @module
 */
import {
  ANGLE_MODES,
  type AngleMode,
  type GraphForm,
  graphCost,
  OLDEST_OPSET,
  type OnnxModel,
  OPSET,
  type RopeModelOptions,
  ropeModel,
} from '@ropewalk/onnx';
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
import { checkInteger, type OptionNames, readName, readOptions } from 'ropewalk/internal';
import { deviceNamed } from './devices.js';
import type { DeviceProfile, DeviceRule, RopeOperator, RopeUse, TablesOf, UseLayout } from './profile.js';

/** The rotation that is to run: q, and k where `kvHeads` is given. */
export interface RopeOnDeviceOptions {
  readonly spec: RopeSpec;
  /** Of the data; unless given the one that the device's runtime rotates, or f16 where models choose it. */
  readonly dtype?: FloatDtype;
  /** Heads of q; 1 unless given. */
  readonly heads?: number;
  /** Heads of k; without it there is one tensor. */
  readonly kvHeads?: number;
  /** 1 unless given. */
  readonly batch?: number;
  /** Tokens of a call; 512 unless given. */
  readonly seq?: number;
  /** Whether batches have positions of their own. */
  readonly batchPositions?: boolean;
  /** Positions are below this; the precision is that of the last one. 4096 unless given. */
  readonly context?: number;
  /** What a graph must be, for runtimes of ONNX graphs: what is given is kept, the rest is chosen. */
  readonly graph?: GraphWishes;
}

const NAMES: OptionNames<RopeOnDeviceOptions> = {
  spec: true,
  dtype: true,
  heads: true,
  kvHeads: true,
  batch: true,
  seq: true,
  batchPositions: true,
  context: true,
  graph: true,
};

/** What a graph must be, in the words of `ropeModel`. */
export type GraphWishes = Partial<Pick<OnnxChoice, 'form' | 'angles' | 'layout' | 'opset'>> &
  Pick<RopeModelOptions, 'direction' | 'normEps' | 'kvCache'>;

const GRAPH_NAMES: OptionNames<GraphWishes> = {
  form: true,
  angles: true,
  layout: true,
  opset: true,
  direction: true,
  normEps: true,
  kvCache: true,
};

/** How an ONNX graph is exported for a device: options of `ropeModel`, and its opset. */
export interface OnnxChoice {
  readonly form: GraphForm;
  readonly angles: AngleMode;
  readonly layout: RopeLayout;
  readonly dtype: FloatDtype;
  readonly opset: number;
}

/** What has to be done beside the call itself. */
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
  /** Calls a layer, copies included; of a graph its nodes, without those that only reshape. */
  readonly calls: number;
  /** What has to be done; nothing where the operator takes the RoPE as it is. */
  readonly steps: readonly RopeStep[];
  /** A sentence for each step. */
  readonly words: readonly string[];
  /** What is computed otherwise than the RoPE says, and what is less precise; full sentences. */
  readonly lost: readonly string[];
  /** Whether the result is that RoPE, up to rounding. */
  readonly right: boolean;
  /** The largest error of cos and sin at the last position, before the magnitude. */
  readonly precision: { readonly position: number; readonly maxError: number };
  /** For a runtime of ONNX graphs. */
  readonly onnx: OnnxChoice | undefined;
}

/** A rule that stands in the way. */
export interface RopeRefusal {
  readonly operator: string;
  /** What must hold. */
  readonly words: string;
  /** What the call has instead, of what the rule reads: `dtype f16`. */
  readonly here: string;
  readonly source: string;
}

/** A device's answer. */
export interface RopeVerdict {
  readonly device: string;
  /** Of the data. */
  readonly dtype: FloatDtype;
  /** Ways to run it, the best first: right before wrong, weights as they are, few copies, precise tables. */
  readonly forms: readonly RopeForm[];
  /** Where there is no way: of each operator, the rules that stand in the way of its nearest form. */
  readonly refused: readonly RopeRefusal[];
}

/** What an attempt is before it is judged. */
interface Attempt {
  readonly operator: RopeOperator;
  readonly use: RopeUse;
  readonly steps: readonly RopeStep[];
  readonly calls: number;
  readonly onnx?: OnnxChoice;
  /** What a graph needs and the device has not. */
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
 * permuted to the other pairing; in each layout; with tables in f32 and in the data's dtype. For runtimes of ONNX graphs
 * the graphs are built, and their operators compared with those that the runtime has.
 *
 * @param name - a device, as in `DEVICES`
 * @param options - the RoPE
 * @throws {RopewalkError} UNSUPPORTED for another name; RANGE, SHAPE or UNSUPPORTED for what is no RoPE
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
  const taken = judged.filter(({ refused }) => refused.length === 0);
  const forms = taken
    .map(({ attempt, wrong }) => ({ cost: costOf(attempt, wrong), form: formOf(attempt, wrong, given, name) }))
    .sort((a, b) => compareCosts(a.cost, b.cost))
    .map(({ form }) => form);
  const operators = new Set(attempts.map(({ operator }) => operator));
  const nearest = Array.from(operators, (operator) =>
    judged
      .filter(({ attempt }) => attempt.operator === operator)
      .reduce((best, one) => (one.refused.length < best.refused.length ? one : best)),
  );
  return {
    device: name,
    dtype: given.use.dtype,
    forms: forms.filter(
      (form, n) => !forms.slice(0, n).some((before) => before.operator === form.operator && sameSteps(before, form)),
    ),
    refused:
      forms.length > 0
        ? []
        : nearest.flatMap(({ attempt, refused }) =>
            refused.map((rule) => ({
              operator: attempt.operator.name,
              words: rule.words,
              here: readBy(rule, attempt.use),
              source: rule.source,
            })),
          ),
  };
}

/** What a rule reads of a call: `dtype f16`. */
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
  const { dtype = usual, heads = 1, kvHeads, batch = 1, seq = 512, batchPositions = false, context = 4096 } = own;
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
    attentionFactor: frequenciesOf(spec).attentionFactor,
    axes: spec.axes ? spec.axes.sections.length : 1,
    batchPositions: batchPositions === true,
    contiguous: true,
    fixedShapes: false,
  };
  const graph = readOptions(own.graph ?? {}, 'device: graph', GRAPH_NAMES);
  if (graph.opset !== undefined) checkInteger(graph.opset, 'device: graph: opset', OLDEST_OPSET);
  if (graph.form !== undefined) readName(graph.form, ['standard', 'primitives'], 'device: graph: form');
  if (graph.angles !== undefined) readName(graph.angles, ANGLE_MODES, 'device: graph: angles');
  if (graph.layout !== undefined) readName(graph.layout, ['bsnh', 'bnsh'], 'device: graph: layout');
  return { spec, use, kvHeads, context, graph };
}

const TABLES_OF: readonly TablesOf[] = ['token', 'batch', 'head'];
const LAYOUTS: readonly UseLayout[] = ['bsnh', 'tnh', 'sbnh', 'bnsh'];

/** An operator that is called for each tensor, or for q and k. */
function callAttempts(operator: RopeOperator, { use, kvHeads }: Given): Attempt[] {
  const { dtype, headDim, rotaryDim, batchPositions } = use;
  const tensors = kvHeads === undefined ? 1 : 2;
  const byTables = operator.call === 'tables';
  // Tables hold any angles, so only the places of the pairs are left of a vision tower's.
  const pairing = byTables && use.pairing === 'vision' ? 'half' : use.pairing;
  const tablesOf = byTables ? TABLES_OF.slice(batchPositions ? 1 : 0) : (['token'] as const);
  const attempts: Attempt[] = [];
  for (const copied of rotaryDim < headDim ? [false, true] : [false]) {
    for (const permuted of pairing === 'vision' ? [false] : [false, true]) {
      for (const layout of LAYOUTS) {
        for (const tables of byTables ? new Set([dtype, 'f32'] as const) : [undefined]) {
          for (const each of tablesOf) {
            const together = operator.together === true && kvHeads !== undefined;
            const calls = together ? 1 : tensors;
            const repeated = each === 'head' || (each === 'batch' && use.batch > 1 && !batchPositions);
            attempts.push({
              operator,
              use: {
                ...use,
                tables,
                tablesOf: each,
                layout,
                kHeads: together ? kvHeads : 0,
                pairing: permuted ? (pairing === 'half' ? 'interleaved' : 'half') : pairing,
                ...(copied && { headDim: rotaryDim, rotaryOffset: 0 }),
              },
              calls: calls + (copied ? 2 * tensors : 0),
              steps: [
                ...(byTables ? (['tables-by-host'] as const) : []),
                ...(repeated ? (['tables-repeated'] as const) : []),
                ...(copied ? (['window-copied'] as const) : []),
                ...(permuted ? (['weights-permuted'] as const) : []),
                ...(layout === 'bsnh' ? [] : (['layout'] as const)),
                ...(calls > 1 ? (['two-calls'] as const) : []),
              ],
            });
          }
        }
      }
    }
  }
  return attempts;
}

/** Positions of a graph that is built only to see its operators. */
const FEW_POSITIONS = 16;

/** The graphs that `ropewalk export` writes in one form. */
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
        notMade.push(error); // another form may be there
        continue;
      }
      const { count } = graphCost(model, { batch: use.batch, seq: use.seq, cache: use.seq });
      for (const fixedShapes of [false, true])
        attempts.push({
          operator,
          use: { ...use, tables: angles === 'f16-table' ? 'f16' : 'f32', layout, fixedShapes },
          calls: count,
          steps: [
            ...(form === 'primitives' ? (['primitives'] as const) : []),
            ...(angles.endsWith('-table') ? (['tables-by-host'] as const) : []),
            ...(layout === 'bsnh' ? [] : (['layout'] as const)),
            ...(fixedShapes ? (['shapes-fixed'] as const) : []),
          ],
          onnx: { form, angles, layout, dtype, opset },
          missing: missingIn(model, device, context, angles, use.rotaryDim / 2),
        });
    }
  }
  return attempts;
}

/** Entries of a table that an ONNX file may hold. */
const MAX_TABLE = 2 ** 26;

/** What a graph needs and a runtime has not. */
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
  return missing.map((words) => ({ words, source: onnx!.source, holds: () => false }));
}

/** Compared from the left. */
function costOf({ steps, use, calls, onnx }: Attempt, wrong: readonly string[]): number[] {
  const has = (step: RopeStep): number => (steps.includes(step) ? 1 : 0);
  return [
    wrong.length,
    has('weights-permuted'),
    onnx && !onnx.angles.endsWith('-table') ? 1 : 0, // its arithmetic on the device is not known
    onnx && use.tables === 'f16' ? 1 : 0, // then all of the graph computes in f16
    has('shapes-fixed'),
    use.tablesOf === 'token' ? 0 : use.tablesOf === 'batch' ? 1 : 2,
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
  const lost = wrong.map((words) => `${words[0]!.toUpperCase()}${words.slice(1)}.`);
  if (halves) lost.push(halves);
  else if (rounded === 'f16' || rounded === 'bf16') lost.push(`cos and sin are in ${rounded}.`);
  if (onnx?.angles === 'f16-table') lost.push('All arithmetic is in f16.');
  if (angles > ROUNDING[use.dtype])
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
    right: wrong.length === 0,
    precision: { position, maxError: Math.max(angles, tables) },
    onnx,
  };
}

/** Tables of the host: float64, rounded once. */
function errorOfTables(spec: RopeSpec, dtype: FloatDtype, position: number): number {
  return Math.max(
    ...frequenciesOf(spec).invFreq.map((frequency) => {
      const angle = position * frequency;
      return Math.max(...[Math.cos(angle), Math.sin(angle)].map((value) => Math.abs(value - roundTo(dtype, value))));
    }),
  );
}

/** Angles of a device: ggml's arithmetic, θ multiplied from pair to pair in f32. */
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
