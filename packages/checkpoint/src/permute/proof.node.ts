/**
 * The proof of a permutation by q·k. A hidden state goes through the old weights and the old pairing, then through the
 * new weights and the new pairing: every score must be the same. The rows are read from the files, the new ones as
 * written (Node only).
 *
 * @module
 */
import { type FileHandle, open } from 'node:fs/promises';
import { permutedRows, type WeightPairing } from '@ropewalk/dialects/internal/models';
import { elementsAt } from '@ropewalk/formats/internal';
import { readAt } from '@ropewalk/formats/internal/node';
import type { BlockFormat, Dtype, OpPlan, RopeSpec } from 'ropewalk';
import { BLOCK_FORMATS, bindRope, blocksFrom, planRope, sizeBytes, tensorFrom } from 'ropewalk';
import { loadNumber, refuse } from 'ropewalk/backend';
import { BLOCK_FORMAT_NAMES, nameForMessage, randomFrom, readBlocks, reading } from 'ropewalk/internal';
import type { TensorMove } from './plan.js';

/** The comparison of a layer's scores. All differences are in units of |q|·|k|, the largest a score can be. */
export interface LayerProof {
  readonly layer: string;
  readonly qHeads: number;
  readonly kHeads: number;
  readonly scores: number;
  readonly positions: readonly number[];
  /** The difference between new weights with the new pairing and old weights with the old pairing. */
  readonly difference: number;
  /** The largest difference that rounding in float64 explains. */
  readonly bound: number;
  /**
   * The difference between old weights with the new pairing and old weights with the old pairing: the error of a
   * runtime that uses the new pairing without the permutation.
   */
  readonly unmoved: number;
  /**
   * Tensors with rows that are not decoded here, or are not finite: a number made from its bytes is used for each row.
   */
  readonly opaque: readonly string[];
}

/** The files and the extent of a proof. */
export interface ProofOptions {
  readonly to: WeightPairing;
  /** The model's files, and the files written. Without the latter the new rows are taken from the plan. */
  readonly before: readonly string[];
  readonly after?: readonly string[];
  readonly bigEndian: boolean;
  readonly ropeOf: (layer: number) => RopeSpec | undefined;
  /** Compares all layers and heads. Default: two kv heads of the first layer. */
  readonly all: boolean;
  readonly signal?: AbortSignal;
  readonly onLayer?: () => void;
}

/** The most bytes of a row. Every real model has less; a forged header may claim more. */
const MAX_ROW_BYTES = 2 ** 26;
const POSITIONS = [0, 1, 37, 8191];

/**
 * Whether the scores of a layer agree.
 *
 * @param proof - the proof of one layer
 */
export const isProved = (proof: LayerProof): boolean => reading('proof', () => proof.difference <= proof.bound);

/** Lists the layers with a q and a k weight, or the first of them. An adapter alone has none. */
export function provableLayers(moves: readonly TensorMove[], all: boolean): string[] {
  const has = (key: string, side: 'q' | 'k'): boolean =>
    moves.some((move) => move.layerKey === key && move.kind === 'weight' && move[side].length > 0);
  const keys = [...new Set(moves.map(({ layerKey }) => layerKey))].filter((key) => has(key, 'q') && has(key, 'k'));
  return all ? keys : keys.slice(0, 1);
}

export async function proveScores(moves: readonly TensorMove[], options: ProofOptions): Promise<LayerProof[]> {
  const before = new Rows(options.before, options.bigEndian);
  const after = options.after && new Rows(options.after, options.bigEndian);
  const proofs: LayerProof[] = [];
  try {
    for (const key of provableLayers(moves, options.all)) {
      const own = moves.filter((move) => move.layerKey === key);
      proofs.push(await proveLayer(key, own, before, after, options));
      options.onLayer?.();
    }
  } finally {
    await before.close();
    await after?.close();
  }
  return proofs;
}

async function proveLayer(
  key: string,
  moves: readonly TensorMove[],
  before: Rows,
  after: Rows | undefined,
  { to, ropeOf, all, signal }: ProofOptions,
): Promise<LayerProof> {
  const { geometry, layer } = moves[0]!;
  const { numHeads, numKvHeads, headDim, rotaryDim } = geometry;
  const from: WeightPairing = to === 'half' ? 'interleaved' : 'half';
  // The first and the last head, because a wrong stride shows in the last.
  const kHeads = all || numKvHeads < 3 ? [...Array(numKvHeads).keys()] : [0, numKvHeads - 1];
  const group = numHeads / numKvHeads;
  const qHeads = all
    ? [...Array(numHeads).keys()]
    : [...new Set(kHeads.flatMap((k) => [k * group, (k + 1) * group - 1]))];
  // Without a new file, each row of the new order is read from its place in the old file.
  const source = permutedRows(rotaryDim, to);
  const moved = (row: number): number => (row < rotaryDim ? source[row]! : row);
  const opaque = new Set<string>();
  const vectors = async (side: 'q' | 'k', heads: readonly number[], rows: Rows, place: (row: number) => number) => {
    const x: Float64Array[] = [];
    for (const head of heads) {
      signal?.throwIfAborted();
      x.push(await headVectors(moves, side, head, headDim, rows, place, opaque));
    }
    return x;
  };
  const stay = (row: number): number => row;
  const [next, place] = after ? [after, stay] : [before, moved];
  const oldQ = await vectors('q', qHeads, before, stay);
  const oldK = await vectors('k', kHeads, before, stay);
  const newQ = await vectors('q', qHeads, next, place);
  const newK = await vectors('k', kHeads, next, place);

  // The rotation has the model's scaling and base. One position axis is enough: other axes change nothing here.
  const { axes: _axes, ...spec } = ropeOf(layer) ?? { base: 10000 };
  const { runReference } = await import('ropewalk/reference');
  const rotate = (heads: readonly Float64Array[], pairing: WeightPairing): Float64Array[] =>
    heads.map((head) => rotated(head, { ...spec, headDim, rotaryDim, pairing }, runReference));
  const [q0, k0, q1, k1] = [rotate(oldQ, from), rotate(oldK, from), rotate(newQ, to), rotate(newK, to)];
  const [q2, k2] = [rotate(oldQ, to), rotate(oldK, to)];
  let difference = 0;
  let unmoved = 0;
  let scores = 0;
  for (const [n, head] of qHeads.entries()) {
    const kn = kHeads.indexOf(Math.floor(head / group));
    for (let a = 0; a < POSITIONS.length; a++) {
      for (let b = 0; b < POSITIONS.length; b++) {
        const at = (list: readonly Float64Array[], index: number, token: number): Float64Array =>
          list[index]!.subarray(token * headDim, (token + 1) * headDim);
        const size = Math.sqrt(dot(at(q0, n, a), at(q0, n, a)) * dot(at(k0, kn, b), at(k0, kn, b)));
        const score = dot(at(q0, n, a), at(k0, kn, b));
        const off = (q: readonly Float64Array[], k: readonly Float64Array[]): number =>
          size === 0 ? 0 : Math.abs(dot(at(q, n, a), at(k, kn, b)) - score) / size;
        // Scores that overflow a float64 prove nothing, and must not count as equal.
        difference = Math.max(difference, nanToInfinity(off(q1, k1)));
        unmoved = Math.max(unmoved, nanToInfinity(off(q2, k2)));
        scores++;
      }
    }
  }
  // Sums over a head run in another order: headDim roundings in a norm, headDim in a score, three in each rotation;
  // each on both sides.
  const bound = 4 * (headDim + 8) * 2 ** -53;
  const counts = { layer: key, qHeads: qHeads.length, kHeads: kHeads.length, scores, positions: POSITIONS };
  return { ...counts, difference, bound, unmoved, opaque: [...opaque] };
}

function nanToInfinity(x: number): number {
  return Number.isNaN(x) ? Number.POSITIVE_INFINITY : x;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** Computes one head's q or k for each token, `[tokens, headDim]`: weight · x + bias, with the layer's norm if any. */
async function headVectors(
  moves: readonly TensorMove[],
  side: 'q' | 'k',
  head: number,
  headDim: number,
  rows: Rows,
  place: (row: number) => number,
  opaque: Set<string>,
): Promise<Float64Array> {
  const tokens = POSITIONS.length;
  const y = new Float64Array(tokens * headDim);
  const on = moves.filter((move) => move[side].length > 0);
  const start = (move: TensorMove): number => move[side][Math.min(head, move[side].length - 1)]!;
  for (const move of on) {
    if (move.kind !== 'weight' && move.kind !== 'bias') continue;
    for (let row = 0; row < headDim; row++) {
      const values = await rows.of(move, start(move) + place(row));
      if (values.opaque) opaque.add(move.name);
      for (let t = 0; t < tokens; t++)
        y[t * headDim + row]! += move.kind === 'bias' ? values.number(t) : values.times(t);
    }
  }
  for (const move of on) {
    if (move.kind !== 'norm') continue;
    // A norm over all heads has another scale, which all rows share; it changes no comparison.
    const bias = /bias$/.test(move.name);
    for (let t = 0; t < tokens && !bias; t++) {
      const part = y.subarray(t * headDim, (t + 1) * headDim);
      const scale = 1 / Math.sqrt(dot(part, part) / headDim + 1e-6);
      for (let row = 0; row < headDim; row++) part[row]! *= scale;
    }
    for (let row = 0; row < headDim; row++) {
      const value = await rows.of(move, start(move) + place(row));
      if (value.opaque) opaque.add(move.name);
      for (let t = 0; t < tokens; t++) {
        const at = t * headDim + row;
        y[at] = bias ? y[at]! + value.number(t) : y[at]! * value.number(t);
      }
    }
  }
  return y;
}

function rotated(head: Float64Array, spec: RopeSpec, run: (plan: OpPlan) => void): Float64Array {
  const shape = [POSITIONS.length, 1, spec.headDim];
  const plan = planRope({ ...spec, positions: POSITIONS, tableDtype: 'f64' });
  const x = tensorFrom(head, { shape, dtype: 'f64' });
  const out = tensorFrom(new Float64Array(head.length), { shape, dtype: 'f64' });
  run(bindRope(plan, x, out));
  return out.readNumbers() as Float64Array;
}

const DTYPE_OF: ReadonlyMap<string, Dtype> = /* @__PURE__ */ new Map(
  (['f64', 'f32', 'f16', 'bf16'] as const).map((dtype) => [dtype.toUpperCase(), dtype]),
);
const BLOCKS_OF: ReadonlyMap<string, BlockFormat> = /* @__PURE__ */ new Map(
  BLOCK_FORMAT_NAMES.map((format) => [format.toUpperCase(), format]),
);

/** The value of one row: its product with the hidden state of a token, or the number that a bias or norm holds. */
interface RowValues {
  readonly opaque: boolean;
  times(token: number): number;
  number(token: number): number;
}

/** Reads rows from files, one at a time. */
class Rows {
  readonly #handles: (FileHandle | undefined)[] = [];
  readonly #hidden = new Map<number, Float64Array[]>();

  constructor(
    private readonly files: readonly string[],
    private readonly bigEndian: boolean,
  ) {}

  async close(): Promise<void> {
    for (const handle of this.#handles) await handle?.close();
  }

  async of({ name, file, type, shape, rows, rowBytes, byteOffset, kind }: TensorMove, row: number): Promise<RowValues> {
    if (rowBytes > MAX_ROW_BYTES)
      refuse('UNSUPPORTED', nameForMessage(name), `rows of at most ${MAX_ROW_BYTES} bytes`, rowBytes);
    const path = this.files[file]!;
    const handle = (this.#handles[file] ??= await open(path));
    const bytes = await readAt(handle, byteOffset + row * rowBytes, rowBytes, path);
    const values = decodeRow(bytes, type, shape.reduce((a, b) => a * b, 1) / rows, this.bigEndian);
    // No score can be compared when a weight has NaN. The rows still move.
    if (!values?.every(Number.isFinite)) {
      const hash = fnv(bytes);
      const of = (token: number): number => randomFrom(`${hash} ${kind} ${token}`).uniform(-1, 1);
      return { opaque: true, times: of, number: of };
    }
    const times = (token: number): number => dot(this.#state(values.length)[token]!, values);
    return { opaque: false, times, number: () => values[0]! };
  }

  /** Makes a hidden state for each token, the same for all tensors of a width: q and k of a layer share their input. */
  #state(width: number): Float64Array[] {
    const known = this.#hidden.get(width);
    if (known) return known;
    const made = POSITIONS.map((_what, token) => {
      const random = randomFrom(`hidden state ${width} ${token}`);
      return Float64Array.from({ length: width }, () => random.uniform(-1, 1));
    });
    this.#hidden.set(width, made);
    return made;
  }
}

/** Decodes a row; undefined for a type that is not decoded here. */
function decodeRow(bytes: Uint8Array, type: string, width: number, bigEndian: boolean): Float64Array | undefined {
  const dtype = DTYPE_OF.get(type);
  if (dtype && bytes.length === width * sizeBytes(dtype)) {
    const elements = elementsAt(bytes, 0, dtype, width, bigEndian);
    return Float64Array.from({ length: width }, (_item, i) => loadNumber(elements, dtype, i));
  }
  const format = BLOCKS_OF.get(type);
  if (!format || bigEndian || width % BLOCK_FORMATS[format].weights !== 0) return undefined;
  return readBlocks(blocksFrom(format, bytes, [1, width]), 'permute');
}

function fnv(bytes: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < bytes.length; i++) hash = Math.imul(hash ^ bytes[i]!, 0x01000193);
  return hash >>> 0;
}
