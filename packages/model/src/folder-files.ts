/**
 * Makes the small files that transformers, transformers.js and onnxruntime-genai read beside a model's graph. A
 * HuggingFace folder has most of them; for a GGUF file they are written.
 *
 * @module
 * @see huggingface/transformers.js@4.3.1 src/: config.json, tokenizer.json, tokenizer_config.json,
 *   generation_config.json
 * @see microsoft/onnxruntime-genai@a0c04eb src/config.cpp, src/models/model_type.h,
 *   src/python/py/models/builders/base.py
 */
import type { GgufFile } from '@ropewalk/formats';
import { RopewalkError } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { decodeUtf8, Fields, readOptions } from 'ropewalk/internal';
import { configText, configToJson, familyNameOf } from './config-json.js';
import type { BiasGroup } from './families.js';
import { type Folder, optionalFile, optionalJson } from './folder.js';
import { TOKENIZER_CLASS as CLASS, type TokenizerJson, tokenizerJsonFromGguf } from './gguf-tokenizer-json.js';
import type { DecoderConfig } from './types.js';

/** The settings of the graph that the small files repeat. */
export interface GraphFiles {
  /** The graph's path in the folder, with `/`: `onnx/model.onnx`. */
  readonly graph: string;
  /** Keys that are added to config.json, such as `transformers.js_config`. */
  readonly config?: Readonly<Record<string, unknown>>;
}

export interface FolderFiles {
  readonly files: readonly NamedFile[];
  /** Sentences on what is left out, and why. */
  readonly notes: readonly string[];
}

/** A file that is to be written; its name has no folder. */
export interface NamedFile {
  readonly name: string;
  readonly bytes: Uint8Array;
}

type Json = Record<string, unknown>;

const utf8 = /* @__PURE__ */ new TextEncoder();
/**
 * Writes JSON as transformers does: a tokenizer.json of 150,000 tokens is on few lines, the other files are for people.
 */
const jsonFile = (name: string, value: unknown, indent?: number): NamedFile => ({
  name,
  bytes: utf8.encode(`${JSON.stringify(value, null, indent)}\n`),
});

/** @throws {RopewalkError} RANGE for other values than a path and keys */
function readGraph(given: GraphFiles): Required<GraphFiles> {
  const { graph, config = {} } = readOptions(given, 'readFiles: graph', { graph: true, config: true });
  if (typeof graph !== 'string' || graph === '')
    refuse('RANGE', 'readFiles: graph', 'a path such as onnx/model.onnx', graph);
  return { graph, config: readOptions(config, 'readFiles: config') };
}

/** The tensors of a layer that carry the biases of a group. */
const BIASES: Readonly<Record<BiasGroup, RegExp>> = {
  conv: /(shortconv\.\w+|ssm_conv1d)\.bias$/,
  ssmIn: /ssm_in\.bias$/,
  ssmOut: /ssm_out\.bias$/,
  qkv: /attn_(q|k|v|qkv)\.bias$/,
  output: /attn_output\.bias$/,
  mlp: /ffn_(gate|up|down)\.bias$/,
  head: /^output\.bias$/,
};

/**
 * @param header - of the file, with the tensors of all parts. @throws {RopewalkError} FORMAT for a broken vocabulary
 */
export function filesFromGguf(header: GgufFile, config: DecoderConfig, given: GraphFiles, where: string): FolderFiles {
  const graph = readGraph(given);
  const notes: string[] = [];
  const vocabulary = vocabularyOf(header, config, notes, where);
  const names = {
    hasBias: (group: BiasGroup) => header.tensors.some(({ name }) => BIASES[group].test(name)),
    padToken: vocabulary?.padToken,
  };
  const made = configToJson(config, names, notes);
  const ids = {
    bos: vocabulary?.bosToken ?? config.bosToken,
    eos: vocabulary?.eosTokens ?? config.eosTokens,
    pad: vocabulary?.padToken,
  };
  const text = configText({ ...made, ...graph.config });
  const files = [{ name: 'config.json', bytes: utf8.encode(text) }, generationFile(ids)];
  if (vocabulary) {
    notes.push(...vocabulary.notes);
    const { tokenizer, config: tokenizerConfig, chatTemplates } = vocabulary;
    const templates = Array.from(chatTemplates, ([name, template]) => ({ name, template }));
    const [only] = templates;
    const chat_template = templates.length > 1 || (only && only.name !== 'default') ? templates : only?.template;
    files.push(
      jsonFile('tokenizer.json', tokenizer),
      jsonFile('tokenizer_config.json', { ...tokenizerConfig, chat_template }, 2),
    );
    // transformers reads either this file or the list, so several templates are in the list only.
    if (typeof chat_template === 'string')
      files.push({ name: 'chat_template.jinja', bytes: utf8.encode(chat_template) });
  }
  return { files: [...files, ...genaiFile(config, ids, graph, notes)], notes };
}

function vocabularyOf(
  { metadata }: GgufFile,
  { maxContext }: DecoderConfig,
  notes: string[],
  where: string,
): TokenizerJson | undefined {
  const without = (why: string): undefined => void notes.push(`There are no tokenizer files: ${why}`);
  if ([undefined, 'none', 'no_vocab'].includes(metadata.get('tokenizer.ggml.model') as string | undefined))
    return without(`${where} has no vocabulary.`);
  try {
    return tokenizerJsonFromGguf(metadata, maxContext, where);
  } catch (error) {
    if (error instanceof RopewalkError && error.code === 'UNSUPPORTED') return without(error.message);
    throw error;
  }
}

/** The files of a HuggingFace folder that are copied. */
const COPIED = ['generation_config.json', 'tokenizer.json', 'chat_template.jinja', 'special_tokens_map.json'];

/**
 * Copies the files of a HuggingFace folder. config.json changes if keys are added, and to its text_config for a model
 * of images and text. tokenizer_config.json gets the template of chat_template.jinja, because transformers.js reads no
 * other file.
 *
 * @throws {RopewalkError} FORMAT for files that are malformed
 */
export async function filesFromFolder(folder: Folder, config: DecoderConfig, given: GraphFiles): Promise<FolderFiles> {
  const read = (name: string) => optionalFile(folder, name);
  const parse = (name: string) => optionalJson(folder, name);
  const graph = readGraph(given);
  const notes: string[] = [];
  // The graph's weights are no longer packed.
  const { quantization_config: packing, ...outer } = (await parse('config.json')) as Json;
  const text = outer.text_config as Json | undefined;
  const files: NamedFile[] = [
    text || packing || Object.keys(graph.config).length > 0
      ? jsonFile('config.json', { ...(text ? textConfig(outer, text) : outer), ...graph.config }, 2)
      : { name: 'config.json', bytes: (await read('config.json'))! },
  ];
  for (const name of COPIED) {
    const bytes = await read(name);
    if (bytes) files.push({ name, bytes });
  }
  // Some files have -1 for no token.
  const [pad] = [(await parse('generation_config.json')) as Json | undefined, text, outer]
    .map((one) => one?.pad_token_id as number)
    .filter((id) => Number.isSafeInteger(id) && id >= 0);
  const ids = { bos: config.bosToken, eos: config.eosTokens, pad };
  if (!files.some(({ name }) => name === 'generation_config.json')) files.push(generationFile(ids));
  if (files.some(({ name }) => name === 'tokenizer.json')) files.push(await tokenizerConfig(folder));
  else notes.push('There are no tokenizer files: the folder has no tokenizer.json.');
  return { files: [...files, ...genaiFile(config, ids, graph, notes)], notes };
}

async function tokenizerConfig(folder: Folder): Promise<NamedFile> {
  const name = 'tokenizer_config.json';
  const bytes = await optionalFile(folder, name);
  const parsed = await optionalJson(folder, name);
  const template = await optionalFile(folder, 'chat_template.jinja');
  if (bytes && (new Fields(parsed ?? {}, name).has('chat_template') || !template)) return { name, bytes };
  // transformers.js refuses a folder without the file.
  const chat_template = template && decodeUtf8(template, 'chat_template.jinja');
  return jsonFile(name, { tokenizer_class: CLASS, ...(parsed as Json | undefined), chat_template }, 2);
}

/** Returns the config of the text model in a model for images and text. */
function textConfig(outer: Json, text: Json): Json {
  const of = (keys: readonly string[]): Json =>
    Object.fromEntries(keys.filter((key) => key in outer).map((key) => [key, outer[key]]));
  // The outer flag decides, and the inner ids, as in configFromJson.
  const inner = {
    ...of(['model_type', 'bos_token_id', 'eos_token_id', 'pad_token_id', 'torch_dtype', 'dtype']),
    ...text,
  };
  return { ...inner, ...of(['tie_word_embeddings']) };
}

interface TokenIds {
  readonly bos: number | undefined;
  readonly eos: readonly number[];
  readonly pad: number | undefined;
}

function idsOf({ bos, eos, pad }: TokenIds): Json {
  return { bos_token_id: bos, eos_token_id: eos.length > 1 ? eos : eos[0], pad_token_id: pad ?? eos[0] };
}

const generationFile = (ids: TokenIds): NamedFile => jsonFile('generation_config.json', idsOf(ids), 2);

/**
 * The types of onnxruntime-genai that differ from the model_type, and those that do not. Other families are `decoder`.
 */
const SAME_TYPES = 'ernie4_5 gemma2 granite llama mistral phi3 qwen2 qwen3 smollm3'.split(' ');
const OTHER_TYPES: Readonly<Record<string, string>> = { gemma3: 'gemma3_text', gpt_oss: 'gptoss' };

/** Writes genai_config.json. The graph's path is relative to the file's folder. */
function genaiFile(config: DecoderConfig, ids: TokenIds, { graph }: GraphFiles, notes: string[]): NamedFile[] {
  const without = (why: string): NamedFile[] => {
    notes.push(`There is no genai_config.json: onnxruntime-genai ${why}.`);
    return [];
  };
  if (config.layers(config.maxContext).some(({ rope }) => rope?.axes))
    return without('gives positions of several axes to models of images only');
  if (config.recurrent) return without('pads on the right, and the states of this model would take padding for tokens');
  if (config.chunk) return without('pads on the right, and chunks of tokens would count the padding');
  if (config.layerSizes) return without('has one size of heads for all layers, and this model has two');
  if (config.valueDim !== config.headDim) return without('has one size for keys and values, and this model has two');
  const family = familyNameOf(config);
  const { eos_token_id, pad_token_id, bos_token_id } = idsOf(ids);
  const model = {
    // onnxruntime-genai needs a number even if the model has no BOS.
    bos_token_id: bos_token_id ?? ids.eos[0] ?? 0,
    context_length: config.maxContext,
    decoder: {
      session_options: { log_id: 'onnxruntime-genai', provider_options: [] },
      filename: graph,
      head_size: config.headDim,
      hidden_size: config.hiddenSize,
      inputs: {
        input_ids: 'input_ids',
        attention_mask: 'attention_mask',
        position_ids: 'position_ids',
        past_key_names: 'past_key_values.%d.key',
        past_value_names: 'past_key_values.%d.value',
      },
      outputs: { logits: 'logits', present_key_names: 'present.%d.key', present_value_names: 'present.%d.value' },
      num_attention_heads: config.numHeads,
      num_hidden_layers: config.numLayers,
      num_key_value_heads: config.numKvHeads,
    },
    eos_token_id: eos_token_id ?? 0,
    pad_token_id: pad_token_id ?? 0,
    type: SAME_TYPES.includes(family) ? family : (OTHER_TYPES[family] ?? 'decoder'),
    vocab_size: config.vocabSize,
  };
  const search = {
    do_sample: false,
    max_length: config.maxContext,
    min_length: 0,
    num_beams: 1,
    num_return_sequences: 1,
    past_present_share_buffer: false,
    repetition_penalty: 1,
    temperature: 1,
    top_k: 50,
    top_p: 1,
  };
  return [jsonFile('genai_config.json', { model, search }, 2)];
}
