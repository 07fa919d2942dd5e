/**
 * Tensors of the backend: host memory that only the queue touches.
 *
 * @module
 */
import type { ArrayOf, Dtype, RopewalkError, TensorStorage } from 'ropewalk';
import { fail, newArray } from 'ropewalk/backend';

/** Whose queue it is. */
export interface Queue {
  /** Waits for its turn behind everything that is queued. */
  enqueue<T>(job: () => T | Promise<T>): Promise<T>;
  /** Notes that a reader has received a failure, so that finish() does not throw it again. */
  heard(failure: RopewalkError): void;
}

/** A tensor's elements, written and read in the order of the queue. */
export class QueuedStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'onnxruntime';
  /** None to others: the array is behind the queue. */
  readonly host = undefined;
  /** Why the last write did not happen. */
  failure: RopewalkError | undefined;
  #elements: ArrayOf[D] | undefined;

  constructor(
    readonly home: Queue,
    readonly dtype: D,
    readonly length: number,
    elements?: ArrayOf[D],
  ) {
    this.#elements = elements ?? newArray(dtype, length);
  }

  /** The elements; for the queue alone. */
  get array(): ArrayOf[D] {
    return this.#elements ?? fail('DEVICE', 'tensor', 'a disposed tensor has no elements');
  }

  read(start = 0, end = this.length): Promise<ArrayOf[D]> {
    const { array } = this; // a reader keeps it when it is disposed now
    return this.home.enqueue(() => {
      if (this.failure) {
        this.home.heard(this.failure);
        throw this.failure;
      }
      return array.slice(start, end) as ArrayOf[D];
    });
  }

  dispose(): void {
    this.#elements = undefined;
  }
}
