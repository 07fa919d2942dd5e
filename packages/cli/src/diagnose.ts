/**
 * `ropewalk diagnose`: from the dumps of a kernel to what it did, and which known bug that is.
 *
 * @module
 */
import { join } from 'node:path';
import { parseNpy, parseSafetensors, tensorFromNpy, tensorFromSafetensors, writeNpy } from '@ropewalk/formats';
import { readFileBytes, refuseSystem } from '@ropewalk/formats/node';
import {
  type Diagnosis,
  demoObservation,
  describeDiagnosis,
  diagnose as diagnoseKernel,
  type Expected,
  frequencySvg,
  type Named,
  type NextInput,
  type Observation,
} from '@ropewalk/oracle';
import { type Dtype, type FloatDtype, type RopeLayout, roundTo, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readExpectedRope } from './model-file.js';
import { oneOf, readContext, readInteger, readNumber } from './options.js';
import { EXIT, openPercentBar, printJson } from './output.js';
import { plotFrequencies } from './plot.js';
import { makeFolder, writeWhole } from './write-file.js';

/** Options of the command, as the command line gives them. */
export interface DiagnoseOptions {
  readonly x?: string;
  readonly y?: string;
  readonly positions?: string;
  readonly expect?: string;
  readonly layer?: string;
  readonly context?: string;
  readonly layout?: string;
  readonly direction?: string;
  readonly dtype?: string;
  readonly normWeight?: string;
  readonly normEps?: string;
  readonly nextInput?: string;
  readonly svg?: string;
  readonly demo?: boolean;
  readonly json?: boolean;
}

/** What is to be diagnosed. */
interface Task {
  readonly observation: Observation;
  readonly expected: Expected | undefined;
  /** What is expected, in words. */
  readonly from: string | undefined;
}

/** A dump of a few tokens is small; node reads no file past 2 GiB at once. */
const MAX_FILE_BYTES = 2 ** 31 - 1;

/**
 * Diagnoses a kernel.
 *
 * @param options - the dumps, what is expected, and where pictures and inputs go
 * @returns the exit code: 0 when y is what was expected, or without an expectation a clean rotation; 1 when it is not
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2
 */
export async function diagnose(options: DiagnoseOptions): Promise<number> {
  const { observation, expected, from } = options.demo ? demo(options) : await readTask(options);
  const bar = openPercentBar('of the hypotheses', options.json);
  let result: Diagnosis;
  try {
    result = diagnoseKernel(observation, expected, { progress: bar.to });
  } finally {
    bar.stop();
  }
  const files = writeFiles(result, options);
  if (options.json) printJson(toJson(result, from));
  else process.stdout.write(`${[...describeDiagnosis(result, from), ...plot(result), ...files].join('\n')}\n`);
  return ['as expected', 'less precise', 'rotation'].includes(result.verdict) ? EXIT.ok : EXIT.failed;
}

async function readTask(options: DiagnoseOptions): Promise<Task> {
  const { x, y, positions } = options;
  if (x === undefined || y === undefined || positions === undefined) {
    const missing = (['x', 'y', 'positions'] as const)
      .filter((name) => options[name] === undefined)
      .map((name) => `--${name}`);
    refuse(
      'FORMAT',
      'diagnose',
      '--x, --y and --positions',
      `no ${missing.join(', ')}`,
      'See a run first: ropewalk diagnose --demo.',
    );
  }
  const layout = oneOf<RopeLayout>(options.layout ?? 'bsnh', ['bsnh', 'bnsh'], 'diagnose: --layout');
  const dtype =
    options.dtype === undefined
      ? undefined
      : oneOf<FloatDtype>(options.dtype, ['f64', 'f32', 'f16', 'bf16'], 'diagnose: --dtype');
  const norm = readNorm(options, dtype);
  const observation: Observation = {
    x: readTensor(x, '--x', dtype),
    y: asStored(readTensor(y, '--y', dtype), dtype),
    positions: readTensor(positions, '--positions'),
    layout,
    ...(norm ? { norm } : {}),
  };
  const expectation = await readExpected(options);
  const [given, meant] = [observation.x.shape.at(-1), expectation.expected?.spec.headDim];
  if (meant !== undefined && given !== meant)
    fail(
      'SHAPE',
      'diagnose: --x',
      `its heads have ${given} dimensions, those of --expect have ${meant}. Give the model that the kernel ran, or dump whole heads in the last dimension.`,
    );
  return { observation, ...expectation };
}

async function readExpected(options: DiagnoseOptions): Promise<Pick<Task, 'expected' | 'from'>> {
  const given = (['layer', 'context', 'direction'] as const).find((name) => options[name] !== undefined);
  if (options.expect === undefined) {
    if (given) refuse('FORMAT', `diagnose: --${given}`, '--expect beside it', 'none');
    return { expected: undefined, from: undefined };
  }
  const layer = readInteger(options.layer, 'diagnose: --layer', 0, 2 ** 31 - 1) ?? 0;
  const read = await readExpectedRope(options.expect, 'diagnose', {
    ...readContext(options.context, 'diagnose'),
    layer,
  });
  const direction = oneOf(options.direction ?? read.direction, ['forward', 'backward'], 'diagnose: --direction');
  return {
    expected: { spec: read.spec, direction },
    from: direction === 'forward' ? read.from : `${read.from}, backward`,
  };
}

function readNorm({ normWeight, normEps }: DiagnoseOptions, dtype: FloatDtype | undefined): Observation['norm'] {
  if (normWeight === undefined) {
    if (normEps !== undefined) refuse('FORMAT', 'diagnose: --norm-eps', '--norm-weight beside it', 'none');
    return undefined;
  }
  const eps = readNumber(normEps, 'diagnose: --norm-eps') ?? 1e-6;
  if (eps < 0) refuse('RANGE', 'diagnose: --norm-eps', 'a number >= 0', normEps);
  return { weight: readTensor(normWeight, '--norm-weight', dtype) as Tensor<FloatDtype>, eps };
}

/**
 * Reads `file.npy` or `file.safetensors:name`.
 *
 * @param dtype - how to take the bits of a u16 file
 */
function readTensor(given: string, option: string, dtype?: FloatDtype): Tensor {
  const where = `diagnose: ${option}`;
  const [, file = given, name] = /^(.*\.safetensors)(?::(.*))?$/s.exec(given) ?? [];
  if (!/\.(npy|safetensors)$/.test(file)) refuse('FORMAT', where, 'a .npy file, or file.safetensors:name', given);
  const bytes = readFileBytes(file, MAX_FILE_BYTES, `${where}: ${file}`);
  if (file.endsWith('.npy')) {
    const npy = parseNpy(bytes, file);
    const bits = npy.dtype === 'u16' && (dtype === 'bf16' || dtype === 'f16');
    return tensorFromNpy<Dtype>(npy, bits ? dtype : npy.dtype);
  }
  const header = parseSafetensors(bytes, file);
  if (!name) refuse('FORMAT', where, `${file}:NAME, one of its ${header.tensors.size} tensors`, given);
  return tensorFromSafetensors(bytes, header, name);
}

/** A dump may be wider than what the kernel stored: with --dtype bf16 an f32 file must hold nothing but bf16 values. */
function asStored(y: Tensor, dtype: FloatDtype | undefined): Tensor {
  if (dtype === undefined || y.dtype === dtype || !['f64', 'f32', 'f16', 'bf16'].includes(y.dtype)) return y;
  const values = y.readNumbers() as Float64Array;
  const bad = values.findIndex((value) => !Number.isNaN(value) && roundTo(dtype, value) !== value);
  if (bad >= 0)
    refuse('DTYPE', `diagnose: --dtype ${dtype}`, `a y of ${dtype} values`, `${values[bad]} in a ${y.dtype} file`);
  return tensorFrom(values, { shape: y.shape });
}

function demo(options: DiagnoseOptions): Task {
  const given = (['x', 'y', 'positions', 'expect'] as const).find((name) => options[name] !== undefined);
  if (given) refuse('FORMAT', 'diagnose: --demo', `no --${given} beside it`, options[given]);
  return demoObservation();
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

/** Sizes, of one length: a pair that one side lacks does not turn there. */
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
    writeWhole(svg, frequencySvg(found, expected), 'diagnose: --svg');
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
    refuseSystem('DEVICE', `diagnose: --next-input: ${folder}`, 'a folder that can be made', cause);
  }
  const [x, positions] = [join(folder, 'x.npy'), join(folder, 'positions.npy')];
  const [batch, seq] = next.shape;
  writeWhole(x, writeNpy(Float32Array.from(next.x), { dtype: 'f32', shape: next.shape }), 'diagnose: --next-input');
  const shape = next.numAxes > 1 ? [next.numAxes, batch, seq] : [batch, seq];
  writeWhole(
    positions,
    writeNpy(BigInt64Array.from(next.positions, BigInt), { dtype: 'i64', shape }),
    'diagnose: --next-input',
  );
  return [`Next input: ${x}, ${positions}`];
}

function toJson(result: Diagnosis, from: string | undefined): unknown {
  const bug = ({ id, mutants }: Named) => ({
    id,
    mutants: mutants.map(({ id, cause, does, threads }) => ({ id, cause, does, threads })),
  });
  const { found, next } = result;
  return {
    verdict: result.verdict,
    expected: from ?? null,
    tier: result.tier ?? null,
    named: result.named.map(bug),
    recipes: result.recipes,
    not_ruled_out: result.notRuledOut.map(({ id }) => id),
    differences: result.differences,
    worst: result.worst ?? null,
    found: {
      outcome: found.outcome,
      dtype: found.dtype,
      pairing: found.layout?.name ?? null,
      pair_distance: found.layout?.distance ?? null,
      first_dim: found.layout?.first ?? null,
      dims: found.geometry?.dims ?? null,
      direction: found.sign === undefined ? null : found.sign > 0 ? 'forward' : 'backward',
      magnitude: found.gain ?? null,
      bases: found.bases,
      scaling: found.law?.scaling ?? null,
      axes: found.axes,
      positions: found.positions.map(({ words }) => words),
      heads_agree: found.headsAgree,
      pairs: found.pairs,
      rope: found.expected
        ? {
            ...found.expected,
            spec: {
              ...found.expected.spec,
              freqFactors: found.expected.spec.freqFactors && Array.from(found.expected.spec.freqFactors),
            },
          }
        : null,
      explains: found.explains ?? null,
      open: found.open,
    },
    expected_frequencies: result.expectedFrequencies ? Array.from(result.expectedFrequencies) : null,
    next: next
      ? { why: next.why, shape: next.shape, positions: Array.from(next.positions), groups: next.groups }
      : null,
  };
}
