/**
 * The state files of llama.cpp: `llama_state_save_file` and `llama_state_seq_save_file`, with the KV cache of attention.
 *
 * A file states neither the model nor all of its layout, which differs between versions and models. So each known layout
 * is tried, and the one that reads the file to its last byte is taken.
 *
 * @module
 * @see ggml-org/llama.cpp@v0.4.0 src/llama-kv-cache.cpp state_write_meta, state_write_data; src/llama-context.cpp
 */
import { type ByteSource, readExactly } from '@ropewalk/formats';
import { GGUF_TYPES } from '@ropewalk/formats/internal';
import { fail, refuse } from 'ropewalk/backend';
import { decodeUtf8, nameForMessage } from 'ropewalk/internal';

/** The place of the keys or the values of a layer in the file. */
export interface StateRows {
  /** The name of ggml's type: `F16`, `Q8_0`. */
  readonly type: string;
  /** The numbers in a row, for all KV heads together. */
  readonly width: number;
  readonly byteOffset: number;
  readonly sizeBytes: number;
  /** Whether the file has it as `[width, cells]`, as without flash attention. */
  readonly isTransposed: boolean;
}

/** The keys of a layer and its values; those of latent attention (MLA) are in the keys. */
export interface StateLayer {
  readonly k: StateRows;
  readonly v: StateRows | undefined;
}

/** A cache. A model with windows has two: the first of the layers without one. A layer has its number in its cache. */
export interface StateCache {
  /** The position of each cell. */
  readonly positions: readonly number[];
  /** The sequences that use each cell. */
  readonly sequences: readonly (readonly number[])[];
  readonly layers: readonly StateLayer[];
}

/** A state file, without its keys and values. */
export interface LlamaState {
  /** Null for the file of one sequence, which does not have it. */
  readonly architecture: string | null;
  readonly tokens: readonly number[];
  readonly caches: readonly StateCache[];
}

/** The first four bytes: of a context, and of one sequence. */
const MAGICS = new Map([
  [0x6767736e, 'context'],
  [0x67677371, 'sequence'],
]);
/** Those of before have other layouts. */
const OLDEST = { context: 8, sequence: 2 } as const;
/** The bytes that are read at once. */
const WINDOW = 2 ** 16;
const MAX_LAYERS = 4096;
/** Tokens, or cells of a cache. */
const MAX_TOKENS = 2 ** 22;
const MAX_SEQUENCES = 256;

/** Tells whether these are the first bytes of a state file. */
export function isLlamaState(bytes: Uint8Array): boolean {
  return bytes.length >= 4 && MAGICS.has(new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true));
}

/** A layout: parts that a file has or does not have. */
interface Layout {
  /** Versions of before August 2025 write the logits and embeddings of the last batch before the cache. */
  readonly outputs: boolean;
  /** The further bytes of a cell: two more positions with M-RoPE, and in some versions its token. */
  readonly cellBytes: 0 | 8 | 12;
  /** Latent attention has no values. */
  readonly values: boolean;
}

const LAYOUTS: readonly Layout[] = [true, false].flatMap((values) =>
  [false, true].flatMap((outputs) => ([0, 8, 12] as const).map((cellBytes) => ({ outputs, cellBytes, values }))),
);

/** The file does not have the layout that is tried. */
class Misfit extends Error {}

/**
 * Reads a state file but for its keys and values.
 *
 * @throws {RopewalkError} FORMAT when it is no such file, an old one, cut, or has other memory than a cache of attention
 */
export async function parseLlamaState(source: ByteSource, where: string): Promise<LlamaState> {
  const start = new Cursor(source, where);
  const fault = (sentence: string): never => fail('FORMAT', where, sentence);
  try {
    const kind = MAGICS.get(await start.u32()) as keyof typeof OLDEST | undefined;
    if (!kind) return fault('it is no state file of llama.cpp, and no .npy, .npz, .pt or .safetensors.');
    const version = await start.u32();
    if (version < OLDEST[kind])
      refuse('FORMAT', `${where}: version`, `${OLDEST[kind]} or later`, version, 'Save it by a newer llama.cpp.');
    const tokens = await start.integers(await start.u32(), MAX_TOKENS);
    const architecture = kind === 'context' ? await start.text() : null;
    for (const layout of LAYOUTS) {
      if (layout.outputs && kind === 'sequence') continue;
      const caches = await cachesOf(new Cursor(source, where, start.at), layout).catch((error: unknown) => {
        if (error instanceof Misfit) return undefined;
        throw error;
      });
      if (caches) return { architecture, tokens, caches };
    }
  } catch (error) {
    if (!(error instanceof Misfit)) throw error;
  }
  return fault(
    'no layout of an attention cache of llama.cpp reads it to its end. It is cut, or its model has other memory.',
  );
}

async function cachesOf(cursor: Cursor, { outputs, cellBytes, values }: Layout): Promise<StateCache[]> {
  if (outputs) {
    await cursor.integers(await cursor.u32(), MAX_TOKENS);
    for (let part = 0; part < 2; part++) cursor.skip((await cursor.u64()) * 4); // logits, embeddings
  }
  const caches: StateCache[] = [];
  do {
    const streams = await cursor.u32();
    if (streams === 0 || streams > 256) throw new Misfit();
    for (let stream = 0; stream < streams; stream++) {
      const cells = await cursor.u32();
      if (cells > 0) caches.push(await cacheOf(cursor, cells, cellBytes, values));
    }
  } while (cursor.left > 0);
  return caches;
}

async function cacheOf(cursor: Cursor, cells: number, cellBytes: number, hasValues: boolean): Promise<StateCache> {
  if (cells > MAX_TOKENS) throw new Misfit();
  cursor.need(cells * 8);
  const positions: number[] = [];
  const sequences: number[][] = [];
  for (let cell = 0; cell < cells; cell++) {
    const [position] = await cursor.integers(1, 1);
    if (position! < 0) throw new Misfit();
    positions.push(position!);
    const count = await cursor.u32();
    cursor.skip(cellBytes);
    sequences.push(await cursor.integers(count, MAX_SEQUENCES));
  }
  const transposed = await cursor.u32();
  const count = await cursor.u32();
  if (transposed > 1 || count === 0 || count > MAX_LAYERS) throw new Misfit();
  const keys: StateRows[] = [];
  const values: StateRows[] = [];
  for (let layer = 0; layer < count; layer++) keys.push(await rowsOf(cursor, cells, false));
  for (let layer = 0; hasValues && layer < count; layer++) values.push(await rowsOf(cursor, cells, transposed === 1));
  return { positions, sequences, layers: keys.map((k, layer) => ({ k, v: values[layer] })) };
}

async function rowsOf(cursor: Cursor, cells: number, isTransposed: boolean): Promise<StateRows> {
  const type = GGUF_TYPES.get(await cursor.u32());
  if (!type) throw new Misfit();
  const [name, elements, bytes] = type;
  const size = isTransposed ? await cursor.u32() : await cursor.u64();
  const width = isTransposed ? await cursor.u32() : (size / bytes) * elements;
  if (!Number.isInteger(width) || width === 0 || (isTransposed && size !== bytes)) throw new Misfit();
  const sizeBytes = cells * (isTransposed ? width * bytes : size);
  const byteOffset = cursor.at;
  cursor.skip(sizeBytes);
  return { type: name, width, byteOffset, sizeBytes, isTransposed };
}

/** Reads small values one after the other through a window. */
class Cursor {
  readonly #source: ByteSource;
  readonly #where: string;
  #window: DataView = new DataView(new ArrayBuffer(0));
  #start = 0;

  constructor(
    source: ByteSource,
    where: string,
    public at = 0,
  ) {
    this.#source = source;
    this.#where = where;
  }

  get left(): number {
    return this.#source.size - this.at;
  }

  need(count: number): void {
    if (!(count <= this.left)) throw new Misfit();
  }

  skip(count: number): void {
    this.need(count);
    this.at += count;
  }

  async u32(): Promise<number> {
    return (await this.#take(4)).getUint32(0, true);
  }

  async u64(): Promise<number> {
    return Number((await this.#take(8)).getBigUint64(0, true));
  }

  /** Reads a text, which has its length before it. */
  async text(): Promise<string> {
    const { buffer, byteOffset, byteLength } = await this.#take(await this.u32());
    return nameForMessage(decodeUtf8(new Uint8Array(buffer, byteOffset, byteLength), this.#where));
  }

  /** Reads i32. */
  async integers(count: number, most: number): Promise<number[]> {
    if (count > most) throw new Misfit();
    const view = await this.#take(count * 4);
    return Array.from({ length: count }, (_, n) => view.getInt32(4 * n, true));
  }

  async #take(count: number): Promise<DataView> {
    this.need(count);
    const inside = this.at - this.#start;
    if (inside < 0 || inside + count > this.#window.byteLength) {
      const { buffer, byteOffset, byteLength } = await readExactly(
        this.#source,
        this.at,
        Math.min(Math.max(count, WINDOW), this.left),
        this.#where,
      );
      this.#window = new DataView(buffer, byteOffset, byteLength);
      this.#start = this.at;
    }
    const view = new DataView(this.#window.buffer, this.#window.byteOffset + this.at - this.#start, count);
    this.at += count;
    return view;
  }
}
