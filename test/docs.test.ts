/** Tests the pages of the documentation: every link has a target, and every dialect has an example. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { DOCS } from '@ropewalk/cli/internal';
import { PACKAGES, ROOT } from './support/build.js';
import { examplesOf, PAGES } from './support/examples.js';

/** Returns the anchors of a page's headings in rendered Markdown. */
function anchorsOf(file: string): string[] {
  const headings = readFileSync(file, 'utf8').matchAll(/^#+ (.*)$/gm);
  return Array.from(headings, ([, text]) =>
    text!
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(' ', '-'),
  );
}

test('every link between pages leads to a file, and to a heading of it; pages of a package link to nothing outside it', () => {
  const others = ['CHANGELOG.md', 'CONTRIBUTING.md', 'FEATURES.md', 'vectors/README.md', 'bench/README.md'];
  const broken: string[] = [];
  for (const page of [...PAGES, ...others]) {
    for (const [, to] of readFileSync(join(ROOT, page), 'utf8')
      .replace(/^```.*?^```/gms, '')
      .matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(to!)) continue;
      const [path, anchor] = to!.split('#') as [string, string?];
      const file = path === '' ? join(ROOT, page) : join(ROOT, dirname(page), path);
      if (page.startsWith('packages') && path !== '') broken.push(`${page}: ${to}`);
      if (!existsSync(file) || (anchor !== undefined && !anchorsOf(file).includes(anchor)))
        broken.push(`${page}: ${to}`);
    }
  }
  assert.deepEqual(broken, []);
});

test('every dialect has a page with an example', () => {
  for (const dialect of ['cann', 'flash-attn', 'ggml', 'gguf', 'huggingface', 'infiniop', 'llaisys', 'onnx']) {
    assert.ok(examplesOf(join('docs', 'dialects', `${dialect}.md`), 'ts').length > 0, dialect);
  }
});

test('the address of the project is the same in every package.json and in the help, or nowhere', () => {
  const addressOf = (file: string): unknown[] => {
    const { homepage, repository, bugs } = JSON.parse(readFileSync(join(ROOT, file), 'utf8'));
    return [homepage, repository?.url, bugs?.url];
  };
  const project = addressOf('package.json');
  for (const name of PACKAGES.keys()) assert.deepEqual(addressOf(`packages/${name}/package.json`), project, name);
  assert.ok(DOCS.startsWith(`${project[0] ?? 'docs'}`), DOCS);
});

test('one page says how to install: the others link to it', () => {
  for (const page of PAGES.filter((name) => name !== 'README.md'))
    assert.doesNotMatch(readFileSync(join(ROOT, page), 'utf8'), /npm (?:i|install) (?:@ropewalk\/|ropewalk\b)/, page);
});
