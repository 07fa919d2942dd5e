/** Keeps the tables of plans in a backend's memory, because later calls need them again. @module */

/** The most bytes and the most uploads that are kept. */
const MAX_BYTES = 1 << 26;
const MAX_COUNT = 512;
/** This many of the latest uploads may belong to the running call. */
const IN_USE = 8;

/** Uploads, found by the identity of what was uploaded; the least recently used are dropped first. */
export class Uploads<B> {
  readonly #free: (block: B) => void;
  readonly #kept = new Map<object, { readonly block: B; readonly bytes: number; used: number }>();
  #bytes = 0;
  #clock = 0;

  /** @param free - gives a block back */
  constructor(free: (block: B) => void) {
    this.#free = free;
  }

  /**
   * Finds the block of an upload; at the first use of `key`, `upload` takes memory and writes it.
   *
   * @param key - the source of the upload; a later change of it is not seen
   */
  get(key: object, bytes: number, upload: () => B): B {
    let entry = this.#kept.get(key);
    if (!entry) {
      if (this.#bytes + bytes > MAX_BYTES || this.#kept.size >= MAX_COUNT) this.drop(MAX_BYTES / 2 - bytes);
      entry = { block: upload(), bytes, used: 0 };
      this.#kept.set(key, entry);
      this.#bytes += bytes;
    }
    entry.used = ++this.#clock;
    return entry.block;
  }

  /**
   * Drops the least recently used uploads until `keep` bytes and half of the places are left, but none of the running call.
   *
   * @returns whether there was anything to drop
   */
  drop(keep: number): boolean {
    const since = this.#clock - IN_USE;
    let dropped = false;
    for (const [key, { block, bytes, used }] of [...this.#kept].sort((a, b) => a[1].used - b[1].used)) {
      if (used > since || (this.#bytes <= keep && this.#kept.size <= MAX_COUNT / 2)) break;
      this.#kept.delete(key);
      this.#bytes -= bytes;
      this.#free(block);
      dropped = true;
    }
    return dropped;
  }

  /** Forgets everything: the memory is gone. */
  clear(): void {
    this.#kept.clear();
    this.#bytes = 0;
  }
}
