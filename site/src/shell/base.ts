/** Where the site lies: it is servable under any path, so nothing may begin with `/`. @module */

/** The site's root, as an absolute address. In a worker, take it from the page: workers have no document. */
export const BASE: string = new URL(document.documentElement.dataset.base ?? './', location.href).href;
