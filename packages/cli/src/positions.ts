/** `ropewalk positions`: holds a log of positions against what must be so. @module */
import { checkPositionLog } from '@ropewalk/diagnose';
import { fail } from 'ropewalk/backend';
import type { Switches } from './options.js';
import { counted, EXIT, printable, printResult } from './output.js';
import { isPiped, readStdin, readTextFile } from './text-input.js';

/** @returns 0 when every position is as it must be, else 1 */
export async function positions(file: string | undefined, { json }: Switches<'json'>): Promise<number> {
  const named = file ?? (isPiped() ? '-' : undefined);
  if (named === undefined) fail('FORMAT', 'log', 'no log is given. Name a file of JSON lines, or pipe one in.');
  const faults = checkPositionLog(named === '-' ? await readStdin('positions') : readTextFile(named!));
  printResult(json, {
    json: () => ({ faults }),
    lines: () => [
      ...faults.map(
        ({ request, step, line, says }) => `request ${printable(request)}, step ${step} (line ${line}): ${says}`,
      ),
      faults.length === 0 ? 'every position is as it must be' : counted(faults.length, 'fault'),
    ],
  });
  return faults.length === 0 ? EXIT.ok : EXIT.failed;
}
