/** Cause K, layout, batch and heads, and cause O, the order of arguments. @module */
import type { Mutant } from '../kernel/mutant.js';
import type { RopeSteps } from '../kernel/steps.js';
import { atPositionOf, copied, exchanged, mutantsOf, NEEDS, need, swapped, unwritten, withPosition } from './entry.js';

const DECODED_TOGETHER = need(
  'several sequences of one token',
  ({ batch, seq }) => batch > 1 && seq === 1,
  NEEDS.batches,
);

export const LAYOUT: readonly Mutant[] = mutantsOf('K', ['heads'], {
  'position-plus-head': {
    does: 'Rotates head h of a token at the token’s position + h: it treats heads as tokens.',
    threads: ['elixir-nx/emlx#121'],
    change: (steps) => withPosition(steps, (p, at) => p + at.head),
  },
  'head-for-position': {
    does: 'Rotates head h at position h.',
    threads: ['ml-explore/mlx#1340'],
    change: (steps) => withPosition(steps, (_, at) => at.head),
  },
  'batch-for-sequence': {
    does: 'Uses the batch index as the token index: the tokens of batch b rotate at the position of token b.',
    threads: ['PaddlePaddle/PaddleFleet#91'],
    needs: ['batches'],
    change: atPositionOf(({ batch }, { seq }) => ({ batch: 0, seq: Math.min(batch, seq - 1) })),
  },
  'heads-and-tokens-exchanged': {
    does: 'Reads [token, head] memory as [head, token]: row n of a call gets the position of token n mod tokens.',
    threads: ['ggml-org/llama.cpp#2779', 'ggml-org/llama.cpp#7452'],
    needs: ['tokens', 'heads'],
    change: atPositionOf(({ seq, head }, steps) => ({ seq: (seq * steps.heads + head) % steps.seq })),
  },
  'positions-sequence-first': {
    does: 'Reads positions [batch, token] as [token, batch].',
    threads: ['flashinfer-ai/flashinfer#619'],
    needs: ['batchPositions', 'tokens'],
    change: atPositionOf((at, { batch, seq }) => {
      const token = at.seq * batch + at.batch;
      return { batch: Math.floor(token / seq), seq: token % seq };
    }),
  },
  'tokens-sequence-first': {
    does: 'Reads the rows of x [batch, token] as [token, batch]: row n gets the position of token n / batches in batch n mod batches.',
    threads: ['PaddlePaddle/PaddleFleet#91', 'deepspeedai/DeepSpeed#2782'],
    needs: ['batches', 'tokens'],
    change: atPositionOf((at, { batch, seq }) => {
      const row = at.batch * seq + at.seq;
      return { batch: row % batch, seq: Math.floor(row / batch) };
    }),
  },
  'only-first-head': {
    does: 'Rotates the first head and copies the others: its grid has one row.',
    threads: ['oxiglade/mlx-rs#359'],
    change: copied((_, at) => at.head > 0),
  },
  'half-of-the-heads': {
    does: 'Rotates the first half of the heads and copies the others.',
    threads: ['ml-explore/mlx-swift#441'],
    change: copied((steps, at) => at.head >= Math.ceil(steps.heads / 2)),
  },
  'last-head-missed': {
    does: 'Copies the last head: its grid is one row short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    change: copied((steps, at) => at.head === steps.heads - 1),
  },
  'last-token-missed': {
    does: 'Copies the last token: its grid is one token short.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    needs: ['tokens'],
    change: copied((steps, at) => at.seq === steps.seq - 1),
  },
  'only-first-sequence': {
    does: 'Writes only the first of several sequences that are decoded together; the others are zeros.',
    threads: ['ml-explore/mlx#3949', 'ml-explore/mlx#3494', 'ml-explore/mlx#3795'],
    needs: [DECODED_TOGETHER],
    change: unwritten((_, at) => at.batch > 0),
  },
  'last-batch-missed': {
    does: 'Copies the last batch: its grid is one batch short.',
    threads: ['ml-explore/mlx#3795'],
    needs: ['batches'],
    change: copied((steps, at) => at.batch === steps.batch - 1),
  },
  'last-batch-not-written': {
    does: 'Does not write the last batch: the output has zeros there.',
    threads: ['ml-explore/mlx#3949'],
    needs: ['batches'],
    change: unwritten((steps, at) => at.batch === steps.batch - 1),
  },
  'last-token-not-written': {
    does: 'Does not write the last token: the output has zeros there.',
    threads: ['hw-native-sys/pypto-lib#1014'],
    needs: ['tokens'],
    change: unwritten((steps, at) => at.seq === steps.seq - 1),
  },
  'last-head-not-written': {
    does: 'Does not write the last head: the output has zeros there.',
    threads: ['flashinfer-ai/flashinfer#2470'],
    change: unwritten((steps, at) => at.head === steps.heads - 1),
  },
  'heads-swapped': {
    does: 'Exchanges heads 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['oxiglade/mlx-rs#359'],
    change: exchanged((steps, at) => ({ ...at, head: swapped(at.head, steps.heads) })),
  },
  'tokens-swapped': {
    does: 'Exchanges tokens 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['oxiglade/mlx-rs#359'],
    needs: ['tokens'],
    change: exchanged((steps, at) => ({ ...at, seq: swapped(at.seq, steps.seq) })),
  },
  'batches-swapped': {
    does: 'Exchanges batches 0 and 1, 2 and 3 and so on: each is right, in the other’s place.',
    threads: ['ml-explore/mlx#3795'],
    needs: ['batches'],
    change: exchanged((steps, at) => ({ ...at, batch: swapped(at.batch, steps.batch) })),
  },
  'second-members-not-written': {
    does: 'Writes the first member of each pair; the second keeps what x holds there.',
    threads: ['vllm-project/vllm-ascend#7082'],
    needs: [],
    change: (steps) => ({
      rotate(this: RopeSteps, head, at) {
        const y = steps.rotate.call(this, head, at);
        for (let j = 0; j < this.pairs; j++) y[this.writeIndex(j, 1)] = head[this.writeIndex(j, 1)]!;
        return y;
      },
    }),
  },
  'second-member-from-first': {
    does: 'Writes the first member of a pair in place before it reads it for the second: y1 = y0·sin + x1·cos; backward with −sin.',
    threads: ['flagos-ai/FlagGems#5142'],
    needs: [],
    change: () => ({
      turn(x0, x1, cos, sin) {
        const y0 = x0 * cos - x1 * sin;
        return [y0, y0 * sin + x1 * cos];
      },
    }),
  },
  'first-member-from-second': {
    does: 'Writes the second member of a pair in place before it reads it for the first: y0 = x0·cos − y1·sin; backward with −sin.',
    threads: ['flagos-ai/FlagGems#5142'],
    needs: [],
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
    needs: ['interleavedToHalf'],
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

export const ARGUMENTS: readonly Mutant[] = mutantsOf('O', [], {
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
  'sin-past-the-half': {
    does: 'Has cos and sin in one row of rotary_dim, and reads sin from half of the next power of two instead of rotary_dim/2: other pairs’ sin, then the next row’s cos.',
    threads: ['vllm-project/vllm-ascend#12723'],
    needs: [
      need(
        'a number of pairs that is no power of two',
        ({ source, pairs }) => source !== undefined && source.spec.axes === undefined && (pairs & (pairs - 1)) !== 0,
      ),
    ],
    change: (steps) => ({
      cosSin(this: RopeSteps, position, j) {
        const from = j + 2 ** Math.ceil(Math.log2(this.pairs)) - this.pairs;
        const [cos] = steps.cosSin.call(this, position, j);
        if (from < this.pairs) return [cos, steps.cosSin.call(this, position, from)[1]];
        return [cos, steps.cosSin.call(this, position + 1, from - this.pairs)[0]];
      },
    }),
  },
  'turned-the-other-way': {
    does: 'Has the wrong sign of sin: rotates each pair in the opposite direction.',
    threads: ['karpathy/nanochat#489'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  'minus-forgotten': {
    does: 'Forgets the minus of rotate_half: y0 = x0·cos + x1·sin, with y1 = x0·sin + x1·cos; backward with −sin.',
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
    needs: ['backward'],
    change: (steps) => ({ turn: (x0, x1, cos, sin) => steps.turn(x0, x1, cos, -sin) }),
  },
  'position-looked-up-by-head': {
    does: 'Looks up the position by the head’s index instead of the token’s.',
    threads: ['flashinfer-ai/flashinfer#754'],
    needs: ['tokens', 'heads'],
    change: atPositionOf(({ head }, { seq }) => ({ seq: head % seq })),
  },
});
