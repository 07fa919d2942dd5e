import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { mutantExample, mutantSteps } from '@ropewalk/oracle';
import type { Tensor } from 'ropewalk';
import { type FloatDtype, roundTo } from 'ropewalk';
import { some } from '../../../test/support/size.js';
import { diagnose } from '../src/diagnose.js';
import { MUTANTS } from '../src/mutants/catalogue.js';
import { readHeads } from '../src/read-heads.js';

describe('the examples of known bugs', () => {
  test('every entry of the catalogue has a model on which the right kernel gives something else', () => {
    for (const mutant of some(MUTANTS)) {
      const { observation, expected, about } = mutantExample(mutant);
      const { y, right, headDim, pairs } = readHeads(observation, expected);
      assert.ok(right!.length === y.length && headDim > 2 && pairs.length > 0, mutant.id);
      assert.ok(mutantSteps(mutant).length > 0 && about.endsWith('.'), mutant.id);
      const { dtype } = observation.y as Tensor<FloatDtype>;
      assert.ok(
        y.some((value, n) => value !== roundTo(dtype, right![n]!)),
        `${mutant.id} is right`,
      );
    }
  });
  test('the diagnosis of an example names its bug', () => {
    for (const mutant of some(MUTANTS.filter((_, n) => n % 24 === 0))) {
      const { observation, expected } = mutantExample(mutant);
      const { verdict, named } = diagnose(observation, expected);
      assert.equal(verdict, 'known bug', mutant.id);
      assert.ok(
        named.some(({ id }) => id === mutant.id),
        `${mutant.id}: ${named.map(({ id }) => id)}`,
      );
    }
  });
  test('what is no known bug is refused', () => {
    assert.throws(() => mutantExample({ ...MUTANTS[0]!, id: 'nothing', change: () => undefined }), {
      code: 'UNSUPPORTED',
      message: /expected a bug that a golden model shows/,
    });
    assert.throws(() => mutantExample(undefined as never), { name: 'RopewalkError' });
  });
});
