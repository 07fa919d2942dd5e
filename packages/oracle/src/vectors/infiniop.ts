/** InfiniOp's vectors: RoPE over whole buffers, M-RoPE, and descriptors that must be refused with a status. @module */
import { infiniop } from '@ropewalk/dialects';
import { type Dtype, type FloatDtype, type HostArray, isFloat, type Runner, tensorFrom } from 'ropewalk';
import { newArray, refuse } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { readDtype, readManifest, readNpy, type VectorFolder } from '../folder.js';
import { storedSlack } from '../golden/bounds.js';
import { boundedShape, numbersOf, viewOf } from '../host.js';
import { allOf, judgeBits, judgeClose } from '../judge.js';
import { formatLabel } from '../label.js';
import type { CaseVerdict, ConformanceCase } from '../runner.js';
import { rotationErrorBound } from '../tolerance.js';

/** Makes the cases of a folder, and those of invalid_descriptors.json if it is there. */
export function infiniopVectorCases(folder: VectorFolder, manifest: Fields): ConformanceCase[] {
  const suite = 'infiniop';
  const rope = manifest.objects('rope').map((f) => ({
    suite,
    label: formatLabel('RoPE', {
      vector: `infiniop/${f.text('id')}`,
      type: f.text('dtype'),
      shape: f.integers('shape'),
      x_strides: f.integers('x_strides'),
      y_strides: f.integers('y_strides'),
      algo: f.text('algo_name'),
      pos: f.object('pos').text('dtype'),
      inplace: f.flag('inplace') ? 1 : 0,
    }),
    run: (runner: Runner) => runRope(folder, f, runner),
  }));
  const mrope = (manifest.has('mrope') ? manifest.objects('mrope') : []).map((f) => ({
    suite,
    label: formatLabel('MRoPE', {
      vector: `infiniop/${f.text('id')}`,
      type: f.text('dtype'),
      head_size: f.integer('head_size'),
      rotary_dim: f.integer('rotary_dim'),
      sections: f.integers('sections'),
      interleaved: f.flag('interleaved') ? 1 : 0,
    }),
    run: (runner: Runner) => runMrope(folder, f, runner),
  }));
  if (!folder.has('invalid_descriptors.json')) return [...rope, ...mrope];
  const descriptors = readManifest(folder, 'invalid_descriptors.json').objects('cases');
  const create = descriptors.map((f) => ({
    suite,
    label: formatLabel('CREATE_ROPE', {
      vector: `infiniop/descriptors/${f.text('id')}`,
      expected: f.text('expected_name'),
    }),
    run: (runner: Runner) => runCreate(f, runner),
  }));
  return [...rope, ...mrope, ...create];
}

function readFloat(f: Fields): FloatDtype {
  const dtype = readDtype(f);
  return isFloat(dtype) ? dtype : refuse('FORMAT', f.path('dtype'), 'a floating dtype', dtype);
}

function describe(shape: readonly number[], strides: readonly number[] | null, dtype: Dtype) {
  const code = infiniop.INFINI_DTYPE[dtype.toUpperCase() as keyof typeof infiniop.INFINI_DTYPE];
  return infiniop.infiniopCreateTensorDescriptor(shape.length, shape, strides, code);
}

async function runRope(folder: VectorFolder, f: Fields, runner: Runner): Promise<CaseVerdict> {
  const dtype = readFloat(f);
  const load = (file: string, as: Dtype = dtype): HostArray => readNpy(folder, file, as).storage.host!;
  const pos = f.object('pos');
  const posDtype = readDtype(pos);
  const table = f.object('table');
  const shape = boundedShape(f.integers('shape'), f.path('shape'));
  const y = f.object('y');
  const x = load(f.object('x').text('file'));
  const out = f.flag('inplace') ? x : initialBuffer(folder, y, dtype);
  const tableDesc = describe(table.integers('shape'), null, dtype);
  const created = infiniop.infiniopCreateRoPEDescriptor(
    runner,
    describe(shape, f.integers('y_strides', -(2 ** 31)), dtype),
    describe(shape, f.integers('x_strides', -(2 ** 31)), dtype),
    describe(pos.integers('shape'), null, posDtype),
    tableDesc,
    tableDesc,
    f.integer('algo'),
  );
  if (!created.descriptor)
    return { status: 'fail', detail: `create returned ${created.status}: ${created.error?.message}` };
  const { size } = infiniop.infiniopGetRoPEWorkspaceSize(created.descriptor);
  const [sin, cos, ids] = [load(table.text('sin')), load(table.text('cos')), load(pos.text('file'), posDtype)];
  // The magnitude is that of x without the gaps between its rows. The run may overwrite x.
  const rows = viewOf(tensorFrom(x, { dtype }), { shape, strides: f.integers('x_strides', -(2 ** 31)) }, f.where);
  const magnitude = rotationMagnitude([await rows.read()], cos, sin, dtype);
  const ran = infiniop.infiniopRoPE(created.descriptor, new Uint8Array(size), size, out, x, ids, sin, cos);
  infiniop.infiniopDestroyRoPEDescriptor(created.descriptor);
  if (ran.status !== infiniop.INFINI_STATUS_SUCCESS) return notDone(ran);
  await runner.finish();

  // The whole buffer is compared, as the gaps between the rows of y must keep their bits.
  const verdict = judgeBuffer('RoPE', dtype, magnitude, runner, out, load(y.text('expected')));
  if (verdict.status !== 'fail' || dtype !== 'f16' || !y.has('expected_stepwise')) return verdict;
  // A vector unit with f16 arithmetic rounds each product and sum, as upstream's kernel does.
  const stepwise = y.text('expected_stepwise');
  if (stepwise === 'same as expected') return verdict;
  const steps = judgeBits('RoPE', out, load(stepwise), dtype);
  return steps.status === 'ok' ? steps : verdict;
}

/** Judges by the bound of a rotation. The reference rounds float64 once, as the vector does, and has to be equal. */
function judgeBuffer(
  op: string,
  dtype: FloatDtype,
  magnitude: number,
  runner: Runner,
  got: HostArray,
  expected: HostArray,
): CaseVerdict {
  const want = numbersOf(expected, dtype);
  const bound = (i: number): number => rotationErrorBound(dtype, want[i]!, magnitude) + storedSlack(dtype, want[i]!);
  const close = judgeClose(op, numbersOf(got, dtype), want, bound, dtype);
  return runner.name === 'reference' && dtype !== 'f64' ? allOf(close, judgeBits(op, got, expected, dtype)) : close;
}

/** Computes a bound of |x0·cos| + |x1·sin| for every pair. Results that are not finite need none. */
function rotationMagnitude(xs: readonly HostArray[], cos: HostArray, sin: HostArray, dtype: FloatDtype): number {
  const largest = (...lists: readonly HostArray[]): number => {
    let most = 0;
    for (const list of lists)
      for (const v of numbersOf(list, dtype)) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
    return most;
  };
  return largest(...xs) * (largest(cos) + largest(sin));
}

function initialBuffer(folder: VectorFolder, y: Fields, dtype: Dtype): HostArray {
  const initial = y.object('initial');
  if (initial.has('file')) return readNpy(folder, initial.text('file'), dtype).storage.host!;
  const data = newArray(dtype, boundedShape([y.integer('buffer_len')], y.path('buffer_len'))[0]!);
  const hex = initial.text('fill_bits');
  if (!/^0x[0-9a-f]{1,16}$/i.test(hex)) refuse('FORMAT', `${initial.where}.fill_bits`, 'bits in hexadecimal', hex);
  const bytes = new Uint8Array(data.buffer);
  const unit = data.BYTES_PER_ELEMENT;
  for (let at = 0; at < bytes.length; at++) bytes[at] = Number((BigInt(hex) >> BigInt(8 * (at % unit))) & 0xffn);
  return data;
}

/** Turns a status into a verdict: the runner does not do the operator, or it failed. */
function notDone({ status, error }: infiniop.InfiniResult): CaseVerdict {
  if (status === infiniop.INFINI_STATUS_NOT_IMPLEMENTED)
    return { status: 'not_supported', reason: error?.message ?? 'NOT_IMPLEMENTED' };
  return { status: 'fail', detail: `calculate returned ${status}: ${error?.message}` };
}

async function runMrope(folder: VectorFolder, f: Fields, runner: Runner): Promise<CaseVerdict> {
  const dtype = readFloat(f);
  const positions = f.object('positions');
  const posDtype = readDtype(positions);
  const load = (file: string, as: Dtype = dtype): HostArray => readNpy(folder, file, as).storage.host!;
  const part = (name: 'q' | 'k') => {
    const g = f.object(name);
    const shape = g.integers('shape');
    return {
      desc: describe(shape, g.integers('strides'), dtype),
      dense: describe(shape, null, dtype),
      data: load(g.text('file')),
      expected: load(g.text('expected')),
    };
  };
  const [q, k] = [part('q'), part('k')];
  const table = describe([f.integer('table_len'), f.integer('rotary_dim') / 2], null, dtype);
  const created = infiniop.infiniopCreateMRoPEDescriptor(
    runner,
    {
      q_out: q.dense,
      k_out: k.dense,
      q: q.desc,
      k: k.desc,
      cos: table,
      sin: table,
      positions: describe(positions.integers('shape'), null, posDtype),
    },
    {
      num_q_heads: f.integer('num_q_heads'),
      num_kv_heads: f.integer('num_kv_heads'),
      head_size: f.integer('head_size'),
      rotary_dim: f.integer('rotary_dim'),
      mrope_section: f.integers('sections') as [number, number, number],
      mrope_interleaved: f.flag('interleaved'),
      positions_outside: 'row_0', // The program that made the vectors does so.
    },
  );
  if (!created.descriptor)
    return { status: 'fail', detail: `create returned ${created.status}: ${created.error?.message}` };
  const [qOut, kOut] = [newArray(dtype, q.expected.length), newArray(dtype, k.expected.length)];
  const ran = infiniop.infiniopMRoPE(created.descriptor, {
    q_out: qOut,
    k_out: kOut,
    q: q.data,
    k: k.data,
    cos: load(f.text('cos')),
    sin: load(f.text('sin')),
    positions: load(positions.text('file'), posDtype),
  });
  if (ran.status !== infiniop.INFINI_STATUS_SUCCESS) return notDone(ran);
  await runner.finish();
  const magnitude = rotationMagnitude([q.data, k.data], load(f.text('cos')), load(f.text('sin')), dtype);
  const judge = (got: HostArray, expected: HostArray) => judgeBuffer('MRoPE', dtype, magnitude, runner, got, expected);
  return allOf(judge(qOut, q.expected), judge(kOut, k.expected));
}

function runCreate(f: Fields, runner: Runner): CaseVerdict {
  const accepted = [f.integer('expected_status'), ...(f.has('also_accept') ? f.integers('also_accept') : [])];
  const device = f.optionalText('device') ?? 'CPU';
  // An unknown device stands for one that this host does not have.
  const code = (infiniop.INFINI_DEVICE as Readonly<Record<string, number>>)[device.toUpperCase()] ?? -1;
  const created = infiniop.infiniopCreateHandle(runner, code);
  if (!created.handle) return judgeStatus(created, accepted);
  if (code !== infiniop.INFINI_DEVICE.CPU && accepted.includes(infiniop.INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED))
    return { status: 'not_supported', reason: `the case is for a host without ${device}` };
  const desc = (name: string): infiniop.InfiniTensorDescriptor | null => {
    const g = f.optionalObject(name);
    if (!g) return null;
    const shape = g.integers('shape');
    const code =
      infiniop.INFINI_DTYPE[g.text('dtype') as keyof typeof infiniop.INFINI_DTYPE] ??
      refuse('FORMAT', `${g.where}.dtype`, 'a name of infinicore.h', g.text('dtype'));
    const strides = g.has('strides') ? g.integers('strides', -(2 ** 31)) : null;
    return infiniop.infiniopCreateTensorDescriptor(shape.length, shape, strides, code);
  };
  const [y, x, pos, sin, cos] = [desc('y'), desc('x'), desc('pos'), desc('sin'), desc('cos')];
  const algo = f.integer('algo', -(2 ** 31));
  return judgeStatus(infiniop.infiniopCreateRoPEDescriptor(created.handle, y, x, pos, sin, cos, algo), accepted);
}

function judgeStatus({ status, error }: infiniop.InfiniResult, accepted: readonly number[]): CaseVerdict {
  if (accepted.includes(status))
    return { status: 'ok', measure: `status ${status}${error ? `: ${error.message}` : ''}` };
  const detail = `status ${status}${error ? ` (${error.message})` : ''}, expected ${accepted.join(' or ')}`;
  return { status: 'fail', detail };
}
