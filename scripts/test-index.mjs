/** Writes test/index.ts, which imports every test file: Node 20's runner takes no glob. `--check` only compares. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const folder = join(dirname(fileURLToPath(import.meta.url)), '..', 'test');
const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .map((name) => name.replaceAll('\\', '/'))
  .filter((name) => name.endsWith('.test.ts'))
  .sort();
const text = `// Every test file; written by scripts/test-index.mjs.\n${files.map((name) => `import './${name.replace(/\.ts$/, '.js')}';\n`).join('')}`;
const index = join(folder, 'index.ts');
if (process.argv.includes('--check')) {
  if (readFileSync(index, 'utf8') !== text) {
    console.error('test/index.ts does not import every test file. Run: node scripts/test-index.mjs');
    process.exitCode = 1;
  }
} else writeFileSync(index, text);
