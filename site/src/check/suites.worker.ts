/** Runs conformance cases on a backend of this browser. The page only shows the results. @module */
import { openWebnn, whyNotWebnn } from '@ropewalk/onnx';
import {
  type CaseVerdict,
  type ConformanceCase,
  extendedCases,
  goldenOperatorSuite,
  goldenRopeSuite,
  publishedCases,
  runCases,
  vectorCases,
} from '@ropewalk/oracle';
import { BACKENDS, type Backend, type OpPlan, openBackend, type Runner } from 'ropewalk';
import { breath } from '../shared/breath.js';
import { fetchSuite, suiteNames } from '../shared/vectors.js';

/** The backends that the page offers, in the order of its table. */
export type BackendName = 'cpu' | 'webgpu' | 'webnn' | 'reference';

/** A case that ended. */
export interface Ended {
  readonly suite: string;
  readonly label: string;
  readonly verdict: CaseVerdict;
  /** The operator that ran. A case whose call must be refused before anything runs has none. */
  readonly op?: string;
  /** The element type of its first tensor. */
  readonly dtype?: string;
}

/** The messages of a run. */
export type Told =
  | {
      readonly kind: 'opened';
      readonly description: string;
      readonly notTaken: readonly string[];
      readonly total: number;
    }
  | { readonly kind: 'ended'; readonly results: readonly Ended[] };

/** The options of a run. */
export interface Asked {
  /** The site's root. */
  readonly base: string;
  readonly backend: BackendName;
  /** Only cases whose line or suite contains this text run. An empty text selects all cases. */
  readonly filter: string;
}

/** Returns the element type of the tensor that an operator computes on. */
function dtypeOf(plan: OpPlan): string {
  if (plan.op === 'rope') return plan.parts[0]!.x.dtype;
  const { x, q, a, values, logits, gate, out } = plan as unknown as Readonly<Record<string, { dtype?: string }>>;
  return [x, q, a, values, logits, gate, out].find((one) => typeof one?.dtype === 'string')?.dtype ?? '';
}

/** Lists every case of every suite, the same as `ropewalk check`. */
async function allCases(base: string): Promise<ConformanceCase[]> {
  const names = await suiteNames(base);
  const folders = await Promise.all(names.map((name) => fetchSuite(base, name)));
  return [
    ...publishedCases(),
    ...extendedCases(),
    ...goldenRopeSuite(),
    ...goldenOperatorSuite(),
    ...folders.flatMap((folder) => vectorCases(folder)),
  ];
}

/** The backend webgpu leaves f64 to the reference, so that a right result says nothing about the GPU. */
const NO_F64: CaseVerdict = { status: 'not_supported', reason: 'no GPU computes in f64; the reference did' };

let paused = false;

const suites = {
  /** Returns the reason why a backend cannot open in this browser, or undefined when it can. */
  async whyNot(name: BackendName): Promise<string | undefined> {
    return name === 'webnn' ? whyNotWebnn() : BACKENDS.find((entry) => entry.name === name)!.whyNot();
  },

  pause(on: boolean): void {
    paused = on;
  },

  /**
   * Runs cases to the end.
   *
   * @param tell - is called about ten times a second
   * @throws when the device is lost; the current case and the later ones then have no result
   */
  async run({ base, backend: name, filter }: Asked, tell: (told: Told) => void): Promise<void> {
    const needle = filter.toLowerCase();
    const cases = (await allCases(base)).filter(
      ({ suite, label }) => suite.toLowerCase() === needle || label.toLowerCase().includes(needle),
    );
    const backend: Backend = name === 'webnn' ? await openWebnn() : await openBackend(name);
    const { description, notTaken } = backend.capabilities();
    tell({ kind: 'opened', description, notTaken, total: cases.length });
    let plan: OpPlan | undefined;
    const watched: Runner = {
      name: backend.name,
      allocate: (dtype, shape) => backend.allocate(dtype, shape),
      whyNot: (asked) => {
        plan ??= asked; // the first call of a case shows what it tests
        return backend.whyNot(asked);
      },
      run: (asked) => {
        plan ??= asked;
        backend.run(asked);
      },
      finish: () => backend.finish(),
    };
    let results: Ended[] = [];
    let told = performance.now();
    try {
      for await (const { suite, label, verdict } of runCases(cases, watched)) {
        const lost =
          verdict.status === 'fail' && /the device (was lost|does not answer) \(.*?\)\./s.exec(verdict.detail);
        if (lost)
          throw new Error(`${label} and the cases after it did not run: ${lost[0]} Load the page again to go on.`);
        const tests = plan && { op: plan.op, dtype: dtypeOf(plan) };
        const isOnHost = name === 'webgpu' && tests?.dtype === 'f64' && verdict.status === 'ok';
        results.push({ suite, label, verdict: isOnHost ? NO_F64 : verdict, ...tests });
        plan = undefined;
        if (performance.now() - told < 100) continue;
        tell({ kind: 'ended', results });
        results = [];
        await breath();
        while (paused) await new Promise((done) => setTimeout(done, 100));
        told = performance.now();
      }
    } finally {
      tell({ kind: 'ended', results });
      backend.dispose();
    }
  },
};

/** The functions that the page calls. */
export type Suites = typeof suites;

export default suites;
