/** Probes servers that see other keys than the model's files say: other attention sinks, caches that drop tokens. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseGguf } from '@ropewalk/formats';
import { loadModel, type Model } from '@ropewalk/model';
import { type DecoderSession, type KernelSequence, shiftRows } from '@ropewalk/model/internal';
import { loadModelFile, loadModelFolder } from '@ropewalk/model/node';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { MARLINE, marlineWith, type Run, runOf, serve } from '../../../test/support/probe-server.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { Expected } from '../src/expected.js';
import { changeableEngine, type ProbeReport, probe, reportLines } from '../src/index.js';
import { judge } from '../src/judge.js';

const opened: Model[] = [];
after(() => {
  for (const one of opened) one.dispose();
});

describe('gpt-oss, which has learned attention sinks', async () => {
  const engine = changeableEngine({ backend: 'cpu', threads: 1 });
  const tokenizer = numberTokenizer(64);
  const file = join(FAMILIES, 'gpt-oss.gguf');
  const model = await loadModelFile(file, { engine, tokenizer });
  opened.push(model);
  const text = Array.from({ length: 128 }, (_, n) => `<${3 + ((n * n + 7 * n) % 61)}>`).join('');
  const probed = async (run: Run): Promise<ProbeReport> => {
    const server = await serve('vllm', run, model);
    try {
      return await probe(server.url, { model, engine, text, tokens: 64 });
    } finally {
      await server.close();
    }
  };
  for (const [name, sinks, expected] of [
    ['a right server is not accused', undefined, /^OK: /m],
    ['sinks that are left out are named', -1e9, /^DIFFERENT: the server leaves out the attention sinks of the model$/m],
    ['sinks of 0 are named', 0, /^DIFFERENT: the server has attention sinks of 0, and the model learned ones$/m],
  ] as const)
    test(name, async () => {
      const bytes = new Uint8Array(readFileSync(file));
      const { dataOffset, tensors } = parseGguf(bytes, file);
      for (const { name, offset, shape } of tensors)
        if (sinks !== undefined && name.endsWith('attn_sinks.weight'))
          for (let head = 0; head < shape[0]!; head++)
            new DataView(bytes.buffer).setFloat32(dataOffset + offset + 4 * head, sinks, true);
      const served = await loadModel({ 'm.gguf': bytes }, { backend: 'cpu', tokenizer });
      opened.push(served);
      const report = await probed(runOf(served));
      assert.match(reportLines(report).join('\n'), expected);
    });
});

test('DeepSeek, whose latent heads cannot be without a RoPE: a right server is not accused, another base is named', async () => {
  const engine = changeableEngine({ backend: 'cpu', threads: 1 });
  const model = await loadModelFile(join(FAMILIES, 'deepseek2.gguf'), { engine, tokenizer: numberTokenizer(96) });
  opened.push(model);
  const expected = new Expected(model, engine, 64);
  const tokens = Array.from({ length: 64 }, (_, n) => 3 + ((7 * n * n + 13 * n) % 93));
  const single = [];
  for (const token of tokens.slice(0, 8)) single.push(await expected.answers([token], {}));
  for (const [base, verdict] of [
    [10000, 'agrees'],
    [500000, 'named'],
  ] as const) {
    const text = await expected.answers(tokens, { rope: (spec) => ({ ...spec, base }) });
    const report = await judge(expected, single, text);
    assert.deepEqual([report.verdict, report.best?.value], [verdict, base === 10000 ? undefined : base]);
  }
  expected.dispose();
});

describe('caches that are smaller than the text', async () => {
  const engine = changeableEngine({ backend: 'cpu', threads: 1 });
  const model = await loadModelFolder(MARLINE, { engine });
  const served = await marlineWith();
  opened.push(model, served);
  /** Runs a model token by token. */
  const small = (size: number, keep: number, drops: number, turns: number, own = false): Run => {
    return async (tokens) => {
      const session = served.openSession({ context: size }) as DecoderSession;
      const { cache, decoder } = session.sequence as KernelSequence;
      const rows: number[] = [];
      for (const [n, token] of tokens.entries()) {
        if (session.length === size) {
          if (turns === 1) await session.shift(keep, drops);
          else {
            const { k, v, length } = cache;
            const layers = cache.layers.map(({ rope, ...layer }) => {
              return { ...layer, rope: rope && turns > 0 ? { ...rope, freqFactors: Array(16).fill(0.5) } : undefined };
            });
            shiftRows(decoder.runner, { k, v, length, layers }, 0, { from: keep, count: drops });
            cache.length -= drops;
          }
        }
        rows.push(...(await session.append([token], own ? { positions: [n] } : {})));
      }
      session.dispose();
      return Float32Array.from(rows);
    };
  };
  for (const [name, run, says] of [
    ['context shift', small(100, 4, 48, 1), /^drops half of its 100 tokens, behind the first 4,.* as llama\.cpp's/],
    ['keys that stay', small(100, 4, 48, 0), /^drops half of its 100 tokens, behind the first 4,.* does not rotate/],
    ['keys that turn twice', small(100, 0, 50, 2), /^drops half of its 100 tokens, when .* twice$/],
    [
      'StreamingLLM',
      small(64, 4, 1, 1),
      /^lets a token see the first 4 and the last 60, at the positions that they have/,
    ],
    [
      'own positions',
      small(64, 4, 1, 0, true),
      /^lets a token see the first 4 and the last 60, at their own positions$/,
    ],
    ['a cache with room for all', small(200, 4, 98, 1), undefined],
  ] as const)
    test(name, async () => {
      const server = await serve('vllm', run, model);
      try {
        const report = await probe(server.url, { model, engine, tokens: 140 });
        const text = reportLines(report).join('\n');
        assert.equal(report.verdict, says ? 'named' : 'agrees', text);
        if (says) assert.match(report.best!.says, says, text);
      } finally {
        await server.close();
      }
    });
});
