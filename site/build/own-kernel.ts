/** Makes what a visitor's own kernel on the AI Core needs. @module */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build, type Plugin, type Rollup } from 'vite';

const NAME = 'virtual:own-kernel';

/** Provides `import { LIBRARY, EXAMPLE } from 'virtual:own-kernel'`: the model as one script, and the kernel of the docs. */
export function ownKernel(): Plugin {
  return {
    name: 'ropewalk:own-kernel',
    resolveId: (id) => (id === NAME ? `\0${NAME}` : undefined),
    async load(id) {
      if (id !== `\0${NAME}`) return undefined;
      const docs = readFileSync(join(import.meta.dirname, '../../docs/aicore-kernels.md'), 'utf8');
      const [, example] = /```js\n(.*?)```/s.exec(docs)!;
      return `export const LIBRARY = ${JSON.stringify(await library())};\nexport const EXAMPLE = ${JSON.stringify(example)};`;
    },
  };
}

/** The package as a script that defines `ascend`, on lines of its own. */
async function library(): Promise<string> {
  const [made] = (await build({
    configFile: false,
    logLevel: 'error',
    build: {
      write: false,
      target: 'es2022',
      minify: 'esbuild',
      lib: { entry: fileURLToPath(import.meta.resolve('@ropewalk/ascend')), formats: ['iife'], name: 'ascend' },
    },
  })) as Rollup.RollupOutput[];
  return made!.output[0].code;
}
