/**
 * The limits of WebNN operators in Chromium 147.0.7727.0 on its CPU: `opSupportLimits()` of the operators in our
 * graphs, by operator and place, as `dtypes, least rank, largest rank`. That browser printed them on 2026-11-22.
 */
export const CHROMIUM_LIMITS: Readonly<Record<string, Readonly<Record<string, readonly [string, number, number]>>>> = {
  abs: { input: ['float32 float16 int32', 0, 8], output: ['float32 float16 int32', 0, 8] },
  add: {
    a: ['float32 float16 int32 int64', 0, 6],
    b: ['float32 float16 int32 int64', 0, 6],
    output: ['float32 float16 int32 int64', 0, 6],
  },
  argMax: { input: ['float32 float16 int32 int8 uint8', 1, 8], output: ['int32 int64', 0, 8] },
  cast: {
    input: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 8],
    output: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 8],
  },
  concat: {
    inputs: ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 1, 8],
    output: ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 1, 8],
  },
  constant: { '': ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 0, 8] },
  div: {
    a: ['float32 float16 int32', 0, 5],
    b: ['float32 float16 int32', 0, 5],
    output: ['float32 float16 int32', 0, 5],
  },
  equal: {
    a: ['float32 float16 int32 int64', 0, 4],
    b: ['float32 float16 int32 int64', 0, 4],
    output: ['uint8', 0, 4],
  },
  erf: { input: ['float32 float16', 0, 5], output: ['float32 float16', 0, 5] },
  exp: { input: ['float32 float16', 0, 8], output: ['float32 float16', 0, 8] },
  expand: {
    input: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 8],
    output: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 8],
  },
  gather: {
    indices: ['int32 uint32 int64', 0, 8],
    input: ['float32 float16 int32 int64 int8 uint8', 1, 8],
    output: ['float32 float16 int32 int64 int8 uint8', 1, 8],
  },
  gemm: {
    a: ['float32 float16', 2, 2],
    b: ['float32 float16', 2, 2],
    c: ['float32 float16', 0, 2],
    output: ['float32 float16', 2, 2],
  },
  identity: {
    input: ['float32 float16 int32 int64 int8 uint8', 0, 8],
    output: ['float32 float16 int32 int64 int8 uint8', 0, 8],
  },
  input: { '': ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 0, 8] },
  isNaN: { a: ['float32 float16', 0, 4], output: ['uint8', 0, 4] },
  lesser: {
    a: ['float32 float16 int32 int64', 0, 4],
    b: ['float32 float16 int32 int64', 0, 4],
    output: ['uint8', 0, 4],
  },
  logicalAnd: { a: ['uint8', 0, 4], b: ['uint8', 0, 4], output: ['uint8', 0, 4] },
  matmul: { a: ['float32 float16', 2, 5], b: ['float32 float16', 2, 5], output: ['float32 float16', 2, 5] },
  max: {
    a: ['float32 float16 int32 int64 int8 uint8', 0, 5],
    b: ['float32 float16 int32 int64 int8 uint8', 0, 5],
    output: ['float32 float16 int32 int64 int8 uint8', 0, 5],
  },
  min: {
    a: ['float32 float16 int32 int64 int8 uint8', 0, 5],
    b: ['float32 float16 int32 int64 int8 uint8', 0, 5],
    output: ['float32 float16 int32 int64 int8 uint8', 0, 5],
  },
  mul: {
    a: ['float32 float16 int32 uint32 int64', 0, 6],
    b: ['float32 float16 int32 uint32 int64', 0, 6],
    output: ['float32 float16 int32 uint32 int64', 0, 6],
  },
  neg: { input: ['float32 float16 int32 int64', 0, 8], output: ['float32 float16 int32 int64', 0, 8] },
  notEqual: {
    a: ['float32 float16 int32 int64', 0, 4],
    b: ['float32 float16 int32 int64', 0, 4],
    output: ['uint8', 0, 4],
  },
  output: { '': ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 0, 8] },
  reduceMax: { input: ['float32 float16 int32 int64', 0, 8], output: ['float32 float16 int32 int64', 0, 8] },
  reduceMean: { input: ['float32 float16', 0, 8], output: ['float32 float16', 0, 8] },
  reduceSum: { input: ['float32 float16 int32 int64', 0, 8], output: ['float32 float16 int32 int64', 0, 8] },
  reshape: {
    input: ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 0, 8],
    output: ['float32 float16 int32 uint32 int64 uint64 int8 uint8 int4', 0, 8],
  },
  scatterND: {
    indices: ['int32', 1, 8],
    input: ['float32 float16 int32 uint32 int64 int8', 1, 8],
    output: ['float32 float16 int32 uint32 int64 int8', 1, 8],
    updates: ['float32 float16 int32 uint32 int64 int8', 1, 8],
  },
  slice: {
    input: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 5],
    output: ['float32 float16 int32 uint32 int64 int8 uint8', 0, 5],
  },
  softmax: { input: ['float32 float16', 1, 6], output: ['float32 float16', 1, 6] },
  split: {
    input: ['float32 float16 int32 int64 int8 uint8', 1, 8],
    outputs: ['float32 float16 int32 int64 int8 uint8', 1, 8],
  },
  sqrt: { input: ['float32 float16', 0, 8], output: ['float32 float16', 0, 8] },
  sub: {
    a: ['float32 float16 int32 int64', 0, 6],
    b: ['float32 float16 int32 int64', 0, 6],
    output: ['float32 float16 int32 int64', 0, 6],
  },
  tanh: { input: ['float32 float16', 0, 8], output: ['float32 float16', 0, 8] },
  transpose: {
    input: ['float32 float16 int32 int64 int8 uint8', 0, 6],
    output: ['float32 float16 int32 int64 int8 uint8', 0, 6],
  },
  where: {
    condition: ['uint8', 0, 5],
    falseValue: ['float32 float16 int32 uint32 int64 int8', 0, 5],
    output: ['float32 float16 int32 uint32 int64 int8', 0, 5],
    trueValue: ['float32 float16 int32 uint32 int64 int8', 0, 5],
  },
};
