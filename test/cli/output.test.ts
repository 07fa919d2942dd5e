import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { openPrinter } from '../../src/cli/output.js';

function capture(isTTY: boolean): { stream: NodeJS.WriteStream; text: () => string } {
  const stream = Object.assign(new PassThrough(), { isTTY, columns: 80 }) as unknown as NodeJS.WriteStream;
  let text = '';
  stream.on('data', (chunk) => {
    text += chunk;
  });
  return { stream, text: () => text };
}

test('on a terminal: every line is printed, and a bar below that ends with the work', () => {
  const { stream, text } = capture(true);
  const printer = openPrinter(3, 'cases', false, stream);
  for (const line of ['one', 'two', 'three']) {
    printer.line(line);
    printer.step();
  }
  printer.stop();
  for (const line of ['one\n', 'two\n', 'three\n', '3/3 cases']) assert.ok(text().includes(line), JSON.stringify(text()));
});

test('in a pipe, and when quiet: the lines and nothing else', () => {
  for (const [isTTY, quiet] of [
    [false, false],
    [true, true],
  ] as const) {
    const { stream, text } = capture(isTTY);
    const printer = openPrinter(1, 'cases', quiet, stream);
    printer.line('one');
    printer.step();
    printer.stop();
    assert.equal(text(), 'one\n');
  }
});
