/** Rewrites the matrices of a GGUF, each with a drawn type: published files mix them, tensor by tensor. */
import { parseGguf } from '@ropewalk/formats';
import { WIDENED } from '@ropewalk/model/internal';
import { bf16FromNumber, f16FromNumber, numberFromF16 } from 'ropewalk';
import type { RandomStream } from 'ropewalk/internal';

/** ggml's number of a type, its block, and the f16 factors in it: their places, and their size beside the first. */
const TYPES = {
  F32: { code: 0, weights: 1, bytes: 4, factors: [] },
  F16: { code: 1, weights: 1, bytes: 2, factors: [] },
  BF16: { code: 30, weights: 1, bytes: 2, factors: [] },
  Q8_0: { code: 8, weights: 32, bytes: 34, factors: [[0, 1]] },
  Q4_0: { code: 2, weights: 32, bytes: 18, factors: [[0, 1]] },
  // A minimum of −7.5 or −15.5 steps makes the mean 0.
  Q4_1: { code: 3, weights: 32, bytes: 20, factors: [[0, 1], [2, -7.5]] },
  Q5_0: { code: 6, weights: 32, bytes: 22, factors: [[0, 1]] },
  Q5_1: { code: 7, weights: 32, bytes: 24, factors: [[0, 1], [2, -15.5]] },
  IQ4_NL: { code: 20, weights: 32, bytes: 18, factors: [[0, 1]] },
  MXFP4: { code: 39, weights: 32, bytes: 17, factors: [] },
  Q2_K: { code: 10, weights: 256, bytes: 84, factors: [[80, 1], [82, 1.5]] },
  Q3_K: { code: 11, weights: 256, bytes: 110, factors: [[108, 1]] },
  Q4_K: { code: 12, weights: 256, bytes: 144, factors: [[0, 1], [2, 7.5]] },
  Q5_K: { code: 13, weights: 256, bytes: 176, factors: [[0, 1], [2, 15.5]] },
  Q6_K: { code: 14, weights: 256, bytes: 210, factors: [[208, 1]] },
  IQ4_XS: { code: 23, weights: 256, bytes: 136, factors: [[0, 1]] },
} as const satisfies Record<string, { code: number; weights: number; bytes: number; factors: readonly (readonly [number, number])[] }>; // biome-ignore format: a table

export type MixedType = keyof typeof TYPES;
export const MIXED_TYPES = Object.keys(TYPES) as MixedType[];

/**
 * Returns a file of F16 and F32 with random weights in its matrices, and the type of each.
 *
 * @param draw - chooses one of the types whose blocks fit the rows of a tensor
 */
export function mixTypes(
  gguf: Uint8Array,
  random: RandomStream,
  draw: (types: readonly MixedType[], tensor: string) => MixedType,
): { bytes: Uint8Array; types: Map<string, MixedType> } {
  const { tensors, dataOffset } = parseGguf(gguf);
  const types = new Map<string, MixedType>();
  const made = Array.from(tensors, ({ name, shape, type, offset, sizeBytes }) => {
    const bytes = gguf.subarray(dataOffset + offset, dataOffset + offset + sizeBytes!);
    if (shape.length < 2 || name.endsWith('.bias')) return { name, shape, code: TYPES.F32.code, bytes };
    const fitting = MIXED_TYPES.filter((one) => shape[0]! % TYPES[one].weights === 0);
    const chosen = draw(fitting, name);
    types.set(name, chosen);
    return {
      name,
      shape,
      code: TYPES[chosen].code,
      bytes: weightsOf(chosen, type === 'F16' ? widened(bytes) : bytes, shape[0]!, random),
    };
  });
  const infos = made.map(({ name, shape, code }, n) => {
    const before = made.slice(0, n).reduce((sum, one) => sum + padded(one.bytes.length), 0);
    const text = new TextEncoder().encode(name);
    const out = new DataView(new ArrayBuffer(8 + text.length + 4 + 8 * shape.length + 4 + 8));
    out.setBigUint64(0, BigInt(text.length), true);
    new Uint8Array(out.buffer).set(text, 8);
    let at = 8 + text.length;
    out.setUint32(at, shape.length, true);
    for (const [d, size] of shape.entries()) out.setBigUint64(at + 4 + 8 * d, BigInt(size), true);
    at += 4 + 8 * shape.length;
    out.setUint32(at, code, true);
    out.setBigUint64(at + 4, BigInt(before), true);
    return new Uint8Array(out.buffer);
  });
  const header = Buffer.concat([gguf.subarray(0, infoOf(gguf, made[0]!.name)), ...infos]);
  const parts = [header, ...made.map(({ bytes }) => bytes)];
  return {
    bytes: Buffer.concat(parts.flatMap((part) => [part, new Uint8Array(padded(part.length) - part.length)])),
    types,
  };
}

const widened = (halves: Uint8Array): Uint8Array =>
  new Uint8Array(Float32Array.from(new Uint16Array(Uint8Array.from(halves).buffer), numberFromF16).buffer);

const padded = (length: number): number => Math.ceil(length / 32) * 32;

/** Finds where the header describes a tensor: the length of its name, then the name. */
function infoOf(gguf: Uint8Array, name: string): number {
  const text = Buffer.from(name);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.from(gguf.buffer, gguf.byteOffset, gguf.length).indexOf(Buffer.concat([length, text]));
}

/** Rounds the numbers to a type of floats, or makes blocks of random codes whose products have about the same size. */
function weightsOf(type: MixedType, stored: Uint8Array, width: number, random: RandomStream): Uint8Array {
  const { weights, bytes, factors } = TYPES[type];
  const numbers = new Float32Array(Uint8Array.from(stored).buffer);
  if (type === 'F32') return stored;
  if (weights === 1)
    return new Uint8Array(Uint16Array.from(numbers, type === 'F16' ? f16FromNumber : bf16FromNumber).buffer);
  const out = Uint8Array.from({ length: (numbers.length / weights) * bytes }, () => random.integer(256));
  const y = new Float64Array(weights);
  const setFactors = (at: number, unit: number): void => {
    if (type === 'MXFP4') out[at] = 128 + Math.round(Math.log2(unit));
    for (const [place, size] of factors) {
      const bits = f16FromNumber(unit * size);
      out.set([bits & 255, bits >> 8], at + place);
    }
  };
  for (let at = 0; at < out.length; at += bytes) {
    setFactors(at, 1);
    WIDENED.get(type)!.widen(out, at, y);
    const rms = Math.sqrt(y.reduce((sum, x) => sum + x * x, 0) / weights);
    setFactors(at, 1 / (rms * Math.sqrt(width)));
  }
  return out;
}
