/**
 * What llama.cpp does with RoPE in each architecture: one row for each general.architecture.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-arch.cpp LLM_ARCH_NAMES, src/llama-model.cpp llama_model_rope_type
 * @see ggml-org/llama.cpp@de3ff815 src/models/*.cpp load_arch_hparams, load_arch_tensors, graph
 */

/** norm has interleaved pairs; neox, mrope and imrope have half pairing; none: the graph has no RoPE. */
export type GgufRopeKind = 'norm' | 'neox' | 'mrope' | 'imrope' | 'none';

/** Sliding-window layers, in architectures that also have full layers. */
export interface GgufSliding {
  /** `window`: if attention.sliding_window > 0; `not-0`: unless it is 0; `64-layers`: in models of 64 layers. */
  readonly when: 'always' | 'window' | 'not-0' | '64-layers';
  /** Every n-th layer is full, unless attention.sliding_window_pattern says which; `list`: that key is required. */
  readonly full: number | 'list';
  /** The full layer is the first of n, not the last. */
  readonly fullFirst?: true;
  /**
   * The base of sliding layers: freq_base_swa, and without it freq_base (`shared`), 10000 (`own`) or a refusal
   * (`needed`).
   * `same`: always freq_base.
   */
  readonly base: 'shared' | 'own' | 'needed' | 'same';
  /** The factor of sliding layers: the file's, even with type none (`shared`); that of full layers (`same`); none. */
  readonly scale: 'shared' | 'same' | 'none';
  /** No YaRN and no magnitude on sliding layers. */
  readonly plain?: true;
}

/** One architecture. */
export interface GgufArchitecture {
  readonly rope: GgufRopeKind;
  /** rope.dimension_count must be the size of a head. */
  readonly whole?: true;
  /** `mla`: the record is that of the rotary part of q and k; `tail`: the last dimensions rotate. */
  readonly window?: 'mla' | 'tail';
  /**
   * The factor tensors that it loads: rope_freqs; rope_factors_long and _short; `by-type`: long and short for scaling
   * type longrope, rope_freqs otherwise. llama.cpp refuses a file with other factor tensors.
   */
  readonly factors?: 'freqs' | 'long-short' | 'by-type';
  /** `full`: only full layers use the factors; `none`: no layer does. */
  readonly factorsFor?: 'full' | 'none';
  /** A factor tensor has half a head of values, or half of the widest layer; one a pair unless given. */
  readonly factorsOver?: 'head' | 'widest';
  /** With rope.dimension_sections it is M-RoPE, if t and h have pairs, or if any axis has. */
  readonly sections?: 't-and-h' | 'any';
  /** The YaRN keys that it reads: yarn_beta_fast and _slow; `all`: yarn_ext_factor and yarn_attn_factor too. */
  readonly yarn?: 'betas' | 'all';
  readonly betaFast?: number;
  /** yarn_log_multiplier is mscale_all_dim times this; `cancels`: mscale is the same, so the magnitude is 1. */
  readonly logMultiplier?: 1 | 0.1 | 'cancels';
  readonly sliding?: GgufSliding;
  /** Sliding and full layers have their own sizes; otherwise the first layer's sizes apply. */
  readonly sizesByLayer?: true;
  /** Layers that do not rotate; see gguf.ts. */
  readonly skips?:
    | 'full'
    | 'full-after-dense'
    | 'fourth'
    | 'llama4'
    | 'smallthinker'
    | 'rope-pattern'
    | 'not-finetuned'
    | 'unless-32-layers';
  /** Layers without attention: those without key/value heads, or all but every n-th. */
  readonly recurrent?: 'no-kv-heads' | 4 | 8;
  /** Scaling keys are ignored. */
  readonly plain?: true;
  /** A fixed base. */
  readonly base?: number;
  /** rope.scaling.alpha raises the base. */
  readonly alpha?: true;
  /** Full layers rotate half of rope.dimension_count. */
  readonly halvesFull?: true;
  /** attention.compress_ratios chooses each layer's base and scaling. */
  readonly compressed?: true;
}

const GEMMA: GgufSliding = { when: 'always', full: 6, base: 'own', scale: 'none' };
const LISTED: GgufSliding = { when: 'always', full: 'list', base: 'own', scale: 'none' };
const GRANITE: GgufSliding = { when: 'always', full: 'list', base: 'same', scale: 'same' };
const SHARED: GgufSliding = { when: 'always', full: 'list', base: 'shared', scale: 'shared' };
const WINDOW_LISTED: GgufSliding = { when: 'window', full: 'list', base: 'same', scale: 'same' };
const FOURTH_FULL: GgufSliding = { when: 'always', full: 4, base: 'same', scale: 'same' };
const LLAMA4: GgufSliding = { when: 'not-0', full: 4, base: 'shared', scale: 'shared' };
const SMALLTHINKER: GgufSliding = { when: 'window', full: 4, fullFirst: true, base: 'shared', scale: 'shared' };
const LAGUNA: GgufSliding = { ...SMALLTHINKER, scale: 'none', plain: true };
const EXAONE4: GgufSliding = { ...FOURTH_FULL, when: '64-layers' };
const OLMO3: GgufSliding = { when: 'window', full: 4, base: 'same', scale: 'none', plain: true };
const GEMMA4: GgufArchitecture = {
  rope: 'neox',
  sliding: LISTED,
  sizesByLayer: true,
  factors: 'freqs',
  factorsFor: 'full',
  factorsOver: 'head',
};

/** By general.architecture. */
export const GGUF_ARCHITECTURES: Readonly<Record<string, GgufArchitecture>> = {
  afmoe: { rope: 'neox', sliding: { when: 'window', full: 4, base: 'shared', scale: 'shared' }, skips: 'fourth' },
  apertus: { rope: 'neox', whole: true, factors: 'by-type' },
  arcee: { rope: 'norm', whole: true, factors: 'freqs' },
  arctic: { rope: 'norm', whole: true },
  arwkv7: { rope: 'none' },
  baichuan: { rope: 'norm', whole: true, skips: 'unless-32-layers' },
  bailingmoe: { rope: 'norm' },
  bailingmoe2: { rope: 'neox' },
  bailingmoe3: { rope: 'norm', window: 'mla', recurrent: 'no-kv-heads' },
  bert: { rope: 'none' },
  bitnet: { rope: 'neox' },
  bloom: { rope: 'none' },
  chameleon: { rope: 'norm', whole: true },
  chatglm: { rope: 'norm' },
  clip: { rope: 'none' },
  codeshell: { rope: 'neox', whole: true },
  cogvlm: { rope: 'neox', whole: true, plain: true, base: 10000, factors: 'freqs', factorsFor: 'none' },
  cohere2: { rope: 'norm', sliding: FOURTH_FULL, skips: 'full' },
  cohere2moe: { rope: 'norm', whole: true, sliding: { ...FOURTH_FULL, fullFirst: true }, skips: 'full-after-dense' },
  'command-r': { rope: 'norm' },
  dbrx: { rope: 'neox', whole: true },
  deci: { rope: 'norm', whole: true, factors: 'by-type' },
  deepseek: { rope: 'norm', whole: true },
  deepseek2: { rope: 'norm', window: 'mla', logMultiplier: 'cancels' },
  'deepseek2-ocr': { rope: 'neox', plain: true },
  deepseek32: { rope: 'norm', window: 'mla', logMultiplier: 0.1 },
  deepseek4: { rope: 'norm', window: 'tail', compressed: true },
  dflash: { rope: 'neox', sections: 'any', factors: 'freqs', factorsOver: 'head', sliding: WINDOW_LISTED },
  dots1: { rope: 'neox', whole: true },
  dots3note: { rope: 'norm', window: 'mla', sliding: { when: 'always', full: 'list', base: 'needed', scale: 'same' } },
  dream: { rope: 'neox', whole: true },
  eagle3: { rope: 'norm', factors: 'freqs' },
  ernie4_5: { rope: 'norm', whole: true },
  'ernie4_5-moe': { rope: 'norm', whole: true },
  eurobert: { rope: 'neox' },
  exaone: { rope: 'neox', whole: true, factors: 'freqs' },
  'exaone-moe': { rope: 'neox', whole: true, factors: 'freqs', sliding: FOURTH_FULL, skips: 'full' },
  exaone4: { rope: 'neox', whole: true, factors: 'freqs', sliding: EXAONE4, skips: 'full' },
  falcon: { rope: 'neox', whole: true },
  'falcon-h1': { rope: 'neox', factors: 'freqs', factorsFor: 'none' },
  gemma: { rope: 'neox' },
  'gemma-embedding': { rope: 'neox', sliding: GEMMA },
  gemma2: { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared' } },
  gemma3: { rope: 'neox', sliding: { ...GEMMA, when: 'window' } },
  gemma3n: { rope: 'neox', sliding: { ...GEMMA, full: 5 } },
  gemma4: GEMMA4,
  'gemma4-assistant': GEMMA4,
  'glm-dsa': { rope: 'norm', window: 'mla' },
  glm4: { rope: 'norm', sections: 't-and-h' },
  glm4moe: { rope: 'neox', sections: 't-and-h' },
  'gpt-oss': { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared' } },
  gpt2: { rope: 'none' },
  gptj: { rope: 'none' },
  gptneox: { rope: 'neox' },
  granite: { rope: 'norm', whole: true, factors: 'by-type', skips: 'not-finetuned' },
  granite_swa: { rope: 'norm', whole: true, factors: 'by-type', sliding: GRANITE, skips: 'rope-pattern' },
  granitehybrid: { rope: 'norm', factors: 'freqs', skips: 'not-finetuned', recurrent: 'no-kv-heads' },
  granitemoe: { rope: 'norm', whole: true, factors: 'by-type', skips: 'not-finetuned' },
  graniteswitch: { rope: 'norm', whole: true, skips: 'not-finetuned' },
  grok: { rope: 'neox', whole: true, yarn: 'all', betaFast: 8 },
  grovemoe: { rope: 'neox', whole: true },
  hrm_text: { rope: 'neox' },
  'hunyuan-dense': { rope: 'neox', whole: true, alpha: true },
  'hunyuan-moe': { rope: 'neox', whole: true },
  hunyuan_vl: { rope: 'neox', whole: true, alpha: true, sections: 't-and-h' },
  hy_v3: { rope: 'neox', whole: true },
  hy_v4: { rope: 'norm', window: 'mla' },
  internlm2: { rope: 'norm', whole: true },
  jais: { rope: 'none' },
  jais2: { rope: 'neox', whole: true },
  jamba: { rope: 'none' },
  'jina-bert-v2': { rope: 'none' },
  'jina-bert-v3': { rope: 'neox' },
  'kimi-k3': { rope: 'none' },
  'kimi-linear': { rope: 'none' },
  laguna: { rope: 'neox', sliding: LAGUNA, sizesByLayer: true },
  lfm2: { rope: 'neox', sliding: { when: 'window', full: 0, base: 'same', scale: 'same' }, recurrent: 'no-kv-heads' },
  lfm2moe: { rope: 'neox', recurrent: 'no-kv-heads' },
  llada: { rope: 'norm', whole: true, factors: 'freqs', factorsFor: 'none' },
  'llada-moe': { rope: 'neox', whole: true },
  llama: { rope: 'norm', whole: true, factors: 'by-type' },
  'llama-embed': { rope: 'norm', whole: true, factors: 'by-type' },
  llama4: { rope: 'norm', whole: true, factors: 'freqs', sliding: LLAMA4, skips: 'llama4' },
  maincoder: { rope: 'norm', whole: true },
  mamba: { rope: 'none' },
  mamba2: { rope: 'none' },
  maple: { rope: 'neox', sliding: SHARED, sizesByLayer: true, skips: 'full' },
  mellum: { rope: 'neox', whole: true, sliding: OLMO3 },
  mimo2: { rope: 'neox', sliding: LISTED },
  minicpm: { rope: 'norm', whole: true, factors: 'by-type' },
  minicpm3: { rope: 'neox', window: 'mla', factors: 'long-short' },
  'minimax-01': { rope: 'neox', recurrent: 8 },
  'minimax-m2': { rope: 'neox' },
  'minimax-m3': { rope: 'neox' },
  mistral3: { rope: 'norm', whole: true, factors: 'by-type', yarn: 'betas', logMultiplier: 1 },
  mistral4: { rope: 'norm', window: 'mla', logMultiplier: 0.1 },
  'modern-bert': { rope: 'neox', sliding: { ...GEMMA, when: 'window', full: 3, fullFirst: true } },
  mpt: { rope: 'none' },
  'muse-glimmer': { rope: 'norm', sliding: { when: 'always', full: 4, base: 'shared', scale: 'none' }, skips: 'full' },
  nanbeige: { rope: 'norm', factors: 'freqs' },
  nemotron: { rope: 'neox', whole: true },
  nemotron_h: { rope: 'none' },
  nemotron_h_moe: { rope: 'none' },
  'neo-bert': { rope: 'norm' },
  'nomic-bert': { rope: 'neox' },
  'nomic-bert-moe': { rope: 'neox' },
  olmo: { rope: 'norm', whole: true },
  olmo2: { rope: 'neox', whole: true, sliding: OLMO3 },
  olmoe: { rope: 'neox', whole: true },
  openelm: { rope: 'neox' },
  orion: { rope: 'neox', whole: true },
  paddleocr: { rope: 'mrope', whole: true },
  'pangu-embedded': { rope: 'neox', whole: true, factors: 'by-type', factorsFor: 'none' },
  phi2: { rope: 'neox' },
  phi3: { rope: 'neox', factors: 'long-short' },
  phimoe: { rope: 'neox', factors: 'long-short', factorsOver: 'head' },
  plamo: { rope: 'neox', whole: true },
  plamo2: { rope: 'neox', recurrent: 'no-kv-heads' },
  plamo3: { rope: 'neox', sliding: { ...GEMMA, when: 'window', full: 8 } },
  plm: { rope: 'norm', window: 'mla' },
  pockettts: { rope: 'norm', whole: true },
  qwen: { rope: 'neox' },
  qwen2: { rope: 'neox', whole: true },
  qwen2moe: { rope: 'neox', whole: true },
  qwen2vl: { rope: 'mrope', whole: true },
  qwen3: { rope: 'neox', whole: true },
  qwen35: { rope: 'imrope', recurrent: 4 },
  qwen35moe: { rope: 'imrope', recurrent: 4 },
  qwen3moe: { rope: 'neox', whole: true },
  qwen3next: { rope: 'neox', recurrent: 4 },
  qwen3tts: { rope: 'imrope', whole: true },
  qwen3vl: { rope: 'imrope', whole: true },
  qwen3vlmoe: { rope: 'imrope', whole: true },
  qwen4exp: { rope: 'imrope', recurrent: 4 },
  refact: { rope: 'none' },
  rnd1: { rope: 'neox', whole: true },
  rwkv6: { rope: 'none' },
  rwkv6qwen2: { rope: 'none' },
  rwkv7: { rope: 'none' },
  seed_oss: { rope: 'neox', whole: true },
  smallthinker: { rope: 'neox', whole: true, sliding: SMALLTHINKER, skips: 'smallthinker' },
  smollm3: { rope: 'norm', whole: true, skips: 'fourth' },
  spark2_5: { rope: 'neox', sliding: SHARED, sizesByLayer: true },
  stablelm: { rope: 'neox' },
  starcoder: { rope: 'none' },
  starcoder2: { rope: 'neox', whole: true },
  step35: {
    rope: 'neox',
    sliding: LISTED,
    sizesByLayer: true,
    halvesFull: true,
    factors: 'by-type',
    factorsFor: 'full',
    factorsOver: 'widest',
  },
  t5: { rope: 'none' },
  t5encoder: { rope: 'none' },
  talkie: { rope: 'neox', whole: true },
  'wavtokenizer-dec': { rope: 'none' },
  xverse: { rope: 'norm', whole: true },
};

/** The tensors that hold frequency factors. */
export const FREQS = 'rope_freqs.weight';
export const LONG = 'rope_factors_long.weight';
export const SHORT = 'rope_factors_short.weight';

/** HuggingFace's model_type → general.architecture, where the two differ. */
export const ARCHITECTURE_OF: Readonly<Record<string, string>> = {
  mistral: 'llama',
  mixtral: 'llama',
  qwen2_moe: 'qwen2moe',
  qwen3_moe: 'qwen3moe',
  qwen2_vl: 'qwen2vl',
  qwen2_5_vl: 'qwen2vl',
  qwen3_vl: 'qwen3vl',
  qwen3_vl_moe: 'qwen3vlmoe',
  phi: 'phi2',
  gemma3_text: 'gemma3',
  gpt_neox: 'gptneox',
  gpt_oss: 'gpt-oss',
  glm4_moe: 'glm4moe',
  cohere: 'command-r',
  deepseek_v2: 'deepseek2',
  deepseek_v3: 'deepseek2',
  llama4_text: 'llama4',
  ernie4_5_moe: 'ernie4_5-moe',
};
