/**
 * The time of a kernel: what verify asks of a program under test, and what it makes of the answer.
 *
 * @module
 */
import { sizeBytes, type Tensor } from 'ropewalk';
import type { GoldenCase } from '../golden/case.js';

/** What a program is asked for. */
export interface PerfRequest {
  /** Calls to time, after those that warm up. */
  readonly repeats: number;
  /** That the kernel must move at least: what it reads and what it writes, each once. */
  readonly bytes: number;
}

/** What a program measured: seconds of each call, and of a copy that moved as many bytes, right after it. */
export interface PerfTimes {
  readonly seconds: readonly number[];
  readonly copySeconds: readonly number[];
}

/** The time of a kernel on one case. Seconds are medians. */
export interface KernelPerf extends PerfRequest {
  readonly seconds: number;
  readonly gigabytesPerSecond: number;
  readonly copySeconds: number;
  readonly copyGigabytesPerSecond: number;
  /** The kernel's seconds over the copy's: 1 where only memory limits it. */
  readonly ratio: number;
}

const REPEATS = 30;

/** Asks for the time of a case. */
export function perfRequest({ inputs, outputs, rope }: GoldenCase): PerfRequest {
  const bytesOf = ({ size, dtype }: Tensor): number => size * sizeBytes(dtype);
  const all = [...inputs.values(), ...outputs.values()].reduce((sum, tensor) => sum + bytesOf(tensor), 0);
  // Of a cache only the rows of the tokens are written, and what it held is not read.
  const spared = (rope?.parts ?? []).filter(({ cache }) => cache !== undefined);
  const rest = spared.reduce((sum, { x, out, cache }) => {
    const written = inputs.get(x)!.size * sizeBytes(outputs.get(out)!.dtype);
    return sum + bytesOf(inputs.get(cache!)!) + bytesOf(outputs.get(out)!) - written;
  }, 0);
  return { repeats: REPEATS, bytes: all - rest };
}

/** Sums up an answer. */
export function kernelPerf(request: PerfRequest, times: PerfTimes): KernelPerf {
  const [seconds, copySeconds] = [median(times.seconds), median(times.copySeconds)];
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
