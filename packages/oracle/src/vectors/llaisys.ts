/** LLAISYS' vectors: nine operators, and calls that must be refused. @module */
import { llaisys } from '@ropewalk/dialects';
import { type FloatDtype, type OpPlan, RopewalkError, type Runner, type Tensor, tensorFrom, zeros } from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { readDtype, readManifest, readNpy, type VectorFolder } from '../folder.js';
import { boundAboutStored, planErrors } from '../golden/bounds.js';
import { boundedShape, viewOf } from '../host.js';
import { allOf, judgeBits, judgeClose } from '../judge.js';
import { formatLabel } from '../label.js';
import { type CaseVerdict, type ConformanceCase, declined, intercept } from '../runner.js';

type Call = (runner: Runner, t: (name: string) => Tensor, number: (attribute: string) => number, bias?: Tensor) => void;

/** The operators with LLAISYS' signatures, which have outputs first. */
const CALLS = {
  add: (r, t) => llaisys.add(r, t('c'), t('a'), t('b')),
  argmax: (r, t) => llaisys.argmax(r, t('max_idx'), t('max_val'), t('vals')),
  embedding: (r, t) => llaisys.embedding(r, t('out'), t('index'), t('weight')),
  linear: (r, t, _number, bias) => llaisys.linear(r, t('out'), t('in'), t('weight'), bias),
  rms_norm: (r, t, number) => llaisys.rmsNorm(r, t('out'), t('in'), t('weight'), number('eps')),
  rope: (r, t, number) => llaisys.rope(r, t('out'), t('in'), t('pos_ids'), number('theta')),
  self_attention: (r, t, number) => llaisys.selfAttention(r, t('attn_val'), t('q'), t('k'), t('v'), number('scale')),
  swiglu: (r, t) => llaisys.swiglu(r, t('out'), t('gate'), t('up')),
  rearrange: (r, t) => llaisys.rearrange(r, t('out'), t('in')),
} satisfies Record<string, Call>;
type Op = keyof typeof CALLS;
const OPS = Object.keys(CALLS) as Op[];
const OUTPUTS = ['c', 'out', 'attn_val', 'max_val', 'max_idx'];
/** The code of the refusal, by the category of a case. */
const CODES: Readonly<Record<string, string | undefined>> = {
  shape: 'SHAPE',
  dtype: 'DTYPE',
  range: 'RANGE',
  index: 'RANGE',
  bounds: 'RANGE',
  value: 'RANGE',
};

/** Makes the cases of a folder, and those of errors.json if it is there. */
export function llaisysVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  const cases = manifest.objects('cases').map((f): ConformanceCase => {
    const op = f.oneOf('op', OPS);
    const labelled = { vector: `llaisys/${f.text('id')}`, type: f.text('dtype'), ...shapesOf(f) };
    return {
      suite: 'llaisys',
      label: formatLabel(op.toUpperCase(), labelled),
      run: (runner) => runCase(folder, f, op, runner),
    };
  });
  if (!folder.has('errors.json')) return cases;
  const errors = readManifest(folder, 'errors.json').objects('cases');
  const refusals = errors.map((f): ConformanceCase => {
    const op = f.oneOf('op', OPS);
    const labelled = { vector: `llaisys/errors/${f.text('id')}`, category: f.text('category') };
    return {
      suite: 'llaisys',
      label: formatLabel(`${op.toUpperCase()}_REFUSED`, labelled),
      run: (runner) => runRefusal(f, op, runner),
    };
  });
  return [...cases, ...refusals];
}

function shapesOf(f: Fields): Record<string, number[]> {
  if (f.has('shape')) return { shape: f.integers('shape') };
  const inputs = f.object('inputs');
  return Object.fromEntries(inputs.keys().map((key) => [key, inputs.object(key).integers('shape')]));
}

function call(op: Op, runner: Runner, tensors: Record<string, Tensor>, attrs: Fields | undefined): void {
  const where = `llaisys ${op}`;
  const run: Call = CALLS[op];
  run(
    runner,
    (name) => tensors[name] ?? fail('FORMAT', where, `the case has no tensor ${name}`),
    (key) => (attrs ? attrs.number(key) : fail('FORMAT', where, `the case has no attrs.${key}`)),
    tensors.bias,
  );
}

async function runCase(folder: VectorFolder, f: Fields, op: Op, runner: Runner): Promise<CaseVerdict> {
  const inputs = f.object('inputs');
  const outputs = f.object('outputs');
  const shape = f.has('shape') ? f.integers('shape') : undefined;
  const tensors: Record<string, Tensor> = {};
  for (const name of inputs.keys()) {
    const g = inputs.object(name);
    tensors[name] = layOver(readNpy(folder, g.text('file'), readDtype(g)), g, shape);
  }
  for (const name of outputs.keys()) {
    const g = outputs.object(name);
    const dtype = readDtype(g);
    // A whole buffer starts with the vector's bytes, so that writes into its holes show.
    tensors[name] = g.has('initial')
      ? layOver(readNpy(folder, g.text('initial'), dtype), g, shape)
      : runner.allocate(dtype, boundedShape(g.integers('shape'), g.path('shape')));
  }
  const plan = planOf(op, runner, tensors, f.object('attrs'));
  const verdict = declined(runner, plan);
  if (verdict) return verdict;
  await runner.finish();

  const verdicts: CaseVerdict[] = [];
  for (const name of outputs.keys()) verdicts.push(await judge(folder, f, plan, name, tensors));
  return allOf(...verdicts);
}

/** Returns the plan that a call would run. */
function planOf(op: Op, runner: Runner, tensors: Record<string, Tensor>, attrs: Fields): OpPlan {
  let plan: OpPlan | undefined;
  const record = (made: OpPlan): void => {
    plan = made;
  };
  call(op, intercept(runner, record), tensors, attrs);
  return plan!;
}

async function judge(
  folder: VectorFolder,
  f: Fields,
  plan: OpPlan,
  out: string,
  tensors: Record<string, Tensor>,
): Promise<CaseVerdict> {
  const name = plan.op.toUpperCase();
  const output = f.object('outputs').object(out);
  const got = tensors[out]!;
  const expected = (): Tensor => readNpy(folder, output.text('expected'), readDtype(output));
  switch (f.oneOf('compare', ['allclose', 'exact', 'bits', 'bits_whole_buffer'])) {
    case 'exact':
      return judgeClose(name, await got.readNumbers(), [expectedValue(output)], { atol: 0, rtol: 0 });
    case 'bits':
      return judgeBits(name, await got.read(), await expected().read());
    case 'bits_whole_buffer':
      return judgeBits(name, got.storage.host ?? (await got.storage.read()), await expected().read());
    case 'allclose': {
      const want = await expected().readNumbers();
      const values = await got.readNumbers();
      // swiglu of a gate of −∞ is NaN by the formula and in torch, and 0 in the limit. The vectors accept both.
      if (plan.op === 'swiglu' && tensors.gate) {
        for (const [i, value] of (await tensors.gate.readNumbers()).entries())
          if (value === Number.NEGATIVE_INFINITY && values[i] === 0) want[i] = values[i]!;
      }
      const dtype = got.dtype as FloatDtype;
      // The bound is that of golden cases, whatever the manifest allows.
      const [errors] = planErrors(plan, dtype).values();
      const bounds = errors!.map((error, n) => boundAboutStored(error, want[n]!, dtype));
      return judgeClose(name, values, want, (n) => bounds[n]!, dtype);
    }
  }
}

/** Reads a number. NaN, infinities and −0 are texts, as JSON or its writers cannot say them. */
function expectedValue(output: Fields): number {
  const value = output.raw('value');
  if (typeof value === 'number') return value;
  const text = String(value).toLowerCase();
  if (/^-0(\.0*)?$/.test(text)) return -0;
  if (text === 'nan') return Number.NaN;
  if (text === 'inf' || text === 'infinity') return Number.POSITIVE_INFINITY;
  if (text === '-inf' || text === '-infinity') return Number.NEGATIVE_INFINITY;
  return refuse('FORMAT', `${output.where}.value`, 'a number, "nan", "inf", "-inf" or "-0"', value);
}

/** Makes the view that a rearrange case has in a whole buffer. */
function layOver(whole: Tensor, f: Fields, shape: readonly number[] | undefined): Tensor {
  if (!f.has('strides') || !shape) return whole;
  return viewOf(whole, { shape, strides: f.integers('strides', -(2 ** 31)), offset: f.integer('offset') }, f.where);
}

/** Runs a call that must be refused with the code of its category before anything is written. */
async function runRefusal(f: Fields, op: Op, runner: Runner): Promise<CaseVerdict> {
  const args = f.object('args');
  const tensors: Record<string, Tensor> = {};
  for (const name of args.keys()) {
    const value = args.raw(name);
    if (typeof value !== 'object' || value === null) continue;
    const g = args.object(name);
    const dtype = readDtype(g);
    const shape = boundedShape(g.integers('shape'), g.path('shape'));
    const strides = g.has('strides') ? g.integers('strides', -(2 ** 31)) : undefined;
    const values = g.raw('values') ?? g.raw('data') ?? g.raw('value');
    if (Array.isArray(values)) {
      const data = newArray(dtype, values.length);
      for (const [n, v] of values.entries())
        data[n] = (dtype.endsWith('64') && dtype !== 'f64' ? BigInt(v as number) : v) as never;
      tensors[name] = tensorFrom(data, { dtype, shape });
    } else if (strides) {
      const room = shape.reduce((reach, dim, d) => reach + Math.max(0, dim - 1) * Math.abs(strides[d] ?? 0), 1);
      tensors[name] = tensorFrom(newArray(dtype, room), { dtype, shape, strides });
    } else tensors[name] = zeros(dtype, shape);
  }
  const wanted = CODES[f.text('category')];
  const written = (): boolean =>
    OUTPUTS.some((name) => {
      const t = tensors[name];
      return t !== undefined && t.size > 0 && (t.storage.host as Uint8Array).some((v) => Number(v) !== 0);
    });
  try {
    call(op, runner, tensors, args);
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    if (wanted !== undefined && error.code !== wanted)
      return { status: 'fail', detail: `refused with ${error.code} (${error.message}), expected ${wanted}` };
    if (written()) return { status: 'fail', detail: 'refused, but an output was written' };
    return { status: 'ok', measure: `${error.code}: ${error.message}` };
  }
  return { status: 'fail', detail: 'accepted, expected a refusal' };
}
