/**
 * Writes a HuggingFace folder as a GGUF file, or a GGUF as a folder. Both appear whole or not at all, are written a few
 * megabytes at a time, and every byte is read back. For Node only.
 *
 * @module @ropewalk/model/repack
 */
import { type FileHandle, mkdir, open, stat, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import type { GgufFile } from '@ropewalk/formats';
import { type TypedValue, writeGgufHeader, writeSafetensorsHeader } from '@ropewalk/formats/internal';
import { readAt, refuseSystem, writeWhole } from '@ropewalk/formats/internal/node';
import { type RopeSpec, RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, readName, readOptions } from 'ropewalk/internal';
import { checkSignal, checkTypes } from './arguments.js';
import { configFromGguf, configFromJson } from './config.js';
import { checkSame, configToGguf, valuesOf } from './config-gguf.js';
import { configText } from './config-json.js';
import { describeModel } from './description.js';
import { GGUF_BIASES } from './families.js';
import { describeModelPath } from './node.js';
import { type PlannedModel, planModel } from './plan-model.js';
import { planRepack, type Repack, type Repairing, typeFor, WRITTEN_TYPES, type WrittenType } from './repack.js';
import type { DecoderConfig } from './types.js';
import { vocabularyToGguf } from './vocabulary-gguf.js';
import { layoutOf, type TensorLayout } from './weights.js';

export { WRITTEN_TYPES } from './repack.js';

/** Options of writeGguf and writeSafetensorsFolder. */
export interface RepackOptions {
  /** The new type of matrices. Default: their own, but f16 for blocks of a GGUF. */
  readonly type?: WrittenType | undefined;
  /** Whether the vocabulary is written. Default: true. */
  readonly vocabulary?: boolean | undefined;
  /** Whether an existing file is replaced. */
  readonly force?: boolean | undefined;
  /** Ends the work with the signal's reason, and leaves no file. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the share of the work that is done, in [0, 1]. */
  readonly onProgress?: ((share: number) => void) | undefined;
}

const NAMES: OptionNames<RepackOptions> = { type: true, vocabulary: true, force: true, signal: true, onProgress: true };

/** The result: files, types and notes. */
export interface Repacked {
  readonly config: DecoderConfig;
  /** Names inside of a folder, or the file itself. */
  readonly files: readonly { readonly name: string; readonly sizeBytes: number }[];
  /** The number of tensors and bytes of each type, under the file's name of the type. */
  readonly types: readonly { readonly type: string; readonly tensors: number; readonly sizeBytes: number }[];
  /** Whether the rows of q and k have a new order. */
  readonly permuted: boolean;
  /** Sentences on what the new form leaves out, or expresses in another way. */
  readonly notes: readonly string[];
}

/** The values of general.file_type. @see ggml-org/llama.cpp@de3ff815 include/llama.h llama_ftype */
const FILE_TYPES: Readonly<Record<string, number>> = { f32: 0, f16: 1, q4_0: 2, q8_0: 7, bf16: 32, mxfp4: 38 };

/**
 * Writes a HuggingFace folder as a GGUF file.
 *
 * @param path - the folder
 * @param out - the file
 * @param options - type, vocabulary, force, signal, onProgress
 * @throws {RopewalkError} UNSUPPORTED for a model that a GGUF cannot express, before anything is written; FORMAT for
 *   files that are missing, cut or forged, and for a file that may not be replaced; DEVICE when it cannot be written
 * @example await writeGguf('models/marline', 'marline-q8_0.gguf', { type: 'q8_0' });
 */
export async function writeGguf(path: string, out: string, options: RepackOptions = {}): Promise<Repacked> {
  const given = readRepackOptions(options, out, 'writeGguf');
  const { type, vocabulary = true, force, signal } = given;
  return describeModelPath(path, { as: typeFor(type) }, async (description) => {
    const { config } = description;
    if (config.source !== 'huggingface')
      fail('FORMAT', description.where, 'it is a GGUF already. Give a folder with config.json and *.safetensors.');
    refuseSparse(description);
    const target = ggufTarget(description);
    const layout = layoutOf(target, storedNames(description, target));
    const { metadata, factors, back, notes } = ggufConfig(config, layout, out);
    const repack = planRepack(description, layout, repairingOf(config, back));
    const keys = new Map<string, TypedValue>(metadata);
    const most = typesOf(repack)[0]?.type ?? 'F32';
    keys.set('general.type', { type: 'string', value: 'model' });
    const name = basename(resolve(path));
    keys.set('general.name', { type: 'string', value: name });
    keys.set('general.file_type', { type: 'u32', value: FILE_TYPES[most.toLowerCase()] ?? 0 });
    keys.set('general.quantization_version', { type: 'u32', value: 2 });
    if (vocabulary) {
      const { tokenizer: files, where } = await description.readTokenizerFiles();
      const made = vocabularyToGguf(files, config, name, where);
      for (const [key, value] of made.keys) keys.set(key, value);
      notes.push(...made.notes);
    } else keys.set('tokenizer.ggml.model', { type: 'string', value: 'no_vocab' });
    const extra = Array.from(factors, ([name, values]) => ({ name, values }));
    const tensors = repack.tensors.map(({ name, shape, held }) => {
      return { name, shape: [...shape].reverse(), type: held.toUpperCase() };
    });
    const more = extra.map(({ name, values }) => ({ name, shape: [values.length], type: 'F32' }));
    const header = writeGgufHeader(keys, [...tensors, ...more]);
    const sizeBytes = header.fileSizeBytes;
    await writeWhole(out, { sizeBytes, inputs: [path], force, kind: 'file' }, async (temporary) => {
      const target = { ...given, places: header.places, sizeBytes, out };
      await writeTensors(temporary, header.bytes, repack, target, async (file) => {
        for (const [n, { values }] of extra.entries()) {
          const { byteOffset } = header.places[repack.tensors.length + n]!;
          await file.write(new Uint8Array(values.buffer), 0, undefined, byteOffset);
        }
      });
      await readBack(temporary, sizeBytes, config);
      signal?.throwIfAborted();
    });
    return {
      config,
      files: [{ name: basename(out), sizeBytes }],
      types: typesOf(repack),
      permuted: repairingOf(config, back) !== undefined,
      notes: [...config.notes, ...notes],
    };
  });
}

function refuseSparse({ config, where }: PlannedModel): void {
  const next = 'The converters of llama.cpp and transformers write it.';
  if (config.family.sparse)
    fail(
      'UNSUPPORTED',
      where,
      `the indexer of ${config.architecture}, which is left out here, would be missing. ${next}`,
    );
}

/** Returns the config of the new GGUF, with llama.cpp's rule for the head. */
function ggufTarget({ config, weights, where }: PlannedModel): DecoderConfig {
  const { family } = config;
  if (family.ggufApart) fail('UNSUPPORTED', where, family.ggufApart);
  const tiedHead = family.ggufHead ? family.ggufHead === 'tied' : config.tiedHead;
  if (tiedHead && !config.tiedHead)
    fail('UNSUPPORTED', where, `its head is a matrix of its own, and llama.cpp has none for ${family.gguf}.`);
  const has = (part: string): boolean => weights.some(({ place }) => place.endsWith(`.${part}.bias`));
  const [qkv, output, mlp, conv] = [has('q'), has('output'), has('up') || has('down'), has('conv')];
  refuseUnloaded(config, { qkv, output, mlp }, where);
  const biases = { qkv, output, mlp, conv, ssmIn: false, ssmOut: false, head: false };
  return { ...config, source: 'gguf', tiedHead, biases };
}

/** Refuses tensors with which llama.cpp would not load the file. */
function refuseUnloaded(
  { family, qkNorm, numLayers }: DecoderConfig,
  has: Readonly<Record<'qkv' | 'output' | 'mlp', boolean>>,
  where: string,
): void {
  const { gguf, biases, ggufQkNormLayers = 0 } = family;
  const groups = { qkv: 'q, k and v', output: "attention's output", mlp: 'the feed-forward blocks' } as const;
  for (const [group, name] of Object.entries(groups) as [keyof typeof groups, string][]) {
    const rule = biases?.[group];
    // Where all models of a family have them, llama.cpp loads them.
    const isChoice = rule !== undefined && rule !== 'always' && !rule[1];
    const isLoaded = group === 'qkv' ? !/^gemma(4|3n)$/.test(gguf) : GGUF_BIASES[group].includes(gguf);
    if (has[group] && isChoice && !isLoaded)
      fail('UNSUPPORTED', where, `it has biases of ${name}, and llama.cpp loads none for ${gguf}.`);
  }
  if (qkNorm && numLayers < ggufQkNormLayers)
    fail(
      'UNSUPPORTED',
      where,
      `it has norms of q and k, which llama.cpp loads for ${gguf} from ${ggufQkNormLayers} layers on, and ${numLayers} layers.`,
    );
}

/** Lists the tensors that decide how the others are stored. q, k and v are one tensor if transformers has them so. */
function storedNames({ config, weights }: PlannedModel, target: DecoderConfig): string[] {
  const names: string[] = [];
  const { names: saved = {} } = target.family;
  const gguf = target.source === 'gguf';
  const hasChoice = weights.some(({ place }) => place.endsWith('.choiceBias.weight'));
  if (hasChoice) names.push(gguf ? 'exp_probs_b.bias' : (saved.choiceBias ?? 'mlp.gate.e_score_correction_bias'));
  const hasScale = weights.some(({ place }) => place.endsWith('.layerScale.weight'));
  if (hasScale) names.push(gguf ? 'layer_output_scale.weight' : 'layer_scalar');
  const qkv = saved.qkv && (gguf ? 'attn_qkv.weight' : saved.qkv);
  const hasBias = weights.some(({ place }) => place.endsWith('.q.bias'));
  if (qkv) names.push(qkv, ...(hasBias ? [qkv.replace(/weight$/, 'bias')] : []));
  if (gguf && config.latent) names.push('attn_k_b.weight');
  const before = gguf ? 'blk.' : `${saved.model ?? 'model.'}layers.`;
  const layers = Array.from({ length: config.numLayers }, (_, layer) => layer);
  return layers.flatMap((layer) => names.map((name) => `${before}${layer}.${name}`));
}

/** Makes the keys, and the config that is read back from them. */
function ggufConfig(config: DecoderConfig, layout: readonly TensorLayout[], where: string) {
  const attempt = (explicit: boolean) => {
    const { metadata, factors } = configToGguf(config, explicit);
    const tensors = [...layout, ...Array.from(factors, ([name, values]) => ({ name, shape: [values.length] }))];
    const header: GgufFile = {
      version: 3,
      bigEndian: false,
      metadata: valuesOf(metadata),
      tensors: tensors.map(({ name, shape }) => {
        return { name, shape: [...shape].reverse(), type: 'F32', offset: 0, sizeBytes: 0 };
      }),
      alignment: 32,
      dataOffset: 0,
    };
    const back = configFromGguf(header, (name) => factors.get(name), where);
    const notes: string[] = [];
    checkSame(config, back, where, notes);
    return { metadata, factors, back, notes };
  };
  try {
    return attempt(false);
  } catch (error) {
    if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED') throw error;
    return attempt(true);
  }
}

/** Returns the first layer's RoPE. All layers have one pairing. */
const ropeOf = (config: DecoderConfig): RopeSpec | undefined =>
  config.layers(config.maxContext).find(({ rope }) => rope)?.rope;

/** Returns the new order of the rows of q and k, if the two forms have different pairings. */
function repairingOf(from: DecoderConfig, to: DecoderConfig): Repairing | undefined {
  const [own, wanted] = [ropeOf(from), ropeOf(to)];
  if (!own || !wanted || own.pairing === wanted.pairing) return undefined;
  // This pairing writes halves from neighbours: q and k come out permuted alike.
  if ([own.pairing, wanted.pairing].includes('interleaved-to-half')) return undefined;
  if (wanted.pairing !== 'half' && wanted.pairing !== 'interleaved')
    refuse('UNSUPPORTED', from.architecture, 'pairing half or interleaved', wanted.pairing);
  return { to: wanted.pairing, rotaryDim: own.rotaryDim ?? own.headDim };
}

function typesOf({ tensors }: Repack): Repacked['types'] {
  const types = Array.from(new Set(tensors.map(({ held }) => held)), (held) => {
    const same = tensors.filter((one) => one.held === held);
    const sizeBytes = same.reduce((sum, one) => sum + one.sizeBytes, 0);
    return { type: held.toUpperCase(), tensors: same.length, sizeBytes };
  });
  return types.sort((a, b) => b.sizeBytes - a.sizeBytes);
}

/** A file that is being written. */
interface Target extends RepackOptions {
  readonly places: readonly { readonly byteOffset: number }[];
  readonly sizeBytes: number;
  /** The final name, for messages. */
  readonly out: string;
}

/** Writes the header and the tensors, then makes the tensors again and compares them with the file. */
async function writeTensors(
  path: string,
  header: Uint8Array,
  repack: Repack,
  { places, sizeBytes, out, signal, onProgress }: Target,
  more: (file: FileHandle) => Promise<void> = async () => {},
): Promise<void> {
  const unwritable = (cause: unknown): never => refuseSystem('DEVICE', out, 'to be able to write', cause);
  const file = await open(path, 'wx+').catch(unwritable);
  try {
    let done = 0;
    const step = (bytes: Uint8Array): void => onProgress?.((done += bytes.length / 2) / sizeBytes);
    const put = async (bytes: Uint8Array, at: number): Promise<void> => {
      for (let from = 0; from < bytes.length; )
        from += (await file.write(bytes, from, bytes.length - from, at + from).catch(unwritable)).bytesWritten;
    };
    // The file has its whole size at once. Zeros stand between two tensors.
    await file.truncate(sizeBytes).catch(unwritable);
    await put(header, 0);
    await more(file);
    await repack.run(
      async (bytes, tensor, at) => {
        await put(bytes, places[tensor]!.byteOffset + at);
        step(bytes);
      },
      { signal },
    );
    await file.sync().catch(unwritable);
    const compare = async (bytes: Uint8Array, at: number, what: string): Promise<void> => {
      const there = await readAt(file, at, bytes.length, out);
      if (Buffer.compare(there, bytes) !== 0)
        fail('DEVICE', out, `${what} is not in the file as it was written. Check the disk.`);
      step(bytes);
    };
    await compare(header, 0, 'the header');
    await repack.run(
      (bytes, tensor, at) => compare(bytes, places[tensor]!.byteOffset + at, repack.tensors[tensor]!.name),
      { signal },
    );
  } finally {
    await file.close();
  }
}

/** Reads a written GGUF as a model, and checks that it has the same config and every tensor. */
async function readBack(path: string, sizeBytes: number, config: DecoderConfig): Promise<void> {
  const file = await open(path);
  try {
    const source = { size: sizeBytes, read: (start: number, length: number) => readAt(file, start, length, path) };
    const back = planModel(await describeModel({ 'model.gguf': source }, path));
    checkSame(config, back.config, path, []);
  } finally {
    await file.close();
  }
}

/**
 * Writes a GGUF as a HuggingFace folder: config.json, model.safetensors, and its tokenizer's files.
 *
 * @param path - the file
 * @param out - the folder; it must not exist
 * @param options - type (f32, f16 or bf16), vocabulary, signal, onProgress
 * @throws {RopewalkError} as {@link writeGguf}
 * @example await writeSafetensorsFolder('model-q8_0.gguf', 'model', { type: 'bf16' });
 */
export async function writeSafetensorsFolder(
  path: string,
  out: string,
  options: RepackOptions = {},
): Promise<Repacked> {
  const given = readRepackOptions(options, out, 'writeSafetensorsFolder');
  const { type, vocabulary = true, signal } = given;
  if (type === 'q8_0' || type === 'q4_0')
    refuse('UNSUPPORTED', 'writeSafetensorsFolder: type', 'f32, f16 or bf16', type, 'Safetensors has no blocks.');
  const info = await stat(path).catch(() => undefined);
  if (info?.isFile() && !/\.gguf$/i.test(path)) refuse('FORMAT', path, 'a .gguf file', basename(path));
  const plain: Readonly<Record<string, 'f32' | 'f16' | 'bf16'>> = { F32: 'f32', F16: 'f16', BF16: 'bf16' };
  const as = (weight: { readonly type: string }) => type ?? plain[weight.type] ?? 'f16';
  return describeModelPath(path, { as }, async (description) => {
    const { config } = description;
    if (config.source !== 'gguf') fail('FORMAT', description.where, 'it is no GGUF. Give a .gguf file.');
    refuseSparse(description);
    const next = 'experts of gpt-oss are not written as safetensors: take the published folder.';
    if (config.family.gguf === 'gpt-oss') fail('UNSUPPORTED', description.where, next);
    const small = await description.readFiles({ graph: 'model.onnx' });
    const files = small.files.filter(
      ({ name }) => name !== 'genai_config.json' && (vocabulary || !/^(token|chat_)/.test(name)),
    );
    const json = JSON.parse(new TextDecoder().decode(files.find(({ name }) => name === 'config.json')!.bytes));
    const target = configFromJson(json, undefined, join(out, 'config.json'));
    const notes = small.notes.filter((note) => !note.includes('genai'));
    if (config.layers(config.maxContext).some(({ rope }) => rope?.axes))
      notes.push('The GGUF has no weights for images: transformers makes random ones, and texts are not affected.');
    const layout = layoutOf(target, storedNames(description, target));
    checkSame(config, target, out, []);
    const repack = planRepack(description, layout, repairingOf(config, target));
    const [most] = typesOf(repack);
    json.torch_dtype = { F32: 'float32', F16: 'float16', BF16: 'bfloat16' }[most?.type ?? 'F32'];
    const configBytes = new TextEncoder().encode(configText(json));
    const written = files.map((one) => (one.name === 'config.json' ? { ...one, bytes: configBytes } : one));
    const tensors = repack.tensors.map(({ name, shape, held }) => ({ name, shape, dtype: held as 'f32' }));
    const header = writeSafetensorsHeader(tensors, { format: 'pt' });
    const sizeBytes = header.fileSizeBytes;
    await writeWhole(out, { sizeBytes, inputs: [path], kind: 'folder' }, async (temporary) => {
      await mkdir(temporary, { recursive: true });
      for (const { name, bytes } of written) await writeFile(join(temporary, name), bytes, { flush: true });
      const place = { ...given, places: header.places, sizeBytes, out };
      await writeTensors(join(temporary, 'model.safetensors'), header.bytes, repack, place);
      await describeModelPath(temporary, {}, async (back) => checkSame(config, back.config, out, []));
      signal?.throwIfAborted();
    });
    return {
      config: target,
      files: [
        ...written.map(({ name, bytes }) => ({ name, sizeBytes: bytes.length })),
        { name: 'model.safetensors', sizeBytes },
      ],
      types: typesOf(repack),
      permuted: repairingOf(config, target) !== undefined,
      notes: [...config.notes, ...notes],
    };
  });
}

function readRepackOptions(options: RepackOptions, out: string, caller: string): RepackOptions {
  const given = readOptions(options, `${caller}: options`, NAMES);
  const { type, vocabulary, force, signal, onProgress } = given;
  if (type !== undefined) readName(type, WRITTEN_TYPES, `${caller}: type`);
  checkTypes({ vocabulary, force }, 'boolean', caller);
  checkTypes({ onProgress }, 'function', caller);
  checkSignal(signal, caller);
  if (typeof out !== 'string' || out === '') refuse('RANGE', `${caller}: out`, 'a path', out);
  return given;
}
