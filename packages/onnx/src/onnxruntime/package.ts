/**
 * Loads ONNX Runtime, the optional peer dependency `onnxruntime-node`, and keeps its sessions.
 *
 * @module
 */

import { RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean } from 'ropewalk/internal';
import { firstLine } from '../backend/queue.js';

/** The part of the package's tensors that is used here. */
export interface OrtTensor {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: ArrayBufferView & ArrayLike<unknown>;
}

export type OrtTensors = Readonly<Record<string, OrtTensor>>;

export interface OrtSession {
  /** @param fetches - the outputs to compute, all by default; null asks for a new tensor */
  run(feeds: OrtTensors, fetches?: Readonly<Record<string, OrtTensor | null>>): Promise<OrtTensors>;
  release(): Promise<void>;
}

/** The part of the package's exports that is used here. */
export interface Ort {
  /** A model by its path finds the files beside it. */
  readonly InferenceSession: { create(model: Uint8Array | string, options: OrtSessionOptions): Promise<OrtSession> };
  readonly Tensor: new (type: string, data: ArrayBufferView, dims: readonly number[]) => OrtTensor;
  readonly env: { readonly versions: { readonly node?: string; readonly common?: string } };
  listSupportedBackends(): readonly { readonly name: string; readonly bundled: boolean }[];
}

export interface OrtSessionOptions {
  readonly executionProviders: readonly string[];
  readonly intraOpNumThreads: number;
  readonly interOpNumThreads: number;
  readonly enableCpuMemArena: boolean;
  readonly logSeverityLevel: 0 | 1 | 2 | 3 | 4;
  readonly graphOptimizationLevel?: 'disabled' | 'all';
  /** The session configuration. Dots in its keys are levels here. */
  readonly extra?: { readonly session: Readonly<Record<string, string | Readonly<Record<string, string>>>> };
  /** Files beside the graph, in memory. */
  readonly externalData?: readonly { readonly path: string; readonly data: Uint8Array }[];
}

let found: Promise<Ort | string> | undefined;

const entry = (): Promise<Ort | string> => (found ??= findPackage());

async function findPackage(): Promise<Ort | string> {
  const { process } = globalThis as { process?: { versions?: { node?: string } } };
  if (process?.versions?.node === undefined)
    return 'the package onnxruntime-node runs in Node only, and this is a browser';
  const name = 'onnxruntime-node'; // not a literal, because bundlers for browsers would look for the package
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

/** Returns why ONNX Runtime cannot be used here, or undefined if it can. */
export async function whyNotOnnxruntime(): Promise<string | undefined> {
  const ort = await entry();
  return typeof ort === 'string' ? ort : undefined;
}

/** Returns the package, or throws with the reason why there is none. */
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

/** The session of a small graph takes about 100 KB, and half a millisecond to load. */
const MAX_COUNT = 256;

/**
 * Keeps sessions by the bytes of their graphs, which tell the operator, its shapes, dtypes and attributes. Only the
 * queue calls it, so that no session is released while it runs.
 */
export class Sessions {
  /** The number of loads, for tests. */
  loaded = 0;
  /** The session used last is the last. */
  readonly #kept = new Map<string, OrtSession>();

  constructor(
    readonly ort: Ort,
    readonly options: OrtSessionOptions,
    readonly maxCount = MAX_COUNT,
  ) {}

  get count(): number {
    return this.#kept.size;
  }

  /** Returns the session of a graph, which is loaded at its first use. */
  async get(model: Uint8Array, what: string): Promise<OrtSession> {
    const key = await digest(model);
    let session = this.#kept.get(key);
    if (session) this.#kept.delete(key);
    else {
      await this.#makeRoom();
      session = await loadGraph(this.ort, model, this.options, what);
      this.loaded++;
    }
    this.#kept.set(key, session);
    return session;
  }

  async clear(): Promise<void> {
    const sessions = [...this.#kept.values()];
    this.#kept.clear();
    for (const session of sessions) await session.release();
  }

  async #makeRoom(): Promise<void> {
    const [oldest] = this.#kept;
    if (!oldest || this.#kept.size < this.maxCount) return;
    this.#kept.delete(oldest[0]);
    await oldest[1].release();
  }
}

/**
 * Loads a graph.
 *
 * @param what - its name in messages
 * @throws {RopewalkError} DEVICE with the reason and a next step
 */
export async function loadGraph(
  ort: Pick<Ort, 'InferenceSession'>,
  model: Uint8Array | string,
  options: OrtSessionOptions,
  what: string,
): Promise<OrtSession> {
  try {
    return await ort.InferenceSession.create(model, options);
  } catch (cause) {
    const next = /fallback to CPU/.test(String(cause))
      ? 'The provider leaves nodes to the CPU: name cpu behind it to allow that.'
      : /Could not find an implementation/.test(String(cause))
        ? 'No provider given has a kernel for that node and type: try the other form, another dtype or another ' +
          'provider.'
        : 'Try another provider, or a newer onnxruntime-node.';
    const message = `onnxruntime: ${what}: the graph does not load: ${firstLine(cause)}. ${next}`;
    throw new RopewalkError('DEVICE', message, { cause });
  }
}

async function digest(bytes: Uint8Array): Promise<string> {
  const hash = new Uint8Array(await globalThis.crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
