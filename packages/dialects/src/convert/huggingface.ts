/**
 * HuggingFace's config.json: record ↔ rope_parameters (transformers 5) and rope_theta with rope_scaling (before).
 *
 * Which pairs turn is not in the file but in the model's code, so the fields come with a model_type whose code turns this way.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/modeling_rope_utils.py
 */
import { type Pairing, type RopeSpec, RopewalkError } from 'ropewalk';
import { type Fields, refuse } from 'ropewalk/backend';
import { ropeFromConfig } from '../huggingface.js';
import { distanceOf, effectiveRope } from './effective.js';
import { factorsFor } from './explicit.js';
import { type ConvertOptions, cannot, type Draft, F64_TOLERANCE, type Peer, type Relayout } from './form.js';

/** Models whose code turns in some way, plain ones first; the first whose reading is right is taken. */
const MODELS = 'llama stablelm helium glm deepseek_v3 qwen2_vl qwen3_vl glm4v_moe glm4v qwen3_5 gptj'.split(' ');

/** Multi-head latent attention: the turned part has a size of its own. */
const MLA = ['deepseek_v2', 'deepseek_v3', 'deepseek_v32', 'minicpm3', 'longcat_flash', 'youtu'];

/** Parameters of one rope_type, and what they need outside. */
interface Parameters {
  readonly rope: Readonly<Record<string, unknown>>;
  /** Where the rule itself reads max_position_embeddings. */
  readonly maxPositions?: number;
  readonly base: number;
  /** The share that turns, where it is not rotaryDim / headDim. */
  readonly share?: number;
  readonly notes?: readonly string[];
}

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const effective = effectiveRope(spec);
  const { headDim, rotaryDim, rotaryOffset } = effective;
  if (rotaryOffset !== 0)
    cannot(
      'huggingface',
      `no field says where the window starts, and this one starts at ${rotaryOffset}`,
      'It takes a model class of its own, as DeepSeek-V4 has.',
    );
  if (spec.pairing === 'vision')
    cannot(
      'huggingface',
      "a vision tower's RoPE is written into its class, not into fields",
      'Use --to ggml, mode 24.',
    );
  const modelTypes = [...(options.modelType === undefined ? [] : [options.modelType]), ...MODELS];
  const context = spec.scaling && 'context' in spec.scaling ? { context: spec.scaling.context } : {};
  const drafts: Draft[] = [];
  for (const parameters of parametersFor(spec)) {
    const partial = parameters.share ?? (rotaryDim === headDim ? undefined : shareOf(headDim, rotaryDim));
    for (const model_type of modelTypes) {
      const { fresh, old } = configs(spec, parameters, {
        model_type,
        headDim,
        ...(partial === undefined ? {} : { partial }),
      });
      // Both styles must be read as this rotation by this model's code.
      const relayout = model_type === options.modelType ? relayoutOf(spec.pairing, fresh) : undefined;
      const wanted = relayout ? { ...effective, pairing: relayout.to as typeof effective.pairing } : effective;
      if (![fresh, old].every((config) => reads(config, wanted, context))) continue;
      drafts.push({
        call: 'config.json',
        arguments: { config: fresh, config_before_transformers_5: old },
        notes: [
          ...(options.modelType === model_type
            ? []
            : [`Which pairs turn is in the model's code: ${model_type}'s turns this way.`]),
          ...(relayout?.weights === 'permute'
            ? [`${model_type} turns halves, this record neighbours: permute q and k weights back (ropewalk permute).`]
            : []),
          ...(relayout?.weights === 'none'
            ? [
                `${model_type} writes halves, this record neighbours: q and k come out permuted alike, and q·k is the same.`,
              ]
            : []),
          ...(parameters.notes ?? []),
        ],
        ...(relayout ? { relayout } : {}),
      });
      break;
    }
  }
  if (drafts.length === 0) {
    const axes = spec.axes ? `, axes ${spec.axes.rule}` : '';
    cannot(
      'huggingface',
      `no model class that is known here turns so (pairing ${spec.pairing}, ${rotaryDim} of ${headDim}${axes})`,
      spec.axes?.rule === 'interleaved-ggml'
        ? 'HuggingFace gives to t what t, h and w leave, ggml to e: sections that sum to rotary_dim / 2 are the same in both.'
        : 'It takes a model class of its own.',
    );
  }
  return drafts;
}

/** A config of one layer in both styles. */
function configs(
  spec: RopeSpec,
  { rope, maxPositions, base }: Parameters,
  { model_type, headDim, partial }: { model_type: string; headDim: number; partial?: number },
): { fresh: Record<string, unknown>; old: Record<string, unknown> } {
  const mla = MLA.includes(model_type);
  const common: Record<string, unknown> = {
    model_type,
    num_hidden_layers: 1,
    ...(mla ? { qk_rope_head_dim: headDim } : { head_dim: headDim }),
    ...(model_type === 'qwen3_5' ? { layer_types: ['full_attention'] } : {}),
    ...(maxPositions === undefined ? {} : { max_position_embeddings: maxPositions }),
  };
  const sections = spec.axes ? { mrope_section: [...spec.axes.sections].slice(0, 3) } : {};
  const share = partial === undefined ? {} : { partial_rotary_factor: partial };
  const old = { ...rope, ...sections };
  const plain = rope.rope_type === 'default' && !spec.axes;
  return {
    fresh: { ...common, rope_parameters: { rope_theta: base, ...share, ...old } },
    old: { ...common, ...share, rope_theta: base, rope_scaling: plain ? null : old },
  };
}

/** A model that was asked for may turn other pairs, as Llama's GGUF and HuggingFace files do. */
function relayoutOf(pairing: Pairing, config: unknown): Relayout | undefined {
  if (pairing !== 'interleaved') return undefined;
  try {
    const to = ropeFromConfig(config).layers[0]!.rope?.pairing;
    if (to === 'half') return { from: pairing, to, weights: 'permute' };
    if (to === 'interleaved-to-half') return { from: pairing, to, weights: 'none' };
    return undefined;
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

function reads(config: unknown, wanted: ReturnType<typeof effectiveRope>, options: { context?: number }): boolean {
  try {
    const rope = ropeFromConfig(config, options).layers[0]!.rope;
    if (!rope) return false;
    const { differences, invFreq, attentionFactor } = distanceOf(wanted, effectiveRope(rope));
    return differences.length === 0 && invFreq <= F64_TOLERANCE && attentionFactor <= F64_TOLERANCE;
  } catch (error) {
    if (error instanceof RopewalkError) return false;
    throw error;
  }
}

/** A share whose product with head_dim, cut to an integer as transformers does it, is rotary_dim. */
function shareOf(headDim: number, rotaryDim: number): number {
  const share = rotaryDim / headDim;
  return Math.trunc(headDim * share) === rotaryDim ? share : (rotaryDim + 0.25) / headDim;
}

/** Ways to say the scaling, the most natural first; the last one gives a factor for each pair. */
function parametersFor(spec: RopeSpec): Parameters[] {
  const { invFreq, attentionFactor, rotaryDim, headDim } = effectiveRope(spec);
  const { scaling = { kind: 'none' as const }, base } = spec;
  const all: Parameters[] = [];
  const length = 4096;
  if (!spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim) {
    switch (scaling.kind) {
      case 'none':
        all.push({ rope: { rope_type: 'default' }, base });
        break;
      case 'linear':
        all.push({ rope: { rope_type: 'linear', factor: scaling.factor }, base });
        break;
      case 'dynamicNtk':
        all.push({
          rope: { rope_type: 'dynamic', factor: scaling.factor },
          maxPositions: scaling.originalContext,
          base,
          notes: [
            `transformers raises the base with the sequence; this record is the one at ${scaling.context} tokens (--context).`,
          ],
        });
        break;
      case 'llama3': {
        const { factor, lowFreqFactor: low_freq_factor, highFreqFactor: high_freq_factor, originalContext } = scaling;
        const rope = {
          rope_type: 'llama3',
          factor,
          low_freq_factor,
          high_freq_factor,
          original_max_position_embeddings: originalContext,
        };
        all.push({ rope, base });
        break;
      }
      case 'longrope': {
        const rope = {
          rope_type: 'longrope',
          short_factor: Array.from(scaling.shortFactor).slice(0, rotaryDim / 2),
          long_factor: Array.from(scaling.longFactor).slice(0, rotaryDim / 2),
          ...(spec.attentionFactor === undefined ? {} : { attention_factor: attentionFactor }),
          factor: scaling.factor ?? 1,
          original_max_position_embeddings: scaling.originalContext,
        };
        all.push({
          rope,

          base,
          notes: [`transformers takes long_factor beyond ${scaling.originalContext} positions of the sequence.`],
        });
        break;
      }
      case 'proportional': {
        const share = (2 * scaling.rotatedPairs) / headDim;
        const exact =
          Math.floor((share * headDim) / 2) === scaling.rotatedPairs
            ? share
            : (2 * scaling.rotatedPairs + 0.25) / headDim;
        const rope = { rope_type: 'proportional', ...(scaling.factor === undefined ? {} : { factor: scaling.factor }) };
        all.push({ rope, base, share: exact });
        break;
      }
      case 'yarn': {
        const { factor, originalContext, betaFast, betaSlow, truncate, mscale, mscaleAllDim } = scaling;
        // transformers takes a magnitude of 1 up to a factor of 1, where the record goes on below it.
        const said =
          factor <= 1 ||
          [spec.attentionFactor, scaling.attnFactor, scaling.extFactor].some((value) => value !== undefined);
        const rope = {
          rope_type: 'yarn',
          factor,
          original_max_position_embeddings: originalContext,
          ...(betaFast === undefined ? {} : { beta_fast: betaFast }),
          ...(betaSlow === undefined ? {} : { beta_slow: betaSlow }),
          ...(truncate === undefined ? {} : { truncate }),
          ...(mscale === undefined ? {} : { mscale }),
          ...(mscaleAllDim === undefined ? {} : { mscale_all_dim: mscaleAllDim }),
          ...(said ? { attention_factor: attentionFactor } : {}),
        };
        all.push({ rope, base });
        break;
      }
      default:
        scaling satisfies never;
    }
  }
  // Both lists alike, so that no length changes anything.
  const factors = factorsFor(invFreq, base, rotaryDim);
  all.push({
    rope: {
      rope_type: 'longrope',
      short_factor: factors,
      long_factor: factors,
      attention_factor: attentionFactor,
      factor: 1,
      original_max_position_embeddings: length,
    },
    base,
    notes: [
      'No rope_type of transformers computes these frequencies: longrope, with both lists alike, holds a factor for each pair.',
    ],
  });
  return all;
}

/** config.json fields. */
export const huggingfacePeer: Peer = {
  name: 'huggingface',
  about: 'config.json: rope_parameters, and rope_theta with rope_scaling',
  tolerance: F64_TOLERANCE,
  drafts: draftsOf,
  read(form: Fields, _tables, options) {
    const config = form.has('config')
      ? form.raw('config')
      : Object.fromEntries(form.keys().map((key) => [key, form.raw(key)]));
    const model = ropeFromConfig(config, {
      ...(options.context === undefined ? {} : { context: options.context }),
      where: form.has('config') ? form.path('config') : form.where,
    });
    return model.layers[0]!.rope ?? refuse('UNSUPPORTED', form.where, 'a first layer with RoPE', model.architecture);
  },
  recognises: (form) => form.has('config') || form.has('model_type') || form.has('text_config'),
};
