/**
 * Tokens a second as a table, and where the time goes.
 *
 * @module
 */
import type { Machine } from '../report.js';
import type { DecoderSession, Pace, Result } from './measure.js';
import type { Profile } from './ours.js';

/** A model, and what became of it everywhere. */
export interface ModelReport {
  readonly model: string;
  readonly sizeBytes: number;
  readonly sessions: readonly DecoderSession[];
}

/** The content of a results file. */
export interface DecoderReport {
  readonly machine: Machine;
  readonly quick: boolean;
  readonly models: readonly ModelReport[];
}

/**
 * Writes the whole report as text.
 *
 * @param report - of all models
 */
export function printDecoderReport({ machine, quick, models }: DecoderReport): string {
  const lines = [
    `${machine.cpu}, ${machine.cores} cores, ${machine.platform}, Node ${machine.node}, commit ${machine.commit}, ${machine.date}`,
  ];
  if (quick) lines.push('--quick: one short run each. These times say nothing about speed.');
  const setups = new Set(
    models.flatMap(({ sessions }) =>
      sessions.flatMap(({ setups }) => Object.entries(setups).map(([k, v]) => `${k}: ${v}`)),
    ),
  );
  lines.push(...setups);
  for (const { model, sizeBytes, sessions } of models) {
    lines.push('', `${model}, ${(sizeBytes / 1e6).toFixed(1)} MB`, '', ...table(sessions));
    for (const { where, threads, profile, workloads } of sessions) {
      if (!profile) continue;
      const { prompt } = workloads[0]!;
      lines.push(
        '',
        `Where the time goes, ${where}, threads ${threads}, decode after a prompt of ${prompt}:`,
        ...operators(profile.decode),
      );
      lines.push(`and prefill of ${prompt}:`, ...operators(profile.prefill));
    }
  }
  return lines.join('\n');
}

function table(sessions: readonly DecoderSession[]): string[] {
  const rows = sessions.flatMap(({ where, threads, workloads }) =>
    workloads.flatMap(({ prompt, steps, results }) =>
      results.map((result, n) => [
        n === 0 ? `${where}, threads ${threads}` : '',
        result.contender,
        String(prompt),
        paceCell(result.prefill),
        n === 0 ? '' : ratio(results[0]!.prefill, result.prefill),
        String(steps),
        paceCell(result.decode),
        n === 0 ? '' : ratio(results[0]!.decode, result.decode),
        agreedCell(result),
      ]),
    ),
  );
  const headings = [
    'where',
    'library',
    'prompt',
    'tokens/s',
    'ours/theirs',
    'steps',
    'tokens/s',
    'ours/theirs',
    'same tokens',
  ];
  const widths = headings.map((heading, column) => Math.max(heading.length, ...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => (column < 2 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join('  ')
      .trimEnd();
  return [line(headings), ...rows.map(line)];
}

function paceCell({ median, slowest, fastest }: Pace): string {
  return `${rate(median)} (${rate(slowest)}–${rate(fastest)})`;
}

function ratio(ours: Pace, theirs: Pace): string {
  return `${(ours.median / theirs.median).toFixed(2)}×`;
}

function agreedCell({ agreed }: Result): string {
  return agreed ? `${agreed.tokens} of ${agreed.of}` : '';
}

function rate(value: number): string {
  return value >= 100 ? Math.round(value).toLocaleString('en-US') : value.toPrecision(3);
}

function operators({ tokens, ms, operators }: Profile): string[] {
  const inside = operators.reduce((sum, operator) => sum + operator.ms, 0);
  const lines = operators.map(({ name, calls, ms: own, weightBytes, flops }) => {
    const speed =
      weightBytes > 0
        ? `${(weightBytes / own / 1e6).toFixed(1)} GB/s of weights, ${(flops / own / 1e6).toFixed(1)} GFLOP/s`
        : '';
    return [name, calls, own, speed] as const;
  });
  const read = operators.reduce((sum, { weightBytes }) => sum + weightBytes, 0) / tokens;
  const outside = ['between operators', tokens, ms - inside, ''] as const;
  const longest = Math.max(...[...lines, outside].map(([name]) => name.length));
  const timed = [...lines, outside].map(([name, calls, own, speed]) =>
    `  ${name.padEnd(longest)} ${((100 * own) / ms).toFixed(1).padStart(5)} %  ${((1000 * own) / calls).toFixed(1).padStart(9)} µs × ${String(calls).padEnd(5)} ${speed}`.trimEnd(),
  );
  return [...timed, `  weights read: ${(read / 1e6).toFixed(2)} MB a token`];
}
