/** Tests the calls of aclnn and flash-attn against torch's vectors on every backend, and their refusals. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Tensor, tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { callsPass } from '../../../test/support/calls.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import { cann, flashAttn } from '../src/index.js';

describe('golden', () => callsPass('cann', 'flash-attn'));

const rw = referenceRunner();
const ones = (...shape: number[]): Tensor<'f32'> =>
  f64Tensor(new Float64Array(shape.reduce((n, size) => n * size, 1)).fill(1), shape, 'f32') as Tensor<'f32'>;
const longs = (shape: readonly number[], ...values: number[]): Tensor<'i64'> =>
  tensorFrom(BigInt64Array.from(values, BigInt), { shape });

describe('sums of gradients', () => {
  test('many heads in bf16: the sum is f32, not a chain of bf16 sums', () => {
    // The sum is of 4096 ones, and bf16 cannot count past 256.
    const many = (...shape: number[]) =>
      f64Tensor(new Float64Array(shape.reduce((n, size) => n * size, 1)).fill(1), shape, 'bf16') as Tensor<'bf16'>;
    const table = zeros('bf16', [1, 1, 1, 2]);
    const { dcosOut } = cann.aclnnRotaryPositionEmbeddingGrad(
      rw,
      many(2, 4, 512, 2),
      table,
      table,
      many(2, 4, 512, 2),
      0,
    );
    assert.deepEqual([...floats(dcosOut!)], [4096, 4096]);
  });

  test('without x there are no gradients of the tables', () => {
    const { dcosOut, dsinOut } = cann.aclnnRotaryPositionEmbeddingGrad(
      rw,
      ones(2, 1, 4),
      ones(2, 1, 4),
      ones(2, 1, 4),
      null,
      0,
    );
    assert.deepEqual([dcosOut, dsinOut], [undefined, undefined]);
  });
});

/** Checks that a call is refused and leaves every tensor as it was. */
interface Refusal {
  readonly name: string;
  readonly call: () => unknown;
  readonly code: string;
  readonly message: RegExp;
}
const refusal = (name: string, call: () => unknown, code: string, message: RegExp): Refusal => ({
  name,
  call,
  code,
  message,
});

const [q, k, table] = [ones(1, 2, 3, 4), ones(1, 2, 1, 4), ones(1, 2, 1, 4)];
const apply = (change: Partial<Record<'q' | 'k' | 'cos' | 'sin', unknown>>, layout: unknown = 1) => {
  const given = { q, k, cos: table, sin: ones(1, 2, 1, 4), ...change } as Record<string, Tensor<'f32'>>;
  return () => cann.aclnnApplyRotaryPosEmb(rw, given.q!, given.k!, given.cos!, given.sin!, layout as number);
};
const x = ones(1, 2, 1, 8);
const half = f64Tensor(new Float64Array(16).fill(1), [1, 2, 1, 8], 'f16') as Tensor<'f16'>;
const partial =
  (slice: unknown, width = 4, mode: unknown = 1) =>
  () =>
    cann.aclnnInplacePartialRotaryMul(
      rw,
      x,
      ones(1, 2, 1, width),
      ones(1, 2, 1, width),
      mode as number,
      slice as number[],
    );
const cached = {
  positions: longs([2], 0, 1),
  queryIn: ones(2, 128),
  keyIn: ones(2, 64),
  cosSinCache: ones(4, 64),
  headSize: 64,
  isNeoxStyle: true,
};
const byCache = (change: object) => () => cann.aclnnRopeWithSinCosCache(rw, { ...cached, ...change } as never);
const byCacheV2 = (change: object) => () =>
  cann.aclnnRopeWithSinCosCacheV2(rw, { ...cached, cacheMode: 0, ...change } as never);
const three = { positions: longs([3, 2], 0, 1, 2, 3, 0, 1) };
const packed = { x: ones(5, 2, 8), cos: ones(4, 4), sin: ones(4, 4) };
const starts = (...values: number[]) => tensorFrom(Int32Array.from(values));
const rotary = (change: object) => () =>
  flashAttn.applyRotary(rw, packed.x, packed.cos, packed.sin, {
    cu_seqlens: starts(0, 3, 5),
    max_seqlen: 3,
    ...change,
  } as never);
const gradients = (change: object) => () =>
  cann.aclnnApplyRotaryPosEmbGrad(rw, {
    gradQueryEmbed: q,
    gradKeyEmbed: k,
    cos: table,
    sin: table,
    layout: 1,
    ...change,
  } as never);

const halves = (...shape: number[]): Tensor<'f16'> =>
  f64Tensor(new Float64Array(shape.reduce((n, size) => n * size, 1)).fill(1), shape, 'f16') as Tensor<'f16'>;
const kept = { k: halves(3, 4, 1, 16), c: halves(3, 4, 1, 32) };
const stored = {
  kv: halves(1, 1, 2, 48),
  gamma: halves(32),
  cos: halves(1, 1, 2, 16),
  sin: halves(1, 1, 2, 16),
  index: longs([2], 3, 5),
  kCacheRef: kept.k,
  ckvCacheRef: kept.c,
  epsilon: 1e-5,
  cacheModeOptional: 'PA',
};
const store = (change: object) => () => cann.aclnnKvRmsNormRopeCache(rw, { ...stored, ...change } as never);
const storeV2 = (change: object) => () => cann.aclnnKvRmsNormRopeCacheV2(rw, { ...stored, ...change } as never);

const REFUSALS: readonly Refusal[] = [
  refusal(
    'a mode of no cache',
    store({ cacheModeOptional: 'PA_ND' }),
    'UNSUPPORTED',
    /^aclnnKvRmsNormRopeCache: cacheModeOptional: expected Norm, PA, PA_BNSD, PA_NZ, PA_BLK_BNSD or PA_BLK_NZ, got "PA_ND"/,
  ),
  refusal('kv in f32', store({ kv: ones(1, 1, 2, 48) }), 'DTYPE', /kv: expected dtype f16 or bf16, got "f32"/),
  refusal(
    'kv of two heads',
    store({ kv: halves(1, 2, 2, 48) }),
    'SHAPE',
    /kv: expected \[B, 1, S, Dv \+ Dk\], not empty, got \[1, 2, 2, 48\]/,
  ),
  refusal('gamma of the whole row', store({ gamma: halves(48) }), 'SHAPE', /gamma: expected shape \[32\], got \[48\]/),
  refusal(
    'tables as wide as the row',
    store({ cos: halves(1, 1, 2, 48) }),
    'SHAPE',
    /cos: expected \[B, 1, S, Dk\] or \[B, 1, 1, Dk\] of \[1,1,2\], Dk at most 47/,
  ),
  refusal(
    'caches of other widths',
    store({ kCacheRef: halves(3, 4, 1, 32) }),
    'SHAPE',
    /kCacheRef: expected \[BlockNum, BlockSize, N, d\] with N=1 and d=16 in cacheModeOptional PA, got \[3, 4, 1, 32\]/,
  ),
  refusal(
    'caches of different blocks',
    store({ ckvCacheRef: halves(4, 4, 1, 32) }),
    'SHAPE',
    /ckvCacheRef: expected shape \[3,4,1,32\], got \[4, 4, 1, 32\]/,
  ),
  refusal(
    'a cache of no blocks',
    store({ kCacheRef: halves(0, 4, 1, 16) }),
    'SHAPE',
    /kCacheRef: expected a cache that is not empty, got \[0, 4, 1, 16\]/,
  ),
  refusal(
    'a bf16 cache beside f16',
    store({ kCacheRef: zeros('bf16', [3, 4, 1, 16]) }),
    'DTYPE',
    /kCacheRef: expected kv's dtype f16, as there is no kRopeScaleOptional, got "bf16"/,
  ),
  refusal(
    'an int8 cache without a scale',
    store({ kCacheRef: zeros('i8', [3, 4, 1, 16]) }),
    'DTYPE',
    /kCacheRef: expected kv's dtype f16, as there is no kRopeScaleOptional, got "i8"/,
  ),
  refusal(
    'a scale beside a float cache',
    store({ kRopeScaleOptional: ones(16) }),
    'DTYPE',
    /kCacheRef: expected i8, f8_e4m3 or f8_e5m2, as there is a kRopeScaleOptional, got "f16"/,
  ),
  refusal(
    'an offset without a scale',
    store({ cKvOffsetOptional: ones(32) }),
    'SHAPE',
    /cKvScaleOptional: expected a scale beside cKvOffsetOptional, got none/,
  ),
  refusal(
    'a cache in blocks, in Norm',
    store({ cacheModeOptional: 'Norm', index: longs([1, 2], 0, 1) }),
    'SHAPE',
    /kCacheRef: expected \[B, N, Scache, d\] with N=1 and d=16 in cacheModeOptional Norm, got \[3, 4, 1, 16\]/,
  ),
  ...[Number.NaN, Infinity, 1e38].map((value) =>
    refusal(
      `an offset of ${value}`,
      store({
        ckvCacheRef: zeros('i8', [3, 4, 1, 32]),
        cKvScaleOptional: tensorFrom(Float32Array.of(0.1)),
        cKvOffsetOptional: tensorFrom(Float32Array.of(value)),
      }),
      'RANGE',
      /cKvOffsetOptional\[0\]: expected a number whose quotient by the scale is finite in f32, got/,
    ),
  ),
  refusal(
    'a misspelt argument',
    store({ kRopeOffsetOptinal: ones(16) }),
    'RANGE',
    /aclnnKvRmsNormRopeCache: arguments: there is no "kRopeOffsetOptinal"\. Did you mean kRopeOffsetOptional\?/,
  ),
  refusal('v in V1', store({ vOptional: halves(1, 1, 2, 32) }), 'RANGE', /there is no "vOptional"/),
  refusal('cacheMode in V1', byCache({ cacheMode: 1 }), 'RANGE', /there is no "cacheMode"/),
  refusal('mode by its V2 name', gradients({ rotaryMode: 'half' }), 'RANGE', /there is no "rotaryMode"/),
  refusal(
    'an output without isOutputKv',
    store({ kRopeOut: halves(1, 1, 2, 16) }),
    'UNSUPPORTED',
    /kRopeOut: it is written with isOutputKv: true only/,
  ),
  refusal(
    'an output of another width',
    store({ isOutputKv: true, cKvOut: halves(1, 1, 2, 16) }),
    'SHAPE',
    /cKvOut: expected shape \[1,1,2,32\], got \[1, 1, 2, 16\]/,
  ),
  refusal(
    'an output over a cache',
    store({ isOutputKv: true, kRopeOut: kept.k.slice(0, 0, 1).slice(1, 0, 2).permute([0, 2, 1, 3]) }),
    'ALIAS',
    /kRopeOut: it shares some of its memory with kCacheRef/,
  ),
  refusal(
    'axes of positions without mropeSection',
    byCache({ positions: three.positions }),
    'SHAPE',
    /mropeSection: expected a list of pairs for each axis beside positions of two dimensions, got none/,
  ),
  refusal(
    'an empty x',
    () => cann.aclnnRotaryPositionEmbedding(rw, ones(0, 1, 4), ones(0, 1, 4), ones(0, 1, 4), 0),
    'SHAPE',
    /x: expected four dimensions: BSND, BNSD or SBND; or three: TND; none of them 0, got \[0, 1, 4\]/,
  ),
  refusal(
    'a scale of another width',
    store({ ckvCacheRef: zeros('i8', [3, 4, 1, 32]), cKvScaleOptional: ones(16) }),
    'SHAPE',
    /cKvScaleOptional: expected shape \[32\], got \[16\]/,
  ),
  refusal(
    'a scale of 0',
    store({ ckvCacheRef: zeros('i8', [3, 4, 1, 32]), cKvScaleOptional: zeros('f32', [1]) }),
    'RANGE',
    /cKvScaleOptional\[0\]: expected a number in \[2\^-64, 2\^64\], got 0/,
  ),
  refusal(
    'an index past the blocks',
    store({ index: longs([2], 0, 12) }),
    'RANGE',
    /index\[1\]: expected an integer in \[-1, 12\), got 12/,
  ),
  refusal(
    'an index of -2',
    store({ index: longs([2], 0, -2) }),
    'RANGE',
    /index\[1\]: expected an integer in \[-1, 12\), got -2/,
  ),
  refusal('an index given twice', store({ index: longs([2], 7, 7) }), 'RANGE', /index\[1\]: place 7 is given twice/),
  refusal(
    'an index for each token where blocks are named',
    store({ cacheModeOptional: 'PA_BLK_BNSD' }),
    'SHAPE',
    /index: expected shape \[1\], got \[2\]/,
  ),
  refusal(
    'pieces that do not divide a head',
    store({ cacheModeOptional: 'PA_NZ', kv: halves(1, 1, 2, 40), gamma: halves(24), ckvCacheRef: halves(3, 4, 1, 24) }),
    'SHAPE',
    /ckvCacheRef: expected \[BlockNum, BlockSize, 1, a multiple of 16\] in an NZ mode/,
  ),
  refusal(
    'a cache over kv',
    store({
      kCacheRef: stored.kv.view([1, 2, 1, 48]).slice(3, 0, 16),
      ckvCacheRef: halves(1, 2, 1, 32),
      index: longs([2], 0, 1),
    }),
    'ALIAS',
    /kCacheRef: it shares some of its memory with kv/,
  ),
  refusal(
    'one cache for both',
    store({ kv: halves(1, 1, 2, 64), cos: halves(1, 1, 2, 32), sin: halves(1, 1, 2, 32), kCacheRef: kept.c }),
    'ALIAS',
    /kCacheRef: it shares all of its memory with ckvCacheRef/,
  ),
  refusal('a negative epsilon', store({ epsilon: -1 }), 'RANGE', /epsilon: expected a finite number >= 0, got -1/),
  refusal(
    'v of other tokens',
    storeV2({ vOptional: halves(1, 1, 3, 32), gamma: halves(48), kCacheRef: halves(3, 4, 1, 48) }),
    'SHAPE',
    /^aclnnKvRmsNormRopeCacheV2: vOptional: expected shape \[1,1,2,32\], got \[1, 1, 3, 32\]/,
  ),
  refusal(
    'TND with tables of one head too many',
    () => cann.aclnnRotaryPositionEmbedding(rw, ones(2, 3, 4), ones(2, 2, 4), ones(2, 2, 4), 0),
    'SHAPE',
    /^aclnnRotaryPositionEmbedding: cos: expected \[T, 1, D\] = \[2,1,4\] or \[T, N, D\] = \[2,3,4\] beside TND, got \[2, 2, 4\]/,
  ),
  refusal(
    'x of two dimensions',
    () => cann.aclnnRotaryPositionEmbedding(rw, ones(2, 4), ones(2, 4), ones(2, 4), 0),
    'SHAPE',
    /^aclnnRotaryPositionEmbedding: x: expected four dimensions: BSND, BNSD or SBND; or three: TND/,
  ),
  refusal(
    'x in f64',
    () => cann.aclnnRotaryPositionEmbedding(rw, zeros('f64', [1, 1, 4]) as never, ones(1, 1, 4), ones(1, 1, 4), 0),
    'DTYPE',
    /x: expected dtype f32, f16 or bf16, got "f64"/,
  ),
  refusal(
    'xOptional of another shape',
    () => cann.aclnnRotaryPositionEmbeddingGrad(rw, ones(2, 3, 4), ones(2, 1, 4), ones(2, 1, 4), ones(2, 2, 4), 0),
    'SHAPE',
    /^aclnnRotaryPositionEmbeddingGrad: xOptional: expected shape \[2,3,4\], got \[2, 2, 4\]/,
  ),
  refusal(
    'V1 in SBND',
    apply({}, 2),
    'UNSUPPORTED',
    /layout: expected 1 \(BSND\) or 4 \(TND\), got 2\. aclnnApplyRotaryPosEmbV2 takes 2/,
  ),
  refusal(
    'three dimensions in BSND',
    apply({ q: ones(2, 3, 4) }),
    'SHAPE',
    /queryRef: expected 4 dimensions, BSND, none of them 0/,
  ),
  refusal(
    'no token',
    apply({ q: ones(1, 0, 3, 4) }),
    'SHAPE',
    /queryRef: expected 4 dimensions, BSND, none of them 0, got \[1, 0, 3, 4\]/,
  ),
  refusal(
    'key of other tokens',
    apply({ k: ones(1, 3, 1, 4) }),
    'SHAPE',
    /keyRef: expected shape \[1,2,1,4\], got \[1, 3, 1, 4\]/,
  ),
  refusal(
    'key in TND',
    apply({ k: ones(2, 1, 4) }),
    'SHAPE',
    /keyRef: expected queryRef's shape \[1,2,3,4\] with any N but 0/,
  ),
  refusal(
    'tables of all heads',
    apply({ cos: ones(1, 2, 3, 4) }),
    'SHAPE',
    /cos: expected shape \[1,2,1,4\], got \[1, 2, 3, 4\]/,
  ),
  refusal('sin of another shape', apply({ sin: ones(1, 1, 1, 4) }), 'SHAPE', /sin: expected shape \[1,2,1,4\]/),
  refusal(
    'key in another dtype',
    apply({ k: zeros('f16', [1, 2, 1, 4]) }),
    'DTYPE',
    /keyRef: expected dtype f32, got "f16"/,
  ),
  refusal(
    'key over query',
    apply({ k: q.slice(2, 0, 1) }),
    'ALIAS',
    /queryRef: it shares some of its memory with keyRef\. Give it memory of its own\./,
  ),
  refusal('key over cos', apply({ k: table }), 'ALIAS', /keyRef: it shares all of its memory with cos/),
  refusal(
    'a mode by number',
    () => cann.aclnnApplyRotaryPosEmbV2(rw, q, k, table, ones(1, 2, 1, 4), 1, 0 as never),
    'UNSUPPORTED',
    /^aclnnApplyRotaryPosEmbV2: rotaryMode: expected half, interleave or quarter, got 0/,
  ),
  refusal(
    'gradients in BNSD',
    gradients({ layout: 3 }),
    'UNSUPPORTED',
    /^aclnnApplyRotaryPosEmbGrad: layout: expected 1 \(BSND\), 2 \(SBND\) or 4/,
  ),
  refusal(
    'query without key',
    gradients({ queryOptional: q }),
    'SHAPE',
    /keyOptional: expected query and key, or neither, got none/,
  ),
  refusal(
    'gradients of interleave',
    gradients({ rotaryModeOptional: 'interleave' }),
    'UNSUPPORTED',
    /rotaryModeOptional: expected half, got "interleave"/,
  ),
  refusal(
    'half mode in a slice',
    partial([0, 4], 4, 0),
    'UNSUPPORTED',
    /rotary_mode: expected 1 \(interleave\), got 0/,
  ),
  refusal(
    'a slice past D',
    partial([6, 10]),
    'RANGE',
    /partialSlice\[1\]: expected an integer in \[6, D = 8\], got 10/,
  ),
  refusal('a slice of three', partial([2, 5], 3), 'RANGE', /partialSlice: expected an even length, got \[2, 5\]/),
  refusal('a slice of one number', partial([2]), 'SHAPE', /partialSlice: expected \[start, end\], got \[2\]/),
  refusal(
    'tables as wide as D',
    partial([4, 8], 8),
    'SHAPE',
    /cos: expected each dimension 1 or that of \[1,2,1,4\], and the last one 4/,
  ),
  refusal(
    'bf16 tables beside f16',
    () => {
      const bf16 = zeros('bf16', [1, 2, 1, 8]) as never;
      cann.aclnnInplacePartialRotaryMul(rw, half, bf16, bf16, 1);
    },
    'DTYPE',
    /cos: expected dtype f16 or f32, got "bf16"/,
  ),
  refusal(
    'x over its table',
    () => cann.aclnnInplacePartialRotaryMul(rw, x, x, ones(1, 2, 1, 8), 1),
    'ALIAS',
    /xRef: it shares all of its memory with cos/,
  ),
  refusal(
    'a position past the cache',
    byCache({ positions: longs([2], 0, 4) }),
    'RANGE',
    /^aclnnRopeWithSinCosCache: positions\[1\]: expected a row of cosSinCache, in \[0, 3\], got 4/,
  ),
  refusal(
    'i32 positions',
    byCache({ positions: tensorFrom(Int32Array.of(0, 1)) }),
    'DTYPE',
    /positions: expected dtype i64, got "i32"/,
  ),
  refusal(
    'M-RoPE with positions of one axis',
    byCache({ mropeSection: [8, 12, 12] }),
    'SHAPE',
    /positions: expected shape \[3,2\], got \[2\]/,
  ),
  refusal(
    'sections that no device takes',
    byCache({ ...three, mropeSection: [10, 11, 11] }),
    'UNSUPPORTED',
    /mropeSection: expected \[16,24,24\], \[24,20,20\], \[8,12,12\] or \[16,16,16,16\], got \[10, 11, 11\]/,
  ),
  refusal(
    'V2’s sections in V1',
    byCache({ ...three, mropeSection: [11, 11, 10] }),
    'UNSUPPORTED',
    /mropeSection: expected \[16,24,24\]/,
  ),
  refusal(
    'sections of another rotaryDim',
    byCache({ ...three, mropeSection: [16, 24, 24] }),
    'SHAPE',
    /mropeSection: expected rotaryDim \/ 2 = 32 pairs in all/,
  ),
  refusal(
    'four axes in turn',
    byCacheV2({ mropeSection: [16, 16, 16, 16], cacheMode: 1 }),
    'UNSUPPORTED',
    /mropeSection: expected three axes with cacheMode 1/,
  ),
  refusal(
    'cacheMode 2',
    byCacheV2({ cacheMode: 2 }),
    'UNSUPPORTED',
    /cacheMode: expected 0 \(in runs\) or 1 \(in turn\), got 2/,
  ),
  refusal(
    'a cache wider than a head',
    byCache({ headSize: 32 }),
    'SHAPE',
    /cosSinCache: expected an even rotaryDim in \[2, headSize=32\], got \[4, 64\]/,
  ),
  refusal(
    'part of a head',
    byCache({ keyIn: ones(2, 96) }),
    'SHAPE',
    /keyIn: expected \[numTokens, heads · headSize\] with numTokens=2 and headSize=64, not empty, got \[2, 96\]/,
  ),
  refusal(
    'keyOut over queryIn',
    byCache({ keyOut: cached.queryIn.slice(1, 0, 64) }),
    'ALIAS',
    /keyOut: it shares some of its memory with queryIn/,
  ),
  refusal(
    'sequences that do not fill x',
    rotary({ cu_seqlens: starts(0, 3, 4) }),
    'RANGE',
    /^apply_rotary: cu_seqlens\[2\]: expected total_seqlen = 5, got 4/,
  ),
  refusal(
    'starts that fall',
    rotary({ cu_seqlens: starts(0, 3, 2, 5) }),
    'RANGE',
    /cu_seqlens\[2\]: expected an integer >= 3, got 2/,
  ),
  refusal(
    'no max_seqlen',
    rotary({ max_seqlen: undefined }),
    'RANGE',
    /max_seqlen: expected an integer >= 3, got none/,
  ),
  refusal(
    'tables too short',
    rotary({ cu_seqlens: starts(0, 5), max_seqlen: 5 }),
    'SHAPE',
    /cos: expected at least 5 rows, the longest sequence, got 4/,
  ),
  refusal(
    'one offset past the tables',
    rotary({ seqlen_offsets: 2 }),
    'RANGE',
    /seqlen_offsets: expected an integer in .*seqlen_ro - the longest sequence = 1\], got 2/,
  ),
  refusal(
    'offsets of three sequences',
    rotary({ seqlen_offsets: starts(0, 0, 0) }),
    'SHAPE',
    /seqlen_offsets: expected \[batch\] = \[2\], got \[3\]/,
  ),
];

describe('refusals', () => {
  const memory = [q, k, table, x, half, packed.x, packed.cos, cached.queryIn, cached.keyIn, kept.k, kept.c];
  for (const { name, call, code, message } of REFUSALS) {
    test(name, () => {
      const before = memory.map((tensor) => floats(tensor));
      assert.throws(call, { code, message });
      assert.deepEqual(
        memory.map((tensor) => floats(tensor)),
        before,
      );
    });
  }
});

test('aclnnKvRmsNormRopeCache: an offset is added to each value by itself; outputs that are given are written', async () => {
  const kv = f64Tensor(Float64Array.of(3, 4, Infinity, 0, 1, 2), [1, 1, 1, 6], 'f16') as Tensor<'f16'>;
  const [kRopeOut, kCacheRef] = [zeros('f16', [1, 1, 1, 4]), zeros('i8', [1, 1, 1, 4])];
  const one = (n: number) => f64Tensor(new Float64Array(n).fill(1), [1, 1, 1, n], 'f16') as Tensor<'f16'>;
  const given = {
    kv,
    gamma: one(2).view([2]),
    cos: one(4),
    sin: zeros('f16', [1, 1, 1, 4]),
    index: longs([1, 1], 0),
    kCacheRef,
    ckvCacheRef: zeros('f16', [1, 1, 1, 2]),
    kRopeScaleOptional: tensorFrom<'f32'>(Float32Array.of(10, 10, 10, 10)),
    kRopeOffsetOptional: tensorFrom<'f32'>(Float32Array.of(1, 2, 3, 4)),
    epsilon: 0,
    isOutputKv: true,
    kRopeOut,
  };
  const returned = cann.aclnnKvRmsNormRopeCache(rw, given);
  // Pairs (inf, 0) and (1, 2) are read; their first elements are written to 0 and 1, their second ones to 2 and 3.
  assert.equal(returned.kRopeOut, kRopeOut);
  const [first, second, , fourth] = floats(kRopeOut);
  assert.deepEqual([first, second, fourth], [Infinity, 1, 2]);
  const kept = (await kCacheRef.read()) as Int8Array;
  assert.deepEqual([kept[0], kept[1], kept[3]], [127, 12, 24]);
});
