/** Weights on their way from a file to a backend's memory, one tensor at a time. @module */
import { blocksFrom, type HostArray, type Ropewalk, type Tensor, tensorFrom } from 'ropewalk';
import { bitsOf } from 'ropewalk/internal';
import type { ModelDescription } from './description.js';
import type { LoadProgress } from './stream-weight.js';
import { isBlockFormat, type Weight, type WeightPlan } from './weights.js';

/**
 * Reads each tensor into its place. `loaded` gets each weight, also when loading fails: the caller disposes them.
 *
 * @throws {RopewalkError} FORMAT for a file that ends early or a weight out of range; DEVICE when memory is full
 */
export async function loadWeights(
  rw: Ropewalk,
  { weights: plans, streamWeight }: Pick<ModelDescription, 'weights' | 'streamWeight'>,
  loaded: Map<string, Weight>,
  { signal, onProgress }: { readonly signal?: AbortSignal; readonly onProgress?: (progress: LoadProgress) => void },
): Promise<void> {
  const totalBytes = plans.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  for (const plan of plans) {
    const place = placeOf(rw, plan);
    const onRead = (bytes: number): void => {
      doneBytes += bytes;
      onProgress?.({ doneBytes, totalBytes, tensor: plan.name });
    };
    try {
      await streamWeight(plan, place.write, { signal, onRead });
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
function placeOf(rw: Ropewalk, { held, heldBytes, shape }: WeightPlan) {
  const blocks = isBlockFormat(held);
  // Blocks are bytes until weight() says what they mean.
  const dtype = blocks ? 'u8' : held;
  const storedShape = blocks ? [heldBytes] : shape;
  const allocated = rw.name === 'webgpu' ? undefined : rw.allocate(dtype, storedShape);
  const tensor: Tensor | undefined = allocated?.storage.host ? allocated : undefined;
  if (!tensor) allocated?.dispose();
  const staged = tensor ? undefined : new Uint8Array(heldBytes);
  const upload = (): Tensor => {
    const Elements = { u8: Uint8Array, f32: Float32Array, f16: Uint16Array, bf16: Uint16Array }[dtype];
    return rw.upload(tensorFrom(new Elements(staged!.buffer as ArrayBuffer), { dtype, shape: storedShape }));
  };
  return {
    /** The tensor is looked up each time, because the backend's memory moves when it grows. */
    write(piece: Uint8Array, at: number): void {
      const all: HostArray = staged ?? bitsOf(tensor!.storage.host!);
      new Uint8Array(all.buffer, all.byteOffset + at, piece.length).set(piece);
    },
    /** The weight, once all is written. */
    weight(): Weight {
      const made = tensor ?? upload();
      return blocks ? blocksFrom(held, made as Tensor<'u8'>, shape) : (made as Tensor<'f32' | 'f16' | 'bf16'>);
    },
    dispose: () => tensor?.dispose(),
  };
}
