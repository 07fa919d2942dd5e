/** Cause J, positions, and cause N, shifts of cached keys and their reuse. @module */
import type { Mutant } from '../kernel/mutant.js';
import type { RopeSteps } from '../kernel/steps.js';
import type { RowAt } from '../read/observation.js';
import { atPositionOf, beyond, copied, mutantsOf, need, positionsOf, withPosition } from './entry.js';

const DECODE = need(
  'a single token at a position other than 0',
  (steps) => steps.seq === 1 && positionsOf(steps).some((position) => position !== 0),
);
const outside = (least: number, most: number) =>
  need(`a position outside ${least} to ${most}`, (steps) => positionsOf(steps).some((p) => p < least || p > most));
/** The length of a table that is too short. */
const TABLE_ROWS = 4096;

const first = (steps: RopeSteps, at: RowAt, axis: number): number => steps.position({ ...at, seq: 0 }, axis);
const STARTED = need('a first position other than 0', (steps) =>
  batches(steps).some((batch) => first(steps, { batch, seq: 0, head: 0 }, 0) !== 0),
);

/** The batches that may have their own positions. */
function batches(steps: RopeSteps): number[] {
  return steps.seq === 0
    ? []
    : Array.from({ length: steps.plan.batch === undefined ? Math.min(1, steps.batch) : steps.batch }, (_, b) => b);
}

export const POSITIONS: readonly Mutant[] = mutantsOf('J', ['tokens'], {
  'position-plus-one': {
    does: 'Counts positions from 1.',
    threads: ['skyzh/tiny-llm#46', 'mosaicml/examples#257'],
    needs: [],
    change: (steps) => withPosition(steps, (p) => p + 1),
  },
  'position-minus-one': {
    does: 'Uses the position before the one that is given.',
    threads: ['mosaicml/examples#257'],
    needs: [],
    change: (steps) => withPosition(steps, (p) => p - 1),
  },
  'decode-at-zero': {
    does: 'Rotates a single token, as decoding does, at position 0.',
    threads: ['Blaizzy/mlx-vlm#1983'],
    needs: [DECODE],
    change: (steps) => withPosition(steps, () => 0),
  },
  'restarts-at-zero': {
    does: 'Counts positions from the first token of each call: earlier tokens are forgotten.',
    threads: ['Blaizzy/mlx-vlm#1983', 'microsoft/onnxruntime#23386'],
    needs: [STARTED, 'tokens'],
    change: (steps) => withPosition(steps, (p, at, axis) => p - first(steps, at, axis)),
  },
  'all-at-first-position': {
    does: 'Rotates every token of a call at the position of the first.',
    threads: ['unslothai/unsloth#4078'],
    change: atPositionOf(() => ({ seq: 0 })),
  },
  'all-at-last-position': {
    does: 'Rotates every token of a call at the position of the last.',
    threads: ['bojone/rerope#17'],
    change: atPositionOf((_, { seq }) => ({ seq: seq - 1 })),
  },
  'position-of-next-token': {
    does: 'Rotates each token at the position of the next one, and the last at its own.',
    threads: ['modelscope/ms-swift#8325'],
    change: atPositionOf((at, { seq }) => ({ seq: Math.min(at.seq + 1, seq - 1) })),
  },
  'positions-rolled': {
    does: 'Rotates each token at the position of the next one, and the last at the position of the first.',
    threads: ['modelscope/ms-swift#8325'],
    change: atPositionOf((at, { seq }) => ({ seq: (at.seq + 1) % seq })),
  },
  'position-of-previous-token': {
    does: 'Rotates each token at the position of the one before, and the first at 0.',
    threads: ['PrimeIntellect-ai/prime-rl#1525'],
    change: (steps) =>
      withPosition(steps, (_, at, axis) => (at.seq === 0 ? 0 : steps.position({ ...at, seq: at.seq - 1 }, axis))),
  },
  'table-of-previous-call': {
    does: 'Rotates by the cos and sin of the call before, which had as many tokens: at the position minus their number.',
    threads: ['vllm-project/vllm-ascend#10404', 'vllm-project/vllm-ascend#1267'],
    change: (steps) => withPosition(steps, (p) => p - steps.seq),
  },
  'counts-on-from-first': {
    does: 'Uses only the first position and counts up from it: gaps and other orders are ignored.',
    threads: ['Comfy-Org/ComfyUI#15698'],
    needs: [
      'tokens',
      need('positions that do not count up by one', (steps) =>
        batches(steps).some((batch) =>
          Array.from({ length: steps.seq }, (_, seq) => seq).some(
            (seq) => steps.position({ batch, seq, head: 0 }, 0) !== steps.position({ batch, seq: 0, head: 0 }, 0) + seq,
          ),
        ),
      ),
    ],
    change: (steps) => withPosition(steps, (_, at, axis) => first(steps, at, axis) + at.seq),
  },
  'positions-ignored': {
    does: 'Ignores the given positions: uses the token’s index in the call, 0, 1, 2 …, or a table that was made for an earlier call.',
    threads: ['unslothai/unsloth#3795', 'tenstorrent/tt-forge-onnx#422'],
    needs: [need('positions other than 0, 1, 2 …', (steps) => positionsOf(steps).some((p, n) => p !== n % steps.seq))],
    change: (steps) => withPosition(steps, (_, at) => at.seq),
  },
  'left-padding-ignored': {
    does: 'Gives every sequence of a batch the positions of the longest: those with padding on the left get positions that are too large.',
    threads: ['unslothai/unsloth#3803'],
    needs: ['batchPositions'],
    change(steps) {
      const last = (batch: number): number => steps.position({ batch, seq: steps.seq - 1, head: 0 }, 0);
      const longest = batches(steps).reduce((best, batch) => (last(batch) > last(best) ? batch : best), 0);
      return atPositionOf(() => ({ batch: longest }))(steps);
    },
  },
  'positions-of-batch-0': {
    does: 'Rotates every sequence of a batch by the positions of the first.',
    threads: ['unslothai/unsloth#3803', 'Comfy-Org/ComfyUI#15698'],
    needs: ['batchPositions'],
    change: atPositionOf(() => ({ batch: 0 })),
  },
  'position-in-int16': {
    does: 'Holds positions in 16 bits: from 32768 on they are negative.',
    threads: ['vllm-project/tpu-inference#2756'],
    needs: [outside(-32768, 32767)],
    change: (steps) => withPosition(steps, (p) => (p << 16) >> 16),
  },
  'position-in-uint16': {
    does: 'Holds positions in 16 bits without a sign: from 65536 on they start again at 0.',
    threads: ['vllm-project/tpu-inference#2756'],
    needs: [outside(0, 65535)],
    change: (steps) => withPosition(steps, (p) => p & 0xffff),
  },
  'position-in-int8': {
    does: 'Holds positions in 8 bits: from 128 on they are negative.',
    threads: ['vllm-project/tpu-inference#2756'],
    needs: [outside(-128, 127)],
    change: (steps) => withPosition(steps, (p) => (p << 24) >> 24),
  },
  'position-in-uint8': {
    does: 'Holds positions in 8 bits without a sign: from 256 on they start again at 0.',
    threads: ['vllm-project/tpu-inference#2756'],
    needs: [outside(0, 255)],
    change: (steps) => withPosition(steps, (p) => p & 0xff),
  },
  'int64-positions-as-int32': {
    does: 'Reads positions of 64 bits as 32: every second token gets the upper half of a position, which is 0.',
    threads: ['ROCm/aiter#2566'],
    change(steps) {
      const positions = positionsOf(steps);
      const rows = steps.plan.tableRows.length;
      return withPosition(steps, (_, at, axis) => {
        const word = axis * rows + (steps.plan.batch === undefined ? 0 : at.batch * steps.seq) + at.seq;
        const position = positions[word >> 1]!;
        return word % 2 === 0 ? position | 0 : Math.sign(position) >> 1; // the upper half: 0, or −1 of a negative one
      });
    },
  },
  'table-wraps': {
    does: 'Starts again at row 0 after the end of its table of 4096 rows.',
    threads: ['pegainfer-project/pegainfer#220'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: (steps) => withPosition(steps, (p) => (p >= TABLE_ROWS ? p % TABLE_ROWS : p)),
  },
  'table-ends': {
    does: 'Uses the last row of its table of 4096 rows for every position beyond it.',
    threads: ['pegainfer-project/pegainfer#273'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: (steps) => withPosition(steps, (p) => Math.min(p, TABLE_ROWS - 1)),
  },
  'beyond-table-not-rotated': {
    does: 'Silently copies tokens whose position is beyond its table of 4096 rows.',
    threads: ['microsoft/onnxruntime#28205', 'microsoft/onnxruntime#27597', 'microsoft/onnxruntime#28277'],
    needs: [beyond(TABLE_ROWS - 1)],
    change: copied((steps, at) => steps.position(at, 0) >= TABLE_ROWS),
  },
});

export const CACHE_SHIFTS: readonly Mutant[] = mutantsOf('N', [], {
  'rotated-twice': {
    does: 'Rotates twice: when a key is written to the cache, and again when it is read.',
    threads: ['ggml-org/llama.cpp#4097', 'ggml-org/llama.cpp#9743'],
    change: (steps) => ({
      rotate(this: RopeSteps, head, at) {
        return steps.rotate.call(this, steps.rotate.call(this, head, at), at);
      },
    }),
  },
  'shift-added-to-new-keys': {
    does: 'Adds the shift of the cache (the first token’s position) to keys that were never in the cache.',
    threads: ['ggml-org/llama.cpp#9383'],
    needs: [STARTED],
    change: (steps) => withPosition(steps, (p, at, axis) => p + first(steps, at, axis)),
  },
  'shift-turns-forward': {
    does: 'Rotates keys forward by a negative shift, which should rotate them back.',
    threads: ['ggml-org/llama.cpp#3272'],
    needs: ['negative'],
    change: (steps) => withPosition(steps, (p) => Math.abs(p)),
  },
  'shift-skipped': {
    does: 'Renumbers shifted keys without rotating them: tokens with a negative shift are copied.',
    threads: ['ggml-org/llama.cpp#9743'],
    needs: ['negative'],
    change: copied((steps, at) => steps.position(at, 0) < 0),
  },
  'shift-without-sign': {
    does: 'Reads a negative shift as an unsigned integer: rotates by 2³² positions more.',
    threads: ['EleutherAI/gpt-neox#363'],
    needs: ['computed', 'negative'],
    change: (steps) => withPosition(steps, (p) => (p < 0 ? p + 2 ** 32 : p)),
  },
});
