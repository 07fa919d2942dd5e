/** Removes the output of `npm run build`, so that no output of deleted sources stays there. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const packages = fileURLToPath(new URL('../packages', import.meta.url));
for (const name of readdirSync(packages))
  for (const made of ['dist', 'tsconfig.tsbuildinfo'])
    rmSync(join(packages, name, made), { recursive: true, force: true });
