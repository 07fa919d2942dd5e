/** Cause M: the order of rotation and norm, and the mistakes of kernels that fuse both. @module */
import type { RopePart } from 'ropewalk/internal';
import type { Mutant } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import { memberwise, mutantsOf } from './entry.js';

const weightOf = (part: RopePart): Float64Array => part.norm!.weight.readNumbers() as Float64Array;

export const NORM_ORDER: readonly Mutant[] = mutantsOf('M', ['norm'], {
  'norm-after-rotation': {
    does: 'Normalises after the rotation: each weight meets a dimension that mixes two.',
    threads: ['vllm-project/vllm-metal#660', 'karpathy/nanochat#743', 'allenai/OLMo#806'],
    change: (steps) => ({
      head: (x, at) => steps.normalize(steps.rotate(x, at), weightOf(steps.part), steps.part.norm!.eps),
    }),
  },
  'norm-missing': {
    does: 'Rotates without the norm.',
    threads: ['vllm-project/vllm-metal#659'],
    change: () => ({
      head(this: RopeSteps, x, at) {
        return this.rotate(x, at);
      },
    }),
  },
  'norm-without-weight': {
    does: 'Normalises without the weight.',
    threads: ['vllm-project/vllm#30821'],
    change: (steps) => ({
      normalize: (head, weight, eps) => steps.normalize(head, new Float64Array(weight.length).fill(1), eps),
    }),
  },
  'norm-weight-less-one': {
    does: 'Multiplies by Gemma’s weight as stored, without adding 1.',
    threads: ['vllm-project/vllm#49744'],
    change: (steps) => ({
      normalize: (head, weight, eps) =>
        steps.normalize(
          head,
          weight.map((w) => w - 1),
          eps,
        ),
    }),
  },
  'norm-over-rotary-dim': {
    does: 'Takes the mean of squares over rotary_dim instead of the head.',
    threads: ['vllm-project/vllm#52676'],
    needs: ['norm', 'partial'],
    change: (steps) => ({
      normalize(head, weight, eps) {
        const { rotaryOffset, rotaryDim } = steps;
        const window = head.subarray(rotaryOffset, rotaryOffset + rotaryDim);
        const rms = Math.sqrt(window.reduce((sum, v) => sum + v * v, 0) / rotaryDim + eps);
        return head.map((v, i) => (weight[i]! * v) / rms);
      },
    }),
  },
  'norm-across-heads': {
    does: 'Takes the mean of squares over all heads of a token instead of each head.',
    threads: ['NVIDIA/TensorRT-LLM#13052'],
    needs: ['norm', 'heads'],
    change(steps) {
      const { batch, seq, heads: count, headDim, part } = steps;
      const weight = weightOf(part);
      return {
        all(this: RopeSteps, heads) {
          const y = new Float64Array(heads.length);
          const size = count * headDim;
          for (let token = 0; token < batch * seq; token++) {
            const row = heads.subarray(token * size, (token + 1) * size);
            const rms = Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / size + part.norm!.eps);
            for (let head = 0; head < count; head++) {
              const x = row.subarray(head * headDim, (head + 1) * headDim).map((v, i) => (weight[i]! * v) / rms);
              y.set(
                this.rotate(x, { batch: Math.floor(token / seq), seq: token % seq, head }),
                token * size + head * headDim,
              );
            }
          }
          return y;
        },
      };
    },
  },
  'fused-table-by-element': {
    does: 'Looks up cos and sin of element i at i/2, as for interleaved pairs, although pairs are halves: the members of a pair rotate by different angles.',
    threads: ['NVIDIA/TensorRT-LLM#13052'],
    needs: ['half'],
    change(steps) {
      const { pairs } = steps;
      const kernel = (member: 0 | 1): Change => ({
        cosSin(this: RopeSteps, position, j) {
          return steps.cosSin.call(this, position, (j + member * pairs) >> 1);
        },
      });
      return memberwise(steps, kernel(0), kernel(1));
    },
  },
});
