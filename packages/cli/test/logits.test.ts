/** `ropewalk logits` and `ropewalk compare-logits`, as a user runs them; against llama.cpp's logits. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseNpy, writeNpy } from '@ropewalk/formats';
import type { ArrayOf, Dtype } from 'ropewalk';
import { bf16FromNumber, f16FromNumber } from 'ropewalk';
import { ROOT } from '../../../test/support/build.js';
import { commandPath, ropewalkIn } from '../../../test/support/command.js';
import { examplesOf } from '../../../test/support/examples.js';
import { FAMILIES, FIXTURES, LLAMACPP_BESIDE, noLlamacppBeside } from '../../../test/support/fixtures.js';
import { tinyModel } from '../../../test/support/tiny-model.js';

const folder = mkdtempSync(join(tmpdir(), 'logits-'));
after(() => rmSync(folder, { recursive: true }));
const run = (...args: string[]) => ropewalkIn(folder, ...args);
const box = join(ROOT, 'models/marline');
const TEXT = 'Call me Ishmael.';
/** The tolerance between two runtimes of float32. */
const EXACT = ['--tolerance', '0.001'];

/** Writes an array into the folder. @returns its name */
function npy<D extends Dtype>(name: string, dtype: D, shape: readonly number[], data: ArrayOf[D]): string {
  writeFileSync(join(folder, name), writeNpy(data, { dtype, shape }));
  return name;
}
const read = (name: string) => parseNpy(readFileSync(join(folder, name)), name);

const VOCAB = 24;
const TOKENS = [3, 1, 20, 7, 7, 0];
const SHAPE = { family: 'qwen3', layers: 2, hidden: 16, heads: 2, kvHeads: 1, headDim: 8, inter: 16 } as const;
const tiny = tinyModel('logits of the command line', { ...SHAPE, vocab: VOCAB, context: 32 });
before(() => {
  writeFileSync(join(folder, 'tiny.gguf'), tiny.gguf()['model.gguf']!);
  mkdirSync(join(folder, 'tiny'));
  for (const [name, bytes] of Object.entries(tiny.huggingFace())) writeFileSync(join(folder, 'tiny', name), bytes);
  npy('tokens.npy', 'i32', [6], Int32Array.from(TOKENS));
  npy('want.npy', 'f64', [6, VOCAB], tiny.logits(TOKENS));
});

describe('logits', () => {
  test('of a model without a tokenizer, from GGUF, folder and config.json: what float64 loops compute', async () => {
    const want = tiny.logits(TOKENS);
    for (const model of ['tiny.gguf', 'tiny', 'tiny/config.json']) {
      const { status, stdout, stderr } = await run(
        'logits',
        model,
        '--tokens',
        'tokens.npy',
        '-o',
        'tiny.npy',
        '--force',
      );
      assert.equal(status, 0, stderr);
      assert.equal(stdout, `tiny.npy: f32 [6, ${VOCAB}] on cpu\n`);
      const { dtype, shape, data } = read('tiny.npy');
      assert.deepEqual([dtype, shape], ['f32', [6, VOCAB]]);
      for (const [n, value] of want.entries()) assert.ok(Math.abs((data[n] as number) - value) < 1e-5, `${model} ${n}`);
    }
  });

  test('tokens of every integer dtype; a thread, a context, a cache and a backend as asked for', async () => {
    const bytes = async (...args: string[]): Promise<Buffer> => {
      const { status, stderr } = await run('logits', 'tiny.gguf', '-o', 'same.npy', '--force', ...args);
      assert.equal(status, 0, stderr);
      return readFileSync(join(folder, 'same.npy'));
    };
    const first = await bytes('--tokens', 'tokens.npy');
    npy('i64.npy', 'i64', [6], BigInt64Array.from(TOKENS, BigInt));
    npy('u8.npy', 'u8', [6], Uint8Array.from(TOKENS));
    for (const name of ['i64.npy', 'u8.npy']) assert.deepEqual(await bytes('--tokens', name), first, name);
    assert.deepEqual(await bytes('--tokens', 'tokens.npy', '-t', '2', '-c', '6', '--cache-dtype', 'f32'), first);
    assert.notDeepEqual(await bytes('--tokens', 'tokens.npy', '--cache-dtype', 'f16'), first);
    assert.deepEqual(await bytes('--tokens', 'tokens.npy', '--activations', 'q8'), first, 'its weights are f32');
    await bytes('--tokens', 'tokens.npy', '--backend', 'reference');
    assert.equal((await run('compare-logits', 'want.npy', 'same.npy', ...EXACT)).status, 0);
  });

  test('memory is said for the context in use: the number of tokens, or --context; of a prompt too', async () => {
    const said = async (...args: string[]): Promise<string> => {
      const { status, stderr } = await run('logits', ...args, '-o', 'room.npy', '--force');
      assert.equal(status, 0, stderr);
      return stderr;
    };
    assert.match(await said('tiny.gguf', '--tokens', 'tokens.npy'), /, KV cache of 6 tokens /);
    assert.match(await said('tiny.gguf', '--tokens', 'tokens.npy', '-c', '9'), /, KV cache of 9 tokens /);
    assert.match(await said(box, '-p', TEXT), /, KV cache of 10 tokens /);
    assert.match(
      (await run('compare-logits', 'want.npy', 'tiny.gguf', '--tokens', 'tokens.npy')).stderr,
      /KV cache of 6 tokens/,
    );
  });

  test('the usage names what is required', async () => {
    assert.match((await run('logits', '--help')).stdout, /^Usage: ropewalk logits \[options\] <model> --out <file>$/m);
    assert.match(
      (await run('permute', '--help')).stdout,
      /^Usage: ropewalk permute \[options\] <in> \[out\] --to <pairing>$/m,
    );
  });

  test('a prompt, by -p, from a file and from a pipe: the same; --json prints its tokens, which give the same file', async () => {
    writeFileSync(join(folder, 'prompt.txt'), `${TEXT}\n`);
    const { status, stdout, stderr } = await run('logits', box, '-p', TEXT, '-o', 'box.npy', '--json');
    assert.equal(status, 0, stderr);
    const { tokens, ...rest } = JSON.parse(stdout) as { tokens: number[] };
    assert.deepEqual(rest, { out: 'box.npy', dtype: 'f32', shape: [tokens.length, 1024], backend: 'cpu' });
    assert.equal(tokens[0], 1, 'BOS comes first, as in generate');
    const first = readFileSync(join(folder, 'box.npy'));
    npy('box-tokens.npy', 'u16', [tokens.length], Uint16Array.from(tokens));
    for (const args of [['--tokens', 'box-tokens.npy'], ['-f', 'prompt.txt'], ['-p', '-'], []]) {
      const argv = [commandPath(), 'logits', box, '-o', 'again.npy', '--force', ...args];
      const again = spawnSync(process.execPath, argv, { cwd: folder, encoding: 'utf8', input: `${TEXT}\r\n` });
      assert.equal(again.status, 0, again.stderr);
      assert.deepEqual(readFileSync(join(folder, 'again.npy')), first, args.join(' '));
    }
  });

  const tokensOf = (name: string, ...ids: number[]) => npy(name, 'i32', [ids.length], Int32Array.from(ids));
  const refusals: [what: string, args: () => string[], message: RegExp][] = [
    ['no output', () => ['tiny.gguf', '--tokens', 'tokens.npy'], /required option '-o, --out <file>'/],
    [
      'an output that is a stream',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-o', '-'],
      /^ropewalk: logits: -o: expected a \.npy file, got "-"/,
    ],
    [
      'an output that exists',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-o', 'want.npy'],
      /^ropewalk: logits: want\.npy: it already exists\. Give another, or --force to replace it\./,
    ],
    [
      'an output that is the input',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-o', './tokens.npy', '--force'],
      /tokens\.npy: it is the file that is read\. Write to a new name\./,
    ],
    [
      'an output in a folder that is not there',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-o', 'nowhere/out.npy'],
      /nowhere: there is no such file or folder/,
    ],
    [
      'a model that is not there',
      () => ['none.gguf', '--tokens', 'tokens.npy', '-o', 'out.npy'],
      /^ropewalk: logits: none\.gguf: there is no such file or folder/,
    ],
    [
      'tokens that are not there',
      () => ['tiny.gguf', '--tokens', 'none.npy', '-o', 'out.npy'],
      /^ropewalk: logits: --tokens: none\.npy: there is no such file or folder/,
    ],
    [
      'tokens that are no .npy',
      () => ['tiny.gguf', '--tokens', 'tiny.gguf', '-o', 'out.npy'],
      /it is not a \.npy file/,
    ],
    [
      'tokens that are no integers',
      () => ['tiny.gguf', '--tokens', 'want.npy', '-o', 'out.npy'],
      /^ropewalk: logits: --tokens: want\.npy: expected integers, got "f64"/,
    ],
    [
      'tokens that are booleans',
      () => {
        const text = readFileSync(join(folder, npy('bool.npy', 'u8', [2], Uint8Array.of(1, 0))), 'latin1');
        writeFileSync(join(folder, 'bool.npy'), text.replace('|u1', '|b1'), 'latin1');
        return ['tiny.gguf', '--tokens', 'bool.npy', '-o', 'out.npy'];
      },
      /^ropewalk: logits: --tokens: bool\.npy: expected integers, got "bool"/,
    ],
    [
      'a backend without the operators of a decoder, before the model is read',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-b', 'ascend-model', '-o', 'out.npy'],
      /^ropewalk: logits: -b: expected auto or one of cpu, webgpu, reference, onnxruntime, got "ascend-model"$/m,
    ],
    [
      'tokens of two dimensions',
      () => ['tiny.gguf', '--tokens', npy('2d.npy', 'i32', [1, 2], Int32Array.of(1, 2)), '-o', 'out.npy'],
      /^ropewalk: logits: --tokens: 2d\.npy: expected shape \[tokens\], with at least one, got \[1, 2\]/,
    ],
    ['no token', () => ['tiny.gguf', '--tokens', tokensOf('0.npy'), '-o', 'out.npy'], /with at least one, got \[0\]/],
    [
      'a token outside the vocabulary',
      () => ['tiny.gguf', '--tokens', tokensOf('far.npy', 1, VOCAB), '-o', 'out.npy'],
      /^ropewalk: logits: tokens\[1\]: expected an id in \[0, vocabulary=24\), got 24$/m,
    ],
    [
      'a negative token',
      () => ['tiny.gguf', '--tokens', tokensOf('minus.npy', -1), '-o', 'out.npy'],
      /tokens\[0\]: expected an id in \[0, vocabulary=24\), got -1/,
    ],
    [
      'a context too short',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-c', '5', '-o', 'out.npy'],
      /^ropewalk: logits: --tokens: expected at most 5 tokens, the context, got 6\. Give a larger context, of at most 32\.$/m,
    ],
    [
      'more tokens than the model takes',
      () => ['tiny.gguf', '--tokens', tokensOf('long.npy', ...new Array<number>(33).fill(1)), '-o', 'out.npy'],
      /^ropewalk: logits: --tokens: expected at most 32 tokens, the context, got 33\. Give fewer\.$/m,
    ],
    [
      'tokens and a prompt',
      () => ['tiny.gguf', '--tokens', 'tokens.npy', '-p', 'text', '-o', 'out.npy'],
      /^ropewalk: logits: -p: it does not go with --tokens\. Leave one of them out\./,
    ],
    [
      'neither',
      () => ['tiny.gguf', '-o', 'out.npy'],
      /^ropewalk: logits: prompt: no tokens and no text are given\. Give --tokens FILE\.npy or --prompt TEXT\./,
    ],
    [
      'a prompt for a model without a tokenizer',
      () => ['tiny.gguf', '-p', 'text', '-o', 'out.npy'],
      /^ropewalk: logits: tiny\.gguf: .*tokenizer/m,
    ],
    [
      'positions of another length',
      () => {
        npy('positions.npy', 'i32', [4, 5], new Int32Array(20));
        return ['tiny.gguf', '--tokens', 'tokens.npy', '--positions', 'positions.npy', '-o', 'out.npy'];
      },
      /^ropewalk: logits: --positions: expected shape \[tokens=6\], or \[axes, 6\], got \[4, 5\]/,
    ],
    [
      'a position below zero',
      () => {
        npy('positions.npy', 'i32', [6], Int32Array.of(0, 1, -1, 2, 3, 4));
        return ['tiny.gguf', '--tokens', 'tokens.npy', '--positions', 'positions.npy', '-o', 'out.npy'];
      },
      /^ropewalk: logits: --positions: expected an integer in \[0, \d+\], got -1$/m,
    ],
    [
      'axes that the model does not have',
      () => {
        npy('positions.npy', 'i32', [2, 6], new Int32Array(12));
        return ['tiny.gguf', '--tokens', 'tokens.npy', '--positions', 'positions.npy', '-o', 'out.npy'];
      },
      /^ropewalk: logits: --positions: expected shape \[tokens=6\], got \[2, 6\]$/m,
    ],
    [
      'positions of three dimensions',
      () => {
        npy('positions.npy', 'i32', [1, 1, 6], new Int32Array(6));
        return ['tiny.gguf', '--tokens', 'tokens.npy', '--positions', 'positions.npy', '-o', 'out.npy'];
      },
      /--positions: expected shape \[tokens=6\]/,
    ],
  ];
  test('positions: counted from 0 they change nothing, moved they do', async () => {
    npy('zero.npy', 'i32', [6], Int32Array.of(0, 1, 2, 3, 4, 5));
    npy('apart.npy', 'u16', [1, 6], Uint16Array.of(0, 1, 2, 9, 10, 11));
    const at = (name: string) =>
      run('compare-logits', 'want.npy', 'tiny.gguf', '--tokens', 'tokens.npy', '--positions', name, ...EXACT);
    assert.equal((await at('zero.npy')).status, 0, (await at('zero.npy')).stderr);
    const apart = await at('apart.npy');
    assert.equal(apart.status, 1, apart.stderr);
    assert.match(apart.stdout, /at token [345], id/);
  });

  for (const [what, args, message] of refusals)
    test(`exit 2, and nothing is left: ${what}`, async () => {
      const given = args();
      const files = readdirSync(folder);
      const { status, stdout, stderr } = await run('logits', ...given);
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
      assert.equal(stdout, '');
      assert.deepEqual(readdirSync(folder), files);
    });

  test('Ctrl-C while it runs: nothing is written', async () => {
    const long = tinyModel('long', { ...SHAPE, vocab: VOCAB, context: 32768 });
    mkdirSync(join(folder, 'long'));
    for (const [name, bytes] of Object.entries(long.huggingFace())) writeFileSync(join(folder, 'long', name), bytes);
    npy('many.npy', 'i32', [32768], new Int32Array(32768).fill(5)); // takes the reference far longer than a signal
    const files = readdirSync(folder);
    const argv = [commandPath(), 'logits', 'long', '--tokens', 'many.npy', '-o', 'out.npy', '--backend', 'reference'];
    const child = spawn(process.execPath, argv, { cwd: folder });
    let stderr = '';
    child.stderr.on('data', (data) => {
      stderr += data;
      if (/KV cache/.test(stderr)) child.kill('SIGINT');
    });
    const [code, signal] = await new Promise<unknown[]>((done) => child.on('close', (...how) => done(how)));
    assert.deepEqual([code, signal], [null, 'SIGINT'], stderr);
    assert.match(stderr, /ropewalk: logits: interrupted; nothing was written\n$/);
    assert.deepEqual(readdirSync(folder), files);
  });
});

describe('compare-logits', () => {
  const compare = (...args: string[]) => run('compare-logits', ...args);
  const withTokens = ['--tokens', 'tokens.npy'];

  test('a file and a model, two models, a file and itself: 0, and what that means', async () => {
    const found = await compare('want.npy', 'tiny.gguf', ...withTokens, ...EXACT);
    assert.equal(found.status, 0, found.stderr);
    assert.match(
      found.stdout,
      /^A {2}want\.npy: f64 \[6, 24\]\nB {2}tiny\.gguf: qwen3, 6 tokens on cpu\n {2}max \|Δ\| +\d\.\de-\d+ at token \d, id \d+: \S+ in A, \S+ in B\n {2}KL\(A‖B\) +mean \d\.\de-\d+ nats, max \d\.\de-\d+ at token \d\n {2}top-1 +the same at 6 of 6 tokens\n {2}top-5 +100 % of the five likeliest ids are in both\nsame: no logit differs by more than 0\.001, and no probability by more than \d\.\d+ % of itself\n$/,
    );
    assert.equal((await compare('tiny.gguf', 'want.npy', ...withTokens, ...EXACT)).status, 0);
    const models = await compare('tiny.gguf', 'tiny', ...withTokens, '--json');
    assert.equal(models.status, 0, models.stderr);
    assert.equal((JSON.parse(models.stdout) as { maxDifference: number }).maxDifference, 0);
    for (const same of [
      await compare('want.npy', 'want.npy', '--tolerance', '0'),
      await compare('tiny', 'tiny', ...withTokens),
    ]) {
      assert.equal(same.status, 0, same.stderr);
      assert.match(same.stdout, /max \|Δ\| +0\n.*\nsame: every logit is equal\n$/s);
    }
  });

  test('two models whose tokenizers make other tokens of a text: refused before a weight is read; ids are compared', async () => {
    cpSync(box, join(folder, 'other'), { recursive: true });
    const file = join(folder, 'other/tokenizer.json');
    const vocabulary = JSON.parse(readFileSync(file, 'utf8')) as { model: { merges: unknown[] } };
    vocabulary.model.merges.length = 0;
    writeFileSync(file, JSON.stringify(vocabulary));
    const told =
      /^ropewalk: compare-logits: other: its tokenizer makes other tokens of the text than that of .*marline: token 1 is id \d+, there it is id \d+\. Give both the same ids: --tokens FILE\.npy\.$/m;
    const texts = await compare(box, 'other', '-p', TEXT);
    assert.equal(texts.status, 2, texts.stdout);
    assert.match(texts.stderr, told);
    assert.doesNotMatch(texts.stderr, /^other: /m);
    assert.match(
      (await compare('other', box, '-p', TEXT)).stderr,
      /marline: its tokenizer makes other tokens of the text than/,
    );
    assert.equal((await compare(box, 'other', ...withTokens)).status, 0);
  });

  test('JSON: every measure', async () => {
    npy('a.npy', 'f32', [2, 3], Float32Array.of(0, 1, 2, 5, 0, 0));
    npy('b.npy', 'f32', [2, 3], Float32Array.of(0, 1, 2, 5, 0, 5.5));
    const { status, stdout } = await compare('a.npy', 'b.npy', '--json', '--tolerance', '1');
    assert.equal(status, 1);
    const { klMean, klMax, ...rest } = JSON.parse(stdout) as { klMean: number; klMax: number };
    assert.deepEqual(rest, {
      a: { name: 'a.npy', about: 'f32 [2, 3]' },
      b: { name: 'b.npy', about: 'f32 [2, 3]' },
      same: false,
      limits: { tolerance: 1 },
      tokens: 2,
      vocabSize: 3,
      compared: 2,
      maxDifference: 5.5,
      maxDifferenceAt: { token: 1, id: 2, a: 0, b: 5.5 },
      klMaxToken: 1,
      top1: 0.5,
      top5: 1,
      firstApart: { token: 1, a: 0, b: 2 },
    });
    assert.equal(klMean, klMax / 2);
  });

  test('1 when a logit differs by more than the tolerance, and what that means', async () => {
    const base = [1, 2, 3, 3, 2, 1];
    npy('a.npy', 'f32', [2, 3], Float32Array.from(base));
    const moved = (name: string, at: number, by: number) =>
      npy(
        name,
        'f32',
        [2, 3],
        Float32Array.from(base, (value, n) => (n === at ? value + by : value)),
      );
    const near = await compare('a.npy', moved('near.npy', 0, 2 ** -9), '--tolerance', '0.001');
    assert.equal(near.status, 1);
    assert.match(
      near.stdout,
      /different: logits differ by more than 0\.001; the likeliest next token is the same everywhere\n$/,
    );
    assert.equal((await compare('a.npy', 'near.npy', '--tolerance', String(2 ** -9))).status, 0);
    assert.equal((await compare('a.npy', 'near.npy', '--tolerance', String(2 ** -9 - 1e-9))).status, 1);
    const far = await compare('a.npy', moved('far.npy', 5, 4));
    assert.match(
      far.stdout,
      /top-1 +the same at 1 of 2 tokens; first apart at token 1: id 0, and 2 in B\n.*\ndifferent: the mean KL divergence is \S+, more than 0\.01; with A and B the likeliest text parts after token 1\n$/s,
    );
    const broken = await compare('a.npy', moved('nan.npy', 4, Number.NaN), '--tolerance', '100');
    assert.equal(broken.status, 1);
    assert.match(
      broken.stdout,
      /broken +1 of 2 tokens are not compared: the first is token 1, whose id 1 has 2 in A and NaN in B\ndifferent: some logits are no numbers\n$/,
    );
    const minus = Number.NEGATIVE_INFINITY;
    for (const pair of [
      ['a.npy', moved('masked.npy', 4, minus)],
      ['masked.npy', 'a.npy'],
    ] as const) {
      const masked = await compare(...pair);
      assert.equal(masked.status, 1);
      assert.match(
        masked.stdout,
        /\ndifferent: an id is ruled out \(-Infinity\) in one only; rule it out in both to compare the other ids\n$/,
      );
    }
    assert.match((await compare('masked.npy', 'masked.npy')).stdout, /same: every logit is equal/);
    for (const odd of [Number.NaN, Number.POSITIVE_INFINITY])
      assert.match(
        (await compare('masked.npy', moved('odd.npy', 4, odd))).stdout,
        /different: some logits are no numbers\n$/,
      );
    npy('dead.npy', 'f32', [2, 3], new Float32Array(6).fill(minus));
    assert.match((await compare('dead.npy', 'dead.npy')).stdout, /different: some logits are no numbers\n$/);
    npy('all.npy', 'f32', [2, 3], new Float32Array(6).fill(Number.NaN));
    const none = await compare('all.npy', 'all.npy');
    assert.equal(none.status, 1);
    assert.doesNotMatch(none.stdout, /KL|top|undefined/);
  });

  test('limits for CI: --kl and --top1; quantised weights are within those that hold unless given', async () => {
    const ours = await run('logits', box, '-p', TEXT, '-o', 'f16.npy', '--force');
    assert.equal(ours.status, 0, ours.stderr);
    const q8 = join(box, 'model-q8_0.gguf');
    const within = await compare('f16.npy', q8, '-p', TEXT);
    assert.equal(within.status, 0, within.stdout);
    assert.match(within.stdout, /\nwithin mean KL <= 0\.01: no further than .*--tolerance 0\.001\n$/);
    const limits = async (...args: string[]) => (await compare('f16.npy', q8, '-p', TEXT, ...args)).status;
    assert.equal(await limits('--tolerance', '0.001'), 1);
    assert.equal(await limits('--kl', '1e-7'), 1);
    assert.equal(await limits('--kl', '0.1', '--top1', '0.5'), 0);
    npy('a.npy', 'f32', [2, 3], Float32Array.of(0, 1, 2, 5, 5.01, 0));
    npy('b.npy', 'f32', [2, 3], Float32Array.of(0, 1, 2, 5.01, 5, 0));
    assert.equal((await compare('a.npy', 'b.npy')).status, 0, 'a near tie');
    const top1 = await compare('a.npy', 'b.npy', '--top1', '0.9', '--kl', '1');
    assert.equal(top1.status, 1);
    assert.match(
      top1.stdout,
      /different: the likeliest id is the same at 50 % of the tokens, less than 90 %; with A and B/,
    );
    assert.equal((await compare('a.npy', 'b.npy', '--top1', '0.5')).status, 0);
    for (const [flag, value, expected] of [
      ['--top1', '95', 'a share in \\[0, 1\\]'],
      ['--kl', '-1', 'a number >= 0'],
      ['--kl', 'small', 'a number'],
    ] as const) {
      const refused = await compare('a.npy', 'b.npy', flag, value);
      assert.equal(refused.status, 2);
      assert.match(refused.stderr, new RegExp(`^ropewalk: compare-logits: ${flag}: expected ${expected}, got`));
    }
  });

  test('a file whose name is in capitals', async () => {
    npy('WANT.NPY', 'f64', [6, VOCAB], tiny.logits(TOKENS));
    assert.equal((await compare('want.npy', 'WANT.NPY', ...EXACT)).status, 0);
  });

  test('files of every float dtype and byte order are alike', async () => {
    const values = [0.5, -2, 3, 1, 0, -0.25];
    npy('f32.npy', 'f32', [2, 3], Float32Array.from(values));
    npy('f64.npy', 'f64', [2, 3], Float64Array.from(values));
    npy('f16.npy', 'f16', [2, 3], Uint16Array.from(values, f16FromNumber));
    npy('bf16.npy', 'bf16', [2, 3], Uint16Array.from(values, bf16FromNumber));
    const big = readFileSync(join(folder, 'f32.npy'));
    for (let at = big.length - 24; at < big.length; at += 4) big.subarray(at, at + 4).reverse();
    big.write('>', big.indexOf('<'));
    writeFileSync(join(folder, 'big.npy'), big);
    for (const name of ['f64', 'f16', 'bf16', 'big'])
      assert.match(
        (await compare('f32.npy', `${name}.npy`, '--tolerance', '0')).stdout,
        /same: every logit is equal/,
        name,
      );
  });

  const [row, rows] = [new Float32Array(3), new Float32Array(6)];
  const refusals: [what: string, args: () => string[], message: RegExp][] = [
    [
      'other shapes of two files',
      () => [npy('one.npy', 'f32', [1, 3], row), npy('two.npy', 'f32', [2, 3], rows)],
      /^ropewalk: compare-logits: two\.npy: expected shape \[1, 3\], as one\.npy has, got \[2, 3\]/,
    ],
    [
      'a model with another vocabulary, before its weights are read',
      () => [npy('six.npy', 'f32', [6, 3], new Float32Array(18)), 'tiny.gguf', ...withTokens],
      /^ropewalk: compare-logits: tiny\.gguf: expected shape \[6, 3\], as six\.npy has, got \[6, 24\]/,
    ],
    [
      'other numbers of tokens',
      () => ['want.npy', 'tiny.gguf', '--tokens', npy('few.npy', 'i32', [2], Int32Array.of(1, 2))],
      /^ropewalk: compare-logits: tiny\.gguf: expected shape \[6, 24\], as want\.npy has, got \[2, 24\]/,
    ],
    [
      'three dimensions',
      () => [npy('3d.npy', 'f32', [1, 1, 3], row), '3d.npy'],
      /3d\.npy: expected shape \[tokens, vocabulary\], got \[1, 1, 3\]/,
    ],
    ['no tokens', () => [npy('none.npy', 'f32', [0, 3], new Float32Array(0)), 'none.npy'], /got \[0, 3\]/],
    ['integers', () => ['tokens.npy', 'want.npy'], /tokens\.npy: expected f16, bf16, f32 or f64, got "i32"/],
    [
      'a cut file',
      () => {
        writeFileSync(join(folder, 'cut.npy'), readFileSync(join(folder, 'want.npy')).subarray(0, -8));
        return ['cut.npy', 'want.npy'];
      },
      /cut\.npy: expected 1152 bytes of data for shape \[6,24\] of <f8, got 1144\. The file is truncated or forged\./,
    ],
    [
      'columns that lie together',
      () => {
        const text = readFileSync(join(folder, 'want.npy'), 'latin1').replace(
          "'fortran_order': False",
          "'fortran_order': True ",
        );
        writeFileSync(join(folder, 'fortran.npy'), text, 'latin1');
        return ['want.npy', 'fortran.npy'];
      },
      /fortran\.npy: its rows are not together \(fortran_order\)\. Save it with numpy\.ascontiguousarray\./,
    ],
    [
      'options of a model with two files',
      () => ['want.npy', 'want.npy', '-c', '8'],
      /^ropewalk: compare-logits: -c: it is about a model, and both A and B are \.npy files\. Leave it out\./,
    ],
    [
      'a model without tokens',
      () => ['want.npy', 'tiny.gguf'],
      /prompt: no tokens and no text are given\. Give --tokens FILE\.npy or --prompt TEXT\./,
    ],
    ...(['a.npz', 'logits.txt', 'tokens'] as const).map((name): (typeof refusals)[number] => [
      `a file that is neither .npy nor a model: ${name}`,
      () => {
        writeFileSync(join(folder, name), '');
        return ['want.npy', name, ...(name === 'a.npz' ? withTokens : [])];
      },
      new RegExp(
        `^ropewalk: compare-logits: ${name}: expected a \\.npy file of logits, or a model: a \\.gguf file or a folder, ` +
          `got "${name}"$`,
        'm',
      ),
    ]),
    [
      'a model that is not there',
      () => ['gone', 'want.npy'],
      /^ropewalk: compare-logits: gone: there is no such file or folder/,
    ],
    [
      'a tolerance below zero',
      () => ['want.npy', 'want.npy', '--tolerance', '-1'],
      /--tolerance: expected a number >= 0, got -1/,
    ],
    [
      'a tolerance that is none',
      () => ['want.npy', 'want.npy', '--tolerance', 'little'],
      /--tolerance: expected a number/,
    ],
    ['a file that is not there', () => ['want.npy', 'nowhere.npy'], /nowhere\.npy: there is no such file or folder/],
    ['one side only', () => ['want.npy'], /missing required argument 'b'/],
  ];
  for (const [what, args, message] of refusals)
    test(`exit 2: ${what}`, async () => {
      const { status, stdout, stderr } = await compare(...args());
      assert.equal(status, 2, stderr);
      assert.match(stderr, message);
      assert.equal(stdout, '');
    });

  test('the example of docs/model.md', () => {
    const [{ code, output } = { code: '', output: '' }] = examplesOf('docs/model.md', 'sh');
    const command = code.replaceAll('npx ropewalk', `"${process.execPath}" "${commandPath()}"`);
    const at = code.includes('node_modules/@ropewalk/cli/models/marline');
    assert.ok(at, code);
    const ran = spawnSync(command.replaceAll('node_modules/@ropewalk/cli/models/marline', box), {
      cwd: folder,
      encoding: 'utf8',
      shell: true,
    });
    assert.equal(ran.stdout.replaceAll(box, 'node_modules/@ropewalk/cli/models/marline'), output, ran.stderr);
  });
});

describe("llama.cpp's logits of its models", () => {
  const own = ['llamacpp/models/qwen2-yarn', 'llamacpp/models/qwen3-norm', 'families/exaone4-hybrid'];
  const beside = noLlamacppBeside ? [] : ['llama-llama3', 'llama-yarn-logmul', 'llama-sliding'];
  for (const name of [...own.map((one) => join(FIXTURES, one)), ...beside.map((one) => join(LLAMACPP_BESIDE, one))])
    test(basename(name), async () => {
      const at = (end: string): string => `${name}.${end}`;
      const { status, stdout } = await run(
        ...['compare-logits', at('logits.npy'), at('gguf'), '--tokens', at('tokens.npy'), '-c', '256', ...EXACT],
      );
      assert.equal(status, 0, stdout);
    });
});

describe("llama.cpp's logits with positions of several axes", () => {
  for (const name of ['qwen2vl', 'qwen3vl'])
    test(name, async () => {
      const at = (end: string): string => join(FAMILIES, `${name}.${end}`);
      const compare = (...args: string[]) =>
        run(
          'compare-logits',
          at('mrope-logits.npy'),
          at('gguf'),
          '--tokens',
          at('tokens.npy'),
          '-c',
          '256',
          ...EXACT,
          ...args,
        );
      const given = await compare('--positions', at('mrope-positions.npy'));
      assert.equal(given.status, 0, given.stdout + given.stderr);
      const { shape, data } = parseNpy(readFileSync(at('mrope-positions.npy')));
      const tokens = shape[1]!;
      npy('three.npy', 'i64', [3, tokens], BigInt64Array.from(data.subarray(0, 3 * tokens) as Int32Array, BigInt));
      assert.equal((await compare('--positions', 'three.npy')).status, 0);
      assert.equal((await compare()).status, 1, 'without them the logits are others');
      npy('five.npy', 'i32', [5, tokens], new Int32Array(5 * tokens));
      const five = await compare('--positions', 'five.npy');
      assert.equal(five.status, 2);
      assert.match(five.stderr, /--positions: expected shape \[tokens=64\] or \[3, 64\] or \[4, 64\], got \[5, 64\]$/m);
    });
});
