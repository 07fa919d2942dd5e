/**
 * Experts in ONNX's own operators.
 *
 * Letters in shapes: t tokens, u experts of a token, e experts, x an expert's inner width, h hidden.
 *
 * @module
 */
import type { WeightPlan } from '@ropewalk/model/description';
import type { Chosen } from '../export/fragments.js';
import { activated } from './feed-forward.js';
import type { DecoderOperators } from './operators.js';
import type { DecoderScope } from './scope.js';

/**
 * Appends the chosen experts of each token, whose matrices are gathered: a graph reads no other. `[t, h]` → `[t, h]`.
 */
export function gatheredExperts(
  s: DecoderScope,
  ops: DecoderOperators,
  x: string,
  { indices, weights }: Chosen,
  layer: number,
): string {
  const { b } = s;
  const at = (part: string): WeightPlan | undefined => s.at(`${layer}.${part}`);
  const axis = (n: number): string => s.integers(n);
  const of = (plan: WeightPlan, ids = indices): string => ops.rows(ids, plan);
  const biased = (y: string, plan: WeightPlan | undefined): string => (plan ? b.add('Add', [y, of(plan)]) : y);
  /** `[t, 1 or u, k]` → `[t, u, n]`, of matrices `[t, u, n, k]`, or `[t, u, k, n]` where they are transposed. */
  const product = (input: string, matrices: string, transposed = false): string => {
    const last = transposed ? axis(2) : axis(3);
    const vector = b.add('Unsqueeze', [input, last]);
    const y = b.add('MatMul', transposed ? [vector, matrices] : [matrices, vector]);
    return b.add('Squeeze', [y, last]);
  };
  const token = b.add('Unsqueeze', [x, axis(1)]); // [t, 1, h]
  const [gate, up] = gateAndUp();
  const made = activated(s, ops, gate, up); // [t, u, x]
  const [down, transposed] = [at('expertDown.weight'), at('expertDownTransposed.weight')];
  const sum = product(made, of(down ?? transposed!), !down); // [t, u, h]
  const y = biased(sum, at('expertDown.bias') ?? at('expertDownTransposed.bias'));
  const weighted = b.add('Mul', [y, b.add('Unsqueeze', [weights, axis(2)])]);
  return b.add('ReduceSum', [weighted, axis(1)], { keepdims: { i: 0 } });

  function gateAndUp(): readonly [string, string] {
    const [turns, blocks] = [at('expertGateUp.weight'), at('expertGateUpBlocks.weight')];
    // Rows, and biases, of gate and up take turns: [t, u, 2x] → two of [t, u, x].
    const apart = (both: string): readonly [string, string] => {
      const pairs = b.add('Reshape', [both, s.integers(0, 0, -1, 2)]);
      const halves = b.addMany('Split', [pairs], { axis: { i: 3 }, num_outputs: { i: 2 } }, 2);
      return halves.map((half) => b.add('Squeeze', [half, axis(3)])) as [string, string];
    };
    if (turns) return apart(biased(product(token, of(turns), true), at('expertGateUp.bias')));
    if (!blocks)
      return ['expertGate', 'expertUp'].map((part) =>
        biased(product(token, of(at(`${part}.weight`)!)), at(`${part}.bias`)),
      ) as [string, string];
    // All gates, then all ups: expert i's are matrices i and e + i.
    const ups = b.add('Add', [indices, s.integers(s.config.experts!.count)]);
    const parts = [of(blocks), of(blocks, ups)].map((matrices) => product(token, matrices));
    const bias = at('expertGateUpBlocks.bias');
    if (!bias) return parts as [string, string];
    const biases = apart(of(bias));
    return parts.map((part, n) => b.add('Add', [part, biases[n]!])) as [string, string];
  }
}
