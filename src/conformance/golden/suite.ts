/**
 * Golden cases as conformance cases: the built-in suites, folders that `ropewalk vectors` wrote, and judging one.
 *
 * @module
 */
import { type Dtype, type HostArray, isFloat, loadNumber } from '../../core/dtypes.js';
import type { Tensor } from '../../core/tensor.js';
import type { Runner } from '../../ops/runner.js';
import { referenceRunner } from '../../reference/index.js';
import type { VectorFolder } from '../folder.js';
import { allOf, judgeBits, judgeClose, within } from '../judge.js';
import { formatLabel } from '../label.js';
import type { ConformanceCase, Verdict } from '../runner.js';
import { type ExactOutput, exactWithBounds, storedSlack } from './bounds.js';
import { bindGolden, type GoldenQuestion } from './case.js';
import { GOLDEN_OPERATORS, goldenOperatorQuestion } from './operators.js';
import { asFormatError, openGolden } from './read.js';
import { GOLDEN_ROPE, GOLDEN_SEED, type GoldenChoices, goldenRopeQuestion } from './rope.js';

/**
 * Makes the cases of a golden folder. Each is judged twice: by the exact result of its inputs, and by the outputs that the folder holds.
 *
 * @param folder - with the manifest.json that `ropewalk vectors` wrote
 * @throws {RopewalkError} FORMAT when the manifest is malformed
 */
export function goldenVectorCases(folder: VectorFolder): ConformanceCase[] {
  const golden = openGolden(folder);
  return golden.cases.map((entry) => ({
    suite: 'golden',
    label: formatLabel('GOLDEN', {
      vector: `${folder.name}/${entry.id}`,
      op: entry.op,
      type: entry.inputs[0]?.dtype ?? '',
      shape: entry.inputs[0]?.shape ?? [],
    }),
    async run(runner) {
      const c = await golden.load(entry);
      const where = `vectors/${folder.name}/${entry.id}`;
      try {
        bindGolden(c, referenceRunner());
      } catch (error) {
        throw asFormatError(error, where);
      }
      return judgeGolden(c, runner, c.outputs);
    },
  }));
}

/**
 * The golden RoPE cases as a suite: each on a runner against the float64 reference on the same inputs, element by element.
 *
 * @param choices - the seed
 */
export function goldenRopeSuite(choices: GoldenChoices = {}): ConformanceCase[] {
  return GOLDEN_ROPE.map((d) => ({
    suite: 'golden',
    label: formatLabel('GOLDEN', {
      case: d.id,
      op: 'rope',
      type: d.dtype,
      head_dim: d.spec.headDim,
      rotary_dim: d.spec.rotaryDim ?? d.spec.headDim,
      pairing: d.spec.pairing,
      scaling: d.spec.scaling?.kind ?? 'none',
      ...(d.direction === 'backward' ? { direction: 'backward' } : {}),
      seed: choices.seed ?? GOLDEN_SEED,
    }),
    run: (runner) => judgeGolden(goldenRopeQuestion(d, choices), runner),
  }));
}

/**
 * The golden cases of the other eight operators as a suite, judged as {@link goldenRopeSuite} judges.
 *
 * @param choices - the seed
 */
export function goldenOperatorSuite(choices: GoldenChoices = {}): ConformanceCase[] {
  return GOLDEN_OPERATORS.map((d) => ({
    suite: 'golden',
    label: formatLabel('GOLDEN', { case: d.id, op: d.op, seed: choices.seed ?? GOLDEN_SEED }),
    run: (runner) => judgeGolden(goldenOperatorQuestion(d, choices), runner),
  }));
}

/**
 * Runs a case on a runner and judges every output, each element by its own bound.
 *
 * @param c - inputs and attributes
 * @param runner - the accused
 * @param stored - expected outputs from a file, judged as well: they were rounded once more
 */
export async function judgeGolden(
  c: GoldenQuestion,
  runner: Runner,
  stored?: ReadonlyMap<string, Tensor>,
): Promise<Verdict> {
  const { plan, outputs } = bindGolden(c, runner);
  const reason = runner.whyNot(plan);
  if (reason !== undefined) return { status: 'not_supported', reason };
  const exact = exactWithBounds(c);
  runner.run(plan);
  await runner.finish();
  const verdicts: Verdict[] = [];
  for (const [name, tensor] of outputs) {
    const want = exact.get(name)!;
    const got = await tensor.read();
    const file = stored?.get(name);
    verdicts.push(judgeOutput(`${c.op}.${name}`, got, want));
    if (file) verdicts.push(judgeStored(`${c.op}.${name}, as stored`, got, want, file));
  }
  return allOf(...verdicts);
}

/**
 * Judges one output.
 *
 * @param label - names it in the verdict
 * @param got - the elements that came, in the output's dtype
 * @param want - from {@link exactWithBounds}
 */
export function judgeOutput(label: string, got: HostArray, want: ExactOutput): Verdict {
  const { bounds, dtype } = want;
  if (!bounds) return judgeBits(label, got, want.values);
  const values = numbers(got, dtype);
  return judgeClose(
    label,
    values,
    settled(want.values as Float64Array, values, want.unsettled),
    (n) => bounds[n]!,
    dtype,
  );
}

function judgeStored(label: string, got: HostArray, want: ExactOutput, file: Tensor): Verdict {
  const stored = file.read() as HostArray;
  if (!want.bounds || !isFloat(want.dtype)) return judgeBits(label, got, stored);
  const { bounds } = want;
  const dtype = want.dtype;
  const exact = want.values as Float64Array;
  // An infinity that the exact value rounds to stands for it.
  const values = numbers(stored, dtype).map((value, n) =>
    Number.isFinite(value) || !within(value, exact[n]!, bounds[n]!, dtype) ? value : exact[n]!,
  );
  const limit = (n: number): number => (bounds[n] === 0 ? 0 : bounds[n]! + storedSlack(dtype, values[n]!));
  const came = numbers(got, dtype);
  return judgeClose(label, came, settled(values, came, want.unsettled), limit, dtype);
}

/**
 * What came, where it is not finite and an element is {@link ExactOutput.unsettled}; else what was expected.
 *
 * @param want - what was expected
 * @param got - what came, as many elements
 * @param unsettled - indices
 */
export function settled(want: Float64Array, got: ArrayLike<number>, unsettled: ReadonlySet<number>): Float64Array {
  return unsettled.size === 0
    ? want
    : want.map((value, n) => (unsettled.has(n) && !Number.isFinite(got[n]) ? got[n]! : value));
}

function numbers(data: HostArray, dtype: Dtype): Float64Array {
  return Float64Array.from({ length: data.length }, (_, n) => loadNumber(data, dtype, n));
}
