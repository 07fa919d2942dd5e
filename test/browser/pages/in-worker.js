/**
 * Runs in a page: a module in a worker of its own, `module` of the address, or compute.js, which then starts the pool's
 * workers itself.
 */
const { search } = location;
const module = new URLSearchParams(search).get('module') ?? '/pages/compute.js';
new Worker(new URL(module + search, location.href), { type: 'module' });
