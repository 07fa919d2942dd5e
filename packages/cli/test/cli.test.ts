import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { commandPath, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { createProgram } from '../src/program.js';
import { VERSION } from '../src/version.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'cli-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(root, ...args);
const file = (name: string, content: string | Uint8Array): string => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};

describe('check', () => {
  test('--filter by case and by suite, --json', async () => {
    assert.match(
      (await ropewalk('check', '--backend', 'cpu', '--filter', 'ne_a=\\[64,1,2,1\\].*ff=1')).stdout,
      /2\/2 cases passed/,
    );
    const { status, stdout } = await ropewalk('check', '--backend', 'reference', '--filter', '^onnx$', '--json');
    const lines = stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.equal(status, 0);
    assert.deepEqual(lines.at(-1), {
      summary: { ok: 14, fail: 0, notSupported: 0, suites: { 'reference/onnx': { ok: 14, fail: 0, notSupported: 0 } } },
    });
    assert.deepEqual([lines[0].backend, lines[0].suite, lines[0].status], ['reference', 'onnx', 'ok']);
  });

  test('--case reruns a line that was printed, also a vector’s, and a line of the user’s', async () => {
    const vector = (await ropewalk('check', '--verbose', '--filter', 'test_rotary_embedding_3d_input')).stdout
      .split('\n')
      .find((line) => line.includes('RotaryEmbedding'))!;
    assert.match((await ropewalk('check', '--case', vector)).stdout, /(\d)\/\1 cases passed/);
    const own =
      'ROPE(type=bf16,ne_a=[96,2,3,1],n_dims=48,mode=2,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0,fb=3000000)';
    assert.match((await ropewalk('check', '--case', own)).stdout, new RegExp(`${own.replace(/[()[\]]/g, '\\$&')}: OK`));
  });

  test('--case takes several lines, a file and a log, and names every line that it does not run', async () => {
    const line = 'ROPE(type=f32,ne_a=[64,1,2,1],n_dims=64,mode=2)';
    const log = [
      'Backend 1/2: CUDA0',
      `  ${line}: \u001b[1;32mOK\u001b[0m`,
      '  ROPE(type=f16,ne_a=[80,4,2,1],n_dims=32,mode=2,v=2,inplace=0,n_offs=0): OK',
      '  ROPE_BACK(type=f32,ne_a=[64,1,2,1],n_dims=64,mode=2): not supported [CUDA0]',
      '  ADD(type=f32,ne=[1,1,8,1],nr=[1,1,1,1]): OK',
      '  ROPE(type=q8,ne_a=[64,1,2,1],n_dims=64,mode=2): OK',
      `  ${line}: OK`,
    ].join('\n');
    const file = join(folder, 'npu.log');
    writeFileSync(file, log);
    for (const given of [log, file]) {
      const { status, stdout, stderr } = await ropewalk('check', '-b', 'reference', '--case', given);
      assert.equal(status, 0, stderr);
      assert.match(stdout, /n_dims=64,mode=2,.*,fwd=0\): OK$/m);
      assert.match(stdout, /^ {2}3\/3 cases passed, 0 failed$/m);
      assert.match(stdout, /^ {2}not run: 1 line, no case; line 1: Backend 1\/2: CUDA0$/m);
      assert.match(stdout, /^ {2}not run: 1 line, a case of ADD that no suite has; line 5: /m);
      assert.match(stdout, /^ {2}not run: 1 line, ROPE\(…\): type: expected .*, got "q8"; line 6: /m);
      assert.match(stdout, /^ {2}not run: 1 line, a case of an earlier line; line 7: /m);
    }
    const { stdout } = await ropewalk('check', '-b', 'reference', '--case', file, '--json');
    const { summary } = JSON.parse(stdout.trim().split('\n').at(-1)!);
    assert.deepEqual(
      summary.notRun.map(({ line }: { line: number }) => line),
      [1, 5, 6, 7],
    );
    writeFileSync(file, 'Backend 1/2: CUDA0\n');
    const none = await ropewalk('check', '--case', file);
    assert.equal(none.status, 2);
    assert.match(none.stderr, /--case: no line is a case that can be run\. Line 1: no case: "Backend 1\/2: CUDA0"\./);
  });

  test('a line a suite: passed cases only with --verbose, failed ones always', async () => {
    const args = ['check', '--backend', 'reference', '--filter', '^onnx$'];
    const { stdout } = await ropewalk(...args);
    const summary = /\nSummary\n {2}reference\/onnx {2,}14 OK\n {2}14\/14 cases passed, 0 failed\n$/;
    assert.match(stdout, summary);
    assert.doesNotMatch(stdout, /: OK/);
    const verbose = (await ropewalk(...args, '--verbose')).stdout;
    assert.match(verbose, summary);
    assert.equal(verbose.match(/: OK$/gm)?.length, 14);

    const wrong = join(folder, 'deep/wrong');
    cpSync(join(root, 'vectors/onnx'), wrong, { recursive: true });
    const y = join(wrong, 'test_rotary_embedding/y.npy');
    writeFileSync(y, readFileSync(y).fill(1, 128));
    const failed = await ropewalk('check', '--backend', 'reference', '--vectors', wrong);
    assert.equal(failed.status, 1);
    assert.match(
      failed.stdout,
      /^Backend reference: .*\n {2}RotaryEmbedding\(.+ FAIL\n\nSummary\n {2}reference\/\S+ +13 OK, 1 FAIL\n/,
    );
  });

  test('without a GPU, stderr has our line and none of Dawn', () => {
    const { status, stderr } = spawnSync(process.execPath, [commandPath(), 'check', '--filter', '^onnx$'], {
      cwd: root,
      encoding: 'utf8',
      env: { ...process.env, VK_ICD_FILENAMES: 'none' },
    });
    assert.equal(status, 0);
    assert.match(stderr, /^Backend webgpu: skipped, .+\n$/);
  });

  test('a failing case: exit 1 and how to rerun it', async () => {
    const { status, stdout } = await ropewalk(
      'check',
      '--case',
      'ROPE(type=f32,ne_a=[8,1,1,1],n_dims=7,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)',
    );
    assert.equal(status, 1);
    assert.match(stdout, /Failed; rerun one with: ropewalk check --case "LINE"/);
  });

  const refusals: [string, string[], RegExp][] = [
    ['an unknown flag', ['check', '--frobnicate'], /^ropewalk: check: unknown option '--frobnicate'/],
    ['an unknown command', ['chekc'], /^ropewalk: unknown command 'chekc'/],
    [
      'an unknown backend',
      ['check', '--backend', 'tpu'],
      /^ropewalk: check: --backend: expected auto or one of cpu, webgpu, reference, onnxruntime, ascend-model, cann-2024, infiniop-ascend-2025, got "tpu"/,
    ],
    ['a misspelt value', ['vectors', 'x', '--dialect', 'ggm'], /--dialect: .*, got "ggm"\. Did you mean ggml\?$/m],
    ['a misspelt device', ['export', 'models/marline', '--for', 'ort-qn'], /"ort-qn"\. Did you mean ort-qnn\?$/m],
    ['a misspelt peer', ['convert', 'models/marline', '--to', 'vlm'], /"vlm"\. Did you mean vllm\?$/m],
    ['a bad pattern', ['check', '--filter', '('], /--filter: expected a regular expression, got "\("/],
    [
      'a pattern that matches nothing',
      ['check', '--filter', 'zzz'],
      /--filter: expected a pattern that matches one of \d+ cases/,
    ],
    [
      'an unknown command, asked for its help',
      ['help', 'chekc'],
      /^ropewalk: unknown command 'chekc'\n\(Did you mean check\?\)\n/,
    ],
    ['help for an unknown command', ['foo', '--help'], /^ropewalk: unknown command 'foo'\nRun ropewalk --help/],
    [
      'a line that is none',
      ['check', '--case', 'hello'],
      /^ropewalk: check: --case: there is no case "hello"\. Give a line that ropewalk check --verbose prints, or any ROPE\(…\) line\.\n$/,
    ],
    [
      'a piece of lines',
      ['check', '--case', 'onnx-contrib'],
      /--case: there is no case "onnx-contrib"\. 29 have that in their line: ropewalk check --filter "onnx-contrib"\.\n$/,
    ],
    [
      'a misspelt line',
      ['check', '--case', 'AD(vector=llaisys/add/t0_2x3/f16,type=f16,a=[2,3],b=[2,4])'],
      /\. Did you mean ADD\(vector=llaisys\/add\/t0_2x3\/f16,type=f16,a=\[2,3\],b=\[2,3\]\)\?\n$/,
    ],
    [
      'a line that no suite has',
      ['check', '--case', 'ADD(vector=x/y)'],
      /--case: there is no case "ADD\(vector=x\/y\)"\. Give a line/,
    ],
    [
      'a folder that is not there',
      ['check', '--vectors', join(folder, 'nowhere')],
      /check: .*nowhere: there is no such folder/,
    ],
    [
      'a folder without a manifest',
      ['check', '--vectors', folder],
      /it has no manifest\.json, and no folder directly in it has one/,
    ],
    [
      'a cache that is not there',
      ['cache', '--cache', join(folder, 'no-cache')],
      /^ropewalk: cache: --cache: there is no folder .*no-cache\.\n$/,
    ],
    ['inspect without a file', ['inspect'], /^ropewalk: inspect: missing required argument 'model'/],
    [
      'inspect of a missing file',
      ['inspect', join(folder, 'none.json')],
      /^ropewalk: inspect: .*none\.json: there is no such file or folder/,
    ],
    [
      'inspect of a missing gguf',
      ['inspect', join(folder, 'none.gguf')],
      /none\.gguf: there is no such file or folder/,
    ],
    [
      'inspect of another kind',
      ['inspect', file('model.bin', 'x')],
      /model\.bin: expected a config\.json, a \.gguf, a folder with one, got "model\.bin"/,
    ],
    ['inspect of no JSON', ['inspect', file('bad.json', '{"a": ')], /bad\.json: expected JSON/],
    [
      'inspect of no GGUF',
      ['inspect', file('bad.gguf', 'GGU')],
      /bad\.gguf: the header takes at least 4 bytes, but there are only 3\. The file is truncated or forged\./,
    ],
    [
      'inspect of an unknown scaling',
      [
        'inspect',
        file('odd.json', '{"model_type":"llama","num_hidden_layers":1,"head_dim":64,"rope_scaling":{"type":"odd"}}'),
      ],
      /odd\.json: rope_scaling\.rope_type: expected default, linear/,
    ],
    [
      'a context that is none',
      ['inspect', file('ok.json', '{}'), '--context', 'long'],
      /inspect: --context: expected an integer in \[1, 2147483647\], got "long"/,
    ],
  ];
  for (const [name, args, message] of refusals) {
    test(`exit 2: ${name}`, async () => {
      const { status, stderr } = await ropewalk(...args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
      assert.doesNotMatch(stderr, /^\s+at /m, 'no stack trace');
    });
  }
});

test('a closed pipe ends quietly', () => {
  const { status, stderr } = spawnSync(
    'bash',
    [
      '-c',
      `set -o pipefail; "${process.execPath}" "${commandPath()}" check --backend reference --filter '^published$' | head -1 >/dev/null; exit "\${PIPESTATUS[0]}"`,
    ],
    { cwd: root, encoding: 'utf8' },
  );
  assert.deepEqual([status, stderr], [0, '']);
});

describe('inspect', () => {
  test('layers by kind, a plot, notes; and JSON that another program can use', async () => {
    const path = file(
      'gemma.json',
      JSON.stringify({
        model_type: 'gemma3_text',
        num_hidden_layers: 7,
        head_dim: 256,
        max_position_embeddings: 131072,
        rope_theta: 1e6,
        rope_local_base_freq: 1e4,
        rope_scaling: { rope_type: 'linear', factor: 8 },
      }),
    );
    const { status, stdout } = await ropewalk('inspect', path);
    assert.equal(status, 0);
    assert.match(stdout, /gemma3_text, 7 layers, context 131072 \(huggingface\)/);
    assert.match(stdout, /^layers 0-4, 6 \(sliding_attention, window 4096\)$/m);
    assert.match(
      stdout,
      /^layer 5 \(full_attention\)\n {2}base {12}1000000\n {2}head_dim {8}256\n {2}rotary_dim {6}256\n {2}pairing {9}half\n {2}scaling {9}linear factor=8$/m,
    );
    assert.match(stdout, /log10 frequency, radians a position/);
    const json = JSON.parse((await ropewalk('inspect', path, '--json')).stdout);
    assert.deepEqual(
      [json.layers.length, json.layers[5].rope.base, json.layers[5].invFreq[0], json.layers[0].invFreq[0]],
      [7, 1e6, 1 / 8, 1],
    );
  });

  test('a real GGUF', async () => {
    assert.match(
      (await ropewalk('inspect', `${STORIES}/model-q8_0.gguf`)).stdout,
      /llama, 5 layers, context 512 \(gguf\)\n\nlayers 0-4\n {2}base {12}10000\n {2}head_dim {8}8\n {2}rotary_dim {6}8\n {2}pairing {9}interleaved/,
    );
  });
});

test('help, with and without a command', async () => {
  const of = async (...args: string[]) => {
    const { status, stdout } = await ropewalk(...args);
    assert.equal(status, 0);
    return stdout;
  };
  assert.equal(await of('help', 'check'), await of('check', '--help'));
  assert.equal(await of('help', 'help'), await of('--help'));
  assert.equal(await of('help'), await of('--help'));
});

describe('as a program', () => {
  /** Commands that other tests start so, for their streams, signals, environment or threads. */
  const elsewhere =
    'aicore bench check compare-logits diagnose embed generate logits perplexity permute probe trace vectors verify'.split(
      ' ',
    );
  writeFileSync(join(folder, 'log.jsonl'), '{"request":1,"step":0,"positions":[0]}\n');
  const starts: [command: string, args: string[], firstLine: RegExp][] = [
    ['inspect', ['models/marline'], /^models\/marline/],
    ['convert', ['models/marline', '--to', 'ggml'], /→ ggml: ggml_rope_ext$/],
    ['export', ['models/marline', '-o', join(folder, 'rope.onnx')], /^RoPE of models\/marline/],
    ['diff', ['models/marline', 'models/marline'], /^A {2}models\/marline: llama/],
    ['positions', [join(folder, 'log.jsonl')], /^every position is as it must be$/],
    ['passport', ['models/marline'], /^models\/marline: llama/],
    ['to-gguf', ['models/marline', '-o', join(folder, 'm.gguf')], /^llama, 4 layers: 3\.54 MB in 29 of F16, /],
    ['to-safetensors', [join(folder, 'm.gguf'), '-o', join(folder, 'm')], /^llama, 4 layers: 3\.54 MB in 29 of F16, /],
    ['harness', ['c'], /^\/\/ RoPE in C99/],
    ['devices', [], /^cann-2024 /],
    ['cache', ['--cache', folder], /: 0 models, /],
    ['completion', ['bash'], /^# In ~\/\.bashrc: eval/],
    ['mutants', ['--list'], /^A {2}pairing/],
  ];
  for (const [command, args, firstLine] of starts)
    test(`${command} starts, prints and ends with 0`, () => {
      const { status, stdout, stderr } = ropewalkProcess(root, command, ...args);
      assert.deepEqual([status, stderr], [0, '']);
      assert.match(stdout.split('\n')[0]!, firstLine);
    });

  test('every command is started by a test', () => {
    const names = createProgram().commands.map((command) => command.name());
    assert.deepEqual([...elsewhere, ...starts.map(([command]) => command)].sort(), names.sort());
  });
});

test('a peak of memory above 1 GB is said, on stderr', () => {
  for (const [kilobytes, said] of [
    [1_500_000, 'peak memory 1.5 GB\n'],
    [970_000, ''],
  ] as const) {
    const peak = `data:text/javascript,process.resourceUsage=()=>({maxRSS:${kilobytes}})`;
    const { status, stderr } = spawnSync(process.execPath, ['--import', peak, commandPath(), '--version'], {
      encoding: 'utf8',
    });
    assert.deepEqual([status, stderr], [0, said]);
  }
});

test('--version is the package’s', async () => {
  assert.equal(VERSION, JSON.parse(readFileSync(join(root, 'packages/cli/package.json'), 'utf8')).version);
  assert.equal((await ropewalk('--version')).stdout.trim(), VERSION);
});
