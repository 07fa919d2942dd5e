/** `ropewalk export` as a user runs it. */

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe } from 'node:test';
import { flagsOf, type Ran, ROOT, ropewalkIn } from '../../../test/support/command.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { ortOrReason } from '../../../test/support/ort.js';
import { testOnce as test, testPeers } from '../../../test/support/tier.js';
import { type ExportOptions, exportModel } from '../src/export.js';

const folder = mkdtempSync(join(tmpdir(), 'export-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
const file = (name: string, content: string): string => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};
const llama = file(
  'llama.json',
  JSON.stringify({
    model_type: 'llama',
    num_hidden_layers: 2,
    hidden_size: 512,
    num_attention_heads: 8,
    rope_theta: 500000,
    rope_scaling: {
      rope_type: 'llama3',
      factor: 8,
      low_freq_factor: 1,
      high_freq_factor: 4,
      original_max_position_embeddings: 8192,
    },
  }),
);

/** The part of the JSON that is used here. */
interface Written {
  readonly file: string | null;
  readonly form: string;
  readonly opset: number;
  readonly angles?: string;
  readonly inputs: readonly {
    readonly name: string;
    readonly dtype: string;
    readonly shape: readonly (string | number)[];
  }[];
  readonly nodes: { readonly calls: number; readonly views: number };
  readonly precision: readonly { readonly position: number; readonly maxError: number }[];
  readonly count: { readonly bytesRead: number };
  readonly baseline: readonly unknown[];
}

/** Returns the JSON that the command prints. */
async function exported(source: string | undefined, options: ExportOptions): Promise<Written> {
  const { status, stdout, stderr } = await ropewalk(
    'export',
    ...(source ? [source] : []),
    ...flagsOf(options),
    '--json',
  );
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

describe('ropewalk export', () => {
  const exportRope = (out: string): Promise<Ran> =>
    ropewalk('export', llama, '--layer', '1', '--heads', '8', '--kv-heads', '2', '--context', '64', '-o', out);
  test('writes a model, and says what is in it', async () => {
    const out = join(folder, 'rope.onnx');
    const { status, stdout, stderr } = await exportRope(out);
    assert.equal(status, 0, stderr);
    for (const line of [
      `RoPE of ${llama}, layer 1: ONNX opset 23, form standard, angles f32-table`,
      '  inputs    q f32 [batch, seq, 8, 64]',
      '            position_ids i64 [batch, seq]',
      '            k_out f32 [batch, seq, 2, 64]',
      '  nodes     6: RotaryEmbedding ×2; 4 that only reshape',
      '  63           2.9e-8',
    ])
      assert.ok(stdout.includes(`${line}\n`), `${line} in\n${stdout}`);
    const bytes = readFileSync(out);
    assert.match(
      stdout,
      new RegExp(`Wrote .*rope.onnx, ${String(bytes.length).replace(/\B(?=(\d{3})+$)/, ',')} bytes`),
    );
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.includes('tmp')),
      [],
    );
  });

  testPeers('the model serves any batch and sequence', { skip: noOnnxruntime }, async () => {
    const ort = await ortOrReason();
    if (typeof ort === 'string') throw new Error(ort);
    const out = join(folder, 'any.onnx');
    await exportRope(out);
    const session = await ort.InferenceSession.create(readFileSync(out), { logSeverityLevel: 4 });
    for (const [batch, seq] of [
      [1, 1],
      [3, 5],
    ] as const) {
      const x = (heads: number) =>
        new ort.Tensor('float32', new Float32Array(batch * seq * heads * 64).fill(1), [batch, seq, heads, 64]);
      const ids = new ort.Tensor('int64', new BigInt64Array(batch * seq), [batch, seq]);
      const { q_out } = await session.run({ q: x(8), k: x(2), position_ids: ids });
      assert.deepEqual(
        [q_out!.dims, (q_out!.data as Float32Array).every((value) => value === 1)],
        [[batch, seq, 8, 64], true],
      ); // position 0 turns nothing
    }
  });

  test('counts operators and bytes beside the twelve steps', async () => {
    const line =
      'ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=2,n_ctx=512,fs=1.424500,ef=0.746500,af=1.424500,ff=1,v=0)';
    const { status, stdout, stderr } = await ropewalk(
      'export',
      '--rope',
      line,
      '--heads',
      '32',
      '--form',
      'primitives',
      '--angles',
      'f32',
      '--count',
      '1,2',
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /batch 1, seq 2 +calls +bytes read +written +in buffers\n {2}this graph +14 /);
    assert.match(stdout, /twelve steps, rotation +17 /);
    const percent = Number(/14 calls for 17, ([\d.]+) % of the bytes/.exec(stdout)?.[1]);
    assert.ok(percent > 50 && percent < 100, stdout);
    assert.match(stdout, /Not written: no --out/);
    // Its ramp is ignored: at position 1 one pair is wrong already.
    assert.match(stdout, /off by at most {3}of the twelve steps\n {2}1 +\d\.\de-\d+ +\d\.\de-1\n/);
    const multi =
      'ROPE(type=f32,ne_a=[128,4,2,1],n_dims=128,mode=8,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0,sections=[16,24,24,0])';
    assert.match(
      (await ropewalk('export', '--rope', multi, '--count')).stdout,
      /twelve steps do not compute this RoPE: .*no axes/,
    );
  });

  const inputsOf = async (source: string, options: ExportOptions = {}): Promise<string[]> =>
    (await exported(source, options)).inputs
      .filter(({ name }) => name !== 'position_ids')
      .map(({ name, dtype, shape }) => `${name} ${dtype} ${shape[2]}`);

  test('heads come from the model, in a folder too; --heads alone is for one tensor', async () => {
    const box = join(ROOT, 'models/marline');
    assert.deepEqual(await inputsOf(box), ['q f32 6', 'k f32 2']);
    assert.deepEqual(await inputsOf(join(box, 'model-q8_0.gguf')), ['q f32 6', 'k f32 2']);
    assert.deepEqual(await inputsOf(box, { kvHeads: '3' }), ['q f32 6', 'k f32 3']);
    assert.deepEqual(await inputsOf(box, { heads: '4' }), ['x f32 4']);
  });

  test('a ROPE(…) line gives the dtype and the heads; --dtype and --heads override it', async () => {
    const line = 'ROPE(type=f16,ne_a=[64,4,2,1],n_dims=64,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';
    assert.deepEqual(await inputsOf(line), ['x f16 4']);
    assert.deepEqual(await inputsOf(line, { dtype: 'bf16', heads: '3' }), ['x bf16 3']);
  });

  test('every operator, in both forms', async () => {
    const shapes: Record<string, [string, ExportOptions?]> = {
      add: ['2,3'],
      argmax: ['4,7'],
      embedding: ['3,10,64', { weights: 'q8_0' }],
      expert_linear: ['2,3,4,8,64', { weights: 'q4_0', bias: true, weighted: true }],
      linear: ['2,8,64', { weights: 'q4_0', bias: true }],
      rearrange: ['2,3,4', { perm: '1,2,0' }],
      rms_norm: ['2,8', { eps: '1e-5' }],
      route: ['2,8,3', { gate: 'sigmoid', groups: '4,2,2', bias: true, normalize: true }],
      self_attention: ['1,2,4,4,2,8', { window: '3', sinks: true }],
      swiglu: ['5'],
      'swiglu ': ['5', { limit: '7', alpha: '1.702', offset: '1' }],
      gelu: ['5'],
      geglu: ['2,5', { approximate: 'tanh' }],
      scale: ['2,5'],
      'scale ': ['5', { factor: '2', softcap: '30' }],
      layer_norm: ['2,8'],
      'layer_norm ': ['2,8', { eps: '1e-6', bias: true }],
    };
    for (const [name, [shape, more]] of Object.entries(shapes)) {
      const op = name.trim();
      for (const form of ['standard', 'primitives']) {
        const json = await exported(undefined, { op, shape, form, out: join(folder, `${op}-${form}.onnx`), ...more });
        assert.ok(existsSync(join(folder, `${op}-${form}.onnx`)));
        assert.ok(json.nodes.calls + json.nodes.views > 0);
      }
    }
  });

  test('options of route and expert_linear change the graph', async () => {
    const inputs = async (op: string, shape: string, more: ExportOptions = {}): Promise<string[]> =>
      (await exported(undefined, { op, shape, ...more })).inputs.map(({ name, shape }) => `${name} ${shape}`);
    assert.deepEqual(await inputs('route', '2,8,3'), ['logits 2,8']);
    assert.deepEqual(await inputs('route', '2,8,3', { bias: true }), ['logits 2,8', 'bias 8']);
    const plain = ['x 2,16', 'weight 4,5,16', 'indices 2,3'];
    assert.deepEqual(await inputs('expert_linear', '2,3,4,5,16'), plain);
    const all = await inputs('expert_linear', '2,3,4,5,16', { bias: true, weighted: true });
    assert.deepEqual(all, [...plain, 'bias 4,5', 'weights 2,3']);
    assert.equal((await inputs('self_attention', '1,2,4,4,2,8', { sinks: true })).at(-1), 'sinks 4');
  });

  test('JSON has what the lines have', async () => {
    const json = await exported(llama, { heads: '8', form: 'primitives', count: '2,16', opset: '18' });
    assert.deepEqual([json.file, json.form, json.opset, json.angles], [null, 'primitives', 18, 'f32-reduced']);
    assert.deepEqual(
      json.inputs.map(({ name }) => name),
      ['x', 'position_ids'],
    );
    assert.deepEqual(
      json.precision.map(({ position }) => position),
      [1, 1000, 4096, 32768, 131072, 1000000, 2 ** 24, 2 ** 31 - 1],
    );
    assert.ok(json.count.bytesRead > 0);
    assert.equal(json.baseline.length, 13);
  });

  test('the error of float64 data is given in float64', async () => {
    for (const [dtype, first, least, most] of [
      ['f32', 2 ** -24, 2 ** -27, 2 ** -24],
      // Position 1 is off by roundings of cos and sin; 4095 by half an ulp of its angle, too.
      ['f64', 2 ** -50, 2 ** -47, 2 ** -42],
    ] as const) {
      const { precision } = await exported(llama, {
        heads: '8',
        form: 'primitives',
        dtype,
        angles: 'f64',
        context: '4096',
      });
      const errors = new Map(precision.map(({ position, maxError }) => [position, maxError]));
      assert.ok(errors.get(1)! <= first, `${dtype}: ${errors.get(1)}`);
      assert.ok(errors.get(4095)! >= least && errors.get(4095)! <= most, `${dtype}: ${errors.get(4095)}`);
    }
  });

  test('refusals', async () => {
    const spec = file('spec.json', JSON.stringify({ headDim: 64, pairing: 'half', base: 10000 }));
    const empty = file('empty.json', '');
    const refused: [string | undefined, ExportOptions, RegExp][] = [
      [undefined, { heads: '1' }, /model: no RoPE is given\. Give one of a model, --rope and --spec, or --op/],
      [llama, { spec, heads: '1' }, /model: several RoPEs are given: .*\. Give one/],
      [spec, {}, /--heads: nothing says how many heads x has\. Give --heads/],
      [llama, { heads: '0' }, /--heads: expected an integer in \[1, 65536\]/],
      [llama, { heads: '' }, /--heads/],
      [llama, { heads: '8', layer: '2' }, /layer: expected an integer in \[0, 1\]/],
      [undefined, { spec, heads: '8', layer: '0' }, /--layer: it needs a model/],
      [empty, { heads: '8' }, /empty\.json/],
      [join(folder, 'absent.json'), { heads: '8' }, /there is no such file or folder/],
      [undefined, { rope: 'ROPEWALK', heads: '8' }, /--rope: expected a ROPE\(…\) line/],
      [llama, { heads: '8', form: 'fused' }, /--form: expected standard or primitives/],
      [llama, { heads: '8', angles: 'f8' }, /--angles: expected f64, f32/],
      [llama, { heads: '8', dtype: 'i8' }, /--dtype: expected f32, f16, bf16 or f64/],
      [llama, { heads: '8', context: '0' }, /--context/],
      [llama, { heads: '8', opset: '22' }, /--opset: form standard needs opset 23/],
      [llama, { heads: '8', opset: '17' }, /--opset: expected an integer in \[18, 23\]/],
      [llama, { heads: '8', count: '1' }, /--count: expected BATCH,SEQ/],
      [llama, { heads: '8', count: '1,2,3' }, /--count/],
      [llama, { heads: '8', normEps: 'NaN' }, /--norm-eps: expected a number/],
      [llama, { heads: '8', shape: '1,2' }, /--shape: it does not apply to RoPE/],
      [llama, { op: 'add', shape: '1,2' }, /model: --op add does not take a model/],
      [undefined, { op: 'add', shape: '1,2', kvHeads: '3' }, /--kv-heads: it does not apply to --op add/],
      [undefined, { op: 'add', shape: '1,2', kvCache: true }, /--kv-cache: it does not apply to --op add/],
      [undefined, { op: 'rms_norm', shape: '1,2', perm: '1,0' }, /--perm: it does not apply to --op rms_norm/],
      [
        undefined,
        { op: 'embedding', shape: '16777217,3,64' },
        /shape: expected a COUNT of at most 16777216, got 16777217/,
      ],
      [
        undefined,
        { op: 'embedding', shape: '2,3,64', weights: 'q8_0', dtype: 'f16' },
        /--dtype: rows of q8_0 blocks come out as f32/,
      ],
      [
        undefined,
        { op: 'self_attention', shape: '1,65536,131072,4,4,64' },
        /op: no graph can express this self_attention: .*a mask of 65536 × 131072 is too large for a graph/,
      ],
      [undefined, { op: 'add', shape: '1,2', sinks: true }, /--sinks: it does not apply to --op add/],
      [undefined, { op: 'route', shape: '2,8' }, /shape: expected TOKENS,EXPERTS,CHOSEN/],
      [undefined, { op: 'route', shape: '2,8,9' }, /indices: expected at most 8 chosen experts, got 9/],
      [
        undefined,
        { op: 'route', shape: '2,8,2', gate: 'top' },
        /--gate: expected softmax, sigmoid, softmax-of-chosen or sparsemixer/,
      ],
      [undefined, { op: 'route', shape: '2,8,2', groups: '4,2' }, /--groups: expected COUNT,USED,BEST/],
      [
        undefined,
        { op: 'route', shape: '2,8,2', groups: '3,2,1' },
        /groups.count: expected a divisor of the 8 experts/,
      ],
      [undefined, { op: 'expert_linear', shape: '2,3,4,5' }, /shape: expected TOKENS,CHOSEN,EXPERTS,N,K/],
      [undefined, { op: 'gelu', shape: '2', approximate: 'erf' }, /--approximate: expected none or tanh, got "erf"/],
      [undefined, { op: 'swiglu', shape: '2', limit: '-1' }, /limit: expected a finite number > 0, got -1/],
      [undefined, { op: 'scale', shape: '2', limit: '1' }, /--limit: it does not apply to --op scale/],
      [undefined, { op: 'scale', shape: '2', softcap: '0' }, /softcap: expected a finite number > 0, got 0/],
      [undefined, { op: 'conv', shape: '1,2' }, /--op: expected rope, add, /],
      [undefined, { op: 'add' }, /--shape: --op add needs a shape: any dimensions/],
      [undefined, { op: 'add', shape: '2,x' }, /--shape: expected an integer/],
      [undefined, { op: 'linear', shape: '2,3' }, /shape: expected M,N,K/],
      [undefined, { op: 'linear', shape: '2,3,5', weights: 'q8_0' }, /blocks: shape: expected .* a multiple of 32/],
      [undefined, { op: 'linear', shape: '2,3,5', weights: 'q2_K' }, /weights: expected/],
      [
        undefined,
        { op: 'self_attention', shape: '1,2,4,4,3,8' },
        /self_attention: q: expected num_heads to be a multiple/,
      ],
      [
        llama,
        { heads: '8', out: join(folder, 'no', 'such.onnx') },
        /--out: .*such\.onnx: there is no folder .*no\. Make it first\.$/,
      ],
    ];
    for (const [source, options, message] of refused)
      await assert.rejects(exportModel(source, options), { name: 'RopewalkError', message });
    const { status, stderr } = await ropewalk('export', llama, '--heads', 'many');
    assert.deepEqual(
      [status, stderr],
      [2, 'ropewalk: export: --heads: expected an integer in [1, 65536], got "many"\n'],
    );
  });
});

describe('export --for', () => {
  const forDevice = (device: string, ...args: string[]) => ropewalk('export', llama, '--for', device, ...args);

  test('the form is what the device takes, and the answer says why', async () => {
    const { status, stdout, stderr } = await forDevice('ort-cann', '--dtype', 'f16', '-o', 'cann.onnx');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /for ort-cann: ONNX opset 18, form primitives, angles f32-table$/m);
    assert.match(stdout, /There is no RotaryEmbedding: onnxruntime\/onnxruntime-qnn@cee6c0d9 .*cann_graph\.cc/);
    assert.ok(existsSync(join(folder, 'cann.onnx')));
    const webgpu = JSON.parse((await forDevice('ort-webgpu', '--json')).stdout);
    assert.deepEqual(
      [webgpu.form, webgpu.opset, webgpu.angles, webgpu.for.device],
      ['standard', 23, 'f32-table', 'ort-webgpu'],
    );
    // Core ML refuses a Cast of an input: f16 data have tables in f16.
    assert.equal(JSON.parse((await forDevice('ort-coreml', '--dtype', 'f16', '--json')).stdout).angles, 'f16-table');
  });

  test('what is given is kept where the device takes it', async () => {
    const given = JSON.parse(
      (await forDevice('ort-webnn', '--form', 'primitives', '--opset', '20', '--layout', 'bnsh', '--json')).stdout,
    );
    assert.deepEqual([given.form, given.opset, given.inputs[0].shape[2]], ['primitives', 20, 'seq']);
    // RMSNormalization is not among WebNN's operators, so the standard form is none.
    assert.equal(JSON.parse((await forDevice('ort-webnn', '--norm-eps', '1e-6', '--json')).stdout).form, 'primitives');
  });

  const refusals: readonly [string[], RegExp][] = [
    [['aclnn-a2'], /--for: aclnn-a2 takes no ONNX graph\. .* Graphs are for ort-cann, /],
    [['ort-none'], /--for: expected cann-2024, .* got "?ort-none/],
    [
      ['ort-cann', '--form', 'standard'],
      /--form: ort-cann does not take standard \(it has no RotaryEmbedding\)\. It takes primitives/,
    ],
    [['ort-qnn', '--angles', 'f64'], /--angles: ort-qnn does not take f64 .* It takes f32-table: leave --angles out\./],
    [['ort-webnn', '--dtype', 'bf16'], /--dtype: ort-webnn does not take bf16 .* It takes f32: give --dtype f32\./],
    [['ort-webgpu', '--opset', '20', '--form', 'standard'], /--form: ort-webgpu does not take standard/],
    [
      ['ort-coreml', '--kv-cache', '--heads', '8', '--kv-heads', '8'],
      /--for: ort-coreml takes this RoPE in no form: primitives needs: operators that it lacks: ScatterND/,
    ],
  ];
  for (const [[device, ...args], message] of refusals)
    test(`refused: --for ${[device, ...args].join(' ')}`, async () => {
      const { status, stderr } = await forDevice(device!, ...args, '-o', 'refused.onnx');
      assert.equal(status, 2);
      assert.match(stderr, message);
      assert.ok(!existsSync(join(folder, 'refused.onnx')));
    });

  test('it is about RoPE', async () => {
    const { status, stderr } = await ropewalk('export', '--op', 'add', '--shape', '2,2', '--for', 'ort-cann');
    assert.equal(status, 2);
    assert.match(stderr, /--for: it does not apply to --op add/);
  });
});
