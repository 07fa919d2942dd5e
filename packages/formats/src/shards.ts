/**
 * Models whose weights are in several files: safetensors with or without an index, and split GGUF.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { checkName, Fields, nameForMessage, reading, readList } from 'ropewalk/internal';
import type { GgufFile } from './gguf.js';

/** The name of the file that maps tensors to shards. */
export const SAFETENSORS_INDEX = 'model.safetensors.index.json';

/** No model has more parts. A name alone must not make long lists. */
const MOST_PARTS = 1000;

/**
 * Names all parts of a model.
 *
 * @param name - of one part, without folders: `NAME-00002-of-00003.gguf`
 * @returns the names of all parts, in order; undefined for a name of another form, or with more
 *   than 1000 parts
 */
export function partNames(name: string): string[] | undefined {
  const [, stem, no, count, ending] = /^(.*-)(\d{5})-of-(\d{5})(\.\w+)$/s.exec(name) ?? [];
  if (Number(no) < 1 || !(Number(no) <= Number(count) && Number(count) <= MOST_PARTS)) return undefined;
  const part = (n: number): string => `${stem}${String(n + 1).padStart(5, '0')}-of-${count}${ending}`;
  return Array.from({ length: Number(count) }, (_name, n) => part(n));
}

/**
 * Puts the files of one model in order.
 *
 * @param files - all .gguf, or all .safetensors, of a folder
 * @param folder - the folder's name in messages
 * @returns the parts of the model, or its only file; undefined when the files are not one model
 * @throws {RopewalkError} FORMAT, naming the first part that is missing
 */
export function partsOf(files: readonly string[], folder: string): readonly string[] | undefined {
  checkName(folder, 'folder', 'the folder');
  const list = Array.from(readList(files, `${folder}: files`, 'a list of file names'));
  for (const name of list) checkName(name, 'files', 'the file');
  const parts = list.length === 0 ? undefined : partNames(list[0]!);
  if (!parts) return list.length === 1 ? list : undefined;
  const [given, known] = [new Set(list), new Set(parts)];
  if (list.some((name) => !known.has(name))) return undefined;
  const absent = parts.find((name) => !given.has(name));
  if (absent === undefined) return parts;
  return fail('FORMAT', folder, `${nameForMessage(absent)} is missing, one of ${parts.length} parts. Add it.`);
}

/** One file of a GGUF model, which is all of the model unless it is split. */
export interface GgufPart {
  /** The file's name in messages. */
  readonly file: string;
  readonly header: GgufFile;
  /** The tensors that divide RoPE's frequencies, by name. */
  readonly factors: ReadonlyMap<string, Float32Array>;
}

/** A whole GGUF model: the headers of all its files. */
export interface GgufModel extends Omit<GgufPart, 'file'> {
  /** The header of the first part without `split.*`, with the tensors of all parts. Offsets count in each own file. */
  readonly header: GgufFile;
  /** The parts, in the order of their names. */
  readonly parts: readonly GgufPart[];
}

/**
 * Joins the headers of a split GGUF model.
 *
 * @param parts - in the order of their names, at least one
 * @throws {RopewalkError} FORMAT, naming the part that is of another model, in the place of another, or incomplete
 * @see ggml-org/llama.cpp@00ad355 src/llama-model-loader.cpp, which checks the same three keys
 */
export function joinGguf(parts: readonly GgufPart[]): GgufModel {
  const [first] = parts as [GgufPart];
  const tensors = parts.flatMap((part) => part.header.tensors);
  const check = ({ header, file }: GgufPart, key: string, value: number, why: string): void => {
    const keys: Fields = new Fields(header.metadata, file);
    const given = keys.optionalInteger(key, 0);
    if (given === value || (parts.length === 1 && (given ?? 1) <= 1)) return;
    if (parts.length > 1) keys.refuse('FORMAT', key, `${value}, ${why}`, FOREIGN);
    const sentence = `it is one of ${given} parts, but its name does not lead to the others`;
    keys.fail('FORMAT', key, `${sentence}. Name them NAME-00001-of-00002.gguf and so on, side by side.`);
  };
  for (const part of parts) check(part, 'split.count', parts.length, 'as the name says');
  if (parts.length === 1) return { ...first, parts };
  for (const [n, part] of parts.entries()) check(part, 'split.no', n, 'as the name says');
  for (const part of parts) check(part, 'split.tensors.count', tensors.length, 'the tensors of all parts');
  const turned = parts.find(({ header }) => header.bigEndian !== first.header.bigEndian);
  if (turned) fail('FORMAT', turned.file, `its byte order is not that of ${first.file}. ${FOREIGN}`);
  const metadata = new Map([...first.header.metadata].filter(([key]) => !key.startsWith('split.')));
  const factors = new Map(parts.flatMap((part) => [...part.factors]));
  return { header: { ...first.header, metadata, tensors }, factors, parts };
}

const FOREIGN = 'A part of another model or conversion may have this name: get the parts again, all from one place.';

/**
 * Finds the files that hold a model's weights.
 *
 * @param names - all files of the folder
 * @param index - {@link SAFETENSORS_INDEX}, parsed; undefined when the folder has none
 * @param folder - the folder's name in messages
 * @param where - the index's name in messages
 * @returns file → the tensors that the index says are in it; undefined for each file of a model without an index
 * @throws {RopewalkError} FORMAT for several files without an index unless their names number them, for a missing one
 *   of these, and for an empty index or one with other files
 */
export function safetensorsShards(
  names: readonly string[],
  index: unknown,
  folder: string,
  where: string,
): ReadonlyMap<string, readonly string[] | undefined> {
  checkName(folder, 'folder', 'the folder');
  const list = Array.from(readList(names, `${folder}: names`, 'a list of file names'));
  const files = list.filter((name) => typeof name === 'string' && /\.safetensors$/i.test(name));
  if (index === undefined) {
    const parts = partsOf(files, folder);
    if (parts) return new Map(parts.map((name) => [name, undefined]));
    const next = 'Add the index: it says which tensor is in which file.';
    return refuse('FORMAT', folder, `one .safetensors file, or ${SAFETENSORS_INDEX} beside several`, files, next);
  }
  const map = new Fields(index, where).object('weight_map');
  const shards = new Map<string, string[]>();
  for (const tensor of map.keys()) {
    const name = map.text(tensor);
    // The index must not lead to a file outside of the folder.
    if (!files.includes(name))
      refuse('FORMAT', `${where}: ${nameForMessage(tensor)}`, 'a .safetensors file in the same folder', name);
    const tensors = shards.get(name);
    if (tensors) tensors.push(tensor);
    else shards.set(name, [tensor]);
  }
  if (shards.size === 0) fail('FORMAT', `${where}: weight_map`, 'it lists no tensors');
  return shards;
}

/**
 * Checks that a shard has every tensor that the index says it has.
 *
 * @param tensors - of the shard's header
 * @param claimed - of {@link safetensorsShards}
 * @param where - the shard's name in messages
 * @throws {RopewalkError} FORMAT, naming the first tensor that is missing
 */
export function checkShard(
  tensors: ReadonlyMap<string, unknown>,
  claimed: readonly string[] | undefined,
  where: string,
): void {
  checkName(where, 'where', 'the file');
  const absent = reading(where, () => {
    const name = claimed?.find((one) => !tensors.has(one));
    return name === undefined ? undefined : nameForMessage(name);
  });
  if (absent !== undefined) fail('FORMAT', where, `the index says that ${absent} is in this file, but it is not`);
}
