import { defineConfig } from 'vite';
import { dataFiles } from './build/data.js';
import { docsData, examples } from './build/docs.js';
import { figures } from './build/figures.js';
import { museumPictures } from './build/museum.js';
import { offline } from './build/offline.js';
import { ownKernel } from './build/own-kernel.js';
import { pages } from './build/pages.js';

export default defineConfig({
  root: import.meta.dirname,
  base: './', // the site works under any path
  appType: 'mpa',
  plugins: [pages(), dataFiles(), docsData(), museumPictures(), figures(), ownKernel(), offline()],
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
  worker: { format: 'es', plugins: () => [examples()] },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // data: addresses would need a looser content security policy
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 2000, // test/site checks the size of each page
  },
});
