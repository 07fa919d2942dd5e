/**
 * Operators that are whole layers: only their shapes are of interest.
 *
 * @module
 */
import { numberAttribute } from './attributes.js';
import { FLOATS, type Operator, type Operators, sameShape } from './operator.js';

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

export const LAYERS: Operators = {
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
    dtype: (n) => n.dtype([...n.node.inputs.keys()], FLOATS),
    shapes: (n) => {
      const [q, k, v, mask] = [n.shape(0), n.shape(1), n.shape(2), n.shape(3)];
      const [heads, kvHeads] = ['q_num_heads', 'kv_num_heads'].map((name) => numberAttribute(n.node, name, 0));
      if (!heads || !kvHeads || q?.length !== 3 || k?.length !== 3 || v?.length !== 3) return undefined;
      const widths = Number(q[2]) / heads === Number(k[2]) / kvHeads;
      n.check(widths && k[1] === v[1] && q[0] === k[0], 'shapes');
      if (mask) n.check(mask.join() === [q[1], k[1]].join(), 'attn_mask');
      return typeof v[2] === 'number' ? [[q[0]!, q[1]!, (v[2] / kvHeads) * heads]] : undefined;
    },
  },
};
