/**
 * Tests the built WebGPU backend in a real browser on Chromium's software adapter, with and without a bundler.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import type { Capabilities } from 'ropewalk';
import { noBrowser, openChromium, reportOf, type Site, SOFTWARE_GPU, serve } from '../support/browser.js';
import { installInto, ROOT } from '../support/build.js';
import { WITHOUT_KERNEL } from '../support/suites.js';

/** The log of pages/gpu.js. */
interface Report {
  readonly opened: string;
  readonly capabilities: Capabilities;
  readonly different: number;
  readonly reading: string;
  readonly running: string;
  readonly survived: boolean;
}

describe('the webgpu backend in Chromium', { skip: noBrowser }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'webgpu-'));
  const home = join(folder, 'node_modules/ropewalk');
  const sites: Site[] = [];
  let browser: Browser;
  before(async () => {
    installInto(folder, { packages: ['ropewalk'] });
    browser = await openChromium(SOFTWARE_GPU);
  });
  after(async () => {
    await browser?.close();
    for (const site of sites) site.close();
    rmSync(folder, { recursive: true });
  });
  const siteOf = async (folders: Readonly<Record<string, string>> = {}): Promise<Site> => {
    const site = await serve({ folders: { '/dist/': join(home, 'dist'), ...folders } });
    sites.push(site);
    return site;
  };

  test('every suite passes', async () => {
    const { report, page } = await reportOf<{ capabilities: Capabilities; failed: string[]; summary: string[] }>(
      browser,
      `${(await siteOf()).origin}/?script=/pages/suites.js&backend=webgpu`,
    );
    await page.close();
    assert.deepEqual(
      report.failed.filter((line) => !WITHOUT_KERNEL.test(line)),
      [],
    );
    assert.match(report.summary.at(-1)!, /^ {2}(\d+)\/\1 cases passed, 0 failed, 3 not supported$/);
    assert.equal(report.summary.length, 12, 'eleven suites and a total');
    assert.match(report.capabilities.description, /^WebGPU on google swiftshader/i);
  });

  /**
   * Asserts that the page computed the same as cpu, reported a lost device with an error that says what to do, and
   * continued with a new device.
   */
  function assertSurvived({ opened, different, reading, running, survived }: Report): void {
    assert.equal(opened, 'accepted');
    assert.equal(different, 0);
    assert.match(reading, /^DEVICE webgpu: .* Open another: /);
    assert.match(running, /^DEVICE webgpu: the device was lost .* Open another: /);
    assert.equal(survived, true);
  }

  test('a lost device is reported, and a new one works', async () => {
    const { report, page } = await reportOf<Report>(browser, `${(await siteOf()).origin}/?script=/pages/gpu.js`);
    await page.close();
    assertSurvived(report);
  });

  test('bundled by Vite', async () => {
    const { build } = await import('vite');
    cpSync(join(ROOT, 'test/browser/pages/gpu.js'), join(folder, 'gpu.js'));
    writeFileSync(
      join(folder, 'index.html'),
      '<!doctype html><meta charset="utf-8"><script type="module" src="/gpu.js"></script>',
    );
    await build({ root: folder, configFile: false, logLevel: 'error' });
    const site = await siteOf({ '/': join(folder, 'dist') });
    const { report, page } = await reportOf<Report>(browser, `${site.origin}/`);
    await page.close();
    assertSurvived(report);
    assert.ok(!site.asked.some((path) => path.startsWith('/dist/')));
  });

  test('where the browser has no WebGPU, the refusal says why', async () => {
    const plain = await openChromium(['--disable-features=WebGPU,WebGPUService']);
    try {
      const { report } = await reportOf<Report>(plain, `${(await siteOf()).origin}/?script=/pages/gpu.js`);
      assert.match(
        report.opened,
        /^DEVICE ropewalk: backend: cannot open webgpu: (this browser has no WebGPU|WebGPU finds no adapter)/,
      );
      assert.doesNotMatch(report.opened, /VK_ICD_FILENAMES/, 'a page has no environment');
    } finally {
      await plain.close();
    }
  });
});
