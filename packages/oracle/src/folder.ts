/** A folder of vectors, on disk or elsewhere. All readers use this interface, and none opens files itself. @module */
import { parseJson, parseNpy, tensorFromNpy } from '@ropewalk/formats';
import { type Dtype, sizeBytes, type Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { Fields, isDtype, reading } from 'ropewalk/internal';
import { bytesToArray } from './host.js';
import type { Tolerance } from './judge.js';

/** A folder of vectors. */
export interface VectorFolder {
  /** The folder's name, which labels have. */
  readonly name: string;
  /** The folder's name in messages, such as the path that the user gave. Default: `name`. */
  readonly where?: string;
  /**
   * Reads a file.
   *
   * @param path - a relative path with `/`, which does not leave the folder
   * @throws {RopewalkError} FORMAT when the file is missing or the path leaves the folder
   */
  read(path: string): Uint8Array;
  /** Says whether a file exists. */
  has(path: string): boolean;
  /** Names the folders directly below. */
  folders(): readonly VectorFolder[];
}

/** Returns a folder's name for messages. */
export const whereOf = ({ where, name }: VectorFolder): string => where ?? name;

/** Checks a caller's folder. @throws {RopewalkError} RANGE for anything else */
export function readFolder(folder: VectorFolder, where: string): VectorFolder {
  const is = reading(where, () => {
    const { read, has, folders, name, where: path = name } = folder;
    return [read, has, folders, name, path].map((one) => typeof one).join();
  });
  if (is !== 'function,function,function,string,string')
    refuse('RANGE', where, 'a folder of vectors', folder, 'Open one with vectorFolder().');
  return folder;
}

/** Reads a JSON file of a folder. @throws {RopewalkError} FORMAT when it is missing, no JSON, or no object */
export function readManifest(folder: VectorFolder, file: string): Fields {
  const where = `${whereOf(folder)}/${file}`;
  return new Fields(parseJson(folder.read(file), where), where);
}

/** Copies a .npy file into a tensor. The manifest knows that u2 holds the bits of bf16 or f16, which npy cannot say. */
export function readNpy<D extends Dtype>(folder: VectorFolder, file: string, dtype: D): Tensor<D> {
  const where = `${whereOf(folder)}/${file}`;
  const npy = parseNpy(folder.read(file), where);
  const raw = sizeBytes(npy.dtype) === sizeBytes(dtype) && (npy.dtype === dtype || npy.dtype.startsWith('u'));
  if (!raw) refuse('FORMAT', where, `elements of ${dtype}`, npy.descr);
  const bytes = new Uint8Array(npy.data.buffer, npy.data.byteOffset, npy.data.byteLength);
  return tensorFromNpy({ ...npy, data: bytesToArray(bytes, dtype, 'npy') }, dtype);
}

export function readDtype(f: Fields): Dtype {
  const dtype = f.text('dtype');
  return isDtype(dtype) ? dtype : refuse('FORMAT', f.path('dtype'), 'a dtype such as f32, bf16 or i64', dtype);
}

export function readTolerance(f: Fields): Tolerance {
  return { atol: f.number('atol'), rtol: f.number('rtol') };
}
