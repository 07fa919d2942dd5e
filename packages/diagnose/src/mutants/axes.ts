/** Cause L: the position axis that rotates each pair, in M-RoPE and vision. @module */
import type { RopeAxes } from 'ropewalk';
import { sharePairs } from 'ropewalk/internal';
import type { Mutant } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import { axesBy, mutantsOf, need, withInvFreq, withPosition, withSpec } from './entry.js';

const axesOf = (steps: RopeSteps): RopeAxes => steps.spec.axes!;
const SECTIONS = axesBy(['sections'], 'M-RoPE with contiguous sections');
const INTERLEAVED = axesBy(['interleaved', 'interleaved-ggml'], 'interleaved M-RoPE');
const VISION = axesBy(['vision'], 'a vision tower’s rotation');

/** Takes other axes for the pairs, with the right exponents. An axis without given positions becomes the last one that has some. */
function sharedBy(steps: RopeSteps, axes: RopeAxes): Change {
  const spec = axesOf(steps);
  const given = sharePairs(spec, steps.pairs).numAxes;
  const { axisOfPair } = sharePairs(axes, steps.pairs);
  return { axisOfPair: (j) => Math.min(axisOfPair[j]!, given - 1) };
}

const halved = ({ sections }: RopeAxes): number[] => sections.map((n) => Math.floor(n / 2));

export const POSITION_AXES: readonly Mutant[] = mutantsOf('L', ['axes'], {
  'height-and-width-swapped': {
    does: 'Swaps the positions in height and in width.',
    threads: ['ggml-org/llama.cpp#13282', 'Meituan-AutoML/VisionLLaMA#4'],
    change(steps) {
      const axes = axesOf(steps);
      // t, h, w; a vision tower has only h and w.
      const order = axes.rule === 'vision' || axes.sections.length < 3 ? [1, 0, 2, 3] : [0, 2, 1, 3];
      return { axisOfPair: (j) => order[steps.axisOfPair(j)]! };
    },
  },
  'time-for-every-axis': {
    does: 'Rotates every pair by the first axis, as for text: an image becomes one line of patches.',
    threads: ['ml-explore/mlx-lm#1768'],
    change: () => ({ axisOfPair: () => 0 }),
  },
  'sections-for-interleaved': {
    does: 'Gives each axis one run of pairs, as in Qwen2-VL, where the axes should take turns.',
    threads: ['alibaba/MNN#4133', 'ollama/ollama#12807'],
    needs: [INTERLEAVED],
    change: (steps) => sharedBy(steps, { ...axesOf(steps), rule: 'sections' }),
  },
  'interleaved-for-sections': {
    does: 'Lets the axes take turns, as in Qwen3-VL, where each should have one run of pairs.',
    threads: ['Blaizzy/mlx-vlm#576'],
    needs: [SECTIONS],
    change: (steps) => sharedBy(steps, { ...axesOf(steps), rule: 'interleaved' }),
  },
  'interleaved-without-end': {
    does: 'Lets the axes take turns over all pairs and ignores their sections.',
    threads: ['alibaba/MNN#3345'],
    needs: [INTERLEAVED],
    change: () => ({ axisOfPair: (j) => j % 3 }),
  },
  'rest-to-time-for-extra': {
    does: 'Gives the pairs that t, h and w leave over to t, as HuggingFace does; ggml gives them to the fourth axis.',
    threads: ['ggml-org/llama.cpp#19443'],
    needs: [axesBy(['interleaved-ggml'], 'ggml’s interleaved M-RoPE')],
    change: (steps) => ({ axisOfPair: (j) => steps.axisOfPair(j) % 3 }),
  },
  'sections-in-dims': {
    does: 'Counts the sections in dimensions instead of pairs: each is half as long.',
    threads: ['vllm-project/vllm#32143'],
    needs: [
      axesBy(['sections', 'vision'], 'contiguous sections'),
      need('sections of two pairs or more', (steps) =>
        halved(axesOf(steps))
          .slice(0, 3)
          .some((n) => n > 0),
      ),
    ],
    change: (steps) => sharedBy(steps, { rule: axesOf(steps).rule, sections: halved(axesOf(steps)) }),
  },
  'positions-token-first': {
    does: 'Reads positions [axis, token] as [token, axis].',
    threads: ['alibaba/rtp-llm#1213'],
    change(steps) {
      const { numAxes } = sharePairs(axesOf(steps), steps.pairs);
      const { positions } = steps.source!;
      const perBatch = steps.plan.batch === undefined ? 0 : steps.seq;
      return withPosition(steps, (_, at, axis) => positions[(at.batch * perBatch + at.seq) * numAxes + axis]!);
    },
  },
  'vision-exponent-not-restarted': {
    does: 'Does not restart the exponent at each section: the second axis of a vision tower gets slow frequencies.',
    threads: ['huggingface/transformers#40490'],
    needs: [VISION],
    change(steps) {
      const spec = steps.spec;
      const dim = spec.frequencyDim ?? steps.rotaryDim / 2;
      const { exponents } = sharePairs(spec.axes, steps.pairs);
      const { invFreq } = steps.frequencies();
      return {
        angle: (position, j) => position * invFreq[j]! * spec.base ** ((-2 * (j - exponents[j]!)) / dim),
      };
    },
  },
  'vision-exponent-of-text': {
    does: 'Rotates a vision tower by the frequencies of text, base^(−2j/rotary_dim) over all pairs: the second axis gets the slow half.',
    threads: ['huggingface/transformers#40490'],
    needs: [VISION],
    change: (steps) => withInvFreq(steps, (j) => steps.spec.base ** (-j / steps.pairs)),
  },
  'vision-exponent-over-head': {
    does: 'Divides a vision tower’s exponent by the whole head, although each axis has half of it.',
    threads: ['huggingface/pytorch-image-models#2541'],
    needs: [VISION],
    change: (steps) => withSpec(steps, { frequencyDim: 2 * (steps.spec.frequencyDim ?? steps.rotaryDim / 2) }),
  },
});
