/** Shows a model's layers as a strip, the groups of layers with the same RoPE, and the facts of one group. @module */
import { effectiveRope, type LayerGroup } from '@ropewalk/dialects';
import { describeScaling } from '@ropewalk/dialects/internal/models';
import type { RopeSpec } from 'ropewalk';
import { layerRanges, whole } from './model.js';

/** Shows the layers side by side, colored by group, and lets the user choose a group. */
export function Layers(props: {
  readonly groups: readonly LayerGroup[];
  readonly chosen: number;
  readonly onChoose: (group: number) => void;
}) {
  const { groups, chosen, onChoose } = props;
  const owner: number[] = [];
  for (const [g, { layers }] of groups.entries()) for (const layer of layers) owner[layer] = g;
  return (
    <fieldset class="explore-layers">
      <legend>Layers with the same RoPE</legend>
      <div class="explore-strip" aria-hidden="true">
        {owner.map((g, layer) => (
          <span
            key={layer}
            class={`explore-layer g${g % 4}${groups[g]!.rope ? '' : ' none'}${g === chosen ? ' chosen' : ''}`}
          />
        ))}
      </div>
      <div class="explore-groups">
        {groups.map(({ layers, layerType, window, rope }, g) => (
          <label key={g} class={`explore-group g${g % 4}`}>
            <input type="radio" name="group" checked={g === chosen} disabled={!rope} onChange={() => onChoose(g)} />
            <span>
              <strong>{layerRanges(layers)}</strong>{' '}
              <span class="muted">
                {[
                  layerType?.replaceAll('_', ' '),
                  window !== undefined ? `window ${whole(window)}` : undefined,
                  rope ? `base ${whole(rope.base)}` : 'no rotation',
                ]
                  .filter((word) => word !== undefined)
                  .join(', ')}
              </span>
            </span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

const PAIRING_WORDS = {
  half: 'half',
  interleaved: 'interleaved: 2j with 2j + 1',
  vision: 'half, for each axis',
  'interleaved-to-half': 'reads interleaved, writes halves',
} as const;

/** The list of facts of one RoPE. */
export function Facts({ spec }: { readonly spec: RopeSpec }) {
  const { rotaryDim, rotaryOffset, headDim, attentionFactor, invFreq } = effectiveRope(spec);
  const turn = (f: number): string => (f > 1e-20 ? `${whole((2 * Math.PI) / f)} tokens` : 'does not turn');
  const facts: readonly (readonly [string, string])[] = [
    ['base', whole(spec.base)],
    ['head size', String(headDim)],
    ['dimensions that rotate', `${rotaryDim}${rotaryOffset ? ` from ${rotaryOffset}` : ''}`],
    ['pairing', PAIRING_WORDS[spec.pairing] + (spec.pairing === 'half' ? `: j with j + ${rotaryDim / 2}` : '')],
    ['magnitude on cos and sin', String(Number(attentionFactor.toPrecision(7)))],
    ['slowest turn', turn(Math.min(...invFreq))],
    ['scaling', describeScaling(spec)],
    ...(spec.axes ? [['axes', `${spec.axes.rule}, ${Array.from(spec.axes.sections).join(' + ')} pairs`] as const] : []),
  ];
  return (
    <dl class="explore-facts">
      {facts.map(([name, value]) => (
        <div key={name} class={value.length > 40 ? 'long' : ''}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
