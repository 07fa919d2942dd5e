/** Reads golden folders, as `ropewalk vectors` writes them, in every form of files. @module */
import {
  type NpyArray,
  parseNpy,
  parseNpz,
  parseSafetensors,
  tensorFromNpy,
  tensorFromSafetensors,
} from '@ropewalk/formats';
import { type HostArray, type OpPlan, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import { readFolder, readManifest, type VectorFolder, whereOf } from '../folder.js';
import { bytesToArray } from '../host.js';
import { parseHeaderArray } from './c-header.js';
import type { GoldenCase } from './case.js';
import {
  GOLDEN_FORMS,
  type GoldenEntry,
  type GoldenForm,
  type GoldenManifest,
  type GoldenTensor,
  parseGoldenManifest,
} from './manifest.js';

/** A function that imports `@ropewalk/onnx`, which reads and writes ONNX files; this package does not depend on it. */
export type OnnxLoader = () => Promise<{
  parseOnnxTensor(bytes: Uint8Array, where: string): { readonly tensor: Tensor };
  writeOnnxTest(
    golden: GoldenCase,
    plan: OpPlan,
    producer: string,
  ): string | readonly { readonly path: string; readonly bytes: Uint8Array; readonly tensor?: string }[];
}>;

/** Loads the ONNX package that the caller named. @throws {RopewalkError} UNSUPPORTED when none was named */
export function loadOnnx(onnx: OnnxLoader | undefined, where: string): ReturnType<OnnxLoader> {
  if (typeof onnx !== 'function')
    fail('UNSUPPORTED', where, 'ONNX files need @ropewalk/onnx. Give onnx, a function that imports it.');
  return onnx();
}

/** A golden folder whose manifest was read. Tensors are read case by case. */
export interface GoldenFolder extends GoldenManifest {
  /** The folder's own name. */
  readonly name: string;
  /**
   * Reads a case's tensors and checks their hashes.
   *
   * @throws {RopewalkError} FORMAT when a file is missing or malformed, or has another dtype, shape or hash
   */
  load(entry: GoldenEntry): Promise<GoldenCase>;
}

/**
 * Opens a golden folder.
 *
 * @param folder - the folder, which has the manifest.json that `ropewalk vectors` wrote
 * @param onnx - reads tensors that are in ONNX files only
 * @throws {RopewalkError} FORMAT when the manifest is missing or malformed
 */
export function goldenOf(folder: VectorFolder, onnx?: OnnxLoader): GoldenFolder {
  readFolder(folder, 'vectors: folder');
  const manifest = parseGoldenManifest(readManifest(folder, 'manifest.json'));
  return {
    ...manifest,
    name: folder.name,
    async load(entry) {
      const files = new Map<string, Uint8Array>();
      const load = async (list: readonly GoldenTensor[]): Promise<Map<string, Tensor>> => {
        const tensors = new Map<string, Tensor>();
        for (const one of list) tensors.set(one.name, await readGoldenTensor(folder, one, files, onnx));
        return tensors;
      };
      const { id, op, about, separates, attributes, tolerance, rope } = entry;
      const inputs = await load(entry.inputs);
      const outputs = await load(entry.outputs);
      return { id, op, about, separates, attributes, inputs, outputs, tolerance, rope };
    },
  };
}

/** Reads a tensor from the first form that is there, and checks its hash. `files` keeps files that tensors share. */
async function readGoldenTensor(
  folder: VectorFolder,
  tensor: GoldenTensor,
  files: Map<string, Uint8Array>,
  onnx: OnnxLoader | undefined,
) {
  const form = GOLDEN_FORMS.find((f) => tensor.files[f] !== undefined);
  const where = `${whereOf(folder)}/${tensor.files[form ?? 'npy'] ?? 'manifest.json'}`;
  let read: Tensor;
  if (form === undefined) {
    if (!tensor.values)
      fail('FORMAT', `${where}: ${tensor.name}`, `it has no values and names no file: ${GOLDEN_FORMS.join(', ')}`);
    read = fromValues(tensor, where);
  } else {
    const path = tensor.files[form]!;
    const bytes = files.get(path) ?? folder.read(path);
    files.set(path, bytes);
    read = await decodeTensor(bytes, form, tensor, where, onnx);
  }
  const hash = await sha256(elementBytes(read));
  if (hash !== tensor.sha256) {
    const hashes = `${hash.slice(0, 16)}…, not ${tensor.sha256.slice(0, 16)}…`;
    fail('FORMAT', `${where}: ${tensor.name}`, `its sha256 is ${hashes}: the file was changed after it was written`);
  }
  return read;
}

type Wanted = Pick<GoldenTensor, 'name' | 'dtype' | 'shape'>;

/**
 * Reads a tensor from a file's bytes, whose memory it may share. A tensor of another shape with as many elements is
 * reshaped, as ONNX folds heads into rows. In npy, u16 stands for the bits of bf16 and f16.
 */
export async function decodeTensor(
  bytes: Uint8Array,
  form: GoldenForm,
  wanted: Wanted,
  where: string,
  onnx?: OnnxLoader,
): Promise<Tensor> {
  const { name, dtype } = wanted;
  const at = `${where}: ${name}`;
  switch (form) {
    case 'npy':
      return fromNpy(parseNpy(bytes, where), wanted, where);
    case 'npz': {
      const arrays = parseNpz(bytes, where);
      return fromNpy(arrays.get(name) ?? refuse('FORMAT', where, `an array ${name}`, [...arrays.keys()]), wanted, at);
    }
    case 'safetensors': {
      const file = parseSafetensors(bytes, where);
      if (!file.tensors.has(name)) refuse('FORMAT', where, `a tensor ${name}`, [...file.tensors.keys()]);
      return fitted(tensorFromSafetensors(bytes, file, name), wanted, at);
    }
    case 'onnx': {
      const { parseOnnxTensor } = await loadOnnx(onnx, where);
      return fitted(parseOnnxTensor(bytes, where).tensor, wanted, where);
    }
    case 'bin': {
      const data = bytesToArray(bytes, dtype, where);
      return fitted(tensorFrom(data, { dtype, shape: [data.length] }), wanted, where);
    }
    case 'c':
      return fitted(tensorFrom(parseHeaderArray(bytes, name, dtype, where), { dtype }), wanted, at);
  }
}

function fromNpy(npy: NpyArray, wanted: Wanted, where: string): Tensor {
  const { dtype } = wanted;
  const bitsOnly = (dtype === 'bf16' || dtype === 'f16') && npy.dtype === 'u16';
  return fitted(tensorFromNpy(npy, bitsOnly ? dtype : npy.dtype), wanted, where);
}

function fitted(tensor: Tensor, { dtype, shape }: Wanted, where: string): Tensor {
  if (tensor.dtype !== dtype) refuse('FORMAT', where, `elements of ${dtype}`, tensor.dtype);
  if (tensor.size !== countElements(shape))
    refuse('FORMAT', where, `${countElements(shape)} elements for shape [${shape}]`, [...tensor.shape]);
  return tensor.contiguous().view(shape);
}

function fromValues({ dtype, shape, values }: GoldenTensor, where: string): Tensor {
  const data = newArray(dtype, countElements(shape));
  for (const [n, value] of values!.entries()) {
    data[n] = data instanceof BigInt64Array || data instanceof BigUint64Array ? BigInt(value) : value;
    if (Number(data[n]) !== value) refuse('FORMAT', where, `values that ${dtype} holds`, value);
  }
  return tensorFrom(data, { dtype, shape });
}

/** Views a tensor's elements as a .bin file has them: little-endian and row-major. */
export function elementBytes(tensor: Tensor): Uint8Array {
  const data = tensor.read() as HostArray;
  return new Uint8Array(data.buffer, data.byteOffset, tensor.size * sizeBytes(tensor.dtype));
}

/** Hashes bytes, in hexadecimal. A page that came over plain http has no crypto.subtle. */
export async function sha256(bytes: Uint8Array): Promise<string> {
  const { subtle } = globalThis.crypto ?? {};
  if (!subtle) fail('UNSUPPORTED', 'vectors: sha256', 'this runtime has no crypto.subtle. Serve the page over https.');
  // The bytes are copied, as digest takes no view of shared memory.
  const digest = new Uint8Array(await subtle.digest('SHA-256', Uint8Array.from(bytes)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
