/**
 * Writes contributing/api-report.txt: every public name of every package with its declaration, so that a review sees
 * how a change affects users. `npm run api` builds the packages and starts it. It needs TypeScript 6, which
 * `npm run peers` installs.
 *
 * Usage: node scripts/docs/api-report.mjs [--check]. With --check it writes nothing, prints the lines that differ, and
 * exits 1 when there are any.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../imports.mjs';
import ts from './node_modules/typescript/lib/typescript.js';

const REPORT = join(ROOT, 'contributing/api-report.txt');
/** The report may have at most this many names. A namespace such as `ggml` is one name. */
const MOST_NAMES = 495;

/** The public entries: all except the internal ones, which our packages share, and the benchmark's. */
const entries = readdirSync(join(ROOT, 'packages')).flatMap((folder) => {
  const home = join(ROOT, 'packages', folder);
  const { name, exports } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
  return Object.entries(exports)
    .filter(([entry]) => !/^\.\/(package\.json|internal)/.test(entry))
    .map(([entry, { types }]) => ({ entry: name + entry.slice(1), file: join(home, types) }));
});
const program = ts.createProgram(
  entries.map(({ file }) => file),
  { module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2023, skipLibCheck: true, noEmit: true },
);
const checker = program.getTypeChecker();
const printer = ts.createPrinter({ removeComments: true });

const resolved = (symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol);
const exportsOf = (module) =>
  checker.getExportsOfModule(module).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));

function* linesOf(module, prefix) {
  for (const symbol of exportsOf(module)) {
    const target = resolved(symbol);
    if (target.flags & ts.SymbolFlags.ValueModule) {
      yield `${prefix}${symbol.name}: namespace`;
      yield* linesOf(target, `${prefix}${symbol.name}.`);
      continue;
    }
    const texts = (target.declarations ?? []).map((node) => {
      const file = node.getSourceFile();
      const text = printer.printNode(ts.EmitHint.Unspecified, node, file).replace(/\s+/g, ' ');
      return text.replace(/^export /, '').replace(/^declare /, '');
    });
    for (const text of texts) yield `${prefix}${symbol.name}: ${text}`;
  }
}

let count = 0;
const lines = [];
for (const { entry, file } of entries) {
  const module = checker.getSymbolAtLocation(program.getSourceFile(file));
  const names = exportsOf(module).length;
  count += names;
  lines.push(`# ${entry}: ${names} names`, ...linesOf(module, ''), '');
}
lines.unshift(`${count} public names. Written by npm run api.`, '');
const text = lines.join('\n');
if (process.argv[2] === '--check') {
  const [old, now] = [new Set(readFileSync(REPORT, 'utf8').split('\n')), new Set(lines)];
  const differences = [
    ...[...old].filter((line) => !now.has(line)).map((line) => `- ${line}`),
    ...[...now].filter((line) => !old.has(line)).map((line) => `+ ${line}`),
  ];
  for (const line of differences) console.log(line);
  if (differences.length > 0) console.log('Run npm run api, and commit contributing/api-report.txt.');
  if (count > MOST_NAMES) console.log(`${count} public names; at most ${MOST_NAMES} are wanted`);
  process.exitCode = differences.length > 0 || count > MOST_NAMES ? 1 : 0;
} else {
  writeFileSync(REPORT, text);
  console.log(`api-report: ${count} public names`);
}
