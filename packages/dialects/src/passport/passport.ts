/**
 * A model's RoPE in every form that it has and by every runtime that reads one: what each rotates, and what is wrong.
 *
 * @module
 */
import { type RopeSpec, RopewalkError } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkInteger, nameLayers, type OptionNames, optionNames, readList, readOptions } from 'ropewalk/internal';
import { compareModels, type ModelComparison } from '../convert/compare-models.js';
import { convertRope } from '../convert/convert.js';
import { effectiveRope } from '../convert/effective.js';
import { describeLayers } from '../describe-layers.js';
import { groupLayers, longestOf, type ModelRope, readModelRope } from '../model-rope.js';
import { lintConfig, lintGguf, type PassportFinding, refused } from './lint.js';
import { type PassportForm, type PassportReading, readingsOf } from './readings.js';
import { served } from './serve.js';

export type { PassportForm } from './readings.js';

/** A reading beside the first one, that of the first form's own runtime. */
export interface ComparedReading extends PassportReading {
  /** Undefined for the first reading, and for one that fails. */
  readonly comparison: ModelComparison | undefined;
  /** The tokens of the long text in which it parts from the first; undefined where a short one shows it, and without one. */
  readonly tokens?: number;
  readonly same: boolean;
  /** How far the scores of q and k are off, on average, at distances in tokens; empty where nothing is. */
  readonly scores: readonly { readonly distance: number; readonly error: number }[];
}

/** The result of {@link passportOf}. */
export interface Passport {
  readonly readings: readonly ComparedReading[];
  readonly findings: readonly PassportFinding[];
  /**
   * The RoPE of the first reading as a text that stays the same through conversions: frequencies to seven digits,
   * magnitude, sizes and axes of every kind of layer, but no pairing, which conversions permute. Undefined without one.
   */
  readonly table: string | undefined;
}

/** Options of {@link passportOf}. */
export interface PassportOptions {
  /** Lines of servers with their arguments: `llama-server --rope-scale 4`. Each is applied to the first form it reads. */
  readonly serve?: readonly string[];
  /** The tokens in use, for scaling that depends on them. */
  readonly context?: number;
}

const NAMES: OptionNames<PassportOptions> = /* @__PURE__ */ optionNames('serve context');
/** The distances at which scores are compared, in tokens. */
const DISTANCES = [1, 64, 1024, 8192, 32768, 131072];

/**
 * Reads every form of a model as its runtimes do, and compares them with the first.
 *
 * @param forms - at least one, of one model
 * @param given - arguments of servers, and the context
 * @throws {RopewalkError} FORMAT or RANGE for arguments that are no forms, FORMAT for a line of a server that it refuses
 * @example
 * const { findings } = passportOf([{ name: 'config.json', json: JSON.parse(text) }]);
 * for (const { level, where, says } of findings) console.log(level, where, says);
 */
export function passportOf(forms: readonly PassportForm[], given: PassportOptions = {}): Passport {
  const options = readOptions(given, 'passport: options', NAMES);
  const { context } = options;
  if (context !== undefined) checkInteger(context, 'passport: context', 1);
  const list = Array.from(readList(forms, 'passport: forms'), (form) => readForm(form));
  if (list.length === 0) refuse('RANGE', 'passport: forms', 'at least one form', forms);
  const lines = options.serve === undefined ? [] : Array.from(readList(options.serve, 'passport: serve'), readLine);
  const findings: PassportFinding[] = [];
  const readings: PassportReading[] = [];
  const tryReading = (form: PassportForm, as?: Pick<PassportReading, 'reader' | 'why' | 'source'>): void => {
    try {
      const [own, ...others] = readingsOf(form, context);
      if (as === undefined) findings.push(...lintOf(form, own!.model!));
      tableText(own!.model!); // refuses what no runtime can rotate by
      readings.push({ ...own!, ...as });
      if (as === undefined) readings.push(...others);
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error;
      findings.push(refused(error, as?.reader ?? form.name));
    }
  };
  for (const form of list) tryReading(form);
  const isRead = readings[0]?.form === list[0]!.name;
  for (const line of lines) {
    const { form, server, arguments: used, notes, source } = servedBy(list, line);
    tryReading(form, { reader: `${server} ${used.join(' ')}`, why: notes, source });
  }
  // Another form, or a server's line, is not the maker's, so nothing is compared with it.
  const first = isRead ? readings[0] : undefined;
  const short = readings.map((one) => (first ? comparedWith(first, one) : { ...one, ...UNCOMPARED }));
  const compared = first && context === undefined ? short.map((one) => inLongTexts(list, first, one)) : short;
  if (first) for (const one of compared.slice(1)) findings.push(...findingOf(first, one));
  const order = ['error', 'warning', 'note'];
  findings.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
  return { readings: compared, findings, table: first?.model && tableText(first.model) };
}

/** A reading in words: a line for each kind of layer, and how far its scores are off. */
export function describeReading({ model, comparison, same, scores }: ComparedReading): string[] {
  if (!model) return ['fails'];
  if (comparison && same) return ['the same'];
  const off = scores.map(({ distance, error }) => `${percent(error)} at ${distance}`);
  return [...describeLayers(model.layers), ...(off.length > 0 ? [`q·k off by ${off.join(', ')}`] : [])];
}

const percent = (value: number): string => (value < 0.001 ? '< 0.1 %' : `${Number((100 * value).toPrecision(2))} %`);

function readForm(given: PassportForm): PassportForm {
  const form = readOptions(given, 'passport: forms');
  if (typeof form.name !== 'string' || form.name === '') refuse('RANGE', 'passport: forms: name', 'a name', form.name);
  const where = `passport: forms: ${form.name}`;
  if ('model' in form) {
    if (typeof form.reader !== 'string') refuse('RANGE', `${where}: reader`, 'the name of its reader', form.reader);
    return { ...form, model: readModelRope(form.model, `${where}: model`) };
  }
  const has = 'json' in form ? form.json : (form as { header?: unknown }).header;
  if (typeof has !== 'object' || has === null) refuse('RANGE', where, 'json, header or model', has);
  return form;
}

function readLine(line: unknown): string {
  return typeof line === 'string' ? line : refuse('RANGE', 'passport: serve', 'a line of text', line);
}

/** Applies a server's line to the first form that the server reads. */
function servedBy(forms: readonly PassportForm[], line: string): ReturnType<typeof served> {
  let last: unknown;
  for (const form of forms)
    try {
      return served(form, line);
    } catch (error) {
      if (!(error instanceof RopewalkError && error.code === 'UNSUPPORTED')) throw error;
      last = error;
    }
  throw last;
}

function lintOf(form: PassportForm, model: ModelRope): PassportFinding[] {
  if ('model' in form) return [];
  return 'header' in form ? lintGguf(form.header, model, form.name) : lintConfig(form.json, model, form.name);
}

const UNCOMPARED = { comparison: undefined, same: false, scores: [] } as const;

function comparedWith(first: PassportReading, one: PassportReading): ComparedReading {
  if (one === first) return { ...one, comparison: undefined, same: true, scores: [] };
  if (!one.model) return { ...one, ...UNCOMPARED };
  const [a, b] = [first, one].map(({ model }) => ({ rope: model!, recipe: 'float64' as const })) as [Side, Side];
  let comparison: ModelComparison;
  try {
    comparison = compareModels(a, b, [1]);
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return { ...one, model: undefined, ...UNCOMPARED };
  }
  const worst = comparison.groups.find(({ same, a: own, b: other }) => !same && own && other);
  return { ...one, comparison, same: comparison.same, scores: worst ? scoresOf(worst.a!, worst.b!, first.model!) : [] };
}

/**
 * Compares a form that agrees with the first in short texts in long ones too, where the scaling of one depends on the
 * tokens in use.
 */
function inLongTexts(forms: readonly PassportForm[], first: PassportReading, one: ComparedReading): ComparedReading {
  const longest = one.same ? (longestOf(first.model!) ?? longestOf(one.model!)) : undefined;
  if (one.form === first.form || isServed(one) || !longest || longest.context <= longest.short) return one;
  const [a, b] = [first, one].map(({ form: name, reader }) =>
    readLong(forms.find((form) => form.name === name)!, longest.context).find((other) => other.reader === reader),
  );
  const long = a && b && comparedWith(a, b);
  if (!long?.comparison || long.same) return one;
  const why = `Up to ${longest.short} tokens it rotates alike; in a text of ${longest.context} tokens it does not.`;
  return { ...long, tokens: longest.context, why: [...one.why, why] };
}

/** The readings of a form for a long text; none where only those for short texts are possible. */
function readLong(form: PassportForm, context: number): readonly PassportReading[] {
  try {
    return readingsOf(form, context);
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return [];
  }
}

interface Side {
  readonly rope: ModelRope;
  readonly recipe: 'float64';
}

/**
 * Computes the root mean square error of q·k at each distance, over random q and k, relative to that of the right scores:
 * the frequencies and magnitudes of a pair turn q·k by d·θ and multiply it by g².
 */
function scoresOf(a: RopeSpec, b: RopeSpec, { maxContext }: ModelRope): ComparedReading['scores'] {
  const [one, other] = [effectiveRope(a), effectiveRope(b)];
  const half = one.headDim / 2;
  const [g, h] = [one.attentionFactor ** 2, other.attentionFactor ** 2];
  const frequency = (rope: typeof one, j: number): number => rope.invFreq[j] ?? 0;
  return DISTANCES.filter((distance) => distance < (maxContext ?? 8193)).map((distance) => {
    let off = 0;
    let all = 0;
    for (let j = 0; j < half; j++) {
      const [p, q] = [j < one.invFreq.length ? g : 1, j < other.invFreq.length ? h : 1];
      const turn = distance * (frequency(one, j) - frequency(other, j));
      off += p * p + q * q - 2 * p * q * Math.cos(turn);
      all += p * p;
    }
    return { distance, error: Math.sqrt(Math.max(0, off) / all) };
  });
}

function findingOf(first: PassportReading, one: ComparedReading): PassportFinding[] {
  const { source } = one;
  const where = `${one.form}, ${one.reader}`;
  if (!one.model)
    return [
      {
        level: 'warning',
        where,
        says: `${[...one.why, ''].join(' ')}This form fails there.`,
        ...repairOf(first, one),
        source,
      },
    ];
  if (one.same)
    return isServed(one) && one.why.length > 0 ? [{ level: 'warning', where, says: one.why.join(' '), source }] : [];
  const level = levelOf(first, one);
  const says = one
    .comparison!.groups.filter(({ same }) => !same)
    .map(({ layers, comparison, verdict }) => {
      const rows = comparison?.rows.filter(({ differs }) => differs) ?? [];
      const values = rows.map(({ name, a, b }) => `${name} ${b} instead of ${a}`).join(', ');
      // The verdict takes one side for wrong in texts of every length; a choice of today's runtimes is neither.
      const effects = (one.tokens === undefined && level !== 'note' ? verdict : []).map((words) =>
        words.replace(/\bA\b/g, 'the first reading').replace(/\bB\b/g, 'this one'),
      );
      return [`${sentence(nameLayers(layers))}:`, ...(values ? [`${values}.`] : []), ...effects.map(sentence)].join(
        ' ',
      );
    });
  const notes = one.comparison!.notes.filter((note) => note.includes('only the first'));
  return [{ level, where, says: [...one.why, ...says, ...notes].join(' '), ...repairOf(first, one), source }];
}

const isServed = ({ reader }: PassportReading): boolean => / --/.test(reader);

/** Another form that rotates otherwise is an error; an older reader or an argument is a warning; a choice of today's a note. */
function levelOf(first: PassportReading, one: PassportReading): PassportFinding['level'] {
  if (isServed(one) || !one.current) return 'warning';
  return one.form === first.form ? 'note' : 'error';
}

/** The field to write so that a reader rotates as the first does. */
function repairOf(first: PassportReading, one: PassportReading): { repair?: string } {
  const spec = first.model!.layers.find(({ rope }) => rope)?.rope;
  if (!spec || isServed(one)) return {};
  if (one.current && one.form === first.form) return {};
  if (one.source === undefined) return { repair: 'Write this form again from the first one.' };
  const kinds = groupLayers(first.model!.layers).filter(({ rope }) => rope).length;
  if (kinds > 1) return { repair: 'Write the fields of each kind of layer in this form, or convert the model again.' };
  const toGguf = one.model?.source === 'gguf';
  const { architecture } = (toGguf ? one : first).model!;
  try {
    const { arguments: written } = convertRope(
      spec,
      ...((toGguf ? ['gguf', { architecture }] : ['huggingface', { modelType: architecture }]) as Target),
    );
    const fields = (toGguf ? written : (written.config_before_transformers_5 ?? written.config)) as object;
    const words = Object.entries(fields)
      .filter(([key, value]) => /rope|theta|partial/.test(key) && value !== null)
      .map(([key, value]) => {
        const text = JSON.stringify(value, (_key, part) =>
          Array.isArray(part) && part.length > MAX_LISTED
            ? `the ${part.length} numbers that convert --json prints`
            : part,
        );
        return toGguf ? `${key} = ${text}` : `"${key}": ${text}`;
      });
    return words.length > 0 ? { repair: `Write ${words.join(', ')}.` } : {};
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return { repair: `This form cannot say it: ${error.message}` };
  }
}

/** Longer lists are not printed in a sentence. */
const MAX_LISTED = 16;

type Target = [peer: string, options: { architecture?: string; modelType?: string }];

const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

function tableText(model: ModelRope): string {
  const kinds = groupLayers(model.layers).map(({ layers, rope }) => {
    if (!rope) return { layers, rope: null };
    const { rotaryDim, rotaryOffset, invFreq, attentionFactor, axisOfPair, numAxes } = effectiveRope(rope);
    const digits = (value: number): string => value.toPrecision(7);
    return {
      layers,
      rotaryDim,
      rotaryOffset,
      magnitude: digits(attentionFactor),
      frequencies: Array.from(invFreq, digits),
      ...(numAxes > 1 ? { axes: Array.from(axisOfPair) } : {}),
    };
  });
  return JSON.stringify(kinds);
}
