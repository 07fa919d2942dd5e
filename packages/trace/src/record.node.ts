/**
 * Runs a model on our kernels and writes the tensors of its forward pass: tensors.safetensors and index.json (Node only).
 *
 * The text goes through the model in short pieces, so that only the tensors of one piece are in memory.
 *
 * @module
 */
import { type FileHandle, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { specToJson } from '@ropewalk/dialects';
import { writeSafetensorsHeader } from '@ropewalk/formats/internal';
import { checkRoom, unwritable, writeWhole } from '@ropewalk/formats/internal/node';
import type { Engine, Model } from '@ropewalk/model';
import { kernelEngine, layerSizes } from '@ropewalk/model/internal';
import { type Dtype, type HostArray, sizeBytes, type Tensor } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { INDEX_FILE, INDEX_FORM, TENSORS_FILE } from './read/recorded.js';

/** The tokens of a piece. All tensors of a model with 1 B weights take about 2 MB a token. */
const PIECE = 64;

interface Seen {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly values: HostArray | Promise<HostArray>;
}

/** The run to record. */
export interface RecordedRun {
  readonly ids: readonly number[];
  /** `[tokens]`, or `[axes, tokens]` row by row. Default: 0, 1, 2, … */
  readonly positions?: readonly number[] | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Records runs of models that are loaded with its engine. */
export class Recorder {
  readonly engine: Engine;
  readonly #at: RegExp;
  #seen: Seen[] | undefined;

  /**
   * @param at - the names to record, with `*` for what has no dot and `{q,k}` for one of several. Default: all
   * @param options - of our kernels: backend, threads, activations
   * @throws {RopewalkError} FORMAT for a pattern that is none
   */
  constructor(at = '**', options: Parameters<typeof kernelEngine>[0] = {}) {
    this.#at = patternOf(at);
    this.engine = kernelEngine(options, (name, tensor) => this.#observe(name, tensor));
  }

  #observe(name: string, tensor: Tensor): void {
    if (!this.#seen || !this.#at.test(name)) return;
    this.#seen.push({ name, dtype: tensor.dtype, shape: tensor.shape, values: tensor.read() });
  }

  /**
   * Runs a model and writes a folder, whole or not at all.
   *
   * @param model - loaded with {@link engine}; its context holds all tokens
   * @param out - the folder; it must not exist
   * @returns how many tensors were written, and their bytes
   * @throws {RopewalkError} FORMAT when no name matches, or the folder exists; DEVICE when it cannot be written
   */
  async record(model: Model, out: string, run: RecordedRun): Promise<{ tensors: number; bytes: number }> {
    return writeWhole(out, { sizeBytes: 0, inputs: [], kind: 'folder' }, (folder) => this.#write(model, folder, run));
  }

  async #write(model: Model, folder: string, run: RecordedRun): Promise<{ tensors: number; bytes: number }> {
    const file = await open(join(folder, TENSORS_FILE), 'wx').catch((cause) => unwritable(folder, cause));
    let writer: RowWriter | undefined;
    try {
      for await (const seen of this.#pieces(model, run)) {
        writer ??= await RowWriter.open(file, seen, run, folder);
        await writer.append(seen);
      }
      await file.sync().catch((cause) => unwritable(folder, cause));
    } finally {
      await file.close();
    }
    const index = JSON.stringify(indexOf(model, run), null, 2);
    await writeFile(join(folder, INDEX_FILE), `${index}\n`).catch((cause) => unwritable(folder, cause));
    return { tensors: writer!.count, bytes: writer!.bytes };
  }

  /** Runs the model, and gives the tensors of one piece after the other. */
  async *#pieces(model: Model, { ids, positions, signal }: RecordedRun): AsyncGenerator<Seen[], void, void> {
    const whole = model.config.bidirectional || model.config.headless;
    const session = whole ? undefined : model.openSession({ context: model.memory.context });
    const logits = ['norm', 'head', 'logits'].some((name) => this.#at.test(name)) ? 'all' : 'none';
    const axes = (positions?.length ?? 0) / ids.length;
    const piece = whole ? ids.length : PIECE;
    try {
      for (let at = 0; at < ids.length; at += piece) {
        signal?.throwIfAborted();
        this.#seen = [];
        const part = ids.slice(at, at + piece);
        const own = positions && columns(positions, axes, ids.length, at, part.length);
        if (session) await session.append(part, { logits, positions: own, signal });
        else await model.hidden(part);
        yield this.#seen;
      }
    } finally {
      this.#seen = undefined;
      session?.dispose();
    }
  }
}

function columns(rows: readonly number[], axes: number, tokens: number, at: number, count: number): number[] {
  return Array.from({ length: axes }, (_, axis) => rows.slice(axis * tokens + at, axis * tokens + at + count)).flat();
}

/** Writes rows of many tensors into one file whose header is known from the first rows. */
class RowWriter {
  readonly #done = new Map<string, number>();
  readonly #file: FileHandle;
  readonly #places: ReadonlyMap<string, number>;
  readonly #folder: string;
  readonly bytes: number;

  private constructor(file: FileHandle, places: ReadonlyMap<string, number>, bytes: number, folder: string) {
    this.#file = file;
    this.#places = places;
    this.#folder = folder;
    this.bytes = bytes;
  }

  get count(): number {
    return this.#places.size;
  }

  static async open(file: FileHandle, first: readonly Seen[], run: RecordedRun, folder: string): Promise<RowWriter> {
    const { ids, positions = ids.map((_, n) => n) } = run;
    if (first.length === 0) fail('FORMAT', '--at', 'no tensor has such a name. docs/trace.md lists the names.');
    // Rows of logits come in several blocks.
    const names = new Map(first.map(({ name, dtype, shape }) => [name, { name, dtype, shape: shape.slice(1) }]));
    const axes = positions.length / ids.length;
    const given = [
      { name: 'tokens', dtype: 'i32' as const, shape: [ids.length] },
      { name: 'positions', dtype: 'i32' as const, shape: axes === 1 ? [ids.length] : [axes, ids.length] },
    ];
    const rows = [...names.values()].map((one) => ({ ...one, shape: [ids.length, ...one.shape] }));
    const all = [...given, ...rows];
    const { bytes, places, fileSizeBytes } = writeSafetensorsHeader(all);
    await checkRoom(folder, fileSizeBytes);
    const writer = new RowWriter(
      file,
      new Map(all.map(({ name }, n) => [name, places[n]!.byteOffset])),
      fileSizeBytes,
      folder,
    );
    await writer.#put(bytes, 0);
    for (const [n, values] of [ids, positions].entries())
      await writer.#put(Int32Array.from(values), places[n]!.byteOffset);
    return writer;
  }

  async append(seen: readonly Seen[]): Promise<void> {
    for (const { name, dtype, values } of seen) {
      const array = await values;
      const place =
        this.#places.get(name) ?? fail('UNSUPPORTED', name, 'only some pieces of the text have this tensor.');
      const done = this.#done.get(name) ?? 0;
      await this.#put(array, place + done * sizeBytes(dtype));
      this.#done.set(name, done + array.length);
    }
  }

  async #put(array: HostArray, at: number): Promise<void> {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let done = 0; done < bytes.length; ) {
      const part = this.#file.write(bytes, done, bytes.length - done, at + done);
      done += (await part.catch((cause) => unwritable(this.#folder, cause))).bytesWritten;
    }
  }
}

function indexOf({ config, backend, memory }: Model, { ids }: RecordedRun): object {
  const layers = config.layers(memory.context).map(({ rope }, layer) => {
    const { numKvHeads, headDim } = layerSizes(config, layer);
    return { numHeads: config.numHeads, numKvHeads, headDim, rope: rope && specToJson(rope) };
  });
  return { form: INDEX_FORM, architecture: config.architecture, backend, tokens: ids.length, layers };
}

/** Reads a pattern: `*` stands for what has no dot, `**` for anything, `{q,k}` for one of several. */
function patternOf(at: string): RegExp {
  if (!/^(?:[\w.*]|\{[\w*]+(?:,[\w*]+)*\})+$/.test(at) || at.length > 1000)
    refuse('FORMAT', '--at', "a pattern of names such as 'layers.*.{q,k,v}'", at);
  const text = at
    .replaceAll('.', '\\.')
    .replace(/\*+/g, (stars) => (stars.length > 1 ? '.*' : '[^.]*'))
    .replace(/\{([^}]*)\}/g, (_all, names: string) => `(?:${names.replaceAll(',', '|')})`);
  return new RegExp(`^${text}$`);
}
