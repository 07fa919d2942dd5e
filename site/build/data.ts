/**
 * Builds the files that pages fetch on demand: the golden vectors, one zip for each suite, and the bundled model.
 *
 * @module
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { type Zippable, zipSync } from 'fflate';
import type { Plugin } from 'vite';

const ROOT = join(import.meta.dirname, '../..');

/** Reads every file below a folder, by its path in the folder. */
function filesBelow(folder: string): Zippable {
  const files: Zippable = {};
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()) {
    const path = join(folder, name);
    if (statSync(path).isFile()) files[name.replaceAll('\\', '/')] = readFileSync(path);
  }
  return files;
}

/** Returns functions that make each file, by its path below the site's root. */
function all(): Map<string, () => Uint8Array> {
  const files = new Map<string, () => Uint8Array>();
  const suites = readdirSync(join(ROOT, 'vectors'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  // A fixed time makes the same vectors give the same bytes.
  for (const { name } of suites)
    files.set(`data/vectors/${name}.zip`, () =>
      zipSync(filesBelow(join(ROOT, 'vectors', name)), { mtime: '1980-01-01' }),
    );
  files.set('data/vectors/suites.json', () => new TextEncoder().encode(JSON.stringify(suites.map(({ name }) => name))));
  for (const name of ['config.json', 'model-q8_0.gguf', 'model.safetensors', 'tokenizer.json', 'tokenizer_config.json'])
    files.set(`data/marline/${name}`, () => readFileSync(join(ROOT, 'models/marline', name)));
  return files;
}

/** Serves and builds these files. */
export function dataFiles(): Plugin {
  const files = all();
  return {
    name: 'ropewalk:data',
    configureServer: (server) => {
      server.middlewares.use((request, response, next) => {
        const bytes = files.get(new URL(request.url ?? '/', 'http://page').pathname.slice(1));
        if (bytes === undefined) next();
        else response.end(bytes());
      });
    },
    generateBundle() {
      for (const [fileName, bytes] of files) this.emitFile({ type: 'asset', fileName, source: bytes() });
    },
  };
}
