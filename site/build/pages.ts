/** Makes the HTML of every page from one template. A page's entry draws what is not drawn here. @module */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Plugin } from 'vite';
import { DOCS_PAGES } from './docs.js';
import { museumPages } from './museum.js';
import { escaped, PAGES, type Page } from './page-list.js';

const SITE = join(import.meta.dirname, '..');

/** The address of the repository, as the root's package.json has it; until that is known, pages have no link to it. */
const { homepage: REPOSITORY } = JSON.parse(readFileSync(join(SITE, '../package.json'), 'utf8')) as {
  homepage?: string;
};

/** The address of the site with / at its end. Previews of links need whole addresses; without it they have relative ones. */
const SITE_ADDRESS = process.env.SITE_ADDRESS ?? '';

/** The hub that visitors may ask for a model by its name. A mirror with the same paths may take its place. */
const HUB = 'https://huggingface.co';

/** The policy allows no inline script and no eval. WebAssembly may compile, and pages may fetch any https address. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self' 'wasm-unsafe-eval'",
  "style-src 'self'",
  "img-src 'self' data: blob:",
  `connect-src 'self' blob: ${HUB} https:`,
  "worker-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
].join('; ');

/**
 * The policy of the page Write also allows a frame with one inline script, known by its hash, that makes workers of
 * texts; the frame has no origin and a policy of its own, see src/write/sandbox.ts.
 */
const FRAME_HASH = createHash('sha256')
  .update(readFileSync(join(SITE, 'src/write/frame.js')))
  .digest('base64');
const OWN_POLICIES: Readonly<Record<string, string>> = {
  write: POLICY.replace("script-src 'self'", `$& 'sha256-${FRAME_HASH}'`).replace("worker-src 'self'", '$& blob:'),
  // A visitor's own server has no certificate.
  probe: POLICY.replace(' https:;', ' https: http://localhost:* http://127.0.0.1:*;'),
};
const policyOf = ({ path }: Page): string => OWN_POLICIES[path] ?? POLICY;

/**
 * Returns the whole page.
 *
 * @param built - adds the policy, which would block the inline styles of Vite's development server
 * @param repository - an address for links to the source and its issues
 */
export function pageHtml(page: Page, built: boolean, repository = REPOSITORY): string {
  const base = '../'.repeat(page.path === '' ? 0 : page.path.split('/').length) || './';
  const links = [...PAGES, { path: 'docs', nav: 'Docs' }]
    .filter(({ nav }) => nav !== undefined)
    .map(({ path, nav }) => {
      const here = page.path === path || page.path.startsWith(`${path}/`);
      return `<a href="${base}${path}/"${here ? ' aria-current="page"' : ''}>${nav}</a>`;
    });
  const source = repository
    ? ` <a href="${escaped(repository)}">Source</a>, <a href="${escaped(repository)}/issues">issues</a>.`
    : '';
  const preview = page.image
    ? `<meta property="og:title" content="${escaped(page.title)}">
<meta property="og:description" content="${escaped(page.description)}">
<meta property="og:image" content="${escaped(SITE_ADDRESS || base)}${page.image}">
<meta name="twitter:card" content="summary_large_image">`
    : '';
  // A script fills `app`; the title and its lead are painted before it comes.
  const content = page.lead
    ? `<h1>${escaped(page.title)}</h1>\n<p class="lead">${page.lead}</p>\n<div id="app"></div>`
    : page.content;
  const noscript = page.content
    ? ''
    : '<noscript><p class="notice">This page computes in your browser and needs JavaScript. The docs and the museum work without it.</p></noscript>';
  return `<!doctype html>
<html lang="en" data-base="${base}" data-hub="${HUB}">
<head>
<meta charset="utf-8">
${built ? `<meta http-equiv="Content-Security-Policy" content="${policyOf(page)}">` : ''}
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(page.title)} · Ropewalk</title>
<meta name="description" content="${escaped(page.description)}">
${preview}
<meta name="color-scheme" content="light dark">
<link rel="icon" href="${base}icon.svg" type="image/svg+xml">
<script src="${base}theme.js"></script>
<script type="module" src="/${page.entry}"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header class="top">
<a class="brand" href="${base}"><img src="${base}icon.svg" alt="" width="26" height="26">Ropewalk</a>
<button class="menu-button" type="button" popovertarget="menu">Menu</button>
<nav id="menu" popover aria-label="Pages">${links.join('')}</nav>
<button id="theme" class="plain" type="button" hidden></button>
</header>
<main id="main" tabindex="-1">${content ?? ''}</main>
<footer class="bottom"><p>Everything runs in this page. Nothing that you drop here leaves your device.${source}</p></footer>
${noscript}
</body>
</html>
`;
}

/** Serves and builds every page of the list. */
export function pages(): Plugin {
  const byFile = new Map<string, Page>();
  let built = false;
  return {
    name: 'ropewalk:pages',
    config: async (_, { command }) => {
      built = command === 'build';
      const museum = await museumPages();
      const list = PAGES.map((page) => (page.path === 'museum' ? { ...page, content: museum.list } : page));
      for (const page of [...list, ...museum.pages, ...DOCS_PAGES])
        byFile.set(join(SITE, page.path, 'index.html'), page);
      return { build: { rollupOptions: { input: [...byFile.keys()] } } };
    },
    resolveId: (id) => (byFile.has(id) ? id : undefined),
    load: (id) => {
      const page = byFile.get(id);
      return page && pageHtml(page, built);
    },
    configureServer: (server) => () => {
      server.middlewares.use(async (request, response, next) => {
        const path = new URL(request.originalUrl ?? '/', 'http://page').pathname;
        const page = byFile.get(join(SITE, path, path.endsWith('.html') ? '' : 'index.html'));
        if (page === undefined) return next();
        response.setHeader('Content-Type', 'text/html');
        response.end(await server.transformIndexHtml(path, pageHtml(page, false)));
      });
    },
  };
}
