/**
 * The models of the page: the fields of their config.json that decide their RoPE, and the counts of heads, as published.
 *
 * None of the figures in models.json is our own. Each was read from a copy of the file in a public repository at the
 * commit below; two are `quoted` in public source code and documentation. mlc-llm uses short names, which we matched to
 * models of the hub. It also adds a `rope_scaling` to GPT-J, which is left out here, like all fields that RoPE does not
 * need. `layer_types` is cut to its first period.
 *
 * @module
 */
import models from './models.json' with { type: 'json' };

/** The repositories that contain copies of config.json files. */
export const COPIES = {
  aiconfigurator: {
    name: 'ai-dynamo/aiconfigurator@095f58a',
    url: 'https://github.com/ai-dynamo/aiconfigurator/tree/095f58a51c4ca8e61b66ec108d86f223f8d559ce/aic-core/src/aiconfigurator_core/model_configs',
  },
  'mlc-llm': {
    name: 'mlc-ai/mlc-llm@79d603f',
    url: 'https://github.com/mlc-ai/mlc-llm/blob/79d603f085f50500e9509fa01785ffa7ecfaaa93/python/mlc_llm/model/model_preset.py',
  },
  quoted: { name: 'public source code that quotes it', url: undefined },
} as const;

/** A model as its config.json describes it. */
export interface PublishedModel {
  /** The name of the model on the hub. */
  readonly id: string;
  /** The repository from which its config.json was read. */
  readonly copy: keyof typeof COPIES;
  /** The fields of config.json. */
  readonly config: Readonly<Record<string, unknown>>;
}

export const MODELS: readonly PublishedModel[] = models.map(({ id, copy, config }) => ({
  id,
  copy: copy as PublishedModel['copy'],
  config: withLayerTypes(config),
}));

/** Repeats `layer_types` over all layers, also inside `text_config`. */
function withLayerTypes(config: PublishedModel['config']): PublishedModel['config'] {
  const { layer_types: types, text_config: text, num_hidden_layers: count } = config;
  return {
    ...config,
    ...(Array.isArray(types) && {
      layer_types: Array.from({ length: Number(count) }, (_, n) => types[n % types.length]),
    }),
    ...(text !== undefined && { text_config: withLayerTypes(text as PublishedModel['config']) }),
  };
}
