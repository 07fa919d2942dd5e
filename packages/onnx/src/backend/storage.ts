/**
 * Tensors of a backend with a queue: written and read in the order of the queue.
 *
 * @module
 */
import type { ArrayOf, Dtype, RopewalkError, TensorStorage } from 'ropewalk';
import { fail, newArray } from 'ropewalk/backend';

/** Whose queue it is. */
export interface Queue {
  /** The backend's name. */
  readonly owner: string;
  /** Waits for its turn behind everything that is queued. */
  enqueue<T>(job: () => T | Promise<T>): Promise<T>;
  /** Notes that a reader has received a failure, so that finish() does not throw it again. */
  heard(failure: RopewalkError): void;
}

/** A tensor's elements, which only the queue touches. */
export abstract class OwnStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner: string;
  /** None to others: the elements are behind the queue. */
  readonly host = undefined;
  /** Why the last write did not happen. */
  failure: RopewalkError | undefined;

  constructor(
    readonly home: Queue,
    readonly dtype: D,
    readonly length: number,
  ) {
    this.owner = home.owner;
  }

  /** Makes what reads elements when it is the reader's turn; the tensor may be disposed before that. */
  protected abstract reader(start: number, end: number): () => ArrayOf[D] | Promise<ArrayOf[D]>;

  abstract dispose(): void;

  read(start = 0, end = this.length): Promise<ArrayOf[D]> {
    const elements = this.reader(start, end);
    return this.home.enqueue(() => {
      if (this.failure) {
        this.home.heard(this.failure);
        throw this.failure;
      }
      return elements();
    });
  }
}

/** Elements in a host array. */
export class QueuedStorage<D extends Dtype = Dtype> extends OwnStorage<D> {
  #elements: ArrayOf[D] | undefined;

  constructor(home: Queue, dtype: D, length: number, elements?: ArrayOf[D]) {
    super(home, dtype, length);
    this.#elements = elements ?? newArray(dtype, length);
  }

  /** The elements; for the queue alone. */
  get array(): ArrayOf[D] {
    return this.#elements ?? gone();
  }

  protected override reader(start: number, end: number): () => ArrayOf[D] {
    const { array } = this;
    return () => array.slice(start, end) as ArrayOf[D];
  }

  override dispose(): void {
    this.#elements = undefined;
  }
}

/** Refuses a tensor that was disposed. */
export function gone(): never {
  fail('DEVICE', 'tensor', 'a disposed tensor has no elements');
}
