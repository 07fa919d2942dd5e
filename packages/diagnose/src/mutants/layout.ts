/** Cause K, layout, batch and heads, and cause O, the order of arguments. @module */
import type { Mutant } from '../kernel/mutant.js';
import type { RopeSteps } from '../kernel/steps.js';
import {
  BACKWARD,
  BATCHES,
  copied,
  exchanged,
  HEADS,
  mutantsOf,
  need,
  OWN_POSITIONS,
  READ_ONE_WRITTEN_OTHER,
  swapped,
  TOKENS,
  unwritten,
  withPosition,
} from './entry.js';

const DECODED_TOGETHER = need('several sequences of one token', ({ batch, seq }) => batch > 1 && seq === 1, BATCHES);

/** The entries of cause K. */
export const LAYOUT: readonly Mutant[] = mutantsOf('K', {
  'position-plus-head': {
    does: 'Rotates head h of a token at the token’s position + h: it treats heads as tokens.',
    threads: ['elixir-nx/emlx#121'],
    needs: [HEADS],
    change: (steps) => withPosition(steps, (p, at) => p + at.head),
  },
  'head-for-position': {
    does: 'Rotates head h at position h.',
    threads: ['ml-explore/mlx#1340'],
    needs: [HEADS],
    change: (steps) => withPosition(steps, (_what, at) => at.head),
  },
  'batch-for-sequence': {
    does: 'Uses the batch index as the token index: the tokens of batch b rotate at the position of token b.',
    threads: ['PaddlePaddle/PaddleFleet#91'],
    needs: [BATCHES],
    change: (steps) =>
      withPosition(steps, (_what, at, axis) =>
        steps.position({ ...at, batch: 0, seq: Math.min(at.batch, steps.seq - 1) }, axis),
      ),
  },
  'heads-and-tokens-exchanged': {
    does: 'Reads [token, head] memory as [head, token]: row n of a call gets the position of token n mod tokens.',
    threads: ['ggml-org/llama.cpp#2779', 'ggml-org/llama.cpp#7452'],
    needs: [TOKENS, HEADS],
    change: (steps) =>
      withPosition(steps, (_what, at, axis) =>
        steps.position({ ...at, seq: (at.seq * steps.heads + at.head) % steps.seq }, axis),
      ),
  },
  'positions-sequence-first': {
    does: 'Reads positions [batch, token] as [token, batch].',
    threads: ['flashinfer-ai/flashinfer#619'],
    needs: [OWN_POSITIONS, TOKENS],
    change: (steps) =>
      withPosition(steps, (_what, at, axis) => {
        const token = at.seq * steps.batch + at.batch;
        return steps.position({ ...at, batch: Math.floor(token / steps.seq), seq: token % steps.seq }, axis);
      }),
  },
  'tokens-sequence-first': {
    does: 'Reads the rows of x [batch, token] as [token, batch]: row n gets the position of token n / batches in batch n mod batches.',
    threads: ['PaddlePaddle/PaddleFleet#91', 'deepspeedai/DeepSpeed#2782'],
    needs: [BATCHES, TOKENS],
    change: (steps) =>
      withPosition(steps, (_what, at, axis) => {
        const row = at.batch * steps.seq + at.seq;
        return steps.position({ ...at, batch: row % steps.batch, seq: Math.floor(row / steps.batch) }, axis);
      }),
  },
  'only-first-head': {
    does: 'Rotates the first head and copies the others: its grid has one row.',
    threads: ['oxiglade/mlx-rs#359'],
    needs: [HEADS],
    change: copied((_what, at) => at.head > 0),
  },
  'half-of-the-heads': {
    does: 'Rotates the first half of the heads and copies the others.',
    threads: ['ml-explore/mlx-swift#441'],
    needs: [HEADS],
    change: copied((steps, at) => at.head >= Math.ceil(steps.heads / 2)),
  },
  'last-head-missed': {
    does: 'Copies the last head: its grid is one row short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: [HEADS],
    change: copied((steps, at) => at.head === steps.heads - 1),
  },
  'last-token-missed': {
    does: 'Copies the last token: its grid is one token short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: [TOKENS],
    change: copied((steps, at) => at.seq === steps.seq - 1),
  },
  'only-first-sequence': {
    does: 'Writes only the first of several sequences that are decoded together; the others are zeros.',
    threads: ['ml-explore/mlx#3949', 'ml-explore/mlx#3494', 'ml-explore/mlx#3795'],
    needs: [DECODED_TOGETHER],
    change: unwritten((_what, at) => at.batch > 0),
  },
  'last-batch-missed': {
    does: 'Copies the last batch: its grid is one batch short.',
    threads: ['ml-explore/mlx#3795'],
    needs: [BATCHES],
    change: copied((steps, at) => at.batch === steps.batch - 1),
  },
  'last-batch-not-written': {
    does: 'Does not write the last batch: the output has zeros there.',
    threads: ['ml-explore/mlx#3949'],
    needs: [BATCHES],
    change: unwritten((steps, at) => at.batch === steps.batch - 1),
  },
  'last-token-not-written': {
    does: 'Does not write the last token: the output has zeros there.',
    threads: ['hw-native-sys/pypto-lib#1014'],
    needs: [TOKENS],
    change: unwritten((steps, at) => at.seq === steps.seq - 1),
  },
  'last-head-not-written': {
    does: 'Does not write the last head: the output has zeros there.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: [HEADS],
    change: unwritten((steps, at) => at.head === steps.heads - 1),
  },
  'heads-swapped': {
    does: 'Exchanges heads 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['oxiglade/mlx-rs#359'],
    needs: [HEADS],
    change: exchanged((steps, at) => ({ ...at, head: swapped(at.head, steps.heads) })),
  },
  'tokens-swapped': {
    does: 'Exchanges tokens 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['oxiglade/mlx-rs#359'],
    needs: [TOKENS],
    change: exchanged((steps, at) => ({ ...at, seq: swapped(at.seq, steps.seq) })),
  },
  'batches-swapped': {
    does: 'Exchanges batches 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['ml-explore/mlx#3795'],
    needs: [BATCHES],
    change: exchanged((steps, at) => ({ ...at, batch: swapped(at.batch, steps.batch) })),
  },
  'second-member-from-first': {
    does: 'Writes the first member of a pair in place before it reads it for the second: y1 = y0·sin + x1·cos.',
    threads: ['flagos-ai/FlagGems#5142'],
    change: () => ({
      turn(x0, x1, cos, sin) {
        const y0 = x0 * cos - x1 * sin;
        return [y0, y0 * sin + x1 * cos];
      },
    }),
  },
  'first-member-from-second': {
    does: 'Writes the second member of a pair in place before it reads it for the first: y0 = x0·cos − y1·sin.',
    threads: ['flagos-ai/FlagGems#5142'],
    change: () => ({
      turn(x0, x1, cos, sin) {
        const y1 = x0 * sin + x1 * cos;
        return [x0 * cos - y1 * sin, y1];
      },
    }),
  },
  'pairs-overwritten-in-place': {
    does: 'Writes halves over interleaved pairs in place: later pairs read what earlier ones wrote.',
    threads: ['flagos-ai/FlagGems#5142'],
    needs: [READ_ONE_WRITTEN_OTHER],
    change: (steps) => ({
      rotate(this: RopeSteps, head, at) {
        const { rotaryOffset: from, rotaryDim } = steps;
        const y = head.map((value, i) => (i >= from && i < from + rotaryDim ? value : this.beside(value, i, at)));
        for (let j = 0; j < this.pairs; j++) {
          const [y0, y1] = this.pair(y, j, at);
          y[this.writeIndex(j, 0)] = y0;
          y[this.writeIndex(j, 1)] = y1;
        }
        return y;
      },
    }),
  },
});

/** The entries of cause O. */
export const ARGUMENTS: readonly Mutant[] = mutantsOf('O', {
  'cos-and-sin-swapped': {
    does: 'Swaps the tables of cos and sin.',
    threads: ['onnx/onnx#6461', 'onnx/onnx#7304', 'microsoft/onnxruntime#27752'],
    change: (steps) => ({
      cosSin(this: RopeSteps, position, j) {
        const [cos, sin] = steps.cosSin.call(this, position, j);
        return [sin, cos];
      },
    }),
  },
  'turned-the-other-way': {
    does: 'Has the wrong sign of sin: rotates each pair in the opposite direction.',
    threads: ['karpathy/nanochat#489'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  'minus-forgotten': {
    does: 'Forgets the minus of rotate_half: y0 = x0·cos + x1·sin, with y1 = x0·sin + x1·cos.',
    threads: ['robertknight/rten#1209'],
    change: () => ({ turn: (x0, x1, cos, sin) => [x0 * cos + x1 * sin, x0 * sin + x1 * cos] }),
  },
  'members-swapped': {
    does: 'Swaps the two members of each pair when it reads them.',
    threads: ['microsoft/onnxruntime#17253'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x1, x0, cos, sin) }),
  },
  'members-written-swapped': {
    does: 'Rotates each pair correctly and writes its two members in each other’s place.',
    threads: ['microsoft/onnxruntime#17253'],
    change: (steps) => ({
      turn(x0, x1, cos, sin) {
        const [y0, y1] = steps.turn(x0, x1, cos, sin);
        return [y1, y0];
      },
    }),
  },
  'backward-runs-forward': {
    does: 'Ignores the direction: backward rotates forward.',
    threads: ['ml-explore/mlx#1621', 'ggml-org/llama.cpp#3974'],
    needs: [BACKWARD],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  'position-looked-up-by-head': {
    does: 'Looks up the position by the head’s index instead of the token’s.',
    threads: ['flashinfer-ai/flashinfer#754'],
    needs: [TOKENS, HEADS],
    change: (steps) =>
      withPosition(steps, (_what, at, axis) => steps.position({ ...at, seq: at.head % steps.seq }, axis)),
  },
});
