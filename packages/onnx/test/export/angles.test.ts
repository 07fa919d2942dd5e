/** Tests of angles in graphs: their constants, their stated precision, and their precision in ONNX Runtime. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'node:test';
import type { RopeSpec } from 'ropewalk';
import { tensorFrom } from 'ropewalk';
import { ROOT } from '../../../../test/support/build.js';
import { noOnnxruntime as skip } from '../../../../test/support/onnxruntime.js';
import { runOnnx } from '../../../../test/support/ort.js';
import { floats } from '../../../../test/support/tensors.js';
import { testOnce as test, testPeers } from '../../../../test/support/tier.js';
import {
  ANGLE_MODES,
  type AngleMode,
  angleConstants,
  anglePrecision,
  anglesInGraph,
  PRECISION_POSITIONS,
  tableOver,
  turnsOf,
} from '../../src/export/angles.js';
import { GraphBuilder } from '../../src/export/builder.js';
import { valueTypes } from '../../src/export/shapes.js';

const LLAMA: RopeSpec = { headDim: 128, pairing: 'half', base: 500000 };
const SPECS: Readonly<Record<string, RopeSpec>> = {
  llama: LLAMA,
  yarn: {
    headDim: 64,
    pairing: 'interleaved',
    base: 10000,
    scaling: { kind: 'yarn', factor: 40, originalContext: 4096, mscale: 1, mscaleAllDim: 0.7 },
  },
  factors: { headDim: 8, pairing: 'half', base: 10000, freqFactors: [0.25, 1.5, -3, 1e-3] },
  mrope: { headDim: 32, pairing: 'half', base: 1e6, axes: { rule: 'sections', sections: [4, 6, 6] } },
  proportional: { headDim: 16, pairing: 'half', base: 1e4, scaling: { kind: 'proportional', rotatedPairs: 3 } },
};
const COMPUTED = ['f64', 'f32', 'f32-reduced'] as const;

/** 1/(2π), 60 digits: A086201 of the OEIS. */
const INV_TWO_PI = 159154943091895335768883763372514362034459645740456448747667n;
const DIGITS = 10n ** 60n;

describe('turnsOf', () => {
  test('is the fraction of a turn, by another way', () => {
    for (const frequency of [1, 0.5, 3, 2 ** -20, 0.1, 1 / 3, 12345.678, -0.7, 1e-12]) {
      for (const steps of [0, 1, -1, 255, 65536, 2 ** 24, 2 ** 31 - 1, -(2 ** 31)]) {
        // The float64 as a ratio of integers, times the decimal digits of 1/(2π).
        let [top, bottom] = [frequency, 1n];
        for (; !Number.isInteger(top); top *= 2) bottom *= 2n;
        const scaled = (BigInt(top) * BigInt(steps) * INV_TWO_PI * 10n ** 20n) / (bottom * DIGITS);
        let turns = Number(scaled % 10n ** 20n) / 1e20;
        turns -= Math.round(turns);
        const got = turnsOf(frequency, steps);
        assert.ok(got >= -0.5 && got <= 0.5);
        const apart = Math.abs(got - turns);
        assert.ok(Math.min(apart, 1 - apart) < 1e-15, `${frequency} × ${steps}: ${got}, expected ${turns}`);
      }
    }
  });
});

describe('anglePrecision', () => {
  test('f32 loses the angle, the others do not', () => {
    const worst = (mode: AngleMode): number[] => anglePrecision(LLAMA, mode).map(({ maxError }) => maxError);
    // At position 2^24 in f32 the error is that of the frequency's rounding alone: 2^-25 of 1, times 2^24.
    assert.ok(worst('f32').at(-2)! > 0.1);
    assert.ok(worst('f32')[0]! < 2e-7);
    for (const [mode, limit] of [
      ['f32-reduced', 2 ** -22],
      ['f16-table', 2 ** -12],
    ] as const)
      for (const error of worst(mode)) assert.ok(error <= limit, `${mode}: ${error}`);
    // Float64 products of 2^31 have an error of half of 2^-22, and are rounded to f32.
    for (const mode of ['f64', 'f32-table'] as const)
      for (const error of worst(mode)) assert.ok(error <= 2 ** -23 + 2 ** -25);
  });

  test('docs/export.md has these numbers', () => {
    const llama31: RopeSpec = {
      ...LLAMA,
      scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
    };
    const columns = ANGLE_MODES.map((mode) => anglePrecision(llama31, mode));
    const text = readFileSync(join(ROOT, 'docs/export.md'), 'utf8');
    for (const [n, position] of PRECISION_POSITIONS.entries()) {
      const name =
        position === 2 ** 24 ? '2^24' : position === 2 ** 31 - 1 ? '2^31 − 1' : position.toLocaleString('en-US');
      // No table is that long.
      const cells = ANGLE_MODES.map((mode, m) =>
        n > 5 && mode.endsWith('-table') ? '' : columns[m]![n]!.maxError.toExponential(1),
      );
      const row = `| ${[name, ...cells].join(' | ')} |`.replaceAll('|  |', '| |').replaceAll('|  |', '| |');
      assert.ok(text.includes(`${row}\n`), row);
    }
  });

  test('refuses positions and modes that do not exist', () => {
    assert.throws(() => anglePrecision(LLAMA, 'f32', [0.5]), {
      code: 'RANGE',
      message: /positions: expected integers/,
    });
    assert.throws(() => anglePrecision(LLAMA, 'f32', [2 ** 40]), { code: 'RANGE' });
    assert.throws(() => anglePrecision(LLAMA, 'f8' as AngleMode, [1]), {
      code: 'UNSUPPORTED',
      message: new RegExp(ANGLE_MODES.join(', ')),
    });
  });

  for (const mode of COMPUTED) {
    testPeers(`ONNX Runtime computes ${mode} as precisely as stated`, { skip }, async () => {
      const positions = [...PRECISION_POSITIONS, 0, -1, -131071, -(2 ** 31)];
      for (const [name, spec] of Object.entries(SPECS)) {
        const c = angleConstants(spec);
        const b = new GraphBuilder();
        const shape = c.numAxes === 1 ? [1, positions.length] : [c.numAxes, 1, positions.length];
        const turning = anglesInGraph(b, c, mode, { positions: b.input('p', 'i64', shape) });
        const single = (value: string): string => (mode === 'f64' ? b.cast(value, 'f32') : value);
        const outShape = [1, positions.length, c.invFreq.length];
        b.output(b.add('Identity', [single(turning.cos)]), 'cos', 'f32', outShape);
        b.output(b.add('Identity', [single(turning.sin)]), 'sin', 'f32', outShape);
        const model = b.model('angles', 'test');
        valueTypes(model);
        const ids = Array.from({ length: c.numAxes }, () => positions).flat();
        const results = await runOnnx(model, new Map([['p', tensorFrom(BigInt64Array.from(ids, BigInt), { shape })]]));
        const [cos, sin] = [floats(results.get('cos')!), floats(results.get('sin')!)];
        for (const [n, { position, maxError }] of anglePrecision(spec, mode, positions).entries()) {
          for (const [j, frequency] of c.invFreq.entries()) {
            const exact = 2 * Math.PI * turnsOf(frequency, position);
            const at = n * c.invFreq.length + j;
            // The stated precision assumes correctly rounded sin and cos. Those of f32 have an error of an ulp (the
            // measured excess is 6.8e-8).
            const bound = maxError + 2 ** -23;
            const got = [cos[at]! / c.magnitude, sin[at]! / c.magnitude];
            assert.ok(
              Math.abs(got[0]! - Math.cos(exact)) <= bound,
              `${name}: position ${position}, pair ${j}: cos ${got[0]}, exact ${Math.cos(exact)}`,
            );
            assert.ok(
              Math.abs(got[1]! - Math.sin(exact)) <= bound,
              `${name}: position ${position}, pair ${j}: sin ${got[1]}, exact ${Math.sin(exact)}`,
            );
          }
        }
      }
    });
  }

  test('a table holds a million positions of 64 pairs, and a row more', () => {
    const c = { invFreq: new Float64Array(64), magnitude: 1, axisOfPair: new Uint8Array(64), numAxes: 1 };
    assert.equal(tableOver(c, 2 ** 20 + 1, []).cos.length, 0);
    assert.throws(() => tableOver(c, 2 ** 20 + 2, []), {
      code: 'RANGE',
      message: /--context, or --angles f32-reduced/,
    });
  });
  test('backward is in the constants', () => {
    const [forward, backward] = [angleConstants(LLAMA), angleConstants(LLAMA, 'backward')];
    assert.deepEqual(
      [...backward.invFreq],
      [...forward.invFreq].map((f) => -f),
    );
  });

  test('a short context takes fewer limbs', () => {
    const nodes = (maxPosition: number): number[] => {
      const b = new GraphBuilder();
      anglesInGraph(b, angleConstants(LLAMA), 'f32-reduced', { positions: b.input('p', 'i64', [1, 1]), maxPosition });
      return [b.nodes.length, b.initializers.get('turn_heads')!.shape[1]!];
    };
    assert.deepEqual(
      [nodes(255), nodes(256), nodes(65535), nodes(65536)].map(([, limbs]) => limbs),
      [1, 2, 2, 3],
    );
    assert.equal(nodes(255)[0], nodes(256)[0]! - 1); // no Div
  });
});
