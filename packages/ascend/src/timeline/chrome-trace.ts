/**
 * Writes a run's recorded instructions in the Trace Event Format, which Perfetto and chrome://tracing open.
 *
 * @module
 * @see https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format)
 */
import { reading } from 'ropewalk/internal';
import { type KernelRun, QUEUES } from '../trace.js';

/**
 * Writes the recorded blocks: a process for each block, a thread for each queue, times in microseconds at the chip's
 * clock.
 *
 * @param run - the run of a kernel with `record`; blocks without a record are left out
 * @returns JSON
 * @throws {RopewalkError} RANGE for what is no run
 */
export function chromeTrace(run: KernelRun): string {
  return reading('aicore: run', () => traceOf(run));
}

function traceOf(run: KernelRun): string {
  const microseconds = (cycles: number): number => cycles / (run.clockGHz * 1000);
  const events: unknown[] = [];
  for (const block of run.blocks) {
    if (!block.instructions) continue;
    const pid = block.block;
    events.push({ ph: 'M', name: 'process_name', pid, tid: 0, args: { name: `block ${pid}` } });
    for (const [tid, queue] of QUEUES.entries()) {
      events.push({ ph: 'M', name: 'thread_name', pid, tid, args: { name: queue } });
      events.push({ ph: 'M', name: 'thread_sort_index', pid, tid, args: { sort_index: tid } });
    }
    for (const { queue, name, start, end, issue, waitsFor, ...rest } of block.instructions) {
      const { line, bytes, elements, count, conflictCycles } = rest;
      const cycles = { issueCycle: issue, startCycle: start, endCycle: end, conflictCycles };
      events.push({
        ph: 'X',
        name,
        cat: queue,
        pid,
        tid: QUEUES.indexOf(queue),
        ts: microseconds(start),
        dur: microseconds(end - start),
        args: { line, bytes, elements, count, ...cycles, waitsFor: waitsFor?.why },
      });
    }
  }
  const { kernel, dtype, chip, clockGHz, cycles } = run;
  return JSON.stringify({
    displayTimeUnit: 'ns',
    otherData: { kernel, dtype, chip, clockGHz, cycles },
    traceEvents: events,
  });
}
