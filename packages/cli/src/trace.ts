/** `ropewalk trace`: where two runs of a model part, and why. @module */
import { writeOutput } from '@ropewalk/formats/internal/node';
import { type TraceReport, traceDumps, traceLines, traceToJson } from '@ropewalk/trace/internal';
import { openDump } from '@ropewalk/trace/internal/node';
import { fail } from 'ropewalk/backend';
import { escapeMarkup } from 'ropewalk/internal';
import { Flags, type Texts } from './options.js';
import { EXIT, openPercentBar, printable, printResult } from './output.js';
import { type TraceRecordOptions, traceRecord } from './trace-record.js';

export type TraceOptions = TraceRecordOptions & Texts<'junit'>;

/**
 * @param a - a dump, or the word `record`
 * @returns 0 when no tensor leaves the noise, else 1
 */
export async function trace(a: string, b: string | undefined, options: TraceOptions): Promise<number> {
  if (a === 'record') {
    if (b !== undefined) fail('FORMAT', 'record', 'it takes no second name. Give the model with -m, the text with -p.');
    return traceRecord(options);
  }
  if (b === undefined) fail('FORMAT', 'b', 'it is missing. Name two dumps: ropewalk trace A B.');
  new Flags(options).refuseAllBut(['json', 'junit'], 'two dumps, only to trace record');
  const ours = await openDump(a);
  const theirs = await openDump(b);
  const bar = openPercentBar('of the tensors', options.json);
  const report = await traceDumps(ours, theirs, (done) => bar.to(done)).finally(async () => {
    bar.stop();
    await Promise.all([ours.close(), theirs.close()]);
  });
  if (options.junit !== undefined) writeOutput(options.junit, toJunit(report), '--junit');
  printResult(options.json, {
    json: () => traceToJson(report) as object,
    lines: () => traceLines(report).map(printable),
  });
  return report.divergence ? EXIT.failed : EXIT.ok;
}

/** One test case for each tensor of both sides; the first divergence fails, and what follows it is skipped. */
function toJunit({ steps, divergence }: TraceReport): string {
  const text = (value: string): string => escapeMarkup(printable(value));
  const why = divergence?.causes.map(({ says }) => says).join(' ') || 'No cause is known.';
  const inner = { diverges: `<failure message="${text(why)}"/>`, after: '<skipped/>' } as Readonly<
    Record<string, string>
  >;
  const count = (state: string): number => steps.filter((step) => step.state === state).length;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="ropewalk trace" tests="${steps.length}" failures="${count('diverges')}" skipped="${count('after')}">`,
    ...steps.map(
      ({ name, state }) => `  <testcase classname="trace" name="${text(name)}">${inner[state] ?? ''}</testcase>`,
    ),
    '</testsuite>',
    '',
  ].join('\n');
}
