/**
 * GGUF: metadata keys → the effective RoPE of each layer, as llama.cpp reads them.
 *
 * Which pairs turn is nowhere in the file: llama.cpp decides it by architecture, and so does the table here.
 *
 * @module
 * @see ggml-org/llama.cpp@a5410f0 src/llama-model.cpp llama_model_rope_type; ggml docs/gguf.md
 */
import { refuse } from '../core/errors.js';
import { Fields } from '../core/fields.js';
import type { RopeScaling } from '../ops/rope/frequencies.js';
import type { RopeSpec } from '../ops/rope/plan.js';
import type { LayerRope, ModelRope, ModelRopeOptions } from './model-rope.js';

/** What this dialect needs of a GGUF file: its header, and perhaps the few small tensors that hold factors. */
export interface GgufHeader {
  readonly metadata: ReadonlyMap<string, unknown>;
  readonly tensors: readonly { readonly name: string }[];
  /** Reads a small f32 tensor, where the weights are at hand. */
  readonly readTensor?: (name: string) => Float32Array | undefined;
}

type Kind = 'norm' | 'neox' | 'mrope' | 'imrope' | 'none';

const ARCHITECTURES: Readonly<Record<Kind, string>> = {
  norm:
    'llama llada llama4 deci baichuan starcoder internlm2 minicpm xverse command-r cohere2 olmo arctic deepseek deepseek2 plm chatglm glm4 granite granitemoe granitehybrid ' +
    'chameleon bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe mistral3 mistral4 maincoder llama-embed',
  neox:
    'falcon falcon-h1 grok dbrx bert jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe ' +
    'phi2 phi3 phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma-embedding starcoder2 openelm gptneox codeshell orion nemotron exaone exaone4 minicpm3 bailingmoe2 dots1 ' +
    'hunyuan-moe hunyuan-dense gpt-oss lfm2 lfm2moe smallthinker seed_oss grovemoe apertus glm4moe',
  mrope: 'qwen2vl',
  imrope: 'qwen3vl qwen3vlmoe',
  none: 'gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2 rwkv7 arwkv7 wavtokenizer-dec nemotron_h',
};
const KIND_OF: ReadonlyMap<string, Kind> = /* @__PURE__ */ new Map(
  (Object.keys(ARCHITECTURES) as Kind[]).flatMap((kind) => ARCHITECTURES[kind].split(' ').map((name) => [name, kind] as const)),
);
const MAX_LAYERS = 10000;

/**
 * Reads the effective RoPE of each layer from a GGUF header.
 *
 * @param file - the header, from parseGguf or another reader
 * @param options - the context in use, and the file's name for messages
 * @returns a layer each; `planRope({ ...layer.rope, positions })` makes it runnable
 * @throws {RopewalkError} FORMAT for missing or malformed keys; UNSUPPORTED for an architecture or scaling that is not known, or has no RoPE
 */
export function ropeFromGguf(file: GgufHeader, options: ModelRopeOptions = {}): ModelRope {
  const keys = new Fields(file.metadata, options.where ?? 'gguf');
  const architecture =
    keys.optionalText('general.architecture') ?? refuse('FORMAT', keys.path('general.architecture'), 'a text', undefined);
  const kind =
    KIND_OF.get(architecture) ??
    refuse('UNSUPPORTED', keys.path('general.architecture'), `one of ${KIND_OF.size} architectures whose pairing is known`, architecture);
  if (kind === 'none') refuse('UNSUPPORTED', keys.path('general.architecture'), 'a model with rotary position embedding', architecture);
  const arch: Arch = { file, keys, options, architecture, kind, notes: [] };
  const numLayers =
    keys.optionalInteger(`${architecture}.block_count`, 1, MAX_LAYERS) ??
    refuse('FORMAT', keys.path(`${architecture}.block_count`), 'an integer', undefined);
  const full = ropeOf(arch);
  const sliding = slidingRope(arch, full);
  const layers = Array.from({ length: numLayers }, (_, layer): LayerRope => {
    if (architecture === 'smollm3' && (layer + 1) % 4 === 0) return { layer, rope: undefined };
    if (!sliding) return { layer, rope: full };
    return sliding.isSliding(layer)
      ? { layer, layerType: 'sliding_attention', rope: sliding.rope }
      : { layer, layerType: 'full_attention', rope: full };
  });
  return {
    source: 'gguf',
    architecture,
    known: true, // any other was refused
    numLayers,
    layers,
    maxContext: keys.optionalInteger(`${architecture}.context_length`),
    notes: arch.notes,
  };
}

interface Arch {
  readonly file: GgufHeader;
  readonly keys: Fields;
  readonly options: ModelRopeOptions;
  readonly architecture: string;
  readonly kind: Kind;
  readonly notes: string[];
}

function ropeOf(arch: Arch): RopeSpec {
  const { keys, architecture: a, kind, notes } = arch;
  const headDim = headDimOf(arch);
  const rotaryDim = keys.optionalInteger(`${a}.rope.dimension_count`) ?? headDim;
  if (rotaryDim % 2 !== 0 || rotaryDim > headDim)
    refuse('FORMAT', keys.path(`${a}.rope.dimension_count`), `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  const base = keys.optionalPositive(`${a}.rope.freq_base`);
  if (base === undefined) notes.push(`${a}.rope.freq_base is missing: llama.cpp takes 10000.`);
  const sections = kind === 'mrope' || kind === 'imrope' ? sectionsOf(arch) : undefined;
  return {
    headDim,
    rotaryDim,
    pairing: kind === 'norm' ? 'interleaved' : 'half',
    base: base ?? 10000,
    ...scalingOf(arch, rotaryDim),
    ...(sections ? { axes: { rule: kind === 'imrope' ? ('interleaved-ggml' as const) : ('sections' as const), sections } } : {}),
  };
}

function headDimOf({ keys, architecture: a }: Arch): number {
  const given = keys.optionalInteger(`${a}.attention.key_length`);
  const rope = keys.optionalInteger(`${a}.rope.dimension_count`);
  // DeepSeek's MLA keys are a part without position and a part with; only the latter turns.
  if (a === 'deepseek2' && rope !== undefined) return rope;
  if (given !== undefined) return given;
  const width = keys.optionalInteger(`${a}.embedding_length`);
  const counts = keys.raw(`${a}.attention.head_count`);
  // Some architectures list heads by layer; head_dim is the same for all.
  const heads = Array.isArray(counts) ? Number(counts.find((n) => Number(n) > 0)) : keys.optionalInteger(`${a}.attention.head_count`);
  if (width === undefined || heads === undefined || !(heads > 0) || width % heads !== 0) {
    refuse('FORMAT', keys.path(`${a}.attention.key_length`), 'an integer, or embedding_length and head_count that give one', undefined);
  }
  return width / heads;
}

function sectionsOf({ keys, architecture: a }: Arch): number[] {
  const list = keys.raw(`${a}.rope.dimension_sections`);
  const sections = Array.isArray(list) ? list.map(Number) : [];
  if (sections.length < 3 || sections.length > 4 || !sections.every((n) => Number.isInteger(n) && n >= 0)) {
    refuse('FORMAT', keys.path(`${a}.rope.dimension_sections`), 'three or four integers', list);
  }
  return [...sections, 0].slice(0, 4);
}

function scalingOf(arch: Arch, rotaryDim: number): Pick<RopeSpec, 'scaling' | 'attentionFactor' | 'freqFactors'> {
  const { file, keys, architecture: a, notes, options } = arch;
  const has = (name: string): boolean => file.tensors.some((tensor) => tensor.name === name);
  const read = (name: string): Float32Array | undefined => {
    if (!has(name)) return undefined;
    const values = file.readTensor?.(name);
    if (!values) {
      notes.push(`${name} divides the frequencies; its values were not read, so they are not in what is shown.`);
      return undefined;
    }
    return values.length >= rotaryDim / 2
      ? values
      : refuse('FORMAT', keys.path(`${name}`), `${rotaryDim / 2} values, one a pair`, values.length);
  };
  const type = keys.optionalText(`${a}.rope.scaling.type`);
  // scale_linear is the key of old files.
  const factor = keys.optionalPositive(`${a}.rope.scaling.factor`) ?? keys.optionalPositive(`${a}.rope.scale_linear`) ?? 1;
  const attnFactor = keys.optionalPositive(`${a}.rope.scaling.attn_factor`) ?? 1;
  const original = keys.optionalInteger(`${a}.rope.scaling.original_context_length`) ?? keys.optionalInteger(`${a}.context_length`);
  const magnitude = attnFactor === 1 ? {} : { attentionFactor: attnFactor };
  const freqs = read('rope_freqs.weight');
  const factors = freqs ? { freqFactors: freqs } : {};
  switch (type) {
    case undefined:
    case 'linear':
      return { ...(factor === 1 ? {} : { scaling: { kind: 'linear', factor } }), ...magnitude, ...factors };
    case 'none':
      return { ...magnitude, ...factors };
    case 'yarn': {
      const scaling: RopeScaling = {
        kind: 'yarn',
        factor,
        originalContext: original ?? refuse('FORMAT', keys.path(`${a}.rope.scaling.original_context_length`), 'an integer', undefined),
        extFactor: keys.optionalNumber(`${a}.rope.scaling.yarn_ext_factor`) ?? 1,
        attnFactor: attnFactor * (keys.optionalPositive(`${a}.rope.scaling.yarn_attn_factor`) ?? 1),
        betaFast: keys.optionalPositive(`${a}.rope.scaling.yarn_beta_fast`) ?? 32,
        betaSlow: keys.optionalPositive(`${a}.rope.scaling.yarn_beta_slow`) ?? 1,
      };
      if (keys.optionalNumber(`${a}.rope.scaling.yarn_log_multiplier`))
        notes.push(
          'yarn_log_multiplier changes the magnitude and the attention scale in some versions of llama.cpp; it is not applied here.',
        );
      return { scaling, ...factors };
    }
    case 'longrope': {
      const originalContext = original ?? refuse('FORMAT', keys.path(`${a}.rope.scaling.original_context_length`), 'an integer', undefined);
      // llama.cpp chooses by the size of the context it was opened with, not by the sequence.
      const context = options.context ?? originalContext;
      if (options.context === undefined)
        notes.push(`The frequencies depend on the context; one of up to ${originalContext} tokens is assumed.`);
      const chosen = read(context > originalContext ? 'rope_factors_long.weight' : 'rope_factors_short.weight');
      return { ...magnitude, ...(chosen ? { freqFactors: chosen } : {}) };
    }
    default:
      return refuse('UNSUPPORTED', keys.path(`${a}.rope.scaling.type`), 'none, linear, yarn or longrope', type);
  }
}

/** Gemma 3 and others turn their sliding layers by another base, unscaled. */
function slidingRope(
  { keys, architecture: a, notes }: Arch,
  full: RopeSpec,
): { rope: RopeSpec; isSliding: (layer: number) => boolean } | undefined {
  const gemma3 = a === 'gemma3' || a === 'gemma3n';
  const base = keys.optionalPositive(`${a}.rope.freq_base_swa`) ?? (gemma3 ? 10000 : undefined);
  if (base === undefined) return undefined;
  const pattern = keys.raw(`${a}.attention.sliding_window_pattern`);
  const { scaling: _, attentionFactor: __, freqFactors: ___, ...plain } = full;
  const rope = { ...plain, base };
  if (Array.isArray(pattern)) return { rope, isSliding: (layer) => pattern[layer] === true };
  const period = keys.optionalInteger(`${a}.attention.sliding_window_pattern`) ?? (a === 'gemma3' ? 6 : a === 'gemma3n' ? 5 : undefined);
  if (period === undefined) {
    notes.push(`${a}.rope.freq_base_swa = ${base} is for sliding layers, but which layers slide is not in the file.`);
    return undefined;
  }
  return { rope, isSliding: (layer) => (layer + 1) % period !== 0 };
}
