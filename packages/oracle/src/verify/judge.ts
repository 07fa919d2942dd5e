/** Judges the outputs of one case, element by element, and measures the differences. @module */
import {
  type Dtype,
  type FloatDtype,
  type HostArray,
  isFloat,
  type OpName,
  roundTo,
  sizeBytes,
  type Tensor,
} from 'ropewalk';
import { newArray, refuse, storeNumber } from 'ropewalk/backend';
import { bitsOf, reading, readName, readOptions } from 'ropewalk/internal';
import { type GoldenCase, readGoldenCase, readTensors } from '../golden/case.js';
import { type Comparison, compareOutput, type ExpectedOutput, judgeBits } from '../judge.js';
import { expectationsOf, type ModelOptions } from './model.js';
import type { KernelPerf } from './perf.js';
import {
  defaultTable,
  type RopeGeometry,
  type RopePlace,
  TABLE_PRECISIONS,
  type TablePrecision,
} from './rope-model.js';
import { judgeRotation, type RotationJudgement } from './rotation.js';

/** One element that is outside its bound. */
export interface WrongElement {
  /** One number for each dimension. */
  readonly index: readonly number[];
  readonly got: number;
  readonly expected: number;
  /** The largest |got − expected| that is allowed. */
  readonly bound: number;
  readonly place?: RopePlace;
  /** The bits in hexadecimal, where both numbers may print alike. */
  readonly bits?: readonly [got: string, expected: string];
}

/** The measurements of one output. */
export interface TensorReport extends Omit<Comparison, 'got' | 'want' | 'worst' | 'first'> {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly elements: number;
  /** The value of all elements where they have one, and several are wrong. Such a kernel did not run. */
  readonly all?: number;
  /** The largest distance in units of the last place, which are numbers of the dtype, from the rounded exact value. */
  readonly maxUlp: number;
  /** The element whose error over its bound is largest. */
  readonly worst?: WrongElement;
  readonly first: readonly WrongElement[];
  /** The pair and the token's position of `worst`, in RoPE. */
  readonly worstPair?: number;
  readonly worstPosition?: readonly number[];
}

/** The result of one case. */
export interface VerifyResult {
  readonly id: string;
  readonly op: OpName;
  /** The manifest's sentence about the case. */
  readonly about: string;
  /** `error` means that there was nothing to compare: a missing output, a wrong shape, a crash, or a timeout. */
  readonly status: 'ok' | 'fail' | 'error' | 'skipped';
  /** The reason of error and skipped, and what is wrong for fail. */
  readonly detail?: string;
  /** The known bugs that give a wrong rotation. There are several where the case cannot tell them apart. */
  readonly bugs?: readonly string[];
  /** Remarks that do not fail the case, such as files that belong to no output. */
  readonly notes: readonly string[];
  readonly tensors: readonly TensorReport[];
  /** For RoPE: the allowed precision of angles, and the tightest one whose bounds the outputs keep. */
  readonly table?: { readonly allowed: TablePrecision; readonly met: TablePrecision | undefined };
  /** A command that finds out more, and lines of hints. */
  readonly next?: string;
  /** The time that the user's program took, if there is one. */
  readonly seconds?: number;
  /** The kernel's time, if it was asked for and the outputs are right. */
  readonly perf?: KernelPerf;
}

/** The options of {@link judgeCase}. */
export interface JudgeOptions extends ModelOptions {
  /** Looks for the known bugs of a wrong rotation, which takes up to a second. Default: true. */
  readonly bugs?: boolean;
}

/**
 * Judges the outputs of one case.
 *
 * @param got - the outputs in host memory, with the dtypes and shapes of the expected ones
 * @returns ok or fail, with the measurements
 * @throws {RopewalkError} FORMAT when the case's expected outputs do not follow from its inputs and attributes
 */
export function judgeCase(
  golden: GoldenCase,
  got: ReadonlyMap<string, Tensor>,
  options: JudgeOptions = {},
): VerifyResult {
  const read = readGoldenCase(golden, 'verify: case');
  readTensors(got, 'verify: outputs');
  const names = { table: true, arithmetic: true, toleranceScale: true, bugs: true } as const;
  const { table, toleranceScale = 1 } = readOptions(options, 'verify: options', names);
  if (table !== undefined) readName(table, TABLE_PRECISIONS, 'verify: table');
  if (typeof toleranceScale !== 'number' || !(toleranceScale > 0 && toleranceScale < Infinity))
    refuse('RANGE', 'verify: toleranceScale', 'a positive number', toleranceScale);
  return reading('verify: case', () => judge(read, got, { ...options }));
}

function judge(golden: GoldenCase, got: ReadonlyMap<string, Tensor>, options: JudgeOptions): VerifyResult {
  const { id, op, about } = golden;
  const table = options.table ?? defaultTable(golden);
  const expectations = expectationsOf(golden, options);
  const tensors: TensorReport[] = [];
  const met = new Set(TABLE_PRECISIONS);
  for (const [name, stored] of golden.outputs) {
    const where = `${id}: ${name}`;
    const expectation =
      expectations.get(name) ??
      refuse('FORMAT', `vectors: ${id}`, `outputs ${[...expectations.keys()]} of ${op}`, name);
    checkStored(stored, expectation.exact, `vectors: ${where}`);
    const output = got.get(name) ?? refuse('SHAPE', `verify: ${id}`, `an output ${name}`, [...got.keys()]);
    if (!fits(output, expectation.exact))
      refuse('SHAPE', `verify: ${where}`, sizeText(expectation.exact), sizeText(output));
    const report = reportOf(name, output, expectation.allowed(table), expectation.rope);
    tensors.push(report);
    if (!expectation.rope) continue;
    for (const precision of met) {
      const own = precision === table;
      const { wrong } = own ? report : compareOutput(output.read() as HostArray, expectation.allowed(precision));
      if (wrong > 0) met.delete(precision);
    }
  }
  const failed = tensors.filter(({ wrong }) => wrong > 0);
  const tables = { allowed: table, met: TABLE_PRECISIONS.find((precision) => met.has(precision)) };
  const common = { id, op, about, tensors, table: op === 'rope' ? tables : undefined };
  const untouched = new Set(failed.flatMap(({ name }) => (isInput(golden, name, got.get(name)!) ? [name] : [])));
  const told = failed.map(({ name, all, wrong, elements }) => {
    if (all !== undefined) return `${name}: all ${elements} elements are ${all}`;
    return `${name}: ${wrong} of ${elements} wrong${untouched.has(name) ? ': it is x, not rotated' : ''}`;
  });
  const { arithmetic, toleranceScale } = options;
  // Bounds that the caller asked for decide alone, and so does the formula of another program's folder.
  const asked =
    golden.tolerance.formula !== 'rotation' ||
    [options.table, arithmetic, toleranceScale].some((one) => one !== undefined);
  // An output that holds one number, or x, was not rotated, whatever bug would give it too.
  const named = (options.bugs ?? true) && failed.every(({ name, all }) => all === undefined && !untouched.has(name));
  const rotations = asked && failed.length === 0 ? [] : rotationsOf(golden, got, named);
  const different = rotations.filter(({ verdict }) => verdict === 'different');
  const bugs = commonBugs(different);
  if (bugs) told.unshift(`${bugs.length > 1 ? 'one of the known bugs' : 'known bug'} ${bugs.join(' | ')}`);
  if (failed.length === 0) {
    if (different.length === 0) return { ...common, status: 'ok', notes: [] };
    const names = different.map(({ name }) => name).join(', ');
    told.push(`${names}: every element is within its bound, but all together are not the rotation of the case`);
  } else if (failed.every(({ name }) => rotations.some((r) => r.name === name && r.verdict !== 'different'))) {
    const narrower = rotations.filter((r) => r.narrower !== undefined);
    const how = rotations
      .filter(({ words }) => words !== '')
      .map(({ name, words }) => `${name}: computed less precisely: ${words}`);
    if (!asked && narrower.length === 0 && different.length === 0) {
      const outside = told.map((words) => words.replace('wrong', 'outside the bounds'));
      return { ...common, status: 'ok', notes: [...how, ...outside] };
    }
    const less = narrower.map(({ name, narrower: to }) => `${name}: its values are those of ${to}`);
    told.push(`the rotation is right, but less precise than is allowed (${[...how, ...less].join('; ')})`);
  }
  return { ...common, status: 'fail', detail: told.join('; '), bugs, notes: [] };
}

/** Says whether an output of RoPE is its x, bit for bit. */
function isInput({ rope, inputs }: GoldenCase, name: string, output: Tensor): boolean {
  const part = rope?.parts.find(({ out }) => out === name);
  const x = part && inputs.get(part.x);
  if (!x || x.dtype !== output.dtype) return false;
  return judgeBits(name, output.read() as HostArray, x.read() as HostArray).status === 'ok';
}

/** Returns the bugs that may have made every wrong output of a case, or undefined. */
function commonBugs(different: readonly RotationJudgement[]): readonly string[] | undefined {
  const [first, ...rest] = different;
  const bugs = first?.bugs.filter((bug) => rest.every((other) => other.bugs.includes(bug)));
  return bugs?.length ? bugs : undefined;
}

/** Asks diagnose about each rotated output that it can read. */
function rotationsOf(
  golden: GoldenCase,
  got: ReadonlyMap<string, Tensor>,
  named: boolean,
): (RotationJudgement & { name: string })[] {
  return (golden.rope?.parts ?? []).flatMap((part) => {
    const judged = part.cache === undefined ? judgeRotation(golden, part, got.get(part.out)!, named) : undefined;
    return judged ? [{ ...judged, name: part.out }] : [];
  });
}

function fits(tensor: Tensor, { dtype, shape }: ExpectedOutput): boolean {
  return tensor.dtype === dtype && String(tensor.shape) === String(shape);
}

function sizeText({ dtype, shape }: { readonly dtype: Dtype; readonly shape: readonly number[] }): string {
  return `${dtype} [${shape}]`;
}

/** Refuses expected outputs that are not the exact results, rounded: the folder was edited, or is of another kind. */
function checkStored(stored: Tensor, exact: ExpectedOutput, where: string): void {
  if (!fits(stored, exact))
    refuse('FORMAT', where, `${sizeText(exact)}, as inputs and attributes give`, sizeText(stored));
  const { first, got, want } = compareOutput(stored.read() as HostArray, { ...exact, unsettled: new Set() });
  if (first.length === 0) return;
  const n = first[0]!;
  const value = exact.bounds && isFloat(exact.dtype) ? roundTo(exact.dtype, want[n]!) : want[n];
  refuse(
    'FORMAT',
    `${where}[${n}]`,
    `${value}, as inputs and attributes give`,
    got[n],
    'The folder was edited, or another version wrote it: write it anew with ropewalk vectors.',
  );
}

function reportOf(
  name: string,
  output: Tensor,
  expected: ExpectedOutput,
  rope: RopeGeometry | undefined,
): TensorReport {
  const { dtype, shape, bounds } = expected;
  const data = output.read() as HostArray;
  let ulp = 0;
  const compared = compareOutput(data, expected, (error, value, exact) => {
    if (isFloat(dtype) && error > 0 && Number.isFinite(error))
      ulp = Math.max(ulp, Math.abs(ulps(dtype, value, roundTo(dtype, exact))));
  });
  const { got, want, wrong, nonFinite, maxAbs, maxRel, nmse, gain, maxRatio } = compared;
  const [bitsGot, bitsWant] = bounds ? [] : [bitsOf(data), bitsOf(expected.values)];
  const told = (n: number): WrongElement => {
    const hex = bitsGot && bitsWant && (isFloat(dtype) || Math.abs(want[n]!) > 2 ** 53);
    return {
      index: indexOf(n, shape),
      got: got[n]!,
      expected: want[n]!,
      bound: bounds?.[n] ?? 0,
      place: rope?.place(n),
      bits: hex ? [`0x${bitsGot[n]!.toString(16)}`, `0x${bitsWant[n]!.toString(16)}`] : undefined,
    };
  };
  const worst = compared.worst < 0 ? undefined : told(compared.worst);
  const all =
    wrong > 1 && Array.prototype.every.call(got, (value) => Object.is(value + 0, got[0]! + 0)) ? got[0] : undefined;
  return {
    name,
    dtype,
    shape,
    elements: got.length,
    all,
    wrong,
    nonFinite,
    maxAbs,
    maxRel,
    maxUlp: isFloat(dtype) ? ulp : maxAbs,
    nmse,
    gain,
    maxRatio,
    worst,
    first: compared.first.map(told),
    worstPair: worst?.place?.pair,
    worstPosition: worst?.place?.token === undefined ? undefined : worst.place.positions,
  };
}

/** Counts the numbers of a float dtype from b to a, which it holds exactly: units of the last place. −0 equals 0. */
export function ulps(dtype: FloatDtype, a: number, b: number): number {
  const data = newArray(dtype, 2);
  for (const [n, x] of [a, b].entries()) storeNumber(data, dtype, n, x);
  const signBit = BigInt(8 * sizeBytes(dtype) - 1);
  const [ofA, ofB] = Array.from(bitsOf(data) as ArrayLike<number | bigint>, (bits) => {
    const magnitude = BigInt.asUintN(Number(signBit), BigInt(bits));
    return BigInt(bits) >> signBit === 0n ? magnitude : -magnitude;
  });
  return Number(ofA! - ofB!);
}

function indexOf(n: number, shape: readonly number[]): number[] {
  const index: number[] = [];
  for (let d = shape.length - 1; d >= 0; d--) {
    index.unshift(n % shape[d]!);
    n = Math.floor(n / shape[d]!);
  }
  return index;
}
