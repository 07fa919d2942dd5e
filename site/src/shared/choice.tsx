/** A drop-down list. @module */
import { useId } from 'preact/hooks';

/**
 * A drop-down list with a label.
 *
 * @param of - the values with their labels, as a record or as pairs, or values that are their own labels
 */
export function Choice<T extends string>(props: {
  readonly label: string;
  readonly value: T;
  readonly of: Readonly<Record<T, string>> | readonly (T | readonly [value: T, words: string])[];
  readonly disabled?: boolean;
  readonly onChange: (value: T) => void;
}) {
  const { label, value, of, disabled, onChange } = props;
  const pairs = Array.isArray(of)
    ? (of as readonly (T | readonly [T, string])[]).map((one) =>
        typeof one === 'string' ? ([one, one] as const) : one,
      )
    : (Object.entries(of) as [T, string][]);
  const id = useId();
  return (
    // A label around both would contain the words of every choice.
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} disabled={disabled} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {pairs.map(([one, words]) => (
          <option key={one} value={one}>
            {words}
          </option>
        ))}
      </select>
    </div>
  );
}
