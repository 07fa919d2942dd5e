/** Tests of the RoPE in graphs of whole models: found in every layer, and compared with the model's own. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { compareModels } from '@ropewalk/dialects';
import { describeModel, planModel } from '@ropewalk/model/internal';
import { DECODER_FORMATS, DECODER_FORMS, decoderModel } from '@ropewalk/model-onnx/internal';
import fc from 'fast-check';
import type { RopeSpec } from 'ropewalk';
import { tensorFrom } from 'ropewalk';
import { FAMILIES } from '../../../../test/support/fixtures.js';
import { damage, damaged, mustRefuseOrReturn } from '../../../../test/support/fuzz.js';
import { drawn } from '../../../../test/support/size.js';
import { type OnnxModel, writeOnnxModel } from '../../src/format/onnx.js';
import { TooMuchWork, Work } from '../../src/import/evaluate.js';
import { layersOf } from '../../src/import/layers.js';
import { graphContents, graphRope, importOnnx } from '../../src/index.js';
import { change, changed } from './changes.js';
import { wholeGraph } from './whole-graph.js';

/** The graph of a family, as export writes it. */
async function exported(name: string, form: (typeof DECODER_FORMS)[number]): Promise<OnnxModel> {
  const bytes = readFileSync(join(FAMILIES, `${name}.gguf`));
  const description = planModel(await describeModel({ 'model.gguf': new Blob([bytes]) }), { formats: DECODER_FORMATS });
  return decoderModel(description, { form }).write(async () => {});
}

function sameAs(bytes: Uint8Array, rope: Parameters<typeof graphRope>[2] & object) {
  const graph = graphRope(importOnnx(bytes), 'graph', rope);
  const side = (of: typeof rope) => ({ rope: of, recipe: 'float64' as const });
  return { ...graph, compared: compareModels(side(graph.rope), side(rope), [1, 40]) };
}

describe("an exported graph has its model's RoPE, in all forms", () => {
  // The families have NoPE layers and interleaved pairs; two bases; LongRoPE; YaRN; three axes; a part of the head;
  // latent attention.
  for (const name of ['cohere2', 'gemma3', 'phi3', 'olmo3', 'qwen2vl', 'stablelm', 'deepseek2']) {
    for (const form of DECODER_FORMS)
      test(`${name}, ${form}`, async () => {
        const own = await readModelRope(join(FAMILIES, `${name}.gguf`), 512);
        const bytes = writeOnnxModel(await exported(name, form));
        const { compared, findings, tables, alike } = sameAs(bytes, own);
        assert.deepEqual([compared.same, findings, alike], [true, [], true], compared.groups[0]!.verdict.join());
        // There are 512 positions and one more, exact to the rounding of f32.
        for (const { positions, worst, wrong } of tables)
          assert.deepEqual([positions, wrong, worst < 2 ** -23], [513, 0, true]);
        const imported = importOnnx(bytes);
        assert.deepEqual(imported.layers, [...own.layers.keys()]);
        const rotated = new Set(imported.ropes.map(({ layer }) => layer));
        assert.deepEqual(
          [...rotated],
          own.layers.filter(({ rope }) => rope).map(({ layer }) => layer),
        );
      });
  }

  const changed = (model: OnnxModel, name: string, change: (data: Float32Array) => void): Uint8Array => {
    const table = model.initializers.get(name)!;
    const data = Float32Array.from(table.read() as Float32Array);
    change(data);
    const initializers = new Map(model.initializers).set(name, tensorFrom(data, { shape: table.shape }));
    return writeOnnxModel({ ...model, initializers });
  };

  for (const form of DECODER_FORMS) {
    test(`${form}: one wrong number in a table is found`, async () => {
      const own = await readModelRope(join(FAMILIES, 'starcoder2.gguf'));
      const model = await exported('starcoder2', form);
      const width = model.initializers.get('cos_cache')!.shape[1]!;
      const bytes = changed(model, 'cos_cache', (data) => {
        data[300 * width + 2]! += 1e-3;
      });
      const [table] = sameAs(bytes, own).tables;
      assert.deepEqual(
        [table!.wrong, table!.first!.position, table!.first!.pair, table!.first!.part],
        [1, 300, 2, 'cos'],
      );
    });
  }

  test('another base, another pairing, the signs of sin, and a factor are differences', async () => {
    const own = await readModelRope(join(FAMILIES, 'starcoder2.gguf'));
    const model = await exported('starcoder2', 'contrib');
    const verdict = (bytes: Uint8Array): string => {
      const { compared, findings } = sameAs(bytes, own);
      assert.equal(compared.same && findings.length === 0, false);
      return [...findings, ...compared.groups.flatMap((group) => group.verdict)].join();
    };
    const wrongBase = { ...own, layers: own.layers.map((one) => ({ ...one, rope: { ...one.rope!, base: 10100 } })) };
    assert.equal(sameAs(writeOnnxModel(model), wrongBase).compared.same, false);
    const nodes = model.nodes.map((node) =>
      node.opType === 'GroupQueryAttention'
        ? { ...node, attributes: { ...node.attributes, rotary_interleaved: { i: 1 } } }
        : node,
    );
    assert.match(verdict(writeOnnxModel({ ...model, nodes })), /q·k is wrong/);
    const scaled = new Map(model.initializers);
    for (const part of ['cos_cache', 'sin_cache']) {
      const table = model.initializers.get(part)!;
      scaled.set(
        part,
        tensorFrom(
          (table.read() as Float32Array).map((value) => value * 1.5),
          { shape: table.shape },
        ),
      );
    }
    assert.match(verdict(writeOnnxModel({ ...model, initializers: scaled })), /sharper|flatter/);
    const negative = changed(model, 'sin_cache', (data) => {
      for (const [n, value] of data.entries()) data[n] = -value;
    });
    assert.match(verdict(negative), /GroupQueryAttention_\d+ rotates backward: its sines have the wrong sign\./);
  });
});

describe('the order of the rows of q and k', () => {
  test("a graph of a GGUF is its model's beside a config.json; another one with such pairs is not", async () => {
    const own = await readModelRope(join(FAMILIES, 'smollm3.gguf'));
    const halves = own.layers.map((one) => ({ ...one, rope: one.rope && { ...one.rope, pairing: 'half' as const } }));
    const huggingface = { ...own, source: 'huggingface' as const, layers: halves };
    const model = await exported('smollm3', 'contrib');
    const { compared } = sameAs(writeOnnxModel(model), huggingface);
    const rotated = compared.groups.find(({ comparison }) => comparison)!;
    assert.deepEqual([compared.same, rotated.comparison!.layout], [true, 'permuted weights']);
    const unsaid = sameAs(writeOnnxModel({ ...model, doc: 'llama: a whole decoder' }), huggingface);
    assert.equal(unsaid.compared.same, false);
    assert.equal(sameAs(writeOnnxModel({ ...model, doc: undefined }), own).compared.same, true);
  });
});

describe("graphs of other people's exporters", () => {
  const spec: RopeSpec = { headDim: 8, pairing: 'half', base: 10000 };
  for (const form of ['genai', 'genai-nodes', 'optimum'] as const)
    test(`${form}: layers, layers without, and the same RoPE`, () => {
      const bytes = wholeGraph({ form, layers: [spec, undefined, { ...spec, base: 500000 }] });
      const imported = importOnnx(bytes);
      assert.deepEqual(imported.layers, [0, 1, 2]);
      assert.deepEqual(new Set(imported.ropes.map(({ layer }) => layer)), new Set([0, 2]));
      assert.deepEqual(
        imported.ropes.map((rope) => rope.headDim),
        imported.ropes.map(() => 8),
      );
      const { rope, findings } = graphRope(imported, 'graph');
      assert.ok('layers' in rope);
      assert.deepEqual(findings, []);
      assert.deepEqual(
        rope.layers.map((layer) => layer.rope?.base),
        [10000, undefined, 500000],
      );
      assert.equal(sameAs(bytes, rope).compared.same, true);
    });

  test("LongRoPE's two tables: the one that the context chooses is compared", () => {
    const factors = (scale: number) => Array.from({ length: 4 }, (_, j) => 1 + scale * j);
    const scaling = {
      kind: 'longrope',
      shortFactor: factors(0.5),
      longFactor: factors(4),
      originalContext: 32,
    } as const;
    const of = (context: number): RopeSpec => ({ ...spec, scaling: { ...scaling, context } });
    const bytes = wholeGraph({ form: 'genai', layers: [of(32)], longer: of(64) });
    const [rope] = importOnnx(bytes).ropes;
    assert.deepEqual([rope!.tables.from, rope!.tables.rows, rope!.longer!.rows], ['cache', 64, 128]);
    for (const context of [32, 64]) assert.equal(sameAs(bytes, of(context)).compared.same, true, `context ${context}`);
    assert.equal(sameAs(bytes, spec).compared.same, false);
  });

  test('q and k that differ are a finding, and the wrong one is shown', () => {
    const wrong = { ...spec, base: 20000 };
    const bytes = wholeGraph({ form: 'genai-nodes', layers: [spec, spec], keys: [spec, wrong] });
    const { findings, compared } = sameAs(bytes, spec);
    assert.deepEqual(findings, ['Layer 1: q and k are rotated by different RoPEs.']);
    assert.deepEqual(
      compared.groups.map(({ layers, same }) => [layers, same]),
      [
        [[0], true],
        [[1], false],
      ],
    );
  });

  test('a graph without caches of keys has one RoPE for all layers, or none that can be compared', () => {
    const alike = wholeGraph({ form: 'genai-nodes', layers: [spec, spec], caches: false });
    assert.deepEqual([importOnnx(alike).layers, graphRope(importOnnx(alike), 'graph').rope], [[], spec]);
    const differ = importOnnx(wholeGraph({ form: 'genai-nodes', layers: [spec, { ...spec, base: 7 }], caches: false }));
    assert.throws(() => graphRope(differ, 'graph'), {
      code: 'UNSUPPORTED',
      message: /its RoPEs differ, and no outputs named present\.N\.key say their layers/,
    });
  });

  test('a graph with fewer layers is another model', () => {
    const graph = importOnnx(wholeGraph({ form: 'genai', layers: [spec] }));
    const { rope } = graphRope(importOnnx(wholeGraph({ form: 'genai', layers: [spec, spec] })), 'graph');
    const side = (of: typeof rope) => ({ rope: of, recipe: 'float64' as const });
    const { same, notes } = compareModels(side(graphRope(graph, 'graph', rope).rope), side(rope), [1]);
    assert.deepEqual([same, notes], [false, ['A has 1 layers and B 2: only the first 1 are compared.']]);
  });

  test('refusals: no RoPE, and tables that cannot be read', () => {
    const none = importOnnx(wholeGraph({ form: 'genai', layers: [undefined] }));
    assert.throws(() => graphRope(none, 'graph'), { code: 'FORMAT', message: /graph: no RoPE is found in it/ });
    const absent = importOnnx(wholeGraph({ form: 'genai', layers: [spec], external: true }));
    assert.throws(() => graphRope(absent, 'graph'), {
      code: 'FORMAT',
      message: /frequencies are not known: .*its elements lie in the file model\.onnx\.data/,
    });
  });

  test('names of layers are numbers of four digits at most', () => {
    const bytes = wholeGraph({ form: 'genai', layers: [spec], number: (n) => `${n}`.padStart(40, '9') });
    assert.deepEqual(importOnnx(bytes).layers, []);
  });

  test('the search for layers takes no more steps than it may', () => {
    const { model, ropes } = importOnnx(wholeGraph({ form: 'genai-nodes', layers: [spec, spec] }));
    const found = ropes.map((rope) => rope.found);
    assert.throws(() => layersOf(model, found, new Work(0, { base: 20, perByte: 0 })), TooMuchWork);
    assert.equal(layersOf(model, found, new Work(0, { base: 200, perByte: 0 })).layerOf.size, 4);
  });

  test('damaged and rewired graphs are read or refused', () => {
    const read = (bytes: Uint8Array): void =>
      mustRefuseOrReturn(() => {
        const imported = importOnnx(bytes);
        graphContents(imported.model);
        graphRope(imported, 'graph', spec);
      }, ['FORMAT', 'UNSUPPORTED']);
    for (const form of ['genai', 'genai-nodes', 'optimum'] as const) {
      const bytes = wholeGraph({ form, layers: [spec, undefined], longer: form === 'genai' ? spec : undefined });
      const runs = drawn(60);
      fc.assert(
        fc.property(damage, (steps) => read(damaged(bytes, steps))),
        runs,
      );
      const changes = fc.array(change, { minLength: 1, maxLength: 3 });
      fc.assert(
        fc.property(changes, (steps) => read(changed(bytes, steps))),
        runs,
      );
    }
  });
});
