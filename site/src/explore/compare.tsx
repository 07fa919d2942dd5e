/** The tab Compare shows the differences of two models, or of two peers' readings of one model. @module */
import { PEERS, type RopeComparison } from '@ropewalk/dialects';
import { useEffect, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Chart } from '../shared/chart.js';
import { Choice } from '../shared/choice.js';
import { Failure } from '../shared/failure.js';
import { HeatMap } from '../shared/heat-map.js';
import { ModelField } from '../shared/model-field.js';
import { layerRanges, type Source, whole } from './model.js';
import { type Call, ModelSelect, type Open } from './parts.js';
import type { Apart, Compared } from './rope.worker.js';

/** The readers of a model's figures. */
const READERS: Readonly<Record<string, string>> = {
  float64: 'exact, in float64',
  'hf-f32': "transformers' arithmetic, f32",
  'ggml-f32': "ggml's arithmetic, f32",
  ...Object.fromEntries(PEERS.map(({ name }) => [name, `${name}: converted to its arguments, read back`])),
};
const isReader = (text: string): text is string => Object.hasOwn(READERS, text);

/** Angles are compared up to the longer context, but within these limits. */
const [LEAST, MOST] = [4096, 2 ** 20];

/** The smallest angle in radians that is drawn: the rounding of f32 at an angle of 0.01. */
const FAINTEST = 1e-9;

const small = (value: number): string =>
  value === 0 ? '0' : value < 0.001 ? value.toExponential(1) : String(Number(value.toPrecision(2)));

const VERDICTS = { exact: 'same to the last bit', rounding: 'same but for rounding', parts: 'different' } as const;

function Verdict({ agreement }: Pick<RopeComparison, 'agreement'>) {
  return <span class={`tag ${agreement === 'parts' ? 'bad' : 'good'}`}>{VERDICTS[agreement]}</span>;
}

function Rows(props: {
  readonly comparison: RopeComparison;
  readonly names: readonly [string, string];
  readonly where: string;
}) {
  const { comparison, names, where } = props;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys.
    <section class="scroll" tabIndex={0} aria-label={`Properties, ${where}`}>
      <table>
        <thead>
          <tr>
            <th scope="col">Property</th>
            <th scope="col">A: {names[0]}</th>
            <th scope="col">B: {names[1]}</th>
            <th scope="col">Effect</th>
          </tr>
        </thead>
        <tbody>
          {comparison.rows.map(({ name, a, b, differs }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{a}</td>
              <td>{b}</td>
              <td>
                <span class={`tag ${differs ? 'bad' : 'good'}`}>
                  {differs ? 'differs' : a === b ? 'same' : 'same effect'}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Parting(props: {
  readonly comparison: RopeComparison;
  readonly apart: Apart;
  readonly positions: readonly number[];
}) {
  const { comparison, apart, positions } = props;
  const { pairs, angles } = apart;
  const largest = positions.map((_, row) => Math.max(...angles.subarray(row * pairs, (row + 1) * pairs)));
  const marks = comparison.apart.map(({ rad, position, pair }) =>
    position === undefined
      ? `${rad} rad: nowhere up to position ${whole(comparison.searched)}`
      : `${rad} rad: from position ${whole(position)} on (pair ${pair})`,
  );
  const brightness = angles.map((angle) => Math.max(0, Math.log10(angle / FAINTEST)));
  if (largest.every((angle) => angle === 0)) return <p class="muted">No angle differs at any of these positions.</p>;
  return (
    <div class="explore-pictures">
      <figure class="card">
        <h4>The largest angle between A and B</h4>
        <Chart
          x={positions}
          series={[{ label: 'radians', values: largest }]}
          logX
          logY
          xLabel="position"
          yLabel="radians"
          label={`The largest angle between the two sides by position. ${marks.join('; ')}`}
        />
        <figcaption>
          A text token, the pair that is furthest apart; no two directions are more than π apart. First further apart
          than {marks.join('; ')}.
        </figcaption>
      </figure>
      <figure class="card">
        <h4>Which pairs differ, and where</h4>
        <HeatMap
          values={brightness}
          rows={positions.length}
          columns={pairs}
          scale="magnitude"
          limit={Math.log10(Math.PI / FAINTEST)}
          x={{ name: 'pair', first: '0', last: `${pairs - 1}` }}
          y={{ name: 'position', first: whole(positions[0]!), last: whole(positions.at(-1)!) }}
          ends={[`${FAINTEST} rad or less`, 'π rad']}
          label={`Angle between A and B for ${pairs} pairs at ${positions.length} positions from 1 to ${positions.at(-1)}`}
          wordsOf={(row, column) =>
            `position ${whole(positions[row]!)}, pair ${column}: ${small(angles[row * pairs + column]!)} rad apart`
          }
        />
        <figcaption>
          Each row is a position a little further than the last. Brightness is the logarithm of the angle.
        </figcaption>
      </figure>
    </div>
  );
}

/** The table of the NMSE of a random vector at some positions. */
function Errors({ nmse }: Pick<RopeComparison, 'nmse'>) {
  return (
    <p>
      One random vector rotated by both differs by an NMSE of{' '}
      {nmse.map(({ position, text }) => `${small(text)} at ${whole(position)}`).join(', ')}.{' '}
      <span class="muted">ggml's limit for a kernel is 1e-7.</span>
    </p>
  );
}

/**
 * The tab Compare.
 *
 * @param sources - the models of the list and the dropped models
 * @param a - the current model
 * @param open - reads another one
 */
export function Compare(props: {
  readonly a: Source;
  readonly sources: readonly Source[];
  readonly context: number | undefined;
  readonly open: Open;
  readonly call: Call;
}) {
  const { a, sources, context, open, call } = props;
  const [id, setId] = useAddress('with', '');
  const isKnown = id === '' || sources.some((source) => source.id === id);
  const [linked] = useState(isKnown ? undefined : id);
  const [readerA, setReaderA] = useAddress('a', 'float64', isReader);
  const [readerB, setReaderB] = useAddress('b', 'float64', isReader);
  const b = isKnown ? (sources.find((source) => source.id === id) ?? a) : undefined;
  const [compared, setCompared] = useState<Compared>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    let current = true;
    setCompared(undefined);
    setError(undefined);
    const run = async (): Promise<void> => {
      if (!b) return; // the link names a model that is not asked for yet
      const [first, second] = [a.read(context), b.read(context)];
      const last = Math.min(MOST, Math.max(LEAST, first.maxContext ?? 0, second.maxContext ?? 0));
      const sides = [
        { read: first, as: readerA },
        { read: second, as: readerB },
      ] as const;
      const result = await call((ropes) => ropes.compare(...sides, context, last));
      if (current) setCompared(result);
    };
    run().catch((failure) => current && setError(failure));
    return () => {
      current = false;
    };
  }, [a, b, context, readerA, readerB]);
  const names = [
    `${a.id}${readerA === 'float64' ? '' : `, ${readerA}`}`,
    `${b?.id}${readerB === 'float64' ? '' : `, ${readerB}`}`,
  ] as const;
  return (
    <>
      <div class="fields">
        <Choice label={`A: ${a.id}, read as`} value={readerA} of={READERS} onChange={setReaderA} />
        <ModelSelect
          label="B, the other model"
          value={b?.id ?? id}
          sources={sources}
          onChange={(next) => setId(next === a.id ? '' : next)}
        />
        <Choice label="B, read as" value={readerB} of={READERS} onChange={setReaderB} />
      </div>
      <ModelField
        label="another model for B, a config.json or a GGUF,"
        asks="config.json or the header of a GGUF"
        linked={linked}
        onFiles={(given) => open(given).then(setId, setError)}
        onError={setError}
        onFound={async (found) => setId(await open(found))}
      />
      <Failure error={error} next="Choose another model, or the exact reading." />
      <div role="status">
        {compared ? (
          <p class="explore-verdict">
            <Verdict agreement={compared.agreement} /> {compared.reason}
          </p>
        ) : (
          error === undefined &&
          b && (
            <p class="muted">
              Comparing layer by layer …
              {[readerA, readerB].every((reader) => !reader.endsWith('-f32'))
                ? ''
                : ' Rounding is compared at every position up to 1,048,576: some seconds.'}
            </p>
          )
        )}
      </div>
      {compared?.notes.map((note) => (
        <p key={note} class="notice">
          {note}
        </p>
      ))}
      {compared?.groups.map(({ layers, types, comparison, agreement, verdict }, n) => (
        <section key={n} aria-label={layerRanges(layers)}>
          <h3>
            {layerRanges(layers)} <span class="muted">{types.replaceAll('_', ' ')}</span>{' '}
            <Verdict agreement={agreement} />
          </h3>
          {verdict.map((sentence) => (
            <p key={sentence}>{sentence}</p>
          ))}
          {comparison && (
            <>
              <Rows comparison={comparison} names={names} where={layerRanges(layers)} />
              <Errors nmse={comparison.nmse} />
              {compared.apart[n] && (
                <Parting comparison={comparison} apart={compared.apart[n]} positions={compared.positions} />
              )}
            </>
          )}
        </section>
      ))}
    </>
  );
}
