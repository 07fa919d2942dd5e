/**
 * Reads the outputs that a user's kernel wrote: `<id>/<output>.npy` or `.bin`, or all outputs of a case in
 * `<id>.safetensors` or `<id>.npz`.
 *
 * The files are not trusted. An output that is missing or has another dtype, shape or size fails only its case, and the
 * message names the next step.
 *
 * @module
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join, resolve, sep } from 'node:path';
import {
  type NpyArray,
  parseJson,
  parseNpy,
  parseNpz,
  parseSafetensors,
  tensorFromNpy,
  tensorFromSafetensors,
} from '@ropewalk/formats';
import { readFileBytes, refuseSystem } from '@ropewalk/formats/internal/node';
import { type Dtype, type HostArray, RopewalkError, sizeBytes, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readList, show } from 'ropewalk/internal';
import { type GoldenCase, readGoldenCase } from '../golden/case.js';
import { bytesToTensor } from '../host.js';

/** The outputs of one case. */
export interface FoundOutputs {
  /** The outputs by name; all of them if there is no problem. */
  readonly tensors: ReadonlyMap<string, Tensor>;
  /** A sentence for each output that is missing or does not fit, with the next step. */
  readonly problems: readonly string[];
  /** A sentence for each file that belongs to no output. */
  readonly notes: readonly string[];
}

/** The room in an archive for other entries than the outputs. */
const ARCHIVE_SLACK_BYTES = 64 * 2 ** 20;
/** The largest sidecar, which is a small JSON object with dtype and shape. */
const MAX_SIDECAR_BYTES = 2 ** 20;
/** The largest header of .npy: 64 KiB and its start. */
const NPY_HEADER_BYTES = 65536 + 12;

/** Lists the entries of a folder that belong to no case. A misspelt name is the usual reason for a missing output. */
export function strangersIn(folder: string, ids: readonly string[]): string[] {
  checkPath(folder);
  const known = new Set<string>();
  for (const id of Array.from(readList(ids, 'verify: ids'))) {
    if (typeof id !== 'string') refuse('RANGE', 'verify: ids', 'texts', id);
    for (const suffix of ['', '.npz', '.safetensors']) known.add(id + suffix);
  }
  try {
    return readdirSync(folder).filter((name) => !name.startsWith('.') && !known.has(name));
  } catch (cause) {
    return refuseSystem('FORMAT', folder, 'a folder of outputs', cause);
  }
}

function checkPath(folder: string): void {
  if (typeof folder !== 'string' || folder.includes('\0')) refuse('RANGE', 'verify: folder', 'a path', folder);
}

/**
 * Reads the outputs of a case.
 *
 * @returns tensors, problems and notes; no content of a file makes it throw
 * @throws {RopewalkError} FORMAT for an id that leaves the folder
 */
export function readCaseOutputs(folder: string, golden: GoldenCase): FoundOutputs {
  checkPath(folder);
  golden = readGoldenCase(golden, 'verify: case');
  const own = join(folder, golden.id); // Messages have the path as the user wrote it.
  if (!resolve(own).startsWith(resolve(folder) + sep) || /[\\/]/.test(golden.id))
    refuse('FORMAT', 'vectors: id', 'a name inside the folder', golden.id);
  const archives = ['.npz', '.safetensors'].filter((suffix) => existsSync(`${own}${suffix}`));
  const isFolder = existsSync(own) && statSync(own).isDirectory();
  if (archives.length + Number(isFolder) > 1) {
    const both = [...(isFolder ? [`${golden.id}/`] : []), ...archives.map((suffix) => golden.id + suffix)];
    return failed(`expected one of ${both.join(', ')}, got all of them. Remove those that are not the last run's.`);
  }
  if (archives.length === 1) return readArchive(`${own}${archives[0]}`, golden);
  if (isFolder) return readOutputFolder(own, golden);
  const archive = `${golden.id}.npz or ${golden.id}.safetensors`;
  return failed(`expected the folder ${own}, or ${archive} beside it, got none. ${howToWrite(golden)}`);
}

/** Reads `<output>.npy`, or `<output>.bin` (little-endian, with dtype and shape in an optional `<output>.json`). */
export function readOutputFolder(folder: string, golden: GoldenCase): FoundOutputs {
  const names = readdirSync(folder);
  // The folder may also have the inputs, as in a dump, and files that verify writes.
  const known = new Set(['case.json', 'answer.json', 'expect.json']);
  for (const name of [...golden.outputs.keys(), ...golden.inputs.keys()])
    for (const suffix of ['npy', 'bin', 'json', 'bin.json']) known.add(`${name}.${suffix}`);
  const strangers = names.filter((name) => !known.has(name) && !name.startsWith('.'));
  const tensors = new Map<string, Tensor>();
  const problems: string[] = [];
  for (const [name, expected] of golden.outputs) {
    const found = [`${name}.npy`, `${name}.bin`].filter((file) => names.includes(file));
    if (found.length !== 1) {
      const none = `none${hint(strangers)}. ${howToWrite(golden)}`;
      const got = found.length > 1 ? "both. Remove the one that is not the last run's." : none;
      problems.push(`${name}: expected ${join(folder, `${name}.npy`)} or ${name}.bin, got ${got}`);
      continue;
    }
    attempt(problems, name, () => tensors.set(name, readOne(join(folder, found[0]!), expected, name)));
  }
  const notes = strangers.map((file) => `${join(folder, file)} belongs to no output of this case`);
  return { tensors, problems, notes };
}

function hint(strangers: readonly string[]): string {
  const names = strangers.slice(0, 3).map((name) => show(name));
  return names.length === 0 ? '' : ` (there is ${names.join(', ')})`;
}

function readOne(path: string, expected: Tensor, name: string): Tensor {
  const wanted = expected.size * sizeBytes(expected.dtype);
  if (path.endsWith('.npy')) {
    const bytes = readFileBytes(path, (size) => {
      if (size > wanted + NPY_HEADER_BYTES)
        fail('FORMAT', path, `expected ${describe(expected)}, ${wanted} bytes and a header, got ${size} bytes. ${FIT}`);
    });
    return fitNpy(path, parseNpy(bytes, path), expected);
  }
  for (const sidecar of [path.replace(/\.bin$/, '.json'), `${path}.json`]) {
    if (existsSync(sidecar)) checkSidecar(sidecar, expected);
  }
  const bytes = readFileBytes(path, (size) => {
    const what = `${wanted} bytes, little-endian, for ${name} ${describe(expected)}`;
    if (size !== wanted) fail('FORMAT', path, `expected ${what}, got ${size} bytes. ${FIT}`);
  });
  return bytesToTensor(bytes, expected.dtype, expected.shape, path);
}

const FIT = 'Write the whole output, dense and row-major.';

function checkSidecar(path: string, expected: Tensor): void {
  const record = parseJson(readFileBytes(path, MAX_SIDECAR_BYTES), path);
  const { dtype, shape } = Object(record) as { dtype?: unknown; shape?: unknown };
  if (dtype !== undefined && dtype !== expected.dtype) refuse('DTYPE', `${path}: dtype`, expected.dtype, dtype);
  if (shape !== undefined && JSON.stringify(shape) !== JSON.stringify(expected.shape))
    refuse('SHAPE', `${path}: shape`, `[${expected.shape}]`, shape);
}

export function outputBytes({ outputs }: GoldenCase): number {
  return [...outputs.values()].reduce((sum, { size, dtype }) => sum + size * sizeBytes(dtype), 0);
}

function readArchive(path: string, golden: GoldenCase): FoundOutputs {
  const tensors = new Map<string, Tensor>();
  const problems: string[] = [];
  const notes: string[] = [];
  attempt(problems, '', () => {
    const limit = 4 * outputBytes(golden) + ARCHIVE_SLACK_BYTES;
    const bytes = readFileBytes(path, (size) => {
      if (size > limit) refuse('FORMAT', path, `at most ${limit} bytes`, size, 'Write the outputs of this case alone.');
    });
    const entries = entriesOf(bytes, path, limit);
    for (const [name, expected] of golden.outputs) {
      const entry = entries.get(name);
      if (!entry)
        problems.push(`${name}: expected it in ${path}, got ${show([...entries.keys()])}. ${howToWrite(golden)}`);
      else attempt(problems, name, () => tensors.set(name, entry(expected)));
    }
    for (const name of entries.keys())
      if (!golden.outputs.has(name)) notes.push(`${path}: ${show(name)} belongs to no output of this case`);
  });
  return { tensors, problems, notes };
}

/** Returns a function for each entry of an archive, which reads it with the expected dtype and shape. */
function entriesOf(bytes: Uint8Array, path: string, limit: number): Map<string, (expected: Tensor) => Tensor> {
  const entries = new Map<string, (expected: Tensor) => Tensor>();
  if (path.endsWith('.npz')) {
    for (const [name, npy] of parseNpz(bytes, path, limit))
      entries.set(name, (expected) => fitNpy(`${path}: ${name}`, npy, expected));
    return entries;
  }
  const file = parseSafetensors(bytes, path);
  for (const name of file.tensors.keys()) {
    entries.set(name, (expected) => {
      const tensor = tensorFromSafetensors(bytes, file, name);
      checkFit(`${path}: ${name}`, tensor.dtype, tensor.shape, expected);
      return retyped(tensor.read() as ArrayBufferView, expected.dtype, tensor.shape);
    });
  }
  return entries;
}

function fitNpy(where: string, npy: NpyArray, expected: Tensor): Tensor {
  checkFit(where, npy.dtype, npy.shape, expected);
  const data = retyped(npy.data, expected.dtype, [npy.data.length]).read() as HostArray;
  return tensorFromNpy({ ...npy, data }, expected.dtype).contiguous();
}

/** Checks dtype and shape. u16 stands for the 16-bit floats that a format has no name for. */
function checkFit(where: string, dtype: Dtype, shape: readonly number[], expected: Tensor): void {
  const sixteen = (expected.dtype === 'bf16' || expected.dtype === 'f16') && dtype === 'u16';
  if (dtype !== expected.dtype && !sixteen) {
    const bits = 'Write bf16 as its bits: uint16 in .npy and .npz, BF16 in safetensors.';
    const next = expected.dtype === 'bf16' ? bits : `Convert it to ${expected.dtype} before it is written.`;
    fail('DTYPE', where, `expected ${describe(expected)}, got ${dtype} [${shape}]. ${next}`);
  }
  if (shape.length !== expected.shape.length || shape.some((size, d) => size !== expected.shape[d])) {
    const count = shape.reduce((n, size) => n * size, 1);
    const reshape = 'There are as many elements: reshape, or see whether dimensions are exchanged.';
    const next = count === expected.size ? reshape : FIT;
    fail('SHAPE', where, `expected ${describe(expected)}, got ${dtype} [${shape}]. ${next}`);
  }
}

/** Copies the bytes into a tensor of another dtype with the same size. */
function retyped(data: ArrayBufferView, dtype: Dtype, shape: readonly number[]): Tensor {
  return bytesToTensor(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), dtype, shape, 'verify');
}

/** `f32 [2,6,2,64]` */
function describe(tensor: Tensor): string {
  return `${tensor.dtype} [${tensor.shape}]`;
}

function howToWrite(golden: GoldenCase): string {
  const list = [...golden.outputs].map(
    ([name, tensor]) => `${name} ${describe(tensor)}, ${tensor.size * sizeBytes(tensor.dtype)} bytes as .bin`,
  );
  return `Write there: ${list.join('; ')}.`;
}

function failed(problem: string): FoundOutputs {
  return { tensors: new Map(), problems: [problem], notes: [] };
}

/** Turns a RopewalkError into a problem. Any other error is a bug, and is thrown. */
function attempt(problems: string[], name: string, read: () => void): void {
  try {
    read();
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    problems.push(name === '' || error.message.includes(name) ? error.message : `${name}: ${error.message}`);
  }
}
