/** The array that an option names in a dump: `x.npy`, `raw.bin`, `file.npz:name`. @module */
import { type DumpForm, dumpOf } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import type { Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';

/** Node cannot read more at once. */
export const MAX_FILE_BYTES = 2 ** 31 - 1;

/**
 * Reads a `.npy`, raw `.bin`, or `file.npz:name`, `file.pt:name` (or `.pth`) and `file.safetensors:name`, where the
 * name may be left out if the file has one array.
 *
 * @param given - the text of the option
 * @param flag - the option
 * @throws {RopewalkError} FORMAT, SHAPE or UNSUPPORTED, with the option and the file
 */
export function readDump(given: string, flag: string, form: DumpForm): Tensor {
  const [, archive, name] = /^(.*\.(?:npz|pth?|safetensors))(?::(.*))?$/s.exec(given) ?? [];
  const file = archive ?? given;
  if (archive === undefined && !/\.(?:npy|bin)$/.test(file))
    refuse('FORMAT', flag, 'a .npy or raw .bin file, or file.npz:name, file.pt:name, file.safetensors:name', given);
  const where = `${flag}: ${file}`;
  const dump = dumpOf(file, readFileBytes(file, MAX_FILE_BYTES, where), where);
  return dump.read(name, { dtypeField: '--dtype', shapeField: '--shape', ...form });
}
