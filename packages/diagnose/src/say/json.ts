/** A diagnosis as plain JSON. @module */
import { refuse } from 'ropewalk/backend';
import { reading } from 'ropewalk/internal';
import type { Named } from '../match/bug-search.js';
import type { Diagnosis } from './diagnosis.js';

/**
 * A diagnosis as plain JSON, as `ropewalk diagnose --json` prints it.
 *
 * @param result - from diagnose
 * @param from - what was expected, in words; undefined without an expectation
 * @throws {RopewalkError} RANGE for what is no diagnosis, and words that are no text
 */
export function diagnosisToJson(result: Diagnosis, from?: string): unknown {
  if (from !== undefined && typeof from !== 'string') refuse('RANGE', 'diagnosisToJson: from', 'a text', from);
  return reading('diagnosisToJson: result', () => jsonOf(result, from));
}

function jsonOf(result: Diagnosis, from: string | undefined): unknown {
  const bug = ({ id, mutants }: Named) => ({
    id,
    mutants: mutants.map(({ id, cause, does, threads }) => ({ id, cause, does, threads })),
  });
  const { found, next } = result;
  return {
    verdict: result.verdict,
    unread: result.unread ?? null,
    layout: { ...result.layout, otherwise: result.layout.otherwise.map(bug) },
    expected: from ?? null,
    tier: result.tier ?? null,
    named: result.named.map(bug),
    otherRules: result.otherRules,
    recipes: result.recipes,
    notRuledOut: result.notRuledOut.map(({ id }) => id),
    differences: result.differences,
    measured: result.measured,
    worst: result.worst ?? null,
    rowSummary: result.rowSummary ?? null,
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
