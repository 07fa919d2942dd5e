import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DEVICES } from '@ropewalk/devices';
import { parseNpy } from '@ropewalk/formats';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { FIXTURES } from '../../../test/support/fixtures.js';

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

  test('--cases: a published line has its positions wherever it is given', async () => {
    const printed = readFileSync(`${FIXTURES}/cann-2024-run.txt`, 'utf8')
      .split('\n')
      .filter((line) => /0\.793302996|0\.368277397/.test(line));
    assert.equal(printed.length, 2);
    const suite = (await ropewalkIn(ROOT, 'devices', 'cann-2024', '--cases', 'published')).stdout.split('\n');
    const pasted = (await ropewalkIn(ROOT, 'devices', 'cann-2024', '--cases', printed.join('\n'))).stdout.split('\n');
    for (const line of printed) {
      const same = suite.find((one) => one.startsWith(line.split(': ')[0]!))!;
      assert.match(same, /NMSE = 0\.\d+ .*printed: 0\./);
      assert.ok(pasted.includes(same), same);
      const [nmse] = /NMSE = [0-9.]+/.exec(same)!;
      const checked = (await ropewalkIn(ROOT, 'check', '-b', 'cann-2024', '--case', line)).stdout;
      assert.ok(checked.includes(nmse), checked);
      const written = line
        .trim()
        .split(': ')[0]!
        .replace(/(\.\d+?)0+(?=,)/g, '$1')
        .replace(')', ',inplace=0)');
      assert.notEqual(written, line.trim().split(': ')[0]);
      assert.ok((await ropewalkIn(ROOT, 'devices', 'cann-2024', '--cases', written)).stdout.includes(same), written);
    }
  });

  test('--log: the published run, with the profile that computes and with one of rules: every NMSE has its cause', async () => {
    const log = `${FIXTURES}/cann-2024-run.txt`;
    for (const [profile, status, expected] of [
      ['cann-2024', 0, 96],
      ['ggml-cann', 1, 60],
    ] as const) {
      const ran = await ropewalkIn(ROOT, 'devices', profile, '--log', log, '--json');
      assert.equal(ran.status, status, ran.stderr);
      const { summary, lines } = JSON.parse(ran.stdout);
      assert.deepEqual([summary.lines, summary.fail, summary.asExpected, summary.explained], [96, 36, expected, 36]);
      const counts = new Map<string, number>();
      for (const { verdict, causes } of lines)
        if (verdict === 'fail') counts.set(causes[0].cause, (counts.get(causes[0].cause) ?? 0) + 1);
      assert.deepEqual(Object.fromEntries(counts), {
        'whole row rotated': 8,
        'tables rounded twice': 12,
        'ramp ignored': 16,
      });
    }
  });

  test("--log: another backend's log: what it ignores is named, OK lines rule causes out, nothing is left out in silence", async () => {
    const folder = mkdtempSync(join(tmpdir(), 'devices-'));
    const at = (af: number, type = 'f32'): string =>
      `ROPE(type=${type},ne_a=[64,2,2,1],n_dims=64,mode=2,n_ctx=512,fs=1.000000,ef=0.000000,af=${af},ff=0,v=0,inplace=0,n_offs=0)`;
    const log = [
      'Backend 1/2: Vulkan0',
      '  Device description: some GPU',
      `  ${at(1)}: OK`,
      // Σ(1/1.5 − 1)² / Σ1², as of every backend that ignores attn_factor.
      `  ${at(1.5)}: [ROPE] ERR = 0.111111111 > 0.000000100 FAIL`,
      `  ${at(2)}: [ROPE] ERR = 0.250000000 > 0.000000100 FAIL`,
      `  ${at(3)}: [ROPE] NaN at index 0 (Vulkan0=nan CPU=1.0) FAIL`,
      `  ${at(1.25)}: [ROPE] ERR = 0.000400000 > 0.000000100 FAIL`,
      `  ${at(1, 'f16')}: not supported [Vulkan0]`,
      '  ROPE_BACK(type=f32,ne_a=[64,2,2,1],n_dims=64,mode=2): OK',
      '  ROPE(type=q8,ne_a=[64,2,2,1],n_dims=64,mode=2): OK',
      '  ADD(type=f32,ne=[1,1,8,1],nr=[1,1,1,1]): OK',
    ].join('\n');
    writeFileSync(join(folder, 'gpu.log'), log);
    const { status, stdout } = await ropewalkIn(folder, 'devices', 'ggml-cann', '--log', 'gpu.log');
    assert.equal(status, 1);
    assert.match(stdout, /line 3: ROPE\(.*\): OK {2}as expected$/m);
    assert.match(
      stdout,
      /line 4: .*: FAIL NMSE 0\.111111111 {2}NOT AS EXPECTED: the profile says OK \(ROPE\); explained: attn_factor is ignored gives 1\.1e-1$/m,
    );
    assert.match(stdout, /line 6: .*; it wrote NaN: \[ROPE\] NaN at index 0/m);
    assert.match(stdout, /line 7: .*; NOT EXPLAINED: write x and y to files, and run ropewalk diagnose$/m);
    assert.match(stdout, /line 8: .*: not supported {2}NOT AS EXPECTED: the profile says OK/m);
    assert.match(stdout, /line 9: .*: OK {2}no expectation: no rule of the profile is about ROPE_BACK$/m);
    assert.match(stdout, /line 10: not read: ROPE\(type=q8/m);
    assert.match(
      stdout,
      /^Vulkan0 \(some GPU\): 7 lines of RoPE\n {2}2 OK, 4 FAIL, 1 not supported; as ggml-cann expects: 1 of 7\n {2}NMSE or words explained on 3 of 4 FAIL$/m,
    );
    assert.match(
      stdout,
      /^ {2}attn_factor is ignored: 2 lines \(4, 5\)\n {4}change: Multiply cos and sin by attn_factor\.$/m,
    );
    assert.match(stdout, /^ {2}not judged: 1 × ADD OK$/m);
    assert.match(stdout, /^ {2}2 lines without a case$/m);
    const none = await ropewalkIn(folder, 'devices', 'ggml-cann', '--log', 'hello');
    assert.match(none.stderr, /--log: there is no file "hello"/);
    writeFileSync(join(folder, 'empty.log'), 'ADD(type=f32): OK');
    const empty = await ropewalkIn(folder, 'devices', 'ggml-cann', '--log', 'empty.log');
    assert.match(
      empty.stderr,
      /--log: no line has a ROPE\(…\) case with OK, FAIL or not supported\. Make one: test-backend-ops/,
    );
    rmSync(folder, { recursive: true });
  });

  test('--steps: calls, bytes and values of each step, and every buffer as a file', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'devices-'));
    const line =
      'ROPE(type=f16,ne_a=[80,32,2,1],n_dims=32,mode=2,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0)';
    const { status, stdout, stderr } = await ropewalkIn(folder, 'devices', 'cann-2024', '--steps', line, '-o', 'out');
    assert.equal(status, 0, stderr);
    // The line is of the published run, whose positions it has.
    assert.match(stdout, /^ {2}positions 14, 386$/m);
    assert.match(stdout, /^ {2}3 +power, in place +1 +160 bytes +160 bytes +0 bytes +powers 1 0\.562341 0\.316228$/m);
    assert.match(stdout, /^ {2}13 +rotation, one fused operator +1 /m);
    const out = parseNpy(readFileSync(join(folder, 'out/13-out.npy')));
    assert.deepEqual([out.dtype, [...out.shape]], ['f16', [1, 2, 32, 80]]);
    assert.deepEqual([...(parseNpy(readFileSync(join(folder, 'out/00-positions.npy'))).data as Int32Array)], [14, 386]);
    const names = readdirSync(join(folder, 'out'));
    for (const name of ['02-arange', '05-powers', '07-theta', '10-half_sin', '11-half_cos', '12-sin'])
      assert.ok(names.includes(`${name}.npy`), names.join());
    const back = await ropewalkIn(folder, 'devices', 'cann-2024', '--steps', line.replace('ROPE(', 'ROPE_BACK('));
    assert.doesNotMatch(back.stderr, /a ROPE\(…\) line/);
    const refused = await ropewalkIn(folder, 'devices', 'aclnn-a2', '--steps', line);
    assert.match(
      refused.stderr,
      /--steps: expected a profile whose steps are known, such as cann-2024, got "aclnn-a2"/,
    );
    rmSync(folder, { recursive: true });
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

  test("--model: a line's sizes, its own attn_factor in refusals, and how far off a wrong result is", async () => {
    const line = 'ROPE(type=f32,ne_a=[128,32,7,2],n_dims=128,mode=0,n_ctx=300,fs=1.4245,ef=0.7465,af=1,ff=0,v=1)';
    const of = async (name: string, text = line) => (await ropewalkIn(ROOT, 'devices', name, '--model', text)).stdout;
    const computed = await of('cann-2024');
    assert.match(computed, /: f32, batch 2, 7 tokens a call, positions below 300$/m);
    assert.match(
      computed,
      /cos and sin at position \d+ are off by [12]\.\de\+0\n {4}lost: The ramp is ignored\.\n\nBy each/,
    );
    assert.match(computed, /^By each profile's rules: nothing was run\.$/m);
    assert.doesNotMatch(await of('ggml-cann-2024'), /attn_factor/);
    assert.match(
      await of('ggml-cann-2024', line.replace('af=1,', 'af=1.5,')),
      /attn_factor is 1 \(here attnFactor 1\.5\)/,
    );
    assert.match(await of('ggml-cann-310p'), /x is contiguous \(here contiguous false\)/);
    assert.match(await of('ggml-cann-310p', line.replace('v=1', 'v=0')), /f32 data: runs: ROPE/);
  });

  test('--model: a vision tower has a line for each device, with what is needed and what is there', async () => {
    const line =
      'ROPE(type=f16,ne_a=[80,16,2,1],n_dims=40,mode=24,n_ctx=512,fs=1,ef=0,af=1,ff=0,sections=[20,20,0,0],v=0)';
    const { status, stdout, stderr } = await ropewalkIn(ROOT, 'devices', '--model', line);
    assert.equal(status, 0, stderr);
    for (const { name } of DEVICES) assert.match(stdout, new RegExp(`^  ${name} +f16 +(runs|wrong|no)`, 'm'));
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

  test('infiniop-ascend-2025 computes: the documented kernel writes batch 0 only', async () => {
    const { status, stdout } = await ropewalkIn(
      ...([ROOT, 'check', '--backend', 'infiniop-ascend-2025', '--filter', 'infiniop'] as const),
    );
    assert.equal(status, 1);
    assert.match(stdout, /27 OK, 2 FAIL, 16 not supported/);
    const failed = [...stdout.matchAll(/vector=infiniop\/(\w+),.*\[RoPE\]/g)].map(([, id]) => id);
    assert.deepEqual(failed, ['u7_f32_j', 'pos2d_f32_j']);
    const line = (batches: number): string =>
      `ROPE(type=f32,ne_a=[128,2,4,${batches}],n_dims=128,mode=0,n_ctx=512,fs=1.000000,ef=0.000000,af=1.000000,ff=0,v=0,inplace=0)`;
    const log = `  ${line(3)}: [ROPE] NMSE = 0.668100000 > 0.000000100 FAIL\n  ${line(1)}: OK`;
    const judged = await ropewalkIn(ROOT, 'devices', 'infiniop-ascend-2025', '--log', log);
    assert.equal(judged.status, 0, judged.stdout);
    assert.match(judged.stdout, /; explained: only batch 0 is written gives 6\.7e-1$/m);
  });

  test('another name is refused', async () => {
    const { status, stderr } = await ropewalkIn(ROOT, 'devices', 'cann');
    assert.equal(status, 2);
    assert.match(stderr, /device: expected .*cann-2024.*, got "?cann"?/);
  });
});
