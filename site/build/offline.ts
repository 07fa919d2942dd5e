/**
 * Builds the service worker: the site then works offline after the first visit and gets the headers for threads.
 *
 * @module
 */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const SITE = join(import.meta.dirname, '..');

/** Stands in pages for the megabytes that the service worker fetches, as gzip, which are known once all of them are built. */
export const SENT_SIZE = 'SENT_SIZE';

/** Writes sw.js: site/build/sw.js with the list of the site's files and a version that is a hash of their bytes. */
export function offline(): Plugin {
  return {
    name: 'ropewalk:offline',
    apply: 'build',
    enforce: 'post',
    generateBundle: {
      order: 'post', // every other plugin has emitted its files by then
      handler(_, bundle) {
        const version = createHash('sha256');
        const add = (name: string, bytes: string | Uint8Array): void => {
          version.update(name).update(bytes);
          files.push(name);
        };
        const files: string[] = [];
        const sent = (bytes: string | Uint8Array): number => gzipSync(bytes).length;
        let all = 0;
        for (const [name, file] of Object.entries(bundle))
          if (!name.startsWith('data/')) all += sent(file.type === 'chunk' ? file.code : file.source);
        for (const name of readdirSync(join(SITE, 'public')).sort()) {
          const bytes = readFileSync(join(SITE, 'public', name));
          all += sent(bytes);
          add(name, bytes);
        }
        for (const file of Object.values(bundle))
          if (file.type === 'asset' && file.fileName.endsWith('.html'))
            file.source = String(file.source).replace(SENT_SIZE, (all / 1e6).toFixed(1));
        for (const [name, file] of Object.entries(bundle).sort(([a], [b]) => (a < b ? -1 : 1)))
          add(name.replace(/(^|\/)index\.html$/, '$1'), file.type === 'chunk' ? file.code : file.source);
        const source = readFileSync(join(import.meta.dirname, 'sw.js'), 'utf8')
          .replace("'VERSION'", JSON.stringify(version.digest('hex').slice(0, 16)))
          .replace("'FILES'", JSON.stringify(files));
        this.emitFile({ type: 'asset', fileName: 'sw.js', source });
      },
    },
  };
}
