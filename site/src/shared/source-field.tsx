/** The field for a model that a page runs: files, a name on the hub, or an address. @module */
import { ModelField } from './model-field.js';
import type { Source } from './model-source.js';

/**
 * A field for the files of a model, its name or its address.
 *
 * @param when - completes "its weights only when you"
 * @param onSource - is called with the name that goes into the page's address, empty for files
 */
export function SourceField(props: {
  readonly source: Source | undefined;
  readonly when: string;
  readonly linked: string;
  readonly disabled: boolean;
  readonly onSource: (source: Source, name: string) => Promise<void> | void;
  readonly onError: (error: unknown) => void;
}) {
  const { source, when, linked, disabled, onSource, onError } = props;
  return (
    <ModelField
      label="a GGUF file, or a folder with config.json, tokenizer.json and *.safetensors,"
      asks={`the model’s files, its weights only when you ${when}`}
      linked={linked}
      disabled={disabled}
      onFiles={(files) => void onSource({ kind: 'files', files }, '')}
      onError={onError}
      onFound={(found) =>
        onSource(
          found.kind === 'gguf'
            ? { kind: 'remote', parts: found.parts }
            : { kind: 'address', address: new URL('.', found.url).href },
          found.asked,
        )
      }
    >
      {source?.kind === 'files' && <p>{source.files.map(({ name }) => name).join(', ')}</p>}
    </ModelField>
  );
}
