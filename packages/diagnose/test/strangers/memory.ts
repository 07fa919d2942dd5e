/** Wrong kernels: memory. What was not written, written twice, or read from elsewhere. @module */
import { type Call, type RowAt, rotationOf, type Stranger } from './kernel.js';
import { copyRow, each, f, type Loops, right, rotateRow, stranger, turn } from './loops.js';

/** A bit of one element flips. */
function oneElement(call: Loops): void {
  right(call);
  const at = call.at(0, call.seq >> 1, 1) + 5;
  call.y[at] = call.round(-2 * call.y[at]! + 0.5);
}

/** A missing barrier: one token's norm was read too early, and the token is NaN. */
function tokenOfNaN(call: Loops): void {
  right(call);
  for (let h = 0; h < call.heads; h++) {
    const at = call.at(0, call.seq - 3, h);
    call.y.fill(Number.NaN, at, at + call.headDim);
  }
}

/** NaN in one head of one token. */
function headOfNaN(call: Loops): void {
  right(call);
  const at = call.at(0, 2, call.heads - 1);
  call.y.fill(Number.NaN, at, at + call.headDim);
}

/** Whole vectors only: what is left of each half when `width` does not divide it stays as the buffer was. */
function vectorTail(call: Loops, width: number): void {
  const whole = call.pairs - (call.pairs % width);
  each(call, (row, b, s) => {
    for (let j = 0; j < whole; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, call.angle(b, s, j));
    }
  });
}

/** The last of the pairs and the copied dimensions are never written. */
function tailOfPartial(call: Loops): void {
  each(call, (row, b, s) => {
    for (let j = 0; j < 15; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, call.angle(b, s, j));
    }
    for (let i = call.rotaryDim; i < call.headDim; i++) call.y[row + i] = call.x[row + i]!;
  });
}

/** Heads are taken `step` at a time, and the rest of an odd count is never reached. */
function headsInSteps(call: Loops, step: number): void {
  const whole = call.heads - (call.heads % step);
  each(call, (row, b, s, h) => {
    if (h < whole) rotateRow(call, row, row, b, s);
  });
}

/** Tokens are taken `tile` at a time, and the last part of a tile is never reached. */
function tokensInTiles(call: Loops, tile: number): void {
  const whole = call.seq - (call.seq % tile);
  each(call, (row, b, s) => {
    if (s < whole) rotateRow(call, row, row, b, s);
  });
}

/** The launch forgot the batch. */
function firstBatchOnly(call: Loops): void {
  each(call, (row, b, s) => {
    if (b === 0) rotateRow(call, row, row, b, s);
  });
}

/** Shared memory is used again for the next head before all have read: some heads hold the next head's rotation. */
function nextHeadRace(call: Loops): void {
  each(call, (row, b, s, h) => {
    const late = (s * 7 + h * 3) % 5 === 0 && h + 1 < call.heads;
    rotateRow(call, row, late ? call.at(b, s, h + 1) : row, b, s);
  });
}

/** The copy of the whole head lands after the rotation in some heads. */
function lateCopy(call: Loops): void {
  each(call, (row, b, s, h) => {
    if ((s * 5 + h) % 7 === 3) copyRow(call, row);
    else rotateRow(call, row, row, b, s);
  });
}

/** A few pairs read a member that was already overwritten in place. */
function overwrittenSometimes(call: Loops): void {
  right(call);
  each(call, (row, b, s, h) => {
    if ((s + 2 * h) % 6 !== 1) return;
    for (let j = 0; j < call.pairs; j += 9) {
      const [i0, i1] = call.from(j);
      const angle = call.angle(b, s, j);
      const [c, sn] = [f(Math.cos(angle) * call.magnitude), f(Math.sin(angle) * call.magnitude)];
      call.y[row + i1] = call.round(f(f(call.y[row + i0]! * sn) + f(call.x[row + i1]! * c)));
    }
  });
}

/** The rows of two tokens change places. */
function tokensSwapped(call: Loops): void {
  each(call, (row, b, s, h) => {
    const other = s === 3 ? 4 : s === 4 ? 3 : s;
    rotateRow(call, row, call.at(b, other, h), b, other);
  });
}

/** Heads are written in the reverse order. */
function headsReversed(call: Loops): void {
  each(call, (row, b, s, h) => rotateRow(call, row, call.at(b, s, call.heads - 1 - h), b, s));
}

/** Two batches change places. */
function batchesSwapped(call: Loops): void {
  each(call, (row, b, s, h) => rotateRow(call, row, call.at(1 - b, s, h), 1 - b, s));
}

/** k is walked with the token stride of q, which has `group` times the heads; rows past the end are not touched. */
function strideOfQueries(call: Loops, group: number): void {
  const rows = call.seq * call.heads;
  for (let s = 0; s < call.seq; s++)
    for (let h = 0; h < call.heads; h++) {
      const row = s * call.heads * group + h;
      if (row < rows) rotateRow(call, row * call.headDim, row * call.headDim, 0, s);
    }
}

/** The batch stride is 0 on the reading side. */
function batchStrideZero(call: Loops): void {
  each(call, (row, b, s, h) => rotateRow(call, row, call.at(0, s, h), b, s));
}

/** The head stride is 0 on the reading side: every head is head 0. */
function headStrideZero(call: Loops): void {
  each(call, (row, b, s) => rotateRow(call, row, call.at(b, s, 0), b, s));
}

/** Reads of tokens past `valid` are clamped to the last valid one; their positions are right. */
function readsClamped(call: Loops, valid: number): void {
  each(call, (row, b, s, h) => rotateRow(call, row, call.at(b, Math.min(s, valid - 1), h), b, s));
}

/** Everything is written one element too far. */
function oneElementTooFar(call: Loops): void {
  right(call);
  call.y.copyWithin(1, 0, call.y.length - 1);
  call.y[0] = 0;
}

/** A tile of 8 rows with 4 elements of padding beside each, which its reader forgets. */
function paddingForgotten(call: Loops): void {
  right(call);
  const { headDim, y } = call;
  for (let start = 0; start < y.length; start += 8 * headDim) {
    const tile = new Float64Array(8 * (headDim + 4)).fill(0.75);
    for (let n = 0; n < 8; n++) tile.set(y.subarray(start).subarray(n * headDim, (n + 1) * headDim), n * (headDim + 4));
    y.set(tile.subarray(0, Math.min(8 * headDim, y.length - start)), start);
  }
}

/** int8 with a scale for each head of each token, which is read with that of the next head. */
function otherScale(call: Loops): void {
  right(call);
  const { headDim, heads, y } = call;
  const size = (r: number): number =>
    y.subarray(r * headDim, (r + 1) * headDim).reduce((most, one) => Math.max(most, Math.abs(one)), 0);
  const scales = Array.from({ length: y.length / headDim }, (_, r) => f(size(r) / 127));
  y.forEach((value, n) => {
    const r = Math.floor(n / headDim);
    y[n] = f(Math.round(value / scales[r]!) * scales[r - (r % heads) + ((r + 1) % heads)]!);
  });
}

/** The kernel never ran: y is a copy of x. */
function nothingRan(call: Loops): void {
  call.y.set(call.x);
}

/** x times a constant, as if only a scale of queries ran. */
function onlyScaled(call: Loops): void {
  const scale = f(1 / Math.sqrt(call.headDim));
  for (let i = 0; i < call.x.length; i++) call.y[i] = call.round(f(call.x[i]! * scale));
}

/** All of y is one value. */
const filledWith =
  (value: number) =>
  (call: Loops): void => {
    call.y.fill(value);
  };

/** Numbers that have nothing to do with x. */
function noise(call: Loops): void {
  for (let i = 0; i < call.y.length; i++) call.y[i] = call.round(Math.sin(i * 12.9898 + 4.1) * 1.7);
}

/** The result of an earlier call, with another x. */
function earlierResult(call: Loops): void {
  const other = { ...call, x: call.x.map((_, i) => call.round(Math.cos(i * 78.233 + 1.3))) };
  right(other);
}

/** The buffer of y holds x, as in place, or an earlier call's numbers. */
const over =
  (what: 'x' | 'numbers', run: (call: Loops) => void) =>
  (call: Loops): void => {
    if (what === 'x') nothingRan(call);
    else noise(call);
    run(call);
  };

type Rest = Omit<Stranger, 'run' | 'truth' | 'cause'>;

/** A right kernel, but for the rows of `except`. */
function rows(rest: Rest, run: (call: Loops) => void, except: (at: RowAt, call: Call) => boolean): Stranger {
  const made = stranger({ cause: 3, ...rest }, run, ['rows', 'heads'], () => ({}));
  return { ...made, truth: (call) => ({ ...made.truth(call), except: (at) => except(at, call) }) };
}

/** A right kernel, but for pairs from `whole` on, which nobody wrote. */
const pairsLeft = (rest: Rest, run: (call: Loops) => void, whole: number, holds: 'x' | 'zeros' | 'numbers'): Stranger =>
  stranger(
    { cause: 3, ...rest },
    run,
    ['elements', 'dimensions', 'frequencies'],
    ({ spec, inv, magnitude }) => ({
      frequency: Array.from(inv, (w, j) => (j < whole ? w : 0)),
      // Elements that hold x are not longer by the magnitude, and elements that hold an earlier result are no pair.
      ...(holds === 'x' && magnitude > 1 ? { gain: [1, magnitude] as const } : {}),
      ...(holds === 'numbers'
        ? { pairs: rotationOf(spec).pairs.slice(0, whole), frequency: [...inv.subarray(0, whole)] }
        : {}),
    }),
    { describes: [/^ *In y, dimensions 15, 31 keep their joint length with no other dimension/] },
  );

/** y is no rotation of x. */
const nothing = (rest: Rest, run: (call: Loops) => void, describes: readonly RegExp[] = []): Stranger =>
  stranger({ cause: 3, ...rest }, run, ['rows', 'elements'], undefined, { describes });

const UNCHANGED = [/identical to x|y is x|unchanged/i];

export const MEMORY: readonly Stranger[] = [
  rows(
    {
      id: 'one-element-f32',
      about: 'One element of the tensor is wrong',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'prompt 16',
    },
    oneElement,
    ({ seq, head }) => seq === 8 && head === 1,
  ),
  rows(
    {
      id: 'one-element-bf16',
      about: 'One element of the tensor is wrong',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'later chunk',
    },
    oneElement,
    ({ seq, head }) => seq === 8 && head === 1,
  ),
  rows(
    {
      id: 'token-of-nan',
      about: 'A missing barrier makes one token NaN',
      thread: 'warpfront/hipfire#574',
      model: 'Llama 2',
      dtype: 'f16',
      input: 'prompt 16',
    },
    tokenOfNaN,
    ({ seq }) => seq === 13,
  ),
  rows(
    {
      id: 'token-of-nan-bf16-long',
      about: 'A missing barrier makes one token NaN',
      thread: 'warpfront/hipfire#574',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'prompt 256',
    },
    tokenOfNaN,
    ({ seq }) => seq === 253,
  ),
  rows(
    {
      id: 'head-of-nan',
      about: 'One head of one token is NaN',
      thread: 'vllm-project/vllm-xpu-kernels#411',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'far',
    },
    headOfNaN,
    ({ batch, seq, head }, { heads }) => batch === 0 && seq === 2 && head === heads - 1,
  ),
  pairsLeft(
    {
      id: 'vector-tail-zeros',
      about: 'Vectors of 32 pairs: the last 16 pairs of 48 are never written',
      model: 'Phi-3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    (call) => vectorTail(call, 32),
    32,
    'zeros',
  ),
  pairsLeft(
    {
      id: 'vector-tail-left',
      about: 'In place, vectors of 32 pairs: the last 16 pairs of 48 are left as they were',
      model: 'Phi-3',
      dtype: 'bf16',
      input: 'later chunk',
    },
    over('x', (call) => vectorTail(call, 32)),
    32,
    'x',
  ),
  pairsLeft(
    {
      id: 'vector-tail-numbers',
      about: 'Vectors of 5 pairs: the last of 16 is never written, in a used buffer',
      model: 'Phi-2',
      dtype: 'f16',
      input: 'prompt 16',
    },
    over('numbers', (call) => tailOfPartial(call)),
    15,
    'numbers',
  ),
  rows(
    {
      id: 'odd-head-zeros',
      about: 'Two heads at a time: the fifth is never written',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'odd',
    },
    (call) => headsInSteps(call, 2),
    ({ head }) => head === 4,
  ),
  rows(
    {
      id: 'odd-head-left',
      about: 'In place, two heads at a time: the fifth is left as it was',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'odd',
    },
    over('x', (call) => headsInSteps(call, 2)),
    ({ head }) => head === 4,
  ),
  rows(
    {
      id: 'odd-head-numbers',
      about: 'Four heads at a time: the fifth holds an earlier result',
      model: 'GPT-J',
      dtype: 'f16',
      input: 'odd',
    },
    over('numbers', (call) => headsInSteps(call, 4)),
    ({ head }) => head === 4,
  ),
  rows(
    {
      id: 'tile-tail-zeros',
      about: 'Tiles of 16 tokens: the last 5 tokens of 21 read no table and are zero',
      thread: 'tenstorrent/tt-metal#43790',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'odd',
    },
    (call) => tokensInTiles(call, 16),
    ({ seq }) => seq >= 16,
  ),
  rows(
    {
      id: 'tile-tail-left',
      about: 'In place, tiles of 8 tokens: the last 5 of 21 are left as they were',
      model: 'TinyLlama',
      dtype: 'bf16',
      input: 'odd',
    },
    over('x', (call) => tokensInTiles(call, 8)),
    ({ seq }) => seq >= 16,
  ),
  rows(
    {
      id: 'tile-tail-numbers',
      about: 'Tiles of 8 tokens: the last 5 of 21 hold an earlier result',
      model: 'Qwen2.5 YaRN',
      dtype: 'f32',
      input: 'odd',
    },
    over('numbers', (call) => tokensInTiles(call, 8)),
    ({ seq }) => seq >= 16,
  ),
  rows(
    {
      id: 'first-batch-only-zeros',
      about: 'Only the first batch is launched',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'two prompts 16',
    },
    firstBatchOnly,
    ({ batch }) => batch === 1,
  ),
  rows(
    {
      id: 'first-batch-only-left',
      about: 'In place, only the first batch is launched',
      model: 'Gemma',
      dtype: 'f32',
      input: 'far',
    },
    over('x', firstBatchOnly),
    ({ batch }) => batch === 1,
  ),
  rows(
    {
      id: 'first-batch-only-numbers',
      about: 'Only the first batch is launched, in a used buffer',
      model: 'Phi-2',
      dtype: 'f32',
      input: 'two prompts 16',
    },
    over('numbers', firstBatchOnly),
    ({ batch }) => batch === 1,
  ),
  rows(
    {
      id: 'next-head-race',
      about: 'Shared memory is used again too early: some heads hold the rotation of the next one',
      thread: 'prs-eth/LitePT#12',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    nextHeadRace,
    ({ seq, head }, { heads }) => (seq * 7 + head * 3) % 5 === 0 && head + 1 < heads,
  ),
  rows(
    {
      id: 'next-head-race-bf16',
      about: 'Shared memory is used again too early, in bf16',
      thread: 'prs-eth/LitePT#12',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'odd',
    },
    nextHeadRace,
    ({ seq, head }, { heads }) => (seq * 7 + head * 3) % 5 === 0 && head + 1 < heads,
  ),
  rows(
    {
      id: 'late-copy',
      about: 'The copy of the whole head lands after the rotation in some heads',
      thread: 'vllm-project/vllm#46685',
      model: 'DeepSeek-V3',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    lateCopy,
    ({ seq, head }) => (seq * 5 + head) % 7 === 3,
  ),
  rows(
    {
      id: 'overwritten-sometimes',
      about: 'A few pairs of some heads read a member that was already overwritten',
      thread: 'mirage-project/mirage#384',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    overwrittenSometimes,
    ({ seq, head }) => (seq + 2 * head) % 6 === 1,
  ),
  rows(
    { id: 'tokens-swapped', about: 'Two tokens change places', model: 'Llama 3.1', dtype: 'f32', input: 'prompt 16' },
    tokensSwapped,
    ({ seq }) => seq === 3 || seq === 4,
  ),
  rows(
    { id: 'tokens-swapped-bf16', about: 'Two tokens change places', model: 'Llama 2', dtype: 'bf16', input: 'far' },
    tokensSwapped,
    ({ seq }) => seq === 3 || seq === 4,
  ),
  rows(
    {
      id: 'heads-reversed',
      about: 'Heads are written in the reverse order',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'prompt 16',
    },
    headsReversed,
    () => true,
  ),
  rows(
    { id: 'batches-swapped', about: 'Two batches change places', model: 'Llama 2', dtype: 'bf16', input: 'far' },
    batchesSwapped,
    () => true,
  ),
  stranger(
    {
      id: 'stride-of-queries',
      cause: 3,
      about: 'k is walked with the token stride of q, which has twice the heads',
      thread: 'vllm-project/vllm#17091',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'prompt 16',
    },
    over('x', (call) => strideOfQueries(call, 2)),
    ['rows', 'positions'],
    // The row of token 2s turns by position s, the others hold x: so do 64-bit positions that are read as 32.
    () => ({ position: (_p, { seq }) => (seq % 2 === 0 ? seq / 2 : 0) }),
    { names: ['int64-positions-as-int32'] },
  ),
  stranger(
    {
      id: 'stride-of-queries-zeros',
      cause: 3,
      about: 'k is walked with the token stride of q, which has four times the heads',
      thread: 'vllm-project/vllm#17091',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    (call) => strideOfQueries(call, 4),
    ['rows', 'positions'],
    () => ({ position: (_p, { seq }) => seq / 4 }),
    { except: ({ seq }) => seq % 4 !== 0 },
  ),
  rows(
    { id: 'batch-stride-zero', about: 'Every batch reads the first one', model: 'Llama 2', dtype: 'f32', input: 'far' },
    batchStrideZero,
    ({ batch }) => batch === 1,
  ),
  rows(
    {
      id: 'head-stride-zero',
      about: 'Every head reads the first one',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    headStrideZero,
    ({ head }) => head > 0,
  ),
  rows(
    {
      id: 'reads-clamped',
      about: 'Tokens past the twelfth read its numbers, at their own positions',
      model: 'GPT-J',
      dtype: 'f32',
      input: 'prompt 16',
    },
    (call) => readsClamped(call, 12),
    ({ seq }) => seq >= 12,
  ),
  nothing(
    {
      id: 'one-element-too-far',
      about: 'All of y is one element too far',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    oneElementTooFar,
  ),
  nothing(
    {
      id: 'padding-forgotten',
      about: 'A tile is read without its padding',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    paddingForgotten,
    [/written \d+ elements apart and read \d+ apart, anew every 8 rows/],
  ),
  nothing(
    {
      id: 'scale-of-another-head',
      about: 'int8 is read with the scale of the next head',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    otherScale,
    [/as int8 does, rounded with its own scale and multiplied by that of head \(h \+ 1\) mod \d+\./],
  ),
  nothing(
    { id: 'scaled-only', about: 'Only the scale of queries ran', model: 'Llama 2', dtype: 'f32', input: 'prompt 16' },
    onlyScaled,
    [/scaled/],
  ),
  nothing(
    { id: 'zeros', about: 'y is all zeros', model: 'Llama 3.1', dtype: 'bf16', input: 'prompt 16' },
    filledWith(0),
    [/zero/i],
  ),
  nothing(
    { id: 'all-nan', about: 'y is all NaN', model: 'Llama 2', dtype: 'f32', input: 'prompt 16' },
    filledWith(Number.NaN),
    [/NaN/],
  ),
  nothing(
    { id: 'noise', about: 'y has nothing to do with x', model: 'Llama 2', dtype: 'f32', input: 'prompt 16' },
    noise,
    [/nothing|length/i],
  ),
  nothing(
    {
      id: 'earlier-result',
      about: 'y is the result of an earlier call',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'prompt 16',
    },
    earlierResult,
    [/nothing|length/i],
  ),
  stranger(
    {
      id: 'y-is-x-f32',
      cause: 8,
      about: 'The kernel did not run, or x was dumped after it ran in place',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    nothingRan,
    ['elements'],
    undefined,
    { describes: UNCHANGED },
  ),
  stranger(
    {
      id: 'y-is-x-bf16',
      cause: 8,
      about: 'The kernel did not run, or x was dumped after it ran in place',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    nothingRan,
    ['elements'],
    undefined,
    { describes: UNCHANGED },
  ),
  stranger(
    {
      id: 'y-is-x-partial',
      cause: 8,
      about: 'The kernel did not run, or x was dumped after it ran in place',
      model: 'GPT-J',
      dtype: 'f16',
      input: 'later chunk',
    },
    nothingRan,
    ['elements'],
    undefined,
    { describes: UNCHANGED },
  ),
  stranger(
    {
      id: 'y-is-x-decode',
      cause: 8,
      about: 'The kernel did not run, or x was dumped after it ran in place',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'decode step',
    },
    nothingRan,
    ['elements'],
    undefined,
    { describes: UNCHANGED },
  ),
  ...(['f32', 'bf16'] as const).map((dtype) =>
    stranger(
      {
        id: `right-heads-first-${dtype}`,
        cause: 7,
        about: 'A right kernel; the dump is [batch, head, seq, head_dim], and nobody says so',
        model: 'Llama 3.1',
        dtype,
        input: 'square',
        headsFirst: true,
      },
      right,
      [],
      () => ({}),
    ),
  ),
  stranger(
    {
      id: 'next-token-heads-first',
      cause: 6,
      about: 'Every token turns as the next one; the dump is [batch, head, seq, head_dim], and nobody says so',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'square',
      headsFirst: true,
    },
    (call) => right({ ...call, angle: (b, s, j) => call.angle(b, s, j) + f(call.inv[j]!) }),
    ['positions', 'rows'],
    () => ({ position: (p) => p + 1 }),
  ),
];
