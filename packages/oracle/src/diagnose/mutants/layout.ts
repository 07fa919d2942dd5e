/**
 * Cause K, layout, batch and heads, and cause O, the order of arguments.
 *
 * @module
 */
import type { Mutant } from '../mutant.js';
import type { HeadAt, RopeSteps } from '../steps.js';
import { BACKWARD, BATCHES, HEADS, mutantsOf, type Need, OWN_POSITIONS, TOKENS, withPosition } from './entry.js';

const copied = (of: (steps: RopeSteps, at: HeadAt) => boolean) => (steps: RopeSteps) => ({
  rotate: (head: Float64Array, at: HeadAt) => (of(steps, at) ? head.slice() : steps.rotate(head, at)),
});

const DECODED_TOGETHER: Need = {
  words: 'several sequences of one token',
  holds: ({ batch, seq }) => batch > 1 && seq === 1,
};

/** The entries of cause K. */
export const LAYOUT: readonly Mutant[] = mutantsOf('K', [
  {
    id: 'position-plus-head',
    does: 'Rotates head h of a token at its position + h: it walks over heads as if they were tokens.',
    threads: ['elixir-nx/emlx#121'],
    needs: [HEADS],
    change: (steps) => withPosition(steps, (p, at) => p + at.head),
  },
  {
    id: 'head-for-position',
    does: 'Rotates head h at position h.',
    threads: ['ml-explore/mlx#1340'],
    needs: [HEADS],
    change: (steps) => withPosition(steps, (_, at) => at.head),
  },
  {
    id: 'batch-for-sequence',
    does: 'Takes the batch for the sequence: the tokens of batch b rotate at the position of token b.',
    threads: ['PaddlePaddle/PaddleFleet#91'],
    needs: [BATCHES],
    change: (steps) =>
      withPosition(steps, (_, at, axis) =>
        steps.position({ ...at, batch: 0, seq: Math.min(at.batch, steps.seq - 1) }, axis),
      ),
  },
  {
    id: 'heads-and-tokens-exchanged',
    does: 'Reads [token, head] memory as [head, token]: row n of a call takes the position of token n mod tokens.',
    threads: ['ggml-org/llama.cpp#2779', 'ggml-org/llama.cpp#7452'],
    needs: [TOKENS, HEADS],
    change: (steps) =>
      withPosition(steps, (_, at, axis) =>
        steps.position({ ...at, seq: (at.seq * steps.heads + at.head) % steps.seq }, axis),
      ),
  },
  {
    id: 'positions-sequence-first',
    does: 'Reads positions [batch, token] as [token, batch]: by the stride of the other axis.',
    threads: ['flashinfer-ai/flashinfer#619'],
    needs: [OWN_POSITIONS, TOKENS],
    change: (steps) =>
      withPosition(steps, (_, at, axis) => {
        const token = at.seq * steps.batch + at.batch;
        return steps.position({ ...at, batch: Math.floor(token / steps.seq), seq: token % steps.seq }, axis);
      }),
  },
  {
    id: 'only-first-head',
    does: 'Rotates the first head and copies the others: its grid has one row.',
    threads: ['oxiglade/mlx-rs#359'],
    needs: [HEADS],
    change: copied((_, at) => at.head > 0),
  },
  {
    id: 'half-of-the-heads',
    does: 'Rotates the first half of the heads and copies the others.',
    threads: ['ml-explore/mlx-swift#441'],
    needs: [HEADS],
    change: copied((steps, at) => at.head >= Math.ceil(steps.heads / 2)),
  },
  {
    id: 'last-head-missed',
    does: 'Copies the last head: its grid is one row short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: [HEADS],
    change: copied((steps, at) => at.head === steps.heads - 1),
  },
  {
    id: 'last-token-missed',
    does: 'Copies the last token: its grid is one token short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: [TOKENS],
    change: copied((steps, at) => at.seq === steps.seq - 1),
  },
  {
    id: 'only-first-sequence',
    does: 'Writes the first of several sequences that are decoded together, and leaves zeros for the others.',
    threads: ['ml-explore/mlx#3949', 'ml-explore/mlx#3494', 'ml-explore/mlx#3795'],
    needs: [DECODED_TOGETHER],
    change: (steps) => ({
      rotate: (head, at) => (at.batch > 0 ? new Float64Array(head.length) : steps.rotate(head, at)),
    }),
  },
]);

/** The entries of cause O. */
export const ARGUMENTS: readonly Mutant[] = mutantsOf('O', [
  {
    id: 'cos-and-sin-swapped',
    does: 'Takes the sin table for cos, and the cos table for sin.',
    threads: ['onnx/onnx#6461', 'onnx/onnx#7304', 'microsoft/onnxruntime#27752'],
    change: (steps) => ({
      cosSin(position, j) {
        const [cos, sin] = steps.cosSin(position, j);
        return [sin, cos];
      },
    }),
  },
  {
    id: 'turned-the-other-way',
    does: 'Has the sign of sin wrong: turns each pair the other way.',
    threads: ['karpathy/nanochat#489'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  {
    id: 'minus-forgotten',
    does: 'Forgets the minus of rotate_half: y0 = x0·cos + x1·sin beside y1 = x0·sin + x1·cos.',
    threads: ['robertknight/rten#1209'],
    change: () => ({ turn: (x0, x1, cos, sin) => [x0 * cos + x1 * sin, x0 * sin + x1 * cos] }),
  },
  {
    id: 'members-swapped',
    does: 'Takes the second member of each pair for the first.',
    threads: ['microsoft/onnxruntime#17253'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x1, x0, cos, sin) }),
  },
  {
    id: 'backward-runs-forward',
    does: 'Does not look at the direction: backward is forward again.',
    threads: ['ml-explore/mlx#1621', 'ggml-org/llama.cpp#3974'],
    needs: [BACKWARD],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  {
    id: 'position-looked-up-by-head',
    does: 'Swaps the token’s and the head’s index where it looks up the position.',
    threads: ['flashinfer-ai/flashinfer#754'],
    needs: [TOKENS, HEADS],
    change: (steps) => withPosition(steps, (_, at, axis) => steps.position({ ...at, seq: at.head % steps.seq }, axis)),
  },
]);
