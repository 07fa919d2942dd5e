/** `ropewalk vectors` as a command: what it writes, what it refuses, and that nothing is left half-written. */

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { GOLDEN_ROPE } from '@ropewalk/oracle/internal';
import { readGoldenFolder } from '@ropewalk/oracle/internal/node';
import { commandPath, ropewalkIn } from '../../../test/support/command.js';
import { until } from '../../../test/support/until.js';
import { vectors } from '../src/vectors.js';

const folder = mkdtempSync(join(tmpdir(), 'vectors-'));
after(() => rmSync(folder, { recursive: true }));
const at = (name: string): string => join(folder, name);
const run = (...args: string[]) => ropewalkIn(folder, ...args);

/** Every file of a folder by its path. */
function filesOf(dir: string): Map<string, Buffer> {
  const paths = readdirSync(dir, { recursive: true, encoding: 'utf8', withFileTypes: true }).filter((entry) =>
    entry.isFile(),
  );
  return new Map(
    paths.map((entry) => [
      join(entry.parentPath, entry.name).slice(dir.length + 1),
      readFileSync(join(entry.parentPath, entry.name)),
    ]),
  );
}

const CONFIG = at('config.json');
writeFileSync(
  CONFIG,
  JSON.stringify({
    model_type: 'gemma3_text',
    hidden_size: 256,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 64,
    num_hidden_layers: 8,
    sliding_window_pattern: 6,
    rope_theta: 1000000,
    rope_local_base_freq: 10000,
    max_position_embeddings: 32768,
  }),
);

describe('what it writes', () => {
  test('every form, twice the same to the byte, and check runs them', async () => {
    const count = GOLDEN_ROPE.length + 4;
    const formats = 'npy,npz,safetensors,onnx,bin,c';
    const first = await run('vectors', 'a', '--format', formats, '--op', 'rope', '--op', 'argmax');
    assert.equal(first.status, 0, first.stderr);
    assert.match(
      first.stdout,
      new RegExp(
        `^a: ${count} cases \\(rope ${GOLDEN_ROPE.length}, argmax 4\\), seed 1, as npy, npz, safetensors, onnx, bin, c\\n {2}not as onnx: llama-2-f64: `,
      ),
    );
    // OUT may be anywhere, and a list may be given in parts.
    const second = await run(
      'vectors',
      '--format',
      'npy,npz',
      '--format',
      'safetensors,onnx,bin,c',
      '--op',
      'rope,argmax',
      'b/c',
      '--seed',
      '1',
    );
    assert.equal(second.status, 0, second.stderr);
    const [one, two] = [filesOf(at('a')), filesOf(at('b/c'))];
    assert.deepEqual([...one.keys()].toSorted(), [...two.keys()].toSorted());
    for (const [path, bytes] of one) assert.ok(bytes.equals(two.get(path)!), path);
    for (const path of [
      'manifest.json',
      'gpt-j/x.npy',
      'gpt-j.npz',
      'gpt-j.safetensors',
      'gpt-j/model.onnx',
      'gpt-j/test_data_set_0/output_0.pb',
      'gpt-j/y.bin',
      'gpt-j/y.json',
      'gpt-j.h',
      'assert_rope.py',
    ])
      assert.ok(one.has(path), path);

    const checked = await run('check', '--vectors', 'a', '--backend', 'cpu');
    assert.equal(checked.status, 0, checked.stdout + checked.stderr);
    assert.match(
      checked.stdout,
      new RegExp(`cpu/golden +${count} OK\\n {2}${count}/${count} cases passed, 0 failed\\n$`),
    );
  });

  test('a sidecar describes its .bin completely', () => {
    const sidecar = JSON.parse(readFileSync(at('a/gpt-j/y.json'), 'utf8'));
    const { tolerance, ...rest } = sidecar;
    assert.deepEqual(rest, {
      case: 'gpt-j',
      tensor: 'y',
      role: 'output',
      dtype: 'f32',
      shape: [2, 6, 2, 256],
      byte_order: 'little',
      sha256: rest.sha256,
      seed: 1,
      generator: 'ropewalk 0.1.0',
    });
    assert.match(tolerance.from, /Error analysis/);
    const sum = spawnSync('sha256sum', [at('a/gpt-j/y.bin')], { encoding: 'utf8' });
    if (!sum.error) assert.equal(sum.stdout.slice(0, 64), rest.sha256);
    assert.equal(readFileSync(at('a/gpt-j/y.bin')).length, 2 * 6 * 2 * 256 * 4);
  });

  test('a model: a case for each of its RoPEs, or one layer', async () => {
    assert.equal(
      (await run('vectors', 'model', '--model', CONFIG, '--dtype', 'f32,bf16', '--heads', '3', '--tokens', '4')).status,
      0,
    );
    const { cases } = await readGoldenFolder(at('model'));
    assert.deepEqual(
      cases.map(({ id }) => id),
      ['gemma3_text-layer-0', 'gemma3_text-layer-0-bf16', 'gemma3_text-layer-5', 'gemma3_text-layer-5-bf16'],
    );
    assert.deepEqual(
      cases.map(({ rope }) => rope!.spec.base),
      [10000, 10000, 1000000, 1000000],
    );
    assert.deepEqual([cases[1]!.inputs.get('x')!.dtype, cases[1]!.inputs.get('x')!.shape], ['bf16', [2, 4, 3, 64]]);
    assert.equal((await run('vectors', 'layer', '--model', CONFIG, '--layer', '5', '--json')).status, 0);
    assert.deepEqual(
      (await readGoldenFolder(at('layer'))).cases.map(({ id }) => id),
      ['gemma3_text-layer-5'],
    );
  });

  test('a ROPE(…) line, a record, a dialect', async () => {
    const line =
      'ROPE(type=f16,ne_a=[64,4,6,1],n_dims=64,mode=2,n_ctx=512,fs=0.25,ef=1,af=1,ff=0,v=0,n_ctx_orig=4096,bf=32,fwd=0)';
    assert.equal((await run('vectors', 'line', '--rope', line)).status, 0);
    const [c] = (await readGoldenFolder(at('line'))).cases;
    assert.deepEqual(
      [c!.rope!.direction, c!.rope!.spec.pairing, c!.rope!.spec.scaling?.kind, c!.inputs.get('x')!.dtype],
      ['backward', 'half', 'yarn', 'f16'],
    );
    writeFileSync(at('spec.json'), JSON.stringify({ headDim: 8, pairing: 'interleaved', base: 100 }));
    assert.equal(
      (await run('vectors', 'spec', '--spec', 'spec.json', '--positions', '0,-3,7', '--seed', '9')).status,
      0,
    );
    const { folder: opened, cases } = await readGoldenFolder(at('spec'));
    assert.deepEqual(
      [opened.seed, [...(cases[0]!.inputs.get('positions')!.readNumbers() as Float64Array)]],
      [9, [0, -3, 7]],
    );
    const dialect = await run('vectors', 'ggml', '--dialect', 'ggml');
    assert.match(dialect.stdout, /^ggml: \d+ cases \(rope \d+\), seed 1, as npy\n/);
    assert.match(dialect.stdout, /\n {2}left out: gpt-oss: ggml rounds YaRN's edges to whole pairs\n/);
  });
});

describe('what it refuses', () => {
  writeFileSync(at('file'), 'x');
  writeFileSync(at('bad.json'), '{');
  writeFileSync(at('empty.json'), '');
  const cases: [string, string, Parameters<typeof vectors>[1], RegExp][] = [
    [
      'a form that is none',
      'n',
      { format: ['npx'] },
      /^--format: expected npy, bin, safetensors, npz, onnx or c, got "npx"$/,
    ],
    ['an empty form', 'n', { format: [''] }, /--format: expected npy, .*, got ""/],
    ['an operator that is none', 'n', { op: ['sin'] }, /--op: expected all, rope, add, .* got "sin"/],
    ['a dtype that is none', 'n', { dtype: ['f8'] }, /--dtype: expected f32, f16, bf16 or f64, got "f8"/],
    ['a dialect that is none', 'n', { dialect: 'torch' }, /--dialect: expected ggml, onnx, .* got "torch"/],
    ['a precision that is none', 'n', { table: 'f16' }, /--table: expected float64, f32 or f32-recurrence, got "f16"/],
    ['two choices', 'n', { model: CONFIG, dialect: 'ggml' }, /--dialect: it does not go with --model/],
    ['a layer of no model', 'n', { layer: '1' }, /--layer: it needs --model FILE/],
    [
      'a layer that is not there',
      'n',
      { model: CONFIG, layer: '8' },
      /--layer: expected an integer in \[0, 7\], got "8"/,
    ],
    ['a seed that is none', 'n', { seed: '-1' }, /--seed: expected an integer in \[0, 4294967295\], got "-1"/],
    ['no tokens', 'n', { tokens: '0' }, /--tokens: expected an integer in \[1, 4096\], got "0"/],
    ['heads without end', 'n', { heads: '1e9' }, /--heads: expected an integer in \[1, 1024\], got "1e9"/],
    ['positions that are none', 'n', { positions: '1,,2' }, /--positions: expected an integer in .*, got ""/],
    ['positions and tokens', 'n', { positions: '1', tokens: '2' }, /--tokens: it does not go with --positions/],
    ['other operators beside a model', 'n', { model: CONFIG, op: ['add'] }, /--op: --model makes cases of RoPE only/],
    ['a model that is cut', 'n', { model: at('bad.json') }, /expected JSON/],
    ['an empty file', 'n', { model: at('empty.json') }, /expected JSON/],
    ['a model that is not there', 'n', { model: at('gone.json') }, /gone\.json: there is no such file or folder/],
    ['a line that is none', 'n', { rope: 'ROPE(type=f32)' }, /ROPE\(…\): .*expected/],
    [
      'a file for --rope',
      'n',
      { rope: CONFIG },
      /--rope: expected a ROPE\(…\) line, got .* Give a file to --spec or --model\./,
    ],
    [
      'a spec that makes no sense',
      'n',
      { spec: at('odd.json') },
      /rope: rotary_dim: expected an even integer in \[2, head_dim=8\], got 3/,
    ],
    [
      'a spec with a misspelt field',
      'n',
      { spec: at('misspelt.json') },
      /misspelt\.json: rotary_dim: expected one of headDim, .*, got "rotary_dim"/,
    ],
    ['OUT is a file', 'file', {}, /this is a file\. Give a folder that is new, or empty/],
    [
      'OUT holds something',
      'full',
      {},
      /the folder has files in it\. Give a folder that is new or empty, or --force to replace it\./,
    ],
    [
      "OUT holds somebody's files, in spite of --force",
      'full',
      { force: true },
      /ropewalk vectors did not write this folder, so it is not replaced/,
    ],
    [
      'a form that expresses nothing',
      'n',
      { format: ['onnx'], spec: at('f64.json'), dtype: ['f64'] },
      /format: onnx cannot express any of the cases: RotaryEmbedding takes no float64/,
    ],
  ];
  writeFileSync(at('odd.json'), JSON.stringify({ headDim: 8, rotaryDim: 3, pairing: 'half', base: 100 }));
  writeFileSync(at('misspelt.json'), JSON.stringify({ headDim: 8, rotary_dim: 4, pairing: 'half', base: 100 }));
  writeFileSync(at('f64.json'), JSON.stringify({ headDim: 8, pairing: 'half', base: 100 }));
  mkdirSync(at('full'));
  writeFileSync(at('full/precious'), 'x');
  for (const [name, out, options, message] of cases) {
    test(name, async () => {
      await assert.rejects(vectors(at(out), options), { name: 'RopewalkError', message });
      assert.ok(!existsSync(at('n')), 'nothing is written');
    });
  }

  test('by the command: code 2, one line, nothing written', async () => {
    const ran = await run('vectors', 'n', '--format', 'docx');
    assert.deepEqual(
      [ran.status, ran.stdout, ran.stderr],
      [2, '', 'ropewalk: vectors: --format: expected npy, bin, safetensors, npz, onnx or c, got "docx"\n'],
    );
    assert.deepEqual(
      readdirSync(folder).filter((name) => /^n|tmp|old/.test(name)),
      [],
    );
    assert.equal(readFileSync(at('full/precious'), 'utf8'), 'x');
  });
});

describe('replacing and interrupting', () => {
  test('--force replaces a folder that it wrote; an empty folder is filled', async () => {
    mkdirSync(at('own'));
    assert.equal((await run('vectors', 'own', '--op', 'add')).status, 0);
    assert.deepEqual(
      [...filesOf(at('own')).keys()].filter((path) => path.endsWith('.py')),
      [],
    );
    assert.equal((await run('vectors', 'own', '--op', 'swiglu')).status, 2);
    assert.equal((await run('vectors', 'own/', '--op', 'swiglu', '--force')).status, 0);
    assert.deepEqual(new Set((await readGoldenFolder(at('own'))).cases.map(({ op }) => op)), new Set(['swiglu']));
  });

  test('a replacement that fails leaves the old folder', async () => {
    await assert.rejects(vectors(at('own'), { force: true, spec: at('odd.json') }), { code: 'RANGE' });
    assert.deepEqual(new Set((await readGoldenFolder(at('own'))).cases.map(({ op }) => op)), new Set(['swiglu']));
    assert.deepEqual(
      readdirSync(folder).filter((name) => /\.(tmp|old)$/.test(name)),
      [],
    );
  });

  test('a signal: nothing is left, and the process ends by it', async () => {
    const child = spawn(
      process.execPath,
      [
        commandPath(),
        'vectors',
        'stopped',
        '--op',
        'rope',
        '--tokens',
        '400',
        '--dtype',
        'f32,f16',
        '--format',
        'c,npz',
      ],
      {
        cwd: folder,
      },
    );
    const ended = new Promise<NodeJS.Signals | null>((resolve) => child.on('exit', (_, signal) => resolve(signal)));
    const writes = (): boolean => readdirSync(folder).some((name) => name.startsWith('.stopped'));
    await until(() => child.exitCode !== null || writes(), 'it has begun to write');
    child.kill('SIGTERM');
    assert.equal(await ended, 'SIGTERM');
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.includes('stopped')),
      [],
    );
  });
});
