/** Makes the HTML of every page from one template, and draws in it what its entry draws in the browser. @module */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { renderToString } from 'preact-render-to-string';
import { createServer, type Plugin, type ViteDevServer } from 'vite';
import { HUB, ROOT_MARK } from '../src/shell/base.js';
import { DOCS_PAGES } from './docs.js';
import { museumPages } from './museum.js';
import { SENT_SIZE } from './offline.js';
import { escaped, PAGES, type Page } from './page-list.js';

const SITE = join(import.meta.dirname, '..');

/** The address of the repository, as the root's package.json has it; until that is known, pages have no link to it. */
const { homepage: REPOSITORY } = JSON.parse(readFileSync(join(SITE, '../package.json'), 'utf8')) as {
  homepage?: string;
};

/** The address of the site with / at its end. Previews of links need whole addresses; without it they have relative ones. */
const SITE_ADDRESS = process.env.SITE_ADDRESS ?? '';

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
 * The policy of pages with an editor also allows a frame with one inline script, known by its hash, that makes workers of
 * texts; the frame has no origin and a policy of its own, see src/shared/sandbox.ts.
 */
const FRAME_HASH = createHash('sha256')
  .update(readFileSync(join(SITE, 'src/shared/frame.js')))
  .digest('base64');
const WITH_EDITOR = POLICY.replace("script-src 'self'", `$& 'sha256-${FRAME_HASH}'`).replace(
  "worker-src 'self'",
  '$& blob:',
);
const OWN_POLICIES: Readonly<Record<string, string>> = {
  write: WITH_EDITOR,
  aicore: WITH_EDITOR,
  // A visitor's own server has no certificate.
  probe: POLICY.replace(' https:;', ' https: http://localhost:* http://127.0.0.1:*;'),
};
const policyOf = ({ path }: Page): string => OWN_POLICIES[path] ?? POLICY;

const rootOf = ({ path }: Page): string => '../'.repeat(path === '' ? 0 : path.split('/').length) || './';

/** Draws what a page shows at first, as the browser will; empty for one whose content is HTML already. */
async function drawn(page: Page, server: ViteDevServer): Promise<string> {
  if (!page.lead) return '';
  const { default: shown } = await server.ssrLoadModule(`/${page.entry}`);
  return renderToString(shown).replaceAll(ROOT_MARK, rootOf(page));
}

/**
 * Returns the whole page.
 *
 * @param app - the HTML of {@link drawn}
 * @param built - adds the policy, which would block the inline styles of Vite's development server
 * @param repository - an address for links to the source and its issues
 */
export function pageHtml(page: Page, app: string, built: boolean, repository = REPOSITORY): string {
  const base = rootOf(page);
  const links = [...PAGES, { path: 'docs', nav: 'Docs' }]
    .filter(({ nav }) => nav !== undefined)
    .map(({ path, nav }) => {
      const here = page.path === path || page.path.startsWith(`${path}/`);
      return `<a href="${base}${path}/"${here ? ' aria-current="page"' : ''}>${nav}</a>`;
    });
  const fetches = built
    ? ` After the first visit this browser fetches the other pages too, ${SENT_SIZE} MB, so that they work without a network.`
    : '';
  const source = repository
    ? ` <a href="${escaped(repository)}">Source</a>, <a href="${escaped(repository)}/issues">issues</a>.`
    : '';
  const preview = page.image
    ? `<meta property="og:title" content="${escaped(page.title)}">
<meta property="og:description" content="${escaped(page.description)}">
<meta property="og:image" content="${escaped(SITE_ADDRESS || base)}${page.image}">
<meta name="twitter:card" content="summary_large_image">`
    : '';
  // Controls are disabled until the page's script has drawn them anew.
  const content = page.lead
    ? `<h1>${escaped(page.title)}</h1>
<p class="lead">${page.lead}</p>
<noscript><p class="notice">To compute, this page needs JavaScript. Its text is here without it, and so are the docs and the museum.</p></noscript>
<fieldset id="app" role="none" disabled>${app}</fieldset>`
    : page.content;
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
<script type="module" src="/src/shell/shell.ts"></script>
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
<footer class="bottom"><p>Everything runs in this page. Nothing that you drop here leaves your device.${fetches}${source}</p></footer>
</body>
</html>
`;
}

/** Serves and builds every page of the list. */
export function pages(): Plugin {
  const byFile = new Map<string, Page>();
  let built = false;
  let server: ViteDevServer | undefined;
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
    // The build loads the entries in Node by a server that it never opens to requests.
    configResolved: async ({ plugins, root, esbuild }) => {
      if (!built) return;
      const own = plugins.filter(({ name }) => name.startsWith('ropewalk:') && name !== 'ropewalk:pages');
      server = await createServer({
        configFile: false,
        root,
        esbuild,
        plugins: own,
        appType: 'custom',
        server: { middlewareMode: true, hmr: false, watch: null, ws: false },
        optimizeDeps: { noDiscovery: true },
      });
    },
    closeBundle: () => server?.close(),
    load: async (id) => {
      const page = byFile.get(id);
      return page && pageHtml(page, server ? await drawn(page, server) : '', built);
    },
    configureServer: (server) => () => {
      server.middlewares.use(async (request, response, next) => {
        const path = new URL(request.originalUrl ?? '/', 'http://page').pathname;
        const page = byFile.get(join(SITE, path, path.endsWith('.html') ? '' : 'index.html'));
        if (page === undefined) return next();
        response.setHeader('Content-Type', 'text/html');
        response.end(await server.transformIndexHtml(path, pageHtml(page, await drawn(page, server), false)));
      });
    },
  };
}
