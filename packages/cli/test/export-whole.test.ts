/** `ropewalk export --whole` as a user runs it. */
import assert from 'node:assert/strict';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseOnnxModel } from '@ropewalk/onnx';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { interrupted, onFullDisk } from '../../../test/support/cut-short.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { tinyModel } from '../../../test/support/tiny-model.js';
import { withoutOnnxruntime } from '../../../test/support/without-onnxruntime.js';

const folder = mkdtempSync(join(tmpdir(), 'export-whole-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, ...args);
const marline = join(ROOT, 'models/marline');

interface Written {
  readonly folder: string;
  readonly form: string;
  readonly angles: string;
  readonly context: number;
  readonly bytes: number;
  readonly files: readonly { readonly name: string; readonly sizeBytes: number }[];
  readonly inputs: readonly { readonly name: string }[];
  readonly precision: readonly { readonly position: number; readonly maxError: number }[];
  readonly notes: readonly string[];
}

test('a model becomes a folder; its sizes, form and precision are said', async () => {
  const { status, stdout, stderr } = await ropewalk('export', marline, '--whole', '-o', 'text');
  assert.deepEqual([status, stderr], [0, '']);
  assert.match(stdout, /^llama, 4 layers: ONNX opset \d+, form contrib, angles f32-table, context 256\n/);
  assert.match(stdout, /\n {2}onnx\/model\.onnx +[\d,]+ bytes\n/);
  assert.match(stdout, /\n {2}255 +\d\.\de-\d+\n\nWrote text, [\d,]+ bytes\.\n$/);
});

test('as JSON, with every option that applies', async () => {
  const options = ['--form', 'primitives', '--angles', 'f64', '--context', '64', '--quantize', 'q8_0'];
  const { status, stdout, stderr } = await ropewalk('export', marline, '--whole', '-o', 'json', ...options, '--json');
  assert.deepEqual([status, stderr], [0, '']);
  const written = JSON.parse(stdout) as Written;
  assert.deepEqual([written.folder, written.form, written.angles, written.context], ['json', 'primitives', 'f64', 64]);
  assert.equal(written.inputs[0]!.name, 'input_ids');
  assert.ok(written.precision.every(({ maxError }) => maxError < 1e-7));
  assert.deepEqual(written.notes, [
    "The graph has room for 64 positions; config.json says 256, the model's own context.",
    ...(noOnnxruntime ? [`The graph was not loaded to try it: ${noOnnxruntime}.`] : []),
  ]);
  let bytes = 0;
  for (const { name, sizeBytes } of written.files) {
    assert.equal(statSync(join(folder, 'json', name)).size, sizeBytes, name);
    bytes += sizeBytes;
  }
  assert.equal(bytes, written.bytes);
  const found = readdirSync(join(folder, 'json'), { recursive: true }).filter((name) => name !== 'onnx');
  assert.deepEqual(found.sort(), written.files.map(({ name }) => name).sort());
});

test('where onnxruntime-node is not installed, a note says that the graph was not loaded', () => {
  const { status, stdout } = withoutOnnxruntime(folder, 'export', marline, '--whole', '-o', 'alone');
  assert.equal(status, 0);
  assert.match(
    stdout,
    /\n {2}note: The graph was not loaded to try it: the package onnxruntime-node is not installed:/,
  );
});

test('activations beside blocks are in int8, or in f32 where it is asked for', async () => {
  const levelsOf = async (out: string, ...options: string[]): Promise<Set<unknown>> => {
    assert.equal((await ropewalk('export', marline, '--whole', '-o', out, '--quantize', 'q8_0', ...options)).status, 0);
    const { graph } = parseOnnxModel(readFileSync(join(folder, out, 'onnx/model.onnx')), out);
    const products = graph.nodes.filter(({ opType }) => opType === 'MatMulNBits');
    return new Set(products.map(({ attributes }) => attributes.get('accuracy_level')?.value));
  };
  assert.deepEqual(await levelsOf('q8'), new Set([4]));
  assert.deepEqual(await levelsOf('f32', '--activations', 'f32'), new Set([0]));
});

test('config.json tells transformers.js the name of the graph, and how many data files it has', async () => {
  writeFileSync(join(folder, 'tied.gguf'), tinyModel('whole', { ...SHAPE, blocks: 'q8_0' }).gguf()['model.gguf']!);
  await ropewalk('export', 'tied.gguf', '--whole', '-o', 'tied');
  const config = JSON.parse(readFileSync(join(folder, 'tied/config.json'), 'utf8'));
  const keys = { dtype: 'fp32', use_external_data_format: { 'model.onnx': 1 } };
  assert.deepEqual(config['transformers.js_config'], keys);
  assert.ok(existsSync(join(folder, 'tied/onnx/model.onnx_data')));
});

test('--widen-halves: f16 weights take twice the bytes; --force replaces the folder', async () => {
  const size = async (...more: string[]): Promise<number> =>
    JSON.parse((await ropewalk('export', marline, '--whole', '-o', 'wide', '--json', '--force', ...more)).stdout).bytes;
  const halves = await size();
  assert.ok((await size('--widen-halves')) > 1.9 * halves);
});

test('what does not apply or is wrong is refused in a line, and nothing is written', async () => {
  const cases: [string[], RegExp][] = [
    [
      [marline, '--whole', '-o', 'x', '--form', 'standard', '--activations', 'f32'],
      /--activations: it is for form contrib: standard leaves it to the runtime, primitives are exact\.$/,
    ],
    [['--whole', '-o', 'x'], /model: --whole needs a model: a HuggingFace folder, or a \.gguf file\.$/],
    [[marline, '--whole'], /--out: it is missing\. Name the folder to write\.$/],
    [
      [marline, '--whole', '-o', 'model.onnx'],
      /-o: expected the name of a folder, got "model\.onnx"\. It gets the graph/,
    ],
    [[marline, '--whole', '-o', 'x', '--dtype', 'f16'], /--dtype: it does not apply to --whole\. Leave it out\.$/],
    [[marline, '-o', 'x', '--quantize', 'q8_0'], /--quantize: it does not apply to RoPE\. Leave it out\.$/],
    [['--op', 'add', '--shape', '2', '--force'], /--force: it does not apply to --op add\. Leave it out\.$/],
    [[marline, '--whole', '-o', 'x', '--form', 'no'], /--form: expected contrib, standard or primitives, got "no"$/],
    [[marline, '--whole', '-o', 'x', '--quantize', 'q5'], /--quantize: expected q8_0 or q4_0, got "q5"$/],
    [[marline, '--whole', '-o', 'x', '-c', '257'], /-c: expected an integer in \[1, 256\], .*, got 257$/],
    [[marline, '--whole', '-o', marline], /marline: it is the folder that is read\. Write to a new name\.$/],
    [['absent', '--whole', '-o', 'x'], /absent: there is no such file or folder/],
    [
      [marline, '--whole', '-o', '.'],
      /\.: the folder has files in it\. Give a folder that is new or empty, or --force/,
    ],
    [[marline, '--whole', '-o', '.', '--force'], /ropewalk export --whole did not write this folder/],
  ];
  writeFileSync(join(folder, 'mine'), 'x');
  for (const [args, message] of cases) {
    const { status, stdout, stderr } = await ropewalk('export', ...args);
    assert.deepEqual([status, stdout], [2, ''], args.join(' '));
    assert.match(stderr, /^ropewalk: export: .*\n$/);
    assert.match(stderr.trimEnd(), message);
  }
  assert.ok(!existsSync(join(folder, 'x')));
});

const SHAPE = {
  family: 'llama',
  layers: 1,
  hidden: 32,
  heads: 1,
  kvHeads: 1,
  headDim: 32,
  inter: 32,
  vocab: 40,
  tied: true,
} as const;

describe('work that is cut short leaves nothing', () => {
  const dir = join(folder, 'cut');
  const model = join(dir, 'model');
  /** A model of zeros whose vocabulary is a sparse half gigabyte: exporting it takes long enough to be interrupted. */
  const start = (): void => {
    if (existsSync(dir)) return;
    const vocab = 2 ** 22;
    const { config, weights } = tinyModel('cut', SHAPE);
    let at = 0;
    const header = [...weights].map(([name, { shape }]) => {
      const rows = name.includes('embed') ? [vocab, 32] : shape;
      const offsets = [at, (at += rows.reduce((a, b) => a * b, 4))];
      return [name, { dtype: 'F32', shape: rows, data_offsets: offsets }];
    });
    const text = new TextEncoder().encode(JSON.stringify(Object.fromEntries(header)));
    mkdirSync(model, { recursive: true });
    writeFileSync(join(model, 'config.json'), JSON.stringify({ ...config, vocab_size: vocab }));
    const file = join(model, 'model.safetensors');
    writeFileSync(file, Buffer.concat([new Uint8Array(BigUint64Array.of(BigInt(text.length)).buffer), text]));
    truncateSync(file, 8 + text.length + at);
  };
  const args = ['export', model, '--whole', '-o', join(dir, 'out')];

  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    test(signal, () => {
      start();
      return interrupted(signal, dir, args);
    });

  test('a disk that is full: exit 2', () => {
    start();
    onFullDisk(dir, args, '. Make room there, or write elsewhere.');
  });
});
