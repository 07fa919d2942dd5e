/** How a kernel is declared: what it computes, on which arguments, by which statements. @module */
import type { FloatDtype } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, readList, readName, readOptions } from 'ropewalk/internal';
import type { AscendC } from '../ascendc.js';
import type { Tiling } from '../trace.js';
import { TILING } from './tiling.js';

/** The dtypes that vector kernels take: the unit has no f64 arithmetic. */
export type KernelDtype = Exclude<FloatDtype, 'f64'>;

/** The dtypes of kernels, in the order of reports. */
export const KERNEL_DTYPES: readonly KernelDtype[] = /* @__PURE__ */ Object.freeze(['f16', 'bf16', 'f32'] as const);

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

/** What a kernel of rows gets, beside its tensors by their names. All tensors are dense. */
export interface RowFacts {
  readonly dtype: KernelDtype;
  /** Bytes of an element. */
  readonly size: number;
  /** Rows of the tensors, and the elements of one. */
  readonly rows: number;
  readonly length: number;
  /** Blocks that are launched; rows of a tile, where the caller chose; buffers of each queue. */
  readonly blocks: number;
  readonly tileRows: number | undefined;
  readonly buffers: number;
  /** rms_norm: what is added to the mean of the squares. */
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
  /** For reports. */
  readonly name: string;
  /** Which result is right: the operator's, in float64. */
  readonly operator: KernelOperator;
  readonly dtypes: readonly KernelDtype[];
  /** The kernel's name of each tensor, and its role in the operator: every role of the operator once. */
  readonly arguments: { readonly [name: string]: string };
  /** Blocks to launch; as many as there are cores, but no more than rows, unless given. */
  readonly blocks?: number | ((args: Omit<Args, keyof Tiling>, cores: number) => number);
  /** What of a tiling it obeys; nothing unless given. */
  readonly takes?: readonly (keyof Tiling)[];
  /** The compiler's automatic synchronisation; on unless given. */
  readonly autoSync?: boolean;
  /** What it does not take: the rest of a sentence that starts with the kernel; undefined when it takes the call. */
  readonly whyNot?: (args: Args) => string | undefined;
  /** What one block does: AscendC's calls. */
  readonly kernel: (c: AscendC, args: Args) => void;
}

const NAMES: OptionNames<KernelDeclaration> = {
  name: true,
  operator: true,
  dtypes: true,
  arguments: true,
  blocks: true,
  takes: true,
  autoSync: true,
  whyNot: true,
  kernel: true,
};

/** Freezes a declaration whose arguments are known. */
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
  for (const name of takes) readName(name, TILING, `${where}: takes`);
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
  // Of any realm: an async function, a generator or both.
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
