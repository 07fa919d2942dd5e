/**
 * Writes a case's question as ONNX graphs, which are the ways in which peers can compute it.
 *
 * @module
 */

import type { ElementwiseName, Question } from '@ropewalk/bench/internal';
import { BLOCK_FORMATS, type FloatDtype, numberFromF16 } from 'ropewalk';
import { storeNumber } from 'ropewalk/backend';
import type { GraphTensor, PeerGraph } from './graph.js';

/**
 * Lists the ways to compute a case. Each call builds new graphs.
 *
 * @param question - the question of the case
 */
export function graphsOf(question: Question): readonly PeerGraph[] {
  switch (question.op) {
    case 'rope':
      return ropeGraphs(question);
    case 'rms_norm':
    case 'layer_norm':
      return normGraphs(question);
    case 'permute':
      return [permuteGraph(question)];
    case 'linear':
      return [linearGraph(question)];
    case 'linear of blocks':
      return blocksGraphs(question);
    case 'attention':
      return attentionGraphs(question);
    default:
      return [elementwiseGraph(question)];
  }
}

function ropeGraphs({
  tokens,
  heads,
  headDim,
  dtype,
  pairing,
  x: data,
  cos,
  sin,
}: Question & { op: 'rope' }): readonly PeerGraph[] {
  const dims = [1, tokens, heads * headDim];
  const x = { name: 'x', dtype, dims, data };
  const ids = BigInt64Array.from({ length: tokens }, (_, token) => BigInt(token));
  const positions: GraphTensor = { name: 'positions', dtype: 'i64', dims: [1, tokens], data: ids };
  const constants = (['cos', 'sin'] as const).map((name): GraphTensor => {
    const table = name === 'cos' ? cos : sin;
    return { name, dtype, dims: [tokens, headDim / 2], data: rounded(table, dtype) };
  });
  const common = {
    inputs: [x, positions],
    constants,
    output: { name: 'y', dtype, dims },
  };
  const attributes = { interleaved: pairing === 'interleaved' ? 1 : 0, num_heads: heads };
  return [
    {
      ...common,
      name: 'RotaryEmbedding',
      nodes: [{ op: 'RotaryEmbedding', inputs: ['x', 'cos', 'sin', 'positions'], outputs: ['y'], attributes }],
    },
    {
      ...common,
      name: 'com.microsoft.RotaryEmbedding',
      nodes: [
        {
          op: 'RotaryEmbedding',
          domain: 'com.microsoft',
          inputs: ['x', 'positions', 'cos', 'sin'],
          outputs: ['y'],
          attributes,
        },
      ],
    },
    // Interleaved pairs would need a gather and a scatter.
    ...(pairing === 'half' ? [halvesGraph({ ...x, dims: [tokens, heads, headDim] }, constants)] : []),
  ];
}

/** Writes RoPE for peers without the operator, with the halves of each head and tables that all heads share. */
function halvesGraph(x: GraphTensor & { readonly dtype: FloatDtype }, tables: readonly GraphTensor[]): PeerGraph {
  const attributes = { axis: -1, num_outputs: 2 };
  return {
    name: 'Split, Mul, Sub, Add, Concat',
    substitute: true,
    nodes: [
      { op: 'Split', inputs: ['x'], outputs: ['a', 'b'], attributes },
      { op: 'Mul', inputs: ['a', 'cos'], outputs: ['a_cos'] },
      { op: 'Mul', inputs: ['b', 'sin'], outputs: ['b_sin'] },
      { op: 'Sub', inputs: ['a_cos', 'b_sin'], outputs: ['first'] },
      { op: 'Mul', inputs: ['a', 'sin'], outputs: ['a_sin'] },
      { op: 'Mul', inputs: ['b', 'cos'], outputs: ['b_cos'] },
      { op: 'Add', inputs: ['a_sin', 'b_cos'], outputs: ['second'] },
      { op: 'Concat', inputs: ['first', 'second'], outputs: ['y'], attributes: { axis: -1 } },
    ],
    inputs: [x],
    constants: tables.map(({ dims: [rows, pairs], ...table }) => ({ ...table, dims: [rows!, 1, pairs!] })),
    output: { name: 'y', dtype: x.dtype, dims: x.dims },
  };
}

function normGraphs({
  op,
  rows,
  width,
  eps,
  x,
  weight,
  bias,
}: Question & { op: 'rms_norm' | 'layer_norm' }): readonly PeerGraph[] {
  const centered = op === 'layer_norm';
  const constants = [
    { name: 'weight', dtype: 'f32', dims: [width], data: weight },
    { name: 'bias', dtype: 'f32', dims: [width], data: bias },
  ] as const;
  const common = {
    inputs: [{ name: 'x', dtype: 'f32', dims: [rows, width], data: x }],
    constants: centered ? constants : constants.slice(0, 1),
    output: { name: 'y', dtype: 'f32', dims: [rows, width] },
  } as const;
  const node = {
    inputs: ['x', ...common.constants.map(({ name }) => name)],
    outputs: ['y'],
    attributes: { epsilon: eps },
  };
  const names = centered ? ['LayerNormalization'] : ['RMSNormalization', 'SimplifiedLayerNormalization'];
  return names.map((name) => ({ ...common, name, nodes: [{ ...node, op: name }] }));
}

/** The nodes that compute each operator from a, b and the constant k. */
const ELEMENTWISE_NODES: Readonly<Record<ElementwiseName, PeerGraph['nodes']>> = {
  add: [{ op: 'Add', inputs: ['a', 'b'], outputs: ['y'] }],
  swiglu: [
    { op: 'Sigmoid', inputs: ['a'], outputs: ['sigmoid'] },
    { op: 'Mul', inputs: ['a', 'sigmoid'], outputs: ['silu'] },
    { op: 'Mul', inputs: ['silu', 'b'], outputs: ['y'] },
  ],
  geglu: [
    { op: 'Gelu', inputs: ['a'], outputs: ['gelu'] },
    { op: 'Mul', inputs: ['gelu', 'b'], outputs: ['y'] },
  ],
  scale: [{ op: 'Mul', inputs: ['a', 'k'], outputs: ['y'] }],
};

function elementwiseGraph({ op, shape, inputs, factor }: Question & { op: ElementwiseName }): PeerGraph {
  const nodes = ELEMENTWISE_NODES[op];
  return {
    name: nodes.map((node) => node.op).join(', '),
    nodes,
    inputs: inputs.map((data, at) => ({ name: ['a', 'b'][at]!, dtype: 'f32', dims: shape, data })),
    constants: op === 'scale' ? [{ name: 'k', dtype: 'f32', dims: [], data: Float32Array.of(factor) }] : [],
    output: { name: 'y', dtype: 'f32', dims: shape },
  };
}

function permuteGraph({ x, shape, perm }: Question & { op: 'permute' }): PeerGraph {
  return {
    name: 'Transpose',
    nodes: [{ op: 'Transpose', inputs: ['x'], outputs: ['y'], attributes: { perm } }],
    inputs: [{ name: 'x', dtype: 'f32', dims: shape, data: x }],
    output: { name: 'y', dtype: 'f32', dims: perm.map((axis) => shape[axis]!) },
  };
}

function linearGraph({ m, n, k, dtype, x, weight }: Question & { op: 'linear' }): PeerGraph {
  return {
    name: 'MatMul',
    nodes: [{ op: 'MatMul', inputs: ['x', 'weight'], outputs: ['y'] }],
    inputs: [{ name: 'x', dtype, dims: [m, k], data: x }],
    constants: [{ name: 'weight', dtype, dims: [k, n], data: transposed(weight, n, k) }],
    output: { name: 'y', dtype, dims: [m, n] },
  };
}

/**
 * MatMulNBits of ONNX Runtime takes q8_0 and q4_0. Level 0 computes with x in f32, level 4 rounds x to 8 bits first.
 */
function blocksGraphs({ kind, n, k, x, weight }: Question & { op: 'linear of blocks' }): readonly PeerGraph[] {
  if (kind !== 'q8_0' && kind !== 'q4_0') return [];
  const bits = kind === 'q8_0' ? 8 : 4;
  const { quants, scales } = onnxBlocks(kind, weight);
  return [0, 4].map((accuracyLevel) => ({
    name: `com.microsoft.MatMulNBits accuracy_level=${accuracyLevel}`,
    nodes: [
      {
        op: 'MatMulNBits',
        domain: 'com.microsoft',
        inputs: ['x', 'quants', 'scales'],
        outputs: ['y'],
        attributes: { K: k, N: n, bits, block_size: 32, accuracy_level: accuracyLevel },
      },
    ],
    inputs: [{ name: 'x', dtype: 'f32', dims: [1, k], data: x }],
    constants: [
      { name: 'quants', dtype: 'u8', dims: [n, k / 32, bits * 4], data: quants },
      { name: 'scales', dtype: 'f32', dims: [(n * k) / 32], data: scales },
    ],
    output: { name: 'y', dtype: 'f32', dims: [1, n] },
  }));
}

/**
 * Rearranges blocks as MatMulNBits takes them.
 *
 * @returns `quants` `[n, k / 32, 32 or 16]`, where neighbours of q4_0 share a byte, low nibble first, and q8_0 is
 *   stored as quant + 128; `scales` `[n · k / 32]`
 */
function onnxBlocks(kind: 'q8_0' | 'q4_0', bytes: Uint8Array): { quants: Uint8Array; scales: Float32Array } {
  const unit = BLOCK_FORMATS[kind].bytes;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const quantBytes = unit - 2;
  const blocks = bytes.length / unit;
  /** Returns the stored quant i of a block: signed for q8_0, 0 … 15 for q4_0. */
  const quantOf = (block: number, i: number): number => {
    const first = block * unit + 2;
    if (kind === 'q8_0') return view.getInt8(first + i);
    return i < 16 ? bytes[first + i]! & 15 : bytes[first + i - 16]! >> 4;
  };
  const quants = new Uint8Array(blocks * quantBytes);
  for (let block = 0; block < blocks; block++) {
    for (let i = 0; i < quantBytes; i++) {
      quants[block * quantBytes + i] =
        kind === 'q8_0' ? quantOf(block, i) + 128 : quantOf(block, 2 * i) | (quantOf(block, 2 * i + 1) << 4);
    }
  }
  const scaleOf = (block: number): number => numberFromF16(view.getUint16(block * unit, true));
  return { quants, scales: Float32Array.from({ length: blocks }, (_, block) => scaleOf(block)) };
}

function attentionGraphs({
  queries,
  keys,
  heads,
  kvHeads,
  headDim,
  q,
  keyData,
  valueData,
}: Question & { op: 'attention' }): readonly PeerGraph[] {
  const past = keys - queries;
  const tokenWidth = kvHeads * headDim;
  const query: GraphTensor = { name: 'q', dtype: 'f32', dims: [1, queries, heads * headDim], data: q };
  const output = { name: 'y', dtype: 'f32', dims: [1, queries, heads * headDim] } as const;
  const whole = (name: string, data: Float32Array): GraphTensor => ({
    name,
    dtype: 'f32',
    dims: [1, keys, tokenWidth],
    data,
  });
  const fresh = (name: string, data: Float32Array): GraphTensor => ({
    name,
    dtype: 'f32',
    dims: [1, queries, tokenWidth],
    data: data.subarray(past * tokenWidth),
  });
  /** Makes the past with heads before tokens, as GroupQueryAttention takes it. */
  const before = (name: string, data: Float32Array): GraphTensor => {
    const turned = new Float32Array(past * tokenWidth);
    for (let token = 0; token < past; token++) {
      for (let head = 0; head < kvHeads; head++) {
        const row = data.subarray((token * kvHeads + head) * headDim, (token * kvHeads + head + 1) * headDim);
        turned.set(row, (head * past + token) * headDim);
      }
    }
    return { name, dtype: 'f32', dims: [1, kvHeads, past, headDim], data: turned };
  };
  return [
    {
      name: 'Attention',
      nodes: [
        {
          op: 'Attention',
          inputs: ['q', 'k', 'v'],
          outputs: ['y'],
          // A single query after a past sees every key, so it needs no mask.
          attributes: { is_causal: queries > 1 ? 1 : 0, q_num_heads: heads, kv_num_heads: kvHeads },
        },
      ],
      inputs: [query, whole('k', keyData), whole('v', valueData)],
      output,
    },
    {
      name: 'com.microsoft.GroupQueryAttention',
      nodes: [
        {
          op: 'GroupQueryAttention',
          domain: 'com.microsoft',
          inputs: ['q', 'k', 'v', ...(past > 0 ? ['past_k', 'past_v'] : ['', '']), 'last', 'total'],
          outputs: ['y', 'present_k', 'present_v'],
          attributes: { num_heads: heads, kv_num_heads: kvHeads },
        },
      ],
      inputs: [
        query,
        fresh('k', keyData),
        fresh('v', valueData),
        ...(past > 0 ? [before('past_k', keyData), before('past_v', valueData)] : []),
        { name: 'last', dtype: 'i32', dims: [1], data: Int32Array.of(keys - 1) },
        { name: 'total', dtype: 'i32', dims: [], data: Int32Array.of(keys) },
      ],
      output,
      extraOutputs: [
        { name: 'present_k', dtype: 'f32' },
        { name: 'present_v', dtype: 'f32' },
      ],
    },
  ];
}

/**
 * Transposes `[n, k]` to `[k, n]`.
 *
 * @param data - dense rows
 * @param n - the number of rows
 * @param k - the number of columns
 */
export function transposed<A extends Float32Array | Uint16Array>(data: A, n: number, k: number): A {
  const turned = data.slice() as A;
  for (let row = 0; row < n; row++)
    for (let column = 0; column < k; column++) turned[column * n + row] = data[row * k + column]!;
  return turned;
}

function rounded(data: Float32Array, dtype: FloatDtype): Float32Array | Uint16Array {
  if (dtype === 'f32') return data;
  const bits = new Uint16Array(data.length);
  for (let at = 0; at < data.length; at++) storeNumber(bits, dtype, at, data[at]!);
  return bits;
}
