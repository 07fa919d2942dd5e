import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ropeModel, writeOnnxModel } from '@ropewalk/onnx';
import { tensorFrom } from 'ropewalk';
import { ropewalkIn } from '../../../test/support/command.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { wholeGraph } from '../../onnx/test/import/whole-graph.js';
import { type DiffOptions, diff } from '../src/diff.js';

const folder = mkdtempSync(join(tmpdir(), 'diff-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, 'diff', ...args);
const file = (name: string, json: unknown): string => {
  writeFileSync(join(folder, name), JSON.stringify(json));
  return name;
};

const llama = {
  model_type: 'llama',
  num_hidden_layers: 4,
  hidden_size: 512,
  num_attention_heads: 4,
  rope_theta: 500000,
};
const plain = file('plain.json', llama);
const scaled = file('scaled.json', {
  ...llama,
  rope_scaling: {
    rope_type: 'llama3',
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  },
});
const gemma3 = {
  model_type: 'gemma3_text',
  num_hidden_layers: 6,
  head_dim: 256,
  rope_theta: 1e6,
  rope_local_base_freq: 1e4,
  sliding_window_pattern: 6,
};

describe('diff', () => {
  test('the HuggingFace and the GGUF file of the same weights: the same, in another layout, exit 0', async () => {
    const { status, stdout, stderr } = await ropewalk(join(STORIES, 'config.json'), join(STORIES, 'model-f32.gguf'));
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^layers 0-4: same, in another layout$/m);
    assert.match(
      stdout,
      /Same frequencies\. Pairing half and interleaved is expected: q and k weights are permuted in GGUF\./,
    );
    assert.match(stdout, /NMSE +0 at 1, 0 at 40, 0 at 8192, 0 at 131072/);
  });

  test('a scaling that is missing: exit 1, from which position on, and what would happen', async () => {
    const { status, stdout, stderr } = await ropewalk(scaled, plain);
    assert.equal(status, 1, stderr);
    assert.match(stdout, /^layers 0-3: different$/m);
    assert.match(stdout, /≠ scaling +llama3 factor=8 .* none/);
    assert.match(
      stdout,
      /angles +more than 0\.01 rad from \d+ \(pair \d+\), 0\.1 rad from \d+ \(pair \d+\), 1 rad from \d+/,
    );
    assert.match(stdout, /prompts shorter than about \d+ tokens work, and longer ones give worse and worse output/);
  });

  test('layers are grouped by their difference', async () => {
    const a = file('gemma.json', gemma3);
    const b = file('gemma-local.json', { ...gemma3, rope_local_base_freq: 2e4 });
    const { status, stdout } = await ropewalk(a, b, '--json');
    assert.equal(status, 1);
    const { groups, same } = JSON.parse(stdout);
    assert.equal(same, false);
    assert.deepEqual(
      groups.map((group: { layers: number[]; same: boolean }) => [group.layers, group.same]),
      [
        [[0, 1, 2, 3, 4], false],
        [[5], true],
      ],
    );
    assert.equal(groups[0].b.base, 2e4);
  });

  test('two recipes on one model, and --positions', async () => {
    const near = await ropewalk(scaled, `${scaled}@ggml-f32`, '--positions', '1,40');
    assert.equal(near.status, 0, near.stderr);
    assert.match(near.stdout, /≠ recipe +float64 .*ggml-f32/);
    assert.match(near.stdout, /differ in rounding: NMSE is within/);
    const far = await ropewalk(scaled, `${scaled}@hf-f32`, '--recipe', 'ggml-f32', '--positions', '1000000');
    assert.equal(far.status, 1, far.stderr);
    assert.match(far.stdout, /ggml-f32 and hf-f32 differ in rounding: at position 1000000 NMSE is above/);
  });

  test('a record is compared with every layer; a layer without RoPE is a difference', async () => {
    file('record.json', { headDim: 128, pairing: 'half', base: 500000 });
    const same = await ropewalk('record.json', plain);
    assert.equal(same.status, 0, same.stderr);
    assert.match(same.stdout, /A {2}record\.json: one record for every layer[\s\S]*^layers 0-3: same$/m);
    const nope = file('nope.json', { ...llama, model_type: 'smollm3', no_rope_layers: [0, 1, 1, 1] });
    const differs = await ropewalk('record.json', nope);
    assert.equal(differs.status, 1, differs.stderr);
    assert.match(differs.stdout, /^layer 0: different\n {2}Only A rotates here/m);
    assert.match(differs.stdout, /^layers 1-3: same$/m);
  });

  test('another number of layers is a difference', async () => {
    const longer = file('longer.json', { ...llama, num_hidden_layers: 5 });
    const { status, stdout } = await ropewalk(plain, longer);
    assert.equal(status, 1);
    assert.match(stdout, /note: A has 4 layers and B 5: only the first 4 are compared/);
  });

  const spec = { headDim: 8, pairing: 'half', base: 10000 } as const;
  const small = file('small.json', {
    ...llama,
    num_hidden_layers: 2,
    hidden_size: 16,
    num_attention_heads: 2,
    rope_theta: 1e4,
  });
  const graph = (name: string, ...args: Parameters<typeof wholeGraph>): string => {
    mkdirSync(join(folder, name, 'onnx'), { recursive: true });
    writeFileSync(join(folder, name, 'onnx/model.onnx'), wholeGraph(...args));
    writeFileSync(join(folder, name, 'config.json'), '{}');
    return name;
  };

  test("a folder with a graph: the graph's RoPE is the model's own, on either side", async () => {
    graph('exported', { form: 'genai-nodes', layers: [spec, spec] });
    const { status, stdout, stderr } = await ropewalk('exported', small);
    assert.equal(status, 0, stderr + stdout);
    assert.match(stdout, /^A {2}exported: 2 layers \(onnx, \d+ nodes\)$/m);
    assert.match(
      stdout,
      /note on A: RotaryEmbedding_\d+: cos and sin compared at 64 positions, at most 3\.0e-8 apart\./,
    );
    assert.match(stdout, /^layers 0-1: same$/m);
    const { a, b, same } = JSON.parse((await ropewalk(small, 'exported/onnx/model.onnx', '--json')).stdout);
    assert.deepEqual(
      [same, a.source, b.source, b.tables[0].positions, b.findings],
      [true, 'huggingface', 'onnx', 64, []],
    );
    assert.equal((await ropewalk('exported', 'exported')).status, 0);
  });

  test('a graph with another base, or one wrong number, is another RoPE: exit 1', async () => {
    graph('other', { form: 'genai-nodes', layers: [spec, { ...spec, base: 10100 }] });
    const { status, stdout } = await ropewalk('other', small);
    assert.equal(status, 1);
    assert.match(stdout, /^layer 1: different\n[\s\S]*≠ base +10100 +10000/m);
    graph('edited', { form: 'genai-nodes', layers: [spec, spec], edit: 0.25 });
    const edited = await ropewalk('edited', small);
    assert.equal(edited.status, 1);
    const wrong =
      /≠ A: RotaryEmbedding_\d+ reads tables with 1 wrong number: at position 40 cos of pair 1 is .*, and not /;
    assert.match(edited.stdout, wrong);
  });

  test('computed angles are compared at the positions that the graph serves', async () => {
    const json = { ...llama, rope_theta: 1e4, max_position_embeddings: 4096 };
    const model = file('computed.json', { ...json, num_hidden_layers: 1, hidden_size: 16, num_attention_heads: 2 });
    const write = (name: string, context: number, edit = 0): void => {
      const made = ropeModel({ spec, form: 'primitives', angles: 'f32-reduced', context, heads: 1 });
      const one = made.graph.model('rope', 'ropewalk');
      const tails = [...one.initializers].find(([key]) => key.startsWith('turn_tails'))!;
      const data = Float32Array.from(tails[1].read() as Float32Array);
      data[data.length - 1]! += edit;
      const initializers = new Map(one.initializers).set(tails[0], tensorFrom(data, { shape: tails[1].shape }));
      const outputs = one.outputs.map((output) => ({ ...output, name: 'present.0.key' }));
      const nodes = one.nodes.map((node) => ({
        ...node,
        outputs: node.outputs.map((output) => (output === one.outputs[0]!.name ? 'present.0.key' : output)),
      }));
      writeFileSync(join(folder, name), writeOnnxModel({ ...one, initializers, outputs, nodes }));
    };
    write('bytes2.onnx', 4096);
    const whole = await ropewalk('bytes2.onnx', model);
    assert.equal(whole.status, 0, whole.stderr + whole.stdout);
    assert.match(whole.stdout, /cos and sin compared at 4100 positions, at most \d\.\de-\d apart\.$/m);
    assert.doesNotMatch(whole.stdout, / end at position /);
    write('bytes1.onnx', 200);
    const short = await ropewalk('bytes1.onnx', model);
    assert.equal(short.status, 0, short.stderr + short.stdout);
    assert.match(short.stdout, /compared at 256 positions/);
    assert.match(short.stdout, /its angles end at position 255, and the model's context is 4096\./);
    write('edited.onnx', 4096, 1e-3);
    const edited = await ropewalk('edited.onnx', model);
    assert.equal(edited.status, 1, edited.stderr + edited.stdout);
    assert.match(edited.stdout, / computes angles with \d+ wrong numbers: at position \d+ (cos|sin) of pair 3 is /);
  });

  test('LongRoPE is that of the context that the tables hold', async () => {
    const scaling = { rope_type: 'longrope', short_factor: [1, 2, 3, 4], long_factor: [2, 4, 6, 8] };
    const phi = {
      ...llama,
      model_type: 'phi3',
      num_hidden_layers: 1,
      hidden_size: 16,
      num_attention_heads: 2,
      rope_theta: 1e4,
    };
    const long = { max_position_embeddings: 64, original_max_position_embeddings: 32, rope_scaling: scaling };
    file('phi.json', { ...phi, ...long });
    const { shortFactor, longFactor } = { shortFactor: [1, 2, 3, 4], longFactor: [2, 4, 6, 8] };
    const rule = { kind: 'longrope', shortFactor, longFactor, originalContext: 32, context: 64, factor: 2 } as const;
    graph('phi', { form: 'genai', layers: [{ ...spec, scaling: rule }] });
    const { status, stdout } = await ropewalk('phi', 'phi.json');
    assert.equal(status, 0, stdout);
    assert.match(stdout, /note on B: read for a context of 64 tokens, as the graph's tables are\./);
    assert.equal((await ropewalk('phi', 'phi.json', '-c', '32')).status, 1);
  });

  writeFileSync(join(folder, 'empty.gguf'), '');
  graph('external', { form: 'genai-nodes', layers: [spec], external: true });
  mkdirSync(join(folder, 'several/onnx'), { recursive: true });
  for (const name of ['a', 'b']) writeFileSync(join(folder, `several/onnx/${name}.onnx`), '');
  const at = (name: string): string => join(folder, name);
  const refusals: readonly (readonly [string, string, DiffOptions, RegExp])[] = [
    [
      'a graph whose tables are missing',
      'external',
      {},
      /RotaryEmbedding_\d+: frequencies are not known: .*external data model\.onnx\.data: there is no such file/,
    ],
    [
      'a folder with several graphs',
      'several',
      {},
      /expected a folder with a model\.onnx, or one \.onnx, got .*Give one of/,
    ],
    ['a graph with a recipe', 'external/onnx/model.onnx@hf-f32', {}, /a graph computes its angles itself/],
    ['a missing graph', 'gone.onnx', {}, /gone\.onnx: there is no such file or folder/],
    ['a missing file', 'nowhere.json', {}, /nowhere\.json: there is no such file or folder/],
    ['an empty GGUF', 'empty.gguf', {}, /empty\.gguf: the header takes at least 4 bytes/],
    [
      'an unknown recipe behind @',
      `${plain}@bf16`,
      {},
      /plain\.json@bf16: expected float64, ggml-f32 or hf-f32, got "bf16"/,
    ],
    ['an unknown recipe', plain, { recipe: 'f16' }, /--recipe: expected float64, ggml-f32 or hf-f32, got "f16"/],
    ['positions that are none', plain, { positions: '1,,2' }, /--positions: expected an integer in \[0, 2147483647\]/],
    ['a negative position', plain, { positions: '-1' }, /--positions/],
    ['a context of 0', plain, { context: '0' }, /--context: expected an integer in/],
  ];
  for (const [what, b, options, message] of refusals) {
    test(`refuses ${what}`, async () => {
      await assert.rejects(diff(at(plain), at(b), options), { name: 'RopewalkError', message });
    });
  }

  test('a refusal on the command line: exit 2, nothing on stdout', async () => {
    const { status, stdout, stderr } = await ropewalk(plain);
    assert.deepEqual([status, stdout], [2, '']);
    assert.match(stderr, /missing required argument 'b'/);
  });
});
