/** Probes llama.cpp itself: it runs the bundled model as converted, and with another base, scaling or context in its GGUF. */
import assert from 'node:assert/strict';
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { loadModelFolder } from '@ropewalk/model/node';
import { writeGguf } from '@ropewalk/model/repack';
import { ROOT } from '../../../test/support/command.js';
import { MARLINE, type Run, serve } from '../../../test/support/probe-server.js';
import { changeableEngine, type ProbeReport, probe, reportLines } from '../src/index.js';

const LLAMA = join(ROOT, 'bench/llama/node_modules/node-llama-cpp/dist/index.js');
const skip = existsSync(LLAMA) ? false : 'node-llama-cpp is not installed: npm run peers';
const folder = mkdtempSync(join(tmpdir(), 'probe-llama-'));
const engine = changeableEngine({ backend: 'cpu' });
const model = await loadModelFolder(MARLINE, { engine });
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill();
  model.dispose();
  rmSync(folder, { recursive: true });
});

/** Runs llama.cpp in a process of its own: each message has tokens, and the answer is all rows of log-probabilities. */
const PROGRAM = `
const [library, path, vocab] = process.argv.slice(2);
const { getLlama } = await import(library);
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const model = await llama.loadModel({ modelPath: path });
const context = await model.createContext({ contextSize: 512, flashAttention: false, threads: 1 });
const sequence = context.getSequence();
const options = { temperature: 1, topK: 0, topP: 1, minP: 0 };
process.on('message', async (tokens) => {
  await sequence.clearHistory();
  const all = await sequence.controlledEvaluate(
    tokens.map((token) => [token, { generateNext: { probabilities: true, options } }]),
  );
  const rows = new Float32Array(tokens.length * vocab);
  all.forEach((one, row) => {
    for (const [token, probability] of one.next.probabilities) rows[row * vocab + token] = Math.log(probability);
  });
  process.send(rows);
});
process.send('ready');
`;

/** Serves marline by llama.cpp, with these fields of config.json in its GGUF. */
async function llamaCpp(type: 'f16' | 'q8_0', fields: object = {}): Promise<Run> {
  const id = children.length;
  const [source, path, program] = ['source', 'model.gguf', 'run.mjs'].map((name) => join(folder, `${id}-${name}`));
  cpSync(MARLINE, source!, { recursive: true, filter: (file) => !file.endsWith('.gguf') });
  const config = JSON.parse(readFileSync(join(MARLINE, 'config.json'), 'utf8'));
  writeFileSync(join(source!, 'config.json'), JSON.stringify({ ...config, ...fields }));
  await writeGguf(source!, path!, { type });
  writeFileSync(program!, PROGRAM);
  const of = [pathToFileURL(LLAMA).href, path!, String(model.config.vocabSize)];
  const child = fork(program!, of, { serialization: 'advanced', execArgv: [] });
  children.push(child);
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`llama.cpp ended with ${code}`);
  });
  ended.catch(() => undefined);
  const next = (): Promise<unknown> => Promise.race([once(child, 'message').then(([value]) => value), ended]);
  assert.equal(await next(), 'ready');
  return async (tokens) => {
    child.send(tokens);
    return (await next()) as Float32Array;
  };
}

async function probed(run: Run): Promise<ProbeReport> {
  const server = await serve('vllm', run, model);
  try {
    return await probe(server.url, { model, engine, tokens: 128 });
  } finally {
    await server.close();
  }
}

describe('llama.cpp, run on the bundled model', { skip }, () => {
  for (const type of ['f16', 'q8_0'] as const)
    test(`${type}: it is not accused`, async () => {
      const report = await probed(await llamaCpp(type));
      assert.equal(report.verdict, 'agrees', reportLines(report).join('\n'));
    });
  const faults: readonly [kind: string, value: number, fields: object][] = [
    ['base', 500000, { rope_theta: 500000 }],
    ['linear', 4, { rope_scaling: { rope_type: 'linear', factor: 4 } }],
    ['scaling', 4, { rope_scaling: { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 64 } }],
  ];
  for (const [kind, value, fields] of faults)
    test(`another ${kind} in the GGUF is named`, async () => {
      const report = await probed(await llamaCpp('q8_0', fields));
      const text = reportLines(report).join('\n');
      assert.deepEqual([report.verdict, report.best?.kind], ['named', kind], text);
      const { value: found, range } = report.best!;
      const isIn = range !== undefined && value > (range[0] ?? 0) && value < (range[1] ?? Infinity);
      assert.ok(Math.abs(found! / value - 1) < 0.05 || isIn, text);
    });
});
