/**
 * `ropewalk inspect`: the effective RoPE of each layer of a model, from its config.json or its GGUF header.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import { refuse } from '../core/errors.js';
import { type GgufHeader, ropeFromGguf } from '../dialects/gguf.js';
import { ropeFromConfig } from '../dialects/huggingface.js';
import type { LayerRope, ModelRope } from '../dialects/model-rope.js';
import { parseJson } from '../formats/json.js';
import { readGgufFloats, readGgufHeader } from '../formats/read-header.node.js';
import { sharePairs } from '../ops/rope/axes.js';
import { ropeFrequencies } from '../ops/rope/frequencies.js';
import type { RopeSpec } from '../ops/rope/plan.js';
import { EXIT } from './output.js';
import { plotFrequencies } from './plot.js';

/** Options of the command, as the command line gives them. */
export interface InspectOptions {
  readonly context?: string;
  readonly json?: boolean;
}

/** A config.json is a few kilobytes; vocabularies and weights live elsewhere. */
const MAX_CONFIG_BYTES = 64 * 2 ** 20;

/**
 * Prints the effective RoPE of each layer.
 *
 * @param file - a config.json or a .gguf
 * @param options - context, json
 * @returns the exit code
 * @throws {RopewalkError} for a file that cannot be read or means nothing: the caller exits with 2
 */
export async function inspect(file: string, options: InspectOptions): Promise<number> {
  const context = readContext(options.context);
  const model = await readModel(file, context === undefined ? {} : { context });
  process.stdout.write(options.json ? `${JSON.stringify(toJson(model), null, 2)}\n` : `${describe(file, model).join('\n')}\n`);
  return EXIT.ok;
}

function readContext(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const context = Number(text);
  if (!Number.isInteger(context) || context < 1 || context > 2 ** 31 - 1)
    refuse('RANGE', 'inspect: --context', 'tokens, an integer in [1, 2^31 - 1]', text);
  return context;
}

async function readModel(file: string, options: { context?: number }): Promise<ModelRope> {
  if (/\.gguf$/i.test(file)) return ropeFromGguf(await readModelHeader(file), { ...options, where: file });
  if (!/\.json$/i.test(file)) refuse('FORMAT', 'inspect', 'a config.json or a .gguf file', file);
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    return refuse('FORMAT', 'inspect', `a readable file ${file}`, (cause as NodeJS.ErrnoException).code ?? String(cause));
  }
  if (bytes.length > MAX_CONFIG_BYTES) refuse('FORMAT', `inspect: ${file}`, `at most ${MAX_CONFIG_BYTES} bytes`, bytes.length);
  return ropeFromConfig(parseJson(bytes, file), { ...options, where: file });
}

/** The header, and the few small tensors that hold frequency factors. */
async function readModelHeader(file: string): Promise<GgufHeader> {
  const header = await readGgufHeader(file);
  const factors = new Map<string, Float32Array>();
  for (const tensor of header.tensors) {
    if (/^rope_(freqs|factors_long|factors_short)\.weight$/.test(tensor.name))
      factors.set(tensor.name, await readGgufFloats(file, header, tensor));
  }
  return { metadata: header.metadata, tensors: header.tensors, readTensor: (name) => factors.get(name) };
}

/** Layers with the same RoPE are told once. */
function groupLayers(layers: readonly LayerRope[]): { rope: RopeSpec | undefined; layers: LayerRope[] }[] {
  const groups = new Map<string, { rope: RopeSpec | undefined; layers: LayerRope[] }>();
  for (const layer of layers) {
    const key = JSON.stringify([layer.rope ?? null, layer.layerType], (_, value) =>
      ArrayBuffer.isView(value) ? Array.from(value as Float32Array) : value,
    );
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
  const plain = ropeFrequencies({ ...rope, rotaryDim: rope.rotaryDim ?? rope.headDim, scaling: { kind: 'none' }, freqFactors: undefined });
  return [
    ...rows.map(([key, value]) => `  ${key.padEnd(15)} ${value}`),
    ...plotFrequencies(invFreq, plain.invFreq).map((line) => `  ${line}`),
  ];
}

function describeScaling(rope: RopeSpec): string {
  const { kind, ...parameters } = rope.scaling ?? { kind: 'none' as const };
  const items = Object.entries(parameters)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key}=${typeof value === 'object' ? `${(value as ArrayLike<number>).length} values` : value}`);
  const factors = rope.freqFactors ? `; freq_factors ${rope.freqFactors.length} values` : '';
  return `${[kind, ...items].join(' ')}${factors}`;
}

function frequenciesOf(rope: RopeSpec): ReturnType<typeof ropeFrequencies> {
  const rotaryDim = rope.rotaryDim ?? rope.headDim;
  const { exponents } = sharePairs(rope.axes, rotaryDim / 2);
  return ropeFrequencies({
    ...rope,
    rotaryDim,
    frequencyDim: rope.frequencyDim ?? (rope.pairing === 'vision' ? rotaryDim / 2 : rotaryDim),
    exponents,
  });
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

/** `0-4, 6` */
function ranges(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < numbers.length; ) {
    let end = at;
    while (numbers[end + 1] === numbers[end]! + 1) end++;
    parts.push(end > at ? `${numbers[at]}-${numbers[end]}` : `${numbers[at]}`);
    at = end + 1;
  }
  return parts.join(', ');
}

function round(x: number): string {
  return String(Number(x.toPrecision(9)));
}
