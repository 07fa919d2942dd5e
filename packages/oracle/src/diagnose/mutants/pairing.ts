/**
 * Cause A: pairing, and the permutation of q and k weights between the two pairings.
 *
 * A permutation that was left out, or done twice, is seen at the kernel as dimensions in another order than it reads them.
 *
 * @module
 */
import type { PairGeometry } from 'ropewalk';
import type { Mutant } from '../mutant.js';
import type { Change, RopeSteps } from '../steps.js';
import { axesBy, HALF, INTERLEAVED, mutantsOf, need, READ_ONE_WRITTEN_OTHER, withGeometry } from './entry.js';

const ADJACENT: PairGeometry = { step: 2, gap: 1 };
const halves = (steps: RopeSteps): PairGeometry => ({ step: 1, gap: steps.pairs });

/** Reads dimension `from(m)` of the window where m is meant. */
function readPermuted(steps: RopeSteps, from: (m: number) => number): Change {
  const { rotaryOffset } = steps;
  return { readIndex: (j, k) => rotaryOffset + from(steps.readIndex(j, k) - rotaryOffset) };
}

/** Where member (a, b) of halves of `size` lies when adjacent members are apart: m = a + b·size/2 → 2a + b. */
const fromHalves = (m: number, size: number): number => 2 * (m % (size / 2)) + Math.floor(m / (size / 2));
/** The other way: m = 2a + b → a + b·size/2. */
const fromAdjacent = (m: number, size: number): number => (m >> 1) + (m & 1) * (size / 2);

/** Query heads for each key head, where the wrong head count matters: 32 and 8, as Llama 3 8B has. */
const GROUP = 4;

/** The entries of cause A. */
export const PAIRING: readonly Mutant[] = mutantsOf('A', [
  {
    id: 'pairs-interleaved-for-half',
    does: 'Takes pairs (2j, 2j+1) where (j, j + rotary_dim/2) is meant.',
    threads: ['huggingface/transformers#25199', 'ggml-org/llama.cpp#7481', 'tenstorrent/tt-metal#26844'],
    needs: [HALF],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  {
    id: 'pairs-half-for-interleaved',
    does: 'Takes pairs (j, j + rotary_dim/2) where (2j, 2j+1) is meant.',
    threads: ['jzhang38/TinyLlama#24', 'Xilinx/mlir-air#1683', 'openvinotoolkit/openvino.genai#4059'],
    needs: [INTERLEAVED],
    change: (steps) => withGeometry(steps, halves(steps), halves(steps)),
  },
  {
    id: 'written-as-halves-for-interleaved',
    does: 'Reads pairs (2j, 2j+1) rightly, but writes the two members as halves instead of side by side.',
    threads: ['openvinotoolkit/openvino#36165', 'vllm-project/vllm-metal#44'],
    needs: [INTERLEAVED],
    change: (steps) => withGeometry(steps, undefined, halves(steps)),
  },
  {
    id: 'read-interleaved-for-half',
    does: 'Reads pairs (2j, 2j+1) and writes halves, as DeepSeek-V3 does, where both are meant to be halves.',
    threads: ['huggingface/transformers#39687'],
    needs: [HALF],
    change: (steps) => withGeometry(steps, ADJACENT),
  },
  {
    id: 'written-interleaved-for-half',
    does: 'Reads pairs (j, j + rotary_dim/2) rightly, but writes the two members side by side.',
    threads: ['Xilinx/mlir-air#1683'],
    needs: [HALF],
    change: (steps) => withGeometry(steps, undefined, ADJACENT),
  },
  {
    id: 'pairs-left-in-place',
    does: 'Reads and writes the same pairs where pairs are read (2j, 2j+1) and written as halves.',
    threads: ['huggingface/transformers#39687'],
    needs: [READ_ONE_WRITTEN_OTHER],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  {
    id: 'mrope-interleaved-for-pairs',
    does: 'Takes "interleaved" of M-RoPE, which shares out the axes, for pairs (2j, 2j+1).',
    threads: ['xLLM-AI/xllm#2120'],
    needs: [HALF, axesBy(['interleaved', 'interleaved-ggml'], 'interleaved M-RoPE')],
    change: (steps) => withGeometry(steps, ADJACENT, ADJACENT),
  },
  {
    id: 'weights-not-permuted',
    does: 'Rotates pairs (2j, 2j+1) of weights that still have their halves apart: the permutation was skipped.',
    threads: ['ggml-org/llama.cpp#22611'],
    needs: [INTERLEAVED],
    change: (steps) => readPermuted(steps, (m) => fromHalves(m, 2 * steps.pairs)),
  },
  {
    id: 'weights-permuted-twice',
    does: 'Rotates pairs (2j, 2j+1) of weights that were permuted once more than needed.',
    threads: ['ggml-org/llama.cpp#2376'],
    needs: [INTERLEAVED],
    change: (steps) => readPermuted(steps, (m) => fromAdjacent(m, 2 * steps.pairs)),
  },
  {
    id: 'weights-permuted-for-half',
    does: 'Rotates halves of weights that were permuted for pairs (2j, 2j+1).',
    threads: ['karpathy/llama2.c#286', 'huggingface/transformers#25199'],
    needs: [HALF],
    // m = a + b·R/2 lies at 2a + b of the permuted weights, and there m of the right ones is what stands at fromAdjacent(m).
    change: (steps) => readPermuted(steps, (m) => fromAdjacent(m, 2 * steps.pairs)),
  },
  {
    id: 'weights-permuted-by-query-heads',
    does: 'Permutes key weights by the number of query heads: within quarters of a head, where there are four query heads for each key head.',
    threads: ['ggml-org/llama.cpp#3364', 'ggml-org/llama.cpp#3018'],
    needs: [
      INTERLEAVED,
      need('a window whose quarters hold two pairs or more', ({ pairs }) => pairs % GROUP === 0 && pairs >= 2 * GROUP),
    ],
    change(steps) {
      const size = 2 * steps.pairs;
      const group = size / GROUP;
      return readPermuted(steps, (m) => fromHalves(m - (m % group) + fromAdjacent(m % group, group), size));
    },
  },
]);
