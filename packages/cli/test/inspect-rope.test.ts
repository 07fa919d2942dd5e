/** Tests the RoPE that `ropewalk inspect` finds in ONNX graphs, `--run`, and the other name `import`. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseNpy, writeNpy } from '@ropewalk/formats';
import { readExternal } from '@ropewalk/formats/node';
import { importOnnx } from '@ropewalk/onnx';
import { ropewalkIn } from '../../../test/support/command.js';
import { Graph } from '../../onnx/test/import/build.js';
import { FORMS, f32 } from '../../onnx/test/import/forms.js';
import { wholeGraph } from '../../onnx/test/import/whole-graph.js';
import { type InspectOptions, inspect } from '../src/inspect.js';

const folder = mkdtempSync(join(tmpdir(), 'import-'));
after(() => rmSync(folder, { recursive: true }));
const ropewalk = (...args: string[]) => ropewalkIn(folder, 'inspect', ...args);
const file = (name: string, content: Uint8Array): string => {
  writeFileSync(join(folder, name), content);
  return name;
};
const at = (name: string): string => join(folder, name);

const cached = file('cached.onnx', FORMS[1]!.bytes);
const xs = Float32Array.from({ length: 2 * 3 * 4 * 8 }, (_, n) => Math.sin(n));
file('x.npy', writeNpy(xs, { dtype: 'f32', shape: [2, 3, 4, 8] }));
file('p.npy', writeNpy(BigInt64Array.from([0, 1, 5, 40, 3, 2, 1, 17], BigInt), { dtype: 'i64', shape: [2, 4] }));
const empty = (() => {
  const g = new Graph();
  g.output(g.node('Relu', [g.input('x', 'f32', [1])]), 'f32');
  return file('none.onnx', g.model());
})();

describe('inspect of the RoPE of a graph', () => {
  test('what is found is described, exit 0', async () => {
    const { status, stdout, stderr } = await ropewalk(cached);
    assert.equal(status, 0, stderr);
    assert.match(stdout, /^cached\.onnx: 1 RoPE \(23 nodes, opset 23, from "ropewalk-test"\)$/m);
    assert.equal((await ropewalkIn(folder, 'import', cached)).stdout, stdout);
    for (const line of [
      /^Add_22$/m,
      /^ {2}pairing +half$/m,
      /^ {2}layout +bnsh, 3 heads$/m,
      /^ {2}cos, sin +a cache of 64 positions$/m,
      /^ {2}positions +position_ids \[batch, seq\]$/m,
      /^ {2}base +10000$/m,
    ])
      assert.match(stdout, line);
  });

  test("a folder's graph: its layers, those without RoPE, and what lies in files beside it", async () => {
    const spec = { headDim: 8, pairing: 'half', base: 10000 } as const;
    mkdirSync(at('whole/onnx'), { recursive: true });
    file('whole/onnx/model.onnx', wholeGraph({ form: 'genai-nodes', layers: [spec, undefined, spec], external: true }));
    const table = (part: 'cos' | 'sin') =>
      Float32Array.from({ length: 256 }, (_, n) => Math[part]((n >> 2) * 0.1 ** (n % 4)));
    file(
      'whole/onnx/model.onnx.data',
      Buffer.concat([table('cos'), table('sin')].map(({ buffer }) => Buffer.from(buffer))),
    );
    const { status, stdout, stderr } = await ropewalk('whole');
    assert.equal(status, 0, stderr);
    for (const line of [
      /^whole\/onnx\/model\.onnx: 4 RoPE \(/m,
      /^ {2}layers +0, 2$/m,
      /^ {2}base +10000$/m,
      /^layer 1: no RoPE$/m,
    ])
      assert.match(stdout, line);
    // The data file may be cut, or be elsewhere: a note says so, and what the graph itself says is there.
    writeFileSync(at('whole/onnx/model.onnx.data'), new Uint8Array(1500));
    assert.match(
      (await ropewalk('whole')).stdout,
      /note: frequencies are not known: .*it has 1500 bytes, too few to read 1024 bytes from 1024/,
    );
  });

  test('--json holds all of it', async () => {
    const { status, stdout } = await ropewalk(cached, '--json');
    assert.equal(status, 0);
    const { opsets, ropes, nearly } = JSON.parse(stdout);
    assert.deepEqual([opsets['ai.onnx'], ropes.length, nearly], [23, 1, []]);
    assert.deepEqual([ropes[0].pairing, ropes[0].frequencies.invFreq.length, ropes[0].spec.base], ['half', 4, 10000]);
  });

  test('equal layers are listed once', async () => {
    const g = new Graph();
    const caches = [0, 1].map((n) => g.constant(f32([1 - n, 1 - n, 0.5, 0.5], [2, 2])));
    let x = g.input('x', 'f32', [1, 2, 's', 4]);
    const ids = g.input('position_ids', 'i64', [1, 's']);
    for (let layer = 0; layer < 4; layer++)
      x = g.node('Relu', [g.node('RotaryEmbedding', [x, ...caches, ids], {}, { name: `rope.${layer}` })]);
    g.output(x, 'f32');
    const { stdout } = await ropewalk(file('layers.onnx', g.model()));
    assert.match(stdout, /^rope\.0 … rope\.3: 4 nodes, all alike$/m);
    assert.match(stdout, /note: frequencies are not known: cos and sin lie on no circle/);
  });

  test('names that would control a terminal are printed as codes', async () => {
    const g = new Graph();
    const caches = [0, 1].map((n) => g.constant(f32([1 - n, 1 - n], [1, 2])));
    const x = g.input('x\u001b[2J', 'f32', [1, 2, 's', 4]);
    g.output(
      g.node('RotaryEmbedding', [x, ...caches, g.input('p\r\n', 'i64', [1, 's'])], {}, { name: '\u009bmany\u0007' }),
      'f32',
    );
    const { stdout } = await ropewalk(file('names.onnx', g.model()));
    assert.match(stdout, /^\\u009bmany\\u0007$/m);
    assert.match(stdout, /^ {2}x → y +x\\u001b\[2J → /m);
    assert.match(stdout, /^ {2}positions +p\\u000d\\u000a \[1, s\]$/m);
    assert.doesNotMatch(stdout.replaceAll('\n', ''), /\p{Cc}/u);
  });

  test('no RoPE: exit 1, and what was looked for', async () => {
    const { status, stdout } = await ropewalk(empty);
    assert.equal(status, 1);
    assert.match(stdout, /none\.onnx: 0 RoPE .*\n {2}looked for RotaryEmbedding \(ai\.onnx, com\.microsoft\)/);
  });

  test('nearly RoPE: exit 1, and why not', async () => {
    const g = new Graph();
    const x = g.input('x', 'f32', [1, 2, 4, 4]);
    const [cos, sin] = ['Cos', 'Sin'].map((op) => g.node(op, [g.constant(f32([0, 0, 1, 1, 2, 2, 3, 3], [4, 2]))]));
    const [a, b] = g.nodeOf('Split', [x], { axis: -1, num_outputs: 2 }, { outputs: 2 });
    const y0 = g.node('Add', [g.node('Mul', [a!, cos!]), g.node('Mul', [b!, sin!])]);
    const y1 = g.node('Add', [g.node('Mul', [a!, sin!]), g.node('Mul', [b!, cos!])]);
    g.output(g.node('Concat', [y0, y1], { axis: -1 }, { name: 'join' }), 'f32');
    const { status, stdout } = await ropewalk(file('wrong.onnx', g.model()));
    assert.equal(status, 1);
    assert.match(stdout, /^join: not RoPE, because its signs are wrong: y0 = x0·c \+ x1·s/m);
  });

  test('--run: by node or by value, on each backend; no temporary files', async () => {
    for (const [backend, name] of [
      ['cpu', 'Add_22'],
      ['reference', 'y'],
    ] as const) {
      const { status, stdout, stderr } = await ropewalk(
        cached,
        '--run',
        name,
        '--x',
        'x.npy',
        '--positions',
        'p.npy',
        '--out',
        'y.npy',
        '--backend',
        backend,
      );
      assert.equal(status, 0, stderr);
      assert.equal(stdout, `Add_22: f32 [2, 3, 4, 8] on ${backend}, wrote y.npy\n`);
      const y = parseNpy(readFileSync(at('y.npy')));
      assert.deepEqual(y.shape, [2, 3, 4, 8]);
      // Position 0 is not turned; position 1 turns pair 0 by one radian.
      assert.deepEqual([...(y.data as Float32Array).subarray(0, 8)], [...xs.subarray(0, 8)]);
      const want = xs[8]! * Math.cos(1) - xs[12]! * Math.sin(1);
      assert.ok(Math.abs((y.data as Float32Array)[8]! - want) < 1e-6);
    }
    assert.deepEqual(
      readdirSync(folder).filter((name) => name.includes('.tmp')),
      [],
    );
  });

  test('--input gives cos and sin where they are inputs of the graph, as the JSON says', async () => {
    const form = FORMS.find((one) => one.tables === 'input')!;
    const model = file('inputs.onnx', form.bytes);
    file('x4.npy', writeNpy(xs.subarray(0, 96), { dtype: 'f32', shape: [1, 3, 4, 8] }));
    for (const [name, tensor] of Object.entries(form.inputs!))
      file(`${name}.npy`, writeNpy(tensor.read() as Float32Array, { dtype: 'f32', shape: tensor.shape }));
    const args = [
      '--run',
      'y',
      '--x',
      'x4.npy',
      '--input',
      'cos=cos.npy',
      '--input',
      'sin=sin.npy',
      '--out',
      'y4.npy',
      '--backend',
      'reference',
      '--json',
    ];
    const { status, stdout, stderr } = await ropewalk(model, ...args);
    assert.equal(status, 0, stderr);
    assert.deepEqual(JSON.parse(stdout), {
      rope: 'Add_6',
      backend: 'reference',
      x: 'x4.npy',
      out: 'y4.npy',
      dtype: 'f32',
      shape: [1, 3, 4, 8],
    });
    const y = parseNpy(readFileSync(at('y4.npy'))).data as Float32Array;
    assert.ok(Math.abs(y[8]! - (xs[8]! * Math.cos(1) - xs[12]! * Math.sin(1))) < 1e-6);
  });

  test('caches in another file are read, only from the folder of the model', async () => {
    const write = (location: string): Uint8Array => {
      const g = new Graph();
      const x = g.input('x', 'f32', [1, 1, 's', 4]);
      const caches = ['cos', 'sin'].map((name, n) =>
        g.external(name, 'f32', [3, 2], { location, offset: String(24 * n), length: '24' }),
      );
      g.output(g.node('RotaryEmbedding', [x, ...caches, g.input('p', 'i64', [1, 's'])]), 'f32');
      return g.model();
    };
    const angles = [0, 0, 1, 0.1, 2, 0.2];
    mkdirSync(at('sub'), { recursive: true });
    writeFileSync(
      at('sub/w.bin'),
      new Uint8Array(Float32Array.from([...angles.map(Math.cos), ...angles.map(Math.sin)]).buffer),
    );
    mkdirSync(at('sub/inner'));
    if (process.platform !== 'win32') {
      execFileSync('mkfifo', [at('sub/pipe')]);
      symlinkSync(at('.'), at('sub/out'));
      symlinkSync(at('x.npy'), at('sub/x.npy'));
      symlinkSync('loop', at('sub/loop'));
      // HuggingFace's cache: names that link to blobs, all in one other folder.
      mkdirSync(at('names'));
      symlinkSync('../sub/external.onnx', at('names/external.onnx'));
      symlinkSync('../sub/w.bin', at('names/w.bin'));
    }
    const good = await ropewalk(file('sub/external.onnx', write('w.bin')));
    assert.equal(good.status, 0, good.stderr);
    assert.match(good.stdout, /^ {2}base +100$/m);
    if (process.platform !== 'win32')
      assert.equal(readExternal(at('names/external.onnx'), { location: 'w.bin', offset: 0, length: 4 }).length, 4);
    for (const [location, message] of [
      ['../x.npy', /expected a file in the model's folder, got "\.\.\/x\.npy"/],
      ['/etc/hostname', /expected a file in the model's folder/],
      ['gone.bin', /external data gone\.bin: there is no such file or folder/],
      ['.', /expected a file in the model's folder, got "\."/],
      ['inner', /external data inner: expected a regular file, got a folder/],
      ['pipe', /external data pipe: expected a regular file, got a pipe/],
      ['out/x.npy', /external data out\/x\.npy: it is a link that leaves the model's folder/],
      ['x.npy', /external data x\.npy: it is a link that leaves the model's folder/],
      ['loop', /external data loop: expected a readable file, got a symbolic link that leads back to itself/],
    ] as const) {
      if (process.platform === 'win32' && /pipe|link/.test(message.source)) continue;
      const { ropes } = importOnnx(write(location), 'm', {
        loadExternal: (where) => readExternal(at('sub/external.onnx'), where),
      });
      assert.match(ropes[0]!.notes.join(), message);
    }
  });
});

describe('refusals', () => {
  file('empty.onnx', new Uint8Array(0));
  file('text.onnx', new TextEncoder().encode('{"no": "model"}'));
  file('ints.npy', writeNpy(Int32Array.from(xs), { dtype: 'i32', shape: [2, 3, 4, 8] }));
  const good: InspectOptions = {
    run: 'y',
    x: at('x.npy'),
    positions: at('p.npy'),
    out: at('out.npy'),
    backend: 'reference',
  };
  const cases: [string, string, InspectOptions, RegExp][] = [
    ['a missing file', 'gone.onnx', {}, /gone\.onnx: there is no such file or folder/],
    [
      'a folder with several graphs',
      '.',
      good,
      /: expected a folder with a model\.onnx, or one \.onnx, got \["cached\.onnx", /,
    ],
    [
      'a folder without a graph',
      'sub/inner',
      good,
      /expected a folder with a model\.onnx, or one \.onnx, got \[\]\. ropewalk export --whole/,
    ],
    ['an empty file', 'empty.onnx', {}, /empty\.onnx: the file is empty/],
    ['no model', 'text.onnx', {}, /text\.onnx: these bytes are not a ModelProto/],
    ['--run and lists', cached, { ...good, tensors: true }, /^--tensors: it does not apply to --run\. Leave it out\.$/],
    ['--x without --run', cached, { x: 'x.npy' }, /^--x: it needs --run NODE/],
    ['--run without --x', cached, { run: 'y', out: 'y.npy' }, /^--run: it needs --x FILE\.npy and --out FILE\.npy/],
    ['--run without --out', cached, { run: 'y', x: 'x.npy' }, /^--run: it needs --x FILE\.npy and --out FILE\.npy/],
    ['--out of another kind', cached, { ...good, out: 'y.bin' }, /^--out: expected a \.npy file, got "y\.bin"/],
    [
      'a node that is not there',
      cached,
      { ...good, run: 'rope' },
      /^--run: expected one of "Add_22", got "rope"\. ropewalk inspect .* lists them\./,
    ],
    ['a model without RoPE', empty, good, /--run: .*none\.onnx has no RoPE to run/],
    ['a backend that is not there', cached, { ...good, backend: 'npu' }, /backend: expected auto or one of/],
    ['integers for x', cached, { ...good, x: at('ints.npy') }, /rope: x: expected f64, f32, f16 or bf16/],
    ['no positions', cached, { ...good, positions: undefined } as never, /position_ids: give the tokens' positions/],
    ['a model for x', cached, { ...good, x: at(cached) }, /it is not a \.npy file/],
    ['--input that is none', cached, { ...good, input: ['past'] }, /^--input: expected NAME=FILE\.npy, got "past"/],
    [
      'an input that the graph has not',
      cached,
      { ...good, input: [`nothing=${at('x.npy')}`] },
      /inputs\.nothing: the graph has no value of this name/,
    ],
    [
      'a place that cannot be written',
      cached,
      { ...good, out: at('gone/y.npy') },
      /^--out: .*y\.npy: there is no folder .*gone\. Make it first\.$/,
    ],
  ];
  for (const [name, model, options, message] of cases) {
    test(name, async () => {
      await assert.rejects(inspect(at(model), options), { name: 'RopewalkError', message });
      assert.ok(!existsSync(at('out.npy')));
    });
  }
  test('the exit code is 2, and the message one line', async () => {
    const { status, stdout, stderr } = await ropewalk('text.onnx');
    assert.deepEqual([status, stdout], [2, '']);
    assert.match(stderr, /^ropewalk: inspect: text\.onnx: these bytes are not a ModelProto.*\n$/);
    assert.equal((await ropewalk(cached, '--nonsense')).status, 2);
  });
});
