/**
 * Converts a model's weights to the constants of its graph: the place of each in the files beside the graph, and its
 * bytes, in pieces, so that no weight is in memory as a whole.
 *
 * A code of 8 bits becomes a byte, q + 128. Codes of 4 bits become q + 8; each byte has two neighbours, the first in its
 * low half. 128 and 8 are the default zero points of MatMulNBits. Scales become f32, which holds every product of an f16
 * and 8 bits, so (code − zero point) · scale is exact before f32 rounds it, as in ggml. Offsets are rounded to f32 once.
 *
 * @module
 * @see microsoft/onnxruntime@00b376b docs/ContribOperators.md, MatMulNBits; ggml-org/ggml@d99724f src/ggml-quants.c
 */
import type { LoadProgress } from '@ropewalk/model';
import { type BlockSplit, type PlannedModel, SPLITS, type WeightPlan } from '@ropewalk/model/internal';
import type { OnnxDtype, OnnxExternalTensor } from '@ropewalk/onnx/internal';
import { type Dtype, sizeBytes } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';
import type { MadeAs, WeightConstant } from './scope.js';

/** A data file beside the graph. */
export interface DataFile {
  readonly name: string;
  readonly sizeBytes: number;
}

/** The places of all constants. */
export interface WeightLayout {
  /** The places by the names of the constants. */
  readonly tensors: ReadonlyMap<string, OnnxExternalTensor>;
  readonly files: readonly DataFile[];
  /** True if two constants have the same bytes, like the embedding and the head of a tied model. */
  readonly shared: boolean;
}

/** The largest data file, unless a single constant is larger. Pages read each file into one buffer. */
const MAX_FILE_BYTES = 2 ** 30;
/** Constants begin at cache lines, and large ones at pages of memory, so that files can be mapped. */
const [ALIGNMENT, LARGE_ALIGNMENT, LARGE_BYTES] = [64, 4096, 2 ** 20];

/**
 * Gives every constant its place in data files: `model.onnx_data`, `model.onnx_data_1` and so on.
 *
 * @param maxFileBytes - a constant that would pass this size begins a new file
 */
export function layoutWeights(
  constants: readonly WeightConstant[],
  graph = 'model.onnx',
  maxFileBytes = MAX_FILE_BYTES,
): WeightLayout {
  const files: { name: string; sizeBytes: number }[] = [];
  const placed = new Map<string, OnnxExternalTensor>();
  const tensors = constants.map(({ name, dtype, shape, weights, madeAs, inTurns }): [string, OnnxExternalTensor] => {
    const places = weights.map(({ place }) => place).join(inTurns ? '/' : '+');
    const key = `${madeAs === 'numbers' ? dtype : madeAs} ${places}`;
    const known = placed.get(key);
    if (known) return [name, { ...known, dtype, shape }];
    const bytes = weights.reduce((sum, plan) => sum + partBytes(plan, dtype, madeAs), 0);
    const alignment = bytes >= LARGE_BYTES ? LARGE_ALIGNMENT : ALIGNMENT;
    let file = files.at(-1);
    let byteOffset = Math.ceil((file?.sizeBytes ?? 0) / alignment) * alignment;
    if (!file || (byteOffset > 0 && byteOffset + bytes > maxFileBytes)) {
      file = { name: `${graph}_data${files.length > 0 ? `_${files.length}` : ''}`, sizeBytes: 0 };
      files.push(file);
      byteOffset = 0;
    }
    file.sizeBytes = byteOffset + bytes;
    const place = { dtype, shape, location: file.name, byteOffset, sizeBytes: bytes };
    placed.set(key, place);
    return [name, place];
  });
  return { tensors: new Map(tensors), files, shared: placed.size < constants.length };
}

/** Options for writing weights. */
export interface WriteWeightsOptions {
  /** Ends the work with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Called with the number of bytes that were read. */
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
}

/**
 * Takes bytes of a data file.
 *
 * @param bytes - they are valid until the promise is resolved
 * @param byteOffset - from the start of the file
 */
export type WriteData = (file: string, byteOffset: number, bytes: Uint8Array) => void | Promise<void>;

/**
 * Reads each weight once and passes on the bytes of its constants, in pieces of at most 8 MiB. Gaps between constants
 * are not written and must be 0.
 *
 * @throws {RopewalkError} FORMAT for files that end early, and for scales and weights that are not finite, because the
 *   file is damaged or forged; the signal's reason; any error of `write`
 */
export async function writeWeights(
  description: Pick<PlannedModel, 'streamWeight' | 'path'>,
  constants: readonly WeightConstant[],
  { tensors }: WeightLayout,
  write: WriteData,
  { signal, onProgress }: WriteWeightsOptions = {},
): Promise<void> {
  const jobs = jobsOf(constants, tensors);
  const totalBytes = jobs.reduce((sum, { plan }) => sum + plan.sizeBytes, 0);
  let doneBytes = 0;
  for (const { plan, targets } of jobs) {
    const where = `${description.path(plan.spans[0]!.file)}: tensor ${plan.name}`;
    const makers = targets.map((target) => {
      const { unit, size, make } = makerOf(plan, target.madeAs, where);
      return (piece: Uint8Array, at: number) => put(write, target, (at / unit) * size, make(piece));
    });
    const onRead = (bytes: number): void => {
      doneBytes += bytes;
      onProgress?.({ doneBytes, totalBytes, tensor: plan.name });
    };
    const take = async (piece: Uint8Array, at: number): Promise<void> => {
      for (const make of makers) await make(piece, at);
    };
    await description.streamWeight(plan, take, { signal, onRead });
  }
}

/** The places of a weight's bytes. Its rows are `strideBytes` apart. */
interface Target {
  readonly madeAs: MadeAs;
  readonly location: string;
  readonly byteOffset: number;
  readonly rowBytes: number;
  readonly strideBytes: number;
}

/** A weight that is to be read, and the places of its bytes. */
interface Job {
  readonly plan: WeightPlan;
  readonly targets: Target[];
}

/** Writes bytes of a weight, starting at its byte `at`. */
async function put(write: WriteData, target: Target, at: number, bytes: Uint8Array): Promise<void> {
  const { location, byteOffset, rowBytes, strideBytes } = target;
  if (rowBytes === strideBytes) return write(location, byteOffset + at, bytes);
  for (let done = 0; done < bytes.length; ) {
    const [row, inRow] = [Math.floor((at + done) / rowBytes), (at + done) % rowBytes];
    const piece = bytes.subarray(done, done + rowBytes - inRow);
    await write(location, byteOffset + row * strideBytes + inRow, piece);
    done += piece.length;
  }
}

function jobsOf(constants: readonly WeightConstant[], tensors: WeightLayout['tensors']): Job[] {
  const jobs = new Map<string, Job>();
  const done = new Set<string>();
  for (const { name, dtype, weights, madeAs, inTurns } of constants) {
    const { location, byteOffset } = tensors.get(name)!;
    // Constants with the same bytes have the same place.
    const place = `${location} ${byteOffset}`;
    if (done.has(place)) continue;
    done.add(place);
    let before = 0;
    for (const given of weights) {
      const plan = madeAs === 'numbers' ? { ...given, held: dtype as 'f32' } : given;
      const key = `${plan.place} ${plan.held}`;
      const job = jobs.get(key) ?? { plan, targets: [] };
      jobs.set(key, job);
      const bytes = partBytes(plan, dtype, madeAs);
      const rowBytes = bytes / countElements(plan.shape.slice(0, -1));
      const strideBytes = inTurns ? weights.length * rowBytes : rowBytes;
      job.targets.push({ madeAs, location, byteOffset: byteOffset + before, rowBytes, strideBytes });
      before += inTurns ? rowBytes : bytes;
    }
  }
  return [...jobs.values()];
}

/** Returns the bytes of a weight in a constant. */
function partBytes({ shape, held }: WeightPlan, dtype: OnnxDtype, madeAs: MadeAs): number {
  const count = countElements(shape);
  if (madeAs === 'numbers') return count * sizeBytes(dtype as Dtype);
  return count * bytesPerWeight(SPLITS.get(held)!, madeAs);
}

function bytesPerWeight({ bits, group }: BlockSplit, madeAs: MadeAs): number {
  return madeAs === 'scales' || madeAs === 'offsets' ? 4 / group : bits / 8;
}

/** Returns a function that makes `size` bytes from every `unit` bytes. Its result is valid until the next call. */
function makerOf({ held }: WeightPlan, madeAs: MadeAs, where: string) {
  if (madeAs === 'numbers') return { unit: 1, size: 1, make: (piece: Uint8Array): Uint8Array => piece };
  const split = SPLITS.get(held)!;
  const { bytes: unit, weights } = split.reader;
  const size = weights * bytesPerWeight(split, madeAs);
  // A code and the code minus its zero point differ in their highest bit. The file of q4_0 has the former.
  const highest = split.bits === 8 ? 0x80 : 0x88;
  const flip = (madeAs === 'codes') === (held === 'q4_0') ? 0 : highest;
  const fill = held === 'q8_0' ? codesOf8 : held === 'q4_0' ? codesOf4 : codesOfSplit(split);
  let buffer = new Uint8Array(0);
  const make = (piece: Uint8Array): Uint8Array => {
    const blocks = piece.length / unit;
    if (buffer.length < blocks * size) buffer = new Uint8Array(blocks * size);
    if (madeAs === 'scales' || madeAs === 'offsets') factors(buffer, piece, blocks, split, madeAs, where);
    else fill(buffer, piece, blocks, flip);
    return buffer.subarray(0, blocks * size);
  };
  return { unit, size, make };
}

function factors(
  out: Uint8Array,
  piece: Uint8Array,
  blocks: number,
  { reader, group, factors }: BlockSplit,
  madeAs: 'scales' | 'offsets',
  where: string,
): void {
  const view = new DataView(out.buffer);
  const found = { scales: new Float64Array(reader.weights / group), offsets: new Float64Array(reader.weights / group) };
  for (let n = 0, to = 0; n < blocks; n++) {
    factors(piece, n * reader.bytes, found.scales, found.offsets);
    for (const factor of found[madeAs]) {
      if (!Number.isFinite(factor))
        refuse('FORMAT', where, `${madeAs} that are finite numbers`, factor, 'The file is damaged or forged.');
      view.setFloat32(4 * to++, factor, true);
    }
  }
}

/**
 * Finds the integers of widened weights. These are exactly integers times a scale, so a quotient is off by much less
 * than a half, and 256.5 more, cut, is the integer and 256, whose low bits are the code's.
 */
function codesOfSplit({ reader, bits, group, factors }: BlockSplit) {
  const { weights, bytes, widen } = reader;
  const [scales, offsets] = [new Float64Array(weights / group), new Float64Array(weights / group)];
  const y = new Float64Array(weights);
  return (out: Uint8Array, piece: Uint8Array, blocks: number, flip: number): void => {
    for (let n = 0, to = 0; n < blocks; n++) {
      widen(piece, n * bytes, y);
      factors(piece, n * bytes, scales, offsets);
      for (let i = 0; i < weights; ) {
        const [scale, offset] = [scales[i / group]!, offsets[i / group]!];
        const inverse = scale === 0 ? 0 : 1 / scale;
        const end = i + group;
        if (bits === 8) for (; i < end; i++) out[to++] = ((y[i]! - offset) * inverse + 256.5) ^ flip;
        else
          for (; i < end; i += 2) {
            const [low, high] = [(y[i]! - offset) * inverse + 256.5, (y[i + 1]! - offset) * inverse + 256.5];
            out[to++] = ((low & 15) | ((high & 15) << 4)) ^ flip;
          }
      }
    }
  };
}

function codesOf8(out: Uint8Array, piece: Uint8Array, blocks: number, flip: number): void {
  for (let n = 0, from = 2, to = 0; n < blocks; n++, from += 2)
    for (const end = to + 32; to < end; to++, from++) out[to] = piece[from]! ^ flip;
}

/** ggml has weights 0 … 15 of a block in the low halves of its bytes, and 16 … 31 in the high halves. */
function codesOf4(out: Uint8Array, piece: Uint8Array, blocks: number, flip: number): void {
  for (let n = 0, from = 2, to = 0; n < blocks; n++, from += 18, to += 16) {
    for (let j = 0; j < 8; j++) {
      const [first, second] = [piece[from + 2 * j]!, piece[from + 2 * j + 1]!];
      out[to + j] = ((first & 15) | ((second & 15) << 4)) ^ flip;
      out[to + 8 + j] = ((first >> 4) | (second & 240)) ^ flip;
    }
  }
}
