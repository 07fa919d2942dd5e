import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { parseJson } from '../src/json.js';

/** The result of JSON.parse: a value, or a refusal. */
function judge(parse: (text: string) => unknown, text: string): { value: unknown } | 'refused' {
  try {
    return { value: parse(text) };
  } catch {
    return 'refused';
  }
}
const agrees = (text: string): void =>
  assert.deepEqual(
    judge((t) => parseJson(t, 'f'), text),
    judge(JSON.parse, text),
    JSON.stringify(text),
  );

describe('parseJson', () => {
  test('agrees with JSON.parse on every JSON value', () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.json({ stringUnit: 'binary' })), (text) => {
        assert.deepEqual(parseJson(text, 'f'), JSON.parse(text));
        const bytes = new TextEncoder().encode(text); // lone surrogates become U+FFFD here
        assert.deepEqual(parseJson(bytes, 'f'), JSON.parse(new TextDecoder().decode(bytes)));
      }),
      drawn(),
    );
  });

  test('agrees with JSON.parse on what is almost JSON', () => {
    const words = [
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"a"',
      '"__proto__"',
      '"\\n"',
      '"\\u00e9"',
      '"\\u00zz"',
      '"\\x"',
      '"',
      '\\',
      '\t',
      ' ',
      '\n',
    ];
    const scalars = [
      '0',
      '-0',
      '1',
      '01',
      '1.',
      '.5',
      '+1',
      '-',
      '1.5e-3',
      '1e',
      '1e400',
      'true',
      'nul',
      'null',
      '\u00a0',
      '\u0001',
      'é',
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...words, ...scalars), { maxLength: 12 }), (tokens) =>
        agrees(tokens.join('')),
      ),
      drawn(20000),
    );
    fc.assert(
      fc.property(fc.json(), fc.nat(), fc.nat(), fc.constantFrom(...words, ...scalars, ''), (text, at, cut, word) => {
        const start = at % (text.length + 1);
        agrees(text.slice(0, start) + word + text.slice(start + (cut % 3)));
      }),
      drawn(5000),
    );
  });

  test('takes the numbers that Python writes, and leaves texts alone', () => {
    assert.deepEqual(
      parseJson('{"a": NaN, "b": [-Infinity, Infinity, -1], "c": "NaN and \\"Infinity", "N": null}', 'f'),
      {
        a: Number.NaN,
        b: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, -1],
        c: 'NaN and "Infinity',
        N: null,
      },
    );
    assert.deepEqual(parseJson('["\\u0000number:5", NaN]', 'f'), ['\u0000number:5', Number.NaN]);
  });

  test('a byte order mark is skipped', () => {
    assert.deepEqual(parseJson('\ufeff{}', 'f'), {});
    assert.deepEqual(parseJson(Uint8Array.of(0xef, 0xbb, 0xbf, 0x7b, 0x7d), 'f'), {});
    assert.equal(parseJson('"\ufeff"', 'f'), '\ufeff');
  });

  test('a field may be called __proto__, and stays a field', () => {
    const record = parseJson('{"__proto__": {"polluted": 1}}', 'f') as object;
    assert.deepEqual(Object.keys(record), ['__proto__']);
    assert.equal(Object.getPrototypeOf(record), Object.prototype);
    assert.equal('polluted' in record, false);
  });

  test('the last of two equal keys wins, or is refused', () => {
    assert.deepEqual(parseJson('{"a": 1, "a": 2}', 'f'), { a: 2 });
    assert.deepEqual(parseJson('[{"a": 1}, {"a": 2}]', 'f', { uniqueKeys: true }), [{ a: 1 }, { a: 2 }]);
    for (const text of ['{"a": 1, "a": 2}', '{"a": 1, "\\u0061": 2}', '{"__proto__": 1, "__proto__": 2}'])
      assert.throws(() => parseJson(text, 'f', { uniqueKeys: true }), {
        code: 'FORMAT',
        message: /^f: expected JSON with each key once/,
      });
  });

  test('long texts and numbers neither overflow the stack nor hang', () => {
    const long = 'x'.repeat(2 ** 22);
    assert.equal(parseJson(`"${long}"`, 'f'), long);
    assert.equal((parseJson(`"${'\\n'.repeat(2 ** 20)}"`, 'f') as string).length, 2 ** 20);
    assert.equal(parseJson('9'.repeat(2 ** 20), 'f'), Number.POSITIVE_INFINITY);
    assert.throws(() => parseJson(`${'9'.repeat(2 ** 20)}e`, 'f'), { code: 'FORMAT' });
    assert.throws(() => parseJson(`"${'\\"'.repeat(2 ** 20)}`, 'f'), { code: 'FORMAT' });
    assert.equal((parseJson(`[${'0,'.repeat(2 ** 19)}0]`, 'f') as number[]).length, 2 ** 19 + 1);
  });

  test('fuzz: any bytes are read or refused', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => mustRefuseOrReturn(() => parseJson(bytes, 'f'))),
      drawn(1000),
    );
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom(...'{}[]":,0-NaIeE.\\ '), maxLength: 30 }), (text) =>
        mustRefuseOrReturn(() => parseJson(text, 'f')),
      ),
      drawn(3000),
    );
  });

  test('refusals say the line and the column', () => {
    const throws = (input: string | Uint8Array, message: string): void =>
      void assert.throws(() => parseJson(input, 'config.json'), {
        code: 'FORMAT',
        message: `config.json: expected ${message}`,
      });
    throws('{"a": }', 'JSON with a value at line 1, column 7, got "}"');
    throws('{\n  "a": 1,\n  "b": oops\n}', 'JSON with a value at line 3, column 8, got "oops\\n}"');
    throws('\n\n', 'JSON with a value at line 3, column 1, got "the end of the text"');
    throws('', 'JSON with a value at line 1, column 1, got "the end of the text"');
    throws('{"a" 1}', 'JSON with a colon at line 1, column 6, got "1}"');
    throws('{a: 1}', 'JSON with a key in quotes at line 1, column 2, got "a: 1}"');
    throws('[1 2]', 'JSON with a comma or ] at line 1, column 4, got "2]"');
    throws('[1] 2', 'JSON with nothing after the value at line 1, column 5, got "2"');
    throws('"a\nb"', 'JSON with a closing quote, or control characters escaped at line 1, column 3, got "\\nb\\""');
    throws(
      '"a',
      'JSON with a closing quote, or control characters escaped at line 1, column 3, got "the end of the text"',
    );
    throws(
      '"a\\',
      'JSON with a closing quote, or control characters escaped at line 1, column 4, got "the end of the text"',
    );
    throws('["\\q"]', 'JSON with a text with valid escapes at line 1, column 2, got "\\"\\\\q\\"]"');
    throws('['.repeat(100000), `JSON with at most 200 levels at line 1, column 201, got "${'['.repeat(20)}"`);
    assert.throws(() => parseJson(Uint8Array.of(0x22, 0xff, 0x22), 'config.json'), {
      code: 'FORMAT',
      message: 'config.json: it is not valid UTF-8',
    });
    assert.equal(JSON.stringify(parseJson(`${'['.repeat(200)}${']'.repeat(200)}`, 'f')).length, 400);
  });
});
