/**
 * The queue of a backend that runs graphs later. Plans run one after the other, and whoever waits for an output learns
 * whether its plan ran.
 *
 * @module
 */
import type { ArrayOf, Dtype, HostArray, OpPlan, Tensor, TensorStorage } from 'ropewalk';
import { RopewalkError } from 'ropewalk';
import { checkPlan, fail, hostOf, newArray, writtenLater } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { Target } from './graph.js';

const NEXT = 'Open the backend again.';

/** A host buffer that queued plans will write. */
interface Awaited {
  /** The number of plans that will write it. */
  writes: number;
  failure: RopewalkError | undefined;
  /** Resolves, and never rejects, once tensors over the buffer can be read directly again. */
  last: Promise<void>;
}

/** Runs jobs in order, and tracks who waits for them. */
export class PlanQueue {
  readonly #awaited = new Map<ArrayBufferLike, Awaited>();
  /** Failures since the last finish() that no reader has seen. */
  readonly #failures = new Set<RopewalkError>();
  #tail: Promise<unknown> = Promise.resolve();
  /** Set once the queue is closed: the reason. */
  #closed: string | undefined;

  constructor(readonly owner: string) {}

  /** Refuses all jobs after the current one, with this reason. */
  close(why: string): void {
    this.#closed ??= why;
  }

  /** @throws {RopewalkError} DEVICE after {@link close} */
  checkOpen(): void {
    if (this.#closed !== undefined) fail('DEVICE', this.owner, `${this.#closed}. ${NEXT}`);
  }

  /** Runs a job after all jobs that are in the queue. */
  enqueue<T>(job: () => T | Promise<T>): Promise<T> {
    const turn = this.#tail.then(() => {
      this.checkOpen();
      return job();
    });
    this.#tail = turn.catch(() => {}); // a job that fails does not stop the next one
    return turn;
  }

  /** Waits for everything in the queue. It takes no turn itself, so it works after {@link close} too. */
  settled(): Promise<unknown> {
    return this.#tail;
  }

  /** Tells that a reader has seen a failure, so that finish() does not throw it again. */
  heard(failure: RopewalkError): void {
    this.#failures.delete(failure);
  }

  /** Waits until everything is written. It throws the first failure that no reader has seen. */
  async finish(): Promise<void> {
    this.checkOpen();
    await this.enqueue(() => {});
    await Promise.all([...this.#awaited.values()].map(({ last }) => last));
    const [first] = this.#failures;
    this.#failures.clear();
    if (first) throw first;
  }

  /** Queues a job that writes outputs, and reports its result to all readers of these outputs. */
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
    this.#tail = done.catch(() => {}); // the next job starts after the bookkeeping of this one
    for (const [n, buffer] of [...buffers].entries()) {
      const entry = waiting[n]!;
      const settled = (): void => {
        if (--entry.writes === 0) this.#awaited.delete(buffer);
      };
      entry.last = writtenLater(buffer, done).then(settled, settled);
    }
  }

  /** Returns a function that gives the elements of a host input. `take` reads them after all queued writes. */
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

  /** Refuses an output that is neither in host memory nor in this backend's memory. */
  checkOutput({ storage }: Target, op: string): void {
    if (this.own(storage) || storage.host) return;
    const owner = storage.owner === this.owner ? `another ${this.owner} backend` : storage.owner;
    const why = `an output is in the memory of ${owner}. Give outputs in host memory, or of this backend.`;
    fail('DEVICE', `${this.owner}: ${op}`, why);
  }

  /** Returns the storage if it belongs to this queue's backend. */
  own(storage: TensorStorage): OwnStorage | undefined {
    return storage instanceof OwnStorage && storage.queue === this ? storage : undefined;
  }
}

/** Returns the first line of an error message without its full stop. A stack may follow in the other lines. */
export function firstLine(cause: unknown): string {
  const text = cause instanceof Error ? cause.message : String(cause);
  return text.trim().split('\n')[0]!.trim().replace(/\.$/, '');
}

/** Elements of a tensor that are read and written in the order of the queue. */
export abstract class OwnStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner: string;
  /** Undefined, because elements may only be read through the queue. */
  readonly host = undefined;
  failure: RopewalkError | undefined;

  constructor(
    readonly queue: PlanQueue,
    readonly dtype: D,
    readonly length: number,
  ) {
    this.owner = queue.owner;
  }

  /** Returns a function that reads the elements in the reader's turn. The tensor may be disposed before that. */
  protected abstract reader(start: number, end: number): () => ArrayOf[D] | Promise<ArrayOf[D]>;

  abstract dispose(): void;

  read(start = 0, end = this.length): Promise<ArrayOf[D]> {
    const elements = this.reader(start, end);
    return this.queue.enqueue(() => {
      if (this.failure) {
        this.queue.heard(this.failure);
        throw this.failure;
      }
      return elements();
    });
  }
}

export class QueuedStorage<D extends Dtype = Dtype> extends OwnStorage<D> {
  #elements: ArrayOf[D] | undefined;

  constructor(queue: PlanQueue, dtype: D, length: number, elements?: ArrayOf[D]) {
    super(queue, dtype, length);
    this.#elements = elements ?? newArray(dtype, length);
  }

  /** The elements. Only jobs of the queue may use them. */
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

/** A backend that makes a graph of each plan once, and runs graphs in the order of its queue. */
export abstract class QueuedBackend<Prepared> {
  protected readonly queue: PlanQueue;
  readonly #prepared = new WeakMap<OpPlan, Prepared>();

  constructor(readonly name: string) {
    this.queue = new PlanQueue(name);
  }

  protected abstract prepareNew(plan: OpPlan): Prepared;

  protected abstract take<D extends Dtype>(dtype: D, shape: readonly number[], elements?: ArrayOf[D]): Tensor<D>;

  allocate<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
    this.queue.checkOpen();
    return this.take(dtype, shape);
  }

  upload<D extends Dtype>(source: Tensor<D>): Tensor<D> {
    this.queue.checkOpen();
    hostOf(source, `${this.name}: upload`);
    return this.take(source.dtype, source.shape, source.read() as ArrayOf[D]);
  }

  finish(): Promise<void> {
    return this.queue.finish();
  }

  protected prepare(plan: OpPlan): Prepared {
    checkPlan(plan);
    const prepared = this.#prepared.get(plan) ?? this.prepareNew(plan);
    this.#prepared.set(plan, prepared);
    return prepared;
  }
}

export function gone(): never {
  fail('DEVICE', 'tensor', 'a disposed tensor has no elements');
}
