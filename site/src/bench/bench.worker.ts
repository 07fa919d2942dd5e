/** Times operators in turns with a copy of the same bytes. The page draws what this worker measures. @module */
import {
  type CaseResult,
  type Contender,
  FULL_EFFORT,
  openLibrary,
  pageCases,
  plainCopy,
  queued,
  runCases,
} from '@ropewalk/bench';
import { openWebnn, whyNotWebnn } from '@ropewalk/onnx';
import { BACKENDS, type OpPlan, Ropewalk } from 'ropewalk';

export type BackendName = 'cpu' | 'webgpu' | 'webnn';

/** `small` runs in a second on a GPU in software; `full` has the shapes of a model of 7 B parameters. */
export type Size = 'small' | 'full';

/** A case that was timed. */
export type Timed = Pick<CaseResult, 'label' | 'bytes' | 'flops' | 'ours' | 'copy'>;

/** The messages of a run. */
export type Told =
  | { readonly kind: 'opened'; readonly description: string; readonly threads: number; readonly cases: number }
  | { readonly kind: 'timed'; readonly timed: Timed }
  | { readonly kind: 'left out'; readonly label: string; readonly why: string };

const EFFORT = { ...FULL_EFFORT, samples: 7 };

/** Opens a backend that refuses calls it would leave to another backend, so that a case times only this backend. */
async function open(name: BackendName): Promise<Ropewalk> {
  const rw = name === 'webnn' ? new Ropewalk(await openWebnn()) : await openLibrary(name);
  const run = rw.run.bind(rw);
  rw.run = (plan: OpPlan): void => {
    const why = rw.whyNot(plan);
    if (why !== undefined) throw new Error(why);
    run(plan);
  };
  return rw;
}

/** Makes a copy that moves as many bytes as a case, on the device that computes. */
function copyOn(rw: Ropewalk, bytes: number): Contender {
  if (rw.name === 'cpu') return plainCopy(bytes);
  const x = rw.upload(Float32Array.from({ length: Math.max(1, Math.round(bytes / 8)) }, (_, n) => n));
  const out = rw.allocate('f32', x.shape);
  return queued({ name: 'copy', call: () => rw.rearrange(x, { out }) }, () => rw.finish());
}

const bench = {
  /** Returns the reason why a backend cannot open in this browser, or undefined when it can. */
  async whyNot(name: BackendName): Promise<string | undefined> {
    return name === 'webnn' ? whyNotWebnn() : BACKENDS.find((entry) => entry.name === name)!.whyNot();
  },

  /** Times the cases of a size. Each case gets a new backend, whose memory is freed afterwards. */
  async run(name: BackendName, size: Size, tell: (told: Told) => void): Promise<void> {
    const cases = pageCases(size === 'small');
    const oracle = await openLibrary('reference');
    for (const [i, entry] of cases.entries()) {
      const rw = await open(name);
      try {
        const { description, threads } = rw.capabilities();
        if (i === 0) tell({ kind: 'opened', description, threads, cases: cases.length });
        const { results, leftOut } = await runCases(
          {
            threads,
            libraries: { rw, oracle },
            effort: EFFORT,
            timed: (ours) => (name === 'cpu' ? ours : queued(ours, () => rw.finish())),
            copy: (bytes) => copyOn(rw, bytes),
          },
          [entry],
          () => {},
        );
        for (const { label, bytes, flops, ours, copy } of results)
          tell({ kind: 'timed', timed: { label, bytes, flops, ours, copy } });
        for (const { label, reason } of leftOut) tell({ kind: 'left out', label, why: reason });
      } finally {
        rw.dispose();
      }
    }
  },
};

/** The functions that the page calls. */
export type Bench = typeof bench;

export default bench;
