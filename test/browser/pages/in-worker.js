/** Runs in a page: compute.js in a worker of its own, which then starts the pool's workers itself. */
new Worker(new URL(`/pages/compute.js${location.search}`, location.href), { type: 'module' });
