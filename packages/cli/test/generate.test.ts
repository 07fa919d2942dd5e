/** `ropewalk generate` and `ropewalk perplexity` with the bundled model, as a user runs them. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { ROOT } from '../../../test/support/build.js';
import { commandPath, ropewalkIn } from '../../../test/support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'generate-'));
after(() => rmSync(folder, { recursive: true }));
const generate = (...args: string[]) => ropewalkIn(folder, 'generate', ...args);
const box = join(ROOT, 'models/marline');
const RAG = { name: 'rag', template: 'x' };

/** A copy of the bundled model, with other fields in one of its .json files. @returns its name */
function variant(name: string, file: string, fields: object): string {
  cpSync(box, join(folder, name), { recursive: true });
  const path = join(folder, name, file);
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...fields }));
  return name;
}

describe('generate', () => {
  test('with a prompt only: the bundled model continues it, text to stdout, the rest to stderr', async () => {
    const { status, stdout, stderr } = await generate('Call me', '--max-tokens', '24');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^Call me.{20,}\n$/s);
    assert.match(stderr, /marline: llama, 4 layers; weights 3\.3\d MiB, KV cache of 256 tokens 0\.50 MiB, in all \d/);
    assert.match(
      stderr,
      /cpu: prompt \d tokens at [\d.]+\/s, then 24 tokens at [\d.]+\/s; as many tokens as asked for; seed \d+/,
    );
  });

  test('-1 as in llama.cpp: tokens until the context is full, and any seed', async () => {
    const { status, stderr } = await generate('Call me', '-n', '-1', '-c', '16', '-s', '-1');
    assert.equal(status, 0, stderr);
    assert.match(stderr, /(the context is full|the model ended its text).*; seed \d+/);
  });

  test('the same seed gives the same text, another seed another', async () => {
    const text = async (seed: string): Promise<string> =>
      (await generate('The sea', '--max-tokens', '20', '--temperature', '1', '--seed', seed)).stdout;
    const first = await text('7');
    assert.equal(await text('7'), first);
    assert.notEqual(await text('8'), first);
  });

  test('--session: the start of a prompt is kept in a file; another file is left as it is', async () => {
    const asked = ['-n', '12', '--temperature', '0', '--session', 'chat.session'];
    const first = await generate('Call me Ishmael. Some years ago', ...asked);
    assert.equal(first.status, 0, first.stderr);
    const longer = 'Call me Ishmael. Some years ago, never';
    const next = await generate(longer, ...asked);
    assert.equal(next.stdout, (await generate(longer, ...asked.slice(0, 4))).stdout);
    assert.match(next.stderr, /cpu: prompt [1-4] tokens/);
    writeFileSync(join(folder, 'notes.txt'), 'a text, and no session');
    const { status, stderr } = await generate('Call', '--session', 'notes.txt');
    assert.equal(status, 2);
    assert.match(stderr, /saved session: /);
    assert.equal(readFileSync(join(folder, 'notes.txt'), 'utf8'), 'a text, and no session');
  });

  test('JSON: one object with text, tokens and why it ended; a stop text ends it and is not in the text', async () => {
    const sampled = ['Call me', '--seed', '5', '--max-tokens', '24', '--json'];
    const whole = JSON.parse((await generate(...sampled)).stdout) as {
      text: string;
      tokens: number[];
      reason: string;
    };
    assert.equal(whole.reason, 'length');
    assert.equal(whole.tokens.length, 24);
    const stop = whole.text.slice(6, 10);
    const cut = JSON.parse((await generate(...sampled, '--stop', stop)).stdout) as { text: string; reason: string };
    assert.equal(cut.reason, 'stop');
    assert.equal(cut.text, whole.text.slice(0, whole.text.indexOf(stop)));
  });

  test('the GGUF in 8 bits, with a cache in f16, on another backend', async () => {
    const { status, stdout, stderr } = await generate(
      'It is a truth',
      ...[
        '--model',
        join(box, 'model-q8_0.gguf'),
        '--backend',
        'reference',
        '--cache-dtype',
        'f16',
        '--max-tokens',
        '3',
      ],
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^It is a truth.+\n$/s);
    assert.match(stderr, /reference: prompt/);
  });

  test('a full context ends it and says so; --on-full shift continues', async () => {
    const stopped = await generate('Call me', '--context', '16', '--max-tokens', '40');
    assert.match(stopped.stderr, /the context is full \(--on-full shift goes on\)/);
    const shifted = await generate('Call me', '--context', '16', '--max-tokens', '40', '--on-full', 'shift');
    assert.match(shifted.stderr, /then 40 tokens/);
  });

  test('without a model: says what it runs, and samples with the settings of that model; --temp 0 overrides them', async () => {
    const sampled = await generate('Call me', '--max-tokens', '8', '-s', '3');
    assert.match(sampled.stderr, /^No --model: this runs the small one that comes with ropewalk\.\n.*marline: llama/);
    const same = await generate('Call me', '-n', '8', '-s', '3', '--temp', '0.8', '--top-p', '0.95', '-m', box);
    assert.equal(same.stdout, sampled.stdout);
    assert.doesNotMatch(same.stderr, /No --model/);
    const greedy = await generate('Call me', '-n', '8', '--temp', '0');
    const llama = await generate('Call me', '--n-predict', '8', '--ctx-size', '64', '-m', join(box, 'config.json'));
    assert.equal(llama.stdout, greedy.stdout);
    assert.match(llama.stderr, /KV cache of 64 tokens/);
    assert.doesNotMatch(llama.stderr, /seed/);
  });

  const piped = (input: string, command: string, ...args: string[]) => {
    const argv = [commandPath(), command, ...args];
    return spawnSync(process.execPath, argv, { cwd: folder, encoding: 'utf8', input });
  };

  test('the prompt as an argument, by -p, from a file, from stdin by - and by a pipe alone: the same', async () => {
    writeFileSync(join(folder, 'prompt.txt'), 'Call me\n');
    const greedy = ['--temp', '0', '-n', '4'];
    const { stdout } = await generate('Call me', ...greedy);
    assert.match(stdout, /^Call me.+\n$/);
    assert.equal((await generate('-p', 'Call me', ...greedy)).stdout, stdout);
    assert.equal((await generate('-f', 'prompt.txt', ...greedy)).stdout, stdout);
    assert.equal(piped('Call me\n', 'generate', '-', ...greedy).stdout, stdout);
    assert.equal(piped('Call me\r\n', 'generate', '-p', '-', ...greedy).stdout, stdout);
    assert.equal(piped('Call me\r\n', 'generate', ...greedy).stdout, stdout);
    assert.match(
      piped('', 'generate', ...greedy).stderr,
      /generate: the prompt is empty: the text starts from the model's start token\n/,
    );
  });

  test('a pipe beside a prompt is not read, and stderr says so; an empty one is ignored', () => {
    const unread = /ropewalk: generate: a prompt is given, so what is piped in is not read\. Give - to read it\.\n/;
    const both = piped('The sea', 'generate', 'Call me', '-n', '1');
    assert.match(both.stdout, /^Call me/);
    assert.match(both.stderr, unread);
    assert.doesNotMatch(piped('', 'generate', 'Call me', '-n', '1').stderr, unread);
  });

  const refusals: [string, string[], RegExp][] = [
    [
      'two prompts',
      ['x', '-p', 'y'],
      /^ropewalk: generate: -p: it is given by an argument and --prompt\. Give it once\.\n$/,
    ],
    [
      'a prompt file that is not there',
      ['-f', 'none.txt'],
      /^ropewalk: generate: none\.txt: there is no such file or folder\n$/,
    ],
    [
      '999 threads',
      ['x', '-t', '999'],
      /^ropewalk: generate: -t: expected an integer in \[1, 16\], got "999"\. 16 is the most\.\n$/,
    ],
    [
      'threads of another backend',
      ['x', '-t', '2', '-b', 'reference'],
      /generate: -t: the backend reference has no threads to set\. Leave it out/,
    ],
    ['a context that is too small', ['Call me', '-c', '1'], /Shorten the prompt, or give a larger context/],
    ['threads that are none', ['x', '-t', '0'], /^ropewalk: generate: -t: expected an integer in \[1, 16\]/],
    [
      "a hub's id",
      ['x', '-m', 'some-org/a-model-1.5B'],
      /-m: there is no folder some-org\/a-model-1\.5B, .* hf download some-org\/a-model-1\.5B --local-dir a-model-1\.5B\. Then give -m a-model-1\.5B\./,
    ],
    ['a model that is not there', ['x', '-m', 'nowhere'], /nowhere: there is no such file or folder/],
    [
      'a chat without a template',
      ['hello', '--chat'],
      /--chat: the model has no chat template\. Without --chat it continues the prompt\./,
    ],
    [
      'a chat with a model whose templates have other names',
      ['hello', '--chat', '-m', variant('named', 'tokenizer_config.json', { chat_template: [RAG] })],
      /--chat: the model has no chat template named default\. Without --chat it continues the prompt\./,
    ],
    ['a system message without --chat', ['hello', '--system', 'be brief'], /--system: it needs --chat/],
    ['a temperature that is none', ['x', '--temp', 'hot'], /--temp: expected a number, got "hot"/],
    ['a negative temperature', ['x', '-m', 'nowhere', '--temp', '-1'], /--temp: expected a number >= 0, got -1/],
    [
      'a context past the model',
      ['x', '--context', '4096'],
      /^ropewalk: generate: --context: expected an integer in \[1, 256\]/,
    ],
    ['a backend that is none', ['x', '-b', 'tpu'], /^ropewalk: generate: -b: expected auto or one of/],
    [
      'a cache dtype that is none',
      ['x', '--cache-dtype', 'q8_0'],
      /^ropewalk: generate: --cache-dtype: expected f32, f16, bf16, f8_e4m3 or i8/,
    ],
    [
      'activations that are none',
      ['x', '--activations', 'q4'],
      /^ropewalk: generate: --activations: expected f32 or q8, got "q4"/,
    ],
    // These are refused before a model, however large, is read.
    [
      'an empty stop',
      ['x', '-m', 'nowhere', '--stop', ''],
      /^ropewalk: generate: --stop: expected strings that are not empty/,
    ],
    [
      'a count below zero',
      ['x', '-m', 'nowhere', '-n', '-2'],
      /^ropewalk: generate: -n: expected an integer >= 0, got -2/,
    ],
    [
      'another way to go on',
      ['x', '-m', 'nowhere', '--on-full', 'wrap'],
      /^ropewalk: generate: --on-full: expected stop or shift, got "wrap"/,
    ],
  ];
  for (const [name, args, message] of refusals) {
    test(`refused: ${name}`, async () => {
      const { status, stdout, stderr } = await generate(...args);
      assert.deepEqual([status, stdout], [2, ''], stderr);
      assert.match(stderr, message);
    });
  }

  test('a truncated model and a forged one are refused before anything is loaded', async () => {
    const bytes = readFileSync(join(box, 'model-q8_0.gguf'));
    writeFileSync(join(folder, 'cut.gguf'), bytes.subarray(0, bytes.length / 2));
    const cut = await generate('x', '-m', 'cut.gguf');
    assert.equal(cut.status, 2, cut.stderr);
    assert.match(cut.stderr, /^ropewalk: generate: cut\.gguf: /m);
    writeFileSync(join(folder, 'empty.gguf'), '');
    assert.equal((await generate('x', '-m', 'empty.gguf')).status, 2);
  });

  test('Ctrl-C ends it cleanly, with 130', async () => {
    const child = spawn(process.execPath, [commandPath(), 'generate', 'Call', '-n', '100000', '--on-full', 'shift'], {
      cwd: folder,
    });
    child.stdout.once('data', () => child.kill('SIGINT'));
    let stderr = '';
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    const status = await new Promise((done) => child.on('close', done));
    assert.equal(status, 130, stderr);
    assert.match(stderr, /interrupted/);
  });
});

describe('embed', () => {
  const MARLINE = join(ROOT, 'models/marline');
  const run = (...args: string[]) => ropewalkIn(folder, 'embed', MARLINE, ...args);

  test('a line of numbers for each text, the same in --json, in a .npy and from a file', async () => {
    const texts = ['A whale.', 'A ship.'];
    const { embeddings, shape } = JSON.parse((await run(...texts, '--json')).stdout) as {
      embeddings: number[][];
      shape: number[];
    };
    assert.deepEqual(shape, [2, 192]);
    for (const vector of embeddings) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-6);
    const printed = (await run(...texts)).stdout.trim().split('\n');
    assert.deepEqual(
      printed.map((line) => line.split(' ').map((word) => Math.fround(Number(word)))),
      embeddings,
    );
    writeFileSync(join(folder, 'texts.txt'), `${texts.join('\r\n')}\n\n`);
    const { status, stdout } = await run('-f', 'texts.txt', '-o', 'vectors.npy');
    assert.equal(status, 0);
    assert.equal(stdout, 'vectors.npy: f32 [2, 192] on cpu\n');
    const { data } = parseNpy(readFileSync(join(folder, 'vectors.npy')));
    assert.deepEqual([...(data as Float32Array)], embeddings.flat());
    assert.match((await run('a', '-o', 'vectors.npy')).stderr, /vectors\.npy: .*--force/);
    const argv = [commandPath(), 'embed', MARLINE, '--prefix', 'A ', '--dimensions', '4', '--no-normalize'];
    const piped = spawnSync(process.execPath, argv, { cwd: folder, encoding: 'utf8', input: 'whale.\n' });
    const whole = (await run('A whale.', '--no-normalize')).stdout;
    assert.deepEqual(piped.stdout.trim().split(' '), whole.split(' ').slice(0, 4));
  });

  const refusals: readonly (readonly [args: string[], message: RegExp])[] = [
    [['a', '-o', 'vectors.txt'], /^ropewalk: embed: -o: expected a \.npy file/],
    [['a', '--dimensions', '193'], /^ropewalk: embed: --dimensions: expected an integer in \[1, .*192/],
    [['a', '--dimensions', 'x'], /^ropewalk: embed: --dimensions: expected an integer/],
    [['a', '--pooling', 'max'], /^ropewalk: embed: --pooling: expected mean, cls or last, got "max"/],
    [['a', '--prompt-name', 'query'], /^ropewalk: embed: --prompt-name: the model's files have no prompts/],
    [['a', '-f', 'texts.txt'], /^ropewalk: embed: -f: texts are given as arguments too/],
    [['-f', 'empty.txt'], /^ropewalk: embed: -f: it has no text/],
    [['-f', 'none.txt'], /none\.txt: there is no such file/],
    [['whale '.repeat(600)], /^ropewalk: embed: text: expected at most maxContext=\d+ tokens, got \d+.*in parts/],
  ];
  for (const [args, message] of refusals)
    test(`refused: ${args.join(' ').slice(0, 40)}`, async () => {
      writeFileSync(join(folder, 'empty.txt'), '\n');
      const { status, stderr } = await run(...args);
      assert.equal(status, 2);
      assert.match(stderr.trim().split('\n').at(-1)!, message);
    });
});

describe('perplexity', () => {
  test('scores a text, the same on two backends to 1e-4', async () => {
    writeFileSync(join(folder, 'text.txt'), readFileSync(join(ROOT, 'training/held-back.txt'), 'utf8').slice(0, 400));
    const score = async (...args: string[]): Promise<{ perplexity: number; bitsPerByte: number; bytes: number }> => {
      const { status, stdout, stderr } = await ropewalkIn(folder, 'perplexity', 'text.txt', '--json', ...args);
      assert.equal(status, 0, stderr);
      return JSON.parse(stdout) as { perplexity: number; bitsPerByte: number; bytes: number };
    };
    const [cpu, reference] = [await score(), await score('--backend', 'reference')];
    assert.ok(Math.abs(cpu.perplexity / reference.perplexity - 1) < 1e-4, `${cpu.perplexity} ${reference.perplexity}`);
    assert.ok(cpu.bitsPerByte > 0.5 && cpu.bitsPerByte < 3, String(cpu.bitsPerByte));
    assert.match(
      (await ropewalkIn(folder, 'perplexity', 'text.txt')).stdout,
      /^perplexity [\d.]+ a token, [\d.]+ bits a byte \(\d+ tokens, \d+ bytes, cpu\)\n$/,
    );
    const long = variant('long', 'config.json', { max_position_embeddings: 2048 });
    const said = async (...args: string[]) =>
      (await ropewalkIn(folder, 'perplexity', 'text.txt', '-m', long, ...args)).stderr;
    assert.match(await said(), /KV cache of 512 tokens/);
    assert.match(await said('-c', '600'), /KV cache of 600 tokens/);
  });

  test('a text from stdin, by - or by a pipe alone, is the same as from its file; no text at all is refused', async () => {
    const text = 'It was a dark and stormy night; the whale was abroad.';
    writeFileSync(join(folder, 'short.txt'), text);
    const { stdout } = await ropewalkIn(folder, 'perplexity', '-f', 'short.txt');
    assert.match(stdout, /^perplexity /);
    for (const args of [['-'], []]) {
      const argv = [commandPath(), 'perplexity', ...args];
      assert.equal(spawnSync(process.execPath, argv, { cwd: folder, encoding: 'utf8', input: text }).stdout, stdout);
    }
    const argv = [commandPath(), 'perplexity'];
    const both = spawnSync(process.execPath, [...argv, 'short.txt'], {
      cwd: folder,
      encoding: 'utf8',
      input: 'another',
    });
    assert.equal(both.stdout, stdout);
    assert.match(
      both.stderr,
      /ropewalk: perplexity: a file is given, so what is piped in is not read\. Give - to read it\.\n/,
    );
    const none = spawnSync(process.execPath, argv, {
      cwd: folder,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    assert.equal(none.status, 2);
    assert.match(none.stderr, /^ropewalk: perplexity: text: no text is given\. Name a file/);
  });

  test('refused: a missing file, and one that is not text', async () => {
    assert.match(
      (await ropewalkIn(folder, 'perplexity', 'none.txt')).stderr,
      /^ropewalk: perplexity: none\.txt: there is no such file or folder/,
    );
    writeFileSync(join(folder, 'bytes.txt'), Uint8Array.of(0xff, 0xfe, 0x80));
    assert.equal((await ropewalkIn(folder, 'perplexity', 'bytes.txt')).status, 2);
  });
});
