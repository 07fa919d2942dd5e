/**
 * Small decoders in the form of other exporters: attention with its caches, and the RoPE in it.
 *
 * - `genai`: GroupQueryAttention of packed q, k and v that rotates by itself, with f16 tables
 *   (microsoft/onnxruntime-genai@004a30a src/python/py/models/builders/base.py make_group_query_attention)
 * - `genai-nodes`: com.microsoft.RotaryEmbedding on q and k before it, with f32 tables (the same,
 *   make_rotary_embedding)
 * - `optimum`: torch.onnx on HuggingFace's Llama: rotate_half, Concat with the past, both operands of the scores scaled
 *   (huggingface/transformers@5dd4a63 modeling_llama.py; pytorch's decomposition of scaled_dot_product_attention)
 */
import type { RopeSpec, Tensor } from 'ropewalk';
import { Graph } from './build.js';
import { cache, f32, i64, rotateHalf, turn } from './forms.js';

export interface WholeGraph {
  readonly form: 'genai' | 'genai-nodes' | 'optimum';
  /** The RoPE of each layer, or undefined. */
  readonly layers: readonly (RopeSpec | undefined)[];
  /** The RoPE of the keys, if it differs. */
  readonly keys?: readonly (RopeSpec | undefined)[];
  /** The other table of an If, for contexts of more than 64. */
  readonly longer?: RopeSpec;
  /** A number that is added to cos of pair 1 at position 40. */
  readonly edit?: number;
  /** Puts the tables into another file. */
  readonly external?: boolean;
  /** Makes keys and values inputs and outputs. */
  readonly caches?: boolean;
  readonly number?: (layer: number) => string;
}

const [HIDDEN, HEADS, KV_HEADS, D, ROWS] = [16, 2, 1, 8, 64];
const GROUPED = { num_heads: HEADS, kv_num_heads: KV_HEADS };

export function wholeGraph(how: WholeGraph): Uint8Array {
  const { form, layers, keys = layers, caches = true, number = String } = how;
  const g = new Graph();
  let x = g.input('inputs_embeds', 'f32', ['batch', 'seq', HIDDEN]);
  const mask = g.input('attention_mask', 'i64', ['batch', 'total']);
  const ids = form === 'genai' ? '' : g.input('position_ids', 'i64', ['batch', 'seq']);
  const length = g.node('Gather', [g.node('Shape', [mask]), g.constant(i64([1]))]);
  const weight = (rows: number, columns: number): string =>
    g.constant(
      f32(
        Array.from({ length: rows * columns }, (_, n) => Math.sin(n)),
        [rows, columns],
      ),
    );
  const tablesOf = new Map<string, readonly [string, string]>();
  for (const [layer, rope] of layers.entries()) {
    const past = ['key', 'value'].map((part) =>
      caches ? g.input(`past_key_values.${number(layer)}.${part}`, 'f32', ['batch', KV_HEADS, 'past', D]) : '',
    );
    const present = ['key', 'value'].map((part) => `present.${number(layer)}.${part}`);
    const project = (heads: number): string => g.node('MatMul', [x, weight(HIDDEN, heads * D)]);
    const out = { name: `/model/layers.${layer}/attn`, domain: 'com.microsoft' };
    let y: string;
    if (form === 'optimum') y = written(g, project, [rope, keys[layer]], ids, past, present);
    else if (form === 'genai') {
      const tables = rope ? cachesIn(g, rope, how, tablesOf, length, 'f16') : [];
      const inputs = [project(HEADS + 2 * KV_HEADS), '', '', ...past, mask, length, ...tables];
      y = attentionOf(g, inputs, present, { ...GROUPED, do_rotary: rope ? 1 : 0, rotary_interleaved: 0 }, out);
    } else {
      const rotated = (heads: number, of: RopeSpec | undefined): string => {
        const given = project(heads);
        if (!of) return given;
        const inputs = [given, ids, ...cachesIn(g, of, how, tablesOf, length, 'f32')];
        const attributes = { num_heads: heads, interleaved: 0, rotary_embedding_dim: 0 };
        return g.node('RotaryEmbedding', inputs, { ...attributes, num_heads: heads }, { domain: 'com.microsoft' });
      };
      const inputs = [rotated(HEADS, rope), rotated(KV_HEADS, keys[layer]), project(KV_HEADS), ...past, mask, length];
      y = attentionOf(g, inputs, caches ? present : [], GROUPED, out);
    }
    if (caches) for (const name of present) g.output(name, 'f32', ['batch', KV_HEADS, 'total', D]);
    x = g.node('Add', [x, g.node('MatMul', [y, weight(HEADS * D, HIDDEN)])]);
  }
  g.output(g.node('MatMul', [x, weight(HIDDEN, 4)]), 'f32', ['batch', 'seq', 4]);
  return g.model();
}

function attentionOf(
  g: Graph,
  inputs: readonly string[],
  present: readonly string[],
  attributes: Readonly<Record<string, number>>,
  more: { readonly name: string; readonly domain: string },
): string {
  const [y] = g.nodeOf('GroupQueryAttention', inputs, attributes, {
    ...more,
    to: [`${more.name}/output_0`, ...present],
  });
  return y!;
}

/** cos_cache and sin_cache: constants, in another file, or chosen by an If. */
function cachesIn(
  g: Graph,
  rope: RopeSpec,
  { longer, external, edit = 0 }: WholeGraph,
  known: Map<string, readonly [string, string]>,
  length: string,
  dtype: 'f32' | 'f16',
): readonly string[] {
  const key = JSON.stringify(rope);
  const parts = ['cos', 'sin'] as const;
  const make = (): readonly [string, string] => {
    if (external) {
      const at = (n: number) => ({
        location: 'model.onnx.data',
        offset: `${n * ROWS * D * 2}`,
        length: `${ROWS * D * 2}`,
      });
      return parts.map((part, n) => g.external(`${part}_cache`, 'f32', [ROWS, D / 2], at(n))) as [string, string];
    }
    const tables = (of: RopeSpec, rows: number): Tensor[] => parts.map((part) => cache(of, rows, part, 'none', dtype));
    if (edit !== 0)
      return tables(rope, ROWS).map((table, n) => g.constant(n === 0 ? edited(table, edit) : table)) as [
        string,
        string,
      ];
    if (!longer) return tables(rope, ROWS).map((table) => g.constant(table)) as [string, string];
    const branch = (prefix: string, of: RopeSpec, rows: number) => {
      const inner = new Graph(prefix);
      for (const tensor of tables(of, rows))
        inner.output(inner.node('Constant', [], { value: { tensor } }), dtype, [rows, D / 2]);
      return { graph: inner.graph };
    };
    const condition = g.node('Greater', [length, g.constant(i64([ROWS]))]);
    const branches = { then_branch: branch('l', longer, 2 * ROWS), else_branch: branch('s', rope, ROWS) };
    return g.nodeOf('If', [condition], branches, { to: ['cos_cache', 'sin_cache'] }) as [string, string];
  };
  const made = known.get(key) ?? make();
  known.set(key, made);
  return made;
}

function edited(table: Tensor, by: number): Tensor {
  const data = Float32Array.from(table.readNumbers() as Float64Array);
  data[(40 * D) / 2 + 1]! += by;
  return f32(data, table.shape);
}

/** Attention in ONNX's own operators. */
function written(
  g: Graph,
  project: (heads: number) => string,
  [rope, keyRope]: readonly (RopeSpec | undefined)[],
  ids: string,
  past: readonly string[],
  present: readonly string[],
): string {
  const heads = (x: string, count: number): string =>
    g.node('Transpose', [g.node('Reshape', [x, g.constant(i64([0, 0, count, D]))])], { perm: [0, 2, 1, 3] });
  const rotated = (x: string, of: RopeSpec | undefined): string => {
    if (!of) return x;
    const [cos, sin] = (['cos', 'sin'] as const).map((part) =>
      g.node('Unsqueeze', [g.node('Gather', [g.constant(cache(of, ROWS, part, 'halves')), ids]), g.constant(i64([1]))]),
    );
    return turn(g, x, cos!, sin!, rotateHalf(g, x, D / 2));
  };
  const q = rotated(heads(project(HEADS), HEADS), rope);
  const k = rotated(heads(project(KV_HEADS), KV_HEADS), keyRope);
  const v = heads(project(KV_HEADS), KV_HEADS);
  const [key, value] = [k, v].map((one, n) => g.node('Concat', [past[n]!, one], { axis: 2 }, { to: present[n]! }));
  const scale = g.constant(f32([D ** -0.25], []));
  const keys = g.node('Transpose', [key!], { perm: [0, 1, 3, 2] });
  const scores = g.node('MatMul', [g.node('Mul', [q, scale]), g.node('Mul', [keys, scale])]);
  const y = g.node('MatMul', [g.node('Softmax', [scores], { axis: -1 }), value!]);
  const merged = g.node('Transpose', [y], { perm: [0, 2, 1, 3] });
  return g.node('Reshape', [merged, g.constant(i64([0, 0, HEADS * D]))]);
}
