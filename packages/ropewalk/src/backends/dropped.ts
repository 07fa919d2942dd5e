/**
 * Takes back the memory of tensors that were dropped without dispose(), when the garbage collector finds them.
 *
 * All backends share one registry, which is never collected itself. In V8 a registry that is collected while its
 * callbacks wait ends the callbacks of every registry of the process (Node 20.20 and 24.21).
 *
 * @module
 */

/** A memory, which takes blocks back. */
interface Memory<Block> {
  free(block: Block): void;
}

interface Held {
  /** The reference is weak, because a backend may keep tensors, which would keep the backend. */
  readonly memory: WeakRef<Memory<unknown>>;
  readonly block: unknown;
}

const REGISTRY = /* @__PURE__ */ new FinalizationRegistry<Held>(({ memory, block }) => memory.deref()?.free(block));

/** Gives blocks of a memory back when the storages that hold them are collected. */
export class Dropped<Block> {
  readonly #memory: WeakRef<Memory<unknown>>;

  constructor(memory: Memory<Block>) {
    this.#memory = new WeakRef(memory as Memory<unknown>);
  }

  watch(storage: object, block: Block): void {
    REGISTRY.register(storage, { memory: this.#memory, block }, storage);
  }

  unwatch(storage: object): void {
    REGISTRY.unregister(storage);
  }
}
