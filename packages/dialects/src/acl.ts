/**
 * The few calls of CANN's runtime (ACL) that InfiniOp's examples make: memory, copies, streams. A device's memory is
 * host memory here, and every call has ended when it returns.
 *
 * @module
 * @see hicann/runtime@681ef761 include/external/acl/acl_rt.h
 */
import { RopewalkError } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';

/** The call succeeded. */
export const ACL_SUCCESS = 0;
/** A pointer is missing, or a size or a kind is none. */
export const ACL_ERROR_INVALID_PARAM = 100000;
/** The runtime refuses a value: a copy that does not fit, memory on the wrong side, a stream that is gone. */
export const ACL_ERROR_RT_PARAM_INVALID = 107000;
/** There is not that much memory. */
export const ACL_ERROR_RT_MEMORY_ALLOCATION = 207001;

/** Huge pages, if there are any. */
export const ACL_MEM_MALLOC_HUGE_FIRST = 0;

/** From the host to the host. */
export const ACL_MEMCPY_HOST_TO_HOST = 0;
/** From the host to the device. */
export const ACL_MEMCPY_HOST_TO_DEVICE = 1;
/** From the device to the host. */
export const ACL_MEMCPY_DEVICE_TO_HOST = 2;
/** On the device. */
export const ACL_MEMCPY_DEVICE_TO_DEVICE = 3;

/** A status, and the reason where it is not ACL_SUCCESS. */
export interface AclResult {
  readonly status: number;
  readonly error?: RopewalkError;
}

/** A stream, which is opaque. */
export type AclStream = Readonly<Record<never, never>>;

const DEVICE_BUFFERS = /* @__PURE__ */ new WeakSet<object>();
const STREAMS = /* @__PURE__ */ new WeakSet<object>();
const SUCCESS: AclResult = { status: ACL_SUCCESS };

function failed(status: number, where: string, expected: string, got: unknown): AclResult {
  return { status, error: new RopewalkError('RANGE', `acl: ${where}: expected ${expected}, got ${show(got)}`) };
}

/**
 * `aclrtMalloc(&devPtr, size, policy)`: bytes of any type for InfiniOp's calls.
 *
 * @param size - in bytes, > 0; not rounded up, so that a kernel's reads past the end are seen
 * @param _policy - unused
 * @returns the memory, of zeros
 */
export function aclrtMalloc(size: number, _policy: number): AclResult & { readonly memory?: Uint8Array } {
  if (!Number.isSafeInteger(size) || size <= 0) return failed(ACL_ERROR_INVALID_PARAM, 'size', 'an integer > 0', size);
  try {
    const memory = newArray('u8', size) as Uint8Array;
    DEVICE_BUFFERS.add(memory.buffer);
    return { ...SUCCESS, memory };
  } catch (error) {
    return { status: ACL_ERROR_RT_MEMORY_ALLOCATION, error: error as RopewalkError };
  }
}

/**
 * `aclrtFree(devPtr)`: the memory has no bytes from now on.
 *
 * @param devPtr - from {@link aclrtMalloc}
 */
export function aclrtFree(devPtr: Uint8Array): AclResult {
  if (!ArrayBuffer.isView(devPtr) || devPtr.byteOffset !== 0 || !DEVICE_BUFFERS.delete(devPtr.buffer))
    return failed(ACL_ERROR_INVALID_PARAM, 'devPtr', 'memory of aclrtMalloc', devPtr);
  const { buffer } = devPtr as Uint8Array<ArrayBuffer>;
  structuredClone(buffer, { transfer: [buffer] });
  return SUCCESS;
}

/**
 * `aclrtMemcpy(dst, destMax, src, count, kind)`.
 *
 * @param dst - memory of {@link aclrtMalloc} on the device, any typed array on the host
 * @param destMax - bytes of dst that may be written
 * @param src - in the same way
 * @param count - bytes to copy; for 0 nothing is looked at
 * @param kind - one of ACL_MEMCPY_HOST_TO_HOST … ACL_MEMCPY_DEVICE_TO_DEVICE
 */
export function aclrtMemcpy(
  dst: ArrayBufferView | null,
  destMax: number,
  src: ArrayBufferView | null,
  count: number,
  kind: number,
): AclResult {
  if (count === 0) return SUCCESS;
  if (!ArrayBuffer.isView(dst)) return failed(ACL_ERROR_INVALID_PARAM, 'dst', 'memory', dst);
  if (!ArrayBuffer.isView(src)) return failed(ACL_ERROR_INVALID_PARAM, 'src', 'memory', src);
  if (![0, 1, 2, 3].includes(kind)) return failed(ACL_ERROR_INVALID_PARAM, 'kind', 'ACL_MEMCPY_… (0 to 3)', kind);
  if (!Number.isSafeInteger(destMax) || destMax < 0)
    return failed(ACL_ERROR_RT_PARAM_INVALID, 'destMax', 'an integer >= 0', destMax);
  const most = Math.min(destMax, dst.byteLength, src.byteLength);
  if (!Number.isSafeInteger(count) || count < 0 || !(count <= most))
    return failed(ACL_ERROR_RT_PARAM_INVALID, 'count', `at most ${most}, the bytes of destMax, dst and src`, count);
  for (const [name, memory, onDevice] of [['dst', dst, kind % 2 === 1] as const, ['src', src, kind >= 2] as const])
    if (DEVICE_BUFFERS.has(memory.buffer) !== onDevice) {
      const side = onDevice ? 'memory of aclrtMalloc' : "the host's memory";
      return failed(ACL_ERROR_RT_PARAM_INVALID, name, `${side} for kind ${kind}`, memory);
    }
  const bytes = ({ buffer, byteOffset }: ArrayBufferView): Uint8Array => new Uint8Array(buffer, byteOffset, count);
  bytes(dst).set(bytes(src));
  return SUCCESS;
}

/** `aclrtCreateStream(&stream)`. */
export function aclrtCreateStream(): AclResult & { readonly stream: AclStream } {
  const stream = Object.freeze({});
  STREAMS.add(stream);
  return { ...SUCCESS, stream };
}

/** `aclrtSynchronizeStream(stream)`: nothing is left to wait for. */
export function aclrtSynchronizeStream(stream: AclStream): AclResult {
  return STREAMS.has(stream) ? SUCCESS : deadStream(stream);
}

/** `aclrtDestroyStream(stream)`. */
export function aclrtDestroyStream(stream: AclStream): AclResult {
  return STREAMS.delete(stream) ? SUCCESS : deadStream(stream);
}

function deadStream(stream: unknown): AclResult {
  return failed(ACL_ERROR_RT_PARAM_INVALID, 'stream', 'a live stream from aclrtCreateStream', stream);
}
