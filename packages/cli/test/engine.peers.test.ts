/** `--engine` and `ropewalk cache`. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { loadModel } from '@ropewalk/model';
import { describeModel, type ModelDescription } from '@ropewalk/model/internal';
import { ropewalkIn } from '../../../test/support/command.js';
import { noOnnxruntime as skip } from '../../../test/support/onnxruntime.js';
import { tinyModel } from '../../../test/support/tiny-model.js';
import { withoutOnnxruntime } from '../../../test/support/without-onnxruntime.js';
import { engineOf } from '../src/engine.js';

const folder = mkdtempSync(join(tmpdir(), 'engine-'));
after(() => rmSync(folder, { recursive: true }));
const generate = (...args: string[]) =>
  ropewalkIn(folder, 'generate', 'Call me', '-n', '12', '--temperature', '0', ...args);

describe('generate --engine', () => {
  test('onnxruntime writes the text of our kernels', { skip }, async () => {
    const [ours, theirs] = [
      await generate('--engine', 'kernels'),
      await generate('--engine', 'onnxruntime', '-t', '1'),
    ];
    assert.equal(theirs.status, 0, theirs.stderr);
    assert.equal(theirs.stdout, ours.stdout);
    assert.match(theirs.stderr, /\nonnxruntime: prompt \d/);
    assert.match(ours.stderr, /\ncpu: prompt \d/);
  });

  test('auto runs a small model on our kernels without a word', async () => {
    const { stderr } = await generate('--engine', 'auto');
    assert.doesNotMatch(stderr, /on our kernels/);
    assert.match(stderr, /\ncpu: prompt/);
  });

  test('refusals', async () => {
    const refused = async (message: RegExp, ...args: string[]): Promise<void> => {
      const { status, stderr } = await generate(...args);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
    };
    await refused(/generate: --engine: expected auto, kernels or onnxruntime, got "?fast/, '--engine', 'fast');
    await refused(/--backend: it is for our kernels\. Leave it out/, '--engine', 'auto', '--backend', 'cpu');
    await refused(/--cache: only ONNX Runtime has one\. Leave it out/, '--engine', 'kernels', '--cache', 'x');
    await refused(/--cache: the name is empty/, '--engine', 'onnxruntime', '--cache', '');
    const dtype = /--cache-dtype: ONNX Runtime has f32 and f16\. Take one, or use --engine kernels\./;
    await refused(dtype, '--engine', 'onnxruntime', '--cache-dtype', 'bf16');
    const activations = /--activations: ONNX Runtime has f32\. Leave it out, or use --engine kernels\./;
    await refused(activations, '--engine', 'onnxruntime', '--activations', 'q8');
    await refused(
      /-t: expected an integer in \[1, 16\], got "?99"?\. 16 is the most\.\n/,
      '--engine',
      'onnxruntime',
      '-t',
      '99',
    );
  });

  test('without the package: what to install', () => {
    const { status, stderr } = withoutOnnxruntime(folder, 'generate', 'Call me', '--engine', 'onnxruntime');
    assert.equal(status, 2, stderr);
    assert.match(stderr, /the package onnxruntime-node is not installed: npm install onnxruntime-node/);
    assert.equal(withoutOnnxruntime(folder, 'generate', 'Call me', '-n', '2').status, 0);
  });
});

describe('--engine auto', () => {
  const shape = { family: 'llama', layers: 1, hidden: 32, heads: 2, kvHeads: 1, headDim: 16, inter: 32 } as const;
  const { huggingFace } = tinyModel('auto', { ...shape, vocab: 32, tied: true });
  /** The model with a vocabulary so large that it is worth ONNX Runtime's start. */
  const claiming = async (): Promise<ModelDescription> => {
    const real = await describeModel(huggingFace());
    const vocabSize = 2 ** 23;
    const stored = real.stored.map((tensor) =>
      /embed/.test(tensor.name)
        ? { ...tensor, type: 'F32', shape: [vocabSize, 32], sizeBytes: 128 * vocabSize }
        : tensor,
    );
    return { ...real, config: { ...real.config, vocabSize }, stored };
  };
  /** Returns the text that goes to stderr. */
  const saidBy = async (work: () => Promise<void>): Promise<string> => {
    const { write } = process.stderr;
    let said = '';
    process.stderr.write = (text: string | Uint8Array) => {
      said += text;
      return true;
    };
    try {
      await work();
      return said;
    } finally {
      process.stderr.write = write;
    }
  };
  /** Returns the engine's name, and the text on stderr. */
  const taken = async (options: object, description: ModelDescription): Promise<[string, string]> => {
    let name = '';
    const said = await saidBy(async () => {
      const opened = await (await engineOf(options, 1))!.open(description);
      ({ name } = opened);
      opened.dispose();
    });
    return [name, said];
  };

  test('takes ONNX Runtime for a model that is worth it, and says so', { skip }, async () => {
    const [name, said] = await taken({}, await claiming());
    assert.equal(name, 'onnxruntime');
    assert.match(said, /^on ONNX Runtime: /);
    assert.deepEqual(await taken({ json: true }, await claiming()), ['onnxruntime', '']);
  });

  test('takes our kernels where ONNX Runtime cannot keep the cache', async () => {
    assert.match((await taken({ engine: 'auto', cacheDtype: 'bf16' }, await claiming()))[1], /in f32 or f16, not bf16/);
    assert.match(
      (await taken({ engine: 'auto', activations: 'q8' }, await claiming()))[1],
      /does not round activations/,
    );
  });

  test('goes on with our kernels where the cache cannot be written, and says why', { skip }, async () => {
    const large = tinyModel('large', { ...shape, vocab: 2 ** 18, tied: true }).huggingFace();
    const file = join(folder, 'no-cache');
    writeFileSync(file, '');
    const load = async (engine: string) => {
      const chosen = await engineOf({ engine, cache: file }, 1);
      return loadModel(large, { engine: chosen, tokenizer: false, context: 8 });
    };
    const said = await saidBy(async () => {
      const model = await load('auto');
      assert.equal(model.backend, 'cpu');
      assert.equal((await model.openSession().append([1])).length, 2 ** 18);
      model.dispose();
    });
    const why =
      /^on ONNX.*\nnot on ONNX Runtime, but on our kernels: cache: .*no-cache: .*: --cache FOLDER, ROPEWALK_CACHE,/;
    assert.match(said, why);
    await assert.rejects(load('onnxruntime'), {
      code: 'DEVICE',
      message: /^cache: .*: --cache FOLDER, ROPEWALK_CACHE/,
    });
  });

  test('a backend that is named is one of our kernels', async () => {
    assert.equal(await engineOf({ backend: 'cpu' }, 1), undefined);
  });
});

describe('cache', () => {
  test('lists what is kept, and removes it', async () => {
    const root = join(folder, 'cache');
    const none = await ropewalkIn(folder, 'cache', '--cache', root);
    assert.equal(none.status, 2);
    assert.equal(none.stderr, `ropewalk: cache: --cache: there is no folder ${root}.\n`);
    const entry = join(root, 'onnx', '0123');
    mkdirSync(entry, { recursive: true });
    writeFileSync(join(entry, 'about.json'), '{"model":"m.gguf"}');
    writeFileSync(join(entry, 'model.onnx_data'), Buffer.alloc(2 ** 20));
    const { stdout } = await ropewalkIn(folder, 'cache', '--cache', root, '--json');
    const { entries, removed } = JSON.parse(stdout) as {
      entries: { model: string; folder: string }[];
      removed: boolean;
    };
    assert.deepEqual([entries[0]!.model, entries[0]!.folder, removed], ['m.gguf', entry, false]);
    const left = join(root, 'onnx', '.4567.1-0-0.ropewalk.tmp');
    mkdirSync(left);
    writeFileSync(join(left, 'model.onnx_data'), Buffer.alloc(2 ** 21));
    const gone = await ropewalkIn(folder, 'cache', '--cache', root, '--remove');
    assert.match(gone.stdout, /^1\.00 MiB, used last on \d{4}-\d\d-\d\d: m\.gguf$/m);
    assert.match(gone.stdout, /^2\.00 MiB, used last on \d{4}-\d\d-\d\d: not whole: it is being written, or was left/m);
    assert.match(gone.stdout, /: removed 1 model and 1 not whole, 3\.00 MiB\n$/);
    assert.equal(existsSync(left), false);
    assert.equal(existsSync(entry), false);
    assert.equal((await ropewalkIn(folder, 'cache', '--cache', '')).status, 2);
  });
});
