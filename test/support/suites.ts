/** Runs conformance suites as tests. Each suite is one test, which names every failing case. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { formatResult, runCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import { referenceRunner } from 'ropewalk/reference';

/** The folder of the repository's vectors. */
export const VECTORS = fileURLToPath(new URL('../../vectors', import.meta.url));

/** Matches the line of a case for which only cpu has a kernel. */
export const WITHOUT_KERNEL = / not supported \[weights in (iq4_nl|iq4_xs|mxfp4|q[456]_K) have no kernel yet, /;

/** Declares a test that every vector of a folder passes on the reference. */
export function suitePasses(name: string): void {
  test(`every vector of ${name} passes`, async () => {
    const failed: string[] = [];
    let count = 0;
    for await (const result of runCases(vectorCases(vectorFolder(`${VECTORS}/${name}`)), referenceRunner())) {
      count++;
      if (result.verdict.status !== 'ok') failed.push(formatResult(result));
    }
    assert.ok(count >= 14, `${count} cases`);
    assert.deepEqual(failed, []);
  });
}
