/** How a kernel cuts its work: blocks, tiles, buffers. @module */
import { fail } from 'ropewalk/backend';
import { checkInteger, readOptions } from 'ropewalk/internal';
import { MAX_BLOCKS, MAX_REPEATS } from '../costs.js';
import type { Tiling } from '../trace.js';

/** Buffers in each queue of kernels that do not take another number: double buffering. */
export const BUFFER_NUM = 2;
/** The parameters of a tiling. */
export const TILING = /* @__PURE__ */ Object.freeze(['blocks', 'tileRows', 'buffers'] as const);
/** The most buffers of a queue that a kernel is asked for; a launch may have 64 in all. */
const MAX_QUEUE_BUFFERS = 16;

/** A tiling whose every number is known. */
export interface KnownTiling {
  readonly blocks: number;
  readonly tileRows: number | undefined;
  readonly buffers: number;
}

/** A parameter in messages: the command's flag. */
function wordOf(name: keyof Tiling): string {
  return name === 'tileRows' ? 'tile' : name;
}

/**
 * Checks a tiling against what a kernel takes.
 *
 * @param given - the caller's
 * @param kernel - its name, for messages
 * @param takes - the parameters that the kernel has
 * @param sizes - rows in all, the most of a tile, and the kernel's own number of blocks
 * @throws {RopewalkError} UNSUPPORTED for a parameter that the kernel does not have, RANGE for a number out of range
 */
export function readTiling(
  given: Tiling | undefined,
  kernel: string,
  takes: readonly (keyof Tiling)[],
  {
    rows,
    tileRows: mostRows,
    blocks: own,
  }: { readonly rows: number; readonly tileRows: number; readonly blocks: number },
): KnownTiling {
  const tiling = readOptions(given ?? {}, 'aicore: tiling', { blocks: true, tileRows: true, buffers: true });
  for (const name of TILING) {
    if (tiling[name] === undefined || takes.includes(name)) continue;
    const has = takes.length > 0 ? `It takes ${takes.map(wordOf).join(', ')}.` : 'It takes none.';
    fail('UNSUPPORTED', `aicore: ${wordOf(name)}`, `the ${kernel} kernel has no such parameter. ${has}`);
  }
  const most = Math.max(1, Math.min(MAX_BLOCKS, rows));
  const blocks = tiling.blocks === undefined ? own : checkInteger(tiling.blocks, 'aicore: blocks', 1, most);
  const { tileRows } = tiling;
  if (tileRows !== undefined) checkInteger(tileRows, 'aicore: tile', 1, Math.max(1, Math.min(MAX_REPEATS, mostRows)));
  const buffers = checkInteger(tiling.buffers ?? BUFFER_NUM, 'aicore: buffers', 1, MAX_QUEUE_BUFFERS);
  return { blocks, tileRows, buffers };
}
