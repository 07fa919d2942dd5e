/** The declaration of a kernel: what it computes, on which arguments, by which statements. @module */
import type { FloatDtype } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, readList, readName, readOptions } from 'ropewalk/internal';
import type { AscendC } from '../ascendc.js';
import type { Tiling } from '../trace.js';

/** The dtypes that vector kernels take: the unit has no f64 arithmetic. */
export type KernelDtype = Exclude<FloatDtype, 'f64'>;

/** The dtypes of kernels, in the order of reports. */
export const KERNEL_DTYPES: readonly KernelDtype[] = /* @__PURE__ */ Object.freeze(['f16', 'bf16', 'f32'] as const);

/** The parameters of a tiling, each with its word in messages. */
export const TILING_WORDS = /* @__PURE__ */ Object.freeze({ blocks: 'blocks', tileRows: 'tile', buffers: 'buffers' });

/** Buffers in each queue of kernels that do not take another number: double buffering. */
export const BUFFER_NUM = 2;

/** A tiling whose every number is known. */
export interface KnownTiling {
  /** Blocks that are launched. */
  readonly blocks: number;
  /** Rows of a tile; undefined where the caller left it to the kernel. */
  readonly tileRows: number | undefined;
  /** Buffers of each queue. */
  readonly buffers: number;
}

/** The operators that a kernel can be judged by, and the roles of their tensors; `out` is written, the others read. */
export const ROLES = /* @__PURE__ */ Object.freeze({
  add: ['a', 'b', 'out'],
  rms_norm: ['x', 'weight', 'out'],
  swiglu: ['gate', 'up', 'out'],
  softmax: ['x', 'out'],
  rope: ['x', 'cos', 'sin', 'positions', 'out'],
} as const);

/** An operator that a kernel can be judged by. */
export type KernelOperator = keyof typeof ROLES;

/** The arguments of a kernel of rows, beside its tensors by their names. All tensors are dense. */
export interface RowFacts extends KnownTiling {
  readonly dtype: KernelDtype;
  /** Bytes of an element. */
  readonly size: number;
  readonly rows: number;
  /** Elements of a row. */
  readonly length: number;
  /** The number that rms_norm adds to the mean of the squares. */
  readonly eps: number;
}

/**
 * A kernel for the modelled core: the default export of an engineer's file, and how the kernels here are declared.
 *
 * `Args` are the operator's facts ({@link RowFacts}, or RopeArgs for rope) and the tensors by the names of `arguments`.
 *
 * @example
 * export default {
 *   name: 'vector-add', operator: 'add', dtypes: ['f16'], arguments: { x: 'a', y: 'b', z: 'out' },
 *   kernel(c, { x, y, z, rows, length, blocks }) { … },
 * };
 */
export interface KernelDeclaration<Args = never> {
  /** A name for reports. */
  readonly name: string;
  /** The operator whose result, in float64, is right. */
  readonly operator: KernelOperator;
  readonly dtypes: readonly KernelDtype[];
  /** The kernel's name of each tensor, and its role in the operator: every role of the operator once. */
  readonly arguments: { readonly [name: string]: string };
  /** Blocks to launch. Default: as many as there are cores, but no more than rows. */
  readonly blocks?: number | ((args: Omit<Args, keyof Tiling>, cores: number) => number);
  /** The numbers of a tiling that it obeys. Default: none. */
  readonly takes?: readonly (keyof Tiling)[];
  /** Whether the compiler synchronises automatically. Default: true. */
  readonly autoSync?: boolean;
  /** Says why it does not take a call: the rest of a sentence that starts with the kernel; undefined when it does. */
  readonly whyNot?: (args: Args) => string | undefined;
  /** Runs one block, by AscendC's calls. */
  readonly kernel: (c: AscendC, args: Args) => void;
}

const NAMES: OptionNames<KernelDeclaration> = /* @__PURE__ */ optionNames(
  'name operator dtypes arguments blocks takes autoSync whyNot kernel',
);

/** Freezes a declaration, and hides the type of its arguments. */
export function declareKernel<Args>(kernel: KernelDeclaration<Args>): KernelDeclaration {
  return Object.freeze(kernel);
}

/**
 * Checks a declaration, such as a file's default export.
 *
 * @param given - anything
 * @returns the declaration, with its fields read once
 * @throws {RopewalkError} RANGE, DTYPE or UNSUPPORTED, naming the field
 */
export function readKernel(given: unknown): KernelDeclaration {
  const where = 'aicore: kernel';
  if (typeof given !== 'object' || given === null)
    refuse('RANGE', where, 'an object { name, operator, dtypes, arguments, kernel }', given);
  const declared = readOptions(given as KernelDeclaration, where, NAMES);
  const { name, blocks, autoSync, whyNot, kernel } = declared;
  const takes = Array.from(readList(declared.takes ?? [], `${where}: takes`));
  for (const name of takes) readName(name, Object.keys(TILING_WORDS) as (keyof Tiling)[], `${where}: takes`);
  if (typeof name !== 'string' || name === '') refuse('RANGE', `${where}: name`, 'a name for reports', name);
  const operator = readName(declared.operator, Object.keys(ROLES) as KernelOperator[], `${where}: operator`);
  const dtypes = Array.from(readList(declared.dtypes, `${where}: dtypes`));
  if (dtypes.length === 0) refuse('DTYPE', `${where}: dtypes`, 'one dtype or more of f16, bf16, f32', dtypes);
  for (const dtype of dtypes) readName(dtype, KERNEL_DTYPES, `${where}: dtypes`);
  const roles: readonly string[] = ROLES[operator];
  const names = readOptions(declared.arguments, `${where}: arguments`);
  const wanted = `each of the roles ${roles.join(', ')} of ${operator} once, as { name: role }`;
  const listed = Object.values(names);
  if (listed.length !== roles.length || !roles.every((role) => listed.includes(role)))
    refuse('RANGE', `${where}: arguments`, wanted, listed);
  if (typeof kernel !== 'function') refuse('RANGE', `${where}: kernel`, 'a function of (c, args)', kernel);
  // The text tells an async function or a generator of any realm.
  const kind = Object.prototype.toString.call(kernel);
  if (kind !== '[object Function]')
    refuse('RANGE', `${where}: kernel`, 'a function that is synchronous', kind, 'It must not be async or a generator.');
  if (whyNot !== undefined && typeof whyNot !== 'function') refuse('RANGE', `${where}: whyNot`, 'a function', whyNot);
  if (autoSync !== undefined && typeof autoSync !== 'boolean')
    refuse('RANGE', `${where}: autoSync`, 'true or false', autoSync);
  if (blocks !== undefined && typeof blocks !== 'function' && !Number.isInteger(blocks))
    refuse('RANGE', `${where}: blocks`, 'a number, or a function of the facts and the cores', blocks);
  return { name, operator, dtypes, arguments: names, blocks, takes, autoSync, whyNot, kernel };
}
