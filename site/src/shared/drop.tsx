/** Takes files from the user: dropped files and folders, or files chosen with the keyboard. @module */
import type { ComponentChildren } from 'preact';
import { useId, useState } from 'preact/hooks';

/** Lists the files of a dropped folder at any depth. The browser returns each folder's entries in parts. */
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

/** Reads the files of a drop. It reads the items before the first await, because the browser then empties them. */
async function dropped(transfer: DataTransfer): Promise<File[]> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return [...transfer.files];
  return (await Promise.all(entries.map(filesOf))).flat();
}

/**
 * An area for dropped files, with a button that chooses files.
 *
 * @param label - describes the files, such as `config.json, a GGUF or a safetensors folder`
 * @param onFiles - is called with at least one file
 * @param onError - is called when a dropped folder cannot be read
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
