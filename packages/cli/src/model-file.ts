/**
 * What a file or a line on the command line says about RoPE.
 *
 * @module
 */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import {
  type GgufHeader,
  type ModelRope,
  type ModelRopeOptions,
  ropeFromConfig,
  ropeFromGguf,
  specFromJson,
} from '@ropewalk/dialects';
import { readGgufFactors, readGgufHeader, readJsonFile, refuseSystem } from '@ropewalk/formats/node';
import { parseRopeLabel, ropePlanOfCase } from '@ropewalk/oracle';
import type { FloatDtype, RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';

/**
 * Finds the file that says what a model is. Of a folder that is the one whose model `ropewalk generate` would run: config.json, or the
 * only .gguf where there is no config.json or no weights for it.
 *
 * @param path - a folder; anything else is returned as it is
 * @param command - names the command in messages
 * @throws {RopewalkError} FORMAT for a folder without a model, or with several
 */
export function modelFileOf(path: string, command: string): string {
  if (!isFolder(path)) return path;
  let names: string[];
  try {
    names = readdirSync(path);
  } catch (cause) {
    return refuseSystem('FORMAT', `${command}: ${path}`, 'a readable folder', cause);
  }
  const ggufs = names.filter((name) => /\.gguf$/i.test(name));
  const weights = names.some((name) => /\.safetensors$/i.test(name));
  if (names.includes('config.json') && (weights || ggufs.length !== 1)) return join(path, 'config.json');
  if (ggufs.length === 1) return join(path, ggufs[0]!);
  const next = ggufs.length > 1 ? 'Give one of the .gguf files itself.' : 'Give a folder with a model, or a file.';
  return refuse(
    'FORMAT',
    `${command}: ${path}`,
    'a folder with a config.json or one .gguf',
    ggufs.length > 1 ? ggufs : names,
    next,
  );
}

/** Whether a path leads to a folder. */
export function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/**
 * Reads a model's RoPE, layer by layer.
 *
 * @param path - a config.json, a .gguf, or a folder with one
 * @param command - names the command in messages
 * @param options - the context in use
 * @throws {RopewalkError} FORMAT when it cannot be read or means nothing
 */
export async function readModel(path: string, command: string, options: ModelRopeOptions = {}): Promise<ModelRope> {
  const file = modelFileOf(path, command);
  if (/\.gguf$/i.test(file)) return ropeFromGguf(await readModelHeader(file), { ...options, where: file });
  if (!/\.json$/i.test(file) && !statSync(file, { throwIfNoEntry: false }))
    fail('FORMAT', `${command}: ${file}`, 'there is no such file or folder');
  if (!/\.json$/i.test(file)) refuse('FORMAT', command, 'a config.json, a .gguf, or a folder with one', file);
  return ropeFromConfig(readJsonFile(file, `${command}: ${file}`), { ...options, where: file });
}

/** A RoPE that somebody expects. */
export interface ExpectedRope {
  readonly spec: RopeSpec;
  readonly direction: 'forward' | 'backward';
  /** Where it comes from, for messages: `llama.json, layers 0-31`. */
  readonly from: string;
  /** What a `ROPE(…)` line says beside the rotation. */
  readonly line?: { readonly dtype: FloatDtype; readonly heads: number };
  /** The file of a model. */
  readonly model?: string;
}

/**
 * Reads what somebody expects: a model, a line of `ropewalk check`, or a record.
 *
 * @param text - a config.json, a .gguf or a folder with one, whose layer is `layer`; `ROPE(…)`; or a .json with a RopeSpec in it: `{ "headDim": 128,
 *   "pairing": "half", "base": 10000 }`
 * @param command - names the command in messages
 * @param options - the context in use, and the layer of a model; 0 unless given
 * @throws {RopewalkError} FORMAT, RANGE or whatever the reader says
 */
export async function readExpectedRope(
  text: string,
  command: string,
  options: ModelRopeOptions & { readonly layer?: number } = {},
): Promise<ExpectedRope> {
  if (/^\s*ROPE\s*\(/.test(text)) {
    const label = parseRopeLabel(text);
    const { source, direction } = ropePlanOfCase(label);
    return {
      spec: source!.spec,
      direction,
      from: 'the ROPE(…) line',
      line: { dtype: label.type, heads: label.ne_a[1] },
    };
  }
  const file = modelFileOf(text, command);
  if (/\.json$/i.test(file)) {
    const json = readJsonFile(file, `${command}: ${file}`);
    if (typeof json === 'object' && json !== null && 'pairing' in json && 'headDim' in json) {
      return { spec: specFromJson(json, file), direction: 'forward', from: file };
    }
  }
  const { layer = 0, ...rest } = options;
  const model = await readModel(file, command, rest);
  const found =
    model.layers[layer] ?? refuse('RANGE', `${command}: --layer`, `a layer in [0, ${model.numLayers - 1}]`, layer);
  if (!found.rope)
    refuse('RANGE', `${command}: --layer`, 'a layer with RoPE', `layer ${layer}, which has no position encoding`);
  return { spec: found.rope, direction: 'forward', from: `${file}, layer ${layer}`, model: file };
}

/** The header, and the few small tensors that hold frequency factors. */
async function readModelHeader(file: string): Promise<GgufHeader> {
  const header = await readGgufHeader(file);
  const factors = await readGgufFactors(file, header);
  return { metadata: header.metadata, tensors: header.tensors, readTensor: (name) => factors.get(name) };
}
