/** Tests the published packages: built, packed, installed in a new folder, and imported by their entries. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { consumerTool, ENTRIES, HOMEPAGE, installInto, PACKAGES, ROOT, tarballOf } from './support/build.js';

const root = ROOT;
const folder = mkdtempSync(join(tmpdir(), 'package-'));
after(() => rmSync(folder, { recursive: true }));

describe('the built packages', () => {
  const modules = installInto(folder);
  /** Lists every file of an installed package, by its path in the package. */
  const filesOf = (home: string): string[] =>
    readdirSync(home, { recursive: true, encoding: 'utf8' })
      .map((name) => name.replaceAll('\\', '/'))
      .filter((name) => statSync(join(home, name)).isFile());
  for (const { name, exports, bin = {} } of PACKAGES.values()) {
    const home = join(modules, name);
    test(`${name} holds what it needs, no sources and no tests`, () => {
      const files = filesOf(home);
      const targets = Object.values(exports).flatMap((to) => (typeof to === 'string' ? to : Object.values(to)));
      for (const file of [...targets, ...Object.values(bin), './LICENSE', './README.md'])
        assert.ok(files.includes(file.slice(2)), file);
      if (name === '@ropewalk/cli')
        for (const file of ['models/marline/model-q8_0.gguf', 'harness/rope.c']) assert.ok(files.includes(file), file);
      assert.deepEqual(
        files.filter((file) => /(^|\/)(src|test|node_modules)(\/|$)|\.test\.|\.map$|(?<!\.d)\.ts$/.test(file)),
        [],
      );
      // Declarations contain only types, so large ones contain program text by mistake.
      const large = files.filter((file) => file.endsWith('.d.ts') && statSync(join(home, file)).size > 22_000);
      assert.deepEqual(large, []);
    });
  }

  test("the repository's homepage is every package's, and its page links there", () => {
    for (const { name } of PACKAGES.values()) {
      const { homepage } = JSON.parse(readFileSync(join(modules, name, 'package.json'), 'utf8'));
      assert.equal(homepage, HOMEPAGE, name);
      const page = readFileSync(join(modules, name, 'README.md'), 'utf8');
      assert.ok(page.endsWith(`\nAll pages: <${HOMEPAGE}>\n`), name);
    }
  });

  test('all have one version, and ask for exactly that of each other', () => {
    const { version } = PACKAGES.get('ropewalk')!;
    for (const manifest of PACKAGES.values()) {
      assert.equal(manifest.version, version, manifest.name);
      for (const [name, wanted] of Object.entries(manifest.dependencies ?? {}))
        if (/^(@ropewalk\/|ropewalk$)/.test(name)) assert.equal(wanted, version, `${manifest.name}: ${name}`);
    }
  });

  test('the kernel is small', () => {
    const manifest = PACKAGES.get('ropewalk')!;
    const home = join(modules, 'ropewalk');
    const unpacked = filesOf(home).reduce((sum, file) => sum + statSync(join(home, file)).size, 0);
    assert.ok(statSync(tarballOf(manifest)).size <= 350_000, `${statSync(tarballOf(manifest)).size} bytes packed`);
    assert.ok(unpacked <= 1_200_000, `${unpacked} bytes unpacked`);
    assert.equal(manifest.dependencies, undefined);
  });

  test('every entry imports', () => {
    const code = ENTRIES.map(
      (entry) => `console.log('${entry}', Object.keys(await import('${entry}')).length > 0);\n`,
    ).join('');
    writeFileSync(join(folder, 'all.mjs'), code);
    const ran = spawnSync(process.execPath, ['all.mjs'], { cwd: folder, encoding: 'utf8' });
    assert.equal(ran.stdout, ENTRIES.map((entry) => `${entry} true\n`).join(''), ran.stderr);
  });

  test('nothing makes code of strings: ONNX, npz, tokenizers and chat templates work where the runtime forbids it', () => {
    const code = `
      import { readFileSync } from 'node:fs';
      import { tensorFrom } from 'ropewalk';
      import { parseNpz, writeNpz } from '@ropewalk/formats';
      import { renderChat, tokenizerFromJson } from '@ropewalk/model';
      import { importOnnx, parseOnnxTensor, ropeModel, writeOnnxModel, writeOnnxTensor } from '@ropewalk/onnx';
      const x = tensorFrom(Float32Array.of(1, 2));
      const { graph } = ropeModel({ spec: { headDim: 4, pairing: 'half', base: 500 }, form: 'primitives', angles: 'f32-reduced', context: 16 });
      const json = (name) => JSON.parse(readFileSync(new URL('./node_modules/@ropewalk/cli/models/marline/' + name, import.meta.url), 'utf8'));
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
    const ran = spawnSync(join(modules, '.bin/ropewalk'), ['check'], {
      cwd: folder,
      encoding: 'utf8',
      maxBuffer: 2 ** 26,
    });
    assert.equal(ran.status, 0, ran.stderr);
    assert.match(ran.stdout, /cases passed, 0 failed\n$/);
    assert.match(ran.stderr, /^Backend webgpu: skipped, the package webgpu is not installed: npm install webgpu$/m);
  });

  test('a kernel in a file runs, and reads no file', () => {
    writeFileSync(
      join(folder, 'reads.mjs'),
      `import { launchKernel } from '@ropewalk/ascend';
       const fs = launchKernel.constructor('return process')().getBuiltinModule('node:fs');
       try { fs.readFileSync('strict.mjs'); } catch (error) { console.log(error.code); }
       export default { name: 'x', operator: 'add', dtypes: ['f32'], arguments: { x: 'a', y: 'b', z: 'out' }, blocks: 1, kernel() {} };`,
    );
    const args = ['aicore', '--kernel', 'reads.mjs', '--shape', '2,64'];
    const ran = spawnSync(join(modules, '.bin/ropewalk'), args, { cwd: folder, encoding: 'utf8' });
    assert.equal(ran.stderr, 'ERR_ACCESS_DENIED\n');
    assert.match(ran.stdout, /verdict +did nothing\n$/);
  });

  test('CommonJS requires it', () => {
    const code =
      "const { ropewalk } = require('ropewalk'); ropewalk().then((rw) => console.log(rw.capabilities().backend));";
    const ran = spawnSync(process.execPath, ['--eval', code], { cwd: folder, encoding: 'utf8' });
    assert.equal(ran.stdout, 'cpu\n', ran.stderr);
  });

  /**
   * Compiles a program in the folder and returns the compiler's messages. It is strict, checks every declaration, and
   * has only the types of a browser and of ES2022.
   */
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
        `import { ropewalk } from 'ropewalk';\nimport { onnx } from '@ropewalk/dialects';\nconst rw = await ropewalk();\nvoid onnx.rotaryEmbedding;\n${body}`,
        { module: 'nodenext' },
      );
    assert.equal(use(`rw.rope(rw.allocate('f32', [1, 1, 4]), [0], { pairing: 'half', base: 10000 });`), '');
    assert.match(use(`rw.rope(rw.allocate('f32', [1, 1, 4]), [0], { base: 10000 });`), /Property 'pairing' is missing/);
  });

  // The names that our packages share promise nothing, not even to compilers of users.
  const everything = ENTRIES.filter((entry) => !entry.includes('/internal'))
    .map((entry, i) => `export * as entry${i} from '${entry}';\n`)
    .join('');
  test('the types of every entry compile, libraries checked too, with ES2022 and DOM alone', () => {
    assert.equal(compile(current, 'all.mts', everything, { module: 'nodenext' }), '');
    assert.equal(compile(current, 'all.ts', everything, { module: 'esnext', moduleResolution: 'bundler' }), '');
  });

  test('so they do in TypeScript 5.6', { skip: oldest.missing }, () => {
    assert.equal(oldest.missing === false && compile(oldest.path, 'all.mts', everything, { module: 'nodenext' }), '');
  });

  test('the kernel imports nothing but its own files, and has no side effect', () => {
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
    for (const entry of ['index.js', 'backend.js', 'reference/index.js']) visit(join(modules, 'ropewalk/dist', entry));
    assert.ok(seen.size > 20);
    for (const { sideEffects } of PACKAGES.values()) assert.equal(sideEffects, false);
  });
});

test('check-imports finds each kind of violation', () => {
  const bad = join(folder, 'bad');
  const write = (name: string, text: string): void => {
    mkdirSync(dirname(join(bad, 'packages', name)), { recursive: true });
    writeFileSync(join(bad, 'packages', name), text);
  };
  write('ropewalk/package.json', JSON.stringify({ name: 'ropewalk', exports: { '.': {} } }));
  write('ropewalk/src/core/a.ts', `import type { b } from './b.js';\nimport '../ops/c.js';\nexport type a = b;`);
  write('ropewalk/src/core/b.ts', `import type { a } from './a.js';\nexport type b = () => a;`);
  write('ropewalk/src/ops/c.ts', `import 'node:fs';\nimport 'lodash';\nimport './gone.js';\nexport {};`);
  write('ropewalk/src/reference/d.ts', `import type { x } from '../backends/e.js';\nexport type y = x;`);
  write('ropewalk/src/backends/e.ts', `export type x = 1;`);
  write('model/package.json', JSON.stringify({ name: '@ropewalk/model', dependencies: { ropewalk: '1' } }));
  write('model/src/f.ts', `import '../../ropewalk/src/core/a.js';\nimport 'ropewalk/core';\nimport 'ropewalk';`);
  const { status, stderr } = spawnSync(process.execPath, [join(root, 'scripts/check-imports.mjs'), bad], {
    encoding: 'utf8',
  });
  assert.equal(status, 1);
  for (const message of [
    /core may not import ops/,
    /cycle: packages\/ropewalk\/src\/core\/a\.ts → \S*\/b\.ts → \S*\/a\.ts/,
    /imports node:fs; only cli and \*\.node\.ts may/,
    /imports lodash, which is not among the dependencies of ropewalk/,
    /imports \.\.\/\.\.\/ropewalk\/src\/core\/a\.js, which is outside its package/,
    /imports ropewalk\/core, which is no entry of ropewalk/,
    /imports \.\/gone\.js, which does not exist/,
    /reference may not import backends/,
  ]) {
    assert.match(stderr, message);
  }
});
