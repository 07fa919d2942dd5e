/** The loops of a plain kernel in f32, which the wrong kernels of layout.ts, memory.ts, positions.ts and axes.ts share. @module */
import { roundTo } from 'ropewalk';
import { type Call, type Rotation, rotationOf, type Stranger } from './kernel.js';
import { NAMES } from './names.js';

export const f = Math.fround;

/** A call, with what a kernel's author has computed before the loops. */
export interface Loops extends Call {
  readonly rotaryDim: number;
  readonly base: number;
  /** Pairs that rotate. */
  readonly pairs: number;
  readonly magnitude: number;
  /** The dimensions of a head from which pair j is read, and to which it is written. */
  readonly from: (j: number) => readonly [number, number];
  readonly to: (j: number) => readonly [number, number];
  /** Angle of pair j of a token: f32 position times f32 frequency. */
  readonly angle: (b: number, s: number, j: number) => number;
  readonly round: (value: number) => number;
}

/** A kernel in f32 that stores in the dtype of its tensors. */
export function loops(call: Call): Loops {
  const { spec, dtype } = call;
  const right = rotationOf(spec);
  const inv = Float32Array.from(right.frequency);
  return {
    ...call,
    rotaryDim: spec.rotaryDim ?? spec.headDim,
    base: spec.base ?? 10000,
    pairs: inv.length,
    magnitude: f(right.gain as number),
    from: (j) => right.pairs[j]!.read,
    to: (j) => right.pairs[j]!.write,
    angle: (b, s, j) => f(call.position(b, s, right.axisOfPair?.[j] ?? 0) * inv[j]!),
    round: (value) => roundTo(dtype, value),
  };
}

/** Walks every head of every token; `row` is its first element. */
export function each(call: Call, body: (row: number, b: number, s: number, h: number) => void): void {
  for (let b = 0; b < call.batch; b++)
    for (let s = 0; s < call.seq; s++) for (let h = 0; h < call.heads; h++) body(call.at(b, s, h), b, s, h);
}

export function copyRow(call: Call, row: number, source = row): void {
  for (let i = 0; i < call.headDim; i++) call.y[row + i] = call.x[source + i]!;
}

/** Turns elements i0 and i1 of x by an angle, and stores them. */
export function turn(call: Loops, i0: number, i1: number, angle: number, to0 = i0, to1 = i1): void {
  const [c, s] = [f(Math.cos(angle) * call.magnitude), f(Math.sin(angle) * call.magnitude)];
  const [x0, x1] = [call.x[i0]!, call.x[i1]!];
  call.y[to0] = call.round(f(f(x0 * c) - f(x1 * s)));
  call.y[to1] = call.round(f(f(x0 * s) + f(x1 * c)));
}

/** The right rotation of the row at `source`, as at token s of batch b, written to `row`. */
export function rotateRow(call: Loops, row: number, source: number, b: number, s: number): void {
  copyRow(call, row, source);
  for (let j = 0; j < call.pairs; j++) {
    const [[i0, i1], [o0, o1]] = [call.from(j), call.to(j)];
    turn(call, source + i0, source + i1, call.angle(b, s, j), row + o0, row + o1);
  }
}

/** The right kernel. */
export const right = (call: Loops): void => each(call, (row, b, s) => rotateRow(call, row, row, b, s));

/** A kernel whose rotation is the model's, but for `changed`; without `changed`, y is no rotation of pairs. */
export function stranger(
  rest: Omit<Stranger, 'run' | 'truth'>,
  run: (call: Loops) => void,
  wrong: ReturnType<Stranger['truth']>['wrong'],
  changed: ((call: Call) => Partial<Rotation>) | undefined,
  more: Partial<ReturnType<Stranger['truth']>> = {},
): Stranger {
  const truth = (call: Call) => ({
    wrong,
    names: NAMES[rest.id] ?? [],
    ...(changed ? { rotation: rotationOf(call.spec, changed(call)) } : {}),
    ...more,
  });
  return { ...rest, run: (call) => run(loops(call)), truth };
}
