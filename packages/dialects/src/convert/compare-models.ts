/**
 * Compares two models, or two records, layer by layer.
 *
 * @module
 */
import type { RopeSpec, TableRecipe } from 'ropewalk';
import { groupBy, nameLayers, ranges, readOptions } from 'ropewalk/internal';
import type { LayerRope, ModelRope } from '../model-rope.js';
import { keyOf, readModelRope } from '../model-rope.js';
import { type Agreement, compareRope, type RopeComparison } from './compare.js';

/** One side of a comparison: a model, or one record for every layer; and how its angles are computed. */
export interface ComparedSide {
  readonly rope: ModelRope | RopeSpec;
  readonly recipe: TableRecipe;
}

/** Layers whose two sides are the same two records. */
export interface ComparedLayers {
  /** The layers ascend; two records have layer 0. */
  readonly layers: readonly number[];
  /** The models' names for these layers: `full_attention / sliding_attention`. */
  readonly types: string;
  /** Layers without position encoding have none. */
  readonly a: RopeSpec | undefined;
  readonly b: RopeSpec | undefined;
  /** Both sides need a position encoding. */
  readonly comparison: RopeComparison | undefined;
  readonly agreement: Agreement;
  /** Why, in one sentence. */
  readonly reason: string;
  readonly same: boolean;
  /** The effect, in full sentences. */
  readonly verdict: readonly string[];
}

/** The result of {@link compareModels}. */
export interface ModelComparison {
  /** A model gives the same results with either, in all layers, and both have as many. The agreement is of those in both. */
  readonly same: boolean;
  /** That of the layers that agree least. */
  readonly agreement: Agreement;
  /** Why, in one sentence: that of the layers that agree least. */
  readonly reason: string;
  readonly groups: readonly ComparedLayers[];
  /** The layers that are not compared, and windows that differ, in full sentences. */
  readonly notes: readonly string[];
}

/**
 * Compares two models, layer by layer. A record is compared with every layer of the other side.
 *
 * @param first - a model or a record, a in the result
 * @param second - the same, b in the result
 * @param positions - positions at which both rotate a vector, integers >= 0
 * @throws {RopewalkError} as compareRope
 */
export function compareModels(
  first: ComparedSide,
  second: ComparedSide,
  positions: readonly number[],
): ModelComparison {
  const [a, b] = [readSide(first, 'diff: a'), readSide(second, 'diff: b')];
  const [layersA, layersB] = [a, b].map(({ rope }) => ('layers' in rope ? rope.layers : undefined));
  const count = Math.min(layersA?.length ?? Infinity, layersB?.length ?? Infinity);
  const notes: string[] = [];
  const uneven = layersA && layersB && layersA.length !== layersB.length;
  if (uneven)
    notes.push(`A has ${layersA.length} layers and B ${layersB.length}: only the first ${count} are compared.`);
  const pairs = Array.from({ length: Number.isFinite(count) ? count : 1 }, (_item, layer) => {
    const types = [layersA, layersB].map((layers) => layers?.[layer]?.layerType).filter((type) => type !== undefined);
    return { layer, types: [...new Set(types)].join(' / '), a: ropeAt(a, layer), b: ropeAt(b, layer) };
  });
  if (layersA && layersB) notes.push(...windowNotes(layersA, layersB));
  const byRope = groupBy(pairs, (pair) => `${keyOf(pair.a)} ${keyOf(pair.b)} ${pair.types}`);
  const groups = [...byRope.values()].map((group) => {
    const first = group[0]!;
    return { ...first, layers: group.map(({ layer }) => layer), ...compareLayer(a, b, first, positions) };
  });
  const least = (['parts', 'rounding', 'exact'] as const).flatMap((one) =>
    groups.filter(({ agreement }) => agreement === one),
  )[0] ?? { agreement: 'exact', layers: [], reason: 'No layer is compared.' };
  const { agreement } = least;
  const where = groups.length > 1 && agreement !== 'exact' ? `In ${nameLayers(least.layers)}: ` : '';
  return {
    same: !uneven && groups.every(({ same }) => same),
    agreement,
    reason: `${where}${least.reason}`,
    groups,
    notes,
  };
}

/** Notes the layers whose tokens see other tokens: the RoPE is the same, but the model is another one. */
function windowNotes(a: readonly LayerRope[], b: readonly LayerRope[]): string[] {
  const sees = (window: number | undefined): string =>
    window === undefined ? 'all tokens' : `the last ${window} tokens`;
  const pairs = a
    .slice(0, b.length)
    .map(({ window }, layer) => ({ layer, a: sees(window), b: sees(b[layer]!.window) }));
  const apart = groupBy(
    pairs.filter((pair) => pair.a !== pair.b),
    (pair) => `${pair.a} ${pair.b}`,
  );
  return [...apart.values()].map((group) => {
    const layers = ranges(group.map(({ layer }) => layer));
    const subject = group.length === 1 ? `Layer ${layers} sees` : `Layers ${layers} see`;
    return `${subject} ${group[0]!.a} in A and ${group[0]!.b} in B. This is not part of RoPE.`;
  });
}

function readSide(given: ComparedSide, where: string): ComparedSide {
  const { rope, recipe } = readOptions(given, where);
  const own = readOptions(rope, `${where}: rope`);
  return { rope: 'layers' in own ? readModelRope(own, where) : own, recipe };
}

function compareLayer(
  a: ComparedSide,
  b: ComparedSide,
  layer: Pick<ComparedLayers, 'a' | 'b'>,
  positions: readonly number[],
): Pick<ComparedLayers, 'comparison' | 'agreement' | 'reason' | 'same' | 'verdict'> {
  if (layer.a && layer.b) {
    const reading = (side: ComparedSide, spec: RopeSpec) => {
      const source = 'layers' in side.rope ? side.rope.source : ('record' as const);
      return { spec, source, recipe: side.recipe };
    };
    const comparison = compareRope(reading(a, layer.a), reading(b, layer.b), positions);
    const { agreement, reason, same, verdict } = comparison;
    return { comparison, agreement, reason, same, verdict };
  }
  const same = !layer.a && !layer.b;
  const verdict = same
    ? 'Neither has a position encoding here.'
    : `Only ${layer.a ? 'A' : 'B'} rotates here: in the other, attention sees no positions.`;
  return { comparison: undefined, agreement: same ? 'exact' : 'parts', reason: verdict, same, verdict: [verdict] };
}

function ropeAt({ rope }: ComparedSide, layer: number): RopeSpec | undefined {
  return 'layers' in rope ? rope.layers[layer]!.rope : rope;
}
