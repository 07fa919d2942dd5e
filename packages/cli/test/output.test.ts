import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { WriteStream } from 'node:tty';
import { openPercentBar, openPrinter } from '../src/output.js';

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

describe('colors', () => {
  const report = '\nSummary\n  a: OK\n  b: FAIL\n\nno heading: NOTOK\n';
  /** Returns the text that a printer writes for a report. */
  const printed = (isTTY: boolean, env: Record<string, string>, text = report): string => {
    const before = process.env;
    process.env = { TERM: 'xterm-256color', ...env };
    try {
      const { stream, text: got } = capture(isTTY);
      Object.assign(stream, { getColorDepth: WriteStream.prototype.getColorDepth });
      openPrinter(1, 'cases', true, stream).line(text.trimEnd());
      return got();
    } finally {
      process.env = before;
    }
  };

  test('on a terminal: what passed, what failed, and headings', () => {
    assert.equal(
      printed(true, {}),
      '\n\x1b[1mSummary\x1b[22m\n  a: \x1b[32mOK\x1b[39m\n  b: \x1b[31mFAIL\x1b[39m\n\nno heading: NOTOK\n',
    );
    for (const [color, words] of [
      [32, 'AS EXPECTED'],
      [31, 'KNOWN BUG'],
      [31, 'NOT UNDERSTOOD'],
      [31, 'ONE OF 3'],
      [31, 'WRONG PARAMETERS'],
      [32, 'SAME'],
      [31, 'FIRST DIVERGENCE'],
    ])
      assert.equal(printed(true, {}, `${words}: y`), `\x1b[${color}m${words}\x1b[39m: y\n`);
  });

  test('none in a pipe, with NO_COLOR, on a terminal without colours, in JSON', () => {
    assert.equal(printed(false, { FORCE_COLOR: '1' }), report);
    assert.equal(printed(true, { NO_COLOR: '1' }), report);
    assert.equal(printed(true, { TERM: 'dumb' }), report);
    assert.equal(printed(true, {}, '{"status":"FAIL"}'), '{"status":"FAIL"}\n');
  });
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
