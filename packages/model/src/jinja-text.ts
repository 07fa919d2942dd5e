/**
 * Writes values as Python does, where @huggingface/jinja writes them as JSON or not at all.
 *
 * `{{ value }}`, `~` and the filter `string` of Jinja are Python's `str()`. Templates of models with tools print lists
 * and objects in this way, and the models were trained on it.
 *
 * @module
 * @see https://docs.python.org/3/reference/datamodel.html#object.__str__ and pallets/jinja@2a8515d src/jinja2/nodes.py
 */

/** A value of the library; its types are not exported. */
export interface Value {
  readonly type: string;
  readonly value: unknown;
}

/** A node of a parsed template: its type, and the fields that are read here. */
export interface Node {
  readonly type: string;
  readonly body?: readonly Node[];
  readonly alternate?: readonly Node[];
  readonly defaultBlock?: readonly Node[];
  readonly object?: Node;
  readonly property?: Node;
  readonly computed?: boolean;
  readonly callee?: Node;
  readonly call?: Node;
  readonly filter?: Node;
  readonly args?: readonly Node[];
  readonly argument?: unknown;
  readonly test?: Node;
  readonly iterable?: Node;
  readonly lhs?: Node;
  readonly left?: Node;
  readonly right?: Node;
  readonly operand?: Node;
  readonly value?: unknown;
  readonly operator?: { readonly value: string };
}

/** Writes a value as Python's `str()` does. */
export function textOf(value: Value): string {
  return value.type === 'StringValue' ? (value.value as string) : value.type === 'UndefinedValue' ? '' : written(value);
}

/** Jinja's filters that take any value as a text: `string`, `trim` and `capitalize`; undefined for other names. */
export function textFilter(name: unknown): ((text: string) => string) | undefined {
  if (name === 'string') return (text) => text;
  if (name === 'trim') return (text) => text.trim();
  return name === 'capitalize' ? (text) => text.slice(0, 1).toUpperCase() + text.slice(1).toLowerCase() : undefined;
}

/** Writes a value as Python's `repr()` does. */
function written(value: Value): string {
  switch (value.type) {
    case 'StringValue':
      return quoted(value.value as string);
    case 'BooleanValue':
      return value.value ? 'True' : 'False';
    case 'NullValue':
      return 'None';
    case 'UndefinedValue':
      return 'Undefined';
    case 'ArrayValue':
      return `[${(value.value as readonly Value[]).map(written).join(', ')}]`;
    case 'TupleValue':
      return `(${(value.value as readonly Value[]).map(written).join(', ')})`;
    case 'ObjectValue': {
      const entries = [...(value.value as ReadonlyMap<string, Value>)];
      return `{${entries.map(([key, item]) => `${quoted(key)}: ${written(item)}`).join(', ')}}`;
    }
    default:
      return String(value);
  }
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/** A text in the quotes that need no escape, single ones first. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text.replace(/[\\']|(?! )[\p{C}\p{Z}]/gu, (character) => {
    if (character === "'") return quote === "'" ? "\\'" : character;
    const code = character.codePointAt(0)!;
    const [letter, digits] = code > 0xffff ? ['U', 8] : code > 0xff ? ['u', 4] : ['x', 2];
    return ESCAPES[character] ?? `\\${letter}${code.toString(16).padStart(digits as number, '0')}`;
  });
  return quote + escaped + quote;
}

/** Python's `strip`, `lstrip` and `rstrip` with the characters that are taken away. */
export function stripped(name: string, text: string, characters: string): string {
  const taken = new Set(characters);
  const units = Array.from(text);
  let [start, end] = [0, units.length];
  if (name !== 'rstrip') while (start < end && taken.has(units[start]!)) start++;
  if (name !== 'lstrip') while (end > start && taken.has(units[end - 1]!)) end--;
  return units.slice(start, end).join('');
}
