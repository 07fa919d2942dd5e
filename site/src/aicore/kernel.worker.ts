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
