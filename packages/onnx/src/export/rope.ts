/**
 * RoPE as a graph: the rotation by RotaryEmbedding-23 or by primitives, and the graphs of plans.
 *
 * Tensors are `[batch, seq, heads, head_dim]` (bsnh) or `[batch, heads, seq, head_dim]` (bnsh). No constant depends on
 * batch or seq, so that they can stay open.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/onnx__RotaryEmbedding.html
 */
import type { FloatDtype, RopeCall, RopeLayout, RopePlan, Tensor } from 'ropewalk';
import { tensorFrom } from 'ropewalk';
import type { RopePart } from 'ropewalk/internal';
import { angleConstants, anglesInGraph, type CosSin } from './angles.js';
import type { GraphBuilder } from './builder.js';
import { isStandard, rmsNorm } from './fragments.js';
import { computeIn, type PlanGraph } from './plan-graph.js';

export type Geometry = Pick<RopePlan, 'headDim' | 'rotaryDim' | 'rotaryOffset' | 'read' | 'write'>;

const HEAD_AXIS: Readonly<Record<RopeLayout, number>> = { bsnh: 2, bnsh: 1 };

/** Cuts heads into parts without the empty ones, and returns the number of the part with which the window begins. */
function cut(b: GraphBuilder, x: string, g: Geometry, window: readonly number[]): { parts: string[]; first: number } {
  const { headDim, rotaryDim, rotaryOffset } = g;
  const sizes = [rotaryOffset, ...window, headDim - rotaryOffset - rotaryDim].filter((size) => size > 0);
  const first = rotaryOffset > 0 ? 1 : 0;
  if (sizes.length === 1) return { parts: [x], first };
  const at = b.integers('head_parts', sizes);
  return { parts: [...b.addMany('Split', [x, at], { axis: 3 }, sizes.length)], first };
}

function join(b: GraphBuilder, parts: readonly string[]): string {
  return parts.length === 1 ? parts[0]! : b.add('Concat', parts, { axis: 3 });
}

/**
 * Appends the rotation in primitives: one Split, four products, a difference, a sum, one Concat. cos and sin have half
 * the width and are broadcast over heads; nothing is repeated.
 *
 * @param x - `[batch, seq, heads, head_dim]` or `[batch, heads, seq, head_dim]`
 */
export function rotate(b: GraphBuilder, x: string, [cos, sin]: readonly [string, string], g: Geometry): string {
  const pairs = g.rotaryDim / 2;
  const rotatePair = (x0: string, x1: string): [string, string] => [
    b.add('Sub', [b.add('Mul', [x0, cos]), b.add('Mul', [x1, sin])]),
    b.add('Add', [b.add('Mul', [x0, sin]), b.add('Mul', [x1, cos])]),
  ];
  if (g.read.step === 1 && g.write.step === 1) {
    const { parts, first } = cut(b, x, g, [pairs, pairs]);
    return join(b, parts.toSpliced(first, 2, ...rotatePair(parts[first]!, parts[first + 1]!)));
  }
  const { parts, first } = cut(b, x, g, [g.rotaryDim]);
  const window = parts[first]!;
  const shaped = (value: string, shape: readonly number[]): string =>
    b.add('Reshape', [value, b.integers('shape', [0, 0, 0, ...shape])]);
  const rotatedHalves = (value: string, axis: number): [string, string] => {
    const [x0, x1] = b.addMany('Split', [value], { axis: axis, num_outputs: 2 }, 2);
    return rotatePair(x0!, x1!);
  };
  let rotated: string;
  if (g.read.step === 2) {
    // Members are `[..., pairs, 1]`, parts of [..., pairs, 2]. The axis of the Concat decides where they are written.
    const members = rotatedHalves(shaped(window, [pairs, 2]), 4);
    rotated = b.add('Concat', members, { axis: g.write.step === 2 ? 4 : 3 });
  } else {
    const apart = rotatedHalves(window, 3).map((y) => b.add('Unsqueeze', [y, b.integers('member_axis', [4])]));
    rotated = b.add('Concat', apart, { axis: 4 });
  }
  return join(b, parts.with(first, shaped(rotated, [g.rotaryDim])));
}

/** Shapes cos and sin for {@link rotate}. Adjacent pairs need one more dimension, for their members. */
export function cosSinFor(
  b: GraphBuilder,
  cosSin: CosSin,
  layout: RopeLayout,
  g: Geometry,
  dtype: 'f32' | 'f64' | 'f16',
): [string, string] {
  const axes = g.read.step === 2 ? [HEAD_AXIS[layout], 4] : [HEAD_AXIS[layout]];
  const name = b.integers('head_axis', axes);
  const shaped = (value: string): string =>
    b.add('Unsqueeze', [cosSin.dtype === dtype ? value : b.cast(value, dtype), name]);
  return [shaped(cosSin.cos), shaped(cosSin.sin)];
}

/**
 * Appends RotaryEmbedding-23, and operators around it for a window that does not begin at 0 and for pairs that are
 * written to other places than they are read from. Without positionIds, `[batch, seq]`, the tables have a row for each
 * token, `[batch, seq, pairs]`.
 *
 * @param x - 4-D in bnsh; in bsnh 4-D, or `[batch, seq, heads · head_dim]` if `folded`
 * @param folded - says that x and the result have heads side by side
 */
export function rotateStandard(
  b: GraphBuilder,
  x: string,
  r: { readonly cos: string; readonly sin: string; readonly positionIds?: string; readonly heads: number },
  g: Geometry,
  layout: RopeLayout,
  folded: boolean,
): string {
  const { headDim, rotaryDim, rotaryOffset, read, write } = g;
  const embed = (value: string, dim: number): string =>
    b.add('RotaryEmbedding', [value, r.cos, r.sin, r.positionIds], {
      interleaved: read.step === 2 ? 1 : 0,
      rotary_embedding_dim: rotaryDim < dim ? rotaryDim : undefined,
      num_heads: layout === 'bsnh' ? r.heads : undefined,
    });
  const shaped = (value: string, shape: readonly number[]): string =>
    b.add('Reshape', [value, b.integers('shape', [0, 0, ...shape])]);
  // If tokens come before heads, the operator takes heads side by side only.
  const embedded = (value: string, dim: number): string =>
    layout === 'bsnh' ? shaped(embed(shaped(value, [r.heads * dim]), dim), [r.heads, dim]) : embed(value, dim);
  if (folded && !needsHeads(g)) return embed(x, headDim);
  let y = folded ? shaped(x, [r.heads, headDim]) : x;
  if (rotaryOffset > 0) {
    const { parts, first } = cut(b, y, g, [rotaryDim]);
    y = join(b, parts.with(first, embedded(parts[first]!, rotaryDim)));
  } else y = embedded(y, headDim);
  if (read.step !== write.step) {
    // The operator writes where it reads. A Gather moves each element to the place that the pairing asks for.
    const from = Array.from({ length: headDim }, (_, i) => i);
    for (let j = 0; j < rotaryDim / 2; j++)
      for (const k of [0, 1])
        from[rotaryOffset + j * write.step + k * write.gap] = rotaryOffset + j * read.step + k * read.gap;
    y = b.add('Gather', [y, b.integers('order', from)], { axis: 3 });
  }
  return folded ? shaped(y, [r.heads * headDim]) : y;
}

function needsHeads({ rotaryOffset, read, write }: Geometry): boolean {
  return rotaryOffset > 0 || read.step !== write.step;
}

/** Appends a bound plan. The graph takes x, then tables or positions, then the other inputs of the parts. */
export function emitRope(g: PlanGraph, { plan, parts }: RopeCall): undefined {
  const batch = parts[0]!.x.shape[0]!;
  const named = (p: number) => (name: string) => (parts.length === 1 ? name : `${name}_${p}`);
  const first = takePart(g, plan, parts[0]!, named(0));
  const cosSin = cosSinOf(g, plan, batch);
  const shaped = new Map<string, [string, string]>();
  for (const [p, part] of parts.entries()) {
    const name = named(p);
    const taken = p === 0 ? first : takePart(g, plan, part, name);
    const { compute, layout } = taken;
    const cosSinIn = (): [string, string] => {
      const key = `${layout} ${compute}`;
      const found = shaped.get(key) ?? cosSinFor(g.b, cosSin, layout, plan, compute);
      shaped.set(key, found);
      return found;
    };
    let { value } = taken;
    if (part.norm) {
      const weight = g.wide(name('weight'), part.norm.weight, compute);
      value = rmsNorm({ b: g.b, form: g.form, compute }, value, weight, part.norm.eps);
    }
    const heads = part.x.shape[2]!;
    if (isStandard({ form: g.form, compute })) {
      const [cos, sin] =
        cosSin.dtype === 'f64' ? [g.b.cast(cosSin.cos, 'f32'), g.b.cast(cosSin.sin, 'f32')] : [cosSin.cos, cosSin.sin];
      value = rotateStandard(g.b, value, { cos, sin, heads }, plan, layout, taken.folded);
    } else value = rotate(g.b, value, cosSinIn(), plan);
    givePart(g, part, taken, value, name);
  }
}

/** Takes a part in its memory order: heads before tokens, or heads side by side for RotaryEmbedding. */
function takePart(g: PlanGraph, plan: RopePlan, { x, out, norm, rows }: RopePart, name: (n: string) => string) {
  const compute = computeIn(x.dtype, out.dtype);
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  const layout: RopeLayout = !x.isContiguous() && !rows && headsFirst(x).isContiguous() ? 'bnsh' : 'bsnh';
  const plain = layout === 'bsnh' && !norm && !rows && x.isContiguous() && out.isContiguous();
  const folded = plain && isStandard({ form: g.form, compute }) && !needsHeads(plan);
  const shaped = folded ? x.view([batch, seq, heads * headDim]) : layout === 'bnsh' ? headsFirst(x) : x;
  return { value: g.wide(name('x'), shaped, compute), compute, layout, folded };
}

function headsFirst(tensor: Tensor<FloatDtype>): Tensor<FloatDtype> {
  return tensor.permute([0, 2, 1, 3]);
}

function givePart(
  g: PlanGraph,
  { x, out: target, rows }: RopePart,
  taken: ReturnType<typeof takePart>,
  value: string,
  name: (n: string) => string,
): void {
  const [batch, seq, heads, headDim] = x.shape as [number, number, number, number];
  const out = target as Tensor<FloatDtype>; // emitPlan has refused other caches
  if (!rows) {
    const shaped = taken.folded
      ? out.view([batch, seq, heads * headDim])
      : taken.layout === 'bnsh'
        ? headsFirst(out)
        : out;
    g.round(value, name('out'), shaped, taken.compute);
    return;
  }
  const places = new BigInt64Array(2 * rows.length);
  for (const [n, row] of rows.entries()) {
    places[2 * n] = BigInt(Math.floor(n / seq));
    places[2 * n + 1] = BigInt(row);
  }
  const cache = g.wide(name('cache'), out, taken.compute);
  const at = g.take(name('rows'), tensorFrom(places, { shape: [batch, seq, 2] }));
  g.round(g.b.add('ScatterND', [cache, at, value]), name('out'), out, taken.compute);
}

/** Takes cos and sin of every token as inputs, or computes them from positions. */
function cosSinOf(g: PlanGraph, plan: RopePlan, batch: number): CosSin {
  const { table, source, seqLen } = plan;
  const double = table.cos instanceof Float64Array;
  const ordered = source?.recipe === 'float64' && plan.tableRows.every((row, n) => row === n);
  // ONNX Runtime's Sin and Cos of f64 have errors of up to 3.3e-16 (measured), too large for float64 data.
  const angles = g.options.angles ?? (double ? undefined : 'f64');
  if (g.form === 'primitives' && source && ordered && angles && g.options.tables !== 'inputs') {
    const constants = angleConstants(source.spec, plan.direction);
    const own = plan.batch ?? 1;
    const shape = constants.numAxes === 1 ? [own, seqLen] : [constants.numAxes, own, seqLen];
    const ids = tensorFrom(BigInt64Array.from(source.positions, BigInt), { shape });
    const positions = g.take('positions', ids);
    const cosSin = anglesInGraph(g.b, constants, angles, { positions });
    if (cosSin.dtype === 'f32' || double) return cosSin;
    return { cos: g.b.cast(cosSin.cos, 'f32'), sin: g.b.cast(cosSin.sin, 'f32'), dtype: 'f32' };
  }
  // Without position_ids, RotaryEmbedding takes a row for each token.
  const rows = g.form === 'primitives' ? (plan.batch ?? 1) : batch;
  const gathered = (values: ArrayLike<number>): Tensor => {
    const data = double ? new Float64Array(rows * seqLen * table.pairs) : new Float32Array(rows * seqLen * table.pairs);
    for (let n = 0; n < rows * seqLen; n++) {
      const row = plan.tableRows[plan.batch === undefined ? n % seqLen : n]! * table.pairs;
      for (let j = 0; j < table.pairs; j++) data[n * table.pairs + j] = values[row + j]!;
    }
    return tensorFrom(data, { shape: [rows, seqLen, table.pairs] });
  };
  const cos = g.take('cos_cache', gathered(table.cos));
  const sin = g.take('sin_cache', gathered(table.sin));
  return { cos, sin, dtype: double ? 'f64' : 'f32' };
}
