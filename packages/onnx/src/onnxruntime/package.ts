/**
 * Finding ONNX Runtime: the package `onnxruntime-node`, an optional peer dependency.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean } from 'ropewalk/internal';
import { firstLine } from '../backend/queue.js';

/** A tensor of the package, as far as it is used here. */
export interface OrtTensor {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: ArrayBufferView & ArrayLike<unknown>;
}

/** Tensors by the names of inputs or outputs. */
export type OrtTensors = Readonly<Record<string, OrtTensor>>;

/** A loaded graph. */
export interface OrtSession {
  /** @param fetches - the outputs that are wanted, all unless given; a tensor takes the output, null asks for a new one */
  run(feeds: OrtTensors, fetches?: Readonly<Record<string, OrtTensor | null>>): Promise<OrtTensors>;
  release(): Promise<void>;
}

/** What the package exports, as far as it is used here. */
export interface Ort {
  readonly InferenceSession: { create(model: Uint8Array, options: OrtSessionOptions): Promise<OrtSession> };
  readonly Tensor: new (type: string, data: ArrayBufferView, dims: readonly number[]) => OrtTensor;
  readonly env: { readonly versions: { readonly node?: string; readonly common?: string } };
  listSupportedBackends(): readonly { readonly name: string; readonly bundled: boolean }[];
}

/** How a graph is loaded. */
export interface OrtSessionOptions {
  readonly executionProviders: readonly string[];
  readonly intraOpNumThreads: number;
  readonly interOpNumThreads: number;
  readonly enableCpuMemArena: boolean;
  readonly logSeverityLevel: 0 | 1 | 2 | 3 | 4;
  /** Session configuration, dots of its keys as levels. */
  readonly extra?: { readonly session: Readonly<Record<string, string | Readonly<Record<string, string>>>> };
  /** Files beside the graph, in memory. */
  readonly externalData?: readonly { readonly path: string; readonly data: Uint8Array }[];
}

let found: Promise<Ort | string> | undefined;

/** The package, or why there is none. */
const entry = (): Promise<Ort | string> => (found ??= findPackage());

async function findPackage(): Promise<Ort | string> {
  const { process } = globalThis as { process?: { versions?: { node?: string } } };
  if (process?.versions?.node === undefined)
    return 'the package onnxruntime-node runs in Node only, and this is a browser';
  const name = 'onnxruntime-node'; // not a literal: bundlers for browsers would look for the package
  try {
    const module = (await import(/* webpackIgnore: true */ /* @vite-ignore */ name)) as { default?: Ort } & Ort;
    return module.default ?? module;
  } catch (cause) {
    const missing = (cause as { code?: string }).code === 'ERR_MODULE_NOT_FOUND';
    return missing
      ? 'the package onnxruntime-node is not installed: npm install onnxruntime-node'
      : `the package onnxruntime-node does not load: ${firstLine(cause)}`;
  }
}

/** Says why ONNX Runtime cannot be used here, or undefined when it can. */
export async function whyNotOnnxruntime(): Promise<string | undefined> {
  const ort = await entry();
  return typeof ort === 'string' ? ort : undefined;
}

/** Loads the package, or refuses with the reason why there is none. */
export async function loadOnnxruntime(): Promise<Ort> {
  const ort = await entry();
  return typeof ort === 'string' ? fail('DEVICE', 'onnxruntime', `${ort}.`) : ort;
}

/** Checks that the package was built with these providers. Missing libraries show only when a graph is loaded. */
export function checkProviders(ort: Ort, providers: readonly string[]): void {
  const known = ort.listSupportedBackends().map(({ name }) => name);
  if (providers.length === 0)
    fail('UNSUPPORTED', 'onnxruntime: providers', `the list is empty. Name at least one of ${known.join(', ')}.`);
  const wanted = `one that this build of onnxruntime-node has: ${known.join(', ')}`;
  const next = 'Other providers need another build of ONNX Runtime; ropewalk export writes the graphs for it.';
  for (const name of providers)
    if (!known.includes(name))
      refuse('UNSUPPORTED', 'onnxruntime: providers', wanted, name, didYouMean(name, known) ?? next);
}
