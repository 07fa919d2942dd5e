/** The arrays of a dump that an option names: of numpy, PyTorch, safetensors, or raw. @module */
import { asFloatBits, readArrays, readRaw } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/node';
import type { Dtype, Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';

/** Node reads no more at once. */
const MAX_FILE_BYTES = 2 ** 31 - 1;

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
  const [, archive, name] = /^(.*\.(?:npz|pth?|safetensors))(?::(.*))?$/s.exec(given) ?? [];
  const file = archive ?? given;
  const where = `${flag}: ${file}`;
  const read = (): Uint8Array => readFileBytes(file, MAX_FILE_BYTES, where);
  const { dtype, shape, dtypeFlag = '--dtype' } = form;
  if (file.endsWith('.bin'))
    return readRaw(read(), where, { dtype, shape, dtypeField: dtypeFlag, shapeField: '--shape' });
  if (archive === undefined && !file.endsWith('.npy'))
    refuse('FORMAT', flag, 'a .npy or raw .bin file, or file.npz:name, file.pt:name, file.safetensors:name', given);
  return asFloatBits(choose(readArrays(file, read(), where), name, where, file), dtype);
}

function choose(
  tensors: ReadonlyMap<string, () => Tensor>,
  name: string | undefined,
  where: string,
  file: string,
): Tensor {
  const names = [...tensors.keys()];
  const found = name === undefined && names.length === 1 ? tensors.get(names[0]!) : tensors.get(name ?? '');
  if (found) return found();
  if (names.length === 0) fail('FORMAT', where, 'it has no tensors.');
  const some = names.slice(0, 8).map((one) => (one === '' ? `${file} without a name` : show(one)));
  const list = `${some.join(', ')}${names.length > 8 ? ', …' : ''}`;
  if (name !== undefined) return refuse('FORMAT', where, `one of its ${names.length} tensors (${list})`, name);
  return fail('FORMAT', where, `it has ${names.length} tensors (${list}). Name one: ${file}:${names[0]}.`);
}
