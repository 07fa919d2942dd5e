/**
 * `ropewalk inspect`: the effective RoPE of each layer of a model, the contents of an ONNX graph and its RoPE, or lists
 * of tensors and metadata.
 *
 * @module
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { describeGroup, describeScaling, groupLayers, type ModelRope } from '@ropewalk/dialects/internal/models';
import { isFolder, isGraphFolder, modelFileOf, onnxFileOf, onnxFilesOf } from '@ropewalk/formats/node';
import { frequenciesOf, type RopeSpec, ropeFrequencies } from 'ropewalk';
import { countLayers } from 'ropewalk/internal';
import type { RunOptions } from './inspect-rope.js';
import { Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, printResult } from './output.js';
import { plotFrequencies } from './plot.js';
import { isRopeLine } from './rope-line.js';

export type InspectOptions = Texts<'context' | 'run'> & Switches<'tensors' | 'metadata' | 'json'> & RunOptions;

/**
 * Inspects a model by the type of its file.
 *
 * @returns 0; 1 when a file beside a graph is missing, is cut or lacks bytes that the graph reads, and when a graph
 *   without a config.json has no RoPE, or a node that only resembles RoPE
 */
export async function inspect(path: string, options: InspectOptions): Promise<number> {
  const flags = new Flags(options);
  const context = flags.integer('context', 1);
  if (options.run !== undefined) {
    flags.refuseAny(['tensors', 'metadata', 'context'], 'it does not apply to --run. Leave it out.', 'UNSUPPORTED');
    const file = onnxFileOf(path);
    const [{ readGraph }, { runRope }] = await Promise.all([import('./inspect-graph.js'), import('./inspect-rope.js')]);
    return runRope(file, readGraph(file), options.run, options);
  }
  flags.refuseAny(['x', 'positions', 'out', 'backend', 'input'], 'it needs --run NODE.');
  if (isRopeLine(path)) {
    flags.refuseAny(
      ['tensors', 'metadata', 'context'],
      'it does not apply to a ROPE(…) line. Leave it out.',
      'UNSUPPORTED',
    );
    return inspectLine(path.trim(), options);
  }
  const isLists = options.tensors || options.metadata;
  if (isLists)
    flags.refuseAny(
      ['context'],
      'it is about RoPE, and --tensors and --metadata list what the files hold. Leave it out.',
    );
  if (isLists || /\.safetensors$/i.test(path)) return inspectContents(path, options, context);
  const graphs = /\.onnx$/i.test(path) ? [path] : isFolder(path) ? onnxFilesOf(path) : [];
  const file = graphs.length > 0 && !hasConfig(path) ? undefined : modelFileOf(path);
  const model = file === undefined ? undefined : await readModelRope(file, context);
  const report = graphs.length > 0 ? (await import('./inspect-graph.js')).readGraphs(graphs) : undefined;
  printResult(options.json, {
    json: () => ({ ...(model && toJson(model)), ...report?.json(model === undefined) }),
    lines: () => [
      ...(model ? describe(file!, model) : []),
      ...(model && report ? [''] : []),
      ...(report?.lines() ?? []),
    ],
  });
  const isFine = !report || (report.isSound && (model !== undefined || report.hasRope));
  return isFine ? EXIT.ok : EXIT.failed;
}

async function inspectLine(text: string, { json }: InspectOptions): Promise<number> {
  const { spec, direction, line, notes } = await (await import('./rope-source.js')).readRope(text);
  printResult(json, {
    json: () => ({ line: text, ...line, direction, ...ropeToJson(spec) }),
    lines: () => [
      `${text}: ${line!.dtype}, ${direction}, batch ${line!.batch}, ${counted(line!.seq, 'token')}, ${counted(line!.heads, 'head')}, positions below ${line!.context}`,
      ...notes.map((note) => `  note: ${note}`),
      ...describeRope(spec),
    ],
  });
  return EXIT.ok;
}

/** Prints the lists that are asked for. Without them, a .safetensors has a summary, and the RoPE of its config.json. */
async function inspectContents(path: string, options: InspectOptions, context: number | undefined): Promise<number> {
  const { configBeside, contentsToJson, describeContents, readContents } = await import('./inspect-contents.js');
  const contents = await readContents(path);
  const summary = !options.tensors && !options.metadata;
  const config = summary ? configBeside(path) : undefined;
  const model = config === undefined ? undefined : await readModelRope(config, context);
  const next = 'Its RoPE is in config.json, which is not beside it; --tensors and --metadata list what it holds.';
  printResult(options.json, {
    json: () => ({ ...contentsToJson(contents, options), ...(model && toJson(model)) }),
    lines: () => [
      ...describeContents(contents, options),
      ...(model ? describe(config!, model) : summary ? [`  note: ${next}`] : []),
    ],
  });
  return EXIT.ok;
}

function hasConfig(path: string): boolean {
  return isFolder(path) && (existsSync(join(path, 'config.json')) || !isGraphFolder(path));
}

function describe(file: string, model: ModelRope): string[] {
  const context = model.maxContext ? `, context ${model.maxContext}` : '';
  return [
    `${file}: ${model.architecture}, ${countLayers(model.numLayers)}${context} (${model.source})`,
    ...model.notes.map((note) => `  note: ${note}`),
    ...groupLayers(model.layers).flatMap(({ rope, ...group }) => [
      '',
      describeGroup(group),
      ...(rope ? describeRope(rope) : ['  no position encoding']),
    ]),
  ];
}

function describeRope(rope: RopeSpec): string[] {
  const { base, headDim, rotaryDim = headDim, rotaryOffset, pairing, axes } = rope;
  const { invFreq, attentionFactor } = frequenciesOf(rope);
  const rows: [string, string][] = [
    ['base', String(base)],
    ['head_dim', String(headDim)],
    ['rotary_dim', `${rotaryDim}${rotaryOffset ? ` from ${rotaryOffset}` : ''}`],
    ['pairing', pairing],
    ['scaling', describeScaling(rope)],
    ['factor', `${Number(attentionFactor.toPrecision(9))} on cos and sin`],
  ];
  if (axes)
    rows.push([
      'axes',
      `${axes.rule}, sections ${axes.sections.join('+')} (t, h, w${axes.sections[3] === undefined ? '' : ', e'})`,
    ]);
  const plain = ropeFrequencies({ ...rope, rotaryDim, scaling: { kind: 'none' }, freqFactors: undefined });
  return [
    ...rows.map(([key, value]) => `  ${key.padEnd(15)} ${value}`),
    ...plotFrequencies(invFreq, plain.invFreq).map((line) => `  ${line}`),
  ];
}

function toJson(model: ModelRope): object {
  const layers = model.layers.map((layer) => ({ ...layer, ...(layer.rope ? ropeToJson(layer.rope) : { rope: null }) }));
  return { ...model, layers };
}

function ropeToJson(rope: RopeSpec): object {
  const { invFreq, attentionFactor } = frequenciesOf(rope);
  const freqFactors = rope.freqFactors && Array.from(rope.freqFactors);
  return { rope: { ...rope, freqFactors }, invFreq: [...invFreq], attentionFactor };
}
