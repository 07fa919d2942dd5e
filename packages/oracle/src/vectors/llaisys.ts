/**
 * LLAISYS' golden vectors: nine operators, and calls that must be refused.
 *
 * @module
 */

import { llaisys } from '@ropewalk/dialects';
import { type Dtype, isDtype, RopewalkError, type Runner, type Tensor, tensorFrom, zeros } from 'ropewalk';
import { countElements, type Fields, newArray, refuse } from 'ropewalk/backend';
import { readManifest, readNpy, type VectorFolder } from '../folder.js';
import { boundedShape, readFloats, viewOf } from '../host.js';
import { allOf, judgeBits, judgeClose } from '../judge.js';
import { formatLabel } from '../label.js';
import type { ConformanceCase, Verdict } from '../runner.js';

const OPS = [
  'add',
  'argmax',
  'embedding',
  'linear',
  'rms_norm',
  'rope',
  'self_attention',
  'swiglu',
  'rearrange',
] as const;
type Op = (typeof OPS)[number];

/**
 * Makes the cases of a folder of LLAISYS vectors, errors.json included where it is present.
 *
 * @param folder - the folder
 * @param manifest - its manifest.json
 */
export function llaisysVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  const cases: ConformanceCase[] = manifest.objects('cases').map((f) => {
    const op = f.oneOf('op', OPS);
    return {
      suite: 'llaisys',
      label: formatLabel(op.toUpperCase(), {
        vector: `llaisys/${f.text('id')}`,
        type: f.text('dtype'),
        ...shapesOf(f),
      }),
      run: (runner: Runner) => runCase(folder, f, op, runner),
    };
  });
  if (!folder.has('errors.json')) return cases;
  const errors = readManifest(folder, 'errors.json').objects('cases');
  return [
    ...cases,
    ...errors.map((f) => {
      const op = f.oneOf('op', OPS);
      return {
        suite: 'llaisys',
        label: formatLabel(`${op.toUpperCase()}_REFUSED`, {
          vector: `llaisys/errors/${f.text('id')}`,
          category: f.text('category'),
        }),
        run: (runner: Runner) => runRefusal(f, op, runner),
      };
    }),
  ];
}

function shapesOf(f: Fields): Record<string, number[]> {
  if (f.has('shape')) return { shape: f.integers('shape') };
  const inputs = f.object('inputs');
  return Object.fromEntries(inputs.keys().map((key) => [key, inputs.object(key).integers('shape')]));
}

/** Calls an operator by its LLAISYS signature: outputs first. */
function call(op: Op, runner: Runner, t: Record<string, Tensor>, attrs: Fields | undefined): void {
  const need = (name: string): Tensor => t[name] ?? refuse('FORMAT', `llaisys ${op}`, `a tensor ${name}`, undefined);
  const number = (key: string): number =>
    (attrs ?? refuse('FORMAT', `llaisys ${op}`, `attrs.${key}`, undefined)).number(key);
  switch (op) {
    case 'add':
      llaisys.add(runner, need('c'), need('a'), need('b'));
      break;
    case 'argmax':
      llaisys.argmax(runner, need('max_idx'), need('max_val'), need('vals'));
      break;
    case 'embedding':
      llaisys.embedding(runner, need('out'), need('index'), need('weight'));
      break;
    case 'linear':
      llaisys.linear(runner, need('out'), need('in'), need('weight'), t.bias);
      break;
    case 'rms_norm':
      llaisys.rmsNorm(runner, need('out'), need('in'), need('weight'), number('eps'));
      break;
    case 'rope':
      llaisys.rope(runner, need('out'), need('in'), need('pos_ids'), number('theta'));
      break;
    case 'self_attention':
      llaisys.selfAttention(runner, need('attn_val'), need('q'), need('k'), need('v'), number('scale'));
      break;
    case 'swiglu':
      llaisys.swiglu(runner, need('out'), need('gate'), need('up'));
      break;
    case 'rearrange':
      llaisys.rearrange(runner, need('out'), need('in'));
      break;
    default:
      op satisfies never;
  }
}

async function runCase(folder: VectorFolder, f: Fields, op: Op, runner: Runner): Promise<Verdict> {
  const inputs = f.object('inputs');
  const outputs = f.object('outputs');
  const shape = f.has('shape') ? f.integers('shape') : undefined;
  const tensors: Record<string, Tensor> = {};
  for (const name of inputs.keys()) {
    const g = inputs.object(name);
    tensors[name] = layOver(readNpy(folder, g.text('file'), dtypeOf(g)), g, shape);
  }
  for (const name of outputs.keys()) {
    const g = outputs.object(name);
    const dtype = dtypeOf(g);
    // A whole buffer starts from the vector's own bytes, so that holes can be seen untouched.
    tensors[name] = g.has('initial')
      ? layOver(readNpy(folder, g.text('initial'), dtype), g, shape)
      : runner.allocate(dtype, boundedShape(g.integers('shape'), g.path('shape')));
  }
  call(op, runner, tensors, f.object('attrs'));
  await runner.finish();

  const verdicts: Verdict[] = [];
  for (const name of outputs.keys())
    verdicts.push(await judge(folder, f, op, outputs.object(name), tensors[name]!, tensors));
  return allOf(...verdicts);
}

async function judge(
  folder: VectorFolder,
  f: Fields,
  op: Op,
  output: Fields,
  got: Tensor,
  tensors: Readonly<Record<string, Tensor>>,
): Promise<Verdict> {
  const name = op.toUpperCase();
  switch (f.oneOf('compare', ['allclose', 'exact', 'bits', 'bits_whole_buffer'])) {
    case 'exact': {
      return judgeClose(name, await readFloats(got), [expectedValue(output)], { atol: 0, rtol: 0 });
    }
    case 'bits':
      return judgeBits(name, await got.read(), await readNpy(folder, output.text('expected'), dtypeOf(output)).read());
    case 'bits_whole_buffer': {
      const whole = got.storage.host ?? (await got.storage.read());
      return judgeBits(name, whole, await readNpy(folder, output.text('expected'), dtypeOf(output)).read());
    }
    case 'allclose': {
      const t = f.object('tolerance');
      const want = await readFloats(readNpy(folder, output.text('expected'), dtypeOf(output)));
      const values = await readFloats(got);
      // swiglu of a gate of −∞: NaN by the formula and in torch, 0 in the limit; the vectors accept both, there alone.
      if (op === 'swiglu') {
        for (const [i, gate] of (await readFloats(tensors.gate!)).entries())
          if (gate === Number.NEGATIVE_INFINITY && values[i] === 0) want[i] = values[i]!;
      }
      return judgeClose(name, values, want, { atol: t.number('atol'), rtol: t.number('rtol') }, got.dtype);
    }
  }
}

/** JSON has no NaN and no infinities, and many writers lose the sign of −0: the manifest writes them as texts. */
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

function dtypeOf(f: Fields): Dtype {
  const dtype = f.text('dtype');
  return isDtype(dtype) ? dtype : refuse('FORMAT', `${f.where}.dtype`, 'a dtype', dtype);
}

/** Rearrange cases store whole buffers and say how a view lies in them. */
function layOver(whole: Tensor, f: Fields, shape: readonly number[] | undefined): Tensor {
  if (!f.has('strides') || !shape) return whole;
  return viewOf(whole, { shape, strides: f.integers('strides', -(2 ** 31)), offset: f.integer('offset') }, f.where);
}

/** The call must be refused with the code of its category, before anything is written. */
async function runRefusal(f: Fields, op: Op, runner: Runner): Promise<Verdict> {
  const args = f.object('args');
  const tensors: Record<string, Tensor> = {};
  for (const name of args.keys()) {
    const value = args.raw(name);
    if (typeof value !== 'object' || value === null) continue;
    const g = args.object(name);
    const dtype = dtypeOf(g);
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
  const wanted = { shape: 'SHAPE', dtype: 'DTYPE', range: 'RANGE', index: 'RANGE', bounds: 'RANGE', value: 'RANGE' }[
    f.text('category')
  ];
  const written = (): boolean =>
    Object.values(tensors).some(
      (t) => countElements(t.shape) > 0 && isOutput(t) && (t.storage.host as Uint8Array).some((v) => Number(v) !== 0),
    );
  const isOutput = (t: Tensor): boolean =>
    ['c', 'out', 'attn_val', 'max_val', 'max_idx'].some((name) => tensors[name] === t);
  try {
    call(op, runner, tensors, args);
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    if (wanted !== undefined && error.code !== wanted)
      return { status: 'fail', detail: `refused with ${error.code} (${error.message}), expected ${wanted}` };
    if (written()) return { status: 'fail', detail: `refused, but an output was written` };
    return { status: 'ok', measure: `${error.code}: ${error.message}` };
  }
  return { status: 'fail', detail: 'accepted, expected a refusal' };
}
