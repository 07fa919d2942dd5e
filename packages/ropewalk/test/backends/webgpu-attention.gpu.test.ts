/**
 * Attention of the backend `webgpu` against the float64 reference: both kernels, shared and unshared keys, every edge
 * of a tile, layouts, options, and what must not be read.
 */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import { noGpu, sharedWebgpu } from '../../../../test/support/gpu.js';
import {
  compare,
  copyWith,
  DENSE,
  exactOf,
  type Float,
  type Given,
  holds,
  hostCopy,
  laid,
  maybe,
  measure,
  type Placement,
  placements,
  roomFor,
  seeds,
  size,
  type Trial,
  tensorAt,
  U,
} from '../../../../test/support/operators.js';
import { floats } from '../../../../test/support/tensors.js';
import type { WebgpuBackend } from '../../src/backends/webgpu/host.js';
import { bitsOf, type FloatDtype, storeNumber } from '../../src/core/dtypes.js';
import { walk } from '../../src/core/shape.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planSelfAttention, type SelfAttentionOptions } from '../../src/ops/self-attention.js';
import { runReference } from '../../src/reference/index.js';

interface Sizes {
  readonly batch?: number;
  readonly seq: number;
  readonly past?: number;
  readonly kvHeads?: number;
  readonly group?: number;
  readonly d: number;
  readonly dv?: number;
}

/**
 * A score is a sum of d products whose roundings nearly cancel: within e = u·Σ|q·k·scale|, taken over the query's worst
 * key. Its weight is off by e and by 4 u of the exponential, relative to itself; the weighted average of v by twice
 * that at most. Sums that are rescaled whenever a larger score comes, or joined from splits, are off by another
 * exponential, 4 u. Sums of values that are all alike may round every step the same way, half a u a key. A softcap is a quotient of exponentials: e again. And 2^-120, because devices may treat numbers
 * below 2^-126 as zero.
 */
const attentionError = (scores: number, capped: boolean, largest: number, keys: number): number =>
  ((capped ? 4 : 2) * scores + 12 + keys / 2) * U * largest + 2 ** -120;

/** The four tensors of a call, and the allowed error. */
function trialOf(
  /** The dtype of q and out, and that of k and v where it differs. */
  of: FloatDtype | readonly [FloatDtype, FloatDtype],
  { batch = 1, seq, past = 0, kvHeads = 1, group = 1, d, dv = d }: Sizes,
  options: SelfAttentionOptions = {},
  how: readonly Placement[] = [DENSE, DENSE, DENSE, DENSE],
  seed = 1,
  owned = 15,
): Trial {
  const [dtype, stored] = typeof of === 'string' ? [of, of] : of;
  const total = past + seq;
  const heads = kvHeads * group;
  // There is no stride 0 along a sum, where equal products would round the same way each time, and nothing cancels.
  const q = laid(dtype, [batch, seq, heads, d], { ...how[0]!, repeat: how[0]!.repeat & 7 }, seed);
  const k = laid(stored, [batch, total, kvHeads, d], how[1]!, seed + 1);
  const v = laid(stored, [batch, total, kvHeads, dv], how[2]!, seed + 2);
  return trialWith(q, k, v, roomFor(dtype, [batch, seq, heads, dv], how[3]!), options, owned);
}

function trialWith(q: Float, k: Float, v: Float, out: Tensor, options: SelfAttentionOptions, owned: number): Trial {
  const [, seq, heads, d] = q.shape as [number, number, number, number];
  const [, total, kvHeads, dv] = v.shape as [number, number, number, number];
  const [qs, ks, vs] = [floats(q), floats(k), floats(v)];
  const largest = vs.reduce((max, x) => (Number.isFinite(x) ? Math.max(max, Math.abs(x)) : max), 0);
  const scale = Math.abs(options.scale ?? 1 / Math.sqrt(d || 1));
  const sums = new Map<number, number>();
  const sumOf = (row: number): number => {
    const known = sums.get(row);
    if (known !== undefined) return known;
    let most = 0;
    const head = Math.floor((row % heads) / (heads / kvHeads));
    const b = Math.floor(row / heads / seq);
    for (let t = 0; t < total; t++) {
      let sum = 0;
      for (let i = 0; i < d; i++) sum += Math.abs(qs[row * d + i]! * ks[((b * total + t) * kvHeads + head) * d + i]!);
      if (Number.isFinite(sum)) most = Math.max(most, sum * scale);
    }
    sums.set(row, most);
    return most;
  };
  const { sinks, ...rest } = options;
  return {
    given: sinks ? [q, k, v, out, sinks] : [q, k, v, out],
    outs: [3],
    owned,
    plan: (t) =>
      planSelfAttention(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2), tensorAt(t, 3), {
        ...rest,
        sinks: t[4] as Tensor | undefined,
      }),
    error: (_, n) => attentionError(sumOf(Math.floor(n / dv)), options.softcap !== undefined, largest, total),
  };
}

const chosen = (all: Record<string, unknown>): SelfAttentionOptions =>
  Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));

describe('self_attention on webgpu', { skip: noGpu }, () => {
  let backend: WebgpuBackend;
  before(async () => {
    backend = (await sharedWebgpu()) as WebgpuBackend;
  });

  /** Runs a trial, in host memory and the device's as `owned` says. @returns all tensors, in host memory */
  async function run({ given, owned, plan }: Trial): Promise<Given> {
    const got = copyWith(hostCopy(given), (storage, n) => {
      const flat = tensorFrom(storage.host!, { dtype: storage.dtype });
      return owned & (1 << n) ? backend.upload(flat).storage : storage;
    });
    backend.run(plan(got));
    await backend.finish();
    const read = new Map();
    for (const { storage } of got as readonly Tensor[]) if (!read.has(storage)) read.set(storage, await storage.read());
    const back = copyWith(got, (storage) => tensorFrom(read.get(storage), { dtype: storage.dtype }).storage);
    for (const tensor of got as readonly Tensor[]) tensor.dispose();
    return back;
  }

  async function agree(trial: Trial): Promise<void> {
    const want = exactOf(trial.given);
    runReference(trial.plan(want));
    const got = await run(trial);
    for (const n of trial.outs) compare(trial, n, tensorAt(got, n), tensorAt(want, n));
  }

  describe('edges', () => {
    // Each size once as d and once as dv; in fours and one by one, and values for one slice and for several.
    for (const [d, dv] of [
      [0, 8],
      [8, 256],
      [64, 576],
      [128, 128],
      [256, 64],
      [576, 8],
      [1, 3],
      [3, 33],
      [33, 1],
    ] as const) {
      test(`d=${d} dv=${dv}, few queries and many`, async () => {
        measure(`d=${d} dv=${dv}`);
        await agree(trialOf('f32', { seq: 1, past: 40, kvHeads: 2, group: 3, d, dv }));
        await agree(trialOf('f32', { seq: 21, past: 20, d, dv }));
      });
    }
    test('no dimensions of v, no queries, no heads, no batch', async () => {
      const none: Sizes = { seq: 3, kvHeads: 2, group: 2, d: 4 };
      for (const sizes of [{ dv: 0 }, { seq: 0, past: 3 }, { kvHeads: 0 }, { batch: 0 }, { group: 0 }])
        await agree(trialOf('f32', { ...none, ...sizes }));
    });
    test('a query more or less than a tile, a key more or less than a step', async () => {
      let seed = 0;
      for (const seq of [1, 2, 7, 16, 17, 63, 64, 65])
        for (const past of [0, 1, 31, 33]) await agree(trialOf('f32', { seq, past, d: 8 }, {}, undefined, seed++));
    });
    test('every number of rows of the kernel for few', async () => {
      for (let group = 1; group <= 17; group++)
        await agree(trialOf('f32', { batch: 2, seq: 1, past: 69, kvHeads: 2, group, d: 16, dv: 12 }));
    });
  });

  describe('keys over several workgroups', () => {
    test('one query before a long past', async () => {
      for (const [dtype, sizes, options] of [
        ['f32', { seq: 1, past: 2999, kvHeads: 1, group: 1, d: 64, dv: 32 }, {}],
        ['f32', { seq: 1, past: 999, kvHeads: 2, group: 1, d: 20, dv: 12 }, { window: 700 }],
        ['f32', { batch: 2, seq: 3, past: 500, kvHeads: 2, group: 4, d: 32 }, { window: 300 }],
        ['f32', { seq: 5, past: 400, kvHeads: 1, group: 2, d: 8 }, { causal: false }],
        ['bf16', { seq: 1, past: 2999, kvHeads: 2, group: 6, d: 128, dv: 64 }, { softcap: 20 }],
      ] as const) {
        measure(`long ${JSON.stringify(sizes)}`);
        await agree(trialOf(dtype, sizes, options));
      }
    });
    test('many queries, whose blocks see different numbers of keys', async () => {
      for (const [dtype, sizes, options] of [
        ['f32', { seq: 70, past: 700, kvHeads: 2, group: 3, d: 40, dv: 28 }, {}],
        ['f32', { seq: 300, past: 300, d: 64, dv: 8 }, { window: 400 }],
        ['f16', { seq: 20, past: 600, d: 8, dv: 132 }, { softcap: 3, causal: false }],
      ] as const) {
        measure(`shared ${JSON.stringify(sizes)}`);
        await agree(trialOf(dtype, sizes, options));
      }
    });
    test('only where that is worth it', async () => {
      const kernels = async (sizes: Omit<Sizes, 'd'>, options: SelfAttentionOptions = {}): Promise<number> => {
        const { sent } = backend.shared.commands;
        const before = sent.kernels;
        await agree(trialOf('f32', { ...sizes, d: 8 }, options));
        return sent.kernels - before;
      };
      assert.equal(await kernels({ seq: 1, past: 127 }), 1);
      assert.equal(await kernels({ seq: 1, past: 128 }), 2);
      assert.equal(await kernels({ seq: 1, past: 400 }, { window: 100 }), 1);
      assert.equal(await kernels({ batch: 2, seq: 1, past: 150, kvHeads: 150 }), 1);
      assert.equal(await kernels({ seq: 256 }), 1);
      assert.equal(await kernels({ seq: 257 }), 2);
    });
    test('the same bits in every run', async () => {
      for (const sizes of [
        { seq: 3, past: 1500, kvHeads: 2, group: 4, d: 64, dv: 32 },
        { seq: 80, past: 520, kvHeads: 2, group: 2, d: 64, dv: 32 },
      ]) {
        const trial = trialOf('f32', sizes);
        const [first, second] = [await run(trial), await run(trial)].map((got) =>
          bitsOf(tensorAt(got, 3).storage.host!),
        );
        assert.deepEqual(second, first);
      }
    });
  });

  describe('options', () => {
    const few: Sizes = { seq: 2, past: 70, kvHeads: 2, group: 2, d: 16 };
    const many: Sizes = { seq: 66, past: 35, kvHeads: 2, group: 2, d: 16 };
    for (const [name, options] of Object.entries<SelfAttentionOptions>({
      'all keys': { causal: false },
      'a window of one': { window: 1 },
      'a window': { window: 33 },
      'a softcap': { softcap: 2 },
      'a softcap that bends nothing': { softcap: 1e6 },
      'scale 0': { scale: 0 },
      'a negative scale': { scale: -0.7 },
      'all at once': { window: 40, softcap: 1.5, scale: -3 },
    })) {
      test(name, async () => {
        for (const sizes of [few, many]) await agree(trialOf('f32', sizes, options));
      });
    }
    test('large logits: ± 1e4 and more', async () => {
      for (const sizes of [few, many]) {
        for (const scale of [3e3, -3e5, 1e10]) await agree(trialOf('f32', sizes, { scale }));
        await agree(trialOf('f32', sizes, { scale: 1e10, softcap: 30 }));
      }
    });
    test('one key above all others, wherever it is: its value, to the bit', async () => {
      const total = 301;
      for (const seq of [1, 40]) {
        for (const at of [0, 31, 32, 127, 128, 300]) {
          const filled = (tokens: number, value: (t: number) => number): Float =>
            tensorFrom(
              Float32Array.from({ length: tokens * 4 }, (_, n) => value(Math.floor(n / 4))),
              { shape: [1, tokens, 1, 4] },
            );
          const [q, k, v] = [
            filled(seq, () => 300),
            filled(total, (t) => (t === at ? 300 : -300)),
            filled(total, (t) => t + 0.1),
          ];
          const got = await run(trialWith(q, k, v, zeros('f32', [1, seq, 1, 4]), { causal: false }, 15));
          assert.deepEqual(floats(tensorAt(got, 3)), new Float64Array(seq * 4).fill(Math.fround(at + 0.1)));
        }
      }
    });
    test('more queries than keys, each seeing all', async () => {
      for (const seq of [9, 70]) await agree(trialOf('f32', { seq, past: 4 - seq, d: 12 }, { causal: false }));
    });
  });

  test('sinks: of each kernel, alone and with joined splits; −∞ is none, and one may take all weight', async () => {
    const strided = { ...DENSE, dense: false, step: 2, lead: 1 };
    for (const [of, sizes, how, options] of [
      ['f32', { seq: 1, past: 40, kvHeads: 2, group: 3, d: 8 }, DENSE, {}],
      ['f32', { batch: 2, seq: 3, past: 500, kvHeads: 2, group: 2, d: 8 }, strided, { window: 300 }],
      ['f32', { batch: 2, seq: 40, past: 20, kvHeads: 2, group: 2, d: 8 }, DENSE, { window: 9 }],
      [['f32', 'f16'], { seq: 70, past: 700, kvHeads: 2, group: 3, d: 7, dv: 5 }, strided, { softcap: 3 }],
    ] as const) {
      const dtype = typeof of === 'string' ? of : of[1];
      const heads = sizes.kvHeads * sizes.group;
      measure(`sinks ${JSON.stringify(sizes)}`);
      await agree(trialOf(of, sizes, { ...options, sinks: laid(dtype, [heads], how, 9) }));
    }
    const sizes: Sizes = { seq: 1, past: 40, kvHeads: 2, group: 3, d: 8 };
    const extreme = tensorFrom<'f32'>(Float32Array.of(-Infinity, 1e4, -3e38, -1e4, 50, 0));
    await agree(trialOf('f32', sizes, { sinks: extreme }));
  });

  describe('layouts', () => {
    const [heads, kvHeads, d] = [4, 2, 16];
    test('a KV cache that has room for more, heads before tokens', async () => {
      for (const seq of [1, 30]) {
        const cache = laid('bf16', [2, kvHeads, 90, 2 * d], DENSE, 5);
        const tokens = cache.permute([0, 2, 1, 3]).slice(1, 10, 60 + seq) as Float;
        const [k, v] = [tokens.slice(3, 0, d), tokens.slice(3, d, 2 * d)] as [Float, Float];
        const shape = [2, seq, heads, d];
        await agree(trialWith(laid('bf16', shape, DENSE, 6), k, v, roomFor('bf16', shape, DENSE), {}, seq % 16));
      }
    });
    test('q, k, v and out in one buffer', async () => {
      for (const seq of [1, 30]) {
        const all = laid('f16', [1, seq, 2 * heads + 2 * kvHeads, d], DENSE, 7);
        const part = (from: number, count: number): Float => all.slice(2, from, from + count) as Float;
        const [q, out] = [part(0, heads), part(heads + 2 * kvHeads, heads)];
        await agree(trialWith(q, part(heads, kvHeads), part(heads + kvHeads, kvHeads), out, {}, seq === 1 ? 15 : 0));
      }
    });
    test('transposed values, and an out of halves that share words', async () => {
      for (const [dtype, seq] of [
        ['f32', 1],
        ['f16', 40],
      ] as const) {
        const v = laid(dtype, [1, kvHeads, 20, 77], DENSE, 3).permute([0, 3, 1, 2]) as Float;
        const [q, k] = [laid(dtype, [1, seq, heads, d], DENSE, 4), laid(dtype, [1, 77, kvHeads, d], DENSE, 5)];
        const out = roomFor(dtype, [1, seq, heads, 20], { ...DENSE, dense: false, step: 3, backwards: 5, lead: 1 });
        await agree(trialWith(q, k, v, out, {}, 15));
      }
    });
  });

  describe('f32 queries before a cache of halves', () => {
    // Few shapes: a software driver compiles each kernel for each dtype.
    for (const [stored, sizes, options] of [
      ['f16', { seq: 1, past: 700, kvHeads: 2, group: 3, d: 16, dv: 12 }, { window: 600 }],
      ['bf16', { seq: 3, past: 20, kvHeads: 1, group: 1, d: 7, dv: 5 }, { softcap: 3 }],
      ['bf16', { batch: 2, seq: 40, past: 20, kvHeads: 2, group: 2, d: 16, dv: 12 }, { window: 25 }],
      ['f16', { seq: 40, past: 3, d: 7, dv: 5 }, {}],
    ] as const) {
      test(`${stored} ${JSON.stringify({ ...sizes, ...options })}`, async () => {
        measure(`f32 before ${stored} ${JSON.stringify(sizes)}`);
        await agree(trialOf(['f32', stored], sizes, options));
      });
    }
    test('a cache that has room for more, heads before tokens; in host memory and on the device', async () => {
      for (const seq of [1, 30]) {
        const cache = laid('f16', [2, 2, 90, 32], DENSE, 5);
        const tokens = cache.permute([0, 2, 1, 3]).slice(1, 10, 60 + seq) as Float;
        const [k, v] = [tokens.slice(3, 0, 16), tokens.slice(3, 16, 32)] as [Float, Float];
        const shape = [2, seq, 4, 16];
        await agree(
          trialWith(laid('f32', shape, DENSE, 6), k, v, roomFor('f32', shape, DENSE), {}, seq === 1 ? 15 : 9),
        );
      }
    });
  });

  // Few kernels, since a software driver takes its time to compile one; the sizes, options and layouts are what is
  // tried.
  const some = fc.record({
    batch: size(0, 2),
    seq: fc.oneof(size(0, 6), size(7, 70)),
    past: fc.oneof(size(0, 6), size(90, 300)),
    kvHeads: size(1, 2),
    group: fc.constantFrom(5, 8),
    d: fc.oneof(size(0, 9), fc.constantFrom(16, 31, 64)),
    dv: fc.oneof(size(0, 9), fc.constantFrom(12, 16, 31)),
  });
  const options = fc.oneof(
    fc.record({ window: maybe(size(1, 120)), scale: maybe(size(-2, 2)) }),
    fc.record({ causal: fc.constant(false), scale: maybe(size(-2, 2)) }),
  );
  holds(
    'any sizes, options and layouts',
    40,
    [some, options, placements, seeds, size(0, 15)],
    async (sizes, all, how, seed, owned) => agree(trialOf('f32', sizes, chosen(all), how, seed, owned)),
  );
  holds(
    'what the mask hides is not read: NaN and infinity in keys and values that a query does not see',
    20,
    [some, maybe(size(1, 50)), seeds],
    async ({ past, seq, ...sizes }, window, seed) => {
      const [d, dv] = [8, 8];
      const trial = trialOf('f32', { ...sizes, seq, past, d, dv }, chosen({ window }), undefined, seed, 15);
      // Some tokens are poison; the results of queries that see one of them may be anything.
      const poison = [0, past, past + seq - 1, Math.floor((past + seq) / 2)].filter(
        (t, n) => t >= 0 && (seed >> n) % 2 === 1,
      );
      const [, k, v] = trial.given as [Float, Float, Float];
      for (const [tensor, value] of [[k, NaN] as const, [v, seed % 3 ? Infinity : NaN] as const])
        for (const t of poison)
          if (t < past + seq)
            walk(tensor.slice(1, t, t + 1), (at) => storeNumber(tensor.storage.host!, 'f32', at, value));
      const heads = sizes.kvHeads * sizes.group;
      await agree({
        ...trial,
        free: (n) => {
          const position = past + (Math.floor(n / dv / heads) % seq);
          return poison.some((t) => t <= position && (window === undefined || t > position - window));
        },
      });
    },
  );
});
