/** The arrays of a dump that an option names: of numpy, PyTorch, safetensors, or raw. @module */
import {
  countClaimed,
  elementsAt,
  parseNpy,
  parseNpz,
  parsePt,
  parseSafetensors,
  tensorFromNpy,
  tensorFromSafetensors,
} from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/node';
import { type Dtype, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, hostOf, refuse, show } from 'ropewalk/backend';

/** Node reads no more at once. */
const MAX_FILE_BYTES = 2 ** 31 - 1;

/** Of the arrays in a zip, which may claim any size: all that a diagnosis reads. */
const MAX_ZIP_BYTES = 2 ** 30;

/** What a file does not say itself. */
export interface DumpForm {
  /** Of a raw file; also how to take 16-bit integers, as which numpy and some programs store bf16 and f16. */
  readonly dtype?: Dtype;
  /** Of a raw file; unless given, one dimension. */
  readonly shape?: readonly number[];
  /** The option that gives the dtype of a raw file. */
  readonly dtypeFlag?: string;
}

/**
 * Reads a `.npy`, raw `.bin`, or `file.npz:name`, `file.pt:name` (or `.pth`) and `file.safetensors:name`, where the
 * name may be left out if the file has one array.
 *
 * @param given - the text of the option
 * @param flag - the option
 * @throws {RopewalkError} FORMAT, SHAPE or UNSUPPORTED, with the option and the file
 */
export function readDump(given: string, flag: string, form: DumpForm = {}): Tensor {
  const [, archive, kind, name] = /^(.*\.(npz|pth?|safetensors))(?::(.*))?$/s.exec(given) ?? [];
  const file = archive ?? given;
  const where = `${flag}: ${file}`;
  const read = (): Uint8Array => readFileBytes(file, MAX_FILE_BYTES, where);
  if (file.endsWith('.npy')) return asFloats(tensorFromNpy<Dtype>(parseNpy(read(), where)), form.dtype);
  if (file.endsWith('.bin')) return readRaw(read(), where, form);
  if (archive === undefined)
    refuse('FORMAT', flag, 'a .npy or raw .bin file, or file.npz:name, file.pt:name, file.safetensors:name', given);
  const bytes = read();
  const tensors = {
    npz: () => new Map([...parseNpz(bytes, where, MAX_ZIP_BYTES)].map(([key, npy]) => [key, () => tensorFromNpy(npy)])),
    pt: () => new Map([...parsePt(bytes, where, MAX_ZIP_BYTES)].map(([key, tensor]) => [key, () => tensor])),
    safetensors: () => {
      const header = parseSafetensors(bytes, where);
      return new Map([...header.tensors.keys()].map((key) => [key, () => tensorFromSafetensors(bytes, header, key)]));
    },
  }[kind === 'pth' ? 'pt' : (kind as 'npz' | 'pt' | 'safetensors')]();
  return asFloats(choose(tensors, name, where, file), form.dtype);
}

function choose(tensors: Map<string, () => Tensor>, name: string | undefined, where: string, file: string): Tensor {
  const names = [...tensors.keys()];
  const found = name === undefined && names.length === 1 ? tensors.get(names[0]!) : tensors.get(name ?? '');
  if (found) return found();
  if (names.length === 0) fail('FORMAT', where, 'it has no tensors.');
  const some = names.slice(0, 8).map((one) => (one === '' ? `${file} without a name` : show(one)));
  const list = `${some.join(', ')}${names.length > 8 ? ', …' : ''}`;
  if (name !== undefined) return refuse('FORMAT', where, `one of its ${names.length} tensors (${list})`, name);
  return fail('FORMAT', where, `it has ${names.length} tensors (${list}). Name one: ${file}:${names[0]}.`);
}

/** The bits of bf16 and f16 are often stored as integers: numpy has no bf16, and PyTorch views it as int16. */
function asFloats(tensor: Tensor, dtype: Dtype | undefined): Tensor {
  const bits = tensor.dtype === 'u16' || tensor.dtype === 'i16';
  if (!bits || (dtype !== 'bf16' && dtype !== 'f16')) return tensor;
  const { buffer, byteOffset, length } = hostOf(tensor, 'dump') as Int16Array | Uint16Array;
  const { shape, strides, offset } = tensor;
  return tensorFrom(new Uint16Array(buffer, byteOffset, length), { dtype, shape, strides, offset });
}

function readRaw(bytes: Uint8Array, where: string, { dtype, shape, dtypeFlag = '--dtype' }: DumpForm): Tensor {
  if (dtype === undefined)
    fail('FORMAT', where, `a raw file does not say what it holds. Give ${dtypeFlag}, such as ${dtypeFlag} f32.`);
  const unit = sizeBytes(dtype);
  if (bytes.length % unit !== 0)
    refuse(
      'FORMAT',
      where,
      `a multiple of ${unit} bytes, as elements are ${dtype}`,
      bytes.length,
      `Check ${dtypeFlag}.`,
    );
  const given = shape ?? [bytes.length / unit];
  const size = (countClaimed(given) ?? Number.POSITIVE_INFINITY) * unit;
  if (size !== bytes.length)
    refuse(
      'FORMAT',
      where,
      `${size} bytes for shape ${show(given)} of ${dtype}`,
      bytes.length,
      'Check --shape and --dtype.',
    );
  return tensorFrom(elementsAt(bytes, 0, dtype, bytes.length / unit), { dtype, shape: given });
}
