/** A slider with its value in words. @module */
import { useId } from 'preact/hooks';

/**
 * A slider.
 *
 * @param words - the value in words, if it differs from the slider's number
 */
export function Slider(props: {
  readonly label: string;
  readonly value: number;
  readonly min: number;
  readonly max: number;
  readonly step?: number;
  readonly words?: string;
  readonly onInput: (value: number) => void;
}) {
  const { label, value, min, max, step, words = String(value), onInput } = props;
  const id = useId();
  return (
    // A label around both would name the <output> and leave the slider without a name.
    <div class="field">
      <span>
        <label for={id}>{label}</label> <output for={id}>{words}</output>
      </span>
      <input
        id={id}
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-valuetext={words}
        onInput={(event) => onInput(event.currentTarget.valueAsNumber)}
      />
    </div>
  );
}
