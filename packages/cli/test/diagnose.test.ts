import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseNpy, writeNpy, writeNpz } from '@ropewalk/formats';
import { hostTensor } from '@ropewalk/oracle/internal';
import type { FloatDtype, Tensor } from 'ropewalk';
import { planRope, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { flagsOf, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';
import { floats } from '../../../test/support/tensors.js';
import type { diagnose } from '../src/diagnose.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'diagnose-'));
after(() => rmSync(folder, { recursive: true }));

const ropewalk = (...args: string[]) => ropewalkIn(root, 'diagnose', ...args);

/** Runs the command with options by their names in the library; a refusal is thrown. */
async function run(options: Parameters<typeof diagnose>[0]): Promise<{ status: number | null; stdout: string }> {
  const { status, stdout, stderr } = await ropewalk(...flagsOf(options));
  if (status === 2) throw Object.assign(new Error(stderr), { name: 'RopewalkError' });
  return { status, stdout };
}

const HEAD_DIM = 64;
const POSITIONS = [0, 1, 40, 511, 8191, 131071];
const SHAPE = [POSITIONS.length, 3, HEAD_DIM];
const LABEL = 'ROPE(type=f32,ne_a=[64,3,6,1],n_dims=64,mode=2,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';

/** A kernel of the tests' own, with one thing to get wrong. */
function kernel(x: Float64Array, interleaved: boolean): Float64Array {
  const y = new Float64Array(x.length);
  for (let row = 0; row < x.length / HEAD_DIM; row++) {
    const position = POSITIONS[Math.floor(row / 3)]!;
    for (let j = 0; j < HEAD_DIM / 2; j++) {
      const angle = position * 10000 ** ((-2 * j) / HEAD_DIM);
      const i0 = row * HEAD_DIM + (interleaved ? 2 * j : j);
      const i1 = i0 + (interleaved ? 1 : HEAD_DIM / 2);
      y[i0] = x[i0]! * Math.cos(angle) - x[i1]! * Math.sin(angle);
      y[i1] = x[i0]! * Math.sin(angle) + x[i1]! * Math.cos(angle);
    }
  }
  return y;
}

/** Replaces text in a header by text of the same length. */
function latinReplace(bytes: Uint8Array, from: string, to: string): Uint8Array {
  const copy = Buffer.from(bytes);
  copy.write(to, copy.indexOf(from), 'latin1');
  return copy;
}

const random = randomFrom('cli diagnose');
const x = hostTensor('f32', SHAPE, () => random.uniform(-1, 1));
const save = (name: string, tensor: Tensor): string => {
  writeFileSync(join(folder, name), writeNpy(tensor.read() as never, { dtype: tensor.dtype, shape: tensor.shape }));
  return join(folder, name);
};
const output = (interleaved: boolean, dtype: FloatDtype): Tensor => {
  const values = kernel(floats(x), interleaved);
  return hostTensor(dtype, SHAPE, (n) => values[n]!);
};
const files = {
  x: save('x.npy', x),
  right: save('right.npy', output(false, 'f32')),
  wrong: save('wrong.npy', output(true, 'f32')),
  bf16: save('bf16.npy', output(true, 'bf16')),
  positions: join(folder, 'positions.npy'),
  raw: join(folder, 'right.bin'),
  flat: save('flat.npy', x.reshape([POSITIONS.length, 3 * HEAD_DIM])),
  pt: fileURLToPath(new URL('./dump.pt', import.meta.url)),
};
const bytesOf = ({ buffer, byteOffset, byteLength }: ArrayBufferView) => new Uint8Array(buffer, byteOffset, byteLength);
writeFileSync(files.raw, bytesOf(output(false, 'f32').read() as Float32Array));
writeFileSync(
  files.positions,
  writeNpy(BigInt64Array.from(POSITIONS, BigInt), { dtype: 'i64', shape: [POSITIONS.length] }),
);
writeFileSync(join(folder, 'junk.bin'), 'hello');
const given = { x: files.x, y: files.right, positions: files.positions };

describe('diagnose', () => {
  test('as a program: a wrong kernel is named, exit 1, no terminal codes', () => {
    const { status, stdout, stderr } = ropewalkProcess(
      root,
      'diagnose',
      '--x',
      files.x,
      '--y',
      files.wrong,
      '--positions',
      files.positions,
      '--expect',
      LABEL,
    );
    assert.equal(status, 1, stderr);
    assert.match(stdout, /^KNOWN BUG: pairs-interleaved-for-half$/m);
    assert.match(stdout, /Pairs are interleaved, such as \(0, 1\); expected is half, such as \(0, 32\)/);
    assert.match(stdout, /cause A, pairing.*huggingface\/transformers#25199/);
    assert.ok(!stdout.includes('\u001b'));
  });

  test('as a program: --demo, and the flags that are missing', () => {
    const { status, stdout } = ropewalkProcess(root, 'diagnose', '--demo');
    assert.equal(status, 1);
    assert.match(stdout, /^KNOWN BUG: frequencies-over-head-dim$/m);
    const none = ropewalkProcess(root, 'diagnose');
    assert.equal(none.status, 2);
    assert.match(
      none.stderr,
      /ropewalk: diagnose: --x, --y, --positions: a diagnosis needs --x, --y and --positions\. See a run first/,
    );
  });

  test('the right kernel: exit 0, with and without an expectation', async () => {
    const right = await run({ ...given, expect: LABEL });
    assert.equal(right.status, 0);
    assert.match(right.stdout, /^AS EXPECTED \(the ROPE\(…\) line\)/);
    const alone = await run(given);
    assert.equal(alone.status, 0);
    assert.match(alone.stdout, /^A ROTATION: half, base 10000\./);
    const wrong = await run({ ...given, y: files.wrong });
    assert.match(wrong.stdout, /^A ROTATION: interleaved, base 10000\./, 'alone, it is only another convention');
  });

  test('a config.json, a record, safetensors and bf16', async () => {
    const config = join(folder, 'config.json');
    writeFileSync(
      config,
      JSON.stringify({
        model_type: 'llama',
        hidden_size: 192,
        num_attention_heads: 3,
        num_hidden_layers: 2,
        head_dim: 64,
        rope_theta: 10000,
      }),
    );
    assert.equal((await run({ ...given, expect: config, layer: '1' })).status, 0);
    const record = join(folder, 'spec.json');
    writeFileSync(record, JSON.stringify({ headDim: 64, pairing: 'interleaved', base: 10000 }));
    const bits = await run({ x: files.x, y: files.bf16, positions: files.positions, dtype: 'bf16', expect: record });
    assert.equal(bits.status, 0);
    assert.match(bits.stdout, /rounded once to bf16/);
    const data = [
      new Uint8Array((x.read() as Float32Array).buffer),
      new Uint8Array((output(false, 'f32').read() as Float32Array).buffer),
    ];
    const size = data[0]!.length;
    const entry = (n: number) => ({ dtype: 'F32', shape: SHAPE, data_offsets: [n * size, (n + 1) * size] });
    const header = Buffer.from(JSON.stringify({ q: entry(0), 'q:out': entry(1) }));
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(header.length));
    const dump = join(folder, 'dump.safetensors');
    writeFileSync(dump, Buffer.concat([length, header, ...data]));
    assert.equal(
      (await run({ x: `${dump}:q`, y: `${dump}:q:out`, positions: files.positions, expect: LABEL })).status,
      0,
    );
  });

  test('--json holds the verdict, what was found, and no functions', async () => {
    const { stdout } = await run({ ...given, y: files.wrong, expect: LABEL, json: true });
    const json = JSON.parse(stdout);
    assert.equal(json.verdict, 'known bug');
    assert.deepEqual(
      json.named.map((one: { id: string }) => one.id),
      ['pairs-interleaved-for-half'],
    );
    assert.equal(json.named[0].mutants[0].cause, 'A');
    assert.deepEqual([json.found.pairing, json.found.direction, json.found.magnitude], ['interleaved', 'forward', 1]);
    assert.equal(json.found.pairs.length, 32);
    assert.equal(
      planRope({ ...json.found.rope.spec, positions: [0] }).headDim,
      64,
      'the record that was found is one that can be run',
    );
  });

  test('--svg and --next-input write whole files and leave nothing else', async () => {
    const small = { positions: join(folder, 'small.npy') };
    writeFileSync(small.positions, writeNpy(Int32Array.from([0, 0, 0, 0, 0, 0]), { dtype: 'i32', shape: [6] }));
    const svg = join(folder, 'picture.svg');
    const next = join(folder, 'next');
    const { status, stdout } = await run({ ...given, ...small, y: files.x, expect: LABEL, svg, nextInput: next });
    assert.equal(status, 0);
    assert.match(stdout, /It would not have shown: /);
    assert.match(readFileSync(svg, 'utf8'), /^<svg[\s\S]*<\/svg>\n$/);
    assert.deepEqual(readdirSync(next).sort(), ['positions.npy', 'x.npy']);
    const [a, b] = ['x.npy', 'positions.npy'].map((name) => parseNpy(readFileSync(join(next, name))));
    assert.deepEqual([a!.dtype, b!.dtype, a!.shape.slice(0, 2)], ['f32', 'i64', b!.shape]);
    assert.ok(!readdirSync(folder).some((name) => name.endsWith('.tmp')));
    const none = join(folder, 'none');
    const good = await run({ ...given, y: files.wrong, expect: LABEL, nextInput: none });
    assert.match(good.stdout, /Next input: none needed/);
    assert.ok(!existsSync(none));
  });

  describe('dumps as people have them', () => {
    const asExpected = async (options: Parameters<typeof diagnose>[0], words = /^AS EXPECTED/): Promise<void> => {
      const { status, stdout } = await run({ expect: LABEL, ...options });
      assert.match(stdout, words);
      assert.equal(status, 0);
    };

    test('torch.save: real bf16 heads as they are, as int16, transposed, in a dict', async () => {
      // dump.py beside it made it, with torch 1.13.0.
      for (const [x, y] of [
        ['x', 'y'],
        ['x_bits', 'y'],
        ['x', 'y_bits'],
      ])
        await asExpected({
          ...{ x: `${files.pt}:${x}`, y: `${files.pt}:${y}`, positions: `${files.pt}:positions` },
          dtype: 'bf16',
          layout: 'bnsh',
        });
      const dump = { x: `${files.pt}:x`, y: `${files.pt}:y`, positions: `${files.pt}:positions` };
      await asExpected(
        dump,
        /^AS EXPECTED.*\nRead as \[batch, head, token, head_dim\]: this fits; give the layout bnsh\.$/m,
      );
    });

    test('raw: elements, positions shared or for each batch', async () => {
      const positions = join(folder, 'positions.bin');
      const raw = { x: join(folder, 'x.bin'), y: files.raw, dtype: 'f32', shape: '2,3,3,64', positions };
      writeFileSync(raw.x, bytesOf(x.read() as Float32Array));
      writeFileSync(positions, bytesOf(BigInt64Array.from(POSITIONS, BigInt)));
      await asExpected({ ...raw, positionsDtype: 'i64' });
      await asExpected({ ...raw, shape: '6,3,64', positionsDtype: 'i64' });
      writeFileSync(positions, bytesOf(Float32Array.from(POSITIONS)));
      await asExpected({ ...raw, shape: '6,3,64', positionsDtype: 'f32' });
      await assert.rejects(run(raw), {
        message: /positions\.bin: a raw file does not say .* Give --positions-dtype/,
      });
    });

    test('[tokens, hidden] and [batch, tokens, hidden] with --heads', async () => {
      const flat = (name: string, of: Tensor, ...front: number[]) => save(name, of.reshape([...front, 3 * HEAD_DIM]));
      const y = output(false, 'f32');
      await asExpected({ ...given, x: files.flat, y: flat('y2.npy', y, 6), heads: '3' });
      await asExpected({ ...given, x: flat('x3.npy', x, 1, 6), y: flat('y3.npy', y, 1, 6), heads: '3' });
    });

    test('[tokens, batch, heads, head_dim] and [tokens, batch, hidden], as in Megatron', async () => {
      const first = (name: string, of: Tensor, ...rest: number[]) =>
        save(
          name,
          of
            .reshape([2, 3, 3, HEAD_DIM])
            .permute([1, 0, 2, 3])
            .contiguous()
            .reshape([3, 2, ...rest]),
        );
      const y = output(false, 'f32');
      const positions = save('own.npy', tensorFrom(Int32Array.from(POSITIONS), { shape: [2, 3] }));
      const whole = { x: first('sx.npy', x, 3, HEAD_DIM), y: first('sy.npy', y, 3, HEAD_DIM), positions };
      await asExpected({ ...whole, layout: 'sbnh' });
      const flat = { x: first('sx3.npy', x, 3 * HEAD_DIM), y: first('sy3.npy', y, 3 * HEAD_DIM), positions };
      await asExpected({ ...flat, layout: 'sbnh', heads: '3' });
      // Padding is left out in this layout too.
      const mask = save('mask.npy', tensorFrom(Int32Array.of(1, 1, 1, 1, 1, 0), { shape: [2, 3] }));
      const padded = { x: whole.x, y: whole.y, attentionMask: mask, layout: 'sbnh' };
      const { stdout } = await run({ ...padded, expect: LABEL });
      assert.doesNotMatch(stdout, /batch 1 token 2/);
      await assert.rejects(run({ ...whole, expect: LABEL }), { message: /the layout sbnh/ });
    });

    test('npz, Fortran order, big-endian, f16 as uint16; positions as uint8', async () => {
      const npz = join(folder, 'dump.npz');
      writeFileSync(
        npz,
        writeNpz(
          new Map([
            ['q', x],
            ['out', output(false, 'f32')],
          ] as [string, Tensor][]),
        ),
      );
      await asExpected({ ...given, x: `${npz}:q`, y: `${npz}:out` });
      // Column-major: the same elements, written as the transposed tensor.
      const fortran = join(folder, 'fortran.npy');
      const bytes = writeNpy(x.permute([2, 1, 0]).contiguous().read() as Float32Array, { dtype: 'f32', shape: SHAPE });
      writeFileSync(fortran, latinReplace(bytes, 'False', 'True '));
      await asExpected({ ...given, x: fortran });
      const big = join(folder, 'big.npy');
      const swapped = latinReplace(readFileSync(files.x), '<f4', '>f4');
      const start = swapped.length - 4 * x.size;
      for (let at = start; at < swapped.length; at += 4) swapped.subarray(at, at + 4).reverse();
      writeFileSync(big, swapped);
      await asExpected({ ...given, x: big });
      const half = output(false, 'f16').read() as Uint16Array;
      const bits = join(folder, 'half.npy');
      writeFileSync(bits, writeNpy(half, { dtype: 'u16', shape: SHAPE }));
      await asExpected({ ...given, y: bits, dtype: 'f16' });
    });
  });

  const junk = join(folder, 'junk.npy');
  writeFileSync(junk, 'hello');
  const narrow = join(folder, 'narrow.bin');
  writeFileSync(narrow, bytesOf(Int32Array.from(POSITIONS)));
  const empty = join(folder, 'empty.npy');
  writeFileSync(empty, '');
  const refusals: [string, Parameters<typeof diagnose>[0], RegExp][] = [
    ['no x', { y: files.right, positions: files.positions }, /--x: a diagnosis needs --x, --y and --positions/],
    [
      'a file that is not there',
      { ...given, x: join(folder, 'no.npy') },
      /--x: .*no\.npy: there is no such file or folder/,
    ],
    ['a folder', { ...given, x: `${folder}.npy` }, /there is no such file or folder/],
    [
      'another format',
      { ...given, y: 'y.txt' },
      /--y: expected a \.npy or raw \.bin file, or file\.npz:name, file\.pt:name, file\.safetensors:name, got "y\.txt"/,
    ],
    [
      'a raw file without a dtype',
      { ...given, y: files.raw },
      /right\.bin: a raw file does not say .* Give --dtype, such/,
    ],
    [
      'a raw file of another size',
      { ...given, y: files.raw, dtype: 'f32', shape: '6,3,32' },
      /expected 2304 bytes for shape \[6, 3, 32\] of f32, got 4608\. Check --shape and --dtype/,
    ],
    ['raw elements cut', { ...given, y: junk.replace('.npy', '.bin'), dtype: 'f32' }, /a multiple of 4 bytes/],
    ['a shape for npy', { ...given, shape: '6,3,64' }, /--shape: it is for raw \.bin files/],
    [
      'raw positions of another type',
      { ...given, positions: narrow, positionsDtype: 'i64' },
      /: --positions-dtype: as 3 i64, .*narrow\.bin has the position 4294967296\. It holds another type, such as i32\.$/m,
    ],
    ['a dtype for npy positions', { ...given, positionsDtype: 'i64' }, /--positions-dtype: it is for a raw \.bin/],
    ['a name that is not there', { ...given, y: `${files.pt}:z` }, /one of its 5 tensors \("x", "y", .*\), got "z"/],
    ['no name', { ...given, y: files.pt }, /it has 5 tensors .* Name one: .*dump\.pt:x\./],
    [
      'heads that do not divide',
      { ...given, x: files.flat, heads: '5' },
      /--x: expected a last dimension that 5 heads divide/,
    ],
    ['heads of whole heads', { ...given, heads: '3' }, /got \[6, 3, 64\]\. If it is one head already, leave heads out/],
    ['heads before tokens', { ...given, x: files.flat, heads: '3', layout: 'bnsh' }, /--layout: with --heads/],
    ['junk', { ...given, y: junk }, /junk\.npy: it is not a \.npy file/],
    ['an empty file', { ...given, positions: empty }, /empty\.npy/],
    ['bf16 bits without --dtype', { ...given, y: files.bf16 }, /--dtype bf16/],
    ['a dtype that the values do not have', { ...given, dtype: 'bf16' }, /--dtype: y holds .*, which bf16 cannot hold/],
    ['an unknown dtype', { ...given, dtype: 'f8' }, /--dtype: expected f32, f16, bf16 or f64, got "f8"/],
    ['an unknown layout', { ...given, layout: 'snhb' }, /--layout: expected bsnh, bnsh or sbnh/],
    ['a direction without an expectation', { ...given, direction: 'backward' }, /--direction: it needs --expect/],
    ['a bad layer', { ...given, expect: LABEL, layer: '-1' }, /--layer: expected an integer in \[0, /],
    ['a bad epsilon', { ...given, normWeight: files.x, normEps: 'x' }, /--norm-eps/],
    [
      'an expectation of another size',
      { ...given, expect: LABEL.replaceAll('64', '128') },
      /--x: its heads have 64 dimensions, those of --expect have 128\. Give/,
    ],
    ['a demo with data', { ...given, demo: true }, /--x: --demo has its own input/],
    [
      'a picture that cannot be written',
      { ...given, svg: join(folder, 'no', 'p.svg') },
      /--svg: .*p\.svg: there is no folder .*no\. Make it first/,
    ],
  ];
  for (const [name, options, message] of refusals) {
    test(`refusal: ${name}`, async () => {
      await assert.rejects(run(options), { name: 'RopewalkError', message });
    });
  }
});

describe('options that were left out', () => {
  const config = {
    model_type: 'gemma3_text',
    hidden_size: 192,
    num_attention_heads: 3,
    num_hidden_layers: 4,
    head_dim: HEAD_DIM,
    max_position_embeddings: 262144,
    rope_theta: 10000,
    rope_local_base_freq: 500,
    layer_types: ['sliding_attention', 'sliding_attention', 'sliding_attention', 'full_attention'],
    sliding_window: 512,
  };
  const write = (name: string, json: object): string => {
    writeFileSync(join(folder, name), JSON.stringify(json));
    return join(folder, name);
  };
  const given = { x: files.x, y: files.right, positions: files.positions };
  const swapped = (tensor: Tensor): Tensor => tensor.permute([1, 0, 2]).contiguous();
  const says = async (options: Parameters<typeof diagnose>[0]): Promise<string> => (await run(options)).stdout;

  test('another kind of layer', async () => {
    const expect = write('gemma.json', config);
    assert.match(await says({ ...given, expect }), /^OTHER OPTIONS: y is right with --layer 3\. /);
    assert.equal((await run({ ...given, expect, layer: '3' })).status, 0);
    assert.doesNotMatch(await says({ ...given, y: files.wrong, expect }), /OTHER OPTIONS/);
    // Heads before tokens, which the shapes tell alone.
    const before = {
      ...given,
      x: save('x-bnsh.npy', swapped(x)),
      y: save('y-bnsh.npy', swapped(output(false, 'f32'))),
    };
    assert.match(await says({ ...before, expect }), /^OTHER OPTIONS: y is right with --layer 3\. /);
    const { rightWith } = JSON.parse(await says({ ...given, expect, json: true }));
    assert.equal(rightWith, '--layer 3');
  });

  test('tokens in use: positions show that the text is long', async () => {
    const factors = (factor: number) => Array.from({ length: HEAD_DIM / 2 }, () => factor);
    const rope_scaling = { type: 'longrope', long_factor: factors(1), short_factor: factors(2) };
    const long = { ...config, model_type: 'phi3', original_max_position_embeddings: 4096, rope_scaling };
    // Its magnitude is that of a context of 64 times 4096.
    const gain = Math.sqrt(1 + Math.log(64) / Math.log(4096));
    const y = save(
      'long.npy',
      hostTensor('f32', SHAPE, (n) => gain * kernel(floats(x), false)[n]!),
    );
    const expect = write('phi.json', long);
    const { status, stdout } = await run({ ...given, y, expect });
    assert.equal(status, 0, stdout);
    assert.match(stdout, /^AS EXPECTED \(.*phi\.json, layer 0, 131072 tokens in use\)/);
    const short = await says({ ...given, y, expect, context: '4096' });
    assert.match(short, /^OTHER OPTIONS: y is right with --context 262144\. /);
  });

  test('a layer without position encoding, where y is x', async () => {
    const smollm3 = { ...config, model_type: 'smollm3', layer_types: undefined, no_rope_layers: [1, 1, 1, 0] };
    const expect = write('smollm3.json', smollm3);
    const unrotated = await run({ ...given, y: files.x, expect, layer: '3' });
    assert.equal(unrotated.status, 0, unrotated.stdout);
    assert.match(unrotated.stdout, /^AS EXPECTED \(smollm3\.json, layer 3, which does not rotate\)/);
    const rotated = await says({ ...given, expect, layer: '3' });
    assert.match(rotated, /^OTHER OPTIONS: y is right with --layer 0\. /);
    assert.match(rotated, /^WRONG PARAMETER: Rotates, with base 10000, where no pair should rotate\.$/m);
  });

  test('x that was dumped behind the norm', async () => {
    const normWeight = save(
      'weight.npy',
      hostTensor('f32', [HEAD_DIM], (i) => 0.5 + i / HEAD_DIM),
    );
    const report = await says({ ...given, expect: LABEL, normWeight });
    assert.match(report, /^OTHER OPTIONS: y is right with no --norm-weight, so that x may be the norm’s result\. /);
    assert.match(report, /^KNOWN BUG: norm-missing$/m);
  });

  test('a norm before the rotation: its weight is fitted, and told', async () => {
    const values = floats(x);
    const weight = Float64Array.from({ length: HEAD_DIM }, (_, i) => 0.5 + i / HEAD_DIM);
    const normed = values.map((value, n) => {
      const from = n - (n % HEAD_DIM);
      const row = values.subarray(from, from + HEAD_DIM);
      return (value * weight[n % HEAD_DIM]!) / Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / HEAD_DIM + 1e-5);
    });
    const rotated = kernel(normed, false);
    for (const dtype of ['f32', 'bf16'] as const) {
      const y = save(
        `norm-${dtype}.npy`,
        hostTensor(dtype, SHAPE, (n) => rotated[n]!),
      );
      const more = dtype === 'bf16' ? { dtype } : {};
      const stdout = await says({ ...given, y, expect: LABEL, ...more });
      assert.match(
        stdout,
        /^OTHER OPTIONS: y is right with --norm-weight FILE --norm-eps 0?\.?[0-9e-]+: each head is divided by its RMS first, and has a weight from 0\.5 to 1\.48/,
      );
    }
  });

  test('a y of zeros, which a weight of 0 would explain, has no other options', async () => {
    const y = save(
      'zeros.npy',
      hostTensor('f32', SHAPE, () => 0),
    );
    assert.match(await says({ ...given, y, expect: LABEL }), /^NOT UNDERSTOOD: y is 0 everywhere/);
  });

  test('positions of another number of axes', async () => {
    const three = save(
      'three.npy',
      hostTensor('f64', [3, POSITIONS.length], (n) => POSITIONS[n % POSITIONS.length]!),
    );
    await assert.rejects(
      run({ ...given, positions: three, expect: LABEL }),
      /has 1 position axis, and these positions have 3\. Give the config with the sections of its axes\./,
    );
    const mrope = { ...config, model_type: 'qwen2_vl', rope_scaling: { type: 'mrope', mrope_section: [8, 12, 12] } };
    await assert.rejects(
      run({ ...given, expect: write('mrope.json', mrope) }),
      /has 3 position axes, and these positions have 1\. A token of text has its position on each axis\./,
    );
  });

  test('the other 16-bit dtype, and how many heads lie side by side', async () => {
    const bits = (name: string, tensor: Tensor): string => {
      const half = hostTensor('f16', tensor.shape, (n) => floats(tensor)[n]!);
      const raw = new Uint16Array((half.read() as Uint16Array).slice().buffer);
      writeFileSync(join(folder, name), writeNpy(raw, { dtype: 'u16', shape: tensor.shape }));
      return join(folder, name);
    };
    const half = { x: bits('x-bits.npy', x), positions: files.positions, expect: LABEL, dtype: 'bf16' };
    const exact = hostTensor('f16', SHAPE, (n) => floats(x)[n]!);
    const y = kernel(floats(exact), false);
    const stdout = await says({
      ...half,
      y: bits(
        'y-bits.npy',
        hostTensor('f32', SHAPE, (n) => y[n]!),
      ),
    });
    assert.match(stdout, /^OTHER OPTIONS: y is right with --dtype f16\. /);
    await assert.rejects(
      run({ ...given, x: files.flat, y: files.flat, expect: LABEL }),
      /its heads have 192 dimensions, those of --expect have 64\. If the last dimension is 3 heads side by side, give --heads 3\./,
    );
  });
});
