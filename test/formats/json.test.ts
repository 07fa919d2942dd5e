import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { parseJson } from '../../src/formats/json.js';
import { mustRefuseOrReturn } from '../support/fuzz.js';
import { seeded } from '../support/tensors.js';

describe('parseJson', () => {
  test('agrees with JSON.parse on every JSON value', () => {
    fc.assert(
      fc.property(fc.json(), (text) => assert.deepEqual(parseJson(text, 'f'), JSON.parse(text))),
      seeded,
    );
  });

  test('takes the numbers that Python writes, and leaves texts alone', () => {
    assert.deepEqual(parseJson('{"a": NaN, "b": [-Infinity, Infinity, -1], "c": "NaN and \\"Infinity", "N": null}', 'f'), {
      a: Number.NaN,
      b: [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY, -1],
      c: 'NaN and "Infinity',
      N: null,
    });
  });

  test('fuzz: texts and bytes are parsed or refused', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 60 }), (text) => mustRefuseOrReturn(() => parseJson(text, 'f'))),
      { ...seeded, numRuns: 2000 },
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => mustRefuseOrReturn(() => parseJson(bytes, 'f'))),
      { ...seeded, numRuns: 1000 },
    );
  });

  test('refusals', () => {
    const throws = (input: string | Uint8Array, message: RegExp): void =>
      void assert.throws(() => parseJson(input, 'config.json'), { code: 'FORMAT', message });
    throws('{"a": }', /config\.json: expected JSON, got "Unexpected token/);
    throws('['.repeat(100000), /config\.json: expected JSON nested at most 200 deep, got "a deeper one at character 200"/);
    throws(Uint8Array.of(0x22, 0xff, 0x22), /config\.json: expected UTF-8 text, got "3 bytes that are not"/);
    throws('', /expected JSON/);
  });
});
