/** The declarations of the packages keep to types that TypeScript 5.6 has; package.peers.test.ts compiles them with it. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { builtPackage, PACKAGES } from './support/build.js';

/** No entry leads here. */
const OWN = join('backends', 'webgpu', 'commands.d.ts');

test('typed arrays are not generic, as an inferred type may be', () => {
  const files = [...PACKAGES.keys()].flatMap((folder) => {
    const dist = builtPackage(folder);
    return readdirSync(dist, { recursive: true, encoding: 'utf8' }).map((name) => join(dist, name));
  });
  const declarations = files.filter((path) => path.endsWith('.d.ts') && !path.endsWith(OWN));
  assert.ok(declarations.length > 300, String(declarations.length));
  for (const path of declarations)
    assert.doesNotMatch(readFileSync(path, 'utf8'), /\b(?:Float|Int|Uint|BigInt|BigUint)\w*Array</, path);
});
