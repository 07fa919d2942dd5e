/** Runs strangers' kernels through the diagnosis and says how it did. @module */

import { roundTo, type Tensor, tensorFrom } from 'ropewalk';
import { f64Tensor } from '../../../../test/support/tensors.js';
import { type Diagnosis, describeDiagnosis, diagnose } from '../../src/index.js';
import { type Call, callFor, exact, rotationOf, type Stranger } from './kernel.js';
import { isParameter, type Judged, judgeLines, rowsNamed } from './truth.js';

/** The marks of a diagnosis, the best first. */
export const MARKS = ['right', 'named', 'described', 'vague', 'untrue', 'wrong name', 'passed', 'accused'] as const;
export type Mark = (typeof MARKS)[number];

export interface Scored {
  readonly stranger: Stranger;
  readonly mark: Mark;
  /** Lines that are not true; also where the mark is a worse one. */
  readonly untrue: readonly Judged[];
  readonly lines: readonly string[];
  readonly seconds: number;
}

/** Diagnoses a stranger's kernel and judges every line. */
export function scoreOf(stranger: Stranger): Scored {
  const call = callFor(stranger);
  stranger.run(call);
  for (let n = 0; n < call.y.length; n++) call.y[n] = roundTo(stranger.dtype, call.y[n]!);
  const { batch, seq, heads, headDim, norm } = call;
  const shape = [batch, seq, heads, headDim];
  const dtype = stranger.dumped ?? stranger.dtype;
  const expected = stranger.expect === false ? undefined : { spec: call.spec };
  const dumped = (values: Float64Array): Tensor => {
    const tensor = f64Tensor(values, shape, dtype);
    return stranger.headsFirst ? tensor.permute([0, 2, 1, 3]).contiguous() : tensor;
  };
  const started = performance.now();
  const diagnosis = diagnose(
    {
      x: dumped(call.x),
      y: dumped(call.y),
      positions: positionsOf(call),
      numAxes: call.axes,
      ...(norm ? { norm: { weight: f64Tensor(norm.weight, [headDim], dtype), eps: norm.eps } } : {}),
    },
    expected,
  );
  const lines = describeDiagnosis(diagnosis, expected && 'config.json', { all: true });
  const seconds = (performance.now() - started) / 1000;
  const truth = stranger.truth(call);
  const asked = rotationOf(call.spec);
  const judged = judgeLines(lines, {
    stranger,
    call,
    truth,
    asked,
    right: exact(call, asked),
    dtype: stranger.dtype,
  });
  const untrue = judged.filter((one) => one.untrue !== undefined);
  return { stranger, mark: markOf(stranger, call, diagnosis, judged), untrue, lines, seconds };
}

function positionsOf({ positions, axes, batch, seq }: Call): Tensor {
  const shape = axes > 1 ? [axes, batch, seq] : [batch, seq];
  return tensorFrom(BigInt64Array.from(positions, BigInt), { shape });
}

/** Whether a stranger's kernel gives what was asked for. */
export const isRight = ({ cause }: Stranger): boolean => cause === 0 || cause === 7;

function markOf(
  stranger: Stranger,
  call: Call,
  { verdict, named, otherRules, rowSummary }: Diagnosis,
  judged: readonly Judged[],
): Mark {
  const truth = stranger.truth(call);
  const { names = [], isName: own, wrong, describes = [] } = truth;
  const untrue = judged.some((one) => one.untrue !== undefined);
  const passed = verdict === 'as expected' || verdict === 'less precise' || verdict === 'rotation';
  if (isRight(stranger)) return !passed ? 'accused' : untrue ? 'untrue' : 'right';
  const rows = rowSummary?.shown ? rowsNamed(rowSummary.shown, { call }) : undefined;
  // A pair of bugs is right when both are; of several that cannot be told apart, one must be.
  const isName = (id: string): boolean =>
    isParameter(id, call, truth) ||
    (!id.includes('=') && (own?.(id, rows) ?? false)) ||
    names.includes(id) ||
    id.split('+').every((one) => names.includes(one));
  const rightName = named.some(({ id }) => isName(id));
  const isOther = otherRules && (wrong.includes('positions') || wrong.includes('frequencies'));
  if (verdict === 'known bug' && !rightName && isOther) return untrue ? 'untrue' : 'described';
  if (verdict === 'known bug') return !rightName ? 'wrong name' : untrue ? 'untrue' : 'named';
  if (verdict === 'less precise' && rightName) return untrue ? 'untrue' : 'named';
  if (passed && stranger.expect !== false) return 'passed';
  if (untrue) return 'untrue';
  const described = judged.some(
    ({ line, about }) =>
      about.some((one) => wrong.includes(one)) ||
      describes.some((of) => of.test(line.replace(/^DIFFERENT from .*?: /, ''))),
  );
  return described || verdict === 'rotation' ? 'described' : 'vague';
}

/** The table: a row for each cause, a column for each mark. */
export function tableOf(scores: readonly Scored[]): string {
  const causes = [...new Set(scores.map(({ stranger }) => stranger.cause))].sort();
  const row = (name: string, of: readonly Scored[]): string[] => [
    name,
    String(of.length),
    ...MARKS.map((mark) => String(of.filter((one) => one.mark === mark).length)),
  ];
  const rows = [
    ['cause', 'kernels', ...MARKS],
    ...causes.map((cause) =>
      row(
        WORDS[cause],
        scores.filter(({ stranger }) => stranger.cause === cause),
      ),
    ),
    row('all', scores),
  ];
  const widths = rows[0]!.map((_what, c) => Math.max(...rows.map((cells) => cells[c]!.length)));
  return rows
    .map((cells) => cells.map((cell, c) => (c === 0 ? cell.padEnd(widths[c]!) : cell.padStart(widths[c]!))).join('  '))
    .join('\n');
}

const WORDS: Readonly<Record<Stranger['cause'], string>> = {
  0: 'right kernels',
  1: '1 a loose hypothesis',
  2: '2 hidden under a 16-bit tier',
  3: '3 all or nothing',
  4: '4 aliasing',
  5: '5 untrue words',
  6: '6 not in the catalogue',
  7: '7 right, but accused before',
  8: '8 y is x',
};
