/**
 * Golden cases of the other eight operators: real row lengths, and the edges where implementations part ways.
 *
 * @module
 */
import {
  BLOCK_BYTES,
  type BlockFormat,
  type FloatDtype,
  f16FromNumber,
  type OpName,
  sizeBytes,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { bitsOf, countElements, newArray, type RandomStream, storeNumber } from 'ropewalk/backend';
import { type GoldenQuestion, integerTensor, type Json } from './case.js';
import { distinctRows, numbersFor, uniformTensor } from './data.js';
import { GOLDEN_SEED, type GoldenChoices } from './rope.js';

/** What draws a tensor of a case by its name. */
type Draw = (name: string) => RandomStream;

/** What a golden case of an operator is made from. */
export interface GoldenOperatorDefinition {
  readonly id: string;
  readonly op: Exclude<OpName, 'rope'>;
  readonly about: string;
  readonly separates: readonly string[];
  readonly attributes?: Readonly<Record<string, Json>>;
  readonly inputs: (draw: Draw) => Record<string, Tensor>;
}

/** Numbers around one, as activations after a norm are. */
const activations = <D extends FloatDtype>(draw: Draw, name: string, dtype: D, shape: readonly number[]): Tensor<D> =>
  uniformTensor(dtype, shape, draw(name), -2, 2);
/** Weights as small as a layer's, so that sums stay around one. */
const weights = <D extends FloatDtype>(draw: Draw, name: string, dtype: D, shape: readonly number[]): Tensor<D> =>
  uniformTensor(dtype, shape, draw(name), -2 / Math.sqrt(shape.at(-1)!), 2 / Math.sqrt(shape.at(-1)!));

/** Rows of given numbers, the rest of each row filled from below. */
function rowsOf(
  dtype: FloatDtype,
  width: number,
  fill: number,
  rows: readonly (readonly [at: number, value: number])[][],
): Tensor {
  const data = newArray(dtype, rows.length * width);
  for (let n = 0; n < data.length; n++) storeNumber(data, dtype, n, fill - (n % 7) / 8);
  for (const [row, marks] of rows.entries())
    for (const [at, value] of marks) storeNumber(data, dtype, row * width + at, value);
  return tensorFrom(data, { dtype, shape: [rows.length, width] });
}

/** Any bits at all, NaN with payloads among them: what is copied must arrive as it was. */
function anyBits(dtype: Tensor['dtype'], shape: readonly number[], random: RandomStream): Tensor {
  const data = newArray(dtype, countElements(shape));
  const bytes = new Uint8Array(data.buffer, 0, data.length * sizeBytes(dtype));
  for (let n = 0; n < bytes.length; n++) bytes[n] = random.integer(256);
  return tensorFrom(data, { dtype, shape });
}

/** Quantised blocks with scales around 2^-7 and any quants, the extreme ones too. */
function blockBytes(format: BlockFormat, n: number, k: number, random: RandomStream): Tensor<'u8'> {
  const unit = BLOCK_BYTES[format];
  const bytes = new Uint8Array(((n * k) / 32) * unit);
  for (let at = 0; at < bytes.length; at++) bytes[at] = random.integer(256);
  for (let at = 0; at < bytes.length; at += unit) {
    const scale = f16FromNumber(random.uniform(2 ** -8, 2 ** -7) * (random.integer(2) ? 1 : -1));
    bytes[at] = scale & 255;
    bytes[at + 1] = scale >> 8;
  }
  return tensorFrom(bytes, { shape: [bytes.length] }) as Tensor<'u8'>;
}

const attention = (
  dtype: FloatDtype,
  s: { batch?: number; seq: number; total: number; heads: number; kvHeads: number; d: number; dv?: number },
): ((draw: Draw) => Record<string, Tensor>) => {
  const lead = s.batch === undefined ? [] : [s.batch];
  return (draw) => ({
    q: activations(draw, 'q', dtype, [...lead, s.seq, s.heads, s.d]),
    k: activations(draw, 'k', dtype, [...lead, s.total, s.kvHeads, s.d]),
    v: activations(draw, 'v', dtype, [...lead, s.total, s.kvHeads, s.dv ?? s.d]),
  });
};

/** Float32 NaN with bits of its own; the first of a row wins, and is copied as it is. */
const NAN_BITS = [0x7fc12345, 0xffc00001] as const;

/**
 * The golden cases of the other eight operators.
 */
export const GOLDEN_OPERATORS: readonly GoldenOperatorDefinition[] = /* @__PURE__ */ Object.freeze<
  GoldenOperatorDefinition[]
>([
  {
    id: 'add-residual',
    op: 'add',
    about: 'A residual connection of 2048 dimensions.',
    separates: ['c = a + b | a | b | a − b'],
    inputs: (draw) => ({ a: distinctRows('f32', [3, 2048], draw('a')), b: distinctRows('f32', [3, 2048], draw('b')) }),
  },
  {
    id: 'add-f16',
    op: 'add',
    about: 'f16 summands of very different size, so that rounding shows; rows of 1001, no multiple of a vector.',
    separates: ['rounding to nearest even | towards zero', 'the last elements of a row'],
    inputs: (draw) => ({
      a: uniformTensor('f16', [2, 1001], draw('a'), -2048, 2048),
      b: activations(draw, 'b', 'f16', [2, 1001]),
    }),
  },
  {
    id: 'add-bf16',
    op: 'add',
    about: 'bf16 summands.',
    separates: ['one rounding from f32 | truncation'],
    inputs: (draw) => ({
      a: uniformTensor('bf16', [5, 129], draw('a'), -64, 64),
      b: activations(draw, 'b', 'bf16', [5, 129]),
    }),
  },
  {
    id: 'add-special',
    op: 'add',
    about: 'Infinities, NaN, the largest numbers and the smallest normal ones.',
    separates: ['∞ − ∞ = NaN', 'the largest numbers kept | ∞'],
    inputs: () => ({
      a: tensorFrom(Float32Array.of(Infinity, Infinity, -Infinity, NaN, 1, -0, 3e38, 2 ** -126, 1.5e38, -1), {
        shape: [2, 5],
      }),
      b: tensorFrom(Float32Array.of(1, -Infinity, -Infinity, 1, NaN, -0, -2.9e38, 2 ** -126, 1.9e38, 1), {
        shape: [2, 5],
      }),
    }),
  },
  {
    id: 'argmax-vocabulary',
    op: 'argmax',
    about: 'Logits of 5003 tokens; the largest is the last, the first, and in between.',
    separates: ['index of the whole row | of a vector lane', 'the last elements of a row'],
    inputs: (draw) => {
      const values = activations(draw, 'values', 'f32', [3, 5003]);
      for (const at of [5002, 5003, 2 * 5003 + 2501]) storeNumber(values.storage.host!, 'f32', at, 9);
      return { values };
    },
  },
  {
    id: 'argmax-ties',
    op: 'argmax',
    about: 'Equal maxima: the first wins; −0 and +0 are equal; a row of −∞ gives 0.',
    separates: ['first | last of equal maxima', '+0 above −0', 'a row of −∞: 0 | −1'],
    inputs: () => ({
      values: rowsOf('bf16', 257, -1, [
        [
          [3, 5],
          [200, 5],
        ],
        [
          [17, 5],
          [18, 5],
          [256, 5],
        ],
        [
          [40, -0],
          [41, 0],
        ],
        Array.from({ length: 257 }, (_, n): [number, number] => [n, 2]),
        Array.from({ length: 257 }, (_, n): [number, number] => [n, -Infinity]),
        [
          [255, 7],
          [256, 7],
        ],
      ]),
    }),
  },
  {
    id: 'argmax-nan',
    op: 'argmax',
    about: 'The first NaN wins, over +∞ too, and is copied with its bits.',
    separates: ['NaN wins | is passed over', 'first | last NaN'],
    inputs: () => {
      const values = rowsOf('f32', 67, 0, [[[5, Infinity]], [[0, Infinity]], [[66, Infinity]], [[4, Infinity]]]);
      const bits = bitsOf(values.storage.host!) as Uint32Array;
      for (const [at, nan] of [
        [9, 0],
        [30, 1],
        [67 + 66, 1],
        [2 * 67, 0],
        [2 * 67 + 1, 1],
      ] as const)
        bits[at] = NAN_BITS[nan]!;
      return { values };
    },
  },
  {
    id: 'argmax-f16-i32',
    op: 'argmax',
    about: 'f16 values, an index of 32 bits.',
    separates: ['i32 | i64 index'],
    attributes: { index_dtype: 'i32' },
    inputs: (draw) => ({ values: distinctRows('f16', [2, 2, 96], draw('values')) }),
  },
  {
    id: 'embedding-rows',
    op: 'embedding',
    about: 'The first, the last and repeated rows of an f16 table whose elements are any bits.',
    separates: ['row = index | index − 1 | index + 1', 'bits copied | NaN quieted'],
    inputs: (draw) => ({
      index: integerTensor('i64', [6], [0, 36, 5, 5, 36, 0]),
      weight: anyBits('f16', [37, 96], draw('weight')),
    }),
  },
  {
    id: 'embedding-i32',
    op: 'embedding',
    about: 'Indices of 32 bits; bf16 rows of 33, so that rows start at odd addresses.',
    separates: ['i32 | i64 indices', 'rows aligned | wherever they start'],
    inputs: (draw) => ({
      index: integerTensor('i32', [5], [12, 0, 1, 11, 7]),
      weight: anyBits('bf16', [13, 33], draw('weight')),
    }),
  },
  {
    id: 'embedding-f32',
    op: 'embedding',
    about: 'One token of an f32 table: decoding.',
    separates: ['one row | all rows'],
    inputs: (draw) => ({
      index: integerTensor('i64', [1], [100]),
      weight: activations(draw, 'weight', 'f32', [101, 64]),
    }),
  },
  {
    id: 'linear-f32',
    op: 'linear',
    about: 'Three tokens of 2048 dimensions, five output rows: y = x·Wᵀ.',
    separates: ['W [n, k] | [k, n]', 'f32 | f16 accumulation'],
    inputs: (draw) => ({
      x: activations(draw, 'x', 'f32', [3, 2048]),
      weight: weights(draw, 'weight', 'f32', [5, 2048]),
    }),
  },
  {
    id: 'linear-square',
    op: 'linear',
    about: 'A square weight, which its transpose would fit as well.',
    separates: ['x·Wᵀ | x·W'],
    inputs: (draw) => ({ x: activations(draw, 'x', 'f32', [2, 64]), weight: weights(draw, 'weight', 'f32', [64, 64]) }),
  },
  {
    id: 'linear-bias-f16',
    op: 'linear',
    about: 'f16 with a bias, a batch in front, and sizes that are no multiple of a tile.',
    separates: ['bias | none', 'f32 | f16 accumulation'],
    inputs: (draw) => ({
      x: activations(draw, 'x', 'f16', [2, 3, 575]),
      weight: weights(draw, 'weight', 'f16', [33, 575]),
      bias: activations(draw, 'bias', 'f16', [33]),
    }),
  },
  {
    id: 'linear-bf16',
    op: 'linear',
    about: 'bf16, one token: decoding.',
    separates: ['f32 | bf16 accumulation'],
    inputs: (draw) => ({
      x: activations(draw, 'x', 'bf16', [1, 576]),
      weight: weights(draw, 'weight', 'bf16', [24, 576]),
    }),
  },
  {
    id: 'linear-q8_0',
    op: 'linear',
    about: "A weight in ggml's q8_0 blocks.",
    separates: ['signed | unsigned quants', 'scale of the block | of the row'],
    attributes: { weight_shape: [12, 256], format: 'q8_0' },
    inputs: (draw) => ({
      x: activations(draw, 'x', 'f32', [2, 256]),
      weight: blockBytes('q8_0', 12, 256, draw('weight')),
    }),
  },
  {
    id: 'linear-q4_0',
    op: 'linear',
    about: "A weight in ggml's q4_0 blocks, f16 activations.",
    separates: ['low halves first | halves by turns', 'quants less 8 | as they are'],
    attributes: { weight_shape: [12, 256], format: 'q4_0' },
    inputs: (draw) => ({
      x: activations(draw, 'x', 'f16', [2, 256]),
      weight: blockBytes('q4_0', 12, 256, draw('weight')),
    }),
  },
  {
    id: 'rearrange-transpose',
    op: 'rearrange',
    about: 'Heads before tokens to tokens before heads.',
    separates: ['transposed | copied as it lies'],
    attributes: {
      x: { shape: [3, 5, 8], strides: [8, 24, 1], offset: 0 },
      y: { shape: [3, 5, 8], strides: [40, 8, 1], offset: 0 },
    },
    inputs: (draw) => ({
      x: distinctRows('f32', [5, 3, 8], draw('x')),
      y_initial: distinctRows('f32', [3, 5, 8], draw('y_initial')),
    }),
  },
  {
    id: 'rearrange-strided',
    op: 'rearrange',
    about: 'From rows with gaps into rows with other gaps; what lies in the gaps of y stays.',
    separates: ['gaps kept | overwritten', 'strides in elements | in bytes'],
    attributes: {
      x: { shape: [4, 6], strides: [9, 1], offset: 2 },
      y: { shape: [4, 6], strides: [1, 5], offset: 1 },
    },
    inputs: (draw) => ({ x: anyBits('f16', [40], draw('x')), y_initial: anyBits('f16', [33], draw('y_initial')) }),
  },
  {
    id: 'rearrange-backwards',
    op: 'rearrange',
    about: 'Negative strides on 64-bit integers.',
    separates: ['signed | unsigned strides', 'elements of 8 bytes'],
    attributes: {
      x: { shape: [2, 7], strides: [-7, -1], offset: 13 },
      y: { shape: [2, 7], strides: [7, 1], offset: 0 },
    },
    inputs: (draw) => {
      const random = draw('x');
      const values = Array.from(
        { length: 14 },
        () => (random.integer(2) === 0 ? 1 : -1) * random.integer(2 ** 31) * 2 ** 20,
      );
      return { x: integerTensor('i64', [14], values), y_initial: integerTensor('i64', [14], new Array(14).fill(-1)) };
    },
  },
  {
    id: 'rms-norm',
    op: 'rms_norm',
    about: 'Rows of 2048, eps 1e-5: Llama.',
    separates: ['root mean square | mean and variance', 'weight | 1 + weight | none'],
    attributes: { eps: 1e-5 },
    inputs: (draw) => ({
      x: uniformTensor('f32', [3, 2048], draw('x'), -1, 3), // the mean is not zero: a layer norm would take it off
      weight: uniformTensor('f32', [2048], draw('weight'), 0.25, 1.75),
    }),
  },
  {
    id: 'rms-norm-eps',
    op: 'rms_norm',
    about: 'Rows so small that eps decides, and one of zeros.',
    separates: ['eps within the root | outside', 'eps 1e-5 | 1e-6 | none', 'a row of zeros: 0 | NaN'],
    attributes: { eps: 1e-5 },
    inputs: (draw) => {
      const x = uniformTensor('f32', [3, 576], draw('x'), -0.004, 0.004);
      (x.storage.host as Float32Array).fill(0, 2 * 576);
      return { x, weight: uniformTensor('f32', [576], draw('weight'), 0.25, 1.75) };
    },
  },
  {
    id: 'rms-norm-f16',
    op: 'rms_norm',
    about: 'f16 values around 300, whose squares no f16 holds.',
    separates: ['squares summed in f32 | in f16'],
    attributes: { eps: 1e-6 },
    inputs: (draw) => ({
      x: uniformTensor('f16', [2, 1001], draw('x'), -400, 400),
      weight: uniformTensor('f16', [1001], draw('weight'), 0.25, 1.75),
    }),
  },
  {
    id: 'rms-norm-bf16',
    op: 'rms_norm',
    about: 'bf16 heads of 128, as a q norm has them.',
    separates: ['norm of each head | of the whole row', 'one rounding | rounded before the weight'],
    attributes: { eps: 1e-6 },
    inputs: (draw) => ({
      x: activations(draw, 'x', 'bf16', [2, 3, 4, 128]),
      weight: uniformTensor('bf16', [128], draw('weight'), 0.25, 1.75),
    }),
  },
  {
    id: 'attention-gqa-past',
    op: 'self_attention',
    about: 'Three queries after six past tokens, four heads on two KV heads.',
    separates: [
      'query i sees total − seq + i keys more | i + 1 keys',
      'KV head ⌊h / group⌋ | h mod kv_heads',
      'scale 1/√d | none',
    ],
    attributes: { scale: 0.125, causal: true },
    inputs: attention('f32', { batch: 2, seq: 3, total: 9, heads: 4, kvHeads: 2, d: 64 }),
  },
  {
    id: 'attention-window',
    op: 'self_attention',
    about: 'A sliding window of four keys, the own one among them.',
    separates: ['window counts the own key | does not', 'window | none'],
    attributes: { scale: 0.17677669529663687, causal: true, window: 4 },
    inputs: attention('f32', { seq: 6, total: 10, heads: 2, kvHeads: 2, d: 32 }),
  },
  {
    id: 'attention-softcap',
    op: 'self_attention',
    about: 'Scores capped by 5 · tanh(score / 5): Gemma 2, with a cap that these scores reach.',
    separates: ['cap before the mask | after', 'cap · tanh(s / cap) | tanh(s) | none'],
    attributes: { scale: 0.5, causal: true, softcap: 5 },
    inputs: attention('f32', { seq: 4, total: 7, heads: 2, kvHeads: 1, d: 64 }),
  },
  {
    id: 'attention-large-scores',
    op: 'self_attention',
    about: 'Scores of several hundred: e^score overflows unless the largest is taken off first.',
    separates: ['softmax of score − max | of score'],
    attributes: { scale: 8, causal: true },
    inputs: attention('f32', { seq: 3, total: 5, heads: 2, kvHeads: 2, d: 64 }),
  },
  {
    id: 'attention-mqa-f16',
    op: 'self_attention',
    about: 'f16, one KV head for all, values narrower than keys.',
    separates: ['dv | d', 'f32 | f16 accumulation'],
    attributes: { scale: 0.14433756729740643, causal: true },
    inputs: attention('f16', { batch: 2, seq: 2, total: 4, heads: 3, kvHeads: 1, d: 48, dv: 32 }),
  },
  {
    id: 'attention-decode-bf16',
    op: 'self_attention',
    about: 'One query over 33 keys, bf16.',
    separates: ['all keys | the last ones', 'scores in f32 | in bf16'],
    attributes: { scale: 0.08838834764831845, causal: true },
    inputs: attention('bf16', { seq: 1, total: 33, heads: 4, kvHeads: 2, d: 128 }),
  },
  {
    id: 'attention-bidirectional',
    op: 'self_attention',
    about: 'Every query sees every key.',
    separates: ['causal | not'],
    attributes: { scale: 0.17677669529663687, causal: false },
    inputs: attention('f32', { seq: 5, total: 5, heads: 2, kvHeads: 2, d: 32 }),
  },
  {
    id: 'swiglu',
    op: 'swiglu',
    about: 'A feed-forward layer of 1000 dimensions.',
    separates: ['gate | up goes through the sigmoid', 'silu | gelu | sigmoid'],
    inputs: (draw) => ({
      gate: uniformTensor('f32', [3, 1000], draw('gate'), -6, 6),
      up: activations(draw, 'up', 'f32', [3, 1000]),
    }),
  },
  {
    id: 'swiglu-large-gates',
    op: 'swiglu',
    about: 'Gates from −100 to 100: e^−gate overflows, and the result must not be NaN.',
    separates: ['large negative gates: 0 | NaN', 'large positive gates: gate · up | ∞'],
    inputs: (draw) => ({
      gate: tensorFrom(
        Float32Array.from({ length: 201 }, (_, n) => n - 100),
        { shape: [1, 201] },
      ),
      up: activations(draw, 'up', 'f32', [1, 201]),
    }),
  },
  {
    id: 'swiglu-f16',
    op: 'swiglu',
    about: 'f16.',
    separates: ['sigmoid in f32 | in f16'],
    inputs: (draw) => ({
      gate: uniformTensor('f16', [2, 333], draw('gate'), -12, 12),
      up: activations(draw, 'up', 'f16', [2, 333]),
    }),
  },
  {
    id: 'swiglu-bf16',
    op: 'swiglu',
    about: 'bf16.',
    separates: ['one rounding | several'],
    inputs: (draw) => ({
      gate: uniformTensor('bf16', [2, 333], draw('gate'), -12, 12),
      up: activations(draw, 'up', 'bf16', [2, 333]),
    }),
  },
]);

/**
 * Makes the inputs of an operator's case.
 *
 * @param d - its definition
 * @param choices - the seed
 * @returns everything but outputs and tolerance
 */
export function goldenOperatorQuestion(d: GoldenOperatorDefinition, choices: GoldenChoices = {}): GoldenQuestion {
  const { seed = GOLDEN_SEED } = choices;
  const inputs = new Map(Object.entries(d.inputs((name) => numbersFor(seed, d.id, name))));
  return { id: d.id, op: d.op, about: d.about, separates: d.separates, attributes: d.attributes ?? {}, inputs };
}
