/** Searches the best tiling of a kernel for a shape, by running it. @module */
import { refuse } from 'ropewalk/backend';
import { readOptions } from 'ropewalk/internal';
import { HEADS, loadCycles, storeCycles } from './costs.js';
import { ropeKernel } from './kernels/run.js';
import { type MeasuredCall, type MeasuredKernel, type MeasureOptions, prepareRope } from './measure.js';
import type { KernelName, KernelRun, Tiling } from './trace.js';

/** One tiling that was tried. */
export interface TriedTiling {
  readonly tiling: Tiling;
  readonly cycles: number;
  /** The kinds of its findings; a tiling with findings cannot be the best. */
  readonly findings: readonly string[];
}

/** The result of {@link searchTiling}. */
export interface TilingSearch {
  readonly best: Tiling;
  readonly measured: MeasuredKernel;
  /** All tilings in the order of the search; the first is the kernel's own choice. */
  readonly tried: readonly TriedTiling[];
  /** The fewest cycles that loads and stores of the rows alone take on these cores, with the heads. */
  readonly limitCycles: number;
}

/**
 * Searches the tiling with the fewest cycles: one parameter after the other, until no change of one helps. The same
 * call gives the same answer.
 *
 * @param kernel - a kernel whose declaration `takes` a tiling
 * @param options - `onTry` is called after each run
 * @throws {RopewalkError} UNSUPPORTED for a kernel without a tiling; as measureRopeKernel otherwise
 */
export function searchTiling(
  kernel: KernelName,
  call: MeasuredCall,
  options: Pick<MeasureOptions, 'chip' | 'cores'> & { readonly onTry?: (tried: TriedTiling) => void } = {},
): TilingSearch {
  const { onTry, chip, cores } = readOptions(options, 'aicore: options', { onTry: true, chip: true, cores: true });
  if (onTry !== undefined && typeof onTry !== 'function') refuse('RANGE', 'aicore: onTry', 'a function', onTry);
  const { takes = [] } = ropeKernel(kernel);
  if (takes.length === 0) refuse('UNSUPPORTED', 'aicore: search', 'a kernel that takes a tiling', kernel, 'Give fast.');
  const rope = prepareRope(call);
  const tried = new Map<string, TriedTiling>();
  const run = (tiling: Tiling): MeasuredKernel | undefined => {
    const key = JSON.stringify(tiling);
    if (tried.has(key)) return undefined; // it was not the best then
    const measured = rope.measure(kernel, { chip, cores, tiling });
    const findings = measured.run.findings.map(({ kind }) => kind);
    const one = { tiling, cycles: measured.run.cycles, findings };
    tried.set(key, one);
    onTry?.(one);
    return measured;
  };
  const cyclesOf = ({ run: { findings, cycles } }: MeasuredKernel): number => (findings.length > 0 ? Infinity : cycles);
  const first = run({})!;
  let [best, measured] = [{} as Tiling, first];
  const steps: { readonly [P in keyof Required<Tiling>]: readonly number[] } = {
    tileRows: powersTo(Math.min(255, rope.heads)),
    buffers: [1, 2, 3, 4],
    blocks: [1, 2, 4, 8].map((part) => Math.ceil(first.run.blockCount / part)).filter((n) => n <= first.rows),
  };
  for (let better = true; better; ) {
    better = false;
    for (const name of ['tileRows', 'buffers', 'blocks'] as const) {
      if (!takes.includes(name)) continue;
      for (const value of steps[name]) {
        const tiling = { ...best, [name]: value };
        const next = run(tiling);
        if (!next || cyclesOf(next) >= cyclesOf(measured)) continue;
        [best, measured, better] = [tiling, next, true];
      }
    }
  }
  return { best, measured, tried: [...tried.values()], limitCycles: limitOf(first.run) };
}

function powersTo(most: number): number[] {
  const list: number[] = [];
  for (let n = 1; n < most; n *= 2) list.push(n);
  return [...list, most];
}

/** Computes the cycles of loads and stores of the fewest bytes, in one copy a core, at the same time. */
function limitOf({ bytes, blockCount }: KernelRun): number {
  const share = (n: number): number => n / Math.max(1, blockCount);
  const load = loadCycles(share(bytes.least.load), blockCount);
  const store = storeCycles(share(bytes.least.store), share(bytes.least.store), 1, blockCount);
  return HEADS.operator + HEADS.mte2(blockCount, false) + Math.max(load, store);
}
