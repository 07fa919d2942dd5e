/**
 * Tests of exported RoPE models: well-formed, right in ONNX Runtime for any batch, sequence and positions, and cheaper
 * than a chain of twelve steps.
 */
import assert from 'node:assert/strict';
import { describe } from 'node:test';
import { cann2024Steps } from '@ropewalk/devices/internal';
import { rotationErrorBound } from '@ropewalk/oracle/internal';
import { bindRopeParts, type FloatDtype, planRope, type RopeSpec, type Tensor, tensorFrom, zeros } from 'ropewalk';
import { countElements, randomFrom, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { noOnnxruntime as skip } from '../../../../test/support/onnxruntime.js';
import { runOnnx } from '../../../../test/support/ort.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { testOnce as test, testPeers } from '../../../../test/support/tier.js';
import { type AngleMode, angleConstants, anglePrecision, anglesInGraph } from '../../src/export/angles.js';
import { GraphBuilder } from '../../src/export/builder.js';
import { type RopeModelOptions, ropeModel } from '../../src/export/rope-model.js';
import { graphCost, valueTypes } from '../../src/export/shapes.js';

const SPECS: Readonly<Record<string, RopeSpec>> = {
  llama: { headDim: 16, pairing: 'half', base: 500000 },
  'gpt-j': { headDim: 16, rotaryDim: 8, pairing: 'interleaved', base: 10000 },
  phi: { headDim: 20, rotaryDim: 8, pairing: 'half', base: 10000 },
  window: { headDim: 24, rotaryDim: 8, rotaryOffset: 16, pairing: 'interleaved', base: 10000 },
  middle: { headDim: 24, rotaryDim: 8, rotaryOffset: 4, pairing: 'half', base: 10000 },
  deepseek: {
    headDim: 12,
    rotaryDim: 8,
    rotaryOffset: 4,
    pairing: 'interleaved-to-half',
    base: 10000,
    scaling: { kind: 'yarn', factor: 40, originalContext: 4096, mscale: 1, mscaleAllDim: 0.7 },
  },
  yarn: {
    headDim: 16,
    pairing: 'half',
    base: 10000,
    scaling: { kind: 'yarn', factor: 1 / 1.4245, originalContext: 512, extFactor: 0.7465, attnFactor: 1.4245 },
    freqFactors: [1, 1.5, 2, 3, 4, 5, 6, 7],
  },
  llama3: {
    headDim: 16,
    pairing: 'half',
    base: 500000,
    scaling: { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 },
  },
  longrope: {
    headDim: 8,
    pairing: 'half',
    base: 10000,
    scaling: {
      kind: 'longrope',
      shortFactor: [1, 1, 1, 1],
      longFactor: [1, 2, 3, 4],
      originalContext: 4096,
      context: 8192,
      factor: 32,
    },
  },
  ntk: {
    headDim: 16,
    pairing: 'interleaved',
    base: 10000,
    scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 2048, context: 8192 },
  },
  gemma: { headDim: 16, pairing: 'half', base: 1e6, scaling: { kind: 'proportional', rotatedPairs: 3, factor: 8 } },
  mrope: { headDim: 16, pairing: 'half', base: 1e6, axes: { rule: 'sections', sections: [2, 3, 3] } },
  'qwen3-vl': { headDim: 16, pairing: 'half', base: 5e6, axes: { rule: 'interleaved', sections: [4, 2, 2] } },
  vision: { headDim: 16, pairing: 'vision', base: 10000, axes: { rule: 'vision', sections: [4, 4, 0, 0] } },
};
const CONTEXT = 512;

function filled(dtype: FloatDtype, shape: readonly number[], next: () => number): Tensor<FloatDtype> {
  return f64Tensor(Array.from({ length: countElements(shape) }, next), shape, dtype);
}

interface Case {
  readonly options: RopeModelOptions;
  readonly inputs: Map<string, Tensor>;
  readonly expected: Map<string, Float64Array>;
}

/** The inputs, and the outputs of the float64 oracle. */
function caseOf(options: RopeModelOptions, batch: number, seq: number, seed: number): Case {
  const { spec, direction = 'forward', layout = 'bsnh', dtype = 'f32', heads = 1, kvHeads, normEps } = options;
  const stream = randomFrom(`rope model ${seed}`);
  const next = (): number => stream.uniform(-2, 2);
  const axes = spec.axes ? Math.max(3, spec.axes.sections.length) : 1;
  const ids = BigInt64Array.from({ length: axes * batch * seq }, () => BigInt(stream.integer(options.context ?? 4096)));
  const shape = [...(axes > 1 ? [axes] : []), batch, seq];
  const positions = tensorFrom(ids, { shape });
  const inputs = new Map<string, Tensor>([['position_ids', positions]]);
  const expected = new Map<string, Float64Array>();
  const plan = planRope({ ...spec, positions, direction, tableDtype: 'f64' });
  const parts =
    kvHeads === undefined
      ? [['x', 'y', heads] as const]
      : [['q', 'q_out', heads] as const, ['k', 'k_out', kvHeads] as const];
  for (const [name, out, count] of parts) {
    const dims = layout === 'bsnh' ? [batch, seq, count, spec.headDim] : [batch, count, seq, spec.headDim];
    const x = filled(dtype, dims, next);
    inputs.set(name, x);
    const exact = (t: Tensor): Tensor<'f64'> =>
      tensorFrom(Float64Array.from(floats(t)), { shape: t.shape }) as Tensor<'f64'>;
    const weight = filled(dtype, [spec.headDim], next);
    if (normEps !== undefined) inputs.set(`${name}_weight`, weight);
    const norm = normEps === undefined ? {} : { norm: { weight: exact(weight), eps: normEps } };
    if (options.kvCache && name === 'k') {
      const rows = Array.from({ length: seq }, (_, s) => (3 * s + 1) % 17);
      const cache = filled(dtype, [batch, 17, count, spec.headDim], next);
      inputs.set('k_cache', cache);
      const places = Array.from({ length: batch * seq }, (_, n) => [Math.floor(n / seq), rows[n % seq]!]).flat();
      inputs.set('cache_rows', tensorFrom(BigInt64Array.from(places, BigInt), { shape: [batch, seq, 2] }));
      const into = exact(cache);
      runReference(bindRopeParts(plan, [{ x: exact(x), out: into, rows, ...norm }], layout));
      expected.set(out, floats(into));
      continue;
    }
    const into = zeros('f64', dims);
    runReference(bindRopeParts(plan, [{ x: exact(x), out: into, ...norm }], layout));
    expected.set(out, floats(into));
  }
  return { options, inputs, expected };
}

/** Runs a case and describes the first element with too large an error. */
async function failureOf({ options, inputs, expected }: Case): Promise<string | undefined> {
  const { graph, angles } = ropeModel(options);
  const results = await runOnnx(graph.model('rope', 'test'), inputs);
  const dtype = options.dtype ?? 'f32';
  // The bounds are for cos and sin at all positions of the context. Each is multiplied by an x of at most 2, or by 1
  // and a weight of 2 after a norm.
  const table =
    angles === 'f64'
      ? dtype === 'f64'
        ? 4e-16
        : 2 ** -24
      : Math.max(...anglePrecision(options.spec, angles, [1, 7, 255, CONTEXT - 1]).map(({ maxError }) => maxError)) +
        2 ** -23;
  const own = angles === 'f16-table' ? 6 * UNIT_ROUNDOFF.f16 : 0;
  // A head of norm 1 has elements of at most √head_dim.
  const largest = options.normEps === undefined ? 2 : 2 * Math.sqrt(options.spec.headDim);
  const magnitude = 2 * largest * 2;
  for (const [name, want] of expected) {
    const got = floats(results.get(name)!);
    assert.equal(got.length, want.length);
    for (const [n, value] of want.entries()) {
      const norm = options.normEps === undefined ? 0 : 8 * UNIT_ROUNDOFF[dtype === 'f64' ? 'f64' : 'f32'] * magnitude;
      const bound = rotationErrorBound(dtype, value, magnitude) + table * magnitude + own * magnitude + norm;
      if (!(Math.abs(got[n]! - value) <= bound)) return `${name}[${n}]: got ${got[n]}, expected ${value} ± ${bound}`;
    }
  }
  return undefined;
}

describe('a RoPE as a model', () => {
  const variants: { name: string; options: Omit<RopeModelOptions, 'spec' | 'context'> }[] = [];
  for (const layout of ['bsnh', 'bnsh'] as const) {
    for (const [dtype, angles] of [
      ['f32', undefined],
      ['f16', undefined],
      ['bf16', undefined],
      ['f16', 'f16-table'],
    ] as const)
      variants.push({
        name: `standard ${dtype} ${angles ?? ''} ${layout}`,
        options: { form: 'standard', dtype, layout, heads: 4, kvHeads: 2, ...(angles ? { angles } : {}) },
      });
    for (const [dtype, angles] of [
      ['f32', 'f32-reduced'],
      ['f32', 'f64'],
      ['f32', 'f32'],
      ['f32', 'f32-table'],
      ['f64', 'f64'],
      ['bf16', 'f32-reduced'],
      ['f16', 'f16-table'],
    ] as [FloatDtype, AngleMode][])
      variants.push({
        name: `primitives ${dtype} ${angles} ${layout}`,
        options: { form: 'primitives', dtype, angles, layout, heads: 3 },
      });
  }
  for (const { name, options } of variants) {
    const all = Object.entries(SPECS).map(([label, spec]) => ({
      label,
      whole: { ...options, spec, context: CONTEXT },
    }));
    test(`is well formed: ${name}`, () => {
      for (const { label, whole } of all) {
        const model = ropeModel(whole).graph.model('rope', 'test');
        const sizes = { batch: 2, seq: 5 };
        assert.doesNotThrow(() => valueTypes(model, sizes), label);
        // Only batch and seq are open, and no constant depends on them, so other sizes work too.
        valueTypes(model, { batch: 1, seq: 1 });
        assert.equal(
          new Set(model.nodes.flatMap(({ outputs }) => outputs)).size,
          model.nodes.flatMap(({ outputs }) => outputs).length,
        );
      }
    });

    testPeers(`ONNX Runtime agrees with the oracle: ${name}`, { skip }, async () => {
      const failed: string[] = [];
      for (const [n, { label, whole }] of all.entries()) {
        for (const direction of ['forward', 'backward'] as const) {
          const failure = await failureOf(caseOf({ ...whole, direction }, 1 + (n % 2), 1 + (n % 4), n + 1));
          if (failure) failed.push(`${label} ${direction}: ${failure}`);
        }
      }
      assert.deepEqual(failed, []);
    });
  }

  for (const form of ['standard', 'primitives'] as const) {
    testPeers(`with head norm and a KV cache: ${form}`, { skip }, async () => {
      for (const dtype of ['f32', 'f16', 'bf16'] as const) {
        const options = {
          spec: SPECS.llama!,
          form,
          dtype,
          heads: 4,
          kvHeads: 2,
          context: CONTEXT,
          normEps: 1e-6,
          kvCache: true,
        };
        assert.equal(await failureOf(caseOf(options, 2, 4, 9)), undefined, dtype);
      }
    });
  }

  testPeers('no tokens give no tokens', { skip }, async () => {
    // ONNX Runtime's ReduceSum leaves an empty tensor's shape as it is, so f32-reduced needs a token (docs/export.md).
    for (const angles of ['f64', 'f32', 'f32-table'] as const) {
      for (const form of angles === 'f32-table' ? (['standard', 'primitives'] as const) : (['primitives'] as const)) {
        for (const shape of [
          [0, 3],
          [2, 0],
        ] as const) {
          const model = ropeModel({ spec: SPECS.deepseek!, form, angles, heads: 2, context: CONTEXT }).graph.model(
            'rope',
            'test',
          );
          const dims = [...shape, 2, 12];
          const results = await runOnnx(
            model,
            new Map<string, Tensor>([
              ['x', zeros('f32', dims)],
              ['position_ids', zeros('i64', shape)],
            ]),
          );
          assert.deepEqual(results.get('y')!.shape, dims, `${form} ${angles}`);
        }
      }
    }
  });

  testPeers('an older opset runs primitives', { skip }, async () => {
    const options = { spec: SPECS.middle!, form: 'primitives', context: CONTEXT, heads: 2 } as const;
    const c = caseOf(options, 2, 3, 5);
    const { graph } = ropeModel(options);
    const [old, now] = await Promise.all(
      [18, 23].map((opset) => runOnnx(graph.model('rope', 'test', undefined, opset), c.inputs)),
    );
    assert.deepEqual(old!.get('y')!.read(), now!.get('y')!.read());
  });

  test('what a graph cannot express is refused', () => {
    const base = { spec: SPECS.llama!, form: 'standard', context: 8 } as const;
    const refused: [Partial<RopeModelOptions>, RegExp][] = [
      [{ dtype: 'f64' }, /export: form: RotaryEmbedding does not take f64/],
      [{ angles: 'f32' }, /export: angles: form standard takes cos and sin from tables/],
      [{ angles: 'f16-table' }, /export: angles: f16-table is for f16 data/],
      [{ kvCache: true }, /export: kv_cache: a cache is for k beside q/],
      [{ kvCache: true, kvHeads: 1, layout: 'bnsh' }, /export: kv_cache: ScatterND finds tokens by batch and row/],
      [{ heads: 0 }, /export: heads: expected an integer/],
      [{ context: 2 ** 30 }, /export: context: \d+ positions of \d+ pairs are more than the 67108864 entries/],
      [{ context: 1.5 }, /export: context/],
      [{ normEps: Number.NaN }, /export: norm_eps/],
      [{ layout: 'sbnh' as 'bsnh' }, /export: layout: expected bsnh or bnsh/],
    ];
    for (const [wrong, message] of refused) assert.throws(() => ropeModel({ ...base, ...wrong }), { message });
    const { graph } = ropeModel({ ...base, form: 'primitives' });
    assert.throws(() => graph.model('rope', 'test', undefined, 17), {
      code: 'RANGE',
      message: /opset: expected an integer in \[18, 23\]/,
    });
  });
});

describe('cost', () => {
  // Two shapes of ggml's tests, ne_a = [128, 32, 2, 1] and [64, 128, 2, 1], and a prompt of a 7B model.
  const shapes = [
    { headDim: 128, heads: 32, seq: 2, batch: 1 },
    { headDim: 64, heads: 128, seq: 2, batch: 1 },
    { headDim: 128, heads: 32, seq: 512, batch: 1 },
  ];
  for (const { headDim, heads, seq, batch } of shapes) {
    const yarn: RopeSpec = {
      headDim,
      pairing: 'half',
      base: 10000,
      scaling: { kind: 'yarn', factor: 1 / 1.4245, originalContext: 512, extFactor: 0.7465, attnFactor: 1.4245 },
    };
    for (const dtype of ['f32', 'f16'] as const) {
      test(`[${headDim}, ${heads}, ${seq}, ${batch}] ${dtype}: fewer calls and bytes than the twelve steps`, () => {
        const sum = (rotation: 'fused' | 'primitives'): [number, number] => {
          const steps = cann2024Steps({ headDim, heads, seq, batch, dataBytes: dtype === 'f32' ? 4 : 2 }, rotation);
          return [
            steps.reduce((n, { calls }) => n + calls, 0),
            steps.reduce((n, s) => n + s.bytesRead + s.bytesWritten, 0),
          ];
        };
        const ours = (form: 'standard' | 'primitives', angles: AngleMode): [number, number] => {
          const model = ropeModel({ spec: yarn, form, angles, dtype, heads, context: 4096 }).graph.model(
            'rope',
            'test',
          );
          const { count, bytesRead, bytesWritten } = graphCost(model, { batch, seq });
          return [count, bytesRead + bytesWritten];
        };
        const table = dtype === 'f16' ? 'f16-table' : 'f32-table';
        const standard = ours('standard', table);
        assert.ok(
          standard[0] < sum('fused')[0] && standard[1] < sum('fused')[1],
          `${standard} against ${sum('fused')}`,
        );
        for (const angles of dtype === 'f32' ? (['f32', 'f32-table'] as const) : ([table] as const)) {
          const primitives = ours('primitives', angles);
          assert.ok(
            primitives[0] < sum('primitives')[0] && primitives[1] < sum('primitives')[1],
            `${angles}: ${primitives} against ${sum('primitives')}`,
          );
        }
      });
    }
  }

  test('cos and sin alone: six calls for eleven, less than two thirds of the bytes, half of the buffers', () => {
    const spec: RopeSpec = { headDim: 128, pairing: 'half', base: 10000, attentionFactor: 1.4245 };
    const b = new GraphBuilder();
    const turning = anglesInGraph(b, angleConstants(spec), 'f32', { positions: b.input('p', 'i64', ['batch', 'seq']) });
    for (const [name, value] of [
      ['cos', turning.cos],
      ['sin', turning.sin],
    ] as const)
      b.output(value, name, 'f32', ['batch', 'seq', 64]);
    const cost = graphCost(b.model('angles', 'test'), { batch: 1, seq: 512 });
    const steps = cann2024Steps({ headDim: 128, heads: 32, seq: 512, batch: 1, dataBytes: 4 }, 'fused').slice(0, -1);
    assert.deepEqual([cost.count, steps.reduce((sum, { calls }) => sum + calls, 0)], [6, 11]);
    const moved = cost.bytesRead + cost.bytesWritten;
    const theirs = steps.reduce((sum, step) => sum + step.bytesRead + step.bytesWritten, 0);
    assert.ok(moved < (2 / 3) * theirs, `${moved} of ${theirs}`);
    const asked = steps.reduce((sum, { buffered }) => sum + buffered, 0);
    assert.ok(cost.bytesBuffered < 0.5 * asked, `${cost.bytesBuffered} of ${asked}`);
  });

  test('counts what the graph does', () => {
    const model = ropeModel({
      spec: { headDim: 4, pairing: 'half', base: 10000 },
      form: 'standard',
      context: 16,
      heads: 3,
    }).graph.model('rope', 'test');
    const cost = graphCost(model, { batch: 2, seq: 5 });
    assert.deepEqual([[...cost.calls], cost.views], [[['RotaryEmbedding', 1]], 2]);
    // x twice, ten rows of two f32 of each table, ten positions.
    assert.deepEqual([cost.bytesRead, cost.bytesWritten, cost.bytesBuffered], [4 * 120 + 2 * 80 + 80, 4 * 120, 0]);
  });
});

test('without a context, computed angles serve every position: none wraps', () => {
  const spec = { headDim: 8, base: 10000, pairing: 'half' } as const;
  assert.equal(ropeModel({ spec, form: 'primitives' }).context, 2 ** 31);
  assert.equal(ropeModel({ spec, form: 'standard' }).context, 4096);
  const limbs = (context?: number): number => {
    const { initializers } = ropeModel({ spec, form: 'primitives', ...(context ? { context } : {}) }).graph;
    return Math.max(...[...initializers.values()].filter(({ rank }) => rank > 1).map(({ shape }) => shape.at(-1)!));
  };
  assert.equal(limbs(), 4);
  assert.equal(limbs(65536), 2);
});
