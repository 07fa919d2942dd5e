/** Weights on their way from a file to a backend's memory, one tensor at a time. @module */
import { readExactly } from '@ropewalk/formats';
import {
  blocksFrom,
  type HostArray,
  numberFromBf16,
  numberFromF16,
  type Ropewalk,
  sizeBytes,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import { bitsOf, fail, type WidenBlock } from 'ropewalk/backend';
import { type BlockReader, WIDENED, widenBlocks } from './dequantise.js';
import { pauseIfDue } from './event-loop.js';
import type { Folder } from './model-files.js';
import { isBlockFormat, type Span, type Weight, type WeightPlan } from './weights.js';

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
    const place = placeOf(rw, plan, `${folder.path(plan.spans[0]!.file)}: tensor ${plan.name}`);
    try {
      const read = async ({ file, byteOffset }: Span, at: number, length: number): Promise<Uint8Array> => {
        signal?.throwIfAborted();
        const piece = await readExactly(folder.files.get(file)!, byteOffset + at, length, folder.path(file));
        doneBytes += length;
        onProgress?.({ doneBytes, totalBytes, tensor: plan.name });
        await pauseIfDue();
        return piece;
      };
      if (plan.turns) await writeRows(plan, read, place.write);
      else {
        let written = 0;
        for (const span of plan.spans) {
          for (let at = 0; at < span.sizeBytes; at += place.pieceBytes) {
            const piece = await read(span, at, Math.min(place.pieceBytes, span.sizeBytes - at));
            place.write(piece, written);
            written += piece.length;
          }
        }
      }
      loaded.set(plan.place, place.weight());
    } catch (error) {
      place.dispose();
      throw error;
    }
  }
}

/**
 * Reads transformers' MXFP4 some rows at a time, and writes each row as ggml's blocks, with those of its own matrix.
 *
 * @see huggingface/transformers@0189b1d src/transformers/integrations/mxfp4.py; ggml-org/llama.cpp@de3ff815
 *   conversion/gpt_oss.py
 */
async function writeRows(
  { spans, shape, turns }: WeightPlan,
  read: (span: Span, at: number, length: number) => Promise<Uint8Array>,
  write: (row: Uint8Array, at: number) => void,
): Promise<void> {
  const [codes, scales] = spans as [Span, Span];
  const blocks = shape.at(-1)! / 32;
  const rows = scales.sizeBytes / blocks;
  const step = Math.ceil(PIECE_BYTES / (17 * blocks));
  const packed = new Uint8Array(17 * blocks);
  for (let from = 0; from < rows; from += step) {
    const count = blocks * Math.min(step, rows - from);
    const c = await read(codes, 16 * blocks * from, 16 * count);
    const s = await read(scales, blocks * from, count);
    for (let n = 0; n < count; n += blocks) {
      for (let block = 0; block < blocks; block++) packBlock(packed, 17 * block, s[n + block]!, c, 16 * (n + block));
      const row = from + n / blocks;
      write(packed, 17 * blocks * ((row % turns) * (rows / turns) + Math.floor(row / turns)));
    }
  }
}

/** One block: neighbours share a byte in transformers; in ggml the two halves of the block do. */
function packBlock(to: Uint8Array, at: number, scale: number, codes: Uint8Array, from: number): void {
  to[at] = scale;
  for (let j = 0; j < 8; j++) {
    const [first, second] = [codes[from + j]!, codes[from + j + 8]!];
    to[at + 1 + 2 * j] = (first & 15) | ((second & 15) << 4);
    to[at + 2 + 2 * j] = (first >> 4) | (second & 240);
  }
}

/**
 * The place of a tensor in the backend's memory. Where the host cannot write there, its bytes are collected in host
 * memory and then uploaded.
 */
function placeOf(rw: Ropewalk, { type, held, heldBytes, shape, lessOne }: WeightPlan, where: string) {
  const blocks = isBlockFormat(held);
  // Blocks are bytes until weight() says what they mean.
  const dtype = blocks ? 'u8' : held;
  const storedShape = blocks ? [heldBytes] : shape;
  const format = lessOne ? plusOne(type) : WIDENED.get(type);
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
    /** @param at - first byte of the piece in the whole tensor, as GGUF has it */
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

/** Reads gains that transformers stores less 1, as Gemma's. */
function plusOne(type: string): BlockReader {
  const format = WIDENED.get(type);
  if (format) fail('UNSUPPORTED', type, 'gains that are stored less 1 are not read from blocks. Take F32 or BF16.');
  const dtype = { F32: 'f32', F16: 'f16', BF16: 'bf16' }[type] as 'f32' | 'f16' | 'bf16';
  const bytes = sizeBytes(dtype);
  const widen: WidenBlock = (b, at, y) => {
    const view = new DataView(b.buffer, b.byteOffset + at, bytes);
    if (dtype === 'f32') y[0] = 1 + view.getFloat32(0, true);
    else y[0] = 1 + (dtype === 'f16' ? numberFromF16 : numberFromBf16)(view.getUint16(0, true));
  };
  return { weights: 1, bytes, widen };
}
