/**
 * Tests every message of the packages. scripts/docs/messages.mjs reads them from the sources, and `npm run messages`
 * prints them.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { ROOT } from './support/build.js';

/** The script's description of a call that makes a message. */
interface Message {
  readonly at: string;
  readonly by: string;
  readonly text: string;
  /** The words that a call passes to `refuse` instead of a value. */
  readonly prose?: string;
}

const installed = existsSync(join(ROOT, 'scripts/docs/node_modules/typescript/package.json'));
const skip = installed ? false : 'TypeScript 6 is not installed: npm run peers';

describe('messages', { skip }, async () => {
  const { messages }: { messages: () => Message[] } = skip
    ? { messages: () => [] }
    : await import(join(ROOT, 'scripts/docs/messages.mjs'));
  const all = messages();

  test('there are hundreds', () => assert.ok(all.length > 500, `${all.length}`));

  test('"expected …, got …" is about a value: a state or a rule is a sentence of its own (fail)', () => {
    assert.deepEqual(
      all.filter(({ prose }) => prose !== undefined).map(({ at, text }) => `${at} ${text}`),
      [],
    );
  });

  test('each starts with one of the codes', () => {
    const odd = all.filter(({ text }) => !/^(SHAPE|DTYPE|RANGE|ALIAS|UNSUPPORTED|FORMAT|DEVICE|\{)/.test(text));
    assert.deepEqual(odd, []);
  });
});
