/**
 * NumPy's .npz: a zip of .npy files, one for each named array.
 *
 * It is written without compression and with a fixed time, so the same arrays always give the same bytes.
 *
 * @module
 * @see https://numpy.org/doc/stable/reference/generated/numpy.savez.html
 */

import { type Zippable, zipSync } from 'fflate';
import type { Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkBytes, checkNamedTensors, nameForMessage } from 'ropewalk/internal';
import { type NpyArray, parseNpy, writeNpy } from './npy.js';
import { MAX_ZIP_BYTES, readZip } from './zip.js';

/**
 * Reads a .npz file. Each array must have the size and the checksum (CRC-32) that the zip's directory says.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @param maxBytes - the most bytes of all arrays together, with their headers. Default: 2 GiB
 * @returns the arrays by name, without `.npy`, in the file's order
 * @throws {RopewalkError} FORMAT when the zip or an array is malformed or damaged, a name comes twice, entries overlap,
 *   or the arrays are too large
 */
export function parseNpz(bytes: Uint8Array, where = 'npz', maxBytes = MAX_ZIP_BYTES): Map<string, NpyArray> {
  checkBytes(bytes, where);
  if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
    refuse('RANGE', `${where}: maxBytes`, 'a number >= 0', maxBytes);
  const files = [...readZip(bytes, where, { kind: 'a zip file of .npy files', maxBytes })];
  for (const [name] of files) if (!name.endsWith('.npy')) refuse('FORMAT', where, 'files that end in .npy', name);
  return new Map(
    files.map(([name, read]) => [name.slice(0, -4), parseNpy(read(), `${where}: ${nameForMessage(name)}`)]),
  );
}

/**
 * Writes a .npz file: the same tensors give the same bytes.
 *
 * @param tensors - by name, in host memory; names are what numpy will call the arrays
 * @returns the file
 * @throws {RopewalkError} FORMAT for an empty name or one with a slash; DEVICE when a tensor is not in host memory
 */
export function writeNpz(tensors: ReadonlyMap<string, Tensor>): Uint8Array {
  checkNamedTensors(tensors, 'npz');
  const files: Zippable = {};
  for (const [name, tensor] of tensors) {
    if (!/^[A-Za-z_][\w.-]*$/.test(name))
      refuse('FORMAT', 'npz: name', 'a letter, then letters, digits, _, - or .', name);
    const data = tensor.read();
    if (data instanceof Promise)
      refuse('DEVICE', `npz: ${name}`, 'a tensor in host memory', tensor.storage.owner, 'Read it first.');
    files[`${name}.npy`] = writeNpy(data, tensor);
  }
  // fflate writes the local date. A local date is the same everywhere; 1980 is the zip format's first year.
  return zipSync(files, { level: 0, mtime: new Date(1980, 0, 1) });
}
