/**
 * Writes what each example of README.md and docs/ prints into the ```text block that follows it. test/docs.test.ts checks that it is still true.
 *
 * Usage: node scripts/fill-docs.mjs
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const scratch = join(root, '.scratch', 'fill');
mkdirSync(scratch, { recursive: true });
const pages = ['README.md', ...readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' }).map((name) => join('docs', name))];
for (const page of pages.filter((name) => name.endsWith('.md'))) {
  const text = readFileSync(join(root, page), 'utf8');
  const filled = text.replace(/^```ts\n(.*?)^```\n```text\n.*?^```/gms, (_, code) => {
    const file = join(scratch, 'example.mts');
    writeFileSync(file, code);
    const ran = spawnSync(process.execPath, ['--conditions=ropewalk-source', '--import', 'tsx', file], { cwd: root, encoding: 'utf8' });
    if (ran.status !== 0) throw new Error(`${page}: ${ran.stderr}`);
    return `\`\`\`ts\n${code}\`\`\`\n\`\`\`text\n${ran.stdout}\`\`\``;
  });
  if (filled !== text) writeFileSync(join(root, page), filled);
}
rmSync(scratch, { recursive: true, force: true });
