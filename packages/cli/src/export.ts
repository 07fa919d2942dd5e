/** `ropewalk export`: RoPE, or another operator, as an ONNX model. @module */

import { headsOf } from '@ropewalk/checkpoint/internal/node';
import {
  type Cann2024Step,
  type Cann2024TableErrors,
  cann2024Steps,
  cann2024TableErrors,
} from '@ropewalk/devices/internal';
import { writeOutput } from '@ropewalk/formats/internal/node';
import {
  ANGLE_MODES,
  type AngleMode,
  type AnglePrecision,
  anglePrecision,
  type GraphCost,
  type GraphForm,
  graphCost,
  type OnnxModel,
  operatorModel,
  ropeModel,
  TABLE_CONTEXT,
  writeOnnxModel,
} from '@ropewalk/onnx';
import {
  OLDEST_OPSET,
  type OnnxValue,
  OPERATOR_SHAPES,
  OPSET,
  type OperatorName,
  PRECISION_POSITIONS,
} from '@ropewalk/onnx/internal';
import { type FloatDtype, sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { type RouteGroups, readName } from 'ropewalk/internal';
import type { ChosenForm } from './export-for.js';
import { FLOATS, Flags, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { counted, EXIT, printResult, thousands } from './output.js';
import { isRopeLine } from './rope-line.js';
import { type GivenRope, readRope } from './rope-source.js';
import { VERSION } from './version.js';

export type ExportOptions = Texts<'layer' | 'rope' | 'spec' | 'op' | 'shape' | 'form' | 'angles' | 'dtype'> &
  Texts<'layout' | 'direction' | 'heads' | 'kvHeads' | 'context' | 'normEps' | 'opset' | 'weights' | 'eps'> &
  Texts<'window' | 'softcap' | 'perm' | 'gate' | 'groups' | 'out'> &
  Texts<'approximate' | 'limit' | 'alpha' | 'offset' | 'factor'> &
  Texts<'quantize' | 'activations' | 'for'> &
  Switches<'whole' | 'widenHalves' | 'force'> &
  Switches<'kvCache' | 'bias' | 'sinks' | 'normalize' | 'weighted' | 'json'> & { readonly count?: string | boolean };

/** The default of --count. */
const DEFAULT_COUNT = { batch: 1, seq: 512 };

const GATES = ['softmax', 'sigmoid', 'softmax-of-chosen', 'sparsemixer'] as const;

/** The most dimensions. ONNX names no limit, but no kernel takes more. */
const MAX_RANK = 64;

/** The exported graph, and the report about it. */
interface Export {
  readonly title: string;
  readonly form: GraphForm;
  readonly opset: number;
  /** The choice of --for. */
  readonly chosen?: ChosenForm;
  readonly model: OnnxModel;
  readonly angles?: AngleMode;
  readonly precision?: readonly AnglePrecision[];
  /** The sizes of RoPE's baseline without batch and seq, and its cos and sin at the positions of `precision`. */
  readonly baseline?: {
    readonly sizes: { readonly headDim: number; readonly heads: number; readonly dataBytes: 2 | 4 };
    readonly tables: Cann2024TableErrors;
  };
}

/** The options of every export, as they are given. */
interface Form {
  readonly form: GraphForm | undefined;
  readonly opset: number | undefined;
  /** Undefined for the dtype of a ROPE(…) line, or f32. */
  readonly dtype: FloatDtype | undefined;
}

/** @param source - a text for {@link readRope}; undefined with --rope, --spec or --op */
export async function exportModel(source: string | undefined, options: ExportOptions): Promise<number> {
  const flags = new Flags(options);
  const sizes = countSizes(flags, options.count);
  const shared: Form = {
    form: flags.word('form', ['standard', 'primitives']),
    opset: flags.integer('opset', OLDEST_OPSET, OPSET),
    dtype: flags.word('dtype', FLOATS),
  };
  const op = options.op ?? 'rope';
  readName(op, ['rope', ...Object.keys(OPERATOR_SHAPES)], '--op');
  flags.refuseAllBut([...COMMON, ...OWN[op as OperatorName]], op === 'rope' ? 'RoPE' : `--op ${op}`);
  const made =
    op === 'rope'
      ? await exportRope(source, flags, options, shared)
      : exportOperator(source, flags, options, op as OperatorName, shared);
  // Counting checks every type and shape, so that a malformed graph is never written.
  const cost = graphCost(made.model, { ...DEFAULT_COUNT, ...sizes, cache: TABLE_CONTEXT });
  const bytes = writeOnnxModel(made.model);
  if (options.out !== undefined) writeOutput(options.out, bytes, '--out');
  const baseline =
    sizes && made.baseline
      ? cann2024Steps({ ...made.baseline.sizes, ...sizes }, made.form === 'standard' ? 'fused' : 'primitives')
      : undefined;
  const report = { made, bytes: bytes.length, cost, sizes, baseline };
  printResult(options.json, { json: () => toJson(report, options.out), lines: () => describe(report, options.out) });
  return EXIT.ok;
}

/** The defaults: standard operators, and the opset that introduced RotaryEmbedding. */
function readForm({ form = 'standard', opset = OPSET }: Form): { readonly form: GraphForm; readonly opset: number } {
  if (opset < OPSET && form === 'standard')
    fail(
      'UNSUPPORTED',
      '--opset',
      `form standard needs opset ${OPSET}, which introduced RotaryEmbedding. Leave --opset out, or use --form primitives.`,
    );
  return { form, opset };
}

async function exportRope(
  source: string | undefined,
  flags: Flags<ExportOptions>,
  options: ExportOptions,
  given: Form,
): Promise<Export> {
  const layer = flags.integer('layer') ?? 0;
  const [givenHeads, givenKvHeads] = [flags.integer('heads', 1, 2 ** 16), flags.integer('kvHeads', 1, 2 ** 16)];
  const { spec, direction, from, line, source: file } = await ropeOf(source, flags, options, layer);
  const known = file?.kind === 'model' ? await headsOf(file.file, layer) : { heads: line?.heads };
  const heads =
    givenHeads ??
    known.heads ??
    fail(
      'RANGE',
      '--heads',
      'nothing says how many heads x has. Give --heads, and --kv-heads for q and k in one model.',
    );
  // --heads without --kv-heads means a single tensor.
  const kvHeads = givenKvHeads ?? (givenHeads === undefined ? known.kvHeads : undefined);
  const turn = flags.word('direction', ['forward', 'backward']) ?? direction;
  const asked = {
    layout: flags.word('layout', ['bsnh', 'bnsh']),
    angles: flags.word('angles', ANGLE_MODES),
    direction: turn,
    normEps: flags.number('normEps'),
    kvCache: options.kvCache,
  };
  const shape = { spec, heads, kvHeads, context: flags.integer('context', 1) };
  const own = given.dtype ?? line?.dtype;
  const chosen =
    options.for === undefined
      ? undefined
      : (await import('./export-for.js')).chooseFor(
          options.for,
          { ...shape, graph: { ...asked, form: given.form, opset: given.opset } },
          own === undefined ? ['f32', 'f16'] : [own],
        );
  const { opset, ...choice } = chosen?.choice ?? readForm(given);
  const { form } = choice;
  const dtype = chosen?.choice.dtype ?? own ?? 'f32';
  const { graph, angles, context } = ropeModel({ ...asked, ...shape, ...choice, dtype });
  const positions = [...PRECISION_POSITIONS.filter((p) => p < context - 1), context - 1];
  const title = `RoPE of ${from}`;
  return {
    title,
    form,
    opset,
    chosen,
    model: graph.model('rope', `ropewalk ${VERSION}`, title, opset),
    angles,
    precision: anglePrecision(spec, angles, positions, dtype === 'f64' ? 'f64' : 'f32'),
    // The baseline is counted and run in f32 for f32 data, else in 16 bits; it has no f64.
    baseline:
      dtype === 'f64'
        ? undefined
        : {
            sizes: { headDim: spec.headDim, heads: heads + (kvHeads ?? 0), dataBytes: dtype === 'f32' ? 4 : 2 },
            tables: cann2024TableErrors({ ...spec, direction: turn, positions }, dtype === 'f32' ? 'f32' : 'f16'),
          },
  };
}

async function ropeOf(
  source: string | undefined,
  flags: Flags<ExportOptions>,
  { rope, spec }: ExportOptions,
  layer: number,
): Promise<GivenRope> {
  const given = [source, rope, spec].filter((text) => text !== undefined);
  if (given.length !== 1) {
    const count = given.length === 0 ? 'no RoPE is given' : `several RoPEs are given: ${given.join(' and ')}`;
    fail('FORMAT', 'model', `${count}. Give one of a model, --rope and --spec, or --op for another operator.`);
  }
  if (rope !== undefined && !isRopeLine(rope)) refuse('FORMAT', '--rope', 'a ROPE(…) line', rope);
  if (source === undefined) flags.refuseAny(['layer'], 'it needs a model.', 'UNSUPPORTED');
  return readRope(given[0]!, flags.integer('context', 1), layer);
}

/** The options of every export. */
const COMMON: readonly (keyof ExportOptions)[] = ['op', 'form', 'dtype', 'opset', 'count', 'out', 'json'];

/** The further options of each operator. */
const OWN: Readonly<Record<OperatorName | 'rope', readonly (keyof ExportOptions)[]>> = {
  rope: [
    'for',
    'layer',
    'rope',
    'spec',
    'angles',
    'layout',
    'direction',
    'heads',
    'kvHeads',
    'context',
    'normEps',
    'kvCache',
  ],
  add: ['shape'],
  swiglu: ['shape', 'limit', 'alpha', 'offset'],
  gelu: ['shape', 'approximate'],
  geglu: ['shape', 'approximate'],
  xielu: ['shape'],
  scale: ['shape', 'factor', 'softcap'],
  layer_norm: ['shape', 'eps', 'bias'],
  rms_norm: ['shape', 'eps'],
  argmax: ['shape'],
  linear: ['shape', 'weights', 'bias'],
  embedding: ['shape', 'weights'],
  rearrange: ['shape', 'perm'],
  self_attention: ['shape', 'window', 'softcap', 'sinks'],
  route: ['shape', 'gate', 'groups', 'normalize', 'bias'],
  expert_linear: ['shape', 'weights', 'bias', 'weighted'],
  causal_conv: ['shape', 'bias'],
  gated_delta: ['shape'],
  ssm_scan: ['shape'],
};

function exportOperator(
  source: string | undefined,
  flags: Flags<ExportOptions>,
  options: ExportOptions,
  op: OperatorName,
  given: Form,
): Export {
  const { form, opset } = readForm(given);
  const { dtype } = given;
  if (source !== undefined) fail('UNSUPPORTED', 'model', `--op ${op} does not take a model. Leave one of them out.`);
  const shape = flags.integers('shape', 1, MAX_INTEGER, MAX_RANK);
  if (!shape) fail('SHAPE', '--shape', `--op ${op} needs a shape: ${OPERATOR_SHAPES[op]}.`);
  if (op === 'embedding' && /^q/.test(options.weights ?? '') && (dtype ?? 'f32') !== 'f32')
    fail('UNSUPPORTED', '--dtype', `rows of ${options.weights} blocks come out as f32. Leave --dtype out.`);
  const graph = operatorModel({
    op,
    shape,
    form,
    dtype,
    weights: options.weights,
    bias: options.bias,
    eps: flags.number('eps'),
    window: flags.number('window'),
    softcap: flags.number('softcap'),
    sinks: options.sinks,
    gate: flags.word('gate', GATES),
    groups: groupsOf(flags),
    normalize: options.normalize,
    weighted: options.weighted,
    approximate: flags.word('approximate', ['none', 'tanh']),
    limit: flags.number('limit'),
    alpha: flags.number('alpha'),
    offset: flags.number('offset'),
    factor: flags.number('factor'),
    perm: flags.integers('perm', 0, MAX_INTEGER, MAX_RANK),
  });
  return { title: op, form, opset, model: graph.model(op, `ropewalk ${VERSION}`, op, opset) };
}

/** `--groups 8,4,2`: 8 groups, of which 4 are used, by the sum of their 2 best scores. */
function groupsOf(flags: Flags<ExportOptions>): RouteGroups | undefined {
  const given = flags.integers('groups', 1, MAX_INTEGER, MAX_RANK);
  if (!given) return undefined;
  const [count, used, best, ...more] = given as number[];
  if (best === undefined || more.length > 0) refuse('RANGE', '--groups', 'COUNT,USED,BEST', given);
  return { count: count!, used: used!, best: best as 1 | 2 };
}

/** `--count 2,128`: two batches of 128 tokens. */
function countSizes(
  flags: Flags<ExportOptions>,
  count: string | boolean | undefined,
): typeof DEFAULT_COUNT | undefined {
  if (typeof count !== 'string') return count ? DEFAULT_COUNT : undefined;
  const [batch, seq, ...more] = flags.integers('count', 1, MAX_INTEGER, MAX_RANK)!;
  if (seq === undefined || more.length > 0) refuse('RANGE', '--count', 'BATCH,SEQ', count);
  return { batch: batch!, seq };
}

interface Report {
  readonly made: Export;
  readonly bytes: number;
  readonly cost: GraphCost;
  readonly sizes: typeof DEFAULT_COUNT | undefined;
  readonly baseline: readonly Cann2024Step[] | undefined;
}

function constantBytes(model: OnnxModel): number {
  return [...model.initializers.values()].reduce((sum, tensor) => sum + tensor.size * sizeBytes(tensor.dtype), 0);
}

function describe({ made, bytes, cost, sizes, baseline }: Report, out: string | undefined): string[] {
  const { model, form, opset, chosen } = made;
  const value = ({ name, dtype, shape }: OnnxValue): string => `${name} ${dtype} [${shape.join(', ')}]`;
  const lines = [
    `${made.title}${chosen ? ` for ${chosen.device}` : ''}: ONNX opset ${opset}, form ${form}${made.angles ? `, angles ${made.angles}` : ''}`,
    ...(chosen
      ? [...chosen.words, ...chosen.lost.map((words) => `lost: ${words}`)].map(
          (words, n) => `  ${n === 0 ? 'choice   ' : '         '} ${words}`,
        )
      : []),
    ...model.inputs.map((input, n) => `  ${n === 0 ? 'inputs   ' : '         '} ${value(input)}`),
    ...model.outputs.map((output, n) => `  ${n === 0 ? 'outputs  ' : '         '} ${value(output)}`),
    `  nodes     ${cost.count + cost.views}: ${[...cost.calls].map(([type, n]) => (n === 1 ? type : `${type} ×${n}`)).join(', ')}${cost.views > 0 ? `; ${cost.views} that only reshape` : ''}`,
    `  constants ${model.initializers.size}, ${thousands(constantBytes(model))} bytes`,
  ];
  if (made.precision) {
    const tables = sizes ? made.baseline?.tables : undefined;
    const beside = tables && 'maxErrors' in tables ? tables.maxErrors : undefined;
    lines.push('', `  position     cos, sin off by at most${beside ? '   of the twelve steps' : ''}`);
    for (const [n, { position, maxError }] of made.precision.entries()) {
      const own = maxError.toExponential(1);
      lines.push(
        `  ${String(position).padEnd(12)} ${beside ? `${own.padEnd(25)} ${beside[n]!.toExponential(1)}` : own}`,
      );
    }
    if (tables && 'whyNot' in tables) lines.push(`  The twelve steps do not compute this RoPE: ${tables.whyNot}.`);
  }
  if (sizes) lines.push('', ...describeCost(cost, sizes, baseline, form));
  lines.push(
    '',
    out === undefined
      ? `Not written: no --out (${thousands(bytes)} bytes).`
      : `Wrote ${out}, ${thousands(bytes)} bytes.`,
  );
  return lines;
}

function describeCost(
  cost: GraphCost,
  sizes: typeof DEFAULT_COUNT,
  baseline: readonly Cann2024Step[] | undefined,
  form: GraphForm,
): string[] {
  const row = (what: string, calls: number, read: number, written: number, buffers: number): string =>
    `  ${what.padEnd(28)} ${String(calls).padStart(5)} ${[read, written, buffers].map((n) => thousands(n).padStart(13)).join(' ')}`;
  const lines = [
    `${`  batch ${sizes.batch}, seq ${sizes.seq}`.padEnd(30)} calls    bytes read       written    in buffers`,
    row('this graph', cost.count, cost.bytesRead, cost.bytesWritten, cost.bytesBuffered),
  ];
  if (!baseline) return lines;
  const sum = (of: (step: Cann2024Step) => number): number => baseline.reduce((total, step) => total + of(step), 0);
  const [calls, read, written, buffered] = [
    sum((s) => s.calls),
    sum((s) => s.bytesRead),
    sum((s) => s.bytesWritten),
    sum((s) => s.buffered),
  ];
  const moved = (cost.bytesRead + cost.bytesWritten) / (read + written);
  lines.push(
    row(`twelve steps, ${form === 'standard' ? 'fused rotation' : 'rotation'}`, calls, read, written, buffered),
    `  ${counted(cost.count, 'call')} for ${calls}, ${(100 * moved).toFixed(1)} % of the bytes`,
  );
  return lines;
}

function toJson({ made, bytes, cost, sizes, baseline }: Report, out: string | undefined): unknown {
  const { model, form, opset, angles, precision, chosen } = made;
  const { bytesRead, bytesWritten, bytesBuffered } = cost;
  return {
    file: out ?? null,
    bytes,
    form,
    opset,
    angles,
    for: chosen,
    inputs: model.inputs,
    outputs: model.outputs,
    nodes: { calls: cost.count, views: cost.views, byType: Object.fromEntries(cost.calls) },
    constants: { count: model.initializers.size, bytes: constantBytes(model) },
    precision,
    count: sizes && { ...sizes, bytesRead, bytesWritten, bytesBuffered },
    baseline,
    baselineTables: sizes && made.baseline?.tables,
  };
}
