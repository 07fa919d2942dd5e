/**
 * Our own record as JSON, there and back: the names of {@link RopeSpec}, nothing left out silently.
 *
 * @module
 */

import type { AxisRule, Pairing, RopeAxes, RopeScaling, RopeSpec } from 'ropewalk';
import { Fields, readOptions, refuse } from 'ropewalk/backend';
import { effectiveRope } from './effective.js';

const PAIRINGS: readonly Pairing[] = ['interleaved', 'half', 'vision', 'interleaved-to-half'];
const RULES: readonly AxisRule[] = ['sections', 'interleaved', 'interleaved-ggml', 'vision'];
const SPEC_KEYS =
  'headDim rotaryDim rotaryOffset pairing axes base frequencyDim scaling freqFactors attentionFactor'.split(' ');
/** The fields of each scaling rule: those that must be there, and those that may. */
const SCALING: Readonly<Record<RopeScaling['kind'], { readonly needs: string; readonly may?: string }>> = {
  none: { needs: '' },
  linear: { needs: 'factor' },
  dynamicNtk: { needs: 'factor originalContext context' },
  yarn: { needs: 'factor originalContext', may: 'betaFast betaSlow extFactor truncate attnFactor mscale mscaleAllDim' },
  longrope: { needs: 'shortFactor longFactor originalContext context', may: 'factor' },
  llama3: { needs: 'factor lowFreqFactor highFreqFactor originalContext' },
  proportional: { needs: 'rotatedPairs', may: 'factor' },
};

/**
 * Writes a record as a plain JSON value.
 *
 * @param spec - a model's RoPE
 * @returns a fresh object; typed arrays become lists
 * @throws {RopewalkError} as planRope, for a record that is no RoPE
 */
export function specToJson(spec: RopeSpec): Record<string, unknown> {
  const given = readOptions(spec, 'rope: options');
  effectiveRope(given); // the checks
  const plain = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(plain);
    if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<number>);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(
      Object.entries(value)
        .filter(([, v]) => v !== undefined)
        .map(([k, v]) => [k, plain(v)]),
    );
  };
  const own = given as unknown as Record<string, unknown>;
  return plain(
    Object.fromEntries(SPEC_KEYS.filter((key) => own[key] !== undefined).map((key) => [key, own[key]])),
  ) as Record<string, unknown>;
}

/**
 * Reads a record from a parsed JSON value of unknown origin.
 *
 * @param json - an object with the names of RopeSpec
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a missing, misspelt or malformed field; RANGE, SHAPE or UNSUPPORTED for values that no RoPE can have
 */
export function specFromJson(json: unknown, where: string): RopeSpec {
  const f = new Fields(json, where);
  onlyKeys(f, SPEC_KEYS);
  const optional = <K extends string, T>(key: K, value: T | undefined): { [P in K]?: T } =>
    value === undefined ? {} : ({ [key]: value } as { [P in K]: T });
  const axes = f.optionalObject('axes');
  const scaling = f.optionalObject('scaling');
  const spec: RopeSpec = {
    headDim: f.integer('headDim', 1, 2 ** 20),
    ...optional('rotaryDim', f.optionalInteger('rotaryDim', 2, 2 ** 20)),
    ...optional('rotaryOffset', f.optionalInteger('rotaryOffset', 0, 2 ** 20)),
    pairing: f.oneOf('pairing', PAIRINGS),
    ...optional('axes', axes && axesFrom(axes)),
    base: f.number('base'),
    ...optional('frequencyDim', f.optionalPositive('frequencyDim')),
    ...optional('scaling', scaling && scalingFrom(scaling)),
    ...optional('freqFactors', f.optionalNumbers('freqFactors')),
    ...optional('attentionFactor', f.optionalNumber('attentionFactor')),
  };
  effectiveRope(spec);
  return spec;
}

function axesFrom(f: Fields): RopeAxes {
  onlyKeys(f, ['rule', 'sections']);
  return { rule: f.oneOf('rule', RULES), sections: f.integers('sections', 0, 2 ** 20) };
}

function scalingFrom(f: Fields): RopeScaling {
  const kind = f.oneOf('kind', Object.keys(SCALING) as RopeScaling['kind'][]);
  const { needs, may = '' } = SCALING[kind];
  const names = (list: string): string[] => list.split(' ').filter(Boolean);
  onlyKeys(f, ['kind', ...names(needs), ...names(may)]);
  const record: Record<string, unknown> = { kind };
  for (const key of [...names(needs), ...names(may)]) {
    const value =
      key.endsWith('Factor') && key.match(/^(short|long)F/)
        ? f.optionalNumbers(key)
        : key === 'truncate'
          ? f.optionalFlag(key)
          : f.optionalNumber(key);
    if (value === undefined && names(needs).includes(key)) refuse('FORMAT', f.path(key), 'a value', undefined);
    if (value !== undefined) record[key] = value;
  }
  return record as unknown as RopeScaling;
}

/** A misspelt name must not fall away. */
function onlyKeys(f: Fields, allowed: readonly string[]): void {
  for (const key of f.keys()) {
    if (!allowed.includes(key)) refuse('FORMAT', f.path(key), `one of ${allowed.join(', ')}`, key);
  }
}
