/**
 * What a backend keeps in its memory because it will be asked for again: the tables of plans.
 *
 * @module
 */

/** Bytes and number of what stays. */
const MAX_BYTES = 1 << 26;
const MAX_COUNT = 512;
/** The latest so many belong to the running call. */
const IN_USE = 8;

interface Upload<B> {
  readonly block: B;
  readonly bytes: number;
  used: number;
}

/** Uploads by the identity of what was uploaded; the least lately used go first. */
export class Uploads<B> {
  private readonly kept = new Map<object, Upload<B>>();
  private bytes = 0;
  private clock = 0;

  /** @param free - gives a block back */
  constructor(private readonly free: (block: B) => void) {}

  /**
   * Where something was uploaded, at its first use or before.
   *
   * @param key - what; changed afterwards, the change goes unseen
   * @param bytes - what it takes
   * @param upload - takes memory and writes it
   */
  get(key: object, bytes: number, upload: () => B): B {
    let entry = this.kept.get(key);
    if (!entry) {
      if (this.bytes + bytes > MAX_BYTES || this.kept.size >= MAX_COUNT) this.drop(MAX_BYTES / 2 - bytes);
      entry = { block: upload(), bytes, used: 0 };
      this.kept.set(key, entry);
      this.bytes += bytes;
    }
    entry.used = ++this.clock;
    return entry.block;
  }

  /**
   * Drops the least lately used until `keep` bytes and half of the places are left; not those of the running call.
   *
   * @returns whether there was anything to drop
   */
  drop(keep: number): boolean {
    const since = this.clock - IN_USE;
    let dropped = false;
    for (const [key, { block, bytes, used }] of [...this.kept].sort((a, b) => a[1].used - b[1].used)) {
      if (used > since || (this.bytes <= keep && this.kept.size <= MAX_COUNT / 2)) break;
      this.kept.delete(key);
      this.bytes -= bytes;
      this.free(block);
      dropped = true;
    }
    return dropped;
  }

  /** Forgets all, whose memory is gone. */
  clear(): void {
    this.kept.clear();
    this.bytes = 0;
  }
}
