/** From measured frequencies to a model's RoPE: base and denominator, scaling, axes. @module */
import type { RopeAxes, RopeScaling, YarnScaling } from 'ropewalk';
import { sharePairs, yarnMagnitude, yarnRampEdges } from 'ropewalk/internal';
import type { FoundScaling, FrequencyLaw } from './frequency-law.js';

/** A base, under one reading of the exponent. */
export interface FoundBase {
  readonly base: number;
  /** How far the base can be from the truth at most, relative. */
  readonly error: number;
  /** The exponent's denominator for which this base holds: only `base^(1/denominator)` can be measured. */
  readonly denominator: number;
  /** Whether it is a round number within its error. */
  readonly round: boolean;
}

/** The base of a law for each possible denominator; round ones first, then in the given order. */
export function basesOf(law: FrequencyLaw, denominators: readonly number[]): FoundBase[] {
  const list = [...new Set(denominators)].map((denominator): FoundBase => {
    const measured = Math.exp((law.step * denominator) / 2);
    const near = roundNear(measured, (law.stepError * denominator) / 2);
    const base = near ?? measured;
    const error = Math.expm1((law.stepBound * denominator) / 2) + Math.abs(measured / base - 1);
    return { base, error, denominator, round: near !== undefined };
  });
  return list.sort((a, b) => Number(b.round) - Number(a.round));
}

/** Bases of models. */
export const BASES: readonly number[] = [
  10000, 500000, 1000000, 100, 1000, 100000, 150000, 250000, 5000000, 8000000, 10000000,
];

/** The usual denominators; with those where the base is one of a model's, if it is with none of them. */
export function usualDenominators(law: FrequencyLaw, usual: readonly number[], headDim: number): number[] {
  const known = basesOf(law, usual).some(({ base }) => BASES.includes(base));
  if (known || !(law.stepBound < 1e-4 * law.step)) return [...usual];
  const more = [10000, 500000, 1000000].flatMap((base) => {
    const exact = (2 * Math.log(base)) / law.step;
    const even = 2 * Math.round(exact / 2);
    const near = Math.abs(even - exact) <= (2 * law.stepBound * exact) / law.step;
    return near && even >= 2 && even <= 2 * headDim ? [even] : [];
  });
  return [...more, ...usual];
}

/**
 * The round number within the relative error of a measurement, if any: at most five digits, two where it is uncertain.
 */
function roundNear(value: number, error: number): number | undefined {
  // Numbers of two digits are 1 % to 10 % apart: a coarser measurement would always find one.
  if (!(value > 0) || !(error < 2e-3)) return undefined;
  for (const digits of error < 1e-5 ? [1, 2, 3, 4, 5] : error < 1e-4 ? [1, 2, 3] : [1, 2]) {
    const near = Number(value.toPrecision(digits));
    if (Math.abs(value / near - 1) <= Math.max(2 * error, 1e-9)) return near;
  }
  return undefined;
}

/** Original contexts of models: powers of two. */
const CONTEXTS = Array.from({ length: 13 }, (_what, n) => 2 ** (n + 9));

/** Original contexts whose YaRN ramp, with beta 32 and 1, is the one that was found. */
export function yarnContexts(
  found: Extract<FoundScaling, { kind: 'yarn' }>,
  base: number,
  denominator: number,
): number[] {
  return CONTEXTS.filter((originalContext) => {
    const [low, high] = yarnRampEdges(
      { kind: 'yarn', factor: found.factor, originalContext, truncate: found.wholeEdges },
      base,
      denominator,
    );
    return Math.abs(low - found.ramp[0]) < 0.02 && Math.abs(high - found.ramp[1]) < 0.02;
  });
}

/** A scaling rule that gives the found frequencies, with the usual parameters where several fit; undefined for none. */
export function scalingOf(law: FrequencyLaw, base: number, denominator: number): RopeScaling | undefined {
  const found = law.scaling;
  const factor = found.kind === 'none' ? 1 : asWritten(found.factor, found.factorError);
  switch (found.kind) {
    case 'none':
      return undefined;
    case 'linear':
      return { kind: 'linear', factor };
    case 'llama3': {
      const originalContext = near(found.divideFrom);
      const highFreqFactor = near(originalContext / found.keepUpTo);
      return { kind: 'llama3', factor, lowFreqFactor: 1, highFreqFactor, originalContext };
    }
    case 'yarn': {
      const known = yarnContexts(found, base, denominator)[0];
      if (known !== undefined) return { kind: 'yarn', factor, originalContext: known, truncate: found.wholeEdges };
      const originalContext = 32768;
      const beta = (edge: number): number => originalContext / (2 * Math.PI * base ** ((2 * edge) / denominator));
      return {
        kind: 'yarn',
        factor,
        originalContext,
        betaFast: beta(found.ramp[0]),
        betaSlow: beta(found.ramp[1]),
        truncate: false,
      };
    }
  }
}

/** Beyond this relative error of a factor, several rules give the frequencies. */
const SHARP = 2e-3;

/** Whether the parameters of a scaling are known; the law of other ones is one of several that fit. */
export function isSharp(found: FoundScaling): boolean {
  return found.kind === 'none' || found.factorError < SHARP;
}

/** A factor as it is usually written: round, or one over a round number. */
export function asWritten(factor: number, error: number): number {
  const inverse = roundNear(1 / factor, error);
  return roundNear(factor, error) ?? (inverse === undefined ? factor : 1 / inverse);
}

/** The integer near a measurement, if it is within 0.1 %. */
function near(value: number): number {
  return Math.abs(value / Math.round(value) - 1) < 1e-3 ? Math.round(value) : value;
}

/** The magnitude that belongs to a scaling rule. */
export function magnitudeOf(scaling: RopeScaling | undefined): number {
  return scaling?.kind === 'yarn' ? yarnMagnitude(scaling as YarnScaling) : 1;
}

/**
 * Every rule that distributes pairs among axes as measured, the simplest first; `axesOfPairs` lists the possible axes
 * of each pair.
 */
export function axesRules(axesOfPairs: readonly (readonly number[])[], numAxes: number): RopeAxes[] {
  const pairs = axesOfPairs.length;
  const fits = (axes: RopeAxes): boolean => {
    if (axes.sections[0]! + axes.sections[1]! + axes.sections[2]! === 0) return false;
    const shared = sharePairs(axes, pairs);
    return shared.numAxes <= numAxes && axesOfPairs.every((of, j) => of.includes(shared.axisOfPair[j]!));
  };
  const rules: RopeAxes[] = [];
  const add = (axes: RopeAxes): void => {
    if (fits(axes)) rules.push(axes);
  };
  const runs = sectionRuns(axesOfPairs);
  if (runs) {
    add({ rule: 'sections', sections: padded(runs, numAxes) });
    add({ rule: 'vision', sections: padded(runs, numAxes) });
  }
  const count = (axis: number): number => axesOfPairs.filter((of) => of.length === 1 && of[0] === axis).length;
  const sections = [pairs - count(1) - count(2) - count(3), count(1), count(2), ...(numAxes > 3 ? [count(3)] : [])];
  if (sections[0]! >= 0) {
    add({ rule: 'interleaved', sections });
    add({ rule: 'interleaved-ggml', sections });
  }
  return rules;
}

function padded(runs: readonly number[], numAxes: number): number[] {
  return Array.from({ length: Math.max(3, Math.min(4, numAxes)) }, (_what, a) => runs[a] ?? 0);
}

/**
 * Lengths of the first run of each axis, in the order t, h, w, e; pairs that fit several axes go with their neighbours.
 */
function sectionRuns(axesOfPairs: readonly (readonly number[])[]): number[] | undefined {
  const runs = [0, 0, 0, 0];
  let axis = -1;
  for (const of of axesOfPairs) {
    if (axis < 0 || !of.includes(axis)) {
      const next = of.find((a) => a > axis);
      if (next === undefined) return runs; // a second round
      axis = next;
    }
    runs[axis]!++;
  }
  return runs;
}
