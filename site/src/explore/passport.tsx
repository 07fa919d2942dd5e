/** The tab Passport: how each runtime reads a model's fields, and what is lost on the way. @module */
import { useEffect, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Failure } from '../shared/failure.js';
import { ModelField } from '../shared/model-field.js';
import type { Source } from './model.js';
import type { Call, Open } from './parts.js';
import type { Opened, ReadByAll, Stamp } from './rope.worker.js';

/** Separates the forms in the address. No name of a file or a model has it. */
const BETWEEN = ' | ';

/** The form that readers get of a source: its files, or the fields of a model of the list. */
function formOf({ id, opened, config }: Source): Opened {
  return opened ?? { kind: 'json', file: `${id}/config.json`, json: config, bytes: 0, bytesRead: 0 };
}

/** The most bytes that a stamp has. */
const MOST_STAMP = 2 ** 20;

/** Reads a file if it is a stamp. */
async function stampOf(file: File): Promise<Stamp | undefined> {
  const text = /\.json$/i.test(file.name) && file.size <= MOST_STAMP ? await file.text() : '';
  return text.includes('"rope-passport/') ? { name: file.name, json: JSON.parse(text) } : undefined;
}

/**
 * The tab Passport.
 *
 * @param source - the form that its maker published
 * @param sources - all that were opened: the other forms are among them
 * @param context - the number of tokens in use. Default: what each reader assumes
 * @param open - reads another form
 */
export function PassportTab(props: {
  readonly source: Source;
  readonly sources: readonly Source[];
  readonly context: number | undefined;
  readonly open: Open;
  readonly call: Call;
}) {
  const { source, sources, context, open, call } = props;
  const [serve, setServe] = useAddress('serve', '');
  const [forms, setForms] = useAddress('forms', '');
  const ids = forms === '' ? [] : forms.split(BETWEEN);
  const others = ids.flatMap((id) => sources.find((one) => one.id === id) ?? []);
  const [linked] = useState(ids.find((id) => !sources.some((one) => one.id === id)));
  const add = (id: string): void => setForms([...ids.filter((one) => one !== id), id].join(BETWEEN));
  const [found, setFound] = useState<ReadByAll>();
  const [stamp, setStamp] = useState<Stamp>();
  const [error, setError] = useState<unknown>();
  async function take(given: readonly File[]): Promise<void> {
    const forms: File[] = [];
    for (const file of given) {
      const one = await stampOf(file);
      if (one) setStamp(one);
      else forms.push(file);
    }
    if (forms.length > 0) add(await open(forms));
  }
  const several = new Set(found?.readings.map(({ form }) => form)).size > 1;
  useEffect(() => {
    let current = true;
    setError(undefined);
    const given = [source, ...others].map(formOf);
    call((ropes) => ropes.passport(given, context, serve.trim(), stamp) as Promise<ReadByAll>).then(
      (read) => current && setFound(read),
      (failure) => current && setError(failure),
    );
    return () => {
      current = false;
    };
  }, [source, others.map(({ id }) => id).join(BETWEEN), context, serve, stamp]);
  return (
    <>
      <div class="fields">
        <label class="field">
          <span>A server's command, to see what its arguments change</span>
          <input
            type="text"
            value={serve}
            placeholder={`vllm serve MODEL --hf-overrides '{"rope_theta": 10000}'`}
            onChange={(event) => setServe(event.currentTarget.value)}
          />
        </label>
      </div>
      <ModelField
        label="another form of this model, a config.json or a GGUF, or its rope-passport.json,"
        asks="config.json or the header of a GGUF"
        linked={linked}
        onFiles={(given) => void take(given).catch(setError)}
        onError={setError}
        onFound={async (found) => add(await open(found))}
      >
        {ids.map((id) => (
          <p key={id}>
            {id}
            {others.some((one) => one.id === id) ? ' is compared with the model.' : ' is not read yet.'}{' '}
            <button type="button" onClick={() => setForms(ids.filter((one) => one !== id).join(BETWEEN))}>
              Leave it out
            </button>
          </p>
        ))}
        {stamp && (
          <p>
            {stamp.name} is held against the model
            {found?.isStamped && ': it is of this RoPE'}.{' '}
            <button type="button" onClick={() => setStamp(undefined)}>
              Leave it out
            </button>
          </p>
        )}
      </ModelField>
      <Failure error={error} next="Mend the command, or leave it out." />
      {found && (
        <>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table is scrolled with the arrow keys. */}
          <section class="scroll" tabIndex={0} aria-label="Readers">
            <table>
              <thead>
                <tr>
                  <th scope="col">Reader</th>
                  <th scope="col">What it rotates</th>
                  <th scope="col">Why</th>
                </tr>
              </thead>
              <tbody>
                {found.readings.map(({ form, reader, rotates, why }) => (
                  <tr key={form + reader}>
                    <th scope="row">{several ? `${form}, ${reader}` : reader}</th>
                    <td>
                      {rotates.map((line) => (
                        <div key={line}>{line}</div>
                      ))}
                    </td>
                    <td>{why.join(' ')}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </section>
          {found.findings.length === 0 && <p class="notice">No reader loses anything of this model's RoPE.</p>}
          <ul>
            {found.findings.map(({ level, where, says, repair, source: from }) => (
              <li key={where + says}>
                <strong>{level}</strong> {where}: {says} {repair} {from && <span class="muted">{from}</span>}
              </li>
            ))}
          </ul>
        </>
      )}
    </>
  );
}
