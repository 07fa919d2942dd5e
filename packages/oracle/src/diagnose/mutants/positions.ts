/**
 * Cause J, positions, and cause N, shifts of cached keys and their reuse.
 *
 * @module
 */
import type { Mutant } from '../mutant.js';
import type { HeadAt, RopeSteps } from '../steps.js';
import {
  beyond,
  COMPUTED,
  mutantsOf,
  NEGATIVE,
  type Need,
  need,
  OWN_POSITIONS,
  positionsOf,
  TOKENS,
  withPosition,
} from './entry.js';

const DECODE: Need = {
  words: 'a single token at a position other than 0',
  holds: (steps) => steps.seq === 1 && positionsOf(steps).some((position) => position !== 0),
};
/** A table that somebody thought long enough. */
const TABLE_ROWS = 4096;

const first = (steps: RopeSteps, at: HeadAt, axis: number): number => steps.position({ ...at, seq: 0 }, axis);
const STARTED: Need = {
  words: 'a first position other than 0',
  holds: (steps) => batches(steps).some((batch) => first(steps, { batch, seq: 0, head: 0 }, 0) !== 0),
};

/** The batches that may have positions of their own. */
function batches(steps: RopeSteps): number[] {
  return steps.seq === 0
    ? []
    : Array.from({ length: steps.plan.batch === undefined ? Math.min(1, steps.batch) : steps.batch }, (_, b) => b);
}

/** The entries of cause J. */
export const POSITIONS: readonly Mutant[] = mutantsOf('J', [
  {
    id: 'position-plus-one',
    does: 'Counts positions from 1.',
    threads: ['skyzh/tiny-llm#46', 'mosaicml/examples#257'],
    change: (steps) => withPosition(steps, (p) => p + 1),
  },
  {
    id: 'position-minus-one',
    does: 'Takes the position before: one less than is given.',
    threads: ['mosaicml/examples#257'],
    change: (steps) => withPosition(steps, (p) => p - 1),
  },
  {
    id: 'decode-at-zero',
    does: 'Rotates a single token, as decoding does, at position 0.',
    threads: ['Blaizzy/mlx-vlm#1983'],
    needs: [DECODE],
    change: (steps) => withPosition(steps, () => 0),
  },
  {
    id: 'restarts-at-zero',
    does: 'Counts each call’s tokens from its own first: what came before is forgotten.',
    threads: ['Blaizzy/mlx-vlm#1983', 'microsoft/onnxruntime#23386'],
    needs: [STARTED, TOKENS],
    change: (steps) => withPosition(steps, (p, at, axis) => p - first(steps, at, axis)),
  },
  {
    id: 'all-at-first-position',
    does: 'Rotates every token of a call at the position of the first.',
    threads: ['unslothai/unsloth#4078'],
    needs: [TOKENS],
    change: (steps) => withPosition(steps, (_, at, axis) => first(steps, at, axis)),
  },
  {
    id: 'counts-on-from-first',
    does: 'Takes the first position alone, and counts on from it: given positions with gaps, or in another order, are ignored.',
    threads: ['Comfy-Org/ComfyUI#15698'],
    needs: [
      TOKENS,
      {
        words: 'positions that do not count up by one',
        holds: (steps) =>
          batches(steps).some((batch) =>
            Array.from({ length: steps.seq }, (_, seq) => seq).some(
              (seq) =>
                steps.position({ batch, seq, head: 0 }, 0) !== steps.position({ batch, seq: 0, head: 0 }, 0) + seq,
            ),
          ),
      },
    ],
    change: (steps) => withPosition(steps, (_, at, axis) => first(steps, at, axis) + at.seq),
  },
  {
    id: 'positions-ignored',
    does: 'Takes the token’s number in the call, 0, 1, 2 …, whatever positions are given.',
    threads: ['unslothai/unsloth#3795', 'tenstorrent/tt-forge-onnx#422'],
    needs: [need('positions other than 0, 1, 2 …', (steps) => positionsOf(steps).some((p, n) => p !== n % steps.seq))],
    change: (steps) => withPosition(steps, (_, at) => at.seq),
  },
  {
    id: 'left-padding-ignored',
    does: 'Gives every sequence of a batch the positions of the longest: those padded on the left are too far on.',
    threads: ['unslothai/unsloth#3803'],
    needs: [OWN_POSITIONS],
    change(steps) {
      const last = (batch: number): number => steps.position({ batch, seq: steps.seq - 1, head: 0 }, 0);
      const longest = batches(steps).reduce((best, batch) => (last(batch) > last(best) ? batch : best), 0);
      return withPosition(steps, (_, at, axis) => steps.position({ ...at, batch: longest }, axis));
    },
  },
  {
    id: 'positions-of-batch-0',
    does: 'Rotates every sequence of a batch by the positions of the first.',
    threads: ['unslothai/unsloth#3803', 'Comfy-Org/ComfyUI#15698'],
    needs: [OWN_POSITIONS],
    change: (steps) => withPosition(steps, (_, at, axis) => steps.position({ ...at, batch: 0 }, axis)),
  },
  {
    id: 'position-in-int16',
    does: 'Holds positions in 16 bits: from 32768 on they are negative.',
    threads: ['vllm-project/tpu-inference#2756'],
    needs: [beyond(32767)],
    change: (steps) => withPosition(steps, (p) => (p << 16) >> 16),
  },
  {
    id: 'table-wraps',
    does: 'Begins again at row 0 of its table of 4096 rows.',
    threads: ['pegainfer-project/pegainfer#220'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: (steps) => withPosition(steps, (p) => (p >= TABLE_ROWS ? p % TABLE_ROWS : p)),
  },
  {
    id: 'table-ends',
    does: 'Takes the last row of its table of 4096 rows for every position beyond.',
    threads: ['pegainfer-project/pegainfer#273'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: (steps) => withPosition(steps, (p) => Math.min(p, TABLE_ROWS - 1)),
  },
  {
    id: 'beyond-table-not-rotated',
    does: 'Copies tokens whose position is not in its table of 4096 rows, and says nothing.',
    threads: ['microsoft/onnxruntime#28205', 'microsoft/onnxruntime#27597', 'microsoft/onnxruntime#28277'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: (steps) => ({
      rotate: (head, at) => (steps.position(at, 0) >= TABLE_ROWS ? head.slice() : steps.rotate(head, at)),
    }),
  },
]);

/** The entries of cause N. */
export const CACHE_SHIFTS: readonly Mutant[] = mutantsOf('N', [
  {
    id: 'rotated-twice',
    does: 'Rotates what is already rotated: once when it is written to the cache, and again when it is read.',
    threads: ['ggml-org/llama.cpp#4097', 'ggml-org/llama.cpp#9743'],
    change: (steps) => ({ rotate: (head, at) => steps.rotate(steps.rotate(head, at), at) }),
  },
  {
    id: 'shift-added-to-new-keys',
    does: 'Adds the shift of the cache, which the first token’s position tells, to keys that were never in it.',
    threads: ['ggml-org/llama.cpp#9383'],
    needs: [STARTED],
    change: (steps) => withPosition(steps, (p, at, axis) => p + first(steps, at, axis)),
  },
  {
    id: 'shift-turns-forward',
    does: 'Turns keys forward where a negative shift is to turn them back.',
    threads: ['ggml-org/llama.cpp#3272'],
    needs: [NEGATIVE],
    change: (steps) => withPosition(steps, (p) => Math.abs(p)),
  },
  {
    id: 'shift-skipped',
    does: 'Renumbers shifted keys without turning them: tokens with a negative shift are copied.',
    threads: ['ggml-org/llama.cpp#9743'],
    needs: [NEGATIVE],
    change: (steps) => ({ rotate: (head, at) => (steps.position(at, 0) < 0 ? head.slice() : steps.rotate(head, at)) }),
  },
  {
    id: 'shift-without-sign',
    does: 'Reads a negative shift as an integer without sign, and turns by 2³² more.',
    threads: ['EleutherAI/gpt-neox#363'],
    needs: [COMPUTED, NEGATIVE],
    change: (steps) => withPosition(steps, (p) => (p < 0 ? p + 2 ** 32 : p)),
  },
]);
