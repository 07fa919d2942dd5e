/**
 * The files that transformers 4 and 5 read differently, as data. Our reader is that of transformers 5. Here is how the
 * file and the rules look to transformers 4, and the sentence that says it where the RoPE differs.
 *
 * @module
 * @see huggingface/transformers@v4.57.6 and @v5.24.0 src/transformers/modeling_rope_utils.py and models/NAME
 */
import { frequenciesOf, type RopeSpec, RopewalkError } from 'ropewalk';
import { Fields } from 'ropewalk/internal';
import type { Rules } from './huggingface-models.js';
import { keyOf, type LayerRope } from './model-rope.js';

type Json = Record<string, unknown>;

/** The fields of a config.json, its rope_scaling, and the rules of its family. */
interface View {
  readonly family: string;
  readonly config: Json;
  readonly scaling: Json | undefined;
  readonly rules: Rules;
}

interface Difference {
  /** Returns what is different for transformers 4; undefined where nothing is. */
  readonly change: (view: View) => Partial<View> | undefined;
  readonly says: string;
}

/** transformers 4.57.6 has no classes of these families. */
const ONLY_FIVE = (
  'jais2 lfm2_moe hy_v3 cwm ministral3 openai_privacy_filter solar_open minimax_m2 youtu glm4_moe_lite mistral4 ' +
  'deepseek_v32 glm_moe_dsa minicpm3 paddleocr_vl glm_ocr qwen3_5 qwen3_5_moe exaone_moe afmoe gemma4 gemma4_unified'
).split(' ');

/** The rules of families whose classes had other defaults. */
const OTHER_RULES: Readonly<Record<string, Partial<Rules>>> = {
  falcon_h1: { theta: 1e5 },
  persimmon: { theta: 25000 },
  cohere: { theta: 1e4 },
  qwen3_vl_moe: { theta: 5e6 },
  olmo3: { byType: { full: ['rope_theta', 1e4], sliding: ['rope_theta', 1e4] } },
  'modernbert-decoder': {
    byType: { full: ['global_rope_theta', 160000], sliding: ['global_rope_theta', 160000], scalesSliding: true },
  },
};

const without = (json: Json, ...keys: string[]): Json =>
  Object.fromEntries(Object.entries(json).filter(([key]) => !keys.includes(key)));
const ORIGINAL = 'original_max_position_embeddings';
const typeOf = (scaling: Json | undefined): unknown => scaling?.rope_type ?? scaling?.type;

const DIFFERENCES: readonly Difference[] = [
  {
    change: ({ config, scaling }) =>
      config.rope_parameters && !scaling ? { config: without(config, 'rope_parameters') } : undefined,
    says: 'it does not read rope_parameters, but rope_theta and rope_scaling, or the defaults of its class',
  },
  {
    change: ({ scaling }) =>
      scaling && (scaling.rope_theta ?? scaling.partial_rotary_factor) !== undefined
        ? { scaling: without(scaling, 'rope_theta', 'partial_rotary_factor') }
        : undefined,
    says: 'it does not read rope_theta and partial_rotary_factor inside rope_scaling',
  },
  {
    change: ({ config, scaling }) =>
      scaling && config[ORIGINAL] !== undefined && ['yarn', 'llama3'].includes(typeOf(scaling) as string)
        ? { config: without(config, ORIGINAL) }
        : undefined,
    says: `it reads ${ORIGINAL} of YaRN and Llama 3 inside rope_scaling only`,
  },
  {
    change: ({ config, scaling }) => {
      if (!scaling || typeOf(scaling) !== 'longrope') return undefined;
      if (config[ORIGINAL] !== undefined)
        return { scaling: scaling.attention_factor ? scaling : without(scaling, 'factor') };
      return { scaling: { ...scaling, [ORIGINAL]: config.max_position_embeddings } };
    },
    says: `it reads ${ORIGINAL} of LongRoPE outside of rope_scaling only, and beside it no factor`,
  },
  {
    change: ({ config, rules }) =>
      config.partial_rotary_factor !== undefined && rules.partial === undefined
        ? { rules: { ...rules, partial: 1 } }
        : undefined,
    says: 'it takes partial_rotary_factor for every model, and most fail on it',
  },
  {
    change: ({ scaling, rules }) =>
      rules.byType && scaling?.truncate !== undefined ? { rules: { ...rules, flatScaling: true } } : undefined,
    says: 'it reads truncate in rope_scaling',
  },
  {
    change: ({ scaling }) => (typeOf(scaling) === 'proportional' ? { scaling: { rope_type: 'unknown' } } : undefined),
    says: 'it does not know the rope_type proportional',
  },
  {
    change: ({ family, scaling }) => (family === 'nemotron' && scaling ? { scaling: undefined } : undefined),
    says: 'its Nemotron does not read rope_scaling',
  },
];

/** Says whether two records rotate alike at every context. */
function isSame(a: RopeSpec | undefined, b: RopeSpec | undefined): boolean {
  if (!a || !b || keyOf(a) === keyOf(b)) return keyOf(a) === keyOf(b);
  if ([a, b].some(({ scaling }) => scaling?.kind === 'dynamicNtk' || scaling?.kind === 'longrope')) return false;
  const [one, other] = [frequenciesOf(a), frequenciesOf(b)].map((f) => [f.attentionFactor, ...f.invFreq]);
  return one!.length === other!.length && one!.every((value, n) => Math.abs(value - other![n]!) <= 1e-9 * value);
}

/** How transformers 4 reads a file. */
export interface FourReading {
  /** Why it may read the file differently, as parts of a sentence. */
  readonly reasons: readonly string[];
  /** Undefined where it fails. */
  readonly layers: readonly LayerRope[] | undefined;
}

/**
 * Reads a file as transformers 4 does; undefined where it has no class for the model, or nothing is different.
 *
 * @param read - reads the layers from other fields by other rules
 */
export function readAsFour(
  fields: Fields,
  family: string,
  given: Rules | undefined,
  read: (fields: Fields, rules: Rules) => readonly LayerRope[],
): FourReading | undefined {
  if (!given || ONLY_FIVE.includes(family)) return undefined;
  const config = Object.fromEntries(fields.keys().map((key) => [key, fields.raw(key)]));
  const scaling = config.rope_scaling as Json | undefined;
  const own = OTHER_RULES[family];
  let view: View = { family, config, scaling, rules: { ...given, ...own } };
  const reasons: string[] = [];
  for (const { change, says } of DIFFERENCES) {
    const changed = change(view);
    if (changed) reasons.push(says);
    view = { ...view, ...changed };
  }
  if (reasons.length === 0 && !own) return undefined;
  if (own) reasons.push('the defaults of its class are other ones');
  try {
    return {
      reasons,
      layers: read(new Fields({ ...view.config, rope_scaling: view.scaling }, fields.where), view.rules),
    };
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    return { reasons, layers: undefined };
  }
}

/** Says in a sentence how transformers 4 reads a file, where that gives some layer another RoPE. */
export function notesOnFour(four: FourReading | undefined, layers: readonly LayerRope[]): string[] {
  if (!four || four.layers?.every(({ rope }, n) => isSame(rope, layers[n]!.rope))) return [];
  return [`transformers 4 reads this file differently: ${four.reasons.join('; ')}.`];
}
