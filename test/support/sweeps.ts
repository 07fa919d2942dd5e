/**
 * Compares a backend with the reference on every operator, dtype and mix of dtypes that a plan may have, with different
 * layouts and cache rows.
 */
import assert from 'node:assert/strict';
import type { OpPlan, Runner } from 'ropewalk';
import {
  bindRopeParts,
  blocksFrom,
  DTYPES,
  type Dtype,
  type FloatDtype,
  isFloat,
  type Pairing,
  planAdd,
  planArgmax,
  planEmbedding,
  planExpertLinear,
  planGeglu,
  planGelu,
  planLayerNorm,
  planLinear,
  planRearrange,
  planRmsNorm,
  planRope,
  planRoute,
  planScale,
  planSelfAttention,
  planSwiglu,
  type SelfAttentionOptions,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { bitsOf, isFloat8, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { runReference } from 'ropewalk/reference';
import { blocksOf, DENSE, laid, laidBits, roomFor } from './operators.js';
import { f64Tensor, floats } from './tensors.js';

/**
 * Asserts that an output is near the expected one. The error may have roundings of sums as large as `size` in the dtype
 * of the arithmetic, and one rounding in the dtype of the output.
 */
function near(got: Tensor, want: Tensor, compute: FloatDtype, size: number, what: string): void {
  const [values, exact] = [floats(got), floats(want)];
  const dtype = got.dtype as FloatDtype;
  for (const [n, value] of values.entries()) {
    if (Number.isNaN(value) && Number.isNaN(exact[n])) continue; // this cache row was never written
    const bound =
      64 * UNIT_ROUNDOFF[compute === 'f64' ? 'f64' : 'f32'] * size +
      2 * UNIT_ROUNDOFF[dtype] * Math.abs(exact[n]!) +
      2 ** -130;
    if (!(Math.abs(value - exact[n]!) <= bound)) assert.fail(`${what}[${n}]: ${value}, want ${exact[n]} ± ${bound}`);
  }
}

/** The plans of an operator, with their outputs, which are new at each call. */
interface Sweep {
  readonly name: string;
  /** The size of the sums. 0 requires the same bits. */
  readonly size: number;
  readonly compute: FloatDtype;
  readonly make: () => { readonly plan: OpPlan; readonly outs: readonly Tensor[] };
}

/** The experts of three tokens. */
const EXPERTS = tensorFrom(Int32Array.of(3, 0, 1, 1, 2, 3), { shape: [3, 2] });

function sweeps(dtypes: readonly FloatDtype[]): Sweep[] {
  const list: Sweep[] = [];
  const of = (name: string, size: number, compute: FloatDtype, make: Sweep['make']): void =>
    void list.push({ name, size, compute, make });
  const x = (dtype: FloatDtype, shape: readonly number[], seed = 1) => laid(dtype, shape, DENSE, seed);
  const room = <D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> => roomFor(dtype, shape, DENSE);
  for (const dtype of dtypes) {
    const stored = dtype === 'f32' ? (['f32', 'f16', 'bf16'] as const) : [dtype];
    of(`add ${dtype}`, 4, dtype, () => {
      const out = room(dtype, [3, 5]);
      return { plan: planAdd(x(dtype, [3, 5]), x(dtype, [3, 5], 2), out), outs: [out] };
    });
    of(`swiglu ${dtype}`, 4, dtype, () => {
      const out = room(dtype, [3, 5]);
      return { plan: planSwiglu(x(dtype, [3, 5]), x(dtype, [3, 5], 2), out), outs: [out] };
    });
    of(`swiglu, clamped ${dtype}`, 4, dtype, () => {
      const out = room(dtype, [3, 5]);
      const clamps = { limit: 0.7, alpha: 1.702, offset: 1 };
      return { plan: planSwiglu(x(dtype, [3, 5]), x(dtype, [3, 5], 2), out, clamps), outs: [out] };
    });
    for (const approximate of dtype === 'f64' ? (['tanh'] as const) : (['none', 'tanh'] as const)) {
      of(`gelu ${approximate} ${dtype}`, 4, dtype, () => {
        const out = room(dtype, [3, 5]);
        return { plan: planGelu(x(dtype, [3, 5]), out, { approximate }), outs: [out] };
      });
      of(`geglu ${approximate} ${dtype}`, 4, dtype, () => {
        const out = room(dtype, [3, 5]);
        return { plan: planGeglu(x(dtype, [3, 5]), x(dtype, [3, 5], 2), out, { approximate }), outs: [out] };
      });
    }
    for (const softcap of [undefined, 1.5]) {
      of(`scale ${softcap} ${dtype}`, 4, dtype, () => {
        const out = room(dtype, [3, 5]);
        return { plan: planScale(x(dtype, [3, 5]), -1.7, out, { softcap }), outs: [out] };
      });
      of(`scale rows ${softcap} ${dtype}`, 4, dtype, () => {
        const out = room(dtype, [2, 3, 5]);
        return { plan: planScale(x(dtype, [2, 3, 5]), x(dtype, [2, 3], 2), out, { softcap }), outs: [out] };
      });
    }
    of(`argmax ${dtype}`, 0, dtype, () => {
      const [index, value] = [room('i32', [3, 1]), room(dtype, [3, 1])];
      return { plan: planArgmax(x(dtype, [3, 5]), index, value), outs: [index, value] };
    });
    for (const weight of stored) {
      of(`rms_norm ${dtype} ${weight}`, 4, dtype, () => {
        const out = room(dtype, [3, 5]);
        return { plan: planRmsNorm(x(dtype, [3, 5]), x(weight, [5], 2), out, { eps: 1e-6 }), outs: [out] };
      });
      for (const bias of [undefined, ...stored]) {
        of(`layer_norm ${dtype} ${weight} ${bias}`, 4, dtype, () => {
          const out = room(dtype, [3, 5]);
          const plan = planLayerNorm(x(dtype, [3, 5]), x(weight, [5], 2), out, {
            bias: bias && x(bias, [5], 3),
            eps: 1e-6,
          });
          return { plan, outs: [out] };
        });
        for (const lead of [[3], [2, 3], []]) {
          of(`linear ${dtype} ${weight} ${bias} [${lead}]`, 80, dtype, () => {
            const out = room(dtype, [...lead, 7]);
            return {
              plan: planLinear(x(dtype, [...lead, 20]), x(weight, [7, 20], 2), out, { bias: bias && x(bias, [7], 3) }),
              outs: [out],
            };
          });
        }
      }
      for (const [bias, own, weighted] of [
        [false, false, false],
        [true, true, true],
        [true, false, true],
        [false, true, false],
      ] as const) {
        of(`expert_linear ${dtype} ${weight} ${JSON.stringify({ bias, own, weighted })}`, 160, dtype, () => {
          const out = room(dtype, weighted ? [3, 7] : [3, 2, 7]);
          const options = {
            bias: bias ? x(weight, [4, 7], 3) : undefined,
            weights: weighted ? x(dtype, [3, 2], 4) : undefined,
          };
          const given = x(dtype, own ? [3, 2, 20] : [3, 20]);
          return { plan: planExpertLinear(given, x(weight, [4, 7, 20], 2), EXPERTS, out, options), outs: [out] };
        });
      }
      for (const [heads, kvHeads, d, dv] of [
        [4, 2, 8, 8],
        [3, 1, 5, 7],
        [2, 2, 8, 4],
      ] as const) {
        for (const { sinks, ...options } of [
          {},
          { causal: false },
          { window: 2 },
          { softcap: 3 },
          { scale: 0 },
          { sinks: true },
          { sinks: true, window: 2, softcap: 3 },
        ] as readonly (Omit<SelfAttentionOptions, 'sinks'> & { sinks?: boolean })[]) {
          of(
            `self_attention ${dtype} ${weight} ${heads}/${kvHeads} ${d} ${dv} ${JSON.stringify({ sinks, ...options })}`,
            8,
            dtype,
            () => {
              const out = room(dtype, [2, 3, heads, dv]);
              const [q, k, v] = [
                x(dtype, [2, 3, heads, d]),
                x(weight, [2, 5, kvHeads, d], 2),
                x(weight, [2, 5, kvHeads, dv], 3),
              ];
              const all = { ...options, sinks: sinks ? x(weight, [heads], 4) : undefined };
              return { plan: planSelfAttention(q, k, v, out, all), outs: [out] };
            },
          );
        }
      }
    }
    for (const gate of ['softmax', 'sigmoid', 'softmax-of-chosen'] as const) {
      for (const [bias, options] of [
        [false, {}],
        [true, { normalize: true, scale: 2.5 }],
        [false, { groups: { count: 4, used: 2, best: 2 } }],
        [true, { groups: { count: 4, used: 3, best: 1 }, normalize: true }],
        [false, { groups: { count: 12, used: 5, best: 2 } }],
      ] as const) {
        of(`route ${dtype} ${gate} ${bias} ${JSON.stringify(options)}`, 4, dtype, () => {
          const outs = [room('i32', [3, 4]), room(dtype, [3, 4])] as const;
          // The values differ by more than any rounding.
          const apart = (size: number, step: number) =>
            f64Tensor(
              Array.from({ length: size }, (_, n) => ((n * step) % 12) / 3 - 2),
              [size / 12, 12],
              dtype,
            );
          const added = bias ? apart(12, 5).view([12]) : undefined;
          return { plan: planRoute(apart(36, 7), ...outs, { gate, bias: added, ...options }), outs };
        });
      }
    }
    of(`route ${dtype} sparsemixer`, 4, dtype, () => {
      const outs = [room('i32', [3, 2]), room(dtype, [3, 2])] as const;
      const logits = Array.from({ length: 36 }, (_, n) => ((n * 7) % 12) / 4 - 2);
      // Some logits are near the best, and none is at the edge.
      return {
        plan: planRoute(f64Tensor(logits, [3, 12], dtype), ...outs, { gate: 'sparsemixer', jitter: 0.3 }),
        outs,
      };
    });
    for (const format of ['q8_0', 'q4_0'] as const) {
      of(`expert_linear ${dtype} ${format}`, 4000, dtype, () => {
        const out = room(dtype, [3, 2, 3]);
        const weight = blocksOf(format, 12, 64, 5, 0, [4, 3, 64]);
        return { plan: planExpertLinear(x(dtype, [3, 64]), weight, EXPERTS, out), outs: [out] };
      });
      of(`linear ${dtype} ${format}`, 2000, dtype, () => {
        const unit = format === 'q8_0' ? 34 : 18;
        const bytes = Uint8Array.from({ length: 6 * unit }, (_, i) =>
          i % unit === 1 ? 0x20 + (i % 5) : (i * 37) & 0xff,
        );
        const out = room(dtype, [2, 3]);
        return { plan: planLinear(x(dtype, [2, 64]), blocksFrom(format, bytes, [3, 64]), out), outs: [out] };
      });
      of(`embedding ${format}`, 0, 'f32', () => {
        const unit = format === 'q8_0' ? 34 : 18;
        const bytes = Uint8Array.from({ length: 6 * unit }, (_, i) =>
          i % unit === 1 ? 0x20 + (i % 5) : (i * 37) & 0xff,
        );
        const out = room('f32', [2, 64]);
        return {
          plan: planEmbedding(tensorFrom(Int32Array.of(2, 0)), blocksFrom(format, bytes, [3, 64]), out),
          outs: [out],
        };
      });
    }
    for (const to of dtypes) {
      of(`rearrange ${dtype} → ${to}`, 0, dtype, () => {
        const out = roomFor(to, [3, 5], { ...DENSE, dense: false, turn: 1, pad: 2, lead: 1 });
        return { plan: planRearrange(laid(dtype, [3, 5], { ...DENSE, dense: false, step: 2 }, 1), out), outs: [out] };
      });
      if (dtype === to || ((dtype === 'f16' || dtype === 'bf16') && to === 'f32')) {
        of(`embedding ${dtype} → ${to}`, 0, dtype, () => {
          const out = room(to, [3, 5]);
          return { plan: planEmbedding(tensorFrom(Int32Array.of(1, 3, 1)), x(dtype, [4, 5]), out), outs: [out] };
        });
      }
      for (const pairing of [
        'half',
        'interleaved',
        'interleaved-to-half',
        'vision',
      ] as const satisfies readonly Pairing[]) {
        of(
          `rope ${dtype} → ${to} ${pairing}, norm in ${dtype}, rows`,
          20,
          dtype === 'f64' || to === 'f64' ? 'f64' : 'f32',
          () => {
            const vision =
              pairing === 'vision'
                ? { axes: { sections: [2, 2, 0, 0], rule: 'vision' as const }, rotaryDim: 8 }
                : { rotaryDim: 6 };
            const positions = pairing === 'vision' ? [1, 2, 3, 7, 8, 9, 0, 0, 0, 0, 0, 0] : [5, 131071, 7];
            const plan = planRope({
              headDim: 10,
              rotaryOffset: 1,
              pairing,
              base: 10000,
              ...vision,
              positions,
              tableDtype: dtype === 'f64' ? 'f64' : 'f32',
            });
            const [q, cache] = [room(to, [2, 3, 4, 10]), room(to, [2, 9, 2, 10])];
            const norm = { weight: x(dtype, [10], 5), eps: 1e-5 };
            const parts = [
              { x: x(dtype, [2, 3, 4, 10]), out: q, norm },
              { x: x(dtype, [2, 3, 2, 10], 2), out: cache, rows: [4, 0, 8] },
            ];
            return { plan: bindRopeParts(plan, parts), outs: [q, cache] };
          },
        );
      }
    }
  }
  for (const dtype of DTYPES.filter((one) => !isFloat8(one))) {
    of(`rearrange ${dtype}`, 0, 'f32', () => {
      const out = room(dtype, [3, 5]);
      return { plan: planRearrange(laidBits(dtype, [3, 5], { ...DENSE, dense: false, turn: 1 }, 1), out), outs: [out] };
    });
  }
  return list;
}

/** Runs every plan on a backend and compares the outputs with the reference's. f64 runs only if it is in the dtypes. */
export async function holdAgainstReference(
  backend: Runner,
  label: string,
  dtypes: readonly FloatDtype[] = ['f64', 'f32', 'f16', 'bf16'],
): Promise<void> {
  for (const { name, size, compute, make } of sweeps(dtypes)) {
    const [want, got] = [make(), make()];
    runReference(want.plan);
    assert.equal(backend.whyNot(got.plan), undefined, name);
    backend.run(got.plan);
    await backend.finish().catch((error) => assert.fail(`${name}: ${error.message}`));
    for (const [n, out] of got.outs.entries()) {
      const exact = want.outs[n]!;
      if (size > 0 && isFloat(out.dtype)) near(out, exact, compute, size, `${label} ${name}`);
      else assert.deepEqual(bitsOf(out.storage.host!), bitsOf(exact.storage.host!), `${label} ${name}`);
    }
  }
}
