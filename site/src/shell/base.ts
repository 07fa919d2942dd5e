/** Finds the site's root. The site may be served under any path, so no address may begin with `/`. @module */

/** Stands for the way to the root in what is drawn when the site is built; build/pages.ts replaces it on each page. */
export const ROOT_MARK = '%root%/';

const built = typeof document === 'undefined';

/** The site's root as an absolute address. A worker must get it from the page, because workers have no document. */
export const BASE: string = built
  ? ROOT_MARK
  : new URL(document.documentElement.dataset.base ?? './', location.href).href;

/**
 * The hub that visitors may ask for a model by its name, without a slash at the end. A mirror with the same paths may take
 * its place.
 */
export const HUB: string = built ? 'https://huggingface.co' : document.documentElement.dataset.hub!;
