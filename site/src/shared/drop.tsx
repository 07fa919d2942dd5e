/** Files from the user: dropped, a folder too, or chosen with the keyboard. @module */
import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';

/** Files of a dropped folder, at any depth; the browser gives each folder's entries in parts. */
async function filesOf(entry: FileSystemEntry): Promise<File[]> {
  if (entry.isFile) return [await new Promise<File>((done, fail) => (entry as FileSystemFileEntry).file(done, fail))];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: File[] = [];
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((done, fail) => reader.readEntries(done, fail));
    if (part.length === 0) return files;
    for (const child of part) files.push(...(await filesOf(child)));
  }
}

/** Reads the files of a drop. Items are read before the first wait, because the browser empties them after the event. */
async function dropped(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return [...transfer.files];
  return (await Promise.all(entries.map(filesOf))).flat();
}

/**
 * A place to drop files on, with a button that chooses them.
 *
 * @param label - what to drop, such as `config.json, a GGUF or a safetensors folder`
 * @param onFiles - called with at least one file
 * @param onError - called where a dropped folder cannot be read
 */
export function Drop(props: {
  readonly label: string;
  readonly accept?: string;
  readonly multiple?: boolean;
  readonly onFiles: (files: readonly File[]) => void;
  readonly onError?: (error: unknown) => void;
  readonly children?: ComponentChildren;
}) {
  const [over, setOver] = useState(false);
  const id = useId();
  const take = (files: readonly File[]): void => {
    if (files.length > 0) props.onFiles(files);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping needs a pointer; the button below does the same.
    <div
      class={over ? 'drop over' : 'drop'}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (event.dataTransfer) dropped(event.dataTransfer).then(take, props.onError);
      }}
    >
      <p>
        Drop <span id={id}>{props.label}</span> here, or
      </p>
      <input
        type="file"
        class="visually-hidden"
        tabIndex={-1}
        aria-labelledby={id}
        accept={props.accept}
        multiple={props.multiple ?? true}
        onChange={(event) => {
          take([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = ''; // so that the same file can be chosen again
        }}
      />
      <button
        type="button"
        onClick={(event) => (event.currentTarget.previousElementSibling as HTMLInputElement).click()}
      >
        Choose files
      </button>
      {props.children}
    </div>
  );
}
