/**
 * Checks the imports (CONTRIBUTING.md, "Packages"). Packages import only the packages that their package.json lists, by
 * name and by their entries; so do tests. The folders inside `ropewalk` keep their order. Files form no cycle, not even with types.
 * Only files for Node import node: modules.
 *
 * Usage: node scripts/check-imports.mjs [ROOT]. Exits 1 and names each offending import.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileOf, importsOf, ROOT, sourcesIn } from './imports.mjs';

/**
 * The packages whose folders of src (rooms) have an order. Each room has the list of rooms that it may import besides
 * itself. `entry` stands for the files directly in src.
 */
const ROOMS = {
  // The oracle shares no code with the backends that it judges.
  ropewalk: {
    core: [],
    ops: ['core'],
    reference: ['core', 'ops'],
    backends: ['core', 'ops'],
    entry: ['core', 'ops', 'reference', 'backends'],
  },
  '@ropewalk/diagnose': {
    read: [],
    positions: [],
    claims: ['read'],
    kernel: ['read'],
    mutants: ['read', 'kernel'],
    measure: ['read', 'kernel'],
    fit: ['read', 'claims', 'kernel', 'measure'],
    match: ['read', 'claims', 'kernel', 'measure', 'fit'],
    caches: ['measure'],
    say: ['read', 'claims', 'kernel', 'measure', 'fit', 'match'],
    entry: ['read', 'positions', 'claims', 'kernel', 'mutants', 'measure', 'fit', 'match', 'caches', 'say'],
  },
};

const root = resolve(process.argv[2] ?? ROOT);
const homes = readdirSync(join(root, 'packages')).map((folder) => join('packages', folder));
if (existsSync(join(root, 'site'))) homes.push('site');
const packages = homes.map((folder) => {
  const home = join(root, folder);
  const { name, exports = {}, dependencies = {} } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
  return { name, src: join(home, 'src'), exports, dependencies };
});
const files = packages.flatMap((owner) => sourcesIn(owner.src).map((path) => ({ owner, path })));
const known = new Set(files.map(({ path }) => path));

/** Says whether a file is for Node: it belongs to the command line, or its name contains `node`. */
const forNode = ({ owner, path }) => owner.name === '@ropewalk/cli' || /(^|[\\/.])node\.(ts|mjs)$/.test(path);
const roomOf = (owner, path) => {
  const parts = relative(owner.src, path).split(/[\\/]/);
  return parts.length === 1 ? 'entry' : parts[0];
};

const problems = [];
/** Maps each file to the files of its package that it imports. */
const graph = new Map();
for (const file of files) {
  const { owner, path } = file;
  const where = relative(root, path).replaceAll('\\', '/');
  graph.set(path, []);
  for (const { target } of importsOf(readFileSync(path, 'utf8'))) {
    if (target.startsWith('node:')) {
      if (!forNode(file)) problems.push(`${where}: imports ${target}; only cli and *.node.ts may`);
    } else if (target.startsWith('virtual:')) {
      if (owner.name !== '@ropewalk/site')
        problems.push(`${where}: imports ${target}, which only the site's build makes`);
    } else if (target.startsWith('.')) {
      const to = fileOf(path, target) ?? resolve(dirname(path), target);
      if (relative(owner.src, to).startsWith('..'))
        problems.push(`${where}: imports ${target}, which is outside its package`);
      else if (!existsSync(to)) problems.push(`${where}: imports ${target}, which does not exist`);
      else {
        if (/(^|[\\/.])node\.(ts|mjs)$/.test(to) && !forNode(file))
          problems.push(`${where}: imports the Node-only file ${target}; only cli and *.node.ts may`);
        const rooms = ROOMS[owner.name];
        if (rooms) {
          const [room, toRoom] = [roomOf(owner, path), roomOf(owner, to)];
          if (!(room in rooms)) problems.push(`${where}: room "${room}" is not in ROOMS`);
          else if (room !== toRoom && !rooms[room].includes(toRoom))
            problems.push(`${where}: ${room} may not import ${toRoom} (${target})`);
        }
        if (known.has(to)) graph.get(path).push(to);
      }
    } else {
      const name = target.split('/', target.startsWith('@') ? 2 : 1).join('/');
      const listed = packages.find((other) => other.name === name);
      if (!(name in owner.dependencies))
        problems.push(`${where}: imports ${target}, which is not among the dependencies of ${owner.name}`);
      else if (listed && !(`.${target.slice(name.length)}` in listed.exports))
        problems.push(`${where}: imports ${target}, which is no entry of ${name}`);
    }
  }
}

// Tests reach other packages than their own by entries. AssemblyScript, which asc compiles, has none.
const tests = [join(root, 'test'), ...homes.map((folder) => join(root, folder, 'test'))].filter(existsSync);
for (const path of tests.flatMap(sourcesIn)) {
  const own = relative(root, path).split(/[\\/]/).slice(0, 2).join('/');
  for (const { target } of importsOf(readFileSync(path, 'utf8'))) {
    const to = target.startsWith('.') ? relative(root, resolve(dirname(path), target)).replaceAll('\\', '/') : '';
    if (/^packages\/[^/]+\/src\//.test(to) && !to.startsWith(`${own}/`))
      problems.push(
        `${relative(root, path).replaceAll('\\', '/')}: imports ${target}, a file of another package; use its entries`,
      );
  }
}

const state = new Map();
const visit = (path, trail) => {
  if (state.get(path) === 'done') return;
  if (state.get(path) === 'open') {
    problems.push(
      `cycle: ${[...trail.slice(trail.indexOf(path)), path].map((f) => relative(root, f).replaceAll('\\', '/')).join(' → ')}`,
    );
    return;
  }
  state.set(path, 'open');
  for (const next of graph.get(path) ?? []) visit(next, [...trail, path]);
  state.set(path, 'done');
};
for (const { path } of files) visit(path, []);

for (const problem of problems) console.error(problem);
console.log(`check-imports: ${files.length} files in ${packages.length} packages, ${problems.length} problems`);
process.exitCode = problems.length > 0 ? 1 : 0;
