/** Options of `ropewalk diagnose` that a user may have left out: those with which y is what is expected. @module */
import { optionsLeftOut } from '@ropewalk/checkpoint/internal';
import { hiddenNorm, isAsExpected } from '@ropewalk/diagnose/internal';
import { type RopeLayout, RopewalkError } from 'ropewalk';
import { type DiagnoseOptions, readTask, type Task } from './diagnose-input.js';
import { flagOf } from './options.js';

/**
 * Finds options, in words, with which a kernel is right that is wrong with those that were given.
 *
 * @param layout - the layout in which the dumps were read
 */
export async function optionsThatAreRight(
  options: DiagnoseOptions,
  task: Task,
  layout: RopeLayout,
): Promise<string | undefined> {
  const { observation, expected, ranks } = task;
  if (!expected || ranks) return undefined;
  const isRightWith = async (change: Partial<DiagnoseOptions>): Promise<boolean> => {
    try {
      const other = await readTask({ ...options, ...change });
      return isAsExpected({ ...other.observation, layout }, other.expected!);
    } catch (error) {
      if (error instanceof RopewalkError) return false; // the dumps do not fit this option
      throw error;
    }
  };
  for (const one of optionsLeftOut(task.source, task.layer ?? 0, options.dtype)) {
    const change = Object.fromEntries(Object.entries(one).map(([name, value]) => [name, String(value)]));
    if (await isRightWith(change))
      return Object.entries(change)
        .map(([name, value]) => `${flagOf(name)} ${value}`)
        .join(' ');
  }
  if (options.normWeight !== undefined && (await isRightWith({ normWeight: undefined, normEps: undefined })))
    return 'no --norm-weight, so that x may be the norm’s result';
  const norm = hiddenNorm({ ...observation, layout }, expected);
  if (!norm) return undefined;
  const weights = norm.weight.readNumbers() as Float64Array;
  const [least, most] = [Math.min(...weights), Math.max(...weights)].map((value) => Number(value.toPrecision(3)));
  return `--norm-weight FILE --norm-eps ${norm.eps}: each head is divided by its RMS first, and has a weight from ${least} to ${most}`;
}
