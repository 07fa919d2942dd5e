/**
 * Steps 1 and 2 of loading: files → {@link Folder} → {@link ModelDescription}. No weight is read, but the numbers of xIELU.
 *
 * @module
 */
import {
  checkShard,
  type GgufFile,
  ggufModelOf,
  partsOf,
  SAFETENSORS_INDEX,
  safetensorsHeaderOf,
  safetensorsShards,
} from '@ropewalk/formats/internal/models';
import { fail } from 'ropewalk/backend';
import { decodeUtf8, show } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { configFromGguf, configFromJson } from './config.js';
import { embeddingFromFolder, embeddingFromGguf, GGUF_DENSE, readTensor } from './embedding-settings.js';
import { type Folder, folderOf, jsonOf, type ModelFiles, optionalFile, optionalJson } from './folder.js';
import type { FolderFiles, GraphFiles } from './folder-files.js';
import { tokenizerFromGguf } from './gguf-vocabulary.js';
import { packingFromJson, packTensors, type StoredTensor } from './packed.js';
import { type TokenizerFiles, tokenizerFromJson } from './tokenizer-json.js';
import type { DecoderConfig, EmbeddingSettings, Tokenizer, XieluConfig } from './types.js';
import { lacksHead } from './weights.js';

export { type Folder, folderOf, type ModelFiles } from './folder.js';

/** A model as the headers of its files describe it. No weight is in memory. */
export interface ModelDescription extends Folder {
  readonly config: DecoderConfig;
  /** The metadata of a GGUF, of its first file if it is split; undefined for safetensors. */
  readonly metadata: GgufFile['metadata'] | undefined;
  /** The tensors of all files. */
  readonly stored: readonly StoredTensor[];
  /** Reads the vocabulary in the files. @throws {RopewalkError} FORMAT or UNSUPPORTED, also when there is none */
  readTokenizer(): Promise<Tokenizer>;
  /** Reads pooling, dense matrices and prompts; undefined if the files have none. @throws {RopewalkError} FORMAT or UNSUPPORTED */
  readEmbedding(): Promise<EmbeddingSettings | undefined>;
  /** Reads tokenizer.json and the files that belong to it, for a GGUF that is written. @throws {RopewalkError} FORMAT for a GGUF */
  readTokenizerFiles(): Promise<{ readonly tokenizer: TokenizerFiles; readonly where: string }>;
  /**
   * Makes the small files beside the model's graph, for transformers, transformers.js and onnxruntime-genai.
   *
   * @param graph - the graph's path, and keys that are added to config.json
   * @throws {RopewalkError} FORMAT for files that are malformed
   * @example const { files, notes } = await description.readFiles({ graph: 'onnx/model.onnx' });
   */
  readFiles(graph: GraphFiles): Promise<FolderFiles>;
}

/** The part of a description that the kind of file decides. */
type Headers = Omit<ModelDescription, keyof Folder>;

/**
 * Reads the headers of a model's files, and checks that they are a whole model.
 *
 * @param files - by name: config.json and *.safetensors (with the index, if there are several), or one GGUF
 * @param where - the model's name in messages. Default: `model`
 * @throws {RopewalkError} FORMAT for files that are missing, cut or forged; UNSUPPORTED for a model that is not
 *   computed here
 * @example const { config } = await describeModel({ 'model.gguf': blob });
 */
export async function describeModel(
  files: ModelFiles,
  where?: string,
  caller = 'describeModel',
): Promise<ModelDescription> {
  checkTypes({ where }, 'string', caller);
  const folder = folderOf(files, where, caller);
  return { ...folder, ...(await readHeaders(folder)) };
}

async function readHeaders(folder: Folder): Promise<Headers> {
  const names = [...folder.files.keys()];
  const hasShards = names.some((name) => /\.safetensors$/i.test(name));
  if (folder.files.has('config.json') && hasShards) return readHuggingFace(folder);
  const ggufs = names.filter((name) => /\.gguf$/i.test(name));
  const parts = partsOf(ggufs, folder.where);
  if (parts) return readGguf(folder, parts);
  const expected = 'config.json and *.safetensors, or one *.gguf';
  const next =
    ggufs.length > 1
      ? 'Give one of the .gguf files itself.'
      : 'Weights in other formats (.bin, .pth) are not read: convert them to safetensors.';
  // A long list is cut between two names, not inside of one.
  const more = names.length > 3 ? ` and ${names.length - 3} more` : '';
  const got = names.slice(0, 3).map(show).join(', ') || 'no file';
  return fail('FORMAT', folder.where, `expected ${expected}, got ${got}${more}. ${next}`);
}

async function readHuggingFace(folder: Folder): Promise<Headers> {
  const generation = await optionalJson(folder, 'generation_config.json');
  const json = await jsonOf(folder, 'config.json');
  let config = configFromJson(json, generation, folder.path('config.json'));
  const index = await optionalJson(folder, SAFETENSORS_INDEX);
  // Dense matrices of embeddings lie in folders.
  const names = [...folder.files.keys()].filter((name) => !name.includes('/'));
  let stored: StoredTensor[] = [];
  for (const [file, claimed] of safetensorsShards(names, index, folder.where, folder.path(SAFETENSORS_INDEX))) {
    const { tensors } = await safetensorsHeaderOf(folder.files.get(file)!, folder.path(file));
    checkShard(tensors, claimed, folder.path(file));
    for (const [name, { type, shape, byteOffset, sizeBytes }] of tensors)
      stored.push({ name, file, type, shape, byteOffset, sizeBytes });
  }
  if (config.activation === 'xielu') {
    config = { ...config, xielu: await xieluFromFolder(folder, config, stored) };
    stored = stored.filter(({ name }) => !XIELU.test(name));
  }
  if (lacksHead(config, stored))
    config = {
      ...config,
      tiedHead: true,
      headless: true,
      biases: { ...config.biases, head: false },
      notes: [...config.notes, HEADLESS],
    };
  const packing = packingFromJson(json, config.family.quantMethod, folder.path('config.json'));
  const readTokenizerFiles = async (next: string) => {
    const missing = "there is no tokenizer.json beside config.json. Copy it from the model's page, or";
    if (!folder.files.has('tokenizer.json')) fail('FORMAT', folder.where, `${missing} ${next}.`);
    const template = await optionalFile(folder, 'chat_template.jinja');
    return {
      where: folder.path('tokenizer.json'),
      tokenizer: {
        tokenizerJson: await jsonOf(folder, 'tokenizer.json'),
        tokenizerConfig: await optionalJson(folder, 'tokenizer_config.json'),
        chatTemplate: template && decodeUtf8(template, folder.path('chat_template.jinja')),
      },
    };
  };
  return {
    config,
    metadata: undefined,
    stored: packing ? packTensors(stored, packing) : stored,
    async readTokenizer() {
      const { tokenizer, where } = await readTokenizerFiles('give options.tokenizer');
      return tokenizerFromJson(tokenizer, where);
    },
    readEmbedding: () => embeddingFromFolder(folder, config),
    readTokenizerFiles: () => readTokenizerFiles('leave the vocabulary out'),
    readFiles: async (graph) => (await writers()).filesFromFolder(folder, config, graph),
  };
}

const HEADLESS =
  'The files have no output head: the model makes embeddings, and a GGUF of it ties the head to its embeddings.';

/** The names of xIELU's numbers, each a tensor of one element or of no dimension. */
const XIELU = /(?:^|\.)layers\.(\d+\.mlp\.act_fn\.\w+)$/;

/** Reads the numbers of each layer's xIELU. @throws {RopewalkError} FORMAT if one is missing */
async function xieluFromFolder(
  folder: Folder,
  { numLayers }: DecoderConfig,
  stored: readonly StoredTensor[],
): Promise<XieluConfig[]> {
  const found = new Map(stored.map((tensor) => [XIELU.exec(tensor.name)?.[1], tensor]));
  const read = async (layer: number, name: string): Promise<number> => {
    const tensor = found.get(`${layer}.mlp.act_fn.${name}`);
    const next = 'The file is incomplete, or the config belongs to another model.';
    if (!tensor) return fail('FORMAT', folder.where, `layer ${layer}: tensor mlp.act_fn.${name} is missing. ${next}`);
    return (await readTensor(folder, { ...tensor, shape: tensor.shape.length ? tensor.shape : [1] }, [1]))[0]!;
  };
  const layers: XieluConfig[] = [];
  for (let n = 0; n < numLayers; n++)
    layers.push({
      alphaP: await read(n, 'alpha_p'),
      alphaN: await read(n, 'alpha_n'),
      beta: await read(n, 'beta'),
      eps: await read(n, 'eps'),
    });
  return layers;
}

async function readGguf(folder: Folder, names: readonly string[]): Promise<Headers> {
  const files = names.map((name) => ({ file: folder.path(name), source: folder.files.get(name)! }));
  const { header, factors, parts } = await ggufModelOf(files);
  const { file } = parts[0]!;
  const config = configFromGguf(header, (tensor) => factors.get(tensor), file);
  const all = parts.flatMap(({ header: { tensors, dataOffset } }, n) =>
    tensors.map(({ name, type, shape, offset, sizeBytes }) => {
      return { name, file: names[n]!, type, shape: [...shape].reverse(), byteOffset: dataOffset + offset, sizeBytes };
    }),
  );
  const dense = all.filter(({ name }) => GGUF_DENSE.test(name));
  return {
    config,
    metadata: header.metadata,
    stored: all.filter((tensor) => !dense.includes(tensor)),
    readEmbedding: () => embeddingFromGguf(folder, config, header.metadata, dense, file),
    readTokenizer: async () => tokenizerFromGguf(header.metadata, file),
    readTokenizerFiles: async () => fail('FORMAT', file, 'a GGUF has its vocabulary in its keys.'),
    readFiles: async (graph) => (await writers()).filesFromGguf(header, config, graph, file),
  };
}

/** Imports folder-files.js when an export needs it: converting RoPE takes the code of every peer. */
const writers = () => import('./folder-files.js');
