/**
 * The RoPE of llama.cpp's architectures: one row for each general.architecture.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-arch.cpp LLM_ARCH_NAMES, src/llama-model.cpp llama_model_rope_type
 * @see ggml-org/llama.cpp@de3ff815 src/models/*.cpp load_arch_hparams, load_arch_tensors, graph
 */

/** `norm` has interleaved pairs, and `neox`, `mrope` and `imrope` have half pairing. The graph of `none` has no RoPE. */
export type GgufRopeKind = 'norm' | 'neox' | 'mrope' | 'imrope' | 'none';

/** The sliding-window layers of architectures that also have full layers. */
export interface GgufSliding {
  /** They exist if attention.sliding_window > 0 (`window`), unless it is 0 (`not-0`), or in models of 64 layers. */
  readonly when: 'always' | 'window' | 'not-0' | '64-layers';
  /** Every n-th layer is full, unless attention.sliding_window_pattern says which. A `list` requires that key. */
  readonly full: number | 'list';
  /** The full layer is the first of n instead of the last. */
  readonly fullFirst?: true;
  /** The base is freq_base_swa, else freq_base (`shared`), 10000 (`own`) or refused (`needed`); or it is freq_base. */
  readonly base: 'shared' | 'own' | 'needed' | 'same';
  /** The factor is the file's, even with type none (`shared`), or that of full layers (`same`), or there is none. */
  readonly scale: 'shared' | 'same' | 'none';
  /** Sliding layers have no YaRN and no magnitude. */
  readonly plain?: true;
  /** Files without attention.sliding_window have this one. `other` layers see chunks or both sides. */
  readonly window?: number | 'other';
}

/** The row of one architecture. */
export interface GgufArchitecture {
  readonly rope: GgufRopeKind;
  /** rope.dimension_count must be the size of a head. */
  readonly whole?: true;
  /** With `mla` the record is for the rotary part of q and k; with `tail` the last dimensions rotate. */
  readonly window?: 'mla' | 'tail';
  /** It loads these factor tensors, and refuses others. `by-type` is long and short for longrope, else rope_freqs. */
  readonly factors?: 'freqs' | 'long-short' | 'by-type';
  /** Only full layers use the factors, or no layer does. */
  readonly factorsFor?: 'full' | 'none';
  /** A factor tensor has half a head of values, or half of the widest layer. Default: one for each pair. */
  readonly factorsOver?: 'head' | 'widest';
  /** With rope.dimension_sections it is M-RoPE, if t and h have pairs, or if any axis has them. */
  readonly sections?: 't-and-h' | 'any';
  /** It reads yarn_beta_fast and yarn_beta_slow; with `all` yarn_ext_factor and yarn_attn_factor too. */
  readonly yarn?: 'betas' | 'all';
  readonly betaFast?: number;
  /** yarn_log_multiplier is mscale_all_dim times this. With `cancels` mscale is the same, so the magnitude is 1. */
  readonly logMultiplier?: 1 | 0.1 | 'cancels';
  readonly sliding?: GgufSliding;
  /** Sliding and full layers have different sizes. Otherwise the first layer's sizes apply. */
  readonly sizesByLayer?: true;
  /** These layers do not rotate; see gguf.ts. */
  readonly skips?:
    | 'full'
    | 'full-after-dense'
    | 'fourth'
    | 'llama4'
    | 'smallthinker'
    | 'rope-pattern'
    | 'not-finetuned'
    | 'unless-32-layers';
  /** Layers without key/value heads, or all but every n-th, have no attention. */
  readonly recurrent?: 'no-kv-heads' | 4 | 8;
  /** It ignores the scaling keys. */
  readonly plain?: true;
  /** The base is fixed. */
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
const LLAMA4: GgufSliding = { when: 'not-0', full: 4, base: 'shared', scale: 'shared', window: 'other' };
const SMALLTHINKER: GgufSliding = { when: 'window', full: 4, fullFirst: true, base: 'shared', scale: 'shared' };
const LAGUNA: GgufSliding = { ...SMALLTHINKER, scale: 'none', plain: true };
const EXAONE4: GgufSliding = { ...FOURTH_FULL, when: '64-layers', window: 4096 };
const OLMO3: GgufSliding = { when: 'window', full: 4, base: 'same', scale: 'none', plain: true };
const LISTED_SIZES: GgufArchitecture = { rope: 'neox', sliding: LISTED, sizesByLayer: true, factorsFor: 'full' };

/** Gives several architectures the same row. */
function each(names: string, row: GgufArchitecture): Record<string, GgufArchitecture> {
  return Object.fromEntries(names.split(' ').map((name) => [name, row]));
}

/** The rows by general.architecture. */
export const GGUF_ARCHITECTURES: Readonly<Record<string, GgufArchitecture>> = {
  ...each(
    'arwkv7 bert bloom clip gpt2 gptj jais jamba jina-bert-v2 kimi-k3 kimi-linear mamba mamba2 mpt nemotron_h ' +
      'nemotron_h_moe refact rwkv6 rwkv6qwen2 rwkv7 starcoder t5 t5encoder wavtokenizer-dec',
    { rope: 'none' },
  ),
  ...each('bailingmoe chatglm command-r neo-bert', { rope: 'norm' }),
  ...each('arctic chameleon deepseek ernie4_5 ernie4_5-moe internlm2', { rope: 'norm', whole: true }),
  ...each('maincoder olmo pockettts xverse', { rope: 'norm', whole: true }),
  ...each(
    'bailingmoe2 bitnet eurobert gemma gptneox hrm_text jina-bert-v3 minimax-m2 minimax-m3 nomic-bert ' +
      'nomic-bert-moe nemotron openelm phi2 qwen stablelm',
    { rope: 'neox' },
  ),
  ...each(
    'codeshell dbrx dots1 dream falcon grovemoe hunyuan-moe hy_v3 jais2 llada-moe olmoe orion plamo qwen2 ' +
      'qwen2moe qwen3 qwen3moe rnd1 seed_oss starcoder2 talkie',
    { rope: 'neox', whole: true },
  ),
  ...each('qwen35 qwen35moe qwen4exp', { rope: 'imrope', recurrent: 4 }),
  ...each('qwen3tts qwen3vl qwen3vlmoe', { rope: 'imrope', whole: true }),
  ...each('paddleocr qwen2vl', { rope: 'mrope', whole: true }),
  ...each('lfm2moe plamo2', { rope: 'neox', recurrent: 'no-kv-heads' }),
  ...each('deci llama llama-embed minicpm', { rope: 'norm', whole: true, factors: 'by-type' }),
  ...each('glm-dsa hy_v4 plm', { rope: 'norm', window: 'mla' }),
  afmoe: { rope: 'neox', sliding: { when: 'window', full: 4, base: 'shared', scale: 'shared' }, skips: 'fourth' },
  apertus: { rope: 'neox', whole: true, factors: 'by-type' },
  arcee: { rope: 'norm', whole: true, factors: 'freqs' },
  baichuan: { rope: 'norm', whole: true, skips: 'unless-32-layers' },
  bailingmoe3: { rope: 'norm', window: 'mla', recurrent: 'no-kv-heads' },
  cogvlm: { rope: 'neox', whole: true, plain: true, base: 10000, factors: 'freqs', factorsFor: 'none' },
  cohere2: { rope: 'norm', sliding: FOURTH_FULL, skips: 'full' },
  cohere2moe: { rope: 'norm', whole: true, sliding: { ...FOURTH_FULL, fullFirst: true }, skips: 'full-after-dense' },
  deepseek2: { rope: 'norm', window: 'mla', logMultiplier: 'cancels' },
  'deepseek2-ocr': { rope: 'neox', plain: true },
  deepseek32: { rope: 'norm', window: 'mla', logMultiplier: 0.1 },
  deepseek4: { rope: 'norm', window: 'tail', compressed: true },
  dflash: { rope: 'neox', sections: 'any', factors: 'freqs', factorsOver: 'head', sliding: WINDOW_LISTED },
  dots3note: { rope: 'norm', window: 'mla', sliding: { when: 'always', full: 'list', base: 'needed', scale: 'same' } },
  ...each('eagle3 nanbeige', { rope: 'norm', factors: 'freqs' }),
  exaone: { rope: 'neox', whole: true, factors: 'freqs' },
  'exaone-moe': { rope: 'neox', whole: true, factors: 'freqs', sliding: FOURTH_FULL, skips: 'full' },
  exaone4: { rope: 'neox', whole: true, factors: 'freqs', sliding: EXAONE4, skips: 'full' },
  'falcon-h1': { rope: 'neox', factors: 'freqs', factorsFor: 'none' },
  'gemma-embedding': { rope: 'neox', sliding: { ...GEMMA, window: 'other' } },
  gemma2: { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared', window: 4096 } },
  gemma3: { rope: 'neox', sliding: { ...GEMMA, when: 'window' } },
  gemma3n: { rope: 'neox', sliding: { ...GEMMA, full: 5 } },
  ...each('gemma4 gemma4-assistant', { ...LISTED_SIZES, factors: 'freqs', factorsOver: 'head' }),
  glm4: { rope: 'norm', sections: 't-and-h' },
  glm4moe: { rope: 'neox', sections: 't-and-h' },
  'gpt-oss': { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared' } },
  ...each('granite granitemoe', { rope: 'norm', whole: true, factors: 'by-type', skips: 'not-finetuned' }),
  granite_swa: { rope: 'norm', whole: true, factors: 'by-type', sliding: GRANITE, skips: 'rope-pattern' },
  granitehybrid: { rope: 'norm', factors: 'freqs', skips: 'not-finetuned', recurrent: 'no-kv-heads' },
  graniteswitch: { rope: 'norm', whole: true, skips: 'not-finetuned' },
  grok: { rope: 'neox', whole: true, yarn: 'all', betaFast: 8 },
  'hunyuan-dense': { rope: 'neox', whole: true, alpha: true },
  hunyuan_vl: { rope: 'neox', whole: true, alpha: true, sections: 't-and-h' },
  laguna: { rope: 'neox', sliding: LAGUNA, sizesByLayer: true },
  lfm2: { rope: 'neox', sliding: { when: 'window', full: 0, base: 'same', scale: 'same' }, recurrent: 'no-kv-heads' },
  llada: { rope: 'norm', whole: true, factors: 'freqs', factorsFor: 'none' },
  llama4: { rope: 'norm', whole: true, factors: 'freqs', sliding: LLAMA4, skips: 'llama4' },
  maple: { rope: 'neox', sliding: SHARED, sizesByLayer: true, skips: 'full' },
  ...each('mellum olmo2', { rope: 'neox', whole: true, sliding: OLMO3 }),
  mimo2: { rope: 'neox', sliding: LISTED },
  minicpm3: { rope: 'neox', window: 'mla', factors: 'long-short' },
  'minimax-01': { rope: 'neox', recurrent: 8 },
  mistral3: { rope: 'norm', whole: true, factors: 'by-type', yarn: 'betas', logMultiplier: 1 },
  mistral4: { rope: 'norm', window: 'mla', logMultiplier: 0.1 },
  'modern-bert': { rope: 'neox', sliding: { ...GEMMA, when: 'window', full: 3, fullFirst: true, window: 'other' } },
  'muse-glimmer': { rope: 'norm', sliding: { when: 'always', full: 4, base: 'shared', scale: 'none' }, skips: 'full' },
  'pangu-embedded': { rope: 'neox', whole: true, factors: 'by-type', factorsFor: 'none' },
  phi3: { rope: 'neox', factors: 'long-short' },
  phimoe: { rope: 'neox', factors: 'long-short', factorsOver: 'head' },
  plamo3: { rope: 'neox', sliding: { ...GEMMA, when: 'window', full: 8 } },
  qwen3next: { rope: 'neox', recurrent: 4 },
  smallthinker: { rope: 'neox', whole: true, sliding: SMALLTHINKER, skips: 'smallthinker' },
  smollm3: { rope: 'norm', whole: true, skips: 'fourth' },
  spark2_5: { rope: 'neox', sliding: SHARED, sizesByLayer: true },
  step35: { ...LISTED_SIZES, halvesFull: true, factors: 'by-type', factorsOver: 'widest' },
};

/** This tensor holds the factors of all pairs. */
export const FREQS = 'rope_freqs.weight';
/** This tensor holds the factors for long contexts. */
export const LONG = 'rope_factors_long.weight';
/** This tensor holds the factors for short contexts. */
export const SHORT = 'rope_factors_short.weight';

/** HuggingFace's model_type and general.architecture, where the two differ. The last one of several is the usual one. */
export const ARCHITECTURE_OF: Readonly<Record<string, string>> = /* @__PURE__ */ Object.fromEntries(
  (
    'mistral=llama mixtral=llama ministral3=mistral3 olmo3=olmo2 olmo2=olmo2 qwen2_moe=qwen2moe qwen3_moe=qwen3moe ' +
    'qwen2_vl=qwen2vl qwen2_5_vl=qwen2vl qwen3_vl=qwen3vl qwen3_vl_moe=qwen3vlmoe phi=phi2 gemma3_text=gemma3 ' +
    'gpt_neox=gptneox gpt_oss=gpt-oss glm4_moe=glm4moe cohere=command-r deepseek_v2=deepseek2 deepseek_v3=deepseek2 ' +
    'llama4_text=llama4 ernie4_5_moe=ernie4_5-moe minimax_m2=minimax-m2 bailing_moe_v2=bailingmoe2 ' +
    'hunyuan_v1_dense=hunyuan-dense hunyuan_v1_moe=hunyuan-moe deepseek_v32=deepseek32 glm_moe_dsa=glm-dsa'
  )
    .split(' ')
    .map((pair) => pair.split('=') as [string, string]),
);
