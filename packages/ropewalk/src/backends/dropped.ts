/**
 * Memory of tensors that were dropped without dispose(): it comes back when the garbage collector finds them.
 *
 * One registry for all backends, which is never collected itself. In V8 a registry that is collected while its callbacks
 * wait ends the callbacks of every registry of the process (Node 20.20 and 24.21).
 *
 * @module
 */

/** Takes blocks back. */
interface Home<Block> {
  free(block: Block): void;
}

interface Held {
  /** Weak: a backend may keep tensors, and would be kept by them. */
  readonly home: WeakRef<Home<unknown>>;
  readonly block: unknown;
}

const REGISTRY = /* @__PURE__ */ new FinalizationRegistry<Held>(({ home, block }) => home.deref()?.free(block));

/** Gives blocks of a memory back when the storages that hold them are collected. */
export class Dropped<Block> {
  readonly #home: WeakRef<Home<unknown>>;

  /** @param home - the memory */
  constructor(home: Home<Block>) {
    this.#home = new WeakRef(home as Home<unknown>);
  }

  watch(storage: object, block: Block): void {
    REGISTRY.register(storage, { home: this.#home, block }, storage);
  }

  unwatch(storage: object): void {
    REGISTRY.unregister(storage);
  }
}
