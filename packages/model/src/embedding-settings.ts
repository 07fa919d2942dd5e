/**
 * Reads how hidden states become one vector: the modules of a sentence-transformers folder, or the keys and tensors of a
 * GGUF.
 *
 * @module
 * @see huggingface/sentence-transformers@v5.1.0 sentence_transformers/models/Pooling.py, Dense.py
 * @see ggml-org/llama.cpp@de3ff815 src/llama-graph.cpp build_pooling, build_dense_out
 */
import type { GgufValue } from '@ropewalk/formats';
import { safetensorsHeaderOf } from '@ropewalk/formats/internal/models';
import { fail } from 'ropewalk/backend';
import { Fields, show } from 'ropewalk/internal';
import { type Folder, jsonOf, optionalJson } from './folder.js';
import type { StoredTensor } from './packed.js';
import { streamWeight } from './stream-weight.js';
import type { DecoderConfig, DenseLayer, EmbeddingSettings, Pooling } from './types.js';
import { planDense } from './weights.js';

/** Models have two such matrices. */
const MAX_DENSE = 16;
const MODULES = 'modules.json';
/** The names in 1_Pooling/config.json, old and new, and what is not computed here. */
const POOLINGS: Readonly<Record<string, Pooling | undefined>> = { mean: 'mean', cls: 'cls', lasttoken: 'last' };
const FLAGS: Readonly<Record<string, string>> = {
  pooling_mode_mean_tokens: 'mean',
  pooling_mode_cls_token: 'cls',
  pooling_mode_lasttoken: 'lasttoken',
  pooling_mode_max_tokens: 'max',
  pooling_mode_mean_sqrt_len_tokens: 'mean_sqrt_len_tokens',
  pooling_mode_weightedmean_tokens: 'weightedmean',
};
const ACTIVATIONS: Readonly<Record<string, DenseLayer['activation']>> = { Identity: 'none', Tanh: 'tanh' };
const NEXT = 'Take another model, or remove modules.json and give options.pooling.';

/** @returns undefined without modules.json. @throws {RopewalkError} FORMAT or UNSUPPORTED */
export async function embeddingFromFolder(
  folder: Folder,
  config: DecoderConfig,
): Promise<EmbeddingSettings | undefined> {
  if (!folder.files.has(MODULES)) return undefined;
  const modules = new Fields({ modules: await jsonOf(folder, MODULES) }, folder.path(MODULES));
  let pooling: Pooling | undefined;
  const dense: DenseLayer[] = [];
  for (const module of modules.objects('modules')) {
    const type = module.text('type').split('.').at(-1)!;
    const path = module.optionalText('path') ?? '';
    const file = `${path}/config.json`;
    const fields = async (): Promise<Fields> => {
      if (!folder.files.has(file)) fail('FORMAT', folder.path(MODULES), `it names ${show(file)}, which is not there.`);
      return new Fields(await jsonOf(folder, file), folder.path(file));
    };
    if (type === 'Pooling') pooling = readPooling(await fields());
    else if (type === 'Dense') {
      if (dense.length === MAX_DENSE)
        fail('FORMAT', folder.path(MODULES), `at most ${MAX_DENSE} dense modules are read.`);
      dense.push(await readDense(folder, path, await fields(), dense.at(-1)?.outputs ?? config.hiddenSize));
    } else if (type !== 'Transformer' && type !== 'Normalize')
      module.refuse('UNSUPPORTED', 'type', 'Transformer, Pooling, Dense or Normalize', NEXT);
  }
  const json = (await optionalJson(folder, 'config_sentence_transformers.json')) ?? {};
  const given = new Fields(json, folder.path('config_sentence_transformers.json'));
  const named = given.optionalObject('prompts');
  const prompts = new Map(named?.keys().map((name) => [name, named.text(name)]));
  const usual = given.optionalText('default_prompt_name');
  if (usual !== undefined && !prompts.has(usual)) given.refuse('FORMAT', 'default_prompt_name', 'the name of a prompt');
  return { pooling, dense, prompts, defaultPrompt: usual };
}

function readPooling(fields: Fields): Pooling {
  if (fields.optionalFlag('include_prompt') === false)
    fields.refuse('UNSUPPORTED', 'include_prompt', 'true', 'Leaving out the tokens of a prompt is not computed here.');
  const old = Object.keys(FLAGS).filter((key) => fields.optionalFlag(key));
  const names = fields.has('pooling_mode') ? [fields.text('pooling_mode')] : old.map((key) => FLAGS[key]!);
  const [name = 'mean'] = names;
  const known = Object.hasOwn(POOLINGS, name) ? POOLINGS[name] : undefined;
  if (names.length > 1 || !known)
    return fields.fail(
      'UNSUPPORTED',
      'pooling_mode',
      `only one of mean, cls and lasttoken is computed, not ${names.join(' and ')}. ${NEXT}`,
    );
  return known;
}

async function readDense(folder: Folder, path: string, fields: Fields, inputs: number): Promise<DenseLayer> {
  const file = `${path}/model.safetensors`;
  if (!folder.files.has(file)) fail('FORMAT', folder.path(MODULES), `it names ${show(file)}, which is not there.`);
  const { tensors } = await safetensorsHeaderOf(folder.files.get(file)!, folder.path(file));
  const named = (fields.optionalText('activation_function') ?? 'torch.nn.modules.activation.Tanh').split('.').at(-1)!;
  if (!Object.hasOwn(ACTIVATIONS, named)) fields.refuse('UNSUPPORTED', 'activation_function', 'Identity or Tanh', NEXT);
  const outputs = fields.integer('out_features', 1, 2 ** 22);
  if (fields.integer('in_features', 1, 2 ** 22) !== inputs)
    fields.refuse('FORMAT', 'in_features', `${inputs}, the width of what comes before`);
  const read = async (name: string, shape: readonly number[]): Promise<Float32Array> => {
    const tensor = tensors.get(name);
    if (!tensor) fail('FORMAT', folder.path(file), `there is no tensor ${name}`);
    return readTensor(folder, { ...tensor, name, file }, shape);
  };
  const bias = fields.optionalFlag('bias') ?? true;
  return {
    inputs,
    outputs,
    weight: await read('linear.weight', [outputs, inputs]),
    bias: bias ? await read('linear.bias', [outputs]) : undefined,
    activation: ACTIVATIONS[named]!,
  };
}

/** The matrices that llama.cpp applies after pooling. */
export const GGUF_DENSE = /^dense_[23]\.weight$/;
const POOLING_TYPES: readonly (Pooling | undefined)[] = [undefined, 'mean', 'cls', 'last'];

/** @param dense - the tensors of {@link GGUF_DENSE} */
export async function embeddingFromGguf(
  folder: Folder,
  config: DecoderConfig,
  metadata: ReadonlyMap<string, GgufValue>,
  dense: readonly StoredTensor[],
  where: string,
): Promise<EmbeddingSettings | undefined> {
  const keys = new Fields(metadata, where);
  const key = `${config.architecture}.pooling_type`;
  if (!keys.has(key) && dense.length === 0) return undefined;
  const type = keys.optionalInteger(key, 0, 4) ?? 0;
  if (type === 4)
    keys.refuse('UNSUPPORTED', key, '0 to 3', 'The model ranks pairs of texts, which is not computed here.');
  const layers: DenseLayer[] = [];
  for (const tensor of [...dense].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const inputs: number = layers.at(-1)?.outputs ?? config.hiddenSize;
    const [outputs = 0] = tensor.shape;
    const weight = await readTensor(folder, tensor, [outputs, inputs]);
    layers.push({ inputs, outputs, weight, bias: undefined, activation: 'none' });
  }
  return { pooling: POOLING_TYPES[type], dense: layers, prompts: new Map(), defaultPrompt: undefined };
}

/** Reads a small tensor of floats, as f32. @throws {RopewalkError} FORMAT for another shape */
export async function readTensor(
  folder: Folder,
  tensor: StoredTensor,
  shape: readonly number[],
): Promise<Float32Array> {
  const plan = planDense(tensor, shape);
  const bytes = new Uint8Array(plan.heldBytes);
  await streamWeight(folder, plan, (piece, at) => bytes.set(piece, at));
  return new Float32Array(bytes.buffer);
}

/** Multiplies a vector by the matrices, with sums in float64. */
export function applyDense(layers: readonly DenseLayer[], vector: Float64Array): Float64Array {
  return layers.reduce((input, { outputs, inputs, weight, bias, activation }) => {
    const out = new Float64Array(outputs);
    for (let n = 0; n < outputs; n++) {
      let sum = bias?.[n] ?? 0;
      for (let k = 0; k < inputs; k++) sum += weight[n * inputs + k]! * input[k]!;
      out[n] = activation === 'tanh' ? Math.tanh(sum) : sum;
    }
    return out;
  }, vector);
}
