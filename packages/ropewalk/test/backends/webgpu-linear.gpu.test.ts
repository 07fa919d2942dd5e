/**
 * `linear` on the WebGPU backend against the float64 reference: every path of its kernels, on each side of their sizes.
 *
 * Gaps between elements are NaN: one that is read spoils the result, one that is written shows.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { noGpu, sharedWebgpu } from '../../../../test/support/gpu.js';
import { blocksOf, dotError, randomness, U } from '../../../../test/support/operators.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import type { WebgpuBackend } from '../../src/backends/webgpu/host.js';
import { KERNEL_FORMATS, type KernelFormat } from '../../src/backends/webgpu/shaders/linear.js';
import type { BlockFormat } from '../../src/core/block-formats.js';
import { BLOCK_FORMATS } from '../../src/core/block-formats.js';
import { type BlockTensor, blocksFrom, isBlocks, readBlocks } from '../../src/core/blocks.js';
import {
  type ArrayOf,
  bitsOf,
  type FloatDtype,
  loadNumber,
  newArray,
  roundTo,
  storeNumber,
} from '../../src/core/dtypes.js';
import { walk } from '../../src/core/shape.js';
import { Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planLinear } from '../../src/ops/linear.js';
import { runReference } from '../../src/reference/index.js';

type Float = Tensor<FloatDtype>;
const FORMATS = KERNEL_FORMATS;
/** Rows of whole blocks, so many times as long where a block has 256 weights. */
const widths = (format: KernelFormat, ks: readonly number[]): number[] =>
  ks.map((k) => (k / 32) * BLOCK_FORMATS[format].weights);

const LONG = [32, 64, 96, 160, 1024, 1056];

/** A layout of elements; missing fields are those of a dense tensor. */
interface Placement {
  /** The elements before the first. */
  readonly lead?: number;
  /** The elements between runs of the innermost dimension. */
  readonly pad?: number;
  /** The stride of the innermost dimension. */
  readonly step?: number;
  /** Every dimension goes backwards. */
  readonly backwards?: boolean;
  /** The last dimension is the slowest: a transposed matrix. */
  readonly turned?: boolean;
}
const DENSE: Placement = {};
/** Layouts with gaps that loads of four may step over. */
const PADDED: Placement = { lead: 8, pad: 4 };
const SHIFTED: Placement = { lead: 1 };
const UNEVEN: Placement = { lead: 4, pad: 3 };
const SPARSE: Placement = { lead: 3, step: 2, pad: 1 };
const BACKWARDS: Placement = { lead: 2, backwards: true };
const TURNED: Placement = { turned: true };

/** Makes room for a shape in host memory; every bit is set, also in gaps: a NaN in any float. */
function roomFor(dtype: FloatDtype, shape: readonly number[], how: Placement): Float {
  const { lead = 0, pad = 0, step = 1, backwards = false, turned = false } = how;
  const strides = shape.map(() => 0);
  const order = shape.map((_, d) => d).reverse();
  let reach = step;
  let offset = lead;
  for (const [nth, d] of (turned ? [...order.slice(1), order[0]!] : order).entries()) {
    strides[d] = backwards ? -reach : reach;
    if (backwards) offset += Math.max(0, shape[d]! - 1) * reach;
    reach = reach * Math.max(1, shape[d]!) + (nth === 0 ? pad : 0);
  }
  const data = newArray(dtype, lead + reach + 2);
  new Uint8Array(data.buffer).fill(0xff);
  return tensorFrom(data, { dtype, shape, strides, offset }) as Float;
}

/** Makes numbers around 1, or of very different sizes, in some layout. */
function laid(dtype: FloatDtype, shape: readonly number[], how: Placement, seed: number): Float {
  const tensor = roomFor(dtype, shape, how);
  const random = randomness(seed);
  const wide = seed % 3 === 0;
  walk(tensor, (at) => {
    const value = (random() * 4 - 2) * (wide ? 2 ** Math.floor(random() * 12 - 6) : 1);
    storeNumber(tensor.storage.host!, dtype, at, value);
  });
  return tensor;
}

/** A call. */
interface Trial {
  readonly x: Float;
  readonly weight: Float | BlockTensor;
  readonly bias?: Float | undefined;
  readonly out: Float;
  readonly label: string;
}

/**
 * The largest error seen, in units of what was allowed: printed at the end when WORST is set, to keep the tolerance
 * honest.
 */
let worst = 0;

/** Checks that every number is between the allowed limits, both rounded to the dtype, and nothing else is written. */
async function compare({ x, weight, bias, out, label }: Trial, got: Float): Promise<void> {
  const k = x.shape.at(-1)!;
  const dense = (t: Float | BlockTensor, of: (v: number) => number) =>
    f64Tensor((isBlocks(t) ? readBlocks(t, 'weight') : floats(t)).map(of), t.shape);
  const [exact, products] = [(v: number) => v, Math.abs].map((of) => {
    const sums = zeros('f64', out.shape);
    runReference(planLinear(dense(x, of), dense(weight, of), sums, { bias: bias && dense(bias, of) }));
    return floats(sums);
  }) as [Float64Array, Float64Array];
  const values = got.storage.host ?? (await got.storage.read());
  const [bits, before] = [bitsOf(values), bitsOf(out.storage.host!)];
  const inside = new Uint8Array(bits.length);
  walk(got, (at, i) => {
    inside[at] = 1;
    const value = loadNumber(values, got.dtype, at);
    const error = dotError(k, products[i]!, 2 ** -126); // a GPU may take f32's subnormals as zeros
    if (process.env.WORST && got.dtype === 'f32')
      worst = Math.max(worst, (Math.abs(value - exact[i]!) - U * Math.abs(exact[i]!)) / error);
    const [low, high] = [roundTo(got.dtype, exact[i]! - error), roundTo(got.dtype, exact[i]! + error)];
    if (!(value >= low && value <= high))
      assert.fail(`${label} [${i}]: got ${value}, want ${exact[i]} ± ${error}, in [${low}, ${high}]`);
  });
  for (const [at, was] of before.entries())
    if (!inside[at] && bits[at] !== was) assert.fail(`${label}: storage[${at}], outside the tensor, is written`);
}

describe('linear on webgpu', { skip: noGpu }, () => {
  let backend: WebgpuBackend;
  before(async () => {
    backend = (await sharedWebgpu()) as WebgpuBackend;
  });
  after(() => {
    if (process.env.WORST) console.log(`linear: ${worst.toPrecision(3)} of the bound`);
  });

  /** Lays the same tensor over a copy of its storage, on the device or in host memory. */
  function copyOf<T extends Tensor>(tensor: T, onDevice: boolean): T {
    const all = tensorFrom(tensor.storage.host!.slice() as ArrayOf[T['dtype']], { dtype: tensor.dtype });
    const { shape, strides, offset } = tensor;
    return new Tensor((onDevice ? backend.upload(all) : all).storage, { shape, strides, offset }) as T;
  }

  /**
   * Runs calls one after another, waits for all and compares each. Bit n of `owned`: x, weight, bias or out is on the
   * device.
   */
  async function agree(trials: readonly Trial[], owned = (t: number): number => t): Promise<void> {
    const outs = trials.map(({ x, weight, bias, out }, t) => {
      const lies = (n: number): boolean => ((owned(t) >> n) & 1) === 1;
      const w = isBlocks(weight)
        ? blocksFrom(weight.format, copyOf(weight.bytes, lies(1)), weight.shape)
        : copyOf(weight, lies(1));
      const given = [copyOf(x, lies(0)), bias && copyOf(bias, lies(2)), copyOf(out, lies(3))] as const;
      backend.run(planLinear(given[0], w, given[2], { bias: given[1] }));
      for (const one of [given[0], w, given[1]]) one?.dispose();
      return given[2];
    });
    await backend.finish();
    for (const [t, trial] of trials.entries()) {
      await compare(trial, outs[t]!);
      outs[t]!.dispose();
    }
  }

  /** How the four tensors of a call are laid out. */
  interface Layouts {
    readonly x?: Placement;
    readonly weight?: Placement;
    readonly out?: Placement;
    readonly bias?: Placement | false;
  }

  /** The choices of a call. Default dtype of W and of the bias: that of x. */
  interface Stored extends Layouts {
    readonly ofWeight?: FloatDtype;
    readonly ofBias?: FloatDtype;
  }

  function trial(
    dtype: FloatDtype,
    kind: 'dense' | BlockFormat,
    [m, n, k]: readonly number[],
    how: Stored = {},
  ): Trial {
    const seed = m! * 31 + n! * 7 + k!;
    const lead = m! % 2 === 0 && m! > 0 ? [2, m! / 2] : [m!];
    const weight =
      kind === 'dense'
        ? laid(how.ofWeight ?? dtype, [n!, k!], how.weight ?? DENSE, seed + 1)
        : blocksOf(kind, n!, k!, seed + 1);
    return {
      x: laid(dtype, [...lead, k!], how.x ?? DENSE, seed),
      weight,
      bias: how.bias === false ? undefined : laid(how.ofBias ?? dtype, [n!], how.bias ?? DENSE, seed + 2),
      out: roomFor(dtype, [...lead, n!], how.out ?? DENSE),
      label: `linear ${dtype} ${kind} m=${m} n=${n} k=${k} ${JSON.stringify(how)}`,
    };
  }

  const cross = (ms: readonly number[], ns: readonly number[], ks: readonly number[]): number[][] =>
    ms.flatMap((m) => ns.flatMap((n) => ks.map((k) => [m, n, k])));

  describe('dense weights', () => {
    // A thread of the kernel for few rows takes four of k, a workgroup 512; a tile of the other goes along k by 32.
    const EVEN = [4, 32, 36, 64, 100, 160, 512, 516, 1024];
    const ODD = [1, 2, 3, 5, 31, 33, 65, 130, 513];
    const COLUMNS = [1, 2, 3, 5, 7, 9, 31, 33, 65, 130];
    test('f32, one row: any n and k, with and without bias', async () => {
      await agree(cross([1], [1, 3, 8, 31, 130], [...EVEN, ...ODD]).map((sizes) => trial('f32', 'dense', sizes)));
      await agree(
        cross([1], [...COLUMNS, 4, 8, 64, 100], [36, 1024]).map((sizes) =>
          trial('f32', 'dense', sizes, { bias: false }),
        ),
      );
    });
    test('f32, 2 to 8 rows', async () => {
      await agree(
        cross([2, 3, 5, 8], [1, 9, 31], [4, 100, 516, 1024]).map((sizes) =>
          trial('f32', 'dense', sizes, { bias: false }),
        ),
      );
    });
    test('f32, tiles', async () => {
      await agree(
        cross([9, 31, 33, 65], [4, 64, 100], [4, 36, 64, 160, 1024]).map((sizes) => trial('f32', 'dense', sizes)),
      );
      await agree(cross([9, 32, 130], COLUMNS, [1, 33]).map((sizes) => trial('f32', 'dense', sizes)));
    });
    for (const dtype of ['f16', 'bf16'] as const) {
      test(`${dtype}: both kernels, with and without loads of four`, async () => {
        const [even, odd] = dtype === 'f16' ? [[1], [9, 33]] : [[9, 33], [1]];
        await agree(cross(even, [4, 8, 64, 100], [4, 36, 160, 1024]).map((sizes) => trial(dtype, 'dense', sizes)));
        await agree(cross(odd, [7, 31, 65], ODD).map((sizes) => trial(dtype, 'dense', sizes, { bias: false })));
      });
    }
    test('f32 with weights and bias in halves: both kernels, with and without loads of four', async () => {
      const [even, odd] = [
        { ofWeight: 'f16', ofBias: 'bf16' },
        { ofWeight: 'bf16', ofBias: 'f16' },
      ] as const;
      await agree(cross([1, 33], [4, 65], [36, 1024]).map((sizes) => trial('f32', 'dense', sizes, even)));
      const how = { ...odd, x: UNEVEN, weight: BACKWARDS, out: SPARSE };
      await agree(
        cross([1, 0, 9], [7, 0], [33, 0, 513]).map((sizes) => trial('f32', 'dense', sizes, how)),
        (t) => (t % 2 ? 15 : 0),
      );
    });
    test('more tiles than cores: tiles of 64 × 64, the lower ones with one row', async () => {
      await agree([
        trial('f32', 'dense', [65, 8130, 21], { x: TURNED, out: BACKWARDS, weight: UNEVEN, bias: false }),
        trial('bf16', 'q4_0', [65, 8132, 32], { out: PADDED }),
      ]);
    });
  });

  describe('layouts', () => {
    const ODDLY = [SHIFTED, UNEVEN, SPARSE, BACKWARDS, TURNED];
    test('loads of four step over gaps', async () => {
      const how = { x: PADDED, weight: PADDED, out: PADDED, bias: SPARSE };
      await agree(cross([1, 20], [64], [32, 100]).map((sizes) => trial('f32', 'dense', sizes, how)));
    });
    for (const m of [1, 4, 20]) {
      test(`${m} rows: each tensor in each layout`, async () => {
        const dtype = ({ 1: 'f32', 4: 'f16', 20: 'bf16' } as const)[m]!;
        // Four rows take long to compile in software: only what all strides share.
        const names = m === 4 ? [] : (['x', 'weight', 'out', 'bias'] as const);
        await agree(
          names.flatMap((name) => ODDLY.map((place) => trial(dtype, 'dense', [m, 40, 36], { [name]: place }))),
          (t) => (t % 2 ? 15 : 0),
        );
        const all = (t: number): Placement => ODDLY[t % 5]!;
        const mixed = ODDLY.map((_, t) => ({ x: all(t), weight: all(t + 1), out: all(t + 3), bias: all(t + 4) }));
        await agree(mixed.map((how) => trial(dtype, 'dense', [m, 41, 35], how)));
      });
    }
    test('stride 0: one row of x for all, one weight for all', async () => {
      const x = laid('f32', [36], DENSE, 5);
      const weight = laid('f32', [36], DENSE, 6);
      const bias = laid('f32', [1], DENSE, 7);
      const repeat = (t: Float, shape: number[], strides: number[]): Float => new Tensor(t.storage, { shape, strides });
      await agree(
        [1, 20].map((m) => ({
          x: repeat(x, [m, 36], [0, 1]),
          weight: repeat(weight, [12, 36], [0, 1]),
          bias: repeat(bias, [12], [0]),
          out: roomFor('f32', [m, 12], DENSE),
          label: `stride 0, m=${m}`,
        })),
      );
    });
    for (const dtype of ['f32', 'f16'] as const) {
      test(`${dtype}: all tensors in one buffer, which is then bound once`, async () => {
        const sizes = [
          [1, 8, 32],
          [10, 7, 33],
        ] as const;
        for (const [m, n, k] of sizes) {
          // Every other element of the last out does not belong to it.
          const parts = [m * k, n * k, n].map((size) => Math.ceil(size / 4) * 4);
          const starts = parts.map((_, p) => parts.slice(0, p).reduce((sum, size) => sum + size, 0));
          const step = n === 7 ? 2 : 1;
          const total = starts[2]! + parts[2]!;
          const all = laid(dtype, [total + m * n * step], DENSE, 3);
          const view = (t: Tensor<FloatDtype>['storage'], p: number, shape: number[], strides?: number[]): Float =>
            new Tensor(t, { shape, offset: p === 3 ? total : starts[p]!, strides });
          const views = (t: Float['storage']) =>
            [view(t, 0, [m, k]), view(t, 1, [n, k]), view(t, 2, [n]), view(t, 3, [m, n], [n * step, step])] as const;
          const [x, weight, bias, out] = views(all.storage);
          const uploaded = copyOf(all, true);
          const given = views(uploaded.storage);
          const [a, w, b, y] = given;
          backend.run(planLinear(a, w, y, { bias: b }));
          await compare({ x, weight, bias, out, label: `one buffer ${dtype} ${m} ${n} ${k}` }, given[3]);
          uploaded.dispose();
        }
      });
    }
  });

  describe('weights in blocks', () => {
    for (const format of FORMATS) {
      test(`${format}: one row, and tiles`, async () => {
        // A workgroup of the kernel for few rows takes 1024 of k at a time.
        await agree(
          cross(
            [1, 9, 33],
            [1, 5, 31, 66],
            widths(format, format === 'q8_0' || format === 'q4_0' ? LONG : [32, 64, 160]),
          ).map((sizes) => trial('f32', format, sizes)),
        );
      });
      test(`${format}: x in halves, strided, 2 to 8 rows`, async () => {
        const dtype = format === 'q8_0' ? 'f16' : 'bf16';
        const how = { bias: false, out: SPARSE } as const;
        await agree(
          cross(format === 'q8_0' ? [2] : [3], [6, 65], widths(format, [32, 288])).map((sizes) =>
            trial(dtype, format, sizes, how),
          ),
        );
        await agree(
          cross([1, 20], [6, 65], widths(format, [32, 288])).map((sizes) =>
            trial(dtype, format, sizes, { ...how, x: BACKWARDS }),
          ),
        );
      });
      test(`${format}: blocks start at any byte`, async () => {
        const [n, k] = [5, widths(format, [96])[0]!];
        for (const offset of [1, 2, 3, 6]) {
          const trials = [1, 9].map((m) => ({
            ...trial('f32', format, [m, n, k]),
            weight: blocksOf(format, n, k, 8, offset),
            label: `${format} from byte ${offset}`,
          }));
          await agree(trials, () => 0);
          await agree(trials, () => 2);
        }
      });
    }
    test('a bias in halves with f32', async () => {
      await agree([
        trial('f32', 'q8_0', [1, 9, 160], { ofBias: 'f16' }),
        trial('f32', 'q4_0', [20, 9, 160], { ofBias: 'bf16' }),
      ]);
    });
    test('7 and 8 rows', async () => {
      await agree([trial('f32', 'q4_0', [7, 9, 160]), trial('f32', 'q4_0', [8, 9, 1056])]);
    });
  });

  test('k = 0: the bias or zeros; no rows or no columns: nothing', async () => {
    for (const owned of [0, 15]) {
      const trials = cross([0, 1, 9], [0, 4, 5], [0]).flatMap((sizes) => [
        trial('f32', 'dense', sizes),
        trial('f16', 'dense', [sizes[0]!, 0, 7]),
        trial('bf16', 'dense', [0, sizes[1]!, 7]),
      ]);
      await agree(trials, () => owned);
    }
    await agree(FORMATS.map((format) => trial('f32', format, [1, 5, 0])));
  });

  test('the same bits in every run', async () => {
    const { x, weight, bias, out } = trial('f32', 'dense', [1, 64, 1024]);
    const once = async (): Promise<unknown> => {
      const to = copyOf(out, true);
      backend.run(planLinear(x, weight, to, { bias }));
      return to.read();
    };
    assert.deepEqual(await once(), await once());
  });
});
