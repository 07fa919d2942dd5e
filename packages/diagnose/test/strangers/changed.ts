/** Wrong kernels: what was done to right results before they were stored, and what sines were multiplied with. @module */
import { tensorFrom } from 'ropewalk';
import type { Rotation, Stranger } from './kernel.js';
import { copyRow, each, f, type Loops, right, rotateRow, stranger } from './loops.js';

/** The right results in f32, changed and stored. */
function changed(call: Loops, change: (y: Float64Array) => void): void {
  right({ ...call, round: f });
  change(call.y);
  for (const [n, value] of call.y.entries()) call.y[n] = call.round(value);
}

const eachElement =
  (of: (value: number) => number) =>
  (call: Loops): void =>
    changed(call, (y) => y.forEach((value, n) => void (y[n] = of(value))));

/** The bits of a value in one 16-bit dtype, read as another. */
const asBits = (value: number, from: 'f16' | 'bf16', to: 'f16' | 'bf16'): number => {
  const { host } = tensorFrom([value], { dtype: from }).storage;
  return (tensorFrom(host as Uint16Array, { dtype: to }).readNumbers() as Float64Array)[0]!;
};

/** Keys without the mean over the tokens of each dimension, as before they are quantised. */
function withoutMean(call: Loops): void {
  const { batch, seq, heads, headDim } = call;
  changed(call, (y) => {
    for (let b = 0; b < batch; b++)
      for (let h = 0; h < heads; h++)
        for (let i = 0; i < headDim; i++) {
          const at = Array.from({ length: seq }, (_, s) => call.at(b, s, h) + i);
          const mean = at.reduce((sum, n) => sum + y[n]!, 0) / seq;
          for (const n of at) y[n]! -= mean;
        }
  });
}

/** The bias of a projection, which should have been added before the rotation. */
function biasAfter(call: Loops): void {
  changed(call, (y) => y.forEach((value, n) => void (y[n] = value + Math.sin(1 + (n % call.headDim)))));
}

/** A Hadamard matrix in Sylvester's order over each head. */
function hadamard(call: Loops): void {
  const { headDim } = call;
  const bits = (n: number): number => (n === 0 ? 0 : (n & 1) + bits(n >> 1));
  changed(call, (y) =>
    each(call, (row) => {
      const of = y.slice(row, row + headDim);
      for (let i = 0; i < headDim; i++)
        y[row + i] = of.reduce((sum, value, k) => sum + (bits(i & k) % 2 ? -value : value), 0) / Math.sqrt(headDim);
    }),
  );
}

/** The partner of dimension d is read at d + 64 in memory, which for the second half is the next head. */
function nextHead(call: Loops): void {
  each(call, (row, b, s) => {
    copyRow(call, row);
    for (let j = 0; j < call.pairs; j++) {
      const angle = call.angle(b, s, j);
      const [c, z] = [f(Math.cos(angle)), f(Math.sin(angle))];
      const [x0, x1, beyond] = [call.x[row + j]!, call.x[row + j + call.pairs]!, call.x[row + j + 2 * call.pairs] ?? 0];
      call.y[row + j] = call.round(f(f(x0 * c) - f(x1 * z)));
      call.y[row + j + call.pairs] = call.round(f(f(x1 * c) + f(beyond * z)));
    }
  });
}

/** Each token's length follows ln of its position beyond 512. */
function logLength(call: Loops): void {
  changed(call, (y) =>
    each(call, (row, b, s) => {
      const factor = Math.max(1, Math.log(call.position(b, s, 0) + 1) / Math.log(512));
      for (let i = 0; i < call.headDim; i++) y[row + i]! *= factor;
    }),
  );
}

/** An RMS norm of a model that has none. */
function normed(call: Loops): void {
  changed(call, (y) =>
    each(call, (row) => {
      const x = call.x.subarray(row, row + call.headDim);
      const size = Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / call.headDim);
      for (let i = 0; i < call.headDim; i++) y[row + i]! /= size;
    }),
  );
}

/** The chunks of 8 of head h stay in the places of a swizzle. */
function chunksByHead(call: Loops): void {
  changed(call, (y) =>
    each(call, (row, _b, _s, h) => {
      const of = y.slice(row, row + call.headDim);
      for (let i = 0; i < call.headDim; i++) y[row + i] = of[i ^ (8 * h)]!;
    }),
  );
}

/** Tiles of 8 tokens and 8 dimensions are stored transposed. */
function tiles(call: Loops): void {
  changed(call, (y) => {
    const of = y.slice();
    each(call, (row, b, s, h) => {
      for (let i = 0; i < call.headDim; i++)
        y[row + i] = of[call.at(b, s - (s % 8) + (i % 8), h) + i - (i % 8) + (s % 8)]!;
    });
  });
}

/** A tenth of the elements is dropped, and the rest is scaled up. */
function dropout(call: Loops): void {
  let state = 1;
  changed(call, (y) =>
    y.forEach((value, n) => {
      state = (state * 48271) % 2147483647;
      y[n] = state % 10 === 0 ? 0 : value / 0.9;
    }),
  );
}

/** The rotation by cos and sin of a table that the kernel has made. */
const byTable =
  (table: (call: Loops, b: number, s: number, j: number) => readonly [cos: number, sin: number]) =>
  (call: Loops): void =>
    each(call, (row, b, s) => {
      copyRow(call, row);
      for (let j = 0; j < call.pairs; j++) {
        const [c, z] = table(call, b, s, j);
        const [i0, i1] = call.from(j).map((i) => row + i) as [number, number];
        call.y[i0] = call.round(call.x[i0]! * c - call.x[i1]! * z);
        call.y[i1] = call.round(call.x[i0]! * z + call.x[i1]! * c);
      }
    });

const both = (angle: number): readonly [cos: number, sin: number] => [Math.cos(angle), Math.sin(angle)];

const one = (
  rest: Pick<Stranger, 'id' | 'about'> & Partial<Stranger>,
  run: (call: Loops) => void,
  describes: RegExp,
  rotation?: Partial<Rotation>,
): Stranger =>
  stranger(
    { cause: 3, model: 'Llama 2', dtype: 'f32', input: 'prompt 16', ...rest },
    run,
    ['rows', 'elements', 'positions'],
    rotation && (() => rotation),
    { describes: [describes] },
  );

export const CHANGED: readonly Stranger[] = [
  one(
    { id: 'cut-off', about: 'Results are cut off at ±1.5' },
    eachElement((value) => Math.max(-1.5, Math.min(1.5, value))),
    /y is cut off below -1\.5 and above 1\.5: \d+ elements/,
  ),
  one(
    { id: 'soft-cap', about: 'The soft cap of scores is applied to queries' },
    eachElement((value) => 2 * Math.tanh(value / 2)),
    /y is 2 · tanh\(right result \/ 2\), a soft cap/,
  ),
  one(
    { id: 'f16-in-bf16', about: 'A store converts to f16, and the buffer is bf16', model: 'Llama 3.1', dtype: 'bf16' },
    eachElement((value) => asBits(value, 'f16', 'bf16')),
    /y has the right results in f16, whose bits are read as bf16/,
  ),
  one(
    { id: 'root-of-each', about: 'A square root, with its sign, is left in' },
    eachElement((value) => Math.sign(value) * Math.sqrt(Math.abs(value))),
    /Each element of y is one function of the right result, which rises/,
  ),
  one({ id: 'mean-taken-away', about: 'Keys are smoothed' }, withoutMean, /its mean over the tokens is taken away/),
  one(
    { id: 'bias-after', about: 'The bias is added after the rotation' },
    biasAfter,
    /A constant of each head and dimension is added/,
  ),
  one({ id: 'hadamard-after', about: 'A Hadamard transform follows' }, hadamard, /times a Hadamard matrix/),
  one({ id: 'sine-of-next-head', about: 'x1 is read at d + 64 in memory' }, nextHead, /64 places on, in the next head/),
  one({ id: 'log-length', about: 'Queries grow with ln of the position', input: 'far' }, logLength, /ln\(512\)/),
  one({ id: 'rms-norm-added', about: 'An RMS norm is applied' }, normed, /after an RMS norm of x with weight 1/),
  one(
    { id: 'angle-adds-up-over-heads', about: 'The angle is added to in the loop over heads' },
    (call) =>
      each(call, (row, b, s, h) => {
        rotateRow({ ...call, angle: (...at) => (h + 1) * call.angle(...at) }, row, row, b, s);
      }),
    /by its position × \(its head \+ 1\)/,
  ),
  one(
    { id: 'chunks-by-head', about: 'A swizzle of 16 bytes is not undone' },
    chunksByHead,
    /of dimension i XOR 8( × \(its head\))?/,
  ),
  one(
    { id: 'angles-by-token', about: 'The table is written with a swizzle by token', model: 'Llama 3.1' },
    byTable((call, b, s, j) => both(call.angle(b, s, j ^ (8 * (s % 4))))),
    /each pair by the angle of pair j XOR 8 × \(its token mod 4\)/,
  ),
  one(
    { id: 'tiles', about: 'Tiles are stored transposed' },
    tiles,
    /Tiles of 8 tokens and 8 dimensions are transposed/,
  ),
  one({ id: 'dropout', about: 'Dropout is left on' }, dropout, /% of the elements are 0, .* × 1\.111, as by dropout/),
  one(
    { id: 'small-angles', about: 'Slow pairs take cos = 1 and sin = angle', input: 'far' },
    byTable((call, b, s, j) => (j < 32 ? both(call.angle(b, s, j)) : [1, call.angle(b, s, j)])),
    /cos is 1 and sin is the angle/,
  ),
  one(
    { id: 'half-texel', about: 'A texture is read half a texel off' },
    byTable((call, b, s, j) => {
      const before = Math.max(0, call.position(b, s, 0) - 1) * call.inv[j]!;
      const [p, q] = [both(call.angle(b, s, j)), both(before)];
      return [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2];
    }),
    /means of those of the position and of the one before it/,
  ),
  one(
    { id: 'turned-back-otherwise', about: 'A shift is turned back with other frequencies', model: 'Llama 3.1' },
    byTable((call, b, s, j) => both(call.angle(b, s, j) + (j < 29 ? 0 : 1 + Math.sin(j)))),
    /turned further by an angle of its own, the same in every token/,
  ),
  one(
    { id: 'table-in-bf16-as-f16', about: 'A table in bf16 is read as f16' },
    byTable((call, b, s, j) => {
      const [c, z] = both(call.angle(b, s, j));
      return [asBits(c, 'bf16', 'f16'), asBits(z, 'bf16', 'f16')];
    }),
    /cos and sin are one function of the right ones, which rises/,
  ),
  one(
    { id: 'table-columns-exchanged', about: 'Later rows of the table are [sin, cos]' },
    byTable((call, b, s, j) => {
      const [c, z] = both(call.angle(b, s, j));
      return s < 10 ? [c, z] : [z, c];
    }),
    /this row of x rotated with cos and sin exchanged/,
  ),
  one(
    { id: 'members-exchanged', about: 'Halves are exchanged on store, and positions count from −1' },
    (call) =>
      each(call, (row, b, s) => {
        for (let j = 0; j < call.pairs; j++) {
          const [c, z] = both((call.position(b, s, 0) - 1) * call.inv[j]!);
          const [x0, x1] = [call.x[row + j]!, call.x[row + j + call.pairs]!];
          call.y[row + j] = call.round(x0 * z + x1 * c);
          call.y[row + j + call.pairs] = call.round(x0 * c - x1 * z);
        }
      }),
    /The two members of each pair are exchanged when they are written/,
  ),
  one(
    { id: 'short-two-pi', about: 'Angles are reduced by 6.28125 for 2π', input: 'far' },
    (call) => {
      const reduced = (angle: number): number => angle - Math.round(angle / (2 * Math.PI)) * 6.28125;
      right({ ...call, angle: (b, s, j) => reduced(call.angle(b, s, j)) });
    },
    /for each whole turn in them, as where 6\.28125? is taken for 2π/,
  ),
];
