import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { openPercentBar, openPrinter } from '../../packages/cli/src/output.js';

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
  for (const line of ['one\n', 'two\n', 'three\n', '3/3 cases'])
    assert.ok(text().includes(line), JSON.stringify(text()));
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

test('a bar in percent: shares of any size on a terminal, nothing in a pipe', () => {
  const terminal = capture(true);
  const bar = openPercentBar('of the kernels', false, terminal.stream);
  for (const share of [0.1, 0.1, 1 / 3, 1]) bar.to(share);
  bar.stop();
  assert.ok(terminal.text().includes('100/100 % of the kernels'), JSON.stringify(terminal.text()));
  const pipe = capture(false);
  const none = openPercentBar('of the kernels', false, pipe.stream);
  none.to(1);
  none.stop();
  assert.equal(pipe.text(), '');
});
