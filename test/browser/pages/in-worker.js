/**
 * Runs in a page. It starts a worker with the module that `module` in the address names. Default: compute.js, which
 * then starts the pool's workers itself.
 */
const { search } = location;
const module = new URLSearchParams(search).get('module') ?? '/pages/compute.js';
new Worker(new URL(module + search, location.href), { type: 'module' });
