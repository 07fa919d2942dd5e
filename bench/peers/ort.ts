/**
 * ONNX Runtime as a peer: its native build for Node, and its WebAssembly build for browsers, which also runs in Node.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { newArray } from 'ropewalk/backend';
import { encodeModel, type PeerGraph } from './graph.js';
import { findInstalled } from './installed.js';
import { type OrtModule, type OrtTensors, ortTensor } from './ort-module.js';
import { openOrtWebgpu } from './ort-webgpu.js';
import type { Peer, PeerName, PeerSession } from './peer.js';

type OrtName = Extract<PeerName, 'ort-node' | 'ort-web'>;

/**
 * Loads ONNX Runtime.
 *
 * @param name - the build of ONNX Runtime
 * @param threads - the number of threads; ort-web fixes it once in the life of a process
 * @returns the peer, or the reason why it is left out
 */
export async function openOrt(name: OrtName, threads: number): Promise<Peer | string> {
  const installed = findInstalled(name === 'ort-node' ? 'onnxruntime-node' : 'onnxruntime-web');
  if (typeof installed === 'string') return installed;
  const ort = await (name === 'ort-node' ? importNode(installed.entry) : importWeb(installed.entry, threads));
  return {
    name,
    version: installed.version,
    takes: ({ substitute }) => !substitute,
    open: (graph) => openSession(ort, name, graph, threads),
  };
}

/**
 * Loads ONNX Runtime's native build for the GPU.
 *
 * @returns the peer, or the reason why it is left out
 */
export async function openOrtNodeWebgpu(): Promise<Peer | string> {
  const installed = findInstalled('onnxruntime-node');
  return typeof installed === 'string'
    ? installed
    : openOrtWebgpu(await importNode(installed.entry), installed.version);
}

async function importNode(entry: string): Promise<OrtModule> {
  const loaded = await import(pathToFileURL(entry).href);
  return loaded.default ?? loaded;
}

async function importWeb(entry: string, threads: number): Promise<OrtModule> {
  const folder = dirname(entry);
  const loaded = await import(pathToFileURL(join(folder, 'ort.node.min.mjs')).href);
  const ort: OrtModule = loaded.default ?? loaded;
  ort.env.logLevel = 'error';
  ort.env.wasm.numThreads = threads;
  // Node's fetch does not read file: addresses, so the binary is read here.
  ort.env.wasm.wasmBinary = readFileSync(join(folder, 'ort-wasm-simd-threaded.wasm'));
  return ort;
}

async function openSession(ort: OrtModule, name: OrtName, graph: PeerGraph, threads: number): Promise<PeerSession> {
  const session = await ort.InferenceSession.create(encodeModel(graph), {
    executionProviders: [name === 'ort-node' ? 'cpu' : 'wasm'],
    executionMode: 'sequential',
    graphOptimizationLevel: 'all',
    intraOpNumThreads: threads,
    interOpNumThreads: 1,
    logSeverityLevel: 3,
  });
  const feeds = Object.fromEntries(graph.inputs.map((input) => [input.name, ortTensor(ort, input)]));
  const { name: output, dtype, dims } = graph.output;
  const length = dims.reduce((product, dim) => product * dim, 1);
  // ort-node writes into an output that the caller allocates, so no run pays for an allocation. ort-web 1.30 accepts
  // such an output but does not write to it, so it allocates its own.
  const fetches = name === 'ort-node' && { [output]: ortTensor(ort, { dtype, dims, data: newArray(dtype, length) }) };
  let last: OrtTensors = {};
  return {
    async run() {
      last = await (fetches ? session.run(feeds, fetches) : session.run(feeds));
    },
    output: () => last[output]!.data,
    sink: () => last[output]!.data[0]! as number,
    close: () => session.release(),
  };
}
