/**
 * The feed-forward block of one layer of a decoder's graph: dense, or a mixture of experts.
 *
 * @module
 */
import { route } from '@ropewalk/onnx/internal';
import type { DecoderOperators } from './operators.js';
import type { DecoderScope } from './scope.js';

/** Appends the block: `[batch, rows, h]` → `[batch, rows, h]`. */
export function feedForward(s: DecoderScope, ops: DecoderOperators, input: string, layer: number): string {
  return s.at(`${layer}.router.weight`) ? mixture(s, ops, input, layer) : dense(s, ops, input, layer, 'gate up down');
}

/** Appends `down(activation(gate(x)) · up(x))`, of the matrices of three parts. */
function dense(s: DecoderScope, ops: DecoderOperators, input: string, layer: number, parts: string): string {
  const [gate, up, down] = parts.split(' ').map((part) => s.matrix(`${layer}.${part}`));
  const gated = gate && ops.linear(input, gate);
  return ops.linear(activated(s, ops, gated, ops.linear(input, up!)), down!);
}

/** Appends the activation of a block. */
export function activated(s: DecoderScope, ops: DecoderOperators, gate: string | undefined, up: string): string {
  const { activation } = s.config;
  const approximate = activation === 'gelu-tanh' ? 'tanh' : 'none';
  if (!gate) return ops.gelu(up, approximate);
  return activation === 'silu' ? ops.swiglu(gate, up) : s.b.add('Mul', [ops.gelu(gate, approximate), up]);
}

/** The experts that the router chooses for each token, and the expert that every token has. */
function mixture(s: DecoderScope, ops: DecoderOperators, input: string, layer: number): string {
  const { b, config } = s;
  const { route: rule, count: experts, used } = config.experts!;
  const at = (part: string): string => `${layer}.${part}`;
  const logits = ops.linear(input, s.matrix(at('router'))!);
  const bias = s.at(at('choiceBias.weight'));
  const flat = (x: string, width: number): string => b.add('Reshape', [x, s.integers(-1, width)]);
  const { groups, normalise = false, scale = 1, gate } = rule;
  const chosen = route(
    b,
    flat(logits, experts),
    bias && s.numbers([bias]),
    { gate, groups, normalise, scale },
    { experts, used },
    'f32',
  );
  const made = ops.experts(flat(input, config.hiddenSize), chosen, layer);
  const routed = b.add('Reshape', [made, b.add('Shape', [input])]);
  if (!s.at(at('sharedUp.weight'))) return routed;
  const shared = dense(s, ops, input, layer, 'sharedGate sharedUp sharedDown');
  const router = s.matrix(at('sharedRouter'));
  return b.add('Add', [routed, router ? b.add('Mul', [shared, ops.sigmoid(ops.linear(input, router))]) : shared]);
}
