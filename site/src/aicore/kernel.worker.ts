/** Runs kernels on the modelled AI Core, and keeps the last run for its timeline. @module */
import {
  type ChipName,
  chromeTrace,
  type KernelName,
  type MeasuredCall,
  type MeasuredKernel,
  measureRopeKernel,
  type Tiling,
  timelineSvg,
} from '@ropewalk/ascend';
import { expose } from 'comlink';

/** The call that is measured. */
export interface Asked {
  readonly kernel: KernelName;
  readonly call: MeasuredCall;
  readonly chip: ChipName;
  readonly cores?: number;
  readonly tiling: Tiling;
}

/** A statement of the kernel, with what it cost in block 0. */
export interface Statement {
  readonly line: string;
  readonly queue: string;
  /** The cycle in which it first started. */
  readonly first: number;
  readonly instructions: number;
  /** The cycles for which it held its queue. */
  readonly cycles: number;
}

let last: MeasuredKernel | undefined;

const kernels = {
  /** Runs a kernel. The page gets its report without the instructions. */
  measure({ kernel, call, ...options }: Asked, onBlock: (done: number, total: number) => void): MeasuredKernel {
    last = undefined;
    let told = performance.now();
    last = measureRopeKernel(kernel, call, {
      ...options,
      record: true,
      onBlock(done, total) {
        if (performance.now() - told < 100) return;
        told = performance.now();
        onBlock(done, total);
      },
    });
    return { ...last, run: { ...last.run, blocks: last.run.blocks.map(({ instructions: _, ...block }) => block) } };
  },

  /** Lists the statements of the last run in the order in which they were first issued. */
  statements(): Statement[] {
    const all = new Map<string, Statement>();
    for (const { line, queue, start, end, count } of last?.run.blocks[0]?.instructions ?? []) {
      const key = `${queue} ${line}`;
      const { first = start, instructions = 0, cycles = 0 } = all.get(key) ?? {};
      all.set(key, { line, queue, first, instructions: instructions + count, cycles: cycles + end - start });
    }
    return [...all.values()];
  },

  /** Draws the last run's timeline between two cycles as an SVG document. */
  timeline(from: number, to: number): string {
    return last ? timelineSvg(last.run, { fromCycle: from, toCycle: to }) : '';
  },

  /** Writes the last run as JSON for Perfetto. */
  trace(): string {
    return last ? chromeTrace(last.run) : '';
  },
};

/** The functions that the page calls. */
export type Kernels = typeof kernels;

expose(kernels);
