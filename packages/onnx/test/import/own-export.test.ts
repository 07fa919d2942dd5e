import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bindRope, frequenciesOf, planRope, type RopeSpec, tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { floats } from '../../../../test/support/tensors.js';
import { ropeModel } from '../../src/export/rope-model.js';
import { writeOnnxModel } from '../../src/format/onnx.js';
import { importOnnx, runImported } from '../../src/import/index.js';

const rw = referenceRunner();
const specs: Readonly<Record<string, RopeSpec>> = {
  half: { headDim: 8, pairing: 'half', base: 10000 },
  interleaved: { headDim: 8, pairing: 'interleaved', base: 10000 },
  'interleaved to half': { headDim: 8, pairing: 'interleaved-to-half', base: 10000 },
  'a window': { headDim: 12, rotaryDim: 6, rotaryOffset: 4, pairing: 'interleaved', base: 10000 },
  YaRN: { headDim: 64, pairing: 'half', base: 10000, scaling: { kind: 'yarn', factor: 8, originalContext: 256 } },
  'M-RoPE': { headDim: 12, pairing: 'half', base: 10000, axes: { rule: 'sections', sections: [1, 2, 3] } },
};

describe('angles that are exact in a context alone', () => {
  const spec: RopeSpec = { headDim: 64, pairing: 'half', base: 10000 };
  const imported = (context: number) => {
    const { graph } = ropeModel({ spec, form: 'primitives', angles: 'f32-reduced', context });
    return importOnnx(writeOnnxModel(graph.model('rope', 'ropewalk'))).ropes[0]!;
  };
  for (const [context, position] of [
    [200, 256],
    [4096, 65536],
  ] as const) {
    test(`a context of ${context}: frequencies are those of the positions that it holds`, () => {
      const { frequencies, notes } = imported(context);
      const { invFreq, within, law, departs } = frequencies!;
      assert.deepEqual(law, { kind: 'power', base: 10000, factor: 1 });
      for (const [j, frequency] of frequenciesOf(spec).invFreq.entries())
        assert.ok(Math.abs(invFreq[j]! / frequency - 1) <= within[j]!, `pair ${j}: ${invFreq[j]} for ${frequency}`);
      assert.equal(departs?.position, position);
      assert.match(
        notes.join(),
        new RegExp(`from position ${position} on the angles of ${departs!.pairs} of 32 pairs are not position`),
      );
    });
  }
  test('a longer one holds all that are asked', () => {
    const { frequencies, notes } = imported(2 ** 20);
    assert.deepEqual([frequencies!.departs, notes], [undefined, []]);
  });
});

describe('what ropewalk exports as primitives is found again, and turns as the plan does', () => {
  for (const [name, spec] of Object.entries(specs)) {
    for (const angles of ['f32', 'f32-reduced', 'f32-table', 'f64'] as const) {
      for (const layout of ['bsnh', 'bnsh'] as const) {
        test(`${name}, angles ${angles}, ${layout}`, () => {
          const { graph } = ropeModel({ spec, form: 'primitives', angles, layout, heads: 2, context: 64 });
          const { ropes, nearly } = importOnnx(writeOnnxModel(graph.model('rope', 'ropewalk')));
          assert.deepEqual([ropes.length, nearly], [1, []]);
          const [rope] = ropes;
          assert.deepEqual(
            [rope!.pairing, rope!.headDim, rope!.rotaryDim, rope!.rotaryOffset, rope!.layout, rope!.numHeads],
            [spec.pairing, spec.headDim, spec.rotaryDim ?? spec.headDim, spec.rotaryOffset ?? 0, layout, 2],
          );
          const shape = layout === 'bsnh' ? [2, 4, 2, spec.headDim] : [2, 2, 4, spec.headDim];
          const x = tensorFrom(
            Float32Array.from({ length: 16 * spec.headDim }, (_, n) => Math.sin(1.7 * n)),
            { shape },
          );
          const axes = spec.axes ? 3 : 1;
          const ids = BigInt64Array.from({ length: 8 * axes }, (_, n) => BigInt((7 * n) % 41));
          const positions = tensorFrom(ids, { shape: axes > 1 ? [axes, 2, 4] : [2, 4] });
          const y = floats(runImported(rope!, rw, { x, positionIds: positions }));
          const plan = planRope({ ...spec, positions });
          const out = zeros('f32', shape);
          rw.run(bindRope(plan, x, out, layout));
          // f32 angles of positions up to 40 have an error of 40 · 2^-23 radians, for two members. Tables and f64
          // angles are those of the plan.
          const bound = 2 * 1.5 * 40 * 2 ** -23;
          const want = floats(out);
          const worst = y.reduce((most, value, n) => Math.max(most, Math.abs(value - want[n]!)), 0);
          assert.ok(worst <= bound, `off by ${worst}`);
        });
      }
    }
  }
});
