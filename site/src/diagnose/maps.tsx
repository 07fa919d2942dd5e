/** Draws the heads of a diagnosis: the place and size of the error, and the turns of the pairs. @module */
import { useEffect, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { HeatMap } from '../shared/heat-map.js';
import type { Helper } from '../shared/worker.js';
import type { HeadMap, Kernel, Report } from './diagnose.worker.js';

/** The views of a map. Those after `size` need no expectation. */
const VIEWS = {
  size: 'Size of the error, in powers of ten',
  error: 'Error: y − expected',
  y: 'y: what the kernel wrote',
  expected: 'What was expected',
  x: 'x: what the kernel read',
} as const;
type View = keyof typeof VIEWS;
const isView = (text: string): text is View => Object.hasOwn(VIEWS, text);

/** The number of tokens that a map shows at once. */
const TOKENS = 256;
/** Errors that are this many powers of ten below the largest value are not drawn. */
const DECADES = 9;

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

/** Returns each error in powers of ten above the smallest error that is drawn. */
function decadesOf(error: Float64Array, unit: number): Float64Array {
  return error.map((value) => (value === 0 ? 0 : Math.max(0, DECADES + Math.log10(Math.abs(value) / unit))));
}

function ErrorMap({ map, view, start }: { readonly map: HeadMap; readonly view: View; readonly start: number }) {
  const values = valuesOf(view, map);
  const { most, at } = largest(values);
  const unit = largest(map.expected ?? map.y).most || 1;
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
      ? most === 0
        ? 'Every element of this head is as expected, to the last bit.'
        : `Bright is an error as large as the values, dark one a billion times smaller. The largest: ${where}.`
      : `Red is above 0, blue below, up to ${short(most)} in size.${
          view === 'error' && most > 0 ? ` The largest: ${where}.` : ''
        }`;
  return (
    <figure>
      <HeatMap
        values={view === 'size' ? decadesOf(values, unit) : values}
        rows={map.rows}
        columns={map.columns}
        scale={view === 'size' ? 'magnitude' : 'signed'}
        {...(view === 'size' && { limit: DECADES })}
        label={`${VIEWS[view]}, token by dimension. ${caption}`}
        wordsOf={(row, column) => cell(row, column)}
      />
      <figcaption>Tokens from top to bottom, dimensions from left to right. {caption}</figcaption>
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
      : `Red pairs are turned too far forward, blue ones too far back, up to half a turn. The farthest: ${cell(
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
        label={`How far each pair is turned beyond what is expected, token by pair. ${caption}`}
        wordsOf={cell}
      />
      <figcaption>Tokens from top to bottom, pairs from left to right. {caption}</figcaption>
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
  const errors = overview && largest(overview).most;
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
            values={overview}
            rows={heads}
            columns={overview.length / heads}
            scale="magnitude"
            label={`Error of each head and token of batch ${batch}. The fields above choose the head.`}
            wordsOf={(row, column, value) =>
              `head ${row}, token ${shown.start + column}: root mean square error ${short(value)}`
            }
            onCell={setHead}
          />
          <figcaption>
            Heads from top to bottom, tokens from left to right: the error of each, up to {short(errors!)}. Click a head
            to see it.
          </figcaption>
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
