/** Reads one weight from its files, piece by piece, and converts it to the bytes that are held in memory. @module */
import { readExactly } from '@ropewalk/formats/internal/models';
import { BLOCK_FORMATS, numberFromF16, sizeBytes } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { BlockSizes } from 'ropewalk/internal';
import { ROUND, refuseUnheld, WIDENED, widenBlocks } from './dequantize.js';
import { pauseIfDue } from './event-loop.js';
import type { Folder } from './folder.js';
import { fitsQ8, openPacked, type StoredTensor } from './packed.js';
import { type QuantizedFormat, quantize } from './quantize.js';
import { IN_Q8, writeQ8 } from './split-blocks.js';
import { type Floats, isBlockFormat, type PackedSpan, type Span, type WeightPlan } from './weights.js';

/** The progress of reading weights. */
export interface LoadProgress {
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The tensor that is being read. */
  readonly tensor: string;
}

/**
 * Takes a piece of a weight.
 *
 * @param piece - held bytes, which are valid until this returns, or until its promise is resolved
 * @param at - the place of the first byte among the weight's `heldBytes`
 */
export type WritePiece = (piece: Uint8Array, at: number) => void | Promise<void>;

/** Options of {@link streamWeight}. */
export interface StreamWeightOptions {
  /** Ends reading with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of bytes that were read from the files. */
  readonly onRead?: ((bytes: number) => void) | undefined;
}

/** The most bytes that are read at a time, and of a piece, so that a large matrix is never in memory twice. */
const PIECE_BYTES = 8 * 2 ** 20;

/**
 * Reads a weight and passes on its held bytes, each exactly once. Pieces end at whole blocks.
 *
 * @throws {RopewalkError} FORMAT for a file that ends early or a weight out of range; UNSUPPORTED for gains less 1 in
 *   blocks
 */
export async function streamWeight(
  folder: Folder,
  plan: WeightPlan,
  write: WritePiece,
  { signal, onRead }: StreamWeightOptions = {},
): Promise<void> {
  if (plan.packed) return streamPacked(folder, plan, plan.packed, write, { signal, onRead });
  const { unit, held, convert } = conversionOf(plan, `${folder.path(plan.spans[0]!.file)}: tensor ${plan.name}`);
  const read: Read = async ({ file, byteOffset }, at, length) => {
    signal?.throwIfAborted();
    const piece = await readExactly(folder.files.get(file)!, byteOffset + at, length, folder.path(file));
    onRead?.(length);
    await pauseIfDue();
    return piece;
  };
  const emit: WritePiece = (piece, at) => write(convert(piece), (at / unit) * held);
  if (plan.turns) return streamRows(plan, read, emit);
  const pieceBytes = Math.floor(PIECE_BYTES / Math.max(unit, held)) * unit;
  let before = 0;
  for (const span of plan.spans) {
    for (let at = 0; at < span.sizeBytes; at += pieceBytes)
      await emit(await read(span, at, Math.min(pieceBytes, span.sizeBytes - at)), before + at);
    before += span.sizeBytes;
  }
}

type Read = (span: Span, at: number, length: number) => Promise<Uint8Array>;

/** Converts stored bytes: `unit` bytes of the file become `held` bytes in memory. */
interface Conversion {
  readonly unit: number;
  readonly held: number;
  /** Returns bytes that are valid until the next call. */
  convert(piece: Uint8Array): Uint8Array;
}

/** Reads packed matrices whole, one at a time, and passes on rows. Their codes take a half or all of a byte a weight. */
async function streamPacked(
  folder: Folder,
  plan: WeightPlan,
  packed: readonly PackedSpan[],
  write: WritePiece,
  { signal, onRead }: StreamWeightOptions,
): Promise<void> {
  const where = `${folder.path(plan.spans[0]!.file)}: tensor ${plan.name}`;
  const whole = async ({ file, byteOffset, sizeBytes }: StoredTensor): Promise<Uint8Array> => {
    signal?.throwIfAborted();
    const bytes = await readExactly(folder.files.get(file)!, byteOffset, sizeBytes!, folder.path(file));
    onRead?.(sizeBytes!);
    return bytes;
  };
  const fits = plan.held === 'q8_0' && packed.every(({ tensor, shape }) => fitsQ8(tensor, shape[1]));
  const { convert } = conversionOf({ ...plan, type: 'F32', lessOne: false }, where);
  let at = 0;
  for (const { tensor, shape, rows } of packed) {
    const from = await openPacked(tensor, shape, whole, where);
    const width = shape[1];
    const step = Math.max(1, Math.floor(PIECE_BYTES / (4 * width)));
    for (let row = rows[0]; row < rows[1]; row += step) {
      const count = Math.min(step, rows[1] - row);
      const numbers = new Float32Array(fits ? 0 : count * width);
      const blocks = new Uint8Array(fits ? ((count * width) / 32) * 34 : 0);
      for (let n = 0; n < count; n++)
        if (fits) from.blocks(row + n, blocks, (n * blocks.length) / count);
        else from.numbers(row + n, numbers, n * width);
      const piece = fits ? blocks : convert(new Uint8Array(numbers.buffer));
      await write(piece, at);
      at += piece.length;
      await pauseIfDue();
    }
  }
}

function conversionOf({ type, held, lessOne, log = false }: WeightPlan, where: string): Conversion {
  const { weights, bytes, widen } = readerOf(type, lessOne, log, where);
  if (!lessOne && !log && held.toUpperCase() === type.toUpperCase())
    return { unit: bytes, held: bytes, convert: (piece) => piece };
  if (held === 'q8_0' && IN_Q8.has(type)) {
    const blocks = growing(Uint8Array);
    return {
      ...{ unit: bytes, held: BLOCK_FORMATS.q8_0.bytes },
      convert(piece) {
        const out = blocks((piece.length / bytes) * BLOCK_FORMATS.q8_0.bytes);
        writeQ8(type, piece, out);
        return out;
      },
    };
  }
  const floats = growing(Float32Array);
  const widened = (piece: Uint8Array): Float32Array => {
    const numbers = floats((piece.length / bytes) * weights);
    widen(piece, numbers, 'f32');
    return numbers;
  };
  if (isBlockFormat(held)) {
    const format = BLOCK_FORMATS[held];
    const whole = Math.max(weights, format.weights);
    const blocks = growing(Uint8Array);
    return {
      unit: (whole / weights) * bytes,
      held: (whole / format.weights) * format.bytes,
      convert(piece) {
        const numbers = widened(piece);
        const out = blocks((numbers.length / format.weights) * format.bytes);
        quantize(numbers, held as QuantizedFormat, out, where);
        return out;
      },
    };
  }
  // Other blocks are held as they are stored.
  const numbers = held as Floats;
  const halves = growing(Uint16Array);
  const rounded = (piece: Uint8Array): Uint16Array => {
    const out = halves((piece.length / bytes) * weights);
    // Blocks are rounded once, from float64.
    if (WIDENED.has(type)) widen(piece, out, numbers);
    else roundTo(numbers, widened(piece), out, where);
    return out;
  };
  return {
    unit: bytes,
    held: weights * sizeBytes(numbers),
    convert(piece) {
      const out = numbers === 'f32' ? widened(piece) : rounded(piece);
      return new Uint8Array(out.buffer, 0, out.byteLength);
    },
  };
}

function roundTo(held: keyof typeof ROUND, numbers: Float32Array, out: Uint16Array | Float32Array, where: string) {
  const { from, limit } = ROUND[held];
  for (let n = 0; n < out.length; n++) {
    const value = numbers[n]!;
    // `>=` would let NaN pass.
    if (!(Math.abs(value) < limit)) refuseUnheld(where, held, value);
    out[n] = from(value);
  }
}

/** Returns a function that gives an array of a length. It keeps the longest array for the next call. */
function growing<T extends Float32Array | Uint16Array | Uint8Array>(
  Elements: new (length: number) => T,
): (length: number) => T {
  let kept = new Elements(0);
  return (length) => {
    if (kept.length < length) kept = new Elements(length);
    return kept.subarray(0, length) as T;
  };
}

/** Reads the numbers of a type, which has `weights` weights in `bytes` bytes. */
interface NumberReader extends BlockSizes {
  widen(piece: Uint8Array, out: Float32Array | Uint16Array, held: 'f32' | 'f16' | 'bf16'): void;
}

/**
 * @param lessOne - the file has the numbers less 1, such as Gemma's gains in transformers
 * @param log - the file has ln(−number)
 */
function readerOf(type: string, lessOne: boolean, log: boolean, where: string): NumberReader {
  const format = WIDENED.get(type);
  if (format) {
    if (lessOne || log)
      fail('UNSUPPORTED', type, 'gains that are stored less 1 are not read from blocks. Take F32 or BF16.');
    const { weights, bytes } = format;
    return { weights, bytes, widen: (piece, out, held) => widenBlocks(format, piece, where, held, out) };
  }
  return {
    weights: 1,
    bytes: type === 'F32' ? 4 : 2,
    widen(piece, out) {
      if (type === 'F32') new Uint8Array(out.buffer, 0, piece.length).set(piece);
      else widenHalves(piece, type, out);
      if (!lessOne && !log) return;
      for (let n = 0; n < out.length; n++) out[n] = log ? -Math.exp(out[n]!) : out[n]! + 1;
      roundTo('f32', out as Float32Array, out, where);
    },
  };
}

/** The values of all f16, made for the first matrix: a table is ten times as fast as the conversion. */
let f16Values: Float32Array | undefined;

function widenHalves(piece: Uint8Array, type: string, out: Float32Array | Uint16Array): void {
  if (type === 'BF16') {
    const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (let n = 0; n < bits.length; n++) bits[n] = (piece[2 * n]! << 16) | (piece[2 * n + 1]! << 24);
    return;
  }
  f16Values ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => numberFromF16(bits));
  for (let n = 0; n < out.length; n++) out[n] = f16Values[piece[2 * n]! | (piece[2 * n + 1]! << 8)]!;
}

/**
 * Reads MXFP4 of transformers some rows at a time, and passes on each row as ggml's blocks, in the place of its matrix.
 *
 * @see huggingface/transformers@0189b1d src/transformers/integrations/mxfp4.py; ggml-org/llama.cpp@de3ff815
 *   conversion/gpt_oss.py
 */
async function streamRows({ spans, shape, turns }: WeightPlan, read: Read, write: WritePiece): Promise<void> {
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
      await write(packed, 17 * blocks * ((row % turns) * (rows / turns) + Math.floor(row / turns)));
    }
  }
}

/** Packs one block. Neighbours share a byte in transformers; in ggml a weight and the one 16 later do. */
function packBlock(to: Uint8Array, at: number, scale: number, codes: Uint8Array, from: number): void {
  to[at] = scale;
  for (let j = 0; j < 8; j++) {
    const [first, second] = [codes[from + j]!, codes[from + j + 8]!];
    to[at + 1 + 2 * j] = (first & 15) | ((second & 15) << 4);
    to[at + 2 + 2 * j] = (first >> 4) | (second & 240);
  }
}
