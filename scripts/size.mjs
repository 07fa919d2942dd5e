/**
 * Checks that no package has more lines than its budget, generated files and AssemblyScript left out. A change that needs more raises the
 * budget in the same commit and says why; one that takes lines away lowers it.
 *
 * Usage: node scripts/size.mjs. Exits 1 and names each package above its budget.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, sourcesIn } from './imports.mjs';

const BUDGETS = {
  ascend: 6_100,
  cli: 9_300,
  devices: 2_100,
  diagnose: 9_800,
  dialects: 7_900,
  formats: 5_100,
  model: 11_000,
  onnx: 13_700,
  oracle: 8_800,
  ropewalk: 14_400,
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
