/**
 * Checks that no package has more lines than its budget. Generated files and AssemblyScript do not count. A change that
 * needs more lines raises the budget in the same commit and says why. A change that removes lines lowers it.
 *
 * Usage: node scripts/size.mjs. Exits 1 and names each package above its budget.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, sourcesIn } from './imports.mjs';

const BUDGETS = {
  ascend: 6_690,
  bench: 2_450,
  checkpoint: 1_924,
  cli: 9_224,
  devices: 2_070,
  diagnose: 14_216,
  dialects: 9_374,
  formats: 3_225,
  model: 14_129,
  'model-onnx': 3_125,
  onnx: 10_743,
  oracle: 8_639,
  probe: 3_299,
  ropewalk: 15_104,
  trace: 3_893,
};

let above = 0;
let sum = 0;
for (const name of readdirSync(join(ROOT, 'packages'))) {
  const files = sourcesIn(join(ROOT, 'packages', name, 'src')).filter((path) => !path.includes('.generated.'));
  const lines = files.reduce((count, path) => count + readFileSync(path, 'utf8').split('\n').length - 1, 0);
  sum += lines;
  if (lines <= (BUDGETS[name] ?? 0)) continue;
  above++;
  console.error(
    `size: packages/${name} has ${lines} lines, its budget is ${BUDGETS[name] ?? 'missing in scripts/size.mjs'}`,
  );
}
console.log(`size: ${sum} lines in packages, ${above} above their budget`);
process.exitCode = above === 0 ? 0 : 1;
