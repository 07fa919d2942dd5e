/** Tests that the suites notice outputs that are off by a hundred thousandth. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { OpPlan, Runner, Tensor } from 'ropewalk';
import { loadNumber, storeNumber, walk } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { VECTORS } from '../../../test/support/suites.js';
import { vectorFolder } from '../src/folder.node.js';
import { goldenOperatorSuite, goldenRopeSuite } from '../src/golden/suite.js';
import { extendedCases, publishedCases } from '../src/published.js';
import { type ConformanceCase, runCases } from '../src/runner.js';
import { CALL_SUITES } from '../src/vectors/calls.js';
import { vectorCases } from '../src/vectors.js';

const outputsOf = (plan: OpPlan): readonly Tensor[] => {
  if (plan.op === 'rope') return plan.parts.map(({ out }) => out);
  if (plan.op === 'argmax') return [plan.outValue];
  return [plan.op === 'route' ? plan.weights : plan.out];
};

/** Makes a runner that computes with the reference and multiplies every f32 output. */
function scaled(factor: number): Runner {
  const reference = referenceRunner();
  return {
    ...reference,
    name: 'scaled',
    run(plan) {
      reference.run(plan);
      for (const out of outputsOf(plan)) {
        if (out.dtype !== 'f32') continue;
        const data = out.storage.host!;
        walk(out, (at) => storeNumber(data, 'f32', at, loadNumber(data, 'f32', at) * factor));
      }
    },
  };
}

/** Returns the labels of the cases that fail. */
async function failing(cases: Iterable<ConformanceCase>, factor: number): Promise<Set<string>> {
  const failed = new Set<string>();
  for await (const { label, verdict } of runCases(cases, scaled(factor)))
    if (verdict.status === 'fail') failed.add(label);
  return failed;
}

const vectors = vectorCases(vectorFolder(VECTORS));
/** The suites without rearrange, whose numbers are so small that a hundred thousandth of most rounds to 0. */
const suite = (name: string): ConformanceCase[] =>
  vectors.filter((one) => one.suite === name && !one.label.startsWith('REARRANGE'));
/** The part of a manifest of calls that is read here. */
interface CallManifest {
  readonly cases: readonly { readonly id: string; readonly outputs: Readonly<Record<string, { dtype: string }>> }[];
}
const isF32 = ({ label }: ConformanceCase): boolean => /type=f(loat)?32/.test(label);

describe('outputs times 1 + 1e-5', () => {
  for (const name of ['infiniop', 'onnx']) {
    test(`${name}: every case with an f32 output fails, and no other`, async () => {
      assert.deepEqual([...(await failing(suite(name), 1))], [], 'nothing is scaled');
      const failed = await failing(suite(name), 1 + 1e-5);
      const kept = suite(name).filter((one) => isF32(one) !== failed.has(one.label));
      assert.deepEqual(
        kept.map(({ label }) => label),
        [],
      );
    });
  }

  for (const name of CALL_SUITES) {
    test(`${name}: every case with an f32 output fails`, async () => {
      assert.deepEqual([...(await failing(suite(name), 1))], [], 'nothing is scaled');
      const { cases } = JSON.parse(readFileSync(join(VECTORS, name, 'manifest.json'), 'utf8')) as CallManifest;
      const hasF32 = cases.filter(({ outputs }) => Object.values(outputs).some(({ dtype }) => dtype === 'f32'));
      assert.ok(hasF32.length >= 3, `${hasF32.length} cases`);
      const failed = [...(await failing(suite(name), 1 + 1e-5))];
      const passed = hasF32.filter(({ id }) => !failed.some((label) => label.includes(`vector=${name}/${id},`)));
      assert.deepEqual(passed, []);
    });
  }

  test('llaisys: every operator fails, where its sums are short', async () => {
    const cases = suite('llaisys').filter(isF32);
    const failed = await failing(cases, 1 + 1e-5);
    const operatorOf = (label: string): string => label.split('(')[0]!;
    const all = new Set(cases.map(({ label }) => operatorOf(label)).filter((op) => !op.endsWith('_REFUSED')));
    assert.deepEqual(new Set([...failed].map(operatorOf)), all);
    assert.ok(failed.size > cases.length / 2, `${failed.size} of ${cases.length}`);
    assert.equal((await failing(suite('llaisys'), 1)).size, 0, 'nothing is scaled');
  });

  test('golden: red', async () => {
    const cases = [...goldenRopeSuite(), ...goldenOperatorSuite()];
    assert.equal((await failing(cases, 1)).size, 0);
    assert.ok((await failing(cases, 1 + 1e-5)).size > 40);
  });
});

describe('the suites that are judged by NMSE', () => {
  // A factor of 1 + e is an NMSE of e². The suites' limits are ggml's 1e-7, and 1e-8 and 1e-10 for a peer's angles.
  for (const [name, cases] of Object.entries({
    published: publishedCases(),
    extended: extendedCases(),
    ggml: suite('ggml'),
    huggingface: suite('huggingface'),
  }))
    test(`${name}: red for outputs times 1 + 1e-3`, async () => {
      assert.ok((await failing(cases, 1 + 1e-3)).size > cases.length / 4);
    });
});
