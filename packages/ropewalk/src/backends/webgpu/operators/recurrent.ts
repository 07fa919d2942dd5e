/** Operators with a state: the causal convolution, the gated delta rule and the selective scan. @module */
import type { Tensor } from '../../../core/tensor.js';
import type { CausalConvPlan } from '../../../ops/causal-conv.js';
import type { GatedDeltaPlan } from '../../../ops/gated-delta.js';
import type { SsmScanPlan } from '../../../ops/ssm-scan.js';
import { type Call, elementOf, reads, type Use, writes } from '../call.js';
import { CAUSAL_CONV, GATED_DELTA, SSM_SCAN } from '../shaders/recurrent.js';

/** Lists the operands and their parameters: the first element, then the strides of these names. */
function operands<P extends string>(
  call: Call,
  tensors: readonly (readonly [name: P, tensor: Tensor | undefined, steps?: readonly P[]])[],
  written: readonly string[],
) {
  const uses: Use[] = [];
  const params: Partial<Record<P, number>> = {};
  for (const [name, tensor, steps = []] of tensors) {
    if (!tensor) continue;
    const { block, offset } = call.place(tensor);
    uses.push((written.includes(name) ? writes : reads)(name, elementOf(tensor.dtype), 1, block));
    params[name] = offset;
    for (const [n, step] of steps.entries()) params[step] = tensor.strides[n]!;
  }
  return { uses, params };
}

/** Queues a causal convolution. */
export function runCausalConv(plan: CausalConvPlan, call: Call): void {
  const { x, weight, state, bias, before, after, silu, fresh, out } = plan;
  call.stage([x, weight, ...[bias, before, after].filter((one) => one !== undefined)], [out, state]);
  const [tokens, channels] = x.shape as [number, number];
  const { uses, params } = operands(
    call,
    [
      ['x', x, ['xRow', 'xStep']],
      ['weight', weight, ['weightRow', 'weightStep']],
      ['before', before, ['beforeRow', 'beforeStep']],
      ['after', after, ['afterRow', 'afterStep']],
      ['bias', bias, ['biasStep']],
      ['out', out, ['outRow', 'outStep']],
      ['state', state],
    ] as const,
    ['out', 'state'],
  );
  call.launch({
    kernel: CAUSAL_CONV,
    variant: { before: before !== undefined, after: after !== undefined, bias: bias !== undefined, silu, fresh },
    uses,
    params: { ...params, tokens, channels, width: weight.shape[1]! },
    runs: [],
    groups: Math.ceil(channels / CAUSAL_CONV.threads),
  });
}

/** Queues the gated delta rule. */
export function runGatedDelta(plan: GatedDeltaPlan, call: Call): void {
  const { q, k, v, decay, beta, rate, bias, state, eps, scale, tiled, fresh, out } = plan;
  call.stage([q, k, v, decay, beta, rate, bias], [out, state]);
  const [tokens, keyHeads, d] = q.shape as [number, number, number];
  const [, heads, dv] = v.shape as [number, number, number];
  const { uses, params } = operands(
    call,
    [
      ['q', q, ['qRow', 'qHead', 'qStep']],
      ['k', k, ['kRow', 'kHead', 'kStep']],
      ['v', v, ['vRow', 'vHead', 'vStep']],
      ['decay', decay, ['decayRow', 'decayHead']],
      ['beta', beta, ['betaRow', 'betaHead']],
      ['rate', rate, ['rateStep']],
      ['bias', bias, ['biasStep']],
      ['out', out, ['outRow', 'outHead', 'outStep']],
      ['state', state],
    ] as const,
    ['out', 'state'],
  );
  call.launch({
    kernel: GATED_DELTA,
    variant: { tiled, fresh },
    uses,
    params: { ...params, tokens, keyHeads, heads, d, dv, eps, scale },
    runs: [],
    groups: Math.ceil((heads * dv) / GATED_DELTA.threads),
  });
}

/** Queues the selective scan. */
export function runSsmScan(plan: SsmScanPlan, call: Call): void {
  const { x, b, c, dt, rate, bias, skip, state, min, max, fresh, out } = plan;
  call.stage([x, b, c, dt, rate, bias, ...(skip ? [skip] : [])], [out, state]);
  const [tokens, heads, dv] = x.shape as [number, number, number];
  const [, groups, d] = b.shape as [number, number, number];
  const { uses, params } = operands(
    call,
    [
      ['x', x, ['xRow', 'xHead', 'xStep']],
      ['b', b, ['bRow', 'bGroup', 'bStep']],
      ['c', c, ['cRow', 'cGroup', 'cStep']],
      ['dt', dt, ['dtRow', 'dtHead']],
      ['rate', rate, ['rateStep']],
      ['bias', bias, ['biasStep']],
      ['skip', skip, ['skipStep']],
      ['out', out, ['outRow', 'outHead', 'outStep']],
      ['state', state],
    ] as const,
    ['out', 'state'],
  );
  call.launch({
    kernel: SSM_SCAN,
    variant: { skip: skip !== undefined, fresh },
    uses,
    params: { ...params, tokens, heads, groups, d, dv, min, max: Math.min(max, LARGEST_F32) },
    runs: [],
    groups: Math.ceil((heads * dv) / SSM_SCAN.threads),
  });
}

/** Shaders may assume that no number is infinite. */
const LARGEST_F32 = (2 - 2 ** -23) * 2 ** 127;
