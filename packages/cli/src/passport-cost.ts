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
  /** The position behind which parts are estimated; undefined where every token was run. */
  readonly estimatedFrom?: number;
  readonly readings: readonly {
    readonly reader: string;
    /** The mean over the tokens at positions up to `to`, from the end of the part before. */
    readonly nats: readonly { readonly to: number; readonly mean: number }[];
    readonly mean: number;
  }[];
}

/** Options of the model, and `--estimate`. */
export type CostOptions = ModelRunOptions & { readonly estimate?: boolean };

type Reading = Passport['readings'][number];
type Layers = ReturnType<DecoderConfig['layers']>;
type Change = (layers: Layers) => Layers;

/** Up to here an estimate runs every token. */
const RUN_WHOLE = 512;
/** An estimate of a later part runs the first tokens of the text, and the last ones of the part, of which half count. */
const [FIRST, LAST] = [256, 512];

/** Tokens that are run, all at their own positions: the first of the text, and those of a part. */
interface Run {
  readonly first: number;
  readonly from: number;
  readonly to: number;
}

/** Computes a text under the first reading and under each that differs. `--estimate` runs some tokens of each part. */
export async function costOf(path: string, file: string, { readings }: Passport, options: CostOptions): Promise<Cost> {
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
  const { activations: _taken, backend: _too, estimate, ...rest } = options;
  const model = await loadForCommand({ ...rest, model: path }, undefined, { engine });
  const bar = openPercentBar('of the text', options.json);
  try {
    const ids = [...model.tokenizer.encode(text)].slice(0, model.memory.context);
    if (ids.length < 2) fail('FORMAT', '--text', `${file} has fewer than two tokens.`);
    if (estimate) refuseEstimate(model.config);
    const parts = partsOf(ids.length, estimate === true);
    const toRun = parts.reduce((sum, { first, from, to }) => sum + first + to - from, 0);
    const runs: [string, Change][] = [
      [readings[0]!.reader, (layers) => layers],
      ...different.map((one): [string, Change] => [nameOf(one), (layers) => withRope(layers, one)]),
    ];
    const results: Cost['readings'][number][] = [];
    for (const [n, [reader, of]] of runs.entries()) {
      change = of;
      let done = n * toRun;
      const onToken = () => bar.to(++done / (toRun * runs.length));
      const nats: { to: number; mean: number }[] = [];
      for (const part of parts) {
        const costs = await natsOf(model, ids, part, onToken);
        if (part.first === 0) nats.push(...byPosition(costs));
        else nats.push({ to: part.to - 1, mean: meanOf(costs.subarray(-LAST / 2)) });
      }
      const sum = nats.reduce((all, { to, mean }, k) => all + mean * (to - (nats[k - 1]?.to ?? 0)), 0);
      results.push({ reader, nats, mean: sum / nats.at(-1)!.to });
    }
    return { tokens: ids.length, ...(parts.length > 1 && { estimatedFrom: RUN_WHOLE }), readings: results };
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

/** An estimate leaves tokens out, which only attention without windows does not notice. */
function refuseEstimate({ layers, maxContext, recurrent }: DecoderConfig): void {
  const those = layers(maxContext);
  const why = recurrent
    ? 'this model has layers with a state, which needs every token.'
    : those.some(({ window = maxContext, chunk }) => window < maxContext || chunk !== undefined)
      ? 'layers of this model see a window of tokens, and far tokens would be in it.'
      : those.some(({ rope }) => rope?.axes) && 'the positions of this model have several axes.';
  if (why) fail('UNSUPPORTED', '--estimate', `${why} Leave it out.`);
}

/** One run of all tokens; or, for an estimate, one of the first tokens and one for each part behind them. */
function partsOf(count: number, isEstimate: boolean): Run[] {
  if (!isEstimate || count <= 2 * RUN_WHOLE) return [{ first: 0, from: 0, to: count }];
  const parts: Run[] = [{ first: 0, from: 0, to: RUN_WHOLE + 1 }];
  for (let end = RUN_WHOLE; end < count - 1; ) {
    end = Math.min(2 * end, count - 1);
    parts.push({ first: FIRST, from: end + 1 - LAST, to: end + 1 });
  }
  return parts;
}

/** The cost of each token of a run after the first, in nats. */
async function natsOf(
  model: Model,
  ids: readonly number[],
  { first, from, to }: Run,
  onToken: () => void,
): Promise<Float64Array> {
  const { vocabSize } = model.config;
  const positions = ids.flatMap((_, n) => (n < first || (n >= from && n < to) ? [n] : []));
  const own = positions.map((n) => ids[n]!);
  const costs = new Float64Array(own.length - 1);
  let at = 0;
  for await (const rows of logits(model, own, first > 0 ? { positions, context: to } : {})) {
    for (let start = 0; start < rows.length && at < costs.length; start += vocabSize, at++) {
      const row = rows.subarray(start, start + vocabSize);
      costs[at] = logSumExp(row) - row[own[at + 1]!]!;
      onToken();
    }
  }
  return costs;
}

const meanOf = (costs: Float64Array): number => costs.reduce((sum, one) => sum + one, 0) / costs.length;

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
    parts.push({ to: Math.min(to, costs.length), mean: meanOf(costs.subarray(from, to)) });
  }
  return parts;
}
