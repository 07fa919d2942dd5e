/**
 * Runs the documentation: each ```ts block of README.md and docs/ is executed as a program of its own,
 * and what it prints must be the ```text block that follows it.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { noGpu } from './support/gpu.js';
import { noOnnxruntime } from './support/onnxruntime.js';

const root = fileURLToPath(new URL('..', import.meta.url));
// Inside the repository but not in node_modules, so that `import … from 'ropewalk'` resolves to this package by its own exports.
const scratch = join(root, '.scratch', 'docs');
const pages = ['README.md', ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map((name) => join('docs', name))]
  .filter((name) => name.endsWith('.md'))
  .sort();

interface Example {
  readonly title: string;
  readonly code: string;
  readonly output: string | undefined;
}

function examplesOf(page: string): Example[] {
  const text = readFileSync(join(root, page), 'utf8');
  const examples: Example[] = [];
  for (const match of text.matchAll(/^```ts\n(.*?)^```\n(?:\s*^```text\n(.*?)^```)?/gms)) {
    const line = text.slice(0, match.index).split('\n').length;
    examples.push({ title: `${page}:${line}`, code: match[1]!, output: match[2] });
  }
  return examples;
}

mkdirSync(scratch, { recursive: true });
after(() => rmSync(scratch, { recursive: true, force: true }));

describe('examples in the documentation', () => {
  const examples = pages.flatMap(examplesOf);
  test('there are examples, and each prints something that the page shows', () => {
    assert.ok(examples.length >= 8, `${examples.length} examples`);
    assert.deepEqual(
      examples.filter((example) => example.output === undefined).map((example) => example.title),
      [],
    );
  });
  for (const [n, { title, code, output }] of examples.entries()) {
    const missing = (code.includes("backend: 'webgpu'") && noGpu) || (code.includes("backend: 'onnxruntime'") && noOnnxruntime);
    test(title, { skip: missing }, () => {
      const file = join(scratch, `example-${n}.mts`);
      writeFileSync(file, code);
      const ran = spawnSync(process.execPath, ['--conditions=ropewalk-source', '--import', 'tsx', file], { cwd: root, encoding: 'utf8' });
      assert.equal(ran.status, 0, ran.stderr);
      assert.equal(ran.stdout, output ?? '');
    });
  }
});

test('every dialect has a page with an example', () => {
  const dialects = readdirSync(join(root, 'src', 'dialects')).map((name) => name.replace('.ts', ''));
  for (const dialect of dialects.filter((name) => name !== 'model-rope' && name !== 'gguf-architectures')) {
    assert.ok(examplesOf(join('docs', 'dialects', `${dialect}.md`)).length > 0, dialect);
  }
});
