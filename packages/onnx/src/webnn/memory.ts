/**
 * Memory of a WebNN context: tensors, counted, and kept for the next that needs the same.
 *
 * @module
 */
import { fail } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { MlContext, MlDescriptor, MlDtype, MlTensor } from './api.js';

const MIB = 2 ** 20;

/**
 * The largest tensor, measured in Chromium 147: 1020 MiB work, and 1024 MiB end the GPU process of all tabs, although
 * `maxTensorByteLength` says 2 GiB.
 */
export const MAX_TENSOR_BYTES = 1020 * MIB;
/** The largest constant: WebNN itself refuses a larger one. */
export const MAX_CONSTANT_BYTES = 128 * MIB;
/** Tensors that nobody uses are kept up to this. */
const MAX_IDLE_BYTES = 256 * MIB;

const BYTES: Readonly<Record<MlDtype, number>> = /* @__PURE__ */ Object.freeze({
  float32: 4,
  float16: 2,
  int32: 4,
  uint8: 1,
});

/** Bytes of a tensor. */
export function bytesOf({ dataType, shape }: MlDescriptor): number {
  return countElements(shape) * BYTES[dataType];
}

/** Refuses a tensor that no context may be asked for. */
export function checkTensorBytes(descriptor: MlDescriptor, what: string): void {
  const bytes = bytesOf(descriptor);
  if (bytes <= MAX_TENSOR_BYTES) return;
  const most = `at most ${mib(MAX_TENSOR_BYTES)}: a larger one would end the browser's GPU process`;
  fail('DEVICE', `webnn: ${what}`, `expected ${most}, got ${mib(bytes)}. Split it, or use cpu.`);
}

/** Makes tensors within a limit: a process that runs out of memory takes the contexts of all tabs with it. */
export class DeviceMemory {
  /** What {@link take} has made and {@link free} has not destroyed, and what was counted besides. */
  usedBytes = 0;
  #idleBytes = 0;
  readonly #idle = new Map<string, MlTensor[]>();

  /**
   * @param limitBytes - that everything together may take
   * @param makeRoom - gives something back, and says whether there was something
   */
  constructor(
    readonly context: MlContext,
    readonly limitBytes: number,
    readonly makeRoom: () => boolean,
  ) {}

  /** A tensor with anything in it. */
  async take(dataType: MlDtype, shape: readonly number[]): Promise<MlTensor> {
    const key = keyOf(dataType, shape);
    const list = this.#idle.get(key);
    const kept = list?.pop();
    if (kept) {
      if (list!.length === 0) this.#idle.delete(key);
      this.#idleBytes -= bytesOf(kept);
      return kept;
    }
    checkTensorBytes({ dataType, shape }, 'tensor');
    this.count(bytesOf({ dataType, shape }));
    return this.context.createTensor({ dataType, shape, readable: true, writable: true });
  }

  /** Takes a tensor back. What was queued with it still runs. */
  free(tensor: MlTensor): void {
    const key = keyOf(tensor.dataType, tensor.shape);
    const list = this.#idle.get(key) ?? [];
    list.push(tensor);
    this.#idle.set(key, list);
    this.#idleBytes += bytesOf(tensor);
    while (this.#idleBytes > MAX_IDLE_BYTES && this.#dropIdle());
  }

  /** Counts memory that is about to be taken. @throws {RopewalkError} DEVICE when it does not fit */
  count(bytes: number): void {
    while (this.usedBytes + bytes > this.limitBytes && (this.#dropIdle() || this.makeRoom()));
    this.check(this.usedBytes, bytes);
    this.usedBytes += bytes;
  }

  /** Whether memory can be taken without giving back what is in use. */
  hasRoom(bytes: number): boolean {
    return this.usedBytes + bytes <= this.limitBytes;
  }

  /** Refuses what does not fit beside what is there. */
  check(used: number, bytes: number): void {
    if (used + bytes <= this.limitBytes) return;
    const limit = `the limit of ${mib(this.limitBytes)}, of which ${mib(used)} are in use`;
    const next = 'Dispose of tensors, or open the backend with a larger memoryLimit if the machine has it.';
    fail('DEVICE', 'webnn: memory', `${mib(bytes)} more would pass ${limit}. ${next}`);
  }

  #dropIdle(): boolean {
    const [oldest] = this.#idle;
    if (!oldest) return false;
    const [key, list] = oldest;
    const tensor = list.shift()!;
    if (list.length === 0) this.#idle.delete(key);
    const bytes = bytesOf(tensor);
    this.#idleBytes -= bytes;
    this.usedBytes -= bytes;
    tensor.destroy();
    return true;
  }
}

function keyOf(dataType: MlDtype, shape: readonly number[]): string {
  return `${dataType} ${shape}`;
}

/** Bytes for people. */
export function mib(bytes: number): string {
  return bytes < MIB ? `${bytes} bytes` : `${Math.round(bytes / MIB)} MiB`;
}
