/** Right kernels whose author had not seen the catalogue's entries, each with an arithmetic of its own. @module */
import { f32, rotate, type Ways } from './code.js';
import { type Call, MODELS, rotationOf, type Stranger } from './kernel.js';
import { each, f, loops, rotateRow } from './loops.js';

type On = readonly [model: Stranger['model'], dtype: Stranger['dtype'], input: Stranger['input']];

function rightKernel(
  id: string,
  [model, dtype, input]: On,
  about: string,
  how: Ways | ((call: Call) => void),
): Stranger {
  const rotation = rotationOf(MODELS[model]);
  return {
    id: `unseen-right-${id}`,
    cause: 0,
    about,
    model,
    dtype,
    input,
    run: typeof how === 'function' ? how : (call) => rotate(call, rotation, how),
    truth: () => ({ wrong: [], rotation, precision: /angles in f32|position \* frequency in f32/ }),
  };
}

/** An absolute error as hardware sines have. */
const fast = (angle: number): readonly [number, number] => [
  Math.round(Math.cos(angle) * 2 ** 21) / 2 ** 21,
  Math.round(Math.sin(angle) * 2 ** 21) / 2 ** 21,
];

/** cos and sin of all positions, one after the other, in f64. */
function recurrence(call: Call): void {
  const rotation = rotationOf(call.spec);
  const table = rotation.frequency.map((w) => {
    const [c1, s1] = [Math.cos(w), Math.sin(w)];
    let [c, s] = [1, 0];
    return Array.from({ length: 256 }, () => {
      const now = [c, s] as const;
      [c, s] = [c * c1 - s * s1, s * c1 + c * s1];
      return now;
    });
  });
  rotate(call, rotation, {
    angle: (position, _w, j) => position + j * 256,
    cosSin: (key) => table[Math.floor(key / 256)]![key % 256]!,
  });
}

/** y = fma(x0, c, -(x1 * s)), heads in the outer loop. */
function fused(call: Call): void {
  const to = loops(call);
  for (let h = 0; h < to.heads; h++)
    for (let b = 0; b < to.batch; b++)
      for (let t = 0; t < to.seq; t++) {
        const row = to.at(b, t, h);
        for (let i = to.rotaryDim; i < to.headDim; i++) to.y[row + i] = to.x[row + i]!;
        for (let j = to.pairs - 1; j >= 0; j--) {
          const [i0, i1] = to.from(j);
          const [o0, o1] = to.to(j);
          const [c, s] = [f(Math.cos(to.angle(b, t, j))), f(Math.sin(to.angle(b, t, j)))];
          to.y[row + o0] = to.round(f(to.x[row + i0]! * c - f(to.x[row + i1]! * s)));
          to.y[row + o1] = to.round(f(to.x[row + i1]! * c + f(to.x[row + i0]! * s)));
        }
      }
}

export const UNSEEN_RIGHT: readonly Stranger[] = [
  rightKernel('fma', ['Pythia', 'f32', 'odd'], 'Fused multiply-add, pairs from the last.', fused),
  rightKernel('fma-gptj', ['GPT-J', 'f16', 'two prompts 16'], 'The same for adjacent pairs in f16.', fused),
  rightKernel(
    'recurrence',
    ['TinyLlama', 'f32', 'prompt 256'],
    'Angle addition from token to token, in f64.',
    recurrence,
  ),
  rightKernel('f64', ['Llama 3.1', 'f32', 'far'], 'All in f64.', {
    angle: (p, w) => p * w,
    table: 'f64',
    arithmetic: 'f64',
  }),
  rightKernel('fast-sines', ['Qwen3', 'f32', 'prompt 16'], 'Sines to 2^-21.', { cosSin: fast }),
  rightKernel('fast-sines-bf16', ['Gemma', 'bf16', 'decode batch'], 'Sines to 2^-21, bf16.', { cosSin: fast }),
  rightKernel('two-steps', ['gpt-oss', 'bf16', 'later chunk'], 'Angle of the block and of the place in it.', {
    angle: (p, w) => f32(f32(Math.floor(p / 64) * 64 * w) + f32((p % 64) * w)),
  }),
  rightKernel('glm-f16', ['GLM-4', 'f16', 'left padding'], 'f32 arithmetic on f16 tensors.', {}),
  rightKernel('mrope', ['Qwen2-VL', 'bf16', 'image'], 'Sections by axis.', {}),
  rightKernel('deepseek', ['DeepSeek-V3', 'f32', 'decode batch'], 'Reads adjacent pairs, writes halves.', (call) => {
    const to = loops(call);
    each(to, (row, b, s) => rotateRow(to, row, row, b, s));
  }),
  rightKernel('phi-3', ['Phi-3', 'f16', 'far'], 'Long factors, magnitude folded into the table.', {}),
];
