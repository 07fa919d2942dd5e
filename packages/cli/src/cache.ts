/** `ropewalk cache`: lists or removes the weights that are kept on disk between runs. @module */
import { statSync } from 'node:fs';
import { mebibytes } from '@ropewalk/model';
import { cacheFolder, listCache, removeCache } from '@ropewalk/model-onnx/node';
import { fail } from 'ropewalk/backend';
import type { Switches, Texts } from './options.js';
import { counted, EXIT, printResult } from './output.js';

/** Lists the cache, and removes all of it with `--remove`. */
export async function cache(options: Texts<'cache'> & Switches<'remove' | 'json'>): Promise<number> {
  if (options.cache === '') fail('FORMAT', '--cache', 'the name is empty. Give a folder.');
  const folder = options.cache ?? cacheFolder();
  // The default folder exists only after something has been kept.
  if (options.cache !== undefined && !statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    fail('FORMAT', '--cache', `there is no folder ${folder}.`);
  const entries = await listCache(folder);
  if (options.remove) await removeCache(folder);
  const sizeBytes = entries.reduce((sum, entry) => sum + entry.sizeBytes, 0);
  const day = (date: Date): string => date.toISOString().slice(0, 10);
  const whole = entries.filter(({ model }) => model !== undefined).length;
  const others = entries.length > whole ? ` and ${entries.length - whole} not whole` : '';
  const models = `${counted(whole, 'model')}${others}, ${mebibytes(sizeBytes)}`;
  const notWhole = 'not whole: it is being written, or was left by a process that was ended';
  printResult(options.json, {
    json: () => ({ folder, removed: options.remove === true, sizeBytes, entries }),
    lines: () => [
      ...entries.map(
        (entry) => `${mebibytes(entry.sizeBytes)}, used last on ${day(entry.usedAt)}: ${entry.model ?? notWhole}`,
      ),
      `${folder}: ${options.remove ? 'removed ' : ''}${models}`,
    ],
  });
  return EXIT.ok;
}
