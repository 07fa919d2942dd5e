/**
 * Switches and tables over the operators: one that misses an operator must not compile, and a value that is not a plan
 * must be refused.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type OpPlan, unknownPlan } from 'ropewalk/backend';
import { ROOT } from '../../../../test/support/build.js';
import { type OperatorTable, operatorOf } from '../../src/ops/op-plan.js';

test('every switch over operators is closed: one that misses an operator does not compile', () => {
  const packages = join(ROOT, 'packages');
  let count = 0;
  for (const file of readdirSync(packages, { recursive: true, encoding: 'utf8' }).filter((name) =>
    /[\\/]src[\\/].*\.ts$/.test(name),
  )) {
    for (const body of readFileSync(join(packages, file), 'utf8').split('switch (plan.op) {').slice(1)) {
      assert.match(
        body,
        /^[^}]*(?:\}[^}]*)*?\n *default:\n *(?:return )?unknownPlan\(plan satisfies never\);\n *\}/,
        file,
      );
      count++;
    }
  }
  assert.ok(count >= 2, `${count} switches`);

  const misses = (plan: OpPlan): string => {
    switch (plan.op) {
      case 'add':
        return plan.op;
      default:
        // @ts-expect-error all others are missing
        return unknownPlan(plan);
    }
  };
  assert.throws(() => misses({ op: 'none such' } as never), {
    code: 'UNSUPPORTED',
    message:
      'run: plan: expected a plan of one of Ropewalk\'s operators, got "none such". Make it with a plan… or bind… function.',
  });
});

test('a table of operators that misses one does not compile, and a plan of no operator is refused', () => {
  // @ts-expect-error all others are missing
  const misses: OperatorTable = { add: () => {} };
  for (const op of ['none such', 'toString'])
    assert.throws(() => operatorOf(misses, { op } as never), { code: 'UNSUPPORTED' });
});
