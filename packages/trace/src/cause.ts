/** A cause that the data prove: a change of one side's values that gives the other side's. @module */
import { compare } from './compare.js';
import type { LayerFacts } from './dump.js';
import type { Kind } from './names.js';
import type { Rows } from './side.js';

export interface Cause {
  /** `scale`, `bias`, `rope`, `window`, … */
  readonly id: string;
  /** A full sentence. */
  readonly says: string;
  /** The largest difference of a row that this cause leaves; undefined where the cause was found in some rows only. */
  readonly left?: number | undefined;
}

/** A step that has left the ruler, with what causes are found by. */
export interface Scene {
  readonly kind: Kind;
  readonly layer: number | undefined;
  /** Both have the same shape. */
  readonly a: Rows;
  readonly b: Rows;
  /** The first token that is beyond the ruler. */
  readonly first: number;
  /** The largest difference of a row that a cause may leave. */
  readonly proof: number;
  readonly worst: number;
  /** The heads of the layer, where the dump says or shows them. */
  readonly heads: LayerFacts | undefined;
  readonly positions: readonly number[];
  /** Reads a tensor of the same pass, as each side has it; by default of the same layer. */
  load(kind: Kind, layer?: number): Promise<{ readonly a?: Rows; readonly b?: Rows }>;
  /** Reads a tensor of the layer with the rows of all passes up to this one, as a cache has them. */
  loadAll(kind: Kind): Promise<{ readonly a?: Rows; readonly b?: Rows }>;
  /** The layers that have the kind on both sides. */
  layersOf(kind: Kind): readonly number[];
}

/** Says whether values are the second side's, up to the noise of the step. */
export function leftBy(scene: Scene, data: Float32Array | undefined): number | undefined {
  if (!data) return undefined;
  const { worst } = compare(scene.b, { ...scene.b, data });
  return worst <= scene.proof ? worst : undefined;
}

/** Makes values element by element. */
export function made(like: Rows, value: (at: number, token: number, column: number) => number): Float32Array {
  const data = new Float32Array(like.tokens * like.width);
  for (let t = 0, at = 0; t < like.tokens; t++) for (let c = 0; c < like.width; c++, at++) data[at] = value(at, t, c);
  return data;
}

/** Formats a number for people. */
export function number(value: number, digits = 3): string {
  return String(Number(value.toPrecision(digits)));
}
