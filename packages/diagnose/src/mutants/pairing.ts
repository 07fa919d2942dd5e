/**
 * Cause A: pairing, and the permutation of q and k weights between the two pairings. When a permutation was skipped or done
 * twice, the kernel reads dimensions in another order than they have. @module
 */
import type { PairGeometry } from 'ropewalk/internal';
import type { Mutant } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import { axesBy, memberwise, mutantsOf, need, withGeometry } from './entry.js';

const ADJACENT: PairGeometry = { step: 2, gap: 1 };
const halves = (steps: RopeSteps): PairGeometry => ({ step: 1, gap: steps.pairs });

/** Reads dimension `from(m)` of the window instead of m. */
function readPermuted(steps: RopeSteps, from: (m: number) => number): Change {
  const { rotaryOffset } = steps;
  return { readIndex: (j, k) => rotaryOffset + from(steps.readIndex(j, k) - rotaryOffset) };
}

/** Maps halves to adjacent members: m = a + b·size/2 → 2a + b. */
const fromHalves = (m: number, size: number): number => 2 * (m % (size / 2)) + Math.floor(m / (size / 2));
/** Maps adjacent members to halves: m = 2a + b → a + b·size/2. */
const fromAdjacent = (m: number, size: number): number => (m >> 1) + (m & 1) * (size / 2);

/** The query heads for each key head: 32 and 8, as in Llama 3 8B. */
const GROUP = 4;

export const PAIRING: readonly Mutant[] = mutantsOf('A', ['half'], {
  'pairs-interleaved-for-half': {
    does: 'Rotates pairs (2j, 2j+1) instead of (j, j + rotary_dim/2).',
    threads: ['huggingface/transformers#25199', 'ggml-org/llama.cpp#7481', 'tenstorrent/tt-metal#26844'],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  'pairs-half-for-interleaved': {
    does: 'Rotates pairs (j, j + rotary_dim/2) instead of (2j, 2j+1).',
    threads: [
      'jzhang38/TinyLlama#24',
      'Xilinx/mlir-air#1683',
      'openvinotoolkit/openvino.genai#4059',
      'huggingface/transformers#39687',
    ],
    needs: ['interleavedPairs'],
    change: (steps) => withGeometry(steps, halves(steps), halves(steps)),
  },
  'table-of-halves-for-interleaved': {
    does: 'Looks up cos and sin of element i at i mod (rotary_dim/2), as for halves, although pairs are (2j, 2j+1): the members of a pair rotate by different angles.',
    threads: ['xiangking/ark-nlp#47', 'PaddlePaddle/PaddleFleet#678'],
    needs: ['interleaved'],
    change(steps) {
      const member = (k: 0 | 1): Change => ({
        cosSin(this: RopeSteps, position, j) {
          return steps.cosSin.call(this, position, (2 * j + k) % steps.pairs);
        },
      });
      return memberwise(steps, member(0), member(1));
    },
  },
  'written-as-halves-for-interleaved': {
    does: 'Reads pairs (2j, 2j+1) correctly, but writes the two members as halves instead of side by side. Scores are right if q and k are both written so.',
    threads: ['openvinotoolkit/openvino#36165', 'vllm-project/vllm-metal#44'],
    needs: ['interleaved'],
    change: (steps) => withGeometry(steps, undefined, halves(steps)),
  },
  'read-interleaved-for-half': {
    does: 'Reads pairs (2j, 2j+1) and writes halves, as DeepSeek-V3 does, or gets x that was permuted so once too often.',
    threads: ['huggingface/transformers#39687'],
    change: (steps) => withGeometry(steps, ADJACENT),
  },
  'written-interleaved-for-half': {
    does: 'Reads pairs (j, j + rotary_dim/2) correctly, but writes the two members side by side.',
    threads: ['Xilinx/mlir-air#1683'],
    change: (steps) => withGeometry(steps, undefined, ADJACENT),
  },
  'pairs-left-in-place': {
    does: 'Writes pairs (2j, 2j+1) where it read them, instead of as halves. Scores are right if q and k are both written so.',
    threads: ['huggingface/transformers#39687'],
    needs: ['interleavedToHalf'],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  'mrope-interleaved-for-pairs': {
    does: 'Understands M-RoPE’s "interleaved", which is about axes, as pairs (2j, 2j+1).',
    threads: ['xLLM-AI/xllm#2120'],
    needs: ['half', axesBy(['interleaved', 'interleaved-ggml'], 'interleaved M-RoPE')],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  'weights-not-permuted': {
    does: 'Rotates pairs (2j, 2j+1) of weights whose halves are still apart: the permutation was skipped.',
    threads: ['ggml-org/llama.cpp#22611'],
    needs: ['interleaved'],
    change: (steps) => readPermuted(steps, (m) => fromHalves(m, 2 * steps.pairs)),
  },
  'weights-permuted-twice': {
    does: 'Rotates pairs (2j, 2j+1) of weights that were permuted once too often.',
    threads: ['ggml-org/llama.cpp#2376'],
    needs: ['interleaved'],
    change: (steps) => readPermuted(steps, (m) => fromAdjacent(m, 2 * steps.pairs)),
  },
  'weights-permuted-for-half': {
    does: 'Rotates halves of weights that were permuted for pairs (2j, 2j+1).',
    threads: ['karpathy/llama2.c#286', 'huggingface/transformers#25199'],
    change: (steps) => readPermuted(steps, (m) => fromAdjacent(m, 2 * steps.pairs)),
  },
  'weights-permuted-by-query-heads': {
    does: 'Permutes key weights by the number of query heads: with four query heads for each key head, within quarters of a head.',
    threads: ['ggml-org/llama.cpp#3364', 'ggml-org/llama.cpp#3018'],
    needs: [
      'interleaved',
      need('a window whose quarters hold two pairs or more', ({ pairs }) => pairs % GROUP === 0 && pairs >= 2 * GROUP),
    ],
    change(steps) {
      const size = 2 * steps.pairs;
      const group = size / GROUP;
      return readPermuted(steps, (m) => fromHalves(m - (m % group) + fromAdjacent(m % group, group), size));
    },
  },
});
