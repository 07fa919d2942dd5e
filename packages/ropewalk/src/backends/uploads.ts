/** What a backend keeps in its memory because calls need it again: the tables of plans. @module */

/** Bytes and number of what stays. */
const MAX_BYTES = 1 << 26;
const MAX_COUNT = 512;
/** This many of the latest may belong to the running call. */
const IN_USE = 8;

/** Uploads by the identity of what was uploaded; the least recently used go first. */
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
   * Where something is, uploaded at its first use.
   *
   * @param key - what; a later change of it is not seen
   * @param bytes - its size in memory
   * @param upload - takes memory and writes it
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
   * Drops the least recently used until `keep` bytes and half of the places are left, but none of the running call.
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
