/** The page Generate runs a language model in the browser. @module */
import './generate.css';
import { type ChatMessage, type Generation, mebibytes } from '@ropewalk/model';
import { proxy } from 'comlink';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { Failure } from '../shared/failure.js';
import type { Source } from '../shared/model-source.js';
import { SourceField } from '../shared/source-field.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import type { How, Loaded, Looked, Models } from './model.worker.js';

const SOURCES = { box: 'The model in the box', other: 'Another: files, a name or an address' } as const;
const BACKENDS = {
  cpu: 'cpu: WebAssembly, with threads where the page may have them',
  webgpu: 'webgpu: the GPU',
} as const;
const isSource = (text: string): text is keyof typeof SOURCES => text in SOURCES;
const isBackend = (text: string): text is How['backend'] => text in BACKENDS;

function Memory({ looked }: { readonly looked: Looked }) {
  const { memory } = looked;
  const parts: readonly [string, number][] = [
    ['in all', memory.totalBytes],
    ['weights', memory.weightsBytes],
    [`KV cache of ${memory.context} tokens`, memory.cacheBytes],
    ['scratch and tables', memory.scratchBytes + memory.tableBytes],
  ];
  return (
    <>
      <p>
        {looked.architecture}, {looked.layers} layers, {looked.vocabulary} tokens in the vocabulary, a context of up to{' '}
        {looked.maxContext}. Loading it takes:
      </p>
      <dl class="generate-memory">
        {parts.map(([name, bytes]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{mebibytes(bytes)}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

/** A field for a number. */
function Field(props: {
  readonly label: string;
  readonly value: number;
  readonly min: number;
  readonly max: number;
  readonly step: number;
  readonly onChange: (value: number) => void;
}) {
  const { label, value, min, max, step, onChange } = props;
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        value={value}
        min={min}
        max={max}
        step={step}
        onChange={(event) => {
          const { valueAsNumber, validity } = event.currentTarget;
          if (validity.valid && Number.isFinite(valueAsNumber)) onChange(valueAsNumber);
          else event.currentTarget.value = String(value);
        }}
      />
    </label>
  );
}

const pace = ({ promptTokens, prefill, decode, tokens, seed, reason }: Generation): string =>
  `${tokens.length} tokens at ${decode.tokensPerSecond.toFixed(1)} tokens/s; the prompt of ${promptTokens} tokens at ${prefill.tokensPerSecond.toFixed(1)} tokens/s; seed ${seed}; ${
    {
      eos: 'the model ended its text',
      stop: 'a stop text came',
      length: 'the limit of tokens was reached',
      abort: 'stopped',
    }[reason]
  }.`;

function Generate() {
  const [named, setNamed] = useAddress('model', '');
  const [linked] = useState(named);
  const [kind, setKind] = useAddress('from', named === '' ? 'box' : 'other', isSource);
  const [other, setOther] = useState<Source>();
  const [backend, setBackend] = useAddress('backend', 'cpu', isBackend);
  const [context, setContext] = useAddressNumber('context', 512, { min: 8, max: 1 << 20 });
  const [prompt, setPrompt] = useAddress('prompt', 'It was a dark night, and the ship');
  const [maxTokens, setMaxTokens] = useAddressNumber('max', 120, { min: 1, max: 100_000 });
  const [temperature, setTemperature] = useAddressNumber('temperature', 0.7, { min: 0, max: 5 });
  const [topP, setTopP] = useAddressNumber('top_p', 0.9, { min: 0.01, max: 1 });
  const [topK, setTopK] = useAddressNumber('top_k', 0, { min: 0, max: 100_000 });
  const [seed, setSeed] = useAddress('seed', '');
  const [asChat, setAsChat] = useState(false);
  const [turns, setTurns] = useState<readonly ChatMessage[]>([]);
  const [looked, setLooked] = useState<Looked>();
  const [loaded, setLoaded] = useState<Loaded>();
  const [loading, setLoading] = useState<number>();
  const [busy, setBusy] = useState<'reading' | 'loading' | 'generating'>();
  const [given, setGiven] = useState('');
  const [text, setText] = useState('');
  const [count, setCount] = useState(0);
  const [end, setEnd] = useState<Generation>();
  const [error, setError] = useState<unknown>();
  const worker = useRef<Helper<Models> | undefined>(undefined);
  useEffect(() => () => worker.current?.end(), []);

  /** Calls the worker. If the last worker has died, it starts a new one, and the loaded model is lost. */
  const call = <R,>(task: Parameters<Helper<Models>['call']>[0]): Promise<R> => {
    worker.current ??= helper<Models>('generate');
    return worker.current.call(task) as Promise<R>;
  };

  async function doing(what: 'reading' | 'loading' | 'generating', task: () => Promise<void>): Promise<void> {
    setError(undefined);
    setBusy(what);
    try {
      await task();
    } catch (failure) {
      setError(failure);
      if (what !== 'generating' || /worker|device was lost/.test(String(failure))) {
        worker.current?.end();
        worker.current = undefined;
        setLoaded(undefined);
      }
    } finally {
      setBusy(undefined);
      setLoading(undefined);
    }
  }

  const how: How = { backend, context };
  function forget(): void {
    setLooked(undefined);
    setLoaded(undefined);
    setTurns([]);
    setText('');
    setGiven('');
    setEnd(undefined);
    setError(undefined);
  }
  const look = (source: Source): Promise<void> =>
    doing('reading', async () => {
      forget();
      const why = await call<string | undefined>((models) => models.whyNot(backend));
      if (why !== undefined) throw new Error(`${backend} is not there: ${why}`);
      setLooked(await call<Looked>((models) => models.look(source, how)));
    });
  const load = (): Promise<void> =>
    doing('loading', async () => {
      const onProgress = proxy(({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }) =>
        setLoading(doneBytes / totalBytes),
      );
      const done = await call<Loaded>((models) => models.load(how, onProgress));
      setLoaded(done);
      setAsChat(done.hasChat);
    });
  const write = (): Promise<void> =>
    doing('generating', async () => {
      setText('');
      setCount(0);
      setEnd(undefined);
      const chat = asChat && loaded!.hasChat;
      const messages = [...turns, { role: 'user', content: prompt }];
      setGiven(chat ? '' : prompt);
      if (chat) setTurns(messages);
      const wish = {
        prompt: chat ? messages : prompt,
        maxTokens,
        temperature,
        topP,
        topK,
        ...(seed !== '' && { seed: Number(seed) }),
      };
      const onText = proxy((more: string, tokens: number) => {
        setText((now) => now + more);
        setCount(tokens);
      });
      const done = await call<Generation>((models) => models.generate(wish, onText));
      setEnd(done);
      if (chat) {
        setTurns([...messages, { role: 'assistant', content: done.text }]);
        setText('');
      }
    });

  const chosen: Source | undefined = kind === 'box' ? { kind, base: BASE } : other;
  const choose = (source: Source, name: string): Promise<void> => {
    setOther(source);
    setNamed(name);
    return look(source);
  };
  const idle = busy === undefined;
  return (
    <>
      <h2>1. Choose a model</h2>
      <div class="fields">
        <Choice
          label="From"
          value={kind}
          of={SOURCES}
          disabled={!idle}
          onChange={(next) => {
            setKind(next);
            forget();
          }}
        />
        <Choice
          label="Computes on"
          value={backend}
          of={BACKENDS}
          disabled={!idle}
          onChange={(next) => {
            setBackend(next);
            forget();
          }}
        />
        <Field
          label="Context, in tokens"
          value={context}
          min={8}
          max={1 << 20}
          step={1}
          onChange={(value) => {
            setContext(value);
            forget();
          }}
        />
      </div>
      {kind === 'box' && (
        <p class="muted">
          Marline: a Llama of 1.8 million parameters, trained for this project on Moby-Dick and Jane Austen. It writes
          English in their style, knows nothing, and follows no instructions. 1.9 MB, from this site.
        </p>
      )}
      {kind === 'other' && (
        <SourceField
          source={other}
          when="load it"
          linked={linked}
          disabled={!idle}
          onSource={choose}
          onError={setError}
        />
      )}
      <Failure error={error} next={looked ? undefined : 'Choose another model, or another backend.'} />
      <div class="actions">
        <button
          type="button"
          class={looked ? '' : 'primary'}
          disabled={!idle || chosen === undefined}
          onClick={() => chosen && void look(chosen)}
        >
          {busy === 'reading' ? 'Reading …' : 'Look at it'}
        </button>
      </div>
      {looked && (
        <>
          <h2>2. Load it</h2>
          <Memory looked={looked} />
          {loading !== undefined && <progress max={1} value={loading} aria-label="Loaded" />}
          <div class="actions">
            <button type="button" class={loaded ? '' : 'primary'} disabled={!idle} onClick={() => void load()}>
              {busy === 'loading' ? 'Loading …' : loaded ? 'Load again' : 'Load'}
            </button>
            {loaded && <span class="tag good">loaded on {loaded.backend}</span>}
          </div>
        </>
      )}
      {loaded && (
        <>
          <h2>3. Write</h2>
          <label class="field">
            <span>{asChat ? 'Message' : 'Text to go on from'}</span>
            <textarea rows={3} value={prompt} onInput={(event) => setPrompt(event.currentTarget.value)} />
          </label>
          <p />
          <div class="fields">
            <Field label="Tokens at most" value={maxTokens} min={1} max={100_000} step={1} onChange={setMaxTokens} />
            <Field
              label="Temperature; 0 takes the likeliest"
              value={temperature}
              min={0}
              max={5}
              step={0.05}
              onChange={setTemperature}
            />
            <Field label="Top p" value={topP} min={0.01} max={1} step={0.01} onChange={setTopP} />
            <Field label="Top k; 0 keeps all" value={topK} min={0} max={100_000} step={1} onChange={setTopK} />
            <label class="field">
              <span>Seed; random where empty</span>
              <input
                type="text"
                inputMode="numeric"
                pattern="\d{0,9}"
                value={seed}
                onInput={(event) => event.currentTarget.validity.valid && setSeed(event.currentTarget.value)}
              />
            </label>
            {loaded.hasChat && (
              <label class="check">
                <input type="checkbox" checked={asChat} onChange={(event) => setAsChat(event.currentTarget.checked)} />
                As a chat
              </label>
            )}
          </div>
          <div class="actions">
            <button type="button" class="primary" disabled={!idle} onClick={() => void write()}>
              Generate
            </button>
            <button
              type="button"
              disabled={busy !== 'generating'}
              onClick={() => void call<void>((models) => models.stop())}
            >
              Stop
            </button>
            {turns.length > 0 && (
              <button type="button" disabled={!idle} onClick={() => setTurns([])}>
                New chat
              </button>
            )}
          </div>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long text is scrolled with the arrow keys. */}
          <section class="card generate-out" tabIndex={0} aria-label="Generated text">
            {asChat &&
              turns.map(({ role, content }, i) => (
                <div class="generate-turn" key={i}>
                  <strong>{role}</strong>
                  {String(content)}
                </div>
              ))}
            <span class="given">{given}</span>
            {text}
          </section>
          <p role="status" class="muted">
            {busy === 'generating' && `${count} tokens`}
            {busy === undefined && end && pace(end)}
          </p>
        </>
      )}
    </>
  );
}

export default draw(<Generate />);
