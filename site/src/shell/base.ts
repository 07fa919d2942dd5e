/** Finds the site's root. The site may be served under any path, so no address may begin with `/`. @module */

/** The site's root as an absolute address. A worker must get it from the page, because workers have no document. */
export const BASE: string = new URL(document.documentElement.dataset.base ?? './', location.href).href;

/** The hub that is asked for a model by its name, without a slash at the end. build/pages.ts has its address. */
export const HUB: string = document.documentElement.dataset.hub!;
