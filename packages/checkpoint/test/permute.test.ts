import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import {
  linkSync,
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
import { fileURLToPath } from 'node:url';
import { permutedRows } from '@ropewalk/dialects/internal/models';
import { writeWhole } from '@ropewalk/formats/internal/node';
import fc from 'fast-check';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { labelledRows, numberedRows } from '../../../test/support/model-files.js';
import { drawn, FUZZ } from '../../../test/support/size.js';
import { WAIT_MS } from '../../../test/support/until.js';
import { copyPermuted } from '../src/permute/file.node.js';
import {
  type FusedLayout,
  type HeadGeometry,
  type LocatedTensor,
  type PermuteOptions,
  planPermutation,
} from '../src/permute/plan.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'permute-'));
after(() => rmSync(folder, { recursive: true }));
let count = 0;
const fresh = (): string => join(folder, `file-${count++}`);

const heads = (numHeads: number, numKvHeads: number, headDim: number, rotaryDim = headDim): HeadGeometry => ({
  numHeads,
  numKvHeads,
  headDim,
  rotaryDim,
});
const plan = (tensors: readonly LocatedTensor[], geometry: HeadGeometry, more: Partial<PermuteOptions> = {}) =>
  planPermutation(tensors, { to: 'interleaved', naming: 'huggingface', geometryOf: () => geometry, ...more });

/** Tensors one after the other in one file. */
function laidOut(list: readonly { name: string; shape: readonly number[]; bytes: Uint8Array; type?: string }[]) {
  let at = 5; // an odd start, as headers have
  const tensors = list.map(({ name, shape, bytes, type = 'F32' }): LocatedTensor => {
    const byteOffset = at;
    at += bytes.length;
    return { name, file: 0, shape, type, byteOffset, sizeBytes: bytes.length };
  });
  const file = new Uint8Array(at + 3).fill(0xaa);
  for (const [n, { bytes }] of list.entries()) file.set(bytes, tensors[n]!.byteOffset);
  return { tensors, file };
}

/** Plans, copies, and returns what the tensors hold then; everything around them must be as it was. */
async function applied(
  list: readonly { name: string; shape: readonly number[]; bytes: Uint8Array; type?: string }[],
  geometry: HeadGeometry,
  more: Partial<PermuteOptions> = {},
): Promise<Uint8Array[]> {
  const { tensors, file } = laidOut(list);
  const [from, to] = [fresh(), fresh()];
  writeFileSync(from, file);
  const { moves, to: pairing } = plan(tensors, geometry, more);
  await copyPermuted(from, to, moves, pairing);
  const got = new Uint8Array(readFileSync(to));
  assert.equal(got.length, file.length);
  assert.deepEqual([got.subarray(0, 5), got.subarray(-3)], [file.subarray(0, 5), file.subarray(-3)]);
  return tensors.map(({ byteOffset, sizeBytes }) => got.slice(byteOffset, byteOffset + sizeBytes!));
}

const ids = (bytes: Uint8Array): number[] => [...new Uint32Array(bytes.slice().buffer)];
const range = (n: number, first = 0): number[] => Array.from({ length: n }, (_, i) => first + i);

describe('the permutation of a head', () => {
  test('R = 8, both ways', () => {
    assert.deepEqual([...permutedRows(8, 'interleaved')], [0, 4, 1, 5, 2, 6, 3, 7]);
    assert.deepEqual([...permutedRows(8, 'half')], [0, 2, 4, 6, 1, 3, 5, 7]);
  });

  test('is the transpose that converters do, and its own inverse the other way round', () => {
    for (const r of [2, 6, 64, 128]) {
      // reshape(2, R/2) and back by columns: new row n is element (n % 2, n / 2).
      const reshaped = range(r).map((n) => (n % 2) * (r / 2) + Math.floor(n / 2));
      assert.deepEqual([...permutedRows(r, 'interleaved')], reshaped);
      const back = permutedRows(r, 'half');
      assert.deepEqual(
        [...back].map((was) => reshaped[was]),
        range(r),
      );
    }
  });

  for (const [r, to, code] of [
    [7, 'half', 'RANGE'],
    [0, 'half', 'RANGE'],
    [2 ** 20, 'half', 'RANGE'],
    [8, 'both', 'UNSUPPORTED'],
  ] as const)
    test(`refuses ${r} ${to}`, () =>
      void assert.throws(() => permutedRows(r, to as 'half'), { code, message: /^permute: / }));
});

describe('which rows move', () => {
  const L = 'model.layers.3.self_attn.';
  const k = { name: `${L}k_proj.weight`, shape: [8, 1], bytes: labelledRows(range(8, 900)) };

  test('grouped heads: k has its own count; the biases move with them; v, o and norms of the stream do not', async () => {
    const [q, kk, qb, kb, v, norm] = await applied(
      [
        { name: `${L}q_proj.weight`, shape: [24, 1], bytes: labelledRows(range(24)) },
        { name: `${L}k_proj.weight`, shape: [12, 1], bytes: labelledRows(range(12, 100)) },
        { name: `${L}q_proj.bias`, shape: [24], bytes: labelledRows(range(24, 200)) },
        { name: `${L}k_proj.bias`, shape: [12], bytes: labelledRows(range(12, 300)) },
        { name: `${L}v_proj.weight`, shape: [12, 1], bytes: labelledRows(range(12, 400)) },
        { name: 'model.layers.3.input_layernorm.weight', shape: [24], bytes: labelledRows(range(24, 500)) },
      ],
      heads(4, 2, 6),
    );
    const six = [0, 3, 1, 4, 2, 5];
    const expect = (n: number, first: number) => range(n).flatMap((h) => six.map((row) => first + h * 6 + row));
    assert.deepEqual(ids(q!), expect(4, 0));
    assert.deepEqual(ids(kk!), expect(2, 100));
    assert.deepEqual(ids(qb!), expect(4, 200));
    assert.deepEqual(ids(kb!), expect(2, 300));
    assert.deepEqual(ids(v!), range(12, 400));
    assert.deepEqual(ids(norm!), range(24, 500));
  });

  test('partial rotary: only the window of each head', async () => {
    const [q] = await applied(
      [{ name: `${L}q_proj.weight`, shape: [16, 1], bytes: labelledRows(range(16)) }, k],
      heads(2, 1, 8, 4),
    );
    assert.deepEqual(ids(q!), [0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15]);
    const [back] = await applied([{ name: `${L}q_proj.weight`, shape: [16, 1], bytes: q! }, k], heads(2, 1, 8, 4), {
      to: 'half',
    });
    assert.deepEqual(ids(back!), range(16));
  });

  test('q and k norms: one for all heads, one a head, and their biases', async () => {
    const [, , one, all, each, bias] = await applied(
      [
        { name: `${L}q_proj.weight`, shape: [16, 1], bytes: labelledRows(range(16)) },
        { name: `${L}k_proj.weight`, shape: [8, 1], bytes: labelledRows(range(8)) },
        { name: `${L}q_norm.weight`, shape: [4], bytes: labelledRows([0, 1, 2, 3]) },
        { name: `${L}k_norm.weight`, shape: [8], bytes: labelledRows(range(8)) },
        { name: `${L}q_layernorm.weight`, shape: [4, 4], bytes: labelledRows(range(16)) },
        { name: `${L}k_layernorm.bias`, shape: [4], bytes: labelledRows([0, 1, 2, 3]) },
      ],
      heads(4, 2, 4),
    );
    assert.deepEqual(ids(one!), [0, 2, 1, 3]);
    assert.deepEqual(ids(all!), [0, 2, 1, 3, 4, 6, 5, 7]);
    assert.deepEqual(ids(each!), [0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15]);
    assert.deepEqual(ids(bias!), [0, 2, 1, 3]);
  });

  test('a gate beside each q head, and the part without position of MLA, stay', async () => {
    const gated = await applied(
      [
        { name: `${L}q_proj.weight`, shape: [16, 1], bytes: labelledRows(range(16)) },
        { ...k, shape: [4, 1], bytes: labelledRows(range(4)) },
      ],
      {
        ...heads(2, 1, 4),
        queryRows: 8,
      },
    );
    assert.deepEqual(ids(gated[0]!), [0, 2, 1, 3, 4, 5, 6, 7, 8, 10, 9, 11, 12, 13, 14, 15]);
    const mla = await applied(
      [
        { name: `${L}q_b_proj.weight`, shape: [12, 1], bytes: labelledRows(range(12)) },
        { name: `${L}kv_a_proj_with_mqa.weight`, shape: [9, 1], bytes: labelledRows(range(9)) },
        { name: `${L}kv_b_proj.weight`, shape: [12, 1], bytes: labelledRows(range(12)) },
      ],
      { ...heads(2, 1, 4), queryRows: 6, queryOffset: 2, keyRows: 9, keyOffset: 5 },
    );
    assert.deepEqual(ids(mla[0]!), [0, 1, 2, 4, 3, 5, 6, 7, 8, 10, 9, 11]);
    assert.deepEqual(ids(mla[1]!), [0, 1, 2, 3, 4, 5, 7, 6, 8]);
    assert.deepEqual(ids(mla[2]!), range(12));
  });

  // Labels: 1000·part + 100·head + row, in the order that each model's own reshape gives.
  const label = (part: number, head: number, row: number) => 1000 * part + 100 * head + row;
  const whole = (part: number, head: number, d = 4) => range(d).map((row) => label(part, head, row));
  const four = (part: number, head: number) => [0, 2, 1, 3].map((row) => label(part, head, row));
  const layouts: [
    FusedLayout,
    string,
    HeadGeometry,
    (q: typeof whole, k: typeof whole, v: typeof whole) => number[],
  ][] = [
    [
      'concatenated',
      'model.layers.0.self_attn.qkv_proj.weight',
      heads(4, 2, 4),
      (q, kk, v) => [
        ...range(4).flatMap((h) => q(1, h)),
        ...range(2).flatMap((h) => kk(2, h)),
        ...range(2).flatMap((h) => v(3, h)),
      ],
    ],
    [
      'concatenated',
      'model.layers.0.attn.Wqkv.weight',
      heads(1, 1, 4),
      (q, kk, v) => [...q(1, 0), ...kk(2, 0), ...v(3, 0)],
    ],
    [
      'by-head',
      'gpt_neox.layers.0.attention.query_key_value.weight',
      heads(3, 3, 4),
      (q, kk, v) => range(3).flatMap((h) => [...q(1, h), ...kk(2, h), ...v(3, h)]),
    ],
    [
      'by-group',
      'transformer.h.0.self_attention.query_key_value.weight',
      heads(6, 2, 4),
      (q, kk, v) => range(2).flatMap((g) => [...range(3).flatMap((n) => q(1, 3 * g + n)), ...kk(2, g), ...v(3, g)]),
    ],
    [
      'codegen',
      'transformer.h.0.attn.qkv_proj.weight',
      heads(8, 8, 4),
      (q, kk, v) =>
        range(4).flatMap((shard) => [
          ...range(2).flatMap((n) => q(1, 2 * shard + n)),
          ...range(2).flatMap((n) => v(3, 2 * shard + n)),
          ...range(2).flatMap((n) => kk(2, 2 * shard + n)),
        ]),
    ],
  ];
  for (const [fused, name, geometry, order] of layouts) {
    test(`fused, ${fused}: ${name}`, async () => {
      const old = order(whole, whole, whole);
      const [got] = await applied([{ name, shape: [old.length, 1], bytes: labelledRows(old) }], geometry, { fused });
      assert.deepEqual(ids(got!), order(four, four, whole));
      const [bias] = await applied(
        [{ name: name.replace('weight', 'bias'), shape: [old.length], bytes: labelledRows(old) }],
        geometry,
        {
          fused,
        },
      );
      assert.deepEqual(bias, got);
    });
  }

  test('names: which are moved, which are left', () => {
    const make = (names: readonly string[]) =>
      laidOut(names.map((name) => ({ name, shape: [8, 1], bytes: labelledRows(range(8)) }))).tensors;
    const taken = (names: readonly string[], naming: 'huggingface' | 'gguf') =>
      plan(make(names), heads(2, 2, 4), { naming, fused: 'concatenated' }).moves.map(({ name }) => name);
    const hf = [
      'model.layers.0.self_attn.q_proj.weight',
      'model.layers.0.self_attn.k_proj.weight',
      'language_model.model.layers.1.self_attn.q_proj.weight',
      'language_model.model.layers.1.self_attn.k_proj.weight',
      'model.language_model.layers.2.self_attn.q_proj.weight',
      'model.language_model.layers.2.self_attn.k_proj.weight',
      'transformer.h.3.attn.q_proj.weight',
      'transformer.h.3.attn.k_proj.weight',
      'mtp.layers.0.self_attn.q_proj.weight',
      'mtp.layers.0.self_attn.k_proj.weight',
      'base_model.model.model.layers.4.self_attn.q_proj.lora_B.weight',
    ];
    const left = [
      'vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight',
      'model.visual.blocks.0.attn.qkv.weight',
      'model.layers.0.self_attn.v_proj.weight',
      'model.layers.0.self_attn.o_proj.weight',
      'model.layers.0.linear_attn.in_proj_qkvz.weight',
      'model.layers.0.mlp.gate_proj.weight',
      'model.embed_tokens.weight',
      'base_model.model.model.layers.4.self_attn.q_proj.lora_A.weight',
    ];
    assert.deepEqual(taken([...hf, ...left], 'huggingface'), hf);
    const gguf = ['blk.0.attn_q.weight', 'blk.0.attn_k.weight', 'blk.11.attn_q.weight', 'blk.11.attn_k.weight'];
    const leftGguf = [
      'blk.0.attn_v.weight',
      'blk.0.attn_output.weight',
      'v.blk.0.attn_q.weight',
      'blk.0.attn_norm.weight',
      'rope_freqs.weight',
    ];
    assert.deepEqual(taken([...gguf, ...leftGguf], 'gguf'), gguf);
    assert.match(
      plan(make([...hf, ...left]), heads(2, 2, 4)).notes.join('\n'),
      /2 tensors of other towers \(vision_tower/,
    );
  });

  test('--tensors with groups names what is not known; without, it leaves layers out, whole', () => {
    const names = [
      'decoder.block.0.mix.query.weight',
      'decoder.block.0.mix.key.weight',
      'decoder.block.0.mix.value.weight',
    ];
    const { tensors } = laidOut(names.map((name) => ({ name, shape: [8, 1], bytes: labelledRows(range(8)) })));
    const { moves } = plan(tensors, heads(2, 2, 4), { only: /mix\.((?<q>query)|(?<k>key))\./ });
    assert.deepEqual(
      moves.map(({ name, q, k: kk }) => [name, q, kk]),
      [
        [names[0], [0, 4], []],
        [names[1], [], [0, 4]],
      ],
    );
    const two = ['0', '1'].flatMap((layer) =>
      ['q_proj', 'k_proj'].map((part) => `model.layers.${layer}.self_attn.${part}.weight`),
    );
    const all = laidOut(two.map((name) => ({ name, shape: [8, 1], bytes: labelledRows(range(8)) }))).tensors;
    const some = plan(all, heads(2, 2, 4), { only: /layers\.1\./ });
    assert.deepEqual(
      some.moves.map(({ name }) => name),
      two.slice(2),
    );
    assert.match(some.notes.join(), /leaves 1 layer as it is\./);
    assert.throws(() => plan(all, heads(2, 2, 4), { only: /q_proj/ }), {
      code: 'FORMAT',
      message: /--tensors: it matches \S*q_proj.weight but not \S*k_proj.weight. Match all tensors of layer 0, or none/,
    });
  });

  test('quantisation data beside a weight: rows of scales move, blocks of whole heads and single scales stay', () => {
    const beside = (suffix: string, shape: number[], geometry = heads(4, 2, 4)) =>
      plan(
        laidOut([
          { name: `${L}q_proj.weight`, shape: [16, 1], bytes: labelledRows(range(16)) },
          { name: `${L}k_proj.weight`, shape: [8, 1], bytes: labelledRows(range(8)) },
          { name: `${L}q_proj.${suffix}`, shape, bytes: new Uint8Array(4 * shape.reduce((a, b) => a * b, 1)) },
        ]).tensors,
        geometry,
      ).moves.length;
    assert.equal(beside('weight_scale', [16, 1]), 3);
    assert.equal(beside('weight_packed', [16, 2]), 3);
    assert.equal(beside('weight_scale', [1]), 2);
    assert.equal(beside('weight_scale', []), 2);
    assert.equal(beside('input_scale', [1]), 2);
    assert.equal(beside('weight_scale_inv', [4, 1]), 2); // a block a head
    assert.equal(beside('weight_scale_inv', [2, 1]), 2); // a block for two heads
    // Blocks that cut through a head.
    assert.throws(() => beside('weight_scale_inv', [8, 1]), {
      code: 'UNSUPPORTED',
      message: /block of whole heads.*before quantising it/,
    });
    for (const suffix of ['qweight', 'qzeros', 'g_idx', 'weight.absmax', 'weight.quant_state.bitsandbytes__nf4'])
      assert.throws(() => beside(suffix, [2, 8]), {
        code: 'UNSUPPORTED',
        message: /expected weights that move by whole rows/,
      });
  });
});

test('random models: converting and converting back gives the same bytes, and one way gives what a plain loop gives', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        group: fc.integer({ min: 1, max: 4 }),
        kv: fc.integer({ min: 1, max: 3 }),
        pairs: fc.integer({ min: 1, max: 9 }),
      }),
      fc.nat(5),
      fc.constantFrom(1, 2, 4, 8, 18, 34, 210, 5000),
      fc.constantFrom('half' as const, 'interleaved' as const),
      async ({ group, kv, pairs }, rest, rowBytes, to) => {
        const d = 2 * pairs + rest;
        const geometry = heads(group * kv, kv, d, 2 * pairs);
        const q = numberedRows(group * kv * d, rowBytes);
        const k = numberedRows(kv * d, rowBytes, 1);
        const names = ['model.layers.0.self_attn.q_proj.weight', 'model.layers.0.self_attn.k_proj.weight'] as const;
        const list = (a: Uint8Array, b: Uint8Array) => [
          { name: names[0], shape: [a.length / rowBytes, rowBytes], bytes: a },
          { name: names[1], shape: [b.length / rowBytes, rowBytes], bytes: b },
        ];
        const [q1, k1] = await applied(list(q, k), geometry, { to });
        const plain = (bytes: Uint8Array): Uint8Array => {
          const out = bytes.slice();
          for (let head = 0; head < bytes.length / rowBytes / d; head++) {
            for (let j = 0; j < pairs; j++) {
              const [half, near] = [
                [head * d + j, head * d + j + pairs],
                [head * d + 2 * j, head * d + 2 * j + 1],
              ];
              const [old, next] = to === 'interleaved' ? [half!, near!] : [near!, half!];
              for (const n of [0, 1])
                out.set(bytes.subarray(old[n]! * rowBytes, (old[n]! + 1) * rowBytes), next[n]! * rowBytes);
            }
          }
          return out;
        };
        assert.deepEqual(q1, plain(q));
        assert.deepEqual(k1, plain(k));
        const [q2, k2] = await applied(list(q1!, k1!), geometry, { to: to === 'half' ? 'interleaved' : 'half' });
        assert.deepEqual([q2, k2], [q, k]);
      },
    ),
    drawn(60),
  );
});

describe('files', () => {
  const big = (rowBytes: number, q: number, k: number, headDim: number) => {
    const path = fresh();
    const tensors: LocatedTensor[] = [
      {
        name: 'model.layers.0.self_attn.q_proj.weight',
        file: 0,
        shape: [q * headDim, rowBytes],
        type: 'U8',
        byteOffset: 100,
        sizeBytes: q * headDim * rowBytes,
      },
      {
        name: 'model.layers.0.self_attn.k_proj.weight',
        file: 0,
        shape: [k * headDim, rowBytes],
        type: 'U8',
        byteOffset: 100 + q * headDim * rowBytes,
        sizeBytes: k * headDim * rowBytes,
      },
    ];
    return { path, tensors, size: 100 + (q + k) * headDim * rowBytes };
  };

  test('rows too large for a buffer go in parts', async () => {
    const { path, tensors, size } = big(2 ** 20 + 3, 2, 1, 6);
    const bytes = new Uint8Array(size);
    for (let row = 0; row < 18; row++) bytes.fill(row + 1, 100 + row * (2 ** 20 + 3), 100 + (row + 1) * (2 ** 20 + 3));
    writeFileSync(path, bytes);
    const out = fresh();
    await copyPermuted(path, out, plan(tensors, heads(2, 1, 6)).moves, 'interleaved');
    const got = new Uint8Array(readFileSync(out));
    const order = range(3).flatMap((h) => [0, 3, 1, 4, 2, 5].map((row) => h * 6 + row + 1));
    for (const [row, value] of order.entries()) {
      const part = got.subarray(100 + row * (2 ** 20 + 3), 100 + (row + 1) * (2 ** 20 + 3));
      assert.ok(
        part.every((byte) => byte === value),
        `row ${row}`,
      );
    }
    rmSync(path);
    rmSync(out);
  });

  test('memory does not grow with the file: 200 MiB', () => {
    const script = fresh();
    // In its own process, so that its high-water mark is that of this copy. The file is sparse but for a mark in some
    // rows.
    writeFileSync(
      `${script}.mts`,
      `import { open, rm } from 'node:fs/promises';
      import { copyPermuted } from ${JSON.stringify(join(root, 'packages/checkpoint/src/permute/file.node.ts'))};
      import { planPermutation } from ${JSON.stringify(join(root, 'packages/checkpoint/src/permute/plan.ts'))};
      const run = async (hidden) => {
        const [path, out] = [${JSON.stringify(script)} + hidden, ${JSON.stringify(script)} + hidden + '.out'];
        const rows = 2048, tail = 150 * hidden * 128;
        const at = (n) => 64 + n * rows * hidden * 2;
        const tensors = ['q', 'k'].map((p, n) => ({ name: 'model.layers.0.self_attn.' + p + '_proj.weight', file: 0, shape: [rows, hidden], type: 'BF16', byteOffset: at(n), sizeBytes: rows * hidden * 2 }));
        const file = await open(path, 'w');
        await file.truncate(at(2) + tail);
        await file.write(new Uint8Array([42]), 0, 1, at(0) + 64 * hidden * 2);
        await file.close();
        const { moves } = planPermutation(tensors, { to: 'interleaved', naming: 'huggingface', geometryOf: () => ({ numHeads: 16, numKvHeads: 16, headDim: 128, rotaryDim: 128 }) });
        const before = process.resourceUsage().maxRSS;
        await copyPermuted(path, out, moves, 'interleaved');
        const after = process.resourceUsage().maxRSS;
        const got = await open(out);
        const byte = new Uint8Array(1);
        await got.read(byte, 0, 1, at(0) + 1 * hidden * 2);
        const size = (await got.stat()).size;
        await got.close();
        await rm(path); await rm(out);
        return { size, grown: (after - before) / 1024, byte: byte[0] };
      };
      await run(64);
      console.log(JSON.stringify(await run(7680)));`,
    );
    const ran = spawnSync(process.execPath, ['--import', 'tsx', `${script}.mts`], {
      cwd: root,
      encoding: 'utf8',
      timeout: WAIT_MS,
    });
    assert.equal(ran.status, 0, ran.stderr);
    const { size, grown, byte } = JSON.parse(ran.stdout);
    assert.ok(size > 200 * 2 ** 20, `${size} bytes`);
    assert.equal(byte, 42, 'old row 64 is new row 1');
    assert.ok(grown < 64, `${grown} MiB`);
  });

  test('whole or not at all', async () => {
    const dir = join(folder, 'whole');
    mkdirSync(dir);
    const input = join(dir, 'in');
    const output = join(dir, 'out');
    writeFileSync(input, 'abc');
    const options = { sizeBytes: 3, inputs: [input], kind: 'file' as const };
    const write = (at: string) => copyPermuted(input, at, [], 'half');

    await assert.rejects(
      writeWhole(output, options, async (at) => {
        await write(at);
        assert.equal(readdirSync(dir).length, 2);
        throw new Error('no');
      }),
      /^Error: no$/,
    );
    assert.deepEqual(readdirSync(dir), ['in'], 'nothing left');
    const abort = new AbortController();
    abort.abort(new Error('stop'));
    await assert.rejects(
      writeWhole(output, options, (at) => copyPermuted(input, at, [], 'half', { signal: abort.signal })),
      /^Error: stop$/,
    );
    assert.deepEqual(readdirSync(dir), ['in']);

    await writeWhole(output, options, write);
    assert.deepEqual([readdirSync(dir), readFileSync(output, 'utf8')], [['in', 'out'], 'abc']);
    const refusals: [string, string, object, RegExp][] = [
      ['an output that exists', output, {}, /out: it already exists\. Give another, or --force/],
      ['the input', input, { force: true }, /it is the file that is read/],
      ['a folder that is not there', join(dir, 'no', 'out'), {}, /there is no such file or folder/],
      ['a folder that is a file', join(input, 'out'), {}, /in: it is a file, not a folder|ENOTDIR/],
      ['a folder that exists', dir, { kind: 'folder', force: true }, /it already exists.*Remove it first/],
    ];
    linkSync(input, join(dir, 'linked'));
    symlinkSync(input, join(dir, 'sym'));
    refusals.push(['a link to the input', join(dir, 'linked'), { force: true }, /it is the file that is read/]);
    refusals.push(['a symbolic link to it', join(dir, 'sym'), { force: true }, /it is the file that is read/]);
    for (const [name, at, more, message] of refusals)
      await assert.rejects(writeWhole(at, { ...options, ...more }, write), { message }, name);
    await assert.rejects(
      writeWhole(join(dir, 'sub'), { sizeBytes: 0, inputs: [dir], kind: 'folder' }, async () => {}),
      { message: /it lies inside the input/ },
    );
    await assert.rejects(writeWhole(join(dir, 'huge'), { ...options, sizeBytes: 2 ** 60 }, write), {
      code: 'DEVICE',
      message: /takes \d+(,\d{3})* bytes, and \d{1,3}(,\d{3})* bytes are free/,
    });
    // A name that appears while the work goes on is not replaced.
    await assert.rejects(
      writeWhole(join(dir, 'race'), options, async (at) => {
        await write(at);
        writeFileSync(join(dir, 'race'), 'theirs');
      }),
      { message: /it already exists/ },
    );
    assert.equal(readFileSync(join(dir, 'race'), 'utf8'), 'theirs');
    writeFileSync(output, 'old');
    await writeWhole(output, { ...options, force: true }, write);
    assert.equal(readFileSync(output, 'utf8'), 'abc');
    assert.deepEqual(readdirSync(dir).sort(), ['in', 'linked', 'out', 'race', 'sym']);
  });

  test('what a killed run left is removed by the next, and nothing else', async () => {
    const dir = join(folder, 'leftovers');
    mkdirSync(dir);
    const write = (name: string): Promise<string[]> =>
      writeWhole(join(dir, name), { sizeBytes: 1, inputs: [], kind: 'file' }, async (at) => {
        writeFileSync(at, 'x');
        return readdirSync(dir).filter((entry) => entry.endsWith('.tmp'));
      });
    const [own] = await write('first');
    assert.match(own!, /^\.first\.\d+-[0-9a-f]{12}-[0-9a-f]{8}\.ropewalk\.tmp$/);
    const [, pid, space] = /\.(\d+)-([0-9a-f]{12})-/.exec(own!)!;
    assert.equal(Number(pid), process.pid);
    const gone = spawnSync(process.execPath, ['-e', '']).pid;
    const left = [
      `.first.${gone}-${space}-00000000.ropewalk.tmp`,
      `.other.${process.pid}-${space}-00000000.ropewalk.tmp`,
    ];
    const kept = [
      `.first.${process.ppid}-${space}-00000000.ropewalk.tmp`, // it lives
      `.first.${gone}-0123456789ab-00000000.ropewalk.tmp`, // of another machine
      `.first.${gone}.tmp`,
      `first.${gone}-${space}-00000000.ropewalk.tmp`,
      `.first.${gone}-${space}-00000000.ropewalk.tmp.keep`,
    ];
    for (const name of [...left, ...kept]) writeFileSync(join(dir, name), '');
    const tree = `.folder.${gone}-${space}-00000000.ropewalk.tmp`;
    mkdirSync(join(dir, tree, 'deep'), { recursive: true });
    writeFileSync(join(dir, 'theirs'), '');
    symlinkSync(join(dir, 'theirs'), join(dir, tree, 'deep', 'link'));
    await write('second');
    assert.deepEqual(readdirSync(dir).sort(), ['first', 'second', 'theirs', ...kept].sort());
    // Two at once, of one process: neither takes the other's for a leftover.
    await writeWhole(join(dir, 'third'), { sizeBytes: 1, inputs: [], kind: 'file' }, async (at) => {
      writeFileSync(at, 'x');
      await write('fourth');
    });
    assert.deepEqual(readdirSync(dir).sort(), ['first', 'fourth', 'second', 'theirs', 'third', ...kept].sort());
  });

  test('a file that ends early', async () => {
    const { path, tensors } = big(4, 2, 2, 8);
    writeFileSync(path, new Uint8Array(120));
    await assert.rejects(copyPermuted(path, fresh(), plan(tensors, heads(2, 2, 8)).moves, 'half'), {
      code: 'FORMAT',
      message: /expected 64 bytes from 100|expected \d+ bytes from 100, got 20\. The file was cut/,
    });
    await assert.rejects(copyPermuted(join(folder, 'none'), fresh(), [], 'half'), {
      code: 'FORMAT',
      message: /there is no such file or folder/,
    });
  });
});

test('fuzz: what a forged header says is refused, or planned within its bytes', () => {
  const names = [
    'model.layers.0.self_attn.q_proj.weight',
    'model.layers.0.self_attn.k_proj.weight',
    'model.layers.0.self_attn.q_proj.bias',
    'model.layers.0.self_attn.k_norm.weight',
    'model.layers.0.self_attn.q_proj.weight_scale',
    'model.layers.0.self_attn.qkv_proj.weight',
    'model.layers.999999999999.self_attn.q_proj.weight',
    'model.layers.-1.self_attn.k_proj.weight',
    'blk.0.attn_q.weight',
    'blk.0.attn_k.weight',
    'blk.0.attn_qkv.weight',
    'constructor',
    '__proto__',
    'q_proj',
    '',
    'x'.repeat(5000),
  ];
  const number = fc.constantFrom(0, 1, 2, 3, 4, 8, 12, 16, 24, 32, 2 ** 16, 2 ** 31, 2 ** 40, 2 ** 53 - 1);
  const tensor = fc.record({
    name: fc.constantFrom(...names),
    file: fc.nat(1),
    shape: fc.array(number, { maxLength: 4 }),
    type: fc.constantFrom('F32', 'Q8_0', 'TYPE_99', ''),
    byteOffset: number,
    sizeBytes: fc.oneof(number, fc.constant(undefined)),
  });
  const geometry = fc.record(
    { numHeads: number, numKvHeads: number, headDim: number, rotaryDim: number, queryRows: number, keyOffset: number },
    { requiredKeys: ['numHeads', 'numKvHeads', 'headDim', 'rotaryDim'] },
  );
  let planned = 0;
  // Half of the runs start from a model that is well formed, and change one thing.
  const sane = { numHeads: 4, numKvHeads: 2, headDim: 4, rotaryDim: 4 };
  const good = laidOut([
    { name: names[0]!, shape: [16, 8], bytes: new Uint8Array(512) },
    { name: names[1]!, shape: [8, 8], bytes: new Uint8Array(256) },
    { name: names[2]!, shape: [16], bytes: new Uint8Array(64) },
    { name: names[3]!, shape: [4], bytes: new Uint8Array(16) },
    { name: names[4]!, shape: [16, 1], bytes: new Uint8Array(16) },
  ]).tensors;
  const bent = fc
    .tuple(fc.nat(4), tensor, fc.constantFrom('name', 'file', 'shape', 'type', 'byteOffset', 'sizeBytes', 'nothing'))
    .map(([n, other, field]) =>
      good.map((one, at) =>
        at === n && field !== 'nothing' ? { ...one, [field]: other[field as keyof typeof other] } : one,
      ),
    );
  fc.assert(
    fc.property(
      fc.oneof(bent, fc.uniqueArray(tensor, { maxLength: 5, selector: ({ name }) => name })),
      fc.oneof(geometry, fc.constant(sane)),
      fc.constantFrom(undefined, 'concatenated', 'by-head', 'by-group', 'codegen'),
      fc.constantFrom('huggingface', 'gguf'),
      (tensors, heads_, fused, naming) =>
        mustRefuseOrReturn(() => {
          const options = {
            naming: naming as 'gguf',
            ...(fused ? { fused: fused as FusedLayout } : {}),
            sharesKeys: true,
          };
          const { moves } = plan(tensors, heads_ as HeadGeometry, options);
          planned++;
          for (const { rows, rowBytes, q, k, geometry: g } of moves) {
            assert.ok(Number.isSafeInteger(rowBytes) && rowBytes > 0);
            const starts = [...q, ...k].sort((a, b) => a - b);
            for (const [n, start] of starts.entries()) {
              assert.ok(start >= 0 && start + g.rotaryDim <= rows, `window at ${start} of ${rows} rows`);
              if (n > 0) assert.ok(start >= starts[n - 1]! + g.rotaryDim, 'windows apart');
            }
          }
        }, ['FORMAT', 'SHAPE', 'RANGE', 'UNSUPPORTED']),
    ),
    drawn(20_000),
  );
  assert.ok(planned > 50 * FUZZ, `${planned} plans`);
});

describe('refusals', () => {
  const L = 'model.layers.0.self_attn.';
  const make = (list: [string, number[], number?][]) =>
    laidOut(
      list.map(([name, shape, size]) => ({
        name,
        shape,
        bytes: new Uint8Array(size ?? 4 * shape.reduce((a, b) => a * b, 1)),
      })),
    ).tensors;
  const cases: [string, LocatedTensor[], HeadGeometry, Partial<PermuteOptions>, string, RegExp][] = [
    [
      'no q and k',
      make([['model.embed_tokens.weight', [8, 4]]]),
      heads(2, 2, 4),
      {},
      'FORMAT',
      /no q and k projections found\. Is this the language model\?/,
    ],
    ['nothing at all', [], heads(2, 2, 4), {}, 'FORMAT', /no q and k projections found/],
    [
      'q alone',
      make([[`${L}q_proj.weight`, [8, 4]]]),
      heads(2, 2, 4),
      {},
      'FORMAT',
      /layer 0: \S*q_proj.weight has no k beside it.*one shard of several/,
    ],
    [
      'k alone',
      make([[`${L}k_proj.weight`, [8, 4]]]),
      heads(2, 2, 4),
      { sharesKeys: true },
      'FORMAT',
      /k_proj.weight has no q beside it/,
    ],
    ['norms alone', make([[`${L}q_norm.weight`, [4]]]), heads(2, 2, 4), {}, 'FORMAT', /only norms of q and k found/],
    [
      'heads that do not fit',
      make([[`${L}q_proj.weight`, [12, 4]]]),
      heads(2, 2, 4),
      {},
      'SHAPE',
      /q_proj\.weight: expected 8 rows, heads=2 × 4, got \[12, 4\]/,
    ],
    [
      'kv heads taken for heads',
      make([
        [`${L}q_proj.weight`, [16, 4]],
        [`${L}k_proj.weight`, [8, 4]],
      ]),
      heads(4, 4, 4),
      {},
      'SHAPE',
      /k_proj\.weight: expected 16 rows, kv_heads=4 × 4, got \[8, 4\]/,
    ],
    [
      'kv heads that do not divide',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(4, 3, 4),
      {},
      'RANGE',
      /layer 0: kv_heads: expected a divisor of heads=4, got 3/,
    ],
    [
      'more kv heads',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(4, 8, 4),
      {},
      'RANGE',
      /kv_heads: expected an integer in \[1, 4\], got 8/,
    ],
    [
      'an odd window',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(4, 4, 4, 3),
      {},
      'RANGE',
      /rotary_dim: expected an even integer in \[2, head_dim=4\], got 3/,
    ],
    [
      'a window past the head',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(4, 4, 4, 6),
      {},
      'RANGE',
      /rotary_dim: expected an integer in \[2, 4\], got 6/,
    ],
    [
      'zero heads',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(0, 0, 4),
      {},
      'RANGE',
      /heads: expected an integer in \[1, 65536\], got 0/,
    ],
    [
      'NaN',
      make([[`${L}q_proj.weight`, [16, 4]]]),
      heads(4, 4, Number.NaN, 4),
      {},
      'RANGE',
      /head_dim: expected an integer in \[2, 65536\], got NaN/,
    ],
    [
      'a bias as long as one head',
      make([[`${L}q_proj.bias`, [4]]]),
      heads(2, 2, 4),
      {},
      'SHAPE',
      /q_proj\.bias: expected 8 rows/,
    ],
    [
      'a norm of another length',
      make([[`${L}q_norm.weight`, [5]]]),
      heads(2, 2, 4),
      {},
      'SHAPE',
      /q_norm\.weight: expected head_dim=4 values, or 2 heads × 4, got \[5\]/,
    ],
    [
      'rows without columns',
      make([[`${L}q_proj.weight`, [8, 0]]]),
      heads(2, 2, 4),
      {},
      'UNSUPPORTED',
      /its 8 rows of F32 are not whole bytes: 0 bytes in all/,
    ],
    [
      'rows of half bytes',
      make([[`${L}q_proj.weight`, [8, 1], 4]]),
      heads(2, 2, 4),
      {},
      'UNSUPPORTED',
      /8 rows of F32 are not whole bytes: 4 bytes in all/,
    ],
    [
      'fused, of unknown layout',
      make([[`${L}qkv_proj.weight`, [24, 4]]]),
      heads(2, 2, 4),
      {},
      'UNSUPPORTED',
      /how q, k and v share this tensor is unknown/,
    ],
    [
      'q and k by other modules’ names',
      make([['foo.bar.q_proj.weight', [8, 4]]]),
      heads(2, 2, 4),
      {},
      'UNSUPPORTED',
      /foo\.bar\.q_proj\.weight: this name does not say whether it is q or k.*--tensors/,
    ],
    [
      'an indexer with rotation of its own',
      make([[`${L}indexer.wq_b.weight`, [8, 4]]]),
      heads(2, 2, 4),
      {},
      'UNSUPPORTED',
      /indexer/,
    ],
  ];
  for (const [name, tensors, geometry, more, code, message] of cases)
    test(name, () => void assert.throws(() => plan(tensors, geometry, more), { code, message }));

  test('tensors that share bytes', () => {
    const [q, k] = make([
      [`${L}q_proj.weight`, [8, 4]],
      [`${L}k_proj.weight`, [8, 4]],
    ]);
    assert.throws(() => plan([q!, { ...k!, byteOffset: q!.byteOffset + 4 }], heads(2, 2, 4)), {
      code: 'FORMAT',
      message: /shares bytes with another tensor.*forged/,
    });
    assert.throws(() => plan([q!, k!, { ...k!, name: 'lm_head.weight' }], heads(2, 2, 4)), {
      code: 'FORMAT',
      message: /shares bytes with another tensor/,
    });
    assert.equal(
      plan([q!, { ...k!, byteOffset: q!.byteOffset, file: 1 }], heads(2, 2, 4)).moves.length,
      2,
      'of two files they are apart',
    );
  });

  test('a type whose rows are unknown', () => {
    const [q, k] = make([
      [`${L}q_proj.weight`, [8, 4]],
      [`${L}k_proj.weight`, [8, 4]],
    ]);
    assert.throws(() => plan([{ ...q!, type: 'TYPE_31', sizeBytes: undefined }, k!], heads(2, 2, 4)), {
      code: 'UNSUPPORTED',
      message: /the layout of type TYPE_31 is unknown/,
    });
  });
});
