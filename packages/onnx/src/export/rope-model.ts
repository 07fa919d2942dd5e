/**
 * A RoPE as an ONNX model for deployment: batch and sequence stay open, positions are an input, tables are constants.
 *
 * @module
 */
import { type FloatDtype, planRope, type RopeLayout, type RopeSpec, tensorFrom } from 'ropewalk';
import { fail, newArray, refuse, storeNumber } from 'ropewalk/backend';
import { type OptionNames, optionNames, readName, readOptions } from 'ropewalk/internal';
import type { AngleConstants, AngleMode, CosSin } from './angles.js';
import { ANGLE_MODES, angleConstants, anglesInGraph, tableOver } from './angles.js';
import { GraphBuilder } from './builder.js';
import type { GraphForm } from './fragments.js';
import { narrowed, rmsNorm } from './fragments.js';
import { cosSinFor, type Geometry, rotate, rotateStandard } from './rope.js';

/** The options of {@link ropeModel}. */
export interface RopeModelOptions {
  readonly spec: RopeSpec;
  readonly direction?: 'forward' | 'backward';
  readonly form: GraphForm;
  /**
   * Standard takes f32-table (default) or f16-table; primitives take all. Default: f64 for f64 data, else f32-reduced.
   */
  readonly angles?: AngleMode;
  /** The dtype of the data. Default: f32. */
  readonly dtype?: FloatDtype;
  /** Default: bsnh. */
  readonly layout?: RopeLayout;
  /** The number of heads of x, or of q. Default: 1. */
  readonly heads?: number;
  /** The number of heads of k. Without it there is one tensor, x. */
  readonly kvHeads?: number;
  /** Positions are in [0, context). Default: 4096 if the angles come from a table, else 2^31, the largest possible. */
  readonly context?: number;
  /** Adds an RMS norm of each head, with this epsilon, before the rotation. Its weights are inputs. */
  readonly normEps?: number;
  /** Writes k into rows of a cache, with the inputs k_cache and cache_rows. */
  readonly kvCache?: boolean;
}

const NAMES: OptionNames<RopeModelOptions> = /* @__PURE__ */ optionNames(
  'spec direction form angles dtype layout heads kvHeads context normEps kvCache',
);

/** A model's graph, and how it computes its angles. */
export interface RopeModel {
  readonly graph: GraphBuilder;
  readonly angles: AngleMode;
  /** The number of positions that it serves. Beyond them a table ends, and computed angles may have too few digits. */
  readonly context: number;
}

/** The default number of positions of a table. */
export const TABLE_CONTEXT = 4096;
/** The default number of positions for computed angles: all of an i32. */
const ALL_POSITIONS = 2 ** 31;

/**
 * Builds the graph of a RoPE.
 *
 * Inputs: x, or q and k, `[batch, seq, heads, head_dim]` in bsnh or `[batch, heads, seq, head_dim]` in bnsh;
 * position_ids, i64 `[batch, seq]`, or `[axes, batch, seq]` with several axes; with a norm x_weight, or q_weight and
 * k_weight, `[head_dim]`; with a cache k_cache `[batch, cache, kv_heads, head_dim]` and cache_rows, i64 `[batch, seq,
 * 2]`, the batch and the row of each token. Outputs: y, or q_out and k_out, in the shapes of the inputs; with a cache,
 * k_out is the whole cache.
 *
 * @param options - the RoPE and the kind of model
 * @throws {RopewalkError} UNSUPPORTED for a model that no graph can express; RANGE for sizes, or if the options or the
 *   spec are no object
 */
export function ropeModel(options: RopeModelOptions): RopeModel {
  const given = readOptions(options, 'export: options', NAMES);
  const { direction = 'forward', dtype = 'f32', layout = 'bsnh', heads = 1, kvHeads, normEps, kvCache } = given;
  const spec = readOptions(given.spec, 'export: spec');
  const form = readName(given.form, ['standard', 'primitives'], 'export: form');
  readName(dtype, ['f64', 'f32', 'f16', 'bf16'], 'export: dtype');
  checkSize('heads', heads);
  if (kvHeads !== undefined) checkSize('kv_heads', kvHeads);
  if (normEps !== undefined && !(Number.isFinite(normEps) && normEps >= 0))
    refuse('RANGE', 'export: norm_eps', 'a finite number >= 0', normEps);
  if (layout !== 'bsnh' && layout !== 'bnsh') refuse('UNSUPPORTED', 'export: layout', 'bsnh or bnsh', layout);
  if (kvCache && kvHeads === undefined)
    fail('UNSUPPORTED', 'export: kv_cache', 'a cache is for k beside q. Give kv_heads, the heads of k.');
  if (kvCache && layout === 'bnsh')
    fail('UNSUPPORTED', 'export: kv_cache', 'ScatterND finds tokens by batch and row. Use layout bsnh.');
  const angles = anglesFor(form, given.angles, dtype);
  const context = given.context ?? (angles.endsWith('-table') ? TABLE_CONTEXT : ALL_POSITIONS);
  checkSize('context', context);
  const c = angleConstants(spec, direction);
  const plan: Geometry = planRope({ ...spec, positions: 0, seqLen: 1, direction });
  const b = new GraphBuilder();
  // The graph computes in f16 only if the caller asks for it. Otherwise results are rounded once.
  const compute = dtype === 'f64' ? 'f64' : angles === 'f16-table' ? 'f16' : 'f32';
  const parts = (
    kvHeads === undefined
      ? [['x', 'y', heads]]
      : [
          ['q', 'q_out', heads],
          ['k', 'k_out', kvHeads],
        ]
  ) as [string, string, number][];
  const shapeOf = (count: number): (number | string)[] =>
    layout === 'bsnh' ? ['batch', 'seq', count, spec.headDim] : ['batch', count, 'seq', spec.headDim];
  const data = parts.map(([name, , count]) => b.input(name, dtype, shapeOf(count)));
  const ids = b.input('position_ids', 'i64', c.numAxes === 1 ? ['batch', 'seq'] : [c.numAxes, 'batch', 'seq']);
  const wide = (value: string, from: FloatDtype = dtype): string => (from === compute ? value : b.cast(value, compute));
  const round = (value: string): string => (compute === 'f16' ? value : narrowed(b, value, compute, dtype));

  const standard = form === 'standard';
  const tables = standard && c.numAxes === 1 ? constantTables(b, c, compute, context) : undefined;
  const cosSin = tables ?? cosSinOf(b, c, angles, compute, ids, context);
  let shaped: [string, string] | undefined;
  for (const [p, [name, out, count]] of parts.entries()) {
    let value = wide(data[p]!);
    if (normEps !== undefined)
      value = normed(b, value, wide(b.input(`${name}_weight`, dtype, [spec.headDim])), normEps, compute, form);
    if (standard)
      value = rotateStandard(b, value, { ...cosSin, positionIds: tables && ids, heads: count }, plan, layout, false);
    else {
      shaped ??= cosSinFor(b, cosSin, layout, plan, compute);
      value = rotate(b, value, shaped, plan);
    }
    if (!kvCache || name !== 'k') {
      b.output(round(value), out, dtype, shapeOf(count));
      continue;
    }
    const shape = ['batch', 'cache', count, spec.headDim];
    const cache = wide(b.input('k_cache', dtype, shape));
    const rows = b.input('cache_rows', 'i64', ['batch', 'seq', 2]);
    b.output(round(b.add('ScatterND', [cache, rows, value])), out, dtype, shape);
  }
  return { graph: b, angles, context };
}

type Compute = CosSin['dtype'];

function checkSize(name: string, value: number): void {
  if (!Number.isInteger(value) || value < 1 || value > 2 ** 31)
    refuse('RANGE', `export: ${name}`, 'an integer in [1, 2^31]', value);
}

function anglesFor(form: GraphForm, angles: AngleMode | undefined, dtype: FloatDtype): AngleMode {
  const chosen = angles ?? (form === 'standard' ? 'f32-table' : dtype === 'f64' ? 'f64' : 'f32-reduced');
  readName(chosen, ANGLE_MODES, 'export: angles');
  if (form === 'standard') {
    if (dtype === 'f64') fail('UNSUPPORTED', 'export: form', 'RotaryEmbedding does not take f64. Use form primitives.');
    if (!chosen.endsWith('-table'))
      fail(
        'UNSUPPORTED',
        'export: angles',
        `form standard takes cos and sin from tables: f32-table or f16-table. Use form primitives for ${chosen}.`,
      );
  }
  if (chosen === 'f16-table' && dtype !== 'f16')
    fail('UNSUPPORTED', 'export: angles', `f16-table is for f16 data, and the dtype is ${dtype}. Use f32-table.`);
  if (dtype === 'f64' && chosen !== 'f64')
    fail('UNSUPPORTED', 'export: angles', `f64 data needs angles f64, not ${chosen}. Leave angles out.`);
  return chosen;
}

/** In f16 the squares would overflow, so the norm is computed in f32. */
function normed(b: GraphBuilder, x: string, weight: string, eps: number, compute: Compute, form: GraphForm): string {
  if (compute !== 'f16') return rmsNorm({ b, form, compute }, x, weight, eps);
  return b.cast(rmsNorm({ b, form, compute: 'f32' }, b.cast(x, 'f32'), b.cast(weight, 'f32'), eps), 'f16');
}

function tableConstant(b: GraphBuilder, name: string, values: Float64Array, rows: number, dtype: Compute): string {
  const data = newArray(dtype, values.length);
  for (const [n, value] of values.entries()) storeNumber(data, dtype, n, value);
  return b.constant(name, tensorFrom(data, { dtype, shape: [rows, values.length / rows] }));
}

/** Appends cos and sin of positions 0 to context − 1 as constants, `[context, pairs]`. */
export function constantTables(b: GraphBuilder, c: AngleConstants, dtype: Compute, context: number): CosSin {
  const table = tableOver(c, context);
  const constant = (part: 'cos' | 'sin'): string => tableConstant(b, `${part}_cache`, table[part], context, dtype);
  return { cos: constant('cos'), sin: constant('sin'), dtype };
}

/** Appends cos and sin of each token, `[batch, seq, pairs]`. */
export function cosSinOf(
  b: GraphBuilder,
  c: AngleConstants,
  mode: AngleMode,
  compute: Compute,
  positions: string,
  context: number,
): CosSin {
  if (mode !== 'f32-table' && mode !== 'f16-table') {
    const cosSin = anglesInGraph(b, c, mode, { positions, maxPosition: context - 1 });
    if (cosSin.dtype === compute) return cosSin;
    return { cos: b.cast(cosSin.cos, compute), sin: b.cast(cosSin.sin, compute), dtype: compute };
  }
  if (c.numAxes === 1) {
    const { cos, sin } = constantTables(b, c, compute, context);
    const look = (table: string): string => b.add('Gather', [table, positions], { axis: 0 });
    return { cos: look(cos), sin: look(sin), dtype: compute };
  }
  return tablesByAxis(b, c, compute, positions, context);
}

/** Looks up the rows of each axis in a table of its pairs, and puts them side by side. */
function tablesByAxis(b: GraphBuilder, c: AngleConstants, dtype: Compute, positions: string, context: number): CosSin {
  const lists = { cos: [] as string[], sin: [] as string[] };
  const order: number[] = [];
  for (let axis = 0; axis < c.numAxes; axis++) {
    const pairs = Array.from(c.axisOfPair.keys()).filter((j) => c.axisOfPair[j] === axis);
    if (pairs.length === 0) continue;
    const which = b.constant('axis', tensorFrom(BigInt64Array.of(BigInt(axis)), { shape: [] }));
    const ids = b.add('Gather', [positions, which], { axis: 0 });
    const table = tableOver(c, context, pairs);
    for (const name of ['cos', 'sin'] as const) {
      const rows = tableConstant(b, `${name}_cache_${axis}`, table[name], context, dtype);
      lists[name].push(b.add('Gather', [rows, ids], { axis: 0 }));
    }
    order.push(...pairs);
  }
  const inOrder = order.every((j, n) => j === n);
  // Column j of the result is the place of pair j in the tables side by side.
  const columns = Array.from(order.keys(), (j) => order.indexOf(j));
  const places = inOrder ? '' : b.integers('pair_order', columns);
  const whole = (list: readonly string[]): string => {
    const beside = list.length === 1 ? list[0]! : b.add('Concat', list, { axis: 2 });
    return inOrder ? beside : b.add('Gather', [beside, places], { axis: 2 });
  };
  return { cos: whole(lists.cos), sin: whole(lists.sin), dtype };
}
