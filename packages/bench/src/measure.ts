/**
 * Times calls on a shared, noisy machine: all contenders of a case take turns, sample by sample, so that a disturbance
 * meets them alike.
 *
 * @module
 */

/** Something that can be called again and again. */
export interface Contender {
  readonly name: string;
  /** Makes one call. If it returns a promise, the promise is awaited. */
  call(): unknown;
  /** Makes `times` calls in a loop of its own. If present, it is used instead of `call`. */
  repeat?(times: number): void;
  /**
   * Queues `times` calls and waits for all of them together. It may return its own times, such as a device's.
   */
  queue?(times: number): Promise<Clocks | undefined>;
  /** Returns a number that depends on the result, so that no compiler may drop the work. */
  sink?(): number;
}

/**
 * Makes a contender whose calls are queued one after the other and waited for together.
 *
 * @param finish - resolves once everything that was queued has been computed
 */
export function queued(contender: Contender, finish: () => Promise<unknown>): Contender {
  return {
    ...contender,
    async queue(times): Promise<Clocks> {
      const first = performance.now();
      for (let n = 0; n < times; n++) contender.call();
      const hostNs = (performance.now() - first) * 1e6;
      await finish();
      return { wallNs: (performance.now() - first) * 1e6, hostNs };
    },
  };
}

/** A copy in JavaScript that reads half of the bytes and writes the other half. */
export function plainCopy(bytes: number): Contender {
  const [from, to] = [new Uint8Array(Math.ceil(bytes / 2)).fill(1), new Uint8Array(Math.ceil(bytes / 2))];
  return { name: 'copy', call: () => to.set(from), sink: () => to[0]! };
}

/** The times of several calls together whose work a device does, in nanoseconds. */
export interface Clocks {
  /** The time from the first call until the device has finished. */
  readonly wallNs: number;
  /** The time from the first call until the last one has returned: the work of the host. */
  readonly hostNs: number;
  /** The time by the device's own clock. */
  readonly deviceNs?: number;
}

/** The length of a measurement. */
export interface Effort {
  /** The number of timed samples of each contender. */
  readonly samples: number;
  /** The least length of a sample, which repeats the call. */
  readonly sampleMs: number;
  /** The least length of the untimed calls of each contender before the first sample. */
  readonly warmUpMs: number;
  /** The pause before each sample, in which the threads of the previous contender stop spinning. */
  readonly pauseMs: number;
}

/** The effort of a full run: 11 samples, so that the median and the quartiles are samples themselves. */
export const FULL_EFFORT: Effort = { samples: 11, sampleMs: 20, warmUpMs: 60, pauseMs: 0 };
/** The effort of `--quick`: each contender runs once, and the times mean nothing. */
export const QUICK_EFFORT: Effort = { samples: 1, sampleMs: 0, warmUpMs: 0, pauseMs: 0 };

/** The samples of one contender. All times are for one call; they are the device's own if it has a clock. */
export interface Timing {
  readonly medianNs: number;
  readonly minNs: number;
  /** The first quartile. The distance of the quartiles is the spread. */
  readonly q1Ns: number;
  readonly q3Ns: number;
  readonly samples: number;
  readonly callsPerSample: number;
  /** The medians of {@link Clocks}, when a device computes. */
  readonly wallNs?: number;
  readonly hostNs?: number;
}

let sunk = 0;

/** The sum of everything the contenders produced: printed at the end, so that their work has a reader. */
export function sinkTotal(): number {
  return sunk;
}

/**
 * Times contenders in turns.
 *
 * @param contenders - called one after the other, never at the same time
 * @returns the timing of each, by name
 */
export async function measureTogether(contenders: readonly Contender[], effort: Effort): Promise<Map<string, Timing>> {
  const calls = new Map<string, number>();
  const taken = new Map<string, Sample[]>();
  for (const contender of contenders) {
    const callMs = await warmUp(contender, effort);
    calls.set(contender.name, Math.max(1, Math.ceil(effort.sampleMs / Math.max(callMs, 1e-6))));
    taken.set(contender.name, []);
  }
  for (let sample = 0; sample < effort.samples; sample++) {
    for (const contender of contenders) {
      const times = calls.get(contender.name)!;
      if (effort.pauseMs > 0) await new Promise((resume) => setTimeout(resume, effort.pauseMs));
      // One untimed call, so that no contender pays for caches full of the previous one's data.
      if (effort.sampleMs > 0) await timeCalls(contender, 1);
      taken.get(contender.name)!.push(await timeCalls(contender, times));
      sunk += contender.sink?.() ?? 0;
    }
  }
  return new Map(contenders.map(({ name }) => [name, summarize(taken.get(name)!, calls.get(name)!)]));
}

/** Calls until compilers and caches have settled. @returns about how many milliseconds one call takes */
async function warmUp(contender: Contender, effort: Effort): Promise<number> {
  let spentMs = (await timeCalls(contender, 1)).wallNs / 1e6;
  let callMs = spentMs;
  for (let times = 1; spentMs < effort.warmUpMs; times *= 2) {
    const batchMs = (await timeCalls(contender, times)).wallNs / 1e6;
    spentMs += batchMs;
    callMs = batchMs / times;
  }
  return callMs;
}

/** The times of all calls of one sample together. */
type Sample = Pick<Clocks, 'wallNs'> & Partial<Clocks>;

async function timeCalls(contender: Contender, times: number): Promise<Sample> {
  const first = performance.now();
  const sample = (): Sample => ({ wallNs: (performance.now() - first) * 1e6 });
  if (contender.queue) return (await contender.queue(times)) ?? sample();
  if (contender.repeat) {
    contender.repeat(times);
    return sample();
  }
  const pending = contender.call();
  if (pending instanceof Promise) {
    await pending;
    for (let n = 1; n < times; n++) await contender.call();
  } else {
    for (let n = 1; n < times; n++) contender.call();
  }
  return sample();
}

function summarize(samples: readonly Sample[], callsPerSample: number): Timing {
  const sorted = (numbers: readonly number[]): number[] =>
    numbers.map((ns) => ns / callsPerSample).sort((a, b) => a - b);
  const wall = sorted(samples.map(({ wallNs }) => wallNs));
  const host = samples.flatMap(({ hostNs }) => hostNs ?? []);
  const device = samples.flatMap(({ deviceNs }) => deviceNs ?? []);
  const times = device.length === samples.length ? sorted(device) : wall;
  return {
    medianNs: quantile(times, 0.5),
    minNs: times[0]!,
    q1Ns: quantile(times, 0.25),
    q3Ns: quantile(times, 0.75),
    samples: times.length,
    callsPerSample,
    ...(host.length > 0 && { wallNs: quantile(wall, 0.5), hostNs: quantile(sorted(host), 0.5) }),
  };
}

/** Returns a quantile of sorted numbers, linear between neighbours. */
function quantile(sorted: readonly number[], share: number): number {
  const at = (sorted.length - 1) * share;
  const low = Math.floor(at);
  return sorted[low]! + (at - low) * ((sorted[low + 1] ?? sorted[low]!) - sorted[low]!);
}
