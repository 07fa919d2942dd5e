/** The package as it is published: built, packed, installed in a folder of its own, imported by its entries. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { buildSync } from 'esbuild';
import { consumerTool, installInto, ROOT } from './support/build.js';

const root = ROOT;
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const folder = mkdtempSync(join(tmpdir(), 'package-'));
after(() => rmSync(folder, { recursive: true }));

describe('the built package', () => {
  const home = join(folder, 'node_modules/ropewalk');
  test('installs, and holds what it needs, no sources and no tests', () => {
    installInto(folder);
    const files = readdirSync(home, { recursive: true, encoding: 'utf8' }).map((name) => name.replaceAll('\\', '/'));
    for (const name of [
      'dist/index.js',
      'dist/index.d.ts',
      'dist/cli/main.js',
      'LICENSE',
      'README.md',
      'models/marline/model-q8_0.gguf',
    ])
      assert.ok(files.includes(name), name);
    assert.deepEqual(
      files.filter((name) => /(^|\/)(src|test|node_modules)(\/|$)|\.test\.|\.map$|(?<!\.d)\.ts$/.test(name)),
      [],
    );
  });

  test('its declarations are types: no text of a program is in them', () => {
    const declarations = readdirSync(home, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.d.ts'),
    );
    const large = declarations.filter((name) => statSync(join(home, name)).size > 20_000);
    assert.deepEqual(large, []);
  });

  test('every entry imports, and has types', () => {
    const entries = Object.keys(manifest.exports).filter((name) => name !== './package.json');
    const code = entries
      .map(
        (name) =>
          `console.log(${JSON.stringify(name)}, Object.keys(await import(${JSON.stringify(join('ropewalk', name))})).length > 0);`,
      )
      .join('\n');
    writeFileSync(join(folder, 'all.mjs'), code);
    const ran = spawnSync(process.execPath, ['all.mjs'], { cwd: folder, encoding: 'utf8' });
    assert.equal(ran.stdout, entries.map((name) => `${name} true\n`).join(''), ran.stderr);
    for (const name of entries)
      assert.ok(readFileSync(join(home, manifest.exports[name].types), 'utf8').length > 0, name);
  });

  test('nothing makes code of strings: ONNX, npz, tokenizers and chat templates work where the runtime forbids it', () => {
    const code = `
      import { readFileSync } from 'node:fs';
      import { tensorFrom } from 'ropewalk';
      import { parseNpz, writeNpz } from 'ropewalk/formats/npz';
      import { parseOnnxTensor, writeOnnxModel, writeOnnxTensor } from 'ropewalk/formats/onnx';
      import { ropeModel } from 'ropewalk/graph';
      import { importOnnx } from 'ropewalk/import';
      import { renderChat, tokenizerFromJson } from 'ropewalk/model';
      const x = tensorFrom(Float32Array.of(1, 2));
      const { graph } = ropeModel({ spec: { headDim: 4, pairing: 'half', base: 500 }, form: 'primitives', angles: 'f32-reduced', context: 16 });
      const json = (name) => JSON.parse(readFileSync(new URL('./node_modules/ropewalk/models/marline/' + name, import.meta.url), 'utf8'));
      const tokenizer = tokenizerFromJson({ tokenizerJson: json('tokenizer.json'), tokenizerConfig: json('tokenizer_config.json') });
      const templateText = '{% for message in messages %}<{{ message.role }}>{{ message.content | trim }}{% endfor %}';
      console.log(JSON.stringify([
        parseNpz(writeNpz(new Map([['x', x]]))).size,
        parseOnnxTensor(writeOnnxTensor(x, 'x')).name,
        importOnnx(writeOnnxModel(graph.model('rope', 'test'))).ropes[0].spec.base,
        tokenizer.decode(tokenizer.encode('a whale')).trim(),
        renderChat(tokenizer, [{ role: 'user', content: ' Hi ' }], { templateText }),
      ]));`;
    writeFileSync(join(folder, 'strict.mjs'), code);
    const ran = spawnSync(process.execPath, ['--disallow-code-generation-from-strings', 'strict.mjs'], {
      cwd: folder,
      encoding: 'utf8',
    });
    assert.equal(ran.stdout, '[1,"x",500,"a whale","<user>Hi"]\n', ran.stderr);
  });

  test('its command runs every suite', () => {
    const ran = spawnSync(process.execPath, [join(home, manifest.bin.ropewalk), 'check'], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 2 ** 26,
    });
    assert.equal(ran.status, 0, ran.stderr);
    assert.match(ran.stdout, /cases passed, 0 failed\n$/);
    assert.match(ran.stderr, /^Backend webgpu: skipped, the package webgpu is not installed: npm install webgpu$/m);
  });

  test('CommonJS requires it', () => {
    const code =
      "const { ropewalk } = require('ropewalk'); ropewalk().then((rw) => console.log(rw.capabilities().backend));";
    const ran = spawnSync(process.execPath, ['--eval', code], { cwd: folder, encoding: 'utf8' });
    assert.equal(ran.stdout, 'cpu\n', ran.stderr);
  });

  /** What a compiler says of a program in the folder: strict, every declaration checked, with no types but those of a browser and of ES2022. */
  function compile(compiler: string, name: string, code: string, resolution: object): string {
    writeFileSync(join(folder, name), code);
    const lib = ['es2022', 'dom'];
    const compilerOptions = {
      noEmit: true,
      strict: true,
      skipLibCheck: false,
      target: 'es2022',
      lib,
      types: [],
      ...resolution,
    };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: [name] }));
    return spawnSync(process.execPath, [join(dirname(compiler), '../bin/tsc'), '-p', '.'], {
      cwd: folder,
      encoding: 'utf8',
    }).stdout;
  }
  const current = join(root, 'node_modules/typescript/lib/tsc.js');
  const oldest = consumerTool('typescript-5.6');

  test('types are checked where it is used', () => {
    const use = (body: string): string =>
      compile(
        current,
        'use.mts',
        `import { ropewalk } from 'ropewalk';\nimport { rotaryEmbedding } from 'ropewalk/onnx';\nconst rw = await ropewalk();\nvoid rotaryEmbedding;\n${body}`,
        { module: 'nodenext' },
      );
    assert.equal(use(`rw.rope(rw.allocate('f32', [1, 1, 4]), [0], { pairing: 'half', base: 10000 });`), '');
    assert.match(use(`rw.rope(rw.allocate('f32', [1, 1, 4]), [0], { base: 10000 });`), /Property 'pairing' is missing/);
  });

  const everything = Object.keys(manifest.exports)
    .filter((name) => name !== './package.json')
    .map((name, i) => `export * as entry${i} from '${join('ropewalk', name)}';\n`)
    .join('');
  test('the types of every entry compile, libraries checked too, with ES2022 and DOM alone', () => {
    assert.equal(compile(current, 'all.mts', everything, { module: 'nodenext' }), '');
    assert.equal(compile(current, 'all.ts', everything, { module: 'esnext', moduleResolution: 'bundler' }), '');
  });

  test('so they do in TypeScript 5.6', { skip: oldest.missing }, () => {
    assert.equal(oldest.missing === false && compile(oldest.path, 'all.mts', everything, { module: 'nodenext' }), '');
  });

  test('the library entry has no runtime dependency and no side effect', () => {
    const seen = new Set<string>();
    const visit = (path: string): void => {
      if (seen.has(path)) return;
      seen.add(path);
      for (const [, from, dynamic] of readFileSync(path, 'utf8').matchAll(
        /^(?:import|export)[^;]*?from '([^']+)';|\bimport\('([^']+)'\)/gm,
      )) {
        const target = from ?? dynamic!;
        assert.ok(target.startsWith('.'), `${path} imports ${target}`);
        visit(join(dirname(path), target));
      }
    };
    visit(join(home, 'dist/index.js'));
    assert.ok(seen.size > 20);
    assert.equal(manifest.sideEffects, false);
  });
});

test('a page that opens cpu with openCpu bundles no GPU code and no reference, in at most 60 kB gzipped', () => {
  const page = `import { openCpu, Ropewalk } from 'ropewalk';
    const rw = new Ropewalk(await openCpu());
    console.log(rw.add(rw.tensor(Float32Array.of(1)), rw.tensor(Float32Array.of(2))));`;
  const { metafile, outputFiles } = buildSync({
    stdin: { contents: page, resolveDir: folder },
    bundle: true,
    minify: true,
    format: 'esm',
    metafile: true,
    write: false,
  });
  const [output] = Object.values(metafile.outputs);
  const inside = Object.entries(output!.inputs).flatMap(([path, { bytesInOutput }]) => (bytesInOutput > 0 ? path : []));
  assert.deepEqual(
    inside.filter((path) => /webgpu|reference/.test(path)),
    [],
  );
  const size = gzipSync(outputFiles[0]!.contents, { level: 9 }).length;
  assert.ok(size <= 60_000, `${size} bytes`);
});

test('check-imports finds what it is there for', () => {
  const bad = join(folder, 'bad');
  const write = (name: string, text: string): void => {
    mkdirSync(dirname(join(bad, 'src', name)), { recursive: true });
    writeFileSync(join(bad, 'src', name), text);
  };
  write('core/a.ts', `import { b } from './b.js';\nimport '../ops/c.js';\nexport const a = b;`);
  write('core/b.ts', `import { a } from './a.js';\nexport const b = () => a;`);
  write('ops/c.ts', `import 'node:fs';\nimport 'lodash';\nimport './gone.js';\nexport {};`);
  write('reference/d.ts', `import type { x } from '../backends/e.js';\nexport type y = x;`);
  write('backends/e.ts', `import type { y } from './f.js';\nexport type x = y;`);
  write('backends/f.ts', `import type { x } from './e.js';\nexport type y = x;`);
  const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/check-imports.mjs'), bad], {
    encoding: 'utf8',
  });
  assert.equal(status, 1);
  for (const message of [
    /core may not import ops/,
    /cycle: src\/core\/a\.ts → src\/core\/b\.ts → src\/core\/a\.ts/,
    /cycle: src\/backends\/e\.ts → src\/backends\/f\.ts → src\/backends\/e\.ts/,
    /imports node:fs; only cli\/ and \*\.node\.ts may/,
    /imports package lodash; ops may import none/,
    /imports \.\/gone\.js, which does not exist/,
    /reference may not import backends/,
  ]) {
    assert.match(stderr, message);
  }
});
