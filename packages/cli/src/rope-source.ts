/** Reads the RoPE that an argument names: a file, or a `ROPE(…)` line of `ropewalk check`. @module */
import { type LayerSource, layerOf, type RopeSource } from '@ropewalk/checkpoint';
import { readRopeSource } from '@ropewalk/checkpoint/node';
import type { FloatDtype } from 'ropewalk';
import { isRopeLine } from './rope-line.js';

/** The facts of a `ROPE(…)` line beside its RoPE. */
export interface RopeLine {
  readonly dtype: FloatDtype;
  readonly heads: number;
  readonly seq: number;
  readonly batch: number;
  /** Positions are below this. */
  readonly context: number;
  readonly contiguous: boolean;
}

/** One RoPE and its source. */
export interface GivenRope extends LayerSource {
  readonly direction: 'forward' | 'backward';
  /** The other facts of a `ROPE(…)` line. */
  readonly line?: RopeLine;
  /** The file. Undefined for a line. */
  readonly source?: RopeSource;
}

/**
 * Reads one RoPE from a file as `readRopeSource` does, or from a line.
 *
 * @param layer - a model's layer. Default: the first with RoPE
 * @param still - reads a layer without RoPE as one in which no pair rotates
 */
export async function readRope(text: string, context?: number, layer?: number, still?: boolean): Promise<GivenRope> {
  if (!isRopeLine(text)) {
    const source = await readRopeSource(text, context);
    return { ...layerOf(source, layer, still), direction: 'forward', source };
  }
  // The oracle is loaded here, because it is large and few commands read such a line.
  const { parseRopeLabel, ropePlanOfCase } = await import('@ropewalk/oracle');
  const label = parseRopeLabel(text);
  const { source, direction } = ropePlanOfCase(label);
  const [, heads, seq, batch] = label.ne_a;
  const below = label.pos ? Math.max(0, ...label.pos) + 1 : label.n_ctx;
  const line = { dtype: label.type, heads, seq, batch, context: below, contiguous: label.v === 0 };
  return { spec: source!.spec, direction, from: 'the ROPE(…) line', notes: [], others: [], layerType: undefined, line };
}
