/** What `ropewalk diagnose` reads: the dumps of a kernel, and what it should have done. @module */
import { checkStored, type Expected, type Observation, splitHeads } from '@ropewalk/diagnose';
import { DTYPES, type FloatDtype, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readDump } from './dump-input.js';
import { FLOATS, Flags, flagOf, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { readRope } from './rope-source.js';

export type DiagnoseOptions = Texts<'x' | 'y' | 'positions' | 'expect' | 'layer' | 'context' | 'layout'> &
  Texts<'direction' | 'dtype' | 'shape' | 'heads' | 'positionsDtype' | 'normWeight' | 'normEps' | 'nextInput' | 'svg'> &
  Switches<'demo' | 'json'>;

/** What is to be diagnosed. */
interface Task {
  readonly observation: Observation;
  readonly expected: Expected | undefined;
  /** What is expected, in words. */
  readonly from: string | undefined;
}

/** Reads what the options name. @throws {RopewalkError} with the option */
export async function readTask(options: DiagnoseOptions): Promise<Task> {
  const { x, y, positions } = options;
  if (x === undefined || y === undefined || positions === undefined) {
    const missing = (['x', 'y', 'positions'] as const).filter((name) => options[name] === undefined).map(flagOf);
    fail(
      'FORMAT',
      missing.join(', '),
      'a diagnosis needs --x, --y and --positions. See a run first: ropewalk diagnose --demo.',
    );
  }
  const flags = new Flags(options);
  const dtype = flags.word('dtype', FLOATS);
  const shape = flags.integers('shape', 1, MAX_INTEGER, 4);
  const positionsDtype = flags.word('positionsDtype', DTYPES);
  if (positionsDtype !== undefined && !positions.endsWith('.bin'))
    fail('FORMAT', '--positions-dtype', 'it is for a raw .bin; other files say it themselves. Leave it out.');
  if (shape !== undefined && ![x, y].some((file) => file.endsWith('.bin')))
    fail('FORMAT', '--shape', 'it is for raw .bin files; other files say it themselves. Leave it out.');
  const heads = flags.integer('heads', 1);
  const layout = flags.word('layout', ['bsnh', 'bnsh']) ?? (heads === undefined ? undefined : 'bsnh');
  if (heads !== undefined && layout !== 'bsnh')
    fail('FORMAT', '--layout', 'with --heads, x and y are [batch, token, hidden]: only bsnh fits. Leave it out.');
  const tensor = (file: string, flag: string): Tensor =>
    splitHeads(readDump(file, flag, { dtype, shape }), heads, flag);
  const [input, output] = [tensor(x, '--x'), tensor(y, '--y')];
  checkStored(output, dtype, '--dtype');
  const at = readDump(positions, '--positions', { dtype: positionsDtype, dtypeFlag: '--positions-dtype' });
  if (positionsDtype !== undefined) checkPositions(at, positions);
  const observation: Observation = {
    x: input,
    y: output,
    positions: at,
    layout,
    norm: readNorm(flags, options.normWeight, dtype),
  };
  const expectation = await readExpected(flags, options);
  const [given, meant] = [observation.x.shape.at(-1), expectation.expected?.spec.headDim];
  if (meant !== undefined && given !== meant)
    fail(
      'SHAPE',
      '--x',
      `its heads have ${given} dimensions, those of --expect have ${meant}. ` +
        'Give the model that the kernel ran, or dump whole heads in the last dimension.',
    );
  return { observation, ...expectation };
}

/** Integers of another width give positions that no model has: two of i32 make one of i64. */
function checkPositions(positions: Tensor, file: string): void {
  const wild = (positions.readNumbers() as Float64Array).find(
    (one) => !Number.isInteger(one) || Math.abs(one) > 2 ** 31,
  );
  if (wild === undefined) return;
  const size = `${positions.size} ${positions.dtype}`;
  fail(
    'DTYPE',
    '--positions-dtype',
    `as ${size}, ${file} has the position ${wild}. It holds another type, such as i32.`,
  );
}

async function readExpected(
  flags: Flags<DiagnoseOptions>,
  { expect }: DiagnoseOptions,
): Promise<Pick<Task, 'expected' | 'from'>> {
  if (expect === undefined) {
    flags.refuseAny(['layer', 'context', 'direction'], 'it needs --expect.');
    return { expected: undefined, from: undefined };
  }
  const { spec, from, ...rope } = await readRope(expect, flags.integer('context', 1), flags.integer('layer'));
  const direction = flags.word('direction', ['forward', 'backward']) ?? rope.direction;
  return { expected: { spec, direction }, from: direction === 'forward' ? from : `${from}, backward` };
}

function readNorm(
  flags: Flags<DiagnoseOptions>,
  weight: string | undefined,
  dtype: FloatDtype | undefined,
): Observation['norm'] {
  if (weight === undefined) {
    flags.refuseAny(['normEps'], 'it needs --norm-weight.');
    return undefined;
  }
  const eps = flags.number('normEps') ?? 1e-6;
  if (eps < 0) refuse('RANGE', '--norm-eps', 'a number >= 0', eps);
  return { weight: readDump(weight, '--norm-weight', { dtype }) as Tensor<FloatDtype>, eps };
}
