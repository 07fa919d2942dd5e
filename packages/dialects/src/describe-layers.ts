/** A model's layers in words. @module */
import { frequenciesOf, type RopeSpec } from 'ropewalk';
import { nameLayers } from 'ropewalk/internal';
import { groupLayers, type LayerGroup, type ModelRope } from './model-rope.js';

/** The scaling rule and its parameters. */
export function describeScaling({ scaling, freqFactors }: RopeSpec): string {
  const { kind, ...rest } = scaling ?? { kind: 'none' as const };
  const entries = Object.entries({ ...rest, freqFactors }).filter(([, value]) => value !== undefined);
  const show = (value: unknown) =>
    typeof value === 'object' ? `${(value as ArrayLike<number>).length} values` : value;
  return [kind, ...entries.map(([name, value]) => `${name}=${show(value)}`)].join(' ');
}

/** The layers of a group, with their type and window in brackets. */
export function describeGroup({ layers, layerType, window }: Omit<LayerGroup, 'rope'>): string {
  const words = [layerType, window && `window ${window}`].filter((word) => word);
  return `${nameLayers(layers)}${words.length > 0 ? ` (${words.join(', ')})` : ''}`;
}

/** One line for each kind of layer. */
export function describeLayers(layers: ModelRope['layers']): string[] {
  return groupLayers(layers).map(({ rope, ...group }) => {
    if (!rope) return `${describeGroup(group)}: no position encoding`;
    const { attentionFactor } = frequenciesOf(rope);
    const dims = `${rope.rotaryDim ?? rope.headDim} of ${rope.headDim} dimensions`;
    return `${describeGroup(group)}: base ${rope.base}, scaling ${describeScaling(rope)}, ${dims}, magnitude ${Number(attentionFactor.toPrecision(7))}`;
  });
}
