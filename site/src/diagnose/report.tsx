/** Shows a diagnosis in words, with its bugs, frequencies and files. @module */
import type { DiagnosisReport } from '@ropewalk/diagnose/internal';
import { useMemo } from 'preact/hooks';
import { Chart, type Series } from '../shared/chart.js';
import { CopyButton, download } from '../shared/copy.js';
import { Threads } from '../shared/thread.js';
import { BASE } from '../shell/base.js';
import type { BugWords, Report } from './diagnose.worker.js';

/** The title and the color of each verdict. */
const VERDICTS: Readonly<Record<Report['verdict'], readonly [words: string, kind: 'good' | 'warn' | 'bad']>> = {
  'as expected': ['As expected', 'good'],
  'less precise': ['As expected, less precisely', 'good'],
  rotation: ['A rotation', 'good'],
  'known bug': ['Known bug', 'bad'],
  'partly right': ['Partly right', 'warn'],
  different: ['Different', 'bad'],
  'not understood': ['Not understood', 'warn'],
};

function Words({ title, lines }: DiagnosisReport['sections'][number]) {
  return (
    <section class="card">
      <h3>{title}</h3>
      {lines.every(({ key }) => key !== undefined) ? (
        <dl class="diagnose-facts">
          {lines.map(({ key, text }) => (
            <div key={key}>
              <dt>{key}</dt>
              <dd>{text}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <ul class="diagnose-lines">
          {lines.map(({ text, deeper }) => (
            <li key={text} class={deeper ? 'deeper' : ''}>
              {text}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

/** The effect of a known bug, and the threads that report it. */
function Bug({ bug, title }: { readonly bug: BugWords; readonly title: boolean }) {
  return (
    <div class="diagnose-bug">
      {title && (
        <h3>
          <code>{bug.id}</code>
        </h3>
      )}
      <p>{bug.does}</p>
      <p class="muted">
        Cause {bug.cause}. Reported in <Threads threads={bug.threads} />.{' '}
        <a href={`${BASE}museum/${bug.id}/`}>All about {bug.id}</a>
      </p>
    </div>
  );
}

function Frequencies({ frequencies: { found, expected } }: Pick<Report, 'frequencies'>) {
  const count = Math.max(found.length, expected?.length ?? 0);
  const x = useMemo(() => Array.from({ length: count }, (_, j) => j), [count]);
  const series = useMemo((): Series[] => {
    const full = (list: readonly (number | null)[]): (number | null)[] => x.map((j) => list[j] ?? null);
    return [
      { label: 'found', values: full(found), as: 'points' },
      ...(expected ? [{ label: 'expected', values: full(expected) }] : []),
    ];
  }, [x, found, expected]);
  if (found.length === 0) return null;
  const known = found.filter((value) => value !== null).length;
  return (
    <section aria-labelledby="diagnose-frequencies">
      <h2 id="diagnose-frequencies">Frequency by pair</h2>
      <figure class="card">
        <Chart
          x={x}
          series={series}
          logY
          xLabel="pair"
          yLabel="radians a position"
          label={`Frequency by pair, found${expected ? ' and expected' : ''}.`}
        />
        <figcaption>
          {known === found.length
            ? 'Every pair shows its frequency.'
            : `${known} of ${found.length} pairs show their frequency; the others turn too little to measure, or not at all.`}
        </figcaption>
      </figure>
    </section>
  );
}

/** The whole diagnosis without its pictures. */
export function ReportView({ report }: { readonly report: Report }) {
  const { told, text, json, bugs, example, from, next, verdict, unsettled, rightWith } = report;
  const { head, remarks, sections } = told;
  const [word, kind] = VERDICTS[verdict];
  // A kernel that is only less precise has no bug to name.
  const named = verdict === 'known bug' || verdict === 'partly right' ? bugs : [];
  const only = verdict === 'known bug' && named.length === 1 ? named[0] : undefined;
  return (
    <>
      <section class={`diagnose-verdict ${unsettled ? 'warn' : kind}`} aria-labelledby="diagnose-head">
        <p class="diagnose-word">{word}</p>
        <h2 id="diagnose-head">{only ? only.map(({ id }) => id).join(' and ') : head}</h2>
        {rightWith && (
          <p>
            <strong>Other options:</strong> y is right with {rightWith}. The report is on the fields as given.
          </p>
        )}
        {verdict === 'known bug' && named.length > 1 && (
          <p>Each of these gives the same y. This input cannot tell them apart.</p>
        )}
        {named.map((together) => together.map((bug) => <Bug key={bug.id} bug={bug} title={only?.length !== 1} />))}
        {remarks.map((line) => (
          <p key={line}>{line}</p>
        ))}
        {from !== undefined && !example && <p class="muted">Expected: {from}.</p>}
        {example && (
          <p>
            This input is an example:{' '}
            {example.bug && (
              <>
                <code>{example.bug.id}</code> ran on it.{' '}
              </>
            )}
            {example.about}
          </p>
        )}
        <div class="actions">
          <CopyButton text={text} label="Copy the report" />
          <button type="button" onClick={() => download('diagnosis.txt', text, 'text/plain')}>
            Save as text
          </button>
          <button type="button" onClick={() => download('diagnosis.json', json, 'application/json')}>
            Save as JSON
          </button>
          {next && (
            <button
              type="button"
              onClick={() => download('next-input.npz', next as BlobPart, 'application/octet-stream')}
            >
              Save the next input
            </button>
          )}
        </div>
      </section>
      <div class="diagnose-sections">
        {sections
          .filter(({ title }) => !/^Known bugs?$/.test(title))
          .map((section) => (
            <Words key={section.title} {...section} />
          ))}
      </div>
      <Frequencies frequencies={report.frequencies} />
    </>
  );
}
