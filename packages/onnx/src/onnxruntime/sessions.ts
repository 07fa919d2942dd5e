/**
 * Loaded graphs, kept because they will be asked for again.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { firstLine, type Ort, type OrtSession, type OrtSessionOptions } from './package.js';

/** A session of a small graph takes about 100 KB, and half a millisecond to load. */
const MAX_COUNT = 256;

interface Kept {
  readonly session: OrtSession;
  used: number;
}

/**
 * Sessions by what their graphs are: the operator, its shapes, dtypes and attributes are in the bytes of the model, and nothing else is.
 * Only the queue calls it, so that no session is released while it runs.
 */
export class Sessions {
  /** How many graphs were loaded; visible for tests. */
  loaded = 0;
  private readonly kept = new Map<string, Kept>();
  private clock = 0;

  constructor(
    private readonly ort: Ort,
    private readonly options: OrtSessionOptions,
    /** The most that stay. */
    private readonly maxCount = MAX_COUNT,
  ) {}

  /** How many are held. */
  get count(): number {
    return this.kept.size;
  }

  /**
   * The session of a graph, loaded at its first use.
   *
   * @param model - the graph
   * @param what - names it in messages
   * @throws {RopewalkError} DEVICE when ONNX Runtime does not take it
   */
  async get(model: Uint8Array, what: string): Promise<OrtSession> {
    const key = await digest(model);
    let entry = this.kept.get(key);
    if (!entry) {
      await this.makeRoom();
      entry = { session: await this.load(model, what), used: 0 };
      this.kept.set(key, entry);
    }
    entry.used = ++this.clock;
    return entry.session;
  }

  /** Releases all. */
  async clear(): Promise<void> {
    const sessions = [...this.kept.values()];
    this.kept.clear();
    for (const { session } of sessions) await session.release();
  }

  private async load(model: Uint8Array, what: string): Promise<OrtSession> {
    try {
      const session = await this.ort.InferenceSession.create(model, this.options);
      this.loaded++;
      return session;
    } catch (cause) {
      const next = /fallback to CPU/.test(String(cause))
        ? 'The provider leaves nodes to the CPU: name cpu behind it to allow that.'
        : /Could not find an implementation/.test(String(cause))
          ? 'No provider given has a kernel for that node and type: try the other form, another dtype or another provider.'
          : 'Try another provider, or a newer onnxruntime-node.';
      throw new RopewalkError(
        'DEVICE',
        `onnxruntime: ${what}: expected the graph to load, got: ${firstLine(cause)}. ${next}`,
        { cause },
      );
    }
  }

  private async makeRoom(): Promise<void> {
    if (this.kept.size < this.maxCount) return;
    let oldest: [string, Kept] | undefined;
    for (const one of this.kept) if (!oldest || one[1].used < oldest[1].used) oldest = one;
    this.kept.delete(oldest![0]);
    await oldest![1].session.release();
  }
}

/** A name for bytes that no other bytes have. */
async function digest(bytes: Uint8Array): Promise<string> {
  const hash = new Uint8Array(await globalThis.crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
