// This is the service worker of the site. offline.ts fills in VERSION and FILES during the build.
// Each version has its own cache. The cache of the version before stays, so that tabs that are open go on working: the
// names of their scripts are in no other version.
const CACHE = `ropewalk ${'VERSION'}`;
const FILES = 'FILES';
const ROOT = new URL('./', location.href);
/** Threads need a page that is isolated from other hosts, but a static host may not send these headers. */
const ISOLATION = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};
/** Says whether a file is data. Data is large and only some pages use it, so it is cached when a page asks for it. */
const isData = (file) => file.startsWith('data/');

addEventListener('install', (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(FILES.filter((file) => !isData(file)).map((file) => new URL(file, ROOT)))),
  );
  skipWaiting();
});

addEventListener('activate', (event) => {
  event.waitUntil(
    (async () => {
      const others = (await caches.keys()).filter((name) => name.startsWith('ropewalk ') && name !== CACHE);
      for (const name of others.slice(0, -1)) await caches.delete(name); // the keys are in the order of their creation
      await clients.claim();
    })(),
  );
});

addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== 'GET' || !url.href.startsWith(ROOT.href)) return;
  event.respondWith(answer(event.request, url));
});

async function answer(request, url) {
  const cache = await caches.open(CACHE);
  url.search = '';
  const kept =
    (await cache.match(url)) ??
    (FILES.includes(url.href.slice(ROOT.href.length)) ? undefined : await caches.match(url));
  const response = kept ?? (await fetch(request));
  if (
    !kept &&
    response.status === 200 &&
    !request.headers.has('range') &&
    FILES.includes(url.href.slice(ROOT.href.length))
  )
    await cache.put(url, response.clone());
  if (response.status === 0) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(ISOLATION)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
