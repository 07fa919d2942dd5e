/** Checks sentences on what single dimensions of y are made of, against the kernel's own output. @module */
import { UNIT_ROUNDOFF } from '../../../packages/oracle/src/tolerance.js';
import { type Aspect, type Call, normedInput, type Rotation } from './kernel.js';

/** A sentence, what it is about, and why it is not true. */
export type MemberLine = readonly [
  RegExp,
  readonly Aspect[],
  (parts: string[], scene: MemberScene) => string | undefined,
];

interface MemberScene {
  readonly call: Call;
  readonly asked: Rotation;
}

/** x of the two dimensions of a pair, cos, sin, the sign of the sin term, x of the dimension itself. */
interface At {
  readonly x: (i: number) => number;
  readonly cos: (j: number) => number;
  readonly sin: (j: number) => number;
  readonly pair: number;
  readonly own: number;
  readonly other: number;
}

const TERMS: Readonly<Record<string, (at: At) => number>> = {
  'as expected': ({ x, cos, sin, pair, own, other }) => x(own) * cos(pair) + x(other) * sin(pair),
  'x, not rotated': ({ x, own }) => x(own),
  'x × cos without the sin term': ({ x, cos, pair, own }) => x(own) * cos(pair),
  'the sin term without x × cos': ({ x, sin, pair, other }) => x(other) * sin(pair),
  'rotated with the opposite sign of the sin term': ({ x, cos, sin, pair, own, other }) =>
    x(own) * cos(pair) - x(other) * sin(pair),
  'rotated with the opposite sign of x × cos': ({ x, cos, sin, pair, own, other }) =>
    x(other) * sin(pair) - x(own) * cos(pair),
  'the expected values × −1': ({ x, cos, sin, pair, own, other }) => -x(own) * cos(pair) - x(other) * sin(pair),
  '0': () => 0,
};

/** Why a dimension does not hold what `of` gives, in some row. */
function unlike(dim: number, of: (at: At) => number, { call, asked }: MemberScene): string | undefined {
  const x = normedInput(call);
  const gain = typeof asked.gain === 'number' ? asked.gain : asked.gain[0];
  const pair = asked.pairs.findIndex(({ write }) => write.includes(dim));
  if (pair < 0) return `dimension ${dim} is in no pair`;
  const { read, write } = asked.pairs[pair]!;
  const which = write.indexOf(dim);
  for (let batch = 0; batch < call.batch; batch++)
    for (let seq = 0; seq < call.seq; seq++)
      for (let head = 0; head < call.heads; head++) {
        const from = call.at(batch, seq, head);
        const angle = (j: number): number => {
          const given = call.position(batch, seq, asked.axisOfPair?.[j] ?? 0);
          return asked.position(given, { batch, seq, head }) * asked.frequency[j]!;
        };
        const value = of({
          x: (i) => x[from + i]!,
          cos: (j) => gain * Math.cos(angle(j)),
          sin: (j) => gain * (which === 0 ? -1 : 1) * Math.sin(angle(j)),
          pair,
          own: read[which]!,
          other: read[1 - which]!,
        });
        // Angles in f32 and arithmetic in the dtype.
        const slack = 16 * UNIT_ROUNDOFF[call.dtype] + 2 ** -20 * (1 + Math.abs(angle(pair)));
        if (!(Math.abs(call.y[from + dim]! - value) <= slack * 8)) return `dimension ${dim} holds something else`;
      }
  return undefined;
}

function numbers(text: string): number[] {
  return text.split(', ').flatMap((part) => {
    const [from, to = from] = part.split('-').map(Number) as [number, number?];
    return Array.from({ length: to! - from + 1 }, (_what, n) => from + n);
  });
}

const expected = TERMS['as expected']!;

export const MEMBER_LINES: readonly MemberLine[] = [
  [
    /^Dimensions ([\d, -]+), the (first|second) members of the pairs, are (.*)\.$/,
    ['elements'],
    ([dims, which, words], scene) => {
      const member = which === 'first' ? 0 : 1;
      const wrong = scene.asked.pairs.some(({ write }) => !numbers(dims!).includes(write[member]));
      if (wrong) return 'those are others';
      const readings = words!.split(', or ').map((one) => TERMS[one]);
      if (readings.includes(undefined)) return `"${words}" is not understood`;
      const whys = readings.map((of) => numbers(dims!).map((dim) => unlike(dim, of!, scene)));
      return whys.some((why) => why.every((one) => one === undefined)) ? undefined : whys[0]!.find(Boolean);
    },
  ],
  [
    /^The members of a pair rotate by different angles: (.*?)(?:, …)?(?:; dimension i by that of pair (?:i|\(i − (\d+)\)) mod (\d+))?\.$/,
    ['elements'],
    ([shown, first, modulo], scene) => {
      const said = [...shown!.matchAll(/dimension (\d+) by that of pair (\d+) instead of \d+/g)].map((one) =>
        one.slice(1).map(Number),
      ) as [number, number][];
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      const ruled = modulo
        ? dims.map((dim): [number, number] => [dim, (dim - Number(first ?? 0)) % Number(modulo)])
        : [];
      return [...said, ...ruled]
        .map(([dim, of]) => unlike(dim, ({ x, cos, sin, own, other }) => x(own) * cos(of) + x(other) * sin(of), scene))
        .find(Boolean);
    },
  ],
  [
    /^Dimensions of y come from other dimensions of x, \d+ in all: (.*)\.$/,
    ['elements'],
    ([shown], scene) =>
      [...shown!.matchAll(/dimension (\d+) from x\[(\d+)\] × cos and x\[(\d+)\] × sin/g)]
        .map((one) => one.slice(1).map(Number) as [number, number, number])
        .map(([dim, a, b]) => unlike(dim, ({ x, cos, sin, pair }) => x(a) * cos(pair) + x(b) * sin(pair), scene))
        .find(Boolean),
  ],
  [
    /^Each dimension of x is multiplied by a factor of its own before it is rotated, from about [\d.]+ to [\d.]+(?:: (\d+) is (added to|taken from) the norm's weight)?\.$/,
    ['elements'],
    ([value, way], scene) => {
      const { norm } = scene.call;
      if (value === undefined || !norm) return 'the checker does not know the factors';
      const more = Number(value) * (way === 'added to' ? 1 : -1);
      const call: Call = { ...scene.call, norm: { ...norm, weight: norm.weight.map((w) => w + more) } };
      const dims = scene.asked.pairs.flatMap(({ write }) => write);
      return dims.map((dim) => unlike(dim, expected, { ...scene, call })).find(Boolean);
    },
  ],
];
