/** Removes what `npm run build` makes, so that nothing of deleted sources stays in it. */
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const packages = fileURLToPath(new URL('../packages', import.meta.url));
for (const name of readdirSync(packages))
  for (const made of ['dist', 'tsconfig.tsbuildinfo'])
    rmSync(join(packages, name, made), { recursive: true, force: true });
