/** Configs for the test beside transformers: those of published models, and drawn ones of every model type. */
import fc from 'fast-check';
import published from '../../../site/src/explore/models.json' with { type: 'json' };
import { MODELS } from '../src/huggingface-models.js';

type Json = Record<string, unknown>;

export interface Case {
  readonly name: string;
  readonly config: Json;
  readonly context?: number;
}

/** Repeats `layer_types`, which the list has up to its first period. */
function whole({ layer_types: types, text_config: text, ...config }: Json): Json {
  const count = Number(config.num_hidden_layers);
  const all = Array.isArray(types) && Array.from({ length: count }, (_, n) => types[n % types.length]);
  return { ...config, ...(all && { layer_types: all }), ...(text ? { text_config: whole(text as Json) } : {}) };
}

export const PUBLISHED: readonly Case[] = published.map(({ id, config }) => ({ name: id, config: whole(config) }));

/** The text parts of models for images have names of their own. */
const TEXT: Json = { mllama: 'mllama_text_model', llama4: 'llama4_text', glm4v: 'glm4v_text', glm_ocr: 'glm_ocr_text' };
for (const name of 'gemma3 gemma3n gemma4 gemma4_unified paddleocr_vl qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe glm4v_moe'.split(
  ' ',
))
  TEXT[name] = `${name}_text`;
/** transformers has no class of these, or one without frequencies to look at. */
const WITHOUT_CLASS = ['minicpm', 'kimi_k2', 'bailing_moe_v2', 'gptj', 'codegen', 'chatglm'];
const FAMILIES = Object.keys(MODELS).filter((name) => !WITHOUT_CLASS.includes(name));
const KINDS = ['default', 'linear', 'dynamic', 'yarn', 'longrope', 'llama3', 'proportional'];

const maybe = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined, freq: 2 });
const number = (min: number, max: number): fc.Arbitrary<number> =>
  fc.integer({ min: Math.ceil(min * 64), max: Math.floor(max * 64) }).map((n) => n / 64);
const compact = (fields: Json): Json => JSON.parse(JSON.stringify(fields));

/** Draws a config that transformers 5 takes. */
export const drawnCase: fc.Arbitrary<Case> = fc
  .record({
    family: fc.constantFrom(...FAMILIES),
    kind: fc.constantFrom(...KINDS),
    form: fc.constantFrom('old', 'new'),
    heads: fc.constantFrom(2, 4, 6),
    headDim: fc.constantFrom(16, 24, 32, 48, 64, 80, 96, 128, 256),
    ownHeadDim: fc.boolean(),
    pairs: maybe(number(0.1, 1)),
    theta: fc.constantFrom(undefined, 1e4, 5e5, 1e6, 12345.678, 1e7),
    localTheta: maybe(fc.constantFrom(1e4, 20000)),
    max: fc.constantFrom(512, 4096, 32768, 131072),
    original: fc.constantFrom(undefined, 'in', 'out', 'both'),
    oldName: fc.boolean(),
    factor: number(1, 64),
    yarn: fc.record(
      {
        beta_fast: number(8, 64),
        beta_slow: number(0.5, 4),
        mscale: number(0, 2),
        mscale_all_dim: number(0, 2),
        attention_factor: number(0.5, 2),
        truncate: fc.boolean(),
      },
      { requiredKeys: [] },
    ),
    llama3: fc.record({ low_freq_factor: number(0.5, 2), high_freq_factor: number(3, 8) }),
    own: fc.record({ factor: fc.boolean(), attention: maybe(number(0.5, 2)) }),
    factors: fc.array(number(1, 40), { minLength: 256, maxLength: 256 }),
    context: fc.constantFrom(undefined, 100, 5000, 70000),
  })
  .map((drawn): Case & { odd: boolean } => {
    const { family, heads, headDim, max, theta, oldName } = drawn;
    const rules = MODELS[family]!;
    // Some models know some kinds only.
    const plain = drawn.kind === 'default' || drawn.kind === 'proportional';
    const kind =
      family === 'mistral4' && plain
        ? 'yarn'
        : /^phi(moe|3|4)/.test(family) && drawn.kind !== 'longrope'
          ? 'default'
          : drawn.kind;
    // These classes have no head_dim of their own, and others need it.
    const own =
      (drawn.ownHeadDim && rules.mla === undefined && !/^(falcon|phi3|phi4)/.test(family)) ||
      rules.headDim !== undefined ||
      /^(hunyuan|min|longcat|moonshine)/.test(family);
    const reads = rules.partial !== undefined && family !== 'mistral4';
    const share =
      drawn.pairs === undefined || family === 'mistral4'
        ? undefined
        : Math.max(4, 2 * Math.floor((headDim * drawn.pairs) / 2)) / headDim;
    const partial = kind === 'default' || kind === 'proportional' || reads ? share : undefined;
    const dims =
      kind === 'proportional'
        ? headDim
        : Math.trunc(headDim * (partial ?? (family === 'mistral4' ? 1 : rules.partial) ?? 1));
    const inside = drawn.original === 'in' || drawn.original === 'both';
    const scaled = ['yarn', 'longrope', 'llama3'].includes(kind);
    const half = drawn.factors.slice(0, dims / 2);
    const scaling: Json = compact({
      ...(oldName && drawn.form === 'old' && !rules.byType && kind !== 'proportional'
        ? { type: kind }
        : { rope_type: kind }),
      original_max_position_embeddings: scaled && inside ? 2048 : undefined,
      ...(kind === 'linear' || kind === 'dynamic' || kind === 'yarn' || kind === 'llama3'
        ? { factor: drawn.factor }
        : {}),
      ...(kind === 'proportional' && drawn.own.factor ? { factor: drawn.factor } : {}),
      ...(kind === 'yarn' ? drawn.yarn : {}),
      ...(kind === 'llama3' ? drawn.llama3 : {}),
      ...(kind === 'longrope'
        ? {
            short_factor: half,
            long_factor: half.map((factor) => 2 * factor),
            factor: drawn.own.factor ? drawn.factor : undefined,
            attention_factor: drawn.own.attention,
            ...(family === 'phimoe' ? { short_mscale: 1.25, long_mscale: 1.5 } : {}),
          }
        : {}),
    });
    const types = rules.layers?.other === 'sliding_attention';
    const nested = rules.byType !== undefined;
    const fresh = drawn.form !== 'old' || rules.needsParameters;
    const parameters = { ...scaling, rope_theta: theta ?? 1e4, partial_rotary_factor: partial };
    const layer_types = Array.from({ length: 6 }, (_, n) => (n % 3 === 2 ? 'full_attention' : 'sliding_attention'));
    const config = compact({
      model_type: TEXT[family] ?? family,
      num_hidden_layers: 6,
      vocab_size: 64,
      hidden_size: heads * headDim * (own ? 2 : 1),
      num_attention_heads: heads,
      num_key_value_heads: 2,
      head_dim: own ? headDim : undefined,
      qk_rope_head_dim: rules.mla === undefined ? undefined : headDim,
      global_head_dim: rules.globalHeadDim === undefined ? undefined : headDim,
      mamba_n_heads: family === 'granitemoehybrid' ? 2 : undefined,
      max_position_embeddings: max,
      original_max_position_embeddings: scaled && ['out', 'both'].includes(drawn.original!) ? 1024 : undefined,
      ...(types && fresh ? { layer_types } : {}),
      ...(fresh
        ? {
            rope_parameters: nested
              ? {
                  full_attention: parameters,
                  sliding_attention: { rope_type: 'default', rope_theta: drawn.localTheta ?? 1e4 },
                }
              : parameters,
          }
        : {
            [rules.byType?.full[0] ?? rules.thetaKey ?? 'rope_theta']: theta,
            ...(rules.byType && !rules.byType.sliding[0].includes('.')
              ? { [rules.byType.sliding[0]]: drawn.localTheta }
              : {}),
            [rules.partialKey ?? 'partial_rotary_factor']: partial,
            rope_scaling: kind === 'default' ? undefined : scaling,
          }),
    });
    const context = kind === 'dynamic' || kind === 'longrope' ? drawn.context : undefined;
    return { odd: dims % 2 !== 0, name: JSON.stringify(config), config, ...(context !== undefined && { context }) };
  })
  // Odd numbers of dimensions, of which transformers computes one more, are refused here.
  .filter(({ odd }) => !odd);
