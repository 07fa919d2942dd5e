/** Tests untrusted patterns: they give the results of JavaScript's own engine, in a bounded number of steps. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { randomFrom } from 'ropewalk/internal';
import { drawn, SEED } from '../../../test/support/size.js';
import { BoundedRegExp } from '../src/bounded-regexp.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';

const HOSTILE = [
  '(a+)+$',
  '(a|a)*$',
  `${'a?'.repeat(30)}${'a'.repeat(30)}b`,
  '(?=(?:a+)+b)',
  '(?:(?:a{1,9}){1,9}){1,9}$',
  'a*a*a*a*a*$',
];

describe('bounded regular expressions', () => {
  test('match, split and replace as without bounds, for patterns of every kind', () => {
    const random = randomFrom(SEED === undefined ? 'patterns' : `patterns ${SEED}`);
    const pick = (list: readonly string[]): string => list[random.integer(list.length)]!;
    const atoms = [
      'a',
      'b',
      ' ',
      '\\n',
      'é',
      '\\p{L}',
      '\\s',
      '[ab]',
      '[^a]',
      '.',
      '\\S',
      '\\u{1F600}',
      '[\\]a-]',
      '\\d',
      '^',
      '$',
    ];
    const pattern = (depth: number): string => {
      const inner = (): string => pattern(depth - 1);
      const kind = random.integer(depth <= 0 ? 3 : 9);
      if (kind < 3) return pick(atoms);
      if (kind === 3) return inner() + inner();
      if (kind === 4) return `(?:${inner()}|${inner()})`;
      if (kind === 5) return `(?:${inner()})${pick(['*', '+', '?', '{2}', '{1,3}', '{2,}', '*?', '+?', '??'])}`;
      if (kind === 6) return `${pick(['a', '[ab]', '\\s'])}${pick(['*', '+', '?', '+?'])}`;
      if (kind === 7) return `(?${pick(['=', '!'])}${inner()})`;
      return `(?<${pick(['=', '!'])}${pick(['a', '[ab]', '\\s', 'ab', '(?:ab|bc)', '[\\s\\S]'])})a`;
    };
    const results = (re: RegExp, text: string): unknown => [
      Array.from(text.matchAll(re), ({ index, 0: match }) => [index, match]),
      text.match(re),
      text.split(re),
      text.replaceAll(re, '_'),
    ];
    let compared = 0;
    const { numRuns } = drawn(2000);
    for (let n = 0; n < numRuns; n++) {
      const source = `${pattern(4)}|${pattern(2)}`;
      let native: RegExp;
      let bounded: RegExp;
      try {
        native = new RegExp(source, 'gu');
        bounded = new BoundedRegExp(native);
      } catch {
        continue; // not a pattern, or one of the few that are refused
      }
      // The text has no surrogate pairs: V8 finds empty matches in the middle of one, which the specification does not
      // allow.
      const text = Array.from({ length: random.integer(14) }, () =>
        pick(['a', 'b', 'c', ' ', '\n', 'A', 'é', '1']),
      ).join('');
      assert.deepEqual(results(bounded, text), results(native, text), `${source} on ${JSON.stringify(text)}`);
      compared++;
    }
    assert.ok(compared > 0.75 * numRuns, `${compared} of ${numRuns}`);
    // An optional turn of a repeat that takes no character is given up for one that does.
    for (const source of ['(?:^|a)?b?', '(?:a*?){1,3}', '(?:a*?)?b', '(?:(?:a??){2})??b', '(?:(?:|a)(?:|b)){0,2}c?'])
      for (const text of ['aab', 'abbc', 'baca'])
        assert.deepEqual(
          results(new BoundedRegExp(new RegExp(source, 'gu')), text),
          results(new RegExp(source, 'gu'), text),
          `${source} on ${text}`,
        );
    assert.deepEqual('a😀😀b'.match(new BoundedRegExp(/[^a]|\u{1F600}+(?=b)|(?<=😀)b/gu)), ['😀', '😀', 'b']);
  });

  test('texts of one character do not exhaust patterns of published tokenizers, however often they are split', () => {
    const [upper, lower] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];
    const start = '[^\\r\\n\\p{L}\\p{N}]?';
    const source = `${start}${upper}*${lower}+|${start}${upper}+${lower}*|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
    const bounded = new BoundedRegExp(new RegExp(source, 'gu'));
    for (const character of [' ', '\n', ' \n', 'a', 'A', '你', '1', '.', '😀', 'x ']) {
      const text = character.repeat(5000);
      assert.deepEqual(text.match(bounded), text.match(new RegExp(source, 'gu')));
      for (let n = 0; n < 50; n++) assert.equal('a b'.split(bounded).length, 3);
    }
  });

  for (const source of HOSTILE) {
    test(`${source.slice(0, 30)} is refused where it takes too long`, () => {
      const bounded = new BoundedRegExp(new RegExp(source, 'gu'), 'gu', 'tokenizer.json: pattern');
      const text = `${'a'.repeat(2000)}c`;
      assert.throws(() => text.match(bounded), {
        name: 'RopewalkError',
        code: 'RANGE',
        message: /^tokenizer\.json: pattern: it takes more than 128 steps a character for a text of 2001 characters/,
      });
      assert.equal('b'.replaceAll(bounded, ''), 'b');
    });
  }

  test('any number of zeros before a count or a code point is read', () => {
    const zeros = '0'.repeat(70);
    for (const source of [`a{${zeros}1}b`, `a{${zeros}1,${zeros}2}`, `\\u{${zeros}61}`, `[\\u{${zeros}61}]+`]) {
      const native = new RegExp(source, 'gu');
      assert.deepEqual('aaabc'.match(new BoundedRegExp(native)), 'aaabc'.match(native), source);
    }
  });

  test('refusals: what is not supported', () => {
    const refused: Record<string, string> = {
      '(a)\\1': 'back-references are not supported, such as "\\\\1"',
      '(?<x>a)\\k<x>': 'back-references are not supported, such as "\\\\k<x>"',
      '\\bword': 'word boundaries are not supported, such as "\\\\b"',
      'b|(?<=a+)b': 'look-behinds of varying length are not supported, such as "(?<=a+)"',
      'b(?:a*)*?c': 'repeats of a part that can be empty are not supported, such as "(?:a*)*?"',
    };
    for (const [source, expected] of Object.entries(refused)) {
      assert.throws(() => new BoundedRegExp(new RegExp(source, 'gu'), 'gu', 'w'), {
        name: 'RopewalkError',
        code: 'UNSUPPORTED',
        message: `w: ${expected}. Rewrite the pattern without them.`,
      });
    }
  });

  const large = [
    'a{9999}',
    '(?:){1000000000}',
    '(?:a{0}){9999999999999999}',
    '(?:(?:){1000000}){1000000}',
    '(?:(?:)|(?:)){0,1000000000}',
    '(?:(?=a{4000})){4000}',
    'a'.repeat(2e5),
    '(?:)'.repeat(2e5),
    '|'.repeat(2e5),
  ];
  for (const source of large) {
    test(`${source.slice(0, 30)} is too large, with or without a character to match`, () => {
      assert.throws(() => new BoundedRegExp(new RegExp(source, 'gu')), {
        name: 'RopewalkError',
        code: 'UNSUPPORTED',
        message: /the pattern has more than 8192 parts\. Repeats with a count are written out/,
      });
    });
  }

  test('the way back of a look-behind counts as steps', () => {
    const bounded = new BoundedRegExp(/(?<=b.{4000})a/gu);
    assert.throws(() => 'a'.repeat(9000).match(bounded), { name: 'RopewalkError', code: 'RANGE' });
  });
});

describe('steps of a tokenizer.json', () => {
  const open = (changes: Record<string, unknown>) =>
    tokenizerFromJson({
      tokenizerJson: {
        model: { type: 'BPE', vocab: { a: 0, b: 1, $: 2, '&': 3 }, merges: [] },
        decoder: { type: 'ByteLevel' },
        ...changes,
      },
    });
  const split = (Regex: string) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated' });
  const replace = (content: string, Regex = 'a') => ({ type: 'Replace', pattern: { Regex }, content });
  const text = `${'a'.repeat(40)}b`;

  test('a pattern that takes 2^n steps is refused, before merges and in a normalizer', () => {
    const message = /tokenizer\.json: pattern "\(a\+\)\+\$": it takes more than 128 steps a character .*hostile/;
    const splits = {
      type: 'Sequence',
      pretokenizers: [{ type: 'Split', pattern: { String: 'x' }, behavior: 'Isolated' }, split('(a+)+$')],
    };
    for (const changes of [
      { pre_tokenizer: splits },
      { normalizer: { type: 'Sequence', normalizers: [replace('b', '(a+)+$')] } },
    ]) {
      assert.throws(() => open(changes).encode(text), { name: 'RopewalkError', code: 'RANGE', message });
    }
    assert.equal(open({ pre_tokenizer: split('a{1,3}') }).encode(text).length, 41);
  });

  test('patterns are refused where they are too long together: the library takes quadratic time to read them', () => {
    const message = /pattern\.Regex: the patterns of the file have more than 16384 characters together\. Shorten them/;
    const refused = { name: 'RopewalkError', code: 'UNSUPPORTED', message };
    assert.throws(() => open({ pre_tokenizer: split('\\p{'.repeat(40000)) }), refused);
    const pretokenizers = Array.from({ length: 20 }, () => split('(?:)'.repeat(250)));
    assert.throws(() => open({ pre_tokenizer: { type: 'Sequence', pretokenizers } }), refused);
  });

  test('replacements are literal, and cannot grow a text without end', () => {
    assert.deepEqual(open({ normalizer: replace('$&') }).encode('ab'), [2, 3, 1]);
    const normalizers = Array.from({ length: 30 }, () => replace('aa'));
    assert.throws(() => open({ normalizer: { type: 'Sequence', normalizers } }), {
      name: 'RopewalkError',
      message: /content: replacements may make a text more than 1024 times longer/,
    });
  });

  test('pieces of no length are refused', () => {
    for (const length of [0, -1, undefined, 0.5, '1'])
      assert.throws(() => open({ pre_tokenizer: { type: 'FixedLength', length } }), {
        name: 'RopewalkError',
        code: 'FORMAT',
        message: /length/,
      });
    assert.equal(open({ pre_tokenizer: { type: 'FixedLength', length: 2 } }).encode('aab').length, 3);
  });
});
