/** The arguments of servers that change a model's RoPE: llama-server, vLLM, SGLang, TGI. @module */
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean } from 'ropewalk/internal';
import type { PassportForm } from './readings.js';

type Json = Record<string, unknown>;

/** Changes a form as an argument's value says. `note` takes what is surprising in it, in full sentences. */
type Change = (form: PassportForm, value: string, where: string, note: (sentence: string) => void) => PassportForm;

const number = (value: string, where: string): number => {
  const parsed = Number(value);
  return value.trim() !== '' && Number.isFinite(parsed) ? parsed : refuse('FORMAT', where, 'a number', value);
};
const object = (value: string, where: string): Json => {
  try {
    const parsed: unknown = JSON.parse(value);
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) return parsed as Json;
  } catch {}
  return refuse('FORMAT', where, 'an object as JSON', value);
};

/** Writes a key of a GGUF, as llama.cpp's argument wins over it. */
const ggufKey =
  (key: string, of: (value: string, where: string) => unknown): Change =>
  (form, value, where) => {
    if (!('header' in form)) fail('UNSUPPORTED', where, `llama-server reads a GGUF, and ${form.name} is none.`);
    const architecture = String(form.header.metadata.get('general.architecture'));
    const metadata = new Map([...form.header.metadata, [`${architecture}.${key}`, of(value, where)] as const]);
    return { ...form, header: { ...form.header, metadata } };
  };

/**
 * Writes the keys of `--override-kv KEY=TYPE:VALUE,…`.
 *
 * @see ggml-org/llama.cpp common/common.cpp (`string_parse_kv_override`)
 */
const overrideKv: Change = (form, value, where) => {
  const given = value.split(/,(?=[^,=]+=(?:int|float|bool|str):)/).map((one): [string, unknown] => {
    const [, key, type, text] =
      /^([^=]+)=(int|float|bool|str):(.*)$/s.exec(one) ??
      refuse('FORMAT', where, 'KEY=TYPE:VALUE with the type int, float, bool or str', one);
    if (type === 'bool' && text !== 'true' && text !== 'false') refuse('FORMAT', where, 'true or false', text);
    return [key!, type === 'str' ? text : type === 'bool' ? text === 'true' : number(text!, where)];
  });
  if (!('header' in form)) fail('UNSUPPORTED', where, `llama-server reads a GGUF, and ${form.name} is none.`);
  return { ...form, header: { ...form.header, metadata: new Map([...form.header.metadata, ...given]) } };
};

/** Reads the config that a server reads. */
function jsonOf(form: PassportForm, where: string): Json {
  if (!('json' in form))
    return fail('UNSUPPORTED', where, `this server reads a config.json, and ${form.name} is none.`);
  return form.json as Json;
}

/** Changes a config's language model. */
const config =
  (change: (fields: Json, value: string, where: string) => Json): Change =>
  (form, value, where) => {
    const outer = jsonOf(form, where);
    const inner = outer.text_config as Json | undefined;
    const json = inner ? { ...outer, text_config: change(inner, value, where) } : change(outer, value, where);
    return { ...form, json };
  };

/** Merges an override as SGLang does: its fields win, objects are replaced whole. */
const override = config((fields, value, where) => {
  const { text_config: nested, ...given } = object(value, where);
  const own = { ...given, ...(nested as Json | undefined) };
  const replaced = 'rope_scaling' in own || 'rope_parameters' in own;
  const { rope_scaling: scaling, rope_parameters: parameters, ...rest } = fields;
  // One of the two forms replaces the other.
  return { ...rest, ...(replaced ? {} : { rope_scaling: scaling, rope_parameters: parameters }), ...own };
});

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** The record that transformers 5 makes of a config's fields. */
function recordOf(own: Json): Json {
  const { rope_parameters: parameters, rope_scaling: scaling, rope_theta } = own;
  if (isObject(parameters)) return parameters;
  const { type, ...rest } = isObject(scaling) ? scaling : {};
  return { rope_type: type ?? 'default', ...rest, ...(rope_theta !== undefined && { rope_theta }) };
}

/** Merges objects in objects. */
const merged = (own: Json, given: Json): Json => ({
  ...own,
  ...Object.fromEntries(
    Object.entries(given).map(([key, value]) => {
      const before = own[key];
      return [key, isObject(value) && isObject(before) ? merged(before, value) : value];
    }),
  ),
});

/**
 * Sets fields as vLLM does, on the config that transformers 5 has made, whose base is in rope_parameters already. Objects
 * replace others, but in text_config they are merged. Checked with a server of vLLM 0.32.0.
 *
 * @see vllm-project/vllm@v0.32.0 vllm/config/model.py (`_apply_dict_overrides`), vllm/transformers_utils/config.py
 */
const overrideOfVllm: Change = (form, value, where, note) => {
  const json = jsonOf(form, where);
  const { text_config: nested, ...given } = object(value, where);
  const inner = json.text_config as Json | undefined;
  const beside = inner && Object.keys(given).find((key) => /^rope_/.test(key));
  if (beside)
    note(`vLLM sets ${beside} beside text_config, where the model does not read it. Write it in text_config.`);
  const { rope_theta: theta, ...set } = ((inner ? nested : given) ?? {}) as Json;
  if (theta !== undefined)
    note(
      'vLLM does not read this rope_theta, because transformers 5 keeps the base in rope_parameters. Write it there.',
    );
  const own = inner ?? json;
  let fields: Json = { ...own, ...set };
  // Both names are one attribute of the config: the last wins.
  const replaced = Object.keys(set).findLast((key) => key === 'rope_parameters' || key === 'rope_scaling');
  if (replaced !== undefined) {
    const { rope_scaling: _scaling, rope_theta: _theta, ...rest } = fields;
    const parameters = (set[replaced] ?? { rope_type: 'default' }) as Json;
    /** Adds what vLLM takes where a record lacks it. */
    const whole = (record: Json): Json => {
      if (typeof record.rope_type !== 'string')
        refuse('FORMAT', `${where}: ${replaced}`, 'an object with rope_type, without which vLLM fails', record);
      if (record.rope_theta === undefined && recordOf(own).rope_theta !== 10000)
        note(
          `vLLM replaces rope_parameters whole, and takes the base 10000 without rope_theta. Write rope_theta in ${replaced}.`,
        );
      return { rope_theta: 10000, ...record };
    };
    const kinds = Object.entries(parameters);
    let made: Json;
    if (inner && set[replaced]) made = merged(recordOf(own), parameters);
    else if (kinds.length > 0 && kinds.every(([, kind]) => isObject(kind)))
      made = Object.fromEntries(kinds.map(([name, kind]) => [name, whole(kind as Json)]));
    else made = whole(parameters);
    fields = { ...rest, rope_parameters: made };
  }
  return { ...form, json: inner ? { ...json, text_config: fields } : fields };
};

const scalingFields = (fields: Json): Json => (fields.rope_scaling ?? fields.rope_parameters ?? {}) as Json;
const theta = config(({ rope_parameters: parameters, ...fields }, value, where) => {
  const rope_theta = number(value, where);
  return parameters
    ? { ...fields, rope_parameters: { ...(parameters as Json), rope_theta } }
    : { ...fields, rope_theta };
});

/** An argument that vLLM of today does not have. */
const removed =
  (change: Change): Change =>
  (form, value, where, note) => {
    note('vLLM 0.32.0 does not have this argument, older releases did: use --hf-overrides.');
    return change(form, value, where, note);
  };

/** The arguments of each server that change the RoPE. @see the servers' --help of November 2026 */
const SERVERS: Readonly<Record<string, Readonly<Record<string, Change>>>> = {
  'llama-server': {
    '--rope-scaling': ggufKey('rope.scaling.type', (value, where) =>
      ['none', 'linear', 'yarn'].includes(value) ? value : refuse('FORMAT', where, 'none, linear or yarn', value),
    ),
    '--rope-scale': ggufKey('rope.scaling.factor', number),
    '--rope-freq-scale': ggufKey('rope.scaling.factor', (value, where) => 1 / number(value, where)),
    '--rope-freq-base': ggufKey('rope.freq_base', number),
    '--yarn-orig-ctx': ggufKey('rope.scaling.original_context_length', number),
    '--yarn-ext-factor': ggufKey('rope.scaling.yarn_ext_factor', number),
    '--yarn-attn-factor': ggufKey('rope.scaling.yarn_attn_factor', number),
    '--yarn-beta-slow': ggufKey('rope.scaling.yarn_beta_slow', number),
    '--yarn-beta-fast': ggufKey('rope.scaling.yarn_beta_fast', number),
    '--override-kv': overrideKv,
  },
  vllm: {
    '--hf-overrides': overrideOfVllm,
    '--rope-scaling': removed(
      config((fields, value, where) => ({
        ...fields,
        rope_parameters: undefined,
        rope_scaling: object(value, where),
      })),
    ),
    '--rope-theta': removed(theta),
  },
  sglang: { '--json-model-override-args': override },
  'text-generation-launcher': {
    '--rope-scaling': config((fields, value, where) => {
      if (!['linear', 'dynamic'].includes(value)) refuse('FORMAT', where, 'linear or dynamic', value);
      return {
        ...fields,
        rope_scaling: { factor: 1, ...scalingFields(fields), rope_type: value, type: undefined },
        rope_parameters: undefined,
      };
    }),
    '--rope-factor': config((fields, value, where) => ({
      ...fields,
      rope_scaling: { ...scalingFields(fields), factor: number(value, where) },
      rope_parameters: undefined,
    })),
  },
};
/** Other names of the same servers. */
const NAMES: Readonly<Record<string, string>> = { tgi: 'text-generation-launcher', 'llama-cli': 'llama-server' };

/** A server's arguments that change RoPE, and what it reads then. */
export interface Served {
  readonly server: string;
  readonly arguments: readonly string[];
  /** Where its code is, or what says so. */
  readonly source: string;
  /** Surprises of these arguments, in full sentences. */
  readonly notes: readonly string[];
  readonly form: PassportForm;
}

/**
 * Applies the arguments of a server to a form. Arguments that do not change the RoPE are passed over.
 *
 * @param line - such as `llama-server --rope-scaling yarn --rope-scale 4` or `vllm --hf-overrides '{"rope_theta": 1e6}'`
 * @throws {RopewalkError} FORMAT for a value that the server would refuse, or a server that is not known; UNSUPPORTED for
 *   a form that it does not read
 */
export function served(form: PassportForm, line: string): Served {
  const words = wordsOf(line);
  const [first = ''] = words;
  const server = NAMES[first] ?? first;
  const known =
    SERVERS[server] ??
    refuse(
      'FORMAT',
      '--serve',
      `${Object.keys(SERVERS).join(', ')} or tgi, and its arguments`,
      first,
      didYouMean(first, Object.keys(SERVERS)),
    );
  const used: string[] = [];
  const notes: string[] = [];
  const changes: [flag: string, value: string, change: Change][] = [];
  for (let n = 1; n < words.length; n++) {
    const [flag, inline] = words[n]!.startsWith('--') ? splitAt(words[n]!) : [words[n]!, undefined];
    const change = Object.hasOwn(known, flag) ? known[flag] : undefined;
    if (!change) {
      if (/rope|yarn|override/.test(flag) && flag.startsWith('--'))
        refuse(
          'FORMAT',
          '--serve',
          `an argument of ${server} that is known here: ${Object.keys(known).join(', ')}`,
          flag,
          didYouMean(flag, Object.keys(known)),
        );
      continue;
    }
    const value = inline ?? words[++n] ?? fail('FORMAT', '--serve', `${flag} needs a value.`);
    changes.push([flag, value, change]);
    used.push(`${flag} ${value}`);
  }
  if (used.length === 0)
    fail(
      'FORMAT',
      '--serve',
      `no argument of ${server} in it changes the RoPE. Those that do: ${Object.keys(known).join(', ')}.`,
    );
  // llama-server overrides the file's keys when it loads, and its other arguments win over them.
  changes.sort(([a], [b]) => Number(b === '--override-kv') - Number(a === '--override-kv'));
  let now = form;
  for (const [flag, value, change] of changes)
    now = change(now, value, `--serve: ${flag}`, (sentence) => notes.push(sentence));
  const source = server === 'vllm' ? 'vllm-project/vllm@v0.32.0' : `${server} --help`;
  return { server, arguments: used, source, notes, form: now };
}

function splitAt(word: string): [flag: string, value: string | undefined] {
  const at = word.indexOf('=');
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}

/** The words of a shell line: quotes keep blanks. */
function wordsOf(line: string): string[] {
  return [...line.matchAll(/(?:'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"])+/g)].map(([word]) =>
    word.replace(
      /'([^']*)'|"((?:\\.|[^"\\])*)"/g,
      (_all, single: string | undefined, double: string | undefined) => single ?? double!.replace(/\\(.)/g, '$1'),
    ),
  );
}
