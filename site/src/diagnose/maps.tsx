/** Draws the heads of a diagnosis: the place and size of the error, and the turns of the pairs. @module */
import { useEffect, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { HeatMap } from '../shared/heat-map.js';
import type { Helper } from '../shared/worker.js';
import type { HeadMap, Kernel, Report } from './diagnose.worker.js';

/** The views of a map. Those after `size` need no expectation. */
const VIEWS = {
  size: 'Size of the error, in tolerances',
  error: 'Error: y − expected',
  y: 'y: what the kernel wrote',
  expected: 'What was expected',
  x: 'x: what the kernel read',
} as const;
type View = keyof typeof VIEWS;
const isView = (text: string): text is View => Object.hasOwn(VIEWS, text);

/** The number of tokens that a map shows at once. */
const TOKENS = 256;
/** The scale of errors ends at least here, in powers of ten of the tolerance. */
const DECADES = 3;

const short = (value: number): string => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : `${value}`);

/** Finds the largest magnitude and its cell. A value that is not finite counts as the largest. */
function largest(values: ArrayLike<number>): { most: number; at: number } {
  let [most, at] = [0, 0];
  for (let n = 0; n < values.length; n++) {
    const size = Number.isFinite(values[n]) ? Math.abs(values[n]!) : Number.POSITIVE_INFINITY;
    if (size > most) [most, at] = [size, n];
  }
  return { most, at };
}

function valuesOf(view: View, map: HeadMap): Float64Array {
  const { x, y, expected } = map;
  if (view === 'y') return y;
  if (view === 'x') return x;
  if (view === 'expected') return expected!;
  return y.map((value, n) => value - expected![n]!);
}

/** Returns how many powers of ten each error is beyond its tolerance: 0 within it. */
const decadesOf = (ratios: Float64Array): Float64Array =>
  ratios.map((ratio) => (ratio <= 1 ? 0 : Number.isFinite(ratio) ? Math.log10(ratio) : Number.NaN));

/** The largest power of ten of a map of {@link decadesOf}, and the words at the ends of its scale. */
function scaleOf(decades: Float64Array) {
  const limit = Math.max(DECADES, Math.ceil(largest(decades.map((one) => (Number.isFinite(one) ? one : 0))).most));
  return {
    limit,
    ends: ['grey: within the tolerance', `${(10 ** limit).toLocaleString('en')} times the tolerance`] as const,
  };
}

const tokens = ({ rows }: HeadMap, start: number) => ({
  name: 'token',
  first: `${start}`,
  last: `${start + rows - 1}`,
});

function ErrorMap({ map, view, start }: { readonly map: HeadMap; readonly view: View; readonly start: number }) {
  const values = valuesOf(view, map);
  const { most, at } = largest(values);
  const decades = map.ratios && decadesOf(map.ratios);
  const place = (row: number, column: number): string =>
    `token ${start + row} (position ${map.positions[row]}), dimension ${column}`;
  const cell = (row: number, column: number): string => {
    const n = row * map.columns + column;
    const wanted = map.expected ? `, expected ${short(map.expected[n]!)}` : '';
    return `${place(row, column)}: y ${short(map.y[n]!)}${wanted}`;
  };
  const where = most > 0 ? `${cell(Math.floor(at / map.columns), at % map.columns)}` : '';
  const caption =
    view === 'size'
      ? decades!.every((one) => one === 0)
        ? `Every element of this head is ${most === 0 ? 'as expected, to the last bit' : 'within its tolerance'}.`
        : `The largest: ${where}.`
      : `Red is above 0, blue below, up to ${short(most)} in size.${
          view === 'error' && most > 0 ? ` The largest: ${where}.` : ''
        }`;
  const ends = [short(-most), short(most)] as const;
  return (
    <figure>
      <HeatMap
        values={view === 'size' ? decades! : values}
        rows={map.rows}
        columns={map.columns}
        {...(view === 'size' ? { scale: 'excess', ...scaleOf(decades!) } : { scale: 'signed', ends })}
        x={{ name: 'dimension', first: '0', last: `${map.columns - 1}` }}
        y={tokens(map, start)}
        label={`${VIEWS[view]}, token by dimension. ${caption}`}
        wordsOf={(row, column) => cell(row, column)}
      />
      <figcaption>
        {caption}
        {view === 'size' && ' The tolerance is that of angles in f32 and one rounding to the dtype of y.'}
      </figcaption>
    </figure>
  );
}

function TurnMap({ map, pairs, start }: { readonly map: HeadMap; readonly pairs: number; readonly start: number }) {
  const { most, at } = largest(map.turn!.map((angle) => (Number.isFinite(angle) ? angle : 0)));
  const cell = (row: number, column: number, angle: number): string =>
    `token ${start + row} (position ${map.positions[row]}), pair ${column}: ${
      Number.isFinite(angle)
        ? `${short(Math.abs(angle))} radians (${short(Math.abs(angle * 180) / Math.PI)}°) too far ${angle < 0 ? 'back' : 'forward'}`
        : 'has no length'
    }`;
  const caption =
    most === 0
      ? 'No pair is turned too far.'
      : `Red pairs are turned too far forward, blue ones too far back. The farthest: ${cell(
          Math.floor(at / pairs),
          at % pairs,
          map.turn![at]!,
        )}.`;
  return (
    <figure>
      <HeatMap
        values={map.turn!}
        rows={map.rows}
        columns={pairs}
        scale="signed"
        limit={Math.PI}
        x={{ name: 'pair', first: '0', last: `${pairs - 1}` }}
        y={tokens(map, start)}
        ends={['half a turn back', 'half a turn forward']}
        label={`How far each pair is turned beyond what is expected, token by pair. ${caption}`}
        wordsOf={cell}
      />
      <figcaption>{caption}</figcaption>
    </figure>
  );
}

/** A choice of a number: a list if there are few numbers, otherwise a field. */
function Index(props: {
  readonly label: string;
  readonly count: number;
  readonly value: number;
  readonly onChange: (value: number) => void;
}) {
  const { label, count, value, onChange } = props;
  if (count === 1) return null;
  return (
    <label class="field">
      <span>
        {label}, 0 to {count - 1}
      </span>
      <input
        type="number"
        min={0}
        max={count - 1}
        value={value}
        onInput={(event) => {
          const next = event.currentTarget.valueAsNumber;
          if (Number.isInteger(next) && next >= 0 && next < count) onChange(next);
        }}
      />
    </label>
  );
}

/** The pictures of the last diagnosis of a worker. */
export function Maps({ worker, report }: { readonly worker: Helper<Kernel>; readonly report: Report }) {
  const { batch: batches, heads, seq, worst, against, pairs } = report;
  const [batch, setBatch] = useAddressNumber('batch', worst?.batch ?? 0, { min: 0, max: batches - 1 });
  const [head, setHead] = useAddressNumber('head', worst?.head ?? 0, { min: 0, max: heads - 1 });
  const [from, setFrom] = useAddressNumber('token', 0, { min: 0, max: seq - 1 });
  const [chosen, setView] = useAddress('view', 'size', isView);
  const [shown, setShown] = useState<{ map: HeadMap; overview: Float64Array | undefined; start: number }>();
  const start = Math.min(from, Math.max(0, seq - 1));
  useEffect(() => {
    let gone = false;
    worker
      .call(async (kernel) => {
        const [map, overview] = await Promise.all([
          kernel.head(batch, head, start, TOKENS),
          kernel.overview(batch, start, TOKENS),
        ]);
        if (map && !gone) setShown({ map, overview, start });
      })
      .catch(() => undefined); // the page says that the worker stopped
    return () => {
      gone = true;
    };
  }, [worker, report, batch, head, start]);
  if (!shown) return null;
  const { map, overview } = shown;
  const view = map.expected ? chosen : ['y', 'x'].includes(chosen) ? chosen : 'y';
  const errors = overview && decadesOf(overview);
  return (
    <section aria-labelledby="diagnose-maps">
      <h2 id="diagnose-maps">Head by head</h2>
      {against === 'found' && <p class="muted">y is compared with the rotation that was found in it.</p>}
      {against === undefined && <p class="muted">There is no rotation to compare y with: only x and y are shown.</p>}
      <div class="fields">
        <Index label="Batch" count={batches} value={batch} onChange={setBatch} />
        <Index label="Head" count={heads} value={head} onChange={setHead} />
        {seq > TOKENS && <Index label="First token" count={seq} value={from} onChange={setFrom} />}
        <Choice
          label="Show"
          value={view}
          of={(Object.keys(VIEWS) as View[])
            .filter((name) => map.expected || name === 'y' || name === 'x')
            .map((name) => [name, VIEWS[name]] as const)}
          onChange={setView}
        />
      </div>
      {overview && heads > 1 && (
        <figure class="diagnose-overview">
          <h3>All heads</h3>
          <HeatMap
            values={errors!}
            rows={heads}
            columns={overview.length / heads}
            scale="excess"
            {...scaleOf(errors!)}
            x={{ name: 'token', first: `${shown.start}`, last: `${shown.start + overview.length / heads - 1}` }}
            y={{ name: 'head', first: '0', last: `${heads - 1}` }}
            label={`Error of each head and token of batch ${batch}. The fields above choose the head.`}
            wordsOf={(row, column) =>
              `head ${row}, token ${shown.start + column}: its largest error is ${short(overview[row * (overview.length / heads) + column]!)} times the tolerance`
            }
            onCell={setHead}
          />
          <figcaption>The largest error of each head and token. Click a head to see it.</figcaption>
        </figure>
      )}
      <div class="diagnose-maps">
        <div>
          <h3>
            Head {head}: {VIEWS[view].replace(/:.*/, '').toLowerCase()}
          </h3>
          <ErrorMap map={map} view={view} start={shown.start} />
        </div>
        {map.turn && pairs > 0 && (
          <div>
            <h3>Head {head}: the direction of the error</h3>
            <TurnMap map={map} pairs={pairs} start={shown.start} />
          </div>
        )}
      </div>
    </section>
  );
}
