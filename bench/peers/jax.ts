/**
 * jax-js with its WebAssembly backend as a peer: it compiles each computation to WebAssembly and fuses operators.
 *
 * @module
 */
import { createRequire } from 'node:module';
import type { ArrayOf, FloatDtype } from 'ropewalk';
import { evaluate, type GraphTensor, isPrimitive, type PeerGraph, type Primitives } from './graph.js';
import { findInstalled } from './installed.js';
import type { Peer, PeerSession } from './peer.js';
import { transposed } from './questions.js';

/** The part of the peer's interface that is used here, so that the types do not need an installed peer. */
interface Jax {
  init(device: string): Promise<readonly string[]>;
  defaultDevice(device: string): string;
  jit(compute: (...inputs: JaxArray[]) => JaxArray): ((...inputs: JaxArray[]) => JaxArray) & { dispose(): void };
  readonly nn: { sigmoid(x: JaxArray): JaxArray };
  readonly numpy: {
    array(data: GraphTensor['data']): JaxArray;
    matmul(a: JaxArray, b: JaxArray): JaxArray;
    split(x: JaxArray, parts: number, axis: number): JaxArray[];
    concatenate(parts: readonly JaxArray[], axis: number): JaxArray;
  };
}
/** A function that takes an array consumes one reference to it. `ref` makes one more reference. */
interface JaxArray {
  readonly ref: JaxArray;
  add(other: JaxArray): JaxArray;
  sub(other: JaxArray): JaxArray;
  mul(other: JaxArray): JaxArray;
  transpose(): JaxArray;
  reshape(shape: readonly number[]): JaxArray;
  blockUntilReady(): Promise<unknown>;
  dataSync(): ArrayOf[FloatDtype];
  dispose(): void;
}

const PACKAGE = '@jax-js/jax';

/**
 * Loads jax-js.
 *
 * @param threads - the number of threads; jax-js has one where there are no web workers, as in Node
 * @returns the peer, or the reason why it is left out
 */
export async function openJax(threads: number): Promise<Peer | string> {
  const installed = findInstalled(PACKAGE);
  if (typeof installed === 'string') return installed;
  if (threads !== 1) return `it computes with 1 thread in Node, not with ${threads}`;
  const jax: Jax = createRequire(import.meta.url)(PACKAGE);
  const devices = await withoutWorkers(() => jax.init('wasm'));
  if (!devices.includes('wasm')) throw new Error('its WebAssembly backend does not start');
  jax.defaultDevice('wasm');
  return { name: 'jax-js', version: installed.version, takes: isPrimitive, open: (graph) => openSession(jax, graph) };
}

/**
 * Hides the global `Worker` that ONNX Runtime's WebAssembly build leaves in Node. jax-js would take it for a browser's
 * and compile for a shared memory, but the memory that it has already made is not shared.
 */
async function withoutWorkers<T>(work: () => Promise<T>): Promise<T> {
  const { Worker } = globalThis as { Worker?: unknown };
  Reflect.deleteProperty(globalThis, 'Worker');
  try {
    return await work();
  } finally {
    if (Worker !== undefined) Object.assign(globalThis, { Worker });
  }
}

async function openSession(jax: Jax, graph: PeerGraph): Promise<PeerSession> {
  const np = jax.numpy;
  const primitives: Primitives<JaxArray> = {
    Add: ([a, b]) => [a!.ref.add(b!.ref)],
    Sub: ([a, b]) => [a!.ref.sub(b!.ref)],
    Mul: ([a, b]) => [a!.ref.mul(b!.ref)],
    Sigmoid: ([x]) => [jax.nn.sigmoid(x!.ref)],
    MatMul: ([a, b]) => [np.matmul(a!.ref, b!.ref.transpose())],
    Split: ([x]) => np.split(x!.ref, 2, -1),
    Concat: (parts) => [
      np.concatenate(
        parts.map(({ ref }) => ref),
        -1,
      ),
    ],
  };
  // Transposed weights are faster here.
  const weights = new Set(graph.nodes.flatMap(({ op, inputs }) => (op === 'MatMul' ? [inputs[1]] : [])));
  const given = [...graph.inputs, ...(graph.constants ?? [])];
  const names = given.map(({ name }) => name);
  const inputs = given.map(({ name, dims, data }) => {
    const [k, n] = dims as [number, number];
    return weights.has(name)
      ? np.array(transposed(data as Float32Array, k, n)).reshape([n, k])
      : np.array(data).reshape(dims);
  });
  const compute = jax.jit((...arrays) => {
    const values = new Map(names.map((name, at) => [name, arrays[at]!]));
    const result = evaluate(graph, values, primitives);
    for (const value of values.values()) if (value !== result) value.dispose();
    return result;
  });
  let last: JaxArray | undefined;
  const run = async (): Promise<void> => {
    last?.dispose();
    last = compute(...inputs.map(({ ref }) => ref));
    await last.blockUntilReady();
  };
  await withoutWorkers(run); // the first run compiles
  return {
    run,
    output: () => last!.ref.dataSync(),
    close() {
      last?.dispose();
      for (const array of inputs) array.dispose();
      compute.dispose();
    },
  };
}
