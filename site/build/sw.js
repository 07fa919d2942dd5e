// This is the service worker of the site. offline.ts fills in VERSION and FILES during the build.
// Each version has its own cache, so that a page never mixes the files of two versions.
const CACHE = `ropewalk ${'VERSION'}`;
const FILES = 'FILES';
const ROOT = new URL('./', location.href);
/** Threads need a page that is isolated from other hosts, but a static host may not send these headers. */
const ISOLATION = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};
/** Says whether a file is data. Data is large and only some pages use it, so it is cached after the rest. */
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
      for (const name of await caches.keys())
        if (name.startsWith('ropewalk ') && name !== CACHE) await caches.delete(name);
      await clients.claim();
    })(),
  );
});

/**
 * Caches the data after the first page, one file at a time, unless the user saves data. If a file fails, it is fetched
 * when a page asks for it.
 */
async function keepData() {
  if (navigator.connection?.saveData) return;
  const cache = await caches.open(CACHE);
  for (const file of FILES.filter(isData)) {
    const url = new URL(file, ROOT);
    if (!(await cache.match(url))) await cache.add(url).catch(() => undefined);
  }
}
addEventListener('message', (event) => {
  if (event.data === 'keep data') event.waitUntil(keepData());
});

addEventListener('fetch', (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== 'GET' || !url.href.startsWith(ROOT.href)) return;
  event.respondWith(answer(event.request, url));
});

async function answer(request, url) {
  const cache = await caches.open(CACHE);
  url.search = '';
  const kept = await cache.match(url);
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
