/**
 * NumPy's .npz: a zip of .npy files, one for each named array.
 *
 * Written without compression and with a fixed time, so that the same arrays give the same bytes anywhere, at any time.
 *
 * @module
 * @see https://numpy.org/doc/stable/reference/generated/numpy.savez.html
 */
import { unzipSync, type Zippable, zipSync } from 'fflate';
import { RopewalkError, refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { nameForMessage } from './bytes.js';
import { type NpyArray, parseNpy, writeNpy } from './npy.js';

/** The most that the arrays of a file may take together: a zip of a few bytes can claim any size. */
const MAX_BYTES = 2 ** 31;
/** A case has a dozen arrays; a model's checkpoint a few thousand. */
const MAX_ENTRIES = 65535;

/**
 * Reads a .npz file. The zip's checksums are not looked at: whoever must know keeps a hash of his own.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @returns the arrays by name, without `.npy`, in the file's order
 * @throws {RopewalkError} FORMAT when the zip or an array is malformed, a name comes twice, or the arrays are absurdly large
 */
export function parseNpz(bytes: Uint8Array, where = 'npz'): Map<string, NpyArray> {
  const names = new Set<string>();
  let total = 0;
  let files: Record<string, Uint8Array>;
  try {
    files = unzipSync(bytes, {
      filter({ name, size, originalSize, compression }) {
        if (names.has(name)) refuse('FORMAT', where, 'each name once', name);
        if (names.add(name).size > MAX_ENTRIES) refuse('FORMAT', where, `at most ${MAX_ENTRIES} arrays`, 'more');
        if (!name.endsWith('.npy')) refuse('FORMAT', where, 'files that end in .npy', name);
        total += originalSize;
        if (!(total <= MAX_BYTES)) refuse('FORMAT', where, `arrays of at most ${MAX_BYTES} bytes together`, total, 'The file is forged.');
        // Deflate makes at most 1032 bytes of one; more is a claim that would only cost memory.
        if (size > bytes.length || originalSize > (compression === 0 ? size : 1032 * size + 1032))
          refuse('FORMAT', `${where}: ${nameForMessage(name)}`, `a size that ${size} bytes can hold`, originalSize, 'The file is forged.');
        return true;
      },
    });
  } catch (cause) {
    if (cause instanceof RopewalkError) throw cause;
    return refuse('FORMAT', where, 'a zip file of .npy files', cause instanceof Error ? cause.message : 'other bytes');
  }
  // Not Object.entries: integer-like names would come first there.
  return new Map([...names].map((name) => [name.slice(0, -4), parseNpy(files[name]!, `${where}: ${nameForMessage(name)}`)]));
}

/**
 * Writes a .npz file: the same tensors give the same bytes.
 *
 * @param tensors - by name, in host memory; names are what numpy will call the arrays
 * @returns the file
 * @throws {RopewalkError} FORMAT for an empty name or one with a slash; DEVICE when a tensor is not in host memory
 */
export function writeNpz(tensors: ReadonlyMap<string, Tensor>): Uint8Array {
  const files: Zippable = {};
  for (const [name, tensor] of tensors) {
    if (!/^[A-Za-z_][\w.-]*$/.test(name)) refuse('FORMAT', 'npz: name', 'a letter, then letters, digits, _, - or .', name);
    const data = tensor.read();
    if (data instanceof Promise) refuse('DEVICE', `npz: ${name}`, 'a tensor in host memory', tensor.storage.owner, 'Read it first.');
    files[`${name}.npy`] = writeNpy(data, tensor);
  }
  // fflate takes the local calendar date; built from the same calendar it is the same everywhere. 1980 is the zip format's first year.
  return zipSync(files, { level: 0, mtime: new Date(1980, 0, 1) });
}
