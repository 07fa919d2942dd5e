/** What a command line names as a RoPE: a file, or a `ROPE(…)` line of `ropewalk check`. @module */
import { type LayerSource, layerOf, type RopeSource } from '@ropewalk/checkpoint';
import { readRopeSource } from '@ropewalk/checkpoint/node';
import type { FloatDtype } from 'ropewalk';

/** One RoPE, and where it comes from. */
export interface GivenRope extends LayerSource {
  readonly direction: 'forward' | 'backward';
  /** What a `ROPE(…)` line says apart from the rotation. */
  readonly line?: { readonly dtype: FloatDtype; readonly heads: number };
  /** The file, unless it is a line. */
  readonly source?: RopeSource;
}

/** Whether a text is a `ROPE(…)` line. */
export const isRopeLine = (text: string): boolean => /^\s*ROPE\s*\(/.test(text);

/** Reads one RoPE from a file as of `readRopeSource`, or a `ROPE(…)` line; of a model's `layer`, 0 unless given. */
export async function readRope(text: string, context?: number, layer?: number): Promise<GivenRope> {
  if (!isRopeLine(text)) {
    const source = await readRopeSource(text, context);
    return { ...layerOf(source, layer), direction: 'forward', source };
  }
  // Most commands never read such a line, and the oracle is the largest package.
  const { parseRopeLabel, ropePlanOfCase } = await import('@ropewalk/oracle');
  const label = parseRopeLabel(text);
  const { source, direction } = ropePlanOfCase(label);
  const line = { dtype: label.type, heads: label.ne_a[1] };
  return { spec: source!.spec, direction, from: 'the ROPE(…) line', notes: [], others: [], layerType: undefined, line };
}
