/** The tab Passport: how each runtime reads a model's fields, and what is lost on the way. @module */
import { useEffect, useState } from 'preact/hooks';
import { useAddress } from '../shared/address.js';
import { Failure } from '../shared/failure.js';
import type { Source } from './model.js';
import type { Call } from './parts.js';
import type { Opened, ReadByAll } from './rope.worker.js';

/**
 * The tab Passport.
 *
 * @param context - the number of tokens in use. Default: what each reader assumes
 */
export function PassportTab(props: {
  readonly source: Source;
  readonly context: number | undefined;
  readonly call: Call;
}) {
  const { source, context, call } = props;
  const [serve, setServe] = useAddress('serve', '');
  const [found, setFound] = useState<ReadByAll>();
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    let current = true;
    setError(undefined);
    const own: Opened = source.opened ?? {
      kind: 'json',
      file: 'config.json',
      json: source.config,
      bytes: 0,
      bytesRead: 0,
    };
    call((ropes) => ropes.passport(own, context, serve.trim()) as Promise<ReadByAll>).then(
      (read) => current && setFound(read),
      (failure) => current && setError(failure),
    );
    return () => {
      current = false;
    };
  }, [source, context, serve]);
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
                {found.readings.map(({ reader, state, why }) => (
                  <tr key={reader}>
                    <th scope="row">{reader}</th>
                    <td>{state}</td>
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
