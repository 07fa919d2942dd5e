/** Probes servers that see other keys than the model's files say: other attention sinks, caches that drop tokens. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseGguf } from '@ropewalk/formats';
import { loadModel, type Model } from '@ropewalk/model';
import { loadModelFile } from '@ropewalk/model/node';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { type Run, runOf, serve } from '../../../test/support/probe-server.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { changeableEngine, type ProbeReport, probe, reportLines } from '../src/index.js';

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
