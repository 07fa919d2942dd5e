import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { everyRow, hypothesesOf, runAs, slackOf } from '../../../packages/oracle/src/diagnose/hypotheses.js';
import { MUTANTS } from '../../../packages/oracle/src/diagnose/index.js';
import { type Heads, readObservation } from '../../../packages/oracle/src/diagnose/observation.js';
import { hostTensor } from '../../../packages/oracle/src/host.js';
import type { FloatDtype } from '../../../packages/ropewalk/src/core/dtypes.js';
import { randomFrom } from '../../../packages/ropewalk/src/core/random.js';
import type { RopeSpec } from '../../../packages/ropewalk/src/ops/rope/plan.js';

const SPECS: Readonly<Record<string, RopeSpec>> = {
  'Llama 3.1': {
    headDim: 128,
    pairing: 'half',
    base: 500000,
    scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
  },
  'Qwen 2.5 with YaRN': {
    headDim: 128,
    pairing: 'half',
    base: 1000000,
    scaling: { kind: 'yarn', factor: 4, originalContext: 32768 },
  },
  'phi-2': { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000 },
  'gpt-j': { headDim: 64, rotaryDim: 32, pairing: 'interleaved', base: 10000 },
};

describe('slack', () => {
  const largest = (values: Float64Array): number => values.reduce((a, b) => Math.max(a, Math.abs(b)), 0);

  /** For each hypothesis, the largest slack of an element over the largest element of its row. */
  function slacks(heads: Heads, spec: RopeSpec, move: 'angles' | 'products'): Map<string, number> {
    const rows = everyRow(heads);
    const list = hypothesesOf({ spec }, heads, MUTANTS).map((hypothesis): [string, number] => {
      const made = runAs(hypothesis, {}, heads, rows);
      const slack = slackOf(hypothesis, made, heads, rows, move);
      const ratios = rows.map((_what, n) => {
        const row = (of: Float64Array) => largest(of.subarray(n * spec.headDim, (n + 1) * spec.headDim));
        return row(made) > 0 ? row(slack) / row(made) : 0;
      });
      return [hypothesis.id, Math.max(...ratios)];
    });
    return new Map(list);
  }

  for (const [name, spec] of Object.entries(SPECS)) {
    test(`${name}: no hypothesis fits more loosely than the right kernel`, () => {
      const random = randomFrom(`slack ${name}`);
      const x = hostTensor('f32', [2, 4, 3, spec.headDim], () => random.uniform(-1, 1));
      const norm = { weight: hostTensor('f32', [spec.headDim], () => random.uniform(0.5, 2)), eps: 1e-5 };
      for (const dtype of ['f32', 'f16', 'bf16'] satisfies FloatDtype[]) {
        for (const given of [{}, { norm }]) {
          const seen = readObservation({ x, y: x, positions: [0, 1, 40, 5000], ...given });
          for (const move of ['angles', 'products'] as const) {
            const all = slacks({ ...seen, dtype }, spec, move);
            for (const [id, slack] of all) {
              // Other pairs of the same row are longer by up to 2. Two rotations have the errors of two. A result that is rounded moves by whole last places.
              const rotations = id === 'rotated-twice' ? 2 : 1;
              const places = /-in-bf16$|^output-rounded-/.test(id) ? 2 ** -7 : 0;
              assert.ok(
                slack <= 2.2 * rotations * all.get('right')! + places,
                `${dtype} ${move} ${id}: ${slack}, right ${all.get('right')}`,
              );
            }
          }
        }
      }
    });
  }
});
