/** Reads logs of test-backend-ops of several ages and backends. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { alteredNmse, parseTestLog } from '@ropewalk/oracle/internal';

const label =
  'ROPE(type=f16,ne_a=[128,32,2,1],n_dims=128,mode=0,n_ctx=512,fs=1.000000,ef=0.000000,af=1.424500,ff=1,v=0)';

describe('a log', () => {
  test('verdicts, errors, words and backends, with colours and with what else is printed', () => {
    const log = [
      'ggml_cuda_init: found 1 CUDA devices:',
      'Testing 3 devices',
      '',
      'Backend 1/3: CUDA0',
      '  Device description: NVIDIA H100',
      '  Device memory: 81000 MB (80000 MB free)',
      '',
      `  ${label}: \u001b[1;32mOK\u001b[0m`,
      `  ${label}: [ROPE] ERR = 0.463321724 > 0.000000100 \u001b[1;31mFAIL\u001b[0m`,
      `  ${label}: [ROPE] NaN at index 3 (CUDA0=nan CPU=0.500000) \u001b[1;31mFAIL\u001b[0m`,
      `  ${label}: [ROPE] inf mismatch: CUDA0=inf CPU=1.000000 [1;31mFAIL[0m`, // a page of logs took ESC away
      `  ${label}: sentinel mismatch: sent_1 FAIL`,
      'Backend 2/3: Vulkan0',
      `  ${label}: not supported [Vulkan0] `,
      'Backend 3/3: HTP0',
      `12:00:01 ${label}: ggml-hex: waiting`,
      '[ROPE] NMSE = 0.5 > 0.0000001 FAIL',
      '  ADD(type=f32,ne=[1,1,8,1],nr=[1,1,1,1]): OK',
      'Failing tests:',
      `  ${label}`,
    ].join('\n');
    const { cases, others, device } = parseTestLog(log);
    assert.equal(device, 'NVIDIA H100');
    assert.deepEqual(
      cases.map(({ name, backend, verdict, nmse }) => [name, backend, verdict, nmse]),
      [
        ['ROPE', 'CUDA0', 'ok', undefined],
        ['ROPE', 'CUDA0', 'fail', 0.463321724],
        ['ROPE', 'CUDA0', 'fail', undefined],
        ['ROPE', 'CUDA0', 'fail', undefined],
        ['ROPE', 'CUDA0', 'fail', undefined],
        ['ROPE', 'Vulkan0', 'not_supported', undefined],
        ['ROPE', 'HTP0', 'fail', 0.5],
        ['ADD', 'HTP0', 'ok', undefined],
        ['ROPE', 'HTP0', undefined, undefined],
      ],
    );
    assert.ok(cases.every((one) => one.name === 'ADD' || one.label === label));
    assert.match(cases[2]!.words, /NaN at index 3/);
    assert.equal(cases[8]!.line, 20);
    assert.deepEqual(
      others.map(({ line }) => line),
      [1, 2, 4, 5, 6, 13, 15, 19],
    );
  });

  test('several labels on one line, text that is none, and nothing', () => {
    const { cases } = parseTestLog(`${label}: OK ${label}: not supported [Metal]`);
    assert.deepEqual(
      cases.map(({ verdict }) => verdict),
      ['ok', 'not_supported'],
    );
    assert.deepEqual(parseTestLog(''), { cases: [], others: [] });
    assert.deepEqual(parseTestLog('max(a, b) f(x)').cases, []);
    assert.throws(() => parseTestLog(undefined as unknown as string), { code: 'FORMAT' });
  });
});

test('the NMSE of mistakes: known values, and none for a mistake that changes nothing', () => {
  const of = (params: object) =>
    new Map(
      alteredNmse({ type: 'f32', ne_a: [64, 1, 2, 1], n_dims: 64, mode: 2, ...params }).map(({ name, nmse }) => [
        name,
        nmse,
      ]),
    );
  const plain = of({});
  assert.deepEqual([...plain.keys()].sort(), [
    "every token has the first token's position",
    'positions are ignored',
    "sin has the other direction's sign",
    "the other mode's pairs",
  ]);
  // Every output is 1 / 1.5 of what it should be: Σ(2/3 − 1)² / Σ1² = 1/9.
  assert.ok(Math.abs(of({ af: 1.5 }).get('attn_factor is ignored')! - 1 / 9) < 1e-6);
  assert.ok(Math.abs(of({ af: 1.5 }).get('attn_factor is applied twice')! - 1 / 4) < 1e-6);
  // At position 0 nothing turns, so that a wrong angle shows nowhere.
  assert.equal(of({ pos: [0, 0] }).get("sin has the other direction's sign"), 0);
  assert.ok(of({ v: 1 }).get('a view is read as dense')! > 0.1);
  assert.ok(of({ v: 2 }).get('a view is read as dense')! > 0.1);
});
