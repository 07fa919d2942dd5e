/**
 * Runs a model in Chromium: it serves a page and waits for the page's result.
 *
 * @module
 */
import { existsSync, readFileSync } from 'node:fs';
import type { Server } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { launchChromium, originOf, servePage } from '../chromium.js';
import type { DecoderSession } from './measure.js';
import type { PageTask } from './page.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const WLLAMA = join(ROOT, 'bench/node_modules/@wllama/wllama');

/**
 * Times a model in a separate page.
 *
 * @param model - the path of a GGUF file
 * @param task - the threads, the workloads, and whether wllama runs too
 * @param progress - is called with the name of each contender and workload before it runs
 * @throws Error when there is no Chromium
 */
export async function runInChromium(
  model: string,
  { askWllama, ...task }: Omit<PageTask, 'where' | 'wllama'> & { readonly askWllama: boolean },
  progress: (label: string) => void,
): Promise<DecoderSession> {
  const server = await serve(model);
  try {
    const browser = await launchChromium(['--disable-features=WebGPU']);
    try {
      const page = await browser.newPage();
      page.setDefaultTimeout(0);
      page.on('console', (message) => (message.type() === 'log' ? progress(message.text()) : undefined));
      await page.goto(originOf(server));
      const whole: PageTask = {
        ...task,
        where: `Chromium ${browser.version()}`,
        ...(askWllama && { wllama: findWllama() }),
      };
      return await page.evaluate(
        `import('/bench/decoder/page.js').then(({ runInPage }) => runInPage(${JSON.stringify(whole)}))`,
      );
    } finally {
      await browser.close();
    }
  } finally {
    server.close();
  }
}

function findWllama(): PageTask['wllama'] & object {
  if (!existsSync(join(WLLAMA, 'package.json')))
    return { leftOut: 'not installed. Install it with: npm ci --prefix bench' };
  return { version: JSON.parse(readFileSync(join(WLLAMA, 'package.json'), 'utf8')).version };
}

/** Serves the model, the built library with its imports, this benchmark as one file, and wllama. */
function serve(model: string): Promise<Server> {
  return servePage({
    entry: fileURLToPath(new URL('page.ts', import.meta.url)),
    module: '/bench/decoder/page.js',
    folders: {
      '/model.gguf': model,
      '/packages/': join(ROOT, 'packages'),
      '/modules/': join(ROOT, 'node_modules'),
      '/wllama/': join(WLLAMA, 'esm'),
    },
  });
}
