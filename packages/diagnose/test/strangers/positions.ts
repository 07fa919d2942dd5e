/** Wrong kernels: positions. @module */
import { roundTo } from 'ropewalk';
import type { Call, RowAt, Stranger } from './kernel.js';
import { copyRow, each, type Loops, rotateRow, stranger } from './loops.js';

/** The position that a kernel turns a row by. */
type Rule = (call: Call, at: RowAt) => number;

const given: Rule = (call, { batch, seq }) => call.position(batch, seq);
const plus =
  (n: number): Rule =>
  (call, at) =>
    given(call, at) + n;
const bits =
  (n: number, signed: boolean): Rule =>
  (call, at) => {
    const low = ((given(call, at) % 2 ** n) + 2 ** n) % 2 ** n;
    return signed && low >= 2 ** (n - 1) ? low - 2 ** n : low;
  };
const last: Rule = (call, { batch }) => call.position(batch, call.seq - 1);
const first: Rule = (call, { batch }) => call.position(batch, 0);
const zero: Rule = () => 0;
/** [B, S] read with the strides of [S, B]. */
const transposed: Rule = (call, { batch, seq }) => {
  const flat = seq * call.batch + batch;
  return call.position(Math.floor(flat / call.seq), flat % call.seq);
};
/** int64 read as int32, low word first: p0, 0, p1, 0 … */
const halfWords: Rule = (call, { batch, seq }) => {
  const word = batch * call.seq + seq;
  return word % 2 === 0 ? call.position(Math.floor(word / 2 / call.seq), (word / 2) % call.seq) : 0;
};
const index: Rule = (_call, { seq }) => seq;
const flatIndex: Rule = (call, { batch, seq }) => batch * call.seq + seq;
const flatRow: Rule = (call, { batch, seq, head }) => (batch * call.seq + seq) * call.heads + head;
const headIndex: Rule = (_call, { head }) => head;
const batchIndex: Rule = (_call, { batch }) => batch;
const batchZero: Rule = (call, { seq }) => call.position(0, seq);
const atMost =
  (n: number): Rule =>
  (call, at) =>
    Math.min(given(call, at), n);
const modulo =
  (n: number): Rule =>
  (call, at) =>
    given(call, at) % n;
const rounded =
  (dtype: 'bf16' | 'f16'): Rule =>
  (call, at) =>
    roundTo(dtype, given(call, at));
/** The quotient of a position interpolation is an integer: the given position is in new units. */
const inWhole =
  (factor: number): Rule =>
  (call, at) =>
    factor * Math.floor(given(call, at) / factor);

/** Turns every row by the position of `rule`. */
function byRule(rule: Rule): (call: Loops) => void {
  return (call) =>
    each(call, (row, batch, seq, head) => {
      const position = rule(call, { batch, seq, head });
      const angle = (_b: number, _s: number, j: number): number => Math.fround(position * Math.fround(call.inv[j]!));
      rotateRow({ ...call, angle }, row, row, batch, seq);
    });
}

type Rest = Pick<Stranger, 'id' | 'about' | 'thread' | 'model' | 'dtype' | 'input'> & { cause?: Stranger['cause'] };

function moved(rest: Rest, rule: Rule, more: Partial<ReturnType<Stranger['truth']>> = {}): Stranger {
  const changed = (call: Call) => ({ position: (_given: number, at: RowAt) => rule(call, at) });
  return stranger({ cause: 6, ...rest }, byRule(rule), more.wrong ?? ['positions'], changed, more);
}

/** The whole quotient, times frequencies without scaling: the same as four times as much with it. */
const QUOTIENT = {
  true: [/the position ÷ 4, rounded down/, /^ *scaling +none/, /without scaling\.$/, /^ *base +10000 if/],
};

/** Rows at positions past a table of `size` rows are not turned: `then` says what y holds. */
const pastTheTable = (rest: Rest, size: number, then: (call: Loops, row: number) => void): Stranger => {
  const past = (call: Call, at: RowAt): boolean => given(call, at) >= size;
  const made = stranger(
    { cause: 3, ...rest },
    (call) =>
      each(call, (row, b, s) => (call.position(b, s) < size ? rotateRow(call, row, row, b, s) : then(call, row))),
    ['rows', 'positions'],
    () => ({}),
  );
  return { ...made, truth: (call) => ({ ...made.truth(call), except: (at) => past(call, at) }) };
};

export const POSITIONS: readonly Stranger[] = [
  moved(
    {
      id: 'next-token-bf16',
      about: 'Every token turns as the next one',
      thread: 'fla-org/flash-linear-attention#766',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    plus(1),
  ),
  moved(
    {
      id: 'next-token-f32',
      about: 'Every token turns as the next one',
      thread: 'fla-org/flash-linear-attention#766',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'later chunk',
    },
    plus(1),
  ),
  moved(
    {
      id: 'next-token-far-bf16',
      about: 'Every token turns as the next one',
      thread: 'microsoft/onnxruntime-genai#2354',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'far',
    },
    plus(1),
  ),
  moved(
    {
      id: 'previous-token',
      about: 'Every token turns as the one before',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'later chunk',
    },
    plus(-1),
  ),
  moved(
    {
      id: 'previous-token-f16',
      about: 'Every token turns as the one before',
      model: 'GPT-J',
      dtype: 'f16',
      input: 'long chunk',
    },
    plus(-1),
  ),
  moved(
    {
      id: 'prompt-counted-twice',
      about: 'The offset grows by the length of the prompt twice',
      thread: 'skyzh/tiny-llm#46',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'later chunk',
    },
    plus(4000),
  ),
  moved(
    { id: 'all-at-last', about: 'All tokens turn as the last one', model: 'Llama 2', dtype: 'f32', input: 'prompt 16' },
    last,
  ),
  moved(
    {
      id: 'all-at-last-bf16-batch',
      about: 'All tokens turn as the last of their batch',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    last,
  ),
  moved(
    {
      id: 'all-at-first',
      about: 'A window of several tokens turns as its first one',
      thread: 'jundot/omlx#2363',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'later chunk',
    },
    first,
  ),
  moved(
    {
      id: 'all-at-zero',
      about: 'Decoding turns every token as position 0',
      thread: 'Blaizzy/mlx-vlm#1983',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'decode batch',
    },
    zero,
  ),
  moved(
    {
      id: 'uint8-positions',
      about: 'Positions are kept in 8 bits',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'later chunk',
    },
    bits(8, false),
  ),
  moved(
    {
      id: 'uint8-positions-bf16',
      about: 'Positions are kept in 8 bits',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    bits(8, false),
  ),
  moved(
    { id: 'uint16-positions', about: 'Positions are kept in 16 bits', model: 'Llama 3.1', dtype: 'f32', input: 'far' },
    bits(16, false),
  ),
  moved(
    {
      id: 'int8-positions',
      about: 'Positions are kept in 8 bits with a sign',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'prompt 256',
    },
    bits(8, true),
  ),
  moved(
    {
      id: 'int16-positions',
      about: 'Positions are kept in 16 bits with a sign',
      model: 'Qwen2.5 YaRN',
      dtype: 'f32',
      input: 'long chunk',
    },
    bits(16, true),
  ),
  moved(
    {
      id: 'positions-transposed',
      about: 'Positions [batch, seq] are read as [seq, batch]',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'left padding',
    },
    transposed,
  ),
  moved(
    {
      id: 'positions-transposed-bf16',
      about: 'Positions [batch, seq] are read as [seq, batch]',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    transposed,
  ),
  moved(
    {
      id: 'int64-as-int32',
      about: 'Positions in int64 are read as int32',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    halfWords,
  ),
  moved(
    {
      id: 'int64-as-int32-bf16-batch',
      about: 'Positions in int64 are read as int32, in two batches',
      model: 'Phi-2',
      dtype: 'bf16',
      input: 'left padding',
    },
    halfWords,
  ),
  moved(
    {
      id: 'divided-in-whole-numbers',
      about: 'Position interpolation divides integers',
      model: 'Linear 4',
      dtype: 'f32',
      input: 'prompt 16',
    },
    inWhole(4),
    QUOTIENT,
  ),
  moved(
    {
      id: 'divided-in-whole-numbers-bf16',
      about: 'Position interpolation divides integers',
      model: 'Linear 4',
      dtype: 'bf16',
      input: 'later chunk',
    },
    inWhole(4),
    QUOTIENT,
  ),
  moved(
    {
      id: 'restarts-each-chunk',
      about: 'A later chunk starts at 0 again',
      thread: 'epfLLM/Megatron-LLM#23',
      model: 'Gemma',
      dtype: 'f32',
      input: 'later chunk',
    },
    index,
  ),
  moved(
    {
      id: 'restarts-each-chunk-bf16',
      about: 'Only the length of position_ids is used',
      thread: 'NVIDIA-NeMo/Automodel#2377',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    index,
  ),
  moved(
    {
      id: 'left-padding-ignored',
      about: 'Positions are indices in the padded row',
      thread: 'unslothai/unsloth#3699',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'left padding',
    },
    index,
  ),
  moved(
    {
      id: 'batches-go-on-counting',
      about: 'Rows are counted on from batch to batch',
      thread: 'turboderp/exllama#101',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'two prompts 16',
    },
    flatIndex,
  ),
  moved(
    {
      id: 'rows-go-on-counting',
      about: 'Heads are counted as tokens',
      model: 'TinyLlama',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    flatRow,
  ),
  moved(
    {
      id: 'head-as-position',
      about: 'The index of the head is the position: a dump of [head, token]',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    headIndex,
    { wrong: ['positions', 'heads'] },
  ),
  moved(
    {
      id: 'batch-as-position',
      about: 'The index of the batch is the position',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'many sequences',
    },
    batchIndex,
  ),
  moved(
    {
      id: 'first-batch-positions',
      about: 'All batches turn by the positions of the first',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'far',
    },
    batchZero,
  ),
  moved(
    {
      id: 'first-batch-positions-f16',
      about: 'All batches turn by the positions of the first',
      model: 'Phi-2',
      dtype: 'f16',
      input: 'many sequences',
    },
    batchZero,
  ),
  moved(
    {
      id: 'table-clamped',
      about: 'Positions past a table of 4096 take its last row',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'far',
    },
    atMost(4095),
  ),
  moved(
    {
      id: 'table-clamped-bf16',
      about: 'Positions past a table of 2048 take its last row',
      model: 'TinyLlama',
      dtype: 'bf16',
      input: 'far',
    },
    atMost(2047),
  ),
  moved(
    {
      id: 'table-wraps',
      about: 'Positions past a table of 4096 start again',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'far',
    },
    modulo(4096),
  ),
  moved(
    {
      id: 'table-wraps-bf16',
      about: 'Positions past a table of 4008 start again',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'later chunk',
    },
    modulo(4008),
  ),
  moved(
    {
      id: 'positions-in-bf16',
      about: 'Positions are rounded to bf16',
      thread: 'vllm-project/vllm-ascend#5260',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'later chunk',
    },
    rounded('bf16'),
  ),
  moved(
    {
      id: 'positions-in-bf16-bf16',
      about: 'Positions are rounded to bf16',
      thread: 'vllm-project/vllm-ascend#5260',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'far',
    },
    rounded('bf16'),
  ),
  moved(
    {
      id: 'positions-in-f16',
      about: 'Positions are rounded to f16',
      model: 'Qwen2.5 YaRN',
      dtype: 'f32',
      input: 'long chunk',
    },
    rounded('f16'),
  ),
  moved(
    {
      id: 'decode-next',
      cause: 4,
      about: 'One decode step, turned as the next token',
      thread: 'fla-org/flash-linear-attention#766',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'decode step',
    },
    plus(1),
  ),
  moved(
    {
      id: 'decode-batch-next',
      cause: 4,
      about: 'Four sequences decode, each turned as its next token',
      thread: 'fla-org/flash-linear-attention#766',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'decode batch',
    },
    plus(1),
  ),
  moved(
    {
      id: 'decode-batch-uint8',
      cause: 4,
      about: 'Four sequences decode, positions in 8 bits',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'decode batch',
    },
    bits(8, false),
  ),
  moved(
    {
      id: 'decode-batch-first',
      cause: 4,
      about: 'Four sequences decode at the position of the first',
      thread: 'Comfy-Org/ComfyUI#15698',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'decode batch',
    },
    batchZero,
  ),
  pastTheTable(
    {
      id: 'past-the-table-left',
      about: 'Positions past the table pass x through',
      thread: 'microsoft/onnxruntime#27597',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'far',
    },
    4096,
    (call, row) => copyRow(call, row),
  ),
  pastTheTable(
    {
      id: 'past-the-table-zeros',
      about: 'Positions past the table read zeros for cos and sin',
      thread: 'tenstorrent/tt-metal#43790',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'far',
    },
    8192,
    (call, row) => call.y.fill(0, row, row + call.headDim),
  ),
  pastTheTable(
    {
      id: 'past-the-table-ones',
      about: 'Positions past the table read other memory',
      thread: 'pegainfer-project/pegainfer#220',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'far',
    },
    2048,
    (call, row) => {
      for (let i = 0; i < call.headDim; i++)
        call.y[row + i] = Math.fround(3 * call.x[row + i]! - call.x[row + (i ^ 1)]!);
    },
  ),
];
