/** The time of a kernel, which a program under test measures. @module */
import { sizeBytes, type Tensor } from 'ropewalk';
import type { GoldenCase } from '../golden/case.js';

/** The request for times that a program gets. */
export interface PerfRequest {
  /** The number of calls to time, after those that warm up. */
  readonly repeats: number;
  /** The bytes that the kernel has to read and write at least, each once. */
  readonly bytes: number;
}

/** The time of a kernel on one case. The seconds are medians. */
export interface KernelPerf extends PerfRequest {
  readonly seconds: number;
  readonly gigabytesPerSecond: number;
  readonly copySeconds: number;
  readonly copyGigabytesPerSecond: number;
  /** The kernel's seconds over the copy's: 1 where only memory limits it. */
  readonly ratio: number;
}

const REPEATS = 30;

/** Makes the request for the time of a case. */
export function perfRequest({ inputs, outputs, rope }: GoldenCase): PerfRequest {
  const bytesOf = ({ size, dtype }: Tensor): number => size * sizeBytes(dtype);
  const all = [...inputs.values(), ...outputs.values()].reduce((sum, tensor) => sum + bytesOf(tensor), 0);
  // Only the rows of the tokens are written to a cache, and its content is not read.
  const spared = (rope?.parts ?? []).filter(({ cache }) => cache !== undefined);
  const rest = spared.reduce((sum, { x, out, cache }) => {
    const written = inputs.get(x)!.size * sizeBytes(outputs.get(out)!.dtype);
    return sum + bytesOf(inputs.get(cache!)!) + bytesOf(outputs.get(out)!) - written;
  }, 0);
  return { repeats: REPEATS, bytes: all - rest };
}

/**
 * Sums up what a program measured.
 *
 * @param times - the seconds of each call
 * @param copies - the seconds of a copy of as many bytes, right after each call
 */
export function kernelPerf(request: PerfRequest, times: readonly number[], copies: readonly number[]): KernelPerf {
  const [seconds, copySeconds] = [median(times), median(copies)];
  const rate = (s: number): number => request.bytes / s / 1e9;
  return {
    ...request,
    seconds,
    gigabytesPerSecond: rate(seconds),
    copySeconds,
    copyGigabytesPerSecond: rate(copySeconds),
    ratio: seconds / copySeconds,
  };
}

function median(list: readonly number[]): number {
  const sorted = list.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
