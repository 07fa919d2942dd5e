/** Running conformance suites as tests: one test a suite, which names every case that fails. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { formatResult, runCases, vectorCases } from '@ropewalk/oracle';
import { openFolder } from '@ropewalk/oracle/node';
import { referenceRunner } from 'ropewalk/reference';

/** The repository's own vectors. */
export const VECTORS = fileURLToPath(new URL('../../vectors', import.meta.url));

/** The line of a case that cpu alone has a kernel for. */
export const WITHOUT_KERNEL = / not supported \[weights in (iq4_nl|iq4_xs|mxfp4|q[456]_K) have no kernel yet, /;

/** Declares a test that every vector of a folder passes on the reference. */
export function suitePasses(name: string): void {
  test(`every vector of ${name} passes`, async () => {
    const failed: string[] = [];
    let count = 0;
    for await (const result of runCases(vectorCases(openFolder(`${VECTORS}/${name}`)), referenceRunner())) {
      count++;
      if (result.verdict.status !== 'ok') failed.push(formatResult(result));
    }
    assert.ok(count >= 14, `${count} cases`);
    assert.deepEqual(failed, []);
  });
}
