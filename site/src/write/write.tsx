/** The page Write: a visitor's own RoPE kernel, run on golden cases and diagnosed as it is written. @module */
import './write.css';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { CopyButton } from '../shared/copy.js';
import { Editor } from '../shared/editor.js';
import { Failure } from '../shared/failure.js';
import { textFromHash, textToHash } from '../shared/link.js';
import { inTime, MOST_SECONDS } from '../shared/sandbox.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import type { Judged, KernelCase, Kernels } from './kernel.worker.js';
import { LANGUAGES, type Language, PUZZLES, startingText } from './puzzles.js';
import { runRope } from './run-rope.js';

/** The key under which the browser keeps the ids of the solved puzzles. */
const SOLVED = 'write-solved';

function readSolved(): readonly string[] {
  try {
    const kept: unknown = JSON.parse(localStorage.getItem(SOLVED) ?? '[]');
    return PUZZLES.map(({ id }) => id).filter((id) => Array.isArray(kept) && kept.includes(id));
  } catch {
    return []; // the browser keeps nothing for this page
  }
}

const isLanguage = (text: string): text is Language => Object.hasOwn(LANGUAGES, text);

function Result({ judged }: { readonly judged: Judged }) {
  const { maxAbs, elements, wrong, notes, first, report, bugs } = judged;
  if (!report)
    return (
      <p class="notice">
        <span class="tag good">Right</span>{' '}
        {wrong === 0 ? `All ${elements} elements are within the bounds of verify.` : notes} The largest error is{' '}
        {maxAbs.toExponential(1)}.
      </p>
    );
  return (
    <>
      <p class="notice error">{report.head}</p>
      <p>
        {wrong} of {elements} elements are outside their bounds. {first}
      </p>
      {report.remarks.map((line) => (
        <p key={line}>{line}</p>
      ))}
      {report.sections.map(({ title, lines }) => (
        <section key={title}>
          <h3>{title}</h3>
          <ul>
            {lines.map(({ key, text, deeper }) => (
              <li key={text} class={deeper ? 'deeper' : ''}>
                {key && <span class="muted">{key} </span>}
                {text}
              </li>
            ))}
          </ul>
        </section>
      ))}
      {bugs.map((bug) => (
        <p key={bug}>
          <a href={`${BASE}museum/${bug}/`}>All about {bug}</a>
        </p>
      ))}
    </>
  );
}

function Case({ id, language, about, call }: KernelCase & { readonly id: string; readonly language: Language }) {
  const { tokens, heads, headDim } = call.options;
  const puzzle = language === 'js' ? PUZZLES.findIndex((one) => one.id === id) : -1; // tables make the puzzles easy
  const axes = call.positions.length / tokens;
  return (
    <section class="card" aria-labelledby="write-task">
      <h2 id="write-task">{puzzle < 0 ? id : `Puzzle ${puzzle + 1}: ${PUZZLES[puzzle]!.title}`}</h2>
      {puzzle >= 0 && <p>{PUZZLES[puzzle]!.task}</p>}
      <p class="muted">{about}</p>
      {language === 'wgsl' && (
        <p>
          The text at the start has all bindings; a shader may leave some out. WGSL’s own cos and sin may be off by
          2⁻¹¹, and by more outside −π … π: a shader within the bounds reads the tables.
        </p>
      )}
      <details>
        <summary>
          The arguments: x [{tokens}, {heads}, {headDim}], positions [{axes > 1 && `${axes}, `}
          {tokens}], options
        </summary>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide block is scrolled with the arrow keys. */}
        <pre tabIndex={0}>
          {`positions = [${Array.from(call.positions).join(', ')}]\noptions = ${JSON.stringify(call.options, null, 2)}`}
        </pre>
      </details>
    </section>
  );
}

function Write({ linked, failed }: { readonly linked: string | undefined; readonly failed: unknown }) {
  const [id, setId] = useAddress('case', PUZZLES[0]!.id);
  const [language, setLanguage] = useAddress('language', 'js', isLanguage);
  const [ids, setIds] = useState<readonly string[]>([]);
  const [shown, setShown] = useState<KernelCase>();
  const [text, setText] = useState(linked ?? startingText(id, language));
  const [fresh, setFresh] = useState(0); // counts the texts that the editor did not type itself
  const [link, setLink] = useState<string | undefined>(globalThis.location?.href ?? '');
  const [judged, setJudged] = useState<Judged>();
  const [error, setError] = useState<unknown>(failed);
  const [running, setRunning] = useState<AbortController>();
  const [live, setLive] = useState(false);
  const [solved, setSolved] = useState(readSolved);
  const typed = useRef(new Map<string, string>());
  const worker = useRef<Helper<Kernels> | undefined>(undefined);
  const call = <R,>(task: Parameters<Helper<Kernels>['call']>[0]): Promise<R> => {
    worker.current ??= helper<Kernels>('write');
    return worker.current.call(task) as Promise<R>;
  };

  useEffect(() => {
    call<readonly string[]>((kernels) => kernels.ids()).then(setIds, setError);
    addEventListener('hashchange', () => location.reload()); // another link was put into this tab
  }, []);
  useEffect(() => {
    let current = true;
    setShown(undefined);
    call<KernelCase>((kernels) => kernels.make(id)).then(
      (made) => current && setShown(made),
      (problem) => current && setError(problem),
    );
    return () => {
      current = false;
    };
  }, [id]);

  function replaceText(next: string): void {
    setText(next);
    setFresh((count) => count + 1);
    setJudged(undefined);
    setError(undefined);
  }
  function choose(next: string, spoken: Language): void {
    running?.abort();
    typed.current.set(`${language} ${id}`, text);
    setLive(false);
    setId(next);
    setLanguage(spoken);
    replaceText(typed.current.get(`${spoken} ${next}`) ?? startingText(next, spoken));
  }

  async function runOnGpu(stop: AbortSignal): Promise<Float32Array> {
    const y = call<Float32Array>((kernels) => kernels.shader(id, text));
    const own = worker.current;
    try {
      return await inTime('wgsl', stop, y);
    } catch (problem) {
      own?.end(); // with its GPU device, which the shader may still hold
      if (worker.current === own) worker.current = undefined;
      throw problem;
    }
  }

  async function run(): Promise<void> {
    if (!shown) return;
    running?.abort();
    if (running && language === 'wgsl') {
      worker.current?.end(); // the shader may still hold the GPU
      worker.current = undefined;
    }
    const now = new AbortController();
    setRunning(now);
    setLive(true);
    try {
      const y = await (language === 'js' ? runRope(text, shown.call, now.signal) : runOnGpu(now.signal));
      const found = await call<Judged>((kernels) => kernels.judge(id, y));
      if (now.signal.aborted) return;
      setJudged(found);
      setError(undefined);
      if (!found.report && language === 'js' && PUZZLES.some((one) => one.id === id) && !solved.includes(id)) {
        const more = [...solved, id];
        setSolved(more);
        try {
          localStorage.setItem(SOLVED, JSON.stringify(more));
        } catch {
          // The browser keeps nothing for this page.
        }
      }
    } catch (problem) {
      if (now.signal.aborted) return; // the next run has begun
      setJudged(undefined);
      setError(problem);
    } finally {
      setRunning((latest) => (latest === now ? undefined : latest));
    }
  }

  // Nothing runs before the visitor has pressed Run once. From then on each change runs after a moment.
  useEffect(() => {
    const timer = setTimeout(() => {
      const own = text !== startingText(id, language);
      textToHash('code', text).then((hash) => {
        history.replaceState(null, '', `${location.pathname}${location.search}${own ? (hash ?? '') : ''}`);
        setLink(hash === undefined ? undefined : location.href);
      }, setError);
      if (live && language === 'js') void run();
    }, 600);
    return () => clearTimeout(timer);
  }, [text, id, language]);

  const others = ids.filter((one) => !PUZZLES.some((puzzle) => puzzle.id === one));
  return (
    <>
      <h2>Ten puzzles</h2>
      <ol class="write-puzzles">
        {PUZZLES.map((one, n) => (
          <li key={one.id}>
            <button
              type="button"
              aria-current={one.id === id && language === 'js' ? 'step' : undefined}
              onClick={() => choose(one.id, 'js')}
            >
              {solved.includes(one.id) ? (
                <span class="tag good">
                  ✓<span class="visually-hidden"> solved:</span>
                </span>
              ) : (
                <span class="muted">{n + 1}</span>
              )}{' '}
              {one.title}
            </button>
          </li>
        ))}
      </ol>
      <div class="fields">
        <Choice
          label="Case"
          value={id}
          of={[...PUZZLES.map((one, n) => [one.id, `${n + 1}. ${one.title}: ${one.id}`] as const), ...others]}
          onChange={(next) => choose(next, language)}
        />
        <Choice label="Language" value={language} of={LANGUAGES} onChange={(spoken) => choose(id, spoken)} />
      </div>
      {text === linked && !live && (
        <p class="notice">This kernel came with the link. Nothing of it runs before you press Run.</p>
      )}
      <div class="write">
        {shown && <Case id={id} language={language} {...shown} />}
        <div class="write-code">
          <div class="actions">
            <button type="button" class="primary" disabled={!shown} onClick={() => void run()}>
              Run
            </button>
            <button type="button" onClick={() => replaceText(startingText(id, language))}>
              Start again
            </button>
            {link === undefined ? (
              <span>The text is too long for a link.</span>
            ) : (
              <CopyButton text={link} label="Copy the link" />
            )}
          </div>
          <Editor
            key={`${language} ${id} ${fresh}`}
            label="The kernel"
            language={language}
            text={text}
            onChange={setText}
          />
          <p class="muted">
            {language === 'js'
              ? 'It runs in a worker without network or storage. After the first run, each change runs again. '
              : 'It runs on the GPU of this device, in workgroups along x: at least one invocation for each element of x. '}
            After {MOST_SECONDS[language]} seconds it is ended.
          </p>
        </div>
        <section class="write-result" aria-labelledby="write-result" aria-busy={running !== undefined}>
          <h2 id="write-result">What it did</h2>
          <Failure error={error} />
          <p role="status" class="visually-hidden">
            {judged && (judged.report?.head ?? 'The kernel is right.')}
          </p>
          {judged ? (
            <Result judged={judged} />
          ) : (
            error === undefined && <p class="muted">{running ? 'Running.' : 'Not run yet.'}</p>
          )}
        </section>
      </div>
    </>
  );
}

const [linked, failed] = await textFromHash('code', 'kernel').then(
  (text) => [text, undefined] as const,
  (error: unknown) => [undefined, error] as const,
);
export default draw(<Write linked={linked} failed={failed} />);
