/**
 * What a file or a line on the command line says about RoPE.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import { parseRopeLabel, ropePlanOfCase } from '../conformance/rope-case.js';
import { specFromJson } from '../convert/record.js';
import { refuse } from '../core/errors.js';
import { type GgufHeader, ropeFromGguf } from '../dialects/gguf.js';
import { ropeFromConfig } from '../dialects/huggingface.js';
import type { ModelRope, ModelRopeOptions } from '../dialects/model-rope.js';
import { parseJson } from '../formats/json.js';
import { readGgufFactors, readGgufHeader } from '../formats/read-header.node.js';
import type { RopeSpec } from '../ops/rope/plan.js';

/** A config.json is a few kilobytes; vocabularies and weights live elsewhere. */
const MAX_CONFIG_BYTES = 64 * 2 ** 20;

/**
 * Reads `--context`.
 *
 * @param text - what was given
 * @param command - names the command in messages
 * @throws {RopewalkError} RANGE
 */
export function readContext(text: string | undefined, command: string): { context?: number } {
  if (text === undefined) return {};
  const context = Number(text);
  if (!Number.isInteger(context) || context < 1 || context > 2 ** 31 - 1)
    refuse('RANGE', `${command}: --context`, 'tokens, an integer in [1, 2^31 - 1]', text);
  return { context };
}

/**
 * Reads a model's RoPE, layer by layer.
 *
 * @param file - a config.json or a .gguf
 * @param command - names the command in messages
 * @param options - the context in use
 * @throws {RopewalkError} FORMAT when it cannot be read or means nothing
 */
export async function readModel(file: string, command: string, options: ModelRopeOptions = {}): Promise<ModelRope> {
  if (/\.gguf$/i.test(file)) return ropeFromGguf(await readModelHeader(file), { ...options, where: file });
  if (!/\.json$/i.test(file)) refuse('FORMAT', command, 'a config.json or a .gguf file', file);
  return ropeFromConfig(readJson(file, command), { ...options, where: file });
}

/** A RoPE that somebody expects. */
export interface ExpectedRope {
  readonly spec: RopeSpec;
  readonly direction: 'forward' | 'backward';
  /** Where it comes from, for messages: `llama.json, layers 0-31`. */
  readonly from: string;
}

/**
 * Reads what somebody expects: a model, a line of `ropewalk check`, or a record.
 *
 * @param text - a config.json or .gguf, whose layer is `layer`; `ROPE(…)`; or a .json with a RopeSpec in it: `{ "headDim": 128,
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
    const { source, direction } = ropePlanOfCase(parseRopeLabel(text));
    return { spec: source!.spec, direction, from: 'the ROPE(…) line' };
  }
  if (/\.json$/i.test(text)) {
    const json = readJson(text, command);
    if (typeof json === 'object' && json !== null && 'pairing' in json && 'headDim' in json) {
      return { spec: specFromJson(json, text), direction: 'forward', from: text };
    }
  }
  const { layer = 0, ...rest } = options;
  const model = await readModel(text, command, rest);
  const found = model.layers[layer] ?? refuse('RANGE', `${command}: --layer`, `a layer in [0, ${model.numLayers - 1}]`, layer);
  if (!found.rope) refuse('RANGE', `${command}: --layer`, 'a layer with RoPE', `layer ${layer}, which has no position encoding`);
  return { spec: found.rope, direction: 'forward', from: `${text}, layer ${layer}` };
}

function readJson(file: string, command: string): unknown {
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    return refuse('FORMAT', command, `a readable file ${file}`, (cause as NodeJS.ErrnoException).code ?? String(cause));
  }
  if (bytes.length > MAX_CONFIG_BYTES) refuse('FORMAT', `${command}: ${file}`, `at most ${MAX_CONFIG_BYTES} bytes`, bytes.length);
  return parseJson(bytes, file);
}

/** The header, and the few small tensors that hold frequency factors. */
async function readModelHeader(file: string): Promise<GgufHeader> {
  const header = await readGgufHeader(file);
  const factors = await readGgufFactors(file, header);
  return { metadata: header.metadata, tensors: header.tensors, readTensor: (name) => factors.get(name) };
}
