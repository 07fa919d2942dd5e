/** Tabs that arrow keys switch, as users of screen readers expect. @module */
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

/**
 * A list of tabs, and the panel of the chosen tab.
 *
 * @param tabs - the label of each tab, by id
 * @param panel - draws the panel of the chosen tab
 */
export function Tabs<T extends string>(props: {
  readonly label: string;
  readonly tabs: Readonly<Record<T, string>>;
  readonly value: T;
  readonly onChange: (value: T) => void;
  readonly panel: (value: T) => ComponentChildren;
}) {
  const id = useId();
  const names = Object.keys(props.tabs) as T[];
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = names[(names.indexOf(props.value) + step + names.length) % names.length]!;
    props.onChange(next);
    document.getElementById(`${id}-${next}`)?.focus();
  };
  return (
    <>
      <div role="tablist" aria-label={props.label} onKeyDown={move}>
        {names.map((name) => (
          <button
            key={name}
            id={`${id}-${name}`}
            type="button"
            role="tab"
            aria-selected={name === props.value}
            aria-controls={`${id}-panel`}
            tabIndex={name === props.value ? 0 : -1}
            onClick={() => props.onChange(name)}
          >
            {props.tabs[name]}
          </button>
        ))}
      </div>
      <div id={`${id}-panel`} role="tabpanel" aria-labelledby={`${id}-${props.value}`}>
        {props.panel(props.value)}
      </div>
    </>
  );
}
