/** Options of `ropewalk diagnose` that a user may have left out: those with which y is what is expected. @module */
import { hiddenNorm, isAsExpected } from '@ropewalk/diagnose/internal';
import { groupLayers, longestOf } from '@ropewalk/dialects/internal/models';
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
  for (const change of changesOf(options, task))
    try {
      const other = await readTask({ ...options, ...change });
      if (isAsExpected({ ...other.observation, layout }, other.expected!))
        return Object.entries(change)
          .map(([name, value]) => `${flagOf(name)} ${value}`)
          .join(' ');
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error; // the dumps do not fit this option
    }
  const norm = hiddenNorm({ ...observation, layout }, expected);
  if (!norm) return undefined;
  const weights = norm.weight.readNumbers() as Float64Array;
  const [least, most] = [Math.min(...weights), Math.max(...weights)].map((value) => Number(value.toPrecision(3)));
  return `--norm-weight FILE --norm-eps ${norm.eps}: each head is divided by its RMS first, and has a weight from ${least} to ${most}`;
}

/** The other kinds of layers of the model, the contexts that choose other frequencies, the other 16-bit dtype. */
function changesOf({ dtype }: DiagnoseOptions, { source, layer = 0 }: Task): Partial<DiagnoseOptions>[] {
  const model = source?.kind === 'model' ? source.model : undefined;
  const layers = groupLayers(model?.layers ?? []).filter((group) => group.rope && !group.layers.includes(layer));
  const { short, context } = (model && longestOf(model)) ?? {};
  return [
    ...layers.map((group) => ({ layer: String(group.layers[0]) })),
    ...[short, context].flatMap((tokens) => (tokens === undefined ? [] : [{ context: String(tokens) }])),
    ...(dtype === 'bf16' ? [{ dtype: 'f16' }] : dtype === 'f16' ? [{ dtype: 'bf16' }] : []),
  ];
}
