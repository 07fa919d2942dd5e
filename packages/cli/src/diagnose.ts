/** `ropewalk diagnose`: from the dumps of a kernel to what it did, and which known bug that is. @module */
import { join } from 'node:path';
import { writeNpy } from '@ropewalk/formats';
import { makeFolder, refuseSystem, writeOutput } from '@ropewalk/formats/node';
import {
  checkStored,
  type Diagnosis,
  demoObservation,
  describeDiagnosis,
  diagnose as diagnoseKernel,
  diagnosisToJson,
  type Expected,
  frequencySvg,
  type NextInput,
  type Observation,
  splitHeads,
} from '@ropewalk/oracle';
import { DTYPES, type FloatDtype, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readDump } from './dump-input.js';
import { FLOATS, Flags, flagOf, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { plotFrequencies } from './plot.js';
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

/** @returns 0 when y is what was expected, or without an expectation a clean rotation; 1 when it is not */
export async function diagnose(options: DiagnoseOptions): Promise<number> {
  if (options.demo)
    new Flags(options).refuseAny(['x', 'y', 'positions', 'expect'], '--demo has its own input. Leave one of them out.');
  const { observation, expected, from } = options.demo ? demoObservation() : await readTask(options);
  const bar = openPercentBar('of the hypotheses', options.json);
  let result: Diagnosis;
  try {
    result = diagnoseKernel(observation, expected, { progress: bar.to });
  } finally {
    bar.stop();
  }
  const files = writeFiles(result, options);
  printResult(options.json, {
    json: () => diagnosisToJson(result, from),
    lines: () => [...describeDiagnosis(result, from), ...plot(result), ...files],
  });
  // Where another layout gives a bug, nobody knows yet whether the kernel is right.
  const settled = result.layout.otherwise.length === 0;
  return settled && ['as expected', 'less precise', 'rotation'].includes(result.verdict) ? EXIT.ok : EXIT.failed;
}

async function readTask(options: DiagnoseOptions): Promise<Task> {
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
  const observation: Observation = {
    x: input,
    y: output,
    positions: readDump(positions, '--positions', { dtype: positionsDtype, dtypeFlag: '--positions-dtype' }),
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

function plot({ found, expectedFrequencies }: Diagnosis): string[] {
  if (found.pairs.length === 0) return [];
  const [measured, wanted] = frequenciesOf(found.pairs, expectedFrequencies);
  const [, ...lines] = plotFrequencies(measured, wanted ?? measured);
  return [
    '',
    `Frequency by pair, log10 of radians a position: * found${wanted ? ', · expected where it differs' : ''}`,
    ...lines.map((line) => `  ${line}`),
  ];
}

/** The absolute frequencies of both, with the same length: a pair that one side lacks does not rotate there. */
function frequenciesOf(
  pairs: Diagnosis['found']['pairs'],
  expected: Float64Array | undefined,
): [Float64Array, Float64Array | undefined] {
  const count = Math.max(pairs.length, expected?.length ?? 0);
  const found = Float64Array.from({ length: count }, (_, j) => (pairs[j]?.turns ? Math.abs(pairs[j].frequency) : 0));
  return [found, expected && Float64Array.from({ length: count }, (_, j) => Math.abs(expected[j] ?? 0))];
}

function writeFiles(result: Diagnosis, { svg, nextInput }: DiagnoseOptions): string[] {
  const lines: string[] = [];
  if (svg !== undefined) {
    const [found, expected] = frequenciesOf(result.found.pairs, result.expectedFrequencies);
    writeOutput(svg, frequencySvg(found, expected), '--svg');
    lines.push(`Picture: ${svg}`);
  }
  if (nextInput !== undefined)
    lines.push(
      ...(result.next ? writeNext(nextInput, result.next) : ['Next input: none needed, nothing was written.']),
    );
  return lines.length > 0 ? ['', ...lines] : [];
}

function writeNext(folder: string, next: NextInput): string[] {
  try {
    makeFolder(folder);
  } catch (cause) {
    refuseSystem('DEVICE', `--next-input: ${folder}`, 'a folder that can be made', cause);
  }
  const [x, positions] = [join(folder, 'x.npy'), join(folder, 'positions.npy')];
  const [batch, seq] = next.shape;
  writeOutput(x, writeNpy(Float32Array.from(next.x), { dtype: 'f32', shape: next.shape }), '--next-input');
  const shape = next.numAxes > 1 ? [next.numAxes, batch, seq] : [batch, seq];
  writeOutput(positions, writeNpy(BigInt64Array.from(next.positions, BigInt), { dtype: 'i64', shape }), '--next-input');
  return [`Next input: ${x}, ${positions}`];
}
