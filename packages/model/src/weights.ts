/**
 * Which tensors of a file are which weight, and how each is held in memory. Names, shapes and types are checked before
 * the first byte of a weight is read.
 *
 * @module
 */
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat, sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { blockBytes, countLayers, nameForMessage } from 'ropewalk/internal';
import { WIDENED } from './dequantise.js';
import type { BiasGroup, Part } from './families.js';
import type { QuantisedFormat } from './quantise.js';
import type { DecoderConfig } from './types.js';

/** A tensor as a file lists it. */
export interface StoredTensor {
  readonly name: string;
  /** Slowest dimension first. */
  readonly shape: readonly number[];
  /** The file's own name: F32, BF16, Q8_0. */
  readonly type: string;
  /** The name of the file. */
  readonly file: string;
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  readonly sizeBytes: number | undefined;
}

/** How a tensor is held in memory. */
export type Held = 'f32' | 'f16' | 'bf16' | BlockFormat;

/** What a matrix becomes in memory if the backend does not read its stored type and no 16-bit type holds it exactly. */
export type WidenTo = 'f32' | 'f16';

/** How weights become what they are in memory. */
export interface HoldOptions {
  /** What matrices become whose type is not in `formats`, and that no 16-bit type holds exactly: f32 unless given. */
  readonly widenTo?: WidenTo | undefined;
  /** The block formats that are kept as they lie; all that the kernel reads unless given. */
  readonly formats?: readonly BlockFormat[] | undefined;
  /**
   * The block format that other matrices are rounded to, as ggml does, if their rows are whole blocks. Norms, biases and
   * routers, which llama.cpp does not round either, stay as they are.
   */
  readonly quantise?: QuantisedFormat | undefined;
  /** Whether f16 and bf16 become f32, which is exact. */
  readonly widenHalves?: boolean | undefined;
  /**
   * What a weight becomes, whatever its type: f32, f16, bf16, q8_0 or q4_0; undefined leaves it to the other options. For
   * files that are written.
   */
  readonly as?: ((weight: Pick<WeightPlan, 'place' | 'type' | 'shape'>) => Held | undefined) | undefined;
}

/** Bytes of a file. */
export interface Span {
  readonly file: string;
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** A weight to be loaded. */
export interface WeightPlan {
  /** Its place in the model, such as `embedding.weight` or `3.q.bias`: the layer, the part, `weight` or `bias`. */
  readonly place: string;
  /** The name of its tensor in the file; of the first one, if it has several. */
  readonly name: string;
  readonly type: string;
  readonly shape: readonly number[];
  /** Where its rows are, in order. */
  readonly spans: readonly Span[];
  readonly sizeBytes: number;
  readonly held: Held;
  /** Whether {@link WidenTo} decided how it is held. */
  readonly widened: boolean;
  /** Bytes in the backend's memory. */
  readonly heldBytes: number;
  /** The file has the values less 1. */
  readonly lessOne: boolean;
  /**
   * MXFP4 as transformers stores it: one span of codes, one of scales. Rows of so many matrices take turns; here one
   * matrix follows the other. 0 for weights that lie in the file as here.
   */
  readonly turns: 0 | 1 | 2;
}

/**
 * Lengths that shapes are made of: h hidden, n and m query and key/value heads, d and dv a head of q, k and of v, q all
 * query heads, o all heads' values, f intermediate, e experts, x an expert's intermediate, s the shared expert's, c
 * latent of k and v, cq latent of q, p dimensions of a head that do not rotate.
 */
type Length = keyof ReturnType<typeof lengthsOf>;

/** One tensor of a layer, or one that a model has once. */
interface Row {
  /** The file's names without prefix and layer. A star stands for the numbers of tensors that are stacked here. */
  readonly huggingface: string;
  readonly gguf: string;
  /** Slowest dimension first: a matrix is `[outputs, inputs]`. */
  readonly shape: readonly Length[];
  /** When it has a bias: as the config says of the group, as norms of the family do, or as its experts do. */
  readonly bias?: BiasGroup | 'norm' | 'experts';
  /** The first dimension unless given. */
  readonly biasShape?: readonly Length[];
}

function row(
  huggingface: string,
  gguf: string,
  shape: Row['shape'],
  bias?: Row['bias'],
  biasShape?: Row['shape'],
): Row {
  return { huggingface, gguf, shape, bias, biasShape };
}

/** The tensors of one layer, by Llama's names. An empty name stands in the family's row. */
const LAYER: Readonly<Record<Part, Row>> = {
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
  attentionPostNorm: row('', 'post_attention_norm.weight', ['h']),
  mlpNorm: row('post_attention_layernorm.weight', 'ffn_norm.weight', ['h'], 'norm'),
  gate: row('mlp.gate_proj.weight', 'ffn_gate.weight', ['f', 'h'], 'mlp'),
  up: row('mlp.up_proj.weight', 'ffn_up.weight', ['f', 'h'], 'mlp'),
  down: row('mlp.down_proj.weight', 'ffn_down.weight', ['h', 'f'], 'mlp'),
  router: row('', 'ffn_gate_inp.weight', ['e', 'h'], 'experts'),
  choiceBias: row('mlp.gate.e_score_correction_bias', 'exp_probs_b.bias', ['e']),
  expertGate: row('', 'ffn_gate_exps.weight', ['e', 'x', 'h'], 'experts', ['e', 'x']),
  expertUp: row('', 'ffn_up_exps.weight', ['e', 'x', 'h'], 'experts', ['e', 'x']),
  expertDown: row('', 'ffn_down_exps.weight', ['e', 'h', 'x'], 'experts', ['e', 'h']),
  expertGateUp: row('', '', ['e', 'h', 'twoX'], 'experts', ['e', 'twoX']),
  expertGateUpBlocks: row('', '', ['twoE', 'x', 'h'], 'experts', ['e', 'twoX']),
  expertDownTransposed: row('', '', ['e', 'x', 'h'], 'experts', ['e', 'h']),
  sharedRouter: row('', 'ffn_gate_inp_shexp.weight', ['one', 'h']),
  sharedGate: row('', 'ffn_gate_shexp.weight', ['s', 'h']),
  sharedUp: row('', 'ffn_up_shexp.weight', ['s', 'h']),
  sharedDown: row('', 'ffn_down_shexp.weight', ['h', 's']),
  mlpPostNorm: row('', 'post_ffw_norm.weight', ['h']),
};
/** The shapes of q's and k's norms, by the family's kind of them. */
const QK_NORMS: Readonly<Record<'head' | 'all' | 'each-head', Readonly<Record<'qNorm' | 'kNorm', Row['shape']>>>> = {
  head: { qNorm: ['d'], kNorm: ['d'] },
  all: { qNorm: ['q'], kNorm: ['k'] },
  'each-head': { qNorm: ['n', 'd'], kNorm: ['m', 'd'] },
};
const EMBEDDING = row('embed_tokens.weight', 'token_embd.weight', ['vocab', 'h']);
const NORM = row('norm.weight', 'output_norm.weight', ['h'], 'norm');
const HEAD = row('lm_head.weight', 'output.weight', ['vocab', 'h']);
/** GGUF's fused q, k and v, which llama.cpp takes in place of three matrices. */
const GGUF_QKV = 'attn_qkv.weight';

function lengthsOf(config: DecoderConfig) {
  const { hiddenSize: h, numHeads: n, numKvHeads: m, headDim: d, valueDim: dv, latent, experts } = config;
  const [c, p, x, e] = [latent?.rank ?? 0, latent?.nope ?? 0, experts?.width ?? 0, experts?.count ?? 0];
  return {
    vocab: config.vocabSize,
    h,
    n,
    m,
    d,
    dv,
    q: n * d,
    k: m * d,
    v: m * dv,
    o: n * dv,
    f: config.intermediateSize,
    e,
    twoE: 2 * e,
    x,
    twoX: 2 * x,
    s: experts?.sharedWidth ?? 0,
    one: 1,
    c,
    p,
    cq: latent?.queryRank ?? 0,
    cAndRope: c + (latent?.rope ?? 0),
    keysAndValues: n * (p + dv),
  };
}

/** The parts that a layer has, in the order of the forward pass; `stored` says whether the file has a part. */
function partsOf(
  { family, source, latent, parallel, qkNorm, experts }: DecoderConfig,
  layer: number,
  stored: (part: Part) => boolean,
): Part[] {
  const before = family.blockNorms !== 'after';
  const after = family.blockNorms !== undefined;
  const parts: Part[] = [];
  if (before) parts.push('attentionNorm');
  if (!latent) parts.push('q', 'k', 'v');
  else {
    if (latent.queryRank === undefined) parts.push('q');
    else parts.push('qA', 'qANorm', 'qB');
    parts.push('kvA', 'kvANorm');
    if (stored('kB')) parts.push('kB', 'vB');
    else parts.push('kvB');
  }
  if (qkNorm) parts.push('qNorm', 'kNorm');
  if (family.sinks) parts.push('sinks');
  parts.push('output');
  if (after) parts.push('attentionPostNorm');
  if (before && !(parallel && family.parallel!.norms === 1)) parts.push('mlpNorm');
  if (!experts?.layers[layer]) {
    if (!family.ungated) parts.push('gate');
    parts.push('up', 'down');
  } else {
    parts.push('router');
    const { choiceBias } = family.experts!;
    if (choiceBias === 'always' || (choiceBias && stored('choiceBias'))) parts.push('choiceBias');
    if (stored('expertGateUpBlocks')) parts.push('expertGateUpBlocks', 'expertDown');
    else if (source === 'huggingface' && family.names?.expertGateUp) parts.push('expertGateUp', 'expertDownTransposed');
    else parts.push('expertGate', 'expertUp', 'expertDown');
    if (experts.sharedWidth > 0) {
      if (family.experts!.shared === 'gated') parts.push('sharedRouter');
      parts.push('sharedGate', 'sharedUp', 'sharedDown');
    }
  }
  if (after) parts.push('mlpPostNorm');
  return parts;
}

/** Tensors that repeat what the config or the RoPE dialect has read already, or that are not the decoder's. */
const SPARE = {
  huggingface:
    /^((model|gpt_neox)\.)?layers\.\d+\.((self_attn|attention)\.rotary_emb\.inv_freq|attention\.(masked_)?bias)$|^(model\.)?(visual|vision_tower|vision_model|multi_modal_projector)\./,
  gguf: /^(rope_freqs|rope_factors_long|rope_factors_short)\.weight$/,
};

/** One weight that the model needs. */
interface Need {
  /** Where it goes: `embedding.weight`, `3.q.bias`. */
  readonly place: string;
  readonly shape: readonly number[];
  /** Its tensors in the file, in order. */
  readonly pieces: readonly Piece[];
  /** No kernel takes it in blocks. */
  readonly plain?: boolean;
  readonly lessOne?: boolean;
  readonly turns?: WeightPlan['turns'];
}

/** A tensor of the file, or some of its rows. */
interface Piece {
  readonly name: string;
  /** The shape that the tensor must have. */
  readonly shape: readonly number[];
  /** First row, and one past the last; all unless given. */
  readonly rows?: readonly [from: number, to: number];
}

/**
 * Finds every weight among a file's tensors, in the order of the forward pass.
 *
 * @param hold - how they are held
 * @throws {RopewalkError} FORMAT for a tensor that is missing, twice there or of another shape; UNSUPPORTED for a
 *   tensor that the model does not have, and for a type that is not read
 */
export function planWeights(
  config: DecoderConfig,
  given: readonly StoredTensor[],
  where: string,
  hold: HoldOptions = {},
): WeightPlan[] {
  const unused = config.source === 'gguf' ? config.family.ggufUnused : undefined;
  const stored = unused ? given.filter(({ name }) => !unused.test(name)) : given;
  const byName = new Map<string, StoredTensor>();
  for (const tensor of stored) {
    const twin = byName.get(tensor.name);
    if (twin) fail('FORMAT', `${tensor.file}: ${nameForMessage(tensor.name)}`, `${twin.file} has this tensor too`);
    byName.set(tensor.name, tensor);
  }
  const factors = ['long', 'short'].map((one) => `rope_factors_${one}.weight`);
  const alone = factors.filter((name) => byName.has(name));
  if (alone.length === 1)
    fail(
      'FORMAT',
      where,
      `tensor ${factors.find((name) => name !== alone[0])} is missing, although ${alone[0]} is there`,
    );
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
    if (config.source === 'huggingface') {
      // transformers ignores the lm_head of a model with a tied head; some files have one.
      if (config.tiedHead && /(^|\.)lm_head\.weight$/.test(name)) continue;
      // Layers after the last one predict further tokens (DeepSeek-V3).
      const layer = /^model\.layers\.(\d+)\./.exec(name)?.[1];
      if (config.latent && layer !== undefined && Number(layer) >= config.numLayers) continue;
    }
    const why = `a ${config.architecture} model with this config has no such tensor`;
    const next = 'The model has a step that is not computed here, or the config belongs to another model.';
    fail('UNSUPPORTED', `${file}: tensor ${nameForMessage(name)}`, `${why}. ${next}`);
  }
  return plans;
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
  /** Whose elements it has, in order. */
  readonly parts: readonly TensorPart[];
}

/** Elements of a weight, and where they go in a tensor. */
export interface TensorPart {
  /** As in {@link WeightPlan}. */
  readonly place: string;
  /** First element of the weight, first element of the tensor, how many. */
  readonly from: number;
  readonly at: number;
  readonly count: number;
  /** The file has the values less 1. */
  readonly lessOne: boolean;
}

/**
 * The tensors that a model's file has: {@link planWeights} backwards, from the same names and rows.
 *
 * @param config - of the file to be written
 * @param names - tensors that decide how others are stored: a fused one, a part that only some models have
 */
export function layoutOf(config: DecoderConfig, names: readonly string[]): TensorLayout[] {
  const tensors = new Map<string, { readonly shape: readonly number[]; readonly parts: TensorPart[] }>();
  for (const { place, pieces, lessOne = false } of needsOf(config, new Map(names.map((name) => [name, name])))) {
    let from = 0;
    for (const { name, shape, rows = [0, shape[0]!] } of pieces) {
      const width = shape.slice(1).reduce((product, size) => product * size, 1);
      const [at, count] = [rows[0] * width, (rows[1] - rows[0]) * width];
      const tensor = tensors.get(name) ?? { shape, parts: [] };
      tensors.set(name, tensor);
      tensor.parts.push({ place, from, at, count, lessOne });
      from += count;
    }
  }
  return Array.from(tensors, ([name, { shape, parts }]) => ({ name, shape, parts: parts.sort((a, b) => a.at - b.at) }));
}

/** Every weight of the model, in the order of the forward pass. */
function needsOf(config: DecoderConfig, stored: ReadonlyMap<string, unknown>): Need[] {
  const { source, family } = config;
  const gguf = source === 'gguf';
  const lengths = lengthsOf(config);
  const names: Names = (gguf ? family.ggufNames : family.names) ?? {};
  const nameOf = (part: string, row: Row): string => names[part] ?? row[source];
  const embedding = nameOf('embedding', EMBEDDING);
  // The prefix depends on the class that saved the file: with a head or not, for text only or for images too.
  const prefixes = gguf ? [''] : [names.model ?? 'model.', '', 'model.language_model.', 'language_model.model.'];
  const prefix = prefixes.find((one) => stored.has(one + embedding)) ?? prefixes[0]!;
  // What one layer has, all have: a file where a layer lacks it is not complete.
  const bare = (name: string): string => name.replace(/^blk\.\d+\./, '');
  const inLayers = new Set([...stored.keys()].map(bare));
  const somewhere = (name: string): boolean => inLayers.has(bare(name));
  const needs: Need[] = [];
  const add = (place: string, row: Row, name: string, rows?: RowsOf): void => {
    const shape = row.shape.map((length) => lengths[length]);
    const lessOne = !gguf && family.gainsLessOne === true && /norm$/i.test(place);
    const turns = !name.endsWith('_blocks') ? 0 : place.endsWith('.expertGateUpBlocks') ? 2 : 1;
    const pieces = turns
      ? codesAndScales(name, shape, turns)
      : (rows?.(shape.slice(1), false) ?? piecesOf(name, shape));
    needs.push({ place: `${place}.weight`, shape, pieces, plain: place.endsWith('.kvB'), lessOne, turns });
    const biases = hasBias(config, row.bias);
    if (!biases) return;
    const biasShape = (row.biasShape ?? row.shape.slice(0, 1)).map((length) => lengths[length]);
    const fused = rows?.([], true);
    const biasPieces = fused && somewhere(fused[0]!.name) ? fused : piecesOf(biasName(name), biasShape);
    if (biases === 'stored' && !somewhere(biasPieces[0]!.name)) return;
    needs.push({ place: `${place}.bias`, shape: biasShape, pieces: biasPieces });
  };
  add('embedding', EMBEDDING, prefix + embedding);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const before = gguf ? `blk.${layer}.` : `${prefix}layers.${layer}.`;
    const has = (part: Part): boolean => somewhere(before + nameOf(part, LAYER[part]));
    for (const part of partsOf(config, layer, has)) {
      const norm = part === 'qNorm' || part === 'kNorm' ? QK_NORMS[family.qkNorm!][part] : undefined;
      const row = { ...LAYER[part], shape: norm ?? LAYER[part].shape };
      add(
        `${layer}.${part}`,
        row,
        before + nameOf(part, row),
        fusedRows(config, lengths, before, part, names, somewhere),
      );
    }
  }
  add('norm', NORM, prefix + nameOf('norm', NORM));
  const head = nameOf('head', HEAD);
  const outer = stored.has(`language_model.${head}`) ? 'language_model.' : '';
  if (!config.tiedHead) add('head', HEAD, outer + head);
  return needs;
}

type Names = Readonly<Partial<Record<string, string>>>;
/** The rows of a fused matrix, whose rows have the shape `tail`, or of its bias. */
type RowsOf = (tail: readonly number[], bias: boolean) => Piece[];

/** Where a part is in a fused matrix; undefined where it has a tensor of its own. `stored`: in some layer. */
function fusedRows(
  { family, source, headDim, numHeads }: DecoderConfig,
  { q, k, v, f }: ReturnType<typeof lengthsOf>,
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

/** The tensor of a name; with a star, those of its numbers from 0 on, each a row of the shape. */
function piecesOf(name: string, shape: readonly number[]): Piece[] {
  if (!name.includes('*')) return [{ name, shape }];
  return Array.from({ length: shape[0]! }, (_, n) => ({ name: name.replace('*', String(n)), shape: shape.slice(1) }));
}

/** The two tensors of experts in MXFP4, where rows of so many matrices take turns. A block has 32 weights in 16 bytes. */
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
  { widenTo = 'f32', formats = BLOCK_FORMAT_NAMES, quantise, widenHalves = false, as }: HoldOptions,
): WeightPlan {
  const { place, shape, pieces, plain: mustWiden = false, lessOne = false, turns = 0 } = need;
  const spans = tensors.map((tensor, n) => spanOf(tensor, pieces[n]!));
  const { name, file } = tensors[0]!;
  const type = turns ? 'MXFP4' : tensors[0]!.type;
  const inFile = turns ? 'U8' : type;
  for (const other of tensors) {
    const next = 'Take a file whose parts of one weight have one type.';
    if (other.type !== inFile)
      refuse('UNSUPPORTED', `${other.file}: tensor ${other.name}`, `type ${inFile}, as ${name}`, other.type, next);
  }
  const plain = PLAIN.get(type);
  const format = WIDENED.get(type);
  if (!plain && !format) {
    const next = 'Take a file with weights of one of these types; llama-quantize and transformers can write it.';
    return refuse('UNSUPPORTED', `${file}: tensor ${name}`, `type ${TYPES}`, type, next);
  }
  // Vectors in blocks are small: they become f32, like norms and biases.
  const matrix = shape.length >= 2;
  const blocks = matrix && !mustWiden ? formats.find((name) => name.toUpperCase() === type) : undefined;
  const rounds =
    quantise &&
    matrix &&
    !mustWiden &&
    /(?<!norm|router)\.weight$/i.test(place) &&
    shape.at(-1)! % BLOCK_FORMATS[quantise].weights === 0;
  const floats = plain ? (widenHalves ? 'f32' : plain) : matrix ? format!.exact : 'f32';
  const wanted = turns ? undefined : as?.({ place, type, shape });
  const exact = wanted ?? (lessOne ? 'f32' : (blocks ?? (rounds ? quantise : floats)));
  const held = exact ?? widenTo;
  const count = shape.reduce((product, size) => product * size, 1);
  const heldBytes = isBlockFormat(held) ? blockBytes(held, count) : count * sizeBytes(held);
  const bytes = spans.reduce((sum, span) => sum + span.sizeBytes, 0);
  return {
    place,
    name,
    type,
    shape,
    spans,
    sizeBytes: bytes,
    held,
    widened: exact === undefined,
    heldBytes,
    lessOne,
    turns,
  };
}

/** Where a piece is in its file, once its shape is checked. A matrix of one row may be a vector there. */
function spanOf(tensor: StoredTensor, { name, shape, rows }: Piece): Span {
  const where = `${tensor.file}: tensor ${name}`;
  const wanted = shape[0] === 1 && tensor.shape.length < shape.length ? shape.slice(1) : shape;
  if (String(tensor.shape) !== String(wanted)) {
    const next = 'The config does not belong to these weights.';
    refuse('FORMAT', where, `shape [${shape}] (slowest dimension first)`, tensor.shape, next);
  }
  const { file, byteOffset, type } = tensor;
  const size = tensor.sizeBytes ?? refuse('UNSUPPORTED', where, `type ${TYPES}`, type);
  if (!rows) return { file, byteOffset, sizeBytes: size };
  const rowBytes = size / shape[0]!;
  return { file, byteOffset: byteOffset + rows[0] * rowBytes, sizeBytes: (rows[1] - rows[0]) * rowBytes };
}

/** Whether weights are held in blocks, as the file has them. */
export function isBlockFormat(held: Held): held is BlockFormat {
  return held in BLOCK_FORMATS;
}
