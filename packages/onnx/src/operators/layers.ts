/**
 * Operators that are whole layers. Only their shapes are computed.
 *
 * @module
 */

import { broadcastDims } from './elementwise.js';
import type { Operator, Operators, Shape, ShapeReader } from './operator.js';
import { axisAt, FLOATS, numberAttribute, sameShape } from './operator.js';

const sameAsFirst: Operator = { shapes: sameShape };

/** The scale and the bias are as wide as the input's last dimension. */
const norm: Operator = {
  dtype: (n) =>
    n.dtype(
      n.node.inputs.flatMap((name, input) => (name === '' ? [] : [input])),
      FLOATS,
    ),
  shapes: (n) => {
    const width = `${n.shape(0)?.at(-1)}`;
    n.check(n.shape(1)?.join() === width, 'scale');
    if (n.shape(2)) n.check(n.shape(2)!.join() === width, 'bias');
    return sameShape(n);
  },
};

/** The experts of ONNX Runtime: matrices `[experts, n, k]`, or their codes with scales after them. */
function mixture(codes: boolean): Operator {
  return {
    dtype: (n) => {
      if (codes) n.dtype([2, 5], ['u8']);
      return n.dtype(codes ? [0, 1, 3, 6] : [0, 1, 2, 4], FLOATS);
    },
    shapes: (n) => {
      const [x, router, first, second] = [0, 1, 2, codes ? 5 : 4].map((input) => n.shape(input));
      const packed = codes ? 8 / numberAttribute(n.node, 'expert_weight_bits', 4) : 1;
      const fits = first?.at(-1) === Number(x?.at(-1)) / packed && second?.[1] === x?.at(-1);
      n.check(fits && router?.[0] === x?.[0] && router?.[1] === first?.[0] && first?.[0] === second?.[0], 'matrices');
      return sameShape(n);
    },
  };
}

export const LAYERS: Operators = {
  MoE: mixture(false),
  QMoE: mixture(true),
  LayerNormalization: norm,
  SimplifiedLayerNormalization: sameAsFirst,
  SkipLayerNormalization: sameAsFirst,
  SkipSimplifiedLayerNormalization: sameAsFirst,
  RMSNormalization: norm,
  RotaryEmbedding: {
    dtype: (n) => n.dtype([0, 1, 2], ['f32', 'f16', 'bf16']),
    shapes: (n) => {
      const [x, cos, sin, ids] = [n.shape(0), n.shape(1), n.shape(2), n.shape(3)];
      if (!x || !cos) return [x];
      const heads = numberAttribute(n.node, 'num_heads', 0);
      n.check(x.length === 4 || (x.length === 3 && heads > 0 && Number(x[2]) % heads === 0), 'X');
      const [seq, headDim] = x.length === 3 ? [x[1], Number(x[2]) / heads] : [x[2], Number(x[3])];
      const pairs = (numberAttribute(n.node, 'rotary_embedding_dim', 0) || headDim) / 2;
      n.check(cos.join() === sin?.join() && cos.at(-1) === pairs, 'caches');
      if (ids) n.check(cos.length === 2 && ids.join() === [x[0], seq].join(), 'position_ids');
      else n.check(cos.length === 3 && cos[0] === x[0] && cos[1] === seq, 'caches');
      return [x];
    },
  },
  Attention: {
    dtype: (n) =>
      n.dtype(
        [...n.node.inputs.keys()].filter((input) => n.node.inputs[input] !== ''),
        FLOATS,
      ),
    shapes: (n) => {
      const [q, k, v, mask] = [n.shape(0), n.shape(1), n.shape(2), n.shape(3)];
      if (q?.length === 4) return attentionOfHeads(n);
      const [heads, kvHeads] = ['q_num_heads', 'kv_num_heads'].map((name) => numberAttribute(n.node, name, 0));
      if (!heads || !kvHeads || q?.length !== 3 || k?.length !== 3 || v?.length !== 3) return undefined;
      const widths = Number(q[2]) / heads === Number(k[2]) / kvHeads;
      n.check(widths && k[1] === v[1] && q[0] === k[0], 'shapes');
      if (mask) n.check(mask.join() === [q[1], k[1]].join(), 'attn_mask');
      return typeof v[2] === 'number' ? [[q[0]!, q[1]!, (v[2] / kvHeads) * heads]] : undefined;
    },
  },
  GroupQueryAttention: {
    dtype: (n) => {
      n.dtype([5, 6], ['i32']);
      return n.dtype(
        [0, 1, 2, 3, 4, 7, 8, 11].filter((input) => n.node.inputs[input]),
        FLOATS,
      );
    },
    shapes: (n) => {
      const [q, k, v, pastK, pastV, last] = [0, 1, 2, 3, 4, 5].map((input) => n.shape(input));
      const [heads, kvHeads] = ['num_heads', 'kv_num_heads'].map((name) => numberAttribute(n.node, name, 0));
      if (q?.length !== 3 || pastK?.length !== 4 || !heads || !kvHeads) return undefined;
      const [d, width] = [Number(pastK[3]), Number(q[2])];
      const widths = k ? [heads, kvHeads, kvHeads] : [heads + 2 * kvHeads];
      const wide = [q, k, v]
        .slice(0, widths.length)
        .every((x, at) => x?.join() === [q[0], q[1], widths[at]! * d].join());
      n.check(wide && width % d === 0, 'query, key, value');
      n.check(pastK.join() === pastV?.join() && pastK[0] === q[0] && pastK[1] === kvHeads, 'past');
      n.check(last?.join() === `${q[0]}`, 'seqlens_k');
      const total = n.content(6)?.[0];
      const [before, all] = [pastK[2], total];
      const length = typeof before === 'number' && typeof all === 'number' ? Math.max(before, all) : n.fresh(2, 1);
      const present = pastK.with(2, length);
      return [q.with(2, heads * d), present, present];
    },
  },
  DequantizeLinear: {
    dtype: (n) => n.dtype([1], FLOATS),
    shapes: (n) => {
      const [x, scale] = [n.shape(0), n.shape(1)];
      const [axis, block] = [numberAttribute(n.node, 'axis', 1), numberAttribute(n.node, 'block_size', 0)];
      const at = x && axisAt(axis, x.length);
      if (block > 0 && at !== undefined)
        n.check(scale?.join() === x!.with(at, Number(x![at]) / block).join(), 'x_scale');
      return [x];
    },
  },
};

/**
 * Attention of `[batch, heads, seq, d]` with past keys and values. The outputs are its result, and all keys and values.
 */
function attentionOfHeads(n: ShapeReader): readonly (Shape | undefined)[] | undefined {
  const [q, k, v, mask, pastK, pastV] = [0, 1, 2, 3, 4, 5].map((input) => n.shape(input));
  if (q?.length !== 4 || k?.length !== 4 || v?.length !== 4) return undefined;
  const apart = (shape: Shape): string => shape.toSpliced(2, 1).join();
  const fits = k[2] === v[2] && k[1] === v[1] && q[0] === k[0] && q[3] === k[3] && Number(q[1]) % Number(k[1]) === 0;
  n.check(fits, 'shapes');
  const after = (past: Shape | undefined, now: Shape): Shape => {
    if (!past) return now;
    n.check(apart(past) === apart(now), 'past');
    const [before, here] = [past[2], now[2]];
    return now.with(2, typeof before === 'number' && typeof here === 'number' ? before + here : n.fresh(2, 1));
  };
  const [keys, values] = [after(pastK, k), after(pastV, v)];
  const scores = [q[0]!, q[1]!, q[2]!, keys[2]!];
  if (mask) n.check(broadcastDims(n, [mask, scores])?.join() === scores.join(), 'attn_mask');
  return [q.with(3, v[3]!), keys, values].slice(0, n.node.outputs.length);
}
