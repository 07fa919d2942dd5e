/** The page Probe says what a model server rotates by, from its answers or from a recording of them. @module */
import './probe.css';
import { proxy } from 'comlink';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useAddress, useAddressNumber } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { download } from '../shared/copy.js';
import { Drop } from '../shared/drop.js';
import { Failure } from '../shared/failure.js';
import type { Source } from '../shared/model-source.js';
import { SourceField } from '../shared/source-field.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import type { Asked, Probes, Told } from './probe.worker.js';

const FROM = { server: 'A server that pages may ask', recording: 'A recording of its answers' } as const;
const MODELS = {
  box: 'The model in the box',
  other: 'Its files, a name or an address',
  none: 'No model: the server against itself',
} as const;
const isFrom = (text: string): text is keyof typeof FROM => text in FROM;
const isModel = (text: string): text is keyof typeof MODELS => text in MODELS;

function Report({ told }: { readonly told: Told }) {
  const [picture, setPicture] = useState<string>();
  useEffect(() => {
    if (!told.svg) return setPicture(undefined);
    const url = URL.createObjectURL(new Blob([told.svg], { type: 'image/svg+xml' }));
    setPicture(url);
    return () => URL.revokeObjectURL(url);
  }, [told]);
  return (
    <>
      <h2>
        What it says <span class={told.agrees ? 'tag good' : 'tag bad'}>{told.agrees ? 'agrees' : 'differs'}</span>
      </h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide report is scrolled with the arrow keys. */}
      {/* biome-ignore lint/a11y/useSemanticElements: no fieldset; a label needs a role. */}
      <pre class="card probe-report" tabIndex={0} role="group" aria-label="Report">
        {told.lines.join('\n')}
      </pre>
      {picture && (
        <img
          class="probe-picture"
          src={picture}
          alt="The difference by the number of tokens seen; the report above says what it shows."
        />
      )}
      <div class="actions">
        <button type="button" onClick={() => download('probe.jsonl', told.recording, 'application/x-ndjson')}>
          Save the recording
        </button>
        {told.svg && (
          <button type="button" onClick={() => download('probe.svg', told.svg!, 'image/svg+xml')}>
            Save the picture
          </button>
        )}
      </div>
    </>
  );
}

function Probe() {
  const [from, setFrom] = useAddress('from', 'server', isFrom);
  const [url, setUrl] = useAddress('url', '');
  const [key, setKey] = useState('');
  const [tokens, setTokens] = useAddressNumber('tokens', 0, { min: 0, max: 1 << 20 });
  const [file, setFile] = useState<File>();
  const [named, setNamed] = useAddress('model', '');
  const [linked] = useState(named);
  const [kind, setKind] = useAddress('with', named === '' ? 'box' : 'other', isModel);
  const [other, setOther] = useState<Source>();
  const [busy, setBusy] = useState<{ readonly what: string; readonly share: number }>();
  const [told, setTold] = useState<Told>();
  const [error, setError] = useState<unknown>();
  const worker = useRef<Helper<Probes> | undefined>(undefined);
  useEffect(() => () => worker.current?.end(), []);

  const model: Source | undefined = kind === 'box' ? { kind, base: BASE } : kind === 'other' ? other : undefined;
  const isReady =
    (from === 'server' ? url.trim() !== '' : file !== undefined) && (kind !== 'other' || model !== undefined);
  async function run(): Promise<void> {
    setError(undefined);
    setTold(undefined);
    setBusy({ what: '', share: 0 });
    const asked: Asked = {
      from: from === 'server' ? url.trim() : file!,
      key: from === 'server' ? key : '',
      tokens: tokens || undefined,
      model,
    };
    let shown = 0;
    const onProgress = proxy((what: string, share: number) => {
      if (performance.now() - shown < 50) return;
      shown = performance.now();
      setBusy({ what, share });
    });
    worker.current ??= helper<Probes>('probe');
    try {
      setTold(await worker.current.call((probes) => probes.run(asked, onProgress)));
    } catch (failure) {
      setError(failure);
      worker.current.end();
      worker.current = undefined;
    } finally {
      setBusy(undefined);
    }
  }
  return (
    <>
      <div class="fields">
        <Choice label="Answers from" value={from} of={FROM} disabled={busy !== undefined} onChange={setFrom} />
        <Choice label="Held against" value={kind} of={MODELS} disabled={busy !== undefined} onChange={setKind} />
      </div>
      {from === 'server' ? (
        <>
          <div class="fields">
            <label class="field">
              <span>Address</span>
              <input
                type="url"
                value={url}
                placeholder="http://localhost:8080"
                spellcheck={false}
                onInput={(event) => setUrl(event.currentTarget.value)}
              />
            </label>
            <label class="field">
              <span>Key, if it needs one</span>
              <input
                type="password"
                value={key}
                autocomplete="off"
                onInput={(event) => setKey(event.currentTarget.value)}
              />
            </label>
            <label class="field">
              <span>Tokens of the text</span>
              <input
                type="number"
                min={16}
                placeholder="250"
                value={tokens || ''}
                onChange={(event) => setTokens(Math.max(0, Math.trunc(event.currentTarget.valueAsNumber || 0)))}
              />
            </label>
          </div>
          <p class="muted">
            llama-server, vLLM, SGLang or another with OpenAI's completions, if it answers pages (CORS), over https or
            on this device. The key goes to that server alone, and is not kept.
          </p>
        </>
      ) : (
        <Drop
          label="a .jsonl of ropewalk probe --record, or its .jsonl.gz,"
          accept=".jsonl,.gz,.json"
          multiple={false}
          onFiles={([one]) => setFile(one)}
          onError={setError}
        >
          {file && <p>{file.name}</p>}
        </Drop>
      )}
      {kind === 'other' && (
        <SourceField
          source={other}
          when="probe"
          linked={linked}
          disabled={busy !== undefined}
          onSource={(source, name) => {
            setOther(source);
            setNamed(name);
          }}
          onError={setError}
        />
      )}
      <Failure error={error} />
      <div class="actions">
        <button type="button" class="primary" disabled={busy !== undefined || !isReady} onClick={() => void run()}>
          Probe
        </button>
        <button
          type="button"
          disabled={busy === undefined}
          onClick={() => void worker.current?.call((probes) => probes.stop())}
        >
          Stop
        </button>
      </div>
      <p role="status" class="muted">
        {busy && (busy.what === '' ? 'Reading …' : `${Math.round(100 * busy.share)} % ${busy.what}`)}
      </p>
      {told && <Report told={told} />}
    </>
  );
}

export default draw(<Probe />);
