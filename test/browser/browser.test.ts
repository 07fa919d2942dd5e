/** The built library in a real browser: every suite runs there as it does in Node, with no bundler and no Node module. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { openFolder } from '../../src/conformance/folder.node.js';
import { goldenOperatorSuite, goldenRopeSuite } from '../../src/conformance/golden/suite.js';
import { extendedCases, publishedCases } from '../../src/conformance/published.js';
import { countResults, formatSummary, runCases } from '../../src/conformance/runner.js';
import { vectorCases } from '../../src/conformance/vectors.js';
import { referenceRunner } from '../../src/reference/index.js';
import { noBrowser, openChromium, reportOf, serve } from '../support/browser.js';
import { buildInto } from '../support/build.js';
import { VECTORS } from '../support/suites.js';

const folder = mkdtempSync(join(tmpdir(), 'browser-'));
after(() => rmSync(folder, { recursive: true }));

test('every suite in Chromium gives the summary that it gives in Node', { skip: noBrowser }, async () => {
  buildInto(folder);
  const site = await serve({ folders: { '/dist/': folder } });
  const browser = await openChromium();
  try {
    const { report } = await reportOf<{ failed: string[]; summary: string[] }>(
      browser,
      `${site.origin}/?script=/pages/suites.js&backend=reference`,
    );
    const results = [];
    for await (const result of runCases(
      [
        ...publishedCases(),
        ...extendedCases(),
        ...goldenRopeSuite(),
        ...goldenOperatorSuite(),
        ...vectorCases(openFolder(VECTORS)),
      ],
      referenceRunner(),
    ))
      results.push(result);
    assert.deepEqual(report.failed, []);
    assert.deepEqual(report.summary, formatSummary(countResults(results)));
  } finally {
    await browser.close();
    site.close();
  }
});
