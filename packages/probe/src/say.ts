/** Writes a report as plain sentences. @module */
import { reading } from 'ropewalk/internal';
import { number } from './hypotheses.js';
import type { ProbeReport } from './probe.js';
import type { SelfReport, Way } from './self.js';

/**
 * Writes what a probe has found as lines of text.
 *
 * @param report - from {@link probe}
 * @returns lines without line ends
 * @throws {RopewalkError} RANGE for a value that is no report
 * @example for (const line of reportLines(report)) console.log(line);
 */
export function reportLines(report: ProbeReport): string[] {
  return reading('reportLines: report', () => linesOf(report));
}

function linesOf(report: ProbeReport): string[] {
  const { server, tokens, singles, rows, noise, difference, temperature, best, second, spans } = report;
  const lines = [
    `server      ${server.about}`,
    `asked       a text of ${tokens} tokens, ${rows} positions of it; ${singles} prompts of one token`,
    '',
    ...verdict(report),
    '',
    `  noise       ${nats(noise)} on prompts of one token, where neither RoPE nor positions count: weights, their precision, what is done with logits`,
    `  difference  ${nats(difference)} in the text, root mean square, to the model as its files say`,
  ];
  if (temperature !== 1 && best?.kind !== 'temperature')
    lines.push(
      `  logits      divided by ${temperature.toPrecision(3)}: the prompts of one token show a temperature; the numbers here are without it`,
    );
  if (best && best.kind !== 'temperature')
    lines.push(`  explained   ${nats(best.left)} are left if the server ${best.says}`);
  if (best?.range) {
    const [below, above] = best.range;
    const shown = [below, above].flatMap((one) => one ?? []).map(number);
    const nearest = shown.length > 0 ? `; the nearest that were tried and are excluded: ${shown.join(' and ')}` : '';
    lines.push(`  number      ${number(best.value!)}${nearest}`);
  }
  const { next, price } = report;
  if (next !== undefined)
    lines.push(
      `  next        a text of ${number(next)} tokens would tell them apart; it takes ${number(price!)} prompt tokens, and is sent at once if a budget has them left`,
    );
  else if (report.verdict === 'one-of')
    lines.push('  next        no text of up to 16 times as many tokens would tell all of them apart');
  if (second) {
    const where = second.tokens === undefined ? '' : ` in the first ${second.tokens} tokens, which exclude it`;
    lines.push(`  excluded    ${nats(second.left)} are left by the next best${where}: the server ${second.says}`);
  }
  const shown = spans.map(({ from, to, difference: all, left }) => {
    return `${from}-${to - 1} ${short(all)}${best && best.kind !== 'temperature' ? ` (${short(left)})` : ''}`;
  });
  lines.push(`  by token    ${shown.join(', ')}`);
  if (report.bases) {
    const shown = report.bases.flatMap((one) => one ?? []).map(number);
    if (shown.length > 0)
      lines.push(`  base        the nearest that were tried and are excluded: ${shown.join(' and ')}`);
  }
  if (report.excluded.length > 0) lines.push(`  excluded    ${listed(report.excluded)}`);
  if (report.unseen.length > 0)
    lines.push(`  not shown   these tokens cannot tell whether the server ${listed(report.unseen)}`);
  return lines;
}

function verdict({ verdict: kind, best, rivals }: ProbeReport): string[] {
  switch (kind) {
    case 'agrees':
      return ['OK: the log-probabilities are those of the model as its files say, up to the noise'];
    case 'named':
      return [`DIFFERENT: the server ${best!.says}`];
    case 'one-of':
      return [
        `ONE OF ${rivals.length + 1}: these tokens cannot tell them apart. The server`,
        ...[best!, ...rivals].map(({ says, left }) => `  ${says} (${nats(left)} are left)`),
      ];
    case 'described':
      return [
        'NOT UNDERSTOOD: the differences are larger than those of single tokens, or grow along the text, and nothing that was tried explains them',
      ];
    case 'other':
      return [
        'NOT UNDERSTOOD: prompts of one token differ so much that these may be other weights, very coarse ones, or tokens that the server adds',
      ];
  }
}

/** Some sentences, and how many more there are. */
function listed(all: readonly string[]): string {
  const most = 4;
  const more = all.length > most ? `; and ${all.length - most} more (--json lists them)` : '';
  return all.slice(0, most).join('; ') + more;
}

const short = (value: number): string => (value < 1e-4 ? '0' : String(Number(value.toPrecision(2))));
const nats = (value: number): string => `${short(value)} nats`;

/** The sentences for a way that differs. */
const WAYS: Readonly<Record<Way, readonly [name: string, differs: string]>> = {
  again: ['repeated', 'the same request gives other log-probabilities each time'],
  whole: ['in a longer', 'tokens get other log-probabilities inside a longer prompt than at the end of their own'],
  cached: [
    'prefix cached',
    'tokens behind a prefix that the server has kept get other log-probabilities than in one piece',
  ],
  behind: ['behind others', 'tokens get other log-probabilities after another request'],
  together: ['together', 'tokens get other log-probabilities together with other requests'],
  streamed: ['streamed', 'tokens get other log-probabilities in a stream than in one answer'],
  padded: ['in a list', 'tokens get other log-probabilities in one request with prompts of other lengths'],
};

/**
 * Writes what a server's answers say of each other, as lines of text.
 *
 * @param report - from {@link probeSelf}
 * @returns lines without line ends
 * @throws {RopewalkError} RANGE for a value that is no report
 * @example for (const line of selfLines(report)) console.log(line);
 */
export function selfLines(report: SelfReport): string[] {
  return reading('selfLines: report', () => {
    const { server, lengths, ways, noise, verdict } = report;
    const lines = [
      `server      ${server.about}`,
      `asked       prompts of ${lengths.join(', ')} tokens, the same ones from the start`,
      '',
    ];
    const wrong = ways.filter(({ from }) => from !== undefined);
    if (verdict === 'agrees')
      lines.push('OK: the same tokens get the same log-probabilities in every way that was tried');
    for (const { way, from } of wrong) lines.push(`DIFFERENT: ${WAYS[way][1]}, first seen after ${from} tokens`);
    lines.push('', `  ${'noise'.padEnd(14)}${nats(noise)} at most between two equal requests`);
    for (const { way, differences } of ways) {
      if (way === 'again') continue;
      const shown = differences.map(({ seen, difference }) => `${seen} ${short(difference)}`);
      lines.push(`  ${WAYS[way][0].padEnd(14)}${shown.join(', ')}`);
    }
    return lines;
  });
}
