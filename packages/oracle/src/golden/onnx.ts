/**
 * Golden cases as ONNX graphs of standard operators, opset 23: what a backend-test folder holds.
 *
 * RoPE becomes RotaryEmbedding with caches that were gathered by position, so that scaling, magnitude, axes and
 * direction are in the caches. 16-bit data is cast to f32 and back, as the golden outputs are rounded once; ONNX's own
 * operators would round in between.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/; https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
 */

import { emitPlan, GraphBuilder, type OnnxModel } from '@ropewalk/onnx';
import type { OpName, Tensor } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { bindGolden, type GoldenCase } from './case.js';

/** A graph, and the tensors that go in and must come out. */
export interface OnnxTest {
  readonly model: OnnxModel;
  /** In the graph's order: input_0.pb, input_1.pb, … `golden` names the case's own tensor that this is. */
  readonly inputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden?: string }[];
  readonly outputs: readonly { readonly name: string; readonly tensor: Tensor; readonly golden: string }[];
}

/** What the case calls what the graph calls otherwise, where that does not depend on the case. */
const NAMES: Readonly<Partial<Record<OpName, Readonly<Record<string, string>>>>> = {
  add: { out: 'c' },
  rms_norm: { out: 'y' },
  layer_norm: { out: 'y' },
  linear: { out: 'y' },
  self_attention: { out: 'attn_val' },
  argmax: { value: 'max_val', index: 'max_idx' },
  rearrange: { initial: 'y_initial', out: 'y' },
};

/** Expresses a case in ONNX, or says why it cannot. */
export function onnxTestOf(c: GoldenCase, producer: string): OnnxTest | string {
  const reason = reasonAgainst(c);
  if (reason !== undefined) return reason;
  const builder = new GraphBuilder();
  const names = namesOf(c);

  const { plan } = bindGolden(c, referenceRunner());
  const emitted = emitPlan(builder, plan, { form: 'standard', names, nan: 'unspecified', places: true });
  if ('whyNot' in emitted) return emitted.whyNot;
  const inputs = emitted.inputs.map(({ name, tensor }) => {
    const given = c.inputs.get(name);
    // A cache of cos or sin is not a tensor of the case.
    return given ? { name, tensor: given.view(tensor.shape), golden: name } : { name, tensor };
  });
  const outputs = emitted.outputs.map(({ name, tensor: { shape } }) => {
    return { name, tensor: c.outputs.get(name)!.view(shape), golden: name };
  });
  return { model: builder.model(c.id, producer, c.about), inputs, outputs };
}

function reasonAgainst(c: GoldenCase): string | undefined {
  const parts = c.rope?.parts ?? [];
  if (parts.some((part) => part.cache !== undefined)) return 'RotaryEmbedding does not write into a KV cache';
  if (parts.some((part) => c.inputs.get(part.x)!.dtype === 'f64')) return 'RotaryEmbedding takes no float64';
  if (c.op === 'rms_norm' && c.inputs.get('x')!.dtype === 'f64') return 'RMSNormalization computes in float32';
  if (c.attributes.format !== undefined) return `ONNX has no ${String(c.attributes.format)} blocks`;
  if (c.op === 'argmax' && (c.inputs.get('values')!.readNumbers() as Float64Array).some(Number.isNaN))
    return 'ArgMax says nothing of NaN';
  return undefined;
}

function namesOf(c: GoldenCase): ReadonlyMap<string, string> {
  const names = new Map(Object.entries(NAMES[c.op] ?? {}));
  const parts = c.rope?.parts ?? [];
  for (const [p, part] of parts.entries()) {
    const behind = parts.length === 1 ? '' : `_${p}`;
    for (const [role, name] of Object.entries({ x: part.x, out: part.out, weight: part.weight }))
      if (name !== undefined) names.set(`${role}${behind}`, name);
  }
  return names;
}
