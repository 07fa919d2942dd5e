/** `ropewalk convert`: one layer's RoPE as another peer's arguments, read back as proof; tables as .npy. @module */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { type Conversion, convertRope, modelTypeOf, specToJson } from '@ropewalk/dialects';
import { peerOf, rotationMatrix } from '@ropewalk/dialects/internal';
import { writeNpy } from '@ropewalk/formats';
import { makeFolder, refuseSystem, replaceFile } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { ranges } from 'ropewalk/internal';
import { checkFolderName, Flags, MAX_INTEGER, type Switches, type Texts } from './options.js';
import { EXIT, printResult } from './output.js';
import { type GivenRope, readRope } from './rope-source.js';
import { VERSION } from './version.js';

export type ConvertCommandOptions = Texts<
  'to' | 'matrix' | 'layer' | 'context' | 'tableLen' | 'heads' | 'arch' | 'modelType' | 'out'
> &
  Switches<'json'>;

const FOLDER =
  "It gets one layer's RoPE: its arguments as JSON, and tables as .npy. ropewalk to-gguf MODEL -o model.gguf writes a " +
  'whole model.';

/** @param from - a text for {@link readRope} */
export async function convert(from: string, options: ConvertCommandOptions): Promise<number> {
  const { to, out } = options;
  if (options.matrix !== undefined) return showMatrix(from, options);
  if (to === undefined)
    fail('FORMAT', '--to', 'it is required, unless --matrix is given. ropewalk convert --help lists the targets.');
  peerOf(to); // refuses an unknown peer before any file is read
  if (out !== undefined) checkFolderName(out, '--out', FOLDER);
  const flags = new Flags(options);
  const context = flags.integer('context', 1);
  const layer = flags.integer('layer');
  const positions = flags.integer('tableLen', 1);
  const heads = flags.integer('heads', 1);
  const given = await readRope(from, context, layer);
  const model = given.source?.kind === 'model' ? given.source.model : undefined;
  const conversion = convertRope(given.spec, to, {
    context,
    positions,
    maxContext: model?.maxContext,
    heads,
    layerType: given.layerType,
    modelType: options.modelType ?? (model?.source === 'gguf' ? modelTypeOf(model.architecture) : model?.architecture),
    architecture: options.arch ?? (model?.source === 'gguf' ? model.architecture : undefined),
  });
  if (conversion.tables.length > 0 && out === undefined)
    fail('FORMAT', '--table-len', `tables go into files. Give --out DIR for ${tableFiles(conversion).join(' and ')}.`);
  const notes = [...notesOf(given), ...conversion.notes];
  const record = toJson(conversion, given, notes);
  const written = out === undefined ? [] : writeAll(out, conversion, `${JSON.stringify(record, null, 2)}\n`);
  printResult(options.json, {
    json: () => record,
    lines: () => [...describe(conversion, given.from, notes), ...written.map((name) => `  wrote ${name}`)],
  });
  return EXIT.ok;
}

/** The largest head whose matrix is printed, and the largest that --json writes. */
const [LARGEST_SHOWN, LARGEST] = [16, 256];

/** Prints R_p, the matrix by which a RoPE multiplies a head at a position. */
async function showMatrix(from: string, options: ConvertCommandOptions): Promise<number> {
  const flags = new Flags(options);
  const others = ['to', 'tableLen', 'heads', 'arch', 'modelType', 'out'] as const;
  flags.refuseAny(others, 'it does not go with --matrix. Leave it out.');
  const position = flags.integer('matrix', -MAX_INTEGER, MAX_INTEGER)!;
  const { spec, direction, from: name } = await readRope(from, flags.integer('context', 1), flags.integer('layer'));
  const { headDim } = spec;
  const most = options.json ? LARGEST : LARGEST_SHOWN;
  if (headDim > most)
    refuse(
      'RANGE',
      '--matrix',
      `a head of at most ${most} dimensions`,
      headDim,
      options.json
        ? undefined
        : `Up to ${LARGEST} with --json; or a small one: "ROPE(ne_a=[8,1,1,1],n_dims=8,mode=0)".`,
    );
  const rows = rotationMatrix(spec, position, direction);
  const text = rows.map((row) =>
    row.map((value) => (value === 0 ? '0' : Object.is(value, 1) ? '1' : value.toFixed(6))),
  );
  const width = Math.max(...text.flat().map(({ length }) => length));
  printResult(options.json, {
    json: () => ({ from: name, position, direction, matrix: rows }),
    lines: () => [
      `R at position ${position}, ${direction}: y = R·x for a head of ${headDim} dimensions of ${name}`,
      ...text.map((row) => `  ${row.map((value) => value.padStart(width)).join('  ')}`),
    ],
  });
  return EXIT.ok;
}

function notesOf({ notes, others, direction }: GivenRope): string[] {
  const [layers, have, them] = others.length === 1 ? ['Layer', 'has', 'it'] : ['Layers', 'have', 'them'];
  const known = ranges(others).split(', ');
  const list = `${known.slice(0, 8).join(', ')}${known.length > 8 ? ', …' : ''}`;
  return [
    ...notes,
    ...(others.length > 0 ? [`${layers} ${list} ${have} another RoPE: convert ${them} too, with --layer.`] : []),
    ...(direction === 'backward' ? ['The line rotates backward; the record is of the forward direction.'] : []),
  ];
}

const tableFiles = ({ tables }: Conversion): string[] => tables.map(({ name }) => `${name}.npy`);

function toJson(conversion: Conversion, given: GivenRope, notes: readonly string[]): unknown {
  const { target, call, tables, relayout, error } = conversion;
  return {
    ropewalk: VERSION,
    from: given.from,
    target,
    call,
    arguments: conversion.arguments,
    tables: tables.length > 0 ? Object.fromEntries(tables.map(({ name }) => [name, `${name}.npy`])) : undefined,
    relayout,
    notes,
    readBack: { maxRelInvFreq: error.invFreq, relAttentionFactor: error.attentionFactor },
    record: specToJson(given.spec),
  };
}

function describe(conversion: Conversion, from: string, notes: readonly string[]): string[] {
  const { target, call, tables, error, relayout } = conversion;
  const rows: [string, string][] = [
    ...flatten(conversion.arguments).map(([name, value]): [string, string] => [name, brief(value)]),
    ...tables.map(({ name, shape }): [string, string] => [name, `f32 [${shape.join(', ')}]`]),
  ];
  const width = Math.max(...rows.map(([name]) => name.length));
  const same = relayout ? `the same RoPE, in pairing ${relayout.to}` : 'the same RoPE';
  const within = (size: number): string => (size === 0 ? '0' : size.toExponential(1));
  return [
    `${from} → ${target}: ${call}`,
    ...rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`),
    ...notes.map((note) => `  note: ${note}`),
    `  read back: ${same}; frequencies within ${within(error.invFreq)}, magnitude within ${within(error.attentionFactor)}`,
  ];
}

/** Flattens nested objects: their keys become paths. */
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

/** Writes the tables first and then the JSON that names them, so that the JSON never names a missing file. */
function writeAll(folder: string, conversion: Conversion, text: string): string[] {
  const files: [string, Uint8Array | string][] = [
    ...conversion.tables.map(({ name, shape, data }): [string, Uint8Array] => [
      `${name}.npy`,
      writeNpy(data, { dtype: 'f32', shape }),
    ]),
    [`${conversion.target}.json`, text],
  ];
  let made: string | undefined;
  try {
    made = makeFolder(folder);
    return files.map(([name, bytes]) => {
      const path = join(folder, name);
      replaceFile(path, bytes);
      return path;
    });
  } catch (cause) {
    if (made !== undefined) rmSync(made, { recursive: true, force: true });
    return refuseSystem('DEVICE', `--out: ${folder}`, 'a folder that can be written', cause);
  }
}
