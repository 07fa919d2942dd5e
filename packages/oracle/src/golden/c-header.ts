/**
 * Golden cases as C99 headers, written and read: static arrays for targets without a file system.
 *
 * Floats are unions of their bits and their values, so that any compiler keeps NaN and the last bit. C99 has no f16 and
 * bf16, which are `uint16_t` bits.
 *
 * @module
 */
import { type Dtype, type HostArray, isFloat, sizeBytes, type Tensor } from 'ropewalk';
import { fail, newArray, refuse } from 'ropewalk/backend';
import { bitsOf, decodeUtf8 } from 'ropewalk/internal';
import type { GoldenCase } from './case.js';

/** Returns the type of an array's elements, or a union with `%` for the size. */
function cType(dtype: Dtype): string {
  if (dtype === 'f64') return 'union { uint64_t bits[%]; double values[%]; }';
  if (dtype === 'f32') return 'union { uint32_t bits[%]; float values[%]; }';
  return `${dtype.startsWith('i') ? '' : 'u'}int${8 * sizeBytes(dtype)}_t`;
}
/** The numbers on a line, which stays below 140 columns. */
const PER_LINE = 10;

/** Makes a C identifier of a case's id, with `_` for characters that C does not allow. */
export function cPrefix(id: string): string {
  const name = id.replace(/[^A-Za-z0-9]/g, '_');
  return /^[0-9]/.test(name) ? `case_${name}` : name;
}

/** Writes a header. `bounds` go by tensor name, `allowed` says what they allow, and `generator` is named. */
export function writeHeader(
  c: GoldenCase,
  bounds: ReadonlyMap<string, Tensor>,
  allowed: string,
  generator: string,
): string {
  const prefix = cPrefix(c.id);
  const guard = `${prefix.toUpperCase()}_H`;
  const attributes = JSON.stringify(c.attributes);
  const lines = [
    `/* ${comment(`${c.id}: ${c.about} Written by ${generator}.`)} */`,
    `#ifndef ${guard}`,
    `#define ${guard}`,
    '',
    '#include <stdint.h>',
    '',
    `/* ${c.op}. Attributes: ${comment(attributes)} */`,
    bounds.size > 0
      ? `/* An element of an output may be as far off as its _bound says: ${comment(allowed)}. NaN and infinities are equal. */`
      : '/* Every bit of an output is equal. */',
  ];
  for (const [title, tensors] of [
    ['input', c.inputs],
    ['expected output', c.outputs],
    ['allowed difference', bounds],
  ] as const) {
    for (const [name, tensor] of tensors) lines.push('', ...declare(prefix, name, tensor, title));
  }
  lines.push('', `#endif /* ${guard} */`, '');
  return lines.join('\n');
}

function declare(prefix: string, name: string, tensor: Tensor, title: string): string[] {
  const count = tensor.size;
  const size = String(Math.max(1, count)); // C has no empty array.
  const type = cType(tensor.dtype);
  const union = type.startsWith('union');
  const values = count === 0 ? ['0'] : spell(tensor);
  const rows: string[] = [];
  for (let at = 0; at < values.length; at += PER_LINE) rows.push(`  ${values.slice(at, at + PER_LINE).join(', ')},`);
  const note = tensor.dtype === 'f16' || tensor.dtype === 'bf16' ? `, bits of ${tensor.dtype}` : '';
  const shape = tensor.shape.length > 0 ? tensor.shape.join(', ') : '1';
  return [
    `/* ${title} ${name}: ${tensor.dtype} [${tensor.shape.join(', ')}]${note} */`,
    `enum { ${prefix}_${name}_rank = ${tensor.shape.length}, ${prefix}_${name}_count = ${count} };`,
    `static const int64_t ${prefix}_${name}_shape[] = { ${shape} };`,
    `static const ${type.replaceAll('%', size)} ${prefix}_${name}${union ? '' : `[${size}]`} = {${union ? '{' : ''}`,
    ...rows,
    union ? '}};' : '};',
  ];
}

/** Spells elements for C: floats by their bits, integers by their values. */
function spell(tensor: Tensor): string[] {
  const data = tensor.read() as HostArray;
  if (!isFloat(tensor.dtype)) return Array.from(data as ArrayLike<number | bigint>, integer);
  const digits = data.BYTES_PER_ELEMENT * 2;
  return Array.from(
    bitsOf(data) as ArrayLike<number | bigint>,
    (bits) => `0x${bits.toString(16).padStart(digits, '0')}${digits === 16 ? 'u' : ''}`,
  );
}

/** Spells an integer. C99 takes the first type that fits, except for int64's least number and those above int64. */
function integer(value: number | bigint): string {
  if (value === -(2n ** 63n)) return LEAST_INT64;
  if (value > 2n ** 63n - 1n) return `${value}u`;
  return String(value);
}

/** Makes a text fit for a comment of a C99 source: ASCII that does not end the comment. */
function comment(text: string): string {
  return text
    .replaceAll('*/', '* /')
    .replaceAll('/*', '/ *')
    .replace(/[^\x20-\x7e]/g, (c) => ASCII[c] ?? '?');
}

const ASCII: Readonly<Record<string, string>> = {
  '×': 'x',
  '·': '*',
  '−': '-',
  '…': '...',
  '√': 'sqrt',
  '→': '->',
  θ: 'theta',
  '⌊': 'floor(',
  '⌋': ')',
};

/** The headers that we write have a few megabytes. */
const MAX_HEADER_BYTES = 2 ** 28;

/** Reads an array from a header that {@link writeHeader} wrote. `name` is the tensor's, without the case's. */
export function parseHeaderArray(bytes: Uint8Array, name: string, dtype: Dtype, where: string): HostArray {
  if (bytes.length > MAX_HEADER_BYTES) refuse('FORMAT', where, `at most ${MAX_HEADER_BYTES} bytes`, bytes.length);
  const text = decodeUtf8(bytes, where);
  const count = Number(
    new RegExp(`\\b\\w+_${name}_count = (\\d{1,10}) `).exec(text)?.[1] ??
      fail('FORMAT', where, `it has no count of ${name}`),
  );
  const open = new RegExp(`^static const .*\\b(?!\\w+_shape\\b)\\w+_${name}(?:\\[\\d+\\])? = \\{\\{?$`, 'm').exec(text);
  if (!open) fail('FORMAT', where, `it has no array ${name}`);
  const start = open.index + open[0].length;
  const end = text.indexOf('}', start);
  if (end < 0) fail('FORMAT', `${where}: ${name}`, 'this array has no end. The file is truncated.');
  const items = text.slice(start, end).split(',');
  const words = items.map((word) => word.trim()).filter((word) => word !== '');
  if (count === 0) return newArray(dtype, 0);
  if (words.length !== count) refuse('FORMAT', `${where}: ${name}`, `${count} numbers`, words.length);
  const data = newArray(dtype, count);
  const bits = isFloat(dtype) ? bitsOf(data) : data;
  for (const [n, word] of words.entries()) {
    const value = integerFrom(word, `${where}: ${name}`);
    if (bits instanceof BigUint64Array || bits instanceof BigInt64Array) bits[n] = value;
    else bits[n] = Number(value);
    if (BigInt(bits[n]!) !== value) refuse('FORMAT', `${where}: ${name}[${n}]`, `a number that ${dtype} holds`, word);
  }
  return data;
}

const LEAST_INT64 = '(-INT64_C(9223372036854775807) - 1)';

function integerFrom(word: string, where: string): bigint {
  if (word === LEAST_INT64) return -(2n ** 63n);
  const match = /^(-?)(0x[0-9a-f]{1,16}|\d{1,20})u?$/.exec(word) ?? refuse('FORMAT', where, 'a C integer', word);
  const value = BigInt(match[2]!);
  return match[1] === '-' ? -value : value;
}
