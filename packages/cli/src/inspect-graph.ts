/** What `ropewalk inspect` says of ONNX graphs. @module */
import { existsSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { checkExternal, readJsonFile } from '@ropewalk/formats/node';
import {
  type GraphContents,
  graphContents,
  groupAlike,
  type ImportedModel,
  type ImportedRope,
  type OnnxValueType,
} from '@ropewalk/onnx';
import { RopewalkError } from 'ropewalk';
import { nameLayers, show } from 'ropewalk/internal';
import { readGraph } from './import.js';
import { printable, sizeText } from './output.js';

/** What there is to say of the graphs of a model. */
export interface ToldGraphs {
  json(): object;
  /** @param apart - whether a blank line comes first, after other lines */
  lines(apart: boolean): string[];
  /** False when a file beside a graph is missing, is cut, or has not the bytes that the graph reads. */
  readonly isSound: boolean;
}

/**
 * Reads the graphs of a model. A folder has one for each type of weights; the one that is loaded unless another is asked
 * for is told in full.
 */
export function readGraphs(files: readonly string[]): ToldGraphs {
  const main = files.length === 1 ? files[0] : files.find((one) => basename(one) === 'model.onnx');
  const graph = main === undefined ? undefined : readContents(main);
  const others = files.filter((one) => one !== main).map((one) => ({ file: one, sizeBytes: statSync(one).size }));
  return {
    json: () => ({ graph: graph && graphToJson(graph), otherGraphs: others.length > 0 ? others : undefined }),
    lines: (apart) => [
      ...(graph ? ['', ...describeGraph(graph)].slice(apart ? 0 : 1) : []),
      ...others.map((one) => `${printable(one.file)}: another graph, ${sizeText(one.sizeBytes)}`),
    ],
    isSound: !graph || graph.findings.length === 0,
  };
}

/** A graph, the files beside it, and its RoPE. */
interface ReadGraph {
  readonly file: string;
  readonly imported: ImportedModel;
  readonly contents: GraphContents;
  /** Sizes of the files beside it; undefined for those that cannot be read. */
  readonly sizes: readonly (number | undefined)[];
  readonly genai: unknown;
  /** What is wrong with the files beside it; full sentences. */
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
  // Beside the graph, or beside its folder onnx.
  const folder = dirname(file);
  const places = [folder, ...(basename(folder) === 'onnx' ? [dirname(folder)] : [])];
  const config = places.map((one) => join(one, 'genai_config.json')).find((one) => existsSync(one));
  const genai = config === undefined ? undefined : readJsonFile(config);
  return { file, imported, contents, sizes, genai, findings };
}

function describeGraph({ file, imported, contents, sizes, genai, findings }: ReadGraph): string[] {
  const { model, ropes } = imported;
  const { form, operators, weights, files, layers } = contents;
  const domains = Array.from(model.opsets, ([domain, version]) => `${domain === '' ? 'ai.onnx' : domain} ${version}`);
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
    ...groupAlike(ropes).map((group): [string, string] => ['RoPE', ropeOf(group)]),
    ['RoPE', ropes.length === 0 ? 'none found' : undefined],
  ];
  return [
    `${file}: ONNX graph`,
    ...rows.filter(([, value]) => value !== undefined).map(([key, value]) => `  ${key.padEnd(15)} ${value}`),
    ...findings.map((sentence) => `  ≠ ${sentence}`),
  ].map(printable);
}

/** `input_ids i64 [batch_size, 1]`. */
function typed({ name, dtype, shape }: OnnxValueType): string {
  return `${name} ${dtype ?? 'of another type'}${shape ? ` [${shape.map((dim) => dim ?? '?').join(', ')}]` : ''}`;
}

/** What genai_config.json says of the decoder. */
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

function ropeOf(group: readonly ImportedRope[]): string {
  const [{ form, pairing, rotaryDim, headDim, tables, frequencies }] = group as [ImportedRope];
  const layers = [...new Set(group.map(({ layer }) => layer))].filter((layer) => layer !== undefined);
  const words = [
    layers.length > 0 ? nameLayers(layers.sort((a, b) => a - b)) : `${group.length} nodes`,
    form,
    pairing,
    `${rotaryDim ?? '?'} of ${headDim ?? '?'} dimensions`,
    frequencies && frequencies.law.kind !== 'other' ? `base ${frequencies.law.base}` : undefined,
    tables.rows === undefined ? undefined : `tables of ${tables.rows} positions`,
  ];
  return words.filter((word) => word !== undefined).join(', ');
}

/** The first eight, and how many more. */
function brief(words: readonly string[]): string {
  const more = words.length > 8 ? `, and ${words.length - 8} more` : '';
  return words.slice(0, 8).join(', ') + more;
}

function graphToJson({ file, imported, contents, sizes, genai, findings }: ReadGraph): unknown {
  const { operators, files, ...rest } = contents;
  const { inputs, outputs } = imported.model.graph;
  return {
    file,
    opsets: Object.fromEntries(
      Array.from(imported.model.opsets, ([domain, version]) => [domain === '' ? 'ai.onnx' : domain, version]),
    ),
    producer: imported.model.producer,
    inputs,
    outputs,
    ...rest,
    operators: Object.fromEntries(operators),
    files: files.map((one, n) => ({ ...one, sizeBytes: sizes[n] ?? null })),
    ropes: groupAlike(imported.ropes).map(([rope, ...more]) => {
      const { found: _what, ...told } = rope!;
      return { ...told, layers: [rope!, ...more].map(({ layer }) => layer ?? null) };
    }),
    genai,
    findings,
  };
}
