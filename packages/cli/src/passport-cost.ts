/** The cost of a wrong reading: what a model's next tokens cost under each, by position. @module */
import type { Passport } from '@ropewalk/dialects';
import { type DecoderConfig, type Engine, logits, type Model } from '@ropewalk/model';
import { kernelEngine, logSumExp } from '@ropewalk/model/internal';
import type { RopeSpec } from 'ropewalk';
import { fail } from 'ropewalk/backend';
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

/** The means of parts that end at 64, 128, 256 … */
function byPosition(costs: Float64Array): { to: number; mean: number }[] {
  const parts: { to: number; mean: number }[] = [];
  for (let from = 0, to = 64; from < costs.length; from = to, to *= 2) {
    const part = costs.subarray(from, to);
    parts.push({ to: Math.min(to, costs.length), mean: part.reduce((sum, one) => sum + one, 0) / part.length });
  }
  return parts;
}
