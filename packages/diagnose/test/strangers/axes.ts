/** Wrong kernels: several position axes, norms before the rotation, and the shift of a cache. @module */
import { type Call, type Rotation, rotationOf, type Stranger } from './kernel.js';
import { copyRow, each, f, type Loops, right, stranger, turn } from './loops.js';
import { ANGLES } from './right.js';

/** Turns each pair by the axis that `axisOf` says. */
const byAxis =
  (axisOf: (j: number, call: Call) => number) =>
  (call: Loops): void => {
    const angle = (b: number, s: number, j: number): number =>
      f(call.position(b, s, axisOf(j, call)) * f(call.inv[j]!));
    right({ ...call, angle });
  };

const axesAre =
  (axisOf: (j: number, call: Call) => number) =>
  (call: Call): Partial<Rotation> => ({ axisOfPair: Array.from(call.inv, (_w, j) => axisOf(j, call)) });

/** t, h, w in runs. */
const runs =
  (t: number, h: number) =>
  (j: number): number =>
    j < t ? 0 : j < t + h ? 1 : 2;
const swapped = (j: number): number => (j < 16 ? 0 : j < 40 ? 2 : 1);
/** thwthw…, and the rest by time, as in Qwen3-VL. */
const woven = (j: number): number => (j % 3 === 1 && j < 60 ? 1 : j % 3 === 2 && j < 60 ? 2 : 0);
const wovenSwapped = (j: number): number => [0, 2, 1][woven(j)]!;
const time = (): number => 0;
const visionSwapped = (j: number): number => (j < 20 ? 1 : 0);

/** Sections in dimensions of the whole head, [32, 48, 48]: the two members of a pair follow different axes. */
function sectionsOfTheHead(call: Loops): void {
  const half = call.headDim / 2;
  each(call, (row, b, s) => {
    for (let i = 0; i < call.headDim; i++) {
      const angle = f(call.position(b, s, i < 32 ? 0 : i < 80 ? 1 : 2) * f(call.inv[i % half]!));
      const turned = f(call.x[row + ((i + half) % call.headDim)]! * f(Math.sin(angle)));
      const kept = f(call.x[row + i]! * f(Math.cos(angle)));
      call.y[row + i] = call.round(i < half ? f(kept - turned) : f(kept + turned));
    }
  });
}

/** A vision tower whose exponents go on over both axes. */
const goesOn = (call: Call): number[] => Array.from(call.inv, (_w, j) => 10000 ** (-j / call.inv.length));
function exponentsGoOn(call: Loops): void {
  const axes = rotationOf(call.spec).axisOfPair!;
  const inv = goesOn(call);
  const angle = (b: number, s: number, j: number): number => f(call.position(b, s, axes[j]!) * f(inv[j]!));
  right({ ...call, angle });
}

/** x over its root mean square, times `weight`, in f32, as stored in the dtype. */
function normed(call: Loops, x: Float64Array, weight: (i: number) => number, heads = 1): Float64Array {
  const size = call.headDim * heads;
  const y = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += size) {
    let sum = 0;
    for (let i = 0; i < size; i++) sum += x[row + i]! ** 2;
    const scale = f(1 / Math.sqrt(sum / size + call.norm!.eps));
    for (let i = 0; i < size; i++) y[row + i] = call.round(f(f(x[row + i]! * scale) * weight(i % call.headDim)));
  }
  return y;
}
const weightOf =
  (call: Call) =>
  (i: number): number =>
    call.norm!.weight[i]!;

const normThenTurn = (call: Loops): void => right({ ...call, x: normed(call, call.x, weightOf(call)) });

function turnThenNorm(call: Loops): void {
  right(call);
  call.y.set(normed(call, call.y, weightOf(call)));
}

const normWithoutWeight = (call: Loops): void => right({ ...call, x: normed(call, call.x, () => 1) });
const normOfAllHeads = (call: Loops): void => right({ ...call, x: normed(call, call.x, weightOf(call), call.heads) });
/** Gemma stores its weight minus 1, and the kernel adds 1 to a weight that has it already. */
const oneMoreThanTheWeight = (call: Loops): void =>
  right({ ...call, x: normed(call, call.x, (i) => 1 + weightOf(call)(i)) });

/** Distances of a shift, added to the position that the key has already: as if it were never rotated. */
function backwardShift(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, -call.angle(b, s, j));
    }
  });
}

const negative = (call: Call): Partial<Rotation> => ({ frequency: rotationOf(call.spec).frequency.map((w) => -w) });

export const AXES: readonly Stranger[] = [
  stranger(
    {
      id: 'height-for-width-f32',
      cause: 6,
      about: 'Pairs of height turn by width, and of width by height',
      thread: 'huggingface/pytorch-image-models#2541',
      model: 'Qwen2-VL',
      dtype: 'f32',
      input: 'image',
    },
    byAxis(swapped),
    ['axes'],
    axesAre(swapped),
  ),
  stranger(
    {
      id: 'height-for-width-bf16',
      cause: 6,
      about: 'Pairs of height turn by width, and of width by height',
      model: 'Qwen3-VL',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(wovenSwapped),
    ['axes'],
    axesAre(wovenSwapped),
  ),
  stranger(
    {
      id: 'sections-in-another-order',
      cause: 6,
      about: 'Sections [24, 24, 16] for [16, 24, 24]',
      model: 'Qwen2-VL',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(runs(24, 24)),
    ['axes'],
    axesAre(runs(24, 24)),
  ),
  stranger(
    {
      id: 'woven-for-sections',
      cause: 6,
      about: 'Pairs of t, h and w take turns, where they should follow in runs',
      thread: 'Blaizzy/mlx-vlm#576',
      model: 'Qwen2-VL',
      dtype: 'f32',
      input: 'image',
    },
    byAxis(woven),
    ['axes'],
    axesAre(woven),
  ),
  stranger(
    {
      id: 'sections-for-woven',
      cause: 6,
      about: 'Pairs of t, h and w follow in runs, where they should take turns',
      thread: 'vllm-project/vllm-gaudi#1437',
      model: 'Qwen3-VL',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(runs(24, 20)),
    ['axes'],
    axesAre(runs(24, 20)),
  ),
  stranger(
    {
      id: 'time-only',
      cause: 6,
      about: 'All pairs turn by the first axis',
      thread: 'gty111/gLLM#115',
      model: 'Qwen2-VL',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(time),
    ['axes'],
    axesAre(time),
  ),
  stranger(
    {
      id: 'sections-of-the-head',
      cause: 6,
      about: 'Sections [32, 48, 48] cut the head, not its pairs',
      thread: 'InfiniTensor/InfiniCore#1350',
      model: 'Qwen2-VL',
      dtype: 'f32',
      input: 'image',
    },
    sectionsOfTheHead,
    ['axes', 'elements'],
    undefined,
  ),
  stranger(
    {
      id: 'vision-height-for-width',
      cause: 6,
      about: 'A vision tower turns its first half by width',
      thread: 'ggml-org/llama.cpp#13282',
      model: 'Qwen2-VL vision',
      dtype: 'f32',
      input: 'image',
    },
    byAxis(visionSwapped),
    ['axes'],
    axesAre(visionSwapped),
  ),
  stranger(
    {
      id: 'vision-height-for-width-bf16',
      cause: 6,
      about: 'A vision tower turns its first half by width',
      thread: 'ggml-org/llama.cpp#13282',
      model: 'Qwen2-VL vision',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(visionSwapped),
    ['axes'],
    axesAre(visionSwapped),
  ),
  stranger(
    {
      id: 'vision-exponents-go-on',
      cause: 6,
      about: 'Exponents of the second axis go on from the first',
      model: 'Qwen2-VL vision',
      dtype: 'f32',
      input: 'image',
    },
    exponentsGoOn,
    ['frequencies'],
    (call) => ({ frequency: goesOn(call) }),
  ),
  stranger(
    {
      id: 'vision-one-axis',
      cause: 6,
      about: 'A vision tower turns all pairs by the row',
      model: 'Qwen2-VL vision',
      dtype: 'bf16',
      input: 'image',
    },
    byAxis(time),
    ['axes'],
    axesAre(time),
  ),
  stranger(
    {
      id: 'axes-right-f32',
      cause: 0,
      about: 'A right kernel of three axes',
      model: 'Qwen2-VL',
      dtype: 'f32',
      input: 'image',
    },
    right,
    [],
    () => ({}),
    { precision: ANGLES },
  ),
  stranger(
    {
      id: 'axes-right-vision-bf16',
      cause: 0,
      about: 'A right vision tower',
      model: 'Qwen2-VL vision',
      dtype: 'bf16',
      input: 'image',
    },
    right,
    [],
    () => ({}),
  ),
  stranger(
    {
      id: 'norm-after',
      cause: 6,
      about: 'Rotates, then normalises: right only for equal weights',
      thread: 'hw-native-sys/pypto-lib#792',
      normed: true,
      model: 'Qwen3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    turnThenNorm,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-after-bf16',
      cause: 6,
      about: 'Rotates, then normalises: right only for equal weights',
      normed: true,
      model: 'Qwen3',
      dtype: 'bf16',
      input: 'later chunk',
    },
    turnThenNorm,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-left-out',
      cause: 6,
      about: 'Does not normalise',
      normed: true,
      model: 'Qwen3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    right,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-without-weight',
      cause: 6,
      about: 'Normalises without the weight',
      normed: true,
      model: 'Qwen3',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    normWithoutWeight,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-of-all-heads',
      cause: 6,
      about: 'Normalises all heads of a token together',
      thread: 'Alpha-VLLM/Lumina-T2X#112',
      normed: true,
      model: 'Qwen3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    normOfAllHeads,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-weight-plus-one',
      cause: 6,
      about: 'Adds 1 to a weight that has it already',
      normed: true,
      model: 'Qwen3',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    oneMoreThanTheWeight,
    ['elements', 'magnitude'],
    undefined,
    { describes: [/norm/i] },
  ),
  stranger(
    {
      id: 'norm-right-f32',
      cause: 0,
      about: 'A right kernel with a norm',
      normed: true,
      model: 'Qwen3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    normThenTurn,
    [],
    () => ({}),
  ),
  stranger(
    {
      id: 'norm-right-bf16',
      cause: 0,
      about: 'A right kernel with a norm, stored in bf16 before the rotation',
      normed: true,
      model: 'Qwen3',
      dtype: 'bf16',
      input: 'far',
    },
    normThenTurn,
    [],
    () => ({}),
    { precision: /^the norm’s result rounded to 16 bits before the rotation$/ },
  ),
  stranger(
    {
      id: 'shift-the-other-way',
      cause: 6,
      about: 'Keys of a shifted cache turn the other way',
      thread: 'ggml-org/llama.cpp#4097',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'shift',
    },
    backwardShift,
    ['direction', 'positions'],
    negative,
  ),
  stranger(
    {
      id: 'shift-the-other-way-bf16',
      cause: 6,
      about: 'Keys of a shifted cache turn the other way',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'shift',
    },
    backwardShift,
    ['direction', 'positions'],
    negative,
  ),
  stranger(
    {
      id: 'shift-right-f16',
      cause: 0,
      about: 'A right shift of a cache',
      model: 'Llama 2',
      dtype: 'f16',
      input: 'shift',
    },
    right,
    [],
    () => ({}),
    { precision: ANGLES },
  ),
];
