/** A server against itself, without a model: faults that show where prompts are computed in pieces. */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { type CacheFaults, cachingRun, marlineWith, runOf, serve } from '../../../test/support/probe-server.js';
import { probeSelf, type SelfReport, selfLines } from '../src/index.js';

const model = await marlineWith();
after(() => model.dispose());

async function probed(
  faults: CacheFaults,
  api: 'llama-server' | 'each' = 'llama-server',
): Promise<[SelfReport, string[]]> {
  const server = await serve(api, cachingRun(model, faults), model);
  try {
    const report = await probeSelf(server.url, { tokens: 70 });
    const lines = selfLines(report);
    return [report, lines.filter((line) => /^(OK|DIFFERENT)/.test(line))];
  } finally {
    await server.close();
  }
}

describe('a server against itself', () => {
  for (const chunk of [1, 48, 256])
    test(`a right server, in pieces of ${chunk}`, async () => {
      const [{ verdict, noise }, lines] = await probed({ chunk });
      assert.equal(verdict, 'agrees', lines.join('\n'));
      assert.ok(noise < 1e-5);
    });
  test('a right server with noise of its own', async () => {
    const [{ verdict, noise }, lines] = await probed({ noise: 0.2 });
    assert.equal(verdict, 'agrees', lines.join('\n'));
    assert.ok(noise > 0.03 && noise < 0.3, String(noise));
  });
  for (const api of ['llama-server', 'vllm', 'sglang'] as const)
    test(`${api}: a fault in streams, and one in lists of prompts`, async () => {
      for (const [way, faults] of [
        [undefined, {}],
        ['streamed', { streamTemperature: 0.7 }],
        ['padded', { pads: true }],
      ] as const) {
        const server = await serve(api, runOf(model), model, faults);
        const { ways } = await probeSelf(server.url, { tokens: 40 }).finally(server.close);
        const all = ways.map((one) => one.way);
        assert.ok(all.includes('streamed') && all.includes('padded'), all.join());
        const wrong = ways.filter(({ from }) => from !== undefined).map((one) => one.way);
        assert.deepEqual(wrong, way ? [way] : []);
      }
    });
  test('a server that answers at random is not right', async () => {
    const [{ verdict }, lines] = await probed({ noise: 4 });
    assert.equal(verdict, 'differs');
    assert.match(lines[0]!, /^DIFFERENT: the same request gives other log-probabilities each time, first seen after/);
  });
  for (const [name, faults, lines] of [
    [
      'positions start again in each piece',
      { restarts: true, chunk: 256 },
      [
        'DIFFERENT: tokens behind a prefix that the server has kept get other log-probabilities than in one piece, first seen after 16 tokens',
        'DIFFERENT: tokens get other log-probabilities together with other requests, first seen after 16 tokens',
      ],
    ],
    [
      'a prefix that is lost',
      { forgets: true },
      [
        'DIFFERENT: tokens behind a prefix that the server has kept get other log-probabilities than in one piece, first seen after 16 tokens',
        'DIFFERENT: tokens get other log-probabilities together with other requests, first seen after 16 tokens',
      ],
    ],
    [
      'positions that other requests move',
      { mixesBatch: true, chunk: 16 },
      ['DIFFERENT: tokens get other log-probabilities together with other requests, first seen after 16 tokens'],
    ],
  ] as const)
    test(name, async () => {
      const [report, found] = await probed(faults);
      assert.equal(report.verdict, 'differs');
      assert.deepEqual(
        found.map((line) => line.replace(/\d+ tokens/, '16 tokens')),
        lines,
        JSON.stringify(report.ways),
      );
    });
});
