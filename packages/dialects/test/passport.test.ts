import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { RopewalkError } from 'ropewalk';
import { type PassportForm, passportOf } from '../src/index.js';
import { PUBLISHED } from './transformers-configs.js';

type Json = Record<string, unknown>;
const LLAMA: Json = {
  model_type: 'llama',
  hidden_size: 2048,
  num_attention_heads: 32,
  num_hidden_layers: 16,
  head_dim: 64,
  max_position_embeddings: 131072,
  rope_theta: 500000,
  rope_scaling: {
    rope_type: 'llama3',
    factor: 32,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 8192,
  },
};
const config = (json: Json, name = 'config.json'): PassportForm => ({ name, json });
const gguf = (keys: Json, architecture = 'llama', factors?: Float32Array): PassportForm => ({
  name: 'model.gguf',
  header: {
    metadata: new Map<string, unknown>([
      ['general.architecture', architecture],
      ...Object.entries({
        block_count: 16,
        context_length: 131072,
        embedding_length: 2048,
        'attention.head_count': 32,
        'rope.dimension_count': 64,
        ...keys,
      }).map(([key, value]): [string, unknown] => [`${architecture}.${key}`, value]),
    ]),
    tensors: factors ? [{ name: 'rope_freqs.weight' }] : [],
    readTensor: () => factors,
  },
});
test('a first form that cannot be read has no stamp, and nothing is compared with another', () => {
  const { readings, table, findings } = passportOf(
    [
      { name: 'broken.json', json: { model_type: 'llama', rope_theta: 'x' } },
      { name: 'config.json', json: { ...PUBLISHED[0]!.config } },
    ],
    {},
  );
  assert.equal(table, undefined);
  assert.ok(readings.every(({ comparison, same }) => comparison === undefined && !same));
  assert.equal(findings[0]!.level, 'error');
});

const levels = (forms: PassportForm[], serve: string[] = []): string[] =>
  passportOf(forms, { serve }).findings.map(({ level, says, repair = '' }) => `${level}: ${says} ${repair}`);
const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 32768 };
const QWEN: Json = { ...LLAMA, model_type: 'qwen3_moe', rope_theta: 1e6, rope_scaling: yarn };

describe('readings of one form', () => {
  test('the old form is read alike by all', () => {
    const { readings, findings } = passportOf([config(LLAMA)]);
    assert.deepEqual(findings, []);
    assert.ok(readings.every(({ same }) => same));
  });
  test('rope_parameters alone: transformers 4, older readers and MLX-LM take base 10000, from position 1 on, with the repair', () => {
    const { rope_theta, rope_scaling, ...rest } = LLAMA;
    const form = config({ ...rest, rope_parameters: { rope_theta, ...(rope_scaling as Json) } });
    const found = levels([form]);
    assert.equal(found.length, 3);
    for (const line of found) {
      assert.match(line, /^warning: .*base 10000 instead of 500000, scaling none instead of llama3 /);
      assert.match(line, /Write "rope_theta": 500000, "rope_scaling": \{"rope_type":"llama3","factor":32,/);
    }
    const old = passportOf([form]).readings.find(({ reader }) => reader === 'transformers 4')!;
    assert.deepEqual(
      old.scores.map(({ distance }) => distance),
      [1, 64, 1024, 8192, 32768],
    );
    // Random q and k far apart: the two scores have nothing in common, so their difference is √2 as large.
    assert.ok(Math.abs(old.scores.at(-1)!.error - Math.SQRT2) < 0.4);
    assert.ok(old.scores[0]!.error < 0.1);
  });
  test('LongRoPE: vLLM chooses when it starts', () => {
    const phi = PUBLISHED.find(({ name }) => name === 'microsoft/Phi-3.5-mini-instruct')!;
    assert.deepEqual(
      passportOf([config(phi.config)]).findings.map(({ level, where }) => `${level} ${where}`),
      ['note config.json, vLLM'],
    );
  });
  test('MLX-LM: what its class does not read, or takes otherwise', () => {
    const byMlx = (json: Json): string[] =>
      passportOf([config(json)])
        .findings.filter(({ where }) => where === 'config.json, MLX-LM')
        .map(({ level, says }) => `${level}: ${says}`);
    assert.deepEqual(byMlx(LLAMA), []);
    const [moe] = byMlx(QWEN);
    assert.match(moe!, /^warning: MLX-LM's class for qwen3_moe does not read rope_scaling\. .*none instead of yarn/);
    assert.deepEqual(byMlx({ ...QWEN, model_type: 'qwen3' }), []); // YaRN is computed alike
    assert.deepEqual(byMlx({ ...LLAMA, rope_scaling: { rope_type: 'dynamic', factor: 2 } }), []);
    assert.deepEqual(byMlx({ ...LLAMA, rope_scaling: { type: { toString: 1 }, rope_type: 'linear', factor: 2 } }), []);
    const magnitude = byMlx({ ...QWEN, model_type: 'qwen3', rope_scaling: { ...yarn, attention_factor: 1 } });
    assert.match(
      magnitude[0]!,
      /^warning: MLX-LM does not read attention_factor\. .*magnitude 1\.13862944 instead of 1\./,
    );
    const short = byMlx({ ...LLAMA, rope_scaling: { rope_type: 'yarn', factor: 4 } });
    assert.match(short[0]!, /^warning: Without original_max_position_embeddings MLX-LM takes 4096\./);
    const { rope_theta, ...rest }: Json = { ...QWEN, model_type: 'qwen3', rope_scaling: undefined };
    const needs = byMlx({ ...rest, rope_parameters: { rope_type: 'default', rope_theta } });
    assert.match(needs[0]!, /does not read rope_parameters, .* It needs rope_theta\. This form fails there\.$/);
    const factors = Array.from({ length: 32 }, (_, j) => 1 + j);
    const long = byMlx({
      ...LLAMA,
      rope_scaling: {
        rope_type: 'longrope',
        long_factor: factors,
        short_factor: factors.map(() => 1),
        factor: 16,
        original_max_position_embeddings: 8192,
      },
    });
    assert.match(long[0]!, /^note: MLX-LM takes the long factors at every length/);
    const none = byMlx({
      ...LLAMA,
      original_max_position_embeddings: 8192,
      rope_scaling: { rope_type: 'longrope', long_factor: factors, short_factor: factors },
    });
    assert.match(none[0]!, /It needs original_max_position_embeddings in rope_scaling\. This form fails there\.$/);
  });
  test('no published config has an error', () => {
    for (const { name, config: json } of PUBLISHED)
      assert.deepEqual(
        passportOf([config(json, name)]).findings.filter(({ level }) => level === 'error'),
        [],
        name,
      );
  });
});

describe('two forms of one model', () => {
  test('the same RoPE in both is no finding', () => {
    const plain = { ...LLAMA, rope_scaling: undefined };
    assert.deepEqual(levels([config(plain), gguf({ 'rope.freq_base': 500000 })]), []);
  });
  const PHI = PUBLISHED.find(({ name }) => name === 'microsoft/Phi-3.5-mini-instruct')!.config;
  // The rows of configs in a list of 91 bugs. DeepSpeed#8345 and SGLang#14745 are above; NomicBert's formula in vLLM#52665,
  // rasbt#939, TensorRT-LLM#16378 and candle#3698 are mistakes of programs, which no config shows.
  const lost: [name: string, forms: PassportForm[], finding: RegExp][] = [
    [
      'ollama#2379, llama.cpp#2773: no base in the GGUF',
      [config({ ...LLAMA, rope_scaling: undefined, rope_theta: 1e6 }), gguf({})],
      /^error: .*base 10000 instead of 1000000.*Write .*llama\.rope\.freq_base = 1000000/s,
    ],
    [
      'kalosm#340, llama.cpp#7495: no factors of llama3 in the GGUF',
      [config(LLAMA), gguf({ 'rope.freq_base': 500000 })],
      /^error: .*scaling none instead of llama3 .*rope_freqs\.weight = /s,
    ],
    [
      'mlxcel#1688: linear for llama3',
      [config(LLAMA), config({ ...LLAMA, rope_scaling: { rope_type: 'linear', factor: 32 } }, 'other.json')],
      /^error: .*scaling linear factor=32 instead of llama3/s,
    ],
    [
      'llama.cpp#13322: no YaRN in the GGUF of Qwen3-MoE',
      [config(QWEN), gguf({ 'rope.freq_base': 1e6 }, 'qwen3moe')],
      /^error: .*scaling none instead of yarn .*qwen3moe\.rope\.scaling\.type = "yarn"/s,
    ],
    [
      'ik_llama.cpp#2003: the factor in ext_factor',
      [
        gguf(
          {
            'rope.freq_base': 1e6,
            'rope.scaling.type': 'yarn',
            'rope.scaling.factor': 4,
            'rope.scaling.yarn_ext_factor': 4,
            'rope.scaling.original_context_length': 32768,
          },
          'qwen3moe',
        ),
      ],
      /^error: it is 4, above 1: /,
    ],
    [
      'llama.cpp#24820: LongRoPE lost',
      [
        config(PHI),
        gguf({ block_count: 32, embedding_length: 3072, 'rope.dimension_count': 96, 'rope.freq_base': 10000 }, 'phi3'),
      ],
      /^error: .*scaling none instead of longrope/s,
    ],
    [
      'transformers#41922: one set of parameters for Gemma 3',
      [config({ ...LLAMA, model_type: 'gemma3_text', rope_theta: undefined, rope_scaling: undefined })],
      /^warning: rope_theta is missing\..* 1000000\./,
    ],
    [
      'nanotron#188: no base after the conversion',
      [config(LLAMA), config({ ...LLAMA, rope_theta: undefined }, 'nanotron.json')],
      /^error: .*base 10000 instead of 500000.*Write "rope_theta": 500000/s,
    ],
    [
      'TensorRT-LLM#2313: Phi-3-128k without LongRoPE',
      [config(PHI), config({ ...PHI, rope_scaling: undefined }, 'trtllm.json')],
      /^error: .*scaling none instead of longrope.*"short_factor":"the 48 numbers that convert --json prints"/s,
    ],
    [
      'Automodel#2825: YaRN read as llama3',
      [
        config({ ...LLAMA, rope_scaling: yarn }),
        config(
          { ...LLAMA, rope_scaling: { ...yarn, rope_type: 'llama3', low_freq_factor: 1, high_freq_factor: 4 } },
          'as-read.json',
        ),
      ],
      /^error: .*scaling llama3 .* instead of yarn factor=4/s,
    ],
    [
      'mlx-swift-examples#152: llama3 as dynamic NTK',
      [config(LLAMA), config({ ...LLAMA, rope_scaling: { rope_type: 'dynamic', factor: 32 } }, 'mlx.json')],
      /^error: .*scaling dynamicNtk .* instead of llama3 factor=32/s,
    ],
    [
      'exllamav2#704: dynamic NTK lost, which only long texts show',
      [
        config({ ...LLAMA, rope_scaling: { rope_type: 'dynamic', factor: 4 } }),
        config({ ...LLAMA, rope_scaling: undefined }, 'exl2.json'),
      ],
      /^error: Up to 131072 tokens it rotates alike; in a text of 524288 tokens it does not\. Layers 0-15: scaling none instead of dynamicNtk factor=4 [^.]*\. Write /,
    ],
    [
      'a list that only long texts read has a wrong length: no long text is compared',
      [
        config({ ...PHI, rope_scaling: { ...(PHI.rope_scaling as Json), long_factor: [1, 2] } }),
        config({ ...PHI, rope_scaling: undefined }, 'other.json'),
      ],
      /long_factor/,
    ],
    [
      'transformers#48960: HunYuan’s alpha',
      [config({ ...LLAMA, model_type: 'hunyuan_v1_dense', rope_scaling: { type: 'dynamic', alpha: 1000, factor: 1 } })],
      /^warning: it raises the base in texts of up to 131072 tokens; transformers ignores it in longer ones\./,
    ],
  ];
  for (const [name, forms, finding] of lost)
    test(name, () => {
      const found = levels(forms);
      assert.ok(
        found.some((line) => finding.test(line)),
        found.join('\n'),
      );
    });
});

describe('one form alone', () => {
  const scaled = (fields: Json): PassportForm =>
    config({ ...LLAMA, rope_scaling: { ...(LLAMA.rope_scaling as Json), ...fields } });
  const cases: [name: string, form: PassportForm, finding: RegExp][] = [
    ['a number as a string', scaled({ factor: '32.0' }), /^error: .*factor: expected a finite number, got "32\.0"/],
    ['type and rope_type differ', scaled({ type: 'linear' }), /^error: it is "linear", and rope_type is "llama3"/],
    ['no band', scaled({ high_freq_factor: 1 }), /^note: it is 1, and low_freq_factor is 1: there is no band/],
    [
      'a reversed band',
      scaled({ low_freq_factor: 8 }),
      /^error: it is 4, and low_freq_factor is 8: the band is reversed/,
    ],
    [
      'no original context',
      scaled({ original_max_position_embeddings: undefined }),
      /^warning: it is missing: .* 131072/,
    ],
    [
      'a context below the original one',
      config({ ...QWEN, max_position_embeddings: 4096 }),
      /^warning: it is 4096, below /,
    ],
    [
      'a factor that is not applied',
      config({ ...LLAMA, rope_scaling: { rope_type: 'default', factor: 4 } }),
      /^warning: it is 4, and rope_type is default/,
    ],
    [
      'a factor of 1',
      config({ ...LLAMA, rope_scaling: { rope_type: 'linear', factor: 1 } }),
      /^note: it is 1: linear scaling/,
    ],
    [
      'another magnitude',
      config({ ...QWEN, rope_scaling: { ...yarn, attention_factor: 1 } }),
      /^note: it is 1, and YaRN’s formula gives 1\.13863/,
    ],
    [
      'two bases',
      config({
        ...LLAMA,
        rope_scaling: undefined,
        rope_theta: 10000,
        rope_parameters: { rope_type: 'default', rope_theta: 500000 },
      }),
      /^error: it is 10000, and rope_parameters\.rope_theta is 500000/,
    ],
    ['an unknown type', scaled({ rope_type: 'magic' }), /^error: .*rope_type/],
  ];
  for (const [name, form, finding] of cases)
    test(name, () => {
      const found = levels([form]);
      assert.ok(
        found.some((line) => finding.test(line)),
        found.join('\n'),
      );
    });
});

describe('arguments of servers', () => {
  const plain = { ...LLAMA, rope_scaling: undefined };
  const reading = (forms: PassportForm[], line: string) =>
    passportOf(forms, { serve: [line] }).readings.at(-1)!.model!.layers[0]!.rope!;
  test('are read as the server reads them', () => {
    const file = gguf({ 'rope.freq_base': 500000 });
    const served = reading(
      [config(plain), file],
      'llama-server -m x.gguf --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx=8192 -c 32768',
    );
    assert.deepEqual({ ...served.scaling }, { ...served.scaling, kind: 'yarn', factor: 4, originalContext: 8192 });
    assert.equal(reading([file], 'llama-server --rope-freq-scale 0.25').scaling?.kind, 'linear');
    assert.equal(reading([file], 'llama-server --override-kv llama.rope.freq_base=float:20000').base, 20000);
    assert.equal(
      reading([file], 'llama-server --override-kv=llama.rope.scaling.type=str:linear --rope-scale 8').scaling?.kind,
      'linear',
    );
    const scaling = '{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}';
    assert.equal(
      reading([config(plain)], `sglang --json-model-override-args '{"rope_scaling": ${scaling}}'`).scaling?.kind,
      'yarn',
    );
    const tgi = reading([config(plain)], 'text-generation-launcher --rope-scaling linear --rope-factor 2');
    assert.deepEqual(tgi.scaling, { kind: 'linear', factor: 2 });
  });
  test('vLLM sets its overrides on a config whose base is in rope_parameters already', () => {
    const served = (override: string, json: Json = plain) => {
      const { readings, findings } = passportOf([config(json)], {
        serve: [`vllm serve m --hf-overrides '${override}'`],
      });
      const { rope } = readings.at(-1)!.model!.layers[0]!;
      return { base: rope!.base, scaling: rope!.scaling?.kind, says: findings.map(({ says }) => says).join(' ') };
    };
    const theta = served('{"rope_theta": 20000}');
    assert.equal(theta.base, 500000);
    assert.match(theta.says, /vLLM does not read this rope_theta/);
    const yarn = '"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768';
    const lost = served(`{"rope_scaling": {${yarn}}}`);
    assert.deepEqual([lost.base, lost.scaling], [10000, 'yarn']);
    assert.match(lost.says, /takes the base 10000 without rope_theta\. Write rope_theta in rope_scaling\./);
    const whole = served(`{"rope_parameters": {${yarn},"rope_theta":20000}}`);
    assert.deepEqual([whole.base, whole.scaling], [20000, 'yarn']);
    assert.doesNotMatch(whole.says, /takes the base/);
    assert.equal(served('{"rope_scaling": null}').base, 10000);
    assert.throws(
      () => served('{"rope_scaling": {"type":"linear","factor":4.0}}'),
      /rope_type, without which vLLM fails/,
    );
    const inner = { model_type: 'llava', text_config: plain };
    assert.equal(served('{"text_config": {"rope_parameters": {"rope_type":"default","rope_theta":7}}}', inner).base, 7);
    // In text_config objects are merged.
    const merged = served('{"text_config": {"rope_scaling": {"rope_type":"linear","factor":2.0}}}', inner);
    assert.deepEqual([merged.base, merged.scaling], [500000, 'linear']);
    assert.equal(served('{"text_config": {"rope_parameters": {"rope_theta": 9}}}', inner).base, 9);
    const gemma: Json = { ...plain, model_type: 'gemma3_text', rope_theta: 1e6, rope_local_base_freq: 10000 };
    const kinds = '"full_attention":{"rope_type":"default","rope_theta":6},"sliding_attention":{"rope_type":"default"}';
    const { readings } = passportOf([config(gemma)], {
      serve: [`vllm --hf-overrides '{"rope_parameters":{${kinds}}}'`],
    });
    assert.deepEqual([...new Set(readings.at(-1)!.model!.layers.map(({ rope }) => rope!.base))].sort(), [10000, 6]);
    const outer = served('{"rope_parameters": {"rope_type":"default","rope_theta":7}}', inner);
    assert.equal(outer.base, 500000);
    assert.match(outer.says, /beside text_config, where the model does not read it/);
  });
  test('are a warning where they change the RoPE', () => {
    const found = levels([config(plain)], ['vllm --rope-theta 10000']);
    assert.equal(found.length, 1);
    assert.match(found[0]!, /^warning: .*base 10000 instead of 500000/);
  });
  test('that are wrong are refused', () => {
    const refusals: [string, RegExp][] = [
      ['llama-sever --rope-scale 4', /--serve: expected llama-server, .*Did you mean/],
      ['llama-server --rope-scal 4', /--serve: expected an argument of llama-server.*--rope-scal/],
      ['llama-server --rope-scale', /--rope-scale needs a value/],
      ['llama-server --override-kv llama.x=bool:yes', /--override-kv: expected true or false/],
      ['llama-server --override-kv llama.rope.freq_base=1', /--override-kv: expected KEY=TYPE:VALUE/],
      ['vllm --rope-theta x', /--rope-theta: expected a number/],
      ['llama-server --rope-scaling none', /llama-server reads a GGUF/],
      ['vllm --hf-overrides {', /--hf-overrides: expected an object as JSON/],
      ['vllm -q', /no argument of vllm in it changes the RoPE/],
      ['', /--serve: expected llama-server/],
    ];
    for (const [line, message] of refusals)
      assert.throws(
        () => passportOf([config(plain)], { serve: [line] }),
        (error) => error instanceof RopewalkError && message.test(error.message),
        line,
      );
  });
});

test('a form that the caller read is held against the first', () => {
  const [first] = passportOf([config(LLAMA)]).readings;
  const read = (layers = first!.model!.layers) =>
    passportOf([
      config(LLAMA),
      { name: 'model.onnx', reader: 'the graph itself', model: { ...first!.model!, layers } },
    ]);
  assert.deepEqual(read().findings, []);
  const wrong = first!.model!.layers.map((layer) => ({ ...layer, rope: { ...layer.rope!, base: 10000 } }));
  const [finding] = read(wrong).findings;
  assert.match(
    `${finding!.level} ${finding!.where}: ${finding!.says}`,
    /^error model\.onnx, the graph itself: .*base 10000/,
  );
  assert.equal(finding!.repair, 'Write this form again from the first one.');
});

test('the text of a table survives conversion, and changes with the base', () => {
  const plain = { ...LLAMA, rope_scaling: undefined };
  const text = (form: PassportForm): string => passportOf([form]).table!;
  assert.equal(text(config(plain)), text(gguf({ 'rope.freq_base': 500000 })));
  assert.notEqual(text(config(plain)), text(gguf({ 'rope.freq_base': 10000 })));
});
