/** Golden cases of the operators beside RoPE, with real row lengths and edges where kernels differ. @module */
import {
  BLOCK_FORMATS,
  type BlockFormat,
  type Dtype,
  type FloatDtype,
  f16FromNumber,
  type OpName,
  sizeBytes,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { bitsOf, blockBytes, countElements, type RandomStream } from 'ropewalk/internal';
import { hostTensor, integerTensor } from '../host.js';
import type { GoldenQuestion, Json } from './case.js';
import { distinctRows, GOLDEN_SEED, numbersFor } from './rope.js';

/** Draws a tensor. */
type Filler = (random: RandomStream) => Tensor;

/** The definition of a golden case, from which its inputs are drawn. */
export interface GoldenOperatorDefinition {
  readonly id: string;
  readonly op: Exclude<OpName, 'rope'>;
  readonly about: string;
  readonly separates: readonly string[];
  readonly attributes?: Readonly<Record<string, Json>>;
  readonly inputs: Readonly<Record<string, Filler>>;
}

function uniform(dtype: FloatDtype, shape: readonly number[], low: number, high: number): Filler {
  return (random) => hostTensor(dtype, shape, () => random.uniform(low, high));
}

function distinct(dtype: FloatDtype, shape: readonly number[]): Filler {
  return (random) => distinctRows(dtype, shape, random);
}

/** Takes the f32 numbers as they are. */
function given(shape: readonly number[], values: readonly number[]): Filler {
  return () => tensorFrom(Float32Array.from(values), { shape });
}

/** Makes a row of the integers from −100 to 100. */
const fromMinus100: Filler = () => hostTensor('f32', [1, 201], (n) => n - 100);

/** Draws numbers around one, as activations are after a norm. */
function activations(dtype: FloatDtype, shape: readonly number[]): Filler {
  return uniform(dtype, shape, -2, 2);
}

/** Draws weights as small as a layer's, so that sums stay around one. */
function weights(dtype: FloatDtype, shape: readonly number[]): Filler {
  const size = 2 / Math.sqrt(shape.at(-1)!);
  return uniform(dtype, shape, -size, size);
}

/** Draws the inputs of the gated delta rule: [tokens, keyHeads, heads, d, dv]. */
function delta(dtype: FloatDtype, [tokens, keyHeads, heads, d, dv]: readonly [number, number, number, number, number]) {
  return {
    q: activations(dtype, [tokens, keyHeads, d]),
    k: activations(dtype, [tokens, keyHeads, d]),
    v: activations(dtype, [tokens, heads, dv]),
    decay: activations(dtype, [tokens, heads]),
    rate: uniform(dtype, [heads], -2, -0.1),
    bias: uniform(dtype, [heads], -1, 1),
    beta: activations(dtype, [tokens, heads]),
    state: activations('f32', [heads, d, dv]),
  };
}

/** Draws the inputs of the selective scan: [tokens, groups, heads, d, dv]. */
function scan(dtype: FloatDtype, [tokens, groups, heads, d, dv]: readonly [number, number, number, number, number]) {
  return {
    x: activations(dtype, [tokens, heads, dv]),
    b: activations(dtype, [tokens, groups, d]),
    c: weights(dtype, [tokens, groups, d]),
    dt: activations(dtype, [tokens, heads]),
    rate: uniform(dtype, [heads], -2, -0.1),
    bias: uniform(dtype, [heads], -2, 0),
    state: activations('f32', [heads, d, dv]),
  };
}

/** Draws rows of evenly spaced numbers in [-4, 4), so that no rounding changes which are the largest. */
function spaced(dtype: FloatDtype, shape: readonly number[]): Filler {
  return (random) => {
    const width = shape.at(-1)!;
    const data = newArray(dtype, countElements(shape));
    for (let row = 0; row < data.length; row += width) {
      const steps = Array.from({ length: width }, (_, n) => n);
      for (let n = width - 1; n > 0; n--) {
        const other = random.integer(n + 1);
        [steps[n], steps[other]] = [steps[other]!, steps[n]!];
      }
      for (const [n, step] of steps.entries()) storeNumber(data, dtype, row + n, (8 * step) / width - 4);
    }
    return tensorFrom(data, { dtype, shape });
  };
}

/** Makes rows with the numbers of `rows` at their indices. The rest of each row has numbers up to `fill`. */
function rowsOf(
  dtype: FloatDtype,
  width: number,
  fill: number,
  rows: readonly (readonly number[] | Readonly<Record<number, number>>)[],
): () => Tensor {
  return () => {
    const data = newArray(dtype, rows.length * width);
    for (let n = 0; n < data.length; n++) storeNumber(data, dtype, n, fill - (n % 7) / 8);
    for (const [row, marks] of rows.entries())
      for (const [at, value] of Object.entries(marks)) storeNumber(data, dtype, row * width + Number(at), value);
    return tensorFrom(data, { dtype, shape: [rows.length, width] });
  };
}

/** Draws any bits, NaN with payloads too, as a copy must keep every bit. */
function anyBits(dtype: Dtype, shape: readonly number[]): Filler {
  return (random) => {
    const data = newArray(dtype, countElements(shape));
    const bytes = new Uint8Array(data.buffer, 0, data.length * sizeBytes(dtype));
    for (let n = 0; n < bytes.length; n++) bytes[n] = random.integer(256);
    return tensorFrom(data, { dtype, shape });
  };
}

/** Draws quantised blocks with scales around 2^-7 and any quants. */
function blocks(format: BlockFormat, n: number, k: number): Filler {
  return (random) => {
    const { bytes: unit, scales } = BLOCK_FORMATS[format];
    const bytes = new Uint8Array(blockBytes(format, n * k));
    for (let at = 0; at < bytes.length; at++) bytes[at] = random.integer(256);
    for (let at = 0; at < bytes.length; at += unit) {
      if (format === 'mxfp4') bytes[at] = 120 + random.integer(2);
      for (const place of scales) {
        const scale = f16FromNumber(random.uniform(2 ** -8, 2 ** -7) * (random.integer(2) ? 1 : -1));
        bytes[at + place] = scale & 255;
        bytes[at + place + 1] = scale >> 8;
      }
    }
    return tensorFrom(bytes, { shape: [bytes.length] });
  };
}

/** Defines the case of a block format: f32 activations, and rows of two super-blocks or sixteen blocks. */
function inBlocks(format: BlockFormat, separates: readonly string[]) {
  return {
    about: `A weight in ggml's ${format} blocks.`,
    separates,
    attributes: { weight_shape: [12, 512], format },
    inputs: { x: activations('f32', [2, 512]), weight: blocks(format, 12, 512) },
  };
}

function attention(
  dtype: FloatDtype,
  s: { batch?: number; seq: number; total: number; heads: number; kvHeads: number; d: number; dv?: number },
): Readonly<Record<string, Filler>> {
  const lead = s.batch === undefined ? [] : [s.batch];
  return {
    q: activations(dtype, [...lead, s.seq, s.heads, s.d]),
    k: activations(dtype, [...lead, s.total, s.kvHeads, s.d]),
    v: activations(dtype, [...lead, s.total, s.kvHeads, s.dv ?? s.d]),
  };
}

/** The bits of two f32 NaN. The first NaN of a row wins, and is copied with its bits. */
const QUIET_NAN = 0x7fc12345;
const NEGATIVE_NAN = 0xffc00001;

/** The definitions by operator and id. */
const DEFINITIONS: Readonly<
  Record<GoldenOperatorDefinition['op'], Record<string, Omit<GoldenOperatorDefinition, 'id' | 'op'>>>
> = {
  add: {
    'add-residual': {
      about: 'A residual connection of 2048 dimensions.',
      separates: ['c = a + b | a | b | a − b'],
      inputs: { a: distinct('f32', [3, 2048]), b: distinct('f32', [3, 2048]) },
    },
    'add-f16': {
      about: 'f16 summands of very different size, so that rounding shows; rows of 1001, no multiple of a vector.',
      separates: ['rounding to nearest even | towards zero', 'the last elements of a row'],
      inputs: { a: uniform('f16', [2, 1001], -2048, 2048), b: activations('f16', [2, 1001]) },
    },
    'add-bf16': {
      about: 'bf16 summands.',
      separates: ['one rounding from f32 | truncation'],
      inputs: { a: uniform('bf16', [5, 129], -64, 64), b: activations('bf16', [5, 129]) },
    },
    'add-special': {
      about: 'Infinities, NaN, the largest numbers and the smallest normal ones.',
      separates: ['∞ − ∞ = NaN', 'the largest numbers kept | ∞'],
      inputs: {
        a: given([2, 5], [Infinity, Infinity, -Infinity, NaN, 1, -0, 3e38, 2 ** -126, 1.5e38, -1]),
        b: given([2, 5], [1, -Infinity, -Infinity, 1, NaN, -0, -2.9e38, 2 ** -126, 1.9e38, 1]),
      },
    },
  },
  argmax: {
    'argmax-vocabulary': {
      about: 'Logits of 5003 tokens; the largest is the last, the first, and in between.',
      separates: ['index of the whole row | of a vector lane', 'the last elements of a row'],
      inputs: {
        values(random) {
          const values = activations('f32', [3, 5003])(random);
          for (const at of [5002, 5003, 2 * 5003 + 2501]) storeNumber(values.storage.host!, 'f32', at, 9);
          return values;
        },
      },
    },
    'argmax-ties': {
      about: 'Equal maxima: the first wins; −0 and +0 are equal; a row of −∞ gives 0.',
      separates: ['first | last of equal maxima', '+0 above −0', 'a row of −∞: 0 | −1'],
      inputs: {
        values: rowsOf('bf16', 257, -1, [
          { 3: 5, 200: 5 },
          { 17: 5, 18: 5, 256: 5 },
          { 40: -0, 41: 0 },
          Array.from({ length: 257 }, () => 2),
          Array.from({ length: 257 }, () => -Infinity),
          { 255: 7, 256: 7 },
        ]),
      },
    },
    'argmax-nan': {
      about: 'The first NaN wins, over +∞ too, and is copied with its bits.',
      separates: ['NaN wins | is passed over', 'first | last NaN'],
      inputs: {
        values() {
          const values = rowsOf('f32', 67, 0, [{ 5: Infinity }, { 0: Infinity }, { 66: Infinity }, { 4: Infinity }])();
          const bits = bitsOf(values.storage.host!) as Uint32Array;
          for (const at of [9, 2 * 67]) bits[at] = QUIET_NAN;
          for (const at of [30, 67 + 66, 2 * 67 + 1]) bits[at] = NEGATIVE_NAN;
          return values;
        },
      },
    },
    'argmax-f16-i32': {
      about: 'f16 values, an index of 32 bits.',
      separates: ['i32 | i64 index'],
      attributes: { index_dtype: 'i32' },
      inputs: { values: distinct('f16', [2, 2, 96]) },
    },
  },
  causal_conv: {
    'conv-lfm2': {
      about: "LFM2's short convolution: three rows, gates before and after, a state.",
      separates: [
        'the last column for the token itself | the first',
        'the gate before the sum | after',
        'state | zeros',
      ],
      inputs: {
        x: activations('f32', [5, 96]),
        weight: weights('f32', [96, 3]),
        state: activations('f32', [2, 96]),
        before: activations('f32', [5, 96]),
        after: activations('f32', [5, 96]),
      },
    },
    'conv-silu-bf16': {
      about: 'Four rows, SiLU and a bias, bf16, fewer tokens than rows of the state.',
      separates: ['SiLU | none', 'bias before SiLU | after', 'the state moves by the tokens | is replaced'],
      attributes: { activation: 'silu' },
      inputs: {
        x: activations('bf16', [2, 68]),
        weight: weights('bf16', [68, 4]),
        state: activations('f32', [3, 68]),
        bias: uniform('bf16', [68], -0.5, 0.5),
      },
    },
    'conv-fresh': {
      about: 'A sequence that starts: the state counts as zeros.',
      separates: ['zeros | the state'],
      attributes: { activation: 'silu', fresh: true },
      inputs: {
        x: activations('f32', [2, 10]),
        weight: weights('f32', [10, 4]),
        state: activations('f32', [3, 10]),
      },
    },
  },
  embedding: {
    'embedding-rows': {
      about: 'The first, the last and repeated rows of an f16 table whose elements are any bits.',
      separates: ['row = index | index − 1 | index + 1', 'bits copied | NaN quieted'],
      inputs: { index: () => integerTensor('i64', [6], [0, 36, 5, 5, 36, 0]), weight: anyBits('f16', [37, 96]) },
    },
    'embedding-i32': {
      about: 'Indices of 32 bits; bf16 rows of 33, so that rows start at odd addresses.',
      separates: ['i32 | i64 indices', 'rows aligned | wherever they start'],
      inputs: { index: () => integerTensor('i32', [5], [12, 0, 1, 11, 7]), weight: anyBits('bf16', [13, 33]) },
    },
    'embedding-f32': {
      about: 'One token of an f32 table: decoding.',
      separates: ['one row | all rows'],
      inputs: { index: () => integerTensor('i64', [1], [100]), weight: activations('f32', [101, 64]) },
    },
  },
  expert_linear: {
    'expert-linear': {
      about: 'Three tokens, two experts of four each: W[e]·x of all chosen experts.',
      separates: ['the chosen expert | its place', 'a row for each token and expert | their sum', 'W [n, k] | [k, n]'],
      inputs: {
        x: activations('f32', [3, 128]),
        weight: weights('f32', [4, 128, 128]),
        indices: () => integerTensor('i32', [3, 2], [2, 0, 0, 3, 3, 1]),
      },
    },
    'expert-linear-weighted': {
      about: 'f16 rows of their own for each expert, with a bias; weighted and added up: the end of a MoE layer.',
      separates: ['bias weighted | added once', "each expert's row | the token's", 'f32 | f16 accumulation'],
      inputs: {
        x: activations('f16', [2, 3, 575]),
        weight: weights('f16', [5, 33, 575]),
        indices: () => integerTensor('i32', [2, 3], [4, 1, 0, 1, 2, 4]),
        bias: activations('f16', [5, 33]),
        weights: uniform('f16', [2, 3], 0.1, 1.5),
      },
    },
    'expert-linear-heads': {
      about: "Each head's own matrix, as MLA's latents have them: expert h for head h.",
      separates: ['matrix of the head | of the token'],
      inputs: {
        x: activations('f32', [2, 4, 64]),
        weight: weights('f32', [4, 48, 64]),
        indices: () => integerTensor('i32', [2, 4], [0, 1, 2, 3, 0, 1, 2, 3]),
      },
    },
    'expert-linear-q8_0': {
      about: "Experts in ggml's q8_0 blocks, one after the other; one token: decoding.",
      separates: ['blocks of the expert | of the first', 'signed | unsigned quants'],
      attributes: { weight_shape: [6, 12, 256], format: 'q8_0' },
      inputs: {
        x: activations('f32', [1, 256]),
        weight: blocks('q8_0', 72, 256),
        indices: () => integerTensor('i32', [1, 2], [5, 2]),
        weights: uniform('f32', [1, 2], 0.1, 1.5),
      },
    },
  },
  gated_delta: {
    'delta-qwen3-next': {
      about: 'Two heads of k for four of v, a state: Qwen3-Next.',
      separates: [
        'key head ⌊h / 2⌋ | h mod 2',
        'the correction by the decayed state | by the old one',
        'q and k of length 1 | as they are',
        'output of the new state | of the old one',
      ],
      attributes: { eps: 1e-6 },
      inputs: delta('f32', [6, 2, 4, 16, 12]),
    },
    'delta-tiled-f16': {
      about: 'Heads of k in turns, as GGUF files of Qwen3.5 have them, f16, a sequence that starts.',
      separates: ['key head h mod 3 | ⌊h / 2⌋', 'zeros | the state'],
      attributes: { eps: 1e-6, heads: 'tiled', fresh: true, scale: 1 },
      inputs: delta('f16', [3, 3, 6, 10, 7]),
    },
  },
  geglu: {
    geglu: {
      about: 'A feed-forward layer of 1000 dimensions, tanh: Gemma.',
      separates: ['gate | up goes through GELU', 'gelu | silu'],
      attributes: { approximate: 'tanh' },
      inputs: { gate: uniform('f32', [3, 1000], -6, 6), up: activations('f32', [3, 1000]) },
    },
    'geglu-f16': {
      about: 'f16, erf.',
      separates: ['GELU in f32 | in f16', 'erf | tanh'],
      inputs: { gate: uniform('f16', [2, 333], -12, 12), up: activations('f16', [2, 333]) },
    },
  },
  gelu: {
    gelu: {
      about: 'A feed-forward layer of 1000 dimensions without a gate: erf.',
      separates: ['erf | tanh', 'gelu | silu | relu'],
      inputs: { x: uniform('f32', [3, 1000], -6, 6) },
    },
    'gelu-tanh': {
      about: 'The same with tanh: GPT-NeoX in GGUF, StarCoder 2.',
      separates: ['tanh | erf', '0.044715 · x³ | none'],
      attributes: { approximate: 'tanh' },
      inputs: { x: uniform('f32', [3, 1000], -6, 6) },
    },
    'gelu-large': {
      about: 'From −100 to 100: the result must not be NaN.',
      separates: ['far below 0: 0 | NaN | x', 'far above 0: x | ∞'],
      attributes: { approximate: 'tanh' },
      inputs: { x: fromMinus100 },
    },
    'gelu-f16': {
      about: 'f16 up to 60, whose cubes no f16 holds.',
      separates: ['x³ in f32 | in f16'],
      attributes: { approximate: 'tanh' },
      inputs: { x: uniform('f16', [2, 333], -60, 60) },
    },
  },
  layer_norm: {
    'layer-norm': {
      about: 'Rows of 2048 with a bias, eps 1e-5: GPT-NeoX, StableLM, StarCoder 2.',
      separates: ['mean and variance | root mean square', 'bias | none', 'variance over d | over d − 1'],
      attributes: { eps: 1e-5 },
      inputs: {
        x: uniform('f32', [3, 2048], -1, 3), // The mean is not zero.
        weight: uniform('f32', [2048], 0.25, 1.75),
        bias: activations('f32', [2048]),
      },
    },
    'layer-norm-eps': {
      about: 'Rows so small that eps decides, and one of equal numbers.',
      separates: ['eps within the root | outside', 'eps 1e-5 | 1e-6 | none', 'a row of equal numbers: the bias | NaN'],
      attributes: { eps: 1e-5 },
      inputs: {
        x(random) {
          const x = uniform('f32', [3, 576], -0.004, 0.004)(random);
          (x.storage.host as Float32Array).fill(2, 2 * 576);
          return x;
        },
        weight: uniform('f32', [576], 0.25, 1.75),
        bias: activations('f32', [576]),
      },
    },
    'layer-norm-f16': {
      about: 'f16 values around 300, whose squares no f16 holds; no bias, as Cohere has it.',
      separates: ['squares summed in f32 | in f16', 'no bias | a bias'],
      attributes: { eps: 1e-6 },
      inputs: { x: uniform('f16', [2, 1001], -100, 400), weight: uniform('f16', [1001], 0.25, 1.75) },
    },
    'layer-norm-bf16': {
      about: 'bf16 heads of 128, as a q norm of StableLM 2 has them.',
      separates: ['norm of each head | of the whole row', 'one rounding | rounded before the weight'],
      attributes: { eps: 1e-6 },
      inputs: {
        x: activations('bf16', [2, 3, 4, 128]),
        weight: uniform('bf16', [128], 0.25, 1.75),
        bias: activations('bf16', [128]),
      },
    },
  },
  linear: {
    'linear-f32': {
      about: 'Three tokens of 2048 dimensions, five output rows: y = x·Wᵀ.',
      separates: ['W [n, k] | [k, n]', 'f32 | f16 accumulation'],
      inputs: { x: activations('f32', [3, 2048]), weight: weights('f32', [5, 2048]) },
    },
    'linear-square': {
      about: 'A square weight, which its transpose would fit as well.',
      separates: ['x·Wᵀ | x·W'],
      inputs: { x: activations('f32', [2, 64]), weight: weights('f32', [64, 64]) },
    },
    'linear-bias-f16': {
      about: 'f16 with a bias, a batch in front, and sizes that are no multiple of a tile.',
      separates: ['bias | none', 'f32 | f16 accumulation'],
      inputs: { x: activations('f16', [2, 3, 575]), weight: weights('f16', [33, 575]), bias: activations('f16', [33]) },
    },
    'linear-bf16': {
      about: 'bf16, one token: decoding.',
      separates: ['f32 | bf16 accumulation'],
      inputs: { x: activations('bf16', [1, 576]), weight: weights('bf16', [24, 576]) },
    },
    'linear-q8_0': {
      about: "A weight in ggml's q8_0 blocks.",
      separates: ['signed | unsigned quants', 'scale of the block | of the row'],
      attributes: { weight_shape: [12, 256], format: 'q8_0' },
      inputs: { x: activations('f32', [2, 256]), weight: blocks('q8_0', 12, 256) },
    },
    'linear-q4_0': {
      about: "A weight in ggml's q4_0 blocks, f16 activations.",
      separates: ['low halves first | halves interleaved', 'quants less 8 | as they are'],
      attributes: { weight_shape: [12, 256], format: 'q4_0' },
      inputs: { x: activations('f16', [2, 256]), weight: blocks('q4_0', 12, 256) },
    },
    'linear-iq4_nl': inBlocks('iq4_nl', ['values of the codes | codes less 8']),
    'linear-mxfp4': inBlocks('mxfp4', ['exponent less 127 | less 128']),
    'linear-q4_K': inBlocks('q4_K', ['offset taken away | added', 'scales 4 … 7 with their high bits | without']),
    'linear-q5_K': inBlocks('q5_K', ['fifth bits of the sub-block | of the byte', 'offset taken away | added']),
    'linear-q6_K': inBlocks('q6_K', [
      'a scale for 16 | for 32',
      'signed | unsigned scales',
      'quants less 32 | as they are',
    ]),
    'linear-iq4_xs': inBlocks('iq4_xs', ['scales less 32 | as they are', 'high bits of scales | none']),
  },
  rearrange: {
    'rearrange-transpose': {
      about: 'Heads before tokens to tokens before heads.',
      separates: ['transposed | copied as it lies'],
      attributes: {
        x: { shape: [3, 5, 8], strides: [8, 24, 1], offset: 0 },
        y: { shape: [3, 5, 8], strides: [40, 8, 1], offset: 0 },
      },
      inputs: { x: distinct('f32', [5, 3, 8]), y_initial: distinct('f32', [3, 5, 8]) },
    },
    'rearrange-strided': {
      about: 'From rows with gaps into rows with other gaps; what lies in the gaps of y stays.',
      separates: ['gaps kept | overwritten', 'strides in elements | in bytes'],
      attributes: {
        x: { shape: [4, 6], strides: [9, 1], offset: 2 },
        y: { shape: [4, 6], strides: [1, 5], offset: 1 },
      },
      inputs: { x: anyBits('f16', [40]), y_initial: anyBits('f16', [33]) },
    },
    'rearrange-backwards': {
      about: 'Negative strides on 64-bit integers.',
      separates: ['signed | unsigned strides', 'elements of 8 bytes'],
      attributes: {
        x: { shape: [2, 7], strides: [-7, -1], offset: 13 },
        y: { shape: [2, 7], strides: [7, 1], offset: 0 },
      },
      inputs: {
        x(random) {
          const sign = (): number => (random.integer(2) === 0 ? 1 : -1);
          const values = Array.from({ length: 14 }, () => sign() * random.integer(2 ** 31) * 2 ** 20);
          return integerTensor('i64', [14], values);
        },
        y_initial: () => integerTensor('i64', [14], new Array(14).fill(-1)),
      },
    },
  },
  rms_norm: {
    'rms-norm': {
      about: 'Rows of 2048, eps 1e-5: Llama.',
      separates: ['root mean square | mean and variance', 'weight | 1 + weight | none'],
      attributes: { eps: 1e-5 },
      inputs: {
        x: uniform('f32', [3, 2048], -1, 3), // The mean is not zero, so that a layer norm gives another result.
        weight: uniform('f32', [2048], 0.25, 1.75),
      },
    },
    'rms-norm-eps': {
      about: 'Rows so small that eps decides, and one of zeros.',
      separates: ['eps within the root | outside', 'eps 1e-5 | 1e-6 | none', 'a row of zeros: 0 | NaN'],
      attributes: { eps: 1e-5 },
      inputs: {
        x(random) {
          const x = uniform('f32', [3, 576], -0.004, 0.004)(random);
          (x.storage.host as Float32Array).fill(0, 2 * 576);
          return x;
        },
        weight: uniform('f32', [576], 0.25, 1.75),
      },
    },
    'rms-norm-f16': {
      about: 'f16 values around 300, whose squares no f16 holds.',
      separates: ['squares summed in f32 | in f16'],
      attributes: { eps: 1e-6 },
      inputs: { x: uniform('f16', [2, 1001], -400, 400), weight: uniform('f16', [1001], 0.25, 1.75) },
    },
    'rms-norm-bf16': {
      about: 'bf16 heads of 128, as a q norm has them.',
      separates: ['norm of each head | of the whole row', 'one rounding | rounded before the weight'],
      attributes: { eps: 1e-6 },
      inputs: { x: activations('bf16', [2, 3, 4, 128]), weight: uniform('bf16', [128], 0.25, 1.75) },
    },
  },
  route: {
    'route-softmax': {
      about: 'Eight of 64 experts by softmax, normalised: Qwen3-MoE.',
      separates: ['softmax over all experts | over the chosen', 'weights over their sum | as they are'],
      attributes: { gate: 'softmax', chosen: 8, normalize: true },
      inputs: { logits: spaced('f32', [3, 64]) },
    },
    'route-softmax-of-chosen': {
      about: 'Four of 32 experts by their logits and a softmax over these, bf16: gpt-oss.',
      separates: ['softmax over the chosen | over all experts'],
      attributes: { gate: 'softmax-of-chosen', chosen: 4 },
      inputs: { logits: spaced('bf16', [4, 32]) },
    },
    'route-sigmoid-groups': {
      about: 'DeepSeek-V3: sigmoid, a bias that chooses but does not weigh, three of eight groups by their two best.',
      separates: [
        'weights without the bias | with it',
        "a group's two best | its best | all",
        'scale after the sum | none',
      ],
      attributes: {
        gate: 'sigmoid',
        chosen: 6,
        groups: { count: 8, used: 3, best: 2 },
        normalize: true,
        scale: 2.5,
      },
      inputs: { logits: spaced('f32', [5, 64]), bias: spaced('f32', [64]) },
    },
    'route-groups-f16': {
      about: 'DeepSeek-V2: softmax, two of four groups by their best expert, weights as they are, times 16; f16.',
      separates: ["a group's best | its two best", 'times scale | over their sum'],
      attributes: { gate: 'softmax', chosen: 4, groups: { count: 4, used: 2, best: 1 }, normalize: false, scale: 16 },
      inputs: { logits: spaced('f16', [2, 32]) },
    },
    'route-sparsemixer': {
      about: "PhiMoE: two of 16 experts, each by a softmax over those near it; the first is none of the second's.",
      separates: ['softmax over near experts | over all | over the chosen', 'without the first | with it'],
      attributes: { gate: 'sparsemixer', jitter: 0.2, chosen: 2 },
      inputs: { logits: spaced('f32', [6, 16]) },
    },
    'route-ties': {
      about: 'Equal logits: the lower expert is chosen, and comes first.',
      separates: ['the lower | the higher of equal experts'],
      attributes: { gate: 'softmax', chosen: 3, normalize: true },
      inputs: { logits: given([2, 6], [1, 3, 3, 1, 3, 3, 2, 2, 2, 2, 2, 2]) },
    },
  },
  scale: {
    'scale-embeddings': {
      about: "Embeddings times √2304: Gemma 2's.",
      separates: ['x · factor | x / factor', 'f32 | bf16 factor'],
      attributes: { factor: 48 },
      inputs: { x: activations('f32', [3, 2304]) },
    },
    'scale-softcap': {
      about: "Logits times 0.0625, then 30 · tanh(z / 30): Cohere 2's multiplier, Gemma 2's cap.",
      separates: ['cap after the factor | before', 'cap · tanh(z / cap) | tanh(z) | clipped | none'],
      attributes: { factor: 0.0625, softcap: 30 },
      inputs: { x: uniform('f32', [2, 1003], -1600, 1600) },
    },
    'scale-rows-bf16': {
      about: "A factor for each token, bf16: Ministral 3's temperature.",
      separates: ['the factor of the row | of the first row | of the column'],
      inputs: { x: activations('bf16', [4, 3, 64]), factor: uniform('bf16', [4, 3], 0.5, 2) },
    },
  },
  self_attention: {
    'attention-gqa-past': {
      about: 'Three queries after six past tokens, four heads on two KV heads.',
      separates: [
        'query i sees total − seq + i keys more | i + 1 keys',
        'KV head ⌊h / group⌋ | h mod kv_heads',
        'scale 1/√d | none',
      ],
      attributes: { scale: 0.125, causal: true },
      inputs: attention('f32', { batch: 2, seq: 3, total: 9, heads: 4, kvHeads: 2, d: 64 }),
    },
    'attention-window': {
      about: 'A sliding window of four keys, the own one among them.',
      separates: ['window counts the own key | does not', 'window | none'],
      attributes: { scale: 0.17677669529663687, causal: true, window: 4 },
      inputs: attention('f32', { seq: 6, total: 10, heads: 2, kvHeads: 2, d: 32 }),
    },
    'attention-softcap': {
      about: 'Scores capped by 5 · tanh(score / 5): Gemma 2, with a cap that these scores reach.',
      separates: ['cap before the mask | after', 'cap · tanh(s / cap) | tanh(s) | none'],
      attributes: { scale: 0.5, causal: true, softcap: 5 },
      inputs: attention('f32', { seq: 4, total: 7, heads: 2, kvHeads: 1, d: 64 }),
    },
    'attention-large-scores': {
      about: 'Scores of several hundred: e^score overflows unless the largest is taken off first.',
      separates: ['softmax of score − max | of score'],
      attributes: { scale: 8, causal: true },
      inputs: attention('f32', { seq: 3, total: 5, heads: 2, kvHeads: 2, d: 64 }),
    },
    'attention-mqa-f16': {
      about: 'f16, one KV head for all, values narrower than keys.',
      separates: ['dv | d', 'f32 | f16 accumulation'],
      attributes: { scale: 0.14433756729740643, causal: true },
      inputs: attention('f16', { batch: 2, seq: 2, total: 4, heads: 3, kvHeads: 1, d: 48, dv: 32 }),
    },
    'attention-decode-bf16': {
      about: 'One query over 33 keys, bf16.',
      separates: ['all keys | the last ones', 'scores in f32 | in bf16'],
      attributes: { scale: 0.08838834764831845, causal: true },
      inputs: attention('bf16', { seq: 1, total: 33, heads: 4, kvHeads: 2, d: 128 }),
    },
    'attention-sinks': {
      about: 'A sink for each head, which joins the softmax and has no value: gpt-oss.',
      separates: [
        'sinks in the sum of weights | none',
        'a sink as it is | times the scale',
        "the head's sink | the KV head's",
      ],
      attributes: { scale: 0.125, causal: true, window: 3 },
      inputs: {
        ...attention('f32', { seq: 3, total: 5, heads: 4, kvHeads: 2, d: 64 }),
        sinks: given([4], [0.5, -2, 3, 1]),
      },
    },
    'attention-bidirectional': {
      about: 'Every query sees every key.',
      separates: ['causal | not'],
      attributes: { scale: 0.17677669529663687, causal: false },
      inputs: attention('f32', { seq: 5, total: 5, heads: 2, kvHeads: 2, d: 32 }),
    },
  },
  ssm_scan: {
    'ssm-scan-nemotron': {
      about: 'Two groups for six heads, a skip, a state, and a smallest step: Nemotron-H.',
      separates: [
        'group ⌊h / 3⌋ | h mod 2',
        'output of the new state | of the old one',
        'the state decayed, then added to | added to, then decayed',
        'softplus(dt + bias) | softplus(dt) + bias',
        'a step of at least 0.2 | any step',
        'skip of x | of Δ·x',
      ],
      attributes: { limits: [0.2, 1] },
      inputs: { ...scan('f32', [6, 2, 6, 16, 12]), skip: uniform('f32', [6], 0.5, 1.5) },
    },
    'ssm-scan-f16': {
      about: 'One group, f16, no skip, a sequence that starts: Falcon-H1 without D.',
      separates: ['zeros | the state', 'state in f32 | f16'],
      attributes: { fresh: true },
      inputs: scan('f16', [5, 1, 4, 10, 7]),
    },
  },
  swiglu: {
    swiglu: {
      about: 'A feed-forward layer of 1000 dimensions.',
      separates: ['gate | up goes through the sigmoid', 'silu | gelu | sigmoid'],
      inputs: { gate: uniform('f32', [3, 1000], -6, 6), up: activations('f32', [3, 1000]) },
    },
    'swiglu-large-gates': {
      about: 'Gates from −100 to 100: e^−gate overflows, and the result must not be NaN.',
      separates: ['large negative gates: 0 | NaN', 'large positive gates: gate · up | ∞'],
      inputs: { gate: fromMinus100, up: activations('f32', [1, 201]) },
    },
    'swiglu-clamped': {
      about: 'The clamped form of gpt-oss: limit 7, alpha 1.702, up + 1.',
      separates: ['gate clamped above | on both sides | not', 'alpha inside the sigmoid | none', 'up + 1 | up'],
      attributes: { limit: 7, alpha: 1.702, offset: 1 },
      inputs: { gate: uniform('f32', [3, 1000], -12, 12), up: uniform('f32', [3, 1000], -12, 12) },
    },
    'swiglu-sigmoid': {
      about: "Without the factor g: GLU, and Qwen3-Next's gate of attention.",
      separates: ['up · sigmoid(gate) | up · silu(gate)', 'gate | up goes through the sigmoid'],
      attributes: { activation: 'sigmoid' },
      inputs: { gate: uniform('f32', [3, 200], -20, 20), up: activations('f32', [3, 200]) },
    },
    'swiglu-relu': {
      about: "Up times the positive part of the gate: ReGLU, and Nemotron's squared ReLU where both are one.",
      separates: ['max(gate, 0) | silu(gate)', 'gate | up goes through the ReLU'],
      attributes: { activation: 'relu' },
      inputs: { gate: uniform('f32', [3, 200], -20, 20), up: activations('f32', [3, 200]) },
    },
    'swiglu-f16': {
      about: 'f16.',
      separates: ['sigmoid in f32 | in f16'],
      inputs: { gate: uniform('f16', [2, 333], -12, 12), up: activations('f16', [2, 333]) },
    },
    'swiglu-bf16': {
      about: 'bf16.',
      separates: ['one rounding | several'],
      inputs: { gate: uniform('bf16', [2, 333], -12, 12), up: activations('bf16', [2, 333]) },
    },
  },
  xielu: {
    xielu: {
      about: 'A feed-forward layer of 1000 dimensions without a gate: Apertus.',
      separates: ['x² above 0 | below', 'e^x − 1 − x below 0 | e^x − 1', 'beta · x | none below 0'],
      attributes: { positive: 0.7, negative: 1.3, beta: 0.4 },
      inputs: { x: uniform('f32', [3, 1000], -6, 6) },
    },
    'xielu-f16': {
      about: 'f16 from −60 to 60, whose squares need f32.',
      separates: ['f32 | f16 arithmetic', 'far below 0: −x − 1 | NaN'],
      inputs: { x: uniform('f16', [2, 333], -60, 60) },
    },
  },
};

/** The golden cases of the operators beside RoPE. */
export const GOLDEN_OPERATORS: readonly GoldenOperatorDefinition[] = /* @__PURE__ */ Object.freeze(
  /* @__PURE__ */ Object.entries(DEFINITIONS).flatMap(([op, cases]) =>
    Object.entries(cases).map(([id, d]) => ({ id, op: op as GoldenOperatorDefinition['op'], ...d })),
  ),
);

/** Makes the inputs of an operator's case. */
export function goldenOperatorQuestion(d: GoldenOperatorDefinition, seed = GOLDEN_SEED): GoldenQuestion {
  const inputs = new Map(Object.entries(d.inputs).map(([name, fill]) => [name, fill(numbersFor(seed, d.id, name))]));
  return { id: d.id, op: d.op, about: d.about, separates: d.separates, attributes: d.attributes ?? {}, inputs };
}
