/** Lets users copy texts and save files. @module */
import { useState } from 'preact/hooks';

/** A button that copies a text and then confirms it. */
export function CopyButton({ text, label = 'Copy' }: { readonly text: string; readonly label?: string }) {
  const [said, setSaid] = useState('');
  const copy = (): void => {
    // Pages that are neither https nor localhost have no clipboard.
    Promise.resolve(navigator.clipboard?.writeText(text) ?? Promise.reject()).then(
      () => setSaid('Copied'),
      () => setSaid('Select it by hand'),
    );
    setTimeout(() => setSaid(''), 2000);
  };
  return (
    <button type="button" onClick={copy}>
      {said || label}
      <span class="visually-hidden" role="status">
        {said}
      </span>
    </button>
  );
}

/** A block of code with its copy button. */
export function Code({ text, label = 'Code' }: { readonly text: string; readonly label?: string }) {
  return (
    <div class="copyable">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide block is scrolled with the arrow keys. */}
      {/* biome-ignore lint/a11y/useSemanticElements: no fieldset; a label needs a role. */}
      <pre tabIndex={0} role="group" aria-label={label}>
        <code>{text}</code>
      </pre>
      <CopyButton text={text} />
    </div>
  );
}

/** Saves bytes or text as a file. */
export function download(name: string, content: BlobPart, type: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
