/**
 * Writes and reads Ropewalk's record as JSON, with the names of {@link RopeSpec}.
 *
 * @module
 */
import type { Pairing, RopeAxes, RopeScaling, RopeSpec } from 'ropewalk';
import type { AxisRule } from 'ropewalk/internal';
import { Fields, readOptions } from 'ropewalk/internal';
import { effectiveRope } from './effective.js';
import { onlyKeys, plainJson } from './form.js';

const PAIRINGS: readonly Pairing[] = ['interleaved', 'half', 'vision', 'interleaved-to-half'];
const RULES: readonly AxisRule[] = ['sections', 'interleaved', 'interleaved-ggml', 'vision'];
const SPEC_KEYS =
  'headDim rotaryDim rotaryOffset pairing axes base frequencyDim scaling freqFactors attentionFactor'.split(' ');
/** The required and the optional fields of each scaling rule. */
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
 * @throws {RopewalkError} as planRope, for a record that is not a RoPE
 */
export function specToJson(spec: RopeSpec): Record<string, unknown> {
  const given = readOptions(spec, 'rope: options');
  effectiveRope(given); // This checks the record.
  const own = Object.fromEntries(SPEC_KEYS.map((key) => [key, given[key as keyof RopeSpec]]));
  return plainJson(own) as Record<string, unknown>;
}

/**
 * Reads a record from a parsed JSON value of unknown origin.
 *
 * @param json - an object with the names of RopeSpec
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a missing, misspelt or malformed field; RANGE, SHAPE or UNSUPPORTED for impossible
 *   values
 */
export function specFromJson(json: unknown, where: string): RopeSpec {
  const f = new Fields(json, where);
  onlyKeys(f, SPEC_KEYS);
  const axes = f.optionalObject('axes');
  const scaling = f.optionalObject('scaling');
  const spec: RopeSpec = {
    headDim: f.integer('headDim', 1, 2 ** 20),
    rotaryDim: f.optionalInteger('rotaryDim', 2, 2 ** 20),
    rotaryOffset: f.optionalInteger('rotaryOffset', 0, 2 ** 20),
    pairing: f.oneOf('pairing', PAIRINGS),
    axes: axes && axesFrom(axes),
    base: f.number('base'),
    frequencyDim: f.optionalPositive('frequencyDim'),
    scaling: scaling && scalingFrom(scaling),
    freqFactors: f.optionalNumbers('freqFactors'),
    attentionFactor: f.optionalNumber('attentionFactor'),
  };
  effectiveRope(spec);
  return plainJson(spec) as RopeSpec;
}

function axesFrom(f: Fields): RopeAxes {
  onlyKeys(f, ['rule', 'sections']);
  return { rule: f.oneOf('rule', RULES), sections: f.integers('sections', 0, 2 ** 20) };
}

function scalingFrom(f: Fields): RopeScaling {
  const kind = f.oneOf('kind', Object.keys(SCALING) as RopeScaling['kind'][]);
  const [needs, may] = [SCALING[kind].needs, SCALING[kind].may ?? ''].map((list) => list.split(' ').filter(Boolean));
  const keys = [...needs!, ...may!];
  onlyKeys(f, ['kind', ...keys]);
  const read = (key: string): unknown => {
    if (key === 'shortFactor' || key === 'longFactor') return f.optionalNumbers(key);
    return key === 'truncate' ? f.optionalFlag(key) : f.optionalNumber(key);
  };
  const values = keys.map((key) => [key, needs!.includes(key) ? f.need(read(key), key) : read(key)]);
  return { kind, ...Object.fromEntries(values) } as RopeScaling;
}
