/**
 * Lets llama.cpp run the GGUF files that `writeGguf` makes of random models of all families, and of the bundled one.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { ROOT } from '../../../test/support/command.js';
import { familyVectors } from '../../../test/support/family-vectors.js';
import { writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { describeModel } from '../src/description.js';
import { loadModelFile } from '../src/node.js';
import { writeGguf } from '../src/repack.node.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-llama-'));
after(() => rmSync(scratch, { recursive: true }));
const LLAMA = join(ROOT, 'bench/llama/node_modules/node-llama-cpp/dist/index.js');
const skip = existsSync(LLAMA) ? false : 'node-llama-cpp is not installed: npm run peers';

interface Run {
  readonly path: string;
  readonly context: number;
  readonly tokens: readonly number[];
  /** The number of tokens that it continues with. */
  readonly count: number;
  readonly text?: string;
}

/**
 * A program for a process of its own, because the library's threads outlive a test. It has one thread: llama.cpp's
 * threads wait in a busy loop.
 */
const PROGRAM = `
import { readFileSync, writeFileSync } from 'node:fs';
const [library, runs, out] = process.argv.slice(2);
const { getLlama } = await import(library);
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const found = [];
for (const { path, context: contextSize, tokens, count, text } of JSON.parse(readFileSync(runs, 'utf8'))) {
  const model = await llama.loadModel({ modelPath: path });
  const context = await model.createContext({ contextSize, flashAttention: false, threads: 1 });
  const ids = [];
  for await (const id of context.getSequence().evaluate(tokens, { temperature: 0 })) if (ids.push(id) === count) break;
  found.push({ ids, encoded: text === undefined ? [] : [...model.tokenize(text, false)] });
  await context.dispose();
  await model.dispose();
}
writeFileSync(out, JSON.stringify(found));
process.exit(0);
`;

function runAll(runs: readonly Run[]): { ids: number[]; encoded: number[] }[] {
  const [program, list, out] = ['run.mjs', 'runs.json', 'out.json'].map((name) => join(scratch, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(program, PROGRAM);
  writeFileSync(list, JSON.stringify(runs));
  const ran = spawnSync(process.execPath, [program, pathToFileURL(LLAMA).href, list, out], { encoding: 'utf8' });
  assert.equal(ran.status, 0, ran.stderr);
  return JSON.parse(readFileSync(out, 'utf8'));
}

test("every family: llama.cpp's own continuation", { skip }, async () => {
  const vectors = familyVectors();
  const runs: Run[] = [];
  for (const vector of vectors) {
    const [folder, path] = [join(scratch, vector.name), join(scratch, `${vector.name}.gguf`)];
    await writeHuggingFace(vector.gguf, folder, { mxfp4: vector.name === 'gpt-oss' });
    const description = await describeModel({ 'm.gguf': new Uint8Array(readFileSync(vector.gguf)) });
    const { files } = await description.readFiles({ graph: 'x.onnx' });
    for (const { name, bytes } of files) if (name.startsWith('tokenizer')) writeFileSync(join(folder, name), bytes);
    await writeGguf(folder, path);
    const count = (vector.array('greedy-f32') ?? vector.array('greedy'))!.length;
    runs.push({ path, context: vector.n_ctx, tokens: Array.from(vector.array('tokens')!), count });
  }
  for (const [n, { ids }] of runAll(runs).entries()) {
    const vector = vectors[n]!;
    assert.deepEqual(
      [vector.name, ids],
      [vector.name, Array.from((vector.array('greedy-f32') ?? vector.array('greedy'))!)],
    );
  }
});

test('the bundled model in each type: the same tokens of a text, and the text that we continue with', {
  skip,
}, async () => {
  const text = 'Call me Ishmael. Caf\u00e9 \u4f60\u597d, 2024\n\n  and so on';
  const types = ['f32', 'f16', 'bf16', 'q8_0', 'q4_0'] as const;
  const runs: Run[] = [];
  const ours: { ids: number[]; encoded: number[] }[] = [];
  for (const type of types) {
    const path = join(scratch, `marline-${type}.gguf`);
    await writeGguf(join(ROOT, 'models/marline'), path, { type });
    const model = await loadModelFile(path, {
      backend: 'cpu',
      threads: 1,
      activations: type.startsWith('q') ? 'q8' : 'f32',
    });
    const encoded = model.tokenizer.encode(text, { addBos: false });
    const tokens = model.tokenizer.encode('Call me Ishmael.');
    const session = model.openSession();
    const ids: number[] = [];
    for (let next = tokens; ids.length < 12; ) {
      const logits = await session.append(next);
      ids.push(logits.indexOf(logits.reduce((a, b) => Math.max(a, b))));
      next = ids.slice(-1);
    }
    model.dispose();
    ours.push({ ids, encoded });
    runs.push({ path, context: 256, tokens, count: 12, text });
  }
  for (const [n, found] of runAll(runs).entries()) assert.deepEqual([types[n], found], [types[n], ours[n]]);
});
