/** Tests bundled ONNX code in a real browser under a Content-Security-Policy that forbids code from strings. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { build } from 'esbuild';
import { noBrowser, openChromium, reportOf, serve } from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'";
const folder = mkdtempSync(join(tmpdir(), 'onnx-'));
after(() => rmSync(folder, { recursive: true }));

test('under a strict Content-Security-Policy models are written, read and imported', {
  skip: noBrowser,
}, async () => {
  builtPackage('onnx');
  await build({
    absWorkingDir: ROOT,
    tsconfigRaw: {}, // take the published packages, not the sources that tsconfig.json names
    entryPoints: ['test/browser/pages/onnx.js'],
    bundle: true,
    format: 'esm',
    platform: 'browser',
    outdir: folder,
    logLevel: 'error',
  });
  const site = await serve({ folders: { '/bundle/': folder }, headers: { 'content-security-policy': STRICT } });
  const browser = await openChromium();
  try {
    const { report } = await reportOf<{ nodes: number; pairing: string; base: number; y: number[] }>(
      browser,
      `${site.origin}/?script=/bundle/onnx.js`,
    );
    assert.ok(report.nodes > 10);
    assert.deepEqual([report.pairing, report.base], ['half', 10000]);
    assert.deepEqual(
      report.y.map((value) => value.toFixed(4)),
      ['0.5403', '0.0000', '0.8415', '0.0000'],
    );
  } finally {
    await browser.close();
    site.close();
  }
});
