/** Components that several tabs use. @module */
import type { Remote } from 'comlink';
import type { Found } from '../shared/hub.js';
import type { Source } from './model.js';
import type { Ropes } from './rope.worker.js';

/** Calls the page's worker. */
export type Call = <R>(task: (ropes: Remote<Ropes>) => Promise<R>) => Promise<R>;

/** Reads files, or what another host has, and returns the id of the source. */
export type Open = (given: readonly File[] | Found) => Promise<string>;

/** A choice among the models of the list, grouped by their makers, and those that were opened. */
export function ModelSelect(props: {
  readonly label: string;
  readonly value: string;
  readonly sources: readonly Source[];
  readonly onChange: (id: string) => void;
}) {
  const makers = new Map<string, Source[]>();
  for (const source of props.sources) {
    const maker = source.opened ? (source.opened.host ?? 'Your files') : source.id.split('/')[0]!;
    makers.set(maker, [...(makers.get(maker) ?? []), source]);
  }
  return (
    <label class="field">
      <span>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {!props.sources.some(({ id }) => id === props.value) && <option value={props.value}>{props.value}</option>}
        {Array.from(makers, ([maker, sources]) => (
          <optgroup key={maker} label={maker}>
            {sources.map(({ id, opened }) => (
              <option key={id} value={id}>
                {opened?.file ?? id.slice(maker.length + 1)}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

/** A field for a whole number. Any other input leaves the number unchanged. */
export function Count(props: {
  readonly label: string;
  readonly value: number | undefined;
  readonly min?: number;
  readonly max: number;
  readonly placeholder?: string;
  readonly onChange: (value: number | undefined) => void;
}) {
  const { label, value, min = 1, max, placeholder, onChange } = props;
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="number"
        min={min}
        max={max}
        placeholder={placeholder}
        value={value ?? ''}
        onChange={(event) => {
          const { value: text, valueAsNumber, validity } = event.currentTarget;
          if (text === '' && placeholder !== undefined) onChange(undefined);
          else if (validity.valid && Number.isInteger(valueAsNumber)) onChange(valueAsNumber);
          else event.currentTarget.value = String(value ?? '');
        }}
      />
    </label>
  );
}
