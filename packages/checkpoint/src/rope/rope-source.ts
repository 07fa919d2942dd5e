/** The RoPE that a parsed JSON describes: a model, a record, or a peer's arguments. @module */
import { type GivenTable, readForm } from '@ropewalk/dialects';
import { parseNpy, tensorFromNpy } from '@ropewalk/formats';
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readOptions } from 'ropewalk/internal';
import { modelSourceFromJson, type RopeSource } from './model-source.js';

/** Options of {@link ropeSourceFromJson}. */
export interface JsonRopeOptions {
  /** The tokens in use, for scaling that depends on them. */
  readonly context?: number;
  /** Whether to read it as a model's config.json, whatever its fields are. */
  readonly isModel?: boolean;
  /** Reads a file beside the JSON: a .npy that a peer's arguments name. Without it, such arguments are refused. */
  readonly readFile?: (name: string) => Uint8Array;
}

const NAMES: OptionNames<JsonRopeOptions> = { context: true, isModel: true, readFile: true };

/**
 * Reads the RoPE that a JSON describes.
 *
 * @param json - a model's config.json, a record (`{ "headDim": 128, "pairing": "half", "base": 10000 }`) or a peer's
 *   arguments, parsed
 * @param file - its name, for messages
 * @param options - the context, whether it must be a model, and how its tables are read
 * @throws {RopewalkError} FORMAT when it describes no RoPE; otherwise what its reader throws
 */
export function ropeSourceFromJson(json: unknown, file: string, options: JsonRopeOptions = {}): RopeSource {
  if (typeof file !== 'string') refuse('RANGE', 'ropeSourceFromJson: file', "a file's name", file);
  return reading(`${file}: JSON`, () => sourceOfJson(json, file, options));
}

function sourceOfJson(json: unknown, file: string, options: JsonRopeOptions): RopeSource {
  const { context, isModel = false, readFile } = readOptions(options, `${file}: options`, NAMES);
  const fields = typeof json === 'object' && json !== null ? json : {};
  if (isModel || 'model_type' in fields || 'text_config' in fields) return modelSourceFromJson(json, file, context);
  return { kind: 'record', file, ...readForm(json, readTables(json, file, readFile), { context, where: file }) };
}

/** Reads the .npy files that a JSON names in its arguments or its tables. */
function readTables(json: unknown, file: string, readFile: JsonRopeOptions['readFile']): Map<string, GivenTable> {
  const tables = new Map<string, GivenTable>();
  const { arguments: own, tables: listed } = (json ?? {}) as Record<string, unknown>;
  for (const root of [json, own, listed]) {
    if (typeof root !== 'object' || root === null || Array.isArray(root)) continue;
    for (const [name, value] of Object.entries(root)) {
      if (typeof value !== 'string' || !value.endsWith('.npy')) continue;
      const where = `${file}: ${name}`;
      if (/[/\\]/.test(value)) refuse('FORMAT', where, 'the name of a file in the same folder', value);
      if (!readFile) fail('FORMAT', where, `its table ${value} is needed. Give that file too.`);
      const npy = parseNpy(readFile(value), value);
      // npy has no bf16; its bits are stored as u16.
      const dtype = npy.dtype === 'u16' ? 'bf16' : npy.dtype;
      const roundoff = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 }[dtype as string];
      if (roundoff === undefined) refuse('DTYPE', value, 'f64, f32, f16, or bf16 as u16', npy.dtype);
      tables.set(name, { shape: npy.shape, data: tensorFromNpy(npy, dtype).readNumbers() as Float64Array, roundoff });
    }
  }
  return tables;
}
