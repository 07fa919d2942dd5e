/** Dumps of a kernel's arrays: of numpy, PyTorch, safetensors, or raw bytes. @module */
import { type Dtype, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, hostOf, refuse } from 'ropewalk/backend';
import { checkBytes, checkTensor, type OptionNames, readOptions, show } from 'ropewalk/internal';
import { countClaimed, elementsAt } from './bytes.js';
import { parseNpy, tensorFromNpy } from './npy.js';
import { parseNpz } from './npz.js';
import { parsePt } from './pt.js';
import { parseSafetensors, tensorFromSafetensors } from './safetensors.js';

/** Of the arrays in a zip, which may claim any size: all that a diagnosis reads. */
const MAX_ZIP_BYTES = 2 ** 30;

/** What a raw file does not say itself. */
export interface RawForm {
  readonly dtype?: Dtype;
  /** Unless given, one dimension. */
  readonly shape?: readonly number[];
  /** What messages call the field that gives the dtype; `dtype` unless given. */
  readonly dtypeField?: string;
  /** The same of the shape. */
  readonly shapeField?: string;
}

const NAMES: OptionNames<RawForm> = { dtype: true, shape: true, dtypeField: true, shapeField: true };

/** Readers of files with arrays, by the end of the file's name. */
const READERS: Readonly<Record<string, (bytes: Uint8Array, where: string) => Map<string, () => Tensor>>> = {
  npy: (bytes, where) => new Map([['', () => tensorFromNpy<Dtype>(parseNpy(bytes, where))]]),
  npz: (bytes, where) =>
    new Map([...parseNpz(bytes, where, MAX_ZIP_BYTES)].map(([key, npy]) => [key, () => tensorFromNpy<Dtype>(npy)])),
  pt: (bytes, where) => new Map([...parsePt(bytes, where, MAX_ZIP_BYTES)].map(([key, tensor]) => [key, () => tensor])),
  safetensors: (bytes, where) => {
    const header = parseSafetensors(bytes, where);
    return new Map([...header.tensors.keys()].map((key) => [key, () => tensorFromSafetensors(bytes, header, key)]));
  },
};

/**
 * Reads the arrays of a `.npy`, `.npz`, `.pt`, `.pth` or `.safetensors` file.
 *
 * @param file - its name, whose end says what it is
 * @param bytes - the whole file
 * @param where - names it in messages
 * @returns what makes each array, by its name; that of a .npy is ''
 * @throws {RopewalkError} FORMAT for a file that is damaged or of another kind; what makes an array also UNSUPPORTED,
 *   for a dtype that Ropewalk does not have
 */
export function readArrays(file: string, bytes: Uint8Array, where: string): ReadonlyMap<string, () => Tensor> {
  if (typeof file !== 'string') refuse('RANGE', 'readArrays: file', "a file's name", file);
  const end = /\.([^.]*)$/.exec(file)?.[1] ?? '';
  const reader = Object.hasOwn(READERS, end) ? READERS[end] : end === 'pth' ? READERS.pt : undefined;
  if (!reader) refuse('FORMAT', where, 'a .npy, .npz, .pt, .pth or .safetensors file', file);
  checkBytes(bytes, where);
  return reader(bytes, where);
}

/**
 * Reads raw little-endian elements.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @param form - the dtype, which must be given, and the shape
 * @throws {RopewalkError} FORMAT when there is no dtype, or dtype and shape need another number of bytes
 */
export function readRaw(bytes: Uint8Array, where: string, form: RawForm): Tensor {
  checkBytes(bytes, where);
  const { dtype, shape, dtypeField = 'dtype', shapeField = 'shape' } = readOptions(form, `${where}: form`, NAMES);
  if (dtype === undefined)
    fail('FORMAT', where, `a raw file does not say what it holds. Give ${dtypeField}, such as ${dtypeField} f32.`);
  const unit = sizeBytes(dtype);
  if (bytes.length % unit !== 0)
    refuse(
      'FORMAT',
      where,
      `a multiple of ${unit} bytes, as elements are ${dtype}`,
      bytes.length,
      `Check ${dtypeField}.`,
    );
  const given = shape ?? [bytes.length / unit];
  const size = (countClaimed(given) ?? Number.POSITIVE_INFINITY) * unit;
  if (size !== bytes.length)
    refuse(
      'FORMAT',
      where,
      `${size} bytes for shape ${show(given)} of ${dtype}`,
      bytes.length,
      `Check ${shapeField} and ${dtypeField}.`,
    );
  return tensorFrom(elementsAt(bytes, 0, dtype, bytes.length / unit), { dtype, shape: given });
}

/**
 * Takes 16-bit integers as the bits of bf16 or f16: numpy has no bf16, and PyTorch views it as int16.
 *
 * @param tensor - in host memory
 * @param dtype - what the integers are; any other tensor, and any other dtype, leave it as it is
 */
export function asFloatBits(tensor: Tensor, dtype: Dtype | undefined): Tensor {
  checkTensor(tensor, 'dump');
  const bits = tensor.dtype === 'u16' || tensor.dtype === 'i16';
  if (!bits || (dtype !== 'bf16' && dtype !== 'f16')) return tensor;
  const { buffer, byteOffset, length } = hostOf(tensor, 'dump') as Int16Array | Uint16Array;
  const { shape, strides, offset } = tensor;
  return tensorFrom(new Uint16Array(buffer, byteOffset, length), { dtype, shape, strides, offset });
}
