/**
 * `ropewalk generate` and `ropewalk perplexity` with the model in the box, as a user runs them.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { ROOT } from '../support/build.js';
import { commandPath, ropewalkIn } from '../support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'generate-'));
after(() => rmSync(folder, { recursive: true }));
const generate = (...args: string[]) => ropewalkIn(folder, 'generate', ...args);
const box = join(ROOT, 'models/marline');

describe('generate', () => {
  test('with nothing to say but a prompt: the model in the box goes on, text to stdout, the rest to stderr', () => {
    const { status, stdout, stderr } = generate('Call me', '--max-tokens', '24');
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^Call me.{20,}\n$/s);
    assert.match(stderr, /marline: llama, 4 layers; weights 3\.3\d MiB, KV cache of 256 tokens 0\.50 MiB, in all \d/);
    assert.match(stderr, /cpu: prompt \d tokens at [\d.]+\/s, then 23 tokens at [\d.]+\/s; as many tokens as asked for; seed \d+/);
  });

  test('the same seed gives the same text, another seed another', () => {
    const text = (seed: string): string => generate('The sea', '--max-tokens', '20', '--temperature', '1', '--seed', seed).stdout;
    const first = text('7');
    assert.equal(text('7'), first);
    assert.notEqual(text('8'), first);
  });

  test('JSON: one object with text, tokens and why it ended; a stop text ends it and is not in the text', () => {
    const whole = JSON.parse(generate('Call me', '--max-tokens', '24', '--json').stdout) as {
      text: string;
      tokens: number[];
      reason: string;
    };
    assert.equal(whole.reason, 'length');
    assert.equal(whole.tokens.length, 24);
    const stop = whole.text.slice(6, 10);
    const cut = JSON.parse(generate('Call me', '--max-tokens', '24', '--json', '--stop', stop).stdout) as { text: string; reason: string };
    assert.equal(cut.reason, 'stop');
    assert.equal(cut.text, whole.text.slice(0, whole.text.indexOf(stop)));
  });

  test('the GGUF in 8 bits, with a cache in f16, on another backend', () => {
    const { status, stdout, stderr } = generate(
      'It is a truth',
      ...['--model', join(box, 'model-q8_0.gguf'), '--backend', 'reference', '--cache-dtype', 'f16', '--max-tokens', '3'],
    );
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^It is a truth.+\n$/s);
    assert.match(stderr, /reference: prompt/);
  });

  test('a full context ends it and says so; --on-full shift goes on', () => {
    const stopped = generate('Call me', '--context', '16', '--max-tokens', '40');
    assert.match(stopped.stderr, /the context is full \(--on-full shift goes on\)/);
    const shifted = generate('Call me', '--context', '16', '--max-tokens', '40', '--on-full', 'shift');
    assert.match(shifted.stderr, /then 39 tokens/);
  });

  const refusals: [string, string[], RegExp][] = [
    ['a model that is not there', ['x', '-m', 'nowhere'], /nowhere: expected a folder or a \.gguf file, got "ENOENT"/],
    ['a chat without a template', ['hello', '--chat'], /chat.*template/],
    ['a system message without --chat', ['hello', '--system', 'be brief'], /generate: --system: expected it beside --chat/],
    ['a temperature that is none', ['x', '-t', 'hot'], /generate: --temperature: expected a number, got "hot"/],
    ['a negative temperature', ['x', '-m', 'nowhere', '-t', '-1'], /temperature: expected a number >= 0, got -1/],
    ['a context past the model', ['x', '--context', '4096'], /context: expected an integer in \[1, 256\]/],
    ['a backend that is none', ['x', '-b', 'tpu'], /ropewalk: backend: expected auto or one of/],
    ['a cache dtype that is none', ['x', '--cache-dtype', 'q8_0'], /cacheDtype: expected f32, f16 or bf16/],
    // These are refused before a model, however large, is read.
    ['an empty stop', ['x', '-m', 'nowhere', '--stop', ''], /stop: expected texts that are not empty/],
    ['a count below zero', ['x', '-m', 'nowhere', '-n', '-1'], /maxTokens: expected an integer >= 0, got -1/],
    ['another way to go on', ['x', '-m', 'nowhere', '--on-full', 'wrap'], /onFull: expected stop or shift, got "wrap"/],
  ];
  for (const [name, args, message] of refusals) {
    test(`refused: ${name}`, () => {
      const { status, stdout, stderr } = generate(...args);
      assert.deepEqual([status, stdout], [2, ''], stderr);
      assert.match(stderr, message);
    });
  }

  test('a truncated model and a forged one are refused before anything is loaded', () => {
    const bytes = readFileSync(join(box, 'model-q8_0.gguf'));
    writeFileSync(join(folder, 'cut.gguf'), bytes.subarray(0, bytes.length / 2));
    const cut = generate('x', '-m', 'cut.gguf');
    assert.equal(cut.status, 2, cut.stderr);
    assert.match(cut.stderr, /^ropewalk: cut\.gguf: /m);
    writeFileSync(join(folder, 'empty.gguf'), '');
    assert.equal(generate('x', '-m', 'empty.gguf').status, 2);
  });

  test('Ctrl-C ends it cleanly, with 130', async () => {
    const child = spawn(process.execPath, [commandPath(), 'generate', 'Call', '-n', '100000', '--on-full', 'shift'], { cwd: folder });
    child.stdout.once('data', () => child.kill('SIGINT'));
    let stderr = '';
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    const status = await new Promise((done) => child.on('close', done));
    assert.equal(status, 130, stderr);
    assert.match(stderr, /interrupted; seed/);
  });
});

describe('perplexity', () => {
  test('scores a text, the same on two backends to 1e-4', () => {
    writeFileSync(join(folder, 'text.txt'), readFileSync(join(ROOT, 'training/held-back.txt'), 'utf8').slice(0, 400));
    const score = (...args: string[]): { perplexity: number; bitsPerByte: number; bytes: number } => {
      const { status, stdout, stderr } = ropewalkIn(folder, 'perplexity', 'text.txt', '--json', ...args);
      assert.equal(status, 0, stderr);
      return JSON.parse(stdout) as { perplexity: number; bitsPerByte: number; bytes: number };
    };
    const [cpu, reference] = [score(), score('--backend', 'reference')];
    assert.ok(Math.abs(cpu.perplexity / reference.perplexity - 1) < 1e-4, `${cpu.perplexity} ${reference.perplexity}`);
    assert.ok(cpu.bitsPerByte > 0.5 && cpu.bitsPerByte < 3, String(cpu.bitsPerByte));
    assert.match(
      ropewalkIn(folder, 'perplexity', 'text.txt').stdout,
      /^perplexity [\d.]+ a token, [\d.]+ bits a byte \(\d+ tokens, \d+ bytes, cpu\)\n$/,
    );
  });

  test('refused: a file that is not there, and one that is no text', () => {
    assert.match(ropewalkIn(folder, 'perplexity', 'none.txt').stderr, /perplexity: expected a readable file none\.txt, got "ENOENT"/);
    writeFileSync(join(folder, 'bytes.txt'), Uint8Array.of(0xff, 0xfe, 0x80));
    assert.equal(ropewalkIn(folder, 'perplexity', 'bytes.txt').status, 2);
  });
});
