/** The cost of a wrong reading: what a model's next tokens cost under each, by position. @module */
import type { Passport } from '@ropewalk/dialects';
import { type DecoderConfig, type Engine, logits, type Model } from '@ropewalk/model';
import { kernelEngine, logSumExp } from '@ropewalk/model/internal';
import type { RopeSpec } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { COLORS, chartSvg } from 'ropewalk/internal';
import { openPercentBar } from './output.js';
import { loadForCommand, type ModelRunOptions } from './run-model.js';
import { readTextFile } from './text-input.js';

/** Nats a token, under each reading that rotates otherwise. */
export interface Cost {
  readonly tokens: number;
  readonly readings: readonly {
    readonly reader: string;
    /** The mean over the tokens at positions up to `to`, from the end of the part before. */
    readonly nats: readonly { readonly to: number; readonly mean: number }[];
    readonly mean: number;
  }[];
}

type Reading = Passport['readings'][number];
type Layers = ReturnType<DecoderConfig['layers']>;
type Change = (layers: Layers) => Layers;

/** Computes a text under the first reading and under each that differs. */
export async function costOf(
  path: string,
  file: string,
  { readings }: Passport,
  options: ModelRunOptions,
): Promise<Cost> {
  const text = readTextFile(file);
  const different = readings.slice(1).filter(({ model, same }) => model && !same);
  let change: Change = (layers) => layers;
  const engine = async (threads: number | undefined): Promise<Engine> => {
    const kernels = kernelEngine({
      backend: options.backend as 'cpu',
      threads,
      activations: options.activations as 'f32',
    });
    return {
      name: kernels.name,
      open: (description) =>
        kernels.open({
          ...description,
          config: { ...description.config, layers: (context: number) => change(description.config.layers(context)) },
        }),
    };
  };
  const { activations: _taken, backend: _too, ...rest } = options;
  const model = await loadForCommand({ ...rest, model: path }, undefined, { engine });
  const bar = openPercentBar('of the text', options.json);
  try {
    const ids = [...model.tokenizer.encode(text)].slice(0, model.memory.context);
    if (ids.length < 2) fail('FORMAT', '--text', `${file} has fewer than two tokens.`);
    const runs: [string, Change][] = [
      [readings[0]!.reader, (layers) => layers],
      ...different.map((one): [string, Change] => [nameOf(one), (layers) => withRope(layers, one)]),
    ];
    const results: Cost['readings'][number][] = [];
    for (const [n, [reader, of]] of runs.entries()) {
      change = of;
      const costs = await natsOf(model, ids, (share) => bar.to((n + share) / runs.length));
      const mean = costs.reduce((sum, one) => sum + one, 0) / costs.length;
      results.push({ reader, nats: byPosition(costs), mean });
    }
    return { tokens: ids.length, readings: results };
  } finally {
    bar.stop();
    model.dispose();
  }
}

const nameOf = ({ form, reader }: Reading): string => `${form}, ${reader}`;

/** The layers with the frequencies and magnitudes of a reading. The pairing stays that of the weights. */
function withRope(layers: Layers, { model }: Reading): Layers {
  // Layers that rotate alike share tables by the identity of their RoPE.
  const made = new Map<string, RopeSpec | undefined>();
  return layers.map((layer, n) => {
    const other = model!.layers[n]?.rope;
    const key = JSON.stringify([other, layer.rope?.pairing]);
    if (!made.has(key)) made.set(key, other && layer.rope && { ...other, pairing: layer.rope.pairing });
    return { ...layer, rope: made.get(key) };
  });
}

/** The cost of each token after the first, in nats. */
async function natsOf(
  model: Model,
  ids: readonly number[],
  onProgress: (share: number) => void,
): Promise<Float64Array> {
  const { vocabSize } = model.config;
  const costs = new Float64Array(ids.length - 1);
  let at = 0;
  for await (const rows of logits(model, ids)) {
    for (let from = 0; from < rows.length && at < costs.length; from += vocabSize, at++) {
      const row = rows.subarray(from, from + vocabSize);
      costs[at] = logSumExp(row) - row[ids[at + 1]!]!;
    }
    onProgress(at / costs.length);
  }
  return costs;
}

/** Draws the cost over the position, on which the logarithm is taken: a line for each reading. */
export function costSvg({ tokens, readings }: Cost): string {
  const means = readings.flatMap(({ nats }) => nats.map(({ mean }) => mean));
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const digit = 10 ** Math.floor(Math.log10(high - low || 1));
  const step = [2, 1, 0.5, 0.2].map((by) => by * digit).find((by) => high - low >= 3 * by) ?? 0.2 * digit;
  const [from, to] = [Math.floor(low / step), Math.ceil(high / step)];
  const colors = readings.map((_, n) => COLORS[(n + 1) % COLORS.length]!);
  return chartSvg({
    heading: [
      { text: `nats a token by position, ${tokens} tokens` },
      ...readings.map(({ reader, mean }, n) => ({ text: `— ${reader}: ${mean.toFixed(3)}`, color: colors[n]! })),
    ],
    x: {
      from: 5,
      to: Math.log2(readings[0]!.nats.at(-1)!.to),
      ticks: readings[0]!.nats.map(({ to }) => [Math.log2(to), `${to}`]),
    },
    y: {
      from: from * step,
      to: to * step,
      ticks: Array.from({ length: to - from + 1 }, (_, n) => {
        const at = (from + n) * step;
        return [at, `${Number(at.toPrecision(6))}`];
      }),
    },
    series: readings.map(({ nats }, n) => ({
      color: colors[n]!,
      joined: nats.length > 1,
      points: nats.map(({ to, mean }) => [Math.log2(to), mean]),
    })),
  });
}

/** The means of parts that end at 64, 128, 256 … */
function byPosition(costs: Float64Array): { to: number; mean: number }[] {
  const parts: { to: number; mean: number }[] = [];
  for (let from = 0, to = 64; from < costs.length; from = to, to *= 2) {
    const part = costs.subarray(from, to);
    parts.push({ to: Math.min(to, costs.length), mean: part.reduce((sum, one) => sum + one, 0) / part.length });
  }
  return parts;
}
