/**
 * Runs graphs in ONNX Runtime if the package is installed.
 */

import { type OnnxModel, whyNotOnnxruntime, writeOnnxModel } from '@ropewalk/onnx';
import { crossingType, loadOnnxruntime, type OnnxNode, type Ort, onnxDataType } from '@ropewalk/onnx/internal';
import { type HostArray, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';
import { isHalf } from 'ropewalk/internal';

/** The functions of the package that tests use in addition to the backend's. */
interface Package extends Omit<Ort, 'InferenceSession'> {
  readonly InferenceSession: {
    create(
      model: Uint8Array,
      options: object,
    ): Promise<{
      run(feeds: Record<string, unknown>): Promise<Record<string, { data: never; dims: readonly number[] }>>;
      release(): Promise<void>;
    }>;
  };
}

/** Returns the package, or the reason why tests that need it are skipped. */
export async function ortOrReason(): Promise<Package | string> {
  return (await whyNotOnnxruntime()) ?? ((await loadOnnxruntime()) as unknown as Package);
}

/**
 * Wraps a graph so that its 16-bit inputs and outputs become f32, because the package has no bf16 in JavaScript, and no
 * f16 from Node 24 on.
 */
export function shelled(model: OnnxModel): OnnxModel {
  const inside = new Map<string, string>();
  const before: OnnxNode[] = [];
  const after: OnnxNode[] = [];
  for (const { name, dtype } of model.inputs.filter(({ dtype }) => isHalf(dtype))) {
    inside.set(name, `${name}/16`);
    before.push({
      opType: 'Cast',
      inputs: [name],
      outputs: [`${name}/16`],
      attributes: { to: { i: onnxDataType(dtype) } },
    });
  }
  for (const { name } of model.outputs.filter(({ dtype }) => isHalf(dtype))) {
    inside.set(name, `${name}/16`);
    after.push({ opType: 'Cast', inputs: [`${name}/16`], outputs: [name], attributes: { to: { i: 1 } } });
  }
  const renamed = (names: readonly string[]): string[] => names.map((name) => inside.get(name) ?? name);
  const wide = <T extends { dtype: string }>(value: T): T => ({
    ...value,
    dtype: isHalf(value.dtype as 'f16') ? 'f32' : value.dtype,
  });
  const nodes = model.nodes.map((node) => ({ ...node, inputs: renamed(node.inputs), outputs: renamed(node.outputs) }));
  return {
    ...model,
    inputs: model.inputs.map(wide),
    outputs: model.outputs.map(wide),
    nodes: [...before, ...nodes, ...after],
  };
}

/**
 * Runs a graph once.
 *
 * @param model - a model that our exporter makes
 * @param inputs - the inputs by name, with the graph's dtypes
 * @returns the dense outputs by name, with the graph's dtypes
 */
export async function runOnnx(model: OnnxModel, inputs: ReadonlyMap<string, Tensor>): Promise<Map<string, Tensor>> {
  const ort = await ortOrReason();
  if (typeof ort === 'string') throw new Error(ort);
  const session = await ort.InferenceSession.create(writeOnnxModel(shelled(model)), {
    logSeverityLevel: 4,
    intraOpNumThreads: 1,
  });
  const feeds = Object.fromEntries(
    [...inputs].map(([name, tensor]) => {
      const half = isHalf(tensor.dtype);
      const data = half ? Float32Array.from(tensor.readNumbers() as Float64Array) : tensor.contiguous().read();
      return [name, new ort.Tensor(crossingType(tensor.dtype), data as HostArray, [...tensor.shape])];
    }),
  );
  const results = await session.run(feeds);
  const outputs = new Map<string, Tensor>();
  for (const { name, dtype } of model.outputs) {
    const { data, dims } = results[name]!;
    if (isHalf(dtype)) {
      const wide = data as Float32Array;
      const narrow = newArray(dtype, wide.length);
      for (const [n, value] of wide.entries()) storeNumber(narrow, dtype, n, value);
      outputs.set(name, tensorFrom(narrow, { dtype, shape: dims }));
    } else outputs.set(name, tensorFrom(data, { dtype, shape: dims }));
  }
  await session.release();
  return outputs;
}
