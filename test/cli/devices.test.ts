import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DEVICES } from '../../packages/devices/src/index.js';
import { ROOT, ropewalkIn } from '../support/command.js';
import { examplesOf } from '../support/examples.js';

const PAGE = 'docs/devices.md';

describe('devices', () => {
  test('the list has a line for each profile', () => {
    const { status, stdout } = ropewalkIn(ROOT, 'devices');
    assert.equal(status, 0);
    assert.deepEqual(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[0]),
      DEVICES.map(({ name }) => name),
    );
  });

  test('--json has the rules of the profile', () => {
    const { status, stdout } = ropewalkIn(ROOT, 'devices', 'cann-2024', '--json');
    assert.equal(status, 0);
    const { name, operators } = JSON.parse(stdout);
    assert.equal(name, 'cann-2024');
    assert.equal(operators[0].rules[0].otherwise, 'the whole row rotates; n_dims only sets the exponents');
  });

  test('another name is refused', () => {
    const { status, stderr } = ropewalkIn(ROOT, 'devices', 'cann');
    assert.equal(status, 2);
    assert.match(stderr, /device: expected .*cann-2024.*, got "?cann"?/);
  });

  // FILL=1 writes what they print into the page, as for README's.
  for (const { title, code, output } of examplesOf(PAGE, 'sh')) {
    test(`${title}: ${code.trim()}`, () => {
      const [, ...args] = code.trim().replace(/^npx /, '').replaceAll('"', '').split(' ');
      const { stdout } = ropewalkIn(ROOT, ...args);
      if (process.env.FILL) {
        const file = join(ROOT, PAGE);
        const block = (text: string): string => `${code}\`\`\`\n\`\`\`text\n${text}\`\`\``;
        writeFileSync(
          file,
          readFileSync(file, 'utf8').replace(block(output!), () => block(stdout)),
        );
      } else assert.equal(stdout, output);
    });
  }
});
