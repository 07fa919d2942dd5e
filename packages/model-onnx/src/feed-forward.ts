/**
 * The feed-forward block of one layer of a decoder's graph: dense, or a mixture of experts.
 *
 * Letters in shapes: t tokens, u experts of a token, e experts, d computed experts, x the inner width of an expert, h
 * hidden.
 *
 * @module
 */

import { normalQuantile, type WeightPlan, xieluFactors } from '@ropewalk/model/internal';
import { type Chosen, route, xielu } from '@ropewalk/onnx/internal';
import type { DecoderOperators } from './operators.js';
import type { DecoderScope } from './scope.js';

/** Appends the block: `[batch, rows, h]` → `[batch, rows, h]`. */
export function feedForward(s: DecoderScope, ops: DecoderOperators, input: string, layer: number): string {
  return s.at(`${layer}.router.weight`) ? mixture(s, ops, input, layer) : dense(s, ops, input, layer, 'gate up down');
}

/** Appends `down(activation(gate(x)) · up(x))` with the matrices of three parts. */
export function dense(s: DecoderScope, ops: DecoderOperators, input: string, layer: number, parts: string): string {
  const [gate, up, down] = parts.split(' ').map((part) => s.matrix(`${layer}.${part}`));
  const share = (parts.startsWith('gate') && s.config.altup?.sparsity[layer]) || 0;
  const whole = gate && ops.linear(input, gate);
  const gated = whole && share > 0 ? cutGates(s, whole, share) : whole;
  return ops.linear(activated(s, ops, gated, ops.linear(input, up!), layer), down!);
}

/** Appends the mean over the last dimension, which stays as 1. */
export const meanOf = (s: DecoderScope, x: string): string =>
  s.b.add('ReduceMean', [x, s.integers(-1)], { keepdims: 1 });

/** Cuts gates, `[batch, rows, f]`, at their mean and so many standard deviations: what is above it is left. */
function cutGates(s: DecoderScope, gate: string, share: number): string {
  const { b } = s;
  const centred = b.add('Sub', [gate, meanOf(s, gate)]);
  const deviation = b.add('Sqrt', [meanOf(s, b.add('Mul', [centred, centred]))]);
  return b.add('Relu', [b.add('Sub', [centred, b.add('Mul', [deviation, s.number(normalQuantile(share))])])]);
}

/** @param layer - the layer, where activations differ between layers */
export function activated(
  s: DecoderScope,
  ops: DecoderOperators,
  gate: string | undefined,
  up: string,
  layer?: number,
): string {
  const { activation } = s.config;
  const approximate = activation === 'gelu-tanh' ? 'tanh' : 'none';
  if (activation === 'xielu') return xielu(s, up, xieluFactors(s.config.xielu![layer!]!));
  if (activation === 'relu2') {
    const above = s.b.add('Relu', [up]);
    return s.b.add('Mul', [above, above]);
  }
  if (!gate) return ops.gelu(up, approximate);
  return activation === 'silu' ? ops.swiglu(gate, up) : s.b.add('Mul', [ops.gelu(gate, approximate), up]);
}

/** Appends the experts that the router chooses for each token, and the expert that every token has. */
export function mixture(
  s: DecoderScope,
  ops: DecoderOperators,
  input: string,
  layer: number,
  routerInput = input,
): string {
  const { b, config } = s;
  const { route: rule, count: experts, used } = config.experts!;
  const at = (part: string): string => `${layer}.${part}`;
  const logits = ops.linear(routerInput, s.matrix(at('router'))!);
  const bias = s.at(at('choiceBias.weight'));
  const flat = (x: string, width: number): string => b.add('Reshape', [x, s.integers(-1, width)]);
  const { groups, normalize = false, scale = 1, gate, jitter = 0 } = rule;
  const ranking = { gate, jitter, groups, normalize, scale };
  let chosen = route(s, flat(logits, experts), bias && s.numbers([bias]), ranking, { experts, used });
  const factors = s.at(at('expertScale.weight'));
  if (factors) {
    const own = b.add('Gather', [s.numbers([factors]), chosen.indices], { axis: 0 });
    chosen = { ...chosen, weights: b.add('Mul', [chosen.weights, own]) };
  }
  let from = flat(input, config.hiddenSize);
  if (config.family.experts!.scalesInput) {
    // One expert runs, and its weight is on its input.
    from = b.add('Mul', [from, chosen.weights]);
    chosen = { ...chosen, weights: b.add('Expand', [s.number(1), b.add('Shape', [chosen.weights])]) };
  }
  const made = ops.experts(from, chosen, layer);
  const routed = b.add('Reshape', [made, b.add('Shape', [input])]);
  if (!s.at(at('sharedUp.weight'))) return routed;
  const shared = dense(s, ops, input, layer, 'sharedGate sharedUp sharedDown');
  const router = s.matrix(at('sharedRouter'));
  return b.add('Add', [routed, router ? b.add('Mul', [shared, ops.sigmoid(ops.linear(input, router))]) : shared]);
}

/**
 * Appends the chosen experts of all tokens in ONNX's own operators. `[t, h]` → `[t, h]`.
 *
 * The d = min(e, t · u) experts that most tokens chose include every chosen expert. Their matrices are gathered, and
 * multiply all tokens; experts that a token did not choose have a share of 0. So one token reads only its own experts,
 * many tokens read each matrix once, and the gathered matrices are never more than those of the layer. Sizes depend on
 * t alone.
 */
export function gatheredExperts(
  s: DecoderScope,
  ops: DecoderOperators,
  x: string,
  chosen: Chosen,
  layer: number,
): string {
  const { b } = s;
  const at = (part: string): WeightPlan | undefined => s.at(`${layer}.${part}`);
  const transposed = (value: string, ...perm: readonly number[]): string => b.add('Transpose', [value], { perm: perm });
  const { ids, shares } = computedExperts(s, chosen);
  /** `[1, 1 or d, k, t]` → `[1, d, n, t]`, with matrices `[n, k]`, or `[k, n]` if they are `turned`. */
  const product = (input: string, matrices: string, turned = false): string => {
    if (!turned) return b.add('MatMul', [matrices, input]);
    return transposed(b.add('MatMul', [transposed(input, 0, 1, 3, 2), matrices]), 0, 1, 3, 2);
  };
  /** Gathers rows of weights `[experts, …]` for some experts, `[1, d, …]`. */
  const rowsOf = (plan: WeightPlan, experts = ids): string => ops.rows(experts, plan);
  const columns = (bias: string): string => b.add('Unsqueeze', [bias, s.integers(3)]);
  const biased = (y: string, plan: WeightPlan | undefined): string =>
    plan ? b.add('Add', [y, columns(rowsOf(plan))]) : y;
  const tokens = b.add('Unsqueeze', [transposed(x, 1, 0), s.integers(0, 1)]); // [1, 1, h, t]
  const [gate, up] = gateAndUp();
  const made = activated(s, ops, gate, up); // [1, d, x, t]
  const [down, turnedDown] = [at('expertDown.weight'), at('expertDownTransposed.weight')];
  const sum = product(made, rowsOf(down ?? turnedDown!), !down); // [1, d, h, t]
  const y = biased(sum, at('expertDown.bias') ?? at('expertDownTransposed.bias'));
  const weighted = b.add('ReduceSum', [b.add('Mul', [y, shares]), s.integers(0, 1)], { keepdims: 0 });
  return transposed(weighted, 1, 0);

  function gateAndUp(): readonly [string, string] {
    const [turns, blocks] = [at('expertGateUp.weight'), at('expertGateUpBlocks.weight')];
    // Rows, and biases, of gate and up alternate, or the gates come first: [1, d, 2x, t] → two of [1, d, x, t].
    const apart = (both: string): readonly [string, string] => {
      if (s.config.family.gateUpHalves)
        return b.addMany('Split', [both], { axis: 2, num_outputs: 2 }, 2) as [string, string];
      const pairs = b.add('Reshape', [both, s.integers(0, 0, s.config.experts!.width, 2, -1)]);
      const halves = b.addMany('Split', [pairs], { axis: 3, num_outputs: 2 }, 2);
      return halves.map((half) => b.add('Squeeze', [half, s.integers(3)])) as [string, string];
    };
    if (turns) return apart(biased(product(tokens, rowsOf(turns), true), at('expertGateUp.bias')));
    if (!blocks)
      return ['expertGate', 'expertUp'].map((part) =>
        biased(product(tokens, rowsOf(at(`${part}.weight`)!)), at(`${part}.bias`)),
      ) as [string, string];
    // All gates come first, then all ups: expert i has the matrices i and e + i.
    const ups = b.add('Add', [ids, s.integers(s.config.experts!.count)]);
    const parts = [rowsOf(blocks), rowsOf(blocks, ups)].map((matrices) => product(tokens, matrices));
    const bias = at('expertGateUpBlocks.bias');
    if (!bias) return parts as [string, string];
    const biases = apart(columns(rowsOf(bias)));
    return parts.map((part, n) => b.add('Add', [part, biases[n]!])) as [string, string];
  }
}

/** Returns the computed experts, i64 `[1, d]`, and each token's share of them, `[1, d, 1, t]`. */
function computedExperts(s: DecoderScope, { indices, weights }: Chosen): { ids: string; shares: string } {
  const { b } = s;
  const { count, used } = s.config.experts!;
  const last = (value: string): string => b.add('Unsqueeze', [value, s.integers(2)]);
  const sum = (value: string, ...axes: readonly number[]): string =>
    b.add('ReduceSum', [value, s.integers(...axes)], { keepdims: 0 });
  const all = s.integers(...Array.from({ length: count }, (_, e) => e));
  const chose = b.cast(b.add('Equal', [last(indices), all]), 'f32'); // [t, u, e]
  const choices = b.add('Mul', [b.add('Shape', [indices], { start: 0, end: 1 }), s.integers(used)]);
  const most = b.add('Min', [choices, s.integers(count)]);
  const ids = b.addMany('TopK', [sum(chose, 0, 1), most], { axis: 0, sorted: 0 }, 2)[1]!;
  const shares = b.add('Transpose', [sum(b.add('Mul', [chose, last(weights)]), 1)], { perm: [1, 0] });
  const first = b.add('Unsqueeze', [ids, s.integers(0)]);
  return { ids: first, shares: last(b.add('Gather', [shares, first], { axis: 0 })) };
}
