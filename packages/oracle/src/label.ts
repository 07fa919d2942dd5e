/**
 * Labels of cases. A label such as `ROPE(type=f32,ne_a=[128,32,2,1],…)` names every parameter of a case, so that
 * `ropewalk check --case` runs the case again.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { checkName, readList, readOptions } from 'ropewalk/internal';

/** The parts of a label `NAME(key=value,…)`. */
export interface ParsedLabel {
  readonly name: string;
  readonly values: ReadonlyMap<string, string>;
}

/** The longest label that is parsed. Real ones are shorter. */
const MAX_LABEL_LENGTH = 4096;

/**
 * Reads a label.
 *
 * @param line - `NAME(key=value,…)`, with commas in a value only within brackets; a verdict after the closing
 *   parenthesis is ignored
 * @throws {RopewalkError} FORMAT when the line has another form
 */
export function parseLabel(line: string): ParsedLabel {
  if (typeof line !== 'string') refuse('FORMAT', 'case', 'a label', line);
  const text = line.trim();
  const match = text.length > MAX_LABEL_LENGTH ? null : /^([A-Za-z][A-Za-z0-9_]*)\(([^\n]*?)\)(:[^\n]*)?$/.exec(text);
  if (!match)
    refuse(
      'FORMAT',
      'line',
      'a line such as ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,…)',
      text,
      'Copy one from the output of ropewalk check.',
    );
  const values = new Map<string, string>();
  const items = match[2]!.trim() === '' ? [] : match[2]!.split(/,(?![^[]*\])/); // Splits at commas outside brackets.
  for (const item of items) {
    const equals = item.indexOf('=');
    if (equals < 1) refuse('FORMAT', `${match[1]}(…)`, 'key=value between commas', item);
    const key = item.slice(0, equals).trim();
    if (values.has(key)) fail('FORMAT', `${match[1]}(…)`, `the key ${key} is given twice`);
    values.set(key, item.slice(equals + 1).trim());
  }
  return { name: match[1]!, values };
}

/** Gives a label of `ROPE_BACK`, as test-backend-ops calls the backward rotation, the name ROPE and fwd=0. */
export function forwardOrBack({ name, values }: ParsedLabel): ParsedLabel {
  return name === 'ROPE_BACK' ? { name: 'ROPE', values: new Map([...values, ['fwd', '0']]) } : { name, values };
}

/**
 * Writes a label.
 *
 * @param values - keys and values in order; lists are written in brackets, and undefined is left out
 */
export function formatLabel(
  name: string,
  values: Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>,
): string {
  checkName(name, 'case', 'the operator');
  const textOf = (key: string, value: unknown): string => {
    if (typeof value !== 'string' && typeof value !== 'number')
      refuse('FORMAT', `case: ${key}`, 'a string, a number or a list of these', value);
    return String(value);
  };
  const items = Object.entries(readOptions(values, 'case: values'))
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) =>
      typeof value === 'object'
        ? `${key}=[${Array.from(readList(value, `case: ${key}`), (item) => textOf(key, item)).join(',')}]`
        : `${key}=${textOf(key, value)}`,
    );
  return `${name}(${items.join(',')})`;
}
