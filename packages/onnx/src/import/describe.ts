/**
 * Says what a found RoPE is: pairing, sizes, layout, where cos and sin come from, at which frequencies it turns.
 *
 * @module
 */
import { type RopeSpec, RopewalkError } from 'ropewalk';
import { countElements } from 'ropewalk/backend';
import { numberAttribute } from '../operators/attributes.js';
import type { Dim } from '../operators/operator.js';
import { CannotEvaluate, type Value } from '../operators/values.js';
import { MAX_CHANNELS } from './algebra.js';
import { Evaluation } from './evaluate.js';
import type { FoundArithmetic, FoundAttention, FoundNode } from './find.js';
import {
  type FoundFrequencies,
  type NoFrequencies,
  recoverFrequencies,
  type Sample,
  type Sampler,
} from './frequencies.js';
import type { PairTables, Rotation } from './rotation.js';
import type { Scope } from './scope.js';
import { ancestryOf, isConstant, positionsBehind } from './sources.js';
import { MembersDiffer, tablesOf } from './tables.js';

/** Where the angles' positions come from. */
export type PositionSource =
  /** An input of the graph: `position_ids`. */
  | { readonly from: 'input'; readonly name: string; readonly shape: readonly Dim[] | undefined }
  /** Computed in the graph; `needs` are the inputs behind it, of which some give their shape alone. */
  | { readonly from: 'graph'; readonly name: string; readonly operator: string; readonly needs: readonly string[] }
  /** The row of a token's angles is its place in the sequence. */
  | { readonly from: 'rows' }
  /** Attention counts by itself, from the lengths of its cache. */
  | { readonly from: 'inside' };

/** Where cos and sin come from. */
export interface TableSource {
  /**
   * - `cache`: a table of constants, of which positions choose rows
   * - `computed`: cosine and sine of position × frequency, in the graph
   * - `input`: the graph is given cos and sin
   * - `inside`: attention's own
   * - `unknown`: operators that are not known here lie behind them
   */
  readonly from: 'cache' | 'computed' | 'input' | 'inside' | 'unknown';
  readonly cos: readonly string[];
  readonly sin: readonly string[];
  /** Positions in a cache. */
  readonly rows?: number;
  readonly dtype?: string;
}

/** One RoPE of a model, in words and numbers; JSON holds all of it. */
export interface RopeDescription {
  readonly name: string;
  /** '' for the model's own graph; else the function, or the node and the branch, that it lies in. */
  readonly scope: string;
  /** `RotaryEmbedding (ai.onnx)`, `RotaryEmbedding (com.microsoft)`, `GroupQueryAttention (com.microsoft)`, `arithmetic`. */
  readonly form: string;
  /** The values that go in and come out. */
  readonly x: string;
  readonly y: string;
  readonly pairing?: string;
  readonly direction?: 'forward' | 'backward';
  readonly headDim?: number;
  readonly rotaryDim?: number;
  readonly rotaryOffset?: number;
  readonly numHeads?: number;
  /** Of x: b batch, s token, n head, h head_dim; `bs(nh)` for heads inside the last dimension. */
  readonly layout?: string;
  readonly dtype?: string;
  readonly tables: TableSource;
  readonly positions: PositionSource;
  readonly frequencies?: FoundFrequencies;
  /** With several position axes: the one that turns each pair. */
  readonly axisOfPair?: readonly number[];
  /** The same RoPE in this package's words, where its law is known. */
  readonly spec?: RopeSpec;
  readonly notes: readonly string[];
  /** Why it cannot be run here; undefined when it can. */
  readonly whyNotRun?: string;
}

/** What {@link describe} found out beside the description. */
export interface Described {
  readonly description: RopeDescription;
  /** Set when a closer look says that it is none. */
  readonly because?: string;
}

/**
 * Describes one RoPE.
 *
 * @param found - from {@link findRope}
 */
export function describe(found: FoundNode | FoundArithmetic | FoundAttention): Described {
  if (found.kind === 'attention') return { description: describeAttention(found) };
  return found.kind === 'node' ? describeNode(found) : describeArithmetic(found);
}

/** The inputs of a RotaryEmbedding node, whichever standard orders them. */
export function nodeInputs({ node, dialect }: FoundNode): {
  x: string;
  cos: string;
  sin: string;
  ids: string | undefined;
} {
  const [x = '', a = '', b = '', c = ''] = node.inputs;
  if (dialect === 'onnx') return { x, cos: a, sin: b, ids: c === '' ? undefined : c };
  return { x, cos: b, sin: c, ids: a === '' ? undefined : a };
}

/** The values at which positions enter; one where they all come from one input of the graph, as the axes of M-RoPE do. */
export function positionValues(found: FoundNode | FoundArithmetic): string[] {
  const { scope } = found;
  const entries = (values: readonly string[]): string[] => [
    ...new Set(values.flatMap((value) => [...positionsBehind(scope, value)])),
  ];
  if (found.kind === 'node') {
    const { cos, sin, ids } = nodeInputs(found);
    return joined(scope, entries(ids === undefined ? [cos, sin] : [ids]));
  }
  return joined(scope, entries(tableNames(found)));
}

function joined(scope: Scope, values: readonly string[]): string[] {
  if (values.length < 2) return [...values];
  const ancestries = values.map((value) => ancestryOf(scope, value));
  const inputs = new Set(ancestries.flatMap((ancestry) => [...ancestry.inputs]));
  const clear = ancestries.every(({ inputs: own, unknown }) => own.size > 0 && unknown.size === 0);
  return clear && inputs.size === 1 ? [...inputs] : [...values];
}

function tableNames(found: FoundArithmetic): string[] {
  return [...new Set(found.rotation.tables.flatMap(({ cos, sin }) => [...cos, ...sin].map(({ leaf }) => leaf)))];
}

const NOT_TOP = 'it lies in a function or inside a node: only the graph of the model itself is run';

function describeNode(found: FoundNode): Described {
  const { node, shapes, scope, dialect } = found;
  const { x, cos, sin, ids } = nodeInputs(found);
  const shape = shapes.shapeOf(x);
  const width = numberOr(shapes.shapeOf(cos)?.at(-1));
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
    // Read and not used: microsoft/onnxruntime@0941ecb contrib_ops/cpu/bert/rotary_embedding.cc.
    const scale = numberAttribute(node, 'scale', 1);
    if (scale !== 1)
      notes.push(`scale is ${scale}: ONNX Runtime's kernels read it and do nothing with it, and so is it here`);
    if (numberAttribute(node, 'is_packed_batching', 0) !== 0)
      notes.push('is_packed_batching: sequences of different lengths lie in one batch');
  }
  const tables = { ...tableSource(found, [cos], [sin]), ...rowsOf(shapes.shapeOf(cos)) };
  const base = {
    name: found.name,
    scope: found.scopeName,
    form: `RotaryEmbedding (${dialect === 'onnx' ? 'ai.onnx' : 'com.microsoft'})`,
    x,
    y: node.outputs[0] ?? '',
    pairing,
    direction: 'forward' as const,
    ...defined({ headDim, rotaryDim, numHeads }),
    rotaryOffset: 0,
    ...(shape ? { layout: shape.length === 4 ? 'bnsh' : 'bs(nh)' } : {}),
    ...dtypeOf(scope.declared(x)?.dtype),
    tables,
    positions: positionSource(found),
    ...(found.scopeName === '' ? {} : { whyNotRun: NOT_TOP }),
  };
  const pairs = (rotaryDim ?? (width ?? 0) * 2) / 2;
  if (pairs < 1) return finish(base, undefined, undefined, notes);
  if (!Number.isInteger(pairs) || pairs > (width ?? MAX_CHANNELS))
    return finish(
      base,
      { because: `tables of ${width ?? 'unknown'} columns do not fit a rotary_dim of ${rotaryDim}` },
      undefined,
      notes,
    );
  if (pairs > MAX_CHANNELS)
    return finish(base, { because: `heads of ${2 * pairs} are wider than any` }, undefined, notes);
  if (ids !== undefined) return finish(base, cacheFrequencies(found, cos, sin, pairs), undefined, notes);
  // Caches gathered before: their arithmetic is asked as that of a written-out rotation is.
  const pairTables = Array.from({ length: pairs }, (_, at): PairTables => {
    const [c, s] = [cos, sin].map((leaf) => ({ leaf, at }));
    return { cos: [c!, c!], sin: [s!, s!] };
  });
  const rotation: Rotation = {
    headDim: headDim ?? 2 * pairs,
    rotaryDim: 2 * pairs,
    rotaryOffset: 0,
    pairing,
    direction: 'forward',
    scale: 1,
    tables: pairTables,
  };
  const trails = new Map([cos, sin].map((leaf) => [leaf, [width ?? pairs]]));
  return withFrequencies(base, { ...found, kind: 'arithmetic', x, y: base.y, rotation, trails }, notes);
}

function describeAttention({ node, shapes, scope, name, scopeName, work }: FoundAttention): RopeDescription {
  const cacheAt = { GroupQueryAttention: 7, PagedAttention: 9 }[node.opType];
  const [cos, sin] = cacheAt === undefined ? ['', ''] : [node.inputs[cacheAt] ?? '', node.inputs[cacheAt + 1] ?? ''];
  const shape = cos === '' ? undefined : shapes.shapeOf(cos);
  const width = numberOr(shape?.at(-1));
  const numHeads = numberAttribute(node, 'num_heads', 0);
  const given = numberAttribute(node, 'rotary_embedding_dim', 0);
  const rotaryDim = given > 0 ? given : width && 2 * width;
  const hidden = numberOr(shapes.shapeOf(node.inputs[0] ?? '')?.[2]);
  const packed = (node.inputs[1] ?? '') === '' && node.opType === 'GroupQueryAttention';
  const heads = numHeads + (packed ? 2 * numberAttribute(node, 'kv_num_heads', 0) : 0);
  const headDim = hidden && heads && Number.isInteger(hidden / heads) ? hidden / heads : undefined;
  const tables: TableSource =
    cos === ''
      ? { from: 'inside', cos: [], sin: [] }
      : { from: isConstant(scope, cos) ? 'cache' : 'computed', cos: [cos], sin: [sin], ...rowsOf(shape) };
  const base = {
    name,
    scope: scopeName,
    form: `${node.opType} (com.microsoft)`,
    x: node.inputs[0] ?? '',
    y: node.outputs[0] ?? '',
    pairing: numberAttribute(node, 'rotary_interleaved', 0) === 0 ? 'half' : 'interleaved',
    direction: 'forward' as const,
    ...defined({ headDim, rotaryDim, numHeads: numHeads || undefined }),
    rotaryOffset: 0,
    tables,
    positions: { from: 'inside' as const },
    whyNotRun:
      'it is a part of attention, which turns q and k before they meet: its rotation alone has no output in the graph',
  };
  const frequencies = cos !== '' && width ? cacheFrequencies({ shapes, scope, work }, cos, sin, width) : undefined;
  return finish(base, frequencies, undefined, []).description;
}

function describeArithmetic(found: FoundArithmetic): Described {
  const { rotation, scope, shapes, x } = found;
  const names = tableNames(found);
  const shape = shapes.shapeOf(x)!;
  const layout = layoutOf(
    shape.length,
    names.map((leaf) => shapes.shapeOf(leaf)?.slice(0, -found.trails.get(leaf)!.length)),
  );
  const notes: string[] = [];
  if (rotation.scale !== 1)
    notes.push(`cos and sin are multiplied by ${rotation.scale} in the graph, outside their tables`);
  const [cos, sin] = (['cos', 'sin'] as const).map((part) => [
    ...new Set(rotation.tables.flatMap((table) => table[part].map(({ leaf }) => leaf))),
  ]);
  const tables = tableSource(found, cos!, sin!);
  const positions = positionSource(found);
  const numHeads = layout?.includes('n') ? numberOr(shape[layout.indexOf('n')]) : undefined;
  const base = {
    name: found.name,
    scope: found.scopeName,
    form: 'arithmetic',
    x,
    y: found.y,
    pairing: rotation.pairing,
    direction: rotation.direction,
    headDim: rotation.headDim,
    rotaryDim: rotation.rotaryDim,
    rotaryOffset: rotation.rotaryOffset,
    ...defined({ numHeads }),
    ...(layout ? { layout } : {}),
    ...dtypeOf(scope.declared(x)?.dtype),
    tables,
    positions,
    ...(found.scopeName !== ''
      ? { whyNotRun: NOT_TOP }
      : tables.from === 'unknown'
        ? {
            whyNotRun: `operators that are not computed here lie behind its tables: ${[...unknownBehind(found)].join(', ')}`,
          }
        : {}),
  };
  return withFrequencies(base, found, notes);
}

function withFrequencies(base: Base, found: FoundArithmetic, notes: readonly string[]): Described {
  try {
    const { frequencies, axisOfPair } = graphFrequencies(found);
    return finish(base, frequencies, axisOfPair, notes);
  } catch (error) {
    if (error instanceof MembersDiffer) return { ...finish(base, undefined, undefined, notes), because: error.message };
    if (!(error instanceof CannotEvaluate || error instanceof RopewalkError)) throw error;
    return finish(base, { because: error.message }, undefined, notes);
  }
}

type Base = Omit<RopeDescription, 'frequencies' | 'axisOfPair' | 'spec' | 'notes'>;

function finish(
  base: Base,
  frequencies: FoundFrequencies | NoFrequencies | undefined,
  axisOfPair: readonly number[] | undefined,
  notes: readonly string[],
): Described {
  if (!frequencies) return { description: { ...base, notes } };
  if ('because' in frequencies) {
    const description = { ...base, notes: [...notes, `frequencies are not known: ${frequencies.because}`] };
    return frequencies.swapped && base.form === 'arithmetic'
      ? { description, because: frequencies.because }
      : { description };
  }
  const all = [...notes];
  const { invFreq, departs } = frequencies;
  const backwards = invFreq.every((frequency) => frequency <= 0) && invFreq.some((frequency) => frequency < 0);
  if (departs)
    all.push(
      `from position ${departs.position} on the angles of ${departs.pairs} of ${invFreq.length} pairs are not position × frequency: ` +
        'it is made for shorter contexts, or changes there; the frequencies are those of the positions below',
    );
  if (backwards && base.direction === 'forward')
    all.push('the tables turn the other way: sin has a minus sign in them');
  const spec = specOf(base, frequencies, axisOfPair);
  return {
    description: { ...base, frequencies, ...(axisOfPair ? { axisOfPair } : {}), ...(spec ? { spec } : {}), notes: all },
  };
}

function specOf(
  base: Base,
  { law, magnitude, invFreq }: FoundFrequencies,
  axisOfPair: readonly number[] | undefined,
): RopeSpec | undefined {
  const { headDim, rotaryDim, rotaryOffset } = base;
  if (law.kind !== 'power' || axisOfPair || !headDim || !rotaryDim || invFreq[0]! < 0) return undefined;
  return {
    headDim,
    ...(rotaryDim === headDim ? {} : { rotaryDim }),
    ...(rotaryOffset ? { rotaryOffset } : {}),
    pairing: base.pairing as RopeSpec['pairing'],
    base: law.base,
    ...(law.factor === 1 ? {} : { scaling: { kind: 'linear', factor: law.factor } }),
    ...(magnitude === 1 ? {} : { attentionFactor: magnitude }),
  };
}

/** What the tables' dtype rounds by. */
function unitOf(dtype: string): number {
  return dtype === 'f16' ? 2 ** -11 : dtype === 'bf16' ? 2 ** -8 : 2 ** -24;
}

/** Frequencies of caches that RotaryEmbedding reads: `[rows, width]`. */
function cacheFrequencies(
  { scope, shapes, work }: Pick<FoundNode, 'scope' | 'shapes' | 'work'>,
  cos: string,
  sin: string,
  pairs: number,
): FoundFrequencies | NoFrequencies {
  try {
    const evaluation = new Evaluation(scope, shapes, { wholeCaches: true }, work);
    const [c, s] = [evaluation.value(cos), evaluation.value(sin)];
    const [rows = 0, width = 0] = c.shape;
    if (c.shape.length !== 2 || s.shape.join() !== c.shape.join() || width < pairs)
      return { because: `cos_cache has the shape [${c.shape}] and sin_cache [${s.shape}]` };
    const pick = (value: Value, positions: readonly number[]): Float64Array =>
      Float64Array.from(
        { length: positions.length * pairs },
        (_, n) => value.data[positions[Math.floor(n / pairs)]! * width + (n % pairs)]!,
      );
    return recoverFrequencies(
      (positions) => ({ cos: pick(c, positions), sin: pick(s, positions) }),
      rows,
      pairs,
      unitOf(c.dtype),
    );
  } catch (error) {
    if (error instanceof CannotEvaluate || error instanceof RopewalkError) return { because: error.message };
    throw error;
  }
}

/** Runs the graph's own arithmetic at a few positions. */
function graphFrequencies(found: FoundArithmetic): {
  frequencies: FoundFrequencies | NoFrequencies;
  axisOfPair?: readonly number[];
} {
  const pairs = found.rotation.tables.length;
  const [position, ...others] = positionValues(found);
  if (others.length > 0)
    throw new CannotEvaluate(`positions enter in several places: ${[position, ...others].join(', ')}`);
  const unit = tableUnit(found);
  if (position === undefined) {
    // Each row is its own position.
    const tables = tablesOf(found, evaluationAt(found, new Map()));
    const axis = tables.outer.indexOf(Math.max(...tables.outer));
    const stride = countElements(tables.outer.slice(axis + 1)) * pairs;
    const rows = tables.outer[axis] ?? 1;
    const pick = (all: Float64Array, positions: readonly number[]): Float64Array =>
      Float64Array.from(
        { length: positions.length * pairs },
        (_, n) => all[positions[Math.floor(n / pairs)]! * stride + (n % pairs)]!,
      );
    const sampler: Sampler = (positions) => ({ cos: pick(tables.cos, positions), sin: pick(tables.sin, positions) });
    return { frequencies: recoverFrequencies(sampler, rows, pairs, unit) };
  }
  const shape = found.shapes.shapeOf(position);
  const rows = cacheRows(found) ?? Number.POSITIVE_INFINITY;
  const axes = shape?.length === 3 && typeof shape[0] === 'number' && shape[0] > 1 && shape[0] <= pairs ? shape[0] : 1;
  const together = recoverFrequencies(sampler(found, position, shape, axes, undefined), rows, pairs, unit);
  if (axes === 1 || 'because' in together) return { frequencies: together };
  // One axis at a time: the pairs that turn are its own.
  const axisOfPair = new Array<number>(pairs).fill(-1);
  for (let axis = 0; axis < axes; axis++) {
    const { cos, sin } = sampler(found, position, shape, axes, axis)([0, 1]);
    for (let j = 0; j < pairs; j++) if (cos[pairs + j] !== cos[j] || sin[pairs + j] !== sin[j]) axisOfPair[j] = axis;
  }
  return axisOfPair.every((axis) => axis === 0) ? { frequencies: together } : { frequencies: together, axisOfPair };
}

function tableUnit(found: FoundArithmetic): number {
  // What lies between the cosine and the rotation may be narrower than the rotation.
  let unit = 2 ** -24;
  for (const leaf of tableNames(found)) {
    for (const value of ancestryOf(found.scope, leaf).values) {
      const constant = found.scope.initializer(value);
      const node = found.scope.maker(value);
      const to = node?.opType === 'Cast' ? numberAttribute(node, 'to', 1) : 0;
      if (constant?.dtype === 'bf16' || to === 16) unit = Math.max(unit, 2 ** -8);
      if (constant?.dtype === 'f16' || to === 10) unit = Math.max(unit, 2 ** -11);
    }
  }
  return unit;
}

function evaluationAt(found: FoundArithmetic, values: ReadonlyMap<string, Value>): Evaluation {
  return new Evaluation(found.scope, found.shapes, { values, wholeCaches: true }, found.work);
}

/** As many positions are fed as the graph declares while they are no more than this. */
const MAX_DECLARED = 4096;

/**
 * Feeds positions in the shape that the graph declares, where that is small. A declared size is a number in a file: where it is large, sizes are
 * taken for ones that each call chooses, unless the graph's own shapes contradict.
 */
function sampler(
  found: FoundArithmetic,
  name: string,
  declared: readonly Dim[] | undefined,
  axes: number,
  only: number | undefined,
): Sampler {
  const dims = declared ?? ['batch', 'sequence'];
  const free = dims.map((dim, d) => (d === 0 && axes > 1 ? dim : `#${d}`));
  return (positions) => {
    const asDeclared = (): Sample => sampleAt(found, name, dims, axes, only, positions);
    if (countElements(fedShape(dims, positions.length)) <= MAX_DECLARED) return asDeclared();
    try {
      return sampleAt(found, name, free, axes, only, positions);
    } catch (error) {
      if (!(error instanceof CannotEvaluate) || error instanceof MembersDiffer) throw error;
      return asDeclared();
    }
  };
}

/** Names of sizes stand for one batch, and in the last dimension for all positions at once. */
function fedShape(dims: readonly Dim[], positions: number): number[] {
  return dims.map((dim, d) => (typeof dim === 'number' ? dim : d === dims.length - 1 ? positions : 1));
}

function sampleAt(
  found: FoundArithmetic,
  name: string,
  dims: readonly Dim[],
  axes: number,
  only: number | undefined,
  positions: readonly number[],
): Sample {
  const pairs = found.rotation.tables.length;
  const shape = fedShape(dims, positions.length);
  const chunk = shape.at(-1) ?? 1;
  if (chunk === 0) throw new CannotEvaluate(`${name} holds no positions`);
  const cos = new Float64Array(positions.length * pairs);
  const sin = new Float64Array(positions.length * pairs);
  for (let start = 0; start < positions.length; start += chunk) {
    const count = countElements(shape);
    const values = new Map<string, Value>();
    const evaluation = evaluationAt(found, values);
    evaluation.fits(shape);
    const data = new Float64Array(count);
    for (let n = 0; n < count; n++) {
      const axis = Math.floor(n / (count / axes));
      if (only === undefined || axis === only) data[n] = positions[start + (n % chunk)] ?? 0;
    }
    values.set(name, { dtype: 'i64', shape, data });
    const tables = tablesOf(found, evaluation);
    const at = tables.outer.lastIndexOf(chunk);
    if (at < 0 && chunk > 1) throw new CannotEvaluate(`${chunk} positions give tables of [${tables.outer}]`);
    const stride = at < 0 ? 0 : countElements(tables.outer.slice(at + 1)) * pairs;
    for (let n = 0; n < Math.min(chunk, positions.length - start); n++) {
      for (let j = 0; j < pairs; j++) {
        cos[(start + n) * pairs + j] = tables.cos[n * stride + j]!;
        sin[(start + n) * pairs + j] = tables.sin[n * stride + j]!;
      }
    }
  }
  return { cos, sin };
}

/** The rows of the constant that positions choose from. */
function cacheRows(found: FoundArithmetic): number | undefined {
  const { scope, shapes } = found;
  const positions = new Set(positionValues(found));
  for (const leaf of tableNames(found)) {
    for (const value of ancestryOf(scope, leaf, positions).values) {
      const node = scope.maker(value);
      if (node?.opType !== 'Gather' || !behind(scope, node.inputs[1] ?? '', positions)) continue;
      const rows =
        largestConstant(found, node.inputs[0] ?? '') ??
        shapes.shapeOf(node.inputs[0] ?? '')?.at(numberAttribute(node, 'axis', 0));
      if (typeof rows === 'number') return rows;
    }
  }
  return undefined;
}

function behind(scope: FoundArithmetic['scope'], value: string, positions: ReadonlySet<string>): boolean {
  return [...positionsBehind(scope, value)].some((name) => positions.has(name));
}

/** A cache is cut to the length in use before rows are chosen: its own rows count. */
function largestConstant({ scope, shapes, work }: FoundArithmetic, value: string): number | undefined {
  try {
    const whole = new Evaluation(scope, shapes, { wholeCaches: true }, work).value(value);
    return whole.shape.length < 2 ? undefined : Math.max(...whole.shape.slice(0, -1));
  } catch (error) {
    if (error instanceof CannotEvaluate || error instanceof RopewalkError) return undefined;
    throw error;
  }
}

function unknownBehind(found: FoundArithmetic): Set<string> {
  const stop = new Set(positionValues(found));
  return new Set(tableNames(found).flatMap((leaf) => [...ancestryOf(found.scope, leaf, stop).unknown]));
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
  const from = ancestries.some(({ unknown }) => unknown.size > 0)
    ? 'unknown'
    : floating
      ? 'input'
      : turning
        ? 'computed'
        : 'cache';
  const rows = from === 'cache' && found.kind === 'arithmetic' ? cacheRows(found) : undefined;
  const dtype = names
    .map((name) => scope.initializer(name)?.dtype ?? scope.declared(name)?.dtype)
    .find((known) => known);
  return { from, cos, sin, ...defined({ rows }), ...dtypeOf(dtype) };
}

function positionSource(found: FoundNode | FoundArithmetic): PositionSource {
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

/** The letters of x, told by where its tables do not change. */
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

function rowsOf(shape: readonly Dim[] | undefined): { rows?: number } {
  return shape?.length === 2 && typeof shape[0] === 'number' ? { rows: shape[0] } : {};
}

function numberOr(dim: Dim | undefined): number | undefined {
  return typeof dim === 'number' ? dim : undefined;
}

function dtypeOf(dtype: string | undefined): { dtype?: string } {
  return dtype === undefined ? {} : { dtype };
}

function defined<T extends Readonly<Record<string, number | undefined>>>(fields: T): { [K in keyof T]?: number } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: number;
  };
}
