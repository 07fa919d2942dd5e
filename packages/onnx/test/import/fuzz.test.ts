import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { tensorFrom, zeros } from 'ropewalk';
import { FIXTURES } from '../../../../test/support/fixtures.js';
import { damage, damaged, mustRefuseOrReturn } from '../../../../test/support/fuzz.js';
import { drawn } from '../../../../test/support/size.js';
import { writeOnnxModel } from '../../src/format/onnx.js';
import { parseOnnxModel } from '../../src/format/onnx-model.js';
import { Evaluation, SEARCHING, TooMuchWork, Work } from '../../src/import/evaluate.js';
import { findRope } from '../../src/import/find.js';
import { bindImported, type ImportedRope, importOnnx } from '../../src/import/index.js';
import { Scope, Shapes } from '../../src/import/scope.js';
import { ropeModel } from '../../src/index.js';
import { Graph } from './build.js';
import { change, changed } from './changes.js';
import { FORMS, type Form } from './forms.js';

/** The errors that refuse a tensor that does not fit. */
const CODES = ['SHAPE', 'DTYPE', 'RANGE', 'UNSUPPORTED', 'FORMAT'];
/** The models that fuzz tests damage, one for each way of reading. */
const samples = FORMS.filter((_, n) => [0, 1, 2, 3, 6, 7, 8, 11, 15].includes(n));

/** Our own primitives rotate q and k, as `ropewalk export` writes them, with position_ids of a declared shape. */
function exported(batch: number | string, seq: number | string): Uint8Array {
  const { graph } = ropeModel({
    spec: { headDim: 32, pairing: 'half', base: 10000 },
    form: 'primitives',
    angles: 'f32-reduced',
    context: 2 ** 20,
    heads: 4,
    kvHeads: 2,
  });
  const model = graph.model('rope', 'test');
  const inputs = model.inputs.map((input) =>
    input.name === 'position_ids' ? { ...input, shape: [batch, seq] } : input,
  );
  return writeOnnxModel({ ...model, inputs });
}

/** A decoder's norms and residual sums, 64 channels wide, without heads. */
function normsOf(layers: number): Uint8Array {
  const g = new Graph();
  let x = g.input('x', 'f32', ['batch', 'seq', 64]);
  const [scale, weight] = [
    g.constant(tensorFrom(Float32Array.of(2), { shape: [] })),
    g.constant(tensorFrom(new Float32Array(64).fill(3))),
  ];
  for (let layer = 0; layer < 2 * layers; layer++) {
    const size = g.node('Sqrt', [
      g.node('ReduceMean', [g.node('Pow', [x, scale]), g.constant(tensorFrom(BigInt64Array.of(-1n)))]),
    ]);
    const normed = g.node('Mul', [weight, g.node('Mul', [x, g.node('Div', [scale, size])])]);
    x = g.node('Add', [x, g.node('Softmax', [normed])]);
  }
  g.output(x, 'f32');
  return g.model();
}

/**
 * Imports a file. importOnnx makes a RopewalkError of every error, and this function accepts only the intended ones.
 */
function foundIn(file: Uint8Array): readonly ImportedRope[] {
  try {
    return importOnnx(file, 'm').ropes;
  } catch (error) {
    const { cause } = error as Error;
    throw cause === undefined || cause instanceof TooMuchWork ? error : cause;
  }
}

describe('models that no exporter writes', () => {
  // Work is measured by the memory that all code allocates, because seconds differ from machine to machine.
  const { Float64Array: Plain } = globalThis;
  let elements = 0;
  let limit = Number.POSITIVE_INFINITY;
  before(() => {
    globalThis.Float64Array = new Proxy(Plain, {
      construct(target, args) {
        const asked = typeof args[0] === 'number' ? args[0] : 0;
        assert.ok(elements + asked <= limit, `${asked} numbers beside ${elements}, where ${limit} were allowed`);
        const made = Reflect.construct(target, args) as Float64Array;
        elements += made.length;
        return made;
      },
    });
  });
  after(() => void (globalThis.Float64Array = Plain));

  /**
   * Imports a file and binds every RoPE. It must give answers or refusals, and take no more work than its bytes allow.
   */
  function read(file: Uint8Array, form?: Form): void {
    elements = 0;
    limit = new Work(file.length).limit;
    try {
      mustRefuseOrReturn(() => {
        for (const rope of foundIn(file)) {
          if (!form) continue;
          const { shape, positions, inputs } = form;
          const given = { ...(positions && { positionIds: positions.tensor }), ...(inputs && { inputs }) };
          limit = new Work(file.length + 2 ** 20).limit;
          mustRefuseOrReturn(
            () => bindImported(rope, { x: zeros('f32', shape), out: zeros('f32', shape), ...given }),
            CODES,
          );
        }
      }, ['FORMAT', 'UNSUPPORTED']);
    } finally {
      limit = Number.POSITIVE_INFINITY;
    }
  }

  test('damaged bytes are read or refused', () => {
    for (const { bytes } of samples)
      fc.assert(
        fc.property(damage, (steps) => read(damaged(bytes, steps))),
        drawn(100),
      );
  });

  test('graphs wired at random, with cycles, other operators, absurd sizes and attributes, are read or refused', () => {
    for (const form of samples)
      fc.assert(
        fc.property(fc.array(change, { minLength: 1, maxLength: 3 }), (changes) =>
          read(changed(form.bytes, changes), form),
        ),
        drawn(80),
      );
  });

  test('every declared size absurd, in every form, and with a first constant of another rank', () => {
    for (const form of FORMS)
      for (const n of [10 ** 7, 2 ** 31, 2 ** 40]) {
        const sizes = { kind: 'every size', a: 0, b: 0, n };
        read(changed(form.bytes, [sizes]), form);
        read(changed(form.bytes, [sizes, { kind: 'dims', a: 0, b: 0, n: 7 }]), form);
      }
  });

  for (const size of [10 ** 6, 2 ** 31, 2 ** 40, 2 ** 53])
    test(`positions of a declared size of ${size} are described like those of a small one`, () => {
      const told = (batch: number | string, seq: number | string) => {
        elements = 0;
        limit = 10 ** 5;
        const { ropes } = importOnnx(exported(batch, seq), 'm');
        limit = Number.POSITIVE_INFINITY;
        return ropes.map(({ pairing, frequencies, notes }) => ({ pairing, frequencies, notes }));
      };
      const small = told('batch', 'seq');
      assert.equal(small.length, 2);
      assert.ok(small.every(({ frequencies }) => frequencies?.law.kind === 'power'));
      assert.deepEqual(told('batch', size), small);
      assert.deepEqual(told(size, 'seq'), small);
      assert.deepEqual(told(size, size), small);
    });

  test('the search takes work in proportion to the layers, where all channels may be a head', () => {
    const spent = (layers: number): number => {
      const work = new Work(2 ** 20, SEARCHING);
      findRope(parseOnnxModel(normsOf(layers), 'm'), work);
      return work.spent;
    };
    const [few, many] = [spent(8), spent(16)];
    assert.ok(many < 2.5 * few, `${few} steps for 8 layers, ${many} for 16`);
    assert.ok(few < 8 * 2 ** 15, `${few} steps`);
  });

  test('computing takes work for every run that an operator copies, though it is empty', () => {
    const empty = (g: Graph, ...shape: number[]) => g.constant(tensorFrom(new Float32Array(0), { shape }));
    for (const build of [
      (g: Graph) => g.node('Concat', [empty(g, 2 ** 26, 0), empty(g, 2 ** 26, 0)], { axis: 1 }),
      (g: Graph) => {
        const rows = g.constant(tensorFrom(BigInt64Array.of(0n, 0n)));
        return g.node('Gather', [empty(g, 2 ** 26, 1, 0), rows], { axis: 1 });
      },
    ]) {
      const g = new Graph();
      const y = g.output(build(g), 'f32');
      const model = parseOnnxModel(g.model(), 'm');
      const scope = new Scope(model.graph, '');
      const given = { wholeCaches: false };
      assert.throws(() => new Evaluation(scope, new Shapes(scope), given, new Work(model.bytes)).value(y), TooMuchWork);
    }
  });

  const repro = `${FIXTURES}/repro/onnx`;
  test('files that took minutes, gigabytes, or ended in a TypeError', () => {
    for (const name of readdirSync(repro)) read(readFileSync(join(repro, name)));
  });
});
