/** Finds what is wrong or doubtful in one form of a model, without another to compare it with. @module */
import type { RopewalkError } from 'ropewalk';
import { Fields } from 'ropewalk/internal';
import type { GgufHeader } from '../gguf.js';
import type { ModelRope } from '../model-rope.js';
import { fieldsOf } from './readings.js';

/** One finding. */
export interface PassportFinding {
  /** An error: some runtime of today rotates otherwise than the maker meant, or fails. A warning: an older one does, or may. */
  readonly level: 'error' | 'warning' | 'note';
  /** The form, and a field where one is to blame: `config.json: rope_scaling.factor`. */
  readonly where: string;
  /** A full sentence. */
  readonly says: string;
  /** The next step, in full sentences; undefined for none. */
  readonly repair?: string;
  /** `repo@commit` or `repo#number`. */
  readonly source?: string;
}

/** The names of fields that are about RoPE. */
const ABOUT_ROPE = /^(?:rope|rotary|mrope|partial_rotary|yarn|ntk)/;
/** Fields that belong to RoPE's objects but that transformers does not use for the rotation. */
const INSIDE_UNUSED: Readonly<Record<string, string>> = {
  finetuned: 'a leftover of old configs',
  mscale: 'transformers reads it only beside mscale_all_dim',
};
/** Within this tolerance, relative, two numbers of a config are the same. */
const SAME = 1e-3;

/** Lists what is doubtful in a config.json that its own runtime reads. */
export function lintConfig(json: unknown, model: ModelRope, where: string): PassportFinding[] {
  const config = fieldsOf(json, where);
  const findings: PassportFinding[] = [];
  const add = (level: PassportFinding['level'], at: string, says: string, repair?: string, source?: string): void => {
    findings.push({ level, where: at, says, ...(repair && { repair }), ...(source && { source }) });
  };
  const outer = new Fields(json, where);
  if (outer.optionalObject('text_config'))
    for (const key of outer.keys())
      if (ABOUT_ROPE.test(key) && JSON.stringify(outer.raw(key)) !== JSON.stringify(config.raw(key)))
        add(
          'warning',
          outer.path(key),
          'it lies outside of text_config and differs from it; transformers reads text_config.',
          'Delete one of the two.',
        );
  for (const note of model.notes)
    if (/ is missing\. .* default /.test(note)) {
      // Every reader takes 10000 where a model's class says nothing.
      if (note.endsWith(': 10000.')) add('note', where, note);
      else add('warning', where, note, 'Write the field: readers without the classes of transformers take 10000.');
    }
  for (const fields of objectsOf(config)) {
    const [type, old] = [fields.raw('rope_type'), fields.raw('type')];
    if (type !== undefined && old !== undefined && nameOf(type) !== nameOf(old))
      add(
        'error',
        fields.path('type'),
        `it is ${show(old)}, and rope_type is ${show(type)}: some readers take one, some the other.`,
        'Delete type.',
        'ggml-org/llama.cpp#24820',
      );
    for (const [key, why] of Object.entries(INSIDE_UNUSED))
      if (fields.has(key) && !(key === 'mscale' && fields.has('mscale_all_dim')))
        add('note', fields.path(key), `it is not read: ${why}.`);
    lintNumbers(fields, nameOf(type ?? old), config, model, add);
  }
  const theta = config.raw('rope_theta');
  const inner = config.optionalObject('rope_parameters')?.raw('rope_theta');
  if (theta !== undefined && inner !== undefined && theta !== inner)
    add(
      'error',
      config.path('rope_theta'),
      `it is ${show(theta)}, and rope_parameters.rope_theta is ${show(inner)}: older readers take the first, transformers 5 the second.`,
      'Give both the same value, or delete rope_theta.',
      'deepspeedai/DeepSpeed#8345',
    );
  return findings;
}

type Add = (level: PassportFinding['level'], at: string, says: string, repair?: string, source?: string) => void;

function lintNumbers(fields: Fields, type: string, config: Fields, model: ModelRope, add: Add): void {
  const number = (key: string): number | undefined => {
    const value = fields.raw(key);
    return typeof value === 'number' ? value : undefined;
  };
  const longest = model.maxContext;
  const factor = number('factor');
  const scaled = ['linear', 'dynamic', 'yarn', 'longrope', 'llama3'].includes(type);
  if (scaled && factor !== undefined && factor <= 1)
    add('note', fields.path('factor'), `it is ${factor}: ${type} scaling changes nothing, or shortens the context.`);
  if (type === 'default' && factor !== undefined && factor !== 1)
    add(
      'warning',
      fields.path('factor'),
      `it is ${factor}, and rope_type is default: no reader applies it.`,
      'Name the rope_type, or delete factor.',
    );
  if (type === 'dynamic' && number('alpha') !== undefined && longest !== undefined)
    add(
      'warning',
      fields.path('alpha'),
      `it raises the base in texts of up to ${longest} tokens; transformers ignores it in longer ones.`,
      'Keep texts within max_position_embeddings.',
      'huggingface/transformers#48960',
    );
  const own = number('original_max_position_embeddings');
  const original = own ?? (config.raw('original_max_position_embeddings') as number | undefined);
  if (['llama3', 'yarn', 'longrope'].includes(type) && original === undefined && longest !== undefined)
    add(
      'warning',
      fields.path('original_max_position_embeddings'),
      `it is missing: transformers takes max_position_embeddings, ${longest}.`,
      'Write the context that the model was trained with.',
    );
  if (
    ['yarn', 'llama3', 'longrope'].includes(type) &&
    factor !== undefined &&
    original !== undefined &&
    longest !== undefined
  ) {
    const apart = (a: number, b: number): boolean => Math.abs(a / b - 1) > SAME;
    if (apart(longest, original) && apart(longest, factor * original) && type !== 'llama3')
      add(
        'note',
        fields.path('factor'),
        `factor × original_max_position_embeddings is ${factor * original}, and max_position_embeddings is ${longest}.`,
      );
    if (longest < original)
      add(
        'warning',
        config.path('max_position_embeddings'),
        `it is ${longest}, below original_max_position_embeddings, ${original}.`,
        'Exchange or correct the two.',
      );
  }
  const [low, high] = [number('low_freq_factor'), number('high_freq_factor')];
  if (type === 'llama3' && low !== undefined && high !== undefined && low >= high) {
    const does =
      low === high
        ? 'there is no band between the two limits: transformers and llama.cpp divide all wavelengths above the one limit by factor and keep the others'
        : 'the band is reversed: every wavelength between the limits is kept and divided by different readers';
    add(
      low === high ? 'note' : 'error',
      fields.path('high_freq_factor'),
      `it is ${high}, and low_freq_factor is ${low}: ${does}.`,
      low === high ? undefined : 'Exchange the two.',
      'huggingface/transformers@v5.24.0 modeling_rope_utils.py',
    );
  }
  const magnitude = number('attention_factor');
  if (type === 'yarn' && magnitude !== undefined && factor !== undefined && factor > 1) {
    const usual = 0.1 * Math.log(factor) + 1;
    if (Math.abs(magnitude / usual - 1) > SAME)
      add(
        'note',
        fields.path('attention_factor'),
        `it is ${magnitude}, and YaRN’s formula gives ${Number(usual.toPrecision(6))}: readers that compute it rotate with another magnitude.`,
        undefined,
        'ml-explore/mlx-lm#1507',
      );
  }
}

/** rope_scaling and rope_parameters, and the objects by layer type in them. */
function objectsOf(config: Fields): Fields[] {
  return ['rope_scaling', 'rope_parameters'].flatMap((key) => {
    const fields = config.optionalObject(key);
    if (!fields) return [];
    const inner = fields.keys().flatMap((name) => {
      const value = fields.raw(name);
      return typeof value === 'object' && value !== null && !Array.isArray(value) ? [fields.optionalObject(name)!] : [];
    });
    return inner.length > 0 ? inner : [fields];
  });
}

/** One name for each type: `su` is LongRoPE, and `mrope` is no scaling. */
function nameOf(type: unknown): string {
  if (type === 'su') return 'longrope';
  return type === 'mrope' || type === undefined ? 'default' : String(type);
}

const show = (value: unknown): string => JSON.stringify(value) ?? String(value);

/** Lists what is doubtful in a GGUF that llama.cpp reads. */
export function lintGguf({ metadata }: GgufHeader, model: ModelRope, where: string): PassportFinding[] {
  const findings: PassportFinding[] = [];
  const a = (key: string): string => `${model.architecture}.rope.${key}`;
  const add = (level: PassportFinding['level'], key: string, says: string, repair: string, source: string): void => {
    findings.push({ level, where: `${where}: ${a(key)}`, says, repair, source });
  };
  const number = (key: string): number | undefined => {
    const value = metadata.get(a(key));
    return typeof value === 'number' ? value : undefined;
  };
  if (model.notes.some((note) => note.includes('rope.freq_base is missing')))
    add(
      'warning',
      'freq_base',
      'it is missing: llama.cpp takes 10000.',
      'Convert the model again, or add --override-kv.',
      'ggml-org/llama.cpp#2773, ollama/ollama#2379',
    );
  const ext = number('scaling.yarn_ext_factor');
  if (ext !== undefined && ext > 1)
    add(
      'error',
      'scaling.yarn_ext_factor',
      `it is ${ext}, above 1: the two frequencies of YaRN are mixed beyond both.`,
      'Write 1.',
      'ikawrakow/ik_llama.cpp#2003',
    );
  const type = metadata.get(a('scaling.type'));
  const factor = number('scaling.factor');
  if (type === 'yarn' && (factor ?? 0) <= 1)
    add(
      'warning',
      'scaling.factor',
      'the scaling is yarn, and there is no factor above 1: nothing is scaled.',
      'Write the factor of the config.',
      'ggml-org/llama.cpp#13322',
    );
  for (const note of model.notes) if (/is not applied/.test(note)) findings.push({ level: 'note', where, says: note });
  return findings;
}

/** The finding that the form's own runtime refuses it. */
export function refused(error: RopewalkError, where: string): PassportFinding {
  return { level: 'error', where, says: error.message.endsWith('.') ? error.message : `${error.message}.` };
}
