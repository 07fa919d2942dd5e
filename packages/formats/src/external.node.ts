/**
 * Data that a model keeps in files beside it, as .onnx files do (Node only).
 *
 * @module
 */
import { realpathSync } from 'node:fs';
import { dirname, isAbsolute, resolve, sep } from 'node:path';
import { checkInteger, fail, nameForMessage, readOptions, refuse } from 'ropewalk/backend';
import { checkPath, readFileRange, refuseSystem } from './read-file.node.js';

/** A part of a file that an .onnx model names. */
export interface FilePart {
  /** The file, relative to the model's folder. */
  readonly location: string;
  /** First byte. */
  readonly offset: number;
  /** Bytes. */
  readonly length: number;
}

/** Node cannot read more at once. */
const MAX_EXTERNAL_BYTES = 2 ** 31 - 1;

/**
 * Reads a tensor from the model's own folder, and from no other place, wherever symbolic links lead. That is the folder
 * of the path given, or of the file that it links to: in HuggingFace's cache a model and its data are links to one
 * folder of blobs.
 *
 * @param file - the model
 * @param place - as the model says it
 * @returns its bytes
 * @throws {RopewalkError} FORMAT for a place outside, and for anything but a regular file
 */
export function readExternal(file: string, place: FilePart): Uint8Array {
  checkPath(file);
  const at = `${file}: external data`;
  const { location, offset, length } = readOptions(place, at);
  checkPath(location);
  for (const count of [offset, length]) checkInteger(count, at, 0);
  const folder = resolve(dirname(file));
  const named = resolve(folder, location);
  if (isAbsolute(location) || !isInside(named, folder)) refuse('FORMAT', at, "a file in the model's folder", location);
  const which = `${at} ${nameForMessage(location)}`;
  if (length > MAX_EXTERNAL_BYTES) refuse('FORMAT', which, `at most ${MAX_EXTERNAL_BYTES} bytes`, length);
  const path = realPath(named, which);
  if (![realPath(folder, at), dirname(realPath(file, at))].some((one) => isInside(path, one)))
    fail('FORMAT', which, "it is a link that leaves the model's folder. If you trust it, copy the file there.");
  return readFileRange(path, offset, length, which);
}

function isInside(path: string, folder: string): boolean {
  return path.startsWith(folder.endsWith(sep) ? folder : folder + sep);
}

function realPath(path: string, at: string): string {
  try {
    return realpathSync(path);
  } catch (cause) {
    return refuseSystem('FORMAT', at, 'a readable file', cause);
  }
}
