/**
 * Runs InfiniOp's descriptors on the modelled core: all of its vectors through the dialect, and the plans that the
 * model's kernels refuse.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import { publishedCases, runCases, vectorCases } from '@ropewalk/oracle';
import { vectorFolder } from '@ropewalk/oracle/node';
import { bindRope, bindRopeParts, type OpPlan, planAdd, planRope, type RopeCall, tensorFrom, zeros } from 'ropewalk';
import { VECTORS } from '../../../test/support/suites.js';
import { openAscendModel } from '../src/runner.js';

describe('ascend-model', () => {
  for (const kernel of ['correct', 'fast'] as const) {
    test(`all InfiniOp vectors on the ${kernel} kernel; f64 alone is not supported`, async () => {
      const runner = await openAscendModel({ kernel });
      const cases = vectorCases(vectorFolder(`${VECTORS}/infiniop`));
      assert.ok(cases.length > 40, String(cases.length));
      let computed = 0;
      for await (const { label, verdict } of runCases(cases, runner)) {
        const detail = verdict.status === 'fail' ? verdict.detail : '';
        assert.equal(
          `${verdict.status}: ${label} ${detail}`,
          `${/type=f64/.test(label) ? 'not_supported' : 'ok'}: ${label} `,
        );
        computed += /^(M?RoPE)\(/.test(label) && verdict.status === 'ok' ? 1 : 0;
      }
      assert.ok(computed >= 20, String(computed));
      for (const run of runner.lastRuns) assert.deepEqual(run.findings, []);
    });
  }

  test('the 96 published cases: tables of f16 cases are loaded in f32', async () => {
    let ran = 0;
    for await (const { label, verdict } of runCases(publishedCases(), await openAscendModel())) {
      assert.equal(`${verdict.status}: ${label}`, `ok: ${label}`);
      ran++;
    }
    assert.equal(ran, 96);
  });

  const spec = { headDim: 8, base: 10000, pairing: 'interleaved', positions: 0, seqLen: 2 } as const;
  const f32 = () => zeros('f32', [2, 1, 8]);
  const reasons: [string, () => OpPlan, RegExp][] = [
    ['another operator', () => planAdd(f32(), f32(), f32()), /kernels for rope, not for add/],
    ['f64', () => bindRope(planRope(spec), zeros('f64', [2, 1, 8]), zeros('f64', [2, 1, 8])), /no f64 arithmetic/],
    [
      'a window inside the head',
      () => bindRope(planRope({ ...spec, rotaryDim: 4, rotaryOffset: 2 }), f32(), f32()),
      /leading dimensions/,
    ],
    [
      'DeepSeek-V3',
      () => bindRope(planRope({ ...spec, pairing: 'interleaved-to-half' }), f32(), f32()),
      /where they read it/,
    ],
    [
      'tables that f32 cannot hold',
      () => bindRope(planRope({ ...spec, tableDtype: 'f64' }), zeros('f16', [2, 1, 8]), zeros('f16', [2, 1, 8])),
      /neither holds these tables exactly/,
    ],
    [
      'a KV cache',
      () => bindRopeParts(planRope(spec), [{ x: f32(), out: zeros('f32', [9, 1, 8]), rows: 3 }]),
      /no KV cache/,
    ],
    [
      'a norm',
      () => bindRopeParts(planRope(spec), [{ x: f32(), out: f32(), norm: { weight: zeros('f32', [8]), eps: 1e-5 } }]),
      /no norm/,
    ],
    [
      'elements apart',
      () =>
        bindRope(planRope(spec), tensorFrom(new Float32Array(64), { shape: [2, 1, 8], strides: [16, 16, 2] }), f32()),
      /side by side/,
    ],
  ];
  for (const [name, plan, reason] of reasons) {
    test(`not supported: ${name}`, async () => {
      const runner = await openAscendModel();
      assert.match(runner.whyNot(plan()) ?? '', reason);
      assert.throws(() => runner.run(plan()), { code: 'UNSUPPORTED', message: reason });
    });
  }

  test('the baseline kernel takes what its source says', async () => {
    const runner = await openAscendModel({ kernel: 'baseline' });
    assert.match(
      runner.whyNot(bindRope(planRope({ ...spec, pairing: 'half' }), f32(), f32())) ?? '',
      /interleaved pairs/,
    );
    assert.match(runner.whyNot(bindRope(planRope({ ...spec, rotaryDim: 4 }), f32(), f32())) ?? '', /whole heads/);
  });

  test("aclnn's and flash-attn's vectors pass by the bound of stepwise f16, which a wrong sign or pair does not meet", async () => {
    const runner = await openAscendModel();
    const all = ['cann', 'flash-attn'].flatMap((name) => vectorCases(vectorFolder(`${VECTORS}/${name}`)));
    const f16 = all.filter(({ label }) => /_f16\b/.test(label));
    const statuses = async (cases: typeof all, by: typeof runner) => {
      const list: string[] = [];
      for await (const { verdict } of runCases(cases, by)) list.push(verdict.status);
      return list;
    };
    const own = await statuses(all, runner);
    assert.equal(own.filter((status) => status === 'ok').length, 39);
    assert.ok(!own.includes('fail'));
    // The bound of one rounding is for kernels that say nothing of steps.
    const once = { ...runner, capabilities: () => ({ ...runner.capabilities(), roundsEachStep: [] }) };
    assert.equal((await statuses(f16, once)).filter((status) => status === 'fail').length, 9);
    const backward = {
      ...runner,
      run(plan: OpPlan) {
        const { table, ...rest } = (plan as RopeCall).plan;
        const sin = table.sin.map((value) => -value);
        runner.run({ ...plan, plan: { ...rest, table: { ...table, sin } } } as OpPlan);
      },
    };
    const wrong = await statuses(f16, backward);
    assert.ok(
      wrong.includes('fail') && !wrong.includes('ok'),
      f16.flatMap(({ label }, n) => (wrong[n] === 'ok' ? label : [])).join(),
    );
  });

  test('as a backend it opens by name, and not among all', async () => {
    const backend = await openBackend('ascend-model');
    after(() => backend.dispose());
    assert.equal(backend.name, 'ascend-model');
    assert.match(backend.capabilities().description, /910B3/);
    const out = zeros('f32', [2, 1, 8]);
    backend.run(bindRope(planRope(spec), backend.upload(f32()), out));
    assert.deepEqual([...(out.readNumbers() as Float64Array)], new Array(16).fill(0));
  });
});
