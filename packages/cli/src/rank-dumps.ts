/** The dumps of several ranks: files by a pattern, and one run put together from theirs. @module */
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Observation } from '@ropewalk/diagnose';
import { type Tensor, tensorFrom } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type CacheLayout, positionList, sideOf } from './cache-input.js';

/** Whether an option names the files of several ranks. */
export const isPattern = (text: string | undefined): boolean => text?.includes('*') ?? false;

/** The files of `rank*\/q.npy`, by the numbers in their names; `:name` stays behind each. @param count - how many there must be */
export function rankFiles(pattern: string, flag: string, count?: number): string[] {
  const [, path, name = ''] = /^(.*?)((?<=\.\w+):.*)?$/s.exec(pattern)!;
  const found = filesLike(path!).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  if (found.length < 2 || (count !== undefined && found.length !== count))
    refuse('FORMAT', flag, `a pattern of ${count ?? 'at least two'} files, one for each rank`, found);
  return found.map((file) => file + name);
}

function filesLike(path: string): string[] {
  if (!isPattern(path)) return [path];
  const last = path.slice(path.lastIndexOf('/') + 1);
  if (!isPattern(last)) return filesLike(dirname(path)).map((folder) => join(folder, last));
  const like = new RegExp(`^${last.replace(/[^\w*-]/g, '\\$&').replaceAll('*', '.*')}$`);
  return filesLike(dirname(path)).flatMap((folder) => {
    try {
      return readdirSync(folder).flatMap((one) => (like.test(one) ? [join(folder, one)] : []));
    } catch {
      return []; // another rank's folder may be a file
    }
  });
}

/** One run of the tokens of all ranks, in the order of the ranks. Ranks that share heads have the same positions. */
export function joinRanks(runs: readonly Observation[], layout: CacheLayout): Observation {
  const joined = (field: 'x' | 'y'): Tensor => {
    const sides = runs.map((run) => sideOf(run[field], `--${field}`, layout));
    const { heads, headDim } = sides[0]!;
    const odd = sides.find((one) => one.heads !== heads || one.headDim !== headDim);
    if (odd) refuse('SHAPE', `--${field}`, `${heads} heads of ${headDim} on every rank`, [odd.heads, odd.headDim]);
    const data = new Float64Array(sides.reduce((sum, one) => sum + one.data.length, 0));
    let at = 0;
    for (const one of sides) {
      data.set(one.data, at);
      at += one.data.length;
    }
    return tensorFrom(data, { shape: [data.length / heads / headDim, heads, headDim] });
  };
  return {
    ...runs[0]!,
    x: joined('x'),
    y: joined('y'),
    positions: runs.flatMap((one) => positionList(one.positions)),
    layout: 'bsnh',
  };
}
