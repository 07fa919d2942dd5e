/** `ropewalk inspect --tensors --metadata`: lists the contents of a model's files. @module */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { openModel } from '@ropewalk/checkpoint/node';
import type { GgufValue } from '@ropewalk/formats';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import { isGraphFolder, onnxFileOf } from '@ropewalk/formats/node';
import { counted, printable, sizeText, thousands } from './output.js';

/** A tensor as its file lists it. */
interface ListedTensor {
  readonly name: string;
  /** The type as the file names it. */
  readonly type: string;
  /** Slowest dimension first. */
  readonly shape: readonly number[];
  /** Undefined for a type whose layout is unknown. */
  readonly sizeBytes: number | undefined;
  /** Its file, if the model has several. */
  readonly file: string | undefined;
}

/** The contents of a model's files. */
export interface FileContents {
  /** The file or folder. */
  readonly path: string;
  readonly format: 'gguf' | 'safetensors' | 'onnx';
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly ListedTensor[];
}

/** The choice of lists. */
export interface Lists {
  readonly tensors?: boolean;
  readonly metadata?: boolean;
}

/** The most values of an array that are printed. */
const SHOWN = 8;
/** The most characters of a text that are printed. */
const LONG = 100;

/**
 * Reads the headers of a .gguf, a .safetensors or an .onnx, or of a folder with one model, and no weights.
 *
 * @throws {RopewalkError} FORMAT for files that are missing, cut or malformed
 */
export async function readContents(path: string): Promise<FileContents> {
  if (/\.onnx$/i.test(path) || isGraphFolder(path)) return graphContents(onnxFileOf(path));
  const { path: found, format, files, tensors, metadata } = await openModel(path);
  return {
    path: found,
    format,
    metadata,
    tensors: tensors.map(({ name, type, shape, sizeBytes, file }) => ({
      name,
      type,
      shape,
      sizeBytes,
      file: files.length > 1 ? files[file] : undefined,
    })),
  };
}

async function graphContents(path: string): Promise<FileContents> {
  const { parseOnnxModel } = await import('@ropewalk/onnx');
  const { graphTensors, MAX_MODEL_BYTES } = await import('@ropewalk/onnx/internal');
  const model = parseOnnxModel(readFileBytes(path, MAX_MODEL_BYTES), path);
  const { irVersion, producer, graph, opsets } = model;
  const metadata = new Map<string, GgufValue>([
    ['ir_version', irVersion],
    ['producer_name', producer],
    ...Array.from(opsets, ([domain, version]) => [`opset ${domain === '' ? 'ai.onnx' : domain}`, version] as const),
    ['graph.doc_string', graph.doc],
    ...model.metadata,
  ]);
  return { path, format: 'onnx', metadata, tensors: graphTensors(model) };
}

/** Counts tensors and bytes of each type, and sorts the types by bytes. */
function typesOf({ tensors }: FileContents): { type: string; tensors: number; sizeBytes: number }[] {
  const types = new Map<string, { type: string; tensors: number; sizeBytes: number }>();
  for (const { type, sizeBytes = 0 } of tensors) {
    const sum = types.get(type) ?? { type, tensors: 0, sizeBytes: 0 };
    types.set(type, { type, tensors: sum.tensors + 1, sizeBytes: sum.sizeBytes + sizeBytes });
  }
  return [...types.values()].sort((a, b) => b.sizeBytes - a.sizeBytes);
}

/** Describes the weights by type in one line, then the chosen lists. */
export function describeContents(contents: FileContents, lists: Lists): string[] {
  const { path, format, metadata, tensors } = contents;
  const types = typesOf(contents).map((one) => `${sizeText(one.sizeBytes)} in ${one.tensors} of ${one.type}`);
  const lines = [`${path}: ${format}, ${[counted(tensors.length, 'tensor'), ...types].join(', ')}`];
  if (lists.metadata) {
    const width = Math.max(...[...metadata.keys()].map((key) => key.length));
    lines.push('', metadata.size === 0 ? 'no metadata' : 'metadata');
    for (const [key, value] of metadata) lines.push(`  ${key.padEnd(width)}  ${brief(value)}`);
  }
  if (lists.tensors) {
    const rows = tensors.map(({ name, type, shape, sizeBytes, file }) => [
      name,
      type,
      `[${shape.join(', ')}]`,
      sizeBytes === undefined ? 'unknown' : `${thousands(sizeBytes)} bytes`,
      file ?? '',
    ]);
    const widths = [0, 1, 2, 3].map((n) => Math.max(...rows.map((row) => row[n]!.length)));
    lines.push('', tensors.length === 0 ? 'no tensors' : 'tensors');
    for (const row of rows)
      lines.push(
        `  ${row.map((cell, n) => (n === 3 ? cell.padStart(widths[n]!) : cell.padEnd(widths[n] ?? 0))).join('  ')}`,
      );
  }
  return lines.map((line) => printable(line.trimEnd()));
}

/** Formats a value in one line: texts and lists are cut. */
function brief(value: GgufValue): string {
  if (typeof value === 'string') {
    const text = JSON.stringify(value.slice(0, LONG));
    return value.length > LONG ? `${text} … ${thousands(value.length)} characters` : text;
  }
  if (!Array.isArray(value)) return String(value);
  const first = value.slice(0, SHOWN).map(brief).join(', ');
  return value.length > SHOWN ? `${thousands(value.length)} values: ${first}, …` : `[${first}]`;
}

/** The chosen lists as JSON. Long arrays of metadata become their length and first values. */
export function contentsToJson(contents: FileContents, lists: Lists): object {
  const { path, format, metadata, tensors } = contents;
  return {
    path,
    format,
    types: typesOf(contents),
    metadata: lists.metadata
      ? Object.fromEntries(Array.from(metadata, ([key, value]) => [key, short(value)]))
      : undefined,
    tensors: lists.tensors ? tensors : undefined,
  };
}

function short(value: GgufValue): unknown {
  // A bigint becomes a number if that is exact, because JSON has no other integers.
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (!Array.isArray(value)) return value;
  const first = value.slice(0, SHOWN).map(short);
  return value.length > SHOWN ? { length: value.length, first } : first;
}

/** Finds the config.json beside a .safetensors. */
export function configBeside(path: string): string | undefined {
  const config = join(dirname(path), 'config.json');
  return existsSync(config) ? config : undefined;
}
