/** Judges recordings of vLLM 0.32.0 with marline: recordings/README.md says how they were made. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { loadModelFolder } from '@ropewalk/model/node';
import { MARLINE } from '../../../test/support/probe-server.js';
import { changeableEngine, type Exchange, probe, reportLines } from '../src/index.js';

const folder = mkdtempSync(join(tmpdir(), 'probe-vllm-'));
after(() => rmSync(folder, { recursive: true }));

/** Marline with the base that the server's folder had. */
function folderWith(base: number): string {
  if (base === 10000) return MARLINE;
  cpSync(MARLINE, folder, { recursive: true });
  const config = JSON.parse(readFileSync(join(MARLINE, 'config.json'), 'utf8'));
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, rope_theta: base }));
  return folder;
}

describe('recordings of vLLM', () => {
  const cases: [name: string, base: number, expected: RegExp][] = [
    ['bf16', 10000, /^OK: /m],
    ['fp8-cache', 10000, /^OK: /m],
    // The override is not read: transformers 5 has moved the base into rope_parameters before.
    ['theta', 10000, /^OK: /m],
    [
      'base-lost',
      500000,
      /^DIFFERENT: the server rotates with base 10,000, and the model's is 500,000; and it scales with YaRN, factor 4, original context 64,/m,
    ],
  ];
  for (const [name, base, expected] of cases)
    test(name, async () => {
      const engine = changeableEngine({ threads: 1 });
      const model = await loadModelFolder(folderWith(base), { engine });
      try {
        const file = join(import.meta.dirname, 'recordings/vllm-0.32.0', `${name}.jsonl.gz`);
        const lines = gunzipSync(readFileSync(file)).toString().trimEnd().split('\n');
        const recorded = lines.map((line) => JSON.parse(line) as Exchange);
        const report = await probe('http://recorded', { model, engine, tokens: 128, recorded, offline: true });
        assert.match(reportLines(report).join('\n'), expected);
      } finally {
        model.dispose();
      }
    });
});
