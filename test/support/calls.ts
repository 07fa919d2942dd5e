/** Runs suites of calls on every backend. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatResult, runCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import { noBackend, openShared } from './gpu.js';
import { VECTORS } from './suites.js';
import { GENERAL_HERE } from './tier.js';

/** These backends run every call. The others may report that they cannot. */
const COMPLETE = ['reference', 'cpu', 'webgpu'];

/** Declares one test for each backend of the running tier: no vector of these folders may fail. */
export function callsPass(...folders: string[]): void {
  for (const name of GENERAL_HERE) {
    test(`no vector of ${folders.join(' and ')} fails on ${name}`, { skip: noBackend(name) }, async () => {
      const rw = await openShared(name);
      const failed: string[] = [];
      try {
        for (const folder of folders)
          for await (const result of runCases(vectorCases(vectorFolder(`${VECTORS}/${folder}`)), rw))
            if (result.verdict.status === 'fail' || (result.verdict.status !== 'ok' && COMPLETE.includes(name)))
              failed.push(formatResult(result));
      } finally {
        rw.dispose();
      }
      assert.deepEqual(failed, []);
    });
  }
}
