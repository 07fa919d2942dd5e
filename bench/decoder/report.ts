/**
 * Prints a table of tokens per second, and the time of each operator.
 *
 * @module
 */
import type { Machine } from '@ropewalk/bench/internal/node';
import type { DecoderSession, Load, Pace, Result } from './measure.js';
import type { Profile } from './ours.js';

/** A model and its results in Node and in browsers. */
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
 * @param report - the results of all models
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
    lines.push('', `${model}, ${(sizeBytes / 1e6).toFixed(1)} MB`, '', ...table(sessions), ...loadTable(sessions));
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
    workloads.flatMap(({ prompt, steps, results }) => {
      const peer = results.find(({ contender }) => !contender.startsWith('ropewalk'));
      return results.map((result, n) => [
        n === 0 ? `${where}, threads ${threads}` : '',
        result.contender,
        String(prompt),
        paceCell(result.prefill),
        result === peer || !peer ? '' : ratio(result.prefill, peer.prefill),
        String(steps),
        paceCell(result.decode),
        result === peer || !peer ? '' : ratio(result.decode, peer.decode),
        agreedCell(result),
      ]);
    }),
  );
  return lined(
    ['where', 'library', 'prompt', 'tokens/s', 'of llama.cpp', 'steps', 'tokens/s', 'of llama.cpp', 'same tokens'],
    rows,
  );
}

/** Makes the table of loading times and memory. */
function loadTable(sessions: readonly DecoderSession[]): string[] {
  const cells = (load: Load | undefined): string[] =>
    load ? [`${(load.loadMs / 1000).toFixed(2)} s`, `${Math.round(load.peakBytes / 1e6)} MB`] : ['', ''];
  const rows = sessions.flatMap(({ where, threads, loads = [] }) =>
    loads.map(({ contender, first, again }, n) => [
      n === 0 ? `${where}, threads ${threads}` : '',
      contender,
      ...cells(first),
      ...cells(again),
    ]),
  );
  if (rows.length === 0) return [];
  return ['', ...lined(['where', 'library', 'first load', 'peak', 'next load', 'peak'], rows)];
}

/** Aligns rows under headings. The first two columns are aligned to the left. */
function lined(headings: readonly string[], rows: readonly (readonly string[])[]): string[] {
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
