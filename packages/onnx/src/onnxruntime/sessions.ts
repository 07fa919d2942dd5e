/**
 * Loaded graphs, kept because they will be asked for again.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { firstLine } from '../backend/queue.js';
import type { Ort, OrtSession, OrtSessionOptions } from './package.js';

/** A session of a small graph takes about 100 KB, and half a millisecond to load. */
const MAX_COUNT = 256;

/**
 * Sessions by their graphs: the bytes of a model hold the operator, its shapes, dtypes and attributes, and nothing
 * else. Only the queue calls this, so that no session is released while it runs.
 */
export class Sessions {
  /** How many graphs were loaded; visible for tests. */
  loaded = 0;
  /** The one used last is the last. */
  readonly #kept = new Map<string, OrtSession>();

  constructor(
    readonly ort: Ort,
    readonly options: OrtSessionOptions,
    readonly maxCount = MAX_COUNT,
  ) {}

  get count(): number {
    return this.#kept.size;
  }

  /** The session of a graph, loaded at its first use. */
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

  /** Releases all. */
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
 * @param what - names it in messages
 * @throws {RopewalkError} DEVICE with the reason and a next step
 */
export async function loadGraph(
  ort: Pick<Ort, 'InferenceSession'>,
  model: Uint8Array,
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

/** A name for bytes that no other bytes have. */
async function digest(bytes: Uint8Array): Promise<string> {
  const hash = new Uint8Array(await globalThis.crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
