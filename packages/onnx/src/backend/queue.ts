/**
 * The queue of a backend whose graphs run later: plans run one after the other, and whoever waits for an output hears
 * whether its plan ran.
 *
 * @module
 */
import type { HostArray, Tensor, TensorStorage } from 'ropewalk';
import { RopewalkError } from 'ropewalk';
import { fail, hostOf, writtenLater } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { Target } from './pack.js';
import { OwnStorage, type Queue } from './storage.js';

const NEXT = 'Open the backend again.';

/** A host buffer that queued plans will write. */
interface Awaited {
  /** How many. */
  writes: number;
  /** Why one of them failed. */
  failure: RopewalkError | undefined;
  /** Settles, and never rejects, when tensors over it can be read at once again. */
  last: Promise<void>;
}

/** Jobs in their order, and who waits for them. */
export class PlanQueue implements Queue {
  readonly #awaited = new Map<ArrayBufferLike, Awaited>();
  /** Failures since the last finish that no reader has received. */
  readonly #failures = new Set<RopewalkError>();
  #tail: Promise<unknown> = Promise.resolve();
  /** Why nothing runs any more. */
  #closed: string | undefined;

  /** @param owner - the backend's name */
  constructor(readonly owner: string) {}

  /** Refuses everything from now on, after what runs now, with the reason. */
  close(why: string): void {
    this.#closed ??= why;
  }

  /** @throws {RopewalkError} DEVICE after {@link close} */
  checkOpen(): void {
    if (this.#closed !== undefined) fail('DEVICE', this.owner, `${this.#closed}. ${NEXT}`);
  }

  enqueue<T>(job: () => T | Promise<T>): Promise<T> {
    const turn = this.#tail.then(() => {
      this.checkOpen();
      return job();
    });
    this.#tail = turn.catch(() => {}); // one that fails does not stop the next
    return turn;
  }

  /** Waits for everything that is queued, without a turn of its own: after {@link close} as well. */
  settled(): Promise<unknown> {
    return this.#tail;
  }

  heard(failure: RopewalkError): void {
    this.#failures.delete(failure);
  }

  /** Waits until everything is written; throws the first failure that nobody has heard of. */
  async finish(): Promise<void> {
    this.checkOpen();
    await this.enqueue(() => {});
    await Promise.all([...this.#awaited.values()].map(({ last }) => last));
    const [first] = this.#failures;
    this.#failures.clear();
    if (first) throw first;
  }

  /** Queues a job that writes outputs, and passes its outcome on to all that wait for them. */
  write(job: () => void | Promise<void>, outputs: readonly Target[]): void {
    const owned = outputs.flatMap(({ storage, pieces }) => {
      const own = this.own(storage);
      const written = pieces.reduce((sum, { to }) => sum + countElements(to.shape), 0);
      return own ? [{ own, whole: written === storage.length }] : [];
    });
    const buffers = new Set(outputs.flatMap(({ storage }) => (storage.host ? [storage.host.buffer] : [])));
    const waiting = [...buffers].map((buffer) => {
      const entry = this.#awaited.get(buffer) ?? { writes: 0, failure: undefined, last: Promise.resolve() };
      this.#awaited.set(buffer, entry);
      entry.writes++;
      return entry;
    });
    const done = this.enqueue(job).then(
      () => {
        for (const { own, whole } of owned) if (whole) own.failure = undefined;
      },
      (error: unknown) => {
        const why = `${this.owner}: the call did not run: ${firstLine(error)}. ${NEXT}`;
        const known = error instanceof RopewalkError;
        const failure = known ? error : new RopewalkError('DEVICE', why, { cause: error });
        for (const { own } of owned) own.failure = failure;
        for (const entry of waiting) entry.failure = failure;
        this.#failures.add(failure);
        throw failure;
      },
    );
    this.#tail = done.catch(() => {}); // the next sees what this one leaves behind
    for (const [n, buffer] of [...buffers].entries()) {
      const entry = waiting[n]!;
      const settled = (): void => {
        if (--entry.writes === 0) this.#awaited.delete(buffer);
      };
      entry.last = writtenLater(buffer, done).then(settled, settled);
    }
  }

  /**
   * Makes what gives the elements of an input in host memory when its plan runs: `take` reads them now, or later where
   * the queue has yet to write them.
   */
  hostInput<T>(tensor: Tensor, op: string, take: (elements: HostArray) => T): () => T {
    const { host } = tensor.storage;
    const awaited = host && this.#awaited.get(host.buffer);
    if (awaited) {
      return () => {
        if (awaited.failure) throw awaited.failure;
        return take(tensor.storage.host!);
      };
    }
    const { owner } = tensor.storage;
    if (!host && owner === this.owner) {
      const why = `an input is in the memory of another ${owner} backend. Read it first: await tensor.read().`;
      fail('DEVICE', `${owner}: ${op}`, why);
    }
    const taken = take(hostOf(tensor, `${this.owner}: ${op}`));
    return () => taken;
  }

  /** Refuses an output that is neither in host memory nor of this backend. */
  checkOutput({ storage }: Target, op: string): void {
    if (this.own(storage) || storage.host) return;
    const owner = storage.owner === this.owner ? `another ${this.owner} backend` : storage.owner;
    const why = `an output is in the memory of ${owner}. Give outputs in host memory, or of this backend.`;
    fail('DEVICE', `${this.owner}: ${op}`, why);
  }

  /** The storage, where it is of this queue's backend. */
  own(storage: TensorStorage): OwnStorage | undefined {
    return storage instanceof OwnStorage && storage.home === this ? storage : undefined;
  }
}

/** The first line of an error, without its full stop: a stack may follow. */
export function firstLine(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return text.trim().split('\n')[0]!.trim().replace(/\.$/, '');
}
