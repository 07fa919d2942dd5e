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

/** Read at a time: a large matrix never lies in memory twice. */
const PIECE_BYTES = 8 * 2 ** 20;

/**
 * Reads each tensor into its place.
 *
 * @param rw - in whose memory
 * @param plans - of planWeights
 * @param folder - the files they lie in
 * @param loaded - gets them by name, also when it fails: the caller disposes
 * @param options - told of progress; a signal that ends it
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
    const place = new Place(rw, plan, file);
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

/** Where a tensor's bytes go: its place in the backend's memory, where the host can write that; else host memory, uploaded as a whole. */
class Place {
  /** Read so many at a time: whole blocks. */
  readonly pieceBytes: number;
  private readonly tensor: Tensor | undefined;
  private readonly staged: Uint8Array | undefined;

  constructor(
    private readonly rw: Ropewalk,
    private readonly plan: WeightPlan,
    private readonly file: string,
  ) {
    this.pieceBytes = Math.floor(PIECE_BYTES / this.unit) * this.unit;
    const tensor = rw.name === 'webgpu' ? undefined : rw.allocate(this.dtype, this.shape);
    if (tensor?.storage.host) this.tensor = tensor;
    else {
      tensor?.dispose();
      this.staged = new Uint8Array(plan.heldBytes);
    }
  }

  /** Blocks are bytes here; {@link weight} says what they mean. */
  private get dtype(): 'f32' | 'f16' | 'bf16' | 'u8' {
    const { held } = this.plan;
    return isBlockFormat(held) ? 'u8' : held;
  }

  private get shape(): readonly number[] {
    return this.dtype === 'u8' ? [this.plan.heldBytes] : this.plan.shape;
  }

  /** Whether a piece is widened on its way. */
  private get widened(): boolean {
    return this.dtype !== 'u8' && WIDENED.has(this.plan.type);
  }

  /** Bytes of the file that belong together. */
  private get unit(): number {
    return WIDENED.get(this.plan.type)?.bytes ?? 4;
  }

  /** @param at - first byte of the piece in the file's tensor */
  write(piece: Uint8Array, at: number): void {
    const { plan } = this;
    if (!this.widened) {
      this.bytes(at, piece.length).set(piece);
      return;
    }
    const format = WIDENED.get(plan.type)!;
    const held = this.dtype as Exclude<typeof this.dtype, 'u8'>;
    const size = held === 'f32' ? 4 : 2;
    const first = (at / format.bytes) * format.weights;
    const count = (piece.length / format.bytes) * format.weights;
    const bytes = this.bytes(first * size, count * size);
    const Array_ = held === 'f32' ? Float32Array : Uint16Array;
    const out = new Array_(bytes.buffer as ArrayBuffer, bytes.byteOffset, count);
    widenBlocks(format, piece, `${this.file}: tensor ${plan.name}`, held, out);
  }

  /** The bytes of the held tensor; anew each time, as memory moves when it grows. */
  private bytes(start: number, length: number): Uint8Array {
    const all: HostArray = this.staged ?? bitsOf(this.tensor!.storage.host!);
    return new Uint8Array(all.buffer, all.byteOffset + start, length);
  }

  /** The weight, once all is written. */
  weight(): Weight {
    const { plan } = this;
    const tensor = this.tensor ?? this.upload();
    return isBlockFormat(plan.held)
      ? blocksFrom(plan.held, tensor as Tensor<'u8'>, plan.shape)
      : (tensor as Tensor<'f32' | 'f16' | 'bf16'>);
  }

  private upload(): Tensor {
    const buffer = this.staged!.buffer as ArrayBuffer;
    const Array_ = { u8: Uint8Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array }[this.dtype];
    return this.rw.upload(tensorFrom(new Array_(buffer), { dtype: this.dtype, shape: this.shape }));
  }

  /** Gives the memory back. */
  dispose(): void {
    this.tensor?.dispose();
  }
}
