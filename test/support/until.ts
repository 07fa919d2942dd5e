/** Waiting for what another process, a worker or a page does. */
import assert from 'node:assert/strict';

/** How long a test waits before it fails: far more than a machine needs, even a slow and busy one. */
export const WAIT_MS = 5 * 60_000;

/**
 * Waits until a condition holds; fails after {@link WAIT_MS}.
 *
 * @param condition - what is waited for
 * @param what - the same in words, for the message of the failure
 */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = Date.now() + WAIT_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `waited ${WAIT_MS / 60_000} minutes for this: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
