/** The place of a tensor in the forward pass, by the names that runtimes give it. @module */

/** The kinds whose rows consist of heads. */
export const OF_HEADS: ReadonlySet<Kind> = new Set(['q', 'k', 'v', 'q_norm', 'k_norm', 'q_rope', 'k_rope', 'heads']);

/** The tensors of a pass in the order in which they are made; those between `attn_norm` and `out` belong to a layer. */
export type Kind = keyof typeof MADE;
const MADE = {
  embedding: 'attn_norm qkv q +out',
  attn_norm: 'qkv q k v heads attn +mid +out',
  qkv: 'q_rope k_rope heads attn +mid +out',
  q: 'q_norm q_rope heads attn +mid +out',
  k: 'k_norm k_rope heads attn +mid +out',
  v: 'heads attn +mid +out',
  q_norm: 'q_rope heads attn +mid +out',
  k_norm: 'k_rope heads attn +mid +out',
  q_rope: 'heads attn +mid +out',
  k_rope: 'heads attn +mid +out',
  heads: 'attn +mid +out',
  attn: 'attn_post +mid +out',
  attn_post: '+mid +out',
  mid: 'mlp_norm gate_up gate up mlp +out',
  mlp_norm: 'gate_up gate up act mlp +out',
  gate_up: 'act mlp +out',
  gate: 'act mlp +out',
  up: 'act mlp +out',
  act: 'mlp +out',
  mlp: 'mlp_post +out',
  mlp_post: '+out',
  per_layer: '+out',
  out: 'attn_norm qkv q +mid +out',
  norm: 'head logits',
  head: 'logits',
  logits: '',
} as const;
export const KINDS = Object.keys(MADE) as readonly Kind[];

/** Returns what is made from a tensor, the next one first. One after a `+` also contains the residual stream. */
export const readersOf = (kind: Kind): readonly string[] => MADE[kind].split(' ').filter((name) => name !== '');

/** The place of a tensor. */
export interface Place {
  readonly kind: Kind;
  /** Undefined outside of the layers. */
  readonly layer: number | undefined;
  /** The number of the tensor in a tuple that a module returned. */
  readonly item?: number;
}

/** Names of tensors in a layer, behind its number; the first that fits counts. HuggingFace's, vLLM's, ggml's, Meta's. */
const IN_LAYER: readonly (readonly [RegExp, Kind])[] = [
  [/(?:o_proj|out_proj|dense|wo)[._](?:input|in)$/, 'heads'],
  [/(?:down_proj|w2)[._](?:input|in)$/, 'act'],
  [/(?:^|[._])(?:input|in)$/, 'embedding'], // the input of another module, which has a name of its own
  [/(?:query|q)_?(?:rope|rot|rotated|embed|after_rope|pos|pe)$|^q_after_rope$|rotary_emb(?:edding)?[._]q$/, 'q_rope'],
  [/(?:key|k)_?(?:rope|rot|rotated|embed|after_rope|pos|pe)$|^k_after_rope$|rotary_emb(?:edding)?[._]k$/, 'k_rope'],
  [/(?:q_norm|q_layernorm|query_layernorm|qcur_normed|q_normed)$/, 'q_norm'],
  [/(?:k_norm|k_layernorm|key_layernorm|kcur_normed|k_normed)$/, 'k_norm'],
  [/(?:qkv_proj|query_key_value|c_attn|wqkv|linear_qkv|qkv)$/, 'qkv'],
  [/(?:^|[._])(?:q_proj|query|wq|qcur|q|linear_q)$/, 'q'],
  [/(?:^|[._])(?:k_proj|key|wk|kcur|k|linear_k)$/, 'k'],
  [/(?:^|[._])(?:v_proj|value|wv|vcur|v|linear_v)$/, 'v'],
  [/(?:heads|core_attention|kqv_merged(?:_cont)?|kqv_out|attn[._]attn|attention_heads)$/, 'heads'],
  [/(?:attn|attention)[._](?:o_proj|out_proj|dense|wo|c_proj|linear_proj)$|^o_proj$/, 'attn'],
  [/^(?:input_layernorm|ln_1|attn_norm|attention_norm|norm1|ln_attn)$/, 'attn_norm'],
  [/^(?:pre_feedforward_layernorm|ffn_norm|ln_2|mlp_norm|norm2|pre_mlp_layernorm)$/, 'mlp_norm'],
  [/^post_attention_layernorm$/, 'mlp_norm'],
  [/^(?:attn_post|post_self_attn_layernorm|attn_post_norm)$/, 'attn_post'],
  [/^(?:post_feedforward_layernorm|ffn_post_norm|mlp_post|post_mlp_layernorm)$/, 'mlp_post'],
  [/^(?:self_attn|self_attention|attention|attn|attn_out)$/, 'attn'],
  [/^per_layer$/, 'per_layer'],
  [/^(?:ffn_inp|mid)$/, 'mid'],
  [/(?:gate_up_proj|gate_up)$/, 'gate_up'],
  [/(?:gate_proj|w1|ffn_gate|^gate)$/, 'gate'],
  [/(?:up_proj|w3|ffn_up|c_fc|^up)$/, 'up'],
  [/^(?:ffn_gate_par|ffn_swiglu|ffn_geglu|act|mlp[._]act_fn)$/, 'act'],
  [
    /^(?:(?:mlp|feed_forward|ffn|block_sparse_moe)(?:[._](?:down_proj|w2|c_proj|dense_4h_to_h))?|ffn_out|ffn_moe_out)$/,
    'mlp',
  ],
  [/^(?:|out|l_out|output|hidden_states)$/, 'out'],
];

const OUTSIDE: readonly (readonly [RegExp, Kind])[] = [
  [
    /(?:^|[._])(?:embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|(?:inp_)?embd|embedding|embeddings)$/,
    'embedding',
  ],
  [/(?:^|[._])(?:lm_head|embed_out|output_layer|head)$/, 'head'],
  [/(?:^|[._])(?:logits|result_output)$/, 'logits'],
  [/(?:^|[._])(?:norm|ln_f|final_layernorm|final_layer_norm|result_norm)$/, 'norm'],
];

/** Parts of a model whose layers are not the decoder's, and single experts, which all have the same names. */
const ELSEWHERE = /(?:^|[._])(?:vision\w*|visual|encoder|(?:shared_)?experts?)[._]/;
const LAYER = /(?:^|[._])(?:layers?|h|blocks?|blk)[._]?(\d{1,5})(?:[._](.*))?$/;

/**
 * Finds the place of a tensor.
 *
 * @param name - as a runtime wrote it: `model.layers.3.self_attn.q_proj.output.0`, `Qcur-3`, `layers.3.q`
 * @returns undefined for a name that no rule knows
 */
export function placeOf(name: string): Place | undefined {
  if (name.length > 300) return undefined;
  const text = name
    .toLowerCase()
    .replace(/\s*\(.*\)$/, '')
    .replaceAll('/', '.');
  if (ELSEWHERE.test(text)) return undefined;
  const ggml = /^([a-z_]+)-(\d{1,5})$/.exec(text);
  if (ggml) return inLayer(ggml[1]!, Number(ggml[2]));
  const [, module, last] = /^(.*?)(?:\.outputs?)?(?:\.(\d))?$/.exec(text)!;
  // In `layers.3` the number is the layer's, in `layers.3.0` that of an item.
  const isItem = last !== undefined && (LAYER.test(module!) || text !== `${module}.${last}`);
  const item = isItem ? Number(last) : undefined;
  const path = isItem ? module! : last === undefined ? module! : text;
  const layered = LAYER.exec(path);
  if (layered) {
    const [, layer, rest = ''] = layered;
    const place = inLayer(
      item !== undefined && /rotary_emb$/.test(rest) ? `${rest}.${'qk'[item]}` : rest,
      Number(layer),
    );
    return place && item !== undefined && place.kind !== 'q_rope' && place.kind !== 'k_rope'
      ? { ...place, item }
      : place;
  }
  const kind = OUTSIDE.find(([pattern]) => pattern.test(path))?.[1];
  return kind && { kind, layer: undefined };
}

function inLayer(rest: string, layer: number): Place | undefined {
  const kind = IN_LAYER.find(([pattern]) => pattern.test(rest))?.[1];
  return kind && kind !== 'embedding' ? { kind, layer } : undefined;
}
