/** The page Explore shows the RoPE of a model. @module */
import './explore.css';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useAddress, useAddressNumber, useAddressStep } from '../shared/address.js';
import { Code } from '../shared/copy.js';
import { Failure } from '../shared/failure.js';
import type { Found } from '../shared/hub.js';
import { textFromHash, textToHash } from '../shared/link.js';
import { ModelField } from '../shared/model-field.js';
import { Tabs } from '../shared/tabs.js';
import { type Helper, helper } from '../shared/worker.js';
import { draw } from '../shell/draw.js';
import { Compare } from './compare.js';
import { Convert } from './convert.js';
import { Export } from './export.js';
import { Facts, Layers } from './layers.js';
import { dropped, layerRanges, published, type Read, type Source, whole } from './model.js';
import { MODELS } from './models.js';
import { type Call, Count, ModelSelect, type Open } from './parts.js';
import { PassportTab } from './passport.js';
import { Pictures } from './pictures.js';
import type { Opened, Ropes } from './rope.worker.js';

const FIRST = 'meta-llama/Meta-Llama-3.1-8B';
const TABS = {
  explore: 'Explore',
  compare: 'Compare',
  passport: 'Passport',
  convert: 'Convert',
  export: 'Export',
} as const;
const isTab = (text: string): text is keyof typeof TABS => text in TABS;
const PUBLISHED: readonly Source[] = MODELS.map(({ id }) => published(id)!);

/** Writes a number of bytes in words. */
const size = (bytes: number): string =>
  bytes < 10_000
    ? `${whole(bytes)} bytes`
    : bytes < 1e6
      ? `${whole(bytes / 1e3)} kB`
      : bytes < 1e9
        ? `${(bytes / 1e6).toFixed(1)} MB`
        : `${(bytes / 1e9).toFixed(1)} GB`;

/** The content of a config.json that a host has sent. */
function openedJson({ asked, url, text, json }: Found & { readonly kind: 'config' }): Opened {
  const bytes = text.length;
  return { kind: 'json', file: asked, host: new URL(url).host, json, bytesRead: bytes, bytes };
}

/** Shows the source of the figures and the files that were read. */
function From({ source }: { readonly source: Source }) {
  const { from, url, opened, config } = source;
  return (
    <>
      {opened ? (
        <p>
          {opened.bytesRead < opened.bytes
            ? `Read ${size(opened.bytesRead)} of ${size(opened.bytes)}: headers only.`
            : `Read the whole ${size(opened.bytes)}.`}{' '}
          {opened.host === undefined ? 'Nothing left this device.' : `They came from ${opened.host}.`}
          {opened.weights &&
            ` ${whole(opened.weights.tensors)} tensors, ${whole(opened.weights.parameters)} parameters in ${opened.weights.types.join(', ')}.`}
        </p>
      ) : (
        <p class="muted">
          Its config.json was read from{' '}
          {url === undefined ? (
            from
          ) : (
            <>
              the copy in <a href={url}>{from}</a>
            </>
          )}
          .
        </p>
      )}
      {config !== undefined && (
        <details>
          <summary>{opened ? 'What the file says' : 'Its fields, as published'}</summary>
          <Code text={JSON.stringify(config, null, 2)} label="config.json" />
        </details>
      )}
    </>
  );
}

function Model(props: {
  readonly source: Source;
  readonly sources: readonly Source[];
  readonly read: Read;
  readonly context: number | undefined;
  readonly setContext: (context: number | undefined) => void;
  readonly open: Open;
  readonly call: Call;
}) {
  const { source, sources, read, context, setContext, open, call } = props;
  const { groups } = read;
  const [tab, setTab] = useAddressStep('tab', 'explore', isTab);
  const [wanted, setWanted] = useAddressNumber('group', 0, { min: 0, max: 10_000 });
  const first = Math.max(
    0,
    groups.findIndex(({ rope }) => rope),
  );
  const chosen = groups[wanted]?.rope ? wanted : first;
  const { rope: spec, layers, layerType, window } = groups[chosen]!;
  const depends = groups.some(({ rope }) => rope?.scaling && 'context' in rope.scaling);
  return (
    <>
      <h2 class="explore-name">{source.opened?.file ?? source.id}</h2>
      <p>
        {read.architecture}, {read.numLayers} {read.numLayers === 1 ? 'layer' : 'layers'}
        {read.maxContext !== undefined && `, a context of ${whole(read.maxContext)} tokens`}.
      </p>
      <From source={source} />
      {read.notes.map((note) => (
        <p key={note} class="notice">
          {note}
        </p>
      ))}
      {depends && (
        <div class="fields explore-context">
          <Count
            label="Tokens in use: they choose this model's frequencies"
            value={context}
            max={2 ** 31}
            placeholder="as the note says"
            onChange={setContext}
          />
        </div>
      )}
      <Tabs
        label="What to see"
        tabs={TABS}
        value={tab}
        onChange={setTab}
        panel={(name) =>
          name === 'compare' ? (
            <Compare a={source} sources={sources} context={context} open={open} call={call} />
          ) : name === 'passport' ? (
            <PassportTab source={source} sources={sources} context={context} open={open} call={call} />
          ) : (
            <>
              <Layers groups={groups} chosen={chosen} onChoose={setWanted} />
              {spec === undefined ? (
                <p class="notice">No layer of this model rotates.</p>
              ) : name === 'explore' ? (
                <>
                  <Facts spec={spec} />
                  <Pictures key={`${source.id} ${chosen}`} spec={spec} maxContext={read.maxContext} window={window} />
                </>
              ) : name === 'convert' ? (
                <Convert spec={spec} layerType={layerType} read={read} context={context} call={call} />
              ) : (
                <Export
                  key={`${source.id} ${chosen} ${context}`}
                  spec={spec}
                  read={read}
                  title={`RoPE of ${source.opened?.file ?? source.id}, ${layerRanges(layers)}`}
                  call={call}
                />
              )}
            </>
          )
        }
      />
    </>
  );
}

/** A config.json that was dropped: it goes into the link, as nobody else has it. */
interface LinkedFile {
  readonly file: string;
  readonly json: unknown;
}

/** Reads the files of a link, which a stranger may have made. */
function readLinked(text: string): Source[] {
  const list: unknown = JSON.parse(text);
  if (!Array.isArray(list)) throw new Error('The link has no list of files. Ask for it again.');
  return list.map((one: LinkedFile | null) => {
    const bytes = JSON.stringify(one?.json ?? null).length;
    const found = dropped({ kind: 'json', file: String(one?.file), json: one?.json, bytes, bytesRead: bytes });
    found.read(undefined);
    return found;
  });
}

/** Makes a source of a file, which gets a number where another config of its name is in the list: most have one name. */
function named(opened: Opened, files: readonly Source[]): Source {
  const isTaken = ({ id, config }: Source): boolean =>
    files.some((one) => one.id === id && JSON.stringify(one.config) !== JSON.stringify(config));
  let found = dropped(opened);
  for (let n = 2; isTaken(found); n++) found = dropped({ ...opened, file: `${opened.file} (${n})` });
  return found;
}

/** @param given - the files that the address holds, if it can be read */
function Explore({ given, failed }: { readonly given: readonly Source[]; readonly failed: unknown }) {
  const [id, setId] = useAddress('model', FIRST);
  const [tokens, setTokens] = useAddressNumber('tokens', 0, { min: 0, max: 2 ** 31 });
  const [linked] = useState(published(id) || given.some((one) => one.id === id) ? undefined : id);
  const [files, setFiles] = useState<readonly Source[]>(given);
  const [error, setError] = useState<unknown>(failed);
  useEffect(() => {
    const own = files.flatMap(({ opened }): LinkedFile[] =>
      opened?.kind === 'json' && opened.host === undefined ? [{ file: opened.file, json: opened.json }] : [],
    );
    if (own.length === 0) return;
    void textToHash('files', JSON.stringify(own)).then((hash = '') =>
      history.replaceState(null, '', location.pathname + location.search + hash),
    );
  }, [files]);
  const [busy, setBusy] = useState(false);
  const worker = useRef<Helper<Ropes> | undefined>(undefined);
  useEffect(() => () => worker.current?.end(), []);
  const call: Call = (task) => {
    worker.current ??= helper<Ropes>('explore');
    return worker.current.call(task);
  };
  const sources = useMemo(() => [...files, ...PUBLISHED], [files]);
  const source = sources.find((one) => one.id === id);
  const context = tokens > 0 ? tokens : undefined;
  const [read, failure] = useMemo((): [Read | undefined, unknown] => {
    try {
      return [source?.read(context), undefined];
    } catch (reason) {
      return [undefined, reason];
    }
  }, [source, context]);

  const open: Open = async (given) => {
    const opened = !('kind' in given)
      ? await call((ropes) => ropes.open(given) as Promise<Opened>)
      : given.kind === 'config'
        ? openedJson(given)
        : await call((ropes) => ropes.openRemote(given.asked, given.parts) as Promise<Opened>);
    const found = named(opened, files);
    found.read(undefined); // a file that describes no RoPE does not enter the list
    setFiles((now) => [found, ...now.filter((one) => one.id !== found.id)]);
    return found.id;
  };
  async function take(given: readonly File[]): Promise<void> {
    setError(undefined);
    setBusy(true);
    try {
      setId(await open(given));
    } catch (reason) {
      setError(reason);
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      <div class="explore-choose">
        <div class="card">
          <ModelSelect
            label={`One of ${MODELS.length} published models, or one that you opened`}
            value={id}
            sources={sources}
            onChange={setId}
          />
          <p class="muted explore-hint">
            Figures of published models are fields of the config.json files of their makers.
          </p>
        </div>
        <ModelField
          label="a config.json, a GGUF or a safetensors folder"
          asks="config.json or the header of a GGUF"
          linked={linked}
          onFiles={(given) => void take(given)}
          onError={setError}
          onFound={async (found) => setId(await open(found))}
        >
          {busy && <p class="muted">Reading headers …</p>}
        </ModelField>
      </div>
      <Failure error={error} next="Choose a model of the list, or drop a config.json, a .gguf, or a folder with one." />
      <Failure error={failure} next="Choose another model." />
      {source && read && (
        <Model
          source={source}
          sources={sources}
          read={read}
          context={context}
          setContext={(value) => setTokens(value ?? 0)}
          open={open}
          call={call}
        />
      )}
    </>
  );
}

const [given, failed] = await textFromHash('files', 'files')
  .then((text) => (text === undefined ? [] : readLinked(text)))
  .then(
    (sources) => [sources, undefined] as const,
    (error: unknown) => [[], error] as const,
  );
export default draw(<Explore given={given} failed={failed} />);
