/** Finds the site's root. The site may be served under any path, so no address may begin with `/`. @module */

/** The site's root as an absolute address. A worker must get it from the page, because workers have no document. */
export const BASE: string = new URL(document.documentElement.dataset.base ?? './', location.href).href;
