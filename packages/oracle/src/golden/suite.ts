/** Golden cases as conformance cases: the built-in suites, and folders that `ropewalk vectors` wrote. @module */
import { type HostArray, isFloat, type Runner, type Tensor } from 'ropewalk';
import { readOptions } from 'ropewalk/internal';
import { referenceRunner } from 'ropewalk/reference';
import { type VectorFolder, whereOf } from '../folder.js';
import { asFormatError } from '../host.js';
import { allOf, type ExpectedOutput, judgeOutput, within } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, declined } from '../runner.js';
import { exactWithBounds, storedSlack } from './bounds.js';
import { bindGolden, type GoldenQuestion } from './case.js';
import type { GoldenChoice } from './choose.js';
import { GOLDEN_OPERATORS, goldenOperatorQuestion } from './operators.js';
import { goldenOf, type OnnxLoader } from './read.js';
import { GOLDEN_ROPE, GOLDEN_SEED, goldenRopeQuestion } from './rope.js';

/** Makes the cases of a folder. Each is judged by the exact results of its inputs, and by the outputs in the folder. */
export function goldenVectorCases(folder: VectorFolder, onnx?: OnnxLoader): ConformanceCase[] {
  const golden = goldenOf(folder, onnx);
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
      const where = `${whereOf(folder)}/${entry.id}`;
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
 * Makes the golden RoPE cases. Each element of an output is judged against the float64 reference on the same inputs.
 * The default seed is `GOLDEN_SEED`.
 */
export function goldenRopeSuite(choice: Pick<GoldenChoice, 'seed'> = {}): ConformanceCase[] {
  const { seed = GOLDEN_SEED } = readOptions(choice, 'suite: choices', { seed: true });
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
      direction: d.direction === 'backward' ? d.direction : undefined,
      seed,
    }),
    run: (runner) => judgeGolden(goldenRopeQuestion(d, seed), runner),
  }));
}

/** Makes the golden cases of the operators beside RoPE, which are judged as those of {@link goldenRopeSuite} are. */
export function goldenOperatorSuite(choice: Pick<GoldenChoice, 'seed'> = {}): ConformanceCase[] {
  const { seed = GOLDEN_SEED } = readOptions(choice, 'suite: choices', { seed: true });
  return GOLDEN_OPERATORS.map((d) => ({
    suite: 'golden',
    label: formatLabel('GOLDEN', { case: d.id, op: d.op, seed }),
    run: (runner) => judgeGolden(goldenOperatorQuestion(d, seed), runner),
  }));
}

/** Judges each element by its bound. The outputs `stored` in a file are judged too, with bounds for their rounding. */
export async function judgeGolden(
  c: GoldenQuestion,
  runner: Runner,
  stored?: ReadonlyMap<string, Tensor>,
): Promise<CaseVerdict> {
  const { plan, outputs } = bindGolden(c, runner);
  const exact = exactWithBounds(c);
  const notRun = declined(runner, plan);
  if (notRun) return notRun;
  await runner.finish();
  const verdicts: CaseVerdict[] = [];
  for (const [name, tensor] of outputs) {
    const want = exact.get(name)!;
    const got = await tensor.read();
    const file = stored?.get(name);
    const label = `${c.op}.${name}`;
    verdicts.push(judgeOutput(label, got, want));
    if (file) verdicts.push(judgeOutput(`${label}, as stored`, got, asStored(want, file)));
  }
  return allOf(...verdicts);
}

/** Replaces an expected output's values by those of a file. */
function asStored(exact: ExpectedOutput, file: Tensor): ExpectedOutput {
  const { dtype, bounds } = exact;
  if (!bounds || !isFloat(dtype)) return { ...exact, values: file.read() as HostArray };
  const exactValues = exact.values as Float64Array;
  // An infinity in the file stands for the exact value that rounds to it.
  const values = (file.readNumbers() as Float64Array).map((value, n) =>
    Number.isFinite(value) || !within(value, exactValues[n]!, bounds[n]!, dtype) ? value : exactValues[n]!,
  );
  return { ...exact, values, bounds: bounds.map((bound, n) => bound && bound + storedSlack(dtype, values[n]!)) };
}
