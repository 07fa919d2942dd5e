/** The museum of wrong kernels shows the effect of each known bug on a head, and the threads that report it. @module */
import '../shell/shell.js';
import './museum.css';
import { render } from 'preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { scrollToHash, useAddress } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { useTheme } from '../shared/colors.js';
import { Failure } from '../shared/failure.js';
import { drawHeat } from '../shared/heat-map.js';
import { Threads } from '../shared/thread.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import type { Exhibit, MuseumWorker, Picture } from './museum.worker.js';

/** This is the same value as in the worker. An import would run the worker's code here. */
const DECADES = 3;

/** The names of the steps of a rotation. */
const STEPS: Readonly<Record<string, readonly string[]>> = {
  'pairs and window': ['readIndex', 'writeIndex', 'pairs', 'rotaryDim', 'rotaryOffset'],
  frequencies: ['frequencies'],
  'angles, cos and sin': ['angle', 'cosSin'],
  magnitude: ['magnitude'],
  positions: ['position', 'axisOfPair'],
  'the turn of a pair': ['turn', 'sign'],
  'other dimensions': ['beside'],
  norm: ['normalize'],
  'whole heads': ['rotate', 'head', 'all'],
};
/** The entry of a list that selects everything. */
const ALL = ['', 'all'] as const;

const short = (value: number): string => (Number.isFinite(value) ? String(Number(value.toPrecision(2))) : 'infinity');
const percent = (share: number): string => {
  if (share === 0) return 'no element is off by 1 % or more';
  return `${share < 0.01 ? 'less than 1' : Math.round(100 * share)} % of y is off by 1 % or more`;
};

/** The picture of a bug. It is computed when it comes near the window. */
function Frame({ worker, id }: { readonly worker: Helper<MuseumWorker>; readonly id: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [near, setNear] = useState(false);
  const [picture, setPicture] = useState<Picture>();
  const [failure, setFailure] = useState<unknown>();
  const theme = useTheme();
  useEffect(() => {
    const watch = new IntersectionObserver(([entry]) => entry!.isIntersecting && setNear(true), {
      rootMargin: '400px',
    });
    watch.observe(canvas.current!);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (near && !picture)
      worker
        .call((museum) => museum.picture(id))
        .then(setPicture)
        .catch(setFailure);
  }, [near, picture, worker, id]);
  useEffect(() => {
    if (picture) drawHeat(canvas.current!, { ...picture, scale: 'magnitude', limit: DECADES });
  }, [picture, theme]);
  return (
    <figure class="museum-frame">
      <canvas
        ref={canvas}
        class={picture ? '' : 'waiting'}
        width={picture?.columns ?? 128}
        height={picture?.rows ?? 16}
        role="img"
        aria-label={`The error that ${id} makes in one head, token by dimension`}
      />
      <figcaption title={picture?.about}>
        {failure !== undefined ? (
          <Failure error={failure} />
        ) : picture ? (
          `${picture.model}: ${percent(picture.share)}; error up to ${short(picture.most)}`
        ) : (
          'running …'
        )}
      </figcaption>
    </figure>
  );
}

function Card({ worker, exhibit }: { readonly worker: Helper<MuseumWorker>; readonly exhibit: Exhibit }) {
  const { id, does, threads, needs } = exhibit;
  return (
    <li class="card museum-card" id={id}>
      <Frame worker={worker} id={id} />
      <h3>
        <code>{id}</code>
      </h3>
      <p>{does}</p>
      <p class="muted">
        {needs !== undefined && `Needs ${needs}. `}
        <Threads threads={threads} />
      </p>
      <p class="museum-go">
        <a class="button" href={`${BASE}diagnose/?bug=${id}`}>
          Diagnose<span class="visually-hidden"> {id}</span>
        </a>
      </p>
    </li>
  );
}

function Museum() {
  const [text, setText] = useAddress('q', '');
  const [peer, setPeer] = useAddress('peer', '');
  const [cause, setCause] = useAddress('cause', '');
  const [step, setStep] = useAddress('step', '');
  const [exhibits, setExhibits] = useState<readonly Exhibit[]>([]);
  const [worker, setWorker] = useState<Helper<MuseumWorker>>();
  const [failure, setFailure] = useState<unknown>();
  useEffect(() => {
    const opened = helper<MuseumWorker>(new Worker(new URL('./museum.worker.ts', import.meta.url), { type: 'module' }));
    setWorker(opened);
    opened
      .call((museum) => museum.catalogue())
      .then(setExhibits)
      .catch(setFailure);
    return () => opened.end();
  }, []);
  useEffect(() => scrollToHash(), [exhibits]);
  const peers = useMemo(() => {
    const counts = new Map<string, number>();
    for (const { threads } of exhibits)
      for (const name of new Set(threads.map((thread) => thread.split('#')[0]!)))
        counts.set(name, (counts.get(name) ?? 0) + 1);
    return [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  }, [exhibits]);
  const causes = useMemo(() => [...new Map(exhibits.map((one) => [one.cause as string, one.causeWords]))], [exhibits]);
  const needle = text.trim().toLowerCase();
  const shown = exhibits.filter(
    (one) =>
      (cause === '' || one.cause === cause) &&
      (peer === '' || one.threads.some((thread) => thread.startsWith(`${peer}#`))) &&
      (step === '' || one.steps.some((name) => STEPS[step]?.includes(name))) &&
      `${one.id} ${one.does} ${one.needs ?? ''} ${one.threads.join(' ')}`.toLowerCase().includes(needle),
  );
  return (
    <>
      <h1>The museum of wrong kernels</h1>
      <p class="lead">
        {exhibits.length > 0 ? exhibits.length : 'All'} ways in which RoPE kernels were wrong, each reported in public.
        Every picture is made here: the bug runs on the model that shows it, and is compared with the right kernel.
      </p>
      <p>
        A picture is one head, with tokens from top to bottom, from position 0 to 1048575 unless the bug needs others,
        and dimensions from left to right. Dark is right; yellow is the largest error, and each step toward dark a
        smaller one, down to a thousandth. Red is not a number.
      </p>
      <div class="fields">
        <label class="field">
          <span>Search</span>
          <input
            type="search"
            value={text}
            placeholder="such as bf16, decode or llama.cpp"
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <Choice
          label="Kind"
          value={cause}
          of={[ALL, ...causes.map(([letter, words]) => [letter, `${letter}: ${words}`] as const)]}
          onChange={setCause}
        />
        <Choice label="Step that it gets wrong" value={step} of={[ALL, ...Object.keys(STEPS)]} onChange={setStep} />
        <Choice
          label="Project that reported it"
          value={peer}
          of={[ALL, ...peers.map(([name, count]) => [name, `${name} (${count})`] as const)]}
          onChange={setPeer}
        />
      </div>
      <Failure error={failure} next="Load the page again." />
      <p role="status" class="muted">
        {exhibits.length > 0 &&
          (shown.length > 0
            ? `${shown.length} of ${exhibits.length} are shown.`
            : 'None is like that. Try another word, or choose all.')}
      </p>
      {worker &&
        causes.map(([letter, words]) => {
          const list = shown.filter((one) => one.cause === letter);
          if (list.length === 0) return null;
          return (
            <section key={letter} aria-labelledby={`cause-${letter}`}>
              <h2 id={`cause-${letter}`}>
                {letter}: {words} <span class="tag">{list.length}</span>
              </h2>
              <ul class="museum-room">
                {list.map((one) => (
                  <Card key={one.id} worker={worker} exhibit={one} />
                ))}
              </ul>
            </section>
          );
        })}
    </>
  );
}

render(<Museum />, document.querySelector('#main')!);
