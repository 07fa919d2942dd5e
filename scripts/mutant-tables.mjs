/**
 * Prints the two tables of docs/mutants.md: the number of known bugs that each set of vectors kills, and their names.
 *
 * Usage: node --import tsx scripts/mutant-tables.mjs
 */
import { fileURLToPath } from 'node:url';
import { CAUSES } from '../packages/diagnose/src/kernel/mutant.ts';
import { MUTANTS } from '../packages/diagnose/src/mutants/catalogue.ts';
import { vectorFolder } from '../packages/oracle/src/folder.node.ts';
import { goldenRopeSuite } from '../packages/oracle/src/golden/suite.ts';
import { scoreVectors } from '../packages/oracle/src/mutants/score.ts';
import { extendedCases, publishedCases } from '../packages/oracle/src/published.ts';
import { vectorCases } from '../packages/oracle/src/vectors.ts';

const folder = (name) => vectorCases(vectorFolder(fileURLToPath(new URL(`../vectors/${name}`, import.meta.url))));
const NAMES = ['ggml', 'onnx', 'infiniop', 'llaisys', 'huggingface'];
const sets = [
  ...NAMES.map((name) => ({ name, row: `\`vectors/${name}\``, cases: folder(name) })),
  { name: 'published', row: 'the 96 published cases', cases: publishedCases() },
  { name: 'extended', row: 'our extended cases', cases: extendedCases() },
  { name: 'golden', row: 'our golden cases', cases: goldenRopeSuite() },
];
const scored = [];
for (const { name, row, cases } of sets) {
  const { rotating, leftOut, mutants } = await scoreVectors(cases, MUTANTS);
  const outcomes = new Map(mutants.map(({ mutant, outcome }) => [mutant, outcome]));
  scored.push({ name, row, counted: rotating - leftOut.length, outcomes });
}
const killedBy = (mutant, some) => some.some(({ outcomes }) => outcomes.get(mutant) === 'killed');
const ofCause = (cause) => MUTANTS.filter((mutant) => mutant.cause === cause);
const line = (cells) => `| ${cells.join(' | ')} |`;
const causes = Object.keys(CAUSES);
const rowOf = (row, some) => {
  const count = (list) => list.filter((mutant) => killedBy(mutant, some)).length;
  const cases = some.reduce((sum, { counted }) => sum + counted, 0);
  const killed = count(MUTANTS);
  return line([row, cases, ...causes.map((cause) => count(ofCause(cause))), killed, MUTANTS.length - killed]);
};

console.log(
  line([
    'vectors',
    'cases that count',
    ...causes.map((cause) => `${cause} (${ofCause(cause).length})`),
    'killed',
    'missed',
  ]),
);
console.log(`|---|${'---:|'.repeat(causes.length + 3)}`);
for (const one of scored) console.log(rowOf(one.row, [one]));
console.log(rowOf('all of these', scored));
console.log();
console.log(line(['known bug', ...scored.map(({ name }) => name)]));
console.log(`|---|${':-:|'.repeat(scored.length)}`);
const SIGNS = { killed: '✓', survived: '○', idle: ' ' };
for (const cause of causes) {
  console.log(`| **${cause}: ${CAUSES[cause]}** ${'| '.repeat(scored.length)}|`);
  for (const mutant of ofCause(cause))
    console.log(line([`\`${mutant.id}\``, ...scored.map(({ outcomes }) => SIGNS[outcomes.get(mutant)])]));
}
