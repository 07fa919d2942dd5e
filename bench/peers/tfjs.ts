/**
 * TensorFlow.js with its WebAssembly backend as a peer.
 *
 * @module
 */
import { createRequire } from 'node:module';
import type { ArrayOf, FloatDtype } from 'ropewalk';
import { evaluate, type GraphTensor, isPrimitive, type Primitives } from './graph.js';
import { findInstalled } from './installed.js';
import type { Peer } from './peer.js';

/** The part of the peer's interface that is used here, so that the types do not need an installed peer. */
interface Tfjs {
  setBackend(name: string): Promise<boolean>;
  tensor(data: GraphTensor['data'], shape: readonly number[], dtype: string): TfTensor;
  tidy(compute: () => TfTensor): TfTensor;
  add(a: TfTensor, b: TfTensor): TfTensor;
  sub(a: TfTensor, b: TfTensor): TfTensor;
  mul(a: TfTensor, b: TfTensor): TfTensor;
  sigmoid(x: TfTensor): TfTensor;
  matMul(a: TfTensor, b: TfTensor): TfTensor;
  split(x: TfTensor, parts: number, axis: number): TfTensor[];
  concat(parts: readonly TfTensor[], axis: number): TfTensor;
}
interface TfTensor {
  dataSync(): ArrayOf[FloatDtype];
  dispose(): void;
}

const CORE = '@tensorflow/tfjs-core';
const BACKEND = '@tensorflow/tfjs-backend-wasm';

/**
 * Loads TensorFlow.js.
 *
 * @param threads - the number of threads; the build for Node has one
 * @returns the peer, or the reason why it is left out
 */
export async function openTfjs(threads: number): Promise<Peer | string> {
  const installed = findInstalled(BACKEND, CORE);
  if (typeof installed === 'string') return installed;
  if (threads !== 1) return `it computes with 1 thread in Node, not with ${threads}`;
  const require = createRequire(import.meta.url);
  const tf: Tfjs = require(CORE);
  require(BACKEND); // importing it registers the backend with the core
  if (!(await tf.setBackend('wasm'))) throw new Error('its WebAssembly backend does not start');
  const primitives: Primitives<TfTensor> = {
    Add: ([a, b]) => [tf.add(a!, b!)],
    Sub: ([a, b]) => [tf.sub(a!, b!)],
    Mul: ([a, b]) => [tf.mul(a!, b!)],
    Sigmoid: ([x]) => [tf.sigmoid(x!)],
    MatMul: ([a, b]) => [tf.matMul(a!, b!)],
    Split: ([x]) => tf.split(x!, 2, -1),
    Concat: (parts) => [tf.concat(parts, -1)],
  };
  return {
    name: 'tfjs',
    version: installed.version,
    takes: isPrimitive,
    async open(graph) {
      const given = [...graph.inputs, ...(graph.constants ?? [])];
      const inputs = new Map(given.map(({ name, dims, data }) => [name, tf.tensor(data, dims, 'float32')]));
      let last: TfTensor | undefined;
      return {
        run() {
          last?.dispose();
          last = tf.tidy(() => evaluate(graph, new Map(inputs), primitives));
        },
        output: () => last!.dataSync(),
        close() {
          last?.dispose();
          for (const tensor of inputs.values()) tensor.dispose();
        },
      };
    },
  };
}
