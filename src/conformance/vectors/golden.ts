/**
 * Folders that `ropewalk vectors` wrote, as cases.
 *
 * @module
 */
import { referenceRunner } from '../../reference/index.js';
import { type ConformanceCase, formatLabel } from '../case.js';
import type { VectorFolder } from '../folder.js';
import { bindGolden } from '../golden/case.js';
import { asFormatError, openGolden } from '../golden/folder.js';
import { judgeGolden } from '../golden/judge.js';

/**
 * Makes the cases of a golden folder. Each is judged twice: by the exact result of its inputs, and by the outputs that the folder holds.
 *
 * @param folder - with the manifest.json that `ropewalk vectors` wrote
 * @throws {RopewalkError} FORMAT when the manifest is malformed
 */
export function goldenVectorCases(folder: VectorFolder): ConformanceCase[] {
  const golden = openGolden(folder);
  return golden.cases.map((entry) => ({
    suite: 'golden',
    label: formatLabel('GOLDEN', {
      vector: `${folder.name}/${entry.id}`,
      op: entry.op,
      type: entry.inputs[0]?.dtype ?? '',
      shape: entry.inputs[0]?.shape ?? [],
    }),
    async run(runner) {
      const c = await golden.load(entry);
      const where = `vectors/${folder.name}/${entry.id}`;
      try {
        bindGolden(c, referenceRunner());
      } catch (error) {
        throw asFormatError(error, where);
      }
      return judgeGolden(c, runner, c.outputs);
    },
  }));
}
