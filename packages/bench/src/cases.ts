/**
 * The table of benchmark cases. Each case prepares its tensors, checks its result, and counts bytes and operations.
 *
 * @module
 */

import {
  type ArrayOf,
  type BlockFormat,
  type Dtype,
  type FloatDtype,
  type Ropewalk,
  sizeBytes,
  Tensor,
} from 'ropewalk';
import { type Activations, BLOCK_FORMAT_NAMES } from 'ropewalk/internal';
import { type Agreement, agreement, quantizedWeight, randomArray } from './data.js';
import { place, placeQuantized, release } from './library.js';
import type { Contender } from './measure.js';
import { plainRope } from './plain-rope.js';

/** The largest error where x is rounded to 8 bits. The error of a sum of k products is about 0.01, whatever k is. */
const ROUNDED_LIMIT = 0.05;

/** The unit of a case's speed. */
export type Rate = 'GB/s' | 'GFLOP/s' | 'ns/entry';

/** A case before anything is allocated. */
export interface BenchCase {
  /** Identifies the case, and seeds its data. */
  readonly label: string;
  /** Short name for the picture; cases without one are not drawn. */
  readonly point?: string;
  readonly group: 'operators' | 'scaling';
  readonly rate: Rate;
  readonly dtype: FloatDtype;
  prepare(libraries: Libraries): PreparedCase;
}

/** An operator that writes one tensor, prepared. */
interface PreparedOperator {
  readonly call: () => unknown;
  readonly out: Tensor<FloatDtype>;
  readonly inputs: readonly { dispose(): void }[];
  readonly bytes: number;
  readonly flops: number;
  /** Reads numbers of the output after a call, and computes the same numbers in float64. */
  compare(): Promise<{ readonly got: Float64Array; readonly want: Float64Array }>;
  readonly plain?: Contender;
  readonly question?: Question;
}

/** The fields of an operator's case. Default: f32, judged by GB/s, and not drawn. */
type OperatorFields = Pick<BenchCase, 'label'> & Partial<BenchCase> & { readonly limit?: number };

function operatorCase(
  { limit, ...fields }: OperatorFields,
  prepare: (libraries: Libraries) => PreparedOperator,
): BenchCase {
  const { label, dtype = 'f32' } = fields;
  return {
    group: 'operators',
    rate: 'GB/s',
    dtype,
    ...fields,
    prepare(libraries) {
      const { call, out, inputs, compare, ...rest } = prepare(libraries);
      return {
        ...rest,
        ours: { name: 'ropewalk', call, sink: () => firstOf(out) },
        elements: out.size,
        output: out,
        async check() {
          call();
          const { got, want } = await compare();
          return agreement(got, want, dtype, label, limit);
        },
        dispose: () => release(out, ...inputs),
      };
    },
  };
}

/** The library that runs a case, and the one that checks its result. */
export interface Libraries {
  readonly rw: Ropewalk;
  /** The float64 reference, which works in host memory. */
  readonly oracle: Ropewalk;
}

/** A case that is ready to run. */
export interface PreparedCase {
  readonly ours: Contender;
  /** The bytes that must be read or written, each counted once. */
  readonly bytes: number;
  /** Additions, multiplications, divisions, roots and exponentials, each counted as one. */
  readonly flops: number;
  /** The number of results: elements of the output, or entries of a table. */
  readonly elements: number;
  /** The output. Undefined when no peer computes the same. */
  readonly output?: Tensor<FloatDtype>;
  /** Runs once before the timing and compares the result with float64. @throws Error when the result is wrong */
  check(): Promise<Agreement>;
  /** A loop in plain TypeScript that computes the same. */
  readonly plain?: Contender;
  /** The same computation as peers are asked to do it. */
  readonly question?: Question;
  dispose(): void;
}

/** An operator with its data, for the benchmark's peers. Arrays are dense; f16 and bf16 are bits. */
export type Question =
  | (RopeShape & {
      readonly op: 'rope';
      readonly dtype: FloatDtype;
      readonly pairing: 'half' | 'interleaved';
      readonly x: ArrayOf['f32' | 'f16'];
      readonly cos: Float32Array;
      readonly sin: Float32Array;
    })
  | {
      readonly op: 'rms_norm' | 'layer_norm';
      readonly rows: number;
      readonly width: number;
      readonly eps: number;
      readonly x: Float32Array;
      readonly weight: Float32Array;
      /** Used by layer_norm only. */
      readonly bias: Float32Array;
    }
  | {
      readonly op: ElementwiseName;
      readonly shape: readonly number[];
      readonly inputs: readonly Float32Array[];
      /** Used by scale only. */
      readonly factor: number;
    }
  | {
      readonly op: 'permute';
      readonly x: Float32Array;
      readonly shape: readonly number[];
      readonly perm: readonly number[];
    }
  | {
      readonly op: 'linear';
      readonly m: number;
      readonly n: number;
      readonly k: number;
      readonly dtype: FloatDtype;
      readonly x: ArrayOf['f32' | 'f16'];
      /** `[n, k]`. */
      readonly weight: ArrayOf['f32' | 'f16'];
    }
  | {
      readonly op: 'linear of blocks';
      readonly kind: BlockFormat;
      readonly n: number;
      readonly k: number;
      readonly x: Float32Array;
      /** Blocks as GGUF has them. */
      readonly weight: Uint8Array;
    }
  | (AttentionShape & {
      readonly op: 'attention';
      readonly q: Float32Array;
      readonly keyData: Float32Array;
      readonly valueData: Float32Array;
    });

/**
 * Lists all cases.
 *
 * @param quick - small shapes, which the float64 reference runs in milliseconds
 */
export function allCases(quick: boolean): readonly BenchCase[] {
  const pick = <T>(full: T, small: T): T => (quick ? small : full);
  const width = pick(4096, 64);
  const heads = { heads: pick(32, 4), kvHeads: pick(8, 2), headDim: pick(128, 16) };
  return [
    ...pick([1, 512, 4096], [1, 5]).flatMap((tokens) =>
      (['f32', 'f16', 'bf16'] as const).flatMap((dtype) =>
        (['half', 'interleaved'] as const).map((pairing) =>
          ropeCase({ tokens, heads: pick(32, 2), headDim: pick(128, 16), dtype, pairing, group: 'operators' }),
        ),
      ),
    ),
    ropeTableCase(pick(4096, 8), pick(128, 16)),
    // 512 rows fit a large third-level cache, 4096 do not.
    ...pick([512, 4096], [4]).flatMap((rows) => [
      normCase('rms_norm', rows, width),
      normCase('layer_norm', rows, width),
      ...ELEMENTWISE_NAMES.map((operator) => elementwiseCase(operator, rows, width)),
    ]),
    linearCase(pick(512, 3), pick(2048, 32), pick(2048, 32), 'f32'),
    linearCase(1, pick(4096, 32), pick(4096, 64), 'f32'),
    linearCase(1, pick(4096, 32), pick(4096, 64), 'bf16'),
    // A decoder has f32 activations, and weights and caches in the type of the file.
    ...(['f16', 'bf16'] as const).flatMap((stored) => [
      linearCase(1, pick(2048, 32), pick(2048, 64), 'f32', stored),
      linearCase(pick(512, 3), pick(2048, 32), pick(2048, 32), 'f32', stored),
    ]),
    ...(['f16', 'q8_0'] as const).map((stored) => embeddingCase(pick(512, 3), pick(8192, 8), pick(2048, 64), stored)),
    convertCase(pick(512, 3), pick(8, 2), pick(128, 16), 'f16'),
    ...BLOCK_FORMAT_NAMES.map((kind) => quantizedLinearCase(kind, pick(4096, 32), pick(4096, 256))),
    ...(['q8_0', 'q4_0'] as const).flatMap((kind) => [
      quantizedLinearCase(kind, pick(4096, 32), pick(4096, 256), 1, 'q8'),
      ...(['f32', 'q8'] as const).map((activations) =>
        quantizedLinearCase(kind, pick(2048, 32), pick(2048, 64), pick(128, 9), activations),
      ),
    ]),
    // These read as many bytes as the linear layers above.
    ...(['q8_0', 'q4_0', 'mxfp4'] as const).map((kind) =>
      expertLinearCase(kind, pick(32, 8), pick(8, 2), pick(512, 8), pick(4096, 256)),
    ),
    ...(['f32', 'f16', 'i8'] as const).map((stored) =>
      attentionCase({ ...heads, queries: 1, keys: pick(512, 7), stored }),
    ),
    attentionCase({ ...heads, queries: pick(512, 7), keys: pick(512, 7) }),
    ...pick([1, 8, 64, 512, 4096, 32_768, 131_072], [1, 8]).map((tokens) => scaled({ tokens, heads: 4, headDim: 64 })),
    ...pick([1, 2, 4, 8, 16, 32, 64], [1, 2]).map((heads) => scaled({ tokens: pick(512, 2), heads, headDim: 128 })),
    ...pick([32, 64, 128, 256], [32]).map((headDim) => scaled({ tokens: pick(512, 2), heads: 8, headDim })),
  ];
}

/**
 * Lists the cases of a GPU.
 *
 * @param small - small shapes, which a driver in software runs in milliseconds
 */
export function gpuCases(small: boolean): readonly BenchCase[] {
  const pick = <T>(full: T, few: T): T => (small ? few : full);
  const [heads, kvHeads, headDim] = pick([32, 8, 128] as const, [4, 2, 16] as const);
  const width = pick(4096, 64);
  const long = pick(14_336, 96);
  const dtypes = ['f32', 'f16', 'bf16'] as const;
  // With a batch, x and out take 512 MiB together in every dtype: several times the second-level cache of any GPU.
  const shapes = (dtype: FloatDtype): { batch?: number; tokens: number }[] => [
    ...pick([1, 512, 4096], [1, 5]).map((tokens) => ({ tokens })),
    { batch: pick(16 / sizeBytes(dtype), 2), tokens: pick(4096, 5) },
  ];
  const attention = (queries: number, keys: number): BenchCase =>
    attentionCase({ queries, keys, heads, kvHeads, headDim });
  return [
    ...dtypes.flatMap((dtype) =>
      shapes(dtype).flatMap((shape) =>
        (['half', 'interleaved'] as const).flatMap((pairing) =>
          [false, true].map((inPlace) =>
            ropeCase({ ...shape, heads, headDim, dtype, pairing, inPlace, group: 'operators' }),
          ),
        ),
      ),
    ),
    ...dtypes.flatMap((dtype) =>
      pick([1, 512, 4096], [1, 5]).map((tokens) => ropePartsCase({ tokens, heads, kvHeads, headDim, dtype })),
    ),
    ...pick([512, 16_384], [4]).flatMap((rows) => [
      ...ELEMENTWISE_NAMES.map((operator) => elementwiseCase(operator, rows, width)),
      normCase('rms_norm', rows, width),
      normCase('layer_norm', rows, width),
      rearrangeCase(rows, heads, headDim, false),
      rearrangeCase(rows, heads, headDim, true),
    ]),
    ...(['f32', 'f16'] as const).map((dtype) => linearCase(pick(512, 3), width, width, dtype)),
    ...[width, long].flatMap((k) => [
      ...dtypes.map((dtype) => linearCase(1, width, k, dtype)),
      linearCase(1, width, k, 'f32', 'f16'),
      ...(['q8_0', 'q4_0'] as const).map((kind) => quantizedLinearCase(kind, width, k)),
      expertLinearCase('q8_0', pick(32, 8), pick(8, 2), width / 8, k),
    ]),
    linearCase(pick(512, 3), width, width, 'f32', 'f16'),
    ...(['f16', 'q8_0'] as const).map((stored) => embeddingCase(pick(512, 3), pick(32_768, 8), width, stored)),
    convertCase(pick(512, 4), kvHeads, headDim, 'f16'),
    ...pick([512, 2048], [7]).map((tokens) => attention(tokens, tokens)),
    attentionCase({ queries: 1, keys: pick(4096, 7), heads, kvHeads, headDim, stored: 'f16' }),
    ...pick([512, 4096], [7]).map((keys) => attention(1, keys)),
  ];
}

/**
 * Lists the cases of webnn. All of them are cases of cpu too.
 *
 * @param quick - small shapes
 */
export function webnnCases(quick: boolean): readonly BenchCase[] {
  const pick = <T>(full: T, small: T): T => (quick ? small : full);
  const [heads, kvHeads, headDim] = pick([32, 8, 128] as const, [4, 2, 16] as const);
  const [rows, width] = pick([512, 4096] as const, [4, 64] as const);
  const [m, n] = pick([512, 2048] as const, [3, 32] as const);
  return [
    ...pick([1, 512], [1, 5]).flatMap((tokens) =>
      (['half', 'interleaved'] as const).map((pairing) =>
        ropeCase({ tokens, heads, headDim, dtype: 'f32', pairing, group: 'operators' }),
      ),
    ),
    ropeCase({ tokens: rows, heads, headDim, dtype: 'f16', pairing: 'half', group: 'operators' }),
    normCase('rms_norm', rows, width),
    ...(['swiglu', 'add'] as const).map((operator) => elementwiseCase(operator, rows, width)),
    attentionCase({ queries: 1, keys: rows, heads, kvHeads, headDim }),
    attentionCase({ queries: rows, keys: rows, heads, kvHeads, headDim }),
    linearCase(m, n, n, 'f32'),
    linearCase(m, n, n, 'f32', 'f16'),
    linearCase(1, width, width, 'f32'),
    linearCase(1, width, width, 'f32', 'f16'),
    // WebNN has no blocks: the backend widens these to f32.
    ...(['q8_0', 'q4_0'] as const).map((kind) => quantizedLinearCase(kind, width, pick(4096, 256))),
  ];
}

/**
 * Lists the cases that a page times: a few that every backend has.
 *
 * @param small - shapes that a GPU in software runs in a second
 */
export function pageCases(small: boolean): readonly BenchCase[] {
  const [tokens, width, n] = small ? [32, 512, 256] : [512, 4096, 2048];
  const rope = (tokens: number, dtype: RopeCase['dtype'], pairing: RopeCase['pairing']): BenchCase =>
    ropeCase({ tokens, heads: 32, headDim: 128, dtype, pairing, group: 'operators' });
  const attention = (queries: number): BenchCase =>
    attentionCase({ queries, keys: tokens, heads: 32, kvHeads: 8, headDim: 128 });
  return [
    rope(1, 'f32', 'half'),
    rope(tokens, 'f32', 'half'),
    rope(tokens, 'f32', 'interleaved'),
    rope(tokens, 'f16', 'half'),
    rope(tokens, 'bf16', 'half'),
    normCase('rms_norm', tokens, width),
    linearCase(1, width, width, 'f32'),
    linearCase(1, width, width, 'f32', 'f16'),
    quantizedLinearCase('q8_0', width, width),
    linearCase(tokens, n, n, 'f32'),
    attention(1),
    attention(tokens),
  ];
}

/** The shape `[tokens, heads, headDim]`. */
export interface RopeShape {
  readonly tokens: number;
  readonly heads: number;
  readonly headDim: number;
}

function scaled(shape: RopeShape): BenchCase {
  return ropeCase({ ...shape, dtype: 'f32', pairing: 'half', group: 'scaling' });
}

const ROPE_BASE = 10_000;

interface RopeCase extends RopeShape {
  /** The number of batches, which share their positions. Default: the tensor has no batch dimension. */
  readonly batch?: number;
  readonly dtype: 'f32' | 'f16' | 'bf16';
  readonly pairing: 'half' | 'interleaved';
  /** The output is the input itself. */
  readonly inPlace?: boolean;
  readonly group: 'operators' | 'scaling';
}

function ropeCase(options: RopeCase): BenchCase {
  const { batch, tokens, heads, headDim, dtype, pairing, inPlace = false, group } = options;
  const shape = [...(batch === undefined ? [] : [batch]), tokens, heads, headDim];
  const label =
    group === 'scaling'
      ? `rope scaling tokens=${tokens} heads=${heads} head_dim=${headDim}`
      : `rope ${dtype} ${pairing} ${shape.join('x')}${inPlace ? ' in place' : ''}`;
  return {
    label,
    ...(group === 'operators' && pairing === 'half' && tokens > 1 && { point: `rope ${dtype} ${tokens}` }),
    group,
    rate: 'GB/s',
    dtype,
    prepare({ rw, oracle }) {
      const data = randomArray(label, dtype, (batch ?? 1) * tokens * heads * headDim);
      const x = place(rw, data, dtype, shape);
      const out = inPlace ? x : rw.allocate(dtype, shape);
      const plan = rw.planRope({ headDim, pairing, base: ROPE_BASE, positions: 0, seqLen: tokens });
      const { cos, sin } = plan.table as { cos: Float32Array; sin: Float32Array };
      const elements = data.length;
      const asked = group === 'operators' && batch === undefined && !inPlace;
      return {
        ours: { name: 'ropewalk', call: () => rw.rope(x, plan, { out }), sink: () => firstOf(out) },
        bytes: 2 * elements * sizeBytes(dtype) + 2 * cos.byteLength,
        flops: 3 * elements, // a pair takes four multiplications, an addition and a subtraction
        elements,
        output: out,
        check: () => checkRope({ oracle, pairing, label, parts: [{ x, out }], run: () => rw.rope(x, plan, { out }) }),
        ...(dtype === 'f32' &&
          asked && { plain: plainContender(data as Float32Array, cos, sin, heads, headDim, pairing) }),
        ...(asked && { question: { op: 'rope', tokens, heads, headDim, dtype, pairing, x: data, cos, sin } }),
        dispose: () => release(x, out),
      };
    },
  };
}

/** Rotates q, and k with fewer heads, in place and in one call, as a decoder layer does. */
function ropePartsCase({
  tokens,
  heads,
  kvHeads,
  headDim,
  dtype,
}: Omit<RopeCase, 'pairing' | 'group'> & { kvHeads: number }): BenchCase {
  const label = `rope q+k ${dtype} half ${tokens}x${heads}+${kvHeads}x${headDim} in place`;
  return {
    label,
    group: 'operators',
    rate: 'GB/s',
    dtype,
    prepare({ rw, oracle }) {
      const parts = [heads, kvHeads].map((count) => {
        const shape = [tokens, count, headDim];
        const x = place(rw, randomArray(`${label} ${count}`, dtype, tokens * count * headDim), dtype, shape);
        return { x, out: x };
      });
      const plan = rw.planRope({ headDim, pairing: 'half', base: ROPE_BASE, positions: 0, seqLen: tokens });
      const elements = tokens * (heads + kvHeads) * headDim;
      return {
        ours: { name: 'ropewalk', call: () => rw.ropeParts(plan, parts), sink: () => firstOf(parts[0]!.out) },
        bytes: 2 * elements * sizeBytes(dtype) + 2 * plan.table.cos.byteLength,
        flops: 3 * elements,
        elements,
        check: () => checkRope({ oracle, pairing: 'half', label, parts, run: () => rw.ropeParts(plan, parts) }),
        dispose: () => release(...parts.map(({ x }) => x)),
      };
    },
  };
}

/**
 * Compares the outer tokens of the first and the last batch. They are read before the run, which may overwrite them.
 */
async function checkRope(options: {
  readonly oracle: Ropewalk;
  readonly pairing: 'half' | 'interleaved';
  readonly label: string;
  readonly parts: readonly { readonly x: Tensor<FloatDtype>; readonly out: Tensor<FloatDtype> }[];
  run(): void;
}): Promise<Agreement> {
  const { oracle, pairing, label, parts } = options;
  const want: Float64Array[] = [];
  for (const { x } of parts) {
    for (const { token, rows } of outerTokens(x)) {
      want.push(await numbersOf(oracle.rope(await copyFor(oracle, rows), [token], { pairing, base: ROPE_BASE })));
    }
  }
  options.run();
  const got: Float64Array[] = [];
  for (const { out } of parts) for (const { rows } of outerTokens(out)) got.push(await numbersOf(rows));
  return agreement(joined(got), joined(want), parts[0]!.x.dtype, label);
}

/** The first and the last four tokens of the first and the last batch. */
function outerTokens(x: Tensor<FloatDtype>): { token: number; rows: Tensor<FloatDtype> }[] {
  const all = x.rank === 3 ? x.unsqueeze() : x;
  const [batches, tokens] = all.shape as [number, number];
  const some = Array.from({ length: tokens }, (_, token) => token).filter((token) => token < 4 || token >= tokens - 4);
  return [...new Set([0, batches - 1])].flatMap((batch) =>
    some.map((token) => ({ token, rows: all.slice(0, batch, batch + 1).slice(1, token, token + 1) })),
  );
}

function plainContender(
  x: Float32Array,
  cos: Float32Array,
  sin: Float32Array,
  heads: number,
  headDim: number,
  pairing: 'half' | 'interleaved',
): Contender {
  const y = new Float32Array(x.length);
  return { name: 'plain', call: () => plainRope(y, x, cos, sin, heads, headDim, pairing), sink: () => y[0]! };
}

function ropeTableCase(tokens: number, headDim: number): BenchCase {
  const label = `rope table ${tokens}x${headDim / 2}`;
  return {
    label,
    group: 'operators',
    rate: 'ns/entry',
    dtype: 'f32',
    prepare({ rw }) {
      const build = () => rw.planRope({ headDim, pairing: 'half', base: ROPE_BASE, positions: 0, seqLen: tokens });
      const pairs = headDim / 2;
      let last = build();
      return {
        ours: {
          name: 'ropewalk',
          call: () => {
            last = build();
          },
          sink: () => last.table.cos[0]!,
        },
        bytes: tokens * pairs * 8,
        flops: 3 * tokens * pairs,
        elements: tokens * pairs,
        async check() {
          const { cos, sin } = build().table;
          const want = new Float64Array(2 * tokens * pairs);
          for (let token = 0; token < tokens; token++) {
            for (let j = 0; j < pairs; j++) {
              const angle = token * ROPE_BASE ** ((-2 * j) / headDim);
              want[token * pairs + j] = Math.cos(angle);
              want[tokens * pairs + token * pairs + j] = Math.sin(angle);
            }
          }
          return agreement(joined([cos, sin]), want, 'f32', label);
        },
        dispose() {},
      };
    },
  };
}

const EPSILON = 1e-5;

function normCase(operator: 'rms_norm' | 'layer_norm', rows: number, width: number): BenchCase {
  const label = `${operator} f32 ${rows}x${width}`;
  const centered = operator === 'layer_norm';
  return operatorCase({ label, point: `${operator} ${rows}` }, ({ rw, oracle }) => {
    const data = randomArray(label, 'f32', rows * width);
    const scales = randomArray(`${label} weight`, 'f32', width);
    const shifts = randomArray(`${label} bias`, 'f32', width);
    const x = place(rw, data, 'f32', [rows, width]);
    const weight = place(rw, scales, 'f32', [width]);
    const bias = place(rw, shifts, 'f32', [width]);
    const out = rw.allocate('f32', [rows, width]);
    const run = (
      on: Ropewalk,
      [x, weight, bias]: readonly [Tensor<'f32'>, Tensor<'f32'>, Tensor<'f32'>],
      out?: Tensor<'f32'>,
    ) =>
      centered ? on.layerNorm(x, weight, { eps: EPSILON, bias, out }) : on.rmsNorm(x, weight, { eps: EPSILON, out });
    return {
      call: () => run(rw, [x, weight, bias], out),
      out,
      inputs: [x, weight, bias],
      bytes: 2 * data.byteLength + (centered ? 2 : 1) * scales.byteLength,
      flops: (centered ? 7 : 4) * rows * width, // square, sum, scale, weight; with a mean also sum, difference, bias
      async compare() {
        const copies = [
          await copyFor(oracle, outerRows(x)),
          await copyFor(oracle, weight),
          await copyFor(oracle, bias),
        ];
        const want = run(oracle, copies as [Tensor<'f32'>, Tensor<'f32'>, Tensor<'f32'>]);
        return { got: await numbersOf(outerRows(out)), want: await numbersOf(want) };
      },
      question: { op: operator, rows, width, eps: EPSILON, x: data, weight: scales, bias: shifts },
    };
  });
}

/** An operator whose inputs and output have one shape. */
interface Elementwise {
  readonly inputs: 1 | 2;
  readonly flopsAnElement: number;
  readonly run: (rw: Ropewalk, a: Tensor<'f32'>, b: Tensor<'f32'>, out?: Tensor<'f32'>) => Tensor<'f32'>;
}

const FACTOR = 0.25;
/** The elementwise operators. */
export type ElementwiseName = 'add' | 'swiglu' | 'geglu' | 'scale';
const ELEMENTWISE: Readonly<Record<ElementwiseName, Elementwise>> = {
  add: { inputs: 2, flopsAnElement: 1, run: (rw, a, b, out) => rw.add(a, b, { out }) },
  // exp, 1 +, /, ·
  swiglu: { inputs: 2, flopsAnElement: 4, run: (rw, a, b, out) => rw.swiglu(a, b, { out }) },
  // erf, 1 +, ·, ·
  geglu: { inputs: 2, flopsAnElement: 4, run: (rw, a, b, out) => rw.geglu(a, b, { out }) },
  scale: { inputs: 1, flopsAnElement: 1, run: (rw, a, _, out) => rw.scale(a, FACTOR, { out }) },
};

const ELEMENTWISE_NAMES = Object.keys(ELEMENTWISE) as ElementwiseName[];

function elementwiseCase(operator: ElementwiseName, rows: number, width: number): BenchCase {
  const { inputs, flopsAnElement, run } = ELEMENTWISE[operator];
  const label = `${operator} f32 ${rows}x${width}`;
  const shape = [rows, width];
  return operatorCase({ label, point: `${operator} ${rows}` }, ({ rw, oracle }) => {
    const first = randomArray(`${label} a`, 'f32', rows * width);
    const second = randomArray(`${label} b`, 'f32', rows * width);
    const a = place(rw, first, 'f32', shape);
    const b = place(rw, second, 'f32', shape);
    const out = rw.allocate('f32', shape);
    return {
      call: () => run(rw, a, b, out),
      out,
      inputs: [a, b],
      bytes: (inputs + 1) * first.byteLength,
      flops: flopsAnElement * rows * width,
      async compare() {
        const want = run(oracle, await copyFor(oracle, outerRows(a)), await copyFor(oracle, outerRows(b)));
        return { got: await numbersOf(outerRows(out)), want: await numbersOf(want) };
      },
      question: { op: operator, shape, inputs: [first, second].slice(0, inputs), factor: FACTOR },
    };
  });
}

/** Copies by a kernel: dense rows, or from tokens first to heads first. */
function rearrangeCase(tokens: number, heads: number, headDim: number, turned: boolean): BenchCase {
  const label = `rearrange f32 ${tokens}x${heads}x${headDim} ${turned ? 'to heads first' : 'dense'}`;
  return operatorCase({ label }, ({ rw }) => {
    const data = randomArray(label, 'f32', tokens * heads * headDim);
    const whole = place(rw, data, 'f32', [tokens, heads, headDim]);
    const x = turned ? whole.permute([1, 0, 2]) : whole;
    const out = rw.allocate('f32', x.shape);
    const last = (tensor: Tensor) => numbersOf(tensor.slice(0, x.shape[0]! - 1, x.shape[0]!));
    return {
      call: () => rw.rearrange(x, { out }),
      out,
      inputs: [whole],
      bytes: 2 * data.byteLength,
      flops: 0,
      compare: async () => ({ got: await last(out), want: await last(x) }),
      ...(turned && { question: { op: 'permute', x: data, shape: whole.shape, perm: [1, 0, 2] } }),
    };
  });
}

/** Takes rows from a table and widens them to f32. */
function embeddingCase(tokens: number, rows: number, width: number, stored: 'f16' | 'q8_0'): BenchCase {
  const label = `embedding f32 ${tokens}x${width} of ${stored}`;
  return operatorCase({ label }, ({ rw, oracle }) => {
    const index = rw.tensor(Int32Array.from({ length: tokens }, (_, n) => (n * 7919) % rows));
    const quantized = stored === 'q8_0' ? quantizedWeight(stored, rows, width) : undefined;
    const table = quantized
      ? placeQuantized(rw, 'q8_0', quantized.bytes, [rows, width])
      : place(rw, randomArray(label, 'f16', rows * width), 'f16', [rows, width]);
    const out = rw.allocate('f32', [tokens, width]);
    return {
      call: () => rw.embedding(index, table, { out }),
      out,
      inputs: [table],
      bytes: tokens * (quantized ? quantized.bytes.length / rows : 2 * width) + 4 * out.size,
      flops: 0,
      async compare() {
        const last = ((tokens - 1) * 7919) % rows;
        const want = quantized
          ? Float64Array.from(quantized.row(last))
          : await numbersOf(await copyFor(oracle, (table as Tensor<'f16'>).slice(0, last, last + 1)));
        return { got: await numbersOf(out.slice(0, tokens - 1, tokens)), want };
      },
    };
  });
}

/** Writes the values of a prompt into their rows of a cache in 16 bits. */
function convertCase(tokens: number, heads: number, headDim: number, stored: 'f16' | 'bf16'): BenchCase {
  const label = `rearrange f32 to ${stored} ${tokens}x${heads}x${headDim}`;
  return operatorCase({ label, dtype: stored }, ({ rw, oracle }) => {
    const data = randomArray(label, 'f32', tokens * heads * headDim);
    const x = place(rw, data, 'f32', [tokens, heads, headDim]);
    const cache = rw.allocate(stored, [2 * tokens, heads, headDim]);
    const out = cache.slice(0, tokens, 2 * tokens);
    return {
      call: () => rw.rearrange(x, { out }),
      out,
      inputs: [x, cache],
      bytes: 6 * data.length,
      flops: 0,
      async compare() {
        const from = x.slice(0, tokens - 1, tokens);
        const want = oracle.rearrange(await copyFor(oracle, from), { out: oracle.allocate('f64', from.shape) });
        return { got: await numbersOf(out.slice(0, tokens - 1, tokens)), want: await numbersOf(want) };
      },
    };
  });
}

/** @param stored - the dtype of the weights. Default: that of x and out */
function linearCase(m: number, n: number, k: number, dtype: 'f32' | 'f16' | 'bf16', stored = dtype): BenchCase {
  const label = `linear ${dtype} ${m}x${n}x${k}${stored === dtype ? '' : ` weight=${stored}`}`;
  const point = `linear ${stored === dtype ? dtype : `${dtype}·${stored}`} m=${m}`;
  return operatorCase({ label, point, rate: m === 1 ? 'GB/s' : 'GFLOP/s', dtype }, ({ rw, oracle }) => {
    const data = randomArray(`${label} x`, dtype, m * k);
    const weights = randomArray(`${label} weight`, stored, n * k);
    const x = place(rw, data, dtype, [m, k]);
    const weight = place(rw, weights, stored, [n, k]);
    const out = rw.allocate(dtype, [m, n]);
    return {
      call: () => rw.linear(x, weight, { out }),
      out,
      inputs: [x, weight],
      bytes: (m * k + m * n) * sizeBytes(dtype) + n * k * sizeBytes(stored),
      flops: 2 * m * n * k,
      async compare() {
        const rows = await copyFor(oracle, outerRows(x));
        const got: Float64Array[] = [];
        const want: Float64Array[] = [];
        for (const c of [0, Math.floor(n / 2), n - 1]) {
          got.push(await numbersOf(outerRows(out).slice(1, c, c + 1)));
          const column = await copyFor(oracle, weight.slice(0, c, c + 1));
          want.push(await numbersOf(oracle.linear(rows, column)));
        }
        return { got: joined(got), want: joined(want) };
      },
      ...(stored === dtype && { question: { op: 'linear', m, n, k, dtype, x: data, weight: weights } }),
    };
  });
}

/** With `activations: 'q8'` the error includes the rounding of x: it is measured against the unrounded x. */
function quantizedLinearCase(
  kind: BlockFormat,
  n: number,
  k: number,
  m = 1,
  activations: Activations = 'f32',
): BenchCase {
  const rounds = activations === 'q8';
  const label = `linear ${kind} ${m}x${n}x${k}${rounds ? ' activations=q8' : ''}`;
  const fields = {
    label,
    point: `linear ${kind}${rounds ? ' q8' : ''} m=${m}`,
    rate: m === 1 ? 'GB/s' : 'GFLOP/s',
    limit: rounds ? ROUNDED_LIMIT : undefined,
  } as const;
  return operatorCase(fields, ({ rw, oracle }) => {
    const data = randomArray(`${label} x`, 'f32', m * k);
    const quantized = quantizedWeight(kind, n, k);
    const weight = placeQuantized(rw, kind, quantized.bytes, [n, k]);
    const x = place(rw, data, 'f32', [m, k]);
    const out = rw.allocate('f32', [m, n]);
    return {
      call: () => rw.linear(x, weight, { out, activations }),
      out,
      inputs: [x, weight],
      bytes: quantized.bytes.length + m * (k + n) * 4,
      flops: 2 * m * n * k,
      async compare() {
        const columns = Array.from({ length: 16 }, (_, c) => Math.floor((c * (n - 1)) / 15));
        const all = await numbersOf(out);
        const got = Float64Array.from({ length: m * 16 }, (_, at) => all[(at >> 4) * n + columns[at & 15]!]!);
        const rows = oracle.tensor(joined(columns.map((c) => quantized.row(c))), { shape: [columns.length, k] });
        const want = oracle.linear(oracle.tensor(Float64Array.from(data), { shape: [m, k] }), rows);
        return { got, want: await numbersOf(want) };
      },
      ...(m === 1 && { question: { op: 'linear of blocks', kind, n, k, x: data, weight: quantized.bytes } }),
    };
  });
}

/** Multiplies one token by its experts; {@link quantizedLinearCase} reads as many bytes. */
function expertLinearCase(kind: BlockFormat, experts: number, chosen: number, n: number, k: number): BenchCase {
  const label = `expert_linear ${kind} 1x${n}x${k} experts=${chosen}/${experts}`;
  return operatorCase({ label, point: `experts ${kind}` }, ({ rw, oracle }) => {
    const data = randomArray(`${label} x`, 'f32', k);
    const quantized = quantizedWeight(kind, experts * n, k);
    const weight = placeQuantized(rw, kind, quantized.bytes, [experts, n, k]);
    const x = place(rw, data, 'f32', [1, k]);
    const ids = Int32Array.from({ length: chosen }, (_, s) => (s * 37 + 5) % experts);
    const indices = rw.upload(ids, { shape: [1, chosen] });
    const out = rw.allocate('f32', [1, chosen, n]);
    return {
      call: () => rw.expertLinear(x, weight, indices, { out }),
      out,
      inputs: [x, weight, indices],
      bytes: (quantized.bytes.length / experts) * chosen + (k + chosen * n) * 4,
      flops: 2 * chosen * n * k,
      async compare() {
        const all = await numbersOf(out);
        const places = Array.from({ length: 16 }, (_, c) => Math.floor((c * (chosen * n - 1)) / 15));
        const rows = places.map((at) => quantized.row(ids[Math.floor(at / n)]! * n + (at % n)));
        const matrix = oracle.tensor(joined(rows), { shape: [places.length, k] });
        const want = oracle.linear(oracle.tensor(Float64Array.from(data), { shape: [1, k] }), matrix);
        return { got: Float64Array.from(places, (at) => all[at]!), want: await numbersOf(want) };
      },
    };
  });
}

/** The sizes of causal attention. Queries are the last tokens: each sees its own key and those before it. */
export interface AttentionShape {
  readonly queries: number;
  readonly keys: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
}

interface AttentionSizes extends AttentionShape {
  /** The dtype of keys and values. Default: f32. */
  readonly stored?: 'f32' | 'f16' | 'bf16' | 'i8';
}

/** Makes numbers in [−1, 1]; i8 stores them times 127. */
function cacheData(seed: string, stored: 'f32' | 'f16' | 'bf16' | 'i8', length: number): ArrayOf[typeof stored] {
  return stored === 'i8'
    ? Int8Array.from(randomArray(seed, 'f32', length), (value) => Math.round(value * 127))
    : randomArray(seed, stored, length);
}

function attentionCase(options: AttentionSizes): BenchCase {
  const { queries, keys, heads, kvHeads, headDim, stored = 'f32' } = options;
  const past = keys - queries;
  const cached = stored === 'f32' ? '' : ` cache=${stored}`;
  const label = `attention f32 ${queries}x${keys} heads=${heads}/${kvHeads} d=${headDim}${cached}`;
  const point = `attention ${queries}x${keys}${cached}`;
  return operatorCase({ label, point, rate: 'GFLOP/s' }, ({ rw, oracle }) => {
    const queryData = randomArray(`${label} q`, 'f32', queries * heads * headDim);
    const keyData = cacheData(`${label} k`, stored, keys * kvHeads * headDim);
    const valueData = cacheData(`${label} v`, stored, keys * kvHeads * headDim);
    const scales = stored === 'i8' ? { kScale: 1 / 127, vScale: 1 / 127 } : {};
    const q = place(rw, queryData, 'f32', [queries, heads, headDim]);
    const k = place(rw, keyData, stored, [keys, kvHeads, headDim]);
    const v = place(rw, valueData, stored, [keys, kvHeads, headDim]);
    const out = rw.allocate('f32', [queries, heads, headDim]);
    const seen = queries * past + (queries * (queries + 1)) / 2;
    return {
      call: () => rw.selfAttention(q, k, v, { ...scales, out }),
      out,
      inputs: [q, k, v],
      bytes: 2 * queryData.byteLength + 2 * keyData.byteLength,
      flops: 4 * heads * headDim * seen, // q·k and weight·v, for the pairs that the causal mask leaves
      async compare() {
        const got: Float64Array[] = [];
        const want: Float64Array[] = [];
        for (const s of new Set([0, Math.floor(queries / 2), queries - 1])) {
          got.push(await numbersOf(out.slice(0, s, s + 1)));
          const query = await copyFor(oracle, q.slice(0, s, s + 1));
          const pastKeys = await copyFor(oracle, k.slice(0, 0, past + s + 1));
          const values = await copyFor(oracle, v.slice(0, 0, past + s + 1));
          want.push(await numbersOf(oracle.selfAttention(query, pastKeys, values, scales)));
        }
        return { got: joined(got), want: joined(want) };
      },
      ...(stored === 'f32' && {
        question: {
          ...{ op: 'attention', queries, keys, heads, kvHeads, headDim, q: queryData },
          ...{ keyData: keyData as Float32Array, valueData: valueData as Float32Array },
        },
      }),
    };
  });
}

/** Reads the numbers of a tensor in row-major order. */
function numbersOf(tensor: Tensor): Float64Array | Promise<Float64Array> {
  return tensor.readNumbers();
}

/** Copies a tensor into the memory of the reference. */
async function copyFor<D extends Dtype>(oracle: Ropewalk, tensor: Tensor<D>): Promise<Tensor<D>> {
  return place(oracle, await tensor.read(), tensor.dtype, tensor.shape);
}

/** Takes the first and the last row of a matrix: the reference is too slow for all rows. */
function outerRows<D extends FloatDtype>(tensor: Tensor<D>): Tensor<D> {
  const [rows, width] = tensor.shape as [number, number];
  if (rows < 2) return tensor;
  const [rowStride, step] = tensor.strides as [number, number];
  return new Tensor(tensor.storage, {
    shape: [2, width],
    strides: [rowStride * (rows - 1), step],
    offset: tensor.offset,
  });
}

function joined(parts: readonly ArrayLike<number>[]): Float64Array {
  const whole = new Float64Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function firstOf(tensor: Tensor<FloatDtype>): number {
  return tensor.storage.host?.[tensor.offset] ?? 0;
}
