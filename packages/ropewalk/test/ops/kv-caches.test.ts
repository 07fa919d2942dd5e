/** KV caches in 8 bits and in blocks, parts that are copied, and attention: every backend against the reference. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { noBackend, openShared } from '../../../../test/support/gpu.js';
import { drawn } from '../../../../test/support/size.js';
import { f64Tensor } from '../../../../test/support/tensors.js';
import { describeOnce, GENERAL_HERE } from '../../../../test/support/tier.js';
import { whyNotFloatCaches } from '../../src/backends/caches.js';
import { type CacheDtype, type FloatDtype, isFloat, loadNumber, newArray, storeNumber } from '../../src/core/dtypes.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { bindRopeParts, type RopePartOptions } from '../../src/ops/rope/call.js';
import { planRope, type RopePlan } from '../../src/ops/rope/plan.js';
import { planSelfAttention } from '../../src/ops/self-attention.js';
import { ropeReference } from '../../src/reference/rope.js';
import { selfAttentionReference } from '../../src/reference/self-attention.js';

const EIGHT_BITS = ['i8', 'f8_e4m3', 'f8_e5m2'] as const;
const BACKENDS = [
  { name: 'reference', runs: 60 },
  { name: 'cpu', runs: 300 },
  { name: 'webgpu', runs: 25 },
].filter(({ name }) => GENERAL_HERE.includes(name));

/** Lists every value and midpoint of a dtype, their f32 neighbours, and numbers outside its range. */
function hardValues(dtype: (typeof EIGHT_BITS)[number]): Float32Array {
  const grid = Array.from({ length: 256 }, (_, n) =>
    loadNumber(dtype === 'i8' ? Int8Array.of(n) : Uint8Array.of(n), dtype, 0),
  )
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  const list = [NaN, Infinity, -Infinity, 0, -0, 1e-30, -1e-42, 3e38, grid[0]! * 1.01, grid.at(-1)! * 1.04];
  for (const [n, value] of grid.entries()) {
    const middle = (value + (grid[n + 1] ?? value)) / 2;
    for (const v of [value, middle]) list.push(v, Math.fround(v * (1 + 2 ** -23)), Math.fround(v * (1 - 2 ** -23)));
  }
  return Float32Array.from({ length: Math.ceil(list.length / 12) * 12 }, (_, n) => list[n] ?? 1);
}

/** The choices of a random call. */
interface Recipe {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly pairs: number;
  readonly rest: number;
  readonly offset: boolean;
  readonly pairing: 'half' | 'interleaved' | 'interleaved-to-half';
  readonly xDtype: FloatDtype;
  readonly outDtype: CacheDtype;
  readonly layout: 'bsnh' | 'bnsh';
  readonly place: 'tokens' | 'rows' | 'slots';
  readonly skip: number;
  readonly rotate: boolean;
  readonly norm: boolean;
  /** `rows` stands for `one` where the cache is not i8. */
  readonly scale: 'one' | 'heads' | 'dims' | 'rows';
}

const recipe: fc.Arbitrary<Recipe> = fc.record({
  batch: fc.integer({ min: 1, max: 2 }),
  seq: fc.integer({ min: 1, max: 4 }),
  heads: fc.integer({ min: 1, max: 3 }),
  pairs: fc.constantFrom(1, 2, 3, 4, 8, 11, 16),
  rest: fc.constantFrom(0, 3, 8),
  offset: fc.boolean(),
  pairing: fc.constantFrom<Recipe['pairing']>('half', 'interleaved', 'interleaved-to-half'),
  xDtype: fc.constantFrom<FloatDtype>('f32', 'f16', 'bf16'),
  outDtype: fc.constantFrom<CacheDtype>(...EIGHT_BITS, ...EIGHT_BITS, 'f32', 'f16'),
  layout: fc.constantFrom<Recipe['layout']>('bsnh', 'bnsh'),
  place: fc.constantFrom<Recipe['place']>('tokens', 'rows', 'slots'),
  skip: fc.integer({ min: 0, max: 7 }),
  rotate: fc.boolean(),
  norm: fc.boolean(),
  scale: fc.constantFrom<Recipe['scale']>('one', 'heads', 'dims', 'rows', 'rows'),
});

const BLOCK = 3;
const SENTINEL = 77;

/** Makes the tensors of a call, which are the same for each backend. */
function made(r: Recipe): { plan: RopePlan; part: RopePartOptions; layout: Recipe['layout'] } {
  const headDim = 2 * r.pairs + r.rest;
  const copied = r.rotate ? headDim : headDim + 5; // v may be wider than k.
  const tokens = r.batch * r.seq;
  const plan = planRope({
    headDim,
    rotaryDim: 2 * r.pairs,
    rotaryOffset: r.offset ? r.rest : 0,
    pairing: r.pairing,
    base: 10000,
    positions: Array.from({ length: r.seq }, (_, s) => 7 + 90 * s),
  });
  const wave = (n: number, by: number): number[] => Array.from({ length: n }, (_, i) => Math.sin(i * by + 1) * 3);
  const dims = (rows: number, batch: number): number[] =>
    r.layout === 'bsnh' ? [batch, rows, r.heads, copied] : [batch, r.heads, rows, copied];
  const x = f64Tensor(wave(tokens * r.heads * copied, 0.7), dims(r.seq, r.batch), r.xDtype);
  const blocks = Math.ceil((tokens + 2) / BLOCK);
  const shape = r.place === 'slots' ? dims(BLOCK, blocks) : dims(r.place === 'rows' ? r.seq + 2 : r.seq, r.batch);
  // Rows have a gap of 1 element, for an odd stride, and for memory that no call may touch.
  const size = shape.reduce((a, b) => a * b);
  const data = newArray(r.outDtype, size + size / copied);
  (data as Uint8Array).fill(SENTINEL);
  const last = [shape[2]! * (copied + 1), copied + 1, 1];
  const strided = tensorFrom(data, { dtype: r.outDtype, shape, strides: [shape[1]! * last[0]!, ...last] });
  const places = Array.from({ length: tokens }, (_, n) => {
    if (n === r.skip) return -1;
    return r.place === 'slots' ? tokens - n : (n % r.seq) + (n < r.seq ? 1 : 2);
  });
  const count = { one: 1, rows: 1, heads: r.heads, dims: r.heads * copied }[r.scale];
  const own = r.scale === 'rows' && r.outDtype === 'i8';
  const ownScales = tensorFrom(new Float32Array(size / copied).fill(SENTINEL), { shape: shape.slice(0, -1) });
  const scales = Array.from({ length: count }, (_, n) => 0.02 + 0.003 * (n % 5));
  const scale = scales.length === 1 ? 0.025 : scales;
  return {
    plan,
    layout: r.layout,
    part: {
      x: x as Tensor<FloatDtype>,
      out: strided as Tensor<CacheDtype>,
      ...(r.place === 'rows' ? { rows: places } : r.place === 'slots' ? { slots: places } : {}),
      ...(r.norm
        ? { norm: { weight: f64Tensor(wave(copied, 1.3), [copied], 'f32') as Tensor<FloatDtype>, eps: 1e-5 } }
        : {}),
      ...(own ? { rowScales: ownScales as Tensor<'f32'> } : isFloat(r.outDtype) ? {} : { scale }),
      rotate: r.rotate,
    },
  };
}

for (const { name, runs } of BACKENDS) {
  describe(`KV caches on ${name}`, { skip: noBackend(name) }, () => {
    test('what is stored without arithmetic has the reference’s bits: every value, tie, overflow, NaN', async () => {
      const rw = await openShared(name);
      const plan = planRope({ headDim: 12, pairing: 'half', base: 10000, positions: [0] });
      for (const dtype of EIGHT_BITS) {
        const data = hardValues(dtype);
        for (const width of [12, 1]) {
          const shape = [1, data.length / width, width];
          const x = tensorFrom<FloatDtype>(data, { shape });
          const [got, want] = [zeros<CacheDtype>(dtype, shape), zeros<CacheDtype>(dtype, shape)];
          rw.ropeParts(plan, [{ x, out: got, rotate: false, scale: 1 }]);
          await rw.finish();
          ropeReference(bindRopeParts(plan, [{ x, out: want, rotate: false, scale: 1 }]));
          const [a, b] = [await got.read(), await want.read()];
          for (const [n, bits] of a.entries()) {
            // A NaN's sign may be lost on the way to the reference, which computes in numbers.
            const same = Number.isNaN(data[n]!) ? Number(bits) & 0x7f : bits;
            const expected = Number.isNaN(data[n]!) ? Number(b[n]) & 0x7f : b[n];
            assert.equal(same, expected, `${dtype} of ${data[n]}`);
          }
        }
      }
      rw.dispose();
    });

    test('random calls: each stored value is the rounding of one within a few roundings of the exact one', async () => {
      const rw = await openShared(name);
      await fc.assert(
        fc.asyncProperty(recipe, async (r) => {
          const { plan, part, layout } = made(r);
          rw.ropeParts(plan, [part], layout);
          await rw.finish();
          // The same call in float64: scaled, not rounded.
          const exact = made({ ...r, outDtype: 'f64' });
          const units = made({ ...r, outDtype: r.outDtype });
          ropeReference(bindRopeParts(exact.plan, [exact.part], layout));
          const got = part.out.storage.host!;
          const want = exact.part.out.storage.host as Float64Array;
          const scales = isFloat(r.outDtype)
            ? undefined
            : bindRopeParts(units.plan, [units.part], layout).parts[0]!.scale;
          const own = part.rowScales && (await part.rowScales.read());
          const width = part.x.shape[3]!;
          const low = newArray(r.outDtype, 1);
          const high = newArray(r.outDtype, 1);
          const [, second, third] = part.out.shape as number[];
          for (let n = 0; n < got.length; n++) {
            const [row, i] = [Math.floor(n / (width + 1)), n % (width + 1)];
            if (i === width || want[n] === SENTINEL) {
              assert.equal(
                loadNumber(got, r.outDtype, n),
                loadNumber(newArrayOf(r.outDtype), r.outDtype, 0),
                `${n} was touched`,
              );
              if (i < width && own) assert.equal(own[row], SENTINEL);
              continue;
            }
            if (own && i === 0) {
              const largest = want.slice(n, n + width).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
              assert.ok(Math.abs(own[row]! * 127 - largest) <= 40 * 2 ** -24 + 4 * 2 ** -24 * largest, `scale ${row}`);
            }
            const head = layout === 'bsnh' ? row % third! : Math.floor(row / third!) % second!;
            const scale = own ? own[row]! : scales ? scales[head * width + i]! : 1;
            const slack = 40 * 2 ** -24;
            storeNumber(low, r.outDtype, 0, (want[n]! - slack) / scale);
            storeNumber(high, r.outDtype, 0, (want[n]! + slack) / scale);
            const value = loadNumber(got, r.outDtype, n);
            assert.ok(
              value >= loadNumber(low, r.outDtype, 0) && value <= loadNumber(high, r.outDtype, 0),
              `element ${n}: ${value} of ${want[n]! / scale}`,
            );
          }
        }),
        drawn(runs),
      );
      rw.dispose();
    });

    test('a row of zeros, or below 2^-100, has the scale 0; the smallest above it keeps 8 bits', async () => {
      const rw = await openShared(name);
      const plan = planRope({ headDim: 4, pairing: 'half', base: 10000, positions: [0, 1, 2] });
      const small = 2 ** -100;
      const x = tensorFrom<'f32'>(Float32Array.of(0, -0, 0, 0, small / 2, 0, 0, -small / 2, small, -small / 2, 0, 0), {
        shape: [3, 1, 4],
      });
      const [out, rowScales] = [
        zeros('i8', [3, 1, 4]),
        tensorFrom<'f32'>(new Float32Array(3).fill(9), { shape: [3, 1] }),
      ];
      rw.ropeParts(plan, [{ x, out, rowScales, rotate: false }]);
      await rw.finish();
      const bits = await out.read();
      assert.deepEqual(bits.slice(0, 8), new Int8Array(8));
      assert.equal(bits[8], 127);
      assert.ok(bits[9] === -63 || bits[9] === -64, 'a tie, where division may be off by some units');
      const scales = await rowScales.read();
      assert.deepEqual(scales.slice(0, 2), new Float32Array(2));
      assert.ok(Math.abs(scales[2]! * 127 - small) <= 4 * 2 ** -24 * small);
      rw.dispose();
    });

    test('k, v and q in one call: v is copied bit for bit, also in place, and q beside them is rotated', async () => {
      const rw = await openShared(name);
      const plan = planRope({ headDim: 8, pairing: 'half', base: 10000, positions: [3, 4] });
      const bits = Uint16Array.from({ length: 2 * 2 * 12 }, (_, n) => 0x7e01 + n * 37); // NaN payloads too
      const v = tensorFrom(bits.slice(), { dtype: 'f16', shape: [2, 2, 12] });
      const cache = zeros('f16', [4, 2, 12]);
      const q = f64Tensor(
        Array.from({ length: 32 }, (_, n) => n),
        [2, 2, 8],
        'f32',
      ) as Tensor<'f32'>;
      const alone = rw.rope(q, plan);
      rw.ropeParts(plan, [
        { x: v, out: v, rotate: false },
        { x: q, out: q },
      ]);
      await rw.finish();
      rw.ropeParts(plan, [{ x: v, out: cache, rows: [3, 1], rotate: false }]);
      await rw.finish();
      assert.deepEqual(await v.read(), bits);
      assert.deepEqual(await q.read(), await alone.read());
      const got = (await cache.read()) as Uint16Array;
      assert.deepEqual(got.slice(3 * 24), bits.slice(0, 24));
      assert.deepEqual(got.slice(24, 48), bits.slice(24));
      rw.dispose();
    });
  });
}

/** The choices of a random attention over a cache, paged or not. */
interface AttentionRecipe {
  readonly lengths: readonly number[];
  readonly seq: number;
  readonly kvHeads: number;
  readonly group: number;
  readonly d: number;
  readonly dv: number;
  readonly qDtype: 'f32' | 'f16' | 'bf16';
  readonly cacheDtype: CacheDtype;
  readonly blockSize: number;
  readonly scale: Recipe['scale'];
  readonly window: number | undefined;
  readonly softcap: number | undefined;
  readonly sinks: boolean;
  readonly causal: boolean;
}

const attentionRecipe: fc.Arbitrary<AttentionRecipe> = fc
  .record({
    lengths: fc.array(fc.integer({ min: 0, max: 230 }), { minLength: 1, maxLength: 3 }),
    seq: fc.constantFrom(1, 1, 2, 5, 21),
    kvHeads: fc.integer({ min: 1, max: 2 }),
    group: fc.constantFrom(1, 2, 5),
    d: fc.constantFrom(4, 7, 16, 40),
    dv: fc.constantFrom(4, 8, 9, 24),
    qDtype: fc.constantFrom<AttentionRecipe['qDtype']>('f32', 'f16', 'bf16'),
    cacheDtype: fc.constantFrom<CacheDtype>(...EIGHT_BITS, ...EIGHT_BITS, 'f32', 'f16'),
    blockSize: fc.constantFrom(1, 5, 16),
    scale: fc.constantFrom<Recipe['scale']>('one', 'heads', 'dims', 'rows', 'rows'),
    window: fc.option(fc.integer({ min: 1, max: 100 }), { nil: undefined }),
    softcap: fc.option(fc.constant(5), { nil: undefined }),
    sinks: fc.boolean(),
    causal: fc.boolean(),
  })
  .map((r) => ({
    ...r,
    lengths: r.lengths.map((past) => past + r.seq),
    cacheDtype: isFloat(r.cacheDtype) ? r.qDtype : r.cacheDtype,
    window: r.causal ? r.window : undefined,
  }));

/** Makes the tensors of a call: dense caches of each sequence's keys, and the same keys in blocks in random order. */
function madeAttention(r: AttentionRecipe) {
  const { seq, kvHeads, group, d, dv, blockSize } = r;
  const batch = r.lengths.length;
  const wave = (n: number, by: number): number[] => Array.from({ length: n }, (_, i) => Math.sin(i * by + 1) * 2);
  const unit = r.cacheDtype === 'i8' ? 2 / 127 : 1 / 8;
  const scaleOf = (n: number): number | number[] =>
    r.scale === 'one' || r.scale === 'rows'
      ? unit
      : Array.from({ length: r.scale === 'heads' ? kvHeads : kvHeads * n }, (_, i) => unit * (1 + (i % 3) / 2));
  const own = r.scale === 'rows' && r.cacheDtype === 'i8';
  const options = {
    window: r.window,
    softcap: r.softcap,
    causal: r.causal,
    ...(r.sinks ? { sinks: f64Tensor(wave(kvHeads * group, 0.9), [kvHeads * group], r.qDtype) } : {}),
    ...(isFloat(r.cacheDtype) || own ? {} : { kScale: scaleOf(d), vScale: scaleOf(dv) }),
  };
  const q = f64Tensor(wave(batch * seq * kvHeads * group * d, 0.7), [batch, seq, kvHeads * group, d], r.qDtype);
  const maxBlocks = Math.max(...r.lengths.map((n) => Math.ceil(n / blockSize))) + 1;
  const blocks = batch * maxBlocks + 1;
  const table = Int32Array.from({ length: batch * maxBlocks }, (_, n) => blocks - 1 - n);
  for (const [b, length] of r.lengths.entries())
    table.fill(-5, b * maxBlocks + Math.ceil(length / blockSize), (b + 1) * maxBlocks);
  const pool = (n: number, by: number): Tensor<CacheDtype> => {
    const data = newArray(r.cacheDtype, blocks * blockSize * kvHeads * n);
    const step = isFloat(r.cacheDtype) ? 1 : 1 / unit;
    for (let i = 0; i < data.length; i++) storeNumber(data, r.cacheDtype, i, Math.sin(i * by) * 2 * step);
    return tensorFrom(data, { dtype: r.cacheDtype, shape: [blocks, blockSize, kvHeads, n] }) as Tensor<CacheDtype>;
  };
  const paged = { blockTable: tensorFrom(table, { shape: [batch, maxBlocks] }), lengths: r.lengths };
  const scalesOf = (by: number): Tensor<CacheDtype> =>
    tensorFrom(
      Float32Array.from({ length: blocks * blockSize * kvHeads }, (_, n) => unit * (1 + Math.sin(n * by) / 2)),
      { shape: [blocks, blockSize, kvHeads, 1] },
    ) as Tensor<CacheDtype>;
  const owns = own ? [scalesOf(0.3), scalesOf(0.8)] : [undefined, undefined];
  return { q: q as Tensor<FloatDtype>, k: pool(d, 1.1), v: pool(dv, 1.7), options, owns, paged, table, maxBlocks };
}

/** Lists the keys of one sequence, in order. */
function dense(pool: Tensor<CacheDtype>, b: number, r: AttentionRecipe, table: Int32Array, maxBlocks: number) {
  const [, , heads, n] = pool.shape as [number, number, number, number];
  const all = pool.storage.host!;
  const data = newArray(pool.dtype, r.lengths[b]! * heads * n);
  for (let t = 0; t < r.lengths[b]!; t++) {
    const row = table[b * maxBlocks + Math.floor(t / r.blockSize)]! * r.blockSize + (t % r.blockSize);
    for (let i = 0; i < heads * n; i++) data[t * heads * n + i] = all[row * heads * n + i]!;
  }
  return tensorFrom(data, { dtype: pool.dtype, shape: [1, r.lengths[b]!, heads, n] }) as Tensor<CacheDtype>;
}

for (const { name, runs } of BACKENDS) {
  describe(`attention over KV caches on ${name}`, { skip: noBackend(name) }, () => {
    test('random calls: paged and dense caches, against the formula on widened values', async () => {
      const rw = await openShared(name);
      await fc.assert(
        fc.asyncProperty(attentionRecipe, async (r) => {
          const { q, k, v, options, owns, paged, table, maxBlocks } = madeAttention(r);
          const flat = (x: Tensor | undefined): Tensor | undefined => x?.view(x.shape.slice(0, -1));
          const rowScales = { kRowScales: flat(owns[0]), vRowScales: flat(owns[1]) };
          const got = rw.selfAttention(q, k as never, v as never, { ...options, ...rowScales, paged } as never);
          const paging = await got.readNumbers();
          for (const b of r.lengths.keys()) {
            const [kb, vb] = [dense(k, b, r, table, maxBlocks), dense(v, b, r, table, maxBlocks)];
            const [ks, vs] = owns.map((pool) => pool && dense(pool, b, r, table, maxBlocks));
            const alike = { ...options, kRowScales: flat(ks), vRowScales: flat(vs) };
            const one = rw.selfAttention(q.slice(0, b, b + 1), kb as never, vb as never, alike as never);
            // The same values as f64, multiplied by their scales here.
            const wide = (t: Tensor<CacheDtype>, scale: number | number[] | undefined, own?: Tensor): Tensor<'f64'> => {
              const n = t.shape[3]!;
              const values = Float64Array.from(t.readNumbers() as Float64Array, (value, i) => {
                const head = Math.floor(i / n) % r.kvHeads;
                const by =
                  typeof scale === 'object'
                    ? scale[scale.length === r.kvHeads ? head : head * n + (i % n)]!
                    : (scale ?? 1);
                const ofRow = own ? (own.storage.host as Float32Array)[Math.floor(i / n)]! : 1;
                return value * Math.fround(by) * ofRow;
              });
              return tensorFrom(values, { shape: t.shape }) as Tensor<'f64'>;
            };
            const toF64 = (t: Tensor<FloatDtype>): Tensor<'f64'> =>
              tensorFrom((t.readNumbers() as Float64Array).slice(), { shape: t.shape }) as Tensor<'f64'>;
            const want = zeros('f64', one.shape);
            selfAttentionReference(
              planSelfAttention(
                toF64(q.slice(0, b, b + 1)),
                wide(kb, options.kScale, ks),
                wide(vb, options.vScale, vs),
                want,
                {
                  ...options,
                  kScale: undefined,
                  vScale: undefined,
                  ...(options.sinks ? { sinks: toF64(options.sinks as Tensor<FloatDtype>) } : {}),
                } as never,
              ),
            );
            const rounding = { f32: 2 ** -20, f16: 2 ** -10, bf16: 2 ** -7 }[r.qDtype];
            const alone = await one.readNumbers();
            for (const [i, value] of (want.readNumbers() as Float64Array).entries()) {
              const bound = rounding * Math.abs(value) + 2 ** -17;
              assert.ok(Math.abs(alone[i]! - value) <= bound, `dense, element ${i}: ${alone[i]}, not ${value}`);
              const other = paging[b * want.size + i]!;
              assert.ok(Math.abs(other - value) <= bound, `paged, element ${i}: ${other}, not ${value}`);
            }
          }
        }),
        drawn(runs / 5),
      );
      rw.dispose();
    });

    test('blocks change no bit: one sequence, paged and dense', async () => {
      const rw = await openShared(name);
      for (const seq of [1, 40]) {
        const r: AttentionRecipe = {
          ...{ lengths: [203], seq, kvHeads: 2, group: 2, d: 16, dv: 24, qDtype: 'f32', cacheDtype: 'f32' },
          ...{ blockSize: 16, scale: 'one', window: 150, softcap: undefined, sinks: false, causal: true },
        };
        const { q, k, v, options, paged, table, maxBlocks } = madeAttention(r);
        const [kb, vb] = [dense(k, 0, r, table, maxBlocks), dense(v, 0, r, table, maxBlocks)];
        const inBlocks = rw.selfAttention(q, k as never, v as never, { ...options, paged } as never);
        const alone = rw.selfAttention(q, kb as never, vb as never, options as never);
        assert.deepEqual(await inBlocks.read(), await alone.read());
      }
      rw.dispose();
    });
  });
}

/** Makes one element as {@link made} fills memory. */
function newArrayOf(dtype: CacheDtype): ReturnType<typeof newArray> {
  const one = newArray(dtype, 1);
  (one as Uint8Array).fill(SENTINEL);
  return one;
}

describeOnce('refusals', () => {
  const plan = planRope({ headDim: 4, pairing: 'half', base: 10000, positions: [0, 1] });
  const x = zeros('f32', [2, 2, 4]);
  const i8 = zeros('i8', [2, 2, 4]);
  const paged = zeros('f16', [3, 2, 2, 4]);
  const refusals: [string, object, string, string][] = [
    [
      'an i8 cache without a scale',
      { out: i8 },
      'RANGE',
      'scale: expected the scale of an i8 cache (value = stored · scale), got none',
    ],
    [
      'a scale of a float cache',
      { out: x, scale: 2 },
      'UNSUPPORTED',
      'scale: only i8, f8_e4m3 and f8_e5m2 caches have a scale, and this one is f32. Leave it out.',
    ],
    ['a scale of 0', { out: i8, scale: 0 }, 'RANGE', 'scale: expected a number in [2^-64, 2^64], got 0'],
    [
      'a NaN scale in a list',
      { out: i8, scale: [1, NaN] },
      'RANGE',
      'scale[1]: expected a number in [2^-64, 2^64], got NaN',
    ],
    [
      'three scales',
      { out: i8, scale: [1, 2, 3] },
      'SHAPE',
      'scale: expected a number, 2 numbers (one for each head), or 2 × 4, got 3',
    ],
    ...(
      [
        [
          'a scale and scales of rows',
          { out: i8, scale: 1 },
          'UNSUPPORTED',
          'the cache has a fixed scale too. Give one of the two.',
        ],
        [
          'scales of rows of f16',
          { out: zeros('f16', [2, 2, 4]) },
          'UNSUPPORTED',
          'the cache is f16. Give scales of rows to an i8 one.',
        ],
        [
          'scales of three rows',
          { out: i8, rowScales: zeros('f32', [3, 2]) },
          'SHAPE',
          'expected shape [2,2], got [3, 2]',
        ],
        [
          'scales of rows in f16',
          { out: i8, rowScales: zeros('f16', [2, 2]) },
          'DTYPE',
          'expected dtype f32, got "f16"',
        ],
      ] as const
    ).map(([title, given, code, message]): [string, object, string, string] => [
      title,
      { rowScales: zeros('f32', [2, 2]), ...given },
      code,
      `rowScales: ${message}`,
    ]),
    [
      'a cache of i32',
      { out: zeros('i32', [2, 2, 4]) },
      'DTYPE',
      'out: expected f64, f32, f16, bf16, i8, f8_e4m3 or f8_e5m2, got "i32"',
    ],
    [
      'rows and slots',
      { out: paged, rows: 0, slots: [0, 1] },
      'UNSUPPORTED',
      'slots: rows are given too. Give rows, or slots of a paged cache.',
    ],
    [
      'a slot that the blocks do not have',
      { out: paged, slots: [0, 6] },
      'RANGE',
      'slots[1]: expected a slot of out, in [0, 5], or -1 to skip the token, got 6. Slot n is row n % block_size of block n / block_size.',
    ],
    ['a slot twice', { out: paged, slots: [2, 2] }, 'RANGE', 'slots[1]: slot 2 is given twice'],
    ['one slot for two tokens', { out: paged, slots: [2] }, 'SHAPE', 'slots: expected 1 × 2 slots, got 1'],
    [
      'slots of a cache without blocks',
      { out: x, slots: [0, 1] },
      'SHAPE',
      'out: expected four dimensions: block, row of the block, head and head_dim, got [2, 2, 4]',
    ],
    [
      'rows from -1 on',
      { out: zeros('f32', [4, 2, 4]), rows: -1 },
      'RANGE',
      'rows[0]: expected a row of out, in [0, 3], got -1. In a list, -1 skips its token.',
    ],
    ['rotate of 1', { out: x, rotate: 1 }, 'RANGE', 'rotate: expected true or false, got 1'],
    [
      'another head_dim, rotated',
      { x: zeros('f32', [2, 2, 6]), out: zeros('f32', [2, 2, 6]) },
      'SHAPE',
      'x: expected head_dim 4 in the last dimension, got [2, 2, 6]',
    ],
  ];
  for (const [name, given, code, message] of refusals)
    test(name, () =>
      assert.throws(() => bindRopeParts(plan, [{ x, ...given } as never]), {
        code,
        message: `rope: parts[0].${message}`,
      }),
    );

  test('slots may be i64; a backend of float caches says all that it lacks', () => {
    const slots = BigInt64Array.of(-1n, 4n);
    const call = bindRopeParts(plan, [{ x, out: zeros('i8', [3, 2, 2, 4]), slots, scale: 1, rotate: false }]);
    assert.deepEqual(call.parts[0]!.rows, Int32Array.of(-1, 4));
    assert.equal(
      whyNotFloatCaches(call),
      'it writes a KV cache in i8, writes a paged KV cache, skips a token (slot -1) and copies heads that are not rotated',
    );
  });

  const q = zeros('f32', [1, 2, 2, 4]);
  const pool = zeros('i8', [3, 2, 2, 4]);
  const blockTable = tensorFrom(Int32Array.of(1, 2, 9), { shape: [1, 3] });
  const attend = (options: object, keys: Tensor = pool): unknown =>
    planSelfAttention(q, keys, keys, zeros('f32', [1, 2, 2, 4]), { kScale: 1, vScale: 1, ...options });
  const attentions: [string, () => unknown, string, string][] = [
    [
      'an i8 cache without a scale',
      () => attend({ paged: { blockTable, lengths: [3] }, vScale: undefined }),
      'RANGE',
      'vScale: expected the scale of an i8 cache (value = stored · scale), got none',
    ],
    [
      'a block that the cache does not have',
      () => attend({ paged: { blockTable, lengths: [5] } }),
      'RANGE',
      'blockTable[0, 2]: expected an integer in [0, 2], got 9',
    ],
    [
      'a length past the table',
      () => attend({ paged: { blockTable, lengths: [7] } }),
      'RANGE',
      'lengths[0]: expected an integer in [2, max_blocks × block_size = 6], got 7',
    ],
    [
      'fewer keys than queries',
      () => attend({ paged: { blockTable, lengths: [1] } }),
      'RANGE',
      'lengths[0]: expected an integer in [2, max_blocks × block_size = 6], got 1',
    ],
    [
      'two lengths',
      () => attend({ paged: { blockTable, lengths: [2, 2] } }),
      'SHAPE',
      'lengths: expected one for each sequence, 1 in all, got 2',
    ],
    [
      'a table of no blocks',
      () => attend({ paged: { blockTable: zeros('i32', [1, 0]), lengths: [2] } }),
      'SHAPE',
      'blockTable: expected blocks for at least 2 keys in the second dimension, got [1, 0]',
    ],
    [
      'a cache of no blocks',
      () => attend({ paged: { blockTable, lengths: [2] } }, zeros('i8', [0, 2, 2, 4])),
      'SHAPE',
      'k: expected at least one block, got [0, 2, 2, 4]',
    ],
    [
      'a table of another batch',
      () => attend({ paged: { blockTable: zeros('i32', [2, 3]), lengths: [2] } }),
      'SHAPE',
      'blockTable: expected shape [1, max_blocks], got [2, 3]',
    ],
    [
      'a table of floats',
      () => attend({ paged: { blockTable: zeros('f32', [1, 3]), lengths: [2] } }),
      'DTYPE',
      'blockTable: expected an integer dtype, got "f32"',
    ],
    [
      'three scales',
      () => attend({ paged: { blockTable, lengths: [2] }, kScale: [1, 2, 3] }),
      'SHAPE',
      'kScale: expected a number, 2 numbers (one for each head), or 2 × 4, got 3',
    ],
    [
      'a cache of i16',
      () => attend({ paged: { blockTable, lengths: [2] } }, zeros('i16', [3, 2, 2, 4])),
      'DTYPE',
      'k: expected f64, f32, f16, bf16, i8, f8_e4m3 or f8_e5m2, got "i16"',
    ],
    [
      'a paged cache without blocks',
      () => attend({ paged: { blockTable, lengths: [2] } }, zeros('i8', [3, 2, 4])),
      'SHAPE',
      'k: expected 4 dimensions, in blocks, got [3, 2, 4]',
    ],
  ];
  for (const [name, run, code, message] of attentions)
    test(`attention: ${name}`, () => assert.throws(run, { code, message: `self_attention: ${message}` }));

  test('attention: a block that no query sees may be any number', () => {
    const lost = tensorFrom(Int32Array.of(-1, 2, 9), { shape: [1, 3] });
    assert.ok(attend({ paged: { blockTable: lost, lengths: [4] }, window: 1 }));
  });

  test('an operator that computes refuses 8-bit floats by name', async () => {
    const { planAdd } = await import('../../src/ops/add.js');
    const f8 = zeros('f8_e4m3', [2]) as never;
    assert.throws(() => planAdd(f8, f8, f8), {
      code: 'DTYPE',
      message: 'add: a: expected f64, f32, f16 or bf16, got "f8_e4m3"',
    });
  });
});
