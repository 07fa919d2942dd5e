/** What is timed: operators as decoders call them, with the bytes and operations that they need at least. @module */
import type { Ropewalk, Tensor } from 'ropewalk';

/** A case before anything is in memory. */
export interface BenchCase {
  readonly label: string;
  /** Bytes read and written at least, each once. */
  readonly bytes: number;
  /** Additions, multiplications, divisions, roots and exponentials, each counted as one. */
  readonly flops: number;
  /** Puts its tensors into a backend's memory. @returns one call of it */
  prepare(rw: Ropewalk): () => void;
}

/** How large the cases are. */
export type Size = 'small' | 'full';

type Float = 'f32' | 'f16' | 'bf16';
const BYTES: Readonly<Record<Float, number>> = { f32: 4, f16: 2, bf16: 2 };

/** Numbers in [−1, 1): the same in each run. */
function numbers(count: number): Float32Array<ArrayBuffer> {
  let state = 12345;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

/** A tensor of random numbers in a backend's memory. */
function tensor<D extends Float>(rw: Ropewalk, dtype: D, shape: readonly number[]): Tensor<D> {
  const source = rw.upload(numbers(shape.reduce((a, b) => a * b, 1)), { shape });
  const out = rw.allocate(dtype, shape);
  rw.rearrange(source, { out });
  if (dtype === ('f32' as Float)) return source as Tensor as Tensor<D>;
  source.dispose();
  return out;
}

function ropeCase(tokens: number, dtype: Float, pairing: 'half' | 'interleaved'): BenchCase {
  const [heads, headDim] = [32, 128];
  const count = tokens * heads * headDim;
  return {
    label: `rope ${dtype} ${pairing}, ${tokens} × ${heads} × ${headDim}`,
    bytes: 2 * count * BYTES[dtype] + tokens * headDim * 4,
    flops: 3 * count,
    prepare(rw) {
      const x = tensor(rw, dtype, [tokens, heads, headDim]);
      const out = rw.allocate(dtype, [tokens, heads, headDim]);
      const positions = Int32Array.from({ length: tokens }, (_, i) => i);
      const plan = rw.planRope({ headDim, pairing, base: 10000, positions, seqLen: tokens });
      return () => void rw.rope(x, plan, { out });
    },
  };
}

function normCase(rows: number, width: number): BenchCase {
  return {
    label: `rms_norm f32, ${rows} × ${width}`,
    bytes: 4 * (2 * rows * width + width),
    flops: 4 * rows * width,
    prepare(rw) {
      const x = tensor(rw, 'f32', [rows, width]);
      const weight = tensor(rw, 'f32', [width]);
      const out = rw.allocate('f32', [rows, width]);
      return () => void rw.rmsNorm(x, weight, { eps: 1e-6, out });
    },
  };
}

function linearCase(rows: number, n: number, k: number, stored: 'f32' | 'f16' | 'q8_0'): BenchCase {
  const weightBytes = stored === 'q8_0' ? (n * k * 34) / 32 : n * k * BYTES[stored];
  return {
    label: `linear f32 × ${stored}, ${rows} × ${k} → ${n}`,
    bytes: weightBytes + 4 * rows * (n + k),
    flops: 2 * rows * n * k,
    prepare(rw) {
      const x = tensor(rw, 'f32', [rows, k]);
      const out = rw.allocate('f32', [rows, n]);
      if (stored !== 'q8_0') {
        const weight = tensor(rw, stored, [n, k]);
        return () => void rw.linear(x, weight, { out });
      }
      // Blocks of a scale in f16, 1/128, and 32 bytes.
      const bytes = new Uint8Array((n * k * 34) / 32);
      for (let i = 0; i < bytes.length; i++) bytes[i] = i % 34 === 0 ? 0 : i % 34 === 1 ? 0x20 : (i * 37) & 255;
      const weight = rw.uploadBlocks('q8_0', bytes, [n, k]);
      return () => void rw.linear(x, weight, { out });
    },
  };
}

function attentionCase(queries: number, keys: number): BenchCase {
  const [heads, kvHeads, headDim] = [32, 8, 128];
  // A causal mask: query i sees the keys up to its own place.
  const scores = queries * (keys - (queries - 1) / 2) * heads;
  return {
    label: `attention f32, ${queries} ${queries === 1 ? 'query' : 'queries'}, ${keys} keys, ${heads} heads`,
    bytes: 4 * (2 * queries * heads * headDim + 2 * keys * kvHeads * headDim),
    flops: scores * (4 * headDim + 4),
    prepare(rw) {
      const q = tensor(rw, 'f32', [queries, heads, headDim]);
      const k = tensor(rw, 'f32', [keys, kvHeads, headDim]);
      const v = tensor(rw, 'f32', [keys, kvHeads, headDim]);
      const out = rw.allocate('f32', [queries, heads, headDim]);
      return () => void rw.selfAttention(q, k, v, { out });
    },
  };
}

/** The cases of a size: `small` runs in a second on a GPU in software; `full` is what a model of 7 B parameters has. */
export function casesOf(size: Size): readonly BenchCase[] {
  const [tokens, wide, n] = size === 'full' ? [512, 4096, 2048] : [32, 512, 256];
  return [
    ropeCase(1, 'f32', 'half'),
    ropeCase(tokens, 'f32', 'half'),
    ropeCase(tokens, 'f32', 'interleaved'),
    ropeCase(tokens, 'f16', 'half'),
    ropeCase(tokens, 'bf16', 'half'),
    normCase(tokens, wide),
    linearCase(1, wide, wide, 'f32'),
    linearCase(1, wide, wide, 'f16'),
    linearCase(1, wide, wide, 'q8_0'),
    linearCase(tokens, n, n, 'f32'),
    attentionCase(1, tokens),
    attentionCase(tokens, tokens),
  ];
}

/** A copy of as many bytes as a case moves: half read, half written. */
export function copyOf(rw: Ropewalk, bytes: number): () => void {
  const count = Math.max(1, Math.round(bytes / 8));
  if (rw.name === 'cpu' || rw.name === 'reference') {
    const [from, to] = [numbers(count), new Float32Array(count)];
    return () => to.set(from);
  }
  const x = tensor(rw, 'f32', [count]);
  const out = rw.allocate('f32', [count]);
  return () => void rw.rearrange(x, { out });
}
