/** Vectors of ONNX RotaryEmbedding-23, from the standard's node tests and its reference implementation. @module */
import { onnx } from '@ropewalk/dialects';
import type { Runner, Tensor } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { didYouMean, type Fields, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { readNpy, readTolerance, type VectorFolder } from '../folder.js';
import { allOf, judgeClose, type Tolerance } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, declined } from '../runner.js';
import { rotationErrorBound } from '../tolerance.js';

const DTYPES = { float32: 'f32', float16: 'f16', bfloat16: 'bf16' } as const;

/** Makes the cases of a folder of ONNX vectors. */
export function onnxVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  const official = manifest.object('official_tolerance');
  const tolerance = readTolerance(official);
  return manifest.objects('cases').map((fields) => ({
    suite: 'onnx',
    label: labelOf(fields),
    run: (runner: Runner) => runCase(folder, fields, tolerance, runner),
  }));
}

function attributesOf(f: Fields) {
  const attrs = f.object('attrs');
  const names = ['interleaved', 'rotary_embedding_dim', 'num_heads'];
  for (const key of attrs.keys())
    if (!names.includes(key)) refuse('FORMAT', attrs.path(key), names.join(', '), key, didYouMean(key, names));
  const integer = (key: string): number => (attrs.has(key) ? attrs.integer(key) : 0);
  const [interleaved, rotary_embedding_dim] = [integer('interleaved'), integer('rotary_embedding_dim')];
  return { interleaved, rotary_embedding_dim, num_heads: integer('num_heads') };
}

function labelOf(f: Fields): string {
  const inputs = f.object('inputs');
  return formatLabel('RotaryEmbedding', {
    vector: `onnx/${f.text('name')}`,
    type: f.text('dtype'),
    X: inputs.object('X').integers('shape'),
    position_ids: inputs.has('position_ids') ? 1 : 0,
    ...attributesOf(f),
  });
}

async function runCase(folder: VectorFolder, f: Fields, official: Tolerance, runner: Runner): Promise<CaseVerdict> {
  const dtype = DTYPES[f.oneOf('dtype', ['float32', 'float16', 'bfloat16'])];
  const inputs = f.object('inputs');
  const load = (key: string): Tensor<typeof dtype> => readNpy(folder, inputs.object(key).text('file'), dtype);
  const X = load('X');
  const cos_cache = load('cos_cache');
  const sin_cache = load('sin_cache');
  const ids = inputs.optionalObject('position_ids');
  const position_ids = ids && readNpy(folder, ids.text('file'), 'i64');
  const attrs = attributesOf(f);
  if (attrs.interleaved > 1) refuse('FORMAT', `${f.where}.attrs.interleaved`, '0 or 1', attrs.interleaved);
  const Y = runner.allocate(dtype, X.shape);
  const call = onnx.planRotaryEmbedding(
    { X, cos_cache, sin_cache, ...(position_ids ? { position_ids } : {}) },
    { ...attrs, interleaved: attrs.interleaved as 0 | 1 },
    Y,
  );
  const declines = declined(runner, call);
  if (declines) return declines;

  const got = await Y.readNumbers();
  const exact = await readNpy(folder, fileOf(f, 'output_f64'), 'f64').readNumbers();
  // Elements that are not finite give results that are not finite, which need no bound.
  const largest = (values: Float64Array): number =>
    values.reduce((max, v) => (Number.isFinite(v) ? Math.max(max, Math.abs(v)) : max), 0);
  // This is a bound of |x0·cos| + |x1·sin| for every element.
  const magnitude =
    largest(await X.readNumbers()) * (largest(await cos_cache.readNumbers()) + largest(await sin_cache.readNumbers()));
  const judge = (want: Float64Array, bound: (i: number) => number) =>
    judgeClose('RotaryEmbedding', got, want, bound, dtype);
  const verdict = judge(exact, (i) => rotationErrorBound(dtype, exact[i]!, magnitude));
  // The reference rounds each step in f16: two products and a sum. Its f32 results, rounded once, are preferred.
  const rounded = dtype === 'f16' && f.has('output_f32_then_round');
  const peer = await readNpy(folder, fileOf(f, rounded ? 'output_f32_then_round' : 'output'), dtype).readNumbers();
  const steps = dtype === 'f16' && !rounded ? 3 * UNIT_ROUNDOFF.f16 * magnitude : 0;
  // Two results that are each rounded once may be neighbours: 2 units of roundoff.
  const rtol = Math.max(official.rtol, 2 * UNIT_ROUNDOFF[dtype]);
  return allOf(
    verdict,
    judge(peer, (i) => official.atol + rtol * Math.abs(peer[i]!) + steps),
  );
}

/** Returns the file of an array: a name, or an object with name and shape. */
function fileOf(f: Fields, key: string): string {
  return typeof f.raw(key) === 'string' ? f.text(key) : f.object(key).text('file');
}
