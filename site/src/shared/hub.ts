/** Finds a model by its name on the hub, or by an address. @module */
import { parseJson } from '@ropewalk/formats';
import { partNames } from '@ropewalk/formats/internal';
import { HUB } from '../shell/base.js';
import { ask, decoded, MOST_WHOLE_BYTES, missing, type Remote } from './remote.js';

/** A model's config.json, or the addresses of its GGUF. */
export type Found = {
  /** The shortest text that leads here again. */
  readonly asked: string;
} & (
  | {
      readonly kind: 'config';
      readonly name: string;
      readonly url: string;
      readonly text: string;
      readonly json: unknown;
    }
  | { readonly kind: 'gguf'; readonly parts: readonly Remote[] }
);

/** A GGUF of a repository: the text to ask for it, and the bytes of all its parts. */
export interface Listed {
  readonly asked: string;
  readonly bytes: number;
}

/** A name or an address as it is understood. */
interface Place {
  readonly asked: string;
  readonly repository?: string | undefined;
  readonly url: URL;
}

/**
 * Understands `OWNER/NAME`, `OWNER/NAME/FILE.gguf`, the address of a page of the hub, or that of a file or folder.
 *
 * @throws {Error} with the forms that there are
 */
export function placeOf(given: string): Place {
  const text = given.trim();
  const own = text.startsWith(`${HUB}/`)
    ? text
        .slice(HUB.length + 1)
        .replace(/[?#].*$/, '')
        .replace(/\/(blob|resolve|tree)\/main(?=\/|$)/, '')
        .replace(/\/+$/, '')
    : text;
  // A page of another revision than main.
  const [, at, revision, path] =
    /^(\w[\w.-]*\/\w[\w.-]*)\/(?:blob|resolve)\/([\w.-]+)\/(.+\.(?:json|gguf))$/i.exec(own) ?? [];
  if (at !== undefined) return { asked: text, url: new URL(`${HUB}/${at}/resolve/${revision}/${path}`) };
  const [, repository, file = 'config.json'] = /^(\w[\w.-]*\/\w[\w.-]*)(?:\/(.+\.(?:json|gguf)))?$/i.exec(own) ?? [];
  if (repository !== undefined)
    return { asked: own, repository, url: new URL(`${HUB}/${repository}/resolve/main/${file}`) };
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.pathname.endsWith('/')) url.pathname += 'config.json';
  if (!url || !(url.protocol === 'https:' || url.origin === HUB) || !/\.(json|gguf)$/i.test(url.pathname))
    throw new Error(
      `${text || 'Nothing'} is neither a name such as Qwen/Qwen2.5-7B-Instruct, nor an https address of a config.json, a .gguf, or a folder with / at its end. Write one of these.`,
    );
  return { asked: text, url };
}

/**
 * Asks for the model's config.json, or finds its GGUF.
 *
 * @returns the GGUFs of a repository that has no config.json, or what was found
 * @throws {Error} with the next step
 */
export async function find(given: string): Promise<Found | readonly Listed[]> {
  const { asked, repository, url } = placeOf(given);
  const name = decoded(url.pathname.split('/').at(-1)!);
  const { href } = url;
  if (/\.gguf$/i.test(name)) {
    const parts = partNames(name) ?? [name];
    return {
      kind: 'gguf',
      asked,
      parts: parts.map((part) => ({ name: part, url: href.replace(/[^/?]+(?=\?|$)/, part) })),
    };
  }
  const answer = await ask(href, MOST_WHOLE_BYTES);
  if (answer) {
    const text = new TextDecoder().decode(answer.bytes);
    return { kind: 'config', asked, name, url: href, text, json: parseJson(text, asked) };
  }
  const listed = asked === repository ? await ggufsOf(repository) : [];
  if (listed.length === 0) throw missing(href);
  return listed;
}

/** The most files that are offered for choice. */
const MOST_LISTED = 200;

/** Lists the GGUFs of a repository, each with its parts. */
async function ggufsOf(repository: string): Promise<Listed[]> {
  const url = `${HUB}/api/models/${repository}/tree/main?recursive=true`;
  const answer = await ask(url, MOST_WHOLE_BYTES);
  if (!answer) return [];
  const entries = parseJson(new TextDecoder().decode(answer.bytes), url);
  const sizes = new Map<string, number>();
  for (const entry of Array.isArray(entries) ? entries : []) {
    const { path, size } = Object(entry) as { readonly path?: unknown; readonly size?: unknown };
    if (typeof path === 'string' && /\.gguf$/i.test(path)) sizes.set(path, Number(size));
  }
  const firsts = [...sizes.keys()].filter((path) => !/-(?!00001)\d{5}-of-/.test(path)).slice(0, MOST_LISTED);
  return firsts.flatMap((path) => {
    const parts = partNames(path) ?? [path];
    const bytes = parts.reduce((sum, part) => sum + (sizes.get(part) ?? 0), 0);
    return parts[0] === path ? [{ asked: `${repository}/${path}`, bytes }] : [];
  });
}
