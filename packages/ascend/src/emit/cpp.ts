/** Types, names and numbers in C++. @module */
import type { Dtype } from 'ropewalk';
import type { Term } from './fit.js';
import type { Variable } from './record.js';

const TYPES: { readonly [type: string]: string } = {
  ...{ f16: 'half', bf16: 'bfloat16_t', f32: 'float', u16: 'uint16_t', u32: 'uint32_t', i32: 'int32_t' },
  count: 'uint64_t',
};

/** The C++ type of elements, or of a variable. */
export const typeOf = (type: Dtype | Variable['type']): string => TYPES[type]!;

/** Makes an identifier that is like a text. Names of ours are joined to it, so that it cannot be a keyword. */
export function identifier(text: string): string {
  const plain = text.replace(/\W/g, '_');
  return /^[A-Za-z_]/.test(plain) && !/^(__|_[A-Z])/.test(plain) ? plain : `k_${plain}`;
}

/** A number. */
export function literal(value: number): string {
  if (Number.isNaN(value)) return 'NAN';
  if (!Number.isFinite(value)) return value > 0 ? 'INFINITY' : '-INFINITY';
  if (Object.is(value, -0)) return '-0.0f';
  return /[.e]/.test(`${value}`) ? `${value}f` : `${value}.0f`;
}

/** A sum of terms. */
export function sumInWords(terms: readonly Term[]): string {
  const sorted = [...terms].sort((a, b) => Number(a.text === '') - Number(b.text === ''));
  const parts = sorted.map(({ text, factor }, n) => {
    const size = Math.abs(factor);
    const part = text === '' ? `${size}` : size === 1 ? text : `${text} * ${size}`;
    return n === 0 ? (factor < 0 ? `-${part}` : part) : `${factor < 0 ? '-' : '+'} ${part}`;
  });
  return parts.join(' ') || '0';
}
