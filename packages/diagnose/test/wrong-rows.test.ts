import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RopeSpec } from 'ropewalk';
import { type FloatDtype, roundTo, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { some } from '../../../test/support/size.js';
import { diagnose } from '../src/diagnose.js';
import { MUTANTS } from '../src/mutants/catalogue.js';
import type { Expected } from '../src/read/expected.js';
import type { Observation } from '../src/read/observation.js';
import type { Diagnosis } from '../src/say/diagnosis.js';
import { describeDiagnosis } from '../src/say/words.js';

const [BATCH, SEQ, HEADS, DIM] = [2, 8, 4, 64];
const SHAPE = [BATCH, SEQ, HEADS, DIM];
const POSITIONS = [
  [0, 1, 5, 40, 511, 3000, 8191, 100003],
  [7, 2, 90, 1000, 4097, 20, 33, 70001],
];
const SPEC: RopeSpec = { headDim: DIM, pairing: 'half', base: 10000 };
const EXPECTED: Expected = { spec: SPEC };

/** A kernel in a few lines, apart from the oracle; nothing is rounded yet. */
class Kernel {
  readonly x: Float64Array;
  readonly y: Float64Array;

  constructor(
    readonly dtype: FloatDtype,
    readonly base = 10000,
    positions: readonly (readonly number[])[] = POSITIONS,
  ) {
    const random = randomFrom('census');
    this.x = Float64Array.from({ length: BATCH * SEQ * HEADS * DIM }, () => roundTo('bf16', random.uniform(-1, 1)));
    this.y = new Float64Array(this.x.length);
    this.each((b, s, h) => this.row(b, s, h).set(this.turned(this.rowOfX(b, s, h), positions[b]![s]!)));
  }

  each(visit: (b: number, s: number, h: number) => void): void {
    for (let b = 0; b < BATCH; b++) for (let s = 0; s < SEQ; s++) for (let h = 0; h < HEADS; h++) visit(b, s, h);
  }

  row(b: number, s: number, h: number): Float64Array {
    const from = ((b * SEQ + s) * HEADS + h) * DIM;
    return this.y.subarray(from, from + DIM);
  }

  rowOfX(b: number, s: number, h: number): Float64Array {
    const from = ((b * SEQ + s) * HEADS + h) * DIM;
    return this.x.subarray(from, from + DIM);
  }

  turned(row: ArrayLike<number>, position: number): Float64Array {
    const y = new Float64Array(DIM);
    for (let j = 0; j < DIM / 2; j++) {
      const angle = position * this.base ** ((-2 * j) / DIM);
      const [x0, x1] = [row[j]!, row[j + DIM / 2]!];
      y[j] = x0 * Math.cos(angle) - x1 * Math.sin(angle);
      y[j + DIM / 2] = x0 * Math.sin(angle) + x1 * Math.cos(angle);
    }
    return y;
  }

  observation(): Observation {
    return {
      x: tensorFrom(Float32Array.from(this.x), { shape: SHAPE }),
      y: tensorFrom(
        Float32Array.from(this.y, (value) => roundTo(this.dtype, value)),
        { shape: SHAPE },
      ),
      positions: tensorFrom(Int32Array.from(POSITIONS.flat()), { shape: [BATCH, SEQ] }),
    };
  }
}

type Where = (b: number, s: number, h: number) => boolean;

/** Rows of a token, of heads, of a batch. */
const PLACES: readonly [words: string, where: Where][] = [
  ['Token 5 of batch 1', (b, s) => b === 1 && s === 5],
  ['Tokens 3-5', (_b, s) => s >= 3 && s <= 5],
  ['Heads 1-2 of ', (_b, _s, h) => h === 1 || h === 2], // token 0 of batch 0 is at position 0, where x is right
  ['Head 3 of token 2 of batch 0', (b, s, h) => b === 0 && s === 2 && h === 3],
  ['Batch 1', (b) => b === 1],
];

interface Content {
  readonly what: string;
  readonly words: string;
  /** The contents of a row that should hold `right`. */
  readonly write: (
    kernel: Kernel,
    at: readonly [b: number, s: number, h: number],
    right: Float64Array,
  ) => ArrayLike<number>;
  /** Places of which this would say something else. */
  readonly skip?: readonly string[];
}

const fill = (value: number) => () => new Float64Array(DIM).fill(value);
const random = randomFrom('census garbage');
const CONTENTS: readonly Content[] = [
  { what: 'zeros', words: 'zeros', write: fill(0) },
  { what: 'not finite', words: 'NaN', write: fill(Number.NaN) },
  { what: 'not finite', words: 'infinities', write: fill(Infinity) },
  { what: 'one value', words: 'one value, 0.75', write: fill(0.75) },
  { what: 'x', words: 'x, not rotated', write: (kernel, [b, s, h]) => kernel.rowOfX(b, s, h) },
  { what: 'minus x', words: '−x', write: (kernel, [b, s, h]) => kernel.rowOfX(b, s, h).map((value) => -value) },
  {
    what: 'another position',
    words: 'this row of x rotated by its position − 37',
    write: (kernel, [b, s, h]) => kernel.turned(kernel.rowOfX(b, s, h), POSITIONS[b]![s]! - 37),
  },
  {
    what: 'another position',
    words: 'this row of x rotated by its position, and again by that of the token before it',
    write: (kernel, [b, s, h]) =>
      kernel.turned(kernel.rowOfX(b, s, h), POSITIONS[b]![s]! + (s > 0 ? POSITIONS[b]![s - 1]! : 0)),
    skip: ['Heads 1-2 of ', 'Batch 1', 'Token 5 of batch 1', 'Head 3 of token 2 of batch 0'], // one token has another reading
  },
  {
    what: 'another row',
    words: 'the right result of head 0',
    write: (kernel, [b, s]) => kernel.turned(kernel.rowOfX(b, s, 0), POSITIONS[b]![s]!),
  },
  {
    what: 'another row',
    words: 'the right result of batch 0',
    write: (kernel, [, s, h]) => kernel.turned(kernel.rowOfX(0, s, h), POSITIONS[0]![s]!),
    skip: ['Tokens 3-5', 'Heads 1-2 of ', 'Head 3 of token 2 of batch 0'],
  },
  {
    what: 'another row',
    words: 'the right result of the token before it',
    write: (kernel, [b, s, h]) => kernel.turned(kernel.rowOfX(b, s - 1, h), POSITIONS[b]![s - 1]!),
    skip: ['Batch 1', 'Heads 1-2 of '],
  },
  {
    what: 'another position',
    words: 'this row of x rotated by the position of the token after it',
    write: (kernel, [b, s, h]) => kernel.turned(kernel.rowOfX(b, s, h), POSITIONS[b]![s + 1]!),
    skip: ['Batch 1', 'Heads 1-2 of '],
  },
  {
    what: 'another position',
    words: 'this row of x rotated by the position of token 7',
    write: (kernel, [b, s, h]) => kernel.turned(kernel.rowOfX(b, s, h), POSITIONS[b]![7]!),
    skip: ['Batch 1', 'Heads 1-2 of '],
  },
  {
    what: 'another position',
    words: 'this row of x rotated by its position + 1',
    write: (kernel, [b, s, h]) => kernel.turned(kernel.rowOfX(b, s, h), POSITIONS[b]![s]! + 1),
  },
  {
    what: 'another position',
    words: 'this row of x rotated twice',
    write: (kernel, [b, s], right) => kernel.turned(right, POSITIONS[b]![s]!),
  },
  {
    what: 'scaled',
    words: 'the right result with the opposite sign',
    write: (_kernel, _at, right) => right.map((value, i) => (i % 7 === 0 ? -value : value)),
  },
  ...(['stored', 'read'] as const).map(
    (how): Content => ({
      what: 'another row',
      words: `the right result of the token, ${how} as [head_dim, head]`,
      write: (kernel, [b, s, h]) => {
        const token = Array.from({ length: HEADS }, (_, head) =>
          Array.from(kernel.turned(kernel.rowOfX(b, s, head), POSITIONS[b]![s]!)),
        );
        // Memory goes through one of them by its outer index, and through the other by its inner one.
        const values = how === 'read' ? token.flat() : token[0]!.flatMap((_, i) => token.map((row) => row[i]!));
        return token[h]!.map((_, i) => values[how === 'read' ? i * HEADS + h : h * DIM + i]!);
      },
    }),
  ),
  {
    what: 'another row of x',
    words: 'the row of x of head 0 of batch 0, rotated by the right position',
    write: (kernel, [b, s]) => kernel.turned(kernel.rowOfX((b + 1) % 2, s, 0), POSITIONS[b]![s]!),
    skip: PLACES.map(([words]) => words).filter((words) => words !== 'Batch 1'),
  },
  {
    what: 'unknown',
    words: 'values whose origin is not known',
    write: () => Float64Array.from({ length: DIM }, () => random.uniform(-1, 1)),
  },
];

function corrupted(dtype: FloatDtype, where: Where, write: Content['write']): Kernel {
  const kernel = new Kernel(dtype);
  const right = kernel.y.slice();
  kernel.each((b, s, h) => {
    if (!where(b, s, h)) return;
    const from = ((b * SEQ + s) * HEADS + h) * DIM;
    kernel.row(b, s, h).set(write(kernel, [b, s, h], right.slice(from, from + DIM)));
  });
  return kernel;
}

function wrongWords(result: Diagnosis): string[] {
  return (result.rowSummary?.wrong ?? []).map(({ where }) => where);
}

describe('the summary of rows says what the wrong rows hold', () => {
  for (const { what, words, write, skip } of CONTENTS) {
    for (const [place, where] of PLACES) {
      if (skip?.includes(place)) continue;
      test(`${words}: ${place}`, () => {
        for (const dtype of some(['f32', 'bf16'] as const)) {
          const result = diagnose(corrupted(dtype, where, write).observation(), EXPECTED, { mutants: [] });
          const said = describeDiagnosis(result, 'a test', { all: true }).join('\n');
          assert.equal(result.verdict, 'partly right', `${dtype}\n${said}`);
          assert.ok(said.includes(words), `${dtype}\n${said}`);
          assert.ok(
            result.rowSummary!.wrong.some((entry) => entry.what === what),
            `${dtype}\n${said}`,
          );
          if (what !== 'unknown' && !words.includes('head 0') && !words.includes('the position of'))
            assert.ok(
              wrongWords(result).some((one) => one.toLowerCase().startsWith(place.toLowerCase())),
              `${dtype}\n${said}`,
            );
        }
      });
    }
  }
});

describe('parts of rows', () => {
  const cases: readonly [name: string, spoil: (kernel: Kernel) => void, words: readonly string[]][] = [
    [
      'one element',
      (k) => {
        k.row(1, 4, 2)[17] = 0.33;
      },
      ['Head 2 of token 4 of batch 1, dimension 17: values whose origin'],
    ],
    [
      'a NaN',
      (k) => {
        k.row(1, 4, 2)[17] = Number.NaN;
      },
      ['Head 2 of token 4 of batch 1, dimension 17: NaN'],
    ],
    [
      'a tail of dimensions',
      (k) => k.each((b, s, h) => k.row(b, s, h).fill(0, 56)),
      ['Every token, dimensions 56-63: zeros', 'Dimensions 0-55 of every token.'],
    ],
    [
      'a flat tail',
      (k) => {
        k.y.fill(0, k.y.length - DIM - 16);
      },
      ['Head 3 of token 7 of batch 1: zeros.', 'Head 2 of token 7 of batch 1, dimensions 48-63: zeros.'],
    ],
    [
      'swapped tokens',
      (k) => {
        for (let h = 0; h < HEADS; h++) {
          const a = k.row(0, 3, h).slice();
          k.row(0, 3, h).set(k.row(0, 6, h));
          k.row(0, 6, h).set(a);
        }
      },
      ['Tokens 3, 6 of batch 0: the right result of the token whose index is 9 minus its own.'],
    ],
    [
      'all tokens one later',
      (k) => {
        const y = k.y.slice();
        k.each((b, s, h) => {
          const f = ((b * SEQ + ((s + 1) % SEQ)) * HEADS + h) * DIM;
          k.row(b, s, h).set(y.subarray(f, f + DIM));
        });
      },
      ['the right result of the token after it'],
    ],
    [
      '[B, S] as [S, B]',
      (k) => {
        const y = k.y.slice();
        k.each((b, s, h) => {
          const n = b * SEQ + s;
          const f = (((n % BATCH) * SEQ + Math.floor(n / BATCH)) * HEADS + h) * DIM;
          k.row(b, s, h).set(y.subarray(f, f + DIM));
        });
      },
      ['if [batch, seq] read as [seq, batch]'],
    ],
    [
      'in place',
      (k) =>
        k.each((b, s, h) => {
          const [y, x] = [k.row(b, s, h), k.rowOfX(b, s, h)];
          for (let j = 0; j < DIM / 2; j++) {
            const angle = POSITIONS[b]![s]! * k.base ** ((-2 * j) / DIM);
            y[j + DIM / 2] = roundTo(k.dtype, y[j]!) * Math.sin(angle) + x[j + DIM / 2]! * Math.cos(angle);
          }
        }),
      ['the second member of a pair computed from the first one’s result'],
    ],
    [
      'a race',
      (k) => {
        const r = randomFrom('race');
        for (let n = 0; n < 30; n++) k.y[r.integer(k.y.length)] = r.uniform(2, 3);
      },
      ['30 elements in'],
    ],
  ];
  for (const [name, spoil, words] of cases)
    for (const dtype of ['f32', 'bf16'] as const)
      test(`${name}, ${dtype}`, () => {
        const kernel = new Kernel(dtype);
        spoil(kernel);
        const result = diagnose(kernel.observation(), EXPECTED, { mutants: [] });
        const said = describeDiagnosis(result, 'a test', { all: true }).join('\n');
        // There no row is right.
        assert.equal(result.verdict, name === 'all tokens one later' ? 'different' : 'partly right', said);
        for (const one of words) assert.ok(said.includes(one), `${one}\n${said}`);
      });
});

describe('a rotation that is wrong everywhere is not partly right', () => {
  const cases: Readonly<Record<string, Kernel>> = Object.fromEntries(
    (['f32', 'f16', 'bf16'] as const).flatMap((dtype) => [
      [`base 20000, ${dtype}`, new Kernel(dtype, 20000)],
      [`base 10020, ${dtype}`, new Kernel(dtype, 10020)],
      [
        `positions + 3, ${dtype}`,
        new Kernel(
          dtype,
          10000,
          POSITIONS.map((row) => row.map((p) => p + 3)),
        ),
      ],
    ]),
  );
  for (const [name, kernel] of Object.entries(cases))
    test(name, () => {
      const result = diagnose(kernel.observation(), EXPECTED, { mutants: [] });
      assert.notEqual(result.verdict, 'partly right');
      assert.equal(result.rowSummary, undefined);
    });
  test('nothing is rotated', () => {
    const kernel = new Kernel('f32');
    kernel.y.set(kernel.x);
    const result = diagnose(kernel.observation(), EXPECTED, { mutants: [] });
    assert.equal(result.verdict, 'not understood');
    assert.match(describeDiagnosis(result, 'a test', { all: true }).join('\n'), /The kernel did not run/);
  });
  for (const [value, text] of [
    [0, '0'],
    [-0, '0'],
    [Number.NaN, 'NaN'],
  ] as const)
    test(`y is ${Object.is(value, -0) ? '-0' : value} everywhere, which is said first`, () => {
      const kernel = new Kernel('f32');
      kernel.y.fill(value);
      for (const expected of [undefined, EXPECTED]) {
        const lines = describeDiagnosis(diagnose(kernel.observation(), expected), expected && 'a test', { all: true });
        assert.match(lines[0]!, new RegExp(`^NOT UNDERSTOOD: y is ${text} everywhere: nothing wrote it .*, or `));
        assert.equal(lines.filter((line) => line.includes('everywhere')).length, 1);
      }
    });
});

test('x that is 0 everywhere shows nothing', () => {
  const kernel = new Kernel('f32');
  kernel.x.fill(0);
  kernel.y.fill(0);
  const message = 'diagnose: x: it is 0 everywhere, and every rotation of it is 0. Give an x with other values.';
  assert.throws(() => diagnose(kernel.observation(), EXPECTED), { code: 'RANGE', message });
});

describe('a wrong rotation with rows that hold none', () => {
  for (const dtype of ['f32', 'bf16'] as const)
    test(dtype, () => {
      const kernel = new Kernel(dtype, 20000);
      for (let h = 0; h < HEADS; h++) kernel.row(1, 5, h).fill(0);
      kernel.row(0, 2, 1)[9] = Number.NaN;
      const result = diagnose(kernel.observation(), EXPECTED, { mutants: [] });
      const said = describeDiagnosis(result, 'a test', { all: true }).join('\n');
      assert.equal(result.verdict, 'different', said);
      assert.match(said, /those of base 20000 instead of 10000/, said);
      assert.doesNotMatch(said, /Right/);
      assert.match(said, /Token 5 of batch 1: zeros/, said);
      assert.match(said, /Head 1 of token 2 of batch 0, dimension 9: NaN/, said);
    });
});

describe('without an expectation', () => {
  for (const [name, words, value] of [
    ['zeros', 'zeros', 0],
    ['NaN', 'NaN', Number.NaN],
    ['x', 'x, not rotated', undefined],
  ] as const)
    test(name, () => {
      const kernel = new Kernel('f32');
      for (let h = 0; h < HEADS; h++) {
        if (value === undefined) kernel.row(1, 4, h).set(kernel.rowOfX(1, 4, h));
        else kernel.row(1, 4, h).fill(value);
      }
      const result = diagnose(kernel.observation());
      const said = describeDiagnosis(result, undefined, { all: true }).join('\n');
      assert.equal(result.verdict, 'partly right', said);
      assert.match(said, new RegExp(`Token 4 of batch 1: ${words}`), said);
      assert.equal(result.found.bases[0]?.base, 10000, said);
    });
});

describe('another rotation in some rows', () => {
  const at: Where = (_b, _s, h) => h >= 2;
  const spoil = (dtype: FloatDtype, write: Content['write']): Observation => corrupted(dtype, at, write).observation();
  for (const dtype of ['f32', 'bf16'] as const) {
    test(`another base in heads 2-3, ${dtype}`, () => {
      const other = new Kernel(dtype, 25000);
      const result = diagnose(
        spoil(dtype, (_k, [b, s, h]) => other.row(b, s, h)),
        EXPECTED,
        { mutants: [] },
      );
      const said = describeDiagnosis(result, 'a test', { all: true }).join('\n');
      assert.equal(result.verdict, 'partly right', said);
      assert.match(
        said,
        /eads 2-3 of tokens 1-7 of batch 0; heads 2-3 of every token of batch 1: another rotation\.[\s\S]*those of base 25000/,
        said,
      );
    });
    test(`a known bug in heads 2-3, ${dtype}`, () => {
      const mutants = MUTANTS.filter(({ id }) => id === 'direction-flipped' || id === 'pairs-interleaved-for-half');
      const write: Content['write'] = (k, [b, s, h]) => {
        const x = k.rowOfX(b, s, h);
        const order = Array.from({ length: DIM }, (_, i) => (i < DIM / 2 ? 2 * i : 2 * (i - DIM / 2) + 1));
        const turned = k.turned(
          order.map((i) => x[i]!),
          POSITIONS[b]![s]!,
        );
        return Float64Array.from({ length: DIM }, (_, i) => turned[order.indexOf(i)]!);
      };
      const result = diagnose(spoil(dtype, write), EXPECTED, { mutants });
      const said = describeDiagnosis(result, 'a test', { all: true }).join('\n');
      assert.equal(result.verdict, 'partly right', said);
      assert.match(
        said,
        /eads 2-3 of tokens 1-7 of batch 0; heads 2-3 of every token of batch 1: what the known bug pairs-interleaved-for-half gives/,
        said,
      );
    });
  }
});

describe('what is simpler than two bugs, and a race', () => {
  const given = POSITIONS.map((_row, b) => Array.from({ length: SEQ }, (_what, s) => 4000 + 16 * b + s));
  const at = (kernel: Kernel): Observation => ({
    ...kernel.observation(),
    positions: tensorFrom(Int32Array.from(given.flat()), { shape: [BATCH, SEQ] }),
  });

  test('angles times 2π are one formula, not two bugs', () => {
    const kernel = new Kernel(
      'f32',
      10000,
      POSITIONS.map((row) => row.map((p) => 2 * Math.PI * p)),
    );
    const { verdict, named, differences, tried } = diagnose(kernel.observation(), EXPECTED);
    assert.equal(verdict, 'different');
    assert.deepEqual(named, []);
    assert.match(differences.map(({ words }) => words).join(), /^The frequency of pair j is 2π × 10000\^/);
    assert.ok(tried.bugs > 0);
  });

  for (const shift of [1, -1]) {
    test(`far from 0, position ${shift} is no other frequency`, () => {
      const kernel = new Kernel(
        'f32',
        10000,
        given.map((row) => row.map((p) => p + shift)),
      );
      const { found, named } = diagnose(at(kernel), EXPECTED);
      assert.ok(named.some(({ id }) => id === (shift === 1 ? 'position-plus-one' : 'position-minus-one')));
      assert.match(found.positions[0]!.words, shift === 1 ? /^the position \+ 1$/ : /^the position − 1$/);
      assert.equal(found.law?.scaling.kind, 'none');
    });
  }

  for (const [name, also, words] of [
    ['second members only', false, /; only second members of pairs$/],
    ['both members', true, /origin is not known$/],
  ] as const) {
    test(`a race: ${name}`, () => {
      const kernel = new Kernel('f32');
      for (let n = 0; n < 12; n++) kernel.row(n % 2, 1 + (n % 7), n % 4)[DIM / 2 + 2 * n] = 0.3 + n / 100;
      if (also) kernel.row(1, 2, 3)[4] = 0.7;
      const { verdict, rowSummary } = diagnose(kernel.observation(), EXPECTED);
      assert.equal(verdict, 'partly right');
      assert.match(rowSummary!.wrong.map(({ holds }) => holds).join(' | '), words);
    });
  }
});
