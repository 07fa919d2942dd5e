/** Operators with a state: the causal convolution, the gated delta rule and the selective scan. @module */
import { type FloatDtype, loadNumber } from '../../../core/dtypes.js';
import { hostOf, type Tensor } from '../../../core/tensor.js';
import type { CausalConvPlan } from '../../../ops/causal-conv.js';
import type { GatedDeltaPlan } from '../../../ops/gated-delta.js';
import type { SsmScanPlan } from '../../../ops/ssm-scan.js';
import { CausalConv, CHANNELS, GatedDelta, Kernel, SsmScan } from '../abi.js';
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

const fours = (n: number): number => Math.ceil(n / 4) * 4;

/** Runs the gated delta rule. */
export function runGatedDelta(plan: GatedDeltaPlan, call: Call): void {
  const { q, k, v, state, eps, scale, tiled, fresh, out } = plan;
  call.stage([q, k, v], [out, state]);
  if (out.size === 0 && state.size === 0) return;
  const [tokens, keyHeads, d] = q.shape as [number, number, number];
  const [, heads, dv] = v.shape as [number, number, number];
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

/** Runs the selective scan. */
export function runSsmScan(plan: SsmScanPlan, call: Call): void {
  const { x, b, c, skip, state, fresh, out } = plan;
  call.stage([x, b, c], [out, state]);
  if (out.size === 0 && state.size === 0) return;
  const [tokens, heads, dv] = x.shape as [number, number, number];
  const [, groups, d] = b.shape as [number, number, number];
  const steps = call.copyInF32(stepsOf(plan));
  const skips = skip && reader(skip, 'ssm_scan: skip');
  const factors = call.copyInF32(skips && Float32Array.from({ length: heads }, (_, h) => skips(h)));
  const args = call.launcher.prepare(2 * (fours(d) + fours(dv)) * 4);
  for (const [at, tensor] of [b, c, x, out].entries()) args[SsmScan.b + at] = call.address(tensor);
  args[SsmScan.steps] = steps;
  args[SsmScan.skip] = factors;
  args[SsmScan.state] = call.address(state);
  args[SsmScan.type] = typeOf(x);
  writeList(args, SsmScan.tokens, [tokens, heads / groups, d, dv, fresh ? 1 : 0]);
  writeList(
    args,
    SsmScan.bRow,
    [b, c, x, out].flatMap(({ strides }) => strides),
  );
  call.launcher.run(Kernel.ssmScan, heads, tokens * d * dv * 2 * BYTES_PER_MADD);
}

/** Reads elements of a small tensor by their indices. */
function reader(tensor: Tensor<FloatDtype>, where: string): (...at: number[]) => number {
  const host = hostOf(tensor, where);
  const { strides, offset, dtype } = tensor;
  return (...at) =>
    loadNumber(
      host,
      dtype,
      at.reduce((sum, index, n) => sum + index * strides[n]!, offset),
    );
}

/** Computes ln(1 + e^x) without overflow. */
const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

/** Computes `[heads, tokens, 2]`, the factors of the state and the time steps, in float64 on the host. */
function stepsOf({ dt, rate, bias, min, max }: SsmScanPlan): Float32Array {
  const [tokens, heads] = dt.shape as [number, number];
  const [dts, rates, biases] = [
    reader(dt, 'ssm_scan: dt'),
    reader(rate, 'ssm_scan: rate'),
    reader(bias, 'ssm_scan: bias'),
  ];
  const steps = new Float32Array(2 * tokens * heads);
  for (let h = 0, at = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      const step = Math.min(Math.max(softplus(dts(t, h) + biases(h)), min), max);
      steps[at++] = Math.exp(rates(h) * step);
      steps[at++] = step;
    }
  return steps;
}

/**
 * Computes `[heads, tokens, 2]`, the factors of the state and of corrections, in float64 on the host: two numbers for
 * each head are little beside its state.
 */
function gatesOf({ decay, beta, rate, bias }: GatedDeltaPlan): Float32Array {
  const [tokens, heads] = decay.shape as [number, number];
  const [decays, betas, rates, biases] = [
    reader(decay, 'gated_delta: decay'),
    reader(beta, 'gated_delta: beta'),
    reader(rate, 'gated_delta: rate'),
    reader(bias, 'gated_delta: bias'),
  ];
  const gates = new Float32Array(2 * tokens * heads);
  for (let h = 0, at = 0; h < heads; h++)
    for (let t = 0; t < tokens; t++) {
      gates[at++] = Math.exp(rates(h) * softplus(decays(t, h) + biases(h)));
      gates[at++] = 1 / (1 + Math.exp(-betas(t, h)));
    }
  return gates;
}
