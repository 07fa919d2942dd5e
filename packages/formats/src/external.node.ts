/**
 * Data that a model keeps in files beside it, as .onnx files do (Node only).
 *
 * @module
 */
import { realpathSync, statSync } from 'node:fs';
import { dirname, isAbsolute, resolve, sep } from 'node:path';
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, nameForMessage, readOptions } from 'ropewalk/internal';
import { checkPath, checkRegular, readFileRange, refuseSystem } from './read-file.node.js';

/** A part of a file that an .onnx model names. */
export interface FilePart {
  /** The file, relative to the model's folder. */
  readonly location: string;
  /** The first byte. */
  readonly offset: number;
  /** The number of bytes. */
  readonly length: number;
}

/** Node cannot read more at once. */
const MAX_EXTERNAL_BYTES = 2 ** 31 - 1;

/**
 * Reads a tensor from the model's folder and from no other place, wherever symbolic links lead. The model's folder is
 * that of `file`, or of the file that it links to: in HuggingFace's cache a model and its data are links to one folder
 * of blobs.
 *
 * @param file - the model
 * @param place - the place that the model names
 * @returns its bytes
 * @throws {RopewalkError} FORMAT for a place outside, and for anything but a regular file
 */
export function readExternal(file: string, place: FilePart): Uint8Array {
  checkPath(file);
  const { location, offset, length } = readOptions(place, `${file}: external data`);
  for (const count of [offset, length]) checkInteger(count, `${file}: external data`, 0);
  const { path, which } = placeOf(file, location);
  if (length > MAX_EXTERNAL_BYTES) refuse('FORMAT', which, `at most ${MAX_EXTERNAL_BYTES} bytes`, length);
  return readFileRange(path, offset, length, which);
}

/**
 * Checks that a file beside a model is there, and is long enough.
 *
 * @param file - the model
 * @param location - the file that the model names
 * @param endByte - the bytes that the model reads from its start
 * @returns its size in bytes
 * @throws {RopewalkError} FORMAT as {@link readExternal}, and for a file that ends before
 */
export function checkExternal(file: string, location: string, endByte: number): number {
  checkPath(file);
  checkInteger(endByte, `${file}: external data`, 0);
  const { path, which } = placeOf(file, location);
  const info = statSync(path);
  checkRegular(info, which);
  if (info.size < endByte)
    fail(
      'FORMAT',
      which,
      `it has ${info.size} bytes, and the model reads ${endByte}. The file is cut, or another one.`,
    );
  return info.size;
}

/** Finds the real path of a file in the model's folder, and its name for messages. */
function placeOf(file: string, location: string): { path: string; which: string } {
  const at = `${file}: external data`;
  checkPath(location);
  const folder = resolve(dirname(file));
  const named = resolve(folder, location);
  if (isAbsolute(location) || !isInside(named, folder)) refuse('FORMAT', at, "a file in the model's folder", location);
  const which = `${at} ${nameForMessage(location)}`;
  const path = realPath(named, which);
  if (![realPath(folder, at), dirname(realPath(file, at))].some((one) => isInside(path, one)))
    fail('FORMAT', which, "it is a link that leaves the model's folder. If you trust it, copy the file there.");
  return { path, which };
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
