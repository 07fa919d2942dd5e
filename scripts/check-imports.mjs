/**
 * Checks who imports whom (docs: CONTRIBUTING.md, "Rooms"): the arrows between rooms, cycles between files,
 * node: modules outside Node-only files, and packages inside the library.
 *
 * Usage: node scripts/check-imports.mjs [ROOT]. Exits 1 and names each offending import.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Room → rooms it may import, beside itself. */
const ARROWS = {
  core: [],
  ops: ['core'],
  reference: ['core', 'ops'],
  dialects: ['core', 'ops', 'convert'],
  backends: ['core', 'ops', 'formats', 'graph'],
  convert: ['core', 'ops', 'dialects'],
  formats: ['core', 'ops', 'reference', 'dialects'],
  // What each ONNX operator does.
  operators: ['core', 'formats'],
  // An .onnx file → its RoPE.
  import: ['core', 'ops', 'dialects', 'formats', 'operators'],
  // Plans as ONNX graphs.
  graph: ['core', 'ops', 'formats', 'operators'],
  conformance: ['core', 'ops', 'reference', 'dialects', 'backends', 'formats', 'graph'],
  diagnose: ['core', 'ops', 'reference', 'dialects', 'backends', 'formats', 'conformance'],
  aicore: ['core', 'ops', 'backends'],
  model: ['core', 'ops', 'dialects', 'backends', 'formats', 'entry'],
  // The package's front door: src/index.ts and the files beside it.
  entry: ['core', 'ops', 'reference', 'backends'],
  cli: [
    'core',
    'ops',
    'reference',
    'dialects',
    'backends',
    'formats',
    'graph',
    'import',
    'conformance',
    'convert',
    'diagnose',
    'aicore',
    'model',
    'entry',
  ],
};
/** Packages a room may import. The library itself has no runtime dependency. */
const PACKAGES = {
  cli: ['commander', 'cli-progress'],
  formats: ['fflate', '@bufbuild/protobuf', '@bufbuild/protobuf/wkt'],
  model: ['@huggingface/tokenizers', '@huggingface/jinja'],
};

const root = resolve(process.argv[2] ?? join(dirname(fileURLToPath(import.meta.url)), '..'));
const src = join(root, 'src');
const files = readdirSync(src, { recursive: true, encoding: 'utf8' })
  // assembly/ is AssemblyScript: asc resolves its imports, and nothing else may import it.
  .filter((name) => name.endsWith('.ts') && !/[\\/]assembly[\\/]/.test(name))
  .map((name) => join(src, name));

const roomOf = (file) => {
  const parts = relative(src, file).split(/[\\/]/);
  return parts.length === 1 ? 'entry' : parts[0];
};
const IMPORT =
  /(?:^|\n)\s*(?:import|export)\s(?:[^'";]*?\sfrom\s)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]\s*\)/g;

const problems = [];
/** file → files it imports. Type-only imports count: they vanish at run time, but a reader follows them. */
const graph = new Map();
for (const file of files) {
  const room = roomOf(file);
  const name = relative(root, file);
  const text = readFileSync(file, 'utf8');
  graph.set(file, []);
  if (!(room in ARROWS))
    problems.push(`${name}: room "${room}" is not in the design; add it to ARROWS and to CONTRIBUTING.md`);
  for (const match of text.matchAll(IMPORT)) {
    const target = match[1] ?? match[2];
    if (target.startsWith('node:')) {
      if (room !== 'cli' && !file.endsWith('.node.ts'))
        problems.push(`${name}: imports ${target}; only cli/ and *.node.ts may`);
    } else if (target.startsWith('.')) {
      const to = resolve(dirname(file), target.replace(/\.js$/, '.ts'));
      const toRoom = roomOf(to);
      if (!files.includes(to)) problems.push(`${name}: imports ${target}, which does not exist`);
      else if (toRoom !== room && !(ARROWS[room] ?? []).includes(toRoom))
        problems.push(`${name}: ${room} may not import ${toRoom} (${target})`);
      if (to.endsWith('.node.ts') && room !== 'cli' && !file.endsWith('.node.ts')) {
        problems.push(`${name}: imports the Node-only file ${target}; only cli/ and *.node.ts may`);
      }
      graph.get(file).push(to);
    } else if (!(PACKAGES[room] ?? []).includes(target))
      problems.push(`${name}: imports package ${target}; ${room} may import ${PACKAGES[room]?.join(', ') ?? 'none'}`);
  }
}

const state = new Map();
const visit = (file, path) => {
  if (state.get(file) === 'done') return;
  if (state.get(file) === 'open') {
    problems.push(`cycle: ${[...path.slice(path.indexOf(file)), file].map((f) => relative(root, f)).join(' → ')}`);
    return;
  }
  state.set(file, 'open');
  for (const next of graph.get(file) ?? []) visit(next, [...path, file]);
  state.set(file, 'done');
};
for (const file of files) visit(file, []);

for (const problem of problems) console.error(problem);
console.log(`check-imports: ${files.length} files, ${problems.length} problems`);
process.exitCode = problems.length > 0 ? 1 : 0;
