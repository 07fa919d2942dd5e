/**
 * Cause I: precision. These kernels have angles, frequencies and tables in fewer bits than they need. The rounding of a
 * correct f32 kernel is not a bug. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import type { Mutant } from '../kernel/mutant.js';
import { type Change, narrowTable, type RopeSteps } from '../kernel/steps.js';
import { mutantsOf, need, plainFrequencies, positionsOf, withInvFreq, withPosition } from './entry.js';

/** The need of a position that a dtype cannot hold. */
const positionBeyond = (dtype: FloatDtype) =>
  need(`a position that ${dtype} cannot hold`, (steps) => positionsOf(steps).some((p) => roundTo(dtype, p) !== p));

const narrowAngle =
  (dtype: FloatDtype) =>
  (steps: RopeSteps): Change => ({ angle: (position, j) => roundTo(dtype, steps.angle(position, j)) });

const tableIn =
  (dtype: FloatDtype) =>
  (steps: RopeSteps): Change =>
    narrowTable(steps, (value) => roundTo(dtype, value));

const narrowFrequencies =
  (dtype: FloatDtype) =>
  (steps: RopeSteps): Change =>
    withInvFreq(steps, (j, right) => roundTo(dtype, right[j]!));

/** The bits of the significand after the leading one, and the exponent of the smallest normal number. */
const NARROW = { f16: [10, -14], bf16: [7, -126] } as const;

/** Rounds to a value of a dtype beside x, by a function that rounds to an integer. */
function roundBy(round: (x: number) => number, dtype: keyof typeof NARROW, x: number): number {
  if (x === 0 || !Number.isFinite(x)) return x;
  const [bits, smallest] = NARROW[dtype];
  const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), smallest) - bits);
  return round(x / unit) * unit;
}

/** Rounds each head as it is stored. */
const storedBy =
  (round: (x: number) => number) =>
  (steps: RopeSteps): Change => {
    const dtype = steps.part.out.dtype as keyof typeof NARROW;
    return {
      head(this: RopeSteps, x, at) {
        return steps.head.call(this, x, at).map((value) => roundBy(round, dtype, value));
      },
    };
  };

const NARROW_OUTPUT = need('f16 or bf16 output', ({ part }) => part.out.dtype === 'f16' || part.out.dtype === 'bf16');
const F32_TWO_PI = Math.fround(2 * Math.PI);

/** The Taylor series of cos and sin, to the powers 6 and 7. */
function series(a: number): [cos: number, sin: number] {
  const q = a * a;
  return [1 - q / 2 + q ** 2 / 24 - q ** 3 / 720, a * (1 - q / 6 + q ** 2 / 120 - q ** 3 / 5040)];
}

export const PRECISION: readonly Mutant[] = mutantsOf('I', ['computed'], {
  'position-in-bf16': {
    does: 'Holds positions in bf16, which counts by 2 from 256 on and by 1024 from 131072 on.',
    threads: ['huggingface/transformers#29285', 'huggingface/candle#3520'],
    needs: [positionBeyond('bf16')],
    change: (steps) => withPosition(steps, (p) => roundTo('bf16', p)),
  },
  'position-in-f16': {
    does: 'Holds positions in f16, which counts by 2 from 2048 on; from 65520 on they are infinite, and cos is NaN.',
    threads: ['huggingface/transformers#29285'],
    needs: [positionBeyond('f16')],
    change: (steps) => withPosition(steps, (p) => roundTo('f16', p)),
  },
  'angle-in-bf16': {
    does: 'Computes angles in bf16.',
    threads: ['huggingface/transformers#29285', 'NVIDIA/Megatron-LM#535'],
    change: narrowAngle('bf16'),
  },
  'angle-in-f16': {
    does: 'Computes angles in f16; from 65520 on they are infinite, and cos is NaN.',
    threads: ['EleutherAI/gpt-neox#1003'],
    change: narrowAngle('f16'),
  },
  'frequencies-in-bf16': {
    does: 'Holds inv_freq in bf16, because casting the model also casts this buffer.',
    threads: ['huggingface/transformers#29496', 'Modalities/modalities#462', 'NVIDIA/Megatron-LM#744'],
    change: narrowFrequencies('bf16'),
  },
  'frequencies-in-f16': {
    does: 'Holds inv_freq in f16.',
    threads: ['huggingface/transformers#25681', 'EleutherAI/gpt-neox#1003'],
    change: narrowFrequencies('f16'),
  },
  'table-in-bf16': {
    does: 'Rounds cos and sin to bf16 before the multiplication.',
    threads: ['Dao-AILab/flash-attention#823', 'KellerJordan/modded-nanogpt#39'],
    needs: [],
    change: tableIn('bf16'),
  },
  'table-in-f16': {
    does: 'Rounds cos and sin to f16 before the multiplication.',
    threads: ['flashinfer-ai/flashinfer#585'],
    needs: [],
    change: tableIn('f16'),
  },
  'table-in-f16-twice': {
    does: 'Rounds cos and sin to f16, multiplies them by the magnitude, which is in f16 too, and rounds them again.',
    threads: ['ggml-org/llama.cpp#10540'],
    needs: ['magnitude'],
    change(steps) {
      const narrow = narrowTable(steps, (value) => roundTo('f16', value));
      return {
        ...narrow,
        cosSin(this: RopeSteps, position, j) {
          const [cos, sin] = narrow.cosSin.call(this, position, j);
          const { attentionFactor } = this.frequencies(); // another bug may have changed it; the next step multiplies by it
          const again = (value: number) => roundTo('f16', value * roundTo('f16', attentionFactor)) / attentionFactor;
          return [again(cos), again(sin)];
        },
      };
    },
  },
  'angle-recurrence-in-f32': {
    does: 'Computes each pair’s angle from the previous one by an f32 product: the error grows with pair and position.',
    threads: ['sgl-project/sglang#3134'],
    change(steps) {
      const spec = steps.spec;
      const plain = plainFrequencies(steps);
      const { invFreq } = steps.frequencies();
      const dim = steps.exponentDim;
      const scale = Math.fround(spec.base ** (-2 / dim));
      // Pair j has j products, but a vision tower starts again at each section.
      const products = plain.map((f) => Math.round((-Math.log(f) / Math.log(spec.base)) * (dim / 2)));
      return {
        angle(position, j) {
          let angle = Math.fround(position);
          for (let n = 0; n < products[j]!; n++) angle = Math.fround(angle * scale);
          return angle * (invFreq[j]! / plain[j]!);
        },
      };
    },
  },
  'sin-cos-unreduced': {
    does: 'Reduces angles by an f32 multiple of 2π before fast sin and cos: off by up to 8e-3 at position 131071.',
    threads: ['kekzl/imp#1316', 'kekzl/imp#1317', 'kekzl/imp#1325', 'flashinfer-ai/flashinfer#5066'],
    change: (steps) => ({
      angle(position, j) {
        const angle = Math.fround(steps.angle(position, j));
        const turns = Math.round(angle / (2 * Math.PI));
        return Math.fround(angle - Math.fround(turns * F32_TWO_PI));
      },
    }),
  },
  'sine-polynomial-unreduced': {
    does: 'Computes sin and cos by a few terms of their series, to the powers 7 and 6, without reducing the angle first.',
    threads: ['tenstorrent/tt-metal#33971', 'chessai/nix-std#14'],
    change: () => ({
      cosSin(this: RopeSteps, position, j) {
        return series(this.angle(position, j));
      },
    }),
  },
  'sine-polynomial-too-short': {
    does: 'Reduces angles to −π … π, where a few terms of the series, to the powers 7 and 6, are off by up to 0.21.',
    threads: ['chessai/nix-std#66'],
    change: () => ({
      cosSin(this: RopeSteps, position, j) {
        const angle = this.angle(position, j);
        return series(angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI)));
      },
    }),
  },
  'sine-from-table': {
    does: 'Looks up sin and cos in a table of 1024 entries a turn without interpolation: off by up to 3e-3.',
    threads: ['ICME-Lab/jolt-atlas#183'],
    change(steps) {
      const step = (2 * Math.PI) / 1024;
      return { angle: (position, j) => Math.round(steps.angle(position, j) / step) * step };
    },
  },
  'angle-accumulated-in-f16': {
    does: 'Adds the frequency from token to token in f16, until the sum no longer changes.',
    threads: ['PaddlePaddle/PaddleFleet#91'],
    change(steps) {
      const { invFreq } = steps.frequencies();
      /** The sums of each pair after 0, 1, 2 … tokens. They stop changing after some thousand tokens. */
      const sums: number[][] = [];
      const sumsOf = (j: number): number[] => {
        if (sums[j]) return sums[j];
        const list = [0];
        const step = roundTo('f16', invFreq[j] ?? Number.NaN); // a hypothesis may ask for more pairs than there are
        for (;;) {
          const next = roundTo('f16', list.at(-1)! + step);
          if (next === list.at(-1) || !Number.isFinite(next)) break;
          list.push(next);
        }
        return (sums[j] = list);
      };
      return {
        angle(position, j) {
          const list = sumsOf(j);
          return Math.sign(position) * list[Math.min(Math.abs(position), list.length - 1)]!;
        },
      };
    },
  },
  'output-rounded-down': {
    does: 'Rounds its f16 or bf16 output down instead of to nearest.',
    threads: ['Xilinx/mlir-aie#3732'],
    needs: [NARROW_OUTPUT],
    change: storedBy(Math.floor),
  },
  'output-rounded-toward-zero': {
    does: 'Cuts off the bits that its f16 or bf16 output cannot hold instead of rounding to nearest.',
    threads: ['tenstorrent/tt-metal#19882'],
    needs: [NARROW_OUTPUT],
    change: storedBy(Math.trunc),
  },
});
