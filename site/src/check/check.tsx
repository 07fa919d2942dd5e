/** The page Check runs every suite on the backends of this browser and shows a table. @module */
import './check.css';
import { proxy } from 'comlink';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Code, CopyButton, download } from '../shared/copy.js';
import { wordsOf } from '../shared/failure.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import {
  type Cell,
  cellsOf,
  commandOf,
  detailOf,
  REFUSALS,
  type Run,
  rowOf,
  toJson,
  toJunit,
  toReport,
} from './results.js';
import type { BackendName, Suites, Told } from './suites.worker.js';

const BACKENDS: Readonly<Record<BackendName, string>> = {
  cpu: 'cpu: WebAssembly SIMD, with threads where the page may have them',
  webgpu: 'webgpu: the GPU',
  webnn: 'webnn: the NPU, GPU or CPU, as the browser chooses',
  reference: 'reference: float64 in JavaScript, exact and slow',
};
const NAMES = Object.keys(BACKENDS) as BackendName[];
/** The number of cases that a list shows at once. */
const SHOWN = 100;

const open = (): Helper<Suites> => helper<Suites>('check');

const isChoice = (text: string): text is string => text.split(' ').every((name) => name in BACKENDS);

/** The name and the color of each state. */
const STATES = {
  waiting: ['waiting', ''],
  running: ['running', 'warn'],
  done: ['done', 'good'],
  stopped: ['stopped', 'bad'],
  absent: ['not there', ''],
} as const;

function RunCard({ name, run }: { readonly name: BackendName; readonly run: Run }) {
  const { state, description, total, results, why, seconds, notTaken = [] } = run;
  const count = (status: string): number => results.filter(({ verdict }) => verdict.status === status).length;
  const failed = count('fail');
  const [word, kind] = state === 'done' && failed > 0 ? (['failures', 'bad'] as const) : STATES[state];
  return (
    <section class="card">
      <h2 class="check-run-name">
        {name} <span class={`tag ${kind}`}>{word}</span>
      </h2>
      {why !== undefined && <p>{wordsOf(why)}</p>}
      {description && <p class="muted">{description}</p>}
      {notTaken.length > 0 && (
        <details>
          <summary>Not used</summary>
          <ul>
            {notTaken.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </details>
      )}
      {state !== 'absent' && state !== 'waiting' && (
        <>
          <progress max={Math.max(total, 1)} value={results.length} aria-label={`Cases that ran on ${name}`} />
          <p>
            {results.length} of {total}: {count('ok')} right, {failed} wrong, {count('not_supported')} not supported
            {seconds !== undefined && `, in ${seconds.toFixed(1)} s`}
          </p>
        </>
      )}
    </section>
  );
}

function CellButton(props: {
  readonly cell: Cell | undefined;
  readonly label: string;
  readonly chosen: boolean;
  readonly onClick: () => void;
}) {
  const { cell, label, chosen, onClick } = props;
  if (cell === undefined) return <span class="muted">–</span>;
  const { ok, fail, notSupported } = cell;
  const kind = fail > 0 ? 'bad' : ok > 0 ? 'good' : 'none';
  const words = fail > 0 ? `${fail} wrong of ${ok + fail}` : ok > 0 ? `${ok} right` : 'not supported';
  const rest = notSupported > 0 && ok + fail > 0 ? `, ${notSupported} not supported` : '';
  return (
    <button
      type="button"
      class={`check-cell ${kind}`}
      aria-pressed={chosen}
      aria-label={`${label}: ${words}${rest}`}
      onClick={onClick}
    >
      {words}
      {rest}
    </button>
  );
}

function Cases({ name, row, run }: { readonly name: BackendName; readonly row: string; readonly run: Run }) {
  const [all, setAll] = useState(false);
  const of = run.results.filter((one) => rowOf(one) === row);
  const failed = of.filter(({ verdict }) => verdict.status === 'fail');
  const shown = all || failed.length === 0 ? of : failed;
  return (
    <section aria-labelledby="check-cases">
      <h2 id="check-cases">
        {row} on {name}
      </h2>
      {failed.length > 0 && (
        <label class="check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} />
          Also those that are right
        </label>
      )}
      <ul class="check-cases">
        {shown.slice(0, SHOWN).map((one) => (
          <li key={one.label}>
            <span class={`tag ${{ ok: 'good', fail: 'bad', not_supported: '' }[one.verdict.status]}`}>
              {{ ok: 'right', fail: 'wrong', not_supported: 'not supported' }[one.verdict.status]}
            </span>{' '}
            <code>{one.label}</code>
            <p>{detailOf(one)}</p>
            {one.verdict.status === 'fail' && (
              <Code text={commandOf(name, one.label)} label="The command that runs it" />
            )}
          </li>
        ))}
      </ul>
      {shown.length > SHOWN && <p class="muted">and {shown.length - SHOWN} more; the download has all.</p>}
    </section>
  );
}

function Check() {
  const [chosen, setChosen] = useAddress('backends', 'cpu webgpu webnn', isChoice);
  const [filter, setFilter] = useAddress('filter', '');
  const [cell, setCell] = useAddress('cell', '');
  const [runs, setRuns] = useState<ReadonlyMap<BackendName, Run>>(new Map());
  const [state, setState] = useState<'idle' | 'running' | 'paused'>('idle');
  const running = useRef<Helper<Suites> | undefined>(undefined);
  const stopped = useRef(false);
  const names = chosen.split(' ') as BackendName[];
  const change = (name: BackendName, with_: Partial<Run>): void =>
    setRuns((now) => new Map(now).set(name, { state: 'waiting', total: 0, results: [], ...now.get(name), ...with_ }));

  async function runOne(name: BackendName): Promise<void> {
    const worker = open();
    running.current = worker;
    const start = performance.now();
    const tell = (told: Told): void =>
      setRuns((now) => {
        const run = now.get(name)!;
        const { kind, ...rest } = told;
        const next = 'results' in rest ? { results: [...run.results, ...rest.results] } : rest;
        return new Map(now).set(name, { ...run, ...next });
      });
    try {
      const why = await worker.call((suites) => suites.whyNot(name));
      if (why !== undefined) return change(name, { state: 'absent', why });
      change(name, { state: 'running' });
      await worker.call((suites) => suites.run({ base: BASE, backend: name, filter }, proxy(tell)));
      change(name, { state: 'done', seconds: (performance.now() - start) / 1000 });
    } catch (why) {
      change(name, { state: 'stopped', why });
    } finally {
      worker.end();
    }
  }

  async function run(): Promise<void> {
    stopped.current = false;
    setCell('');
    setState('running');
    setRuns(new Map(names.map((name) => [name, { state: 'waiting', total: 0, results: [] }])));
    // The backends run one after the other, so that they do not slow each other down.
    for (const name of names) if (!stopped.current) await runOne(name);
    setState('idle');
  }
  const stop = (): void => {
    stopped.current = true;
    running.current?.end();
  };
  const pause = async (on: boolean): Promise<void> => {
    setState(on ? 'paused' : 'running');
    await running.current?.call((suites) => suites.pause(on));
  };
  useEffect(() => stop, []);

  const cells = useMemo(() => new Map([...runs].map(([name, { results }]) => [name, cellsOf(results)])), [runs]);
  const rows = useMemo(
    () =>
      [...new Set([...cells.values()].flatMap((of) => [...of.keys()]))].sort(
        // Calls that must be refused come last.
        (a, b) => Number(a === REFUSALS) - Number(b === REFUSALS) || (a < b ? -1 : 1),
      ),
    [cells],
  );
  const columns = [...runs.keys()].filter((name) => runs.get(name)!.state !== 'absent');
  const [cellName, ...cellRow] = cell.split('/');
  const cellRun = runs.get(cellName as BackendName);
  const results = [...runs.values()].flatMap((one) => one.results);
  const failed = results.filter(({ verdict }) => verdict.status === 'fail').length;
  return (
    <>
      <div class="fields">
        <fieldset class="check-backends">
          <legend>Backends</legend>
          {NAMES.map((name) => (
            <label class="check" key={name}>
              <input
                type="checkbox"
                checked={names.includes(name)}
                disabled={state !== 'idle'}
                onChange={(event) => {
                  const on = event.currentTarget.checked;
                  const next = NAMES.filter((one) => (one === name ? on : names.includes(one)));
                  if (next.length > 0) setChosen(next.join(' '));
                  else event.currentTarget.checked = true; // at least one backend stays chosen
                }}
              />
              {BACKENDS[name]}
            </label>
          ))}
        </fieldset>
        <label class="field">
          <span>Only the suite of this name, or cases whose line has this text</span>
          <input
            type="search"
            value={filter}
            placeholder="such as ggml, bf16 or mode=2"
            disabled={state !== 'idle'}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="actions">
        <button type="button" class="primary" disabled={state !== 'idle'} onClick={() => void run()}>
          Run
        </button>
        <button type="button" disabled={state === 'idle'} onClick={() => void pause(state === 'running')}>
          {state === 'paused' ? 'Go on' : 'Pause'}
        </button>
        <button type="button" disabled={state === 'idle'} onClick={stop}>
          Stop
        </button>
      </div>
      <p role="status" class={results.length === 0 ? 'visually-hidden' : 'notice'}>
        {state === 'idle' && results.length > 0 && `${results.length} cases ran, ${failed} are wrong.`}
        {state !== 'idle' && `${results.length} cases so far, ${failed} are wrong.`}
      </p>
      {runs.size > 0 && (
        <div class="check-runs">
          {[...runs].map(([name, one]) => (
            <RunCard key={name} name={name} run={one} />
          ))}
        </div>
      )}
      {rows.length > 0 && (
        <>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys. */}
          <section class="scroll" tabIndex={0} aria-label="Results">
            <table class="check-table">
              <caption>Operator and dtype by backend. Choose a cell to see its cases.</caption>
              <thead>
                <tr>
                  <th scope="col">Operator, dtype</th>
                  {columns.map((name) => (
                    <th scope="col" key={name}>
                      {name}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {rows.map((row) => (
                  <tr key={row}>
                    <th scope="row">{row}</th>
                    {columns.map((name) => (
                      <td key={name}>
                        <CellButton
                          cell={cells.get(name)?.get(row)}
                          label={`${row} on ${name}`}
                          chosen={cell === `${name}/${row}`}
                          onClick={() => setCell(cell === `${name}/${row}` ? '' : `${name}/${row}`)}
                        />
                      </td>
                    ))}
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
          {cellRun && <Cases name={cellName as BackendName} row={cellRow.join('/')} run={cellRun} />}
          <h2>Keep or send the results</h2>
          <div class="actions">
            <button
              type="button"
              onClick={() => download('ropewalk-check.jsonl', toJson(runs), 'application/x-ndjson')}
            >
              Save as JSON lines
            </button>
            {columns.map((name) => (
              <button
                key={name}
                type="button"
                onClick={() => download(`ropewalk-${name}.xml`, toJunit(name, runs.get(name)!), 'application/xml')}
              >
                Save {name} as JUnit
              </button>
            ))}
            <CopyButton text={toReport(runs)} label="Copy a report for a bug" />
          </div>
        </>
      )}
    </>
  );
}

export default draw(<Check />);
