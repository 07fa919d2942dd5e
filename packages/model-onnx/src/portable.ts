/**
 * The operators of the forms `standard` and `primitives`: ONNX's own only.
 *
 * @module
 */
import { layerSizes, type WeightPlan } from '@ropewalk/model/internal';
import type { AngleConstants, CosSin } from '@ropewalk/onnx/internal';
import {
  angleConstants,
  constantTables,
  cosSinFor,
  cosSinOf,
  gelu,
  layerNorm,
  rmsNorm,
  rotate,
  rotateStandard,
  sigmoid,
  swiglu,
} from '@ropewalk/onnx/internal';
import { planRope, type RopeSpec } from 'ropewalk';
import { gatheredExperts } from './feed-forward.js';
import type { AttentionCall, DecoderOperators, Heads } from './operators.js';
import { BATCH, blocksOf, type DecoderScope, joined, type MadeAs, type Matrix, SEQ, TOTAL } from './scope.js';

/** It is finite, so that a row of padding, which sees no key, has no NaN. */
const MASKED = -3.4028234663852886e38;

/** The operators of these forms. */
export function portableOperators(s: DecoderScope): DecoderOperators {
  const { b, config } = s;
  const eps = config.normEps;
  const { limit, alpha = 1, offset = 0 } = config.family.swiglu ?? {};
  const ops: DecoderOperators = {
    rows: (ids, table) => {
      const rowsOf = (constant: string): string => b.add('Gather', [constant, ids], { axis: 0 });
      const blocks = blocksIn(s, [table]);
      if (blocks) {
        const { bits, codes, scales, offsets } = blocks;
        const rows = { bits, codes: rowsOf(codes), scales: rowsOf(scales), offsets: offsets && rowsOf(offsets) };
        return widened(s, rows, [0, 0, ...table.shape.slice(1)]);
      }
      const found = rowsOf(s.constant([table], 'numbers', table.shape));
      return table.held === 'f32' ? found : b.cast(found, 'f32');
    },
    rmsNorm: (x, weight) => rmsNorm(s, x, weight, eps),
    layerNorm: (x, weight, bias) => layerNorm(s, x, weight, bias, eps),
    linear: (x, matrix) => gemm(s, x, matrix),
    swiglu: (gate, up) => swiglu(s, gate, up, { limit, alpha, offset }),
    sigmoid: (x) => sigmoid(s, x),
    experts: (x, chosen, layer) => gatheredExperts(s, ops, x, chosen, layer),
    gelu: (x, approximate) => gelu(s, x, approximate),
    tokensFirst: false,
    packs: () => false,
    attentionOfPacked: (qkv) => qkv,
    attention: (heads, call) => attention(s, heads, call),
  };
  return ops;
}

/** Appends a product with a matrix: `[batch, seq, k]` → `[batch, seq, n]`. */
export function gemm(s: DecoderScope, x: string, { weights, biases }: Matrix): string {
  const { b } = s;
  const [n, k] = joined(weights) as [number, number];
  const flat = b.add('Reshape', [x, s.integers(-1, k)]);
  const bias = biases.length > 0 ? s.numbers(biases) : undefined;
  const columns = s.settings.form === 'standard' && blocksOf(weights[0]!) !== undefined;
  const matrix = columns ? dequantized(s, weights) : numbersOf(s, weights);
  const y = s.unflatten(b.add('Gemm', [flat, matrix, bias], { transB: columns ? undefined : 1 }), n);
  return columns ? withOffsets(s, y, x, weights) : y;
}

/**
 * Adds the product with the offsets of blocks to a product with their integers and scales. All weights of a group have
 * one offset, so it is multiplied by the sum of x over the group.
 */
export function withOffsets(s: DecoderScope, y: string, x: string, weights: readonly WeightPlan[]): string {
  const { group, hasOffset } = blocksOf(weights[0]!)!;
  if (!hasOffset) return y;
  const [n, k] = joined(weights) as [number, number];
  const sums = s.once(`sums of ${group} of ${x}`, () =>
    s.b.add('ReduceSum', [s.b.add('Reshape', [x, s.integers(-1, k / group, group)]), s.integers(2)], { keepdims: 0 }),
  );
  const offsets = s.constant(weights, 'offsets', [n, k / group]);
  return s.b.add('Add', [y, s.unflatten(s.b.add('Gemm', [sums, offsets], { transB: 1 }), n)]);
}

/** Returns matrices as numbers in f32, `[n, k]`. */
export function numbersOf(s: DecoderScope, weights: readonly WeightPlan[]): string {
  const blocks = blocksIn(s, weights);
  return blocks ? widened(s, blocks, joined(weights)) : s.numbers(weights);
}

/**
 * Appends a matrix in blocks as numbers without their offsets, `[k, n]`. Files have its rows. When ONNX Runtime loads the model, it
 * transposes integers and scales, and replaces the following nodes by a MatMulNBits, which widens nothing. It does so
 * for blocks along the first axis only.
 *
 * @see microsoft/onnxruntime@02b0534 onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_selectors.cc
 */
function dequantized(s: DecoderScope, weights: readonly WeightPlan[]): string {
  const { b } = s;
  const [n, k] = joined(weights) as [number, number];
  const turned = (value: string): string => b.add('Transpose', [value], { perm: [1, 0] });
  const { group } = blocksOf(weights[0]!)!;
  const codes = turned(s.constant(weights, 'signed', [n, k]));
  const scales = turned(s.constant(weights, 'scales', [n, k / group]));
  return b.add('DequantizeLinear', [codes, scales], { axis: 0, block_size: group });
}

/** A matrix in blocks: i8 codes, which are integers or pairs of them, scales, and perhaps offsets, by groups. */
interface Blocks {
  readonly bits: 4 | 8;
  readonly codes: string;
  readonly scales: string;
  readonly offsets: string | undefined;
}

/** Makes the constants of a matrix in blocks, `[n, groups, …]`. */
function blocksIn(s: DecoderScope, weights: readonly WeightPlan[]): Blocks | undefined {
  const split = blocksOf(weights[0]!);
  if (!split) return undefined;
  const { bits, group, hasOffset } = split;
  const shape = joined(weights);
  const byGroup = (what: MadeAs, size: number): string =>
    s.constant(weights, what, [...shape.slice(0, -1), shape.at(-1)! / group, size]);
  const codes = byGroup('signed', (group * bits) / 8);
  return { bits, codes, scales: byGroup('scales', 1), offsets: hasOffset ? byGroup('offsets', 1) : undefined };
}

/** Widens blocks exactly. */
function widened(s: DecoderScope, { bits, codes, scales, offsets }: Blocks, shape: readonly number[]): string {
  const { b } = s;
  const numbers = b.cast(codes, 'f32');
  if (bits === 8) return scaled(s, [numbers], scales, offsets, shape);
  // A signed byte is 16 · high + low, where low is still 0 … 15.
  const [low, high] = halvesOf(s, numbers);
  const below = b.add('Floor', [b.add('Mul', [low, s.number(1 / 8)])]);
  return scaled(s, [b.add('Sub', [low, b.add('Mul', [below, s.number(16)])]), high], scales, offsets, shape);
}

/** Splits bytes into halves with Floor, which every provider has. low is 0 … 15, high has the byte's sign. */
export function halvesOf(s: DecoderScope, bytes: string): [low: string, high: string] {
  const { b } = s;
  const high = b.add('Floor', [b.add('Mul', [bytes, s.number(1 / 16)])]);
  return [b.add('Sub', [bytes, b.add('Mul', [high, s.number(16)])]), high];
}

/**
 * Multiplies integers by scales `[…, groups, 1]`, and adds offsets. Two lists of integers are the even and odd places.
 */
export function scaled(
  s: DecoderScope,
  members: readonly string[],
  scales: string,
  offsets: string | undefined,
  shape: readonly number[],
): string {
  const { b } = s;
  let [numbers, factors, added] = [members[0]!, scales, offsets];
  if (members.length > 1) {
    numbers = b.add(
      'Concat',
      members.map((x) => b.add('Unsqueeze', [x, s.integers(-1)])),
      { axis: -1 },
    );
    factors = b.add('Unsqueeze', [scales, s.integers(-1)]);
    added = offsets && b.add('Unsqueeze', [offsets, s.integers(-1)]);
  }
  const product = b.add('Mul', [numbers, factors]);
  return b.add('Reshape', [added ? b.add('Add', [product, added]) : product, s.integers(...shape)]);
}

/** Appends the rotation of heads, `[batch, heads, seq, d]`. */
export function rotated(s: DecoderScope, x: string, rope: RopeSpec, heads: number): string {
  const { b, settings } = s;
  const geometry = planRope({ ...rope, positions: 0, seqLen: 1 });
  const c = angleConstants(rope);
  const standard = settings.form === 'standard';
  if (standard && c.numAxes === 1 && settings.angles === 'f32-table') {
    const tables = { ...tablesOf(s, c), positionIds: 'position_ids', heads };
    return rotateStandard(b, x, tables, geometry, 'bnsh', false);
  }
  const [cos, sin] = s.once(`angles of ${keyOf(c)}`, () => {
    const found = cosSinOf(b, c, settings.angles, 'f32', 'position_ids', tableRows(s));
    return standard ? ([found.cos, found.sin] as const) : cosSinFor(b, found, 'bnsh', geometry, 'f32');
  });
  return standard
    ? rotateStandard(b, x, { cos, sin, heads }, geometry, 'bnsh', false)
    : rotate(b, x, [cos, sin], geometry);
}

/** Returns cos and sin of all positions, `[context + 1, pairs]`, which layers share. */
export function tablesOf(s: DecoderScope, c: AngleConstants): CosSin {
  return s.once(`tables of ${keyOf(c)}`, () => constantTables(s.b, c, 'f32', tableRows(s)));
}

function keyOf({ invFreq, magnitude, axisOfPair }: AngleConstants): string {
  return JSON.stringify([...invFreq, magnitude, ...axisOfPair]);
}

/** The rows of tables. transformers.js counts Gemma 3's positions from 1. */
function tableRows({ settings }: DecoderScope): number {
  return settings.context + 1;
}

/** Appends attention over the past tokens and these tokens. */
export function attention(s: DecoderScope, { q, k, v }: Heads, call: AttentionCall): string {
  const { b, config, settings } = s;
  const { layer, rope, window, sinks } = call;
  const { numHeads: heads, attentionScale: scale, attentionSoftcap } = config;
  const { numKvHeads: kvHeads, headDim, valueDim, sharesWith } = layerSizes(config, layer);
  const split = (x: string, count: number, d: number): string => s.headsFirst(s.reshape(x, count, d));
  const turned = (x: string, count: number): string => (rope ? rotated(s, x, rope, count) : x);
  const qs = turned(split(q, heads, headDim), heads);
  const mask = maskOf(s, window, config.layers(settings.context)[layer]!.chunk);
  const allRows = (of: number, make: () => readonly [string, string]): readonly [string, string] =>
    s.once(`keys and values of ${of}`, make);
  if (sharesWith !== undefined) {
    const shared = allRows(sharesWith, () => ['', '']); // made by an earlier layer
    return s.reshape(s.headsFirst(composed(s, [qs, ...shared], mask, call)), heads * valueDim);
  }
  const ks = turned(split(k, kvHeads, headDim), kvHeads);
  const vs = split(v, kvHeads, valueDim);
  const { newRows } = settings;
  const before = (what: 'key' | 'value'): string => {
    const cache = `past_key_values.${layer}.${what}`;
    return s.widened(newRows ? b.add('Slice', [cache, s.integers(0), s.pastRows(), s.integers(2)]) : cache);
  };
  const past = [before('key'), before('value')] as const;
  let y: string;
  // Attention-23 adds the mask before it caps, so that masked keys would count again, and it has no sinks.
  if (settings.form === 'standard' && !sinks && attentionSoftcap === undefined && scale > 0) {
    const [out, key, value] = b.addMany('Attention', [qs, ks, vs, mask, ...past], { scale: { f: scale } }, 3);
    const made = [
      present(s, call, 'key', newRows ? ks : key!),
      present(s, call, 'value', newRows ? vs : value!),
    ] as const;
    allRows(layer, () => (newRows ? [key!, value!] : made));
    y = out!;
  } else {
    const joinedWith = (before: string, x: string): string => b.add('Concat', [before, x], { axis: 2 });
    const given = (what: 'key' | 'value', x: string, n: 0 | 1): string => {
      if (!newRows) return present(s, call, what, joinedWith(past[n], x));
      return joinedWith(past[n], present(s, call, what, x));
    };
    y = composed(s, [qs, ...allRows(layer, () => [given('key', ks, 0), given('value', vs, 1)])], mask, call);
  }
  return s.reshape(s.headsFirst(y), heads * valueDim);
}

/**
 * Makes a value the output with the keys or values of a layer, and returns what attention reads: in f32 the output
 * itself, which has the output's name from here on.
 */
export function present(s: DecoderScope, { layer }: AttentionCall, what: 'key' | 'value', made: string): string {
  const { b, config, settings } = s;
  const name = `present.${layer}.${what}`;
  const { numKvHeads, headDim, valueDim } = layerSizes(config, layer);
  const { cacheDtype } = settings;
  const width = what === 'key' ? headDim : valueDim;
  b.output(cacheDtype === 'f32' ? made : b.cast(made, cacheDtype), name, cacheDtype, [
    BATCH,
    numKvHeads,
    settings.newRows ? SEQ : TOTAL,
    width,
  ]);
  return s.widened(name);
}

/** q `[batch, heads, seq, d]`, k and v `[batch, kv_heads, total, d]` → `[batch, heads, seq, dv]`. */
function composed(
  s: DecoderScope,
  [q, k, v]: readonly [string, string, string],
  mask: string,
  { layer, sinks }: AttentionCall,
): string {
  const { b, config } = s;
  const { numHeads: heads, attentionScale: scale, attentionSoftcap: softcap } = config;
  const { numKvHeads: kvHeads, headDim, valueDim } = layerSizes(config, layer);
  // Queries of the same key head are put side by side, so that keys are not repeated.
  const apart = (x: string, last: number): string =>
    heads === kvHeads ? x : b.add('Reshape', [x, s.integers(0, kvHeads, -1, last)]);
  const scaled = (x: string, factor: number): string => (factor === 1 ? x : b.add('Mul', [x, s.number(factor)]));
  const keys = b.add('Transpose', [k], { perm: [0, 1, 3, 2] });
  const seq = s.once('seq', () => b.add('Gather', [s.batchAndSeq(), s.integers(1)], { axis: 0 }));
  const shapeOf = (name: string, ...parts: string[]): string => s.once(name, () => b.add('Concat', parts, { axis: 0 }));
  const together = (x: string): string =>
    heads === kvHeads ? x : b.add('Reshape', [x, shapeOf(`heads ${heads}`, s.integers(0, heads), seq, s.integers(-1))]);
  let scores = together(b.add('MatMul', [scaled(apart(q, headDim), scale), keys]));
  if (softcap !== undefined) {
    const capped = b.add('Tanh', [b.add('Mul', [scores, s.number(1 / softcap)])]);
    scores = b.add('Mul', [capped, s.number(softcap)]);
  }
  const masked = b.add('Add', [scores, mask]);
  let weights: string;
  if (sinks) {
    const batch = s.once('batch', () => b.add('Gather', [s.batchAndSeq(), s.integers(0)], { axis: 0 }));
    const shape = shapeOf(`sinks ${heads}`, batch, s.integers(heads), seq, s.integers(1));
    const column = b.add('Expand', [b.add('Reshape', [sinks, s.integers(1, heads, 1, 1)]), shape]);
    const all = b.add('Softmax', [b.add('Concat', [masked, column], { axis: -1 })], { axis: -1 });
    weights = b.add('Slice', [all, s.integers(0), s.integers(-1), s.integers(-1)]);
  } else weights = b.add('Softmax', [masked], { axis: -1 });
  const total = s.totalRows();
  const grouped =
    heads === kvHeads
      ? weights
      : b.add('Reshape', [weights, shapeOf(`kv heads ${kvHeads}`, s.integers(0, kvHeads, -1), total)]);
  const y = b.add('MatMul', [grouped, v]);
  return heads === kvHeads
    ? y
    : b.add('Reshape', [y, shapeOf(`values ${heads} ${valueDim}`, s.integers(0, heads), seq, s.integers(valueDim))]);
}

/** Appends the mask that is added to scores, `[batch, 1, seq, total]`: 0 where a token sees a key. */
function maskOf(s: DecoderScope, window: number | undefined, chunk: number | undefined): string {
  const { b } = s;
  return s.once(`mask ${window} ${chunk}`, () => {
    const rows = s.once('rows', () => {
      const total = s.sizeOf('attention_mask');
      const first = b.add('Sub', [total, s.sizeOf('input_ids')]);
      const range = b.add('Range', [first, total, s.integer(1)]);
      return b.add('Unsqueeze', [range, s.integers(1)]);
    });
    const columns = s.once('columns', () =>
      b.add('Unsqueeze', [b.add('Range', [s.integer(0), s.sizeOf('attention_mask'), s.integer(1)]), s.integers(0)]),
    );
    let seen = b.add('LessOrEqual', [columns, rows]);
    if (window !== undefined) {
      const near = b.add('Greater', [columns, b.add('Sub', [rows, s.integer(window)])]);
      seen = b.add('And', [seen, near]);
    }
    if (chunk !== undefined) {
      // Chunks begin at the first token behind the padding.
      const first = b.add('ArgMax', [b.cast('attention_mask', 'f32')], { axis: 1, keepdims: 0 });
      const padding = b.add('Unsqueeze', [first, s.integers(1, 2, 3)]);
      const chunkOf = (places: string): string => b.add('Div', [b.add('Sub', [places, padding]), s.integer(chunk)]);
      seen = b.add('And', [seen, b.add('Equal', [chunkOf(columns), chunkOf(rows)])]);
    }
    const real = s.once('real tokens', () => b.add('Unsqueeze', [b.cast('attention_mask', 'bool'), s.integers(1, 2)]));
    return b.add('Where', [b.add('And', [seen, real]), s.number(0), s.number(MASKED)]);
  });
}
