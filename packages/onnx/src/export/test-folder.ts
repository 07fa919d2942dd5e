/**
 * Operators with known outputs as backend tests of ONNX, in standard operators of opset 23.
 *
 * RoPE becomes RotaryEmbedding with caches that were gathered by position, so that scaling, magnitude, axes and
 * direction are in the caches. 16-bit data is cast to f32 and back, so that results are rounded once; ONNX's own
 * operators would round in between.
 *
 * @module
 * @see https://onnx.ai/onnx/operators/; https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
 */
import type { OpName, OpPlan, Tensor } from 'ropewalk';
import { reading } from 'ropewalk/internal';
import { writeOnnxModel, writeOnnxTensor } from '../format/onnx.js';
import { GraphBuilder } from './builder.js';
import { emitPlan } from './emit.js';

/** A call with known outputs. A golden case of `@ropewalk/oracle` is one. All tensors are in host memory. */
export interface OnnxTestCase {
  readonly id: string;
  readonly op: OpName;
  /** One sentence, which becomes the graph's documentation. */
  readonly about: string;
  readonly attributes: Readonly<Record<string, unknown>>;
  /** The tensors, by the names of `@ropewalk/oracle`. */
  readonly inputs: ReadonlyMap<string, Tensor>;
  readonly outputs: ReadonlyMap<string, Tensor>;
  /** For RoPE: the tensors' names, by their role. */
  readonly rope?: {
    readonly parts: readonly {
      readonly x: string;
      readonly out: string;
      readonly weight?: string;
      readonly cache?: string;
    }[];
  };
}

/** A file of a backend test. */
export interface OnnxTestFile {
  /** `model.onnx`, or `test_data_set_0/input_0.pb` and the like. */
  readonly path: string;
  readonly bytes: Uint8Array;
  /** The tensor of the case that the file holds; a cache of cos or sin is none of them. */
  readonly tensor?: string;
}

/** The names of a case's tensors that differ from those in the graph, where they do not depend on the case. */
const NAMES: Readonly<Partial<Record<OpName, Readonly<Record<string, string>>>>> = {
  add: { out: 'c' },
  rms_norm: { out: 'y' },
  layer_norm: { out: 'y' },
  linear: { out: 'y' },
  self_attention: { out: 'attn_val' },
  argmax: { value: 'max_val', index: 'max_idx' },
  rearrange: { initial: 'y_initial', out: 'y' },
};

/**
 * Writes a case as the folder that ONNX's backend tests have.
 *
 * @param test - a golden case
 * @param plan - the case's plan
 * @param producer - the program and its version, which the model names
 * @returns the files; or a sentence that says why ONNX cannot express the case
 * @throws {RopewalkError} RANGE for anything but a case and its plan
 */
export function writeOnnxTest(test: OnnxTestCase, plan: OpPlan, producer: string): readonly OnnxTestFile[] | string {
  return reading('onnx: test', () => filesOf(test, plan, producer));
}

function filesOf(c: OnnxTestCase, plan: OpPlan, producer: string): readonly OnnxTestFile[] | string {
  const reason = reasonAgainst(c);
  if (reason !== undefined) return reason;
  const builder = new GraphBuilder();
  const emitted = emitPlan(builder, plan, { form: 'standard', names: namesOf(c), nan: 'unspecified', places: true });
  if ('whyNot' in emitted) return emitted.whyNot;
  const model = writeOnnxModel(builder.model(c.id, producer, c.about));
  const inputs = emitted.inputs.map(({ name, tensor }, n): OnnxTestFile => {
    const known = c.inputs.get(name);
    const path = `test_data_set_0/input_${n}.pb`;
    if (!known) return { path, bytes: writeOnnxTensor(tensor, name) };
    return { path, bytes: writeOnnxTensor(known.view(tensor.shape), name), tensor: name };
  });
  const outputs = emitted.outputs.map(({ name, tensor: { shape } }, n): OnnxTestFile => {
    const bytes = writeOnnxTensor(c.outputs.get(name)!.view(shape), name);
    return { path: `test_data_set_0/output_${n}.pb`, bytes, tensor: name };
  });
  return [{ path: 'model.onnx', bytes: model }, ...inputs, ...outputs];
}

function reasonAgainst(c: OnnxTestCase): string | undefined {
  const parts = c.rope?.parts ?? [];
  if (parts.some((part) => part.cache !== undefined)) return 'RotaryEmbedding does not write into a KV cache';
  if (parts.some((part) => c.inputs.get(part.x)!.dtype === 'f64')) return 'RotaryEmbedding takes no float64';
  if (c.op === 'rms_norm' && c.inputs.get('x')!.dtype === 'f64') return 'RMSNormalization computes in float32';
  if (c.attributes.format !== undefined) return `ONNX has no ${String(c.attributes.format)} blocks`;
  if (c.attributes.fresh === true) return 'the graph has no input for a state that counts as zeros';
  if (c.op === 'argmax' && (c.inputs.get('values')!.readNumbers() as Float64Array).some(Number.isNaN))
    return 'ArgMax says nothing of NaN';
  return undefined;
}

function namesOf(c: OnnxTestCase): ReadonlyMap<string, string> {
  const names = new Map(Object.entries(NAMES[c.op] ?? {}));
  const parts = c.rope?.parts ?? [];
  for (const [p, part] of parts.entries()) {
    const behind = parts.length === 1 ? '' : `_${p}`;
    for (const [role, name] of Object.entries({ x: part.x, out: part.out, weight: part.weight }))
      if (name !== undefined) names.set(`${role}${behind}`, name);
  }
  return names;
}
