/** Draws a RoPE: its wavelengths, cos and sin, q·k by distance, and the effect of scaling rules. @module */
import { effectiveRope } from '@ropewalk/dialects';
import { useMemo } from 'preact/hooks';
import type { RopeScaling, RopeSpec } from 'ropewalk';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Chart, type Series } from '../shared/chart.js';
import { Choice } from '../shared/choice.js';
import { HeatMap } from '../shared/heat-map.js';
import { Slider } from '../shared/slider.js';
import { ASSUMED_CONTEXT, reachOf, whole } from './model.js';

/** The number of positions of the heat map and of distances of the curve of q·k. */
const ROWS = 96;
const DISTANCES = 400;

const PARTS = { cos: 'cos', sin: 'sin' } as const;
const isPart = (text: string): text is keyof typeof PARTS => text in PARTS;

/** Returns the same RoPE without scaling. */
const unscaled = (spec: RopeSpec): RopeSpec => ({
  ...spec,
  scaling: { kind: 'none' },
  freqFactors: undefined,
  attentionFactor: undefined,
});

/** Returns the tokens per turn of each pair, or null for a pair that does not turn. */
const wavelengths = (invFreq: Float64Array): (number | null)[] =>
  Array.from(invFreq, (f) => (f > 1e-20 ? (2 * Math.PI) / f : null));

/** Returns the original context, from which the rules of a scaling start. */
export function originalContext({ scaling }: RopeSpec, maxContext: number | undefined): number {
  return scaling && 'originalContext' in scaling ? scaling.originalContext : (maxContext ?? ASSUMED_CONTEXT);
}

function Wavelengths(props: { readonly spec: RopeSpec; readonly distance: number; readonly limit: string }) {
  const { spec, distance, limit } = props;
  const own = useMemo(() => effectiveRope(spec), [spec]);
  const plain = useMemo(() => effectiveRope(unscaled(spec)), [spec]);
  const x = useMemo(() => Array.from(own.invFreq.keys()), [own]);
  const scaled = own.invFreq.some((f, j) => f !== plain.invFreq[j]);
  const series = useMemo<Series[]>(
    () => [
      { label: 'tokens a turn', values: wavelengths(own.invFreq) },
      ...(scaled ? [{ label: 'without scaling', values: wavelengths(plain.invFreq), dashed: true }] : []),
      { label: `${limit}, ${whole(distance)}`, values: x.map(() => distance), dashed: true },
    ],
    [own, plain, distance, limit],
  );
  const slow = own.invFreq.filter((f) => f * distance < 2 * Math.PI).length;
  const words =
    slow === 0
      ? `Every pair makes at least one turn within ${whole(distance)} tokens.`
      : `${slow} of ${x.length} pairs ${slow === 1 ? 'makes' : 'make'} less than one turn within ${whole(distance)} tokens: there, each distance is another angle.`;
  return (
    <figure class="card">
      <h3>How many tokens each pair takes for a turn</h3>
      <Chart
        x={x}
        series={series}
        logY
        xLabel="pair"
        yLabel="tokens"
        label={`Wavelength of ${x.length} pairs, from ${wavelengths(own.invFreq)[0]?.toFixed(1)} tokens on. ${words}`}
      />
      <figcaption>
        {words} Fast pairs tell neighbours apart, slow ones far tokens.
        {scaled && ' The dashed line is the same base without scaling.'}
      </figcaption>
    </figure>
  );
}

/** Returns q·k of two vectors whose pairs are all equal, divided by the value without rotation. */
function scoreAt(distance: number, { invFreq, axisOfPair, headDim, rotaryDim, attentionFactor }: Own): number {
  let sum = headDim / 2 - rotaryDim / 2; // dimensions that do not rotate
  for (let j = 0; j < invFreq.length; j++)
    sum += attentionFactor ** 2 * Math.cos((axisOfPair[j] === 3 ? 0 : distance) * invFreq[j]!);
  return sum / (headDim / 2);
}
type Own = ReturnType<typeof effectiveRope>;

function Falling({ spec, distance: last }: { readonly spec: RopeSpec; readonly distance: number }) {
  const { x, series, scaled } = useMemo(() => {
    const [own, plain] = [effectiveRope(spec), effectiveRope(unscaled(spec))];
    const distances = [
      ...new Set(Array.from({ length: DISTANCES }, (_, n) => Math.round(last ** (n / (DISTANCES - 1))))),
    ];
    const differs = own.attentionFactor !== 1 || own.invFreq.some((f, j) => f !== plain.invFreq[j]);
    const lines: Series[] = [
      { label: 'q·k', values: distances.map((d) => scoreAt(d, own)) },
      ...(differs ? [{ label: 'without scaling', values: distances.map((d) => scoreAt(d, plain)), dashed: true }] : []),
    ];
    return { x: distances, series: lines, scaled: differs };
  }, [spec, last]);
  return (
    <figure class="card">
      <h3>How q·k falls with distance</h3>
      <Chart
        x={x}
        series={series}
        logX
        xLabel="distance, tokens"
        yLabel="q·k"
        label={`q·k of two equal vectors by their distance, 1 at no distance without a magnitude, ${series[0]!.values[x.length - 1]?.toFixed(2)} at ${whole(last)} tokens`}
      />
      <figcaption>
        Two vectors with all pairs alike, of length 1, turned by their positions. Trained q and k use some pairs more
        than others; this is what the rotation alone does.
        {scaled && ' The dashed line is without scaling and its magnitude.'}
      </figcaption>
    </figure>
  );
}

function CosSin({ spec, context }: { readonly spec: RopeSpec; readonly context: number }) {
  const [part, setPart] = useAddress('part', 'cos', isPart);
  const most = Math.max(1, context - ROWS);
  const [first, setFirst] = useAddressNumber('first', 0, { min: 0, max: 2 ** 31 });
  const [step, setStep] = useAddressNumber('step', 1, { min: 1, max: 2 ** 24 });
  const from = Math.min(Math.trunc(first), most);
  const lastStep = Math.max(1, Math.floor(context / ROWS));
  const by = Math.min(Math.trunc(step), lastStep);
  const own = useMemo(() => effectiveRope(spec), [spec]);
  const pairs = own.invFreq.length;
  const values = useMemo(() => {
    const cells = new Float64Array(ROWS * pairs);
    for (let r = 0; r < ROWS; r++)
      for (let j = 0; j < pairs; j++)
        cells[r * pairs + j] =
          own.attentionFactor * Math[part]((own.axisOfPair[j] === 3 ? 0 : from + r * by) * own.invFreq[j]!);
    return cells;
  }, [own, part, from, by]);
  return (
    <figure class="card">
      <h3>cos and sin by position and pair</h3>
      <div class="fields">
        <Choice label="Show" value={part} of={PARTS} onChange={setPart} />
        <Slider label="First position" value={from} min={0} max={most} words={whole(from)} onInput={setFirst} />
        <Slider
          label="Positions a row"
          value={lastStep === 1 ? 0 : Math.round((100 * Math.log(by)) / Math.log(lastStep))}
          min={0}
          max={100}
          words={whole(by)}
          onInput={(value) => setStep(Math.round(lastStep ** (value / 100)))}
        />
      </div>
      <HeatMap
        values={values}
        rows={ROWS}
        columns={pairs}
        scale="signed"
        limit={own.attentionFactor}
        x={{ name: 'pair', first: '0', last: `${pairs - 1}` }}
        y={{ name: 'position', first: whole(from), last: whole(from + (ROWS - 1) * by) }}
        ends={[`−${own.attentionFactor.toPrecision(4)}`, `+${own.attentionFactor.toPrecision(4)}`]}
        label={`${part} of ${pairs} pairs at ${ROWS} positions from ${from}, ${by} apart`}
        wordsOf={(row, column, value) =>
          `position ${whole(from + row * by)}, pair ${column}: ${part} ${value.toFixed(6)}`
        }
      />
      <figcaption>Left the fast pairs, right the slow ones, which hardly move.</figcaption>
    </figure>
  );
}

/** The scaling rules that need only the original context of a model and a factor. */
const RULES: Readonly<Record<string, (factor: number, original: number) => RopeScaling>> = {
  linear: (factor) => ({ kind: 'linear', factor }),
  'dynamic NTK': (factor, original) => ({
    kind: 'dynamicNtk',
    factor,
    originalContext: original,
    context: Math.round(factor * original),
  }),
  YaRN: (factor, original) => ({ kind: 'yarn', factor, originalContext: original }),
  llama3: (factor, original) => ({
    kind: 'llama3',
    factor,
    lowFreqFactor: 1,
    highFreqFactor: 4,
    originalContext: original,
  }),
};

function Rules({ spec, original }: { readonly spec: RopeSpec; readonly original: number }) {
  const { scaling } = spec;
  const own = scaling && 'factor' in scaling && scaling.factor !== undefined && scaling.factor > 1 ? scaling.factor : 8;
  const [factor, setFactor] = useAddressNumber('factor', Math.min(64, own), { min: 1, max: 64 });
  const by = Math.max(1.0625, factor);
  const { x, series, magnitudes } = useMemo(() => {
    const plain = effectiveRope(unscaled(spec));
    const against = (one: RopeSpec): (number | null)[] =>
      Array.from(effectiveRope(one).invFreq, (f, j) => (plain.invFreq[j]! > 1e-20 ? f / plain.invFreq[j]! : null));
    const lines: Series[] = [];
    const own = scaling !== undefined && scaling.kind !== 'none';
    if (scaling?.kind === 'longrope')
      for (const [name, context] of [
        ['longrope, short list', scaling.originalContext],
        ['longrope, long list', scaling.originalContext + 1],
      ] as const)
        lines.push({ label: `own: ${name}`, values: against({ ...spec, scaling: { ...scaling, context } }) });
    else if (own || spec.freqFactors)
      lines.push({ label: `own: ${own ? scaling.kind : 'factors'}`, values: against(spec) });
    const rules = Object.entries(RULES).map(([name, rule]) => ({
      name,
      one: { ...unscaled(spec), scaling: rule(by, original) },
    }));
    for (const { name, one } of rules)
      lines.push({
        label: name,
        values: against(one),
        dashed: lines.length > 0 && (own || spec.freqFactors !== undefined),
      });
    const sizes = [
      ...(own ? [['own', effectiveRope(spec).attentionFactor] as const] : []),
      ...rules.map(({ name, one }) => [name, effectiveRope(one).attentionFactor] as const),
    ];
    return { x: Array.from(plain.invFreq.keys()), series: lines, magnitudes: sizes };
  }, [spec, by, original]);
  return (
    <figure class="card">
      <h3>What scaling rules do to each pair</h3>
      <div class="fields">
        <Slider
          label="Factor of the rules"
          value={Math.round(10 * Math.log2(by))}
          min={0}
          max={60}
          words={by.toFixed(1)}
          onInput={(value) => setFactor(Number((2 ** (value / 10)).toFixed(3)))}
        />
      </div>
      <Chart
        x={x}
        series={series}
        logY
        xLabel="pair"
        yLabel="speed, scaled / unscaled"
        label={`Frequencies with ${series.map(({ label }) => label).join(', ')}, divided by those without scaling, by pair; an original context of ${whole(original)} and factor ${by.toFixed(1)}`}
      />
      <figcaption>
        1 is as trained, 1/factor is slowed down as much as positions grow. The rules are computed for this base, an
        original context of {whole(original)} tokens and the factor above; “own” is what this model has. Linear slows
        all pairs; YaRN and llama3 only the slow ones, with a ramp between; dynamic NTK changes the base, for a context
        of factor × original. LongRoPE has one factor a pair, searched for one model: only models that have it show it.
        On cos and sin:{' '}
        {magnitudes
          .filter(([, size]) => size !== 1)
          .map(([name, size]) => `${name} × ${size.toPrecision(4)}`)
          .join(', ') || 'no rule has a magnitude'}
        .
      </figcaption>
    </figure>
  );
}

/**
 * The pictures of one layer's RoPE.
 *
 * @param maxContext - the number of tokens that the model can take; undefined if it does not state one
 * @param window - the number of tokens that a token of these layers sees; undefined without a window
 */
export function Pictures(props: {
  readonly spec: RopeSpec;
  readonly maxContext: number | undefined;
  readonly window: number | undefined;
}) {
  const { spec, maxContext, window } = props;
  const { context, distance } = reachOf(spec, maxContext, window);
  return (
    <>
      {maxContext === undefined && (
        <p class="notice">This file does not say its context. The pictures go to {whole(ASSUMED_CONTEXT)} tokens.</p>
      )}
      {maxContext !== undefined && context < maxContext && (
        <p class="muted">These frequencies are for up to {whole(context)} tokens, and the pictures end there.</p>
      )}
      <div class="explore-pictures">
        <Wavelengths spec={spec} distance={distance} limit={distance < context ? 'window' : 'context'} />
        <Falling spec={spec} distance={distance} />
        <CosSin spec={spec} context={context} />
        <Rules spec={spec} original={originalContext(spec, maxContext)} />
      </div>
    </>
  );
}
