/** Operators with a state: the causal convolution and the gated delta rule. @module */
import { type FloatDtype, loadNumber } from '../../../core/dtypes.js';
import { hostOf, type Tensor } from '../../../core/tensor.js';
import type { CausalConvPlan } from '../../../ops/causal-conv.js';
import type { GatedDeltaPlan } from '../../../ops/gated-delta.js';
import { CausalConv, CHANNELS, GatedDelta, Kernel } from '../abi.js';
import { type Call, typeOf, writeF32, writeF64, writeList } from '../call.js';
import { BYTES_PER_MADD } from '../launcher.js';

/** Runs a causal convolution. */
export function runCausalConv(plan: CausalConvPlan, call: Call): void {
  const { x, weight, state, bias, before, after, silu, fresh, out } = plan;
  const given = [bias, before, after].filter((one) => one !== undefined);
  call.stage([x, weight, ...given], [out, state]);
  const [tokens, channels] = x.shape as [number, number];
  if (channels === 0) return;
  const width = weight.shape[1]!;
  const addressOf = (tensor: Tensor | undefined): number => (tensor ? call.address(tensor) : 0);
  const args = call.launcher.prepare((2 * width + 3) * CHANNELS * 4);
  args[CausalConv.x] = call.address(x);
  args[CausalConv.y] = call.address(out);
  args[CausalConv.before] = addressOf(before);
  args[CausalConv.after] = addressOf(after);
  args[CausalConv.bias] = addressOf(bias);
  args[CausalConv.weight] = call.address(weight);
  args[CausalConv.state] = call.address(state);
  args[CausalConv.type] = typeOf(x);
  args[CausalConv.weightType] = typeOf(weight);
  args[CausalConv.biasType] = bias ? typeOf(bias) : 0;
  args[CausalConv.tokens] = tokens;
  args[CausalConv.channels] = channels;
  args[CausalConv.width] = width;
  args[CausalConv.silu] = silu ? 1 : 0;
  args[CausalConv.fresh] = fresh ? 1 : 0;
  const strides = [x, out, before, after, weight].flatMap((tensor) => tensor?.strides ?? [0, 0]);
  writeList(args, CausalConv.xRow, [...strides, bias?.strides[0] ?? 0]);
  const cost = tokens * CHANNELS * (16 + width * BYTES_PER_MADD);
  call.launcher.run(Kernel.causalConv, Math.ceil(channels / CHANNELS), cost);
}

/** Runs the gated delta rule. */
export function runGatedDelta(plan: GatedDeltaPlan, call: Call): void {
  const { q, k, v, state, eps, scale, tiled, fresh, out } = plan;
  call.stage([q, k, v], [out, state]);
  if (out.size === 0 && state.size === 0) return;
  const [tokens, keyHeads, d] = q.shape as [number, number, number];
  const [, heads, dv] = v.shape as [number, number, number];
  const fours = (n: number): number => Math.ceil(n / 4) * 4;
  const gates = call.copyInF32(gatesOf(plan));
  const args = call.launcher.prepare((2 * fours(d) + 3 * fours(dv)) * 4);
  for (const [at, tensor] of [q, k, v, out].entries()) args[GatedDelta.q + at] = call.address(tensor);
  args[GatedDelta.gates] = gates;
  args[GatedDelta.state] = call.address(state);
  args[GatedDelta.type] = typeOf(q);
  writeList(args, GatedDelta.tokens, [tokens, keyHeads, heads, d, dv, tiled ? 1 : 0, fresh ? 1 : 0]);
  writeF32(args, GatedDelta.scale, scale);
  writeList(
    args,
    GatedDelta.qRow,
    [q, k, v, out].flatMap(({ strides }) => strides),
  );
  writeF64(args, GatedDelta.eps, eps);
  call.launcher.run(Kernel.gatedDelta, heads, tokens * d * dv * 4 * BYTES_PER_MADD);
}

/**
 * Computes `[heads, tokens, 2]`, the factors of the state and of corrections, in float64 on the host: two numbers for
 * each head are little beside its state.
 */
function gatesOf({ decay, beta, rate, bias }: GatedDeltaPlan): Float32Array {
  const [tokens, heads] = decay.shape as [number, number];
  const reader = (tensor: Tensor<FloatDtype>, name: string) => {
    const host = hostOf(tensor, `gated_delta: ${name}`);
    const { strides, offset, dtype } = tensor;
    return (...at: number[]): number =>
      loadNumber(
        host,
        dtype,
        at.reduce((sum, index, n) => sum + index * strides[n]!, offset),
      );
  };
  const [decays, betas, rates, biases] = [
    reader(decay, 'decay'),
    reader(beta, 'beta'),
    reader(rate, 'rate'),
    reader(bias, 'bias'),
  ];
  const gates = new Float32Array(2 * tokens * heads);
  for (let h = 0, at = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      const x = decays(t, h) + biases(h);
      const softplus = Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
      gates[at++] = Math.exp(rates(h) * softplus);
      gates[at++] = 1 / (1 + Math.exp(-betas(t, h)));
    }
  return gates;
}
