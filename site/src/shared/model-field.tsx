/** The field for a model: its name on the hub, an address, or files. @module */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { HUB } from '../shell/base.js';
import { Choice } from './choice.js';
import { Drop } from './drop.js';
import { Failure } from './failure.js';
import { type Found, find, type Listed, placeOf } from './hub.js';

/** Returns the host that a text leads to: the hub, unless it is the address of another. */
function hostOf(text: string): string {
  try {
    return placeOf(text).url.host;
  } catch {
    return new URL(HUB).host;
  }
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(1)} GB`;

/**
 * A field for a model's name or address, around which files may be dropped. It asks no host until the visitor asks.
 *
 * @param asks - completes "Asks HOST for"
 * @param linked - the name in the page's address, which a link does not ask for either
 * @param onFound - reads what was found; what it throws is shown
 */
export function ModelField(props: {
  readonly label: string;
  readonly asks: string;
  readonly linked?: string | undefined;
  readonly disabled?: boolean;
  readonly onFiles: (files: readonly File[]) => void;
  readonly onError: (error: unknown) => void;
  readonly onFound: (found: Found) => Promise<void> | void;
  readonly children?: ComponentChildren;
}) {
  const { label, asks, linked = '', disabled, onFiles, onError, onFound, children } = props;
  const [text, setText] = useState(linked);
  const [busy, setBusy] = useState(false);
  const [listed, setListed] = useState<readonly Listed[]>([]);
  const [error, setError] = useState<unknown>();
  const [asked, setAsked] = useState(false);

  async function look(wanted: string): Promise<void> {
    setBusy(true);
    setAsked(true);
    setError(undefined);
    try {
      const found = await find(wanted);
      if ('kind' in found) await onFound(found);
      else setListed(found);
    } catch (failure) {
      setError(failure);
    } finally {
      setBusy(false);
    }
  }
  const host = hostOf(text);
  return (
    <Drop label={label} onFiles={onFiles} onError={onError}>
      <form
        class="model-field"
        onSubmit={(event) => {
          event.preventDefault();
          setListed([]);
          void look(text);
        }}
      >
        <label class="field">
          <span>or a name on {new URL(HUB).host}, or an address</span>
          <input
            type="text"
            value={text}
            placeholder="Qwen/Qwen2.5-7B-Instruct"
            spellcheck={false}
            autocapitalize="off"
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        <button type="submit" disabled={disabled || busy || text.trim() === ''}>
          {busy ? 'Asking …' : 'Ask'}
        </button>
      </form>
      <p class="muted">
        {linked !== '' && text === linked && !asked && `The link names ${linked}. `}
        Asks {host} for {asks}, and only when you press Ask.
      </p>
      {listed.length > 0 && (
        <Choice
          label={`${listed[0]!.asked.split('/').slice(0, 2).join('/')} has no config.json, but GGUF files`}
          value=""
          of={[
            ['', 'choose one'],
            ...listed.map(
              ({ asked, bytes }) => [asked, `${asked.split('/').slice(2).join('/')}, ${gigabytes(bytes)}`] as const,
            ),
          ]}
          disabled={disabled || busy}
          onChange={(chosen) => {
            if (chosen === '') return;
            setText(chosen);
          }}
        />
      )}
      <Failure error={error} />
      {children}
    </Drop>
  );
}
