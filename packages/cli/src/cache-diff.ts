/** `ropewalk cache-diff`: says what became of each key from one state of a KV cache to another. @module */
import { layerOf } from '@ropewalk/checkpoint';
import {
  type CacheLayer,
  type CachePositions,
  type CacheSide,
  cacheDiff as compareCaches,
} from '@ropewalk/diagnose/internal';
import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
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
  if (`${[...before.keys()]}` !== `${[...after.keys()]}`)
    refuse('SHAPE', 'b', `the layers of a, ${[...before.keys()]}`, [...after.keys()], 'Dump the same layers.');
  const ropeOf = await readRopes(options);
  const positions = readPositions(options);
  function* layers(): Generator<CacheLayer> {
    for (const [layer, one] of before) {
      const other = after.get(layer)!;
      const rope = ropeOf?.(layer);
      const values = one.values && other.values && ([one.values(), other.values()] as const);
      if (values) checkSides(values);
      yield { layer, keys: checkSides([one.keys(), other.keys()], rope, positions), values, rope };
    }
  }
  const found = compareCaches(layers(), positions);
  printResult(options.json, {
    json: () => ({ same: found.isRight, layers: found.layers }),
    lines: () => found.lines,
  });
  return found.isRight ? EXIT.ok : EXIT.failed;
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
  if (positions !== undefined && thenPositions !== undefined)
    return [numbersOf(positions, '--positions'), numbersOf(thenPositions, '--then-positions')];
  new Flags({ positions, thenPositions }).refuseAny(['positions', 'thenPositions'], 'give those of both caches.');
  return undefined;
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
    refuse('SHAPE', where[1], `${a.heads} heads of ${a.headDim} dimensions, as ${where[0]} has`, [b.heads, b.headDim]);
  if (rope && rope.headDim !== a.headDim)
    refuse('SHAPE', where[0], `heads of ${rope.headDim} dimensions, as the model has`, a.headDim);
  for (const [n, flag] of (['--positions', '--then-positions'] as const).entries())
    if (positions && positions[n]!.length !== sides[n]!.tokens)
      refuse('SHAPE', flag, `${sides[n]!.tokens} positions, one for each token`, positions[n]!.length);
  return sides;
}
