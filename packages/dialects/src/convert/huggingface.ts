/**
 * Writes and reads HuggingFace's config.json: rope_parameters (transformers 5), and rope_theta with rope_scaling (before).
 *
 * The pairing is not in the file but in the model's code, so the fields come with a model_type that has the right
 * pairing.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/modeling_rope_utils.py
 */
import { type Pairing, type RopeSpec, RopewalkError } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { ropeFromConfig } from '../huggingface.js';
import { FULL, familyOf, LINEAR, rulesOf, SLIDING } from '../huggingface-models.js';
import { distanceOf, type EffectiveRope, effectiveRope, factorsFor } from './effective.js';
import type { ConvertOptions, Draft, Peer, Relayout } from './form.js';
import {
  cannot,
  checkLimits,
  F64_TOLERANCE,
  hasPlainExponents,
  llama3Fields,
  plainJson,
  rawOf,
  shareOf,
} from './form.js';

/** One model_type for each kind of rotation, plain ones first. The first whose reading is right is used. */
const MODELS = 'llama stablelm helium glm deepseek_v3 qwen2_vl qwen3_vl glm4v_moe glm4v qwen3_5 gptj'.split(' ');

/** The parameters of one rope_type, and the fields outside that it needs. */
interface Parameters {
  readonly rope: Readonly<Record<string, unknown>>;
  readonly maxPositions?: number;
  /** This share rotates, where it is not rotaryDim / headDim. */
  readonly share?: number;
  readonly note?: string;
}

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const rope = checkLimits('huggingface', spec, {
    offset: ['no field says where the window starts', 'It takes a separate model class, as DeepSeek-V4 has.'],
    vision: ["a vision tower's RoPE is in its class, not in fields", 'Use --to ggml, mode 24.'],
  });
  const { headDim, rotaryDim } = rope;
  const asked = options.modelType;
  const modelTypes = asked === undefined ? MODELS : [asked, ...MODELS];
  const context = spec.scaling && 'context' in spec.scaling ? spec.scaling.context : undefined;
  const drafts: Draft[] = [];
  for (const parameters of parametersFor(spec, rope)) {
    const partial = rotaryDim === headDim ? undefined : shareOf(headDim, rotaryDim);
    for (const model_type of modelTypes) {
      const { fresh, old, type } = configs(spec, parameters, model_type, partial, options.layerType);
      // This model's code must read both forms as this rotation.
      const relayout = model_type === asked ? relayoutOf(spec.pairing, fresh) : undefined;
      const wanted = relayout ? { ...rope, pairing: relayout.to as EffectiveRope['pairing'] } : rope;
      if (![fresh, old ?? fresh].every((config) => reads(config, wanted, context))) continue;
      const notes = [
        type && `These are the fields of one ${type} layer; its window and the other layers are not in them.`,
        model_type !== asked && `The pairing is in the model's code: ${model_type} has this one.`,
        relayout?.weights === 'permute' &&
          `${model_type} has half pairing, this record interleaved: permute q and k weights (ropewalk permute).`,
        relayout?.weights === 'none' &&
          `${model_type} writes halves: q and k come out permuted in the same way, and q·k is the same.`,
        parameters.note,
      ].filter((note) => typeof note === 'string');
      const both = { config: fresh, config_before_transformers_5: old };
      drafts.push({ call: 'config.json', arguments: both, notes, relayout });
      break;
    }
  }
  if (drafts.length > 0) return drafts;
  const axes = spec.axes ? `, axes ${spec.axes.rule}` : '';
  const because = `no known model class has this rotation (pairing ${spec.pairing}, ${rotaryDim} of ${headDim}${axes})`;
  const leftover =
    'HuggingFace gives leftover pairs to t, ggml to e; with sections that sum to rotary_dim / 2 they are the same.';
  const separate = 'It takes a separate model class.';
  return cannot('huggingface', because, spec.axes?.rule === 'interleaved-ggml' ? leftover : separate);
}

/** Writes a config of one layer in both forms, and the layer's type where the model has fields for each type. */
function configs(
  spec: RopeSpec,
  { rope, maxPositions, share }: Parameters,
  model_type: string,
  partial: number | undefined,
  layerType: string | undefined,
) {
  const { headDim, base } = spec;
  const family = familyOf(model_type);
  const rules = rulesOf(family);
  const mrope_section = spec.axes && Array.from(spec.axes.sections).slice(0, 3);
  const type = rules?.byType ? (layerType ?? FULL) : undefined;
  const two = rules?.globalHeadDim !== undefined;
  const common = {
    model_type,
    // Gemma 4's last layer is always full, and full layers have a head_dim of their own.
    num_hidden_layers: two ? 2 : 1,
    [rules?.mla === undefined ? 'head_dim' : 'qk_rope_head_dim']: headDim,
    global_head_dim: two ? headDim : undefined,
    layer_types: type ? (two ? [type, FULL] : [type]) : rules?.layers?.other === LINEAR ? [FULL] : undefined,
    max_position_embeddings: maxPositions,
    // Phi reads this field, and not the one in the parameters.
    original_max_position_embeddings: /^phi[34]/.test(family) ? rope.original_max_position_embeddings : undefined,
  };
  const plain = rope.rope_type === 'default' && !spec.axes;
  // Where the class would rotate a part of the head, the share 1 says that the whole head rotates.
  const usual = rules?.partial === undefined || rules.partial === 1 ? undefined : 1;
  const factor = share ?? partial ?? usual;
  const own = { rope_theta: base, partial_rotary_factor: factor, ...rope, mrope_section };
  const theta = rules?.byType?.[type === SLIDING ? 'sliding' : 'full'][0] ?? rules?.thetaKey ?? 'rope_theta';
  const old = {
    ...common,
    [rules?.partialKey ?? 'partial_rotary_factor']: factor,
    [theta]: base,
    rope_scaling: plain ? null : { ...rope, mrope_section },
  };
  return {
    fresh: plainJson({ ...common, rope_parameters: type ? { ...(two && { [FULL]: own }), [type]: own } : own }),
    // A path is no field: transformers before 5 had none for it. Without scaling there are no parameters either.
    old: theta.includes('.') || (plain && rules?.needsParameters) ? undefined : plainJson(old),
    type,
  };
}

/** Finds the change of layout for a model of the caller's, which may have another pairing, as Llama's GGUF files do. */
function relayoutOf(from: Pairing, config: unknown): Relayout | undefined {
  if (from !== 'interleaved') return undefined;
  const to = firstRope(config)?.pairing;
  if (to === 'half') return { from, to, weights: 'permute' };
  return to === 'interleaved-to-half' ? { from, to, weights: 'none' } : undefined;
}

function reads(config: unknown, wanted: EffectiveRope, context: number | undefined): boolean {
  const rope = firstRope(config, context);
  if (!rope) return false;
  const { differences, invFreq, attentionFactor } = distanceOf(wanted, effectiveRope(rope));
  return differences.length === 0 && invFreq <= F64_TOLERANCE && attentionFactor <= F64_TOLERANCE;
}

/** Reads the RoPE of the first layer; undefined when the config is refused. */
function firstRope(config: unknown, context?: number): RopeSpec | undefined {
  try {
    return ropeFromConfig(config, { context }).layers[0]!.rope;
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

/** Lists ways to express the scaling, the most natural first. The last one has a factor for each pair. */
function parametersFor(spec: RopeSpec, { invFreq, attentionFactor, rotaryDim, headDim }: EffectiveRope): Parameters[] {
  const all = hasPlainExponents(spec, rotaryDim) ? [ownParameters(spec, attentionFactor, rotaryDim, headDim)] : [];
  // Two equal lists do not depend on the length.
  const factors = factorsFor(invFreq, spec.base, rotaryDim);
  all.push({
    rope: {
      rope_type: 'longrope',
      short_factor: factors,
      long_factor: factors,
      attention_factor: attentionFactor,
      factor: 1,
      original_max_position_embeddings: 4096,
    },
    note: 'No rope_type of transformers has these frequencies. Two equal lists of longrope hold a factor a pair.',
  });
  return all;
}

function ownParameters(spec: RopeSpec, attentionFactor: number, rotaryDim: number, headDim: number): Parameters {
  const { scaling = { kind: 'none' as const } } = spec;
  switch (scaling.kind) {
    case 'none':
      return { rope: { rope_type: 'default' } };
    case 'linear':
      return { rope: { rope_type: 'linear', factor: scaling.factor } };
    case 'dynamicNtk':
      return {
        rope: { rope_type: 'dynamic', factor: scaling.factor },
        maxPositions: scaling.originalContext,
        note: `transformers raises the base with the sequence; this record is that of ${scaling.context} tokens.`,
      };
    case 'llama3':
      return { rope: llama3Fields(scaling) };
    case 'longrope':
      return {
        rope: {
          rope_type: 'longrope',
          short_factor: Array.from(scaling.shortFactor).slice(0, rotaryDim / 2),
          long_factor: Array.from(scaling.longFactor).slice(0, rotaryDim / 2),
          attention_factor: spec.attentionFactor === undefined ? undefined : attentionFactor,
          factor: scaling.factor ?? 1,
          original_max_position_embeddings: scaling.originalContext,
        },
        note: `transformers takes long_factor beyond ${scaling.originalContext} positions of the sequence.`,
      };
    case 'proportional': {
      const { rotatedPairs, factor } = scaling;
      const share = (2 * rotatedPairs) / headDim;
      const exact = Math.floor((share * headDim) / 2) === rotatedPairs;
      const rope = { rope_type: 'proportional', factor };
      return { rope, share: exact ? share : (2 * rotatedPairs + 0.25) / headDim };
    }
    case 'yarn': {
      // transformers' magnitude is 1 for factors up to 1; the record's is below 1 there.
      const { attnFactor = 1, extFactor = 1 } = scaling;
      const own = spec.attentionFactor !== undefined || attnFactor !== 1 || extFactor !== 1;
      const differs = scaling.factor <= 1 || own;
      return {
        rope: {
          rope_type: 'yarn',
          factor: scaling.factor,
          original_max_position_embeddings: scaling.originalContext,
          beta_fast: scaling.betaFast,
          beta_slow: scaling.betaSlow,
          truncate: scaling.truncate,
          mscale: scaling.mscale,
          mscale_all_dim: scaling.mscaleAllDim,
          attention_factor: differs ? attentionFactor : undefined,
        },
      };
    }
  }
}

export const huggingfacePeer: Peer = {
  name: 'huggingface',
  about: 'config.json: rope_parameters, and rope_theta with rope_scaling',
  tolerance: F64_TOLERANCE,
  drafts: draftsOf,
  read(form: Fields, _tables, options) {
    const inner = form.has('config');
    const config = inner ? form.raw('config') : rawOf(form);
    const where = inner ? form.path('config') : form.where;
    const model = ropeFromConfig(config, { context: options.context, where });
    return model.layers[0]!.rope ?? refuse('UNSUPPORTED', form.where, 'a first layer with RoPE', model.architecture);
  },
  recognizes: (form) => form.has('config') || form.has('model_type') || form.has('text_config'),
};
