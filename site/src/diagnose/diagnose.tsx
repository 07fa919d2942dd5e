/** The page Diagnose finds the mistake of a kernel from its dumps. @module */
import './diagnose.css';
import { proxy } from 'comlink';
import { useEffect, useRef, useState } from 'preact/hooks';
import { fromAddress, toAddress, useAddress } from '../shared/address.js';
import { Choice } from '../shared/choice.js';
import { Code } from '../shared/copy.js';
import { Drop } from '../shared/drop.js';
import { Failure } from '../shared/failure.js';
import { ModelField } from '../shared/model-field.js';
import type { Remote } from '../shared/remote.js';
import { Tabs } from '../shared/tabs.js';
import { type Helper, helper } from '../shared/worker.js';
import { BASE } from '../shell/base.js';
import { draw } from '../shell/draw.js';
import type { Asked, Form, Kernel, Listed, Meant, Report, Role } from './diagnose.worker.js';
import { Maps } from './maps.js';
import { ReportView } from './report.js';
import { roleOf } from './roles.js';

/** The golden cases whose models the user can choose. Any other model needs its config.json. */
const MODELS: Readonly<Record<string, string>> = {
  'llama-2-half': 'Llama 2, Mistral, Qwen 1 (HuggingFace): half, base 10000',
  'llama-2-interleaved': 'Llama 2 (ggml, the original): interleaved, base 10000',
  'llama-3-f16': 'Llama 3: half, base 500000',
  'llama-3.1-f32': 'Llama 3.1: llama3 scaling',
  'qwen2.5-yarn': 'Qwen2.5 with YaRN × 4',
  'gpt-oss': 'gpt-oss: YaRN × 32, not truncated',
  'deepseek-v3': 'DeepSeek-V3: interleaved to half, YaRN × 40',
  'phi-2': 'Phi-2: 32 of 80 dimensions',
  'gpt-neox': 'GPT-NeoX: 24 of 96 dimensions',
  'gpt-j': 'GPT-J: 64 of 256 dimensions, interleaved',
  'glm-4': 'GLM-4: 64 of 128 dimensions, interleaved',
  'gemma-3-global': 'Gemma 3, global layers: linear × 8',
  'gemma-4-proportional': 'Gemma 4, global layers: proportional',
  'qwen2-vl-mrope': 'Qwen2-VL: M-RoPE',
  'qwen3-vl-mrope': 'Qwen3-VL: M-RoPE, interleaved axes',
};
const FLOATS = ['f32', 'f16', 'bf16', 'f64'];
const INTEGERS = ['i32', 'i64', 'u32', 'u64', 'i16', 'u16', 'f32', 'f64'];
const ROLES: Readonly<Record<Role, string>> = {
  x: 'x: what the kernel read',
  y: 'y: what it wrote',
  positions: 'positions',
  norm: 'weight of the norm before it',
};
/** Texts longer than this are not kept in the address. */
const MAX_IN_ADDRESS = 4000;
const DUMP = `# PyTorch: q before and after the rotation. If the kernel works in place, clone q first.
torch.save({'x': q.cpu(), 'y': q_rotated.cpu(), 'positions': position_ids.cpu()}, 'dump.pt')

# numpy
numpy.savez('dump.npz', x=x, y=y, positions=positions)`;

const isKind = (text: string): text is Meant['kind'] => ['model', 'text', 'nothing'].includes(text);
const isModel = (text: string): text is string => Object.hasOwn(MODELS, text);

/** Guesses the roles that the user has not chosen from the names of the arrays. */
function guess(arrays: readonly Listed[], chosen: Readonly<Partial<Record<Role, string>>>) {
  const roles: Partial<Record<Role, string>> = {};
  for (const role of Object.keys(ROLES) as Role[]) {
    const kept = arrays.find(({ id }) => id === chosen[role]);
    const found = kept ?? arrays.find(({ name }) => roleOf(name) === role);
    if (found) roles[role] = found.id;
  }
  return roles;
}

const open = (): Helper<Kernel> => helper<Kernel>('diagnose');

function TextField(props: {
  readonly label: string;
  readonly value: string;
  readonly placeholder?: string;
  readonly onChange: (value: string) => void;
}) {
  return (
    <label class="field">
      <span>{props.label}</span>
      <input
        type="text"
        value={props.value}
        placeholder={props.placeholder}
        spellcheck={false}
        onInput={(event) => props.onChange(event.currentTarget.value)}
      />
    </label>
  );
}

function Diagnose() {
  const [files, setFiles] = useState<readonly File[]>([]);
  const [arrays, setArrays] = useState<readonly Listed[]>([]);
  const [problems, setProblems] = useState<readonly string[]>([]);
  const [roles, setRoles] = useState<Partial<Record<Role, string>>>({});
  const [dtype, setDtype] = useAddress('dtype', '');
  const [shape, setShape] = useAddress('shape', '');
  const [positionsDtype, setPositionsDtype] = useAddress('positions-dtype', '');
  const [heads, setHeads] = useAddress('heads', '');
  const [layout, setLayout] = useAddress('layout', '');
  const [normEps, setNormEps] = useAddress('norm-eps', '');
  const [kind, setKind] = useAddress('meant', 'model', isKind);
  const [model, setModel] = useAddress('model', 'llama-2-half', isModel);
  const [text, setText] = useState(() => fromAddress('text') ?? '');
  const [named, setNamed] = useAddress('config', '');
  const [linked] = useState(named);
  const [remote, setRemote] = useState<readonly Remote[]>([]);
  const [layer, setLayer] = useAddress('layer', '');
  const [context, setContext] = useAddress('context', '');
  const [direction, setDirection] = useAddress('direction', '');
  const [done, setDone] = useState<number>();
  const [failure, setFailure] = useState<unknown>();
  const [shown, setShown] = useState<{ readonly report: Report; readonly worker: Helper<Kernel> }>();
  const [, setRun] = useState(0);
  const worker = useRef<Helper<Kernel> | undefined>(undefined);
  const run = useRef(0);
  const result = useRef<HTMLDivElement>(null);
  const working = (): Helper<Kernel> => (worker.current ??= open());
  const stop = (): void => {
    worker.current?.end();
    worker.current = undefined;
  };
  useEffect(
    () =>
      toAddress(
        'text',
        kind === 'text' && named === '' && text.length <= MAX_IN_ADDRESS && text !== '' ? text : undefined,
      ),
    [kind, text, named],
  );

  async function diagnose(asked: Asked): Promise<void> {
    const mine = ++run.current;
    setRun(mine);
    setFailure(undefined);
    setShown(undefined);
    setDone(0);
    toAddress('demo', asked.kind === 'demo' ? '1' : undefined);
    toAddress('bug', asked.kind === 'bug' ? asked.id : undefined);
    if (mine > 1) for (const key of ['batch', 'head', 'token']) toAddress(key, undefined);
    const helping = working();
    try {
      const report = await helping.call((kernel) => kernel.run(asked, proxy(setDone)));
      if (mine !== run.current) return;
      setShown({ report, worker: helping });
      requestAnimationFrame(() => result.current?.scrollIntoView({ block: 'start' }));
    } catch (error) {
      if (mine !== run.current) return;
      setFailure(error);
      // A worker that died does not answer any more, so the next run starts a new one.
      if (!(error instanceof Error && error.name === 'RopewalkError')) stop();
    } finally {
      if (mine === run.current) setDone(undefined);
    }
  }

  useEffect(() => {
    const bug = fromAddress('bug');
    if (bug !== null) void diagnose({ kind: 'bug', id: bug });
    else if (fromAddress('demo') !== null) void diagnose({ kind: 'demo' });
    return stop;
  }, []);

  async function take(given: readonly File[]): Promise<void> {
    setFailure(undefined);
    const json = given.filter(({ name }) => /\.json$/i.test(name));
    const dumps = given.filter((file) => !json.includes(file));
    if (json.length > 0) {
      setText(await json[0]!.text());
      setNamed('');
      setKind('text');
    }
    const gguf = dumps.find(({ name }) => /\.gguf$/i.test(name));
    if (gguf) {
      setText(gguf.name);
      setNamed('');
      setKind('text');
    }
    const all = [...files.filter(({ name }) => !dumps.some((file) => file.name === name)), ...dumps];
    try {
      const listed = await working().call((kernel) => kernel.list(all));
      setFiles(all);
      setArrays(listed.arrays);
      setProblems(listed.problems);
      setRoles((now) => guess(listed.arrays, now));
    } catch (error) {
      setFailure(error);
      stop();
    }
  }

  const form: Form = { dtype, shape, positionsDtype, heads, layout, normEps };
  const meant: Meant = { kind, model, text, remote: named === '' ? [] : remote, layer, context, direction };
  const isRaw = (role: Role): boolean => arrays.find(({ id }) => id === roles[role])?.raw ?? false;
  const running = done !== undefined;
  return (
    <>
      <div class="diagnose-input">
        <section class="card" aria-labelledby="diagnose-files">
          <h2 id="diagnose-files">1. Its input, output and positions</h2>
          <Drop
            label="x, y and positions: .npy, .npz, .safetensors, .pt or .bin"
            accept=".npy,.npz,.safetensors,.pt,.pth,.bin,.json,.gguf"
            onFiles={(given) => void take(given)}
            onError={setFailure}
          />
          {problems.length > 0 && (
            <div role="alert">
              {problems.map((words) => (
                <p key={words} class="notice error">
                  {words}
                </p>
              ))}
            </div>
          )}
          {arrays.length > 0 ? (
            <>
              <div class="fields">
                {(Object.keys(ROLES) as Role[])
                  .filter((role) => role !== 'norm')
                  .map((role) => (
                    <Choice
                      key={role}
                      label={ROLES[role]}
                      value={roles[role] ?? ''}
                      of={[['', 'choose an array'], ...arrays.map(({ id, words }) => [id, `${id}: ${words}`] as const)]}
                      onChange={(id) => setRoles({ ...roles, [role]: id })}
                    />
                  ))}
              </div>
              {(isRaw('x') || isRaw('y') || isRaw('positions')) && (
                <div class="fields">
                  {(isRaw('x') || isRaw('y')) && (
                    <>
                      <Choice
                        label="Dtype of raw x and y"
                        value={dtype}
                        of={[['', 'choose one'], ...FLOATS]}
                        onChange={setDtype}
                      />
                      <TextField label="Shape of raw x and y" value={shape} placeholder="6,4,128" onChange={setShape} />
                    </>
                  )}
                  {isRaw('positions') && (
                    <Choice
                      label="Dtype of raw positions"
                      value={positionsDtype}
                      of={[['', 'choose one'], ...INTEGERS]}
                      onChange={setPositionsDtype}
                    />
                  )}
                </div>
              )}
            </>
          ) : (
            <details>
              <summary>How to dump them</summary>
              <Code text={DUMP} label="How to dump x, y and positions" />
              <p class="muted">
                From C: write the raw little-endian elements to .bin files. Good positions are 0, 1, one near 40, one
                past 8191 and one past 131071; at least two tokens, two heads and two batches; random x.
              </p>
            </details>
          )}
          <details open={heads !== '' || layout !== '' || normEps !== '' || (dtype !== '' && !isRaw('x'))}>
            <summary>More options</summary>
            <div class="fields diagnose-more">
              <Choice
                label="Layout"
                value={layout}
                of={[
                  ['', 'found from the data'],
                  ['bsnh', 'bsnh: token before head'],
                  ['bnsh', 'bnsh: head before token'],
                  ['sbnh', 'sbnh: token before batch, as in Megatron'],
                ]}
                onChange={setLayout}
              />
              <TextField
                label="Heads, where x is [token, hidden]"
                value={heads}
                placeholder="in the shape"
                onChange={setHeads}
              />
              {!isRaw('x') && !isRaw('y') && (
                <Choice
                  label="Dtype that the kernel stores"
                  value={dtype}
                  of={[['', 'as in the file'], ...FLOATS]}
                  onChange={setDtype}
                />
              )}
              {arrays.length > 0 && (
                <Choice
                  label="Weight of an RMS norm before it"
                  value={roles.norm ?? ''}
                  of={[['', 'no norm'], ...arrays.map(({ id, words }) => [id, `${id}: ${words}`] as const)]}
                  onChange={(id) => setRoles({ ...roles, norm: id })}
                />
              )}
              {roles.norm && <TextField label="Its eps" value={normEps} placeholder="1e-6" onChange={setNormEps} />}
            </div>
          </details>
        </section>
        <section class="card" aria-labelledby="diagnose-meant">
          <h2 id="diagnose-meant">2. What it should compute</h2>
          <Tabs
            label="What the kernel should compute"
            tabs={{ model: 'Model', text: 'Config or record', nothing: 'Not known' }}
            value={kind}
            onChange={setKind}
            panel={(value) =>
              value === 'nothing' ? (
                <p class="muted">The rotation is measured and described. No bug can be named without a right answer.</p>
              ) : (
                <>
                  {value === 'model' ? (
                    <div class="fields">
                      <Choice label="RoPE of" value={model} of={Object.entries(MODELS)} onChange={setModel} />
                    </div>
                  ) : (
                    <>
                      <ModelField
                        label="a config.json or a GGUF"
                        asks="config.json or the header of a GGUF"
                        linked={linked}
                        onFiles={(given) => void take(given)}
                        onError={setFailure}
                        onFound={async (found) => {
                          if (found.kind === 'gguf') await working().call((kernel) => kernel.ask(found.parts));
                          setText(found.kind === 'config' ? found.text : found.asked);
                          setRemote(found.kind === 'gguf' ? found.parts : []);
                          setNamed(found.asked);
                        }}
                      />
                      <label class="field diagnose-text">
                        <span>
                          A model’s config.json, a record such as {'{"headDim": 128, "pairing": "half", "base": 10000}'}
                          , a peer’s arguments, or a ROPE(…) line. A .json or .gguf that is dropped with the dumps comes
                          here.
                        </span>
                        <textarea
                          rows={8}
                          class="mono"
                          spellcheck={false}
                          value={text}
                          onInput={(event) => {
                            setText(event.currentTarget.value);
                            setNamed('');
                          }}
                        />
                      </label>
                    </>
                  )}
                  <div class="fields">
                    {value === 'text' && (
                      <>
                        <TextField label="Layer of the model" value={layer} placeholder="0" onChange={setLayer} />
                        <TextField
                          label="Context in use, in tokens"
                          value={context}
                          placeholder="the original one"
                          onChange={setContext}
                        />
                      </>
                    )}
                    <Choice
                      label="Direction"
                      value={direction}
                      of={[
                        ['', 'forward'],
                        ['backward', 'backward: the gradient'],
                      ]}
                      onChange={setDirection}
                    />
                  </div>
                </>
              )
            }
          />
        </section>
      </div>
      <div class="actions">
        <button
          type="button"
          class="primary"
          disabled={running || arrays.length === 0}
          onClick={() => void diagnose({ kind: 'files', files, roles, form, meant })}
        >
          Diagnose
        </button>
        <button type="button" disabled={running} onClick={() => void diagnose({ kind: 'demo' })}>
          See an example
        </button>
        {running && (
          <button
            type="button"
            onClick={() => {
              run.current++;
              stop();
              setDone(undefined);
            }}
          >
            Stop
          </button>
        )}
        <a class="button" href={`${BASE}museum/`}>
          The museum of wrong kernels
        </a>
      </div>
      <Failure error={failure} />
      {running && <progress max={1} value={done} aria-label="Hypotheses that were tried" />}
      <p role="status" class="visually-hidden">
        {running ? 'Diagnosing.' : (shown?.report.told.head ?? '')}
      </p>
      <div ref={result} class="diagnose-result">
        {shown && (
          <>
            <ReportView report={shown.report} />
            <Maps key={run.current} worker={shown.worker} report={shown.report} />
          </>
        )}
      </div>
    </>
  );
}

export default draw(<Diagnose />);
