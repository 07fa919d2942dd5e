/**
 * A thing that may be wrong in a server: a change of the model's RoPE, of its attention or of its positions, that our decoder
 * can make too.
 *
 * @module
 */
import type { DecoderConfig, Engine, Model } from '@ropewalk/model';
import { kernelEngine } from '@ropewalk/model/internal';
import type { RopeSpec } from 'ropewalk';

type Layers = ReturnType<DecoderConfig['layers']>;

/** A sampler's penalty for tokens that came before. */
export interface Penalty {
  /**
   * - `repetition`: divides their logits by a number, or multiplies negative ones by it
   * - `presence`: multiplies their odds by a number; `frequency`: for each time that they came
   */
  readonly kind: 'repetition' | 'presence' | 'frequency';
  readonly by: number;
  /** How many tokens back count. Default: all. */
  readonly last?: number;
}

/** A cache that is smaller than the text: where it is full, tokens behind the first ones are dropped. */
export interface SmallCache {
  /** The tokens that it holds. */
  readonly size: number;
  /** The first tokens, which stay. */
  readonly keep: number;
  /** How many are dropped at a time: one, as StreamingLLM does, or half of the others, as llama.cpp does. */
  readonly drops: 'one' | 'half';
  /** How often the later keys are rotated back by as many positions. Once is right where positions are those in the cache. */
  readonly turns: 0 | 1 | 2;
}

/** A change of the forward pass. Nothing in it: the model as its files say. */
export interface Change {
  /** Returns another RoPE for a layer's; undefined for none. */
  readonly rope?: (spec: RopeSpec) => RopeSpec | undefined;
  /** The layers whose RoPE changes. Default: all. */
  readonly only?: (layer: number) => boolean;
  /** Layers without RoPE get that of the first layer that has one. */
  readonly allRotate?: boolean;
  /** Multiplies the scores of attention. */
  readonly scores?: number;
  /** The tokens that each token sees, including itself. */
  readonly window?: number;
  /** The same, in the layers that have a window. */
  readonly windows?: number;
  /** Tokens see only those of their own chunk of so many. */
  readonly chunk?: number;
  readonly cache?: SmallCache;
  /** Replaces learned attention sinks: by nothing, or by a score of 0. */
  readonly sinks?: 'none' | 'zero';
  /** Returns the positions of tokens 0 … count − 1. */
  readonly positions?: (count: number) => number[];
  /** Divides the logits. */
  readonly temperature?: number;
  readonly penalty?: Penalty;
  /** Rounds keys and values. */
  readonly cacheDtype?: 'f8_e4m3';
  /** The context on which scalings depend. Default: that of the session. */
  readonly context?: number;
}

/** An engine on our kernels whose models can be run with changes. The weights are loaded once. */
export interface ChangeableEngine extends Engine {
  /** The change that sessions make which are opened from now on. Runs of earlier sessions end first. */
  change: Change;
  /** Whether a model was loaded with this engine. */
  runs(model: Model): boolean;
}

/**
 * Makes the engine for `loadModel(files, { engine })` with which {@link probe} computes.
 *
 * @param options - of our kernels: backend, threads, activations
 * @throws {RopewalkError} RANGE for options that the kernels refuse
 * @example const engine = changeableEngine({ threads: 2 }); const model = await loadModel(files, { engine });
 */
export function changeableEngine(options: Parameters<typeof kernelEngine>[0] = {}): ChangeableEngine {
  const kernels = kernelEngine(options);
  const opened = new WeakSet<DecoderConfig>();
  const engine: ChangeableEngine = {
    name: kernels.name,
    change: {},
    runs: ({ config }) => opened.has(config),
    open(description) {
      const { config } = description;
      opened.add(config);
      const layers = (context: number): Layers =>
        changedLayers(config.layers(engine.change.context ?? context), engine.change, config.latent !== undefined);
      const changed: DecoderConfig = {
        ...config,
        layers,
        get attentionScale() {
          return config.attentionScale * (engine.change.scores ?? 1);
        },
      };
      return kernels.open({ ...description, config: changed });
    },
  };
  return engine;
}

function changedLayers(
  layers: Layers,
  { rope: changeRope, only = () => true, allRotate, window, windows, chunk, sinks }: Change,
  isLatent: boolean,
): Layers {
  // Layers that rotate alike share tables by the identity of their RoPE.
  const ropes = new Map<RopeSpec, RopeSpec | undefined>();
  const first = allRotate ? layers.find((layer) => layer.rope)?.rope : undefined;
  return layers.map((layer, n) => {
    const { rope = first } = layer;
    const changes = rope !== undefined && changeRope !== undefined && only(n);
    if (changes && !ropes.has(rope)) ropes.set(rope, changeRope(rope) ?? (isLatent ? still(rope) : undefined));
    const own = layer.window && (windows ?? layer.window);
    return {
      ...layer,
      rope: changes ? ropes.get(rope) : rope,
      window: window === undefined ? own : Math.min(window, own ?? window),
      ...(chunk !== undefined && { chunk }),
      ...(sinks !== undefined && { sinks }),
    };
  });
}

/** Latent heads always have a RoPE: this one turns by less than f32 shows. */
function still({ attentionFactor: _, ...rope }: RopeSpec): RopeSpec {
  const pairs = (rope.rotaryDim ?? rope.headDim) / 2;
  return { ...rope, scaling: { kind: 'none' }, freqFactors: Array<number>(pairs).fill(2 ** 40) };
}
