/**
 * `ropewalk inspect`: the effective RoPE of each layer of a model, from its config.json or its GGUF header.
 *
 * @module
 */
import { type LayerRope, type ModelRope, specToJson } from '@ropewalk/dialects';
import { frequenciesOf, type RopeSpec, ropeFrequencies } from 'ropewalk';
import { ranges } from 'ropewalk/backend';
import { modelFileOf, readModel } from './model-file.js';
import { readContext } from './options.js';
import { EXIT, printJson } from './output.js';
import { plotFrequencies } from './plot.js';

/** Options of the command, as the command line gives them. */
export interface InspectOptions {
  readonly context?: string;
  readonly json?: boolean;
}

/**
 * Prints the effective RoPE of each layer.
 *
 * @param path - a config.json, a .gguf, or a folder with one
 * @param options - context, json
 * @returns the exit code
 * @throws {RopewalkError} for a file that cannot be read or means nothing: the caller exits with 2
 */
export async function inspect(path: string, options: InspectOptions): Promise<number> {
  const file = modelFileOf(path, 'inspect');
  const model = await readModel(file, 'inspect', readContext(options.context, 'inspect'));
  if (options.json) printJson(toJson(model));
  else process.stdout.write(`${describe(file, model).join('\n')}\n`);
  return EXIT.ok;
}

/** Layers with the same RoPE are told once. */
function groupLayers(layers: readonly LayerRope[]): { rope: RopeSpec | undefined; layers: LayerRope[] }[] {
  const groups = new Map<string, { rope: RopeSpec | undefined; layers: LayerRope[] }>();
  for (const layer of layers) {
    const key = JSON.stringify([layer.rope ? specToJson(layer.rope) : null, layer.layerType]);
    const group = groups.get(key) ?? { rope: layer.rope, layers: [] };
    group.layers.push(layer);
    groups.set(key, group);
  }
  return [...groups.values()];
}

function describe(file: string, model: ModelRope): string[] {
  const lines = [
    `${file}: ${model.architecture}, ${model.numLayers} layers${model.maxContext ? `, context ${model.maxContext}` : ''} (${model.source})`,
  ];
  for (const note of model.notes) lines.push(`  note: ${note}`);
  for (const { rope, layers } of groupLayers(model.layers)) {
    const first = layers[0]!;
    lines.push('', `layers ${ranges(layers.map((l) => l.layer))}${first.layerType ? ` (${first.layerType})` : ''}`);
    if (!rope) {
      lines.push('  no position encoding');
      continue;
    }
    lines.push(...describeRope(rope));
  }
  return lines;
}

function describeRope(rope: RopeSpec): string[] {
  const { invFreq, attentionFactor } = frequenciesOf(rope);
  const rows: [string, string][] = [
    ['base', String(rope.base)],
    ['head_dim', String(rope.headDim)],
    ['rotary_dim', `${rope.rotaryDim ?? rope.headDim}${rope.rotaryOffset ? ` from ${rope.rotaryOffset}` : ''}`],
    ['pairing', rope.pairing],
    ['scaling', describeScaling(rope)],
    ['factor', `${round(attentionFactor)} on cos and sin`],
  ];
  if (rope.axes)
    rows.push([
      'axes',
      `${rope.axes.rule}, sections ${rope.axes.sections.join('+')} (t, h, w${rope.axes.sections.length > 3 ? ', e' : ''})`,
    ]);
  const plain = ropeFrequencies({
    ...rope,
    rotaryDim: rope.rotaryDim ?? rope.headDim,
    scaling: { kind: 'none' },
    freqFactors: undefined,
  });
  return [
    ...rows.map(([key, value]) => `  ${key.padEnd(15)} ${value}`),
    ...plotFrequencies(invFreq, plain.invFreq).map((line) => `  ${line}`),
  ];
}

function describeScaling(rope: RopeSpec): string {
  const { kind, ...parameters } = rope.scaling ?? { kind: 'none' as const };
  const items = Object.entries(parameters)
    .filter(([, value]) => value !== undefined)
    .map(
      ([key, value]) => `${key}=${typeof value === 'object' ? `${(value as ArrayLike<number>).length} values` : value}`,
    );
  const factors = rope.freqFactors ? `; freq_factors ${rope.freqFactors.length} values` : '';
  return `${[kind, ...items].join(' ')}${factors}`;
}

function toJson(model: ModelRope): unknown {
  return {
    ...model,
    layers: model.layers.map((layer) => {
      if (!layer.rope) return { ...layer, rope: null };
      const { invFreq, attentionFactor } = frequenciesOf(layer.rope);
      return {
        ...layer,
        rope: { ...layer.rope, freqFactors: layer.rope.freqFactors && Array.from(layer.rope.freqFactors) },
        invFreq: [...invFreq],
        attentionFactor,
      };
    }),
  };
}

function round(x: number): string {
  return String(Number(x.toPrecision(9)));
}
