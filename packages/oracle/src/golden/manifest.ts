/** The manifest of a golden folder, written and read. @module */
import { type Dtype, frequenciesOf, type RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { countElements, type Fields, sharePairs, show } from 'ropewalk/internal';
import { readDtype, readTolerance } from '../folder.js';
import { boundedShape } from '../host.js';
import { angleRoundings, type TablePrecision } from '../verify/rope-model.js';
import { GOLDEN_OPS, type GoldenCase, type GoldenRope, type Json } from './case.js';

/** The first field of every manifest. */
const GOLDEN_FORMAT = 'ropewalk-vectors-1';

/** The forms in which tensors are stored in a folder, in the order in which a reader prefers them. */
export const GOLDEN_FORMS = ['npy', 'bin', 'safetensors', 'npz', 'onnx', 'c'] as const;
/** One of {@link GOLDEN_FORMS}. */
export type GoldenForm = (typeof GOLDEN_FORMS)[number];

/** A tensor in a manifest. */
export interface GoldenTensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** The hash of the elements, little-endian and row-major, in hexadecimal. The file's form does not change it. */
  readonly sha256: string;
  /** The path of the file by form. */
  readonly files: Readonly<Partial<Record<GoldenForm, string>>>;
  /** The files with the bound of each element of an output, and the precision of RoPE's angles that they allow. */
  readonly bounds?: Pick<GoldenTensor, 'files'> & { readonly table?: TablePrecision };
  /** The elements of a small tensor of integers. */
  readonly values?: readonly number[];
}

/** A case in a manifest. */
export interface GoldenEntry
  extends Pick<GoldenCase, 'id' | 'op' | 'about' | 'separates' | 'attributes' | 'tolerance' | 'rope' | 'call'> {
  readonly inputs: readonly GoldenTensor[];
  readonly outputs: readonly GoldenTensor[];
}

/** The manifest of a golden folder. */
export interface GoldenManifest {
  /** The program that wrote the folder, and its version. */
  readonly generator: string;
  readonly seed: number;
  readonly cases: readonly GoldenEntry[];
  /** The cases that a form cannot express, with the reason. */
  readonly skipped: readonly { readonly id: string; readonly form: GoldenForm; readonly reason: string }[];
}

const ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const NAME = /^[A-Za-z_][A-Za-z0-9_]{0,63}$/;
/** The fields that a spec may have. Others, such as a recipe, would change the exact result. */
export const SPEC_KEYS: readonly string[] = [
  'headDim',
  'rotaryDim',
  'rotaryOffset',
  'pairing',
  'axes',
  'base',
  'frequencyDim',
  'scaling',
  'freqFactors',
  'attentionFactor',
] satisfies readonly (keyof RopeSpec)[];
/** The most angles of a case, whose table is then a gigabyte. */
const MAX_ANGLES = 2 ** 26;

/** Says whether a text can name a case, and so a file. */
export function isGoldenId(id: unknown): id is string {
  return typeof id === 'string' && ID.test(id) && !id.includes('..');
}

/** Writes a manifest as indented JSON, with short lists on one line. */
export function formatManifest(manifest: GoldenManifest): string {
  // The attributes have `rope` already. Readers that know no RoPE need what follows from it.
  const cases = manifest.cases.map(({ rope, ...entry }) => ({ ...entry, rope: rope && followsFrom(rope) }));
  return `${formatJson({ format: GOLDEN_FORMAT, ...manifest, cases } as unknown as Json, '')}\n`;
}

function followsFrom(rope: GoldenRope): Record<string, Json> {
  const roundings = Array.from(angleRoundings(rope.spec, 'f32'), (k) => Number(k.toPrecision(6)));
  return { ...turnsOf(rope), angleRoundings: roundings };
}

/** Computes what follows from a spec, for programs that know no scaling and no axes. Vision's pairs are halves. */
export function turnsOf(rope: GoldenRope): Record<string, Json> {
  const { headDim, rotaryDim = headDim, rotaryOffset = 0, pairing, axes, base, scaling } = rope.spec;
  const { invFreq, attentionFactor: magnitude } = frequenciesOf(rope.spec);
  const { numAxes, axisOfPair } = sharePairs(axes, rotaryDim / 2);
  const form = pairing === 'vision' ? 'half' : pairing;
  const ofPairs = { invFreq: [...invFreq], axisOfPair: [...axisOfPair] };
  const given = { base, scaling: scaling?.kind ?? 'none', beyond: beyondBase(rope) };
  return { pairing: form, rotaryDim, rotaryOffset, magnitude, numAxes, ...given, ...ofPairs };
}

/** Names what a case needs beyond rope(q, positions, base), as such a kernel's reason to skip it; '' for nothing. */
function beyondBase({ spec, direction, layout, parts }: GoldenRope): string {
  const { scaling = { kind: 'none' }, attentionFactor = 1, pairing } = spec;
  const needs = [
    scaling.kind !== 'none' && `${scaling.kind} scaling`,
    spec.freqFactors && 'freq_factors',
    attentionFactor !== 1 && 'attention_factor',
    spec.axes && 'M-RoPE',
    spec.frequencyDim !== undefined && 'frequency_dim',
    spec.rotaryOffset && 'rotary_offset',
    pairing === 'interleaved-to-half' && `${pairing} pairing`,
    direction === 'backward' && 'backward',
    layout === 'bnsh' && 'heads before tokens',
    parts.some(({ weight }) => weight !== undefined) && 'a norm',
    parts.some(({ cache }) => cache !== undefined) && 'a cache',
  ].filter(Boolean);
  return needs.length > 0 ? `needs ${needs.join(', ')}` : '';
}

function formatJson(value: Json, indent: string): string {
  const short = JSON.stringify(value);
  if (typeof value !== 'object' || value === null || short.length <= 100) return short;
  const deeper = `${indent}  `;
  if (Array.isArray(value)) {
    if (value.every((item) => typeof item !== 'object')) return short;
    return `[\n${value.map((item) => deeper + formatJson(item, deeper)).join(',\n')}\n${indent}]`;
  }
  const items = Object.entries(value).filter(([, item]) => item !== undefined);
  return `{\n${items.map(([key, item]) => `${deeper}${JSON.stringify(key)}: ${formatJson(item, deeper)}`).join(',\n')}\n${indent}}`;
}

/** Reads a manifest. @throws {RopewalkError} FORMAT when it is malformed, names a case twice, or has absurd sizes */
export function parseGoldenManifest(fields: Fields): GoldenManifest {
  fields.oneOf('format', [GOLDEN_FORMAT]);
  const seen = new Set<string>();
  const cases = fields.objects('cases').map((f) => {
    const entry = parseEntry(f);
    if (seen.has(entry.id)) fail('FORMAT', `${f.where}.id`, `two cases have the id ${show(entry.id)}`);
    seen.add(entry.id);
    return entry;
  });
  const skipped = (fields.has('skipped') ? fields.objects('skipped') : []).map((f) => ({
    id: f.text('id'),
    form: f.oneOf('form', GOLDEN_FORMS),
    reason: f.text('reason'),
  }));
  return { generator: fields.text('generator'), seed: fields.number('seed'), cases, skipped };
}

function parseEntry(f: Fields): GoldenEntry {
  const id = f.text('id');
  if (!isGoldenId(id)) refuse('FORMAT', `${f.where}.id`, 'up to 100 letters, digits, -, _ and .', id);
  const op = f.oneOf('op', GOLDEN_OPS);
  const names = new Set<string>();
  const tensors = (key: string): GoldenTensor[] =>
    f.objects(key).map((t) => {
      const tensor = parseTensor(t);
      if (names.has(tensor.name))
        fail('FORMAT', `${t.where}.name`, `two tensors of the case are named ${show(tensor.name)}`);
      names.add(tensor.name);
      return tensor;
    });
  const inputs = tensors('inputs');
  const outputs = tensors('outputs');
  const [attributes, t] = [f.object('attributes'), f.object('tolerance')];
  const given = t.object('parameters');
  const parameters = Object.fromEntries(given.keys().map((key) => [key, given.number(key)]));
  const separates = f.optionalList('separates') ?? [];
  if (!separates.every((text) => typeof text === 'string'))
    refuse('FORMAT', f.path('separates'), 'a list of strings', separates);
  return {
    id,
    op,
    about: f.optionalText('about') ?? '',
    separates: separates as string[],
    attributes: Object.fromEntries(attributes.keys().map((key) => [key, attributes.raw(key) as Json])),
    inputs,
    outputs,
    tolerance: { formula: t.text('formula'), parameters, from: t.text('from'), ...readTolerance(t) },
    rope: op === 'rope' ? parseRope(attributes, inputs) : undefined,
  };
}

function parseTensor(t: Fields): GoldenTensor {
  const name = t.text('name');
  if (!NAME.test(name)) refuse('FORMAT', `${t.where}.name`, 'a letter, then up to 63 letters, digits and _', name);
  const dtype = readDtype(t);
  const shape = boundedShape(t.integers('shape'), t.path('shape'));
  const sha256 = t.text('sha256');
  if (!/^[0-9a-f]{64}$/.test(sha256)) refuse('FORMAT', t.path('sha256'), '64 hexadecimal digits', sha256);
  const given = t.object('files');
  const files: Partial<Record<GoldenForm, string>> = {};
  for (const form of GOLDEN_FORMS) if (given.has(form)) files[form] = given.text(form);
  const values = t.has('values') ? t.integers('values', Number.MIN_SAFE_INTEGER) : undefined;
  if (values && values.length !== countElements(shape))
    refuse('FORMAT', t.path('values'), `${countElements(shape)} values`, values.length);
  return { name, dtype, shape, sha256, files, values };
}

function parseRope(f: Fields, inputs: readonly GoldenTensor[]): GoldenRope {
  const parts = f.objects('parts').map((p) => ({
    x: p.text('x'),
    out: p.text('out'),
    cache: p.optionalText('cache'),
    rows: p.optionalText('rows'),
    weight: p.optionalText('weight'),
    eps: p.optionalNumber('eps'),
  }));
  const spec = f.object('spec');
  for (const key of spec.keys()) {
    if (!SPEC_KEYS.includes(key) || spec.raw(key) === null)
      refuse('FORMAT', spec.where, `values for some of ${SPEC_KEYS.join(', ')}`, key);
  }
  // planRope checks the rest when the case is bound. Only its allocations are limited here.
  const angles =
    (spec.integer('headDim') / 2) * countElements(inputs.find(({ name }) => name === 'positions')?.shape ?? []);
  if (!(angles <= MAX_ANGLES)) refuse('FORMAT', spec.where, `at most ${MAX_ANGLES} angles`, angles);
  return {
    spec: Object.fromEntries(spec.keys().map((key) => [key, spec.raw(key)])) as unknown as RopeSpec,
    direction: f.oneOf('direction', ['forward', 'backward']),
    layout: f.oneOf('layout', ['bsnh', 'bnsh']),
    parts,
  };
}
