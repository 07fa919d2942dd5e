/** Weights on their way from a file to a backend's memory, one tensor at a time. @module */
import { readExactly } from '@ropewalk/formats';
import { blocksFrom, type HostArray, type Ropewalk, type Tensor, tensorFrom } from 'ropewalk';
import { bitsOf } from 'ropewalk/backend';
import { WIDENED, widenBlocks } from './dequantise.js';
import { pauseIfDue } from './event-loop.js';
import type { Folder } from './model-files.js';
import { isBlockFormat, type Weight, type WeightPlan } from './weights.js';

/** The progress of loading. */
export interface LoadProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The tensor that is being read. */
  readonly tensor: string;
}

/** Bytes that are read at a time, so that a large matrix is never in memory twice. */
const PIECE_BYTES = 8 * 2 ** 20;

/**
 * Reads each tensor into its place. `loaded` gets each weight, also when loading fails: the caller disposes them.
 *
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
    const place = placeOf(rw, plan, `${file}: tensor ${plan.name}`);
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
 * The place of a tensor in the backend's memory. Where the host cannot write there, its bytes are collected in host
 * memory and then uploaded.
 */
function placeOf(rw: Ropewalk, { type, held, heldBytes, shape }: WeightPlan, where: string) {
  const blocks = isBlockFormat(held);
  // Blocks are bytes until weight() says what they mean.
  const dtype = blocks ? 'u8' : held;
  const storedShape = blocks ? [heldBytes] : shape;
  const format = WIDENED.get(type);
  const blockBytes = format?.bytes ?? 4;
  const allocated = rw.name === 'webgpu' ? undefined : rw.allocate(dtype, storedShape);
  const tensor: Tensor | undefined = allocated?.storage.host ? allocated : undefined;
  if (!tensor) allocated?.dispose();
  const staged = tensor ? undefined : new Uint8Array(heldBytes);
  /** Bytes of the held tensor, looked up each time, because the backend's memory moves when it grows. */
  const bytes = (start: number, length: number): Uint8Array => {
    const all: HostArray = staged ?? bitsOf(tensor!.storage.host!);
    return new Uint8Array(all.buffer, all.byteOffset + start, length);
  };
  const upload = (): Tensor => {
    const Elements = { u8: Uint8Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array }[dtype];
    return rw.upload(tensorFrom(new Elements(staged!.buffer as ArrayBuffer), { dtype, shape: storedShape }));
  };
  return {
    /** Bytes to read at a time: whole blocks. */
    pieceBytes: Math.floor(PIECE_BYTES / blockBytes) * blockBytes,
    /** @param at - first byte of the piece in the file's tensor */
    write(piece: Uint8Array, at: number): void {
      if (!format || blocks) {
        bytes(at, piece.length).set(piece);
        return;
      }
      const size = held === 'f32' ? 4 : 2;
      const count = (piece.length / format.bytes) * format.weights;
      const { buffer, byteOffset } = bytes((at / format.bytes) * format.weights * size, count * size);
      const Elements = held === 'f32' ? Float32Array : Uint16Array;
      widenBlocks(format, piece, where, held, new Elements(buffer as ArrayBuffer, byteOffset, count));
    },
    /** The weight, once all is written. */
    weight(): Weight {
      const made = tensor ?? upload();
      return blocks ? blocksFrom(held, made as Tensor<'u8'>, shape) : (made as Tensor<'f32' | 'f16' | 'bf16'>);
    },
    dispose: () => tensor?.dispose(),
  };
}
