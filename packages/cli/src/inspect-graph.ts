/** ONNX graphs in `ropewalk inspect`: what they contain, their RoPE, and the files beside them. @module */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { checkExternal, readFileBytes, readJsonFile } from '@ropewalk/formats/internal/node';
import { readExternal } from '@ropewalk/formats/node';
import { type GraphContents, type GraphRope, graphContents, type ImportedModel, importOnnx } from '@ropewalk/onnx';
import { groupAlike, MAX_MODEL_BYTES, type OnnxValueType } from '@ropewalk/onnx/internal';
import { RopewalkError } from 'ropewalk';
import { nameLayers, show } from 'ropewalk/internal';
import { describeRopes, opsetsOf, ropesToJson } from './inspect-rope.js';
import { printable, sizeText, small } from './output.js';

/** Reads a graph and finds its RoPE. Of the files beside it only the tables are read. */
export function readGraph(file: string): ImportedModel {
  const bytes = readFileBytes(file, MAX_MODEL_BYTES);
  return importOnnx(bytes, file, { loadExternal: (place) => readExternal(file, place) });
}

/** The problems inside a graph, and those of its tables beside a model's frequencies, as full sentences. */
export function problemsOf({ findings, tables }: GraphRope): string[] {
  const wrong = tables.flatMap(({ name: node, computed, wrong: numbers, first }) =>
    first
      ? [
          `${node} ${computed ? 'computes angles' : 'reads tables'} with ${numbers} wrong ${numbers === 1 ? 'number' : 'numbers'}: at position ` +
            `${first.position} ${first.part} of pair ${first.pair} is ${small(first.got)}, and not ${small(first.expected)}.`,
        ]
      : [],
  );
  return [...findings, ...wrong].map(printable);
}

/** The description of a model's graphs. */
export interface GraphReport {
  /** @param alone - whether the model has no config.json, so that the graph's RoPE is the model's */
  json(alone: boolean): object;
  lines(): string[];
  /** False when a file beside the graph is missing, is cut, or lacks bytes that the graph reads. */
  readonly isSound: boolean;
  /** Whether the graph has RoPE, and nothing that only resembles it. */
  readonly hasRope: boolean;
}

/** Reads the graphs of a model. Of a folder with several, model.onnx is described, and the others are listed. */
export function readGraphs(files: readonly string[]): GraphReport {
  const main = files.length === 1 ? files[0] : files.find((one) => basename(one) === 'model.onnx');
  const graph = main === undefined ? undefined : readContents(main);
  const others = files.filter((one) => one !== main).map((one) => ({ file: one, sizeBytes: statSync(one).size }));
  return {
    json: (alone) => ({
      ...(graph && alone && ropesToJson(graph.file, graph.imported)),
      graph: graph && graphToJson(graph),
      otherGraphs: others.length > 0 ? others : undefined,
    }),
    lines: () =>
      [
        ...(graph ? [...describeGraph(graph), '', ...describeRopes(graph.file, graph.imported)] : []),
        ...others.map((one) => `${one.file}: another graph, ${sizeText(one.sizeBytes)}`),
      ].map(printable),
    isSound: !graph || graph.findings.length === 0,
    hasRope: !graph || (graph.imported.ropes.length > 0 && graph.imported.nearly.length === 0),
  };
}

/** A graph, the files beside it, and its RoPE. */
interface ReadGraph {
  readonly file: string;
  readonly imported: ImportedModel;
  readonly contents: GraphContents;
  /** Sizes of the files beside it; undefined for those that cannot be read. */
  readonly sizes: readonly (number | undefined)[];
  /** The parsed genai_config.json, if there is one. */
  readonly genai: unknown;
  /** Problems of the files beside it, as full sentences. */
  readonly findings: readonly string[];
}

function readContents(file: string): ReadGraph {
  const imported = readGraph(file);
  const contents = graphContents(imported.model);
  const findings: string[] = [];
  const sizes = contents.files.map(({ location, endByte, wrong }) => {
    findings.push(...wrong.map((sentence) => `${location}: ${sentence}`));
    try {
      return checkExternal(file, location, endByte);
    } catch (error) {
      if (!(error instanceof RopewalkError)) throw error;
      findings.push(error.message);
      return undefined;
    }
  });
  // genai_config.json lies beside the graph, or beside the folder onnx that holds the graph.
  const folder = dirname(file);
  const places = [folder, ...(basename(folder) === 'onnx' ? [dirname(folder)] : [])];
  const config = places.map((one) => join(one, 'genai_config.json')).find((one) => existsSync(one));
  const genai = config === undefined ? undefined : readJsonFile(config);
  return { file, imported, contents, sizes, genai, findings };
}

function describeGraph({ file, imported, contents, sizes, genai, findings }: ReadGraph): string[] {
  const { model } = imported;
  const { form, operators, weights, files, layers } = contents;
  const domains = Object.entries(opsetsOf(model)).map(([domain, version]) => `${domain} ${version}`);
  const isCache = ({ name }: OnnxValueType): boolean => /^(?:past|present)/.test(name);
  const values = (list: readonly OnnxValueType[]): string =>
    list
      .filter((value) => !isCache(value))
      .map(typed)
      .join('; ');
  const cache = model.graph.inputs.find((value) => isCache(value) && value.name.includes('key'));
  const nodes = [...operators.values()].reduce((sum, count) => sum + count, 0);
  const total = weights.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  const rows: [string, string | undefined][] = [
    ['form', `${form}, ${domains.join(', ')}${model.producer === '' ? '' : `, from ${show(model.producer)}`}`],
    ['doc', model.graph.doc === '' ? undefined : show(model.graph.doc)],
    ['inputs', values(model.graph.inputs)],
    ['outputs', values(model.graph.outputs)],
    [
      'KV caches',
      layers.length > 0
        ? `${nameLayers(layers)}${cache ? `, ${typed(cache).replace(cache.name, '').trim()}` : ''}`
        : 'none: each run computes all tokens',
    ],
    ['operators', `${nodes}: ${brief(Array.from(operators, ([name, count]) => `${count} ${name}`))}`],
    [
      'weights',
      `${sizeText(total)}: ${brief(weights.map(({ kind, tensors, sizeBytes }) => `${sizeText(sizeBytes)} in ${tensors} of ${kind}`))}`,
    ],
    ...files.map(({ location, tensors }, n): [string, string] => [
      'data file',
      `${location}, ${sizes[n] === undefined ? 'not readable' : sizeText(sizes[n])}, ${tensors} tensors`,
    ]),
    ['genai', genaiOf(genai)],
  ];
  return [
    `${file}: ONNX graph`,
    ...rows.filter(([, value]) => value !== undefined).map(([key, value]) => `  ${key.padEnd(15)} ${value}`),
    ...findings.map((sentence) => `  ≠ ${sentence}`),
  ];
}

/** `input_ids i64 [batch_size, 1]`. */
function typed({ name, dtype, shape }: OnnxValueType): string {
  return `${name} ${dtype ?? 'of another type'}${shape ? ` [${shape.map((dim) => dim ?? '?').join(', ')}]` : ''}`;
}

/** The sizes of the decoder as genai_config.json states them. */
function genaiOf(json: unknown): string | undefined {
  if (typeof json !== 'object' || json === null || !('model' in json)) return undefined;
  const model = (json.model ?? {}) as Record<string, unknown>;
  const decoder = (model.decoder ?? {}) as Record<string, unknown>;
  const keys = ['num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'head_size', 'hidden_size'];
  const known = [
    ...['type', 'context_length', 'vocab_size'].map((key) => [key, model[key]]),
    ...keys.map((key) => [key, decoder[key]]),
  ].filter(([, value]) => typeof value === 'string' || typeof value === 'number');
  return known.map(([key, value]) => `${key} ${value}`).join(', ');
}

/** The first eight words, and how many there are beside them. */
function brief(words: readonly string[]): string {
  const more = words.length > 8 ? `, and ${words.length - 8} more` : '';
  return words.slice(0, 8).join(', ') + more;
}

function graphToJson({ file, imported, contents, sizes, genai, findings }: ReadGraph): unknown {
  const { operators, files, ...rest } = contents;
  const { inputs, outputs } = imported.model.graph;
  return {
    file,
    opsets: opsetsOf(imported.model),
    producer: imported.model.producer,
    inputs,
    outputs,
    ...rest,
    operators: Object.fromEntries(operators),
    files: files.map((one, n) => ({ ...one, sizeBytes: sizes[n] ?? null })),
    ropes: groupAlike(imported.ropes).map(([rope, ...more]) => {
      const { found: _nodes, ...fields } = rope!;
      return { ...fields, layers: [rope!, ...more].map(({ layer }) => layer ?? null) };
    }),
    genai,
    findings,
  };
}
