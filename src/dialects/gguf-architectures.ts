/**
 * What llama.cpp does with RoPE, architecture by architecture: a row for each name that general.architecture may have.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-arch.cpp LLM_ARCH_NAMES, src/llama-model.cpp llama_model_rope_type, and of each architecture
 *   src/models/*.cpp load_arch_hparams (keys), load_arch_tensors (factors) and graph (the call)
 */

/** norm rotates neighbours; neox, mrope and imrope rotate halves; none: the graph has no RoPE. */
export type GgufRopeKind = 'norm' | 'neox' | 'mrope' | 'imrope' | 'none';

/** Layers that slide, where an architecture tells two kinds of layer apart. */
export interface GgufSliding {
  /** `window`: where attention.sliding_window > 0; `not-0`: unless it is 0; `64-layers`: in models of 64 layers; `always`. */
  readonly when: 'always' | 'window' | 'not-0' | '64-layers';
  /** Unless attention.sliding_window_pattern says otherwise, each n-th layer is full; `list`: the key must be there, a flag a layer. */
  readonly full: number | 'list';
  /** The full layer is the first of n, not the last. */
  readonly fullFirst?: true;
  /** Base of sliding layers: freq_base_swa, or where that is missing freq_base (`shared`), 10000 (`own`), nothing (`needed`); `same`: freq_base, always. */
  readonly base: 'shared' | 'own' | 'needed' | 'same';
  /** Factor of sliding layers: the file's, even beside type none (`shared`); as full layers have it (`same`); none. */
  readonly scale: 'shared' | 'same' | 'none';
  /** No YaRN and no magnitude on sliding layers. */
  readonly plain?: true;
}

/** One architecture. */
export interface GgufArchitecture {
  readonly rope: GgufRopeKind;
  /** llama.cpp stops unless rope.dimension_count is the size of a head. */
  readonly whole?: true;
  /** `mla`: q and k are a part without position and a part with, and the record is that of the latter; `tail`: the last dimensions rotate. */
  readonly window?: 'mla' | 'tail';
  /**
   * Tensors that it loads: rope_freqs; rope_factors_long and _short; `by-type`: the latter for scaling type longrope, the former otherwise.
   * A file with another one is refused, as the count of tensors is off.
   */
  readonly factors?: 'freqs' | 'long-short' | 'by-type';
  /** `full`: full layers use them; `none`: they are loaded and not used. */
  readonly factorsFor?: 'full' | 'none';
  /** Values of a factor tensor: half a head, half of the widest layer, unless one a pair. */
  readonly factorsOver?: 'head' | 'widest';
  /** rope.dimension_sections may be there, and then it is M-RoPE: where t and h have pairs, or where any axis has. */
  readonly sections?: 't-and-h' | 'any';
  /** YaRN's keys that it reads: yarn_beta_fast and _slow; also yarn_ext_factor and yarn_attn_factor; yarn_log_multiplier. */
  readonly yarn?: 'betas' | 'all';
  readonly betaFast?: number;
  /** yarn_log_multiplier is HuggingFace's mscale_all_dim times this; `cancels`: mscale is the same, and the magnitude 1. */
  readonly logMultiplier?: 1 | 0.1 | 'cancels';
  readonly sliding?: GgufSliding;
  /** Sliding and full layers may have rotary dimensions and heads of their own; else the first layer's hold. */
  readonly sizesByLayer?: true;
  /** Layers that do not rotate; gguf.ts has the rules. */
  readonly skips?:
    | 'full'
    | 'full-after-dense'
    | 'fourth'
    | 'llama4'
    | 'smallthinker'
    | 'rope-pattern'
    | 'not-finetuned'
    | 'unless-32-layers';
  /** Layers without attention: those with no key/value heads, or all but each n-th. */
  readonly recurrent?: 'no-kv-heads' | 4 | 8;
  /** Nothing is scaled, whatever the file says. */
  readonly plain?: true;
  /** The base, whatever the file says. */
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
const FOURTH_FULL: GgufSliding = { when: 'always', full: 4, base: 'same', scale: 'same' };
const OLMO3: GgufSliding = { when: 'window', full: 4, base: 'same', scale: 'none', plain: true };

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
  dflash: {
    rope: 'neox',
    sections: 'any',
    factors: 'freqs',
    factorsOver: 'head',
    sliding: { when: 'window', full: 'list', base: 'same', scale: 'same' },
  },
  dots1: { rope: 'neox', whole: true },
  dots3note: { rope: 'norm', window: 'mla', sliding: { when: 'always', full: 'list', base: 'needed', scale: 'same' } },
  dream: { rope: 'neox', whole: true },
  eagle3: { rope: 'norm', factors: 'freqs' },
  ernie4_5: { rope: 'norm', whole: true },
  'ernie4_5-moe': { rope: 'norm', whole: true },
  eurobert: { rope: 'neox' },
  exaone: { rope: 'neox', whole: true, factors: 'freqs' },
  'exaone-moe': { rope: 'neox', whole: true, factors: 'freqs', sliding: FOURTH_FULL, skips: 'full' },
  exaone4: {
    rope: 'neox',
    whole: true,
    factors: 'freqs',
    sliding: { ...FOURTH_FULL, when: '64-layers' },
    skips: 'full',
  },
  falcon: { rope: 'neox', whole: true },
  'falcon-h1': { rope: 'neox', factors: 'freqs', factorsFor: 'none' },
  gemma: { rope: 'neox' },
  'gemma-embedding': { rope: 'neox', sliding: GEMMA },
  gemma2: { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared' } },
  gemma3: { rope: 'neox', sliding: { ...GEMMA, when: 'window' } },
  gemma3n: { rope: 'neox', sliding: { ...GEMMA, full: 5 } },
  gemma4: {
    rope: 'neox',
    sliding: LISTED,
    sizesByLayer: true,
    factors: 'freqs',
    factorsFor: 'full',
    factorsOver: 'head',
  },
  'gemma4-assistant': {
    rope: 'neox',
    sliding: LISTED,
    sizesByLayer: true,
    factors: 'freqs',
    factorsFor: 'full',
    factorsOver: 'head',
  },
  'glm-dsa': { rope: 'norm', window: 'mla' },
  glm4: { rope: 'norm', sections: 't-and-h' },
  glm4moe: { rope: 'neox', sections: 't-and-h' },
  'gpt-oss': { rope: 'neox', sliding: { when: 'always', full: 2, base: 'shared', scale: 'shared' } },
  gpt2: { rope: 'none' },
  gptj: { rope: 'none' },
  gptneox: { rope: 'neox' },
  granite: { rope: 'norm', whole: true, factors: 'by-type', skips: 'not-finetuned' },
  granite_swa: {
    rope: 'norm',
    whole: true,
    factors: 'by-type',
    sliding: { when: 'always', full: 'list', base: 'same', scale: 'same' },
    skips: 'rope-pattern',
  },
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
  laguna: {
    rope: 'neox',
    sliding: { when: 'window', full: 4, fullFirst: true, base: 'shared', scale: 'none', plain: true },
    sizesByLayer: true,
  },
  lfm2: { rope: 'neox', sliding: { when: 'window', full: 0, base: 'same', scale: 'same' }, recurrent: 'no-kv-heads' },
  lfm2moe: { rope: 'neox', recurrent: 'no-kv-heads' },
  llada: { rope: 'norm', whole: true, factors: 'freqs', factorsFor: 'none' },
  'llada-moe': { rope: 'neox', whole: true },
  llama: { rope: 'norm', whole: true, factors: 'by-type' },
  'llama-embed': { rope: 'norm', whole: true, factors: 'by-type' },
  llama4: {
    rope: 'norm',
    whole: true,
    factors: 'freqs',
    sliding: { when: 'not-0', full: 4, base: 'shared', scale: 'shared' },
    skips: 'llama4',
  },
  maincoder: { rope: 'norm', whole: true },
  mamba: { rope: 'none' },
  mamba2: { rope: 'none' },
  maple: {
    rope: 'neox',
    sliding: { when: 'always', full: 'list', base: 'shared', scale: 'shared' },
    sizesByLayer: true,
    skips: 'full',
  },
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
  smallthinker: {
    rope: 'neox',
    whole: true,
    sliding: { when: 'window', full: 4, fullFirst: true, base: 'shared', scale: 'shared' },
    skips: 'smallthinker',
  },
  smollm3: { rope: 'norm', whole: true, skips: 'fourth' },
  spark2_5: {
    rope: 'neox',
    sliding: { when: 'always', full: 'list', base: 'shared', scale: 'shared' },
    sizesByLayer: true,
  },
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
