/** A stamp that travels with a model: later it is held against what the model's files rotate. @module */
import { refuse } from 'ropewalk/backend';
import { Fields } from 'ropewalk/internal';
import type { PassportFinding } from './lint.js';

/** The name of a stamp's form. */
export const STAMP_FORM = 'rope-passport/1';

/**
 * Holds a stamp against a model.
 *
 * @param stamp - what `ropewalk passport --stamp` wrote, parsed
 * @param where - its file's name
 * @param hash - the SHA-256 of the model's table, in hexadecimal
 * @throws {RopewalkError} FORMAT for something that is no stamp
 */
export function checkStamp(stamp: unknown, where: string, hash: string): PassportFinding[] {
  const fields = new Fields(stamp, where);
  const form = fields.text('form');
  if (form !== STAMP_FORM) refuse('FORMAT', `${where}: form`, STAMP_FORM, form, 'Write the stamp again with --stamp.');
  const stamped = fields.text('hash');
  if (!/^[0-9a-f]{64}$/.test(stamped)) refuse('FORMAT', `${where}: hash`, '64 hexadecimal digits', stamped);
  if (stamped === hash) return [];
  const says = `it was written for another RoPE: its hash begins with ${stamped.slice(0, 12)}, and that of this model with ${hash.slice(0, 12)}.`;
  return [
    {
      level: 'error',
      where,
      says,
      repair: 'If the change is meant, write the stamp again: ropewalk passport MODEL --stamp FILE.',
    },
  ];
}
