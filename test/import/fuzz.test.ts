import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { zeros } from '../../src/core/tensor.js';
import { decodeFile, encodeFile } from '../../src/formats/onnx-messages.js';
import { bindImported, importOnnx } from '../../src/import/index.js';
import { damage, damaged, mustRefuseOrReturn } from '../support/fuzz.js';
import { seeded } from '../support/tensors.js';
import { FORMS } from './forms.js';

interface GraphMessage {
  node: { input: string[]; output: string[]; opType: string; attribute: { i?: number; ints?: number[] }[] }[];
  initializer: { dims: number[]; rawData: Uint8Array; int64Data: number[] }[];
  input: { name: string }[];
}

/** What a tensor that does not fit is refused with. */
const CODES = ['SHAPE', 'DTYPE', 'RANGE', 'UNSUPPORTED', 'FORMAT'];
/** The models that fuzz tests damage: one of each kind of reading. */
const samples = FORMS.filter((_, n) => [0, 1, 2, 3, 6, 7, 8, 11, 15].includes(n));

describe('models that nobody wrote', () => {
  test('damaged bytes are read or refused', () => {
    for (const { bytes } of samples) {
      fc.assert(
        fc.property(damage, (steps) => mustRefuseOrReturn(() => importOnnx(damaged(bytes, steps), 'm'), ['FORMAT', 'UNSUPPORTED'])),
        { ...seeded, numRuns: 100 },
      );
    }
  });

  test('graphs wired at random, with cycles, other operators and absurd attributes, are read or refused', () => {
    const change = fc.record({
      kind: fc.constantFrom('wire', 'operator', 'attribute', 'dims', 'output', 'integers'),
      a: fc.nat(),
      b: fc.nat(),
      n: fc.constantFrom(-(2 ** 40), -9, -2, -1, 0, 1, 2, 3, 7, 1000, 2 ** 31, 2 ** 52),
    });
    for (const { bytes, name, shape, positions, inputs } of samples) {
      fc.assert(
        fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) => {
          // A copy: decoded bytes are views, and what is changed in them must not reach other tests.
          const message = decodeFile('ModelProto', Uint8Array.from(bytes), name) as unknown as { graph: GraphMessage };
          const { graph } = message;
          const values = [...graph.node.flatMap((node) => node.output), ...graph.input.map((input) => input.name), ''];
          const at = <T>(list: readonly T[], n: number): T => list[n % list.length]!;
          for (const { kind, a, b, n } of changes) {
            const node = at(graph.node, a);
            if (kind === 'wire' && node.input.length > 0) node.input[b % node.input.length] = at(values, a + b);
            if (kind === 'operator') node.opType = at(graph.node, b).opType;
            if (kind === 'output') node.output[0] = at(values, b);
            if (kind === 'attribute' && node.attribute.length > 0) {
              const attribute = at(node.attribute, b);
              if (attribute.ints && attribute.ints.length > 0) attribute.ints[0] = n;
              else attribute.i = n;
            }
            if (kind === 'dims' && graph.initializer.length > 0) at(graph.initializer, a).dims = [Math.abs(n)];
            if (kind === 'integers' && graph.initializer.length > 0) {
              const raw = at(graph.initializer, a).rawData;
              if (raw.length >= 8) raw.set(new Uint8Array(BigInt64Array.of(BigInt(n)).buffer), (b % (raw.length >> 3)) * 8);
            }
          }
          const file = encodeFile('ModelProto', message as never);
          const start = performance.now();
          mustRefuseOrReturn(() => {
            for (const rope of importOnnx(file, 'm').ropes) {
              const given = { ...(positions && { positionIds: positions.tensor }), ...(inputs && { inputs }) };
              mustRefuseOrReturn(() => bindImported(rope, { x: zeros('f32', shape), out: zeros('f32', shape), ...given }), CODES);
            }
          }, ['FORMAT', 'UNSUPPORTED']);
          assert.ok(performance.now() - start < 5000, `${name}: ${JSON.stringify(changes)}`);
        }),
        { ...seeded, numRuns: 120 },
      );
    }
  });
});
