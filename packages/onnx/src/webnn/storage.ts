/**
 * Tensors in WebNN's memory.
 *
 * WebNN has whole tensors only: no views, and nothing in place. So a storage is one flat tensor, `base`. If a plan has
 * written a stretch of it, such as the rows of a batch in a larger scratch memory, this stretch is a second tensor,
 * `part`, until somebody reads across its borders. The result of a plan is always a new tensor, which replaces the old
 * one. This is true for a KV cache as well.
 *
 * @module
 */
import type { ArrayOf, Dtype, HostArray } from 'ropewalk';
import { isHalf } from 'ropewalk/internal';
import { denseLayout, narrowed, pack } from '../backend/graph.js';
import { gone, OwnStorage, type PlanQueue, QueuedStorage } from '../backend/queue.js';
import type { MlDtype, MlTensor } from './api.js';
import type { DeviceMemory } from './graphs.js';

export interface Stretch {
  readonly start: number;
  readonly end: number;
}

let count = 0;

/** A storage in WebNN's memory. Only jobs of the queue may use `base`, `part` and `uploaded`. */
export class WebnnStorage<D extends Dtype = Dtype> extends OwnStorage<D> {
  /** The stretch that will be in `part` after all queued jobs. The caller that queues a job updates it. */
  stretch: Stretch | undefined;
  /** True if a plan has written it. The caller that queues a job updates it. */
  written = false;
  /** The number of plans that have read it as a matrix of weights. The caller that queues a job updates it. */
  uses = 0;
  /** A number for the keys of graphs. */
  readonly id = ++count;
  #disposed = false;
  base: MlTensor | undefined;
  part: MlTensor | undefined;
  /** The uploaded elements, until a plan writes. */
  uploaded: ArrayOf[D] | undefined;

  constructor(
    queue: PlanQueue,
    readonly memory: DeviceMemory,
    dtype: D,
    readonly dataType: MlDtype,
    length: number,
    readonly onDispose: (storage: WebnnStorage) => void,
    uploaded?: ArrayOf[D],
  ) {
    super(queue, dtype, length);
    this.uploaded = uploaded;
  }

  /** @throws {RopewalkError} DEVICE after {@link dispose} */
  checkLive(): void {
    if (this.#disposed) gone();
  }

  /** Returns the whole tensor. If it does not exist yet, it is made from the uploaded elements or zeros. */
  async takeBase(): Promise<MlTensor> {
    if (this.base) return this.base;
    const base = await this.memory.take(this.dataType, [this.length]);
    this.memory.context.writeTensor(base, this.uploaded ? this.wide(this.uploaded) : new Float32Array(this.length));
    this.base = base;
    return base;
  }

  put(where: 'base' | 'part', tensor: MlTensor): void {
    const before = this[where];
    this[where] = tensor;
    if (before) this.memory.free(before);
    if (where === 'part') return;
    this.uploaded = undefined;
    this.#drop('part');
  }

  protected override reader(start: number, end: number): () => Promise<ArrayOf[D]> {
    this.checkLive();
    const { stretch } = this;
    return async () => {
      const part = stretch && (await this.#elementsOf(this.part!));
      if (part && start >= stretch.start && end <= stretch.end)
        return part.slice(start - stretch.start, end - stretch.start) as ArrayOf[D];
      const all = this.uploaded ?? (await this.#elementsOf(await this.takeBase()));
      const found = all.slice(start, end) as ArrayOf[D];
      if (part) {
        for (let n = Math.max(start, stretch.start); n < Math.min(end, stretch.end); n++)
          found[n - start] = part[n - stretch.start]!;
      }
      return found;
    };
  }

  override dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    this.onDispose(this);
    // Queued jobs still read it.
    void this.queue
      .enqueue(() => {
        this.#drop('base');
        this.#drop('part');
        this.uploaded = undefined;
      })
      .catch(() => {}); // a closed context has no memory to free
  }

  /** Converts elements to the dtype of WebNN's tensor. */
  wide(elements: ArrayOf[D]): HostArray {
    return pack(elements, this.dtype, denseLayout([this.length]), true);
  }

  async #elementsOf(tensor: MlTensor): Promise<ArrayOf[D]> {
    const buffer = await this.memory.context.readTensor(tensor);
    if (this.dtype === 'i32') return new Int32Array(buffer) as ArrayOf[D];
    const wide = new Float32Array(buffer);
    return (isHalf(this.dtype) ? narrowed(wide, this.dtype) : wide) as ArrayOf[D];
  }

  #drop(where: 'base' | 'part'): void {
    const tensor = this[where];
    this[where] = undefined;
    if (tensor) this.memory.free(tensor);
  }
}

/** Elements of a dtype that WebNN does not have, in a host array. */
export class HostSideStorage<D extends Dtype = Dtype> extends QueuedStorage<D> {
  /** The weights of these blocks as f32. */
  widened: WebnnStorage<'f32'> | undefined;

  override dispose(): void {
    super.dispose();
    this.widened?.dispose();
  }
}
