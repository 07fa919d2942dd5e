/**
 * Models whose weights are in several safetensors files.
 *
 * @module
 */
import { checkName, Fields, fail, nameForMessage, reading, readList, refuse } from 'ropewalk/backend';

/** The file that says which tensor is in which shard. */
export const SAFETENSORS_INDEX = 'model.safetensors.index.json';

/**
 * Finds the files that hold a model's weights.
 *
 * @param names - all files of the folder
 * @param index - {@link SAFETENSORS_INDEX}, parsed; undefined when the folder has none
 * @param folder - the folder's name in messages
 * @param where - the index's name in messages
 * @returns file → the tensors that the index says are in it; undefined for the only file of a model without an index
 * @throws {RopewalkError} FORMAT for several files without an index, and for an empty index or one with other files
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
    if (files.length === 1) return new Map([[files[0]!, undefined]]);
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
