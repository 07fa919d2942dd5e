/** Tests the way from files to a model: sources, shards, types, progress, memory, and files that are cut or forged. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { ByteSource } from '@ropewalk/formats';
import fc from 'fast-check';
import { type BlockFormat, openBackend, Ropewalk, RopewalkError, ropewalk } from 'ropewalk';
import { BLOCK_FORMAT_NAMES, blockBytes, randomFrom } from 'ropewalk/internal';
import { damage, damaged } from '../../../test/support/fuzz.js';
import { ggufOf, type MadeTensor, safetensorsOf, withFormats } from '../../../test/support/model-files.js';
import { drawn } from '../../../test/support/size.js';
import { bytesOf, numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import { WIDENED, widenBlocks } from '../src/dequantize.js';
import {
  fetchModelFiles,
  fetchSource,
  type LoadOptions,
  type LoadProgress,
  loadModel,
  type ModelFiles,
} from '../src/index.js';
import { checkFits } from '../src/memory.js';
import { loadModelFile, loadModelFolder, loadModelPath } from '../src/node.js';
import type { ModelMemory } from '../src/types.js';

const SHAPE = {
  family: 'qwen2',
  layers: 2,
  hidden: 32,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  inter: 64,
  vocab: 40,
  qkvBias: true,
} as const;
const made = tinyModel('load', SHAPE);
const TOKENS = [1, 5, 9, 30, 2];
const tokenizer = numberTokenizer(40);

let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
});
after(() => rw.dispose());

/** Loads a model, runs it, disposes it, and returns the last logits. */
async function logitsOf(files: ModelFiles, options: LoadOptions = {}): Promise<Float32Array> {
  const model = await loadModel(files, { backend: rw, tokenizer, ...options });
  try {
    return await model.openSession().append(TOKENS);
  } finally {
    model.dispose();
  }
}

async function refused(work: Promise<unknown>, code: string, message: RegExp): Promise<void> {
  await assert.rejects(work, (error: unknown) => {
    assert.ok(error instanceof RopewalkError, String(error));
    assert.match(error.message, message);
    assert.equal(error.code, code);
    return true;
  });
}

const available = (): number => rw.capabilities().memory!.availableBytes!;

function sharded(): Record<string, Uint8Array> {
  const tensors = [...made.weights].map(
    ([name, { shape, values }]): MadeTensor => ({ name, shape, type: 'F32', bytes: bytesOf(values, 'f32') }),
  );
  const parts = [tensors.slice(0, 7), tensors.slice(7, 20), tensors.slice(20)];
  const names = parts.map((_, n) => `model-0000${n + 1}-of-00003.safetensors`);
  const weight_map = Object.fromEntries(parts.flatMap((part, n) => part.map(({ name }) => [name, names[n]!])));
  return {
    'config.json': made.huggingFace()['config.json']!,
    'model.safetensors.index.json': json({ metadata: { total_size: 1 }, weight_map }),
    ...Object.fromEntries(parts.map((part, n) => [names[n]!, safetensorsOf(part)])),
  };
}

function json(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}

describe('sources', () => {
  test('bytes, buffers, blobs, maps, a shard or three: the same logits', async () => {
    const files = made.huggingFace();
    const want = await logitsOf(files);
    const as = (
      wrap: (bytes: Uint8Array) => Uint8Array | ArrayBuffer | Blob,
    ): Record<string, Uint8Array | ArrayBuffer | Blob> =>
      Object.fromEntries(Object.entries(files).map(([name, bytes]) => [name, wrap(bytes)]));
    assert.deepEqual(await logitsOf(as((bytes) => new Blob([bytes as Uint8Array<ArrayBuffer>]))), want);
    assert.deepEqual(await logitsOf(as((bytes) => Uint8Array.from(bytes).buffer)), want);
    assert.deepEqual(await logitsOf(new Map(Object.entries(files))), want);
    assert.deepEqual(await logitsOf(sharded()), want);
  });

  test('a source is read once, in pieces, and never past its end', async () => {
    const bytes = made.gguf()['model.gguf']!;
    const reads: [start: number, length: number][] = [];
    const source: ByteSource = {
      size: bytes.length,
      async read(start, length) {
        assert.ok(
          start >= 0 && length > 0 && start + length <= bytes.length,
          `${start} + ${length} of ${bytes.length}`,
        );
        reads.push([start, length]);
        return bytes.slice(start, start + length);
      },
    };
    await logitsOf({ 'm.gguf': source });
    const weights = reads.slice(1).sort((a, b) => a[0] - b[0]);
    for (const [n, [start]] of weights.entries())
      if (n > 0) assert.ok(start >= weights[n - 1]![0] + weights[n - 1]![1]);
  });

  describe('fetched', () => {
    let server: Server;
    let root: string;
    let requests: string[] = [];
    let missing = 404;
    let hub = new Map<string, Uint8Array>();
    before(async () => {
      const files = made.gguf()['model.gguf']!;
      server = createServer((request, response) => {
        requests.push(request.headers.range ?? 'whole');
        const name = /^\/org\/name\/resolve\/main\/(.*)$/.exec(request.url!)?.[1];
        if (name !== undefined) {
          const bytes = hub.get(name);
          response.writeHead(bytes ? 200 : name === 'broken.gguf' ? 500 : missing).end(bytes);
          return;
        }
        const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
        if (request.url!.startsWith('/none')) response.writeHead(404).end();
        else if (request.url === '/ranges' && range) {
          const [start, end] = [Number(range[1]), Number(range[2])];
          response
            .writeHead(206, { 'content-range': `bytes ${start}-${end}/${files.length}` })
            .end(files.subarray(start, end + 1));
        } else response.writeHead(200).end(files);
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      root = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    });
    after(() => server.close());

    test('by ranges, or whole where the server knows none', async () => {
      const want = await logitsOf(made.gguf());
      requests = [];
      assert.deepEqual(await logitsOf({ 'm.gguf': await fetchSource(`${root}/ranges`) }), want);
      assert.ok(requests.length > 5 && !requests.includes('whole'));
      requests = [];
      assert.deepEqual(await logitsOf({ 'm.gguf': await fetchSource(`${root}/whole`) }), want);
      assert.equal(requests.length, 1);
      await refused(fetchSource(`${root}/none`), 'FORMAT', /\/none: expected HTTP status 200 or 206, got 404/);
      await refused(fetchSource('http://127.0.0.1:1/'), 'FORMAT', /the server does not answer: /);
    });

    test('all files of a folder, in one part or three, or one GGUF; each opened by the caller', async () => {
      const at = `${root}/org/name/resolve/main`;
      const want = await logitsOf(made.gguf());
      for (const files of [made.huggingFace(), sharded()]) {
        hub = new Map(Object.entries(files));
        requests = [];
        missing = missing === 404 ? 403 : 404;
        assert.deepEqual(await logitsOf(await fetchModelFiles(at)), want);
        assert.ok(requests.length > 5);
        assert.deepEqual(await logitsOf(await fetchModelFiles(new URL(`${at}/?x#y`))), want);
      }
      const modules = new TextEncoder().encode(
        '[{ "type": "Normalize", "path": "1_Dense" }, { "type": "Normalize", "path": "../x" }]',
      );
      hub.set('modules.json', modules).set('1_Dense/config.json', modules);
      const names = [...((await fetchModelFiles(at)) as ReadonlyMap<string, unknown>).keys()];
      assert.deepEqual(
        names.filter((name) => /^modules|\//.test(name)),
        ['modules.json', '1_Dense/config.json'],
      );
      hub.delete('modules.json');
      assert.deepEqual(await logitsOf(await fetchModelFiles(`${root}/m.gguf?token=1`)), want);
      const opened: string[] = [];
      const open = (url: URL): Uint8Array | undefined => {
        opened.push(url.href);
        return hub.get(url.pathname.split('/').at(-1)!);
      };
      requests = [];
      assert.deepEqual(await logitsOf(await fetchModelFiles('https://hub.example/a/b', { open })), want);
      assert.deepEqual([opened[0], opened.length, requests], ['https://hub.example/a/b/config.json', 10, []]);
    });

    test('refused: what is missing, and an index that leads out of its folder', async () => {
      const at = `${root}/org/name/resolve/main/`;
      hub = new Map(Object.entries(sharded()));
      hub.delete('model-00002-of-00003.safetensors');
      const next = 'Give the address of a \\.gguf file, or of a folder with config\\.json and \\*\\.safetensors\\.';
      await refused(fetchModelFiles(at), 'FORMAT', new RegExp(`main/: there is no model-00002-of-.*\\. ${next}`));
      await refused(fetchModelFiles(`${root}/none.gguf`), 'FORMAT', /there is no none\.gguf\. Give/);
      await refused(
        fetchModelFiles(`${at}broken.gguf`),
        'FORMAT',
        /broken\.gguf: expected HTTP status 200 or 206, got 500/,
      );
      await refused(fetchModelFiles('a model'), 'RANGE', /url: expected the address of a \.gguf file or of a folder/);
      await refused(fetchModelFiles('data:,abc'), 'RANGE', /url: expected the address/);
      await refused(fetchModelFiles('http://127.0.0.1:1/'), 'FORMAT', /the server does not answer: /);
      for (const part of ['../x.safetensors', 'http://elsewhere/x.safetensors', 'a/x.safetensors', 'config.json']) {
        hub.set('model.safetensors.index.json', json({ weight_map: { a: part } }));
        await refused(
          fetchModelFiles(at),
          'FORMAT',
          /index\.json: expected names of \.safetensors files in its folder/,
        );
      }
    });
  });
});

describe('types of a GGUF', () => {
  const random = randomFrom('types');
  /** Makes random blocks with small scales. */
  const blocks = (name: string, count: number): Uint8Array => {
    const format = WIDENED.get(name)!;
    const bytes = Uint8Array.from({ length: (count / format.weights) * format.bytes }, () => random.integer(256));
    const scales = { Q4_1: [0, 2], Q5_1: [0, 2], Q4_K: [0, 2], Q5_K: [0, 2], Q6_K: [208], TQ1_0: [52] }[name] ?? [0];
    for (let at = 0; at < bytes.length; at += format.bytes) {
      if (name === 'MXFP4') bytes[at] = 124;
      else for (const scale of scales) bytes.set([random.integer(256), /K|XS/.test(name) ? 0x08 : 0x18], at + scale);
    }
    return bytes;
  };
  const CODES: Record<string, number> = {
    Q4_0: 2,
    Q4_1: 3,
    Q5_0: 6,
    Q5_1: 7,
    Q8_0: 8,
    Q4_K: 12,
    Q5_K: 13,
    Q6_K: 14,
    IQ4_NL: 20,
    IQ4_XS: 23,
    TQ1_0: 34,
    MXFP4: 39,
  };
  const wide = {
    ...SHAPE,
    family: 'qwen3',
    qkvBias: false,
    layers: 1,
    hidden: 256,
    heads: 2,
    kvHeads: 1,
    headDim: 128,
    inter: 256,
  } as const;

  /** Makes a model with all its matrices in one type, as its file and as a file of the widened values. */
  const files = (name: string): [quantized: ModelFiles, widened: ModelFiles] => {
    const plain = tinyModel('types', wide);
    const metadata: Record<string, string | number> = { 'general.architecture': 'qwen3' };
    const sizes = {
      context_length: 64,
      embedding_length: 256,
      feed_forward_length: 256,
      block_count: 1,
      'attention.head_count': 2,
    };
    const more = {
      'attention.head_count_kv': 1,
      'attention.key_length': 128,
      'attention.value_length': 128,
      'rope.freq_base': 10000,
    };
    for (const [key, value] of Object.entries({ ...sizes, ...more, 'attention.layer_norm_rms_epsilon': 1e-6 }))
      metadata[`qwen3.${key}`] = value;
    const names: Record<string, string> = {
      'model.embed_tokens': 'token_embd',
      'model.norm': 'output_norm',
      lm_head: 'output',
      'model.layers.0.input_layernorm': 'blk.0.attn_norm',
      'model.layers.0.self_attn.q_proj': 'blk.0.attn_q',
      'model.layers.0.self_attn.k_proj': 'blk.0.attn_k',
      'model.layers.0.self_attn.v_proj': 'blk.0.attn_v',
      'model.layers.0.self_attn.q_norm': 'blk.0.attn_q_norm',
      'model.layers.0.self_attn.k_norm': 'blk.0.attn_k_norm',
      'model.layers.0.self_attn.o_proj': 'blk.0.attn_output',
      'model.layers.0.post_attention_layernorm': 'blk.0.ffn_norm',
      'model.layers.0.mlp.gate_proj': 'blk.0.ffn_gate',
      'model.layers.0.mlp.up_proj': 'blk.0.ffn_up',
      'model.layers.0.mlp.down_proj': 'blk.0.ffn_down',
    };
    const [quantized, widened]: [MadeTensor[], MadeTensor[]] = [[], []];
    for (const [key, { shape, values }] of plain.weights) {
      const common = { name: `${names[key.replace(/\.weight$/, '')]}.weight`, shape: [...shape].reverse() };
      if (shape.length === 1) {
        for (const list of [quantized, widened]) list.push({ ...common, type: 0, bytes: bytesOf(values, 'f32') });
        continue;
      }
      const bytes = blocks(name, values.length);
      quantized.push({ ...common, type: CODES[name]!, bytes });
      const f32 = new Float32Array(values.length);
      widenBlocks(WIDENED.get(name)!, bytes, key, 'f32', f32);
      widened.push({ ...common, type: 0, bytes: bytesOf(f32, 'f32') });
    }
    return [{ 'm.gguf': ggufOf(quantized, metadata) }, { 'm.gguf': ggufOf(widened, metadata) }];
  };

  for (const name of Object.keys(CODES)) {
    test(`${name} gives the logits of the weights it holds`, async () => {
      const [quantized, widened] = files(name);
      const [got, want] = [await logitsOf(quantized), await logitsOf(widened)];
      const scale = Math.max(...want.map(Math.abs));
      assert.ok(scale > 0 && Number.isFinite(scale));
      for (const [n, value] of want.entries())
        assert.ok(Math.abs(got[n]! - value) <= 2e-6 * scale, `${name}[${n}]: ${got[n]}, want ${value}`);
    });
  }

  test("activations: 'q8' moves the logits of blocks a little, on cpu as on the reference, and no others", async () => {
    for (const name of ['Q8_0', 'Q4_0', 'Q6_K']) {
      const [quantized, widened] = files(name);
      const exact = await logitsOf(quantized);
      const got = await logitsOf(quantized, { activations: 'q8' });
      const reference = await ropewalk({ backend: 'reference' });
      const want = await logitsOf(quantized, { activations: 'q8', backend: reference });
      reference.dispose();
      const scale = Math.max(...exact.map(Math.abs));
      const apart = (a: Float32Array, b: Float32Array): number =>
        a.reduce((most, value, n) => Math.max(most, Math.abs(value - b[n]!)), 0) / scale;
      assert.ok(apart(got, exact) > 1e-4 && apart(got, exact) < 0.1, `${name}: ${apart(got, exact)} from exact`);
      // Another last bit than the reference's may tip an activation from one integer to the next.
      assert.ok(apart(got, want) < 0.02, `${name}: ${apart(got, want)} from the reference`);
      assert.deepEqual(await logitsOf(widened, { activations: 'q8' }), await logitsOf(widened));
    }
    const opened = await openBackend('cpu', { threads: 1 });
    const capabilities = () => ({ ...opened.capabilities(), activations: undefined });
    const others = new Ropewalk({ ...withFormats(opened, ['q8_0']), capabilities });
    const [plain] = files('Q8_0');
    await refused(
      logitsOf(plain, { backend: others, activations: 'q8' }),
      'UNSUPPORTED',
      /^loadModel: activations: .* does not round them\. Use cpu, or leave them at f32\./,
    );
    opened.dispose();
    await refused(
      logitsOf(plain, { activations: 'q4' as 'q8' }),
      'UNSUPPORTED',
      /^loadModel: activations: expected f32 or q8, got "q4"/,
    );
  });

  test('blocks that the backend reads stay blocks; the others become f32, f16 where that is asked for, 16 bits where those hold every weight', async () => {
    const weightsOf = async (name: string, options: LoadOptions = {}): Promise<number> => {
      const model = await loadModel(files(name)[0], { backend: rw, tokenizer, ...options });
      const { weightsBytes } = model.memory;
      model.dispose();
      return weightsBytes;
    };
    const matrices = 2 * 40 * 256 + 256 * 256 + 2 * 128 * 256 + 256 * 256 + 3 * 256 * 256;
    const vectors = 4 * (3 * 256 + 2 * 128);
    for (const format of BLOCK_FORMAT_NAMES)
      assert.equal(await weightsOf(format.toUpperCase()), blockBytes(format, matrices) + vectors, format);
    assert.equal(await weightsOf('Q5_1'), matrices * 4 + vectors);
    assert.equal(await weightsOf('Q5_1', { widenTo: 'f16' }), matrices * 2 + vectors);
    assert.equal(await weightsOf('TQ1_0'), matrices * 2 + vectors);
    const opened = await openBackend('cpu', { threads: 1 });
    const reads = (blockFormats?: readonly BlockFormat[]): LoadOptions => ({
      backend: new Ropewalk(withFormats(opened, blockFormats)),
    });
    assert.equal(await weightsOf('Q4_0', reads(['q8_0', 'q4_0'])), blockBytes('q4_0', matrices) + vectors);
    assert.equal(await weightsOf('Q4_K', reads(['q8_0', 'q4_0'])), matrices * 4 + vectors);
    assert.equal(await weightsOf('MXFP4', reads(['q8_0', 'q4_0'])), matrices * 2 + vectors);
    assert.equal(await weightsOf('Q8_0', reads()), matrices * 4 + vectors);
    opened.dispose();
    await refused(
      weightsOf('Q5_1', { widenTo: 'bf16' as 'f16' }),
      'DTYPE',
      /^loadModel: widenTo: expected f32 or f16, got "bf16"/,
    );
    const small = await ropewalk({ backend: 'cpu', threads: 1, memoryLimit: 2 ** 21 });
    await refused(
      weightsOf('Q5_1', { backend: small }),
      'DEVICE',
      /With widenTo: 'f16' the weights take [\d.]+ MiB less/,
    );
    small.dispose();
  });
});

describe('memory, progress, ending', () => {
  test('the sums come before any allocation, progress after it, and dispose frees everything', async () => {
    const start = available();
    const events: (ModelMemory | LoadProgress)[] = [];
    const model = await loadModel(made.gguf(), {
      ...{ backend: rw, tokenizer, context: 10, cacheDtype: 'f16' },
      onMemory(memory, config) {
        assert.equal(available(), start);
        assert.equal(config.numLayers, 2);
        events.push(memory);
      },
      onProgress: (progress) => events.push(progress),
    });
    const [memory, ...steps] = events as [ModelMemory, ...LoadProgress[]];
    assert.equal(memory, model.memory);
    const count = [...made.weights.values()].reduce((sum, { values }) => sum + values.length, 0);
    assert.equal(memory.weightsBytes, 4 * count);
    assert.equal(memory.cacheBytesPerToken, 2 * 2 * 2 * 8 * 2);
    assert.equal(memory.cacheBytes, 10 * memory.cacheBytesPerToken);
    assert.equal(memory.totalBytes, memory.weightsBytes + memory.cacheBytes + memory.scratchBytes + memory.tableBytes);
    assert.equal(steps.length, made.weights.size);
    assert.ok(
      steps.every(
        ({ doneBytes, totalBytes }, n) => totalBytes === 4 * count && doneBytes > (steps[n - 1]?.doneBytes ?? 0),
      ),
    );
    assert.equal(steps.at(-1)!.doneBytes, 4 * count);
    const session = model.openSession();
    assert.equal(session.capacity, 10);
    await session.append(TOKENS);
    const held = start - available();
    // Every tensor takes whole cache lines, and only one row of the head was needed.
    assert.ok(held >= memory.weightsBytes && held <= memory.totalBytes + 64 * 80, `${held} of ${memory.totalBytes}`);
    model.dispose();
    assert.ok(start - available() < 70000, 'only what the backend keeps for itself stays');
  });

  test('an error in a callback, a signal, or a file that ends: what was loaded is freed', async () => {
    await logitsOf(made.gguf()); // what the backend keeps for itself is there now
    const start = available();
    const bytes = made.gguf()['model.gguf']!;
    const stop = new Error('stop');
    await assert.rejects(
      loadModel(made.gguf(), {
        ...{ backend: rw, tokenizer },
        onMemory: () => {
          throw stop;
        },
      }),
      stop,
    );
    const control = new AbortController();
    const halfway = ({ doneBytes, totalBytes }: LoadProgress): void => {
      if (doneBytes > totalBytes / 2) control.abort(stop);
    };
    await assert.rejects(
      loadModel(made.gguf(), { backend: rw, tokenizer, onProgress: halfway, signal: control.signal }),
      stop,
    );
    await assert.rejects(loadModel(made.gguf(), { backend: rw, tokenizer, signal: AbortSignal.abort(stop) }), stop);
    const ends: ByteSource = {
      size: bytes.length,
      read: async (at, length) => bytes.slice(at, Math.min(at + length, bytes.length - 9000)),
    };
    const big: ByteSource = {
      ...ends,
      read: async (at, length) => (at === 0 ? bytes.slice(0, length) : ends.read(at, length)),
    };
    await refused(
      loadModel({ 'm.gguf': big }, { backend: rw, tokenizer }),
      'FORMAT',
      /m\.gguf: expected \d+ bytes from \d+, got \d+\. The file was cut/,
    );
    assert.equal(available(), start);
  });

  test('a model that does not fit is refused with the sums; nothing is allocated', async () => {
    const start = available();
    const seen: ModelMemory[] = [];
    const load = loadModel(made.gguf(), {
      backend: rw,
      tokenizer,
      availableBytes: () => 100000,
      onMemory: (memory) => seen.push(memory),
    });
    await refused(
      load,
      'DEVICE',
      /^m\S* on cpu: memory: [\d.]+ MiB are needed \(weights [\d.]+ MiB \+ cache of 64 tokens [\d.]+ MiB \+ activations [\d.]+ MiB \+ tables [\d.]+ MiB\), but only 0\.10 MiB are available/,
    );
    assert.equal(seen.length, 1);
    assert.equal(available(), start);
    const small = await ropewalk({ backend: 'cpu', threads: 1, memoryLimit: 2 ** 18 });
    try {
      await refused(loadModel(made.gguf(), { backend: small, tokenizer, context: 60 }), 'DEVICE', /activations/);
      const many = tinyModel('many', { ...made.shape, vocab: 4096 }).gguf();
      await refused(
        loadModel(many, { backend: small, tokenizer, context: 60 }),
        'DEVICE',
        /0\.19 MiB are available\. Take a smaller or more quantised model\. WebAssembly addresses 4 GiB at most; ONNX/,
      );
    } finally {
      small.dispose();
    }
  });

  test('one tensor too large for a device, and what to do', () => {
    const memory = {
      ...{
        weightsBytes: 100,
        cacheBytesPerToken: 1,
        context: 10,
        cacheBytes: 10,
        scratchBytes: 0,
        tableBytes: 0,
        widenedBytes: 0,
      },
      totalBytes: 110,
    };
    const large = { ...memory, largestBytes: 90, largestName: 'token_embd.weight' };
    checkFits('m on webgpu', large, { tensorBytes: 90 });
    checkFits('m on webgpu', large, {});
    assert.throws(() => checkFits('m on webgpu', large, { tensorBytes: 89 }), {
      code: 'DEVICE',
      message:
        /^m on webgpu: memory: token_embd\.weight takes .* MiB, but one tensor may take .* MiB\. Take a more quantised model/,
    });
    assert.throws(() => checkFits('m', large, { availableBytes: 105 }), /A context of 5 tokens would fit/);
    assert.throws(() => checkFits('m', large, { availableBytes: 90 }), /Take a smaller or more quantised model/);
    checkFits('m', large, { availableBytes: 10 }, 100);
  });
});

describe('files that are not what they should be', () => {
  const files = made.huggingFace();
  const cases: Record<string, [files: ModelFiles, code: string, message: RegExp]> = {
    'none at all': [{}, 'FORMAT', /^model: expected config\.json and \*\.safetensors, or one \*\.gguf, got no file\. /],
    'a long list': [
      Object.fromEntries('abcde'.split('').map((name) => [`${name.repeat(30)}.json`, new Uint8Array(1)])),
      'FORMAT',
      /, got "a{30}\.json", "b{30}\.json", "c{30}\.json" and 2 more\. Weights in other formats/,
    ],
    'weights of another kind': [
      { 'config.json': files['config.json']!, 'pytorch_model.bin': new Uint8Array(9) },
      'FORMAT',
      /convert them to safetensors/,
    ],
    'two GGUFs': [
      { 'a.gguf': new Uint8Array(9), 'b.gguf': new Uint8Array(9) },
      'FORMAT',
      /Give one of the \.gguf files itself/,
    ],
    'an empty GGUF': [
      { 'm.gguf': new Uint8Array(0) },
      'FORMAT',
      /m\.gguf: the header takes at least 4 bytes, but there are only 0/,
    ],
    'an empty safetensors': [
      { ...files, 'model.safetensors': new Uint8Array(0) },
      'FORMAT',
      /model\.safetensors: expected at least 8 bytes, got 0/,
    ],
    'a safetensors that ends early': [
      { ...files, 'model.safetensors': files['model.safetensors']!.slice(0, -4) },
      'FORMAT',
      /truncated or forged/,
    ],
    'a GGUF that ends early': [
      { 'm.gguf': made.gguf()['model.gguf']!.slice(0, -600) },
      'FORMAT',
      /its end <= file size \d+.*truncated or forged/,
    ],
    'an empty config': [{ ...files, 'config.json': new Uint8Array(0) }, 'FORMAT', /^config\.json: expected JSON/],
    'a config of another model': [
      { ...files, 'config.json': json({ ...made.config, hidden_size: 64 }) },
      'FORMAT',
      /model\.safetensors: tensor model\.embed_tokens\.weight: expected shape \[40,64\].*got \[40, 32\]/,
    ],
    'shards without an index': [
      { ...files, 'model-2.safetensors': files['model.safetensors']! },
      'FORMAT',
      /expected one \.safetensors file, or model\.safetensors\.index\.json beside several/,
    ],
    'an index that names a file elsewhere': [
      {
        ...sharded(),
        'model.safetensors.index.json': json({ weight_map: { 'model.norm.weight': '../secret.safetensors' } }),
      },
      'FORMAT',
      /index\.json: model\.norm\.weight: expected a \.safetensors file in the same folder, got "\.\.\/secret\.safetensors"/,
    ],
    'an index of nothing': [
      { ...sharded(), 'model.safetensors.index.json': json({ weight_map: {} }) },
      'FORMAT',
      /weight_map: it lists no tensors/,
    ],
    'an index that lies': [
      {
        ...sharded(),
        'model.safetensors.index.json': json({ weight_map: { 'model.x': 'model-00001-of-00003.safetensors' } }),
      },
      'FORMAT',
      /model-00001-of-00003\.safetensors: the index says that model\.x is in this file, but it is not/,
    ],
    'no bytes': [
      { 'm.gguf': 'text' as unknown as Uint8Array },
      'FORMAT',
      /loadModel: m\.gguf: expected bytes, a Blob, or \{ size, read \}/,
    ],
    'no map': [null as unknown as ModelFiles, 'FORMAT', /loadModel: files: expected a map/],
  };
  for (const [label, [bad, code, message]] of Object.entries(cases)) {
    test(`refusal: ${label}`, async () => {
      const start = available();
      await refused(loadModel(bad, { backend: rw, tokenizer }), code, message);
      assert.equal(available(), start);
    });
  }

  test('refusal: no vocabulary', async () => {
    await refused(
      loadModel(files, { backend: rw }),
      'FORMAT',
      /there is no tokenizer\.json beside config\.json.*options\.tokenizer/,
    );
    await refused(loadModel(made.gguf(), { backend: rw }), 'FORMAT', /tokenizer\.ggml\.model/);
  });

  test('refusal: options', async () => {
    await refused(
      loadModel(files, { backend: rw, tokenizer, context: 65 }),
      'RANGE',
      /^loadModel: context: expected an integer in \[1, 64\]/,
    );
    await refused(loadModel(files, { backend: rw, tokenizer, cacheDtype: 'f64' as 'f32' }), 'DTYPE', /cacheDtype/);
    await refused(
      loadModel(files, { backend: 'abacus' as 'cpu', tokenizer }),
      'UNSUPPORTED',
      /ropewalk: backend: expected auto or one of/,
    );
  });

  // 150 damaged files of each format give a model or one of our errors, and leak no memory.
  for (const [format, good] of [
    ['gguf', made.gguf()],
    ['safetensors', files],
  ] as const) {
    test(`damaged ${format}`, async () => {
      await logitsOf(good);
      const start = available();
      const name = Object.keys(good).at(-1)!;
      await fc.assert(
        fc.asyncProperty(damage, async (steps) => {
          // Damaged weights are just another model, so only the header is damaged.
          const head = steps.map((step) => ({ ...step, at: step.at % 3000 }));
          const bad = { ...good, [name]: damaged(good[name as keyof typeof good]!, head) };
          try {
            const model = await loadModel(bad, { backend: rw, tokenizer, context: 8 });
            model.dispose();
          } catch (error) {
            assert.ok(error instanceof RopewalkError, String(error));
            assert.ok(error.message.length < 2000);
          }
        }),
        drawn(150),
      );
      assert.equal(available(), start);
    });
  }
});

describe('on disk', () => {
  let root: string;
  before(() => {
    root = mkdtempSync(join(tmpdir(), 'ropewalk-model-'));
    mkdirSync(join(root, 'hf'));
    mkdirSync(join(root, 'one.gguf'));
    mkdirSync(join(root, 'empty'));
    for (const [name, bytes] of Object.entries(sharded())) writeFileSync(join(root, 'hf', name), bytes);
    // Beside a complete model in safetensors, a GGUF is another copy of it.
    writeFileSync(join(root, 'hf', 'broken.gguf'), 'no GGUF');
    writeFileSync(join(root, 'hf', 'README.md'), 'left alone');
    writeFileSync(join(root, 'one.gguf', 'm.gguf'), made.gguf()['model.gguf']!);
  });
  after(() => rmSync(root, { recursive: true }));

  test('a folder of shards, a folder with one GGUF, a GGUF', async () => {
    const options = { backend: rw, tokenizer };
    const want = await logitsOf(files());
    for (const open of [
      () => loadModelFolder(join(root, 'hf'), options),
      () => loadModelPath(join(root, 'hf'), options),
      () => loadModelFolder(join(root, 'one.gguf'), options),
      () => loadModelPath(join(root, 'one.gguf'), options),
      () => loadModelFile(join(root, 'one.gguf', 'm.gguf'), options),
    ]) {
      const model = await open();
      const got = await model.openSession().append(TOKENS);
      const scale = Math.max(...want.map(Math.abs));
      for (const [n, value] of want.entries()) assert.ok(Math.abs(got[n]! - value) < 1e-5 * scale);
      model.dispose();
    }
  });

  test('refusals name the path', async () => {
    await refused(loadModelPath(join(root, 'absent')), 'FORMAT', /absent: there is no such file or folder/);
    await refused(loadModelFolder(join(root, 'absent')), 'FORMAT', /absent: there is no such file or folder/);
    await refused(loadModelFolder(join(root, 'empty')), 'FORMAT', /empty: expected config\.json and \*\.safetensors/);
    await refused(loadModelFile(join(root, 'one.gguf')), 'FORMAT', /one\.gguf: expected a regular file, got a folder/);
    mkdirSync(join(root, 'piped'));
    if (spawnSync('mkfifo', [join(root, 'piped', 'config.json')]).status === 0) {
      const message = /config\.json: expected a regular file, got a pipe\. Write its content to a file first/;
      await refused(loadModelFolder(join(root, 'piped')), 'FORMAT', message);
    }
    await refused(
      loadModelFile(join(root, 'hf', 'config.json')),
      'FORMAT',
      /expected a \.gguf file, got "config\.json"/,
    );
    await refused(loadModelFile(join(root, 'hf', 'broken.gguf')), 'FORMAT', /broken\.gguf: it is not a GGUF file/);
  });

  test('the machine, not only the backend, must have the memory', async () => {
    const short = { backend: rw, tokenizer, availableBytes: () => 1000 };
    await refused(
      loadModelFolder(join(root, 'hf'), short),
      'DEVICE',
      /hf on cpu: memory: .* but only 0\.00 MiB are available\. Take a smaller or more quantised model\.$/,
    );
  });

  const files = (): ModelFiles => made.huggingFace();
});
