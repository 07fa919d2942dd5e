/** `ropewalk diagnose`: from the dumps of a kernel to what it did, and which known bug that is. @module */
import { join } from 'node:path';
import { parseNpy, parseSafetensors, tensorFromNpy, tensorFromSafetensors, writeNpy } from '@ropewalk/formats';
import { makeFolder, readFileBytes, refuseSystem, writeOutput } from '@ropewalk/formats/node';
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
import { type Dtype, type FloatDtype, isFloat, roundTo, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { FLOATS, Flags, flagOf, type Switches, type Texts } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { plotFrequencies } from './plot.js';
import { readRope } from './rope-source.js';

export type DiagnoseOptions = Texts<'x' | 'y' | 'positions' | 'expect' | 'layer' | 'context' | 'layout'> &
  Texts<'direction' | 'dtype' | 'normWeight' | 'normEps' | 'nextInput' | 'svg'> &
  Switches<'demo' | 'json'>;

/** What is to be diagnosed. */
interface Task {
  readonly observation: Observation;
  readonly expected: Expected | undefined;
  /** What is expected, in words. */
  readonly from: string | undefined;
}

/** A dump of a few tokens is small; node reads no file past 2 GiB at once. */
const MAX_FILE_BYTES = 2 ** 31 - 1;

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
    json: () => toJson(result, from),
    lines: () => [...describeDiagnosis(result, from), ...plot(result), ...files],
  });
  return ['as expected', 'less precise', 'rotation'].includes(result.verdict) ? EXIT.ok : EXIT.failed;
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
  const layout = flags.word('layout', ['bsnh', 'bnsh']);
  const dtype = flags.word('dtype', FLOATS);
  const observation: Observation = {
    x: readTensor(x, '--x', dtype),
    y: asStored(readTensor(y, '--y', dtype), dtype),
    positions: readTensor(positions, '--positions'),
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
  return { weight: readTensor(weight, '--norm-weight', dtype) as Tensor<FloatDtype>, eps };
}

/** Reads `file.npy` or `file.safetensors:name`; `dtype` says how to take the bits of a u16 file. */
function readTensor(given: string, where: string, dtype?: FloatDtype): Tensor {
  const [, file = given, name] = /^(.*\.safetensors)(?::(.*))?$/s.exec(given) ?? [];
  if (!/\.(npy|safetensors)$/.test(file)) refuse('FORMAT', where, 'a .npy file, or file.safetensors:name', given);
  const bytes = readFileBytes(file, MAX_FILE_BYTES, `${where}: ${file}`);
  if (file.endsWith('.npy')) {
    const npy = parseNpy(bytes, file);
    const bits = npy.dtype === 'u16' && (dtype === 'bf16' || dtype === 'f16');
    return tensorFromNpy<Dtype>(npy, bits ? dtype : npy.dtype);
  }
  const header = parseSafetensors(bytes, file);
  if (!name) fail('FORMAT', where, `${file} has ${header.tensors.size} tensors. Name one: ${file}:NAME.`);
  return tensorFromSafetensors(bytes, header, name);
}

/** A dump may be wider than what the kernel stored. With --dtype bf16, an f32 file may hold only bf16 values. */
function asStored(y: Tensor, dtype: FloatDtype | undefined): Tensor {
  if (dtype === undefined || y.dtype === dtype || !isFloat(y.dtype)) return y;
  const values = y.readNumbers() as Float64Array;
  const bad = values.findIndex((value) => !Number.isNaN(value) && roundTo(dtype, value) !== value);
  if (bad >= 0)
    fail(
      'DTYPE',
      '--dtype',
      `y holds ${values[bad]}, which ${dtype} cannot hold. Give the dtype that the kernel stores.`,
    );
  return tensorFrom(values, { shape: y.shape });
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
    notRuledOut: result.notRuledOut.map(({ id }) => id),
    differences: result.differences,
    worst: result.worst ?? null,
    found: {
      outcome: found.outcome,
      dtype: found.dtype,
      pairing: found.layout?.name ?? null,
      pairDistance: found.layout?.distance ?? null,
      firstDim: found.layout?.first ?? null,
      dims: found.geometry?.dims ?? null,
      direction: found.sign === undefined ? null : found.sign > 0 ? 'forward' : 'backward',
      magnitude: found.gain ?? null,
      bases: found.bases,
      scaling: found.law?.scaling ?? null,
      axes: found.axes,
      positions: found.positions.map(({ words }) => words),
      headsAgree: found.headsAgree,
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
    expectedFrequencies: result.expectedFrequencies ? Array.from(result.expectedFrequencies) : null,
    next: next
      ? { why: next.why, shape: next.shape, positions: Array.from(next.positions), groups: next.groups }
      : null,
  };
}
