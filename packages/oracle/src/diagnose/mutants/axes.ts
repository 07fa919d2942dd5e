/**
 * Cause L: which position axis turns each pair, in M-RoPE and vision.
 *
 * @module
 */
import type { RopeAxes } from 'ropewalk';
import { sharePairs } from 'ropewalk/backend';
import type { Mutant } from '../mutant.js';
import type { Change, RopeSteps } from '../steps.js';
import { AXES, axesBy, mutantsOf, need, specOf, withPosition, withSpec } from './entry.js';

const axesOf = (steps: RopeSteps): RopeAxes => specOf(steps).axes!;
const SECTIONS = axesBy(['sections'], 'M-RoPE with contiguous sections');
const INTERLEAVED = axesBy(['interleaved', 'interleaved-ggml'], 'interleaved M-RoPE');
const VISION = axesBy(['vision'], 'a vision tower’s rotation');

/** Pairs shared out by other axes, with the right exponents; the given positions must have every axis that it takes. */
function sharedBy(steps: RopeSteps, axes: RopeAxes): Change {
  const spec = axesOf(steps);
  const given = sharePairs(spec, steps.pairs).numAxes;
  const { axisOfPair } = sharePairs(axes, steps.pairs);
  return { axisOfPair: (j) => Math.min(axisOfPair[j]!, given - 1) };
}

const halved = ({ sections }: RopeAxes): number[] => sections.map((n) => Math.floor(n / 2));

/** The entries of cause L. */
export const POSITION_AXES: readonly Mutant[] = mutantsOf('L', [
  {
    id: 'height-and-width-swapped',
    does: 'Takes the position in height for width, and that in width for height.',
    threads: ['ggml-org/llama.cpp#13282', 'Meituan-AutoML/VisionLLaMA#4'],
    needs: [AXES],
    change: (steps) => ({ axisOfPair: (j) => [0, 2, 1, 3][steps.axisOfPair(j)]! }),
  },
  {
    id: 'time-for-every-axis',
    does: 'Turns every pair by the first axis, as text needs: images are read as one line of patches.',
    threads: ['ml-explore/mlx-lm#1768'],
    needs: [AXES],
    change: () => ({ axisOfPair: () => 0 }),
  },
  {
    id: 'sections-for-interleaved',
    does: 'Gives each axis one run of pairs, as Qwen2-VL has it, where the axes take turns.',
    threads: ['alibaba/MNN#4133', 'ollama/ollama#12807'],
    needs: [INTERLEAVED],
    change: (steps) => sharedBy(steps, { ...axesOf(steps), rule: 'sections' }),
  },
  {
    id: 'interleaved-for-sections',
    does: 'Lets the axes take turns, as Qwen3-VL has it, where each has one run of pairs.',
    threads: ['Blaizzy/mlx-vlm#576'],
    needs: [SECTIONS],
    change: (steps) => sharedBy(steps, { ...axesOf(steps), rule: 'interleaved' }),
  },
  {
    id: 'interleaved-without-end',
    does: 'Lets the axes take turns over all pairs, whatever their sections say.',
    threads: ['alibaba/MNN#3345'],
    needs: [INTERLEAVED],
    change: () => ({ axisOfPair: (j) => j % 3 }),
  },
  {
    id: 'rest-to-time-for-extra',
    does: 'Gives what t, h and w leave over to t, as HuggingFace does, where ggml gives it to the fourth axis.',
    threads: ['ggml-org/llama.cpp#19443'],
    needs: [axesBy(['interleaved-ggml'], 'ggml’s interleaved M-RoPE')],
    change: (steps) => ({ axisOfPair: (j) => steps.axisOfPair(j) % 3 }),
  },
  {
    id: 'sections-in-dims',
    does: 'Counts the sections in dimensions where they are in pairs: each is half as long.',
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
  {
    id: 'positions-token-first',
    does: 'Reads positions [axis, token] as [token, axis].',
    threads: ['alibaba/rtp-llm#1213'],
    needs: [AXES],
    change(steps) {
      const { numAxes } = sharePairs(axesOf(steps), steps.pairs);
      const { positions } = steps.source!;
      const perBatch = steps.plan.batch === undefined ? 0 : steps.seq;
      return withPosition(steps, (_, at, axis) => positions[(at.batch * perBatch + at.seq) * numAxes + axis]!);
    },
  },
  {
    id: 'vision-exponent-not-restarted',
    does: 'Counts the exponent on from section to section: the second axis of a vision tower gets slow frequencies.',
    threads: ['huggingface/transformers#40490'],
    needs: [VISION],
    change(steps) {
      const spec = specOf(steps);
      const dim = spec.frequencyDim ?? steps.rotaryDim / 2;
      const { exponents } = sharePairs(spec.axes, steps.pairs);
      const { invFreq } = steps.frequencies();
      return {
        angle: (position, j) => position * invFreq[j]! * spec.base ** ((-2 * (j - exponents[j]!)) / dim),
      };
    },
  },
  {
    id: 'vision-exponent-over-head',
    does: 'Divides a vision tower’s exponent by the whole head where each axis has half of it.',
    threads: ['huggingface/pytorch-image-models#2541'],
    needs: [VISION],
    change: (steps) => withSpec(steps, { frequencyDim: 2 * (specOf(steps).frequencyDim ?? steps.rotaryDim / 2) }),
  },
]);
