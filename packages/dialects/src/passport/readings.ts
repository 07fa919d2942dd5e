/**
 * How each runtime reads a model's RoPE from the form that it takes: config.json by transformers 5 and 4, by readers of
 * the old fields only, and by vLLM; a GGUF by llama.cpp.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { Fields } from 'ropewalk/internal';
import type { GgufHeader } from '../gguf.js';
import { ropeFromGguf } from '../gguf.js';
import { readingsOfConfig, ropeFromConfig } from '../huggingface-config.js';
import { type LayerRope, longestOf, type ModelRope, type ModelRopeOptions } from '../model-rope.js';

/** One form of a model: its parsed config.json, the header of its GGUF, or what a reader of another form found in it. */
export type PassportForm = { readonly name: string } & (
  | { readonly json: unknown }
  | { readonly header: GgufHeader }
  | { readonly model: ModelRope; readonly reader: string }
);

/** How one reader reads one form. */
export interface PassportReading {
  /** The form's name. */
  readonly form: string;
  /** `transformers 5`, `llama.cpp`, `MLX-LM`, or the arguments of a server. */
  readonly reader: string;
  /** Whether this is a release of today that reads all of the form's fields. */
  readonly current: boolean;
  /** Undefined where the reader fails. */
  readonly model: ModelRope | undefined;
  /** Why the reader fails, or reads the form in its own way, in full sentences. */
  readonly why: readonly string[];
  /** Where the reader's code is: `repo@commit` or `repo#number`. Undefined for a form that the caller read. */
  readonly source?: string;
}

/** The readers that came before rope_parameters. */
const OLD_READERS = 'readers before rope_parameters';
const OLD_NAMES =
  'SGLang before #14745, DeepSpeed before #8345, vLLM before #28542 and llama.cpp’s converter before #24820 do not read rope_parameters: ' +
  'a base that rope_theta does not give is 10000, and nothing is scaled.';
const OLD_SOURCE = 'sgl-project/sglang#14745, deepspeedai/DeepSpeed#8345, vllm-project/vllm#28542';

/**
 * Lists the readings of a form, that of its own runtime first.
 *
 * @throws {RopewalkError} as ropeFromConfig or ropeFromGguf, where the form's own runtime fails
 */
export function readingsOf(form: PassportForm, context?: number): PassportReading[] {
  const options: ModelRopeOptions = { context, where: form.name };
  const { name } = form;
  if ('model' in form) return [{ form: name, reader: form.reader, current: true, model: form.model, why: [] }];
  if ('header' in form) {
    const model = ropeFromGguf(form.header, options);
    const source = 'ggml-org/llama.cpp@de3ff815';
    return [{ form: name, reader: 'llama.cpp', current: true, model, why: [], source }];
  }
  const { five, four } = readingsOfConfig(form.json, options);
  const of = (
    reader: string,
    current: boolean,
    layers: readonly LayerRope[] | undefined,
    why: string[],
    source: string,
  ) => ({ form: name, reader, current, model: layers && { ...five, layers, notes: [] }, why, source }) as const;
  const readings: PassportReading[] = [
    {
      form: name,
      reader: 'transformers 5',
      current: true,
      model: five,
      why: [],
      source: 'huggingface/transformers@v5.24.0',
    },
  ];
  if (four) {
    const why = [`transformers 4 reads this form in its own way: ${four.reasons.join('; ')}.`];
    readings.push(of('transformers 4', false, four.layers, why, 'huggingface/transformers@v4.57.6'));
  }
  const old = asOldReader(form.json);
  if (old) {
    const layers = read(() => ropeFromConfig(old, options).layers);
    readings.push(of(OLD_READERS, false, layers, [OLD_NAMES], OLD_SOURCE));
  }
  const start = layersOfVllm(five, form.json, options);
  if (start) {
    const why = [
      'vLLM chooses by max_model_len, once, when it starts; transformers chooses by the tokens of each call.',
    ];
    readings.push(of('vLLM', true, start, why, 'vllm-project/vllm@41c5903'));
  }
  const mlx = asMlx(form.json, options);
  if (mlx) {
    const layers = mlx.config && read(() => ropeFromConfig(mlx.config, { ...options, context: mlx.context }).layers);
    readings.push(of('MLX-LM', mlx.isChoice, layers, mlx.why, 'ml-explore/mlx-lm@d78bf58e'));
  }
  return readings;
}

/** Calls a reader; undefined where it refuses the form. */
function read<T>(reader: () => T): T | undefined {
  try {
    return reader();
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The config as readers of the old fields see it; undefined where they see the same. */
function asOldReader(json: unknown): Json | undefined {
  const outer = json as Json;
  const inner = isObject(outer.text_config) ? outer.text_config : outer;
  if (!isObject(inner.rope_parameters) || isObject(inner.rope_scaling)) return undefined;
  // Parameters by layer type have no single base to fall back to.
  if (Object.values(inner.rope_parameters).some(isObject)) return undefined;
  const { rope_parameters: _unread, ...config } = inner;
  const old = { ...config, rope_theta: config.rope_theta ?? 10000 };
  return inner === outer ? old : { ...outer, text_config: old };
}

/** The layers as vLLM's tables have them, where it chooses at start-up what transformers chooses by length. */
function layersOfVllm(five: ModelRope, json: unknown, options: ModelRopeOptions): readonly LayerRope[] | undefined {
  const longest = options.context === undefined ? longestOf(five) : undefined;
  return longest && read(() => ropeFromConfig(json, { ...options, context: longest.context }).layers);
}

/** The fields of a config's language model. */
export function fieldsOf(json: unknown, where: string): Fields {
  const outer = new Fields(json, where);
  return outer.optionalObject('text_config') ?? outer;
}

/**
 * The classes of MLX-LM that read rope_theta, and rope_scaling or not, with the base for configs without one. Other
 * classes read other fields, and no claim is made about them.
 *
 * @see ml-explore/mlx-lm@d78bf58e mlx_lm/models/ and rope_utils.py
 */
const MLX: Readonly<Record<string, { readonly base?: number; readonly scales: boolean }>> = {
  llama: { base: 10000, scales: true },
  mistral: { base: 10000, scales: true },
  olmo2: { base: 10000, scales: true },
  seed_oss: { base: 10000, scales: true },
  qwen2: { base: 1e6, scales: true },
  qwen3: { scales: true },
  granite: { scales: true },
  qwen3_moe: { scales: false },
  mixtral: { base: 1e6, scales: false },
  gemma: { base: 10000, scales: false },
  gemma2: { base: 10000, scales: false },
  starcoder2: { base: 100000, scales: false },
};

/** A config as MLX-LM sees it: without `config` where it fails, undefined where it sees the same. */
function asMlx(
  json: unknown,
  options: ModelRopeOptions,
): { config: Json | undefined; context?: number; isChoice: boolean; why: string[] } | undefined {
  const config = json as Json;
  const row = Object.hasOwn(MLX, String(config.model_type)) ? MLX[String(config.model_type)]! : undefined;
  if (!row || isObject(config.text_config)) return undefined;
  const { rope_parameters: unread, rope_scaling: given, ...rest } = config;
  const name = `MLX-LM's class for ${config.model_type}`;
  const why: string[] = [];
  let isChoice = true;
  const lose = (sentence: string): void => {
    why.push(sentence);
    isChoice = false;
  };
  if (isObject(unread)) lose(`${name} does not read rope_parameters, but rope_theta and rope_scaling.`);
  const base = rest.rope_theta ?? row.base;
  if (base === undefined) return { config: undefined, isChoice: false, why: [...why, 'It needs rope_theta.'] };
  if (rest.rope_theta === undefined) lose(`Without rope_theta it takes the base ${base}.`);
  const fails = (sentence: string) => ({ config: undefined, isChoice: false, why: [...why, sentence] });
  const scaling = isObject(given) ? given : {};
  const type = scaling.type || (scaling.rope_type ?? 'default');
  if (!['default', 'mrope', 'dynamic', 'linear', 'llama3', 'yarn', 'longrope'].includes(type as string))
    return undefined;
  let own: Json | undefined;
  let { context } = options;
  if (type !== 'default' && type !== 'mrope') {
    if (!row.scales) lose(`${name} does not read rope_scaling.`);
    else {
      own = { ...scaling, rope_type: type, type: undefined };
      const { attention_factor: magnitude, factor, mscale = 1, mscale_all_dim: all = 0 } = own;
      if (magnitude !== undefined && (type === 'yarn' || type === 'longrope'))
        lose('MLX-LM does not read attention_factor.');
      own.attention_factor = undefined;
      if (type === 'yarn' && [factor, mscale, all].every((one) => typeof one === 'number')) {
        const scale = (by: unknown): number => 0.1 * (by as number) * Math.log(Math.max(1, factor as number)) + 1;
        own.attention_factor = scale(mscale) / scale(all);
        if (own.mscale !== undefined && !all) lose('MLX-LM reads mscale without mscale_all_dim.');
      }
      if (type === 'longrope') {
        if (own.original_max_position_embeddings === undefined)
          return fails('It needs original_max_position_embeddings in rope_scaling.');
        why.push('MLX-LM takes the long factors at every length; transformers chooses by the tokens of each call.');
        context ??= config.max_position_embeddings as number | undefined;
      }
      const original = type === 'llama3' ? 8192 : 4096;
      if ((type === 'llama3' || type === 'yarn') && own.original_max_position_embeddings === undefined) {
        lose(`Without original_max_position_embeddings MLX-LM takes ${original}.`);
        own.original_max_position_embeddings = original;
      }
    }
  }
  if (why.length === 0) return undefined;
  return { config: { ...rest, rope_theta: base, ...(own && { rope_scaling: own }) }, context, isChoice, why };
}
