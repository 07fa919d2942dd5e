/**
 * `ropewalk convert`: one layer's RoPE in another peer's words, read back as proof; tables as .npy.
 *
 * @module
 */
import { rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import {
  type Conversion,
  convertRope,
  type GivenTable,
  type ModelRope,
  modelTypeOf,
  peerOf,
  readForm,
  specFromJson,
  specToJson,
} from '@ropewalk/dialects';
import { parseNpy, tensorFromNpy, writeNpy } from '@ropewalk/formats';
import { readFileBytes, readJsonFile, refuseSystem } from '@ropewalk/formats/node';
import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { modelFileOf, readExpectedRope, readModel } from './model-file.js';
import { readContext, readInteger } from './options.js';
import { EXIT, printJson } from './output.js';
import { VERSION } from './version.js';
import { makeFolder, replaceFile } from './write-file.js';

/** Options of the command, as the command line gives them. */
export interface ConvertCommandOptions {
  readonly to: string;
  readonly layer?: string;
  readonly context?: string;
  readonly positions?: string;
  readonly heads?: string;
  readonly arch?: string;
  readonly modelType?: string;
  readonly out?: string;
  readonly json?: boolean;
}

/** Tables of a million positions and 128 pairs are half of this. */
const MAX_NPY_BYTES = 2 ** 30;
const MAX_COUNT = 2 ** 31 - 1;

/** A RoPE on the command line: one record, and where it is from. */
export interface RopeSource {
  readonly spec: RopeSpec;
  /** For messages: `llama.json, layer 0`. */
  readonly from: string;
  readonly notes: readonly string[];
  /** The model, where the file is one. */
  readonly model?: ModelRope;
  /** Whether the layer slides while others of its model do not. */
  readonly sliding?: boolean;
}

/**
 * Converts.
 *
 * @param from - a config.json, a .gguf, a folder with one, a record, a `ROPE(…)` line, or a JSON of some peer's arguments
 * @param options - target, layer, context, rows of tables, output folder
 * @returns the exit code
 * @throws {RopewalkError} for input that makes no sense, and UNSUPPORTED where the target has no words for it: the caller exits with 2
 */
export async function convert(from: string, options: ConvertCommandOptions): Promise<number> {
  peerOf(options.to); // before any file is read
  const { context } = readContext(options.context, 'convert');
  const layer = readInteger(options.layer, 'convert: --layer', 0, MAX_COUNT);
  const positions = readInteger(options.positions, 'convert: --positions', 1, MAX_COUNT);
  const heads = readInteger(options.heads, 'convert: --heads', 1, MAX_COUNT);
  const source = await readRopeSource(from, 'convert', {
    ...(context === undefined ? {} : { context }),
    ...(layer === undefined ? {} : { layer }),
  });
  const { model } = source;
  if (options.to === 'gguf' && source.sliding)
    refuse(
      'UNSUPPORTED',
      'convert: --layer',
      'a full layer, as GGUF has one key for the sliding ones: rope.freq_base_swa, their base',
      `sliding layer ${layer ?? 0}, whose base is ${source.spec.base}`,
      'Choose a full layer with --layer.',
    );
  const modelType =
    options.modelType ?? (model && (model.source === 'gguf' ? modelTypeOf(model.architecture) : model.architecture));
  const architecture = options.arch ?? (model?.source === 'gguf' ? model.architecture : undefined);
  const conversion = convertRope(source.spec, options.to, {
    ...(context === undefined ? {} : { context }),
    ...(positions === undefined ? {} : { positions }),
    ...(heads === undefined ? {} : { heads }),
    ...(modelType === undefined ? {} : { modelType }),
    ...(architecture === undefined ? {} : { architecture }),
  });
  if (conversion.tables.length > 0 && options.out === undefined)
    refuse(
      'FORMAT',
      'convert: --out',
      `a folder for ${conversion.tables.map((t) => `${t.name}.npy`).join(' and ')}`,
      undefined,
    );
  const record = toJson(conversion, source);
  const written =
    options.out === undefined ? [] : writeAll(options.out, conversion, `${JSON.stringify(record, null, 2)}\n`);
  if (options.json) printJson(record);
  else
    process.stdout.write(
      `${[...describe(conversion, source), ...written.map((name) => `  wrote ${name}`)].join('\n')}\n`,
    );
  return EXIT.ok;
}

/**
 * Reads one layer's RoPE from whatever the command line names.
 *
 * @param from - a config.json, a .gguf, a folder with one, a record, a `ROPE(…)` line, or a JSON of some peer's arguments, with .npy files beside it
 * @param command - names the command in messages
 * @param options - the context in use, and the layer of a model; 0 unless given
 * @throws {RopewalkError} FORMAT, RANGE or whatever the reader says
 */
export async function readRopeSource(
  from: string,
  command: string,
  options: { readonly context?: number; readonly layer?: number },
): Promise<RopeSource> {
  const { layer = 0, ...rest } = options;
  if (/^\s*ROPE\s*\(/.test(from)) {
    const { spec, direction, from: name } = await readExpectedRope(from, command, rest);
    const notes = direction === 'backward' ? ['The line turns backward; the record is of the forward direction.'] : [];
    return { spec: specFromJson(specToJson(spec), from), from: name, notes };
  }
  const file = modelFileOf(from, command);
  if (/\.json$/i.test(file)) {
    const json = readJsonFile(file, `${command}: ${file}`);
    if (!isModelConfig(json)) {
      const { peer, spec } = readForm(json, readTables(json, file, command), { ...rest, where: file });
      return { spec, from: `${file} (${peer})`, notes: [] };
    }
  } else if (!/\.gguf$/i.test(file))
    refuse(
      'FORMAT',
      command,
      'a config.json, a .gguf, a folder with one, a record or arguments as .json, or a ROPE(…) line',
      file,
    );
  const model = await readModel(file, command, rest);
  const found =
    model.layers[layer] ?? refuse('RANGE', `${command}: --layer`, `a layer in [0, ${model.numLayers - 1}]`, layer);
  if (!found.rope)
    refuse('RANGE', `${command}: --layer`, 'a layer with RoPE', `layer ${layer}, which has no position encoding`);
  const same = (rope: RopeSpec | undefined): boolean => rope !== undefined && key(rope) === key(found.rope!);
  const others = model.layers.filter(({ rope }) => rope && !same(rope)).map((other) => other.layer);
  return {
    spec: found.rope,
    from: `${file}, layer ${layer}`,
    notes: [
      ...model.notes,
      ...(others.length > 0
        ? [
            `Layers ${others.slice(0, 8).join(', ')}${others.length > 8 ? ', …' : ''} turn otherwise: convert them too, with --layer.`,
          ]
        : []),
    ],
    model,
    sliding: found.layerType === 'sliding_attention' && others.length > 0,
  };
}

function key(spec: RopeSpec): string {
  return JSON.stringify(specToJson(spec));
}

function isModelConfig(json: unknown): boolean {
  return typeof json === 'object' && json !== null && ('model_type' in json || 'text_config' in json);
}

/** The .npy files that a JSON names, among its arguments or its tables, beside it in its own folder. */
function readTables(json: unknown, file: string, command: string): Map<string, GivenTable> {
  const tables = new Map<string, GivenTable>();
  const roots = [json, (json as Record<string, unknown>)?.arguments, (json as Record<string, unknown>)?.tables];
  for (const root of roots) {
    if (typeof root !== 'object' || root === null || Array.isArray(root)) continue;
    for (const [name, value] of Object.entries(root)) {
      if (typeof value !== 'string' || !value.endsWith('.npy')) continue;
      if (value !== basename(value))
        refuse('FORMAT', `${file}: ${name}`, 'the name of a file in the same folder', value);
      const path = join(dirname(file), value);
      const npy = parseNpy(readFileBytes(path, MAX_NPY_BYTES, `${command}: ${path}`), path);
      // npy has no bf16; its bits travel as u16.
      const dtype = npy.dtype === 'u16' ? 'bf16' : npy.dtype;
      const roundoff = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 }[dtype as string];
      if (roundoff === undefined) refuse('DTYPE', path, 'f64, f32, f16, or bf16 as u16', npy.dtype);
      tables.set(name, { shape: npy.shape, data: tensorFromNpy(npy, dtype).readNumbers() as Float64Array, roundoff });
    }
  }
  return tables;
}

function toJson(conversion: Conversion, source: RopeSource): unknown {
  const { target, call, tables, notes, relayout, error } = conversion;
  return {
    ropewalk: VERSION,
    from: source.from,
    target,
    call,
    arguments: conversion.arguments,
    ...(tables.length > 0 ? { tables: Object.fromEntries(tables.map(({ name }) => [name, `${name}.npy`])) } : {}),
    ...(relayout ? { relayout } : {}),
    notes: [...source.notes, ...notes],
    read_back: { max_rel_inv_freq: error.invFreq, rel_attention_factor: error.attentionFactor },
    record: specToJson(source.spec),
  };
}

function describe(conversion: Conversion, source: RopeSource): string[] {
  const { call, tables, notes, error, relayout } = conversion;
  const entries = flatten(conversion.arguments);
  const width = Math.max(
    ...[...entries.map(([name]) => name), ...tables.map(({ name }) => name)].map((name) => name.length),
  );
  const same = relayout ? `the same RoPE, in pairing ${relayout.to}` : 'the same RoPE';
  return [
    `${source.from} → ${conversion.target}: ${call}`,
    ...entries.map(([name, value]) => `  ${name.padEnd(width)}  ${brief(value)}`),
    ...tables.map(({ name, shape }) => `  ${name.padEnd(width)}  f32 [${shape.join(', ')}]`),
    ...[...source.notes, ...notes].map((note) => `  note: ${note}`),
    `  read back: ${same}; frequencies within ${percent(error.invFreq)}, magnitude within ${percent(error.attentionFactor)}`,
  ];
}

function percent(error: number): string {
  return error === 0 ? '0' : error.toExponential(1);
}

/** Objects in objects become paths. */
function flatten(record: Readonly<Record<string, unknown>>, path = ''): [string, unknown][] {
  return Object.entries(record).flatMap(([name, value]): [string, unknown][] =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
      ? flatten(value as Record<string, unknown>, `${path}${name}.`)
      : [[`${path}${name}`, value]],
  );
}

function brief(value: unknown): string {
  if (!Array.isArray(value) || value.length <= 8) return JSON.stringify(value);
  return `${value.length} values: ${value.slice(0, 3).join(', ')}, …, ${value.slice(-2).join(', ')}`;
}

/** Writes the tables, then the JSON that names them: a file with its final name is whole. */
function writeAll(folder: string, conversion: Conversion, text: string): string[] {
  const files: [string, Uint8Array | string][] = [
    ...conversion.tables.map(({ name, shape, data }): [string, Uint8Array] => [
      `${name}.npy`,
      writeNpy(data, { dtype: 'f32', shape }),
    ]),
    [`${conversion.target}.json`, text],
  ];
  const paths: string[] = [];
  let made: string | undefined;
  try {
    made = makeFolder(folder);
    for (const [name, bytes] of files) {
      const path = join(folder, name);
      replaceFile(path, bytes);
      paths.push(path);
    }
  } catch (cause) {
    if (made !== undefined) rmSync(made, { recursive: true, force: true });
    refuseSystem('DEVICE', `convert: --out: ${folder}`, 'a folder that can be written', cause);
  }
  return paths;
}
