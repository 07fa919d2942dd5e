/**
 * Describes a RoPE of a graph: pairing, sizes, layout, the source of cos and sin, frequencies.
 *
 * @module
 */
import type { RopeAxes, RopeSpec } from 'ropewalk';
import { didYouMean, sharePairs, show } from 'ropewalk/internal';
import { type Dim, numberAttribute } from '../operators/operator.js';
import { CannotEvaluate } from '../operators/values.js';
import { MAX_CHANNELS } from './algebra.js';
import type { Found, FoundArithmetic, FoundAttention, FoundNode } from './find.js';
import type { FoundFrequencies, NoFrequencies } from './frequencies.js';
import {
  asArithmetic,
  cacheChoice,
  cacheFrequencies,
  cacheRows,
  cachesOf,
  graphFrequencies,
  MembersDiffer,
  nodeInputs,
  positionValues,
  tableNames,
} from './sampling.js';
import { ancestryOf, isConstant } from './sources.js';

/** The source of the positions. */
export type PositionSource =
  /** An input of the graph, such as `position_ids`. */
  | { readonly from: 'input'; readonly name: string; readonly shape: readonly Dim[] | undefined }
  /** A value that the graph computes from the inputs in `needs`. Some of these give only their shape. */
  | { readonly from: 'graph'; readonly name: string; readonly operator: string; readonly needs: readonly string[] }
  /** Each token's place in the sequence is the row of its angles. */
  | { readonly from: 'rows' }
  /** Attention counts positions from the lengths of its cache. */
  | { readonly from: 'inside' };

/** The source of cos and sin. */
export interface TableSource {
  /**
   * - `cache`: a table of constants, from which positions choose rows
   * - `computed`: cosine and sine of position × frequency, in the graph
   * - `input`: cos and sin are inputs of the graph
   * - `inside`: attention has its own
   * - `unknown`: they come from operators that are not known here
   */
  readonly from: 'cache' | 'computed' | 'input' | 'inside' | 'unknown';
  readonly cos: readonly string[];
  readonly sin: readonly string[];
  /** The number of positions in a cache. */
  readonly rows?: number;
  readonly dtype?: string;
}

/** The description of one RoPE of a model. It can be written as JSON. */
export interface RopeDescription {
  readonly name: string;
  /** '' for the model's main graph; otherwise the function, or the node and branch, that contains it. */
  readonly scope: string;
  /**
   * `RotaryEmbedding (ai.onnx)`, `RotaryEmbedding (com.microsoft)`, `GroupQueryAttention (com.microsoft)`,
   * `arithmetic`.
   */
  readonly form: string;
  /** The names of the input and output values. */
  readonly x: string;
  readonly y: string;
  readonly pairing?: string;
  readonly direction?: 'forward' | 'backward';
  readonly headDim?: number;
  readonly rotaryDim?: number;
  readonly rotaryOffset?: number;
  readonly numHeads?: number;
  /** The dimensions of x: b batch, s token, n head, h head_dim; `bs(nh)` for heads inside the last dimension. */
  readonly layout?: string;
  readonly dtype?: string;
  readonly tables: TableSource;
  readonly positions: PositionSource;
  readonly frequencies?: FoundFrequencies;
  /** The axis of each pair, if there are several position axes. */
  readonly axisOfPair?: readonly number[];
  /** The same RoPE as a spec, with one factor per pair if the frequencies follow no single base. */
  readonly spec?: RopeSpec;
  /** Set if the graph chooses between two tables by the length in use (LongRoPE): the table for longer contexts. */
  readonly longer?: { readonly rows: number } & Pick<RopeDescription, 'frequencies' | 'spec'>;
  readonly notes: readonly string[];
  /** Why it cannot be run here; undefined when it can. */
  readonly whyNotRun?: string;
}

interface Described {
  readonly description: RopeDescription;
  readonly because?: string;
}

export function describe(found: Found): Described {
  if (found.kind === 'attention') return describeAttention(found);
  return found.kind === 'node' ? describeNode(found) : describeArithmetic(found);
}

const NOT_TOP = 'it lies in a function or inside a node: only the graph of the model itself is run';

function describeNode(found: FoundNode): Described {
  const { node, shapes, scope, dialect } = found;
  const { x, cos, sin, ids } = nodeInputs(found);
  const shape = shapes.shapeOf(x);
  const cacheShape = shapes.shapeOf(cos);
  const width = numberOr(cacheShape?.at(-1));
  const given = numberAttribute(node, 'rotary_embedding_dim', 0);
  const headsGiven = numberAttribute(node, 'num_heads', 0);
  const hidden = shape?.length === 3 ? numberOr(shape[2]) : undefined;
  const fromShape = shape?.length === 4 ? numberOr(shape[3]) : hidden && headsGiven ? hidden / headsGiven : undefined;
  const headDim = fromShape ?? (given === 0 && width !== undefined ? 2 * width : undefined);
  const rotaryDim = given === 0 ? headDim : given;
  const numHeads =
    shape?.length === 4 ? numberOr(shape[1]) : headsGiven || (hidden && headDim ? hidden / headDim : undefined);
  const pairing = numberAttribute(node, 'interleaved', 0) === 0 ? 'half' : 'interleaved';
  const notes: string[] = [];
  if (dialect === 'onnxruntime') {
    // ONNX Runtime reads and ignores it: microsoft/onnxruntime@0941ecb contrib_ops/cpu/bert/rotary_embedding.cc.
    const scale = numberAttribute(node, 'scale', 1);
    if (scale !== 1) notes.push(`scale is ${scale}: ONNX Runtime's kernels ignore it, and so does this import`);
    if (numberAttribute(node, 'is_packed_batching', 0) !== 0)
      notes.push('is_packed_batching: one batch holds sequences of different lengths');
  }
  const base: Base = {
    name: found.name,
    scope: found.scope.name,
    form: `RotaryEmbedding (${dialect === 'onnx' ? 'ai.onnx' : 'com.microsoft'})`,
    x,
    y: node.outputs[0] ?? '',
    pairing,
    direction: 'forward',
    headDim,
    rotaryDim,
    numHeads,
    rotaryOffset: 0,
    layout: shape && (shape.length === 4 ? 'bnsh' : 'bs(nh)'),
    dtype: scope.declared(x)?.dtype,
    tables: { ...tableSource(found, [cos], [sin]), rows: rowsOf(cacheShape) },
    positions: positionSource(found),
    whyNotRun: found.scope.name === '' ? undefined : NOT_TOP,
  };
  const strange = strangeAttribute(found);
  if (strange !== undefined) return { ...finish(base, undefined, notes), because: strange };
  const pairs = (rotaryDim ?? (width ?? 0) * 2) / 2;
  if (pairs < 1) return finish(base, undefined, notes);
  const unfit = (because: string): Described => finish(base, { because }, notes);
  if (!Number.isInteger(pairs) || pairs > (width ?? MAX_CHANNELS))
    return unfit(`tables of ${width ?? 'unknown'} columns do not fit a rotary_dim of ${rotaryDim}`);
  if (pairs > MAX_CHANNELS) return unfit(`no model has heads as wide as ${2 * pairs}`);
  if (ids !== '') return withCaches(base, found, cos, sin, pairs, notes);
  // The graph has chosen the rows before, so its arithmetic is run, as for a rotation written in primitives.
  return withFrequencies(base, asArithmetic(found, headDim ?? 2 * pairs, pairs), notes);
}

/** The attributes of the two operators. */
const ATTRIBUTES = ['interleaved', 'rotary_embedding_dim', 'num_heads'];
const CONTRIB_ATTRIBUTES = [...ATTRIBUTES, 'scale', 'is_packed_batching'];

/** Says which attribute of a node its operator does not have: most are misspelt, and would be ignored in silence. */
function strangeAttribute({ node, dialect }: FoundNode): string | undefined {
  const names = dialect === 'onnx' ? ATTRIBUTES : CONTRIB_ATTRIBUTES;
  const strange = [...node.attributes.keys()].find((name) => !names.includes(name));
  if (strange === undefined) return undefined;
  const next = didYouMean(strange, names) ?? `It has ${names.join(', ')}.`;
  return `${node.opType} has no attribute ${show(strange)}. ${next}`;
}

function describeAttention(found: FoundAttention): Described {
  const { node, shapes, scope, name } = found;
  const { x, cos, sin, ids } = nodeInputs(found);
  const shape = cos === '' ? undefined : shapes.shapeOf(cos);
  const width = numberOr(shape?.at(-1));
  const numHeads = numberAttribute(node, 'num_heads', 0);
  const given = numberAttribute(node, 'rotary_embedding_dim', 0);
  const hidden = numberOr(shapes.shapeOf(x)?.[2]);
  const isGrouped = node.opType === 'GroupQueryAttention';
  const packed = isGrouped && (node.inputs[1] ?? '') === '';
  const heads = numHeads + (packed ? 2 * numberAttribute(node, 'kv_num_heads', 0) : 0);
  const ofCache = isGrouped ? numberOr(shapes.shapeOf(node.inputs[3] ?? '')?.[3]) : undefined;
  const base: Base = {
    name,
    scope: scope.name,
    form: `${node.opType} (com.microsoft)`,
    x,
    y: node.outputs[0] ?? '',
    pairing: numberAttribute(node, 'rotary_interleaved', 0) === 0 ? 'half' : 'interleaved',
    direction: 'forward',
    headDim: ofCache ?? (hidden && heads && Number.isInteger(hidden / heads) ? hidden / heads : undefined),
    rotaryDim: given > 0 ? given : width && 2 * width,
    numHeads: numHeads || undefined,
    rotaryOffset: 0,
    tables:
      cos === ''
        ? { from: 'inside', cos: [], sin: [] }
        : {
            from: isConstant(scope, cos) || cacheChoice(found, cos) ? 'cache' : 'computed',
            cos: [cos],
            sin: [sin],
            rows: rowsOf(shape),
          },
    positions: ids === '' ? { from: 'inside' } : positionSource(found),
    whyNotRun: 'it is part of attention, which rotates q and k before they meet: the graph has no output of it alone',
  };
  return cos !== '' && width ? withCaches(base, found, cos, sin, width, []) : finish(base, undefined, []);
}

function describeArithmetic(found: FoundArithmetic): Described {
  const { rotation, scope, shapes, x, y } = found;
  const { pairing, direction, headDim, rotaryDim, rotaryOffset } = rotation;
  const shape = shapes.shapeOf(x)!;
  const outers = tableNames(found).map((leaf) => shapes.shapeOf(leaf)?.slice(0, -found.trails.get(leaf)!.length));
  const layout = layoutOf(shape.length, outers);
  const notes: string[] = [];
  if (rotation.scale !== 1)
    notes.push(`cos and sin are multiplied by ${rotation.scale} in the graph, outside their tables`);
  const leaves = (part: 'cos' | 'sin'): string[] =>
    Array.from(new Set(rotation.tables.flatMap((table) => table[part].map(({ leaf }) => leaf))));
  const tables = tableSource(found, leaves('cos'), leaves('sin'));
  const unknown = (): string => {
    const stop = new Set(positionValues(found));
    const behind = tableNames(found).flatMap((leaf) => [...ancestryOf(scope, leaf, stop).unknown]);
    return [...new Set(behind)].join(', ');
  };
  const base: Base = {
    name: found.name,
    scope: found.scope.name,
    form: 'arithmetic',
    x,
    y,
    pairing,
    direction,
    headDim,
    rotaryDim,
    rotaryOffset,
    numHeads: layout?.includes('n') ? numberOr(shape[layout.indexOf('n')]) : undefined,
    layout,
    dtype: scope.declared(x)?.dtype,
    tables,
    positions: positionSource(found),
    whyNotRun:
      found.scope.name !== ''
        ? NOT_TOP
        : tables.from === 'unknown'
          ? `its tables are made by operators that are not computed here: ${unknown()}`
          : undefined,
  };
  return withFrequencies(base, found, notes);
}

/** Describes caches from which a node reads rows by position. */
function withCaches(
  base: Base,
  found: FoundNode | FoundAttention,
  cos: string,
  sin: string,
  pairs: number,
  notes: readonly string[],
): Described {
  const read = (branch?: boolean) => {
    const caches = cachesOf(found, cos, sin, pairs, branch);
    return { rows: caches.cos.shape[0]!, dtype: caches.cos.dtype, frequencies: cacheFrequencies(caches, pairs) };
  };
  try {
    const { rows, dtype, frequencies } = read();
    const described = finish({ ...base, tables: { ...base.tables, rows, dtype } }, frequencies, notes);
    const condition = cacheChoice(found, cos);
    if (condition === undefined) return described;
    const long = read(true);
    const { description } = finish(base, long.frequencies, []);
    const { frequencies: others, spec } = description;
    const note =
      `the graph has two tables: of ${rows} positions, described here, and of ${long.rows} where ${condition} holds` +
      (others?.law.kind === 'power' ? `, with base ${others.law.base}` : '');
    const longer = { rows: long.rows, frequencies: others, spec };
    return {
      ...described,
      description: { ...described.description, longer, notes: [...described.description.notes, note] },
    };
  } catch (error) {
    if (error instanceof CannotEvaluate) return finish(base, { because: error.message }, notes);
    throw error;
  }
}

function withFrequencies(base: Base, found: FoundArithmetic, notes: readonly string[]): Described {
  try {
    const { frequencies, axisOfPair } = graphFrequencies(found);
    return finish(base, frequencies, notes, axisOfPair);
  } catch (error) {
    if (error instanceof MembersDiffer) return { ...finish(base, undefined, notes), because: error.message };
    if (!(error instanceof CannotEvaluate)) throw error;
    return finish(base, { because: error.message }, notes);
  }
}

type Base = Omit<RopeDescription, 'longer' | 'frequencies' | 'axisOfPair' | 'spec' | 'notes'>;

function finish(
  base: Base,
  frequencies: FoundFrequencies | NoFrequencies | undefined,
  given: readonly string[],
  axisOfPair?: readonly number[],
): Described {
  const notes = [...given];
  if (!frequencies) return { description: { ...base, notes } };
  if ('because' in frequencies) {
    const { because, swapped } = frequencies;
    notes.push(`frequencies are not known: ${because}`);
    return { description: { ...base, notes }, because: swapped && base.form === 'arithmetic' ? because : undefined };
  }
  const { invFreq, departs } = frequencies;
  if (departs)
    notes.push(
      `from position ${departs.position} on the angles of ${departs.pairs} of ${invFreq.length} pairs are not ` +
        'position × frequency: the graph is made for shorter contexts, or changes there; the frequencies are those ' +
        'of the positions below',
    );
  const backwards = invFreq.every((frequency) => frequency <= 0) && invFreq.some((frequency) => frequency < 0);
  if (backwards && base.direction === 'forward') notes.push('the tables rotate backward: sin has a minus sign in them');
  const spec = specOf(base, frequencies, axisOfPair);
  return { description: { ...base, frequencies, axisOfPair, spec, notes } };
}

/** The factor of a pair that does not rotate, as in llama.cpp's conversion/gemma.py. It fits an f32. */
const NO_ROTATION = 1e30;

/** Makes the spec of frequencies; undefined if no spec describes them, for example because they are negative. */
export function specOf(
  { headDim, rotaryDim, rotaryOffset, pairing }: Pick<Base, 'headDim' | 'rotaryDim' | 'rotaryOffset' | 'pairing'>,
  { law, magnitude, invFreq }: FoundFrequencies,
  axisOfPair: readonly number[] | undefined,
): RopeSpec | undefined {
  const axes = axisOfPair && (axisOfPair.includes(-1) ? undefined : axesOf(axisOfPair));
  if (!headDim || !rotaryDim || invFreq.some((frequency) => frequency < 0) || (axisOfPair && !axes)) return undefined;
  const base = law.kind === 'other' ? 10000 : law.base;
  const factorOf = (frequency: number, j: number): number => base ** ((-2 * j) / rotaryDim) / frequency;
  const spec: Record<keyof RopeSpec, unknown> = {
    headDim,
    pairing,
    base,
    rotaryDim: rotaryDim === headDim ? undefined : rotaryDim,
    rotaryOffset: rotaryOffset || undefined,
    axes,
    scaling: law.kind === 'power' && law.factor !== 1 ? { kind: 'linear', factor: law.factor } : undefined,
    freqFactors: law.kind === 'power' ? undefined : invFreq.map((f, j) => (f === 0 ? NO_ROTATION : factorOf(f, j))),
    attentionFactor: magnitude === 1 ? undefined : magnitude,
    frequencyDim: undefined,
  };
  const known = Object.entries(spec).filter(([, value]) => value !== undefined);
  return Object.fromEntries(known) as unknown as RopeSpec;
}

/** Returns the rule that gives each pair its axis; undefined if no known rule does. */
function axesOf(axisOfPair: readonly number[]): RopeAxes | undefined {
  const counts = [0, 1, 2, 3].map((axis) => axisOfPair.filter((one) => one === axis).length);
  const sections = counts[3] === 0 ? counts.slice(0, 3) : counts;
  const rules = ['sections', 'interleaved', 'interleaved-ggml'] as const;
  return rules
    .map((rule) => ({ rule, sections }))
    .find((axes) => sharePairs(axes, axisOfPair.length).axisOfPair.every((axis, j) => axis === axisOfPair[j]));
}

function tableSource(found: FoundNode | FoundArithmetic, cos: readonly string[], sin: readonly string[]): TableSource {
  const { scope } = found;
  const stop = new Set(positionValues(found));
  const names = [...cos, ...sin];
  const ancestries = names.map((name) => ancestryOf(scope, name, stop));
  const floating = ancestries
    .flatMap(({ inputs }) => [...inputs])
    .some((input) => scope.graphInput(input)?.dtype?.match(/^b?f/));
  const turning = ancestries.some(({ values }) =>
    values.some((value) => {
      const node = scope.maker(value);
      return (node?.opType === 'Cos' || node?.opType === 'Sin') && !isConstant(scope, value);
    }),
  );
  const unclear = ancestries.some(({ unknown }) => unknown.size > 0);
  const from = unclear ? 'unknown' : floating ? 'input' : turning ? 'computed' : 'cache';
  const rows = from === 'cache' && found.kind === 'arithmetic' ? cacheRows(found) : undefined;
  const dtypes = names.map((name) => scope.initializer(name)?.dtype ?? scope.declared(name)?.dtype);
  return { from, cos, sin, rows, dtype: dtypes.find((known) => known) };
}

function positionSource(found: Found): PositionSource {
  const { scope, shapes } = found;
  const [name] = positionValues(found);
  if (name === undefined) return { from: 'rows' };
  if (scope.graphInput(name)) return { from: 'input', name, shape: shapes.shapeOf(name) };
  const { inputs, shapesOf } = ancestryOf(scope, name);
  return {
    from: 'graph',
    name,
    operator: scope.maker(name)?.opType ?? 'nothing',
    needs: [...[...inputs].sort(), ...[...shapesOf].sort().map((value) => `shape of ${value}`)],
  };
}

/** Names the dimensions of x. Along heads the tables do not change. */
function layoutOf(rank: number, outers: readonly (readonly Dim[] | undefined)[]): string | undefined {
  const dims = Array.from({ length: rank - 1 }, (_, axis): Dim | undefined => {
    const all = outers.map((outer) => (outer ? (outer[axis - (rank - 1) + outer.length] ?? 1) : undefined));
    return all.includes(undefined) ? undefined : (all.find((dim) => dim !== 1) ?? 1);
  });
  const [a, b] = dims.slice(-2);
  if (rank === 2) return 'sh';
  if (a === undefined || b === undefined || rank > 4) return undefined;
  const batch = rank === 4 ? 'b' : '';
  if (a === 1 && b !== 1) return `${batch}nsh`;
  if (b === 1 && a !== 1) return `${batch}snh`;
  return rank === 3 && a !== 1 && b !== 1 ? 'bsh' : undefined;
}

function numberOr(dim: Dim | undefined): number | undefined {
  return typeof dim === 'number' ? dim : undefined;
}

/** Returns the number of positions in a cache `[rows, pairs]`. */
function rowsOf(shape: readonly Dim[] | undefined): number | undefined {
  return shape?.length === 2 ? numberOr(shape[0]) : undefined;
}
