/**
 * Fetches the site's golden vectors, one zip for each suite, as folders that suites read. Workers use it too.
 *
 * @module
 */
import type { VectorFolder } from '@ropewalk/oracle';
import { unzipSync } from 'fflate';
import { RopewalkError } from 'ropewalk';

/** Makes a folder from files in memory. */
function folderOf(name: string, files: Readonly<Record<string, Uint8Array>>): VectorFolder {
  const below = new Map<string, Record<string, Uint8Array>>();
  for (const [path, bytes] of Object.entries(files)) {
    const cut = path.indexOf('/');
    if (cut < 0) continue;
    const child = path.slice(0, cut);
    if (!below.has(child)) below.set(child, {});
    below.get(child)![path.slice(cut + 1)] = bytes;
  }
  return {
    name,
    has: (path) => path in files,
    read: (path) => {
      const bytes = files[path];
      if (bytes === undefined) throw new RopewalkError('FORMAT', `${name}/${path}: the site has no such file.`);
      return bytes;
    },
    folders: () => [...below].map(([child, own]) => folderOf(child, own)),
  };
}

async function fetched(url: string): Promise<Response> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}. Load the page again while you are online.`);
  return response;
}

/**
 * Lists the names of the suites whose vectors are files.
 *
 * @param base - the site's root, `BASE` of shell/base.ts
 */
export async function suiteNames(base: string): Promise<readonly string[]> {
  return (await fetched(`${base}data/vectors/suites.json`)).json();
}

/** Fetches a suite's vectors. */
export async function fetchSuite(base: string, name: string): Promise<VectorFolder> {
  const zip = await (await fetched(`${base}data/vectors/${name}.zip`)).arrayBuffer();
  return folderOf(name, unzipSync(new Uint8Array(zip)));
}
