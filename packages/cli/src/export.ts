/**
 * `ropewalk export`: RoPE, or another operator, as an ONNX model.
 *
 * @module
 */

import { headsOf } from '@ropewalk/formats/node';
import {
  ANGLE_MODES,
  type AngleMode,
  type AnglePrecision,
  anglePrecision,
  emitPlan,
  GraphBuilder,
  type GraphCost,
  type GraphForm,
  graphCost,
  OLDEST_OPSET,
  type OnnxModel,
  type OnnxValue,
  OPSET,
  PRECISION_POSITIONS,
  ropeModel,
  type SeedStep,
  seedSteps,
  TABLE_CONTEXT,
  writeOnnxModel,
} from '@ropewalk/onnx';
import {
  type ArrayOf,
  BLOCK_BYTES,
  type BlockFormat,
  blocksFrom,
  type Dtype,
  type FloatDtype,
  isDtype,
  isFloat,
  type OpName,
  type OpPlan,
  planAdd,
  planArgmax,
  planEmbedding,
  planLinear,
  planRearrange,
  planRmsNorm,
  planSelfAttention,
  planSwiglu,
  sizeBytes,
  Tensor,
  type TensorStorage,
  zeros,
} from 'ropewalk';
import { countElements, refuse } from 'ropewalk/backend';
import { type ExpectedRope, readExpectedRope } from './model-file.js';
import { flagOf, oneOf, readContext, readInteger, readIntegers, readNumber } from './options.js';
import { EXIT, printJson } from './output.js';
import { VERSION } from './version.js';
import { writeWhole } from './write-file.js';

/** Options of the command, as the command line gives them. */
export interface ExportOptions {
  readonly layer?: string;
  readonly rope?: string;
  readonly spec?: string;
  readonly op?: string;
  readonly shape?: string;
  readonly form?: string;
  readonly angles?: string;
  readonly dtype?: string;
  readonly layout?: string;
  readonly direction?: string;
  readonly heads?: string;
  readonly kvHeads?: string;
  readonly context?: string;
  readonly normEps?: string;
  readonly kvCache?: boolean;
  readonly opset?: string;
  readonly weights?: string;
  readonly bias?: boolean;
  readonly eps?: string;
  readonly window?: string;
  readonly softcap?: string;
  readonly perm?: string;
  readonly count?: string | boolean;
  readonly out?: string;
  readonly json?: boolean;
}

/** Tokens for which calls and bytes are counted unless told otherwise. */
const DEFAULT_COUNT: readonly [batch: number, seq: number] = [1, 512];

/** What is exported: the graph, and what is to be said about it. */
interface Export {
  readonly title: string;
  readonly model: OnnxModel;
  readonly angles?: AngleMode;
  readonly precision?: readonly AnglePrecision[];
  /** Of RoPE: the baseline's sizes but for batch and seq. */
  readonly seed?: { readonly headDim: number; readonly heads: number; readonly dataBytes: 2 | 4 };
}

/**
 * Writes an ONNX model and says what is in it.
 *
 * @param source - a config.json, a .gguf, a record or a ROPE(…) line; none beside --rope, --spec or --op
 * @param options - what to write, and where
 * @returns the exit code
 * @throws {RopewalkError} for options that do not fit and files that cannot be read: the caller exits with 2
 */
export async function exportModel(source: string | undefined, options: ExportOptions): Promise<number> {
  const form = oneOf(options.form ?? 'standard', ['standard', 'primitives'], 'export: --form');
  const opset = readInteger(options.opset, 'export: --opset', OLDEST_OPSET, OPSET) ?? OPSET;
  if (opset < OPSET && form === 'standard')
    refuse(
      'UNSUPPORTED',
      'export: --opset',
      `${OPSET} in form standard, which RotaryEmbedding came with`,
      opset,
      'Use --form primitives.',
    );
  const sizes = countSizes(options.count);
  const dtype =
    options.dtype === undefined
      ? undefined
      : oneOf<FloatDtype>(options.dtype, ['f32', 'f16', 'bf16', 'f64'], 'export: --dtype');
  const made =
    options.op === undefined || options.op === 'rope'
      ? await exportRope(source, options, form, dtype, opset)
      : exportOperator(source, options, options.op, form, dtype ?? 'f32', opset);
  const [batch, seq] = DEFAULT_COUNT;
  // Counting checks every type and shape, so that no malformed graph is written.
  const cost = graphCost(made.model, { batch, seq, ...sizes, cache: TABLE_CONTEXT });
  const bytes = writeOnnxModel(made.model);
  if (options.out !== undefined) writeWhole(options.out, bytes, 'export: --out');
  const baseline =
    sizes && made.seed
      ? seedSteps({ ...made.seed, ...sizes }, form === 'standard' ? 'fused' : 'primitives')
      : undefined;
  const report = { made, bytes: bytes.length, form, opset, cost, sizes, baseline };
  if (options.json) printJson(toJson(report, options.out));
  else process.stdout.write(`${describe(report, options.out).join('\n')}\n`);
  return EXIT.ok;
}

async function exportRope(
  source: string | undefined,
  options: ExportOptions,
  form: GraphForm,
  givenDtype: FloatDtype | undefined,
  opset: number,
): Promise<Export> {
  refuseOthers(options, 'rope');
  const layer = readInteger(options.layer, 'export: --layer', 0, 2 ** 20) ?? 0;
  const given = {
    heads: readInteger(options.heads, 'export: --heads', 1, 2 ** 16),
    kvHeads: readInteger(options.kvHeads, 'export: --kv-heads', 1, 2 ** 16),
  };
  const expected = await expectedRope(source, options, layer);
  const dtype = givenDtype ?? expected.line?.dtype ?? 'f32';
  const known = expected.model === undefined ? (expected.line ?? {}) : await headsOf(expected.model, layer);
  const heads =
    given.heads ??
    known.heads ??
    refuse(
      'RANGE',
      'export: --heads',
      'how many heads x, or q, has',
      undefined,
      'Give --heads, and --kv-heads for q and k in one model.',
    );
  // Who gives the heads of one tensor means one tensor.
  const kvHeads = given.kvHeads ?? (given.heads === undefined && 'kvHeads' in known ? known.kvHeads : undefined);
  const normEps = readNumber(options.normEps, 'export: --norm-eps');
  const layout = oneOf(options.layout ?? 'bsnh', ['bsnh', 'bnsh'], 'export: --layout');
  const direction = oneOf(options.direction ?? expected.direction, ['forward', 'backward'], 'export: --direction');
  const { graph, angles, context } = ropeModel({
    spec: expected.spec,
    direction,
    form,
    dtype,
    layout,
    heads,
    ...readContext(options.context, 'export'),
    ...(options.angles === undefined ? {} : { angles: oneOf(options.angles, ANGLE_MODES, 'export: --angles') }),
    ...(kvHeads === undefined ? {} : { kvHeads }),
    ...(normEps === undefined ? {} : { normEps }),
    ...(options.kvCache ? { kvCache: true } : {}),
  });
  return {
    title: `RoPE of ${expected.from}`,
    model: graph.model('rope', `ropewalk ${VERSION}`, `RoPE of ${expected.from}`, opset),
    angles,
    precision: anglePrecision(
      expected.spec,
      angles,
      [...PRECISION_POSITIONS.filter((p) => p < context - 1), context - 1],
      dtype === 'f64' ? 'f64' : 'f32',
    ),
    // The baseline is counted in f32 where data is, else in 16 bits; f64 has none.
    ...(dtype === 'f64'
      ? {}
      : {
          seed: { headDim: expected.spec.headDim, heads: heads + (kvHeads ?? 0), dataBytes: dtype === 'f32' ? 4 : 2 },
        }),
  };
}

async function expectedRope(source: string | undefined, options: ExportOptions, layer: number): Promise<ExpectedRope> {
  const given = [source, options.rope, options.spec].filter((text) => text !== undefined);
  if (given.length !== 1)
    refuse(
      'FORMAT',
      'export',
      'one of a model, --rope and --spec',
      given.length === 0 ? undefined : given.join(' and '),
      'Or give --op for another operator.',
    );
  if (options.rope !== undefined && !/^\s*ROPE\s*\(/.test(options.rope))
    refuse('FORMAT', 'export: --rope', 'a ROPE(…) line', options.rope);
  if (options.layer !== undefined && source === undefined)
    refuse('UNSUPPORTED', 'export: --layer', 'it beside a model', given[0]);
  return readExpectedRope(given[0]!, 'export', { ...readContext(options.context, 'export'), layer });
}

/** Storage without elements: an export needs shapes. */
class NoStorage<D extends Dtype> implements TensorStorage<D> {
  readonly owner = 'a model that is written';
  readonly host = undefined;
  constructor(
    readonly dtype: D,
    readonly length: number,
  ) {}

  read(): ArrayOf[D] {
    return refuse('DEVICE', 'export', 'shapes alone', 'a look at elements');
  }
}

function shapeOnly<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
  return new Tensor(new NoStorage(dtype, countElements(shape)), { shape });
}

/** Rows of an embedding that are still taken: a plan lists them, and so many take 128 MiB. */
const MAX_ROWS = 2 ** 24;

/** ONNX names no limit; no kernel takes more dimensions. */
const MAX_RANK = 64;

/** What --shape means, for messages. */
const SHAPES: Readonly<Record<Exclude<OpName, 'rope'>, string>> = {
  add: 'any dimensions',
  swiglu: 'any dimensions',
  rms_norm: 'any dimensions, the last one is normalised',
  argmax: 'any dimensions, the last one is searched',
  linear: 'M,N,K',
  embedding: 'COUNT,ROWS,WIDTH',
  rearrange: 'any dimensions, of x',
  self_attention: 'BATCH,SEQ,TOTAL,HEADS,KV_HEADS,HEAD_DIM',
};

/** Options that every export has. */
const COMMON: readonly string[] = [
  'op',
  'form',
  'dtype',
  'opset',
  'count',
  'out',
  'json',
] satisfies readonly (keyof ExportOptions)[];

/** Options that an operator has beside those. */
const OWN: Readonly<Record<OpName, readonly (keyof ExportOptions)[]>> = {
  rope: ['layer', 'rope', 'spec', 'angles', 'layout', 'direction', 'heads', 'kvHeads', 'context', 'normEps', 'kvCache'],
  add: ['shape'],
  swiglu: ['shape'],
  rms_norm: ['shape', 'eps'],
  argmax: ['shape'],
  linear: ['shape', 'weights', 'bias'],
  embedding: ['shape', 'weights'],
  rearrange: ['shape', 'perm'],
  self_attention: ['shape', 'window', 'softcap'],
};

/** No option is ignored: what the operator does not have is refused. */
function refuseOthers(options: ExportOptions, op: OpName): void {
  const known: readonly string[] = [...COMMON, ...OWN[op]];
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || known.includes(name)) continue;
    refuse('UNSUPPORTED', `export: ${flagOf(name)}`, 'it beside another --op', op);
  }
}

function exportOperator(
  source: string | undefined,
  options: ExportOptions,
  op: string,
  form: GraphForm,
  dtype: FloatDtype,
  opset: number,
): Export {
  if (!Object.hasOwn(SHAPES, op)) refuse('UNSUPPORTED', 'export: --op', `rope, ${Object.keys(SHAPES).join(', ')}`, op);
  const name = op as keyof typeof SHAPES;
  if (source !== undefined) refuse('UNSUPPORTED', 'export: model', 'it for rope alone', `it beside --op ${op}`);
  refuseOthers(options, name);
  const plan = planOf(name, dimensions(options.shape, name), options, dtype);
  const graph = new GraphBuilder();
  const emitted = emitPlan(graph, plan, { form });
  if ('whyNot' in emitted) refuse('UNSUPPORTED', `export: --op ${op}`, 'a call that a graph can say', emitted.whyNot);
  return { title: op, model: graph.model(op, `ropewalk ${VERSION}`, op, opset) };
}

function planOf(
  op: Exclude<OpName, 'rope'>,
  shape: readonly number[],
  options: ExportOptions,
  dtype: FloatDtype,
): OpPlan {
  const tensor = (dims: readonly number[] = shape): Tensor<FloatDtype> => shapeOnly(dtype, dims);
  switch (op) {
    case 'add':
      return planAdd(tensor(), tensor(), tensor());
    case 'swiglu':
      return planSwiglu(tensor(), tensor(), tensor());
    case 'rms_norm':
      return planRmsNorm(tensor(), tensor([shape.at(-1)!]), readNumber(options.eps, 'export: --eps') ?? 1e-6, tensor());
    case 'argmax': {
      const found = [...shape.slice(0, -1), 1];
      return planArgmax(tensor(), shapeOnly('i64', found), tensor(found));
    }
    case 'linear': {
      const [m, n, k] = exactly(shape, 3, op) as [number, number, number];
      return planLinear(
        tensor([m, k]),
        weightOf(options.weights ?? dtype, [n, k]),
        options.bias ? tensor([n]) : undefined,
        tensor([m, n]),
      );
    }
    case 'embedding': {
      const [count, rows, width] = exactly(shape, 3, op) as [number, number, number];
      if (count > MAX_ROWS) refuse('RANGE', 'export: --shape', `a COUNT of at most ${MAX_ROWS}`, count);
      const weight = weightOf(options.weights ?? dtype, [rows, width]);
      // Rows of blocks come out widened.
      if ('format' in weight && options.dtype !== undefined && dtype !== 'f32')
        refuse('UNSUPPORTED', 'export: --dtype', `f32, in which rows of ${weight.format} blocks come out`, dtype);
      const out = 'format' in weight ? shapeOnly('f32', [count, width]) : tensor([count, width]);
      return planEmbedding(zeros('i64', [count]), weight, out);
    }
    case 'rearrange': {
      const perm =
        options.perm === undefined ? shape.map((_, d) => shape.length - 1 - d) : list(options.perm, '--perm', 0);
      const x = tensor().permute(perm);
      return planRearrange(x, tensor(x.shape));
    }
    case 'self_attention': {
      const [batch, seq, total, heads, kvHeads, d] = exactly(shape, 6, op) as [
        number,
        number,
        number,
        number,
        number,
        number,
      ];
      const [window, softcap] = [
        readNumber(options.window, 'export: --window'),
        readNumber(options.softcap, 'export: --softcap'),
      ];
      const kv = tensor([batch, total, kvHeads, d]);
      return planSelfAttention(tensor([batch, seq, heads, d]), kv, tensor(kv.shape), tensor([batch, seq, heads, d]), {
        ...(window === undefined ? {} : { window }),
        ...(softcap === undefined ? {} : { softcap }),
      });
    }
  }
}

function weightOf(kind: string, shape: readonly [number, number]): ReturnType<typeof blocksFrom> | Tensor<FloatDtype> {
  if (Object.hasOwn(BLOCK_BYTES, kind)) {
    const format = kind as BlockFormat;
    const bytes = Math.floor((shape[0] * shape[1]) / 32) * BLOCK_BYTES[format];
    return blocksFrom(format, shapeOnly('u8', [bytes]), shape);
  }
  if (!isDtype(kind) || !isFloat(kind))
    refuse('UNSUPPORTED', 'export: --weights', 'f32, f16, bf16, f64, q8_0 or q4_0', kind);
  return shapeOnly(kind, shape);
}

function dimensions(text: string | undefined, op: Exclude<OpName, 'rope'>): number[] {
  if (text === undefined) refuse('SHAPE', 'export: --shape', SHAPES[op], undefined, `Give --shape for --op ${op}.`);
  return list(text, '--shape', 1);
}

function exactly(shape: readonly number[], count: number, op: Exclude<OpName, 'rope'>): readonly number[] {
  if (shape.length !== count) refuse('SHAPE', 'export: --shape', SHAPES[op], `${shape.length} numbers`);
  return shape;
}

function list(text: string, option: string, least: number): number[] {
  return readIntegers(text, `export: ${option}`, least, 2 ** 31 - 1, MAX_RANK);
}

/** `--count 2,128`: two batches of 128 tokens. */
function countSizes(count: string | boolean | undefined): { batch: number; seq: number } | undefined {
  if (count === undefined || count === false) return undefined;
  const [batch, seq] = count === true ? DEFAULT_COUNT : list(count, '--count', 1);
  if (seq === undefined || (typeof count === 'string' && count.split(',').length !== 2))
    refuse('RANGE', 'export: --count', 'BATCH,SEQ', count);
  return { batch: batch!, seq };
}

interface Report {
  readonly made: Export;
  readonly bytes: number;
  readonly form: GraphForm;
  readonly opset: number;
  readonly cost: GraphCost;
  readonly sizes: { readonly batch: number; readonly seq: number } | undefined;
  readonly baseline: readonly SeedStep[] | undefined;
}

function constantBytes(model: OnnxModel): number {
  return [...model.initializers.values()].reduce((sum, tensor) => sum + tensor.size * sizeBytes(tensor.dtype), 0);
}

function describe({ made, bytes, form, opset, cost, sizes, baseline }: Report, out: string | undefined): string[] {
  const { model } = made;
  const value = ({ name, dtype, shape }: OnnxValue): string => `${name} ${dtype} [${shape.join(', ')}]`;
  const lines = [
    `${made.title}: ONNX opset ${opset}, form ${form}${made.angles ? `, angles ${made.angles}` : ''}`,
    ...model.inputs.map((input, n) => `  ${n === 0 ? 'inputs   ' : '         '} ${value(input)}`),
    ...model.outputs.map((output, n) => `  ${n === 0 ? 'outputs  ' : '         '} ${value(output)}`),
    `  nodes     ${cost.count + cost.views}: ${[...cost.calls].map(([type, n]) => (n === 1 ? type : `${type} ×${n}`)).join(', ')}${cost.views > 0 ? `; ${cost.views} that only reshape` : ''}`,
    `  constants ${model.initializers.size}, ${thousands(constantBytes(model))} bytes`,
  ];
  if (made.precision) {
    lines.push('', '  position     cos, sin off by at most');
    for (const { position, maxError } of made.precision)
      lines.push(`  ${String(position).padEnd(12)} ${maxError.toExponential(1)}`);
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
  sizes: { readonly batch: number; readonly seq: number },
  baseline: readonly SeedStep[] | undefined,
  form: GraphForm,
): string[] {
  const row = (what: string, calls: number, read: number, written: number, buffers: number): string =>
    `  ${what.padEnd(28)} ${String(calls).padStart(5)} ${[read, written, buffers].map((n) => thousands(n).padStart(13)).join(' ')}`;
  const lines = [
    `${`  batch ${sizes.batch}, seq ${sizes.seq}`.padEnd(30)} calls    bytes read       written    in buffers`,
    row('this graph', cost.count, cost.bytesRead, cost.bytesWritten, cost.bytesBuffered),
  ];
  if (!baseline) return lines;
  const sum = (of: (step: SeedStep) => number): number => baseline.reduce((total, step) => total + of(step), 0);
  const [calls, read, written, buffered] = [
    sum((s) => s.calls),
    sum((s) => s.bytesRead),
    sum((s) => s.bytesWritten),
    sum((s) => s.buffered),
  ];
  const moved = (cost.bytesRead + cost.bytesWritten) / (read + written);
  lines.push(
    row(`twelve steps, ${form === 'standard' ? 'fused rotation' : 'rotation'}`, calls, read, written, buffered),
    `  ${cost.count} ${cost.count === 1 ? 'call' : 'calls'} for ${calls}, ${(100 * moved).toFixed(1)} % of the bytes`,
  );
  return lines;
}

function toJson({ made, bytes, form, opset, cost, sizes, baseline }: Report, out: string | undefined): unknown {
  const { model } = made;
  return {
    file: out ?? null,
    bytes,
    form,
    opset,
    ...(made.angles ? { angles: made.angles } : {}),
    inputs: model.inputs,
    outputs: model.outputs,
    nodes: { calls: cost.count, views: cost.views, byType: Object.fromEntries(cost.calls) },
    constants: { count: model.initializers.size, bytes: constantBytes(model) },
    ...(made.precision ? { precision: made.precision } : {}),
    ...(sizes
      ? {
          count: {
            ...sizes,
            bytesRead: cost.bytesRead,
            bytesWritten: cost.bytesWritten,
            bytesBuffered: cost.bytesBuffered,
          },
        }
      : {}),
    ...(baseline ? { baseline } : {}),
  };
}

function thousands(n: number): string {
  return String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}
