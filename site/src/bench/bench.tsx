/** The page Bench times the operators in this browser beside a copy of the same bytes. @module */
import './bench.css';
import { proxy } from 'comlink';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { download } from '../shared/copy.js';
import { Drop } from '../shared/drop.js';
import { Failure, wordsOf } from '../shared/failure.js';
import { type Helper, helper } from '../shared/worker.js';
import { draw } from '../shell/draw.js';
import type { BackendName, Bench as Benchmark, Size, Timed, Told } from './bench.worker.js';
import { Roofline } from './roofline.js';

const BACKENDS: Readonly<Record<BackendName, string>> = {
  cpu: 'cpu: WebAssembly',
  webgpu: 'webgpu: the GPU',
  webnn: 'webnn: as the browser chooses',
};
const SIZES: Readonly<Record<Size, string>> = {
  small: 'small: also for phones and GPUs in software',
  full: 'full: sizes of a model of 7 B parameters, about 400 MB',
};
const isBackend = (text: string): text is BackendName => text in BACKENDS;
const isSize = (text: string): text is Size => text in SIZES;

/** The saved form of the results of one run. */
interface Saved {
  readonly ropewalkBench: 1;
  readonly when: string;
  readonly browser: string;
  readonly backend: BackendName;
  readonly size: Size;
  readonly description: string;
  readonly threads: number;
  readonly isolated: boolean;
  readonly results: readonly Timed[];
  readonly leftOut: readonly { readonly label: string; readonly why: string }[];
}

/** Reads saved results. @throws Error when the file is not one of them */
function readSaved(text: string): Saved {
  let value: Partial<Saved> | null = null;
  try {
    value = JSON.parse(text);
  } catch {
    // the error below covers it
  }
  const rows = value?.results;
  const good = (row: Timed): boolean =>
    typeof row?.label === 'string' && Number.isFinite(row.ours?.medianNs) && Number.isFinite(row.copy?.medianNs);
  if (value?.ropewalkBench !== 1 || !Array.isArray(rows) || !rows.every(good))
    throw new Error('This file has no results of this page. Drop one that its button "Save the results" wrote.');
  return value as Saved;
}

const KEPT = 'bench';
function kept(): Saved | undefined {
  try {
    return readSaved(localStorage.getItem(KEPT) ?? '');
  } catch {
    return undefined; // nothing is saved, or the browser stores nothing for this page
  }
}

function time(measured: number): string {
  const ns = Number(measured.toPrecision(3)); // 999.8 ns are 1.00 µs
  if (ns < 1e3) return `${ns.toPrecision(3)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  return `${(ns / 1e6).toPrecision(3)} ms`;
}
/** Returns the case's bytes per second divided by the copy's. */
const share = ({ ours, copy }: Timed): number => copy.medianNs / ours.medianNs;

function Results({ saved, other }: { readonly saved: Saved; readonly other: Saved | undefined }) {
  const { results, leftOut } = saved;
  const widest = Math.max(1.05, ...results.map(share));
  return (
    <>
      <h2>Beside a copy of the same bytes</h2>
      <ul class="bench-bars">
        {results.map((timed) => (
          <li key={timed.label}>
            <span>{timed.label}</span>
            <div class="bench-track">
              <i style={{ width: `${(100 * share(timed)) / widest}%` }} />
              <b style={{ left: `${100 / widest}%` }} />
            </div>
            <span>
              {share(timed).toFixed(2)} of the copy's rate, {time(timed.ours.medianNs)}
            </span>
          </li>
        ))}
      </ul>
      <p class="muted">
        The dashed line is the copy. Operators that compute much for each byte stay below it; those that stay in a cache
        where the copy does not can be above it.
      </p>
      {leftOut.map(({ label, why }) => (
        <p class="notice warn" key={label}>
          {label} did not run: {why}
        </p>
      ))}
      {results.length > 1 && (
        <>
          <h2>Roofline</h2>
          <figure>
            <Roofline results={results} />
            <figcaption>
              The slope is the fastest copy of this run; the level is the fastest case, as browsers do not say what the
              device could do. Numbers are the rows of the table.
            </figcaption>
          </figure>
        </>
      )}
      <h2>Figures</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys. */}
      <section class="scroll" tabIndex={0} aria-label="Figures">
        <table>
          <caption>Medians of 7 samples of 20 ms or more, in turns with the copy; quartiles in brackets.</caption>
          <thead>
            <tr>
              <th scope="col">Case</th>
              <th scope="col" class="number">
                One call
              </th>
              <th scope="col" class="number">
                GB/s
              </th>
              <th scope="col" class="number">
                GFLOP/s
              </th>
              <th scope="col" class="number">
                Of the copy
              </th>
              {other && (
                <th scope="col" class="number">
                  Of the copy, kept
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            {results.map((timed, i) => {
              const { label, bytes, flops, ours } = timed;
              const before = other?.results.find((one) => one.label === label);
              return (
                <tr key={label}>
                  <th scope="row">
                    {i + 1}. {label}
                  </th>
                  <td class="number">
                    {time(ours.medianNs)} ({time(ours.q1Ns)} – {time(ours.q3Ns)})
                  </td>
                  <td class="number">{(bytes / ours.medianNs).toPrecision(3)}</td>
                  <td class="number">{(flops / ours.medianNs).toPrecision(3)}</td>
                  <td class="number">{share(timed).toFixed(2)}</td>
                  {other && <td class="number">{before ? share(before).toFixed(2) : '–'}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </section>
    </>
  );
}

const about = ({ when, backend, description, threads, browser }: Saved): string =>
  `${when.slice(0, 16).replace('T', ' ')}, ${backend} (${description}, ${threads} threads), ${browser}`;

function Bench() {
  const [backend, setBackend] = useAddress('backend', 'cpu', isBackend);
  const [size, setSize] = useAddress('size', 'small', isSize);
  const [saved, setSaved] = useState<Saved>();
  const [other, setOther] = useState<Saved | undefined>(kept);
  const [count, setCount] = useState(0);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const worker = useRef<Helper<Benchmark> | undefined>(undefined);
  useEffect(() => () => worker.current?.end(), []);

  async function run(): Promise<void> {
    setError(undefined);
    setBusy(true);
    setCount(0);
    const started: Saved = {
      ropewalkBench: 1,
      when: new Date().toISOString(),
      browser: navigator.userAgent,
      backend,
      size,
      description: '',
      threads: 0,
      isolated: crossOriginIsolated,
      results: [],
      leftOut: [],
    };
    setSaved(undefined);
    const own = helper<Benchmark>('bench');
    worker.current = own;
    const tell = (told: Told): void => {
      if (told.kind === 'opened') {
        setCount(told.cases);
        setSaved({ ...started, description: told.description, threads: told.threads });
      } else if (told.kind === 'timed') setSaved((now) => now && { ...now, results: [...now.results, told.timed] });
      else setSaved((now) => now && { ...now, leftOut: [...now.leftOut, { label: told.label, why: told.why }] });
    };
    try {
      const why = await own.call((bench) => bench.whyNot(backend));
      if (why !== undefined) throw new Error(`${backend} is not there: ${why}`);
      await own.call((bench) => bench.run(backend, size, proxy(tell)));
    } catch (failure) {
      setError(failure);
    } finally {
      own.end();
      setBusy(false);
    }
  }
  const done = saved ? saved.results.length + saved.leftOut.length : 0;
  return (
    <>
      <div class="fields">
        <Choice label="Backend" value={backend} of={BACKENDS} disabled={busy} onChange={setBackend} />
        <Choice label="Size" value={size} of={SIZES} disabled={busy} onChange={setSize} />
      </div>
      <div class="actions">
        <button type="button" class="primary" disabled={busy} onClick={() => void run()}>
          Run
        </button>
        <button type="button" disabled={!busy} onClick={() => worker.current?.end()}>
          Stop
        </button>
      </div>
      <p class="muted">
        {globalThis.crossOriginIsolated
          ? 'This page is isolated from others: threads are there, and its clock has steps of 5 µs or less.'
          : 'This page is not isolated from others: cpu has one thread, and its clock has steps of up to 1 ms. Load it once more: its service worker then isolates it.'}{' '}
        Other tabs and a hot device change the figures; compare only ratios of one run.
      </p>
      <Failure error={error} />
      {busy && <progress max={Math.max(count, 1)} value={done} aria-label="Cases that were timed" />}
      <p role="status" class="visually-hidden">
        {saved && !busy && `${saved.results.length} cases were timed`}
      </p>
      {saved && (
        <p>
          <strong>{saved.backend}</strong>: {saved.description}
        </p>
      )}
      {saved && saved.results.length > 0 && <Results saved={saved} other={other} />}
      {saved && !busy && saved.results.length > 0 && (
        <div class="actions">
          <button
            type="button"
            onClick={() =>
              download(
                `ropewalk-bench-${saved.backend}.json`,
                `${JSON.stringify(saved, null, 1)}\n`,
                'application/json',
              )
            }
          >
            Save the results
          </button>
          <button
            type="button"
            onClick={() => {
              setOther(saved);
              try {
                localStorage.setItem(KEPT, JSON.stringify(saved));
              } catch (failure) {
                setError(new Error(`The browser does not keep the results: ${wordsOf(failure)} Save them as a file.`));
              }
            }}
          >
            Keep them to compare with
          </button>
        </div>
      )}
      <h2>Compare with</h2>
      {other ? <p>Kept: {about(other)}</p> : <p class="muted">Nothing is kept yet.</p>}
      <Drop
        label="results that this page saved"
        accept=".json"
        multiple={false}
        onFiles={([file]) =>
          void file!
            .text()
            .then((text) => {
              setOther(readSaved(text));
              setError(undefined);
            })
            .catch(setError)
        }
        onError={setError}
      />
    </>
  );
}

export default draw(<Bench />);
