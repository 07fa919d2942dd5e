/**
 * Tests the built library in a real browser: every suite runs as in Node, without a bundler or a Node module.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  countResults,
  extendedCases,
  formatSummary,
  goldenOperatorSuite,
  goldenRopeSuite,
  publishedCases,
  runCases,
  vectorCases,
} from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import { referenceRunner } from 'ropewalk/reference';
import { noBrowser, openChromium, reportOf, serve } from '../support/browser.js';
import { builtPackage } from '../support/build.js';
import { VECTORS } from '../support/suites.js';

test('every suite in Chromium gives the summary that it gives in Node', { skip: noBrowser }, async () => {
  builtPackage('oracle');
  const site = await serve({ folders: { '/dist/': builtPackage('ropewalk') } });
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
        ...vectorCases(vectorFolder(VECTORS)),
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
