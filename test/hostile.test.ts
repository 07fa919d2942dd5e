/**
 * Calls every public function with hostile values in each argument. It must throw a RopewalkError or return a result
 * without NaN.
 *
 * The test imports every entry of package.json, so a new function without a row here fails.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import * as aicore from '@ropewalk/ascend';
import { AscendC, LocalTensor, TBuf, TPipe, TQue } from '@ropewalk/ascend/internal';
import * as checkpoint from '@ropewalk/checkpoint';
import * as checkpointNode from '@ropewalk/checkpoint/node';
import * as devices from '@ropewalk/devices';
import * as diagnosing from '@ropewalk/diagnose';
import * as dialects from '@ropewalk/dialects';
import * as formats from '@ropewalk/formats';
import * as formatsNode from '@ropewalk/formats/node';
import { describeModel, planModel } from '@ropewalk/model/internal';
import * as modelOnnx from '@ropewalk/model-onnx';
import * as modelOnnxNode from '@ropewalk/model-onnx/node';
import * as onnxPackage from '@ropewalk/onnx';
import * as oracle from '@ropewalk/oracle';
import * as oracleNode from '@ropewalk/oracle/node';
import * as main from 'ropewalk';
import { Ropewalk, type Runner, Tensor, tensorFrom } from 'ropewalk';
import * as contract from 'ropewalk/backend';
import * as shared from 'ropewalk/internal';
import * as reference from 'ropewalk/reference';
import { ENTRIES as PACKAGE_ENTRIES } from './support/build.js';
import { complaint, hostileCalls, misspeltCalls } from './support/hostile.js';
import { noOnnxruntime } from './support/onnxruntime.js';
import { tinyModel } from './support/tiny-model.js';

const { cann, ggml, gguf, huggingface, infiniop, infiniop2025, llaisys, onnx } = dialects;

/** This type is declared here, because TypeScript's ES2022 has no resizable buffers. */
type Resizable = ArrayBuffer & { resize(byteLength: number): void };
/** Makes the arguments of a valid call. */
type Row = () => readonly unknown[];
/** A row for each function of an entry. A class has a row for its constructor. */
type Rows = Readonly<Record<string, Row>>;

/** Turns off stack traces in these tests, because they would take most of the time. Other tests keep them. */
function withoutStacks(): void {
  const { stackTraceLimit } = Error;
  before(() => {
    Error.stackTraceLimit = 0;
  });
  after(() => {
    Error.stackTraceLimit = stackTraceLimit;
  });
}

const spec = { headDim: 4, pairing: 'half', base: 10000 };
const yarn = {
  kind: 'yarn',
  factor: 4,
  originalContext: 64,
  betaFast: 32,
  betaSlow: 1,
  extFactor: 1,
  attnFactor: 1,
  mscale: 1,
  mscaleAllDim: 1,
};
const SCALINGS: readonly object[] = [
  { kind: 'linear', factor: 2 },
  { kind: 'dynamicNtk', factor: 2, originalContext: 64, context: 128 },
  { ...yarn, truncate: false },
  { kind: 'longrope', shortFactor: [1, 1], longFactor: [2, 3], originalContext: 64, context: 128, factor: 2 },
  { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 64 },
  { kind: 'proportional', rotatedPairs: 1, factor: 2 },
];
const ones = (...shape: number[]): Tensor<'f32'> => {
  const size = shape.reduce((a, b) => a * b, 1);
  return tensorFrom(
    Float32Array.from({ length: size }, (_, i) => 1 + i / 8),
    { shape },
  );
};
const cache = (...shape: number[]): Tensor<'i8'> => main.zeros('i8', shape);
const ids = (...values: number[]): Tensor<'i32'> => tensorFrom(Int32Array.from(values));
const table = () => ({ rows: 2, pairs: 2, cos: new Float32Array(4), sin: new Float32Array(4) });
const plan = () => main.planRope({ ...spec, pairing: 'half', positions: [0, 1] });
const blocks = () => main.blocksFrom('q8_0', new Uint8Array(34), [1, 32]);

const backend = await main.openBackend('reference');
/** Error classes handle their arguments as JavaScript does. */
const NO_ROW = new Set<unknown>([main.RopewalkError]);

/** Makes the experts of two tokens, or an output for them. */
const GATES = () => ({ decay: ones(2, 1), rate: ones(1), bias: ones(1), beta: ones(2, 1) });
const STEPS = () => ({ dt: ones(2, 1), rate: ones(1), bias: ones(1) });
const experts = () => tensorFrom<'i32'>(Int32Array.of(0, 3, 1, 2), { shape: [2, 2] });
const ROUTE = {
  gate: 'sigmoid',
  bias: ones(4),
  groups: { count: 2, used: 1, best: 2 },
  normalize: true,
  scale: 2,
} as const;

const MAIN: Rows = {
  Tensor: () => [ones(2, 2).storage, { shape: [2, 2], strides: [2, 1], offset: 0 }],
  Ropewalk: () => [Object.freeze({ ...backend })],
  tensorFrom: () => [new Float32Array(4), { dtype: 'f32', shape: [2, 2], strides: [2, 1], offset: 0 }],
  zeros: () => ['f32', [2, 2]],
  isDtype: () => ['f32'],
  isFloat: () => ['f32'],
  isFloat8: () => ['f32'],
  sizeBytes: () => ['f32'],
  roundTo: () => ['f16', 1],
  f16FromNumber: () => [1],
  bf16FromNumber: () => [1],
  numberFromF16: () => [1],
  numberFromBf16: () => [1],
  blocksFrom: () => ['q8_0', new Uint8Array(34), [1, 32]],
  isBlocks: () => [blocks()],
  planAdd: () => [ones(2), ones(2), ones(2)],
  planSwiglu: () => [ones(2), ones(2), ones(2), { limit: 7, alpha: 1.702, offset: 1 }],
  planArgmax: () => [ones(2), tensorFrom(new BigInt64Array(1)), ones(1)],
  planCausalConv: () => [ones(2, 3), ones(3, 4), ones(3, 3), ones(2, 3), { bias: ones(3) }],
  planGatedDelta: () => [
    ones(2, 1, 4),
    ones(2, 1, 4),
    ones(2, 1, 3),
    GATES(),
    ones(1, 4, 3),
    ones(2, 1, 3),
    { eps: 1e-6 },
  ],
  planSsmScan: () => [
    ones(2, 1, 3),
    ones(2, 1, 4),
    ones(2, 1, 4),
    STEPS(),
    ones(1, 4, 3),
    ones(2, 1, 3),
    { skip: ones(1), limits: [0, 1] },
  ],
  planEmbedding: () => [ids(0, 1), ones(2, 3), ones(2, 3)],
  planExpertLinear: () => [
    ones(2, 3),
    ones(4, 5, 3),
    experts(),
    ones(2, 5),
    { bias: ones(4, 5), weights: ones(2, 2), activations: 'f32' },
  ],
  planLinear: () => [ones(2, 3), ones(4, 3), ones(2, 4), { bias: ones(4), activations: 'f32' }],
  planRearrange: () => [ones(2), ones(2)],
  planRmsNorm: () => [ones(2, 3), ones(3), ones(2, 3), { eps: 1e-5 }],
  planRoute: () => [ones(2, 4), experts(), ones(2, 2), ROUTE],
  planGeglu: () => [ones(2), ones(2), ones(2), { approximate: 'tanh' }],
  planXielu: () => [ones(2), ones(2), { positive: 1, negative: 1, beta: 1 }],
  planGelu: () => [ones(2), ones(2), { approximate: 'tanh' }],
  planLayerNorm: () => [ones(2, 3), ones(3), ones(2, 3), { bias: ones(3), eps: 1e-5 }],
  planScale: () => [ones(2, 3), ones(2), ones(2, 3), { softcap: 5 }],
  planSelfAttention: () => [
    ones(2, 1, 2),
    cache(3, 2, 1, 2),
    cache(3, 2, 1, 2),
    ones(2, 1, 2),
    {
      ...{ scale: 1, causal: true, window: 2, softcap: 5, sinks: ones(1), kScale: 0.5, vScale: [0.5, 2] },
      paged: { blockTable: tensorFrom(Int32Array.of(2, 1), { shape: [1, 2] }), lengths: [3] },
    },
  ],
  planRope: () => [
    { ...full(), positions: [0, 1, 0, 1, 0, 1], seqLen: 2, direction: 'forward', recipe: 'float64', tableDtype: 'f64' },
  ],
  planRopeWithTable: () => [
    {
      headDim: 4,
      pairing: 'half',
      rotaryDim: 4,
      rotaryOffset: 0,
      direction: 'backward',
      table: table(),
      seqLen: 2,
      batch: 1,
      tableRows: [0, 1],
    },
  ],
  tableFromTensors: () => [ones(2, 2), ones(2, 2), 'rope'],
  frequenciesOf: () => [full()],
  ropeFrequencies: () => [
    {
      rotaryDim: 4,
      base: 10000,
      frequencyDim: 4,
      scaling: { ...yarn },
      freqFactors: [1, 2],
      attentionFactor: 1,
      exponents: [0, 1],
    },
    'rope',
  ],
  bindRope: () => [plan(), ones(2, 1, 4), ones(2, 1, 4), 'bsnh'],
  bindRopeParts: () => [
    plan(),
    [
      { x: ones(2, 1, 4), out: ones(8, 1, 4), rows: [3, 4], norm: { weight: ones(4), eps: 1e-6 } },
      { x: ones(2, 1, 4), out: ones(8, 1, 4), rows: 2, rotate: true },
      { x: ones(2, 1, 4), out: cache(4, 2, 1, 4), slots: [3, -1], rotate: false, scale: [0.5] },
    ],
    'bsnh',
  ],
  openBackend: () => ['reference', { threads: 1 }],
  openCpu: () => [{ threads: 1, memoryLimit: 2 ** 24, simd: 'auto' }, reference.runReference],
  ropewalk: () => [{ backend: 'cpu', threads: 1, memoryLimit: 2 ** 24, simd: 'auto' }],
};

/**
 * The functions of `ropewalk/backend` and `ropewalk/internal` that get values directly from callers. The others get
 * values that a backend or a reader has checked.
 */
const BACKEND: Rows = {
  newArray: () => ['f32', 4],
  copyElements: () => [ones(2, 2), ones(2, 2)],
  hostOf: () => [ones(2), 'here'],
  readIntegers: () => [ids(1, 2), 'here'],
  checkShape: () => [[1, 2], 'here'],
  dtypeOfArray: () => [new Float32Array(1)],
};

function full() {
  return {
    ...spec,
    rotaryDim: 4,
    rotaryOffset: 0,
    frequencyDim: 4,
    axes: { rule: 'sections', sections: [1, 1, 0] },
    scaling: { ...yarn },
    freqFactors: [1, 2],
    attentionFactor: 1,
  };
}

/** Makes the rows of the runners in `ropewalk/reference` and in every Ropewalk, and of Ropewalk's other methods. */
const runnerRows = (rw: Runner): Rows => ({
  allocate: () => ['f32', [2, 2]],
  whyNot: () => [main.planAdd(ones(2), ones(2), ones(2))],
  run: () => [main.planAdd(ones(2), ones(2), rw.allocate('f32', [2]))],
  finish: () => [],
});
const ropewalkRows = (rw: Ropewalk): Rows => ({
  ...runnerRows(rw),
  capabilities: () => [],
  tensor: () => [new Float32Array(4), { dtype: 'f32', shape: [2, 2], strides: [2, 1], offset: 0 }],
  upload: () => [new Float32Array(4), { dtype: 'f32', shape: [2, 2], strides: [2, 1], offset: 0 }],
  uploadBlocks: MAIN.blocksFrom!,
  planRope: MAIN.planRope!,
  rope: () => [
    ones(2, 1, 4),
    [0, 1],
    { pairing: 'half', base: 10000, scaling: { kind: 'linear', factor: 2 }, out: ones(2, 1, 4), layout: 'bsnh' },
  ],
  ropeBackward: () => [ones(2, 1, 4), [0, 1], { pairing: 'half', base: 10000, out: ones(2, 1, 4), layout: 'bsnh' }],
  ropeParts: MAIN.bindRopeParts!,
  add: () => [ones(2), ones(2), { out: ones(2) }],
  causalConv: () => [ones(2, 3), ones(3, 4), ones(3, 3), { bias: ones(3), out: ones(2, 3) }],
  gatedDelta: () => [
    ones(2, 1, 4),
    ones(2, 1, 4),
    ones(2, 1, 3),
    GATES(),
    ones(1, 4, 3),
    { eps: 1e-6, out: ones(2, 1, 3) },
  ],
  ssmScan: () => [
    ones(2, 1, 3),
    ones(2, 1, 4),
    ones(2, 1, 4),
    STEPS(),
    ones(1, 4, 3),
    { skip: ones(1), limits: [0, 1], out: ones(2, 1, 3) },
  ],
  argmax: () => [ones(2), { index: tensorFrom(new BigInt64Array(1)), value: ones(1) }],
  embedding: () => [ids(0, 1), ones(2, 3), { out: ones(2, 3) }],
  expertLinear: () => [
    ones(2, 3),
    ones(4, 5, 3),
    experts(),
    { bias: ones(4, 5), weights: ones(2, 2), activations: 'f32', out: ones(2, 5) },
  ],
  linear: () => [ones(2, 3), ones(4, 3), { bias: ones(4), activations: 'f32', out: ones(2, 4) }],
  rmsNorm: () => [ones(2, 3), ones(3), { eps: 1e-5, out: ones(2, 3) }],
  selfAttention: () => [
    ones(2, 1, 2),
    ones(2, 1, 2),
    ones(2, 1, 2),
    { scale: 1, causal: true, window: 2, softcap: 5, sinks: ones(1), out: ones(2, 1, 2) },
  ],
  route: () => [ones(2, 4), { ...ROUTE, chosen: 2, indices: experts(), weights: ones(2, 2) }],
  swiglu: () => [ones(2), ones(2), { limit: 7, alpha: 1.702, offset: 1, out: ones(2) }],
  geglu: () => [ones(2), ones(2), { approximate: 'tanh', out: ones(2) }],
  xielu: () => [ones(2), { positive: 1, negative: 1, beta: 1, out: ones(2) }],
  gelu: () => [ones(2), { approximate: 'tanh', out: ones(2) }],
  layerNorm: () => [ones(2, 3), ones(3), { eps: 1e-5, bias: ones(3), out: ones(2, 3) }],
  scale: () => [ones(2, 3), 2, { softcap: 5, out: ones(2, 3) }],
  rearrange: () => [ones(2), { out: ones(2) }],
});
const TENSOR: Rows = {
  dispose: () => [],
  isContiguous: () => [],
  view: () => [[4, -1]],
  reshape: () => [[2, 2]],
  unsqueeze: () => [],
  permute: () => [[1, 0]],
  slice: () => [0, 0, 1],
  contiguous: () => [],
  read: () => [],
  readNumbers: () => [],
  toString: () => [],
};

const zeros = (...shape: number[]) => main.zeros('f32', shape);
const rw = await main.ropewalk({ backend: 'reference' });
const longs = (...values: number[]): Tensor<'i64'> => tensorFrom(BigInt64Array.from(values, BigInt));

const a = () => ggml.ggmlTensor('f32', new Float32Array(8).fill(1), { ne: [4, 1, 2] });
const b = (...positions: number[]) => ggml.ggmlTensor('i32', Int32Array.from(positions), { ne: [positions.length] });
const c = () => ggml.ggmlTensor('f32', Float32Array.of(1, 2), { ne: [2] });
const extras = () => ({ n_offs: 0, recipe: 'float64', tableDtype: 'f32' });
const ext: Row = () => [rw, a(), b(0, 1), c(), 4, 0, 64, 10000, 0.5, 1, 1, 32, 1, extras()];
const multi: Row = () => [
  rw,
  a(),
  b(0, 1, 0, 1, 0, 1, 0, 1),
  c(),
  4,
  [1, 1, 0, 0],
  8,
  64,
  10000,
  0.5,
  1,
  1,
  32,
  1,
  extras(),
];
const GGML: Rows = {
  ggmlTensor: () => ['f32', new Float32Array(8), { ne: [4, 2], nb: [4, 16, 32, 32], view_offs: 0 }],
  ggmlFromTensor: () => [ones(2, 2)],
  ggmlZeros: () => ['f32', [2, 2]],
  rope: () => [rw, a(), b(0, 1), 4, 0, extras()],
  ropeInplace: () => [rw, a(), b(0, 1), 4, 2, extras()],
  ropeExt: ext,
  ropeExtBack: ext,
  ropeExtInplace: ext,
  ropeMulti: multi,
  ropeMultiBack: multi,
  ropeMultiInplace: multi,
  ropePlanFromGgml: () => [
    {
      ne: [4, 1, 2, 1],
      n_dims: 4,
      mode: 8,
      sections: [1, 1, 0, 0],
      n_ctx_orig: 64,
      freq_base: 10000,
      freq_scale: 0.5,
      ext_factor: 1,
      attn_factor: 1,
      beta_fast: 32,
      beta_slow: 1,
      n_offs: 0,
      freq_factors: Float32Array.of(1, 2),
      positions: new Int32Array(8),
      direction: 'forward',
      recipe: 'ggml-f32',
      tableDtype: 'f32',
    },
  ],
};
const sinCosCache = () => ({
  positions: longs(0, 1, 0, 1, 1, 0).view([3, 2]),
  queryIn: ones(2, 64),
  keyIn: ones(2, 64),
  cosSinCache: ones(2, 64),
  mropeSection: [8, 12, 12],
  headSize: 64,
  isNeoxStyle: true,
  queryOut: ones(2, 64),
  keyOut: ones(2, 64),
});
const halves = (...shape: number[]) => main.zeros('f16', shape);
const kvCache = () => ({
  kv: halves(1, 1, 2, 4),
  gamma: halves(2),
  cos: halves(1, 1, 2, 2),
  sin: halves(1, 1, 2, 2),
  index: longs(1, 0),
  kCacheRef: halves(1, 2, 1, 2),
  ckvCacheRef: main.zeros('i8', [1, 2, 1, 2]),
  cKvScaleOptional: ones(2),
  cKvOffsetOptional: ones(2),
  epsilon: 1e-5,
  cacheModeOptional: 'PA',
  isOutputKv: true,
});
const CANN: Rows = {
  rope: () => [
    rw,
    {
      src0: ones(1, 2, 1, 4),
      pos: ids(0, 1),
      freq_factors: tensorFrom(Float32Array.of(1, 2)),
      n_dims: 4,
      mode: 0,
      n_ctx_orig: 64,
      freq_base: 10000,
      freq_scale: 0.5,
      ext_factor: 1,
      attn_factor: 1,
      beta_fast: 32,
      beta_slow: 1,
      sections: [0, 0, 0, 0],
      forward: true,
      dst: ones(1, 2, 1, 4),
    },
  ],
  aclnnRotaryPositionEmbedding: () => [rw, ones(1, 2, 1, 4), zeros(1, 2, 1, 4), zeros(1, 2, 1, 4), 0],
  aclnnRotaryPositionEmbeddingGrad: () => [rw, ones(2, 1, 4), zeros(2, 1, 4), zeros(2, 1, 4), ones(2, 1, 4), 0],
  aclnnApplyRotaryPosEmb: () => [rw, ones(2, 1, 4), ones(2, 2, 4), zeros(2, 1, 4), zeros(2, 1, 4), 4],
  aclnnApplyRotaryPosEmbV2: () => [rw, ones(2, 1, 4), ones(2, 2, 4), zeros(2, 1, 4), zeros(2, 1, 4), 4, 'half'],
  aclnnApplyRotaryPosEmbGrad: () => [
    rw,
    {
      gradQueryEmbed: ones(2, 1, 4),
      gradKeyEmbed: ones(2, 2, 4),
      cos: zeros(2, 1, 4),
      sin: zeros(2, 1, 4),
      queryOptional: ones(2, 1, 4),
      keyOptional: ones(2, 2, 4),
      rotaryModeOptional: 'half',
      layout: 4,
    },
  ],
  aclnnInplacePartialRotaryMul: () => [rw, ones(1, 2, 1, 4), zeros(1, 2, 1, 2), zeros(1, 2, 1, 2), 1, [2, 4]],
  aclnnInplacePartialRotaryMulGrad: () => [rw, ones(1, 2, 1, 4), zeros(1, 2, 1, 2), zeros(1, 2, 1, 2), 1, [2, 4]],
  aclnnKvRmsNormRopeCache: () => [rw, kvCache()],
  aclnnKvRmsNormRopeCacheV2: () => [
    rw,
    {
      ...kvCache(),
      gamma: halves(4),
      kCacheRef: halves(1, 2, 1, 4),
      cKvScaleOptional: ones(1, 2),
      cKvOffsetOptional: ones(1, 2),
      vOptional: halves(1, 1, 2, 2),
    },
  ],
  aclnnRopeWithSinCosCache: () => [rw, sinCosCache()],
  aclnnRopeWithSinCosCacheV2: () => [rw, { ...sinCosCache(), cacheMode: 0 }],
};
const FLASH_ATTN: Rows = {
  applyRotary: () => [
    rw,
    ones(3, 1, 4),
    zeros(2, 2),
    zeros(2, 2),
    {
      seqlen_offsets: ids(0, 1),
      cu_seqlens: ids(0, 2, 3),
      max_seqlen: 2,
      interleaved: false,
      inplace: false,
      conjugate: false,
    },
  ],
};
const rotary = () => ({
  X: ones(1, 1, 2, 4),
  cos_cache: ones(4, 2),
  sin_cache: ones(4, 2),
  position_ids: longs(0, 1).view([1, 2]),
});
const ONNX: Rows = {
  rotaryEmbedding: () => [rw, rotary(), { interleaved: 1, rotary_embedding_dim: 4, num_heads: 1 }],
  planRotaryEmbedding: () => [rotary(), { interleaved: 0, rotary_embedding_dim: 4, num_heads: 1 }, ones(1, 1, 2, 4)],
  contribRotaryEmbedding: () => [
    rw,
    { input: ones(1, 1, 2, 4), position_ids: longs(0, 1).view([1, 2]), cos_cache: ones(2, 2), sin_cache: ones(2, 2) },
    { interleaved: 1, rotary_embedding_dim: 4, num_heads: 1, scale: 1, is_packed_batching: 0 },
  ],
  mRotaryEmbedding: () => [
    rw,
    {
      input: ones(1, 1, 1, 4),
      position_ids: longs(0, 1, 1).view([3, 1, 1]),
      cos_cache: ones(2, 2),
      sin_cache: ones(2, 2),
    },
    { mrope_section: [1, 1, 0], mrope_layout: 0, num_heads: 1 },
  ],
  gemmaRotaryEmbedding: () => {
    const x = () => main.zeros('f16', [1, 1, 2, 4]);
    return [rw, { emb: ones(1, 2, 4), q: x(), q_rot: x(), k: x(), k_rot: x() }];
  },
};
const LLAISYS: Rows = {
  load: () => [ones(2, 4), floats(8)],
  to: () => [rw, ones(2, 4)],
  debug: () => [ones(2, 4)],
  add: () => [rw, ones(2), ones(2), ones(2)],
  argmax: () => [rw, longs(0), ones(1), ones(2)],
  embedding: () => [rw, ones(2, 3), longs(0, 1), ones(2, 3)],
  linear: () => [rw, ones(2, 4), ones(2, 3), ones(4, 3), ones(4)],
  rearrange: () => [rw, ones(2), ones(2)],
  rmsNorm: () => [rw, ones(2, 3), ones(2, 3), ones(3), 1e-5],
  rope: () => [rw, ones(2, 1, 4), ones(2, 1, 4), longs(0, 1), 10000],
  selfAttention: () => [rw, ones(2, 1, 2), ones(2, 1, 2), ones(2, 1, 2), ones(2, 1, 2), 1],
  swiglu: () => [rw, ones(2, 2), ones(2, 2), ones(2, 2)],
};
const desc = (dtype: number, ...shape: number[]) =>
  infiniop.infiniopCreateTensorDescriptor(shape.length, shape, null, dtype);
const ropeDescs = () => [desc(13, 2, 1, 4), desc(13, 2, 1, 4), desc(6, 2), desc(13, 4, 2), desc(13, 4, 2)] as const;
const ropeDesc = () => infiniop.infiniopCreateRoPEDescriptor(rw, ...ropeDescs(), 0).descriptor!;
const floats = (n: number) => new Float32Array(n).fill(1);
const mropeDescs = () => ({
  q_out: desc(13, 2, 4),
  k_out: desc(13, 2, 4),
  q: desc(13, 2, 4),
  k: desc(13, 2, 4),
  cos: desc(13, 4, 2),
  sin: desc(13, 4, 2),
  positions: desc(6, 3, 2),
});
const sizes = () => ({
  num_q_heads: 1,
  num_kv_heads: 1,
  head_size: 4,
  rotary_dim: 4,
  mrope_section: [1, 1, 0] as const,
  mrope_interleaved: false,
});
const mropeDesc = () => infiniop.infiniopCreateMRoPEDescriptor(rw, mropeDescs(), sizes()).descriptor!;
const INFINIOP: Rows = {
  infiniopCreateHandle: () => [rw, infiniop.INFINI_DEVICE.CPU, 0],
  infiniopDestroyHandle: () => [rw],
  infiniopCreateTensorDescriptor: () => [2, [2, 2], [2, 1], 13],
  infiniopDestroyTensorDescriptor: () => [desc(13, 2)],
  infiniopCreateRoPEDescriptor: () => [rw, ...ropeDescs(), 0],
  infiniopGetRoPEWorkspaceSize: () => [ropeDesc()],
  infiniopRoPE: () => [ropeDesc(), null, 0, floats(8), floats(8), new BigInt64Array(2), floats(8), floats(8), null],
  infiniopDestroyRoPEDescriptor: () => [ropeDesc()],
  infiniopCreateMRoPEDescriptor: () => [rw, mropeDescs(), sizes()],
  infiniopMRoPE: () => [
    mropeDesc(),
    {
      q_out: floats(8),
      k_out: floats(8),
      q: floats(8),
      k: floats(8),
      cos: floats(8),
      sin: floats(8),
      positions: new BigInt64Array(6),
    },
  ],
  infiniopDestroyMRoPEDescriptor: () => [mropeDesc()],
};
const handle2025 = () => infiniop2025.infiniopCreateHandle(rw, 0, 0).handle!;
const ropeDesc2025 = () => infiniop2025.infiniopCreateRopeDescriptor(handle2025(), ...ropeDescs(), 0).descriptor!;
const INFINIOP_2025: Rows = {
  infiniopCreateHandle: () => [rw, 0, 0],
  infiniopDestroyHandle: () => [handle2025()],
  infiniopCreateTensorDescriptor: () => [0, 0, 13, 2, [2, 2], [2, 1]],
  infiniopDestroyTensorDescriptor: () => [desc(13, 2)],
  infiniopCreateRopeDescriptor: () => [handle2025(), ...ropeDescs(), 0],
  infiniopGetRopeWorkspaceSize: () => [ropeDesc2025()],
  infiniopRope: () => [ropeDesc2025(), null, 0, floats(8), floats(8), new BigInt64Array(2), floats(8), floats(8), null],
  infiniopDestroyRopeDescriptor: () => [ropeDesc2025()],
};
const onDevice = () => dialects.acl.aclrtMalloc(8, 0).memory!;
const ACL: Rows = {
  aclrtMalloc: () => [8, 0],
  aclrtFree: () => [onDevice()],
  aclrtMemcpy: () => [onDevice(), 8, floats(2), 8, 1],
  aclrtCreateStream: () => [],
  aclrtSynchronizeStream: () => [dialects.acl.aclrtCreateStream().stream],
  aclrtDestroyStream: () => [dialects.acl.aclrtCreateStream().stream],
};
const HUGGINGFACE: Rows = {
  ropeFromConfig: () => [
    {
      model_type: 'llama',
      hidden_size: 8,
      num_attention_heads: 2,
      num_hidden_layers: 1,
      head_dim: 4,
      max_position_embeddings: 64,
      rope_theta: 10000,
      rope_scaling: {
        rope_type: 'yarn',
        factor: 4,
        original_max_position_embeddings: 16,
        beta_fast: 32,
        beta_slow: 1,
        attention_factor: 1,
      },
    },
    { context: 32, where: 'config.json' },
  ],
};
const GGUF: Rows = {
  rowOf: () => ['llama'],
  ropeFromGguf: () => [
    {
      metadata: new Map<string, unknown>([
        ['general.architecture', 'llama'],
        ['llama.block_count', 1],
        ['llama.embedding_length', 8],
        ['llama.attention.head_count', 2],
        ['llama.context_length', 64],
      ]),
      tensors: [{ name: 'rope_freqs.weight' }],
      readTensor: () => Float32Array.of(1, 2),
    },
    { context: 32, where: 'model.gguf' },
  ],
};

const npyBytes = () => formats.writeNpy(floats(2), { dtype: 'f32', shape: [2] });
const namedTensors = () => new Map([['x', ones(2)]]);
const safetensors = () => formats.writeSafetensors(namedTensors(), { format: 'pt' });
const ptBytes = readFileSync(new URL('../packages/formats/test/pt/tensor.pt', import.meta.url));
const NPZ: Rows = {
  parseNpz: () => [formats.writeNpz(namedTensors()), 'npz', 1000],
  parsePt: () => [Uint8Array.from(ptBytes), 'pt', 10000],
  writeNpz: () => [namedTensors()],
};
const sourceOf = (bytes: Uint8Array) => ({
  size: bytes.length,
  read: async (start: number, length: number) => bytes.subarray(start, start + length),
});
const ggufBytes = () => Uint8Array.of(0x47, 0x47, 0x55, 0x46, 3, 0, 0, 0, ...new Uint8Array(16));
const FORMATS: Rows = {
  dumpOf: () => ['x.npy', npyBytes(), 'x.npy'],
  countClaimed: () => [[1, 2]],
  elementsAt: () => [new Uint8Array(16), 4, 'f32', 2, true],
  readExactly: () => [sourceOf(ggufBytes()), 0, 4, 'a file'],
  ggufModelOf: () => [[{ file: 'gguf', source: sourceOf(ggufBytes()) }]],
  partsOf: () => [['a.gguf'], 'folder'],
  safetensorsHeaderOf: () => [sourceOf(safetensors()), 'safetensors'],
  npyHeaderOf: () => [sourceOf(npyBytes()), 'npy'],
  parseGguf: () => [Uint8Array.of(0x47, 0x47, 0x55, 0x46, 3, 0, 0, 0, ...new Uint8Array(16)), 'gguf', 24],
  parseJson: () => ['{"a": [1]}', 'json', { uniqueKeys: true }],
  parseNpy: () => [npyBytes(), 'npy'],
  tensorFromNpy: () => [formats.parseNpy(npyBytes()), 'f32'],
  writeNpy: () => [floats(2), { dtype: 'f32', shape: [2] }],
  writeNpyHeader: () => [{ dtype: 'f32', shape: [2] }],
  checkShard: () => [new Map([['a', 1]]), ['a'], 'here'],
  safetensorsShards: () => [['a.safetensors', 'x.json'], { weight_map: { t: 'a.safetensors' } }, 'folder', 'here'],
  parseSafetensors: () => [safetensors(), 'safetensors', safetensors().length],
  tensorFromSafetensors: () => [safetensors(), formats.parseSafetensors(safetensors()), 'x'],
  writeSafetensors: () => [namedTensors(), { format: 'pt' }],
  writeSafetensorsHeader: () => [[{ name: 't', dtype: 'f16', shape: [2, 3] }], { format: 'pt' }],
  writeGgufHeader: () => [
    new Map([['general.name', { type: 'string', value: ['a'], array: true }]]),
    [{ name: 't', shape: [32, 2], type: 'Q8_0' }],
  ],
  ...NPZ,
};

const given = () => ({ ...spec, rotaryDim: 4, rotaryOffset: 0, scaling: { kind: 'linear', factor: 2 } });
const layers = () => [{ layer: 0, layerType: 'full_attention', rope: Object.freeze(given()) }];
const CONVERT: Rows = {
  permutedRows: () => [4, 'half'],
  groupLayers: () => [layers()],
  compareModels: () => [
    { rope: { source: 'gguf', layers: layers() }, recipe: 'float64' },
    { rope: given(), recipe: 'float64' },
    [0, 1],
  ],
  modelTypeOf: () => ['qwen2'],
  peerOf: () => ['ggml'],
  convertRope: () => [
    given(),
    'ggml',
    { context: 64, positions: 2, heads: 1, modelType: 'llama', architecture: 'llama' },
  ],
  readForm: () => [
    { target: 'ggml', arguments: { ne0: 4, n_dims: 4, mode: 2, freq_base: 10000 } },
    new Map(),
    { context: 64, where: 'a.json' },
  ],
  effectiveRope: () => [given()],
  passportOf: () => [[{ name: 'config.json', json: HUGGINGFACE.ropeFromConfig!()[0] }], { serve: [] }],
  specToJson: () => [given()],
  specFromJson: () => [dialects.specToJson(given() as main.RopeSpec), 'record'],
};

const disk = mkdtempSync(join(tmpdir(), 'ropewalk-hostile-'));
after(() => rmSync(disk, { recursive: true }));
const onDisk = (name: string, bytes: Uint8Array | string): string => {
  writeFileSync(join(disk, name), bytes);
  return join(disk, name);
};
const ggufPath = onDisk('a.gguf', Uint8Array.of(0x47, 0x47, 0x55, 0x46, 3, 0, 0, 0, ...new Uint8Array(16)));
const safetensorsPath = onDisk('a.safetensors', safetensors());
const goldenPath = join(disk, 'golden');
mkdirSync(goldenPath);
onDisk(
  'golden/manifest.json',
  JSON.stringify({ format: 'ropewalk-vectors-1', generator: 'a test', seed: 1, cases: [] }),
);
const ggufHeader = () => ({
  version: 3,
  bigEndian: false,
  alignment: 32,
  dataOffset: 0,
  metadata: new Map(),
  tensors: [],
});
const qwen2 = new Map<string, string | number>([
  ['general.architecture', 'qwen2'],
  ['qwen2.block_count', 2],
  ['qwen2.attention.key_length', 4],
]);
const modelPath = join(disk, 'model');
mkdirSync(modelPath);
onDisk('model/config.json', JSON.stringify(HUGGINGFACE.ropeFromConfig!()[0]));
onDisk(
  'model/model.safetensors',
  formats.writeSafetensors(
    new Map(['q', 'k'].map((side) => [`model.layers.0.self_attn.${side}_proj.weight`, ones(8, 8)])),
  ),
);
const decoderPath = join(disk, 'decoder');
mkdirSync(decoderPath);
const tiny = { family: 'llama', layers: 1, hidden: 8, heads: 2, kvHeads: 1, headDim: 4, inter: 8, vocab: 40 } as const;
for (const [name, bytes] of Object.entries(tinyModel('hostile', tiny).huggingFace())) onDisk(`decoder/${name}`, bytes);
const permutation = Object.freeze(await checkpointNode.planModelPermutation(modelPath, { to: 'interleaved' }));
const FORMATS_NODE: Rows = {
  checkExternal: () => [join(modelPath, 'model.safetensors'), 'config.json', 4],
  isGraphFolder: () => [modelPath],
  onnxFileOf: () => [ggufPath],
  onnxFilesOf: () => [modelPath],
  checkRegular: () => [{ isFile: () => true, isDirectory: () => false }, 'here'],
  isFolder: () => [disk],
  makeFolder: () => [join(disk, 'made')],
  modelFileOf: () => [modelPath],
  openFile: () => [ggufPath, 'here'],
  readAt: () => [{ read: async (_into: unknown, _at: unknown, bytesRead: number) => ({ bytesRead }) }, 0, 4, 'here'],
  readExternal: () => [join(modelPath, 'model.safetensors'), { location: 'config.json', offset: 0, length: 4 }],
  readFileBytes: () => [ggufPath, 1000, 'here'],
  readJsonFile: () => [join(modelPath, 'config.json')],
  replaceFile: () => [join(disk, 'replaced'), 'text'],
  writeOutput: () => [join(disk, 'written'), 'text', 'here'],
  checkRoom: () => [join(disk, 'room'), 1],
  writeWhole: () => [
    join(disk, 'whole'),
    { sizeBytes: 0, inputs: [ggufPath], force: true, kind: 'file' },
    async (temporary: string) => writeFileSync(temporary, 'text'),
  ],
  ggufPaths: () => [ggufPath],
  readGgufHeader: () => [ggufPath],
  readGgufModel: () => [ggufPath],
  readSafetensorsHeader: () => [safetensorsPath],
};
const CHECKPOINT: Rows = {
  ropeSourceFromJson: () => [{ ...spec }, 'rope.json', { context: 32, isModel: false, readFile: () => npyBytes() }],
  ropeSourceFromGguf: () => [{ header: { ...ggufHeader(), metadata: qwen2 }, factors: new Map() }, 'model.gguf', 32],
  planPermutation: () => [
    [
      { name: 'h.0.attn.q_proj.weight', file: 0, shape: [8, 4], type: 'F32', byteOffset: 0, sizeBytes: 128 },
      { name: 'h.0.attn.k_proj.weight', file: 0, shape: [8, 4], type: 'F32', byteOffset: 128, sizeBytes: 128 },
    ],
    {
      to: 'interleaved',
      naming: 'huggingface',
      geometryOf: () => ({ numHeads: 2, numKvHeads: 2, headDim: 4, rotaryDim: 4 }),
      fused: 'concatenated',
      sharesKeys: false,
      only: /_proj/,
      where: 'permute',
    },
  ],
  layerOf: () => [{ kind: 'record', file: 'a.json', peer: 'ggml', spec: Object.freeze(given()) }, 0],
};
const CHECKPOINT_NODE: Rows = {
  headsOf: () => [join(modelPath, 'config.json'), 0],
  openModel: () => [modelPath],
  isProved: () => [{ difference: 1, bound: 2 }],
  planModelPermutation: () => [
    modelPath,
    { to: 'interleaved', from: 'half', heads: 2, kvHeads: 2, headDim: 4, rotaryDim: 4, only: /_proj/, force: true },
  ],
  runModelPermutation: () => [permutation, { all: true, force: true, onProgress: () => {} }],
  readModelRope: () => [modelPath, 32],
  readRopeSource: () => [modelPath, 32, true],
};
const onnxModel = (): onnxPackage.OnnxModel =>
  onnxPackage
    .ropeModel({ spec: { ...spec, pairing: 'half' }, form: 'standard', context: 4 })
    .graph.model('rope', 'a test');
const onnxBytes = onnxPackage.writeOnnxModel(onnxModel());
const ONNX_FORMAT: Rows = {
  writeOnnxTensor: () => [ones(2), 'x'],
  parseOnnxTensor: () => [onnxPackage.writeOnnxTensor(ones(2), 'x'), 'x.pb'],
  writeOnnxModel: () => [onnxModel()],
};
// Frozen, because its fields are not the caller's.
const rope = Object.freeze(onnxPackage.importOnnx(onnxBytes).ropes[0]!);
const bound = () => ({ x: ones(1, 2, 4), out: ones(1, 2, 4), positionIds: longs(0, 1).view([1, 2]), inputs: {} });
const modelOptions = () => ({
  spec: { ...spec, pairing: 'half' as const },
  form: 'primitives' as const,
  direction: 'forward',
  layout: 'bsnh',
});
const GRAPH: Rows = {
  GraphBuilder: () => [],
  anglePrecision: () => [given(), 'f32-reduced', [0, 1], 'f32'],
  writeOnnxTest: () => [
    Object.freeze({
      id: 'mine',
      op: 'add',
      about: 'A sum.',
      attributes: {},
      inputs: new Map(),
      outputs: new Map([['c', ones(2)]]),
    }),
    main.planAdd(ones(2), ones(2), ones(2)),
    'a test',
  ],
  graphCost: () => [Object.freeze(onnxModel()), { batch: 1, seq: 2 }],
  operatorModel: () => [
    { op: 'linear', shape: [1, 4, 32], form: 'standard', dtype: 'f32', weights: 'f16', bias: true },
  ],
  whyNotOnnxruntime: () => [],
  whyNotWebnn: () => [],
  ropeModel: () => [
    {
      ...modelOptions(),
      angles: 'f32-reduced',
      dtype: 'f32',
      heads: 2,
      kvHeads: 1,
      context: 8,
      normEps: 1e-6,
      kvCache: true,
    },
  ],
};
const DEVICES: Rows = {
  deviceNamed: () => ['cann-2024'],
  ropeOnDevice: () => [
    'ort-qnn',
    {
      spec: { headDim: 8, rotaryDim: 4, pairing: 'half', base: 10000 },
      dtype: 'f16',
      heads: 2,
      kvHeads: 1,
      batch: 2,
      seq: 3,
      batchPositions: true,
      context: 8,
      graph: { form: 'standard', angles: 'f32-table', layout: 'bsnh', opset: 23, normEps: 1e-6, kvCache: true },
    },
  ],
  openCann2024: () => [{ mended: ['row'] }],
  describeSteps: () => [
    { ...spec, pairing: 'half', positions: [0, 1] },
    { dtype: 'f16', heads: 1, batch: 1, rotation: 'primitives' },
  ],
  runSteps: () => [
    { ...spec, pairing: 'half', positions: [0, 1] },
    { dtype: 'f32', heads: 1, batch: 1, rotation: 'fused', x: [1, 2, 3, 4, 5, 6, 7, 8] },
  ],
  cann2024TableErrors: () => [{ ...spec, pairing: 'half', positions: [0, 1] }, 'f32'],
  cann2024Steps: () => [{ headDim: 4, heads: 1, seq: 2, batch: 1, dataBytes: 4 }, 'fused'],
};
const globalView = () => ({ data: floats(8), shape: [1, 2, 1, 4], strides: [8, 4, 4, 1], offset: 0 });
const allocation = new aicore.Allocation('x', [floats(8)], true);
const machine = () => ({
  chip: '910B3',
  unifiedBufferBytes: 196608,
  autoSync: true,
  cores: 2,
  vectorTiming: 'published',
  checkRaces: true,
});
const measured = () => ({
  shape: [1, 2, 1, 16],
  dtype: 'f32',
  pairing: 'interleaved',
  rotaryDim: 16,
  base: 10000,
  batchPositions: false,
  tableLen: 2,
});
const declared = () => ({
  name: 'mine',
  operator: 'add',
  dtypes: ['f32'],
  arguments: { x: 'a', y: 'b', z: 'out' },
  blocks: 1,
  autoSync: true,
  kernel: () => {},
});
const kernelRun = Object.freeze(aicore.measureRopeKernel('fast', measured() as never, { record: true }).run);
const AICORE: Rows = {
  chromeTrace: () => [kernelRun],
  timelineSvg: () => [kernelRun, { fromCycle: 0, toCycle: 100 }],
  whyNotKernel: () => ['baseline', { dtype: 'f16', pairing: 'interleaved', rotaryDim: 4, headDim: 4 }],
  readKernel: () => [declared()],
  measureKernel: () => [
    declared(),
    { dtype: 'f32', shape: [2, 16], eps: 1e-6 },
    { chip: '910B3', record: true, onBlock: () => {} },
  ],
  prepareRope: () => [measured()],
  searchTiling: () => ['correct', measured(), { chip: '910B3', cores: 1, onTry: () => {} }],
  calibrate: () => [],
  measureRopeKernel: () => ['fast', measured(), { chip: '910B3', record: true, onBlock: () => {} }],
  Allocation: () => ['x', [floats(8)], true],
  GlobalTensor: () => ['x', allocation, 'f32', 0, 0, 8],
  firstLanes: () => [aicore.EVEN_LANES, 4],
  openAscendModel: () => [{ kernel: 'fast', machine: machine() }],
  rope_kernel_launch: () => [
    ...[floats(8), floats(8), Int32Array.of(0, 1), floats(8), floats(8)],
    ...[2, 1, 4, 13, 5, 4, 4, 4, 4, null],
  ],
  runRopeKernel: () => [
    {
      kernel: 'correct',
      dtype: 'f32',
      pairing: 'half',
      x: globalView(),
      y: globalView(),
      positions: [0, 1],
      sin: floats(4),
      cos: floats(4),
      rotaryDim: 4,
      machine: machine(),
      record: [0],
    },
  ],
  launchKernel: () => [
    {
      kernel: 'mine',
      dtype: 'f32',
      blocks: 1,
      autoSync: true,
      machine: machine(),
      record: [0],
      body: () => {},
      output: new aicore.GlobalTensor('y', allocation, 'f32', 0, 0, 8),
      inputs: [new aicore.GlobalTensor('x', allocation, 'f32', 0, 0, 8)],
      rowLength: 4,
      rowStarts: [0, 4],
      least: { load: 32, store: 32 },
    },
  ],
};
/** Lists the objects of a kernel and the AscendC calls on them. */
function ascendCalls(c: AscendC): readonly (readonly [object, string, readonly unknown[]])[] {
  const local = c.pipe.InitTBuf('local', 1024).Get('f32');
  const half = c.pipe.InitTBuf('half', 512).Get('f16');
  const bits = c.pipe.InitTBuf('bits', 512).Get('u32');
  const buffer = c.pipe.InitTBuf('buffer', 64);
  const queue = () => c.pipe.InitBuffer('queue', 'VECIN', 1, 64);
  const [full, used] = [queue(), queue()];
  const filled = full.AllocTensor('fill', 'f32');
  used.EnQue('put', used.AllocTensor('fill', 'f32'));
  const global = new aicore.GlobalTensor('x', allocation, 'f32', 0, 0, 8);
  const repeats = { mask: 64, repeats: 1, strides: { dst: 8, src0: 8, src1: 8 } };
  const copy = { blockCount: 1, blockLen: 32, srcStride: 0, dstStride: 0 };
  const reduce = { mask: 8, repeats: 1, dstRepStride: 1, srcRepStride: 8 };
  return [
    ...['Mul', 'Add', 'Sub', 'Div', 'Max'].map((name) => [c, name, ['line', local, local, local, repeats]] as const),
    ...['Abs', 'Exp', 'Sqrt', 'Rsqrt', 'Reciprocal', 'Copy'].map(
      (name) => [c, name, ['line', local, local, 8]] as const,
    ),
    ...['Muls', 'Maxs', 'Adds'].map((name) => [c, name, ['line', local, local, 2, 8]] as const),
    ...['WholeReduceSum', 'WholeReduceMax'].map((name) => [c, name, ['line', local, local, reduce]] as const),
    [c, 'GetBlockIdx', []],
    [c, 'PipeBarrier', ['V']],
    [c, 'SetFlag', ['MTE2', 'V', 0]],
    [c, 'WaitFlag', ['line', 'MTE2', 'V', 0]],
    [c, 'GetGlobal', ['line', global, 0]],
    [c, 'DataCopyIn', ['line', local, global, 0, 8]],
    [c, 'DataCopyOut', ['line', global, 0, local, 8]],
    [c, 'DataCopyPadIn', ['line', local, global, 0, copy]],
    [c, 'DataCopyPadOut', ['line', global, 0, local, copy]],
    [c, 'MergeValues', ['line', local, [bits, bits], 4]],
    [c, 'Duplicate', ['line', local, 1, 8]],
    [c, 'Cast', ['line', half, local, 8]],
    [c, 'GatherMask', ['line', local, local, 1, { repeatTimes: 1, src0RepeatStride: 8, src1RepeatStride: 0 }]],
    [c, 'Gather', ['line', local, local, bits, 8]],
    [c.pipe, 'InitBuffer', ['name', 'VECIN', 1, 64]],
    [c.pipe, 'InitTBuf', ['name', 64]],
    [buffer, 'Get', ['f32']],
    [queue(), 'AllocTensor', ['line', 'f32']],
    [full, 'EnQue', ['line', filled]],
    [used, 'DeQue', ['line', 'f32']],
    [full, 'FreeTensor', ['line', filled]],
    [local, 'at', [1]],
    [local, 'as', ['u32']],
    [local, 'GetValue', ['line', 0]],
    [local, 'SetValue', ['line', 0, 1]],
  ];
}
const IMPORT: Rows = {
  importOnnx: () => [onnxBytes, 'a.onnx', { loadExternal: () => new Uint8Array(4) }],
  bindImported: () => [rope, bound()],
  runImported: () => [rope, rw, bound()],
  groupAlike: () => [[rope, rope]],
};

const observation = () => ({ x: ones(2, 1, 4), y: ones(2, 1, 4), positions: [0, 1], layout: 'bsnh', numAxes: 1 });
const ropeLine = 'ROPE(type=f32,ne_a=[8,1,2,1],n_dims=8,mode=0,n_ctx=512,fs=1,ef=0,af=1,ff=0,v=0)';
const ropeParams = () => ({ ...oracle.parseRopeLabel(ropeLine), pos: [0, 1], sections: [0, 0, 0, 0] });
const JUDGES: Rows = {
  nmse: () => [[1, 2], new Float32Array(2), 'f32'],
  judgeNmse: () => ['X', [1, 2], new Float32Array(2), 1, 'f32'],
  judgeClose: () => ['X', [1, 2], new Float32Array(2), { atol: 1, rtol: 1 }, 'f32'],
  judgeBits: () => ['X', new Float32Array(2), new Float32Array(2), 'f32'],
  parseLabel: () => [ropeLine],
  formatLabel: () => ['ROPE', { type: 'f32', ne_a: [1, 2] }],
  parseRopeLabel: () => [ropeLine],
  ropeCase: () => ['mine', ropeParams()],
  ropePlanOfCase: () => [ropeParams()],
  publishedCases: () => [],
  extendedCases: () => [],
};
const demo = diagnosing.demoObservation();
const diagnosis = Object.freeze(diagnosing.diagnose(demo.observation, demo.expected));
const caseResult = () => ({ backend: 'cpu', suite: 'mine', label: 'X', verdict: { status: 'ok', measure: 'exact' } });
const verified = () =>
  Object.freeze({ id: 'mine', op: 'add', about: 'A sum.', status: 'ok', notes: [], tensors: [] } as const);
const title = () => ({ vectors: 'golden', from: 'outputs', by: 'a test', allowed: ['table f32'] });
const REPORTS: Rows = {
  countResults: () => [[caseResult()]],
  formatResult: () => [caseResult()],
  formatSummary: () => [new Map([['cpu/mine', { ok: 1, fail: 0, notSupported: 0 }]])],
  resultToJson: () => [caseResult()],
  countVerified: () => [[verified()]],
  verifiedCauses: () => [[verified()]],
  verifyAnnotations: () => [[verified()]],
  verifyLines: () => [verified(), 8],
  verifySummary: () => [{ ok: 1, fail: 1, error: 0, skipped: 0 }],
  verifyToJson: () => [verified()],
  verifyToJunit: () => [title(), [verified()]],
  mutantExample: () => [diagnosing.MUTANTS[0]],
  mutantSteps: () => [diagnosing.MUTANTS[0]],
};
const DIAGNOSE: Rows = {
  frequencySvg: () => [
    [1, 0.1],
    [1, 0.2],
  ],
  demoObservation: () => [],
  describeDiagnosis: () => [diagnosis, 'phi-2', { all: true }],
  diagnosisToJson: () => [diagnosis, 'phi-2'],
  splitHeads: () => [ones(2, 8), 2, 'x'],
  checkStored: () => [ones(2, 2), 'bf16', 'y'],
  diagnose: () => [
    { ...observation(), norm: { weight: ones(4), eps: 1e-6 } },
    { spec: { ...spec, scaling: { kind: 'linear', factor: 2 } }, direction: 'forward' },
    { mutants: diagnosing.MUTANTS.slice(0, 2).map((mutant) => Object.freeze({ ...mutant })), progress: () => {} },
  ],
  identify: () => [observation()],
  laidOut: () => [{ tokens: 4, cached: 0, rank: { layout: 'zigzag', rank: 0, of: 2 } }],
  positionFaults: () => [[0, 3], { tokens: 2 }],
  checkPositionLog: () => ['{"request":1,"step":0,"positions":[0]}'],
  readHeads: () => [observation(), { spec, direction: 'forward' }],
};
const chosen = () =>
  ({ id: 'mine', about: 'A test.', spec: { ...spec, pairing: 'half' }, direction: 'forward' }) as const;
const writtenPath = join(disk, 'golden-written');
const writing = { forms: ['npy'], seed: 1, generator: 'a test' } as const;
await oracleNode.writeGoldenFolder(writtenPath, oracle.chooseRope(chosen()).cases.slice(0, 1), writing);
const written = oracle.goldenOf(oracleNode.vectorFolder(writtenPath));
const golden = await written.load(written.cases[0]!);
const CHOICES: Rows = {
  chooseModel: () => [
    { architecture: 'llama', source: 'config', notes: [], layers: [{ layer: 0, rope: spec, notes: [] }] },
    { seed: 2, dtypes: ['f32'], positions: [0, 1], heads: 2 },
    0,
  ],
  chooseRope: () => [chosen(), { seed: 2, dtypes: ['f32'], positions: [0, 1], heads: 2 }],
  judgeCase: () => [{ ...golden }, golden.outputs, { table: 'f32', arithmetic: 'f32', toleranceScale: 2 }],
  goldenOf: () => [oracleNode.vectorFolder(writtenPath)],
  runCases: () => [[{ suite: 'mine', label: 'X', run: () => ({ status: 'ok', measure: 'exact' }) }], rw],
  scoreVectors: () => [[], diagnosing.MUTANTS.slice(0, 2).map((mutant) => Object.freeze({ ...mutant })), () => {}],
  vectorCases: () => [oracleNode.vectorFolder(writtenPath)],
  chooseBuiltIn: () => [['add', 'rope'], { seed: 2, dtypes: ['f32'], positions: [0, 1], heads: 2 }],
  chooseDialect: () => ['ggml', { seed: 2, dtypes: ['f32'], positions: [0, 1], heads: 2 }],
  goldenOperatorSuite: () => [{ seed: 2 }],
  goldenRopeSuite: () => [{ seed: 2 }],
  positionsFor: () => [8, 1],
};
const ORACLE: Rows = { ...JUDGES, ...REPORTS, ...CHOICES };

const decoder = planModel(
  await describeModel(
    tinyModel('hostile', {
      family: 'llama',
      layers: 1,
      hidden: 8,
      heads: 2,
      kvHeads: 1,
      headDim: 4,
      inter: 8,
      vocab: 8,
      context: 8,
    }).gguf(),
  ),
);

const ENTRIES: Readonly<Record<string, { readonly rows: Rows; readonly module: object }>> = {
  ropewalk: { rows: MAIN, module: main },
  'ropewalk/backend': { rows: BACKEND, module: { ...contract, ...shared } },
  'ropewalk/reference': {
    rows: { referenceRunner: () => [], runReference: () => [main.planAdd(ones(2), ones(2), ones(2))] },
    module: reference,
  },
  '@ropewalk/dialects': { rows: CONVERT, module: dialects },
  '@ropewalk/dialects, acl': { rows: ACL, module: dialects.acl },
  '@ropewalk/dialects, ggml': { rows: GGML, module: ggml },
  '@ropewalk/dialects, cann': { rows: CANN, module: cann },
  '@ropewalk/dialects, flashAttn': { rows: FLASH_ATTN, module: dialects.flashAttn },
  '@ropewalk/dialects, onnx': { rows: ONNX, module: onnx },
  '@ropewalk/dialects, llaisys': { rows: LLAISYS, module: llaisys },
  '@ropewalk/dialects, infiniop': { rows: INFINIOP, module: infiniop },
  '@ropewalk/dialects, infiniop2025': { rows: INFINIOP_2025, module: infiniop2025 },
  '@ropewalk/dialects, huggingface': { rows: HUGGINGFACE, module: huggingface },
  '@ropewalk/dialects, gguf': { rows: GGUF, module: gguf },
  '@ropewalk/formats': { rows: { ...FORMATS, ...NPZ }, module: formats },
  '@ropewalk/formats/node': { rows: FORMATS_NODE, module: formatsNode },
  '@ropewalk/checkpoint': { rows: CHECKPOINT, module: checkpoint },
  '@ropewalk/checkpoint/node': { rows: CHECKPOINT_NODE, module: checkpointNode },
  '@ropewalk/onnx': {
    rows: {
      ...ONNX_FORMAT,
      ...GRAPH,
      ...IMPORT,
      graphTensors: () => [Object.freeze(onnxPackage.importOnnx(onnxBytes).model)],
      graphContents: () => [Object.freeze(onnxPackage.importOnnx(onnxBytes).model)],
      graphRope: () => [Object.freeze(onnxPackage.importOnnx(onnxBytes)), 'a.onnx', Object.freeze(given())],
      parseOnnxModel: () => [onnxBytes, 'a.onnx', { loadExternal: () => new Uint8Array(4) }],
    },
    module: onnxPackage,
  },
  '@ropewalk/model-onnx': {
    rows: {
      decoderGraph: () => [decoder.config, decoder.weights.map(Object.freeze), { form: 'primitives' }],
      openOnnxWebEngine: () => [
        { InferenceSession: class {}, Tensor: class {} },
        { providers: ['wasm'], form: 'contrib' },
      ],
    },
    module: modelOnnx,
  },
  '@ropewalk/model-onnx/node': {
    rows: {
      cacheFolder: () => [],
      listCache: () => [join(disk, 'cache')],
      ...(noOnnxruntime
        ? {}
        : {
            openOnnxEngine: () => [{ threads: 1, providers: ['cpu'], form: 'contrib', cache: disk, onBuilt: () => {} }],
          }),
      removeCache: () => [join(disk, 'cache')],
      exportDecoder: () => [
        decoderPath,
        join(disk, 'exported'),
        { form: 'contrib', angles: 'f32-table', context: 4, quantize: 'q8_0', force: true, onProgress: () => {} },
      ],
    },
    module: modelOnnxNode,
  },
  '@ropewalk/diagnose': { rows: DIAGNOSE, module: diagnosing },
  '@ropewalk/oracle': { rows: ORACLE, module: oracle },
  '@ropewalk/oracle/node': {
    rows: {
      vectorFolder: () => [goldenPath],
      goldenFolder: () => [goldenPath],
      readGoldenFolder: () => [goldenPath],
      programOf: () => [{ words: ['true'], protocol: 'stdio', timeoutMs: 1000 }],
      readCaseOutputs: () => [join(disk, 'none'), { ...golden }],
      strangersIn: () => [goldenPath, ['mine']],
      writeGoldenFolder: () => [
        writtenPath,
        oracle.chooseRope(chosen()).cases.slice(0, 1),
        { ...writing, force: true },
      ],
    },
    module: oracleNode,
  },
  '@ropewalk/ascend': { rows: AICORE, module: aicore },
  '@ropewalk/devices': { rows: DEVICES, module: devices },
};
/** Tests of their packages call the functions of these entries: hostile.test.ts in packages/model and packages/probe. */
const DECODER = ['@ropewalk/model', '@ropewalk/model/node', '@ropewalk/model/repack', '@ropewalk/probe'];

/**
 * The functions without a row, by entry. All other functions must have one. Functions of ropewalk/backend have rows
 * only if they get values directly from callers.
 */
const WITHOUT_ROW: Readonly<Record<string, readonly string[]>> = {
  'ropewalk/backend': Object.keys({ ...contract, ...shared }).filter((name) => !(name in BACKEND)),
  // These need ONNX Runtime and a browser. packages/onnx/test/onnxruntime.peers.test.ts and webnn.test.ts test them.
  '@ropewalk/onnx': ['openOnnxruntime', 'openWebnn'],
  // Its valid call needs ONNX Runtime, which is present when the tier slow runs this file.
  '@ropewalk/model-onnx/node': noOnnxruntime ? ['openOnnxEngine'] : [],
};

/** Matches the arguments that are not options, as `function path`. */
const OPEN = new RegExp(
  `^(${[
    // These are objects with methods: files, sources of bytes, and modules.
    '(checkRegular|readAt|readExactly|goldenOf|vectorCases|openOnnxWebEngine|\\w+HeaderOf|ggufFactorsOf) 0',
    'ggufModelOf .*',
    // These are contents of files, or results of our functions.
    '(ggufFactorsOf|tensorFromSafetensors) [12].*',
    '(ropeFromConfig|ropeFromGguf|readForm|passportOf|ropeSourceFromGguf|chooseModel|groupLayers|layerOf|tensorFromNpy) 0.*',
    'compare(Models|Rope) [01].*',
    '(distanceOf|readExternal) [01]',
    'safetensorsShards 1',
    'planPermutation 0.*',
    '(isProved|countResults|formatResult|resultToJson|verifySummary|mutantExample|mutantSteps|runCases) .*',
    'judgeCase 0.*',
    'readCaseOutputs 1.*',
    'writeGoldenFolder 1.*',
    'writeOnnxModel .*',
    // The caller chooses these names.
    '(readKernel|measureKernel) 0.arguments',
    // InfiniOp's functions return a status, which packages/dialects/test/infiniop.test.ts tests.
    'infiniop\\w+ [012]',
  ].join('|')})$`,
);

/** Calls `target[name]` with every hostile value and collects the problems. */
async function attack(target: object, name: string, row: Row): Promise<string[]> {
  const entry = (target as Record<string, (...args: unknown[]) => unknown>)[name]!;
  const isClass = /^class\b/.test(Function.prototype.toString.call(entry));
  const call = (args: readonly unknown[]) => () =>
    isClass ? Reflect.construct(entry, args) : Reflect.apply(entry, target, args);
  const wrong: string[] = [];
  const valid = await complaint(call(row()), true);
  if (valid) wrong.push(`${name}, the call that works: ${valid}`);
  for (const { where, args } of misspeltCalls(row)) {
    const refused = await complaint(call(args), true);
    if (!refused?.includes('misspelt') && !OPEN.test(`${name} ${where}`))
      wrong.push(`${name} takes argument ${where} misspelt`);
  }
  for (const { label, args } of hostileCalls(row)) {
    // These functions allocate memory, and the machine may really have these 16 GiB.
    if (/^(zeros|ggmlZeros|newArray|allocate)$/.test(name) && label.endsWith('2^31')) continue;
    // Errors of the caller's functions are passed on to the caller.
    if (
      /^(launchKernel|openCpu|goldenOf|vectorCases|scoreVectors|judgeClose|readExactly|gguf(Header|Factors|Model)Of|(safetensors|npy)HeaderOf|runModelPermutation|writeWhole|writeGoldenFolder|exportDecoder|measureRopeKernel|searchTiling|measureKernel|readKernel)$/.test(
        name,
      ) &&
      label.endsWith('= proxy of a function')
    )
      continue;
    // A tensor has a method `read`, which throws for a forged tensor.
    if (/^(readExactly|ggufFactorsOf)$/.test(name) && label === 'argument 0 = forged tensor') continue;
    const what = await complaint(call(args));
    if (name === 'replaceFile' && what?.startsWith('Error: EISDIR')) continue; // this is the system's message
    if (name === 'runSteps' && /x\.\d = -?Infinity$/.test(label)) continue; // ∞·cos − ∞·sin is NaN
    if (name === 'roundTo' && label.endsWith('= NaN')) continue; // a NaN rounds to a NaN
    if (/^(tensor|tensorFrom|upload)$/.test(name) && label === 'argument 0 = [NaN]') continue; // a list keeps it
    if (name === 'nmse' && what === 'NaN in the result') continue; // this is its result for very different numbers
    if (what) wrong.push(`${name}, ${label}: ${what}`);
  }
  return wrong;
}

function methodsOf(prototype: object): string[] {
  return Object.getOwnPropertyNames(prototype).filter((name) => {
    const { value } = Object.getOwnPropertyDescriptor(prototype, name)!;
    return name !== 'constructor' && typeof value === 'function';
  });
}

/** Everything that a package's internal entries export. */
async function internalsOf(entry: string): Promise<object> {
  const name = /^(@ropewalk\/)?[\w-]+/.exec(entry)![0];
  const inside = PACKAGE_ENTRIES.filter((one) => one.startsWith(`${name}/internal`));
  return Object.assign({}, ...(await Promise.all(inside.map((one) => import(one)))));
}

describe('public functions', () => {
  withoutStacks();
  // File names without a folder are written to this folder.
  const started = process.cwd();
  before(() => process.chdir(disk));
  after(() => process.chdir(started));
  test('every entry of every package is here; the decoder has its own test', () => {
    const here = Object.keys(ENTRIES).filter((entry) => !entry.includes(','));
    // Internal functions are called through the public ones or those of ropewalk/backend. The benchmark is called by a
    // command that checks its options.
    const open = PACKAGE_ENTRIES.filter((entry) => !/\/internal\b|^@ropewalk\/bench\b/.test(entry));
    assert.deepEqual([...here, ...DECODER].sort(), [...open].sort());
  });
  for (const [entry, { rows, module }] of Object.entries(ENTRIES)) {
    test(entry, async () => {
      const names = Object.entries(module).flatMap(([name, value]) =>
        typeof value === 'function' && !NO_ROW.has(value) ? [name] : [],
      );
      const without = names.filter((name) => !(name in rows) && !WITHOUT_ROW[entry]?.includes(name));
      assert.deepEqual(without, [], 'every public function has a row');
      // Some functions that left the public names keep their row.
      const all: Readonly<Record<string, unknown>> = { ...(await internalsOf(entry)), ...module };
      assert.deepEqual(
        Object.keys(rows).filter((name) => typeof all[name] !== 'function'),
        [],
        'every row has a function',
      );
      const wrong: string[] = [];
      for (const [name, row] of Object.entries(rows)) wrong.push(...(await attack(all, name, row)));
      assert.deepEqual(wrong, []);
    });
  }

  for (const backend of ['reference', 'cpu'] as const) {
    test(`every method of Ropewalk on ${backend}`, async () => {
      const rw = await main.ropewalk({ backend, threads: 1, memoryLimit: 2 ** 26 });
      const rows = ropewalkRows(rw);
      const methods = methodsOf(Ropewalk.prototype).filter((name) => name !== 'dispose');
      assert.deepEqual(methods.sort(), Object.keys(rows).sort());
      const wrong: string[] = [];
      for (const [name, row] of Object.entries(rows)) wrong.push(...(await attack(rw, name, row)));
      assert.deepEqual(wrong, []);
      const y = rw.rope(ones(2, 1, 4), [0, 0], { pairing: 'half', base: 10000 });
      assert.deepEqual(await y.read(), await ones(2, 1, 4).read(), 'the backend works on as before');
      rw.dispose();
    });
  }
  test("every call of AscendC's classes", async () => {
    const wrong: string[] = [];
    const called = new Set<string>();
    // The model stops a kernel with an internal error, which launchKernel catches.
    const goesOn = (what: string | undefined) => what !== undefined && !what.startsWith('Error: ');
    let targets = 0;
    const body = (
      c: AscendC,
      only: number,
      attempt: (target: object, name: string, args: readonly unknown[]) => void,
    ) => {
      const calls = ascendCalls(c);
      targets = calls.length;
      attempt(...calls[only]!);
    };
    for (let n = 0; n === 0 || n < targets; n++) {
      const pending: Promise<void>[] = [];
      const attempt = (target: object, name: string, args: readonly unknown[]) => {
        const call = (given: readonly unknown[]) =>
          Reflect.apply(Reflect.get(target, name) as () => unknown, target, given);
        called.add(`${target.constructor.name}.${name}`);
        const judge = (label: string, given: readonly unknown[], works = false) =>
          pending.push(
            complaint(() => call(given), works).then((what) => {
              if (goesOn(what)) wrong.push(`${name}, ${label}: ${what}`);
            }),
          );
        for (const { label, args: given } of hostileCalls(() => args)) judge(label, given);
        judge('nothing', []);
        judge('the call that works', args, true);
      };
      const options = { kernel: 'mine', dtype: 'f32', blocks: 1, autoSync: true } as const;
      await complaint(() => aicore.launchKernel({ ...options, body: (c) => body(c, n, attempt) }));
      await Promise.all(pending);
    }
    const classes = [AscendC, TPipe, TQue, TBuf, LocalTensor];
    const methods = classes.flatMap((type) => methodsOf(type.prototype).map((name) => `${type.name}.${name}`));
    assert.deepEqual([...called].sort(), methods.sort());
    assert.deepEqual(wrong, []);
  });
  test('every method of Tensor', async () => {
    assert.deepEqual(methodsOf(Tensor.prototype).sort(), Object.keys(TENSOR).sort());
    const wrong: string[] = [];
    for (const [name, row] of Object.entries(TENSOR)) wrong.push(...(await attack(ones(2, 2), name, row)));
    assert.deepEqual(wrong, []);
  });
  test('every method of the reference', async () => {
    const wrong: string[] = [];
    const runner = reference.referenceRunner();
    for (const [name, row] of Object.entries(runnerRows(runner))) wrong.push(...(await attack(runner, name, row)));
    assert.deepEqual(wrong, []);
  });
  for (const name of ['reference', 'cpu'] as const) {
    test(`buffers that shrink or are transferred under their tensors, on ${name}`, async () => {
      const rw = await main.ropewalk({ backend: name, threads: 1 });
      const losses: Record<string, (buffer: Resizable) => void> = {
        shrunk: (buffer) => buffer.resize(4),
        transferred: (buffer) => structuredClone(buffer, { transfer: [buffer] }),
      };
      const uses: Record<string, (x: Tensor<'f32'>) => unknown> = {
        read: (x) => x.read(),
        readNumbers: (x) => x.readNumbers(),
        contiguous: (x) => x.permute([2, 1, 0]).contiguous(),
        upload: (x) => rw.upload(x),
        copyElements: (x) => shared.copyElements(x, ones(2, 1, 4)),
        'copyElements into it': (x) => shared.copyElements(ones(2, 1, 4), x),
        add: (x) => rw.add(x, ones(2, 1, 4)),
        'add into it': (x) => rw.add(ones(2, 1, 4), ones(2, 1, 4), { out: x }),
        argmax: (x) => rw.argmax(x.view([8])),
        embedding: (x) => rw.embedding(ids(0), x.view([2, 4])),
        expertLinear: (x) =>
          rw.expertLinear(ones(1, 2), x.view([2, 2, 2]), tensorFrom(Int32Array.of(1), { shape: [1, 1] })),
        linear: (x) => rw.linear(ones(1, 4), x.view([2, 4]), {}),
        rmsNorm: (x) => rw.rmsNorm(x.view([2, 4]), ones(4), { eps: 1e-5 }),
        selfAttention: (x) => rw.selfAttention(ones(2, 1, 4), x, ones(2, 1, 4), { scale: 1 }),
        route: (x) => rw.route(x.view([2, 4]), { gate: 'softmax', chosen: 2 }),
        swiglu: (x) => rw.swiglu(x, ones(2, 1, 4)),
        gelu: (x) => rw.gelu(x),
        layerNorm: (x) =>
          rw.layerNorm(ones(2, 4), ones(4), { eps: 1e-5, bias: x.view([2, 4]).slice(0, 1, 2).view([4]) }),
        scale: (x) => rw.scale(ones(8, 3), x.view([8])),
        rearrange: (x) => rw.rearrange(x),
        rope: (x) => rw.rope(x, [0, 1], { pairing: 'half', base: 10000 }),
        'rope into it': (x) => rw.rope(ones(2, 1, 4), [0, 1], { pairing: 'half', base: 10000, out: x }),
      };
      for (const [how, lose] of Object.entries(losses)) {
        for (const [what, use] of Object.entries(uses)) {
          const buffer = Reflect.construct(ArrayBuffer, [32, { maxByteLength: 64 }]) as Resizable;
          const x: Tensor<'f32'> = tensorFrom(new Float32Array(buffer), { shape: [2, 1, 4] });
          const fixed: Tensor<'f32'> = tensorFrom(new Float32Array(buffer, 0, 8), { shape: [2, 1, 4] });
          use(x); // it works before the buffer is lost
          lose(buffer);
          for (const tensor of [x, fixed])
            await assert.rejects(
              async () => use(tensor),
              { code: 'DEVICE', message: /transferred or made smaller/ },
              `${what}, ${how}`,
            );
        }
      }
      assert.deepEqual(
        await rw.add(ones(2), ones(2)).read(),
        Float32Array.of(2, 2.25),
        'the backend works on as before',
      );
      rw.dispose();
    });
  }
});

describe('scaling', () => {
  withoutStacks();
  for (const scaling of SCALINGS) {
    for (const recipe of ['float64', 'hf-f32', 'ggml-f32']) {
      test(`${(scaling as { kind: string }).kind} in ${recipe}`, async () => {
        const row: Row = () => [{ ...spec, positions: [0, 1], recipe, scaling: structuredClone(scaling) }];
        const wrong = await attack(main, 'planRope', row);
        // ggml has only three of the scalings.
        assert.deepEqual(
          wrong.filter((line) => !/the call that works: UNSUPPORTED/.test(line)),
          [],
        );
      });
    }
  }
});
