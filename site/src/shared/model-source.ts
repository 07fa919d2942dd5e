/** The sources from which pages load models. Workers use it. @module */
import { fetchModelFiles, fetchSource, type ModelFiles } from '@ropewalk/model';
import type { Remote } from './remote.js';

/** The source of a model. */
export type Source =
  /** The bundled model, with the site's root. */
  | { readonly kind: 'box'; readonly base: string }
  | { readonly kind: 'files'; readonly files: readonly File[] }
  /** A GGUF on another host, or its parts. */
  | { readonly kind: 'remote'; readonly parts: readonly Remote[] }
  /** The address of a folder in HuggingFace's form. */
  | { readonly kind: 'address'; readonly address: string };

/** Keeps the page's address and the visitor's cookies from the hosts of models. */
const init = { referrerPolicy: 'no-referrer', credentials: 'omit' } as const;

/** Opens the files of a model. */
export async function filesOf(source: Source): Promise<ModelFiles> {
  if (source.kind === 'files') return new Map(source.files.map((file) => [file.name, file]));
  if (source.kind === 'remote') {
    const opened = new Map<string, Awaited<ReturnType<typeof fetchSource>>>();
    for (const { name, url } of source.parts) opened.set(name, await fetchSource(url, init));
    return opened;
  }
  return source.kind === 'address'
    ? fetchModelFiles(source.address, { init })
    : fetchModelFiles(`${source.base}data/marline/model-q8_0.gguf`);
}
