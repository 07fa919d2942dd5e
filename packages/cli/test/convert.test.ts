import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { ropewalkIn } from '../../../test/support/command.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { type ConvertCommandOptions, convert } from '../src/convert.js';

const folder = mkdtempSync(join(tmpdir(), 'convert-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
const file = (name: string, content: string | Uint8Array): string => {
  writeFileSync(join(folder, name), content);
  return name;
};

const llama31 = file(
  'llama31.json',
  JSON.stringify({
    model_type: 'llama',
    num_hidden_layers: 32,
    hidden_size: 4096,
    num_attention_heads: 32,
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
const gemma3 = file(
  'gemma3.json',
  JSON.stringify({
    model_type: 'gemma3_text',
    num_hidden_layers: 8,
    head_dim: 256,
    hidden_size: 1152,
    num_attention_heads: 4,
    rope_theta: 1e6,
    rope_local_base_freq: 1e4,
    sliding_window_pattern: 6,
  }),
);

describe('convert', () => {
  test('to ggml: arguments, notes and the proof, exit 0', async () => {
    const { status, stdout, stderr } = await ropewalk('convert', llama31, '--to', 'ggml');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^llama31\.json, layer 0 → ggml: ggml_rope_ext\n/);
    assert.match(stdout, /^ {2}freq_factors {2}64 values: 1, 1, 1, …, 8, 8$/m);
    assert.match(stdout, /note: ggml has no llama3 scaling/);
    assert.match(stdout, /read back: the same RoPE; frequencies within \S+, magnitude within 0\n$/);
  });

  test('tables: two .npy and a JSON that names them, no temporary files, and the folder is read again as the same model', async () => {
    const { status, stdout, stderr } = await ropewalk(
      'convert',
      llama31,
      '--to',
      'onnx',
      '--table-len',
      '128',
      '--out',
      'caches',
    );
    assert.equal(status, 0, stderr);
    assert.match(
      stdout,
      /wrote caches\/cos_cache\.npy\n {2}wrote caches\/sin_cache\.npy\n {2}wrote caches\/onnx\.json/,
    );
    assert.deepEqual(readdirSync(join(folder, 'caches')).sort(), ['cos_cache.npy', 'onnx.json', 'sin_cache.npy']);
    const cos = parseNpy(readFileSync(join(folder, 'caches/cos_cache.npy')));
    assert.deepEqual([cos.dtype, cos.shape], ['f32', [128, 64]]);
    assert.equal(cos.data[64 * 3], Math.fround(Math.cos(3)));

    const again = await ropewalk('convert', 'caches/onnx.json', '--to', 'ggml', '--json');
    assert.equal(again.status, 0, again.stderr);
    const { record, arguments: args, from } = JSON.parse(again.stdout);
    assert.equal(from, 'caches/onnx.json (onnx)');
    assert.equal(record.base, 500000, 'the fast pairs tell the base');
    const direct = JSON.parse((await ropewalk('convert', llama31, '--to', 'ggml', '--json')).stdout);
    for (const [j, factor] of (args.freq_factors as number[]).entries())
      assert.ok(Math.abs(factor / direct.arguments.freq_factors[j] - 1) < 2 ** -20, `pair ${j}`);
  });

  test('a layer that differs from the others: the other layers are named', async () => {
    const full = await ropewalk('convert', gemma3, '--to', 'gguf', '--layer', '5');
    assert.match(full.stdout, /gemma3\.rope\.freq_base\s+1000000/);
    assert.match(full.stdout, /note: Layers 0-4, 6-7 have another RoPE: convert them too/);
    const config = JSON.parse(readFileSync(join(folder, gemma3), 'utf8'));
    const six = file('gemma3-six.json', JSON.stringify({ ...config, num_hidden_layers: 6 }));
    assert.match(
      (await ropewalk('convert', six, '--to', 'gguf')).stdout,
      /note: Layer 5 has another RoPE: convert it too/,
    );
  });

  test('the first layer with RoPE is meant where none is named; one without is refused with the layers that have it', async () => {
    const hybrid = file('hybrid.json', JSON.stringify({ model_type: 'qwen3_next', num_hidden_layers: 8 }));
    const first = await ropewalk('convert', hybrid, '--to', 'ggml', '--json');
    assert.match(JSON.parse(first.stdout).from, /hybrid\.json, layer 3$/);
    assert.match(
      (await ropewalk('convert', hybrid, '--to', 'ggml', '--layer', '0')).stderr,
      /layer 0 of .*hybrid\.json has no position encoding\. Layers with RoPE: 3, 7\.$/m,
    );
  });

  test('a sliding layer has keys and fields of its own, and is read again as such', async () => {
    const sliding = await ropewalk('convert', gemma3, '--to', 'gguf', '--json');
    const { arguments: keys, notes } = JSON.parse(sliding.stdout);
    assert.deepEqual([keys['gemma3.rope.freq_base_swa'], keys['gemma3.rope.freq_base']], [10000, undefined]);
    assert.ok(
      notes.includes('These keys are those of sliding layers; the base of full layers is gemma3.rope.freq_base.'),
    );
    file('sliding.json', sliding.stdout.replaceAll('10000', '20000'));
    assert.equal(
      JSON.parse((await ropewalk('convert', 'sliding.json', '--to', 'spec', '--json')).stdout).record.base,
      20000,
    );
    const again = JSON.parse((await ropewalk('convert', gemma3, '--to', 'huggingface', '--json')).stdout);
    assert.deepEqual(again.arguments.config.rope_parameters, {
      sliding_attention: { rope_theta: 10000, rope_type: 'default' },
    });
    assert.equal(again.arguments.config_before_transformers_5.rope_local_base_freq, 10000);
    assert.ok(
      again.notes.includes(
        'These are the fields of one sliding_attention layer; its window and the other layers are not in them.',
      ),
    );
  });

  test('a real GGUF file to HuggingFace, with a note about the permutation', async () => {
    const { status, stdout, stderr } = await ropewalk(
      'convert',
      join(STORIES, 'model-f32.gguf'),
      '--to',
      'huggingface',
      '--json',
    );
    assert.equal(status, 0, stderr);
    const result = JSON.parse(stdout);
    assert.equal(result.arguments.config.model_type, 'llama');
    assert.deepEqual(result.relayout, { from: 'interleaved', to: 'half', weights: 'permute' });
    file('back.json', JSON.stringify(result));
    const back = JSON.parse(
      (await ropewalk('convert', 'back.json', '--to', 'gguf', '--arch', 'llama', '--json')).stdout,
    );
    assert.deepEqual(
      [back.arguments['llama.rope.freq_base'], back.arguments['llama.rope.dimension_count'], back.relayout.weights],
      [10000, 8, 'permute'],
    );
  });

  test('a ROPE(…) line, a record, and bare arguments of a peer', async () => {
    const line = 'ROPE(type=f32,ne_a=[64,2,3,1],n_dims=64,mode=0,n_ctx=512,fs=0.25,ef=0,af=1,ff=0,v=0,fb=3000000)';
    const record = await ropewalk('convert', line, '--to', 'spec', '--json');
    assert.equal(record.status, 0, record.stderr);
    const { arguments: args } = JSON.parse(record.stdout);
    assert.deepEqual([args.base, args.pairing, args.scaling], [3e6, 'interleaved', { kind: 'linear', factor: 4 }]);
    file('record.json', JSON.stringify(args));
    assert.match(
      (await ropewalk('convert', 'record.json', '--to', 'mlx')).stdout,
      /traditional {2}true[\s\S]*scale {8}0\.25/,
    );
    file('mlx.json', JSON.stringify({ dims: 64, traditional: true, base: 3e6, scale: 0.25 }));
    assert.match(
      (await ropewalk('convert', 'mlx.json', '--to', 'flashinfer')).stdout,
      /mlx\.json \(mlx\) → flashinfer[\s\S]*rope_scale +4\n/,
    );
  });

  file('list.json', '[1, 2]');
  file('empty.json', '');
  file(
    'traversal.json',
    JSON.stringify({ target: 'onnx', arguments: { cos_cache: '../cos.npy', sin_cache: 'sin.npy' } }),
  );
  file(
    'missing.json',
    JSON.stringify({ target: 'onnx', arguments: { cos_cache: 'nowhere.npy', sin_cache: 'sin.npy' } }),
  );
  file('bad.npy', 'no numpy');
  file('bad', 'no folder');
  file('bad.json', JSON.stringify({ cos_cache: 'bad.npy', sin_cache: 'bad.npy' }));
  const at = (name: string): string => join(folder, name);
  const onnx = { to: 'onnx', tableLen: '8' };
  const refusals: readonly (readonly [string, string, ConvertCommandOptions, RegExp])[] = [
    [
      'an unknown target, before the file is read',
      'nowhere.json',
      { to: 'torch' },
      /--to: expected huggingface, gguf, .* got "torch"/,
    ],
    ['a missing file', 'nowhere.json', { to: 'ggml' }, /nowhere\.json: there is no such file or folder/],
    ['an empty file', 'empty.json', { to: 'ggml' }, /empty\.json: expected JSON with a value at line 1/],
    ['a list', 'list.json', { to: 'ggml' }, /list\.json: expected an object, got \[1, 2\]/],
    [
      'another kind of file',
      'bad.npy',
      { to: 'ggml' },
      /expected a config\.json, a \.gguf, a folder with one, a record or arguments as \.json/,
    ],
    ['a table that is none', 'bad.json', { to: 'ggml' }, /bad\.npy: it is not a \.npy file/],
    ['a table that is missing', 'missing.json', { to: 'ggml' }, /nowhere\.npy: there is no such file or folder/],
    [
      'a table elsewhere',
      'traversal.json',
      { to: 'ggml' },
      /cos_cache: expected the name of a file in the same folder, got "\.\.\/cos\.npy"/,
    ],
    ['a layer too many', llama31, { to: 'ggml', layer: '32' }, /layer: expected an integer in \[0, 31\], got 32/],
    ['a layer that is no number', llama31, { to: 'ggml', layer: '' }, /--layer: expected an integer/],
    [
      'tables with nowhere to go',
      llama31,
      onnx,
      /tables go into files\. Give --out DIR for cos_cache\.npy and sin_cache\.npy/,
    ],
    ['no rows', llama31, { ...onnx, tableLen: '0', out: at('x') }, /--table-len: expected an integer in \[1/],
    [
      'a file for a folder',
      llama31,
      { ...onnx, out: at('bad') },
      /--out: .*bad: expected a folder that can be written, got/,
    ],
    [
      'a name that means a file',
      llama31,
      { to: 'gguf', out: at('model.gguf') },
      /^--out: expected the name of a folder, got ".*model\.gguf"\. It gets one layer's RoPE: .* ropewalk to-gguf MODEL -o model\.gguf writes/,
    ],
    [
      'the same before a folder',
      llama31,
      { to: 'spec', out: at('new/rope.json') },
      /^--out: expected the name of a folder, got ".*rope\.json"/,
    ],
    [
      'a context of NaN',
      llama31,
      { to: 'ggml', context: 'NaN' },
      /--context: expected an integer in \[1, 2147483647\], got "NaN"/,
    ],
  ];
  for (const [what, from, options, message] of refusals) {
    test(`refuses ${what}, and writes nothing`, async () => {
      const before = readdirSync(folder).sort();
      await assert.rejects(convert(at(from), options), { name: 'RopewalkError', message });
      assert.deepEqual(readdirSync(folder).sort(), before);
    });
  }

  test('a refusal on the command line: exit 2, nothing on stdout', async () => {
    const unsaid = await ropewalk('convert', llama31);
    assert.deepEqual([unsaid.status, unsaid.stdout], [2, '']);
    assert.match(unsaid.stderr, /^ropewalk: convert: --to: it is required, unless --matrix is given/);
    file('window.json', JSON.stringify({ headDim: 64, rotaryDim: 32, rotaryOffset: 32, pairing: 'half', base: 10000 }));
    const { status, stdout, stderr } = await ropewalk('convert', 'window.json', '--to', 'onnx');
    assert.deepEqual([status, stdout], [2, '']);
    assert.match(
      stderr,
      /^ropewalk: convert: onnx: cannot be expressed, because .* this window starts at 32\. Put Split before the node/,
    );
  });

  test('a write that fails half way leaves no file with a final name', async () => {
    // sin_cache.npy cannot be put in place: a folder has its name.
    mkdirSync(join(folder, 'half/sin_cache.npy/full'), { recursive: true });
    await assert.rejects(convert(at(llama31), { ...onnx, out: at('half') }), {
      message: /--out: .*half: expected a folder that can be written/,
    });
    assert.deepEqual(
      readdirSync(join(folder, 'half')).sort(),
      ['cos_cache.npy', 'sin_cache.npy'],
      'no .part, and no JSON that would call it whole',
    );
    assert.equal(parseNpy(readFileSync(join(folder, 'half/cos_cache.npy'))).shape[0], 8);
  });
});

describe('--matrix', () => {
  const line = 'ROPE(ne_a=[6,1,1,1],n_dims=4,mode=MODE,fb=100)';
  const matrixOf = async (mode: number, ...args: string[]): Promise<number[][]> =>
    JSON.parse(
      (await ropewalk('convert', line.replace('MODE', String(mode)), '--matrix', '3', '--json', ...args)).stdout,
    ).matrix;

  test('R_p is the block matrix of the document, by pairs of the mode; its transpose turns back', async () => {
    const [a, b] = [3, 3 * 100 ** -0.5];
    const block = (pairs: readonly (readonly [number, number])[]): number[][] => {
      const rows = Array.from({ length: 6 }, (_, i) => Array.from({ length: 6 }, (_, j) => Number(i === j)));
      for (const [n, [p, q]] of pairs.entries()) {
        const angle = [a, b][n]!;
        rows[p]![p] = rows[q]![q] = Math.cos(angle);
        rows[p]![q] = -Math.sin(angle);
        rows[q]![p] = Math.sin(angle);
      }
      return rows;
    };
    const near = (got: number[][], want: number[][]): void => {
      for (const [i, row] of want.entries())
        for (const [j, value] of row.entries())
          assert.ok(Math.abs(got[i]![j]! - value) < 1e-7, `${i} ${j} ${got[i]![j]}`);
    };
    near(
      await matrixOf(0),
      block([
        [0, 1],
        [2, 3],
      ]),
    );
    near(
      await matrixOf(2),
      block([
        [0, 2],
        [1, 3],
      ]),
    );
    const back = JSON.parse(
      (await ropewalk('convert', `${line.replace('MODE', '0').slice(0, -1)},fwd=0)`, '--matrix', '3', '--json')).stdout,
    ).matrix as number[][];
    near(
      back,
      block([
        [1, 0],
        [3, 2],
      ]),
    );
    const { stdout } = await ropewalk('convert', line.replace('MODE', '0'), '--matrix', '3');
    assert.match(stdout, /^R at position 3, forward: y = R·x for a head of 6 dimensions of the ROPE/);
    assert.match(stdout, /^ {2}-0\.989992 {2}-0\.141120 {10}0 {10}0 {10}0 {10}0$/m);
  });

  test('large heads and other options are refused; without both, --to is asked for', async () => {
    for (const [args, said] of [
      [
        [llama31, '--matrix', '1'],
        /--matrix: expected a head of at most 16 dimensions, got 128\. Up to 256 with --json/,
      ],
      [[llama31, '--matrix', '1', '--to', 'ggml'], /--to: it does not go with --matrix/],
      [[llama31], /--to: it is required, unless --matrix is given/],
    ] as const) {
      const { status, stderr } = await ropewalk('convert', ...args);
      assert.equal(status, 2);
      assert.match(stderr, said);
    }
  });
});
