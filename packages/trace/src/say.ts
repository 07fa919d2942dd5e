/** The report of a trace: sentences, a picture of layers and tokens, JSON. @module */
import { number } from './cause.js';
import type { Kind } from './names.js';
import type { Divergence, Step, TraceReport } from './trace.js';

const MOST_LAYERS = 10;
const COLUMNS = 56;
const MOST_NOTES = 4;

/** Says a report in sentences, of about 25 lines with the picture. */
export function traceLines(report: TraceReport): string[] {
  const { a, b, steps, divergence, matched, unmatched, notes, ruler } = report;
  const lines = [
    `A  ${a}`,
    `B  ${b}`,
    `matched  ${steps.length} tensors${matched.length > 0 ? `. ${matched.slice(0, 3).join('; ')}` : ''}`,
  ];
  for (const [side, names] of [
    ['A', unmatched.a],
    ['B', unmatched.b],
  ] as const)
    if (names.length > 0)
      lines.push(`only in ${side}  ${names.length}: ${names.slice(0, 4).join(', ')}${names.length > 4 ? ', …' : ''}`);
  // Conventions come last, and matter most.
  const told =
    notes.length > MOST_NOTES
      ? [`${notes.length - MOST_NOTES} more notes: --json has them.`, ...notes.slice(-MOST_NOTES)]
      : notes;
  const noise = ruler.adopted
    ? `from ${ruler.adopted.step} on ${percent(ruler.adopted.rms)}${ruler.adopted.isEven ? ', alike in all tokens and dimensions' : ''}: noise${ruler.adopted.rms > 1e-4 ? ', as weights in fewer bits make it' : ''}`
    : `${percent(ruler.measured)} of a row at most in the last 25 tensors; the coarsest values are ${ruler.dtype}`;
  lines.push(`noise  ${noise}`, ...told.map((note) => `note  ${note}`), '');
  if (!divergence) {
    const last = steps.at(-1)!;
    lines.push(
      `SAME  no tensor that was matched leaves the noise. ${last.name} differs by ${percent(last.difference.rms)}, at most ${percent(last.difference.worst)} of a row.`,
    );
    return lines;
  }
  lines.push(...divergenceLines(divergence), '', ...picture(report));
  const last = steps.at(-1)!;
  if (last !== divergence.step) lines.push(`after it  ${last.name} differs by ${percent(last.difference.rms)}`);
  return lines;
}

/** The next step where no cause is proved. */
const NEXT: Readonly<Partial<Record<Kind, string>>> = {
  ...Object.fromEntries(
    ['q', 'k', 'v', 'qkv', 'gate', 'up', 'gate_up'].map((kind) => [
      kind,
      'The step multiplies by one matrix: compare it in both runtimes.',
    ]),
  ),
  attn: 'Dump the input of the output matrix too (o_proj.input): attention is then computed again from q, k and v.',
};

function divergenceLines({ step, firstToken, wrongTokens, tokens, inputs, causes }: Divergence): string[] {
  const { difference, bound, name, kind } = step;
  const given = difference.given.filter(Boolean).length;
  const some = `${given} ${given < tokens ? `printed tokens of ${tokens}` : 'tokens'}`;
  const whole = wrongTokens === given ? `all ${some}` : `${wrongTokens} of ${some}, the first is ${firstToken}`;
  return [
    `FIRST DIVERGENCE  ${name}`,
    `  ${percent(difference.rms)} in all, ${percent(difference.worst)} of the row at token ${difference.worstRow}; the ruler allows ${percent(bound!)}. ${whole}.`,
    inputs.length > 0
      ? `  Its inputs agree: ${inputs.slice(0, 4).join(', ')}.`
      : '  No input of this step is in both dumps.',
    ...(causes.length > 0
      ? causes.map(({ says }) => `  cause  ${says}`)
      : [`  No cause that is known here gives B from A.${NEXT[kind] ? ` ${NEXT[kind]}` : ''}`]),
  ];
}

/** A line a layer, a column a token or several: how far the rows are apart, and where it begins. */
function picture({ steps, divergence }: TraceReport): string[] {
  const { pass, layer: bad } = divergence!.step;
  const shown = steps.filter(
    (step) => step.pass === pass && step.difference.tokens === divergence!.tokens && step.state !== 'convention',
  );
  const layers = [...new Set(shown.map(({ layer }) => layer))].filter((layer) => layer !== undefined);
  const at = Math.max(0, layers.indexOf(bad ?? layers.at(-1)!) - 2);
  const width = Math.min(COLUMNS, divergence!.tokens);
  const lines = layers.slice(at, at + MOST_LAYERS).map((layer) => {
    const ofLayer = shown.filter((step) => step.layer === layer);
    const marks = Array.from({ length: width }, (_, column) => markOf(ofLayer, column, width, divergence!));
    return `  layer ${String(layer).padStart(3)} ${marks.join('')}${layer === bad ? ` ◄ ${divergence!.step.kind}` : ''}`;
  });
  const isWhole = divergence!.step.difference.given.every(Boolean);
  return lines.length > 0 && isWhole
    ? [`  tokens 0 to ${divergence!.tokens - 1}: · within the ruler, + beyond it, # by more than a third`, ...lines]
    : [];
}

function markOf(steps: readonly Step[], column: number, width: number, { step, tokens }: Divergence): string {
  const [from, to] = [Math.floor((column * tokens) / width), Math.ceil(((column + 1) * tokens) / width)];
  let most = 0;
  for (const { difference, state } of steps)
    if (state === 'diverges' || state === 'after')
      for (let t = from; t < to; t++) most = Math.max(most, difference.rows[t]!);
  return most > 1 / 3 ? '#' : most > step.bound! ? '+' : '·';
}

function percent(share: number): string {
  if (!Number.isFinite(share)) return 'without bound';
  return share === 0 ? '0' : share < 1e-4 ? share.toExponential(1) : `${number(100 * share, 2)} %`;
}

/** A report as plain JSON. */
export function traceToJson({ steps, divergence, ...rest }: TraceReport): unknown {
  const plain = ({ difference: { rms, worst, worstRow, tokens }, bound, ...step }: Step): object => ({
    ...step,
    tokens,
    rms,
    worst,
    worstToken: worstRow,
    bound: bound ?? null,
  });
  return {
    ...rest,
    same: divergence === undefined,
    divergence: divergence ? { ...divergence, step: divergence.step.name } : null,
    steps: steps.map(plain),
  };
}
