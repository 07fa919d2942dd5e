/**
 * Vectors of calls that take their tensors by name: those of aclnn, flash-attn and ONNX Runtime.
 *
 * A case names its call, the arguments and the tensors. The outputs are compared with torch's float64 results, or with
 * those of ONNX Runtime.
 *
 * @module
 */
import { cann, flashAttn, onnx } from '@ropewalk/dialects';
import { isFloat, type Runner, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { readDtype, readNpy, type VectorFolder } from '../folder.js';
import { allOf, judgeClose } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, intercept, roundsEachStep } from '../runner.js';
import { rotationErrorBound } from '../tolerance.js';

/** A case's arguments. */
interface Arguments {
  readonly plain: Readonly<Record<string, unknown>>;
  readonly tensors: Readonly<Record<string, Tensor>>;
  /** Returns a tensor, or fails where the case does not have it. */
  of(name: string): never;
}

/** Runs a call, and returns new outputs by their names. A call in place returns none, as its outputs are inputs. */
type Call = (rw: Runner, given: Arguments) => unknown;

/** The calls by their names. Each refuses values that it does not take. */
const CALLS: Readonly<Record<string, Call>> = {
  aclnnRotaryPositionEmbedding: (rw, { of, plain }) => ({
    out: cann.aclnnRotaryPositionEmbedding(rw, of('x'), of('cos'), of('sin'), plain.mode as number),
  }),
  aclnnRotaryPositionEmbeddingGrad: (rw, { of, plain }) =>
    cann.aclnnRotaryPositionEmbeddingGrad(rw, of('dy'), of('cos'), of('sin'), of('xOptional'), plain.mode as number),
  aclnnApplyRotaryPosEmb: (rw, { of, plain }) =>
    cann.aclnnApplyRotaryPosEmb(rw, of('queryRef'), of('keyRef'), of('cos'), of('sin'), plain.layout as number),
  aclnnApplyRotaryPosEmbV2: (rw, { of, plain }) => {
    const [layout, mode] = [plain.layout as number, plain.rotaryMode as 'half'];
    return cann.aclnnApplyRotaryPosEmbV2(rw, of('queryRef'), of('keyRef'), of('cos'), of('sin'), layout, mode);
  },
  aclnnApplyRotaryPosEmbGrad: (rw, given) => cann.aclnnApplyRotaryPosEmbGrad(rw, all(given)),
  aclnnInplacePartialRotaryMul: (rw, { of, plain }) => {
    const [mode, slice] = [plain.rotary_mode as number, plain.partialSlice as number[]];
    return cann.aclnnInplacePartialRotaryMul(rw, of('xRef'), of('cos'), of('sin'), mode, slice);
  },
  aclnnInplacePartialRotaryMulGrad: (rw, { of, plain }) => {
    const [mode, slice] = [plain.rotaryMode as number, plain.partialSlice as number[]];
    return cann.aclnnInplacePartialRotaryMulGrad(rw, of('dyRef'), of('cos'), of('sin'), mode, slice);
  },
  aclnnKvRmsNormRopeCache: (rw, given) => cann.aclnnKvRmsNormRopeCache(rw, all(given)),
  aclnnKvRmsNormRopeCacheV2: (rw, given) => cann.aclnnKvRmsNormRopeCacheV2(rw, all(given)),
  aclnnRopeWithSinCosCache: (rw, given) => cann.aclnnRopeWithSinCosCache(rw, all(given)),
  aclnnRopeWithSinCosCacheV2: (rw, given) => cann.aclnnRopeWithSinCosCacheV2(rw, all(given)),
  applyRotary: (rw, { of, plain, tensors }) => {
    const { x, cos, sin, ...offsets } = tensors;
    return { out: flashAttn.applyRotary(rw, of('x'), of('cos'), of('sin'), { ...plain, ...offsets } as object) };
  },
  'com.microsoft.RotaryEmbedding': (rw, { plain, tensors }) => ({
    output: onnx.contribRotaryEmbedding(rw, tensors as never, plain),
  }),
  'com.microsoft.MRotaryEmbedding': (rw, { plain, tensors }) => ({
    output: onnx.mRotaryEmbedding(rw, tensors as never, plain as never),
  }),
  'com.microsoft.GemmaRotaryEmbedding': (rw, { tensors }) => onnx.gemmaRotaryEmbedding(rw, tensors as never),
};

const all = ({ plain, tensors }: Arguments): never => ({ ...plain, ...tensors }) as never;

/** The suites of calls. The field `suite` of a manifest starts with one of them. */
export const CALL_SUITES = ['cann', 'flash-attn', 'onnx-contrib'] as const;
type CallSuite = (typeof CALL_SUITES)[number];

/** Makes the cases of a folder of calls. */
export function callVectorCases(folder: VectorFolder, manifest: Fields, suite: CallSuite): ConformanceCase[] {
  return manifest.objects('cases').map((f): ConformanceCase => {
    const inputs = f.object('inputs');
    const shapes = inputs.keys().map((key) => [key, inputs.object(key).integers('shape')]);
    const label = formatLabel(f.text('call'), { vector: `${suite}/${f.text('id')}`, ...Object.fromEntries(shapes) });
    return { suite, label, run: (runner) => runCase(folder, f, runner) };
  });
}

async function runCase(folder: VectorFolder, f: Fields, runner: Runner): Promise<CaseVerdict> {
  const name = f.text('call');
  const call = Object.hasOwn(CALLS, name)
    ? CALLS[name]!
    : refuse('FORMAT', f.path('call'), Object.keys(CALLS).join(', '), name);
  const [inputs, outputs] = [f.object('inputs'), f.object('outputs')];
  const tensors: Record<string, Tensor> = {};
  for (const key of inputs.keys()) {
    const g = inputs.object(key);
    tensors[key] = readNpy(folder, g.text('file'), readDtype(g));
  }
  const args = f.object('args');
  const declined: string[] = [];
  // A plan that the backend declines is no failure.
  const asking = intercept(runner, (plan) => {
    const reason = runner.whyNot(plan);
    if (reason === undefined) runner.run(plan);
    else declined.push(reason);
  });
  const made = (call(asking, {
    plain: Object.fromEntries(args.keys().map((key) => [key, args.raw(key)])),
    tensors,
    of: (key) => (tensors[key] ?? fail('FORMAT', f.where, `the case has no tensor ${key}`)) as never,
  }) ?? {}) as Readonly<Record<string, Tensor>>;
  await runner.finish();
  if (declined.length > 0) return { status: 'not_supported', reason: declined[0]! };
  const verdicts: CaseVerdict[] = [];
  for (const key of outputs.keys()) {
    const g = outputs.object(key);
    const got = made[key] ?? tensors[key] ?? fail('FORMAT', g.where, `the call writes no ${key}`);
    const want = await readNpy(folder, g.text('expected'), 'f64').readNumbers();
    const [roundings, magnitude] = [g.integer('roundings'), g.number('magnitude')];
    const dtype = readDtype(g);
    if (got.dtype !== dtype) return { status: 'fail', detail: `[${key}] dtype ${got.dtype}, expected ${dtype}` };
    // Outputs of 8 bits are compared exactly.
    const bound = (i: number): number =>
      isFloat(dtype) ? rotationErrorBound(dtype, want[i]!, magnitude, roundings, roundsEachStep(runner, dtype)) : 0;
    verdicts.push(judgeClose(`${name} ${key}`, await got.readNumbers(), want, bound, dtype));
  }
  return allOf(...verdicts);
}
