/** Waits for another process, a worker or a page. */
import assert from 'node:assert/strict';

/** The time after which a waiting test fails. Even a slow and busy machine needs much less. */
export const WAIT_MS = 5 * 60_000;

/**
 * Waits until a condition holds. It fails after {@link WAIT_MS}.
 *
 * @param condition - says whether the wait is over
 * @param what - the condition in words, for the message of the failure
 */
export async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const end = Date.now() + WAIT_MS;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `waited ${WAIT_MS / 60_000} minutes for this: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
