/** A command loads the code that it needs, and no more: most of the time of a short command goes into loading. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { commandPath, ROOT } from '../../../test/support/command.js';
import { wholeGraph } from '../../onnx/test/import/whole-graph.js';

const folder = mkdtempSync(join(tmpdir(), 'starts-'));
after(() => rmSync(folder, { recursive: true }));
const seen = join(folder, 'seen.txt');
writeFileSync(
  join(folder, 'hooks.mjs'),
  `import { appendFileSync } from 'node:fs';
  export const load = (url, context, next) => {
    appendFileSync(${JSON.stringify(seen)}, url + '\\n');
    return next(url, context);
  };`,
);
writeFileSync(
  join(folder, 'register.mjs'),
  "import { register } from 'node:module'; register('./hooks.mjs', import.meta.url);",
);

/** Runs a command; its status, the files of our packages that it loaded (`onnx/dist/index.js`), and the packages. */
function loadedBy(...args: string[]) {
  writeFileSync(seen, '');
  const hook = ['--import', pathToFileURL(join(folder, 'register.mjs')).href];
  const { status, stderr } = spawnSync(process.execPath, [...hook, commandPath(), ...args], {
    cwd: ROOT,
    encoding: 'utf8',
    input: '',
  });
  const urls = readFileSync(seen, 'utf8').split('\n');
  const start = pathToFileURL(join(ROOT, 'packages/')).href;
  const files = urls.filter((url) => url.startsWith(start)).map((url) => url.slice(start.length));
  return { status, stderr, files, packages: [...new Set(files.map((file) => file.split('/')[0]))].sort() };
}

describe('what a command loads', () => {
  for (const { args, packages, without, status = 0 } of [
    { args: ['--version'], packages: ['cli', 'ropewalk'], without: /ropewalk\/dist\/(?:reference|backends\/w)/ },
    {
      args: ['inspect', 'models/marline'],
      packages: ['checkpoint', 'cli', 'dialects', 'formats', 'ropewalk'],
      without:
        /ropewalk\/dist\/(?:reference|backends\/w)|dialects\/dist\/(?:index|convert\/convert)\.|formats\/dist\/zip/,
    },
    {
      args: ['generate', 'hello', '-n', '1'],
      packages: ['cli', 'dialects', 'formats', 'model', 'ropewalk'],
      without: /ropewalk\/dist\/backends\/webgpu|dialects\/dist\/(?:index|convert\/convert)\.|formats\/dist\/zip/,
    },
    {
      args: ['diagnose', '--demo'],
      packages: ['cli', 'diagnose', 'ropewalk'],
      without: /ropewalk\/dist\/backends\/w/,
      status: 1, // the kernel is wrong
    },
    {
      args: ['check', '--backend', 'reference', '--filter', '^published'],
      packages: ['cli', 'diagnose', 'dialects', 'formats', 'oracle', 'ropewalk'],
      without: /backends\/w/,
    },
  ])
    test(`${args.join(' ')}: ${packages.join(', ')}`, () => {
      const loaded = loadedBy(...args);
      assert.equal(loaded.status, status, loaded.stderr);
      assert.deepEqual(loaded.packages, packages);
      assert.deepEqual(
        loaded.files.filter((file) => without.test(file)),
        [],
      );
    });

  test('what is asked for is loaded: a graph, and a device', () => {
    const file = join(folder, 'graph.onnx');
    writeFileSync(file, wholeGraph({ form: 'genai-nodes', layers: [{ headDim: 8, pairing: 'half', base: 10000 }] }));
    const graph = loadedBy('inspect', file);
    assert.equal(graph.status, 0, graph.stderr);
    assert.ok(graph.packages.includes('onnx'), graph.packages.join());
    const device = loadedBy('check', '--backend', 'cann-2024', '--filter', '^published');
    assert.ok(device.packages.includes('devices'), device.stderr);
  });
});
