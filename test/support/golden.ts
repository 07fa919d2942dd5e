/** Writes golden folders and outputs for tests of verify. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { writeNpy } from '@ropewalk/formats';
import type { GoldenCase } from '@ropewalk/oracle';
import { formatManifest, type GoldenEntry, type GoldenForm, writeCase } from '@ropewalk/oracle/internal';
import type { Tensor } from 'ropewalk';

/** Writes a golden folder as `ropewalk vectors` does. */
export async function writeGolden(
  dir: string,
  cases: readonly GoldenCase[],
  forms: readonly GoldenForm[] = ['npy'],
): Promise<string> {
  const entries: GoldenEntry[] = [];
  for (const c of cases) {
    const { entry, files } = await writeCase(c, forms, { generator: 'test', seed: 1 });
    entries.push(entry);
    for (const { path, bytes } of files) writeFile(join(dir, path), bytes);
  }
  writeFile(join(dir, 'manifest.json'), formatManifest({ generator: 'test', seed: 1, cases: entries, skipped: [] }));
  return dir;
}

/** Writes outputs as `<dir>/<case>/<output>.npy`. */
export function writeOutputs(dir: string, id: string, outputs: ReadonlyMap<string, Tensor>): void {
  for (const [name, tensor] of outputs)
    writeFile(join(dir, id, `${name}.npy`), writeNpy(tensor.read() as never, tensor));
}

/** Writes a file and the folders above it. */
export function writeFile(path: string, content: string | Uint8Array): string {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content);
  return path;
}
