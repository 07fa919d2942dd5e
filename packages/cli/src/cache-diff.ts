/** `ropewalk cache-diff`: says what became of each key from one state of a KV cache to another. @module */

import { layerOf } from '@ropewalk/checkpoint';
import {
  type CacheLayer,
  type CachePositions,
  type CacheSide,
  cacheDiff as compareCaches,
} from '@ropewalk/diagnose/internal';
import type { RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { readCache } from './cache-input.js';
import { readDump } from './dump-input.js';
import { Flags, type Switches, type Texts } from './options.js';
import { EXIT, printResult } from './output.js';
import { readRope } from './rope-source.js';

export type CacheDiffOptions = Texts<'expect' | 'layer' | 'context' | 'layout' | 'positions' | 'thenPositions'> &
  Switches<'json'>;

/** @returns 0 when every key is as it was, or with positions as they say; else 1 */
export async function cacheDiff(a: string, b: string, options: CacheDiffOptions): Promise<number> {
  const flags = new Flags(options);
  const layout = flags.word('layout', ['bsnh', 'bnsh']) ?? 'bsnh';
  const [before, after] = [readCache(a, 'a', layout), readCache(b, 'b', layout)];
  const shared = [...before.keys()].filter((layer) => after.has(layer));
  if (shared.length === 0)
    fail(
      'FORMAT',
      'b',
      `it has the layers ${[...after.keys()]}, and a has ${[...before.keys()]}: none is in both. Dump the same layers.`,
    );
  const ropeOf = await readRopes(options);
  const positions = readPositions(options);
  function* layers(): Generator<CacheLayer> {
    for (const layer of shared) {
      const [one, other] = [before.get(layer)!, after.get(layer)!];
      const rope = ropeOf?.(layer);
      const values = one.values && other.values && ([one.values(), other.values()] as const);
      if (values) checkSides(values);
      yield { layer, keys: checkSides([one.keys(), other.keys()], rope, positions), values, rope };
    }
  }
  const found = compareCaches(layers(), positions);
  const alone = [...new Set([...before.keys(), ...after.keys()])].filter((layer) => !shared.includes(layer));
  const isRight = found.isRight && alone.length === 0;
  printResult(options.json, {
    json: () => ({ same: isRight, layers: found.layers, layersOfOne: alone }),
    lines: () => [
      ...found.lines,
      ...(alone.length > 0 ? [`only one of the caches has layers ${alone.join(', ')}`] : []),
    ],
  });
  return isRight ? EXIT.ok : EXIT.failed;
}

/** The RoPE of each layer of the model; undefined without one. */
async function readRopes(options: CacheDiffOptions): Promise<((layer: number) => RopeSpec) | undefined> {
  const flags = new Flags(options);
  if (options.expect === undefined) {
    flags.refuseAny(['layer', 'context'], 'it needs --expect.');
    return undefined;
  }
  const layer = flags.integer('layer');
  const { source, spec } = await readRope(options.expect, flags.integer('context', 1), layer);
  return (n) => (source && layer === undefined ? layerOf(source, n).spec : spec);
}

/** The positions of both caches; undefined without any. */
function readPositions({ positions, thenPositions }: CacheDiffOptions): CachePositions | undefined {
  if (positions === undefined && thenPositions === undefined) return undefined;
  if (positions === undefined || thenPositions === undefined)
    fail(
      'FORMAT',
      positions === undefined ? '--positions' : '--then-positions',
      'one of the two is missing. Give the positions of both caches.',
    );
  return [numbersOf(positions, '--positions'), numbersOf(thenPositions, '--then-positions')];
}

/** The integers of a dump. */
export function numbersOf(file: string, flag: string): number[] {
  return Array.from(readDump(file, flag, {}).readNumbers() as ArrayLike<number>, Number);
}

/** Refuses two sides that cannot be compared. */
export function checkSides(
  sides: readonly [a: CacheSide, b: CacheSide],
  rope?: RopeSpec,
  positions?: CachePositions,
  where: readonly [string, string] = ['a', 'b'],
): readonly [CacheSide, CacheSide] {
  const [a, b] = sides;
  if (a.heads !== b.heads || a.headDim !== b.headDim)
    refuse('SHAPE', where[1], `keys of ${a.heads} heads of ${a.headDim} dimensions, as ${where[0]} has`, [
      b.tokens,
      b.heads,
      b.headDim,
    ]);
  if (rope && rope.headDim !== a.headDim)
    refuse(
      'SHAPE',
      where[0],
      `heads of ${rope.headDim} dimensions, as the model has`,
      a.headDim,
      'For another order, give --layout bnsh.',
    );
  for (const [n, flag] of (['--positions', '--then-positions'] as const).entries())
    if (positions && positions[n]!.length !== sides[n]!.tokens)
      refuse('SHAPE', flag, `${sides[n]!.tokens} positions, one for each token`, positions[n]!.length);
  return sides;
}
