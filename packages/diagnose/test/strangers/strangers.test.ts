import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { FUZZ } from '../../../../test/support/size.js';
import { CHANGED } from './changed.js';
import { STRANGERS } from './index.js';
import { MODELS, rotationOf } from './kernel.js';
import { OWN_FREQUENCIES } from './right.js';
import { isRight, type Mark, scoreOf, tableOf } from './score.js';

/** The tier slow takes all of them, a part of it every fourth, and other runs every fortieth, which has kernels of many causes. */
const EACH = FUZZ === 10 ? 1 : FUZZ > 1 ? 4 : 40;

/** The most of each mark in a hundred kernels today. The numbers only ever fall, to 0, 0, 0, 0 and a twentieth of the wrong ones. */
const AT_MOST = { accused: 0, passed: 0, wrongName: 0, untrue: 0, vague: 3 };

describe('strangers’ kernels', () => {
  const scores = STRANGERS.filter((_what, n) => n % EACH === 0).map(scoreOf);
  const count = (mark: Mark): number => scores.filter((one) => one.mark === mark).length;
  const most = (share: number): number => (share * scores.length) / 100;

  test('every kernel has its own name', () => {
    assert.equal(new Set(STRANGERS.map(({ id }) => id)).size, STRANGERS.length);
  });
  test('what was done to right results is said', () => {
    for (const { stranger, mark, untrue } of CHANGED.map(scoreOf)) {
      assert.deepEqual(untrue, [], stranger.id);
      assert.ok(mark === 'described' || mark === 'named', `${stranger.id}: ${mark}`);
    }
  });
  test('the formulas of right kernels give the frequencies that the models ask for', () => {
    for (const [model, own] of OWN_FREQUENCIES)
      for (const [j, f] of rotationOf(MODELS[model]).frequency.entries())
        assert.ok(Math.abs(own[j]! / f - 1) < 1e-6, `${model} pair ${j}: ${own[j]}, not ${f}`);
  });
  test('no right kernel is accused, no wrong one passes, no wrong name, no untrue line', (t) => {
    t.diagnostic(`\n${tableOf(scores)}`);
    const failing = scores.filter(({ mark, untrue }) => mark !== 'vague' && (untrue.length > 0 || BAD.includes(mark)));
    const list = failing.map(({ stranger, mark, untrue }) => `${stranger.id}: ${mark} ${untrue[0]?.line ?? ''}`);
    assert.ok(count('accused') <= most(AT_MOST.accused), list.join('\n'));
    assert.ok(count('passed') <= most(AT_MOST.passed), list.join('\n'));
    assert.ok(count('wrong name') <= most(AT_MOST.wrongName), list.join('\n'));
    assert.ok(scores.filter(({ untrue }) => untrue.length > 0).length <= most(AT_MOST.untrue), list.join('\n'));
  });
  test('nearly all wrong kernels are named or described', () => {
    const told = scores.filter(({ stranger }) => isRight(stranger)).length + count('named') + count('described');
    assert.ok(count('vague') <= most(AT_MOST.vague), `${told} of ${scores.length}`);
  });
});

const BAD: readonly Mark[] = ['untrue', 'wrong name', 'passed', 'accused'];
