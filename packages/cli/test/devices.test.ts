import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DEVICES } from '@ropewalk/devices';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';

describe('devices', () => {
  test('the list has a line for each profile', async () => {
    const { status, stdout } = await ropewalkIn(ROOT, 'devices');
    assert.equal(status, 0);
    assert.deepEqual(
      stdout
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[0]),
      DEVICES.map(({ name }) => name),
    );
  });

  test('--json has the rules of the profile', async () => {
    const { status, stdout } = await ropewalkIn(ROOT, 'devices', 'cann-2024', '--json');
    assert.equal(status, 0);
    const { name, operators } = JSON.parse(stdout);
    assert.equal(name, 'cann-2024');
    assert.ok(
      operators[0].rules.some(({ otherwise }: { otherwise?: string }) => otherwise?.startsWith('the whole row')),
    );
  });

  test('--cases published: the verdicts and NMSE of the run, and how many factors were searched', async () => {
    const { status, stdout } = await ropewalkIn(ROOT, 'devices', 'cann-2024', '--cases', 'published', '--json');
    assert.equal(status, 0);
    const { summary } = JSON.parse(stdout.trim().split('\n').at(-1)!);
    assert.deepEqual([summary.ok, summary.fail, summary.sameVerdict, summary.printed], [60, 36, 96, 96]);
    assert.deepEqual([summary.nmseWithinTwo, summary.nmseCompared, summary.factorsSearched], [36, 36, 8]);
  });

  test('--model: a config with two kinds of layers, layer by layer; exit 1 where a named device does not run one', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'devices-'));
    const config = {
      model_type: 'gemma3_text',
      hidden_size: 1152,
      num_hidden_layers: 6,
      num_attention_heads: 4,
      num_key_value_heads: 1,
      head_dim: 256,
      max_position_embeddings: 32768,
      rope_theta: 1000000,
      rope_local_base_freq: 10000,
      sliding_window_pattern: 6,
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const of = (...args: string[]) => ropewalkIn(folder, 'devices', ...args, '--model', 'config.json');
    const a2 = await of('aclnn-a2');
    assert.equal(a2.status, 0, a2.stderr);
    assert.match(a2.stdout, /^config\.json: batch 1, 512 tokens a call, positions below 32768$/m);
    assert.match(
      a2.stdout,
      /^layers 0-4 \(sliding_attention\)\n {2}f16 data: runs: aclnnRotaryPositionEmbedding, 2 calls a layer$/m,
    );
    assert.match(a2.stdout, /^layer 5 \(full_attention\)$/m);
    const small = await of('aclnn-310p'); // its heads are at most 128 wide
    assert.equal(small.status, 1);
    assert.match(
      small.stdout,
      /does not run in any form\. .*\n(?:.*\n)* {4}aclnnRotaryPositionEmbedding: D is at most 128/,
    );
    const all = JSON.parse((await of('--json')).stdout);
    assert.deepEqual(
      all.layers.map(({ layers, verdicts }: { layers: number[]; verdicts: unknown[] }) => [
        layers.length,
        verdicts.length,
      ]),
      [
        [5, DEVICES.length],
        [1, DEVICES.length],
      ],
    );
    rmSync(folder, { recursive: true });
  });

  test('--model takes a ROPE line; its options without it are refused', async () => {
    const line =
      'ROPE(type=f16,ne_a=[80,32,2,1],n_dims=20,mode=2,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0)';
    const { status, stdout, stderr } = await ropewalkIn(ROOT, 'devices', 'aclnn-950', '--model', line);
    assert.equal(status, 0, stderr);
    assert.match(stdout, /Dimensions 0 to 19 of 80 are copied out, rotated and copied back\./);
    const alone = await ropewalkIn(ROOT, 'devices', '--batch', '2');
    assert.equal(alone.status, 2);
    assert.match(alone.stderr, /--batch: it needs --model\./);
  });

  test('--model: a vision tower has a line for each device, with what is needed and what is there', async () => {
    const line =
      'ROPE(type=f16,ne_a=[80,16,2,1],n_dims=40,mode=24,n_ctx=512,fs=1,ef=0,af=1,ff=0,sections=[20,20,0,0],v=0)';
    const { status, stdout, stderr } = await ropewalkIn(ROOT, 'devices', '--model', line);
    assert.equal(status, 0, stderr);
    for (const { name } of DEVICES) assert.match(stdout, new RegExp(`^  ${name} +f16 +(runs|no)`, 'm'));
    assert.match(stdout, /^ {2}ggml-cann +f16 +runs +1 call/m);
    assert.match(stdout, /^ {2}ggml-cann-2024 .*; x is F32 \(here dtype f16\)$/m);
  });

  test('--model: layers that differ in their window only are one group; batches may have positions of their own', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'devices-'));
    const config = {
      model_type: 'phi',
      hidden_size: 2560,
      num_hidden_layers: 2,
      num_attention_heads: 32,
      partial_rotary_factor: 0.4,
      layer_types: ['sliding_attention', 'full_attention'],
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const of = (...args: string[]) => ropewalkIn(folder, 'devices', ...args, '--model', 'config.json');
    const ggml = (await of('cann-2024')).stdout;
    assert.match(ggml, /^layers 0-1/m);
    assert.match(
      ggml,
      /^ {2}wrong as it is called: The whole row rotates; .* Right with these steps:\n {2}f32 data: runs: /m,
    );
    const own = await of('infiniop-ascend', '--batch', '2', '--batch-positions');
    assert.equal(own.status, 1);
    assert.match(own.stdout, /lost: Every batch is rotated by batch 0's positions\./);
    const uneven = await of('--heads', '7', '--kv-heads', '3');
    assert.equal(uneven.status, 2);
    assert.match(uneven.stderr, /--kv-heads: expected a divisor of heads=7, got 3/);
    rmSync(folder, { recursive: true });
  });

  test('check refuses a profile of rules only, and names the command for it', async () => {
    const { status, stderr } = await ropewalkIn(ROOT, 'check', '--backend', 'aclnn-a2');
    assert.equal(status, 2);
    assert.match(stderr, /--backend: aclnn-a2 has rules only.* ropewalk devices aclnn-a2\./);
  });

  test('another name is refused', async () => {
    const { status, stderr } = await ropewalkIn(ROOT, 'devices', 'cann');
    assert.equal(status, 2);
    assert.match(stderr, /device: expected .*cann-2024.*, got "?cann"?/);
  });
});
