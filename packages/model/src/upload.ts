/**
 * Weights on their way from a file to a backend's memory, one tensor at a time.
 *
 * @module
 */

import { readExactly } from '@ropewalk/formats';
import { blocksFrom, type HostArray, type Ropewalk, type Tensor, tensorFrom } from 'ropewalk';
import { bitsOf } from 'ropewalk/backend';
import { WIDENED, widenBlocks } from './dequantise.js';
import { pauseIfDue } from './event-loop.js';
import type { Folder } from './model-files.js';
import { isBlockFormat, type Weight, type WeightPlan } from './weights.js';

/** How far loading is. */
export interface LoadProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The tensor that is being read. */
  readonly tensor: string;
}

/** Bytes that are read at a time, so that a large matrix is never in memory twice. */
const PIECE_BYTES = 8 * 2 ** 20;

/**
 * Reads each tensor into its place.
 *
 * @param rw - in whose memory
 * @param plans - of planWeights
 * @param folder - the files that hold the tensors
 * @param loaded - gets each weight by its place, also when loading fails: the caller disposes them
 * @param options - a callback for progress, and a signal that ends loading
 * @throws {RopewalkError} FORMAT for a file that ends early or a weight out of range; DEVICE when memory is full
 */
export async function loadWeights(
  rw: Ropewalk,
  plans: readonly WeightPlan[],
  folder: Folder,
  loaded: Map<string, Weight>,
  { signal, onProgress }: { readonly signal?: AbortSignal; readonly onProgress?: (progress: LoadProgress) => void },
): Promise<void> {
  const totalBytes = plans.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  for (const plan of plans) {
    const source = folder.files.get(plan.file)!;
    const file = folder.path(plan.file);
    const place = new Place(rw, plan, `${file}: tensor ${plan.name}`);
    try {
      for (let at = 0; at < plan.sizeBytes; ) {
        signal?.throwIfAborted();
        const length = Math.min(place.pieceBytes, plan.sizeBytes - at);
        place.write(await readExactly(source, plan.byteOffset + at, length, file), at);
        at += length;
        doneBytes += length;
        onProgress?.({ doneBytes, totalBytes, tensor: plan.name });
        await pauseIfDue();
      }
      loaded.set(plan.place, place.weight());
    } catch (error) {
      place.dispose();
      throw error;
    }
  }
}

/**
 * Where a tensor's bytes go: its place in the backend's memory if the host can write there, else host memory that is
 * uploaded.
 */
class Place {
  /** Bytes to read at a time: whole blocks. */
  readonly pieceBytes: number;
  readonly #rw: Ropewalk;
  readonly #plan: WeightPlan;
  readonly #where: string;
  /** Blocks are bytes here; {@link weight} says what they mean. */
  readonly #dtype: 'f32' | 'f16' | 'bf16' | 'u8';
  readonly #shape: readonly number[];
  readonly #tensor: Tensor | undefined;
  readonly #staged: Uint8Array | undefined;

  /** @param where - file and tensor in messages */
  constructor(rw: Ropewalk, plan: WeightPlan, where: string) {
    this.#rw = rw;
    this.#plan = plan;
    this.#where = where;
    const { held, heldBytes, shape } = plan;
    [this.#dtype, this.#shape] = isBlockFormat(held) ? ['u8', [heldBytes]] : [held, shape];
    const blockBytes = WIDENED.get(plan.type)?.bytes ?? 4;
    this.pieceBytes = Math.floor(PIECE_BYTES / blockBytes) * blockBytes;
    const tensor = rw.name === 'webgpu' ? undefined : rw.allocate(this.#dtype, this.#shape);
    if (tensor?.storage.host) this.#tensor = tensor;
    else {
      tensor?.dispose();
      this.#staged = new Uint8Array(heldBytes);
    }
  }

  /** @param at - first byte of the piece in the file's tensor */
  write(piece: Uint8Array, at: number): void {
    const dtype = this.#dtype;
    const format = dtype === 'u8' ? undefined : WIDENED.get(this.#plan.type);
    if (!format || dtype === 'u8') {
      this.#bytes(at, piece.length).set(piece);
      return;
    }
    const size = dtype === 'f32' ? 4 : 2;
    const first = (at / format.bytes) * format.weights;
    const count = (piece.length / format.bytes) * format.weights;
    const { buffer, byteOffset } = this.#bytes(first * size, count * size);
    const Elements = dtype === 'f32' ? Float32Array : Uint16Array;
    widenBlocks(format, piece, this.#where, dtype, new Elements(buffer as ArrayBuffer, byteOffset, count));
  }

  /** Bytes of the held tensor. They are looked up anew each time, because the backend's memory moves when it grows. */
  #bytes(start: number, length: number): Uint8Array {
    const all: HostArray = this.#staged ?? bitsOf(this.#tensor!.storage.host!);
    return new Uint8Array(all.buffer, all.byteOffset + start, length);
  }

  /** The weight, once all is written. */
  weight(): Weight {
    const { held, shape } = this.#plan;
    const tensor = this.#tensor ?? this.#upload();
    return isBlockFormat(held)
      ? blocksFrom(held, tensor as Tensor<'u8'>, shape)
      : (tensor as Tensor<'f32' | 'f16' | 'bf16'>);
  }

  #upload(): Tensor {
    const buffer = this.#staged!.buffer as ArrayBuffer;
    const Elements = { u8: Uint8Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array }[this.#dtype];
    return this.#rw.upload(tensorFrom(new Elements(buffer), { dtype: this.#dtype, shape: this.#shape }));
  }

  dispose(): void {
    this.#tensor?.dispose();
  }
}
