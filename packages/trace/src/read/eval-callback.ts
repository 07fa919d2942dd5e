/**
 * The text that llama.cpp's `llama-eval-callback` prints: of each tensor the first and last three values of each
 * dimension, to four decimals (`common/debug.cpp`). @module
 */
import { tensorFrom } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { type Dump, type DumpTensor, NOT_GIVEN } from '../dump.js';

/** The line before a tensor, of a bounded length. The tool's older name is ggml_debug, and a log may put a time before it. */
const HEAD =
  /^.{0,80}?(?:ggml_debug|common_debug_cb_eval): +(\S.{0,120}?) = \((\w{1,16})\) +(\S{1,40}?)\(.{0,600}\{(\d+), (\d+), (\d+), (\d+)\} {0,8}\r?$/;
const VALUE = /^-?(?:\d{1,40}(?:\.\d{1,10})?|inf|nan(?:\(\w*\))?)$/;
/** Half a unit of the last decimal. */
const PRINTED = 5e-5;
/** A larger tensor is left out: of its values a few are printed, and all would need room. */
const MOST_ELEMENTS = 2 ** 26;

/** A tensor as it is printed: where each row is, and its values with their places in it. */
interface Printed {
  readonly name: string;
  readonly op: string;
  /** The sizes as ggml has them, the innermost first. */
  readonly ne: readonly number[];
  readonly rows: { readonly at: number; readonly columns: number[]; readonly values: number[] }[];
}

/** Tells whether a text has a tensor of the eval callback. */
export const isEvalCallback = (text: string): boolean => new RegExp(HEAD, 'm').test(text);

/**
 * Reads the tensors of floats of a text.
 *
 * @throws {RopewalkError} FORMAT for values that do not fit the shape, or where there are none
 */
export function readEvalCallback(text: string, label: string): Dump {
  const found = printedIn(text, label).filter(({ rows }) => rows.length > 0);
  if (found.length === 0) fail('FORMAT', label, 'it has names of tensors and no values of floats.');
  const notes = [
    `${label} has the first and last values of each dimension, to four decimals: only these are compared, and no cause is looked for.`,
  ];
  const fits = found.filter(({ ne }) => ne.reduce((a, b) => a * b, 1) <= MOST_ELEMENTS);
  if (fits.length < found.length)
    notes.push(`${found.length - fits.length} tensors of ${label} have more than ${MOST_ELEMENTS} values: left out.`);
  const [first] = fits;
  let step = -1;
  const tensors = fits.map((one): DumpTensor => {
    const { name, op, ne } = one;
    if (name === first!.name && op === first!.op) step++; // each pass begins with the same tensor
    const shape = [...ne].reverse();
    return { name, shape, dtype: 'f32', step, read: async () => tensorFrom(valuesOf(one), { shape }) };
  });
  return { label, tensors, notes, resolution: PRINTED, close: async () => {} };
}

function valuesOf({ ne, rows }: Printed): Float32Array {
  const data = new Float32Array(ne.reduce((a, b) => a * b, 1)).fill(NOT_GIVEN);
  for (const { at, columns, values } of rows)
    for (const [n, column] of columns.entries()) data[at * ne[0]! + column] = values[n]!;
  return data;
}

function printedIn(text: string, label: string): Printed[] {
  const all: Printed[] = [];
  let places: Places | undefined;
  let [from, number] = [0, 0];
  while (from < text.length) {
    const end = text.indexOf('\n', from);
    const line = text.slice(from, end < 0 ? text.length : end);
    [from, number] = [end < 0 ? text.length : end + 1, number + 1];
    const head = line.includes('= (') ? HEAD.exec(line) : null;
    if (head) {
      const one: Printed = { name: head[1]!, op: head[3]!, ne: head.slice(4).map(Number), rows: [] };
      const isRead = /^b?f\d/.test(head[2]!) && one.ne.every((size) => size > 0);
      places = isRead ? new Places(one) : undefined;
      if (isRead) all.push(one);
    } else if (places?.take(line.trim()) === false)
      fail('FORMAT', label, `line ${number} has a value of ${all.at(-1)!.name} that its shape does not have.`);
  }
  return all;
}

/** Follows the brackets of a tensor: each `...` leads to the last values of its dimension. */
class Places {
  readonly #tensor: Printed;
  /** The next row, matrix and block. */
  readonly #next = [0, 0, 0];

  constructor(tensor: Printed) {
    this.#tensor = tensor;
  }

  /** Returns false for a value outside of the shape. */
  take(line: string): boolean {
    const [next, { ne, rows }] = [this.#next, this.#tensor];
    const row = /^\[(.+)\],?$/.exec(line);
    if (row) {
      const parts = row[1]!.split(',').map((part) => part.trim());
      const cut = parts.indexOf('...');
      const texts = parts.filter((part) => VALUE.test(part));
      const columns = texts.map((_, n) => (cut < 0 || n < cut ? n : ne[0]! - texts.length + n));
      if (columns.some((column, n) => column >= ne[0]! || column < (columns[n - 1] ?? -1))) return false;
      const [at, matrix, block] = next as [number, number, number];
      if (at >= ne[1]! || matrix >= ne[2]! || block >= ne[3]!) return false;
      rows.push({ at: (block * ne[2]! + matrix) * ne[1]! + at, columns, values: texts.map(numberOf) });
      next[0] = at + 1;
    } else if (line.startsWith('...')) {
      // Between rows where some of this matrix were read, else between matrices.
      const level = next[0]! > 0 ? 0 : 1;
      next[level] = ne[level + 1]! - next[level]!;
    } else if (/^\],?$/.test(line)) {
      // A matrix ends where it has rows; a block ends behind its last matrix.
      const level = next[0]! > 0 ? 0 : 1;
      next[level] = 0;
      next[level + 1]!++;
    }
    return true;
  }
}

const numberOf = (text: string): number =>
  /nan/.test(text) ? Number.NaN : /inf/.test(text) ? (text.startsWith('-') ? -Infinity : Infinity) : Number(text);
