/** Times operators in turns with a copy of the same bytes; the page only draws. @module */
import { openWebnn, whyNotWebnn } from '@ropewalk/onnx';
import { expose } from 'comlink';
import { BACKENDS, type OpPlan, Ropewalk, ropewalk } from 'ropewalk';
import { casesOf, copyOf, type Size } from './cases.js';

export type BackendName = 'cpu' | 'webgpu' | 'webnn';

/** Times of one call in nanoseconds. */
export interface Times {
  readonly medianNs: number;
  readonly q1Ns: number;
  readonly q3Ns: number;
}

/** A case that was timed. */
export interface Timed {
  readonly label: string;
  readonly bytes: number;
  readonly flops: number;
  readonly ours: Times;
  readonly copy: Times;
}

/** What a run says of itself. */
export type Told =
  | { readonly kind: 'opened'; readonly description: string; readonly threads: number; readonly cases: number }
  | { readonly kind: 'timed'; readonly timed: Timed }
  | { readonly kind: 'left out'; readonly label: string; readonly why: string };

/** As bench/ has them: samples of at least so long, an odd number of them, after calls that last so long. */
const SAMPLES = 7;
const SAMPLE_MS = 20;
const WARM_UP_MS = 60;

type Calls = (times: number) => Promise<number>;

/** Milliseconds of so many calls, with the wait for the last one. */
const timer =
  (rw: Ropewalk, call: () => void): Calls =>
  async (times) => {
    const start = performance.now();
    for (let i = 0; i < times; i++) call();
    await rw.finish();
    return performance.now() - start;
  };

/** Calls until compilers and caches have settled. @returns how many calls a sample takes */
async function warmUp(calls: Calls): Promise<number> {
  let spent = await calls(1);
  let one = spent;
  for (let times = 1; spent < WARM_UP_MS; times *= 2) {
    const batch = await calls(times);
    spent += batch;
    one = batch / times;
  }
  return Math.max(1, Math.ceil(SAMPLE_MS / Math.max(one, 1e-4)));
}

function summarise(samples: readonly number[]): Times {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (q: number): number => sorted[Math.round(q * (sorted.length - 1))]! * 1e6;
  return { medianNs: at(0.5), q1Ns: at(0.25), q3Ns: at(0.75) };
}

/** Times two things in turns, so that a disturbance meets both. */
async function timeTogether(both: readonly [Calls, Calls]): Promise<readonly [Times, Times]> {
  const times = [await warmUp(both[0]), await warmUp(both[1])] as const;
  const taken: readonly [number[], number[]] = [[], []];
  for (let sample = 0; sample < SAMPLES; sample++)
    for (const i of [0, 1] as const) {
      await both[i](1); // untimed: caches hold the other one's data
      taken[i].push((await both[i](times[i])) / times[i]);
    }
  return [summarise(taken[0]), summarise(taken[1])];
}

/** Thrown by a call that a backend declines. */
class Declined extends Error {}

const bench = {
  /** Why a backend cannot open in this browser, or undefined when it can. */
  async whyNot(name: BackendName): Promise<string | undefined> {
    return name === 'webnn' ? whyNotWebnn() : BACKENDS.find((entry) => entry.name === name)!.whyNot();
  },

  /** Times the cases of a size. Each gets a fresh backend, so that memory is given back. */
  async run(name: BackendName, size: Size, tell: (told: Told) => void): Promise<void> {
    const cases = casesOf(size);
    for (const [i, { label, bytes, flops, prepare }] of cases.entries()) {
      const rw = name === 'webnn' ? new Ropewalk(await openWebnn()) : await ropewalk({ backend: name });
      try {
        const { description, threads } = rw.capabilities();
        if (i === 0) tell({ kind: 'opened', description, threads, cases: cases.length });
        const run = rw.run.bind(rw);
        rw.run = (plan: OpPlan): void => {
          const why = rw.whyNot(plan);
          if (why !== undefined) throw new Declined(why);
          run(plan);
        };
        const call = prepare(rw);
        const [ours, copy] = await timeTogether([timer(rw, call), timer(rw, copyOf(rw, bytes))]);
        tell({ kind: 'timed', timed: { label, bytes, flops, ours, copy } });
      } catch (error) {
        tell({ kind: 'left out', label, why: error instanceof Error ? error.message : String(error) });
      } finally {
        rw.dispose();
      }
    }
  },
};

/** What the page calls. */
export type Bench = typeof bench;

expose(bench);
