/**
 * The text of llama.cpp's eval callback (`llama-eval-callback`, `llama-debug`): for each tensor of the graph a line with
 * its name and sizes, then the first and last three values in each dimension.
 *
 * @module
 * @see ggml-org/llama.cpp@27c299a6 common/debug.cpp common_debug_print_tensor, common_debug_cb_eval
 */

import { countClaimed } from '@ropewalk/formats/internal';
import { DTYPES, type Dtype, type Tensor, tensorFrom } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { DumpTensor } from '../dump.js';

/** The line of a tensor: name, type, operator, sources, `ne`. The tool's older name is ggml_debug. */
const HEAD = /^.*?(?:ggml_debug|common_debug_cb_eval): +(\S.*?) = \((\w+)\) +(\w+)\((.*)\) = \{([\d, ]+)\}\s*$/;
const VALUE = /\[|\]|\.\.\.|-?(?:\d+\.\d+|inf|nan)/g;
/** A tensor becomes an array of all its values, of which the text has few. */
const MAX_VALUES = 2 ** 26;
const DEPTH = 3;

/** Tells whether a text has a line of the eval callback. */
export function isEvalCallback(text: string): boolean {
  return /(?:ggml_debug|common_debug_cb_eval): +\S.* = \(/.test(text);
}

/**
 * Reads a text. A pass begins where the first tensor comes again.
 *
 * @throws {RopewalkError} FORMAT when it has no tensor
 */
export function parseEvalCallback(text: string, where: string): DumpTensor[] {
  const found: DumpTensor[] = [];
  let first: string | undefined;
  let step = 0;
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; at++) {
    const head = HEAD.exec(lines[at]!);
    if (!head) continue;
    const [, name, type, operator, sources, sizes] = head as unknown as string[];
    const key = `${name} ${operator} ${sources!.split('{')[0]}`;
    first ??= key;
    if (key === first && found.length > 0) step++;
    const start = at + 1;
    while (at + 1 < lines.length && !HEAD.test(lines[at + 1]!)) at++;
    const dtype = type as Dtype;
    const shape = sizes!.split(',').map(Number).reverse();
    const count = countClaimed(shape);
    // The values of quantized tensors are not printed.
    if (!DTYPES.includes(dtype) || count === undefined || count === 0) continue;
    const end = at + 1;
    found.push({
      name: name!,
      shape: withoutOnes(shape),
      dtype,
      step,
      partial: true,
      read: async () => {
        if (count > MAX_VALUES) fail('UNSUPPORTED', `${where}: ${name}`, `it has ${count} values, too many to hold.`);
        return valuesOf(lines.slice(start, end).join('\n'), shape, `${where}: ${name}`);
      },
    });
  }
  if (found.length === 0) fail('FORMAT', where, 'it has no tensor of the eval callback of llama.cpp.');
  return found;
}

/** Leaves out the outer sizes of 1, which ggml has up to four dimensions; two stay. */
function withoutOnes(shape: readonly number[]): number[] {
  const first = shape.findIndex((size, at) => size !== 1 || at === shape.length - 2);
  return shape.slice(Math.max(0, first));
}

/** A list of the text: its items before `...`, and those behind it. */
interface Printed {
  readonly items: (Printed | number)[];
  gap?: number;
}

/** Puts the printed values where they belong; the others are NaN. */
function valuesOf(text: string, shape: readonly number[], where: string): Tensor<'f32'> {
  const broken = (): never => fail('FORMAT', where, `its values do not fit its sizes. The text is cut or was edited.`);
  const top: Printed = { items: [] };
  const open = [top];
  for (const [token] of text.replace(/^\s*sum = .*$/gm, '').matchAll(VALUE)) {
    const list = open.at(-1)!;
    if (token === '[') {
      const inner: Printed = { items: [] };
      if (open.length > DEPTH) return broken();
      list.items.push(inner);
      open.push(inner);
    } else if (token === ']') {
      if (open.length === 1) return broken();
      open.pop();
    } else if (token === '...') list.gap = list.items.length;
    else if (open.length === DEPTH + 1) list.items.push(Number(token.replace('inf', 'Infinity').replace('nan', 'NaN')));
    else return broken();
  }
  if (open.length !== 1) return broken();
  const values = new Float32Array(shape.reduce((product, size) => product * size, 1)).fill(Number.NaN);
  const place = (list: Printed | number, at: number, depth: number): void => {
    if (typeof list === 'number') values[at] = list;
    else {
      const { items, gap = items.length } = list;
      const size = shape[depth]!;
      if (list.gap === undefined ? items.length !== size : items.length >= size) broken();
      for (const [n, item] of items.entries())
        place(item, at * shape[depth]! + (n < gap ? n : size - items.length + n), depth + 1);
    }
  };
  place(top, 0, 0);
  return tensorFrom(values, { shape: withoutOnes(shape) });
}
