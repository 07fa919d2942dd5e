/** The role of an array of a dump, by its name. @module */
import type { Role } from './diagnose.worker.js';

/**
 * Returns the role that an array's name suggests: `q_embed` and `q_post` are after the rotation, `q_pre` before it.
 *
 * @param name - such as `layers.0.q_rot` or `positions`
 */
export function roleOf(name: string): Role | undefined {
  const word = name.toLowerCase().replace(/^.*[./]/, '');
  if (/position|(^|[^a-z])pos($|[^a-z])|pos_?ids?$/.test(word)) return 'positions';
  if (/norm|weight/.test(word)) return 'norm';
  if (/(^|[^a-z])y$|out|rot|after|result|post|embed/.test(word)) return 'y';
  if (/(^|[^a-z])[xqk]$|in|before|query|key|pre/.test(word)) return 'x';
  return undefined;
}
