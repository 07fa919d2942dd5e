/** Checks the arguments of AscendC's calls before they do anything: kernels are other people's code. @module */
import { refuse } from 'ropewalk/backend';
import { checkInteger, reading } from 'ropewalk/internal';
import { UB_BYTES } from './costs.js';
import { QUEUES } from './trace.js';

/** Refuses a value; `where` names the call and the argument. {@link checkArguments} refuses a proxy that throws. */
export type Check = (value: unknown, where: string) => void;

/** No call works on more elements than the unified buffer has bytes. */
const MAX_ELEMENTS = UB_BYTES;
/** Addresses have 32 bits on the device. */
const MAX_OFFSET = 2 ** 31;

const integer =
  (least: number, most: number): Check =>
  (value, where) =>
    void checkInteger(value, `aicore: ${where}`, least, most);
const oneOf =
  (...allowed: readonly unknown[]): Check =>
  (value, where) => {
    if (!allowed.includes(value)) refuse('RANGE', `aicore: ${where}`, `one of ${allowed.join(', ')}`, value);
  };
/** An object whose fields are checked; a field with `?` may be missing. */
function fields(checks: Readonly<Record<string, Check>>): Check {
  const list = Object.entries(checks).map(([key, check]) => ({
    name: key.replace('?', ''),
    check,
    optional: key.endsWith('?'),
  }));
  return (value, where) => {
    if (typeof value !== 'object' || value === null)
      refuse('RANGE', `aicore: ${where}`, `an object { ${Object.keys(checks).join(', ')} }`, value);
    for (const { name, check, optional } of list) {
      const field = (value as Record<string, unknown>)[name];
      if (field !== undefined || !optional) check(field, `${where}: ${name}`);
    }
  };
}

/** The text that stands for the kernel's statement. */
export const line: Check = (value, where) => {
  if (typeof value !== 'string')
    refuse('RANGE', `aicore: ${where}`, 'a text that names the statement, the first argument of the call', value);
};
export const number: Check = (value, where) => {
  if (typeof value !== 'number') refuse('RANGE', `aicore: ${where}`, 'a number', value);
};
export const count: Check = integer(0, MAX_ELEMENTS);
export const someElements: Check = integer(1, MAX_ELEMENTS);
/** The number of one of GatherMask's patterns. */
export const pattern: Check = integer(1, 7);
export const offset: Check = integer(-MAX_OFFSET, MAX_OFFSET);
export const bytes: Check = integer(1, MAX_OFFSET);
export const queue: Check = oneOf(...QUEUES);
export const barrier: Check = oneOf('V', 'MTE2', 'MTE3', 'ALL');
export const position: Check = oneOf('VECIN', 'VECOUT');
export const laneType: Check = oneOf('f16', 'bf16', 'f32', 'u16', 'u32');
const lanes: Check = (value, where) => {
  if (typeof value === 'number') integer(0, 128)(value, where);
  else if (!(Array.isArray(value) && value.length === 2 && value.every((bits) => typeof bits === 'bigint')))
    refuse('RANGE', `aicore: ${where}`, 'a number of lanes or two bigints of 64 bits', value);
};
const repeats: Check = fields({
  mask: lanes,
  repeats: integer(0, 255),
  strides: fields({ dst: offset, src0: offset, 'src1?': offset }),
});
export const countOrRepeats: Check = (value, where) => (typeof value === 'object' ? repeats : count)(value, where);
/** The largest gap between two rows; AscendC's fields have 32 bits. */
const gap: Check = integer(0, MAX_OFFSET);
const copyFields: Check = fields({
  blockCount: integer(1, 4095),
  blockLen: integer(1, 2097151),
  srcStride: gap,
  dstStride: gap,
});
export const copy: Check = (value, where) => {
  copyFields(value, where);
  const { blockCount, blockLen } = value as { blockCount: number; blockLen: number };
  checkInteger(blockCount * blockLen, `aicore: ${where}: blockCount × blockLen`, 1, 16 * UB_BYTES);
};
export const reduce: Check = fields({
  mask: integer(1, 128),
  repeats: integer(0, 255),
  dstRepStride: gap,
  srcRepStride: gap,
});
export const gatherMask: Check = fields({
  repeatTimes: integer(0, 4095),
  src0RepeatStride: gap,
  'src1RepeatStride?': gap,
});

/** Takes an object of a class. The class comes by a function, because it may not be defined yet. */
export const instance =
  (type: () => abstract new (...args: never) => object, words: string): Check =>
  (value, where) => {
    if (!(value instanceof type())) refuse('RANGE', `aicore: ${where}`, words, value);
  };

/** Puts the checks of its arguments, by their names in order, before each method of a class. */
export function checkArguments(
  prototype: object,
  calls: Readonly<Record<string, Readonly<Record<string, Check>>>>,
): void {
  for (const [name, checks] of Object.entries(calls)) {
    const method = Reflect.get(prototype, name) as (...args: unknown[]) => unknown;
    const list = Object.entries(checks).map(([argument, check]) => ({ where: `${name}: ${argument}`, check }));
    const checked = function (this: unknown, ...args: unknown[]): unknown {
      let i = 0;
      try {
        for (; i < list.length; i++) list[i]!.check(args[i], list[i]!.where);
      } catch (error) {
        reading(`aicore: ${list[i]!.where}`, () => {
          throw error;
        });
      }
      return Reflect.apply(method, this, args);
    };
    Object.defineProperty(prototype, name, { value: checked, writable: true, configurable: true });
  }
}
