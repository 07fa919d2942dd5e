/**
 * Wrong kernels: pairs, partial rotation, signs, order of steps; and two bugs at once. Written from public threads, by
 * somebody who has not read the catalogue. @module
 */
import { type Call, pairsOf, rotationOf, type Stranger } from './kernel.js';
import { copyRow, each, f, type Loops, right, stranger, turn } from './loops.js';
import { ANGLES } from './right.js';

const interleaved = (call: Call): boolean => call.spec.pairing === 'interleaved';

/** Pairs (2j, 2j+1), as in Meta's own code, for a model converted to HuggingFace's halves. */
function interleavedForHalf(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) turn(call, row + 2 * j, row + 2 * j + 1, call.angle(b, s, j));
  });
}

/** Pairs (j, j + R/2) for a model with pairs side by side. */
function halfForInterleaved(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) turn(call, row + j, row + j + call.pairs, call.angle(b, s, j));
  });
}

/** Reads pairs side by side and writes halves. */
function readSideBySideWriteHalves(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++)
      turn(call, row + 2 * j, row + 2 * j + 1, call.angle(b, s, j), row + j, row + j + call.pairs);
  });
}

/** Reads halves and writes pairs side by side. */
function readHalvesWriteSideBySide(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++)
      turn(call, row + j, row + j + call.pairs, call.angle(b, s, j), row + 2 * j, row + 2 * j + 1);
  });
}

/** Partners head_dim / 2 apart, though only R dimensions turn. */
function partnersHalfAHeadApart(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) turn(call, row + j, row + j + call.headDim / 2, call.angle(b, s, j));
  });
}

/** Partners R apart for R/2: n_dims was taken for the number of pairs. */
function partnersRApart(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) turn(call, row + j, row + j + 2 * call.pairs, call.angle(b, s, j));
  });
}

/** The whole head turns, with exponents over head_dim: partial_rotary_factor is not read. */
function wholeHeadTurns(call: Loops): void {
  const half = call.headDim / 2;
  each(call, (row, b, s) => {
    for (let j = 0; j < half; j++) {
      const angle = f(call.position(b, s) * f(call.base ** ((-2 * j) / call.headDim)));
      const [i0, i1] = interleaved(call) ? [2 * j, 2 * j + 1] : [j, j + half];
      turn(call, row + i0, row + i1, angle);
    }
  });
}

/** All of ne0 turns in halves, theta_scale over n_dims: the first CANN backend. */
function cannPartialNeox(call: Loops): void {
  const half = call.headDim / 2;
  const scale = f(call.base ** (-2 / call.rotaryDim));
  each(call, (row, b, s) => {
    for (let j = 0; j < half; j++) turn(call, row + j, row + j + half, f(call.position(b, s) * f(scale ** j)));
  });
}

/** Partial: the dimensions that do not turn are never written. */
function restNotCopied(call: Loops): void {
  each(call, (row, b, s) => {
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, call.angle(b, s, j));
    }
  });
}

/** Partial: frequencies over head_dim instead of the rotated dimensions. */
function exponentsOverHeadDim(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, f(call.position(b, s) * f(call.base ** ((-2 * j) / call.headDim))));
    }
  });
}

/** Both mistakes of a partial rotation that took head_dim for rotary_dim: frequencies and distance. */
function partialOverTheHead(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++)
      turn(
        call,
        row + j,
        row + j + call.headDim / 2,
        f(call.position(b, s) * f(call.base ** ((-2 * j) / call.headDim))),
      );
  });
}

/** The last R dimensions turn instead of the first. */
function lastDimensionsTurn(call: Loops): void {
  const from = call.headDim - call.rotaryDim;
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + from + i0, row + from + i1, call.angle(b, s, j));
    }
  });
}

/** The fraction is applied twice: R/2 dimensions turn, exponents over R/2. */
function fractionTwice(call: Loops): void {
  const pairs = call.pairs / 2;
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < pairs; j++) {
      const angle = f(call.position(b, s) * f(call.base ** (-j / pairs)));
      const [i0, i1] = interleaved(call) ? [2 * j, 2 * j + 1] : [j, j + pairs];
      turn(call, row + i0, row + i1, angle);
    }
  });
}

/** head_dim was inferred from a flat [tokens, heads * head_dim]: only head 0 of each token turns. */
function onlyTheFirstHead(call: Loops): void {
  each(call, (row, b, s, h) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs && h === 0; j++) {
      const [i0, i1] = call.from(j);
      turn(call, row + i0, row + i1, call.angle(b, s, j));
    }
  });
}

/** One pair by hand: y0 = a·x0 + b·x1, y1 = d·x0 + e·x1, with c and s of the angle. */
function byHand(call: Loops, lines: (x0: number, x1: number, c: number, s: number) => readonly [number, number]): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      const angle = call.angle(b, s, j);
      const [y0, y1] = lines(
        call.x[row + i0]!,
        call.x[row + i1]!,
        f(Math.cos(angle) * call.magnitude),
        f(Math.sin(angle) * call.magnitude),
      );
      call.y[row + i0] = call.round(y0);
      call.y[row + i1] = call.round(y1);
    }
  });
}

/** The minus sign is on the other line. */
const sineSign = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => [f(f(x0 * c) + f(x1 * s)), f(f(x1 * c) - f(x0 * s))]);

/** sin and cos tables arrive in the other order. */
const cosAndSinSwapped = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => [f(f(x0 * s) - f(x1 * c)), f(f(x0 * c) + f(x1 * s))]);

/** The rotation without any minus sign. */
const noMinus = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => [f(f(x0 * c) + f(x1 * s)), f(f(x0 * s) + f(x1 * c))]);

/** A minus sign on both lines. */
const twoMinus = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => [f(f(x0 * c) - f(x1 * s)), f(f(x0 * s) - f(x1 * c))]);

/** The second member is stored as it was read. */
const onlyFirstMember = (call: Loops): void => byHand(call, (x0, x1, c, s) => [f(f(x0 * c) - f(x1 * s)), x1]);

/** The first member is stored as it was read. */
const onlySecondMember = (call: Loops): void => byHand(call, (x0, x1, c, s) => [x0, f(f(x0 * s) + f(x1 * c))]);

/** In place, one element after the other: the second line reads the new first member. */
const overwrittenFirst = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => {
    const y0 = call.round(f(f(x0 * c) - f(x1 * s)));
    return [y0, f(f(y0 * s) + f(x1 * c))];
  });

/** The same from the other end: the first line reads the new second member. */
const overwrittenSecond = (call: Loops): void =>
  byHand(call, (x0, x1, c, s) => {
    const y1 = call.round(f(f(x0 * s) + f(x1 * c)));
    return [f(f(x0 * c) - f(y1 * s)), y1];
  });

/** In place, reads (2j, 2j+1) and writes (j, j + R/2): writes land on pairs not yet read. */
function deinterleavesInPlace(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const angle = call.angle(b, s, j);
      const [c, sn] = [f(Math.cos(angle) * call.magnitude), f(Math.sin(angle) * call.magnitude)];
      const [x0, x1] = [call.y[row + 2 * j]!, call.y[row + 2 * j + 1]!];
      call.y[row + j] = call.round(f(f(x0 * c) - f(x1 * sn)));
      call.y[row + j + call.pairs] = call.round(f(f(x0 * sn) + f(x1 * c)));
    }
  });
}

/** rotate_half with a table that repeats each frequency twice (repeat_interleave). */
function tableOfTheOtherLayout(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let i = 0; i < call.rotaryDim; i++) {
      const angle = call.angle(b, s, interleaved(call) ? i % call.pairs : i >> 1);
      const first = interleaved(call) ? i % 2 === 0 : i < call.pairs;
      const partner = interleaved(call) ? i ^ 1 : (i + call.pairs) % call.rotaryDim;
      const turned = f(call.x[row + partner]! * f(Math.sin(angle) * call.magnitude));
      const kept = f(call.x[row + i]! * f(Math.cos(angle) * call.magnitude));
      call.y[row + i] = call.round(first ? f(kept - turned) : f(kept + turned));
    }
  });
}

/** Turns when a key is stored, and again when it is read. */
function twice(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const [i0, i1] = call.from(j);
      const angle = call.angle(b, s, j);
      const [c, sn] = [f(Math.cos(angle) * call.magnitude), f(Math.sin(angle) * call.magnitude)];
      let [x0, x1] = [call.x[row + i0]!, call.x[row + i1]!];
      for (let n = 0; n < 2; n++)
        [x0, x1] = [call.round(f(f(x0 * c) - f(x1 * sn))), call.round(f(f(x0 * sn) + f(x1 * c)))];
      call.y[row + i0] = x0;
      call.y[row + i1] = x1;
    }
  });
}

/** Both bugs in one loop: `frequency` of pair j, position plus `later`, and pairs of `pairing`. */
const turnedAs =
  (pairing: string, frequency: (call: Loops, j: number) => number, later = 0) =>
  (call: Loops): void =>
    each(call, (row, b, s) => {
      copyRow(call, row);
      for (const [j, { read, write }] of pairsOf(pairing, call.rotaryDim).entries()) {
        const angle = f(f(call.position(b, s) + later) * f(frequency(call, j)));
        turn(call, row + read[0], row + read[1], angle, row + write[0], row + write[1]);
      }
    });

const given = (call: Loops, j: number): number => rotationOf(call.spec).frequency[j]!;
const plain =
  (base: number) =>
  (call: Call, j: number): number =>
    base ** ((-2 * j) / (call.spec.rotaryDim ?? call.headDim));

/** Frequencies base^(-2j / over) of n pairs. */
const frequencies = (base: number, over: number, n: number): number[] =>
  Array.from({ length: n }, (_what, j) => base ** ((-2 * j) / over));

const paired = (pairing: string) => (call: Call) => ({ pairs: pairsOf(pairing, call.spec.rotaryDim ?? call.headDim) });

const backward = (call: Call) => ({ frequency: rotationOf(call.spec).frequency.map((w) => -w) });

/** Angles are a quarter turn less the right ones: backward, and proportional to no position. */
const QUARTER_TURN = [
  /^The angles are not proportional to the positions as given\.$/,
  /^The angles of pairs .* are not those of the expected frequencies; these positions do not show/,
  /^ *positions +no rule found$/,
];

export const LAYOUT: readonly Stranger[] = [
  stranger(
    {
      id: 'meta-pairs-in-llama-3.1',
      cause: 6,
      about: "Meta's pairs (2j, 2j+1) with weights of HuggingFace",
      thread: 'jmaczan/tiny-vllm#4',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    interleavedForHalf,
    ['pairing'],
    paired('interleaved'),
  ),
  stranger(
    {
      id: 'meta-pairs-in-f16-far',
      cause: 6,
      about: 'Pairs (2j, 2j+1) in an f16 kernel for a model with halves',
      thread: 'huggingface/transformers#25199',
      model: 'Llama 2',
      dtype: 'f16',
      input: 'far',
    },
    interleavedForHalf,
    ['pairing'],
    paired('interleaved'),
  ),
  stranger(
    {
      id: 'halves-in-gpt-j',
      cause: 6,
      about: 'rotate_half for a model that rotates every two',
      model: 'GPT-J',
      dtype: 'f32',
      input: 'prompt 16',
    },
    halfForInterleaved,
    ['pairing'],
    paired('half'),
  ),
  stranger(
    {
      id: 'halves-in-glm-4',
      cause: 6,
      about: 'rotate_half over the rotated half of a GLM head',
      model: 'GLM-4',
      dtype: 'bf16',
      input: 'later chunk',
    },
    halfForInterleaved,
    ['pairing'],
    paired('half'),
  ),
  stranger(
    {
      id: 'reads-adjacent-writes-halves',
      cause: 6,
      about: 'Reads (2j, 2j+1), writes (j, j + R/2), where halves are expected',
      thread: 'NVIDIA/Megatron-LM#5963',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'far',
    },
    readSideBySideWriteHalves,
    ['pairing'],
    paired('interleaved-to-half'),
  ),
  stranger(
    {
      id: 'deepseek-left-in-place',
      cause: 6,
      about: 'Pairs (2j, 2j+1) stay where they were; the model expects them written as halves',
      model: 'DeepSeek-V3',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    interleavedForHalf,
    ['pairing'],
    paired('interleaved'),
  ),
  stranger(
    {
      id: 'reads-halves-writes-adjacent',
      cause: 6,
      about: 'The permutation of the weights is undone while writing, though it was never done',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'prompt 256',
    },
    readHalvesWriteSideBySide,
    ['pairing'],
    paired('half-to-interleaved'),
  ),
  stranger(
    {
      id: 'partners-half-a-head-apart',
      cause: 6,
      about: 'Partial rotation with partners head_dim / 2 apart',
      thread: 'apple/coreai-models#66',
      model: 'Phi-2',
      dtype: 'f16',
      input: 'prompt 16',
    },
    partnersHalfAHeadApart,
    ['pairing', 'dimensions'],
    (call) => ({
      pairs: Array.from({ length: 16 }, (_what, j) => {
        const pair = [j, j + call.headDim / 2] as const;
        return { read: pair, write: pair };
      }),
    }),
  ),
  stranger(
    {
      id: 'partners-rotary-dim-apart',
      cause: 6,
      about: 'Partial rotation with partners rotary_dim apart instead of half of it',
      model: 'Phi-2',
      dtype: 'f32',
      input: 'far',
    },
    partnersRApart,
    ['pairing', 'dimensions'],
    () => ({
      pairs: Array.from({ length: 16 }, (_what, j) => ({ read: [j, j + 32] as const, write: [j, j + 32] as const })),
    }),
    { true: [/^ *16 of 32 pairs rotate too little to measure/] }, // (16, 48) and on, which no expectation has
  ),
  stranger(
    {
      id: 'whole-head-turns-glm',
      cause: 6,
      about: 'partial_rotary_factor is not read: all dimensions rotate',
      thread: 'ml-explore/mlx-lm#1698',
      model: 'GLM-4',
      dtype: 'f16',
      input: 'prompt 16',
    },
    wholeHeadTurns,
    ['dimensions', 'frequencies', 'pairing'],
    (call) => ({ pairs: pairsOf('interleaved', call.headDim), frequency: frequencies(10000, 128, 64) }),
  ),
  stranger(
    {
      id: 'whole-head-turns-neox',
      cause: 6,
      about: 'rotary_pct is not read: all dimensions rotate',
      thread: 'InternLM/lmdeploy#3861',
      model: 'Pythia',
      dtype: 'f32',
      input: 'prompt 256',
    },
    wholeHeadTurns,
    ['dimensions', 'frequencies', 'pairing'],
    (call) => ({ pairs: pairsOf('half', call.headDim), frequency: frequencies(10000, 64, 32) }),
  ),
  ...(['f32', 'bf16'] as const).map((dtype) =>
    stranger(
      {
        id: `cann-partial-neox-${dtype}`,
        cause: 6,
        about: 'All of ne0 turns in halves, with frequencies over n_dims: the first CANN backend',
        thread: 'ggml-org/llama.cpp#17543',
        model: dtype === 'f32' ? 'Phi-2' : 'Pythia',
        dtype,
        input: 'prompt 16',
      },
      cannPartialNeox,
      ['dimensions', 'frequencies', 'pairing'],
      (call) => ({
        pairs: pairsOf('half', call.headDim),
        frequency: frequencies(10000, call.spec.rotaryDim!, call.headDim / 2),
      }),
    ),
  ),
  stranger(
    {
      id: 'rest-not-copied',
      cause: 3,
      about: 'Dimensions that do not rotate are never written, and hold an earlier result',
      model: 'Phi-2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    (call) => {
      for (let i = 0; i < call.y.length; i++) call.y[i] = call.round(Math.cos(i * 12.9898));
      restNotCopied(call);
    },
    ['elements', 'dimensions'],
    () => ({}),
  ),
  stranger(
    {
      id: 'rest-zeros',
      cause: 3,
      about: 'Dimensions that do not rotate are never written, in a buffer of zeros',
      model: 'GPT-J',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    restNotCopied,
    ['elements', 'dimensions'],
    () => ({}),
  ),
  stranger(
    {
      id: 'partial-exponents-over-head-dim',
      cause: 6,
      about: 'The right dimensions rotate, with exponents over head_dim',
      thread: 'pie-project/pie#603',
      model: 'GPT-J',
      dtype: 'bf16',
      input: 'prompt 256',
    },
    exponentsOverHeadDim,
    ['frequencies'],
    (call) => ({ frequency: frequencies(10000, call.headDim, 32) }),
  ),
  stranger(
    {
      id: 'partial-over-the-head',
      cause: 5,
      about: 'Exponents over head_dim and partners head_dim / 2 apart: rotary_dim is used only to count pairs',
      thread: 'pie-project/pie#603',
      model: 'Phi-2',
      dtype: 'f32',
      input: 'far',
    },
    partialOverTheHead,
    ['frequencies', 'pairing', 'dimensions'],
    (call) => ({
      pairs: Array.from({ length: 16 }, (_what, j) => {
        const pair = [j, j + call.headDim / 2] as const;
        return { read: pair, write: pair };
      }),
      frequency: frequencies(10000, call.headDim, 16),
    }),
  ),
  stranger(
    {
      id: 'last-dimensions-turn',
      cause: 6,
      about: 'The last rotary_dim dimensions rotate, as in a head of [nope, rope]',
      thread: 'ROCm/aiter#136',
      model: 'GLM-4',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    lastDimensionsTurn,
    ['dimensions', 'pairing'],
    () => ({ pairs: pairsOf('interleaved', 64, 64) }),
  ),
  stranger(
    {
      id: 'fraction-twice',
      cause: 6,
      about: 'partial_rotary_factor is applied twice: half of the dimensions rotate that should',
      model: 'GLM-4',
      dtype: 'f32',
      input: 'prompt 16',
    },
    fractionTwice,
    ['dimensions', 'frequencies', 'pairing'],
    () => ({ pairs: pairsOf('interleaved', 32), frequency: frequencies(10000, 32, 16) }),
  ),
  stranger(
    {
      id: 'flat-hidden-as-head',
      cause: 3,
      about: 'head_dim is taken from [tokens, heads * head_dim]: only the first head rotates',
      thread: 'XPU-Forces/mojo_opset#279',
      model: 'Llama 2',
      dtype: 'bf16',
      input: 'prompt 16',
    },
    onlyTheFirstHead,
    ['heads', 'rows'],
    () => ({}),
    { except: ({ head }) => head > 0 },
  ),
  ...(['f32', 'bf16'] as const).map((dtype) =>
    stranger(
      {
        id: `sine-sign-${dtype}`,
        cause: 6,
        about: 'The minus sign is on the other line',
        model: dtype === 'f32' ? 'Llama 3.1' : 'Qwen2.5 YaRN',
        dtype,
        input: dtype === 'f32' ? 'far' : 'prompt 16',
      },
      sineSign,
      ['direction'],
      backward,
    ),
  ),
  stranger(
    {
      id: 'cos-and-sin-swapped',
      cause: 6,
      about: 'The tables arrive in the other order',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    cosAndSinSwapped,
    ['direction', 'positions'],
    backward,
    { true: QUARTER_TURN },
  ),
  stranger(
    {
      id: 'cos-and-sin-swapped-bf16',
      cause: 6,
      about: 'The tables arrive in the other order, in bf16',
      model: 'GPT-J',
      dtype: 'bf16',
      input: 'later chunk',
    },
    cosAndSinSwapped,
    ['direction', 'positions'],
    backward,
    { true: QUARTER_TURN },
  ),
  stranger(
    {
      id: 'no-minus',
      cause: 6,
      about: 'rotate_half without its minus sign',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'prompt 16',
    },
    noMinus,
    ['elements'],
    undefined,
  ),
  stranger(
    {
      id: 'two-minus',
      cause: 6,
      about: 'A minus sign on both lines: pairs are mirrored',
      model: 'Gemma',
      dtype: 'f16',
      input: 'prompt 16',
    },
    twoMinus,
    ['elements', 'direction'],
    undefined,
    { describes: [/mirror/i] },
  ),
  stranger(
    {
      id: 'only-the-first-member',
      cause: 6,
      about: 'The second half of each head is stored as it was read',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    onlyFirstMember,
    ['elements', 'dimensions'],
    undefined,
    { describes: [/64-127.* (x|unchanged)\b/] },
  ),
  stranger(
    {
      id: 'only-the-second-member',
      cause: 6,
      about: 'The first half of each head is stored as it was read',
      model: 'Llama 3.1',
      dtype: 'bf16',
      input: 'later chunk',
    },
    onlySecondMember,
    ['elements', 'dimensions'],
    undefined,
    { describes: [/\b0-63.* (x|unchanged)\b/] },
  ),
  ...(['interleaved', 'half', 'bf16'] as const).map((kind) =>
    stranger(
      {
        id: `overwritten-in-place-${kind}`,
        cause: 6,
        about: 'In place: the second line reads the first member after it was stored',
        model: kind === 'interleaved' ? 'GPT-J' : kind === 'half' ? 'Llama 2' : 'Llama 3.1',
        dtype: kind === 'bf16' ? 'bf16' : 'f32',
        input: kind === 'half' ? 'far' : 'prompt 16',
      },
      overwrittenFirst,
      ['elements'],
      undefined,
    ),
  ),
  stranger(
    {
      id: 'overwritten-in-place-from-the-end',
      cause: 6,
      about: 'In place: the first line reads the second member after it was stored',
      thread: 'mirage-project/mirage#384',
      model: 'Qwen2.5 YaRN',
      dtype: 'f16',
      input: 'prompt 16',
    },
    overwrittenSecond,
    ['elements'],
    undefined,
  ),
  stranger(
    {
      id: 'deinterleaves-in-place',
      cause: 6,
      about: 'In place, reads (2j, 2j+1) and writes (j, j + R/2): later pairs were already overwritten',
      thread: 'NVIDIA/Megatron-LM#5963',
      model: 'DeepSeek-V3',
      dtype: 'f32',
      input: 'prompt 16',
    },
    deinterleavesInPlace,
    ['elements'],
    undefined,
  ),
  stranger(
    {
      id: 'table-of-interleaved-pairs',
      cause: 6,
      about: 'rotate_half with a table that repeats each frequency twice in a row',
      model: 'Llama 2',
      dtype: 'f32',
      input: 'prompt 16',
    },
    tableOfTheOtherLayout,
    ['elements'],
    undefined,
  ),
  stranger(
    {
      id: 'table-of-halves',
      cause: 6,
      about: 'rotate_every_two with a table of concatenated halves',
      model: 'GPT-J',
      dtype: 'f16',
      input: 'later chunk',
    },
    tableOfTheOtherLayout,
    ['elements'],
    undefined,
  ),
  ...(['f32', 'bf16'] as const).map((dtype) =>
    stranger(
      {
        id: `rotated-when-stored-and-read-${dtype}`,
        cause: 6,
        about: 'Rotates keys when they are stored, and again when they are read',
        thread: 'EleutherAI/gpt-neox#363',
        model: dtype === 'f32' ? 'gpt-oss' : 'Llama 2',
        dtype,
        input: dtype === 'f32' ? 'prompt 16' : 'later chunk',
      },
      twice,
      dtype === 'f32' ? ['frequencies', 'positions', 'magnitude'] : ['frequencies', 'positions'],
      (call) => {
        const { frequency, gain } = rotationOf(call.spec);
        return { frequency: frequency.map((w) => 2 * w), gain: (gain as number) ** 2 };
      },
    ),
  ),
  // Two bugs at once.
  stranger(
    {
      id: 'two-pairs-and-position',
      cause: 5,
      about: 'Pairs (2j, 2j+1), and positions from 1',
      model: 'TinyLlama',
      dtype: 'f32',
      input: 'prompt 16',
    },
    turnedAs('interleaved', given, 1),
    ['pairing', 'positions'],
    () => ({ pairs: pairsOf('interleaved', 64), position: (p) => p + 1 }),
  ),
  stranger(
    {
      id: 'two-base-and-scaling',
      cause: 5,
      about: 'Base 10000 for 500000, and no llama3 scaling: both change the frequencies',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'prompt 16',
    },
    turnedAs('half', plain(10000)),
    ['frequencies'],
    () => ({ frequency: frequencies(10000, 128, 64) }),
  ),
  stranger(
    {
      id: 'two-base-and-scaling-bf16-far',
      cause: 5,
      about: 'Base 10000 for 1000000, and no YaRN: both change the frequencies',
      model: 'Qwen2.5 YaRN',
      dtype: 'bf16',
      input: 'far',
    },
    (call) => turnedAs('half', plain(10000))({ ...call, magnitude: 1 }),
    ['frequencies', 'magnitude'],
    () => ({ frequency: frequencies(10000, 128, 64), gain: 1 }),
  ),
  stranger(
    {
      id: 'two-exponents-and-sign',
      cause: 5,
      about: 'Exponents over head_dim, and the sign of the sine',
      model: 'Pythia',
      dtype: 'f32',
      input: 'prompt 16',
    },
    turnedAs('half', (call, j) => -(10000 ** ((-2 * j) / call.headDim))),
    ['frequencies', 'direction'],
    (call) => ({ frequency: frequencies(-1, 1, 8).map((_what, j) => -(10000 ** ((-2 * j) / call.headDim))) }),
  ),
  stranger(
    {
      id: 'two-scaling-and-pairs-f16',
      cause: 5,
      about: 'No llama3 scaling, and pairs (2j, 2j+1)',
      model: 'Llama 3.1',
      dtype: 'f16',
      input: 'far',
    },
    turnedAs('interleaved', plain(500000)),
    ['frequencies', 'pairing'],
    () => ({ pairs: pairsOf('interleaved', 128), frequency: frequencies(500000, 128, 64) }),
  ),
  stranger(
    {
      id: 'two-positions-and-base',
      cause: 5,
      about: 'Positions start again at 0 in a later chunk, and base 500000 became 10000',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'later chunk',
    },
    turnedAs('half', plain(10000), -4000),
    ['frequencies', 'positions'],
    () => ({ frequency: frequencies(10000, 128, 64), position: (p) => p - 4000 }),
  ),
  // Cause 4: one position only, or angles past pi.
  ...(
    [
      ['decode-pairs', 'Llama 2', 'bf16', turnedAs('interleaved', given), ['pairing'], paired('interleaved')],
      ['decode-sign', 'Llama 2', 'f32', sineSign, ['direction'], backward],
      [
        'decode-scaling',
        'Llama 3.1',
        'bf16',
        turnedAs('half', plain(500000)),
        ['frequencies'],
        () => ({ frequency: frequencies(500000, 128, 64) }),
      ],
      [
        'decode-base',
        'Gemma',
        'f32',
        turnedAs('half', plain(1000000)),
        ['frequencies'],
        () => ({ frequency: frequencies(1000000, 256, 128) }),
      ],
      [
        'decode-partial',
        'GLM-4',
        'bf16',
        wholeHeadTurns,
        ['dimensions', 'frequencies', 'pairing'],
        () => ({ pairs: pairsOf('interleaved', 128), frequency: frequencies(10000, 128, 64) }),
      ],
    ] as const
  ).map(([id, model, dtype, run, wrong, changed]) =>
    stranger(
      {
        id,
        cause: 4,
        about: 'One decode step, which shows angles but no frequency',
        model,
        dtype,
        input: 'decode step',
      },
      run,
      wrong,
      changed,
    ),
  ),
  ...(
    [
      ['far-step-pairs', 'Llama 2', 'f32', turnedAs('interleaved', given), ['pairing'], paired('interleaved')],
      ['far-step-sign', 'Llama 3.1', 'bf16', sineSign, ['direction'], backward],
      [
        'far-step-position',
        'TinyLlama',
        'f32',
        turnedAs('half', given, 1),
        ['positions'],
        () => ({ position: (p: number) => p + 1 }),
      ],
      [
        'far-step-base',
        'Llama 2',
        'f16',
        turnedAs('half', plain(20000)),
        ['frequencies'],
        () => ({ frequency: frequencies(20000, 128, 64) }),
      ],
    ] as const
  ).map(([id, model, dtype, run, wrong, changed]) =>
    stranger(
      {
        id,
        cause: 4,
        about: 'One token at a far position, where most pairs have gone round many times',
        model,
        dtype,
        input: 'one far token',
      },
      run,
      wrong,
      changed,
    ),
  ),
  stranger(
    {
      id: 'far-step-right-in-f32',
      cause: 0,
      about: 'A right kernel in f32 at one far position',
      model: 'Llama 3.1',
      dtype: 'f32',
      input: 'one far token',
    },
    right,
    [],
    () => ({}),
    { precision: ANGLES },
  ),
];
