/**
 * Labels of cases: how they are read and written.
 *
 * A label is a reproduction: `ROPE(type=f32,ne_a=[128,32,2,1],…)` names every parameter, and pasting it into
 * `ropewalk check --case` runs the case again.
 *
 * @module
 */
import { refuse } from 'ropewalk/backend';

/** A label taken apart: `NAME(key=value,…)`. */
export interface ParsedLabel {
  readonly name: string;
  readonly values: ReadonlyMap<string, string>;
}

/** No real label is longer; a longer one is refused before it is parsed. */
const MAX_LABEL_LENGTH = 4096;

/**
 * Takes a label apart.
 *
 * @param line - `NAME(key=value,…)`, values without commas unless in brackets; a verdict after the closing parenthesis is ignored
 * @throws {RopewalkError} FORMAT when the line has another form
 */
export function parseLabel(line: string): ParsedLabel {
  const text = line.trim();
  const match = text.length > MAX_LABEL_LENGTH ? null : /^([A-Za-z][A-Za-z0-9_]*)\((.*?)\)(:.*)?$/s.exec(text);
  if (!match)
    refuse(
      'FORMAT',
      'case',
      'a line such as ROPE(type=f32,ne_a=[128,32,2,1],n_dims=128,mode=0,…)',
      text,
      'Copy one from the output of ropewalk check.',
    );
  const values = new Map<string, string>();
  const items = match[2]!.trim() === '' ? [] : match[2]!.split(/,(?![^[]*\])/); // at commas outside brackets
  for (const item of items) {
    const equals = item.indexOf('=');
    if (equals < 1) refuse('FORMAT', 'case', 'key=value between commas', item);
    const key = item.slice(0, equals).trim();
    if (values.has(key)) refuse('FORMAT', `case: ${key}`, 'each key once', line);
    values.set(key, item.slice(equals + 1).trim());
  }
  return { name: match[1]!, values };
}

/**
 * Puts a label together.
 *
 * @param name - the operator
 * @param values - keys and values in order; arrays are written in brackets, undefined is left out
 */
export function formatLabel(
  name: string,
  values: Readonly<Record<string, string | number | readonly (string | number)[] | undefined>>,
): string {
  const items = Object.entries(values)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => `${key}=${Array.isArray(value) ? `[${value.join(',')}]` : value}`);
  return `${name}(${items.join(',')})`;
}
