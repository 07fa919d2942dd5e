/** Finds the tensor of each weight, and decides how it is held in memory, before the first byte is read. @module */
import { BLOCK_FORMATS, type BlockFormat, sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { BLOCK_FORMAT_NAMES, countElements, countLayers, nameForMessage } from 'ropewalk/internal';
import { WIDENED } from './dequantize.js';
import type { BiasGroup } from './families.js';
import { fitsQ8, type PackedTensor, type StoredTensor } from './packed.js';
import type { QuantizedFormat } from './quantize.js';
import { IN_Q8, type SplitFormat } from './split-blocks.js';
import type { DecoderConfig, DeltaConfig, LayerConfig, LayerSizes, RecurrentConfig } from './types.js';

/** Kernels read {@link BlockFormat}; others hold more formats as they are stored. */
export type Held = Floats | BlockFormat | SplitFormat;

export type Floats = 'f32' | 'f16' | 'bf16';

/**
 * The dtype of a matrix in memory whose stored type the backend does not read, and that no 16-bit type holds exactly.
 */
export type WidenTo = 'f32' | 'f16';

/** How weights are held in memory. */
export interface HoldOptions {
  /** Decides for matrices whose type is not in `formats`, and that no 16-bit type holds exactly. Default: f32. */
  readonly widenTo?: WidenTo | undefined;
  /** The block formats that are kept as they are stored. Default: all that kernels read. */
  readonly formats?: readonly (BlockFormat | SplitFormat)[] | undefined;
  /** The block format that other matrices are rounded to, as ggml does. Norms, biases and routers keep their types. */
  readonly quantize?: QuantizedFormat | undefined;
  /** Whether f16 and bf16 become f32, which is exact. */
  readonly widenHalves?: boolean | undefined;
  /**
   * Returns f32, f16, bf16, q8_0 or q4_0 for a weight that is to be written, or undefined for the other options'
   * choice.
   */
  readonly as?: ((weight: Pick<WeightPlan, 'place' | 'type' | 'shape'>) => Held | undefined) | undefined;
}

export interface Span {
  readonly file: string;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** A weight that is to be loaded. */
export interface WeightPlan {
  /** The place in the model: `embedding.weight`, or `3.q.bias` for layer 3. */
  readonly place: string;
  /** The name of the tensor in the file, or of the first of several. */
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  /** The bytes of its rows, in order. */
  readonly spans: readonly Span[];
  readonly sizeBytes: number;
  readonly held: Held;
  /** Whether {@link WidenTo} decided the dtype. */
  readonly widened: boolean;
  /** The bytes in the backend's memory. */
  readonly heldBytes: number;
  /** Whether the file has the values less 1. */
  readonly lessOne: boolean;
  /** Whether the file has the logarithms of the values' sizes; the values are negative. */
  readonly log?: boolean;
  /**
   * Marks MXFP4 as transformers stores it, in codes and scales: the rows of so many matrices take turns. 0: no such
   * weight.
   */
  readonly turns: 0 | 1 | 2;
  /** The packed matrices whose rows it has, in order. */
  readonly packed?: readonly PackedSpan[];
}

/** Rows of a packed matrix. */
export interface PackedSpan {
  readonly tensor: PackedTensor;
  readonly shape: readonly [n: number, k: number];
  readonly rows: readonly [from: number, to: number];
}

/**
 * The lengths that shapes consist of: h hidden, n and m query and key/value heads, d and dv a head of q, k and of v, q
 * all query heads, o all heads' values, taps the width of a convolution, dn, ddv, qkv, z a delta net's heads of v, the
 * size of one, its q, k and v, and all heads, sn, inner, sg, perGroup, xbc, ssm a state space's heads, all its heads, its
 * groups, what one has of all heads, its x, B and C, and what its first matrix gives, f intermediate, e experts, x an expert's intermediate, xh the width of its input, s the shared expert's, c
 * latent of k and v, cq latent of q, p dimensions of a head that do not rotate, pl embeddings of one layer's own, allPl
 * those of all layers, a streams, others those but one, aa a by a, r the rank of LAuReL.
 */
type Length = keyof ReturnType<typeof lengthsOf>;

/** One tensor of a layer, or one that a model has once. */
interface Row {
  /** The file's names without prefix and layer. A star stands for the numbers of tensors that are stacked. */
  readonly huggingface: string;
  readonly gguf: string;
  /** Slowest dimension first: a matrix is `[outputs, inputs]`. */
  readonly shape: readonly Length[];
  /** Says whether there is a bias: by the config's group, by the family's norms, or by its experts. */
  readonly bias?: BiasGroup | 'norm' | 'experts';
  /** Default: the first dimension. */
  readonly biasShape?: readonly Length[];
  /** The shape in HuggingFace's files, where it is another, and that in GGUF's. */
  readonly stored?: readonly Length[];
  readonly ggufStored?: readonly Length[];
}

type Lengths = readonly Length[];

function row(huggingface: string, gguf: string, shape: Lengths, bias?: Row['bias'], biasShape?: Lengths): Row {
  return { huggingface, gguf, shape, bias, biasShape };
}

/**
 * The tensors of one layer, by Llama's names. Where a name is empty, the family's row has it.
 *
 * gpt-oss saves experts transposed, `[e, inputs, outputs]`, with gate and up in turns; in MXFP4 they are `[e, outputs,
 * inputs]`, and rows of gate and up take turns. `kvB` is `kB` and `vB` in one.
 */
const LAYER = {
  attentionNorm: row('input_layernorm.weight', 'attn_norm.weight', ['h'], 'norm'),
  q: row('self_attn.q_proj.weight', 'attn_q.weight', ['q', 'h'], 'qkv'),
  k: row('self_attn.k_proj.weight', 'attn_k.weight', ['k', 'h'], 'qkv'),
  v: row('self_attn.v_proj.weight', 'attn_v.weight', ['v', 'h'], 'qkv'),
  qA: row('self_attn.q_a_proj.weight', 'attn_q_a.weight', ['cq', 'h']),
  qANorm: row('self_attn.q_a_layernorm.weight', 'attn_q_a_norm.weight', ['cq']),
  qB: row('self_attn.q_b_proj.weight', 'attn_q_b.weight', ['q', 'cq']),
  kvA: row('self_attn.kv_a_proj_with_mqa.weight', 'attn_kv_a_mqa.weight', ['cAndRope', 'h']),
  kvANorm: row('self_attn.kv_a_layernorm.weight', 'attn_kv_a_norm.weight', ['c']),
  kvB: row('self_attn.kv_b_proj.weight', 'attn_kv_b.weight', ['keysAndValues', 'c']),
  kB: row('', 'attn_k_b.weight', ['n', 'c', 'p']),
  vB: row('', 'attn_v_b.weight', ['n', 'dv', 'c']),
  qNorm: row('self_attn.q_norm.weight', 'attn_q_norm.weight', ['d']),
  kNorm: row('self_attn.k_norm.weight', 'attn_k_norm.weight', ['d']),
  sinks: row('self_attn.sinks', 'attn_sinks.weight', ['n']),
  output: row('self_attn.o_proj.weight', 'attn_output.weight', ['h', 'o'], 'output'),
  deltaQkv: row('linear_attn.in_proj_qkv.weight', 'attn_qkv.weight', ['qkv', 'h']),
  deltaZ: row('linear_attn.in_proj_z.weight', 'attn_gate.weight', ['z', 'h']),
  deltaBeta: row('linear_attn.in_proj_b.weight', 'ssm_beta.weight', ['dn', 'h']),
  deltaDecay: row('linear_attn.in_proj_a.weight', 'ssm_alpha.weight', ['dn', 'h']),
  deltaConv: {
    ...row('linear_attn.conv1d.weight', 'ssm_conv1d.weight', ['qkv', 'taps']),
    stored: ['qkv', 'one', 'taps'],
  },
  deltaBias: row('linear_attn.dt_bias', 'ssm_dt.bias', ['dn']),
  deltaRate: row('linear_attn.A_log', 'ssm_a', ['dn']),
  deltaGain: row('linear_attn.norm.weight', 'ssm_norm.weight', ['ddv']),
  deltaOut: row('linear_attn.out_proj.weight', 'ssm_out.weight', ['h', 'z']),
  ssmIn: row('mamba.in_proj.weight', 'ssm_in.weight', ['ssm', 'h'], 'ssmIn'),
  ssmConv: {
    ...row('mamba.conv1d.weight', 'ssm_conv1d.weight', ['xbc', 'taps'], 'conv'),
    stored: ['xbc', 'one', 'taps'],
  },
  ssmBias: row('mamba.dt_bias', 'ssm_dt.bias', ['sn']),
  ssmRate: { ...row('mamba.A_log', 'ssm_a', ['sn']), ggufStored: ['sn', 'one'] },
  ssmSkip: { ...row('mamba.D', 'ssm_d', ['sn']), ggufStored: ['sn', 'one'] },
  ssmGain: { ...row('mamba.norm.weight', 'ssm_norm.weight', ['sg', 'perGroup']), stored: ['inner'] },
  ssmOut: row('mamba.out_proj.weight', 'ssm_out.weight', ['h', 'inner'], 'ssmOut'),
  convIn: row('conv.in_proj.weight', 'shortconv.in_proj.weight', ['threeH', 'h'], 'conv'),
  conv: {
    ...row('conv.conv.weight', 'shortconv.conv.weight', ['h', 'taps'], 'conv'),
    stored: ['h', 'one', 'taps'],
  },
  convOut: row('conv.out_proj.weight', 'shortconv.out_proj.weight', ['h', 'h'], 'conv'),
  attentionPostNorm: row('', 'post_attention_norm.weight', ['h'], 'norm'),
  mlpNorm: row('post_attention_layernorm.weight', 'ffn_norm.weight', ['h'], 'norm'),
  gate: row('mlp.gate_proj.weight', 'ffn_gate.weight', ['f', 'h'], 'mlp'),
  up: row('mlp.up_proj.weight', 'ffn_up.weight', ['f', 'h'], 'mlp'),
  down: row('mlp.down_proj.weight', 'ffn_down.weight', ['h', 'f'], 'mlp'),
  router: row('', 'ffn_gate_inp.weight', ['e', 'h'], 'experts'),
  choiceBias: row('mlp.gate.e_score_correction_bias', 'exp_probs_b.bias', ['e']),
  expertIn: row('', 'ffn_latent_down.weight', ['xh', 'h']),
  expertGate: row('', 'ffn_gate_exps.weight', ['e', 'x', 'xh'], 'experts', ['e', 'x']),
  expertUp: row('', 'ffn_up_exps.weight', ['e', 'x', 'xh'], 'experts', ['e', 'x']),
  expertDown: row('', 'ffn_down_exps.weight', ['e', 'xh', 'x'], 'experts', ['e', 'h']),
  expertOut: row('', 'ffn_latent_up.weight', ['h', 'xh']),
  expertGateUp: row('', '', ['e', 'h', 'twoX'], 'experts', ['e', 'twoX']),
  expertGateUpBlocks: row('', '', ['twoE', 'x', 'h'], 'experts', ['e', 'twoX']),
  expertDownTransposed: row('', '', ['e', 'x', 'h'], 'experts', ['e', 'h']),
  sharedRouter: row('', 'ffn_gate_inp_shexp.weight', ['one', 'h']),
  sharedGate: row('', 'ffn_gate_shexp.weight', ['s', 'h']),
  sharedUp: row('', 'ffn_up_shexp.weight', ['s', 'h']),
  sharedDown: row('', 'ffn_down_shexp.weight', ['h', 's']),
  denseNorm: row('post_feedforward_layernorm_1.weight', 'post_ffw_norm_1.weight', ['h']),
  routerNorm: row('router.scale', 'ffn_gate_inp.scale', ['h']),
  expertScale: row('router.per_expert_scale', 'ffn_down_exps.scale', ['e']),
  expertsNorm: row('pre_feedforward_layernorm_2.weight', 'pre_ffw_norm_2.weight', ['h']),
  expertsPostNorm: row('post_feedforward_layernorm_2.weight', 'post_ffw_norm_2.weight', ['h']),
  mlpPostNorm: row('', 'post_ffw_norm.weight', ['h'], 'norm'),
  perLayerGate: row('per_layer_input_gate.weight', 'inp_gate.weight', ['pl', 'h']),
  perLayerOut: row('per_layer_projection.weight', 'proj.weight', ['h', 'pl']),
  perLayerPostNorm: row('post_per_layer_input_norm.weight', 'post_norm.weight', ['h']),
  layerScale: row('layer_scalar', 'layer_output_scale.weight', ['one']),
  altupRouterNorm: row('altup.router_norm.weight', 'altup_router_norm.weight', ['h']),
  altupRouter: row('altup.modality_router.weight', 'altup_router.weight', ['a', 'h']),
  altupPredict: row('altup.prediction_coefs.weight', 'altup_predict_coef.weight', ['aa', 'a']),
  altupCorrect: row('altup.correction_coefs.weight', 'altup_correct_coef.weight', ['a', 'a']),
  altupScale: row('altup.correct_output_scale', 'altup_correct_scale.weight', ['h']),
  laurelLeft: row('laurel.linear_left.weight', 'laurel_l.weight', ['r', 'h']),
  laurelRight: row('laurel.linear_right.weight', 'laurel_r.weight', ['h', 'r']),
  laurelNorm: row('laurel.post_laurel_norm.weight', 'laurel_post_norm.weight', ['h']),
} satisfies Readonly<Record<string, Row>>;
/** A tensor of a layer, without its bias. */
export type Part = keyof typeof LAYER;
/** The shapes of the norms of q and k, by the family's kind of norm. */
const QK_NORMS: Readonly<Record<'head' | 'all' | 'each-head', Readonly<Record<'qNorm' | 'kNorm', Row['shape']>>>> = {
  head: { qNorm: ['d'], kNorm: ['d'] },
  all: { qNorm: ['q'], kNorm: ['k'] },
  'each-head': { qNorm: ['n', 'd'], kNorm: ['m', 'd'] },
};
const EMBEDDING = row('embed_tokens.weight', 'token_embd.weight', ['vocab', 'h']);
const TOKEN_TYPES = row('', 'token_types.weight', ['types', 'h']);
const EMBEDDING_NORM = row('', 'token_embd_norm.weight', ['h'], 'norm');
const NORM = row('norm.weight', 'output_norm.weight', ['h'], 'norm');
const PER_LAYER = {
  perLayerEmbedding: row('embed_tokens_per_layer.weight', 'per_layer_token_embd.weight', ['plVocab', 'allPl']),
  perLayerProjection: row('per_layer_model_projection.weight', 'per_layer_model_proj.weight', ['allPl', 'h']),
  perLayerNorm: row('per_layer_projection_norm.weight', 'per_layer_proj_norm.weight', ['pl']),
};
const ALTUP = {
  altupProjection: row('altup_projections.*.weight', 'altup_proj.weight', ['others', 'h', 'h']),
  altupUnembed: row('altup_unembed_projections.*.weight', 'altup_unembd_proj.weight', ['others', 'h', 'h']),
};
const HEAD = row('lm_head.weight', 'output.weight', ['vocab', 'h'], 'head');
/** The name of GGUF's fused q, k and v, which llama.cpp takes in place of three matrices. */
const GGUF_QKV = 'attn_qkv.weight';
/** The same of gate and up of experts. */
const GGUF_EXPERTS = 'ffn_gate_up_exps.weight';

function lengthsOf(config: DecoderConfig) {
  const { hiddenSize: h, numHeads: n, numKvHeads: m, headDim: d, valueDim: dv, latent, experts, recurrent } = config;
  const a = config.altup?.streams ?? 1;
  const delta = recurrent?.kind === 'delta' ? recurrent : undefined;
  const [dn, ddv] = [delta?.heads ?? 0, delta?.valueDim ?? 0];
  const space = spaceSizes(config);
  const [c, p, x, e] = [latent?.rank ?? 0, latent?.nope ?? 0, experts?.width ?? 0, experts?.count ?? 0];
  return {
    vocab: config.vocabSize,
    types: config.tokenTypes,
    h,
    n,
    m,
    d,
    dv,
    q: n * d * (config.family.outputGate ? 2 : 1),
    k: m * d,
    v: m * dv,
    o: n * dv,
    f: config.intermediateSize,
    e,
    twoE: 2 * e,
    x,
    twoX: 2 * x,
    xh: experts?.latent ?? h,
    s: experts?.sharedWidth ?? 0,
    one: 1,
    c,
    p,
    threeH: 3 * h,
    taps: recurrent?.width ?? 0,
    dn,
    ddv,
    z: dn * ddv,
    qkv: deltaWidth(config),
    ...space,
    cq: latent?.queryRank ?? 0,
    cAndRope: c + (latent?.rope ?? 0),
    keysAndValues: n * (p + dv),
    pl: config.perLayerWidth,
    plVocab: config.perLayerVocab,
    allPl: config.perLayerWidth * config.numLayers,
    a,
    others: a - 1,
    aa: a * a,
    r: config.altup?.laurelRank ?? 0,
  };
}

const RECURRENT_PARTS: Readonly<Record<RecurrentConfig['kind'], readonly Part[]>> = {
  conv: ['convIn', 'conv', 'convOut'],
  delta: [
    ...(['deltaQkv', 'deltaZ', 'deltaBeta', 'deltaDecay', 'deltaConv'] as const),
    ...(['deltaBias', 'deltaRate', 'deltaGain', 'deltaOut'] as const),
  ],
  ssm: ['ssmIn', 'ssmConv', 'ssmBias', 'ssmRate', 'ssmSkip', 'ssmGain', 'ssmOut'],
};

/** Counts the dimensions of a state space; 0 where there is none. */
export function spaceSizes({ recurrent }: Pick<DecoderConfig, 'recurrent'>) {
  const none = { heads: 0, headDim: 0, groups: 1, stateDim: 0 };
  const { heads, headDim, groups, stateDim } = recurrent?.kind === 'ssm' ? recurrent : none;
  const inner = heads * headDim;
  const xbc = inner + 2 * groups * stateDim;
  return { sn: heads, inner, sg: groups, perGroup: inner / groups, xbc, ssm: inner + xbc + heads };
}

/** Returns the sizes of a layer. */
export function layerSizes(config: DecoderConfig, layer: number): LayerSizes {
  return config.layerSizes?.[layer] ?? config;
}

/** Whether a layer has attention. */
export function attends({ recurrent, attends = !recurrent }: LayerConfig): boolean {
  return attends;
}

function recurrentParts({ recurrent }: DecoderConfig): readonly Part[] {
  const parts = RECURRENT_PARTS[recurrent!.kind];
  return recurrent?.kind === 'ssm' && !recurrent.norm ? parts.filter((part) => part !== 'ssmGain') : parts;
}

/** Counts the dimensions of a delta net's q, k and v together. */
export function deltaWidth({ recurrent }: Pick<DecoderConfig, 'recurrent'>): number {
  if (recurrent?.kind !== 'delta') return 0;
  return 2 * recurrent.keyHeads * recurrent.keyDim + recurrent.heads * recurrent.valueDim;
}

const ALTUP_PARTS: readonly Part[] = [
  ...(['altupRouterNorm', 'altupRouter', 'altupPredict', 'altupCorrect', 'altupScale'] as const),
  ...(['laurelLeft', 'laurelRight', 'laurelNorm'] as const),
];

/** Lists the parts of a layer in the order of the forward pass. `stored` says whether the file has a part. */
function partsOf(
  config: DecoderConfig,
  layer: number,
  stored: (part: Part) => boolean,
  { kind, transposed }: { kind: LayerConfig; transposed: boolean },
): Part[] {
  const { family, parallel, experts } = config;
  const before = family.blockNorms === undefined || family.blockNorms === 'both';
  const after = family.blockNorms !== undefined;
  const parts: Part[] = config.altup ? [...ALTUP_PARTS] : [];
  const { recurrent = false, feedForward = true } = kind;
  if (before && (recurrent || attends(kind)) && !(family.firstWithoutNorm && layer === 0)) parts.push('attentionNorm');
  if (recurrent) parts.push(...recurrentParts(config));
  if (attends(kind)) parts.push(...attentionParts(config, layer, stored));
  if (after) parts.push('attentionPostNorm');
  if (!feedForward) return parts;
  if (before && !(parallel && family.parallel!.norms === 1)) parts.push('mlpNorm');
  const beside = family.experts?.beside === true;
  if (!experts?.layers[layer] || beside) {
    if (!family.ungated) parts.push('gate');
    parts.push('up', 'down');
  }
  if (beside) parts.push('denseNorm', 'routerNorm', 'expertScale', 'expertsNorm');
  if (experts?.layers[layer]) {
    parts.push('router');
    const { choiceBias } = family.experts!;
    if (choiceBias === 'always' || (choiceBias && stored('choiceBias'))) parts.push('choiceBias');
    if (stored('expertGateUpBlocks')) parts.push('expertGateUpBlocks', 'expertDown');
    else if (transposed) parts.push('expertGateUp', 'expertDownTransposed');
    else {
      if (experts.latent !== undefined) parts.push('expertIn');
      if (!family.ungated) parts.push('expertGate');
      parts.push('expertUp', 'expertDown');
      if (experts.latent !== undefined) parts.push('expertOut');
    }
    if (experts.sharedWidth > 0) {
      if (family.experts!.shared === 'gated') parts.push('sharedRouter');
      if (!family.ungated) parts.push('sharedGate');
      parts.push('sharedUp', 'sharedDown');
    }
  }
  if (beside) parts.push('expertsPostNorm');
  if (after) parts.push('mlpPostNorm');
  if (config.perLayerWidth > 0) parts.push('perLayerGate', 'perLayerOut', 'perLayerPostNorm');
  if (family.layerEnd && stored('layerScale')) parts.push('layerScale');
  return parts;
}

function attentionParts(config: DecoderConfig, layer: number, stored: (part: Part) => boolean): Part[] {
  const { family, latent, qkNorm } = config;
  const { sharesWith, valuesAreKeys } = layerSizes(config, layer);
  const parts: Part[] = [];
  if (sharesWith !== undefined) parts.push('q');
  else if (!latent) parts.push('q', 'k', ...(valuesAreKeys ? [] : ['v' as const]));
  else {
    if (latent.queryRank === undefined) parts.push('q');
    else parts.push('qA', 'qANorm', 'qB');
    parts.push('kvA', 'kvANorm');
    if (stored('kB')) parts.push('kB', 'vB');
    else parts.push('kvB');
  }
  if (qkNorm && family.qkNorm !== 'rotated')
    parts.push('qNorm', ...(sharesWith === undefined ? ['kNorm' as const] : []));
  if (family.sinks) parts.push('sinks');
  parts.push('output');
  return parts;
}

/** The names of tensors that repeat what the config or the RoPE says, or that are not the decoder's. */
const SPARE = {
  huggingface:
    /^((model|gpt_neox)\.)?layers\.\d+\.((self_attn|attention)\.rotary_emb\.inv_freq|attention\.(masked_)?bias)$|^mtp\.|^(model\.)?(visual|vision_tower|vision_model|multi_modal_projector|audio_tower|embed_vision|embed_audio)\./,
  gguf: /^(rope_freqs|rope_factors_long|rope_factors_short)\.weight$/,
};

/** The tensors behind an encoder: heads for tokens or classes. */
const HEADS = /^(lm_head|head|decoder|classifier|cls|pooler)\./;

/** The tensors that choose tokens for sparse attention. */
const INDEXER = /^(blk|model\.layers)\.\d+\.(self_attn\.)?indexer\./;

/** The tensors that layers which read another layer's keys and values may have nevertheless. */
const OWN_KEYS = /(?:blk|layers)\.(\d+)\.(?:attn_(?:k|v|k_norm)|self_attn\.(?:[kv]_proj|[kv]_norm))\.weight$/;

/** One weight that the model needs. */
interface Need {
  /** As in {@link WeightPlan}. */
  readonly place: string;
  readonly shape: readonly number[];
  /** The tensors in the file, in order. */
  readonly pieces: readonly Piece[];
  /** Whether no kernel takes it in blocks. */
  readonly plain?: boolean;
  readonly lessOne?: boolean;
  readonly log?: boolean;
  /** Whether it multiplies activations, whose type it has. */
  readonly factor?: boolean;
  readonly turns?: WeightPlan['turns'];
}

/** A tensor of the file, or some of its rows. */
interface Piece {
  readonly name: string;
  readonly shape: readonly number[];
  /** The first row, and one past the last. Default: all. */
  readonly rows?: readonly [from: number, to: number];
  /** How many rows there are. Default: the first dimension. */
  readonly of?: number;
}

/**
 * Plans every weight, in the order of the forward pass.
 *
 * @throws {RopewalkError} FORMAT for a tensor that is missing, twice there or of another shape; UNSUPPORTED for a
 *   tensor that the model does not have, and for a type that is not read
 */
export function planWeights(
  config: DecoderConfig,
  given: readonly StoredTensor[],
  where: string,
  hold: HoldOptions = {},
): WeightPlan[] {
  const { family } = config;
  const unused = config.source === 'gguf' ? family.ggufUnused : undefined;
  const stored = unused ? given.filter(({ name }) => !unused.test(name)) : given;
  const byName = new Map<string, StoredTensor>();
  for (const tensor of stored) {
    const twin = byName.get(tensor.name);
    if (twin) fail('FORMAT', `${tensor.file}: ${nameForMessage(tensor.name)}`, `${twin.file} has this tensor too`);
    byName.set(tensor.name, tensor);
  }
  const factors = ['long', 'short'].map((one) => `rope_factors_${one}.weight`);
  const [there, missing] = [true, false].map((is) => factors.find((name) => byName.has(name) === is));
  if (there && missing) fail('FORMAT', where, `tensor ${missing} is missing, although ${there} is there`);
  const known = new Set<string>();
  const plans = needsOf(config, byName).map((need) => {
    const tensors = need.pieces.map((piece) => {
      known.add(piece.name);
      return byName.get(piece.name) ?? refuseMissing(config, piece, where, stored.length);
    });
    return planOf(tensors, need, hold);
  });
  for (const { name, file } of stored) {
    if (known.has(name) || SPARE[config.source].test(name)) continue;
    if (family.sparse && INDEXER.test(name)) continue;
    const [, shared] = OWN_KEYS.exec(name) ?? [];
    if (shared && config.layerSizes?.[Number(shared)]?.sharesWith !== undefined) continue;
    if (config.source === 'huggingface') {
      // transformers ignores the lm_head that some files have beside a tied head.
      if (config.tiedHead && /(^|\.)lm_head\.weight$/.test(name)) continue;
      if (family.encoder && HEADS.test(name)) continue;
      // DeepSeek-V3 has more layers at its end, which predict further tokens.
      const layer = /^model\.layers\.(\d+)\./.exec(name)?.[1];
      if (family.experts?.deepseek && layer !== undefined && Number(layer) >= config.numLayers) continue;
    } else {
      const layer = Number(/^blk\.(\d+)\./.exec(name)?.[1]);
      if (layer >= config.numLayers && layer < config.numLayers + config.furtherLayers) continue;
    }
    const why = `a ${config.architecture} model with this config has no such tensor`;
    const next = 'The model has a step that is not computed here, or the config belongs to another model.';
    fail('UNSUPPORTED', `${file}: tensor ${nameForMessage(name)}`, `${why}. ${next}`);
  }
  return plans;
}

/**
 * Whether a folder of safetensors is the base class of a model, as Qwen3-Embedding-8B is published: its names have no
 * prefix, and no tensor is the head.
 *
 * @see vllm-project/vllm-metal#736
 */
export function lacksHead({ family, tiedHead }: DecoderConfig, stored: readonly StoredTensor[]): boolean {
  if (tiedHead || family.encoder) return false;
  const { embedding = EMBEDDING.huggingface, head = HEAD.huggingface } = family.names ?? {};
  const has = (end: string): boolean => stored.some(({ name }) => name === end || name.endsWith(`.${end}`));
  return stored.some(({ name }) => name === embedding) && !has(head);
}

function refuseMissing(config: DecoderConfig, { name, shape }: Piece, where: string, count: number): never {
  const next =
    name === 'lm_head.weight'
      ? 'If the head is the embedding table, config.json must say "tie_word_embeddings": true.'
      : 'The file is incomplete, or the config belongs to another model.';
  const needed = `tensor ${name} of shape [${shape}], which ${config.architecture} with ${countLayers(config.numLayers)} needs`;
  return fail('FORMAT', where, `${needed}, is not among the ${count} tensors. ${next}`);
}

/** A tensor of a file that is to be written. */
export interface TensorLayout {
  readonly name: string;
  /** Slowest dimension first. */
  readonly shape: readonly number[];
  /** The elements that it consists of, in order. */
  readonly parts: readonly TensorPart[];
}

/** Elements of a weight, and their place in a tensor. */
export interface TensorPart {
  readonly place: string;
  /** First element of the weight, first element of the tensor, number of elements. */
  readonly from: number;
  readonly at: number;
  readonly count: number;
  /** Whether the file has the values less 1. */
  readonly lessOne: boolean;
}

/**
 * Lists the tensors of a model's file. It is {@link planWeights} backwards, from the same names and rows.
 *
 * @param config - of the file that is to be written
 * @param names - tensors that decide how others are stored: a fused one, a part that only some models have
 */
export function layoutOf(config: DecoderConfig, names: readonly string[]): TensorLayout[] {
  const tensors = new Map<string, { readonly shape: readonly number[]; readonly parts: TensorPart[] }>();
  for (const { place, pieces, lessOne = false } of needsOf(config, new Map(names.map((name) => [name, name])))) {
    let from = 0;
    for (const { name, shape, rows = [0, shape[0]!], of = shape[0]! } of pieces) {
      const width = countElements(shape) / of;
      const [at, count] = [rows[0] * width, (rows[1] - rows[0]) * width];
      const tensor = tensors.get(name) ?? { shape, parts: [] };
      tensors.set(name, tensor);
      tensor.parts.push({ place, from, at, count, lessOne });
      from += count;
    }
  }
  if (config.source === 'gguf' && config.altup) fillForLlamaCpp(config, tensors);
  return Array.from(tensors, ([name, { shape, parts }]) => ({ name, shape, parts: parts.sort((a, b) => a.at - b.at) }));
}

/**
 * Adds what llama.cpp wants of Gemma 3n: rows of all tokens in the table of per-layer embeddings, and k and v in layers
 * that read those of another, which it does not use.
 *
 * @see ggml-org/llama.cpp@3688fa86 src/models/gemma3n.cpp load_arch_tensors
 */
function fillForLlamaCpp(config: DecoderConfig, tensors: Map<string, Omit<TensorLayout, 'name'>>): void {
  const { vocabSize, perLayerVocab, perLayerWidth, numLayers, layerSizes = [] } = config;
  const [name, width] = [PER_LAYER.perLayerEmbedding.gguf, perLayerWidth * numLayers];
  const of = { place: 'perLayerEmbedding.weight', from: 0, lessOne: false };
  const more = Array.from({ length: Math.max(0, vocabSize - perLayerVocab) }, (_, n) => {
    return { ...of, at: (perLayerVocab + n) * width, count: width };
  });
  const own = { ...of, at: 0, count: Math.min(vocabSize, perLayerVocab) * width };
  tensors.set(name, { shape: [vocabSize, width], parts: [own, ...more] });
  for (const [layer, { sharesWith }] of layerSizes.entries())
    for (const part of ['k', 'v', 'kNorm'] as const) {
      const from = `blk.${sharesWith}.${LAYER[part].gguf}`;
      if (sharesWith !== undefined) tensors.set(from.replace(String(sharesWith), String(layer)), tensors.get(from)!);
    }
}

/** Lists every weight of the model, in the order of the forward pass. */
function needsOf(config: DecoderConfig, stored: ReadonlyMap<string, unknown>): Need[] {
  const { source, family } = config;
  const gguf = source === 'gguf';
  let lengths = lengthsOf(config);
  const names: Names = gguf ? (family.ggufNames ?? {}) : namesIn(family.names ?? {}, stored);
  const nameOf = (part: string, row: Row): string => names[part] ?? row[source];
  const embedding = nameOf('embedding', EMBEDDING);
  // The prefix depends on the class that saved the file: with a head or not, for text only or for images too.
  const prefixes = gguf
    ? ['']
    : [names.model ?? 'model.', 'model.', '', 'model.language_model.', 'language_model.model.'];
  const prefix = prefixes.find((one) => stored.has(one + embedding)) ?? prefixes[0]!;
  // A tensor of one layer is expected in all layers, so a file that lacks it somewhere is refused as incomplete.
  const bare = (name: string): string => name.replace(/^blk\.\d+\./, '');
  const inLayers = new Set([...stored.keys()].map(bare));
  const somewhere = (name: string): boolean => inLayers.has(bare(name));
  const needs: Need[] = [];
  /** Returns the shape in the file, where it is another. */
  const storedShape = (place: string, row: Row): number[] | undefined => {
    if (gguf) return row.ggufStored?.map((length) => lengths[length]);
    const isRow = family.experts?.choiceBiasRow === true && place.endsWith('.choiceBias');
    const given: Lengths | undefined = isRow ? ['one', ...row.shape] : row.stored;
    return given?.map((length) => lengths[length]);
  };
  const add = (place: string, row: Row, name: string, rows?: RowsOf): void => {
    const shape = row.shape.map((length) => lengths[length]);
    const lessOne = !gguf && family.gainsLessOne === true && /norm$/i.test(place);
    const log = !gguf && /\.(deltaRate|ssmRate)$/.test(place);
    const factor = /\.(layerScale|expertScale)$/.test(place);
    const turns = !name.endsWith('_blocks') ? 0 : place.endsWith('.expertGateUpBlocks') ? 2 : 1;
    const pieces = turns
      ? codesAndScales(name, shape, turns)
      : (rows?.(shape.slice(1), false) ?? piecesOf(name, storedShape(place, row) ?? shape));
    needs.push({
      place: `${place}.weight`,
      shape,
      pieces,
      plain: /\.(kvB|conv|deltaConv|ssmConv|ssmGain)$/.test(place),
      lessOne,
      log,
      factor,
      turns,
    });
    const biases = hasBias(config, row.bias);
    if (!biases) return;
    const biasShape = (row.biasShape ?? row.shape.slice(0, 1)).map((length) => lengths[length]);
    const fused = rows?.([], true);
    const biasPieces = fused && somewhere(fused[0]!.name) ? fused : piecesOf(biasName(name), biasShape);
    if (biases === 'stored' && !somewhere(biasPieces[0]!.name)) return;
    needs.push({ place: `${place}.bias`, shape: biasShape, pieces: biasPieces });
  };
  add('embedding', EMBEDDING, prefix + embedding);
  if (config.tokenTypes > 0) add('tokenTypes', TOKEN_TYPES, prefix + nameOf('tokenTypes', TOKEN_TYPES));
  if (family.embeddingNorm) add('embeddingNorm', EMBEDDING_NORM, prefix + nameOf('embeddingNorm', EMBEDDING_NORM));
  // transformers 4.57 changes a name when it saves it.
  for (const rows of [...(config.perLayerWidth > 0 ? [PER_LAYER] : []), ...(config.altup ? [ALTUP] : [])])
    for (const [place, one] of Object.entries(rows)) {
      const name = prefix + nameOf(place, one);
      const mangled = name.replace(/(per_layer_model)_/, '$1.language_model_');
      add(place, one, stored.has(mangled) ? mangled : name);
    }
  const layers = config.layers(config.maxContext);
  for (let layer = 0; layer < config.numLayers; layer++) {
    lengths = lengthsOf({ ...config, ...layerSizes(config, layer) });
    const before = gguf ? `blk.${layer}.` : `${prefix}${names.layers ?? 'layers.'}${layer}.`;
    const has = (part: Part): boolean => somewhere(before + nameOf(part, LAYER[part]));
    const transposed = !gguf && hasTransposed(config, (part) => stored.get(before + names[part]));
    for (const part of partsOf(config, layer, has, { kind: layers[layer]!, transposed })) {
      const norm = part === 'qNorm' || part === 'kNorm' ? QK_NORMS[family.qkNorm as 'head'][part] : undefined;
      const row = { ...LAYER[part], shape: norm ?? LAYER[part].shape };
      const rows = fusedRows(config, lengths, before, part, names, somewhere);
      const whole = part === 'expertDown' ? names.expertDownRows : undefined;
      const name = whole && somewhere(before + whole) ? whole : nameOf(part, row);
      add(`${layer}.${part}`, row, before + name, rows);
    }
  }
  if (family.blockNorms !== 'sum') add('norm', NORM, prefix + nameOf('norm', NORM));
  const head = nameOf('head', HEAD);
  const outer = stored.has(`language_model.${head}`) ? 'language_model.' : '';
  add('head', HEAD, outer + head);
  // A tied head is the embedding, and may have a bias.
  if (config.tiedHead)
    needs.splice(
      needs.findIndex(({ place }) => place === 'head.weight'),
      1,
    );
  return needs;
}

/**
 * Returns a family's names in a file. transformers 5 may save the names of its own modules, which stack the experts that
 * published files have one by one.
 */
function namesIn(names: Names, stored: ReadonlyMap<string, unknown>): Names {
  if (!names.expertDown || names.expertGateUp) return names;
  const inLayers = [...new Set([...stored.keys()].map((name) => name.replace(/^.*layers\.\d+\./, '')))];
  const find = (pattern: RegExp): string | undefined => inLayers.find((name) => pattern.test(name));
  const expertGateUpRows = find(/^\w+\.experts\.gate_up_proj$/);
  const expertUp = find(/^\w+\.experts\.up_proj$/); // without a gate
  if (expertUp) return { ...names, expertUp, expertDown: expertUp.replace('up', 'down') };
  if (!expertGateUpRows) return names;
  return {
    ...names,
    expertGateUpRows,
    expertDown: expertGateUpRows.replace('gate_up', 'down'),
    router: find(/^\w+\.(gate|router)\.weight$/) ?? names.router,
    choiceBias: find(/\.e_score_correction_bias$/) ?? names.choiceBias,
  };
}

/** Whether the experts of a layer are `[e, inputs, outputs]`. In files of some families, shapes tell. */
function hasTransposed({ family, experts, hiddenSize: h }: DecoderConfig, stored: (part: string) => unknown): boolean {
  const { expertGateUp, expertGateUpRows } = family.names ?? {};
  if (!expertGateUp || !expertGateUpRows) return expertGateUp !== undefined;
  const { count: e, width: x } = experts!;
  const is = (part: string, shape: readonly number[]): boolean => {
    const found = (stored(part) as Partial<StoredTensor> | undefined)?.shape;
    return found === undefined || String(found) === String(shape);
  };
  return !is('expertGateUpRows', [e, 2 * x, h]) || !is('expertDown', [e, h, x]);
}

type Names = Readonly<Partial<Record<string, string>>>;
/** Returns the rows of a fused matrix, whose rows have the shape `tail`, or of its bias. */
type RowsOf = (tail: readonly number[], bias: boolean) => Piece[];

type Ranges = readonly (readonly [from: number, to: number])[];

/** The rows of a delta net's parts in matrices that have the q, k, v and z of each key head, or its beta and decay. */
const DELTA_ROWS: Readonly<Partial<Record<Part, (delta: DeltaConfig) => Ranges>>> = {
  deltaQkv(delta) {
    const { keyDim: d } = delta;
    return [
      ...ofKeyHeads(delta, 0, d),
      ...ofKeyHeads(delta, d, 2 * d),
      ...ofKeyHeads(delta, 2 * d, 2 * d + valuesOf(delta)),
    ];
  },
  deltaZ: (delta) => ofKeyHeads(delta, 2 * delta.keyDim + valuesOf(delta), 2 * (delta.keyDim + valuesOf(delta))),
  deltaBeta: ({ heads, keyHeads }) => inTurns(keyHeads, (2 * heads) / keyHeads, 0, heads / keyHeads),
  deltaDecay: ({ heads, keyHeads }) =>
    inTurns(keyHeads, (2 * heads) / keyHeads, heads / keyHeads, (2 * heads) / keyHeads),
};

/** Counts the dimensions of v of a key head. */
const valuesOf = ({ heads, keyHeads, valueDim }: DeltaConfig): number => (heads / keyHeads) * valueDim;

const ofKeyHeads = (delta: DeltaConfig, from: number, to: number): Ranges =>
  inTurns(delta.keyHeads, 2 * (delta.keyDim + valuesOf(delta)), from, to);

const inTurns = (count: number, step: number, from: number, to: number): Ranges =>
  Array.from({ length: count }, (_, n) => [n * step + from, n * step + to] as const);

/** Finds the rows of a part in a fused matrix; undefined for a part with its own tensor in some layer. */
function fusedRows(
  { family, source, headDim, numHeads, recurrent }: DecoderConfig,
  { q, k, v, f, z, qkv, dn, e, x, h, s }: ReturnType<typeof lengthsOf>,
  before: string,
  part: Part,
  names: Names,
  stored: (name: string) => boolean,
): RowsOf | undefined {
  const own = before + LAYER[part][source];
  const found = (name: string, rows: number, ranges: readonly (readonly [number, number])[]): RowsOf => {
    return (tail, bias) =>
      ranges.map((range) => ({ name: before + (bias ? biasName(name) : name), shape: [rows, ...tail], rows: range }));
  };
  if (part === 'gate' || part === 'up') {
    const name = names.gateUp;
    if (name === undefined || stored(before + LAYER.gate[source])) return undefined;
    return found(name, 2 * f, [part === 'gate' ? [0, f] : [f, 2 * f]]);
  }
  if (part in DELTA_ROWS && recurrent?.kind === 'delta') {
    const gates = part === 'deltaBeta' || part === 'deltaDecay';
    const name = gates ? names.deltaGates : names.deltaAll;
    if (name === undefined || stored(own)) return undefined;
    return found(name, gates ? 2 * dn : qkv + z, DELTA_ROWS[part]!(recurrent));
  }
  if (source === 'huggingface' && (part === 'sharedGate' || part === 'sharedUp') && names.sharedGateUp)
    return found(names.sharedGateUp, 2 * s, [part === 'sharedGate' ? [0, s] : [s, 2 * s]]);
  if (part === 'expertGate' || part === 'expertUp') {
    // Each expert has the rows of its gate, and then those of its up.
    const both = source === 'gguf' ? GGUF_EXPERTS : names.expertGateUpRows;
    // Some families have either form.
    const either = source === 'gguf' || names.expertGate !== undefined;
    if (both === undefined || (either && !stored(before + both))) return undefined;
    const name = before + both;
    const from = (expert: number): number => (2 * expert + (part === 'expertGate' ? 0 : 1)) * x;
    return () =>
      Array.from({ length: e }, (_, n) => ({
        name,
        shape: [e, 2 * x, h],
        rows: [from(n), from(n) + x],
        of: 2 * e * x,
      }));
  }
  if (part !== 'q' && part !== 'k' && part !== 'v') return undefined;
  const name = source === 'gguf' ? GGUF_QKV : names.qkv;
  if (name === undefined || stored(own) || (source === 'gguf' && !stored(before + name))) return undefined;
  if (source === 'huggingface' && family.qkvRows === 'by-head') {
    const nth = { q: 0, k: 1, v: 2 }[part];
    const from = (head: number): number => (3 * head + nth) * headDim;
    const heads = Array.from({ length: numHeads }, (_, head) => [from(head), from(head) + headDim] as const);
    return found(name, q + k + v, heads);
  }
  return found(name, q + k + v, [{ q: [0, q], k: [q, q + k], v: [q + k, q + k + v] }[part] as [number, number]]);
}

/** Returns the tensor of a name, or for a name with a star one tensor for each row of the shape. */
function piecesOf(name: string, shape: readonly number[]): Piece[] {
  if (!name.includes('*')) return [{ name, shape }];
  return Array.from({ length: shape[0]! }, (_, n) => ({ name: name.replace('*', String(n)), shape: shape.slice(1) }));
}

/** Returns the two tensors of experts in MXFP4. A block has 32 weights in 16 bytes. */
function codesAndScales(name: string, [count, rows, width]: readonly number[], turns: 1 | 2): Piece[] {
  const scales = [count! / turns, rows! * turns, width! / 32];
  return [
    { name, shape: [...scales, 16] },
    { name: name.replace(/blocks$/, 'scales'), shape: scales },
  ];
}

function biasName(name: string): string {
  return name.endsWith('.weight') ? name.replace(/weight$/, 'bias') : `${name.replace(/_blocks$/, '')}_bias`;
}

function hasBias({ family, biases }: DecoderConfig, bias: Row['bias']): boolean | 'stored' {
  if (bias === undefined) return false;
  if (bias === 'norm') return family.norm === 'layer';
  return bias === 'experts' ? family.experts?.bias === true : biases[bias];
}

const PLAIN: ReadonlyMap<string, 'f32' | 'f16' | 'bf16'> = /* @__PURE__ */ new Map([
  ['F32', 'f32'],
  ['F16', 'f16'],
  ['BF16', 'bf16'],
] as const);
const TYPES = [...PLAIN.keys(), ...WIDENED.keys()].join(', ');

function planOf(
  tensors: readonly StoredTensor[],
  need: Need,
  { widenTo = 'f32', formats = BLOCK_FORMAT_NAMES, quantize, widenHalves = false, as }: HoldOptions,
): WeightPlan {
  const {
    place,
    shape,
    pieces,
    plain: mustWiden = false,
    lessOne = false,
    log = false,
    factor = false,
    turns = 0,
  } = need;
  const spans = tensors.map((tensor, n) => spanOf(tensor, pieces[n]!));
  const { name, file } = tensors[0]!;
  const type = turns ? 'MXFP4' : tensors[0]!.type;
  const inFile = turns ? 'U8' : type;
  for (const other of tensors) {
    const next = 'Take a file whose parts of one weight have one type.';
    if (other.type !== inFile)
      refuse('UNSUPPORTED', `${other.file}: tensor ${other.name}`, `type ${inFile}, as ${name}`, other.type, next);
  }
  const packed = tensors.map((tensor, n) => packedSpan(tensor, pieces[n]!));
  const plain = PLAIN.get(type);
  const format = WIDENED.get(type);
  if (!plain && !format && !packed[0]) {
    const next = 'Take a file with weights of one of these types; llama-quantize and transformers can write it.';
    return refuse('UNSUPPORTED', `${file}: tensor ${name}`, `type ${TYPES}`, type, next);
  }
  // Vectors in blocks are small: they become f32, like norms and biases.
  const matrix = shape.length >= 2;
  const fits = packed[0] && formats.includes('q8_0') && packed.every((one) => fitsQ8(one!.tensor, shape.at(-1)!));
  const kept = formats.some((name) => name.toUpperCase() === type);
  const named = fits || (IN_Q8.has(type) && !kept) ? 'Q8_0' : type;
  const blocks = matrix && !mustWiden ? formats.find((name) => name.toUpperCase() === named) : undefined;
  const canRound = matrix && !mustWiden && /(?<!norm|router)\.weight$/i.test(place);
  const rounds = quantize && canRound && shape.at(-1)! % BLOCK_FORMATS[quantize].weights === 0;
  const floats = plain ? (widenHalves ? 'f32' : plain) : matrix ? format?.exact : 'f32';
  const wanted = turns ? undefined : as?.({ place, type, shape });
  const exact = wanted ?? (lessOne || log || factor ? 'f32' : (blocks ?? (rounds ? quantize : floats)));
  const held = exact ?? widenTo;
  return {
    place,
    name,
    type,
    shape,
    spans,
    sizeBytes: packed[0]
      ? tensors.reduce((sum, { sizeBytes = 0 }) => sum + sizeBytes, 0)
      : spans.reduce((sum, span) => sum + span.sizeBytes, 0),
    held,
    widened: exact === undefined,
    heldBytes: bytesHeld(held, countElements(shape)),
    lessOne,
    ...(log && { log }),
    turns,
    ...(packed[0] && { packed: packed as PackedSpan[] }),
  };
}

/** Plans a matrix or a bias behind the model's pooling, which is held in f32. */
export function planDense(tensor: StoredTensor, shape: readonly number[]): WeightPlan {
  const need = { place: 'dense.weight', shape, pieces: [{ name: tensor.name, shape }] };
  return planOf([tensor], need, { as: () => 'f32' });
}

function packedSpan({ packed, shape }: StoredTensor, { rows }: Piece): PackedSpan | undefined {
  const [n, k] = shape as [number, number];
  return packed && { tensor: packed, shape: [n, k], rows: rows ?? [0, n] };
}

/** Counts the bytes of so many weights in memory. */
export function bytesHeld(held: Held, count: number): number {
  const format = WIDENED.get(held.toUpperCase());
  return format ? (count / format.weights) * format.bytes : count * sizeBytes(held as Floats);
}

/**
 * Checks the shape of a piece, and returns its place in the file. The file may have a matrix of one row as a vector.
 */
function spanOf(tensor: StoredTensor, { name, shape, rows, of = shape[0]! }: Piece): Span {
  const where = `${tensor.file}: tensor ${name}`;
  const wanted = shape[0] === 1 && tensor.shape.length < shape.length ? shape.slice(1) : shape;
  if (String(tensor.shape) !== String(wanted)) {
    const next = 'The config does not belong to these weights.';
    refuse('FORMAT', where, `shape [${shape}] (slowest dimension first)`, tensor.shape, next);
  }
  const { file, byteOffset, type } = tensor;
  const size = tensor.sizeBytes ?? refuse('UNSUPPORTED', where, `type ${TYPES}`, type);
  if (!rows) return { file, byteOffset, sizeBytes: size };
  const rowBytes = size / of;
  return { file, byteOffset: byteOffset + rows[0] * rowBytes, sizeBytes: (rows[1] - rows[0]) * rowBytes };
}

export function isBlockFormat(held: Held): held is BlockFormat {
  return held in BLOCK_FORMATS;
}
