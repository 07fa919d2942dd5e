/** Writes a kept session as bytes, and takes it up again. @module */
import { parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats/internal/models';
import { planRearrange, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readList, readOptions } from 'ropewalk/internal';
import { checkKept, checkModel } from './arguments.js';
import type { KernelSequence } from './kernels.js';
import { type KvCache, storeRows } from './kv-cache.js';
import { type DecoderSession, SESSION_NAMES, tokensOf } from './session.js';
import type { KeptSession, Model, SessionOptions } from './types.js';

const FORMAT = 'ropewalk session 1';
/** Names the file in messages. */
const FILE = 'saved session';
/** Backends, threads and 8-bit activations move the hidden state of a token by up to 3 %, another model by all of it. */
const SAME_MODEL = 0.1;

/**
 * Writes the keys, values and states of a kept session, and its tokens.
 *
 * @param model - the model of the session, on our kernels
 * @param kept - of {@link keepSession} or {@link restoreSession}; it goes on as before
 * @returns a safetensors file: as many bytes as the cache needs for the tokens that it holds
 * @throws {RopewalkError} UNSUPPORTED for a session of another engine, or one that was given tokens by hand
 * @example await writeFile('chat.session', await saveSession(model, kept));
 */
export async function saveSession(model: Model, kept: KeptSession): Promise<Uint8Array> {
  checkModel(model, 'saveSession');
  checkKept(kept, 'saveSession');
  const { session } = kept;
  const tokens = readList<number>(kept.tokens, 'saveSession: session', 'a list of tokens');
  const cache = cacheOf(session, 'saveSession');
  if (tokens.length !== session.length)
    fail('UNSUPPORTED', 'saveSession: session', 'it was changed by hand. Only what generate() adds is saved.');
  const saved = new Map<string, Tensor>([
    ['tokens', tensorFrom(Int32Array.from(tokens), { shape: [tokens.length] })],
    ['hidden', tensorFrom(await model.hidden([0]), { shape: [model.config.hiddenSize] })],
  ]);
  const save = async (name: string, tensor: Tensor): Promise<unknown> =>
    saved.set(name, tensorFrom(await tensor.read(), { dtype: tensor.dtype, shape: tensor.shape }));
  for (const [name, tensor, scales] of rowsOf(cache, tokens.length)) {
    await save(name, tensor);
    if (scales) await save(scalesOf(name), scales);
  }
  return writeSafetensors(saved, { format: FORMAT });
}

/**
 * Opens a session as it was saved. {@link generate} then computes only what follows the tokens that it holds.
 *
 * @param model - the model that the session was saved with; its backend may be another
 * @param file - of {@link saveSession}
 * @param options - context and dtype of the KV cache
 * @returns a session; the caller disposes it
 * @throws {RopewalkError} FORMAT for bytes that are no saved session, or one of another model; RANGE when it holds more
 *   tokens than the context
 * @example const kept = await restoreSession(model, await readFile('chat.session'));
 */
export async function restoreSession(
  model: Model,
  file: Uint8Array,
  options: SessionOptions = {},
): Promise<KeptSession> {
  checkModel(model, 'restoreSession');
  const header = parseSafetensors(file, FILE);
  if (header.metadata.get('format') !== FORMAT)
    refuse('FORMAT', FILE, 'a file of saveSession', header.metadata.get('format'));
  /** Takes a tensor of the file, of a shape; undefined stands for any number. */
  const take = (name: string, shape: readonly (number | undefined)[]): Tensor => {
    const found = header.tensors.get(name);
    if (
      found?.shape.length !== shape.length ||
      !shape.every((size, n) => size === undefined || size === found.shape[n])
    )
      fail('FORMAT', FILE, `${name} does not fit this model. Load the model that it was saved with.`);
    return tensorFromSafetensors(file, header, name);
  };
  const tokens = tokensOf(take('tokens', [undefined]).read() as Int32Array, model.config.vocabSize, 'restoreSession');
  const hidden = take('hidden', [model.config.hiddenSize]).read() as Float32Array;
  if (!(distance(hidden, await model.hidden([0])) <= SAME_MODEL))
    fail('FORMAT', FILE, 'it was saved with other weights. Load the model that it was saved with.');
  const session = model.openSession(readOptions(options, 'restoreSession: options', SESSION_NAMES));
  try {
    const cache = cacheOf(session, 'restoreSession');
    if (tokens.length > session.capacity)
      refuse('RANGE', 'restoreSession: context', `at least ${tokens.length}, the tokens of the file`, session.capacity);
    const { runner } = sequenceOf(session).decoder;
    for (const [name, tensor, scales] of rowsOf(cache, tokens.length)) {
      const held = take(name, tensor.shape);
      const heldScales = held.dtype === 'i8' ? take(scalesOf(name), tensor.shape.slice(0, -1)) : undefined;
      if (held.dtype === tensor.dtype) {
        runner.run(planRearrange(held, tensor));
        if (scales) runner.run(planRearrange(heldScales!, scales));
      } else {
        const factors = await heldScales?.readNumbers();
        const d = tensor.shape.at(-1)!;
        const wide = Float32Array.from(await held.readNumbers(), (x, n) => x * (factors?.[Math.floor(n / d)] ?? 1));
        storeRows(runner, tensorFrom<'f32'>(wide, { shape: held.shape }), tensor as KvCache['k'][number], scales);
      }
    }
    await runner.finish();
    cache.length = tokens.length;
    return { session, tokens: [...tokens], dispose: () => session.dispose() };
  } catch (error) {
    session.dispose();
    throw error;
  }
}

const sequenceOf = (session: KeptSession['session']): Partial<KernelSequence> & Pick<KernelSequence, 'decoder'> =>
  (session as DecoderSession).sequence as KernelSequence;

/** Names the scales of keys or values in i8. */
const scalesOf = (name: string): string => `${name}.scales`;

function cacheOf(session: KeptSession['session'], where: string): KvCache {
  const { cache } = sequenceOf(session);
  const next = 'Load the model without engine.';
  return cache ?? fail('UNSUPPORTED', `${where}: model`, `only our kernels give keys and values away. ${next}`);
}

/** Yields the tensors of a cache by name: the first rows of keys and values, with their scales, and whole states. */
function* rowsOf(cache: KvCache, rows: number): Generator<[string, Tensor, Tensor<'f32'> | undefined]> {
  const { k, v, kScales, vScales, states } = cache;
  for (const [name, layers, scales] of [['k', k, kScales] as const, ['v', v, vScales] as const])
    for (const [layer, tensor] of layers.entries())
      if (tensor) yield [`${layer}.${name}`, tensor.slice(0, 0, rows), scales[layer]?.slice(0, 0, rows)];
  for (const [layer, list] of states.entries())
    for (const [n, tensor] of list.entries()) yield [`${layer}.state.${n}`, tensor, undefined];
}

/** Returns the root mean square of a − b over that of b. */
function distance(a: Float32Array, b: Float32Array): number {
  const square = (values: Float32Array): number => values.reduce((sum, value) => sum + value * value, 0);
  return Math.sqrt(square(a.map((value, n) => value - b[n]!)) / square(b));
}
