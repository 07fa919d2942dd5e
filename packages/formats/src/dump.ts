/** Dumps of a kernel's arrays: files of numpy, PyTorch or safetensors, or raw bytes. @module */
import { type Dtype, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, hostOf, refuse } from 'ropewalk/backend';
import { checkBytes, type OptionNames, readOptions, show } from 'ropewalk/internal';
import { countClaimed, elementsAt } from './bytes.js';
import { parseNpy, tensorFromNpy } from './npy.js';
import { parseNpz } from './npz.js';
import { parsePt } from './pt.js';
import { parseSafetensors, tensorFromSafetensors } from './safetensors.js';

/** The limit for all arrays of a zip together, which may claim any size. */
const MAX_ZIP_BYTES = 2 ** 30;

/** Facts about an array that its file does not state. */
export interface DumpForm {
  /**
   * The dtype of raw bytes. 16-bit integers become bf16 or f16 if this says so: numpy has no bf16, and PyTorch views it
   * as int16.
   */
  readonly dtype?: Dtype;
  /** The shape of raw bytes. Default: one dimension. */
  readonly shape?: readonly number[];
  /** The name of the field with the dtype in messages. Default: `dtype`. */
  readonly dtypeField?: string;
  /** The name of the field with the shape in messages. Default: `shape`. */
  readonly shapeField?: string;
}

const NAMES: OptionNames<DumpForm> = { dtype: true, shape: true, dtypeField: true, shapeField: true };

/** An opened dump. */
export interface DumpFile {
  /** The names of its arrays. A .npy and raw bytes have one array, which is called ''. */
  readonly names: readonly string[];
  /** Whether the file says nothing of its dtype and shape. */
  readonly isRaw: boolean;
  /**
   * Reads an array.
   *
   * @param name - its name; may be left out if the file has one array
   * @throws {RopewalkError} FORMAT when there is no such array, or dtype and shape do not fit the bytes; UNSUPPORTED for a
   *   dtype that Ropewalk does not have
   */
  read(name?: string, form?: DumpForm): Tensor;
}

/** Readers of files with arrays, by the extension of the file's name. */
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
 * Opens a `.npy`, `.npz`, `.pt`, `.pth` or `.safetensors` file, or a raw `.bin` of little-endian elements.
 *
 * @param file - its name, whose extension says what it is
 * @param bytes - the whole file
 * @param where - names it in messages. Default: `file`
 * @throws {RopewalkError} FORMAT for a file that is damaged or of another kind
 */
export function dumpOf(file: string, bytes: Uint8Array, where: string = file): DumpFile {
  if (typeof file !== 'string') refuse('RANGE', 'dumpOf: file', "a file's name", file);
  const end = /\.([^.]*)$/.exec(file)?.[1] ?? '';
  checkBytes(bytes, where);
  if (end.toLowerCase() === 'bin')
    return { names: [''], isRaw: true, read: (_name, form = {}) => readRaw(bytes, where, form) };
  const reader = Object.hasOwn(READERS, end) ? READERS[end] : end === 'pth' ? READERS.pt : undefined;
  if (!reader) refuse('FORMAT', where, 'a .npy, .npz, .pt, .pth, .safetensors or .bin file', file);
  const arrays = reader(bytes, where);
  return {
    names: [...arrays.keys()],
    isRaw: false,
    read: (name, form = {}) => asFloatBits(choose(arrays, name, where, file)(), form.dtype),
  };
}

function choose(
  arrays: ReadonlyMap<string, () => Tensor>,
  name: string | undefined,
  where: string,
  file: string,
): () => Tensor {
  const names = [...arrays.keys()];
  const found = arrays.get(name === undefined && names.length === 1 ? names[0]! : (name ?? ''));
  if (found) return found;
  if (names.length === 0) fail('FORMAT', where, 'it has no tensors.');
  const some = names.slice(0, 8).map((one) => (one === '' ? `${file} without a name` : show(one)));
  const list = `${some.join(', ')}${names.length > 8 ? ', …' : ''}`;
  if (name !== undefined) return refuse('FORMAT', where, `one of its ${names.length} tensors (${list})`, name);
  return fail('FORMAT', where, `it has ${names.length} tensors (${list}). Name one: ${file}:${names[0]}.`);
}

function readRaw(bytes: Uint8Array, where: string, form: DumpForm): Tensor {
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

function asFloatBits(tensor: Tensor, dtype: Dtype | undefined): Tensor {
  const bits = tensor.dtype === 'u16' || tensor.dtype === 'i16';
  if (!bits || (dtype !== 'bf16' && dtype !== 'f16')) return tensor;
  const { buffer, byteOffset, length } = hostOf(tensor, 'dump') as Int16Array | Uint16Array;
  const { shape, strides, offset } = tensor;
  return tensorFrom(new Uint16Array(buffer, byteOffset, length), { dtype, shape, strides, offset });
}
