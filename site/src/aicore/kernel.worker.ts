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
import { KERNELS, type SourceLine, sourceOfBlock0 } from '@ropewalk/ascend/internal';
import { groupBy } from 'ropewalk/internal';

/** The call that is measured. */
export interface Asked {
  readonly kernel: KernelName;
  readonly call: MeasuredCall;
  readonly chip: ChipName;
  readonly cores?: number;
  readonly tiling: Tiling;
}

/** A line of the kernel's text. One that ran in block 0 has what it cost there. */
export interface ProgramLine {
  readonly text: string;
  readonly ran?: {
    readonly queue: string;
    /** The cycle in which it first started. */
    readonly first: number;
    readonly instructions: number;
    /** The cycles for which it held its queue. */
    readonly cycles: number;
  };
}

/** The kernel's text. */
export interface Program {
  readonly lines: readonly ProgramLine[];
  /** The line of each instruction of block 0, by the instruction's index. */
  readonly lineOf: readonly number[];
  /** The reason why the lines are the kernel's statements and not C++. */
  readonly noSource: string | undefined;
}

let last: MeasuredKernel | undefined;
let lastAsked: Asked | undefined;

const kernels = {
  /** Runs a kernel. The page gets its report without the instructions. */
  measure(asked: Asked, onBlock: (done: number, total: number) => void): MeasuredKernel {
    const { kernel, call, ...options } = asked;
    last = undefined;
    lastAsked = asked;
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
    return withoutInstructions(last);
  },

  /** Takes the run of a visitor's kernel for its timeline and lines. The page gets it without the instructions. */
  take(measured: MeasuredKernel): MeasuredKernel {
    [last, lastAsked] = [measured, undefined];
    return withoutInstructions(measured);
  },

  /** Writes what block 0 of the last run did, line by line. */
  program(): Program {
    const records = groupBy(last?.run.blocks[0]?.instructions ?? [], ({ line }) => line);
    let noSource: string | undefined;
    let source: readonly SourceLine[];
    try {
      if (!lastAsked) throw new Error('The text is your own.');
      source = source0(lastAsked);
    } catch (reason) {
      noSource = (reason as Error).message;
      source = [...records.keys()].map((text) => ({ text, call: { statement: text, places: [0] } }));
    }
    const ran = source.flatMap(({ call }, at) => (call?.places ?? []).map((place) => ({ ...call!, place, at })));
    /** The calls of each statement, in the order in which they ran. */
    const calls = groupBy(
      ran.sort((a, b) => a.place - b.place),
      ({ statement }) => statement,
    );
    const lines: ProgramLine[] = source.map(({ text }) => ({ text }));
    const lineOf: number[] = [];
    for (const [statement, own] of records) {
      const all = calls.get(statement) ?? [];
      for (const [n, { index, queue, start, end, count }] of own.entries()) {
        // A call is one instruction, but a run of scalar accesses is one bar. Those of a statement have one line.
        const at = all[Math.floor((n * all.length) / own.length)]?.at;
        if (at === undefined) continue;
        lineOf[index] = at;
        const { text, ran } = lines[at]!;
        const { first = start, instructions = 0, cycles = 0 } = ran ?? {};
        lines[at] = { text, ran: { queue, first, instructions: instructions + count, cycles: cycles + end - start } };
      }
    }
    return { lines, lineOf, noSource };
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

function withoutInstructions({ run, ...measured }: MeasuredKernel): MeasuredKernel {
  return { ...measured, run: { ...run, blocks: run.blocks.map(({ instructions: _, ...block }) => block) } };
}

function source0({ kernel, call, ...how }: Asked): readonly SourceLine[] {
  const { base, rotaryDim, pairing, ...rest } = call;
  const spec = { headDim: call.shape[3], rotaryDim, base, pairing };
  return sourceOfBlock0(KERNELS[kernel]!, { ...rest, spec }, how);
}

/** The functions that the page calls. */
export type Kernels = typeof kernels;

export default kernels;
