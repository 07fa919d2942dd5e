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
import { positionList, readCache } from './cache-input.js';
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
  const [before, after] = [await readCache(a, 'a', layout), await readCache(b, 'b', layout)];
  const numbers = [...before.layers.keys()];
  if (`${numbers}` !== `${[...after.layers.keys()]}`)
    refuse('SHAPE', 'b', `the layers of a, ${numbers}`, [...after.layers.keys()], 'Dump the same layers.');
  const { expect, positions, thenPositions } = options;
  if (expect === undefined) flags.refuseAny(['layer', 'context'], 'it needs --expect.');
  const layerOfAll = flags.integer('layer');
  const model = expect === undefined ? undefined : await readRope(expect, flags.integer('context', 1), layerOfAll);
  const given = (text: string | undefined, flag: string, own?: readonly number[]): readonly number[] | undefined =>
    text === undefined ? own : positionList(readDump(text, flag, {}));
  const own = [
    given(positions, '--positions', before.positions),
    given(thenPositions, '--then-positions', after.positions),
  ] as const;
  if (!own[0] || !own[1]) flags.refuseAny(['positions', 'thenPositions'], 'give those of both caches.');
  const places: CachePositions | undefined = own[0] && own[1] && [own[0], own[1]];
  function* layers(): Generator<CacheLayer> {
    for (const [layer, one] of before.layers) {
      const other = after.layers.get(layer)!;
      const ofLayer = model?.source && layerOfAll === undefined ? layerOf(model.source, layer) : model;
      const rope = ofLayer?.spec;
      const headDim = rope?.headDim;
      const values = one.values && other.values && ([one.values(headDim), other.values(headDim)] as const);
      if (values) checkSides(values);
      yield { layer, keys: checkSides([one.keys(headDim), other.keys(headDim)], rope, places), values, rope };
    }
  }
  const found = compareCaches(layers(), places);
  printResult(options.json, {
    json: () => ({ right: found.isRight, layers: found.layers }),
    lines: () => found.lines,
  });
  return found.isRight ? EXIT.ok : EXIT.failed;
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
    refuse(
      'SHAPE',
      where[1],
      `${a.heads} heads of ${a.headDim} dimensions, as ${where[0]} has`,
      [b.heads, b.headDim],
      'Are heads before tokens? --layout bnsh.',
    );
  if (rope && rope.headDim !== a.headDim)
    refuse('SHAPE', where[0], `heads of ${rope.headDim} dimensions, as the model has`, a.headDim);
  for (const [n, flag] of (['--positions', '--then-positions'] as const).entries())
    if (positions && positions[n]!.length !== sides[n]!.tokens)
      refuse('SHAPE', flag, `${sides[n]!.tokens} positions, one for each token`, positions[n]!.length);
  return sides;
}
