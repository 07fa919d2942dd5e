import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import type { Model } from '@ropewalk/model';
import { loadModelFile, loadModelFolder } from '@ropewalk/model/node';
import {
  type Faults,
  MARLINE,
  marlineWith,
  type Run,
  runOf,
  type ServedApi,
  serve,
} from '../../../test/support/probe-server.js';
import { changeableEngine, type ProbeReport, probe, probeSelf, reportLines, reportSvg } from '../src/index.js';

const engine = changeableEngine({ backend: 'cpu' });
const model = await loadModelFolder(MARLINE, { engine });
const opened: Model[] = [model];
after(() => {
  for (const one of opened) one.dispose();
});

/** Probes a server with this fault. */
async function probed(run: Run, tokens = 250, api: ServedApi = 'vllm'): Promise<ProbeReport> {
  const server = await serve(api, run, model);
  try {
    return await probe(server.url, { model, engine, tokens });
  } finally {
    await server.close();
  }
}

async function servedWith(fields: object, faults?: Faults): Promise<Run> {
  const served = await marlineWith(fields as Record<string, unknown>);
  opened.push(served);
  return runOf(served, faults);
}

describe('a right server is not accused', () => {
  test('the same weights', async () => {
    const report = await probed(runOf(model), 128);
    assert.equal(report.verdict, 'agrees');
    assert.ok(report.noise < 1e-4 && report.difference < 1e-4);
  });
  test('weights and activations in 8 bits', async () => {
    const eight = await loadModelFile(join(MARLINE, 'model-q8_0.gguf'), { backend: 'cpu', activations: 'q8' });
    opened.push(eight);
    const report = await probed(runOf(eight), 128);
    assert.equal(report.verdict, 'agrees', reportLines(report).join('\n'));
    assert.ok(report.noise > 0.01 && report.noise < 0.2, String(report.noise));
  });
  test('all positions shifted, which changes nothing', async () => {
    const report = await probed(runOf(model, { positions: (n) => n + 5 }), 64);
    assert.equal(report.verdict, 'agrees');
  });
});

describe('a fault is named', () => {
  const cases: readonly [name: string, kind: string, value: number, fields: object, faults?: Faults][] = [
    ['a base of 12,000', 'base', 12000, { rope_theta: 12000 }],
    ['linear scaling by 4', 'linear', 4, { rope_scaling: { rope_type: 'linear', factor: 4 } }],
    ['positions from 0 again at 64', 'restart', 64, {}, { positions: (n) => n % 64 }],
    ['a temperature of 0.7', 'temperature', 0.7, {}, { temperature: 0.7 }],
    [
      'a repetition penalty of 1.3',
      'penalty',
      1.3,
      {},
      { penalty: (logit) => (logit > 0 ? logit / 1.3 : logit * 1.3) },
    ],
    ['a presence penalty of 0.7', 'penalty', Math.exp(-0.7), {}, { penalty: (logit) => logit - 0.7, last: 64 }],
    [
      'a frequency penalty of 0.4',
      'penalty',
      Math.exp(-0.4),
      {},
      { penalty: (logit, times) => logit - 0.4 * times, last: 64 },
    ],
  ];
  for (const [name, kind, value, fields, faults] of cases) {
    test(name, async () => {
      const report = await probed(await servedWith(fields, faults), 128);
      const text = reportLines(report).join('\n');
      assert.deepEqual([report.verdict, report.best?.kind], ['named', kind], text);
      assert.ok(Math.abs(report.best!.value! / value - 1) < 0.05, text);
      assert.match(text, /^DIFFERENT: the server /m);
      const svg = reportSvg(report);
      assert.equal(svg.match(/<circle /g)!.length, 2 * report.rows);
      assert.doesNotMatch(svg, /NaN|Infinity/);
    });
  }
});

describe('TGI, which takes texts and tells one log-probability a token', () => {
  test('weights and activations in 8 bits are not accused, another base is named', async () => {
    const eight = changeableEngine({ backend: 'cpu', activations: 'q8' });
    const served = await loadModelFile(join(MARLINE, 'model-q8_0.gguf'), { engine: eight });
    opened.push(served);
    const report = await probed(runOf(served), 200, 'tgi');
    assert.deepEqual([report.verdict, report.rows], ['agrees', report.tokens], reportLines(report).join('\n'));
    eight.change = { rope: (spec) => ({ ...spec, base: 500000 }) };
    const { verdict, best } = await probed(runOf(served), 200, 'tgi');
    assert.deepEqual([verdict, best?.kind], ['named', 'base']);
    assert.ok(Math.abs(best!.value! / 500000 - 1) < 0.05);
  });
  test('a server without log-probabilities of prompts is not judged, nor compared with itself', async () => {
    await assert.rejects(probed(runOf(model), 32, 'tgi-bare'), {
      code: 'UNSUPPORTED',
      message: /its noise is not known\. Start TGI with --enable-prefill-logprobs/,
    });
    const server = await serve('tgi', runOf(model), model);
    try {
      await assert.rejects(probeSelf(server.url), { code: 'UNSUPPORTED', message: /TGI takes texts.*--model/ });
    } finally {
      await server.close();
    }
  });
});

test('a fault that nothing explains is described, not named', async () => {
  const report = await probed(runOf(model, { positions: (n) => Math.floor((n * n) / 40) }), 64);
  assert.equal(report.verdict, 'described');
  assert.match(
    reportLines(report).join('\n'),
    /^NOT UNDERSTOOD: the differences are larger than those of single tokens/m,
  );
});

test('a longer text that tells hypotheses apart is named with its price, and sent if the budget has that', async () => {
  const eight = changeableEngine({ backend: 'cpu', activations: 'q8' });
  const served = await loadModelFile(join(MARLINE, 'model-q8_0.gguf'), { engine: eight });
  opened.push(served);
  eight.change = { rope: (spec) => ({ ...spec, scaling: { kind: 'yarn', factor: 4, originalContext: 256 } }) };
  const server = await serve('vllm', runOf(served), model);
  const sent = (budget?: number) => probe(server.url, { model, engine, tokens: 16, budget });
  try {
    // A text of 16 tokens, and 18 prompts of one of them: the price is one token more than the second budget has left.
    for (const report of [await sent(), await sent(16 + 18 + 31)]) {
      assert.deepEqual([report.verdict, report.next, report.price, report.sent], ['one-of', 32, 32, 34]);
      assert.match(reportLines(report).join('\n'), /^ {2}next {8}a text of 32 tokens would tell them apart/m);
    }
    const report = await sent(16 + 18 + 32);
    assert.deepEqual([report.verdict, report.tokens, report.next], ['named', 32, undefined]);
    assert.match(report.best!.says, /YaRN, factor 4, original context 256/);
  } finally {
    await server.close();
  }
});

test('another model is not judged', async () => {
  const report = await probed(
    async (tokens) =>
      await runOf(model)(
        tokens.map((id) => (7 * id + 3) % 1000),
        false,
      ),
    32,
  );
  assert.equal(report.verdict, 'other');
  assert.ok(report.noise > 1);
});

test('a model that was loaded otherwise is refused', async () => {
  const other = await marlineWith();
  opened.push(other);
  await assert.rejects(probe('http://127.0.0.1:1', { model: other, engine }), {
    code: 'RANGE',
    message: /probe: engine: expected the engine from changeableEngine with which the model was loaded/,
  });
});
